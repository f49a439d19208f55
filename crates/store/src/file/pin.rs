//! Pinning a file: all of it comes into the tier, and stays.

use super::FileIo;
use crate::address::BlockIndex;
use crate::error::Result;
use crate::format::entry::Entry;
use crate::format::slot::PINNED;
use crate::known::{FileState, Placed};
use crate::ledger::map::Kept;
use crate::mover::admit::Admitted;
use crate::mover::pace::Moving;
use crate::profile::FileClass;
use crate::sync::atomic::Ordering;
use crate::tier::alloc::Purpose;
use crate::waits;
use std::sync::Arc;

/// How often a block is read again because the file was written past the tier meanwhile, before
/// writers wait for it.
const TRIES: u32 = 3;

impl FileIo {
    /// Brings a file in; see [`crate::AttachedHome::pin_at`]. `stays`: and pins it. One that is
    /// ended on its way is not pinned; what was brought in stays as clean copies, so that the next
    /// time begins where this ended.
    pub(crate) fn pin(&self, file: &FileState, stays: bool, moving: &mut Moving<'_>) -> Result<()> {
        let placed = self.can_pin(file)?;
        // One that is lent is on the tier's medium as a whole, and stays there.
        if !placed.loan.is_lent() {
            // Before the look, so that of two that come at once one sees the other at least.
            let coming = placed.stay.come();
            self.check_pin_fits(placed)?;
            self.bring_in(file, placed, moving)?;
            if file.unlinked.load(Ordering::Acquire) {
                return Err(file.invalid("pin", "it was removed meanwhile"));
            }
            if moving.moved.stopped {
                return Ok(());
            }
            if stays {
                self.set_pin(placed, true);
            }
            drop(coming);
        } else if stays {
            self.set_pin(placed, true);
        }
        Ok(())
    }

    /// Ends a pin.
    pub(crate) fn unpin(&self, file: &FileState) -> Result<()> {
        let placed = self.can_pin(file)?;
        if placed.stay.is_coming() {
            return Err(file.invalid("unpin", "its blocks are being brought in; end that first"));
        }
        self.set_pin(placed, false);
        Ok(())
    }

    fn can_pin<'a>(&self, file: &'a FileState) -> Result<&'a Placed> {
        let why = || file.invalid("pin", "its class is pass: it has no blocks in a tier");
        file.placed.as_ref().ok_or_else(why)
    }

    fn set_pin(&self, placed: &Placed, on: bool) {
        placed.set_flag(PINNED, on);
        placed.stay.set_pinned(on);
        self.mover.count_staying(&placed.tier);
    }

    /// An eighth of the tier must stay free of pins, or writers would have nothing to work with.
    fn check_pin_fits(&self, placed: &Placed) -> Result<()> {
        let frames =
            |p: &Placed| p.size().div_ceil(p.block_size.bytes() as u64) * p.block_size.frames();
        let pinned: u64 = self
            .mover
            .files
            .all()
            .iter()
            .filter_map(|f| f.placed.as_ref())
            .filter(|p| Arc::ptr_eq(&p.tier, &placed.tier) && p.stay.stays() && p.id != placed.id)
            .map(frames)
            .sum();
        let total = placed.tier.allocator.total_frames();
        let wanted = pinned + frames(placed);
        if wanted > total - total / 8 {
            return Err(self.mover.full(
                &placed.tier,
                &format!(
                    "pinning would hold {wanted} of {total} frames, an eighth must stay free \
                          of pins"
                ),
            ));
        }
        Ok(())
    }

    /// Reads every block that is only at home, which admits it, until the file's end, until it is
    /// removed or until this is to end. Between two blocks nothing is held.
    fn bring_in(&self, file: &FileState, placed: &Placed, moving: &mut Moving<'_>) -> Result<()> {
        let bytes = placed.block_size.bytes() as u64;
        let mut buffer = vec![0; placed.block_size.bytes()];
        for block in 0..placed.size().div_ceil(bytes) {
            let block = BlockIndex(block);
            let start = self.mover.events.start();
            let was_home = placed.map.get(block) == Entry::HOME;
            if was_home && !self.bring_block_in(file, placed, block, &mut buffer, moving)? {
                return Ok(());
            }
            let came = was_home && placed.map.get(block) != Entry::HOME;
            if came {
                let _ = self.mover.events.record_n(waits::MOVE_IN, start, bytes);
                self.mover.events.count(waits::MOVED_IN, 1);
            }
            let at = placed.block_size.start_of(block) + bytes;
            if !moving.step(&file.unlinked, u64::from(came), bytes, at) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Brings a block in, unless the file ends before it. `false`: it is lent by now, or this is to
    /// end.
    fn bring_block_in(
        &self,
        file: &FileState,
        placed: &Placed,
        block: BlockIndex,
        buffer: &mut [u8],
        moving: &mut Moving<'_>,
    ) -> Result<bool> {
        let start = placed.block_size.start_of(block);
        // Others wait for the turn: it ends with this block.
        let mut turn = None;
        let mut kept = Kept::default();
        // Nobody writes past the tier while it is there.
        let mut alone = None;
        let mut tries = 0;
        while placed.map.get(block) == Entry::HOME && start < placed.size() {
            if placed.class == FileClass::Redo {
                let _sizing = placed.sizing.lock();
                if placed.loan.is_lent() {
                    return Ok(false);
                }
                self.own_redo_block(file, placed, block, None, None)?;
                continue;
            }
            if tries >= TRIES && alone.is_none() {
                // Who waits for `sizing` may not have it.
                turn = None;
                alone = Some((placed.past.lock(), placed.sizing.lock()));
            }
            while !placed.make_leaf(block, &mut kept)? {
                self.mover.make_room_as(None, &placed.tier, Purpose::Pages, &mut turn)?;
            }
            let evictions = placed.map.evictions.load(Ordering::Acquire);
            file.read_home_block(placed, start, buffer)?;
            if placed.unsynced.has(block) {
                self.homeward.sync_through_unasked(file, placed)?;
                if placed.unsynced.is_doubted(block) {
                    return Err(file.invalid(
                        "pin",
                        format!(
                            "home could not be synced, and block {} may not be there; attach again",
                            block.0
                        ),
                    ));
                }
            }
            match self.mover.admit_block(placed, block, buffer, evictions, None)? {
                Admitted::Done => {}
                Admitted::NoRoom => {
                    let purpose = Purpose::Blocks(placed.block_size);
                    self.mover.make_room_as(None, &placed.tier, purpose, &mut turn)?;
                }
                Admitted::Moved => {
                    (turn, alone) = (None, None);
                    tries += 1;
                    if !moving.step(&file.unlinked, 0, placed.block_size.bytes() as u64, start) {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }
}

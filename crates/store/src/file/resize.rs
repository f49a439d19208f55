//! Cutting and lengthening a file.
//!
//! # Cutting, and what a power cut leaves
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 1 | a frame is taken for the last block, if it is cut in two | the old file |
//! | 2 | the state line gets the new size and the flag `truncating`, then a fence | **the new file**: recovery repeats 3 to 6 |
//! | 3 | entries past the end become `Home`, their frames are freed after a fence | the new file |
//! | 4 | the rest of the last block becomes zero (data: a new version; redo: in place) | the new file |
//! | 5 | the home file is cut and synced, if it was longer | the new file |
//! | 6 | the flag is cleared | the new file |
//!
//! So what a cut file had past its end never shows again when it grows.

use super::FileIo;
use crate::address::Frame;
use crate::error::Result;
use crate::format::entry::Entry;
use crate::format::slot::{DESTAGING, TRUNCATING};
use crate::home::HomeStat;
use crate::known::{FileState, Placed};
use crate::ledger::switch::{Outcome, Version};
use crate::planted::Planted;
use crate::profile::FileClass;
use crate::tier::alloc::Purpose;
use crate::waits;
use std::sync::atomic::Ordering;

/// What a new size means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resize {
    /// The file has this size afterwards.
    Exactly,
    /// It is made longer if it is shorter; decided when nobody else changes the size.
    AtLeast,
}

impl FileIo {
    /// Makes the file `size` bytes long.
    ///
    /// # Durability
    /// Durable on return on a persistent tier; for pass files and volatile tiers after a sync.
    pub(crate) fn resize(&self, file: &FileState, size: u64, how: Resize) -> Result<()> {
        let start = self.events.start();
        let Some(placed) = &file.placed else {
            let _turn = file.resizing.lock();
            if how == Resize::Exactly
                || file.home.stat().map_err(file.io("cannot stat"))?.size < size
            {
                file.home.set_len(size).map_err(file.io("cannot resize"))?;
            }
            let _ = self.events.record(waits::PASS_IO, start);
            return Ok(());
        };
        if placed.end_of(size, 0).is_none() {
            return Err(
                file.invalid("resize", format!("{size} bytes are more than a map can hold"))
            );
        }
        let _sizing = placed.sizing.lock();
        if placed.loan.is_lent() {
            self.resize_lent(file, placed, size, how)?;
            let _ = self.events.record(waits::RESIZE, start);
            return Ok(());
        }
        let old = placed.size();
        // A cut in front of the block that an earlier one has not got through does all of that.
        let last = placed.block_size.start_of(placed.block_size.block_of(old));
        if how == Resize::AtLeast || size > last || size == old {
            self.finish_earlier_cut(file, placed)?;
        }
        if size > old {
            if placed.class == FileClass::Redo && placed.tier.holds_dirty() {
                self.zero_gap(file, placed, size)?;
            }
            if !placed.tier.holds_dirty() {
                self.lengthen_through(file, placed, size)?;
            }
            self.grow_to(placed, size);
        } else if size < old && how == Resize::Exactly {
            self.cut(file, placed, size)?;
        }
        let _ = self.events.record(waits::RESIZE, start);
        Ok(())
    }

    fn cut(&self, file: &FileState, placed: &Placed, size: u64) -> Result<()> {
        let tier = &placed.tier;
        let spare = self.spare_for_cut(placed, size)?;
        let moving = placed.moving.lock();
        if tier.planted.is(Planted::TruncateHomeFirst) {
            let stat = file.home.stat().map_err(file.io("cannot stat"))?;
            if stat.size > size {
                file.home.set_len(size).map_err(file.io("cannot truncate"))?;
                file.home.sync().map_err(file.io("cannot sync"))?;
            }
        }
        self.homeward.begin_change_to(file, placed, TRUNCATING, Some(size))?;
        placed.size.store(size, Ordering::Release);
        placed.cutting.store(true, Ordering::Release);
        // Whoever has read home before this point must not take what it read for what home has when
        // the file has grown again.
        placed.map.evictions.fetch_add(1, Ordering::AcqRel);
        // Writers and admissions look at the size under their lane: after this everyone who looked
        // before has set its entry, where the scan for entries past the end finds it.
        tier.wait_for_writers();
        let whole = self.finish_cut(file, placed, size, spare, false);
        drop(moving);
        if whole? { Ok(()) } else { self.finish_earlier_cut(file, placed) }
    }

    /// Steps 3 to 6; also what recovery calls. The size is already the new one. `false` when the
    /// last block needs a free frame and there is none: the caller makes room, which it cannot
    /// while it holds `moving`, and begins again.
    pub(crate) fn finish_cut(
        &self,
        file: &FileState,
        placed: &Placed,
        size: u64,
        mut spare: Option<Frame>,
        recovering: bool,
    ) -> Result<bool> {
        let tier = &placed.tier;
        if !tier.planted.is(Planted::TruncateKeepsEntries) {
            let copies = placed.drop_past_end(size);
            if !recovering && placed.class == FileClass::Data {
                placed.usage.invalidated(&self.events, copies);
            }
        }
        let block = placed.block_size.block_of(size);
        let within = (size - placed.block_size.start_of(block)) as usize;
        if within > 0
            && let Some(spot) = placed.spot(block)
        {
            if recovering || placed.class == FileClass::Redo {
                let _meta = placed.meta.lock();
                placed.zero_tail_in_place(spot.block, within)?;
            } else if !tier.holds_dirty() {
                placed.usage.invalidated(&self.events, placed.drop_copies(&[block]));
                placed.would_be_gone(block.0..=block.0);
            } else {
                let mut whole = vec![0; placed.block_size.bytes()];
                let zeros = vec![0; whole.len() - within];
                // At home its bytes past the end go with home's; whether there is a free frame does
                // not matter then.
                while spot.entry() != Entry::HOME {
                    let seen = spot.entry();
                    let version = Version::Part { inner: within, part: &zeros, whole: &mut whole };
                    let held = || spot.entry() != Entry::HOME;
                    let replaced = match tier.replace(spot, version, &mut spare, held) {
                        // Of a clean copy that could not be read, home has the bytes.
                        Err(e) if seen != Entry::HOME => {
                            self.mover.read_elsewhere(file, placed, block, seen, e)?;
                            continue;
                        }
                        other => other?,
                    };
                    match replaced {
                        Outcome::Done => break,
                        Outcome::Moved => {}
                        // The block was at home when the spare frame was looked for. Admitted
                        // since, it goes home again; written since, it needs one.
                        Outcome::NoPiece => {
                            if placed.drop_copies(&[block]) == 0 && spot.entry() != Entry::HOME {
                                return Ok(false);
                            }
                        }
                    }
                }
            }
        }
        if let Some((frame, spot)) = spare.zip(placed.spot(block)) {
            tier.give_spare(spot, frame);
        }
        self.cut_home(file, placed, size, recovering)?;
        Ok(true)
    }

    /// Before a file grows: a cut that failed half way is finished, or what was cut off would show
    /// again.
    pub(crate) fn finish_earlier_cut(&self, file: &FileState, placed: &Placed) -> Result<()> {
        while placed.cutting.load(Ordering::Acquire) {
            let spare = self.spare_for_cut(placed, placed.size())?;
            let _moving = placed.moving.lock();
            // Home is about to change once more.
            self.homeward.begin_change(file, placed, TRUNCATING)?;
            // Again only if the last block, at home a moment ago, was written before `moving` was
            // had.
            if self.finish_cut(file, placed, placed.size(), spare, false)? {
                break;
            }
        }
        Ok(())
    }

    /// Step 1.
    fn spare_for_cut(&self, placed: &Placed, size: u64) -> Result<Option<Frame>> {
        let tier = &placed.tier;
        let block = placed.block_size.block_of(size);
        let cut_in_two = size > placed.block_size.start_of(block);
        let mut turn = None;
        while cut_in_two
            && placed.class == FileClass::Data
            && tier.holds_dirty()
            && placed.map.get(block) != Entry::HOME
        {
            let frame = placed.spot(block).and_then(|spot| tier.take_spare(spot));
            if frame.is_some() {
                return Ok(frame);
            }
            self.mover.make_room(tier, Purpose::Blocks(placed.block_size), &mut turn)?;
        }
        Ok(None)
    }

    /// Steps 5 and 6.
    fn cut_home(
        &self,
        file: &FileState,
        placed: &Placed,
        size: u64,
        recovering: bool,
    ) -> Result<()> {
        let stat: HomeStat = file.home.stat().map_err(file.io("cannot stat"))?;
        if stat.size > size {
            file.home.set_len(size).map_err(file.io("cannot truncate"))?;
        }
        // Also when home is short already, if an earlier try may have cut it and not come to the
        // sync.
        let as_it_was = {
            let line = &placed.meta.lock().line;
            let same = (stat.size, stat.mtime_ns) == (line.home_size, line.home_mtime_ns);
            same && line.flags & DESTAGING == 0 && file.home.is_synced()
        };
        if recovering || !as_it_was {
            file.home.sync().map_err(file.io("cannot sync"))?;
        }
        let mut meta = placed.meta.lock();
        meta.redo.forget(|b| placed.block_size.start_of(b) >= size);
        meta.line.flags &= !TRUNCATING;
        self.homeward.fingerprint(file, placed, &mut meta)?;
        placed.cutting.store(false, Ordering::Release);
        Ok(())
    }
}

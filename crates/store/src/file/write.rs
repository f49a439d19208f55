//! Writing a data file: every block goes to a new frame and its entry is switched
//! ([`crate::ledger::lanes`]).
//!
//! A write of part of a block reads the rest and writes the whole block. A write past the end makes
//! its blocks durable first and then the size: a cut between leaves the old size, and recovery
//! drops the entries past it.

use super::FileIo;
use crate::address::BlockIndex;
use crate::cache::what_if::How;
use crate::error::Result;
use crate::format::entry::Entry;
use crate::known::{FileState, Placed};
use crate::ledger::map::Kept;
use crate::ledger::switch::{Outcome, Version};
use crate::planted::Planted;
use crate::profile::FileClass;
use crate::tier::alloc::Purpose;
use crate::waits;
use std::sync::atomic::Ordering;

/// Where a block that is written lies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Within the file, or not at all.
    Within,
    /// It belongs to a write past the end, to `end`, of which the bytes before `written` are
    /// durable. `sizing` is held.
    PastEnd { written: u64, end: u64 },
}

/// How an overwrite came out.
enum Overwritten {
    Done,
    /// The block lies past the end of the file (somebody truncated it): the longer way round.
    PastEnd,
}

impl FileIo {
    /// Writes `data` at `offset`.
    ///
    /// # Durability
    /// On a persistent medium durable on return, for both classes; each aligned block of a data
    /// file is all or nothing. On a volatile medium, and for pass files, after [`FileIo::sync`].
    pub(crate) fn write(&self, file: &FileState, offset: u64, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let Some(placed) = &file.placed else {
            let start = self.events.start();
            file.home.write_at(offset, data).map_err(file.io("cannot write"))?;
            let _ = self.events.record_n(waits::PASS_IO, start, data.len() as u64);
            return Ok(());
        };
        let Some(end) = placed.end_of(offset, data.len()) else {
            return Err(file.invalid(
                "write",
                format!("offset {offset} is past the largest file a map can hold"),
            ));
        };
        if !placed.tier.holds_dirty() {
            return self.write_through(file, placed, offset, data);
        }
        if placed.class == FileClass::Redo {
            return self.write_redo(file, placed, offset, data, end);
        }
        if end <= placed.size() {
            if self.switch_whole(placed, offset, data).is_some() {
                return Ok(());
            }
            let mut past_end = None;
            for (block, inner, range) in placed.chunks(offset, data.len()) {
                let from = range.start;
                match self.overwrite(file, placed, block, inner, &data[range], Reach::Within)? {
                    Overwritten::Done => {}
                    Overwritten::PastEnd => {
                        past_end = Some(from);
                        break;
                    }
                }
            }
            return match past_end {
                None => Ok(()),
                Some(from) => {
                    self.write_past_end(file, placed, offset + from as u64, &data[from..], end)
                }
            };
        }
        self.write_past_end(file, placed, offset, data, end)
    }

    /// Overwrites one whole block whose lane has a piece laid out for it, as most writes of a
    /// database do. `None`, and nothing is done, where it needs more than that.
    #[inline]
    pub(super) fn switch_whole(&self, placed: &Placed, offset: u64, data: &[u8]) -> Option<()> {
        let size = placed.block_size;
        let block = size.block_of(offset);
        if data.len() != size.bytes() || size.start_of(block) != offset {
            return None;
        }
        let spot = placed.spot(block)?;
        let start = self.events.start();
        let end = offset + data.len() as u64;
        let early = placed.tier.planted.races(Planted::SizeBeforeLane).then(|| placed.size());
        placed
            .tier
            .replace_laid_out(spot, data, || end <= early.unwrap_or_else(|| placed.size()))?;
        let bytes = data.len() as u64;
        placed.usage.wrote(
            &self.events,
            (waits::BLOCK_WRITE, waits::DATA_WRITTEN),
            start,
            bytes,
            bytes,
        );
        placed.saw(block, How::Write);
        Some(())
    }

    fn write_past_end(
        &self,
        file: &FileState,
        placed: &Placed,
        offset: u64,
        data: &[u8],
        end: u64,
    ) -> Result<()> {
        let _sizing = placed.sizing.lock();
        self.finish_earlier_cut(file, placed)?;
        placed.growing.store(end, Ordering::Release);
        for (block, inner, range) in placed.chunks(offset, data.len()) {
            // What was written so far; nothing of a gap before it.
            let written = if range.start > 0 { offset + range.start as u64 } else { 0 };
            let reach = Reach::PastEnd { written, end };
            if let Err(e) = self.overwrite(file, placed, block, inner, &data[range], reach) {
                // The part that was written is the file's, as with any write that ends early;
                // nothing may lie past the end.
                self.grow_to(placed, written);
                return Err(e);
            }
        }
        self.grow_to(placed, end);
        Ok(())
    }

    /// Makes the file at least `end` bytes long, durable on return. The caller holds `sizing`.
    pub(crate) fn grow_to(&self, placed: &Placed, end: u64) {
        if end > placed.size() {
            let mut meta = placed.meta.lock();
            meta.line.size = end;
            if placed.tier.planted.is(Planted::SizeShownEarly) {
                placed.size.store(end, Ordering::Release);
            }
            placed.write_line(&mut meta);
            placed.tier.wait_or_sync();
            placed.size.store(end, Ordering::Release);
        }
        placed.growing.store(0, Ordering::Release);
    }

    /// Writes part or all of one block.
    fn overwrite(
        &self,
        file: &FileState,
        placed: &Placed,
        block: BlockIndex,
        inner: usize,
        part: &[u8],
        reach: Reach,
    ) -> Result<Overwritten> {
        let tier = &placed.tier;
        let bytes = placed.block_size.bytes();
        let start_of_block = placed.block_size.start_of(block);
        let start = self.events.start();
        let partial = part.len() < bytes;
        let mut whole = vec![0; if partial { bytes } else { 0 }];
        let mut turn = None;
        let mut kept = Kept::default();
        let past_end = || {
            reach == Reach::Within && start_of_block + (inner + part.len()) as u64 > placed.size()
        };
        loop {
            let Some(spot) = placed.spot(block).filter(|spot| spot.leaf.has_page()) else {
                if !placed.make_leaf(block, &mut kept)? {
                    self.mover.make_room(tier, Purpose::Pages, &mut turn)?;
                }
                continue;
            };
            let evictions = placed.map.evictions.load(Ordering::Acquire);
            let from_home = partial && spot.entry() == Entry::HOME;
            let version = if !partial {
                Version::Whole(part)
            } else if from_home {
                whole.fill(0);
                file.read_home_block(placed, start_of_block, &mut whole)?;
                whole[inner..inner + part.len()].copy_from_slice(part);
                Version::Whole(&whole)
            } else {
                Version::Part { inner, part, whole: &mut whole }
            };
            // A whole block is written without a look at what it replaces.
            let unmoved = || {
                !partial
                    || (from_home == (spot.entry() == Entry::HOME)
                        && !(from_home
                            && placed.map.evictions.load(Ordering::Acquire) != evictions))
            };
            let seen = spot.entry();
            let replaced = match tier.replace(spot, version, &mut None, || !past_end() && unmoved())
            {
                // What it replaces in part could not be read.
                Err(e) if partial && seen != Entry::HOME => {
                    self.mover.read_elsewhere(file, placed, block, seen, e)?;
                    continue;
                }
                other => other?,
            };
            match replaced {
                Outcome::Done => {
                    let (asked, whole) = (part.len() as u64, bytes as u64);
                    placed.usage.wrote(
                        &self.events,
                        (waits::BLOCK_WRITE, waits::DATA_WRITTEN),
                        start,
                        asked,
                        whole,
                    );
                    placed.saw(block, How::Write);
                    return Ok(Overwritten::Done);
                }
                Outcome::Moved if past_end() => return Ok(Overwritten::PastEnd),
                Outcome::Moved => {}
                Outcome::NoPiece => {
                    if let Reach::PastEnd { written, end } = reach {
                        // What is written already becomes the file's, so that it may go home to
                        // make room for the rest.
                        self.grow_to(placed, written);
                        placed.growing.store(end, Ordering::Release);
                    }
                    self.mover.make_room(tier, Purpose::Blocks(placed.block_size), &mut turn)?;
                }
            }
        }
    }

    /// Makes a file's writes durable.
    ///
    /// # Durability
    /// On return every write that returned before the call survives a power cut.
    pub(crate) fn sync(&self, file: &FileState) -> Result<()> {
        let start = self.events.start();
        let event = match &file.placed {
            None => waits::PASS_SYNC,
            Some(p) if p.class == FileClass::Redo => waits::REDO_SYNC,
            Some(_) => waits::DATA_SYNC,
        };
        match &file.placed {
            Some(placed) if placed.tier.holds_dirty() => match placed.loan.plain() {
                Some(plain) => {
                    self.sync_lent(file, &plain)?;
                    placed.tier.sound()?;
                }
                None => placed.tier.sync()?,
            },
            Some(placed) => self.homeward.sync_through(file, placed)?,
            None => file.home.sync().map_err(file.io("cannot sync"))?,
        }
        let _ = self.events.record(event, start);
        Ok(())
    }
}

//! Ranges of a file: making them zero, with or without giving their space back, reserving space,
//! finding holes.
//!
//! # Clearing whole blocks of a data file, and what a power cut leaves
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 1 | each block that may hold something becomes a block of zeros in the tier, as by a write of it | each block old or zero |
//! | 2 | the state line says `destaging`, and again when clearing takes long; a fence | zeros |
//! | 3 | home's blocks are punched (or zeroed) and home is synced | zeros, at home too or not yet |
//! | 4 | entries that still point to the zeros of step 1 become `Home`; a fence; their frames are free | zeros |
//! | 5 | the state line gets home's stamp and loses the flag | zeros |
//!
//! So a block is never torn by a file system that gives its space back in smaller pieces, and a
//! large range needs no more of the tier than [`STEP_BYTES`]. Where home cannot do step 3, the
//! zeros stay dirty and go home as any block. A block of less than the whole is written; a redo
//! file is written in place.

use super::FileIo;
use crate::address::BlockIndex;
use crate::error::{Error, Result};
use crate::file::resize::Resize;
use crate::format::entry::{Entry, LEAF_BLOCKS, State};
use crate::format::slot::DESTAGING;
use crate::home::Clear;
use crate::homeward::times::give_mtime;
use crate::known::{FileState, Placed};
use crate::medium::Pin;
use crate::mover::destage::ROUND_BYTES;
use crate::planted::Planted;
use crate::profile::FileClass;
use crate::waits;
use std::io::ErrorKind;

/// Bytes that one step clears.
const STEP_BYTES: u64 = (ROUND_BYTES / 4) as u64;

impl FileIo {
    /// Makes `offset .. offset + len` zero. What lies past the end is left out, and the size stays,
    /// unless `grow`.
    pub(crate) fn clear(
        &self,
        file: &FileState,
        offset: u64,
        len: u64,
        how: Clear,
        grow: bool,
    ) -> Result<()> {
        let Some(end) = offset.checked_add(len).filter(|_| len > 0) else {
            return Err(
                file.invalid("clear a range of", format!("{len} bytes at {offset} are no range"))
            );
        };
        let start = self.events.start();
        let _ranging = file.ranging.lock();
        let result = match &file.placed {
            None => self.clear_home(file, offset, len, how),
            Some(placed) if placed.loan.is_lent() => self.clear_lent(file, placed, offset, end),
            Some(placed) => self.clear_placed(file, placed, offset, end.min(placed.size()), how),
        };
        result?;
        if grow {
            self.resize(file, end, Resize::AtLeast)?;
        }
        let _ = self.events.record(waits::RESIZE, start);
        Ok(())
    }

    /// At home, of what is there; what cannot be cleared by the file system is written.
    pub(super) fn clear_home(
        &self,
        file: &FileState,
        offset: u64,
        len: u64,
        how: Clear,
    ) -> Result<()> {
        match file.home.clear(offset, len, how) {
            Err(e) if e.kind() == ErrorKind::Unsupported => {}
            other => return other.map_err(file.io("cannot clear a range of")),
        }
        let size = file.home.stat().map_err(file.io("cannot stat"))?.size;
        let zeros = vec![0; STEP_BYTES as usize];
        let (mut at, end) = (offset, (offset + len).min(size));
        while at < end {
            let part = (end - at).min(STEP_BYTES);
            file.home
                .write_at(at, &zeros[..part as usize])
                .map_err(file.io("cannot clear a range of"))?;
            at += part;
        }
        Ok(())
    }

    fn clear_placed(
        &self,
        file: &FileState,
        placed: &Placed,
        offset: u64,
        end: u64,
        how: Clear,
    ) -> Result<()> {
        if offset >= end {
            return Ok(());
        }
        if !placed.tier.holds_dirty() {
            return self.clear_through(file, placed, offset, end, how);
        }
        let bytes = placed.block_size.bytes() as u64;
        // The last block of the file counts as whole when the range covers all of it that is there.
        let (first, last) = (
            offset.next_multiple_of(bytes),
            if end == placed.size() { end } else { end / bytes * bytes },
        );
        if placed.class == FileClass::Redo || first >= last {
            return self.write_zeros(file, offset, end);
        }
        self.write_zeros(file, offset, first)?;
        self.write_zeros(file, last, end)?;
        let mut at = first;
        while at < last {
            let until = last.min(at + STEP_BYTES);
            self.clear_blocks(file, placed, at, until, how)?;
            at = until;
        }
        Ok(())
    }

    /// As writes do.
    fn write_zeros(&self, file: &FileState, from: u64, until: u64) -> Result<()> {
        let zeros = vec![0; (until - from).min(STEP_BYTES) as usize];
        let mut at = from;
        while at < until {
            let part = (until - at).min(STEP_BYTES);
            self.write(file, at, &zeros[..part as usize])?;
            at += part;
        }
        Ok(())
    }

    /// `from` is where a block begins, `until` where one ends, or the file.
    fn clear_blocks(
        &self,
        file: &FileState,
        placed: &Placed,
        from: u64,
        until: u64,
        how: Clear,
    ) -> Result<()> {
        let size = placed.block_size;
        let blocks = || (from..until).step_by(size.bytes()).map(|at| (at, size.block_of(at)));
        let planted_first = placed.tier.planted.is(Planted::PunchHomeFirst);
        if planted_first {
            file.home.clear(from, until - from, how).map_err(file.io("cannot clear a range of"))?;
        }
        let mut copies = 0;
        for (at, block) in blocks() {
            let before = placed.map.get(block);
            copies += u64::from(before.state() == State::Cached);
            if before == Entry::HOME
                && self.is_hole(file, at, until.min(at + size.bytes() as u64))?
            {
                continue;
            }
            self.write_zeros(file, at, until.min(at + size.bytes() as u64))?;
        }
        if planted_first {
            return Ok(());
        }
        let _moving = placed.moving.lock();
        if placed.is_gone() {
            return Ok(());
        }
        let views = views_of_zeros(placed, from, until)?;
        if views.is_empty() {
            return Ok(());
        }
        let mut mtime = self.homeward.begin_change(file, placed, DESTAGING)?;
        for run in views.chunk_by(|a, b| a.0.0 + 1 == b.0.0) {
            let at = size.start_of(run[0].0);
            // Said again for each run: of many, on slow storage, the first word would be too old
            // for the last.
            mtime = self.homeward.begin_change(file, placed, DESTAGING)?;
            match file.home.clear(at, (run.len() * size.bytes()) as u64, how) {
                Ok(()) => {}
                // The range reads as zeros already, durable; the rest is the destaging's, as for
                // any block.
                Err(e) if e.kind() == ErrorKind::Unsupported => return Ok(()),
                Err(e) => {
                    log::warn!("{}", Error::io("cannot clear a range of", &*file.path.lock())(e));
                    return Ok(());
                }
            }
        }
        give_mtime(file, mtime);
        file.home.sync().map_err(file.io("cannot sync"))?;
        // The views are kept until the entries are compared: a frame that is free could hold a
        // newer version under an equal entry.
        let blocks: Vec<BlockIndex> = views.iter().map(|(block, ..)| *block).collect();
        let zeros: std::collections::HashSet<u64> =
            views.iter().map(|(_, entry, _)| entry.seen().raw()).collect();
        let dropped = placed.drop_entries(&blocks, |entry| zeros.contains(&entry.seen().raw()));
        drop(views);
        placed.usage.invalidated(&self.events, copies.min(dropped));
        placed.these_would_be_gone(&blocks);
        self.homeward.fingerprint(file, placed, &mut placed.meta.lock())
    }

    /// Whether home has nothing in a range.
    fn is_hole(&self, file: &FileState, from: u64, until: u64) -> Result<bool> {
        let data = file.home.next_data(from).map_err(file.io("cannot look for data in"))?;
        Ok(data.is_none_or(|at| at >= until))
    }

    /// Reserves space at home.
    pub(crate) fn allocate(
        &self,
        file: &FileState,
        offset: u64,
        len: u64,
        keep_size: bool,
    ) -> Result<()> {
        let Some(end) = offset.checked_add(len).filter(|_| len > 0) else {
            return Err(
                file.invalid("reserve space for", format!("{len} bytes at {offset} are no range"))
            );
        };
        let start = self.events.start();
        let _ranging = file.ranging.lock();
        let placed = file.placed.as_ref().filter(|p| p.tier.holds_dirty());
        match placed {
            Some(placed)
                if placed.loan.is_lent() && self.allocate_lent(file, placed, offset, len)? => {}
            None => self.allocate_home(file, offset, len)?,
            Some(placed) => {
                if placed.end_of(end, 0).is_none() {
                    return Err(file.invalid(
                        "reserve space for",
                        format!("{end} bytes are more than a map can hold"),
                    ));
                }
                let _moving = placed.moving.lock();
                // Home's time moves. The flag stays until the next destaging says what home looks
                // like: no sync is waited for here.
                self.homeward.begin_change_now(file, placed)?;
                let reserved = file.home.allocate(offset, len);
                self.homeward.times_seen(file, placed)?;
                reserved.map_err(file.io("cannot reserve space for"))?;
            }
        }
        if !keep_size {
            self.resize(file, end, Resize::AtLeast)?;
        }
        let _ = self.events.record(waits::RESIZE, start);
        Ok(())
    }

    pub(crate) fn next_data(&self, file: &FileState, offset: u64) -> Result<Option<u64>> {
        let Some(placed) = &file.placed else {
            return file.home.next_data(offset).map_err(file.io("cannot look for data in"));
        };
        let loan = placed.loan.look();
        if let Some(plain) = &*loan {
            return plain.file.next_data(offset).map_err(file.io("cannot look for data in"));
        }
        let (size, end) = (placed.block_size, placed.size());
        if offset >= end {
            return Ok(None);
        }
        let block = size.block_of(offset);
        if placed.map.get(block) != Entry::HOME {
            return Ok(Some(offset));
        }
        let mut in_tier = None;
        placed.map.for_each_leaf(|number, leaf| {
            if in_tier.is_some()
                || (number + 1) * LEAF_BLOCKS <= block.0
                || leaf.dirty() + leaf.cached() == 0
            {
                return;
            }
            let from = block.0.saturating_sub(number * LEAF_BLOCKS) as usize;
            in_tier = (from..LEAF_BLOCKS as usize)
                .find(|index| leaf.get(*index) != Entry::HOME)
                .map(|index| size.start_of(BlockIndex(number * LEAF_BLOCKS + index as u64)));
        });
        let at_home = file.home.next_data(offset).map_err(file.io("cannot look for data in"))?;
        Ok(in_tier.into_iter().chain(at_home).min().filter(|at| *at < end))
    }

    pub(crate) fn next_hole(&self, file: &FileState, offset: u64) -> Result<Option<u64>> {
        let Some(placed) = &file.placed else {
            return file.home.next_hole(offset).map_err(file.io("cannot look for a hole in"));
        };
        let loan = placed.loan.look();
        if let Some(plain) = &*loan {
            return plain.file.next_hole(offset).map_err(file.io("cannot look for a hole in"));
        }
        let (size, end) = (placed.block_size, placed.size());
        if offset >= end {
            return Ok(None);
        }
        let mut at = offset;
        while at < end {
            let block = size.block_of(at);
            let next = size.start_of(block) + size.bytes() as u64;
            if placed.map.get(block) != Entry::HOME {
                at = next;
                continue;
            }
            let hole = file.home.next_hole(at).map_err(file.io("cannot look for a hole in"))?;
            match hole {
                // Home ends before the file does: what is between is a hole.
                None => return Ok(Some(at)),
                Some(hole) if hole <= at => return Ok(Some(at)),
                // The rest of this block is data at home; what comes then may be in the tier.
                Some(hole) if hole >= next => at = next,
                Some(hole) => at = hole,
            }
        }
        Ok(Some(end))
    }
}

/// Blocks of zeros that the tier has, pinned, with their entries.
fn views_of_zeros(
    placed: &Placed,
    from: u64,
    until: u64,
) -> Result<Vec<(BlockIndex, Entry, Pin<'_>)>> {
    let (tier, size) = (&placed.tier, placed.block_size);
    let mut views = Vec::new();
    let mut bytes = vec![0; size.bytes()];
    for block in (from..until).step_by(size.bytes()).map(|at| size.block_of(at)) {
        let entry = placed.map.get(block);
        if entry.state() != State::Dirty || placed.destage_size(block).is_none() {
            continue;
        }
        let pin = placed.pin(block, entry);
        // Written again meanwhile: that is the newest version, and stays.
        if let Some(pin) = pin
            && placed.map.get(block) == entry
        {
            tier.read_block(entry.frame(), 0, &mut bytes)?;
            let spot = placed.spot(block).expect("BUG: a dirty block has a leaf");
            let sum = tier.sum_of(spot, entry);
            // What is not what was written there is no block of zeros.
            let seen = sum.is_some_and(|sum| tier.compare(spot, entry, &bytes, sum).is_ok());
            if seen && bytes.iter().all(|b| *b == 0) {
                views.push((block, entry, pin));
            }
        }
    }
    Ok(views)
}

//! Writing where the tier has clean copies only: home is written, past the tier.
//!
//! The copies of what is written go first, so that no copy ever differs from home. A volatile tier
//! starts cold, and that is all. An ephemeral one is believed after a kill or a power cut, so it
//! also has to be true for a home as a cut leaves it:
//!
//! - that the copies are gone is durable before home is touched;
//! - what home may still lose is not copied ([`crate::known::unsynced`]);
//! - the file's state line says since when home is written, so that home's new times are known for
//!   ours ([`crate::homeward::Homeward::announce`]);
//! - a disk that takes no more of this is given up: the note in home says so, durably, and the next
//!   attach begins with an empty tier. Nobody's write waits for it or fails because of it.

use super::FileIo;
use crate::address::BlockIndex;
use crate::error::Result;
use crate::format::entry::LEAF_BLOCKS;
use crate::home::{Clear, FileTime};
use crate::known::{FileState, Placed};
use crate::planted::Planted;
use crate::waits;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;

/// Home is being written past the tier.
struct Writing<'a>(&'a Placed);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        // A read that began before may yet admit what home held before. While the blocks are
        // known to be written nobody does.
        self.0.map.evictions.fetch_add(1, Ordering::AcqRel);
        self.0.unsynced.end();
    }
}

impl FileIo {
    /// Writes `data` at `offset` of home.
    ///
    /// # Durability
    /// After [`FileIo::sync`].
    pub(super) fn write_through(
        &self,
        file: &FileState,
        placed: &Placed,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let start = self.events.start();
        let _past = placed.stay.is_coming().then(|| placed.past.lock());
        let _sizing = placed.sizing.lock();
        let end = offset + data.len() as u64;
        if end > placed.size() {
            self.finish_earlier_cut(file, placed)?;
        }
        let (first, last) =
            (placed.block_size.block_of(offset), placed.block_size.block_of(end - 1));
        let blocks: Vec<BlockIndex> = (first.0..=last.0).map(BlockIndex).collect();
        let writing = self.begin_through(file, placed, first..=last, || blocks.clone())?;
        let written = file.home.write_at(offset, data).map_err(file.io("cannot write"));
        drop(writing);
        placed.usage.invalidated(&self.events, placed.drop_copies(&blocks));
        placed.would_be_gone(first.0..=last.0);
        written?;
        if placed.tier.is_ephemeral() {
            // With the entries of these blocks in the log's order, and read from home after a cut.
            self.grow_to(placed, end);
        } else {
            placed.size.fetch_max(end, Ordering::AcqRel);
        }
        let _ = self.events.record_n(waits::PASS_IO, start, data.len() as u64);
        Ok(())
    }

    /// Makes `offset .. end` of home zero.
    pub(super) fn clear_through(
        &self,
        file: &FileState,
        placed: &Placed,
        offset: u64,
        end: u64,
        how: Clear,
    ) -> Result<()> {
        let _sizing = placed.sizing.lock();
        let (first, last) =
            (placed.block_size.block_of(offset), placed.block_size.block_of(end - 1));
        let copies = || {
            let mut blocks = Vec::new();
            placed.map.for_each_leaf(|number, leaf| {
                if leaf.cached() > 0 {
                    let range = (first.0.max(number * LEAF_BLOCKS))
                        ..(last.0 + 1).min((number + 1) * LEAF_BLOCKS);
                    blocks.extend(range.map(BlockIndex));
                }
            });
            blocks
        };
        let writing = self.begin_through(file, placed, first..=last, || {
            // Who admits one of them and has not seen that they are written is through then.
            placed.tier.wait_for_writers();
            copies()
        })?;
        let cleared = self.clear_home(file, offset, end - offset, how);
        drop(writing);
        placed.usage.invalidated(&self.events, placed.drop_copies(&copies()));
        placed.would_be_gone(first.0..=last.0);
        cleared
    }

    /// Makes home `size` bytes long, which it is not yet. What is added is zeros: a copy of them is
    /// past the end if a cut takes the new length back.
    pub(super) fn lengthen_through(
        &self,
        file: &FileState,
        placed: &Placed,
        size: u64,
    ) -> Result<()> {
        self.announce(file, placed)?;
        file.home.set_len(size).map_err(file.io("cannot resize"))
    }

    /// Sets home's times. Its contents are then not as old as it says, so its stamp is taken at
    /// once.
    pub(super) fn set_times_through(
        &self,
        file: &FileState,
        placed: &Placed,
        atime: Option<FileTime>,
        mtime: Option<FileTime>,
    ) -> Result<()> {
        let set = || file.home.set_times(atime, mtime).map_err(file.io("cannot set the times of"));
        if mtime.is_none() {
            return set();
        }
        {
            let _sizing = placed.sizing.lock();
            self.announce(file, placed)?;
            set()?;
        }
        self.homeward.take_stamp(file, placed)
    }

    /// Reserves space at home, of a file that has nothing in a tier which home lacks.
    pub(super) fn allocate_home(&self, file: &FileState, offset: u64, len: u64) -> Result<()> {
        if let Some(placed) = &file.placed {
            self.announce(file, placed)?;
        }
        file.home.allocate(offset, len).map_err(file.io("cannot reserve space for"))
    }

    /// Before `range` of home is written: its copies go, which are among those that `copies` finds
    /// when nobody makes one any more. The caller holds `sizing`.
    fn begin_through<'a>(
        &self,
        file: &FileState,
        placed: &'a Placed,
        range: RangeInclusive<BlockIndex>,
        copies: impl FnOnce() -> Vec<BlockIndex>,
    ) -> Result<Writing<'a>> {
        let tier = &placed.tier;
        if tier.is_ephemeral() {
            placed.unsynced.begin(range);
        }
        let writing = Writing(placed);
        self.announce(file, placed)?;
        if !tier.planted.is(Planted::HomeBeforeCopies) {
            let dropped = placed.drop_copies_of_all(&copies());
            placed.usage.invalidated(&self.events, dropped);
        }
        self.homeward.word_is_kept(tier)?;
        Ok(writing)
    }

    fn announce(&self, file: &FileState, placed: &Placed) -> Result<()> {
        if !placed.tier.is_ephemeral() {
            return Ok(());
        }
        self.homeward.announce(file, placed)?;
        self.homeward.word_is_kept(&placed.tier)
    }
}

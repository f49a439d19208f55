//! Destaging: dirty blocks go home in large writes, home is synced, then the entries become
//! `Cached`. Readers and writers go on.
//!
//! | step | what is done | a power cut after it leaves |
//! |---|---|---|
//! | 1 | views of up to [`ROUND_BYTES`] of dirty blocks are taken: their bytes cannot change any more; they are copied with `pread` | dirty blocks |
//! | 2 | the state line says `destaging` and since when, then a fence | dirty blocks; a home changed since then is ours |
//! | 3 | runs of neighbouring blocks are written to home, which is then synced | dirty blocks, and home equal or not yet |
//! | 4 | entries that still point to the same frame become `Cached`; a fence | dirty or clean, equal either way |
//! | 5 | the state line gets home's size and modification time and loses the flag | the same |

use super::Mover;
use super::pace::Moving;
use super::unreadable::Going;
use crate::address::BlockIndex;
use crate::error::{Error, Result};
use crate::format::entry::{Entry, LEAF_BLOCKS, State};
use crate::format::slot::DESTAGING;
use crate::homeward::times::give_mtime;
use crate::known::{FileState, Placed};
use crate::planted::Planted;
use crate::profile::{FileClass, Keeping};
use crate::waits;

/// Bytes of one round: written, synced and switched together.
pub(crate) const ROUND_BYTES: usize = 4 << 20;
/// Bytes of one write to home.
const WRITE_BYTES: usize = 1 << 20;

impl Mover {
    /// Destages a file until none of its blocks is dirty, or `most` blocks have gone. Returns how
    /// many went.
    ///
    /// # Errors
    /// When home cannot be written or synced (full, failing): the blocks stay dirty, nothing is
    /// lost. When a block cannot be read: the others have been destaged.
    pub(crate) fn destage_file(&self, file: &FileState, most: u64) -> Result<u64> {
        let Some(placed) = &file.placed else { return Ok(0) };
        let result = self.destage_placed(file, placed, most);
        let all = result.as_ref().is_ok_and(|done| *done < most);
        self.note_destaged(file, all, &result);
        result
    }

    fn destage_placed(&self, file: &FileState, placed: &Placed, most: u64) -> Result<u64> {
        if placed.loan.is_lent() {
            return self.destage_lent(file, placed);
        }
        if placed.class == FileClass::Redo {
            let done = self.drain_oldest(file, placed, 0)?;
            let _moving = placed.moving.lock();
            if !placed.is_gone() && !placed.loan.is_lent() {
                self.lengthen_home(file, placed)?;
            }
            return Ok(done);
        }
        let _moving = placed.moving.lock();
        if placed.is_gone() {
            return Ok(0);
        }
        let (mut done, mut failed) = (0, None);
        let mut from = Some(BlockIndex(0));
        // One pass over the map: what is written behind the hand meanwhile waits for the next call.
        while let Some(block) = from
            && done < most
        {
            let (count, next) =
                self.destage_round(file, placed, block, most - done, &mut failed)?;
            done += count;
            from = next;
        }
        self.after_a_pass(file, placed, from.is_none())?;
        failed.map_or(Ok(done), Err)
    }

    fn after_a_pass(&self, file: &FileState, placed: &Placed, to_the_end: bool) -> Result<()> {
        if to_the_end {
            self.lengthen_home(file, placed)?;
        }
        if placed.keeping() == Keeping::None && !placed.stay.stays() {
            self.evict_file(file)?;
        }
        Ok(())
    }

    /// One pass over the map as [`Mover::destage_file`] makes it, at somebody's pace: between
    /// rounds nothing is held, and the file may be cut, removed or destaged by others. Redo goes
    /// from the oldest block on; what is lent goes at once.
    ///
    /// # Errors
    /// As [`Mover::destage_file`].
    pub(crate) fn destage_at(&self, file: &FileState, moving: &mut Moving<'_>) -> Result<()> {
        let Some(placed) = &file.placed else { return Ok(()) };
        if placed.loan.is_lent() {
            return self.lent_at_once(file, placed, moving);
        }
        if placed.class == FileClass::Redo {
            return self.drain_at(file, placed, moving);
        }
        let bytes = placed.block_size.bytes() as u64;
        let mut failed = None;
        let mut from = Some(BlockIndex(0));
        while let Some(block) = from {
            let most = moving.blocks_a_step(bytes);
            let round = {
                let _moving = placed.moving.lock();
                if placed.is_gone() {
                    return Ok(());
                }
                let round = self.destage_round(file, placed, block, most, &mut failed);
                round.and_then(|(count, next)| {
                    if next.is_none() {
                        self.after_a_pass(file, placed, true)?;
                    }
                    Ok((count, next))
                })
            };
            let (count, next) = round.inspect_err(|e| self.note_refused(file, e))?;
            from = next;
            let at = next.map_or_else(|| placed.size(), |next| placed.block_size.start_of(next));
            if !moving.step(&file.unlinked, count, bytes, at) {
                break;
            }
        }
        match failed {
            Some(e) => {
                self.note_refused(file, &e);
                Err(e)
            }
            None => {
                self.note_destaged(file, from.is_none(), &Ok(moving.moved.blocks));
                Ok(())
            }
        }
    }

    /// The same of a redo file: the blocks that it has now, the oldest first.
    fn drain_at(&self, file: &FileState, placed: &Placed, moving: &mut Moving<'_>) -> Result<()> {
        let bytes = placed.block_size.bytes() as u64;
        let mut left = placed.map.counts().0;
        while left > 0 && placed.meta.lock().redo.len() > 0 && !placed.loan.is_lent() {
            let most = moving.blocks_a_step(bytes).min(left);
            let keep = placed.map.counts().0.saturating_sub(most) as usize;
            let drained = self.drain_oldest(file, placed, keep);
            let count = drained.inspect_err(|e| self.note_refused(file, e))?;
            // One that was written meanwhile stays, and had its turn.
            left = left.saturating_sub(count.max(1));
            if !moving.step(&file.unlinked, count, bytes, 0) {
                return Ok(());
            }
        }
        if placed.loan.is_lent() {
            return self.lent_at_once(file, placed, moving);
        }
        let _moving = placed.moving.lock();
        if !placed.is_gone() && !placed.loan.is_lent() {
            self.lengthen_home(file, placed)?;
        }
        moving.moved.at = placed.size();
        let all = placed.map.counts().0 == 0;
        self.note_destaged(file, all, &Ok(moving.moved.blocks));
        Ok(())
    }

    fn lent_at_once(
        &self,
        file: &FileState,
        placed: &Placed,
        moving: &mut Moving<'_>,
    ) -> Result<()> {
        let blocks = self.destage_file(file, u64::MAX)?;
        let bytes = placed.block_size.bytes() as u64;
        let _ = moving.at_once(&file.unlinked, blocks, bytes, placed.size());
        Ok(())
    }

    /// A file that ends with a hole has no block to make home as long as it is.
    fn lengthen_home(&self, file: &FileState, placed: &Placed) -> Result<()> {
        let size = placed.size();
        if file.home.stat().map_err(file.io("cannot stat"))?.size >= size {
            return Ok(());
        }
        let mtime = self.homeward.begin_change(file, placed, DESTAGING)?;
        file.home.set_len(size).map_err(file.io("cannot lengthen"))?;
        give_mtime(file, mtime);
        file.home.sync().map_err(file.io("cannot sync"))?;
        self.homeward.fingerprint(file, placed, &mut placed.meta.lock())
    }

    /// One round from block `from` on. Returns how many blocks went, and where to go on if the map
    /// is not at its end. An unreadable block is reported in `failed` and does not hold up the
    /// others.
    fn destage_round(
        &self,
        file: &FileState,
        placed: &Placed,
        from: BlockIndex,
        most: u64,
        failed: &mut Option<Error>,
    ) -> Result<(u64, Option<BlockIndex>)> {
        let tier = &placed.tier;
        let bytes = placed.block_size.bytes();
        let most = most.min((ROUND_BYTES / bytes) as u64) as usize;
        let mut blocks = Vec::new();
        placed.map.for_each_leaf(|number, leaf| {
            if leaf.dirty() == 0 || blocks.len() >= most || (number + 1) * LEAF_BLOCKS <= from.0 {
                return;
            }
            for index in 0..LEAF_BLOCKS {
                let block = BlockIndex(number * LEAF_BLOCKS + index);
                let entry = leaf.get(index as usize);
                if blocks.len() < most && block >= from && entry.state() == State::Dirty {
                    blocks.push((block, entry));
                }
            }
        });
        let next = blocks
            .last()
            .filter(|_| blocks.len() == most)
            .map(|(block, _)| BlockIndex(block.0 + 1));
        let mut views = Vec::with_capacity(blocks.len());
        let mut copies = Vec::with_capacity(blocks.len() * bytes);
        let mut given_up = Vec::new();
        let mut size = 0;
        for (block, entry) in blocks {
            let Some(view) = placed.pin(block, entry) else { continue };
            // Written again meanwhile: its next version goes in the next round.
            if placed.map.get(block) != entry {
                continue;
            }
            let Some(now) = placed.destage_size(block) else { continue };
            // Not from the view: an unreadable block would end the process.
            let read = copies.len();
            copies.resize(read + bytes, 0);
            match self.copy_to_go_home(file, placed, block, entry, &mut copies[read..]) {
                Ok(Going::Copied) => {
                    size = size.max(now);
                    views.push((block, entry, view));
                    continue;
                }
                Ok(Going::GivenUp) => given_up.push((block, entry, view)),
                Ok(Going::Moved) => {}
                Err(e) => *failed = failed.take().or(Some(e)),
            }
            copies.truncate(read);
        }
        for (block, entry, _view) in given_up {
            placed.forget(block, entry);
        }
        if views.is_empty() {
            return Ok((0, next));
        }
        let start = self.events.start();
        let runs: Vec<(BlockIndex, &[u8])> =
            views.iter().map(|(block, _, _)| *block).zip(copies.chunks_exact(bytes)).collect();
        self.write_home_runs(file, placed, &runs, size)?;
        let count = views.len() as u64;
        // The view is kept until the entry is compared: without it the frame could be free and hold
        // a newer version of this very block, under an equal entry.
        for (block, entry, view) in views {
            let _view = (!tier.planted.races(Planted::ViewGoneEarly)).then_some(view);
            let spot = placed.spot(block).expect("BUG: a dirty block has a leaf");
            tier.change(spot, |now| (now == entry).then(|| Entry::cached(entry.frame())));
        }
        tier.fence();
        self.homeward.fingerprint(file, placed, &mut placed.meta.lock())?;
        // Else detaching would take for home's what the tier still calls its own.
        tier.sound()?;
        let _ = self.events.record_n(waits::DESTAGE, start, count * bytes as u64);
        self.events.count(waits::DESTAGED, count);
        Ok((count, next))
    }

    /// Steps 2 and 3: writes blocks, in ascending order, to home and syncs it. Nothing is written
    /// past `size`.
    pub(crate) fn write_home_runs(
        &self,
        file: &FileState,
        placed: &Placed,
        blocks: &[(BlockIndex, &[u8])],
        size: u64,
    ) -> Result<()> {
        let mut mtime = self.homeward.begin_change(file, placed, DESTAGING)?;
        let mut said_ns = self.env.home.now_ns();
        let bytes = placed.block_size.bytes();
        let per_write = (WRITE_BYTES / bytes).max(1);
        let mut from = 0;
        let mut run = Vec::new();
        while from < blocks.len() {
            let mut to = from + 1;
            while to < blocks.len()
                && to - from < per_write
                && blocks[to].0.0 == blocks[to - 1].0.0 + 1
            {
                to += 1;
            }
            run.clear();
            for (_, data) in &blocks[from..to] {
                run.extend_from_slice(data);
            }
            let at = placed.block_size.start_of(blocks[from].0);
            run.truncate(size.saturating_sub(at).try_into().unwrap_or(usize::MAX));
            if !run.is_empty() {
                // Of a thousand scattered writes to slow storage the last may be minutes after the
                // first word of them.
                if !crate::homeward::still_holds(said_ns, self.env.home.now_ns()) {
                    mtime = self.homeward.begin_change(file, placed, DESTAGING)?;
                    said_ns = self.env.home.now_ns();
                }
                file.home.write_at(at, &run).map_err(file.io("cannot destage to"))?;
            }
            from = to;
        }
        give_mtime(file, mtime);
        if !placed.tier.planted.is(Planted::DestageWithoutSync) {
            file.home.sync().map_err(file.io("cannot sync"))?;
        }
        Ok(())
    }

    /// Destages every file of the home, pinned ones too.
    pub(crate) fn flush_all(&self) -> Result<u64> {
        let (mut done, mut failed) = (0, None);
        for file in self.files.all() {
            match self.destage_file(&file, u64::MAX) {
                Ok(count) => done += count,
                // Bring the other files home all the same.
                Err(e @ Error::Unreadable { .. }) => failed = failed.or(Some(e)),
                Err(e) => return Err(e),
            }
            self.homeward.settle_times(&file)?;
        }
        for tier in &self.tiers {
            tier.quiesce_lanes();
            self.homeward.word_is_kept(tier)?;
        }
        failed.map_or(Ok(done), Err)
    }

    /// That no block is dirty; what detaching rests on.
    pub(crate) fn all_is_home(&self) -> Result<()> {
        for file in self.files.all() {
            let dirty = file.placed.as_ref().map_or(0, |p| p.map.counts().0);
            if file.placed.as_ref().is_some_and(|p| p.loan.is_lent()) {
                return Err(file.invalid("detach", "it is lent still; try again"));
            }
            if dirty > 0 {
                let reason = format!("{dirty} of its blocks are still only in the tier; try again");
                return Err(file.invalid("detach", reason));
            }
        }
        Ok(())
    }
}

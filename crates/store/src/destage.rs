//! Destaging: dirty blocks go home in large writes, home is synced, then the entries become `Cached`. Readers and writers go on.
//!
//! | step | what is done | a power cut after it leaves |
//! |---|---|---|
//! | 1 | views of up to [`ROUND_BYTES`] of dirty blocks are taken: their bytes cannot change any more; they are copied with `pread` | dirty blocks |
//! | 2 | the state line says `destaging` and since when, then a fence | dirty blocks; a home changed since then is ours |
//! | 3 | runs of neighbouring blocks are written to home, which is then synced | dirty blocks, and home equal or not yet |
//! | 4 | entries that still point to the same frame become `Cached`; a fence | dirty or clean, equal either way |
//! | 5 | the state line gets home's size and modification time and loses the flag | the same |

use crate::address::BlockIndex;
use crate::attached::Inner;
use crate::error::{Error, Result};
use crate::format::entry::{Entry, PAGE_WORDS, State};
use crate::format::slot::DESTAGING;
use crate::home::FileTime;
use crate::homeward::times::give_mtime;
use crate::known::{FileState, Placed};
use crate::ledger::Ledger;
use crate::planted::Planted;
use crate::profile::FileClass;
use crate::waits;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of one round: written, synced and switched together.
pub(crate) const ROUND_BYTES: usize = 4 << 20;
/// Bytes of one write to home.
const WRITE_BYTES: usize = 1 << 20;

impl Inner {
    /// Destages a file until none of its blocks is dirty, or `most` blocks have gone. Returns how many went.
    ///
    /// # Errors
    /// When home cannot be written or synced (full, failing): the blocks stay dirty, nothing is lost.
    /// When a block cannot be read: the others have been destaged.
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
            let (count, next) = self.destage_round(file, placed, block, most - done, &mut failed)?;
            done += count;
            from = next;
        }
        if from.is_none() {
            self.lengthen_home(file, placed)?;
        }
        failed.map_or(Ok(done), Err)
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
            if leaf.dirty() == 0 || blocks.len() >= most || (number + 1) * PAGE_WORDS <= from.0 {
                return;
            }
            for index in 0..PAGE_WORDS {
                let block = BlockIndex(number * PAGE_WORDS + index);
                let entry = leaf.get(index as usize);
                if blocks.len() < most && block >= from && entry.state() == State::Dirty {
                    blocks.push((block, entry));
                }
            }
        });
        let next = blocks.last().filter(|_| blocks.len() == most).map(|(block, _)| BlockIndex(block.0 + 1));
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
                Ok(true) => {
                    size = size.max(now);
                    views.push((block, entry, view));
                    continue;
                }
                Ok(false) => given_up.push((block, entry, view)),
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
        // The view is kept until the entry is compared: without it the frame could be free and hold a newer version of this very block,
        // under an equal entry.
        for (block, entry, _view) in views {
            let spot = placed.spot(block).expect("BUG: a dirty block has a leaf");
            tier.change(spot, |now| (now == entry).then(|| Entry::cached(entry.frame())));
        }
        tier.fence();
        self.homeward.fingerprint(file, placed, &mut placed.meta.lock())?;
        let _ = self.events.record_n(waits::DESTAGE, start, count * bytes as u64);
        self.events.count(waits::DESTAGED, count);
        Ok((count, next))
    }

    /// Steps 2 and 3: writes blocks, in ascending order, to home and syncs it. Nothing is written past `size`.
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
            while to < blocks.len() && to - from < per_write && blocks[to].0.0 == blocks[to - 1].0.0 + 1 {
                to += 1;
            }
            run.clear();
            for (_, data) in &blocks[from..to] {
                run.extend_from_slice(data);
            }
            let at = placed.block_size.start_of(blocks[from].0);
            run.truncate(size.saturating_sub(at).try_into().unwrap_or(usize::MAX));
            if !run.is_empty() {
                // Of a thousand scattered writes to slow storage the last may be minutes after the first word of them.
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

    /// Evicts up to `want` clean blocks from a tier: first those not read since the hand last passed, then any.
    /// Pinned files keep theirs.
    pub(crate) fn evict(&self, tier: &Arc<Ledger>, want: u64) -> u64 {
        let files = self.files.on(tier);
        if files.is_empty() {
            return 0;
        }
        let first = self.eviction_hand.fetch_add(1, Ordering::Relaxed) as usize;
        let mut evicted = 0;
        for spare_touched in [true, false] {
            for n in 0..files.len() {
                let file = &files[(first + n) % files.len()];
                let placed = file.placed.as_ref().expect("BUG: only placed files were kept");
                if placed.pinned.load(Ordering::Relaxed) {
                    continue;
                }
                let mut blocks = Vec::new();
                placed.map.for_each_leaf(|number, leaf| {
                    if leaf.cached() == 0 || evicted + blocks.len() as u64 >= want {
                        return;
                    }
                    for index in 0..PAGE_WORDS as usize {
                        if evicted + (blocks.len() as u64) < want
                            && leaf.get(index).state() == State::Cached
                            && !(leaf.untouch(index) && spare_touched)
                        {
                            blocks.push(BlockIndex(number * PAGE_WORDS + index as u64));
                        }
                    }
                });
                evicted += placed.drop_copies(&blocks);
                if evicted >= want {
                    self.events.count(waits::EVICTED, evicted);
                    return evicted;
                }
            }
        }
        self.events.count(waits::EVICTED, evicted);
        evicted
    }
}

/// How often background work looks whether there is something to do.
pub(crate) const STEP_INTERVAL: std::time::Duration = std::time::Duration::from_millis(20);

impl Inner {
    /// One step of background work; see [`crate::AttachedHome::background_step`].
    pub(crate) fn background_step(&self) -> Result<()> {
        let mut failed = self.retry_unlinks().err();
        failed = self.retry_refused().err().or(failed);
        self.admit_waiting();
        failed = self.lending_step().err().or(failed);
        for tier in &self.tiers {
            tier.settle_idle_lanes();
            failed = self.keep_slots(tier).err().or(failed);
            let total = tier.allocator.total_frames();
            let files = self.files.on(tier);
            for file in &files {
                let placed = file.placed.as_ref().expect("BUG: only placed files were kept");
                if placed.class == FileClass::Redo && !placed.pinned.load(Ordering::Relaxed) {
                    failed = self.drain_redo(file, placed, self.redo_keep_blocks(placed)).err().or(failed);
                }
            }
            failed = self.drain_idle_redo(&files, total / 2).err().or(failed);
            // A quarter free is the mark: below it dirty blocks go home until an eighth more could be free.
            let free = tier.allocator.free_frames();
            if free < total / 4 {
                self.give_back_pages(tier, total / 4 - free);
                let free = tier.allocator.free_frames().min(total / 4);
                let short = total / 4 + total / 8 - free;
                let mut got = self.evict(tier, total / 4 - free);
                for file in &files {
                    let placed = file.placed.as_ref().expect("BUG: only placed files were kept");
                    if got * placed.block_size.frames() >= short
                        || placed.class == FileClass::Redo
                        || placed.pinned.load(Ordering::Relaxed)
                    {
                        continue;
                    }
                    let most = short / placed.block_size.frames() + 1;
                    match self.destage_file(file, most) {
                        Ok(count) => got += count,
                        Err(e) => failed = Some(e),
                    }
                }
                let free = tier.allocator.free_frames();
                if free < total / 4 {
                    self.evict(tier, total / 4 - free);
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Keeps all redo files of a tier together within `budget` frames: those go home first that were written longest ago, as a segment
    /// that is full and waits to be used again. A database with many segments would else fill the tier with them.
    fn drain_idle_redo(&self, files: &[Arc<FileState>], budget: u64) -> Result<()> {
        let mut redo: Vec<(FileTime, u64, &Arc<FileState>)> = Vec::new();
        for file in files {
            let placed = file.placed.as_ref().expect("BUG: only placed files were kept");
            let held = placed.map.counts().0 * placed.block_size.frames();
            if placed.class == FileClass::Redo && !placed.pinned.load(Ordering::Relaxed) && held > 0 {
                redo.push((FileTime::default(), held, file));
            }
        }
        let mut held: u64 = redo.iter().map(|(_, held, _)| held).sum();
        if held <= budget {
            return Ok(());
        }
        for (written, _, file) in &mut redo {
            *written = self.homeward.overlay(file)?.1.map_or(FileTime::default(), |seen| seen.mtime);
        }
        redo.sort_by_key(|(written, _, file)| (*written, file.identity.ino));
        for (_, frames, file) in redo {
            if held <= budget {
                break;
            }
            let placed = file.placed.as_ref().expect("BUG: only placed files were kept");
            self.drain_redo(file, placed, 0)?;
            held = held.saturating_sub(frames);
        }
        Ok(())
    }

    /// Gives up all clean copies of a file.
    pub(crate) fn evict_file(&self, file: &FileState) -> Result<u64> {
        let Some(placed) = &file.placed else { return Ok(0) };
        let mut blocks = Vec::new();
        placed.map.for_each_leaf(|number, leaf| {
            if leaf.cached() > 0 {
                let in_leaf = (0..PAGE_WORDS as usize).filter(|i| leaf.get(*i).state() == State::Cached);
                blocks.extend(in_leaf.map(|i| BlockIndex(number * PAGE_WORDS + i as u64)));
            }
        });
        let evicted = placed.drop_copies(&blocks);
        self.events.count(waits::EVICTED, evicted);
        Ok(evicted)
    }
}

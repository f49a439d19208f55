//! Batches: several blocks of one file, all or none.
//!
//! This is how large ones are written, those that make their file longer, and all on media that
//! take their time. Small ones take one fence ([`super::at_once`]); before anything else uses a
//! pair of records, what that has left there is settled.
//!
//! | step | what is done | a power cut after it leaves |
//! |---|---|---|
//! | 1 | every block goes into a free frame, its checksum taken on the way | the old blocks |
//! | 2 | the lanes of all blocks are locked, pending entries of these blocks made durable, their records emptied | the old blocks |
//! | 3 | the batch record (entries, checksums, file size) is written, non-temporal | the old blocks, or all new ones if everything arrived whole |
//! | 4 | fence | **all new blocks**: recovery finds the record, checks every block, writes every entry and the size |
//! | 5 | the entries are stored, non-temporal, then a fence | all new blocks |
//! | 6 | the record is emptied, then a fence; the lanes are unlocked | all new blocks |
//!
//! The record is emptied before the lanes are unlocked, so it never speaks of an entry that has
//! moved on.

use super::Ledger;
use super::switch::Spot;
use crate::address::{BlockSize, Frame, WordAt};
use crate::error::Result;
use crate::format::entry::Entry;
use crate::format::record::{
    BatchHeader, BatchItem, ITEMS_INLINE, ITEMS_OVERFLOW, NO_FRAME, encode_overflow, items_hash,
};
use crate::medium::Written;
use crate::planted::Planted;
use crate::sync::SpinMutexGuard;
use crate::tier::Few;
use crate::tier::alloc::Purpose;

/// What a batch record's lock protects.
#[derive(Default)]
pub(crate) struct BatchSlot {
    pub(super) seq: u64,
    /// Free pieces that earlier batches left, for the next ones, and their size.
    ready: Few<Frame>,
    ready_size: Option<BlockSize>,
}

/// Pieces a batch record keeps at hand; more go back to the allocator.
const READY_MOST: usize = 64;

/// The pieces a batch needs, taken beforehand so that nothing can fail half way.
pub(crate) struct BatchSpace {
    pub(super) frames: Few<Frame>,
    overflow: Few<Frame>,
}

impl Ledger {
    /// Takes and claims the pieces for `count` blocks; `None` (and nothing taken) when the tier has
    /// too few.
    pub(crate) fn take_batch(
        &self,
        file: u64,
        size: BlockSize,
        count: usize,
    ) -> Option<BatchSpace> {
        let mut space = BatchSpace { frames: Few::new(), overflow: Few::new() };
        {
            let (_, mut slot) = self.lock_batch(file);
            while slot.ready_size == Some(size) && space.frames.len() < count {
                let Some(frame) = slot.ready.pop() else { break };
                // Somebody still looks at it: to the allocator, which has others.
                if self.own(frame, size.frames()) {
                    space.frames.push(frame);
                } else {
                    self.allocator.give(Purpose::Blocks(size), [frame]);
                }
            }
        }
        let pages = count.saturating_sub(ITEMS_INLINE).div_ceil(ITEMS_OVERFLOW);
        let enough = self.take_latched(Purpose::Blocks(size), count, &mut space.frames)
            && self.take_latched(Purpose::Pages, pages, &mut space.overflow);
        if enough {
            return Some(space);
        }
        self.give_batch(size, space);
        None
    }

    /// Puts back what a batch did not use.
    pub(crate) fn give_batch(&self, size: BlockSize, space: BatchSpace) {
        self.give_latched(Purpose::Blocks(size), space.frames);
        self.give_latched(Purpose::Pages, space.overflow);
    }

    /// Keeps pieces that a batch has replaced for the next one. They are free: no durable entry
    /// points to them.
    pub(crate) fn keep_for_batches(
        &self,
        slot: &mut BatchSlot,
        size: BlockSize,
        frames: Few<Frame>,
    ) {
        let fits = slot.ready.len() + frames.len() <= READY_MOST;
        if fits && (slot.ready.is_empty() || slot.ready_size == Some(size)) {
            slot.ready_size = Some(size);
            slot.ready.extend(frames);
            // The next batch begins with these: asks for their address translations now, as a lane
            // does for its next piece.
            for frame in slot.ready.iter().rev().take(2) {
                self.prepare_translations(*frame, size);
            }
        } else {
            self.allocator.give(Purpose::Blocks(size), frames);
        }
    }

    /// Hands the pieces that batch records keep back to the allocator. The caller holds no batch
    /// record.
    pub(super) fn reclaim_batches(&self) {
        self.settle_batches(false);
        for batch in &self.batches {
            let mut slot = batch.lock();
            if let Some(size) = slot.ready_size.take() {
                self.allocator.give(Purpose::Blocks(size), slot.ready.drain(..));
            }
        }
    }

    /// The pair of batch records that a file uses: files seldom share one.
    pub(super) fn pair_of(&self, file: u64) -> u32 {
        (crate::format::mix(file) % self.batches.len() as u64) as u32
    }

    /// The pair of a file, and its turn to use it.
    pub(super) fn lock_batch(&self, file: u64) -> (u32, SpinMutexGuard<'_, BatchSlot>) {
        let number = self.pair_of(file);
        (number, self.batches[number as usize].lock())
    }

    /// Steps 1 to 6: writes `blocks` of a file, whole blocks in ascending order, all or none;
    /// `spots` says where each goes, `slot` which slot of the file table the file has. With all
    /// lanes locked `size_after` says how large the file is then, and when the blocks are durable
    /// `grown` makes the file so; its stores share the fence of step 5.
    ///
    /// `false`, and nothing is changed, when a map page has gone that was there.
    ///
    /// # Durability
    /// On return all blocks and the size survive a power cut.
    pub(crate) fn replace_together(
        &self,
        spots: &[Spot<'_>],
        blocks: &[(u64, &[u8])],
        slot: u64,
        space: BatchSpace,
        size_after: impl FnOnce() -> u64,
        grown: impl FnOnce(u64),
    ) -> Result<bool> {
        let Some(first) = spots.first().copied() else { return Ok(true) };
        let (file, size) = (first.file, first.size);
        let hashes = match self.fill_batch(blocks, &space) {
            Ok(hashes) => hashes,
            Err(e) => {
                self.give_batch(size, space);
                return Err(e);
            }
        };
        let (number, mut record) = self.lock_batch(file);
        let mut lanes: Few<_> =
            self.lanes_of(spots).into_iter().map(|n| self.lock_lane_number(n)).collect();
        let words: Option<Few<WordAt>> = spots.iter().map(Spot::at).collect();
        let Some(words) = words else {
            drop((lanes, record));
            self.give_batch(size, space);
            return Ok(false);
        };
        self.leave_lanes(spots, &mut lanes);
        self.settle_batches_of(file);
        let size_after = size_after();
        let items = self.batch_items(spots, &words, &space.frames, &hashes);
        let header = BatchHeader {
            seq: record.seq + 1,
            file,
            count: items.len() as u32,
            frames: size.frames() as u32,
            size_after,
            overflow: self.write_overflow(&items, &space),
            items_hash: items_hash(&items, self.seed),
            slot,
        };
        record.seq += 1;
        let at = WordAt::new(0, self.batch_record_at(number, record.seq));
        if !self.planted.is(Planted::BatchOneByOne) {
            self.write_meta(at, &header.encode(&items, self.seed));
        }
        self.order();
        for frame in &space.frames {
            self.unlatch(*frame, size.frames());
        }
        let mut old = Few::new();
        for (spot, frame) in spots.iter().zip(&space.frames) {
            old.extend(spot.entry().held_frame());
            spot.leaf.set(spot.index, Entry::dirty(*frame));
        }
        grown(size_after);
        for item in &items {
            self.stream_entry(item.at, item.word, item.sum);
        }
        if !self.planted.is(Planted::BatchRetiredEarly) {
            self.order();
        }
        self.stream_word(at, 0);
        self.order();
        self.give_latched(Purpose::Pages, space.overflow);
        drop(lanes);
        if self.has_log {
            self.retire(Purpose::Blocks(size), old);
        } else {
            self.keep_for_batches(&mut record, size, old);
        }
        Ok(true)
    }

    /// What the record says of each block.
    #[inline]
    fn batch_items(
        &self,
        spots: &[Spot<'_>],
        words: &[WordAt],
        frames: &[Frame],
        hashes: &[u64],
    ) -> Few<BatchItem> {
        spots
            .iter()
            .zip(words)
            .zip(frames.iter().zip(hashes))
            .map(|((spot, at), (frame, hash))| BatchItem {
                at: *at,
                word: spot.word(self.seed, Entry::dirty(*frame)),
                sum: spot.sum(self, *hash),
                block: spot.block,
            })
            .collect()
    }

    /// Step 1. The checksums of the blocks.
    fn fill_batch(&self, blocks: &[(u64, &[u8])], space: &BatchSpace) -> Result<Few<u64>> {
        let each = || blocks.iter().zip(&space.frames);
        let written: Few<_> = each()
            .map(|((_, data), frame)| self.write_block(*frame, data))
            .collect::<Result<_>>()?;
        let wait = |(frame, written): (&Frame, &Written)| {
            self.wait_apart(*frame, written.ticket).map(|()| written.checksum)
        };
        space.frames.iter().zip(&written).map(wait).collect()
    }

    /// The items for which the record has no room; the first page of them, if there is one.
    fn write_overflow(&self, items: &[BatchItem], space: &BatchSpace) -> u64 {
        let mut next = None;
        for (n, page) in space.overflow.iter().enumerate().rev() {
            let first = ITEMS_INLINE + n * ITEMS_OVERFLOW;
            let last = (first + ITEMS_OVERFLOW).min(items.len());
            self.write_meta(self.page_at(*page), &encode_overflow(&items[first..last], next));
            next = Some(*page);
        }
        next.map_or(NO_FRAME, |f| f.0)
    }
}

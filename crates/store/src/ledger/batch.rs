//! Batches: several blocks of one file, all or none.
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
//! The record is emptied before the lanes are unlocked, so it never speaks of an entry that has moved on.

use super::Ledger;
use crate::address::{BlockSize, Frame, WordAt};
use crate::format::entry::{self, Entry, Place};
use crate::format::record::{
    BatchHeader, BatchItem, ITEMS_INLINE, ITEMS_OVERFLOW, NO_FRAME, encode_overflow, items_hash,
};
use crate::planted::Planted;
use crate::sync::MutexGuard;
use crate::tier::BlockAddress;
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
    pub(crate) frames: Few<Frame>,
    overflow: Few<Frame>,
}

impl Ledger {
    /// Takes and claims the pieces for `count` blocks; `None` (and nothing taken) when the tier has too few.
    pub(crate) fn take_batch(&self, file: u64, size: BlockSize, count: usize) -> Option<BatchSpace> {
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

    /// Keeps pieces that a batch has replaced for the next one. They are free: no durable entry points to them.
    pub(crate) fn keep_for_batches(&self, slot: &mut BatchSlot, size: BlockSize, frames: Few<Frame>) {
        let fits = slot.ready.len() + frames.len() <= READY_MOST;
        if fits && (slot.ready.is_empty() || slot.ready_size == Some(size)) {
            slot.ready_size = Some(size);
            slot.ready.extend(frames);
            // The next batch begins with these: asks for their address translations now, as a lane does for its next piece.
            for frame in slot.ready.iter().rev().take(2) {
                self.prepare_translations(*frame, size);
            }
        } else {
            self.allocator.give(Purpose::Blocks(size), frames);
        }
    }

    /// Hands the pieces that batch records keep back to the allocator. The caller holds no batch record.
    pub(super) fn reclaim_batches(&self) {
        for batch in &self.batches {
            let mut slot = batch.lock();
            if let Some(size) = slot.ready_size.take() {
                self.allocator.give(Purpose::Blocks(size), slot.ready.drain(..));
            }
        }
    }

    /// The batch record a file uses: files seldom share one.
    pub(crate) fn lock_batch(&self, file: u64) -> (u32, MutexGuard<'_, BatchSlot>) {
        let number = (crate::format::mix(file) % u64::from(self.geometry.batches)) as u32;
        (number, self.batches[number as usize].lock())
    }

    /// Steps 3 to 6. The blocks are written into `space.frames` with the checksums `hashes`; the caller holds the lanes
    /// of all `addresses` and has done step 2. `in_dram` switches the entries that readers see, after step 4.
    ///
    /// # Durability
    /// On return all blocks and the size `size_after` survive a power cut (the size once the caller has written it
    /// to the file's state line in `in_dram`, whose stores share the fence of step 5).
    #[expect(clippy::too_many_arguments, reason = "one call per batch, all of them needed at once")]
    pub(crate) fn commit_batch(
        &self,
        (number, slot): (u32, &mut BatchSlot),
        file: u64,
        file_slot: u64,
        size_after: u64,
        addresses: &[BlockAddress],
        hashes: &[u64],
        space: BatchSpace,
        in_dram: impl FnOnce(&[Frame]),
    ) {
        let size = addresses.first().map_or(BlockSize::ALL[0], |a| a.size);
        let items: Few<BatchItem> = addresses
            .iter()
            .zip(&space.frames)
            .zip(hashes)
            .map(|((a, frame), hash)| BatchItem {
                at: a.at,
                word: entry::seal(self.seed, file, Place::Block(a.block.0), Entry::dirty(*frame)),
                block_hash: *hash,
                block: a.block,
            })
            .collect();
        let mut next = None;
        for (n, page) in space.overflow.iter().enumerate().rev() {
            let first = ITEMS_INLINE + n * ITEMS_OVERFLOW;
            let last = (first + ITEMS_OVERFLOW).min(items.len());
            self.write_meta(self.page_at(*page), &encode_overflow(&items[first..last], next));
            next = Some(*page);
        }
        slot.seq += 1;
        let header = BatchHeader {
            seq: slot.seq,
            file,
            count: items.len() as u32,
            frames: size.frames() as u32,
            size_after,
            overflow: next.map_or(NO_FRAME, |f| f.0),
            items_hash: items_hash(&items, self.seed),
            slot: file_slot,
        };
        let at = self.geometry.batch_at(number);
        if !self.planted.is(Planted::BatchOneByOne) {
            self.write_meta(WordAt::new(0, at), &header.encode(&items, self.seed));
        }
        self.fence();
        for frame in &space.frames {
            self.unlatch(*frame, size.frames());
        }
        in_dram(&space.frames);
        for item in &items {
            self.stream_word(item.at, item.word);
        }
        if !self.planted.is(Planted::BatchRetiredEarly) {
            self.fence();
        }
        self.stream_word(WordAt::new(0, at), 0);
        self.fence();
        self.give_latched(Purpose::Pages, space.overflow);
    }
}

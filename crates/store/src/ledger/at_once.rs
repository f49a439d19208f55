//! Small batches: up to [`AT_ONCE`] blocks of a file that does not grow, all or none, with one
//! fence.
//!
//! A file's batches use a pair of records in turns, as the switches of a lane do
//! ([`super::lanes`]).
//!
//! | step | what is done | a power cut after it leaves |
//! |---|---|---|
//! | 1 | the lanes of all blocks and the pair are locked; pending entries of these blocks that a single switch left are made durable, its records emptied | the old blocks |
//! | 2 | every block goes into a free frame, non-temporal, its checksum taken on the way | the old blocks |
//! | 3 | the entries of the pair's batch before are stored, non-temporal | the same; the record of that batch is durable |
//! | 4 | a record (entries, checksums) goes where the batch before the last had its own, non-temporal | the old blocks, or all new ones if everything arrived whole |
//! | 5 | fence | **all new blocks**: recovery finds the record, checks every block, writes every entry |
//! | 6 | the entries are switched in DRAM, and everything is unlocked | all new blocks |
//! | 7 | the next batch of the pair stores these entries, or the idle sweep, or who changes one of them | all new blocks |
//!
//! Locked first, because a locked instruction waits until what was sent before it has arrived:
//! behind the copies it would cost as much as another fence.
//!
//! # Invariants
//!
//! 1. At most one batch of a pair is neither durable in its entries nor alone in the records:
//!    record *n* is overwritten by record *n + 2*, and the fence of *n + 1* made the entries of *n*
//!    durable.
//! 2. The frames that the entries pointed to before are free only when these are durable.
//! 3. Recovery applies the records of a pair in the order of their numbers, so a block may be in
//!    both. Who changes the entry of such a block in any other way first makes the entries durable
//!    and empties both records, the older first ([`Ledger::leave_batches`]).

use super::Ledger;
use super::batch::BatchSpace;
use super::lanes::LaneGuard;
use super::switch::Spot;
use crate::address::{BlockIndex, BlockSize, Frame, WordAt};
use crate::format::entry::Entry;
use crate::format::record::{BatchHeader, BatchItem, NO_FRAME, items_hash};
use crate::medium::PreparedWrite;
use crate::planted::Planted;
use crate::tier::Few;
use crate::tier::alloc::Purpose;
use smallvec::SmallVec;

/// Most blocks that are written with their lanes locked: a few microseconds.
const AT_ONCE: usize = 16;

/// The size after a batch that leaves it as it is: recovery makes a file longer, never shorter.
const SAME_SIZE: u64 = 0;

/// What the two records of a pair speak of.
#[derive(Default)]
pub(crate) struct Pair {
    /// By the lowest bit of the record's number; none while the record is empty.
    live: [Option<u64>; 2],
    blocks: [SmallVec<[BlockIndex; AT_ONCE]>; 2],
    /// The lowest bit of the newer one.
    newer: usize,
    /// The entries of the newer one that are not on the medium yet, with the blocks' checksums.
    pub(super) pending: SmallVec<[(WordAt, u64, u64); AT_ONCE]>,
    /// The pieces they pointed to before, and their size.
    old: Few<Frame>,
    size: Option<BlockSize>,
}

impl Pair {
    fn is_live(&self) -> bool {
        self.live.iter().any(Option::is_some)
    }

    fn speaks_of(&self, which: impl Fn(u64, BlockIndex) -> bool) -> bool {
        self.live.iter().zip(&self.blocks).any(|(file, blocks)| {
            file.is_some_and(|file| blocks.iter().any(|block| which(file, *block)))
        })
    }
}

impl Ledger {
    /// Whether so many blocks can be switched by [`Ledger::replace_at_once`].
    pub(crate) fn switches_at_once(&self, blocks: usize) -> bool {
        self.is_quick && blocks <= AT_ONCE && self.geometry.batches >= 2
    }

    /// Steps 1 to 6: writes `blocks` of a file, whole blocks in ascending order, all or none;
    /// `spots` says where each goes, `slot` which slot of the file table the file has, whose size
    /// stays.
    ///
    /// `false`, and nothing is changed, when a map page has gone that was there.
    ///
    /// # Durability
    /// On return all blocks survive a power cut.
    pub(crate) fn replace_at_once(
        &self,
        spots: &[Spot<'_>],
        blocks: &[(u64, &[u8])],
        slot: u64,
        space: BatchSpace,
    ) -> bool {
        let (file, size) = (spots[0].file, spots[0].size);
        let numbers = self.lanes_of(spots);
        numbers.iter().for_each(|number| self.prepare_lane(*number));
        spots.iter().for_each(|spot| spot.leaf.prepare(spot.index));
        let writes: Few<PreparedWrite<'_>> = space
            .frames
            .iter()
            .map(|frame| {
                self.prepare_block(*frame, 0, size.bytes()).expect("BUG: a quick medium is mapped")
            })
            .collect();
        let (number, mut record) = self.lock_batch(file);
        let mut lanes: Few<_> = numbers.into_iter().map(|n| self.lock_lane_number(n)).collect();
        let mut items: Few<BatchItem> = Few::new();
        for (spot, frame) in spots.iter().zip(&space.frames) {
            let Some(at) = spot.at() else {
                drop((lanes, record));
                self.give_batch(size, space);
                return false;
            };
            let word = spot.word(self.seed, Entry::dirty(*frame));
            items.push(BatchItem { at, word, sum: 0, block: spot.block });
        }
        self.leave_lanes(spots, &mut lanes);
        let mut pair = self.pairs[number as usize].lock();
        self.latches_are_visible();
        for ((item, spot), (write, (_, data))) in
            items.iter_mut().zip(spots).zip(writes.iter().zip(blocks))
        {
            item.sum = spot.sum(self, write.nt_write_hashed(data, self.seed));
        }
        if !self.planted.is(Planted::BatchEntriesLeft) {
            self.stream_entries(&pair.pending);
        }
        record.seq += 1;
        let header = BatchHeader {
            seq: record.seq,
            file,
            count: items.len() as u32,
            frames: size.frames() as u32,
            size_after: SAME_SIZE,
            overflow: NO_FRAME,
            items_hash: items_hash(&items, self.seed),
            slot,
        };
        let parity =
            if self.planted.is(Planted::BatchOneSlot) { 0 } else { (record.seq & 1) as usize };
        self.write_small_record(self.batch_record_at(number, parity as u64), &header, &items);
        self.fence();
        // Behind the fence, while what it sent is on its way: the entries of the batch before are
        // durable.
        let free = std::mem::take(&mut pair.old);
        let free_size = pair.size.replace(size).unwrap_or(size);
        pair.pending.clear();
        pair.pending.extend(items.iter().map(|item| (item.at, item.word, item.sum)));
        pair.blocks[parity].clear();
        pair.blocks[parity].extend(spots.iter().map(|spot| spot.block));
        pair.live[parity] = Some(file);
        pair.newer = parity;
        for (spot, frame) in spots.iter().zip(&space.frames) {
            pair.old.extend(spot.entry().held_frame());
            spot.leaf.set(spot.index, Entry::dirty(*frame));
        }
        lanes.iter_mut().for_each(|guard| guard.lane.batched |= Self::pair_bit(number));
        drop(pair);
        drop(lanes);
        self.keep_for_batches(&mut record, free_size, free);
        true
    }

    /// Steps 3 and 4 for a record that needs no overflow page; durable with the next fence. By
    /// lines, from registers: to load together what was stored in parts would wait for the copies.
    fn write_small_record(&self, at: u64, header: &BatchHeader, items: &[BatchItem]) {
        let words = self.words(0);
        words.write_line(at, header.words(self.seed), 1);
        for (n, two) in (1..).zip(items.chunks(2)) {
            let [a, b, c, d] = two[0].words();
            let [e, f, g, h] = two.get(1).map_or([0; 4], BatchItem::words);
            words.write_line(at + n * 64, [a, b, c, d, e, f, g, h], 1);
        }
    }

    /// The lanes of some blocks, each once and in order, so that two batches never wait for each
    /// other.
    pub(super) fn lanes_of(&self, spots: &[Spot<'_>]) -> Few<u32> {
        let mut numbers: Few<u32> =
            spots.iter().map(|spot| self.lane_of(spot.file, spot.block)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Makes the entries that single switches of these blocks left durable, and empties their
    /// records.
    pub(super) fn leave_lanes(&self, spots: &[Spot<'_>], lanes: &mut [LaneGuard<'_>]) {
        for spot in spots {
            let number = self.lane_of(spot.file, spot.block);
            let guard = lanes
                .iter_mut()
                .find(|g| g.number == number)
                .expect("BUG: every block's lane is locked");
            self.settle_block(&mut guard.lane, spot.file, spot.block);
            self.retire_block(guard, spot.file, spot.block);
        }
    }

    /// Where a pair's record is, by the lowest bit of its number; there is one for both where a
    /// tier has a single record.
    pub(super) fn batch_record_at(&self, pair: u32, seq: u64) -> u64 {
        let single = self.geometry.batches == 1;
        self.geometry.batch_at(if single { 0 } else { 2 * pair + (seq & 1) as u32 })
    }

    fn pair_bit(pair: u32) -> u64 {
        1 << (pair % 64)
    }

    /// Before the entry of a block is changed by anything but a batch at once: no batch record
    /// speaks of it afterwards. The caller holds its lane.
    #[inline]
    pub(super) fn leave_batches(&self, guard: &mut LaneGuard<'_>, spot: Spot<'_>) {
        if guard.lane.batched != 0 {
            self.leave_pair(guard, spot);
        }
    }

    #[cold]
    fn leave_pair(&self, guard: &mut LaneGuard<'_>, spot: Spot<'_>) {
        if self.planted.is(Planted::BatchNotRetired) {
            return;
        }
        let number = self.pair_of(spot.file);
        if guard.lane.batched & Self::pair_bit(number) == 0 {
            return;
        }
        let mut pair = self.pairs[number as usize].lock();
        if pair.speaks_of(|file, block| (file, block) == (spot.file, spot.block)) {
            self.settle_pair(number, &mut pair);
        }
        // Several pairs may share a bit.
        let alone = self.pairs.len() <= 64;
        if alone && !pair.speaks_of(|file, block| self.lane_of(file, block) == guard.number) {
            guard.lane.batched &= !Self::pair_bit(number);
        }
    }

    /// Makes the entries of a pair's batches durable, frees what they replaced, and empties the
    /// records, the older first: the newer alone is right, the older alone would take blocks back.
    pub(super) fn settle_pair(&self, number: u32, pair: &mut Pair) {
        if !pair.is_live() {
            return;
        }
        self.stream_entries(&pair.pending);
        pair.pending.clear();
        self.fence();
        if let Some(size) = pair.size {
            self.allocator.give(Purpose::Blocks(size), std::mem::take(&mut pair.old));
        }
        let unordered = self.planted.is(Planted::BatchNewerFirst);
        let newer = pair.newer ^ usize::from(unordered);
        for parity in [1 - newer, newer] {
            if pair.live[parity].take().is_some() {
                self.stream_word(WordAt::new(0, self.batch_record_at(number, parity as u64)), 0);
                if !unordered {
                    self.fence();
                }
            }
        }
        self.fence();
    }

    /// [`Ledger::settle_pair`] of the file's pair. The caller does not hold it.
    pub(super) fn settle_batches_of(&self, file: u64) {
        let number = self.pair_of(file);
        self.settle_pair(number, &mut self.pairs[number as usize].lock());
    }

    /// [`Ledger::settle_pair`] of all pairs; `idle`: of those that nobody has at the moment.
    pub(super) fn settle_batches(&self, idle: bool) {
        for (number, pair) in (0..).zip(&self.pairs) {
            let pair = if idle { pair.try_lock() } else { Some(pair.lock()) };
            if let Some(mut pair) = pair {
                self.settle_pair(number, &mut pair);
            }
        }
    }
}

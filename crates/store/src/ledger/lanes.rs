//! Lanes: how one block is switched to a new version, durable and whole, with one fence.
//!
//! Every map entry belongs to one lane, chosen by a hash of file and block. Whoever changes an
//! entry holds its lane's lock, so a lane is also the lock of its blocks: two writers meet only
//! when their blocks share one of (usually) 128 lanes.
//!
//! # The switch, and what a power cut leaves
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 1 | the block goes into a free frame, non-temporal, its checksum taken on the way | the old block; the frame is free |
//! | 2 | the lane's pending entry (of the switch before) is stored, its block's checksum beside it, non-temporal | the same; the record of that switch is durable |
//! | 3 | a record (entry, checksum) goes into the lane's other record slot, non-temporal | the old block, or, if block and record both happened to arrive whole, the new one |
//! | 4 | fence | **the new block**: recovery finds the record, checks the block, writes the entry |
//! | 5 | the entry is switched in DRAM, where readers look; the write is acknowledged | the new block |
//! | 6 | the entry of this switch is pending; the next switch on this lane, or the idle sweep, stores it | the new block |
//!
//! Steps 1 to 3 may reach the medium in any order and in parts: the record has a checksum of itself
//! and of the block.
//!
//! # Invariants
//!
//! 1. At most one switch of a lane is neither durable in its entry nor alone in the record slots:
//!    record *n* is overwritten by record *n + 2*, and the fence of *n + 1* made entry *n* durable.
//! 2. The frame an entry pointed to before is free only when the entry that replaced it is durable.
//!    (A power cut alone would allow it one switch earlier, while the record is alive; but then a
//!    record damaged later would leave an entry that points to another block's bytes.)
//! 3. No two records of a slot have the same number, in this attach or an earlier one
//!    ([`Ledger::number_records`]).
//! 4. Who changes an entry in any other way (destage, evict, batch, truncate) first makes a pending
//!    entry of that block durable, then empties the record slots that speak of it, the older first
//!    ([`Ledger::replace_entry`]); so recovery never applies a record to an entry that has moved
//!    on, and never sees a record whose frame has other contents.

use super::Ledger;
use super::switch::Spot;
use crate::address::{BlockIndex, BlockSize, Frame, WordAt};
use crate::format::entry::{Entry, State};
use crate::format::record::LaneRecord;
use crate::medium::{PreparedWrite, Use, prepare_all, prepare_word};
use crate::planted::Planted;
use crate::sync::SpinMutexGuard;
use crate::sync::atomic::{AtomicU64, Ordering, fence};
use crate::tier::alloc::Purpose;

/// How many idle sweeps of a ledger with a log share a commit: about a second of them.
const SWEEPS_A_COMMIT: u64 = 50;

/// A switch whose entry is not yet stored on the medium; its record is durable.
pub(super) struct Pending {
    at: WordAt,
    word: u64,
    /// The block's checksum, which goes beside the word.
    pub(super) sum: u64,
    file: u64,
    block: BlockIndex,
    /// The piece the entry pointed to before; free once the entry is durable.
    old: Option<(Frame, BlockSize)>,
}

/// A free piece that a lane has laid out.
#[derive(Clone, Copy)]
struct Next {
    frame: Frame,
    size: BlockSize,
    /// It was seen to be claimed, so it stays claimed until it is used
    /// ([`crate::tier::Tier::own`]).
    owned: bool,
}

/// What a lane's lock protects.
#[derive(Default)]
pub(crate) struct Lane {
    seq: u64,
    /// Which block the record in each slot speaks of.
    live: [Option<(u64, BlockIndex)>; 2],
    pub(super) pending: Option<Pending>,
    /// The piece of the last switch, still claimed; who locks the lane next releases it
    /// ([`Ledger::guard`]).
    unreleased: Option<(Frame, BlockSize)>,
    /// The free piece that the next switch fills: here and not in a list, because that is a cache
    /// line more that other processors have changed.
    next: Option<Next>,
    /// More free pieces at hand, by block size.
    ready: [Vec<Frame>; 4],
    /// Pairs of batch records that may speak of blocks of this lane, a bit each
    /// ([`Ledger::leave_batches`]).
    pub(super) batched: u64,
}

/// What is looked at without the lane's lock, and changed only under it.
#[derive(Default)]
pub(crate) struct Shown {
    /// How often the lane was locked ([`Ledger::look`]).
    turns: AtomicU64,
    /// The piece that the next switch will most likely fill ([`Shown::word`]); a guess.
    next: AtomicU64,
}

impl Shown {
    /// A piece and its size in one word; never 0, which is none.
    fn word(frame: Frame, size: BlockSize) -> u64 {
        frame.0 << 3 | (size.class() as u64) << 1 | 1
    }
}

/// A block as it was when [`Ledger::look`] was called.
///
/// An entry changes only while its lane is locked, and a frame is written only when the entry that
/// pointed to it has changed. So when the number of times that the lane was locked and the entry
/// are the same before and after, the frame that the entry points to was written by nobody in
/// between: with the entry alone, the frame could have left it, been another block's, and come
/// back.
///
/// A redo file's frames are written in place: of them it says that they were this block's all the
/// time.
pub(crate) struct Look<'a> {
    turns: &'a AtomicU64,
    turn: u64,
    spot: Spot<'a>,
    pub(crate) entry: Entry,
    planted: Planted,
}

impl Look<'_> {
    /// Whether nothing moved. What was read before is read before the entry and the turns are
    /// looked at again.
    #[inline]
    pub(crate) fn held(&self) -> bool {
        fence(Ordering::Acquire);
        (self.spot.entry() == self.entry || self.planted.races(Planted::NoSecondEntry))
            && (self.turns.load(Ordering::Acquire) == self.turn
                || self.planted.races(Planted::NoTurns))
    }
}

/// A locked lane and its number.
pub(crate) struct LaneGuard<'a> {
    pub(crate) lane: SpinMutexGuard<'a, Lane>,
    pub(crate) number: u32,
}

impl Pending {
    pub(super) fn is_of(&self, file: u64, block: BlockIndex) -> bool {
        (self.file, self.block) == (file, block)
    }
}

impl Ledger {
    /// Numbers the records of this attach from `attach_count` on. An emptied slot keeps the rest of
    /// its old record, so a number that came again could bring that record back when only the
    /// number of the new one arrives.
    pub(crate) fn number_records(&self, attach_count: u64) {
        if self.planted.is(Planted::RecordNumbersRepeat) {
            return;
        }
        for lane in &self.lanes {
            lane.lock().seq = attach_count << 32;
        }
        for batch in &self.batches {
            batch.lock().seq = attach_count << 32;
        }
    }

    /// The lane of a block.
    #[inline]
    pub(crate) fn lane_of(&self, file: u64, block: BlockIndex) -> u32 {
        let hash = crate::format::mix(file.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ block.0);
        hash as u32 & (self.geometry.lanes - 1)
    }

    /// A hint that the lane of a block will be locked soon. Between the locked instruction that
    /// locks a lane and the first store of the block nothing else is on its way, so what is waited
    /// for there costs its full time: 200 ns for each line that another processor has changed, if
    /// that is far away.
    #[inline]
    pub(crate) fn prepare_lane(&self, number: u32) {
        prepare_all(&*self.lanes[number as usize]);
        prepare_word(&*self.shown[number as usize]);
    }

    pub(crate) fn lock_lane(&self, file: u64, block: BlockIndex) -> LaneGuard<'_> {
        self.lock_lane_number(self.lane_of(file, block))
    }

    #[inline]
    pub(crate) fn lock_lane_number(&self, number: u32) -> LaneGuard<'_> {
        self.guard(self.lanes[number as usize].lock(), number)
    }

    /// Releases what the switch before left claimed. A switch ends without any locked instruction,
    /// which would wait until its block has arrived: so its caller's next work, and the recording
    /// of the wait, run meanwhile.
    #[inline]
    fn guard<'a>(&self, mut lane: SpinMutexGuard<'a, Lane>, number: u32) -> LaneGuard<'a> {
        if lane.unreleased.is_some() {
            self.release_left(&mut lane);
        }
        // Nobody else counts: the lane is locked. Not a locked instruction, for the reason above.
        let turns = &self.shown[number as usize].turns;
        if !self.planted.races(Planted::TurnNotCounted) {
            turns.store(turns.load(Ordering::Relaxed) + 1, Ordering::Release);
        }
        LaneGuard { lane, number }
    }

    #[inline(never)]
    fn release_left(&self, lane: &mut Lane) {
        if let Some((frame, size)) = lane.unreleased.take() {
            self.unlatch(frame, size.frames());
        }
    }

    /// A look at a block without its lane: what is copied by its entry counts if [`Look::held`]
    /// says so afterwards.
    #[inline]
    pub(crate) fn look<'a>(&'a self, spot: Spot<'a>) -> Look<'a> {
        let turns = &self.shown[self.lane_of(spot.file, spot.block) as usize].turns;
        let turn = turns.load(Ordering::Acquire);
        Look { turns, turn, spot, entry: spot.entry(), planted: self.planted }
    }

    /// Sees to it that a block of a data file is not claimed, so that it can be viewed. The caller
    /// holds no lane.
    ///
    /// With the lane locked no switch of the block is under way: what its entry points to is whole,
    /// and a claim there is one that a switch left behind ([`Ledger::commit_written`]).
    pub(crate) fn let_go(&self, spot: Spot<'_>) {
        let old = self.planted.races(Planted::LetGoOld).then(|| spot.entry());
        let locked = !self.planted.races(Planted::LetGoUnlocked);
        let _locked = locked.then(|| self.lock_lane(spot.file, spot.block));
        let Some(frame) = old.unwrap_or_else(|| spot.entry()).held_frame() else { return };
        if self.is_latched(frame, spot.size.frames()) {
            self.unlatch(frame, spot.size.frames());
        }
    }

    /// The piece that a lane will most likely have laid out, if it is of this size; asked without
    /// its lock.
    #[inline]
    pub(crate) fn guess_next_piece(&self, number: u32, size: BlockSize) -> Option<Frame> {
        // Acquire, and release where it is stored: the mapping is as long as the one that laid it
        // out knew.
        let word = self.shown[number as usize].next.load(Ordering::Acquire);
        let frame = Frame(word >> 3);
        (word == Shown::word(frame, size)).then_some(frame)
    }

    /// Takes the piece that the lane has laid out, if it is this one, of this size and claimed;
    /// else the lane stays as it is.
    #[inline]
    pub(crate) fn take_next_piece(&self, lane: &mut Lane, guess: Frame, size: BlockSize) -> bool {
        let it_is = lane.next.is_some_and(|next| {
            let same = next.frame == guess || self.planted.races(Planted::GuessTrusted);
            next.owned && same && next.size == size
        });
        if it_is {
            lane.next = None;
            self.latches_are_visible();
        }
        it_is
    }

    /// Takes a free piece for a block and claims it for writing; `None` when the tier has none at
    /// the moment.
    pub(crate) fn take_piece(&self, lane: &mut Lane, size: BlockSize) -> Option<Frame> {
        if let Some(next) = lane.next.take() {
            if next.size == size && self.own(next.frame, size.frames()) {
                return Some(next.frame);
            }
            self.make_ready(lane, next.frame, next.size);
        }
        let ready = &mut lane.ready[size.class()];
        for attempt in 0..2 {
            // A piece that somebody still looks at stays in the list; the next one will do.
            for n in (0..ready.len()).rev() {
                let frame = ready[n];
                if self.own(frame, size.frames()) {
                    ready.swap_remove(n);
                    return Some(frame);
                }
            }
            if attempt == 0 {
                if self.has_log {
                    self.free_retired();
                }
                let before = ready.len();
                self.allocator.take(Purpose::Blocks(size), self.refill, ready);
                self.prepare_fresh(&ready[before..], size);
            }
        }
        None
    }

    /// Puts back a claimed piece that nobody will refer to.
    pub(crate) fn give_piece(&self, lane: &mut Lane, frame: Frame, size: BlockSize) {
        self.make_ready(lane, frame, size);
    }

    fn make_ready(&self, lane: &mut Lane, frame: Frame, size: BlockSize) {
        let ready = &mut lane.ready[size.class()];
        ready.push(frame);
        if ready.len() > 2 * self.refill {
            self.allocator.give(Purpose::Blocks(size), ready.drain(..self.refill));
        }
    }

    /// Steps 1 to 4 and 6 above, with the write to `frame` prepared; the frame is latched. The
    /// caller switches the entry in DRAM afterwards, still under the lane's lock.
    ///
    /// # Durability
    /// On return the new version survives a power cut.
    #[inline]
    pub(super) fn commit_prepared(
        &self,
        guard: &mut LaneGuard<'_>,
        spot: Spot<'_>,
        at: WordAt,
        frame: Frame,
        write: &PreparedWrite<'_>,
        data: &[u8],
    ) {
        self.point_too_early(spot, at, frame);
        let hash = write.nt_write_hashed(data, self.seed);
        self.commit_written(guard, spot, at, frame, hash);
    }

    #[inline]
    pub(super) fn point_too_early(&self, spot: Spot<'_>, at: WordAt, frame: Frame) {
        if self.planted.is(Planted::PointerBeforeBlock) {
            self.store_word(at, spot.word(self.seed, Entry::dirty(frame)));
            self.fence();
        }
    }

    /// Steps 2 to 4 and 6, for a block that is in `frame`, or on its way there so that the fence
    /// waits for it.
    ///
    /// A block that was `Dirty` already is likely to be overwritten again before anybody wants a
    /// reference to it, so its frame stays latched: the latch then goes with the piece to the next
    /// block, and no switch needs a locked instruction for it. Who wants a reference comes to
    /// [`Ledger::let_go`]. Any other is released when the lane is locked again.
    ///
    /// The entry that is replaced is looked up only when the block is on its way: a miss of the CPU
    /// caches there then costs nothing.
    ///
    /// # Durability
    /// On return the new version survives a power cut.
    #[inline(always)]
    pub(super) fn commit_written(
        &self,
        guard: &mut LaneGuard<'_>,
        spot: Spot<'_>,
        at: WordAt,
        frame: Frame,
        hash: u64,
    ) {
        self.leave_batches(guard, spot);
        let lane = &mut *guard.lane;
        // While the block is on its way: what is done between the copy and the fence costs nothing.
        let settled = lane.pending.take();
        if let Some(pending) = &settled {
            self.stream_entry(pending.at, pending.word, pending.sum);
        }
        let key = spot.key(self.seed);
        let (word, sum) = (key.seal(Entry::dirty(frame)), self.sum_with(key, hash));
        let old = spot.entry();
        lane.seq += 1;
        let record = LaneRecord {
            seq: lane.seq,
            at,
            word,
            sum,
            file: spot.file,
            block: spot.block,
            frames: spot.size.frames() as u32,
            lane: guard.number,
        };
        let slot = if self.planted.is(Planted::OneRecordSlot) { 0 } else { lane.seq & 1 };
        let record_at = self.geometry.lane_record_at(guard.number, slot);
        self.words(0).write_line(record_at, record.words(self.seed), 1);
        if !self.planted.is(Planted::DropFenceBeforeAck) {
            self.order();
        }
        if let Some((frame, size)) = settled.and_then(|p| p.old) {
            match lane.next {
                _ if self.has_log => self.retire(Purpose::Blocks(size), [frame]),
                None => lane.next = Some(Next { frame, size, owned: false }),
                Some(_) => self.make_ready(lane, frame, size),
            }
        }
        self.prepare_next_piece(lane, guard.number, spot.size);
        if old.state() != State::Dirty {
            lane.unreleased = Some((frame, spot.size));
        }
        let old = old.held_frame().map(|frame| (frame, spot.size));
        lane.pending = Some(Pending { at, word, sum, file: spot.file, block: spot.block, old });
        lane.live[slot as usize] = Some((spot.file, spot.block));
    }

    /// [`Ledger::commit_written`] where nobody waits for each nanosecond.
    #[inline(never)]
    pub(super) fn commit_filled(
        &self,
        guard: &mut LaneGuard<'_>,
        spot: Spot<'_>,
        at: WordAt,
        frame: Frame,
        hash: u64,
    ) {
        self.commit_written(guard, spot, at, frame, hash);
    }

    /// Looks at the piece that the next switch of this lane will fill, while the fence's writes are
    /// on their way: asks for its address translations and its claim, which with pages of 4 KiB
    /// cost a switch as much as half the copy, and puts it behind another one if a reader has it.
    fn prepare_next_piece(&self, lane: &mut Lane, number: u32, size: BlockSize) {
        if lane.next.is_none() {
            lane.next =
                lane.ready[size.class()].pop().map(|frame| Next { frame, size, owned: false });
        }
        let Some(next) = &mut lane.next else { return };
        let used = self.prepare_piece(next.frame, next.size);
        next.owned = used == Use::Claimed || self.planted.races(Planted::OwnedUnseen);
        if used == Use::Other {
            let ready = &mut lane.ready[next.size.class()];
            if let Some(other) = ready.pop() {
                ready.push(next.frame);
                next.frame = other;
            }
        }
        self.shown[number as usize]
            .next
            .store(Shown::word(next.frame, next.size), Ordering::Release);
    }

    /// Asks for the address translations of a piece that is about to be filled.
    pub(super) fn prepare_translations(&self, piece: Frame, size: BlockSize) {
        let (member, at) = self.geometry.locate(piece);
        self.words(member).prepare_translations(at, size.bytes());
    }

    /// Makes a lane's pending entry durable and frees the piece it replaced. Returns whether there
    /// was one.
    pub(crate) fn settle(&self, lane: &mut Lane) -> bool {
        let Some(pending) = lane.pending.take() else { return false };
        self.stream_entry(pending.at, pending.word, pending.sum);
        self.order();
        match pending.old {
            Some((frame, size)) if self.has_log => self.retire(Purpose::Blocks(size), [frame]),
            Some((frame, size)) => self.make_ready(lane, frame, size),
            None => {}
        }
        true
    }

    /// Settles the pending entry if it is this block's.
    pub(crate) fn settle_block(&self, lane: &mut Lane, file: u64, block: BlockIndex) {
        if lane.pending.as_ref().is_some_and(|p| p.is_of(file, block)) {
            self.settle(lane);
        }
    }

    /// Empties the record slots that speak of a block whose entry is durable. Takes effect with the
    /// caller's next fence.
    pub(crate) fn retire_block(&self, guard: &mut LaneGuard<'_>, file: u64, block: BlockIndex) {
        if self.planted.is(Planted::EvictWithoutRetire) {
            return;
        }
        self.retire_if(guard, |f, b| f == file && b == block);
    }

    /// Empties the slots `of` picks, the older record first: the newer alone is right, the older
    /// alone would take its block back to the version before.
    fn retire_if(&self, guard: &mut LaneGuard<'_>, of: impl Fn(u64, BlockIndex) -> bool) {
        let unordered = self.planted.is(Planted::RetireNewerFirst);
        let newer = (guard.lane.seq & 1) as usize ^ usize::from(unordered);
        let picked = |lane: &Lane, slot: usize| lane.live[slot].is_some_and(|(f, b)| of(f, b));
        for slot in [1 - newer, newer] {
            if !picked(&guard.lane, slot) {
                continue;
            }
            let at = self.geometry.lane_record_at(guard.number, slot as u64);
            self.stream_word(WordAt::new(0, at), 0);
            guard.lane.live[slot] = None;
            // Before the next record and before the lane is unlocked: the fence of another thread
            // is not for our lines.
            if !unordered {
                self.order();
            }
        }
    }

    /// Changes an entry outside the switch above. Durable with the caller's next fence, before
    /// which the piece that the entry pointed to must not be freed.
    pub(crate) fn replace_entry(
        &self,
        guard: &mut LaneGuard<'_>,
        spot: Spot<'_>,
        at: WordAt,
        new: Entry,
    ) {
        let word = self.word_to_replace(guard, spot, new);
        self.store_word(at, word);
    }

    /// [`Ledger::replace_entry`] without the store to the medium, for a caller that lets nobody
    /// change the entry again before it has done that ([`Ledger::stream_word`]) and fenced. The
    /// word to store.
    pub(super) fn word_to_replace(
        &self,
        guard: &mut LaneGuard<'_>,
        spot: Spot<'_>,
        new: Entry,
    ) -> u64 {
        self.leave_batches(guard, spot);
        self.settle_block(&mut guard.lane, spot.file, spot.block);
        self.retire_block(guard, spot.file, spot.block);
        spot.word(self.seed, new)
    }

    /// Stores what [`Ledger::word_to_replace`] gave; durable with the caller's next fence.
    pub(crate) fn store_later(&self, words: &[(WordAt, u64)]) {
        words.iter().for_each(|(at, word)| self.stream_word(*at, *word));
    }

    /// Makes every pending entry durable and hands the pieces that lanes, batch records and redo
    /// files hold ready back to the allocator. The caller holds neither.
    pub(crate) fn reclaim_lanes(&self) {
        for number in 0..self.geometry.lanes {
            let mut guard = self.lock_lane_number(number);
            self.settle(&mut guard.lane);
            if let Some(next) = guard.lane.next.take() {
                self.allocator.give(Purpose::Blocks(next.size), [next.frame]);
            }
            for size in BlockSize::ALL {
                let ready = &mut guard.lane.ready[size.class()];
                if !ready.is_empty() {
                    self.allocator.give(Purpose::Blocks(size), ready.drain(..));
                }
            }
        }
        self.reclaim_batches();
        self.reclaim_zeroed();
        if self.free_retired() {
            self.fence();
            self.free_retired();
        }
    }

    /// Makes every pending entry durable and empties all records: what is on the medium is then in
    /// the maps alone.
    pub(crate) fn quiesce_lanes(&self) {
        self.settle_batches(false);
        for number in 0..self.geometry.lanes {
            let mut guard = self.lock_lane_number(number);
            self.settle(&mut guard.lane);
            self.retire_if(&mut guard, |_, _| true);
        }
        self.fence();
    }

    /// Forgets a file that is going away: pending entries and records about it. Durable on return.
    pub(crate) fn forget_file(&self, file: u64) {
        self.settle_batches_of(file);
        for number in 0..self.geometry.lanes {
            let mut guard = self.lock_lane_number(number);
            if guard.lane.pending.as_ref().is_some_and(|p| p.file == file) {
                self.settle(&mut guard.lane);
            }
            self.retire_if(&mut guard, |f, _| f == file);
        }
        self.fence();
    }
}

impl Ledger {
    /// The idle sweep: makes pending entries durable and empties records, lane by lane where nobody
    /// is at work, so that little is left to recovery and a later damage to a record costs nothing.
    pub(crate) fn settle_idle_lanes(&self) {
        self.settle_batches(true);
        for number in 0..self.geometry.lanes {
            if let Some(lane) = self.lanes[number as usize].try_lock() {
                let mut guard = self.guard(lane, number);
                if self.settle(&mut guard.lane) || guard.lane.live.iter().any(Option::is_some) {
                    self.retire_if(&mut guard, |_, _| true);
                }
            }
        }
        // A log has a sync for whoever wants one; what nobody syncs is durable a moment later all
        // the same.
        let sweep = self.sweeps.fetch_add(1, Ordering::Relaxed);
        if self.has_log && !sweep.is_multiple_of(SWEEPS_A_COMMIT) {
            self.order()
        } else {
            self.fence()
        }
        self.free_retired();
    }
}

#[cfg(test)]
mod tests {
    use crate::medium::Medium;
    use crate::options::{Options, TierSpec};
    use crate::profile::Profile;
    use std::time::{Duration, Instant};

    /// Sleeps and other waits of a thread that let any thread run, of whatever priority.
    fn waits(thread: rustix::thread::Pid) -> u64 {
        let status = format!("/proc/self/task/{}/status", thread.as_raw_nonzero());
        let status = std::fs::read_to_string(status).unwrap();
        let waits = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        waits.unwrap().trim().parse().unwrap()
    }

    #[test]
    fn who_waits_for_a_lane_sleeps_so_that_a_holder_of_lower_priority_can_run() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("db")).unwrap();
        let tier = TierSpec::new("fast", dir.path().join("fast"), Medium::Emulated, 16 << 20);
        let profile = Some(Profile::named("generic").unwrap());
        let options = Options { profile, background: false, ..Options::default() };
        let home = crate::attach(&dir.path().join("db"), &[tier], options).unwrap();
        let tier = &home.store.tiers[0];
        let held = tier.lock_lane_number(0);
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                tell.send(rustix::thread::gettid()).unwrap();
                drop(tier.lock_lane_number(0));
            });
            let waiter = told.recv().unwrap();
            let (before, end) = (waits(waiter), Instant::now() + Duration::from_secs(60));
            while waits(waiter) < before + 10 {
                assert!(Instant::now() < end, "the waiter has not slept ten times in a minute");
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(held);
        });
    }
}

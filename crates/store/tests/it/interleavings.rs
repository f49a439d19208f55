//! The protocol of claims, turns and entries as a model, run in every order on x86 and on a weaker
//! memory (`explorer`): a reader never gets torn bytes, another block's, or older ones than were
//! acknowledged before it began; what is lent is not written.
//!
//! Each model is the sequence of accesses to shared memory of the functions it names, with one
//! frame of two words for 4 KiB. Whoever changes one of these functions changes the model with it.
//! What needs more than this one has (pieces that are laid out, redo blocks on the medium) is in
//! `explorer` too. That a model is worth something its flaws show: each leaves out one step, and
//! must be found.
//!
//! A model imports nothing of the code. Each scene here but `growing` is played by shuttle on the
//! code itself, with the same flaws planted there (`shuttle.rs`; `scenes` lists both,
//! `explorer/bound.rs` compares them); this one stays for the weak orders of memory, and for every
//! order.
//!
//! Deliberately not here: power cuts (`crash_suite/operations.rs`), and the real code under chance
//! (`threads.rs`, `torture.rs`).

mod bound;
mod explorer;
mod growing;
mod laid_out;
mod redo;

use explorer::Machine::{self, Weak, X86};
use explorer::Order::{Acquire, Relaxed, Release};
use explorer::{Loc, Scene, Thread, explore};
use std::cell::RefCell;
use std::rc::Rc;

const FRAMES: usize = 4;
const CLAIM: u64 = 1 << 15;
const HOME: u64 = 0;
const DIRTY: u64 = 16;
const CACHED: u64 = 32;

/// One step left out, or done at the wrong place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// `copy_unlocked` compares the entry only.
    NoTurns,
    /// `copy_unlocked` compares the turns only.
    NoSecondEntry,
    /// `copy_unlocked` looks at the turns before the entry, afterwards.
    TurnsBeforeEntry,
    /// `copy_unlocked` without its fence.
    NoFenceAfterCopy,
    /// `Tier::own` without its fence.
    NoFenceAfterClaim,
    /// A switch without the fence between block and entry.
    NoMediumFence,
    /// A lane's turn is not counted.
    TurnNotCounted,
    /// `read_ref` does not look at the entry again when it has its view.
    NoSecondLook,
    /// `let_go` without the lane.
    LetGoUnlocked,
    /// `let_go` releases what the entry was when the reader looked.
    LetGoOld,
    /// A piece is taken that somebody still looks at.
    TakeViewed,
    /// A view counts although the frame is claimed.
    ViewOfClaimed,
    /// `unview` does not release.
    UnviewRelaxed,
    /// `claim` does not acquire.
    ClaimRelaxed,
    /// Destaging lets its view go before it compares the entry.
    ViewGoneEarly,
    /// Admission, or a read from home, without a look at the count of evictions.
    NoEvictions,
    /// A copy of a redo block compares the count of evictions, which moves before the entry does.
    EvictionsForTurns,
    /// A read from home looks at the entry after the count, afterwards.
    EntryAfterEvictions,
    /// `make_leaf` lets its lock go before others can see the leaf.
    PagesLetGoEarly,
    /// A read from home goes by the size that it began with.
    OldSize,
    /// A piece is laid out as claimed without a look.
    OwnedUnseen,
    /// A piece that was laid out is taken without the fence.
    NoFenceAfterTake,
    /// The guessed piece is filled, whichever the lane has laid out by then.
    GuessTrusted,
    /// `guess_next_piece` does not acquire.
    GuessRelaxed,
    /// `switch_whole` looks at the size before it has the lane.
    SizeBeforeLane,
    /// `own_redo_block` without `meta`.
    OwnWithoutMeta,
    /// The drain lets `meta` go before its words have arrived.
    MetaGoneEarly,
    /// The drain does not ask whether the block was written meanwhile.
    DrainRewritten,
    /// The drain frees the frame before the word that no longer points to it has arrived.
    FreedEarly,
    /// An append within a block does not ask again, under `meta`, where the block is.
    OldGuess,
}

/// What a lane's lock protects.
#[derive(Default)]
struct Lane {
    ready: Vec<usize>,
    pending: Option<Option<usize>>,
    unreleased: Option<usize>,
    /// The piece that is laid out, and whether it was seen to be claimed.
    next: Option<(usize, bool)>,
    /// What a batch record keeps at hand.
    for_batches: Vec<usize>,
    /// The newest of each block.
    versions: [u64; 2],
}

/// Two blocks of one lane, and frames.
#[derive(Clone)]
struct Store {
    flaw: Flaw,
    lock: Loc,
    turns: Loc,
    /// `Shown.next`: one more than the frame, 0 is none.
    shown: Loc,
    /// How many frames the tier is long.
    len: Loc,
    entries: [Loc; 2],
    claims: [Loc; FRAMES],
    data: [[Loc; 2]; FRAMES],
    marks: [Loc; FRAMES],
    evictions: Loc,
    batches: Loc,
    size: Loc,
    home: [Loc; 2],
    /// The newest version of block 0 that was acknowledged.
    acked: Loc,
    lane: Rc<RefCell<Lane>>,
}

/// What version `version` of a block holds.
fn stamp(block: usize, version: u64) -> u64 {
    block as u64 * 100 + version
}

impl Store {
    /// Block 0 is dirty in frame 0 with version 0, block 1 is at home; the other frames are free.
    fn new(scene: &mut Scene, flaw: Flaw) -> Self {
        Self {
            flaw,
            lock: scene.word(0),
            turns: scene.word(0),
            shown: scene.word(0),
            len: scene.word(FRAMES as u64),
            entries: [scene.word(DIRTY), scene.word(HOME)],
            claims: std::array::from_fn(|_| scene.word(0)),
            data: std::array::from_fn(|f| {
                let old = if f == 0 { stamp(0, 0) } else { stamp(9, 0) };
                [scene.word(old), scene.word(old)]
            }),
            marks: std::array::from_fn(|_| scene.word(0)),
            evictions: scene.word(0),
            batches: scene.word(0),
            size: scene.word(1),
            home: [scene.word(0), scene.word(0)],
            acked: scene.word(0),
            lane: Rc::new(RefCell::new(Lane {
                ready: vec![2, 1],
                for_batches: vec![3],
                ..Lane::default()
            })),
        }
    }

    /// The same after some overwrites of block 0: its frame is claimed, and so is the next piece,
    /// which is laid out; a third one is pending.
    fn overwritten(scene: &mut Scene, flaw: Flaw) -> Self {
        let mut store = Self::new(scene, flaw);
        for frame in 0..3 {
            store.claims[frame] = scene.word(CLAIM);
        }
        store.shown = scene.word(2);
        *store.lane.borrow_mut() =
            Lane { next: Some((1, true)), pending: Some(Some(2)), ..Lane::default() };
        store
    }

    /// `Ledger::lock_lane`.
    async fn lock_lane(&self, t: &Thread) {
        t.lock(self.lock).await;
        let unreleased = self.lane.borrow_mut().unreleased.take();
        if let Some(frame) = unreleased {
            self.release(t, frame).await;
        }
        if self.flaw != Flaw::TurnNotCounted {
            t.store(self.turns, t.load_own(self.turns) + 1, Release).await;
        }
    }

    async fn unlock_lane(&self, t: &Thread) {
        t.unlock(self.lock).await;
    }

    /// `Frames::view`.
    async fn view(&self, t: &Thread, frame: usize) -> bool {
        let before =
            t.modify(self.claims[frame], (Acquire, Relaxed), |n| Some(n + 1)).await.unwrap();
        if before & CLAIM == 0 || self.flaw == Flaw::ViewOfClaimed {
            return true;
        }
        t.modify(self.claims[frame], (Relaxed, Relaxed), |n| Some(n - 1)).await.unwrap();
        false
    }

    async fn unview(&self, t: &Thread, frame: usize) {
        let order = if self.flaw == Flaw::UnviewRelaxed { Relaxed } else { Release };
        t.modify(self.claims[frame], (Relaxed, order), |n| Some(n - 1)).await.unwrap();
    }

    /// `Frames::release`.
    async fn release(&self, t: &Thread, frame: usize) {
        let before = t
            .modify(self.claims[frame], (Relaxed, Release), |n| Some(n.wrapping_sub(CLAIM)))
            .await
            .unwrap();
        t.check(before & CLAIM != 0, || "released what is not claimed".into());
    }

    /// `Tier::own`.
    async fn own(&self, t: &Thread, frame: usize) -> bool {
        let claimed = t.load(self.claims[frame], Relaxed).await & CLAIM != 0;
        let free = |n: u64| (n == 0 || self.flaw == Flaw::TakeViewed).then_some(n | CLAIM);
        let load = if self.flaw == Flaw::ClaimRelaxed { Relaxed } else { Acquire };
        let owned = claimed || t.modify(self.claims[frame], (load, Relaxed), free).await.is_ok();
        if self.flaw != Flaw::NoFenceAfterClaim {
            t.fence_release();
        }
        owned
    }

    async fn fill(&self, t: &Thread, frame: usize, value: u64) {
        t.writes_frame(self.marks[frame]);
        t.stream(self.data[frame][0], value).await;
        t.stream(self.data[frame][1], value).await;
    }

    fn fence(&self, t: &Thread) {
        if self.flaw != Flaw::NoMediumFence {
            t.fence_medium();
        }
    }

    /// `Inner::write` of a whole block.
    async fn write(&self, t: &Thread, block: usize) {
        if !self.switch_whole(t, block).await {
            self.overwrite(t, block).await;
        }
    }

    /// `Inner::switch_whole`. `false`, and nothing is done, where it needs more than that.
    async fn switch_whole(&self, t: &Thread, block: usize) -> bool {
        // `Ledger::guess_next_piece`.
        let order = if self.flaw == Flaw::GuessRelaxed { Relaxed } else { Acquire };
        let Some(guess) = t.load(self.shown, order).await.checked_sub(1) else { return false };
        // `Tier::prepare_block`, which ends the program where nothing is mapped.
        let len = t.load(self.len, Acquire).await;
        t.check(guess < len, || format!("frame {guess} is prepared, {len} are mapped"));
        let early = self.flaw != Flaw::SizeBeforeLane || t.load(self.size, Acquire).await > 0;
        self.lock_lane(t).await;
        let within = match self.flaw {
            Flaw::SizeBeforeLane => early,
            _ => t.load(self.size, Acquire).await > 0,
        };
        if !within || !self.take_next_piece(t, guess as usize) {
            self.unlock_lane(t).await;
            return false;
        }
        // Writing looks again and ends the program where the frame is not claimed; with the flaw it
        // goes on here, to show what a reader would get.
        let claimed = t.newest(self.claims[guess as usize]) & CLAIM != 0;
        t.check(claimed || self.flaw == Flaw::OwnedUnseen, || {
            format!("frame {guess} is not claimed")
        });
        self.commit(t, block, guess as usize).await;
        true
    }

    /// `Ledger::take_next_piece`.
    fn take_next_piece(&self, t: &Thread, guess: usize) -> bool {
        let mut lane = self.lane.borrow_mut();
        let trusted = self.flaw == Flaw::GuessTrusted;
        let it_is = lane.next.is_some_and(|(frame, owned)| owned && (frame == guess || trusted));
        if it_is {
            lane.next = None;
            if self.flaw != Flaw::NoFenceAfterTake {
                t.fence_release();
            }
        }
        it_is
    }

    /// `Ledger::take_piece`. `None`: readers have them all; the program would make room, which is
    /// not looked at here.
    async fn take_piece(&self, t: &Thread) -> Option<usize> {
        let next = self.lane.borrow_mut().next.take();
        if let Some((frame, _)) = next {
            if self.own(t, frame).await {
                return Some(frame);
            }
            self.lane.borrow_mut().ready.push(frame);
        }
        let ready = self.lane.borrow().ready.clone();
        for (n, frame) in ready.into_iter().enumerate().rev() {
            if self.own(t, frame).await {
                self.lane.borrow_mut().ready.swap_remove(n);
                return Some(frame);
            }
        }
        None
    }

    /// `Ledger::reclaim_lanes`. What the allocator has is the lane's here. The guess stays as it
    /// is.
    async fn reclaim(&self, t: &Thread) {
        self.lock_lane(t).await;
        let settled = self.lane.borrow_mut().pending.take();
        t.fence_medium();
        {
            let lane = &mut *self.lane.borrow_mut();
            lane.ready.extend(settled.flatten());
            lane.ready.extend(lane.next.take().map(|(frame, _)| frame));
        }
        self.unlock_lane(t).await;
    }

    /// `Inner::overwrite` of a whole block.
    async fn overwrite(&self, t: &Thread, block: usize) {
        self.lock_lane(t).await;
        match self.take_piece(t).await {
            Some(frame) => self.commit(t, block, frame).await,
            None => self.unlock_lane(t).await,
        }
    }

    /// `Ledger::commit_prepared`, and what its callers do behind it.
    async fn commit(&self, t: &Thread, block: usize, frame: usize) {
        let version = self.lane.borrow().versions[block] + 1;
        self.lane.borrow_mut().versions[block] = version;
        let settled = self.lane.borrow_mut().pending.take();
        self.fill(t, frame, stamp(block, version)).await;
        let old = t.load_own(self.entries[block]);
        self.fence(t);
        if let Some(free) = settled.flatten() {
            let mut lane = self.lane.borrow_mut();
            // The piece that the pending entry replaced is the lane's next.
            match lane.next {
                None => lane.next = Some((free, false)),
                Some(_) => lane.ready.push(free),
            }
        }
        self.prepare_next_piece(t).await;
        {
            let mut lane = self.lane.borrow_mut();
            if old & DIRTY == 0 {
                lane.unreleased = Some(frame);
            }
            lane.pending = Some((old != HOME).then_some(old as usize % 16));
        }
        t.store(self.entries[block], DIRTY + frame as u64, Release).await;
        if block == 0 {
            t.store(self.acked, version, Release).await;
        }
        self.unlock_lane(t).await;
    }

    /// `Ledger::prepare_next_piece`.
    async fn prepare_next_piece(&self, t: &Thread) {
        {
            let lane = &mut *self.lane.borrow_mut();
            lane.next = lane.next.or_else(|| lane.ready.pop().map(|frame| (frame, false)));
        }
        let Some((mut frame, _)) = self.lane.borrow().next else { return };
        // `Frames::used`.
        let used = t.load(self.claims[frame], Relaxed).await;
        let owned = used & CLAIM != 0 || self.flaw == Flaw::OwnedUnseen;
        if used != 0 && !owned {
            let ready = &mut self.lane.borrow_mut().ready;
            if let Some(other) = ready.pop() {
                ready.push(std::mem::replace(&mut frame, other));
            }
        }
        self.lane.borrow_mut().next = Some((frame, owned));
        t.store(self.shown, frame as u64 + 1, Release).await;
    }

    /// Changes the entry of block 0 as destaging and eviction do, if it is `from`.
    async fn replace(&self, t: &Thread, from: u64, to: u64) -> bool {
        self.lock_lane(t).await;
        let same = t.load_own(self.entries[0]) == from;
        if same {
            // A pending entry is stored first (`Ledger::settle_block`).
            let settled = self.lane.borrow_mut().pending.take();
            t.fence_medium();
            self.lane.borrow_mut().ready.extend(settled.flatten());
            if to == HOME {
                t.modify(self.evictions, (Acquire, Release), |n| Some(n + 1)).await.unwrap();
            }
            t.store(self.entries[0], to, Release).await;
        }
        self.unlock_lane(t).await;
        if same && to == HOME {
            t.fence_medium();
            // Free: through the allocator, whose lock orders as a lane's does.
            t.lock(self.lock).await;
            self.lane.borrow_mut().ready.push(from as usize % 16);
            t.unlock(self.lock).await;
        }
        same
    }

    /// `Inner::write_batch` of block 0 alone: its piece is filled before the lane is locked.
    async fn write_batch(&self, t: &Thread) {
        t.lock(self.batches).await;
        let frame = self.lane.borrow_mut().for_batches.pop().unwrap();
        if self.own(t, frame).await {
            let version = self.lane.borrow().versions[0] + 1;
            self.lane.borrow_mut().versions[0] = version;
            self.fill(t, frame, stamp(0, version)).await;
            self.lock_lane(t).await;
            self.fence(t);
            self.release(t, frame).await;
            let old = t.load_own(self.entries[0]);
            t.store(self.entries[0], DIRTY + frame as u64, Release).await;
            t.store(self.acked, version, Release).await;
            t.fence_medium();
            self.unlock_lane(t).await;
            self.lane.borrow_mut().for_batches.push(old as usize % 16);
        } else {
            self.lane.borrow_mut().for_batches.push(frame);
        }
        t.unlock(self.batches).await;
    }

    /// One round of `Inner::destage_round` for block 0.
    async fn destage(&self, t: &Thread) {
        let entry = t.load(self.entries[0], Acquire).await;
        if entry & DIRTY == 0 {
            return;
        }
        let frame = entry as usize % 16;
        if !self.view_after_let_go(t, frame).await {
            return;
        }
        if t.load(self.entries[0], Acquire).await != entry {
            return self.unview(t, frame).await;
        }
        let bytes = self.slice(t, frame).await;
        // A system call, which orders what it reads and writes; not all at once for a reader of
        // home.
        t.store(self.home[0], bytes, Release).await;
        t.store(self.home[1], bytes, Release).await;
        if self.flaw == Flaw::ViewGoneEarly {
            self.unview(t, frame).await;
        }
        self.replace(t, entry, CACHED + frame as u64).await;
        if self.flaw != Flaw::ViewGoneEarly {
            self.unview(t, frame).await;
        }
    }

    /// `Inner::evict_file`.
    async fn evict(&self, t: &Thread) {
        let entry = t.load(self.entries[0], Acquire).await;
        if entry & CACHED != 0 {
            self.replace(t, entry, HOME).await;
        }
    }

    /// `Inner::admit_block` of what was read from home when `evictions` was counted.
    async fn admit(&self, t: &Thread, bytes: u64, evictions: u64) {
        self.lock_lane(t).await;
        let unmoved = self.flaw == Flaw::NoEvictions || t.load_own(self.evictions) == evictions;
        if t.load_own(self.entries[0]) == HOME
            && unmoved
            && let Some(frame) = self.take_piece(t).await
        {
            self.fill(t, frame, bytes).await;
            self.fence(t);
            self.release(t, frame).await;
            t.store(self.entries[0], CACHED + frame as u64, Release).await;
        }
        self.unlock_lane(t).await;
    }

    /// `Ledger::let_go` of block 0.
    async fn let_go(&self, t: &Thread, looked_at: usize) {
        let locked = self.flaw != Flaw::LetGoUnlocked;
        let entry = if locked {
            self.lock_lane(t).await;
            t.load_own(self.entries[0])
        } else {
            t.load(self.entries[0], Acquire).await
        };
        if entry != HOME {
            let frame = if self.flaw == Flaw::LetGoOld { looked_at } else { entry as usize % 16 };
            if t.load(self.claims[frame], Relaxed).await & CLAIM != 0 {
                self.release(t, frame).await;
            }
        }
        if locked {
            self.unlock_lane(t).await;
        }
    }

    async fn view_after_let_go(&self, t: &Thread, frame: usize) -> bool {
        if self.view(t, frame).await {
            return true;
        }
        self.let_go(t, frame).await;
        self.view(t, frame).await
    }

    async fn slice(&self, t: &Thread, frame: usize) -> u64 {
        let first = t.load(self.data[frame][0], Relaxed).await;
        let second = t.load(self.data[frame][1], Relaxed).await;
        t.reads_slice(self.marks[frame]);
        t.check(first == second, || format!("a torn block is lent: {first} and {second}"));
        t.check(first < 100, || format!("another block is lent: {first}"));
        first
    }

    /// `Inner::read_ref` of block 0.
    async fn read_ref(&self, t: &Thread) {
        let least = t.load(self.acked, Acquire).await;
        let entry = t.load(self.entries[0], Acquire).await;
        let frame = entry as usize % 16;
        if !self.view_after_let_go(t, frame).await {
            return;
        }
        if self.flaw == Flaw::NoSecondLook || t.load(self.entries[0], Acquire).await == entry {
            let found = self.slice(t, frame).await;
            t.check(found >= least, || {
                format!("version {found} is lent after {least} was acknowledged")
            });
        }
        self.unview(t, frame).await;
    }

    /// `Inner::copy_unlocked` of block 0.
    async fn copy(&self, t: &Thread) {
        let least = t.load(self.acked, Acquire).await;
        let turn = t.load(self.turns, Acquire).await;
        let entry = t.load(self.entries[0], Acquire).await;
        if entry == HOME {
            return;
        }
        let frame = entry as usize % 16;
        let first = t.load(self.data[frame][0], Relaxed).await;
        let second = t.load(self.data[frame][1], Relaxed).await;
        if self.flaw != Flaw::NoFenceAfterCopy {
            t.fence_acquire();
        }
        let (mut same_entry, mut same_turn) = (true, true);
        if self.flaw == Flaw::TurnsBeforeEntry {
            same_turn = t.load(self.turns, Acquire).await == turn;
        }
        if self.flaw != Flaw::NoSecondEntry {
            same_entry = t.load(self.entries[0], Acquire).await == entry;
        }
        if self.flaw != Flaw::NoTurns && self.flaw != Flaw::TurnsBeforeEntry {
            same_turn = t.load(self.turns, Acquire).await == turn;
        }
        if same_entry && same_turn {
            t.check(first == second, || format!("a torn block is read: {first} and {second}"));
            t.check(first < 100, || format!("another block is read: {first}"));
            t.check(first >= least, || {
                format!("version {first} is read after {least} was acknowledged")
            });
        }
    }

    /// `Inner::read_from_home` of block 0, whose size was looked at before. What was found, if it
    /// is good, and the evictions before.
    async fn read_home(&self, t: &Thread) -> Option<(u64, u64)> {
        let evictions = t.load(self.evictions, Acquire).await;
        let was_home = t.load(self.entries[0], Acquire).await == HOME;
        let within = self.flaw == Flaw::OldSize || t.load(self.size, Acquire).await > 0;
        let (first, second) = if within {
            let first = t.load(self.home[0], Acquire).await;
            (first, t.load(self.home[1], Acquire).await)
        } else {
            (0, 0)
        };
        let mut unmoved = true;
        if self.flaw == Flaw::EntryAfterEvictions {
            unmoved = t.load(self.evictions, Acquire).await == evictions;
        }
        let is_home = t.load(self.entries[0], Acquire).await == HOME;
        if self.flaw != Flaw::NoEvictions && self.flaw != Flaw::EntryAfterEvictions {
            unmoved = t.load(self.evictions, Acquire).await == evictions;
        }
        if !(was_home && is_home && unmoved) {
            return None;
        }
        t.check(first == second, || {
            format!("a torn block is read from home: {first} and {second}")
        });
        Some((first, evictions))
    }
}

/// Explores without a flaw on both machines, then each flaw: it must be found on one of them at
/// least.
fn prove(name: &str, switches: u32, flaws: &[Flaw], build: impl Fn(&mut Scene, Flaw)) {
    bound::assert_listed(name, flaws);
    let try_one =
        |machine: Machine, flaw: Flaw| explore(machine, switches, |scene| build(scene, flaw));
    for machine in [Weak, X86] {
        let outcome = try_one(machine, Flaw::None);
        println!("{name}, {machine:?}: {} orders", outcome.runs);
        assert_eq!(outcome.violation, None, "{name}, {machine:?}, after {} orders", outcome.runs);
    }
    for flaw in flaws {
        let found = [Weak, X86].into_iter().find_map(|machine| {
            let outcome = try_one(machine, *flaw);
            Some((machine, outcome.runs, outcome.violation?))
        });
        println!("{name}, {flaw:?}: {found:?}");
        assert!(found.is_some(), "{name}: {flaw:?} is not found");
    }
}

#[test]
fn a_copy_is_whole_and_new_while_two_writers_reuse_its_frames() {
    let flaws = [
        Flaw::NoTurns,
        Flaw::NoFenceAfterCopy,
        Flaw::NoFenceAfterClaim,
        Flaw::NoMediumFence,
        Flaw::TurnNotCounted,
    ];
    prove("copies", u32::MAX, &flaws, |scene, flaw| {
        let store = Store::new(scene, flaw);
        for program in [&[0, 0, 1][..], &[0, 1]] {
            let store = store.clone();
            scene.thread(move |t| async move {
                for block in program {
                    store.overwrite(&t, *block).await;
                }
            });
        }
        scene.observer(move |t| async move { store.copy(&t).await });
    });
}

#[test]
fn a_copy_is_whole_and_new_while_batches_fill_its_frames_before_they_lock_its_lane() {
    let flaws =
        [Flaw::NoSecondEntry, Flaw::TurnsBeforeEntry, Flaw::NoFenceAfterClaim, Flaw::NoTurns];
    prove("copies and batches", u32::MAX, &flaws, |scene, flaw| {
        let store = Store::new(scene, flaw);
        for _ in 0..2 {
            let store = store.clone();
            scene.thread(move |t| async move {
                store.write_batch(&t).await;
                store.write_batch(&t).await;
            });
        }
        scene.observer(move |t| async move { store.copy(&t).await });
    });
}

#[test]
fn what_is_lent_is_whole_and_new_and_nobody_writes_it() {
    let flaws = [
        Flaw::NoSecondLook,
        Flaw::LetGoUnlocked,
        Flaw::TakeViewed,
        Flaw::ViewOfClaimed,
        Flaw::UnviewRelaxed,
        Flaw::ClaimRelaxed,
        Flaw::NoMediumFence,
    ];
    prove("references", 3, &flaws, |scene, flaw| {
        let store = Store::new(scene, flaw);
        let writer = store.clone();
        scene.thread(move |t| async move {
            for block in [0, 0, 1, 0, 0] {
                writer.overwrite(&t, block).await;
            }
        });
        scene.thread(move |t| async move { store.read_ref(&t).await });
    });
}

#[test]
fn what_is_lent_is_whole_and_new_while_batches_fill_pieces_without_a_lane() {
    prove("references and batches", 3, &[Flaw::LetGoOld], |scene, flaw| {
        let store = Store::new(scene, flaw);
        let writer = store.clone();
        scene.thread(move |t| async move {
            writer.write_batch(&t).await;
            writer.write_batch(&t).await;
        });
        scene.thread(move |t| async move { store.read_ref(&t).await });
    });
}

#[test]
fn a_block_rewritten_while_it_is_destaged_and_evicted_is_not_lost() {
    prove("destaging", 3, &[Flaw::ViewGoneEarly], |scene, flaw| {
        let store = Store::new(scene, flaw);
        let (writer, evicter, observer) = (store.clone(), store.clone(), store.clone());
        scene.thread(move |t| async move {
            for _ in 0..3 {
                writer.write(&t, 0).await;
            }
        });
        scene.thread(move |t| async move {
            store.destage(&t).await;
            evicter.evict(&t).await;
        });
        scene.observer(move |t| async move {
            t.lock(observer.lock).await;
            let newest = observer.lane.borrow().versions[0];
            if t.load_own(observer.entries[0]) & DIRTY == 0 {
                let home = t.load_own(observer.home[0]);
                t.check(home == newest, || format!("version {newest} is lost, home has {home}"));
            }
        });
    });
}

#[test]
fn a_read_of_home_and_its_admission_never_bring_back_an_older_version() {
    let flaws = [Flaw::NoEvictions, Flaw::EntryAfterEvictions];
    prove("home", 2, &flaws, |scene, flaw| {
        let store = Store::new(scene, flaw);
        let (mover, reader, observer) = (store.clone(), store.clone(), store);
        scene.thread(move |t| async move {
            mover.destage(&t).await;
            mover.evict(&t).await;
            mover.write(&t, 0).await;
            mover.destage(&t).await;
            mover.evict(&t).await;
        });
        scene.thread(move |t| async move {
            let least = t.load(reader.acked, Acquire).await;
            if let Some((found, evictions)) = reader.read_home(&t).await {
                t.check(found >= least, || {
                    format!("version {found} is read after {least} was acknowledged")
                });
                reader.admit(&t, found, evictions).await;
            }
        });
        scene.observer(move |t| async move {
            t.lock(observer.lock).await;
            let entry = t.load_own(observer.entries[0]);
            let newest = observer.lane.borrow().versions[0];
            let there = if entry == HOME {
                observer.home[0]
            } else {
                observer.data[entry as usize % 16][0]
            };
            let there = t.load_own(there);
            t.check(there == newest, || format!("version {newest} is followed by {there}"));
        });
    });
}

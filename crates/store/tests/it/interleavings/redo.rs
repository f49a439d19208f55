//! The life of a redo block as a model: an append while the drain takes the same block home. In the
//! end, and after a cut at any moment, the medium knows what was acknowledged, and DRAM's entry and
//! the medium's word agree.
//!
//! A word of the medium is a location. One that is stored past the caches arrives at once, or at
//! the fence: that a late one overtakes nobody else's is what `meta` is for. What is read is the
//! newest, as a cut leaves it.
//!
//! Readers have a model of their own, with a frame that another file has meanwhile.
//!
//! Deliberately not here: records, sizes and zeros (`crash_suite/operations.rs`).

use super::explorer::Order::{Acquire, Relaxed, Release};
use super::explorer::{Loc, Scene, Thread};
use super::{DIRTY, Flaw, HOME, Store, prove, stamp};
use std::cell::RefCell;
use std::rc::Rc;

/// What `meta` protects.
#[derive(Default)]
struct Meta {
    /// `RedoOrder` knows a place of the block.
    noted: bool,
}

/// A redo file of one block, which begins as `Dirty` in frame 0 with version 1 while home has
/// version 0; frame 1 is free, its lane's.
#[derive(Clone)]
struct Redo {
    flaw: Flaw,
    meta_lock: Loc,
    lane_lock: Loc,
    entry: Loc,
    /// What the medium has of the entry.
    word: Loc,
    data: [Loc; 2],
    home: Loc,
    evictions: Loc,
    acked: Loc,
    meta: Rc<RefCell<Meta>>,
    ready: Rc<RefCell<Vec<u64>>>,
}

impl Redo {
    fn new(scene: &mut Scene, flaw: Flaw) -> Self {
        Self {
            flaw,
            meta_lock: scene.word(0),
            lane_lock: scene.word(0),
            entry: scene.word(DIRTY),
            word: scene.word(DIRTY),
            data: [scene.word(1), scene.word(stamp(9, 0))],
            home: scene.word(0),
            evictions: scene.word(0),
            acked: scene.word(1),
            meta: Rc::new(RefCell::new(Meta { noted: true })),
            ready: Rc::new(RefCell::new(vec![1])),
        }
    }

    fn frame(entry: u64) -> usize {
        (entry - DIRTY) as usize
    }

    /// `Inner::write_redo` of the whole block. The caller is alone: `sizing`.
    async fn write(&self, t: &Thread, version: u64) {
        // `InBlock::guess`.
        let guess = t.load(self.entry, Acquire).await;
        if guess != HOME && self.write_in_block(t, guess, version).await {
            return;
        }
        loop {
            if t.load(self.entry, Acquire).await == HOME && !self.own(t, version).await {
                // No free piece: the program would make room, which is not looked at here.
                return;
            }
            // `Inner::write_redo_part`.
            t.lock(self.meta_lock).await;
            let entry = t.load(self.entry, Acquire).await;
            if entry != HOME {
                return self.write_in_place(t, entry, version).await;
            }
            t.unlock(self.meta_lock).await;
        }
    }

    /// `InBlock::write`.
    async fn write_in_block(&self, t: &Thread, guess: u64, version: u64) -> bool {
        t.lock(self.meta_lock).await;
        if self.flaw != Flaw::OldGuess && t.load(self.entry, Acquire).await != guess {
            t.unlock(self.meta_lock).await;
            return false;
        }
        self.write_in_place(t, guess, version).await;
        true
    }

    /// Under `meta`, which it lets go. The write is acknowledged then.
    async fn write_in_place(&self, t: &Thread, entry: u64, version: u64) {
        t.stream(self.data[Self::frame(entry)], version).await;
        self.check_cut(t);
        t.fence_medium();
        self.meta.borrow_mut().noted = true;
        t.unlock(self.meta_lock).await;
        t.store(self.acked, version, Release).await;
        self.check_cut(t);
    }

    /// `Inner::own_redo_block`. `false`: there is no free piece.
    async fn own(&self, t: &Thread, version: u64) -> bool {
        let with_meta = self.flaw != Flaw::OwnWithoutMeta;
        loop {
            let seen = t.load(self.entry, Acquire).await;
            if seen != HOME {
                return true;
            }
            let evictions = t.load(self.evictions, Acquire).await;
            if with_meta {
                t.lock(self.meta_lock).await;
            }
            t.lock(self.lane_lock).await;
            let same = t.load(self.entry, Acquire).await == seen;
            let same = same && t.load(self.evictions, Acquire).await == evictions;
            let piece = if same { self.ready.borrow_mut().pop() } else { None };
            if let Some(frame) = piece {
                t.stream(self.data[frame as usize], version).await;
                self.check_cut(t);
                t.fence_medium();
                // `Ledger::replace_entry` goes through the caches.
                t.store(self.word, DIRTY + frame, Release).await;
                self.check_cut(t);
                t.fence_medium();
                t.store(self.entry, DIRTY + frame, Release).await;
            }
            t.unlock(self.lane_lock).await;
            if piece.is_some() && !with_meta {
                t.lock(self.meta_lock).await;
            }
            if piece.is_some() {
                self.meta.borrow_mut().noted = true;
            }
            if with_meta || piece.is_some() {
                t.unlock(self.meta_lock).await;
            }
            if same {
                return piece.is_some();
            }
        }
    }

    /// `Inner::drain_redo`, one round of which the block is all. The caller is alone: `moving`.
    async fn drain(&self, t: &Thread) {
        t.lock(self.meta_lock).await;
        let noted = std::mem::take(&mut self.meta.borrow_mut().noted);
        let going = t.load(self.entry, Acquire).await;
        t.unlock(self.meta_lock).await;
        if !noted || going == HOME {
            return;
        }
        let copy = t.load(self.data[Self::frame(going)], Relaxed).await;
        // A system call, and home's sync.
        t.store(self.home, copy, Release).await;
        self.check_cut(t);
        t.lock(self.meta_lock).await;
        let entry = t.load(self.entry, Acquire).await;
        let rewritten = self.meta.borrow().noted && self.flaw != Flaw::DrainRewritten;
        if rewritten || entry == HOME {
            return t.unlock(self.meta_lock).await;
        }
        t.lock(self.lane_lock).await;
        t.modify(self.evictions, (Acquire, Release), |n| Some(n + 1)).await.unwrap();
        t.store(self.entry, HOME, Release).await;
        t.unlock(self.lane_lock).await;
        if self.flaw == Flaw::FreedEarly {
            self.keep_zeroed(t, entry).await;
        }
        // `Ledger::stream_word`: it arrives now, or when the fence has waited for it.
        let at_once = t.either();
        if at_once {
            t.store(self.word, HOME, Release).await;
            self.check_cut(t);
        }
        if self.flaw == Flaw::MetaGoneEarly {
            t.unlock(self.meta_lock).await;
        }
        if !at_once {
            t.store(self.word, HOME, Release).await;
            self.check_cut(t);
        }
        t.fence_medium();
        if self.flaw != Flaw::MetaGoneEarly {
            t.unlock(self.meta_lock).await;
        }
        if self.flaw != Flaw::FreedEarly {
            self.keep_zeroed(t, entry).await;
        }
    }

    /// `Ledger::keep_zeroed`: the frame is anybody's, and holds something else.
    async fn keep_zeroed(&self, t: &Thread, entry: u64) {
        let frame = Self::frame(entry);
        t.stream(self.data[frame], stamp(9, 1)).await;
        self.check_cut(t);
        t.fence_medium();
        t.lock(self.lane_lock).await;
        self.ready.borrow_mut().push(frame as u64);
        t.unlock(self.lane_lock).await;
    }

    /// What an attach finds if power is cut now: asked wherever something that it would look at has
    /// changed.
    fn check_cut(&self, t: &Thread) {
        let (word, acked) = (t.newest(self.word), t.newest(self.acked));
        let there = if word == HOME { self.home } else { self.data[Self::frame(word)] };
        let there = t.newest(there);
        t.check(there >= acked && there < 100, || {
            format!("version {acked} is lost by a cut, word {word} has {there}")
        });
    }
}

#[test]
fn a_redo_block_that_is_written_while_it_is_drained_is_the_same_on_the_medium_and_in_dram() {
    let flaws = [
        Flaw::OwnWithoutMeta,
        Flaw::MetaGoneEarly,
        Flaw::DrainRewritten,
        Flaw::FreedEarly,
        Flaw::OldGuess,
    ];
    prove("drain against own", 4, &flaws, |scene, flaw| {
        let redo = Redo::new(scene, flaw);
        let (drain, observer) = (redo.clone(), redo.clone());
        scene.thread(move |t| async move {
            redo.write(&t, 2).await;
            redo.write(&t, 3).await;
        });
        scene.thread(move |t| async move {
            drain.drain(&t).await;
            drain.drain(&t).await;
        });
        scene.observer(move |t| async move {
            let (entry, word) = (t.newest(observer.entry), t.newest(observer.word));
            t.check(entry == word, || format!("DRAM says {entry}, the medium {word}"));
        });
    });
}

impl Store {
    /// `Inner::read_from_tier` of a block of a redo file, which is written in place and stays
    /// claimed.
    async fn copy_redo(&self, t: &Thread) {
        let counter =
            if self.flaw == Flaw::EvictionsForTurns { self.evictions } else { self.turns };
        let before = t.load(counter, Acquire).await;
        let entry = t.load(self.entries[0], Acquire).await;
        if entry == HOME {
            return;
        }
        let found = t.load(self.data[entry as usize % 16][0], Relaxed).await;
        t.fence_acquire();
        let same = t.load(self.entries[0], Acquire).await == entry;
        if same && t.load(counter, Acquire).await == before {
            t.check(found < 100, || format!("another block is read: {found}"));
        }
    }
}

#[test]
fn a_copy_of_a_redo_block_is_never_what_another_file_has_in_its_frame() {
    prove("redo", u32::MAX, &[Flaw::EvictionsForTurns, Flaw::TurnNotCounted], |scene, flaw| {
        let store = Store::new(scene, flaw);
        let mover = store.clone();
        scene.thread(move |t| async move {
            // Drained; then another file's, drained; then this one's again.
            mover.replace(&t, DIRTY, HOME).await;
            for value in [stamp(9, 1), stamp(9, 0), stamp(0, 1)] {
                mover.fill(&t, 0, value).await;
                t.fence_medium();
            }
            mover.lock_lane(&t).await;
            t.store(mover.entries[0], DIRTY, Release).await;
            mover.unlock_lane(&t).await;
        });
        scene.observer(move |t| async move { store.copy_redo(&t).await });
    });
}

//! Which blocks of a file were written past a tier of clean copies, and are not durable at home.
//!
//! An ephemeral tier keeps its copies over a power cut, which may take back what home was not
//! synced for. A copy of such a block would then be newer than home: the bytes would be there until
//! the copy is evicted, and older ones after that. So no copy is made of them.
//!
//! **Invariant**: between the beginning of a write and the end of the first sync of home that
//! began after it, its blocks are in here. If that sync fails they stay.
//!
//! **Deliberately absent**: who writes and who syncs (`file/through.rs`).

use crate::address::BlockIndex;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering, fence};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Blocks that one set covers.
const SET: u64 = 256;

/// See the module.
#[derive(Default)]
pub(crate) struct Unsynced {
    /// Whether there may be any: what is never written costs no lock.
    any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of the write that is under way.
    writing: Option<RangeInclusive<u64>>,
    written: Blocks,
    /// Of syncs under way: what was written before each of them began.
    syncing: Vec<(u64, Blocks)>,
    syncs: u64,
    /// What a sync that failed was for. The kernel calls it written, and a later sync that succeeds
    /// says nothing of it.
    doubted: Blocks,
}

/// Numbers of blocks, [`SET`] of them a word for word.
#[derive(Default)]
struct Blocks(BTreeMap<u64, [u64; SET as usize / 64]>);

/// A sync of home under way.
#[must_use]
pub(crate) struct Turn(u64);

impl Unsynced {
    /// These blocks are about to be written at home. One writer at a time. Whoever admits one of
    /// them and locks its lane after the caller had it sees that.
    pub(crate) fn begin(&self, blocks: RangeInclusive<BlockIndex>) {
        self.any.store(true, Ordering::Release);
        self.state.lock().writing = Some(blocks.start().0..=blocks.end().0);
        fence(Ordering::SeqCst);
    }

    /// The write is over, whatever became of it.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        if let Some(blocks) = state.writing.take() {
            state.written.insert(blocks);
        }
    }

    /// Whether home may lose this version of the block.
    pub(crate) fn has(&self, block: BlockIndex) -> bool {
        fence(Ordering::SeqCst);
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let state = self.state.lock();
        state.writing.as_ref().is_some_and(|blocks| blocks.contains(&block.0))
            || state.written.has(block.0)
            || state.doubted.has(block.0)
            || state.syncing.iter().any(|(_, blocks)| blocks.has(block.0))
    }

    /// Home is about to be synced.
    pub(crate) fn begin_sync(&self) -> Turn {
        let mut state = self.state.lock();
        let written = std::mem::take(&mut state.written);
        state.syncs += 1;
        let turn = state.syncs;
        state.syncing.push((turn, written));
        Turn(turn)
    }

    /// Home was synced, or could not be.
    pub(crate) fn end_sync(&self, turn: Turn, succeeded: bool) {
        let mut state = self.state.lock();
        let ended = state.syncing.iter().position(|(number, _)| *number == turn.0);
        let blocks = ended.map(|at| state.syncing.swap_remove(at).1).unwrap_or_default();
        if !succeeded {
            state.doubted.add(blocks);
        }
    }

    /// Whether no sync can say any more that home has it.
    pub(crate) fn is_doubted(&self, block: BlockIndex) -> bool {
        self.state.lock().doubted.has(block.0)
    }
}

impl Blocks {
    fn insert(&mut self, blocks: RangeInclusive<u64>) {
        let (first, last) = blocks.into_inner();
        for set in first / SET..=last / SET {
            let bits = self.0.entry(set).or_default();
            let within = |block: u64| block.saturating_sub(set * SET).min(SET - 1);
            for block in within(first)..=within(last) {
                bits[(block / 64) as usize] |= 1 << (block % 64);
            }
        }
    }

    fn has(&self, block: u64) -> bool {
        let within = block % SET;
        self.0
            .get(&(block / SET))
            .is_some_and(|bits| bits[(within / 64) as usize] & 1 << (within % 64) != 0)
    }

    fn add(&mut self, other: Self) {
        for (set, more) in other.0 {
            let bits = self.0.entry(set).or_default();
            bits.iter_mut().zip(more).for_each(|(bits, more)| *bits |= more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(unsynced: &Unsynced, first: u64, last: u64) {
        unsynced.begin(BlockIndex(first)..=BlockIndex(last));
        unsynced.end();
    }

    fn of(unsynced: &Unsynced, blocks: &[u64]) -> Vec<u64> {
        blocks.iter().copied().filter(|block| unsynced.has(BlockIndex(*block))).collect()
    }

    #[test]
    fn what_was_written_before_a_sync_began_is_durable_when_it_has_succeeded() {
        let unsynced = Unsynced::default();
        let all = [0, 1, 254, 255, 256, 257, 700, 767, 768];
        assert!(of(&unsynced, &all).is_empty());
        write(&unsynced, 255, 767);
        assert_eq!(of(&unsynced, &all), [255, 256, 257, 700, 767]);
        let sync = unsynced.begin_sync();
        write(&unsynced, 1, 1);
        assert_eq!(of(&unsynced, &all), [1, 255, 256, 257, 700, 767], "not yet durable");
        unsynced.end_sync(sync, true);
        assert_eq!(of(&unsynced, &all), [1]);
    }

    #[test]
    fn a_sync_that_failed_made_nothing_durable() {
        let unsynced = Unsynced::default();
        write(&unsynced, 3, 3);
        let (first, second) = (unsynced.begin_sync(), unsynced.begin_sync());
        unsynced.end_sync(second, true);
        assert_eq!(of(&unsynced, &[3]), [3], "of the first one nothing is known");
        unsynced.end_sync(first, false);
        assert_eq!(of(&unsynced, &[3]), [3]);
        let later = unsynced.begin_sync();
        unsynced.end_sync(later, true);
        assert_eq!(of(&unsynced, &[3]), [3], "a later one says nothing of it");
    }

    #[test]
    fn a_sync_says_nothing_of_a_write_that_is_under_way() {
        let unsynced = Unsynced::default();
        unsynced.begin(BlockIndex(9)..=BlockIndex(9));
        let sync = unsynced.begin_sync();
        unsynced.end_sync(sync, true);
        assert_eq!(of(&unsynced, &[8, 9]), [9]);
        unsynced.end();
        assert_eq!(of(&unsynced, &[8, 9]), [9]);
    }
}

//! In which order the blocks of a redo file were last written: the drain takes the oldest home
//! first.

use crate::address::BlockIndex;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// Hashes one block number. Nobody chooses block numbers so that they collide: a file's blocks are
/// neighbours.
#[derive(Default)]
struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = crate::format::mix(self.0 ^ n);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// In which order the blocks of a redo file were last written.
#[derive(Default)]
pub(crate) struct RedoOrder {
    /// Blocks with the number of their place, oldest first; a block written again has a newer
    /// place, and the older one no longer counts.
    fifo: VecDeque<(BlockIndex, u64)>,
    /// The place of each block in `fifo` that counts.
    places: HashMap<BlockIndex, u64, BuildHasherDefault<BlockHasher>>,
    /// The block at the end, if it is still there: an append to it changes nothing here.
    newest: Option<BlockIndex>,
    clock: u64,
}

impl RedoOrder {
    #[inline]
    pub(crate) fn note(&mut self, block: BlockIndex) {
        if self.newest != Some(block) {
            self.note_another(block);
        }
    }

    fn note_another(&mut self, block: BlockIndex) {
        self.clock += 1;
        self.newest = Some(block);
        self.places.insert(block, self.clock);
        self.fifo.push_back((block, self.clock));
        // A file written round and round within its share is never drained: what no longer counts
        // goes from time to time.
        if self.fifo.len() > 2 * self.places.len() + 64 {
            self.fifo.retain(|(block, place)| self.places.get(block) == Some(place));
        }
    }

    /// The place of the block that was written last.
    pub(crate) fn newest_place(&self) -> u64 {
        self.clock
    }

    /// The oldest blocks beyond the newest `keep`, at most `most` of them and none behind the place
    /// `until`, with their places.
    pub(crate) fn oldest(
        &mut self,
        keep: usize,
        most: usize,
        until: u64,
    ) -> Vec<(BlockIndex, u64)> {
        let mut out = Vec::new();
        while self.places.len() > keep && out.len() < most {
            if self.fifo.front().is_none_or(|(_, place)| *place > until) {
                break;
            }
            let Some((block, place)) = self.fifo.pop_front() else { break };
            if self.places.get(&block) == Some(&place) {
                out.push((block, place));
                self.places.remove(&block);
            }
        }
        if self.newest.is_some_and(|b| out.iter().any(|(o, _)| *o == b)) {
            self.newest = None;
        }
        out
    }

    /// Whether the block was written again since its place was taken out.
    pub(crate) fn has(&self, block: BlockIndex) -> bool {
        self.places.contains_key(&block)
    }

    /// Back where [`RedoOrder::oldest`] took it from.
    pub(crate) fn put_back(&mut self, block: BlockIndex, place: u64) {
        self.places.insert(block, place);
        self.fifo.push_front((block, place));
    }

    /// Blocks in the tier.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Forgets the blocks that `gone` says are no longer there.
    pub(crate) fn forget(&mut self, gone: impl Fn(BlockIndex) -> bool) {
        self.places.retain(|block, _| !gone(*block));
        self.fifo.retain(|(block, _)| !gone(*block));
        if self.newest.is_some_and(gone) {
            self.newest = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_again_before_its_turn_has_a_place_behind_the_end_of_the_turns() {
        let block = BlockIndex;
        let mut order = RedoOrder::default();
        (0..4).for_each(|n| order.note(block(n)));
        let until = order.newest_place();
        // One that is there, and one that comes.
        [1, 9].into_iter().for_each(|n| order.note(block(n)));
        let taken = |order: &mut RedoOrder, most, until| {
            order.oldest(0, most, until).into_iter().map(|(block, _)| block).collect::<Vec<_>>()
        };
        assert_eq!(taken(&mut order, 2, until), [block(0), block(2)]);
        assert_eq!(taken(&mut order, 2, until), [block(3)]);
        assert_eq!(taken(&mut order, 2, until), []);
        let until = order.newest_place();
        assert_eq!(taken(&mut order, 9, until), [block(1), block(9)]);
    }
}

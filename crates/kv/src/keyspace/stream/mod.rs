//! Streams: entries in blocks that one sequence has in order, and groups of consumers.
//!
//! A block takes rows until it has as many, or as many bytes, as a node of Redis's has, counted as
//! Redis counts them: trimming with `~` removes whole ones, so it leaves here what it leaves there.
//! An added entry is appended to the last block in its place; a removed one is marked in a new copy
//! of its block, or, if it is the first one, by the stream's first ID alone. `format/stream.rs` has
//! the bytes.
//!
//! **Invariants**: a stream without entries has no block; a block has an entry that is left; the
//! pending records of a group are those of its consumers. Read next: `blocks.rs`, `groups.rs`.

mod blocks;
mod groups;
mod load;

pub(crate) use blocks::{Trim, TrimTo};
pub(crate) use groups::{Child, Pending};

use super::{Found, Keyspace};
use crate::format::entry::{HEAD, LENGTH_MAX, kind};
use crate::format::stream::{ADDED, BLOCK_HEAD, FIRST, Id, LAST, REMOVED, block_id};
use crate::heap::{Damage, Full};

/// The largest node: half of what an entry of the tier holds.
const NODE_BYTES_MAX: u64 = LENGTH_MAX / 2;

/// When a block is full.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeLimits {
    /// Bytes, as Redis counts them.
    pub(crate) bytes: u64,
    /// Rows; 0: any number.
    pub(crate) entries: u64,
}

impl NodeLimits {
    /// Of the settings, of whose bytes 0 means any number.
    pub(crate) fn new(bytes: u64, entries: u64) -> NodeLimits {
        let bytes = if bytes == 0 { NODE_BYTES_MAX } else { bytes.min(NODE_BYTES_MAX) };
        NodeLimits { bytes, entries }
    }
}

/// What a stream knows of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) length: u64,
    pub(crate) last: Id,
    pub(crate) first: Id,
    /// The greatest ID that was removed.
    pub(crate) removed: Id,
    /// Entries that were ever added.
    pub(crate) added: u64,
}

impl Facts {
    /// Whether an entry was removed behind `from`, as far as the stream knows.
    pub(crate) fn has_gap_from(&self, from: Id) -> bool {
        self.length > 0
            && self.removed != Id::MIN
            && self.first <= self.removed
            && from <= self.removed
    }

    /// How many entries were added up to an ID, if that can be told.
    pub(crate) fn read_up_to(&self, id: Id) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        if self.length == 0 && id <= self.last || id == self.last {
            return Some(self.added);
        }
        if id > self.last || self.removed != Id::MIN && self.removed >= self.first {
            return None;
        }
        match id.cmp(&self.first) {
            std::cmp::Ordering::Less => Some(self.added.wrapping_sub(self.length)),
            std::cmp::Ordering::Equal => Some(self.added.wrapping_sub(self.length).wrapping_add(1)),
            std::cmp::Ordering::Greater => None,
        }
    }
}

impl Keyspace {
    /// The node of a stream; none if it is damaged, which is noted.
    pub(crate) fn stream_node(&self, found: &Found) -> Option<u64> {
        Some(self.node_of(found)).filter(|node| *node != 0)
    }

    /// Makes a stream without entries, where no key is; its node.
    ///
    /// # Errors
    /// There is no space.
    pub(crate) fn make_stream(
        &mut self,
        db: u8,
        key: &[u8],
        expires: Option<u64>,
    ) -> Result<u64, Full> {
        let node = self.new_node()?;
        self.put(db, key, kind::STREAM, &node.to_le_bytes(), expires)?;
        Ok(node)
    }

    /// The ID in two words.
    fn id_at(&self, at: u64) -> Id {
        Id { ms: self.heap.word(at), seq: self.heap.word(at + 8) }
    }

    fn set_id(&mut self, at: u64, id: Id) {
        self.heap.set(at, id.ms);
        self.heap.set(at + 8, id.seq);
    }

    /// What a stream knows of itself.
    pub(crate) fn stream_facts(&self, node: u64) -> Facts {
        let length = self.heap.word(node + 8);
        if length > self.heap.size() {
            let what = format!("the stream at {node} says that it has {length} entries");
            self.heap.note(Damage::Structure(what));
        }
        Facts {
            length,
            last: self.id_at(node + LAST),
            first: self.id_at(node + FIRST),
            removed: self.id_at(node + REMOVED),
            added: self.heap.word(node + ADDED),
        }
    }

    /// Sets the last ID; how many entries were added and the greatest removed ID, if they are
    /// given.
    pub(crate) fn set_stream_facts(
        &mut self,
        node: u64,
        last: Id,
        added: Option<u64>,
        removed: Option<Id>,
    ) {
        self.set_id(node + LAST, last);
        if let Some(added) = added {
            self.heap.set(node + ADDED, added);
        }
        if let Some(removed) = removed {
            self.set_id(node + REMOVED, removed);
        }
    }

    /// The ID of the first row of the block at `at`.
    fn block_id(&self, at: u64) -> Id {
        let mut head = [0; BLOCK_HEAD];
        self.heap.read(at + HEAD, &mut head);
        block_id(&head)
    }

    /// Bytes that a stream takes, of which some blocks stand for all.
    pub(super) fn stream_usage(&self, node: u64, samples: u64) -> u64 {
        let (mut sampled, mut bytes) = (0, 0);
        self.for_elements(node, 0, |at| {
            (sampled, bytes) = (sampled + 1, bytes + self.room(&self.found_at(at)));
            sampled < samples
        });
        let blocks = self.sequence_len(node);
        let mut all = crate::format::DATABASE + blocks * bytes.checked_div(sampled).unwrap_or(0);
        all += blocks.div_ceil(crate::format::TREE_WORDS) * 512;
        for group in self.children(node) {
            // Each pending record is in two sequences.
            let consumers = self.sequence_len(group.node + 8);
            all += (consumers + 1) * (crate::format::DATABASE + 512)
                + self.heap.word(group.node + 8) * 64;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_were_read_is_known_only_where_nothing_was_removed_in_between() {
        let id = |seq| Id { ms: 1, seq };
        let facts = Facts { length: 3, last: id(9), first: id(5), removed: Id::MIN, added: 8 };
        let read = |facts: &Facts, seq| facts.read_up_to(id(seq));
        assert_eq!(
            [4, 5, 7, 9, 10].map(|seq| read(&facts, seq)),
            [Some(5), Some(6), None, Some(8), None]
        );
        let gap = Facts { removed: id(7), ..facts };
        assert_eq!([4, 5, 9].map(|seq| read(&gap, seq)), [None, None, Some(8)]);
        assert!(gap.has_gap_from(id(7)) && !gap.has_gap_from(id(8)) && !facts.has_gap_from(id(0)));
        assert_eq!(read(&Facts { length: 0, ..gap }, 3), Some(8));
        assert_eq!(read(&Facts { added: 0, ..facts }, 7), Some(0));
    }
}

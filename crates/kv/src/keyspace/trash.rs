//! What a FLUSHDB took away: indexes whose entries are still to be freed, a part at a time.
//!
//! FLUSHDB moves the words of a database into the trash node that the database has had since its
//! first key, so it needs no space and takes no time, and can be done in a full tier.

use super::index::NODE;
use super::{Found, Keyspace};
use crate::format::entry::kind;
use crate::format::stream::{CHILDREN, ELEMENTS, OTHERS_RECORDS, OWN_RECORDS, RECORD};
use crate::format::{BUCKETS, CHUNKS, DATABASE, DIRECTORIES_AT, SEQUENCE, TRASH, database_at};
use crate::planted::Planted;

impl Keyspace {
    /// Takes all keys of a database away.
    pub fn flush(&mut self, db: u8) {
        let base = database_at(db);
        if self.buckets(base) == 0 {
            return;
        }
        let node = self.heap.word(base + 24);
        let trash = self.heap.word(TRASH);
        let words: Vec<u64> =
            (0..DATABASE / 8).map(|word| self.heap.word(base + word * 8)).collect();
        if self.heap.planted().is(Planted::FlushForgetsTrash) {
            self.clear_database(base);
            self.heap.commit();
        }
        for (index, word) in (0..).zip(words) {
            self.heap.set(node + index * 8, if index == 3 { trash } else { word });
        }
        self.heap.set(TRASH, node);
        self.clear_database(base);
        self.touch_all(db);
    }

    fn clear_database(&mut self, base: u64) {
        for word in 0..DATABASE / 8 {
            if self.heap.word(base + word * 8) != 0 {
                self.heap.set(base + word * 8, 0);
            }
        }
    }

    /// Exchanges the keys of two databases.
    pub fn swap(&mut self, one: u8, other: u8) {
        for word in 0..DATABASE / 8 {
            let at = [one, other].map(|db| database_at(db) + word * 8);
            let words = at.map(|at| self.heap.word(at));
            self.heap.set(at[0], words[1]);
            self.heap.set(at[1], words[0]);
        }
        self.touch_all(one);
        self.touch_all(other);
    }

    /// What a value refers to, if it refers to anything, is to be freed. Where a damaged value led
    /// is not known: that stays in use, and the key can go all the same.
    pub(super) fn discard_index(&mut self, found: &Found) {
        if !kind::has_node(found.header.kind) || !self.is_whole(found) {
            return;
        }
        let node = self.node_of(found);
        self.discard_node(node);
        if self.heap.planted().is(Planted::IndexGoesFirst) {
            self.heap.commit();
        }
    }

    /// Whether something is still to be freed.
    pub fn has_trash(&self) -> bool {
        self.heap.word(TRASH) != 0 && self.heap.broken().is_none()
    }

    /// Buckets whose entries are still to be freed, of the first node of the trash.
    pub fn trash_buckets(&self) -> u64 {
        match self.heap.word(TRASH) {
            0 => 0,
            node => self.heap.word(node),
        }
    }

    /// Frees what is in at most `buckets` buckets of the trash, in transactions of its own, of
    /// which the last is not committed yet.
    pub fn empty_trash(&mut self, buckets: u64) {
        for _ in 0..buckets {
            let node = self.heap.word(TRASH);
            if node == 0 {
                return;
            }
            let before = self.heap.savepoint();
            self.free_a_part(node);
            if self.heap.is_noted() {
                self.heap.take_back(before);
                self.heap.take_note();
                return;
            }
            if self.heap.is_large() {
                self.heap.commit();
            }
        }
    }

    /// Frees a leaf of the node's sequence, or some of its groups or consumers, or a bucket of its
    /// index, or the node that has none of them.
    fn free_a_part(&mut self, node: u64) {
        let buckets = self.buckets(node);
        if self.heap.word(node + SEQUENCE) != 0 {
            let elements = self.free_last_leaf(node);
            let of = self.heap.word(node + ELEMENTS);
            // Those of a sorted set are its index's.
            for at in elements.into_iter().filter(|_| buckets == 0) {
                match of {
                    OWN_RECORDS => self.heap.free_slot(at, RECORD),
                    OTHERS_RECORDS => {}
                    _ => {
                        let header = self.header(at);
                        self.heap.free(at, header.class);
                    }
                }
            }
        } else if buckets == 0 && self.heap.word(node + CHILDREN) != 0 {
            for at in self.free_last_leaf(node + CHILDREN - SEQUENCE) {
                let found = self.found_at(at);
                match self.node_of(&found) {
                    // Where it led is not known any more.
                    0 => {}
                    child => self.discard_node(child),
                }
                self.heap.free(at, found.header.class);
            }
        } else if let Some(last) = buckets.checked_sub(1) {
            self.free_bucket(node, last);
        }
        let sequences = self.heap.word(node + SEQUENCE) | self.heap.word(node + CHILDREN);
        if self.buckets(node) == 0 && sequences == 0 {
            let next = self.heap.word(node + 24);
            self.heap.set(TRASH, next);
            self.heap.free_slot(node, NODE);
        }
    }

    fn free_bucket(&mut self, node: u64, bucket: u64) {
        let at = self.bucket_at(node, bucket);
        for (_, word) in self.words_of(at) {
            let found = self.found(word);
            self.discard_index(&found);
            self.heap.free(found.at, found.header.class);
        }
        self.free_chain(at);
        let chunk = bucket / BUCKETS;
        let directory = self.heap.word(node + DIRECTORIES_AT + chunk / CHUNKS * 8);
        if bucket.is_multiple_of(BUCKETS) {
            self.heap.free_run(self.heap.word(directory + chunk % CHUNKS * 8));
            if chunk.is_multiple_of(CHUNKS) {
                self.heap.free_run(directory);
            }
        }
        self.heap.set(node, bucket);
    }
}

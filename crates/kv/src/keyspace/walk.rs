//! Walking over the keys of a database: SCAN, KEYS, RANDOMKEY, and the search for expired ones.

use super::{Found, Keyspace};
use crate::format::entry::HEAD;
use crate::format::{DATABASE_COUNT, IndexWord, database_at};

impl Keyspace {
    /// The entry of an index word, without the word's place.
    pub(super) fn found(&self, word: IndexWord) -> Found {
        self.found_at(word.entry())
    }

    /// The entry at `at`.
    pub(super) fn found_at(&self, at: u64) -> Found {
        let header = self.header(at);
        let hash = self.heap.hash_at(at + HEAD, header.key_len, self.heap.plan().hash_seed);
        Found { slot: 0, at, hash, header }
    }

    /// The key of an entry.
    fn key(&self, word: IndexWord) -> (Vec<u8>, Found) {
        let found = self.found(word);
        let mut key = Vec::new();
        self.heap.read_to(found.at + HEAD, found.header.key_len, &mut key);
        (key, found)
    }

    /// The keys of one bucket that have not expired.
    fn keys_of_bucket(&self, base: u64, bucket: u64, into: &mut Vec<(Vec<u8>, Found)>) {
        for (slot, word) in self.words_of(self.bucket_at(base, bucket)) {
            let (key, found) = self.key(word);
            if found.header.expires.is_none_or(|at| at > self.now_ms) {
                into.push((key, Found { slot, ..found }));
            }
        }
    }

    /// Buckets of a database.
    pub(crate) fn bucket_count(&self, db: u8) -> u64 {
        self.buckets(database_at(db))
    }

    /// The keys of one bucket of a database that have not expired.
    pub(crate) fn keys_in_bucket(&self, db: u8, bucket: u64, into: &mut Vec<(Vec<u8>, Found)>) {
        self.keys_of_bucket(database_at(db), bucket, into);
    }

    /// One step of a SCAN: the keys of a bucket or two, and the next cursor, 0 at the end.
    ///
    /// The cursor counts in the bits of a bucket's number from the highest down, as Redis's does:
    /// where the index grows between two steps, a bucket that was seen becomes buckets that count
    /// as seen. So a key that is there from the first step to the last is found.
    pub fn scan(&self, db: u8, cursor: u64, into: &mut Vec<(Vec<u8>, Found)>) -> u64 {
        self.scan_index(database_at(db), cursor, into)
    }

    /// One step over the index at `base`.
    pub(super) fn scan_index(
        &self,
        base: u64,
        cursor: u64,
        into: &mut Vec<(Vec<u8>, Found)>,
    ) -> u64 {
        let buckets = self.buckets(base);
        if buckets == 0 {
            return 0;
        }
        let low = 1 << buckets.ilog2();
        let first = cursor & (low - 1);
        self.keys_of_bucket(base, first, into);
        if first + low < buckets {
            self.keys_of_bucket(base, first + low, into);
        }
        ((first | !(low - 1)).reverse_bits().wrapping_add(1)).reverse_bits()
    }

    /// All keys that have not expired.
    pub fn for_each(&self, db: u8, each: impl FnMut(&[u8], &Found)) {
        self.for_each_in(database_at(db), each);
    }

    /// All keys in the index at `base` that have not expired.
    pub(super) fn for_each_in(&self, base: u64, mut each: impl FnMut(&[u8], &Found)) {
        let mut keys = Vec::new();
        for bucket in 0..self.buckets(base) {
            self.keys_of_bucket(base, bucket, &mut keys);
            for (key, found) in keys.drain(..) {
                each(&key, &found);
            }
            if self.heap.is_noted() {
                return;
            }
        }
    }

    /// Some key that has not expired.
    pub fn random_key(&self, db: u8) -> Option<Vec<u8>> {
        self.random_in(database_at(db))
    }

    /// Some key of the index at `base`.
    pub(super) fn random_in(&self, base: u64) -> Option<Vec<u8>> {
        let buckets = self.buckets(base);
        if buckets == 0 || self.heap.word(base + 8) == 0 {
            return None;
        }
        let mut keys = Vec::new();
        for _ in 0..1000 {
            self.keys_of_bucket(base, fastrand::u64(..buckets), &mut keys);
            if !keys.is_empty() {
                return Some(keys.swap_remove(fastrand::usize(..keys.len())).0);
            }
        }
        // Nearly empty, or nearly all expired.
        (0..buckets).find_map(|bucket| {
            self.keys_of_bucket(base, bucket, &mut keys);
            keys.pop().map(|(key, _)| key)
        })
    }

    /// Looks for expired keys in the next `buckets` buckets and removes them; how many there were.
    /// Only entries whose index word says that they expire are looked at.
    pub fn remove_expired(&mut self, buckets: u64) -> u64 {
        let before = self.expired;
        if self.frozen {
            return 0;
        }
        let mut left = buckets;
        for _ in 0..=DATABASE_COUNT {
            let (db, mut bucket) = self.expiry_cursor;
            let base = database_at(db);
            let count = if self.expiring(db) == 0 { 0 } else { self.buckets(base) };
            while bucket < count && left > 0 {
                let before = self.heap.savepoint();
                for (_, word) in self.words_of(self.bucket_at(base, bucket)) {
                    if word.expires() && self.header(word.entry()).expires <= Some(self.now_ms) {
                        let (key, _) = self.key(word);
                        // Removes it.
                        self.get(db, &key);
                    }
                }
                if self.heap.is_noted() {
                    self.heap.take_back(before);
                    self.heap.take_note();
                }
                if self.heap.broken().is_some() {
                    return 0;
                }
                (bucket, left) = (bucket + 1, left - 1);
                if self.heap.is_large() {
                    self.heap.commit();
                }
            }
            self.expiry_cursor =
                if bucket < count { (db, bucket) } else { ((db + 1) % DATABASE_COUNT, 0) };
            if left == 0 {
                break;
            }
        }
        self.expired - before
    }
}

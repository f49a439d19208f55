//! The index of a database: linear hashing, one bucket split at a time.
//!
//! All of it is words of the heap; see [`crate::format`] for where they are.

use smallvec::SmallVec;

use super::{Found, Keyspace};
use crate::format::entry::{HEAD, Header, TIME};
use crate::format::{
    BUCKETS, CHUNKS, DIRECTORIES, DIRECTORIES_AT, FIRST_BUCKETS, IndexWord, LOG, WORDS, bucket_of,
    class, database_at,
};
use crate::heap::{Damage, Full};
use crate::planted::Planted;

/// Keys for each bucket, on average, beyond which the index grows.
const LOAD: u64 = 4;
/// Buckets of a chain, of which no index has so many.
const CHAIN_MAX: u32 = 10_000;
/// The class of overflow buckets: 64 bytes.
pub(super) const OVERFLOW: u8 = 2;
/// The class of trash nodes: 256 bytes.
pub(super) const NODE: u8 = 10;

const _: () = assert!(WORDS * 8 + 8 == 64);

/// Where a key's index word will be looked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    bucket: u64,
    hash: u64,
}

impl Keyspace {
    /// Where bucket `bucket` of the database or trash node at `base` is.
    #[inline]
    pub(super) fn bucket_at(&self, base: u64, bucket: u64) -> u64 {
        let chunk = bucket / BUCKETS;
        let directory = self.heap.word(base + DIRECTORIES_AT + chunk / CHUNKS * 8);
        self.heap.word(directory + chunk % CHUNKS * 8) + bucket % BUCKETS * 64
    }

    /// Buckets of the index at `base`; none and a note if there cannot be so many.
    #[inline]
    pub(super) fn buckets(&self, base: u64) -> u64 {
        // Nothing is at 0, where a damaged hash leads.
        let buckets = if base == 0 { 0 } else { self.heap.word(base) };
        if buckets > DIRECTORIES * CHUNKS * BUCKETS {
            self.heap.note(Damage::Structure(format!(
                "the index at {base} says it has {buckets} buckets"
            )));
            return 0;
        }
        buckets
    }

    /// The bucket that follows in a chain; none and a note if the chain has no end.
    #[inline]
    pub(super) fn next_bucket(&self, bucket: u64, length: &mut u32) -> u64 {
        self.next_in_chain(bucket, self.heap.word(bucket + WORDS * 8), length)
    }

    /// The same of a bucket whose last word is `next`.
    #[inline]
    fn next_in_chain(&self, bucket: u64, next: u64, length: &mut u32) -> u64 {
        *length += 1;
        if *length > CHAIN_MAX {
            self.heap
                .note(Damage::Structure(format!("the bucket at {bucket} is in an endless chain")));
            return 0;
        }
        next
    }

    /// Asks for the memory where the entry of a key is looked for first, and returns where, for
    /// [`Keyspace::expect_entry`]; whoever asks does something else meanwhile. A hint: it changes
    /// nothing, and notes no damage.
    #[inline]
    pub(crate) fn expect(&self, db: u8, key: &[u8]) -> Option<Expected> {
        let (base, hash) = (database_at(db), self.heap.hash(key));
        let buckets = self.heap.peek(base)?;
        if buckets == 0 || buckets > DIRECTORIES * CHUNKS * BUCKETS {
            return None;
        }
        let (chunk, bucket) =
            (bucket_of(hash, buckets) / BUCKETS, bucket_of(hash, buckets) % BUCKETS);
        let directory = self.heap.peek(base + DIRECTORIES_AT + chunk / CHUNKS * 8)?;
        let first = self.heap.peek(directory.checked_add(chunk % CHUNKS * 8)?)?;
        let bucket = first.checked_add(bucket * 64)?;
        self.heap.prefetch(bucket);
        Some(Expected { bucket, hash })
    }

    /// Asks for the entry itself.
    #[inline]
    pub(crate) fn expect_entry(&self, expected: &Expected) {
        let Some(words) = self.heap.peek_line(expected.bucket) else { return };
        for word in words.into_iter().take(WORDS as usize).map(IndexWord) {
            if word.fits(expected.hash) {
                self.heap.prefetch(word.entry());
            }
        }
    }

    /// Where the index words are of a bucket and its overflow buckets, with their contents.
    pub(super) fn words_of(&self, bucket_at: u64) -> SmallVec<[(u64, IndexWord); 8]> {
        let mut words = SmallVec::new();
        let (mut at, mut length) = (bucket_at, 0);
        while at != 0 {
            let line = self.heap.line(at);
            for (slot, value) in (at..).step_by(8).zip(line).take(WORDS as usize) {
                if value != 0 {
                    words.push((slot, IndexWord(value)));
                }
            }
            at = self.next_in_chain(at, line[WORDS as usize], &mut length);
        }
        words
    }

    /// The header of the entry at `at`; of an empty one, with a note, if there can be none.
    #[inline]
    pub(super) fn header(&self, at: u64) -> Header {
        let heap = &self.heap;
        let words = [heap.word(at), heap.word(at + 8)];
        let time = || {
            let end = at + self.room_of(at, (words[0] >> 48) as u16);
            heap.word(end.saturating_sub(TIME))
        };
        let header = Header::decode(words, time);
        if header.is_possible() && at > LOG {
            return header;
        }
        heap.note(Damage::Structure(format!(
            "no entry can be at {at}: its first word is {:#x}",
            words[0]
        )));
        Header::decode([0, 0], || 0)
    }

    /// Whether the entry's key is `key`.
    #[inline]
    fn is_key(&self, at: u64, header: &Header, key: &[u8]) -> bool {
        if header.key_len != key.len() as u64 {
            return false;
        }
        let mut short = [0; 64];
        if let Some(short) = short.get_mut(..key.len()) {
            self.heap.read(at + HEAD, short);
            return short == key;
        }
        let mut long = Vec::new();
        self.heap.read_to(at + HEAD, header.key_len, &mut long);
        long == key
    }

    /// The entry of a key, expired or not.
    #[inline]
    pub(super) fn find(&self, base: u64, key: &[u8], hash: u64) -> Option<Found> {
        let buckets = self.buckets(base);
        if buckets == 0 {
            return None;
        }
        let mut bucket = self.bucket_at(base, bucket_of(hash, buckets));
        let mut length = 0;
        while bucket != 0 {
            let line = self.heap.line(bucket);
            for (slot, value) in (bucket..).step_by(8).zip(line).take(WORDS as usize) {
                let value = IndexWord(value);
                if value.fits(hash) {
                    let at = value.entry();
                    let header = self.header(at);
                    if self.is_key(at, &header, key) {
                        return Some(Found { slot, at, hash, header });
                    }
                }
            }
            bucket = self.next_in_chain(bucket, line[WORDS as usize], &mut length);
        }
        None
    }

    /// Puts a word into the index, whose key is not in it.
    pub(super) fn insert(&mut self, base: u64, hash: u64, word: IndexWord) -> Result<(), Full> {
        if self.buckets(base) == 0 {
            self.make_index(base)?;
        }
        let bucket = self.bucket_at(base, bucket_of(hash, self.buckets(base).max(1)));
        self.add_word(bucket, word)?;
        if self.heap.planted().is(Planted::CountLater) {
            self.heap.commit();
        }
        self.heap.add(base + 8, 1);
        if word.expires() {
            self.heap.add(base + 16, 1);
        }
        if self.heap.word(base + 8) > LOAD * self.buckets(base) {
            let before = self.heap.savepoint();
            // An index that cannot grow goes on, with longer buckets.
            if self.split(base).is_err() {
                self.heap.take_back(before);
            }
        }
        Ok(())
    }

    /// Puts a word into the first free place of a bucket.
    fn add_word(&mut self, bucket: u64, word: IndexWord) -> Result<(), Full> {
        let (mut at, mut length) = (bucket, 0);
        loop {
            if let Some(slot) =
                (0..WORDS).map(|slot| at + slot * 8).find(|slot| self.heap.word(*slot) == 0)
            {
                self.heap.set(slot, word.0);
                return Ok(());
            }
            let next = self.next_bucket(at, &mut length);
            if next == 0 {
                let more = self.heap.alloc_slot(OVERFLOW)?;
                self.heap.set(more, word.0);
                for other in 1..=WORDS {
                    self.heap.set(more + other * 8, 0);
                }
                self.heap.set(at + WORDS * 8, more);
                return Ok(());
            }
            at = next;
        }
    }

    /// The first buckets; and the trash node that a database will need one day.
    fn make_index(&mut self, base: u64) -> Result<(), Full> {
        if base < LOG {
            let node = self.heap.alloc_slot(NODE)?;
            self.heap.set(base + 24, node);
        }
        self.add_chunk(base, 0)?;
        self.heap.set(base, FIRST_BUCKETS);
        Ok(())
    }

    /// A chunk of empty buckets, and its directory if it is the first one there.
    fn add_chunk(&mut self, base: u64, chunk: u64) -> Result<(), Full> {
        let directory_at = base + DIRECTORIES_AT + chunk / CHUNKS * 8;
        if chunk.is_multiple_of(CHUNKS) {
            let directory = self.new_zeros()?;
            self.heap.set(directory_at, directory);
        }
        let buckets = self.new_zeros()?;
        let directory = self.heap.word(directory_at);
        self.heap.set(directory + chunk % CHUNKS * 8, buckets);
        Ok(())
    }

    fn new_zeros(&mut self) -> Result<u64, Full> {
        let at = self.heap.alloc_run(1)?;
        self.heap.fresh_zeros(at, crate::format::UNIT);
        Ok(at)
    }

    /// Adds one bucket, which takes its entries from another one.
    fn split(&mut self, base: u64) -> Result<(), Full> {
        let buckets = self.buckets(base);
        if buckets == 0 || buckets >= DIRECTORIES * CHUNKS * BUCKETS {
            return Err(Full);
        }
        if buckets.is_multiple_of(BUCKETS) {
            self.add_chunk(base, buckets / BUCKETS)?;
        }
        let bit = buckets.ilog2();
        let from = self.bucket_at(base, buckets - (1 << bit));
        let to = self.bucket_at(base, buckets);
        let (mut stay, mut go): (SmallVec<[u64; 16]>, SmallVec<[u64; 16]>) = Default::default();
        for (_, word) in self.words_of(from) {
            let goes = word.hash_bit(bit).unwrap_or_else(|| {
                let header = self.header(word.entry());
                let mut key = Vec::new();
                self.heap.read_to(word.entry() + HEAD, header.key_len, &mut key);
                self.heap.hash(&key) >> bit & 1 == 1
            });
            if goes { go.push(word.0) } else { stay.push(word.0) }
        }
        self.free_chain(from);
        self.fill(from, &stay)?;
        if self.heap.planted().is(Planted::SplitInTwo) {
            self.heap.commit();
        }
        self.fill(to, &go)?;
        self.heap.set(base, buckets + 1);
        Ok(())
    }

    /// Frees the overflow buckets of a bucket.
    pub(super) fn free_chain(&mut self, bucket: u64) {
        let mut length = 0;
        let mut more = self.next_bucket(bucket, &mut length);
        while more != 0 {
            let next = self.next_bucket(more, &mut length);
            self.heap.free_slot(more, OVERFLOW);
            more = next;
        }
    }

    /// Gives a bucket these words and no others.
    fn fill(&mut self, bucket: u64, words: &[u64]) -> Result<(), Full> {
        for slot in 0..=WORDS {
            let value =
                if slot < WORDS { words.get(slot as usize).copied().unwrap_or(0) } else { 0 };
            if self.heap.word(bucket + slot * 8) != value {
                self.heap.set(bucket + slot * 8, value);
            }
        }
        for word in words.iter().skip(WORDS as usize) {
            self.add_word(bucket, IndexWord(*word))?;
        }
        Ok(())
    }
}

const _: () = assert!(class::COUNT == 47, "OVERFLOW, NODE and TREE_NODE name classes by number");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_classes_that_the_index_names_have_the_sizes_it_needs() {
        assert_eq!(class::size(OVERFLOW), 64);
        assert_eq!(class::size(NODE), crate::format::DATABASE);
        assert_eq!(class::size(crate::format::TREE_NODE), 8 + 8 * crate::format::TREE_WORDS);
    }
}

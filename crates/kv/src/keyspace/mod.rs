//! Databases of keys: finding, putting, removing, expiring, walking.
//!
//! Everything here is part of the heap's transaction; who executes commands commits. A put that
//! finds no space has changed something: the caller takes it back with the heap's savepoint.
//!
//! **Invariants**: a key is in one bucket, the one its hash names; the counts of a database are
//! those of its index; a slot that nothing points to is free. `check` and the crash tests hold
//! them.

mod eviction;
mod feed;
mod hash;
mod index;
mod libraries;
mod list;
mod load;
mod notices;
mod stream;
mod trash;
mod tree;
mod walk;
mod zset;

pub(crate) use eviction::{Order, Policy};
pub(crate) use feed::{encode, new_name};
pub(crate) use index::Expected;
pub(crate) use load::Copied;
pub(crate) use notices::class as notice;
pub(crate) use stream::{Child, NodeLimits, Pending, Trim, TrimTo};
pub(crate) use zset::{Scored, order};

use crate::format::entry::{HEAD, Header, PART, TIME, kind, sum_of_part, sum_of_time};
use crate::format::{
    BUCKETS, DATABASE, IndexWord, LOG, SEQUENCE, TREE_WORDS, UNIT, class, database_at,
};
use crate::heap::{Damage, Full, Heap};
use tiersmith_pmem::hash_bytes;

/// Bytes up to which an entry is put together in ordinary memory before it is written.
const TOGETHER: u64 = 4096;

/// Entries of a value that MEMORY USAGE looks at.
const USAGE_SAMPLES: u64 = 32;

/// An entry that was found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Where its index word is.
    slot: u64,
    /// Where it is.
    at: u64,
    /// The hash of its key.
    hash: u64,
    /// Its first words.
    pub header: Header,
}

/// A value to be put.
struct Put<'a> {
    kind: u8,
    value: &'a [u8],
    expires: Option<u64>,
    /// Room behind it.
    slack: u64,
    /// What the old value refers to belongs to the new one.
    goes_on: bool,
    /// A part of this string was written.
    raw: bool,
}

/// All databases.
#[derive(Debug)]
pub struct Keyspace {
    heap: Heap,
    now_ms: u64,
    /// Whether anybody wants to know which keys change.
    pub watched: bool,
    touched: Vec<(u8, Option<Vec<u8>>)>,
    scratch: Vec<u8>,
    /// Where the search for expired keys goes on: database and bucket.
    expiry_cursor: (u8, u64),
    expired: u64,
    changes: u64,
    /// The last number that was given to a change of the libraries.
    library_turns: u64,
    uses: eviction::Uses,
    feed: feed::Feed,
    notices: notices::Notices,
    /// A part of a copy is missing: nothing is read from it.
    pub(crate) partial: bool,
    /// A primary says when keys go: here they are only not shown.
    pub(crate) follows: bool,
    /// Writes wait: no key is removed because its time is over, it is only not shown.
    pub(crate) frozen: bool,
    /// What is executed now came from it, and finds what it has.
    pub(crate) for_primary: bool,
}

impl Keyspace {
    /// Of a heap.
    pub fn new(heap: Heap) -> Keyspace {
        let partial = heap.word(crate::format::COPY) == 1;
        let library_turns = heap.word(crate::format::LIBRARIES_TURN);
        Keyspace {
            heap,
            partial,
            follows: false,
            frozen: false,
            for_primary: false,
            now_ms: 0,
            watched: false,
            touched: Vec::new(),
            scratch: Vec::new(),
            expiry_cursor: (0, 0),
            expired: 0,
            changes: 0,
            library_turns,
            uses: eviction::Uses::default(),
            feed: feed::Feed::default(),
            notices: notices::Notices::default(),
        }
    }

    /// The heap.
    pub fn heap(&self) -> &Heap {
        &self.heap
    }

    /// The heap, for its transactions.
    pub fn heap_mut(&mut self) -> &mut Heap {
        &mut self.heap
    }

    /// The time that counts for expiry, in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Sets it. It stays the same within a command.
    pub fn set_now_ms(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Keys of a database, expired ones that nobody has removed yet among them.
    pub fn len(&self, db: u8) -> u64 {
        self.heap.word(database_at(db) + 8)
    }

    /// Whether a database has no keys.
    pub fn is_empty(&self, db: u8) -> bool {
        self.len(db) == 0
    }

    /// Keys of a database that expire.
    pub fn expiring(&self, db: u8) -> u64 {
        self.heap.word(database_at(db) + 16)
    }

    /// Keys that were removed because they had expired, since the server started.
    pub fn expired(&self) -> u64 {
        self.expired
    }

    /// Bytes of the tier that are in use, the metadata of an empty one among them: never 0.
    pub(crate) fn in_use(&self) -> u64 {
        LOG + self.heap.used()
    }

    /// The same of an empty tier.
    pub(crate) fn in_use_when_empty(&self) -> u64 {
        LOG
    }

    /// The keys that changed since the last call; no key: all of the database.
    pub fn take_touched(&mut self) -> Vec<(u8, Option<Vec<u8>>)> {
        std::mem::take(&mut self.touched)
    }

    /// A key has changed.
    pub(crate) fn touch(&mut self, db: u8, key: &[u8]) {
        self.changes += 1;
        if self.watched {
            self.touched.push((db, Some(key.to_vec())));
        }
    }

    fn touch_all(&mut self, db: u8) {
        self.changes += 1;
        if self.watched {
            self.touched.push((db, None));
        }
    }

    /// The entry of a key. One that has expired is removed.
    #[inline]
    pub fn get(&mut self, db: u8, key: &[u8]) -> Option<Found> {
        let found = self.get_to_change(db, key);
        if found.is_none() {
            self.notify_miss(db, key);
        }
        found
    }

    /// The same, and it is no event if there is none.
    #[inline]
    pub(crate) fn get_to_change(&mut self, db: u8, key: &[u8]) -> Option<Found> {
        let hash = self.heap.hash(key);
        let found = self.find(database_at(db), key, hash)?;
        if found.header.expires.is_some_and(|at| at <= self.now_ms) {
            if self.for_primary {
                return Some(found);
            }
            if self.heap.broken().is_none() && !self.follows && !self.frozen {
                self.unlink(db, key, &found);
                self.changes -= 1;
                self.expired += 1;
                self.feed(db, &[b"DEL", key]);
                self.notify(notice::EXPIRED, "expired", db, key);
            }
            return None;
        }
        self.note_use(hash);
        Some(found)
    }

    /// Whether a key is there, without removing it if it has expired.
    pub fn is_expired(&self, db: u8, key: &[u8]) -> bool {
        self.find(database_at(db), key, self.heap.hash(key))
            .is_some_and(|found| found.header.expires.is_some_and(|at| at <= self.now_ms))
    }

    /// Appends bytes `from..to` of a value to `into`. If that is all of it, or the value is small,
    /// it has its checksum, or the damage is noted.
    #[inline]
    pub fn read_value(&self, found: &Found, from: u64, to: u64, into: &mut Vec<u8>) {
        let len = found.header.value_len;
        if (to - from == len || len <= PART) && !self.is_whole(found) {
            self.note_value(found);
        }
        self.heap.read_to(found.at + found.header.value_at() + from, to - from, into);
    }

    /// Whether an entry has its checksum.
    #[inline]
    fn is_whole(&self, found: &Found) -> bool {
        let (header, mut at) = (&found.header, found.at + found.header.value_at());
        let mut sum = header.sum_of_head(found.hash) ^ sum_of_time(header.expires);
        let (mut left, mut number) = (header.value_len, 0);
        while left > 0 {
            let len = left.min(PART);
            sum ^= sum_of_part(|seed| self.heap.hash_at(at, len, seed), number);
            (at, left, number) = (at + len, left - len, number + 1);
        }
        sum == header.sum
    }

    /// Compares a value with its checksum before a part of it is believed.
    fn compare(&self, found: &Found) {
        if !self.is_whole(found) {
            self.note_value(found);
        }
    }

    #[cold]
    fn note_value(&self, found: &Found) {
        let mut key = Vec::new();
        self.heap.read_to(found.at + HEAD, found.header.key_len.min(64), &mut key);
        let key = String::from_utf8_lossy(&key);
        let key = key.escape_debug();
        let what = format!("the value of \"{key}\", at {}, does not have its checksum", found.at);
        self.heap.note(Damage::Value(what));
    }

    /// The value.
    pub fn value(&self, found: &Found) -> Vec<u8> {
        let mut value = Vec::new();
        self.read_value(found, 0, found.header.value_len, &mut value);
        value
    }

    /// Bytes that an entry takes in the tier.
    pub fn room(&self, found: &Found) -> u64 {
        self.room_of(found.at, found.header.class)
    }

    /// Bytes that a key takes in the tier: its entry, and what it refers to, of which some entries
    /// stand for all.
    pub fn usage(&self, found: &Found) -> u64 {
        let room = self.room(found);
        if !kind::has_node(found.header.kind) {
            return room;
        }
        let node = self.node_of(found);
        if found.header.kind == kind::STREAM {
            return if node == 0 { room } else { room + self.stream_usage(node, USAGE_SAMPLES) };
        }
        let buckets = self.buckets(node);
        let runs = if buckets == 0 { 0 } else { buckets.div_ceil(BUCKETS) + 1 };
        let (mut sampled, mut bytes) = (0, 0);
        let mut sample = |entry: &Found| {
            (sampled, bytes) = (sampled + 1, bytes + self.room(entry));
            sampled < USAGE_SAMPLES
        };
        if buckets == 0 {
            self.for_elements(node, 0, |at| sample(&self.found_at(at)));
        } else {
            let mut entries = Vec::new();
            let mut cursor = 0;
            while entries.len() < USAGE_SAMPLES as usize {
                cursor = self.scan_index(node, cursor, &mut entries);
                if cursor == 0 {
                    break;
                }
            }
            entries.iter().all(|(_, entry)| sample(entry));
        }
        let count = self.field_count(found);
        let entries = bytes.checked_div(sampled).unwrap_or(0) * count;
        let leaves =
            if self.heap.word(node + SEQUENCE) == 0 { 0 } else { count.div_ceil(TREE_WORDS) * 512 };
        room + DATABASE + runs * UNIT + leaves + entries
    }

    /// Bytes of the slot or run at `at`.
    #[inline]
    fn room_of(&self, at: u64, of: u16) -> u64 {
        match u8::try_from(of) {
            Ok(class) if class < class::COUNT => class::size(class),
            _ => self.heap.run_units(at).unwrap_or(0) * UNIT,
        }
    }

    /// Puts a value, in place of whatever was there.
    ///
    /// # Errors
    /// There is no space.
    pub fn put(
        &mut self,
        db: u8,
        key: &[u8],
        kind: u8,
        value: &[u8],
        expires: Option<u64>,
    ) -> Result<(), Full> {
        self.put_value(db, key, &Put { kind, value, expires, slack: 0, goes_on: false, raw: false })
    }

    /// Puts a string of which a part was written, in place of whatever was there.
    ///
    /// # Errors
    /// There is no space.
    pub fn put_raw(
        &mut self,
        db: u8,
        key: &[u8],
        value: &[u8],
        expires: Option<u64>,
    ) -> Result<(), Full> {
        let kind = kind::STRING;
        self.put_value(db, key, &Put { kind, value, expires, slack: 0, goes_on: false, raw: true })
    }

    #[inline]
    fn put_value(&mut self, db: u8, key: &[u8], put: &Put<'_>) -> Result<(), Full> {
        if self.put_into(database_at(db), key, put)? {
            self.notify(notice::NEW, "new", db, key);
        }
        self.touch(db, key);
        Ok(())
    }

    /// Puts an entry into the index at `base`, in place of whatever was there; whether nothing was.
    fn put_into(&mut self, base: u64, key: &[u8], put: &Put<'_>) -> Result<bool, Full> {
        let Put { expires, slack, goes_on, .. } = *put;
        // A field does not expire, and a key may.
        let room = slack + if base < LOG { TIME } else { 0 };
        let (at, hash) = self.write_entry(key, put, room)?;
        let word = IndexWord::new(at, expires.is_some(), hash);
        let old = self.find(base, key, hash);
        match old {
            Some(old) => {
                self.heap.set(old.slot, word.0);
                if !goes_on {
                    self.discard_index(&old);
                }
                self.heap.free(old.at, old.header.class);
                let change = i64::from(expires.is_some()) - i64::from(old.header.expires.is_some());
                if change != 0 {
                    self.heap.add(base + 16, change);
                }
            }
            None => self.insert(base, hash, word)?,
        }
        if base < LOG {
            self.note_use(hash);
        }
        Ok(old.is_none())
    }

    /// Writes a string that is no key's, as [`Keyspace::write_entry`] does.
    fn write_part(&mut self, key: &[u8], value: &[u8], room: u64) -> Result<(u64, u64), Full> {
        let kind = kind::STRING;
        let put = Put { kind, value, expires: None, slack: 0, goes_on: false, raw: false };
        self.write_entry(key, &put, room)
    }

    /// Writes an entry, with so much room behind it; where it is, and its key's hash.
    fn write_entry(&mut self, key: &[u8], put: &Put<'_>, room: u64) -> Result<(u64, u64), Full> {
        let Put { kind, value, expires, raw, .. } = *put;
        let (key_len, value_len) = (key.len() as u64, value.len() as u64);
        let hash = self.heap.hash(key);
        let mut header = Header { key_len, kind, class: 0, value_len, sum: 0, expires, raw };
        let (at, class) = self.heap.alloc(header.total() + room)?;
        header.class = class;
        header.sum = header.sum_of_head(hash) ^ sum_of_time(expires);
        for (number, part) in (0..).zip(value.chunks(PART as usize)) {
            header.sum ^= sum_of_part(|seed| hash_bytes(part, seed), number);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        header.words().iter().for_each(|word| scratch.extend_from_slice(&word.to_le_bytes()));
        scratch.extend_from_slice(key);
        if header.total() <= TOGETHER {
            scratch.extend_from_slice(value);
            self.heap.fresh(at, &scratch);
        } else {
            self.heap.fresh(at, &scratch);
            self.heap.fresh(at + header.value_at(), value);
        }
        if let Some(expires) = expires {
            let end = at + self.room_of(at, class);
            self.heap.fresh(end - TIME, &expires.to_le_bytes());
        }
        self.scratch = scratch;
        Ok((at, hash))
    }

    /// Puts a value that goes on with what the old one had: its index, if it has one.
    fn put_on(
        &mut self,
        db: u8,
        key: &[u8],
        found: &Found,
        value: &[u8],
        slack: u64,
    ) -> Result<(), Full> {
        let Header { kind, expires, .. } = found.header;
        let raw = kind == kind::STRING;
        let put = Put { kind, value, expires, slack, goes_on: true, raw };
        self.put_into(database_at(db), key, &put)?;
        self.touch(db, key);
        Ok(())
    }

    /// Moves a key to another name or database, in place of whatever is there.
    ///
    /// # Errors
    /// There is no space.
    pub fn rename(
        &mut self,
        from: (u8, &[u8]),
        found: &Found,
        to: (u8, &[u8]),
    ) -> Result<(), Full> {
        let value = self.value(found);
        let Header { kind, expires, raw, .. } = found.header;
        let put = Put { kind, value: &value, expires, slack: 0, goes_on: false, raw };
        if !self.put_into(database_at(to.0), to.1, &put)? {
            // What was there is removed first.
            self.touch(to.0, to.1);
        }
        self.notify(notice::NEW, "new", to.0, to.1);
        self.touch(to.0, to.1);
        // The index may have grown, and the entry's word have moved.
        if let Some(found) = self.find(database_at(from.0), from.1, self.heap.hash(from.1)) {
            self.unlink_entry(database_at(from.0), &found);
            self.touch(from.0, from.1);
        }
        Ok(())
    }

    /// Appends to a value.
    ///
    /// # Errors
    /// There is no space.
    pub fn append(&mut self, db: u8, key: &[u8], found: &Found, more: &[u8]) -> Result<(), Full> {
        if !self.grow(found, more, TIME) {
            let mut value = self.value(found);
            value.extend_from_slice(more);
            let slack = (found.header.total() + TIME + more.len() as u64) / 4;
            return self.put_on(db, key, found, &value, slack);
        }
        self.touch(db, key);
        Ok(())
    }

    /// Puts bytes behind a value, if `behind` bytes of room are left behind them; whether it did.
    fn grow(&mut self, found: &Found, more: &[u8], behind: u64) -> bool {
        let header = &found.header;
        if header.total() + behind + more.len() as u64 > self.room(found) {
            return false;
        }
        self.heap.fresh(found.at + header.total(), more);
        let value_len = header.value_len + more.len() as u64;
        // Behind an entry that is no key's, such as a stream's block, there is no room for a time.
        let raw = header.raw || behind == TIME && header.kind == kind::STRING;
        let longer = Header { value_len, raw, ..*header };
        let mut sum = header.sum ^ header.sum_of_head(found.hash) ^ longer.sum_of_head(found.hash);
        // The last part is another one now.
        let first = header.value_len / PART;
        let mut tail = Vec::new();
        let begun = header.value_len % PART;
        self.heap.read_to(found.at + header.total() - begun, begun, &mut tail);
        if begun > 0 {
            sum ^= sum_of_part(|seed| hash_bytes(&tail, seed), first);
        }
        tail.extend_from_slice(more);
        for (number, part) in (first..).zip(tail.chunks(PART as usize)) {
            sum ^= sum_of_part(|seed| hash_bytes(part, seed), number);
        }
        let words = Header { sum, ..longer }.words();
        if raw && !header.raw {
            self.heap.set_within(found.at, words[0]);
        }
        self.heap.set_within(found.at + 8, words[1]);
        true
    }

    /// Sets when a key expires, or that it does not. This needs no space.
    pub fn set_expiry(&mut self, db: u8, key: &[u8], found: &Found, expires: Option<u64>) {
        let old = found.header;
        if old.expires == expires {
            return;
        }
        let end = found.at + self.room(found);
        let sum = old.sum ^ sum_of_time(old.expires) ^ sum_of_time(expires);
        let words = Header { sum, expires, ..old }.words();
        self.heap.set_within(found.at, words[0]);
        self.heap.set_within(found.at + 8, words[1]);
        if let Some(at) = expires {
            self.heap.set_within(end - TIME, at);
        }
        let change = i64::from(expires.is_some()) - i64::from(old.expires.is_some());
        if change != 0 {
            let word = IndexWord::new(found.at, expires.is_some(), found.hash);
            self.heap.set(found.slot, word.0);
            self.heap.add(database_at(db) + 16, change);
        }
        self.touch(db, key);
    }

    /// Removes a key; whether it was there.
    pub fn remove(&mut self, db: u8, key: &[u8]) -> bool {
        let found = self.get_to_change(db, key);
        if let Some(found) = &found {
            self.unlink(db, key, found);
        }
        found.is_some()
    }

    fn unlink(&mut self, db: u8, key: &[u8], found: &Found) {
        self.discard_index(found);
        self.unlink_entry(database_at(db), found);
        self.touch(db, key);
    }

    /// Takes an entry out of the index at `base`, and leaves alone what its value refers to.
    fn unlink_entry(&mut self, base: u64, found: &Found) {
        self.heap.set(found.slot, 0);
        self.heap.free(found.at, found.header.class);
        self.heap.add(base + 8, -1);
        if found.header.expires.is_some() {
            self.heap.add(base + 16, -1);
        }
    }
}

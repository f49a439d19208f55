//! Persistent memory with transactions: words that change all or none, and space for bytes.
//!
//! What is built on it (index, entries, databases) reads words and bytes, changes words, asks for
//! space and gives it back, as if the power never failed; [`Heap::commit`] makes everything since
//! the last commit durable at once. There is no other way to change the medium.
//!
//! # The life of one commit
//! | step | what happens | power cut here leaves |
//! |---|---|---|
//! | 1 | during the transaction: new bytes go where nobody looks, into free space; changed words stay in ordinary memory (`overlay.rs`); space that is given back stays taken | the state before: nothing points to the new bytes |
//! | 2 | `settle_frees`: what was given back becomes free, in the overlay, which forgets what was changed in it | the same |
//! | 3 | only if the record's words make something visible that is not a range: **fence** | the same |
//! | 4 | the record goes into the slot that the commit before did not use: the words, where the new bytes are, and a checksum of both | if record and bytes arrived whole: the new state; else the old one |
//! | 5 | **fence** | **the new state**: recovery finds the record and stores its words |
//! | 6 | words go to their places and their lines are flushed, without a fence; the caller answers | the same |
//! | 7 | the next commit's step 5 makes them durable, and only then a third commit overwrites the record | the same, from the words alone |
//!
//! So one fence makes any number of commands durable. Step 3 is needed when a slab, a bucket or a
//! directory is new, when a word changes within bytes that may be as new (a length, a time), and
//! when the transaction gave back something that it took itself (a key that was set twice).
//!
//! Recovery reads two records, compares the bytes of the newer one with its checksum, stores the
//! words of both, older first, and reads the unit table: 8 bytes for 64 KiB. It looks at no key.
//!
//! Deliberately absent: threads (one owner), growth, what the bytes mean. Read next: `alloc.rs`,
//! `recover.rs`; `damage.rs` says what happens when the medium holds what it cannot hold.

mod alloc;
mod damage;
mod hold;
mod overlay;
mod ranges;
mod recover;
mod units;

use std::cell::RefCell;

use tiersmith_pmem::{Mapping, hash_bytes};

use crate::format::record::{self, HEADER};
use crate::format::{ROOTS, Superblock, UNIT, USED};
use crate::planted::Planted;
pub use damage::Damage;
use overlay::Overlay;
use ranges::Ranges;
use units::Units;

/// Bytes below which a write through the caches and a flush beat a write past them.
const SMALL: usize = 512;

/// There is no space for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no free space in the tier")]
pub struct Full;

/// Space that was given back in this transaction.
#[derive(Clone, Copy, Debug)]
enum Freed {
    Slot { at: u64, class: u8 },
    Run { at: u64 },
}

/// A place in a transaction to go back to.
#[derive(Clone, Copy, Debug)]
pub struct Savepoint {
    /// The commit before it.
    number: u64,
    words: usize,
    ranges: usize,
    ranges_hash: u64,
    frees: usize,
    taken: usize,
    left: usize,
}

/// The heap of one medium.
pub struct Heap {
    map: Mapping,
    plan: Superblock,
    overlay: Overlay,
    ranges: Ranges,
    ranges_hash: u64,
    /// Something has to be durable before the record is.
    fence_ahead: bool,
    frees: Vec<Freed>,
    /// Runs of units taken in this transaction.
    taken: Vec<(u64, u64)>,
    /// Classes and slabs that this transaction filled and left for another slab.
    left: Vec<(u8, u64)>,
    units: Units,
    /// The number of the last commit.
    number: u64,
    body: Vec<u8>,
    /// Units for the body of a record that no slot holds.
    body_units: Option<(u64, u64)>,
    /// Units with the body of the commit of this number.
    kept: Vec<(u64, u64, u64)>,
    /// A moment that is still to be read.
    held: Option<Box<hold::Held>>,
    planted: Planted,
    /// What was found damaged and nobody has dealt with yet.
    noted: RefCell<Option<Damage>>,
    /// What makes further changes dangerous.
    broken: Option<String>,
}

impl std::fmt::Debug for Heap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Heap").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Reading.
impl Heap {
    /// The word at `at`, as this transaction sees it; zero and a note where there is none.
    #[inline]
    pub fn word(&self, at: u64) -> u64 {
        match self.overlay.get(at) {
            Some(word) => word,
            None if self.is_word(at) => self.map.load_u64(at),
            None => self.note_outside(at, 8),
        }
    }

    /// The eight words of the line at `at`, as this transaction sees them; zeros and a note where
    /// there is none. One search in the overlay, where eight calls of [`Heap::word`] take eight.
    #[inline]
    pub fn line(&self, at: u64) -> [u64; 8] {
        self.peek_line(at).unwrap_or_else(|| [self.note_outside(at, 64); 8])
    }

    /// The same without a note: for hints, which nobody answers for.
    #[inline]
    pub fn peek_line(&self, at: u64) -> Option<[u64; 8]> {
        if !at.is_multiple_of(64) || !self.is_inside(at, 64) {
            return None;
        }
        let changed = self.overlay.line(at);
        Some(std::array::from_fn(|word| match changed {
            Some(line) if line.mask >> word & 1 == 1 => line.words[word],
            _ => self.map.load_u64(at + word as u64 * 8),
        }))
    }

    /// A word without a note.
    #[inline]
    pub fn peek(&self, at: u64) -> Option<u64> {
        match self.overlay.get(at) {
            Some(word) => Some(word),
            None => self.is_word(at).then(|| self.map.load_u64(at)),
        }
    }

    /// Whether a word can be at `at`.
    #[inline]
    pub(super) fn is_word(&self, at: u64) -> bool {
        at.is_multiple_of(8) && at <= self.plan.len - 8
    }

    /// Copies bytes that are never changed as words; nothing and a note where there are none.
    #[inline]
    pub fn read(&self, at: u64, into: &mut [u8]) {
        if self.is_inside(at, into.len() as u64) {
            self.map.read(at, into);
        } else {
            self.note_outside(at, into.len() as u64);
        }
    }

    /// Appends such bytes to `into`.
    #[inline]
    pub fn read_to(&self, at: u64, len: u64, into: &mut Vec<u8>) {
        if !self.is_inside(at, len) {
            self.note_outside(at, len);
            return;
        }
        let before = into.len();
        into.resize(before + len as usize, 0);
        self.map.read(at, &mut into[before..]);
    }

    /// The hash of such bytes.
    #[inline]
    pub fn hash_at(&self, at: u64, len: u64, seed: u64) -> u64 {
        if self.is_inside(at, len) {
            self.map.hash(at, len as usize, seed)
        } else {
            self.note_outside(at, len)
        }
    }

    #[inline]
    fn is_inside(&self, at: u64, len: u64) -> bool {
        at <= self.plan.len && len <= self.plan.len - at
    }

    /// A hint that a line will be read.
    #[inline]
    pub fn prefetch(&self, at: u64) {
        if self.is_inside(at, 64) {
            self.map.prefetch_for_read(at, 64);
        }
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        hash_bytes(key, self.plan.hash_seed)
    }

    /// How the medium is laid out.
    pub fn plan(&self) -> &Superblock {
        &self.plan
    }

    /// What the medium is.
    pub fn medium(&self) -> &tiersmith_pmem::Report {
        self.map.report()
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.word(USED)
    }

    /// Bytes of the heap.
    pub fn size(&self) -> u64 {
        self.plan.units * UNIT
    }

    /// Bytes in units that hold nothing.
    pub fn unused_units(&self) -> u64 {
        self.units.free_count() * UNIT
    }

    /// How many commits there were since the medium was made.
    pub fn commits(&self) -> u64 {
        self.number
    }

    /// The planted bug.
    pub fn planted(&self) -> Planted {
        self.planted
    }
}

/// Changing.
impl Heap {
    /// Changes a word of the roots, a database, the index, or a bitmap: never of bytes from
    /// [`Heap::fresh`].
    #[inline]
    pub fn set(&mut self, at: u64, value: u64) {
        #[cfg(debug_assertions)]
        assert!(
            !self.ranges.has(at),
            "BUG: a word at {at} in bytes whose checksum is in the record"
        );
        self.change(at, value);
    }

    /// Changes a word within bytes from [`Heap::fresh`]. It costs a fence if the transaction has
    /// such bytes: their checksum would no longer fit.
    pub fn set_within(&mut self, at: u64, value: u64) {
        self.fence_ahead = true;
        self.change(at, value);
    }

    #[inline]
    fn change(&mut self, at: u64, value: u64) {
        if self.is_word(at) && at >= ROOTS {
            self.overlay.set(at, value);
        } else {
            self.note_outside(at, 8);
        }
    }

    /// Adds to a word of the roots or of a database.
    pub fn add(&mut self, at: u64, by: i64) {
        let value = self.word(at).wrapping_add_signed(by);
        self.set(at, value);
    }

    /// Writes bytes where nobody looks before this transaction's words say so.
    #[inline]
    pub fn fresh(&mut self, at: u64, bytes: &[u8]) {
        if bytes.len() < SMALL {
            self.map.write(at, bytes);
            self.map.flush(at, bytes.len());
        } else {
            self.map.nt_write(at, bytes);
        }
        self.ranges_hash = hash_bytes(bytes, self.ranges_hash);
        self.ranges.push(at, bytes.len() as u64);
    }

    /// Fills with zeros what nobody looks at before this transaction's words say so.
    pub fn fresh_zeros(&mut self, at: u64, len: u64) {
        self.map.nt_zero(at, len as usize);
        self.fence_ahead = true;
    }

    /// A place to go back to.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint {
            number: self.number,
            words: self.overlay.savepoint(),
            ranges: self.ranges.len(),
            ranges_hash: self.ranges_hash,
            frees: self.frees.len(),
            taken: self.taken.len(),
            left: self.left.len(),
        }
    }

    /// Takes back everything since `savepoint`, or since the last commit if that is later.
    pub fn take_back(&mut self, savepoint: Savepoint) {
        let savepoint = match savepoint.number == self.number {
            true => savepoint,
            false => Savepoint {
                number: self.number,
                words: 0,
                ranges: 0,
                ranges_hash: 0,
                frees: 0,
                taken: 0,
                left: 0,
            },
        };
        self.overlay.take_back(savepoint.words);
        self.ranges.truncate(savepoint.ranges);
        self.ranges_hash = savepoint.ranges_hash;
        self.frees.truncate(savepoint.frees);
        // Slots of slabs that were there before are free again: they are looked for again.
        for (class, unit) in self.left.split_off(savepoint.left) {
            self.units.list(class, unit);
        }
        self.units.look_again();
        for (first, units) in self.taken.split_off(savepoint.taken) {
            self.units.forget(first);
            self.units.give(first, units);
        }
    }

    /// An upper bound of the record's bytes.
    fn record_bytes(&self) -> u64 {
        let lines = self.overlay.lines().len() + self.frees.len();
        (HEADER + lines * 72 + self.ranges.len() * 16) as u64
    }

    /// Whether the transaction should be committed before it gets more.
    pub fn is_large(&self) -> bool {
        self.record_bytes() * 2 > self.plan.log_bytes
    }

    /// Makes sure that the transaction as it is can be committed, however large it is.
    ///
    /// # Errors
    /// There is no space for its record; the caller takes something back.
    pub fn make_room_for_record(&mut self) -> Result<(), Full> {
        if self.record_bytes() <= self.plan.log_bytes {
            return Ok(());
        }
        let lines =
            self.overlay.lines().iter().map(|line| 8 + u64::from(line.mask.count_ones()) * 8);
        // What is given back changes a word of a bitmap, and one of the unit table at most.
        let given_back = self.frees.len() as u64 * 32;
        let bytes = HEADER as u64 + lines.sum::<u64>() + given_back + self.ranges.len() as u64 * 16;
        let units = bytes.div_ceil(UNIT);
        if let Some((first, had)) = self.body_units.take_if(|(_, had)| *had < units) {
            self.units.give(first, had);
        }
        if self.body_units.is_none() {
            // For a moment only, so the reserve may be used.
            self.body_units = Some((self.units.take_any(units, 1).ok_or(Full)?, units));
        }
        Ok(())
    }

    /// Makes the transaction durable.
    ///
    /// # Durability
    /// Everything since the last commit is durable on return, or after a power cut all or nothing.
    pub fn commit(&mut self) {
        if self.frees.is_empty() && self.overlay.lines().iter().all(|line| line.mask == 0) {
            self.overlay.clear();
            self.ranges.clear();
            (self.ranges_hash, self.fence_ahead) = (0, false);
            return;
        }
        // 2.
        let released = self.settle_frees();
        // 3.
        if self.fence_ahead {
            if !self.planted.is(Planted::NoFenceAhead) {
                self.map.fence();
            }
            self.ranges.clear();
            self.ranges_hash = 0;
        }
        // 4.
        let number = self.number + 1;
        if self.planted.is(Planted::ApplyBeforeFence) {
            self.store_words();
        }
        let body_at = self.write_record(number);
        // 5.
        if !self.planted.is(Planted::ReplyBeforeFence) {
            self.map.fence();
        }
        // 6.
        self.keep_words();
        self.store_words();
        self.number = number;
        self.overlay.clear();
        self.ranges.clear();
        self.taken.clear();
        self.left.clear();
        (self.ranges_hash, self.fence_ahead) = (0, false);
        self.give_units(released);
        self.keep_body(body_at);
    }

    /// Writes the record of commit `number`; returns where its body is, if not behind the header.
    fn write_record(&mut self, number: u64) -> u64 {
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        // Room for the header, so that the usual record is one write.
        body.resize(HEADER, 0);
        let mut lines = 0;
        for line in self.overlay.lines().iter().filter(|line| line.mask != 0) {
            record::push_line(&mut body, line);
            lines += 1;
        }
        for (at, len) in self.ranges.iter() {
            record::push_range(&mut body, *at, *len);
        }
        let inline = body.len() as u64 <= self.plan.log_bytes;
        if !inline && self.body_units.is_none() {
            let units = (body.len() as u64).div_ceil(UNIT);
            self.body_units = self.units.take_any(units, 1).map(|first| (first, units));
        }
        let body_at = match self.body_units {
            Some((first, _)) if !inline => self.plan.unit_at(first),
            None if !inline => panic!("BUG: a record of {} bytes without a place", body.len()),
            _ => 0,
        };
        let header = record::Header {
            number,
            lines,
            ranges: self.ranges.len() as u32,
            body_len: (body.len() - HEADER) as u64,
            body_at,
            ranges_hash: self.ranges_hash,
        };
        let bytes = header.encode(&body[HEADER..], self.plan.hash_seed);
        let slot = self.plan.slot(if self.planted.is(Planted::OneSlot) { 0 } else { number });
        if inline {
            body[..HEADER].copy_from_slice(&bytes);
            self.map.nt_write(slot, &body);
        } else {
            self.map.nt_write(body_at, &body[HEADER..]);
            self.map.nt_write(slot, &bytes);
        }
        self.body = body;
        if self.body.capacity() > 1 << 22 {
            self.body = Vec::new();
        }
        body_at
    }

    /// Stores the changed words in their places and sends their lines off.
    fn store_words(&mut self) {
        for line in self.overlay.lines().iter().filter(|line| line.mask != 0) {
            for (index, word) in line.words.iter().enumerate() {
                if line.mask >> index & 1 == 1 {
                    self.map.store_u64(line.at + index as u64 * 8, *word);
                }
            }
            if !self.planted.is(Planted::WordsNotFlushed) {
                self.map.flush(line.at, 64);
            }
        }
    }

    /// Keeps the units of a body until its record is not needed any more: two commits later.
    fn keep_body(&mut self, body_at: u64) {
        if let Some((first, units)) = self.body_units.take() {
            if body_at == 0 || self.planted.is(Planted::BodyNotKept) {
                self.units.give(first, units);
            } else {
                self.kept.push((self.number, first, units));
            }
        }
        while let Some((number, first, units)) = self.kept.first().copied() {
            if number + 2 > self.number {
                break;
            }
            self.kept.remove(0);
            self.units.give(first, units);
        }
    }
}

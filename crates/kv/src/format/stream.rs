//! A stream: blocks of entries in a sequence, and its groups of consumers.
//!
//! A key whose type is 11 has the offset of a node as its value. That node, and those of groups and
//! consumers, have the form of a database ([`crate::format`]) with these words:
//!
//! | from | stream | group | consumer |
//! |---|---|---|---|
//! | 0 | zero | zero | zero |
//! | 8 | entries | pending records | pending records |
//! | 24 | in the trash: the next node | the same | the same |
//! | 32 | sequence of blocks | sequence of pending records, by ID | the same, of its own |
//! | 40 | sequence of groups, by name | sequence of consumers, by name | zero |
//! | 48 | 0: the sequence has entries | 1: it has pending records | 2: they are its group's |
//! | 64 | last ID: milliseconds, number | last ID that was delivered | when it was seen |
//! | 72 | | | the entry with its name |
//! | 80 | first ID | entries read, 2^64 - 1: unknown | |
//! | 96 | greatest ID that was removed | | |
//! | 112 | entries that were ever added | | |
//! | 120 | low 32 bits: rows of the last block; high ones: its bytes as a listpack of Redis | | |
//!
//! A group or a consumer is an entry: its key is the name, its value the offset of its node.
//!
//! # Block
//! An entry without a key, of type 1. Its value: milliseconds and number of the first row's ID, 8
//! bytes each; then the rows. Numbers are LEB128: seven bits a byte, the lowest first, bit 7 set if
//! another byte follows.
//!
//! | part of a row | what |
//! |---|---|
//! | number | bytes of the rest of the row |
//! | byte | bit 0: removed; bit 1: its fields have the names of the first row's |
//! | number | milliseconds of its ID, minus those of the first row's |
//! | number | number of its ID |
//! | number | fields; not with bit 1 |
//! | each field | number: bytes of its name, and the name (not with bit 1); the same for its value |
//!
//! A row whose ID is below the stream's first ID is removed too: so a stream that is trimmed by one
//! entry at a time changes words only. A block without a row that is left is none. The IDs of rows
//! that are left ascend, over all blocks.
//!
//! # Pending record
//! A slot of 48 bytes, which a group's and a consumer's sequence name.
//!
//! | from | what |
//! |---|---|
//! | 0 | the ID: milliseconds |
//! | 8 | the ID: number |
//! | 16 | when it was delivered last, in milliseconds since 1970 |
//! | 24 | how often |
//! | 32 | the consumer's node |
//! | 40 | checksum of the 40 bytes before (XXH3-64, seed 0) |

use std::fmt;

use tiersmith_pmem::hash_bytes;

/// Where a node names the root of the sequence of its groups or consumers.
pub const CHILDREN: u64 = 40;
/// Where a node says what its sequence has.
pub const ELEMENTS: u64 = 48;
/// The sequence has entries.
pub const OWN_ENTRIES: u64 = 0;
/// It has pending records.
pub const OWN_RECORDS: u64 = 1;
/// It has pending records that are another node's.
pub const OTHERS_RECORDS: u64 = 2;
/// The last ID of a stream, or of what a group was given.
pub const LAST: u64 = 64;
/// The first ID of a stream.
pub const FIRST: u64 = 80;
/// The greatest ID that was removed from a stream.
pub const REMOVED: u64 = 96;
/// Entries that were ever added to a stream.
pub const ADDED: u64 = 112;
/// What is known of the last block of a stream.
pub const TAIL: u64 = 120;
/// Entries that a group has read.
pub const READ: u64 = 80;
/// When a consumer was seen.
pub const SEEN: u64 = 64;
/// Where the entry with a consumer's name is.
pub const NAMED: u64 = 72;
/// The class of a pending record: 48 bytes.
pub const RECORD: u8 = 1;
/// Words of a pending record.
pub const RECORD_WORDS: usize = 6;
/// Bytes of a block before its rows.
pub const BLOCK_HEAD: usize = 16;

const REMOVED_ROW: u8 = 1;
const SAME_NAMES: u8 = 2;

/// The ID of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// Milliseconds since 1970, most of the time.
    pub ms: u64,
    /// Which one of that millisecond.
    pub seq: u64,
}

impl Id {
    /// The lowest one.
    pub const MIN: Id = Id { ms: 0, seq: 0 };
    /// The highest one.
    pub const MAX: Id = Id { ms: u64::MAX, seq: u64::MAX };

    /// The next one.
    pub fn next(self) -> Option<Id> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Id { seq, ..self }),
            None => Some(Id { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The one before.
    pub fn before(self) -> Option<Id> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Id { seq, ..self }),
            None => Some(Id { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// Names and values.
pub type Pairs<'a> = Vec<(&'a [u8], &'a [u8])>;

fn put_number(mut number: u64, into: &mut Vec<u8>) {
    while number > 127 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, left) = rest.split_first()?;
        *rest = left;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take_number(rest)?).ok()?;
    let (bytes, left) = rest.split_at_checked(len)?;
    *rest = left;
    Some(bytes)
}

/// The ID that a block begins with.
pub fn block_id(head: &[u8; BLOCK_HEAD]) -> Id {
    Id { ms: super::word_of(head, 0), seq: super::word_of(head, 8) }
}

/// The head of a block whose first row has this ID.
pub fn block_head(first: Id) -> Vec<u8> {
    [first.ms.to_le_bytes(), first.seq.to_le_bytes()].concat()
}

/// One row of a block.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Its ID.
    pub id: Id,
    /// It is marked as removed.
    pub removed: bool,
    /// Its names are those of the first row.
    pub same: bool,
    /// Where its flags are in the block.
    pub at: usize,
    fields: u64,
    rest: &'a [u8],
}

/// The rows of a block; those that can be read, if it is damaged.
pub fn rows(block: &[u8]) -> impl Iterator<Item = Row<'_>> {
    let first = block.first_chunk().map_or(Id::MIN, block_id);
    let mut rest = block.get(BLOCK_HEAD..).unwrap_or_default();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let row = take_bytes(&mut rest)?;
        let at = block.len() - rest.len() - row.len();
        let (flags, mut body) = row.split_first()?;
        let same = flags & SAME_NAMES != 0;
        let ms = first.ms.checked_add(take_number(&mut body)?)?;
        let seq = take_number(&mut body)?;
        let fields = if same { 0 } else { take_number(&mut body)? };
        Some(Row {
            id: Id { ms, seq },
            removed: flags & REMOVED_ROW != 0,
            same,
            at,
            fields,
            rest: body,
        })
    })
}

impl<'a> Row<'a> {
    /// Names and values; `names` are those of the block's first row.
    pub fn pairs(&self, names: &[&'a [u8]]) -> Pairs<'a> {
        let mut rest = self.rest;
        if self.same {
            return names.iter().map_while(|name| Some((*name, take_bytes(&mut rest)?))).collect();
        }
        (0..self.fields)
            .map_while(|_| Some((take_bytes(&mut rest)?, take_bytes(&mut rest)?)))
            .collect()
    }
}

/// The names of a block's first row.
pub fn names(block: &[u8]) -> Vec<&[u8]> {
    let first = rows(block).next();
    first.map(|row| row.pairs(&[]).into_iter().map(|(name, _)| name).collect()).unwrap_or_default()
}

/// Appends a row to a block that begins with `first`; `same`: its names are those of the first row.
pub fn push_row(first: Id, id: Id, same: bool, pairs: &[(&[u8], &[u8])], block: &mut Vec<u8>) {
    let mut row = vec![if same { SAME_NAMES } else { 0 }];
    put_number(id.ms.wrapping_sub(first.ms), &mut row);
    put_number(id.seq, &mut row);
    if !same {
        put_number(pairs.len() as u64, &mut row);
    }
    for (name, value) in pairs {
        let name = (!same).then_some(name);
        for bytes in name.into_iter().chain([value]) {
            put_number(bytes.len() as u64, &mut row);
            row.extend_from_slice(bytes);
        }
    }
    put_number(row.len() as u64, block);
    block.append(&mut row);
}

/// Marks the row with its flags at `at` as removed.
pub fn remove_row(block: &mut [u8], at: usize) {
    if let Some(flags) = block.get_mut(at) {
        *flags |= REMOVED_ROW;
    }
}

/// The checksum of a pending record, from its other words.
pub fn record_sum(words: &[u64; RECORD_WORDS]) -> u64 {
    let mut bytes = [0; 40];
    for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    hash_bytes(&bytes, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_as_they_were_put_and_damage_ends_them() {
        let first = Id { ms: 1000, seq: 7 };
        let long = vec![b'x'; 300];
        let pairs: [&[(&[u8], &[u8])]; 3] =
            [&[(b"a", b"1"), (b"", &long)], &[(b"a", b""), (b"", b"2")], &[(b"b", b"3")]];
        let mut block = block_head(first);
        for (number, pairs) in (0..).zip(pairs) {
            let id = Id { ms: 1000 + number * 1_000_000, seq: 7 - number };
            push_row(first, id, number == 1, pairs, &mut block);
        }
        let second = rows(&block).nth(1).expect("it is there").at;
        remove_row(&mut block, second);
        let names = names(&block);
        assert_eq!(names, [b"a".as_slice(), b""]);
        let found: Vec<_> =
            rows(&block).map(|row| (row.id.to_string(), row.removed, row.pairs(&names))).collect();
        assert_eq!(found[0], ("1000-7".to_owned(), false, pairs[0].to_vec()));
        assert_eq!(found[1], ("1001000-6".to_owned(), true, pairs[1].to_vec()));
        assert_eq!(found[2], ("2001000-5".to_owned(), false, pairs[2].to_vec()));
        for end in 0..block.len() {
            assert!(rows(&block[..end]).count() < 3);
        }
    }

    #[test]
    fn an_id_has_one_before_and_one_behind_it_but_for_the_ends() {
        assert_eq!(Id::MAX.next(), None);
        assert_eq!(Id::MIN.before(), None);
        let end = Id { ms: 4, seq: u64::MAX };
        assert_eq!(end.next(), Some(Id { ms: 5, seq: 0 }));
        assert_eq!(Id { ms: 5, seq: 0 }.before(), Some(end));
    }
}

//! An entry: a key with its value, in one slot or run.
//!
//! | from | bytes | what |
//! |---|---|---|
//! | 0 | 4 | length of the key |
//! | 4 | 1 | type: 1 string; 2 hash, 4 list, 6 set, 8 sorted set; 3, 5, 7, 9: with a node; 11 stream |
//! | 5 | 1 | bit 0: the key expires; bit 1: a part of this string was written |
//! | 6 | 2 | class of the slot, or 65535: a run |
//! | 8 | 4 | length of the value |
//! | 12 | 4 | checksum, see below |
//! | 16 | | key, then value |
//! | end - 8 | 8 | only if it expires: when, in milliseconds since 1970; `end` is that of the slot or run |
//!
//! An entry in a database leaves these last 8 bytes free also while it does not expire, so that
//! EXPIRE needs no space.
//!
//! The value of types 2, 4, 6 and 8: 4 bytes with the number of fields; for each of them 4 bytes
//! with the length of its name, 4 with that of its value, name, value. A list's elements are values
//! without names, a set's members are names without values; a sorted set's are names, sorted, with
//! scores as 8 bytes (IEEE 754). The value of types 3, 5, 7, 9 and 11: 8 bytes, the offset of a
//! node with the form of a database. A stream's is described in [`super::stream`]. The others' keys
//! are the fields or members, as strings that do not expire, in its index. Its sequence has the
//! elements of a list, which are entries without a key, or the entries of a sorted set's index,
//! sorted by score and then by member.
//!
//! Bit 1 of byte 5 is for OBJECT ENCODING alone, which then says `raw` of every string. Only a
//! string may have it.
//!
//! What is behind the value in the slot may hold anything: an APPEND puts its bytes there before
//! it changes the length.
//!
//! # Checksum
//! Of XXH3-64 hashes that are combined with XOR, the high 32 bits XOR the low ones:
//! - of bytes 0-7 (with bit 0 of byte 5 as zero) and the value's length as 8 bytes; its seed is the
//!   key's hash;
//! - of each 4096 bytes of the value; the seed is the number of the part, from 0;
//! - only if the key expires: of the time's 8 bytes, with the seed 2^64 - 1.
//!
//! So an APPEND hashes what it adds and at most 4095 bytes more, an EXPIRE only the time.

use tiersmith_pmem::hash_bytes;

use super::class;

/// Types of values.
pub mod kind {
    /// A string.
    pub const STRING: u8 = 1;
    /// A hash whose fields are in the value.
    pub const HASH: u8 = 2;
    /// A hash whose fields are in an index of their own.
    pub const HASH_NODE: u8 = 3;
    /// A list whose elements are in the value.
    pub const LIST: u8 = 4;
    /// A list whose elements are in a sequence.
    pub const LIST_NODE: u8 = 5;
    /// A set whose members are in the value.
    pub const SET: u8 = 6;
    /// A set whose members are in an index of their own.
    pub const SET_NODE: u8 = 7;
    /// A sorted set whose members are in the value.
    pub const ZSET: u8 = 8;
    /// A sorted set whose members are in an index and in a sequence.
    pub const ZSET_NODE: u8 = 9;
    /// A stream, which always has a node.
    pub const STREAM: u8 = 11;

    /// Whether the value names a node.
    pub fn has_node(kind: u8) -> bool {
        kind > STRING && !kind.is_multiple_of(2)
    }
}

/// The longest key and the longest string value, as in Redis.
pub const LENGTH_MAX: u64 = 512 << 20;
/// Bytes before the key.
pub const HEAD: u64 = 16;
/// Bytes of the time at the end of an entry that expires.
pub const TIME: u64 = 8;
/// Bytes of a value that one hash of its checksum covers.
pub const PART: u64 = 4096;

const EXPIRES: u64 = 1 << 40;
const RAW: u64 = 1 << 41;

/// The first words of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the key.
    pub key_len: u64,
    /// Type of the value.
    pub kind: u8,
    /// Class of the slot, or [`class::RUN`].
    pub class: u16,
    /// Length of the value.
    pub value_len: u64,
    /// The checksum.
    pub sum: u32,
    /// When the key expires, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// A part of this string was written, by SETRANGE, APPEND or the like.
    pub raw: bool,
}

impl Header {
    /// Where the value begins in the entry.
    #[inline]
    pub fn value_at(&self) -> u64 {
        HEAD + self.key_len
    }

    /// Bytes of the entry up to the value's end.
    #[inline]
    pub fn total(&self) -> u64 {
        self.value_at() + self.value_len
    }

    /// The first two words.
    pub fn words(&self) -> [u64; 2] {
        let first = self.first() | if self.expires.is_some() { EXPIRES } else { 0 };
        [first, self.value_len | u64::from(self.sum) << 32]
    }

    fn first(&self) -> u64 {
        let raw = if self.raw { RAW } else { 0 };
        self.key_len | raw | u64::from(self.kind) << 32 | u64::from(self.class) << 48
    }

    /// From the first two words; the time is asked for only if the key expires.
    #[inline]
    pub fn decode(words: [u64; 2], expires: impl FnOnce() -> u64) -> Header {
        let [first, second] = words;
        Header {
            key_len: first & 0xffff_ffff,
            kind: (first >> 32 & 0xff) as u8,
            class: (first >> 48) as u16,
            value_len: second & 0xffff_ffff,
            sum: (second >> 32) as u32,
            expires: (first & EXPIRES != 0).then(expires),
            raw: first & RAW != 0,
        }
    }

    /// The part of the checksum that comes from the header and the key.
    #[inline]
    pub fn sum_of_head(&self, key_hash: u64) -> u32 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.first().to_le_bytes());
        bytes[8..].copy_from_slice(&self.value_len.to_le_bytes());
        fold(hash_bytes(&bytes, key_hash))
    }

    /// Whether it can be one, as far as its own words tell.
    #[inline]
    pub fn is_possible(&self) -> bool {
        let room = match u8::try_from(self.class) {
            Ok(class) if class < class::COUNT => class::size(class),
            Err(_) if self.class == class::RUN => u64::MAX,
            _ => return false,
        };
        let time = if self.expires.is_some() { TIME } else { 0 };
        (matches!(self.kind, kind::STRING..=kind::ZSET_NODE | kind::STREAM))
            && (!self.raw || self.kind == kind::STRING)
            && self.key_len <= LENGTH_MAX
            && self.value_len <= LENGTH_MAX
            && self.total() + time <= room
    }
}

#[inline]
fn fold(hash: u64) -> u32 {
    (hash >> 32) as u32 ^ hash as u32
}

/// The part of the checksum that comes from part `number` of the value.
#[inline]
pub fn sum_of_part(hash: impl FnOnce(u64) -> u64, number: u64) -> u32 {
    fold(hash(number))
}

/// The part of the checksum that comes from the time.
#[inline]
pub fn sum_of_time(expires: Option<u64>) -> u32 {
    expires.map_or(0, |at| fold(hash_bytes(&at.to_le_bytes(), u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_as_it_was_written() {
        for (expires, raw) in [(None, false), (None, true), (Some(1_700_000_000_000), true)] {
            let header = Header {
                key_len: 11,
                kind: kind::STRING,
                class: 3,
                value_len: 21,
                sum: 77,
                expires,
                raw,
            };
            assert_eq!(Header::decode(header.words(), || expires.unwrap_or(0)), header);
            assert!(header.is_possible());
            assert!(!Header { value_len: 70, ..header }.is_possible());
            assert_eq!(Header { kind: kind::HASH, ..header }.is_possible(), !raw);
        }
    }
}

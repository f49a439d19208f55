//! An entry: a key with its value, in one slot or run.
//!
//! | from | bytes | what |
//! |---|---|---|
//! | 0 | 4 | length of the key |
//! | 4 | 1 | type: 1 string, 2 hash, 3 hash with an index |
//! | 5 | 1 | bit 0: the key expires |
//! | 6 | 2 | class of the slot, or 65535: a run |
//! | 8 | 8 | length of the value |
//! | 16 | 8 | only if it expires: when, in milliseconds since 1970 |
//! | | | key, then value |
//!
//! The value of a hash (2): 4 bytes with the number of its fields; for each of them 4 bytes with the
//! length of its name, 4 with that of its value, name, value. The value of a hash with an index (3):
//! 8 bytes, the offset of a node with the form of a database, whose keys are the fields, as strings
//! that do not expire.
//!
//! What is behind the value in the slot may hold anything: an APPEND puts its bytes there before
//! it changes the length.

use super::class;

/// Types of values.
pub mod kind {
    /// A string.
    pub const STRING: u8 = 1;
    /// A hash whose fields are in the value.
    pub const HASH: u8 = 2;
    /// A hash whose fields are in an index of their own.
    pub const HASH_INDEXED: u8 = 3;
}

/// The longest key and the longest string value, as in Redis.
pub const LENGTH_MAX: u64 = 512 << 20;

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
    /// When the key expires, in milliseconds since 1970.
    pub expires: Option<u64>,
}

impl Header {
    /// Bytes before the key.
    #[inline]
    pub fn bytes(&self) -> u64 {
        16 + if self.expires.is_some() { 8 } else { 0 }
    }

    /// Where the value begins in the entry.
    #[inline]
    pub fn value_at(&self) -> u64 {
        self.bytes() + self.key_len
    }

    /// Bytes of the entry that mean something.
    #[inline]
    pub fn total(&self) -> u64 {
        self.value_at() + self.value_len
    }

    /// The bytes before the key: three words, of which the last counts only if the key expires.
    pub fn encode(&self) -> [u8; 24] {
        let first = self.key_len
            | u64::from(self.kind) << 32
            | u64::from(self.expires.is_some()) << 40
            | u64::from(self.class) << 48;
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.value_len.to_le_bytes());
        bytes[16..].copy_from_slice(&self.expires.unwrap_or(0).to_le_bytes());
        bytes
    }

    /// From the first three words, of which the last is asked for only if the key expires.
    #[inline]
    pub fn decode(first: u64, value_len: u64, expires: impl FnOnce() -> u64) -> Header {
        Header {
            key_len: first & 0xffff_ffff,
            kind: (first >> 32 & 0xff) as u8,
            class: (first >> 48) as u16,
            value_len,
            expires: (first >> 40 & 1 == 1).then(expires),
        }
    }

    /// Whether it can be one: what follows from it lies in the slot it names.
    pub fn is_possible(&self) -> bool {
        let room = match u8::try_from(self.class) {
            Ok(class) if class < class::COUNT => class::size(class),
            Ok(_) => return false,
            Err(_) if self.class == class::RUN => u64::MAX,
            Err(_) => return false,
        };
        (kind::STRING..=kind::HASH_INDEXED).contains(&self.kind)
            && self.key_len <= LENGTH_MAX
            && self.value_len <= LENGTH_MAX
            && self.total() <= room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::word_of;

    #[test]
    fn a_header_comes_back_as_it_was_written() {
        for expires in [None, Some(1_700_000_000_000)] {
            let header = Header { key_len: 11, kind: kind::STRING, class: 3, value_len: 21, expires };
            let bytes = header.encode();
            let words = [0, 8, 16].map(|at| word_of(&bytes, at));
            assert_eq!(Header::decode(words[0], words[1], || words[2]), header);
            assert!(header.is_possible());
            assert!(!Header { value_len: 70, ..header }.is_possible());
        }
    }
}

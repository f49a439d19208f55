//! A record of the log: what one commit changes, in one of two slots.
//!
//! | from | bytes | what |
//! |---|---|---|
//! | 0 | 8 | `KVRECORD` |
//! | 8 | 8 | number of the commit, from 1; the slot is number % 2 |
//! | 16 | 4 | lines in the body |
//! | 20 | 4 | ranges in the body |
//! | 24 | 8 | bytes of the body |
//! | 32 | 8 | where the body is: zero, behind this header; else an offset in units that are free |
//! | 40 | 8 | checksum of the bytes that the ranges name, chained: the one before is the next seed |
//! | 48 | 8 | zero |
//! | 56 | 8 | checksum: XXH3-64 of the body; its seed is that of the 56 bytes, with the hash seed |
//!
//! The body: for each line a word (offset / 64 in the bits from 8; in the bits 0-7 which of its
//! eight words change) and then those words; after the lines, offset and length of each range.
//!
//! A range is what the commit wrote where nobody could see it, under the same fence as the record.
//! The record counts only if the ranges hold what the checksum says.

use tiersmith_pmem::hash_bytes;

use super::word_of;

/// Bytes of the header.
pub const HEADER: usize = 64;
const MAGIC: [u8; 8] = *b"KVRECORD";

/// What a record's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Number of the commit.
    pub number: u64,
    /// Lines in the body.
    pub lines: u32,
    /// Ranges in the body.
    pub ranges: u32,
    /// Bytes of the body.
    pub body_len: u64,
    /// Where the body is; zero: behind the header.
    pub body_at: u64,
    /// The chained checksum of the ranges.
    pub ranges_hash: u64,
}

impl Header {
    /// As bytes, sealed together with `body`.
    pub fn encode(&self, body: &[u8], hash_seed: u64) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.lines.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.ranges.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.body_len.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.body_at.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.ranges_hash.to_le_bytes());
        let checksum = hash_bytes(body, hash_bytes(&bytes[..56], hash_seed));
        bytes[56..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// From bytes; nothing if there is no record. Says nothing of the body yet.
    pub fn decode(bytes: &[u8; HEADER]) -> Option<Header> {
        let counts = word_of(bytes, 16);
        (bytes[..8] == MAGIC).then(|| Header {
            number: word_of(bytes, 8),
            lines: (counts & 0xffff_ffff) as u32,
            ranges: (counts >> 32) as u32,
            body_len: word_of(bytes, 24),
            body_at: word_of(bytes, 32),
            ranges_hash: word_of(bytes, 40),
        })
    }

    /// Whether header and body are those that were written.
    pub fn seals(&self, body: &[u8], hash_seed: u64, bytes: &[u8; HEADER]) -> bool {
        self.encode(body, hash_seed) == *bytes
    }
}

/// One changed line: where it is, and its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Offset, a multiple of 64.
    pub at: u64,
    /// Bit n: word n changes.
    pub mask: u8,
    /// The words; those that do not change hold anything.
    pub words: [u64; 8],
}

/// Appends a line to a body.
#[inline]
pub fn push_line(body: &mut Vec<u8>, line: &Line) {
    body.extend_from_slice(&(((line.at / 64) << 8) | u64::from(line.mask)).to_le_bytes());
    for (index, word) in line.words.iter().enumerate() {
        if line.mask >> index & 1 == 1 {
            body.extend_from_slice(&word.to_le_bytes());
        }
    }
}

/// Appends a range to a body.
#[inline]
pub fn push_range(body: &mut Vec<u8>, at: u64, len: u64) {
    body.extend_from_slice(&at.to_le_bytes());
    body.extend_from_slice(&len.to_le_bytes());
}

/// Lines, and ranges as offset and length.
pub type Body = (Vec<Line>, Vec<(u64, u64)>);

/// Takes a body apart; nothing if it does not fit its header. What it names lies before `end`.
pub fn parse(header: &Header, body: &[u8], end: u64) -> Option<Body> {
    let (words, rest) = body.as_chunks::<8>();
    if !rest.is_empty() {
        return None;
    }
    let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
    let mut lines = Vec::new();
    for _ in 0..header.lines {
        let head = words.next()?;
        let at = (head >> 8).checked_mul(64).filter(|at| *at < end)?;
        let mut line = Line { at, mask: (head & 0xff) as u8, words: [0; 8] };
        for index in 0..8 {
            if line.mask >> index & 1 == 1 {
                line.words[index] = words.next()?;
            }
        }
        lines.push(line);
    }
    let mut ranges = Vec::new();
    for _ in 0..header.ranges {
        let (at, len) = (words.next()?, words.next()?);
        at.checked_add(len).filter(|range_end| *range_end <= end)?;
        ranges.push((at, len));
    }
    words.next().is_none().then_some((lines, ranges))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_was_written_and_any_other_bit_breaks_its_seal() {
        let mut body = Vec::new();
        let line = Line { at: 640, mask: 0b101, words: [7, 0, 9, 0, 0, 0, 0, 0] };
        push_line(&mut body, &line);
        push_range(&mut body, 1024, 100);
        let header = Header {
            number: 3,
            lines: 1,
            ranges: 1,
            body_len: body.len() as u64,
            body_at: 0,
            ranges_hash: 5,
        };
        let bytes = header.encode(&body, 11);
        assert_eq!(Header::decode(&bytes), Some(header));
        assert!(header.seals(&body, 11, &bytes));
        assert!(!header.seals(&body, 12, &bytes));
        assert_eq!(parse(&header, &body, 4096), Some((vec![line], vec![(1024, 100)])));
        assert_eq!(parse(&header, &body, 640), None);
        for bit in 0..body.len() * 8 {
            let mut damaged = body.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(!header.seals(&damaged, 11, &bytes));
        }
    }
}

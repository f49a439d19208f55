//! A slot of the file table: which home file it is, its size and flags, and the roots of its map.
//!
//! ```text
//! offset bytes field
//! 0      8     in-use word: the file's id (0 = free) in 40 bits, sealed like a map entry with the slot's number
//! 8      8     zero
//! 16     8     inode number of the home file
//! 24     4     inode generation (0 = unknown)
//! 28     1     file class: 1 redo, 2 data
//! 29     1     block size: 0 = 4 KiB, 1 = 8, 2 = 16, 3 = 32
//! 30     2     zero
//! 32     8     birth time of the home file, ns since 1970 (0 = unknown)
//! 40     16    zero
//! 56     8     checksum of bytes 16..56, keyed with the file's id
//! 64     8     pointer to the leaf page of blocks 0..512
//! 72     8     pointer to the first middle page
//! 80     8     pointer to the top page
//! 88     40    zero
//! 128    256   state lines: pair 0 (two equal copies of 64 bytes), pair 1
//! 384    8     checksum of bytes 392..1024
//! 392    2     length of the path hint
//! 394    630   path relative to home when last opened: a hint for finding the file quickly and for messages
//! ```
//!
//! A **state line** (64 bytes); the valid one with the largest sequence holds:
//!
//! ```text
//! offset bytes field
//! 0      8     sequence, below 2^62; line n is in pair n mod 2
//! 8      8     size of the file, bytes (the home file may be behind); of a lent file the least that its plain file has
//! 16     8     flags: 1 truncating, 2 unlinking, 4 pinned, 8 destaging, 16 the time at 48 is that of the last write,
//!              32 lent (the contents are in the plain file beside the first member). The upper 48 bits are the number of the
//!              loan, which is in that file's name; 0 when it is not lent
//! 24     8     size of the home file when last in step
//! 32     8     modification time of the home file when last in step, ns
//! 40     8     when destaging or truncating began, ns since 1970
//! 48     8     modification time that programs see, if it is not home's, else 0: nanoseconds in the low 30 bits, above them seconds
//!              since 1970 plus 2^31. While destaging, the time that home is being given
//! 56     8     checksum of bytes 0..56, keyed with the file's id
//! ```
//!
//! A slot is filled and durable before its in-use word is switched. A state line is written as a pair, so that a cut leaves the
//! older pair and one damaged copy costs nothing.

use super::{SEQUENCE_MAX, checksum, get_u32, get_u64, put_u32, put_u64, sealed};
use crate::address::BlockSize;
use crate::home::FileTime;
use crate::profile::FileClass;

pub(crate) const SLOT: usize = 1024;
pub(crate) const ROOTS_AT: u64 = 64;
pub(crate) const LINES_AT: u64 = 128;
pub(crate) const LINE: usize = 64;
pub(crate) const PATH_AT: u64 = 384;
pub(crate) const PATH_MAX: usize = SLOT - 394;

pub(crate) const TRUNCATING: u64 = 1;
pub(crate) const UNLINKING: u64 = 2;
pub(crate) const PINNED: u64 = 4;
pub(crate) const DESTAGING: u64 = 8;
pub(crate) const TIME_EXACT: u64 = 16;
pub(crate) const LENT: u64 = 32;
/// Where the number of the loan begins.
const LOAN_SHIFT: u32 = 16;

/// The number of the loan in the flags of a state line.
pub(crate) fn loan_of(flags: u64) -> u64 {
    flags >> LOAN_SHIFT
}

/// Flags with this number of a loan, of 48 bits.
pub(crate) fn with_loan(flags: u64, loan: u64) -> u64 {
    flags & ((1 << LOAN_SHIFT) - 1) | loan << LOAN_SHIFT
}

/// What never changes while the slot is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) ino: u64,
    pub(crate) generation: u32,
    pub(crate) btime_ns: u64,
    pub(crate) class: FileClass,
    pub(crate) block_size: BlockSize,
}

impl Identity {
    /// Bytes 16..64 of the slot.
    pub(crate) fn encode(&self, seed: u64, file: u64) -> [u8; 48] {
        let mut b = [0; 48];
        put_u64(&mut b, 0, self.ino);
        put_u32(&mut b, 8, self.generation);
        b[12] = match self.class {
            FileClass::Redo => 1,
            FileClass::Data => 2,
            FileClass::Pass => 0,
        };
        b[13] = self.block_size.class() as u8;
        put_u64(&mut b, 16, self.btime_ns);
        let check = checksum(&b[..40], seed ^ file);
        put_u64(&mut b, 40, check);
        b
    }

    pub(crate) fn decode(b: &[u8; SLOT], seed: u64, file: u64) -> Result<Self, String> {
        let b = &b[16..64];
        let (expected, found) = (checksum(&b[..40], seed ^ file), get_u64(b, 40));
        if expected != found {
            return Err(format!("the identity's checksum is {found:#x}, its bytes give {expected:#x}"));
        }
        let class = match b[12] {
            1 => FileClass::Redo,
            2 => FileClass::Data,
            other => return Err(format!("the file class is {other}, which is none")),
        };
        let block_size = BlockSize::from_class(b[13])
            .ok_or_else(|| format!("the block size code is {}, which is none", b[13]))?;
        Ok(Self {
            ino: get_u64(b, 0),
            generation: get_u32(b, 8),
            btime_ns: get_u64(b, 16),
            class,
            block_size,
        })
    }
}

/// What changes: size, flags, and the stamp by which a changed home file is noticed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StateLine {
    pub(crate) seq: u64,
    pub(crate) size: u64,
    pub(crate) flags: u64,
    pub(crate) home_size: u64,
    pub(crate) home_mtime_ns: u64,
    pub(crate) since_ns: u64,
    /// See [`encode_time`]; 0: none.
    pub(crate) mtime: u64,
}

/// A time stamp in 64 bits. What the field cannot hold (before 1901, after 2446, as most file systems) becomes its nearest.
pub(crate) fn encode_time(time: FileTime) -> u64 {
    let second = time.sec.saturating_add(1 << 31).clamp(0, (1 << 34) - 1) as u64;
    // 0 stands for no time.
    (second << 30 | u64::from(time.nsec.min(999_999_999))).max(1)
}

pub(crate) fn decode_time(word: u64) -> Option<FileTime> {
    let (second, nsec) = ((word >> 30) as i64, (word & ((1 << 30) - 1)) as u32);
    (word != 0).then_some(FileTime { sec: second - (1 << 31), nsec: nsec.min(999_999_999) })
}

impl StateLine {
    /// The line as little-endian words, to be written twice at [`StateLine::at`].
    #[inline]
    pub(crate) fn words(&self, seed: u64, file: u64) -> [u64; LINE / 8] {
        let Self { seq, size, flags, home_size, home_mtime_ns, since_ns, mtime } = *self;
        sealed([seq, size, flags, home_size, home_mtime_ns, since_ns, mtime], seed ^ file)
    }

    /// The pair of equal lines.
    pub(crate) fn encode_pair(&self, seed: u64, file: u64) -> [u8; 2 * LINE] {
        let mut b = [0; 2 * LINE];
        let line = self.words(seed, file).map(u64::to_le_bytes);
        for copy in b.chunks_exact_mut(LINE) {
            copy.copy_from_slice(line.as_flattened());
        }
        b
    }

    /// Offset within the slot of the pair this line belongs in.
    pub(crate) fn at(&self) -> u64 {
        LINES_AT + (self.seq % 2) * 2 * LINE as u64
    }

    fn decode(b: &[u8], seed: u64, file: u64) -> Option<Self> {
        if get_u64(b, 56) != checksum(&b[..56], seed ^ file) || get_u64(b, 0) >= SEQUENCE_MAX {
            return None;
        }
        Some(Self {
            seq: get_u64(b, 0),
            size: get_u64(b, 8),
            flags: get_u64(b, 16),
            home_size: get_u64(b, 24),
            home_mtime_ns: get_u64(b, 32),
            since_ns: get_u64(b, 40),
            mtime: get_u64(b, 48),
        })
    }

    /// Where in a slot the checksums of copies lie that were being written when power went, or were damaged; none when no copy is valid.
    pub(crate) fn torn(b: &[u8; SLOT], seed: u64, file: u64) -> impl Iterator<Item = u64> {
        let checks: [Option<u64>; 4] = std::array::from_fn(|n| {
            let at = LINES_AT as usize + n * LINE;
            let valid =
                Self::decode(&b[at..at + LINE], seed, file).is_some_and(|l| l.seq % 2 == n as u64 / 2);
            (!valid && get_u64(b, at + 56) != 0).then_some(at as u64 + 56)
        });
        let some = Self::newest(b, seed, file).is_some();
        checks.into_iter().flatten().filter(move |_| some)
    }

    /// The newest valid line of a slot; `None` when all four copies are damaged.
    pub(crate) fn newest(b: &[u8; SLOT], seed: u64, file: u64) -> Option<Self> {
        (0..4)
            .filter_map(|n| {
                let at = LINES_AT as usize + n * LINE;
                Self::decode(&b[at..at + LINE], seed, file).filter(|line| line.seq % 2 == n as u64 / 2)
            })
            .max_by_key(|line| line.seq)
    }
}

/// Bytes 384..1024 of a slot. A path longer than the hint keeps its end, which tells more.
pub(crate) fn encode_path(path: &[u8], seed: u64, file: u64) -> Vec<u8> {
    let tail = &path[path.len().saturating_sub(PATH_MAX)..];
    let mut b = vec![0; SLOT - PATH_AT as usize];
    b[8..10].copy_from_slice(&(tail.len() as u16).to_le_bytes());
    b[10..10 + tail.len()].copy_from_slice(tail);
    let check = checksum(&b[8..], seed ^ file);
    put_u64(&mut b, 0, check);
    b
}

/// The path hint; `None` when it was being rewritten as power went (it is only a hint).
pub(crate) fn decode_path(b: &[u8; SLOT], seed: u64, file: u64) -> Option<Vec<u8>> {
    let b = &b[PATH_AT as usize..];
    if get_u64(b, 0) != checksum(&b[8..], seed ^ file) {
        return None;
    }
    let len = usize::from(b[8]) | usize::from(b[9]) << 8;
    b.get(10..10 + len).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_reads_back_from_1901_to_2446() {
        for sec in [-(1 << 31), -1, 0, 1, 1_700_000_000, (1 << 34) - (1 << 31) - 1] {
            for nsec in [1, 500_000_000, 999_999_999] {
                let time = FileTime { sec, nsec };
                assert_eq!(decode_time(encode_time(time)), Some(time));
            }
        }
        assert_eq!(decode_time(0), None);
        let far = FileTime { sec: i64::MAX, nsec: u32::MAX };
        assert_eq!(decode_time(encode_time(far)).map(|t| t.sec), Some((1 << 34) - (1 << 31) - 1));
        assert_eq!(
            decode_time(encode_time(FileTime { sec: i64::MIN, nsec: 0 })).map(|t| t.sec),
            Some(-(1 << 31))
        );
    }

    #[test]
    fn a_line_with_a_sequence_that_counting_does_not_reach_is_none() {
        let mut slot = [0; SLOT];
        for (seq, newest) in [(4, Some(4)), (u64::MAX - 1, None), (SEQUENCE_MAX, None)] {
            let line = StateLine { seq, ..StateLine::default() };
            let at = line.at() as usize;
            slot[at..at + 2 * LINE].copy_from_slice(&line.encode_pair(5, 6));
            assert_eq!(StateLine::newest(&slot, 5, 6).map(|l| l.seq), newest);
        }
    }

    #[test]
    fn one_damaged_copy_of_a_state_line_costs_nothing() {
        let mut slot = [0; SLOT];
        for seq in 1..=2 {
            let line = StateLine { seq, size: seq * 100, ..StateLine::default() };
            let at = line.at() as usize;
            slot[at..at + 2 * LINE].copy_from_slice(&line.encode_pair(5, 6));
        }
        for at in LINES_AT as usize..LINES_AT as usize + 4 * LINE {
            slot[at] ^= 1;
            assert_eq!(StateLine::newest(&slot, 5, 6).map(|l| l.size), Some(200), "byte {at}");
            slot[at] ^= 1;
        }
    }
}

//! A slot of the file table: which home file it is, its size and flags, and the roots of its map.
//!
//! ```text
//! offset bytes field
//! 0      8     in-use word: the file's id (0 = free) in 40 bits, sealed like a map entry with the
//!              slot's number
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
//! 394    630   path relative to home when last opened: a hint for finding the file quickly and
//!              for messages
//! ```
//!
//! A **state line** (64 bytes); the valid one with the largest sequence holds:
//!
//! ```text
//! offset bytes field
//! 0      8     sequence, below 2^62; line n is in pair n mod 2
//! 8      8     size of the file, bytes (the home file may be behind); of a lent file the least
//!              that its plain file has
//! 16     8     flags: 1 truncating, 2 unlinking, 4 pinned, 8 destaging, 16 the time at 48 is that
//!              of the last write, 32 lent (the contents are in the plain file beside the first
//!              member). The upper 48 bits are the number of the loan, which is in that file's
//!              name; 0 when it is not lent
//! 24     8     size of the home file when last in step
//! 32     8     modification time of the home file when last in step, ns
//! 40     8     when destaging or truncating began, ns since 1970
//! 48     8     modification time that programs see, if it is not home's, else 0: nanoseconds in
//!              the low 30 bits, above them seconds since 1970 plus 2^31. While destaging, the time
//!              that home is being given
//! 56     8     checksum of bytes 0..56, keyed with the file's id
//! ```
//!
//! A slot is filled and durable before its in-use word is switched. A state line is written as a
//! pair, so that a cut leaves the older pair and one damaged copy costs nothing.

use super::{SEQUENCE_MAX, checksum, sealed};
use crate::address::BlockSize;
use crate::home::FileTime;
use crate::profile::FileClass;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) const SLOT: usize = size_of::<SlotBytes>();
pub(crate) const IDENTITY_AT: u64 = offset_of!(SlotBytes, identity) as u64;
pub(crate) const ROOTS_AT: u64 = offset_of!(SlotBytes, roots) as u64;
pub(crate) const LINES_AT: u64 = offset_of!(SlotBytes, lines) as u64;
pub(crate) const LINE: usize = size_of::<LineBytes>();
pub(crate) const PATH_AT: u64 = offset_of!(SlotBytes, path) as u64;
pub(crate) const PATH_MAX: usize = 630;

/// The first table above.
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct SlotBytes {
    pub(crate) in_use: U64,
    zero: U64,
    identity: IdentityBytes,
    pub(crate) roots: [U64; 3],
    zero_after_roots: [u8; 40],
    /// Two pairs, one after the other.
    lines: [LineBytes; 4],
    path: PathBytes,
}

/// Bytes 16..64 of the first table.
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct IdentityBytes {
    ino: U64,
    generation: U32,
    class: u8,
    block_size: u8,
    zero: U16,
    btime_ns: U64,
    zero_after_btime: [U64; 2],
    check: U64,
}

/// Bytes 384..1024 of the first table.
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct PathBytes {
    check: U64,
    len: U16,
    path: [u8; PATH_MAX],
}

/// The second table above.
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct LineBytes {
    seq: U64,
    size: U64,
    flags: U64,
    home_size: U64,
    home_mtime_ns: U64,
    since_ns: U64,
    mtime: U64,
    check: U64,
}

const _: () = {
    assert!(SLOT == 1024 && LINE == 64 && offset_of!(SlotBytes, identity) == 16);
    assert!(ROOTS_AT == 64 && LINES_AT == 128 && PATH_AT == 384);
    assert!(offset_of!(IdentityBytes, class) == 12 && offset_of!(IdentityBytes, btime_ns) == 16);
    assert!(offset_of!(IdentityBytes, check) == 40 && offset_of!(PathBytes, path) == 10);
    assert!(offset_of!(LineBytes, flags) == 16 && offset_of!(LineBytes, home_mtime_ns) == 32);
    assert!(offset_of!(LineBytes, mtime) == 48 && offset_of!(LineBytes, check) == 56);
};

/// A slot of the file table, as it is on the medium.
pub(crate) fn slot(bytes: &[u8; SLOT]) -> &SlotBytes {
    zerocopy::transmute_ref!(bytes)
}

impl SlotBytes {
    /// A slot with an identity, a path hint and the pair of its first state line. Its in-use word
    /// and its roots are the caller's.
    pub(crate) fn new(
        identity: &Identity,
        line: &StateLine,
        path: &[u8],
        seed: u64,
        file: u64,
    ) -> Self {
        let mut slot = Self::new_zeroed();
        slot.identity = zerocopy::transmute!(identity.encode(seed, file));
        let pair: [LineBytes; 2] = zerocopy::transmute!(line.encode_pair(seed, file));
        let lines = slot.lines.as_mut_bytes();
        let at = (line.at() - LINES_AT) as usize;
        lines[at..at + pair.as_bytes().len()].copy_from_slice(pair.as_bytes());
        slot.path = zerocopy::transmute!(encode_path(path, seed, file));
        slot
    }
}

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
    pub(crate) fn encode(&self, seed: u64, file: u64) -> [u8; size_of::<IdentityBytes>()] {
        let mut b = IdentityBytes::new_zeroed();
        b.ino = self.ino.into();
        b.generation = self.generation.into();
        b.class = match self.class {
            FileClass::Redo => 1,
            FileClass::Data => 2,
            FileClass::Pass => 0,
        };
        b.block_size = self.block_size.class() as u8;
        b.btime_ns = self.btime_ns.into();
        b.check = b.checksum(seed, file).into();
        zerocopy::transmute!(b)
    }

    pub(crate) fn decode(bytes: &[u8; SLOT], seed: u64, file: u64) -> Result<Self, String> {
        let b = &slot(bytes).identity;
        let (expected, found) = (b.checksum(seed, file), b.check.get());
        if expected != found {
            return Err(format!(
                "the identity's checksum is {found:#x}, its bytes give {expected:#x}"
            ));
        }
        let class = match b.class {
            1 => FileClass::Redo,
            2 => FileClass::Data,
            other => return Err(format!("the file class is {other}, which is none")),
        };
        let block_size = BlockSize::from_class(b.block_size)
            .ok_or_else(|| format!("the block size code is {}, which is none", b.block_size))?;
        Ok(Self {
            ino: b.ino.get(),
            generation: b.generation.get(),
            btime_ns: b.btime_ns.get(),
            class,
            block_size,
        })
    }
}

impl IdentityBytes {
    fn checksum(&self, seed: u64, file: u64) -> u64 {
        checksum(&self.as_bytes()[..offset_of!(Self, check)], seed ^ file)
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

/// A time stamp in 64 bits. What the field cannot hold (before 1901, after 2446, as most file
/// systems) becomes its nearest.
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
        let line = LineBytes {
            seq: self.seq.into(),
            size: self.size.into(),
            flags: self.flags.into(),
            home_size: self.home_size.into(),
            home_mtime_ns: self.home_mtime_ns.into(),
            since_ns: self.since_ns.into(),
            mtime: self.mtime.into(),
            check: 0.into(),
        };
        sealed(zerocopy::transmute!(line), seed ^ file)
    }

    /// The pair of equal lines.
    pub(crate) fn encode_pair(&self, seed: u64, file: u64) -> [u8; 2 * LINE] {
        zerocopy::transmute!([self.words(seed, file); 2])
    }

    /// Offset within the slot of the pair this line belongs in.
    pub(crate) fn at(&self) -> u64 {
        LINES_AT + (self.seq % 2) * 2 * LINE as u64
    }

    /// The line in copy `n` of a slot; `None` when it is damaged, or in the wrong pair.
    fn decode(slot: &SlotBytes, n: usize, seed: u64, file: u64) -> Option<Self> {
        let b = &slot.lines[n];
        let covered = &b.as_bytes()[..offset_of!(LineBytes, check)];
        let seq = b.seq.get();
        if b.check.get() != checksum(covered, seed ^ file)
            || seq >= SEQUENCE_MAX
            || seq % 2 != n as u64 / 2
        {
            return None;
        }
        Some(Self {
            seq,
            size: b.size.get(),
            flags: b.flags.get(),
            home_size: b.home_size.get(),
            home_mtime_ns: b.home_mtime_ns.get(),
            since_ns: b.since_ns.get(),
            mtime: b.mtime.get(),
        })
    }

    /// Where in a slot the checksums of copies lie that were being written when power went, or were
    /// damaged; none when no copy is valid.
    pub(crate) fn torn(bytes: &[u8; SLOT], seed: u64, file: u64) -> impl Iterator<Item = u64> {
        let slot = slot(bytes);
        let checks: [Option<u64>; 4] = std::array::from_fn(|n| {
            let torn =
                Self::decode(slot, n, seed, file).is_none() && slot.lines[n].check.get() != 0;
            torn.then(|| LINES_AT + (n * LINE + offset_of!(LineBytes, check)) as u64)
        });
        let some = Self::newest(bytes, seed, file).is_some();
        checks.into_iter().flatten().filter(move |_| some)
    }

    /// The newest valid line of a slot; `None` when all four copies are damaged.
    pub(crate) fn newest(bytes: &[u8; SLOT], seed: u64, file: u64) -> Option<Self> {
        let slot = slot(bytes);
        (0..slot.lines.len())
            .filter_map(|n| Self::decode(slot, n, seed, file))
            .max_by_key(|line| line.seq)
    }
}

/// Bytes 384..1024 of a slot. A path longer than the hint keeps its end, which tells more.
pub(crate) fn encode_path(path: &[u8], seed: u64, file: u64) -> [u8; size_of::<PathBytes>()] {
    let tail = &path[path.len().saturating_sub(PATH_MAX)..];
    let mut b = PathBytes::new_zeroed();
    b.len = (tail.len() as u16).into();
    b.path[..tail.len()].copy_from_slice(tail);
    b.check = b.checksum(seed, file).into();
    zerocopy::transmute!(b)
}

impl PathBytes {
    /// Of all that follows it.
    fn checksum(&self, seed: u64, file: u64) -> u64 {
        checksum(&self.as_bytes()[offset_of!(Self, len)..], seed ^ file)
    }
}

/// The path hint; `None` when it was being rewritten as power went (it is only a hint).
pub(crate) fn decode_path(bytes: &[u8; SLOT], seed: u64, file: u64) -> Option<Vec<u8>> {
    let b = &slot(bytes).path;
    if b.check.get() != b.checksum(seed, file) {
        return None;
    }
    b.path.get(..usize::from(b.len.get())).map(<[u8]>::to_vec)
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

//! The log of a member on flash: how metadata becomes durable where it is not mapped memory.
//!
//! The member has the layout of [`super`]. Its metadata is changed in DRAM. Each commit appends the
//! lines that changed since the commit before it, as one record. A checkpoint writes changed pages
//! to their own places, and then says in a header which records are no longer needed. Superblocks
//! and the owner note are written to their places at once.
//!
//! ```text
//! the log, `log_len` bytes in front of the first unit (superblock)
//! 0      4096  header, copy 0
//! 4096   4096  header, copy 1
//! 8192   ...   the ring of records
//!
//! header
//! 0      8     magic "TSLOGHDR"
//! 8      8     generation, below 2^62: the copy with the larger one counts
//! 16     8     position of the first record that is still needed
//! 24     16    tier uuid
//! 40     8     checksum of bytes 0..40
//!
//! record, in whole sectors, zero padded; one that reaches the end of the ring goes on at its
//! beginning
//! 0      8     magic "TSLOGREC"
//! 8      8     checksum of all bytes from 16 to the length
//! 16     8     position: bytes of the ring used before it since the tier was formatted. The
//!              record is at the position modulo the length of the ring
//! 24     8     length, without padding
//! 32     4     runs
//! 36     4     blocks
//! 40     ...   each run: offset on the member (8), length (8), the bytes. Offset and length are
//!              multiples of 64
//! then   24    each block: offset on the member, length, checksum by [`crate::medium::hash_bytes`]
//! ```
//!
//! Records follow each other without gaps. The newest one counts if the blocks that it names have
//! their checksums, because one flush makes the blocks and the record durable, in any order. The
//! flush of each older one had ended before the next was written.
//!
//! A record of an earlier lap has another position. One of an earlier life of the medium has
//! another key.

use super::{SEQUENCE_MAX, checksum};
use std::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a header copy, and where the ring begins.
pub(crate) const HEADER: u64 = 4096;
pub(crate) const RING_AT: u64 = 2 * HEADER;
/// The unit in which changes are logged.
pub(crate) const LINE: u64 = 64;
const HEADER_MAGIC: &[u8; 8] = b"TSLOGHDR";
const RECORD_MAGIC: &[u8; 8] = b"TSLOGREC";

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct HeaderBytes {
    magic: [u8; 8],
    generation: U64,
    head: U64,
    tier_uuid: [u8; 16],
    check: U64,
}

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct RecordBytes {
    magic: [u8; 8],
    check: U64,
    position: U64,
    len: U64,
    runs: U32,
    blocks: U32,
}

/// A run's offset and length, or the three numbers of a block.
const RUN: usize = 16;
pub(crate) const BLOCK: usize = 24;
/// Bytes of a record in front of its first run.
pub(crate) const RECORD: usize = size_of::<RecordBytes>();

const _: () = {
    assert!(size_of::<HeaderBytes>() == 48 && offset_of!(HeaderBytes, check) == 40);
    assert!(
        RECORD == 40
            && offset_of!(RecordBytes, position) == 16
            && offset_of!(RecordBytes, runs) == 32
    );
};

/// Which records are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) generation: u64,
    pub(crate) head: u64,
}

impl Header {
    /// The beginning of its sector; the rest is zero.
    pub(crate) fn encode(&self, tier_uuid: [u8; 16], seed: u64) -> Vec<u8> {
        let (generation, head) = (self.generation.into(), self.head.into());
        let mut bytes =
            HeaderBytes { magic: *HEADER_MAGIC, generation, head, tier_uuid, check: 0.into() };
        bytes.check = checksum(&bytes.as_bytes()[..offset_of!(HeaderBytes, check)], seed).into();
        let mut all = bytes.as_bytes().to_vec();
        all.resize(HEADER as usize, 0);
        all
    }

    pub(crate) fn decode(bytes: &[u8], tier_uuid: [u8; 16], seed: u64) -> Option<Self> {
        let (header, _) = HeaderBytes::ref_from_prefix(bytes).ok()?;
        let check = checksum(&header.as_bytes()[..offset_of!(HeaderBytes, check)], seed);
        let found = Self { generation: header.generation.get(), head: header.head.get() };
        let is_ours = header.magic == *HEADER_MAGIC
            && header.check.get() == check
            && header.tier_uuid == tier_uuid
            && found.generation < SEQUENCE_MAX
            && found.head < SEQUENCE_MAX;
        is_ours.then_some(found)
    }
}

/// A block that must have its checksum for a record to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockSum {
    pub(crate) at: u64,
    pub(crate) len: usize,
    pub(crate) hash: u64,
}

/// What one commit changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// Offset on the member, and the bytes there.
    pub(crate) runs: Vec<(u64, Vec<u8>)>,
    pub(crate) blocks: Vec<BlockSum>,
}

impl Record {
    /// Bytes of a record with such runs and blocks, without padding.
    pub(crate) fn len_of(runs: usize, bytes: usize, blocks: usize) -> usize {
        RECORD + runs * RUN + bytes + blocks * BLOCK
    }

    /// In whole sectors.
    pub(crate) fn encode(&self, position: u64, sector: usize, seed: u64) -> Vec<u8> {
        let data = self.runs.iter().map(|(_, bytes)| bytes.len()).sum();
        let len = Self::len_of(self.runs.len(), data, self.blocks.len());
        let mut head = RecordBytes {
            magic: *RECORD_MAGIC,
            check: 0.into(),
            position: position.into(),
            len: (len as u64).into(),
            runs: (self.runs.len() as u32).into(),
            blocks: (self.blocks.len() as u32).into(),
        };
        let mut all = Vec::with_capacity(len.next_multiple_of(sector));
        all.extend_from_slice(head.as_bytes());
        let number = |all: &mut Vec<u8>, n: u64| all.extend_from_slice(&n.to_le_bytes());
        for (at, bytes) in &self.runs {
            number(&mut all, *at);
            number(&mut all, bytes.len() as u64);
            all.extend_from_slice(bytes);
        }
        for block in &self.blocks {
            number(&mut all, block.at);
            number(&mut all, block.len as u64);
            number(&mut all, block.hash);
        }
        head.check = checksum(&all[offset_of!(RecordBytes, position)..], seed).into();
        all[..RECORD].copy_from_slice(head.as_bytes());
        all.resize(len.next_multiple_of(sector), 0);
        all
    }

    /// The length of the record that begins with `first`, if one at this position does.
    pub(crate) fn peek(first: &[u8], position: u64) -> Option<u64> {
        let (head, _) = RecordBytes::ref_from_prefix(first).ok()?;
        let is_one = head.magic == *RECORD_MAGIC && head.position.get() == position;
        is_one.then_some(head.len.get()).filter(|len| *len >= RECORD as u64)
    }

    /// Decodes a record of which [`Record::peek`] told the length. `None`: it is not whole.
    pub(crate) fn decode(bytes: &[u8], seed: u64) -> Option<Self> {
        let (head, _) = RecordBytes::ref_from_prefix(bytes).ok()?;
        let check = checksum(&bytes[offset_of!(RecordBytes, position)..], seed);
        (check == head.check.get()).then(|| Self::of(bytes)).flatten()
    }

    /// What the bytes say, whole or not.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let (head, mut rest) = RecordBytes::ref_from_prefix(bytes).ok()?;
        let mut record = Self::default();
        let mut take = |len: usize| {
            let (part, after) = rest.split_at_checked(len)?;
            rest = after;
            Some(part)
        };
        let number =
            |part: &[u8], n: usize| part[n * 8..].first_chunk().map(|b| u64::from_le_bytes(*b));
        for _ in 0..head.runs.get() {
            let run = take(RUN)?;
            let (at, len) = (number(run, 0)?, number(run, 1)?);
            record.runs.push((at, take(usize::try_from(len).ok()?)?.to_vec()));
        }
        for _ in 0..head.blocks.get() {
            let block = take(BLOCK)?;
            let (at, len, hash) =
                (number(block, 0)?, usize::try_from(number(block, 1)?).ok()?, number(block, 2)?);
            record.blocks.push(BlockSum { at, len, hash });
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Record {
        Record {
            runs: vec![(128, vec![1; 64]), (4096, (0..=255).cycle().take(4096).collect())],
            blocks: vec![BlockSum { at: 1 << 20, len: 8192, hash: 77 }],
        }
    }

    #[test]
    fn a_record_reads_back_and_any_changed_byte_position_or_key_is_seen() {
        let record = sample();
        let mut bytes = record.encode(1024, 512, 9);
        assert!(bytes.len().is_multiple_of(512));
        let len = Record::peek(&bytes, 1024).unwrap() as usize;
        assert_eq!(Record::decode(&bytes[..len], 9).as_ref(), Some(&record));
        assert!(Record::decode(&bytes[..len], 8).is_none());
        assert!(Record::peek(&bytes, 1536).is_none());
        for at in 0..len {
            bytes[at] ^= 0x10;
            let read = Record::peek(&bytes, 1024).filter(|found| *found == len as u64);
            assert!(read.and_then(|_| Record::decode(&bytes[..len], 9)).is_none(), "byte {at}");
            bytes[at] ^= 0x10;
        }
    }

    #[test]
    fn a_header_reads_back_and_is_of_one_tier_alone() {
        let header = Header { generation: 4, head: 1 << 30 };
        let bytes = header.encode([3; 16], 9);
        assert_eq!(Header::decode(&bytes, [3; 16], 9), Some(header));
        assert!(Header::decode(&bytes, [4; 16], 9).is_none());
        assert!(Header::decode(&bytes, [3; 16], 8).is_none());
        assert!(Header::decode(&[0; 4096], [3; 16], 9).is_none());
    }
}

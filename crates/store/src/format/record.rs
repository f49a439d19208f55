//! Lane records and batch records: what makes a pointer switch durable with one fence.
//!
//! A **lane record** (64 bytes) carries a map entry that is about to be written, and the checksum of the block it
//! points to. Block and record are made durable by one fence; the entry itself follows under the next fence on the
//! same lane. Recovery applies a record whose own checksum and whose block's checksum are right.
//!
//! ```text
//! offset bytes field
//! 0      8     sequence on this lane, 0 = empty; record n is in slot n mod 2
//! 8      8     where the entry is: member in the upper 16 bits, byte offset in the lower 48
//! 16     8     the entry's new word, as it stands on the medium
//! 24     8     checksum of the block (the medium's block checksum, seeded with the tier's seed)
//! 32     8     file id
//! 40     8     block index
//! 48     4     frames of the block
//! 52     4     lane
//! 56     8     checksum of bytes 0..56
//! ```
//!
//! A **batch record** (4096 bytes) does the same for a set of blocks of one file: all or none.
//!
//! ```text
//! offset bytes field
//! 0      8     sequence, 0 = empty
//! 8      8     file id
//! 16     4     blocks in the batch
//! 20     4     frames of a block
//! 24     8     size of the file after the batch, bytes
//! 32     8     frame of the first overflow page, 2^64-1 = none
//! 40     8     checksum over all items in order, also those in overflow pages
//! 48     8     file slot
//! 56     8     checksum of bytes 0..56
//! 64     126 x 32  items: where the entry is, its new word, checksum of the block, block index (8 bytes each)
//! ```
//!
//! An overflow page is a frame with 127 items and, at offset 4064, the frame of the next page (2^64-1 = none).

use super::{checksum, get_u32, get_u64, put_u32, put_u64, sealed};
use crate::address::{BlockIndex, Frame, WordAt};

pub(crate) const LANE_RECORD: usize = 64;
pub(crate) const BATCH_RECORD: usize = 4096;
pub(crate) const ITEM: usize = 32;
pub(crate) const ITEMS_INLINE: usize = (BATCH_RECORD - 64) / ITEM;
pub(crate) const ITEMS_OVERFLOW: usize = (BATCH_RECORD - ITEM) / ITEM;
pub(crate) const NO_FRAME: u64 = u64::MAX;

const _: () = assert!(ITEMS_INLINE == 126 && ITEMS_OVERFLOW == 127);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaneRecord {
    pub(crate) seq: u64,
    pub(crate) at: WordAt,
    pub(crate) word: u64,
    pub(crate) block_hash: u64,
    pub(crate) file: u64,
    pub(crate) block: BlockIndex,
    pub(crate) frames: u32,
    pub(crate) lane: u32,
}

impl LaneRecord {
    /// The record, as little-endian words.
    #[inline]
    pub(crate) fn words(&self, seed: u64) -> [u64; LANE_RECORD / 8] {
        let last = u64::from(self.frames) | u64::from(self.lane) << 32;
        sealed([self.seq, self.at.0, self.word, self.block_hash, self.file, self.block.0, last], seed)
    }

    /// `None` for an empty slot and for one whose checksum is wrong: a record that was being written when power
    /// went is no record.
    pub(crate) fn decode(b: &[u8; LANE_RECORD], seed: u64, lane: u32) -> Option<Self> {
        let seq = get_u64(b, 0);
        if seq == 0 || get_u64(b, 56) != checksum(&b[..56], seed) || get_u32(b, 52) != lane {
            return None;
        }
        Some(Self {
            seq,
            at: WordAt(get_u64(b, 8)),
            word: get_u64(b, 16),
            block_hash: get_u64(b, 24),
            file: get_u64(b, 32),
            block: BlockIndex(get_u64(b, 40)),
            frames: get_u32(b, 48),
            lane,
        })
    }
}

/// An encoded record; on the stack while it is short.
type Bytes = smallvec::SmallVec<[u8; 512]>;

/// From a slice where it is short: `from_elem` goes byte by byte.
fn zeroed(len: usize) -> Bytes {
    const ZEROES: [u8; 512] = [0; 512];
    ZEROES.get(..len).map_or_else(|| Bytes::from_vec(vec![0; len]), Bytes::from_slice)
}

/// One block of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BatchItem {
    pub(crate) at: WordAt,
    pub(crate) word: u64,
    pub(crate) block_hash: u64,
    pub(crate) block: BlockIndex,
}

impl BatchItem {
    fn encode_into(&self, b: &mut [u8], at: usize) {
        put_u64(b, at, self.at.0);
        put_u64(b, at + 8, self.word);
        put_u64(b, at + 16, self.block_hash);
        put_u64(b, at + 24, self.block.0);
    }

    fn decode(b: &[u8], at: usize) -> Self {
        Self {
            at: WordAt(get_u64(b, at)),
            word: get_u64(b, at + 8),
            block_hash: get_u64(b, at + 16),
            block: BlockIndex(get_u64(b, at + 24)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) seq: u64,
    pub(crate) file: u64,
    pub(crate) count: u32,
    pub(crate) frames: u32,
    pub(crate) size_after: u64,
    pub(crate) overflow: u64,
    pub(crate) items_hash: u64,
    pub(crate) slot: u64,
}

/// The checksum of a batch's items, in order.
pub(crate) fn items_hash(items: &[BatchItem], seed: u64) -> u64 {
    let mut b = zeroed(items.len() * ITEM);
    for (n, item) in items.iter().enumerate() {
        item.encode_into(&mut b, n * ITEM);
    }
    checksum(&b, seed ^ 0x6261_7463_6800)
}

impl BatchHeader {
    /// The batch record: this header and the first items. Only as many bytes as are needed are returned.
    pub(crate) fn encode(&self, items: &[BatchItem], seed: u64) -> Bytes {
        let inline = &items[..items.len().min(ITEMS_INLINE)];
        let mut b = zeroed((64 + inline.len() * ITEM).next_multiple_of(64));
        put_u64(&mut b, 0, self.seq);
        put_u64(&mut b, 8, self.file);
        put_u32(&mut b, 16, self.count);
        put_u32(&mut b, 20, self.frames);
        put_u64(&mut b, 24, self.size_after);
        put_u64(&mut b, 32, self.overflow);
        put_u64(&mut b, 40, self.items_hash);
        put_u64(&mut b, 48, self.slot);
        let check = checksum(&b[..56], seed);
        put_u64(&mut b, 56, check);
        for (n, item) in inline.iter().enumerate() {
            item.encode_into(&mut b, 64 + n * ITEM);
        }
        b
    }

    /// `None` for an empty or half-written record. The items are checked against [`BatchHeader::items_hash`] by the caller,
    /// who alone can read the overflow pages.
    pub(crate) fn decode(b: &[u8; BATCH_RECORD], seed: u64) -> Option<(Self, Vec<BatchItem>)> {
        let seq = get_u64(b, 0);
        if seq == 0 || get_u64(b, 56) != checksum(&b[..56], seed) {
            return None;
        }
        let header = Self {
            seq,
            file: get_u64(b, 8),
            count: get_u32(b, 16),
            frames: get_u32(b, 20),
            size_after: get_u64(b, 24),
            overflow: get_u64(b, 32),
            items_hash: get_u64(b, 40),
            slot: get_u64(b, 48),
        };
        let inline = (header.count as usize).min(ITEMS_INLINE);
        let items = (0..inline).map(|n| BatchItem::decode(b, 64 + n * ITEM)).collect();
        Some((header, items))
    }
}

/// An overflow page with `items` (at most [`ITEMS_OVERFLOW`]) and the next page, if any.
pub(crate) fn encode_overflow(items: &[BatchItem], next: Option<Frame>) -> Vec<u8> {
    let mut b = vec![0; BATCH_RECORD];
    for (n, item) in items.iter().enumerate() {
        item.encode_into(&mut b, n * ITEM);
    }
    put_u64(&mut b, ITEMS_OVERFLOW * ITEM, next.map_or(NO_FRAME, |f| f.0));
    b
}

/// The first `count` items of an overflow page and the frame of the next page.
pub(crate) fn decode_overflow(b: &[u8; BATCH_RECORD], count: usize) -> (Vec<BatchItem>, u64) {
    let items = (0..count.min(ITEMS_OVERFLOW)).map(|n| BatchItem::decode(b, n * ITEM)).collect();
    (items, get_u64(b, ITEMS_OVERFLOW * ITEM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_record_with_any_byte_changed_is_no_record() {
        let record = LaneRecord {
            seq: 9,
            at: WordAt::new(1, 4096),
            word: 77,
            block_hash: 5,
            file: 3,
            block: BlockIndex(8),
            frames: 2,
            lane: 4,
        };
        let bytes = *record.words(1).map(u64::to_le_bytes).as_flattened().first_chunk().unwrap();
        assert_eq!(LaneRecord::decode(&bytes, 1, 4), Some(record));
        for at in 0..LANE_RECORD {
            let mut damaged = bytes;
            damaged[at] ^= 0x10;
            assert_eq!(LaneRecord::decode(&damaged, 1, 4), None, "byte {at}");
        }
    }
}

//! Lane records and batch records: what makes a pointer switch durable with one fence.
//!
//! A **lane record** (64 bytes) carries a map entry that is about to be written, and the checksum
//! of the block it points to. Block and record are made durable by one fence; the entry itself
//! follows under the next fence on the same lane. Recovery applies a record whose own checksum and
//! whose block's checksum are right.
//!
//! ```text
//! offset bytes field
//! 0      8     sequence on this lane, 0 = empty; record n is in slot n mod 2
//! 8      8     where the entry is: member in the upper 16 bits, byte offset in the lower 48
//! 16     8     the entry's new word, as it stands on the medium
//! 24     8     the block's checksum at rest ([`super::entry`])
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
//! 64     126 x 32  items, 8 bytes each field: where the entry is, its new word, the block's
//!                  checksum at rest, block index
//! ```
//!
//! An overflow page is a frame with 127 items and, at offset 4064, the frame of the next page
//! (2^64-1 = none).

use super::{checksum, sealed};
use crate::address::{BlockIndex, Frame, WordAt};
use std::mem::offset_of;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) const LANE_RECORD: usize = size_of::<LaneBytes>();
pub(crate) const BATCH_RECORD: usize = size_of::<BatchBytes>();
pub(crate) const ITEMS_INLINE: usize = 126;
pub(crate) const ITEMS_OVERFLOW: usize = 127;
pub(crate) const NO_FRAME: u64 = u64::MAX;

/// The first table above.
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct LaneBytes {
    seq: U64,
    at: U64,
    word: U64,
    sum: U64,
    file: U64,
    block: U64,
    frames: U32,
    lane: U32,
    check: U64,
}

/// The second table above.
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct BatchBytes {
    head: HeadBytes,
    items: [ItemBytes; ITEMS_INLINE],
}

/// Its first 64 bytes.
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct HeadBytes {
    seq: U64,
    file: U64,
    count: U32,
    frames: U32,
    size_after: U64,
    overflow: U64,
    items_hash: U64,
    slot: U64,
    check: U64,
}

/// An item.
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct ItemBytes {
    at: U64,
    word: U64,
    sum: U64,
    block: U64,
}

/// An overflow page.
#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct OverflowBytes {
    items: [ItemBytes; ITEMS_OVERFLOW],
    next: U64,
    zero: [u8; 24],
}

const _: () = {
    assert!(
        LANE_RECORD == 64 && BATCH_RECORD == 4096 && size_of::<OverflowBytes>() == BATCH_RECORD
    );
    assert!(offset_of!(LaneBytes, word) == 16 && offset_of!(LaneBytes, block) == 40);
    assert!(offset_of!(LaneBytes, lane) == 52 && offset_of!(LaneBytes, check) == 56);
    assert!(offset_of!(HeadBytes, count) == 16 && offset_of!(HeadBytes, overflow) == 32);
    assert!(offset_of!(HeadBytes, slot) == 48 && offset_of!(HeadBytes, check) == 56);
    assert!(offset_of!(BatchBytes, items) == 64 && size_of::<ItemBytes>() == 32);
    assert!(offset_of!(OverflowBytes, next) == 4064);
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaneRecord {
    pub(crate) seq: u64,
    pub(crate) at: WordAt,
    pub(crate) word: u64,
    pub(crate) sum: u64,
    pub(crate) file: u64,
    pub(crate) block: BlockIndex,
    pub(crate) frames: u32,
    pub(crate) lane: u32,
}

impl LaneRecord {
    /// The record, as little-endian words.
    #[inline]
    pub(crate) fn words(&self, seed: u64) -> [u64; LANE_RECORD / 8] {
        let record = LaneBytes {
            seq: self.seq.into(),
            at: self.at.0.into(),
            word: self.word.into(),
            sum: self.sum.into(),
            file: self.file.into(),
            block: self.block.0.into(),
            frames: self.frames.into(),
            lane: self.lane.into(),
            check: 0.into(),
        };
        sealed(zerocopy::transmute!(record), seed)
    }

    /// `None` for an empty slot and for one whose checksum is wrong: a record that was being
    /// written when power went is no record.
    pub(crate) fn decode(bytes: &[u8; LANE_RECORD], seed: u64, lane: u32) -> Option<Self> {
        let b: &LaneBytes = zerocopy::transmute_ref!(bytes);
        let covered = &bytes[..offset_of!(LaneBytes, check)];
        if Self::is_empty(bytes) || b.check.get() != checksum(covered, seed) || b.lane.get() != lane
        {
            return None;
        }
        Some(Self {
            seq: b.seq.get(),
            at: WordAt(b.at.get()),
            word: b.word.get(),
            sum: b.sum.get(),
            file: b.file.get(),
            block: BlockIndex(b.block.get()),
            frames: b.frames.get(),
            lane,
        })
    }

    /// Whether a slot says that it has no record.
    pub(crate) fn is_empty(bytes: &[u8; LANE_RECORD]) -> bool {
        let b: &LaneBytes = zerocopy::transmute_ref!(bytes);
        b.seq.get() == 0
    }
}

/// An encoded record; on the stack while it is short.
type Bytes = smallvec::SmallVec<[u8; 512]>;

/// From a slice where it is short: `from_elem` goes byte by byte.
fn zeroed(len: usize) -> Bytes {
    const ZEROES: [u8; 512] = [0; 512];
    ZEROES.get(..len).map_or_else(|| Bytes::from_vec(vec![0; len]), Bytes::from_slice)
}

/// Records are written in whole lines of the processor's cache.
const LINE: usize = 64;

/// One block of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BatchItem {
    pub(crate) at: WordAt,
    pub(crate) word: u64,
    pub(crate) sum: u64,
    pub(crate) block: BlockIndex,
}

impl BatchItem {
    /// The item, as little-endian words.
    pub(crate) fn words(&self) -> [u64; 4] {
        zerocopy::transmute!(self.encode())
    }

    fn encode(&self) -> ItemBytes {
        ItemBytes {
            at: self.at.0.into(),
            word: self.word.into(),
            sum: self.sum.into(),
            block: self.block.0.into(),
        }
    }

    fn decode(b: &ItemBytes) -> Self {
        Self {
            at: WordAt(b.at.get()),
            word: b.word.get(),
            sum: b.sum.get(),
            block: BlockIndex(b.block.get()),
        }
    }
}

/// Writes items one after the other; `into` has room for them.
fn put_items(into: &mut [u8], items: &[BatchItem]) {
    for (place, item) in into.chunks_exact_mut(size_of::<ItemBytes>()).zip(items) {
        place.copy_from_slice(item.encode().as_bytes());
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
    let mut b = zeroed(items.len() * size_of::<ItemBytes>());
    put_items(&mut b, items);
    checksum(&b, seed ^ 0x6261_7463_6800)
}

impl BatchHeader {
    /// The header, as little-endian words.
    pub(crate) fn words(&self, seed: u64) -> [u64; 8] {
        let head = HeadBytes {
            seq: self.seq.into(),
            file: self.file.into(),
            count: self.count.into(),
            frames: self.frames.into(),
            size_after: self.size_after.into(),
            overflow: self.overflow.into(),
            items_hash: self.items_hash.into(),
            slot: self.slot.into(),
            check: 0.into(),
        };
        sealed(zerocopy::transmute!(head), seed)
    }

    /// The batch record: this header and the first items. Only as many bytes as are needed are
    /// returned.
    pub(crate) fn encode(&self, items: &[BatchItem], seed: u64) -> Bytes {
        let inline = &items[..items.len().min(ITEMS_INLINE)];
        let items_len = inline.len() * size_of::<ItemBytes>();
        let mut b = zeroed((size_of::<HeadBytes>() + items_len).next_multiple_of(LINE));
        let (into, items) = b.split_at_mut(size_of::<HeadBytes>());
        into.copy_from_slice(self.words(seed).as_bytes());
        put_items(items, inline);
        b
    }

    /// `None` for an empty or half-written record. The items are checked against
    /// [`BatchHeader::items_hash`] by the caller, who alone can read the overflow pages.
    pub(crate) fn decode(bytes: &[u8; BATCH_RECORD], seed: u64) -> Option<(Self, Vec<BatchItem>)> {
        let BatchBytes { head, items } = zerocopy::transmute_ref!(bytes);
        let covered = &head.as_bytes()[..offset_of!(HeadBytes, check)];
        if Self::is_empty(bytes) || head.check.get() != checksum(covered, seed) {
            return None;
        }
        let header = Self {
            seq: head.seq.get(),
            file: head.file.get(),
            count: head.count.get(),
            frames: head.frames.get(),
            size_after: head.size_after.get(),
            overflow: head.overflow.get(),
            items_hash: head.items_hash.get(),
            slot: head.slot.get(),
        };
        let items = items.iter().take(header.count as usize).map(BatchItem::decode).collect();
        Some((header, items))
    }

    /// Whether a place for a batch record says that it has none.
    pub(crate) fn is_empty(bytes: &[u8; BATCH_RECORD]) -> bool {
        let b: &BatchBytes = zerocopy::transmute_ref!(bytes);
        b.head.seq.get() == 0
    }
}

/// An overflow page with `items` (at most [`ITEMS_OVERFLOW`]) and the next page, if any.
pub(crate) fn encode_overflow(items: &[BatchItem], next: Option<Frame>) -> [u8; BATCH_RECORD] {
    let mut b = OverflowBytes::new_zeroed();
    for (place, item) in b.items.iter_mut().zip(items) {
        *place = item.encode();
    }
    b.next = next.map_or(NO_FRAME, |f| f.0).into();
    zerocopy::transmute!(b)
}

/// The first `count` items of an overflow page and the frame of the next page.
pub(crate) fn decode_overflow(bytes: &[u8; BATCH_RECORD], count: usize) -> (Vec<BatchItem>, u64) {
    let b: &OverflowBytes = zerocopy::transmute_ref!(bytes);
    (b.items.iter().take(count).map(BatchItem::decode).collect(), b.next.get())
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
            sum: 5,
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

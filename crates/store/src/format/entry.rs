//! The map entry: eight bytes that say where the newest version of one block is, and can be checked
//! on their own.
//!
//! ```text
//! bits    width  field
//! 0..36   36     frame of the tier (4 KiB units: 256 TiB)
//! 36..38  2      state: 0 Home, 1 Cached, 2 Dirty, 3 map page (in pointers to map pages only)
//! 38..40  2      zero
//! 40..64  24     CRC-24 (OpenPGP polynomial) of the five bytes above, XOR the key of this place
//! ```
//!
//! The key is derived from the tier's seed, the file's id, the level (0 a block, 1 a leaf page, 2 a
//! middle page, 3 the top page, 4 the in-use word of a file slot) and the index. A word that is
//! right in another place is therefore wrong here, and a page of zeros is damage, not a page of
//! `Home`. The CRC sees every change that is confined to 24 neighbouring bits with certainty, any
//! other with probability 1 - 2^-24.
//!
//! A file's map is a tree like an inode's: the slot points to the leaf of blocks 0..256, to a
//! middle page of up to 512 leaves, and to a top page of up to 512 middle pages. A middle or top
//! page is 512 such words. A leaf has 16 bytes a block:
//!
//! ```text
//! offset bytes field
//! 0      8     the entry, as above
//! 8      8     the block's checksum at rest; 0: it has none. It means nothing where the entry is
//!              `Home`
//! ```
//!
//! The checksum is the medium's of the block's bytes, by the tier's seed, XOR the 64 bits of which
//! the entry's key is the upper 24; 1 where that is 0. So it says that the bytes are those of this
//! block of this file. Entry and checksum lie in one cache line and are written together. Blocks of
//! redo files, which are written in place, have none.

use super::mix;
use crate::address::{BlockIndex, FRAME, Frame};
use crc::{CRC_24_OPENPGP, Crc, Table};
use zerocopy::little_endian::U64;

static CRC24: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_24_OPENPGP);

/// Words in a map page.
pub(crate) const PAGE_WORDS: u64 = 512;
/// Blocks of a leaf: of its words, the second of two is a checksum.
pub(crate) const LEAF_BLOCKS: u64 = PAGE_WORDS / 2;
/// Bytes that a leaf has for a block, and where in them the checksum is.
pub(crate) const LEAF_SLOT: u64 = 16;
pub(crate) const SUM_AT: u64 = 8;
/// Blocks one file can have: those of 512 leaves times 512 middle pages.
pub(crate) const BLOCKS_MAX: u64 = LEAF_BLOCKS * PAGE_WORDS * PAGE_WORDS;
/// Instead of a checksum: the block has none.
pub(crate) const NO_SUM: u64 = 0;

/// The fields of a word: a frame, above it the state, and above the value of both the checksum.
const FRAME_BITS: u32 = 36;
const FRAME_MASK: u64 = (1 << FRAME_BITS) - 1;
const VALUE_BITS: u32 = 40;
const VALUE_MASK: u64 = (1 << VALUE_BITS) - 1;
const HOME: u64 = 0;
const CACHED: u64 = 1;
const DIRTY: u64 = 2;
const PAGE: u64 = 3;

/// Only in DRAM, in the bits that are zero in a word: nobody has compared the block with its
/// checksum since the tier was attached.
const UNSEEN: u64 = 1 << 38;

const _: () = assert!(PAGE_WORDS as usize * size_of::<U64>() == FRAME);
const _: () =
    assert!((LEAF_BLOCKS * LEAF_SLOT) as usize == FRAME && UNSEEN >> (FRAME_BITS + 2) == 1);

/// The words of a map page.
pub(crate) fn words_of(page: &[u8; FRAME]) -> impl Iterator<Item = u64> {
    let words: &[U64; PAGE_WORDS as usize] = zerocopy::transmute_ref!(page);
    words.iter().map(|word| word.get())
}

/// Where the newest version of a block is (DESIGN.md, "The one idea").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In the home file only.
    Home,
    /// In the home file, with an equal copy in the tier.
    Cached,
    /// In the tier; the home file is behind.
    Dirty,
}

/// A decoded map entry. [`Entry::HOME`] is zero; others are a state and a frame. Two are equal
/// whether or not their blocks have been seen.
#[derive(Clone, Copy)]
pub(crate) struct Entry(u64);

impl PartialEq for Entry {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        (self.0 ^ other.0) & !UNSEEN == 0
    }
}

impl Eq for Entry {}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.0 >> FRAME_BITS & 3, self.frame().0)
    }
}

impl Entry {
    pub(crate) const HOME: Entry = Entry(0);

    pub(crate) fn cached(frame: Frame) -> Self {
        Self(CACHED << FRAME_BITS | frame.0)
    }

    pub(crate) fn dirty(frame: Frame) -> Self {
        Self(DIRTY << FRAME_BITS | frame.0)
    }

    pub(crate) fn page(frame: Frame) -> Self {
        Self(PAGE << FRAME_BITS | frame.0)
    }

    pub(crate) fn state(self) -> State {
        match self.0 >> FRAME_BITS & 3 {
            HOME => State::Home,
            CACHED => State::Cached,
            _ => State::Dirty,
        }
    }

    /// The frame of the fast copy, if there is one.
    pub(crate) fn held_frame(self) -> Option<Frame> {
        (self != Entry::HOME).then(|| self.frame())
    }

    pub(crate) fn frame(self) -> Frame {
        Frame(self.0 & FRAME_MASK)
    }

    /// The same, of a block that nobody has compared with its checksum yet.
    pub(crate) fn unseen(self) -> Self {
        Self(self.0 | UNSEEN)
    }

    /// The same, of a block that somebody has.
    pub(crate) fn seen(self) -> Self {
        Self(self.0 & !UNSEEN)
    }

    #[inline]
    pub(crate) fn is_unseen(self) -> bool {
        self.0 & UNSEEN != 0
    }

    /// What the words of DRAM hold.
    pub(crate) fn raw(self) -> u64 {
        self.0
    }

    pub(crate) fn from_raw(raw: u64) -> Self {
        Self(raw)
    }
}

/// The kind of word and its index within the file: what the key of its checksum is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Map entry of block `n`.
    Block(u64),
    /// Pointer to leaf page `n` (blocks `256 n ..`).
    Leaf(u64),
    /// Pointer to middle page `n` (leaves `512 n ..`).
    Middle(u64),
    /// Pointer to the top page.
    Top,
    /// The in-use word of file slot `n`.
    Slot(u64),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Block(n) => write!(f, "block {n}"),
            Place::Leaf(n) => write!(f, "leaf page {n} of the block map"),
            Place::Middle(n) => write!(f, "middle page {n} of the block map"),
            Place::Top => f.write_str("the top page of the block map"),
            Place::Slot(n) => write!(f, "file slot {n}"),
        }
    }
}

/// What belongs to a place of a tier, and to no other: words and checksums there are made with it.
#[derive(Clone, Copy)]
pub(crate) struct Key(u64);

impl Key {
    /// The word on the medium for `entry`.
    #[inline]
    pub(crate) fn seal(self, entry: Entry) -> u64 {
        self.seal_value(entry.seen().0)
    }

    /// The word on the medium for a 40-bit value.
    #[inline]
    fn seal_value(self, value: u64) -> u64 {
        let value = value & VALUE_MASK;
        value | (crc24(value) ^ self.0 >> VALUE_BITS) << VALUE_BITS
    }

    /// The checksum at rest of a block whose bytes have the medium's checksum `hash`, by the tier's
    /// seed.
    #[inline]
    pub(crate) fn block_sum(self, hash: u64) -> u64 {
        (hash ^ self.0).max(1)
    }
}

#[inline]
pub(crate) fn key(seed: u64, file: u64, place: Place) -> Key {
    let (level, index) = match place {
        Place::Block(n) => (0u64, n),
        Place::Leaf(n) => (1, n),
        Place::Middle(n) => (2, n),
        Place::Top => (3, 0),
        Place::Slot(n) => (4, n),
    };
    Key(mix(seed ^ file.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ mix(level << 60 | index)))
}

/// [`Key::block_sum`] of a block.
pub(crate) fn block_sum(seed: u64, file: u64, block: BlockIndex, hash: u64) -> u64 {
    key(seed, file, Place::Block(block.0)).block_sum(hash)
}

fn crc24(value: u64) -> u64 {
    u64::from(CRC24.checksum(&value.to_le_bytes()[..5]))
}

/// The word on the medium for the 40-bit `value` at `place` of `file`.
pub(crate) fn seal_value(seed: u64, file: u64, place: Place, value: u64) -> u64 {
    key(seed, file, place).seal_value(value)
}

/// The 40-bit value of a word, or `None` when the word is damaged or belongs elsewhere.
pub(crate) fn unseal_value(seed: u64, file: u64, place: Place, word: u64) -> Option<u64> {
    let value = word & VALUE_MASK;
    (word >> VALUE_BITS == crc24(value) ^ key(seed, file, place).0 >> VALUE_BITS).then_some(value)
}

/// The word on the medium for `entry`.
pub(crate) fn seal(seed: u64, file: u64, place: Place, entry: Entry) -> u64 {
    key(seed, file, place).seal(entry)
}

/// The entry in a word; `None` when it is damaged, belongs elsewhere, or has a state its place does
/// not allow.
pub(crate) fn unseal(seed: u64, file: u64, place: Place, word: u64) -> Option<Entry> {
    let value = unseal_value(seed, file, place, word)?;
    let (state, frame) = (value >> FRAME_BITS, value & FRAME_MASK);
    let allowed = match place {
        Place::Block(_) => state < PAGE && (state != HOME || frame == 0),
        _ => state == PAGE || value == 0,
    };
    allowed.then_some(Entry(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_one_byte_of_an_entry_is_seen() {
        for (place, entry) in [
            (Place::Block(7), Entry::dirty(Frame(0x1_2345_6789))),
            (Place::Leaf(3), Entry::page(Frame(9))),
        ] {
            let word = seal(11, 22, place, entry);
            assert_eq!(unseal(11, 22, place, word), Some(entry));
            for byte in 0..8 {
                for flip in 1..=255u64 {
                    assert_eq!(unseal(11, 22, place, word ^ flip << (byte * 8)), None);
                }
            }
        }
    }

    #[test]
    fn a_word_of_another_block_file_or_tier_is_refused_and_so_is_zero() {
        let word = seal(1, 2, Place::Block(3), Entry::dirty(Frame(5)));
        assert_eq!(unseal(1, 2, Place::Block(4), word), None);
        assert_eq!(unseal(1, 3, Place::Block(3), word), None);
        assert_eq!(unseal(2, 2, Place::Block(3), word), None);
        assert_eq!(unseal(1, 2, Place::Leaf(3), word), None);
        assert_eq!(unseal(1, 2, Place::Block(3), 0), None);
        // Pointers look alike at every level, so the key alone tells the levels apart.
        let pointer = seal(1, 2, Place::Leaf(0), Entry::page(Frame(5)));
        assert_eq!(unseal(1, 2, Place::Leaf(0), pointer), Some(Entry::page(Frame(5))));
        for elsewhere in [Place::Middle(0), Place::Top, Place::Slot(0)] {
            assert_eq!(unseal(1, 2, elsewhere, pointer), None, "{elsewhere}");
        }
    }
}

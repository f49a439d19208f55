//! The sealed 8-byte words and the checksums, read from the tables in [`crate::format`] a second
//! time.
//!
//! Deliberately not shared with [`crate::format::entry`]: the CRC here is computed from five small
//! tables, one per byte of the value, where the other reader uses the `crc` crate. A test compares
//! both with the published check value.
//!
//! **Invariant**: nothing here can fail or panic for any input; a word that is not right gives
//! `None`.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bits of a word that carry its value.
const VALUE_BITS: u32 = 40;
const VALUE_MASK: u64 = (1 << VALUE_BITS) - 1;
const FRAME_BITS: u32 = 36;
const FRAME_MASK: u64 = (1 << FRAME_BITS) - 1;
/// The state that marks a pointer to a map page.
const STATE_PAGE: u64 = 3;

/// CRC-24 of RFC 4880: polynomial and initial value.
const CRC_POLY: u32 = 0x0086_4cfb;
const CRC_INIT: u32 = 0x00b7_04ce;
const CRC_MASK: u32 = 0x00ff_ffff;

/// `TABLES[i][b]`: what byte `b` at position `i` of five contributes to the CRC.
static TABLES: [[u32; 256]; 5] = crc_tables();
/// The CRC of five zero bytes: what is left when no byte contributes.
const CRC_OF_ZERO: u32 = crc_of_zero();

const fn crc_byte(mut crc: u32) -> u32 {
    let mut bit = 0;
    while bit < 8 {
        crc <<= 1;
        if crc & 0x0100_0000 != 0 {
            crc ^= CRC_POLY;
        }
        bit += 1;
    }
    crc & CRC_MASK
}

const fn crc_of_zero() -> u32 {
    let (mut crc, mut n) = (CRC_INIT, 0);
    while n < 5 {
        crc = crc_byte(crc);
        n += 1;
    }
    crc
}

const fn crc_tables() -> [[u32; 256]; 5] {
    let mut tables = [[0; 256]; 5];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u32) << 16;
        let mut position = 5;
        while position > 0 {
            position -= 1;
            crc = crc_byte(crc);
            tables[position][byte] = crc;
        }
        byte += 1;
    }
    tables
}

fn crc24(value: u64) -> u32 {
    let byte = |n: u32| (value >> (8 * n)) as usize & 0xff;
    CRC_OF_ZERO
        ^ TABLES[0][byte(0)]
        ^ TABLES[1][byte(1)]
        ^ TABLES[2][byte(2)]
        ^ TABLES[3][byte(3)]
        ^ TABLES[4][byte(4)]
}

/// The finaliser of SplitMix64.
fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Where a word stands, in the words of the map: its level and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Block(u64),
    Leaf(u64),
    Middle(u64),
    Top,
    Slot(u64),
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Level::Block(n) => write!(f, "entry of block {n}"),
            Level::Leaf(n) => write!(f, "leaf page {n} of the block map"),
            Level::Middle(n) => write!(f, "middle page {n} of the block map"),
            Level::Top => f.write_str("top page of the block map"),
            Level::Slot(n) => write!(f, "file slot {n}"),
        }
    }
}

impl Level {
    fn bits(self) -> u64 {
        match self {
            Level::Block(n) => n,
            Level::Leaf(n) => 1 << 60 | n,
            Level::Middle(n) => 2 << 60 | n,
            Level::Top => 3 << 60,
            Level::Slot(n) => 4 << 60 | n,
        }
    }
}

/// The state in a map entry that has a block in the tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Cached,
    Dirty,
}

/// A map entry as this reader understands it; `None` inside `Some` is `Home`.
pub(super) type BlockWord = Option<(Held, u64)>;

/// Opens the words of one file.
#[derive(Clone, Copy)]
pub(super) struct Seal {
    base: u64,
}

impl Seal {
    pub(super) fn new(seed: u64, file: u64) -> Self {
        Self { base: seed ^ file.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    /// What only this place of this file has.
    fn key(self, level: Level) -> u64 {
        mix(self.base ^ mix(level.bits()))
    }

    /// The upper 24 bits that `value` must carry at `level`.
    fn check_bits(self, level: Level, value: u64) -> u64 {
        u64::from(crc24(value)) ^ self.key(level) >> VALUE_BITS
    }

    /// The checksum at rest of a block whose bytes have the checksum `hash`.
    pub(super) fn sum(self, block: u64, hash: u64) -> u64 {
        match hash ^ self.key(Level::Block(block)) {
            0 => 1,
            sum => sum,
        }
    }

    /// The 40-bit value in `word`, when the word is whole and belongs here.
    pub(super) fn value(self, level: Level, word: u64) -> Option<u64> {
        let value = word & VALUE_MASK;
        (word >> VALUE_BITS == self.check_bits(level, value)).then_some(value)
    }

    /// The map entry in `word`.
    pub(super) fn block(self, block: u64, word: u64) -> Option<BlockWord> {
        let value = self.value(Level::Block(block), word)?;
        let frame = value & FRAME_MASK;
        match value >> FRAME_BITS {
            0 if frame == 0 => Some(None),
            1 => Some(Some((Held::Cached, frame))),
            2 => Some(Some((Held::Dirty, frame))),
            _ => None,
        }
    }

    /// The frame of the map page that `word` points to; `None` inside `Some` when there is no page.
    pub(super) fn pointer(self, level: Level, word: u64) -> Option<Option<u64>> {
        let value = self.value(level, word)?;
        match value >> FRAME_BITS {
            STATE_PAGE => Some(Some(value & FRAME_MASK)),
            0 if value == 0 => Some(None),
            _ => None,
        }
    }
}

/// The checksum of headers and records.
pub(super) fn checksum(bytes: &[u8], key: u64) -> u64 {
    xxh3_64_with_seed(bytes, key)
}

/// The eight bytes at `at`. The caller has asked its source for the whole structure, so they are
/// there.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(|b| b.first_chunk());
    u64::from_le_bytes(*word.expect("BUG: the source gave fewer bytes than the structure has"))
}

/// The four bytes at `at`.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|b| b.first_chunk());
    u32::from_le_bytes(*word.expect("BUG: the source gave fewer bytes than the structure has"))
}

/// The two bytes at `at`.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let word = bytes.get(at..).and_then(|b| b.first_chunk());
    u16::from_le_bytes(*word.expect("BUG: the source gave fewer bytes than the structure has"))
}

/// Whether all bytes are zero.
pub(super) fn all_zero(bytes: &[u8]) -> bool {
    bytes.chunks(64).all(|chunk| chunk.iter().fold(0, |or, b| or | b) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_is_the_published_one() {
        let published = crc::Crc::<u32>::new(&crc::CRC_24_OPENPGP);
        let mut random = fastrand::Rng::with_seed(1);
        for value in (0..1000).map(|_| random.u64(..) & VALUE_MASK).chain([0, 1, VALUE_MASK]) {
            assert_eq!(crc24(value), published.checksum(&value.to_le_bytes()[..5]), "{value:#x}");
        }
    }

    #[test]
    fn the_empty_word_opens_as_nothing() {
        let seal = Seal::new(5, 6);
        let empty = |level| seal.check_bits(level, 0) << VALUE_BITS;
        assert_eq!(seal.block(9, empty(Level::Block(9))), Some(None));
        assert_eq!(seal.pointer(Level::Top, empty(Level::Top)), Some(None));
        assert_eq!(seal.block(8, empty(Level::Block(9))), None);
    }
}

//! Checksums made right over whatever stands in an image: what no accident does, and what a fuzzer
//! cannot guess. It leads past the checksums, to what is done with the values behind them.
//!
//! Not the encoders of the store: they take values that are possible. Written from docs/format.md,
//! for the geometry of the images here.

use super::{BATCHES, LANES, SIZE, SLOTS, UNIT};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const SUPERBLOCK_KEY: u64 = 0x5449_4552_534d_5448;
const BATCH_KEY: u64 = 0x6261_7463_6800;
const LANES_AT: usize = 12288;
const LANE_RECORD: usize = 64;
const SLOT: usize = 1024;
const PAGE: usize = 4096;
const VALUE: u64 = (1 << 40) - 1;

fn word(image: &[u8], at: usize) -> u64 {
    image.get(at..at + 8).map_or(0, |b| b.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte)))
}

fn put(image: &mut [u8], at: usize, value: u64) {
    if let Some(place) = image.get_mut(at..at + 8) {
        place.copy_from_slice(&value.to_le_bytes());
    }
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// CRC-24 of OpenPGP (RFC 4880, section 6.1) of the low five bytes.
fn crc24(value: u64) -> u64 {
    let mut crc = 0xb7_04ce;
    for byte in &value.to_le_bytes()[..5] {
        crc ^= u64::from(*byte) << 16;
        for _ in 0..8 {
            crc <<= 1;
            if crc & 0x100_0000 != 0 {
                crc ^= 0x186_4cfb;
            }
        }
    }
    crc
}

/// Seals the word at `at` for its place: the level and the index there.
fn seal(image: &mut [u8], at: usize, seed: u64, file: u64, level: u64, index: u64) {
    let value = word(image, at) & VALUE;
    let place = mix(level << 60 | index);
    let key = mix(seed ^ file.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ place) >> 40;
    put(image, at, value | (crc24(value) ^ key) << 40);
}

/// Puts the checksum of `from..from + len` at `at`.
fn sum(image: &mut [u8], from: usize, len: usize, at: usize, key: u64) {
    if let Some(bytes) = image.get(from..from + len) {
        put(image, at, xxh3_64_with_seed(bytes, key));
    }
}

/// Makes every checksum of the metadata right: of superblocks, records, slots, and of the map pages
/// that a slot leads to.
pub(crate) fn put_right(image: &mut [u8]) {
    for copy in [0, 4096] {
        sum(image, copy, 4088, copy + 4088, SUPERBLOCK_KEY);
    }
    let seed = word(image, 64);
    for record in 0..2 * LANES {
        let at = LANES_AT + record * LANE_RECORD;
        sum(image, at, 56, at + 56, seed);
    }
    let batches_at = (LANES_AT + LANES * 2 * LANE_RECORD).next_multiple_of(PAGE);
    for batch in 0..BATCHES {
        let at = batches_at + batch * PAGE;
        let count = (word(image, at + 16) as u32 as usize).min(126);
        sum(image, at + 64, count * 32, at + 40, seed ^ BATCH_KEY);
        sum(image, at, 56, at + 56, seed);
    }
    let slots_at = batches_at + BATCHES * PAGE;
    let data_start = (slots_at + SLOTS * SLOT).next_multiple_of(UNIT);
    for slot in 0..SLOTS {
        let at = slots_at + slot * SLOT;
        let file = word(image, at) & VALUE;
        seal(image, at, seed, 0, 4, slot as u64);
        sum(image, at + 16, 40, at + 56, seed ^ file);
        for line in 0..4 {
            let line = at + 128 + line * 64;
            sum(image, line, 56, line + 56, seed ^ file);
        }
        sum(image, at + 392, SLOT - 392, at + 384, seed ^ file);
        if file != 0 {
            map(image, data_start, at + 64, seed, file);
        }
    }
}

/// The words of a file's map: its first leaf, the leaves of its first middle page, and what its top
/// page leads to first.
fn map(image: &mut [u8], data_start: usize, roots: usize, seed: u64, file: u64) {
    let page = |pointer: u64| {
        let at = data_start + (pointer & ((1 << 36) - 1)) as usize * PAGE;
        (pointer >> 36 == 3 && at + PAGE <= SIZE).then_some(at)
    };
    let seal_page = |image: &mut [u8], at: usize, level: u64, first: u64| {
        for n in 0..512 {
            seal(image, at + n as usize * 8, seed, file, level, first + n);
        }
    };
    for (root, level, index) in [(0, 1, 0), (1, 2, 0), (2, 3, 0)] {
        seal(image, roots + root * 8, seed, file, level, index);
    }
    let [leaf, middle, top] = [0, 8, 16].map(|n| page(word(image, roots + n) & VALUE));
    if let Some(leaf) = leaf {
        seal_page(image, leaf, 0, 0);
    }
    if let Some(middle) = middle {
        seal_page(image, middle, 1, 0);
        for n in 1..512 {
            if let Some(leaf) = page(word(image, middle + n as usize * 8) & VALUE) {
                seal_page(image, leaf, 0, n * 512);
            }
        }
    }
    if let Some(top) = top {
        seal_page(image, top, 2, 0);
        if let Some(middle) = page(word(image, top + 8) & VALUE) {
            seal_page(image, middle, 1, 512);
        }
    }
}

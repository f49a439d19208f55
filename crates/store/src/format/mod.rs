//! Every byte Tiersmith keeps on a tier is described and coded here and nowhere else.
//!
//! All numbers are little-endian. All checksums are keyed with the tier's `seed`, so that bytes of
//! another tier, or of an earlier life of this one, do not pass. The layout of a member:
//!
//! ```text
//! offset   bytes              what                                   on which member
//! 0        4096               superblock, copy 0                     every
//! 4096     4096               superblock, copy 1                     every
//! 8192     4096               owner note (text for people)           first
//! 12288    lanes x 128        lane records, two of 64 bytes a lane   first
//! then     batches x 4096     batch records (start on a frame)       first
//! then     slots x 1024       file table (starts on a frame)         first
//! then     log_len            the log, of a member on flash          every
//! then     units              allocation units: map pages, blocks    every
//! ```
//!
//! The units start at the superblock's `data_start`, a multiple of the allocation unit. Unit `n` of
//! the tier is unit `n / members` of member `n % members`. Nothing records which frames are free: a
//! frame is in use exactly when a file's map refers to it, so the maps are the only set of facts.
//!
//! **Power-fail atomicity assumed**: an aligned 8-byte store. Nothing here trusts a sector. A
//! structure larger than 8 bytes either has a checksum and an older twin (superblock, state line,
//! lane record, batch record) or is complete and durable before an 8-byte word makes it reachable
//! (file slot, map page).
//!
//! Each table stands in its module beside a structure of the same fields, whose size and offsets
//! are asserted at compile time: nothing here counts bytes. The modules: [`superblock`], [`slot`],
//! [`entry`], [`record`], [`log`]. `docs/format.md` says how they fit together. The offline checker
//! ([`crate::check`]) has its own decoders, written from the tables.

pub(crate) mod entry;
pub(crate) mod log;
pub(crate) mod record;
pub(crate) mod slot;
pub(crate) mod superblock;

use xxhash_rust::xxh3::xxh3_64_with_seed;
use zerocopy::IntoBytes;

// Words go to the medium as the processor has them, for which an 8-byte store is one.
const _: () = assert!(cfg!(target_endian = "little"));

/// Sequences are below this. Counting never reaches it; a larger one is no sequence, and would
/// overflow where the next is counted.
pub(crate) const SEQUENCE_MAX: u64 = 1 << 62;

/// The checksum of headers and records: XXH3, 64 bits, keyed.
pub(crate) fn checksum(bytes: &[u8], key: u64) -> u64 {
    xxh3_64_with_seed(bytes, key)
}

/// A line of eight words, whose last becomes the checksum of the others, as words that can stay in
/// registers ([`crate::medium::Mapped::write_line`]).
#[inline]
pub(crate) fn sealed(words: [u64; 8], key: u64) -> [u64; 8] {
    let [a, b, c, d, e, f, g, _] = words;
    let covered = [a, b, c, d, e, f, g];
    [a, b, c, d, e, f, g, checksum(covered.as_bytes(), key)]
}

/// Spreads the bits of `x` over the whole word (the finaliser of SplitMix64).
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The uuid of an attachment as [`crate::Attachment::id`] has it.
pub(crate) fn hex(uuid: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_le_bytes(*uuid))
}

//! The 64-bit checksum of blocks: XXH3 (64-bit, seeded), as published at <https://xxhash.com>.
//!
//! Why XXH3: any change of one 8-byte word changes an accumulator for certain, what the final
//! mixing can lose of that is 1 in 2^64; the result depends on position, length and seed; eight
//! independent lanes fit every vector width, and others have the same function to check ours with.
//! Inputs of up to 240 bytes have formulas of their own and are left to `xxhash-rust`; longer ones
//! run through the stripes of [`Width`], also fused with a copy.
//!
//! Invariant: every width gives the published result. This function is part of the format on media;
//! it never changes.
//! Deliberately absent: any defence against a forger.

use super::{Source, Width};

/// Inputs up to this have their own formulas.
pub(crate) const SHORT: usize = 240;
/// Stripes of 64 bytes between two scrambles.
pub(crate) const BLOCK_STRIPES: usize = 16;
/// Where the scramble's key starts in the secret.
pub(crate) const SCRAMBLE_KEY: usize = 128;
/// Where the last stripe's key starts in the secret.
pub(crate) const LAST_KEY: usize = 121;
const MERGE_KEY: usize = 11;

/// Eight lanes of sums, aligned as one vector.
#[repr(C, align(64))]
pub(crate) struct Lanes(pub(crate) [u64; 8]);

/// What the sums begin with. In memory: put together from words just before they are loaded as a
/// vector, they would hold up the first store of a copy until all stores before it are through.
pub(crate) static BEGIN: Lanes =
    Lanes([PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1]);

pub(crate) const PRIME32_1: u64 = 0x9E37_79B1;
const PRIME32_2: u64 = 0x85EB_CA77;
const PRIME32_3: u64 = 0xC2B2_AE3D;
const PRIME64_1: u64 = 0x9E37_79B1_85EB_CA87;
const PRIME64_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const PRIME64_3: u64 = 0x1656_67B1_9E37_79F9;
const PRIME64_4: u64 = 0x85EB_CA77_C2B2_AE63;
const PRIME64_5: u64 = 0x27D4_EB2F_1656_67C5;

/// The keys of the stripes, aligned so that a vector load of them never crosses a page.
#[repr(C, align(64))]
pub(crate) struct Secret(pub(crate) [u8; 192]);

/// The published default.
static DEFAULT: Secret = Secret([
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad,
    0x1c, //
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67,
    0x1f, //
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72,
    0x21, //
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26,
    0x4c, //
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e,
    0xa3, //
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac,
    0xd8, //
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f,
    0x1d, //
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73,
    0x64, //
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63,
    0xeb, //
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68,
    0x9e, //
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31,
    0xce, //
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40,
    0x7e, //
]);

/// The key word at byte `at` of the secret.
#[inline]
pub(crate) fn key(secret: &Secret, at: usize) -> u64 {
    let bytes = secret.0[at..].first_chunk::<8>().expect("BUG: a key beyond the secret");
    u64::from_le_bytes(*bytes)
}

/// A seed and its secret, made once: a copy with its checksum would wait for the making before its
/// first store.
pub(crate) struct Keys {
    pub(crate) seed: u64,
    pub(crate) secret: Secret,
}

impl Keys {
    pub(crate) fn of_seed(seed: u64) -> Keys {
        Keys { seed, secret: Secret::of_seed(seed) }
    }
}

impl Secret {
    /// The secret of a seed: the seed added to and subtracted from alternate words of the default.
    #[inline]
    fn of_seed(seed: u64) -> Secret {
        let mut secret = Secret([0; 192]);
        for (index, (to, from)) in
            secret.0.as_chunks_mut::<8>().0.iter_mut().zip(DEFAULT.0.as_chunks::<8>().0).enumerate()
        {
            let word = u64::from_le_bytes(*from);
            let word =
                if index % 2 == 0 { word.wrapping_add(seed) } else { word.wrapping_sub(seed) };
            *to = word.to_le_bytes();
        }
        secret
    }
}

/// The checksum of a slice: XXH3-64 with `seed`.
pub fn hash_bytes(bytes: &[u8], seed: u64) -> u64 {
    if bytes.len() <= SHORT {
        return xxhash_rust::xxh3::xxh3_64_with_seed(bytes, seed);
    }
    // SAFETY: the source is the slice, nothing is copied, and the width is this processor's.
    unsafe {
        long(
            Width::detect(),
            Source::Slice,
            std::ptr::null_mut(),
            bytes.as_ptr(),
            bytes.len(),
            seed,
        )
    }
}

/// The checksum of more than [`SHORT`] bytes, which are also copied to `dst` when it is not null.
///
/// # Safety
/// As [`Width::stripes`].
#[inline]
pub(crate) unsafe fn long(
    width: Width,
    source: Source,
    dst: *mut u8,
    src: *const u8,
    len: usize,
    seed: u64,
) -> u64 {
    let of_seed;
    let secret = if seed == 0 {
        &DEFAULT
    } else {
        of_seed = Secret::of_seed(seed);
        &of_seed
    };
    // SAFETY: the caller's obligations are the same.
    unsafe { long_with(width, source, dst, src, len, secret) }
}

/// [`long`] with the secret of the seed.
///
/// # Safety
/// As [`Width::stripes`].
#[inline]
pub(crate) unsafe fn long_with(
    width: Width,
    source: Source,
    dst: *mut u8,
    src: *const u8,
    len: usize,
    secret: &Secret,
) -> u64 {
    // SAFETY: the caller's obligations are the same.
    let sums = unsafe { width.stripes(source, dst, src, len, secret) };
    merge(&sums, secret, len)
}

#[inline]
fn merge(acc: &[u64; 8], secret: &Secret, len: usize) -> u64 {
    let mut result = (len as u64).wrapping_mul(PRIME64_1);
    for (index, pair) in acc.as_chunks::<2>().0.iter().enumerate() {
        let at = MERGE_KEY + 16 * index;
        let product =
            u128::from(pair[0] ^ key(secret, at)) * u128::from(pair[1] ^ key(secret, at + 8));
        result = result.wrapping_add(product as u64 ^ (product >> 64) as u64);
    }
    result ^= result >> 37;
    result = result.wrapping_mul(0x1656_6791_9E37_79F9);
    result ^ (result >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        fastrand::Rng::with_seed(len as u64).fill(&mut bytes);
        bytes
    }

    #[test]
    fn every_width_gives_the_published_function() {
        for len in (241..1500).step_by(if cfg!(miri) { 211 } else { 1 }).chain([2048, 4096, 8192]) {
            let bytes = noise(len);
            for seed in [0, 7, u64::MAX] {
                let published = xxhash_rust::xxh3::xxh3_64_with_seed(&bytes, seed);
                for width in Width::all() {
                    // SAFETY: the source is the vector, nothing is copied.
                    let ours = unsafe {
                        long(width, Source::Slice, std::ptr::null_mut(), bytes.as_ptr(), len, seed)
                    };
                    assert_eq!(ours, published, "{width:?} {len} bytes seed {seed}");
                }
            }
        }
    }

    #[test]
    fn the_function_on_media_never_changes() {
        // From the reference implementation in C.
        let bytes: Vec<u8> = (0..8192_u32).map(|index| ((index * 31) >> 3) as u8).collect();
        assert_eq!(hash_bytes(&bytes[..64], 0), 0xCB0C_E44D_ADF6_4B0E);
        assert_eq!(hash_bytes(&bytes[..512], 1), 0x14F0_0C4B_61C0_9820);
        assert_eq!(hash_bytes(&bytes[..4096], 0x0123_4567_89ab_cdef), 0xF9DA_DAB4_D03A_E4FA);
        assert_eq!(hash_bytes(&bytes, u64::MAX), 0x7481_A391_0EB3_E30F);
        assert_eq!(hash_bytes(&[0; 4096], 0), 0x93D7_6FE1_48C6_89BA);
    }

    #[test]
    fn any_one_word_changed_changes_the_checksum() {
        for len in [256, 512, 4096, 8192] {
            let mut bytes = noise(len);
            let before = hash_bytes(&bytes, 3);
            for word in (0..len).step_by(if cfg!(miri) { 1024 } else { 8 }) {
                for change in [1_u64, 1 << 63, 1 << 32, u64::MAX, 0x0101] {
                    let old = *bytes[word..].first_chunk::<8>().unwrap();
                    let new = (u64::from_le_bytes(old) ^ change).to_le_bytes();
                    bytes[word..word + 8].copy_from_slice(&new);
                    assert_ne!(
                        hash_bytes(&bytes, 3),
                        before,
                        "word at {word} of {len}, change {change:#x}"
                    );
                    bytes[word..word + 8].copy_from_slice(&old);
                }
            }
        }
    }

    #[test]
    fn words_exchanged_and_blocks_moved_change_the_checksum() {
        let mut bytes = noise(4096);
        let before = hash_bytes(&bytes, 0);
        for (one, other) in [(0, 8), (0, 64), (64, 1088), (0, 1024), (2048, 4032)] {
            let swap =
                |bytes: &mut [u8]| (0..8).for_each(|byte| bytes.swap(one + byte, other + byte));
            swap(&mut bytes);
            assert_ne!(hash_bytes(&bytes, 0), before, "words at {one} and {other} exchanged");
            swap(&mut bytes);
        }
        assert_ne!(hash_bytes(&bytes, 1), before, "another seed");
        assert_ne!(
            hash_bytes(&bytes[..4032], 0),
            hash_bytes(&[&bytes[..4032], &[0; 64]].concat(), 0)
        );
    }
}

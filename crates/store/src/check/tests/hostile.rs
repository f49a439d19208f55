//! Bytes that nobody meant: every byte of a small tier changed in turn, and garbage.

use super::super::{CheckOptions, check_images, check_images_with};
use super::build::{DIRTY, put};
use super::{AFTER_CUT, FREE_8K, LEAF, Sample, sample};

/// The sample with records in it, so that there is more to damage.
fn rich(members: u64) -> Sample {
    let mut s = sample(members);
    let data = s.data.clone();
    s.build.fill(FREE_8K, &[0xbb; 8192]);
    s.build.lane(3, 9, &data, LEAF, 0, FREE_8K);
    s.build.lane(1, 4, &data, LEAF, 0, 8);
    s.build.batch(1, &data, LEAF, &[(0, FREE_8K), (1, 24)], &[]);
    s
}

#[test]
fn every_changed_byte_of_metadata_in_use_is_reported_and_none_panics() {
    let mut s = rich(1);
    let plain = s.check_with(&AFTER_CUT);
    assert!(plain.is_sound() && plain.findings.is_empty(), "{plain}");
    let slot = s.build.slot_at(s.data.slot) as usize;
    let leaf = s.build.place(LEAF).1 as usize;
    // Beside a word is the checksum of its block: of the data file, block 2 is the one of which no
    // record speaks.
    let sums = leaf + 2 * 16 + 8..leaf + 3 * 16;
    let mut silent = Vec::new();
    for at in 0..s.build.images[0].len() {
        // Blocks and free frames are not metadata: a few of their bytes will do.
        if at > leaf + 8192 && at % 509 != 0 {
            continue;
        }
        for flip in [0x01, 0x80] {
            s.build.images[0][at] ^= flip;
            let report = s.check_with(&CheckOptions { findings_max: 50, ..AFTER_CUT });
            let metadata = at < 8192
                || (slot..slot + 128).contains(&at)
                || (slot + 128..slot + 256).contains(&at)
                || (leaf..leaf + 8192).contains(&at) && (at % 16 < 8 || sums.contains(&at));
            if metadata && report.findings.is_empty() {
                silent.push(at);
            }
            s.build.images[0][at] ^= flip;
        }
    }
    assert_eq!(silent, Vec::<usize>::new(), "changed without a finding; slot {slot}, leaf {leaf}");
}

#[test]
fn garbage_is_refused_without_panic() {
    let mut random = fastrand::Rng::with_seed(7);
    for len in [0, 1, 8, 4095, 4096, 8191, 8192, 12288, 20000, 65536] {
        for _ in 0..20 {
            let mut image: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
            assert!(!check_images(&[&image], None).is_sound());
            if len >= 8 {
                image[..8].copy_from_slice(b"TSMITHST");
                assert!(!check_images(&[&image], None).is_sound());
            }
        }
    }
    assert!(!check_images(&[], None).is_sound());
}

#[test]
fn garbage_behind_sound_superblocks_ends_without_panic() {
    let mut random = fastrand::Rng::with_seed(8);
    for round in 0..300 {
        let mut s = rich(1 + round % 3);
        let member = random.usize(..s.build.images.len());
        for _ in 0..random.usize(1..200) {
            let image = &mut s.build.images[member];
            let at = random.usize(8192..image.len() - 8);
            image[at..at + 8].copy_from_slice(&random.u64(..).to_le_bytes());
        }
        for options in [CheckOptions::default(), AFTER_CUT] {
            let _ = check_images_with(&s.build.views(), Some(&s.home), &options).to_string();
        }
    }
}

#[test]
fn an_attacker_who_seals_words_and_superblocks_rightly_gets_findings_and_no_panic() {
    let mut random = fastrand::Rng::with_seed(9);
    for _ in 0..300 {
        let mut s = rich(1);
        let data = s.data.clone();
        for _ in 0..40 {
            let frame =
                [random.u64(..120), random.u64(..1 << 36), (1 << 36) - 1][random.usize(..3)];
            match random.u8(..4) {
                0 => s.build.entry(&data, LEAF, random.u64(..512), DIRTY, frame),
                1 => {
                    let level = random.u64(1..4);
                    let at = s.build.slot_at(data.slot) + 56 + level * 8;
                    let word = s.build.seal(data.id, level, 0, 3 << 36 | frame);
                    s.build.word(0, at, word);
                }
                2 => {
                    let (block, frame) = (random.u64(..600), random.u64(..90) & !1);
                    s.build.lane(random.u64(..4), random.u64(..), &data, LEAF, block, frame);
                }
                _ => {
                    let (mut file, frame) = (data.clone(), random.u64(..90) & !1);
                    file.slot = random.u64(..8);
                    s.build.batch(random.u64(..2), &file, LEAF, &[(random.u64(..600), frame)], &[]);
                }
            }
        }
        for options in [CheckOptions::default(), AFTER_CUT] {
            let _ = check_images_with(&s.build.views(), Some(&s.home), &options).to_string();
        }
        // A superblock with one field replaced and the checksum made right.
        let mut b = s.build.superblock_bytes(0);
        let value = [0, 1, u64::MAX, 1 << 40, random.u64(..)][random.usize(..5)];
        put(&mut b, random.u64(1..29) * 8, &value.to_le_bytes());
        let check = xxhash_rust::xxh3::xxh3_64_with_seed(&b[..4088], 0x5449_4552_534d_5448);
        put(&mut b, 4088, &check.to_le_bytes());
        put(&mut s.build.images[0], 0, &b);
        put(&mut s.build.images[0], 4096, &b);
        for options in [CheckOptions::default(), AFTER_CUT] {
            let _ = check_images_with(&s.build.views(), Some(&s.home), &options).to_string();
        }
    }
}

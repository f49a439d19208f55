//! The two copies of a superblock: which is newer can be told at every moment of a change, and one
//! of another format is enough to refuse the tier.

use crate::place;

use crate::place::Place;
use std::fs;
use std::sync::Arc;
use tiersmith_pmem::Mapping;
use tiersmith_store::check::{CheckOptions, Severity, check, check_images};
use tiersmith_store::home::SimHome;
use tiersmith_store::{Error, Medium, MemberLabel, Options, TierSpec, attach, testing};

const SIZE: u64 = 320 << 10;
const COPY: usize = 4096;

#[test]
fn of_a_superblock_that_grew_the_new_copy_is_the_newer_one_whichever_was_written_first() {
    let spec = TierSpec {
        max_size: 2 * SIZE,
        grow_by: SIZE,
        ..place::small("/simulated/fast".into(), SIZE)
    };
    let mapping = Arc::new(Mapping::in_memory(&vec![0; SIZE as usize], 2 * SIZE));
    let tiers = vec![(spec, vec![mapping.clone()])];
    let home = Arc::new(SimHome::new(None));
    let options = Options { seed: Some(3), ..place::options() };
    let attached = testing::attach_simulated(home, tiers, &place::profile(), options).unwrap();
    let before = place::image(&mapping);
    assert!(attached.grow("fast").unwrap());
    let after = place::image(&mapping);
    assert!(before[..COPY] != after[..COPY] && before[COPY..2 * COPY] != after[COPY..2 * COPY]);
    for (written, copy) in [(0, 0..COPY), (1, COPY..2 * COPY)] {
        let mut cut = after.clone();
        cut[..2 * COPY].copy_from_slice(&before[..2 * COPY]);
        cut[copy.clone()].copy_from_slice(&after[copy]);
        let report = check_images(&[&cut], None);
        let worst = report.findings.iter().map(|finding| finding.severity).max();
        assert_eq!(worst, Some(Severity::Note), "copy {written} is written: {report}");
    }
}

/// A copy that another program could have written, its checksum right.
fn patched(mut copy: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    copy[at..at + bytes.len()].copy_from_slice(bytes);
    let sum = xxhash_rust::xxh3::xxh3_64_with_seed(&copy[..COPY - 8], 0x5449_4552_534d_5448);
    copy[COPY - 8..].copy_from_slice(&sum.to_le_bytes());
    copy
}

#[test]
fn a_tier_of_another_format_is_refused_by_name_and_not_touched() {
    let place = Place::new();
    let member = place.member("m0");
    let spec = TierSpec::new("fast", member.clone(), Medium::Emulated, 12 << 20);
    let home = attach(&place.home(), std::slice::from_ref(&spec), place::options()).unwrap();
    home.create("a.d4").unwrap().write(0, &[3; 4096]).unwrap();
    drop(home);
    let image = fs::read(&member).unwrap();
    // Version 1 had no checksums at rest.
    let mut cases = vec![
        (0, 8, 1u32.to_le_bytes().to_vec(), "format version 1"),
        (0, 8, 3u32.to_le_bytes().to_vec(), "format version 3"),
    ];
    for (at, value, why) in [
        (140, 1u32, "incompatible features"),
        (160, 0, "role of"),
        (160, 2, "role of"),
        (164, 0, "ledger"),
        (164, 9, "ledger"),
        (168, 512, "sector"),
        (4000, 1, "this program"),
    ] {
        cases.push((0, at, value.to_le_bytes().to_vec(), why));
    }
    // Development builds called three other layouts versions 1 to 3.
    for version in 1..=3u32 {
        let head = [b"TIERSMTH".as_slice(), &version.to_le_bytes()].concat();
        cases.push((0, 0, head, "development build"));
    }
    // A program that knows the format may have been stopped between the two copies.
    for (_, at, bytes, why) in cases.clone() {
        cases.push((1, at, bytes, why));
    }
    for (only, at, bytes, why) in cases {
        let mut other = image.clone();
        for copy in only..2 {
            let range = copy * COPY..(copy + 1) * COPY;
            other[range.clone()].copy_from_slice(&patched(image[range].to_vec(), at, &bytes));
        }
        fs::write(&member, &other).unwrap();
        for overwrite in [false, true] {
            let spec = TierSpec { overwrite, ..spec.clone() };
            let error = attach(&place.home(), &[spec], place::options()).unwrap_err();
            assert!(matches!(error, Error::OtherFormat { .. }), "{error}");
            let said = error.to_string();
            assert!(said.contains(why) && said.contains("detach") && said.contains("m0"), "{said}");
        }
        let error =
            check(None, std::slice::from_ref(&member), &CheckOptions::default()).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(MemberLabel::read(&fs::File::open(&member).unwrap()).unwrap(), None);
        assert!(fs::read(&member).unwrap() == other, "nothing was changed");
    }
    fs::write(&member, image).unwrap();
    attach(&place.home(), &[spec], place::options()).unwrap().detach().unwrap();
    assert_eq!(fs::read(place.home().join("a.d4")).unwrap(), [3; 4096]);
}

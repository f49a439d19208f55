//! The two copies of a superblock: which is newer can be told at every moment of a change.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod place;

use std::sync::Arc;
use tiersmith_pmem::Mapping;
use tiersmith_store::check::{Severity, check_images};
use tiersmith_store::home::SimHome;
use tiersmith_store::{Options, TierSpec, testing};

const SIZE: u64 = 320 << 10;
const COPY: usize = 4096;

#[test]
fn of_a_superblock_that_grew_the_new_copy_is_the_newer_one_whichever_was_written_first() {
    let spec = TierSpec { max_size: 2 * SIZE, grow_by: SIZE, ..place::small("/simulated/fast".into(), SIZE) };
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

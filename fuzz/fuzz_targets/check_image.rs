//! The offline check of a damaged tier, or of any bytes: a report, never a panic.

#![no_main]

mod image;

use libfuzzer_sys::fuzz_target;
use tiersmith_store::check::{CheckOptions, check_images_with};

fuzz_target!(|input: &[u8]| {
    let (tier, _) = image::damaged(input);
    for after_recovery in [false, true] {
        let options = CheckOptions { after_recovery, findings_max: 20, ..CheckOptions::default() };
        // Alone, twice (a member given twice), cut short, and as raw bytes.
        let half = tier.len() / 2;
        for images in [&[&tier[..]][..], &[&tier[..], &tier[..]], &[&tier[..half]], &[input]] {
            let report = check_images_with(images, None, &options);
            assert!(report.findings.len() <= 20);
            assert!(!report.to_json().is_empty() && !format!("{report}").is_empty());
        }
    }
});

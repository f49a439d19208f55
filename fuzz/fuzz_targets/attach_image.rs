//! Attaches a damaged tier: an error, or a home that works; never a panic.
//!
//! Whether the data is right is asserted where bytes are changed one by one (`tests/hostile_flips.rs`): a tier put together from its own
//! past has right checksums and may rightly hold old data.

#![no_main]

mod image;

use libfuzzer_sys::fuzz_target;
use tiersmith_store::check::{CheckOptions, Severity, check_images_with};
use tiersmith_store::{AttachedHome, OpenMode};

/// Uses whatever is there. Errors are answers.
fn use_it(attached: AttachedHome) {
    for name in ["old", "new", "a.redo", "other"] {
        let Ok(file) = attached.open(name, OpenMode::CREATE) else { continue };
        let Ok(len) = file.len() else { continue };
        let mut bytes = vec![0; len.min(1 << 20) as usize];
        let _ = file.read(0, &mut bytes);
        if let Some(view) = file.read_ref(0) {
            assert!(view.len() <= 4096);
        }
        let _ = file.write(5000, &[9; 5000]);
        let _ = file.write_batch(&[(0, &[9; 4096]), (4096, &[9; 4096])]);
        let _ = file.truncate(len / 2);
        let _ = file.write(0, &[1; 100]);
    }
    let _ = attached.unlink("new");
    let _ = attached.rename("old", "other");
    let _ = attached.background_step();
    let _ = attached.flush_all();
    let _ = attached.evict(None, u64::MAX);
    let _ = attached.detach();
}

fuzz_target!(|input: &[u8]| {
    let (tier, home) = image::damaged(input);
    let Ok(attached) = image::attach(&tier, home) else { return };
    // The second reader of the format agrees that the metadata is whole. Blocks (19) recovery reads only where a record asks.
    let options = CheckOptions { after_recovery: false, ..CheckOptions::default() };
    let report = check_images_with(&[&tier], None, &options);
    let damage = report.findings.iter().find(|f| f.severity == Severity::Damage && f.invariant != 19);
    assert!(damage.is_none(), "it attached, and the check says {damage:?}");
    use_it(attached);
});

//! Snapshot files: the file as it is, and a body with its checksum made right; an error or a snapshot that is written as it was read.

#![no_main]

use tiersmith_awr::{Interval, Snapshot, report};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    // A checksum cannot be guessed by a fuzzer.
    let sum = xxhash_rust::xxh3::xxh3_64(text.trim().as_bytes());
    let whole = format!(
        "{{\"kind\":\"tiersmith snapshot\",\"format\":2,\"xxh3\":\"{sum:016x}\",\"snapshot\":{}}}\n",
        text.trim()
    );
    for text in [&*text, &whole] {
        let Ok(snapshot) = Snapshot::from_json(text, "here") else { continue };
        let again = Snapshot::from_json(&snapshot.to_json(), "here");
        // What was read may be wrong inside (two rows of one name): then the check said so already.
        assert_eq!(again.expect("what was read can be written and read"), snapshot);
        let mut later = snapshot.clone();
        later.monotonic_ns = later.monotonic_ns.saturating_add(1_000_000_000);
        if let Ok(interval) = Interval::between(&snapshot, &later) {
            let _ = report(&interval).text();
            let _ = report(&interval).html();
        }
    }
});

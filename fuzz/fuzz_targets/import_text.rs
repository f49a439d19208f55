//! Text reports of Oracle, after any of their titles: an error or two snapshots that make a report; never a panic.

#![no_main]

mod import;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    for title in ["STATSPACK report for\n", "WORKLOAD REPOSITORY report for\n"] {
        import::take(&format!("{title}{}{text}", import::TEXT_HEAD));
        import::take(&format!("{title}{text}"));
    }
});

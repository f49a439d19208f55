//! Pages of Oracle's reports: an error or two snapshots that make a report; never a panic.

#![no_main]

#[allow(dead_code, reason = "each target uses its part")]
mod import;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    import::take(&format!("{}{text}", import::HTML_HEAD));
    import::take(&format!("<table>{text}"));
});

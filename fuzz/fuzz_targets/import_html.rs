//! Pages of Oracle's reports: an error, or two snapshots that make a report; never a panic.

#![no_main]

#[allow(dead_code, reason = "each target uses its part")]
mod foreign;

libfuzzer_sys::fuzz_target!(|input: &[u8]| foreign::import_html(&String::from_utf8_lossy(input)));

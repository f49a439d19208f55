//! Snapshot files: an error, or a snapshot that is written as it was read.

#![no_main]

#[allow(dead_code, reason = "each target uses its part")]
mod foreign;

libfuzzer_sys::fuzz_target!(|input: &[u8]| foreign::snapshot(&String::from_utf8_lossy(input)));

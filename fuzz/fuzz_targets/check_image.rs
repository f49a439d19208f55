//! The offline check of a damaged tier, or of any bytes: a report, never a panic.

#![no_main]

#[allow(dead_code, reason = "each target uses its part")]
mod image;

libfuzzer_sys::fuzz_target!(|input: &[u8]| image::check(input));

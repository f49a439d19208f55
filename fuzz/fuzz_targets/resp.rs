//! Answers of a Redis: an error or a reply, in bounded memory; never a panic.

#![no_main]

#[allow(dead_code, reason = "each target uses its part")]
mod foreign;

libfuzzer_sys::fuzz_target!(|input: &[u8]| foreign::resp(input));

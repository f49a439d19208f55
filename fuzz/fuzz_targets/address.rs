//! Addresses of sources: read or refused, and no password is repeated.

#![no_main]

#[allow(dead_code, reason = "each target uses its part")]
mod foreign;

libfuzzer_sys::fuzz_target!(|input: &[u8]| foreign::address(&String::from_utf8_lossy(input)));

//! Attaches a damaged tier: an error, or a home that works; never a panic.

#![no_main]

#[allow(dead_code, reason = "each target uses its part")]
mod image;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    image::attach_and_use(input);
});

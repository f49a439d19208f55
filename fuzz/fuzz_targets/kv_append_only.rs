//! An append-only file of Redis to import: all of it is there, or an error and nothing.

#![no_main]

#[allow(dead_code, reason = "each target uses its part")]
mod served;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    served::append_only(input);
});

//! What a primary sends to a replica: it is followed, or a reason; the tier stays whole.

#![no_main]

#[allow(dead_code, reason = "each target uses its part")]
mod served;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    served::primary(input);
});

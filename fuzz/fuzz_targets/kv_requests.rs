//! Requests to the key-value server: answers, or the end of the connection; the tier stays whole.

#![no_main]

#[allow(dead_code, reason = "each target uses its part")]
mod served;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    served::requests(input);
});

//! Certificates as servers show them: read or not, asked everything; never a panic, never a control
//! character in a text.

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = tiersmith_awr::sources::take_certificate_apart(input);
});

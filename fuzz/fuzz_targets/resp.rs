//! Answers of a Redis: an error or a reply, in bounded memory; never a panic.

#![no_main]

use tiersmith_awr::resp::receive;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mut from = input;
    // Every reply takes at least a byte.
    while !from.is_empty() && receive(&mut from).is_ok() {}
});

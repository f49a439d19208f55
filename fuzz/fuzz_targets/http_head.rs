//! Heads of requests for metrics: a path or a status; never a panic.

#![no_main]

use tiersmith_awr::metrics::{Format, path_of_head};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    match path_of_head(input) {
        Ok(path) => assert!(path.starts_with('/') && !path.contains([' ', '\n', '?', '#'])),
        Err(status) => assert!(matches!(status, 400 | 405)),
    }
    if let Ok(text) = std::str::from_utf8(input) {
        let _ = Format::accepted(text);
    }
});

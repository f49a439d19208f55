//! The suites of threads, of what is full, of killed processes and of everything at once, on a tier
//! whose metadata is mapped and whose blocks are on a device of sectors. `place/media.rs` tells the
//! suites by the name of this file.
//!
//! What a power cut leaves of such a tier is in `crash_suite/sectors.rs`; what one does when it
//! fails, in `on_sectors.rs`.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

#[path = "it/full/mod.rs"]
mod full;
#[path = "it/gate/mod.rs"]
#[allow(dead_code, reason = "the other programs use the rest")]
mod gate;
#[path = "alone/kill.rs"]
mod kill;
#[path = "it/place/mod.rs"]
#[allow(dead_code, reason = "the other programs use the rest")]
mod place;
#[path = "it/threads/mod.rs"]
mod threads;
#[path = "it/torture.rs"]
mod torture;

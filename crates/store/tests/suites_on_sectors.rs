//! The suites of threads, of what is full, of killed processes and of everything at once, on a tier whose metadata is
//! mapped and whose blocks are on a device of sectors. `place/media.rs` tells the suites by the name of this file.
//!
//! What a power cut leaves of such a tier is in `crash_sectors.rs`; what one does when it fails, in `on_sectors.rs`.

#![allow(clippy::duplicate_mod, reason = "each suite brings its own helpers")]

#[path = "full.rs"]
mod full;
#[path = "kill.rs"]
mod kill;
#[path = "threads.rs"]
mod threads;
#[path = "torture.rs"]
mod torture;

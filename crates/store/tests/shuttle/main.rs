//! The protocol of claims, turns and entries, run by shuttle on the code itself: one thread at a
//! time, in thousands of orders that are chosen at each access to a lock, an atomic, a word or half
//! a block of the tier, or half a block at home.
//!
//! The scenes and the flaws are those of the model (`interleavings.rs`), by the same names
//! (`scenes`). What each adds: the model knows weak orders of memory and every order of a few
//! steps; here nothing is retold, every step of the code is there, and all of memory is seen by all
//! at once.
//!
//! Only with the feature `interleavings`; `./check` builds and runs it:
//!
//!     cargo test -p tiersmith-store --features interleavings --test shuttle

#![cfg(feature = "interleavings")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

mod copies;
mod moves;
#[path = "../it/place/mod.rs"]
#[allow(dead_code, reason = "the other programs use the rest")]
mod place;
mod redo;
#[path = "../it/scenes/mod.rs"]
#[allow(dead_code, reason = "the model uses the rest")]
mod scenes;
mod stage;

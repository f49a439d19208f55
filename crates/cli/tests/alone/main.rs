//! Integration tests that nothing else may disturb: each waits until no other runs (`alone`).

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The full name of a test of the file that says this, as `--exact` wants it.
macro_rules! full_name {
    ($test:expr) => {
        format!("{}::{}", module_path!().split_once("::").unwrap().1, $test)
    };
}

mod attached;
mod attached_attacks;
#[path = "../it/daemon/mod.rs"]
#[allow(dead_code, reason = "the other program uses the rest")]
mod daemon;
mod races;
mod sqlite_source;

/// To be held by each test. A process that another thread is just starting has, until its exec,
/// copies of this one's descriptors and their locks, and a database whose locks they are is in use.
/// And the processes and credentials of one race are not another's.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The integration tests of this crate: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

/// The full name of a test of the file that says this, as `--exact` wants it.
macro_rules! full_name {
    ($test:expr) => {
        format!("{}::{}", module_path!().split_once("::").unwrap().1, $test)
    };
}

#[cfg(not(miri))]
mod alone;
mod conformance;
mod faults;
mod open;
mod sectors;
mod simulator;
mod views;

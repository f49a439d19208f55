//! Tests that start processes. They are apart from the others because a process has copies of this
//! one's descriptors, and their locks, until its exec.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

/// The full name of a test of the file that says this, as `--exact` wants it.
macro_rules! full_name {
    ($test:expr) => {
        format!("{}::{}", module_path!().split_once("::").unwrap().1, $test)
    };
}

mod file_table;
mod fork;
mod kill;
mod media_errors;
mod open_files;
#[path = "../it/place/mod.rs"]
#[allow(dead_code, reason = "the other program uses the rest")]
mod place;
mod promises;

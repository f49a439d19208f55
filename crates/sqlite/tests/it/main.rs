//! The integration tests of this crate: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

/// The full name of a test of the file that says this, as `--exact` wants it.
macro_rules! full_name {
    ($test:expr) => {
        format!("{}::{}", module_path!().split_once("::").unwrap().1, $test)
    };
}

mod differential;
mod fork_programs;
mod kill;
mod kill_forks;
mod kill_unsynced;
mod ledger;
mod logic;
mod opens;
mod place_attach;
mod place_changed;
mod place_full;
mod place_keep_both;
mod place_refusals;
mod place_rights;
mod power_cut;
mod power_cut_again;
mod programs;
mod python_package;
mod sigbus;
mod simulated;
mod support;
mod two_libraries;
mod vfs_abort;
mod vfs_batch;
mod vfs_contract;
mod vfs_errors;
mod vfs_extension;
mod vfs_features;
mod vfs_modes;
mod vfs_sharing;
mod vfs_super;
mod vfs_support;

//! The integration tests of this crate: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

/// The full name of a test of the file that says this, as `--exact` wants it.
macro_rules! full_name {
    ($test:expr) => {
        format!("{}::{}", module_path!().split_once("::").unwrap().1, $test)
    };
}

mod behind;
mod daemon;
mod differential;
mod failed_create;
mod full;
mod hostile;
mod kill;
mod lend;
mod lend_dead;
mod lend_refused;
mod locks;
mod messages;
mod mmap;
mod mount_point;
mod namespaces;
mod open_files;
mod passthrough;
mod permissions;
mod place;
mod ring;
mod ring_support;
mod segment_log;
mod smoke;
mod synced_apart;
mod unprivileged;
mod user;
mod write_back;
mod xattr;

//! The integration tests of this crate: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

/// The full name of a test of the file that says this, as `--exact` wants it.
macro_rules! full_name {
    ($test:expr) => {
        format!("{}::{}", module_path!().split_once("::").unwrap().1, $test)
    };
}

mod acl;
mod bitfields;
mod bullmq;
mod catalogue;
mod clients;
mod crash;
mod crash_support;
mod differential;
mod docs;
mod eviction;
mod functions;
mod geo;
mod golden;
mod handover;
mod hold;
#[path = "../../../../fuzz/fuzz_targets/served/mod.rs"]
#[allow(unreachable_pub, reason = "shared with the fuzz targets")]
mod hostile;
mod hostile_bytes;
mod hostile_primary;
mod hostile_scripts;
mod io_threads;
mod kill;
mod limits;
mod linearizable;
mod monitor;
mod notices;
mod primary;
mod replica;
mod scripting;
mod scripts;
mod secured;
mod sequences;
mod served;
mod server;
mod slowlog;
mod space;
mod statistics;
mod streams;
mod tracking;

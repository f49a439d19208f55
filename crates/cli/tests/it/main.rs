//! The integration tests of this crate: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

/// The full name of a test of the file that says this, as `--exact` wants it.
macro_rules! full_name {
    ($test:expr) => {
        format!("{}::{}", module_path!().split_once("::").unwrap().1, $test)
    };
}

mod awr;
mod back_door;
mod confined;
mod cross_check;
mod daemon;
mod damaged;
mod database;
mod databases;
mod doctor;
mod help;
mod kv;
mod mount_points;
mod mounted;
mod mounted_files;
mod mounted_flash;
mod mounted_hot;
mod mounted_refusals;
mod mounted_status;
mod packages;
mod passthrough_dir;
mod planted;
mod power_cuts;
mod raw_dangers;
mod raw_devices;
mod raw_names;
mod raw_shared;
mod redis;
mod screen;
mod serve;
mod service;
mod study;
mod study_kv;
mod systemd;
mod top;
mod trial;
mod trial_copy;
mod trial_elsewhere;
mod trial_sqlite;
mod trial_target;
mod upgraded;
mod volume;

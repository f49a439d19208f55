//! The integration tests of this crate: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

/// The full name of a test of the file that says this, as `--exact` wants it.
macro_rules! full_name {
    ($test:expr) => {
        format!("{}::{}", module_path!().split_once("::").unwrap().1, $test)
    };
}

mod admission;
mod apart;
mod at_rest;
mod between_steps;
mod budget;
mod crash_suite;
mod crash_support;
mod docs;
mod door_attach;
mod door_names;
mod door_ranges;
mod door_times;
mod door_unsynced;
mod downloads;
mod ephemeral;
mod examples;
mod full;
mod gate;
mod golden;
mod hit_ratio;
mod hostile;
mod hostile_flips;
mod hostile_mixed;
mod hostile_offline;
mod interleavings;
mod lend;
mod lend_in_use;
mod lend_on_flash;
mod lend_threads;
mod map_pages;
mod model;
mod moving;
mod on_flash;
mod on_sectors;
mod paths;
mod place;
mod redo_drain;
mod refused_log;
mod results;
mod rooms;
mod scenes;
mod smoke;
mod steps_left_out;
mod superblock_copies;
mod threads;
mod torture;
mod tree;
mod usage;
mod what_if;

//! The integration tests of this crate: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

mod comparison;
mod cross_check;
mod database_studies;
mod loads;
mod recovery;
mod servers;
mod study;
mod tpcc;

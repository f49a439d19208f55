//! The integration tests of this crate: one program, a module for each subject.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

mod conformance;
mod file;
mod planted;

//! The integration tests of this crate that measure what servers do: beside the others of `it`,
//! which use the processors too, they would measure those.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

#[path = "../it/servers/mod.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod servers;
mod servers_findings;
mod servers_truth;
#[allow(dead_code, reason = "the tests of what was recorded use the rest")]
mod situation;

//! The lab: published experiments on your machine.
//!
//! A **case** (`cases/*.toml`) says which database settings, which load, and what is on the fast
//! tier. A **study** runs cases, each beside its baseline, and says what was found, what a public
//! document printed for the same question, and whether the figures can be trusted.
//!
//! ```text
//! case ---> target (SQLite, plain or attached) ---> run (sessions with a workload's plan)
//!      ---> two snapshots ---> study ---> text, JSON, page
//! ```
//!
//! **Invariants**: what is printed was measured; an emulated tier is labelled wherever a figure of
//! it appears; what a study makes is gone when it ends.
//!
//! **Deliberately absent**: the terminal, signals, the command line (crate `cli`); advice and cost
//! (to come).
//!
//! Read next: `case.rs`, `workload/slob.rs` (the load), `run.rs` (what is measured),
//! `study/mod.rs`.

#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

mod account;
pub mod case;
pub mod compared;
pub mod doctor;
mod error;
pub mod experiments;
mod installed;
pub mod mounted;
pub mod place;
pub mod probe;
pub mod process;
mod programs;
pub mod published;
pub mod run;
pub mod server;
mod session;
mod size;
pub mod sql;
pub mod study;
pub mod target;
pub mod trial;
pub mod workload;

pub use error::{Error, Result};
pub use size::ByteSize;

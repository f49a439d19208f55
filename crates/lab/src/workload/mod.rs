//! Workloads: what a session does next.
//!
//! A workload is a plan that knows no database: it says which operation comes next on which rows, and a target carries it out.
//! To add one, copy `slob.rs`: settings with their checks, a [`Plan`], and a place in the case file (`case.rs`).
//!
//! **Invariant**: the same settings and seed give the same steps, whatever the target and however long each step takes.
//! **Deliberately absent**: time. When a step is due is the business of `run.rs`.

pub mod keys;
pub mod slob;

use std::time::Duration;

/// What a session does to one schema. Ranges are open at both ends: rows with `after < custid < before`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Counts the rows of a range by index.
    Select {
        /// The key before the first row.
        after: i64,
        /// The key after the last row.
        before: i64,
    },
    /// Counts the rows of the scan table.
    Scan,
    /// Changes the rows of a range and commits.
    Update {
        /// The key before the first row.
        after: i64,
        /// The key after the last row.
        before: i64,
    },
}

/// One step of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Time to do nothing first.
    pub think: Option<Duration>,
    /// Which schema, from 0.
    pub schema: u32,
    /// What to do there.
    pub operation: Operation,
}

/// The steps of one session, without end.
pub trait Plan: Send {
    /// The next step.
    fn next(&mut self) -> Step;
}

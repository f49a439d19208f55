//! Workloads: what a session does next.
//!
//! A workload is a plan that knows no database: it says which operation comes next on which rows,
//! and a target carries it out. To add one, copy `slob.rs`: settings with their checks, a [`Plan`],
//! and a place in the case file (`case.rs`).
//!
//! **Invariant**: the same settings and seed give the same steps, whatever the target and however
//! long each step takes.
//! **Deliberately absent**: time. When a step is due is the business of `run.rs`.

pub mod keys;
pub mod slob;
pub mod tpcc;

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a server is loaded with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// SLOB's method, by the lab's own clients.
    #[default]
    Slob,
    /// pgbench, like TPC-B.
    Tpcb,
    /// pgbench without the tables that every transaction of TPC-B updates.
    SimpleUpdate,
    /// pgbench, SELECT only.
    SelectOnly,
    /// sysbench oltp_read_write.
    ReadWrite,
    /// sysbench oltp_read_only.
    ReadOnly,
    /// sysbench oltp_write_only.
    WriteOnly,
    /// redis-benchmark SET.
    Set,
    /// GET and SET as memtier_benchmark mixes them, by the lab's own clients.
    Mixed,
    /// TPC-C's five transactions, by the lab's own clients.
    Tpcc,
}

impl Load {
    /// Every one.
    pub const ALL: [Load; 10] = [
        Load::Slob,
        Load::Tpcb,
        Load::SimpleUpdate,
        Load::SelectOnly,
        Load::ReadWrite,
        Load::ReadOnly,
        Load::WriteOnly,
        Load::Set,
        Load::Mixed,
        Load::Tpcc,
    ];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Load::Slob => "slob",
            Load::Tpcb => "tpcb",
            Load::SimpleUpdate => "simple-update",
            Load::SelectOnly => "select-only",
            Load::ReadWrite => "read-write",
            Load::ReadOnly => "read-only",
            Load::WriteOnly => "write-only",
            Load::Set => "set",
            Load::Mixed => "mixed",
            Load::Tpcc => "tpcc",
        }
    }

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            Load::Slob => "SLOB's method",
            Load::Tpcb => "pgbench, like TPC-B",
            Load::SimpleUpdate => "pgbench, simple updates",
            Load::SelectOnly => "pgbench, SELECT only",
            Load::ReadWrite => "sysbench oltp_read_write",
            Load::ReadOnly => "sysbench oltp_read_only",
            Load::WriteOnly => "sysbench oltp_write_only",
            Load::Set => "redis-benchmark SET",
            Load::Mixed => "GET and SET, mixed as memtier_benchmark does",
            Load::Tpcc => "TPC-C's five transactions",
        }
    }
}

impl std::str::FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Load, String> {
        let names = || Load::ALL.map(Load::name).join(", ");
        Load::ALL
            .into_iter()
            .find(|load| load.name() == text)
            .ok_or_else(|| format!("give one of {}", names()))
    }
}

/// What a session does to one schema. Ranges are open at both ends: rows with
/// `after < custid < before`.
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

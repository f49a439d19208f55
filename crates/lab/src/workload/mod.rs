//! Workloads: what a session does next.
//!
//! A workload is a plan that knows no database: it says which operation comes next on which rows,
//! and a target carries it out. To add one, copy `slob.rs`: settings with their checks, a [`Plan`],
//! and a place in the case file (`case.rs`).
//!
//! **Invariant**: the same settings and seed give the same steps, whatever the target and however
//! long each step takes.
//! **Deliberately absent**: time. When a step is due is the business of `run.rs`.

pub mod clients;
pub mod keys;
pub mod oltp;
pub mod slob;
pub mod tpcc;
pub mod ycsb;

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
    /// YCSB, half reads and half updates, by the lab's own clients, as all that follow.
    YcsbA,
    /// YCSB, reads with a few updates.
    YcsbB,
    /// YCSB, reads only.
    YcsbC,
    /// YCSB, reads of the newest records, and inserts.
    YcsbD,
    /// YCSB, short scans, and inserts.
    YcsbE,
    /// YCSB, reads, and records read and written back.
    YcsbF,
    /// Transactions like sysbench's that only read.
    OltpReadOnly,
    /// Transactions like sysbench's that read and write.
    OltpReadWrite,
    /// Transactions like sysbench's that only write.
    OltpWriteOnly,
    /// SAP's client copy and client delete.
    ClientCopy,
    /// What pgbench does, by the lab's own clients. This and what follows is what a cross-check
    /// runs beside another load; no case has it.
    #[serde(skip)]
    OwnTpcb,
    /// Its simple updates.
    #[serde(skip)]
    OwnSimpleUpdate,
    /// Its SELECT.
    #[serde(skip)]
    OwnSelectOnly,
    /// redis-benchmark SET, then GET.
    #[serde(skip)]
    SetGet,
    /// memtier_benchmark.
    #[serde(skip)]
    Memtier,
}

impl Load {
    /// Every one that a case can have.
    pub const ALL: [Load; 20] = [
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
        Load::YcsbA,
        Load::YcsbB,
        Load::YcsbC,
        Load::YcsbD,
        Load::YcsbE,
        Load::YcsbF,
        Load::OltpReadOnly,
        Load::OltpReadWrite,
        Load::OltpWriteOnly,
        Load::ClientCopy,
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
            Load::YcsbA => "ycsb-a",
            Load::YcsbB => "ycsb-b",
            Load::YcsbC => "ycsb-c",
            Load::YcsbD => "ycsb-d",
            Load::YcsbE => "ycsb-e",
            Load::YcsbF => "ycsb-f",
            Load::OltpReadOnly => "oltp-read-only",
            Load::OltpReadWrite => "oltp-read-write",
            Load::OltpWriteOnly => "oltp-write-only",
            Load::ClientCopy => "client-copy",
            Load::OwnTpcb => "own-tpcb",
            Load::OwnSimpleUpdate => "own-simple-update",
            Load::OwnSelectOnly => "own-select-only",
            Load::SetGet => "set-get",
            Load::Memtier => "memtier",
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
            Load::YcsbA => "YCSB A, half reads and half updates",
            Load::YcsbB => "YCSB B, reads with a few updates",
            Load::YcsbC => "YCSB C, reads only",
            Load::YcsbD => "YCSB D, reads of the newest records, and inserts",
            Load::YcsbE => "YCSB E, short scans, and inserts",
            Load::YcsbF => "YCSB F, reads, and records read and written back",
            Load::OltpReadOnly => "OLTP like sysbench's, read only",
            Load::OltpReadWrite => "OLTP like sysbench's, read and write",
            Load::OltpWriteOnly => "OLTP like sysbench's, write only",
            Load::ClientCopy => "SAP's client copy and client delete",
            Load::OwnTpcb => "like pgbench, TPC-B",
            Load::OwnSimpleUpdate => "like pgbench, simple updates",
            Load::OwnSelectOnly => "like pgbench, SELECT only",
            Load::SetGet => "redis-benchmark SET and GET",
            Load::Memtier => "memtier_benchmark",
        }
    }

    /// Whether it is one of YCSB's, which key-value servers run as well.
    pub fn is_ycsb(self) -> bool {
        use Load::{YcsbA, YcsbB, YcsbC, YcsbD, YcsbE, YcsbF};
        matches!(self, YcsbA | YcsbB | YcsbC | YcsbD | YcsbE | YcsbF)
    }

    /// Whether its transactions are statements of its own in SQL (`target/transactions`).
    pub fn is_transactional(self) -> bool {
        !matches!(
            self,
            Load::Slob
                | Load::Tpcb
                | Load::SimpleUpdate
                | Load::SelectOnly
                | Load::ReadWrite
                | Load::ReadOnly
                | Load::WriteOnly
                | Load::Set
                | Load::SetGet
                | Load::Mixed
                | Load::Memtier
        )
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

/// The random choices of one client of several.
fn generator(seed: u64, client: u32) -> fastrand::Rng {
    // Far apart for neighbouring clients: fastrand's first numbers follow its seed.
    let seed = seed.wrapping_add(u64::from(client).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    fastrand::Rng::with_seed(fastrand::Rng::with_seed(seed).u64(..))
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

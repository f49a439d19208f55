//! The workload repository: what a database did between two instants, and how two such intervals
//! differ.
//!
//! ```text
//! Snapshot -- Interval::between --> Interval -- report, compare --> Report -- render --> text, CSV
//!     |                                                                |    Markdown, HTML
//! Repository: where snapshots are kept                          JSON: the same data
//! ```
//!
//! A [`Snapshot`] holds counters at one instant. Whoever knows a database fills it in: this crate
//! knows wait events and the host, and nobody else. The reports follow Oracle's Automatic Workload
//! Repository where it has the figure, and explain every event, so that a database administrator
//! finds what they look for where they look for it.
//!
//! ```
//! use tiersmith_awr::{Interval, Snapshot, Source, render, report};
//!
//! let (instance, database) = ("run 1".into(), "orders".into());
//! let source = Source { instance, database, ..Source::default() };
//! let mut first = Snapshot::at(source.clone(), 1_000_000_000_000_000_000, 0);
//! first.add_counter("user commits", "transactions", 0);
//! let mut second = Snapshot::at(source, 1_000_000_060_000_000_000, 60_000_000_000);
//! second.add_counter("user commits", "transactions", 1200);
//! let interval = Interval::between(&first, &second)?;
//! assert!(render::text(&report(&interval)).contains("20.00"));
//! # Ok::<(), tiersmith_awr::Error>(())
//! ```
//!
//! # Invariants
//!
//! - What was not measured is not printed; an empty cell is never a zero.
//! - Time that is in two waits is not added up twice, and what no wait accounts for has a line of
//!   its own.
//! - A figure from an emulated medium carries the word.
//! - No text from outside makes a reader panic, becomes a tag in HTML, or reaches a terminal as a
//!   control character.
//!
//! # Rooms, from the bottom up
//!
//! | room | what |
//! |---|---|
//! | `figure`, `table`, `id`, `error` | figures as people read them, tables as data, numbers of snapshots |
//! | `chart/` | charts as data, and what a page opens with |
//! | `snapshot/` | counters at one instant, the host, names of statistics, the text form |
//! | `interval/` | differences, sums over restarts, steps between the ends |
//! | `sources/`, `import/`, `redact` | who fills in snapshots: live servers, Oracle's reports |
//! | `repository/` | where snapshots are kept: a directory, one file, a PostgreSQL; export |
//! | `record`, `outbox` | recording beside a server that must not wait |
//! | `findings/` | statements with evidence and advice |
//! | `report/` | reports as data |
//! | `page/` | charts, tables and text as one page of HTML |
//! | `render/` | a report as text, CSV, Markdown and a page |
//! | `metrics/` | the newest snapshot for Prometheus |
//!
//! A room imports only rooms above it in this table: a test of the workspace holds that there is no
//! cycle, and that nothing imports `render/`. Deliberately absent: what-if, cost, and knowledge of
//! how a database's files are cached.
//!
//! Read next: `snapshot/mod.rs`, `interval/mod.rs`, `report/mod.rs`, `render/mod.rs`.

#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

// The servers of the tests are started by the same file in tests of this crate's inside, where it
// has another name.
#[cfg(test)]
extern crate self as tiersmith_awr;

mod chart;
mod error;
pub mod figure;
pub mod findings;
mod id;
pub mod import;
mod interval;
pub mod metrics;
mod outbox;
pub mod page;
pub mod record;
mod redact;
pub mod render;
mod report;
mod repository;
mod snapshot;
pub mod sources;
mod table;

pub use error::{Error, Result};
pub use id::SnapshotId;
pub use interval::{Break, CounterDelta, Interval, LeftOut, Series, Step, Timeline, WaitDelta};
pub use redact::{NamesKey, Redaction};
pub use render::write_table;
pub use report::{Item, Report, Section, compare, report};
pub use repository::{
    AnyRepository, Entry, Listing, Recording, Repository, archive, export, read_snapshot,
};
pub use snapshot::file::FileStat;
pub use snapshot::known::statistic;
pub use snapshot::object::{ObjectKind, ObjectStat};
pub use snapshot::plan::PlanStat;
pub use snapshot::printed::Printed;
pub use snapshot::sampling::who::{OfOne, SampledWho, by_who};
pub use snapshot::sampling::{CPU, ON_CPU, SampleStat, Sampling, Seen, Who};
pub use snapshot::statement::{StatementDeltas, StatementStat};
pub use snapshot::tables::TableStat;
pub use snapshot::{
    CounterStat, FORMAT, IoStat, LevelStat, MediumStat, Snapshot, Source, WaitStat, host,
};
pub use sources::{add_waits_of_kv, resp};
pub use table::{Align, Cell, Column, Quantity, Table};
/// Wait events, which snapshots are made of.
pub use tiersmith_events as events;

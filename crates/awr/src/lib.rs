//! The workload repository: what a database did between two instants, and how two such intervals differ.
//!
//! ```text
//! Snapshot  --- Interval::between --->  Interval  --- report, compare --->  Report  ---> text, JSON, HTML
//!     |                                                                                      |
//! Repository: a directory of snapshots                                            page: HTML, one file
//! ```
//!
//! A [`Snapshot`] holds counters at one instant. Whoever knows a database fills it in: this crate knows wait
//! events and the host, and nobody else. The reports follow Oracle's Automatic Workload Repository where it
//! has the figure, and explain every event, so that a database administrator finds what they look for where
//! they look for it.
//!
//! ```
//! use tiersmith_awr::{Interval, Snapshot, Source, report};
//!
//! let source = Source { instance: "run 1".into(), database: "orders".into(), ..Source::default() };
//! let mut first = Snapshot::at(source.clone(), 1_000_000_000_000_000_000, 0);
//! first.add_counter("user commits", "transactions", 0);
//! let mut second = Snapshot::at(source, 1_000_000_060_000_000_000, 60_000_000_000);
//! second.add_counter("user commits", "transactions", 1200);
//! let interval = Interval::between(&first, &second)?;
//! assert!(report(&interval).text().contains("20.00"));
//! # Ok::<(), tiersmith_awr::Error>(())
//! ```
//!
//! # Invariants
//!
//! - What was not measured is not printed; an empty cell is never a zero.
//! - Time that is in two waits is not added up twice, and what no wait accounts for has a line of its own.
//! - A figure from an emulated medium carries the word.
//! - No text from outside makes a reader panic, becomes a tag in HTML, or reaches a terminal as a control
//!   character.
//!
//! Deliberately absent: sampling, findings and advice, sources (they live where the database is known),
//! statements.
//!
//! Read next: `snapshot.rs`, `interval.rs`, `report/mod.rs`, `page/mod.rs`.

#![forbid(unsafe_code)]

// The servers of the tests are started by the same file in tests of this crate's inside, where it has another name.
#[cfg(test)]
extern crate self as tiersmith_awr;

pub mod archive;
mod delimited;
mod encoding;
mod error;
pub mod export;
pub mod figure;
mod file;
pub mod findings;
pub mod host;
pub mod import;
mod interval;
mod joined;
mod keep;
mod known;
mod latest;
pub mod metrics;
mod outbox;
pub mod page;
mod private;
pub mod record;
mod redact;
mod report;
mod repository;
mod sampling;
mod series;
mod snapshot;
pub mod sources;
mod statement;
mod table;
mod text;

pub use encoding::FORMAT;
pub use error::{Error, Result};
pub use file::FileStat;
pub use interval::{CounterDelta, Interval, WaitDelta};
pub use joined::LeftOut;
pub use keep::AnyRepository;
pub use known::statistic;
pub use latest::Recording;
pub use redact::{NamesKey, Redaction};
pub use report::{Item, Report, Section, Timeline, compare, report};
pub use repository::{Entry, Listing, Repository, SnapshotId, read_snapshot};
pub use sampling::{CPU, ON_CPU, SampleStat, Sampling};
pub use series::{Break, Series, Step};
pub use snapshot::{CounterStat, IoStat, LevelStat, MediumStat, Snapshot, Source, WaitStat};
pub use sources::resp;
pub use statement::{StatementDeltas, StatementStat};
pub use table::{Align, Cell, Column, Quantity, Table};
pub use text::write_table;
/// Wait events, which snapshots are made of.
pub use tiersmith_events as events;

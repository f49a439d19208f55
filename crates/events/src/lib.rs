//! Wait events: what a program waited for, how often and how long.
//!
//! A part of Tiersmith lists its wait events and counters in two tables ([`wait_events!`],
//! [`counters!`]), makes one [`Registry`] from them, and times each wait with [`Registry::start`]
//! and [`Registry::record`]. A reader calls [`Registry::read`] whenever it likes; the difference of
//! two readings ([`Totals::since`]) is what a report prints.
//!
//! ```
//! use tiersmith_events::{Registry, counters, wait_events};
//!
//! wait_events! {
//!     /// The waits of the part.
//!     pub const EVENTS;
//!     /// A block read from the home file.
//!     HOME_READ = "home block read", UserIo;
//!     /// Dirty blocks written to the home file.
//!     DESTAGE_WRITE = "destage write", SystemIo, background;
//! }
//! counters! {
//!     /// The counters of the part.
//!     pub const COUNTERS;
//!     /// Reads answered by the fast tier.
//!     TIER_HITS = "tier hits", "blocks";
//! }
//!
//! let registry = Registry::new(EVENTS, COUNTERS);
//! let start = registry.start();
//! // ... wait for something ...
//! registry.record_n(HOME_READ, start, 8192);
//! registry.count(TIER_HITS, 1);
//! let totals = registry.read();
//! assert_eq!(totals.event(HOME_READ).count(), 1);
//! assert_eq!(totals.event(HOME_READ).bytes(), 8192);
//! assert_eq!(totals.counter(TIER_HITS), 1);
//! ```
//!
//! # How it records
//!
//! Each thread has a shard of its own per registry and is the only writer of it, so recording is
//! plain loads and stores: no lock, no locked instruction, no cache line that two threads write.
//! Reading sums the shards and stops nobody. A thread that ends gives its shard back with the
//! totals in it, and the next thread goes on counting there.
//!
//! # Invariants
//!
//! - Nothing is lost and nothing is counted twice: a shard has one writer at a time and is never
//!   emptied.
//! - Every value of a reading is at least that of an earlier reading of the same registry.
//! - The number of waits *is* the sum of the histogram, so the two cannot disagree.
//! - A registry costs one small allocation until a thread records in it.
//!
//! Deliberately absent: names of sessions and statements, sampling, output formats, knowledge of
//! any other part.
//!
//! Read next: `registry.rs` (the handle), `shard.rs` (what recording does), `histogram.rs` (the
//! error bound).

#![forbid(unsafe_code)]

mod cells;
mod class;
mod clock;
mod define;
mod histogram;
mod registry;
mod shard;
mod tally;
mod totals;

pub use cells::CELLS;
pub use class::WaitClass;
pub use clock::calibrate_clock;
pub use define::{CounterDef, CounterId, EventDef, EventId};
pub use histogram::{Bucket, Histogram, HistogramError};
pub use registry::{Recorder, Registry, Start};
pub use tally::Tally;
pub use totals::{ClassTotals, EventTotals, Totals};

//! The store: attach a fast tier to a directory, never torn, never lost.
//!
//! A database directory (the home) stays what it is. Beside it, on fast storage (the tier), the
//! store keeps for each file a block map and some blocks; one map entry of eight bytes says where
//! the newest version of a block is.
//!
//! ```
//! use tiersmith_store::{Guard, Medium, OpenMode, Options, TierSpec, attach};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let place = tempfile::tempdir()?;
//! # let home = place.path().join("db");
//! # std::fs::create_dir(&home)?;
//! # let tier = place.path().join("fast");
//! // On persistent memory: Medium::Persistent and a file on a DAX file system.
//! let spec = TierSpec::new("fast", tier, Medium::Emulated, 16 << 20);
//! let attached = attach(&home, &[spec], Options::default())?;
//! let file = attached.open("app.db", OpenMode::CREATE)?;
//! file.write(0, b"durable when this returns")?;
//! drop(file);
//! attached.detach()?;
//! assert_eq!(std::fs::read(home.join("app.db"))?, b"durable when this returns");
//! # Ok(())
//! # }
//! ```
//!
//! Start reading at [`ledger::switch`](crate) (the life of one write is in `ARCHITECTURE.md`), then
//! `file`, `destage`, `recover`. The formats are in `format`, and read a second time by [`check`].
//!
//! **Invariants** are numbered in `docs/crash-safety.md`, each with the test that pins it.
//!
//! **Deliberately absent**: anything that knows a database, a protocol or a mount. Those are doors,
//! and build on [`AttachedHome`] and [`File`].

#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

mod address;
mod api;
mod attach;
mod cache;
pub mod check;
#[cfg(any(test, feature = "testing"))]
pub mod crash;
mod detach;
mod environment;
mod error;
mod file;
mod format;
pub mod home;
mod homeward;
mod known;
mod ledger;
mod lend;
mod medium;
mod mover;
mod names;
mod note;
mod options;
mod plain;
mod planted;
pub mod profile;
mod recover;
mod stats;
mod store;
mod sync;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tier;
pub mod waits;

pub use address::BlockSize;
pub use api::lend::LentFile;
pub use api::list::{CacheRuleUse, Candidate, FileInTier, FileUsed};
pub use api::open::HomeDescriptor;
pub use api::{AttachedHome, BlockRef, File, OpenMode};
pub use attach::{Bound, Guard, Options, TierSpec, attach};
pub use cache::budget::BudgetUse;
pub use cache::usage::{FileUse, Skip};
pub use cache::what_if::{WhatIf, WhatIfPoint};
pub use error::{Error, HomeStamp, Result};
pub use format::entry::State;
pub use home::model::HomeModel;
pub use home::{FileTime, Named, RenameFlags};
pub use known::times::{Overlay, SetTime};
pub use lend::{LendingStats, holders::LentInUse};
/// A handler of SIGBUS that says what it was about ([`AttachedHome::watch_sigbus`]).
pub use medium::SigbusWatch;
/// Whether an open file is open anywhere else, for doors that keep files of their own.
pub use medium::is_only_opening;
pub use medium::{Durability, Medium, OnDevice};
pub use mover::pace::Moved;
pub use mover::scrub::Scrubbed;
pub use mover::unreadable::LostBlock;
pub use note::{AttachedTier, Attachment, IsTier, attachment};
pub use options::WriteBudget;
pub use plain::named::LentIn;
pub use planted::Planted;
pub use profile::{CacheRule, CacheRules, CacheRulesError, FileClass, Keeping, Placement, Profile};
pub use stats::{RecoveryReport, Stats, TierStats};
pub use tier::label::MemberLabel;
/// Wait events, of which [`AttachedHome::events`] is a registry; a door records its own with them.
pub use tiersmith_events as events;
/// What a forked child must not use, for doors that keep things of one process.
pub use tiersmith_pmem::process;

/// What the frames of a mapping share with the store where shuttle schedules both.
#[cfg(feature = "interleavings")]
use tiersmith_pmem::sync as of_frames;

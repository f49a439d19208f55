//! The mount: an attached home as a FUSE file system, for databases that know nothing of it.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tiersmith_store::{Medium, Options, TierSpec, attach};
//! let spec = TierSpec::new("fast", "/mnt/pmem0/main.tier", Medium::Persistent, 8 << 30);
//! let home = std::path::Path::new("/var/lib/postgresql/15/main");
//! let home = attach(home, &[spec], Options::default())?;
//! let at = home.home_path();
//! let mounted = tiersmith_mount::mount(home, &at, &tiersmith_mount::Options::default())?;
//! println!("{:?}", mounted.report());
//! mounted.wait();
//! # Ok(())
//! # }
//! ```
//!
//! Start reading at [`mounted`](crate), then `session` (how requests come), `wire` (what they are)
//! and `fs` (what is done).
//!
//! **Invariants**
//! - A write is answered when the store has it: nothing is kept back here, and in the kernel's page
//!   cache only without
//!   [`Options::atomic_pages`]: then a sync is answered when the store has what it is about.
//! - An aligned write of whole blocks reaches the store whole, up to 1 MiB at a time.
//! - A panic while a request is served ends in an error for the one who asked, never in the end of
//!   the mount.
//! - Nobody gets more rights than the home gives; nothing outside the home is touched, whatever is
//!   in it.
//!
//! **Deliberately absent**: which file belongs into the tier (profiles), the life of a daemon, and
//! anything that knows a database.

#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

mod answer;
mod attr;
mod caller;
mod device;
mod error;
mod fs;
mod header;
#[cfg(feature = "testing")]
pub mod messages;
mod mounted;
mod options;
mod pages;
mod passage;
mod point;
mod requests;
pub mod ring;
mod session;
mod users;
mod wire;

pub use error::Error;
pub use mounted::{Mounted, Reporter, clear_dead, is_dead, mount};
pub use options::{Options, Report, Transport, sync_on_write_for, xattrs_if_any_for};
pub use passage::clear_passage;

//! SQLite on a fast tier: the VFS `tiersmith`, linked into a program or loaded as an extension.
//!
//! A database is attached by the URI it is opened with
//! (`file:app.db?vfs=tiersmith&fast=/mnt/pmem0/app.tier&size=1G`) and stays attached until it is
//! detached; from then on `file:app.db?vfs=tiersmith` is enough. A database that is not attached
//! goes to the VFS below, timed.
//!
//! Start reading at `vfs.rs` (which file goes where), then `file.rs` and `batch.rs` (what a commit
//! does); [`place`] is how a database is attached and what keeps others from opening it; `border`
//! is where C ends.
//!
//! **Invariant**: no `unsafe` outside `ffi`, `border`, `extension` and the file locks of `place`;
//! no panic reaches SQLite.
//!
//! **Deliberately absent**: SQL of our own, and sharing an attached database between processes
//! (that is the mount's).

#![deny(unsafe_code)]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

mod batch;
#[allow(unsafe_code, reason = "a border: SQLite calls in here")]
mod border;
#[allow(unsafe_code, reason = "a border: two clocks of the C library")]
mod clock;
mod database;
mod error;
#[allow(unsafe_code, reason = "a border: SQLite loads the extension here")]
mod extension;
#[allow(unsafe_code, reason = "a border: SQLite and the VFS below are called here")]
mod ffi;
mod file;
mod files;
mod inspect;
mod journal;
mod locks;
#[allow(unsafe_code, reason = "the file locks of SQLite, in one file")]
pub mod place;
mod plain;
mod pragmas;
#[cfg(feature = "linked")]
mod register;
mod result;
mod rights;
mod shared;
mod shm;
mod statistics;
mod vfs;
mod waits;
mod wal;

pub use extension::{sqlite3_extension_init, sqlite3_tiersmithsqlite_init};
#[cfg(feature = "linked")]
pub use register::{Error, attach, detach, detach_keeping_both, open_only_files, register};
pub use waits::{PLAIN_EVENTS, plain_events};

/// The name to open databases with: `vfs=tiersmith`.
pub const VFS_NAME: &str = "tiersmith";

/// Whether the VFS is to be the default one: for running SQLite's own test suite on it.
fn wants_default() -> bool {
    std::env::var_os("TIERSMITH_SQLITE_DEFAULT").is_some_and(|v| v == "1")
}

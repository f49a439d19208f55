//! The wait events of databases that are not attached: the stock VFS, timed.
//!
//! An attached database's waits are in the registry of its home
//! ([`tiersmith_store::AttachedHome::events`]), where the store records them; none of them is
//! recorded here a second time. The names are those a database administrator knows from Oracle.

use std::sync::LazyLock;
use tiersmith_store::events::{Registry, wait_events};

wait_events! {
    /// Every wait recorded for plain databases.
    pub const PLAIN_EVENTS;
    /// A read of the database file.
    DB_READ = "db file sequential read", UserIo;
    /// A write of the database file; to the page cache of the operating system.
    DB_WRITE = "db file parallel write", SystemIo;
    /// A sync of the database file.
    DB_SYNC = "db file sync", UserIo;
    /// A read of the WAL or journal.
    REDO_READ = "log file sequential read", SystemIo;
    /// A write of the WAL or journal; to the page cache of the operating system.
    REDO_WRITE = "log file parallel write", SystemIo;
    /// A sync of the WAL or journal: what a commit waits for.
    REDO_SYNC = "log file sync", Commit;
}

static PLAIN: LazyLock<Registry> = LazyLock::new(|| Registry::new(PLAIN_EVENTS, &[]));

/// What this process waited for in databases that are not attached, all of them together.
pub fn plain_events() -> &'static Registry {
    &PLAIN
}

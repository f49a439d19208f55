//! What all connections of one attached database share in this process.
//!
//! Read next: `locks.rs`, `shm.rs`, `journal.rs`, `wal.rs` and `statistics.rs`, its parts;
//! `database.rs` for who uses it.

use crate::journal::Journal;
use crate::locks::Locks;
use crate::shm::Index;
use crate::statistics::Publishing;
use crate::wal::Frames;
use parking_lot::Mutex;

/// See above. A place keeps it for the VFS.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) locks: Locks,
    pub(crate) index: Index,
    pub(crate) journal: Journal,
    pub(crate) wal: Frames,
    pub(crate) statistics: Publishing,
    /// Files of it that are open.
    pub(crate) users: Mutex<usize>,
}

//! The number of a snapshot in its repository: what errors, intervals and repositories all name it
//! by.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a snapshot in its repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SnapshotId(u64);

impl SnapshotId {
    /// The snapshot of this number.
    pub const fn new(number: u64) -> SnapshotId {
        SnapshotId(number)
    }

    /// The number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

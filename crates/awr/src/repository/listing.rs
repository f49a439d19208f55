//! What a repository of any form says of its snapshots without reading them.

use std::path::PathBuf;

use serde::Serialize;

use crate::{Error, SnapshotId};

/// What a repository holds.
#[derive(Debug)]
pub struct Listing {
    /// The snapshots, in the order of their numbers.
    pub entries: Vec<Entry>,
    /// Files that are named as snapshots and cannot be read, each with the reason.
    pub damaged: Vec<(PathBuf, Error)>,
}

/// One snapshot of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its number.
    pub id: SnapshotId,
    /// Its file; for a repository that is no directory, the source.
    pub path: PathBuf,
    /// Where the database lies, as the snapshot says it.
    pub source: String,
    /// When it was taken, nanoseconds since 1970 in UTC.
    pub taken_unix_ns: u64,
    /// The name of the database.
    pub database: String,
    /// Which run of the source.
    pub instance: String,
}

impl Entry {
    /// Whether its time is as another program printed it, without a zone, and not in UTC.
    pub fn is_as_printed(&self) -> bool {
        self.source.starts_with(crate::import::PATH_BEGINS)
    }
}

/// Larger files are not snapshots of this program: thousands of events with full histograms are a
/// few megabytes.
pub(crate) const MOST_BYTES: u64 = 256 << 20;

//! The errors of the workload repository: each says what was tried, on what, why it failed and what to do.

use std::io;
use std::path::PathBuf;

use crate::SnapshotId;

/// What can go wrong with snapshots and intervals. `Display` is a sentence with the remedy; sources are kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory of the repository could not be used.
    #[error("cannot {action} {}: {source}. {remedy}", path.display())]
    Io {
        /// What was tried, for instance `read the snapshot`.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// The text is not a snapshot, or not one of this program.
    #[error("cannot read {place} as a snapshot: {reason}. Give a file that `tiersmith awr snapshot` wrote")]
    Foreign {
        /// The file, or where else the text came from.
        place: String,
        /// What was found.
        reason: String,
    },
    /// The snapshot was written by a later program.
    #[error(
        "cannot read {place}: it is a snapshot of format {found}, this program knows format {known}. \
         Use a newer tiersmith"
    )]
    Format {
        /// The file, or where else the text came from.
        place: String,
        /// The format in it.
        found: u64,
        /// The newest format this program knows.
        known: u32,
    },
    /// A snapshot whose contents contradict each other or its checksum.
    #[error("{place} is damaged: {reason}. Leave it out and take another snapshot")]
    Damaged {
        /// The file, or where else the text came from.
        place: String,
        /// What does not fit, and where in the snapshot.
        reason: String,
    },
    /// Between the snapshots the source began to count anew.
    #[error(
        "the source was restarted between the snapshots: {reason}. Its counters began again at zero, so the \
         difference means nothing; choose two snapshots after the restart. Of a repository that has snapshots of both \
         runs in between, a report adds up what was counted before and after"
    )]
    Restarted {
        /// What showed it.
        reason: String,
    },
    /// Between the snapshots a group of counters was set to zero.
    #[error(
        "counters were reset between the snapshots: {reason}. A difference across a reset means nothing; choose two \
         snapshots after it. Of a repository that has snapshots on both sides, a report adds up what was counted before and \
         after"
    )]
    Reset {
        /// Which group, and when.
        reason: String,
    },
    /// A database that is to be looked at cannot be reached, or refuses.
    #[error("cannot {action} {place}: {reason}. {remedy}")]
    Source {
        /// What was tried, for instance `connect to`.
        action: &'static str,
        /// The source, without any password.
        place: String,
        /// Why it failed.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// A repository in one file cannot be used.
    #[error("cannot {action} the repository {}: {reason}. {remedy}", path.display())]
    Archive {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// A file that is not a report that can be imported.
    #[error(
        "cannot import {place}: {reason}. Give an AWR report in HTML or text, or a Statspack report in text"
    )]
    Import {
        /// The file.
        place: String,
        /// What was found.
        reason: String,
    },
    /// The snapshots are of different databases.
    #[error("the snapshots are not of one source: {reason}. Choose two snapshots of the same database")]
    OtherSource {
        /// What differs.
        reason: String,
    },
    /// The first snapshot was not taken before the second.
    #[error(
        "cannot make an interval of these snapshots: {reason}. Give the earlier one first, and two \
         different ones"
    )]
    NoTime {
        /// What was found.
        reason: String,
    },
    /// No snapshot of this number.
    #[error("there is no snapshot {id} in {}; `tiersmith awr list` shows what is there", path.display())]
    NoSuchSnapshot {
        /// The number asked for.
        id: SnapshotId,
        /// The repository.
        path: PathBuf,
    },
}

/// The result of the workload repository's calls.
pub type Result<T> = std::result::Result<T, Error>;

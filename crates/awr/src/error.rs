//! The errors of the workload repository: each says what was tried, on what, why it failed and what
//! to do.

use std::io;
use std::path::{Path, PathBuf};

use crate::figure::visible;
use crate::id::SnapshotId;

/// What can go wrong with snapshots and intervals. `Display` is a sentence with the remedy; sources
/// are kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory of the repository could not be used.
    #[error("cannot {action} {}: {source}. {remedy}", shown(path))]
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
    #[error(
        "cannot read {} as a snapshot: {}. Give a file that `tiersmith awr snapshot` wrote",
        visible(place),
        visible(reason)
    )]
    Foreign {
        /// The file, or where else the text came from.
        place: String,
        /// What was found.
        reason: String,
    },
    /// The snapshot was written by a program of another format.
    #[error(
        "cannot read {}: it is a snapshot of format {found}, this program knows format {known}. \
         Use the tiersmith that recorded it",
        visible(place)
    )]
    Format {
        /// The file, or where else the text came from.
        place: String,
        /// The format in it.
        found: u64,
        /// The format this program knows.
        known: u32,
    },
    /// A snapshot whose contents contradict each other or its checksum.
    #[error(
        "{} is damaged: {}. Leave it out and take another snapshot",
        visible(place),
        visible(reason)
    )]
    Damaged {
        /// The file, or where else the text came from.
        place: String,
        /// What does not fit, and where in the snapshot.
        reason: String,
    },
    /// Between the snapshots the source began to count anew.
    #[error(
        "the source was restarted between the snapshots: {}. Its counters began again at zero, so \
         the \
         difference means nothing; choose two snapshots after the restart. Of a repository that \
         has snapshots of both \
         runs in between, a report adds up what was counted before and after",
        visible(reason)
    )]
    Restarted {
        /// What showed it.
        reason: String,
    },
    /// Between the snapshots a group of counters was set to zero.
    #[error(
        "counters were reset between the snapshots: {}. A difference across a reset means nothing; \
         choose two \
         snapshots after it. Of a repository that has snapshots on both sides, a report adds up \
         what was counted before and \
         after",
        visible(reason)
    )]
    Reset {
        /// Which group, and when.
        reason: String,
    },
    /// A database that is to be looked at cannot be reached, or refuses.
    #[error("cannot {action} {}: {}. {remedy}", visible(place), visible(reason))]
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
    #[error("cannot {action} the repository {}: {}. {remedy}", shown(path), visible(reason))]
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
        "cannot import {}: {}. Give an AWR report in HTML or text, or a Statspack report in text",
        visible(place),
        visible(reason)
    )]
    Import {
        /// The file.
        place: String,
        /// What was found.
        reason: String,
    },
    /// The snapshots are of different databases.
    #[error(
        "the snapshots are not of one source: {}. Choose two snapshots of the same database",
        visible(reason)
    )]
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
    #[error(
        "there is no snapshot {id} in {}; `tiersmith awr list` shows what is there",
        shown(path)
    )]
    NoSuchSnapshot {
        /// The number asked for.
        id: SnapshotId,
        /// The repository.
        path: PathBuf,
    },
}

/// A path as it may go to a terminal.
fn shown(path: &Path) -> String {
    visible(&path.display().to_string())
}

/// The result of the workload repository's calls.
pub type Result<T> = std::result::Result<T, Error>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_place_reaches_a_terminal_as_a_command() {
        let bad = "/tmp/\u{1b}[31mx\u{202e}".to_owned();
        let path = PathBuf::from(&bad);
        let (reason, remedy) = (String::new(), String::new());
        let errors = [
            Error::Io {
                action: "read",
                path: path.clone(),
                source: io::Error::other("no"),
                remedy: "",
            },
            Error::Foreign { place: bad.clone(), reason: reason.clone() },
            Error::Format { place: bad.clone(), found: 9, known: 2 },
            Error::Damaged { place: bad.clone(), reason: reason.clone() },
            Error::Source {
                action: "use",
                place: bad.clone(),
                reason: reason.clone(),
                remedy: remedy.clone(),
            },
            Error::Archive { action: "read", path: path.clone(), reason: bad.clone(), remedy },
            Error::Import { place: bad.clone(), reason },
            Error::OtherSource { reason: bad.clone() },
            Error::Restarted { reason: bad.clone() },
            Error::NoSuchSnapshot { id: SnapshotId::new(1), path },
        ];
        for error in errors {
            let text = error.to_string();
            assert!(text.contains("\\u{1b}[31mx"), "{text}");
            assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
        }
    }
}

//! Which wait class a wait event of PostgreSQL belongs to.
//!
//! PostgreSQL groups its events by kind (IO, LWLock, IPC, ...); the classes of the reports group
//! them by what can be done about them, as Oracle's do. Names changed their spelling in version 17
//! (`WALSync` became `WalSync`), so they are compared without regard to case.
//!
//! Deliberately absent: help texts, which PostgreSQL 17 and later have in pg_wait_events.

use tiersmith_events::WaitClass;

/// The class of an event, by its kind and name as pg_stat_activity has them.
pub(super) fn class(kind: &str, name: &str) -> WaitClass {
    let lower = name.to_ascii_lowercase();
    match kind {
        "IO" if matches!(lower.as_str(), "walsync" | "walwrite" | "walsyncmethodassign") => {
            WaitClass::Commit
        }
        "IO" if lower.starts_with("wal") => WaitClass::SystemIo,
        "IO" => WaitClass::UserIo,
        // Waiting for a place in the group that is written and synced together.
        "LWLock" if lower == "walwrite" || lower == "walwritelock" => WaitClass::Commit,
        "LWLock" if matches!(lower.as_str(), "walinsert" | "walbufmapping") => {
            WaitClass::Configuration
        }
        "LWLock" | "BufferPin" | "Buffer" => WaitClass::Concurrency,
        "Lock" => WaitClass::Application,
        "IPC" if lower == "syncrep" => WaitClass::Commit,
        "IPC" if lower == "bufferio" => WaitClass::UserIo,
        "IPC" if lower.starts_with("checkpoint") => WaitClass::Configuration,
        "Client" => WaitClass::Network,
        "Activity" => WaitClass::Idle,
        _ => WaitClass::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spelling_of_every_version_has_the_same_class() {
        for (kind, name, expected) in [
            ("IO", "WALSync", WaitClass::Commit),
            ("IO", "WalSync", WaitClass::Commit),
            ("LWLock", "WALWrite", WaitClass::Commit),
            ("LWLock", "WALWriteLock", WaitClass::Commit),
            ("IPC", "SyncRep", WaitClass::Commit),
            ("IO", "DataFileRead", WaitClass::UserIo),
            ("Lock", "transactionid", WaitClass::Application),
            ("Client", "ClientRead", WaitClass::Network),
            ("Extension", "Extension", WaitClass::Other),
        ] {
            assert_eq!(class(kind, name), expected, "{kind}: {name}");
        }
    }
}

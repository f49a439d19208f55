//! A database on an emulated tier in a temporary directory, for the tests of the VFS.
//!
//! Not for the tests of `place`: those have a support of their own.

use rusqlite::{Connection, ErrorCode};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tiersmith_sqlite::place::Place;
use tiersmith_store::Stats;

/// Longer than anything here takes; a limit for what hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A directory with a database and a tier, neither made yet.
pub(crate) struct Bench {
    pub dir: TempDir,
    /// More URI parameters for the first open.
    pub parameters: String,
}

impl Bench {
    /// A tier of 16 MiB.
    pub(crate) fn new() -> Self {
        Self::with("&size=16M")
    }

    /// `parameters` begin with `&`.
    pub(crate) fn with(parameters: &str) -> Self {
        tiersmith_sqlite::register().unwrap();
        Self { dir: tempfile::tempdir().unwrap(), parameters: parameters.to_string() }
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.dir.path().join("app.db")
    }

    pub(crate) fn tier(&self) -> PathBuf {
        self.dir.path().join("app.tier")
    }

    /// The URI that attaches.
    pub(crate) fn uri(&self) -> String {
        let (database, tier) = (self.database(), self.tier());
        format!(
            "file:{}?vfs=tiersmith&fast={}&emulate=1{}",
            database.display(),
            tier.display(),
            self.parameters
        )
    }

    /// A connection; attaches if that was not done.
    pub(crate) fn open(&self) -> Connection {
        open(self.uri())
    }

    /// A connection that does not name the tier.
    pub(crate) fn reopen(&self) -> Connection {
        open(format!("file:{}?vfs=tiersmith", self.database().display()))
    }

    /// Makes it a plain file again.
    pub(crate) fn detach(&self) {
        let end = Instant::now() + PATIENCE;
        while let Err(e) = tiersmith_sqlite::detach(&self.database()) {
            let busy = matches!(&e, tiersmith_sqlite::Error::Place(e) if e.is_busy());
            assert!(busy && Instant::now() < end, "{e}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The database's place, while a connection is open.
    pub(crate) fn stats(&self) -> Stats {
        stats(&self.database())
    }
}

/// A connection.
pub(crate) fn open(uri: impl AsRef<Path>) -> Connection {
    until_free(|| Connection::open(uri.as_ref())).unwrap()
}

/// Tries again while somebody else has the database: a process that another test is just starting
/// has, until its exec, copies of this process's descriptors and their locks.
pub(crate) fn until_free<T>(work: impl Fn() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        match work() {
            Err(e)
                if e.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && Instant::now() < end =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            done => return done,
        }
    }
}

/// Figures of an attached database that is open.
pub(crate) fn stats(database: &Path) -> Stats {
    Place::find(database).expect("a connection is open").home().stats()
}

/// How often an event happened.
pub(crate) fn count(stats: &Stats, event: tiersmith_store::events::EventId) -> u64 {
    stats.waits.event(event).count()
}

/// A counter's value.
pub(crate) fn counter(stats: &Stats, counter: tiersmith_store::events::CounterId) -> u64 {
    stats.waits.counter(counter)
}

/// The one text value of a statement.
pub(crate) fn text(connection: &Connection, sql: &str) -> String {
    connection
        .query_row(sql, [], |row| {
            row.get_ref(0).map(|v| match v {
                rusqlite::types::ValueRef::Integer(n) => n.to_string(),
                other => other.as_str().unwrap().to_string(),
            })
        })
        .unwrap_or_else(|e| panic!("{sql}: {e}"))
}

/// Fails unless SQLite finds the database whole.
pub(crate) fn assert_whole(connection: &Connection) {
    assert_eq!(text(connection, "PRAGMA integrity_check"), "ok");
}

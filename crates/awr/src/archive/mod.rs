//! The repository in one file: snapshots of many sources, baselines with names, what went wrong while recording.
//!
//! A SQLite database, so that several programs may write and read at once and a power cut leaves the last whole state:
//!
//! | table | a row is |
//! |---|---|
//! | `snapshot` | the text form of a snapshot as `encoding.rs` describes it, with what a list shows of it |
//! | `baseline` | a name for an interval; its snapshots are not removed by retention |
//! | `gap` | an instant at which a source could not be asked, and why |
//! | `recorder` | who is recording a source now (`lease.rs`): two at once would write every figure twice |
//!
//! `application_id` is `TSAW`, `user_version` the format, 1. A file with another id is refused and not touched, one of a later format too.
//!
//! # Invariants
//!
//! - A snapshot is durable when [`Archive::take`] returns, or it is not there at all.
//! - Numbers are never given twice, also after rows were removed.
//! - A row that is damaged does not hide the others.
//!
//! Deliberately absent: joins over counters (export the snapshots), compression. Read next: `lease.rs`, `../record.rs`.

mod lease;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, params};

pub use lease::Lease;

use crate::{Entry, Error, Listing, Result, Snapshot, SnapshotId};

/// `TSAW` in ASCII.
const APPLICATION_ID: i32 = 0x5453_4157;
/// The format this program writes, and the newest it reads.
const FORMAT: i32 = 1;

const TABLES: &str = "
CREATE TABLE snapshot (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    taken_unix_ns INTEGER NOT NULL,
    source TEXT NOT NULL,
    database TEXT NOT NULL,
    instance TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX snapshot_of_source ON snapshot (source, id);
CREATE TABLE baseline (
    name TEXT PRIMARY KEY NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    made_unix_ns INTEGER NOT NULL
);
CREATE TABLE gap (source TEXT NOT NULL, at_unix_ns INTEGER NOT NULL, reason TEXT NOT NULL);
CREATE TABLE recorder (
    source TEXT PRIMARY KEY NOT NULL,
    token TEXT NOT NULL,
    host TEXT NOT NULL,
    boot TEXT NOT NULL,
    process INTEGER NOT NULL,
    started INTEGER NOT NULL,
    beat_unix_ns INTEGER NOT NULL
);
";

/// How long a writer waits for another one.
const PATIENCE: Duration = Duration::from_secs(30);

/// A repository in one file.
#[derive(Debug)]
pub struct Archive {
    path: PathBuf,
    connection: Connection,
}

/// A name for an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// Its name.
    pub name: String,
    /// The snapshot at its beginning.
    pub first: SnapshotId,
    /// The snapshot at its end.
    pub last: SnapshotId,
}

/// An instant at which a source could not be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The source's address.
    pub source: String,
    /// When.
    pub at_unix_ns: u64,
    /// Why.
    pub reason: String,
}

impl Archive {
    /// The repository in the file `path`, made if it is not there.
    ///
    /// # Errors
    /// If the file is something else, of a later format, damaged, or cannot be written.
    ///
    /// # Durability
    /// A new file is durable with its first snapshot.
    pub fn open(path: impl Into<PathBuf>) -> Result<Archive> {
        let path = path.into();
        let mut archive =
            Archive::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
        archive.make_tables()?;
        archive.check()?;
        Ok(archive)
    }

    /// The repository in the file `path`, which must be there. A misspelt name makes no file.
    ///
    /// # Errors
    /// As [`Archive::open`]; and if there is no file.
    pub fn existing(path: impl Into<PathBuf>) -> Result<Archive> {
        let path = path.into();
        if !path.is_file() {
            return Err(Error::Archive {
                action: "open",
                path,
                reason: "there is no such file".to_owned(),
                remedy: "Give the file that the snapshots were recorded into".to_owned(),
            });
        }
        let archive = Archive::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        archive.check()?;
        Ok(archive)
    }

    fn connect(path: PathBuf, flags: OpenFlags) -> Result<Archive> {
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        // By the name of SQLite's own way to files: a program that has Tiersmith's as its default keeps its repository on plain files.
        let connection = Connection::open_with_flags_and_vfs(&path, flags, "unix")
            .map_err(|error| failed("open", &path, &error))?;
        let archive = Archive { path, connection };
        let set = || {
            archive.connection.busy_timeout(PATIENCE)?;
            archive.connection.pragma_update(None, "synchronous", "EXTRA")
        };
        set().map_err(|error| archive.failed("open", &error))?;
        Ok(archive)
    }

    fn failed(&self, action: &'static str, error: &rusqlite::Error) -> Error {
        failed(action, &self.path, error)
    }

    fn make_tables(&mut self) -> Result<()> {
        let make = || -> rusqlite::Result<()> {
            // Two programs that make the file at once: the second waits, then finds the tables.
            self.connection.execute_batch("BEGIN IMMEDIATE")?;
            let tables: i64 =
                self.connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
            let id: i32 = self.connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
            if tables == 0 && id == 0 {
                self.connection.execute_batch(TABLES)?;
                self.connection.pragma_update(None, "application_id", APPLICATION_ID)?;
                self.connection.pragma_update(None, "user_version", FORMAT)?;
            }
            self.connection.execute_batch("COMMIT")
        };
        let made = make();
        made.map_err(|error| self.failed("open", &error))
    }

    fn check(&self) -> Result<()> {
        let pragma = |name: &str| self.connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
        let id = pragma("application_id").map_err(|error| self.failed("open", &error))?;
        if id != APPLICATION_ID {
            return Err(Error::Archive {
                action: "open",
                path: self.path.clone(),
                reason: "it is a database of something else".to_owned(),
                remedy: "Give a file that `tiersmith awr record` made, or a name that is not there yet"
                    .to_owned(),
            });
        }
        let format = pragma("user_version").map_err(|error| self.failed("open", &error))?;
        if format > FORMAT {
            return Err(Error::Archive {
                action: "open",
                path: self.path.clone(),
                reason: format!("it is of format {format}, this program knows format {FORMAT}"),
                remedy: "Use a newer tiersmith".to_owned(),
            });
        }
        Ok(())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps a snapshot and returns its number.
    ///
    /// # Errors
    /// If it cannot be written; nothing of it is there then.
    ///
    /// # Durability
    /// Durable on return. A power cut before that leaves the whole snapshot or none.
    pub fn take(&self, snapshot: &Snapshot) -> Result<SnapshotId> {
        let source = &snapshot.source;
        let at = i64::try_from(snapshot.taken_unix_ns).unwrap_or(i64::MAX);
        self.connection
            .execute(
                "INSERT INTO snapshot (taken_unix_ns, source, database, instance, body) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![at, source.path, source.database, source.instance, snapshot.to_json()],
            )
            .map_err(|error| self.failed("write to", &error))?;
        Ok(SnapshotId::new(u64::try_from(self.connection.last_insert_rowid()).unwrap_or(0)))
    }

    /// Every snapshot in the order of their numbers. Bodies are read when a snapshot is asked for.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn list(&self) -> Result<Listing> {
        let read = || -> rusqlite::Result<Vec<Entry>> {
            let mut query = self
                .connection
                .prepare("SELECT id, taken_unix_ns, database, instance, source FROM snapshot ORDER BY id")?;
            let entries = query.query_map([], |row| {
                Ok(Entry {
                    id: id_of(row.get(0)?),
                    taken_unix_ns: u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0),
                    database: row.get(2)?,
                    instance: row.get(3)?,
                    path: PathBuf::from(row.get::<_, String>(4)?),
                })
            })?;
            entries.collect()
        };
        let entries = read().map_err(|error| self.failed("read", &error))?;
        Ok(Listing { entries, damaged: Vec::new() })
    }

    /// The snapshot of a number.
    ///
    /// # Errors
    /// If there is none, or it is damaged.
    pub fn find(&self, id: SnapshotId) -> Result<Snapshot> {
        let number = i64::try_from(id.number()).unwrap_or(i64::MAX);
        let body: Option<String> = self
            .connection
            .query_row("SELECT body FROM snapshot WHERE id = ?1", [number], |row| row.get(0))
            .optional()
            .map_err(|error| self.failed("read", &error))?;
        let body = body.ok_or_else(|| Error::NoSuchSnapshot { id, path: self.path.clone() })?;
        Snapshot::from_json(&body, &format!("snapshot {id} in {}", self.path.display()))
    }

    /// The numbers from `first` to `last` that are of the same source as `first`, both included.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn between(&self, first: SnapshotId, last: SnapshotId) -> Result<Vec<SnapshotId>> {
        let read = || -> rusqlite::Result<Vec<SnapshotId>> {
            let mut query = self.connection.prepare(
                "SELECT id FROM snapshot WHERE id BETWEEN ?1 AND ?2 AND source = (SELECT source FROM snapshot WHERE id = ?1) ORDER BY id",
            )?;
            let range = [first, last].map(|id| i64::try_from(id.number()).unwrap_or(i64::MAX));
            let ids = query.query_map(range, |row| Ok(id_of(row.get(0)?)))?;
            ids.collect()
        };
        read().map_err(|error| self.failed("read", &error))
    }

    /// Names the interval from `first` to `last`.
    ///
    /// # Errors
    /// If a snapshot is not there, or the name is given already.
    pub fn add_baseline(&self, name: &str, first: SnapshotId, last: SnapshotId) -> Result<()> {
        for id in [first, last] {
            self.find(id)?;
        }
        let ids = [first, last].map(|id| i64::try_from(id.number()).unwrap_or(i64::MAX));
        let added = self.connection.execute(
            "INSERT INTO baseline (name, first, last, made_unix_ns) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
            params![name, ids[0], ids[1], lease::now_unix_ns()],
        );
        match added.map_err(|error| self.failed("write to", &error))? {
            0 => Err(Error::Archive {
                action: "add a baseline to",
                path: self.path.clone(),
                reason: format!("there is a baseline `{}`", crate::figure::visible(name)),
                remedy: "Take another name, or drop that one first".to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Takes a name away; its snapshots stay. False if there is none of this name.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn drop_baseline(&self, name: &str) -> Result<bool> {
        let dropped = self.connection.execute("DELETE FROM baseline WHERE name = ?1", [name]);
        Ok(dropped.map_err(|error| self.failed("write to", &error))? > 0)
    }

    /// Every baseline, by name.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn baselines(&self) -> Result<Vec<Baseline>> {
        let read = || -> rusqlite::Result<Vec<Baseline>> {
            let mut query =
                self.connection.prepare("SELECT name, first, last FROM baseline ORDER BY name")?;
            let rows = query.query_map([], |row| {
                Ok(Baseline { name: row.get(0)?, first: id_of(row.get(1)?), last: id_of(row.get(2)?) })
            })?;
            rows.collect()
        };
        read().map_err(|error| self.failed("read", &error))
    }

    /// Removes snapshots and gaps taken before an instant: of one source, its newest excepted, or of every source. Those of baselines stay.
    /// Returns how many snapshots went.
    ///
    /// # Errors
    /// If the file cannot be written; nothing was removed then.
    pub fn remove_before(&mut self, source: Option<&str>, unix_ns: u64) -> Result<usize> {
        let at = i64::try_from(unix_ns).unwrap_or(i64::MAX);
        let mut remove = || -> rusqlite::Result<usize> {
            let change = self.connection.transaction()?;
            let gone = change.execute(
                "DELETE FROM snapshot WHERE taken_unix_ns < ?1 AND (?2 IS NULL OR source = ?2 AND id < \
                 (SELECT max(id) FROM snapshot WHERE source = ?2)) AND NOT EXISTS \
                 (SELECT 1 FROM baseline WHERE snapshot.id BETWEEN first AND last)",
                params![at, source],
            )?;
            change.execute(
                "DELETE FROM gap WHERE at_unix_ns < ?1 AND (?2 IS NULL OR source = ?2)",
                params![at, source],
            )?;
            change.commit()?;
            Ok(gone)
        };
        let removed = remove();
        removed.map_err(|error| self.failed("write to", &error))
    }

    /// Notes that a source could not be asked.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn note_gap(&self, gap: &Gap) -> Result<()> {
        let at = i64::try_from(gap.at_unix_ns).unwrap_or(i64::MAX);
        self.connection
            .execute(
                "INSERT INTO gap (source, at_unix_ns, reason) VALUES (?1, ?2, ?3)",
                params![gap.source, at, gap.reason],
            )
            .map_err(|error| self.failed("write to", &error))?;
        Ok(())
    }

    /// The gaps, in the order of time.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn gaps(&self) -> Result<Vec<Gap>> {
        let read = || -> rusqlite::Result<Vec<Gap>> {
            let mut query =
                self.connection.prepare("SELECT source, at_unix_ns, reason FROM gap ORDER BY at_unix_ns")?;
            let rows = query.query_map([], |row| {
                let at = u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0);
                Ok(Gap { source: row.get(0)?, at_unix_ns: at, reason: row.get(2)? })
            })?;
            rows.collect()
        };
        read().map_err(|error| self.failed("read", &error))
    }
}

fn id_of(number: i64) -> SnapshotId {
    SnapshotId::new(u64::try_from(number).unwrap_or(0))
}

/// What SQLite says, as a sentence with what to do.
fn failed(action: &'static str, path: &Path, error: &rusqlite::Error) -> Error {
    let remedy = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            "It is not a repository; give a file that `tiersmith awr record` made"
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            "It is damaged; copy what `tiersmith awr export` can still read, and record into a new file"
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "Another program has been writing to it for half a minute; wait for it, or record into another file"
        }
        Some(ErrorCode::DiskFull) => "Make space on its file system",
        _ => "Check that the file and its directory can be read and written",
    };
    Error::Archive { action, path: path.to_owned(), reason: error.to_string(), remedy: remedy.to_owned() }
}

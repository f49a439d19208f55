//! The archive in one file: a SQLite database, so that several programs may write and read at once
//! and a power cut leaves the last whole state.
//!
//! | table | a row is |
//! |---|---|
//! | `snapshot` | a snapshot as `packed.rs` describes it, with what a list shows of it |
//! | `brief` | the brief snapshot of the same number: in a table of its own, because SQLite reads a row from its beginning |
//! | `baseline` | a name for an interval; its snapshots are not removed by retention |
//! | `gap` | an instant at which a source could not be asked, why, and the newest snapshot of the source then |
//! | `recorder` | who is recording a source now (`lease.rs`): two at once would write every figure twice |
//!
//! `application_id` is `TSWR`, `user_version` the format, 1. A file with another id or another
//! format is refused and not touched. Development builds wrote the id `TSAW`: their format 1 was
//! another one.
//!
//! Deliberately absent: SQL about a server (`server.rs`), and what either may decide (`mod.rs`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior, params};

use super::lease::{Holder, Who};
use super::{Baseline, Behind, Gap, Keeper, New, Verdict, now_unix_ns};
use crate::repository::private;
use crate::{Entry, Error, Result, SnapshotId};

/// `TSWR` in ASCII.
const APPLICATION_ID: i32 = 0x5453_5752;
/// `TSAW` in ASCII: the files of development builds.
const DEVELOPMENT_ID: i32 = 0x5453_4157;
/// The format this program writes and reads.
const FORMAT: i32 = 1;

const TABLES: &str = "
CREATE TABLE snapshot (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    taken_unix_ns INTEGER NOT NULL,
    source TEXT NOT NULL,
    database TEXT NOT NULL,
    instance TEXT NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX snapshot_of_source ON snapshot (source, id);
CREATE TABLE brief (id INTEGER PRIMARY KEY NOT NULL, body BLOB NOT NULL);
CREATE TABLE baseline (
    name TEXT PRIMARY KEY NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    made_unix_ns INTEGER NOT NULL
);
CREATE TABLE gap (
    source TEXT NOT NULL,
    at_unix_ns INTEGER NOT NULL,
    reason TEXT NOT NULL,
    after INTEGER
);
CREATE INDEX gap_of_source ON gap (source);
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
pub(super) struct InFile {
    path: PathBuf,
    connection: Connection,
    may_pass: bool,
}

impl InFile {
    pub(super) fn open(path: PathBuf) -> Result<InFile> {
        private::make_if_missing(&path).map_err(|error| Error::Archive {
            action: "open",
            path: path.clone(),
            reason: error.to_string(),
            remedy: "Give a file in a directory that is there and that you can write to".to_owned(),
        })?;
        private::warn_if_loose(&path);
        let mut file = InFile::connect(
            path,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        )?;
        let made = file.make_tables();
        made.map_err(|error| file.failed("open", &error))?;
        file.check()?;
        Ok(file)
    }

    pub(super) fn existing(path: PathBuf) -> Result<InFile> {
        if !path.is_file() {
            return Err(Error::Archive {
                action: "open",
                path,
                reason: "there is no such file".to_owned(),
                remedy: "Give the file that the snapshots were recorded into".to_owned(),
            });
        }
        let mut file = InFile::connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        file.check()?;
        Ok(file)
    }

    fn connect(path: PathBuf, flags: OpenFlags) -> Result<InFile> {
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        // By the name of SQLite's own way to files: a program that has Tiersmith's as its default
        // keeps its repository on plain files.
        let connection = Connection::open_with_flags_and_vfs(&path, flags, "unix")
            .map_err(|error| failed("open", &path, &error))?;
        let file = InFile { path, connection, may_pass: false };
        let set = || {
            file.connection.busy_timeout(PATIENCE)?;
            file.connection.pragma_update(None, "synchronous", "EXTRA")
        };
        set().map_err(|error| failed("open", &file.path, &error))?;
        Ok(file)
    }

    fn failed(&mut self, action: &'static str, error: &rusqlite::Error) -> Error {
        let code = error.sqlite_error_code();
        self.may_pass = matches!(
            code,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::DiskFull)
        );
        failed(action, &self.path, error)
    }

    fn make_tables(&mut self) -> rusqlite::Result<()> {
        // Two programs that make the file at once: the second waits, then finds the tables.
        let change = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let tables: i64 =
            change.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        let id: i32 = change.pragma_query_value(None, "application_id", |row| row.get(0))?;
        if tables == 0 && id == 0 {
            change.execute_batch(TABLES)?;
            change.pragma_update(None, "application_id", APPLICATION_ID)?;
            change.pragma_update(None, "user_version", FORMAT)?;
        }
        change.commit()
    }

    fn check(&mut self) -> Result<()> {
        let pragma =
            |name: &str| self.connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
        let read = (|| Ok((pragma("application_id")?, pragma("user_version")?)))();
        let (id, format) = read.map_err(|error| self.failed("open", &error))?;
        let refused = |reason: String, remedy: &str| Error::Archive {
            action: "open",
            path: self.path.clone(),
            reason,
            remedy: remedy.to_owned(),
        };
        if id == DEVELOPMENT_ID {
            let reason = format!("a development build made it, before format {FORMAT}");
            return Err(refused(
                reason,
                "Read it with that build (all up to commit ffd5d09), or record anew",
            ));
        }
        if id != APPLICATION_ID {
            let remedy =
                "Give a file that `tiersmith awr record` made, or a name that is not there yet";
            return Err(refused("it is a database of something else".to_owned(), remedy));
        }
        if format != FORMAT {
            let reason = format!("it is of format {format}, this program knows format {FORMAT}");
            return Err(refused(reason, "Use the tiersmith that recorded it"));
        }
        Ok(())
    }

    /// What is done to the file in one transaction, which waits for other writers before it looks
    /// at anything.
    fn write<T>(
        &mut self,
        action: &'static str,
        change: impl FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        self.may_pass = false;
        let all = || -> rusqlite::Result<T> {
            let transaction =
                self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = change(&transaction)?;
            transaction.commit()?;
            Ok(value)
        };
        let done = all();
        done.map_err(|error| self.failed(action, &error))
    }

    fn read<T>(&mut self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        self.may_pass = false;
        let done = read(&self.connection);
        done.map_err(|error| self.failed("read", &error))
    }
}

impl Keeper for InFile {
    fn take(&mut self, all: &[New<'_>], gaps: &[Behind]) -> Result<Vec<SnapshotId>> {
        self.write("write to", |change| {
            let mut snapshot = change.prepare_cached(
                "INSERT INTO snapshot (taken_unix_ns, source, database, instance, body) VALUES \
                 (?1, ?2, ?3, ?4, ?5)",
            )?;
            let mut brief =
                change.prepare_cached("INSERT INTO brief (id, body) VALUES (?1, ?2)")?;
            let mut keep = |new: &New<'_>| -> rusqlite::Result<SnapshotId> {
                let at = signed(new.taken_unix_ns);
                let id = snapshot.insert(params![
                    at,
                    new.source,
                    new.database,
                    new.instance,
                    new.body
                ])?;
                brief.execute(params![id, new.brief])?;
                Ok(id_of(id))
            };
            let ids: Vec<SnapshotId> =
                all.iter().map(&mut keep).collect::<rusqlite::Result<_>>()?;
            let insert = "INSERT INTO gap (source, at_unix_ns, reason, after) VALUES (?1, ?2, ?3, \
                          ?4)";
            let mut note = change.prepare_cached(insert)?;
            for Behind { gap, behind } in gaps {
                let after = ids.get(*behind).map(|id| signed(id.number()));
                note.execute(params![gap.source, signed(gap.at_unix_ns), gap.reason, after])?;
            }
            Ok(ids)
        })
    }

    fn entries(&mut self) -> Result<Vec<Entry>> {
        self.read(|connection| {
            let mut query = connection.prepare(
                "SELECT id, taken_unix_ns, database, instance, source FROM snapshot ORDER BY id",
            )?;
            let entries = query.query_map([], |row| {
                let source: String = row.get(4)?;
                Ok(Entry {
                    id: id_of(row.get(0)?),
                    taken_unix_ns: u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0),
                    database: row.get(2)?,
                    instance: row.get(3)?,
                    path: PathBuf::from(&source),
                    source,
                })
            })?;
            entries.collect()
        })
    }

    fn body(&mut self, id: SnapshotId) -> Result<Option<Vec<u8>>> {
        self.read(|connection| {
            let body = "SELECT body FROM snapshot WHERE id = ?1";
            connection
                .query_row(body, [signed(id.number())], |row| Ok(bytes(row.get_ref(0)?).to_vec()))
                .optional()
        })
    }

    fn briefs(
        &mut self,
        first: SnapshotId,
        last: SnapshotId,
        each: &mut dyn FnMut(SnapshotId, &[u8]),
    ) -> Result<()> {
        // A row whose brief is gone is damaged, and must not be left out without a word.
        self.read(|connection| {
            let mut query = connection.prepare(
                "SELECT snapshot.id, brief.body FROM snapshot LEFT JOIN brief ON brief.id = \
                 snapshot.id \
                 WHERE snapshot.id BETWEEN ?1 AND ?2 AND source = (SELECT source FROM snapshot \
                 WHERE id = ?1) \
                 ORDER BY snapshot.id",
            )?;
            let mut rows = query.query([signed(first.number()), signed(last.number())])?;
            while let Some(row) = rows.next()? {
                each(id_of(row.get(0)?), bytes(row.get_ref(1)?));
            }
            Ok(())
        })
    }

    fn between(&mut self, first: SnapshotId, last: SnapshotId) -> Result<Vec<SnapshotId>> {
        self.read(|connection| {
            let mut query = connection.prepare(
                "SELECT id FROM snapshot WHERE id BETWEEN ?1 AND ?2 AND source = (SELECT source \
                 FROM snapshot WHERE id = ?1) ORDER BY id",
            )?;
            let ids = query.query_map([signed(first.number()), signed(last.number())], |row| {
                Ok(id_of(row.get(0)?))
            })?;
            ids.collect()
        })
    }

    fn add_baseline(&mut self, baseline: &Baseline) -> Result<bool> {
        let (first, last) = (signed(baseline.first.number()), signed(baseline.last.number()));
        self.write("add a baseline to", |change| {
            // Another program may have removed them since they were read.
            let there = "SELECT count(*) FROM snapshot WHERE id IN (?1, ?2)";
            let there: i64 = change.query_row(there, [first, last], |row| row.get(0))?;
            if there < if first == last { 1 } else { 2 } {
                return Err(rusqlite::Error::QueryReturnedNoRows);
            }
            let added = change.execute(
                "INSERT INTO baseline (name, first, last, made_unix_ns) VALUES (?1, ?2, ?3, ?4) ON \
                 CONFLICT DO NOTHING",
                params![baseline.name, first, last, now_unix_ns()],
            )?;
            Ok(added > 0)
        })
    }

    fn drop_baseline(&mut self, name: &str) -> Result<bool> {
        self.write("write to", |change| {
            Ok(change.execute("DELETE FROM baseline WHERE name = ?1", [name])? > 0)
        })
    }

    fn baselines(&mut self) -> Result<Vec<Baseline>> {
        self.read(|connection| {
            let mut query =
                connection.prepare("SELECT name, first, last FROM baseline ORDER BY name")?;
            let rows = query.query_map([], |row| {
                Ok(Baseline {
                    name: row.get(0)?,
                    first: id_of(row.get(1)?),
                    last: id_of(row.get(2)?),
                })
            })?;
            rows.collect()
        })
    }

    fn remove_before(&mut self, source: Option<&str>, unix_ns: u64) -> Result<usize> {
        let at = signed(unix_ns);
        self.write("write to", |change| {
            let old = "FROM snapshot WHERE taken_unix_ns < ?1 AND (?2 IS NULL OR source = ?2 AND \
                       id < \
                 (SELECT max(id) FROM snapshot WHERE source = ?2)) AND NOT EXISTS \
                 (SELECT 1 FROM baseline WHERE snapshot.id BETWEEN first AND last)";
            let briefs = format!("DELETE FROM brief WHERE id IN (SELECT id {old})");
            change.execute(&briefs, params![at, source])?;
            let gone = change.execute(&format!("DELETE {old}"), params![at, source])?;
            change.execute(
                "DELETE FROM gap WHERE at_unix_ns < ?1 AND (?2 IS NULL OR source = ?2) AND NOT \
                 EXISTS \
                 (SELECT 1 FROM baseline b JOIN snapshot f ON f.id = b.first JOIN snapshot l ON \
                 l.id = b.last \
                 WHERE f.source = gap.source AND (gap.after BETWEEN b.first AND b.last OR \
                 gap.after IS NULL AND gap.at_unix_ns BETWEEN f.taken_unix_ns AND \
                 l.taken_unix_ns))",
                params![at, source],
            )?;
            Ok(gone)
        })
    }

    fn note_gap(&mut self, gap: &Gap) -> Result<()> {
        self.write("write to", |change| {
            change.execute(
                "INSERT INTO gap (source, at_unix_ns, reason, after) VALUES (?1, ?2, ?3, \
                 coalesce(?4, (SELECT max(id) FROM \
                 snapshot WHERE source = ?1)))",
                params![
                    gap.source,
                    signed(gap.at_unix_ns),
                    gap.reason,
                    gap.after.map(|id| signed(id.number()))
                ],
            )?;
            Ok(())
        })
    }

    fn gaps(&mut self, source: Option<&str>) -> Result<Vec<Gap>> {
        self.read(|connection| {
            let mut query = connection.prepare(
                "SELECT source, at_unix_ns, reason, after FROM gap WHERE ?1 IS NULL OR source = ?1 \
                 ORDER BY at_unix_ns, rowid",
            )?;
            let rows = query.query_map([source], |row| {
                Ok(Gap {
                    source: row.get(0)?,
                    at_unix_ns: u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0),
                    reason: row.get(2)?,
                    after: row.get::<_, Option<i64>>(3)?.map(id_of),
                })
            })?;
            rows.collect()
        })
    }

    fn lease(
        &mut self,
        source: &str,
        token: &str,
        me: &Who,
        verdict: &Verdict<'_>,
    ) -> Result<Option<Holder>> {
        self.write("write to", |change| {
            let now = now_unix_ns();
            let holder = change
                .query_row(
                    "SELECT host, boot, process, started, beat_unix_ns FROM recorder WHERE source \
                     = ?1",
                    [source],
                    |row| {
                        let who = Who {
                            host: row.get(0)?,
                            boot: row.get(1)?,
                            process: row.get(2)?,
                            started: row.get(3)?,
                        };
                        let silent_ns = i128::from(now) - i128::from(row.get::<_, i64>(4)?);
                        Ok(Holder {
                            who,
                            silent: Duration::from_nanos(u64::try_from(silent_ns).unwrap_or(0)),
                        })
                    },
                )
                .optional()?;
            if let Some(holder) = holder.filter(|holder| verdict(holder)) {
                return Ok(Some(holder));
            }
            change.execute(
                "INSERT OR REPLACE INTO recorder (source, token, host, boot, process, started, \
                 beat_unix_ns) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![source, token, me.host, me.boot, me.process, me.started, now],
            )?;
            Ok(None)
        })
    }

    fn beat(&mut self, source: &str, token: &str) -> Result<bool> {
        self.write("write to", |change| {
            let beat = "UPDATE recorder SET beat_unix_ns = ?1 WHERE source = ?2 AND token = ?3";
            Ok(change.execute(beat, params![now_unix_ns(), source, token])? > 0)
        })
    }

    fn release(&mut self, source: &str, token: &str) -> Result<()> {
        self.write("write to", |change| {
            change.execute(
                "DELETE FROM recorder WHERE source = ?1 AND token = ?2",
                [source, token],
            )?;
            Ok(())
        })
    }

    fn may_pass(&self) -> bool {
        self.may_pass
    }
}

/// SQLite's numbers have a sign; what is too large for one is the largest.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn id_of(number: i64) -> SnapshotId {
    SnapshotId::new(u64::try_from(number).unwrap_or(0))
}

/// Text or bytes; a number, which no program writes, reads as nothing and is refused as damaged.
fn bytes(value: ValueRef<'_>) -> &[u8] {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        _ => &[],
    }
}

/// What SQLite says, as a sentence with what to do.
fn failed(action: &'static str, path: &Path, error: &rusqlite::Error) -> Error {
    let remedy = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            "It is not a repository; give a file that `tiersmith awr record` made"
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            "It is damaged; copy what `tiersmith awr export` can still read, and record into a new \
             file"
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "Another program has been writing to it for half a minute; wait for it, or record into \
             another file"
        }
        Some(ErrorCode::DiskFull) => "Make space on its file system",
        Some(ErrorCode::ReadOnly) => {
            "It, or its file system, may only be read; reports work, for anything else copy it to \
             where it can be written"
        }
        _ => "Check that the file and its directory can be read and written",
    };
    let reason = match error {
        rusqlite::Error::QueryReturnedNoRows => {
            "a snapshot of it was removed in the meantime".to_owned()
        }
        error => error.to_string(),
    };
    Error::Archive { action, path: path.to_owned(), reason, remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::packed::{pack, unpack};
    use super::*;
    use crate::{Snapshot, Source};

    #[test]
    fn a_full_disk_keeps_what_is_there_says_so_and_passes() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut file = InFile::open(dir.path().join("awr.db")).expect("made");
        let small = Snapshot::at(Source { path: "/x".to_owned(), ..Source::default() }, 5, 6);
        let mut large = small.clone();
        let mut rng = fastrand::Rng::with_seed(1);
        // Nothing that compresses.
        (0..2_000).for_each(|n| large.add_counter(&format!("counter {n}"), "rows", rng.u64(..)));
        let new = |snapshot: &Snapshot| New {
            key: "",
            taken_unix_ns: 5,
            source: "/x",
            database: "",
            instance: "",
            body: pack(snapshot),
            brief: pack(&snapshot.brief()),
        };
        let first = file.take(&[new(&small)], &[]).expect("there is space")[0];
        // SQLite says the same when its file system has no space.
        let pages: i64 = file
            .connection
            .pragma_query_value(None, "page_count", |row| row.get(0))
            .expect("pages");
        let limit = |file: &InFile, pages: i64| {
            let set = format!("PRAGMA max_page_count = {pages}");
            file.connection.query_row(&set, [], |row| row.get::<_, i64>(0)).expect("a limit");
        };
        limit(&file, pages + 3);
        let gap = Behind { gap: Gap::default(), behind: 0 };
        let error =
            file.take(&[new(&small), new(&large)], &[gap]).expect_err("no space").to_string();
        assert!(error.contains("awr.db") && error.contains("Make space"), "{error}");
        assert!(file.may_pass());
        assert_eq!(file.entries().expect("a list").len(), 1, "all or none");
        assert!(file.gaps(None).expect("a list").is_empty(), "all or none");
        assert!(!file.may_pass(), "the last call did not fail");
        assert_eq!(
            unpack(&file.body(first).expect("read").expect("there"), "here").expect("whole"),
            small
        );
        limit(&file, 1_000_000);
        assert_eq!(file.take(&[new(&large)], &[]).expect("there is space again").len(), 1);
    }
}

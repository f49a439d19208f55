//! SQL with its answers, in the format of sqllogictest: `tests/slt/*.slt`, each on the stock VFS
//! and on an attached database in every journal mode, with all connections it asks for.
//!
//! The files are this project's own; their answers are those of a stock SQLite 3.40.1. After each
//! run the database is detached, and a stock SQLite finds it sound.
//!
//! Deliberately absent: SQLite's own collection of such files, which is a gigabyte.

use crate::support;

use crate::support::{Bench, connect, patiently, stock};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use sqllogictest::{DB, DBOutput, DefaultColumnType, Runner};
use std::path::PathBuf;
use std::time::Duration;
use tiersmith_sqlite::place::Place;

const MODES: [&str; 5] = ["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "WAL"];

struct Session(Connection);

impl DB for Session {
    type Error = rusqlite::Error;
    type ColumnType = DefaultColumnType;

    fn run(&mut self, sql: &str) -> Result<DBOutput<Self::ColumnType>, Self::Error> {
        let mut statement = self.0.prepare(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(
                (0..columns).map(|n| row.get_ref(n).map(text)).collect::<Result<Vec<_>, _>>()?,
            );
        }
        if columns == 0 {
            return Ok(DBOutput::StatementComplete(self.0.changes()));
        }
        Ok(DBOutput::Rows { types: vec![DefaultColumnType::Any; columns], rows: found })
    }
}

fn text(value: ValueRef<'_>) -> String {
    let text = match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(n) => n.to_string(),
        ValueRef::Real(x) => format!("{x:.3}"),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
    };
    if text.is_empty() { "(empty)".to_owned() } else { text }
}

/// The files, by name.
fn scripts() -> Vec<PathBuf> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/slt");
    let mut found: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|e| e == "slt"));
    found.sort();
    assert!(found.len() >= 7, "{found:?}");
    found
}

/// Runs a file; every connection is one of `open`, in the journal mode.
fn run(script: &PathBuf, mode: &str, open: impl Fn() -> rusqlite::Result<Connection>) {
    let mut runner = Runner::new(|| {
        let opened = open().and_then(|db| {
            db.busy_timeout(Duration::ZERO)?;
            let now: String =
                db.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |row| row.get(0))?;
            assert_eq!(now, mode.to_lowercase());
            Ok(Session(db))
        });
        async move { opened }
    });
    if let Err(e) = runner.run_file(script) {
        panic!("{mode}: {e}");
    }
}

fn assert_sound(database: &std::path::Path) {
    let sound: String =
        stock(database).unwrap().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
}

#[test]
fn the_stock_vfs_gives_the_answers_written_down() {
    for script in scripts() {
        let bench = Bench::new();
        run(&script, "WAL", || stock(&bench.database()));
        assert_sound(&bench.database());
    }
}

fn attached(mode: &str) {
    for script in scripts() {
        let bench = Bench::new();
        run(&script, mode, || connect(&bench.uri()));
        patiently(|| Place::detach(&bench.database(), &support::fold)).unwrap();
        assert_sound(&bench.database());
    }
}

#[test]
fn an_attached_database_gives_the_same_answers_in_mode_delete() {
    attached(MODES[0]);
}

#[test]
fn an_attached_database_gives_the_same_answers_in_mode_truncate() {
    attached(MODES[1]);
}

#[test]
fn an_attached_database_gives_the_same_answers_in_mode_persist() {
    attached(MODES[2]);
}

#[test]
fn an_attached_database_gives_the_same_answers_in_mode_memory() {
    attached(MODES[3]);
}

#[test]
fn an_attached_database_gives_the_same_answers_in_mode_wal() {
    attached(MODES[4]);
}

#[test]
fn a_wrong_answer_is_noticed() {
    let bench = Bench::new();
    let script = bench.file("wrong.slt");
    std::fs::write(&script, "query I\nSELECT 1 + 1\n----\n3\n").unwrap();
    let flags = OpenFlags::default();
    let mut runner =
        Runner::new(|| async { Connection::open_with_flags(":memory:", flags).map(Session) });
    assert!(runner.run_file(&script).is_err());
}

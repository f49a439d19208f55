//! The same random SQL on the stock VFS and on ours: the same answers, statement by statement, and
//! after detaching the same file.
//!
//! Bytes are compared in every journal mode: what SQLite writes into a database file depends on the
//! statements, not on the VFS. One thing may differ: when a batch is refused (it does not fit the
//! tier, or the file does not end with a block), SQLite writes the transaction again with a journal
//! and has counted it twice, in the change counter (bytes 24 to 27) and its copy (92 to 95).
//!
//! `TIERSMITH_SEED` repeats a run, `TIERSMITH_STATEMENTS` makes it longer.

use crate::support::{Bench, connect, many, stock};
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};

/// Draws statements; remembers only what makes most of them valid.
struct Script {
    rng: fastrand::Rng,
    /// In a transaction, and how many savepoints are open.
    depth: Option<u32>,
    modes: &'static [&'static str],
    page_size: u32,
}

impl Script {
    fn table(&mut self) -> u32 {
        self.rng.u32(..4)
    }

    /// A blob literal: mostly short, sometimes several pages.
    fn blob(&mut self) -> String {
        let most = if self.rng.u32(..10) == 0 { self.page_size as usize * 3 } else { 200 };
        let len = self.rng.usize(..most);
        let byte = self.rng.u8(..);
        let head: String = (0..len.min(16)).map(|_| format!("{:02x}", self.rng.u8(..))).collect();
        format!("x'{head}{}'", format!("{byte:02x}").repeat(len - len.min(16)))
    }

    fn next(&mut self) -> String {
        let (t, k) = (self.table(), self.rng.u32(1..50));
        match self.rng.u32(..100) {
            0..30 => format!("INSERT INTO t{t}(a, b) VALUES ({k}, {})", self.blob()),
            30..36 => {
                format!(
                    "INSERT INTO t{t}(a, b) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + \
                     1 FROM n \
                     WHERE i < {k}) SELECT i, hex(i * {k}) || '-row' FROM n"
                )
            }
            36..48 => format!(
                "UPDATE t{t} SET b = {} WHERE id % {k} = {}",
                self.blob(),
                self.rng.u32(..k)
            ),
            48..54 => format!("UPDATE t{t} SET a = a + 1 WHERE a < {k}"),
            54..61 => format!("DELETE FROM t{t} WHERE id % {k} = 0"),
            61..71 => {
                format!(
                    "SELECT id, a, length(b), hex(substr(b, -8)) FROM t{t} WHERE a >= {k} ORDER BY \
                     a, id"
                )
            }
            71..80 => self.transaction(),
            80..83 => format!("CREATE TABLE IF NOT EXISTS t{t}(id INTEGER PRIMARY KEY, a INT, b)"),
            83 => format!("DROP TABLE IF EXISTS t{t}"),
            84..86 => format!("CREATE INDEX IF NOT EXISTS i{t} ON t{t}(a, b)"),
            86 => format!("DROP INDEX IF EXISTS i{t}"),
            87 => "VACUUM".into(),
            88 => format!("PRAGMA incremental_vacuum({k})"),
            89..91 => {
                format!("PRAGMA journal_mode = {}", self.modes[self.rng.usize(..self.modes.len())])
            }
            91 => "PRAGMA wal_checkpoint(TRUNCATE)".into(),
            92 => format!("PRAGMA cache_size = {}", [2, 20, 2000][self.rng.usize(..3)]),
            93 => format!("PRAGMA user_version = {k}"),
            94 => "PRAGMA integrity_check".into(),
            95 => "PRAGMA freelist_count".into(),
            96 => "PRAGMA page_count".into(),
            97 => format!("ANALYZE t{t}"),
            98 => {
                format!(
                    "INSERT OR REPLACE INTO t{t}(id, a, b) SELECT id, a + 1, b FROM t{t} WHERE a = \
                     {k}"
                )
            }
            _ => "reopen".into(),
        }
    }

    fn transaction(&mut self) -> String {
        match self.depth {
            None => {
                self.depth = Some(0);
                ["BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"][self.rng.usize(..3)].into()
            }
            Some(open) => match self.rng.u32(..6) {
                0 | 1 => {
                    self.depth = None;
                    "COMMIT".into()
                }
                2 => {
                    self.depth = None;
                    "ROLLBACK".into()
                }
                3 if open > 0 => {
                    self.depth = Some(open - 1);
                    format!("RELEASE s{}", open - 1)
                }
                4 if open > 0 => format!("ROLLBACK TO s{}", open - 1),
                _ => {
                    self.depth = Some(open + 1);
                    format!("SAVEPOINT s{open}")
                }
            },
        }
    }
}

/// What a statement gives: its rows, or its error.
fn answer(db: &Connection, sql: &str) -> Result<Vec<Vec<Value>>, String> {
    let run = || {
        let mut statement = db.prepare(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push((0..columns).map(|n| row.get(n)).collect::<rusqlite::Result<Vec<Value>>>()?);
        }
        Ok(found)
    };
    run().map_err(|e: rusqlite::Error| e.to_string())
}

/// Compares the two files, ours detached, and returns their length. Where SQLite `falls_back` to a
/// journal, it may have counted a transaction twice.
fn same_files(ours: &Bench, theirs: &Bench, falls_back: bool, what: &str) -> usize {
    let (our, their) =
        (std::fs::read(ours.database()).unwrap(), std::fs::read(theirs.database()).unwrap());
    assert_eq!(our.len(), their.len(), "{what}: the files differ in length");
    let counter = |file: &[u8]| [24, 92].map(|at| file[at..at + 4].to_vec());
    let again = counter(&our) > counter(&their) && counter(&our)[0] == counter(&our)[1];
    let compared = |at: &usize| !(again && ((24..28).contains(at) || (92..96).contains(at)));
    let differ: Vec<_> =
        (0..our.len()).filter(compared).filter(|at| our[*at] != their[*at]).take(16).collect();
    let bytes = |file: &[u8]| differ.iter().map(|at| file[*at]).collect::<Vec<_>>();
    assert!(
        differ.is_empty() && (!again || falls_back),
        "{what}: the files differ at {differ:?}: ours {:?}, \
         stock {:?}; \
         counters {:?} and {:?}",
        bytes(&our),
        bytes(&their),
        counter(&our),
        counter(&their)
    );
    let sound: String = stock(&ours.database())
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |r| r.get(0))
        .unwrap();
    assert_eq!(sound, "ok");
    our.len()
}

/// Runs `statements` statements on both and compares.
fn same(page_size: u32, auto_vacuum: &str, modes: &'static [&'static str], more: &str) {
    let falls_back = modes.contains(&"DELETE") && !more.contains("place=redo");
    let seed = many("TIERSMITH_SEED", fastrand::u64(..));
    let statements = many("TIERSMITH_STATEMENTS", 1500);
    let (ours, theirs) = (Bench::in_memory(), Bench::in_memory());
    let uri = ours.uri_with(more);
    let stock_uri = format!("file:{}?vfs=unix", theirs.database().display());
    let open = || {
        let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI;
        [connect(&uri).unwrap(), Connection::open_with_flags(&stock_uri, flags).unwrap()]
    };
    let first = format!("PRAGMA page_size = {page_size}; PRAGMA auto_vacuum = {auto_vacuum}");
    let mut both = open();
    let mut script = Script { rng: fastrand::Rng::with_seed(seed), depth: None, modes, page_size };
    for db in &both {
        db.execute_batch(&first).unwrap();
        for table in 0..4 {
            let rows = if more.contains("size=1M") { 300 } else { 0 };
            db.execute_batch(&format!(
                "CREATE TABLE t{table}(id INTEGER PRIMARY KEY, a INT, b);
                 INSERT INTO t{table}(a, b) WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + \
                 1 FROM n)
                 SELECT i, printf('%06000d', i) FROM n LIMIT {rows}"
            ))
            .unwrap();
        }
    }
    let mut good = 0;
    for number in 0..statements {
        let sql = script.next();
        if sql == "reopen" {
            if script.depth.is_none() {
                drop(both);
                both = open();
            }
            continue;
        }
        let [our, their] = [0, 1].map(|n| answer(&both[n], &sql));
        let shown: String = sql.chars().take(200).collect();
        assert!(
            our == their,
            "statement {number}, TIERSMITH_SEED={seed}: {shown}\nours: {our:?}\nstock: {their:?}"
        );
        good += u64::from(our.is_ok());
        // A failed statement may have ended the transaction: the same on both.
        let autocommit = [both[0].is_autocommit(), both[1].is_autocommit()];
        assert_eq!(
            autocommit[0], autocommit[1],
            "statement {number}, TIERSMITH_SEED={seed}: {shown}"
        );
        if autocommit[0] {
            script.depth = None;
        }
    }
    // Else it would be two sorts of error messages that are compared.
    assert!(
        good * 2 > statements,
        "only {good} of {statements} statements were valid, TIERSMITH_SEED={seed}"
    );
    drop(both);
    ours.detach().unwrap();
    let bytes = same_files(
        &ours,
        &theirs,
        falls_back,
        &format!("page size {page_size}, TIERSMITH_SEED={seed}"),
    );
    println!("{statements} statements, {bytes} bytes equal (EMULATED, TIERSMITH_SEED={seed})");
}

const ROLLBACK: &[&str] = &["DELETE", "TRUNCATE", "PERSIST"];
/// Not OFF: what a ROLLBACK leaves then is undefined.
const ALL: &[&str] = &["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "WAL"];

#[test]
fn batches_give_the_same_answers_and_the_same_file() {
    same(4096, "NONE", &["DELETE"], "");
}

#[test]
fn wal_gives_the_same_answers_and_the_same_file() {
    same(4096, "NONE", &["WAL"], "");
}

#[test]
fn rollback_journals_give_the_same_answers_and_the_same_file() {
    same(4096, "FULL", ROLLBACK, "&place=redo");
}

#[test]
fn changing_journal_modes_gives_the_same_answers_and_the_same_file() {
    same(4096, "INCREMENTAL", ALL, "");
    same(4096, "FULL", ALL, "&place=data");
}

#[test]
fn pages_smaller_than_a_block_give_the_same_answers_and_the_same_file() {
    same(512, "NONE", ALL, "");
    same(1024, "INCREMENTAL", ROLLBACK, "");
    same(4096, "NONE", ROLLBACK, "&block=16384");
}

#[test]
fn pages_larger_than_a_block_give_the_same_answers_and_the_same_file() {
    same(16384, "NONE", ALL, "");
    same(65536, "FULL", ALL, "&block=32768");
}

#[test]
fn a_tier_smaller_than_the_database_gives_the_same_answers_and_the_same_file() {
    same(4096, "NONE", &["DELETE", "WAL"], "&size=1M&keep=65536");
}

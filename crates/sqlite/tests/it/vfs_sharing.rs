//! Several connections and threads of one process on one attached database; another process is
//! refused.

use crate::vfs_support::{Bench, assert_whole, text};
use rusqlite::ffi::ErrorCode;
use rusqlite::{Connection, Error};
use std::process::Command;
use std::time::Duration;

fn code(e: &Error) -> Option<ErrorCode> {
    e.sqlite_error_code()
}

#[test]
fn a_second_writer_of_a_rollback_database_is_busy_and_readers_see_the_old_state() {
    let bench = Bench::new();
    let one = bench.open();
    one.execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES (1)").unwrap();
    let two = bench.reopen();
    two.busy_timeout(Duration::ZERO).unwrap();
    one.execute_batch("BEGIN IMMEDIATE; UPDATE t SET x=2").unwrap();
    assert_eq!(
        code(&two.execute_batch("BEGIN IMMEDIATE").unwrap_err()),
        Some(ErrorCode::DatabaseBusy)
    );
    assert_eq!(text(&two, "SELECT x FROM t"), "1");
    // A reader in the middle keeps the writer from committing; when it is done, the commit goes
    // through.
    let mut reading = two.prepare("SELECT x FROM t").unwrap();
    let mut rows = reading.query([]).unwrap();
    rows.next().unwrap().unwrap();
    one.busy_timeout(Duration::ZERO).unwrap();
    assert_eq!(code(&one.execute_batch("COMMIT").unwrap_err()), Some(ErrorCode::DatabaseBusy));
    drop(rows);
    drop(reading);
    one.execute_batch("COMMIT").unwrap();
    assert_eq!(text(&two, "SELECT x FROM t"), "2");
}

/// Threads that move money between accounts; the sum never changes for any reader.
fn bank(journal: &str) {
    let bench = Bench::new();
    let connection = bench.open();
    text(&connection, &format!("PRAGMA journal_mode={journal}"));
    connection
        .execute_batch(
            "CREATE TABLE account(id INTEGER PRIMARY KEY, balance); \
             WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<99) \
             INSERT INTO account SELECT i, 100 FROM n",
        )
        .unwrap();
    let bench = &bench;
    std::thread::scope(|scope| {
        for seed in 0..2 {
            scope.spawn(move || {
                let connection = bench.reopen();
                connection.busy_timeout(Duration::from_secs(60)).unwrap();
                let mut random = fastrand::Rng::with_seed(seed);
                for _ in 0..150 {
                    let (from, to) = (random.i64(0..100), random.i64(0..100));
                    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
                    let take = "UPDATE account SET balance=balance-1 WHERE id=?1";
                    connection.execute(take, [from]).unwrap();
                    let give = "UPDATE account SET balance=balance+1 WHERE id=?1";
                    connection.execute(give, [to]).unwrap();
                    connection.execute_batch("COMMIT").unwrap();
                }
            });
            scope.spawn(move || {
                let connection = bench.reopen();
                connection.busy_timeout(Duration::from_secs(60)).unwrap();
                for _ in 0..150 {
                    assert_eq!(text(&connection, "SELECT sum(balance) FROM account"), "10000");
                }
            });
        }
    });
    assert_whole(&connection);
}

#[test]
fn threads_share_a_wal_database() {
    bank("wal");
}

#[test]
fn threads_share_a_rollback_database() {
    bank("delete");
    bank("persist");
    bank("truncate");
}

#[test]
fn a_connection_that_keeps_its_journal_open_survives_another_that_deletes_it() {
    let bench = Bench::new();
    let keeps = bench.open();
    // No batches: a cache too small for the transaction makes SQLite write a journal.
    let large = "UPDATE t SET x=randomblob(3000)";
    keeps
        .execute_batch(
            "PRAGMA cache_size=5; PRAGMA journal_mode=truncate; CREATE TABLE t(x); \
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<50) \
             INSERT INTO t SELECT randomblob(3000) FROM n",
        )
        .unwrap();
    let deletes = bench.reopen();
    deletes.execute_batch("PRAGMA cache_size=5; PRAGMA journal_mode=delete").unwrap();
    for _ in 0..5 {
        keeps.execute_batch(large).unwrap();
        deletes.execute_batch(large).unwrap();
        let before = text(&keeps, "SELECT sum(unicode(hex(x))) FROM t");
        keeps.execute_batch(&format!("BEGIN; {large}; ROLLBACK")).unwrap();
        deletes.execute_batch(&format!("BEGIN; {large}; ROLLBACK")).unwrap();
        assert_eq!(text(&deletes, "SELECT sum(unicode(hex(x))) FROM t"), before);
    }
    assert_whole(&keeps);
}

#[test]
fn frames_of_a_transaction_that_was_rolled_back_do_not_overwrite_those_of_another_connection() {
    for locking in ["normal", "exclusive"] {
        let bench = Bench::new();
        let one = bench.open();
        text(&one, "PRAGMA journal_mode=wal");
        one.execute_batch(
            "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, body BLOB); \
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<100) \
             INSERT INTO t SELECT i, 0, randomblob(2000) FROM n",
        )
        .unwrap();
        // The cache is too small for what it changes: frames are written before the transaction
        // ends.
        one.execute_batch("PRAGMA cache_size=5").unwrap();
        for round in 1..=5 {
            text(&one, &format!("PRAGMA locking_mode={locking}"));
            one.execute_batch(
                "BEGIN; UPDATE t SET n=-1, body=randomblob(2000) WHERE id<30; ROLLBACK",
            )
            .unwrap();
            text(&one, "PRAGMA locking_mode=normal");
            text(&one, "SELECT count(*) FROM t");
            let two = bench.reopen();
            for id in 1..=20 {
                two.execute("UPDATE t SET n=n+1 WHERE id=?1", [id]).unwrap();
            }
            assert_eq!(
                text(&one, "SELECT sum(n) || ' ' || min(n) FROM t"),
                format!("{} 0", 20 * round)
            );
            one.execute("UPDATE t SET body=zeroblob(2000) WHERE id=50", []).unwrap();
            assert_whole(&two);
        }
        drop(one);
        let again = bench.reopen();
        assert_eq!(text(&again, "SELECT sum(n) FROM t"), "100");
        assert_whole(&again);
    }
}

/// Set for the second process: the database it is to open.
const SECOND: &str = "TIERSMITH_TEST_SECOND_OPENER";

#[test]
fn a_second_process_is_busy_and_the_reason_is_in_the_last_error() {
    if let Some(database) = std::env::var_os(SECOND) {
        tiersmith_sqlite::register().unwrap();
        let uri = format!("file:{}?vfs=tiersmith", database.to_str().unwrap());
        let refused = match Connection::open(uri) {
            Ok(connection) => connection.query_row("SELECT 1 FROM t", [], |_| Ok(())).unwrap_err(),
            Err(e) => e,
        };
        assert_eq!(code(&refused), Some(ErrorCode::DatabaseBusy), "{refused}");
        let why = text(&Connection::open_in_memory().unwrap(), "SELECT tiersmith_last_error()");
        assert!(why.contains("in use by process"), "{why}");
        return;
    }
    let bench = Bench::new();
    let connection = bench.open();
    connection.execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES (1)").unwrap();
    let name = full_name!("a_second_process_is_busy_and_the_reason_is_in_the_last_error");
    let second = Command::new(std::env::current_exe().unwrap())
        .args([name.as_str(), "--exact", "--nocapture"])
        .env(SECOND, bench.database())
        .output()
        .unwrap();
    assert!(second.status.success(), "{}", String::from_utf8_lossy(&second.stdout));
    assert_eq!(text(&connection, "SELECT x FROM t"), "1");
}

//! Every journal mode with every locking mode, on an attached database: what was committed is
//! there, what was rolled back is not, also after closing and opening again.

use crate::vfs_support::{Bench, assert_whole, text};
use rusqlite::Connection;

const MODES: [&str; 6] = ["delete", "truncate", "persist", "memory", "off", "wal"];

fn set_mode(connection: &Connection, journal: &str, locking: &str) {
    text(connection, &format!("PRAGMA locking_mode={locking}"));
    assert_eq!(text(connection, &format!("PRAGMA journal_mode={journal}")), journal);
}

fn fill(connection: &Connection, from: i64, to: i64) {
    let tx = connection.unchecked_transaction().unwrap();
    for n in from..to {
        tx.execute("INSERT INTO t VALUES (?1, randomblob(300))", [n]).unwrap();
    }
    tx.commit().unwrap();
}

fn round_trip(parameters: &str, journal: &str, locking: &str) {
    let bench = Bench::with(parameters);
    let connection = bench.open();
    set_mode(&connection, journal, locking);
    connection.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, body BLOB)").unwrap();
    fill(&connection, 0, 200);
    for n in 0..50 {
        connection.execute("UPDATE t SET body=randomblob(301) WHERE id=?1", [n * 3]).unwrap();
    }
    if journal != "off" {
        connection.execute_batch("BEGIN; DELETE FROM t; UPDATE t SET id=-id; ROLLBACK").unwrap();
    }
    let sum = text(&connection, "SELECT sum(length(body)) FROM t");
    assert_eq!(sum, (200 * 300 + 50).to_string());
    assert_whole(&connection);
    drop(connection);
    let connection = bench.reopen();
    assert_eq!(text(&connection, "SELECT sum(length(body)) FROM t"), sum, "{journal} {locking}");
    set_mode(&connection, journal, locking);
    fill(&connection, 200, 300);
    assert_whole(&connection);
    drop(connection);
    bench.detach();
    let plain = Connection::open(bench.database()).unwrap();
    assert_whole(&plain);
    assert_eq!(text(&plain, "SELECT count(*) FROM t"), "300");
}

#[test]
fn every_journal_and_locking_mode_keeps_what_was_committed() {
    for journal in MODES {
        for locking in ["normal", "exclusive"] {
            round_trip("&size=16M", journal, locking);
        }
    }
}

//! Batch-atomic writes: a rollback transaction is one batch of the store, without a journal; what
//! the store refuses goes by a journal.

use crate::vfs_support::{Bench, assert_whole, count, text};
use tiersmith_store::waits;

fn journal(bench: &Bench) -> std::path::PathBuf {
    bench.dir.path().join("app.db-tiersmith/journal")
}

#[test]
fn a_rollback_transaction_is_one_batch_and_makes_no_journal() {
    let bench = Bench::new();
    let connection = bench.open();
    connection.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, n)").unwrap();
    for id in 0..100 {
        connection.execute("INSERT INTO t VALUES (?1, 0)", [id]).unwrap();
    }
    // The transaction that made the first page had no batch: SQLite writes a journal for an empty
    // database, and it may be there still.
    let before = bench.stats();
    for id in 0..100 {
        connection.execute("UPDATE t SET n=n+1 WHERE id=?1", [id]).unwrap();
    }
    let after = bench.stats();
    assert_eq!(count(&after, waits::BATCH_WRITE) - count(&before, waits::BATCH_WRITE), 100);
    assert_eq!(
        count(&after, waits::BLOCK_WRITE),
        count(&before, waits::BLOCK_WRITE),
        "nothing else was written"
    );
    assert_eq!(text(&connection, "SELECT sum(n) FROM t"), "100");
}

#[test]
fn a_database_that_is_made_and_used_in_batches_has_no_journal_when_it_is_closed() {
    let bench = Bench::new();
    let connection = bench.open();
    connection.execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES (1)").unwrap();
    drop(connection);
    assert!(!journal(&bench).exists());
    assert_eq!(text(&bench.reopen(), "SELECT x FROM t"), "1");
}

#[test]
fn every_page_size_commits_and_keeps_the_length_sqlite_gave_the_file() {
    for page_size in [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536] {
        for block in [4096, 32768] {
            let bench = Bench::with(&format!("&size=32M&block={block}"));
            let connection = bench.open();
            connection.execute_batch(&format!("PRAGMA page_size={page_size}")).unwrap();
            connection.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, body BLOB)").unwrap();
            for id in 0..60 {
                connection.execute("INSERT INTO t VALUES (?1, randomblob(700))", [id]).unwrap();
            }
            for id in 0..60 {
                connection.execute("UPDATE t SET body=zeroblob(701) WHERE id=?1", [id]).unwrap();
            }
            assert_eq!(text(&connection, "PRAGMA page_size"), page_size.to_string());
            assert_whole(&connection);
            let pages: u64 = text(&connection, "PRAGMA page_count").parse().unwrap();
            drop(connection);
            bench.detach();
            let len = std::fs::metadata(bench.database()).unwrap().len();
            assert_eq!(len, pages * page_size, "page size {page_size}, block {block}");
            let plain = rusqlite::Connection::open(bench.database()).unwrap();
            assert_whole(&plain);
            assert_eq!(
                text(&plain, "SELECT count(*) || ' ' || sum(length(body)) FROM t"),
                "60 42060"
            );
        }
    }
}

#[test]
fn a_transaction_too_large_for_a_batch_is_written_with_a_journal() {
    let bench = Bench::with("&size=8M");
    let connection = bench.open();
    // No spilling: all of it comes in one commit.
    connection
        .execute_batch("PRAGMA cache_size=-65536; PRAGMA cache_spill=0; CREATE TABLE t(x)")
        .unwrap();
    connection
        .execute_batch(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<6000) \
             INSERT INTO t SELECT randomblob(3000) FROM n",
        )
        .unwrap();
    assert_eq!(text(&connection, "SELECT count(*) FROM t"), "6000");
    assert_whole(&connection);
    assert!(text(&connection, "SELECT tiersmith_last_error()").contains("does not fit the tier"));
    drop(connection);
    assert_whole(&bench.reopen());
}

#[test]
fn a_transaction_that_spills_is_rolled_back_whole() {
    let bench = Bench::new();
    let connection = bench.open();
    connection.execute_batch("PRAGMA cache_size=10; CREATE TABLE t(x)").unwrap();
    let insert = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500) \
                  INSERT INTO t SELECT randomblob(3000) FROM n";
    connection.execute_batch(insert).unwrap();
    let sum = text(&connection, "SELECT sum(unicode(hex(x))) FROM t");
    connection
        .execute_batch(&format!(
            "BEGIN; UPDATE t SET x=zeroblob(3000); {insert}; DELETE FROM t WHERE rowid%2; ROLLBACK"
        ))
        .unwrap();
    assert_eq!(text(&connection, "SELECT sum(unicode(hex(x))) FROM t"), sum);
    assert_whole(&connection);
}

//! What SQLite can do with a database file, on an attached one: lent pages, VACUUM, auto_vacuum,
//! transactions over two databases, pragmas, placements; and the wait events of a plain one.

use crate::vfs_support::{Bench, assert_whole, count, counter, text};
use rusqlite::Connection;
use tiersmith_store::waits;

const ROWS: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<800) \
                    INSERT INTO t SELECT i, randomblob(1000) FROM n";

fn filled(bench: &Bench) -> Connection {
    let connection = bench.open();
    connection
        .execute_batch(&format!("CREATE TABLE t(id INTEGER PRIMARY KEY, body BLOB); {ROWS}"))
        .unwrap();
    connection
}

#[test]
fn pages_are_lent_without_a_copy_when_mmap_size_is_set() {
    for journal in ["delete", "wal"] {
        let bench = Bench::new();
        let connection = filled(&bench);
        text(&connection, &format!("PRAGMA journal_mode={journal}"));
        let before = counter(&bench.stats(), waits::ZERO_COPY);
        text(&connection, "SELECT sum(length(body)) FROM t");
        assert_eq!(
            counter(&bench.stats(), waits::ZERO_COPY),
            before,
            "nothing is lent unless asked for"
        );
        assert_eq!(text(&connection, "PRAGMA mmap_size=268435456"), "268435456");
        connection.execute_batch("PRAGMA shrink_memory").unwrap();
        let sum = text(&connection, "SELECT sum(length(body)) FROM t");
        assert_eq!(sum, "800000");
        let lent = counter(&bench.stats(), waits::ZERO_COPY) - before;
        assert!(lent > 100, "{lent} pages were lent");
        // Pages that are lent while others write: a reader goes on with what it has.
        let mut reading = connection.prepare("SELECT id, length(body) FROM t").unwrap();
        let mut rows = reading.query([]).unwrap();
        let mut n = 0;
        let writer = bench.reopen();
        while let Some(row) = rows.next().unwrap() {
            assert_eq!(row.get::<_, i64>(1).unwrap(), 1000);
            n += 1;
            if journal == "wal" && n % 100 == 0 {
                writer.execute("UPDATE t SET body=randomblob(999) WHERE id=?1", [n]).unwrap();
            }
        }
        assert_eq!(n, 800);
        drop(rows);
        drop(reading);
        connection.execute_batch("UPDATE t SET body=randomblob(1000)").unwrap();
        assert_whole(&connection);
    }
}

#[test]
fn vacuum_shortens_the_file_and_auto_vacuum_keeps_it_short() {
    let bench = Bench::new();
    let connection = filled(&bench);
    connection.execute_batch("DELETE FROM t WHERE id>100; VACUUM").unwrap();
    assert_whole(&connection);
    let pages: u64 = text(&connection, "PRAGMA page_count").parse().unwrap();
    assert!(pages < 60, "{pages}");
    connection
        .execute_batch(&format!("PRAGMA auto_vacuum=full; VACUUM; DELETE FROM t; {ROWS}"))
        .unwrap();
    connection.execute_batch("DELETE FROM t WHERE id>100").unwrap();
    assert_whole(&connection);
    let pages: u64 = text(&connection, "PRAGMA page_count").parse().unwrap();
    drop(connection);
    bench.detach();
    assert_eq!(std::fs::metadata(bench.database()).unwrap().len(), pages * 4096);
    assert_whole(&Connection::open(bench.database()).unwrap());
}

#[test]
fn a_transaction_over_two_attached_databases_commits_and_rolls_back_as_one() {
    let (one, two) = (Bench::new(), Bench::new());
    drop(filled(&two));
    let connection = filled(&one);
    connection
        .execute_batch(&format!(
            "ATTACH 'file:{}?vfs=tiersmith' AS other",
            two.database().display()
        ))
        .unwrap();
    for mode in ["delete", "persist", "truncate"] {
        text(&connection, &format!("PRAGMA main.journal_mode={mode}"));
        text(&connection, &format!("PRAGMA other.journal_mode={mode}"));
        let both = |sql: &str| {
            connection
                .execute_batch(&format!(
                    "BEGIN; UPDATE main.t SET id=-id WHERE id<10; UPDATE other.t SET id=-id WHERE \
                     id<10; {sql}"
                ))
                .unwrap();
        };
        both("COMMIT");
        both("ROLLBACK");
        both("COMMIT");
        for database in ["main", "other"] {
            let sum = format!("SELECT sum(id) FROM {database}.t");
            assert_eq!(text(&connection, &sum), (800 * 801 / 2).to_string(), "{mode} {database}");
        }
    }
    connection.execute_batch("DETACH other").unwrap();
    assert_whole(&connection);
    assert_whole(&two.reopen());
    let left: Vec<_> = one.dir.path().read_dir().unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(
        !left.iter().any(|n| n.to_string_lossy().contains("-mj")),
        "a super-journal is left: {left:?}"
    );
}

#[test]
fn the_pragmas_tell_what_is_attached_write_it_home_and_check_it() {
    let bench = Bench::new();
    let connection = filled(&bench);
    let stats = text(&connection, "PRAGMA tiersmith_stats");
    assert!(stats.contains("EMULATED") && stats.contains("tier batch write"), "{stats}");
    let flushed: u64 = text(&connection, "PRAGMA tiersmith_flush").parse().unwrap();
    assert!(flushed > 100, "{flushed}");
    let again: u64 = text(&connection, "PRAGMA tiersmith_flush").parse().unwrap();
    assert_eq!(again, 0);
    let checked = text(&connection, "PRAGMA tiersmith_check");
    assert!(checked.starts_with("ok: "), "{checked}");
    // A pragma of ours that does not exist is one SQLite does not know either: no row, no error.
    assert!(connection.query_row("PRAGMA tiersmith_nothing", [], |_| Ok(())).is_err());
}

#[test]
fn the_check_finds_a_home_file_that_was_changed() {
    let bench = Bench::new();
    let connection = filled(&bench);
    text(&connection, "PRAGMA tiersmith_flush");
    let home = bench.dir.path().join("app.db-tiersmith/db");
    let file = std::fs::File::options().write(true).open(home).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"x", 40960).unwrap();
    let found =
        connection.query_row("PRAGMA tiersmith_check", [], |_| Ok(())).unwrap_err().to_string();
    assert!(found.contains("the first at byte 40960"), "{found}");
}

#[test]
fn a_plain_database_is_the_stock_vfs_with_its_waits_timed() {
    let bench = Bench::new();
    let connection = bench.reopen();
    let events = tiersmith_sqlite::plain_events();
    let before = events.read();
    text(&connection, "PRAGMA journal_mode=wal");
    connection
        .execute_batch("PRAGMA synchronous=full; CREATE TABLE t(x); INSERT INTO t VALUES (1)")
        .unwrap();
    let waited = events.read().since(&before);
    for event in ["log file sync", "log file parallel write"] {
        let (_, totals) = waited.events().find(|(def, _)| def.name == event).unwrap();
        assert!(totals.count() > 0, "{event}");
    }
    // Another connection, by the stock VFS, shares it.
    let stock = Connection::open(bench.database()).unwrap();
    assert_eq!(text(&stock, "SELECT x FROM t"), "1");
    stock.execute_batch("INSERT INTO t VALUES (2)").unwrap();
    assert_eq!(text(&connection, "SELECT count(*) FROM t"), "2");
    let refused = connection.query_row("PRAGMA tiersmith_flush", [], |_| Ok(())).unwrap_err();
    assert!(refused.to_string().contains("not attached"), "{refused}");
    assert!(text(&connection, "PRAGMA tiersmith_stats").contains("plain"));
}

#[test]
fn with_place_redo_the_database_file_passes_and_the_wal_is_in_the_tier() {
    let bench = Bench::with("&size=16M&place=redo");
    let connection = bench.open();
    // The header that says WAL is written with a journal.
    text(&connection, "PRAGMA journal_mode=wal");
    let before = bench.stats();
    connection
        .execute_batch(&format!("CREATE TABLE t(id INTEGER PRIMARY KEY, body BLOB); {ROWS}"))
        .unwrap();
    text(&connection, "PRAGMA wal_checkpoint(TRUNCATE)");
    let stats = bench.stats();
    assert!(
        count(&stats, waits::REDO_WRITE) > count(&before, waits::REDO_WRITE)
            && count(&stats, waits::PASS_SYNC) > 0
    );
    // Those of its stamp, and none for a page: that it is written, between which times, and how it
    // was left; where it takes long, the first two again.
    let stamps = count(&stats, waits::BLOCK_WRITE) - count(&before, waits::BLOCK_WRITE);
    let pages: u64 = text(&connection, "PRAGMA page_count").parse().unwrap();
    assert!(stamps >= 3 && stamps % 2 == 1 && stamps < pages / 2, "{stamps} writes, {pages} pages");
    text(&connection, "PRAGMA journal_mode=delete");
    connection.execute_batch("UPDATE t SET body=zeroblob(10)").unwrap();
    assert_eq!(count(&bench.stats(), waits::BATCH_WRITE), 0, "a pass file has no batches");
    assert_whole(&connection);
    drop(connection);
    assert_whole(&bench.reopen());
}

#[test]
fn with_place_data_the_journal_passes_and_batches_are_used() {
    let bench = Bench::with("&size=8M&place=data");
    let connection = filled(&bench);
    let before = bench.stats();
    connection.execute_batch("UPDATE t SET body=zeroblob(1001) WHERE id=5").unwrap();
    assert_eq!(count(&bench.stats(), waits::BATCH_WRITE), count(&before, waits::BATCH_WRITE) + 1);
    // Too large for a batch: the journal SQLite makes then is at home, and must be synced before
    // the database is written.
    connection.execute_batch("PRAGMA cache_size=-65536; PRAGMA cache_spill=0").unwrap();
    let before = count(&bench.stats(), waits::PASS_SYNC);
    connection
        .execute_batch(
            "BEGIN; UPDATE t SET body=zeroblob(1002); WITH RECURSIVE n(i) AS (SELECT 1001 UNION \
             ALL SELECT i+1 FROM n \
             WHERE i<6000) INSERT INTO t SELECT i, randomblob(3000) FROM n; COMMIT",
        )
        .unwrap();
    assert!(count(&bench.stats(), waits::PASS_SYNC) > before);
    for mode in ["truncate", "persist", "wal"] {
        text(&connection, &format!("PRAGMA journal_mode={mode}"));
        connection
            .execute_batch("BEGIN; UPDATE t SET body=zeroblob(3) WHERE id<2000; COMMIT")
            .unwrap();
        assert_whole(&connection);
    }
    drop(connection);
    assert_whole(&bench.reopen());
}

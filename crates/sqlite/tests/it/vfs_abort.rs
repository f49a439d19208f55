//! A process that ends in the middle of a transaction: the next open rolls it back with the journal
//! it left.
//!
//! The transaction is larger than SQLite's page cache, so SQLite has written a journal and part of
//! the database. `kill.rs` has the random instants; here is the certain one, for each way a journal
//! ends, with the remains of earlier journals behind it.

use crate::vfs_support;

use crate::vfs_support::{Bench, assert_whole, text};
use rusqlite::{Connection, ffi};
use std::ffi::CString;
use std::process::Command;

/// Set for the process that ends: the URI, and the journal mode.
const URI: &str = "TIERSMITH_TEST_ABORT_URI";
const MODE: &str = "TIERSMITH_TEST_ABORT_MODE";

/// Set when it is to end behind the second commit.
const COMMITTED: &str = "TIERSMITH_TEST_ABORT_COMMITTED";

/// What the process does that ends; it is run by the test of the same name.
fn abort_in_the_middle(connection: &Connection, mode: &str) -> ! {
    connection.execute_batch("PRAGMA cache_size=5").unwrap();
    text(connection, &format!("PRAGMA journal_mode={mode}"));
    // Two that are committed, the first with the longer journal.
    connection.execute_batch("UPDATE t SET body=zeroblob(2000), n=n+1").unwrap();
    connection.execute_batch("UPDATE t SET body=zeroblob(1900), n=n+1 WHERE id<=100").unwrap();
    if std::env::var_os(COMMITTED).is_some() {
        std::process::abort();
    }
    connection
        .execute_batch("BEGIN; UPDATE t SET body=zeroblob(1800), n=n+100 WHERE id<=50")
        .unwrap();
    std::process::abort();
}

fn end_in_the_middle(bench: &Bench, mode: &str, test: &str, committed: bool) {
    {
        let connection = bench.open();
        connection
            .execute_batch(
                "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, body BLOB); \
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<200) \
                 INSERT INTO t SELECT i, 0, randomblob(2000) FROM n",
            )
            .unwrap();
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([full_name!(test).as_str(), "--exact"]).env(URI, bench.uri()).env(MODE, mode);
    if committed {
        command.env(COMMITTED, "1");
    }
    let ended = command.output().unwrap();
    use std::os::unix::process::ExitStatusExt;
    let said = String::from_utf8_lossy(&ended.stdout);
    assert_eq!(
        ended.status.signal(),
        Some(6),
        "it did not come to the middle of its transaction: {said}"
    );
}

fn run_if_inside() {
    if let Ok(uri) = std::env::var(URI) {
        tiersmith_sqlite::register().unwrap();
        abort_in_the_middle(&vfs_support::open(uri), &std::env::var(MODE).unwrap());
    }
}

#[test]
fn a_transaction_that_was_half_written_is_rolled_back_by_the_next_open() {
    run_if_inside();
    for mode in ["delete", "truncate", "persist"] {
        for parameters in
            ["&size=16M", "&size=16M&place=data", "&size=16M&place=redo", "&size=16M&block=16384"]
        {
            let bench = Bench::with(parameters);
            let test = "a_transaction_that_was_half_written_is_rolled_back_by_the_next_open";
            end_in_the_middle(&bench, mode, test, false);
            let stock = Connection::open(bench.database()).unwrap();
            assert!(stock.query_row("SELECT count(*) FROM t", [], |_| Ok(())).is_err());
            drop(stock);
            let connection = bench.reopen();
            assert_eq!(text(&connection, "SELECT sum(n) FROM t"), "300", "{mode} {parameters}");
            assert_whole(&connection);
            connection.execute_batch("UPDATE t SET n=0").unwrap();
            drop(connection);
            assert_eq!(text(&bench.reopen(), "SELECT sum(n) FROM t"), "0");
        }
    }
}

#[test]
fn what_was_committed_with_a_journal_stays_when_the_process_ends_right_after() {
    run_if_inside();
    for mode in ["delete", "truncate", "persist"] {
        for parameters in ["&size=16M", "&size=16M&place=data", "&size=16M&place=redo"] {
            let bench = Bench::with(parameters);
            let test = "what_was_committed_with_a_journal_stays_when_the_process_ends_right_after";
            end_in_the_middle(&bench, mode, test, true);
            let connection = bench.reopen();
            assert_eq!(text(&connection, "SELECT sum(n) FROM t"), "300", "{mode} {parameters}");
            assert_whole(&connection);
            drop(connection);
            bench.detach();
            assert_whole(&Connection::open(bench.database()).unwrap());
        }
    }
}

#[test]
fn a_hot_journal_is_seen_while_its_database_is_closed() {
    run_if_inside();
    let bench = Bench::new();
    end_in_the_middle(
        &bench,
        "delete",
        "a_hot_journal_is_seen_while_its_database_is_closed",
        false,
    );
    let name = CString::new(format!("{}-journal", bench.database().display())).unwrap();
    // As SQLite does for the journals that a super-journal names. SAFETY: the VFS is registered,
    // names end with a zero, answers have room; the file is closed at the end.
    unsafe {
        let vfs = ffi::sqlite3_vfs_find(c"tiersmith".as_ptr());
        let mut there = 0;
        let access = (*vfs).xAccess.unwrap();
        assert_eq!(
            access(vfs, name.as_ptr(), ffi::SQLITE_ACCESS_EXISTS, &mut there),
            ffi::SQLITE_OK
        );
        assert_eq!(there, 1);
        let mut memory = vec![0u64; (*vfs).szOsFile as usize / 8 + 1];
        let file: *mut ffi::sqlite3_file = memory.as_mut_ptr().cast();
        let flags = ffi::SQLITE_OPEN_READONLY | ffi::SQLITE_OPEN_SUPER_JOURNAL;
        let code = (*vfs).xOpen.unwrap()(vfs, name.as_ptr(), file, flags, std::ptr::null_mut());
        assert_eq!(code, ffi::SQLITE_OK);
        let mut magic = [0u8; 8];
        let methods = &*(*file).pMethods;
        assert_eq!(methods.xRead.unwrap()(file, magic.as_mut_ptr().cast(), 8, 0), ffi::SQLITE_OK);
        assert_eq!(magic, [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]);
        assert_ne!(methods.xWrite.unwrap()(file, magic.as_ptr().cast(), 8, 0), ffi::SQLITE_OK);
        assert_eq!(methods.xClose.unwrap()(file), ffi::SQLITE_OK);
    }
    // Looking changed nothing: it is rolled back by the open that follows.
    let connection = bench.reopen();
    assert_eq!(text(&connection, "SELECT sum(n) FROM t"), "300");
    assert_whole(&connection);
}

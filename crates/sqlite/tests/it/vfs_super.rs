//! A transaction over two attached databases, cut at its commit point: the deletion of the
//! super-journal. Before it both databases are as they were, after it both have changed, also when
//! they are opened one after the other.

use crate::vfs_support;

use crate::support::{fold, patiently};
use crate::vfs_support::{Bench, assert_whole, text};
use rusqlite::ffi;
use std::ffi::{CStr, c_char, c_int};
use std::process::Command;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, SystemTime};
use tiersmith_sqlite::place::{Place, PlaceError, Want};
use tiersmith_store::OpenMode;

/// Set for the process that ends: the two URIs, and when it ends.
const ONE: &str = "TIERSMITH_TEST_SUPER_ONE";
const TWO: &str = "TIERSMITH_TEST_SUPER_TWO";
const WHEN: &str = "TIERSMITH_TEST_SUPER_WHEN";

/// The `unix` VFS.
static UNIX: AtomicPtr<ffi::sqlite3_vfs> = AtomicPtr::new(std::ptr::null_mut());

/// Deletes a file; ends the process before or after a super-journal.
unsafe extern "C" fn delete_and_end(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    sync: c_int,
) -> c_int {
    // SAFETY: SQLite's: a name that ends with a zero.
    let is_super = unsafe { CStr::from_ptr(name) }.to_str().unwrap().contains("-mj");
    let when = std::env::var(WHEN).unwrap();
    if is_super && when == "before" {
        std::process::abort();
    }
    // SAFETY: the function of the VFS that this one is a copy of.
    let code = unsafe { (*UNIX.load(Ordering::Acquire)).xDelete.unwrap()(vfs, name, sync) };
    if is_super && when == "after" {
        std::process::abort();
    }
    code
}

/// Makes a copy of `unix` with another `xDelete` the default, so that `tiersmith` is built on it.
fn register_with_end() {
    // SAFETY: `unix` is there; the copy is never freed, and registered before anything else is done
    // with SQLite.
    unsafe {
        let unix = ffi::sqlite3_vfs_find(std::ptr::null());
        UNIX.store(unix, Ordering::Release);
        let mut copy: ffi::sqlite3_vfs = std::ptr::read(unix);
        copy.zName = c"ends".as_ptr();
        copy.xDelete = Some(delete_and_end);
        assert_eq!(ffi::sqlite3_vfs_register(Box::into_raw(Box::new(copy)), 1), ffi::SQLITE_OK);
    }
    tiersmith_sqlite::register().unwrap();
}

fn cut(mode: &str, when: &str) -> (Bench, Bench) {
    let benches = (Bench::new(), Bench::new());
    for bench in [&benches.0, &benches.1] {
        let connection = bench.open();
        connection
            .execute_batch(
                "PRAGMA cache_size=5; CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, body \
                 BLOB); \
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<50) \
                 INSERT INTO t SELECT i, 0, randomblob(2000) FROM n",
            )
            .unwrap();
    }
    let ended = Command::new(std::env::current_exe().unwrap())
        .args([
            full_name!("a_transaction_over_two_databases_is_in_both_or_in_none").as_str(),
            "--exact",
        ])
        .env(ONE, benches.0.uri())
        .env(TWO, benches.1.uri())
        .env(WHEN, when)
        .env("TIERSMITH_TEST_SUPER_MODE", mode)
        .output()
        .unwrap();
    use std::os::unix::process::ExitStatusExt;
    let said = String::from_utf8_lossy(&ended.stdout);
    assert_eq!(ended.status.signal(), Some(6), "it did not come to its commit point: {said}");
    benches
}

fn run_if_inside() {
    let (Ok(one), Ok(two)) = (std::env::var(ONE), std::env::var(TWO)) else { return };
    register_with_end();
    let connection = vfs_support::open(one);
    vfs_support::until_free(|| connection.execute_batch(&format!("ATTACH '{two}' AS other")))
        .unwrap();
    let mode = std::env::var("TIERSMITH_TEST_SUPER_MODE").unwrap();
    for database in ["main", "other"] {
        text(&connection, &format!("PRAGMA {database}.journal_mode={mode}"));
        connection.execute_batch(&format!("PRAGMA {database}.cache_size=5")).unwrap();
        connection
            .execute_batch(&format!("UPDATE {database}.t SET body=randomblob(2000)"))
            .unwrap();
    }
    connection
        .execute_batch("BEGIN; UPDATE main.t SET n=n+1; UPDATE other.t SET n=n+1; COMMIT")
        .unwrap();
    // Its journals ended with the name of the super-journal that is gone. The next one is shorter,
    // and has no such name.
    connection
        .execute_batch("BEGIN; UPDATE main.t SET n=n+100, body=randomblob(2000) WHERE id<20")
        .unwrap();
    std::process::abort();
}

#[test]
fn a_journal_is_not_taken_for_that_of_an_earlier_transaction_over_two_databases() {
    run_if_inside();
    for mode in ["delete", "persist", "truncate"] {
        let (one, two) = cut(mode, "never");
        for bench in [&one, &two] {
            let connection = bench.reopen();
            assert_eq!(text(&connection, "SELECT sum(n) FROM t"), "50", "{mode}");
            assert_whole(&connection);
        }
    }
}

#[test]
fn a_transaction_over_two_databases_is_in_both_or_in_none() {
    run_if_inside();
    for mode in ["delete", "persist", "truncate"] {
        for (when, sum) in [("before", "0"), ("after", "50")] {
            let (one, two) = cut(mode, when);
            // One after the other: while the first is rolled back, the second is closed, and its
            // journal must be found there.
            for bench in [&one, &two] {
                let connection = bench.reopen();
                assert_eq!(
                    text(&connection, "SELECT sum(n) FROM t"),
                    sum,
                    "{mode}, cut {when} the deletion"
                );
                assert_whole(&connection);
            }
        }
    }
}

/// With no newer block of the file in the tier, but clean copies, and a journal that only SQLite
/// can judge.
#[test]
fn what_keeping_both_leaves_to_sqlite_can_be_opened_and_detached() {
    let (one, two) = cut("delete", "before");
    let place =
        patiently(|| Place::open(&one.database(), &Want::default(), &fold)).unwrap().unwrap();
    place.home().flush_all().unwrap();
    let (dirty, clean) = place.home().open("db", OpenMode::READ).unwrap().blocks_in_tier();
    assert!(dirty == 0 && clean > 0, "{dirty} newer blocks, {clean} clean copies");
    drop(place);
    let db = one.dir.path().join("app.db-tiersmith/db");
    let file = std::fs::File::options().write(true).open(&db).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[1, 2, 3, 4], 96).unwrap();
    // A minute ahead: another time on each file system.
    file.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
    drop(file);
    let changed = std::fs::read(&db).unwrap();
    let refused = patiently(|| Place::open(&one.database(), &Want::default(), &fold)).unwrap_err();
    assert!(refused.to_string().contains("--keep-both"), "{refused}");

    let left = patiently(|| Place::detach_keeping_both(&one.database(), &fold)).unwrap_err();
    assert!(matches!(left, PlaceError::SuperJournal { .. }), "{left}");
    for bench in [&one, &two] {
        let connection = bench.reopen();
        assert_eq!(text(&connection, "SELECT sum(n) FROM t"), "0");
        assert_whole(&connection);
    }
    one.detach();
    let stock = rusqlite::Connection::open(one.database()).unwrap();
    assert_eq!(text(&stock, "SELECT sum(n) FROM t"), "0");
    assert_whole(&stock);
    assert!(std::fs::read(one.dir.path().join("app.db-changed")).unwrap() == changed);
}

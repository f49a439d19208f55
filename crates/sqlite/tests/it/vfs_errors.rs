//! Errors reach the program: a result code it can act on, and a sentence that says what to do;
//! nothing is lost.

use crate::vfs_support;

use crate::vfs_support::{Bench, assert_whole, text};
use rusqlite::ffi::{self, ErrorCode};
use rusqlite::{Connection, Error};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

/// The code of the error that opening gives, and its sentence, which is the last error too.
fn refused(uri: &str) -> (Option<ErrorCode>, String) {
    let error = vfs_support::until_free(|| Connection::open(uri)).unwrap_err();
    let (said, last) = (error.to_string(), last_error());
    assert!(last.starts_with("tiersmith: ") && said.contains(&last), "{said} does not have {last}");
    (error.sqlite_error_code(), last)
}

fn last_error() -> String {
    text(&Connection::open_in_memory().unwrap(), "SELECT ifnull(tiersmith_last_error(), '')")
}

fn attached() -> Bench {
    let bench = Bench::new();
    bench.open().execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES (1)").unwrap();
    bench
}

#[test]
fn another_tier_than_the_attached_one_is_cantopen_and_both_are_named() {
    let bench = attached();
    let uri = bench.uri().replace("app.tier", "other.tier");
    let (code, why) = refused(&uri);
    assert_eq!(code, Some(ErrorCode::CannotOpen));
    assert!(why.contains("app.tier") && why.contains("other.tier"), "{why}");
    assert_eq!(text(&bench.reopen(), "SELECT x FROM t"), "1");
}

#[test]
fn a_tier_that_is_gone_is_cantopen_and_its_path_is_named() {
    let bench = attached();
    let hidden = bench.dir.path().join("hidden");
    std::fs::rename(bench.tier(), &hidden).unwrap();
    let (code, why) = refused(&format!("file:{}?vfs=tiersmith", bench.database().display()));
    assert_eq!(code, Some(ErrorCode::CannotOpen), "{why}");
    assert!(why.contains("app.tier"), "{why}");
    std::fs::rename(hidden, bench.tier()).unwrap();
    assert_eq!(text(&bench.reopen(), "SELECT x FROM t"), "1");
}

#[test]
fn a_refused_database_that_is_attached_with_sql_is_cantopen_and_no_empty_one() {
    let bench = attached();
    let uri = bench.uri().replace("app.tier", "other.tier");
    for parameter in ["", "&immutable=1", "&nolock=1"] {
        let connection = Connection::open_in_memory().unwrap();
        let uri = format!("{uri}{parameter}");
        let attach = connection.execute("ATTACH ?1 AS refused", [&uri]);
        assert_eq!(
            attach.unwrap_err().sqlite_error_code(),
            Some(ErrorCode::CannotOpen),
            "{parameter}"
        );
        assert!(last_error().contains("other.tier"));
    }
    let mut first = bench.open();
    assert_eq!(text(&first, "SELECT x FROM t"), "1");
    // An error while it is open is SQLite's own again.
    let refused =
        first.transaction().unwrap().execute("INSERT INTO missing VALUES (1)", []).unwrap_err();
    assert!(refused.to_string().contains("no such table"), "{refused}");
}

#[test]
fn the_tier_of_another_database_is_cantopen() {
    let bench = attached();
    let tier = bench.tier().display().to_string();
    let other = Bench::new();
    let uri =
        format!("file:{}?vfs=tiersmith&fast={tier}&size=16M&emulate=1", other.database().display());
    let (code, why) = refused(&uri);
    assert_eq!(code, Some(ErrorCode::CannotOpen), "{why}");
    assert!(why.contains("belongs to"), "{why}");
    assert_eq!(text(&bench.reopen(), "SELECT x FROM t"), "1");
}

#[test]
fn a_parameter_that_cannot_be_read_is_cantopen_with_what_to_give() {
    let bench = Bench::with("&size=lots");
    let (code, why) = refused(&bench.uri());
    assert_eq!(code, Some(ErrorCode::CannotOpen));
    assert!(why.contains("size=lots"), "{why}");
    assert!(!bench.database().exists());
}

#[test]
fn a_read_only_connection_reads_and_cannot_write() {
    let bench = attached();
    let uri = format!("file:{}?vfs=tiersmith&mode=ro", bench.database().display());
    let connection = vfs_support::open(uri);
    assert_eq!(text(&connection, "SELECT x FROM t"), "1");
    let refused = connection.execute_batch("INSERT INTO t VALUES (2)").unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::ReadOnly));
}

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "C" fn keep_line(_: *mut c_void, _: c_int, line: *const c_char) {
    // SAFETY: SQLite's: a string that ends with a zero.
    let line = unsafe { CStr::from_ptr(line) };
    LINES.lock().unwrap().push(line.to_string_lossy().into_owned());
}

#[test]
fn every_error_is_a_line_in_sqlites_log() {
    // The log is a setting of the whole process, made before SQLite is used: so in a process of its
    // own.
    const INSIDE: &str = "TIERSMITH_TEST_LOG";
    if std::env::var_os(INSIDE).is_some() {
        let keep: unsafe extern "C" fn(*mut c_void, c_int, *const c_char) = keep_line;
        // SAFETY: called before any other use of SQLite in this process, with the two arguments
        // this option takes.
        let code = unsafe {
            ffi::sqlite3_config(ffi::SQLITE_CONFIG_LOG, keep, std::ptr::null_mut::<c_void>())
        };
        assert_eq!(code, ffi::SQLITE_OK);
        let bench = Bench::with("&size=lots");
        let _ = refused(&bench.uri());
        let lines = LINES.lock().unwrap().join("\n");
        assert!(lines.contains("tiersmith: the URI parameter size=lots cannot be used"), "{lines}");
        return;
    }
    let inside = Command::new(std::env::current_exe().unwrap())
        .args([full_name!("every_error_is_a_line_in_sqlites_log").as_str(), "--exact"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    assert!(inside.status.success(), "{}", String::from_utf8_lossy(&inside.stdout));
}

/// A file system of its own, of some MiB, or why there is none.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(at: &Path, bytes: u64) -> Result<Self, String> {
        std::fs::create_dir(at).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(at)
            .output()
            .map_err(|e| e.to_string())?;
        if !mount.status.success() {
            return Err(String::from_utf8_lossy(&mount.stderr).trim().to_string());
        }
        Ok(Self(at.to_path_buf()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn fill_until_full(connection: &Connection) -> (i64, Error) {
    let mut n = 0;
    loop {
        match connection.execute("INSERT INTO t VALUES (?1, randomblob(3000))", [n]) {
            Ok(_) => n += 1,
            Err(e) => return (n, e),
        }
        assert!(n < 20_000, "the disk never got full");
    }
}

#[test]
fn a_full_tier_with_a_full_home_gives_sqlite_full_and_loses_nothing() {
    for journal in ["delete", "wal"] {
        let bench = Bench::new();
        let disk = match SmallDisk::mount(&bench.dir.path().join("small"), 6 << 20) {
            Ok(disk) => disk,
            Err(why) => {
                eprintln!(
                    "skipped: a full disk, because there is no file system of its own: {why}"
                );
                return;
            }
        };
        let database = disk.0.join("app.db");
        let uri =
            |parameters: &str| format!("file:{}?vfs=tiersmith{parameters}", database.display());
        let tier = format!("&fast={}&emulate=1&size=8M", bench.tier().display());
        let connection = vfs_support::open(uri(&tier));
        text(&connection, &format!("PRAGMA journal_mode={journal}"));
        connection.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, body BLOB)").unwrap();
        let (committed, error) = fill_until_full(&connection);
        assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DiskFull), "{journal}: {error}");
        assert!(committed > 500, "{committed}");
        let rows = text(&connection, "SELECT count(*) FROM t");
        assert_eq!(rows, committed.to_string());
        drop(connection);
        let connection = vfs_support::open(uri(""));
        assert_eq!(text(&connection, "SELECT count(*) FROM t"), rows);
        assert_whole(&connection);
    }
}

/// The rollback too finds tier and disk full. Nothing acknowledged may be lost by that, and when
/// there is room again the database goes on.
#[test]
fn a_transaction_larger_than_tier_and_disk_is_rolled_back_and_what_was_committed_stays() {
    for (journal, spare) in [("delete", 2 << 20), ("delete", 0), ("truncate", 0), ("wal", 0)] {
        let bench = Bench::new();
        let disk = match SmallDisk::mount(&bench.dir.path().join("small"), 24 << 20) {
            Ok(disk) => disk,
            Err(why) => {
                eprintln!(
                    "skipped: a full disk, because there is no file system of its own: {why}"
                );
                return;
            }
        };
        let database = disk.0.join("app.db");
        let uri =
            |parameters: &str| format!("file:{}?vfs=tiersmith{parameters}", database.display());
        let tier = format!("&fast={}&emulate=1&size=8M", bench.tier().display());
        let connection = vfs_support::open(uri(&tier));
        text(&connection, &format!("PRAGMA journal_mode={journal}"));
        connection
            .execute_batch(
                "PRAGMA cache_size=20; CREATE TABLE t(id INTEGER PRIMARY KEY, body BLOB)",
            )
            .unwrap();
        for id in 0..1500 {
            connection.execute("INSERT INTO t VALUES (?1, randomblob(3000))", [id]).unwrap();
        }
        let filler = disk.0.join("filler");
        let free = rustix::fs::statvfs(&disk.0).unwrap();
        let left = free.f_bavail * free.f_frsize;
        // With nothing to spare the last of it may not fit, which is as well.
        let filled = std::fs::write(&filler, vec![1; left.saturating_sub(spare) as usize]);
        assert!(filled.is_ok() || spare == 0, "{filled:?}");
        let began = std::time::Instant::now();
        let mut refused = None;
        connection.execute_batch("BEGIN").unwrap();
        for id in (0..1500).chain(0..1500) {
            if let Err(e) =
                connection.execute("UPDATE t SET body=randomblob(3000) WHERE id=?1", [id])
            {
                refused = Some(e);
                break;
            }
        }
        let updated = began.elapsed();
        if !connection.is_autocommit() {
            // With an error of its own it stays for the next open.
            let _ = connection.execute_batch("ROLLBACK");
        }
        drop(connection);
        println!(
            "{journal}: refused with {refused:?}, updates {:.1} s, all {:.1} s",
            updated.as_secs_f64(),
            began.elapsed().as_secs_f64()
        );
        std::fs::remove_file(&filler).unwrap();
        let connection = vfs_support::open(uri(""));
        assert_eq!(text(&connection, "SELECT count(*) FROM t"), "1500", "{journal}");
        assert_whole(&connection);
        connection.execute_batch("UPDATE t SET body=NULL").unwrap();
        assert_whole(&connection);
    }
}

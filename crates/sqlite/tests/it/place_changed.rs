//! `db` in the directory was written past Tiersmith while only its WAL or its journal was not
//! empty, no newer block of `db` itself being in the tier: the log belongs to what `db` was, so it
//! is refused, nothing is lost, and both versions can be had.
//!
//! Each journal mode, each placement, each order of taking the bars away, writing and putting them
//! back.

use crate::support::{Bench, again, connect, fold, patiently, rows, stock};
use rusqlite::config::DbConfig;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use tiersmith_sqlite::place::{Place, PlaceError};

const PLACES: [&str; 3] = ["all", "redo", "data"];
const BARS: [&str; 2] = ["db-wal", "db-journal"];
/// Set for the process that ends in a transaction: the URI.
const URI: &str = "TIERSMITH_TEST_CHANGED_URI";

/// What somebody does to the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meddling {
    /// Both bars go, a stock SQLite writes.
    BarsGo,
    /// The same, and the bars are put back.
    BarsBack,
    /// Bytes are written, the bars stay.
    Bytes,
    /// Another file takes the place of `db`.
    Replaced,
}

/// 10 rows in `db`, which is at home; the 11th in the WAL.
fn ahead_by_wal(place: &str) -> Bench {
    let bench = Bench::new();
    let db = connect(&bench.uri_with(&format!("&place={place}"))).unwrap();
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    db.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t(n); CREATE TABLE u(n)").unwrap();
    db.execute_batch("INSERT INTO t VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)").unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    db.query_row("PRAGMA tiersmith_flush", [], |_| Ok(())).unwrap();
    db.execute_batch("INSERT INTO t VALUES (10)").unwrap();
    drop(db);
    nothing_newer(&bench);
    bench
}

/// 11 rows; a process ended in a transaction that adds 1000 to them, with part of that in `db`,
/// which is at home, and the journal hot.
fn ahead_by_journal(place: &str) -> Bench {
    let bench = Bench::new();
    let uri = bench.uri_with(&format!("&place={place}"));
    let ended = again(&full_name!("a_journal_is_not_rolled_back_into_another_file"), (URI, &uri))
        .output()
        .unwrap();
    assert_eq!(ended.status.signal(), Some(6), "{}", String::from_utf8_lossy(&ended.stderr));
    let place = bench.open().unwrap().unwrap();
    place.home().flush_all().unwrap();
    drop(place);
    nothing_newer(&bench);
    bench
}

fn end_in_a_transaction(uri: &str) -> ! {
    let db = connect(uri).unwrap();
    db.execute_batch("PRAGMA journal_mode = DELETE; CREATE TABLE t(n, body); CREATE TABLE u(n)")
        .unwrap();
    let rows = "WITH RECURSIVE i(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM i WHERE n < 10) \
                SELECT n, zeroblob(3000) FROM i";
    db.execute_batch(&format!("INSERT INTO t {rows}")).unwrap();
    // Of one length as it is stored, so that a half of it is no damaged table.
    db.execute_batch("UPDATE t SET n = n + 1000; PRAGMA cache_size = 2").unwrap();
    db.execute_batch("BEGIN; UPDATE t SET n = n + 1000").unwrap();
    std::process::abort()
}

fn nothing_newer(bench: &Bench) {
    let place = bench.open().unwrap().unwrap();
    let file = place.home().open("db", tiersmith_store::OpenMode::READ).unwrap();
    assert_eq!(file.blocks_in_tier().0, 0, "there is a newer block of db in the tier");
}

fn take_bars(bench: &Bench) {
    BARS.iter().for_each(|bar| std::fs::remove_dir(bench.home().join(bar)).unwrap());
}

fn put_bars(bench: &Bench) {
    BARS.iter().for_each(|bar| std::fs::create_dir(bench.home().join(bar)).unwrap());
}

fn meddle(bench: &Bench, how: Meddling) {
    let db = bench.home().join("db");
    match how {
        Meddling::BarsGo | Meddling::BarsBack => {
            take_bars(bench);
            let past = stock(&db).unwrap();
            past.execute_batch("INSERT INTO u VALUES (99)").unwrap();
            past.close().unwrap();
            another_time(&db);
            if how == Meddling::BarsBack {
                put_bars(bench);
            }
        }
        Meddling::Bytes => {
            use std::os::unix::fs::FileExt;
            let file = std::fs::File::options().write(true).open(&db).unwrap();
            // The number of the SQLite that wrote last: read by nobody.
            file.write_all_at(&[1, 2, 3, 4], 96).unwrap();
            drop(file);
            another_time(&db);
        }
        Meddling::Replaced => {
            std::fs::copy(&db, bench.home().join("copy")).unwrap();
            std::fs::rename(bench.home().join("copy"), &db).unwrap();
        }
    }
}

/// A file system may keep times by 10 ms, and this goes faster than that: a minute ahead is another
/// time on each.
fn another_time(db: &Path) {
    let file = std::fs::File::options().write(true).open(db).unwrap();
    file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(60)).unwrap();
}

/// Open and detach refuse twice over, say what can be done, and change nothing.
fn is_refused(bench: &Bench, what: &str) -> PlaceError {
    let before = bench.contents(&["tier"]);
    for _ in 0..2 {
        for refused in [bench.open().map(drop), bench.detach()] {
            let refused = refused.expect_err(what);
            let message = refused.to_string();
            assert!(
                message.contains("db ") && message.contains("belong to it as it was"),
                "{what}: {message}"
            );
        }
    }
    assert!(bench.contents(&["tier"]) == before, "{what}: refusing changed something");
    bench.open().unwrap_err()
}

fn one<T: rusqlite::types::FromSql>(path: &Path, sql: &str) -> T {
    stock(path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}

fn kept_both(bench: &Bench, place: &str, how: Meddling, what: &str) {
    let kept = patiently(|| Place::detach_keeping_both(&bench.database(), &fold)).unwrap();
    let changed = kept.changed.unwrap();
    if how != Meddling::Bytes {
        assert_eq!(one::<i64>(&changed, "SELECT sum(n) FROM u"), 99, "{what}");
    }
    // With place=redo the file was at home only, and it is said that it is as it was found.
    let from_home = if place == "redo" { kept.blocks } else { 0 };
    assert_eq!((kept.blocks_from_home, kept.blocks > 0), (from_home, true), "{what}");
    assert!(!bench.home().exists(), "{what}");
    if place != "redo" {
        assert_eq!(one::<String>(&bench.database(), "PRAGMA integrity_check"), "ok", "{what}");
        assert_eq!(one::<i64>(&bench.database(), "SELECT count(*) FROM u"), 0, "{what}");
    }
    assert_eq!(rows(&bench.database()).unwrap(), 11, "{what}");
}

fn each_way(ahead: fn(&str) -> Bench, after: fn(&Bench, &str)) {
    for place in PLACES {
        for how in [Meddling::BarsGo, Meddling::BarsBack, Meddling::Bytes] {
            let what = format!("place={place}, {how:?}");
            let bench = ahead(place);
            meddle(&bench, how);
            let refused = is_refused(&bench, &what);
            assert!(
                refused.to_string().contains("tiersmith detach --keep-both"),
                "{what}: {refused}"
            );
            kept_both(&bench, place, how, &what);
            if place != "redo" {
                after(&bench, &what);
            }
        }
    }
}

#[test]
fn a_wal_is_not_played_into_another_file() {
    each_way(ahead_by_wal, |bench, what| {
        assert_eq!(one::<i64>(&bench.database(), "SELECT max(n) FROM t"), 10, "{what}");
    });
}

#[test]
fn a_journal_is_not_rolled_back_into_another_file() {
    if let Ok(uri) = std::env::var(URI) {
        end_in_a_transaction(&uri);
    }
    each_way(ahead_by_journal, |bench, what| {
        assert_eq!(one::<i64>(&bench.database(), "SELECT max(n) FROM t"), 1010, "{what}");
    });
}

#[test]
fn another_file_in_the_place_of_db_is_refused_and_is_the_user_s_to_put_back() {
    for place in PLACES {
        let bench = ahead_by_wal(place);
        std::fs::rename(bench.home().join("db"), bench.file("saved")).unwrap();
        std::fs::copy(bench.file("saved"), bench.home().join("db")).unwrap();
        meddle(&bench, Meddling::Replaced);
        let refused = is_refused(&bench, place);
        assert!(matches!(refused, PlaceError::Store(_)), "{place}: {refused}");
        assert!(patiently(|| Place::detach_keeping_both(&bench.database(), &fold)).is_err());
        std::fs::rename(bench.file("saved"), bench.home().join("db")).unwrap();
        bench.detach().unwrap();
        assert_eq!(rows(&bench.database()).unwrap(), 11, "{place}");
    }
}

#[test]
fn bars_that_are_gone_are_made_again_by_whoever_knows_that_nothing_was_written() {
    for place in PLACES {
        let bench = ahead_by_wal(place);
        take_bars(&bench);
        let refused = is_refused(&bench, place).to_string();
        assert!(
            refused.contains("db-wal")
                && refused.contains("mkdir")
                && refused.contains("may have been"),
            "{refused}"
        );
        put_bars(&bench);
        drop(bench.open().unwrap().unwrap());
        // One is enough, and the other is raised.
        std::fs::remove_dir(bench.home().join("db-wal")).unwrap();
        bench.open().unwrap().unwrap();
        assert!(bench.home().join("db-wal").is_dir());
        // Or without knowing: both versions are the same then.
        take_bars(&bench);
        kept_both(&bench, place, Meddling::Bytes, place);
    }
}

#[test]
fn with_empty_logs_a_foreign_write_is_the_database_s_next_version() {
    for place in PLACES {
        let bench = ahead_by_wal(place);
        let db = connect(&bench.uri_with(&format!("&place={place}"))).unwrap();
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        db.query_row("PRAGMA tiersmith_flush", [], |_| Ok(())).unwrap();
        drop(db);
        meddle(&bench, Meddling::BarsGo);
        let db = connect(&bench.uri_with(&format!("&place={place}"))).unwrap();
        assert_eq!(
            db.query_row("SELECT n FROM u", [], |row| row.get::<_, i64>(0)).unwrap(),
            99,
            "{place}"
        );
        // And from here on it is that one that must not change: the process ends with frames in the
        // WAL.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
        db.execute_batch("INSERT INTO t VALUES (11)").unwrap();
        drop(db);
        drop(bench.open().unwrap().unwrap());
        meddle(&bench, Meddling::Bytes);
        is_refused(&bench, place);
    }
}

/// Set for the process that ends while `db` is written: the URI, and how.
const CRASH: &str = "TIERSMITH_TEST_CHANGED_CRASH";

/// With `place=redo`: a process ended while `db` was written and nothing of that synced, and nobody
/// has opened the database since. 11 rows.
fn ended_while_db_is_written(how: &str) -> Bench {
    let bench = Bench::new();
    let role = format!("{how} {}", bench.uri_with("&place=redo"));
    let ended = again(
        &full_name!("a_foreign_write_after_a_crash_in_the_middle_of_writing_is_refused"),
        (CRASH, &role),
    )
    .output();
    let ended = ended.unwrap();
    assert_eq!(ended.status.signal(), Some(6), "{}", String::from_utf8_lossy(&ended.stderr));
    bench
}

fn end_while_db_is_written(role: &str) -> ! {
    let (how, uri) = role.split_once(' ').unwrap();
    if how == "commit" {
        end_in_a_transaction(uri);
    }
    let db = connect(uri).unwrap();
    db.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t(n); CREATE TABLE u(n)").unwrap();
    db.execute_batch("INSERT INTO t VALUES (0),(1),(2),(3),(4),(5),(6),(7),(8),(9)").unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    // The checkpoint syncs nothing, as one that was cut before its sync.
    db.execute_batch("INSERT INTO t VALUES (10); PRAGMA synchronous = OFF").unwrap();
    db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
    std::process::abort()
}

fn after_minutes(db: &Path, minutes: u64) {
    let file = std::fs::File::options().write(true).open(db).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    file.set_modified(time + std::time::Duration::from_secs(60 * minutes)).unwrap();
}

#[test]
fn a_foreign_write_after_a_crash_in_the_middle_of_writing_is_refused() {
    if let Ok(role) = std::env::var(CRASH) {
        end_while_db_is_written(&role);
    }
    for how in ["commit", "checkpoint"] {
        // Nobody wrote: that it is not as it was is our own doing. Nor is a write taken for
        // another's that a sleeping machine held up.
        for minutes in [0, 1] {
            let bench = ended_while_db_is_written(how);
            after_minutes(&bench.home().join("db"), minutes);
            drop(bench.open().unwrap().unwrap());
            let db = connect(&bench.uri_with("&place=redo")).unwrap();
            assert_eq!(
                db.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)).unwrap(),
                11,
                "{how}"
            );
            assert_eq!(
                db.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0)).unwrap(),
                "ok",
                "{how}"
            );
        }
        // Somebody did, and put the bars back. It need not be SQLite, which may find half a
        // database here.
        let bench = ended_while_db_is_written(how);
        take_bars(&bench);
        meddle(&bench, Meddling::Bytes);
        put_bars(&bench);
        after_minutes(&bench.home().join("db"), 10);
        let refused = is_refused(&bench, how);
        assert!(matches!(refused, PlaceError::Changed { .. }), "{how}: {refused}");
        kept_both(&bench, "redo", Meddling::Bytes, how);
        // Another file in its place.
        let bench = ended_while_db_is_written(how);
        meddle(&bench, Meddling::Replaced);
        is_refused(&bench, how);
    }
}

/// The stamp only tells of foreign writes: without it the WAL is what it was.
#[test]
fn a_stamp_that_was_removed_or_changed_locks_nothing() {
    let changes: [fn(&Path); 3] = [
        |stamp| std::fs::remove_file(stamp).unwrap(),
        |stamp| {
            let file = std::fs::File::options().write(true).open(stamp).unwrap();
            file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_secs(600))
                .unwrap();
        },
        |stamp| {
            let copy = stamp.with_extension("copy");
            std::fs::copy(stamp, &copy).unwrap();
            std::fs::rename(copy, stamp).unwrap();
        },
    ];
    for change in changes {
        let bench = Bench::new();
        let db = connect(&bench.uri_with("&place=redo")).unwrap();
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
        db.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t(n); INSERT INTO t VALUES (1)")
            .unwrap();
        drop(db);
        let place = bench.open().unwrap().unwrap();
        let stamp = place.home().open("stamp", tiersmith_store::OpenMode::READ).unwrap();
        assert_eq!(stamp.blocks_in_tier().0, 1, "the stamp is to be in the tier only");
        drop((stamp, place));
        change(&bench.home().join("stamp"));
        drop(bench.open().unwrap().unwrap());
        // And the stamp is one again: a foreign write is noticed.
        let db = std::fs::File::options().write(true).open(bench.home().join("db")).unwrap();
        let time = db.metadata().unwrap().modified().unwrap();
        db.set_modified(time + std::time::Duration::from_secs(60)).unwrap();
        assert!(matches!(bench.open().unwrap_err(), PlaceError::Changed { .. }));
        db.set_modified(time).unwrap();
        drop(db);
        bench.detach().unwrap();
        assert_eq!(rows(&bench.database()).unwrap(), 1);
    }
}

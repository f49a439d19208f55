//! A home that was written past Tiersmith while the tier had newer blocks: refused, and with
//! `detach_keeping_both` both versions are kept.

use crate::support::{Bench, connect, fold, patiently, stock};
use std::path::{Path, PathBuf};
use tiersmith_sqlite::place::{KeptBoth, Place, PlaceError};

fn keep_both(bench: &Bench) -> Result<KeptBoth, PlaceError> {
    patiently(|| Place::detach_keeping_both(&bench.database(), &fold))
}

fn rows_of(path: &Path) -> Vec<i64> {
    let db = stock(path).unwrap();
    let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok", "{}", path.display());
    let mut found = db.prepare("SELECT n FROM t ORDER BY n").unwrap();
    found.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}

/// A database of rows 0 to 9 that came home, and row 10 that is in the tier only.
fn ahead(mode: &str) -> Bench {
    let bench = Bench::new();
    let db = connect(&bench.uri()).unwrap();
    db.execute_batch(&format!("PRAGMA journal_mode = {mode}; CREATE TABLE t(n)")).unwrap();
    for n in 0..10 {
        db.execute("INSERT INTO t VALUES (?)", [n]).unwrap();
    }
    if mode == "WAL" {
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    }
    db.query_row("PRAGMA tiersmith_flush", [], |_| Ok(())).unwrap();
    db.execute_batch("INSERT INTO t VALUES (10)").unwrap();
    if mode == "WAL" {
        // Into the database file, in the tier.
        db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
    }
    drop(db);
    bench
}

/// A stock SQLite adds row 99 past the bars; with `keep` it leaves its WAL, as a process that is
/// killed does.
fn meddle(bench: &Bench, keep: bool) {
    let home = bench.home();
    for bar in ["db-wal", "db-journal"] {
        std::fs::remove_dir(home.join(bar)).unwrap();
    }
    let past = stock(&home.join("db")).unwrap();
    past.execute_batch("PRAGMA journal_mode = WAL; INSERT INTO t VALUES (99)").unwrap();
    let wal = std::fs::read(home.join("db-wal")).unwrap();
    drop(past);
    if keep {
        std::fs::write(home.join("db-wal"), wal).unwrap();
    }
}

fn changed(bench: &Bench) -> PathBuf {
    bench.file("app.db-changed")
}

#[test]
fn both_versions_are_kept_and_it_is_said_which_is_which() {
    for (mode, keep) in [("DELETE", false), ("WAL", false), ("DELETE", true)] {
        let bench = ahead(mode);
        meddle(&bench, keep);
        let refused = bench.open().unwrap_err();
        let named = refused.to_string();
        assert!(
            named.contains("changed while the tier held") || named.contains("--keep-both"),
            "{named}"
        );
        assert!(bench.detach().is_err());
        let kept = keep_both(&bench).unwrap();
        assert_eq!(kept.database, bench.database().canonicalize().unwrap());
        assert_eq!(kept.changed.as_deref(), Some(&*changed(&bench).canonicalize().unwrap()));
        assert_eq!(kept.blocks_from_home, 0, "{kept:?}");
        assert_eq!(rows_of(&bench.database()), (0..=10).collect::<Vec<_>>(), "{mode}");
        let theirs = rows_of(&changed(&bench));
        assert_eq!(theirs.last(), Some(&99), "{mode}: {theirs:?}");
        assert!(!theirs.contains(&10), "{mode}: {theirs:?}");
        assert!(!bench.home().exists());
        // And the tier is free.
        drop(bench.attach().unwrap().unwrap());
    }
}

#[test]
fn clean_copies_in_the_tier_are_part_of_what_tiersmith_had() {
    let bench = ahead("DELETE");
    // Every block of the file is changed, also those that were equal in tier and home.
    let db = bench.home().join("db");
    let len = std::fs::metadata(&db).unwrap().len() as usize;
    std::fs::write(&db, vec![0xee; len]).unwrap();
    let kept = keep_both(&bench).unwrap();
    assert_eq!((kept.blocks_from_home, kept.blocks), (0, len as u64 / 4096));
    assert_eq!(rows_of(&bench.database()), (0..=10).collect::<Vec<_>>());
    assert!(std::fs::read(changed(&bench)).unwrap().iter().all(|byte| *byte == 0xee));
}

#[test]
fn a_longer_and_a_shorter_home_are_kept_too() {
    for len in [4096, 400_000] {
        let bench = ahead("DELETE");
        let db = std::fs::File::options().write(true).open(bench.home().join("db")).unwrap();
        db.set_len(len).unwrap();
        drop(db);
        let kept = keep_both(&bench).unwrap();
        assert_eq!(std::fs::metadata(kept.changed.unwrap()).unwrap().len(), len);
        assert_eq!(rows_of(&bench.database()), (0..=10).collect::<Vec<_>>());
    }
}

#[test]
fn what_is_in_the_way_is_not_replaced() {
    let bench = ahead("DELETE");
    meddle(&bench, false);
    std::fs::write(changed(&bench), "somebody's notes").unwrap();
    let refused = keep_both(&bench).unwrap_err().to_string();
    assert!(
        refused.contains("app.db-changed") && refused.contains("Move it elsewhere"),
        "{refused}"
    );
    assert_eq!(std::fs::read_to_string(changed(&bench)).unwrap(), "somebody's notes");
    std::fs::remove_file(changed(&bench)).unwrap();
    // One that was cut after the copy goes on with it.
    std::fs::copy(bench.home().join("db"), changed(&bench)).unwrap();
    keep_both(&bench).unwrap();
    assert_eq!(rows_of(&bench.database()), (0..=10).collect::<Vec<_>>());
}

#[test]
fn nothing_changed_is_an_ordinary_detach() {
    let bench = ahead("WAL");
    let kept = keep_both(&bench).unwrap();
    assert_eq!(kept.changed, None);
    assert_eq!(rows_of(&bench.database()), (0..=10).collect::<Vec<_>>());
    assert!(matches!(keep_both(&bench), Err(PlaceError::NotAttached { .. })));
}

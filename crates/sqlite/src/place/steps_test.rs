//! Attaching and detaching stopped after each step: what a stock SQLite sees then, and that the next open or
//! detach goes on.
//!
//! The process does not end here (`tests/kill.rs` does that); the work stops and nothing is cleaned up. What
//! a power cut does to names and bytes that were not synced is not tested here: the order of the syncs is
//! read in `attach.rs` and `detach.rs`.

use super::*;
use rusqlite::{Connection, OpenFlags, ffi::ErrorCode};
use tempfile::TempDir;
use tiersmith_store::OpenMode;

const STOCK: &str = "unix";

/// A database of its own with a tier, gone with the value.
struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn database(&self) -> PathBuf {
        self.dir.path().join("app.db")
    }

    fn home(&self) -> PathBuf {
        self.dir.path().join("app.db-tiersmith")
    }

    fn fast(&self) -> FastSpec {
        let members = vec![self.dir.path().join("tier")];
        FastSpec { members, size: Some(4 << 20), emulate: true, ..FastSpec::default() }
    }

    fn want(&self) -> Want {
        Want { fast: Some(self.fast()), create: true, read_only: false }
    }

    fn attach(&self) -> Result<Option<Arc<Place>>, PlaceError> {
        Place::open(&self.database(), &self.want(), &fold)
    }

    fn open(&self) -> Result<Option<Arc<Place>>, PlaceError> {
        Place::open(&self.database(), &Want::default(), &fold)
    }

    /// A database with a table of `rows` rows, in WAL mode, its last rows in the WAL.
    fn fill(&self, rows: u32) {
        let db = stock(&self.database()).unwrap();
        db.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t(n)").unwrap();
        for n in 0..rows {
            db.execute("INSERT INTO t VALUES (?)", [n]).unwrap();
        }
    }
}

fn stock(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags_and_vfs(path, OpenFlags::default(), STOCK)
}

/// What the VFS does: the stock VFS rolls back, checkpoints and closes.
fn fold(path: &Path) -> Result<(), String> {
    let folded = || {
        let db = Connection::open_with_flags_and_vfs(path, OpenFlags::SQLITE_OPEN_READ_WRITE, STOCK)?;
        db.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))?;
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        db.close().map_err(|(_, e)| e)
    };
    folded().map_err(|e| e.to_string())
}

/// What a stock SQLite sees at the path: the number of rows, or `None` when it refuses cleanly.
fn stock_sees(path: &Path) -> Option<u32> {
    let db = stock(path).unwrap();
    match db.query_row("SELECT count(*) FROM t", [], |row| row.get(0)) {
        Ok(rows) => Some(rows),
        Err(e) => {
            assert_eq!(e.sqlite_error_code(), Some(ErrorCode::NotADatabase), "{e}");
            None
        }
    }
}

fn stop_after<T>(step: u32, work: impl FnOnce() -> Result<T, PlaceError>) {
    STOP_AFTER.set(Some(step));
    let done = work();
    STOP_AFTER.set(None);
    let stopped = STOPPED.replace(false);
    assert!(stopped && done.is_err(), "step {step} was not reached");
}

#[test]
fn attaching_cut_after_any_step_leaves_the_whole_database_or_the_stub() {
    for step in 1..=7 {
        let bench = Bench::new();
        bench.fill(10);
        stop_after(step, || bench.attach());
        assert_eq!(stock_sees(&bench.database()), (step < 7).then_some(10), "after step {step}");
    }
}

#[test]
fn the_next_open_after_a_cut_attach_completes_it_or_takes_it_back() {
    for step in 1..=7 {
        let bench = Bench::new();
        bench.fill(10);
        stop_after(step, || bench.attach());
        let opened = bench.open().unwrap();
        assert_eq!(opened.is_some(), step == 7, "after step {step}");
        assert_eq!(bench.home().exists(), step == 7, "after step {step}");
        drop(opened);
        // And the tier is free for this database, or has it.
        let place = bench.attach().unwrap().unwrap();
        assert_eq!(stock_sees(&bench.database()), None);
        drop(place);
        Place::detach(&bench.database(), &fold).unwrap();
        assert_eq!(stock_sees(&bench.database()), Some(10));
        assert!(!bench.home().exists());
    }
}

#[test]
fn the_next_attach_after_a_cut_attach_completes_it() {
    for step in 1..=7 {
        let bench = Bench::new();
        bench.fill(10);
        stop_after(step, || bench.attach());
        let place = bench.attach().unwrap_or_else(|e| panic!("after step {step}: {e}")).unwrap();
        assert_eq!(stock_sees(&bench.database()), None);
        drop(place);
        Place::detach(&bench.database(), &fold).unwrap();
        assert_eq!(stock_sees(&bench.database()), Some(10));
    }
}

#[test]
fn detaching_after_a_cut_attach_leaves_the_plain_database() {
    for step in 3..=7 {
        let bench = Bench::new();
        bench.fill(10);
        stop_after(step, || bench.attach());
        Place::detach(&bench.database(), &fold).unwrap_or_else(|e| panic!("after step {step}: {e}"));
        assert_eq!(stock_sees(&bench.database()), Some(10));
        assert!(!bench.home().exists());
    }
}

#[test]
fn a_new_database_whose_attach_was_cut_is_empty_or_attached() {
    for step in 1..=7 {
        let bench = Bench::new();
        stop_after(step, || bench.attach());
        let found = std::fs::metadata(bench.database()).unwrap();
        assert_eq!(found.len() == 0, step < 7, "after step {step}");
        drop(bench.attach().unwrap().unwrap());
        Place::detach(&bench.database(), &fold).unwrap();
        assert_eq!(std::fs::metadata(bench.database()).unwrap().len(), 0);
    }
}

/// Attached, with a change in the WAL that is in the tier only.
fn attached_with_redo(bench: &Bench) {
    bench.fill(10);
    // The WAL of one more row, made by a stock SQLite that does not checkpoint at its end.
    let copy = bench.dir.path().join("copy.db");
    std::fs::copy(bench.database(), &copy).unwrap();
    let db = stock(&copy).unwrap();
    db.execute_batch("PRAGMA wal_autocheckpoint = 0; INSERT INTO t VALUES (10)").unwrap();
    let wal = std::fs::read(bench.dir.path().join("copy.db-wal")).unwrap();
    drop(db);
    let place = bench.attach().unwrap().unwrap();
    let file = place.home().open(place.name(Role::Wal), OpenMode::CREATE).unwrap();
    file.write(0, &wal).unwrap();
    assert!(file.blocks_in_tier().0 > 0);
}

#[test]
fn detaching_cut_after_any_step_leaves_the_stub_or_the_whole_database() {
    for step in 11..=13 {
        let bench = Bench::new();
        attached_with_redo(&bench);
        stop_after(step, || Place::detach(&bench.database(), &fold));
        assert_eq!(stock_sees(&bench.database()), (step == 13).then_some(11), "after step {step}");
    }
}

#[test]
fn the_next_open_after_a_cut_detach_finishes_it() {
    for step in 11..=13 {
        let bench = Bench::new();
        attached_with_redo(&bench);
        stop_after(step, || Place::detach(&bench.database(), &fold));
        assert!(bench.open().unwrap().is_none(), "after step {step}");
        assert_eq!(stock_sees(&bench.database()), Some(11));
        assert!(!bench.home().exists());
        // And the tier can be used again.
        drop(bench.attach().unwrap().unwrap());
    }
}

#[test]
fn the_next_detach_after_a_cut_detach_finishes_it() {
    for step in 11..=13 {
        let bench = Bench::new();
        attached_with_redo(&bench);
        stop_after(step, || Place::detach(&bench.database(), &fold));
        Place::detach(&bench.database(), &fold).unwrap_or_else(|e| panic!("after step {step}: {e}"));
        assert_eq!(stock_sees(&bench.database()), Some(11));
        assert!(!bench.home().exists());
        let again = Place::detach(&bench.database(), &fold).unwrap_err();
        assert!(matches!(again, PlaceError::NotAttached { .. }), "{again}");
    }
}

#[test]
fn a_fold_that_fails_while_detaching_loses_nothing() {
    let bench = Bench::new();
    attached_with_redo(&bench);
    let refused = Place::detach(&bench.database(), &|_| Err("the disk is full".into())).unwrap_err();
    assert!(refused.to_string().contains("the disk is full"), "{refused}");
    // Without the fold too: the WAL is not thrown away.
    let refused = Place::detach(&bench.database(), &|_| Ok(())).unwrap_err();
    assert!(matches!(refused, PlaceError::NotFolded { .. }), "{refused}");
    assert_eq!(stock_sees(&bench.database()), None);
    Place::detach(&bench.database(), &fold).unwrap();
    assert_eq!(stock_sees(&bench.database()), Some(11));
}

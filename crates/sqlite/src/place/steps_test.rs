//! Attaching and detaching stopped after each step: what a stock SQLite sees then, and that the
//! next open or detach goes on.
//!
//! The process does not end here (`tests/it/kill.rs` does that); the work stops and nothing is
//! cleaned up. What a power cut does to names that were not synced is in
//! `tests/it/power_cut_again.rs`.

use super::*;
use rusqlite::{Connection, OpenFlags, ffi::ErrorCode};
use std::path::PathBuf;
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

    /// In memory where there is enough of it: cutting twice is hundreds of syncs, which say nothing
    /// here (the process does not end).
    fn in_memory() -> Self {
        let room =
            rustix::fs::statvfs("/dev/shm").map_or(0, |s| s.f_bavail.saturating_mul(s.f_frsize));
        let dir = if room < 1 << 30 { tempfile::tempdir() } else { TempDir::new_in("/dev/shm") };
        dir.map_or_else(|_| Self::new(), |dir| Self { dir })
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
        let db =
            Connection::open_with_flags_and_vfs(path, OpenFlags::SQLITE_OPEN_READ_WRITE, STOCK)?;
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

/// What a stock SQLite sees of the file in the directory: the number of rows, or `None` when it
/// refuses; also without the file.
fn stock_sees_past_the_stub(bench: &Bench) -> Option<u32> {
    let path = bench.home().join("db");
    if !path.exists() {
        return None;
    }
    let db = stock(&path).unwrap();
    match db.query_row("SELECT count(*) FROM t", [], |row| row.get(0)) {
        Ok(rows) => Some(rows),
        Err(e) => {
            let code = e.sqlite_error_code();
            assert!(
                matches!(code, Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure)),
                "{e}"
            );
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
        assert_eq!(stock_sees_past_the_stub(&bench), None, "after step {step}");
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
        Place::detach(&bench.database(), &fold)
            .unwrap_or_else(|e| panic!("after step {step}: {e}"));
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

/// Unlike after a cut, the way back is gone at once; after the rename too.
#[test]
fn a_step_of_attaching_that_fails_leaves_the_plain_database_and_a_free_tier() {
    for (place, last) in [(Placement::All, 7), (Placement::Redo, 8)] {
        for (step, rows) in (1..=last).flat_map(|step| [(step, None), (step, Some(10))]) {
            let bench = Bench::new();
            if let Some(rows) = rows {
                bench.fill(rows);
            }
            let what = format!("{place:?}, step {step}, {rows:?} rows");
            FAIL_AT.set(vec![step]);
            let want = Want { fast: Some(FastSpec { place, ..bench.fast() }), ..bench.want() };
            let refused = Place::open(&bench.database(), &want, &fold).expect_err(&what);
            assert!(
                refused.is_full() && !refused.to_string().contains("failed too"),
                "{what}: {refused}"
            );
            assert!(FAIL_AT.take().is_empty() && !bench.home().exists(), "{what}");
            assert_eq!(bench.database().exists(), rows.is_some(), "{what}");
            assert!(rows.is_none() || stock_sees(&bench.database()) == rows, "{what}");
            // The tier is nobody's: another database may have it.
            let other = bench.dir.path().join("other.db");
            drop(
                Place::open(&other, &want, &fold)
                    .unwrap_or_else(|e| panic!("{what}: {e}"))
                    .unwrap(),
            );
        }
    }
}

#[test]
fn an_attach_that_cannot_be_taken_back_says_so_and_is_whole() {
    for (step, undo) in [(7, 12), (7, 13), (8, 12), (8, 13), (8, 14)] {
        let bench = Bench::new();
        bench.fill(10);
        FAIL_AT.set(vec![step, undo]);
        let refused = bench.attach().unwrap_err();
        let message = refused.to_string();
        assert!(matches!(refused, PlaceError::HalfWay { .. }) && refused.is_full(), "{message}");
        assert!(
            message.contains("failed too") && message.contains("tiersmith detach"),
            "{message}"
        );
        assert!(FAIL_AT.take().is_empty());
        assert_eq!(
            stock_sees(&bench.database()),
            (undo == 14).then_some(10),
            "step {step}, {undo}"
        );
        drop(bench.attach().unwrap().unwrap());
        Place::detach(&bench.database(), &fold).unwrap();
        assert_eq!(stock_sees(&bench.database()), Some(10));
        assert!(!bench.home().exists());
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
    for step in 11..=14 {
        let bench = Bench::new();
        attached_with_redo(&bench);
        stop_after(step, || Place::detach(&bench.database(), &fold));
        assert_eq!(stock_sees(&bench.database()), (step == 14).then_some(11), "after step {step}");
        // Step 1 leaves the bars, step 2 a whole database.
        assert_eq!(
            stock_sees_past_the_stub(&bench),
            (12..14).contains(&step).then_some(11),
            "after step {step}"
        );
    }
}

#[test]
fn the_next_open_after_a_cut_detach_finishes_it() {
    for step in 11..=14 {
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
    for step in 11..=14 {
        let bench = Bench::new();
        attached_with_redo(&bench);
        stop_after(step, || Place::detach(&bench.database(), &fold));
        Place::detach(&bench.database(), &fold)
            .unwrap_or_else(|e| panic!("after step {step}: {e}"));
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
    let refused =
        Place::detach(&bench.database(), &|_| Err("the disk is full".into())).unwrap_err();
    assert!(refused.to_string().contains("the disk is full"), "{refused}");
    // Without the fold too: the WAL is not thrown away.
    let refused = Place::detach(&bench.database(), &|_| Ok(())).unwrap_err();
    assert!(matches!(refused, PlaceError::NotFolded { .. }), "{refused}");
    assert_eq!(stock_sees(&bench.database()), None);
    Place::detach(&bench.database(), &fold).unwrap();
    assert_eq!(stock_sees(&bench.database()), Some(11));
}

#[test]
fn an_attachment_file_of_another_version_is_refused_by_name_and_not_written_again() {
    let bench = Bench::new();
    attached_with_redo(&bench);
    let path = bench.home().join("attachment");
    let ours = std::fs::read_to_string(&path).unwrap();
    // A development build's, whose versions 1 and 2 were not this version 1, and a later one.
    let older = "# Tiersmith\ntiersmith-sqlite-attachment 1\nmember /fast\nend\n".to_owned();
    let newer = ours.replace("version = 1", "version = 2");
    for (text, words) in [(older, "development build"), (newer, "version 2")] {
        std::fs::write(&path, &text).unwrap();
        for error in
            [bench.open().unwrap_err(), Place::detach(&bench.database(), &fold).unwrap_err()]
        {
            assert!(error.to_string().contains(words), "{error}");
        }
        // With fast= one that is damaged is written again; not one that says what is not known
        // here.
        let error = bench.attach().unwrap_err();
        assert!(matches!(error, PlaceError::OtherVersion { .. }), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    std::fs::write(&path, ours).unwrap();
    Place::detach(&bench.database(), &fold).unwrap();
    assert_eq!(stock_sees(&bench.database()), Some(11));
}

const BLOCK: usize = 4096;
/// Blocks of the file of [`written_past`].
const BLOCKS: usize = 60;

/// What [`keeping_both_cut_after_any_step_goes_on_and_nothing_else_does`] expects.
struct Versions {
    ours: Vec<u8>,
    theirs: Vec<u8>,
    from_home: u64,
}

/// Attached; every third block is newer in the tier, the next is a clean copy, the last only at
/// home; then all of home was overwritten, and `longer` blocks appended.
fn written_past(bench: &Bench, longer: usize) -> Versions {
    let db = stock(&bench.database()).unwrap();
    db.execute_batch(
        "PRAGMA page_size = 4096; CREATE TABLE t(n); INSERT INTO t VALUES (zeroblob(240000))",
    )
    .unwrap();
    drop(db);
    let place = bench.attach().unwrap().unwrap();
    let file = place.home().open(place.name(Role::Main), OpenMode::WRITE).unwrap();
    let blocks = file.len().unwrap() as usize / BLOCK;
    assert!(blocks >= BLOCKS, "{blocks}");
    let mut ours = vec![0xee; blocks * BLOCK];
    for n in 0..blocks {
        let mut block = vec![0; BLOCK];
        let at = (n * BLOCK) as u64;
        match n % 3 {
            // The first page as it is: the fold reads it.
            0 => {
                std::os::unix::fs::FileExt::read_at(
                    &std::fs::File::open(bench.home().join("db")).unwrap(),
                    &mut block,
                    at,
                )
                .unwrap();
                if n > 0 {
                    block.fill(0x11);
                }
                file.write(at, &block).unwrap();
            }
            1 => {
                file.write(at, &[n as u8; BLOCK]).unwrap();
                block.fill(n as u8);
            }
            _ => continue,
        }
        ours[n * BLOCK..][..BLOCK].copy_from_slice(&block);
    }
    place.home().flush_all().unwrap();
    // Flushed with the clean ones: newer again.
    for n in (0..blocks).step_by(3) {
        file.write((n * BLOCK) as u64, &ours[n * BLOCK..][..BLOCK]).unwrap();
    }
    let (dirty, cached) = file.blocks_in_tier();
    drop((file, place));
    let theirs = vec![0xee; (blocks + longer) * BLOCK];
    std::fs::write(bench.home().join("db"), &theirs).unwrap();
    assert!(dirty > 0 && cached > 0 && dirty + cached < blocks as u64, "{dirty} {cached} {blocks}");
    Versions { ours, theirs, from_home: blocks as u64 - dirty - cached }
}

fn keep_both_done(bench: &Bench, versions: &Versions, after: &str) {
    let kept = Place::detach_keeping_both(&bench.database(), &fold);
    both_are_there(bench, versions, kept, after);
}

fn both_are_there(
    bench: &Bench,
    versions: &Versions,
    kept: Result<KeptBoth, PlaceError>,
    after: &str,
) {
    let kept = kept.unwrap_or_else(|e| panic!("after {after}: {e}"));
    assert_eq!(std::fs::read(bench.database()).unwrap(), versions.ours, "after {after}");
    let changed = kept
        .changed
        .unwrap_or_else(|| panic!("after {after}: it is not said that home was changed"));
    assert_eq!(std::fs::read(changed).unwrap(), versions.theirs, "after {after}");
    let blocks = (versions.ours.len() / BLOCK) as u64;
    assert_eq!((kept.blocks_from_home, kept.blocks), (versions.from_home, blocks), "after {after}");
    assert!(!bench.home().exists(), "after {after}");
}

fn says_keep_both(refused: &PlaceError, after: &str) {
    assert!(matches!(refused, PlaceError::Meddled { .. }), "after {after}: {refused}");
    let text = refused.to_string();
    assert!(text.contains("tiersmith detach --keep-both /") && text.contains("app.db"), "{text}");
}

/// In the order in which they come.
const KEEPING_STEPS: [u32; 12] = [31, 32, 33, 34, 35, 39, 36, 37, 38, 12, 13, 14];

#[test]
fn keeping_both_cut_after_any_step_goes_on_and_nothing_else_does() {
    for longer in [0, 2] {
        for step in KEEPING_STEPS {
            let bench = Bench::in_memory();
            let versions = written_past(&bench, longer);
            stop_after(step, || Place::detach_keeping_both(&bench.database(), &fold));
            let after = format!("step {step}, {longer} blocks longer");
            if step == 31 {
                assert!(matches!(
                    bench.open().unwrap_err(),
                    PlaceError::Changed { source, .. } if matches!(*source,
                    tiersmith_store::Error::HomeChanged { .. })
                ));
            } else if step != 14 {
                for _ in 0..2 {
                    says_keep_both(&bench.open().unwrap_err(), &after);
                    says_keep_both(&bench.attach().unwrap_err(), &after);
                    says_keep_both(&Place::detach(&bench.database(), &fold).unwrap_err(), &after);
                    assert_eq!(stock_sees(&bench.database()), None, "after {after}");
                }
            }
            keep_both_done(&bench, &versions, &after);
            drop(bench.attach().unwrap().unwrap());
        }
    }
}

/// One database is cut over and over: first after each step, then each try after a step that comes
/// again or a later one, until none is left.
#[test]
fn keeping_both_cut_again_while_it_goes_on_still_knows_its_figures() {
    let mut cuts = 0;
    for (n, first) in KEEPING_STEPS.into_iter().enumerate() {
        for stride in [1, 3] {
            let bench = Bench::in_memory();
            let versions = written_past(&bench, 1);
            stop_after(first, || Place::detach_keeping_both(&bench.database(), &fold));
            let mut after = format!("steps {first}");
            let mut done = None;
            // Once there is a marker and `db` has its length and time, the steps to that do not
            // come again; from 38 on nothing does.
            let again = KEEPING_STEPS.into_iter().enumerate().filter(|(m, second)| match first {
                31 => true,
                38 | 12..=14 => *m > n,
                _ => ![31, 32, 34].contains(second),
            });
            for (_, second) in again.step_by(stride) {
                STOP_AFTER.set(Some(second));
                let tried = Place::detach_keeping_both(&bench.database(), &fold);
                STOP_AFTER.set(None);
                // A step that is behind it does not come again, and nothing stops it then.
                if !STOPPED.replace(false) {
                    done = Some(tried);
                    break;
                }
                assert!(tried.is_err());
                cuts += 1;
                after += &format!(", {second}");
            }
            let done = done.unwrap_or_else(|| Place::detach_keeping_both(&bench.database(), &fold));
            both_are_there(&bench, &versions, done, &after);
        }
    }
    assert!(cuts > 40, "only {cuts} second cuts were tried");
}

#[test]
fn a_stub_that_is_removed_while_keeping_both_is_cut_changes_nothing() {
    let bench = Bench::new();
    let versions = written_past(&bench, 0);
    stop_after(39, || Place::detach_keeping_both(&bench.database(), &fold));
    std::fs::remove_file(bench.database()).unwrap();
    says_keep_both(&Place::detach(&bench.database(), &fold).unwrap_err(), "39");
    std::fs::remove_file(bench.database()).unwrap();
    keep_both_done(&bench, &versions, "step 39 and the stub's removal");
}

#[test]
fn a_damaged_marker_is_refused_and_named() {
    let bench = Bench::new();
    let _ = written_past(&bench, 0);
    stop_after(37, || Place::detach_keeping_both(&bench.database(), &fold));
    let marker = bench.home().join("keep-both");
    let whole = std::fs::read_to_string(&marker).unwrap();
    let development = "# Run it again.\ntiersmith-sqlite-keep-both 1\nblocks 4 from-home 1\nend\n";
    std::fs::write(&marker, development).unwrap();
    let refused = Place::detach_keeping_both(&bench.database(), &fold).unwrap_err();
    assert!(matches!(refused, PlaceError::OtherVersion { .. }), "{refused}");
    assert!(refused.to_string().contains("development build"), "{refused}");
    for bad in ["", "x", &whole[..whole.len() - 5], &whole.replace("blocks ", "blocks x")] {
        std::fs::write(&marker, bad).unwrap();
        let refused = Place::detach_keeping_both(&bench.database(), &fold).unwrap_err().to_string();
        assert!(refused.contains("keep-both"), "{refused}");
        says_keep_both(&bench.open().unwrap_err(), "damage");
    }
}

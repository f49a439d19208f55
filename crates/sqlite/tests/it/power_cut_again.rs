//! The power goes again: while SQLite recovers from the first cut, and with names of attaching and
//! detaching that were not synced.
//!
//! The first part is `power_cut.rs` once more, on simulated media and a simulated home: the
//! recovery of what a cut left (the store's, then SQLite's own, from a WAL or a hot journal, up to
//! the close) is recorded and cut everywhere too. What a recovery showed to its reader must be
//! there after the second cut as well.
//!
//! The second part has a real directory: each way that the names of a step may be left, when some
//! of what was not synced is there and some is not, is made by hand, and the next open, attach or
//! detach goes on from it. A rename may leave the old name, the new one, or both; not none.
//!
//! A failure begins with VIOLATION. `TIERSMITH_SEED`, `TIERSMITH_IMAGES` as in `power_cut.rs`.

use crate::ledger;
use crate::support;

use crate::simulated::{Way, open};
use crate::support::{Bench, fold, many, patiently, stock};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;
use tiersmith_sqlite::place::{Place, Placement, Role};
use tiersmith_store::crash::{Budget, CutState, Recorder, explore};
use tiersmith_store::home::SimHome;

/// Cuts a run, and what comes after.
trait CutsAgain {
    fn recover(
        &self,
        path: &Path,
        recorder: &Recorder,
        image: &[u8],
        acked: i64,
    ) -> Result<i64, String>;
    fn explore(&self, what: &str);
}

impl CutsAgain for Way {
    /// Opens what a cut left, reads, and closes; the newest transaction there.
    fn recover(
        &self,
        path: &Path,
        recorder: &Recorder,
        image: &[u8],
        acked: i64,
    ) -> Result<i64, String> {
        let place = self.place(path, recorder, image.to_vec())?;
        let db = open(path).map_err(|e| e.to_string())?;
        let last = ledger::check(&db)?;
        if last != acked && last != acked + 1 {
            return Err(format!(
                "{acked} transactions were acknowledged, {last} is the newest there"
            ));
        }
        recorder.acked();
        drop((db, place));
        Ok(last)
    }

    /// Cuts the run, and the recovery from a sample of what that leaves.
    fn explore(&self, what: &str) {
        let dir = TempDir::new().unwrap();
        let numbers = AtomicU64::new(0);
        let path = || -> PathBuf {
            dir.path().join(format!("{}.db", numbers.fetch_add(1, Ordering::Relaxed)))
        };
        let seed = many("TIERSMITH_SEED", 1);
        let images = many("TIERSMITH_IMAGES", 2) as usize;
        let recording = self.record(&path());
        let outer = Budget { images_per_cut: 1, seed, threads: 2, stop_after: 1 };
        let (second, recoveries) = (AtomicU64::new(0), AtomicU64::new(0));
        // Every seventh cut, another seventh for another seed: a recovery has as many cuts as it
        // has fences and file operations.
        let report = explore(&recording, &outer, |found| {
            if !(found.id.cut as u64 + seed).is_multiple_of(7) {
                return Ok(());
            }
            let acked = found.acked as i64;
            let recorder = Recorder::resume(found.home);
            let last = self.recover(&path(), &recorder, &found.tiers[0], acked)?;
            recoveries.fetch_add(1, Ordering::Relaxed);
            let budget = Budget { images_per_cut: images, seed, threads: 1, stop_after: 1 };
            let inner = explore(&recorder.recording(), &budget, |mut again: CutState<'_>| {
                let home = std::mem::replace(&mut again.home, SimHome::new(None));
                let found =
                    self.recover(&path(), &Recorder::resume(home), &again.tiers[0], acked)?;
                if again.acked > 0 && found != last {
                    return Err(format!(
                        "a reader was shown transaction {last} after the first cut, now {found} is \
                         the newest"
                    ));
                }
                Ok(())
            });
            second.fetch_add(inner.images, Ordering::Relaxed);
            inner
                .violations
                .first()
                .map_or(Ok(()), |v| Err(format!("second cut, in recovery: {v}")))
        });
        let (second, recoveries) = (second.into_inner(), recoveries.into_inner());
        println!(
            "{what} (EMULATED, simulated power cuts): {recoveries} recoveries, {second} images of \
             them, seed {seed}"
        );
        for violation in &report.violations {
            eprintln!("VIOLATION: {what}, TIERSMITH_SEED={seed}: {violation}");
        }
        report.assert_sound();
        assert!(recoveries > 1 && second > 50, "{what}: too little was tried");
    }
}

#[test]
fn a_second_power_cut_while_a_wal_is_recovered_loses_nothing() {
    let pragmas = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 20";
    Way { pragmas, placement: Placement::All, transactions: 6, ..Way::default() }.explore("WAL");
    Way { pragmas, placement: Placement::Redo, transactions: 4, ..Way::default() }
        .explore("WAL, place=redo");
}

#[test]
fn a_second_power_cut_while_a_journal_is_rolled_back_loses_nothing() {
    for (mode, pragmas) in [
        ("DELETE", "PRAGMA cache_size = 2; PRAGMA journal_mode = DELETE"),
        ("PERSIST", "PRAGMA cache_size = 2; PRAGMA journal_mode = PERSIST"),
        ("TRUNCATE", "PRAGMA page_size = 512; PRAGMA journal_mode = TRUNCATE"),
    ] {
        Way { pragmas, placement: Placement::All, transactions: 3, ..Way::default() }.explore(mode);
        let what = format!("{mode}, place=redo");
        Way { pragmas, placement: Placement::Redo, transactions: 3, ..Way::default() }
            .explore(&what);
    }
}

#[test]
fn a_second_power_cut_while_a_journal_at_home_is_rolled_back_loses_nothing() {
    let pragmas = "PRAGMA cache_size = 2; PRAGMA journal_mode = DELETE";
    Way { pragmas, placement: Placement::Data, transactions: 3, ..Way::default() }
        .explore("DELETE, place=data");
}

// --- names ---

const ROWS: u32 = 10;

/// What is done with an image.
#[derive(Clone, Copy, Debug)]
enum Then {
    Open,
    Attach,
    Detach,
}

/// The three ways on end with the whole database. `plain`: the image is not attached, so a detach
/// may say so.
fn goes_on(what: &str, make: &dyn Fn() -> Bench, rows: u32) -> u64 {
    for then in [Then::Open, Then::Attach, Then::Detach] {
        let bench = make();
        let violation = |why: String| -> ! {
            eprintln!("VIOLATION: {what}, then {then:?}: {why}");
            panic!("{what}, then {then:?}: {why}");
        };
        // Until then a stock SQLite sees the whole database or is refused, at either place.
        for path in [bench.database(), bench.home().join("db")] {
            if path.exists()
                && let Ok(seen) = support::rows(&path)
                && seen != rows
            {
                violation(format!("a stock SQLite sees {seen} rows at {}", path.display()));
            }
        }
        let done = match then {
            Then::Open => bench.open().map(drop),
            Then::Attach => bench.attach().map(drop),
            Then::Detach => bench.detach(),
        };
        if let Err(e) = done
            && !matches!(e, tiersmith_sqlite::place::PlaceError::NotAttached { .. })
        {
            violation(e.to_string());
        }
        // Plain in the end, whatever it was.
        match bench.detach() {
            Ok(()) | Err(tiersmith_sqlite::place::PlaceError::NotAttached { .. }) => {}
            Err(e) => violation(format!("detaching in the end: {e}")),
        }
        match support::rows(&bench.database()) {
            Ok(seen) if seen == rows => {}
            seen => violation(format!("in the end a stock SQLite sees {seen:?}")),
        }
        let sound: String = stock(&bench.database())
            .unwrap()
            .query_row("PRAGMA integrity_check", [], |r| r.get(0))
            .unwrap();
        if sound != "ok" || bench.home().exists() {
            violation(format!("in the end: {sound}, directory there: {}", bench.home().exists()));
        }
    }
    3
}

fn plain() -> Bench {
    let bench = Bench::new();
    bench.fill(ROWS);
    bench
}

/// Attached, with row `ROWS` in a WAL that is in the tier only.
fn attached_ahead() -> Bench {
    let bench = plain();
    let other = Bench::new();
    std::fs::copy(bench.database(), other.database()).unwrap();
    let db = stock(&other.database()).unwrap();
    db.execute_batch("PRAGMA journal_mode = WAL").unwrap();
    drop(db);
    std::fs::copy(other.database(), bench.database()).unwrap();
    let db = stock(&other.database()).unwrap();
    db.execute_batch(&format!("PRAGMA wal_autocheckpoint = 0; INSERT INTO t VALUES ({ROWS})"))
        .unwrap();
    let frames = std::fs::read(other.file("app.db-wal")).unwrap();
    drop(db);
    let place = bench.attach().unwrap().unwrap();
    let wal = place.home().open(place.name(Role::Wal), tiersmith_store::OpenMode::CREATE).unwrap();
    wal.write(0, &frames).unwrap();
    drop((wal, place));
    bench
}

/// The store has given everything back, and the WAL has the name SQLite looks for: detaching was
/// stopped before SQLite folded.
fn half_detached() -> Bench {
    let bench = attached_ahead();
    let stopped = patiently(|| Place::detach(&bench.database(), &|_| Err("stopped here".into())));
    assert!(stopped.unwrap_err().to_string().contains("stopped here"));
    assert!(bench.home().join("db-wal").is_file());
    bench
}

/// Attaching was stopped at its step 3: those names of four are there that have a bit in `names`,
/// and of the record that has no name yet the first `written` bytes.
fn at_step_3(record: &[u8], names: u32, written: usize) -> Bench {
    let bench = plain();
    let home = bench.home();
    std::fs::create_dir(&home).unwrap();
    for (bit, bar) in ["db-wal", "db-journal"].iter().enumerate() {
        if names & 1 << bit != 0 {
            std::fs::create_dir(home.join(bar)).unwrap();
        }
    }
    for (bit, file) in [(2, "attachment.new"), (3, "attachment")] {
        if names & 1 << bit != 0 {
            // What has its final name was synced before.
            let bytes = if bit == 3 { record } else { &record[..written] };
            std::fs::write(home.join(file), bytes).unwrap();
        }
    }
    bench
}

#[test]
fn attaching_goes_on_from_every_set_of_names_that_a_cut_leaves() {
    let record = {
        let bench = attached_ahead();
        std::fs::read(bench.home().join("attachment")).unwrap()
    };
    let mut images = 0;
    // Step 3: the directory, and any of what is made in it.
    for names in 0..16u32 {
        for written in [0, record.len() / 2, record.len()] {
            let make = || at_step_3(&record, names, written);
            images += goes_on(
                &format!("attaching, step 3, names {names:04b}, {written} bytes"),
                &make,
                ROWS,
            );
            if names & 4 == 0 {
                break;
            }
        }
    }
    // Steps 4 to 7: the second name; the store's note and the tier; the stub beside it, whole or
    // not; the rename with one name or both.
    for (what, note, stub, renamed) in [
        ("the second name", false, None, false),
        ("the tier and no note", false, None, false),
        ("the note", true, None, false),
        ("an empty stub", true, Some(0), false),
        ("half a stub", true, Some(100), false),
        ("the stub", true, Some(10_000), false),
        ("the stub with both names", true, Some(10_000), true),
    ] {
        let make = || {
            let bench = plain();
            drop(bench.attach().unwrap().unwrap());
            let home = bench.home();
            let text = std::fs::read(bench.database()).unwrap();
            if let Some(bytes) = stub {
                std::fs::write(home.join("stub.new"), &text[..text.len().min(bytes)]).unwrap();
            }
            if !renamed {
                std::fs::remove_file(bench.database()).unwrap();
                std::fs::hard_link(home.join("db"), bench.database()).unwrap();
            }
            if !note {
                std::fs::remove_file(home.join(".tiersmith")).unwrap();
            }
            if what == "the second name" {
                std::fs::remove_file(bench.tier()).unwrap();
            }
            bench
        };
        // Without the note the tier still says whose it is; attaching the database to it again is
        // refused, with the reason.
        if what == "the tier and no note" {
            let bench = make();
            assert!(bench.open().unwrap().is_none());
            assert_eq!(support::rows(&bench.database()).unwrap(), ROWS);
            images += 1;
            continue;
        }
        images += goes_on(&format!("attaching, {what}"), &make, ROWS);
    }
    println!("names of attaching: {images} images");
}

#[test]
fn detaching_goes_on_from_every_set_of_names_that_a_cut_leaves() {
    let mut images = 0;
    // Step 2: the bar of the WAL is there or not while the WAL has its old name; the WAL has the
    // new name, or both. The journal's bar is taken away after that was synced.
    for (what, wal_bar, old, new, journal_bar) in [
        ("both bars", true, true, false, true),
        ("one bar removed", false, true, false, true),
        ("the WAL renamed", false, false, true, true),
        ("the WAL with both names", false, true, true, true),
        ("no bar", false, false, true, false),
    ] {
        let make = || {
            let bench = half_detached();
            let home = bench.home();
            if old {
                std::fs::hard_link(home.join("db-wal"), home.join("wal")).unwrap();
            }
            if !new {
                std::fs::remove_file(home.join("db-wal")).unwrap();
            }
            if wal_bar {
                std::fs::create_dir(home.join("db-wal")).unwrap();
            }
            if journal_bar {
                std::fs::create_dir(home.join("db-journal")).unwrap();
            }
            bench
        };
        images += goes_on(&format!("detaching, step 2, {what}"), &make, ROWS + 1);
    }
    // Step 3: SQLite has folded the WAL and removed its name; the name comes back, and others
    // SQLite made stay.
    for names in 0..4u32 {
        let make = || {
            let bench = half_detached();
            let home = bench.home();
            let frames = std::fs::read(home.join("db-wal")).unwrap();
            fold(&home.join("db")).unwrap();
            if names & 1 != 0 {
                std::fs::write(home.join("db-wal"), &frames).unwrap();
            }
            if names & 2 != 0 {
                std::fs::write(home.join("db-shm"), vec![0; 32768]).unwrap();
            }
            bench
        };
        images += goes_on(&format!("detaching, step 3, names {names:02b}"), &make, ROWS + 1);
    }
    // Step 4: the rename over the stub left both names. Step 5: any of the directory's names is
    // left.
    for names in 0..16u32 {
        let make = || {
            let bench = half_detached();
            let home = bench.home();
            fold(&home.join("db")).unwrap();
            std::fs::remove_file(bench.database()).unwrap();
            std::fs::hard_link(home.join("db"), bench.database()).unwrap();
            if names & 1 == 0 {
                std::fs::remove_file(home.join("db")).unwrap();
            }
            if names & 2 == 0 {
                std::fs::remove_file(home.join("attachment")).unwrap();
            }
            for (bit, name) in [(4, "db-shm"), (8, "db-wal")] {
                if names & bit != 0 {
                    std::fs::write(home.join(name), "").unwrap();
                }
            }
            bench
        };
        images += goes_on(&format!("detaching, steps 4 and 5, names {names:04b}"), &make, ROWS + 1);
    }
    println!("names of detaching: {images} images");
}

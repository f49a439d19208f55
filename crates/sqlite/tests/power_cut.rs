//! The power goes while SQLite commits, at every point below it: every acknowledged transaction is there,
//! none is there by half.
//!
//! The VFS runs on a simulated tier and a simulated home, whose trace is then cut at every fence and every
//! event of the home; for each cut the images a power cut may leave (any subset of what was not durable, torn
//! by word on the tier and by sector at home) are opened through the VFS again, with all the recovery there
//! is: the store's, and SQLite's own (WAL, hot journals). The model is described in `tiersmith_pmem::sim` and
//! in `tiersmith_store::crash`.
//!
//! Deliberately absent: attaching and detaching themselves (`src/place`), whose steps are names in a real
//! directory.
//!
//! `TIERSMITH_IMAGES`: images at each cut; `TIERSMITH_SEED`: which of them.

#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

#[path = "support/ledger.rs"]
mod ledger;
mod support;

use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use support::{connect, many};
use tempfile::TempDir;
use tiersmith_sqlite::place::{FastSpec, Place, Placement, Role, profile};
use tiersmith_store::crash::{Budget, CutState, Recorder, Recording, Report, explore};
use tiersmith_store::{Medium, Options, Planted, TierSpec, testing};

const UNIT: u64 = 32 << 10;

/// One way to write: journal mode, placement, and how large the tier is.
#[derive(Clone, Copy)]
struct Way {
    pragmas: &'static str,
    placement: Placement,
    block_size: u32,
    /// Units of 32 KiB for blocks.
    units: u64,
    transactions: i64,
    /// VACUUM after the second transaction.
    vacuum: bool,
    planted: Planted,
}

impl Default for Way {
    fn default() -> Self {
        Self {
            pragmas: "PRAGMA journal_mode = DELETE",
            placement: Placement::All,
            block_size: 4096,
            units: 24,
            transactions: 8,
            vacuum: false,
            planted: Planted::None,
        }
    }
}

impl Way {
    fn tier(&self) -> TierSpec {
        // Three units in front hold the superblocks, lanes, batch record and slots.
        let size = (self.units + 3) * UNIT;
        let spec = TierSpec::new("fast", "/member", Medium::Emulated, size);
        TierSpec { unit: UNIT, lanes: 2, batches: 1, slots: 8, ..spec }
    }

    /// The database at `path` on what `recorder` simulates; `image` is what the tier holds.
    fn place(&self, path: &Path, recorder: &Recorder, image: Vec<u8>) -> Result<Arc<Place>, String> {
        let mapping = Arc::new(recorder.simulator().mapping(image, 0));
        let options = Options {
            background: false,
            record_waits: false,
            seed: Some(7),
            redo_keep_bytes: 64 << 10,
            planted: self.planted,
            ..Options::default()
        };
        let tiers = vec![(self.tier(), vec![mapping])];
        let files = profile(self.placement, self.block_size);
        let home = testing::attach_simulated(recorder.home(), tiers, &files, options);
        let spec = FastSpec { emulate: true, place: self.placement, ..FastSpec::default() };
        Place::adopt(path, home.map_err(|e| e.to_string())?, spec).map_err(|e| e.to_string())
    }

    /// Transactions, each acknowledged to the recorder, with destaging between some of them.
    fn record(&self, dir: &Path) -> Recording {
        let recorder = Recorder::new();
        let path = dir.join("recorded.db");
        let place = self.place(&path, &recorder, vec![0; self.tier().size as usize]).unwrap();
        // Attaching makes a new database's file.
        drop(place.home().create(place.name(Role::Main)).unwrap());
        let db = open(&path).unwrap();
        db.execute_batch(self.pragmas).unwrap();
        ledger::prepare(&db).unwrap();
        recorder.rebase();
        for n in 1..=self.transactions {
            ledger::commit(&db, n, 9000).unwrap();
            recorder.acked();
            if self.vacuum && n == 2 {
                db.execute_batch("VACUUM").unwrap();
            }
            if n % 3 == 0 {
                place.home().flush_all().unwrap();
            }
            if n % 4 == 0 {
                place.home().background_step().unwrap();
            }
        }
        let recording = recorder.recording();
        drop(db);
        recording
    }

    /// What is found after a cut.
    fn check(&self, path: &Path, mut state: CutState<'_>) -> Result<(), String> {
        let home = std::mem::replace(&mut state.home, tiersmith_store::home::SimHome::new(None));
        let recorder = Recorder::resume(home);
        let place = self.place(path, &recorder, state.tiers[0].clone())?;
        let db = open(path).map_err(|e| e.to_string())?;
        let last = ledger::check(&db)?;
        let acked = state.acked as i64;
        if last != acked && last != acked + 1 {
            return Err(format!("{acked} transactions were acknowledged, {last} is the newest there"));
        }
        // And it can be written.
        ledger::commit(&db, last + 1, 100).map_err(|e| format!("writing after the cut: {e}"))?;
        drop((db, place));
        Ok(())
    }

    fn explore(&self) -> Report {
        let dir = TempDir::new().unwrap();
        let recording = self.record(dir.path());
        let budget = Budget {
            images_per_cut: many("TIERSMITH_IMAGES", 6) as usize,
            seed: many("TIERSMITH_SEED", 1),
            ..Budget::default()
        };
        let numbers = AtomicU64::new(0);
        let path =
            || -> PathBuf { dir.path().join(format!("{}.db", numbers.fetch_add(1, Ordering::Relaxed))) };
        explore(&recording, &budget, |state| self.check(&path(), state))
    }

    fn assert_sound(&self, what: &str) {
        let report = self.explore();
        println!("{what} (EMULATED, simulated power cuts): {report}");
        assert!(report.images > 100, "{what}: too little was tried: {report}");
        report.assert_sound();
    }
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    connect(&format!("file:{}?vfs=tiersmith", path.display()))
}

/// What this finds when the header and the first frames of a WAL that begins again are one write: after a cut
/// the old header may be there with the first frames of the old WAL and a torn one after them. SQLite takes
/// that for a WAL of those frames, and goes back to a database of long ago. (`walRestartHdr`, and the comment
/// on an "out-of-order write following a WAL restart" in `sqlite3WalFrames`: with SEQUENTIAL it does not sync
/// between.)
#[test]
fn a_power_cut_in_wal_mode_loses_nothing_acknowledged() {
    let pragmas = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 20";
    Way { pragmas, ..Way::default() }.assert_sound("WAL");
}

#[test]
fn a_power_cut_in_wal_mode_with_synchronous_normal_keeps_what_it_keeps_on_a_tier() {
    // Every write to the tier is durable on return, so NORMAL loses nothing either.
    let pragmas = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 20";
    Way { pragmas, ..Way::default() }.assert_sound("WAL, synchronous=NORMAL");
}

#[test]
fn a_power_cut_while_a_batch_is_written_leaves_all_or_nothing_of_it() {
    Way::default().assert_sound("batch-atomic");
}

#[test]
fn a_power_cut_with_a_rollback_journal_on_the_tier_and_the_database_on_disk_loses_nothing() {
    let placement = Placement::Redo;
    Way { placement, transactions: 5, ..Way::default() }.assert_sound("DELETE, place=redo");
    let pragmas = "PRAGMA journal_mode = PERSIST";
    Way { placement, pragmas, transactions: 5, ..Way::default() }.assert_sound("PERSIST, place=redo");
}

#[test]
fn a_power_cut_with_the_wal_on_the_tier_and_the_database_on_disk_loses_nothing() {
    let pragmas = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 20";
    Way { placement: Placement::Redo, pragmas, ..Way::default() }.assert_sound("WAL, place=redo");
}

#[test]
fn a_power_cut_with_the_journal_on_disk_and_the_database_on_the_tier_loses_nothing() {
    let placement = Placement::Data;
    let pragmas = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 20";
    Way { placement, pragmas, transactions: 5, ..Way::default() }.assert_sound("WAL, place=data");
    // Spilled pages go into the database under a journal.
    let pragmas = "PRAGMA cache_size = 2; PRAGMA journal_mode = DELETE";
    Way { placement, pragmas, transactions: 5, ..Way::default() }.assert_sound("spilling, place=data");
}

#[test]
fn a_power_cut_with_pages_of_another_size_than_blocks_loses_nothing() {
    let pragmas = "PRAGMA page_size = 1024; PRAGMA journal_mode = DELETE";
    Way { pragmas, transactions: 5, ..Way::default() }.assert_sound("pages of 1 KiB");
    let pragmas = "PRAGMA page_size = 8192; PRAGMA journal_mode = DELETE";
    Way { pragmas, transactions: 5, units: 40, ..Way::default() }.assert_sound("pages of 8 KiB");
}

/// A file that does not end with a block gets no batch: the journal is on the tier, and so is the database.
#[test]
fn a_power_cut_with_journal_and_database_on_the_tier_loses_nothing() {
    for mode in ["DELETE", "TRUNCATE", "PERSIST"] {
        let pragmas = ["PRAGMA page_size = 512; PRAGMA journal_mode = ", mode].concat();
        Way { transactions: 5, pragmas: pragmas.leak(), ..Way::default() }.assert_sound(mode);
    }
}

#[test]
fn a_power_cut_while_vacuuming_loses_nothing() {
    for pragmas in ["PRAGMA journal_mode = DELETE", "PRAGMA journal_mode = WAL"] {
        Way { pragmas, vacuum: true, transactions: 4, units: 40, ..Way::default() }.assert_sound("VACUUM");
    }
}

#[test]
fn a_power_cut_in_wal_mode_with_exclusive_locking_loses_nothing() {
    let pragmas = "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 8";
    Way { pragmas, ..Way::default() }.assert_sound("WAL, exclusive");
}

#[test]
fn bugs_planted_in_the_store_are_seen_at_sql_level() {
    let wal = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 20";
    for (planted, pragmas) in [
        (Planted::BatchOneByOne, Way::default().pragmas),
        // The zeros over a journal's header are the commit.
        (Planted::DropFenceBeforeAck, "PRAGMA page_size = 512; PRAGMA journal_mode = DELETE"),
        (Planted::RedoWithoutFence, wal),
        (Planted::SizeNotDurable, wal),
    ] {
        let report = Way { planted, pragmas, ..Way::default() }.explore();
        assert!(!report.violations.is_empty(), "{planted:?} is not seen in {} images", report.images);
    }
}

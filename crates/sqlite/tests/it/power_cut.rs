//! The power goes while SQLite commits, at every point below it: every acknowledged transaction is
//! there, none is there by half.
//!
//! The VFS runs on a simulated tier and a simulated home, whose trace is then cut at every fence
//! and every event of the home; for each cut the images a power cut may leave (any subset of what
//! was not durable, torn by word on the tier and by sector at home) are opened through the VFS
//! again, with all the recovery there is: the store's, and SQLite's own (WAL, hot journals). The
//! model is described in `tiersmith_pmem::sim` and in `tiersmith_store::crash`.
//!
//! Deliberately absent: attaching and detaching themselves (`src/place`), whose steps are names in
//! a real directory.
//!
//! `TIERSMITH_IMAGES`: images at each cut; `TIERSMITH_SEED`: which of them.

use crate::ledger;

use crate::simulated::{Way, open};
use crate::support::many;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;
use tiersmith_sqlite::place::Placement;
use tiersmith_store::Planted;
use tiersmith_store::crash::{Budget, CutState, Recorder, Report, explore};

/// Cuts a run everywhere, and checks what that leaves.
trait Cuts {
    fn check(&self, path: &Path, state: CutState<'_>) -> Result<(), String>;
    fn explore(&self) -> Report;
    fn assert_sound(&self, what: &str);
}

impl Cuts for Way {
    /// What is found after a cut.
    fn check(&self, path: &Path, mut state: CutState<'_>) -> Result<(), String> {
        let home = std::mem::replace(&mut state.home, tiersmith_store::home::SimHome::new(None));
        let recorder = Recorder::resume(home);
        let place = self.place(path, &recorder, state.tiers[0].clone())?;
        let db = open(path).map_err(|e| e.to_string())?;
        let last = ledger::check(&db)?;
        let acked = state.acked as i64;
        if last != acked && last != acked + 1 {
            return Err(format!(
                "{acked} transactions were acknowledged, {last} is the newest there"
            ));
        }
        // And it can be written.
        ledger::commit(&db, last + 1, 100).map_err(|e| format!("writing after the cut: {e}"))?;
        drop((db, place));
        Ok(())
    }

    fn explore(&self) -> Report {
        let dir = TempDir::new().unwrap();
        let recording = self.record(&dir.path().join("recorded.db"));
        let budget = Budget {
            images_per_cut: many("TIERSMITH_IMAGES", 6) as usize,
            seed: many("TIERSMITH_SEED", 1),
            ..Budget::default()
        };
        let numbers = AtomicU64::new(0);
        let path = || -> PathBuf {
            dir.path().join(format!("{}.db", numbers.fetch_add(1, Ordering::Relaxed)))
        };
        explore(&recording, &budget, |state| self.check(&path(), state))
    }

    fn assert_sound(&self, what: &str) {
        let report = self.explore();
        println!("{what} (EMULATED, simulated power cuts): {report}");
        assert!(report.images > 100, "{what}: too little was tried: {report}");
        report.assert_sound();
    }
}

/// What this finds when the header and the first frames of a WAL that begins again are one write:
/// after a cut the old header may be there with the first frames of the old WAL and a torn one
/// after them. SQLite takes that for a WAL of those frames, and goes back to a database of long
/// ago. (`walRestartHdr`, and the comment on an "out-of-order write following a WAL restart" in
/// `sqlite3WalFrames`: with SEQUENTIAL it does not sync between.)
#[test]
fn a_power_cut_in_wal_mode_loses_nothing_acknowledged() {
    let pragmas = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 20";
    Way { pragmas, ..Way::default() }.assert_sound("WAL");
}

#[test]
fn a_power_cut_in_wal_mode_with_synchronous_normal_keeps_what_it_keeps_on_a_tier() {
    // Every write to the tier is durable on return, so NORMAL loses nothing either.
    let pragmas =
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 20";
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
    Way { placement, pragmas, transactions: 5, ..Way::default() }
        .assert_sound("PERSIST, place=redo");
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
    Way { placement, pragmas, transactions: 5, ..Way::default() }
        .assert_sound("spilling, place=data");
}

#[test]
fn a_power_cut_with_pages_of_another_size_than_blocks_loses_nothing() {
    let pragmas = "PRAGMA page_size = 1024; PRAGMA journal_mode = DELETE";
    Way { pragmas, transactions: 5, ..Way::default() }.assert_sound("pages of 1 KiB");
    let pragmas = "PRAGMA page_size = 8192; PRAGMA journal_mode = DELETE";
    Way { pragmas, transactions: 5, units: 40, ..Way::default() }.assert_sound("pages of 8 KiB");
}

/// A file that does not end with a block gets no batch: the journal is on the tier, and so is the
/// database.
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
        Way { pragmas, vacuum: true, transactions: 4, units: 40, ..Way::default() }
            .assert_sound("VACUUM");
    }
}

#[test]
fn a_power_cut_in_wal_mode_with_exclusive_locking_loses_nothing() {
    let pragmas =
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 8";
    Way { pragmas, ..Way::default() }.assert_sound("WAL, exclusive");
}

#[test]
fn a_power_cut_with_the_tier_on_flash_loses_nothing_in_wal_mode() {
    let flash = Way { flash: true, transactions: 6, ..Way::default() };
    let pragmas = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 8";
    Way { pragmas, ..flash }.assert_sound("flash, WAL");
    // A commit ends with a sync of its own.
    let pragmas =
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 8";
    Way { pragmas, ..flash }.assert_sound("flash, WAL, synchronous=NORMAL");
    for placement in [Placement::Redo, Placement::Data] {
        let pragmas = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 8";
        Way { placement, pragmas, transactions: 4, ..flash }
            .assert_sound("flash, WAL, half on the tier");
    }
}

#[test]
fn a_power_cut_with_the_tier_on_flash_loses_nothing_with_a_rollback_journal() {
    let flash = Way { flash: true, transactions: 12, ..Way::default() };
    flash.assert_sound("flash, batch-atomic");
    for mode in ["DELETE", "TRUNCATE", "PERSIST"] {
        let pragmas = ["PRAGMA page_size = 512; PRAGMA journal_mode = ", mode].concat();
        Way { pragmas: pragmas.leak(), ..flash }.assert_sound(mode);
    }
    Way { placement: Placement::Redo, ..flash }.assert_sound("flash, DELETE, place=redo");
}

/// Without the fence of an overwrite a checkpoint is not durable when the WAL behind it begins
/// again. A file that grows hides that: its new length has a fence of its own, which comes after
/// the last page, and covers those before it too. So here it does not grow.
#[test]
fn bugs_planted_in_the_store_are_seen_at_sql_level() {
    let wal = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 20";
    let checkpoints = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 4";
    for (planted, pragmas, roomy) in [
        (Planted::BatchOneByOne, Way::default().pragmas, false),
        // The zeros over a journal's header are the commit.
        (
            Planted::DropFenceBeforeAck,
            "PRAGMA page_size = 512; PRAGMA journal_mode = DELETE",
            false,
        ),
        (Planted::DropFenceBeforeAck, checkpoints, true),
        (Planted::RedoWithoutFence, wal, false),
        (Planted::SizeNotDurable, wal, false),
    ] {
        let report = Way { planted, pragmas, roomy, ..Way::default() }.explore();
        assert!(
            !report.violations.is_empty(),
            "{planted:?} is not seen in {} images",
            report.images
        );
    }
    for planted in [Planted::LogNotSynced, Planted::SyncWithoutDevice] {
        let report = Way { planted, pragmas: wal, flash: true, ..Way::default() }.explore();
        assert!(
            !report.violations.is_empty(),
            "{planted:?} is not seen on flash in {} images",
            report.images
        );
    }
}

#[test]
fn a_power_cut_while_checkpoints_overwrite_pages_in_place_loses_nothing() {
    let pragmas = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 4";
    Way { pragmas, roomy: true, ..Way::default() }.assert_sound("WAL, overwriting");
}

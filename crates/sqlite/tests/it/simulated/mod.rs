//! A database on simulated media and a simulated home, and a run of transactions on it that is
//! recorded: what the tests of power cuts cut.
//!
//! Not here: the cutting, and what has to hold afterwards.

use crate::ledger;
use crate::support::connect;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use tiersmith_sqlite::place::{FastSpec, Place, Placement, Role, bound, profile};
use tiersmith_store::crash::{Recorder, Recording};
use tiersmith_store::testing::{self, TestMember};
use tiersmith_store::{Medium, Options, Planted, TierSpec};

const UNIT: u64 = 32 << 10;
/// Of a tier on flash: short, so that it laps.
const LOG: u64 = 128 << 10;

/// One way to write: journal mode, placement, and how large the tier is.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    pub pragmas: &'static str,
    pub placement: Placement,
    pub block_size: u32,
    /// Units of 32 KiB for blocks.
    pub units: u64,
    pub transactions: i64,
    /// VACUUM after the second transaction.
    pub vacuum: bool,
    /// The database has free pages enough: no transaction makes its file longer.
    pub roomy: bool,
    /// The tier is on a device of sectors alone, with a log.
    pub flash: bool,
    pub planted: Planted,
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
            roomy: false,
            flash: false,
            planted: Planted::None,
        }
    }
}

impl Way {
    fn tier(&self) -> TierSpec {
        // Three units in front hold the superblocks, lanes, batch record and slots.
        let (medium, log) = if self.flash { (Medium::Flash, LOG) } else { (Medium::Emulated, 0) };
        let spec = TierSpec::new("fast", "/member", medium, (self.units + 3) * UNIT + log);
        TierSpec { unit: UNIT, lanes: 2, batches: 1, slots: 8, log, ..spec }
    }

    /// The database at `path` on what `recorder` simulates; `image` is what the tier holds.
    pub(crate) fn place(
        &self,
        path: &Path,
        recorder: &Recorder,
        image: Vec<u8>,
    ) -> Result<Arc<Place>, String> {
        let machine = recorder.simulator();
        let member = match self.flash {
            true => TestMember::on_flash(machine.device(image, 512), self.tier().size),
            false => Arc::new(machine.mapping(image, 0)).into(),
        };
        let options = Options {
            background: false,
            record_waits: false,
            seed: Some(7),
            // After a cut the file is never taken for one that somebody else wrote.
            bound: Some(bound()),
            redo_keep_bytes: 64 << 10,
            planted: self.planted,
            ..Options::default()
        };
        let tiers = vec![(self.tier(), vec![member])];
        let files = profile(self.placement, self.block_size);
        let home = testing::attach_simulated(recorder.home(), tiers, &files, options);
        let spec = FastSpec {
            emulate: !self.flash,
            flash: self.flash,
            place: self.placement,
            ..FastSpec::default()
        };
        Place::adopt(path, home.map_err(|e| e.to_string())?, spec).map_err(|e| e.to_string())
    }

    /// Transactions, each acknowledged to the recorder, with destaging between some of them.
    pub(crate) fn record(&self, path: &Path) -> Recording {
        let recorder = Recorder::new();
        let place = self.place(path, &recorder, vec![0; self.tier().size as usize]).unwrap();
        // Attaching makes a new database's file.
        drop(place.home().create(place.name(Role::Main)).unwrap());
        let db = open(path).unwrap();
        db.execute_batch(self.pragmas).unwrap();
        ledger::prepare(&db).unwrap();
        if self.roomy {
            db.execute_batch(
                "CREATE TABLE room(x); INSERT INTO room VALUES (zeroblob(200000)); DROP TABLE room",
            )
            .unwrap();
            db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        }
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
}

/// A connection to a database that a [`Way::place`] has.
pub(crate) fn open(path: &Path) -> rusqlite::Result<Connection> {
    connect(&format!("file:{}?vfs=tiersmith", path.display()))
}

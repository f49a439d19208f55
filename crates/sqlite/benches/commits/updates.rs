//! Commits: an update of one row of a small table by a prepared statement, each a transaction of
//! its own, one thread.
//!
//! Throughput is commits of a round over its time, so what is done once in a thousand commits (a
//! checkpoint) is in it. Latency is of single commits. All connections stay open; the rows take
//! turns. At the end each database is asked for the sum of its updates.

use std::time::{Duration, Instant};

use rusqlite::{Connection, Statement};
use tiersmith_store::waits;

use crate::Failed;
use crate::database::{Database, Medium, Mode, load, make_table, number};
use crate::report::Report;
use crate::scratch::Scratch;

/// Rows of the table: small enough for SQLite's page cache, so that a commit is all that is timed.
pub(crate) const ROWS: u64 = 1_000;
/// Bytes of each tier.
pub(crate) const TIER: u64 = 64 << 20;
/// SQLite's default: a checkpoint after so many pages of WAL. Rounds are whole multiples, so that
/// each has as many.
const CHECKPOINT: usize = 1_000;
/// Commits before each round of each row; not on a disk, where nothing of them is in the CPU's
/// caches.
const WARM_UP: usize = 100;
/// A round is cut short here: a disk that is slow today must not make the run an hour.
const ROUND_MAX: Duration = Duration::from_secs(2);
/// The same with `--quick`.
const ROUND_MAX_QUICK: Duration = Duration::from_millis(200);

const THROUGHPUT: &str = "commits, throughput";
const LATENCY: &str = "commit, single";

/// A row of the tables.
#[derive(Clone, Copy)]
struct Row {
    medium: Medium,
    mode: Mode,
    what: &'static str,
    /// Commits of a round.
    commits: usize,
}

const fn row(medium: Medium, mode: Mode, what: &'static str, commits: usize) -> Row {
    Row { medium, mode, what, commits }
}

/// The ceiling first: ratios in the tables are to it.
const TABLE: [Row; 14] = [
    row(
        Medium::Tmpfs,
        Mode::NOTHING.exclusive(),
        "no journal, sync off, exclusive",
        8 * CHECKPOINT,
    ),
    row(Medium::Tmpfs, Mode::NOTHING, "no journal, sync off", 8 * CHECKPOINT),
    TMPFS_WAL,
    row(Medium::Tmpfs, Mode::WAL_NORMAL, "WAL NORMAL", 8 * CHECKPOINT),
    row(Medium::Tmpfs, Mode::ROLLBACK, "DELETE FULL", 2 * CHECKPOINT),
    TMPFS_EXCLUSIVE,
    DISK_WAL,
    row(Medium::Disk, Mode::WAL_NORMAL, "WAL NORMAL", 4 * CHECKPOINT),
    row(Medium::Disk, Mode::ROLLBACK, "DELETE FULL", 200),
    row(Medium::Disk, Mode::WAL_FULL.exclusive(), "WAL FULL, exclusive", 2 * CHECKPOINT),
    OUR_WAL,
    OUR_BATCH,
    OUR_WAL_EXCLUSIVE,
    OUR_BATCH_EXCLUSIVE,
];
const TMPFS_WAL: Row = row(Medium::Tmpfs, Mode::WAL_FULL, "WAL FULL", 8 * CHECKPOINT);
const TMPFS_EXCLUSIVE: Row =
    row(Medium::Tmpfs, Mode::WAL_FULL.exclusive(), "WAL FULL, exclusive", 8 * CHECKPOINT);
const DISK_WAL: Row = row(Medium::Disk, Mode::WAL_FULL, "WAL FULL", 2 * CHECKPOINT);
const OUR_WAL: Row = row(Medium::Tier, Mode::WAL_FULL, "WAL FULL", 8 * CHECKPOINT);
const OUR_BATCH: Row = row(Medium::Tier, Mode::ROLLBACK, "batch (DELETE FULL)", 8 * CHECKPOINT);
const OUR_WAL_EXCLUSIVE: Row =
    row(Medium::Tier, Mode::WAL_FULL.exclusive(), "WAL FULL, exclusive", 8 * CHECKPOINT);
const OUR_BATCH_EXCLUSIVE: Row =
    row(Medium::Tier, Mode::ROLLBACK.exclusive(), "batch (DELETE FULL), exclusive", 8 * CHECKPOINT);

impl Row {
    fn name(self, scratch: &Scratch) -> String {
        format!("{}: {}", self.medium.label(scratch), self.what)
    }

    /// Commits without a journal.
    fn is_batch(self) -> bool {
        self.medium == Medium::Tier && self.mode.journal == Mode::ROLLBACK.journal
    }
}

/// The prepared statement, and what it has done.
pub(crate) struct Updater<'connection> {
    statement: Statement<'connection>,
    random: fastrand::Rng,
    done: u64,
}

impl<'connection> Updater<'connection> {
    pub(crate) fn new(connection: &'connection Connection) -> Result<Self, Failed> {
        let statement = connection.prepare("UPDATE t SET n=n+1 WHERE id=?1")?;
        Ok(Updater { statement, random: fastrand::Rng::with_seed(3), done: 0 })
    }

    /// One commit.
    #[inline]
    pub(crate) fn commit(&mut self) -> Result<(), Failed> {
        self.statement.execute([self.random.i64(1..=ROWS.cast_signed())])?;
        self.done += 1;
        Ok(())
    }
}

/// A database with the small table, and a connection to it.
///
/// The table is made by another connection: the transaction that makes the first page needs a
/// journal, and with exclusive locking SQLite keeps that journal for all the transactions after it,
/// so that none would be a batch.
pub(crate) fn prepare(database: &Database, mode: Mode) -> Result<Connection, Failed> {
    let maker = database.connect(Mode { exclusive: false, ..mode })?;
    make_table(&maker)?;
    load(&maker, ROWS)?;
    maker.close().map_err(|(_, error)| error)?;
    database.connect(mode)
}

/// The two tables and their ratios.
pub(crate) fn commits(report: &mut Report, scratch: &Scratch) -> Result<(), Failed> {
    let databases: Vec<Database> = TABLE
        .iter()
        .enumerate()
        .map(|(index, row)| Database::new(scratch, &format!("commits-{index}"), row.medium, TIER))
        .collect();
    let mut connections = Vec::new();
    for (row, database) in TABLE.iter().zip(&databases) {
        connections.push(prepare(database, row.mode)?);
    }
    let mut updaters = Vec::new();
    for ((row, database), connection) in TABLE.iter().zip(&databases).zip(&connections) {
        let mut updater = Updater::new(connection)?;
        until_steady(*row, database, connection, &mut updater)?;
        updaters.push(updater);
    }
    let before: Vec<u64> = databases.iter().map(Database::wal_bytes).collect();
    let done_before: Vec<u64> = updaters.iter().map(|updater| updater.done).collect();
    let mut writes_before = Vec::new();
    for (row, database) in TABLE.iter().zip(&databases) {
        writes_before.push(if row.is_batch() { tier_writes(database)? } else { 0 });
    }
    let mut cut = [0; TABLE.len()];
    for _ in 0..report.rounds() {
        for ((row, updater), cut) in TABLE.iter().zip(&mut updaters).zip(&mut cut) {
            *cut += usize::from(!round(report, *row, &row.name(scratch), updater)?);
        }
    }
    for (row, cut) in TABLE.iter().zip(cut).filter(|(_, cut)| *cut > 0) {
        report.warn(format!(
            "{}: {cut} of {} rounds were cut short before their {} commits: the medium is slow \
             now, and \
             checkpoints are not spread evenly",
            row.name(scratch),
            report.rounds(),
            row.commits
        ));
    }
    for (index, row) in TABLE.iter().enumerate() {
        let (name, database) = (row.name(scratch), &databases[index]);
        let sum = number(&connections[index], "SELECT sum(n) FROM t")?;
        if sum != updaters[index].done {
            let done = updaters[index].done;
            return Err(
                format!("{name}: {done} updates were committed, the table says {sum}").into()
            );
        }
        if row.medium != Medium::Tier && database.wal_bytes() != before[index] {
            report.warn(format!(
                "{name}: its WAL grew while it was measured ({} to {} bytes): not its steady state",
                before[index],
                database.wal_bytes()
            ));
        }
        if row.is_batch() {
            let writes = tier_writes(database)? - writes_before[index];
            check_batches(report, &name, writes, sum - done_before[index]);
        }
    }
    ratios(report, scratch);
    Ok(())
}

/// Commits until the WAL has the size it keeps. Without syncs at first: a disk takes milliseconds
/// for each commit that lengthens a file.
fn until_steady(
    row: Row,
    database: &Database,
    connection: &Connection,
    updater: &mut Updater<'_>,
) -> Result<(), Failed> {
    if row.mode.journal != "wal" {
        return (0..WARM_UP).try_for_each(|_| updater.commit());
    }
    connection.pragma_update(None, "synchronous", "OFF")?;
    (0..3 * CHECKPOINT).try_for_each(|_| updater.commit())?;
    connection.pragma_update(None, "synchronous", row.mode.synchronous)?;
    if row.medium == Medium::Disk {
        // The file system writes down where the file lies; later syncs find it done.
        for file in [database.path().to_path_buf(), database.path().with_extension("db-wal")] {
            std::fs::File::open(file)?.sync_all()?;
        }
    }
    // Over one checkpoint, with syncs.
    let began = Instant::now();
    for _ in 0..CHECKPOINT {
        updater.commit()?;
        if began.elapsed() > ROUND_MAX {
            break;
        }
    }
    Ok(())
}

/// One round of one row. Whether all its commits were made.
fn round(
    report: &mut Report,
    row: Row,
    name: &str,
    updater: &mut Updater<'_>,
) -> Result<bool, Failed> {
    let round_max = if report.quick() { ROUND_MAX_QUICK } else { ROUND_MAX };
    if row.medium != Medium::Disk {
        (0..WARM_UP).try_for_each(|_| updater.commit())?;
    }
    let mut singles_ns = Vec::with_capacity(row.commits);
    let began = Instant::now();
    let mut before = began;
    for _ in 0..row.commits {
        updater.commit()?;
        let now = Instant::now();
        singles_ns.push((now - before).as_nanos() as f64);
        before = now;
        if now - began > round_max {
            break;
        }
    }
    let seconds = (before - began).as_secs_f64();
    let whole = singles_ns.len() == row.commits;
    report.run_in("/s", THROUGHPUT, name, vec![singles_ns.len() as f64 / seconds]);
    report.run(LATENCY, name, singles_ns);
    Ok(whole)
}

/// Writes to the tier of a database that is open: batches, and blocks alone (a batch of one block
/// is one of these).
fn tier_writes(database: &Database) -> Result<u64, Failed> {
    let waits = database.stats()?.waits;
    Ok(waits.event(waits::BATCH_WRITE).count() + waits.event(waits::BLOCK_WRITE).count())
}

/// Whether what the row is named after is what happened: one write for each commit. A journal would
/// be more.
fn check_batches(report: &mut Report, name: &str, writes: u64, commits: u64) {
    if writes != commits {
        report.warn(format!(
            "{name}: {writes} writes to the tier for {commits} commits, so not all were a batch; \
             compile \
             SQLite with -DSQLITE_ENABLE_BATCH_ATOMIC_WRITE (.cargo/config.toml does)"
        ));
    }
}

fn ratios(report: &mut Report, scratch: &Scratch) {
    let throughput =
        |report: &Report, row: Row| report.median(THROUGHPUT, &row.name(scratch)).unwrap_or(0.0);
    let best = |report: &Report, one: Row, other: Row| match throughput(report, one)
        >= throughput(report, other)
    {
        true => one,
        false => other,
    };
    let shared = best(report, OUR_BATCH, OUR_WAL);
    let alone = best(report, OUR_BATCH_EXCLUSIVE, OUR_WAL_EXCLUSIVE);
    report.config("best_durable_mode", shared.what);
    report.config("best_durable_mode_exclusive", alone.what);
    let pairs = [
        ("commits_over_tmpfs_wal_full", shared, TMPFS_WAL),
        ("commits_over_disk_wal_full", shared, DISK_WAL),
        ("commits_exclusive_over_tmpfs_wal_full_exclusive", alone, TMPFS_EXCLUSIVE),
        ("commits_wal_over_tmpfs_wal_full", OUR_WAL, TMPFS_WAL),
        ("commits_batch_over_tmpfs_wal_full", OUR_BATCH, TMPFS_WAL),
    ];
    for (key, ours, peer) in pairs {
        if peer.medium == Medium::Disk && scratch.disk_is_tmpfs {
            report.warn(format!(
                "{key} is left out: the build folder is a tmpfs, no disk was measured"
            ));
            continue;
        }
        let (ours, peer) = (ours.name(scratch), peer.name(scratch));
        report.ratio_of_medians(key, (THROUGHPUT, &ours), (THROUGHPUT, &peer));
    }
}

//! Random point reads by primary key of a database 8 x SQLite's page cache: blocks in the tier, and
//! blocks read for the first time.
//!
//! Warm: every read a statement of its own (SQLite locks the database for each), and the same
//! within one read transaction, where pages are all that is left. Stock SQLite with `mmap_size` is
//! there for honesty: it lends pages as we do.
//!
//! Cold: every read is of a page that nothing has read since its bytes were written to the disk;
//! before each round the kernel is told to drop what it has of the file, for stock SQLite and for
//! our home alike.

use std::fs::File;
use std::time::Instant;

use rusqlite::{Connection, Statement};
use rustix::fs::{Advice, fadvise};
use tiersmith_store::waits;

use crate::Failed;
use crate::database::{Database, Medium, Mode, load, make_table, number};
use crate::report::Report;
use crate::scratch::Scratch;

/// Rows of about 115 bytes.
const ROWS: u64 = 4_000_000;
const ROWS_QUICK: u64 = 1_000_000;
/// The database is so many times the page cache.
const TIMES_CACHE: u64 = 8;
/// Warm reads of one row of the table in a round.
const READS: usize = 10_000;
/// Cold reads of a round.
const COLD_READS: usize = 300;
/// Rows from one cold read to the next: more than a page holds, so that each read is of a page of
/// its own.
const APART: u64 = 64;
/// Of each cold round's reads so many must have come from the disk.
const COLD_SHARE: f64 = 0.9;

const SINGLE: &str = "point read";
const INSIDE: &str = "point read in a transaction";
const COLD: &str = "first read of cold blocks";

struct Reader<'connection> {
    connection: &'connection Connection,
    statement: Statement<'connection>,
    random: fastrand::Rng,
    rows: u64,
}

impl<'connection> Reader<'connection> {
    fn new(connection: &'connection Connection, rows: u64) -> Result<Self, Failed> {
        let statement = connection.prepare("SELECT id FROM t WHERE id=?1 AND n=0")?;
        Ok(Reader { connection, statement, random: fastrand::Rng::with_seed(7), rows })
    }

    #[inline]
    fn read(&mut self, id: u64) -> Result<(), Failed> {
        let found: i64 = self.statement.query_row([id.cast_signed()], |row| row.get(0))?;
        if found.cast_unsigned() != id {
            return Err(format!("row {id} was asked for, row {found} came").into());
        }
        Ok(())
    }

    fn random(&mut self) -> Result<(), Failed> {
        let id = self.random.u64(1..=self.rows);
        self.read(id)
    }

    /// One round of one row.
    fn round(&mut self, report: &mut Report, group: &str, name: &str) -> Result<(), Failed> {
        if group == INSIDE {
            self.connection.execute_batch("BEGIN")?;
        }
        (0..READS / 8).try_for_each(|_| self.random())?;
        let mut singles_ns = Vec::with_capacity(READS);
        let mut before = Instant::now();
        for _ in 0..READS {
            self.random()?;
            let now = Instant::now();
            singles_ns.push((now - before).as_nanos() as f64);
            before = now;
        }
        if group == INSIDE {
            self.connection.execute_batch("COMMIT")?;
        }
        report.run(group, name, singles_ns);
        Ok(())
    }
}

/// The tables and their ratios.
pub(crate) fn reads(report: &mut Report, scratch: &Scratch) -> Result<(), Failed> {
    let rows = if report.quick() { ROWS_QUICK } else { ROWS };
    // One file, loaded once by stock SQLite; the others are copies of it.
    let source = Database::new(scratch, "reads", Medium::Disk, 0);
    let connection = source.connect(Mode::NOTHING)?;
    make_table(&connection)?;
    load(&connection, rows)?;
    let pages = number(&connection, "PRAGMA page_count")?;
    drop(connection);
    let bytes = std::fs::metadata(source.path())?.len();
    report.config("reads_database_bytes", bytes);
    report.config("reads_page_cache_pages", pages / TIMES_CACHE);
    warm(report, scratch, &source, rows, pages)?;
    if scratch.disk_is_tmpfs {
        report.warn(
            "cold_reads_over_disk is left out: the build folder is a tmpfs, no disk was measured",
        );
        return Ok(());
    }
    cold(report, scratch, &source, rows, pages)
}

/// A copy of the loaded database, durable, at its place.
fn copy(
    scratch: &Scratch,
    source: &Database,
    name: &str,
    medium: Medium,
) -> Result<Database, Failed> {
    // Room for every block, and a sixteenth of the tier stays free.
    let tier = (std::fs::metadata(source.path())?.len() * 3 / 2).next_multiple_of(1 << 20);
    let database = Database::new(scratch, name, medium, tier);
    std::fs::copy(source.path(), database.path())?;
    File::open(database.path())?.sync_all()?;
    Ok(database)
}

/// A connection that may lend pages (`mmap`) or not, with a page cache of an eighth of the
/// database.
fn connect(database: &Database, pages: u64, mmap: bool) -> Result<Connection, Failed> {
    let connection = database.connect(Mode::WAL_FULL)?;
    connection.pragma_update(None, "cache_size", (pages / TIMES_CACHE).cast_signed())?;
    let wanted = if mmap { 1_i64 << 30 } else { 0 };
    let set: i64 =
        connection.query_row(&format!("PRAGMA mmap_size={wanted}"), [], |row| row.get(0))?;
    if set != wanted {
        return Err(format!("PRAGMA mmap_size={wanted}: SQLite stays with {set}").into());
    }
    Ok(connection)
}

fn warm(
    report: &mut Report,
    scratch: &Scratch,
    source: &Database,
    rows: u64,
    pages: u64,
) -> Result<(), Failed> {
    let stock = copy(scratch, source, "reads-tmpfs", Medium::Tmpfs)?;
    let ours = copy(scratch, source, "reads-tier", Medium::Tier)?;
    let table = [(&stock, false), (&stock, true), (&ours, false), (&ours, true)];
    let name = |index: usize| {
        let (database, mmap) = table[index];
        let what = match (database.medium, mmap) {
            (_, false) => "copied",
            (Medium::Tier, true) => "zero-copy (mmap_size)",
            (_, true) => "mmap_size",
        };
        format!("{}: {what}", database.medium.label(scratch))
    };
    let mut connections = Vec::new();
    for (database, mmap) in table {
        let connection = connect(database, pages, mmap)?;
        // Every block comes into the tier; tmpfs has its own.
        number(&connection, "SELECT sum(n) FROM t")?;
        connections.push(connection);
    }
    let mut readers = Vec::new();
    for connection in &connections {
        readers.push(Reader::new(connection, rows)?);
    }
    let before = ours.stats()?.waits;
    for _ in 0..report.rounds() {
        for group in [SINGLE, INSIDE] {
            for (index, reader) in readers.iter_mut().enumerate() {
                reader.round(report, group, &name(index))?;
            }
        }
    }
    let after = ours.stats()?.waits;
    let grown = |counter| after.counter(counter) - before.counter(counter);
    if grown(waits::TIER_MISSES) > 0 {
        report.warn(format!(
            "{} blocks of the warm reads came from home, not from the tier",
            grown(waits::TIER_MISSES)
        ));
    }
    let zero_copy = grown(waits::ZERO_COPY) as f64 / (report.rounds() * 2 * READS) as f64;
    report.config("zero_copy_blocks_per_read", zero_copy);
    if zero_copy < 0.5 {
        report.warn(format!("only {zero_copy:.2} blocks were lent for each zero-copy read"));
    }
    // Times: stock over ours is the throughput of ours over stock.
    for (key, group, peer) in [
        ("point_reads_over_tmpfs", SINGLE, 0),
        ("point_reads_over_tmpfs_mmap", SINGLE, 1),
        ("point_reads_in_transaction_over_tmpfs", INSIDE, 0),
        ("point_reads_in_transaction_over_tmpfs_mmap", INSIDE, 1),
    ] {
        report.ratio_of_medians(key, (group, &name(peer)), (group, &name(3)));
    }
    Ok(())
}

fn cold(
    report: &mut Report,
    scratch: &Scratch,
    source: &Database,
    rows: u64,
    pages: u64,
) -> Result<(), Failed> {
    let table = [
        copy(scratch, source, "cold-disk", Medium::Disk)?,
        copy(scratch, source, "cold-tier", Medium::Tier)?,
    ];
    let mut connections = Vec::new();
    for database in &table {
        connections.push(connect(database, pages, false)?);
    }
    let mut readers = Vec::new();
    for connection in &connections {
        readers.push(Reader::new(connection, rows)?);
    }
    let mut ids: Vec<u64> = (1..=rows).step_by(APART as usize).collect();
    fastrand::Rng::with_seed(11).shuffle(&mut ids);
    let mut warm_rounds = 0;
    for ids in ids.chunks_exact(COLD_READS).take(report.rounds()) {
        for (database, reader) in table.iter().zip(&mut readers) {
            drop_page_cache(database)?;
            let read_before = disk_bytes();
            let mut singles_ns = Vec::with_capacity(COLD_READS);
            let mut before = Instant::now();
            for id in ids {
                reader.read(*id)?;
                let now = Instant::now();
                singles_ns.push((now - before).as_nanos() as f64);
                before = now;
            }
            let from_disk = disk_bytes() - read_before;
            warm_rounds +=
                usize::from((from_disk as f64) < COLD_SHARE * (COLD_READS * 4096) as f64);
            report.run(COLD, database.medium.label(scratch), singles_ns);
        }
    }
    if warm_rounds > 0 {
        report.warn(format!(
            "{warm_rounds} rounds of cold reads had less than {:.0} % of their bytes from the disk \
             (/proc/self/io): they were not cold",
            COLD_SHARE * 100.0
        ));
    }
    report.note(
        "cold: the kernel's page cache was dropped; what the disk itself, or a hypervisor, keeps \
         in memory \
         was not",
    );
    let (stock, ours) = (Medium::Disk.label(scratch), Medium::Tier.label(scratch));
    report.ratio_of_medians("cold_reads_over_disk", (COLD, stock), (COLD, ours));
    Ok(())
}

/// The kernel drops its pages of the file; they are clean.
fn drop_page_cache(database: &Database) -> Result<(), Failed> {
    let file = File::open(database.home_file())?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

/// Bytes this process has had read from storage.
fn disk_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes:"));
    line.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0)
}

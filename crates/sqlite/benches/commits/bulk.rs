//! Bulk load: rows inserted by a prepared statement in one transaction into a new database; the
//! COMMIT is in the time, making and attaching the database is not.
//!
//! Every round makes the database anew. The tier's file stays from round to round and its memory
//! with it, as persistent memory does; a tmpfs gives a new file new memory. The first round of each
//! row is not counted.

use std::time::Instant;

use crate::Failed;
use crate::database::{Database, Medium, Mode, load, make_table, number};
use crate::report::Report;
use crate::scratch::Scratch;

/// Rows of a full run.
const ROWS: u64 = 1_000_000;
/// Rows with `--quick`.
const ROWS_QUICK: u64 = 100_000;
/// Rounds at most: each takes seconds.
const ROUNDS_MAX: usize = 7;
/// Bytes of tier for a row of about 110 bytes, which is in the WAL and in the database.
const TIER_PER_ROW: u64 = 400;

const GROUP: &str = "bulk load, each row";

/// What is measured: a name without its medium, and how.
const TABLE: [(Medium, Mode, &str); 4] = [
    (Medium::Tmpfs, Mode::WAL_FULL, "WAL FULL"),
    (Medium::Tmpfs, Mode::ROLLBACK, "DELETE FULL"),
    (Medium::Tier, Mode::WAL_FULL, "WAL FULL"),
    (Medium::Tier, Mode::ROLLBACK, "batch (DELETE FULL)"),
];

/// The table, and its ratios: the faster mode of ours over the faster one of stock SQLite, and the
/// same for each mode.
pub(crate) fn bulk(report: &mut Report, scratch: &Scratch) -> Result<(), Failed> {
    let rows = if report.quick() { ROWS_QUICK } else { ROWS };
    report.config("bulk_load_rows", rows);
    if report.quick() {
        report.note(format!("bulk load: {rows} rows with --quick, {ROWS} without"));
    }
    let tier_bytes = (rows * TIER_PER_ROW).next_multiple_of(1 << 20);
    let name = |index: usize| {
        let (medium, _, what) = TABLE[index];
        format!("{}: {what}", medium.label(scratch))
    };
    for counted in [false].into_iter().chain([true; ROUNDS_MAX].into_iter().take(report.rounds())) {
        for (index, (medium, mode, _)) in TABLE.into_iter().enumerate() {
            let database = Database::new(scratch, &format!("bulk-{index}"), medium, tier_bytes);
            let connection = database.connect(mode)?;
            make_table(&connection)?;
            let began = Instant::now();
            load(&connection, rows)?;
            let ns = began.elapsed().as_nanos() as f64;
            if counted {
                report.run(GROUP, &name(index), vec![ns / rows as f64]);
            }
            let found = number(&connection, "SELECT count(*) FROM t")?;
            if found != rows {
                return Err(
                    format!("{}: {rows} rows were loaded, {found} are there", name(index)).into()
                );
            }
            connection.close().map_err(|(_, error)| error)?;
            database.remove()?;
        }
    }
    let median =
        |report: &Report, index: usize| report.median(GROUP, &name(index)).unwrap_or(f64::MAX);
    let best = |report: &Report, one, other| match median(report, one) <= median(report, other) {
        true => one,
        false => other,
    };
    let (stock, ours) = (best(report, 0, 1), best(report, 2, 3));
    // Times: stock over ours is the throughput of ours over stock.
    for (key, stock, ours) in [
        ("bulk_load_over_tmpfs", stock, ours),
        ("bulk_load_wal_over_tmpfs_wal", 0, 2),
        ("bulk_load_batch_over_tmpfs_delete", 1, 3),
    ] {
        report.ratio_of_medians(key, (GROUP, &name(stock)), (GROUP, &name(ours)));
    }
    Ok(())
}

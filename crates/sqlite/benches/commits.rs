//! SQLite on a tier: durable commits, bulk load and point reads, against stock SQLite on the disk
//! and on tmpfs.
//!
//! `cargo bench -p tiersmith-sqlite --bench commits -- [--quick] [--bulk]`; writes
//! `target/bench/commits.json`. `--bulk` measures bulk load only.
//!
//! Tiers are files in `/dev/shm` if it has 3 GiB free, else in the build folder; they stand for
//! persistent memory and are labelled EMULATED. Homes, and the peers on the disk, are in the build
//! folder. Peers on tmpfs have memory's speed and lose everything at a power cut. One thread; peers
//! take turns, round by round. Every row checks that its work was done (sums, counts, the batches
//! of the store).
//!
//! Each `.._over_..` of `ratios` is the throughput of ours over that of the peer: more is better.
//!
//! | key of `ratios` | is |
//! |---|---|
//! | `commits_over_tmpfs_wal_full`, `.._over_disk_wal_full` | our best durable mode, default locking |
//! | `commits_exclusive_over_tmpfs_wal_full_exclusive` | the same, both with `locking_mode=EXCLUSIVE` |
//! | `commits_wal_over_tmpfs_wal_full`, `commits_batch_over_tmpfs_wal_full` | each mode of ours |
//! | `bulk_load_over_tmpfs` | rows of one transaction, the faster journal mode of each side |
//! | `bulk_load_wal_over_tmpfs_wal`, `bulk_load_batch_over_tmpfs_delete` | the same for each mode |
//! | `point_reads_over_tmpfs`, `.._over_tmpfs_mmap` | zero-copy reads over stock without and with `mmap_size` |
//! | `point_reads_in_transaction_over_tmpfs`, `.._over_tmpfs_mmap` | in one read transaction: no locks |
//! | `cold_reads_over_disk` | first reads of blocks that only home has, over stock as cold |
//! | `instructions_per_commit`, `.._batch`, `.._stock_wal` | instructions of the program: WAL, batch, stock WAL |

#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

#[path = "../../../benches/report.rs"]
mod report;

#[path = "commits/bulk.rs"]
mod bulk;
#[path = "commits/database.rs"]
mod database;
#[path = "commits/instructions.rs"]
mod instructions;
#[path = "commits/reads.rs"]
mod reads;
#[path = "commits/scratch.rs"]
mod scratch;
#[path = "commits/updates.rs"]
mod updates;

use std::process::ExitCode;

use report::Report;
use scratch::Scratch;

/// What a benchmark that cannot go on says.
type Failed = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    if let Err(error) = tiersmith_sqlite::register() {
        return failed(&error.into());
    }
    if let Some(done) = instructions::child() {
        return done.map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS);
    }
    let title =
        "durable commits, bulk load and point reads of SQLite on a tier, against stock SQLite";
    let mut report = Report::from_args("commits", title);
    match measure(&mut report) {
        Ok(()) => report.finish(),
        Err(error) => failed(&error),
    }
}

fn failed(error: &Failed) -> ExitCode {
    eprintln!("commits: {error}");
    ExitCode::from(2)
}

fn measure(report: &mut Report) -> Result<(), Failed> {
    let scratch = Scratch::new()?;
    describe(report, &scratch)?;
    if report.has_option("--bulk") {
        return bulk::bulk(report, &scratch);
    }
    updates::commits(report, &scratch)?;
    bulk::bulk(report, &scratch)?;
    reads::reads(report, &scratch)?;
    instructions::instructions(report, &scratch)
}

fn describe(report: &mut Report, scratch: &Scratch) -> Result<(), Failed> {
    report.version("sqlite", rusqlite::version());
    report.config("commit_table_rows", updates::ROWS);
    report.config("commit_tier_bytes", updates::TIER);
    let place = if scratch.fast_is_tmpfs {
        "tmpfs (/dev/shm)"
    } else {
        "files on disk in the build folder"
    };
    report.warn(format!("EMULATED: {place} stands for persistent memory in the rows of the tier"));
    if !scratch.fast_is_tmpfs {
        report.warn(
            "/dev/shm has less than 3 GiB free; free some for figures without a disk in them",
        );
    }
    if scratch.disk_is_tmpfs {
        report.warn("the build folder is a tmpfs: no row is of a disk; build on an ordinary disk");
    }
    let memory = rusqlite::Connection::open_in_memory()?;
    if !memory
        .prepare("PRAGMA compile_options")?
        .query_map([], |row| row.get::<_, String>(0))?
        .any(|option| option.is_ok_and(|option| option == "ENABLE_BATCH_ATOMIC_WRITE"))
    {
        report.warn("SQLite was compiled without ENABLE_BATCH_ATOMIC_WRITE: no commit is a batch");
    }
    report.note(
        "throughput is of whole rounds, with the checkpoints in them; WAL files have the size they \
         keep",
    );
    report.note("peers on tmpfs, and those with sync off, survive no power cut");
    Ok(())
}

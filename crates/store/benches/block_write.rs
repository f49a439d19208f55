//! Durable block writes, redo appends and reads of blocks in the tier, against the limit of the
//! medium and against peers.
//!
//! `cargo bench -p tiersmith-store --bench block_write -- [--quick]`; writes
//! `target/bench/block_write.json`.
//!
//! Everything runs on files of one medium: `/dev/shm` if it has 3 GiB free, else the build folder.
//! Both stand for persistent memory (`emulated`). Data is 512 MiB a file, many times the last-level
//! cache; blocks are visited in a random order that is drawn before the clock starts; the bytes
//! written change with every operation. Peers take turns, round by round. libpmemblk is measured
//! when it is installed (Debian: `apt-get install libpmemblk1`).
//!
//! Medians come from batches of operations, percentiles from single ones (the tables named
//! `single`). The first row of each table is the limit: non-temporal stores in place and one fence,
//! which is durable and not atomic.
//!
//! | key of `ratios` | is |
//! |---|---|
//! | `overwrite_{4,8,16}k_over_raw`, `.._over_libpmemblk` | time of an atomic durable overwrite over that of the peer |
//! | `batch_2x4k_over_raw` | time of a batch of two blocks over two raw writes with one fence |
//! | `redo_512_over_raw`, `redo_512_in_place_over_raw` | time of a durable append (rewrite) of 512 bytes over a raw write at a random place |
//! | `redo_512_draining_over_raw` | the first while the background drains what is older to home, which the limit does not have beside it |
//! | `redo_512_over_raw_sequential` | the same over a raw write behind the one before |
//! | `two_threads_over_one` | throughput of 8 KiB overwrites of one file by two threads over that of one |
//! | `two_threads_two_files_over_one`, `raw_two_threads_over_one` | the same for a file each, and for the limit |
//! | `two_threads_over_raw_two_threads` | what a second thread gains the store over what it gains the limit: 1 when the store costs no scaling |
//! | `events_share` | share of an 8 KiB overwrite that goes into recording its wait event |
//! | `zero_copy_read_ns` | nanoseconds to borrow a block of the tier and give it back |
//! | `copied_read_8k_over_memcpy` | time of a read of 8 KiB over a `memcpy` from the same kind of mapping; the processor works on several copies at once |
//! | `chained_read_8k_over_memcpy`, `.._over_table` | the same where each place depends on what was read before; the second over a `memcpy` that looks its place up |
//! | `reopen_16g_s` | seconds to attach a tier whose maps hold 16 GiB of blocks of 8 KiB |

#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

#[path = "../../../benches/report.rs"]
mod report;

#[path = "block_write/peers.rs"]
mod peers;
#[path = "block_write/reads.rs"]
mod reads;
#[path = "block_write/redo.rs"]
mod redo;
#[path = "block_write/reopen.rs"]
mod reopen;
#[path = "block_write/scratch.rs"]
mod scratch;
#[path = "block_write/subject.rs"]
mod subject;
#[path = "block_write/timing.rs"]
mod timing;
#[path = "block_write/work.rs"]
mod work;
#[path = "block_write/writes.rs"]
mod writes;

use std::process::ExitCode;

use peers::{Plain, PmemBlkLibrary, Raw};
use report::Report;
use scratch::Scratch;
use timing::Timing;

/// What a benchmark that cannot go on says.
type Failed = Box<dyn std::error::Error>;

/// Bytes of the file that is overwritten, and of each peer's.
const DATA: u64 = 512 << 20;
/// Bytes of the file that a second thread has for itself.
const SECOND: u64 = 128 << 20;

const RAW: &str = "raw: nt stores + fence";
const STORE: &str = "store";
const BLK: &str = "libpmemblk";

/// What all tables share.
struct Bench {
    timing: Timing,
    scratch: Scratch,
    raw: Raw,
    plain: Plain,
    library: Option<PmemBlkLibrary>,
}

impl Bench {
    /// A row's name with the medium that ordinary system calls are measured on.
    fn on_medium(&self, what: &str) -> String {
        format!("{what}, {}", self.scratch.medium())
    }
}

fn main() -> ExitCode {
    // SAFETY: nothing has started a thread yet.
    unsafe { peers::force_flush_instructions() };
    let title =
        "durable block writes, redo appends and reads in the tier, against the medium's limit";
    let mut report = Report::from_args("block_write", title);
    match measure(&mut report) {
        Ok(()) => report.finish(),
        Err(error) => {
            eprintln!("block_write: {error}");
            ExitCode::from(2)
        }
    }
}

fn measure(report: &mut Report) -> Result<(), Failed> {
    let scratch = Scratch::new()?;
    let timing = Timing::calibrated(if report.quick() { 8_000 } else { 20_000 });
    let raw = Raw::new(&scratch.fast("raw"), DATA)?;
    let plain = Plain::new(&scratch.fast("plain"), DATA)?;
    let library = PmemBlkLibrary::load();
    describe(report, &scratch, &raw, library.is_some(), timing.operations);
    let bench = Bench { timing, scratch, raw, plain, library };
    for kib in [8, 4, 16] {
        writes::overwrites(report, &bench, kib)?;
    }
    redo::appends(report, &bench)?;
    // The rows that read have the raw file for themselves: a file has one owner.
    let Bench { timing, scratch, raw, plain, library } = bench;
    drop(raw);
    reads::reads(report, timing, &scratch, &plain, library.as_ref())?;
    reopen::reopen(report, &scratch)
}

fn describe(
    report: &mut Report,
    scratch: &Scratch,
    raw: &Raw,
    has_library: bool,
    operations: usize,
) {
    report.config("medium", scratch.medium());
    report.config("data_bytes", DATA);
    report.config("operations_per_round", operations);
    report.config("operations_per_sample", timing::BATCH);
    report.config("warm_up_ms_per_round", timing::WARM_UP.as_millis() as u64);
    report.config("mapping", raw.report());
    let place =
        if scratch.tmpfs { "tmpfs (/dev/shm)" } else { "files on disk in the build folder" };
    report.warn(format!("emulated: {place} stands for persistent memory"));
    if !scratch.tmpfs {
        report.warn(
            "/dev/shm has less than 3 GiB free; free some for figures without a disk in them",
        );
    }
    if has_library {
        report.version("libpmemblk", "libpmemblk.so.1");
    } else {
        report.warn("libpmemblk is not installed and not measured; apt-get install libpmemblk1");
    }
    report.note(
        "medians are of batches of 32 operations, of redo 512; tables named `single` time each \
         one, for the p99",
    );
    report.note("the raw rows are durable and not atomic: a power cut tears the block");
}

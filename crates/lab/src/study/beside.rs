//! Which figure of ours means what a published figure means.
//!
//! | published | here |
//! |---|---|
//! | executes, transactions per second; commits (waits for `log file sync`) | the same |
//! | gains in transactions, throughput, tpm | transactions over the baseline's |
//! | gains in requests; in the time of one | requests, the baseline's mean time of a SET over ours |
//! | logical reads | rows touched, each in a block of its own (SLOB alone) |
//! | physical reads, reads of a flash cache | reads of the file layer, reads that the tier answered (SQLite) |
//! | `log file parallel write`, log writes | writes of redo, as the server or the file layer times them |
//! | `log file sync` | COMMIT, as the client sees it |
//! | CPU in programs, in the kernel, waiting for a disk | the same of the whole machine |
//!
//! **Invariant**: what has no counterpart has none here: Oracle's log switches, private strands and
//! free buffers are events of its own; shares of DB time need its time model.

use tiersmith_awr::statistic::{FLASH_HITS, PHYSICAL_READS, ZERO_COPY_READS};

use super::operations;
use super::result::RunResult;

/// Our figure for a published one, in the unit of the published one; nothing if there is none.
pub fn counterpart(run: &RunResult, figure: &str) -> Option<f64> {
    let measured = &run.measured;
    let per_s = |count: f64| (measured.elapsed_s > 0.0).then(|| count / measured.elapsed_s);
    let commits = (measured.transactions > 0).then_some(measured.transactions as f64);
    match figure {
        "executes_per_s" => Some(measured.executes_per_s()),
        "transactions_per_s" => commits.map(|_| measured.transactions_per_s()),
        "log_file_sync_waits" => commits,
        "log_file_sync_avg_ms" => {
            (measured.commit.count > 0).then(|| measured.commit.mean_ns / 1e6)
        }
        "log_file_parallel_write_avg_us" | "log_write_us" => {
            run.redo_write_mean_ns().map(|ns| ns / 1e3)
        }
        // Of SLOB each row is in a block of its own.
        "logical_read_blocks_per_s"
            if operations::nopm(measured).is_none() && measured.kinds.is_empty() =>
        {
            (measured.rows > 0).then(|| per_s(measured.rows as f64))?
        }
        "physical_read_blocks_per_s" | "reads_per_s" => per_s(run.counter(PHYSICAL_READS)? as f64),
        "physical_read_io_requests" => run.counter(PHYSICAL_READS).map(|count| count as f64),
        "flash_cache_hits" | "flash_cache_single_block_read_waits" => {
            Some((run.counter(FLASH_HITS)? + run.counter(ZERO_COPY_READS)?) as f64)
        }
        "user_cpu_pct" => cpu_pct(run, |cpu| cpu.0),
        "system_cpu_pct" => cpu_pct(run, |cpu| cpu.1),
        "io_wait_pct" => cpu_pct(run, |cpu| cpu.2),
        _ => None,
    }
}

/// Over the baseline's, what only stands for a ratio.
pub fn is_ratio_of_transactions(figure: &str) -> bool {
    matches!(figure, "transactions_ratio" | "tpm_gain_pct" | "throughput_ratio")
}

/// The same of requests, of which those that only read are no transactions.
pub fn is_ratio_of_executes(figure: &str) -> bool {
    figure == "requests_ratio"
}

/// How many times shorter a commit is, or a SET.
pub fn is_ratio_of_commits(figure: &str) -> bool {
    figure == "shorter_ratio"
}

/// A share of all processors' time, in per cent; of user, system, waiting for a disk.
fn cpu_pct(run: &RunResult, which: fn((u64, u64, u64)) -> u64) -> Option<f64> {
    let (begin, end) = (run.measured.begin.host.cpu?, run.measured.end.host.cpu?);
    let grown = |of: fn(&tiersmith_awr::host::CpuTimes) -> u64| of(&end).saturating_sub(of(&begin));
    let (user, system) = (grown(|cpu| cpu.user_ns), grown(|cpu| cpu.system_ns));
    let (idle, waiting) = (grown(|cpu| cpu.idle_ns), grown(|cpu| cpu.iowait_ns));
    let all = user + system + idle + waiting + grown(|cpu| cpu.steal_ns);
    (all > 0).then(|| 100.0 * which((user, system, waiting)) as f64 / all as f64)
}

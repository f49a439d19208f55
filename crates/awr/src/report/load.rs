//! Load profile and efficiency of an interval: the figures both reports print, per second and per
//! transaction.
//!
//! Invariant: a row is there only if the source counts what it needs. Read next:
//! `snapshot/known.rs` for the counters' names.

use crate::figure;
use crate::interval::page_cache_hit;
use crate::snapshot::known::statistic;
use crate::table::Cell;
use crate::{Interval, IoStat};

/// A row of the load profile.
pub(super) struct LoadRow {
    pub(super) name: &'static str,
    /// Over the whole interval.
    pub(super) total: f64,
}

/// A share that would be a hundred if nothing was in the way.
pub(super) struct Efficiency {
    pub(super) name: &'static str,
    pub(super) explanation: &'static str,
    pub(super) percent: f64,
}

const MIB: f64 = 1_048_576.0;

/// The load profile's rows, in Oracle's order.
pub(super) fn profile(of: &Interval) -> Vec<LoadRow> {
    let seconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e9);
    let counter = |name: &str| of.counter(name).map(|value| value as f64);
    let io = |pick: fn(&IoStat) -> u64| {
        (!of.io.is_empty()).then(|| of.io.iter().map(|io| pick(io) as f64).sum::<f64>())
    };
    let rows = [
        ("DB Time(s)", seconds(of.db_time_ns)),
        ("DB CPU(s)", seconds(of.db_cpu_ns)),
        ("Process CPU(s)", seconds(of.process_cpu_ns)),
        ("Redo size (bytes)", counter(statistic::REDO_SIZE)),
        ("Logical read (pages)", counter(statistic::LOGICAL_READS)),
        ("Page changes", counter(statistic::BLOCK_CHANGES)),
        ("Physical read (pages)", counter(statistic::PHYSICAL_READS)),
        ("Physical write (pages)", counter(statistic::PHYSICAL_WRITES)),
        // Oracle's own counters, where they are: its rows by file type hold backups too.
        ("Read IO requests", counter("physical read IO requests").or_else(|| io(|io| io.reads))),
        ("Write IO requests", counter("physical write IO requests").or_else(|| io(|io| io.writes))),
        (
            "Read IO (MiB)",
            counter("physical read bytes")
                .or_else(|| io(|io| io.read_bytes))
                .map(|bytes| bytes / MIB),
        ),
        (
            "Write IO (MiB)",
            counter("physical write bytes")
                .or_else(|| io(|io| io.write_bytes))
                .map(|bytes| bytes / MIB),
        ),
        ("User calls", counter(statistic::USER_CALLS)),
        ("Parses (SQL)", counter(statistic::PARSE_COUNT)),
        ("Logons", counter(statistic::LOGONS)),
        ("Executes (SQL)", counter(statistic::EXECUTE_COUNT)),
        ("Rollbacks", counter(statistic::USER_ROLLBACKS)),
        ("Transactions", of.transactions().map(|count| count as f64)),
    ];
    rows.into_iter().filter_map(|(name, total)| Some(LoadRow { name, total: total? })).collect()
}

/// Per what something is; nothing if there was none of it.
pub(super) fn per(total: f64, count: Option<u64>) -> Option<f64> {
    count.filter(|count| *count > 0).map(|count| total / count as f64)
}

/// The efficiency percentages whose parts the source counts.
pub(super) fn efficiency(of: &Interval) -> Vec<Efficiency> {
    let counter = |name: &str| of.counter(name).map(|value| value as f64);
    let share = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole * 100.0);
    let (hits, misses) = (counter(statistic::FLASH_HITS), counter(statistic::FLASH_MISSES));
    let zero_copy = counter(statistic::ZERO_COPY_READS);
    // What is read without a copy is counted apart, and is a hit all the same.
    let from_tier = hits.map(|hits| hits + zero_copy.unwrap_or(0.0));
    let (parses, executes) = (counter(statistic::PARSE_COUNT), counter(statistic::EXECUTE_COUNT));
    let tier_writes: f64 = ["tier block write", "tier batch write", "log file parallel write"]
        .iter()
        .filter_map(|name| of.wait(name))
        .map(|wait| wait.count as f64)
        .sum();
    let room_waits = of.wait("free buffer waits").map(|wait| wait.count as f64);
    let rows = [
        (
            "Buffer Hit %",
            "Pages found in the database's own page cache, of all pages asked for.",
            page_cache_hit(of),
        ),
        (
            "Flash Cache Hit %",
            "Blocks found in the fast tier, with or without a copy, of all blocks read from tier \
             and home.",
            from_tier.zip(misses).and_then(|(hits, misses)| share(hits, hits + misses)),
        ),
        (
            "Zero-copy Read %",
            "Blocks handed out as references into the tier, of all blocks read from the tier.",
            from_tier.zip(zero_copy).and_then(|(hits, zero_copy)| share(zero_copy, hits)),
        ),
        (
            "Free Block NoWait %",
            "Writes to the tier that did not wait for free blocks.",
            room_waits.and_then(|waits| share(tier_writes - waits, tier_writes)),
        ),
        (
            "Execute to Parse %",
            "Statements run that had not to be compiled.",
            parses.zip(executes).and_then(|(parses, executes)| share(executes - parses, executes)),
        ),
        (
            "DB CPU to DB Time %",
            "DB time in which a processor worked; the rest was waiting.",
            of.db_cpu_ns.zip(of.db_time_ns).and_then(|(cpu, time)| share(cpu as f64, time as f64)),
        ),
    ];
    let known = rows.into_iter().filter(|(.., percent)| percent.is_some_and(f64::is_finite));
    known
        .map(|(name, explanation, percent)| Efficiency {
            name,
            explanation,
            percent: percent.unwrap_or_default(),
        })
        .collect()
}

/// The change from `first` to `second` in per cent of `first`. Where there was nothing before,
/// `new`.
pub(super) fn change(first: impl Into<Option<f64>>, second: impl Into<Option<f64>>) -> Cell {
    match (first.into(), second.into()) {
        (Some(first), Some(second)) if first == second => Cell::percent(0.0),
        (Some(0.0), Some(_)) => Cell::text("new"),
        (Some(first), Some(second)) => Cell::percent((second - first) / first.abs() * 100.0),
        _ => Cell::Empty,
    }
}

/// Seconds as a sentence has them.
pub(super) fn seconds(ns: u64) -> String {
    format!("{} s", figure::number(ns as f64 / 1e9))
}

//! What the reports know by name: statistics they calculate with, wait events, and what each of
//! them means.
//!
//! A source may bring events and counters that are not here: they are listed as they come, with the
//! help text of the source. What is here adds whose name it is, which waits lie inside others, and
//! what the store's events move.
//!
//! Sources: Oracle's names and meanings after the Database Reference 19c, appendix Oracle Wait
//! Events, and the statistics descriptions of the same book, in our own words. Read next:
//! `report/load.rs`, which calculates with them.

use crate::IoStat;

/// The help of PostgreSQL's reads, and of its writes as they were once counted: with those that
/// make a file longer.
pub(crate) const WITH_EXTENDS: &str =
    "Counted and timed by pg_stat_io; from the page cache or the disk.";

/// Names of the counters that reports calculate with, spelt as Oracle spells them where it has
/// them.
pub mod statistic {
    /// How long a server has been up, in seconds.
    pub const UPTIME: &str = "time since the server started";
    /// Transactions that ended well. Unit: `transactions`.
    pub const USER_COMMITS: &str = "user commits";
    /// Transactions that were rolled back. Unit: `transactions`.
    pub const USER_ROLLBACKS: &str = "user rollbacks";
    /// Statements run. Unit: `executions`.
    pub const EXECUTE_COUNT: &str = "execute count";
    /// Calls of a client into the database. Unit: `calls`.
    pub const USER_CALLS: &str = "user calls";
    /// Statements compiled. Unit: `statements`.
    pub const PARSE_COUNT: &str = "parse count (total)";
    /// Pages asked of the database's own page cache. Unit: `pages`.
    pub const LOGICAL_READS: &str = "session logical reads";
    /// Pages changed in the database's own page cache. Unit: `pages`.
    pub const BLOCK_CHANGES: &str = "db block changes";
    /// Pages that the page cache did not hold. Unit: `pages`.
    pub const PHYSICAL_READS: &str = "physical reads";
    /// Pages written to data files. Unit: `pages`.
    pub const PHYSICAL_WRITES: &str = "physical writes";
    /// Bytes written to redo files. Unit: `bytes`.
    pub const REDO_SIZE: &str = "redo size";
    /// Requests answered by the fast tier with a copy. Unit: `blocks`.
    pub const FLASH_HITS: &str = "flash cache read hits";
    /// Requests that went to the home file. Unit: `blocks`.
    pub const FLASH_MISSES: &str = "flash cache read misses";
    /// Requests answered by the fast tier without a copy. Unit: `blocks`.
    pub const ZERO_COPY_READS: &str = "zero-copy reads";
    /// Requests for reads that the fast tier answered. Unit: `requests`.
    pub const READS_OPTIMIZED: &str = "physical read requests optimized";
    /// What the fast tier answered them with, as far as it was copied. Unit: `bytes`.
    pub const BYTES_OPTIMIZED: &str = "physical read total bytes optimized";
    /// Connections made. Unit: `connections`.
    pub const LOGONS: &str = "logons cumulative";
}

/// Names of the levels that reports and findings look for.
pub(crate) mod level {
    /// Since when the oldest transaction of a client is open. Unit: `s`.
    pub(crate) const OLDEST_TRANSACTION: &str = "oldest open transaction";
    /// Since when the oldest prepared transaction waits for its end. Unit: `s`.
    pub(crate) const OLDEST_PREPARED: &str = "oldest prepared transaction";
    /// Transactions since the database that was frozen longest ago. Unit: `transactions`.
    pub(crate) const FROZEN_AGE: &str = "age of the oldest transaction that is not frozen";
    /// Redo that the standby furthest behind has not replayed. Unit: `bytes`.
    pub(crate) const FURTHEST_STANDBY: &str = "redo that a standby has not replayed, at most";
    /// How far this standby is behind its primary. Unit: `s`.
    pub(crate) const BEHIND_PRIMARY: &str = "time behind the primary";
}

/// Counters that sources have no help text for, with the sentence the page explains them with.
const STATISTICS: &[(&str, &str)] = &[
    (statistic::USER_COMMITS, "Transactions that ended well."),
    (statistic::USER_ROLLBACKS, "Transactions that were rolled back."),
    (statistic::EXECUTE_COUNT, "Statements run."),
    (statistic::USER_CALLS, "Calls of a client into the database."),
    (statistic::PARSE_COUNT, "Statements compiled."),
    (statistic::LOGICAL_READS, "Pages asked of the database's own page cache."),
    (statistic::BLOCK_CHANGES, "Pages changed in the database's own page cache."),
    (
        statistic::PHYSICAL_READS,
        "Pages read because the database's own page cache did not hold them.",
    ),
    (statistic::PHYSICAL_WRITES, "Pages written to data files."),
    (statistic::REDO_SIZE, "Bytes written to redo files."),
    (statistic::FLASH_HITS, "Blocks read from the fast tier with a copy."),
    (statistic::FLASH_MISSES, "Blocks read from the home file."),
    (statistic::ZERO_COPY_READS, "Blocks handed out as references into the tier, without a copy."),
    (statistic::READS_OPTIMIZED, "Requests for reads that the fast tier answered."),
    (
        statistic::BYTES_OPTIMIZED,
        "Bytes read from the fast tier with a copy; those lent in place are not in it.",
    ),
    (statistic::LOGONS, "Connections made."),
];

/// Beginnings of names of Oracle's statistics that storage is judged by: they stay in a list that
/// is cut.
pub(crate) const KEY_STATISTICS: [&str; 24] = [
    "CPU used by this session",
    "DBWR",
    "background checkpoints",
    "cell ",
    "consistent gets",
    "db block gets",
    "dirty buffers inspected",
    "enqueue waits",
    "flash cache",
    "free buffer",
    "index fast full scans",
    "log switches",
    "physical read",
    "physical write",
    "pinned buffers inspected",
    "prefetched blocks",
    "recovery blocks read",
    "redo ",
    "sorts (",
    "summed dirty queue length",
    "table fetch",
    "table scan",
    "user I/O wait time",
    "workarea executions",
];

/// The sentence for a counter, empty if it is not known here.
pub(crate) fn help_of_statistic(name: &str) -> &'static str {
    if name.starts_with("mount requests ") {
        return "Requests of this kind that the kernel sent to the daemon of a mounted home.";
    }
    STATISTICS.iter().find(|(known, _)| *known == name).map_or("", |(_, help)| help)
}

/// What Oracle calls a wait event of this name, for the events a storage report meets.
const ORACLE: &[(&str, &str)] = &[
    ("buffer busy waits", "A page in the page cache was being changed by somebody else."),
    ("checkpoint completed", "A request waited for a checkpoint to end."),
    ("control file parallel write", "The control file was written."),
    ("control file sequential read", "The control file was read."),
    (
        "db file async I/O submit",
        "Asynchronous writes of data files were handed to the operating system.",
    ),
    ("db file parallel read", "Several blocks of data files were read at once, not adjacent."),
    ("db file parallel write", "The background writer waited for its writes of data files."),
    ("db file scattered read", "Several adjacent blocks of a data file were read at once."),
    ("db file sequential read", "One block of a data file was read, mostly by way of an index."),
    ("db file single write", "The header of a data file was written."),
    ("db flash cache invalidate wait", "A block in the flash cache had to be made invalid first."),
    ("db flash cache multiblock physical read", "Several blocks were read from the flash cache."),
    ("db flash cache single block physical read", "One block was read from the flash cache."),
    ("db flash cache write", "A block was written to the flash cache."),
    ("direct path read", "Blocks of a data file were read past the page cache."),
    ("direct path read temp", "Blocks of a temporary file were read past the page cache."),
    ("direct path write", "Blocks of a data file were written past the page cache."),
    ("direct path write temp", "Blocks of a temporary file were written past the page cache."),
    ("free buffer waits", "Nothing was free to put a block in until others were written out."),
    ("local write wait", "A request waited for a write of its own page."),
    ("log buffer space", "The buffer for redo was full."),
    ("log file parallel write", "Redo was written to the redo files."),
    ("log file sequential read", "A redo file was read."),
    ("log file single write", "The header of a redo file was written."),
    ("log file switch (archiving needed)", "The next redo file was not archived yet."),
    (
        "log file switch (checkpoint incomplete)",
        "The next redo file was needed for recovery still.",
    ),
    ("log file switch completion", "A request waited for the change to the next redo file."),
    ("log file sync", "A commit waited until its redo was durable."),
    ("read by other session", "Somebody else was reading the same page."),
    ("recovery read", "Recovery read blocks."),
    ("write complete waits", "A page was wanted while it was being written."),
    (
        "write complete waits: flash cache",
        "A page was wanted while it was being written to the flash cache.",
    ),
];

/// What stands before the names of Oracle's time model, some of which are statistics' too.
pub(crate) const TIME_MODEL: &str = "time model: ";

/// The time of all background processes, working or waiting.
pub(crate) const BACKGROUND_ELAPSED: &str = "time model: background elapsed time";

/// Waits that lie inside another wait of the same request, and the waits they lie in. Without this
/// a second spent waiting for room would be counted twice.
const INSIDE: &[(&str, &str)] = &[
    ("free buffer waits", "the write that found no room"),
    ("tier grow", "the write that found no room"),
];

/// Whether Oracle has a wait event of this name.
pub(crate) fn is_oracle_event(name: &str) -> bool {
    ORACLE.iter().any(|(known, _)| *known == name)
}

/// What Oracle says of this event, or nothing if the name is not Oracle's.
pub(crate) fn help_of_event(name: &str) -> &'static str {
    ORACLE.iter().find(|(known, _)| *known == name).map_or("", |(_, help)| help)
}

/// What the wait lies inside, if it does.
pub(crate) fn inside(name: &str) -> Option<&'static str> {
    INSIDE.iter().find(|(known, _)| *known == name).map(|(_, outer)| *outer)
}

/// Reads and writes that the waits of an event stand for; the tier is left empty where it is the
/// caller's.
pub(crate) fn io_of(
    event: &str,
    tier: &str,
    count: u64,
    bytes: u64,
    total_ns: u64,
) -> Option<IoStat> {
    // The store reads blocks of redo files by the same events as those of data files; a database
    // reads its redo when it recovers, so these reads are called data.
    let (file_class, at_home, read) = match event {
        "db file sequential read" | "db file scattered read" => ("data", true, true),
        "db flash cache single block physical read" | "tier newest block read" => {
            ("data", false, true)
        }
        "tier block write" | "tier batch write" | "db flash cache write" => ("data", false, false),
        "db file parallel write" => ("destage", true, false),
        "log file parallel write" => ("redo", false, false),
        "log file sequential read" => ("redo", false, true),
        _ => return None,
    };
    let file_class = match (file_class, tier) {
        // Without a tier nothing is destaged: what is written to home are data files.
        ("destage", "home") => "data",
        (class, _) => class,
    };
    let mut io = IoStat { file_class: file_class.to_owned(), ..IoStat::default() };
    if at_home {
        "home".clone_into(&mut io.tier);
    }
    if read {
        (io.reads, io.read_bytes, io.read_ns) = (count, bytes, total_ns);
    } else {
        (io.writes, io.write_bytes, io.write_ns) = (count, bytes, total_ns);
    }
    Some(io)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_listed_once() {
        for names in [ORACLE, STATISTICS] {
            for (index, (name, _)) in names.iter().enumerate() {
                assert!(
                    names[index + 1..].iter().all(|(other, _)| other != name),
                    "{name} is listed twice"
                );
            }
        }
    }
}

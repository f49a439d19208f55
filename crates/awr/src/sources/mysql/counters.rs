//! What the rows of MariaDB and MySQL mean: rows in, a snapshot filled.
//!
//! Waits of performance_schema come in picoseconds. `wait/io/table` wraps the waits on files below
//! it and is left out, so that no time is counted twice; `idle` is time of clients. File waits are
//! split by read, write and sync (`misc`: syncs, opens, closes); they cannot be told apart by user
//! there, so data and redo writes count as background work, reads of data as requests'.
//!
//! Deliberately absent: queries, connections. Read next: `mod.rs`.

use tiersmith_events::WaitClass;

use super::super::{count, wait};
use super::{Answers, Fields};
use crate::redact::Redaction;
use crate::snapshot::file::MOST_FILES;
use crate::snapshot::known::statistic;
use crate::snapshot::statement::StatementStat;
use crate::{FileStat, IoStat, Snapshot};

/// Settings worth comparing.
pub(in super::super) const SETTINGS: [&str; 26] = [
    "innodb_buffer_pool_size",
    "innodb_log_file_size",
    "innodb_redo_log_capacity",
    "innodb_log_buffer_size",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "innodb_doublewrite",
    "innodb_io_capacity",
    "innodb_io_capacity_max",
    "innodb_page_size",
    "innodb_use_native_aio",
    "innodb_adaptive_hash_index",
    "innodb_log_file_buffering",
    "innodb_data_file_buffering",
    "innodb_max_dirty_pages_pct",
    "innodb_flush_neighbors",
    "innodb_checksum_algorithm",
    "sync_binlog",
    "log_bin",
    "binlog_format",
    "max_connections",
    "performance_schema",
    "query_cache_type",
    "table_open_cache",
    "thread_handling",
    "tmp_table_size",
];

/// Counters of the status: its name, ours, the unit.
const COUNTERS: [(&str, &str, &str); 35] = [
    ("com_select", "SELECT statements", "statements"),
    ("com_insert", "INSERT statements", "statements"),
    ("com_update", "UPDATE statements", "statements"),
    ("com_delete", "DELETE statements", "statements"),
    ("uptime", statistic::UPTIME, "s"),
    ("questions", statistic::USER_CALLS, "calls"),
    ("queries", statistic::EXECUTE_COUNT, "executions"),
    ("connections", statistic::LOGONS, "connections"),
    ("com_rollback", statistic::USER_ROLLBACKS, "transactions"),
    ("innodb_buffer_pool_read_requests", statistic::LOGICAL_READS, "pages"),
    ("innodb_buffer_pool_reads", statistic::PHYSICAL_READS, "pages"),
    ("innodb_pages_written", statistic::PHYSICAL_WRITES, "pages"),
    ("innodb_os_log_written", statistic::REDO_SIZE, "bytes"),
    ("innodb_log_writes", "redo writes", "writes"),
    ("innodb_log_write_requests", "redo entries", "records"),
    ("innodb_os_log_fsyncs", "redo syncs", "syncs"),
    ("innodb_log_waits", "waits for room in the redo buffer", "waits"),
    ("innodb_data_fsyncs", "syncs of InnoDB", "syncs"),
    ("innodb_data_read", "bytes read by InnoDB", "bytes"),
    ("innodb_data_written", "bytes written by InnoDB", "bytes"),
    ("innodb_dblwr_pages_written", "pages written to the doublewrite buffer", "pages"),
    ("innodb_buffer_pool_wait_free", "waits for a free page in the buffer pool", "waits"),
    ("innodb_buffer_pool_pages_flushed", "pages flushed from the buffer pool", "pages"),
    ("innodb_buffer_pool_read_ahead", "pages read ahead", "pages"),
    ("innodb_row_lock_waits", "waits for row locks", "waits"),
    ("innodb_rows_inserted", "rows inserted", "rows"),
    ("innodb_rows_updated", "rows updated", "rows"),
    ("innodb_rows_deleted", "rows deleted", "rows"),
    ("innodb_rows_read", "rows read", "rows"),
    ("created_tmp_disk_tables", "temporary tables on disk", "tables"),
    ("binlog_commits", "commits in the binary log", "transactions"),
    ("binlog_group_commits", "groups of commits in the binary log", "groups"),
    ("slow_queries", "slow queries", "queries"),
    ("select_scan", "scans of whole tables", "scans"),
    ("handler_read_rnd_next", "rows read in scans", "rows"),
];

/// Values that go up and down.
const LEVELS: [(&str, &str, &str); 7] = [
    ("innodb_buffer_pool_pages_total", "buffer pool", "pages"),
    ("innodb_buffer_pool_pages_dirty", "buffer pool, dirty", "pages"),
    ("innodb_checkpoint_age", "redo since the last checkpoint", "bytes"),
    ("innodb_checkpoint_max_age", "redo that forces a checkpoint", "bytes"),
    ("innodb_history_list_length", "transactions to purge", "transactions"),
    ("threads_running", "sessions running", "sessions"),
    ("innodb_row_lock_current_waits", "sessions waiting for row locks", "sessions"),
];

/// Settings that are read besides.
#[cfg(test)]
pub(in super::super) const VARIABLES: [&str; 4] =
    ["server_uuid", "server_uid", "hostname", "userstat"];

/// Whether a figure of the status is read.
#[cfg(test)]
pub(in super::super) fn is_read(name: &str) -> bool {
    const BESIDES: [&str; 9] = [
        "innodb_row_lock_waits",
        "innodb_row_lock_time",
        "threads_connected",
        "uptime_since_flush_status",
        "com_commit",
        "cpu_time",
        "busy_time",
        "innodb_redo_log_current_lsn",
        "innodb_redo_log_checkpoint_lsn",
    ];
    COUNTERS.iter().chain(&LEVELS).any(|(of, ..)| *of == name) || BESIDES.contains(&name)
}

/// Puts the answers where reports look for them.
pub(in super::super) fn fill(snapshot: &mut Snapshot, answers: &Answers, redaction: Redaction) {
    let number = |name: &str| answers.status.get(name).and_then(|value| value.parse::<u64>().ok());
    snapshot.missing.extend(answers.missing.iter().cloned());
    partial(snapshot, answers);
    identity(snapshot, answers);
    // FLUSH STATUS sets some of the counters to zero, and this clock with them.
    if let (Some(up), Some(since)) = (number("uptime"), number("uptime_since_flush_status")) {
        let flushed = up.saturating_sub(since);
        let shown =
            if flushed == 0 { String::new() } else { format!("{flushed} s after the start") };
        snapshot.resets.insert("the global status (FLUSH STATUS)".to_owned(), shown);
    }
    snapshot.sessions = number("threads_connected");
    for (theirs, ours, unit) in COUNTERS {
        count(snapshot, ours, unit, number(theirs));
    }
    for (theirs, ours, unit) in LEVELS {
        if let Some(value) = number(theirs) {
            snapshot.add_level(ours, unit, value);
        }
    }
    row_locks(snapshot, number("innodb_row_lock_waits"), number("innodb_row_lock_time"));
    redo_since_checkpoint(snapshot, answers);
    transactions(snapshot, answers);
    db_time(snapshot, answers);
    if !is_on(answers, "performance_schema") {
        let without = "DB time, waits, statements, reads and writes by file; performance_schema = \
                       ON in the server's configuration gives them";
        snapshot.missing.push(without.to_owned());
        return;
    }
    waits_and_files(snapshot, answers);
    statements(snapshot, answers, redaction);
}

/// Which rows there are depends on grants and settings, which may change between two snapshots. The
/// summaries of waits list what was waited for once, so where they were told, what they do not list
/// is zero.
fn partial(snapshot: &mut Snapshot, answers: &Answers) {
    snapshot.is_partial_in(&["counters"]);
    if !waits_are_measured(answers) {
        snapshot.is_partial_in(&["waits"]);
    }
    if !waits_are_measured(answers) || !answers.rows.contains_key("files") {
        snapshot.is_partial_in(&["waits", "io"]);
    }
    if !answers.statements_are_whole {
        snapshot.is_partial_in(&["statements"]);
    }
}

fn identity(snapshot: &mut Snapshot, answers: &Answers) {
    let variable = |name: &str| answers.variables.get(name).cloned();
    let mariadb = answers.version.to_lowercase().contains("mariadb");
    let source = &mut snapshot.source;
    source.product = if mariadb { "MariaDB" } else { "MySQL" }.to_owned();
    source.version.clone_from(&answers.version);
    source.database =
        variable("hostname").filter(|name| !name.is_empty()).unwrap_or_else(|| "mysql".to_owned());
    source.instance = instance(answers);
    for name in SETTINGS {
        if let Some(value) = variable(name) {
            source.settings.insert(name.to_owned(), value);
        }
    }
}

fn is_on(answers: &Answers, variable: &str) -> bool {
    answers.variables.get(variable).is_some_and(|value| value == "ON")
}

/// DB time by performance_schema, else by userstat, which alone has DB CPU.
fn db_time(snapshot: &mut Snapshot, answers: &Answers) {
    let seconds = |name: &str| {
        let value = answers.status.get(name).and_then(|value| value.parse::<f64>().ok());
        value.filter(|value| *value > 0.0)
    };
    let of_statements = rows(answers, "statement_time")
        .first()
        .filter(|_| statements_are_counted(answers))
        .and_then(|row| picoseconds(row, "ps"));
    if is_on(answers, "userstat") {
        snapshot.db_cpu_ns =
            seconds("cpu_time").and_then(|seconds| super::super::ms_to_ns(seconds * 1e3));
        snapshot.db_time_ns =
            seconds("busy_time").and_then(|seconds| super::super::ms_to_ns(seconds * 1e3));
    }
    if snapshot.db_time_ns.is_some() || of_statements.is_some() {
        // Two clocks: a difference from one to the other would be invented.
        let by = if of_statements.is_some() { "performance_schema" } else { "userstat" };
        snapshot.resets.insert(format!("DB time by {by}"), String::new());
    }
    if let Some(ns) = of_statements.filter(|_| is_on(answers, "performance_schema")) {
        snapshot.db_time_ns = Some(ns);
    }
}

/// Waits, and reads and writes by file, as far as they are measured; else what would measure them.
fn waits_and_files(snapshot: &mut Snapshot, answers: &Answers) {
    if waits_are_measured(answers) {
        waits(snapshot, answers);
        files(snapshot, answers);
        if answers.rows.contains_key("files") && !redo_is_timed(answers) {
            snapshot.missing.push(
                "the time of redo writes and syncs; this version's performance_schema has none"
                    .to_owned(),
            );
        }
    } else if answers.rows.contains_key("waits") && answers.rows.contains_key("consumers") {
        // Otherwise the user may not ask, and no setting would help.
        snapshot.missing.push(
            "waits; UPDATE performance_schema.setup_instruments SET enabled = 'YES', timed = 'YES' \
             WHERE name LIKE 'wait/%' gives them \
             until the server stops, performance_schema_instrument = 'wait/%=ON' from its next \
             start"
                .to_owned(),
        );
    }
}

/// What changes with every start of the server: its uuid, and when InnoDB began to count.
///
/// Now minus uptime would be off by a second from one snapshot to the next; the time of the oldest
/// metric stays the same.
fn instance(answers: &Answers) -> String {
    let of = |name: &str| answers.variables.get(name).cloned().filter(|value| !value.is_empty());
    let uid = of("server_uuid").or_else(|| of("server_uid")).unwrap_or_default();
    let started = rows(answers, "started").first().and_then(|row| number(row, "since"));
    match started {
        Some(seconds) => {
            format!(
                "{uid} started {}",
                crate::figure::instant(seconds.saturating_mul(1_000_000_000))
            )
        }
        None => uid,
    }
}

fn rows<'a>(answers: &'a Answers, view: &str) -> &'a [Fields] {
    answers.rows.get(view).map_or(&[], Vec::as_slice)
}

fn number(row: &Fields, field: &str) -> Option<u64> {
    let text = row.get(field)?;
    text.parse().ok().or_else(|| {
        text.parse::<f64>().ok().filter(|value| *value >= 0.0).map(|value| value as u64)
    })
}

/// Picoseconds in nanoseconds.
fn picoseconds(row: &Fields, field: &str) -> Option<u64> {
    number(row, field).map(|ps| ps / 1000)
}

fn consumers_are_on(answers: &Answers) -> bool {
    let consumers = rows(answers, "consumers");
    !consumers.is_empty()
        && consumers.iter().all(|row| row.get("enabled").is_some_and(|value| value == "YES"))
}

fn instruments(answers: &Answers, which: &str) -> bool {
    rows(answers, "instruments")
        .first()
        .and_then(|row| number(row, which))
        .is_some_and(|count| count > 0)
}

/// Whether the server times its waits.
pub(super) fn waits_are_measured(answers: &Answers) -> bool {
    consumers_are_on(answers) && instruments(answers, "files") && answers.rows.contains_key("waits")
}

/// Whether performance_schema has anything of the redo's files.
pub(super) fn redo_is_timed(answers: &Answers) -> bool {
    let of_redo =
        |row: &Fields| row.get("name").is_some_and(|name| name.ends_with("/innodb_log_file"));
    rows(answers, "files").iter().any(of_redo)
}

fn statements_are_counted(answers: &Answers) -> bool {
    consumers_are_on(answers) && instruments(answers, "statements")
}

/// Waits for row locks, which InnoDB times whatever performance_schema does.
fn row_locks(snapshot: &mut Snapshot, waits: Option<u64>, ms: Option<u64>) {
    let (Some(waits), Some(ms)) = (waits, ms) else { return };
    let help = "Row locks of InnoDB that another transaction held: Innodb_row_lock_waits and \
                Innodb_row_lock_time. \
                A wait is counted when it begins and timed when it ends.";
    let mut of = wait("row lock", WaitClass::Application, false, help);
    (of.count, of.total_ns) = (waits, ms.saturating_mul(1_000_000));
    snapshot.waits.push(of);
}

/// MySQL tells where its redo is and where the last checkpoint was; MariaDB tells the difference.
fn redo_since_checkpoint(snapshot: &mut Snapshot, answers: &Answers) {
    let of = |name: &str| answers.status.get(name).and_then(|value| value.parse::<u64>().ok());
    let (now, checkpoint) =
        (of("innodb_redo_log_current_lsn"), of("innodb_redo_log_checkpoint_lsn"));
    if let Some(age) = now.zip(checkpoint).and_then(|(now, checkpoint)| now.checked_sub(checkpoint))
    {
        snapshot.add_level("redo since the last checkpoint", "bytes", age);
    }
    let history = rows(answers, "metrics").iter().find(|row| is(row, "trx_rseg_history_len"));
    if let Some(length) = history.and_then(|row| number(row, "count"))
        && !answers.status.contains_key("innodb_history_list_length")
    {
        snapshot.add_level("transactions to purge", "transactions", length);
    }
}

fn is(row: &Fields, metric: &str) -> bool {
    row.get("name").is_some_and(|name| name == metric)
}

fn transactions(snapshot: &mut Snapshot, answers: &Answers) {
    let of_schema = rows(answers, "transactions")
        .first()
        .and_then(|row| number(row, "count"))
        .filter(|count| *count > 0);
    let metrics: Vec<&Fields> = ["trx_rw_commits", "trx_ro_commits", "trx_nl_ro_commits"]
        .iter()
        .filter_map(|metric| rows(answers, "metrics").iter().find(|row| is(row, metric)))
        .collect();
    let of_metrics =
        (metrics.len() == 3).then(|| metrics.iter().filter_map(|row| number(row, "count")).sum());
    let explicit = answers.status.get("com_commit").and_then(|value| value.parse().ok());
    // One of the three, and the same one as long as the server's settings stay: which one is said
    // with the counter.
    if let Some(all) = of_metrics {
        let help = "Transactions that InnoDB committed: trx_rw_commits, trx_ro_commits and \
                    trx_nl_ro_commits.";
        snapshot.add_counter_explained(statistic::USER_COMMITS, "transactions", all, help);
    } else {
        if let Some(explicit) = explicit {
            let help = "COMMIT statements; statements that commit by themselves are not counted.";
            snapshot.add_counter_explained(statistic::USER_COMMITS, "transactions", explicit, help);
        }
        // A user who may not ask for the metrics was told which grant gives them.
        if answers.rows.contains_key("metrics") {
            snapshot.missing.push(
                "commits of single statements (only COMMIT is counted); innodb_monitor_enable = \
             'trx_%' counts all"
                    .to_owned(),
            );
        }
    }
    count(snapshot, "transactions by performance_schema", "transactions", of_schema);
}

fn waits(snapshot: &mut Snapshot, answers: &Answers) {
    for row in rows(answers, "waits") {
        let Some(instrument) = row.get("name") else { continue };
        // Who writes and syncs redo in a session of a client commits.
        if instrument == "wait/io/file/innodb/innodb_log_file"
            && row.get("background").is_some_and(|is| is == "0")
        {
            let help = "Redo written and synced by sessions of clients: commits, as \
                        performance_schema times them. \
                        Commits that another one made durable wait elsewhere.";
            let mut of = wait("log file sync", WaitClass::Commit, false, help);
            (of.count, of.total_ns) =
                (number(row, "count").unwrap_or(0), picoseconds(row, "ps").unwrap_or(0));
            snapshot.waits.push(of);
        }
        // Files have more to say in their own summary.
        if instrument.starts_with("wait/io/file/") || instrument.starts_with("wait/io/table/") {
            continue;
        }
        let background = row.get("background").is_some_and(|value| value == "1");
        let class = if instrument == "idle" {
            WaitClass::Idle
        } else if instrument.starts_with("wait/synch/cond/") && background {
            // The server's threads wait on conditions for something to do.
            WaitClass::Idle
        } else if instrument.starts_with("wait/synch/") {
            WaitClass::Concurrency
        } else if instrument.starts_with("wait/lock/") {
            WaitClass::Application
        } else if instrument.starts_with("wait/io/socket/") {
            WaitClass::Network
        } else {
            WaitClass::Other
        };
        let mut of = wait(instrument, class, background, "An instrument of performance_schema.");
        (of.count, of.total_ns) =
            (number(row, "count").unwrap_or(0), picoseconds(row, "ps").unwrap_or(0));
        if !snapshot.waits.iter().any(|other| other.key() == of.key()) {
            snapshot.waits.push(of);
        }
    }
}

/// The files that were read most. A file that was closed for good is forgotten, and counted from
/// zero if it comes back.
fn tables(snapshot: &mut Snapshot, answers: &Answers) {
    snapshot.is_partial_in(&["files"]);
    for row in rows(answers, "tables").iter().take(MOST_FILES) {
        let Some(path) = row.get("name") else { continue };
        let mut parts: Vec<&str> = path.rsplit('/').take(2).collect();
        parts.reverse();
        if snapshot.files.iter().all(|file| file.id != *path) {
            snapshot.files.push(FileStat {
                id: path.clone(),
                name: parts.join("/"),
                bytes: None,
                read_bytes: number(row, "bytes").unwrap_or(0),
                read_ns: picoseconds(row, "ps"),
            });
        }
    }
}

fn files(snapshot: &mut Snapshot, answers: &Answers) {
    tables(snapshot, answers);
    for row in rows(answers, "files") {
        let Some(instrument) = row.get("name") else { continue };
        let name = instrument.rsplit('/').next().unwrap_or(instrument);
        let of = |field: &str| number(row, field).unwrap_or(0);
        let ns = |field: &str| picoseconds(row, field).unwrap_or(0);
        snapshot.add_io(IoStat {
            file_class: instrument.trim_start_matches("wait/io/file/").to_owned(),
            tier: "home".to_owned(),
            reads: of("count_read"),
            read_bytes: of("read_bytes"),
            read_ns: ns("read_ps"),
            writes: of("count_write"),
            write_bytes: of("write_bytes"),
            write_ns: ns("write_ps"),
            untimed: false,
        });
        let data = name == "innodb_data_file";
        let redo = name == "innodb_log_file";
        let names: [String; 3] = match (data, redo) {
            (true, _) => ["db file sequential read", "db file parallel write", "data file sync"]
                .map(str::to_owned),
            (_, true) => ["log file sequential read", "log file parallel write", "redo sync"]
                .map(str::to_owned),
            _ => [
                format!("{name} read"),
                format!("{name} write"),
                format!("{name} sync, open, close"),
            ],
        };
        let help = format!(
            "{instrument} of performance_schema; syncs are counted together with opens and closes."
        );
        let classes = match (data, redo, name) {
            (true, ..) => [
                (WaitClass::UserIo, false),
                (WaitClass::SystemIo, true),
                (WaitClass::SystemIo, true),
            ],
            (_, true, _) => [(WaitClass::SystemIo, true); 3],
            (.., "binlog") => [
                (WaitClass::SystemIo, true),
                (WaitClass::Commit, false),
                (WaitClass::Commit, false),
            ],
            _ => [(WaitClass::SystemIo, true); 3],
        };
        let parts = [
            (of("count_read"), ns("read_ps"), of("read_bytes")),
            (of("count_write"), ns("write_ps"), of("write_bytes")),
            (of("count_misc"), ns("misc_ps"), 0),
        ];
        for ((name, (class, background)), (requests, total_ns, bytes)) in
            names.iter().zip(classes).zip(parts)
        {
            let mut of = wait(name, class, background, &help);
            (of.count, of.total_ns, of.bytes) = (requests, total_ns, bytes);
            // Instruments of several kinds end in one name: their waits are added up.
            match snapshot.waits.iter_mut().find(|other| other.key() == of.key()) {
                Some(other) => {
                    other.count = other.count.saturating_add(of.count);
                    other.total_ns = other.total_ns.saturating_add(of.total_ns);
                    other.bytes = other.bytes.saturating_add(of.bytes);
                }
                None => snapshot.waits.push(of),
            }
        }
    }
}

fn statements(snapshot: &mut Snapshot, answers: &Answers, redaction: Redaction) {
    for row in rows(answers, "statements") {
        let field = |name: &str| row.get(name).cloned().unwrap_or_default();
        // Truncating the summary gives a statement another time of first sight: another statement.
        let id = format!("{}/{}/{}", field("db"), field("id"), field("since"));
        let statement = StatementStat {
            text: redaction.statement(&field("query")),
            calls: number(row, "count").unwrap_or(0),
            total_ns: picoseconds(row, "ps").unwrap_or(0),
            rows: number(row, "row_count").unwrap_or(0),
            id,
            ..StatementStat::default()
        };
        if !snapshot.statements.iter().any(|other| other.id == statement.id) {
            snapshot.statements.push(statement);
        }
    }
}

/// The class of a session's state; nothing for work.
pub(super) fn class_of_state(state: &str) -> Option<WaitClass> {
    let lower = state.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if has(&["commit", "binlog group"]) {
        Some(WaitClass::Commit)
    } else if has(&["lock"]) {
        Some(WaitClass::Application)
    } else if has(&["sending to client", "writing to net", "reading from net"]) {
        Some(WaitClass::Network)
    } else if has(&["waiting"]) {
        Some(WaitClass::Other)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pairs: &[(&str, &str)]) -> Fields {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn answers() -> Answers {
        let mut answers = Answers { version: "10.11.6-MariaDB".to_owned(), ..Answers::default() };
        answers.status = row(&[
            ("uptime", "100"),
            ("uptime_since_flush_status", "100"),
            ("com_commit", "7"),
            ("questions", "50"),
        ]);
        answers.variables =
            row(&[("performance_schema", "ON"), ("server_uid", "u"), ("hostname", "h")]);
        answers.rows.insert(
            "consumers",
            vec![row(&[("name", "global_instrumentation"), ("enabled", "YES")])],
        );
        answers.rows.insert("instruments", vec![row(&[("files", "5"), ("statements", "9")])]);
        answers.rows.insert("statement_time", vec![row(&[("count", "50"), ("ps", "5000000000")])]);
        answers.rows.insert(
            "waits",
            vec![
                row(&[
                    ("name", "wait/lock/table/sql/handler"),
                    ("background", "0"),
                    ("count", "3"),
                    ("ps", "9000"),
                ]),
                row(&[
                    ("name", "wait/io/table/sql/handler"),
                    ("background", "0"),
                    ("count", "3"),
                    ("ps", "9000"),
                ]),
                row(&[("name", "idle"), ("background", "0"), ("count", "3"), ("ps", "9000")]),
            ],
        );
        let file = [
            ("name", "wait/io/file/innodb/innodb_log_file"),
            ("count_write", "8"),
            ("write_ps", "8000000"),
        ];
        answers.rows.insert(
            "files",
            vec![row(&[&file[..], &[("count_misc", "4"), ("misc_ps", "40000000")]].concat())],
        );
        answers
    }

    fn filled(answers: &Answers) -> Snapshot {
        let mut snapshot = Snapshot::at(crate::Source::default(), 1_000_000_000_000_000_000, 1);
        fill(&mut snapshot, answers, Redaction::Literals);
        snapshot.check().expect("whole");
        snapshot
    }

    #[test]
    fn measured_waits_are_taken_and_wrapping_ones_left_out() {
        let snapshot = filled(&answers());
        assert_eq!(snapshot.db_time_ns, Some(5_000_000));
        let of = |name: &str| {
            snapshot
                .waits
                .iter()
                .find(|wait| wait.name == name)
                .map(|wait| (wait.class, wait.count, wait.total_ns))
        };
        assert_eq!(of("redo sync"), Some((WaitClass::SystemIo, 4, 40_000)));
        assert_eq!(of("wait/lock/table/sql/handler"), Some((WaitClass::Application, 3, 9)));
        assert_eq!(of("wait/io/table/sql/handler"), None, "it wraps the waits on files");
        assert_eq!(of("idle").map(|of| of.0), Some(WaitClass::Idle));
    }

    #[test]
    fn instruments_of_one_last_name_are_added_up_whatever_their_order() {
        let of = |name: &str, count: &str| {
            row(&[
                ("name", name),
                ("count_write", count),
                ("write_ps", "1000"),
                ("write_bytes", "10"),
            ])
        };
        let mut all = vec![of("wait/io/file/archive/FRM", "2"), of("wait/io/file/sql/FRM", "5")];
        for _ in 0..2 {
            let mut answers = answers();
            answers.rows.insert("files", all.clone());
            let snapshot = filled(&answers);
            let write = snapshot.waits.iter().find(|wait| wait.name == "FRM write").expect("there");
            assert_eq!((write.count, write.total_ns, write.bytes), (7, 2, 20));
            assert_eq!(snapshot.io.len(), 2, "by file they stay apart");
            all.reverse();
        }
    }

    #[test]
    fn without_performance_schema_there_are_counters_and_what_would_give_the_rest() {
        let mut answers = answers();
        answers.variables.insert("performance_schema".to_owned(), "OFF".to_owned());
        let snapshot = filled(&answers);
        assert!(snapshot.waits.is_empty() && snapshot.db_time_ns.is_none());
        assert!(
            snapshot.missing.iter().any(|line| line.contains("performance_schema = ON")),
            "{:?}",
            snapshot.missing
        );
        assert!(
            snapshot
                .counters
                .iter()
                .any(|counter| counter.name == "user calls" && counter.value == 50)
        );
        assert_eq!(class_of_state("Waiting for table metadata lock"), Some(WaitClass::Application));
        assert_eq!(class_of_state("Sending data"), None);
    }
}

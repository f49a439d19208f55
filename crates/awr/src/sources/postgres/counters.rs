//! What the rows of PostgreSQL's statistics views mean: rows in, a snapshot filled.
//!
//! | view | versions | into |
//! |---|---|---|
//! | pg_stat_database | all; DB time from 14 | transactions, pages, tuples, temporary files |
//! | pg_stat_bgwriter, pg_stat_checkpointer | all; 17 and later | checkpoints, pages written |
//! | pg_stat_wal | 14 and later; its times end with 17 | redo |
//! | pg_stat_io (`io.rs`) | 16 and later; redo from 18 | reads and writes by who and on what, their times |
//! | pg_stat_statements | where it is | statements |
//! | counts of relations | all | reads by table, scans and dead rows by table |
//!
//! `objects.rs` has databases, users, indexes and replication.
//!
//! pg_stat_database also has DB time (`active_time`) and the time of reads. Times are there only
//! while `track_io_timing` and `track_wal_io_timing` are on: a time that was not measured would be
//! a zero that looks measured, so the waits are left out then and the counts are kept as counters.
//!
//! Deliberately absent: queries, connections. Read next: `mod.rs`.

use std::collections::BTreeSet;

use serde_json::Value;
use tiersmith_events::WaitClass;

use super::super::{count, wait};
use super::fields::{milliseconds, number, rows, sum, text};
use super::{Answers, Row};
use crate::redact::Redaction;
use crate::snapshot::file::MOST_FILES;
use crate::snapshot::known::statistic;
use crate::snapshot::statement::StatementStat;
use crate::snapshot::tables::{MOST_TABLES, TableStat};
use crate::{FileStat, Snapshot};

/// Puts the answers where reports look for them.
pub(in super::super) fn fill(snapshot: &mut Snapshot, answers: &Answers, redaction: Redaction) {
    snapshot.missing.extend(answers.missing.iter().cloned());
    // Which rows there are depends on grants and settings, which may change between two snapshots.
    snapshot.is_partial_in(&["waits", "counters", "io"]);
    // Whose statements are hidden may be granted them between two snapshots: what was not there
    // before is not new then.
    if !answers.statements_are_whole || !sees_others(answers) {
        snapshot.is_partial_in(&["statements"]);
    }
    identity(snapshot, answers);
    let on = |name: &str| snapshot.source.settings.get(name).is_some_and(|value| value == "on");
    let (io_timed, redo_timed) = (on("track_io_timing"), on("track_wal_io_timing"));
    if !io_timed {
        snapshot
            .missing
            .push("the time of reads and writes of data; track_io_timing = on gives it".to_owned());
    }
    if !redo_timed && answers.version >= 140_000 {
        snapshot.missing.push(
            "the time of redo writes and syncs; track_wal_io_timing = on gives it".to_owned(),
        );
    }
    if answers.version < 140_000 {
        snapshot.missing.push("DB time; PostgreSQL 14 and later count it".to_owned());
    }
    databases(snapshot, answers, io_timed);
    checkpoints(snapshot, answers);
    redo(snapshot, answers, redo_timed);
    super::io::fill(snapshot, answers, io_timed, redo_timed);
    statements(snapshot, answers, redaction);
    relations(snapshot, answers);
    tables(snapshot, answers);
    super::objects::fill(snapshot, answers);
}

/// Whether the user may see what other users do; a server that does not say is taken to have hidden
/// nothing.
fn sees_others(answers: &Answers) -> bool {
    rows(answers, "identity").first().and_then(|row| row.get("superuser"))
        != Some(&Value::Bool(false))
}

fn identity(snapshot: &mut Snapshot, answers: &Answers) {
    let empty = Row::new();
    let identity = rows(answers, "identity").first().unwrap_or(&empty);
    let system = rows(answers, "system").first().map_or(String::new(), |row| text(row, "id"));
    let source = &mut snapshot.source;
    source.product = "PostgreSQL".to_owned();
    source.version = text(identity, "version");
    source.database = text(identity, "database");
    source.instance = format!("{system} started {}", text(identity, "started")).trim().to_owned();
    for row in rows(answers, "settings") {
        source.settings.insert(text(row, "name"), text(row, "value"));
    }
    snapshot.sessions = number(identity, "sessions");
    if !sees_others(answers) {
        let without = "what other users' sessions and statements do; \
                       GRANT pg_monitor TO the user gives it";
        snapshot.missing.push(without.to_owned());
    }
}

fn databases(snapshot: &mut Snapshot, answers: &Answers, io_timed: bool) {
    let all: Vec<&Row> = rows(answers, "database").iter().collect();
    for row in &all {
        let name = text(row, "datname");
        // A database that was made anew under the name of another has counted nothing of what that
        // one had.
        let group = match (name.is_empty(), number(row, "datid")) {
            (true, _) => "shared objects".to_owned(),
            (false, Some(id)) => format!("database {name} ({id})"),
            (false, None) => format!("database {name}"),
        };
        snapshot.resets.insert(group, text(row, "stats_reset"));
    }
    for (field, name, unit) in [
        ("xact_commit", statistic::USER_COMMITS, "transactions"),
        ("xact_rollback", statistic::USER_ROLLBACKS, "transactions"),
        ("blks_read", statistic::PHYSICAL_READS, "pages"),
        ("tup_returned", "rows read", "rows"),
        ("tup_fetched", "rows fetched by index", "rows"),
        ("tup_inserted", "rows inserted", "rows"),
        ("tup_updated", "rows updated", "rows"),
        ("tup_deleted", "rows deleted", "rows"),
        ("temp_files", "temporary files", "files"),
        ("temp_bytes", "temporary files, size", "bytes"),
        ("deadlocks", "deadlocks", "deadlocks"),
        ("conflicts", "queries cancelled by recovery", "queries"),
        ("checksum_failures", "pages with a wrong checksum", "pages"),
        ("sessions", statistic::LOGONS, "connections"),
        ("sessions_fatal", "sessions ended by errors", "connections"),
        ("sessions_abandoned", "sessions lost", "connections"),
    ] {
        count(snapshot, name, unit, sum(&all, |row| number(row, field)));
    }
    let logical =
        sum(&all, |row| Some(number(row, "blks_hit")?.saturating_add(number(row, "blks_read")?)));
    count(snapshot, statistic::LOGICAL_READS, "pages", logical);
    snapshot.db_time_ns = sum(&all, |row| milliseconds(row, "active_time"));
    // From 16 on, pg_stat_io tells who read; below, all reads are taken for reads of requests.
    if io_timed && answers.version < 160_000 {
        let help = "Pages read that were not in shared_buffers, from the page cache or the disk: \
                    blks_read and blk_read_time of pg_stat_database.";
        let mut read = wait("db file sequential read", WaitClass::UserIo, false, help);
        read.count = sum(&all, |row| number(row, "blks_read")).unwrap_or(0);
        read.total_ns = sum(&all, |row| milliseconds(row, "blk_read_time")).unwrap_or(0);
        snapshot.waits.push(read);
    }
}

fn checkpoints(snapshot: &mut Snapshot, answers: &Answers) {
    let empty = Row::new();
    let writer = rows(answers, "bgwriter").first().unwrap_or(&empty);
    let checkpointer = rows(answers, "checkpointer").first();
    for (group, row) in [("pg_stat_bgwriter", Some(writer)), ("pg_stat_checkpointer", checkpointer)]
    {
        if let Some(row) = row.filter(|row| row.contains_key("stats_reset")) {
            snapshot.resets.insert(group.to_owned(), text(row, "stats_reset"));
        }
    }
    let either = |old: &str, new: &str| match checkpointer {
        Some(row) => number(row, new),
        None => number(writer, old),
    };
    let by_checkpoints = either("buffers_checkpoint", "buffers_written");
    count(snapshot, "checkpoints by time", "checkpoints", either("checkpoints_timed", "num_timed"));
    count(
        snapshot,
        "checkpoints on demand",
        "checkpoints",
        either("checkpoints_req", "num_requested"),
    );
    count(snapshot, "pages written by checkpoints", "pages", by_checkpoints);
    count(
        snapshot,
        "pages written by the background writer",
        "pages",
        number(writer, "buffers_clean"),
    );
    count(
        snapshot,
        "background writer stopped at its limit",
        "times",
        number(writer, "maxwritten_clean"),
    );
    count(snapshot, "pages allocated in shared_buffers", "pages", number(writer, "buffers_alloc"));
    let by_backends = written_by_backends(snapshot, answers, writer);
    count(snapshot, "pages written by backends", "pages", by_backends);
    count(
        snapshot,
        "syncs of data files by backends",
        "syncs",
        number(writer, "buffers_backend_fsync"),
    );
    let written = by_checkpoints.zip(number(writer, "buffers_clean")).zip(by_backends);
    let written = written.map(|((a, b), c)| a.saturating_add(b).saturating_add(c));
    count(snapshot, statistic::PHYSICAL_WRITES, "pages", written);
    let sync_ns = match checkpointer {
        Some(row) => milliseconds(row, "sync_time"),
        None => milliseconds(writer, "checkpoint_sync_time"),
    };
    // 18 tells those that were made from those that were due and had nothing to do.
    let done = checkpointer.and_then(|row| number(row, "num_done"));
    count(snapshot, "checkpoints completed", "checkpoints", done);
    if let Some(total_ns) = sync_ns {
        let timed = either("checkpoints_timed", "num_timed").unwrap_or(0);
        let begun = timed.saturating_add(either("checkpoints_req", "num_requested").unwrap_or(0));
        let mut sync = wait(
            "checkpoint sync",
            WaitClass::SystemIo,
            true,
            "Data files synced at the end of checkpoints. Counted once per checkpoint.",
        );
        sync.count = done.unwrap_or(begun);
        sync.total_ns = total_ns;
        snapshot.waits.push(sync);
    }
}

/// Pages that neither the checkpointer nor the background writer wrote. `writer` is the row of
/// pg_stat_bgwriter, which lacks them from 17 on; pg_stat_io has them then.
fn written_by_backends(snapshot: &Snapshot, answers: &Answers, writer: &Row) -> Option<u64> {
    number(writer, "buffers_backend").or_else(|| {
        let others = rows(answers, "io").iter().filter(|row| {
            let who = text(row, "backend_type");
            text(row, "object") == "relation" && who != "checkpointer" && who != "background writer"
        });
        let page = page_bytes(snapshot);
        sum(&others.collect::<Vec<_>>(), |row| {
            // From 18 on, one write may be of many pages and is counted once; its bytes are told.
            let pages = |requests: &str, bytes: &str| {
                number(row, bytes).map(|bytes| bytes / page).or_else(|| number(row, requests))
            };
            let extended = pages("extends", "extend_bytes").unwrap_or(0);
            Some(pages("writes", "write_bytes")?.saturating_add(extended))
        })
    })
}

fn redo(snapshot: &mut Snapshot, answers: &Answers, timed: bool) {
    let Some(row) = rows(answers, "wal").first() else {
        let inserted = rows(answers, "identity").first().and_then(|row| number(row, "redo"));
        if let Some(inserted) = inserted {
            let help = "Where the next redo is inserted: bytes since the cluster was made.";
            snapshot.add_counter_explained(statistic::REDO_SIZE, "bytes", inserted, help);
        }
        return;
    };
    snapshot.resets.insert("pg_stat_wal".to_owned(), text(row, "stats_reset"));
    for (field, name, unit) in [
        ("wal_bytes", statistic::REDO_SIZE, "bytes"),
        ("wal_records", "redo entries", "records"),
        ("wal_fpi", "full page images in redo", "pages"),
        ("wal_buffers_full", "redo buffers written because they were full", "times"),
        ("wal_write", "redo writes", "writes"),
        ("wal_sync", "redo syncs", "syncs"),
    ] {
        count(snapshot, name, unit, number(row, field));
    }
    // From 18 on, pg_stat_io has these two, and those that make a new file for redo apart, which
    // were never counted here.
    for (old, new, name, unit) in [
        ("wal_write", "writes", "redo writes", "writes"),
        ("wal_sync", "fsyncs", "redo syncs", "syncs"),
    ] {
        if !row.contains_key(old) {
            let of_redo = rows(answers, "io").iter();
            let of_redo: Vec<&Row> = of_redo
                .filter(|row| text(row, "object") == "wal" && text(row, "context") != "init")
                .collect();
            if let Some(requests) = sum(&of_redo, |row| number(row, new)) {
                let help = "Requests of pg_stat_io for redo, \
                            without those that make a new file for it.";
                snapshot.add_counter_explained(name, unit, requests, help);
            }
        }
    }
    if timed {
        for (name, requests, time, help) in [
            (
                "log file parallel write",
                "wal_write",
                "wal_write_time",
                "Redo written to its files, by whoever did it: wal_write of pg_stat_wal. \
                 A commit that writes its redo itself waits for this.",
            ),
            (
                "redo sync",
                "wal_sync",
                "wal_sync_time",
                "Redo made durable, by whoever did it: wal_sync of pg_stat_wal. \
                 A commit that syncs its redo itself waits for this.",
            ),
        ] {
            if let (Some(requests), Some(total_ns)) =
                (number(row, requests), milliseconds(row, time))
            {
                let mut wait = wait(name, WaitClass::SystemIo, true, help);
                (wait.count, wait.total_ns) = (requests, total_ns);
                snapshot.waits.push(wait);
            }
        }
    }
}

/// The tables and indexes of the database we are connected to that were read most.
fn relations(snapshot: &mut Snapshot, answers: &Answers) {
    let page = page_bytes(snapshot);
    let all = rows(answers, "relations");
    if all.len() >= MOST_FILES {
        snapshot.is_partial_in(&["files"]);
    }
    for row in all.iter().take(MOST_FILES) {
        let (id, Some(read)) = (text(row, "oid"), number(row, "read")) else { continue };
        if snapshot.files.iter().all(|file| file.id != id) {
            snapshot.files.push(FileStat {
                id,
                name: text(row, "name"),
                // Nobody looked at its size yet where it is zero.
                bytes: number(row, "pages")
                    .filter(|pages| *pages > 0)
                    .map(|pages| pages.saturating_mul(page)),
                read_bytes: read.saturating_mul(page),
                read_ns: None,
            });
        }
    }
}

/// The tables of the database we are connected to that were scanned most or hold most dead rows.
fn tables(snapshot: &mut Snapshot, answers: &Answers) {
    let all = rows(answers, "tables");
    if all.len() >= MOST_TABLES {
        snapshot.is_partial_in(&["tables"]);
    }
    for row in all.iter().take(MOST_TABLES) {
        let of = |field: &str| number(row, field).unwrap_or(0);
        let (id, Some(scans)) = (text(row, "oid"), number(row, "scans")) else { continue };
        if snapshot.tables.iter().all(|table| table.id != id) {
            snapshot.tables.push(TableStat {
                id,
                name: text(row, "name"),
                bytes: number(row, "pages")
                    .filter(|pages| *pages > 0)
                    .map(|pages| pages.saturating_mul(page_bytes(snapshot))),
                rows: of("live"),
                dead_rows: of("dead"),
                scans,
                scanned_rows: of("scanned"),
                index_scans: of("by_index"),
                changed_rows: of("changed"),
                vacuums: of("vacuums"),
                autovacuums: number(row, "autovacuums"),
                analyzes: number(row, "analyzes"),
                updated_rows: number(row, "updated"),
                hot_rows: number(row, "hot"),
                vacuumed_unix_s: number(row, "vacuumed"),
            });
        }
    }
}

/// The size of a page, as the server says it; else what nearly every server has.
pub(super) fn page_bytes(snapshot: &Snapshot) -> u64 {
    let page = snapshot.source.settings.get("block_size").and_then(|size| size.parse::<u64>().ok());
    page.filter(|bytes| *bytes > 0).unwrap_or(8192)
}

fn statements(snapshot: &mut Snapshot, answers: &Answers, redaction: Redaction) {
    let reset = rows(answers, "statements_info")
        .first()
        .map_or(String::new(), |row| text(row, "stats_reset"));
    let mut seen = BTreeSet::new();
    for row in rows(answers, "statements") {
        let (Some(calls), Some(total_ns)) =
            (number(row, "calls"), milliseconds(row, "total_exec_time"))
        else {
            continue;
        };
        // Without its number one hidden statement cannot be told from another, and two would be
        // subtracted from each other.
        if row.get("queryid").is_none_or(Value::is_null) {
            continue;
        }
        // A statement that was forgotten and counted anew is another one: its counts began at zero.
        let parts =
            ["queryid", "userid", "dbid", "toplevel", "stats_since"].map(|field| text(row, field));
        let id = format!("{}/{reset}", parts.join("/"));
        let query = text(row, "query");
        let hidden = query == "<insufficient privilege>";
        let statement = StatementStat {
            text: if hidden { String::new() } else { redaction.statement(&query) },
            calls,
            total_ns,
            rows: number(row, "rows").unwrap_or(0),
            pages_hit: number(row, "shared_blks_hit"),
            pages_read: number(row, "shared_blks_read"),
            redo_bytes: number(row, "wal_bytes"),
            temp_bytes: number(row, "temp_blks_written")
                .map(|pages| pages.saturating_mul(page_bytes(snapshot))),
            id,
        };
        if seen.insert(statement.id.clone()) {
            snapshot.statements.push(statement);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::snapshot::known;

    fn answers(version: u64, views: &[(&'static str, Value)]) -> Answers {
        let mut answers = Answers { version, ..Answers::default() };
        let settings = json!([{"name": "track_io_timing", "value": "on"},
                              {"name": "track_wal_io_timing", "value": "on"}]);
        let identity = json!([{"started": "2026-01-01", "database": "d", "version": "x",
                               "sessions": 3, "redo": "5000", "superuser": true}]);
        let database = json!([
            {"datname": null, "xact_commit": 0, "blks_read": 1, "blks_hit": 9,
             "stats_reset": null, "blk_read_time": 0},
            {"datname": "d", "xact_commit": 70, "xact_rollback": 2, "blks_read": 10,
             "blks_hit": 80, "stats_reset": "t0", "blk_read_time": 1.5, "active_time": 2000.0}
        ]);
        for (name, rows) in [("settings", settings), ("identity", identity), ("database", database)]
            .iter()
            .chain(views)
        {
            let rows = rows
                .as_array()
                .expect("a list")
                .iter()
                .map(|row| row.as_object().expect("a row").clone());
            answers.rows.insert(name, rows.collect());
        }
        answers
    }

    fn filled(answers: &Answers) -> Snapshot {
        let mut snapshot = Snapshot::at(crate::Source::default(), 1, 1);
        fill(&mut snapshot, answers, Redaction::Literals);
        snapshot.check().expect("whole");
        snapshot
    }

    fn value(snapshot: &Snapshot, name: &str) -> Option<u64> {
        snapshot.counters.iter().find(|counter| counter.name == name).map(|counter| counter.value)
    }

    #[test]
    fn version_13_has_redo_by_position_and_says_that_db_time_is_missing() {
        let bgwriter = json!([{"checkpoints_timed": 4, "checkpoints_req": 1,
                               "buffers_checkpoint": 100, "buffers_clean": 10,
                               "buffers_backend": 5, "checkpoint_sync_time": 12.5,
                               "stats_reset": "t1"}]);
        let mut of_13 = answers(130_000, &[("bgwriter", bgwriter)]);
        for row in of_13.rows.get_mut("database").expect("there") {
            row.remove("active_time");
        }
        let snapshot = filled(&of_13);
        assert_eq!((snapshot.db_time_ns, value(&snapshot, "redo size")), (None, Some(5000)));
        assert!(snapshot.missing.iter().any(|line| line.contains("DB time")));
        assert_eq!(
            (value(&snapshot, "user commits"), value(&snapshot, "physical writes")),
            (Some(70), Some(115))
        );
        assert_eq!(value(&snapshot, "session logical reads"), Some(100));
    }

    #[test]
    fn versions_14_to_17_time_redo_for_everybody_together() {
        let wal = json!([{"wal_bytes": 5190827, "wal_fpi": 490, "wal_write": 7, "wal_sync": 3,
                          "wal_write_time": 0.5, "wal_sync_time": 6.0, "stats_reset": "t2"}]);
        let snapshot = filled(&answers(150_000, &[("wal", wal)]));
        let sync = snapshot.waits.iter().find(|wait| wait.name == "redo sync").expect("there");
        assert_eq!((sync.count, sync.total_ns, sync.background), (3, 6_000_000, true));
        assert_eq!(snapshot.db_time_ns, Some(2_000_000_000));
        let read = snapshot
            .waits
            .iter()
            .find(|wait| wait.name == "db file sequential read")
            .expect("there");
        assert_eq!((read.count, read.total_ns, read.background), (11, 1_500_000, false));
    }

    #[test]
    fn version_18_tells_the_redo_of_requests_from_that_of_the_background() {
        let io = json!([
            {"backend_type": "client backend", "object": "wal", "context": "normal", "writes": 10,
             "write_bytes": 81920, "write_time": 1.0, "fsyncs": 10, "fsync_time": 20.0,
             "reads": 0, "read_bytes": 0, "read_time": 0.0, "stats_reset": "t3"},
            {"backend_type": "walwriter", "object": "wal", "context": "normal", "writes": 4,
             "write_bytes": 32768, "write_time": 0.5, "fsyncs": 4, "fsync_time": 4.0,
             "stats_reset": "t3"},
            {"backend_type": "client backend", "object": "relation", "context": "normal",
             "reads": 6, "read_bytes": 98304, "read_time": 3.0, "writes": 0, "extends": 2,
             "extend_bytes": 16384, "extend_time": 0.1, "stats_reset": "t3"},
            {"backend_type": "checkpointer", "object": "relation", "context": "normal",
             "writes": 50, "write_bytes": 409600, "write_time": 9.0, "fsyncs": 3,
             "fsync_time": 30.0, "stats_reset": "t3"}
        ]);
        let checkpointer = json!([{"num_timed": 1, "num_requested": 2, "buffers_written": 50,
                                   "sync_time": 30.0, "stats_reset": "t4"}]);
        let bgwriter = json!([{"buffers_clean": 7, "buffers_alloc": 100, "stats_reset": "t1"}]);
        let wal = json!([{"wal_bytes": "123", "wal_fpi": 1, "stats_reset": "t2"}]);
        let views =
            [("io", io), ("checkpointer", checkpointer), ("bgwriter", bgwriter), ("wal", wal)];
        let snapshot = filled(&answers(180_000, &views));
        let of = |name: &str, background: bool| {
            let found = snapshot
                .waits
                .iter()
                .find(|wait| wait.name == name && wait.background == background);
            found.map(|wait| (wait.class, wait.count, wait.total_ns))
        };
        assert_eq!(of("redo sync", false), Some((WaitClass::Commit, 10, 20_000_000)));
        assert_eq!(of("redo sync", true), Some((WaitClass::SystemIo, 4, 4_000_000)));
        assert_eq!(of("db file sequential read", false), Some((WaitClass::UserIo, 6, 3_000_000)));
        assert_eq!(of("db file parallel write", true), Some((WaitClass::SystemIo, 50, 9_000_000)));
        assert_eq!(
            of("data file write", false),
            Some((WaitClass::UserIo, 0, 0)),
            "nothing but growth"
        );
        assert_eq!(of("data file extend", false), Some((WaitClass::UserIo, 2, 100_000)));
        assert_eq!(of("data file extend", true), None, "a checkpointer makes no file longer");
        assert_eq!(value(&snapshot, "physical writes"), Some(50 + 7 + 2));
        assert_eq!(value(&snapshot, "checkpoints on demand"), Some(2));
        let io = snapshot
            .io
            .iter()
            .find(|io| io.file_class == "relation, normal, client backend")
            .expect("there");
        assert_eq!((io.reads, io.read_bytes, io.writes, io.write_bytes), (6, 98_304, 2, 16_384));
    }

    #[test]
    fn without_timing_no_time_is_printed_as_if_it_was_measured() {
        let wal = json!([{"wal_bytes": 1, "wal_write": 7, "wal_sync": 3, "wal_write_time": 0,
                          "wal_sync_time": 0}]);
        let mut untimed = answers(150_000, &[("wal", wal)]);
        for row in untimed.rows.get_mut("settings").expect("there") {
            row.insert("value".to_owned(), json!("off"));
        }
        let snapshot = filled(&untimed);
        assert!(snapshot.waits.is_empty(), "{:?}", snapshot.waits);
        assert_eq!(value(&snapshot, "redo syncs"), Some(3));
        assert!(snapshot.missing.iter().any(|line| line.contains("track_wal_io_timing = on")));
    }

    #[test]
    fn statements_that_the_user_may_not_tell_apart_are_left_out() {
        let hidden = |calls: u64| {
            json!({"queryid": null, "userid": 10, "dbid": 5, "calls": calls,
                   "total_exec_time": 9.5, "rows": 2, "query": "<insufficient privilege>"})
        };
        let own = json!({"queryid": 7, "userid": 11, "dbid": 5, "calls": 3,
                         "total_exec_time": 1.5, "query": "select 1"});
        let snapshot =
            filled(&answers(150_000, &[("statements", json!([hidden(100), hidden(5), own]))]));
        let [statement] = &snapshot.statements[..] else { panic!("{:?}", snapshot.statements) };
        assert_eq!((statement.calls, statement.text.as_str()), (3, "select ?"));
    }

    #[test]
    fn new_files_for_redo_are_not_writes_of_redo() {
        let io = |context: &str, writes: u64| {
            json!({"backend_type": "client backend", "object": "wal", "context": context,
                   "writes": writes, "write_time": 1.0, "fsyncs": 1, "fsync_time": 2.0})
        };
        let views =
            [("wal", json!([{"wal_bytes": 1}])), ("io", json!([io("normal", 10), io("init", 3)]))];
        let snapshot = filled(&answers(180_000, &views));
        assert_eq!(
            (value(&snapshot, "redo writes"), value(&snapshot, "redo syncs")),
            (Some(10), Some(1))
        );
        let wait = |name: &str| {
            snapshot.waits.iter().find(|wait| wait.name == name).map(|wait| wait.count)
        };
        assert_eq!((wait("log file parallel write"), wait("redo sync")), (Some(10), Some(1)));
        assert_eq!((wait("log file init write"), wait("log file init sync")), (Some(3), Some(1)));
    }

    #[test]
    fn growth_of_files_and_a_clients_vacuum_are_not_writes_for_want_of_a_clean_page() {
        let io = |context: &str, writes: u64, extends: u64| {
            json!({"backend_type": "client backend", "object": "relation", "context": context,
                   "writes": writes, "write_time": 1.0, "extends": extends, "extend_time": 5.0,
                   "fsyncs": 0, "fsync_time": 0.0})
        };
        let views = [(
            "io",
            json!([io("normal", 3, 20_000), io("vacuum", 700, 0), io("bulkwrite", 40, 9)]),
        )];
        let snapshot = filled(&answers(170_000, &views));
        let of = |name: &str| {
            let found = snapshot.waits.iter().find(|wait| wait.name == name).expect("there");
            (found.count, found.total_ns)
        };
        assert_eq!(of("data file write"), (3, 1_000_000));
        assert_eq!(of("direct path write"), (740, 2_000_000));
        assert_eq!(of("data file extend"), (20_009, 15_000_000));
        let write =
            snapshot.waits.iter().find(|wait| wait.name == "data file write").expect("there");
        assert!(write.help != known::WITH_EXTENDS, "another count has another help");
    }

    #[test]
    fn a_statement_counted_anew_is_another_statement() {
        let row = |since: &str| {
            json!([{"queryid": -5, "userid": 10, "dbid": 5, "calls": 2, "total_exec_time": 1.5,
                    "rows": 2, "shared_blks_hit": 4,
                    "query": "select * from t where a = 'secret'", "stats_since": since}])
        };
        let (a, b) = (
            filled(&answers(170_000, &[("statements", row("t1"))])),
            filled(&answers(170_000, &[("statements", row("t2"))])),
        );
        assert_ne!(a.statements[0].id, b.statements[0].id);
        assert_eq!(a.statements[0].text, "select * from t where a = ?");
        assert_eq!(
            (a.statements[0].total_ns, a.statements[0].pages_hit, a.statements[0].redo_bytes),
            (1_500_000, Some(4), None)
        );
    }
}

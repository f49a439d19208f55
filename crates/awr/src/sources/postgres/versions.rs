//! Which columns each version's views have, as its manual lists them, and what must come of them.
//!
//! Source: The Cumulative Statistics System (The Statistics Collector up to 14) and
//! pg_stat_statements in the manuals of PostgreSQL 13 to 18. Only the columns that matter here are
//! listed; what a version does not list it does not have.
//!
//! Deliberately absent: what real servers of these versions answered, which is in `../recorded.rs`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::counters;
use super::views::VIEWS;
use super::{Answers, Row, statements_query};
use crate::Snapshot;
use crate::redact::Redaction;

const VERSIONS: [u64; 6] = [13, 14, 15, 16, 17, 18];

/// View, column, first version, last version.
const COLUMNS: &[(&str, &str, u64, u64)] = &[
    ("database", "datname", 13, 18),
    ("database", "xact_commit", 13, 18),
    ("database", "xact_rollback", 13, 18),
    ("database", "blks_read", 13, 18),
    ("database", "blks_hit", 13, 18),
    ("database", "tup_returned", 13, 18),
    ("database", "tup_fetched", 13, 18),
    ("database", "tup_inserted", 13, 18),
    ("database", "tup_updated", 13, 18),
    ("database", "tup_deleted", 13, 18),
    ("database", "conflicts", 13, 18),
    ("database", "temp_files", 13, 18),
    ("database", "temp_bytes", 13, 18),
    ("database", "deadlocks", 13, 18),
    ("database", "checksum_failures", 13, 18),
    ("database", "blk_read_time", 13, 18),
    ("database", "blk_write_time", 13, 18),
    ("database", "session_time", 14, 18),
    ("database", "active_time", 14, 18),
    ("database", "idle_in_transaction_time", 14, 18),
    ("database", "sessions", 14, 18),
    ("database", "sessions_abandoned", 14, 18),
    ("database", "sessions_fatal", 14, 18),
    ("database", "parallel_workers_launched", 18, 18),
    ("database", "stats_reset", 13, 18),
    ("bgwriter", "checkpoints_timed", 13, 16),
    ("bgwriter", "checkpoints_req", 13, 16),
    ("bgwriter", "checkpoint_write_time", 13, 16),
    ("bgwriter", "checkpoint_sync_time", 13, 16),
    ("bgwriter", "buffers_checkpoint", 13, 16),
    ("bgwriter", "buffers_clean", 13, 18),
    ("bgwriter", "maxwritten_clean", 13, 18),
    ("bgwriter", "buffers_backend", 13, 16),
    ("bgwriter", "buffers_backend_fsync", 13, 16),
    ("bgwriter", "buffers_alloc", 13, 18),
    ("bgwriter", "stats_reset", 13, 18),
    ("checkpointer", "num_timed", 17, 18),
    ("checkpointer", "num_requested", 17, 18),
    ("checkpointer", "num_done", 18, 18),
    ("checkpointer", "write_time", 17, 18),
    ("checkpointer", "sync_time", 17, 18),
    ("checkpointer", "buffers_written", 17, 18),
    ("checkpointer", "slru_written", 18, 18),
    ("checkpointer", "stats_reset", 17, 18),
    ("wal", "wal_records", 14, 18),
    ("wal", "wal_fpi", 14, 18),
    ("wal", "wal_bytes", 14, 18),
    ("wal", "wal_buffers_full", 14, 18),
    ("wal", "wal_write", 14, 17),
    ("wal", "wal_sync", 14, 17),
    ("wal", "wal_write_time", 14, 17),
    ("wal", "wal_sync_time", 14, 17),
    ("wal", "stats_reset", 14, 18),
    ("io", "backend_type", 16, 18),
    ("io", "object", 16, 18),
    ("io", "context", 16, 18),
    ("io", "reads", 16, 18),
    ("io", "read_bytes", 18, 18),
    ("io", "read_time", 16, 18),
    ("io", "writes", 16, 18),
    ("io", "write_bytes", 18, 18),
    ("io", "write_time", 16, 18),
    ("io", "writebacks", 16, 18),
    ("io", "extends", 16, 18),
    ("io", "extend_bytes", 18, 18),
    ("io", "extend_time", 16, 18),
    ("io", "op_bytes", 16, 17),
    ("io", "hits", 16, 18),
    ("io", "fsyncs", 16, 18),
    ("io", "fsync_time", 16, 18),
    ("io", "stats_reset", 16, 18),
    ("statements", "userid", 13, 18),
    ("statements", "dbid", 13, 18),
    ("statements", "toplevel", 14, 18),
    ("statements", "queryid", 13, 18),
    ("statements", "query", 13, 18),
    ("statements", "calls", 13, 18),
    ("statements", "total_exec_time", 13, 18),
    ("statements", "rows", 13, 18),
    ("statements", "shared_blks_hit", 13, 18),
    ("statements", "shared_blks_read", 13, 18),
    ("statements", "wal_bytes", 13, 18),
    ("statements", "stats_since", 17, 18),
];

/// A row with every column that the version's manual lists: text where it is text, twice its place
/// in the list elsewhere.
fn row(view: &str, version: u64) -> Option<Row> {
    let columns = COLUMNS
        .iter()
        .enumerate()
        .filter(|(_, (of, _, since, until))| *of == view && (*since..=*until).contains(&version));
    let row: Row = columns
        .map(|(place, (_, column, ..))| {
            let value = match *column {
                "datname" => json!("d"),
                "query" => json!("select ?"),
                "stats_reset" | "stats_since" => json!("2026-01-01"),
                "backend_type" => json!("client backend"),
                "object" => json!("relation"),
                "context" => json!("normal"),
                "op_bytes" => json!(8192),
                "read_bytes" | "write_bytes" | "extend_bytes" => json!(2 * place * 8192),
                _ => json!(2 * place),
            };
            ((*column).to_owned(), value)
        })
        .collect();
    (!row.is_empty()).then_some(row)
}

fn snapshot(version: u64) -> Snapshot {
    let mut answers =
        Answers { version: version * 10_000, statements_are_whole: true, ..Answers::default() };
    for view in ["database", "bgwriter", "checkpointer", "wal", "io", "statements"] {
        answers.rows.extend(row(view, version).map(|row| (view, vec![row])));
    }
    if version >= 18 {
        let mut redo = row("io", version).expect("a row");
        redo.insert("object".to_owned(), json!("wal"));
        answers.rows.get_mut("io").expect("there").push(redo);
    }
    let identity = json!({"started": "2026-01-01", "database": "d", "redo": "77",
    "superuser": true, "sessions": 1});
    let settings =
        ["track_io_timing", "track_wal_io_timing"].map(|name| json!({"name": name, "value": "on"}));
    for (view, rows) in [("identity", vec![identity]), ("settings", settings.to_vec())] {
        let rows = rows.iter().filter_map(Value::as_object).cloned().collect();
        answers.rows.insert(view, rows);
    }
    let mut snapshot = Snapshot::at(crate::Source::default(), 1, 1);
    counters::fill(&mut snapshot, &answers, Redaction::Literals);
    snapshot.check().expect("whole");
    snapshot
}

#[test]
fn every_version_gives_the_figures_that_reports_calculate_with() {
    for version in VERSIONS {
        let snapshot = snapshot(version);
        let counters: BTreeMap<&str, u64> = snapshot
            .counters
            .iter()
            .map(|counter| (counter.name.as_str(), counter.value))
            .collect();
        for name in [
            "user commits",
            "user rollbacks",
            "session logical reads",
            "physical reads",
            "physical writes",
            "redo size",
            "checkpoints by time",
            "checkpoints on demand",
            "pages written by checkpoints",
            "pages written by the background writer",
            "pages written by backends",
            "rows inserted",
            "temporary files, size",
        ] {
            assert!(
                counters.get(name).is_some_and(|value| *value > 0),
                "{version}: {name} of {counters:?}"
            );
        }
        for name in [
            "redo entries",
            "full page images in redo",
            "redo writes",
            "redo syncs",
            "logons cumulative",
        ] {
            assert_eq!(counters.contains_key(name), version >= 14, "{version}: {name}");
        }
        assert_eq!(snapshot.db_time_ns.is_some(), version >= 14, "{version}: DB time");
        let says = |word: &str| snapshot.missing.iter().any(|line| line.contains(word));
        assert_eq!(says("PostgreSQL 14"), version < 14, "{version}: {:?}", snapshot.missing);
        let wait =
            |name: &str| snapshot.waits.iter().find(|wait| wait.name == name && wait.total_ns > 0);
        assert!(wait("db file sequential read").is_some(), "{version}: reads are timed");
        assert!(wait("checkpoint sync").is_some(), "{version}: syncs of checkpoints are timed");
        assert_eq!(
            wait("redo sync").is_some(),
            version >= 14,
            "{version}: syncs of redo are timed"
        );
        assert_eq!(
            wait("redo sync").is_some_and(|wait| !wait.background),
            version >= 18,
            "{version}: by requests"
        );
        assert_eq!(snapshot.io.is_empty(), version < 16, "{version}: reads and writes by backend");
        assert!(
            snapshot.io.iter().all(|io| io.read_bytes > 0 && io.write_bytes > 0),
            "{version}: bytes"
        );
        let [statement] = &snapshot.statements[..] else { panic!("{version}: one statement") };
        assert!(
            statement.calls > 0 && statement.total_ns > 0 && statement.redo_bytes.is_some(),
            "{version}"
        );
    }
}

#[test]
fn pages_written_by_backends_are_pages_where_a_request_may_be_of_many() {
    let of = |more: Value| {
        let mut io = json!({"backend_type": "client backend", "object": "relation",
        "context": "bulkwrite", "writes": 3, "extends": 2});
        io.as_object_mut().expect("a row").extend(more.as_object().expect("columns").clone());
        let mut answers = Answers { version: 180_000, ..Answers::default() };
        answers.rows.insert("io", vec![io.as_object().expect("a row").clone()]);
        let mut snapshot = Snapshot::at(crate::Source::default(), 1, 1);
        counters::fill(&mut snapshot, &answers, Redaction::Literals);
        snapshot
            .counters
            .iter()
            .find(|counter| counter.name == "pages written by backends")
            .map(|of| of.value)
    };
    assert_eq!(of(json!({"op_bytes": 8192})), Some(5), "16 and 17 count pages");
    assert_eq!(of(json!({"write_bytes": 3 * 8192, "extend_bytes": 2 * 64 * 8192})), Some(3 + 128));
}

#[test]
fn a_version_is_asked_only_for_the_views_that_it_has() {
    for version in VERSIONS {
        for view in &VIEWS {
            let listed = COLUMNS.iter().any(|(of, ..)| *of == view.name);
            let asked = version * 10_000 >= view.since;
            assert_eq!(
                asked,
                !listed || row(view.name, version).is_some(),
                "{version}: {}",
                view.name
            );
        }
    }
    let query = statements_query("public", 200);
    for column in ["query", "total_exec_time"] {
        let columns = |version: u64| row("statements", version).expect("a row");
        assert!(
            query.contains(column)
                && VERSIONS.iter().all(|version| columns(*version).contains_key(column))
        );
    }
}

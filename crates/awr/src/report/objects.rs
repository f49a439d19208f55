//! Databases, users, indexes and replication: what a source counts apart for each of them.
//!
//! Sums by user and by database are of the statements that were followed through the interval, so a
//! statement that the server forgot is in none of them.
//!
//! Deliberately absent: a comparison of two intervals; tables (`segments.rs`).

use std::collections::BTreeMap;

use super::{Section, io, time};
use crate::snapshot::object::{ObjectKind, ObjectStat};
use crate::table::{Cell, Table};
use crate::{Interval, StatementStat};

/// How many rows a table lists.
const ROWS: usize = 20;

fn of_kind(of: &Interval, kind: ObjectKind) -> impl Iterator<Item = &ObjectStat> {
    of.objects.iter().filter(move |object| object.kind == kind)
}

/// The section of databases and users.
pub(super) fn section(of: &Interval) -> Section {
    let mut section = Section::new("Databases and Users");
    section.table_if_any(databases(of));
    section.table_if_any(by_user(of));
    section
}

fn databases(of: &Interval) -> Table {
    let mut table = Table::new("Databases")
        .text("Database", "Its name.")
        .figures("DB Time", "s", "Time its sessions were active, working or waiting.")
        .figures("%DB time", "", "Its share of DB time.")
        .figures("Trans /s", "", "Transactions that ended, well or not, by elapsed time.")
        .figures("%Rolled back", "", "The part of them that was rolled back.")
        .figures("Gets /s", "pages", "Pages asked of the page cache, by elapsed time.")
        .figures("Reads /s", "pages", "Pages that the page cache did not hold, by elapsed time.")
        .figures("%Hit", "", "The part of pages that the page cache held.")
        .figures("Rows Changed /s", "", "Rows inserted, updated and deleted, by elapsed time.")
        .figures("Temp", "", "Temporary files: sorts and hashes that did not fit into memory.")
        .figures("Deadlocks", "", "Deadlocks that the server broke up.")
        .figures("Idle in Trans", "s", "Time its sessions had a transaction open and did nothing.")
        .figures("Sessions", "", "Sessions connected at the end.")
        .figures(
            "Age",
            "transactions",
            "Transactions since it was frozen; two thousand million are the limit.",
        );
    let mut rows: Vec<&ObjectStat> = of_kind(of, ObjectKind::Database).collect();
    let commits = |object: &ObjectStat| object.count("commits").unwrap_or(0);
    rows.sort_by_key(|of| (std::cmp::Reverse((of.count("db_time_ns"), commits(of))), &of.name));
    for row in rows {
        let rate =
            |count: Option<u64>| Cell::number(count.map(|count| count as f64 / of.elapsed_s()));
        let sum = |names: &[&str]| {
            let counts = names.iter().filter_map(|name| row.count(name));
            counts.reduce(u64::saturating_add)
        };
        let percent = |part: Option<u64>, all: Option<u64>| {
            let all = all.filter(|all| *all > 0);
            Cell::percent(part.zip(all).map(|(part, all)| part as f64 / all as f64 * 100.0))
        };
        let ns = row.count("db_time_ns");
        let (ended, gets) = (sum(&["commits", "rollbacks"]), sum(&["pages_hit", "pages_read"]));
        table.row(vec![
            Cell::text(&row.name),
            Cell::seconds(ns.map(|ns| ns as f64 / 1e9)),
            Cell::percent(ns.and_then(|ns| time::of_db_time(of, ns as f64))),
            rate(ended),
            percent(row.count("rollbacks"), ended),
            rate(gets),
            rate(row.count("pages_read")),
            percent(row.count("pages_hit"), gets),
            rate(sum(&["rows_inserted", "rows_updated", "rows_deleted"])),
            Cell::bytes(
                row.count("temp_bytes").filter(|bytes| *bytes > 0).map(|bytes| bytes as f64),
            ),
            Cell::count(row.count("deadlocks").filter(|count| *count > 0)),
            Cell::seconds(row.count("idle_in_transaction_ns").map(|ns| ns as f64 / 1e9)),
            Cell::count(row.level("sessions")),
            Cell::count(row.level("frozen_age")),
        ]);
    }
    table.first(ROWS, io::REST);
    table.without_empty_columns()
}

/// What the statements of one user in one database took.
#[derive(Default)]
struct Sum {
    statements: u64,
    calls: u64,
    ns: u64,
    rows: u64,
    gets: u64,
    reads: u64,
    redo: u64,
    temp: u64,
}

impl Sum {
    fn add(&mut self, row: &StatementStat) {
        let (hit, read) = (row.pages_hit.unwrap_or(0), row.pages_read.unwrap_or(0));
        for (sum, more) in [
            (&mut self.statements, 1),
            (&mut self.calls, row.calls),
            (&mut self.ns, row.total_ns),
            (&mut self.rows, row.rows),
            (&mut self.gets, hit.saturating_add(read)),
            (&mut self.reads, read),
            (&mut self.redo, row.redo_bytes.unwrap_or(0)),
            (&mut self.temp, row.temp_bytes.unwrap_or(0)),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

fn by_user(of: &Interval) -> Table {
    let mut table = Table::new("SQL by User and Database")
        .text("User", "Who ran the statements.")
        .text("Database", "Where.")
        .figures("Elapsed Time", "s", "Time spent in them, waiting included.")
        .figures("%DB time", "", "Elapsed time by DB time.")
        .figures("Executions", "", "How often they were run.")
        .figures("Statements", "", "How many different ones there were.")
        .figures("Rows", "", "Rows they returned or changed.")
        .figures("Gets", "pages", "Pages asked of the page cache.")
        .figures("Reads", "pages", "Pages that the page cache did not hold.")
        .figures("Redo", "", "Redo they made.")
        .figures("Temp", "", "Temporary files they wrote.");
    let names = |kind| -> BTreeMap<&str, &str> {
        of_kind(of, kind).map(|object| (object.id.as_str(), object.name.as_str())).collect()
    };
    let (users, databases) = (names(ObjectKind::User), names(ObjectKind::Database));
    if users.is_empty() || of.end.source.product != "PostgreSQL" {
        return table;
    }
    let mut sums: BTreeMap<(&str, &str), Sum> = BTreeMap::new();
    for row in &of.statements.rows {
        // The statement's number, its user's, its database's.
        let mut parts = row.id.split('/').skip(1);
        let (Some(user), Some(database)) = (parts.next(), parts.next()) else { continue };
        sums.entry((user, database)).or_default().add(row);
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(who, sum)| (std::cmp::Reverse(sum.ns), *who));
    for ((user, database), sum) in sums {
        let name = |names: &BTreeMap<&str, &str>, id: &str| {
            Cell::text(
                names.get(id).map_or_else(|| format!("number {id}"), |name| (*name).to_owned()),
            )
        };
        let bytes = |bytes: u64| Cell::bytes((bytes > 0).then_some(bytes as f64));
        table.row(vec![
            name(&users, user),
            name(&databases, database),
            Cell::seconds(sum.ns as f64 / 1e9),
            Cell::percent(time::of_db_time(of, sum.ns as f64)),
            Cell::count(sum.calls),
            Cell::count(sum.statements),
            Cell::count(sum.rows),
            Cell::count(sum.gets),
            Cell::count(sum.reads),
            bytes(sum.redo),
            bytes(sum.temp),
        ]);
    }
    if of.statements.lost > 0 {
        table
            .note(format!("Without {} statements that could not be followed.", of.statements.lost));
    }
    table.first(ROWS, io::REST);
    table.without_empty_columns()
}

/// The tables of indexes, for the section of segments.
pub(super) fn indexes(of: &Interval, section: &mut Section) {
    let size = |of: &ObjectStat| Cell::bytes(of.level("bytes").map(|bytes| bytes as f64));
    let mut used = Table::new("Indexes by Scans")
        .text("Index", "Its name.")
        .text("Table", "The table it is of.")
        .figures("Scans", "", "How often it was used.")
        .figures("Rows", "", "Entries read of it.")
        .figures("Rows per Scan", "", "Entries of one scan, on average.")
        .figures("Size", "", "About how large it is.");
    let scans = |of: &&ObjectStat| of.count("scans").unwrap_or(0);
    let mut rows: Vec<&ObjectStat> =
        of_kind(of, ObjectKind::Index).filter(|of| scans(of) > 0).collect();
    rows.sort_by_key(|of| (std::cmp::Reverse(scans(of)), &of.name));
    for row in rows {
        let per_scan = row.count("rows").and_then(|rows| rows.checked_div(scans(&row)));
        used.row(vec![
            Cell::text(&row.name),
            Cell::text(&row.detail),
            Cell::count(scans(&row)),
            Cell::count(row.count("rows")),
            Cell::count(per_scan),
            size(row),
        ]);
    }
    used.first(ROWS, io::REST);
    section.table_if_any(used);
    let mut unused = Table::new("Indexes That Nobody Used")
        .text("Index", "Its name.")
        .text("Table", "The table it is of: each change of it has to be made in the index too.")
        .figures("Size", "", "About how large it is.")
        .text("Also", "What it is for besides finding rows, or what is wrong with it.");
    let never = |of: &&ObjectStat| of.level("scans") == Some(0);
    let mut rows: Vec<&ObjectStat> = of_kind(of, ObjectKind::Index).filter(never).collect();
    let needed = |of: &ObjectStat| of.level("needed") == Some(1);
    rows.sort_by_key(|of| (needed(of), std::cmp::Reverse(of.level("bytes")), &of.name));
    for row in rows {
        let also = match (needed(row), row.level("valid")) {
            (_, Some(0)) => "not valid: building it failed",
            (true, _) => "keeps rows unique or names them",
            _ => "",
        };
        unused.row(vec![
            Cell::text(&row.name),
            Cell::text(&row.detail),
            size(row),
            Cell::text(also),
        ]);
    }
    if !unused.rows.is_empty() {
        unused.note(
            "Not since counts of the database began; on a standby they may be used. Drop none that \
             keeps rows unique.",
        );
    }
    unused.first(ROWS, io::REST);
    section.table_if_any(unused);
}

/// The section of standbys and of the redo that is kept for them.
pub(super) fn replication(of: &Interval) -> Section {
    let mut section = Section::new("Replication");
    let mut standbys = Table::new("Standbys")
        .text("Standby", "Its name and address, at the end of the interval.")
        .text("State", "What it does, and how commits wait for it.")
        .figures("Behind at Begin", "", "Redo that it had not replayed at the beginning.")
        .figures("Behind at End", "", "Redo that it has not replayed.")
        .figures("Not Sent", "", "Redo that was not sent to it.")
        .figures(
            "Write Lag",
            "",
            "Until it has written what was made here; empty while it has all.",
        )
        .figures("Flush Lag", "", "Until that is durable there.")
        .figures("Replay Lag", "", "Until that can be read there.");
    for row in of_kind(of, ObjectKind::Standby) {
        let before = of.begin.objects.iter().find(|before| before.key() == row.key());
        let bytes = |of: &ObjectStat, name| Cell::bytes(of.level(name).map(|bytes| bytes as f64));
        let lag = |name| Cell::nanoseconds(row.level(name).map(|ns| ns as f64));
        standbys.row(vec![
            Cell::text(&row.name),
            Cell::text(&row.detail),
            before.map_or(Cell::Empty, |before| bytes(before, "behind_bytes")),
            bytes(row, "behind_bytes"),
            bytes(row, "unsent_bytes"),
            lag("write_ns"),
            lag("flush_ns"),
            lag("replay_ns"),
        ]);
    }
    section.table_if_any(standbys);
    let mut slots = Table::new("Replication Slots")
        .text("Slot", "Its name.")
        .text("Kind", "What it is for, and whether its redo is still there.")
        .text("In Use", "Whether somebody fetches redo by it.")
        .figures("Kept", "", "Redo that is kept for it.");
    for row in of_kind(of, ObjectKind::Slot) {
        slots.row(vec![
            Cell::text(&row.name),
            Cell::text(&row.detail),
            Cell::text(if row.level("active") == Some(1) { "yes" } else { "no" }),
            Cell::bytes(row.level("kept_bytes").map(|bytes| bytes as f64)),
        ]);
    }
    section.table_if_any(slots);
    section
}

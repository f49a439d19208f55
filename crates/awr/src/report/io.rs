//! Reads and writes added up as Oracle does: by function (who and what for), by file type; and what
//! a source itself tells apart.
//!
//! The names are Oracle's where the meaning is: LGWR writes redo, DBWR writes changed pages out,
//! Buffer Cache Reads are pages that the cache did not hold. A source that does not tell them apart
//! (an imported report) gets no table by function.
//!
//! Differences from Oracle's tables: an average time for reads and one for writes instead of one of
//! waits; none where a part of the requests was not timed.
//!
//! Invariant: the rows of a table add up to the reads and writes that the source told. Read next:
//! `snapshot/known.rs` for where the rows come from.

use std::collections::{BTreeMap, BTreeSet};

use super::Section;
use super::load::{change, per};
use crate::table::{Cell, Table};
use crate::{Interval, IoStat};

/// How many rows a table of reads and writes has.
pub(super) const ROWS: usize = 40;

/// Where the rest is.
pub(super) const REST: &str = "The JSON form has all of them in its snapshots.";

/// What a read or a write was for; nothing if the source does not tell.
fn function(file_class: &str, read: bool) -> Option<&'static str> {
    let parts: Vec<&str> = file_class.split(", ").collect();
    Some(match (parts.as_slice(), read) {
        // PostgreSQL: object, context, who.
        (["wal", ..], _) => "LGWR",
        (["temp relation", ..], _) => "Temporary Files",
        (["relation", "vacuum", _], _) => "Vacuum",
        (["relation", "bulkread" | "bulkwrite", _], true) => "Direct Reads",
        (["relation", "bulkread" | "bulkwrite", _], false) => "Direct Writes",
        (["relation", ..], true) => "Buffer Cache Reads",
        (["relation", _, "checkpointer" | "background writer"], false) => "DBWR",
        (["relation", ..], false) => "Writes by Sessions",
        // MariaDB and MySQL: instruments.
        (["innodb/innodb_data_file" | "data"], true) => "Buffer Cache Reads",
        (["innodb/innodb_data_file"], false) | (["destage"], _) => "DBWR",
        (["data"], false) => "Writes by Sessions",
        (["innodb/innodb_log_file" | "redo"], _) => "LGWR",
        (["innodb/innodb_temp_file"], _) => "Temporary Files",
        (["innodb/innodb_dblwr_file"], _) => "Doublewrite",
        (["sql/binlog" | "sql/binlog_index"], _) => "Binary Log",
        ([one], _) if one.contains('/') || *one == "pass" => "Others",
        _ => return None,
    })
}

/// What the file is; what the source calls it if that is not known.
fn file_type(file_class: &str) -> &str {
    match file_class.split(", ").next().unwrap_or(file_class) {
        "relation" | "innodb/innodb_data_file" | "data" | "destage" => "Data File",
        "wal" | "innodb/innodb_log_file" | "redo" => "Log File",
        "temp relation" | "innodb/innodb_temp_file" => "Temp File",
        "innodb/innodb_dblwr_file" => "Doublewrite File",
        "sql/binlog" | "sql/binlog_index" => "Binary Log",
        "pass" => "Other",
        other if other.contains('/') => "Other",
        _ => file_class,
    }
}

/// How rows are added up.
type Key = fn(&IoStat, bool) -> Option<String>;

/// The tables: caption, the title of the first column, what a row is added up by.
const TABLES: &[(&str, &str, Key)] = &[
    ("IOStat by Function", "Function Name", |io, read| {
        function(&io.file_class, read).map(str::to_owned)
    }),
    ("IOStat by Filetype", "Filetype Name", |io, _| Some(file_type(&io.file_class).to_owned())),
];

/// Reads and writes of one row.
#[derive(Clone, Copy, Default)]
struct Sums {
    /// Requests, bytes and nanoseconds of reads, then of writes.
    sides: [[u64; 3]; 2],
    untimed: bool,
}

impl Sums {
    fn mean_ns(&self, side: usize) -> Option<f64> {
        let [count, _, ns] = self.sides[side];
        per(ns as f64, Some(count)).filter(|_| !self.untimed && ns > 0)
    }

    fn bytes(&self) -> u64 {
        self.sides[0][1].saturating_add(self.sides[1][1])
    }
}

/// The rows of an interval; nothing if there is a row that cannot be told apart so.
fn added_up(of: &Interval, key: Key) -> Option<BTreeMap<String, Sums>> {
    let mut rows: BTreeMap<String, Sums> = BTreeMap::new();
    for io in of.io.iter().filter(|io| io.reads > 0 || io.writes > 0) {
        let sides =
            [[io.reads, io.read_bytes, io.read_ns], [io.writes, io.write_bytes, io.write_ns]];
        for (side, figures) in sides.into_iter().enumerate().filter(|(_, figures)| figures[0] > 0) {
            let row = rows.entry(key(io, side == 0)?).or_default();
            for (sum, more) in row.sides[side].iter_mut().zip(figures) {
                *sum = sum.saturating_add(more);
            }
            row.untimed |= io.untimed;
        }
    }
    Some(rows)
}

/// Oracle's IO Profile: all requests, those of redo, and those of data, by second; empty if the
/// source tells no requests.
pub(super) fn profile(of: &Interval) -> Table {
    let mut table = Table::new("IO Profile")
        .text("", "What is counted.")
        .figures("Read+Write Per Second", "", "Reads and writes by elapsed time.")
        .figures("Read Per Second", "", "Reads by elapsed time.")
        .figures("Write Per Second", "", "Writes by elapsed time.");
    const MIB: f64 = 1_048_576.0;
    type Part = (&'static str, fn(&str) -> bool);
    let parts: [Part; 3] = [
        ("Total", |_| true),
        ("Database", |file_type| file_type == "Data File" || file_type == "Temp File"),
        ("Redo", |file_type| file_type == "Log File"),
    ];
    let used: Vec<&IoStat> = of.io.iter().filter(|io| io.reads > 0 || io.writes > 0).collect();
    type Pick = fn(&IoStat) -> [f64; 2];
    let kinds: [(&str, Pick); 2] = [
        ("Requests", |io| [io.reads as f64, io.writes as f64]),
        ("(MiB)", |io| [io.read_bytes as f64 / MIB, io.write_bytes as f64 / MIB]),
    ];
    for (kind, pick) in kinds {
        for (name, is_part) in parts {
            let rows: Vec<[f64; 2]> = used
                .iter()
                .filter(|io| is_part(file_type(&io.file_class)))
                .map(|io| pick(io))
                .collect();
            if rows.is_empty() {
                continue;
            }
            let [read, write] = [0, 1]
                .map(|side: usize| rows.iter().map(|row| row[side]).sum::<f64>() / of.elapsed_s());
            let mut cells = vec![Cell::text(format!("{name} {kind}"))];
            cells.extend([read + write, read, write].map(Cell::number));
            table.row(cells);
        }
    }
    table
}

/// The tables of one interval.
pub(super) fn tables_of(of: &Interval, section: &mut Section) {
    for (caption, title, key) in TABLES {
        let Some(rows) = added_up(of, *key) else { continue };
        let mut table = Table::new(*caption)
            .text(title, "Oracle's name where the meaning is the same.")
            .figures("Reads: Data", "", "Bytes read.")
            .figures("Read Reqs per sec", "", "Requests that read, by elapsed time.")
            .figures("Read Data per sec", "", "Bytes read by elapsed time.")
            .figures(
                "Avg Read",
                "",
                "Time reading by requests that read; empty if not all were timed.",
            )
            .figures("Writes: Data", "", "Bytes written.")
            .figures("Write Reqs per sec", "", "Requests that wrote, by elapsed time.")
            .figures("Write Data per sec", "", "Bytes written by elapsed time.")
            .figures(
                "Avg Write",
                "",
                "Time writing by requests that wrote; empty if not all were timed.",
            );
        let mut rows: Vec<_> = rows.into_iter().collect();
        rows.sort_by_key(|(_, sums)| std::cmp::Reverse(sums.bytes()));
        for (name, sums) in rows {
            let mut cells = vec![Cell::text(name)];
            for side in 0..2 {
                let [requests, bytes, _] = sums.sides[side];
                cells.extend([
                    Cell::bytes(bytes as f64),
                    Cell::number(requests as f64 / of.elapsed_s()),
                    Cell::bytes(bytes as f64 / of.elapsed_s()),
                    Cell::nanoseconds(sums.mean_ns(side)),
                ]);
            }
            table.row(cells);
        }
        table.first(ROWS, REST);
        section.table_if_any(table.without_empty_columns());
    }
}

/// The tables of two intervals, by the largest change of bytes by second.
pub(super) fn tables_compared(both: [&Interval; 2], section: &mut Section) {
    for (caption, title, key) in TABLES {
        let [Some(first), Some(second)] = both.map(|of| added_up(of, *key)) else { continue };
        let sides = [first, second];
        let mut table =
            Table::new(*caption).text(title, "Oracle's name where the meaning is the same.");
        for verb in ["Read", "Write"] {
            for side in ["1st", "2nd"] {
                table =
                    table.figures(&format!("{side} {verb} Data /s"), "", "Bytes by elapsed time.");
            }
        }
        table = table.figures(
            "%Diff Data /s",
            "",
            "The change of bytes read and written by second, in per cent of the first.",
        );
        for verb in ["Read", "Write"] {
            for side in ["1st", "2nd"] {
                table = table.figures(
                    &format!("{side} Avg {verb}"),
                    "",
                    "Time by requests; empty if not all were timed.",
                );
            }
        }
        let names: BTreeSet<&String> = sides.iter().flat_map(BTreeMap::keys).collect();
        // What a partial list does not have was not told; what a whole one does not have did not
        // happen.
        let told = both.map(|of| !of.is_partial("io"));
        let mut rows: Vec<(f64, Vec<Cell>)> = Vec::new();
        for name in names {
            let found = [0, 1]
                .map(|of: usize| sides[of].get(name).copied().or(told[of].then(Sums::default)));
            let rate = |of: usize, side: usize| {
                found[of].map(|sums| sums.sides[side][1] as f64 / both[of].elapsed_s())
            };
            let all = |of: usize| found[of].map(|sums| sums.bytes() as f64 / both[of].elapsed_s());
            let mut cells = vec![Cell::text(name)];
            for side in 0..2 {
                cells.extend([0, 1].map(|of| Cell::bytes(rate(of, side))));
            }
            cells.push(change(all(0), all(1)));
            for side in 0..2 {
                cells.extend(
                    found.map(|sums| Cell::nanoseconds(sums.and_then(|sums| sums.mean_ns(side)))),
                );
            }
            rows.push(((all(1).unwrap_or(0.0) - all(0).unwrap_or(0.0)).abs(), cells));
        }
        rows.sort_by(|a, b| b.0.total_cmp(&a.0));
        table.rows = rows.into_iter().map(|(_, cells)| cells).collect();
        if table.rows.len() > 1 {
            table.note("Ordered by how much the bytes by second changed.");
        }
        table.first(ROWS, REST);
        section.table_if_any(table.without_empty_columns());
    }
}

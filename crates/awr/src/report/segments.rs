//! Reads, scans and dead rows by table or file: what AWR calls Segments by Physical Reads and so
//! on.
//!
//! A source lists the hundred that were read most, so a table has a note with the part of all reads
//! that its rows are. What is in a list of one interval and not of the other was not told there
//! where the list may lack rows, and is a zero where it does not.
//!
//! Differences from Oracle's tables: bytes and, where the source times them, the time of reads
//! beside their number; no tablespace, owner and type, which are not everywhere; a name holds what
//! the source puts into it, schema and table or directory and file.
//!
//! Invariant: rows add up to no more than was read. Deliberately absent: writes by table, which no
//! source tells alike.

use std::collections::BTreeMap;

use super::Section;
use super::load::change;
use crate::interval::page_bytes;
use crate::snapshot::file::FileStat;
use crate::snapshot::known::statistic;
use crate::table::{Cell, Table};
use crate::{Interval, figure};

/// How many rows a table lists.
const ROWS: usize = 20;

/// Bytes of data that were read in an interval, of every table; nothing if the source does not
/// count them.
fn all_read_bytes(of: &Interval) -> Option<u64> {
    let of_files = of.io.iter().filter(|io| io.file_class == "innodb/innodb_data_file");
    if let Some(bytes) = of_files.map(|io| io.read_bytes).reduce(u64::saturating_add) {
        return Some(bytes);
    }
    let page = page_bytes(of);
    of.counter(statistic::PHYSICAL_READS).map(|pages| pages.saturating_mul(page))
}

/// The reads of one name.
#[derive(Clone, Copy, Default)]
struct Reads {
    bytes: u64,
    ns: Option<u64>,
    size: Option<u64>,
}

impl Reads {
    fn of(file: &FileStat) -> Reads {
        Reads { bytes: file.read_bytes, ns: file.read_ns, size: file.bytes }
    }

    /// A table that was made anew has the name of the one before.
    fn add(self, more: Reads) -> Reads {
        Reads {
            bytes: self.bytes.saturating_add(more.bytes),
            ns: self.ns.zip(more.ns).map(|(a, b)| a.saturating_add(b)),
            size: more.size.or(self.size),
        }
    }

    /// The time of reading a MiB.
    fn of_mib_ns(&self) -> Option<f64> {
        Some(self.ns? as f64 / (self.bytes as f64 / 1_048_576.0))
            .filter(|ns| ns.is_finite() && *ns > 0.0)
    }
}

fn by_name(of: &Interval) -> BTreeMap<&str, Reads> {
    let mut sums: BTreeMap<&str, Reads> = BTreeMap::new();
    for file in &of.files {
        let reads = Reads::of(file);
        sums.entry(&file.name).and_modify(|sum| *sum = sum.add(reads)).or_insert(reads);
    }
    sums
}

/// All that was read, and never less than what is listed.
fn total(of: &Interval, rows: &BTreeMap<&str, Reads>) -> (u64, u64, bool) {
    let listed = rows.values().fold(0, |sum: u64, reads| sum.saturating_add(reads.bytes));
    let counted = all_read_bytes(of).filter(|all| *all > 0);
    (listed, counted.unwrap_or(0).max(listed), counted.is_some())
}

fn share(bytes: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| bytes as f64 / all as f64 * 100.0)
}

/// What share of all reads the list is.
fn captured(of: &Interval, rows: &BTreeMap<&str, Reads>) -> String {
    let (listed, all, counted) = total(of, rows);
    match counted {
        true => format!(
            "Physical reads of data: {}; the {} listed by the source are {} % of them.",
            figure::bytes(all as f64),
            figure::count(rows.len() as u64),
            figure::percent(share(listed, all).unwrap_or(0.0))
        ),
        false => {
            "The source does not tell all reads of data: %Total is of those it lists.".to_owned()
        }
    }
}

/// The section of one interval.
pub(super) fn section(of: &Interval) -> Section {
    let mut section = Section::new("Segment Statistics");
    let sums = by_name(of);
    if !sums.is_empty() {
        section.table(by_reads(of, &sums));
    }
    section.table_if_any(by_scans(of));
    section.table_if_any(by_dead_rows(of));
    super::objects::indexes(of, &mut section);
    section
}

/// Tables that were read from end to end.
fn by_scans(of: &Interval) -> Table {
    let mut table = Table::new("Segments by Table Scans")
        .text("Object Name", "The table, as the source names it.")
        .figures("Rows Scanned", "", "Rows read from end to end.")
        .figures("Scans", "", "How often it was read from end to end.")
        .figures("Rows per Scan", "", "Rows of one scan, on average.")
        .figures("Index Scans", "", "How often one of its indexes was used.")
        .figures("Rows Changed", "", "Rows inserted, updated and deleted.")
        .figures("Size", "", "About how large it is.");
    for of in of.tables.iter().filter(|table| table.scans > 0) {
        table.row(vec![
            Cell::text(&of.name),
            Cell::count(of.scanned_rows),
            Cell::count(of.scans),
            Cell::count(of.rows_by_scan()),
            Cell::count(of.index_scans),
            Cell::count(of.changed_rows),
            Cell::bytes(of.bytes.map(|bytes| bytes as f64)),
        ]);
    }
    table.first(ROWS, super::io::REST);
    table
}

/// Tables with dead rows, which VACUUM cleans up.
fn by_dead_rows(of: &Interval) -> Table {
    let mut table = Table::new("Segments by Dead Rows")
        .text("Object Name", "The table, as the source names it.")
        .figures(
            "Dead Rows",
            "",
            "Rows at the end that nobody can see any more and that still take room.",
        )
        .figures("%Dead", "", "Their share of all rows.")
        .figures("Rows", "", "Rows at the end, dead ones not among them.")
        .figures("Rows Changed", "", "Rows inserted, updated and deleted.")
        .figures(
            "%HOT",
            "",
            "The part of updated rows that changed no index, and cost the less for it.",
        )
        .figures("Vacuums", "", "How often dead rows were cleaned up in the interval.")
        .figures("by Itself", "", "How many of them autovacuum began.")
        .figures("Analyzes", "", "How often its rows were looked at for the planner.")
        .text("Last Vacuum", "When dead rows were cleaned up last, in UTC.");
    let mut tables: Vec<_> = of.tables.iter().filter(|table| table.dead_rows > 0).collect();
    tables.sort_by(|a, b| b.dead_rows.cmp(&a.dead_rows).then_with(|| a.name.cmp(&b.name)));
    for of in tables {
        table.row(vec![
            Cell::text(&of.name),
            Cell::count(of.dead_rows),
            Cell::percent(of.dead_percent()),
            Cell::count(of.rows),
            Cell::count(of.changed_rows),
            Cell::percent(of.hot_percent()),
            Cell::count(of.vacuums),
            Cell::count(of.autovacuums),
            Cell::count(of.analyzes),
            of.vacuumed_unix_s.map_or(Cell::Empty, |at| {
                Cell::text(figure::instant(at.saturating_mul(1_000_000_000)))
            }),
        ]);
    }
    table.first(ROWS, super::io::REST);
    table.without_empty_columns()
}

fn by_reads(of: &Interval, sums: &BTreeMap<&str, Reads>) -> Table {
    let (_, all, _) = total(of, sums);
    let mut table = Table::new("Segments by Physical Reads")
        .text("Object Name", "The table, index or file, as the source names it.")
        .figures(
            "Physical Reads",
            "",
            "Bytes read that the database's own page cache did not hold.",
        )
        .figures("%Total", "", "Its share of all bytes of data read.")
        .figures("Data per sec", "", "Bytes read by elapsed time.")
        .figures("Read Time", "s", "The time of these reads; empty if it is not measured for each.")
        .figures("per MiB", "", "The time of reading a MiB.")
        .figures("Size", "", "About how large it is.");
    let mut rows: Vec<(&str, Reads)> = sums.iter().map(|(name, reads)| (*name, *reads)).collect();
    rows.sort_by(|a, b| b.1.bytes.cmp(&a.1.bytes).then_with(|| a.0.cmp(b.0)));
    for (name, reads) in rows {
        table.row(vec![
            Cell::text(name),
            Cell::bytes(reads.bytes as f64),
            Cell::percent(share(reads.bytes, all)),
            Cell::bytes(reads.bytes as f64 / of.elapsed_s()),
            Cell::seconds(reads.ns.map(|ns| ns as f64 / 1e9)),
            Cell::nanoseconds(reads.of_mib_ns()),
            Cell::bytes(reads.size.map(|bytes| bytes as f64)),
        ]);
    }
    table.first(ROWS, super::io::REST);
    table.note(captured(of, sums));
    table.without_empty_columns()
}

/// The section of two intervals, by how much the bytes by second changed.
pub(super) fn compared(both: [&Interval; 2]) -> Section {
    let mut section = Section::new("Segment Statistics");
    let sums = both.map(by_name);
    if sums.iter().all(BTreeMap::is_empty) {
        return section;
    }
    let mut table =
        Table::new("Segments by Physical Reads").text("Object Name", "As the source names it.");
    let columns = [
        (
            "Data per sec",
            "",
            "Bytes by elapsed time that the database's own page cache did not hold.",
        ),
        ("%Total", "", "Its share of all bytes of data read."),
        ("per MiB", "", "The time of reading a MiB; empty if it is not measured for each."),
    ];
    for (index, (what, unit, explanation)) in columns.into_iter().enumerate() {
        for side in ["1st", "2nd"] {
            table = table.figures(&format!("{side} {what}"), unit, explanation);
        }
        if index == 0 {
            table = table.figures(
                "%Diff",
                "",
                "The change of bytes by second, in per cent of the first.",
            );
        }
    }
    let totals = [0, 1].map(|side: usize| total(both[side], &sums[side]).1);
    let told = both.map(|of| !of.is_partial("files"));
    let mut names: Vec<&str> = sums.iter().flat_map(BTreeMap::keys).copied().collect();
    names.sort_unstable();
    names.dedup();
    let mut rows: Vec<(f64, Vec<Cell>)> = Vec::new();
    for name in names {
        let found = [0, 1]
            .map(|side: usize| sums[side].get(name).copied().or(told[side].then(Reads::default)));
        let rate =
            |side: usize| found[side].map(|reads| reads.bytes as f64 / both[side].elapsed_s());
        let shares = [0, 1]
            .map(|side: usize| found[side].and_then(|reads| share(reads.bytes, totals[side])));
        let mut cells = vec![Cell::text(name), Cell::bytes(rate(0)), Cell::bytes(rate(1))];
        cells.push(change(rate(0), rate(1)));
        cells.extend(shares.map(Cell::percent));
        cells.extend(
            found.map(|reads| Cell::nanoseconds(reads.and_then(|reads| reads.of_mib_ns()))),
        );
        rows.push(((rate(1).unwrap_or(0.0) - rate(0).unwrap_or(0.0)).abs(), cells));
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    table.rows = rows.into_iter().map(|(_, cells)| cells).collect();
    table.first(ROWS, super::io::REST);
    if told.contains(&false) {
        table.note(
            "Empty: it is not among those that were read most in that interval; how much it \
                    was read is not told.",
        );
    }
    for (ordinal, side) in super::tables::ORDINALS.into_iter().zip([0, 1]) {
        table.note(format!("{ordinal}: {}", captured(both[side], &sums[side])));
    }
    section.table(table.without_empty_columns());
    section
}

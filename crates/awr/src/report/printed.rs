//! Tables of an imported report, as that report prints them.
//!
//! Deliberately absent: a comparison. The cells are words to this program: what two reports print
//! of a segment or an advisory stands in the report of each.

use super::{Section, io};
use crate::Interval;
use crate::table::{Cell, Table};

pub(super) const TITLE: &str = "As Oracle's Report Prints It";

/// How many rows of each are shown.
const ROWS: usize = 100;

/// The tables, if the interval is that of one report.
pub(super) fn section(of: &Interval) -> Section {
    let mut section = Section::new(TITLE);
    if of.printed().is_empty() {
        return section;
    }
    section.text(
        "These tables are as they stand in the imported report, and their figures are in its \
               units.",
    );
    for printed in of.printed() {
        let mut table = Table::new(printed.title.clone()).details();
        for (at, title) in printed.columns.iter().enumerate() {
            let cells = || printed.rows.iter().filter_map(|row| row.get(at));
            table = match cells().all(|cell| is_figure(cell)) {
                true => table.figures(title, "", ""),
                false => table.text(title, ""),
            };
        }
        for row in &printed.rows {
            table.row(row.iter().map(Cell::text).collect());
        }
        table.first(ROWS, io::REST);
        section.table(table);
    }
    section
}

/// Whether a cell is one of figures: a number with its unit, or nothing.
fn is_figure(cell: &str) -> bool {
    let digits = cell.trim().trim_start_matches(['-', '<', '>', '=', '.']);
    digits.is_empty()
        || (digits.starts_with(|c: char| c.is_ascii_digit()) && !cell.trim().contains(' '))
}

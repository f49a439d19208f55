//! Tables of an imported report, word by word: what reports of another program say beyond counters.
//!
//! Advisories, histograms in per cent, segments and statements by one of ten orders are no
//! counters: nothing can be subtracted, and recalculating would differ from what was printed. So
//! their cells are kept as they stand.
//!
//! Deliberately absent: which tables are kept (`import/printed.rs`).
//!
//! Invariants: a table is of the whole interval that the snapshot ends; rows are no longer than the
//! list of columns; a name or title is not empty.

use serde::{Deserialize, Serialize};

/// A table as it was printed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    /// Its title in the report.
    pub title: String,
    /// Titles of its columns.
    pub columns: Vec<String>,
    /// Its cells.
    pub rows: Vec<Vec<String>>,
}

/// More tables than any report has.
const MOST_TABLES: usize = 5_000;

/// More cells than all tables of a report have together.
const MOST_CELLS: usize = 2_000_000;

impl Printed {
    /// The cell of a column in the first row that begins with `row`.
    pub fn cell(&self, row: &str, column: &str) -> Option<&str> {
        let at = self.columns.iter().position(|title| title == column)?;
        let row = self.rows.iter().find(|cells| cells.first().is_some_and(|cell| cell == row))?;
        row.get(at).map(String::as_str)
    }
}

pub(super) fn check(tables: &[Printed]) -> Result<(), String> {
    let cells: usize = tables.iter().flat_map(|table| &table.rows).map(Vec::len).sum();
    if tables.len() > MOST_TABLES || cells > MOST_CELLS {
        return Err(format!(
            "its {} printed tables have {cells} cells, more than any report",
            tables.len()
        ));
    }
    for table in tables {
        if table.title.is_empty() || table.rows.iter().any(|row| row.len() > table.columns.len()) {
            return Err(format!(
                "the printed table `{}` has no title, or a row longer than its columns",
                table.title
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_found_by_row_and_column_and_a_row_that_is_too_long_is_refused() {
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let mut table = Printed {
            title: "Segments".to_owned(),
            columns: words(&["Owner", "Reads"]),
            rows: vec![words(&["APP", "1,234"]), words(&["SYS", "5"])],
        };
        assert_eq!((table.cell("SYS", "Reads"), table.cell("SYS", "Writes")), (Some("5"), None));
        assert_eq!(check(std::slice::from_ref(&table)), Ok(()));
        table.rows.push(words(&["a", "b", "c"]));
        assert!(
            check(std::slice::from_ref(&table)).unwrap_err().contains("longer than its columns")
        );
    }
}

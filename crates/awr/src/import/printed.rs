//! Which tables of a report are kept as they are printed: all that an adviser needs and that are no
//! counters, waits or settings (`build.rs` takes those).
//!
//! Tables are known by words of their heading, or of their summary where they stand under none of
//! their own, as those of the report's first page.
//!
//! Invariants: texts of statements have no literals; what is beyond a bound is counted.

use super::build::{Taking, short};
use crate::Redaction;
use crate::snapshot::printed::Printed;

/// Beginnings of headings of tables that are kept.
const KEPT: [&str; 54] = [
    "addm",
    "buffer cache advisory",
    "buffer pool",
    "buffer wait",
    "cache sizes",
    "cancelled io",
    "cell ",
    "checkpoint activity",
    "cluster interconnect",
    "columnar cache",
    "enqueue activity",
    "exadata",
    "file io",
    "file read histogram",
    "flash cache",
    "flash log",
    "foreground wait class",
    "global ",
    "host cpu",
    "instance activity stats - thread",
    "instance cpu",
    "instance efficiency",
    "instance recovery",
    "interconnect",
    "internal io reasons",
    "io profile",
    "io stat",
    "iostat",
    "load profile",
    "memory cache",
    "memory dynamic",
    "memory statistics",
    "memory target",
    "mttr advi",
    "operating system statistics",
    "os statistics",
    "outlier summary",
    "passthru",
    "performance summary",
    "pga ",
    "ping statistics",
    "pmem cache",
    "redo write histogram",
    "segments by",
    "sga memory summary",
    "sga target",
    "shared pool",
    "smart io",
    "sql ordered by",
    "tablespace io",
    "time model -",
    "top io reasons",
    "wait event histogram",
    "write offload",
];

/// Words of summaries of tables that stand under another's heading, and what they are called.
const BY_SUMMARY: [(&str, &str); 11] = [
    ("addm findings", "Top ADDM Findings by Average Active Sessions"),
    ("load profile", "Load Profile"),
    ("instance efficiency", "Instance Efficiency Percentages (Target 100%)"),
    ("system load statistics", "Host CPU"),
    ("cpu usage and wait", "Instance CPU"),
    ("io profile", "IO Profile"),
    ("memory statistics", "Memory Statistics"),
    ("database resource limits", "Database Resource Limits"),
    ("cache sizes", "Cache Sizes"),
    ("shared pool statistics", "Shared Pool Statistics"),
    // With the numbers that Oracle gave its snapshots.
    ("snapshot information", "Snapshot Information"),
];

/// Headings that are of the page and not of a table.
const OF_THE_PAGE: [&str; 4] = ["report summary", "workload repository", "main report", ""];

/// Rows of one table that are kept.
const MOST_ROWS: usize = 1_000;

/// Characters of a statement that are kept in a table.
const LONGEST_TEXT: usize = 1_000;

impl Taking<'_> {
    /// Keeps the tables that are worth it.
    pub(super) fn printed(&mut self) {
        for index in 0..self.grids.len() {
            let Some(title) = title_of(&self.grids[index].section) else { continue };
            let grid = &self.grids[index];
            if grid.rows.is_empty() {
                continue;
            }
            let pairs =
                grid.columns.iter().all(String::is_empty) && title.starts_with("Instance Eff");
            let paired = pairs.then(|| in_pairs(&grid.rows));
            let grid_rows = paired.as_ref().unwrap_or(&grid.rows);
            let columns = match pairs {
                true => ["Ratio", "%"].map(str::to_owned).to_vec(),
                false => titles(&grid.columns, &grid.groups, grid.rows.iter().map(Vec::len).max()),
            };
            let is_text: Vec<bool> =
                columns.iter().map(|title| title.to_lowercase().ends_with("sql text")).collect();
            let kept = |(at, cell): (usize, &String)| match is_text[at] {
                true => Redaction::Literals.statement(cell).chars().take(LONGEST_TEXT).collect(),
                false => short(cell),
            };
            let rows: Vec<Vec<String>> = grid_rows
                .iter()
                .take(MOST_ROWS)
                .map(|row| row.iter().enumerate().take(columns.len()).map(kept).collect())
                .collect();
            if grid_rows.len() > MOST_ROWS {
                self.left_out.because("the rest of a table that has more than a thousand rows");
            }
            let printed = &mut self.snapshot.printed;
            // A text report begins a table anew on every page.
            match printed.last_mut().filter(|last| last.title == title && last.columns == columns) {
                Some(last) if last.rows.len() + rows.len() <= MOST_ROWS => last.rows.extend(rows),
                _ => printed.push(Printed { title, columns, rows }),
            }
            self.taken.insert(index);
        }
    }
}

/// Cells of labels and figures, two or more pairs a row, as one pair a row.
fn in_pairs(rows: &[Vec<String>]) -> Vec<Vec<String>> {
    let pair = |pair: &[String]| {
        let label = pair.first()?.trim().trim_end_matches(':').to_owned();
        (!label.is_empty()).then(|| vec![label, pair.get(1).cloned().unwrap_or_default()])
    };
    rows.iter().flat_map(|row| row.chunks(2).filter_map(pair)).collect()
}

/// What a table that is kept is called, by its heading and its summary.
fn title_of(section: &str) -> Option<String> {
    let (heading, summary) = section.split_once(" | ").unwrap_or((section, ""));
    let lower = heading.to_lowercase();
    let of_page = OF_THE_PAGE.iter().any(|words| match *words {
        "" => lower.is_empty(),
        words => lower.starts_with(words),
    });
    let summary = summary.to_lowercase();
    if of_page {
        let found = BY_SUMMARY.iter().find(|(words, _)| summary.contains(words));
        return found.map(|(_, title)| (*title).to_owned());
    }
    // That of a cluster has a row for each instance; that of a single one has none to lose.
    let by_instance = lower == "time model";
    (by_instance || KEPT.iter().any(|words| lower.starts_with(words))).then(|| short(heading))
}

/// Titles of columns, as many as the longest row has cells; where one is there twice, that of the
/// group above it stands in front.
fn titles(columns: &[String], groups: &[String], cells: Option<usize>) -> Vec<String> {
    let mut titles: Vec<String> = columns.iter().map(|title| short(title)).collect();
    // A group row that is shorter lacks the columns at the left, which belong to no group.
    if let Some(shift) = columns.len().checked_sub(groups.len()).filter(|_| !groups.is_empty()) {
        for (at, group) in groups.iter().enumerate().filter(|(_, group)| !group.is_empty()) {
            let title = &columns[at + shift];
            if columns.iter().filter(|other| *other == title).count() > 1 {
                titles[at + shift] = short(&format!("{group}: {title}"));
            }
        }
    }
    titles.resize(titles.len().max(cells.unwrap_or(0)), String::new());
    titles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_known_by_its_heading_and_on_the_first_page_by_its_summary() {
        let of = |section: &str| title_of(section);
        assert_eq!(
            of("Segments by Physical Reads | x").as_deref(),
            Some("Segments by Physical Reads")
        );
        assert_eq!(
            of("Report Summary | This table displays instance efficiency percentages").as_deref(),
            Some("Instance Efficiency Percentages (Target 100%)")
        );
        assert_eq!(
            (of("Latch Activity | x"), of("Report Summary | x"), of("")),
            (None, None, None)
        );
    }

    #[test]
    fn a_title_that_is_there_twice_has_its_group_in_front() {
        let words =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let groups = words(&["PGA Target", "PGA Target", "Auto", "Auto"]);
        let columns = words(&["I#", "Begin", "End", "Begin", "End"]);
        assert_eq!(
            titles(&columns, &groups, Some(6)),
            ["I#", "PGA Target: Begin", "PGA Target: End", "Auto: Begin", "Auto: End", ""]
        );
    }
}

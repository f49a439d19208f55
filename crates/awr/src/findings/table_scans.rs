//! Large tables are read from end to end, again and again: an index is missing, or is not used.
//!
//! Deliberately absent: which statements do it, which the tables of statements show.

use super::{Finding, is_oracle, plan};
use crate::snapshot::tables::TableStat;
use crate::{Interval, figure};

pub(super) const NAME: &str = "Large tables are read from end to end";

/// A table of fewer rows is read from end to end because that is the fastest.
const LARGE_ROWS: u64 = 10_000;

/// One scan in an interval may be a report or a backup.
const LEAST_SCANS: u64 = 3;

/// Rows a second of all such scans, from which on they matter.
const LEAST_ROWS_PER_S: f64 = 50_000.0;

/// Of a database that does less than this on average, nothing is much.
const LEAST_SESSIONS: f64 = 0.05;

/// Tables named.
const NAMED: usize = 3;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    if of.active_sessions().is_some_and(|sessions| sessions < LEAST_SESSIONS) {
        return None;
    }
    let per_second = |rows: u64| rows as f64 / of.elapsed_s();
    let large = |table: &&TableStat| {
        table.scans >= LEAST_SCANS && table.rows_by_scan().is_some_and(|rows| rows >= LARGE_ROWS)
    };
    let tables: Vec<&TableStat> = of.tables.iter().filter(large).collect();
    let rows = tables.iter().fold(0, |sum: u64, table| sum.saturating_add(table.scanned_rows));
    let mut evidence = Vec::new();
    if per_second(rows) >= LEAST_ROWS_PER_S {
        evidence.extend(tables.iter().take(NAMED).map(|table| {
            format!(
                "{}: {} scans of {} rows each on average; its indexes were used {} times.",
                figure::visible(&table.name),
                figure::count(table.scans),
                figure::count(table.rows_by_scan().unwrap_or(0)),
                figure::count(table.index_scans)
            )
        }));
    } else {
        // Without tables, the rows of all scans: many of each scan, or small tables are meant.
        let (rows, scans) = of
            .counter("rows read in scans")
            .zip(of.counter("scans of whole tables"))
            .filter(|(rows, scans)| {
                *scans >= LEAST_SCANS
                    && per_second(*rows) >= LEAST_ROWS_PER_S
                    && rows / scans >= LARGE_ROWS
            })?;
        evidence.push(format!(
            "{} statements read whole tables: {} rows, {} each on average.",
            figure::count(scans),
            figure::count(rows),
            figure::count(rows / scans)
        ));
    }
    let which = match tables.first().filter(|_| of.counter("scans of whole tables").is_none()) {
        Some(table) => format!("Find the statements that read {}", figure::visible(&table.name)),
        None => "Find the statements (log_queries_not_using_indexes, or the tables of statements)"
            .to_owned(),
    };
    let index = if is_oracle(of) {
        "an index on what they select by"
    } else {
        "CREATE INDEX on what they select by"
    };
    Some(Finding {
        name: NAME.to_owned(),
        impact_percent: None,
        evidence,
        advice: format!(
            "{which}, look at their plans ({}), and see whether {index} would read less. Neither \
             more memory nor faster storage \
             comes near that.",
            plan(of)
        ),
        tiersmith: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;

    #[test]
    fn many_scans_of_a_large_table_are_named_and_small_or_rare_ones_are_not() {
        let of = |scans: u64, rows: u64| {
            let mut made = minute();
            let (id, name) = ("1".to_owned(), "public.orders".to_owned());
            let table = TableStat {
                id,
                name,
                scans,
                scanned_rows: scans * rows,
                rows,
                ..TableStat::default()
            };
            made.end.tables = vec![table];
            find(&made.interval())
        };
        let found = of(100, 200_000).expect("scans");
        assert!(
            found.evidence[0].contains("public.orders: 100 scans of 200,000 rows"),
            "{found:?}"
        );
        assert_eq!(of(2, 20_000_000), None, "a report");
        assert_eq!(of(100_000, 500), None, "a small table");
        assert_eq!(of(5, 20_000), None, "rarely");
        let counted = |scans: u64, rows: u64| {
            find(
                &minute()
                    .counter("scans of whole tables", scans)
                    .counter("rows read in scans", rows)
                    .interval(),
            )
        };
        assert!(counted(100, 20_000_000).is_some_and(|found| found.advice.contains("log_queries")));
        assert_eq!(counted(100_000, 20_000_000), None);
        assert_eq!(counted(10, 200_000), None);
    }
}

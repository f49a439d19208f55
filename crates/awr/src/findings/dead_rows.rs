//! Dead rows are not cleaned up: tables grow, and scans read what nobody wants.

use super::Finding;
use crate::snapshot::known::level;
use crate::snapshot::tables::TableStat;
use crate::{Interval, figure};

/// Fewer dead rows than this take little room.
const LEAST_ROWS: u64 = 100_000;

/// The part of its rows from which on a table holds too many dead ones; VACUUM begins by itself at
/// about 17 % unless it is told otherwise.
const LEAST_PERCENT: f64 = 30.0;

/// A transaction that is open for so long, in seconds, holds VACUUM up.
const OLD_S: u64 = 60;

/// Tables named.
const NAMED: usize = 3;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let many = |table: &&TableStat| {
        table.dead_rows >= LEAST_ROWS
            && table.dead_percent().is_some_and(|percent| percent >= LEAST_PERCENT)
    };
    let mut tables: Vec<&TableStat> = of.tables.iter().filter(many).collect();
    tables.sort_by_key(|table| std::cmp::Reverse(table.dead_rows));
    if tables.is_empty() {
        return None;
    }
    let mut evidence: Vec<String> = tables
        .iter()
        .take(NAMED)
        .map(|table| {
            format!(
                "{}: {} dead rows at the end, {} % of its rows; cleaned up {} times in the \
                 interval.",
                figure::visible(&table.name),
                figure::count(table.dead_rows),
                figure::percent(table.dead_percent().unwrap_or(0.0)),
                figure::count(table.vacuums)
            )
        })
        .collect();
    for name in [level::OLDEST_TRANSACTION, level::OLDEST_PREPARED] {
        let old = of.end.levels.iter().find(|level| level.name == name && level.value >= OLD_S);
        evidence.extend(
            old.map(|level| format!("The {name} is {} s old.", figure::count(level.value))),
        );
    }
    if let Some(value) = super::setting(of, "autovacuum").filter(|value| *value == "off") {
        evidence.push(format!("autovacuum is {value}."));
    }
    Some(Finding {
        name: "Dead rows are not cleaned up".to_owned(),
        impact_percent: None,
        evidence,
        advice: "Look for transactions that have been open for long (xact_start in \
                 pg_stat_activity), abandoned replication slots and \
                 prepared transactions: nothing that is younger than these can be cleaned up. Else \
                 let autovacuum come more often \
                 (autovacuum_vacuum_scale_factor of the table) or work faster \
                 (autovacuum_vacuum_cost_limit)."
            .to_owned(),
        tiersmith: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;

    #[test]
    fn a_table_that_is_mostly_dead_is_named_and_others_are_not() {
        let of = |rows, dead_rows| {
            let mut made = minute();
            let (id, name) = ("1".to_owned(), "public.queue".to_owned());
            made.end.tables = vec![TableStat { id, name, rows, dead_rows, ..TableStat::default() }];
            find(&made.interval())
        };
        assert!(
            of(100_000, 300_000)
                .is_some_and(|found| found.evidence[0].contains("75.0 % of its rows"))
        );
        let mut held_up = minute();
        let (id, name) = ("1".to_owned(), "public.queue".to_owned());
        held_up.end.tables =
            vec![TableStat { id, name, dead_rows: 300_000, ..TableStat::default() }];
        held_up.end.add_level(level::OLDEST_TRANSACTION, "s", 4_000);
        let found = find(&held_up.interval()).expect("dead rows");
        assert!(found.evidence[1].contains("oldest open transaction is 4,000 s old"), "{found:?}");
        assert_eq!(of(100, 300), None);
        assert_eq!(of(3_000_000, 300_000), None);
    }
}

//! One statement is most of the time, or of Oracle a few: look at them before buying anything.

use super::{Finding, is_oracle, of_db_time};
use crate::{Interval, StatementStat, figure};

/// Share of DB time from which on one statement is worth naming.
const LEAST_PERCENT: f64 = 50.0;

/// A few statements: no more than these, each at least this share, and all together this much.
/// Oracle's report lists the longest of some hundred thousand; of other sources a list is all there
/// is, and its first rows are always much of it.
const FEW: usize = 5;
const LEAST_OF_ONE: f64 = 5.0;
const LEAST_OF_A_FEW: f64 = 15.0;

/// Of a database that does less than this on average, nothing is much.
const LEAST_SESSIONS: f64 = 0.05;

/// A statement that took less than this in all is much of nothing.
const LEAST_NS: u64 = 100_000_000;

/// How much of its text is shown.
const SHOWN: usize = 120;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let top = of.statements.rows.first().filter(|top| top.total_ns >= LEAST_NS)?;
    if of.active_sessions().is_some_and(|sessions| sessions < LEAST_SESSIONS) {
        return None;
    }
    // What everything is cannot be told apart from the load itself.
    if of.statements.rows.len() < 2 {
        return None;
    }
    let percent = of_db_time(of, top.total_ns)?;
    if percent < LEAST_PERCENT {
        return a_few(of);
    }
    let mut evidence = vec![told(top, percent)];
    if let Some(read) = top.pages_read.filter(|read| *read > 0) {
        evidence.push(format!(
            "It read {} pages that were not in the page cache.",
            figure::count(read)
        ));
    }
    Some(Finding {
        name: "One statement is most of DB time".to_owned(),
        impact_percent: Some(percent),
        evidence,
        advice: match super::target(of) {
            kind if kind == Some("redis") || super::is_kv(of) => {
                "Fewer of them, or smaller ones (pipelining, commands for many keys), \
                              may help more than any storage."
                    .to_owned()
            }
            _ => format!(
                "Look at its plan ({}). An index or fewer runs may help more than any storage.",
                super::plan(of)
            ),
        },
        tiersmith: None,
    })
}

fn told(of: &StatementStat, percent: f64) -> String {
    let text: String = of.text.chars().take(SHOWN).collect();
    // Oracle counts a run when it has ended.
    let runs = match of.calls {
        0 => "a run that has not ended".to_owned(),
        calls => figure::several(calls, "run"),
    };
    format!(
        "{} % of DB time in {runs} of: {}.",
        figure::percent(percent),
        figure::visible(if text.is_empty() { &of.id } else { &text })
    )
}

fn a_few(of: &Interval) -> Option<Finding> {
    if !is_oracle(of) {
        return None;
    }
    // The time of a block is that of the statements in it.
    let is_block = |row: &&StatementStat| {
        let text = row.text.trim_start().to_lowercase();
        ["begin", "call ", "declare", "{call"].iter().any(|begin| text.starts_with(begin))
    };
    let rows = of.statements.rows.iter().filter(|row| !is_block(row)).take(FEW);
    let few: Vec<(&StatementStat, f64)> = rows
        .filter_map(|row| Some((row, of_db_time(of, row.total_ns)?)))
        .take_while(|(_, percent)| *percent >= LEAST_OF_ONE)
        .collect();
    let percent = few.iter().map(|(_, percent)| percent).sum::<f64>().min(100.0);
    (percent >= LEAST_OF_A_FEW).then(|| Finding {
        name: match few.len() {
            1 => "One statement is much of DB time",
            _ => "A few statements are much of DB time",
        }
        .to_owned(),
        impact_percent: Some(percent),
        evidence: few
            .iter()
            .map(|(row, percent)| format!("SQL id {}: {}", row.id, told(row, *percent)))
            .collect(),
        advice: format!(
            "Look at {} ({}). An index or fewer runs may help more than any storage.",
            if few.len() == 1 { "its plan" } else { "their plans" },
            super::plan(of)
        ),
        tiersmith: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;

    #[test]
    fn it_names_a_statement_that_is_more_than_half() {
        let of = |seconds: u64| {
            let mut made = minute();
            let row = |id: &str, seconds: u64| StatementStat {
                id: id.to_owned(),
                text: format!("select {id}"),
                calls: 5,
                total_ns: seconds * 1_000_000_000,
                ..StatementStat::default()
            };
            made.end.statements = vec![row("a", seconds), row("b", 1)];
            find(&made.interval())
        };
        let of_oracle = {
            let mut made = minute();
            let row = |id: &str, seconds: u64| StatementStat {
                id: id.to_owned(),
                total_ns: seconds * 1_000_000_000,
                ..StatementStat::default()
            };
            made.end.statements = vec![row("a", 60), row("b", 1)];
            for snapshot in [&mut made.begin, &mut made.end] {
                snapshot.source.product = "Oracle".to_owned();
            }
            find(&made.interval()).expect("it speaks")
        };
        assert!(of_oracle.advice.contains("DBMS_XPLAN") && !of_oracle.advice.contains("ANALYZE"));
        assert!(of(60).is_some_and(|found| found.evidence[0].contains("select a")));
        assert_eq!(of(40), None);
        let idle = |ns| {
            let mut made = minute();
            let row = |id: &str, total_ns| StatementStat {
                id: id.to_owned(),
                calls: 5,
                total_ns,
                ..StatementStat::default()
            };
            made.end.statements = vec![row("a", ns), row("b", 1)];
            made.end.db_time_ns = Some(ns + 1);
            find(&made.interval())
        };
        assert_eq!(idle(2_000_000_000), None, "a thirtieth of a session");
        assert!(idle(6_000_000_000).is_some());
    }

    #[test]
    fn of_oracle_it_names_a_few_that_are_much_together() {
        let few = |product: &str, shares: &[u64], text: &str| {
            let mut made = minute();
            let row = |(at, seconds): (usize, &u64)| StatementStat {
                id: format!("s{at}"),
                text: format!("{text} {at}"),
                calls: 5,
                total_ns: seconds * 1_000_000_000,
                ..StatementStat::default()
            };
            made.end.statements = shares.iter().enumerate().map(row).collect();
            for snapshot in [&mut made.begin, &mut made.end] {
                snapshot.source.product = product.to_owned();
            }
            find(&made.interval())
        };
        let found = few("Oracle RAC", &[12, 8, 6, 2, 1], "select").expect("three of them");
        assert_eq!(
            (found.name.as_str(), found.impact_percent, found.evidence.len()),
            ("A few statements are much of DB time", Some(26.0), 3)
        );
        assert!(found.evidence[0].contains("SQL id s0: 12.0 %"), "{found:?}");
        let found = few("Oracle", &[40, 4], "select").expect("one of them");
        assert_eq!(
            (found.name.as_str(), found.impact_percent, found.evidence.len()),
            ("One statement is much of DB time", Some(40.0), 1)
        );
        assert!(found.advice.starts_with("Look at its plan ("), "{found:?}");
        assert_eq!(few("Oracle", &[8, 6, 2], "select"), None, "14 % are not much");
        let once = StatementStat { id: "a".to_owned(), calls: 1, ..StatementStat::default() };
        assert_eq!(told(&once, 7.0), "7.0 % of DB time in 1 run of: a.");
        let running = told(&StatementStat { id: "a".to_owned(), ..StatementStat::default() }, 7.0);
        assert_eq!(running, "7.0 % of DB time in a run that has not ended of: a.");
        assert_eq!(few("Oracle", &[4, 4, 4, 4, 4], "select"), None, "none is much of it");
        assert_eq!(few("Oracle", &[40, 8], "BEGIN p;"), None, "its statements are listed too");
        assert_eq!(few("PostgreSQL 18", &[12, 8, 6], "select"), None);
    }
}

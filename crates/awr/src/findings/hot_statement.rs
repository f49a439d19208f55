//! One statement is most of the time: look at it before buying anything.

use super::{Finding, of_db_time};
use crate::{Interval, figure};

/// Share of DB time from which on one statement is worth naming.
const LEAST_PERCENT: f64 = 50.0;

/// Of a database that does less than this on average, nothing is much.
const LEAST_SESSIONS: f64 = 0.05;

/// A statement that took less than this in all is much of nothing.
const LEAST_NS: u64 = 100_000_000;

/// How much of its text is shown.
const SHOWN: usize = 120;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let top = of.statements.rows.first().filter(|top| top.total_ns >= LEAST_NS)?;
    let percent = of_db_time(of, top.total_ns).filter(|percent| *percent >= LEAST_PERCENT)?;
    if of.active_sessions().is_some_and(|sessions| sessions < LEAST_SESSIONS) {
        return None;
    }
    // What everything is cannot be told apart from the load itself.
    if of.statements.rows.len() < 2 {
        return None;
    }
    let text: String = top.text.chars().take(SHOWN).collect();
    let mut evidence = vec![format!(
        "{} % of DB time in {} runs of: {}.",
        figure::percent(percent),
        figure::count(top.calls),
        figure::visible(if text.is_empty() { &top.id } else { &text })
    )];
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
            Some("redis") => {
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

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;
    use crate::StatementStat;

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
}

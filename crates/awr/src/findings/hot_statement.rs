//! One statement is most of the time: look at it before buying anything.

use super::{Finding, of_db_time};
use crate::{Interval, figure};

/// Share of DB time from which on one statement is worth naming.
const LEAST_PERCENT: f64 = 50.0;

/// How much of its text is shown.
const SHOWN: usize = 120;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let top = of.statements.rows.first()?;
    let percent = of_db_time(of, top.total_ns).filter(|percent| *percent >= LEAST_PERCENT)?;
    // What everything is cannot be told apart from the load itself.
    if of.statements.rows.len() < 2 {
        return None;
    }
    let text: String = top.text.chars().take(SHOWN).collect();
    let mut evidence = vec![format!(
        "{} % of DB time in {} runs of: {}",
        figure::percent(percent),
        figure::count(top.calls),
        figure::visible(if text.is_empty() { &top.id } else { &text })
    )];
    if let Some(read) = top.pages_read.filter(|read| *read > 0) {
        evidence.push(format!("It read {} pages that were not in the page cache.", figure::count(read)));
    }
    Some(Finding {
        name: "One statement is most of DB time".to_owned(),
        impact_percent: Some(percent),
        evidence,
        advice: "Look at its plan. An index or fewer runs may help more than any storage.".to_owned(),
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
        assert!(of(60).is_some_and(|found| found.evidence[0].contains("select a")));
        assert_eq!(of(40), None);
    }
}

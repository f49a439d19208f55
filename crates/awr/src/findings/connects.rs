//! Connecting and disconnecting is much of DB time: of Oracle, whose time model says how much.

use super::{Finding, is_idle, modelled};
use crate::snapshot::known::statistic;
use crate::{Interval, figure};

/// Share of DB time from which on it is worth saying.
const LEAST_PERCENT: f64 = 5.0;

pub(super) const NAME: &str = "Sessions connect and disconnect too often";

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let spent = modelled(of, "connection management call elapsed time")?;
    if spent.percent < LEAST_PERCENT || is_idle(of) {
        return None;
    }
    let mut evidence = vec![format!(
        "Calls that connect and disconnect are {} % of DB time.",
        figure::percent(spent.percent)
    )];
    if let Some(logons) = of.counter(statistic::LOGONS).filter(|logons| *logons > 0) {
        evidence.push(format!(
            "{} connections were made, {} a second.",
            figure::count(logons),
            figure::number(logons as f64 / of.elapsed_s())
        ));
    }
    Some(Finding {
        name: NAME.to_owned(),
        impact_percent: Some(spent.percent),
        evidence,
        advice: "Let programs keep their connections: a pool of connections in the program, or \
                 Database Resident Connection Pooling. Faster storage does not help."
            .to_owned(),
        tiersmith: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;

    #[test]
    fn connections_that_take_a_twentieth_are_found_and_a_few_are_not() {
        let of = |seconds: u64| {
            let made = minute()
                .counter(
                    "time model: connection management call elapsed time",
                    seconds * 1_000_000_000,
                )
                .counter(statistic::LOGONS, 120);
            find(&made.interval())
        };
        let found = of(11).expect("connections");
        assert_eq!(found.impact_percent, Some(11.0));
        assert!(
            found.evidence[1].contains("120 connections were made, 2.00 a second"),
            "{found:?}"
        );
        assert_eq!(of(4), None);
    }
}

//! Compiling statements is much of DB time: of Oracle, whose time model says how much.

use super::{Finding, Modelled, is_idle, modelled};
use crate::{Interval, figure};

/// Share of DB time from which on it is worth saying.
const LEAST_PERCENT: f64 = 5.0;

/// Of a kind of them, from which on it is named.
const LEAST_OF_A_KIND: f64 = 1.0;

/// Of the time of parses, the share from which on a kind of them is the reason.
const MOST: f64 = 0.5;

pub(super) const NAME: &str = "Compiling statements is much of DB time";

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let all = modelled(of, "parse time elapsed")?;
    if all.percent < LEAST_PERCENT || is_idle(of) {
        return None;
    }
    let mut evidence = vec![format!("Parses are {} % of DB time.", figure::percent(all.percent))];
    let kinds = [
        ("hard parse elapsed time", "hard parses: statements that were not in the shared pool"),
        ("failed parse elapsed time", "parses that failed with an error"),
        ("hard parse (bind mismatch) elapsed time", "hard parses because bind variables differed"),
    ];
    let mut reasons = Vec::new();
    for (name, words) in kinds {
        let much = |kind: &Modelled| kind.percent >= LEAST_OF_A_KIND;
        let Some(kind) = modelled(of, name).filter(much) else { continue };
        evidence.push(format!("{} % {words}.", figure::percent(kind.percent)));
        if kind.ns as f64 >= all.ns as f64 * MOST {
            reasons.push(name);
        }
    }
    let (calls, hard) = (of.counter("parse count (total)"), of.counter("parse count (hard)"));
    if let Some((calls, hard)) = calls.zip(hard).filter(|(calls, _)| *calls > 0) {
        evidence.push(format!(
            "{} parses, {} of them hard: {} a second.",
            figure::count(calls),
            figure::count(hard),
            figure::number(hard as f64 / of.elapsed_s())
        ));
    }
    let advice = match reasons.last() {
        Some(&"failed parse elapsed time") => {
            "Find the statements that are wrong (event 10035 or the SQL trace names them) and mend \
             the program that sends them."
        }
        Some(&"hard parse (bind mismatch) elapsed time") => {
            "Bind each variable with one type and length; V$SQL_SHARED_CURSOR says what differed."
        }
        Some(_) => {
            "Use bind variables instead of literals; where the program cannot be changed, \
             cursor_sharing = FORCE. If statements are pushed out of the shared pool, make it \
             larger (see the report's Shared Pool Advisory). Faster storage does not help."
        }
        None => {
            "Most are soft parses: let the program keep its cursors open and run them again, or \
             raise session_cached_cursors. Faster storage does not help."
        }
    };
    Some(Finding {
        name: NAME.to_owned(),
        impact_percent: Some(all.percent),
        evidence,
        advice: advice.to_owned(),
        tiersmith: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;

    #[test]
    fn parses_are_found_from_a_twentieth_on_and_the_kind_decides_the_advice() {
        let of = |all: u64, hard: u64, failed: u64| {
            let second = 1_000_000_000;
            let made = minute()
                .counter("time model: parse time elapsed", all * second)
                .counter("time model: hard parse elapsed time", hard * second)
                .counter("time model: failed parse elapsed time", failed * second)
                .counter("parse count (total)", 6_000)
                .counter("parse count (hard)", 600);
            find(&made.interval())
        };
        let hard = of(40, 35, 1).expect("hard parses");
        assert_eq!(hard.impact_percent, Some(40.0));
        assert!(hard.advice.contains("bind variables"), "{hard:?}");
        assert!(hard.evidence.iter().any(|line| line.contains("35.0 % hard parses")), "{hard:?}");
        assert!(hard.evidence.iter().any(|line| line.contains("600 of them hard")), "{hard:?}");
        let soft = of(40, 5, 1).expect("soft parses");
        assert!(soft.advice.contains("session_cached_cursors"), "{soft:?}");
        let failed = of(40, 30, 30).expect("parses that fail");
        assert!(failed.advice.contains("that are wrong"), "{failed:?}");
        assert_eq!(of(4, 4, 0), None);
        assert_eq!(find(&minute().interval()), None, "no time model");
    }
}

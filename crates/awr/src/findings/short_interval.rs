//! The interval is too short, or too little happened in it, to say much.

use super::Finding;
use crate::{Interval, figure};

/// Shorter intervals hold one checkpoint or none, and much of what they show is chance.
const SHORT_S: f64 = 30.0;

/// Fewer transactions than this are counted, not measured.
const FEW: u64 = 100;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let few = of.transactions().is_some_and(|count| count < FEW);
    let mut evidence = Vec::new();
    if of.elapsed_s() < SHORT_S {
        evidence.push(format!("The interval is {} s long.", figure::number(of.elapsed_s())));
    }
    if few {
        evidence.push(format!("{} transactions ended in it.", figure::count(of.transactions().unwrap_or(0))));
    }
    (!evidence.is_empty()).then(|| Finding {
        name: "Too short, or too little load, to rely on".to_owned(),
        impact_percent: None,
        evidence,
        advice: "Record for some minutes under the load that matters, and more than once.".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;
    use crate::known::statistic;

    #[test]
    fn it_speaks_of_short_intervals_and_of_idle_ones() {
        assert_eq!(find(&minute().interval()), None);
        assert_eq!(find(&minute().counter(statistic::USER_COMMITS, 5000).interval()), None);
        assert!(find(&minute().counter(statistic::USER_COMMITS, 5).interval()).is_some());
        let mut short = minute();
        short.end.monotonic_ns = short.begin.monotonic_ns + 5_000_000_000;
        assert!(find(&short.interval()).is_some_and(|found| found.evidence[0].contains("5.00 s")));
    }
}

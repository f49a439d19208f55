//! Requests waited until a page or a block was free.

use super::{Finding, of_db_time};
use crate::{Interval, figure};

/// Share of DB time from which on it is worth saying.
const LEAST_PERCENT: f64 = 1.0;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let advice = "Writing out is slower than changing: give the page cache or the tier more room, or put the files that are written \
                  out onto faster storage.";
    if let Some(wait) = of.wait("free buffer waits").filter(|wait| wait.count > 0) {
        let percent = of_db_time(of, wait.total_ns)?;
        return (percent >= LEAST_PERCENT).then(|| Finding {
            name: "Waits for free blocks".to_owned(),
            impact_percent: Some(percent),
            evidence: vec![format!(
                "{} waits of {} on average, {} % of DB time.",
                figure::count(wait.count),
                figure::nanoseconds(wait.mean_ns().unwrap_or(0.0)),
                figure::percent(percent)
            )],
            advice: advice.to_owned(),
        });
    }
    let waits = of.counter("waits for a free page in the buffer pool").filter(|count| *count > 0)?;
    Some(Finding {
        name: "Waits for free pages in the buffer pool".to_owned(),
        impact_percent: None,
        evidence: vec![format!("{} waits; the server does not time them.", figure::count(waits))],
        advice: advice.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use tiersmith_events::WaitClass;

    use super::super::made::minute;
    use super::*;

    #[test]
    fn it_speaks_from_one_per_cent_on() {
        let of = |seconds| {
            minute().wait("free buffer waits", WaitClass::Configuration, false, 10, seconds).interval()
        };
        assert_eq!(find(&of(5)).and_then(|found| found.impact_percent), Some(5.0));
        assert_eq!(find(&of(0)), None);
        assert!(find(&minute().counter("waits for a free page in the buffer pool", 3).interval()).is_some());
        assert_eq!(find(&minute().counter("waits for a free page in the buffer pool", 0).interval()), None);
    }
}

//! Requests wait for reads of data that a larger page cache, or a flash cache, would hold.

use tiersmith_events::WaitClass;

use super::{Finding, of_db_time, sampled_share};
use crate::known::statistic;
use crate::{Interval, figure};

/// Share of DB time from which on it is worth saying.
const LEAST_PERCENT: f64 = 10.0;

/// Above this share of pages found in the cache, more of it finds little more.
const GOOD_HIT_PERCENT: f64 = 99.0;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let names =
        ["db file sequential read", "db file scattered read", "db file parallel read", "direct path read"];
    let reads = of.foreground().into_iter().filter(|wait| names.contains(&wait.name.as_str()));
    let (count, ns) = reads.fold((0u64, 0u64), |(count, ns), wait| {
        (count.saturating_add(wait.count), ns.saturating_add(wait.total_ns))
    });
    let logical = of.counter(statistic::LOGICAL_READS).filter(|count| *count > 0)? as f64;
    let physical = of.counter(statistic::PHYSICAL_READS)? as f64;
    // Reads past the cache are among the physical ones: where there are more of these, the difference says nothing about the cache.
    let hit = (logical - physical) / logical * 100.0;
    if physical > logical || hit >= GOOD_HIT_PERCENT {
        return None;
    }
    let (percent, how) = match of_db_time(of, ns).filter(|percent| *percent > 0.0) {
        Some(percent) => (
            percent,
            format!(
                "{} reads of data of {} on average are {} % of DB time.",
                figure::count(count),
                figure::nanoseconds(ns as f64 / count.max(1) as f64),
                figure::percent(percent)
            ),
        ),
        None => {
            let (percent, seen) = sampled_share(of, WaitClass::UserIo)?;
            (
                percent,
                format!(
                    "In {} % of {} sightings (sampled, not measured) a session waited for data.",
                    figure::percent(percent),
                    figure::count(seen)
                ),
            )
        }
    };
    (percent >= LEAST_PERCENT).then(|| Finding {
        name: "Page cache too small, or data on slow storage".to_owned(),
        impact_percent: Some(percent),
        evidence: vec![how, format!("{} % of the pages asked for were in the page cache.", figure::percent(hit))],
        advice: "Give the database's page cache more memory if there is some; else a flash cache holds what is read again. Look at the \
                 statements that read most first: an index may read less."
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;

    #[test]
    fn it_needs_time_in_reads_and_a_cache_that_misses() {
        let of = |seconds, physical| {
            minute()
                .wait("db file sequential read", WaitClass::UserIo, false, 1000, seconds)
                .counter(statistic::LOGICAL_READS, 10_000)
                .counter(statistic::PHYSICAL_READS, physical)
                .interval()
        };
        assert_eq!(find(&of(30, 3000)).and_then(|found| found.impact_percent), Some(30.0));
        assert_eq!(find(&of(5, 3000)), None);
        assert_eq!(find(&of(30, 10)), None);
        assert_eq!(find(&of(30, 20_000)), None, "most of them went past the cache");
        assert_eq!(find(&minute().interval()), None);
    }
}

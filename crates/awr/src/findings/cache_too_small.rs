//! Requests wait for reads of data that a larger page cache, or a flash cache, would hold.

use tiersmith_events::WaitClass;

use super::{Finding, attach, of_db_time, sampled_share};
use crate::interval::page_cache_hit;
use crate::snapshot::known::statistic;
use crate::{Interval, figure};

/// Share of DB time from which on it is worth saying.
const LEAST_PERCENT: f64 = 10.0;

/// Below this share of pages found in the cache, many reads are worth saying even where they are
/// fast: each costs a call of the system and a copy.
const LOW_HIT_PERCENT: f64 = 90.0;
const MANY_A_SECOND: f64 = 1_000.0;

/// Fewer reads than this are the first ones of something, whatever their share.
const LEAST_READS: u64 = 1_000;

/// A read below this did not wait for a disk: the system's page cache had it.
const FAST_NS: f64 = 50_000.0;

/// Above this share of pages found in the cache, more of it finds little more.
const GOOD_HIT_PERCENT: f64 = 99.0;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    // Direct path reads go past the page cache: no size of it would hold them.
    let names = ["db file sequential read", "db file scattered read", "db file parallel read"];
    let reads = of.foreground().into_iter().filter(|wait| names.contains(&wait.name.as_str()));
    let (count, ns) = reads.fold((0u64, 0u64), |(count, ns), wait| {
        (count.saturating_add(wait.count), ns.saturating_add(wait.total_ns))
    });
    let hit = page_cache_hit(of).filter(|hit| *hit < GOOD_HIT_PERCENT)?;
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
    let missed = of.counter(statistic::PHYSICAL_READS).unwrap_or(0);
    if missed.max(count) < LEAST_READS {
        return None;
    }
    let many = hit < LOW_HIT_PERCENT && missed as f64 / of.elapsed_s() >= MANY_A_SECOND;
    let fast = count > 0 && ns > 0 && (ns as f64 / count as f64) < FAST_NS;
    let name = match fast {
        true => "Page cache too small",
        false => "Page cache too small, or data on slow storage",
    };
    (percent >= LEAST_PERCENT || (many && fast)).then(|| Finding {
        name: name.to_owned(),
        impact_percent: Some(percent),
        evidence: vec![
            how,
            format!("{} % of the pages asked for were in the page cache.", figure::percent(hit)),
        ],
        advice: "Give the database's page cache more memory if there is some; else a flash cache \
                 holds what is read again. Look at the \
                 statements that read most first: an index may read less."
            .to_owned(),
        tiersmith: attach(
            of,
            "pages that are read again stay in the fast tier (with --volatile \
                               also on fast storage that a power cut clears)",
        ),
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
        // The first statement of a session reads a part of the catalogue, in no time.
        let mut first = minute()
            .wait("db file sequential read", WaitClass::UserIo, false, 80, 30)
            .counter(statistic::LOGICAL_READS, 600)
            .counter(statistic::PHYSICAL_READS, 80);
        first.end.monotonic_ns = first.begin.monotonic_ns + 9_000_000;
        assert_eq!(find(&first.interval()), None);
        // A hundred thousand reads of 20 us: not slow storage, and too many all the same.
        let fast = |reads: u64| {
            let made = minute()
                .wait("db file sequential read", WaitClass::UserIo, false, 100 * reads, 2)
                .counter(statistic::LOGICAL_READS, 200 * reads)
                .counter(statistic::PHYSICAL_READS, 100 * reads);
            find(&made.interval())
        };
        assert!(fast(1_000).is_some_and(|found| found.name == "Page cache too small"));
        assert_eq!(fast(100), None, "167 a second");
        // Oracle tells reads past the cache: nearly all of these were such.
        let past = minute()
            .wait("db file sequential read", WaitClass::UserIo, false, 1000, 30)
            .wait("direct path read", WaitClass::UserIo, false, 1000, 30)
            .counter(statistic::LOGICAL_READS, 110_000)
            .counter(statistic::PHYSICAL_READS, 100_001)
            .counter("physical reads direct", 100_000)
            .interval();
        assert!(
            page_cache_hit(&past).is_some_and(|hit| hit > 99.98),
            "{:?}",
            page_cache_hit(&past)
        );
        assert_eq!(find(&past), None);
    }
}

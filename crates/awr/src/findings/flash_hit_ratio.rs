//! The flash cache misses often, and requests wait for home.
//!
//! Deliberately absent: what a larger tier would hit. The store keeps no distances of reuse, so its hit ratio is known at the size it has, and
//! the finding says that.

use super::{Finding, of_db_time};
use crate::known::statistic;
use crate::{Interval, figure};

/// Below this share of blocks found in the tier it is worth looking at.
const LOW_PERCENT: f64 = 80.0;

/// Share of DB time in reads of home from which on it is worth saying.
const LEAST_PERCENT: f64 = 5.0;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let hits = of
        .counter(statistic::FLASH_HITS)?
        .saturating_add(of.counter(statistic::ZERO_COPY_READS).unwrap_or(0));
    let misses = of.counter(statistic::FLASH_MISSES)?;
    let all = hits.saturating_add(misses);
    // Without a single hit there is no flash cache in the way of reads, or it is cold.
    if hits == 0 || all < 1000 {
        return None;
    }
    let hit = hits as f64 / all as f64 * 100.0;
    let home = of.wait("db file sequential read")?;
    let percent = of_db_time(of, home.total_ns)?;
    if hit >= LOW_PERCENT || percent < LEAST_PERCENT {
        return None;
    }
    let level =
        |name: &str| of.end.levels.iter().find(|level| level.name == name).map(|level| level.value as f64);
    let mut more = Vec::new();
    if let (Some(cached), Some(dirty), Some(free)) =
        (level("tier cached"), level("tier dirty"), level("tier free"))
    {
        more.push(format!(
            "At the end the tier held {} of clean copies and {} of dirty blocks, {} were free.",
            figure::bytes(cached),
            figure::bytes(dirty),
            figure::bytes(free)
        ));
    }
    if of.is_emulated() {
        more.push("The tier is emulated.".to_owned());
    }
    Some(Finding {
        name: "Flash cache hit ratio low".to_owned(),
        impact_percent: Some(percent),
        evidence: [format!(
            "{} % of {} blocks were in the tier; reads of home are {} % of DB time.",
            figure::percent(hit),
            figure::count(all),
            figure::percent(percent)
        )]
        .into_iter()
        .chain(more)
        .collect(),
        advice: "If the tier was attached recently or much of it is free, wait until it is warm and look again; else give it more room, or \
                 pin what matters. What a larger tier would hit was not measured: try one."
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use tiersmith_events::WaitClass;

    use super::super::made::minute;
    use super::*;

    #[test]
    fn it_needs_misses_and_time_in_reads_of_home() {
        let of = |hits, misses, seconds| {
            minute()
                .counter(statistic::FLASH_HITS, hits)
                .counter(statistic::FLASH_MISSES, misses)
                .wait("db file sequential read", WaitClass::UserIo, false, misses, seconds)
                .interval()
        };
        assert!(
            find(&of(5000, 5000, 20)).is_some_and(|found| found.evidence[0].contains("50.0 % of 10,000"))
        );
        assert_eq!(find(&of(9000, 1000, 20)), None);
        assert_eq!(find(&of(5000, 5000, 1)), None);
        assert_eq!(find(&of(0, 5000, 20)), None);
    }
}

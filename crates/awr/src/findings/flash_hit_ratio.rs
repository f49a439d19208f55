//! The flash cache misses often, and requests wait for home: judged by the curve that the recording
//! shows.
//!
//! While a cache fills, its hit ratio at each size it has on the way is measured: that is its
//! curve, as far as it went. A ratio that still rises will rise on without anybody's help; one that
//! has been flat while the tier was full says that this load wants another size.
//!
//! Deliberately absent: what a larger tier would hit. The store keeps no distances of reuse, so its
//! hit ratio is known at the sizes it had, and the finding says that.

use super::{Finding, Share};
use crate::interval::FlashPoint;
use crate::snapshot::known::statistic;
use crate::{Interval, figure};

/// Below this share of blocks found in the tier it is worth looking at.
const LOW_PERCENT: f64 = 80.0;

/// Share of DB time in reads of home from which on it is worth saying.
const LEAST_PERCENT: f64 = 5.0;

/// Of waits alone, where DB time is not known.
const LEAST_PERCENT_OF_WAITS: f64 = 20.0;

/// Fewer blocks read say little.
const LEAST_READS: u64 = 1000;

/// A ratio that changed by so many points from the second third of the recording to the last has
/// not settled.
const MOVES: f64 = 5.0;

/// Parts of the recording that the curve is shown by.
const PARTS: usize = 3;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let hits = of
        .counter(statistic::FLASH_HITS)?
        .saturating_add(of.counter(statistic::ZERO_COPY_READS).unwrap_or(0));
    let misses = of.counter(statistic::FLASH_MISSES)?;
    let all = hits.saturating_add(misses);
    // Without a single hit there is no flash cache in the way of reads, or it is cold.
    if hits == 0 || all < LEAST_READS {
        return None;
    }
    let hit = hits as f64 / all as f64 * 100.0;
    let home = of.wait("db file sequential read")?;
    let share = Share::new(of, home.total_ns)?;
    let least = if share.of_db_time { LEAST_PERCENT } else { LEAST_PERCENT_OF_WAITS };
    if hit >= LOW_PERCENT || share.percent < least {
        return None;
    }
    let level = |name: &str| {
        of.end.levels.iter().find(|level| level.name == name).map(|level| level.value as f64)
    };
    let mut evidence = vec![format!(
        "{} % of {} blocks were in the tier; reads of home are {}.",
        figure::percent(hit),
        figure::count(all),
        share.text()
    )];
    let points = of.timeline.as_ref().map(|line| line.flash(PARTS)).unwrap_or_default();
    evidence.extend(shown(&points));
    let free = level("tier free");
    if let (Some(cached), Some(dirty), Some(free)) =
        (level("tier cached"), level("tier dirty"), free)
    {
        evidence.push(format!(
            "At the end the tier held {} of clean copies and {} of dirty blocks, {} were free.",
            figure::bytes(cached),
            figure::bytes(dirty),
            figure::bytes(free)
        ));
    }
    if of.is_emulated() {
        evidence.push("The tier is emulated.".to_owned());
    }
    Some(Finding {
        name: "Flash cache hit ratio low".to_owned(),
        impact_percent: share.impact(),
        evidence,
        advice: advice(moves(&points), of.counter("blocks evicted")).to_owned(),
        tiersmith: None,
    })
}

/// What to do, by where the ratio goes and how many blocks were taken out of the tier. The store
/// keeps some room free for writers: the tier is full when it takes blocks out. A source that
/// does not count them leaves that open.
fn advice(moves: Option<Moves>, evicted: Option<u64>) -> &'static str {
    match (moves, evicted) {
        (Some(Moves::Up), _) => {
            "Its hit ratio still rises: let it fill, and look again before anything is bought."
        }
        (Some(Moves::Down), _) => {
            "Its hit ratio falls: what is read has changed or grown while this was recorded. Look \
             again when the load has settled, and record \
             what a load does that differs (a scan, a backup, more users) by itself; pin what \
             matters (tiersmith pin HOME PATTERN)."
        }
        (Some(Moves::Not), Some(1..)) => {
            "Its hit ratio has settled and blocks are taken out of the tier to make room: give it \
             more, or pin what matters (tiersmith pin HOME PATTERN). What a \
             larger tier would hit was not measured: try one."
        }
        (Some(Moves::Not), Some(0)) => {
            "Its hit ratio has settled, and nothing had to be taken out of the tier: more room \
             will not help. What is read is read once, or \
             written in between; pin what matters (tiersmith pin HOME PATTERN)."
        }
        (Some(Moves::Not), None) | (None, _) => {
            "If the tier was attached recently or much of it is free, wait until it is warm and \
             look again; else give it more room, or pin \
             what matters (tiersmith pin HOME PATTERN). What a larger tier would hit was not \
             measured: try one."
        }
    }
}

/// The curve in a sentence; nothing if there is none.
fn shown(points: &[FlashPoint]) -> Option<String> {
    if points.len() < 2 {
        return None;
    }
    let parts: Vec<String> = points
        .iter()
        .map(|point| {
            let cached = point.cached_bytes.map_or(String::new(), |bytes| {
                format!(" with {} of clean copies", figure::bytes(bytes as f64))
            });
            format!("{} %{cached}", figure::percent(point.hit_percent()))
        })
        .collect();
    Some(format!("Its curve, part by part of the recording: {}.", parts.join(", ")))
}

/// Where the ratio goes at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moves {
    Up,
    Down,
    Not,
}

/// Where the ratio goes at the end; nothing if too few parts tell it.
fn moves(points: &[FlashPoint]) -> Option<Moves> {
    let [.., before, last] = points else { return None };
    // A part with few reads tells nothing by its ratio.
    let enough = [before, last]
        .iter()
        .all(|point| point.hits.saturating_add(point.misses) >= LEAST_READS / 10);
    let by = last.hit_percent() - before.hit_percent();
    enough.then_some(match by {
        by if by >= MOVES => Moves::Up,
        by if by <= -MOVES => Moves::Down,
        _ => Moves::Not,
    })
}

#[cfg(test)]
mod tests {
    use tiersmith_events::WaitClass;

    use super::super::made::{Made, minute};
    use super::*;

    fn of(hits: u64, misses: u64, seconds: u64) -> Made {
        minute().counter(statistic::FLASH_HITS, hits).counter(statistic::FLASH_MISSES, misses).wait(
            "db file sequential read",
            WaitClass::UserIo,
            false,
            misses,
            seconds,
        )
    }

    #[test]
    fn it_needs_misses_and_time_in_reads_of_home() {
        let find = |made: Made| find(&made.interval());
        assert!(
            find(of(5000, 5000, 20))
                .is_some_and(|found| found.evidence[0].contains("50.0 % of 10,000"))
        );
        assert_eq!(find(of(9000, 1000, 20)), None);
        assert_eq!(find(of(5000, 5000, 1)), None);
        assert_eq!(find(of(0, 5000, 20)), None);
    }

    #[test]
    fn a_home_that_tells_no_db_time_is_judged_by_what_its_requests_waited() {
        let home = |writes| {
            let mut made =
                of(5000, 5000, 20).wait("tier block write", WaitClass::UserIo, false, 9, writes);
            (made.begin.db_time_ns, made.end.db_time_ns) = (None, None);
            find(&made.interval())
        };
        let found = home(5).expect("it speaks");
        assert!(
            found.evidence[0].contains("80.0 % of the time that requests waited here"),
            "{found:?}"
        );
        assert_eq!(found.impact_percent, None);
        assert_eq!(home(400), None);
    }

    #[test]
    fn advice_is_by_the_curve() {
        let point =
            |hits, cached| FlashPoint { hits, misses: 1000 - hits, cached_bytes: Some(cached) };
        let rising = [point(100, 1 << 20), point(300, 2 << 20), point(500, 3 << 20)];
        assert_eq!(
            shown(&rising).as_deref(),
            Some(
                "Its curve, part by part of the recording: 10.0 % with 1.0 MiB of clean copies, \
                 30.0 % with 2.0 MiB of clean copies, 50.0 % with \
                 3.0 MiB of clean copies."
            )
        );
        assert_eq!(moves(&rising), Some(Moves::Up));
        assert_eq!(moves(&[point(480, 1), point(500, 1)]), Some(Moves::Not));
        assert_eq!(moves(&[point(500, 1), point(480, 1)]), Some(Moves::Not));
        assert_eq!(moves(&[point(500, 1), point(300, 1)]), Some(Moves::Down), "it falls");
        assert_eq!(moves(&[point(480, 1)]), None);
        let few = FlashPoint { hits: 1, misses: 1, cached_bytes: None };
        assert_eq!(moves(&[few.clone(), few]), None, "by chance");
    }
}

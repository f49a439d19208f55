//! A database that is killed under load, with a stopwatch: what is asked for, and what was seen.
//!
//! **Invariant**: an operation counts after the kill only if it began when the killed database was
//! gone: what was answered before may still be on its way, and a signal takes its time.
//! **Deliberately absent**: the killing (`server/recover.rs`).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tiersmith_awr::events::Histogram;

/// Of a second, the length of a slot of the timeline.
pub const SLOT: Duration = Duration::from_millis(100);
/// How much of the throughput before the kill is full throughput.
pub const FULL_SHARE: f64 = 0.9;
/// Over how long throughput is looked at to call it full.
pub const WINDOW: Duration = Duration::from_millis(500);

/// How a recovery is watched.
pub struct Watch<'a> {
    /// How long the load runs before the kill.
    pub before: Duration,
    /// How long after the kill full throughput is waited for.
    pub patience: Duration,
    /// Whether to give up.
    pub stopped: &'a (dyn Fn() -> bool + Sync),
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recovered {
    /// Operations per second in the second half of the time before the kill.
    pub before_per_s: f64,
    /// From the kill to the end of the first operation that began after it.
    pub first_answer_s: f64,
    /// From the kill to the end of the first window of full throughput; nothing if there was none
    /// in time.
    pub full_s: Option<f64>,
    /// Keys that the server counted at its first reply, where it is a key-value server; as many as
    /// were acknowledged, or the run is an error.
    #[serde(default)]
    pub keys: Option<u64>,
    /// Operations in slots of a tenth of a second.
    pub timeline: Vec<Slot>,
}

/// A tenth of a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slot {
    /// When it begins, from the kill; negative before it.
    pub at_s: f64,
    /// Operations that ended in it, per second.
    pub per_s: f64,
    /// 99 of 100 of them took no longer; 0 if there was none.
    pub p99_ns: u64,
}

/// One operation: when it ended, from the beginning of the load, and how long it took.
pub(crate) type Seen = (Duration, Duration);

/// The first operation that began when the killed database was gone; when it ended, from the kill.
pub(crate) fn first_answer(seen: &[Seen], killed: Duration, gone: Duration) -> Option<Duration> {
    let began_after = seen.iter().filter(|(ended, took)| ended.saturating_sub(*took) >= gone);
    began_after.map(|(ended, _)| *ended - killed).min()
}

/// The operations as slots, the kill at zero.
pub(crate) fn timeline(seen: &[Seen], killed: Duration) -> Vec<Slot> {
    let slot_of = |ended: Duration| {
        let from_kill = ended.as_secs_f64() - killed.as_secs_f64();
        (from_kill / SLOT.as_secs_f64()).floor() as i64
    };
    let slots: Vec<(i64, Duration)> =
        seen.iter().map(|(ended, took)| (slot_of(*ended), *took)).collect();
    let (Some(first), Some(last)) =
        (slots.iter().map(|(n, _)| *n).min(), slots.iter().map(|(n, _)| *n).max())
    else {
        return Vec::new();
    };
    let mut histograms = vec![Histogram::new(); usize::try_from(last - first + 1).unwrap_or(0)];
    for (slot, took) in slots {
        let at = usize::try_from(slot - first).unwrap_or(0);
        if let Some(histogram) = histograms.get_mut(at) {
            histogram.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
    }
    let slot = |(n, histogram): (i64, &Histogram)| Slot {
        at_s: n as f64 * SLOT.as_secs_f64(),
        per_s: histogram.count() as f64 / SLOT.as_secs_f64(),
        p99_ns: histogram.quantile_ns(0.99).unwrap_or(0),
    };
    (first..).zip(&histograms).map(slot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ended: u64, took: u64) -> Seen {
        (Duration::from_millis(ended), Duration::from_millis(took))
    }

    #[test]
    fn an_answer_that_was_on_its_way_at_the_kill_is_not_the_first() {
        let seen = [ms(900, 10), ms(1003, 10), ms(1012, 1), ms(1750, 20), ms(1600, 30)];
        let (killed, gone) = (Duration::from_secs(1), Duration::from_millis(1020));
        assert_eq!(first_answer(&seen, killed, gone), Some(Duration::from_millis(600)));
        assert_eq!(first_answer(&seen[..3], killed, gone), None);
    }

    #[test]
    fn the_timeline_has_every_slot_from_the_first_operation_to_the_last_and_the_kill_at_zero() {
        let seen = [ms(810, 5), ms(820, 5), ms(950, 90), ms(1310, 10)];
        let slots = timeline(&seen, Duration::from_secs(1));
        let at: Vec<i64> = slots.iter().map(|slot| (slot.at_s * 10.0).round() as i64).collect();
        assert_eq!(at, [-2, -1, 0, 1, 2, 3]);
        let per_s: Vec<f64> = slots.iter().map(|slot| slot.per_s).collect();
        assert_eq!(per_s, [20.0, 10.0, 0.0, 0.0, 0.0, 10.0]);
        assert!(slots[1].p99_ns > 85_000_000 && slots[2].p99_ns == 0);
        assert!(timeline(&[], Duration::ZERO).is_empty());
    }
}

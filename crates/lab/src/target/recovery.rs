//! A database that is killed under load, with a stopwatch: what is asked for, and what was seen.
//!
//! **Invariant**: an operation counts after the kill only if it began when the killed database was
//! gone: what was answered before may still be on its way, and a signal takes its time.
//! **Deliberately absent**: the killing (`server/recover.rs`, `sqlite/recover.rs`).

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tiersmith_awr::events::Histogram;

use crate::error::{Error, Result};

/// Of a second, the length of a slot of the timeline.
pub const SLOT: Duration = Duration::from_millis(100);
/// How much of the throughput before the kill is full throughput.
pub const FULL_SHARE: f64 = 0.9;
/// Over how long throughput is looked at to call it full.
pub const WINDOW: Duration = Duration::from_millis(500);

/// How long is waited between two looks.
pub(crate) const LOOK: Duration = Duration::from_millis(5);

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

/// When the database was killed; times are from the beginning of the load.
pub(crate) struct Times {
    pub(crate) before_per_s: f64,
    pub(crate) killed: Duration,
    pub(crate) gone: Duration,
    pub(crate) full: Option<Duration>,
}

/// What the load does, for whoever watches it.
pub(crate) struct Meter {
    pub(crate) began: Instant,
    stop: AtomicBool,
    killed: AtomicBool,
    done: AtomicU64,
    seen: Mutex<Vec<Seen>>,
    failed: Mutex<Option<Error>>,
}

impl Meter {
    /// Of a load that begins now.
    pub(crate) fn now() -> Meter {
        Meter {
            began: Instant::now(),
            stop: AtomicBool::new(false),
            killed: AtomicBool::new(false),
            done: AtomicU64::new(0),
            seen: Mutex::new(Vec::new()),
            failed: Mutex::new(None),
        }
    }

    /// Whether the load is to end.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// An operation was acknowledged.
    pub(crate) fn count(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// These operations were counted.
    pub(crate) fn add(&self, seen: Vec<Seen>) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).extend(seen);
    }

    /// A client got an error: before the kill, it ends the run.
    pub(crate) fn note(&self, error: Error) {
        if !self.killed.load(Ordering::SeqCst) {
            self.note_always(error);
        }
    }

    /// An error that ends the run.
    pub(crate) fn note_always(&self, error: Error) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.stop();
    }

    /// The error that ended the run.
    pub(crate) fn failed(&self) -> Option<Error> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits until then, or until the load is to end.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub(crate) fn wait_until(&self, due: Instant, watch: &Watch<'_>) -> Result<()> {
        while Instant::now() < due && !self.stopped() {
            if (watch.stopped)() {
                return Err(Error::Interrupted);
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Waits, has the database killed and started again, and waits until the load is served as
    /// before.
    ///
    /// # Errors
    /// What `kill_and_start` says, which is told by `gone` when nothing of the killed one runs;
    /// [`Error::Interrupted`], also after [`Meter::note`].
    pub(crate) fn watch(
        &self,
        (watch, database): (&Watch<'_>, &Path),
        kill_and_start: impl FnOnce(&mut dyn FnMut()) -> Result<()>,
    ) -> Result<Times> {
        // Of a load that has yet to open its database, nothing is counted.
        let limit = Instant::now() + watch.patience;
        while self.done.load(Ordering::Relaxed) == 0 && Instant::now() < limit && !self.stopped() {
            self.wait_until(Instant::now() + LOOK, watch)?;
        }
        let first = Instant::now();
        self.wait_until(first + watch.before / 2, watch)?;
        let half = (Instant::now(), self.done.load(Ordering::Relaxed));
        self.wait_until(first + watch.before, watch)?;
        let done = self.done.load(Ordering::Relaxed) - half.1;
        let before_per_s = done as f64 / half.0.elapsed().as_secs_f64();
        if self.stopped() {
            // The error of a client says why.
            return Err(Error::Interrupted);
        }
        if done == 0 {
            return Err(Error::Target {
                what: "the load before the kill".into(),
                database: database.into(),
                reason: "nothing was done in the second half of it; give more --seconds".into(),
            });
        }
        self.killed.store(true, Ordering::SeqCst);
        let killed = self.began.elapsed();
        let mut gone = killed;
        kill_and_start(&mut || gone = self.began.elapsed())?;
        let until = self.began + killed + watch.patience;
        let full = self.full_again(FULL_SHARE * before_per_s, until, watch)?;
        Ok(Times { before_per_s, killed, gone, full })
    }

    /// Waits until the throughput of a window is full again; when that was.
    fn full_again(
        &self,
        wanted_per_s: f64,
        until: Instant,
        watch: &Watch<'_>,
    ) -> Result<Option<Duration>> {
        let mut samples = vec![(self.began.elapsed(), self.done.load(Ordering::Relaxed))];
        while Instant::now() < until && !self.stopped() {
            self.wait_until(Instant::now() + 4 * LOOK, watch)?;
            let now = (self.began.elapsed(), self.done.load(Ordering::Relaxed));
            samples.push(now);
            let Some(then) = samples.iter().rev().find(|(at, _)| *at + WINDOW <= now.0) else {
                continue;
            };
            let per_s = (now.1 - then.1) as f64 / (now.0 - then.0).as_secs_f64();
            if per_s >= wanted_per_s {
                return Ok(Some(now.0));
            }
        }
        Ok(None)
    }

    /// The result of a run.
    ///
    /// # Errors
    /// Nobody was answered after the kill.
    pub(crate) fn recovered(
        &self,
        times: &Times,
        keys: Option<u64>,
        (watch, database): (&Watch<'_>, &Path),
    ) -> Result<Recovered> {
        let seen = std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        let first = first_answer(&seen, times.killed, times.gone).ok_or_else(|| Error::Target {
            what: "the first answer after the kill".into(),
            database: database.into(),
            reason: format!(
                "there was none in {} s; give more --seconds",
                watch.patience.as_secs()
            ),
        })?;
        Ok(Recovered {
            before_per_s: times.before_per_s,
            first_answer_s: first.as_secs_f64(),
            full_s: times.full.map(|at| (at - times.killed).as_secs_f64()),
            keys,
            timeline: timeline(&seen, times.killed),
        })
    }
}

/// The first operation that began when the killed database was gone; when it ended, from the kill.
fn first_answer(seen: &[Seen], killed: Duration, gone: Duration) -> Option<Duration> {
    let began_after = seen.iter().filter(|(ended, took)| ended.saturating_sub(*took) >= gone);
    began_after.map(|(ended, _)| *ended - killed).min()
}

/// The operations as slots, the kill at zero.
fn timeline(seen: &[Seen], killed: Duration) -> Vec<Slot> {
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

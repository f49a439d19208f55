//! What happened between the ends of an interval, step by step: the data behind the charts over
//! time.
//!
//! Snapshots between the two ends make steps; consecutive steps are added up into slots, at most
//! [`SLOTS`] of them besides breaks, so that a day of snapshots fits a page and a table. A figure
//! of a slot is what was counted in it by its length: nothing is interpolated, and what one step of
//! a slot does not tell the slot does not tell.
//!
//! ```text
//! snapshots   |  |  |  |  |     |  |  |  |            x: the source was restarted
//! steps       --- -- -- --  (x)  -- -- --
//! slots       ------ -----       ----- --             a slot never spans a break
//! ```
//!
//! The axis is the time of day of the first snapshot and from there the clock that is never set: it
//! does not run backwards.
//!
//! Snapshots are read one at a time ([`Fold`]): a report of a week needs hardly more memory than
//! one of an hour.
//!
//! Invariants: slots are in order and do not overlap; measured and sampled figures are in different
//! fields; no figure is negative. Deliberately absent: drawing (`page/`), captions
//! (`report/over_time.rs`).

use std::collections::BTreeMap;

use tiersmith_events::WaitClass;

use crate::figure;
use crate::interval::left_out::{Broken, passed};
use crate::interval::series::{Gap, Series, Step};
use crate::snapshot::known::statistic;
use crate::{Interval, Snapshot, SnapshotId};

/// Slots between breaks are added up until there are no more than so many.
pub(crate) const SLOTS: u64 = 72;

/// There are never more slots than so many besides breaks.
const MOST_SLOTS: usize = 4 * SLOTS as usize;

/// A wait event: its name, and whether background work waits.
pub(crate) type EventKey = (String, bool);

/// An interval in steps.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    pub(crate) slots: Vec<Slot>,
    pub(crate) breaks: Vec<Missing>,
    /// Steps that the slots were made of.
    pub(crate) steps: usize,
    /// Steps that are no interval, in their order.
    pub(crate) broken: Vec<Broken>,
}

/// What happened in a slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot {
    pub(crate) from_unix_ns: u64,
    pub(crate) to_unix_ns: u64,
    /// Whether it follows the one before without a break between them.
    follows: bool,
    pub(crate) elapsed_ns: u64,
    pub(crate) db_time_ns: Option<u64>,
    pub(crate) db_cpu_ns: Option<u64>,
    /// Foreground waits by class, without those inside others; nothing if the source did not tell
    /// its waits.
    pub(crate) classes: Option<BTreeMap<WaitClass, u64>>,
    /// Looks at the sessions, and sessions seen by class.
    pub(crate) sampled: Option<(u64, BTreeMap<String, u64>)>,
    /// Processors of the host that worked, by time: busy and all, and how many there are.
    pub(crate) host: Option<(u64, u64)>,
    pub(crate) processors: Option<u32>,
    /// Waits by powers of two of a microsecond.
    pub(crate) histograms: BTreeMap<EventKey, Vec<u64>>,
    /// What the flash cache did; nothing if the source has none.
    pub(crate) flash: Option<FlashPoint>,
}

/// What a flash cache did in a time: a point of its curve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlashPoint {
    /// Blocks found in the tier.
    pub(crate) hits: u64,
    /// Blocks read from home.
    pub(crate) misses: u64,
    /// Clean copies that the tier held at its end.
    pub(crate) cached_bytes: Option<u64>,
}

impl FlashPoint {
    fn of(interval: &Interval) -> Option<FlashPoint> {
        let hits = interval.counter(statistic::FLASH_HITS)?;
        let zero_copy = interval.counter(statistic::ZERO_COPY_READS).unwrap_or(0);
        let cached = interval.end.levels.iter().find(|level| level.name == "tier cached");
        Some(FlashPoint {
            hits: hits.saturating_add(zero_copy),
            misses: interval.counter(statistic::FLASH_MISSES)?,
            cached_bytes: cached.map(|level| level.value),
        })
    }

    /// What both did, one after the other.
    fn then(&self, next: &FlashPoint) -> FlashPoint {
        FlashPoint {
            hits: self.hits.saturating_add(next.hits),
            misses: self.misses.saturating_add(next.misses),
            cached_bytes: next.cached_bytes,
        }
    }

    /// Blocks found in the tier, of all; 0 of none.
    pub(crate) fn hit_percent(&self) -> f64 {
        self.hits as f64 / (self.hits as f64 + self.misses as f64).max(1.0) * 100.0
    }
}

/// A time of which nothing can be said, or less than of the others.
#[derive(Clone, Debug)]
pub(crate) struct Missing {
    pub(crate) from_unix_ns: u64,
    pub(crate) to_unix_ns: u64,
    pub(crate) reason: String,
}

impl Timeline {
    /// The steps of a series. A step with a gap in it is true on average and too long to be drawn
    /// like the others: it is a break, whose reason has the average.
    pub fn of(series: &Series) -> Timeline {
        let ends = series.snapshots.first().zip(series.snapshots.last());
        let mut fold = Fold::new(ends, series.gaps.clone());
        let mut damaged = series.damaged.iter().map(|(id, _)| *id).peekable();
        for (snapshot, id) in series.snapshots.iter().zip(&series.ids) {
            while damaged.next_if(|damaged| damaged < id).is_some() {
                fold.damaged();
            }
            fold.add(*id, snapshot.clone());
        }
        fold.done().0
    }

    /// As [`Timeline::of`], of snapshots that are not in a repository.
    pub fn of_snapshots(snapshots: &[Snapshot]) -> Timeline {
        let snapshots: Vec<Snapshot> = snapshots.iter().map(Snapshot::brief).collect();
        let ids = (1..=snapshots.len() as u64).map(SnapshotId::new).collect();
        Timeline::of(&Series { snapshots, ids, ..Series::default() })
    }

    /// Whether there is something between the ends.
    pub(crate) fn is_worth_drawing(&self) -> bool {
        self.steps > 1 && !self.slots.is_empty()
    }

    /// What the flash cache did in `parts` parts of equally many slots; fewer if there are fewer
    /// slots, none if one of them does not tell.
    pub(crate) fn flash(&self, parts: usize) -> Vec<FlashPoint> {
        let slots: Option<Vec<&FlashPoint>> =
            self.slots.iter().map(|slot| slot.flash.as_ref()).collect();
        let slots = slots.unwrap_or_default();
        let part = slots.len().div_ceil(parts.max(1)).max(1);
        slots
            .chunks(part)
            .map(|part| part.iter().fold(FlashPoint::default(), |sum, next| sum.then(next)))
            .collect()
    }

    /// Average active sessions of each slot, measured, else sampled; none if a slot does not tell.
    pub(crate) fn loads(&self) -> Vec<f64> {
        let measured: Option<Vec<f64>> =
            self.slots.iter().map(|slot| slot.db_time_ns.map(|ns| slot.average(ns))).collect();
        let sampled = || {
            self.slots
                .iter()
                .map(|slot| {
                    let (looks, seen) = slot.sampled.as_ref().filter(|(looks, _)| *looks > 0)?;
                    Some(seen.values().sum::<u64>() as f64 / *looks as f64)
                })
                .collect::<Option<Vec<f64>>>()
        };
        measured.or_else(sampled).unwrap_or_default()
    }

    /// Its length, breaks included.
    pub(crate) fn length_ns(&self) -> u64 {
        let ends = self
            .slots
            .iter()
            .map(|slot| slot.to_unix_ns)
            .chain(self.breaks.iter().map(|of| of.to_unix_ns));
        ends.max().unwrap_or(0).saturating_sub(self.begins_unix_ns())
    }

    /// When it begins.
    pub(crate) fn begins_unix_ns(&self) -> u64 {
        let begins = self
            .slots
            .iter()
            .map(|slot| slot.from_unix_ns)
            .chain(self.breaks.iter().map(|of| of.from_unix_ns));
        begins.min().unwrap_or(0)
    }
}

/// A series on its way into slots, one snapshot after the other: what is held are the slots, the
/// breaks, and the last snapshot.
pub(crate) struct Fold {
    gaps: Vec<Gap>,
    last: Option<(SnapshotId, Snapshot)>,
    /// Whether a snapshot after the last one cannot be read.
    damaged: bool,
    ids: Vec<SnapshotId>,
    steps: usize,
    broken: Vec<Broken>,
    slots: Slots,
}

impl Fold {
    /// Between two snapshots, of which the times are looked at only: they say how long a slot is to
    /// be.
    pub(crate) fn new(ends: Option<(&Snapshot, &Snapshot)>, gaps: Vec<Gap>) -> Fold {
        let total_ns = ends.map_or(0, |(first, last)| passed(first, last));
        Fold {
            gaps,
            last: None,
            damaged: false,
            ids: Vec::new(),
            steps: 0,
            broken: Vec::new(),
            slots: Slots::new(0, total_ns / SLOTS),
        }
    }

    /// The next snapshot cannot be read.
    pub(crate) fn damaged(&mut self) {
        self.damaged = true;
    }

    /// The next snapshot.
    pub(crate) fn add(&mut self, id: SnapshotId, snapshot: Snapshot) {
        if let Some((before, begin)) = self.last.take() {
            let passed_ns = passed(&begin, &snapshot);
            let step = Step::between((before, &begin), (id, &snapshot), &self.gaps, self.damaged);
            let why = holes(&step);
            let made = match step.what {
                Ok(interval) if why.is_empty() => Made::Slot(Box::new(Slot::of(&interval))),
                Ok(interval) => {
                    let average = interval.active_sessions().map_or(String::new(), |sessions| {
                        format!("; {} active sessions on average", figure::number(sessions))
                    });
                    Made::Break(interval.elapsed_ns, format!("{why}{average}"))
                }
                Err(reason) => {
                    let (what, error) = (reason.name(), reason.error());
                    self.broken.push(Broken::new(
                        self.steps,
                        (before, &begin),
                        (id, &snapshot),
                        what,
                        error,
                    ));
                    Made::Break(passed_ns, format!("{what}: {error}"))
                }
            };
            self.slots.step(made);
            self.steps += 1;
        }
        if self.ids.is_empty() {
            self.slots.at = snapshot.taken_unix_ns;
        }
        self.damaged = false;
        self.ids.push(id);
        self.last = Some((id, snapshot));
    }

    /// How many snapshots and slots are held.
    #[cfg(test)]
    fn held(&self) -> (usize, usize) {
        (usize::from(self.last.is_some()), self.slots.line.slots.len())
    }

    /// The timeline, and the numbers of the snapshots that it was made of.
    pub(crate) fn done(mut self) -> (Timeline, Vec<SnapshotId>) {
        self.slots.join_rest();
        (Timeline { steps: self.steps, broken: self.broken, ..self.slots.line }, self.ids)
    }
}

/// Steps on their way into slots.
struct Slots {
    line: Timeline,
    /// How long a slot is to be.
    wanted_ns: u64,
    /// Where the next step begins.
    at: u64,
    /// Whether the step before was no break.
    open: bool,
}

impl Slots {
    fn new(from_unix_ns: u64, wanted_ns: u64) -> Slots {
        Slots { line: Timeline::default(), wanted_ns, at: from_unix_ns, open: false }
    }

    fn step(&mut self, step: Made) {
        let at = self.at;
        let length = match &step {
            Made::Slot(slot) => slot.elapsed_ns,
            Made::Break(ns, _) => *ns,
        };
        self.at = at.saturating_add(length);
        match step {
            Made::Break(_, reason) => {
                self.line.breaks.push(Missing { from_unix_ns: at, to_unix_ns: self.at, reason });
                self.open = false;
            }
            Made::Slot(mut slot) => {
                (slot.from_unix_ns, slot.to_unix_ns, slot.follows) = (at, self.at, self.open);
                self.open = true;
                self.line.slots.push(*slot);
                self.join_last();
                while self.line.slots.len() > MOST_SLOTS + self.line.breaks.len() {
                    self.coarsen();
                }
            }
        }
    }

    /// Adds the last slot to the one before it, if that is not long enough yet.
    fn join_last(&mut self) {
        let slots = &mut self.line.slots;
        let [.., before, last] = slots.as_slice() else { return };
        // Half of the next step more than wanted is nearer than half of it less: snapshots a little
        // early or late do not change how many there are in a slot. Steps of centuries, which only
        // hostile snapshots have, are joined too once nothing longer can be wanted.
        let short = before.elapsed_ns.saturating_add(last.elapsed_ns / 2) < self.wanted_ns;
        if last.follows && (short || self.wanted_ns == u64::MAX) {
            let last = slots.pop().expect("BUG: there are two");
            slots.last_mut().expect("BUG: there were two").add(last);
        }
    }

    /// Adds the rest behind the last beat to the slot before it: a recording ends when its command
    /// does, and what a server adds up as sessions end would be a peak of a few milliseconds that
    /// no session saw.
    fn join_rest(&mut self) {
        let slots = &mut self.line.slots;
        if let [.., before, last] = slots.as_slice()
            && last.follows
            && last.elapsed_ns < before.elapsed_ns / 4
        {
            let last = slots.pop().expect("BUG: there are two");
            slots.last_mut().expect("BUG: there were two").add(last);
        }
    }

    /// Makes slots twice as long. Only where the ends do not tell the length (a clock that was set
    /// while the machine was down) is this needed.
    fn coarsen(&mut self) {
        let all = std::mem::take(&mut self.line.slots);
        let sum = all.iter().fold(0u64, |sum, slot| sum.saturating_add(slot.elapsed_ns));
        self.wanted_ns = self.wanted_ns.saturating_mul(2).max(sum / MOST_SLOTS as u64).max(1);
        for slot in all {
            self.line.slots.push(slot);
            self.join_last();
        }
    }
}

/// A step as it comes.
enum Made {
    /// What happened.
    Slot(Box<Slot>),
    /// How long it was, and why nothing can be said.
    Break(u64, String),
}

/// What is known of holes in a step.
fn holes(step: &Step<'_>) -> String {
    let mut why = Vec::new();
    if let Some(gap) = step.gaps.first() {
        let more = step.gaps.len() - 1;
        let more = if more > 0 { format!(", and {more} times more") } else { String::new() };
        why.push(format!(
            "could not be asked at {}: {}{more}",
            figure::instant(gap.at_unix_ns),
            gap.reason
        ));
    }
    if step.damaged {
        why.push("a snapshot in it cannot be read".to_owned());
    }
    why.join("; ")
}

impl Slot {
    fn of(interval: &Interval) -> Slot {
        let mut classes = BTreeMap::new();
        let mut histograms = BTreeMap::new();
        for wait in
            interval.waits.iter().filter(|wait| wait.class != WaitClass::Idle && wait.count > 0)
        {
            if !wait.background && !wait.is_inside_another() {
                let sum: &mut u64 = classes.entry(wait.class).or_default();
                *sum = sum.saturating_add(wait.total_ns);
            }
            if wait.histogram.count() > 0 {
                let counts = histograms.entry((wait.name.clone(), wait.background)).or_default();
                add_up(counts, &wait.histogram.powers_of_two_us());
            }
        }
        let sampled = interval.sampling.as_ref().map(|sampling| {
            let mut seen: BTreeMap<String, u64> = BTreeMap::new();
            for event in &sampling.events {
                let sum = seen.entry(event.class.clone()).or_default();
                *sum = sum.saturating_add(event.seen);
            }
            (sampling.looks, seen)
        });
        // The recorder's processors say nothing about the sessions of a database on another
        // machine.
        let own = !interval.is_remote();
        let host = interval.host_cpu.filter(|_| own).map(|times| {
            let busy = times.user_ns.saturating_add(times.system_ns);
            let idle = times.idle_ns.saturating_add(times.iowait_ns).saturating_add(times.steal_ns);
            (busy, busy.saturating_add(idle))
        });
        Slot {
            from_unix_ns: 0,
            to_unix_ns: 0,
            follows: false,
            elapsed_ns: interval.elapsed_ns,
            db_time_ns: interval.db_time_ns,
            db_cpu_ns: interval.db_cpu_ns,
            classes: (!interval.waits.is_empty() || !interval.is_partial("waits"))
                .then_some(classes),
            sampled,
            host,
            processors: interval.end.host.cpus.filter(|_| own).map(|cpus| cpus.threads),
            histograms,
            flash: FlashPoint::of(interval),
        }
    }

    /// Adds what happened next.
    fn add(&mut self, next: Slot) {
        let both = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.saturating_add(b));
        self.to_unix_ns = next.to_unix_ns;
        self.elapsed_ns = self.elapsed_ns.saturating_add(next.elapsed_ns);
        self.db_time_ns = both(self.db_time_ns, next.db_time_ns);
        self.db_cpu_ns = both(self.db_cpu_ns, next.db_cpu_ns);
        self.classes = self.classes.take().zip(next.classes).map(|(mut classes, next)| {
            for (class, ns) in next {
                let sum = classes.entry(class).or_default();
                *sum = sum.saturating_add(ns);
            }
            classes
        });
        // Looks are counted, so a step without any only makes the estimate rest on fewer.
        self.sampled = match (self.sampled.take(), next.sampled) {
            (Some((looks, mut seen)), Some((more, others))) => {
                for (class, count) in others {
                    let sum = seen.entry(class).or_default();
                    *sum = sum.saturating_add(count);
                }
                Some((looks.saturating_add(more), seen))
            }
            (one, other) => one.or(other),
        };
        self.host = self
            .host
            .zip(next.host)
            .map(|(a, b)| (a.0.saturating_add(b.0), a.1.saturating_add(b.1)));
        self.processors = self.processors.filter(|of| Some(*of) == next.processors);
        self.flash =
            self.flash.as_ref().zip(next.flash.as_ref()).map(|(flash, next)| flash.then(next));
        for (event, counts) in next.histograms {
            add_up(self.histograms.entry(event).or_default(), &counts);
        }
    }

    /// Sessions that were active by a time in nanoseconds, on average.
    pub(crate) fn average(&self, ns: u64) -> f64 {
        ns as f64 / self.elapsed_ns.max(1) as f64
    }

    /// Processors of the host that worked, on average.
    pub(crate) fn processors_busy(&self) -> Option<f64> {
        let (busy, all) = self.host.filter(|(_, all)| *all > 0)?;
        Some(busy as f64 / all as f64 * f64::from(self.processors?))
    }
}

fn add_up(sums: &mut Vec<u64>, more: &[u64]) {
    if sums.len() < more.len() {
        sums.resize(more.len(), 0);
    }
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum = sum.saturating_add(*more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The slots of steps whose length is known before they come.
    fn made(from_unix_ns: u64, steps: Vec<Made>) -> Timeline {
        let length = |step: &Made| match step {
            Made::Slot(slot) => slot.elapsed_ns,
            Made::Break(ns, _) => *ns,
        };
        let total: u64 = steps.iter().map(length).sum();
        let mut slots = Slots::new(from_unix_ns, total / SLOTS);
        slots.line.steps = steps.len();
        steps.into_iter().for_each(|step| slots.step(step));
        slots.line
    }

    fn step(elapsed_ns: u64, db_time_ns: Option<u64>) -> Made {
        Made::Slot(Box::new(Slot { elapsed_ns, db_time_ns, ..Slot::default() }))
    }

    #[test]
    fn a_day_of_snapshots_a_minute_becomes_no_more_slots_than_fit() {
        // A little early and late in turn, as a recorder is.
        let steps = (0..1_440)
            .map(|n| step(60_000_000_000 + [0, 90_000_000][n % 2], Some(6_000_000_000)))
            .collect();
        let line = made(7, steps);
        assert_eq!((line.slots.len() as u64, line.steps), (SLOTS, 1_440));
        assert!(line.slots.iter().all(|slot| slot.db_time_ns == Some(20 * 6_000_000_000)));
        assert!(line.slots.windows(2).all(|pair| pair[0].to_unix_ns == pair[1].from_unix_ns));
        assert_eq!((line.begins_unix_ns(), line.length_ns()), (7, 1_440 * 60_045_000_000));
    }

    #[test]
    fn a_slot_never_spans_a_break_and_a_break_has_no_figures() {
        let mut steps: Vec<Made> = (0..200).map(|_| step(1_000, Some(500))).collect();
        steps.insert(100, Made::Break(5_000, "restarted".to_owned()));
        let line = made(0, steps);
        assert_eq!((line.breaks[0].from_unix_ns, line.breaks[0].to_unix_ns), (100_000, 105_000));
        assert!(
            line.slots
                .iter()
                .all(|slot| slot.to_unix_ns <= 100_000 || slot.from_unix_ns >= 105_000)
        );
        assert_eq!(
            line.slots.iter().map(|slot| slot.db_time_ns.unwrap_or(0)).sum::<u64>(),
            200 * 500
        );
    }

    #[test]
    fn hostile_lengths_end() {
        let mut slots = Slots::new(0, 1);
        for n in 0..4 * MOST_SLOTS as u64 {
            slots.step(step(u64::MAX - n % 3, Some(u64::MAX)));
            assert!(slots.line.slots.len() <= MOST_SLOTS, "step {n}");
        }
        let line = made(0, Vec::new());
        assert!(line.slots.is_empty());
    }

    #[test]
    fn what_one_step_does_not_tell_the_slot_does_not_tell() {
        let steps = (0..720).map(|n| step(1_000, (n != 5).then_some(500))).collect();
        let line = made(0, steps);
        assert_eq!(line.slots.iter().filter(|slot| slot.db_time_ns.is_none()).count(), 1);
    }

    #[test]
    fn what_is_held_of_a_week_of_snapshots_is_one_of_them_and_the_slots() {
        let source = crate::Source { instance: "1".to_owned(), ..crate::Source::default() };
        let at = |minute: u64| {
            let ns = minute * 60_000_000_000;
            let mut snapshot = Snapshot::at(source.clone(), 1_000_000_000_000_000_000 + ns, 1 + ns);
            snapshot.db_time_ns = Some(ns / 2);
            snapshot
        };
        let minutes = 7 * 1_440;
        let mut unknown = Fold::new(None, Vec::new());
        let mut fold = Fold::new(Some((&at(0), &at(minutes))), Vec::new());
        let mut most = [0, 0];
        for minute in 0..=minutes {
            for (fold, most) in [&mut fold, &mut unknown].into_iter().zip(&mut most) {
                fold.add(SnapshotId::new(minute + 1), at(minute));
                let (snapshots, slots) = fold.held();
                assert_eq!(snapshots, 1);
                *most = slots.max(*most);
            }
        }
        assert!(most[0] <= SLOTS as usize + 1 && most[1] <= MOST_SLOTS, "{most:?}");
        for fold in [fold, unknown] {
            let (line, ids) = fold.done();
            assert_eq!((line.steps, ids.len()), (minutes as usize, minutes as usize + 1));
            let sum: u64 = line.slots.iter().filter_map(|slot| slot.db_time_ns).sum();
            assert_eq!(sum, minutes * 30_000_000_000, "nothing is lost on the way");
            assert!(line.slots.windows(2).all(|pair| pair[0].to_unix_ns == pair[1].from_unix_ns));
        }
    }
}

//! A series: all snapshots of one source between two of them, for what changes over time.
//!
//! ```text
//! AnyRepository::series(first, last)  --->  Series { snapshots (brief), ids, gaps, damaged }
//!     --- steps --->  Step, Step, ...
//! ```
//!
//! A report does not hold a series: it reads the same snapshots one after the other and keeps what
//! its charts need (`timeline.rs`).
//!
//! The snapshots are [brief](Snapshot::brief): a day of one a minute is read in a fraction of the
//! time that the whole ones take. Their order is that of their numbers, which is the order in which
//! they were taken; the time of day may have been set back in between.
//!
//! A [`Step`] is what happened from one snapshot to the next. Where the source was restarted,
//! counters were reset or a snapshot cannot be read there is no interval but the reason: the line
//! of a chart is broken there. Where the source could not be asked the interval is true, but longer
//! than the others, and the step names the gaps in it.
//!
//! Deliberately absent: interpolation, and sums over steps.
//!
//! Invariants: no step has a negative figure; every snapshot of the series but the first ends
//! exactly one step.

use crate::{Error, Interval, Snapshot, SnapshotId};

/// All snapshots of one source between two of them.
#[derive(Debug, Default)]
pub struct Series {
    /// The snapshots, brief, in the order of their numbers.
    pub snapshots: Vec<Snapshot>,
    /// Their numbers, as many.
    pub ids: Vec<SnapshotId>,
    /// When the source could not be asked between the first and the last of them, and why.
    pub gaps: Vec<Gap>,
    /// Snapshots between them that cannot be read.
    pub damaged: Vec<(SnapshotId, Error)>,
}

/// An instant at which a source could not be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// What the source's snapshots are kept under.
    pub source: String,
    /// When.
    pub at_unix_ns: u64,
    /// Why.
    pub reason: String,
    /// The newest snapshot of the source then. Noting a gap with none here puts in the newest one
    /// of that moment.
    pub after: Option<SnapshotId>,
}

/// From one snapshot of a series to the next.
#[derive(Debug)]
pub struct Step<'a> {
    /// The number of the snapshot at its beginning.
    pub first: SnapshotId,
    /// The number of the snapshot at its end.
    pub last: SnapshotId,
    /// When it began, in nanoseconds since 1970 in UTC.
    pub begin_unix_ns: u64,
    /// When it ended.
    pub end_unix_ns: u64,
    /// Times in it at which the source could not be asked.
    pub gaps: Vec<&'a Gap>,
    /// Whether a snapshot in it cannot be read.
    pub damaged: bool,
    /// What happened, or why that cannot be said.
    pub what: Result<Box<Interval>, Break>,
}

impl<'a> Step<'a> {
    /// The step between two snapshots, with what is known of the time between them.
    pub(crate) fn between(
        (first, begin): (SnapshotId, &Snapshot),
        (last, end): (SnapshotId, &Snapshot),
        gaps: &'a [Gap],
        damaged: bool,
    ) -> Step<'a> {
        let inside =
            |gap: &&Gap| is_inside(gap, (first, begin.taken_unix_ns), (last, end.taken_unix_ns));
        let what =
            Interval::between(begin, end).map(|interval| Box::new(interval.with_ids(first, last)));
        Step {
            first,
            last,
            begin_unix_ns: begin.taken_unix_ns,
            end_unix_ns: end.taken_unix_ns,
            gaps: gaps.iter().filter(inside).collect(),
            damaged,
            what: what.map_err(|error| match error {
                Error::Restarted { .. } => Break::Restarted(error),
                Error::Reset { .. } => Break::Reset(error),
                _ => Break::Other(error),
            }),
        }
    }
}

/// Why there is no interval between two snapshots.
#[derive(Debug)]
#[non_exhaustive]
pub enum Break {
    /// The source was restarted: its counters began again at zero.
    Restarted(Error),
    /// A group of counters was set to zero.
    Reset(Error),
    /// Something else: no time passed, or the two do not fit together.
    Other(Error),
}

impl Break {
    /// A word or two for a chart.
    pub fn name(&self) -> &'static str {
        match self {
            Break::Restarted(_) => "restarted",
            Break::Reset(_) => "counters reset",
            Break::Other(_) => "no figures",
        }
    }

    /// The reason, as a sentence.
    pub fn error(&self) -> &Error {
        match self {
            Break::Restarted(error) | Break::Reset(error) | Break::Other(error) => error,
        }
    }
}

impl Series {
    /// What happened from each snapshot to the next, made one at a time: an interval is large.
    pub fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        let ends = self.snapshots.iter().zip(&self.ids);
        ends.clone().zip(ends.skip(1)).map(|(begin, end)| self.step(begin, end))
    }

    fn step<'a>(
        &'a self,
        (begin, first): (&Snapshot, &SnapshotId),
        (end, last): (&Snapshot, &SnapshotId),
    ) -> Step<'a> {
        let damaged = self.damaged.iter().any(|(id, _)| (*first..*last).contains(id));
        Step::between((*first, begin), (*last, end), &self.gaps, damaged)
    }

    /// Keeps the gaps that lie between its first and last snapshot.
    pub(crate) fn only_gaps_inside(&mut self) {
        let Some((first, last)) = self.ids.first().copied().zip(self.ids.last().copied()) else {
            self.gaps.clear();
            return;
        };
        let times = self.snapshots.iter().map(|snapshot| snapshot.taken_unix_ns);
        let (from, to) = (times.clone().min().unwrap_or(0), times.max().unwrap_or(0));
        self.gaps.retain(|gap| is_inside(gap, (first, from), (last, to)));
    }
}

/// Whether a gap lies between two snapshots, each told by its number and its time.
pub(crate) fn is_inside(
    gap: &Gap,
    (first, from): (SnapshotId, u64),
    (last, to): (SnapshotId, u64),
) -> bool {
    match gap.after {
        Some(after) => (first..last).contains(&after),
        // A gap that was noted by an older program carries no number: it is found by its time.
        None => (from..to).contains(&gap.at_unix_ns),
    }
}

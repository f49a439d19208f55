//! Intervals of a repository: with the snapshots between the two ends, and over a restart or a
//! reset.
//!
//! Deliberately absent: how parts are added up (`interval/sum.rs`), and how steps become slots
//! (`interval/timeline.rs`).

use super::AnyRepository;
use crate::interval::left_out::{LeftOut, is_break};
use crate::interval::sum::Parts;
use crate::interval::timeline::{Fold, Timeline};
use crate::{Error, Interval, Result, Snapshot, SnapshotId};

impl AnyRepository {
    /// What happened from snapshot `first` to snapshot `last`, with the snapshots between them.
    /// Over a restart or a reset it is the sum of what can be counted, and [`Interval::left_out`]
    /// says what is not in it.
    ///
    /// # Errors
    /// If a snapshot cannot be read, the two are no interval, or nothing can be counted: the source
    /// was restarted and there are no two snapshots of one run of it.
    pub fn interval(&self, first: SnapshotId, last: SnapshotId) -> Result<Interval> {
        let whole = Interval::between(&self.find(first)?, &self.find(last)?);
        let whole = whole.map(|whole| whole.with_ids(first, last));
        if first >= last || matches!(&whole, Err(error) if !is_break(error)) {
            return whole;
        }
        let (timeline, ids) = self.timeline(first, last)?;
        if ids.len() < 3 {
            // Nothing is drawn of a single step, so what is known of it is said.
            return whole.map(|mut whole| {
                let gaps = timeline.breaks.iter().map(|of| {
                    format!("Not recorded without a gap: {}.", crate::figure::visible(&of.reason))
                });
                whole.warnings.extend(gaps);
                whole
            });
        }
        let hidden = timeline.broken.iter().any(|broken| broken.time.what != NO_FIGURES);
        match whole {
            Ok(whole) if !hidden => Ok(whole.with_timeline(timeline)),
            whole => {
                let mut parts =
                    Parts { find: &|id| self.find(id), ids: &ids, sum: None, left_out: Vec::new() };
                parts.add_all(&timeline)?;
                let Some(mut sum) = parts.sum else { return Err(nothing(whole, &parts.left_out)) };
                for (at, of) in [(first, &mut sum.begin), (last, &mut sum.end)] {
                    *of = self.find(at)?;
                }
                sum.left_out = parts.left_out;
                sum.ids = Some((first, last));
                Ok(sum.with_timeline(timeline))
            }
        }
    }

    /// What happened between two snapshots of one source, step by step, and the numbers of the
    /// snapshots that could be read. They are read one at a time, and no more than one is held.
    fn timeline(&self, first: SnapshotId, last: SnapshotId) -> Result<(Timeline, Vec<SnapshotId>)> {
        let ends = [self.find(first)?.brief(), self.find(last)?.brief()];
        let mut gaps = self.gaps_of(&ends[0].source.path)?;
        // Each step looks at all of them: those of other times go first. The time of day may have
        // been set back inside.
        gaps.retain(|gap| gap.after.is_none_or(|after| (first..last).contains(&after)));
        let mut fold = Fold::new(Some((&ends[0], &ends[1])), gaps);
        let mut each = |id, read: Result<Snapshot>| match read {
            Ok(snapshot) => fold.add(id, snapshot),
            Err(_) => fold.damaged(),
        };
        match self {
            AnyRepository::Archive(archive) => archive.walk(first, last, &mut each)?,
            AnyRepository::Directory(repository) => repository.walk(first, last, &mut each)?,
        }
        Ok(fold.done())
    }
}

/// What [`Break::Other`](crate::Break::Other) is called.
const NO_FIGURES: &str = "no figures";

/// The error of an interval of which nothing can be counted, or whose ends fit and whose steps do
/// not.
fn nothing(whole: Result<Interval>, left_out: &[LeftOut]) -> Error {
    let reason = || left_out.first().map_or(String::new(), |first| first.reason.clone());
    whole.err().unwrap_or_else(|| Error::Restarted { reason: reason() })
}

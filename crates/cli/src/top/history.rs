//! The last intervals: activity for the chart, and figures for the panes. An interval that is not
//! known is a gap, never zero.
//!
//! Invariant: figures, which are large, are kept of the newest [`VIEWS`] intervals only.

use std::collections::VecDeque;
use std::sync::Arc;

use super::activity::Activity;
use super::view::View;

/// Intervals that are kept: more than the widest terminal shows.
const MOST: usize = 1_000;

/// Intervals whose figures are kept.
pub(super) const VIEWS: usize = 120;

/// One interval.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// When it ended, in seconds since 1970.
    pub(super) at_s: u64,
    /// Nothing for a gap.
    pub(super) activity: Option<Activity>,
    /// Nothing for a gap, and once it is too old.
    pub(super) view: Option<Arc<View>>,
}

impl Point {
    /// An interval that is not known.
    pub(super) fn gap(at_s: u64) -> Point {
        Point { at_s, activity: None, view: None }
    }
}

/// The last intervals, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    points: VecDeque<Point>,
}

impl History {
    pub(super) fn add(&mut self, point: Point) {
        self.points.push_back(point);
        while self.points.len() > MOST {
            self.points.pop_front();
        }
        if let Some(old) = self.points.len().checked_sub(VIEWS + 1) {
            self.points[old].view = None;
        }
    }

    /// So many intervals are kept.
    pub(super) fn len(&self) -> usize {
        self.points.len()
    }

    /// The interval that is `back` before the newest.
    pub(super) fn at(&self, back: usize) -> Option<&Point> {
        self.points.get(self.points.len().checked_sub(back + 1)?)
    }

    /// At most `most` intervals up to the one that is `back` before the newest, the oldest of them
    /// first.
    pub(super) fn last(&self, most: usize, back: usize) -> impl Iterator<Item = &Point> {
        let end = self.points.len().saturating_sub(back);
        self.points.range(end.saturating_sub(most)..end)
    }
}

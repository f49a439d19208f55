//! Activity over the last intervals, for the chart. An interval that is not known is a gap, never zero.

use std::collections::VecDeque;

use super::activity::Activity;

/// Intervals that are kept: more than the widest terminal shows.
const MOST: usize = 1_000;

/// One interval.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// When it ended, in seconds since 1970.
    pub(super) at_s: u64,
    /// Nothing for a gap.
    pub(super) activity: Option<Activity>,
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
    }

    /// The newest `most`, the oldest of them first.
    pub(super) fn last(&self, most: usize) -> impl Iterator<Item = &Point> {
        self.points.iter().skip(self.points.len().saturating_sub(most))
    }
}

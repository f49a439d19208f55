//! What charts have whose horizontal axis is time, and the largest of their values.
//!
//! Deliberately absent: how they are drawn (`page/over_time.rs`), what they show
//! (`report/over_time.rs`).

use serde::{Deserialize, Serialize};

use super::length;

/// A slot of a chart over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimeSlot {
    /// When it begins, in nanoseconds since 1970 in UTC.
    pub from_unix_ns: u64,
    /// When it ends.
    pub to_unix_ns: u64,
    /// A value for each series, or for each bucket.
    pub values: Vec<f64>,
    /// A value for each line; nothing where it is not known.
    pub lines: Vec<Option<f64>>,
}

/// A line over an area chart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// What it is.
    pub name: String,
    /// Whether it is a limit, drawn in dashes, and not something that happened.
    pub limit: bool,
}

/// A time of which nothing is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeGap {
    /// When it begins, in nanoseconds since 1970 in UTC.
    pub from_unix_ns: u64,
    /// When it ends.
    pub to_unix_ns: u64,
    /// Why nothing is known.
    pub reason: String,
}

/// What both charts over time have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OverTime {
    /// What it shows.
    pub title: String,
    /// How to read it, in a sentence; may be empty.
    pub explanation: String,
    /// The unit of its values.
    pub unit: String,
    /// Its slots, in order.
    pub slots: Vec<TimeSlot>,
    /// Times between them of which nothing is known.
    pub gaps: Vec<TimeGap>,
    /// The value at the end of its scale, so that two charts can have one scale; zero: its largest.
    pub top: f64,
    /// The length of its axis, so that two charts can have axes of one length; zero: its own.
    pub length_ns: u64,
}

/// The sum of the values and of what a line shows: the end of the scale is not below it.
pub(crate) fn most_of_area(series: usize, slots: &[TimeSlot]) -> f64 {
    let heights = slots.iter().flat_map(|slot| {
        let sum: f64 = slot.values.iter().take(series).map(|value| length(*value)).sum();
        std::iter::once(sum).chain(slot.lines.iter().flatten().map(|value| length(*value)))
    });
    heights.fold(0.0, f64::max)
}

/// The largest value by second.
pub(crate) fn most_of_heat(slots: &[TimeSlot]) -> f64 {
    let rates = slots.iter().flat_map(|slot| {
        let seconds = slot.to_unix_ns.saturating_sub(slot.from_unix_ns).max(1) as f64 / 1e9;
        slot.values.iter().map(move |value| length(*value) / seconds)
    });
    rates.fold(0.0, f64::max)
}

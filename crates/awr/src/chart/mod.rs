//! Charts as data: bars, bars in parts, histograms, areas and heat maps over time.
//!
//! Reports are made of them and say nothing of how they are drawn; `page/` draws them.
//!
//! | file | what |
//! |---|---|
//! | `over_time.rs` | what charts have whose horizontal axis is time |
//! | `front.rs` | what a page opens with: tiles, one chart, the longest waits, findings |
//!
//! Deliberately absent: lengths in pixels, colours as a style sheet knows them, tables
//! (`table.rs`).

mod front;
mod over_time;

use serde::{Deserialize, Serialize};

pub use front::{Front, Severity, Tile, Told};
pub use over_time::{Line, OverTime, TimeGap, TimeSlot};
pub(crate) use over_time::{most_of_area, most_of_heat};

use crate::table::Quantity;

/// A chart: data only, drawn by [`Page::chart`](crate::page::Page::chart).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Chart {
    /// One bar per row, longest value full width.
    Bars {
        /// What it shows.
        title: String,
        /// What the bars are, in a sentence; may be empty.
        explanation: String,
        /// What the values are.
        quantity: Quantity,
        /// The bars, in the order they are drawn.
        bars: Vec<Bar>,
    },
    /// One bar per row, made of parts; the longest sum full width.
    Stacked {
        /// What it shows.
        title: String,
        /// What the parts are, in a sentence; may be empty.
        explanation: String,
        /// What the values are.
        quantity: Quantity,
        /// The parts.
        series: Vec<Series>,
        /// The bars: a label and one value per part.
        rows: Vec<(String, Vec<f64>)>,
    },
    /// Several values per bucket, side by side: how a quantity is distributed.
    Histogram {
        /// What it shows.
        title: String,
        /// What the values are, in a sentence; may be empty.
        explanation: String,
        /// What the values are.
        quantity: Quantity,
        /// What is compared, one bar each.
        series: Vec<Series>,
        /// The buckets: a label and one value per series.
        buckets: Vec<(String, Vec<f64>)>,
    },
    /// Values over time, as areas on each other.
    Area {
        /// What it shows and when.
        #[serde(flatten)]
        of: OverTime,
        /// The layers, from the bottom up: one value of a slot each.
        series: Vec<Series>,
        /// Lines over them.
        lines: Vec<Line>,
    },
    /// Counts over time and by bucket, in shades: how a distribution changes.
    Heat {
        /// What it shows and when.
        #[serde(flatten)]
        of: OverTime,
        /// The buckets, from the smallest up: one value of a slot each.
        buckets: Vec<String>,
    },
}

/// A bar of [`Chart::Bars`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// What it is.
    pub label: String,
    /// How long it is.
    pub value: f64,
    /// Printed after the value; may be empty.
    pub detail: String,
    /// Its colour, 0 to 10.
    pub colour: u8,
}

/// What one colour of a chart stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its colour, 0 to 10.
    pub colour: u8,
}

/// What a value is drawn as: nothing if it is negative or not finite.
pub(crate) fn length(value: f64) -> f64 {
    if value.is_finite() && value > 0.0 { value } else { 0.0 }
}

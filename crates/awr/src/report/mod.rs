//! Reports as data: sections with tables and charts. `render/` prints them as text, CSV, Markdown
//! or a page; nothing here knows how.
//!
//! | file | what it makes |
//! |---|---|
//! | `single.rs` | the report of one interval, in the order of Oracle's AWR report |
//! | `compare.rs` | the report of two, after Oracle's Compare Periods report |
//! | `front.rs` | what the page of one interval opens with |
//! | `load.rs` | load profile and efficiency: what both calculate with |
//! | `time.rs` | where DB time went: top events, classes, and what is not accounted for |
//! | `latency.rs` | how waits are distributed |
//! | `more.rs` | findings, statements, samples of sessions: what live sources tell |
//! | `objects.rs` | databases, users, indexes, standbys |
//! | `plans.rs` | plans of statements |
//! | `io.rs` | reads and writes by function, file type, file class and tier |
//! | `printed.rs` | tables of an imported report as it prints them |
//! | `segments.rs` | reads by table or file |
//! | `over_time.rs` | what changed between the ends: sessions by wait class, latencies as heat maps |
//! | `sizes.rs` | memory of the host, sizes of caches, settings that changed |
//! | `tables.rs` | tables that both have: settings, media, explanations |
//!
//! Differences from Oracle's layout: sections of things that are not here (memory advisors, latches
//! of Oracle's) are left out, not printed empty; rows whose figure the source does not tell are
//! left out; a table accounts for DB time to the last nanosecond; a table gives percentiles beside
//! the histogram; media are listed with what they are.
//!
//! Invariant: a figure of a chart is in a table too, so that the text report lacks nothing.

mod compare;
mod front;
mod io;
mod latency;
mod load;
mod more;
mod objects;
mod over_time;
mod plans;
mod printed;
mod segments;
mod single;
mod sizes;
mod tables;
mod time;

use serde::{Deserialize, Serialize};

pub use compare::compare;
pub(crate) use more::{ADVICE, FINDINGS};
pub use single::report;

use crate::chart::{Chart, Front};
use crate::{Interval, Snapshot, Table};

/// How many wait events a table lists.
const ROWS: usize = 100;

/// A report: data only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What kind of text this is, when it is read as JSON: `tiersmith report`.
    pub kind: String,
    /// The format of the JSON form.
    pub format: u32,
    /// Its title.
    pub title: String,
    /// The line below.
    pub subtitle: String,
    /// What must not be overlooked: media that are emulated.
    pub banners: Vec<String>,
    /// Its contents.
    pub sections: Vec<Section>,
    /// The snapshots it was made from: begin and end of each interval.
    pub snapshots: Vec<Snapshot>,
    /// What its page opens with; only a report that was made here has it.
    #[serde(skip)]
    opening: Opening,
}

/// What a page opens with: the same figures as in the sections, so two reports do not differ by it.
#[derive(Clone, Debug, Default)]
struct Opening(Option<Front>);

impl PartialEq for Opening {
    fn eq(&self, _: &Opening) -> bool {
        true
    }
}

/// A part of a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Section {
    /// Its title.
    pub title: String,
    /// Its contents.
    pub items: Vec<Item>,
}

/// What a section holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Item {
    /// A paragraph.
    Text(String),
    /// A table.
    Table(Table),
    /// A chart. Not printed in text: its figures are in a table.
    Chart(Chart),
    /// Lines that stand as they are, in letters of one width: a plan.
    Lines {
        /// What they are.
        title: String,
        /// The lines.
        text: String,
    },
}

impl Section {
    fn new(title: &str) -> Section {
        Section { title: title.to_owned(), items: Vec::new() }
    }

    fn text(&mut self, text: impl Into<String>) {
        self.items.push(Item::Text(text.into()));
    }

    fn table(&mut self, table: Table) {
        self.items.push(Item::Table(table));
    }

    /// Adds a table unless it has no rows: a section of something the source does not have is left
    /// out.
    fn table_if_any(&mut self, table: Table) {
        if !table.rows.is_empty() {
            self.table(table);
        }
    }

    fn lines(&mut self, title: String, text: String) {
        self.items.push(Item::Lines { title, text });
    }

    fn charts(&mut self, charts: impl IntoIterator<Item = Chart>) {
        self.items.extend(charts.into_iter().map(Item::Chart));
    }
}

impl Report {
    fn new(title: String, subtitle: String, intervals: &[&Interval]) -> Report {
        Report {
            kind: "tiersmith report".to_owned(),
            format: 1,
            title,
            subtitle,
            banners: tables::banners(intervals),
            sections: Vec::new(),
            snapshots: intervals.iter().flat_map(|of| [of.begin.clone(), of.end.clone()]).collect(),
            opening: Opening::default(),
        }
    }

    /// Adds a section unless it is empty.
    fn add(&mut self, section: Section) {
        if !section.items.is_empty() {
            self.sections.push(section);
        }
    }

    /// What its page opens with; nothing for two intervals, and for a report that was read as JSON.
    pub(crate) fn opening(&self) -> Option<&Front> {
        self.opening.0.as_ref()
    }

    /// The report and its snapshots as JSON, on several lines.
    pub fn json(&self) -> String {
        let mut json = serde_json::to_string_pretty(self)
            .expect("BUG: a report holds text, lists and finite numbers");
        json.push('\n');
        json
    }
}

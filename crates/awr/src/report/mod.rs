//! Reports as data: sections with tables and charts, printed as text, JSON, CSV, Markdown or HTML.
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
//! | `io.rs` | reads and writes by function, file type, file class and tier |
//! | `printed.rs` | tables of an imported report as it prints them |
//! | `segments.rs` | reads by table or file |
//! | `over_time.rs` | what changed between the ends: sessions by wait class, latencies as heat maps |
//! | `sizes.rs` | memory of the host, sizes of caches, settings that changed |
//! | `tables.rs` | tables that both have: settings, media, explanations |
//! | `text.rs`, `delimited.rs` | the text, CSV and Markdown of any report |
//!
//! Differences from Oracle's layout: sections of things that are not here (memory advisors, latches
//! of Oracle's) are left out, not printed empty; rows whose figure the source does not tell are
//! left out; a table accounts for DB time to the last nanosecond; a table gives percentiles beside
//! the histogram; media are listed with what they are.
//!
//! Invariant: a figure of a chart is in a table too, so that the text report lacks nothing.

mod compare;
mod delimited;
mod front;
mod io;
mod latency;
mod load;
mod more;
mod over_time;
mod printed;
mod segments;
mod single;
mod sizes;
mod tables;
mod text;
mod time;

use serde::{Deserialize, Serialize};

pub use compare::compare;
pub use single::report;
pub use text::write_table;

use crate::page::{Chart, Front, Page};
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

    fn charts(&mut self, charts: impl IntoIterator<Item = Chart>) {
        self.items.extend(charts.into_iter().map(Item::Chart));
    }

    fn add_items_to(&self, page: &mut Page) {
        for item in &self.items {
            match item {
                Item::Text(text) => page.paragraph(text),
                Item::Table(table) => page.table(table),
                Item::Chart(chart) => page.chart(chart),
            };
        }
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

    /// The report as text, at most 100 columns wide.
    pub fn text(&self) -> String {
        text::render(self)
    }

    /// The report and its snapshots as JSON, on several lines.
    pub fn json(&self) -> String {
        let mut json = serde_json::to_string_pretty(self)
            .expect("BUG: a report holds text, lists and finite numbers");
        json.push('\n');
        json
    }

    /// The figures as CSV, one a line.
    pub fn csv(&self) -> String {
        delimited::csv(self)
    }

    /// The report as Markdown.
    pub fn markdown(&self) -> String {
        delimited::markdown(self)
    }

    /// The report as a page of HTML.
    pub fn html(&self) -> String {
        let mut page = Page::new(self.title.as_str());
        page.lead(self.subtitle.as_str());
        for banner in &self.banners {
            page.banner(banner.as_str());
        }
        match &self.opening.0 {
            Some(front) => {
                page.front(front.clone());
                self.add_rest_to(&mut page, front);
            }
            None => self.add_to(&mut page),
        }
        let instants = match self.snapshots.iter().all(|snapshot| snapshot.source.is_oracle()) {
            true => "Instants are as Oracle's report prints them, without a zone.",
            false => "Instants are in UTC.",
        };
        page.footer(format!("Made by Tiersmith. {instants} The page holds everything it shows."));
        page.render()
    }

    /// Adds the sections without what the page opens with.
    fn add_rest_to(&self, page: &mut Page, front: &Front) {
        let shown = |item: &Item| match item {
            Item::Table(table) => [more::FINDINGS, more::ADVICE].contains(&table.caption.as_str()),
            Item::Chart(chart) => front.chart.as_ref() == Some(chart),
            Item::Text(_) => false,
        };
        for section in &self.sections {
            page.section(&section.title);
            let items = section.items.iter().filter(|item| !shown(item)).cloned().collect();
            Section { title: String::new(), items }.add_items_to(page);
        }
    }

    /// Adds the report's sections to a page that also holds other things. Banners are for the
    /// caller to repeat.
    pub fn add_to(&self, page: &mut Page) {
        for section in &self.sections {
            page.section(&section.title);
            section.add_items_to(page);
        }
    }

    /// As [`Report::add_to`], below a section of the page: headings are one step smaller and not in
    /// its contents.
    pub fn add_below(&self, page: &mut Page) {
        for section in &self.sections {
            page.subsection(&section.title);
            section.add_items_to(page);
        }
    }
}

//! Oracle's reports as a source: AWR in HTML and text, single instance and RAC, and Statspack in
//! text.
//!
//! ```text
//! file --- html.rs or text.rs ---> grids: section, titles of columns, rows of text
//!      --- build.rs ---> two snapshots
//! ```
//!
//! | file | what |
//! |---|---|
//! | `html.rs` | tables of a page, however it was saved: upper or lower case, quoted or not |
//! | `text.rs` | tables of a text report, found by their lines of dashes |
//! | `value.rs` | numbers, times and dates as the reports print them |
//! | `build.rs` | which table holds what |
//! | `activity.rs` | instance activity: counters and levels |
//! | `printed.rs` | tables that are kept as they are printed: advisories, histograms, segments, statements |
//! | `model.rs` | the time model, and the sums of wait classes |
//! | `class.rs` | names of wait events, and their classes |
//!
//! A report tells an interval: the first snapshot has zeros, the second what the report counts. The
//! layouts are those of 11.2 to 19c; tables are known by their columns, because titles and
//! summaries change more often. Instants carry no time zone and are taken as they stand.
//!
//! Invariants: no bytes make a reader panic; lines, tables, rows, cells and names are bounded, far
//! above what reports have; what is beyond a bound, a figure that is none, and a table that is not
//! taken are listed.
//!
//! Deliberately absent: Oracle's Compare Periods and ASH reports (import the two AWR reports
//! instead).

mod activity;
mod build;
mod class;
mod html;
mod model;
mod printed;
mod text;
mod value;

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::{Error, Result, Snapshot};

/// What the paths of imported databases begin with: such a database lies nowhere here.
pub(crate) const PATH_BEGINS: &str = "Oracle database";

/// The largest report that is read.
const MOST_BYTES: u64 = 64 << 20;

/// More lines than any text report has.
const MOST_LINES: usize = 2_000_000;

/// More columns than any table of a report has.
const MOST_COLUMNS: usize = 64;

/// More tables than any report has.
const MOST_GRIDS: usize = 5_000;

/// More rows than any table of a report has.
const MOST_ROWS: usize = 10_000;

/// More cells than any report has, those that a cell spans included.
const MOST_CELLS: usize = 2_000_000;

/// More events or statistics than any report has.
const MOST_NAMES: usize = 5_000;

/// A report that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// What kind of report it was.
    pub kind: &'static str,
    /// The beginning of its interval: every counter is zero.
    pub begin: Snapshot,
    /// The end of its interval.
    pub end: Snapshot,
    /// Sections that were read.
    pub read: Vec<String>,
    /// Sections that are not known, and so not in the snapshots.
    pub unknown: Vec<String>,
    /// What was left out of sections that are known, and why: figures that are hidden or no
    /// numbers, and what is beyond a bound.
    pub left_out: Vec<String>,
    /// Whether the file ends where its report does.
    pub whole: bool,
}

/// The tables of a report, and what of it was beyond a bound.
#[derive(Clone, Debug, Default)]
struct Grids {
    grids: Vec<Grid>,
    left_out: LeftOut,
}

/// How often each bound left something out.
#[derive(Clone, Debug, Default)]
struct LeftOut(std::collections::BTreeMap<&'static str, usize>);

impl LeftOut {
    /// Something was left out because of this.
    fn because(&mut self, why: &'static str) {
        *self.0.entry(why).or_default() += 1;
    }

    /// What was left out, a line for each reason.
    fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.0.iter().map(|(why, times)| format!("{why} (times: {times})"))
    }
}

/// A table of a report, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Grid {
    /// The heading above it; in HTML also its summary.
    section: String,
    /// Titles of columns.
    columns: Vec<String>,
    /// Titles of groups of columns, one for each column that belongs to one; empty if there are
    /// none.
    groups: Vec<String>,
    /// The last row of titles, each as often as it has columns: it is of groups if another one
    /// follows.
    spread: Vec<String>,
    /// Where the column of each title begins, if one of them is over several; else empty.
    starts: Vec<usize>,
    /// Cells.
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// The column whose title is one of these, without regard to case and spaces.
    fn column(&self, titles: &[&str]) -> Option<usize> {
        let plain = |text: &str| -> String {
            text.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase).collect()
        };
        titles
            .iter()
            .find_map(|title| self.columns.iter().position(|column| plain(column) == plain(title)))
    }
}

impl Imported {
    /// Sections that were not read although findings and advice rest on sections of such a name.
    pub fn missed(&self) -> Vec<&str> {
        const MATTERS: [&str; 9] = [
            "background wait",
            "foreground wait",
            "init.ora",
            "instance activity",
            "load profile",
            "modified parameters",
            "time model",
            "top timed",
            "wait events",
        ];
        let matters = |section: &&str| {
            let lower = section.to_lowercase();
            MATTERS.iter().any(|words| lower.starts_with(words))
        };
        self.unknown.iter().map(String::as_str).filter(matters).collect()
    }

    /// Whether a snapshot that is there already ends the same interval of the same run of a
    /// database and says as much of it, in whatever layout its report was.
    pub fn adds_nothing_to(&self, begin_unix_ns: u64, end: &Snapshot) -> bool {
        let told = |of: &Snapshot| {
            let lists = [of.waits.len(), of.counters.len(), of.statements.len(), of.printed.len()];
            lists.iter().sum::<usize>() + of.source.settings.len()
        };
        let run =
            |of: &Snapshot| (of.source.path.clone(), of.source.instance.clone(), of.taken_unix_ns);
        run(&self.end) == run(end)
            && self.begin.taken_unix_ns == begin_unix_ns
            && told(&self.end) <= told(end)
    }
}

/// Reads a report from a file.
///
/// # Errors
/// If the file cannot be read, is too large, or is not one of these reports.
pub fn read(path: &Path) -> Result<Imported> {
    let place = path.display().to_string();
    let io = |source| Error::Io {
        action: "read the report",
        path: path.to_owned(),
        source,
        remedy: "Check that the file is there and can be read",
    };
    let foreign = |reason: &str| Error::Import { place: place.clone(), reason: reason.to_owned() };
    // Before it is opened: opening a named pipe would wait for somebody to write.
    if !fs::metadata(path).map_err(io)?.is_file() {
        return Err(foreign("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(io)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(foreign("it is larger than any report"));
    }
    // Reports are in the database's character set: what is not UTF-8 is mostly Latin-1, and in
    // names only.
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|e| e.into_bytes().iter().map(|byte| char::from(*byte)).collect());
    parse(&text, &place)
}

/// Reads a report from its text; `place` says in errors where that came from.
///
/// # Errors
/// If it is not one of these reports.
pub fn parse(text: &str, place: &str) -> Result<Imported> {
    let foreign =
        |reason: &str| Error::Import { place: place.to_owned(), reason: reason.to_owned() };
    let head: String = text.chars().take(200_000).flat_map(char::to_lowercase).collect();
    if head.contains("compare period report") {
        return Err(foreign(
            "it is a report of two periods; import the reports of each period instead",
        ));
    }
    if head.contains("ash report for") && !head.contains("workload repository report") {
        return Err(foreign("it is a report of active sessions"));
    }
    let (kind, grids) = if head.contains("<table") {
        ("AWR report in HTML", html::grids(text))
    } else if head.contains("statspack report for") {
        ("Statspack report", text::grids(text))
    } else if head.contains("workload repository") {
        ("AWR report in text", text::grids(text))
    } else {
        return Err(foreign("there is no title of such a report in it"));
    };
    let mut imported = build::snapshots(kind, grids, text).map_err(|reason| foreign(&reason))?;
    if !is_whole(text) {
        imported.whole = false;
        let torn = "all behind the end of the file, which ends before the report does".to_owned();
        imported.left_out.push(torn.clone());
        for snapshot in [&mut imported.begin, &mut imported.end] {
            snapshot.missing.push(torn.clone());
        }
    }
    Ok(imported)
}

/// Whether the last words are those of a whole report, in every layout.
fn is_whole(text: &str) -> bool {
    const LAST: &[u8] = b"end of report";
    /// How much may follow: the end of the page, the name of a spooled file.
    const BEHIND: usize = 4096;
    let bytes = text.trim_end().as_bytes();
    let tail = &bytes[bytes.len().saturating_sub(BEHIND)..];
    tail.windows(LAST.len()).any(|words| words.eq_ignore_ascii_case(LAST))
}

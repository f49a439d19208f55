//! What a page opens with: tiles, one chart with the longest waits beside it, and findings with
//! their advice.
//!
//! Deliberately absent: which figures stand there (`report/front.rs`), how they are drawn
//! (`page/front.rs`).

use super::{Bar, Chart};

/// A figure that is read first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tile {
    /// What it is.
    pub label: String,
    /// The figure, with its unit.
    pub value: String,
    /// What to set it against; may be empty.
    pub detail: String,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Severity {
    /// It may be worth a look.
    #[default]
    Low,
    /// It is a part of the time that is worth an afternoon.
    Medium,
    /// It is much of the time, or data may be lost.
    High,
}

/// A finding as the first screen shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// In a few words.
    pub name: String,
    /// Its share of the time; or another word in its place.
    pub share: String,
    /// How much it matters.
    pub severity: Severity,
    /// The figures it rests on.
    pub evidence: Vec<String>,
    /// What to do.
    pub advice: String,
    /// What a fast tier would do; may be empty.
    pub tier: String,
    /// The title of the section with its figures.
    pub section: String,
}

/// What a page opens with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Front {
    /// Four or so.
    pub tiles: Vec<Tile>,
    /// Where the time went; nothing if there is one interval only.
    pub chart: Option<Chart>,
    /// What the bars are.
    pub waits: String,
    /// The longest waits.
    pub bars: Vec<(Bar, String)>,
    /// What was found, what matters most first.
    pub findings: Vec<Told>,
}

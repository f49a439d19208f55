//! The first screen of a page: tiles, one chart with the longest waits beside it, and findings with
//! their advice.
//!
//! Invariant: colour alone says nothing: a finding says its share, or that it is about safety, in
//! words too. Deliberately absent: which figures stand there; the report chooses.

use std::fmt::Write as _;

use super::chart::{Bar, Chart};
use super::escape::escape;
use crate::table::Quantity;

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

impl Front {
    /// Draws it; `link` is the address of a section on the page.
    pub(super) fn draw(&self, out: &mut String, link: impl Fn(&str) -> Option<String>) {
        out.push_str("<div class=\"tiles\">\n");
        for tile in &self.tiles {
            let [label, value, detail] =
                [&tile.label, &tile.value, &tile.detail].map(|text| escape(text));
            let _ = writeln!(
                out,
                "<div class=\"tile\"><span>{label}</span><strong>{value}</strong>\
                 <small>{detail}</small></div>"
            );
        }
        out.push_str("</div>\n");
        let both = self.chart.is_some() && !self.bars.is_empty();
        let _ = writeln!(out, "<div class=\"{}\">", if both { "two" } else { "one" });
        if let Some(chart) = &self.chart {
            out.push_str("<div class=\"card\">\n");
            super::chart::draw(out, chart);
            out.push_str("</div>\n");
        }
        if !self.bars.is_empty() {
            out.push_str("<div class=\"card\">\n");
            // The figures are words here: each bar says its own.
            let bars =
                self.bars.iter().map(|(bar, shown)| Bar { detail: shown.clone(), ..bar.clone() });
            let chart = Chart::Bars {
                title: self.waits.clone(),
                explanation: String::new(),
                quantity: Quantity::Percent,
                bars: bars.collect(),
            };
            super::chart::draw(out, &chart);
            out.push_str("</div>\n");
        }
        out.push_str("</div>\n");
        if self.findings.is_empty() {
            return;
        }
        out.push_str("<h2 id=\"findings\">Findings</h2>\n<div class=\"card\">\n");
        for told in &self.findings {
            let severity = match told.severity {
                Severity::Low => "low",
                Severity::Medium => "medium",
                Severity::High => "high",
            };
            let (share, name) = (escape(&told.share), escape(&told.name));
            let _ = writeln!(
                out,
                "<section class=\"finding {severity}\"><strong \
                 class=\"share\">{share}</strong><div><h3>{name}</h3>"
            );
            for line in &told.evidence {
                let _ = writeln!(out, "<p class=\"quiet\">{}</p>", escape(line));
            }
            let _ = writeln!(out, "<p>{}</p>", escape(&told.advice));
            if !told.tier.is_empty() {
                let _ = writeln!(out, "<p>With Tiersmith: <code>{}</code></p>", escape(&told.tier));
            }
            if let Some(address) = link(&told.section) {
                let title = escape(&told.section);
                let _ = writeln!(out, "<p><a href=\"{address}\">{title}</a></p>");
            }
            out.push_str("</div></section>\n");
        }
        out.push_str("</div>\n");
    }
}

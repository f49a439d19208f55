//! The first screen of a page: tiles, one chart with the longest waits beside it, and findings with
//! their advice.
//!
//! Invariant: colour alone says nothing: a finding says its share, or that it is about safety, in
//! words too. Deliberately absent: which figures stand there; the report chooses.

use std::fmt::Write as _;

use super::escape::escape;
use crate::chart::{Bar, Chart, Front, Severity, Told};
use crate::table::Quantity;

/// Draws it; `link` is the address of a section on the page.
pub(super) fn draw(front: &Front, out: &mut String, link: impl Fn(&str) -> Option<String>) {
    out.push_str("<div class=\"tiles\">\n");
    for tile in &front.tiles {
        let [label, value, detail] =
            [&tile.label, &tile.value, &tile.detail].map(|text| escape(text));
        let _ = writeln!(
            out,
            "<div class=\"tile\"><span>{label}</span><strong>{value}</strong>\
             <small>{detail}</small></div>"
        );
    }
    out.push_str("</div>\n");
    let both = front.chart.is_some() && !front.bars.is_empty();
    let _ = writeln!(out, "<div class=\"{}\">", if both { "two" } else { "one" });
    if let Some(chart) = &front.chart {
        out.push_str("<div class=\"card\">\n");
        super::chart::draw(out, chart);
        out.push_str("</div>\n");
    }
    if !front.bars.is_empty() {
        out.push_str("<div class=\"card\">\n");
        // The figures are words here: each bar says its own.
        let bars =
            front.bars.iter().map(|(bar, shown)| Bar { detail: shown.clone(), ..bar.clone() });
        let chart = Chart::Bars {
            title: front.waits.clone(),
            explanation: String::new(),
            quantity: Quantity::Percent,
            bars: bars.collect(),
        };
        super::chart::draw(out, &chart);
        out.push_str("</div>\n");
    }
    out.push_str("</div>\n");
    if !front.findings.is_empty() {
        draw_findings(out, &front.findings, link);
    }
}

fn draw_findings(out: &mut String, findings: &[Told], link: impl Fn(&str) -> Option<String>) {
    out.push_str("<h2 id=\"findings\">Findings</h2>\n<div class=\"card\">\n");
    for told in findings {
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
            // The command stands first; what it does and when is prose.
            let end = told.tier.find(',').unwrap_or(told.tier.len());
            let (command, prose) = told.tier.split_at(end);
            let (command, prose) = (escape(command), escape(prose));
            let _ = writeln!(out, "<p>With Tiersmith: <code>{command}</code>{prose}</p>");
        }
        if let Some(address) = link(&told.section) {
            let title = escape(&told.section);
            let _ = writeln!(out, "<p><a href=\"{address}\">{title}</a></p>");
        }
        out.push_str("</div></section>\n");
    }
    out.push_str("</div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_a_tier_would_do_the_command_alone_is_code() {
        let told = Told {
            name: "n".to_owned(),
            tier: "tiersmith attach HOME --fast PATH, if it is not: <b>".to_owned(),
            ..Told::default()
        };
        let mut out = String::new();
        draw(&Front { findings: vec![told], ..Front::default() }, &mut out, |_| None);
        let shown = "<code>tiersmith attach HOME --fast PATH</code>, if it is not: &lt;b&gt;";
        assert!(out.contains(shown), "{out}");
    }
}

//! A report as a page of HTML, or as sections of a page that holds more.
//!
//! Deliberately absent: tags, which `page/` makes, and figures, which the report holds.

use crate::chart::Front;
use crate::page::Page;
use crate::report::{ADVICE, FINDINGS, Item, Report};

/// The report as a page of HTML.
pub fn html(report: &Report) -> String {
    let mut page = Page::new(report.title.as_str());
    page.lead(report.subtitle.as_str());
    for banner in &report.banners {
        page.banner(banner.as_str());
    }
    match report.opening() {
        Some(front) => {
            page.front(front.clone());
            sections(&mut page, report, |item| !is_on_the_front(item, front));
        }
        None => add_to(&mut page, report),
    }
    let instants = match report.snapshots.iter().all(|snapshot| snapshot.source.is_oracle()) {
        true => "Instants are as Oracle's report prints them, without a zone.",
        false => "Instants are in UTC.",
    };
    page.footer(format!("Made by Tiersmith. {instants} The page holds everything it shows."));
    page.render()
}

/// Adds the report's sections to a page that also holds other things. Banners are for the caller to
/// repeat.
pub fn add_to(page: &mut Page, report: &Report) {
    sections(page, report, |_| true);
}

fn sections(page: &mut Page, report: &Report, is_shown: impl Fn(&Item) -> bool) {
    for section in &report.sections {
        page.section(&section.title);
        section.items.iter().filter(|item| is_shown(item)).for_each(|item| add_item(page, item));
    }
}

/// Adds one part of a section.
pub fn add_item(page: &mut Page, item: &Item) {
    match item {
        Item::Text(text) => page.paragraph(text),
        Item::Table(table) => page.table(table),
        Item::Chart(chart) => page.chart(chart),
        Item::Lines { title, text } => page.folded(title, text),
    };
}

/// Whether the page opens with it: it is not shown again.
fn is_on_the_front(item: &Item, front: &Front) -> bool {
    match item {
        Item::Table(table) => [FINDINGS, ADVICE].contains(&table.caption.as_str()),
        Item::Chart(chart) => front.chart.as_ref() == Some(chart),
        Item::Text(_) | Item::Lines { .. } => false,
    }
}

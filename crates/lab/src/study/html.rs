//! A study as one page that needs nothing else: no script, no file beside it.
//!
//! First the comparison, then the warnings, the published figures, and for each case Oracle's
//! Compare Periods report beside its baseline.
//!
//! **Invariant**: an emulated tier is a banner on top; that figures cannot be trusted is said
//! before the first of them.

use tiersmith_awr::page::{Bar, Chart, Line, OverTime, Page, Series, TimeSlot};
use tiersmith_awr::{Quantity, compare, figure, render, report};

use super::result::{Row, StudyResult};
use super::{crossing, operations, tables, text};
use crate::case::Placement;
use crate::error::Result;

/// The page.
///
/// # Errors
/// If snapshots of a run do not belong together, which a study's own always do.
pub fn render(result: &StudyResult) -> Result<String> {
    let mut page =
        Page::new(format!("Tiersmith study: what a fast tier does for {}", result.database));
    head(&mut page, result);
    for pct in result.update_pcts() {
        comparison(&mut page, result, pct);
    }
    if let Some(table) = crossing::table(result) {
        page.section("Cross-check");
        page.table(&table);
    }
    warnings_and_places(&mut page, result);
    cases(&mut page, result);
    for pct in result.update_pcts() {
        for row in result.rows(pct) {
            if let Some(chart) = stalls(&row) {
                page.section(&format!("Stalls: {}, UPDATE_PCT {pct}", row.case.id));
                page.chart(&chart);
            }
            details(&mut page, &row)?;
        }
    }
    page.section("The same as text");
    page.folded("Everything above, to copy", &text::render(result));
    let command = result.command.join(" ");
    page.footer(format!(
        "Tiersmith {}{}{command}",
        result.version,
        if command.is_empty() { "" } else { ": " }
    ));
    Ok(page.render())
}

/// What was run where, and what must be known before anything is believed.
fn head(page: &mut Page, result: &StudyResult) {
    let machine = &result.machine;
    page.lead(format!(
        "{} UTC, {}, {} processors, {}. {} {}, load: {}, {} s per run, {} round(s).",
        figure::instant(result.taken_unix_ns),
        machine.processor.as_deref().unwrap_or("unknown processor"),
        machine.cpus,
        machine.platform.as_deref().unwrap_or("unknown system"),
        result.database,
        result.database_version,
        result.load,
        result.seconds,
        result.rounds
    ));
    for (_, warning) in result
        .all_warnings()
        .iter()
        .filter(|(_, w)| ["emulated", "home-model"].contains(&w.code.as_str()))
    {
        page.banner(warning.sentence.clone());
    }
    if result.has_warnings() {
        page.warning(
            "Some of these figures cannot be trusted. They are marked with (?); the \
                      reasons are in the section Warnings and notes.",
        );
    }
}

fn warnings_and_places(page: &mut Page, result: &StudyResult) {
    page.section("Warnings and notes");
    for (about, sentence, is_note) in result.grouped_warnings() {
        let text = if about.is_empty() { sentence } else { format!("{about}: {sentence}") };
        if is_note {
            page.paragraph(&text)
        } else {
            page.warning(&text)
        };
    }
    page.section("Where things were");
    page.list([
        format!("home: {}", result.places.home_is_on),
        format!(
            "tier: {}{}",
            result.places.tier_is_on,
            if result.places.emulated { ", EMULATED" } else { "" }
        ),
    ]);
}

/// The cases, and what others printed of them.
fn cases(page: &mut Page, result: &StudyResult) {
    page.section("Cases");
    for case in &result.cases {
        page.subsection(&format!("{}: {}", case.id, case.title));
        page.paragraph(&case.about);
    }
    if let Some(table) = tables::published(result) {
        page.section("What others printed");
        if let Some(beside) = tables::beside_published(result) {
            page.table(&beside);
        }
        page.table(&table);
    }
}

fn comparison(page: &mut Page, result: &StudyResult, pct: u32) {
    let rows = result.rows(pct);
    page.section(&format!("Comparison at UPDATE_PCT {pct}"));
    let on_tier = rows.iter().any(|row| row.case.placement != Placement::Home);
    let label = if result.places.emulated && on_tier {
        " Cases with something on the tier: EMULATED."
    } else {
        ""
    };
    let bars = |value: &dyn Fn(&Row<'_>) -> f64, ratio: &dyn Fn(&Row<'_>) -> Option<f64>| {
        rows.iter()
            .enumerate()
            .map(|(n, row)| Bar {
                label: format!("{}{}", row.case.title, if row.doubted { tables::MARK } else { "" }),
                value: value(row),
                detail: ratio(row).map_or_else(String::new, |ratio| {
                    format!("{} x the baseline", figure::number(ratio))
                }),
                colour: n as u8,
            })
            .collect::<Vec<Bar>>()
    };
    let commits = rows.iter().any(|row| row.run.measured.transactions > 0);
    if commits {
        page.chart(&Chart::Bars {
            title: "Transactions per second".into(),
            explanation: format!("Committed and durable; longer is better.{label}"),
            quantity: Quantity::Number,
            bars: bars(&|row| row.run.measured.transactions_per_s(), &|row| {
                row.transactions_ratio()
            }),
        });
    }
    if pct < 100 {
        page.chart(&Chart::Bars {
            title: "Executions per second".into(),
            explanation: format!("SELECT and UPDATE statements; longer is better.{label}"),
            quantity: Quantity::Number,
            bars: bars(&|row| row.run.measured.executes_per_s(), &|row| row.executes_ratio()),
        });
    }
    if commits {
        page.chart(&Chart::Bars {
            title: "Commit, 99th percentile".into(),
            explanation: format!("99 of 100 commits took no longer; shorter is better.{label}"),
            quantity: Quantity::Nanoseconds,
            bars: bars(&|row| row.run.measured.commit.p99_ns as f64, &|_| None),
        });
    }
    for table in operations::tables(result, pct) {
        page.table(&table);
    }
    page.table(&tables::comparison(result, pct));
    page.table(&tables::waits(result, pct));
}

/// p99 over time of a case and of its baseline, on one axis that begins with each run.
fn stalls(row: &Row<'_>) -> Option<Chart> {
    let (here, base) = (&row.run.measured, &row.baseline?.measured);
    let slots = here.p99_slices_ns.len().min(base.p99_slices_ns.len());
    if slots < 2 {
        return None;
    }
    let begin = here.begin.taken_unix_ns;
    let length = (here.elapsed_s * 1e9) as u64 / here.p99_slices_ns.len() as u64;
    let milliseconds = |ns: &u64| *ns as f64 / 1e6;
    let slot = |(n, (of_base, of_here)): (u64, (&u64, &u64))| TimeSlot {
        from_unix_ns: begin + n * length,
        to_unix_ns: begin + (n + 1) * length,
        values: vec![milliseconds(of_base)],
        lines: vec![Some(milliseconds(of_here))],
    };
    let both = base.p99_slices_ns.iter().zip(&here.p99_slices_ns);
    Some(Chart::Area {
        of: OverTime {
            title: format!("99th percentile of statements and commits: {}", row.case.id),
            explanation: "The area is the baseline, the line the case; both begin with their own \
                          run. A peak is a stall, as of a checkpoint."
                .into(),
            unit: "ms".into(),
            slots: (0..).zip(both).map(slot).collect(),
            gaps: Vec::new(),
            top: 0.0,
            length_ns: 0,
        },
        series: vec![Series { name: row.baseline?.case.clone(), colour: 0 }],
        lines: vec![Line { name: row.case.id.clone(), limit: false }],
    })
}

/// The workload repository's report of a case, as one section: beside its baseline, or alone if it
/// is one.
fn details(page: &mut Page, row: &Row<'_>) -> Result<()> {
    let interval = row.run.interval()?;
    let (title, report) = match row.baseline {
        Some(baseline) => (
            format!("{} beside {}", row.case.id, baseline.case),
            compare(&baseline.interval()?, &interval),
        ),
        None => (row.case.id.clone(), report(&interval)),
    };
    page.section(&format!("{title}, UPDATE_PCT {}", row.run.update_pct));
    page.paragraph(&report.subtitle);
    for section in &report.sections {
        page.subsection(&section.title);
        section.items.iter().for_each(|item| render::add_item(page, item));
    }
    Ok(())
}

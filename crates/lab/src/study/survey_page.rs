//! A survey as text and as one page: the verdict first, then ours beside the printed figures, then
//! what could not be run and why.

use std::fmt::Write as _;

use tiersmith_awr::page::Page;
use tiersmith_awr::{Cell, Table, figure, write_table};

use super::beside::{
    counterpart, is_ratio_of_commits, is_ratio_of_executes, is_ratio_of_transactions,
};
use super::recovery;
use super::result::{Row, StudyResult};
use super::survey::{Outcome, Ran, Survey, Surveyed};
use super::{tables, text};
use crate::experiments::{Here, RECOVERY};
use crate::published::{self, Figure, LABEL};
use crate::workload::tpcc;

/// What the survey found, in sentences.
pub fn verdict(survey: &Survey) -> String {
    let count =
        |is: fn(&Outcome) -> bool| survey.experiments.iter().filter(|one| is(&one.outcome)).count();
    let ran = count(|outcome| matches!(outcome, Outcome::Ran(_)));
    let not_here = count(|outcome| matches!(outcome, Outcome::NotHere(_)));
    let mut said = format!(
        "{ran} of {} published experiments were run on this machine; {not_here} could not be run \
         here, and {} \
         have nothing that stands for them.",
        survey.experiments.len(),
        count(|outcome| matches!(outcome, Outcome::Nothing(_)))
    );
    let gains: Vec<(f64, f64)> =
        survey.experiments.iter().filter_map(|one| gain(survey, one)).collect();
    let agree = gains.iter().filter(|(printed, here)| (*printed > 1.0) == (*here > 1.0)).count();
    if !gains.is_empty() {
        let _ = write!(
            said,
            " Of the {} that printed a gain in transactions or executes over a baseline that ran \
             here too, {agree} \
             have a gain in the same direction here.",
            gains.len()
        );
    }
    if is_doubted(survey) {
        said.push_str(
            " Figures with (?) cannot be trusted: the machine was busy, or the runs were short.",
        );
    }
    said
}

fn is_doubted(survey: &Survey) -> bool {
    survey.studies.iter().any(StudyResult::has_warnings)
}

fn is_emulated(survey: &Survey) -> bool {
    survey.studies.iter().any(|study| study.places.emulated)
        || survey.recovery.as_ref().is_some_and(recovery::is_emulated)
}

/// The row of a case at its first UPDATE_PCT.
fn row<'a>(survey: &'a Survey, ran: &Ran) -> Option<Row<'a>> {
    let study = survey.studies.get(ran.study?)?;
    let mut pcts = study.update_pcts().into_iter();
    pcts.find_map(|pct| study.rows(pct).into_iter().find(|row| row.case.id == ran.case))
}

fn ran(one: &Surveyed) -> &[Ran] {
    match &one.outcome {
        Outcome::Ran(ran) => ran,
        _ => &[],
    }
}

/// Every printed figure of an experiment, beside its document's baseline.
fn figures(one: &Surveyed) -> Vec<Figure> {
    let found = one.experiment.figures.iter().filter_map(|id| published::find(id).ok());
    found.flat_map(|published| published.figures).collect()
}

/// The printed gain in transactions, else in executes, and ours.
fn gain(survey: &Survey, one: &Surveyed) -> Option<(f64, f64)> {
    let row = ran(one).iter().filter(|ran| !ran.beside).find_map(|ran| row(survey, ran))?;
    let of = |figure: &Figure| -> Option<(f64, f64)> {
        let here = match figure.name.as_str() {
            "executes_per_s" => row.executes_ratio()?,
            "transactions_per_s" => row.transactions_ratio()?,
            name if is_ratio_of_transactions(name) => row.transactions_ratio()?,
            name if is_ratio_of_executes(name) => row.executes_ratio()?,
            _ => return None,
        };
        Some((figure.ratio()?, here))
    };
    let figures = figures(one);
    let first =
        figures.iter().find(|figure| figure.name != "executes_per_s" && of(figure).is_some());
    first.or_else(|| figures.iter().find(|figure| of(figure).is_some())).and_then(of)
}

/// Columns of the next table.
const PRINTED_X: usize = 4;
const ON: usize = 5;
const HERE_X: usize = 8;

/// Every printed figure with its counterpart.
fn beside(survey: &Survey) -> Table {
    let mut table = Table::new("Ours beside the printed figures")
        .text("Experiment", "Its name here.")
        .text("Figure", "What was printed.")
        .figures("Base", "", "The figure of the document's baseline, where it printed one.")
        .figures("Printed", "", "The figure.")
        .figures("x", "", "Printed over its baseline.")
        .text("On", "The target here.")
        .figures("Base", "", "Ours of the baseline.")
        .figures("Here", "", "Ours; empty: nothing here means the same.")
        .figures("x", "", "Ours over our baseline.");
    for one in &survey.experiments {
        let itself = ran(one).iter().filter(|ran| !ran.beside);
        let rows: Vec<(&Ran, Row<'_>)> =
            itself.filter_map(|ran| Some((ran, row(survey, ran)?))).collect();
        for printed in figures(one) {
            table.rows.extend(beside_recovery(survey, one, &printed));
            for (ran, row) in &rows {
                table.row(beside_row(one, &printed, ran, row));
            }
        }
    }
    table.note(LABEL);
    table
        .note("Times and rates are of other hardware and another database: compare the columns x.");
    if survey.experiments.iter().any(|one| one.experiment.id.starts_with("sandisk")) {
        table.note(
            "The flash study prints a cost saving of 63 %; the prices that it states, 6,268 for \
             14,551 USD, give \
             57 %.",
        );
    }
    if survey.studies.iter().any(|study| study.load.contains(tpcc::LABEL)) {
        table.note(format!("Figures of tpcc-* are {}.", tpcc::LABEL));
    }
    if is_emulated(survey) {
        table.note("EMULATED: ours are of memory that stands for persistent memory.");
    }
    table
}

/// A figure of a recovery, beside that of the server which maps its tier; its baseline is Redis at
/// home. Nothing if one of both did not run.
fn beside_recovery(survey: &Survey, one: &Surveyed, printed: &Figure) -> Option<Vec<Cell>> {
    let is_one = matches!(&one.experiment.here, Here::Case { case, .. } if case == RECOVERY);
    let runs = survey.recovery.as_ref().filter(|_| is_one)?.runs.as_slice();
    let of = |case: &str| runs.iter().find(|run| run.case == case);
    let (baseline, itself) = (of(recovery::OF_KV[0])?, of(recovery::OF_KV[2])?);
    let here = |run: &recovery::Run| {
        (printed.name == "recovery_s").then_some(run.recovered.first_answer_s)
    };
    Some(vec![
        Cell::text(&one.experiment.id),
        Cell::text(format!("{} {}", printed.label(), printed.unit()).trim()),
        Cell::number(printed.baseline),
        Cell::number(printed.value),
        Cell::number(printed.ratio()),
        Cell::text(&itself.target),
        Cell::number(here(baseline)),
        Cell::number(here(itself)),
        Cell::number(here(itself).zip(here(baseline)).map(|(here, base)| here / base)),
    ])
}

fn beside_row(one: &Surveyed, printed: &Figure, ran: &Ran, row: &Row<'_>) -> Vec<Cell> {
    let name = printed.name.as_str();
    let here = counterpart(row.run, name);
    let base = row.baseline.and_then(|baseline| counterpart(baseline, name));
    let ratio = if is_ratio_of_transactions(name) {
        row.transactions_ratio()
    } else if is_ratio_of_executes(name) {
        row.executes_ratio()
    } else if is_ratio_of_commits(name) {
        row.commit_ratio()
    } else {
        here.zip(base.filter(|base| *base > 0.0)).map(|(here, base)| here / base)
    };
    vec![
        Cell::text(format!("{}{}", one.experiment.id, if row.doubted { tables::MARK } else { "" })),
        // The long word would be broken in the text, which has a hundred columns.
        Cell::text(
            format!("{} {}", printed.label().replace("transactions", "trans"), printed.unit())
                .trim(),
        ),
        Cell::number(printed.baseline),
        Cell::number(printed.value),
        Cell::number(printed.ratio()),
        Cell::text(&ran.target),
        Cell::number(base),
        Cell::number(here),
        Cell::number(ratio),
    ]
}

/// The printed figures that have a counterpart here, as ratios to the baselines: what fits a
/// terminal.
fn gains(survey: &Survey) -> Table {
    let mut table = Table::new("Ours beside the printed figures: over the baseline")
        .text("Experiment", "Its name here.")
        .text("Figure", "What was printed.")
        .text("On", "The target here.")
        .figures("Printed x", "", "What was printed, over what was printed of its baseline.")
        .figures("Here x", "", "Ours over our baseline.");
    let whole = beside(survey);
    let of = |row: &[Cell], n: usize| row.get(n).cloned().unwrap_or(Cell::Empty);
    let has =
        |row: &&Vec<Cell>| of(row, PRINTED_X) != Cell::Empty && of(row, HERE_X) != Cell::Empty;
    for row in whole.rows.iter().filter(has) {
        table.row([0, 1, ON, PRINTED_X, HERE_X].map(|n| of(row, n)).into());
    }
    let others = whole.rows.len() - table.rows.len();
    table
        .note(format!("The page has the figures themselves, and {others} more that were printed."));
    table.notes.extend(whole.notes);
    table
}

/// Every experiment that ran, with what was measured, also where only a picture was printed.
fn measured(survey: &Survey) -> Table {
    let mut table = Table::new("What was run")
        .text("Experiment", "Its name here.")
        .text("Case", "The case that stands for it.")
        .text("On", "The target.")
        .figures("Trans /s", "", "Transactions committed per second.")
        .figures("x base", "", "Over the baseline's.")
        .figures("Execs /s", "", "Statements or requests per second.")
        .figures("x base", "", "Over the baseline's.")
        .figures("Commit avg", "", "Mean time of COMMIT, or of a SET.")
        .figures("Commit p99", "", "99 of 100 commits took no longer.");
    for one in &survey.experiments {
        for ran in ran(one) {
            let Some(row) = row(survey, ran) else { continue };
            let measured = &row.run.measured;
            let some = |ns: f64| (measured.commit.count > 0).then_some(ns);
            table.row(vec![
                Cell::text(format!(
                    "{}{}",
                    one.experiment.id,
                    if row.doubted { tables::MARK } else { "" }
                )),
                Cell::text(&ran.case),
                Cell::text(&ran.target),
                Cell::number((measured.transactions > 0).then(|| measured.transactions_per_s())),
                Cell::number(row.transactions_ratio().filter(|_| measured.transactions > 0)),
                Cell::number(measured.executes_per_s()),
                Cell::number(row.executes_ratio()),
                Cell::nanoseconds(some(measured.commit.mean_ns)),
                Cell::nanoseconds(some(measured.commit.p99_ns as f64)),
            ]);
        }
    }
    table
}

/// The devices, for the experiments without a database.
fn devices(survey: &Survey) -> Option<Table> {
    let mut table = Table::new("Devices")
        .text("Where", "The directory.")
        .text("Access", "How it is reached.")
        .figures("Size", "", "Bytes of each operation.")
        .text("Operation", "What was done; a write is durable.")
        .figures("At once", "", "Operations under way at the same time.")
        .figures("p99", "", "99 of 100 took no longer.")
        .figures("Per second", "", "All threads together.")
        .text("Bandwidth", "Bytes a second.");
    for place in &survey.devices {
        for m in &place.measurements {
            table.row(vec![
                Cell::text(&place.path),
                Cell::text(&place.access_mode),
                Cell::bytes(m.size_bytes as f64),
                Cell::text(m.operation.name()),
                Cell::count(u64::from(m.at_once)),
                Cell::nanoseconds(m.p99_ns as f64),
                Cell::number(m.per_s),
                Cell::text(format!("{}/s", figure::bytes(m.bytes_per_s))),
            ]);
        }
        for note in &place.notes {
            table.note(format!("{}: {note}", place.path));
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

/// The servers that were killed.
fn killed(survey: &Survey) -> Option<Table> {
    let recovery = survey.recovery.as_ref().filter(|recovery| !recovery.runs.is_empty())?;
    Some(recovery::table(recovery))
}

/// What was not run, and why.
fn not_run(survey: &Survey) -> Table {
    let mut table = Table::new("What was not run")
        .text("Experiment", "Its name here.")
        .text("Because", "Why it was not run here, or has nothing that stands for it.");
    for one in &survey.experiments {
        if let Outcome::NotHere(why) | Outcome::Nothing(why) = &one.outcome {
            table.row(vec![Cell::text(&one.experiment.id), Cell::text(why)]);
        }
    }
    table
}

fn head(survey: &Survey) -> String {
    let machine = &survey.machine;
    format!(
        "{}, {} processors, {}. {} studies in {:.0} s{}.",
        machine.processor.as_deref().unwrap_or("unknown processor"),
        machine.cpus,
        machine.platform.as_deref().unwrap_or("unknown system"),
        survey.studies.len(),
        survey.took_s,
        if survey.quick { ", short runs of small databases" } else { "" }
    )
}

/// The survey for a terminal.
pub fn render_text(survey: &Survey) -> String {
    let mut out = String::from("Survey of the published experiments\n\n");
    text::paragraph(&mut out, "", &verdict(survey));
    out.push('\n');
    text::paragraph(&mut out, "", &figure::visible(&head(survey)));
    if is_emulated(survey) {
        out.push_str("EMULATED: the tier only stands for persistent memory.\n");
    }
    for table in [measured(survey), gains(survey)].iter().filter(|table| !table.rows.is_empty()) {
        out.push('\n');
        write_table(&mut out, table);
    }
    for table in devices(survey).into_iter().chain(killed(survey)) {
        out.push('\n');
        write_table(&mut out, &table);
    }
    let _ = writeln!(out, "\nWhat was not run");
    for one in &survey.experiments {
        if let Outcome::NotHere(why) | Outcome::Nothing(why) = &one.outcome {
            text::paragraph(
                &mut out,
                "- ",
                &figure::visible(&format!("{}: {why}", one.experiment.id)),
            );
        }
    }
    out
}

/// The survey as one page that needs nothing else.
pub fn render_html(survey: &Survey) -> String {
    let mut page = Page::new("Tiersmith: the published experiments on this machine".to_owned());
    page.lead(verdict(survey));
    page.paragraph(&head(survey));
    if is_emulated(survey) {
        page.banner("EMULATED: the tier only stands for persistent memory.".to_owned());
    }
    if is_doubted(survey) {
        page.warning("Some of these figures cannot be trusted. They are marked with (?).");
    }
    page.section("What was run");
    page.table(&measured(survey));
    page.section("Ours beside the printed figures");
    page.table(&beside(survey));
    if let Some(table) = devices(survey) {
        page.section("Devices");
        page.table(&table);
    }
    if let Some(table) = killed(survey) {
        page.section("Recovery");
        page.table(&table);
    }
    page.section("What was not run");
    page.table(&not_run(survey));
    page.section("Warnings");
    for study in &survey.studies {
        for (about, sentence, _) in study.grouped_warnings().into_iter().filter(|one| !one.2) {
            let about = if about.is_empty() { study.load.clone() } else { about };
            page.warning(&format!("{}: {about}: {sentence}", study.database));
        }
    }
    let command = survey.command.join(" ");
    page.footer(format!("Tiersmith {}: {command}", survey.version));
    page.render()
}

//! A study for a terminal.
//!
//! **Invariant**: every figure is in [`StudyResult`]; an emulated tier and every warning are said
//! before and after the figures.

use std::fmt::Write as _;

use tiersmith_awr::{figure, write_table};

use super::result::StudyResult;
use super::{crossing, operations, tables};
use crate::size::ByteSize;

/// The widest line of a paragraph.
const WIDTH: usize = 100;

/// The whole study as text.
pub fn render(result: &StudyResult) -> String {
    let mut out = String::new();
    head(&mut out, result);
    for pct in result.update_pcts() {
        for table in operations::tables(result, pct) {
            out.push('\n');
            write_table(&mut out, &table);
        }
        out.push('\n');
        write_table(&mut out, &tables::comparison(result, pct));
        out.push('\n');
        write_table(&mut out, &tables::waits(result, pct));
    }
    for table in [crossing::table(result), tables::beside_published(result)].iter().flatten() {
        out.push('\n');
        write_table(&mut out, table);
    }
    warnings(&mut out, result);
    out
}

fn head(out: &mut String, result: &StudyResult) {
    let machine = &result.machine;
    let or = |text: &Option<String>| {
        text.as_deref().map_or_else(|| "unknown".to_owned(), figure::visible)
    };
    let memory = machine
        .memory_bytes
        .map_or_else(String::new, |bytes| format!(", {} of memory", figure::bytes(bytes as f64)));
    let label = if result.places.emulated { ", EMULATED" } else { "" };
    let _ = writeln!(out, "Tiersmith study of {} UTC", figure::instant(result.taken_unix_ns));
    let _ = writeln!(out);
    let _ = writeln!(
        out,
        "machine   {}, {} processors{memory}, {}",
        or(&machine.processor),
        machine.cpus,
        or(&machine.platform)
    );
    let _ = writeln!(
        out,
        "database  {} {}, load: {}",
        result.database, result.database_version, result.load
    );
    let model =
        result.home_model.as_ref().map_or_else(String::new, |name| format!(", MODELLED as {name}"));
    let _ = writeln!(
        out,
        "home      {}{}",
        figure::visible(&result.places.home_is_on),
        figure::visible(&model)
    );
    let _ = writeln!(out, "tier      {}{label}", figure::visible(&result.places.tier_is_on));
    let _ = writeln!(
        out,
        "runs      {} of {} s each after a warm-up, {} round{}, {:.0} s in all",
        result.runs.len(),
        result.seconds,
        result.rounds,
        if result.rounds == 1 { "" } else { "s, of which the median is shown" },
        result.took_s
    );
    let _ = writeln!(out);
    let width = result.cases.iter().map(|case| case.id.len()).max().unwrap_or(0).max(18);
    for case in &result.cases {
        let tier = if case.tier_bytes > 0 {
            format!(", tier of {}", ByteSize(case.tier_bytes))
        } else {
            String::new()
        };
        let baseline = case
            .baseline
            .as_ref()
            .map_or_else(|| "baseline".to_owned(), |b| format!("against {b}"));
        let _ = writeln!(
            out,
            "{:<width$} {} ({baseline}{tier})",
            case.id,
            figure::visible(&case.title)
        );
    }
}

fn warnings(out: &mut String, result: &StudyResult) {
    let (notes, warnings): (Vec<_>, Vec<_>) =
        result.grouped_warnings().into_iter().partition(|(_, _, is_note)| *is_note);
    for (title, list) in
        [("Warnings: why these figures cannot be trusted", warnings), ("Notes", notes)]
    {
        if list.is_empty() {
            continue;
        }
        let _ = writeln!(out, "\n{title}");
        for (about, sentence, _) in list {
            let about = if about.is_empty() { String::new() } else { format!("{about}: ") };
            paragraph(out, "- ", &figure::visible(&format!("{about}{sentence}")));
        }
    }
}

/// Words in lines of at most 100 characters, those after the first further in.
pub fn paragraph(out: &mut String, first: &str, text: &str) {
    let mut line = first.to_owned();
    let indent = " ".repeat(first.chars().count());
    for word in text.split_whitespace() {
        if line.chars().count() + word.chars().count() > WIDTH && line.trim().len() > 1 {
            let _ = writeln!(out, "{}", line.trim_end());
            line.clone_from(&indent);
        }
        line.push_str(word);
        line.push(' ');
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

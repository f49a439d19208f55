//! A report as CSV and as Markdown.
//!
//! CSV has one line a cell of figures, long and thin: `section,table,row,column,unit,value`. Such a
//! file can be read by anything, joined with others, and does not change its columns when a table
//! gets one more. Values are plain: no separators of thousands, times in nanoseconds or seconds as
//! the unit says, sizes in bytes, shares in per cent; an empty cell is left out.
//!
//! Markdown is the text report's tables as pipes, for issues and pull requests.
//!
//! Invariants: what a spreadsheet would take for a formula, whatever it splits cells at, gets an
//! apostrophe; in Markdown no text of the source can end a cell, begin HTML or make a link (a bare
//! address may still be shown as one by what displays it).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::figure;
use crate::report::{Item, Report};
use crate::table::{Align, Cell, Column, Table};

/// The report as CSV.
pub fn csv(report: &Report) -> String {
    let mut out = String::from("section,table,row,column,unit,value\r\n");
    for section in &report.sections {
        for item in &section.items {
            let Item::Table(table) = item else { continue };
            // The first column of words names a row; a table without one has the number of the row.
            let name_at = table.columns.iter().position(|column| column.align == Align::Left);
            let names = row_names(table, name_at);
            for (row, name) in table.rows.iter().zip(names) {
                for (index, (column, cell)) in table.columns.iter().zip(row).enumerate() {
                    if Some(index) == name_at && table.columns.len() > 1 {
                        continue;
                    }
                    let Some((value, unit)) = plain(cell, column) else { continue };
                    let fields =
                        [&section.title, &table.caption, &name, &column.title, &unit, &value];
                    let line: Vec<String> = fields.iter().map(|field| quoted(field)).collect();
                    let _ = write!(out, "{}\r\n", line.join(","));
                }
            }
        }
    }
    out
}

/// What each row is called: by its first words; where two rows have the same, by all of their
/// words; where these are the same too, with a number, so that every line of the file is of one
/// cell.
fn row_names(table: &Table, name_at: Option<usize>) -> Vec<String> {
    let first = |row: &Vec<Cell>| name_at.and_then(|at| row.get(at)).map(Cell::shown);
    let mut names: Vec<String> = table
        .rows
        .iter()
        .enumerate()
        .map(|(at, row)| first(row).unwrap_or_else(|| (at + 1).to_string()))
        .collect();
    let words = |row: &Vec<Cell>| {
        let words = table.columns.iter().zip(row).filter(|(column, _)| column.align == Align::Left);
        words
            .map(|(_, cell)| cell.shown())
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
            .join(" / ")
    };
    let twice = |names: &[String]| {
        let mut seen = BTreeMap::<&str, usize>::new();
        names.iter().for_each(|name| *seen.entry(name).or_default() += 1);
        names
            .iter()
            .map(|name| seen.get(name.as_str()).is_some_and(|count| *count > 1))
            .collect::<Vec<bool>>()
    };
    for (at, again) in twice(&names).into_iter().enumerate() {
        if again {
            names[at] = words(&table.rows[at]);
        }
    }
    for (at, again) in twice(&names).into_iter().enumerate() {
        if again {
            names[at] = format!("{} ({})", names[at], at + 1);
        }
    }
    names
}

/// The value of a cell without decoration, and its unit.
fn plain(cell: &Cell, column: &Column) -> Option<(String, String)> {
    let with = |value: String, unit: &str| Some((value, unit.to_owned()));
    match cell {
        Cell::Empty => None,
        Cell::Text(text) if text.is_empty() => None,
        Cell::Text(text) => with(figure::visible(text), &column.unit),
        Cell::Count(value) => with(value.to_string(), &column.unit),
        Cell::Number(value) => with(value.to_string(), &column.unit),
        Cell::Seconds(value) => with(value.to_string(), "s"),
        Cell::Nanoseconds(value) => with(value.to_string(), "ns"),
        Cell::Bytes(value) => with(value.to_string(), "bytes"),
        Cell::Percent(value) => with(value.to_string(), "%"),
    }
}

/// Between two cells, to one reader or another: a comma, and what a spreadsheet may take instead of
/// it.
const ENDS_A_CELL: [char; 5] = [',', ';', '\t', '\r', '\n'];

fn quoted(field: &str) -> String {
    let field =
        if field.parse::<f64>().is_ok() { field.to_owned() } else { without_formulas(field) };
    match field.contains(ENDS_A_CELL) || field.contains('"') {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field,
    }
}

/// An apostrophe stands before what would be a formula, at the beginning and wherever a reader that
/// splits at something else than commas, which our quotes do not stop, would begin a cell.
fn without_formulas(field: &str) -> String {
    let mut out = String::with_capacity(field.len() + 1);
    let mut rest = field;
    loop {
        let begin = rest.trim_start_matches(|c: char| c == '"' || c.is_whitespace());
        if begin.starts_with(['=', '+', '-', '@']) {
            out.push('\'');
        }
        let Some(end) = rest.find(ENDS_A_CELL) else { return out + rest };
        let (cell, next) = rest.split_at(end + 1);
        out.push_str(cell);
        rest = next;
    }
}

/// The report as Markdown.
pub fn markdown(report: &Report) -> String {
    let mut out = format!("# {}\n\n", inert(&report.title));
    if !report.subtitle.is_empty() {
        let _ = writeln!(out, "{}\n", inert(&report.subtitle));
    }
    for banner in &report.banners {
        let _ = writeln!(out, "> **{}**\n", inert(banner));
    }
    for section in &report.sections {
        let _ = writeln!(out, "## {}\n", inert(&section.title));
        for item in &section.items {
            match item {
                Item::Text(text) => {
                    let _ = writeln!(out, "{}\n", inert(text));
                }
                Item::Chart(_) => {}
                Item::Lines { title, text } => {
                    let _ = writeln!(out, "**{}**\n", inert(title));
                    // Behind four spaces nothing means anything.
                    for line in text.lines() {
                        let _ = writeln!(out, "    {}", figure::visible(line));
                    }
                    out.push('\n');
                }
                Item::Table(table) => {
                    let _ = writeln!(out, "**{}**\n", inert(&table.caption));
                    if table.rows.is_empty() {
                        out.push_str("No data exists for this section of the report.\n\n");
                        continue;
                    }
                    let title = |column: &Column| match column.unit_is_shown() {
                        true => inert(&format!("{} ({})", column.title, column.unit)),
                        false => inert(&column.title),
                    };
                    let titles: Vec<String> = table.columns.iter().map(title).collect();
                    let marks = table
                        .columns
                        .iter()
                        .map(|column| if column.align == Align::Right { "---:" } else { "---" });
                    let _ = writeln!(
                        out,
                        "| {} |\n| {} |",
                        titles.join(" | "),
                        marks.collect::<Vec<_>>().join(" | ")
                    );
                    for row in &table.rows {
                        let cells = (0..table.columns.len()).map(|at| {
                            row.get(at).map_or(String::new(), |cell| inert(&cell.shown()))
                        });
                        let _ = writeln!(out, "| {} |", cells.collect::<Vec<_>>().join(" | "));
                    }
                    out.push('\n');
                    for note in &table.notes {
                        let _ = writeln!(out, "{}\n", inert(note));
                    }
                }
            }
        }
    }
    out
}

/// Text that stays text in Markdown.
fn inert(text: &str) -> String {
    let mut out = String::new();
    for c in figure::visible(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '>' | '!' => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_the_same_name_are_told_apart() {
        let mut table = Table::new("t").text("Class", "").text("Tier", "").figures("Reads", "", "");
        for (class, tier) in [
            ("data", "home"),
            ("data", "fast"),
            ("redo", "fast"),
            ("temp", "home"),
            ("temp", "home"),
        ] {
            table.row(vec![Cell::text(class), Cell::text(tier), Cell::count(1)]);
        }
        let names = row_names(&table, Some(0));
        assert_eq!(
            names,
            ["data / home", "data / fast", "redo", "temp / home (4)", "temp / home (5)"]
        );
        assert_eq!(row_names(&table, None), ["1", "2", "3", "4", "5"]);
    }

    #[test]
    fn text_of_the_source_stays_text() {
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("=cmd()"), "'=cmd()");
        assert_eq!(quoted("-1.5"), "-1.5");
        assert_eq!(quoted("a;b"), "\"a;b\"");
        assert_eq!(quoted("a\tb"), "\"a\tb\"");
        // Each is a formula to one spreadsheet: what splits at semicolons sees no quotes in a cell.
        for (text, safe) in [
            ("select 1;=cmd()", "\"select 1;'=cmd()\""),
            ("a; @sum(1)", "\"a;' @sum(1)\""),
            ("a;\"=cmd()\"", "\"a;'\"\"=cmd()\"\"\""),
            ("a\n+1+cmd()", "\"a\n'+1+cmd()\""),
            (" =cmd()", "' =cmd()"),
            ("\t=cmd()", "\"'\t'=cmd()\""),
            ("a=b-c", "a=b-c"),
        ] {
            assert_eq!(quoted(text), safe, "{text}");
        }
        assert_eq!(inert("<script>|`x`|"), "&lt;script\\>\\|\\`x\\`\\|");
        assert!(!inert("[a](javascript:x)").contains("[a]("));
    }
}

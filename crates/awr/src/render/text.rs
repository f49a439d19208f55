//! A report as text, at most 100 columns wide, in the manner of Oracle's text reports: headings
//! underlined, tables with dashes under each title, figures to the right.
//!
//! Text in a cell that is too long goes on below, nothing is cut off. A table whose figures alone
//! do not fit is printed in parts, each with the first column again. Charts are not printed: their
//! figures are in the tables.
//!
//! Invariants: no line is wider than 100 characters; no control character of foreign origin is
//! printed.

use std::fmt::Write as _;

use crate::figure;
use crate::report::{Item, Report};
use crate::table::{Align, Cell, Table};

/// The widest line, in characters.
const WIDTH: usize = 100;

/// Between columns.
const GAP: usize = 2;

/// A column of text is not made narrower than this: a word or two fit.
const NARROWEST: usize = 16;

/// The first column names its row: it has the first of these widths at least, or the second where
/// the table would have more parts otherwise.
const NARROWEST_FIRST: [usize; 2] = [28, 16];

/// The report as text.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    for line in wrapped(&report.title, WIDTH) {
        let _ = writeln!(out, "{line}");
    }
    for line in wrapped(&report.subtitle, WIDTH) {
        let _ = writeln!(out, "{line}");
    }
    for banner in &report.banners {
        let _ = writeln!(out, "\n{}", "*".repeat(WIDTH));
        for line in wrapped(banner, WIDTH - 4) {
            let _ = writeln!(out, "* {line:<width$} *", width = WIDTH - 4);
        }
        let _ = writeln!(out, "{}", "*".repeat(WIDTH));
    }
    for section in &report.sections {
        let title = figure::visible(&section.title);
        let _ = writeln!(out, "\n\n{title}\n{}", "=".repeat(title.chars().count().min(WIDTH)));
        for item in &section.items {
            match item {
                Item::Text(text) => {
                    out.push('\n');
                    for line in wrapped(text, WIDTH) {
                        let _ = writeln!(out, "{line}");
                    }
                }
                Item::Table(table) => {
                    out.push('\n');
                    write_table(&mut out, table);
                }
                Item::Chart(_) => {}
                Item::Lines { title, text } => {
                    out.push('\n');
                    for line in wrapped(title, WIDTH) {
                        let _ = writeln!(out, "{line}");
                    }
                    write_lines(&mut out, text);
                }
            }
        }
    }
    out
}

/// Lines as they are, each in as many as it needs.
fn write_lines(out: &mut String, text: &str) {
    for line in text.lines() {
        let line: Vec<char> = figure::visible(line).chars().collect();
        for part in line.chunks(WIDTH - 2) {
            let _ = writeln!(out, "  {}", part.iter().collect::<String>().trim_end());
        }
    }
}

/// A table as text, its caption above and its notes below.
pub fn write_table(out: &mut String, table: &Table) {
    for line in wrapped(&table.caption, WIDTH) {
        let _ = writeln!(out, "{line}");
    }
    if table.rows.is_empty() {
        let _ = writeln!(out, "  No data exists for this section of the report.");
    } else {
        let columns = |first: usize| -> Vec<TextColumn> {
            let narrowest = |index: usize| if index == 0 { first } else { NARROWEST };
            (0..table.columns.len())
                .map(|index| TextColumn::of(table, index, narrowest(index)))
                .collect()
        };
        let [wide, narrow] = NARROWEST_FIRST.map(columns);
        let columns = if parts(&wide).len() > parts(&narrow).len() { narrow } else { wide };
        for part in parts(&columns) {
            let part: Vec<&TextColumn> = part.into_iter().map(|index| &columns[index]).collect();
            write_part(out, &part, table.rows.len());
        }
    }
    for note in &table.notes {
        for (index, line) in wrapped(note, WIDTH - 2).iter().enumerate() {
            let _ = writeln!(out, "{} {line}", if index == 0 { "-" } else { " " });
        }
    }
}

/// A column with its cells as they are printed.
struct TextColumn {
    title: String,
    align: Align,
    cells: Vec<String>,
    /// The narrowest it can be.
    least: usize,
    /// The width at which no cell goes on below.
    most: usize,
}

impl TextColumn {
    fn of(table: &Table, index: usize, narrowest: usize) -> TextColumn {
        let column = &table.columns[index];
        let title = match column.unit_is_shown() {
            true => figure::visible(&format!("{} ({})", column.title, column.unit)),
            false => figure::visible(&column.title),
        };
        let cells: Vec<String> = table
            .rows
            .iter()
            .map(|row| row.get(index).map_or(String::new(), Cell::shown))
            .collect();
        let longest = cells.iter().map(|cell| width(cell)).max().unwrap_or(0);
        let longest_word = title.split(' ').map(width).max().unwrap_or(0);
        let (least, most) = match column.align {
            Align::Right => (longest.max(longest_word), longest.max(longest_word)),
            Align::Left => {
                let most = longest.max(width(&title));
                (most.min(narrowest.max(longest_word)), most)
            }
        };
        // Where a figure and its neighbour could not both fit, they stand in different parts; alone
        // it is wrapped.
        let widest = WIDTH / 2 - GAP;
        TextColumn { title, align: column.align, cells, least: least.min(widest), most }
    }
}

/// The columns of each part: all of them if they fit, else as many as do, the first one again in
/// each part.
fn parts(columns: &[TextColumn]) -> Vec<Vec<usize>> {
    let mut parts = vec![Vec::new()];
    let mut used = 0;
    for (index, column) in columns.iter().enumerate() {
        let needs = column.least + if used > 0 { GAP } else { 0 };
        if used + needs > WIDTH {
            parts.push(vec![0]);
            used = columns[0].least + GAP + column.least;
        } else {
            used += needs;
        }
        if let Some(part) = parts.last_mut() {
            part.push(index);
        }
    }
    parts
}

fn write_part(out: &mut String, columns: &[&TextColumn], rows: usize) {
    // Every column gets its least. What is left goes to columns of text: to the first, which names
    // the row, and then always to the narrowest, so that of two long texts neither squeezes the
    // other.
    let mut widths: Vec<usize> = columns.iter().map(|column| column.least).collect();
    let left = WIDTH
        .saturating_sub(widths.iter().sum::<usize>() + GAP * (columns.len().saturating_sub(1)));
    for _ in 0..left {
        let wanting = (0..columns.len()).filter(|at| widths[*at] < columns[*at].most);
        let Some(at) = wanting.min_by_key(|at| if *at == 0 { 0 } else { widths[*at] }) else {
            break;
        };
        widths[at] += 1;
    }
    let titles: Vec<Vec<String>> =
        columns.iter().zip(&widths).map(|(column, width)| wrapped(&column.title, *width)).collect();
    let height = titles.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..height {
        // Titles stand on the line of dashes.
        let cell = |index: usize| {
            let lines: &Vec<String> = &titles[index];
            (line + lines.len())
                .checked_sub(height)
                .and_then(|line| lines.get(line))
                .map_or("", |title| title)
        };
        write_line(out, columns, &widths, cell);
    }
    let dashes: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    write_line(out, columns, &widths, |index| &dashes[index]);
    for row in 0..rows {
        let cells: Vec<Vec<String>> = columns
            .iter()
            .zip(&widths)
            .map(|(column, width)| wrapped(&column.cells[row], *width))
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0).max(1);
        for line in 0..height {
            write_line(out, columns, &widths, |index| {
                cells[index].get(line).map_or("", |cell| cell)
            });
        }
    }
}

fn write_line<'a>(
    out: &mut String,
    columns: &[&TextColumn],
    widths: &[usize],
    cell: impl Fn(usize) -> &'a str,
) {
    let mut line = String::new();
    for (index, (column, width)) in columns.iter().zip(widths).enumerate() {
        if index > 0 {
            line.push_str(&" ".repeat(GAP));
        }
        let cell = cell(index);
        let _ = match column.align {
            Align::Left => write!(line, "{cell:<width$}"),
            Align::Right => write!(line, "{cell:>width$}"),
        };
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

fn width(text: &str) -> usize {
    text.chars().count()
}

/// Lines of at most `width` characters, broken at spaces, and within a word that is longer than a
/// line.
fn wrapped(text: &str, most: usize) -> Vec<String> {
    let text = figure::visible(text);
    let most = most.max(1);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        if !line.is_empty() && width(&line) + 1 + width(word) > most {
            lines.push(std::mem::take(&mut line));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        for c in word.chars() {
            if width(&line) == most {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use tiersmith_events::WaitClass;

    use super::*;

    #[test]
    fn no_line_is_wider_than_the_page_whatever_the_table_holds() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..100 {
            let columns = rng.usize(1..30);
            let mut table = Table::new("words ".repeat(rng.usize(0..40)));
            for column in 0..columns {
                let title = "title ".repeat(rng.usize(1..4)) + &"x".repeat(rng.usize(0..130));
                table = if column % 3 == 0 {
                    table.text(&title, "")
                } else {
                    table.figures(&title, "unit", "")
                };
            }
            for _ in 0..rng.usize(0..4) {
                let cell = |rng: &mut fastrand::Rng| match rng.u8(0..4) {
                    0 => Cell::text("y".repeat(rng.usize(0..200))),
                    1 => Cell::text("some words ".repeat(rng.usize(0..20))),
                    2 => Cell::Number(f64::MAX),
                    _ => Cell::Count(u64::MAX),
                };
                let cells = (0..rng.usize(0..columns + 2)).map(|_| cell(&mut rng)).collect();
                table.row(cells);
            }
            table.note("z".repeat(rng.usize(0..300)));
            let mut out = String::new();
            write_table(&mut out, &table);
            for line in out.lines() {
                assert!(width(line) <= WIDTH, "{} wide: {line}", width(line));
            }
        }
    }

    #[test]
    fn the_name_of_a_row_is_not_squeezed_by_figures() {
        let name = "db file sequential read";
        let mut table = Table::new("wide").text("Event", "");
        for _ in 0..9 {
            table = table.figures("1st Avg", "", "");
        }
        table.row(
            std::iter::once(Cell::text(name))
                .chain((0..9).map(|_| Cell::Count(1_234_567)))
                .collect(),
        );
        let mut out = String::new();
        write_table(&mut out, &table);
        assert!(out.lines().any(|line| line.starts_with(name)), "{out}");
    }

    #[test]
    fn a_comparison_has_no_column_of_text_that_is_too_narrow_to_read() {
        use crate::findings::made::minute;
        use crate::snapshot::statement::StatementStat;
        let side = |calls: u64| {
            let mut made = minute();
            made.end.statements = (1..4)
                .map(|at| StatementStat {
                    id: at.to_string(),
                    text: format!("SELECT name, price FROM products WHERE id = ? AND kind = {at}"),
                    calls: calls * at * 123_457,
                    total_ns: calls * at * 3_000_000_000,
                    ..StatementStat::default()
                })
                .collect();
            let place = "/a/place/where/something/lies, ".repeat(4);
            made.end.source.settings.insert("control_files".to_owned(), place);
            made.wait("wait/io/file/innodb/innodb_log_file", WaitClass::Commit, false, calls, 9)
                .interval()
        };
        let report = crate::compare(&side(1), &side(3));
        let items = report.sections.iter().flat_map(|section| &section.items);
        let mut texts = 0;
        for item in items {
            let Item::Table(table) = item else { continue };
            let mut out = String::new();
            write_table(&mut out, table);
            let mut next = 1;
            for line in out.lines().filter(|line| line.starts_with("---")) {
                let widths: Vec<usize> = line.split(' ').map(width).filter(|w| *w > 0).collect();
                let first = usize::from(next > 1);
                let columns = if first == 0 { 0 } else { next };
                for (at, width) in widths[first..].iter().enumerate() {
                    let column = &table.columns[columns + at];
                    let cells = table.rows.iter().filter_map(|row| row.get(columns + at));
                    let longest = cells.map(|cell| self::width(&cell.shown())).max().unwrap_or(0);
                    if column.align == Align::Left && longest >= 16 {
                        texts += 1;
                        assert!(*width >= 16, "{}: {width} in:\n{out}", column.title);
                    }
                }
                next = columns + widths.len() - first;
            }
            assert!(table.rows.is_empty() || next == table.columns.len(), "{out}");
        }
        assert!(texts > 4, "{texts} columns of text");
    }

    #[test]
    fn two_long_texts_side_by_side_share_the_line() {
        let mut table = Table::new("two").text("Setting", "").text("First", "").text("Second", "");
        let long = "/a/path/to/something ".repeat(20);
        table.row(vec![Cell::text("control_files"), Cell::text(&long), Cell::text(&long)]);
        let mut out = String::new();
        write_table(&mut out, &table);
        let dashes = out.lines().nth(2).unwrap_or_default();
        let widths: Vec<usize> = dashes.split_whitespace().map(str::len).collect();
        assert_eq!(widths.len(), 3, "{out}");
        assert!(
            widths[0] == "control_files".len() && widths[1].abs_diff(widths[2]) <= 1,
            "{widths:?}"
        );
    }

    #[test]
    fn long_text_goes_on_below_and_nothing_is_cut_off() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrapped("ab cdefghij", 4), ["ab", "cdef", "ghij"]);
        assert!(wrapped("", 4).is_empty());
    }

    #[test]
    fn a_table_that_does_not_fit_comes_in_parts_with_the_first_column_in_each() {
        let mut table = Table::new("wide").text("name", "");
        for _ in 0..12 {
            table = table.figures("figures", "", "");
        }
        table.row(
            std::iter::once(Cell::text("row"))
                .chain((0..12).map(|_| Cell::Count(123_456_789)))
                .collect(),
        );
        let mut out = String::new();
        write_table(&mut out, &table);
        assert_eq!(out.matches("name").count(), 2);
        assert_eq!(out.matches("row").count(), 2);
        assert_eq!(out.matches("123,456,789").count(), 12);
    }
}

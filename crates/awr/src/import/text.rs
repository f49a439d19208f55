//! The tables of a text report, found by their lines of dashes: each group of dashes is a column,
//! the lines above are its titles, the lines below its rows until a blank line or the next line of
//! dashes.
//!
//! ```text
//! Event                             Waits   Time (s)
//! -------------------------- ------------ ----------
//! log file sync                     1,234        5.6
//! ```
//!
//! Statements follow the rows of their figures, and names of tablespaces and files stand before
//! them, each on lines of their own (`text/rows.rs`).
//!
//! A figure may be wider than its column and reach to the left into the gap: a cell ends where its
//! dashes end, and begins where the one before ended.
//!
//! Invariants: no bytes make it panic; lines, columns, rows and cells are bounded; what is beyond
//! is not read and is counted.

mod rows;

use super::{Grid, Grids, LeftOut, MOST_CELLS, MOST_COLUMNS, MOST_GRIDS, MOST_LINES, MOST_ROWS};

/// Titles stand on so many lines at most.
const TITLE_LINES: usize = 5;

/// More bytes than any line of a report has.
const LONGEST_LINE: usize = 4096;

/// Where the columns are, if the line is one of dashes: begin and end in characters.
fn spans(line: &str, left_out: &mut LeftOut) -> Option<Vec<(usize, usize)>> {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    let mut open = false;
    let mut dashes = 0;
    for (at, c) in line.chars().enumerate() {
        match c {
            '-' | '~' => {
                dashes += usize::from(c == '-');
                if open && let Some(span) = spans.last_mut() {
                    span.1 = at + 1;
                } else {
                    spans.push((at, at + 1));
                }
                open = true;
            }
            ' ' => open = false,
            _ => return None,
        }
    }
    // One group alone is the end of a section, or underlines a heading.
    if spans.len() > MOST_COLUMNS {
        left_out.because("a table with more columns than are read");
        return None;
    }
    // Labels below the underlined name of a table are longer than it is.
    if let [name, first, ..] = &mut spans[..]
        && line.starts_with('~')
    {
        name.1 = first.0 - 1;
    }
    (spans.len() > 1 && dashes > 3).then_some(spans)
}

/// The beginning of a line that is too long.
fn cut_off(line: &str) -> &str {
    let end = (0..=LONGEST_LINE).rev().find(|at| line.is_char_boundary(*at));
    &line[..end.unwrap_or(0)]
}

fn cut(line: &str, from: usize, to: usize) -> String {
    line.chars().skip(from).take(to.saturating_sub(from)).collect::<String>().trim().to_owned()
}

fn cells(line: &str, spans: &[(usize, usize)]) -> Vec<String> {
    let mut cells = Vec::with_capacity(spans.len());
    let mut from = 0;
    for (index, (_, end)) in spans.iter().enumerate() {
        // The last column takes the rest of the line.
        let end = if index + 1 == spans.len() { usize::MAX } else { *end };
        cells.push(cut(line, from, end));
        from = end;
    }
    cells
}

/// The heading in a line such as `Foreground Wait Events   DB/Inst: X/x  Snaps: 1-2`.
fn heading(line: &str) -> Option<String> {
    // Statspack has one section whose heading names the database in words.
    let at = line
        .find("DB/Inst:")
        .or_else(|| line.find(" for DB: ").filter(|_| line.starts_with("SQL ordered by")))?;
    Some(line[..at].trim().to_owned())
}

/// A report that is being read, line by line.
struct Reading<'a> {
    lines: Vec<&'a str>,
    /// The line that is looked at.
    at: usize,
    /// How many cells were read.
    cells: usize,
    left_out: LeftOut,
}

/// Every table of the report.
pub(super) fn grids(text: &str) -> Grids {
    let mut reading = Reading::of(text);
    let mut grids = Vec::new();
    let mut section = String::new();
    while let Some(line) = reading.lines.get(reading.at) {
        if let Some(title) = heading(line) {
            section = title;
        } else if let Some(grid) = rows::efficiency(&reading.lines[reading.at..]) {
            grids.push(grid);
        } else if let Some(grid) = rows::labelled(&reading.lines[reading.at..]) {
            grids.push(grid);
        }
        let Some(mut spans) = spans(line, &mut reading.left_out) else {
            reading.at += 1;
            continue;
        };
        rows::add_column_of_labels(&mut spans, reading.lines.get(reading.at + 1));
        if grids.len() >= MOST_GRIDS {
            reading.left_out.because("all tables behind the first five thousand");
            break;
        }
        let mut grid = reading.grid_without_rows(&spans, &section);
        reading.at += 1;
        let end = rows::of_several_lines(&reading.lines, reading.at, &spans, &mut grid);
        if let Some(end) = end {
            reading.at = end;
            reading.cells += grid.rows.iter().map(Vec::len).sum::<usize>();
            if !grid.rows.is_empty() {
                grids.push(grid);
            }
            continue;
        }
        reading.add_rows(&spans, &mut grid);
        rows::split_what_stands_beside(&mut grid);
        grids.push(grid);
    }
    Grids { grids, left_out: reading.left_out }
}

impl<'a> Reading<'a> {
    fn of(text: &'a str) -> Reading<'a> {
        let mut left_out = LeftOut::default();
        let mut whole = text.lines().map(|line| line.trim_end().trim_start_matches('\u{c}'));
        let lines: Vec<&str> = whole
            .by_ref()
            .take(MOST_LINES)
            .map(|line| {
                if line.len() > LONGEST_LINE {
                    left_out.because("the end of a line that is longer than lines are read");
                    cut_off(line)
                } else {
                    line
                }
            })
            .collect();
        if whole.next().is_some() {
            left_out.because("all lines behind the first two million");
        }
        Reading { lines, at: 0, cells: 0, left_out }
    }

    /// What the lines above the dashes say of a table: its titles, and its heading where that is
    /// not the one of the section.
    fn grid_without_rows(&self, spans: &[(usize, usize)], section: &str) -> Grid {
        let (lines, at) = (&self.lines, self.at);
        let first = (at.saturating_sub(TITLE_LINES)..at)
            .rev()
            .take_while(|line| is_title(lines[*line]))
            .last()
            .unwrap_or(at);
        // `Host CPU (CPUs: 8)` and its underline stand where titles do.
        let underlined = (first + 1..at).rev().find(|line| lines[*line].starts_with('~'));
        let own_above = underlined.map(|line| rows::name_of(lines[line - 1]));
        let first = underlined.map_or(first, |line| line + 1);
        let columns = titles(&lines[first..at], spans);
        // `Load Profile   Per Second` over `~~~~   ----`: the first title is that of the table.
        let own_above = own_above.or_else(|| {
            lines[at].starts_with('~').then(|| columns.first().cloned().unwrap_or_default())
        });
        // Tables without a line of their own (load profile, top events) have their heading among
        // the titles or just above.
        let own = lines[first..at]
            .iter()
            .map(|line| line.trim())
            .find_map(|line| match line {
                line if line.contains("Timed") => Some(line.to_owned()),
                line if line.starts_with("Shared Pool Statistics") => Some(rows::name_of(line)),
                _ => None,
            })
            .or(own_above);
        let mut section = own.unwrap_or_else(|| section.to_owned());
        if section.is_empty() {
            section = (0..first)
                .rev()
                .take(3)
                .find(|line| !lines[*line].trim().is_empty() && !is_rule(lines[*line]))
                .map_or(String::new(), |line| lines[line].trim().to_owned());
        }
        Grid { section, columns, ..Grid::default() }
    }

    /// Reads rows that stand on a line each, up to where the table ends.
    fn add_rows(&mut self, spans: &[(usize, usize)], grid: &mut Grid) {
        while let Some(line) = self.lines.get(self.at).filter(|line| !line.trim().is_empty()) {
            // A line that is underlined is the name of the next table.
            let is_name = self.lines.get(self.at + 1).is_some_and(|next| next.starts_with("~~~~"));
            if is_rule(line) || is_name || heading(line).is_some() {
                break;
            }
            if grid.rows.len() < MOST_ROWS && self.cells < MOST_CELLS {
                self.cells += spans.len();
                grid.rows.push(cells(line, spans));
            } else {
                self.left_out.because("a row of a table behind the rows or cells that are read");
            }
            self.at += 1;
        }
    }
}

/// The titles of columns, each put together from its lines.
fn titles(lines: &[&str], spans: &[(usize, usize)]) -> Vec<String> {
    let mut titles = vec![String::new(); spans.len()];
    for line in lines {
        for (title, cell) in titles.iter_mut().zip(cells(line, spans)) {
            if !cell.is_empty() {
                title.push(' ');
                title.push_str(&cell);
            }
        }
    }
    titles.iter().map(|title| title.trim().to_owned()).collect()
}

/// A line of dashes and spaces only.
fn is_rule(line: &str) -> bool {
    let line = line.trim();
    line.len() > 3 && line.chars().all(|c| matches!(c, '-' | '~' | ' '))
}

fn is_title(line: &str) -> bool {
    !line.trim().is_empty() && !line.starts_with("->") && !is_rule(line) && heading(line).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often something was left out, of what was read just over a bound.
    fn times(read: &Grids, why: &str) -> usize {
        read.left_out
            .0
            .iter()
            .filter(|(reason, _)| reason.contains(why))
            .map(|(_, times)| times)
            .sum()
    }

    #[test]
    fn what_is_just_over_a_bound_is_not_read_and_is_said() {
        let table =
            |columns: usize| format!("{}\n{}\n", "-- ".repeat(columns), "xx ".repeat(columns));
        let read = grids(&table(MOST_COLUMNS));
        assert_eq!((read.grids.len(), read.left_out.lines().count()), (1, 0));
        let read = grids(&table(MOST_COLUMNS + 1));
        assert_eq!((read.grids.len(), times(&read, "columns")), (0, 1));
        let rows = |rows: usize| format!("-- --\n{}\n", "xx yy\n".repeat(rows));
        assert_eq!(times(&grids(&rows(MOST_ROWS)), "row"), 0);
        let read = grids(&rows(MOST_ROWS + 1));
        assert_eq!((read.grids[0].rows.len(), times(&read, "row")), (MOST_ROWS, 1));
        let tables = |tables: usize| "-- --\nx y\n\n".repeat(tables);
        assert_eq!(times(&grids(&tables(MOST_GRIDS)), "tables"), 0);
        let read = grids(&tables(MOST_GRIDS + 1));
        assert_eq!((read.grids.len(), times(&read, "tables")), (MOST_GRIDS, 1));
        let line = |bytes: usize| format!("---- ----\n{}\n", "x".repeat(bytes));
        assert_eq!(times(&grids(&line(LONGEST_LINE)), "line"), 0);
        let read = grids(&line(LONGEST_LINE + 1));
        assert_eq!(times(&read, "line"), 1);
        assert_eq!(cut_off(&"é".repeat(LONGEST_LINE)).len(), LONGEST_LINE);
        assert_eq!(times(&grids(&"\n".repeat(MOST_LINES)), "lines"), 0);
        assert_eq!(times(&grids(&"\n".repeat(MOST_LINES + 1)), "lines"), 1);
        let columns = "-- ".repeat(MOST_COLUMNS);
        let read = grids(&format!("{columns}\n{}\n", "x\n".repeat(MOST_ROWS)).repeat(4));
        assert!(
            read.grids.iter().flat_map(|grid| &grid.rows).map(Vec::len).sum::<usize>()
                < MOST_CELLS + MOST_COLUMNS
        );
        assert!(times(&read, "cells") > 0);
    }

    #[test]
    fn titles_on_several_lines_belong_to_the_dashes_below() {
        let text = "Foreground Wait Events            DB/Inst: X/x  Snaps: 1-2\n-> s - second\n\n\
                    \x20                                                  Avg\n\
                    \x20                                  Total Wait    wait\n\
                    Event                        Waits   Time (s)    (ms)\n\
                    ---------------------- ----------- ---------- -------\n\
                    log file sync            1,234,567     56,789     1.2\n\
                    db file sequential rea          10          0      .5\n\
                    \x20         -------------------------------------------------------------\n";
        let grids = grids(text).grids;
        assert_eq!(grids.len(), 1);
        assert_eq!(grids[0].section, "Foreground Wait Events");
        assert_eq!(grids[0].columns, ["Event", "Waits", "Total Wait Time (s)", "Avg wait (ms)"]);
        assert_eq!(grids[0].rows[0], ["log file sync", "1,234,567", "56,789", "1.2"]);
        assert_eq!(grids[0].rows.len(), 2);
    }

    #[test]
    fn no_text_makes_it_panic() {
        let mut rng = fastrand::Rng::with_seed(6);
        let parts = [
            "---- ----",
            "\n",
            " ",
            "~~~~ ---",
            "DB/Inst: x",
            "é",
            "----------",
            "12",
            "Event",
            "\u{c}",
            "->",
            "\t",
        ];
        for _ in 0..20_000 {
            let text: String =
                (0..rng.usize(0..30)).map(|_| parts[rng.usize(0..parts.len())]).collect();
            let _ = grids(&text);
        }
    }
}

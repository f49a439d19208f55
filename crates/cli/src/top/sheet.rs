//! Tables that fit a width: columns are as wide as what is in them, one of them gives way, and
//! where even that is not enough the least important columns are left out.
//!
//! Invariant: no line is wider than asked for, counted in cells of a terminal.

use ratatui::text::Span;

use super::shown::Alphabet;

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) title: &'static str,
    /// Figures stand to the right.
    pub(super) right: bool,
    /// The higher, the sooner it is left out; the column of 0 gives way in width instead.
    pub(super) rank: u8,
}

/// A column of text.
pub(super) const fn left(title: &'static str, rank: u8) -> Column {
    Column { title, right: false, rank }
}

/// A column of figures.
pub(super) const fn right(title: &'static str, rank: u8) -> Column {
    Column { title, right: true, rank }
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(super) struct Sheet {
    pub(super) title: String,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<String>>,
    /// Lines below the rows.
    pub(super) notes: Vec<String>,
}

/// Cells that a text takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// The beginning of a text that fits, with `~` at its end if that is not all of it.
pub(super) fn fit(text: &str, cells: usize) -> String {
    if width(text) <= cells {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut taken = 0;
    for c in text.chars() {
        let wide = width(c.encode_utf8(&mut [0; 4]));
        if taken + wide + 1 > cells {
            break;
        }
        taken += wide;
        out.push(c);
    }
    if cells > 0 {
        out.push('~');
    }
    out
}

/// The least width of the column that gives way.
const LEAST: usize = 12;

impl Sheet {
    /// Header and rows as lines, the header first.
    pub(super) fn lines(&self, cells: usize, alphabet: Alphabet) -> Vec<String> {
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| row.iter().map(|cell| alphabet.shown(cell)).collect())
            .collect();
        let widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(at, column)| {
                let widest =
                    rows.iter().filter_map(|row| row.get(at)).map(|cell| width(cell)).max();
                widest.unwrap_or(0).max(width(column.title))
            })
            .collect();
        let mut there: Vec<usize> = (0..self.columns.len()).collect();
        let least = |there: &[usize]| {
            let sum: usize =
                there
                    .iter()
                    .map(|at| {
                        if self.columns[*at].rank == 0 {
                            widths[*at].min(LEAST)
                        } else {
                            widths[*at]
                        }
                    })
                    .sum();
            sum + there.len().saturating_sub(1)
        };
        while least(&there) > cells && there.len() > 1 {
            let last = there.iter().enumerate().max_by_key(|(_, at)| self.columns[**at].rank);
            let Some((place, _)) = last else { break };
            there.remove(place);
        }
        let fixed: usize =
            there.iter().filter(|at| self.columns[**at].rank > 0).map(|at| widths[*at]).sum();
        let rest = cells.saturating_sub(fixed + there.len().saturating_sub(1));
        let line = |cell: &dyn Fn(usize) -> String| {
            let parts: Vec<String> = there
                .iter()
                .map(|at| {
                    let column = self.columns[*at];
                    let room = if column.rank == 0 { widths[*at].min(rest) } else { widths[*at] };
                    let text = fit(&cell(*at), room);
                    let pad = " ".repeat(room.saturating_sub(width(&text)));
                    if column.right { pad + &text } else { text + &pad }
                })
                .collect();
            fit(parts.join(" ").trim_end(), cells)
        };
        let mut lines = vec![line(&|at| self.columns[at].title.to_owned())];
        lines.extend(rows.iter().map(|row| line(&|at| row.get(at).cloned().unwrap_or_default())));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_wider_than_asked_for_and_the_name_gives_way_first() {
        let sheet = Sheet {
            columns: vec![left("Name", 0), right("Rate", 1), right("Less", 2)],
            rows: vec![vec![
                "a long name \u{1b}[31m 日本語".to_owned(),
                "1,234.5".to_owned(),
                "5".to_owned(),
            ]],
            ..Sheet::default()
        };
        for cells in 0..60 {
            for line in sheet.lines(cells, Alphabet::Unicode) {
                assert!(width(&line) <= cells, "{cells}: {line:?}");
                assert!(!line.contains('\u{1b}'));
            }
        }
        assert_eq!(
            sheet.lines(25, Alphabet::Ascii),
            ["Name            Rate Less", "a long name~ 1,234.5    5"]
        );
        assert_eq!(
            sheet.lines(20, Alphabet::Ascii),
            ["Name            Rate", "a long name~ 1,234.5"]
        );
        assert_eq!(fit("日本語", 5), "日本~");
    }
}

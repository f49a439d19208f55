//! A table of a report: a caption, columns with unit and explanation, and typed cells.
//!
//! The layout of a report is data, so that text, JSON and HTML print the same rows and no figure is
//! typed twice.
//!
//! Invariant: a cell holds a finite number or none at all. Read next: `render/text.rs` and
//! `page/mod.rs`, which print it.

use serde::{Deserialize, Serialize};

use crate::figure;

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// What it shows.
    pub caption: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows, each with one cell per column; missing cells count as empty, those past the last
    /// column are not shown.
    pub rows: Vec<Vec<Cell>>,
    /// What else must be known to read it; printed below.
    pub notes: Vec<String>,
    /// Whether it only gives the figures of a chart or the whole of a list: folded away on a page.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub details: bool,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// What stands above it.
    pub title: String,
    /// The unit of its figures, empty for text, for counts, and where each figure carries its own.
    pub unit: String,
    /// Which side its cells are on.
    pub align: Align,
    /// What its figures are, in a sentence.
    pub explanation: String,
}

/// Which side the cells of a column are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Align {
    /// Text.
    Left,
    /// Figures.
    Right,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cell {
    /// Not known, or not to be had: never zero.
    Empty,
    /// Words.
    Text(String),
    /// A whole number.
    Count(u64),
    /// A number that need not be whole.
    Number(f64),
    /// A time in seconds.
    Seconds(f64),
    /// A time in nanoseconds, printed with the unit that fits.
    Nanoseconds(f64),
    /// An amount of data, printed with the unit that fits.
    Bytes(f64),
    /// A share of a hundred, or a change in hundredths.
    Percent(f64),
}

/// What the figures of a chart, or of cells made by [`Cell::of`], are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantity {
    /// A number that need not be whole.
    Number,
    /// A time in seconds.
    Seconds,
    /// A time in nanoseconds.
    Nanoseconds,
    /// An amount of data in bytes.
    Bytes,
    /// A share of a hundred.
    Percent,
}

impl Table {
    /// A table without columns and rows.
    pub fn new(caption: impl Into<String>) -> Table {
        Table { caption: caption.into(), ..Table::default() }
    }

    /// Adds a column of text.
    #[must_use]
    pub fn text(self, title: &str, explanation: &str) -> Table {
        self.column(title, "", Align::Left, explanation)
    }

    /// Adds a column of figures; `unit` is empty for counts and where each figure carries its own.
    #[must_use]
    pub fn figures(self, title: &str, unit: &str, explanation: &str) -> Table {
        self.column(title, unit, Align::Right, explanation)
    }

    fn column(mut self, title: &str, unit: &str, align: Align, explanation: &str) -> Table {
        self.columns.push(Column {
            title: title.to_owned(),
            unit: unit.to_owned(),
            align,
            explanation: explanation.to_owned(),
        });
        self
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<Cell>) -> &mut Table {
        self.rows.push(cells);
        self
    }

    /// The table without the columns of figures in which no cell holds anything.
    #[must_use]
    pub fn without_empty_columns(mut self) -> Table {
        for index in (0..self.columns.len()).rev() {
            let empty =
                self.rows.iter().all(|row| matches!(row.get(index), None | Some(Cell::Empty)));
            if empty && self.columns[index].align == Align::Right && !self.rows.is_empty() {
                self.columns.remove(index);
                for row in self.rows.iter_mut().filter(|row| row.len() > index) {
                    row.remove(index);
                }
            }
        }
        self
    }

    /// The table as one of details.
    #[must_use]
    pub fn details(mut self) -> Table {
        self.details = true;
        self
    }

    /// Keeps the first `most` rows and says how many were left out, and where they are.
    pub(crate) fn first(&mut self, most: usize, where_all_are: &str) {
        if let Some(left_out) = self.rows.len().checked_sub(most).filter(|more| *more > 0) {
            self.rows.truncate(most);
            let left_out = figure::count(left_out as u64);
            self.note(format!(
                "The first {most} rows; {left_out} more are left out here. {where_all_are}"
            ));
        }
    }

    /// Adds a note that is printed below.
    pub fn note(&mut self, note: impl Into<String>) -> &mut Table {
        self.notes.push(note.into());
        self
    }
}

impl Column {
    /// Whether the unit is printed behind the title: not if there is none, or the title has the
    /// sign of per cent.
    pub(crate) fn unit_is_shown(&self) -> bool {
        match self.unit.as_str() {
            "" => false,
            "%" => !self.title.contains('%'),
            _ => true,
        }
    }
}

impl Cell {
    /// Words.
    pub fn text(words: impl Into<String>) -> Cell {
        Cell::Text(words.into())
    }

    /// A figure; empty if there is none or it is not finite.
    pub fn of(quantity: Quantity, value: impl Into<Option<f64>>) -> Cell {
        match value.into().filter(|value| value.is_finite()) {
            None => Cell::Empty,
            Some(value) => match quantity {
                Quantity::Number => Cell::Number(value),
                Quantity::Seconds => Cell::Seconds(value),
                Quantity::Nanoseconds => Cell::Nanoseconds(value),
                Quantity::Bytes => Cell::Bytes(value),
                Quantity::Percent => Cell::Percent(value),
            },
        }
    }

    /// A whole number; empty if there is none.
    pub fn count(value: impl Into<Option<u64>>) -> Cell {
        value.into().map_or(Cell::Empty, Cell::Count)
    }

    /// A time in seconds.
    pub fn seconds(value: impl Into<Option<f64>>) -> Cell {
        Cell::of(Quantity::Seconds, value)
    }

    /// A time in nanoseconds.
    pub fn nanoseconds(value: impl Into<Option<f64>>) -> Cell {
        Cell::of(Quantity::Nanoseconds, value)
    }

    /// A number that need not be whole.
    pub fn number(value: impl Into<Option<f64>>) -> Cell {
        Cell::of(Quantity::Number, value)
    }

    /// An amount of data.
    pub fn bytes(value: impl Into<Option<f64>>) -> Cell {
        Cell::of(Quantity::Bytes, value)
    }

    /// A share of a hundred.
    pub fn percent(value: impl Into<Option<f64>>) -> Cell {
        Cell::of(Quantity::Percent, value)
    }

    /// The figure as a number, to sort by; nothing for words and for an empty cell.
    pub(crate) fn value(&self) -> Option<f64> {
        match self {
            Cell::Empty | Cell::Text(_) => None,
            Cell::Count(value) => Some(*value as f64),
            Cell::Number(value)
            | Cell::Seconds(value)
            | Cell::Nanoseconds(value)
            | Cell::Bytes(value)
            | Cell::Percent(value) => Some(*value),
        }
    }

    /// How it is printed; an empty cell as nothing.
    pub fn shown(&self) -> String {
        match self {
            Cell::Empty => String::new(),
            Cell::Text(text) => figure::visible(text),
            Cell::Count(value) => figure::count(*value),
            Cell::Number(value) | Cell::Seconds(value) => figure::number(*value),
            Cell::Nanoseconds(value) => figure::nanoseconds(*value),
            Cell::Bytes(value) => figure::bytes(*value),
            Cell::Percent(value) => figure::percent(*value),
        }
    }
}

impl Quantity {
    /// How a figure is printed beside a bar, unit included.
    pub fn shown(self, value: f64) -> String {
        match self {
            Quantity::Number => figure::number(value),
            Quantity::Seconds => format!("{} s", figure::number(value)),
            Quantity::Nanoseconds => figure::nanoseconds(value),
            Quantity::Bytes => figure::bytes(value),
            Quantity::Percent => format!("{} %", figure::percent(value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_an_empty_cell_and_never_zero() {
        for value in [f64::NAN, f64::INFINITY] {
            assert_eq!(Cell::percent(value), Cell::Empty);
        }
        assert_eq!(Cell::count(None), Cell::Empty);
        assert_eq!(Cell::Empty.shown(), "");
    }
}

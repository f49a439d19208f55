//! The cells of tallies ([`crate::Tally`]) in one shard, and which rows of them nobody has.
//!
//! A row is a place in a table that each shard grows as it needs it, 8 KiB at a time: plain loads
//! and stores, because a shard has one writer.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Cells of a tally.
pub const CELLS: usize = 2;
/// Tallies of one registry at a time.
pub(crate) const ROWS: usize = 1 << 18;
const ROWS_PER_PART: usize = 512;

/// A row of no place: what is added to it is nowhere.
pub(crate) const NONE: u32 = u32::MAX;

type Part = [[AtomicU64; CELLS]; ROWS_PER_PART];
type Parts = [OnceLock<Box<Part>>; ROWS / ROWS_PER_PART];

/// The cells of one shard.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    parts: OnceLock<Box<Parts>>,
}

/// Rows that nobody has.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    free: Vec<u32>,
    next: u32,
}

impl Rows {
    pub(crate) fn take(&mut self) -> u32 {
        if let Some(row) = self.free.pop() {
            return row;
        }
        if self.next as usize == ROWS {
            return NONE;
        }
        self.next += 1;
        self.next - 1
    }

    pub(crate) fn give(&mut self, row: u32) {
        if row != NONE {
            self.free.push(row);
        }
    }
}

impl Cells {
    fn cell(&self, row: u32, cell: usize) -> Option<&AtomicU64> {
        let part = self.parts.get()?[row as usize / ROWS_PER_PART].get()?;
        Some(&part[row as usize % ROWS_PER_PART][cell])
    }

    /// Adds to a cell. The caller is the only writer.
    #[inline]
    pub(crate) fn add(&self, row: u32, cell: usize, n: u64) {
        if row == NONE {
            return;
        }
        let cell = match self.cell(row, cell) {
            Some(cell) => cell,
            None => self.first_in_part(row, cell),
        };
        cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
    }

    #[cold]
    fn first_in_part(&self, row: u32, cell: usize) -> &AtomicU64 {
        let parts =
            self.parts.get_or_init(|| Box::new([const { OnceLock::new() }; ROWS / ROWS_PER_PART]));
        let part = parts[row as usize / ROWS_PER_PART].get_or_init(|| {
            Box::new([const { [const { AtomicU64::new(0) }; CELLS] }; ROWS_PER_PART])
        });
        &part[row as usize % ROWS_PER_PART][cell]
    }

    pub(crate) fn read(&self, row: u32, cell: usize) -> u64 {
        self.cell(row, cell).map_or(0, |cell| cell.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_were_given_back_are_taken_first_and_there_are_no_more_than_there_are() {
        let mut rows = Rows { free: Vec::new(), next: ROWS as u32 - 1 };
        assert_eq!((rows.take(), rows.take()), (ROWS as u32 - 1, NONE));
        rows.give(NONE);
        assert_eq!(rows.take(), NONE);
        rows.give(5);
        assert_eq!(rows.take(), 5);
        let cells = Cells::default();
        cells.add(NONE, 0, 1);
        cells.add(ROWS as u32 - 1, 1, 3);
        assert_eq!((cells.read(ROWS as u32 - 1, 1), cells.read(0, 1)), (3, 0));
    }
}

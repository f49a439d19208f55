//! The chart: active sessions over time as stacked letters, one column an interval, with the number
//! of processors as a line.
//!
//! ```text
//! 4.0|        U           a letter is a class; colours only repeat what the letters say
//!    |-- -CUU-UU----      the line is the number of processors
//!    |CCC!CCUCCUUCCC      ! is a gap: the source did not answer, or was started anew
//! ```
//!
//! Invariant: a cell is filled if the class reaches the middle of it; activity that fills no cell
//! is a dot, so that little is not nothing.

use super::activity::{Activity, KINDS};
use super::history::Point;

/// A cell: its letter, and the layer whose colour it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) letter: char,
    pub(super) kind: Option<usize>,
}

/// A chart of some size.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    /// Sessions at the upper border.
    pub(super) top: f64,
    /// Rows from the top, each from the left.
    pub(super) rows: Vec<Vec<Cell>>,
    /// Whether the number of processors is inside the chart.
    pub(super) line: bool,
}

const EMPTY: Cell = Cell { letter: ' ', kind: None };

/// The chart of `points`, which are at most `columns`, the newest at the right.
pub(super) fn chart(points: &[&Point], columns: usize, rows: usize) -> Chart {
    let known = || points.iter().filter_map(|point| point.activity.as_ref());
    let most = known().map(|of| of.total).fold(0.0, f64::max);
    let cpus = known().next_back().and_then(|of| of.cpus).map(f64::from).filter(|cpus| *cpus > 0.0);
    // A machine of many processors that has little to do would be a flat line.
    let shown = cpus.filter(|cpus| *cpus <= (most * 4.0).max(4.0));
    let top = round_up(most.max(shown.unwrap_or(0.0)).max(0.1));
    let mut grid = vec![vec![EMPTY; columns]; rows];
    if let Some(cpus) = shown {
        let from_bottom = ((cpus / top * rows as f64).ceil() as usize).clamp(1, rows);
        for cell in &mut grid[rows - from_bottom] {
            *cell = Cell { letter: '-', kind: None };
        }
    }
    for (column, point) in points.iter().rev().take(columns).enumerate() {
        let x = columns - 1 - column;
        match &point.activity {
            None => grid[rows - 1][x] = Cell { letter: '!', kind: None },
            Some(of) => fill(&mut grid, x, of, top),
        }
    }
    Chart { top, rows: grid, line: shown.is_some() }
}

fn fill(grid: &mut [Vec<Cell>], x: usize, of: &Activity, top: f64) {
    let rows = grid.len();
    let mut filled = false;
    for row in 0..rows {
        let middle = (row as f64 + 0.5) / rows as f64 * top;
        let mut sum = 0.0;
        let layer = of.layers.iter().find(|layer| {
            sum += layer.sessions;
            sum >= middle
        });
        let Some(layer) = layer else { break };
        grid[rows - 1 - row][x] = Cell { letter: KINDS[layer.kind].letter, kind: Some(layer.kind) };
        filled = true;
    }
    if !filled && of.total > 0.0 && grid[rows - 1][x] == EMPTY {
        grid[rows - 1][x] = Cell { letter: '.', kind: None };
    }
}

/// The next number that a scale may end with: 1, 2 or 5 times a power of ten, and halves of these
/// steps between.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps
        .iter()
        .map(|step| step * power)
        .find(|step| *step >= value * 0.999_999)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::super::activity::{Basis, Layer};
    use super::*;

    fn point(parts: &[(usize, f64)], cpus: u32) -> Point {
        let layers: Vec<Layer> = parts
            .iter()
            .map(|(kind, sessions)| Layer {
                kind: *kind,
                name: KINDS[*kind].name,
                sessions: *sessions,
            })
            .collect();
        let total = layers.iter().map(|layer| layer.sessions).sum();
        let basis = Basis::Measured;
        let activity = Activity {
            basis,
            looks: None,
            total,
            measured: None,
            samples_miss: None,
            samples_exceed: None,
            cpus: Some(cpus),
            layers,
        };
        Point { at_s: 0, activity: Some(activity), view: None }
    }

    fn drawn(points: &[Point], columns: usize, rows: usize) -> Vec<String> {
        let points: Vec<&Point> = points.iter().collect();
        let chart = chart(&points, columns, rows);
        chart.rows.iter().map(|row| row.iter().map(|cell| cell.letter).collect()).collect()
    }

    #[test]
    fn classes_are_stacked_gaps_are_marks_and_little_is_a_dot() {
        let gap = Point::gap(0);
        let points =
            [point(&[(0, 2.0), (1, 2.0)], 2), gap, point(&[(0, 0.1)], 2), point(&[(0, 1.0)], 2)];
        assert_eq!(drawn(&points, 5, 4), [" U   ", " U   ", "-C---", " C!.C"]);
    }

    #[test]
    fn a_machine_of_many_processors_does_not_flatten_the_chart() {
        let points = [point(&[(0, 1.0)], 64)];
        assert_eq!(drawn(&points, 1, 2), ["C", "C"]);
        let points: Vec<&Point> = points.iter().collect();
        assert!(!chart(&points, 1, 2).line);
    }

    #[test]
    fn every_activity_and_size_can_be_drawn() {
        for value in [0.0, f64::MIN_POSITIVE, 1e-9, 0.3, 7.0, 1e12, f64::MAX] {
            for (columns, rows) in [(1, 1), (3, 2), (200, 50)] {
                assert_eq!(drawn(&[point(&[(0, value)], 4)], columns, rows).len(), rows);
            }
        }
        let rounded =
            [0.1, 0.11, 1.0, 2.3, 9.0, 64.0].map(|value| format!("{:.2}", round_up(value)));
        assert_eq!(rounded, ["0.10", "0.15", "1.00", "3.00", "10.00", "80.00"]);
    }
}

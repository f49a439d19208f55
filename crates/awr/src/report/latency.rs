//! How waits are distributed: percentiles, Oracle's histograms by powers of two, and charts of
//! them.
//!
//! Borders are powers of two of a microsecond: `<1ms` is below 1,024 us, `<1s` below 2^20 us. The
//! events' histograms have borders there, so the shares are exact.

use crate::chart::{Chart, Series};
use crate::table::{Cell, Quantity, Table};
use crate::{Interval, WaitDelta};

/// Oracle's tables: title, exponent of the first and of the last border, and from which exponent on
/// an event must have waits to be listed (those of the first two tables are listed in any case).
const RANGES: &[(&str, usize, usize, Option<usize>)] = &[
    ("Wait Event Histogram", 3, 9, None),
    ("Wait Event Histogram (up to 64 us)", 0, 6, None),
    ("Wait Event Histogram (up to 32 ms)", 9, 15, Some(9)),
    ("Wait Event Histogram (up to 2 sec)", 15, 21, Some(15)),
    ("Wait Event Histogram (up to 2 min)", 21, 27, Some(21)),
];

/// The border 2^`exponent` us.
pub(super) fn border(exponent: usize) -> String {
    match exponent {
        0..=9 => format!("{}us", 1u32 << exponent),
        10..=16 => format!("{}ms", 1u32 << (exponent - 10)),
        17..=19 => format!("1/{}s", 1u32 << (20 - exponent)),
        20..=26 => format!("{}s", 1u32 << (exponent - 20)),
        _ => format!("{}min", 1u64 << (exponent.min(60) - 26)),
    }
}

/// The waits that have a histogram, foreground first, longest time first.
fn with_histogram(of: &Interval) -> Vec<&WaitDelta> {
    let waits = of.foreground().into_iter().chain(of.background());
    waits.filter(|wait| wait.histogram.count() > 0).collect()
}

fn named(wait: &WaitDelta) -> String {
    if wait.background { format!("{} (bg)", wait.name) } else { wait.name.clone() }
}

/// Percentiles of every event.
pub(super) fn percentiles(of: &Interval) -> Table {
    let mut table = Table::new("Wait Event Latency")
        .text("Event", "The wait event; (bg) marks waits of background work.")
        .figures("Waits", "", "How often something was waited for.")
        .figures("Avg", "", "Time waited by waits: exact.")
        .figures("p50", "", "Half of the waits were not longer, within 1/128.")
        .figures("p95", "", "95 of 100 waits were not longer, within 1/128.")
        .figures("p99", "", "99 of 100 waits were not longer, within 1/128.")
        .figures("p99.9", "", "999 of 1,000 waits were not longer, within 1/128.")
        .figures("Max", "", "No wait was longer; the longest may be up to 1/64 shorter.");
    for wait in with_histogram(of) {
        let quantile =
            |q: f64| Cell::nanoseconds(wait.histogram.quantile_ns(q).map(|ns| ns as f64));
        table.row(vec![
            Cell::text(named(wait)),
            Cell::count(wait.count),
            Cell::nanoseconds(wait.mean_ns()),
            quantile(0.5),
            quantile(0.95),
            quantile(0.99),
            quantile(0.999),
            Cell::nanoseconds(wait.histogram.max_ns().map(|ns| ns as f64)),
        ]);
    }
    table.first(super::ROWS, super::io::REST);
    table
}

/// Oracle's histograms: each a table, those without rows left out.
pub(super) fn histograms(of: &Interval) -> Vec<Table> {
    let mut tables = Vec::new();
    for (title, first, last, from) in RANGES {
        let mut table = Table::new(format!("{title}: % of Waits"))
            .text("Event", "The wait event; (bg) marks waits of background work.")
            .figures("Total Waits", "", "Waits of every duration.");
        for exponent in *first..=*last {
            let explanation = if exponent == *first {
                format!("Waits shorter than {}.", border(exponent))
            } else {
                format!("Waits from {} to below {}.", border(exponent - 1), border(exponent))
            };
            table = table.figures(&format!("<{}", border(exponent)), "%", &explanation);
        }
        table = table.figures(
            &format!(">={}", border(*last)),
            "%",
            "Waits that took as long or longer.",
        );
        for column in table.columns.iter_mut().skip(2) {
            // The caption says it; above nine columns there is no room for nine signs.
            column.unit.clear();
        }
        for wait in with_histogram(of) {
            let powers = wait.histogram.powers_of_two_us();
            let total = wait.histogram.count();
            let listed =
                from.is_none_or(|from| powers.iter().skip(from + 1).any(|count| *count > 0));
            if listed {
                let mut cells = vec![Cell::text(named(wait)), Cell::count(total)];
                cells.extend(shares(&powers, *first, *last, total).into_iter().map(Cell::percent));
                table.row(cells);
            }
        }
        table.first(super::ROWS, super::io::REST);
        if !table.rows.is_empty() {
            tables.push(table);
        }
    }
    if let Some(last) = tables.last_mut() {
        last.note(
            "Borders are powers of two of a microsecond: 1ms stands for 1,024 us, 1s for 1,048,576 \
             us.",
        );
    }
    tables
}

/// Shares of the waits below the first border, between the borders, and from the last on.
fn shares(powers: &[u64], first: usize, last: usize, total: u64) -> Vec<f64> {
    let below_first: u64 = powers.iter().take(first + 1).sum();
    let between = (first + 1..=last).map(|exponent| powers.get(exponent).copied().unwrap_or(0));
    let above: u64 = powers.iter().skip(last + 1).sum();
    let counts = std::iter::once(below_first).chain(between).chain(std::iter::once(above));
    counts.map(|count| count as f64 / total as f64 * 100.0).collect()
}

/// A chart of an event's distribution in one interval or several; nothing if it never happened.
pub(super) fn chart(
    name: &str,
    background: bool,
    intervals: &[(&Interval, Series)],
) -> Option<Chart> {
    let find = |of: &Interval| {
        let wait = of.waits.iter().find(|wait| wait.name == name && wait.background == background);
        wait.map(|wait| wait.histogram.powers_of_two_us()).unwrap_or_default()
    };
    let powers: Vec<Vec<u64>> = intervals.iter().map(|(of, _)| find(of)).collect();
    let happened = |exponent: &usize| {
        powers.iter().any(|powers| powers.get(*exponent).is_some_and(|count| *count > 0))
    };
    let longest = powers.iter().map(Vec::len).max().unwrap_or(0);
    let (first, last) = ((0..longest).find(happened)?, (0..longest).rev().find(happened)?);
    let bucket = |exponent: usize| {
        let values = powers.iter().map(|powers| {
            let total: u64 = powers.iter().sum();
            let count = powers.get(exponent).copied().unwrap_or(0);
            if total > 0 { count as f64 / total as f64 * 100.0 } else { 0.0 }
        });
        (format!("<{}", border(exponent)), values.collect())
    };
    Some(Chart::Histogram {
        title: format!("Latency of {name}"),
        explanation:
            "Share of the waits that took less than the border, and not less than the one above."
                .to_owned(),
        quantity: Quantity::Percent,
        series: intervals
            .iter()
            .zip(&powers)
            .map(|((_, series), powers)| named_series(series, powers))
            .collect(),
        buckets: (first..=last).map(bucket).collect(),
    })
}

/// The name of an interval's bars; an interval without such waits has none, and says so.
fn named_series(series: &Series, powers: &[u64]) -> Series {
    let none = if powers.is_empty() { " (no waits)" } else { "" };
    Series { name: format!("{}{none}", series.name), colour: series.colour }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders_are_named_as_oracle_names_them() {
        let names: Vec<String> = [0, 9, 10, 16, 17, 19, 20, 21, 26, 27, 28].map(border).to_vec();
        assert_eq!(names.join(" "), "1us 512us 1ms 64ms 1/8s 1/2s 1s 2s 64s 2min 4min");
    }

    #[test]
    fn shares_of_a_histogram_add_up_to_a_hundred() {
        let powers = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
        for (_, first, last, _) in RANGES {
            let shares = shares(&powers, *first, *last, powers.iter().sum());
            assert!((shares.iter().sum::<f64>() - 100.0).abs() < 1e-9, "{shares:?}");
            assert_eq!(shares.len(), last - first + 2);
        }
        assert_eq!(shares(&powers, 3, 9, 66)[0], 10.0 / 66.0 * 100.0);
    }
}

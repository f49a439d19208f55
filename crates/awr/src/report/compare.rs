//! The report of two intervals, after Oracle's Compare Periods report: what differs, per second,
//! per transaction, and as shares of DB time, so that intervals of different length and load can be
//! compared.
//!
//! Events are ordered by how much their share of DB time changed, as Oracle orders them; the top
//! events by the larger of the two. Sections are those of the report of one interval. The intervals
//! may be of different databases: that is what a comparison of two placements is.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::ROWS;
use super::load::{self, change, per};
use super::single::{DRAWN, TOP, cpu_shares, process_share};
use super::{Report, Section, io, latency, more, over_time, segments, sizes, tables, time};
use crate::chart::{Bar, Chart, Series};
use crate::figure;
use crate::table::{Cell, Quantity, Table};
use crate::{Interval, IoStat, WaitDelta};

/// Colours of the two intervals where they are beside each other.
const COLOURS: [u8; 2] = [1, 3];

/// The report that compares two intervals.
pub fn compare(first: &Interval, second: &Interval) -> Report {
    let both = [first, second];
    let subtitle = format!(
        "First (1st): {}. Second (2nd): {}",
        tables::name_of(first),
        tables::name_of(second)
    );
    let mut report =
        Report::new("WORKLOAD REPOSITORY COMPARE PERIOD REPORT".to_owned(), subtitle, &both);
    report.add(summary(both));
    report.add(waits(both));
    report.add(more::samples(&both));
    let mut statements = Section::new("SQL Statistics");
    statements.table_if_any(more::statements_compared(both));
    report.add(statements);
    let mut reads_and_writes = Section::new("IO Stats");
    io::tables_compared(both, &mut reads_and_writes);
    reads_and_writes.table_if_any(io_table(both));
    report.add(reads_and_writes);
    let mut activity = Section::new("Cache, Redo and Instance Activity Statistics");
    activity.table_if_any(activity_table(both));
    activity.table_if_any(levels(both));
    report.add(activity);
    report.add(segments::compared(both));
    let mut host = Section::new(&tables::host_title(&both));
    host.table_if_any(cpu_table(both));
    host.table_if_any(disks(both));
    host.table_if_any(more::pressure(&both));
    report.add(host);
    let mut rest = Section::new("Media and Settings");
    rest.table_if_any(tables::media(&both));
    rest.table_if_any(tables::settings(&both));
    report.add(rest);
    let mut explained = Section::new("Wait Events Explained");
    explained.table_if_any(tables::explanations(&both));
    report.add(explained);
    report.add(over_time::section(&both));
    report
}

fn summary(both: [&Interval; 2]) -> Section {
    let mut section = Section::new("Report Summary");
    section.table(sets(both));
    section.table(periods(both));
    section.table_if_any(tables::left_out(&both));
    for warning in tables::warnings(&both) {
        section.text(format!("Warning: {warning}"));
    }
    section.table_if_any(more::findings_table(&both));
    section.table_if_any(more::advice_table(&both));
    section.charts(over_time::charts(&both));
    section.table_if_any(tables::host(&both));
    section.table_if_any(sizes::differing(both));
    section.table_if_any(sizes::caches(&both));
    section.table_if_any(sizes::memory(&both));
    section.charts(load_chart(both));
    section.table_if_any(load_profile(both));
    section.table_if_any(efficiency(both));
    section.charts(time_chart(both));
    section.table(account(both));
    section.table(top_events(both));
    section
}

/// A figure of each interval.
fn pair<T>(both: [&Interval; 2], of: impl Fn(&Interval) -> T) -> (T, T) {
    (of(both[0]), of(both[1]))
}

fn sets(both: [&Interval; 2]) -> Table {
    let mut table = Table::new("Snapshot Sets")
        .text("Snapshot Set", "Which of the two intervals.")
        .text("Name", "What it is called.")
        .text("DB Name", "The name of the database.")
        .text("Release", "Product and version.")
        .text("Host", "The machine; of a database elsewhere that of the recorder, which says so.");
    for (ordinal, of) in tables::ORDINALS.into_iter().zip(both) {
        let source = &of.end.source;
        table.row(vec![
            Cell::text(ordinal),
            Cell::text(&of.label),
            Cell::text(&source.database),
            Cell::text(format!("{} {}", source.product, source.version).trim()),
            tables::host_name(of).map_or(Cell::Empty, Cell::text),
        ]);
    }
    table
}

const NUMBER: &str =
    "The number of the snapshot: as the imported report prints it, else in its repository.";

fn periods(both: [&Interval; 2]) -> Table {
    let [first, second] = both.map(tables::zone);
    let zone = if first == second { first } else { "UTC; of Oracle as printed" };
    let mut table = Table::new("Snapshots")
        .text("Snapshot Set", "Which of the two intervals.")
        .figures("Begin Snap Id", "", NUMBER)
        .figures("Begin Snap Time", zone, "When the first snapshot was taken.")
        .figures("End Snap Id", "", NUMBER)
        .figures("End Snap Time", zone, "When the second snapshot was taken.")
        .figures("Avg Active Sessions", "", "DB time by elapsed time.")
        .figures("Elapsed", "s", "The length of the interval.")
        .figures("DB time", "s", "Time requests spent, working or waiting.")
        .figures("Begin in Repository", "", "The number of an imported snapshot there.")
        .figures("End in Repository", "", "The number of an imported snapshot there.");
    let db_time = |of: &Interval| of.db_time_ns.map(|ns| ns as f64 / 1e9);
    for (ordinal, of) in tables::ORDINALS.into_iter().zip(both) {
        let [[begin, end], [own_begin, own_end]] = tables::number_cells(of);
        table.row(vec![
            Cell::text(ordinal),
            begin,
            Cell::text(figure::instant(of.begin.taken_unix_ns)),
            end,
            Cell::text(figure::instant(of.end.taken_unix_ns)),
            Cell::number(of.active_sessions()),
            Cell::seconds(of.elapsed_s()),
            Cell::seconds(db_time(of)),
            own_begin,
            own_end,
        ]);
    }
    let mut last = vec![Cell::text("%Diff"), Cell::Empty, Cell::Empty, Cell::Empty, Cell::Empty];
    last.extend([Interval::active_sessions, |of: &Interval| Some(of.elapsed_s()), db_time].map(
        |of| {
            let (first, second) = pair(both, of);
            change(first, second)
        },
    ));
    table.row(last);
    table.without_empty_columns()
}

/// Columns for a first and a second figure and the change between them.
fn with_change(table: Table, what: &str, unit: &str, explanation: &str) -> Table {
    table
        .figures(&format!("1st {what}"), unit, explanation)
        .figures(&format!("2nd {what}"), unit, explanation)
        .figures(
            &format!("%Diff {what}"),
            "",
            "The change from the first to the second in per cent of the first; new: from nothing.",
        )
}

fn changed(cells: &mut Vec<Cell>, quantity: Quantity, first: Option<f64>, second: Option<f64>) {
    cells.extend([Cell::of(quantity, first), Cell::of(quantity, second), change(first, second)]);
}

fn load_profile(both: [&Interval; 2]) -> Table {
    let mut table = Table::new("Load Profile").text("", "What is counted.");
    table = with_change(table, "Per Sec", "", "By elapsed time.");
    table = with_change(table, "Per Txn", "", "By transactions that ended, well or not.");
    let (first, second) = pair(both, load::profile);
    // In the order of the profile: a row of the second alone stands behind those of the first.
    let names: Vec<&str> = first.iter().map(|row| row.name).collect();
    let only_second = second.iter().map(|row| row.name).filter(|name| !names.contains(name));
    for name in names.iter().copied().chain(only_second) {
        let total =
            |rows: &[load::LoadRow]| rows.iter().find(|row| row.name == name).map(|row| row.total);
        let totals = (total(&first), total(&second));
        let mut cells = vec![Cell::text(name)];
        let per_second =
            |total: Option<f64>, of: &Interval| total.map(|total| total / of.elapsed_s());
        let per_transaction = |total: Option<f64>, of: &Interval| {
            total.and_then(|total| per(total, of.transactions()))
        };
        changed(
            &mut cells,
            Quantity::Number,
            per_second(totals.0, both[0]),
            per_second(totals.1, both[1]),
        );
        changed(
            &mut cells,
            Quantity::Number,
            per_transaction(totals.0, both[0]),
            per_transaction(totals.1, both[1]),
        );
        table.row(cells);
    }
    table
}

fn load_chart(both: [&Interval; 2]) -> Option<Chart> {
    // A bar of nothing for an interval that does not count its transactions would be a zero that
    // nobody measured.
    let rates = [
        both[0].transactions()? as f64 / both[0].elapsed_s(),
        both[1].transactions()? as f64 / both[1].elapsed_s(),
    ];
    let bar = |index: usize| Bar {
        label: format!("{}: {}", ["1st", "2nd"][index], tables::name_of(both[index])),
        value: rates[index],
        detail: String::new(),
        colour: COLOURS[index],
    };
    Some(Chart::Bars {
        title: "Transactions per second".to_owned(),
        explanation: String::new(),
        quantity: Quantity::Number,
        bars: vec![bar(0), bar(1)],
    })
}

fn efficiency(both: [&Interval; 2]) -> Table {
    let mut table = Table::new("Instance Efficiency Percentages (Target 100%)")
        .text("Statistic", "What is compared.")
        .figures("First", "%", "The share in the first interval.")
        .figures("Second", "%", "The share in the second interval.")
        .figures("Diff", "", "Second minus first, in points of per cent.");
    let (first, second) = pair(both, load::efficiency);
    let names: BTreeSet<&str> = first.iter().chain(&second).map(|row| row.name).collect();
    for name in names {
        let value = |rows: &[load::Efficiency]| {
            rows.iter().find(|row| row.name == name).map(|row| row.percent)
        };
        let (first, second) = (value(&first), value(&second));
        let difference = first.zip(second).map(|(first, second)| second - first);
        table.row(vec![
            Cell::text(name),
            Cell::percent(first),
            Cell::percent(second),
            Cell::percent(difference),
        ]);
    }
    table
}

/// DB time by what each interval can be held to: transactions if both have some, else seconds.
fn scale(both: [&Interval; 2]) -> (&'static str, [f64; 2]) {
    let transactions = both.map(|of| of.transactions().unwrap_or(0));
    if transactions.iter().all(|count| *count > 0) {
        ("transaction", transactions.map(|count| count as f64))
    } else {
        ("second", both.map(Interval::elapsed_s))
    }
}

fn time_chart(both: [&Interval; 2]) -> Option<Chart> {
    if both.iter().all(|of| of.db_time_ns.is_none()) {
        return None;
    }
    let (unit, by) = scale(both);
    let (series, values) = time::parts(&both);
    let rows = values.into_iter().enumerate().map(|(index, values)| {
        let label = format!("{}: {}", ["1st", "2nd"][index], tables::name_of(both[index]));
        (label, values.into_iter().map(|ns| ns / by[index]).collect())
    });
    Some(Chart::Stacked {
        title: format!("DB time per {unit} by wait class"),
        explanation: time::parts_explained(&both),
        quantity: Quantity::Nanoseconds,
        series,
        rows: rows.collect(),
    })
}

fn account(both: [&Interval; 2]) -> Table {
    let (unit, by) = scale(both);
    let mut table = Table::new(format!("Where DB Time Went, per {unit}"))
        .text("Part", "DB CPU, the wait classes, and what makes them add up.");
    table = with_change(
        table,
        "Time",
        "",
        "By transactions, or by elapsed time if one interval has none.",
    )
    .figures(
        "1st % DB time",
        "",
        "The part's share in the first interval; they add up to a hundred.",
    )
    .figures(
        "2nd % DB time",
        "",
        "The part's share in the second interval; they add up to a hundred.",
    );
    let (first, second) = pair(both, |of| time::account(of).unwrap_or_default());
    // Lines that make the others add up stand behind all the others, whichever interval they are
    // of.
    let mut names: Vec<&str> = Vec::new();
    for balances in [false, true] {
        for line in first.iter().chain(&second).filter(|line| line.balances == balances) {
            if !names.contains(&line.name.as_str()) {
                names.push(&line.name);
            }
        }
    }
    if names.contains(&time::OVERLAP) {
        table.note(time::overlap_note(&both));
    }
    let total = |of: &Interval| of.db_time_ns.map(|ns| ns as f64);
    let ns_of = |lines: &[time::AccountLine], name: &str| {
        lines.iter().find(|line| line.name == name).map(|line| line.ns)
    };
    let mut rows: Vec<(&str, Option<f64>, Option<f64>)> =
        names.into_iter().map(|name| (name, ns_of(&first, name), ns_of(&second, name))).collect();
    if !rows.is_empty() {
        rows.push(("DB time", total(both[0]), total(both[1])));
    }
    for (name, first, second) in rows {
        // A class that one interval has nothing of took no time there, if its DB time is known.
        let known = |ns: Option<f64>, of: &Interval| ns.or(of.db_time_ns.map(|_| 0.0));
        let (first, second) = (known(first, both[0]), known(second, both[1]));
        let mut cells = vec![Cell::text(name)];
        changed(
            &mut cells,
            Quantity::Nanoseconds,
            first.map(|ns| ns / by[0]),
            second.map(|ns| ns / by[1]),
        );
        cells.push(Cell::percent(first.and_then(|ns| time::of_db_time(both[0], ns))));
        cells.push(Cell::percent(second.and_then(|ns| time::of_db_time(both[1], ns))));
        table.row(cells);
    }
    table
}

fn top_events(both: [&Interval; 2]) -> Table {
    let mut table = Table::new("Top Timed Events")
        .text("Event", "The wait event, or DB CPU: time in which a processor worked for requests.")
        .figures("1st #", "", "Its place among the first interval's top ten; -: not among them.")
        .figures("2nd #", "", "Its place among the second interval's top ten; -: not among them.")
        .figures("1st Waits", "", "How often it was waited for in the first interval.")
        .figures("2nd Waits", "", "How often it was waited for in the second interval.")
        .figures("1st Time", "s", "Time waited in the first interval.")
        .figures("2nd Time", "s", "Time waited in the second interval.")
        .figures("1st Avg", "", "Time waited by waits in the first interval.")
        .figures("2nd Avg", "", "Time waited by waits in the second interval.")
        .figures("1st %DB time", "", "Share of DB time in the first interval.")
        .figures("2nd %DB time", "", "Share of DB time in the second interval.");
    let (first, second) = pair(both, time::timed);
    let lists = [first, second];
    let place =
        |list: &[time::Timed], name: &str| list.iter().take(TOP).position(|row| row.name == name);
    let mut rows: Vec<&time::Timed> = Vec::new();
    for row in lists.iter().flat_map(|list| list.iter().take(TOP)) {
        if !rows.iter().any(|known| known.name == row.name) {
            rows.push(row);
        }
    }
    // By the better of its two places.
    rows.sort_by_key(|row| lists.iter().filter_map(|list| place(list, &row.name)).min());
    for row in rows {
        let found =
            [0, 1].map(|side: usize| lists[side].iter().find(|other| other.name == row.name));
        let places = [0, 1].map(|side: usize| {
            place(&lists[side], &row.name)
                .map_or(Cell::text("-"), |place| Cell::count(place as u64 + 1))
        });
        let waits = found.map(|found| Cell::count(found.and_then(|row| row.count)));
        let times = found.map(|found| Cell::seconds(found.map(|row| row.total_ns as f64 / 1e9)));
        let means = found.map(|found| Cell::nanoseconds(found.and_then(time::Timed::mean_ns)));
        let shares = [0, 1].map(|side: usize| {
            Cell::percent(
                found[side].and_then(|row| time::of_db_time(both[side], row.total_ns as f64)),
            )
        });
        if row.inside && table.notes.is_empty() {
            table.note(time::INSIDE_NOTE);
        }
        let figures = [places, waits, times, means, shares];
        table.row(
            std::iter::once(Cell::text(row.marked()))
                .chain(figures.into_iter().flatten())
                .collect(),
        );
    }
    table
}

fn waits(both: [&Interval; 2]) -> Section {
    let mut section = Section::new("Wait Events Statistics");
    section.table_if_any(wait_table(both, false));
    section.table_if_any(wait_table(both, true));
    let series = [0, 1].map(|side: usize| Series {
        name: format!("{}: {}", ["1st", "2nd"][side], tables::name_of(both[side])),
        colour: COLOURS[side],
    });
    let (first, second) = pair(both, time::timed);
    let mut drawn: Vec<&str> = Vec::new();
    let mut rows: Vec<&time::Timed> =
        first.iter().take(DRAWN).chain(second.iter().take(DRAWN)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.total_ns));
    for row in rows.into_iter().filter(|row| row.class.is_some()) {
        if !drawn.contains(&row.name.as_str()) {
            drawn.push(&row.name);
        }
    }
    let sides = [(both[0], series[0].clone()), (both[1], series[1].clone())];
    section.charts(drawn.into_iter().filter_map(|name| latency::chart(name, false, &sides)));
    section.charts(over_time::heat_maps(&both));
    section.table_if_any(latency_table(both));
    for (title, of) in ["First interval: ", "Second interval: "].into_iter().zip(both) {
        for mut table in latency::histograms(of).into_iter().take(2) {
            table.caption.insert_str(0, title);
            section.table(table);
        }
    }
    section
}

/// The waits of both intervals by name and class; what did not happen in either is left out.
fn matched(both: [&Interval; 2], background: bool) -> Vec<(&WaitDelta, [Option<&WaitDelta>; 2])> {
    let mut rows: Vec<(&WaitDelta, [Option<&WaitDelta>; 2])> = Vec::new();
    for (side, of) in both.into_iter().enumerate() {
        let waits = if background { of.background() } else { of.foreground() };
        for wait in waits {
            match rows
                .iter_mut()
                .find(|(known, _)| known.name == wait.name && known.class == wait.class)
            {
                Some((_, sides)) => sides[side] = Some(wait),
                None => {
                    let mut sides = [None, None];
                    sides[side] = Some(wait);
                    rows.push((wait, sides));
                }
            }
        }
    }
    rows.retain(|(_, sides)| sides.iter().flatten().any(|wait| wait.count > 0));
    rows
}

fn wait_table(both: [&Interval; 2], background: bool) -> Table {
    let (caption, share_title) = match background {
        false => ("Foreground Wait Events", "% DB time"),
        true => ("Background Wait Events", "% of DB time"),
    };
    let mut table = Table::new(caption)
        .text("Event", "The wait event.")
        .figures(&format!("1st {share_title}"), "", "Time waited by DB time in the first interval.")
        .figures(
            &format!("2nd {share_title}"),
            "",
            "Time waited by DB time in the second interval.",
        );
    table = with_change(table, "Waits /txn", "", "Waits by transactions.");
    table = with_change(table, "Avg wait", "", "Time waited by waits.");
    let mut rows = matched(both, background);
    let share = |side: usize, wait: Option<&WaitDelta>| {
        let ns = wait.map_or(0.0, |wait| wait.total_ns as f64);
        time::of_db_time(both[side], ns)
    };
    let moved = |sides: &[Option<&WaitDelta>; 2]| {
        (share(1, sides[1]).unwrap_or(0.0) - share(0, sides[0]).unwrap_or(0.0)).abs()
    };
    rows.sort_by(|(a, a_sides), (b, b_sides)| {
        let by_change = moved(b_sides).partial_cmp(&moved(a_sides)).unwrap_or(Ordering::Equal);
        by_change.then_with(|| a.name.cmp(&b.name))
    });
    for (wait, sides) in rows {
        let inside = wait.is_inside_another();
        if inside && table.notes.is_empty() {
            table.note(time::INSIDE_NOTE);
        }
        let mut cells = vec![
            Cell::text(time::marked(&wait.name, inside)),
            Cell::percent(share(0, sides[0])),
            Cell::percent(share(1, sides[1])),
        ];
        // An event that one side does not know did not happen there.
        let counts = sides.map(|wait| wait.map_or(0.0, |wait| wait.count as f64));
        let per_transaction =
            [0, 1].map(|side: usize| per(counts[side], both[side].transactions()));
        changed(&mut cells, Quantity::Number, per_transaction[0], per_transaction[1]);
        let means = sides.map(|wait| wait.and_then(WaitDelta::mean_ns));
        changed(&mut cells, Quantity::Nanoseconds, means[0], means[1]);
        table.row(cells);
    }
    if !table.rows.is_empty() {
        table.note("Ordered by how much the share of DB time changed.");
    }
    table.first(ROWS, io::REST);
    table
}

fn latency_table(both: [&Interval; 2]) -> Table {
    let mut table = Table::new("Wait Event Latency")
        .text("Event", "The wait event; (bg) marks waits of background work.");
    table = with_change(table, "p50", "", "Half of the waits were not longer, within 1/128.");
    table = with_change(table, "p99", "", "99 of 100 waits were not longer, within 1/128.");
    let mut rows: Vec<_> = matched(both, false).into_iter().chain(matched(both, true)).collect();
    rows.retain(|(_, sides)| sides.iter().flatten().any(|wait| wait.histogram.count() > 0));
    // Two events that both became twice as slow are moved as far as each other; one that only one
    // of the two knows is behind.
    let moved = |sides: &[Option<&WaitDelta>; 2]| {
        let [first, second] =
            sides.map(|wait| Some(wait?.histogram.quantile_ns(0.99)?.max(1) as f64));
        first.zip(second).map_or(-1.0, |(first, second)| (second / first).ln().abs())
    };
    rows.sort_by(|(_, a), (_, b)| moved(b).total_cmp(&moved(a)));
    if rows.len() > 1 {
        table.note("Ordered by how many times longer or shorter p99 became.");
    }
    for (wait, sides) in rows {
        let name = if wait.background { format!("{} (bg)", wait.name) } else { wait.name.clone() };
        let mut cells = vec![Cell::text(name)];
        for q in [0.5, 0.99] {
            let quantiles = sides.map(|wait| {
                wait.and_then(|wait| wait.histogram.quantile_ns(q)).map(|ns| ns as f64)
            });
            changed(&mut cells, Quantity::Nanoseconds, quantiles[0], quantiles[1]);
        }
        table.row(cells);
    }
    table.first(ROWS, io::REST);
    table
}

fn io_table(both: [&Interval; 2]) -> Table {
    let mut table = Table::new("IO by File Class and Tier")
        .text("File Class", "What the files are.")
        .text("Tier", "Where they were read or written: the tier's name, or home.")
        .text("", "Reads or writes.");
    table = with_change(table, "Reqs /s", "", "Requests by elapsed time.");
    table = with_change(table, "Data /s", "", "Bytes by elapsed time.");
    table = table.figures("1st Avg", "", "Time by requests.").figures(
        "2nd Avg",
        "",
        "Time by requests.",
    );
    let keys: BTreeSet<(&str, &str)> = both
        .iter()
        .flat_map(|of| &of.io)
        .map(|io| (io.file_class.as_str(), io.tier.as_str()))
        .collect();
    type Side = (&'static str, fn(&IoStat) -> [u64; 3]);
    let sides: [Side; 2] = [
        ("read", |io| [io.reads, io.read_bytes, io.read_ns]),
        ("write", |io| [io.writes, io.write_bytes, io.write_ns]),
    ];
    let mut rows: Vec<(f64, Vec<Cell>)> = Vec::new();
    for (file_class, tier) in keys {
        for (name, pick) in sides {
            let figures = both.map(|of| {
                let row = of.io.iter().find(|io| io.file_class == file_class && io.tier == tier);
                // What a partial list does not have was not told; what a whole one does not have
                // did not happen.
                let told = row.is_some() || !of.is_partial("io");
                told.then(|| row.map_or([0; 3], pick).map(|value| value as f64))
            });
            if figures.iter().flatten().all(|figures| figures[0] == 0.0) {
                continue;
            }
            let rate = |side: usize, which: usize| {
                figures[side].map(|of| of[which] / both[side].elapsed_s())
            };
            let mut cells = vec![Cell::text(file_class), Cell::text(tier), Cell::text(name)];
            changed(&mut cells, Quantity::Number, rate(0, 0), rate(1, 0));
            changed(&mut cells, Quantity::Bytes, rate(0, 1), rate(1, 1));
            // No time for requests that were made: the source counts them and does not time them.
            let mean = |[count, _, ns]: [f64; 3]| (count > 0.0 && ns > 0.0).then(|| ns / count);
            cells.extend(figures.map(|figures| Cell::nanoseconds(figures.and_then(mean))));
            rows.push(((rate(1, 1).unwrap_or(0.0) - rate(0, 1).unwrap_or(0.0)).abs(), cells));
        }
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    table.rows = rows.into_iter().map(|(_, cells)| cells).collect();
    if table.rows.len() > 1 {
        table.note("Ordered by how much the bytes by second changed.");
    }
    table.first(io::ROWS, io::REST);
    table
}

fn activity_table(both: [&Interval; 2]) -> Table {
    let mut table =
        Table::new("Instance Activity Stats").text("Statistic", "The counter, with its unit.");
    table = with_change(table, "per Second", "", "By elapsed time.");
    table = with_change(table, "per Trans", "", "By transactions.");
    let keys: BTreeSet<(&str, &str)> = both
        .iter()
        .flat_map(|of| &of.counters)
        .map(|counter| (counter.name.as_str(), counter.unit.as_str()))
        .collect();
    let values_of = both.map(|of| {
        of.counters
            .iter()
            .map(|counter| (counter.name.as_str(), counter.value as f64))
            .collect::<BTreeMap<_, _>>()
    });
    let mut rows: Vec<(f64, Vec<Cell>)> = Vec::new();
    for (name, unit) in keys {
        let values = [0, 1].map(|side: usize| values_of[side].get(name).copied());
        let rates =
            [0, 1].map(|side: usize| values[side].map(|value| value / both[side].elapsed_s()));
        let per_transaction = [0, 1].map(|side: usize| {
            values[side].and_then(|value| per(value, both[side].transactions()))
        });
        let mut cells = vec![Cell::text(if unit.is_empty() {
            name.to_owned()
        } else {
            format!("{name} ({unit})")
        })];
        changed(&mut cells, Quantity::Number, rates[0], rates[1]);
        changed(&mut cells, Quantity::Number, per_transaction[0], per_transaction[1]);
        rows.push((distance(both, values), cells));
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    table.rows = rows.into_iter().map(|(_, cells)| cells).collect();
    if table.rows.len() > 1 {
        table.note(
            "Ordered by how much each changed for the same DB time (for the same time where \
                    DB time is not told).",
        );
    }
    table.first(tables::ROWS, io::REST);
    table
}

/// Levels at the end of each interval, those that differ most first.
fn levels(both: [&Interval; 2]) -> Table {
    let mut table = Table::new("Instance Activity Stats - Absolute Values")
        .text("Statistic", "A value that goes up and down, with its unit.");
    table = with_change(table, "End Value", "", "At the end of the interval.");
    let keys: BTreeSet<(&str, &str)> = both
        .iter()
        .flat_map(|of| &of.end.levels)
        .map(|level| (level.name.as_str(), level.unit.as_str()))
        .collect();
    let mut rows: Vec<(f64, Vec<Cell>)> = Vec::new();
    for (name, unit) in keys {
        let values = both.map(|of| {
            let level = of.end.levels.iter().find(|level| level.name == name && level.unit == unit);
            level.map(|level| level.value as f64)
        });
        let quantity = if unit == "bytes" { Quantity::Bytes } else { Quantity::Number };
        let mut cells = vec![Cell::text(format!("{name} ({unit})"))];
        changed(&mut cells, quantity, values[0], values[1]);
        let apart = match values {
            [Some(first), Some(second)] if first.max(second) > 0.0 => {
                (second - first).abs() / first.max(second)
            }
            [Some(_), Some(_)] => 0.0,
            _ => -1.0,
        };
        rows.push((apart, cells));
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    table.rows = rows.into_iter().map(|(_, cells)| cells).collect();
    table.first(tables::ROWS, io::REST);
    table
}

/// How far two values are from each other, each by the DB time of its interval (by elapsed time if
/// one does not tell DB time), as a share of the larger: 0 for no change, 1 for something from
/// nothing, less than 0 if one of them is not known.
fn distance(both: [&Interval; 2], values: [Option<f64>; 2]) -> f64 {
    let times = match both.map(|of| of.db_time_ns.filter(|ns| *ns > 0)) {
        [Some(first), Some(second)] => [first, second],
        _ => both.map(|of| of.elapsed_ns),
    };
    let [Some(first), Some(second)] = values else { return -1.0 };
    let (first, second) = (first / times[0].max(1) as f64, second / times[1].max(1) as f64);
    let larger = first.max(second);
    if larger > 0.0 { (second - first).abs() / larger } else { 0.0 }
}

fn cpu_table(both: [&Interval; 2]) -> Table {
    let mut table = Table::new("Host CPU")
        .text("", "What the share is of.")
        .figures("First", "%", "In the first interval.")
        .figures("Second", "%", "In the second interval.")
        .figures("Diff", "", "Second minus first, in points of per cent.");
    let (first, second) = pair(both, cpu_shares);
    let mut row = |name: &str, first: Option<f64>, second: Option<f64>| {
        if first.is_some() || second.is_some() {
            let difference = first.zip(second).map(|(first, second)| second - first);
            table.row(vec![
                Cell::text(name),
                Cell::percent(first),
                Cell::percent(second),
                Cell::percent(difference),
            ]);
        }
    };
    for (index, name) in ["%User", "%System", "%WIO", "%Idle", "%Steal"].into_iter().enumerate() {
        row(name, first.map(|shares| shares[index]), second.map(|shares| shares[index]));
    }
    row("%Busy by process", process_share(both[0]), process_share(both[1]));
    table
}

fn disks(both: [&Interval; 2]) -> Table {
    let mut table = Table::new("Host Disks").text("Disk", "Its name.");
    for (what, explanation) in [
        ("Reads /s", "Requests that read, by elapsed time."),
        ("Writes /s", "Requests that wrote, by elapsed time."),
        ("Avg Write", "Time writing by requests that wrote."),
        ("Avg Flush", "Time of flushes by their number."),
        ("%Busy", "Elapsed time in which a request was under way."),
    ] {
        for side in ["1st", "2nd"] {
            table = table.figures(&format!("{side} {what}"), "", explanation);
        }
    }
    let mut rows: Vec<(f64, Vec<Cell>)> = Vec::new();
    let names: BTreeSet<&str> =
        both.iter().flat_map(|of| &of.disks).map(|disk| disk.name.as_str()).collect();
    for name in names {
        let found = both.map(|of| of.disks.iter().find(|disk| disk.name == name));
        let rate = |side: usize, pick: fn(&crate::snapshot::host::DiskStat) -> u64| {
            // A disk that is not listed did nothing, if the interval knows its disks at all.
            let known =
                both[side].end.host.disks.is_some() && both[side].begin.host.disks.is_some();
            let count = found[side].map(pick).or(known.then_some(0));
            count.map(|count| count as f64 / both[side].elapsed_s())
        };
        let mean = |side: usize| {
            found[side].and_then(|disk| per(disk.write_ms as f64 * 1e6, Some(disk.writes)))
        };
        let flush = |side: usize| {
            found[side].and_then(|disk| per(disk.flush_ms? as f64 * 1e6, disk.flushes))
        };
        let busy = [0, 1].map(|side: usize| rate(side, |disk| disk.busy_ms).unwrap_or(0.0));
        rows.push((
            (busy[1] - busy[0]).abs(),
            vec![
                Cell::text(name),
                Cell::number(rate(0, |disk| disk.reads)),
                Cell::number(rate(1, |disk| disk.reads)),
                Cell::number(rate(0, |disk| disk.writes)),
                Cell::number(rate(1, |disk| disk.writes)),
                Cell::nanoseconds(mean(0)),
                Cell::nanoseconds(mean(1)),
                Cell::nanoseconds(flush(0)),
                Cell::nanoseconds(flush(1)),
                // Milliseconds by second are tenths of a per cent.
                Cell::percent(rate(0, |disk| disk.busy_ms).map(|rate| rate / 10.0)),
                Cell::percent(rate(1, |disk| disk.busy_ms).map(|rate| rate / 10.0)),
            ],
        ));
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    table.rows = rows.into_iter().map(|(_, cells)| cells).collect();
    if table.rows.len() > 1 {
        table.note("Ordered by how much %Busy changed.");
    }
    table.first(io::ROWS, io::REST);
    table.without_empty_columns()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_from_nothing_is_new_and_not_a_division_by_zero() {
        assert_eq!(change(0.0, 5.0), Cell::text("new"));
        assert_eq!(change(0.0, 0.0), Cell::Percent(0.0));
        assert_eq!(change(4.0, 5.0), Cell::Percent(25.0));
        assert_eq!(change(4.0, 0.0), Cell::Percent(-100.0));
        assert_eq!(change(None, 5.0), Cell::Empty);
    }
}

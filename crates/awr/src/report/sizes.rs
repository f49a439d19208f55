//! Sizes: memory of the host, what a database's caches and redo may take, and settings that are not
//! the same at both ends or in both intervals.
//!
//! Differences from Oracle's Cache Sizes and Memory Statistics: the sizes are those that are
//! configured, as the source writes them; what a pool holds is among the absolute values of
//! instance activity.
//!
//! Deliberately absent: advisories. None of the sources but Oracle estimates what another size of
//! its cache would read.

use std::collections::BTreeSet;

use super::tables;
use crate::figure;
use crate::table::{Cell, Table};
use crate::{Interval, Snapshot};

/// Settings that are sizes of caches, buffers and redo: how the database calls them, and what they
/// are.
const SIZES: &[(&str, &str)] = &[
    ("shared_buffers", "page cache"),
    ("innodb_buffer_pool_size", "page cache"),
    ("maxmemory", "data, at most"),
    ("effective_cache_size", "assumed by the planner, page cache of the system included"),
    ("wal_buffers", "redo buffer"),
    ("innodb_log_buffer_size", "redo buffer"),
    ("max_wal_size", "redo between checkpoints, about"),
    ("min_wal_size", "redo that is kept for reuse"),
    ("innodb_log_file_size", "redo file"),
    ("innodb_redo_log_capacity", "redo files together"),
    ("work_mem", "sorts and hashes, each"),
    ("maintenance_work_mem", "maintenance, each"),
    ("tmp_table_size", "temporary tables, each"),
];

/// Columns `Begin` and `End` of one interval, or `First (1st)` and `Second (2nd)` of two: there the
/// value at the end.
fn two_columns(table: Table, of: &[&Interval], unit: &str, explanation: &str) -> Table {
    let titles = if of.len() > 1 { tables::ORDINALS } else { ["Begin", "End"] };
    titles.iter().fold(table, |table, title| table.figures(title, unit, explanation))
}

fn two_snapshots<'a>(of: &[&'a Interval]) -> [&'a Snapshot; 2] {
    match of {
        [one] => [&one.begin, &one.end],
        _ => [&of[0].end, &of[1].end],
    }
}

/// A size as settings have it: a bare number of InnoDB's and Redis' is bytes. Zero is no limit
/// where Redis says it.
fn size(name: &str, value: &str) -> String {
    match value.parse::<u64>() {
        Ok(0) if name == "maxmemory" => "no limit".to_owned(),
        Ok(bytes) => figure::bytes(bytes as f64),
        Err(_) => value.to_owned(),
    }
}

/// Sizes of caches and redo.
pub(super) fn caches(of: &[&Interval]) -> Table {
    let table = Table::new("Cache Sizes").text("Setting", "The database's own name of it.");
    let mut table = two_columns(table, of, "", "As it was configured then.")
        .text("What It Is", "In a few words.");
    let ends = two_snapshots(of);
    for (name, what) in SIZES {
        let values = ends.map(|end| end.source.settings.get(*name));
        if values.iter().any(Option::is_some) {
            let cells = values
                .map(|value| value.map_or(Cell::Empty, |value| Cell::text(size(name, value))));
            let [first, second] = cells;
            table.row(vec![Cell::text(*name), first, second, Cell::text(*what)]);
        }
    }
    table
}

/// Memory of the host, and what the database may take of it for its pages.
pub(super) fn memory(of: &[&Interval]) -> Table {
    let title = match of.iter().any(|of| of.is_remote()) {
        true => "Memory Statistics (of the recorder where the database is on another machine)",
        false => "Memory Statistics",
    };
    let table = Table::new(title).text("", "What it is.");
    let mut table = two_columns(table, of, "", "At that instant.");
    type Line = (&'static str, fn(&crate::snapshot::host::Memory) -> Option<f64>);
    let lines: [Line; 2] = [
        ("Host Mem", |memory| Some(memory.total_bytes as f64)),
        ("Host Mem Available", |memory| memory.available().map(|bytes| bytes as f64)),
    ];
    let ends = two_snapshots(of);
    for (name, pick) in lines {
        let values = ends.map(|end| end.host.memory.as_ref().and_then(pick));
        if values.iter().any(Option::is_some) {
            let [first, second] = values.map(Cell::bytes);
            table.row(vec![Cell::text(name), first, second]);
        }
    }
    let shares = ends.map(|end| end.host.memory.as_ref()?.used_percent());
    if shares.iter().any(Option::is_some) {
        let [first, second] = shares.map(Cell::percent);
        table.row(vec![Cell::text("% Host Mem used"), first, second]);
    }
    table
}

/// Settings that had another value at the end of the interval than at its beginning.
pub(super) fn settings_changed(of: &Interval) -> Table {
    let mut table = Table::new("Settings Changed in the Interval")
        .text("Setting", "Its name.")
        .text("Begin Value", "At the beginning of the interval.")
        .text("End Value", "At its end.");
    for (name, values) in unequal([&of.begin, &of.end]) {
        let [begin, end] = values.map(|value| value.map_or(Cell::Empty, Cell::text));
        table.row(vec![Cell::text(name), begin, end]);
    }
    if !table.rows.is_empty() {
        table.note(
            "Figures of this interval are of both values: report the time before and after \
                   by itself.",
        );
    }
    table.first(tables::ROWS, super::io::REST);
    table
}

/// Settings that the two intervals do not have alike.
pub(super) fn differing(both: [&Interval; 2]) -> Table {
    let mut table = Table::new("Configuration Differences")
        .text("Setting", "Its name, or what else was not the same.");
    table = tables::ORDINALS
        .iter()
        .fold(table, |table, ordinal| table.text(ordinal, "At the end of the interval."));
    let source = |pick: fn(&crate::Source) -> &str| both.map(|of| pick(&of.end.source).to_owned());
    // Of a database on another machine the host is not known: the recorder's is not a part of its
    // configuration.
    let host = |pick: fn(&crate::snapshot::host::HostStat) -> Option<String>| {
        both.map(|of| match of.is_remote() {
            true => "not known (remote)".to_owned(),
            false => pick(&of.end.host).unwrap_or_default(),
        })
    };
    let others = [
        ("Release", source(|source| &source.version)),
        ("Host Name", host(|host| host.name.clone())),
        ("Platform", host(|host| host.platform.clone())),
        ("CPUs", host(|host| host.cpus.map(|cpus| cpus.threads.to_string()))),
        ("Memory", host(|host| host.memory.map(|memory| figure::bytes(memory.total_bytes as f64)))),
    ];
    for (name, [first, second]) in others {
        if first != second {
            table.row(vec![Cell::text(name), Cell::text(first), Cell::text(second)]);
        }
    }
    for (name, values) in unequal(both.map(|of| &of.end)) {
        let [first, second] = values.map(|value| value.map_or(Cell::Empty, Cell::text));
        table.row(vec![Cell::text(name), first, second]);
    }
    table.first(tables::ROWS, super::io::REST);
    table
}

/// Names and values of settings that two snapshots do not have alike.
fn unequal(of: [&Snapshot; 2]) -> Vec<(&str, [Option<&String>; 2])> {
    let names: BTreeSet<&String> = of.iter().flat_map(|of| of.source.settings.keys()).collect();
    let rows =
        names.into_iter().map(|name| (name.as_str(), of.map(|of| of.source.settings.get(name))));
    rows.filter(|(_, values)| values[0] != values[1]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    fn with(settings: &[(&str, &str)], at: u64) -> Snapshot {
        let settings =
            settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let source =
            Source { instance: "i".to_owned(), settings: settings.collect(), ..Source::default() };
        Snapshot::at(source, at, at)
    }

    #[test]
    fn a_setting_that_changed_in_the_interval_is_named_with_both_values() {
        let (before, after) =
            (with(&[("a", "1"), ("b", "2")], 1), with(&[("a", "1"), ("b", "3"), ("c", "4")], 2));
        let of = Interval::between(&before, &after).expect("an interval");
        let table = settings_changed(&of);
        let rows: Vec<Vec<String>> =
            table.rows.iter().map(|row| row.iter().map(Cell::shown).collect()).collect();
        assert_eq!(rows, [["b", "2", "3"], ["c", "", "4"]]);
        let same =
            Interval::between(&before, &with(&[("a", "1"), ("b", "2")], 2)).expect("an interval");
        assert!(settings_changed(&same).rows.is_empty());
        assert_eq!(differing([&same, &of]).rows.len(), 2);
        assert!(differing([&of, &of]).rows.is_empty());
    }

    #[test]
    fn bare_numbers_are_bytes_and_words_stay_as_the_database_writes_them() {
        let settings =
            [("innodb_buffer_pool_size", "16777216"), ("shared_buffers", "16MB"), ("other", "1")];
        let of = Interval::between(&with(&settings, 1), &with(&settings, 2)).expect("an interval");
        let rows: Vec<String> = caches(&[&of]).rows.iter().map(|row| row[1].shown()).collect();
        assert_eq!(rows, ["16MB", "16.0 MiB"]);
    }

    #[test]
    fn memory_that_is_not_told_to_be_available_is_not_printed_as_none() {
        let rows = |available_bytes| {
            let at = |at| {
                let mut of = with(&[], at);
                of.host.memory =
                    Some(crate::snapshot::host::Memory { total_bytes: 8 << 30, available_bytes });
                of
            };
            let of = Interval::between(&at(1), &at(2)).expect("an interval");
            memory(&[&of]).rows.iter().map(|row| row[0].shown()).collect::<Vec<_>>()
        };
        assert_eq!(rows(2 << 30), ["Host Mem", "Host Mem Available", "% Host Mem used"]);
        assert_eq!(rows(0), ["Host Mem"], "as of an imported report");
    }

    #[test]
    fn redis_without_a_limit_has_none_and_not_nothing() {
        assert_eq!([size("maxmemory", "0"), size("maxmemory", "1024")], ["no limit", "1.0 KiB"]);
        assert_eq!(size("tmp_table_size", "0"), figure::bytes(0.0));
    }

    #[test]
    fn the_recorders_machine_is_not_the_configuration_of_a_remote_database() {
        let of = |name: &str, remote| {
            let at = |at| {
                let mut of = with(&[], at);
                of.host.name = Some(name.to_owned());
                of.source.remote = remote;
                of
            };
            Interval::between(&at(1), &at(2)).expect("an interval")
        };
        let rows = |first: &Interval, second: &Interval| -> Vec<Vec<String>> {
            let table = differing([first, second]);
            table.rows.iter().map(|row| row.iter().map(Cell::shown).collect()).collect()
        };
        let (a, b) = (of("a", Some(true)), of("b", Some(true)));
        assert_eq!(rows(&a, &b), Vec::<Vec<String>>::new());
        assert_eq!(rows(&of("a", None), &b)[0], ["Host Name", "a", "not known (remote)"]);
        assert_eq!(rows(&of("a", None), &of("b", None)), [["Host Name", "a", "b"]]);
    }
}

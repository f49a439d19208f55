//! Instance activity: counters and levels, and the system statistics of RAC.
//!
//! Invariant: the first figure of a name is taken; where another one differs, the name is among
//! what was left out.
//!
//! Deliberately absent: the statistics of the operating system (`build.rs` takes those).

use super::build::{Taking, cell, short};
use super::{MOST_NAMES, value};
use crate::snapshot::known::{self, statistic};
use crate::{CounterStat, LevelStat};

/// What RAC's reports have in a row for each instance, and the statistic that the sum is.
const OF_INSTANCES: [(&str, &str); 9] = [
    ("Logical Reads", statistic::LOGICAL_READS),
    ("Physical Reads", statistic::PHYSICAL_READS),
    ("Physical Writes", statistic::PHYSICAL_WRITES),
    ("Block Changes", statistic::BLOCK_CHANGES),
    ("User Calls", statistic::USER_CALLS),
    ("Execs", statistic::EXECUTE_COUNT),
    ("Parses", statistic::PARSE_COUNT),
    ("Logons", statistic::LOGONS),
    ("Txns", statistic::USER_COMMITS),
];

impl Taking<'_> {
    pub(super) fn activity(&mut self) {
        self.statistics();
        self.levels();
        self.sums_of_instances();
    }

    fn statistics(&mut self) {
        for index in self.with(&[&["Statistic"], &["Total"]]) {
            let grid = &self.grids[index];
            let (name, total) = (grid.column(&["Statistic"]), grid.column(&["Total"]));
            let mut found = Vec::new();
            for row in &grid.rows {
                found.push((short(cell(row, name)), value::count(cell(row, total))));
            }
            for (name, value) in found {
                self.count(&name, value);
            }
            self.taken.insert(index);
        }
    }

    /// Statistics that go up and down, which are printed as they were at both ends.
    fn levels(&mut self) {
        for index in self.with(&[&["Statistic"], &["Begin Value"], &["End Value"]]) {
            let grid = &self.grids[index];
            let (name, end) = (grid.column(&["Statistic"]), grid.column(&["End Value"]));
            let begin = grid.column(&["Begin Value"]);
            for row in &grid.rows {
                let name = short(cell(row, name));
                if name.is_empty() {
                    continue;
                }
                if self.snapshot.levels.len() >= MOST_NAMES {
                    self.left_out.because("a level behind the first five thousand");
                    continue;
                }
                match value::count(cell(row, end)) {
                    // Names of counters and of levels are told apart by where they are: the space
                    // stands for that.
                    Some(value) if self.names.insert(format!(" {name}")) => {
                        if let Some(before) = value::count(cell(row, begin)) {
                            self.levels_before.insert(name.clone(), before);
                        }
                        self.snapshot.levels.push(LevelStat { name, unit: String::new(), value });
                    }
                    Some(value) => {
                        if !self
                            .snapshot
                            .levels
                            .iter()
                            .any(|level| level.name == name && level.value == value)
                        {
                            self.hidden.push(name);
                        }
                    }
                    None => self.hidden.push(name),
                }
            }
            self.taken.insert(index);
        }
    }

    /// RAC prints a row for each instance: their sums are counters.
    fn sums_of_instances(&mut self) {
        for index in self.with(&[&["I#"], &["Logical Reads"], &["Txns"]]).into_iter().take(1) {
            let grid = &self.grids[index];
            let rows: Vec<&Vec<String>> = grid
                .rows
                .iter()
                .filter(|row| value::count(cell(row, grid.column(&["I#"]))).is_some())
                .collect();
            let sums: Vec<(&str, Option<u64>)> = OF_INSTANCES
                .iter()
                .filter_map(|(title, name)| {
                    let at = grid.column(&[title])?;
                    let values: Option<Vec<u64>> =
                        rows.iter().map(|row| value::count(cell(row, Some(at)))).collect();
                    Some((
                        *name,
                        values.and_then(|values| values.into_iter().reduce(u64::saturating_add)),
                    ))
                })
                .collect();
            // In units of 1024 bytes, rounded: the statistics have the bytes, where they are in the
            // report.
            let kib = grid.column(&["Redo Size (k)"]).and_then(|at| {
                let values: Option<Vec<u64>> =
                    rows.iter().map(|row| value::count(cell(row, Some(at)))).collect();
                values?.into_iter().reduce(u64::saturating_add)
            });
            let redo = kib
                .filter(|_| !self.names.contains(statistic::REDO_SIZE))
                .map(|kib| kib.saturating_mul(1024));
            let taken = |column: &str| {
                column == "I#"
                    || (column == "Redo Size (k)" && kib.is_some())
                    || OF_INSTANCES.iter().any(|(title, _)| *title == column)
            };
            let others = grid.columns.iter().filter(|column| !column.is_empty() && !taken(column));
            let others: Vec<String> =
                others.map(|column| format!("{} of all instances", short(column))).collect();
            self.hidden.extend(others);
            for (name, value) in sums {
                self.count(name, value);
            }
            if redo.is_some() {
                self.count(statistic::REDO_SIZE, redo);
            }
            self.taken.insert(index);
        }
    }

    /// Takes a counter; without a value it is one that the report hides.
    pub(super) fn count(&mut self, name: &str, value: Option<u64>) {
        if name.is_empty() {
            return;
        }
        if self.snapshot.counters.len() >= MOST_NAMES {
            self.left_out.because("a statistic behind the first five thousand");
            return;
        }
        let Some(value) = value else {
            self.hidden.push(name.to_owned());
            return;
        };
        if self.names.insert(name.to_owned()) {
            let unit = match name {
                name if name.starts_with(known::TIME_MODEL) => "ns",
                name if name == statistic::REDO_SIZE || name.contains("bytes") => "bytes",
                _ => "",
            };
            let help = known::help_of_statistic(name).to_owned();
            self.snapshot.counters.push(CounterStat {
                name: name.to_owned(),
                unit: unit.to_owned(),
                help,
                value,
            });
        } else if !self
            .snapshot
            .counters
            .iter()
            .any(|counter| counter.name == name && counter.value == value)
        {
            self.hidden.push(name.to_owned());
        }
    }
}

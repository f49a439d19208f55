//! What a report says of time as a whole: its length, the time model, and the sums of wait
//! classes.
//!
//! Events are listed down to some length only, and of most of them the report does not give the
//! class. The sum of a class it gives. So what the events of a class leave of that sum is an event
//! of its own, and classes add up to what Oracle prints.
//!
//! Deliberately absent: the time model of RAC as shares, which follow from the times.

use tiersmith_events::WaitClass;

use super::build::{Taking, cell, short};
use super::class::class_named;
use super::value;
use crate::WaitStat;
use crate::snapshot::known::{BACKGROUND_ELAPSED, TIME_MODEL};

/// Titles of RAC's columns, and what a single instance calls the same.
const OF_RAC: [(&str, &str); 7] = [
    ("SQL Exec Ela (s)", "sql execute elapsed time"),
    ("Parse Ela (s)", "parse time elapsed"),
    ("Hard Parse Ela (s)", "hard parse elapsed time"),
    ("PL/SQL Ela (s)", "PL/SQL execution elapsed time"),
    ("Java Ela (s)", "Java execution elapsed time"),
    ("bg time (s)", "background elapsed time"),
    ("bg CPU (s)", "background cpu time"),
];

/// Times of classes and of events are rounded to a second each.
const ROUNDED_NS: u64 = 500_000_000;

impl Taking<'_> {
    pub(super) fn time(&mut self) {
        let names: &[&str] = &["Statistic Name", "Statistic"];
        for index in self.with(&[names, &["Time (s)"]]) {
            let grid = &self.grids[index];
            let (name, time) = (grid.column(names), grid.column(&["Time (s)"]));
            let rows: Vec<(String, Option<u64>)> = grid
                .rows
                .iter()
                .map(|row| (short(cell(row, name)), value::seconds_ns(cell(row, time))))
                .collect();
            for (name, ns) in rows {
                match name.to_lowercase().as_str() {
                    "" => continue,
                    "db time" => self.snapshot.db_time_ns = ns,
                    "db cpu" => self.snapshot.db_cpu_ns = ns,
                    _ => {
                        self.count(&short(&format!("{TIME_MODEL}{name}")), ns);
                        continue;
                    }
                }
                if ns.is_none() {
                    self.hidden.push(name);
                }
            }
            self.taken.insert(index);
        }
        // RAC: a row for each instance.
        if self.snapshot.db_time_ns.is_none()
            && let Some(index) =
                self.about("time model", &[&["I#"], &["DB time (s)"]]).first().copied()
        {
            let grid = &self.grids[index];
            let sum = |title: &str| {
                let at = grid.column(&[title])?;
                let rows = grid
                    .rows
                    .iter()
                    .filter(|row| value::count(cell(row, grid.column(&["I#"]))).is_some());
                // Of one instance that is not known nothing is known of the sum.
                let times: Option<Vec<u64>> =
                    rows.map(|row| value::seconds_ns(cell(row, Some(at)))).collect();
                times?.into_iter().reduce(u64::saturating_add)
            };
            for title in ["DB time (s)", "DB CPU (s)"] {
                if sum(title).is_none() {
                    self.hidden.push(format!("{title} of all instances"));
                }
            }
            let (db_time, db_cpu) = (sum("DB time (s)"), sum("DB CPU (s)"));
            let others: Vec<(&str, Option<u64>)> = OF_RAC
                .iter()
                .filter(|(title, _)| grid.column(&[title]).is_some())
                .map(|(title, name)| (*name, sum(title)))
                .collect();
            (self.snapshot.db_time_ns, self.snapshot.db_cpu_ns) = (db_time, db_cpu);
            for (name, ns) in others {
                self.count(&format!("{TIME_MODEL}{name}"), ns);
            }
            self.taken.insert(index);
        }
        if self.snapshot.db_time_ns.is_none() {
            let minutes = ["DB Time:", "DB time:"]
                .iter()
                .find_map(|label| value::leading(&self.labelled(label)?));
            self.snapshot.db_time_ns = minutes.map(|minutes| (minutes * 60e9).round() as u64);
        }
    }

    /// The time of all background processes; zero if the report does not say it.
    pub(super) fn background_ns(&self) -> u64 {
        let counters = &self.snapshot.counters;
        counters.iter().find(|one| one.name == BACKGROUND_ELAPSED).map_or(0, |one| one.value)
    }

    /// The length with parts of a second: instants are printed without them, and what Oracle
    /// prints by the second is divided by the true length.
    pub(super) fn finer_elapsed_ns(&self, elapsed_s: u64) -> u64 {
        let columns: [&[&str]; 3] = [&["Statistic"], &["Total"], &["per Second"]];
        let mut best = (0.0, 0.0);
        for index in self.with(&columns) {
            let grid = &self.grids[index];
            let [_, total, rate] = columns.map(|titles| grid.column(titles));
            for row in &grid.rows {
                let total = value::number(cell(row, total));
                let rate = value::number(cell(row, rate));
                if let Some((total, rate)) = total.zip(rate).filter(|(_, rate)| *rate > best.1) {
                    best = (total, rate);
                }
            }
        }
        let (total, rate) = best;
        let (whole, finer) = (elapsed_s as f64, total / rate);
        // A rate has two places; below this difference the whole seconds are as good.
        let rounded = 0.005 / rate * finer;
        let is_finer = (finer - whole).abs() <= 1.0 && (finer - whole).abs() > 2.0 * rounded;
        let seconds = if is_finer { finer } else { whole };
        (seconds * 1e9).round() as u64
    }

    /// For each class an event for what the listed events leave of its sum, if that is more than
    /// rounding.
    pub(super) fn rest_of_classes(&mut self) {
        let times: &[&str] = &["Total Wait Time (s)", "Total Wait Time (sec)"];
        let Some(index) = self
            .about("foreground wait class", &[&["Wait Class"], &["Waits"], times])
            .first()
            .copied()
        else {
            return;
        };
        let grid = &self.grids[index];
        let (name, waits, time) =
            (grid.column(&["Wait Class"]), grid.column(&["Waits"]), grid.column(times));
        let mut rests = Vec::new();
        for row in &grid.rows {
            let Some(class) =
                class_named(cell(row, name)).filter(|class| *class != WaitClass::Idle)
            else {
                continue;
            };
            let (Some(count), Some(total_ns)) =
                (value::count(cell(row, waits)), value::seconds_ns(cell(row, time)))
            else {
                continue;
            };
            let listed = || {
                self.snapshot.waits.iter().filter(|wait| !wait.background && wait.class == class)
            };
            let (events, listed_count, listed_ns) =
                listed().fold((0u64, 0u64, 0u64), |(events, count, ns), wait| {
                    (events + 1, count.saturating_add(wait.count), ns.saturating_add(wait.total_ns))
                });
            let (count, total_ns) =
                (count.saturating_sub(listed_count), total_ns.saturating_sub(listed_ns));
            if count > 0 && total_ns > ROUNDED_NS.saturating_mul(events + 1) {
                rests.push((class, count, total_ns));
            }
        }
        self.taken.insert(index);
        self.snapshot.waits.extend(rests.into_iter().map(|(class, count, total_ns)| {
            WaitStat {
                name: format!("other events of class {class}"),
                class,
                background: false,
                help: "What the events that the report lists leave of the sum that it gives for \
                       the class."
                    .to_owned(),
                count,
                total_ns,
                max_ns: 0,
                bytes: 0,
                buckets: Vec::new(),
            }
        }));
    }
}

//! Where DB time went: the top events, the wait classes, and the accounting that adds up to DB time
//! exactly.
//!
//! ```text
//! DB time = DB CPU + waits of requests - waits inside other waits + what is not accounted for
//! ```
//!
//! The last term is a remainder, and is printed as one. Above zero it is time that no event names:
//! waiting for a processor, locks that are not timed. Below zero a processor worked during timed
//! waits, and that time is in DB CPU and in a wait: on memory-mapped media a write is stores and
//! fences of the processor, so this is normal there.
//!
//! Invariants: percentages of the accounting add up to a hundred; background and idle waits are
//! never in it.

use tiersmith_events::WaitClass;

use crate::chart::{Bar, Series};
use crate::snapshot::known;
use crate::{Interval, WaitDelta};

/// What DB CPU is called among the events.
pub(super) const DB_CPU: &str = "DB CPU";

/// Said below every table that has waits inside others.
pub(super) const INSIDE_NOTE: &str = "Waits marked * are spent inside another wait (the write that \
                                      found no \
     room): their time is in that wait too, and is taken off once where times are added up.";

/// The line of the accounting for time that is in DB CPU and in a wait.
pub(super) const OVERLAP: &str = "less: processor time inside waits, at least";

/// Said below an accounting with that line.
const OVERLAP_NOTE: &str = "A processor worked during timed waits: on memory-mapped media a write \
     is stores and fences of the processor. That time is in DB CPU and in a wait; at least so much \
     of it is \
     taken off once.";

/// The same of a database that does not write to memory-mapped media.
const OVERLAP_NOTE_OF_ORACLE: &str = "A processor worked during timed waits: that time is in DB \
                                      CPU and in \
     a wait; at least so much of it is taken off once.";

/// Said below an accounting of these intervals with [`OVERLAP`].
pub(super) fn overlap_note(intervals: &[&Interval]) -> &'static str {
    match intervals.iter().all(|of| of.end.source.is_oracle()) {
        true => OVERLAP_NOTE_OF_ORACLE,
        false => OVERLAP_NOTE,
    }
}

/// A row of the top events.
#[derive(Clone)]
pub(super) struct Timed {
    pub(super) name: String,
    /// Nothing for DB CPU.
    pub(super) class: Option<WaitClass>,
    /// Nothing for DB CPU.
    pub(super) count: Option<u64>,
    pub(super) total_ns: u64,
    pub(super) inside: bool,
}

impl Timed {
    pub(super) fn mean_ns(&self) -> Option<f64> {
        self.count.filter(|count| *count > 0).map(|count| self.total_ns as f64 / count as f64)
    }

    pub(super) fn class_name(&self) -> &'static str {
        self.class.map_or("", WaitClass::name)
    }

    /// The name, with the mark of a wait inside another.
    pub(super) fn marked(&self) -> String {
        marked(&self.name, self.inside)
    }
}

/// The name, with the mark of a wait inside another.
pub(super) fn marked(name: &str, inside: bool) -> String {
    if inside { format!("{name} *") } else { name.to_owned() }
}

/// Foreground waits and DB CPU, longest time first; what did not happen is left out.
pub(super) fn timed(of: &Interval) -> Vec<Timed> {
    let mut rows: Vec<Timed> =
        of.foreground().into_iter().filter(|wait| wait.count > 0).map(row).collect();
    if let Some(total_ns) = of.db_cpu_ns {
        rows.push(Timed {
            name: DB_CPU.to_owned(),
            class: None,
            count: None,
            total_ns,
            inside: false,
        });
    }
    rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
    rows
}

fn row(wait: &WaitDelta) -> Timed {
    Timed {
        name: wait.name.clone(),
        class: Some(wait.class),
        count: Some(wait.count),
        total_ns: wait.total_ns,
        inside: wait.is_inside_another(),
    }
}

/// A time's share of DB time; nothing if that is not known or zero.
pub(super) fn of_db_time(of: &Interval, ns: f64) -> Option<f64> {
    of.db_time_ns.filter(|time| *time > 0).map(|time| ns / time as f64 * 100.0)
}

/// The sum over the foreground waits of one class.
pub(super) struct ClassRow {
    pub(super) class: WaitClass,
    pub(super) count: u64,
    pub(super) total_ns: u64,
    /// Of that, inside other waits.
    pub(super) inside_ns: u64,
}

/// Wait classes that something was waited for in, longest time first.
pub(super) fn classes(of: &Interval) -> Vec<ClassRow> {
    let mut rows = Vec::new();
    for class in WaitClass::ALL {
        let mut row = ClassRow { class, count: 0, total_ns: 0, inside_ns: 0 };
        for wait in of.foreground().into_iter().filter(|wait| wait.class == class) {
            row.count = row.count.saturating_add(wait.count);
            row.total_ns = row.total_ns.saturating_add(wait.total_ns);
            if wait.is_inside_another() {
                row.inside_ns = row.inside_ns.saturating_add(wait.total_ns);
            }
        }
        if row.count > 0 {
            rows.push(row);
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.total_ns));
    rows
}

/// A line of the accounting; the nanoseconds may be below zero.
pub(super) struct AccountLine {
    pub(super) name: String,
    pub(super) ns: f64,
    /// Whether it only makes the others add up.
    pub(super) balances: bool,
}

/// The lines that add up to DB time; nothing if the source does not tell DB time.
pub(super) fn account(of: &Interval) -> Option<Vec<AccountLine>> {
    let db_time_ns = of.db_time_ns? as f64;
    let mut lines = Vec::new();
    let mut line = |name: &str, ns: f64, balances| {
        lines.push(AccountLine { name: name.to_owned(), ns, balances })
    };
    let mut rest = db_time_ns;
    if let Some(cpu) = of.db_cpu_ns {
        line(DB_CPU, cpu as f64, false);
        rest -= cpu as f64;
    }
    let classes = classes(of);
    for row in &classes {
        line(row.class.name(), row.total_ns as f64, false);
        rest -= row.total_ns as f64;
    }
    let inside = classes.iter().map(|row| row.inside_ns as f64).sum::<f64>();
    if inside > 0.0 {
        line("less: waits inside other waits", -inside, true);
        rest += inside;
    }
    if rest >= 0.0 {
        let name = if of.db_cpu_ns.is_some() {
            "not accounted for"
        } else {
            "DB CPU, which the source does not tell, and what is not accounted for"
        };
        line(name, rest, true);
    } else {
        line(OVERLAP, rest, true);
    }
    Some(lines)
}

/// Colours of the charts: DB CPU is 0, the classes follow, what is not accounted for is 10.
pub(super) fn colour(class: Option<WaitClass>) -> u8 {
    match class {
        None => 0,
        Some(WaitClass::UserIo) => 1,
        Some(WaitClass::SystemIo) => 2,
        Some(WaitClass::Commit) => 3,
        Some(WaitClass::Configuration) => 4,
        Some(WaitClass::Concurrency) => 5,
        Some(WaitClass::Network) => 6,
        Some(WaitClass::Application) => 7,
        // Where there is a cluster, there is hardly a command of an administrator.
        Some(WaitClass::Administrative | WaitClass::Cluster) => 8,
        Some(WaitClass::Idle | WaitClass::Other | WaitClass::Queueing | WaitClass::Scheduler) => 9,
    }
}

/// Bars of the top events.
pub(super) fn bars(of: &Interval, most: usize) -> Vec<Bar> {
    let rows = timed(of).into_iter().take(most);
    rows.map(|row| Bar {
        label: row.marked(),
        value: row.total_ns as f64 / 1e9,
        detail: of_db_time(of, row.total_ns as f64).map_or(String::new(), |percent| {
            format!("{} % of DB time", crate::figure::percent(percent))
        }),
        colour: colour(row.class),
    })
    .collect()
}

/// The parts of a bar of DB time: DB CPU, each class that occurs in one of the intervals, and what
/// is left. Waits inside other waits are left out, so that no part is drawn twice.
pub(super) fn parts(intervals: &[&Interval]) -> (Vec<Series>, Vec<Vec<f64>>) {
    let (mut series, mut values) = (Vec::new(), vec![Vec::new(); intervals.len()]);
    let cpu = intervals.iter().any(|of| of.db_cpu_ns.is_some());
    if cpu {
        series.push(Series { name: DB_CPU.to_owned(), colour: colour(None) });
        values = intervals.iter().map(|of| vec![of.db_cpu_ns.unwrap_or(0) as f64]).collect();
    }
    for class in WaitClass::ALL {
        let outer = |of: &&Interval| {
            let rows = classes(of);
            let row = rows.iter().find(|row| row.class == class);
            row.map_or(0.0, |row| row.total_ns.saturating_sub(row.inside_ns) as f64)
        };
        let of_class: Vec<f64> = intervals.iter().map(outer).collect();
        if of_class.iter().any(|ns| *ns > 0.0) {
            series.push(Series { name: class.name().to_owned(), colour: colour(Some(class)) });
            for (values, ns) in values.iter_mut().zip(of_class) {
                values.push(ns);
            }
        }
    }
    let rest = |values: &[f64], of: &Interval| {
        (of.db_time_ns.unwrap_or(0) as f64 - values.iter().sum::<f64>()).max(0.0)
    };
    let rests: Vec<f64> =
        values.iter().zip(intervals).map(|(values, of)| rest(values, of)).collect();
    if rests.iter().any(|rest| *rest > 0.0) {
        let name = if cpu { "not accounted for" } else { "CPU (not told) and not accounted for" };
        series.push(Series { name: name.to_owned(), colour: 10 });
        for (values, rest) in values.iter_mut().zip(rests) {
            values.push(rest);
        }
    }
    (series, values)
}

/// What must be known to read a bar of DB time.
pub(super) fn parts_explained(intervals: &[&Interval]) -> String {
    let overlaps = |of: &&Interval| {
        let named = of.waited_ns() as f64 + of.db_cpu_ns.unwrap_or(0) as f64;
        of.db_time_ns.is_some_and(|time| named > time as f64)
    };
    let longer = if intervals.iter().any(overlaps) {
        " A bar is longer than DB time by the processor time inside waits, which is in two parts."
    } else {
        ""
    };
    format!("Waits inside other waits are left out.{longer}")
}

/// What an event is, in a sentence: the source's own words, else Oracle's meaning.
pub(super) fn help(name: &str, help: &str) -> String {
    if help.is_empty() { known::help_of_event(name).to_owned() } else { help.to_owned() }
}

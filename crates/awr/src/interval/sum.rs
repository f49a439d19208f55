//! An interval over a restart: what was counted before and after it, added up.
//!
//! ```text
//! snapshots   1    2    3         4    5    6        the source was restarted between 3 and 4
//! parts       [---------]         [---------]        each an interval of whole snapshots
//! the sum     elapsed, DB time, waits, counters ... of both parts; from 3 to 4 nothing is known,
//!             and left out
//! ```
//!
//! With snapshots between its ends an interval whose counters began anew is not lost: the steps on
//! both sides of each break can be counted. A break may also be hidden: after a restart that the
//! source does not tell of, the last snapshot can be above the first by chance. The steps show it,
//! so they are looked at also where the ends seem to fit.
//!
//! What is left out is said: when, why, how long ([`LeftOut`]). What one part does not tell the sum
//! does not tell; an event that a part does not have is a zero there only where its source lists
//! everything.
//!
//! Invariants: no part spans a break; elapsed time is that of the parts. Deliberately absent: what
//! happened from the restart to the first snapshot after it, although its counters began at zero:
//! when they did is not known.

use std::collections::BTreeSet;

use crate::interval::left_out::{Broken, Inside, LeftOut, is_break};
use crate::interval::timeline::Timeline;
use crate::interval::{CounterDelta, WaitDelta};
use crate::snapshot::host::{CpuTimes, DiskStat, Pressure};
use crate::snapshot::sampling::{Sampling, who};
use crate::snapshot::statement::{StatementDeltas, StatementStat};
use crate::snapshot::{IoStat, MediumStat};
use crate::{Error, Interval, Result, Snapshot, SnapshotId, interval};

/// Intervals between breaks as they are found, and their sum.
pub(crate) struct Parts<'a> {
    pub(crate) find: &'a dyn Fn(SnapshotId) -> Result<Snapshot>,
    pub(crate) ids: &'a [SnapshotId],
    pub(crate) sum: Option<Interval>,
    pub(crate) left_out: Vec<LeftOut>,
}

impl Parts<'_> {
    pub(crate) fn add_all(&mut self, timeline: &Timeline) -> Result<()> {
        let last = self.ids.len() - 1;
        let mut from = 0;
        for broken in &timeline.broken {
            self.part(from, broken.step)?;
            self.left_out.push(broken.time.clone());
            from = broken.step + 1;
        }
        self.part(from, last)
    }

    /// Adds what happened between two snapshots. Where whole snapshots show a break that the brief
    /// ones do not tell, it is looked for by halves.
    fn part(&mut self, from: usize, to: usize) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let (first, last) = (self.ids[from], self.ids[to]);
        let (begin, end) = ((self.find)(first)?, (self.find)(last)?);
        match Interval::between(&begin, &end) {
            Ok(part) => match self.sum.take() {
                None => self.sum = Some(part.within()),
                Some(sum) => self.sum = Some(added(sum, part.within())),
            },
            Err(error) if is_break(&error) && to - from == 1 => {
                let what = if matches!(error, Error::Reset { .. }) {
                    "counters reset"
                } else {
                    "restarted"
                };
                self.left_out
                    .push(Broken::new(from, (first, &begin), (last, &end), what, &error).time);
            }
            Err(error) if is_break(&error) => {
                let middle = from + (to - from) / 2;
                self.part(from, middle)?;
                self.part(middle, to)?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

impl Interval {
    /// The same, with what is to be known of its own ends noted: they will not be the ends of the
    /// sum.
    fn within(mut self) -> Interval {
        for at in [&self.begin, &self.end] {
            self.inside.partial.extend(at.partial.iter().cloned());
            at.media
                .iter()
                .filter(|medium| medium.emulated)
                .for_each(|medium| self.inside.add_emulated(medium.clone()));
        }
        self
    }
}

impl Inside {
    /// What is to be known of two intervals.
    fn and(mut self, other: Inside) -> Inside {
        self.partial.extend(other.partial);
        other.emulated.into_iter().for_each(|medium| self.add_emulated(medium));
        self
    }

    fn add_emulated(&mut self, medium: MediumStat) {
        let same = |known: &MediumStat| known.name == medium.name && known.kind == medium.kind;
        if !self.emulated.iter().any(same) {
            self.emulated.push(medium);
        }
    }
}

fn both<T>(a: Option<T>, b: Option<T>, add: impl FnOnce(T, T) -> T) -> Option<T> {
    a.zip(b).map(|(a, b)| add(a, b))
}

fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    both(a, b, u64::saturating_add)
}

/// Two intervals of one source, the second after the first.
fn added(a: Interval, b: Interval) -> Interval {
    let mut warnings = a.warnings;
    let inside = a.inside.and(b.inside);
    warnings.extend(changed(&a.end, &b.begin));
    for warning in b.warnings {
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    if a.sampling.is_some() != b.sampling.is_some() {
        warnings.push("Samples of active sessions are of a part of the interval only.".to_owned());
    }
    let mut out = Vec::new();
    let is_partial = |list: &str| inside.partial.contains(list);
    let waits = joined(a.waits, b.waits, is_partial("waits"), &mut out, &WAITS);
    let counters = joined(a.counters, b.counters, is_partial("counters"), &mut out, &COUNTERS);
    let io = joined(a.io, b.io, is_partial("io"), &mut out, &IO);
    interval::left_out("", out, &mut warnings);
    let disks = disks(a.disks, b.disks, &warnings);
    Interval {
        label: a.label,
        begin: a.begin,
        end: b.end,
        ids: None,
        elapsed_ns: a.elapsed_ns.saturating_add(b.elapsed_ns),
        db_time_ns: sum(a.db_time_ns, b.db_time_ns),
        db_cpu_ns: sum(a.db_cpu_ns, b.db_cpu_ns),
        process_cpu_ns: sum(a.process_cpu_ns, b.process_cpu_ns),
        waits,
        counters,
        io,
        host_cpu: both(a.host_cpu, b.host_cpu, add_cpu),
        disks,
        statements: statements(a.statements, b.statements, &mut warnings),
        files: crate::snapshot::file::added(a.files, b.files),
        tables: crate::snapshot::tables::added(a.tables, b.tables),
        objects: crate::snapshot::object::added(a.objects, b.objects),
        plans: crate::snapshot::plan::added(a.plans, b.plans),
        sampling: match (a.sampling, b.sampling) {
            (Some(a), Some(b)) => Some(add_samples(a, b)),
            (a, b) => a.or(b),
        },
        pressure: both(a.pressure, b.pressure, add_pressure),
        warnings,
        timeline: None,
        left_out: Vec::new(),
        inside,
    }
}

/// What else is not the same on the two sides of a break: often it is why there was one.
fn changed(before: &Snapshot, after: &Snapshot) -> Option<String> {
    let quoted =
        |text: Option<&String>| text.map_or("unknown".to_owned(), |text| format!("\"{text}\""));
    let mut changes = Vec::new();
    let (a, b) = (&before.source, &after.source);
    if a.version != b.version {
        changes.push(format!("the version from \"{}\" to \"{}\"", a.version, b.version));
    }
    let names: BTreeSet<&String> = a.settings.keys().chain(b.settings.keys()).collect();
    for name in names {
        let (was, is) = (a.settings.get(name), b.settings.get(name));
        if was != is {
            changes.push(format!("{name} from {} to {}", quoted(was), quoted(is)));
        }
    }
    let more = changes.len().saturating_sub(interval::NAMED);
    changes.truncate(interval::NAMED);
    let and = if more > 0 { format!("; and {more} more") } else { String::new() };
    (!changes.is_empty()).then(|| {
        format!("Changed in the interval: {}{and}.", crate::figure::visible(&changes.join("; ")))
    })
}

/// How rows of a list are told apart and added.
struct Rows<T> {
    name: fn(&T) -> String,
    /// Whether two rows are of one thing; `partial` if the lists may lack rows.
    same: fn(&T, &T, partial: bool) -> bool,
    add: fn(&mut T, &T),
}

const WAITS: Rows<WaitDelta> = Rows {
    name: |wait| wait.name.clone(),
    // What is counted in another way after the break is another figure: the help says which.
    same: |a, b, partial| {
        (&a.name, a.class, a.background) == (&b.name, b.class, b.background)
            && (!partial || a.help == b.help)
    },
    add: add_wait,
};

/// A source may count one thing in several ways, and takes the best it is allowed: the help says
/// which.
const COUNTERS: Rows<CounterDelta> = Rows {
    name: |counter| counter.name.clone(),
    same: |a, b, _| (&a.name, &a.unit, &a.help) == (&b.name, &b.unit, &b.help),
    add: |a, b| a.value = a.value.saturating_add(b.value),
};

const IO: Rows<IoStat> = Rows {
    name: |io| format!("reads and writes of {} on {}", io.file_class, io.tier),
    same: |a, b, _| (&a.file_class, &a.tier) == (&b.file_class, &b.tier),
    add: add_io,
};

/// The rows of two lists, added. A row that one of them lacks is a zero in it, unless the lists may
/// lack rows: it is left out then.
fn joined<T>(
    mut a: Vec<T>,
    b: Vec<T>,
    partial: bool,
    out: &mut Vec<String>,
    rows: &Rows<T>,
) -> Vec<T> {
    let mut there = vec![false; a.len()];
    let mut new = Vec::new();
    for row in b {
        match a.iter().position(|known| (rows.same)(known, &row, partial)) {
            Some(at) => {
                (rows.add)(&mut a[at], &row);
                there[at] = true;
            }
            None if partial => out.push((rows.name)(&row)),
            None => new.push(row),
        }
    }
    if partial {
        out.extend(
            a.iter().zip(&there).filter(|(_, there)| !**there).map(|(row, _)| (rows.name)(row)),
        );
        let mut there = there.into_iter();
        a.retain(|_| there.next() == Some(true));
    }
    a.extend(new);
    a
}

fn add_wait(a: &mut WaitDelta, b: &WaitDelta) {
    // A histogram of some of the waits would be taken for one of all, and counts from outside may
    // be too many to add.
    if a.histogram.count().checked_add(b.histogram.count()).is_none()
        || (a.count > 0 && a.histogram.count() == 0)
        || (b.count > 0 && b.histogram.count() == 0)
    {
        a.histogram = tiersmith_events::Histogram::new();
    } else {
        a.histogram.merge(&b.histogram);
    }
    a.count = a.count.saturating_add(b.count);
    a.total_ns = a.total_ns.saturating_add(b.total_ns);
    a.bytes = a.bytes.saturating_add(b.bytes);
}

fn add_io(a: &mut IoStat, b: &IoStat) {
    let untimed = a.untimed || b.untimed;
    for (value, more) in a.numbers_mut().into_iter().zip(b.numbers()) {
        *value = value.saturating_add(more);
    }
    if untimed {
        a.forget_times();
    }
}

fn add_cpu(a: CpuTimes, b: CpuTimes) -> CpuTimes {
    CpuTimes {
        user_ns: a.user_ns.saturating_add(b.user_ns),
        system_ns: a.system_ns.saturating_add(b.system_ns),
        idle_ns: a.idle_ns.saturating_add(b.idle_ns),
        iowait_ns: a.iowait_ns.saturating_add(b.iowait_ns),
        steal_ns: a.steal_ns.saturating_add(b.steal_ns),
    }
}

fn add_pressure(a: Pressure, b: Pressure) -> Pressure {
    Pressure {
        cpu_some_us: a.cpu_some_us.saturating_add(b.cpu_some_us),
        io_some_us: a.io_some_us.saturating_add(b.io_some_us),
        io_full_us: a.io_full_us.saturating_add(b.io_full_us),
        memory_some_us: a.memory_some_us.saturating_add(b.memory_some_us),
        memory_full_us: a.memory_full_us.saturating_add(b.memory_full_us),
    }
}

/// Disks that did nothing are in no list: what one of them lacks is zero, but for a disk whose
/// counters went backwards, which a warning says.
fn disks(mut a: Vec<DiskStat>, b: Vec<DiskStat>, warnings: &[String]) -> Vec<DiskStat> {
    for disk in b {
        match a.iter_mut().find(|known| known.name == disk.name) {
            Some(known) => {
                known.reads = known.reads.saturating_add(disk.reads);
                known.read_bytes = known.read_bytes.saturating_add(disk.read_bytes);
                known.read_ms = known.read_ms.saturating_add(disk.read_ms);
                known.writes = known.writes.saturating_add(disk.writes);
                known.write_bytes = known.write_bytes.saturating_add(disk.write_bytes);
                known.write_ms = known.write_ms.saturating_add(disk.write_ms);
                known.busy_ms = known.busy_ms.saturating_add(disk.busy_ms);
                let both =
                    |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.saturating_add(b));
                known.flushes = both(known.flushes, disk.flushes);
                known.flush_ms = both(known.flush_ms, disk.flush_ms);
            }
            None => a.push(disk),
        }
    }
    a.retain(|disk| !warnings.contains(&interval::disk_backwards(&disk.name)));
    a
}

fn statements(
    a: StatementDeltas,
    b: StatementDeltas,
    warnings: &mut Vec<String>,
) -> StatementDeltas {
    let said = [a.lost, b.lost].map(interval::statements_lost);
    warnings.retain(|warning| !said.contains(warning));
    let lost = a.lost.saturating_add(b.lost);
    if lost > 0 {
        warnings.retain(|warning| !warning.starts_with(PARTLY));
        warnings.push(format!(
            "{PARTLY} {lost} times one could not be followed and is not in the sum."
        ));
    }
    let mut rows = a.rows;
    for row in b.rows {
        match rows.iter_mut().find(|known| known.id == row.id) {
            Some(known) => add_statement(known, row),
            None => rows.push(row),
        }
    }
    rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.id.cmp(&b.id)));
    StatementDeltas { rows, lost }
}

/// How the warning begins that says it of statements.
const PARTLY: &str =
    "Statements are counted in those parts of the interval in which they can be followed:";

fn add_statement(a: &mut StatementStat, b: StatementStat) {
    a.calls = a.calls.saturating_add(b.calls);
    a.total_ns = a.total_ns.saturating_add(b.total_ns);
    a.rows = a.rows.saturating_add(b.rows);
    a.pages_hit = sum(a.pages_hit, b.pages_hit);
    a.pages_read = sum(a.pages_read, b.pages_read);
    a.redo_bytes = sum(a.redo_bytes, b.redo_bytes);
    a.temp_bytes = sum(a.temp_bytes, b.temp_bytes);
}

fn add_samples(mut a: Sampling, b: Sampling) -> Sampling {
    a.looks = a.looks.saturating_add(b.looks);
    for event in b.events {
        match a
            .events
            .iter_mut()
            .find(|known| known.name == event.name && known.class == event.class)
        {
            Some(known) => known.seen = known.seen.saturating_add(event.seen),
            None => a.events.push(event),
        }
    }
    a.statements = who::added(a.statements, b.statements);
    a.sessions = who::added(a.sessions, b.sessions);
    a.blockers = who::added(a.blockers, b.blockers);
    a.events.sort_by(|a, b| b.seen.cmp(&a.seen).then_with(|| a.name.cmp(&b.name)));
    a
}

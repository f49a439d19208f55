//! Which metric a figure of a snapshot becomes, and with which labels.
//!
//! | prefix | what | labels besides source, database, emulated |
//! |---|---|---|
//! | `tiersmith_wait*` | measured waits | event, class, scope |
//! | `tiersmith_sampled_*` | sessions seen in looks: estimates | event, class |
//! | `tiersmith_io_*` | reads and writes | file_class, tier, direction |
//! | `tiersmith_medium_*` | what the bytes lie on | medium, kind |
//! | `tiersmith_stat_*`, `tiersmith_level_*` | the source's own counters and levels, each by its name | unit, if it is none of Prometheus |
//! | `tiersmith_statement_*` | statements, if they were asked for | statement_id, statement |
//! | `tiersmith_host_*` | the machine of the endpoint, once | mode, disk, resource |
//!
//! `scope` is `foreground` for a wait in DB time, `background` for one that is not, and `inside`
//! for one that lies inside another of the same request: adding up `foreground` counts nothing
//! twice. Idle waits are left out.
//!
//! Invariant: a figure that the source does not tell has no series; zero means that zero was
//! counted.

use std::time::Duration;

use tiersmith_events::WaitClass;

use super::text::{Families, Kind, Labels, Spec, Unit, Value, slug};
use super::{Content, Scrape};
use crate::snapshot::host::{DiskStat, HostStat, Memory, Pressure};
use crate::snapshot::known;
use crate::{
    CounterStat, IoStat, LevelStat, MediumStat, Sampling, Snapshot, StatementStat, WaitStat,
};

/// Wait events of one source at most, those with the longest time.
const WAITS: usize = 200;
/// Counters, and levels, of one source at most.
const NAMES: usize = 300;
/// Rows of any other list of one source at most.
const ROWS: usize = 100;
/// The longest text of a statement in a label, in characters.
const STATEMENT: usize = 120;

/// Upper borders of the latency buckets are 2^0 to 2^24 microseconds, 1 us to 16.8 s.
const BORDERS: std::ops::RangeInclusive<u32> = 0..=24;

const fn counter<'a>(name: &'a str, unit: Unit, help: &'a str) -> Spec<'a> {
    Spec { name, kind: Kind::Counter, unit, help }
}

const fn gauge<'a>(name: &'a str, unit: Unit, help: &'a str) -> Spec<'a> {
    Spec { name, kind: Kind::Gauge, unit, help }
}

/// The labels of a source with some more.
type With<'a> = dyn Fn(&[(&'static str, &str)]) -> Labels + 'a;

/// Every family of a scrape.
pub(super) fn of(scrapes: &[Scrape], host: &HostStat, content: Content) -> Families {
    let mut to = Families::default();
    for scrape in scrapes {
        let only: Labels = vec![("source", scrape.source.clone())];
        let up = gauge(
            "up",
            Unit::None,
            "Whether the source answered this scrape. If not, it has no other figure.",
        );
        to.add(up, &only, Value::Whole(u64::from(scrape.snapshot.is_some())));
        let took =
            gauge("scrape_duration", Unit::Seconds, "How long the answer of the source took.");
        to.add(took, &only, Value::Nanoseconds(ns(scrape.took)));
        if let Some(snapshot) = &scrape.snapshot {
            of_snapshot(&mut to, &scrape.source, snapshot, scrape.sampling.as_ref(), content);
        }
    }
    of_host(&mut to, host);
    let dropped = to.dropped();
    let help = "Series of this scrape left out because there were too many, or two of one name.";
    to.add(gauge("series_left_out", Unit::None, help), &Labels::new(), Value::Whole(dropped));
    to
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn of_snapshot(
    to: &mut Families,
    name: &str,
    of: &Snapshot,
    sampling: Option<&Sampling>,
    content: Content,
) {
    let base: Labels = vec![
        ("source", name.to_owned()),
        ("database", of.source.database.clone()),
        ("emulated", of.is_emulated().to_string()),
    ];
    let with = |more: &[(&'static str, &str)]| {
        let more = more.iter().map(|(label, value)| (*label, (*value).to_owned()));
        base.iter().cloned().chain(more).collect::<Labels>()
    };
    of_source(to, &with, of);
    of_waits(to, &with, of);
    for io in bounded(to, of.io.iter().collect(), ROWS) {
        for direction in ["read", "write"] {
            let labels = with(&[
                ("file_class", &io.file_class),
                ("tier", &io.tier),
                ("direction", direction),
            ]);
            of_io(to, &labels, io, direction == "read");
        }
    }
    for medium in bounded(to, of.media.iter().collect(), ROWS) {
        of_medium(to, &with, medium);
    }
    for counter in bounded(to, of.counters.iter().collect(), NAMES) {
        of_counter(to, &with, counter);
    }
    for level in bounded(to, of.levels.iter().collect(), NAMES) {
        of_level(to, &with, level);
    }
    if let Some(sampling) = sampling.filter(|sampling| sampling.looks > 0) {
        of_sampling(to, &with, sampling);
    }
    for statement in of.statements.iter().take(content.statements) {
        of_statement(to, &with, statement);
    }
}

/// What the source is, and its times and counts that are not split by anything.
fn of_source(to: &mut Families, with: &With<'_>, of: &Snapshot) {
    let source = &of.source;
    let base = with(&[]);
    let info = with(&[
        ("product", &source.product),
        ("version", &source.version),
        ("instance_id", &source.instance),
    ]);
    let help = "What the source is; instance_id is another one after every start of it.";
    to.add(
        Spec { name: "source", kind: Kind::Info, unit: Unit::None, help },
        &info,
        Value::Whole(1),
    );
    let help = "1 if the address of the source is that of another machine: tiersmith_host_* is the \
                endpoint's then, not the source's.";
    let remote = u64::from(source.remote == Some(true));
    to.add(gauge("source_remote", Unit::None, help), &base, Value::Whole(remote));
    for (spec, time) in [
        (
            counter(
                "db_time",
                Unit::Seconds,
                "Time that requests spent in the database, working or waiting.",
            ),
            of.db_time_ns,
        ),
        (
            counter("db_cpu", Unit::Seconds, "The part of DB time in which a processor worked."),
            of.db_cpu_ns,
        ),
        (
            counter("process_cpu", Unit::Seconds, "Processor time of the whole database process."),
            of.process_cpu_ns,
        ),
    ] {
        if let Some(time) = time {
            to.add(spec, &base, Value::Nanoseconds(time));
        }
    }
    if let Some(sessions) = of.sessions {
        to.add(
            gauge("sessions", Unit::None, "Sessions that are connected."),
            &base,
            Value::Whole(sessions),
        );
    }
    let help = "Things the source could not tell; `tiersmith awr snapshot` and `report` name them.";
    to.add(gauge("not_told", Unit::None, help), &base, Value::Whole(of.missing.len() as u64));
}

/// The wait events with the longest time, each with its scope.
fn of_waits(to: &mut Families, with: &With<'_>, of: &Snapshot) {
    let mut waits: Vec<&WaitStat> =
        of.waits.iter().filter(|wait| wait.class != WaitClass::Idle).collect();
    waits.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.key().cmp(&b.key())));
    for wait in bounded(to, waits, WAITS) {
        let scope = match wait.background {
            true => "background",
            false if known::inside(&wait.name).is_some() => "inside",
            false => "foreground",
        };
        of_wait(
            to,
            &with(&[("event", &wait.name), ("class", wait.class.name()), ("scope", scope)]),
            wait,
        );
    }
}

fn of_medium(to: &mut Families, with: &With<'_>, medium: &MediumStat) {
    // The medium's own word, not that of the source's others.
    let mut labels = with(&[("medium", &medium.name), ("kind", &medium.kind)]);
    labels[2].1 = medium.emulated.to_string();
    if medium.bytes > 0 {
        let spec = gauge("medium_size", Unit::Bytes, "Size of a medium.");
        to.add(spec, &labels, Value::Whole(medium.bytes));
    }
    // Zero is unknown as well as empty for some sources; of a medium of known size it is empty.
    if medium.used_bytes > 0 || medium.bytes > 0 {
        let spec = gauge("medium_used", Unit::Bytes, "How much of a medium is used.");
        to.add(spec, &labels, Value::Whole(medium.used_bytes));
    }
}

/// What looks at the active sessions saw.
fn of_sampling(to: &mut Families, with: &With<'_>, sampling: &Sampling) {
    let help = "Looks at the active sessions since the endpoint started. Sampled, not measured.";
    let looks = Value::Whole(sampling.looks);
    to.add(counter("sampled_looks", Unit::None, help), &with(&[]), looks);
    let help = "Sessions seen active in looks, by what they waited for. Sampled: by \
                sampled_looks they are average active sessions.";
    for event in bounded(to, sampling.events.iter().collect(), WAITS) {
        let labels = with(&[("event", &event.name), ("class", &event.class)]);
        to.add(counter("sampled_sessions", Unit::None, help), &labels, Value::Whole(event.seen));
    }
}

fn of_statement(to: &mut Families, with: &With<'_>, statement: &StatementStat) {
    let text: String = statement.text.chars().take(STATEMENT).collect();
    let labels = with(&[("statement_id", &statement.id), ("statement", &text)]);
    let spec = counter(
        "statement_duration",
        Unit::Seconds,
        "Time spent in a statement, waiting included.",
    );
    to.add(spec, &labels, Value::Nanoseconds(statement.total_ns));
    let spec = counter("statement_calls", Unit::None, "How often a statement was run.");
    to.add(spec, &labels, Value::Whole(statement.calls));
}

/// The first `most` of a list; the rest is counted as left out.
fn bounded<T>(to: &mut Families, mut list: Vec<T>, most: usize) -> Vec<T> {
    to.left_out(list.len().saturating_sub(most));
    list.truncate(most);
    list
}

fn of_wait(to: &mut Families, labels: &Labels, wait: &WaitStat) {
    to.add(counter("waits", Unit::None, "Waits, measured."), labels, Value::Whole(wait.count));
    let spec = counter("wait", Unit::Seconds, "Time waited, measured.");
    to.add(spec, labels, Value::Nanoseconds(wait.total_ns));
    if wait.bytes > 0 {
        let spec = counter("wait", Unit::Bytes, "Bytes moved in these waits.");
        to.add(spec, labels, Value::Whole(wait.bytes));
    }
    if wait.buckets.is_empty() {
        return;
    }
    let mut samples = Vec::new();
    for power in BORDERS {
        let border_ns = 1_000u64 << power;
        let below = wait.buckets.iter().filter(|(low_ns, _)| *low_ns < border_ns);
        let count = below.fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
        // Shortest text of the border in seconds that reads back as the same number.
        let border = format!("{}", border_ns as f64 / 1e9);
        samples.push(("_bucket", vec![("le", border)], Value::Whole(count)));
    }
    let whole =
        Value::Whole(wait.buckets.iter().fold(0u64, |sum, (_, count)| sum.saturating_add(*count)));
    samples.push(("_bucket", vec![("le", "+Inf".to_owned())], whole));
    samples.push(("_count", Labels::new(), whole));
    samples.push(("_sum", Labels::new(), Value::Nanoseconds(wait.total_ns)));
    let help = "Waits by duration, where the source keeps a histogram. A wait that lasts exactly \
                as long as a border is counted above it.";
    let spec = Spec { name: "wait_duration", kind: Kind::Histogram, unit: Unit::Seconds, help };
    to.add_group(spec, labels, &samples);
}

fn of_io(to: &mut Families, labels: &Labels, io: &IoStat, reads: bool) {
    let (requests, bytes, time) = match reads {
        true => (io.reads, io.read_bytes, io.read_ns),
        false => (io.writes, io.write_bytes, io.write_ns),
    };
    to.add(
        counter("io_requests", Unit::None, "Reads and writes of files."),
        labels,
        Value::Whole(requests),
    );
    to.add(counter("io", Unit::Bytes, "Bytes read and written."), labels, Value::Whole(bytes));
    if !io.untimed {
        let spec = counter("io", Unit::Seconds, "Time that reads and writes took.");
        to.add(spec, labels, Value::Nanoseconds(time));
    }
}

/// A unit of the source in one that Prometheus knows, and what to multiply with to get nanoseconds
/// or bytes.
fn unit_of(unit: &str) -> (Unit, u64) {
    match unit {
        "bytes" => (Unit::Bytes, 1),
        "s" => (Unit::Seconds, 1_000_000_000),
        "ms" => (Unit::Seconds, 1_000_000),
        "us" => (Unit::Seconds, 1_000),
        "ns" => (Unit::Seconds, 1),
        _ => (Unit::None, 1),
    }
}

fn value_of(unit: Unit, factor: u64, value: u64) -> Value {
    match unit {
        Unit::Seconds => Value::Nanoseconds(value.saturating_mul(factor)),
        _ => Value::Whole(value),
    }
}

fn of_counter(to: &mut Families, with: &With<'_>, of: &CounterStat) {
    let (unit, factor) = unit_of(&of.unit);
    let labels = if unit == Unit::None { with(&[("unit", &of.unit)]) } else { with(&[]) };
    let name = format!("stat_{}", slug(&of.name));
    let help = if of.help.is_empty() {
        format!("The source's counter {}.", of.name)
    } else {
        of.help.clone()
    };
    to.add(counter(&name, unit, &help), &labels, value_of(unit, factor, of.value));
}

fn of_level(to: &mut Families, with: &With<'_>, of: &LevelStat) {
    let (unit, factor) = unit_of(&of.unit);
    let labels = if unit == Unit::None { with(&[("unit", &of.unit)]) } else { with(&[]) };
    let name = format!("level_{}", slug(&of.name));
    let help = format!("The source's {}, as it is now.", of.name);
    to.add(gauge(&name, unit, &help), &labels, value_of(unit, factor, of.value));
}

fn of_host(to: &mut Families, host: &HostStat) {
    of_processors(to, host);
    if let Some(memory) = &host.memory {
        of_memory(to, memory);
    }
    if let Some(pressure) = &host.pressure {
        of_pressure(to, pressure);
    }
    for disk in bounded(to, host.disks.iter().flatten().collect(), ROWS) {
        of_disk(to, disk);
    }
}

/// A label alone, as most figures of the host have it.
fn label(label: &'static str, value: &str) -> Labels {
    vec![(label, value.to_owned())]
}

/// The processors, what they did, and who wanted them.
fn of_processors(to: &mut Families, host: &HostStat) {
    if let Some(cpus) = &host.cpus {
        let spec = gauge("host_cpus", Unit::None, "Hardware threads of the machine.");
        to.add(spec, &Labels::new(), Value::Whole(u64::from(cpus.threads)));
    }
    if let Some(cpu) = &host.cpu {
        let modes = [
            ("user", cpu.user_ns),
            ("system", cpu.system_ns),
            ("idle", cpu.idle_ns),
            ("iowait", cpu.iowait_ns),
            ("steal", cpu.steal_ns),
        ];
        for (mode, time) in modes {
            let spec = counter(
                "host_cpu",
                Unit::Seconds,
                "Processor time of the machine, of all processors together.",
            );
            to.add(spec, &label("mode", mode), Value::Nanoseconds(time));
        }
    }
    if let Some(load) = &host.load {
        for (over, value) in [("1m", load.one), ("5m", load.five), ("15m", load.fifteen)] {
            let spec = gauge("host_load", Unit::None, "Threads that ran or wanted to, on average.");
            to.add(spec, &label("over", over), Value::Number(value));
        }
    }
    if let Some(queue) = &host.queue {
        for (state, value) in [("running", queue.running), ("blocked", queue.blocked)] {
            let spec = gauge(
                "host_threads",
                Unit::None,
                "Threads that run or wait for a processor, and threads that wait for a disk.",
            );
            to.add(spec, &label("state", state), Value::Whole(value));
        }
    }
}

fn of_memory(to: &mut Families, memory: &Memory) {
    let spec = gauge("host_memory_size", Unit::Bytes, "Memory of the machine.");
    to.add(spec, &Labels::new(), Value::Whole(memory.total_bytes));
    if let Some(available) = memory.available() {
        let spec = gauge("host_memory_available", Unit::Bytes, "What programs could still get.");
        to.add(spec, &Labels::new(), Value::Whole(available));
    }
}

fn of_pressure(to: &mut Families, pressure: &Pressure) {
    for (resource, kind, us) in [
        ("cpu", "some", pressure.cpu_some_us),
        ("io", "some", pressure.io_some_us),
        ("io", "full", pressure.io_full_us),
        ("memory", "some", pressure.memory_some_us),
        ("memory", "full", pressure.memory_full_us),
    ] {
        let labels = vec![("resource", resource.to_owned()), ("kind", kind.to_owned())];
        let spec = counter(
            "host_pressure",
            Unit::Seconds,
            "Time in which some or all threads were held up for want of something.",
        );
        to.add(spec, &labels, Value::Nanoseconds(us.saturating_mul(1000)));
    }
}

fn of_disk(to: &mut Families, disk: &DiskStat) {
    let ms = |ms: u64| Value::Nanoseconds(ms.saturating_mul(1_000_000));
    for (direction, requests, bytes, time) in [
        ("read", disk.reads, disk.read_bytes, disk.read_ms),
        ("write", disk.writes, disk.write_bytes, disk.write_ms),
    ] {
        let labels = vec![("disk", disk.name.clone()), ("direction", direction.to_owned())];
        to.add(
            counter("host_disk_requests", Unit::None, "Requests of a disk."),
            &labels,
            Value::Whole(requests),
        );
        to.add(counter("host_disk", Unit::Bytes, "Bytes of a disk."), &labels, Value::Whole(bytes));
        to.add(
            counter("host_disk", Unit::Seconds, "Time that requests of a disk took."),
            &labels,
            ms(time),
        );
    }
    if let (Some(flushes), Some(flush_ms)) = (disk.flushes, disk.flush_ms) {
        let labels = label("disk", &disk.name);
        let help = "Requests that made what was written to a disk before durable.";
        to.add(counter("host_disk_flushes", Unit::None, help), &labels, Value::Whole(flushes));
        to.add(
            counter("host_disk_flush", Unit::Seconds, "Time that these took."),
            &labels,
            ms(flush_ms),
        );
    }
    let spec = counter(
        "host_disk_busy",
        Unit::Seconds,
        "Time in which a request of a disk was under way.",
    );
    to.add(spec, &label("disk", &disk.name), ms(disk.busy_ms));
}

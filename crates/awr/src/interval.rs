//! An interval: what happened between two snapshots of one source.
//!
//! Differences are made here once, and with suspicion: a counter that is smaller than before means that the
//! source was restarted, and a difference across a restart would be a wrong number that looks right. The host
//! is treated with more patience, as `host.rs` explains: what went backwards there is left out and said.
//!
//! Invariants: the elapsed time is above zero; every row of the later snapshot has one here, the earlier
//! snapshot has none besides. Read next: `report/mod.rs`.

use std::collections::BTreeMap;

use tiersmith_events::{Histogram, WaitClass};

use crate::host::{CpuTimes, DiskStat, HostStat};
use crate::snapshot::{IoStat, Snapshot, WaitStat};
use crate::{Error, Result, SnapshotId, known};

/// What happened between two snapshots.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Interval {
    /// What reports call it, for instance `redo on the tier`; empty if nobody said.
    pub label: String,
    /// The snapshot at its beginning.
    pub begin: Snapshot,
    /// The snapshot at its end.
    pub end: Snapshot,
    /// The numbers of the snapshots, if they lie in a repository.
    pub ids: Option<(SnapshotId, SnapshotId)>,
    /// Its length.
    pub elapsed_ns: u64,
    /// DB time in it.
    pub db_time_ns: Option<u64>,
    /// DB CPU in it.
    pub db_cpu_ns: Option<u64>,
    /// Processor time of the whole process in it.
    pub process_cpu_ns: Option<u64>,
    /// Wait events.
    pub waits: Vec<WaitDelta>,
    /// Counters.
    pub counters: Vec<CounterDelta>,
    /// Reads and writes by file class and tier.
    pub io: Vec<IoStat>,
    /// Processor time of the host.
    pub host_cpu: Option<CpuTimes>,
    /// Disks of the host that did something.
    pub disks: Vec<DiskStat>,
    /// What is doubtful or missing, in sentences.
    pub warnings: Vec<String>,
}

/// A wait event in an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitDelta {
    /// Its name.
    pub name: String,
    /// The class it is added up in.
    pub class: WaitClass,
    /// Whether background work waited, not a request.
    pub background: bool,
    /// What is waited for, in a sentence; may be empty.
    pub help: String,
    /// Waits.
    pub count: u64,
    /// Time waited.
    pub total_ns: u64,
    /// Bytes moved in these waits.
    pub bytes: u64,
    /// Waits by duration; empty if the source keeps no histogram.
    pub histogram: Histogram,
}

/// A counter in an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterDelta {
    /// Its name.
    pub name: String,
    /// What one count is.
    pub unit: String,
    /// What is counted; may be empty.
    pub help: String,
    /// How much it grew.
    pub value: u64,
}

impl Interval {
    /// What happened from snapshot `begin` to snapshot `end`.
    ///
    /// # Errors
    /// If a snapshot is damaged, they are of different databases, the source was restarted between them, or
    /// `end` was not taken after `begin`.
    pub fn between(begin: &Snapshot, end: &Snapshot) -> Result<Interval> {
        for (snapshot, place) in [(begin, "the first snapshot"), (end, "the second snapshot")] {
            snapshot.check().map_err(|reason| Error::Damaged { place: place.to_owned(), reason })?;
        }
        same_source(begin, end)?;
        let Some(elapsed_ns) = end.monotonic_ns.checked_sub(begin.monotonic_ns).filter(|ns| *ns > 0) else {
            let reason = if begin.monotonic_ns == end.monotonic_ns {
                "no time passed between them".to_owned()
            } else {
                "the second was taken before the first".to_owned()
            };
            return Err(Error::NoTime { reason });
        };
        let mut warnings = Vec::new();
        let host_cpu = host_cpu(&begin.host, &end.host, &mut warnings);
        let disks = disks(&begin.host, &end.host, &mut warnings);
        warnings.extend(
            end.host.missing.iter().map(|line| format!("Part of the host is not in this report: {line}.")),
        );
        if begin.db_time_ns.is_none() || end.db_time_ns.is_none() {
            warnings.push("The source does not tell DB time: shares of DB time are left out.".to_owned());
        }
        Ok(Interval {
            label: String::new(),
            begin: begin.clone(),
            end: end.clone(),
            ids: None,
            elapsed_ns,
            db_time_ns: grown_if_known("DB time", begin.db_time_ns, end.db_time_ns)?,
            db_cpu_ns: grown_if_known("DB CPU", begin.db_cpu_ns, end.db_cpu_ns)?,
            process_cpu_ns: grown_if_known("processor time", begin.process_cpu_ns, end.process_cpu_ns)?,
            waits: waits(begin, end)?,
            counters: counters(begin, end)?,
            io: io(begin, end)?,
            host_cpu,
            disks,
            warnings,
        })
    }

    /// The same interval with a name for reports.
    #[must_use]
    pub fn labelled(mut self, label: &str) -> Interval {
        label.clone_into(&mut self.label);
        self
    }

    /// The same interval with the numbers its snapshots have in a repository.
    #[must_use]
    pub fn with_ids(mut self, begin: SnapshotId, end: SnapshotId) -> Interval {
        self.ids = Some((begin, end));
        self
    }

    /// Its length in seconds, never zero.
    pub fn elapsed_s(&self) -> f64 {
        self.elapsed_ns as f64 / 1e9
    }

    /// How much a counter grew; nothing if the source does not count it.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters.iter().find(|counter| counter.name == name).map(|counter| counter.value)
    }

    /// A wait event of requests; nothing if the source does not know it.
    pub fn wait(&self, name: &str) -> Option<&WaitDelta> {
        self.waits.iter().find(|wait| wait.name == name && !wait.background)
    }

    /// Transactions that ended, well or not; nothing if the source does not count them.
    pub fn transactions(&self) -> Option<u64> {
        let commits = self.counter(known::statistic::USER_COMMITS);
        let rollbacks = self.counter(known::statistic::USER_ROLLBACKS);
        match (commits, rollbacks) {
            (None, None) => None,
            (commits, rollbacks) => Some(commits.unwrap_or(0).saturating_add(rollbacks.unwrap_or(0))),
        }
    }

    /// Average active sessions: DB time by elapsed time.
    pub fn active_sessions(&self) -> Option<f64> {
        self.db_time_ns.map(|ns| ns as f64 / self.elapsed_ns as f64)
    }

    /// Waits of requests that belong into DB time: not background, not idle; longest time first.
    pub fn foreground(&self) -> Vec<&WaitDelta> {
        let mut waits: Vec<_> =
            self.waits.iter().filter(|wait| !wait.background && wait.class != WaitClass::Idle).collect();
        longest_first(&mut waits);
        waits
    }

    /// Waits of background work, idle ones left out; longest time first.
    pub fn background(&self) -> Vec<&WaitDelta> {
        let mut waits: Vec<_> =
            self.waits.iter().filter(|wait| wait.background && wait.class != WaitClass::Idle).collect();
        longest_first(&mut waits);
        waits
    }

    /// The time of foreground waits without those that lie inside another one, so that nothing is counted
    /// twice.
    pub fn waited_ns(&self) -> u64 {
        let outer = self.foreground().into_iter().filter(|wait| !wait.is_inside_another());
        outer.fold(0, |sum: u64, wait| sum.saturating_add(wait.total_ns))
    }

    /// Whether a medium of the source only stood for another, at its beginning or its end.
    pub fn is_emulated(&self) -> bool {
        self.begin.is_emulated() || self.end.is_emulated()
    }
}

impl WaitDelta {
    /// The mean wait, or nothing if there was none.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.total_ns as f64 / self.count as f64)
    }

    /// Whether its time is also the time of another wait.
    pub fn is_inside_another(&self) -> bool {
        !self.background && known::inside(&self.name).is_some()
    }
}

fn longest_first(waits: &mut [&WaitDelta]) {
    waits.sort_by(|a, b| (b.total_ns, b.count).cmp(&(a.total_ns, a.count)).then_with(|| a.name.cmp(&b.name)));
}

fn same_source(begin: &Snapshot, end: &Snapshot) -> Result<()> {
    let (a, b) = (&begin.source, &end.source);
    for (what, a, b) in [("database", &a.database, &b.database), ("path", &a.path, &b.path)] {
        if a != b {
            return Err(Error::OtherSource {
                reason: format!("the {what} is `{a}` in the first and `{b}` in the second"),
            });
        }
    }
    if a.instance != b.instance {
        let reason =
            format!("its instance was `{}` in the first and is `{}` in the second", a.instance, b.instance);
        return Err(Error::Restarted { reason });
    }
    Ok(())
}

/// The growth of a value that only grows.
fn grown(what: &str, before: u64, now: u64) -> Result<u64> {
    now.checked_sub(before).ok_or_else(|| Error::Restarted {
        reason: format!("{what} was {before} in the first and is {now} in the second"),
    })
}

fn grown_if_known(what: &str, before: Option<u64>, now: Option<u64>) -> Result<Option<u64>> {
    match (before, now) {
        (Some(before), Some(now)) => grown(what, before, now).map(Some),
        _ => Ok(None),
    }
}

fn gone(what: &str, name: &str) -> Error {
    Error::Restarted { reason: format!("the {what} `{name}` is in the first and not in the second") }
}

fn waits(begin: &Snapshot, end: &Snapshot) -> Result<Vec<WaitDelta>> {
    if let Some(lost) = begin.waits.iter().find(|a| !end.waits.iter().any(|b| a.key() == b.key())) {
        return Err(gone("wait event", &lost.name));
    }
    end.waits.iter().map(|now| wait(begin.waits.iter().find(|a| a.key() == now.key()), now)).collect()
}

fn wait(before: Option<&WaitStat>, now: &WaitStat) -> Result<WaitDelta> {
    let damaged = |error: tiersmith_events::HistogramError| Error::Damaged {
        place: format!("the histogram of `{}`", now.name),
        reason: error.to_string(),
    };
    let was = |pick: fn(&WaitStat) -> u64| before.map_or(0, pick);
    let what = |which: &str| format!("the {which} of `{}`", now.name);
    let count = grown(&what("number of waits"), was(|wait| wait.count), now.count)?;
    let total_ns = grown(&what("time"), was(|wait| wait.total_ns), now.total_ns)?;
    let bytes = grown(&what("number of bytes"), was(|wait| wait.bytes), now.bytes)?;
    let mut histogram = now.histogram().map_err(damaged)?;
    if let Some(before) = before {
        let before = before.histogram().map_err(damaged)?;
        let there: BTreeMap<u64, u64> =
            histogram.buckets().map(|bucket| (bucket.low_ns, bucket.count)).collect();
        for bucket in before.buckets() {
            let now_there = there.get(&bucket.low_ns).copied().unwrap_or(0);
            grown(
                &format!("the bucket from {} ns of `{}`", bucket.low_ns, now.name),
                bucket.count,
                now_there,
            )?;
        }
        histogram = histogram.since(&before);
    }
    Ok(WaitDelta {
        name: now.name.clone(),
        class: now.class,
        background: now.background,
        help: now.help.clone(),
        count,
        total_ns,
        bytes,
        histogram,
    })
}

fn counters(begin: &Snapshot, end: &Snapshot) -> Result<Vec<CounterDelta>> {
    if let Some(lost) = begin.counters.iter().find(|a| !end.counters.iter().any(|b| a.name == b.name)) {
        return Err(gone("counter", &lost.name));
    }
    let delta = |now: &crate::CounterStat| {
        let before = begin.counters.iter().find(|a| a.name == now.name).map_or(0, |a| a.value);
        Ok(CounterDelta {
            name: now.name.clone(),
            unit: now.unit.clone(),
            help: now.help.clone(),
            value: grown(&format!("the counter `{}`", now.name), before, now.value)?,
        })
    };
    end.counters.iter().map(delta).collect()
}

fn io(begin: &Snapshot, end: &Snapshot) -> Result<Vec<IoStat>> {
    let same = |a: &IoStat, b: &IoStat| a.file_class == b.file_class && a.tier == b.tier;
    if let Some(lost) = begin.io.iter().find(|a| !end.io.iter().any(|b| same(a, b))) {
        return Err(gone("row of reads and writes", &format!("{} on {}", lost.file_class, lost.tier)));
    }
    let delta = |now: &IoStat| {
        let mut row = now.clone();
        if let Some(before) = begin.io.iter().find(|a| same(a, now)) {
            let what = format!("a number of the reads and writes of {} on {}", now.file_class, now.tier);
            for (value, before) in row.numbers_mut().into_iter().zip(before.numbers()) {
                *value = grown(&what, before, *value)?;
            }
        }
        Ok(row)
    };
    end.io.iter().map(delta).collect()
}

/// Idle times of the kernel may go backwards a little; the others must not.
fn host_cpu(begin: &HostStat, end: &HostStat, warnings: &mut Vec<String>) -> Option<CpuTimes> {
    let (Some(a), Some(b)) = (begin.cpu, end.cpu) else {
        warnings.push("The host's processor time is not known at both ends of the interval.".to_owned());
        return None;
    };
    let busy = |before: u64, now: u64| now.checked_sub(before);
    let times = (|| {
        Some(CpuTimes {
            user_ns: busy(a.user_ns, b.user_ns)?,
            system_ns: busy(a.system_ns, b.system_ns)?,
            idle_ns: b.idle_ns.saturating_sub(a.idle_ns),
            iowait_ns: b.iowait_ns.saturating_sub(a.iowait_ns),
            steal_ns: busy(a.steal_ns, b.steal_ns)?,
        })
    })();
    if times.is_none() {
        warnings.push("The host's processor time went backwards: its figures are left out.".to_owned());
    }
    times
}

fn disks(begin: &HostStat, end: &HostStat, warnings: &mut Vec<String>) -> Vec<DiskStat> {
    let (Some(before), Some(now)) = (&begin.disks, &end.disks) else {
        warnings.push("The host's disks are not known at both ends of the interval.".to_owned());
        return Vec::new();
    };
    let mut busy = Vec::new();
    for disk in now {
        let zero = DiskStat { name: disk.name.clone(), ..DiskStat::default() };
        let before = before.iter().find(|before| before.name == disk.name).unwrap_or(&zero);
        match disk_since(before, disk) {
            Some(delta) if delta.reads > 0 || delta.writes > 0 => busy.push(delta),
            Some(_) => {}
            None => {
                warnings.push(format!("The counters of disk {} went backwards: it is left out.", disk.name))
            }
        }
    }
    busy
}

fn disk_since(before: &DiskStat, now: &DiskStat) -> Option<DiskStat> {
    Some(DiskStat {
        name: now.name.clone(),
        reads: now.reads.checked_sub(before.reads)?,
        read_bytes: now.read_bytes.checked_sub(before.read_bytes)?,
        read_ms: now.read_ms.checked_sub(before.read_ms)?,
        writes: now.writes.checked_sub(before.writes)?,
        write_bytes: now.write_bytes.checked_sub(before.write_bytes)?,
        write_ms: now.write_ms.checked_sub(before.write_ms)?,
        busy_ms: now.busy_ms.checked_sub(before.busy_ms)?,
    })
}

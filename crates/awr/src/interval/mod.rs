//! An interval: what happened between two snapshots of one source.
//!
//! Differences are made here once, and with suspicion: a counter that is smaller than before means
//! that the source was restarted, and a difference across a restart would be a wrong number that
//! looks right. The host is treated with more patience, as `snapshot/host.rs` explains: what went
//! backwards there is left out and said.
//!
//! A row that only one snapshot has is a zero in the other only where the source lists everything
//! it counts; of a list that is partial it was not told, and is left out and said.
//!
//! Invariants: the elapsed time is above zero; every row here is in the later snapshot, and its
//! difference is from what the earlier one counted. Read next: `report/mod.rs`.

mod derived;
mod host;
pub(crate) mod left_out;
mod series;
pub(crate) mod sum;
pub(crate) mod timeline;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use derived::{page_bytes, page_cache_hit};
pub(crate) use host::disk_backwards;
pub use left_out::LeftOut;
pub use series::{Break, Gap, Series, Step};
use tiersmith_events::{Histogram, WaitClass};
pub(crate) use timeline::FlashPoint;
pub use timeline::Timeline;

use self::host::{disks, host_cpu, pressure};
use self::left_out::Inside;

use crate::snapshot::file::{self, FileStat};
use crate::snapshot::host::{CpuTimes, DiskStat, Pressure};
use crate::snapshot::known;
use crate::snapshot::object::{self, ObjectStat};
use crate::snapshot::plan::{self, PlanStat};
use crate::snapshot::printed::Printed;
use crate::snapshot::sampling::Sampling;
use crate::snapshot::statement::{self, StatementDeltas};
use crate::snapshot::tables::{self, TableStat};
use crate::snapshot::{CounterStat, IoStat, Snapshot, WaitStat};
use crate::{Error, Result, SnapshotId};

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
    /// Statements.
    pub statements: StatementDeltas,
    /// Files and tables that were read in it, most bytes first, as far as the source tells.
    pub files: Vec<FileStat>,
    /// Tables: what happened to them in it, most rows scanned first, as far as the source tells.
    pub tables: Vec<TableStat>,
    /// Databases, users, indexes, standbys and the like: what happened to them in it.
    pub objects: Vec<ObjectStat>,
    /// Plans that ran in it, longest time first, as far as the source keeps them.
    pub plans: Vec<PlanStat>,
    /// Samples of active sessions: an estimate, apart from everything that was measured.
    pub sampling: Option<Sampling>,
    /// Pressure on the host.
    pub pressure: Option<Pressure>,
    /// What is doubtful or missing, in sentences.
    pub warnings: Vec<String>,
    /// What happened in between, step by step, if somebody has it: reports draw it.
    pub timeline: Option<Timeline>,
    /// Times between its ends of which nothing is in it, for the source was restarted or counters
    /// were reset; empty if it is of the two snapshots alone. The elapsed time is without them.
    pub left_out: Vec<LeftOut>,
    pub(crate) inside: Inside,
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
    pub(crate) inside_another: bool,
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
    /// If a snapshot is damaged, they are of different databases, the source was restarted between
    /// them, or `end` was not taken after `begin`.
    pub fn between(begin: &Snapshot, end: &Snapshot) -> Result<Interval> {
        for (snapshot, place) in [(begin, "the first snapshot"), (end, "the second snapshot")] {
            snapshot
                .check()
                .map_err(|reason| Error::Damaged { place: place.to_owned(), reason })?;
        }
        same_source(begin, end)?;
        let mut warnings = Vec::new();
        let elapsed_ns = elapsed(begin, end, &mut warnings)?;
        no_reset(begin, end)?;
        no_start(begin, end, elapsed_ns)?;
        let host_cpu = host_cpu(&begin.host, &end.host, &mut warnings);
        let disks = disks(&begin.host, &end.host, &mut warnings);
        warnings.extend(caveats(begin, end));
        let statements = statement::between(
            &begin.statements,
            begin.partial.contains("statements"),
            &end.statements,
        );
        if statements.lost > 0 {
            warnings.push(statements_lost(statements.lost));
        }
        let sampling = sampling(begin, end, &mut warnings);
        let mut inside = Inside::default();
        let db_time_ns = db_time(begin, end, &mut warnings)?;
        Ok(Interval {
            label: String::new(),
            begin: begin.clone(),
            end: end.clone(),
            ids: None,
            elapsed_ns,
            db_time_ns,
            db_cpu_ns: grown_if_known("DB CPU", begin.db_cpu_ns, end.db_cpu_ns)?,
            process_cpu_ns: grown_if_known(
                "processor time",
                begin.process_cpu_ns,
                end.process_cpu_ns,
            )?,
            waits: waits(begin, end, &mut inside, &mut warnings)?,
            counters: counters(begin, end, &mut warnings)?,
            io: io(begin, end, &mut warnings)?,
            host_cpu,
            disks,
            statements,
            files: file::between(&begin.files, begin.partial.contains("files"), &end.files),
            tables: tables::between(&begin.tables, begin.partial.contains("tables"), &end.tables),
            objects: object::between(
                &begin.objects,
                begin.partial.contains("objects"),
                &end.objects,
            ),
            plans: plan::between(&begin.plans, begin.partial.contains("plans"), &end.plans),
            sampling,
            pressure: pressure(&begin.host, &end.host),
            warnings,
            timeline: None,
            left_out: Vec::new(),
            inside,
        })
    }

    /// The same interval with what happened in it step by step.
    #[must_use]
    pub fn with_timeline(mut self, timeline: Timeline) -> Interval {
        self.timeline = Some(timeline);
        self
    }

    /// The same interval with the snapshots between its ends: reports draw what changed. Of less
    /// than two steps there is nothing to draw.
    #[must_use]
    pub fn over(self, series: &Series) -> Interval {
        if series.snapshots.len() > 2 { self.with_timeline(Timeline::of(series)) } else { self }
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

    /// The numbers that Oracle had given the snapshots of an imported report.
    pub fn printed_numbers(&self) -> Option<(u64, u64)> {
        self.begin.printed_number.zip(self.end.printed_number)
    }

    /// Whether it is of an imported report of which no wait event could be read.
    pub fn lacks_wait_events(&self) -> bool {
        self.end.source.is_oracle() && self.waits.is_empty()
    }

    /// Whether the database is on another machine than the recorder: the host of its snapshots is
    /// not the database's then.
    pub fn is_remote(&self) -> bool {
        [&self.begin, &self.end].into_iter().any(is_remote)
    }

    /// Average active sessions as measured, where the sampled average is more than three standard
    /// errors below it: samples miss something then. On a busy machine the sampler gets a processor
    /// when others have stopped, and sees less.
    pub fn samples_miss(&self) -> Option<f64> {
        let (measured, more, far) = self.sampled_beside_measured()?;
        (more < -far).then_some(measured)
    }

    /// Average active sessions as measured, where the sampled average is more than three standard
    /// errors above it: then it is the measured one that misses something, for a server counts the
    /// time of a statement at its end.
    pub fn samples_exceed(&self) -> Option<f64> {
        let (measured, more, far) = self.sampled_beside_measured()?;
        (more > far).then_some(measured)
    }

    /// Average active sessions as measured, how many more were sampled, and three standard errors
    /// of that.
    fn sampled_beside_measured(&self) -> Option<(f64, f64, f64)> {
        let (measured, sampling) = (self.active_sessions()?, self.sampling.as_ref()?);
        let sampled = sampling.active_sessions()?;
        let error = (sampling.seen().max(1) as f64).sqrt() / sampling.looks.max(1) as f64;
        Some((measured, sampled - measured, 3.0 * error))
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
            (commits, rollbacks) => {
                Some(commits.unwrap_or(0).saturating_add(rollbacks.unwrap_or(0)))
            }
        }
    }

    /// Average active sessions: DB time by elapsed time.
    pub fn active_sessions(&self) -> Option<f64> {
        self.db_time_ns.map(|ns| ns as f64 / self.elapsed_ns as f64)
    }

    /// Waits of requests that belong into DB time: not background, not idle; longest time first.
    pub fn foreground(&self) -> Vec<&WaitDelta> {
        let mut waits: Vec<_> = self
            .waits
            .iter()
            .filter(|wait| !wait.background && wait.class != WaitClass::Idle)
            .collect();
        longest_first(&mut waits);
        waits
    }

    /// Waits of background work, idle ones left out; longest time first.
    pub fn background(&self) -> Vec<&WaitDelta> {
        let mut waits: Vec<_> = self
            .waits
            .iter()
            .filter(|wait| wait.background && wait.class != WaitClass::Idle)
            .collect();
        longest_first(&mut waits);
        waits
    }

    /// The time of foreground waits without those that lie inside another one, so that nothing is
    /// counted twice.
    pub fn waited_ns(&self) -> u64 {
        let outer = self.foreground().into_iter().filter(|wait| !wait.is_inside_another());
        outer.fold(0, |sum: u64, wait| sum.saturating_add(wait.total_ns))
    }

    /// The tables of an imported report as they are printed, if the interval is that of one report:
    /// nothing that is printed can be added up.
    pub(crate) fn printed(&self) -> &[Printed] {
        let of_one_report = self.begin.source == self.end.source
            && self.left_out.is_empty()
            && self.end.monotonic_ns.checked_sub(self.begin.monotonic_ns) == Some(self.elapsed_ns)
            && self.begin.printed.is_empty();
        if of_one_report { &self.end.printed } else { &[] }
    }

    /// Whether a medium of the source only stood for another, at its beginning or its end.
    pub fn is_emulated(&self) -> bool {
        self.begin.is_emulated() || self.end.is_emulated() || !self.inside.emulated.is_empty()
    }

    /// Whether rows may be missing in this list of one of its snapshots.
    pub(crate) fn is_partial(&self, list: &str) -> bool {
        is_partial(&self.begin, &self.end, list) || self.inside.partial.contains(list)
    }
}

impl WaitDelta {
    /// The mean wait, or nothing if there was none.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.total_ns as f64 / self.count as f64)
    }

    /// Whether its time is also the time of another wait.
    pub fn is_inside_another(&self) -> bool {
        self.inside_another
    }
}

/// What the source and its host do not tell, and which host it is.
fn caveats(begin: &Snapshot, end: &Snapshot) -> Vec<String> {
    let remote = "The database is on another machine: the host in this report is the recorder's, \
                  not the database's.";
    let is_elsewhere = [begin, end].into_iter().any(is_remote);
    let host = end.host.missing.iter();
    let host = host.map(|line| format!("Part of the host is not in this report: {line}."));
    let source = end.missing.iter().map(|line| format!("Not told by the source: {line}."));
    is_elsewhere.then(|| remote.to_owned()).into_iter().chain(host).chain(source).collect()
}

/// Samples of active sessions between two snapshots of one recording.
fn sampling(begin: &Snapshot, end: &Snapshot, warnings: &mut Vec<String>) -> Option<Sampling> {
    let (before, now) = begin.sampling.as_ref().zip(end.sampling.as_ref())?;
    let delta = now.since(before);
    if delta.is_none() {
        let why = "The snapshots are of two recordings: samples of active sessions are left out.";
        warnings.push(why.to_owned());
    }
    delta.filter(|delta| delta.looks > 0)
}

fn db_time(begin: &Snapshot, end: &Snapshot, warnings: &mut Vec<String>) -> Result<Option<u64>> {
    let Some((before, now)) = begin.db_time_ns.zip(end.db_time_ns) else {
        let why = "The source does not tell DB time: shares of DB time are left out.";
        warnings.push(why.to_owned());
        return Ok(None);
    };
    if has_wrapped(end, before, now) {
        all_wrapped(vec!["all statements, which is DB time".to_owned()], warnings);
        return Ok(None);
    }
    grown("DB time", before, now).map(Some)
}

/// How much time passed: by the clock that is never set, unless the system was started anew in
/// between.
fn elapsed(begin: &Snapshot, end: &Snapshot, warnings: &mut Vec<String>) -> Result<u64> {
    let wall = end.taken_unix_ns.checked_sub(begin.taken_unix_ns).filter(|ns| *ns > 0);
    let rebooted = match (&begin.host.boot, &end.host.boot) {
        (Some(before), Some(now)) => before != now,
        _ => false,
    };
    if rebooted {
        let reason = "the recording machine was started anew between them or is another one, and \
                      the second carries no later time of day";
        let ns = wall.ok_or_else(|| Error::NoTime { reason: reason.to_owned() })?;
        warnings.push(
            "The recording machine was started anew in the interval, or is another one: its length \
             is by the time of day."
                .to_owned(),
        );
        return Ok(ns);
    }
    let Some(ns) = end.monotonic_ns.checked_sub(begin.monotonic_ns).filter(|ns| *ns > 0) else {
        let reason = if begin.monotonic_ns == end.monotonic_ns {
            "no time passed between them"
        } else {
            "the second was taken before the first"
        };
        return Err(Error::NoTime { reason: reason.to_owned() });
    };
    // Adjusting a clock gently moves it by half a per mille; more than that and a second besides
    // was a jump.
    let jumped = i128::from(end.taken_unix_ns) - i128::from(begin.taken_unix_ns) - i128::from(ns);
    if jumped.unsigned_abs() > u128::from(ns / 1000) + 1_000_000_000 {
        warnings.push(format!(
            "The time of day was set {} by {:.1} s in the interval: its length is by the clock \
             that is never set.",
            if jumped > 0 { "forward" } else { "back" },
            jumped.unsigned_abs() as f64 / 1e9
        ));
    }
    Ok(ns)
}

/// A server that says how long it has been up, and was started in the interval, without a time of
/// start in its instance.
fn no_start(begin: &Snapshot, end: &Snapshot, elapsed_ns: u64) -> Result<()> {
    let up = |snapshot: &Snapshot| {
        let counter =
            snapshot.counters.iter().find(|counter| counter.name == known::statistic::UPTIME)?;
        (counter.unit == "s").then_some(counter.value)
    };
    let (Some(before), Some(now)) = (up(begin), up(end)) else { return Ok(()) };
    let elapsed_s = elapsed_ns / 1_000_000_000;
    // Whole seconds of two clocks: a second at either end says nothing.
    if now.saturating_add(1) < elapsed_s && now.saturating_add(2) < before.saturating_add(elapsed_s)
    {
        let reason = format!(
            "the source was started between them: it had been up for {now} s at the second, and \
             {elapsed_s} s passed"
        );
        return Err(Error::Reset { reason });
    }
    Ok(())
}

/// A group of counters that was set to zero in between makes every difference of it a lie, also one
/// that is not negative.
fn no_reset(begin: &Snapshot, end: &Snapshot) -> Result<()> {
    for (group, before) in &begin.resets {
        let now = end.resets.get(group);
        if now != Some(before) {
            let never = |at: &str| if at.is_empty() { "never".to_owned() } else { at.to_owned() };
            let reason = match now {
                Some(now) => format!(
                    "the counters of {group} were last set to zero {} by the first, {} by the \
                     second",
                    never(before),
                    never(now)
                ),
                None => format!("{group} is in the first and not in the second"),
            };
            return Err(Error::Reset { reason });
        }
    }
    Ok(())
}

fn is_remote(snapshot: &Snapshot) -> bool {
    snapshot.source.remote == Some(true)
}

fn longest_first(waits: &mut [&WaitDelta]) {
    waits.sort_by(|a, b| {
        (b.total_ns, b.count).cmp(&(a.total_ns, a.count)).then_with(|| a.name.cmp(&b.name))
    });
}

fn same_source(begin: &Snapshot, end: &Snapshot) -> Result<()> {
    let (a, b) = (&begin.source, &end.source);
    for (what, a, b) in [("database", &a.database, &b.database), ("path", &a.path, &b.path)] {
        if a != b {
            return Err(Error::OtherSource {
                reason: format!("the {what} is \"{a}\" in the first and \"{b}\" in the second"),
            });
        }
    }
    if a.instance != b.instance {
        let reason = format!(
            "its instance was \"{}\" in the first and is \"{}\" in the second",
            a.instance, b.instance
        );
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
    Error::Restarted {
        reason: format!("the {what} \"{name}\" is in the first and not in the second"),
    }
}

/// MariaDB and MySQL add up waits in 64 bits of picoseconds: after 213 days of them, which many
/// sessions have in one, a sum begins at zero.
const PICOSECONDS_WRAP_AFTER_NS: u64 = u64::MAX / 1000;

/// Whether a time is smaller than before because it became too large for the source's counter. It
/// falls by about as much as the counter holds then; by how much exactly is not known where the
/// time is a sum of several counters.
fn has_wrapped(end: &Snapshot, before_ns: u64, now_ns: u64) -> bool {
    let by = before_ns.saturating_sub(now_ns);
    let nearly = PICOSECONDS_WRAP_AFTER_NS / 10 * 9;
    ["MariaDB", "MySQL"].contains(&end.source.product.as_str())
        && (nearly..=PICOSECONDS_WRAP_AFTER_NS).contains(&by)
}

/// Says which times are left out because the source's counters wrapped around.
fn all_wrapped(names: Vec<String>, warnings: &mut Vec<String>) {
    if !names.is_empty() {
        let names: Vec<String> = names.iter().map(|name| crate::figure::visible(name)).collect();
        warnings.push(format!(
            "Too large for the source's counters, which began again at zero, so left out: the time \
             of {}.",
            names.join("; ")
        ));
    }
}

/// Whether what is absent from this list of one of them was not told by the source.
fn is_partial(begin: &Snapshot, end: &Snapshot, list: &str) -> bool {
    begin.partial.contains(list) || end.partial.contains(list)
}

/// Says what was left out because only one of the snapshots has it, or it was counted in another
/// way.
pub(crate) fn left_out(what: &str, mut names: Vec<String>, warnings: &mut Vec<String>) {
    // One name may be that of a request's wait and of one in the background.
    let mut said = BTreeSet::new();
    names.retain(|name| said.insert(name.clone()));
    let more = names.len().saturating_sub(NAMED);
    let and = if more > 0 { format!(" and {more} more") } else { String::new() };
    let shown: Vec<_> =
        names.into_iter().take(NAMED).map(|name| crate::figure::visible(&name)).collect();
    if !shown.is_empty() {
        let shown = shown.join("; ");
        warnings.push(format!(
            "Not told, or not told alike, at both ends of the interval, so left out: \
             {what}{shown}{and}."
        ));
    }
}

/// So many names stand in a warning.
pub(crate) const NAMED: usize = 10;

fn waits(
    begin: &Snapshot,
    end: &Snapshot,
    inside: &mut Inside,
    warnings: &mut Vec<String>,
) -> Result<Vec<WaitDelta>> {
    let partial = is_partial(begin, end, "waits");
    let mut out = Vec::new();
    let there: BTreeSet<_> = end.waits.iter().map(WaitStat::key).collect();
    for lost in begin.waits.iter().filter(|wait| !there.contains(&wait.key())) {
        if !partial {
            return Err(gone("wait event", &lost.name));
        }
        out.push(lost.name.clone());
    }
    let mut rows = Vec::new();
    let before: BTreeMap<_, &WaitStat> =
        begin.waits.iter().map(|wait| (wait.key(), wait)).collect();
    let mut wrapped = Vec::new();
    for now in &end.waits {
        match before.get(&now.key()) {
            None if partial => out.push(now.name.clone()),
            // A source may come to count one thing in another way: the help says how.
            Some(before) if partial && before.help != now.help => out.push(now.name.clone()),
            Some(before)
                if before.count <= now.count && has_wrapped(end, before.total_ns, now.total_ns) =>
            {
                wrapped.push(now.name.clone());
            }
            before => rows.push(wait(before.copied(), now, end.source.is_oracle())?),
        }
    }
    left_out("the waits ", out, warnings);
    if !wrapped.is_empty() {
        // What is left out here is no zero where intervals are added up.
        inside.partial.insert("waits".to_owned());
    }
    all_wrapped(wrapped, warnings);
    Ok(rows)
}

fn wait(before: Option<&WaitStat>, now: &WaitStat, of_oracle: bool) -> Result<WaitDelta> {
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
        // In Oracle such a wait stands for itself.
        inside_another: !of_oracle && !now.background && known::inside(&now.name).is_some(),
    })
}

fn counters(
    begin: &Snapshot,
    end: &Snapshot,
    warnings: &mut Vec<String>,
) -> Result<Vec<CounterDelta>> {
    let partial = is_partial(begin, end, "counters");
    let mut out = Vec::new();
    let there: BTreeSet<&str> = end.counters.iter().map(|counter| counter.name.as_str()).collect();
    for lost in begin.counters.iter().filter(|counter| !there.contains(counter.name.as_str())) {
        if !partial {
            return Err(gone("counter", &lost.name));
        }
        out.push(lost.name.clone());
    }
    let mut rows = Vec::new();
    let all_before: BTreeMap<&str, &CounterStat> =
        begin.counters.iter().map(|counter| (counter.name.as_str(), counter)).collect();
    for now in &end.counters {
        let before = all_before.get(now.name.as_str());
        // A source may count one thing in several ways, and takes the best it is allowed: the help
        // says which.
        if partial && before.is_none_or(|before| before.help != now.help) {
            out.push(now.name.clone());
            continue;
        }
        rows.push(CounterDelta {
            name: now.name.clone(),
            unit: now.unit.clone(),
            help: now.help.clone(),
            value: grown(
                &format!("the counter `{}`", now.name),
                before.map_or(0, |before| before.value),
                now.value,
            )?,
        });
    }
    left_out("the counters ", out, warnings);
    Ok(rows)
}

fn io(begin: &Snapshot, end: &Snapshot, warnings: &mut Vec<String>) -> Result<Vec<IoStat>> {
    let partial = is_partial(begin, end, "io");
    let same = |a: &IoStat, b: &IoStat| a.file_class == b.file_class && a.tier == b.tier;
    let name = |row: &IoStat| format!("{} on {}", row.file_class, row.tier);
    let mut out = Vec::new();
    for lost in begin.io.iter().filter(|a| !end.io.iter().any(|b| same(a, b))) {
        if !partial {
            return Err(gone("row of reads and writes", &name(lost)));
        }
        out.push(name(lost));
    }
    let (mut rows, mut untimed, mut wrapped) = (Vec::new(), Vec::new(), Vec::new());
    for now in &end.io {
        let Some(before) = begin.io.iter().find(|a| same(a, now)) else {
            if partial {
                out.push(name(now));
            } else {
                rows.push(now.clone());
            }
            continue;
        };
        let (mut before, mut row) = (before.clone(), now.clone());
        if before.untimed != row.untimed {
            untimed.push(name(now));
        }
        let falls = [(before.read_ns, row.read_ns), (before.write_ns, row.write_ns)];
        if falls.into_iter().any(|(before, now)| has_wrapped(end, before, now)) {
            wrapped.push(format!("reads and writes of {}", name(now)));
            row.forget_times();
        }
        if before.untimed || row.untimed {
            before.forget_times();
            row.forget_times();
        }
        let what = format!("a number of the reads and writes of {}", name(now));
        for (value, before) in row.numbers_mut().into_iter().zip(before.numbers()) {
            *value = grown(&what, before, *value)?;
        }
        rows.push(row);
    }
    left_out("the reads and writes of ", out, warnings);
    left_out("the times of the reads and writes of ", untimed, warnings);
    all_wrapped(wrapped, warnings);
    Ok(rows)
}

/// The warning of statements that could not be followed.
pub(crate) fn statements_lost(lost: usize) -> String {
    format!(
        "{lost} statements are left out: they were not in the lists of both snapshots, or were \
         counted anew."
    )
}

//! A snapshot: every counter of a source at one instant, and what was known of source, media and
//! host then.
//!
//! The fields are open: whoever takes a snapshot fills in what the source can tell and leaves the
//! rest out. What is left out is left out of the reports; it is never taken for zero. What a source
//! could get wrong (two rows of one name, a histogram that disagrees with its count) is found by
//! [`Snapshot::check`], which every reader calls.
//!
//! Deliberately absent: differences ([`Interval`](crate::Interval)), files
//! (`repository/directory.rs`), names of statements.
//!
//! Invariants: rows of one list have distinct names; values grow as long as the source lives. Read
//! next: `encoding.rs` for the text form, `interval/mod.rs` for what two snapshots make.

mod encoding;
pub(crate) mod file;
pub mod host;
pub(crate) mod known;
pub(crate) mod object;
pub(crate) mod plan;
pub(crate) mod printed;
pub(crate) mod sampling;
pub(crate) mod statement;
pub(crate) mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tiersmith_events::{Histogram, HistogramError, Totals, WaitClass};

pub use encoding::FORMAT;

use self::file::FileStat;
use self::host::HostStat;
use self::object::ObjectStat;
use self::plan::PlanStat;
use self::printed::Printed;
use self::sampling::Sampling;
use self::statement::StatementStat;
use self::tables::TableStat;

/// Counters at one instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// When it was taken: nanoseconds since 1970 in UTC, for people.
    pub taken_unix_ns: u64,
    /// When it was taken: nanoseconds of a clock that is never set and goes on while the machine is
    /// suspended, for differences.
    pub monotonic_ns: u64,
    /// What was looked at.
    pub source: Source,
    /// Time requests spent in the database, working or waiting, since it started; absent if the
    /// source cannot tell.
    pub db_time_ns: Option<u64>,
    /// The part of DB time in which a processor worked for the request; absent if the source cannot
    /// tell.
    pub db_cpu_ns: Option<u64>,
    /// Sessions connected at this instant; absent if the source cannot tell.
    pub sessions: Option<u64>,
    /// Processor time of the whole process, background threads and load generator included.
    pub process_cpu_ns: Option<u64>,
    /// Wait events.
    pub waits: Vec<WaitStat>,
    /// Counters, which only grow.
    pub counters: Vec<CounterStat>,
    /// Values that go up and down, as they were at this instant.
    pub levels: Vec<LevelStat>,
    /// Reads and writes by file class and tier.
    pub io: Vec<IoStat>,
    /// What the bytes lie on.
    pub media: Vec<MediumStat>,
    /// The machine.
    pub host: HostStat,
    /// What the source could not tell, each with what would let it: a setting, a grant, a version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// When groups of counters were last set to zero, as the source says it. A difference across a
    /// reset would be invented.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resets: BTreeMap<String, String>,
    /// Statements, as far as the source tells them apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statements: Vec<StatementStat>,
    /// Files and tables that were read most, if the source tells them apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileStat>,
    /// Tables that were scanned most or hold most dead rows, if the source tells them apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tables: Vec<TableStat>,
    /// Databases, users, indexes, standbys and the like, as far as the source tells them apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<ObjectStat>,
    /// Plans of statements, if the source keeps them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<PlanStat>,
    /// Tables of an imported report that are no counters, as they stand in it; of the interval that
    /// this snapshot ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub printed: Vec<Printed>,
    /// The number that the program which printed an imported report had given this snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed_number: Option<u64>,
    /// Samples of active sessions: estimates, never added to what was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Sampling>,
    /// Lists that may lack rows which the source counts, by the names of these fields: `waits`,
    /// `counters`, `io`, `statements`, `files`, `tables`, `objects`, `plans`. What is absent from
    /// such a list was not told; from any other list it is zero.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub partial: BTreeSet<String>,
}

/// What a snapshot was taken of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Another one whenever counters begin at zero: two snapshots belong together only if theirs
    /// are equal.
    pub instance: String,
    /// The name of the database in reports.
    pub database: String,
    /// What kind of database, for instance `SQLite`.
    pub product: String,
    /// Its version.
    pub version: String,
    /// Where it lies.
    pub path: String,
    /// Settings worth comparing, by name.
    pub settings: BTreeMap<String, String>,
    /// Whether its address is that of another machine, so that the host of a snapshot is the
    /// recorder's and not the database's; absent if nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<bool>,
}

/// A wait event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitStat {
    /// Its name in reports.
    pub name: String,
    /// The class it is added up in.
    #[serde(with = "class_name")]
    pub class: WaitClass,
    /// Whether background work waits, not a request; not in DB time then.
    pub background: bool,
    /// What is waited for, in a sentence; may be empty.
    pub help: String,
    /// Waits.
    pub count: u64,
    /// Time waited.
    pub total_ns: u64,
    /// The longest wait since the source started.
    pub max_ns: u64,
    /// Bytes moved in these waits.
    pub bytes: u64,
    /// Waits by duration: lower border in nanoseconds and count, as [`Histogram::buckets`] gives
    /// them. Empty if the source keeps no histogram.
    pub buckets: Vec<(u64, u64)>,
}

/// A counter: it only grows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CounterStat {
    /// Its name in reports; [`statistic`](crate::statistic) has those that reports calculate with.
    pub name: String,
    /// What one count is: `blocks`, `bytes`, `requests`.
    pub unit: String,
    /// What is counted, in a sentence; may be empty.
    pub help: String,
    /// The count.
    pub value: u64,
}

/// A value that goes up and down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelStat {
    /// Its name in reports.
    pub name: String,
    /// Its unit: `bytes`, `blocks`.
    pub unit: String,
    /// The value at this instant.
    pub value: u64,
}

/// Reads and writes of the files of one class in one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IoStat {
    /// `data`, `redo`, `pass`, or what else the source tells apart.
    pub file_class: String,
    /// The tier's name, or `home`.
    pub tier: String,
    /// Requests that read.
    pub reads: u64,
    /// Bytes they read.
    pub read_bytes: u64,
    /// Time they took.
    pub read_ns: u64,
    /// Requests that wrote.
    pub writes: u64,
    /// Bytes they wrote.
    pub write_bytes: u64,
    /// Time they took.
    pub write_ns: u64,
    /// Whether their times were not measured: they are zero then and mean nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untimed: bool,
}

/// What some of the bytes lie on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MediumStat {
    /// The tier's name, or `home`.
    pub name: String,
    /// What it is, in words.
    pub kind: String,
    /// Whether it only stands for another medium: reports say so wherever a figure from it appears.
    pub emulated: bool,
    /// Its size; zero if unknown.
    pub bytes: u64,
    /// How much of it is used; zero if unknown.
    pub used_bytes: u64,
}

impl Source {
    /// Whether it is one of Oracle's reports.
    pub(crate) fn is_oracle(&self) -> bool {
        self.product.starts_with("Oracle")
    }
}

impl Snapshot {
    /// A snapshot of now: clocks, host and this process's processor time. The rest is for the
    /// caller to add.
    pub fn now(source: Source) -> Snapshot {
        let taken_unix_ns = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
        let mut snapshot = Snapshot::at(source, taken_unix_ns, clock_ns(ClockId::Boottime));
        snapshot.process_cpu_ns = Some(clock_ns(ClockId::ProcessCPUTime));
        snapshot.host = host::read();
        snapshot
    }

    /// A snapshot that holds nothing yet, of a given instant: for importing what was recorded
    /// elsewhere.
    pub fn at(source: Source, taken_unix_ns: u64, monotonic_ns: u64) -> Snapshot {
        Snapshot {
            taken_unix_ns,
            monotonic_ns,
            source,
            db_time_ns: None,
            db_cpu_ns: None,
            sessions: None,
            process_cpu_ns: None,
            waits: Vec::new(),
            counters: Vec::new(),
            levels: Vec::new(),
            io: Vec::new(),
            media: Vec::new(),
            host: HostStat::default(),
            missing: Vec::new(),
            resets: BTreeMap::new(),
            statements: Vec::new(),
            files: Vec::new(),
            tables: Vec::new(),
            objects: Vec::new(),
            plans: Vec::new(),
            printed: Vec::new(),
            printed_number: None,
            sampling: None,
            partial: BTreeSet::new(),
        }
    }

    /// Says of lists that what is absent from them was not told.
    pub(crate) fn is_partial_in(&mut self, lists: &[&str]) {
        self.partial.extend(lists.iter().map(|list| (*list).to_owned()));
    }

    /// Adds the wait events of a registry. Events that are there already are added up: a source may
    /// have several registries, one per database file for instance.
    pub fn add_waits(&mut self, totals: &Totals) {
        for (def, of) in totals.events() {
            let histogram = of.histogram();
            let new = WaitStat {
                name: def.name.to_owned(),
                class: def.class,
                background: def.background,
                help: def.help.to_owned(),
                count: histogram.count(),
                total_ns: histogram.total_ns(),
                max_ns: of.max_ns(),
                bytes: of.bytes(),
                buckets: histogram.buckets().map(|bucket| (bucket.low_ns, bucket.count)).collect(),
            };
            match self.waits.iter_mut().find(|wait| wait.key() == new.key()) {
                Some(wait) => wait.add(&new),
                None => self.waits.push(new),
            }
        }
    }

    /// Adds the counters of a registry, as [`Snapshot::add_waits`] adds its events.
    pub fn add_counters(&mut self, totals: &Totals) {
        for (def, value) in totals.counters() {
            self.add_counter_explained(def.name, def.unit, value, def.help);
        }
    }

    /// Adds a counter; to the value that is there if there is one of this name.
    pub fn add_counter(&mut self, name: &str, unit: &str, value: u64) {
        self.add_counter_explained(name, unit, value, known::help_of_statistic(name));
    }

    pub(crate) fn add_counter_explained(&mut self, name: &str, unit: &str, value: u64, help: &str) {
        match self.counters.iter_mut().find(|counter| counter.name == name) {
            Some(counter) => counter.value = counter.value.saturating_add(value),
            None => self.counters.push(CounterStat {
                name: name.to_owned(),
                unit: unit.to_owned(),
                help: help.to_owned(),
                value,
            }),
        }
    }

    /// Adds a value that goes up and down; to the value that is there if there is one of this name.
    pub fn add_level(&mut self, name: &str, unit: &str, value: u64) {
        match self.levels.iter_mut().find(|level| level.name == name) {
            Some(level) => level.value = level.value.saturating_add(value),
            None => {
                self.levels.push(LevelStat { name: name.to_owned(), unit: unit.to_owned(), value });
            }
        }
    }

    /// Adds reads and writes; to those that are there of the same file class and tier.
    pub fn add_io(&mut self, io: IoStat) {
        let same = |row: &&mut IoStat| row.file_class == io.file_class && row.tier == io.tier;
        match self.io.iter_mut().find(same) {
            Some(row) => row.add(&io),
            None => self.io.push(io),
        }
    }

    /// Adds reads and writes by file class and tier, as far as the wait events of the store tell
    /// them: their names say what moved, `tier` says what the tier they speak of is called (`home`
    /// for a database without one).
    pub fn add_io_of(&mut self, totals: &Totals, tier: &str) {
        for (def, of) in totals.events() {
            if let Some(mut io) =
                known::io_of(def.name, tier, of.count(), of.bytes(), of.total_ns())
            {
                if io.tier.is_empty() {
                    tier.clone_into(&mut io.tier);
                }
                if io.reads > 0 || io.writes > 0 {
                    self.add_io(io);
                }
            }
        }
    }

    /// Adds reads and writes as [`Snapshot::add_io_of`] does, of the wait events that are in the
    /// snapshot already.
    pub fn add_io_of_its_waits(&mut self, tier: &str) {
        let found: Vec<IoStat> = self
            .waits
            .iter()
            .filter_map(|wait| {
                known::io_of(&wait.name, tier, wait.count, wait.bytes, wait.total_ns)
            })
            .collect();
        for mut io in found {
            if io.tier.is_empty() {
                tier.clone_into(&mut io.tier);
            }
            if io.reads > 0 || io.writes > 0 {
                self.add_io(io);
            }
        }
    }

    /// The snapshot without what is only worth having at the ends of an interval: statements,
    /// settings, reads and writes by file, and what the source could not tell. What a series needs
    /// stays: waits, counters, levels, media, the host, samples, resets.
    #[must_use]
    pub fn brief(&self) -> Snapshot {
        let mut brief = Snapshot::at(self.source.clone(), self.taken_unix_ns, self.monotonic_ns);
        brief.source.settings.clear();
        (brief.db_time_ns, brief.db_cpu_ns) = (self.db_time_ns, self.db_cpu_ns);
        (brief.sessions, brief.process_cpu_ns) = (self.sessions, self.process_cpu_ns);
        brief.waits.clone_from(&self.waits);
        brief.counters.clone_from(&self.counters);
        brief.levels.clone_from(&self.levels);
        brief.media.clone_from(&self.media);
        brief.host.clone_from(&self.host);
        brief.resets.clone_from(&self.resets);
        brief.sampling = self.sampling.as_ref().map(Sampling::brief);
        brief.partial.clone_from(&self.partial);
        brief
    }

    /// Adds a medium.
    pub fn add_medium(&mut self, medium: MediumStat) {
        self.media.push(medium);
    }

    /// Whether one of the media only stands for another: figures of this snapshot carry the word
    /// then.
    pub fn is_emulated(&self) -> bool {
        self.media.iter().any(|medium| medium.emulated)
    }

    /// Whether the contents fit together; what does not, and where, if not.
    ///
    /// # Errors
    /// A sentence without the name of the file, which the caller knows.
    pub fn check(&self) -> std::result::Result<(), String> {
        distinct("wait event", self.waits.iter().map(WaitStat::key))?;
        distinct("counter", self.counters.iter().map(|counter| &counter.name))?;
        distinct("level", self.levels.iter().map(|level| &level.name))?;
        distinct("row of reads and writes", self.io.iter().map(|io| (&io.file_class, &io.tier)))?;
        for wait in &self.waits {
            wait.histogram().map_err(|error| format!("wait event `{}`: {error}", wait.name))?;
            let counted = wait.buckets.iter().map(|(_, count)| count).sum::<u64>();
            if !wait.buckets.is_empty() && counted != wait.count {
                return Err(format!(
                    "wait event `{}` has {} waits, its histogram {counted}",
                    wait.name, wait.count
                ));
            }
        }
        distinct("statement", self.statements.iter().map(|statement| &statement.id))?;
        distinct("table", self.tables.iter().map(|table| &table.id))?;
        distinct("object", self.objects.iter().map(ObjectStat::key))?;
        distinct("plan", self.plans.iter().map(|plan| &plan.id))?;
        distinct("file", self.files.iter().map(|file| &file.id))?;
        printed::check(&self.printed)?;
        if let Some(sampling) = &self.sampling {
            sampling.check()?;
        }
        self.host.check()
    }
}

/// Two rows of one name would make every difference ambiguous.
fn distinct<K: Ord + std::fmt::Debug>(
    what: &str,
    keys: impl Iterator<Item = K>,
) -> std::result::Result<(), String> {
    let mut seen = BTreeSet::new();
    for key in keys {
        if seen.contains(&key) {
            return Err(format!("the {what} {key:?} is there twice"));
        }
        seen.insert(key);
    }
    Ok(())
}

fn clock_ns(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

impl WaitStat {
    /// What tells one wait event from another.
    pub(crate) fn key(&self) -> (&str, WaitClass, bool) {
        (&self.name, self.class, self.background)
    }

    /// Waits by duration.
    ///
    /// # Errors
    /// If the buckets are not those of this program's histograms.
    pub fn histogram(&self) -> std::result::Result<Histogram, HistogramError> {
        Histogram::from_buckets(self.buckets.iter().copied(), self.total_ns, self.max_ns)
    }

    fn add(&mut self, other: &WaitStat) {
        let mut buckets: BTreeMap<u64, u64> = self.buckets.iter().copied().collect();
        for (low_ns, count) in &other.buckets {
            let sum = buckets.entry(*low_ns).or_default();
            *sum = sum.saturating_add(*count);
        }
        self.buckets = buckets.into_iter().collect();
        self.count = self.count.saturating_add(other.count);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl IoStat {
    fn add(&mut self, other: &IoStat) {
        for (sum, more) in self.numbers_mut().into_iter().zip(other.numbers()) {
            *sum = sum.saturating_add(more);
        }
        if self.untimed || other.untimed {
            self.forget_times();
        }
    }

    /// Its times are not known, or not all of them.
    pub(crate) fn forget_times(&mut self) {
        (self.read_ns, self.write_ns, self.untimed) = (0, 0, true);
    }

    pub(crate) fn numbers(&self) -> [u64; 6] {
        [self.reads, self.read_bytes, self.read_ns, self.writes, self.write_bytes, self.write_ns]
    }

    pub(crate) fn numbers_mut(&mut self) -> [&mut u64; 6] {
        let IoStat { reads, read_bytes, read_ns, writes, write_bytes, write_ns, .. } = self;
        [reads, read_bytes, read_ns, writes, write_bytes, write_ns]
    }
}

/// A wait class is written by its name in reports.
mod class_name {
    use serde::{Deserialize, Deserializer, Serializer};
    use tiersmith_events::WaitClass;

    pub(super) fn serialize<S: Serializer>(class: &WaitClass, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(class.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<WaitClass, D::Error> {
        let name = String::deserialize(from)?;
        WaitClass::from_name(&name)
            .ok_or_else(|| serde::de::Error::custom(format!("`{name}` is not a wait class")))
    }
}

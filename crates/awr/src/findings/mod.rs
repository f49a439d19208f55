//! Findings: rules that turn the figures of an interval into statements with evidence, impact and
//! advice, as Oracle's ADDM does.
//!
//! One rule a file: a function from an interval to a finding or nothing. A rule is silent when its
//! evidence is not measured or does not hold; it never guesses. Impact is a share of DB time where
//! that is known; where it comes from samples the finding says so.
//!
//! To add one: copy `free_buffers.rs`, the smallest; a line in `RULES`; a test of both sides in the
//! same file. What comes after all of them speaks of what they passed over: `dominant_event.rs`,
//! `classes.rs` and `addm.rs`.
//!
//! Deliberately absent: costs and devices to buy (the advisor's), changes made by the program.
//!
//! Invariant: a finding names at least one figure that is in the report.

mod addm;
mod cache_too_small;
mod checkpoints;
mod classes;
mod commit_waits;
mod connects;
mod contention;
mod cpu_bound;
mod db_cpu;
mod dead_rows;
mod dominant_event;
mod doublewrite;
mod flash_hit_ratio;
mod free_buffers;
mod full_pages;
mod hot_files;
mod hot_statement;
mod lock_waits;
mod parses;
mod redo_space;
mod repaired_blocks;
mod replication;
mod run_queue;
mod short_interval;
mod slow_redo;
mod spills;
mod table_scans;
mod unsafe_settings;

use serde::{Deserialize, Serialize};
use tiersmith_events::WaitClass;

pub(crate) use self::short_interval::SHORT_S;
pub(crate) use self::unsafe_settings::NAME as UNSAFE;
use crate::snapshot::known::TIME_MODEL;
use crate::{Interval, WaitDelta, figure};

/// A statement with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Its name, in a few words.
    pub name: String,
    /// How much of DB time it is about, in per cent; nothing if that is not known.
    pub impact_percent: Option<f64>,
    /// The figures it rests on, in sentences.
    pub evidence: Vec<String>,
    /// What to do.
    pub advice: String,
    /// What Tiersmith could do, with the command; nothing where faster storage is no answer, or the
    /// database cannot be attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiersmith: Option<String>,
}

/// A rule.
type Rule = fn(&Interval) -> Option<Finding>;

/// Every rule.
const RULES: [Rule; 25] = [
    commit_waits::find,
    slow_redo::find,
    checkpoints::find,
    cache_too_small::find,
    flash_hit_ratio::find,
    hot_files::find,
    hot_statement::find,
    full_pages::find,
    doublewrite::find,
    repaired_blocks::find,
    free_buffers::find,
    cpu_bound::find,
    run_queue::find,
    short_interval::find,
    lock_waits::find,
    redo_space::find,
    spills::find,
    table_scans::find,
    dead_rows::find,
    replication::find,
    unsafe_settings::find,
    parses::find,
    connects::find,
    db_cpu::find,
    db_cpu::find_unnamed,
];

/// Findings that follow from others, by the beginnings of their names: what follows stands behind
/// its cause.
const CAUSES: [(&str, &[&str]); 11] = [
    (
        table_scans::NAME,
        &[
            "One statement is",
            "The processors are",
            "Page cache",
            "A few files",
            "One wait event",
            "Flash cache",
            "Processor time is",
        ],
    ),
    (spills::NAME, &["One statement is", "The processors are", "A few files", "One wait event"]),
    (
        checkpoints::NAME,
        &["Full pages", "Redo is", "Commits wait", "Requests write", "One wait event"],
    ),
    (checkpoints::NAME_OF_INNODB, &["Redo is", "Commits wait", "Waits for free", "One wait event"]),
    (lock_waits::NAME, &["One statement is", "Commits wait"]),
    ("Commits wait for redo", &["One statement is"]),
    (cpu_bound::NAME, &["One statement is", "Threads wait for processors"]),
    ("Page cache too small", &["A few files"]),
    (
        parses::NAME,
        &["Sessions meet in the shared pool", "Processor time is", "Much of DB time is in no wait"],
    ),
    ("One statement is", &["Processor time is"]),
    ("A few statements are", &["Processor time is", "Waits of one class"]),
];

/// Findings whose time is all in another's, where that is found too: it is claimed once.
const PARTS: [(&str, &str); 3] = [
    ("Commits wait for redo", "Redo is"),
    ("Commits wait for redo", "Threads wait for processors"),
    ("Redo is", "Threads wait for processors"),
];

/// A cause of less than this share of DB time stands where its share puts it.
const LEAST_OF_A_CAUSE: f64 = 20.0;

/// What the rules find in an interval: what can lose data, then by impact, causes before what
/// follows from them; those without a known impact behind the others, and last of all doubts about
/// the interval itself.
pub fn findings(of: &Interval) -> Vec<Finding> {
    let mut found: Vec<Finding> = RULES.iter().filter_map(|rule| rule(of)).collect();
    found.extend(contention::find(of));
    found.extend(dominant_event::find(of, &found));
    found.extend(classes::find(of, &found));
    found.extend(addm::find(of, &found));
    dominant_event::name_events(of, &mut found);
    claim_once(&mut found);
    let key = |finding: &Finding| match finding.impact_percent {
        _ if finding.name == unsafe_settings::NAME => f64::INFINITY,
        _ if short_interval::NAMES.contains(&finding.name.as_str()) => f64::NEG_INFINITY,
        percent => percent.unwrap_or(-1.0),
    };
    found.sort_by(|a, b| key(b).total_cmp(&key(a)));
    // From the last cause to the first: one that another follows from comes before it in the end.
    for (cause, symptoms) in CAUSES.iter().rev() {
        let follows = |of: &Finding| symptoms.iter().any(|begin| of.name.starts_with(begin));
        let Some(at) = found.iter().position(|of| of.name.starts_with(cause)) else { continue };
        if found[at].impact_percent.is_some_and(|percent| percent < LEAST_OF_A_CAUSE) {
            continue;
        }
        if let Some(first) = found[..at].iter().position(follows) {
            found[first..=at].rotate_right(1);
        }
    }
    // A part stands behind its whole.
    for (whole, part) in PARTS {
        let at = |begin: &str| found.iter().position(|of| of.name.starts_with(begin));
        if let Some((whole, part)) = at(whole).zip(at(part)).filter(|(whole, part)| whole < part) {
            found[whole + 1..=part].rotate_right(1);
        }
    }
    found
}

/// Takes the share of what is part of another finding away, and says of what follows from a cause
/// that its time may be the cause's as well.
fn claim_once(found: &mut [Finding]) {
    let names: Vec<(String, Option<f64>)> =
        found.iter().map(|of| (of.name.clone(), of.impact_percent)).collect();
    let first = |begin: &str| names.iter().find(|(name, _)| name.starts_with(begin));
    for one in found {
        let whole = PARTS.iter().find_map(|(whole, part)| {
            first(whole).filter(|_| one.name.starts_with(part)).map(|(name, _)| name)
        });
        if let Some(name) = whole {
            one.impact_percent = None;
            one.evidence.push(format!("Its time is part of: {name}."));
            continue;
        }
        let cause = CAUSES.iter().find_map(|(cause, follow)| {
            let (name, percent) = first(cause)?;
            let is_large = percent.is_some_and(|percent| percent >= LEAST_OF_A_CAUSE);
            let follows = follow.iter().any(|begin| one.name.starts_with(begin));
            (is_large && follows).then_some(name)
        });
        if let Some(name) = cause.filter(|_| one.impact_percent.is_some()) {
            one.evidence.push(format!("Some of this time may also be that of: {name}."));
        }
    }
}

/// An event's waits in words.
fn told(wait: &WaitDelta) -> String {
    format!(
        "{}: {} of {} on average.",
        figure::visible(&wait.name),
        figure::several(wait.count, "wait"),
        figure::nanoseconds(wait.mean_ns().unwrap_or(0.0))
    )
}

/// The first of these events in words, those of no weight left out; `ns` is the time of all.
fn longest(waits: &[&WaitDelta], ns: u64, most: usize) -> Vec<String> {
    let has_weight = |wait: &&&WaitDelta| wait.total_ns >= ns / 100;
    waits.iter().filter(has_weight).take(most).map(|wait| told(wait)).collect()
}

/// Of a database that is less active than this on average, nothing is much.
const LEAST_SESSIONS: f64 = 0.02;

fn is_idle(of: &Interval) -> bool {
    of.active_sessions().is_some_and(|sessions| sessions < LEAST_SESSIONS)
}

/// A line of Oracle's time model.
struct Modelled {
    ns: u64,
    percent: f64,
}

fn modelled(of: &Interval, name: &str) -> Option<Modelled> {
    let ns = of.counter(&format!("{TIME_MODEL}{name}"))?;
    Some(Modelled { ns, percent: of_db_time(of, ns)? })
}

/// A time's share of DB time, in per cent.
fn of_db_time(of: &Interval, ns: u64) -> Option<f64> {
    of.db_time_ns.filter(|time| *time > 0).map(|time| (ns as f64 / time as f64 * 100.0).min(100.0))
}

/// The measured time of a class of requests' waits.
fn class_ns(of: &Interval, class: WaitClass) -> u64 {
    let waits =
        of.foreground().into_iter().filter(|wait| wait.class == class && !wait.is_inside_another());
    waits.fold(0, |sum: u64, wait| sum.saturating_add(wait.total_ns))
}

/// The share of commits' waits in DB time, where the source times them; nothing measured is
/// nothing, and not zero.
fn measured_commits(of: &Interval) -> Option<f64> {
    let timed = of.foreground().into_iter().any(|wait| wait.class == WaitClass::Commit);
    of_db_time(of, class_ns(of, WaitClass::Commit)).filter(|_| timed)
}

/// The share of a class in samples of active sessions, in per cent, and of how many sightings.
fn sampled_share(of: &Interval, class: WaitClass) -> Option<(f64, u64)> {
    let sampling = of.sampling.as_ref()?;
    let all = sampling.seen();
    let seen: u64 = sampling
        .events
        .iter()
        .filter(|event| event.class == class.name())
        .map(|event| event.seen)
        .sum();
    // Below this the error of the share is larger than what the rules ask for.
    (all >= 50).then(|| (seen as f64 / all as f64 * 100.0, all))
}

/// Count and time of the syncs of redo, foreground and background together: as near to the storage
/// as the source tells them.
fn redo_syncs(of: &Interval) -> Option<(u64, u64)> {
    let sum = |name: &str| {
        let waits = of.waits.iter().filter(|wait| wait.name == name);
        let (count, ns) = waits.fold((0u64, 0u64), |(count, ns), wait| {
            (count.saturating_add(wait.count), ns.saturating_add(wait.total_ns))
        });
        (count > 0).then_some((count, ns))
    };
    // Oracle's log writer syncs in its write; what commits wait for has more in it.
    let written = is_oracle(of).then_some("log file parallel write");
    sum("redo sync").or_else(|| sum(written?)).or_else(|| sum("log file sync"))
}

/// A disk on which the redo lies is flushed about as often as the redo is synced: a sync may make
/// two or three flushes (the data, the journal of the file system), and several syncs may share
/// one. By what factor the flushes may be less, and more.
const FLUSHES_LEAST: f64 = 0.5;
const FLUSHES_MOST: f64 = 4.0;

/// What a write and a flush took on the disk that was flushed most.
struct Synced<'a> {
    name: &'a str,
    ns: f64,
}

/// The disk of the database's own host that was flushed most, of those that were flushed about as
/// often as the redo was synced: others are no evidence of it. Nothing if there is none, or the
/// kernel does not count flushes.
fn synced_most(of: &Interval) -> Option<Synced<'_>> {
    let flushed = |disk: &crate::snapshot::host::DiskStat| {
        disk.flushes.zip(disk.flush_ms).filter(|(count, _)| *count > 0)
    };
    let syncs = redo_syncs(of)?.0 as f64;
    let fits = |flushes: u64| (FLUSHES_LEAST..=FLUSHES_MOST).contains(&(flushes as f64 / syncs));
    let known = of
        .disks
        .iter()
        .filter(|disk| disk.writes > 0 && flushed(disk).is_some_and(|(count, _)| fits(count)));
    let disk = known.max_by_key(|disk| disk.flushes)?;
    let (flushes, flush_ms) = flushed(disk)?;
    let ns = (disk.write_ms as f64 / disk.writes as f64 + flush_ms as f64 / flushes as f64) * 1e6;
    (!is_elsewhere(of)).then_some(Synced { name: &disk.name, ns })
}

fn is_oracle(of: &Interval) -> bool {
    of.end.source.is_oracle()
}

/// How the plan of a statement is looked at.
fn plan(of: &Interval) -> &'static str {
    match of.end.source.product.to_ascii_lowercase() {
        product if product.starts_with("postgres") => "EXPLAIN (ANALYZE, BUFFERS)",
        product if product.starts_with("mariadb") => "ANALYZE FORMAT=JSON",
        product if product.starts_with("mysql") => "EXPLAIN ANALYZE",
        product if product.starts_with("oracle") => "DBMS_XPLAN.DISPLAY_CURSOR with its SQL id",
        product if product.starts_with("sqlite") => "EXPLAIN QUERY PLAN",
        _ => "the database's EXPLAIN",
    }
}

/// Whether the source is a home with a tier already.
fn is_attached(of: &Interval) -> bool {
    of.end.levels.iter().any(|level| level.name == "tier free")
}

/// What studies call a database that can be attached; nothing for others.
fn target(of: &Interval) -> Option<&'static str> {
    let product = of.end.source.product.to_ascii_lowercase();
    let known = [
        ("postgres", "postgres"),
        ("mariadb", "mariadb"),
        ("mysql", "mariadb"),
        ("redis", "redis"),
        ("valkey", "redis"),
    ];
    known.into_iter().find(|(begin, _)| product.starts_with(begin)).map(|(_, target)| target)
}

/// Whether it is the key-value server of Tiersmith itself, which has its data on a tier.
fn is_kv(of: &Interval) -> bool {
    of.end.source.product == crate::sources::KV
}

/// What a tier would do, with the command; nothing for a database that none is for, or that has
/// one.
fn attach(of: &Interval, does: &str) -> Option<String> {
    target(of).filter(|_| !is_attached(of))?;
    // A database does not tell whether the directory it lies in has a tier.
    Some(format!(
        "tiersmith attach HOME --fast PATH, if its directory is not attached already: {does}."
    ))
}

/// As [`attach`], for commits: what it gives can be measured before.
fn attach_redo(of: &Interval) -> Option<String> {
    let does =
        "redo is durable in the fast tier when its write returns, and a commit waits for no disk";
    let attach = attach(of, does)?;
    let target = target(of)?;
    Some(format!(
        "{attach} What that gives on this machine: tiersmith study redo --target {target}."
    ))
}

/// Time as a share: of DB time, or where the source does not tell that, of the time that its
/// requests waited.
struct Share {
    percent: f64,
    of_db_time: bool,
}

impl Share {
    fn new(of: &Interval, ns: u64) -> Option<Share> {
        if let Some(percent) = of_db_time(of, ns) {
            return Some(Share { percent, of_db_time: true });
        }
        let waited = of.waited_ns();
        (of.db_time_ns.is_none() && waited > 0).then(|| Share {
            percent: (ns as f64 / waited as f64 * 100.0).min(100.0),
            of_db_time: false,
        })
    }

    /// For the impact, which is of DB time.
    fn impact(&self) -> Option<f64> {
        self.of_db_time.then_some(self.percent)
    }

    fn text(&self) -> String {
        let what = if self.of_db_time { "DB time" } else { "the time that requests waited here" };
        format!("{} % of {what}", figure::percent(self.percent))
    }
}

/// Whether the host that was recorded is not the database's: it says nothing of the database then.
fn is_elsewhere(of: &Interval) -> bool {
    of.is_remote()
}

fn setting<'a>(of: &'a Interval, name: &str) -> Option<&'a str> {
    of.end.source.settings.get(name).map(String::as_str)
}

#[cfg(test)]
pub(crate) mod made {
    //! Intervals made for tests of rules. Nothing here is a measurement.

    use tiersmith_events::WaitClass;

    use crate::snapshot::host::{CpuTimes, Cpus};
    use crate::{Interval, Snapshot, Source, WaitStat};

    /// A minute with a DB time of a hundred seconds, on a host with two processors that were busy
    /// for `busy_percent`.
    pub(crate) struct Made {
        pub(crate) begin: Snapshot,
        pub(crate) end: Snapshot,
    }

    pub(crate) fn minute() -> Made {
        let source =
            Source { instance: "i".to_owned(), database: "d".to_owned(), ..Source::default() };
        let at = |seconds: u64| {
            let mut snapshot = Snapshot::at(
                source.clone(),
                (1_000_000_000 + seconds) * 1_000_000_000,
                seconds * 1_000_000_000,
            );
            snapshot.db_time_ns = Some(0);
            snapshot.host.cpus = Some(Cpus { threads: 2, cores: 2, sockets: 1 });
            snapshot.host.disks = Some(Vec::new());
            snapshot.host.cpu = Some(CpuTimes::default());
            snapshot
        };
        let (begin, mut end) = (at(1), at(61));
        end.db_time_ns = Some(100_000_000_000);
        Made { begin, end }.busy(20)
    }

    impl Made {
        pub(crate) fn busy(mut self, percent: u64) -> Made {
            let all = 120_000_000_000u64;
            self.end.host.cpu = Some(CpuTimes {
                user_ns: all / 100 * percent,
                idle_ns: all / 100 * (100 - percent),
                ..CpuTimes::default()
            });
            self
        }

        pub(crate) fn wait(
            mut self,
            name: &str,
            class: WaitClass,
            background: bool,
            count: u64,
            seconds: u64,
        ) -> Made {
            for (snapshot, share) in [(&mut self.begin, 0), (&mut self.end, 1)] {
                snapshot.waits.push(WaitStat {
                    name: name.to_owned(),
                    class,
                    background,
                    help: String::new(),
                    count: count * share,
                    total_ns: seconds * 1_000_000_000 * share,
                    max_ns: 0,
                    bytes: 0,
                    buckets: Vec::new(),
                });
            }
            self
        }

        pub(crate) fn counter(mut self, name: &str, value: u64) -> Made {
            self.begin.add_counter(name, "", 0);
            self.end.add_counter(name, "", value);
            self
        }

        pub(crate) fn interval(&self) -> Interval {
            Interval::between(&self.begin, &self.end).expect("an interval")
        }
    }

    #[test]
    fn a_recorder_on_another_machine_gives_no_findings_by_its_own_host() {
        use crate::snapshot::host::{DiskStat, Pressure};
        let of = |remote| {
            let mut made =
                minute().busy(99).wait("log file sync", WaitClass::Commit, false, 10_000, 40);
            made.begin.host.pressure = Some(Pressure::default());
            made.end.host.pressure =
                Some(Pressure { cpu_some_us: 50_000_000, ..Pressure::default() });
            let disk = |writes| DiskStat { name: "vda".to_owned(), writes, ..DiskStat::default() };
            (made.begin.host.disks, made.end.host.disks) =
                (Some(vec![disk(1)]), Some(vec![disk(9)]));
            (made.begin.source.remote, made.end.source.remote) = (remote, remote);
            let found = super::findings(&made.interval());
            let has = |text: &str| {
                found.iter().any(|of| {
                    of.name.contains(text) || of.evidence.iter().any(|line| line.contains(text))
                })
            };
            [
                has("processors are the limit"),
                has("Threads wait for processors"),
                has("A write of vda") || has("vda, the disk"),
                has("Redo is slow"),
            ]
        };
        assert_eq!(of(None), [true; 4]);
        assert_eq!(of(Some(false)), [true; 4]);
        assert_eq!(
            of(Some(true)),
            [false, false, false, true],
            "what the database itself measured stays"
        );
    }

    #[test]
    fn a_quiet_minute_has_no_findings() {
        assert_eq!(super::findings(&minute().interval()), []);
    }

    #[test]
    fn a_cause_stands_before_what_follows_from_it_and_doubts_stand_last() {
        let mut made = minute()
            .wait("log file sync", WaitClass::Commit, false, 10_000, 30)
            .counter("checkpoints on demand", 9)
            .counter("checkpoints by time", 0);
        made.end.monotonic_ns = made.begin.monotonic_ns + 20_000_000_000;
        let names: Vec<String> =
            super::findings(&made.interval()).into_iter().map(|finding| finding.name).collect();
        let at = |begin: &str| names.iter().position(|name| name.starts_with(begin));
        assert_eq!(at("Checkpoints too frequent"), Some(0), "{names:?}");
        assert!(
            at("Commits wait") > Some(0) && at("Too short") == Some(names.len() - 1),
            "{names:?}"
        );
        let of = |locks: u64| {
            let mut made = minute().wait("row lock", WaitClass::Application, false, 10, locks);
            let row = |id: &str, seconds: u64| crate::StatementStat {
                id: id.to_owned(),
                total_ns: seconds * 1_000_000_000,
                ..crate::StatementStat::default()
            };
            made.end.statements = vec![row("a", 90), row("b", 1)];
            super::findings(&made.interval())[0].name.clone()
        };
        assert_eq!(of(60), "Sessions wait for locks");
        assert_eq!(of(6), "One statement is most of DB time", "a few locks explain little of it");
        for (cause, symptoms) in super::CAUSES {
            assert!(!symptoms.iter().any(|begin| cause.starts_with(begin)), "{cause}");
        }
    }

    #[test]
    fn no_time_is_claimed_twice() {
        let commits = |seconds| {
            minute().wait("log file sync", WaitClass::Commit, false, 1_000, seconds).wait(
                "log file parallel write",
                WaitClass::SystemIo,
                true,
                1_000,
                5,
            )
        };
        let told = |seconds| {
            let found = super::findings(&commits(seconds).interval());
            let one = |begin: &str| found.iter().find(|of| of.name.starts_with(begin)).cloned();
            (one("Commits wait"), one("Redo is slow"))
        };
        let (Some(whole), Some(part)) = told(20) else { panic!("both hold: {:?}", told(20)) };
        assert_eq!((whole.impact_percent, part.impact_percent), (Some(20.0), None));
        assert_eq!(
            part.evidence.last().map(String::as_str),
            Some("Its time is part of: Commits wait for redo.")
        );
        let (None, Some(alone)) = told(8) else { panic!("commits are little: {:?}", told(8)) };
        assert_eq!(alone.impact_percent, Some(8.0), "nothing else claims it");

        let mut parses = minute().counter("time model: parse time elapsed", 88_000_000_000).wait(
            "library cache lock",
            WaitClass::Concurrency,
            false,
            100,
            68,
        );
        for snapshot in [&mut parses.begin, &mut parses.end] {
            snapshot.source.product = "Oracle".to_owned();
        }
        let found = super::findings(&parses.interval());
        let names: Vec<&str> = found.iter().map(|of| of.name.as_str()).collect();
        assert_eq!(names, [super::parses::NAME, super::contention::SHARED_POOL]);
        let last = |of: &super::Finding| of.evidence.last().cloned().unwrap_or_default();
        assert!(!last(&found[0]).starts_with("Some of this time"), "{found:?}");
        assert_eq!(
            last(&found[1]),
            "Some of this time may also be that of: Compiling statements is much of DB time."
        );
    }

    #[test]
    fn findings_stand_in_the_order_of_their_impact() {
        let made = minute().wait("log file sync", WaitClass::Commit, false, 10_000, 20).wait(
            "free buffer waits",
            WaitClass::Configuration,
            false,
            100,
            40,
        );
        let found = super::findings(&made.interval());
        let names: Vec<&str> = found.iter().map(|finding| finding.name.as_str()).collect();
        assert!(names.len() >= 2, "{names:?}");
        assert!(
            found.windows(2).all(|pair| pair[0].impact_percent.unwrap_or(-1.0)
                >= pair[1].impact_percent.unwrap_or(-1.0))
        );
        assert!(
            found.iter().all(|finding| !finding.evidence.is_empty() && !finding.advice.is_empty())
        );
    }
}

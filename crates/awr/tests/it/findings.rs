//! Every rule of the findings: a recorded pair of snapshots in which it speaks, and the same pair
//! in which what it rests on does not hold.
//!
//! The pairs go through their text form, as those of a repository do. Not measurements. Thresholds
//! are tested beside each rule.

use tiersmith_awr::findings::{Finding, findings};
use tiersmith_awr::host::{CpuTimes, Pressure};
use tiersmith_awr::{
    FileStat, Interval, MediumStat, Sampling, Snapshot, Source, StatementStat, WaitStat, render,
    report, statistic,
};
use tiersmith_events::WaitClass;

const SECOND: u64 = 1_000_000_000;

/// Ten minutes with a DB time of 1,000 s on a host that has nothing to do.
struct Pair {
    begin: Snapshot,
    end: Snapshot,
}

impl Pair {
    fn new() -> Pair {
        let source =
            Source { instance: "i".to_owned(), database: "orders".to_owned(), ..Source::default() };
        let at = |seconds: u64| {
            Snapshot::at(source.clone(), (1_800_000_000 + seconds) * SECOND, seconds * SECOND)
        };
        let (mut begin, mut end) = (at(1), at(601));
        begin.db_time_ns = Some(0);
        end.db_time_ns = Some(1000 * SECOND);
        Pair { begin, end }.idle(1200)
    }

    fn idle(mut self, idle_s: u64) -> Pair {
        self.begin.host.cpu = Some(CpuTimes::default());
        let (all, idle_ns) = (1200 * SECOND, idle_s * SECOND);
        self.end.host.cpu =
            Some(CpuTimes { user_ns: all - idle_ns, idle_ns, ..CpuTimes::default() });
        self
    }

    fn wait(
        mut self,
        name: &str,
        class: WaitClass,
        background: bool,
        count: u64,
        seconds: u64,
    ) -> Pair {
        self.end.waits.push(WaitStat {
            name: name.to_owned(),
            class,
            background,
            help: String::new(),
            count,
            total_ns: seconds * SECOND,
            max_ns: 0,
            bytes: 0,
            buckets: Vec::new(),
        });
        self
    }

    fn counter(mut self, name: &str, value: u64) -> Pair {
        self.begin.add_counter(name, "", 0);
        self.end.add_counter(name, "", value);
        self
    }

    fn setting(mut self, name: &str, value: &str) -> Pair {
        for snapshot in [&mut self.begin, &mut self.end] {
            snapshot.source.settings.insert(name.to_owned(), value.to_owned());
        }
        self
    }

    fn level(mut self, name: &str, value: u64) -> Pair {
        self.end.add_level(name, "bytes", value);
        self
    }

    fn findings(&self) -> Vec<Finding> {
        let kept = |snapshot: &Snapshot| Snapshot::from_json(&snapshot.to_json(), "here").unwrap();
        let interval = Interval::between(&kept(&self.begin), &kept(&self.end)).unwrap();
        let found = findings(&interval);
        for finding in &found {
            assert!(
                finding.impact_percent.is_none_or(|percent| (0.0..=100.0).contains(&percent)),
                "{finding:?}"
            );
            assert!(!finding.advice.is_empty() && !finding.evidence.is_empty(), "{finding:?}");
            assert!(
                finding.evidence.iter().any(|line| line.contains(|c: char| c.is_ascii_digit())),
                "evidence is a figure: {finding:?}"
            );
            let text = render::text(&report(&interval));
            assert!(text.contains(&finding.name), "the report shows it: {text}");
        }
        found
    }

    fn says(&self, name: &str) -> Option<Finding> {
        self.findings().into_iter().find(|finding| finding.name == name)
    }
}

/// Speaks with this impact in the first pair, and is silent in the second.
fn speaks(name: &str, impact: Option<f64>, words: &str, yes: &Pair, no: &Pair) {
    let found = yes.says(name).unwrap_or_else(|| panic!("{name} is silent: {:?}", yes.findings()));
    assert_eq!(found.impact_percent.map(f64::round), impact, "{found:?}");
    assert!(
        found.evidence.iter().any(|line| line.contains(words)),
        "{words} of {:?}",
        found.evidence
    );
    assert_eq!(no.says(name), None, "{name} has no reason");
}

#[test]
fn commits_log_writes_and_the_one_who_writes_them() {
    let of = |seconds| Pair::new().wait("log file sync", WaitClass::Commit, false, 10_000, seconds);
    speaks("Commits wait for redo", Some(40.0), "40.0 % of DB time", &of(400), &of(50));
    speaks(
        "Redo is slow to become durable",
        None,
        "10,000 syncs of redo took 40.00ms",
        &of(400),
        &of(10),
    );
    let pressed = |cpu_some_us| {
        let mut pair = of(400);
        pair.begin.host.pressure = Some(Pressure::default());
        pair.end.host.pressure = Some(Pressure { cpu_some_us, ..Pressure::default() });
        pair
    };
    let name = "Threads wait for processors while commits wait";
    speaks(name, None, "50.0 % of the interval", &pressed(300_000_000), &pressed(1_000_000));
}

#[test]
fn sampled_evidence_says_that_it_is_sampled() {
    let sampled = |commits: u64| {
        let mut pair = Pair::new();
        (pair.begin.db_time_ns, pair.end.db_time_ns) = (None, None);
        pair.begin.sampling = Some(Sampling::new("s".to_owned(), 1000));
        let mut sampling = Sampling::new("s".to_owned(), 1000);
        sampling.looks = 100;
        for seen in 0..100 {
            let class = (seen < commits).then_some(WaitClass::Commit);
            sampling.saw(if seen < commits { "IO: WALSync" } else { "on CPU" }, class);
        }
        pair.end.sampling = Some(sampling);
        pair
    };
    speaks("Commits wait for redo", Some(30.0), "sampled, not measured", &sampled(30), &sampled(3));
}

#[test]
fn checkpoints_and_full_pages() {
    let of = |demanded, timed| {
        Pair::new()
            .counter("checkpoints on demand", demanded)
            .counter("checkpoints by time", timed)
            .setting("max_wal_size", "1GB")
    };
    speaks("Checkpoints too frequent", None, "20 checkpoints", &of(20, 2), &of(1, 20));
    let age = |age| {
        Pair::new()
            .level("redo since the last checkpoint", age)
            .level("redo that forces a checkpoint", 100)
    };
    speaks("Redo too small", None, "90.0 % of what forces one", &age(90), &age(10));
    let pages = |pages| {
        Pair::new()
            .counter("full page images in redo", pages)
            .counter(statistic::REDO_SIZE, 100_000_000)
    };
    speaks("Full pages are much of the redo", None, "at most 81.9 %", &pages(10_000), &pages(200));
    let twice = |pages| {
        Pair::new()
            .counter("pages written to the doublewrite buffer", pages)
            .counter(statistic::PHYSICAL_WRITES, pages)
    };
    speaks("Pages are written twice", None, "50,000 pages", &twice(50_000), &twice(5));
}

#[test]
fn caches_of_pages_and_of_flash() {
    let of = |seconds, physical| {
        Pair::new()
            .wait("db file sequential read", WaitClass::UserIo, false, 100_000, seconds)
            .counter(statistic::LOGICAL_READS, 1_000_000)
            .counter(statistic::PHYSICAL_READS, physical)
    };
    let name = "Page cache too small, or data on slow storage";
    speaks(name, Some(30.0), "70.0 % of the pages", &of(300, 300_000), &of(300, 1_000));
    let flash = |hits, seconds| {
        let mut pair = Pair::new()
            .counter(statistic::FLASH_HITS, hits)
            .counter(statistic::FLASH_MISSES, 50_000)
            .wait("db file sequential read", WaitClass::UserIo, false, 50_000, seconds)
            .level("tier cached", 3 << 30)
            .level("tier dirty", 1 << 30)
            .level("tier free", 0);
        pair.end.add_medium(MediumStat {
            name: "fast".to_owned(),
            emulated: true,
            ..MediumStat::default()
        });
        pair
    };
    let name = "Flash cache hit ratio low";
    speaks(name, Some(20.0), "50.0 % of 100,000 blocks", &flash(50_000, 200), &flash(500_000, 200));
    let found = flash(50_000, 200).says(name).unwrap();
    assert!(
        found.evidence.iter().any(|line| line.contains("3.0 GiB of clean copies")),
        "{:?}",
        found.evidence
    );
    assert!(found.evidence.iter().any(|line| line.contains("emulated")), "{:?}", found.evidence);
    assert!(
        found.advice.contains("was not measured"),
        "nothing is said of a size that is not there: {}",
        found.advice
    );
}

#[test]
fn tables_that_are_most_of_the_reads() {
    let of = |hot: u64| {
        let mut pair = Pair::new()
            .wait("db file sequential read", WaitClass::UserIo, false, 100_000, 500)
            .counter(statistic::PHYSICAL_READS, 100 * 128);
        let file = |id: u64, mib: u64| FileStat {
            id: id.to_string(),
            name: format!("public.t{id}"),
            bytes: Some(2 << 30),
            read_bytes: mib << 20,
            read_ns: None,
        };
        pair.end.files = vec![file(1, hot), file(2, 5)];
        pair
    };
    speaks(
        "A few files are most of what is read",
        Some(40.0),
        "public.t1: 80.0 MiB",
        &of(80),
        &of(20),
    );
}

#[test]
fn what_storage_does_not_mend_and_what_cannot_be_relied_on() {
    let busy = |idle| Pair::new().idle(idle);
    speaks("The processors are the limit", None, "95.0 %", &busy(60), &busy(900));
    let free = |seconds| {
        Pair::new().wait("free buffer waits", WaitClass::Configuration, false, 100, seconds)
    };
    speaks("Waits for free blocks", Some(10.0), "100 waits", &free(100), &free(1));
    let statement = |seconds: u64| {
        let mut pair = Pair::new();
        let row = |id: &str, seconds: u64| StatementStat {
            id: id.to_owned(),
            text: format!("select {id}"),
            calls: 10,
            total_ns: seconds * SECOND,
            ..StatementStat::default()
        };
        pair.end.statements = vec![row("a", seconds), row("b", 1)];
        pair
    };
    speaks(
        "One statement is most of DB time",
        Some(70.0),
        "select a",
        &statement(700),
        &statement(100),
    );
    let short = |seconds: u64| {
        let mut pair = Pair::new();
        pair.end.monotonic_ns = pair.begin.monotonic_ns + seconds * SECOND;
        pair
    };
    speaks("Too short, or too little load, to rely on", None, "5.00 s", &short(5), &short(600));
}

#[test]
fn locks_redo_room_spills_settings_and_whatever_else_dominates() {
    let of = |name: &str, class, seconds| Pair::new().wait(name, class, false, 100, seconds);
    let lock = |seconds| of("enq: TX - row lock contention", WaitClass::Application, seconds);
    speaks(
        "Sessions wait for locks",
        Some(40.0),
        "row lock contention: 100 waits",
        &lock(400),
        &lock(10),
    );
    let switch =
        |seconds| of("log file switch (checkpoint incomplete)", WaitClass::Configuration, seconds);
    let name = "Requests wait for room in the redo";
    speaks(name, Some(10.0), "checkpoint incomplete): 100 waits", &switch(100), &switch(5));
    let spill = |mib: u64| {
        Pair::new()
            .counter("temporary files", 40)
            .counter("temporary files, size", mib << 20)
            .setting("work_mem", "4MB")
    };
    speaks(
        "Sorts and hashes spill to files",
        None,
        "40 temporary files",
        &spill(10_000),
        &spill(10),
    );
    let fsync =
        |value| Pair::new().setting("fsync", value).counter(statistic::USER_COMMITS, 17_466);
    speaks(
        "A crash can lose what was acknowledged",
        None,
        "17,466 transactions",
        &fsync("off"),
        &fsync("on"),
    );
    let both = fsync("off").wait("log file sync", WaitClass::Commit, false, 100, 500).findings();
    assert_eq!(both[0].name, "A crash can lose what was acknowledged", "whatever takes longer");
    let dominant = |seconds| of("gc buffer busy acquire", WaitClass::Cluster, seconds);
    let name = "One wait event is much of DB time";
    speaks(
        name,
        Some(30.0),
        "gc buffer busy acquire (class Cluster)",
        &dominant(300),
        &dominant(100),
    );
}

#[test]
fn no_impact_is_over_a_hundred_whatever_was_counted() {
    // Sessions wait beside one another, and DB time may be counted more coarsely than waits.
    let names = ["log file sync", "db file sequential read", "free buffer waits", "redo sync"];
    let mut rng = fastrand::Rng::with_seed(12);
    for _ in 0..200 {
        let mut pair = Pair::new().idle(rng.u64(0..1200));
        pair.end.db_time_ns = Some(rng.u64(1..2000 * SECOND));
        for name in names {
            let class = *rng.choice(&WaitClass::ALL).unwrap();
            pair = pair.wait(name, class, rng.bool(), rng.u64(1..1_000_000), rng.u64(0..100_000));
        }
        for name in [
            statistic::LOGICAL_READS,
            statistic::PHYSICAL_READS,
            statistic::FLASH_HITS,
            statistic::FLASH_MISSES,
        ] {
            pair = pair.counter(name, rng.u64(0..u64::MAX / 4));
        }
        let file = |id: usize, read_bytes| FileStat {
            id: id.to_string(),
            read_bytes,
            ..FileStat::default()
        };
        pair.end.files = (0..4).map(|id| file(id, rng.u64(0..1 << 50))).collect();
        pair.findings();
    }
}

//! Metrics: what `render` writes is OpenMetrics 1.0 by a strict reader of its grammar, whatever a
//! server is called, and says the truth.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::openmetrics::{Exposition, read};
use tiersmith_awr::events::{Registry, counters, wait_events};
use tiersmith_awr::host::HostStat;
use tiersmith_awr::metrics::{Content, Format, Scrape, render};
use tiersmith_awr::{IoStat, MediumStat, Sampling, Snapshot, Source, StatementStat};

wait_events! {
    const EVENTS;
    /// A read.
    READ = "db file sequential read", UserIo;
    /// A wait inside the write.
    FREE = "free buffer waits", Configuration;
    /// Destaging.
    DESTAGE = "db file parallel write", SystemIo, background;
    /// Nothing to do.
    NOTHING = "nothing to do", Idle;
}
counters! {
    const COUNTERS;
    /// Bytes of redo.
    REDO = "redo size", "bytes";
    /// Statements compiled.
    PARSES = "parse count (total)", "statements";
}

fn host() -> HostStat {
    // A recorded one, so that the figures are the same everywhere.
    serde_json::from_str(
        r#"{"name":"h","platform":"Linux","cpus":{"threads":2,"cores":2,"sockets":1},
        "cpu":{"user_ns":1500000000,"system_ns":2,"idle_ns":3,"iowait_ns":4,"steal_ns":5},
        "load":{"one":0.5,"five":0.25,"fifteen":0.1},"memory":{"total_bytes":1000,"available_bytes":400},
        "disks":[{"name":"sda","reads":1,"read_bytes":512,"read_ms":3,"writes":2,"write_bytes":1024,"write_ms":4,"busy_ms":5}],
        "missing":[],"boot":"b","queue":{"running":1,"blocked":0},
        "pressure":{"cpu_some_us":1,"io_some_us":2,"io_full_us":3,"memory_some_us":4,"memory_full_us":5}}"#,
    )
    .unwrap()
}

fn snapshot(name: &str) -> Snapshot {
    let registry = Registry::new(EVENTS, COUNTERS);
    for ns in [500, 1_000, 7_000, 2_000_000, 40_000_000_000] {
        registry.record_ns(READ, ns, 8192);
    }
    registry.record_ns(FREE, 5_000, 0);
    registry.record_ns(DESTAGE, 9_000, 65_536);
    registry.record_ns(NOTHING, 1_000_000, 0);
    registry.count(REDO, 4096);
    registry.count(PARSES, 7);
    let source = Source {
        instance: "1".to_owned(),
        database: name.to_owned(),
        product: "PostgreSQL".to_owned(),
        version: "15".to_owned(),
        path: name.to_owned(),
        ..Source::default()
    };
    let mut snapshot = Snapshot::at(source, 1, 1);
    let totals = registry.read();
    snapshot.add_waits(&totals);
    snapshot.add_counters(&totals);
    snapshot.db_time_ns = Some(3_000_000_000);
    snapshot.sessions = Some(4);
    snapshot.add_level("latency of fork, latest", "ms", 1500);
    snapshot.add_level("blocked clients", "clients", 2);
    snapshot.add_io(IoStat {
        file_class: "data".into(),
        tier: name.to_owned(),
        reads: 3,
        read_bytes: 9,
        untimed: true,
        ..IoStat::default()
    });
    snapshot.add_medium(MediumStat {
        name: "fast".into(),
        kind: name.to_owned(),
        emulated: true,
        bytes: 100,
        used_bytes: 40,
    });
    snapshot.statements.push(StatementStat {
        id: "s1".into(),
        text: format!("SELECT {name}"),
        calls: 2,
        total_ns: 5_000,
        ..StatementStat::default()
    });
    snapshot
}

fn scrape(source: &str, snapshot: Option<Snapshot>) -> Scrape {
    let mut sampling = Sampling::new("me".to_owned(), 1000);
    sampling.looks = 10;
    sampling.saw("IO: WALSync", Some(tiersmith_awr::events::WaitClass::Commit));
    sampling.saw("on CPU", None);
    Scrape {
        source: source.to_owned(),
        snapshot,
        sampling: Some(sampling),
        took: Duration::from_millis(3),
    }
}

fn exposition(scrapes: &[Scrape]) -> Exposition {
    read(&render(scrapes, &host(), Content { statements: 1 }, Format::OpenMetrics)).unwrap()
}

#[test]
fn figures_arrive_as_they_were_counted() {
    let of = exposition(&[scrape("s", Some(snapshot("shop"))), scrape("gone", None)]);
    let value = |name: &str, labels: &[(&str, &str)]| of.value(name, labels);
    assert_eq!(value("tiersmith_up", &[("source", "s")]), Some(1.0));
    assert_eq!(value("tiersmith_up", &[("source", "gone")]), Some(0.0));
    let of_gone =
        of.samples.iter().filter(|sample| sample.labels.get("source").is_some_and(|s| s == "gone"));
    assert_eq!(
        of_gone.count(),
        2,
        "a source that did not answer has `up` and how long that took, nothing else"
    );
    let read =
        [("event", "db file sequential read"), ("class", "User I/O"), ("scope", "foreground")];
    assert_eq!(value("tiersmith_waits_total", &read), Some(5.0));
    assert_eq!(value("tiersmith_wait_seconds_total", &read), Some(40.002_008_5));
    assert_eq!(value("tiersmith_wait_bytes_total", &read), Some(5.0 * 8192.0));
    let bucket = |le: &str| {
        let mut labels = read.to_vec();
        labels.push(("le", le));
        value("tiersmith_wait_duration_seconds_bucket", &labels)
    };
    assert_eq!(bucket("0.000001"), Some(1.0));
    assert_eq!(bucket("0.000008"), Some(3.0));
    assert_eq!(bucket("16.777216"), Some(4.0));
    assert_eq!(bucket("+Inf"), Some(5.0));
    assert_eq!(
        value("tiersmith_waits_total", &[("scope", "inside"), ("event", "free buffer waits")]),
        Some(1.0)
    );
    assert_eq!(value("tiersmith_waits_total", &[("scope", "background")]), Some(1.0));
    assert_eq!(value("tiersmith_waits_total", &[("class", "Idle")]), None);
    assert_eq!(value("tiersmith_stat_redo_size_bytes_total", &[]), Some(4096.0));
    assert_eq!(value("tiersmith_stat_parse_count_total", &[("unit", "statements")]), Some(7.0));
    assert_eq!(value("tiersmith_level_latency_of_fork_latest_seconds", &[]), Some(1.5));
    assert_eq!(value("tiersmith_io_bytes_total", &[("direction", "read")]), Some(9.0));
    assert_eq!(value("tiersmith_io_seconds_total", &[]), None, "its times were not measured");
    assert_eq!(
        value("tiersmith_medium_used_bytes", &[("medium", "fast"), ("emulated", "true")]),
        Some(40.0)
    );
    assert_eq!(value("tiersmith_sampled_looks_total", &[]), Some(10.0));
    assert_eq!(value("tiersmith_sampled_sessions_total", &[("class", "Commit")]), Some(1.0));
    assert_eq!(
        value("tiersmith_statement_duration_seconds_total", &[("statement", "SELECT shop")]),
        Some(0.000_005)
    );
    assert_eq!(value("tiersmith_host_cpu_seconds_total", &[("mode", "user")]), Some(1.5));
    let unlabelled = of
        .samples
        .iter()
        .filter(|s| s.name.starts_with("tiersmith_stat_") && s.labels["emulated"] != "true");
    assert_eq!(unlabelled.count(), 0, "a tier of this source is emulated");
    let none = render(
        &[scrape("s", Some(snapshot("shop")))],
        &host(),
        Content::default(),
        Format::OpenMetrics,
    );
    assert!(!none.contains("tiersmith_statement"), "statements only if they were asked for");
}

#[test]
fn whatever_a_server_is_called_the_text_is_openmetrics() {
    let mut rng = fastrand::Rng::with_seed(9);
    let parts = [
        "\"",
        "\\",
        "\n",
        "}",
        "{",
        "=",
        ",",
        "# EOF\n",
        "a",
        "é",
        "\0",
        "\u{1b}[2J",
        "\u{202e}",
        " ",
        "_total",
        "le",
        "\r",
    ];
    for _ in 0..60 {
        let mut name =
            || (0..rng.usize(0..12)).map(|_| parts[rng.usize(0..parts.len())]).collect::<String>();
        let (source, mut hostile) = (name(), snapshot(&name()));
        for _ in 0..8 {
            hostile.add_counter(&name(), &name(), u64::MAX);
            hostile.add_level(&name(), &name(), u64::MAX);
            hostile.waits[0].name = name();
        }
        let scrapes = [scrape(&source, Some(hostile)), scrape("other", Some(snapshot("other")))];
        let of = exposition(&scrapes);
        assert_eq!(of.value("tiersmith_up", &[("source", "other")]), Some(1.0));
    }
}

#[test]
fn a_server_that_invents_names_without_end_is_cut_and_that_is_counted() {
    let mut endless = snapshot("endless");
    let wait = endless.waits[0].clone();
    for n in 0..30_000_u64 {
        endless.waits.push(tiersmith_awr::WaitStat { name: format!("wait {n}"), ..wait.clone() });
        endless.counters.push(tiersmith_awr::CounterStat {
            name: format!("counter {n}"),
            unit: String::new(),
            help: String::new(),
            value: n,
        });
    }
    let of = exposition(&[scrape("endless", Some(endless)), scrape("s", Some(snapshot("shop")))]);
    assert!(of.samples.len() < 21_000, "{}", of.samples.len());
    assert!(of.value("tiersmith_series_left_out", &[]).unwrap() > 50_000.0);
    assert_eq!(of.value("tiersmith_up", &[("source", "s")]), Some(1.0));
    assert_eq!(of.value("tiersmith_stat_redo_size_bytes_total", &[("source", "s")]), Some(4096.0));
}

#[test]
fn prometheus_own_checker_can_read_it() {
    let scrapes = [scrape("s", Some(snapshot("shop"))), scrape("gone", None)];
    let text = render(&scrapes, &host(), Content { statements: 5 }, Format::Prometheus);
    let checker = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut checker) = checker else {
        eprintln!("skipped: prometheus_own_checker_can_read_it, because promtool is not installed");
        return;
    };
    checker.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = checker.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    // 1: it cannot be read. Another code is advice about names, which differs by version.
    assert!(output.status.code().is_some_and(|code| code != 1), "{said}");
    if !said.trim().is_empty() {
        eprintln!("promtool: {said}");
    }
}

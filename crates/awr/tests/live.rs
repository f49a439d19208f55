//! What live sources add to snapshots: kept as format 2, subtracted with suspicion, and apart from what was measured in every report.

#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

mod fixture;

use fixture::{at_home, home_interval, on_tier, tier_interval};
use tiersmith_awr::events::WaitClass;
use tiersmith_awr::{Error, Interval, Sampling, Snapshot, StatementStat, compare, report};

/// The fixture with statements, samples, and something missing.
fn live() -> (Snapshot, Snapshot) {
    let (mut begin, mut end) = at_home();
    begin.sampling = Some(Sampling::new("one".to_owned(), 1000));
    let mut sampling = Sampling::new("one".to_owned(), 1000);
    sampling.looks = 60;
    for seen in 0..100 {
        match seen % 4 {
            0 => sampling.saw("on CPU", None),
            _ => sampling.saw("IO: DataFileRead", Some(WaitClass::UserIo)),
        }
    }
    end.sampling = Some(sampling);
    end.statements = vec![StatementStat {
        id: "1".to_owned(),
        text: "select <script> from t where a = ?".to_owned(),
        calls: 10,
        total_ns: 5_000_000_000,
        rows: 10,
        pages_hit: Some(90),
        pages_read: Some(10),
        redo_bytes: None,
    }];
    end.missing = vec!["the moon; GRANT SELECT ON sky gives it".to_owned()];
    for (snapshot, at) in [(&mut begin, "t0"), (&mut end, "t0")] {
        snapshot.resets.insert("database d".to_owned(), at.to_owned());
    }
    (begin, end)
}

#[test]
fn format_2_reads_back_and_what_needs_no_more_stays_format_1() {
    let (_, end) = live();
    let text = end.to_json();
    assert!(text.contains("\"format\":2"));
    assert_eq!(Snapshot::from_json(&text, "here").unwrap(), end);
    assert!(at_home().1.to_json().contains("\"format\":1"));
    assert!(on_tier().1.to_json().contains("\"format\":1"));
    // A text that says 1 and holds more was not written by a program that knew 1.
    let error = Snapshot::from_json(&text.replacen("\"format\":2", "\"format\":1", 1), "here").unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

#[test]
fn samples_have_a_section_of_their_own_and_are_in_no_sum() {
    let (begin, end) = live();
    let interval = Interval::between(&begin, &end).unwrap();
    assert_eq!(interval.waited_ns(), home_interval().waited_ns());
    for report in [report(&interval), compare(&interval, &tier_interval())] {
        let text = report.text();
        assert!(text.contains("(sampled, not measured)") && text.contains("IO: DataFileRead"), "{text}");
        assert!(text.contains("GRANT SELECT ON sky"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(!report.html().contains("<script") && !report.markdown().contains("<script"));
        assert!(report.csv().lines().count() > 50);
    }
    // 75 of 100 sightings: the error is the square root of 0.75 * 0.25 / 100.
    assert!(report(&interval).text().contains("4.33"), "{}", report(&interval).text());
    let mut other = end.clone();
    other.sampling.as_mut().unwrap().sampler = "two".to_owned();
    let interval = Interval::between(&begin, &other).unwrap();
    assert!(
        interval.sampling.is_none() && interval.warnings.iter().any(|line| line.contains("two recordings"))
    );
}

#[test]
fn a_reset_is_an_error_also_where_no_difference_is_negative() {
    let (begin, mut end) = live();
    end.resets.insert("database d".to_owned(), "t1".to_owned());
    let error = Interval::between(&begin, &end).unwrap_err();
    assert!(matches!(error, Error::Reset { .. }) && error.to_string().contains("database d"), "{error}");
    end.resets.remove("database d");
    assert!(matches!(Interval::between(&begin, &end), Err(Error::Reset { .. })), "a dropped database");
    let (begin, mut end) = live();
    end.resets.insert("database new".to_owned(), "t1".to_owned());
    assert!(Interval::between(&begin, &end).is_ok(), "a new database began at zero");
}

#[test]
fn a_server_that_says_how_long_it_is_up_is_seen_to_have_been_started() {
    let (begin, end) = live();
    let elapsed_s = (end.monotonic_ns - begin.monotonic_ns) / 1_000_000_000;
    let at = |before: u64, now: u64| {
        let (mut begin, mut end) = (begin.clone(), end.clone());
        begin.add_counter("time since the server started", "s", before);
        end.add_counter("time since the server started", "s", now);
        Interval::between(&begin, &end)
    };
    assert!(elapsed_s > 20, "{elapsed_s}");
    for (before, now) in [(0, elapsed_s), (5, elapsed_s + 4), (1000, 1000 + elapsed_s)] {
        assert!(at(before, now).is_ok(), "{before} {now}");
    }
    for (before, now) in [(0, 10), (5, 10), (5, elapsed_s - 2)] {
        assert!(matches!(at(before, now), Err(Error::Reset { .. })), "{before} {now}");
    }
}

#[test]
fn a_clock_that_was_set_and_a_machine_that_was_restarted_are_said() {
    let (begin, end) = live();
    let hour = 3_600_000_000_000;
    for (taken, word) in [(end.taken_unix_ns + hour, "forward"), (end.taken_unix_ns - hour, "back")] {
        let moved = Snapshot { taken_unix_ns: taken, ..end.clone() };
        let interval = Interval::between(&begin, &moved).unwrap();
        assert_eq!(interval.elapsed_ns, end.monotonic_ns - begin.monotonic_ns);
        assert!(
            interval.warnings.iter().any(|line| line.contains(word) && line.contains("3600.0 s")),
            "{:?}",
            interval.warnings
        );
    }
    let (mut before, mut after) = (begin, end);
    let end_ns = after.monotonic_ns;
    before.host.boot = Some("first".to_owned());
    after.host.boot = Some("second".to_owned());
    after.monotonic_ns = 1;
    let interval = Interval::between(&before, &after).unwrap();
    assert_eq!(interval.elapsed_ns, after.taken_unix_ns - before.taken_unix_ns);
    assert!(interval.warnings.iter().any(|line| line.contains("by the time of day")));
    assert!(interval.host_cpu.is_none() && interval.disks.is_empty() && interval.pressure.is_none());
    assert!(interval.warnings.iter().any(|line| line.contains("are left out")), "{:?}", interval.warnings);
    let (a, mut b) = (before.clone(), after.clone());
    b.host.boot = Some("first".to_owned());
    b.monotonic_ns = end_ns;
    assert!(Interval::between(&a, &b).unwrap().host_cpu.is_some(), "one machine");
    after.taken_unix_ns = before.taken_unix_ns;
    assert!(matches!(Interval::between(&before, &after), Err(Error::NoTime { .. })));
}

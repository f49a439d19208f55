//! Intervals over a restart or a reset: what can be counted on both sides is added up, the rest is
//! left out and said; with recorded snapshots, and with a Redis and a PostgreSQL that are started
//! anew in the middle.

use crate::servers;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::fixture::day::{Day, snapshots};
use crate::servers::{Server, until};
use tiersmith_awr::archive::{Archive, Gap};
use tiersmith_awr::sources::Surroundings;
use tiersmith_awr::{
    AnyRepository, Error, Interval, Snapshot, SnapshotId, WaitDelta, compare, export, render,
    report,
};

fn kept(dir: &Path, all: &[Snapshot]) -> AnyRepository {
    let repository = AnyRepository::open(dir).unwrap();
    repository.take_all(all).unwrap();
    repository
}

fn id(number: usize) -> SnapshotId {
    SnapshotId::new(number as u64)
}

/// The figure of each part, from whole snapshots, and the sum's.
fn adds_up(sum: &Interval, parts: [&Interval; 2], figure: fn(&Interval) -> u64) {
    let [a, b] = parts.map(figure);
    assert!(a > 0 && b > 0, "{a} and {b}");
    assert_eq!(figure(sum), a + b);
}

fn read(of: &Interval) -> &WaitDelta {
    of.wait("db file sequential read").unwrap()
}

const MINUTE_NS: u64 = 60_000_000_000;

#[test]
fn over_a_restart_both_sides_are_added_up_and_the_time_between_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let all = snapshots(Day { minutes: 30, restart: Some(12), ..Day::default() });
    for name in ["a", "a.db"] {
        let sum = kept(&dir.path().join(name), &all).interval(id(1), id(31)).unwrap();
        let before = Interval::between(&all[0], &all[11]).unwrap();
        let after = Interval::between(&all[12], &all[30]).unwrap();
        let parts = [&before, &after];
        assert_eq!(sum.elapsed_ns, 29 * MINUTE_NS);
        adds_up(&sum, parts, |of| of.elapsed_ns);
        adds_up(&sum, parts, |of| of.db_time_ns.unwrap());
        adds_up(&sum, parts, |of| of.db_cpu_ns.unwrap());
        adds_up(&sum, parts, |of| of.counter("redo size").unwrap());
        adds_up(&sum, parts, |of| read(of).count);
        adds_up(&sum, parts, |of| read(of).total_ns);
        adds_up(&sum, parts, |of| read(of).histogram.count());
        adds_up(&sum, parts, |of| of.io.iter().map(|io| io.reads).sum());
        adds_up(&sum, parts, |of| of.statements.rows.iter().map(|row| row.calls).sum());
        adds_up(&sum, parts, |of| of.sampling.as_ref().unwrap().looks);
        adds_up(&sum, parts, |of| of.host_cpu.unwrap().user_ns);
        assert_eq!((&sum.begin, &sum.end, sum.ids), (&all[0], &all[30], Some((id(1), id(31)))));
        let [left] = &sum.left_out[..] else { panic!("{:?}", sum.left_out) };
        assert_eq!(
            (left.first, left.last, left.elapsed_ns, left.what),
            (id(12), id(13), MINUTE_NS, "restarted")
        );
        let report = report(&sum);
        let banner = report.banners.iter().find(|banner| banner.starts_with("INCOMPLETE")).unwrap();
        for word in [
            "restarted",
            "2026-03-02 00:11:00",
            "2026-03-02 00:12:00",
            "run 1",
            "run 2",
            "60.00 s",
            "1,740.0 s",
        ] {
            assert!(banner.contains(word), "{word}: {banner}");
        }
        assert!(
            render::html(&report).contains("INCOMPLETE")
                && render::html(&report).contains("Times Left Out")
        );
        assert!(
            render::text(&report).contains("Left Out:") && report.json().contains("INCOMPLETE")
        );
        let other = compare(&sum, &before);
        assert!(
            other.banners.iter().any(|banner| banner.starts_with("First (1st): INCOMPLETE")),
            "{:?}",
            other.banners
        );
        assert!(render::text(&other).contains("Times Left Out"));
    }
}

#[test]
fn without_a_break_it_is_the_interval_of_its_ends() {
    let dir = tempfile::tempdir().unwrap();
    let all = snapshots(Day { minutes: 5, ..Day::default() });
    let found = kept(&dir.path().join("a.db"), &all).interval(id(1), id(6)).unwrap();
    let ends = Interval::between(&all[0], &all[5]).unwrap();
    assert_eq!(
        (found.db_time_ns, &found.waits, &found.io),
        (ends.db_time_ns, &ends.waits, &ends.io)
    );
    assert!(found.left_out.is_empty() && report(&found).banners.is_empty());
}

#[test]
fn where_nothing_can_be_counted_the_error_stays() {
    let dir = tempfile::tempdir().unwrap();
    let all = snapshots(Day { minutes: 5, restart: Some(3), ..Day::default() });
    let repository = kept(&dir.path().join("ends.db"), &[all[2].clone(), all[3].clone()]);
    let error = repository.interval(id(1), id(2)).unwrap_err();
    assert!(
        matches!(error, Error::Restarted { .. }) && error.to_string().contains("snapshots of both"),
        "{error}"
    );
    // Each snapshot of another run: there are steps, and none can be counted.
    let mut each = all[..3].to_vec();
    for (run, snapshot) in each.iter_mut().enumerate() {
        snapshot.source.instance = format!("run {run}");
    }
    let error = kept(&dir.path().join("each.db"), &each).interval(id(1), id(3)).unwrap_err();
    assert!(matches!(error, Error::Restarted { .. }), "{error}");
    let repository = kept(&dir.path().join("backwards.db"), &all);
    assert!(
        repository.interval(id(6), id(1)).is_err() && repository.interval(id(2), id(2)).is_err()
    );
}

#[test]
fn a_restart_that_the_ends_do_not_show_is_found_by_the_steps() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = snapshots(Day { minutes: 40, restart: Some(6), ..Day::default() });
    for snapshot in &mut all {
        // A source that does not tell of its restarts, nor of files and statements.
        snapshot.source.instance.clear();
        (snapshot.io, snapshot.statements) = (Vec::new(), Vec::new());
        snapshot.waits.iter_mut().for_each(|wait| wait.buckets.clear());
    }
    // Few waits before the restart, many after it: every counter of the last is above the first.
    let invented = Interval::between(&all[2], &all[40]).unwrap();
    let found = kept(&dir.path().join("a.db"), &all).interval(id(3), id(41)).unwrap();
    let before = Interval::between(&all[2], &all[5]).unwrap();
    let after = Interval::between(&all[6], &all[40]).unwrap();
    adds_up(&found, [&before, &after], |of| of.db_time_ns.unwrap());
    assert_eq!((found.left_out.len(), found.elapsed_ns), (1, 37 * MINUTE_NS));
    assert_ne!(found.db_time_ns, invented.db_time_ns);
}

#[test]
fn a_break_that_only_whole_snapshots_show_is_found_by_halves() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = snapshots(Day { minutes: 8, files: 0, statements: 0, ..Day::default() });
    // Reads and writes by file are not in brief snapshots: they are counted anew from the sixth on.
    for (at, snapshot) in all.iter_mut().enumerate() {
        let reads = if at < 5 { 100 + at as u64 } else { at as u64 };
        snapshot.add_io(tiersmith_awr::IoStat {
            file_class: "data".into(),
            tier: "home".into(),
            reads,
            ..Default::default()
        });
    }
    let found = kept(&dir.path().join("a.db"), &all).interval(id(1), id(9)).unwrap();
    assert_eq!(found.io[0].reads, 4 + 3);
    assert_eq!(
        (found.left_out[0].first, found.left_out[0].last, found.left_out.len()),
        (id(5), id(6), 1)
    );
    assert_eq!(found.elapsed_ns, 7 * MINUTE_NS);
}

#[test]
fn what_one_part_does_not_tell_the_sum_does_not_tell() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = snapshots(Day { minutes: 9, restart: Some(5), ..Day::default() });
    for snapshot in &mut all[5..] {
        snapshot.partial = ["waits", "counters", "io"].map(str::to_owned).into();
        snapshot.db_cpu_ns = None;
        snapshot.waits.retain(|wait| wait.name != "log file sync");
        snapshot.source.settings.insert("pages".to_owned(), "4096".to_owned());
    }
    let sum = kept(&dir.path().join("a.db"), &all).interval(id(1), id(10)).unwrap();
    assert!(sum.wait("log file sync").is_none() && sum.wait("db file sequential read").is_some());
    assert_eq!(sum.db_cpu_ns, None);
    let said = sum.warnings.join("\n");
    assert!(
        said.contains("so left out: log file sync")
            && said.contains("pages from unknown to \"4096\""),
        "{said}"
    );
}

/// How often a word is in a text.
fn times(text: &str, word: &str) -> usize {
    text.matches(word).count()
}

#[test]
fn gaps_are_in_the_report_of_their_interval_and_of_no_other_also_in_files() {
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    let all = snapshots(Day { minutes: 12, ..Day::default() });
    let from = kept(&place("from.db"), &all);
    let source = all[0].source.path.clone();
    let gap = |source: &str, after: usize, reason: &str| Gap {
        source: source.to_owned(),
        at_unix_ns: all[after - 1].taken_unix_ns + 1,
        reason: reason.to_owned(),
        after: Some(id(after)),
    };
    let archive = Archive::existing(place("from.db")).unwrap();
    archive.note_gap(&gap(&source, 3, "early hiccup")).unwrap();
    archive.note_gap(&gap("another", 3, "of somebody else")).unwrap();
    archive.note_gap(&gap(&source, 9, "late hiccup")).unwrap();
    archive.add_baseline("morning", id(1), id(6)).unwrap();
    export::export(&from, &[], &place("files")).unwrap();
    for name in ["from.db", "files"] {
        let repository = AnyRepository::existing(&place(name)).unwrap();
        let (baselines, gaps) = repository.baselines_and_gaps().unwrap();
        assert_eq!((baselines[0].name.as_str(), gaps.len()), ("morning", 3), "{name}");
        let (first, second) = (
            repository.interval(id(1), id(6)).unwrap(),
            repository.interval(id(7), id(13)).unwrap(),
        );
        for (of, own, other) in
            [(&first, "early hiccup", "late hiccup"), (&second, "late hiccup", "early hiccup")]
        {
            let text = render::text(&report(of)).split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                text.contains("Times of Which Nothing Is Known") && text.contains(own),
                "{name}: {text}"
            );
            assert!(!text.contains(other) && !text.contains("somebody else"), "{name}: {text}");
        }
        let both = render::markdown(&compare(&first, &second));
        assert_eq!((times(&both, "early hiccup"), times(&both, "late hiccup")), (1, 1), "{both}");
        assert!(!both.contains("somebody else"));
        // Of two neighbours nothing is drawn: it is said.
        let text = render::text(&report(&repository.interval(id(3), id(4)).unwrap()));
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains("Not recorded without a gap") && text.contains("early hiccup"),
            "{name}: {text}"
        );
        assert!(report(&repository.interval(id(4), id(5)).unwrap()).banners.is_empty());
        assert!(
            !render::text(&report(&repository.interval(id(4), id(5)).unwrap()))
                .contains("without a gap")
        );
    }
    // A damaged file beside them is an error that names it.
    std::fs::write(place("files").join(export::BESIDE), "{").unwrap();
    let error = AnyRepository::existing(&place("files"))
        .unwrap()
        .interval(id(1), id(6))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(export::BESIDE)
            && error.contains("damaged")
            && error.contains("take it away"),
        "{error}"
    );
}

#[test]
fn what_is_counted_in_another_way_after_a_break_is_not_added_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = snapshots(Day { minutes: 9, restart: Some(5), ..Day::default() });
    for (at, snapshot) in all.iter_mut().enumerate() {
        snapshot.partial = ["waits", "counters"].map(str::to_owned).into();
        let redo =
            snapshot.waits.iter_mut().find(|wait| wait.name == "log file parallel write").unwrap();
        if at >= 5 {
            redo.help = "Without what makes new files.".to_owned();
        }
    }
    let sum = kept(&dir.path().join("a.db"), &all).interval(id(1), id(10)).unwrap();
    assert!(sum.waits.iter().all(|wait| wait.name != "log file parallel write"));
    assert!(sum.wait("log file sync").is_some());
    let said = sum.warnings.join("\n");
    assert_eq!(times(&said, "log file parallel write"), 1, "{said}");
}

/// What is done to a server, what tells how much of it has been counted, and what an interval says
/// of it.
struct Work<'a> {
    url: String,
    run: &'a dyn Fn(&Server, u64),
    told: fn(&Snapshot) -> u64,
    counted: fn(&Interval) -> u64,
}

/// An interval over a restart of a server.
fn restarted(server: &mut Server, work: &Work<'_>) {
    let dir = tempfile::tempdir().unwrap();
    let repository = AnyRepository::open(&dir.path().join("awr.db")).unwrap();
    // Servers tell of what was done some time later.
    let take = |server: &Server, at_least: u64| {
        let mut source = server.source(&work.url, &Surroundings::default()).unwrap();
        let mut found = None;
        until("what was done to be counted", || {
            found = source.snapshot().ok().filter(|snapshot| (work.told)(snapshot) >= at_least);
            found.is_some()
        });
        let snapshot = found.unwrap();
        (repository.take(&snapshot).unwrap(), (work.told)(&snapshot))
    };
    let (first, told) = take(server, 0);
    (work.run)(server, 100);
    let (before, _) = take(server, told + 100);
    server.stop();
    server.start();
    let (after, told) = take(server, 0);
    (work.run)(server, 300);
    let (last, _) = take(server, told + 300);
    let parts = [(first, before), (after, last)].map(|(first, last)| {
        Interval::between(&repository.find(first).unwrap(), &repository.find(last).unwrap())
            .unwrap()
    });
    let sum = repository.interval(first, last).unwrap();
    adds_up(&sum, [&parts[0], &parts[1]], work.counted);
    adds_up(&sum, [&parts[0], &parts[1]], |of| of.elapsed_ns);
    assert!((work.counted)(&sum) >= 400, "{}", (work.counted)(&sum));
    assert_eq!(
        (sum.left_out.len(), sum.left_out[0].first, sum.left_out[0].last),
        (1, before, after)
    );
    assert!(render::text(&report(&sum)).contains("INCOMPLETE: restarted"));
}

#[test]
fn a_redis_that_was_started_anew_is_counted_before_and_after() {
    let Some(mut server) =
        servers::redis("a_redis_that_was_started_anew_is_counted_before_and_after")
    else {
        return;
    };
    let run = |server: &Server, n: u64| {
        let mut stream = UnixStream::connect(server.path("r.sock")).unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap());
        for _ in 0..n {
            stream.write_all(b"INCR n\r\n").unwrap();
            answers.read_line(&mut String::new()).unwrap();
        }
    };
    let url = format!("unix://{}", server.path("r.sock").display());
    let told = |of: &Snapshot| {
        of.statements.iter().find(|row| row.id == "incr").map_or(0, |row| row.calls)
    };
    let counted = |of: &Interval| {
        of.statements.rows.iter().find(|row| row.id == "incr").map_or(0, |row| row.calls)
    };
    restarted(&mut server, &Work { url, run: &run, told, counted });
}

#[test]
fn a_postgresql_that_was_started_anew_is_counted_before_and_after() {
    let name = "a_postgresql_that_was_started_anew_is_counted_before_and_after";
    let Some(mut server) = servers::postgres(name) else { return };
    let run = |server: &Server, n: u64| {
        let config = format!("host={} user=postgres dbname=postgres", server.path("").display());
        let mut client = postgres::Client::connect(&config, postgres::NoTls).unwrap();
        client.batch_execute("CREATE TABLE IF NOT EXISTS t (i int)").unwrap();
        client.batch_execute(&format!("INSERT INTO t SELECT generate_series(1, {n})")).unwrap();
        client.close().unwrap();
    };
    let url = format!("postgresql://postgres@/postgres?host={}", server.path("").display());
    let inserted = |of: &Snapshot| {
        of.counters
            .iter()
            .find(|counter| counter.name == "rows inserted")
            .map_or(0, |counter| counter.value)
    };
    restarted(
        &mut server,
        &Work {
            url,
            run: &run,
            told: inserted,
            counted: |of| of.counter("rows inserted").unwrap(),
        },
    );
}

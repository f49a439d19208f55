//! Redis as a source, and recording, against a real server.

use crate::servers;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::servers::{Server, until};
use tiersmith_awr::archive::Archive;
use tiersmith_awr::record::{Plan, Recorder};
use tiersmith_awr::sources::{LiveSource, Surroundings};
use tiersmith_awr::{Error, Interval, render, report};

fn url(server: &Server) -> String {
    format!("unix://{}", server.path("r.sock").display())
}

fn source(server: &Server) -> Box<dyn LiveSource> {
    server.source(&url(server), &Surroundings::default()).unwrap()
}

/// Runs a command `n` times, each awaited.
fn run(server: &Server, line: &str, n: usize) {
    let mut stream = UnixStream::connect(server.path("r.sock")).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    for _ in 0..n {
        stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        assert!(answer.starts_with(['+', ':']), "{answer}");
    }
}

fn plan(every_ms: u64) -> Plan {
    Plan {
        every: Duration::from_millis(every_ms),
        length: None,
        sample: Some(Duration::from_millis(10)),
        keep: None,
    }
}

#[test]
fn what_is_counted_is_what_was_run_and_a_restart_is_an_error() {
    let Some(mut server) =
        servers::redis("what_is_counted_is_what_was_run_and_a_restart_is_an_error")
    else {
        return;
    };
    let mut source = source(&server);
    let begin = source.snapshot().unwrap();
    run(&server, "SET key topsecret", 500);
    let end = source.snapshot().unwrap();
    let interval = Interval::between(&begin, &end).unwrap();
    let set = interval.statements.rows.iter().find(|row| row.id == "set").unwrap();
    assert_eq!(set.calls, 500);
    // Besides: the source's own INFO, LATENCY and SLOWLOG, four for each snapshot.
    let calls = interval.counter("user calls").unwrap();
    assert!((500..500 + 10).contains(&calls), "{calls} commands for 500");
    assert!(interval.db_time_ns.unwrap() >= set.total_ns);
    assert!(!end.to_json().contains("topsecret"));
    assert!(render::text(&report(&interval)).contains("Redis") || end.source.product == "Valkey");
    server.stop();
    assert!(matches!(source.snapshot(), Err(Error::Source { .. })));
    server.start();
    let error = Interval::between(&end, &source.snapshot().unwrap()).unwrap_err();
    assert!(matches!(error, Error::Restarted { .. }), "{error}");
}

#[test]
fn a_password_comes_from_the_environment_and_stays_there() {
    let Some(server) = servers::redis("a_password_comes_from_the_environment_and_stays_there")
    else {
        return;
    };
    run(&server, "CONFIG SET requirepass hunter2", 1);
    let error = server.source(&url(&server), &Surroundings::default()).err().unwrap().to_string();
    assert!(error.contains("REDISCLI_AUTH"), "{error}");
    let wrong = Surroundings::of([("REDISCLI_AUTH", "hunter3")]);
    let error = server.source(&url(&server), &wrong).err().unwrap().to_string();
    assert!(!error.contains("hunter"), "{error}");
    let right = Surroundings::of([("REDISCLI_AUTH", "hunter2")]);
    let snapshot = server.source(&url(&server), &right).unwrap().snapshot().unwrap();
    assert!(!snapshot.to_json().contains("hunter"));
}

#[test]
fn a_recording_takes_snapshots_and_a_second_recorder_is_refused() {
    let Some(server) =
        servers::redis("a_recording_takes_snapshots_and_a_second_recorder_is_refused")
    else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let repository = dir.path().join("awr.db");
    let recorder = Recorder::begin(vec![source(&server)], &repository, plan(20)).unwrap();
    let refused =
        Recorder::begin(vec![source(&server)], &repository, plan(20)).err().unwrap().to_string();
    assert!(refused.contains("is recording") && refused.contains("awr.db"), "{refused}");
    let stop = AtomicBool::new(false);
    let recorded = std::thread::scope(|scope| {
        let recording = scope.spawn(|| recorder.run(&|| stop.load(Ordering::Relaxed)).unwrap());
        run(&server, "INCR n", 50);
        until("some snapshots", || {
            Archive::existing(&repository).unwrap().list().unwrap().entries.len() >= 5
        });
        stop.store(true, Ordering::Relaxed);
        recording.join().unwrap()
    });
    assert_eq!((recorded.len(), recorded[0].gaps, recorded[0].looks), (1, 0, 0));
    let archive = Archive::existing(&repository).unwrap();
    let (first, last) = (recorded[0].taken[0], *recorded[0].taken.last().unwrap());
    assert_eq!(archive.between(first, last).unwrap(), recorded[0].taken);
    let interval =
        Interval::between(&archive.find(first).unwrap(), &archive.find(last).unwrap()).unwrap();
    assert_eq!(interval.statements.rows.iter().find(|row| row.id == "incr").unwrap().calls, 50);
    drop(Recorder::begin(vec![source(&server)], &repository, plan(20)).unwrap());
}

#[test]
fn a_server_that_is_gone_leaves_a_gap_and_the_recording_goes_on() {
    let Some(mut server) =
        servers::redis("a_server_that_is_gone_leaves_a_gap_and_the_recording_goes_on")
    else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let repository = dir.path().join("awr.db");
    let recorder = Recorder::begin(vec![source(&server)], &repository, plan(20)).unwrap();
    let stop = AtomicBool::new(false);
    let recorded = std::thread::scope(|scope| {
        let recording = scope.spawn(|| recorder.run(&|| stop.load(Ordering::Relaxed)).unwrap());
        server.stop();
        let archive = || Archive::existing(&repository).unwrap();
        until("a gap", || !archive().gaps().unwrap().is_empty());
        let before = archive().list().unwrap().entries.len();
        server.start();
        until("a snapshot after the gap", || archive().list().unwrap().entries.len() > before);
        stop.store(true, Ordering::Relaxed);
        recording.join().unwrap()
    });
    assert!(recorded[0].gaps > 0);
    let archive = Archive::existing(&repository).unwrap();
    assert!(archive.gaps().unwrap()[0].reason.contains("cannot"), "{:?}", archive.gaps());
    let (first, last) = (recorded[0].taken[0], *recorded[0].taken.last().unwrap());
    let across = Interval::between(&archive.find(first).unwrap(), &archive.find(last).unwrap());
    assert!(
        matches!(across, Err(Error::Restarted { .. })),
        "an interval across the restart is an error"
    );
}

#[test]
fn a_server_that_hangs_is_a_gap_while_it_hangs() {
    let Some(server) = servers::redis("a_server_that_hangs_is_a_gap_while_it_hangs") else {
        return;
    };
    servers::hang(&server, &url(&server), &mut Vec::new);
}

//! PostgreSQL as a source, against a real server: what it counts is what was done, and what breaks
//! the counting is an error.

use crate::servers;
use crate::servers::{Server, program, until};
use tiersmith_awr::sources::{LiveSource, Surroundings};
use tiersmith_awr::{Error, Interval, Sampling, Snapshot, render, report};

fn client(server: &Server) -> postgres::Client {
    let config = format!("host={} user=postgres dbname=postgres", server.path("").display());
    postgres::Client::connect(&config, postgres::NoTls).unwrap()
}

fn url(server: &Server, user: &str) -> String {
    format!("postgresql://{user}@/postgres?host={}", server.path("").display())
}

fn source(server: &Server) -> Box<dyn LiveSource> {
    server.source(&url(server, "postgres"), &Surroundings::default()).unwrap()
}

fn counter(snapshot: &Snapshot, name: &str) -> u64 {
    snapshot.counters.iter().find(|counter| counter.name == name).map_or(0, |counter| counter.value)
}

/// A snapshot in which every session but the source's own has ended, and how often was asked: a
/// session's counts reach the views before it leaves the list of sessions, and that is after its
/// client went.
fn alone(source: &mut dyn LiveSource, and: impl Fn(&Snapshot) -> bool) -> (Snapshot, u64) {
    let (mut asked, mut found) = (0, None);
    until("the counts of the sessions that ended", || {
        asked += 1;
        let snapshot = source.snapshot().unwrap();
        found = Some(snapshot).filter(|snapshot| snapshot.sessions == Some(1) && and(snapshot));
        found.is_some()
    });
    (found.unwrap(), asked)
}

#[test]
fn what_is_counted_is_what_was_committed() {
    let Some(server) = servers::postgres("what_is_counted_is_what_was_committed") else { return };
    let mut made = client(&server);
    made.batch_execute("CREATE TABLE t (i int)").unwrap();
    if program("pg_config").is_some() || program("psql").is_some() {
        // The extension's files come with the server on some systems and in a package of its own on
        // others.
        let _ = made.batch_execute("CREATE EXTENSION pg_stat_statements");
    }
    made.close().unwrap();
    let mut source = source(&server);
    let (begin, before) = alone(source.as_mut(), |_| true);
    let (committed, rolled_back) = (300, 20);
    let mut work = client(&server);
    for i in 0..committed {
        // As a simple query: preparing a statement is a transaction of its own.
        work.batch_execute(&format!("INSERT INTO t VALUES ({i})")).unwrap();
    }
    for _ in 0..rolled_back {
        work.batch_execute("BEGIN; DELETE FROM t; ROLLBACK").unwrap();
    }
    work.batch_execute("COMMENT ON TABLE t IS 'topsecret'").unwrap();
    work.close().unwrap();
    // Servers before 15 tell counts by messages, which may be on their way when the session has
    // left.
    let told =
        |end: &Snapshot| counter(end, "rows inserted") > counter(&begin, "rows inserted") + 300;
    let (end, after) = alone(source.as_mut(), told);
    let interval = Interval::between(&begin, &end).unwrap();
    // Besides: one COMMENT, the source's own transaction for each snapshot, and connecting.
    let commits = interval.counter("user commits").unwrap();
    assert!((301..301 + 60 + before + after).contains(&commits), "{commits} commits for 301");
    let rollbacks = interval.counter("user rollbacks").unwrap();
    assert!((20..24).contains(&rollbacks), "{rollbacks} rollbacks for 20");
    assert!(interval.counter("redo size").unwrap() > 300 * 30);
    // The comment is a row of the catalogue. Before 15 the rows of what was created may be told
    // only now.
    let inserted = interval.counter("rows inserted").unwrap();
    assert!((301..301 + 300).contains(&inserted), "{inserted} rows for 301");
    let text = render::text(&report(&interval));
    assert!(text.contains("PostgreSQL"), "{text}");
    assert!(!end.to_json().contains("topsecret"), "literals are taken out");
    if end.statements.is_empty() {
        assert!(
            end.missing.iter().any(|line| line.contains("CREATE EXTENSION pg_stat_statements")),
            "{:?}",
            end.missing
        );
    } else {
        let insert = interval
            .statements
            .rows
            .iter()
            .find(|row| row.text.starts_with("INSERT INTO t"))
            .unwrap();
        assert_eq!(insert.calls, 300);
    }
}

#[test]
fn resets_and_restarts_are_errors_and_not_figures() {
    let Some(mut server) = servers::postgres("resets_and_restarts_are_errors_and_not_figures")
    else {
        return;
    };
    let mut source = source(&server);
    let begin = source.snapshot().unwrap();
    client(&server).batch_execute("SELECT pg_stat_reset()").unwrap();
    let mut error = None;
    until("the reset to be seen", || {
        error = Interval::between(&begin, &source.snapshot().unwrap()).err();
        error.is_some()
    });
    let error = error.unwrap();
    assert!(
        matches!(error, Error::Reset { .. }) && error.to_string().contains("database postgres"),
        "{error}"
    );
    let before = source.snapshot().unwrap();
    server.stop();
    assert!(
        matches!(source.snapshot(), Err(Error::Source { .. })),
        "a server that is down is an error"
    );
    server.start();
    let after = source.snapshot().unwrap();
    let error = Interval::between(&before, &after).unwrap_err();
    assert!(matches!(error, Error::Restarted { .. }), "{error}");
}

#[test]
fn a_user_without_rights_gets_what_there_is_and_which_grant_gives_the_rest() {
    let Some(server) = servers::postgres(
        "a_user_without_rights_gets_what_there_is_and_which_grant_gives_the_rest",
    ) else {
        return;
    };
    // 13 would keep it as MD5, which these servers do not let in by.
    client(&server)
        .batch_execute(
            "SET password_encryption = 'scram-sha-256'; CREATE ROLE careful LOGIN PASSWORD \
             'hunter2'",
        )
        .unwrap();
    let without = server
        .source(&url(&server, "careful"), &Surroundings::default())
        .err()
        .unwrap()
        .to_string();
    assert!(without.contains("PGPASSWORD") && !without.contains("hunter2"), "{without}");
    let wrong = Surroundings::of([("PGPASSWORD", "hunter3")]);
    let wrong = server.source(&url(&server, "careful"), &wrong).err().unwrap().to_string();
    assert!(!wrong.contains("hunter"), "{wrong}");
    let right = Surroundings::of([("PGPASSWORD", "hunter2")]);
    let mut source = server.source(&url(&server, "careful"), &right).unwrap();
    let snapshot = source.snapshot().unwrap();
    assert!(
        snapshot.missing.iter().any(|line| line.contains("GRANT pg_monitor")),
        "{:?}",
        snapshot.missing
    );
    assert!(!snapshot.to_json().contains("hunter2"));
    let mut sampling = Sampling::new("s".to_owned(), 10);
    assert!(!source.look(&mut sampling).unwrap(), "nobody would seem active");
    client(&server).batch_execute("GRANT pg_monitor TO careful").unwrap();
    let mut source = server.source(&url(&server, "careful"), &right).unwrap();
    let snapshot = source.snapshot().unwrap();
    assert!(
        !snapshot.missing.iter().any(|line| line.contains("GRANT pg_monitor")),
        "{:?}",
        snapshot.missing
    );
    assert!(source.look(&mut sampling).unwrap());
    // What is timed for the recorder's sessions alone is not timed for those it records.
    let timed = |source: &mut dyn LiveSource| {
        let snapshot = source.snapshot().unwrap();
        let setting = snapshot.source.settings["track_io_timing"].clone();
        (snapshot.waits.iter().any(|wait| wait.name == "db file sequential read"), setting)
    };
    assert_eq!(timed(source.as_mut()), (true, "on".to_owned()));
    // The server is told so on its command line; a role may differ from that.
    client(&server).batch_execute("ALTER ROLE careful SET track_io_timing = on").unwrap();
    let mut source = server.source(&url(&server, "careful"), &right).unwrap();
    let (timed, setting) = timed(source.as_mut());
    assert!(!timed && setting.contains("for this session alone"), "{setting}");
}

#[test]
fn a_database_made_anew_under_its_name_is_a_reset() {
    let Some(server) = servers::postgres("a_database_made_anew_under_its_name_is_a_reset") else {
        return;
    };
    let mut work = client(&server);
    work.batch_execute("CREATE DATABASE d").unwrap();
    let mut source = source(&server);
    let before = source.snapshot().unwrap();
    work.batch_execute("DROP DATABASE d").unwrap();
    work.batch_execute("CREATE DATABASE d").unwrap();
    let error = Interval::between(&before, &source.snapshot().unwrap()).unwrap_err();
    assert!(matches!(error, Error::Reset { .. }), "{error}");
}

#[test]
fn a_server_that_hangs_is_a_gap_while_it_hangs() {
    let Some(server) = servers::postgres("a_server_that_hangs_is_a_gap_while_it_hangs") else {
        return;
    };
    let mut control = client(&server);
    servers::hang(&server, &url(&server, "postgres"), &mut || {
        let backends = "SELECT pid FROM pg_stat_activity WHERE application_name = 'tiersmith'";
        control.query(backends, &[]).unwrap().iter().map(|row| row.get::<_, i32>(0)).collect()
    });
}

#[test]
fn a_session_that_waits_for_a_lock_is_seen_waiting_for_it() {
    let Some(server) = servers::postgres("a_session_that_waits_for_a_lock_is_seen_waiting_for_it")
    else {
        return;
    };
    let mut holder = client(&server);
    holder.batch_execute("CREATE TABLE t (i int)").unwrap();
    holder.batch_execute("BEGIN; LOCK TABLE t").unwrap();
    let mut waiter = client(&server);
    let waiting = std::thread::spawn(move || waiter.batch_execute("SELECT count(*) FROM t"));
    let mut source = source(&server);
    let mut sampling = Sampling::new("s".to_owned(), 10);
    until("the waiting session to be seen", || {
        assert!(!waiting.is_finished(), "it waits for the lock");
        assert!(source.look(&mut sampling).unwrap());
        sampling
            .events
            .iter()
            .any(|event| event.name == "Lock: relation" && event.class == "Application")
    });
    assert!(sampling.looks > 0 && sampling.active_sessions().unwrap() > 0.0);
    holder.batch_execute("COMMIT").unwrap();
    waiting.join().unwrap().unwrap();
}

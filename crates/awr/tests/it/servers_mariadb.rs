//! MariaDB or MySQL as a source, against a real server: commits and syncs are those that were made;
//! without performance_schema the rest is there.

use crate::servers;
use crate::servers::Server;
use mysql::prelude::Queryable;
use tiersmith_awr::sources::{LiveSource, Surroundings};
use tiersmith_awr::{Error, Interval, Snapshot, render, report};

fn client(server: &Server) -> mysql::Conn {
    let socket = server.path("my.sock");
    mysql::Conn::new(mysql::OptsBuilder::new().socket(socket.to_str()).user(Some("root"))).unwrap()
}

fn is_mariadb(client: &mut mysql::Conn) -> bool {
    let version: Option<String> = client.query_first("SELECT VERSION()").unwrap();
    version.unwrap().contains("MariaDB")
}

fn source(server: &Server) -> Box<dyn LiveSource> {
    let url = format!("mariadb://root@/?socket={}", server.path("my.sock").display());
    server.source(&url, &Surroundings::default()).unwrap()
}

/// Sets the server's counters to zero.
fn flush_status(work: &mut mysql::Conn) {
    // The server's clock of flushes counts whole seconds: a flush in the first one cannot be told
    // from none.
    servers::until("the server's third second", || {
        let up: Option<(String, u64)> =
            work.query_first("SHOW GLOBAL STATUS LIKE 'Uptime'").unwrap();
        up.is_some_and(|(_, seconds)| seconds >= 2)
    });
    // MariaDB 11.5 gave the short form another meaning: the session's own counts alone.
    if work.query_drop("FLUSH GLOBAL STATUS").is_err() {
        work.query_drop("FLUSH STATUS").unwrap();
    }
}

#[test]
fn what_is_counted_is_what_was_committed_and_a_restart_is_an_error() {
    let Some(mut server) =
        servers::mariadb("what_is_counted_is_what_was_committed_and_a_restart_is_an_error")
    else {
        return;
    };
    let mut work = client(&server);
    work.query_drop("CREATE DATABASE d").unwrap();
    work.query_drop("CREATE TABLE d.t (i INT PRIMARY KEY, s VARCHAR(20)) ENGINE = InnoDB").unwrap();
    let mut source = source(&server);
    let begin = source.snapshot().unwrap();
    for i in 0..200 {
        work.query_drop(format!("INSERT INTO d.t VALUES ({i}, 'topsecret')")).unwrap();
    }
    // A statement is among the digests a moment after its client has the answer.
    let calls = |end: &Snapshot| {
        let rows = Interval::between(&begin, end).unwrap().statements.rows;
        rows.iter()
            .find(|row| row.text.contains("INSERT INTO `d` . `t`"))
            .map_or(0, |row| row.calls)
    };
    let mut end = source.snapshot().unwrap();
    servers::until("the last INSERT among the digests", || {
        end = source.snapshot().unwrap();
        calls(&end) >= 200
    });
    let interval = Interval::between(&begin, &end).unwrap();
    // The server's own threads commit now and then (purge, statistics of tables).
    let commits = interval.counter("user commits").unwrap();
    assert!((200..200 + 30).contains(&commits), "{commits} commits for 200");
    assert_eq!(interval.counter("INSERT statements"), Some(200));
    let insert = interval
        .statements
        .rows
        .iter()
        .find(|row| row.text.contains("INSERT INTO `d` . `t`"))
        .unwrap();
    assert_eq!(insert.calls, 200);
    assert!(!end.to_json().contains("topsecret"), "literals are taken out");
    assert!(interval.db_time_ns.unwrap() >= insert.total_ns, "the statements' time is in DB time");
    let redo = interval
        .waits
        .iter()
        .find(|wait| wait.name == "log file parallel write")
        .map_or(0, |wait| wait.count);
    assert!(redo > 0 || interval.counter("redo writes").unwrap_or(0) > 0, "redo was written");
    crate::reports::keep_page("mariadb.html", &render::html(&report(&interval)));
    let product = if is_mariadb(&mut work) { "MariaDB" } else { "MySQL" };
    assert!(render::text(&report(&interval)).contains(product));

    flush_status(&mut work);
    let error = Interval::between(&end, &source.snapshot().unwrap());
    assert!(error.is_err(), "{:?}", error.map(|interval| interval.counters));

    drop(work);
    let before = source.snapshot().unwrap();
    server.stop();
    assert!(matches!(source.snapshot(), Err(Error::Source { .. })));
    server.start_with("--performance-schema=OFF");
    server.start();
    let after = source.snapshot().unwrap();
    let error = Interval::between(&before, &after).unwrap_err();
    assert!(matches!(error, Error::Restarted { .. } | Error::Reset { .. }), "{error}");
    assert!(after.db_time_ns.is_none());
    let only_row_locks = after.waits.iter().all(|wait| wait.name == "row lock");
    assert!(only_row_locks, "InnoDB times these itself: {:?}", after.waits);
    assert!(
        after.missing.iter().any(|line| line.contains("performance_schema = ON")),
        "{:?}",
        after.missing
    );
}

#[test]
fn a_user_without_rights_and_a_wrong_password_are_told_what_to_do() {
    let Some(server) =
        servers::mariadb("a_user_without_rights_and_a_wrong_password_are_told_what_to_do")
    else {
        return;
    };
    client(&server).query_drop("CREATE USER careful@localhost IDENTIFIED BY 'hunter2'").unwrap();
    let url = format!("mariadb://careful@/?socket={}", server.path("my.sock").display());
    let error = server
        .source(&url, &Surroundings::of([("MYSQL_PWD", "hunter3")]))
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("MYSQL_PWD") && !error.contains("hunter"), "{error}");
    let snapshot = server
        .source(&url, &Surroundings::of([("MYSQL_PWD", "hunter2")]))
        .unwrap()
        .snapshot()
        .unwrap();
    assert!(snapshot.missing.iter().any(|line| line.contains("GRANT")), "{:?}", snapshot.missing);
    assert!(snapshot.counters.iter().any(|counter| counter.name == "user calls"));
    assert!(!snapshot.to_json().contains("hunter"));
    if !is_mariadb(&mut client(&server)) {
        // MySQL's servers of today have no such way to log in unless a plugin is loaded.
        return;
    }
    // Whom the system names at the other end of the socket.
    let me = std::process::Command::new("id")
        .arg("-un")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let me = String::from_utf8(me.stdout).unwrap();
    let me = me.trim();
    let made = format!("CREATE OR REPLACE USER '{me}'@localhost IDENTIFIED VIA unix_socket");
    client(&server).query_drop(made).unwrap();
    let url = format!("mariadb://{me}@/?socket={}", server.path("my.sock").display());
    server.source(&url, &Surroundings::default()).unwrap().snapshot().unwrap();
}

#[test]
fn a_server_that_hangs_is_a_gap_while_it_hangs() {
    let Some(server) = servers::mariadb("a_server_that_hangs_is_a_gap_while_it_hangs") else {
        return;
    };
    let url = format!("mariadb://root@/?socket={}", server.path("my.sock").display());
    servers::hang(&server, &url, &mut Vec::new);
}

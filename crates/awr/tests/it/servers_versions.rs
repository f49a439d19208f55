//! What a server does not tell, and which grant gives it, word for word, on real servers of
//! whatever version is there. `.ci/server_versions.sh` runs these with every version that can be
//! had; without it they run with the installed ones.
//!
//! Deliberately absent: what the figures are worth (`servers_truth.rs`), what each version tells
//! (`src/sources/recorded.rs`).

use crate::servers;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::servers::{Server, program, skip, until};
use mysql::prelude::Queryable;
use tiersmith_awr::sources::{LiveSource, Surroundings};
use tiersmith_awr::{Interval, Sampling, Snapshot};

fn has(snapshot: &Snapshot, line: &str) -> bool {
    snapshot.missing.iter().any(|missing| missing == line)
}

#[track_caller]
fn tells(snapshot: &Snapshot, lines: &[&str]) {
    for line in lines {
        assert!(has(snapshot, line), "{line}\nis not in\n{}", snapshot.missing.join("\n"));
    }
}

fn looked(source: &mut dyn LiveSource) -> bool {
    source.look(&mut Sampling::new("s".to_owned(), 10)).unwrap()
}

const OF_OTHERS: &str =
    "what other users' sessions and statements do; GRANT pg_monitor TO the user gives it";
const SYSTEM: &str = "the system identifier; GRANT EXECUTE ON FUNCTION pg_control_system() gives \
                      it \
                      (permission denied for function pg_control_system)";

#[test]
fn a_postgresql_user_with_no_right_learns_which_grant_gives_what() {
    let what = "a_postgresql_user_with_no_right_learns_which_grant_gives_what";
    let Some(server) = servers::postgres(what) else { return };
    let config = format!("host={} user=postgres dbname=postgres", server.path("").display());
    let mut work = postgres::Client::connect(&config, postgres::NoTls).unwrap();
    let statements = work.batch_execute("CREATE EXTENSION pg_stat_statements").is_ok();
    work.batch_execute(
        "CREATE ROLE nobody LOGIN; REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC",
    )
    .unwrap();
    let url = format!("postgresql://nobody@/postgres?host={}", server.path("").display());
    let mut source = server.source(&url, &Surroundings::default()).unwrap();
    let before = source.snapshot().unwrap();
    tells(&before, &[OF_OTHERS, SYSTEM]);
    assert!(!looked(source.as_mut()), "nobody would seem active");
    // Statements of others have neither number nor text: they must not be taken for one another.
    for i in 0..20 {
        work.batch_execute(&format!("CREATE TABLE t{i} (i int); INSERT INTO t{i} VALUES (1)"))
            .unwrap();
    }
    let after = source.snapshot().unwrap();
    assert!(
        after.statements.iter().all(|statement| !statement.text.is_empty()),
        "{:?}",
        after.statements
    );
    Interval::between(&before, &after).unwrap();
    work.batch_execute(
        "GRANT pg_monitor TO nobody; GRANT EXECUTE ON FUNCTION pg_control_system() TO nobody",
    )
    .unwrap();
    let mut source = server.source(&url, &Surroundings::default()).unwrap();
    let granted = source.snapshot().unwrap();
    assert!(!has(&granted, OF_OTHERS) && !has(&granted, SYSTEM), "{:?}", granted.missing);
    assert!(looked(source.as_mut()));
    if statements {
        assert!(granted.statements.iter().any(|of| of.text.starts_with("INSERT INTO t1")));
        // What was hidden before is not new: its counts are of all time. (With the identifier the
        // instance has another name.)
        assert!(Interval::between(&after, &granted).is_err() || !after.statements.is_empty());
    }
}

#[test]
fn statements_that_a_grant_uncovers_are_not_counted_as_new() {
    let what = "statements_that_a_grant_uncovers_are_not_counted_as_new";
    let Some(server) = servers::postgres(what) else { return };
    let config = format!("host={} user=postgres dbname=postgres", server.path("").display());
    let mut work = postgres::Client::connect(&config, postgres::NoTls).unwrap();
    if work.batch_execute("CREATE EXTENSION pg_stat_statements").is_err() {
        return skip(what, "this server came without pg_stat_statements");
    }
    work.batch_execute("CREATE ROLE nobody LOGIN; CREATE TABLE t (i int)").unwrap();
    for i in 0..50 {
        work.batch_execute(&format!("INSERT INTO t VALUES ({i})")).unwrap();
    }
    let url = format!("postgresql://nobody@/postgres?host={}", server.path("").display());
    let mut source = server.source(&url, &Surroundings::default()).unwrap();
    let before = source.snapshot().unwrap();
    work.batch_execute("GRANT pg_monitor TO nobody").unwrap();
    let after = source.snapshot().unwrap();
    assert!(
        after.statements.iter().any(|of| of.text.starts_with("INSERT INTO t")),
        "{:?}",
        after.statements
    );
    let interval = Interval::between(&before, &after).unwrap();
    assert!(!interval.statements.rows.iter().any(|of| of.text.starts_with("INSERT INTO t")));
}

const BY_PROCESS: &str = "the start time of the server, commits of single statements, what other \
                          users' sessions do, \
                          information_schema.innodb_metrics; GRANT PROCESS ON *.* TO the user \
                          gives it";
const BY_SELECT: &str = "waits, reads and writes by file, reads by table, DB time, transactions, \
                         what performance_schema counts, \
                         statements; GRANT SELECT ON performance_schema.* TO the user gives it";

const NO_REDO: &str =
    "the time of redo writes and syncs; this version's performance_schema has none";

#[test]
fn a_mysql_user_with_usage_only_learns_which_grant_gives_what() {
    let what = "a_mysql_user_with_usage_only_learns_which_grant_gives_what";
    let Some(server) = servers::mariadb(what) else { return };
    let socket = server.path("my.sock");
    let mut work =
        mysql::Conn::new(mysql::OptsBuilder::new().socket(socket.to_str()).user(Some("root")))
            .unwrap();
    work.query_drop("CREATE USER nobody@localhost IDENTIFIED BY 'hunter2'").unwrap();
    let url = format!("mysql://nobody@/?socket={}", socket.display());
    let password = Surroundings::of([("MYSQL_PWD", "hunter2")]);
    let snapshot = |server: &Server| {
        let mut source = server.source(&url, &password).unwrap();
        let looked = looked(source.as_mut());
        (source.snapshot().unwrap(), looked)
    };
    let (without, seen) = snapshot(&server);
    tells(&without, &[BY_PROCESS, BY_SELECT]);
    assert_eq!(without.missing.len(), 2, "{:?}", without.missing);
    assert!(!seen, "nobody would seem active");
    assert!(
        without.counters.iter().any(|counter| counter.name == "user calls" && counter.value > 0)
    );
    work.query_drop("GRANT PROCESS ON *.* TO nobody@localhost").unwrap();
    let (process, seen) = snapshot(&server);
    assert!(has(&process, BY_SELECT) && !has(&process, BY_PROCESS), "{:?}", process.missing);
    assert!(seen, "waits are not known to be measured");
    work.query_drop("GRANT SELECT ON performance_schema.* TO nobody@localhost").unwrap();
    let (all, _) = snapshot(&server);
    // MariaDB writes its redo since 10.8 in a way that no instrument sees: no grant helps.
    let more: Vec<&String> = all.missing.iter().filter(|line| *line != NO_REDO).collect();
    assert!(more.is_empty(), "{more:?}");
    let redo_timed = all.waits.iter().any(|wait| wait.name == "redo sync");
    assert_eq!(has(&all, NO_REDO), !redo_timed, "{:?}", all.missing);
    assert!(all.db_time_ns.is_some() && !all.waits.is_empty() && !all.statements.is_empty());
}

#[test]
fn a_mysql_password_goes_over_a_network_for_the_servers_key_only() {
    let what = "a_mysql_password_goes_over_a_network_for_the_servers_key_only";
    if program("mariadbd").is_some() {
        return skip(what, "MariaDB does not let users in by caching_sha2_password");
    }
    let mut started = None;
    // A port that was free may be somebody else's by the time the server binds it.
    for attempt in 0..5 {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let port_of = format!("--port={port}");
        // Without a certificate it has no encryption to offer.
        let arguments = ["--auto-generate-certs=OFF", "--bind-address=127.0.0.1", &port_of];
        let start = || servers::mariadb_with(what, &arguments);
        match catch_unwind(AssertUnwindSafe(start)) {
            Ok(Some(server)) => {
                started = Some((server, port));
                break;
            }
            Ok(None) => return,
            Err(panic) if attempt == 4 => resume_unwind(panic),
            Err(_) => {}
        }
    }
    let Some((server, port)) = started else { return };
    let options =
        mysql::OptsBuilder::new().socket(server.path("my.sock").to_str()).user(Some("root"));
    let mut work = mysql::Conn::new(options).unwrap();
    work.query_drop("CREATE USER far@'%' IDENTIFIED WITH caching_sha2_password BY 'hunter2'")
        .unwrap();
    let url = format!("mysql://far@127.0.0.1:{port}");
    let log_in = |password: &str| server.source(&url, &Surroundings::of([("MYSQL_PWD", password)]));
    let error = log_in("hunter3").err().unwrap().to_string();
    assert!(
        error.contains("1045") && error.contains("MYSQL_PWD") && !error.contains("hunter"),
        "{error}"
    );
    // The first time the server does not know the password from before, the second time it does.
    for _ in 0..2 {
        let version = log_in("hunter2").unwrap().snapshot().unwrap().source.version;
        assert!(version.contains('.'), "{version}");
    }
    work.query_drop("FLUSH PRIVILEGES").unwrap();
    log_in("hunter2").unwrap();
}

fn run(server: &Server, line: &str) {
    let mut stream = UnixStream::connect(server.path("r.sock")).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    stream.write_all(format!("{line}\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    answers.read_line(&mut answer).unwrap();
    assert!(answer.starts_with('+'), "{answer}");
}

#[test]
fn a_redis_user_with_few_commands_learns_which_rule_gives_what() {
    let what = "a_redis_user_with_few_commands_learns_which_rule_gives_what";
    let Some(server) = servers::redis(what) else { return };
    run(&server, "ACL SETUSER few on >hunter2 +ping");
    let url =
        format!("redis://few@{}", server.path("r.sock").display().to_string().replace('/', "%2F"));
    let password = Surroundings::of([("REDISCLI_AUTH", "hunter2")]);
    let mut source = match server.source(&url, &password) {
        Ok(source) => source,
        Err(error) => panic!("{error}"),
    };
    let error = source.snapshot().unwrap_err().to_string();
    assert!(
        error.contains("`+info +ping +latency +slowlog`") && !error.contains("hunter"),
        "{error}"
    );
    run(&server, "ACL SETUSER few +info");
    let some = source.snapshot().unwrap();
    let lines = [
        "the latency monitor; ACL SETUSER NAME +latency gives it",
        "the slow log; ACL SETUSER NAME +slowlog gives it",
    ];
    tells(&some, &lines);
    assert_eq!(some.missing.len(), 2, "{:?}", some.missing);
    run(&server, "ACL SETUSER few +latency +slowlog");
    let mut all = None;
    until("all to be told", || {
        all = Some(source.snapshot().unwrap());
        all.as_ref().is_some_and(|all| all.missing.is_empty())
    });
    assert!(!all.unwrap().to_json().contains("hunter"));
}

//! Situations with a known cause, made on a real PostgreSQL: the finding about the cause is there, and not
//! where there is no cause.

#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

mod servers;

use std::thread;
use std::time::Duration;

use servers::{Server, until};
use tiersmith_awr::findings::{Finding, findings};
use tiersmith_awr::sources::{LiveSource, Surroundings};
use tiersmith_awr::{Interval, Sampling, Snapshot};

fn client(server: &Server) -> postgres::Client {
    let config = format!("host={} user=postgres dbname=postgres", server.path("").display());
    postgres::Client::connect(&config, postgres::NoTls).unwrap()
}

fn source(server: &Server) -> Box<dyn LiveSource> {
    let url = format!("postgresql://postgres@/postgres?host={}", server.path("").display());
    server.source(&url, &Surroundings::default()).unwrap()
}

/// What is found between two snapshots.
fn found(begin: &Snapshot, end: &Snapshot) -> Vec<Finding> {
    findings(&Interval::between(begin, end).unwrap())
}

fn named<'a>(found: &'a [Finding], name: &str) -> Option<&'a Finding> {
    found.iter().find(|finding| finding.name == name)
}

#[test]
fn the_cause_is_found_where_there_is_one() {
    let Some(mut server) = servers::postgres("the_cause_is_found_where_there_is_one") else { return };
    let mut asked = source(&server);
    let mut work = client(&server);
    work.batch_execute("CREATE TABLE t (i int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)").unwrap();

    // Servers of tests run without fsync.
    let begin = asked.snapshot().unwrap();
    work.batch_execute("UPDATE t SET n = n + 1").unwrap();
    let unsafe_one = found(&begin, &asked.snapshot().unwrap());
    assert_eq!(unsafe_one[0].name, "A crash can lose what was acknowledged", "{unsafe_one:?}");
    assert!(unsafe_one[0].evidence[0].contains("fsync is off"), "{unsafe_one:?}");
    for absent in ["Sessions wait for locks", "Sorts and hashes spill to files"] {
        assert_eq!(named(&unsafe_one, absent), None, "{unsafe_one:?}");
    }

    // Three sessions want a row that a fourth has changed and keeps.
    let mut begin = asked.snapshot().unwrap();
    let mut sampling = Sampling::new("test".to_owned(), 20);
    begin.sampling = Some(sampling.clone());
    work.batch_execute("BEGIN; UPDATE t SET n = n + 1").unwrap();
    let end = thread::scope(|scope| {
        for _ in 0..3 {
            let mut waiting = client(&server);
            scope.spawn(move || waiting.batch_execute("UPDATE t SET n = n + 1").unwrap());
        }
        until("three sessions to wait", || {
            let mut look = Sampling::new("look".to_owned(), 20);
            asked.look(&mut look).unwrap() && look.seen() >= 3
        });
        for _ in 0..40 {
            assert!(asked.look(&mut sampling).unwrap());
            thread::sleep(Duration::from_millis(5));
        }
        let mut end = asked.snapshot().unwrap();
        end.sampling = Some(sampling.clone());
        work.batch_execute("COMMIT").unwrap();
        end
    });
    let locks = found(&begin, &end);
    let lock = named(&locks, "Sessions wait for locks").unwrap_or_else(|| panic!("{locks:?}"));
    assert!(lock.evidence.iter().any(|line| line.contains("Lock: ")), "{lock:?}");
    assert!(lock.advice.contains("pg_blocking_pids"), "{lock:?}");
    assert!(lock.impact_percent.is_some_and(|percent| percent > 50.0), "{lock:?}");

    // A sort of many megabytes in 64 kB.
    let begin = asked.snapshot().unwrap();
    let sort = "SET work_mem = '64kB'; \
                SELECT count(*) FROM (SELECT md5(i::text) FROM generate_series(1, 400000) i ORDER BY 1) s";
    work.batch_execute(sort).unwrap();
    work.close().unwrap();
    let mut spilled = Vec::new();
    until("the temporary files to be counted", || {
        spilled = found(&begin, &asked.snapshot().unwrap());
        named(&spilled, "Sorts and hashes spill to files").is_some()
    });
    let spill = named(&spilled, "Sorts and hashes spill to files").unwrap();
    assert!(spill.evidence[0].contains("temporary files with"), "{spill:?}");

    // The same server with fsync: that finding goes.
    server.stop();
    server.start_with("-cfsync=on");
    server.start();
    let mut asked = source(&server);
    let begin = asked.snapshot().unwrap();
    client(&server).batch_execute("UPDATE t SET n = n + 1").unwrap();
    let safe = found(&begin, &asked.snapshot().unwrap());
    assert_eq!(named(&safe, "A crash can lose what was acknowledged"), None, "{safe:?}");
}

//! Situations with a known cause, made on a real PostgreSQL and a real MariaDB: the finding about
//! the cause is the first, and none is about something that is not there.
//!
//! The servers are real, and so is everything they count. The host is not: other tests use its
//! processors, so each situation is given one ([`Situation::host`]).

use crate::servers;
use std::thread;
use std::time::{Duration, Instant};

use crate::servers::{Server, until};
use crate::situation::{BUSY, IDLE, Situation};
use mysql::prelude::Queryable;
use tiersmith_awr::Sampling;
use tiersmith_awr::sources::{LiveSource, Surroundings};

fn client(server: &Server) -> postgres::Client {
    let config = format!("host={} user=postgres dbname=postgres", server.path("").display());
    postgres::Client::connect(&config, postgres::NoTls).unwrap()
}

fn source(server: &Server) -> Box<dyn LiveSource> {
    let url = format!("postgresql://postgres@/postgres?host={}", server.path("").display());
    server.source(&url, &Surroundings::default()).unwrap()
}

/// Runs the same in several sessions for a time.
fn load(
    server: &Server,
    sessions: usize,
    time: Duration,
    each: impl Fn(&mut postgres::Client, u64) + Sync,
) {
    thread::scope(|scope| {
        for session in 0..sessions {
            let each = &each;
            scope.spawn(move || {
                let mut client = client(server);
                let began = Instant::now();
                let mut round = session as u64 * 1_000_003;
                while began.elapsed() < time {
                    each(&mut client, round);
                    round += 1;
                }
                client.close().unwrap();
            });
        }
    });
}

fn rows_of(server: &Server, sql: &str) {
    let mut work = client(server);
    work.batch_execute(sql).unwrap();
    work.batch_execute("CHECKPOINT").unwrap();
    work.close().unwrap();
}

/// 50,000 rows of about a kilobyte, and their key.
const WIDE: &str = "CREATE TABLE wide (i int PRIMARY KEY, n int, pad text); \
    INSERT INTO wide SELECT i, i, repeat('x', 900) FROM generate_series(1, 50000) i; ANALYZE wide";

fn by_key(client: &mut postgres::Client, round: u64) {
    let sql = "SELECT sum(n) FROM wide WHERE i = ANY(ARRAY(SELECT 1 + (k * 7919 + $1::int8 * \
               104729) % 50000 \
               FROM generate_series(1, 100) k)::int4[])";
    client.query(sql, &[&i64::try_from(round % 1_000_000).unwrap()]).unwrap();
}

#[test]
fn ten_causes_on_a_postgresql_are_found_first_and_nothing_else_is() {
    let Some(mut server) =
        servers::postgres("ten_causes_on_a_postgresql_are_found_first_and_nothing_else_is")
    else {
        return;
    };
    // Servers of tests run without fsync.
    let mut asked = source(&server);
    rows_of(&server, "CREATE TABLE t (i int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0)");
    let of = Situation::begin("postgresql-fsync-off", &mut *asked);
    client(&server).batch_execute("UPDATE t SET n = n + 1").unwrap();
    of.end(&mut *asked, IDLE).judge();
    server.stop();
    for argument in
        ["-cfsync=on", "-cjit=off", "-cmax_parallel_workers_per_gather=0", "-cshared_buffers=64MB"]
    {
        server.start_with(argument);
    }
    server.start();
    rows_of(&server, WIDE);
    let mut asked = source(&server);

    idle_on_a_busy_host(&server, &mut *asked);
    row_locks(&server, &mut *asked);
    spill(&server, &mut *asked);
    missing_index(&server, &mut *asked);
    processors(&server, &mut *asked);
    commits(&server, &mut *asked);

    server.stop();
    server.start_with("-cmax_wal_size=32MB");
    server.start_with("-cmin_wal_size=32MB");
    server.start();
    let mut asked = source(&server);
    frequent_checkpoints(&server, &mut *asked);

    server.stop();
    server.start_with("-cshared_buffers=2MB");
    server.start_with("-cmax_wal_size=1GB");
    server.start();
    let mut asked = source(&server);
    tiny_cache(&server, &mut *asked);
    fast_reads(&server, &mut *asked);
}

fn idle_on_a_busy_host(server: &Server, asked: &mut dyn LiveSource) {
    let of = Situation::begin("postgresql-idle-on-a-busy-host", asked);
    client(server).batch_execute("SELECT 1").unwrap();
    of.end(asked, BUSY).judge();
}

fn row_locks(server: &Server, asked: &mut dyn LiveSource) {
    let mut holder = client(server);
    let mut of = Situation::begin("postgresql-row-locks", asked);
    holder.batch_execute("BEGIN; UPDATE t SET n = n + 1").unwrap();
    let ended = thread::scope(|scope| {
        // Three sessions want a row that a fourth has changed and keeps.
        for _ in 0..3 {
            scope.spawn(|| client(server).batch_execute("UPDATE t SET n = n + 1").unwrap());
        }
        until("three sessions to wait", || {
            let mut look = Sampling::new("look".to_owned(), 20);
            asked.look(&mut look).unwrap() && look.seen() >= 3
        });
        (0..40).for_each(|_| of.look(asked));
        let ended = of.end(asked, BUSY);
        holder.batch_execute("COMMIT").unwrap();
        ended
    });
    let found = ended.judge();
    assert!(found[0].impact_percent.is_some_and(|percent| percent > 50.0), "{found:?}");
}

fn spill(server: &Server, asked: &mut dyn LiveSource) {
    let of = Situation::begin("postgresql-spill", asked);
    load(server, 1, Duration::from_millis(600), |client, _| {
        let sort = "SET work_mem = '64kB'; SELECT count(*) FROM (SELECT md5(i::text) FROM \
                    generate_series(1, 100000) i \
                    ORDER BY 1) s";
        client.batch_execute(sort).unwrap();
    });
    of.end(asked, IDLE).judge();
}

fn missing_index(server: &Server, asked: &mut dyn LiveSource) {
    let mut of = Situation::begin("postgresql-missing-index", asked);
    thread::scope(|scope| {
        let work = scope.spawn(|| {
            load(server, 2, Duration::from_millis(1500), |client, round| {
                let sql = "SELECT count(*) FROM wide WHERE n = $1::int4";
                client.query(sql, &[&i32::try_from(round % 50_000).unwrap()]).unwrap();
            });
        });
        of.look_while(asked, &|| !work.is_finished());
    });
    of.end(asked, BUSY).judge();
}

fn processors(server: &Server, asked: &mut dyn LiveSource) {
    let mut of = Situation::begin("postgresql-processors", asked);
    thread::scope(|scope| {
        let work = scope.spawn(|| {
            load(server, 2, Duration::from_millis(1500), |client, _| {
                client
                    .batch_execute("SELECT count(md5(i::text)) FROM generate_series(1, 20000) i")
                    .unwrap();
            });
        });
        of.look_while(asked, &|| !work.is_finished());
    });
    of.end(asked, BUSY).judge();
}

fn commits(server: &Server, asked: &mut dyn LiveSource) {
    rows_of(server, "CREATE TABLE log (i bigint, pad text)");
    let mut of = Situation::begin("postgresql-commits", asked);
    thread::scope(|scope| {
        let work = scope.spawn(|| {
            load(server, 4, Duration::from_secs(3), |client, round| {
                let sql = "INSERT INTO log VALUES ($1, repeat('x', 100))";
                client.execute(sql, &[&i64::try_from(round).unwrap()]).unwrap();
            });
        });
        of.look_while(asked, &|| !work.is_finished());
    });
    of.end(asked, IDLE).judge();
}

fn frequent_checkpoints(server: &Server, asked: &mut dyn LiveSource) {
    rows_of(
        server,
        "CREATE TABLE hot (i int PRIMARY KEY, n int, pad text); \
         INSERT INTO hot SELECT i, i, repeat('x', 900) FROM generate_series(1, 8000) i; ANALYZE \
         hot",
    );
    let of = Situation::begin("postgresql-frequent-checkpoints", asked);
    let mut work = client(server);
    let ended = of.end_when(asked, IDLE, |found| {
        if found.iter().any(|of| of.name == "Checkpoints too frequent") {
            return true;
        }
        work.batch_execute("UPDATE hot SET n = n + 1").unwrap();
        work.batch_execute("VACUUM hot").unwrap();
        false
    });
    ended.judge();
}

fn tiny_cache(server: &Server, asked: &mut dyn LiveSource) {
    // The system has the whole file in memory: reads are fast, and there are too many of them.
    client(server).batch_execute("SELECT sum(length(pad)) FROM wide").unwrap();
    let mut of = Situation::begin("postgresql-tiny-cache", asked);
    thread::scope(|scope| {
        let work = scope.spawn(|| load(server, 2, Duration::from_secs(2), by_key));
        of.look_while(asked, &|| !work.is_finished());
    });
    of.end(asked, IDLE).judge();
}

fn fast_reads(server: &Server, asked: &mut dyn LiveSource) {
    let of = Situation::begin("postgresql-fast-reads", asked);
    load(server, 2, Duration::from_secs(1), |client, round| {
        // One row of three hundred is not in the page cache, and the system has it.
        let sql = "SELECT sum(n) FROM wide WHERE i = ANY(ARRAY(SELECT CASE WHEN k = 1 THEN 1 + \
                   ($1::int8 * 104729) % 50000 \
                   ELSE k END FROM generate_series(1, 300) k)::int4[])";
        client.query(sql, &[&i64::try_from(round % 1_000_000).unwrap()]).unwrap();
    });
    of.end(asked, IDLE).judge();
}

fn mysql_client(server: &Server) -> mysql::Conn {
    let socket = server.path("my.sock");
    mysql::Conn::new(mysql::OptsBuilder::new().socket(socket.to_str()).user(Some("root"))).unwrap()
}

/// Runs the same in several sessions of a MariaDB for a time.
fn mysql_load(
    server: &Server,
    sessions: usize,
    time: Duration,
    each: impl Fn(&mut mysql::Conn, u64) + Sync,
) {
    thread::scope(|scope| {
        for session in 0..sessions {
            let each = &each;
            scope.spawn(move || {
                let mut client = mysql_client(server);
                let (began, mut round) = (Instant::now(), session as u64 * 1_000_003);
                while began.elapsed() < time {
                    each(&mut client, round);
                    round += 1;
                }
            });
        }
    });
}

#[test]
fn five_causes_on_a_mariadb_are_found_first_and_nothing_else_is() {
    let Some(server) =
        servers::mariadb("five_causes_on_a_mariadb_are_found_first_and_nothing_else_is")
    else {
        return;
    };
    let url = format!("mariadb://root@/?socket={}", server.path("my.sock").display());
    let mut asked = server.source(&url, &Surroundings::default()).unwrap();
    let asked = &mut *asked;
    let mut work = mysql_client(&server);
    work.query_drop("CREATE DATABASE d").unwrap();
    work.query_drop(
        "CREATE TABLE d.log (i BIGINT AUTO_INCREMENT PRIMARY KEY, n BIGINT, s VARCHAR(100)) ENGINE \
         = InnoDB",
    )
    .unwrap();

    // Nothing but small changes that are committed.
    let mut of = Situation::begin("mariadb-commits", asked);
    thread::scope(|scope| {
        let work = scope.spawn(|| {
            mysql_load(&server, 4, Duration::from_secs(2), |client, round| {
                client
                    .query_drop(format!("INSERT INTO d.log (n, s) VALUES ({round}, 'x')"))
                    .unwrap();
            });
        });
        of.look_while(asked, &|| !work.is_finished());
    });
    of.end(asked, IDLE).judge();
    for sql in [
        "CREATE TABLE d.t (i INT PRIMARY KEY, n INT, s VARCHAR(40)) ENGINE = InnoDB",
        "INSERT INTO d.t WITH RECURSIVE k (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM k WHERE i < \
         900) \
         SELECT a.i * 1000 + b.i, a.i, MD5(b.i) FROM k a JOIN k b ON b.i <= 25",
    ] {
        work.query_drop(sql).unwrap();
    }

    // Commits of the last second are given up.
    work.query_drop("SET GLOBAL innodb_flush_log_at_trx_commit = 2").unwrap();
    let of = Situation::begin("mariadb-commits-given-up", asked);
    work.query_drop("UPDATE d.t SET n = n + 1 WHERE i = 1001").unwrap();
    of.end(asked, IDLE).judge();
    work.query_drop("SET GLOBAL innodb_flush_log_at_trx_commit = 1").unwrap();

    // Three sessions want a row that a fourth has changed and keeps.
    let of = Situation::begin("mariadb-row-locks", asked);
    work.query_drop("BEGIN").unwrap();
    work.query_drop("UPDATE d.t SET n = n + 1 WHERE i = 1001").unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                mysql_client(&server).query_drop("UPDATE d.t SET n = n + 1 WHERE i = 1001").unwrap()
            });
        }
        thread::sleep(Duration::from_millis(500));
        work.query_drop("COMMIT").unwrap();
    });
    of.end(asked, BUSY).judge();

    // 22,500 rows are read for one.
    let of = Situation::begin("mariadb-missing-index", asked);
    mysql_load(&server, 2, Duration::from_secs(1), |client, round| {
        client.query_drop(format!("SELECT COUNT(*) FROM d.t WHERE s = 'a{round}'")).unwrap();
    });
    of.end(asked, IDLE).judge();

    // Groups that do not fit into the memory for temporary tables.
    let of = Situation::begin("mariadb-spill", asked);
    mysql_load(&server, 2, Duration::from_secs(1), |client, round| {
        let (from, to) = (1000 + round % 100 * 1000, 1100 + round % 100 * 1000);
        client.query_drop("SET SESSION tmp_table_size = 1024").unwrap();
        let sql = format!(
            "SELECT COUNT(*) FROM (SELECT MD5(s) AS m, i FROM d.t WHERE i BETWEEN {from} AND {to} \
             GROUP BY 1, 2 ORDER BY 2, 1) g"
        );
        client.query_drop(sql).unwrap();
    });
    of.end(asked, IDLE).judge();
}

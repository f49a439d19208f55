//! Real databases on a mounted home: killed, their daemon killed, both killed, under load; then every acknowledged row is there, the
//! database's own checks find nothing, and after `detach` a plain directory holds the same.
//!
//! PostgreSQL runs with `full_page_writes = off` and MariaDB with `innodb_doublewrite = 0`: no page may be torn. `TIERSMITH_KILL_ROUNDS` sets
//! how often each is killed (default 3, one of each kind), `TIERSMITH_SEED` the seed that is printed otherwise. What is wrong is printed as
//! `VIOLATION: ...`.

#![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

mod daemon;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use daemon::{Site as Place, can_mount, good, output, text, wait_until};
use serde_json::Value;
use tiersmith_lab::server::{self, Client, Product, Programs, Server, Site};

/// Sessions that write.
const SESSIONS: u64 = 2;
/// Accounts whose balances are changed; each session has its own.
const ACCOUNTS: u64 = 200;
/// Acknowledged transactions that a round waits for before it kills.
const ACKNOWLEDGED_MIN: u64 = 150;

/// What is killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Database,
    Daemon,
    Both,
}

/// A row's number, and the length of its payload in bytes.
type Row = (u64, u64);

/// What differs between the databases.
struct Subject {
    product: &'static dyn Product,
    /// Settings on the mounted home.
    settings: &'static [(&'static str, &'static str)],
    prepare: &'static [&'static str],
    /// One transaction: number, session, payload length.
    transaction: fn(u64, u64) -> Vec<String>,
    /// Every acknowledged number, with the length of its payload.
    found: fn(&mut dyn Client, &[u64]) -> Vec<Row>,
    /// What must hold besides.
    consistent: fn(&mut dyn Client) -> Result<(), String>,
    /// The database's own checks, while it runs.
    check_running: fn(&Server, &Programs) -> Result<(), String>,
    /// And when it is stopped.
    check_stopped: fn(&Path, &Programs, &Server) -> Command,
    dump: fn(&Server, &Programs) -> Vec<u8>,
}

fn payload_bytes(number: u64) -> u64 {
    100 + number * 37 % 900
}

fn violation(what: &str) -> ! {
    eprintln!("VIOLATION: {what}");
    panic!("VIOLATION: {what}");
}

/// Sessions that write until they are stopped or their server is gone.
struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<Mutex<Vec<u64>>>,
    sessions: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(subject: &Subject, server: &Server, next: &Arc<AtomicU64>) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let sessions = (0..SESSIONS).map(|session| {
            let mut client = server.client().unwrap();
            let (stop, acknowledged, next, transaction) =
                (stop.clone(), acknowledged.clone(), next.clone(), subject.transaction);
            std::thread::spawn(move || {
                while !stop.load(Ordering::SeqCst) {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    for statement in transaction(number, session) {
                        if client.batch(&statement).is_err() {
                            return;
                        }
                    }
                    acknowledged.lock().unwrap().push(number);
                }
            })
        });
        Load { stop: stop.clone(), acknowledged: acknowledged.clone(), sessions: sessions.collect() }
    }

    fn wait_for(&self, count: u64) {
        wait_until("transactions are acknowledged", || {
            self.acknowledged.lock().unwrap().len() as u64 >= count
                || self.sessions.iter().all(JoinHandle::is_finished)
        });
    }

    fn end(self) -> Vec<u64> {
        self.stop.store(true, Ordering::SeqCst);
        for session in self.sessions {
            session.join().unwrap();
        }
        std::mem::take(&mut *self.acknowledged.lock().unwrap())
    }
}

fn seed() -> u64 {
    std::env::var("TIERSMITH_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..))
}

fn rounds() -> u32 {
    std::env::var("TIERSMITH_KILL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

fn kill_loop(subject: &Subject) {
    let name = subject.product.name();
    let what = format!("{} on a mounted home", subject.product.title());
    let programs = match server::find(subject.product) {
        Ok(programs) => programs,
        Err(e) => return eprintln!("skipped: {what}, because {e}"),
    };
    if !can_mount(&what) {
        return;
    }
    let (seed, rounds) = (seed(), rounds());
    eprintln!("{name}: seed {seed}, {rounds} rounds");
    let mut random = fastrand::Rng::with_seed(seed);
    let place = Place::new();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_dir(&place.home).unwrap();
    let plain = Site::new(&place.home, place.path().join("server.log"));
    server::create(subject.product, &programs, &plain).unwrap();
    let mut mounted = plain.clone();
    mounted
        .settings
        .extend(subject.settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));

    let server = Server::start(subject.product, &programs, &plain).unwrap();
    let mut client = server.client().unwrap();
    for statement in subject.prepare {
        client.batch(statement).unwrap();
    }
    drop(client);
    server.stop().unwrap();
    let mut attached = place.attach_sized("64M", &[]);
    assert_eq!(attached["profile"], name, "{attached}");

    let next = Arc::new(AtomicU64::new(1));
    let mut acknowledged: Vec<u64> = Vec::new();
    for round in 0..rounds {
        let victim = [Victim::Both, Victim::Daemon, Victim::Database][round as usize % 3];
        let server = Server::start(subject.product, &programs, &mounted).unwrap();
        let load = Load::start(subject, &server, &next);
        load.wait_for(ACKNOWLEDGED_MIN + random.u64(0..200));
        let pid = attached["pid"].as_u64().unwrap();
        match victim {
            Victim::Database => server.kill(),
            Victim::Daemon => {
                place.kill_daemon(&attached);
                server.kill();
            }
            Victim::Both => {
                daemon::kill("STOP", pid);
                daemon::kill("KILL", pid);
                server.kill();
                place.kill_daemon(&attached);
            }
        }
        acknowledged.extend(load.end());
        if !matches!(victim, Victim::Database) {
            attached = place.attach_again();
            let recovery = attached["recovery"].as_str().unwrap();
            assert!(recovery.starts_with("opened in"), "{recovery}");
        }
        let server = Server::start(subject.product, &programs, &mounted).unwrap_or_else(|e| {
            violation(&format!(
                "{name} does not start after {victim:?} was killed (seed {seed}, round {round}): {e}"
            ))
        });
        verify(
            subject,
            &server,
            &programs,
            &acknowledged,
            &format!("after {victim:?} was killed (seed {seed}, round {round})"),
        );
        stop_and_check(subject, server, &programs, &place.home);
    }
    eprintln!("{name}: {} transactions acknowledged, {rounds} kills", acknowledged.len());

    let server = Server::start(subject.product, &programs, &mounted).unwrap();
    let before = (subject.dump)(&server, &programs);
    server.stop().unwrap();
    good(&["detach", place.home_str()]);
    let server = Server::start(subject.product, &programs, &plain).unwrap();
    verify(subject, &server, &programs, &acknowledged, &format!("after detach (seed {seed})"));
    let after = (subject.dump)(&server, &programs);
    if before != after {
        violation(&format!("{name}: the dump of the plain directory is another than before (seed {seed})"));
    }
    stop_and_check(subject, server, &programs, &place.home);
    assert_eq!(place.beside(), ["server.log"]);
    assert_eq!(fs::read_dir(&place.fast).unwrap().count(), 0, "a tier was left");
}

fn verify(subject: &Subject, server: &Server, programs: &Programs, acknowledged: &[u64], when: &str) {
    let name = subject.product.name();
    let mut client = server.client().unwrap();
    let found: std::collections::HashMap<u64, u64> =
        (subject.found)(&mut *client, acknowledged).into_iter().collect();
    for number in acknowledged {
        match found.get(number) {
            None => violation(&format!("{name}: acknowledged row {number} is not there {when}")),
            Some(bytes) if *bytes != payload_bytes(*number) => violation(&format!(
                "{name}: row {number} has {bytes} bytes, not {}, {when}",
                payload_bytes(*number)
            )),
            Some(_) => {}
        }
    }
    if let Err(why) =
        (subject.consistent)(&mut *client).and_then(|()| (subject.check_running)(server, programs))
    {
        violation(&format!("{name}: {why} {when}"));
    }
}

fn stop_and_check(subject: &Subject, server: Server, programs: &Programs, data: &Path) {
    let command = (subject.check_stopped)(data, programs, &server);
    server.stop().unwrap();
    if let Err(why) = run(command) {
        violation(&format!("{}: {why}", subject.product.name()));
    }
}

/// Runs a tool; what it printed when it failed.
fn run(mut command: Command) -> Result<Vec<u8>, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    let ended = output(child, &["a tool of the database"]);
    if ended.status.success() { Ok(ended.stdout) } else { Err(format!("{command:?} says: {}", text(&ended))) }
}

/// The lines of a dump in order, without the token that newer versions of `pg_dumpall` make up each time.
fn lines(dump: Vec<u8>) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = dump
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.starts_with(b"\\restrict ") && !line.starts_with(b"\\unrestrict "))
        .collect();
    lines.sort();
    lines.join(&b'\n')
}

/// A tool beside one that is known.
fn tool(programs: &Programs, known: &str, name: &str) -> std::path::PathBuf {
    programs.get(name).map_or_else(|| programs.get(known).unwrap().with_file_name(name), Path::to_path_buf)
}

fn numbers(client: &mut dyn Client, sql: &str) -> Vec<Row> {
    let rows = client.table(sql).unwrap();
    rows.iter().map(|row| (row[0].parse().unwrap(), row[1].parse().unwrap())).collect()
}

/// In SQL: a balance is changed and a row is written, together.
fn sql_transaction(number: u64, session: u64) -> Vec<String> {
    let account = 1 + (number * SESSIONS + session) % ACCOUNTS / SESSIONS * SESSIONS + session;
    vec![
        "BEGIN".into(),
        format!("UPDATE account SET balance = balance + 1 WHERE id = {account}"),
        format!("INSERT INTO acked VALUES ({number}, repeat('x', {}))", payload_bytes(number)),
        "COMMIT".into(),
    ]
}

fn sql_consistent(client: &mut dyn Client) -> Result<(), String> {
    let rows = client.number("SELECT count(*) FROM acked").map_err(|e| e.to_string())?;
    let sum = client.number("SELECT sum(balance) FROM account").map_err(|e| e.to_string())?;
    if rows == sum {
        Ok(())
    } else {
        Err(format!("{rows} rows and {sum} changes of balances: a transaction was torn apart"))
    }
}

#[test]
fn postgresql_keeps_what_it_acknowledged_whoever_is_killed() {
    kill_loop(&Subject {
        product: server::product("postgres").unwrap(),
        settings: &[
            ("full_page_writes", "off"),
            ("wal_recycle", "on"),
            ("max_wal_size", "64MB"),
            ("checkpoint_timeout", "30s"),
        ],
        prepare: &[
            "CREATE EXTENSION IF NOT EXISTS amcheck",
            "CREATE TABLE acked (id bigint PRIMARY KEY, payload text)",
            "CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL)",
            "INSERT INTO account SELECT n, 0 FROM generate_series(1, 400) n",
        ],
        transaction: sql_transaction,
        found: |client, _| numbers(client, "SELECT id, length(payload) FROM acked"),
        consistent: sql_consistent,
        check_running: |server, programs| {
            let mut amcheck = server.command(&tool(programs, "initdb", "pg_amcheck")).unwrap();
            amcheck.args(["--database", "postgres", "--heapallindexed"]);
            run(amcheck).map(|_| ())
        },
        check_stopped: |data, programs, server| {
            let mut checksums = server.command(&tool(programs, "initdb", "pg_checksums")).unwrap();
            checksums.args(["--check", "-D"]).arg(data);
            checksums
        },
        dump: |server, programs| {
            lines(run(server.command(&tool(programs, "initdb", "pg_dumpall")).unwrap()).unwrap())
        },
    });
}

#[test]
fn mariadb_keeps_what_it_acknowledged_whoever_is_killed() {
    kill_loop(&Subject {
        product: server::product("mariadb").unwrap(),
        settings: &[("innodb-doublewrite", "0"), ("innodb-buffer-pool-size", "16M")],
        prepare: &[
            "CREATE DATABASE shop",
            "USE shop",
            "CREATE TABLE shop.acked (id bigint PRIMARY KEY, payload text) ENGINE=InnoDB",
            "CREATE TABLE shop.account (id int PRIMARY KEY, balance bigint NOT NULL) ENGINE=InnoDB",
            "INSERT INTO shop.account SELECT seq, 0 FROM seq_1_to_400",
        ],
        transaction: |number, session| {
            let mut statements = sql_transaction(number, session);
            for statement in &mut statements {
                *statement = statement
                    .replace("UPDATE account", "UPDATE shop.account")
                    .replace("INTO acked", "INTO shop.acked");
            }
            statements
        },
        found: |client, _| numbers(client, "SELECT id, length(payload) FROM shop.acked"),
        consistent: |client| {
            client.batch("USE shop").map_err(|e| e.to_string())?;
            sql_consistent(client)
        },
        check_running: |server, _| {
            let mut client = server.client().map_err(|e| e.to_string())?;
            for table in ["shop.acked", "shop.account", "mysql.innodb_table_stats"] {
                let rows =
                    client.table(&format!("CHECK TABLE {table} EXTENDED")).map_err(|e| e.to_string())?;
                if rows.last().and_then(|row| row.last()).map(String::as_str) != Some("OK") {
                    return Err(format!("CHECK TABLE {table}: {rows:?}"));
                }
            }
            Ok(())
        },
        check_stopped: |data, _, _| {
            // MariaDB 10.11 has no check of its own for a directory at rest whose pages carry full checksums by default; the files are read whole.
            let mut read = Command::new("cat");
            read.arg(data.join("ibdata1"));
            read
        },
        dump: |server, programs| {
            let mut dump = server.command(&tool(programs, "mariadb-install-db", "mariadb-dump")).unwrap();
            dump.args([
                "--no-defaults",
                "-u",
                "root",
                "--skip-dump-date",
                "--skip-comments",
                "--databases",
                "shop",
            ]);
            run(dump).unwrap()
        },
    });
}

#[test]
fn redis_keeps_what_it_acknowledged_whoever_is_killed() {
    kill_loop(&Subject {
        product: server::product("redis").unwrap(),
        settings: &[],
        prepare: &["SET begun yes"],
        transaction: |number, _| {
            let payload = "x".repeat(payload_bytes(number) as usize);
            vec![format!("SET acked:{number} {payload}")]
        },
        found: |client, acknowledged| {
            acknowledged
                .iter()
                .map(|number| (*number, client.number(&format!("STRLEN acked:{number}")).unwrap()))
                .filter(|(_, bytes)| *bytes > 0)
                .collect()
        },
        consistent: |_| Ok(()),
        check_running: |server, _| {
            let mut client = server.client().map_err(|e| e.to_string())?;
            let answer = client.ask("PING").map_err(|e| e.to_string())?;
            if answer.contains("PONG") { Ok(()) } else { Err(answer) }
        },
        check_stopped: |data, programs, server| {
            let mut check = server.command(&tool(programs, "redis-server", "redis-check-aof")).unwrap();
            check.arg(data.join("appendonlydir/appendonly.aof.manifest"));
            check
        },
        dump: |server, _| {
            let mut client = server.client().unwrap();
            let keys = client.number("DBSIZE").unwrap();
            let digest = client.ask("DEBUG DIGEST").unwrap_or_else(|_| "no digest".into());
            format!("{keys} {digest}").into_bytes()
        },
    });
}

#[test]
fn a_database_that_runs_is_not_attached_and_one_that_uses_the_mount_is_not_detached() {
    let product = server::product("postgres").unwrap();
    let what = "a running PostgreSQL";
    let programs = match server::find(product) {
        Ok(programs) => programs,
        Err(e) => return eprintln!("skipped: {what}, because {e}"),
    };
    if !can_mount(what) {
        return;
    }
    let place = Place::new();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_dir(&place.home).unwrap();
    let site = Site::new(&place.home, place.path().join("server.log"));
    server::create(product, &programs, &site).unwrap();
    let server = Server::start(product, &programs, &site).unwrap();
    let attach = ["attach", place.home_str(), "--fast", place.fast_str(), "--emulate", "--size", "64M"];
    let said = daemon::refused(&attach);
    assert!(said.contains("in use") && said.contains("postgres"), "{said}");
    server.stop().unwrap();
    let attached: Value = place.attach_sized("64M", &[]);
    assert_eq!(attached["profile"], "postgres");
    let server = Server::start(product, &programs, &site).unwrap();
    server.client().unwrap().batch("CREATE TABLE t AS SELECT generate_series(1, 1000) n").unwrap();
    for command in ["detach", "unmount"] {
        let said = daemon::refused(&[command, place.home_str()]);
        assert!(said.contains("postgres"), "{said}");
    }
    assert_eq!(server.client().unwrap().number("SELECT count(*) FROM t").unwrap(), 1000);
    server.stop().unwrap();
    good(&["detach", place.home_str()]);
    assert_eq!(place.beside(), ["server.log"]);
}

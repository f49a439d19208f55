//! Real databases on a mounted home: killed, their daemon killed, both killed, under load; then
//! every acknowledged row is there, the database's own checks find nothing, and after `detach` a
//! plain directory holds the same.
//!
//! PostgreSQL runs with `full_page_writes = off` and MariaDB with `innodb_doublewrite = 0`: no page
//! may be torn. Once PostgreSQL mends torn pages itself, and is attached without atomic pages;
//! twice its tier is a block device, once with its WAL in files that the kernel writes.
//! `TIERSMITH_KILL_ROUNDS` sets how often each is killed (default 3, one of each kind),
//! `TIERSMITH_SEED` the seed that is printed otherwise. What is wrong is printed as
//! `VIOLATION: ...`.
//!
//! `TIERSMITH_TEST_SERVER_BIN` names a directory with the programs of another MariaDB, or of a
//! MySQL, whose tests then run alone (`.ci/server_versions.sh`).

use crate::daemon;
use crate::database;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::daemon::loops::Loop;
use crate::daemon::{Site as Place, can_mount, good, json};
use crate::database::mysql::{self, Mysql};
use crate::database::{
    Load, Subject, numbers, payload_bytes, run, sql_consistent, sql_transaction, stop_and_check,
    tool, verify,
};
use crate::volume::Volume;
use serde_json::Value;
use tiersmith_lab::server::{self, Programs, Server, Site};

/// Acknowledged transactions that a round waits for before it kills.
const ACKNOWLEDGED_MIN: u64 = 150;

/// What is killed.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Database,
    Daemon,
    Both,
}

fn violation(what: &str) -> ! {
    eprintln!("VIOLATION: {what}");
    panic!("VIOLATION: {what}");
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
    kill_loop_in(subject, "on", false, &Fast::Emulated);
}

/// What the tier is.
#[derive(Debug, PartialEq)]
enum Fast {
    Emulated,
    /// A loop device, and perhaps a directory for redo that the kernel writes itself.
    Device {
        passthrough: bool,
    },
}

impl Fast {
    /// Attaches a home for the first time. `None`, said on standard output, where that cannot be.
    fn attach(&self, place: &Place, pages: &str) -> Option<(Value, Option<Loop>)> {
        let pages = ["--atomic-pages", pages];
        let Fast::Device { passthrough } = self else {
            return Some((place.attach_sized("64M", &pages), None));
        };
        let device = Loop::new(place, "disk", 192)?;
        let wal = place.path().join("wal");
        let mut arguments = vec!["attach", place.home_str(), "--fast", device.str(), "--json"];
        arguments.extend(pages);
        if *passthrough {
            fs::create_dir(&wal).unwrap();
            let named = ["--passthrough-dir", wal.to_str().unwrap(), "--passthrough-max", "256M"];
            arguments.extend(named);
        }
        let attached = json(&good(&arguments));
        assert_eq!((&attached["flash"], &attached["emulated"]), (&true.into(), &false.into()));
        Some((attached, Some(device)))
    }

    /// Under load: who writes the WAL.
    fn look(&self, place: &Place) {
        let Fast::Device { passthrough } = self else { return };
        let live = place.live();
        let (lends, why) = (live["door"]["lends"] == true, live["door"]["lends_why"].to_string());
        if *passthrough && !lends {
            let known = ["only root may", "the kernel"];
            assert!(known.iter().any(|known| why.contains(known)), "{why}");
            return println!("skipped: WAL that the kernel writes, because {why}");
        }
        assert_eq!(lends, *passthrough, "{why}");
        assert_eq!(live["lent"]["files"].as_u64().unwrap() > 0, *passthrough, "{live}");
    }

    /// After detach, takes away what is not the home's.
    fn clear(&self, place: &Place, device: Option<Loop>) {
        let Some(device) = device else { return };
        let images = device.detach();
        fs::remove_dir_all(images.parent().unwrap()).unwrap();
        if *self == (Fast::Device { passthrough: true }) {
            // Empty, or this fails.
            fs::remove_dir(place.path().join("wal")).unwrap();
        }
    }
}

/// Makes the database, without Tiersmith.
fn create(subject: &Subject, programs: &Programs, plain: &Site) {
    server::create(subject.product, programs, plain).unwrap();
    let server = Server::start(subject.product, programs, plain).unwrap();
    let mut client = server.client().unwrap();
    for statement in subject.prepare {
        client.batch(statement).unwrap();
    }
    drop(client);
    server.stop().unwrap();
}

/// Kills; a home on a disk of its own loses power when both are killed.
fn kill(
    victim: Victim,
    server: Server,
    (place, attached): (&Place, &Value),
    volume: Option<&mut Volume>,
) {
    let pid = attached["pid"].as_u64().unwrap();
    match victim {
        Victim::Database => server.kill(),
        Victim::Daemon => {
            place.kill_daemon(attached);
            server.kill();
        }
        Victim::Both => {
            daemon::kill("STOP", pid);
            daemon::kill("KILL", pid);
            server.kill();
            place.kill_daemon(attached);
            if let Some(volume) = volume {
                volume.cut_power();
            }
        }
    }
}

/// Whether the plain directory has what was acknowledged, and its dump is what it was `before`.
fn holds_the_same(
    subject: &Subject,
    programs: &Programs,
    plain: &Site,
    acknowledged: &[u64],
    before: Vec<u8>,
) -> Result<(), String> {
    let server = Server::start(subject.product, programs, plain).unwrap();
    verify(subject, &server, programs, acknowledged)?;
    if (subject.dump)(&server, programs) != before {
        return Err("the dump of the plain directory is another than before".into());
    }
    stop_and_check(subject, server, programs, &plain.data)
}

/// `pages`: what `--atomic-pages` is. `volume`: the home is a mount point, whose disk loses power
/// when both are killed.
fn kill_loop_in(subject: &Subject, pages: &str, volume: bool, fast: &Fast) {
    let name = subject.product.title();
    let what = format!("{name} on a mounted home");
    let programs = match database::programs(subject.product) {
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
    create(subject, &programs, &plain);
    let mut mounted = plain.clone();
    mounted.settings.extend(
        subject.settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    );
    let mut volume = volume.then(|| Volume::of(&place, 512));
    if volume.as_ref().is_some_and(Option::is_none) {
        return;
    }
    let Some((mut attached, device)) = fast.attach(&place, pages) else { return };
    assert_eq!(attached["door"]["atomic_pages"], pages == "on", "{attached}");
    assert_eq!(attached["profile"], subject.product.name(), "{attached}");

    let next = Arc::new(AtomicU64::new(1));
    let mut acknowledged: Vec<u64> = Vec::new();
    for round in 0..rounds {
        let victim = [Victim::Both, Victim::Daemon, Victim::Database][round as usize % 3];
        let server = Server::start(subject.product, &programs, &mounted).unwrap();
        let load = Load::start(subject, &server, &next);
        load.wait_for(ACKNOWLEDGED_MIN + random.u64(0..200));
        fast.look(&place);
        kill(victim, server, (&place, &attached), volume.as_mut().and_then(Option::as_mut));
        acknowledged.extend(load.end());
        if !matches!(victim, Victim::Database) {
            attached = place.attach_again();
            let recovery = attached["recovery"].as_str().unwrap();
            assert!(recovery.starts_with("opened in"), "{recovery}");
        }
        let server = Server::start(subject.product, &programs, &mounted).unwrap_or_else(|e| {
            violation(&format!(
                "{name} does not start after {victim:?} was killed (seed {seed}, round {round}): \
                 {e}"
            ))
        });
        let checked = verify(subject, &server, &programs, &acknowledged)
            .and_then(|()| stop_and_check(subject, server, &programs, &place.home));
        if let Err(why) = checked {
            violation(&format!(
                "{name}: {why} after {victim:?} was killed (seed {seed}, round {round})"
            ));
        }
    }
    eprintln!("{name}: {} transactions acknowledged, {rounds} kills", acknowledged.len());

    let server = Server::start(subject.product, &programs, &mounted).unwrap();
    let before = (subject.dump)(&server, &programs);
    server.stop().unwrap();
    good(&["detach", place.home_str()]);
    fast.clear(&place, device);
    if let Err(why) = holds_the_same(subject, &programs, &plain, &acknowledged, before) {
        violation(&format!("{name}: {why} after detach (seed {seed})"));
    }
    assert_eq!(place.beside(), ["server.log"]);
    assert_eq!(fs::read_dir(&place.fast).unwrap().count(), 0, "a tier was left");
}

#[test]
fn postgresql_keeps_what_it_acknowledged_whoever_is_killed() {
    kill_loop(&database::postgres());
}

#[test]
fn postgresql_in_the_page_cache_keeps_what_it_acknowledged_whoever_is_killed() {
    let subject = database::postgres();
    let others = subject.settings.iter().filter(|(name, _)| *name != "full_page_writes");
    let settings: Vec<_> = others.copied().chain([("full_page_writes", "on")]).collect();
    kill_loop_in(&Subject { settings: settings.leak(), ..subject }, "off", false, &Fast::Emulated);
}

#[test]
fn postgresql_on_a_mount_point_keeps_what_it_acknowledged_whoever_is_killed() {
    kill_loop_in(&database::postgres(), "on", true, &Fast::Emulated);
}

#[test]
fn postgresql_on_a_block_device_keeps_what_it_acknowledged_whoever_is_killed() {
    kill_loop_in(&database::postgres(), "on", false, &Fast::Device { passthrough: false });
}

#[test]
fn postgresql_whose_wal_the_kernel_writes_besides_a_block_device_keeps_what_it_acknowledged() {
    kill_loop_in(&database::postgres(), "on", false, &Fast::Device { passthrough: true });
}

/// What `status` says while a server runs with this setting on its command line.
fn status_with(
    place: &Place,
    programs: &server::Programs,
    plain: &Site,
    full_page_writes: &str,
) -> (i32, Value) {
    let mut site = plain.clone();
    site.settings.push(("full_page_writes".into(), full_page_writes.into()));
    let server = Server::start(server::product("postgres").unwrap(), programs, &site).unwrap();
    let status = daemon::tiersmith(&["status", place.home_str(), "--json"]);
    server.stop().unwrap();
    (status.status.code().unwrap(), json(&status)["live"].clone())
}

#[test]
fn pages_are_atomic_unless_postgresql_is_proved_to_mend_torn_ones() {
    let product = server::product("postgres").unwrap();
    let what = "what PostgreSQL proves";
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
    let plain = Site::new(&place.home, place.path().join("server.log"));
    server::create(product, &programs, &plain).unwrap();
    let attached = place.attach_sized("64M", &["--sync-on-write", "always"]);
    assert_eq!(attached["door"]["atomic_pages"], true, "{attached}");
    good(&["detach", place.home_str()]);
    let attached = place.attach_sized("64M", &[]);
    assert_eq!(attached["door"]["atomic_pages"], false, "{attached}");
    assert!(
        attached["door"]["pages_why"].as_str().unwrap().contains("full_page_writes is on"),
        "{attached}"
    );
    let (code, live) = status_with(&place, &programs, &plain, "on");
    assert_eq!((code, &live["unprotected"]), (0, &Value::Null), "{live}");
    // Found off while it runs, and told of until the next attach.
    let (code, live) = status_with(&place, &programs, &plain, "off");
    let why = live["unprotected"].as_str().unwrap_or_default();
    assert_eq!(code, 1, "{live}");
    assert!(why.contains("postmaster.opts") && why.contains("--atomic-pages on"), "{live}");
    let (code, live) = status_with(&place, &programs, &plain, "on");
    assert_eq!(code, 1, "{live}");
    let shown = daemon::text(&daemon::tiersmith(&["status", place.home_str()]));
    assert!(shown.contains("TO MEND: pages are not atomic"), "{shown}");
    good(&["unmount", place.home_str()]);
    let again = place.attach_again();
    assert_eq!(again["door"]["atomic_pages"], false, "{again}");
    let _ = status_with(&place, &programs, &plain, "off");
    good(&["unmount", place.home_str()]);
    let again = place.attach_again();
    assert_eq!(again["door"]["atomic_pages"], true, "{again}");
    assert!(
        again["door"]["pages_why"].as_str().unwrap().contains("full_page_writes is off"),
        "{again}"
    );
    good(&["unmount", place.home_str()]);
    // What would tear pages that nobody mends is refused, and so is what is no mode.
    let said = daemon::refused(&["attach", place.home_str(), "--atomic-pages", "off"]);
    assert!(
        said.contains("full_page_writes is off") && said.contains("--atomic-pages on"),
        "{said}"
    );
    let said = daemon::tiersmith(&["attach", place.home_str(), "--atomic-pages", "maybe"]);
    assert!(String::from_utf8_lossy(&said.stderr).contains("auto, on, off"), "{said:?}");
    let again = json(&good(&["attach", place.home_str(), "--atomic-pages", "on", "--json"]));
    assert!(
        again["door"]["pages_why"].as_str().unwrap().contains("as --atomic-pages on says"),
        "{again}"
    );
    // The note remembers it.
    good(&["unmount", place.home_str()]);
    let again = place.attach_again();
    assert!(
        again["door"]["pages_why"].as_str().unwrap().contains("as --atomic-pages on says"),
        "{again}"
    );
    good(&["detach", place.home_str()]);
    assert_eq!(place.beside(), ["server.log"]);
}

#[test]
fn mariadb_keeps_what_it_acknowledged_whoever_is_killed() {
    kill_loop(&mariadb());
}

#[test]
fn mysql_keeps_what_it_acknowledged_whoever_is_killed() {
    // What is called mysqld in the path may be a MariaDB.
    if database::under_test().is_none() {
        return eprintln!(
            "skipped: MySQL on a mounted home, because TIERSMITH_TEST_SERVER_BIN names none"
        );
    }
    kill_loop(&Subject {
        product: &Mysql,
        settings: mysql::SETTINGS,
        check_running: |server, programs| {
            mysql::writes_pages_once(server)?;
            (mariadb().check_running)(server, programs)
        },
        check_stopped: mysql::check_stopped,
        ..mariadb()
    });
}

/// MariaDB, whose pages nothing but the tier keeps from being torn: `innodb_doublewrite = 0`.
fn mariadb() -> Subject {
    Subject {
        product: server::product("mariadb").unwrap(),
        settings: &[("innodb-doublewrite", "0"), ("innodb-buffer-pool-size", "16M")],
        prepare: &[
            "CREATE DATABASE shop",
            "USE shop",
            "CREATE TABLE shop.acked (id bigint PRIMARY KEY, payload text) ENGINE=InnoDB",
            "CREATE TABLE shop.account (id int PRIMARY KEY, balance bigint NOT NULL) ENGINE=InnoDB",
            "INSERT INTO shop.account WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id + 1 \
             FROM n WHERE id < 400) SELECT id, 0 FROM n",
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
                let rows = client
                    .table(&format!("CHECK TABLE {table} EXTENDED"))
                    .map_err(|e| e.to_string())?;
                if rows.last().and_then(|row| row.last()).map(String::as_str) != Some("OK") {
                    return Err(format!("CHECK TABLE {table}: {rows:?}"));
                }
            }
            Ok(())
        },
        check_stopped: |data, _, _| {
            // MariaDB 10.11 has no check of its own for a directory at rest whose pages carry full
            // checksums by default; the files are read whole.
            let mut read = Command::new("cat");
            read.arg(data.join("ibdata1"));
            read
        },
        dump: |server, programs| {
            let Some(program) = programs.get("mariadb-dump") else { return mysql::rows(server) };
            let mut dump = server.command(program).unwrap();
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
    }
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
            let mut bytes = |number: &u64| {
                client.number(&format!("STRLEN acked:{number}")).map_err(|e| e.to_string())
            };
            let rows: Result<Vec<(u64, u64)>, String> =
                acknowledged.iter().map(|number| Ok((*number, bytes(number)?))).collect();
            Ok(rows?.into_iter().filter(|(_, bytes)| *bytes > 0).collect())
        },
        consistent: |_| Ok(()),
        check_running: |server, _| {
            let mut client = server.client().map_err(|e| e.to_string())?;
            let answer = client.ask("PING").map_err(|e| e.to_string())?;
            if answer.contains("PONG") { Ok(()) } else { Err(answer) }
        },
        check_stopped: |data, programs, server| {
            let mut check =
                server.command(&tool(programs, "redis-server", "redis-check-aof")).unwrap();
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
    let attach =
        ["attach", place.home_str(), "--fast", place.fast_str(), "--emulate", "--size", "64M"];
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

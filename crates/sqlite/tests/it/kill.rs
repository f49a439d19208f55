//! A process that writes through SQLite is killed at random: every acknowledged transaction is
//! there, none is there by half.
//!
//! The test runs itself again as the writer, which prints the number of each transaction after its
//! COMMIT returned; the parent kills it (SIGKILL), looks at the path with a stock SQLite, which
//! must refuse, opens it through the VFS and checks (`support/ledger.rs`). The tier is a few times
//! the database at most, so destaging, draining and recovery go on all the time. In the last test
//! the writer attaches and detaches all the time, and the stock SQLite sees a whole database or
//! refuses.
//!
//! `TIERSMITH_SEED` repeats the choices of a run (not its timing); `TIERSMITH_KILLS` sets how many
//! kills each test does.

use crate::ledger;
use crate::support;

use crate::support::{
    Bench, again, assert_not_a_database, connect, fold, many, patiently, stock, until_free,
};
use rusqlite::Connection;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Child;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tiersmith_sqlite::place::{Place, PlaceError};

const WRITER: (&str, &str) = ("writer_that_is_killed", "TIERSMITH_KILLED_WRITER");
/// Bytes of the largest row: several pages.
const MOST: usize = 12_000;

/// Says a line with one system call, so that it is there whole or not at all.
fn say(line: &str) {
    let mut out = std::fs::OpenOptions::new().write(true).open("/proc/self/fd/1").unwrap();
    out.write_all(format!("\n{line}\n").as_bytes()).unwrap();
}

/// Not a test: what the parent starts. By itself it does nothing.
#[test]
fn writer_that_is_killed() {
    let Ok(role) = std::env::var(WRITER.1) else { return };
    let (pragmas, uri) = role.split_once('|').unwrap();
    if let Some(path) = pragmas.strip_prefix("cycle ") {
        attach_and_detach(uri, Path::new(path));
    } else if let Some(other) = pragmas.strip_prefix("both ") {
        write_both_until_killed(uri, other);
    } else {
        write_until_killed(uri, pragmas);
    }
}

fn open(uri: &str, pragmas: &str) -> Connection {
    let db = connect(uri).unwrap();
    db.execute_batch(pragmas).unwrap();
    ledger::prepare(&db).unwrap();
    db
}

fn write_until_killed(uri: &str, pragmas: &str) {
    let db = open(uri, pragmas);
    let last = ledger::check(&db).unwrap();
    say("ready");
    for n in last + 1.. {
        ledger::commit(&db, n, MOST).unwrap();
        say(&format!("ack {n}"));
    }
}

/// Transactions over two databases, each with its journal on its own tier.
fn write_both_until_killed(uri: &str, other: &str) {
    let db = connect(uri).unwrap();
    until_free(|| db.execute("ATTACH ? AS other", [other])).unwrap();
    for schema in ["main", "other"] {
        db.execute_batch(&format!(
            "CREATE TABLE IF NOT EXISTS {schema}.t(n INTEGER PRIMARY KEY, b)"
        ))
        .unwrap();
    }
    let last: i64 = db.query_row("SELECT ifnull(max(n), 0) FROM main.t", [], |r| r.get(0)).unwrap();
    say("ready");
    for n in last + 1.. {
        db.execute_batch(&format!(
            "BEGIN; INSERT INTO main.t VALUES ({n}, zeroblob(5000)); INSERT INTO other.t VALUES \
             ({n}, zeroblob(700));
             UPDATE main.t SET b = {n} WHERE n = {n} / 2; UPDATE other.t SET b = {n} WHERE n = {n} \
             / 3; COMMIT"
        ))
        .unwrap();
        say(&format!("ack {n}"));
    }
}

fn attach_and_detach(uri: &str, path: &Path) {
    say("ready");
    for cycle in 0.. {
        let db =
            open(uri, ["PRAGMA journal_mode = WAL", "PRAGMA journal_mode = DELETE"][cycle % 2]);
        let last = ledger::check(&db).unwrap();
        for n in last + 1..last + 4 {
            ledger::commit(&db, n, MOST).unwrap();
            say(&format!("ack {n}"));
        }
        drop(db);
        if cycle % 3 != 0 {
            patiently(|| Place::detach(path, &fold)).unwrap();
            // Plain for a while, so that kills fall there too.
            assert_eq!(ledger::check(&stock(path).unwrap()), Ok(last + 3));
        }
    }
}

fn start(role: &str) -> (Child, mpsc::Receiver<String>) {
    let mut child = again(&full_name!(WRITER.0), (WRITER.1, role)).spawn().unwrap();
    let (tell, lines) = mpsc::channel();
    let out = BufReader::new(child.stdout.take().unwrap());
    std::thread::spawn(move || {
        for line in out.lines() {
            let Ok(line) = line else { return };
            if tell.send(line).is_err() {
                return;
            }
        }
    });
    (child, lines)
}

/// Runs the writer for `time` after it is ready, kills it, and returns the newest transaction it
/// acknowledged.
fn kill_after(role: &str, time: Duration) -> i64 {
    let (mut child, lines) = start(role);
    let mut ready = false;
    while let Ok(line) = lines.recv_timeout(Duration::from_secs(120)) {
        ready = line == "ready";
        if ready {
            break;
        }
    }
    if ready {
        std::thread::sleep(time);
    }
    let ended = child.try_wait().unwrap();
    child.kill().unwrap();
    let status = child.wait().unwrap();
    if !ready || ended.is_some() || status.code().is_some() {
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        panic!("the writer ended by itself ({status}):\n{said}");
    }
    let number = |line: String| line.strip_prefix("ack ").map(|n| n.parse::<i64>().unwrap());
    lines.iter().filter_map(number).max().unwrap_or(0)
}

/// What is there after a kill: all that was acknowledged, and what was under way at most.
fn assert_sound(db: &Connection, acked: i64, round: u64, seed: u64) -> i64 {
    let last =
        ledger::check(db).unwrap_or_else(|e| panic!("round {round}, TIERSMITH_SEED={seed}: {e}"));
    assert!(
        acked == 0 || last == acked || last == acked + 1,
        "round {round}, TIERSMITH_SEED={seed}: {acked} was acknowledged, {last} is the newest there"
    );
    last
}

fn kill_again_and_again(what: &str, bench: &Bench, more: &str, pragmas: &str) {
    let seed = many("TIERSMITH_SEED", fastrand::u64(..));
    let mut rng = fastrand::Rng::with_seed(seed);
    // A disk takes its time for each commit.
    let kills = many("TIERSMITH_KILLS", if bench.label() == "EMULATED" { 40 } else { 10 });
    let (began, uri, mut newest) = (Instant::now(), bench.uri_with(more), 0);
    for round in 0..kills {
        let longest = if rng.bool() { 10_000 } else { 60_000 };
        // On a machine that is busy with other things the writer may not have come to its first
        // transaction yet.
        let late = if newest == 0 && round + 1 == kills { 3_000_000 } else { 0 };
        let acked = kill_after(
            &format!("{pragmas}|{uri}"),
            Duration::from_micros(late + rng.u64(..longest)),
        );
        assert_not_a_database(&bench.database());
        let db = open(&uri, "");
        let last = assert_sound(&db, acked, round, seed);
        assert!(last >= newest, "round {round}: {newest} was there before, now {last}");
        newest = last;
        drop(db);
        if round % 5 == 4 {
            bench.detach().unwrap();
            assert_eq!(ledger::check(&stock(&bench.database()).unwrap()), Ok(newest));
        }
    }
    println!(
        "{what} ({}): {kills} kills in {:.1} s, {newest} transactions, all that were acknowledged \
         are there",
        bench.label(),
        began.elapsed().as_secs_f64()
    );
    assert!(newest > 0, "no transaction was ever acknowledged");
}

#[test]
fn a_killed_writer_in_wal_mode_lost_nothing_acknowledged() {
    let pragmas = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 50";
    kill_again_and_again("WAL", &Bench::in_memory(), "", pragmas);
}

#[test]
fn a_killed_writer_in_wal_mode_with_exclusive_locking_lost_nothing_acknowledged() {
    let pragmas = "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA \
                   wal_autocheckpoint = 50";
    kill_again_and_again("WAL, exclusive", &Bench::in_memory(), "", pragmas);
}

#[test]
fn a_killed_writer_with_batches_lost_nothing_acknowledged() {
    kill_again_and_again("batch-atomic", &Bench::in_memory(), "", "PRAGMA journal_mode = DELETE");
}

/// `place=redo`: the database file passes, so it has no batches and SQLite writes a journal, which
/// is on the tier.
#[test]
fn a_killed_writer_with_a_rollback_journal_lost_nothing_acknowledged() {
    kill_again_and_again(
        "DELETE",
        &Bench::in_memory(),
        "&place=redo",
        "PRAGMA journal_mode = DELETE",
    );
}

#[test]
fn a_killed_writer_with_a_persistent_journal_lost_nothing_acknowledged() {
    kill_again_and_again(
        "PERSIST",
        &Bench::in_memory(),
        "&place=redo",
        "PRAGMA journal_mode = PERSIST",
    );
    kill_again_and_again(
        "PERSIST, batches",
        &Bench::in_memory(),
        "",
        "PRAGMA journal_mode = PERSIST",
    );
}

#[test]
fn a_killed_writer_with_a_truncated_journal_lost_nothing_acknowledged() {
    kill_again_and_again(
        "TRUNCATE",
        &Bench::in_memory(),
        "&place=redo",
        "PRAGMA journal_mode = TRUNCATE",
    );
}

#[test]
fn a_killed_writer_that_spills_its_page_cache_lost_nothing_acknowledged() {
    let pragmas = "PRAGMA cache_size = 2; PRAGMA journal_mode = DELETE";
    kill_again_and_again("spilling", &Bench::in_memory(), "", pragmas);
}

#[test]
fn a_killed_transaction_over_two_databases_is_in_both_or_in_neither() {
    let benches = [Bench::in_memory(), Bench::in_memory()];
    let uris = benches.each_ref().map(Bench::uri);
    let seed = many("TIERSMITH_SEED", fastrand::u64(..));
    let mut rng = fastrand::Rng::with_seed(seed);
    let kills = many("TIERSMITH_KILLS", 40);
    let mut newest = 0;
    for round in 0..kills {
        let late = if newest == 0 && round + 1 == kills { 3_000_000 } else { 0 };
        let time = Duration::from_micros(late + rng.u64(..30_000));
        let acked = kill_after(&format!("both {}|{}", uris[1], uris[0]), time);
        // In either order: the first that is rolled back asks for the other's journal.
        let order = if rng.bool() { [0, 1] } else { [1, 0] };
        let mut found = [0i64; 2];
        for which in order {
            let db = connect(&uris[which]).unwrap();
            let sound: String = db.query_row("PRAGMA integrity_check", [], |r| r.get(0)).unwrap();
            assert_eq!(sound, "ok", "round {round}, TIERSMITH_SEED={seed}");
            found[which] =
                db.query_row("SELECT ifnull(max(n), 0) FROM t", [], |r| r.get(0)).unwrap();
        }
        assert_eq!(
            found[0], found[1],
            "round {round}, TIERSMITH_SEED={seed}: a transaction is in one only"
        );
        let there = found[0] == acked || found[0] == acked + 1;
        assert!(
            acked == 0 || there,
            "round {round}, TIERSMITH_SEED={seed}: {acked} acknowledged, {found:?} there"
        );
        newest = found[0];
    }
    println!("two databases (EMULATED): {kills} kills, {newest} transactions, each in both");
    assert!(newest > 0, "no transaction was ever acknowledged");
}

#[test]
fn a_killed_writer_on_a_disk_lost_nothing_acknowledged() {
    kill_again_and_again("WAL, on disk", &Bench::new(), "", "PRAGMA journal_mode = WAL");
}

#[test]
fn a_killed_writer_with_its_tier_on_flash_lost_nothing_acknowledged() {
    for (more, pragmas) in [
        ("", "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 20"),
        ("", "PRAGMA journal_mode = DELETE"),
        ("&place=redo", "PRAGMA journal_mode = PERSIST"),
    ] {
        let Some(bench) = Bench::on_flash() else { return };
        kill_again_and_again("a tier on flash", &bench, more, pragmas);
    }
}

#[test]
fn a_process_killed_while_attaching_or_detaching_left_a_whole_database_or_the_stub() {
    let bench = Bench::in_memory();
    let seed = many("TIERSMITH_SEED", fastrand::u64(..));
    let mut rng = fastrand::Rng::with_seed(seed);
    let kills = many("TIERSMITH_KILLS", 40);
    let uri = bench.uri();
    let (mut newest, mut refused) = (0, 0);
    for round in 0..kills {
        let role = format!("cycle {}|{uri}", bench.database().display());
        let acked = kill_after(&role, Duration::from_micros(rng.u64(..40_000)));
        let seen = match Connection::open_with_flags_and_vfs(
            bench.database(),
            rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY,
            support::STOCK,
        ) {
            Ok(db) => ledger::check(&db),
            // Killed before the database was made.
            Err(e) => Err(e.to_string()),
        };
        match seen {
            Ok(last) => assert!(last >= acked, "round {round}: {acked} acknowledged, {last} there"),
            Err(e) if e.contains("not a database") => refused += 1,
            Err(e) => {
                assert!(newest == 0 && acked == 0, "round {round}, TIERSMITH_SEED={seed}: {e}")
            }
        }
        // The next one goes on: with a detach, or an open.
        if rng.bool() {
            match bench.detach() {
                Ok(()) | Err(PlaceError::NotAttached { .. }) => {}
                Err(e) => panic!("round {round}, TIERSMITH_SEED={seed}: {e}"),
            }
            if bench.database().exists() {
                let last = ledger::check(&stock(&bench.database()).unwrap()).unwrap();
                assert!(
                    last >= acked,
                    "round {round}: {acked} acknowledged, {last} there after detaching"
                );
            }
        }
        newest = assert_sound(&open(&uri, ""), acked, round, seed);
    }
    println!(
        "attaching and detaching (EMULATED): {kills} kills, {refused} with the stub at the path, \
         {newest} transactions"
    );
}

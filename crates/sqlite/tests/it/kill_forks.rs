//! A process that writes through SQLite forks children all the time, and is killed at random: every
//! acknowledged transaction is there, and no child keeps the database locked.
//!
//! The children do what programs do with a connection they inherited: use it, close it, open
//! another one, end, idle. With the planted bug, a program that does not notice that it was forked,
//! the same loop finds the loss.
//!
//! `TIERSMITH_SEED` and `TIERSMITH_KILLS` as in `kill.rs`.

use crate::ledger;

use crate::support::{Bench, again, connect, many};
use rusqlite::Connection;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tiersmith_store::process::{in_child, leave_forks_unseen, leave_idle_child};

const WRITER: (&str, &str) = ("writer_that_forks", "TIERSMITH_FORKING_WRITER");
/// Bytes of the largest row.
const MOST: usize = 3000;
/// How long a child idles.
const IDLE: Duration = Duration::from_secs(20);
/// Transactions from one child to the next.
const BETWEEN: i64 = 5;

/// Says a line with one system call, so that it is there whole or not at all.
fn say(line: &str) {
    let mut out = std::fs::OpenOptions::new().write(true).open("/proc/self/fd/1").unwrap();
    out.write_all(format!("\n{line}\n").as_bytes()).unwrap();
}

/// Not a test: what the parent starts. By itself it does nothing.
#[test]
fn writer_that_forks() {
    let Ok(role) = std::env::var(WRITER.1) else { return };
    let (how, uri) = role.split_once('|').unwrap();
    let (planted, pragmas) = how.split_once(':').unwrap();
    if planted != "seen" {
        leave_forks_unseen();
    }
    let db = connect(uri).unwrap();
    db.execute_batch(pragmas).unwrap();
    ledger::prepare(&db).unwrap();
    db.execute_batch("CREATE TABLE IF NOT EXISTS other(b)").unwrap();
    let last = ledger::check(&db).unwrap();
    let mut db = Some(db);
    say("ready");
    for n in last + 1.. {
        if n % BETWEEN == 0 {
            fork(n / BETWEEN, &mut db, uri, planted);
        }
        ledger::commit(db.as_ref().unwrap(), n, MOST).unwrap();
        say(&format!("ack {n}"));
    }
}

/// One child, which does one thing.
fn fork(turn: i64, db: &mut Option<Connection>, uri: &str, planted: &str) {
    let idle = turn % 4 == 3;
    if planted == "unseen" && turn % 4 > 1 || planted == "unseen and idle" && !idle {
        return;
    }
    if idle {
        let child = leave_idle_child(IDLE).unwrap();
        say(&format!("child {child}"));
        return;
    }
    let refused = in_child(|| {
        // Of another table than the parent's.
        let write = |db: &Connection| {
            (0..8).try_for_each(|_| {
                db.execute("INSERT INTO other VALUES (randomblob(2000))", []).map(drop)
            })
        };
        let refused = match turn % 4 {
            0 => write(db.as_ref().unwrap()).is_err(),
            // Should the parent be killed meanwhile, it is rightly let in.
            1 if planted == "seen" => Connection::open(uri).is_err(),
            1 => Connection::open(uri).and_then(|new| write(&new)).is_err(),
            // Closing the last connection checkpoints, where nobody stops it.
            _ => true,
        };
        if planted == "seen" {
            drop(db.take());
        }
        i32::from(!refused)
    });
    assert!(planted != "seen" || refused.unwrap() == 0, "a child was let in at turn {turn}");
}

/// Children that idle, ended with the value.
struct Idle(Vec<i32>);

impl Drop for Idle {
    fn drop(&mut self) {
        for child in self.0.iter().filter_map(|child| rustix::process::Pid::from_raw(*child)) {
            let _ = rustix::process::kill_process(child, rustix::process::Signal::KILL);
        }
    }
}

/// Lets the writer run for `time` and kills it. What it acknowledged, and its children, which live
/// on; or what it said when it ended by itself.
fn kill_after(role: &str, time: Duration) -> Result<(i64, Idle), String> {
    // A writer that finds its database damaged says so at once.
    let mut writer =
        again(&full_name!(WRITER.0), (WRITER.1, role)).env("RUST_BACKTRACE", "0").spawn().unwrap();
    let out = BufReader::new(writer.stdout.take().unwrap());
    let (tell, ready) = mpsc::channel();
    let reading = std::thread::spawn(move || {
        let (mut acked, mut children) = (0, Idle(Vec::new()));
        for line in out.lines().map_while(Result::ok) {
            if line == "ready" {
                let _ = tell.send(());
            } else if let Some(n) = line.strip_prefix("ack ") {
                acked = n.parse().unwrap();
            } else if let Some(child) = line.strip_prefix("child ") {
                children.0.push(child.parse().unwrap());
            }
        }
        (acked, children)
    });
    if ready.recv_timeout(Duration::from_secs(60)).is_ok() {
        std::thread::sleep(time);
    }
    let ended = writer.try_wait().unwrap();
    writer.kill().unwrap();
    writer.wait().unwrap();
    let left = reading.join().unwrap();
    let Some(status) = ended else { return Ok(left) };
    let mut said = String::new();
    writer.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    Err(format!("the writer ended by itself ({status}): {said}"))
}

/// Kills a writer `kills` times; the newest transaction, or what was found wrong.
fn rounds(planted: &str, pragmas: &str, kills: u64) -> Result<i64, String> {
    let seed = many("TIERSMITH_SEED", fastrand::u64(..));
    let mut rng = fastrand::Rng::with_seed(seed);
    let bench = Bench::in_memory();
    let role = format!("{planted}:{pragmas}|{}", bench.uri());
    let mut newest = 0;
    for round in 0..kills {
        let late = if newest == 0 && round + 1 == kills { 3000 } else { 0 };
        let (acked, children) = kill_after(&role, Duration::from_millis(late + rng.u64(..120)))?;
        let said =
            |e: String| format!("round {round}, TIERSMITH_SEED={seed}, {acked} acknowledged: {e}");
        tiersmith_sqlite::register().unwrap();
        // While the idle children live. Another one may outlive its parent by a moment.
        let end = Instant::now() + IDLE / 4;
        let db = loop {
            match Connection::open(bench.uri()) {
                Ok(db) => break db,
                Err(e) if Instant::now() > end => return Err(said(e.to_string())),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        let last = ledger::check(&db).map_err(said)?;
        if acked > 0 && last != acked && last != acked + 1 || last < newest {
            return Err(said(format!("{last} is the newest there, {newest} was there before")));
        }
        newest = last;
        drop((db, children));
    }
    println!(
        "forking writer (EMULATED): {kills} kills, {newest} transactions, all that were \
         acknowledged are there"
    );
    Ok(newest)
}

const MODES: [&str; 2] =
    ["PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 20", "PRAGMA journal_mode = DELETE"];

#[test]
fn a_killed_writer_with_forked_children_lost_nothing_acknowledged() {
    for pragmas in MODES {
        let newest = rounds("seen", pragmas, many("TIERSMITH_KILLS", 15)).unwrap();
        assert!(newest > 0, "no transaction was ever acknowledged");
    }
}

/// What the test above finds when forks are not noticed: idle children keep the lock, others damage
/// the database.
#[test]
fn with_forks_unseen_the_database_stays_locked_and_what_was_acknowledged_is_lost() {
    for pragmas in MODES {
        let locked = rounds("unseen and idle", pragmas, 40).unwrap_err();
        assert!(locked.contains("is in use by process"), "{locked}");
        let lost = rounds("unseen", pragmas, 40).unwrap_err();
        assert!(!lost.contains("is in use by process"), "{lost}");
        println!("found: {locked}; and {}", lost.lines().take(6).collect::<Vec<_>>().join(" "));
    }
}

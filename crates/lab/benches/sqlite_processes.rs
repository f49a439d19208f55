//! SQLite in several processes: the same database on the home's disk, on tmpfs, and in a mounted
//! home.
//!
//! `cargo bench -p tiersmith-lab --bench sqlite_processes -- [--quick]`; writes
//! `target/bench/sqlite_processes.json`. Needs root and `/dev/fuse`.
//!
//! Each process commits updates of one row, one after another: WAL, `synchronous = FULL`, the
//! default checkpoint, and a busy timeout, since SQLite lets one process write at a time. Homes are
//! in the build folder; tiers are in `/dev/shm` where it has room and stand for persistent memory
//! (EMULATED). One home has its pages in the page cache, as the profile `sqlite` has by itself, and
//! one is attached with atomic pages. On tmpfs nothing survives a power cut. The places take turns,
//! round by round.
//!
//! | key of `ratios` | is |
//! |---|---|
//! | `sqlite_N_processes_over_disk` | commits per second of N processes together, mounted home over disk: more is better |
//! | `sqlite_N_processes_over_tmpfs` | the same over tmpfs |
//! | `sqlite_N_processes_atomic_over_tmpfs` | the same with atomic pages |
//!
//! Deliberately absent: the VFS, which serves one process (`crates/sqlite/benches/commits.rs`).

#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

#[path = "../../../benches/report.rs"]
mod report;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use report::Report;
use rusqlite::Connection;
use tiersmith_lab::mounted::{self, MountedHome};
use tiersmith_lab::place::{self, Leftovers, TierPlace};
use tiersmith_store::Profile;

type Failed = Box<dyn Error>;

const PROCESSES: [u32; 3] = [1, 2, 4];
const PLACES: [&str; 4] =
    ["on the disk", "on tmpfs", "in the mounted home", "in a mounted home with atomic pages"];
const ROWS: u32 = 10_000;
/// In the environment of a process that commits: its database, for how many milliseconds, its
/// number.
const COMMIT: &str = "TIERSMITH_BENCH_COMMIT";
const TIER_BYTES: u64 = 256 << 20;

fn main() -> ExitCode {
    if let Ok(orders) = std::env::var(COMMIT) {
        return match commit(&orders) {
            Ok(commits) => {
                println!("{commits}");
                ExitCode::SUCCESS
            }
            Err(e) => {
                eprintln!("{e}");
                ExitCode::FAILURE
            }
        };
    }
    let mut report = Report::from_args("sqlite_processes", "SQLite in several processes, commits");
    let leftovers = Leftovers::default();
    let done = measure(&mut report, &leftovers);
    leftovers.clean();
    match done {
        Ok(()) => report.finish(),
        Err(e) => {
            eprintln!("sqlite_processes: {e}");
            ExitCode::from(2)
        }
    }
}

fn measure(report: &mut Report, leftovers: &Leftovers) -> Result<(), Failed> {
    let wishes = place::Wishes {
        home_bytes: 128 << 20,
        tier_bytes: 2 * TIER_BYTES,
        members: 1,
        ..place::Wishes::default()
    };
    let places = place::choose(&wishes, leftovers.clone())?;
    let TierPlace::Directory(tier) = &places.tier else {
        return Err("the tier is no directory".into());
    };
    let dirs = [
        places.home.join("disk"),
        tier.join("plain"),
        places.home.join("home"),
        places.home.join("atomic"),
    ];
    dirs.iter().try_for_each(std::fs::create_dir)?;
    if places.emulated() {
        report.warn("the tier is EMULATED: memory stands for persistent memory".to_owned());
    }
    let mut mounts = Vec::new();
    for (home, atomic_pages) in dirs[2..].iter().zip([false, true]) {
        let attach = mounted::Wishes {
            profile: Profile::named("sqlite")?,
            member: tier.join(format!("member{}", mounts.len())),
            bytes: TIER_BYTES,
            medium: places.medium,
            holds_nothing: false,
            atomic_pages,
            home_model: None,
        };
        let mount = MountedHome::new(home, &attach, leftovers)?;
        report.note(mount.remark().unwrap_or_default());
        mounts.push(mount);
    }
    report.version("sqlite", rusqlite::version());
    report.config("home_is_on", places.home_is_on.kind.as_str());
    report.config("tier_is_on", places.tier_is_on.kind.as_str());
    let databases = dirs.map(|dir| dir.join("app.db"));
    for database in &databases {
        fill(database)?;
    }
    let (rounds, milliseconds) = if report.quick() { (5, 1000) } else { (11, 3000) };
    for _ in 0..rounds {
        for processes in PROCESSES {
            for (name, database) in PLACES.iter().zip(&databases) {
                let rate = together(database, processes, milliseconds)?;
                report.run_in("commits/s", &group(processes), name, vec![rate]);
            }
        }
    }
    for processes in PROCESSES {
        let group = group(processes);
        for (key, place, peer) in [
            ("over_disk", PLACES[2], PLACES[0]),
            ("over_tmpfs", PLACES[2], PLACES[1]),
            ("atomic_over_tmpfs", PLACES[3], PLACES[1]),
        ] {
            let key = format!("sqlite_{processes}_processes_{key}");
            report.ratio_of_medians(&key, (&group, place), (&group, peer));
        }
    }
    databases.iter().try_for_each(|database| is_sound(database))?;
    for mount in mounts {
        mount.unmount()?;
    }
    Ok(())
}

fn group(processes: u32) -> String {
    format!("{processes} process{}", if processes == 1 { "" } else { "es" })
}

fn open(database: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(database)?;
    connection.busy_timeout(Duration::from_secs(30))?;
    connection.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")?;
    Ok(connection)
}

fn fill(database: &Path) -> rusqlite::Result<()> {
    let mut connection = open(database)?;
    connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, n INTEGER, text TEXT)", [])?;
    let filling = connection.transaction()?;
    for id in 0..ROWS {
        filling.execute("INSERT INTO rows VALUES (?1, 0, hex(zeroblob(50)))", [id])?;
    }
    filling.commit()
}

/// What is in a database after the run is what must be there.
fn is_sound(database: &Path) -> Result<(), Failed> {
    let sound: String =
        open(database)?.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if sound != "ok" {
        return Err(format!("{}: integrity_check: {sound}", database.display()).into());
    }
    Ok(())
}

/// Commits per second of so many processes together.
fn together(database: &Path, processes: u32, milliseconds: u64) -> Result<f64, Failed> {
    let program = std::env::current_exe()?;
    let began = Instant::now();
    let children: Vec<Child> = (0..processes)
        .map(|number| {
            let orders = format!("{milliseconds} {number} {}", database.display());
            Command::new(&program).env(COMMIT, orders).stdout(Stdio::piped()).spawn()
        })
        .collect::<Result<_, _>>()?;
    let mut commits = 0.0;
    for child in children {
        let said = child.wait_with_output()?;
        if !said.status.success() {
            return Err("a process could not commit".into());
        }
        commits += String::from_utf8(said.stdout)?.trim().parse::<f64>()?;
    }
    Ok(commits / began.elapsed().as_secs_f64())
}

/// The process that commits. Gives how often it did.
fn commit(orders: &str) -> Result<u64, Failed> {
    let mut words = orders.splitn(3, ' ');
    let mut next = || words.next().ok_or("the orders are too short");
    let until = Instant::now() + Duration::from_millis(next()?.parse()?);
    let mut random = next()?.parse::<u64>()?.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let connection = open(&PathBuf::from(next()?))?;
    let mut update = connection.prepare("UPDATE rows SET n = n + 1 WHERE id = ?1")?;
    let mut commits = 0;
    while Instant::now() < until {
        // Xorshift: which row matters little, that they differ does.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        update.execute([(random % u64::from(ROWS)) as u32])?;
        commits += 1;
    }
    Ok(commits)
}

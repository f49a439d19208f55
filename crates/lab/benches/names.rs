//! Making, renaming, cutting and removing files in an attached home, against the same in a plain
//! directory of the home's disk.
//!
//! `cargo bench -p tiersmith-lab --bench names -- [--quick] [--rounds N]`; writes
//! `target/bench/names.json`. Needs root and `/dev/fuse`; PostgreSQL for rows about a cluster.
//!
//! Homes are in the build folder; the tier is in `/dev/shm` where it has room and stands for
//! persistent memory (EMULATED). All are attached as `tiersmith attach --profile postgres` attaches
//! them: one whose pages the kernel keeps, as of a server whose `full_page_writes` is on; one with
//! atomic pages; and one that was empty when it was attached, for a cluster that is made in it.
//! Places take turns, round by round. Nothing is synced but by the programs themselves: of `initdb`
//! there is a row with its syncs and one without.
//!
//! | key of `ratios`, all less is better | is the time, attached with pages in the page cache over the disk, of |
//! |---|---|
//! | `create_unlink_over_plain` | making and removing a file among the relations |
//! | `rename_over_plain` | making a file and renaming it over another |
//! | `extend_over_plain`, `shrink_over_plain` | reserving 8 KiB more of a file; cutting 8 KiB off |
//! | `chmod_over_plain`, `open_close_over_plain` | the calls of these names |
//! | `untar_over_plain` | `tar -x` of a cluster, without its WAL |
//! | `atomic_KEY` | the same, attached with atomic pages |
//! | `initdb_over_plain` | `initdb` into a home that was attached empty; `initdb_no_sync_over_plain`: with `--no-sync` |
//! | `rm_cluster_over_plain` | removing that cluster |
//!
//! Deliberately absent: databases at work (`databases.rs`), reading and writing
//! (`crates/mount/benches`).

#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

#[path = "../../../benches/report.rs"]
mod report;

use std::error::Error;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use report::Report;
use rustix::fs::FallocateFlags;
use tiersmith_lab::mounted::{self, MountedHome};
use tiersmith_lab::place::{self, Leftovers, TierPlace};
use tiersmith_lab::process;
use tiersmith_lab::server::{self, Account, Product, Programs};
use tiersmith_store::Profile;

type Failed = Box<dyn Error>;

const DISK: &str = "on the disk";
const CACHED: &str = "attached, pages in the page cache";
const ATOMIC: &str = "attached, atomic pages";
const EMPTY: &str = "attached when it was empty";
const TIER_BYTES: u64 = 512 << 20;
const PAGE: u64 = 8192;
/// Operations of a round.
const TIMES: usize = 300;
/// Where a relation is in a cluster.
const RELATIONS: &str = "base/1";

/// What is timed, so many times, in a directory.
type Operation = fn(&Path, usize) -> std::io::Result<()>;
const OPERATIONS: [(&str, Operation, Operation); 6] = [
    ("create_unlink", nothing, create_unlink),
    ("rename", make_target, rename_over),
    ("extend", make_target, extend),
    ("shrink", make_long, shrink),
    ("chmod", make_target, change_mode),
    ("open_close", make_target, open_close),
];

/// A home, or a plain directory.
struct Way {
    name: &'static str,
    top: PathBuf,
    mount: Option<MountedHome>,
}

/// PostgreSQL, if it is here.
struct Postgres {
    product: &'static dyn Product,
    programs: Programs,
    account: Option<Account>,
}

fn main() -> ExitCode {
    let mut report = Report::from_args("names", "Names in an attached home, against a plain one");
    let leftovers = Leftovers::default();
    let done = measure(&mut report, &leftovers);
    leftovers.clean();
    match done {
        Ok(()) => report.finish(),
        Err(e) => {
            eprintln!("names: {e}");
            ExitCode::from(2)
        }
    }
}

fn measure(report: &mut Report, leftovers: &Leftovers) -> Result<(), Failed> {
    let rounds = std::env::args().skip_while(|word| word != "--rounds").nth(1);
    let rounds: usize = match rounds {
        Some(text) => text.parse()?,
        None if report.quick() => 5,
        None => 11,
    };
    let postgres = found_postgres(report)?;
    let wishes = place::Wishes {
        home_bytes: 1 << 30,
        tier_bytes: 3 * TIER_BYTES,
        members: 1,
        reachable_by: postgres.as_ref().and_then(|found| found.account.clone()),
        ..place::Wishes::default()
    };
    let places = place::choose(&wishes, leftovers.clone())?;
    if places.emulated() {
        report.warn("the tier is EMULATED: memory stands for persistent memory");
    }
    report.config("home_is_on", places.home_is_on.kind.as_str());
    report.config("tier_is_on", places.tier_is_on.kind.as_str());
    let ways = ways(report, &places, leftovers)?;
    for round in 0..rounds {
        for (key, prepare, operation) in OPERATIONS {
            for way in in_turn(&ways, round).into_iter().filter(|way| way.name != EMPTY) {
                let dir = way.top.join(RELATIONS);
                prepare(&dir, TIMES)?;
                let took = timed(|| Ok(operation(&dir, TIMES)?))?;
                report.run(key, way.name, vec![took / TIMES as f64]);
                empty(&dir, None)?;
            }
        }
        if let Some(postgres) = &postgres {
            clusters(report, postgres, &ways, &places.home, round)?;
        }
    }
    ratios(report);
    for way in ways {
        if let Some(mount) = way.mount {
            mount.unmount()?;
        }
    }
    Ok(())
}

fn found_postgres(report: &mut Report) -> Result<Option<Postgres>, Failed> {
    let product = server::product("postgres")?;
    Ok(match server::find(product) {
        Ok(programs) => Some(Postgres { product, programs, account: server::account(product)? }),
        Err(e) => {
            report.warn(format!("nothing about a cluster was measured: {e}"));
            None
        }
    })
}

/// The plain directory, and three homes as `tiersmith attach` attaches them.
fn ways(
    report: &mut Report,
    places: &place::Places,
    leftovers: &Leftovers,
) -> Result<Vec<Way>, Failed> {
    let TierPlace::Directory(tier) = &places.tier else {
        return Err("the tier is no directory".into());
    };
    let mut ways = vec![Way { name: DISK, top: places.home.join("plain"), mount: None }];
    fs::create_dir_all(ways[0].top.join(RELATIONS))?;
    for (number, (name, atomic_pages)) in
        [(CACHED, false), (ATOMIC, true), (EMPTY, true)].into_iter().enumerate()
    {
        let top = places.home.join(format!("home{number}"));
        fs::create_dir(&top)?;
        if name != EMPTY {
            fs::create_dir_all(top.join(RELATIONS))?;
            fs::create_dir(top.join("pg_wal"))?;
        }
        let attach = mounted::Wishes {
            profile: Profile::named("postgres")?,
            member: tier.join(format!("member{number}")),
            bytes: TIER_BYTES,
            medium: places.medium,
            holds_nothing: false,
            atomic_pages,
            home_model: None,
        };
        let mount = MountedHome::new(&top, &attach, leftovers)?;
        report.note(format!("{name}: {}", mount.remark().unwrap_or_default()));
        ways.push(Way { name, top, mount: Some(mount) });
    }
    Ok(ways)
}

/// Who is first changes from round to round.
fn in_turn(ways: &[Way], round: usize) -> Vec<&Way> {
    if round.is_multiple_of(2) { ways.iter().collect() } else { ways.iter().rev().collect() }
}

fn timed(work: impl FnOnce() -> Result<(), Failed>) -> Result<f64, Failed> {
    // What was left to be written is not this one's to wait for.
    rustix::fs::sync();
    let began = Instant::now();
    work()?;
    Ok(began.elapsed().as_nanos() as f64)
}

/// Removes what is in a directory, but for one name.
fn empty(dir: &Path, without: Option<&str>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if without.is_some_and(|name| entry.file_name() == name) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Makes a cluster, removes it, and unpacks one.
fn clusters(
    report: &mut Report,
    postgres: &Postgres,
    ways: &[Way],
    scratch: &Path,
    round: usize,
) -> Result<(), Failed> {
    let tar = scratch.join("cluster.tar");
    for (row, no_sync) in [("initdb", false), ("initdb_no_sync", true)] {
        for way in in_turn(ways, round) {
            let top = match way.name {
                DISK => scratch.join("cluster"),
                EMPTY => way.top.clone(),
                _ => continue,
            };
            fs::create_dir_all(&top)?;
            fs::set_permissions(&top, Permissions::from_mode(0o700))?;
            if let Some(account) = &postgres.account {
                chown(&top, Some(account.uid), Some(account.gid))?;
            }
            let took = timed(|| initdb(postgres, &top, no_sync))?;
            report.run_in("s", row, way.name, vec![took / 1e9]);
            if !tar.exists() {
                run(Command::new("tar").arg("-cf").arg(&tar).arg("--exclude=./pg_wal/*").args([
                    "-C".as_ref(),
                    top.as_os_str(),
                    ".".as_ref(),
                ]))?;
            }
            let took = timed(|| Ok(empty(&top, None)?))?;
            if !no_sync {
                report.run_in("s", "rm_cluster", way.name, vec![took / 1e9]);
            }
        }
    }
    for way in in_turn(ways, round) {
        let took = timed(|| run(Command::new("tar").arg("-xf").arg(&tar).arg("-C").arg(&way.top)))?;
        report.run_in("s", "untar", way.name, vec![took / 1e9]);
        empty(&way.top, Some("pg_wal"))?;
        if way.name == EMPTY {
            fs::remove_dir_all(way.top.join("pg_wal"))?;
        } else {
            fs::create_dir_all(way.top.join(RELATIONS))?;
        }
    }
    Ok(())
}

fn initdb(postgres: &Postgres, top: &Path, no_sync: bool) -> Result<(), Failed> {
    let words = postgres.product.creation(&postgres.programs, top).ok_or("nothing makes it")?;
    let words: Vec<OsString> =
        words.into_iter().filter(|word| no_sync || word != "--no-sync").collect();
    let (program, arguments) = words.split_first().ok_or("nothing makes it")?;
    run(&mut process::command(Path::new(program), arguments, postgres.account.as_ref())?)
}

fn run(command: &mut Command) -> Result<(), Failed> {
    let done = command.output()?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    Err(format!("{} ended with {}: {said}", command.get_program().display(), done.status).into())
}

fn ratios(report: &mut Report) {
    let keys = OPERATIONS.map(|(key, ..)| key).into_iter().chain(["untar"]);
    for key in keys {
        report.ratio_of_medians(&format!("{key}_over_plain"), (key, CACHED), (key, DISK));
        let atomic = format!("atomic_{key}_over_plain");
        report.ratio_of_medians(&atomic, (key, ATOMIC), (key, DISK));
    }
    for key in ["initdb", "initdb_no_sync", "rm_cluster"] {
        report.ratio_of_medians(&format!("{key}_over_plain"), (key, EMPTY), (key, DISK));
    }
}

const NAME: &str = "16384";

fn nothing(_: &Path, _: usize) -> std::io::Result<()> {
    Ok(())
}

fn make_target(dir: &Path, _: usize) -> std::io::Result<()> {
    File::create_new(dir.join(NAME)).map(drop)
}

fn make_long(dir: &Path, times: usize) -> std::io::Result<()> {
    let file = File::create_new(dir.join(NAME))?;
    (0..times as u64).try_for_each(|n| file.write_all_at(&[1; PAGE as usize], n * PAGE))
}

fn create_unlink(dir: &Path, times: usize) -> std::io::Result<()> {
    let path = dir.join(NAME);
    for _ in 0..times {
        drop(File::create_new(&path)?);
        fs::remove_file(&path)?;
    }
    Ok(())
}

fn rename_over(dir: &Path, times: usize) -> std::io::Result<()> {
    let (from, to) = (dir.join("16385"), dir.join(NAME));
    for _ in 0..times {
        drop(File::create_new(&from)?);
        fs::rename(&from, &to)?;
    }
    Ok(())
}

fn extend(dir: &Path, times: usize) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).open(dir.join(NAME))?;
    for n in 0..times as u64 {
        rustix::fs::fallocate(&file, FallocateFlags::empty(), n * PAGE, PAGE)?;
    }
    Ok(())
}

fn shrink(dir: &Path, times: usize) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).open(dir.join(NAME))?;
    (0..times as u64).rev().try_for_each(|n| file.set_len(n * PAGE))
}

fn change_mode(dir: &Path, times: usize) -> std::io::Result<()> {
    let path = dir.join(NAME);
    let mode = |n: usize| if n.is_multiple_of(2) { 0o640 } else { 0o600 };
    (0..times).try_for_each(|n| fs::set_permissions(&path, Permissions::from_mode(mode(n))))
}

fn open_close(dir: &Path, times: usize) -> std::io::Result<()> {
    let path = dir.join(NAME);
    (0..times).try_for_each(|_| File::open(&path).map(drop))
}

//! What one operation at the mount costs: a durable redo write, a read from the tier, a cached
//! read; over each transport that the kernel offers, beside tmpfs and the home's own file system.
//!
//! `cargo bench -p tiersmith-mount --bench operations -- [--quick]`; writes
//! `target/bench/operations.json`. Needs `/dev/fuse` and root; FUSE over io_uring is measured where
//! the kernel has it switched on, passthrough where the kernel offers it.
//!
//! One thread; the tier is a file in `/dev/shm`, or in the build folder when there is no room, and
//! stands for persistent memory (EMULATED). The home of the redo and data files is on the build
//! folder's disk; that of the file that is passed through is beside the tier, for what FUSE itself
//! costs. Peers take turns, round by round.
//!
//! | key of `ratios` | is |
//! |---|---|
//! | `redo_write_sync_8k_us` | microseconds of an 8 KiB write to a redo file and `fdatasync`, durable, as `attach` does it for a file of fixed size (a segment of PostgreSQL's WAL): lent, so written by the kernel itself. Where nothing is lent, the next |
//! | `redo_write_sync_8k_us_daemon` | the same through the daemon, as of every other redo file: the fastest way to mount measured here |
//! | `redo_write_sync_8k_us_WAY` | the same for each way to mount; `lent`: not through the daemon; `asked`: `fdatasync` reaches the daemon |
//! | `redo_over_passthrough` | time of that over the same to a file on tmpfs that FUSE passes through |
//! | `redo_write_over_floor`, `redo_write_over_floor_WAY` | time of that over the same with a server that answers at once: same transport, nothing done. What is above 1 is ours |
//! | `floor_us_WAY` | that floor in microseconds |
//! | `redo_write_sync_8k_us_WAY_bound` | as `redo_write_sync_8k_us_WAY`, the caller bound to a processor. Published floors of FUSE are of such a caller |
//! | `switch_us` | microseconds of a byte through a pipe to another process and back, both bound to one processor: two changes of process, which a call that another process answers cannot do without |
//! | `read_8k_us`, `read_8k_us_WAY` | microseconds of a read of 8 KiB from the tier, past the page cache (`O_DIRECT`): the fastest way, and each |
//! | `cached_read_over_home` | time of a read of 8 KiB from the page cache over that on home's own file system, both written block by block |
//! | `cached_read_over_home_at_once` | the same, home's file written at once: its page cache then has larger pages |

#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

#[path = "../../../benches/report.rs"]
mod report;

use report::{Report, time_batches};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use tiersmith_mount::{Mounted, Options, Transport, mount};
use tiersmith_store::{Medium, Profile, TierSpec, attach};

const BLOCK: usize = 8192;
/// Bytes of the redo file, which is written round and round, and of the data file.
const FILE: u64 = 16 << 20;
const BATCH: usize = 16;

/// Mounts that answer writes without doing them.
const FLOORS: [(&str, Transport); 2] =
    [("classic_floor", Transport::Classic), ("uring_floor", Transport::Uring)];

const REDO: &str = "redo write 8 KiB + fdatasync";
/// What the name of a row ends with whose caller is bound to a processor.
const BOUND: &str = ", caller bound to a processor";
/// Two changes of process.
const SWITCH: &str = "a byte to another process and back, on one processor";
/// In the environment of the process that sends bytes back.
const ECHO: &str = "TIERSMITH_BENCH_ECHO";
/// The way that is not through the daemon.
const LENT: &str = "lent";
const READ: &str = "read 8 KiB from the tier";
const CACHED: &str = "read 8 KiB from the page cache";

/// A file of the home whose pages in the page cache are as large as that file system makes them.
const IN_ONE: &str = "home's disk, no mount, file written at once";

const PROFILE: &str = "description = \"benchmark\"\n[default]\nclass = \"pass\"\nblock_size = \
                       8192\n\
    [[rule]]\nfiles = [\"**/*.redo\"]\nclass = \"redo\"\nblock_size = 8192\nwhy = \"benchmark\"\n\
    [[rule]]\nfiles = [\"**/*.seg\"]\nclass = \"redo\"\nblock_size = 8192\nlend = true\nwhy = \
    \"benchmark\"\n\
    [[rule]]\nfiles = [\"**/*.d8\"]\nclass = \"data\"\nblock_size = 8192\nwhy = \"benchmark\"\n";

type Failed = Box<dyn Error>;

/// A home, its tier and its mount.
struct Way {
    name: String,
    mounted: Mounted,
    home: PathBuf,
    redo: File,
    direct: File,
    cached: File,
    passed: Option<File>,
}

/// Fills a file in pieces of so many bytes. Its pages in the page cache are as large as its pieces
/// were, where the file system has such pages.
fn fill(file: &File, piece: u64) -> Result<(), Failed> {
    let bytes = vec![5; piece as usize];
    for at in (0..FILE).step_by(piece as usize) {
        file.write_all_at(&bytes, at)?;
    }
    Ok(())
}

/// Mounts a new home; `None` when the transport cannot be had.
fn way(
    report: &mut Report,
    fast: &Path,
    slow: &Path,
    name: &str,
    transport: Transport,
    sync_on_write: bool,
    discard_writes: bool,
) -> Result<Option<Way>, Failed> {
    let home = slow.join(name);
    std::fs::create_dir(&home)?;
    let mut spec =
        TierSpec::new("fast", fast.join(format!("{name}.tier")), Medium::Emulated, 96 << 20);
    spec.slots = 64;
    let store = tiersmith_store::Options {
        profile: Some(Profile::parse("benchmark", PROFILE)?),
        redo_keep_bytes: 2 * FILE,
        ..Default::default()
    };
    let options = Options { transport, sync_on_write, discard_writes, ..Options::default() };
    let attached = attach(&home, &[spec], store)?;
    let mounted = match mount(attached, &home, &options) {
        Ok(mounted) => mounted,
        Err(tiersmith_mount::Error::Transport { reason, .. }) => {
            if !discard_writes {
                report.warn(format!("{transport} is not measured: {reason}"));
            }
            return Ok(None);
        }
        Err(e) => return Err(e.into()),
    };
    let passthrough = mounted.report().passthrough;
    let filled = |file: &str| -> Result<PathBuf, Failed> {
        let path = home.join(file);
        fill(&File::create(&path)?, BLOCK as u64)?;
        Ok(path)
    };
    let open = |path: &Path, flags: i32| {
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)
    };
    let (mut redo, data) = (filled("a.redo")?, filled("a.d8")?);
    if name == LENT {
        match lent(&mounted, &redo)? {
            Ok(path) => redo = path,
            Err(why) => {
                report.warn(format!("nothing is lent here: {why}"));
                mounted.unmount().map_err(|(_, e)| e)?.detach()?;
                return Ok(None);
            }
        }
    }
    let passed = if passthrough { Some(open(&filled("a.pass")?, 0)?) } else { None };
    Ok(Some(Way {
        redo: open(&redo, 0)?,
        direct: open(&data, libc::O_DIRECT)?,
        cached: open(&data, 0)?,
        passed,
        name: name.into(),
        mounted,
        home,
    }))
}

/// Gives the file a name under which it is lent, and waits until it is: a handle that was just
/// closed is in the way for a moment. Else why not.
fn lent(mounted: &Mounted, redo: &Path) -> Result<Result<PathBuf, String>, Failed> {
    let path = redo.with_file_name("a.seg");
    std::fs::rename(redo, &path)?;
    let mut why = mounted.report().lends_because;
    for _ in 0..2000 {
        drop(OpenOptions::new().write(true).open(&path)?);
        let attached = mounted.attached();
        if attached.files().iter().any(|file| file.lent) {
            return Ok(Ok(path));
        }
        why = why.or(attached.stats().lending.refused);
        if why.is_some() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    Ok(Err(why.unwrap_or_else(|| "something keeps it open".into())))
}

fn main() -> ExitCode {
    if std::env::var_os(ECHO).is_some() {
        return echo();
    }
    let mut report =
        Report::from_args("operations", "one operation at the mount, EMULATED tier, one thread");
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!("operations: needs root and /dev/fuse");
        return ExitCode::from(2);
    }
    match measure(&mut report) {
        Ok(()) => report.finish(),
        Err(error) => {
            eprintln!("operations: {error}");
            ExitCode::from(2)
        }
    }
}

/// Sends each byte back, until there are no more.
fn echo() -> ExitCode {
    let mut byte = [0];
    while std::io::stdin().read_exact(&mut byte).is_ok()
        && std::io::stdout().write_all(&byte).is_ok()
    {
        // Standard output keeps bytes back until the end of a line.
        let _ = std::io::stdout().flush();
    }
    ExitCode::SUCCESS
}

/// Does something with this thread, and what it starts, bound to the first processor that it may
/// use. Does it unbound where that is refused.
fn bound<T>(what: impl FnOnce() -> T) -> T {
    let Ok(before) = sched_getaffinity(None) else { return what() };
    let mut one = CpuSet::new();
    (0..CpuSet::MAX_CPU).find(|n| before.is_set(*n)).into_iter().for_each(|n| one.set(n));
    let _ = sched_setaffinity(None, &one);
    let done = what();
    let _ = sched_setaffinity(None, &before);
    done
}

/// Measures what two changes of process cost.
fn switches(report: &mut Report, operations: usize) -> Result<(), Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut other = command
        .env(ECHO, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (to, from) = (other.stdin.take(), other.stdout.take());
    let (Some(mut to), Some(mut from)) = (to, from) else {
        return Err("a process without pipes".into());
    };
    let mut byte = [0];
    let samples = time_batches(operations, BATCH, |_| {
        to.write_all(&[1]).expect("a write");
        from.read_exact(&mut byte).expect("a read");
    });
    drop(to);
    other.wait()?;
    report.run(REDO, SWITCH, samples);
    Ok(())
}

fn free_bytes(path: &Path) -> u64 {
    rustix::fs::statvfs(path).map_or(0, |s| s.f_bavail.saturating_mul(s.f_frsize))
}

fn measure(report: &mut Report) -> Result<(), Failed> {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    std::fs::create_dir_all(&target)?;
    let shm = Path::new("/dev/shm");
    let tmpfs = free_bytes(shm) >= 1 << 30;
    let folder =
        |at: &Path| tempfile::Builder::new().prefix("tiersmith-operations-").tempdir_in(at);
    let (fast, slow) = (folder(if tmpfs { shm } else { &target })?, folder(&target)?);
    let medium = if tmpfs { "tmpfs" } else { "disk (no room in /dev/shm)" };
    report.config("tier", format!("EMULATED: a file on {medium}"));
    report.config("block_bytes", BLOCK);
    report.warn(format!("EMULATED: a file on {medium} stands for persistent memory"));
    let ways = ways(report, fast.path(), slow.path())?;
    let mut floors = Vec::new();
    for (name, transport) in FLOORS {
        floors.extend(way(report, fast.path(), slow.path(), name, transport, true, true)?);
    }
    // A home beside the tier: what FUSE costs when the kernel passes a file through.
    let beside = fast.path().join("homes");
    std::fs::create_dir(&beside)?;
    let through =
        way(report, fast.path(), &beside, "passthrough", Transport::Classic, false, false)?;
    let (on_tier, on_home) = (plain(fast.path(), BLOCK as u64)?, plain(slow.path(), BLOCK as u64)?);
    let in_one = plain(slow.path(), FILE)?;
    let operations = if report.quick() { 1600 } else { 8000 };
    report.config("operations_per_round", operations);
    let mut at = 0;
    for _ in 0..report.rounds() {
        redo(report, &format!("{medium}, no mount"), &on_tier, operations, &mut at);
        redo(report, "home's disk, no mount", &on_home, 64, &mut at);
        for way in &ways {
            redo(report, &way.name, &way.redo, operations, &mut at);
            let name = format!("{}{BOUND}", way.name);
            bound(|| redo(report, &name, &way.redo, operations, &mut at));
            read(report, READ, &way.name, &way.direct, operations);
            read(report, CACHED, &way.name, &way.cached, operations);
        }
        for floor in &floors {
            redo(
                report,
                &format!("floor: a server that answers at once, {}", floor.name),
                &floor.redo,
                operations,
                &mut at,
            );
        }
        if let Some(file) = through.as_ref().and_then(|w| w.passed.as_ref()) {
            redo(report, "passthrough", file, operations, &mut at);
        }
        bound(|| switches(report, operations))?;
        read(report, CACHED, "home's disk, no mount", &on_home, operations);
        read(report, CACHED, IN_ONE, &in_one, operations);
    }
    ratios(report, &ways);
    if through.as_ref().is_some_and(|w| w.passed.is_none()) {
        report.warn("the kernel passes no files through here: `redo_over_passthrough` is missing");
    }
    report.note(
        "the clock is read every 16 operations; `asked`: fdatasync reaches the daemon, \
                 else every write is durable and the kernel asks no more",
    );
    for way in ways.into_iter().chain(floors).chain(through) {
        end(way)?;
    }
    Ok(())
}

/// A mount for each way that requests can come.
fn ways(report: &mut Report, fast: &Path, slow: &Path) -> Result<Vec<Way>, Failed> {
    let mut ways = Vec::new();
    for (name, transport, sync_on_write) in [
        ("classic", Transport::Classic, true),
        ("classic_asked", Transport::Classic, false),
        ("uring", Transport::Uring, true),
        ("uring_asked", Transport::Uring, false),
        (LENT, Transport::Auto, true),
    ] {
        ways.extend(way(report, fast, slow, name, transport, sync_on_write, false)?);
    }
    Ok(ways)
}

/// A file without a mount.
fn plain(dir: &Path, piece: u64) -> Result<File, Failed> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(dir.join(format!("plain-{piece}")))?;
    fill(&file, piece)?;
    Ok(file)
}

fn ratios(report: &mut Report, ways: &[Way]) {
    let fastest = |report: &Report, group: &str| {
        let daemon = ways.iter().filter(|w| group != REDO || w.name != LENT);
        let medians = daemon.filter_map(|w| Some((report.median(group, &w.name)?, w.name.clone())));
        medians.min_by(|a, b| a.0.total_cmp(&b.0))
    };
    for (group, key) in [(REDO, "redo_write_sync_8k_us"), (READ, "read_8k_us")] {
        if let Some((best, name)) = fastest(report, group) {
            let lent = report.median(group, LENT).filter(|_| group == REDO);
            report.ratio(key, lent.unwrap_or(best) / 1000.0);
            report.note(format!("{key}: {}", if lent.is_some() { LENT } else { &name }));
            if group == REDO {
                report.ratio(&format!("{key}_daemon"), best / 1000.0);
                report.note(format!("{key}_daemon: {name}"));
            }
        }
        for way in ways {
            if let Some(median) = report.median(group, &way.name) {
                report.ratio(&format!("{key}_{}", way.name), median / 1000.0);
            }
        }
    }
    for way in ways {
        if let Some(median) = report.median(REDO, &format!("{}{BOUND}", way.name)) {
            report.ratio(&format!("redo_write_sync_8k_us_{}_bound", way.name), median / 1000.0);
        }
    }
    if let Some(median) = report.median(REDO, SWITCH) {
        report.ratio("switch_us", median / 1000.0);
    }
    for (name, _) in FLOORS {
        let way = name.trim_end_matches("_floor");
        let floor = format!("floor: a server that answers at once, {name}");
        let Some(median) = report.median(REDO, &floor) else { continue };
        report.ratio(&format!("floor_us_{way}"), median / 1000.0);
        report.ratio_of_medians(
            &format!("redo_write_over_floor_{way}"),
            (REDO, way),
            (REDO, &floor),
        );
        if fastest(report, REDO).is_some_and(|(_, best)| best == way) {
            report.ratio_of_medians("redo_write_over_floor", (REDO, way), (REDO, &floor));
        }
    }
    if let Some((_, best)) = fastest(report, REDO) {
        let best = if report.median(REDO, LENT).is_some() { LENT } else { &best };
        report.ratio_of_medians("redo_over_passthrough", (REDO, best), (REDO, "passthrough"));
    }
    if let Some((_, best)) = fastest(report, CACHED) {
        report.ratio_of_medians(
            "cached_read_over_home",
            (CACHED, &best),
            (CACHED, "home's disk, no mount"),
        );
        report.ratio_of_medians("cached_read_over_home_at_once", (CACHED, &best), (CACHED, IN_ONE));
    }
}

/// Writes the file round and round, each write durable.
fn redo(report: &mut Report, name: &str, file: &File, operations: usize, at: &mut u64) {
    let mut block = [0; BLOCK];
    let samples = time_batches(operations, BATCH.min(operations), |n| {
        block[..8].copy_from_slice(&(n as u64).to_le_bytes());
        *at = (*at + BLOCK as u64) % FILE;
        file.write_all_at(&block, *at).expect("a write");
        file.sync_data().expect("a sync");
    });
    report.run(REDO, name, samples);
}

/// Reads blocks here and there.
fn read(report: &mut Report, group: &str, name: &str, file: &File, operations: usize) {
    let space = vec![0u8; BLOCK + 4096];
    let skip = space.as_ptr().align_offset(4096);
    let mut space = space;
    let blocks = FILE / BLOCK as u64;
    let samples = time_batches(operations, BATCH, |n| {
        let block = (n as u64).wrapping_mul(0x9e37_79b9) % blocks;
        file.read_exact_at(&mut space[skip..skip + BLOCK], block * BLOCK as u64).expect("a read");
    });
    report.run(group, name, samples);
}

fn end(way: Way) -> Result<(), Failed> {
    let Way { mounted, home, redo, direct, cached, passed, .. } = way;
    drop((redo, direct, cached, passed));
    let mut left = mounted;
    // The kernel tells of closed files a moment later.
    for _ in 0..2000 {
        match left.unmount() {
            Ok(attached) => return Ok(attached.detach()?),
            Err((mounted, _)) => left = mounted,
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    Err(format!("{} stays in use", home.display()).into())
}

//! Instructions of one commit, counted by callgrind: what a change of the code costs shows here
//! without noise.
//!
//! The benchmark runs itself under valgrind with [`OPTION`]; callgrind counts only within
//! [`counted_commits`] and only its thread. The difference of a run with commits and one without
//! would not do: the clock is calibrated at attach for as long as that takes, which is thousands of
//! instructions for each commit.
//!
//! Only instructions of the program are counted: what the kernel does for a system call is not, so
//! a peer that leaves its work to the kernel looks cheaper.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::Failed;
use crate::database::{Database, Medium, Mode};
use crate::report::Report;
use crate::scratch::Scratch;
use crate::updates::{TIER, Updater, prepare};

/// What the child is started with, followed by a name of [`TABLE`] and how many commits.
const OPTION: &str = "--instructions-of";
/// Commits that are counted: a few checkpoints in WAL mode.
const COMMITS: u64 = 2_000;
/// Commits before them, after which nothing is done for the first time.
const WARM_UP: u64 = 1_100;

const GROUP: &str = "instructions of a commit";

/// The child's argument, and what is counted.
const TABLE: [(&str, Medium, Mode, &str); 3] = [
    ("stock-wal", Medium::Tmpfs, Mode::WAL_FULL, "WAL FULL"),
    ("wal", Medium::Tier, Mode::WAL_FULL, "WAL FULL"),
    ("batch", Medium::Tier, Mode::ROLLBACK, "batch (DELETE FULL)"),
];

/// Whether this process is the child; if so, its work is done here.
pub(crate) fn child() -> Option<Result<(), Failed>> {
    let arguments: Vec<String> =
        std::env::args().skip_while(|argument| argument != OPTION).collect();
    let [_, which, commits, ..] = arguments.as_slice() else { return None };
    Some(work(which, commits))
}

fn work(which: &str, commits: &str) -> Result<(), Failed> {
    let found = TABLE.into_iter().find(|row| row.0 == which);
    let (name, medium, mode, _) =
        found.ok_or_else(|| format!("{OPTION} {which}: there is no such row"))?;
    let scratch = Scratch::new()?;
    let database = Database::new(&scratch, name, medium, TIER);
    let connection = prepare(&database, mode)?;
    let mut updater = Updater::new(&connection)?;
    (0..WARM_UP).try_for_each(|_| updater.commit())?;
    counted_commits(&mut updater, commits.parse()?)
}

/// What callgrind counts; it finds the function by its name. No closure: its name would have this
/// one in it.
#[inline(never)]
fn counted_commits(updater: &mut Updater<'_>, commits: u64) -> Result<(), Failed> {
    for _ in 0..commits {
        updater.commit()?;
    }
    Ok(())
}

/// The table, and `instructions_per_commit` in WAL mode on the tier; NaN (null in the file) without
/// valgrind.
pub(crate) fn instructions(report: &mut Report, scratch: &Scratch) -> Result<(), Failed> {
    let version = Command::new("valgrind").arg("--version").output();
    let Some(version) = version.ok().filter(|output| output.status.success()) else {
        report.warn(
            "valgrind is not installed, instructions were not counted; apt-get install valgrind",
        );
        report.ratio("instructions_per_commit", f64::NAN);
        return Ok(());
    };
    report.version("valgrind", String::from_utf8_lossy(&version.stdout).trim());
    let mut counted = Vec::new();
    for (which, medium, _, what) in TABLE {
        let each = count(&scratch.fast("callgrind.out"), which)? as f64 / COMMITS as f64;
        report.run_in("instr", GROUP, &format!("{}: {what}", medium.label(scratch)), vec![each]);
        counted.push(each);
    }
    report.note("instructions: of the program, not of the kernel; one count, not rounds");
    report.ratio("instructions_per_commit", counted[1]);
    report.ratio("instructions_per_commit_batch", counted[2]);
    report.ratio("instructions_per_commit_stock_wal", counted[0]);
    Ok(())
}

/// Instructions of the main thread of a child with so many commits. The store's thread works by the
/// clock, and is left out.
fn count(into: &Path, which: &str) -> Result<u64, Failed> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--separate-threads=yes", "--collect-atstart=no"])
        .arg("--toggle-collect=*counted_commits*")
        .arg(format!("--callgrind-out-file={}", into.display()))
        .arg(std::env::current_exe()?)
        .args([OPTION, which, &COMMITS.to_string()])
        .stdin(Stdio::null())
        .output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("valgrind failed for {which}: {text}").into());
    }
    // Callgrind appends the number of the thread.
    let file = into.with_extension("out-01");
    let text = std::fs::read_to_string(&file)?;
    let totals = text.lines().find_map(|line| line.strip_prefix("totals:"));
    let instructions = totals.and_then(|count| count.trim().parse().ok());
    match instructions {
        Some(count) if count > 0 => Ok(count),
        _ => {
            Err(format!("{}: callgrind counted nothing within counted_commits", file.display())
                .into())
        }
    }
}

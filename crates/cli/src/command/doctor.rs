//! `tiersmith doctor`: what of this machine's set-up spoils a measurement, and how to mend it.

use std::path::{Path, PathBuf};

use clap::Args;
use tiersmith_lab::doctor::{Check, Examined, Verdict, examine};
use tiersmith_lab::study::text::paragraph;

use super::{print, print_json};
use crate::Outcome;
use crate::error::{Error, Result};

/// Check the set-up of this machine before measuring
///
/// Looks at transparent huge pages, huge pages, NUMA, the governor of the processors, the priority
/// of the log writer, disk statistics, I/O schedulers, mount options, and FUSE over io_uring. For
/// each it says what it is, what it should be, why, and the command that mends it. It changes
/// nothing, and needs no root.
///
/// With DIR it looks at the file systems that hold these directories and at the disks below them;
/// without, at all that could hold a database.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  tiersmith doctor
  tiersmith doctor /var/lib/postgresql /mnt/nvme
  tiersmith doctor --all
  tiersmith doctor --json > doctor.json
  tiersmith doctor --root sosreport-db1/            another machine's /proc and /sys, recorded

MEND counts as a finding. `consider` does not: a better setting exists, but it concerns more than \
the database.
The commands need root and hold until the next boot; docs/guide/doctor.md has the places where \
they last.

Exit codes: 0 nothing to mend; 1 findings; 2 error.")]
pub(crate) struct Doctor {
    /// Directories of databases or tiers
    #[arg(value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Print the checks that are good, too
    #[arg(long)]
    all: bool,
    /// Read /proc and /sys below DIR: a recorded tree of another machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(super) fn run(&self) -> Result<Outcome> {
        let dirs = self.dirs.iter().map(|dir| self.real(dir)).collect::<Result<Vec<_>>>()?;
        let examined = examine(&self.root, &dirs)?;
        if self.json {
            print_json(&examined)?;
        } else {
            print(&text(&examined, self.all))?;
        }
        Ok(if examined.to_mend == 0 { Outcome::Good } else { Outcome::Findings })
    }

    /// A directory of this machine as the kernel names it; of another one as it was given.
    fn real(&self, dir: &Path) -> Result<PathBuf> {
        let refuse = |why: &str, todo: &str| {
            Err(Error::Usage(format!("cannot look at {}: {why}; {todo}", dir.display())))
        };
        if self.root != Path::new("/") {
            let absolute = "give its path from / on that machine";
            return if dir.is_absolute() {
                Ok(dir.into())
            } else {
                refuse("it is relative", absolute)
            };
        }
        match std::fs::canonicalize(dir) {
            Ok(found) if found.is_dir() => Ok(found),
            Ok(_) => refuse("it is not a directory", "give the directory that holds it"),
            Err(e) => refuse(&e.to_string(), "give a directory of a database or a tier"),
        }
    }
}

fn text(examined: &Examined, all: bool) -> String {
    let count = |verdict| examined.checks.iter().filter(|check| check.verdict == verdict).count();
    let mut out = match (examined.to_mend, examined.checks.len()) {
        (0, checks) => format!("Nothing to mend; {checks} checks.\n"),
        (1, checks) => format!("1 of {checks} checks is to be mended.\n"),
        (to_mend, checks) => format!("{to_mend} of {checks} checks are to be mended.\n"),
    };
    for verdict in [Verdict::Mend, Verdict::Consider, Verdict::Unknown, Verdict::Good] {
        if (verdict == Verdict::Good && !all) || count(verdict) == 0 {
            continue;
        }
        // Those that are nothing to do about stand together.
        if verdict == Verdict::Unknown || (verdict == Verdict::Good && count(Verdict::Unknown) == 0)
        {
            out.push('\n');
        }
        for check in examined.checks.iter().filter(|check| check.verdict == verdict) {
            write_check(&mut out, check);
        }
    }
    if !all && count(Verdict::Good) > 0 {
        out.push_str(&format!("\n{} checks are good; --all prints them.\n", count(Verdict::Good)));
    }
    if count(Verdict::Mend) + count(Verdict::Consider) > 0 {
        out.push_str(
            "\nThe commands need root and hold until the next boot (docs/guide/doctor.md).\n",
        );
    }
    out
}

fn write_check(out: &mut String, check: &Check) {
    let word = match check.verdict {
        Verdict::Mend => "MEND",
        Verdict::Consider => "consider",
        Verdict::Good => "good",
        Verdict::Unknown => "unknown",
    };
    let of = if check.of.is_empty() { String::new() } else { format!(" of {}", check.of) };
    let space = if matches!(check.verdict, Verdict::Mend | Verdict::Consider) { "\n" } else { "" };
    out.push_str(&format!("{space}{word:<9}{}{of}: {}\n", check.name, check.is));
    if !matches!(check.verdict, Verdict::Mend | Verdict::Consider) {
        return;
    }
    paragraph(out, "         should be: ", &check.should_be);
    paragraph(out, "         why: ", &check.why);
    // One line, so that it can be copied.
    if let Some(command) = &check.mend {
        out.push_str(&format!("         mend: {command}\n"));
    }
}

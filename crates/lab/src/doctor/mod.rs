//! Doctor: what of this machine's set-up spoils a measurement, or a database, and how to mend it.
//!
//! | file | what it looks at |
//! |---|---|
//! | `memory.rs` | transparent huge pages, huge pages, NUMA |
//! | `processors.rs` | frequency governors, the priority of the log writer |
//! | `disks.rs` | disk statistics, I/O schedulers |
//! | `file_systems.rs` | mount options |
//! | `fuse.rs` | FUSE over io_uring |
//!
//! Everything is read from /proc and /sys below a root, so that a recorded tree of another machine
//! can be looked at, and so that tests can describe machines that are not there.
//!
//! **Invariants**: nothing is changed, ever. What the kernel does not say is [`Verdict::Unknown`]
//! and never guessed. Nothing needs root. No command line or map of a process is read: a process
//! that waits for a dead mount would make us wait as well.
//! **Deliberately absent**: settings of databases (`awr`'s findings), and measuring (`probe`).

mod disks;
mod file_systems;
mod fuse;
mod memory;
mod processors;
#[cfg(test)]
mod recorded;

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// What to do about a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It spoils figures or loses data: mend it before measuring.
    Mend,
    /// A better setting exists, but it concerns more than the database: weigh it.
    Consider,
    /// As it should be.
    Good,
    /// The kernel does not say, or there is nothing here to check.
    Unknown,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// For programs: `transparent-huge-pages`, `disk-scheduler`, ...
    pub name: String,
    /// Of which disk, file system or process; empty if there is only one.
    pub of: String,
    /// What to do.
    pub verdict: Verdict,
    /// What it is now.
    pub is: String,
    /// What it should be.
    pub should_be: String,
    /// Why.
    pub why: String,
    /// The command that mends it, as root; nothing where there is nothing to mend or no command.
    pub mend: Option<String>,
}

impl Check {
    fn new(name: &str, should_be: &str, why: &str) -> Check {
        Check {
            name: name.into(),
            of: String::new(),
            verdict: Verdict::Unknown,
            is: String::new(),
            should_be: should_be.into(),
            why: why.into(),
            mend: None,
        }
    }

    fn of(mut self, of: impl Into<String>) -> Check {
        self.of = of.into();
        self
    }

    fn good(mut self, is: impl Into<String>) -> Check {
        (self.verdict, self.is) = (Verdict::Good, is.into());
        self
    }

    fn unknown(mut self, is: impl Into<String>) -> Check {
        (self.verdict, self.is) = (Verdict::Unknown, is.into());
        self
    }

    fn mend(mut self, is: impl Into<String>, command: impl Into<String>) -> Check {
        (self.verdict, self.is, self.mend) = (Verdict::Mend, is.into(), Some(command.into()));
        self
    }

    fn consider(mut self, is: impl Into<String>, command: impl Into<String>) -> Check {
        (self.verdict, self.is, self.mend) = (Verdict::Consider, is.into(), Some(command.into()));
        self
    }
}

/// Everything that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Examined {
    /// The version of this structure.
    pub format: u32,
    /// Where /proc and /sys were read: `/`, or a recorded tree.
    pub root: PathBuf,
    /// Checks to mend.
    pub to_mend: usize,
    /// Each, in the order of the files above.
    pub checks: Vec<Check>,
}

/// The machine that is looked at.
struct Host<'a> {
    root: &'a Path,
}

impl Host<'_> {
    /// The text of a file of /proc or /sys, if it can be read and holds any.
    fn text(&self, file: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(file)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    fn number(&self, file: &str) -> Option<u64> {
        self.text(file)?.parse().ok()
    }

    /// The word in brackets, of a file that lists what could be chosen.
    fn chosen(&self, file: &str) -> Option<String> {
        let text = self.text(file)?;
        let chosen = text.split_once('[').and_then(|(_, after)| after.split_once(']'));
        chosen.map(|(word, _)| word.to_owned())
    }

    /// The names in a directory, sorted.
    fn names(&self, dir: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(dir)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn is_there(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }
}

/// Looks at the machine whose /proc and /sys are below `root`; of disks and file systems at those
/// that hold `dirs`, or at all if there are none.
///
/// # Errors
/// [`Error::Place`]: there is no /proc or /sys below `root`.
pub fn examine(root: &Path, dirs: &[PathBuf]) -> Result<Examined> {
    let host = Host { root };
    for needed in ["proc", "sys"] {
        if !root.join(needed).is_dir() {
            let reason = format!(
                "there is no directory {needed} in it; give one that holds a machine's /proc and \
                 /sys"
            );
            return Err(Error::Place { what: "doctor", path: root.into(), reason });
        }
    }
    let mounted = file_systems::mounted(&host);
    let chosen = file_systems::chosen(&mounted, dirs);
    let mut checks = memory::checks(&host);
    checks.extend(processors::checks(&host));
    checks.extend(disks::checks(&host, (!dirs.is_empty()).then_some(chosen.as_slice())));
    checks.extend(file_systems::checks(&chosen));
    checks.push(fuse::check(&host));
    let to_mend = checks.iter().filter(|check| check.verdict == Verdict::Mend).count();
    Ok(Examined { format: 1, root: root.into(), to_mend, checks })
}

#[cfg(test)]
mod tests {
    use super::recorded::Recorded;
    use super::*;

    #[test]
    fn a_machine_that_is_set_up_well_has_nothing_to_mend_and_every_check_is_there() {
        let machine = Recorded::sound();
        let examined = machine.examine();
        let odd: Vec<_> =
            examined.checks.iter().filter(|check| check.verdict != Verdict::Good).collect();
        assert!(odd.is_empty(), "{odd:#?}");
        let names: Vec<&str> = examined.checks.iter().map(|check| check.name.as_str()).collect();
        let expected = [
            "transparent-huge-pages",
            "transparent-huge-pages-defrag",
            "huge-pages",
            "numa-balancing",
            "zone-reclaim",
            "cpu-governor",
            "log-writer-priority",
            "disk-statistics",
            "disk-statistics",
            "disk-scheduler",
            "disk-scheduler",
            "file-system-options",
            "file-system-options",
            "fuse-io-uring",
        ];
        assert_eq!(names, expected);
        assert_eq!(examined.to_mend, 0);
    }

    #[test]
    fn a_machine_that_says_nothing_is_unknown_and_not_ill() {
        let machine = Recorded::silent();
        let examined = machine.examine();
        assert!(!examined.checks.is_empty());
        for check in &examined.checks {
            assert_eq!(check.verdict, Verdict::Unknown, "{check:#?}");
            assert!(check.mend.is_none() && !check.is.is_empty(), "{check:#?}");
        }
    }

    #[test]
    fn whatever_is_to_be_mended_says_what_it_is_what_it_should_be_why_and_how() {
        let examined = Recorded::neglected().examine();
        let ill: Vec<_> =
            examined.checks.iter().filter(|check| check.verdict == Verdict::Mend).collect();
        assert_eq!(ill.len(), examined.to_mend);
        assert!(ill.len() >= 10, "{ill:#?}");
        for check in examined.checks {
            assert!(check.verdict != Verdict::Good || check.mend.is_none(), "{check:#?}");
            assert!(!check.why.is_empty() && !check.should_be.is_empty(), "{check:#?}");
            if matches!(check.verdict, Verdict::Mend | Verdict::Consider) {
                assert!(!check.is.is_empty() && check.mend.is_some(), "{check:#?}");
            }
        }
    }

    #[test]
    fn a_root_without_proc_or_sys_is_refused_with_what_is_missing() {
        let empty = tempfile::tempdir().unwrap();
        let refused = examine(empty.path(), &[]).unwrap_err().to_string();
        assert!(refused.contains("no directory proc"), "{refused}");
        fs::create_dir(empty.path().join("proc")).unwrap();
        let refused = examine(empty.path(), &[]).unwrap_err().to_string();
        assert!(refused.contains("no directory sys"), "{refused}");
    }

    #[test]
    fn files_that_hold_nonsense_are_survived() {
        let machine = Recorded::sound();
        for file in machine.files() {
            for nonsense in
                ["", "[", "]", "[]", "\0", "18446744073709551616", "((((", "a b\nc d e f g"]
            {
                machine.put(&file, nonsense);
                let _ = machine.examine();
            }
            machine.put_bytes(&file, &[0xff, 0xfe, 0x00]);
            let _ = machine.examine();
        }
    }
}

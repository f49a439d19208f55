//! Who has a lent file open: programs by their open descriptors, for messages.
//!
//! That somebody has it the kernel knows ([`super::place::LentDir::is_ours_alone`]); who it is can only be looked for: a program that opened the file on a
//! mount has it by its name there, also when the mount is dead or gone, and one that opened the plain file by that name. A program that has
//! mapped it and closed it, or that another user runs, is not found. Deliberately not here: looking at what a name leads to, which a dead mount answers
//! with an error and a hanging one not at all.

use crate::attached::Inner;
use crate::file::{FileState, Placed};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A lent file that a program has open for writing, or mapped, beside this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LentInUse {
    /// Its path in the home.
    pub path: PathBuf,
    /// Its plain file.
    pub plain: PathBuf,
    /// The programs that could be found, as words of a sentence: `process 7 (postgres)`.
    pub programs: Vec<String>,
}

impl std::fmt::Display for LentInUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} is open or mapped elsewhere, and written to there: ", self.path.display())?;
        match &self.programs[..] {
            [] => write!(
                f,
                "which program it is could not be found (a database that ran before?); end it before the database starts"
            ),
            programs => write!(f, "end {} before the database starts", programs.join(" and ")),
        }
    }
}

impl Inner {
    /// Whether somebody beside this process has a lent file, and who.
    pub(crate) fn lent_in_use(&self, file: &FileState, placed: &Placed) -> Option<LentInUse> {
        let (plain, dir) = (placed.loan.plain()?, placed.tier.lent_dir.as_ref()?);
        if dir.is_ours_alone(&plain).unwrap_or(true) {
            return None;
        }
        let (path, plain) = (file.path.lock().clone(), dir.path(plain.name));
        let programs = programs(&crate::attach::home_path(self), &path, &plain);
        Some(LentInUse { path, plain, programs })
    }
}

/// The programs that have a file of `home` open by its name there, or its plain file.
pub(crate) fn programs(home: &Path, path: &Path, plain: &Path) -> Vec<String> {
    let in_home = home.join(path);
    let plain = plain.canonicalize().unwrap_or_else(|_| plain.to_path_buf());
    // Where a mount is gone its files are shown from its root.
    let alone = Path::new("/").join(path);
    let alone = Some(&*alone).filter(|alone| alone.symlink_metadata().is_err());
    let is_it = |target: &Path| {
        let bytes = target.as_os_str().as_bytes();
        let target = Path::new(OsStr::from_bytes(bytes.strip_suffix(b" (deleted)").unwrap_or(bytes)));
        target == in_home || target == plain || Some(target) == alone
    };
    let mut found = Vec::new();
    let own = std::process::id();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(pid) = pid.filter(|pid| *pid != own) else { continue };
        let mut open = std::fs::read_dir(entry.path().join("fd")).into_iter().flatten().flatten();
        if open.any(|fd| std::fs::read_link(fd.path()).is_ok_and(|target| is_it(&target))) {
            found.push(pid);
        }
    }
    found.sort_unstable();
    found.into_iter().map(|pid| format!("process {pid} ({})", name_of(pid))).collect()
}

fn name_of(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| !c.is_control()).collect();
    if name.is_empty() { "of unknown name".into() } else { name }
}

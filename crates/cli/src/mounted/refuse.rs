//! What is looked at before a home is attached, so that a refusal comes before anything is changed.
//!
//! Who has files of the directory open is found in `/proc`, as far as this user may look; a server
//! in another container, or of another user when this one is not root, is not seen there.
//! `postmaster.pid` is looked at besides.
//!
//! **Invariant**: nothing is opened, read or asked on a file system that a daemon serves; only
//! links and names under `/proc` are read.
//! **Deliberately absent**: what the store refuses by itself (a second owner, a foreign tier, a
//! tier too small).

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use tiersmith_store::home::{files_inside, home_of_aside};

use super::links::first_bytes;
use super::place::{Mounts, Place};
use crate::error::{Error, Result};
use crate::messages;

/// How many of those who hold files are named.
const NAMED_MAX: usize = 5;

/// More bytes than a `postmaster.pid` has.
const PID_FILE_MAX: u64 = 4096;

/// What the daemon's process is called.
const DAEMON: &str = "tiersmith";
/// What the kernel adds to the name of a directory that was removed.
const REMOVED: &str = " (deleted)";

/// A process that has something of a directory open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) pid: u32,
    name: String,
    /// One of the things it holds.
    what: PathBuf,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({}) has {}", self.pid, self.name, messages::path(&self.what))
    }
}

/// The processes that have something sought open, are in it or run from it, as far as they can be
/// seen.
fn holders_of(is_sought: impl Fn(&Path) -> bool) -> Vec<Holder> {
    let own = std::process::id();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if pid == own {
            continue;
        }
        let process = entry.path();
        let open = std::fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|fd| fd.path());
        let links = ["cwd", "root", "exe"].into_iter().map(|link| process.join(link)).chain(open);
        let held =
            links.filter_map(|link| std::fs::read_link(link).ok()).find(|target| is_sought(target));
        if let Some(what) = held {
            found.push(Holder { pid, name: name_of(pid), what });
        }
    }
    found.sort_by_key(|holder| holder.pid);
    found
}

/// The daemon that serves the home at `place`, found by what it has open: for when it cannot be
/// asked. `None` when there is none, or this user may not look at it.
pub(crate) fn daemon_of(place: &Place) -> Option<Holder> {
    let aside = place.aside();
    let mut removed = aside.clone().into_os_string();
    removed.push(REMOVED);
    let inside = files_inside(place.path());
    let of_home = |target: &Path| {
        target.starts_with(&aside) || target.as_os_str() == removed || target.starts_with(&inside)
    };
    holders_of(of_home).into_iter().find(|holder| holder.name == DAEMON)
}

/// What a process is called.
pub(crate) fn name_of(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| !c.is_control()).collect();
    if name.is_empty() { "of unknown name".into() } else { name }
}

/// Some holders, as the rest of a sentence.
pub(crate) fn said(holders: &[Holder]) -> String {
    let mut said: Vec<String> = holders.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    if holders.len() > said.len() {
        said.push(format!("and {} more", holders.len() - said.len()));
    }
    said.join("; ")
}

/// Refuses a directory that a running program uses. Its files are at `files`; when `plain`, a
/// PostgreSQL's process file counts too: one that was running when its mount died is harmless, for
/// it holds the dead mount.
///
/// # Errors
/// Names the program and what it holds.
pub(crate) fn in_use(home: &Path, files: &Path, plain: bool) -> Result<()> {
    // The files of a mount point are in the vault inside it once they were moved. A shell may stand
    // in the directory above; in the directory itself it would be left behind.
    let inside = files_inside(home);
    let mut holders = holders_of(|target| target.starts_with(files) || target.starts_with(&inside));
    // A daemon at its beginning or end: the home's lock decides about those.
    holders.retain(|holder| holder.name != DAEMON);
    if !holders.is_empty() {
        return Err(Error::Usage(format!(
            "cannot attach {}: it is in use ({}); stop the database, or whatever uses it, and \
             attach again",
            home.display(),
            said(&holders)
        )));
    }
    if !plain {
        return Ok(());
    }
    // A PostgreSQL whose files cannot be seen from here.
    let first = first_bytes(&files.join("postmaster.pid"), PID_FILE_MAX).unwrap_or_default();
    let pid = first
        .split(|b| *b == b'\n')
        .next()
        .and_then(|line| std::str::from_utf8(line).ok()?.trim().parse::<u32>().ok());
    if let Some(pid) = pid.filter(|pid| *pid > 1 && is_postgres(*pid)) {
        return Err(Error::Usage(format!(
            "cannot attach {}: its postmaster.pid names process {pid} ({}), which runs; stop \
             PostgreSQL and attach again",
            home.display(),
            name_of(pid)
        )));
    }
    Ok(())
}

/// A process number may have been given to another program since.
fn is_postgres(pid: u32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    ["postgres", "postmaster", "edb-postgres"].contains(&name.trim())
}

/// Refuses a place where a home cannot be attached for the first time.
///
/// # Errors
/// The home is a mount point and this is not root, it has others in it, is inside another attached
/// home, or has an attached home in it.
pub(crate) fn place(place: &Place) -> Result<()> {
    let path = place.path();
    let mounts = Mounts::read();
    let cannot =
        |why: String| Err(Error::Usage(format!("cannot attach {}: {why}", path.display())));
    if let Some(around) = mounts.ours_around(path) {
        return cannot(format!("it is inside {}, which is attached already", around.at.display()));
    }
    for above in path.ancestors().skip(1) {
        if home_of_aside(above).is_some() {
            return cannot(format!(
                "it is inside {}, the files of a home that is attached already",
                above.display()
            ));
        }
    }
    if mounts.at(path).is_some() && !rustix::process::geteuid().is_root() {
        return cannot(
            "it is a mount point, whose files only root can move aside; run this as root, or move \
             the database into a directory inside it, and attach that"
                .into(),
        );
    }
    if let Some(below) = mounts.below(path).next() {
        return cannot(format!(
            "{} is mounted inside it; unmount that, or attach the directories that are on one file \
             system",
            below.at.display()
        ));
    }
    if let Some(inside) = attached_below(path) {
        return cannot(format!(
            "{} inside it is attached already; detach that first",
            inside.display()
        ));
    }
    Ok(())
}

/// A home directly inside that is attached and not mounted.
fn attached_below(path: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(path).ok()?;
    entries.flatten().find_map(|entry| home_of_aside(&entry.path()))
}

/// Refuses somebody who may not do this to the directory of which this is the metadata.
///
/// # Errors
/// Says whose the directory is.
pub(crate) fn not_permitted(home: &Path, metadata: &Metadata) -> Result<()> {
    let me = rustix::process::geteuid();
    if me.is_root() || metadata.uid() == me.as_raw() {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "cannot attach {}: it belongs to user {}, and this is user {}; run it as that user, or as \
         root",
        home.display(),
        metadata.uid(),
        me.as_raw()
    )))
}

/// Refuses a machine without FUSE.
///
/// # Errors
/// Says what is missing and how it is had.
pub(crate) fn no_fuse() -> Result<()> {
    let device = std::fs::metadata("/dev/fuse");
    if !device.is_ok_and(|m| m.file_type().is_char_device()) {
        return Err(Error::Usage(
            "cannot mount: there is no /dev/fuse; load the kernel module (modprobe fuse), or give \
             the container the device \
             (docker run --device /dev/fuse --cap-add SYS_ADMIN). Nothing was changed"
                .into(),
        ));
    }
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .any(|dir| ["fusermount3", "fusermount"].iter().any(|name| dir.join(name).is_file()));
    if found {
        return may_open_fuse();
    }
    Err(Error::Usage(
        "cannot mount: without root the program fusermount3 is needed, and it is not in the PATH; \
         install it (Debian: apt install fuse3), \
         or run this as root. Nothing was changed"
            .into(),
    ))
}

/// Refuses who may not open /dev/fuse; elsewhere its mode is 0666, and the kernel asks who mounts.
fn may_open_fuse() -> Result<()> {
    let Err(e) = rustix::fs::access("/dev/fuse", Access::READ_OK | Access::WRITE_OK) else {
        return Ok(());
    };
    let mode = std::fs::metadata("/dev/fuse").map_or(0, |found| found.mode() & 0o7777);
    Err(Error::Usage(format!(
        "cannot mount: user {} may not open /dev/fuse, whose mode is {mode:04o}: {}; allow \
         everybody \
         (chmod 666 /dev/fuse, as most systems have it), or run this as root. Nothing was changed",
        rustix::process::geteuid().as_raw(),
        std::io::Error::from(e)
    )))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails here says where")]
mod tests {
    use super::*;

    #[test]
    fn a_directory_without_a_user_has_no_holders_and_one_with_a_shell_in_it_has() {
        let holders = |dir: &Path| holders_of(|target| target.starts_with(dir));
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        assert_eq!(holders(&dir), []);
        let mut child = std::process::Command::new("cat")
            .current_dir(&dir)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let held = holders(&dir);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(held.len(), 1);
        assert!(said(&held).contains(&format!("process {}", child.id())), "{}", said(&held));
    }

    #[test]
    fn a_pid_file_of_a_process_that_is_no_postgres_refuses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("postmaster.pid"),
            format!("{}\n/data\n", std::process::id()),
        )
        .unwrap();
        in_use(Path::new("/db"), dir.path(), true).unwrap();
        let pid_file = dir.path().join("postmaster.pid");
        std::fs::write(&pid_file, [0xff, 0, 0xfe]).unwrap();
        in_use(Path::new("/db"), dir.path(), true).unwrap();
        // The home's owner may make it anything: a pipe is not waited for, a link not followed.
        for target in ["/dev/zero", "/dev/fuse"] {
            std::fs::remove_file(&pid_file).unwrap();
            std::os::unix::fs::symlink(target, &pid_file).unwrap();
            in_use(Path::new("/db"), dir.path(), true).unwrap();
        }
        std::fs::remove_file(&pid_file).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&pid_file).status().unwrap();
        assert!(made.success());
        let (done, ended) = std::sync::mpsc::channel();
        let files = dir.path().to_path_buf();
        drop(std::thread::spawn(move || done.send(in_use(Path::new("/db"), &files, true).is_ok())));
        let ended = ended.recv_timeout(std::time::Duration::from_secs(20));
        assert_eq!(ended, Ok(true), "a pipe in the home keeps attach waiting");
    }
}

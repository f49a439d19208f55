//! A trial of a SQLite database file: the load runs twice, on the file as it is and with its
//! directory attached by the mount.
//!
//! SQLite is a library in each program that has the file open, so there is no server to ask, to
//! stop or to start. The load finds the file at its path both times and needs no change, which the
//! VFS, the other way to attach a database, would ask of it.
//!
//! Deliberately absent: databases attached through the VFS, and loads that the trial does not run.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tiersmith_awr::sources::Address;

use super::plan::{Found, Plan, Service, Wishes};
use super::which::Which;
use crate::error::{Error, Result};

/// How a SQLite database begins.
const BEGINNING: &[u8] = b"SQLite format 3\0";
/// What the VFS puts behind the name of a database that it has attached.
const ATTACHED: &str = "-tiersmith";
/// The files of a database, by what is behind its name.
const ENDS: [&str; 4] = ["", "-wal", "-shm", "-journal"];
/// Names in a directory that are looked at.
const NAMES_MAX: usize = 10_000;

/// Whether this is a path and not the address of a server.
pub(super) fn is_path(text: &str) -> bool {
    !Address::is_one(text)
}

/// What there is to know before anything is touched.
///
/// # Errors
/// It is no SQLite database, or not the caller's to attach, or there is no load.
pub(super) fn plan(wishes: &Wishes) -> Result<Found> {
    let given = Path::new(&wishes.url);
    let refused =
        |reason: String| Error::Place { what: "trial", path: given.to_path_buf(), reason };
    let path = given.canonicalize().map_err(|e| {
        refused(format!(
            "{e}; give the path of a SQLite database file, or the address of a server, such as \
             postgresql:///postgres"
        ))
    })?;
    check_file(&path).map_err(refused)?;
    let home = path.parent().unwrap_or(Path::new("/")).to_path_buf();
    if wishes.load.is_empty() {
        return Err(refused(
            "SQLite has no server that could be recorded while others use it; give the command \
             that uses the database: -- LOAD. It runs twice, with the file as it is and attached"
                .into(),
        ));
    }
    if wishes.commands.is_some() {
        return Err(refused(
            "there is no server to stop or to start; leave out --stop and --start, and stop the \
             programs that have the database open"
                .into(),
        ));
    }
    let which = Which::at(&home)?;
    let owner = which.user;
    let caller = rustix::process::geteuid();
    if !caller.is_root() && caller.as_raw() != owner {
        return Err(refused(format!(
            "{} belongs to user {owner}; run the trial as that user, or as root",
            home.display()
        )));
    }
    let file = fs::metadata(&path).map_err(|e| refused(format!("cannot look at it: {e}")))?;
    if file.uid() != owner {
        return Err(refused(format!(
            "it belongs to user {}, and its directory to user {owner}, who could exchange it; let \
             both belong to one",
            file.uid()
        )));
    }
    let url = path.display().to_string();
    let mut found = Found::new(Plan::of(wishes, url, home.clone(), Service::NoServer));
    found.plan.home_is = Some(which);
    found.warnings.push(
        "the load runs twice on the database itself, and what it changes the first time is there \
         the second time"
            .into(),
    );
    if let Some(pid) = holder(&path) {
        found.refusals.push(format!(
            "process {pid} has it open (it holds a lock); stop that first, wherever it runs: a \
             container's is named by the kernel too"
        ));
    }
    let others = others(&path, &home);
    if others > 0 {
        found.warnings.push(format!(
            "{others} other names in {} are attached with the database; nobody else must use them \
             meanwhile",
            home.display()
        ));
    }
    Ok(found)
}

/// A process that has a lock on the database, by whatever path and in whatever container: each
/// connection in WAL mode has one, and every transaction.
pub(super) fn holder(path: &Path) -> Option<i64> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    ENDS.iter().find_map(|end| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        let about = fs::metadata(PathBuf::from(name)).ok()?;
        holder_in(&locks, about.dev(), about.ino())
    })
}

/// The process of the first lock on this file in the text of `/proc/locks`; 0 or less stands for
/// one that is not to be seen from here.
fn holder_in(locks: &str, dev: u64, ino: u64) -> Option<i64> {
    let wanted = format!("{:02x}:{:02x}:{ino}", rustix::fs::major(dev), rustix::fs::minor(dev));
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().filter(|word| *word != "->").collect();
        let at = words.iter().position(|word| *word == wanted)?;
        words.get(at.checked_sub(1)?)?.parse().ok()
    })
}

fn check_file(path: &Path) -> std::result::Result<(), String> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(ATTACHED);
    if PathBuf::from(beside).is_dir() {
        return Err(format!(
            "it is attached through the VFS already; `tiersmith detach {}` gives the plain file, \
             which a trial begins with",
            path.display()
        ));
    }
    let about = fs::metadata(path).map_err(|e| format!("cannot look at it: {e}"))?;
    if about.is_dir() {
        return Err("it is a directory; give the SQLite database file in it, or the address of \
                    the server whose directory it is, such as postgresql:///postgres"
            .into());
    }
    if !about.is_file() {
        return Err("it is no file; give the path of a SQLite database file".into());
    }
    let mut beginning = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(BEGINNING.len() as u64).read_to_end(&mut beginning))
        .map_err(|e| format!("cannot read it: {e}"))?;
    if beginning != BEGINNING {
        return Err("it does not begin as a SQLite database does; give one that was written to \
                    before"
            .into());
    }
    Ok(())
}

/// How many names are in the directory besides those of the database.
fn others(path: &Path, home: &Path) -> usize {
    let name = path.file_name().unwrap_or_default();
    let own = ENDS.map(|end| {
        let mut own = name.to_owned();
        own.push(end);
        own
    });
    let entries = fs::read_dir(home).into_iter().flatten().flatten().take(NAMES_MAX);
    entries.filter(|entry| !own.contains(&entry.file_name())).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::FlockOperation;

    #[test]
    fn who_has_a_lock_on_a_database_is_found() {
        let text = "1: POSIX  ADVISORY  READ 4711 fe:00:1234 128 128\n2: FLOCK ADVISORY WRITE 7 \
                    fe:00:99 0 EOF\n2: -> POSIX ADVISORY WRITE -1 fe:01:1234 0 EOF\n";
        let dev = |minor| rustix::fs::makedev(0xfe, minor);
        assert_eq!(holder_in(text, dev(0), 1234), Some(4711));
        assert_eq!(holder_in(text, dev(1), 1234), Some(-1));
        assert_eq!(holder_in(text, dev(0), 12), None);
        assert_eq!(holder_in("nonsense\nfe:00:5\n", dev(0), 5), None);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("app.db");
        fs::write(&path, "").unwrap();
        fs::write(dir.path().join("app.db-shm"), "").unwrap();
        assert_eq!(holder(&path), None);
        let shm = fs::File::open(dir.path().join("app.db-shm")).unwrap();
        rustix::fs::flock(&shm, FlockOperation::LockShared).unwrap();
        assert_eq!(holder(&path), Some(std::process::id().into()));
    }
}

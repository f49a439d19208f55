//! The directory of a copy: judged, made, finished and removed.
//!
//! ```text
//! DIR/tiersmith-trial-copy/   root's; the account may enter, and change no name in it
//!     data              what pg_basebackup has copied; the account's
//!     postgresql.conf   what the copy takes over; root's, for the account to read
//!     pg_hba.conf       whoever reaches the socket may log in; the same
//!     pg_ident.conf     empty; the same
//!     s                 the socket's directory; the account's
//!     log               the server's messages; the account's
//! ```
//!
//! Invariants: root gives away only what it has made a moment ago and holds open, before the
//! account can reach it; what is copied is written by the account itself, so root never changes the
//! owner of a tree; in what is above `data`, nobody but the caller and root can exchange a name.
//! Deliberately absent: what is in the files (`settings.rs`, `mod.rs`).

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Gid, Mode, OFlags, Uid};
use tiersmith_dir::{Dir, Owner};

use crate::error::{During, Error, Result};

/// The directory of a copy, in the one that the user names.
pub(super) const NAME: &str = "tiersmith-trial-copy";
/// The longest path of a socket that every system takes, without the socket's own name.
const SOCKETS_MAX: usize = 90;
/// Files of the database that the copy must not find: it is no standby, and has a configuration of
/// its own.
const NOT_COPIED: [&str; 6] = [
    "standby.signal",
    "recovery.signal",
    "postgresql.auto.conf",
    "postgresql.conf",
    "pg_hba.conf",
    "pg_ident.conf",
];
/// How often a directory is emptied that is filled meanwhile, and how long is waited in between.
const TRIES: u32 = 20;
const BETWEEN: Duration = Duration::from_millis(100);
/// Bytes of a version's file.
const VERSION_MAX: u64 = 64;

/// The directory that the user names, without links, if nobody but the caller and root has a say in
/// what is made there.
///
/// # Errors
/// It is not there; another account could exchange it or what is made in it; its path is too long.
pub(super) fn judged(dir: &Path) -> Result<PathBuf> {
    let refused = |reason: String| Error::Place { what: "copy", path: dir.to_path_buf(), reason };
    let real = dir.canonicalize().map_err(|e| {
        refused(format!("{e}; give a directory on storage as slow as the database's"))
    })?;
    let me = rustix::process::geteuid().as_raw();
    // Who could exchange a name on the way would say what root copies, gives away and removes.
    for above in real.ancestors() {
        let about = fs::symlink_metadata(above)
            .map_err(|e| refused(format!("cannot look at {}: {e}", above.display())))?;
        let mode = about.mode() & 0o7777;
        let is_open = mode & 0o022 != 0 && mode & 0o1000 == 0;
        if ![0, me].contains(&about.uid()) || is_open || !about.is_dir() {
            return Err(refused(format!(
                "{} belongs to user {} and has mode {mode:04o}, and whoever can write there could \
                 exchange what is made; give a directory of your own, with mode 0755, in \
                 directories of root's or your own",
                above.display(),
                about.uid()
            )));
        }
    }
    if real.join(NAME).as_os_str().len() > SOCKETS_MAX {
        return Err(refused("its path is too long for a socket; give a shorter one".into()));
    }
    Ok(real)
}

/// Makes the directory of a copy with these files, for an account that is not the caller's.
///
/// # Errors
/// There is one already; the system refuses.
///
/// # Durability
/// None: a copy is worth nothing.
pub(super) fn make(
    room: &Path,
    account: Option<(u32, u32)>,
    files: &[(&str, String)],
) -> Result<()> {
    let parent = room.parent().unwrap_or(Path::new("/"));
    let me = rustix::process::geteuid().as_raw();
    let of_account = account.map(|(user, group)| Owner { user, group });
    let readable = account.map(|(_, group)| Owner { user: me, group });
    let within = Dir::open(parent).during("open", parent)?;
    // Nobody else gets in until all is made and given.
    let made = within.make_dir(NAME, 0o700, None).during("make", room)?;
    for name in ["data", "s"] {
        made.make_dir(name, 0o700, of_account).during("make", made.path_of(name))?;
    }
    let write = |name: &str, text: &str, mode: u32, owner: Option<Owner>| {
        made.make_file(name, mode, owner)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .during("write", made.path_of(name))
    };
    for (name, text) in files {
        write(name, text, 0o640, readable)?;
    }
    write("log", "", 0o600, of_account)?;
    let Some((_, group)) = account else { return Ok(()) };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = rustix::fs::openat(&made, ".", flags, Mode::empty()).during("open", room)?;
    rustix::fs::fchown(&open, Some(Uid::from_raw(me)), Some(Gid::from_raw(group)))
        .and_then(|()| rustix::fs::fchmod(&open, Mode::from_raw_mode(0o750)))
        .during("open to the account", room)
}

/// Makes of what was copied a database of its own, of the version that its server has.
///
/// # Errors
/// It is another version's; the system refuses.
pub(super) fn finish(room: &Path, major: u64) -> Result<()> {
    let data = room.join("data");
    let dir = Dir::open(&data).during("open", &data)?;
    let version = dir.read("PG_VERSION", VERSION_MAX).during("read", dir.path_of("PG_VERSION"))?;
    let version = String::from_utf8_lossy(&version).trim().to_owned();
    if version != major.to_string() {
        return Err(Error::Place {
            what: "copy",
            path: data,
            reason: format!(
                "what was copied is of PostgreSQL {version}, and the server's programs here are \
                 of {major}; install that version's server here"
            ),
        });
    }
    for name in NOT_COPIED {
        match dir.remove(name) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(e).during("remove", dir.path_of(name));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes all of it. Nobody uses it any more.
///
/// # Errors
/// It is not what a trial has made; the system refuses; something is mounted there.
pub(super) fn remove(room: &Path) -> Result<()> {
    let about = match fs::symlink_metadata(room) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        about => about.during("look at", room)?,
    };
    let me = rustix::process::geteuid().as_raw();
    if !about.is_dir() || about.uid() != me || !room.ends_with(NAME) {
        return Err(Error::Place {
            what: "copy",
            path: room.to_path_buf(),
            reason: "it is not what a trial has made; look at it, and remove it".into(),
        });
    }
    // By descriptors, without following links: the account may change what is below `data`. A
    // process that was killed a moment ago may have made one file more.
    let mut tries = 0;
    loop {
        match fs::remove_dir_all(room) {
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty && tries < TRIES => tries += 1,
            removed => return removed.during("remove the copy", room),
        }
        std::thread::sleep(BETWEEN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::process::Command;

    /// An account that no system has.
    const STRANGER: u32 = 3_999_999;

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn is_root() -> bool {
        let root = rustix::process::geteuid().is_root();
        if !root {
            eprintln!("skipped: what root gives away, because this is not root");
        }
        root
    }

    #[test]
    fn every_directory_above_a_copy_is_judged() {
        let dir = tempfile::tempdir().unwrap();
        let (above, named) = (dir.path().join("above"), dir.path().join("above/named"));
        fs::create_dir_all(&named).unwrap();
        chmod(&named, 0o755);
        let said = || judged(&named).unwrap_err().to_string();
        for open in [0o777, 0o775, 0o757] {
            chmod(&above, open);
            let said = said();
            assert!(said.contains("could exchange what is made"), "{said}");
            assert!(said.contains(&format!("{} belongs", above.display())), "{said}");
        }
        for closed in [0o755, 0o1777] {
            chmod(&above, closed);
            assert_eq!(judged(&named).unwrap(), named.canonicalize().unwrap());
        }
        if is_root() {
            chmod(&above, 0o755);
            chown(&above, Some(STRANGER), None).unwrap();
            assert!(said().contains(&format!("belongs to user {STRANGER}")), "{}", said());
        }
        assert!(judged(&dir.path().join("none")).is_err());
    }

    #[test]
    fn the_account_of_a_copy_can_exchange_nothing_that_root_acts_on() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        chmod(dir.path(), 0o755);
        let room = dir.path().join(NAME);
        let files = [("postgresql.conf", "work_mem = 1\n".to_owned())];
        make(&room, Some((STRANGER, STRANGER)), &files).unwrap();
        let owner = |name: &str| {
            let about = fs::symlink_metadata(room.join(name)).unwrap();
            (about.uid(), about.gid(), about.mode() & 0o7777)
        };
        assert_eq!(owner(""), (0, STRANGER, 0o750));
        assert_eq!(owner("data"), (STRANGER, STRANGER, 0o700));
        assert_eq!(owner("s"), (STRANGER, STRANGER, 0o700));
        assert_eq!(owner("log"), (STRANGER, STRANGER, 0o600));
        assert_eq!(owner("postgresql.conf"), (0, STRANGER, 0o640));
        let as_account = |script: &str| {
            let id = STRANGER.to_string();
            let status = Command::new("setpriv")
                .args(["--clear-groups", "--reuid", &id, "--regid", &id, "sh", "-c", script])
                .current_dir("/")
                .stderr(std::process::Stdio::null())
                .env("ROOM", &room)
                .status();
            status.unwrap().success()
        };
        for exchange in [
            "mv $ROOM/data $ROOM/elsewhere",
            "rmdir $ROOM/data",
            "rm -f $ROOM/postgresql.conf",
            "echo x >> $ROOM/postgresql.conf",
            "ln -s /etc $ROOM/new",
            "mv $ROOM $ROOM-elsewhere",
        ] {
            assert!(!as_account(exchange), "{exchange}");
        }
        assert!(as_account("cat $ROOM/postgresql.conf && echo x > $ROOM/data/PG_VERSION"));
        // What it puts there leads root nowhere.
        let beside = dir.path().join("beside");
        fs::create_dir(&beside).unwrap();
        fs::write(beside.join("kept"), "").unwrap();
        assert!(as_account(&format!("ln -s {} $ROOM/data/link", beside.display())));
        remove(&room).unwrap();
        assert!(!room.exists() && beside.join("kept").exists());
        remove(&room).unwrap();
    }

    #[test]
    fn what_was_copied_is_of_the_version_of_its_server_and_no_standby() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        fs::create_dir(&data).unwrap();
        fs::write(data.join("PG_VERSION"), "14\n").unwrap();
        fs::write(data.join("standby.signal"), "").unwrap();
        fs::write(data.join("postgresql.auto.conf"), "primary_conninfo = 'x'\n").unwrap();
        let said = finish(dir.path(), 15).unwrap_err().to_string();
        assert!(said.contains("of PostgreSQL 14") && said.contains("are of 15"), "{said}");
        finish(dir.path(), 14).unwrap();
        let left: Vec<_> =
            fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["PG_VERSION"]);
    }

    #[test]
    fn only_what_a_trial_has_made_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("other");
        fs::create_dir(&other).unwrap();
        assert!(remove(&other).is_err() && other.exists());
        let link = dir.path().join(NAME);
        std::os::unix::fs::symlink(&other, &link).unwrap();
        assert!(remove(&link).is_err() && other.exists());
    }
}

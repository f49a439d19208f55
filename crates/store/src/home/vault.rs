//! The vault: the locked directory beside a home in which its files lie while they are moved aside.
//!
//! For a home `PATH` it is `PATH.tiersmith-home`, and the files are the directory `home` in it. The
//! database's user must not be able to start a server on those files:
//!
//! | attached by | owner and mode of the vault | the database's user |
//! |---|---|---|
//! | root | root, 0700 | cannot go in |
//! | anybody else | that user, 0000 | cannot go in without changing the mode first |
//!
//! Tiersmith itself goes in by descriptors: the open directory of the files needs no path. Who is
//! not root unlocks the vault for the moment in which that directory is opened. A process that is
//! killed in this moment leaves the vault unlocked (mode 0700); the next attach locks it again.
//!
//! Invariants: nothing here follows a link; a vault is judged by its open descriptor and its mode
//! is changed through that; a vault of somebody else is neither entered nor changed. The one
//! exception: root takes over a vault that the home's owner made, by locking its owner out.
//!
//! Not stopped: root, and a server that runs as root; and a user who unlocks his own vault by hand.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid};

use super::look::{device, names, status};
use super::{ATTACHMENT, HomeError};

/// What is added to the home's name to name its vault.
pub const ASIDE_SUFFIX: &str = ".tiersmith-home";
/// The name of the files' directory in the vault.
pub const FILES_NAME: &str = "home";

/// How often a call is tried again that another process has locked out.
const TRIES: u32 = 100;

const LOCKED: Mode = Mode::empty();

/// The vault of the home that is known as `home`.
#[must_use]
pub fn vault_of(home: &Path) -> PathBuf {
    let mut vault = home.as_os_str().to_os_string();
    vault.push(ASIDE_SUFFIX);
    vault.into()
}

/// Where the files of the home that is known as `home` are while they are moved aside.
#[must_use]
pub fn files_aside(home: &Path) -> PathBuf {
    vault_of(home).join(FILES_NAME)
}

/// The home whose files lie at `path` or, if that is a vault, in it; `None` where no files lie
/// aside.
#[must_use]
pub fn home_of_aside(path: &Path) -> Option<PathBuf> {
    let vault =
        if path.file_name() == Some(OsStr::new(FILES_NAME)) { path.parent()? } else { path };
    let name = vault.file_name()?.as_bytes().strip_suffix(ASIDE_SUFFIX.as_bytes())?;
    // A vault inside its home has no name of the home before its own.
    let home = if name.is_empty() {
        vault.parent()?.to_path_buf()
    } else {
        vault.with_file_name(OsString::from_vec(name.to_vec()))
    };
    let holds_home = match vault.join(FILES_NAME).join(ATTACHMENT).symlink_metadata() {
        Ok(_) => true,
        Err(e) => e.kind() == io::ErrorKind::PermissionDenied,
    };
    holds_home.then_some(home)
}

/// An open vault.
#[derive(Debug)]
pub(super) struct Vault {
    /// Good for going on from, not for reading: a locked vault cannot be opened for that.
    dir: OwnedFd,
    path: PathBuf,
}

impl Vault {
    const HANDLE: OFlags =
        OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

    /// The vault called `name` in `parent`; `None` where nothing has that name.
    pub(super) fn find(
        parent: impl AsFd,
        name: &OsStr,
        path: PathBuf,
    ) -> Result<Option<Self>, Errno> {
        match rustix::fs::openat(parent, name, Self::HANDLE, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            other => other.map(|dir| Some(Self { dir, path })),
        }
    }

    /// The vault that the open directory `files` lies in; `None` when it is not in the vault called
    /// `name` in `parent`. Needs no permission to enter it.
    pub(super) fn around(
        files: impl AsFd,
        parent: &OwnedFd,
        name: &OsStr,
        path: PathBuf,
    ) -> Result<Option<Self>, Errno> {
        let vault = Self::above(files, path)?;
        Ok(vault.is_at(parent, name)?.then_some(vault))
    }

    /// The directory that the open directory `files` lies in, for whoever knows that it is a vault.
    pub(super) fn above(files: impl AsFd, path: PathBuf) -> Result<Self, Errno> {
        Ok(Self { dir: rustix::fs::openat(files, "..", Self::HANDLE, Mode::empty())?, path })
    }

    /// Whether `name` in `parent` leads to it.
    pub(super) fn is_at(&self, parent: impl AsFd, name: &OsStr) -> Result<bool, Errno> {
        let own = status(&self.dir, OsStr::new(""))?;
        match status(parent, name) {
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(e),
            Ok(found) => Ok(found.stx_ino == own.stx_ino && device(&found) == device(&own)),
        }
    }

    /// Makes it, empty and ours alone.
    pub(super) fn make(parent: &OwnedFd, name: &OsStr, path: PathBuf) -> io::Result<Self> {
        rustix::fs::mkdirat(parent, name, Mode::RWXU)?;
        let dir = rustix::fs::openat(parent, name, Self::HANDLE, Mode::empty())?;
        let vault = Self { dir, path };
        // Who owns the parent may have put another directory there meanwhile.
        let (owner, mode) = vault.owner_and_mode()?;
        if owner != geteuid() || mode.intersects(Mode::RWXG | Mode::RWXO) {
            return Err(vault.of_another(owner));
        }
        Ok(vault)
    }

    /// For names in it: the calls that end in `at`.
    pub(super) fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    pub(super) fn files_path(&self) -> PathBuf {
        self.path.join(FILES_NAME)
    }

    /// Refuses one that neither this user nor, when this is root, the home's owner made.
    pub(super) fn refuse_foreign(&self, home_owner: u32) -> io::Result<()> {
        let (owner, _) = self.owner_and_mode()?;
        let own = owner == geteuid() || (geteuid().is_root() && owner.as_raw() == home_owner);
        if own { Ok(()) } else { Err(self.of_another(owner)) }
    }

    /// Locks the database's user out, as far as who we are allows.
    pub(super) fn lock(&self, home_owner: u32) -> io::Result<()> {
        self.refuse_foreign(home_owner)?;
        if !geteuid().is_root() {
            return Ok(self.set_mode(LOCKED)?);
        }
        let (owner, mode) = self.owner_and_mode()?;
        if !owner.is_root() {
            let (uid, gid) = (Some(Uid::ROOT), Some(Gid::ROOT));
            rustix::fs::chownat(&self.dir, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if mode & (Mode::RWXU | Mode::RWXG | Mode::RWXO) != Mode::RWXU {
            self.set_mode(Mode::RWXU)?;
        }
        Ok(())
    }

    /// Lets this process in.
    pub(super) fn unlock(&self) -> Result<(), Errno> {
        if self.is_locked()? { self.set_mode(Mode::RWXU) } else { Ok(()) }
    }

    /// The open directory of the files, or of the note that has their name.
    pub(super) fn open_files(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (opened, unlocked) =
            self.enter(|| rustix::fs::openat(&self.dir, FILES_NAME, flags, Mode::empty()));
        // Who unlocks it locks it again. What it was like before does not tell: it may be locked
        // between that look and this one.
        if unlocked {
            self.set_mode(LOCKED)?;
        }
        opened
    }

    /// Calls `work`, which goes into the vault; unlocks it when it is locked, by another process
    /// that has just looked into it, too.
    pub(super) fn inside<T>(&self, work: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        self.enter(work).0
    }

    /// The same; and whether it unlocked the vault.
    fn enter<T>(&self, work: impl Fn() -> Result<T, Errno>) -> (Result<T, Errno>, bool) {
        let mut unlocked = false;
        for _ in 0..TRIES {
            let refused = match work() {
                Err(Errno::ACCESS) => Errno::ACCESS,
                other => return (other, unlocked),
            };
            let unlocks = match (self.has_key(), self.is_locked()) {
                (Ok(true), Ok(locked)) => locked,
                (Ok(false), _) => return (Err(refused), unlocked),
                (Err(e), _) | (_, Err(e)) => return (Err(e), unlocked),
            };
            // Else somebody has unlocked it since it refused us, and it is tried again.
            if unlocks {
                if let Err(e) = self.set_mode(Mode::RWXU) {
                    return (Err(e), unlocked);
                }
                unlocked = true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        (work(), unlocked)
    }

    /// The names in it.
    pub(super) fn names(&self) -> Result<Vec<OsString>, Errno> {
        self.inside(|| names(self.readable()?))
    }

    /// Makes the names in it durable.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        self.inside(|| rustix::fs::fsync(self.readable()?))
    }

    fn readable(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, ".", flags, Mode::empty())
    }

    /// Whether we can unlock it.
    fn has_key(&self) -> Result<bool, Errno> {
        let (owner, _) = self.owner_and_mode()?;
        Ok(!geteuid().is_root() && owner == geteuid())
    }

    /// Whether it is locked and we hold the key.
    fn is_locked(&self) -> Result<bool, Errno> {
        let (_, mode) = self.owner_and_mode()?;
        Ok(self.has_key()? && !mode.contains(Mode::RWXU))
    }

    pub(super) fn owner_and_mode(&self) -> Result<(Uid, Mode), Errno> {
        let found = status(&self.dir, OsStr::new(""))?;
        Ok((Uid::from_raw(found.stx_uid), Mode::from_raw_mode(found.stx_mode.into())))
    }

    /// Through the descriptor: `fchmod` takes none that cannot be read from, and a locked vault
    /// gives no other. The kernel's own link to it leads to this very directory.
    fn set_mode(&self, mode: Mode) -> Result<(), Errno> {
        rustix::fs::chmod(format!("/proc/self/fd/{}", self.dir.as_raw_fd()), mode)
    }

    fn of_another(&self, owner: Uid) -> io::Error {
        HomeError::VaultOfAnother { vault: self.path.clone(), owner: owner.as_raw() }.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::sync::Barrier;

    /// Root is never locked out.
    const SOMEBODY: u32 = 65534;
    const ROUNDS: u32 = 4000;

    #[test]
    fn a_vault_that_is_locked_while_somebody_looks_into_it_stays_locked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vault");
        std::fs::create_dir_all(path.join(FILES_NAME)).unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let root = geteuid().is_root();
        if root {
            chown(&path, Some(SOMEBODY), None).unwrap();
        }
        let barrier = Barrier::new(2);
        let open = || {
            if root {
                let uid = Uid::from_raw(SOMEBODY);
                rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            }
            let parent = rustix::fs::open(dir.path(), Vault::HANDLE, Mode::empty()).unwrap();
            Vault::find(&parent, OsStr::new("vault"), PathBuf::new()).unwrap().unwrap()
        };
        let left_open = std::thread::scope(|scope| {
            scope.spawn(|| {
                let vault = open();
                for _ in 0..ROUNDS {
                    barrier.wait();
                    drop(vault.open_files().unwrap());
                    barrier.wait();
                }
            });
            let attaching = scope.spawn(|| {
                let (vault, me) = (open(), geteuid().as_raw());
                let mut left_open = 0;
                for round in 0..ROUNDS {
                    vault.unlock().unwrap();
                    barrier.wait();
                    (0..round % 64 * 16).for_each(|_| std::hint::spin_loop());
                    vault.lock(me).unwrap();
                    barrier.wait();
                    left_open += u32::from(!vault.is_locked().unwrap());
                }
                left_open
            });
            attaching.join().unwrap()
        });
        assert_eq!(left_open, 0, "of {ROUNDS} looks");
    }

    #[test]
    fn nobody_is_refused_because_others_look_into_it_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("vault");
        std::fs::create_dir_all(path.join(FILES_NAME)).unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let root = geteuid().is_root();
        if root {
            chown(&path, Some(SOMEBODY), None).unwrap();
        }
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o000)).unwrap();
        let look = || {
            if root {
                let uid = Uid::from_raw(SOMEBODY);
                rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            }
            let parent = rustix::fs::open(dir.path(), Vault::HANDLE, Mode::empty()).unwrap();
            let vault = Vault::find(&parent, OsStr::new("vault"), PathBuf::new()).unwrap().unwrap();
            (0..ROUNDS).filter(|_| vault.open_files().is_err()).count()
        };
        let refused: usize = std::thread::scope(|scope| {
            let looking = [(); 4].map(|()| scope.spawn(look));
            looking.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(refused, 0);
    }
}

//! The way to the files of a home that is a mount point, while the mount covers them.
//!
//! The vault of such a home lies inside it, and so beneath what is mounted over it. Therefore the
//! vault is mounted a second time, where the vault of any other home is: `HOME.tiersmith-home`.
//! That is done before the home's mount and undone after it. A daemon that was killed leaves the
//! passage with its dead mount: the next one uses it, and [`clear_passage`] takes it away. A reboot
//! leaves an empty directory.
//!
//! Only root has such a home. What is found beside the home is judged by its open directory, and
//! unmounted only if it is that home's vault.

use crate::error::Error;
use crate::point::{HANDLE, by_descriptor, device, is_mount_root, same};
use rustix::fs::{AtFlags, Mode, Stat};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use tiersmith_dir::Dir;
use tiersmith_store::AttachedHome;
use tiersmith_store::home::{ASIDE_SUFFIX, vault_of};

/// A vault that is mounted beside its home. Dropping it takes it away.
#[derive(Debug)]
pub(crate) struct Passage {
    parent: Dir,
    name: OsString,
    vault: Stat,
}

impl Passage {
    /// Mounts the vault of the home beside it, if that lies inside what is to be mounted over at
    /// `at`. `None`: it does not.
    pub(crate) fn make(home: &AttachedHome, at: &Path) -> Result<Option<Self>, Error> {
        let Some(own) = home.directory().filter(|_| at == home.home_path()) else {
            return Ok(None);
        };
        let failed = |source: io::Error| Error::Io {
            what: "make the way to the files, which will be under the mount, beside",
            at: at.to_path_buf(),
            source,
        };
        let io = |source: Errno| failed(source.into());
        let (parent, name) = Dir::holding(at).map_err(failed)?;
        let vault = rustix::fs::openat(own, "..", HANDLE, Mode::empty()).map_err(io)?;
        let passage =
            Self { name: beside(&name), vault: rustix::fs::fstat(&vault).map_err(io)?, parent };
        match passage.found().map_err(io)? {
            Some((_, true)) => return Ok(Some(passage)),
            Some((there, false)) if passage.is_vault(&there).map_err(io)? => return Ok(None),
            _ => {}
        }
        let top = rustix::fs::openat(&passage.parent, &name, HANDLE, Mode::empty()).map_err(io)?;
        if !is_top_of(&top, own, &passage.vault).map_err(io)? {
            return Ok(None);
        }
        // By way of the top: the files may have been opened by an earlier passage, which is gone.
        let vault = rustix::fs::openat(&top, ASIDE_SUFFIX, HANDLE, Mode::empty()).map_err(io)?;
        passage.mount(&vault).map_err(failed)?;
        Ok(Some(passage))
    }

    /// What is beside the home, and whether it is this passage. What is mounted there and is
    /// another thing is an error.
    fn found(&self) -> Result<Option<(OwnedFd, bool)>, Errno> {
        let there = match rustix::fs::openat(&self.parent, &self.name, HANDLE, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            other => other?,
        };
        let mounted = is_mount_root(&there, &self.parent)?;
        if mounted && !self.is_vault(&there)? {
            return Err(Errno::BUSY);
        }
        Ok(Some((there, mounted)))
    }

    fn is_vault(&self, there: &OwnedFd) -> Result<bool, Errno> {
        Ok(same(&rustix::fs::fstat(there)?, &self.vault))
    }

    fn mount(&self, vault: &OwnedFd) -> io::Result<()> {
        match rustix::fs::mkdirat(&self.parent, &self.name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let dir = rustix::fs::openat(&self.parent, &self.name, HANDLE, Mode::empty())?;
        let found = rustix::fs::fstat(&dir)?;
        if found.st_uid != rustix::process::geteuid().as_raw() || found.st_mode & 0o022 != 0 {
            let whose = format!("{} belongs to somebody else", self.name.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, whose));
        }
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = rustix::mount::open_tree(vault, "", flags)?;
        let onto =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        rustix::mount::move_mount(&tree, "", &dir, "", onto)?;
        drop(dir);
        // Its name may have been given to another directory meanwhile.
        match self.found()? {
            Some((_, true)) => Ok(()),
            _ => Err(io::Error::other("the directory was moved away while it was mounted on")),
        }
    }

    /// Unmounts it and removes its directory.
    fn take_away(&self) -> Result<(), Errno> {
        if let Some((there, true)) = self.found()? {
            // Whoever has something of it open keeps that.
            rustix::mount::unmount(by_descriptor(&there), UnmountFlags::DETACH)?;
        }
        match rustix::fs::unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR) {
            // A vault that files are in is none of ours to remove.
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(e) => Err(e),
        }
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        if let Err(e) = self.take_away() {
            let at = self.parent.path_of(&self.name);
            log::warn!("{} stays mounted, though nothing needs it any more: {e}", at.display());
        }
    }
}

fn beside(name: &OsStr) -> OsString {
    vault_of(Path::new(name)).into_os_string()
}

/// Whether `top` is the top directory that the vault of the files in `own` lies inside. Nothing is
/// asked of a process behind a mount.
pub(crate) fn is_top_of(top: &OwnedFd, own: impl AsFd, vault: &Stat) -> Result<bool, Errno> {
    if device(top)? != device(own)? {
        return Ok(false);
    }
    match rustix::fs::statat(top, ASIDE_SUFFIX, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(same(&found, vault)),
        Err(Errno::NOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Takes away what a daemon that was killed, or a reboot, has left of the second way to the files
/// of the home at `at`, if that is a mount point. The caller has the home locked, and nothing of
/// ours is mounted over it any more.
///
/// # Errors
/// [`Error::Io`] when the system refuses.
pub fn clear_passage(at: &Path) -> Result<(), Error> {
    let failed = |source: io::Error| Error::Io {
        what: "take away the second way to the files of",
        at: PathBuf::from(at),
        source,
    };
    let io = |source: Errno| failed(source.into());
    let (parent, name) = Dir::holding(at).map_err(failed)?;
    let Ok(top) = rustix::fs::openat(&parent, &name, HANDLE, Mode::empty()) else { return Ok(()) };
    if !rustix::process::geteuid().is_root() || !is_mount_root(&top, &parent).map_err(io)? {
        return Ok(());
    }
    let vault = match rustix::fs::statat(&top, ASIDE_SUFFIX, AtFlags::SYMLINK_NOFOLLOW) {
        Err(_) => return Ok(()),
        Ok(vault) => vault,
    };
    // Dropping it takes it away once more, of which nothing is left.
    Passage { parent, name: beside(&name), vault }.take_away().map_err(io)
}

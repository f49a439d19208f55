//! The vault of a home that is a mount point: a directory inside, into which the files move.
//!
//! The top directory of a file system has no sibling to be exchanged with. So its files are moved,
//! name by name, into the vault `PATH/.tiersmith-home`, and `PATH` itself keeps the note:
//!
//! | the top directory | in the vault | |
//! |---|---|---|
//! | files | no vault, or one without `home` | open |
//! | no whole note | `home`, empty | between: interrupted |
//! | no whole note, names, and locked | `home`, with files | between: interrupted |
//! | else | `home`, with files | closed |
//!
//! While it is between, no block is in a tier only: closing precedes the first, opening follows the
//! last. So an interrupted move always goes back ([`Inside::open`]), and the same command goes on.
//! Until then the top directory is locked as a vault is: root's, mode 0700. So a name at a top that
//! is not locked, while files are in the vault, was put there by somebody, and stops both ways.
//!
//! A vault is root's, has mode 0700 and a note of its own, which comes before the files and goes
//! after them. What else has its name is none, and is neither entered nor changed.
//!
//! `home` is made with the owner, mode and attributes of the top directory, which are restored from
//! it. `lost+found` stays where `fsck` looks for it.
//!
//! Invariants: the top directory is locked, durably, before the first name moves and until after
//! the last; a whole note is written only while every file is in the vault; a name never replaces
//! another. Only root may do this: others cannot give a directory away and back.
//!
//! Deliberately absent: the way to the files while something is mounted over them (crate `mount`).

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Gid, Mode, RenameFlags, Uid, XattrFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::look::{kind, names, status};
use super::people::{
    DIRECTORY, LOOK, NOTE_FILE, has_marker, refuse_others, remove_note_file, write_note_file,
};
use super::vault::{ASIDE_SUFFIX, FILES_NAME, Vault};
use super::{FileKind, HomeError};

/// The vault's name in the top directory.
pub(super) const INSIDE: &str = ASIDE_SUFFIX;
/// The files' directory in the vault, until it has its attributes.
const MAKING: &str = "making";
/// What `fsck` has at the top of a file system.
const LOST_FOUND: &str = "lost+found";
/// A name that the kernel gives no longer list of.
const XATTRS_MAX: usize = 64 << 10;

/// The vault of the home that is known as `home`, and is a mount point.
pub(super) fn vault_inside(home: &Path) -> PathBuf {
    home.join(INSIDE)
}

/// Where its files are while it is closed.
#[must_use]
pub fn files_inside(home: &Path) -> PathBuf {
    vault_inside(home).join(FILES_NAME)
}

/// How a top directory was found.
pub(super) enum Found {
    /// Its files are in it.
    Open,
    /// They are in this directory.
    Closed(OwnedFd),
    /// Moving them was interrupted.
    Between,
}

/// Looks at a directory that may be the top of a home with a vault inside.
pub(super) fn look(top: &OwnedFd, path: &Path) -> Result<Found, HomeError> {
    let failed = |e: Errno| of_vault(path, e);
    let vault = match Named::find(top, path).map_err(failed)? {
        Named::Nothing => return Ok(Found::Open),
        Named::Vault(vault) => vault,
        // Without the note it is a name like any other.
        Named::Other(why) => match has_marker(top).map_err(failed)? {
            true => return Err(no_vault(path, why)),
            false => return Ok(Found::Open),
        },
    };
    let files = match vault.open_files() {
        Err(Errno::NOENT) => return Ok(Found::Open),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Err(no_vault(path, format!("/{FILES_NAME} is no directory")));
        }
        other => other.map_err(failed)?,
    };
    let between = || {
        Ok(!has_marker(top)?
            && is_moving(top, &files)?
            && (names(&files)?.is_empty() || !others(top)?.is_empty()))
    };
    Ok(if between().map_err(failed)? { Found::Between } else { Found::Closed(files) })
}

/// Whether an open home has a vault inside, which only an interrupted move leaves there.
pub(super) fn is_left(top: &OwnedFd, path: &Path) -> Result<bool, Errno> {
    Ok(geteuid().is_root() && matches!(Named::find(top, path)?, Named::Vault(_)))
}

/// What has the vault's name in a top directory.
enum Named {
    Nothing,
    /// A vault, or one that was just made or is almost removed: nothing is in it then.
    Vault(Vault),
    /// Something else; and what tells.
    Other(String),
}

impl Named {
    fn find(top: &OwnedFd, path: &Path) -> Result<Self, Errno> {
        let vault = match Vault::find(top, OsStr::new(INSIDE), vault_inside(path)) {
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(Self::Other(" is no directory".into())),
            Ok(None) => return Ok(Self::Nothing),
            Ok(Some(vault)) => vault,
            Err(e) => return Err(e),
        };
        let (owner, mode) = vault.owner_and_mode()?;
        let mode = mode & (Mode::RWXU | Mode::RWXG | Mode::RWXO);
        if !owner.is_root() {
            return Ok(Self::Other(format!(" belongs to user {}", owner.as_raw())));
        }
        if mode != Mode::RWXU {
            return Ok(Self::Other(format!(" has mode {:04o}", mode.bits())));
        }
        if has_marker(vault.dir())? || vault.names()?.iter().all(|name| name == NOTE_FILE) {
            return Ok(Self::Vault(vault));
        }
        Ok(Self::Other(format!(" has no {NOTE_FILE} of Tiersmith")))
    }
}

/// What is said of something that has the vault's name.
fn no_vault(path: &Path, why: String) -> HomeError {
    HomeError::NoVault { vault: vault_inside(path), why, home: path.to_path_buf() }
}

fn of_vault(path: &Path, e: Errno) -> HomeError {
    match e {
        Errno::ACCESS | Errno::PERM => {
            HomeError::NoPermission { path: files_inside(path), source: e.into() }
        }
        _ => HomeError::Io { what: "look into", path: path.to_path_buf(), source: e.into() },
    }
}

/// Whether the names at a top without a whole note are the home's, on their way.
fn is_moving(top: &OwnedFd, files: &OwnedFd) -> Result<bool, Errno> {
    let found = rustix::fs::fstat(top)?;
    let locked = found.st_uid == 0 && found.st_mode & 0o777 == 0o700;
    Ok(locked || names(files)?.is_empty())
}

/// The names in a top directory but for the vault, the note and what stays.
fn others(top: &OwnedFd) -> Result<Vec<OsString>, Errno> {
    let mut found = names(top)?;
    found.retain(|name| name != INSIDE && name != NOTE_FILE);
    if stays(top)? {
        found.retain(|name| name != LOST_FOUND);
    }
    Ok(found)
}

/// Whether the file system has its own directory there.
fn stays(top: &OwnedFd) -> Result<bool, Errno> {
    match status(top, OsStr::new(LOST_FOUND)) {
        Ok(found) => Ok(kind(&found) == FileKind::Directory && found.stx_uid == 0),
        Err(Errno::NOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

/// A home's top directory, open by the way on which its names may be moved.
pub(super) struct Inside<'a> {
    pub(super) top: &'a OwnedFd,
    pub(super) path: &'a Path,
    /// Where a test stops the work.
    pub(super) step: &'a dyn Fn(u32) -> io::Result<()>,
}

impl Inside<'_> {
    fn vault_path(&self) -> PathBuf {
        vault_inside(self.path)
    }

    fn refused(&self, what: &'static str, source: impl Into<io::Error>) -> io::Error {
        HomeError::Io { what, path: self.path.to_path_buf(), source: source.into() }.into()
    }

    /// The vault; `None` where nothing has its name.
    fn vault(&self) -> io::Result<Option<Vault>> {
        match Named::find(self.top, self.path)? {
            Named::Nothing => Ok(None),
            Named::Vault(vault) => Ok(Some(vault)),
            Named::Other(why) => Err(no_vault(self.path, why).into()),
        }
    }

    /// The files' directory, found by way of the top, so that one mount has both.
    pub(super) fn files(&self) -> io::Result<Option<OwnedFd>> {
        match self.vault()?.map(|vault| vault.open_files()) {
            None | Some(Err(Errno::NOENT)) => Ok(None),
            Some(files) => Ok(Some(files?)),
        }
    }

    /// Moves the files into the vault and leaves the note. `ready` is given their directory while
    /// it is empty. Steps ("power cut here" means before the step):
    /// 30. Make the vault. Power cut here leaves it open.
    /// 31. Write and sync the vault's own note. Power cut here leaves it open, and an empty vault.
    /// 32. Make the files' directory, with the attributes of the top. Power cut here leaves it
    ///     open, and a vault without it.
    /// 33. Sync it, and give it its name. Power cut here leaves it open.
    /// 34. Lock the top, and sync that. Power cut here leaves it between, with all files at the
    ///     top.
    /// 35. Move the first name. Power cut here leaves it between, and locked.
    /// 36. Move the last name. Power cut here leaves it between, and locked.
    /// 37. Sync both directories. Power cut here leaves any of the names in either.
    /// 38. Write and sync the note. Power cut here leaves it closed, and locked.
    /// 39. Let everybody read the note. Power cut here leaves it closed; the next call does it.
    pub(super) fn close(
        &self,
        text: &str,
        ready: &mut dyn FnMut(&OwnedFd) -> io::Result<()>,
    ) -> io::Result<()> {
        // What an interrupted move has left goes first.
        self.open()?;
        if names(self.top)?.iter().any(|name| name == NOTE_FILE) {
            refuse_others(vec![NOTE_FILE.into()], self.path)?;
        }
        (self.step)(30)?;
        let vault = Vault::make(self.top, OsStr::new(INSIDE), self.vault_path())?;
        let closed = self.fill(&vault, text, ready);
        if closed.is_err() {
            // As it was; or between, if this fails too, which the next call mends.
            let _ = self.open();
        }
        closed
    }

    fn fill(
        &self,
        vault: &Vault,
        text: &str,
        ready: &mut dyn FnMut(&OwnedFd) -> io::Result<()>,
    ) -> io::Result<()> {
        (self.step)(31)?;
        write_note_file(vault.dir(), text)?;
        vault.sync()?;
        (self.step)(32)?;
        rustix::fs::mkdirat(vault.dir(), MAKING, Mode::RWXU)?;
        let files = rustix::fs::openat(vault.dir(), MAKING, DIRECTORY, Mode::empty())?;
        give_attributes(self.top, &files)?;
        ready(&files)?;
        (self.step)(33)?;
        rustix::fs::fsync(&files)?;
        rustix::fs::renameat(vault.dir(), MAKING, vault.dir(), FILES_NAME)?;
        vault.sync()?;
        rustix::fs::fsync(self.top)?;
        self.finish_closing(&files, text)
    }

    /// What is still to be done where the files' directory is there: moves in what is at the top,
    /// writes the note if it is not whole, and lets everybody read it.
    pub(super) fn finish_closing(&self, files: &OwnedFd, text: &str) -> io::Result<()> {
        if !has_marker(self.top)? {
            if !is_moving(self.top, files)? {
                // Somebody put them where the note was.
                refuse_others(others(self.top)?, self.path)?;
            }
            (self.step)(34)?;
            lock(self.top)?;
            // From here on only root makes another.
            self.move_all(self.top, files, &others(self.top)?, (35, 36))?;
            (self.step)(37)?;
            rustix::fs::fsync(files)?;
            rustix::fs::fsync(self.top)?;
            (self.step)(38)?;
            write_note_file(self.top, text)?;
            rustix::fs::fsync(self.top)?;
        }
        (self.step)(39)?;
        let found = rustix::fs::fstat(self.top)?;
        if (found.st_uid, Mode::from_raw_mode(found.st_mode & 0o7777)) != (0, LOOK) {
            rustix::fs::fchown(self.top, Some(Uid::ROOT), Some(Gid::ROOT))?;
            rustix::fs::fchmod(self.top, LOOK)?;
            rustix::fs::fsync(self.top)?;
        }
        Ok(())
    }

    /// Moves the files back, from whatever was reached on either way, and removes the vault;
    /// nothing where there is none.
    pub(super) fn open(&self) -> io::Result<()> {
        self.empty()?;
        self.remove_vault()
    }

    /// Moves the files back. Steps ("power cut here" means before the step):
    /// 40. Lock the top, and sync that. Power cut here leaves it closed.
    /// 41. Remove the note, and sync that. Power cut here leaves it closed, and locked.
    /// 42. Move the first name. Power cut here leaves it closed, and locked.
    /// 43. Move the last name. Power cut here leaves it between, and locked.
    /// 44. Sync both directories. Power cut here leaves any of the names in either.
    /// 45. Give the top its attributes back. Power cut here leaves it between: all files are at the
    ///     top, which is locked.
    /// 46. Remove the files' directory. Power cut here leaves it between, and not locked.
    pub(super) fn empty(&self) -> io::Result<()> {
        let Some(vault) = self.vault()? else { return Ok(()) };
        if !geteuid().is_root() {
            return Err(HomeError::MountPoint { path: self.path.to_path_buf() }.into());
        }
        let ours = [FILES_NAME, MAKING, NOTE_FILE];
        let strange = vault.names()?.into_iter().filter(|name| ours.iter().all(|own| name != own));
        refuse_others(strange.collect(), &self.vault_path())?;
        let files = match vault.open_files() {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        let (at_top, moving) = (others(self.top)?, names(&files)?);
        if has_marker(self.top)? || !is_moving(self.top, &files)? {
            // Somebody put them beside the note, or where it was.
            refuse_others(at_top, self.path)?;
        } else {
            let twice = at_top.into_iter().filter(|name| moving.contains(name));
            refuse_others(twice.collect(), self.path)?;
        }
        let reserved = |name: &&OsString| {
            *name == NOTE_FILE
                || *name == INSIDE
                || (*name == LOST_FOUND && stays(self.top) == Ok(true))
        };
        let kept: Vec<_> = moving.iter().filter(reserved).cloned().collect();
        refuse_others(kept, &files_inside(self.path))?;
        // Where all is at the top already a server may have been started, which a lock would stop.
        if !moving.is_empty() || names(self.top)?.iter().any(|name| name == NOTE_FILE) {
            (self.step)(40)?;
            lock(self.top)?;
            (self.step)(41)?;
            remove_note_file(self.top)?;
            rustix::fs::fsync(self.top)?;
            self.move_all(&files, self.top, &moving, (42, 43))?;
            (self.step)(44)?;
            rustix::fs::fsync(self.top)?;
            rustix::fs::fsync(&files)?;
        }
        (self.step)(45)?;
        give_attributes(&files, self.top)?;
        rustix::fs::fsync(self.top)?;
        (self.step)(46)?;
        let removed = rustix::fs::unlinkat(vault.dir(), FILES_NAME, AtFlags::REMOVEDIR);
        if removed.is_err() {
            // Something has come into it: without the lock the names at the top would seem strange.
            lock(self.top)?;
        }
        Ok(removed?)
    }

    /// Removes the vault, which has no files in it. Steps ("power cut here" means before the step):
    /// 47. Remove its note. Power cut here leaves it open, and a vault.
    /// 48. Remove the vault. Power cut here leaves it open, and an empty vault.
    /// 49. Sync that. Power cut here leaves it open, with or without a vault.
    pub(super) fn remove_vault(&self) -> io::Result<()> {
        let Some(vault) = self.vault()? else { return Ok(()) };
        match rustix::fs::unlinkat(vault.dir(), MAKING, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
        (self.step)(47)?;
        remove_note_file(vault.dir())?;
        (self.step)(48)?;
        rustix::fs::unlinkat(self.top, INSIDE, AtFlags::REMOVEDIR)?;
        (self.step)(49)?;
        Ok(rustix::fs::fsync(self.top)?)
    }

    /// Moves every name; those that went go back if one cannot.
    fn move_all(
        &self,
        from: &OwnedFd,
        to: &OwnedFd,
        moving: &[OsString],
        (first, last): (u32, u32),
    ) -> io::Result<()> {
        for (n, name) in moving.iter().enumerate() {
            if n == 0 {
                (self.step)(first)?;
            }
            if n + 1 == moving.len() {
                (self.step)(last)?;
            }
            if let Err(e) = move_one(from, to, name) {
                for went in moving[..n].iter().rev() {
                    let _ = move_one(to, from, went);
                }
                let _ = rustix::fs::fsync(from);
                let what = if e == Errno::XDEV || e == Errno::BUSY {
                    "move, within its file system, each name at the top of"
                } else {
                    "move the files of"
                };
                return Err(self.refused(what, e));
            }
        }
        Ok(())
    }
}

/// A name that exists already is never replaced, also where the file system cannot promise that.
fn move_one(from: &OwnedFd, to: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from, name, to, name, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match status(to, name) {
            Err(Errno::NOENT) => rustix::fs::renameat(from, name, to, name),
            Err(e) => Err(e),
            Ok(_) => Err(Errno::EXIST),
        },
        other => other,
    }
}

fn lock(top: &OwnedFd) -> Result<(), Errno> {
    rustix::fs::fchown(top, Some(Uid::ROOT), Some(Gid::ROOT))?;
    rustix::fs::fchmod(top, Mode::RWXU)?;
    rustix::fs::fsync(top)
}

/// Gives `to` the owner, extended attributes (access lists among them) and mode of `from`.
fn give_attributes(from: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
    let found = rustix::fs::fstat(from)?;
    rustix::fs::fchown(to, Some(Uid::from_raw(found.st_uid)), Some(Gid::from_raw(found.st_gid)))?;
    let wanted = attributes(from)?;
    // A label of the kernel's security module may not be removed, nor set where the mount gives it.
    let unless_label = |name: &OsStr, done: Result<(), Errno>| match done {
        Err(Errno::ACCESS | Errno::PERM | Errno::OPNOTSUPP)
            if name.as_encoded_bytes().starts_with(b"security.") =>
        {
            Ok(())
        }
        other => other,
    };
    for name in attributes(to)?.iter().filter(|name| !wanted.contains(name)) {
        unless_label(name, rustix::fs::fremovexattr(to, name.as_os_str()))?;
    }
    for name in &wanted {
        let value = attribute(from, name)?;
        if attribute(to, name).ok().as_ref() != Some(&value) {
            let set = rustix::fs::fsetxattr(to, name.as_os_str(), &value, XattrFlags::empty());
            unless_label(name, set)?;
        }
    }
    Ok(rustix::fs::fchmod(to, Mode::from_raw_mode(found.st_mode & 0o7777))?)
}

fn attribute(dir: &OwnedFd, name: &OsStr) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; XATTRS_MAX];
    let len = rustix::fs::fgetxattr(dir, name, &mut value[..])?;
    value.truncate(len);
    Ok(value)
}

/// The names of the extended attributes that are the directory's own, and not its file system's.
fn attributes(dir: impl AsFd) -> io::Result<Vec<OsString>> {
    use std::os::unix::ffi::OsStrExt;
    let mut list = vec![0; XATTRS_MAX];
    let len = match rustix::fs::flistxattr(&dir, &mut list[..]) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => 0,
        other => other?,
    };
    let of_ours = |name: &&[u8]| {
        ["user.", "security.", "system.posix_acl_"]
            .iter()
            .any(|kind| name.starts_with(kind.as_bytes()))
    };
    let names = list[..len].split(|byte| *byte == 0).filter(of_ours);
    Ok(names.map(|name| OsStr::from_bytes(name).to_os_string()).collect())
}

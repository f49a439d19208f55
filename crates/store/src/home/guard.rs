//! No way in by the back door: the home directory is moved aside while it is not a whole database.
//!
//! States, for a home known as `PATH` and its vault `PATH.tiersmith-home` (`vault.rs`):
//!
//! | `PATH` | the vault | |
//! |---|---|---|
//! | home | none | open |
//! | home | empty, or a note, whole or begun | open; closing or opening was interrupted |
//! | note | home | closed |
//! | mount over the note | home | closed, in use |
//! | nothing, or note begun | home | closed; interrupted on a file system that cannot exchange |
//!
//! A home that is a mount point has its vault inside: `inside.rs` has the states of that.
//!
//! What is in the vault, the home or the note, is called [`FILES_NAME`] there.
//!
//! Invariants: in each state exactly one of the two is the home, and it can be told which; where
//! the file system can exchange two names, there is no instant at which `PATH` is missing. A note
//! (`people.rs`) under `PATH` was synced before it came there. The vault is locked when closing
//! returns. What is done depends on what is found, so each call can be run again after a power cut.
//!
//! Deliberately absent: a single file as the home; it has no sibling to exchange with.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use tiersmith_dir::Dir;

use super::dirs::Directory;
use super::inside::{self, Inside, files_inside, vault_inside};
use super::look::{device, status, without_links};
use super::people::{
    DIRECTORY, LOOK, has_marker, is_note, note_text, only_the_note, refuse_others,
    remove_note_file, set_mode_unless_root, write_note_file,
};
use super::vault::{ASIDE_SUFFIX, FILES_NAME, Vault, files_aside, vault_of};
use super::{HomeError, RealHome};

/// Where the home lives and what its two names are.
pub(super) struct Place<'a> {
    pub(super) parent: &'a OwnedFd,
    parent_path: &'a Path,
    path: &'a Path,
    name: &'a OsStr,
    aside: OsString,
}

impl Place<'_> {
    fn vault_path(&self) -> PathBuf {
        self.parent_path.join(&self.aside)
    }

    /// The directory at the home's path, without asking a process that something there belongs to;
    /// and whether a door is mounted there, for files that are on the device of `home`.
    fn at_path(&self, home: impl AsFd) -> io::Result<Option<(OwnedFd, bool)>> {
        let handle = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(self.parent, self.name, handle, Mode::empty()) {
            Ok(dir) => {
                let foreign = device_of(&dir)? != device_of(home)?;
                let door = foreign && is_mount_root(&dir, self.parent)?;
                Ok(Some((dir, door)))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTCONN) => Err(self.refused(Errno::BUSY)),
            Err(e) => Err(self.refused(e)),
        }
    }

    fn find_vault(&self) -> io::Result<Option<Vault>> {
        Vault::find(self.parent, &self.aside, self.vault_path()).map_err(|e| self.refused(e))
    }

    fn refused(&self, source: Errno) -> io::Error {
        let path = self.path.to_path_buf();
        match source {
            Errno::BUSY => HomeError::MountPoint { path },
            e => HomeError::ParentRefused {
                parent: self.parent_path.to_path_buf(),
                path,
                source: e.into(),
            },
        }
        .into()
    }
}

impl RealHome {
    /// Steps ("power cut here" means before the step):
    /// 1. Make the vault. Power cut here leaves it open.
    /// 2. Write and sync the note in the vault. Power cut here leaves it open, and an empty vault.
    /// 3. Sync the note's directory. Power cut here leaves it open, and a vault with or without a
    ///    whole note.
    /// 4. Exchange home and note. Power cut here leaves it open, and a note in the vault.
    /// 5. Sync parent and vault. Power cut here leaves it open or closed, as the file system had
    ///    got to; both are whole.
    /// 10. Lock the vault and take the right to write from the note. Power cut here leaves it
    ///     closed and not locked: the next call locks it.
    ///
    /// On a file system that cannot exchange, step 4 is:
    /// 6. Remove the vault's note. Power cut here leaves it open, and a note in the vault.
    /// 7. Rename the home. Power cut here leaves it open.
    /// 8. Make the note's directory at the path. Power cut here leaves nothing at the path, the
    ///    home in the vault: closed.
    /// 9. Write and sync the note. Power cut here leaves an empty directory at the path: closed.
    pub(super) fn move_aside(&self, note: &str) -> io::Result<()> {
        let place = self.place()?;
        if let Some(vault) = self.vault(&place)? {
            match self.is_inside() {
                true => self.complete_inside(&place, note)?,
                false => self.complete_note(&place, note)?,
            }
            return vault.lock(self.owner()?);
        }
        if !self.has_name(place.name)? {
            return Err(strayed(&place));
        }
        self.remove_note(&place)?;
        if is_mount_root(&self.dir, place.parent)? {
            return self.move_inside(&place, note);
        }
        self.step(1)?;
        let vault = Vault::make(place.parent, &place.aside, place.vault_path())?;
        self.step(2)?;
        let noted = make_note(vault.dir()).map_err(|e| place.refused(e));
        if let Err(e) = noted.and_then(|dir| self.write_note(&place, &dir, note)) {
            // Nothing has moved yet; a vault is no harm, and the next call removes it if this one
            // cannot.
            let _ = self.remove_note(&place);
            return Err(e);
        }
        self.step(4)?;
        match self.exchange(&place, &vault) {
            Ok(true) => {}
            Ok(false) => {
                self.step(6)?;
                self.remove_vaults_note(&vault)?;
                self.step(7)?;
                rustix::fs::renameat(place.parent, place.name, vault.dir(), FILES_NAME)
                    .map_err(|e| place.refused(e))?;
                self.step(8)?;
            }
            Err(e) => {
                let _ = self.remove_note(&place);
                return Err(e);
            }
        }
        if self.vault(&place)?.is_none() {
            // Who owns the parent put another directory in the home's place: that goes back.
            let _ = rustix::fs::renameat_with(
                vault.dir(),
                FILES_NAME,
                place.parent,
                place.name,
                RenameFlags::EXCHANGE,
            );
            return Err(strayed(&place));
        }
        self.step(5)?;
        vault.sync()?;
        rustix::fs::fsync(place.parent).map_err(|e| place.refused(e))?;
        self.step(10)?;
        self.complete_note(&place, note)?;
        vault.lock(self.owner()?)
    }

    /// Steps ("power cut here" means before the step):
    /// 20. Unlock the vault, and let the note be moved. Power cut here leaves it closed.
    /// 21. Exchange home and note. Power cut here leaves it closed; the vault may not be locked.
    /// 22. Sync parent and vault. Power cut here leaves it open or closed; both are whole.
    /// 23. Remove the note's file. Power cut here leaves it open, and a note in the vault.
    /// 24. Remove the note's directory and the vault. Power cut here leaves it open, and an empty
    ///     directory in the vault.
    /// 25. Sync the parent. Power cut here leaves it open, with or without a vault.
    ///
    /// On a file system that cannot exchange, step 21 is:
    /// 26. Remove the note at the path. Power cut here leaves it closed.
    /// 27. Rename the home. Power cut here leaves nothing at the path, the home in the vault:
    ///     closed.
    pub(super) fn move_back(&self) -> io::Result<()> {
        let place = self.place()?;
        if self.is_inside() {
            return self.move_out(&place);
        }
        let Some(vault) = self.vault(&place)? else {
            if !self.has_name(place.name)? {
                return Err(strayed(&place));
            }
            self.remove_inside(&place)?;
            return self.remove_note(&place);
        };
        vault.refuse_foreign(self.owner()?)?;
        let at_path = match rustix::fs::openat(place.parent, place.name, DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) => None,
            Err(Errno::NOTCONN) => return Err(place.refused(Errno::BUSY)),
            other => Some(other.map_err(|e| place.refused(e))?),
        };
        if let Some(dir) = &at_path {
            if is_mount_root(dir, place.parent)? {
                return Err(place.refused(Errno::BUSY));
            }
            only_the_note(dir, place.path)?;
        }
        self.step(20)?;
        vault.unlock()?;
        if let Some(dir) = &at_path {
            set_mode_unless_root(dir, LOOK | Mode::WUSR)?;
        }
        self.step(21)?;
        if at_path.is_none() || !self.exchange(&place, &vault)? {
            if let Some(dir) = &at_path {
                self.step(26)?;
                remove_note_file(dir)?;
                rustix::fs::unlinkat(place.parent, place.name, AtFlags::REMOVEDIR)
                    .map_err(|e| place.refused(e))?;
            }
            self.step(27)?;
            let renamed = vault
                .inside(|| rustix::fs::renameat(vault.dir(), FILES_NAME, place.parent, place.name));
            renamed.map_err(|e| place.refused(e))?;
        }
        self.step(22)?;
        vault.sync()?;
        rustix::fs::fsync(place.parent).map_err(|e| place.refused(e))?;
        self.remove_note(&place)
    }

    /// Never looks at the home's path: while it is mounted, that would ask the process that is
    /// asking.
    pub(super) fn is_aside(&self) -> io::Result<bool> {
        match self.place() {
            Ok(place) => Ok(self.vault(&place)?.is_some()),
            // The root, or a parent that may not be opened: it was never moved.
            Err(_) => Ok(false),
        }
    }

    /// The home is a mount point: its files go into a vault inside.
    fn move_inside(&self, place: &Place<'_>, note: &str) -> io::Result<()> {
        if !geteuid().is_root() {
            return Err(place.refused(Errno::BUSY));
        }
        let top = self.dir.as_fd().try_clone_to_owned()?;
        let (text, step) = (self.note_inside(place, note), |step| self.step(step));
        let inside = Inside { top: &top, path: place.path, step: &step };
        let mut files = None;
        inside.close(&text, &mut |dir| {
            files = Some(self.dir.prepare(dir.try_clone()?).map_err(|e| self.owned_or(e))?);
            Ok(())
        })?;
        if let Some(files) = files {
            self.dir.becomes(files)?;
        }
        self.set_inside(true);
        Ok(())
    }

    /// And back to the top.
    fn move_out(&self, place: &Place<'_>) -> io::Result<()> {
        let top = self.top(place)?.ok_or_else(|| place.refused(Errno::BUSY))?;
        let files = self.dir.prepare(top.try_clone()?).map_err(|e| self.owned_or(e))?;
        let step = |step| self.step(step);
        let inside = Inside { top: &top, path: place.path, step: &step };
        inside.empty()?;
        self.dir.becomes(files)?;
        self.set_inside(false);
        inside.remove_vault()
    }

    /// The files are at the top: removes what an interrupted move has left of the vault inside.
    fn remove_inside(&self, place: &Place<'_>) -> io::Result<()> {
        let top = self.dir.as_fd().try_clone_to_owned()?;
        if !inside::is_left(&top, place.path)? {
            return Ok(());
        }
        let step = |step| self.step(step);
        Inside { top: &top, path: place.path, step: &step }.open()
    }

    /// The files are inside, but for those that a detach which failed had moved to the top: sees to
    /// it that all are, and that there is a note, unless something is mounted over it.
    fn complete_inside(&self, place: &Place<'_>, note: &str) -> io::Result<()> {
        let Some(top) = self.top(place)? else { return Ok(()) };
        let (text, step) = (self.note_inside(place, note), |step| self.step(step));
        let inside = Inside { top: &top, path: place.path, step: &step };
        // The open directory may have been found by way of another mount, since unmounted.
        let files = inside.files()?.ok_or_else(|| strayed(place))?;
        inside.finish_closing(&files, &text)
    }

    /// The directory whose vault has the files; `None` while a door is mounted over it.
    pub(super) fn top(&self, place: &Place<'_>) -> io::Result<Option<OwnedFd>> {
        let Some((handle, door)) = place.at_path(&self.dir)? else { return Err(strayed(place)) };
        if door {
            return Ok(None);
        }
        let top = rustix::fs::openat(&handle, ".", DIRECTORY, Mode::empty())?;
        let around = Vault::above(&self.dir, vault_inside(place.path))?;
        if around.is_at(&top, OsStr::new(inside::INSIDE))? {
            Ok(Some(top))
        } else {
            Err(strayed(place))
        }
    }

    fn note_inside(&self, place: &Place<'_>, note: &str) -> String {
        note_text(place.path, &files_inside(place.path), note)
    }

    /// The vault, while the home is in it.
    fn vault(&self, place: &Place<'_>) -> io::Result<Option<Vault>> {
        if self.is_inside() {
            return Ok(Some(Vault::above(&self.dir, vault_inside(place.path))?));
        }
        Ok(Vault::around(&self.dir, place.parent, &place.aside, place.vault_path())?)
    }

    /// The user who owns the home.
    fn owner(&self) -> io::Result<u32> {
        Ok(status(&self.dir, OsStr::new(""))?.stx_uid)
    }

    pub(super) fn place(&self) -> io::Result<Place<'_>> {
        let (Some(parent_path), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            return Err(HomeError::NoParent { path: self.path.clone() }.into());
        };
        let Some(parent) = &self.parent else {
            return Err(HomeError::ParentRefused {
                parent: parent_path.to_path_buf(),
                path: self.path.clone(),
                source: io::ErrorKind::PermissionDenied.into(),
            }
            .into());
        };
        Ok(Place { parent, parent_path, path: &self.path, name, aside: aside_name(name) })
    }

    /// Another process has the directory, or what the kernel says.
    fn owned_or(&self, e: io::Error) -> io::Error {
        match e.kind() {
            io::ErrorKind::WouldBlock => HomeError::Owned { path: self.path.clone() }.into(),
            _ => e,
        }
    }

    /// Whether `name` in the parent is the open directory.
    fn has_name(&self, name: &OsStr) -> io::Result<bool> {
        let Some(parent) = &self.parent else { return Ok(false) };
        let own = status(&self.dir, OsStr::new(""))?;
        match status(parent, name) {
            Ok(found) => Ok(found.stx_ino == own.stx_ino && device(&found) == device(&own)),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// The home is aside: sees to it that its path has a note, unless something is mounted there.
    fn complete_note(&self, place: &Place<'_>, note: &str) -> io::Result<()> {
        let handle = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(place.parent, place.name, handle, Mode::empty()) {
            Ok(dir) if is_mount_root(&dir, place.parent)? => return Ok(()),
            Ok(_) => {}
            Err(Errno::NOENT) => {
                rustix::fs::mkdirat(place.parent, place.name, Mode::RWXU)
                    .map_err(|e| place.refused(e))?;
            }
            Err(e) => return Err(place.refused(e)),
        }
        let dir = rustix::fs::openat(place.parent, place.name, DIRECTORY, Mode::empty())
            .map_err(|e| place.refused(e))?;
        if !has_marker(&dir)? {
            only_the_note(&dir, place.path)?;
            self.step(9)?;
            self.write_note(place, &dir, note)?;
        }
        if Mode::from_raw_mode(rustix::fs::fstat(&dir)?.st_mode).contains(Mode::WUSR) {
            rustix::fs::fchmod(&dir, LOOK)?;
            rustix::fs::fsync(&dir)?;
        }
        rustix::fs::fsync(place.parent).map_err(|e| place.refused(e))
    }

    /// Writes the note into the open directory `dir`. It is not opened here: at its name another
    /// one could be by now, which nobody has looked into, and which would be opened to everybody.
    fn write_note(&self, place: &Place<'_>, dir: &OwnedFd, note: &str) -> io::Result<()> {
        rustix::fs::fchmod(dir, Mode::RWXU)?;
        write_note_file(dir, &note_text(place.path, &files_aside(place.path), note))?;
        self.step(3)?;
        // Its owner needs the right to write to move it to another directory.
        rustix::fs::fchmod(dir, LOOK | Mode::WUSR)?;
        Ok(rustix::fs::fsync(dir)?)
    }

    /// Removes the vault with the note in it, when there is one; the home is at its path.
    fn remove_note(&self, place: &Place<'_>) -> io::Result<()> {
        let Some(vault) = place.find_vault()? else { return Ok(()) };
        vault.refuse_foreign(self.owner()?)?;
        vault.unlock()?;
        let others: Vec<OsString> =
            vault.names()?.into_iter().filter(|n| n != FILES_NAME).collect();
        refuse_others(others, &place.vault_path())?;
        self.remove_vaults_note(&vault)?;
        rustix::fs::unlinkat(place.parent, &place.aside, AtFlags::REMOVEDIR)
            .map_err(|e| place.refused(e))?;
        self.step(25)?;
        rustix::fs::fsync(place.parent).map_err(|e| place.refused(e))
    }

    /// Leaves the vault empty.
    fn remove_vaults_note(&self, vault: &Vault) -> io::Result<()> {
        let open = || rustix::fs::openat(vault.dir(), FILES_NAME, DIRECTORY, Mode::empty());
        let dir = match vault.inside(open) {
            Err(Errno::NOENT) => return Ok(()),
            other => other?,
        };
        only_the_note(&dir, &vault.files_path())?;
        self.step(23)?;
        remove_note_file(&dir)?;
        self.step(24)?;
        Ok(vault.inside(|| rustix::fs::unlinkat(vault.dir(), FILES_NAME, AtFlags::REMOVEDIR))?)
    }

    /// Exchanges home and note; `false` when the file system cannot.
    fn exchange(&self, place: &Place<'_>, vault: &Vault) -> io::Result<bool> {
        #[cfg(any(test, feature = "testing"))]
        if self.faults.no_exchange.load(std::sync::atomic::Ordering::Relaxed) {
            return Ok(false);
        }
        let flags = RenameFlags::EXCHANGE;
        let exchanged = vault.inside(|| {
            rustix::fs::renameat_with(place.parent, place.name, vault.dir(), FILES_NAME, flags)
        });
        match exchanged {
            Ok(()) => Ok(true),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
            Err(e) => Err(place.refused(e)),
        }
    }

    #[cfg(not(any(test, feature = "testing")))]
    #[inline]
    pub(super) fn step(&self, _step: u32) -> io::Result<()> {
        Ok(())
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn step(&self, step: u32) -> io::Result<()> {
        use std::sync::atomic::Ordering::Relaxed;
        if self.faults.fail.compare_exchange(step, 0, Relaxed, Relaxed).is_ok() {
            return Err(io::Error::other(format!("failed at step {step}, as the test asked")));
        }
        // A machine that has stopped does not go on to clean up.
        if self.faults.stop.load(Relaxed) == step || self.faults.stopped.load(Relaxed) {
            self.faults.stopped.store(true, Relaxed);
            return Err(io::Error::other(format!("stopped before step {step}, as the test asked")));
        }
        Ok(())
    }
}

/// Where tests stop the work, and what they take away.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug, Default)]
pub(super) struct Faults {
    stop: std::sync::atomic::AtomicU32,
    fail: std::sync::atomic::AtomicU32,
    stopped: std::sync::atomic::AtomicBool,
    no_exchange: std::sync::atomic::AtomicBool,
}

#[cfg(any(test, feature = "testing"))]
impl RealHome {
    /// Makes the door's work fail before step `step` (the numbers in `guard.rs`), as if the power
    /// were cut there, and every step after it; 0 ends that.
    pub fn stop_at(&self, step: u32) {
        self.faults.stopped.store(false, std::sync::atomic::Ordering::Relaxed);
        self.faults.stop.store(step, std::sync::atomic::Ordering::Relaxed);
    }

    /// Makes step `step` fail once; what cleans up after it does not fail. 50: the sync after the
    /// attachment note was removed.
    pub fn fail_at(&self, step: u32) {
        self.faults.fail.store(step, std::sync::atomic::Ordering::Relaxed);
    }

    /// Behaves as on a file system that cannot exchange two names.
    pub fn without_exchange(&self) {
        self.faults.no_exchange.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// [`locate`], tried again for a moment when what it finds is neither: another process may be
/// moving the directory just now, and it looks in two places one after the other.
pub(super) fn locate_settled(path: &Path) -> Result<Located, HomeError> {
    let mut tries = 0;
    loop {
        match locate(path) {
            Err(
                HomeError::DataMissing { .. }
                | HomeError::TwoHomes { .. }
                | HomeError::Missing { .. }
                | HomeError::Between { .. },
            ) if tries < 20 => {
                tries += 1;
                std::thread::sleep(std::time::Duration::from_millis(tries));
            }
            other => return other,
        }
    }
}

/// A home that was found.
pub(super) struct Located {
    /// The directory of its files.
    pub(super) dir: OwnedFd,
    /// What holds its name.
    pub(super) parent: Option<OwnedFd>,
    /// The files are in the vault inside.
    pub(super) inside: bool,
}

/// Finds the home known as `path` (without links): the directory itself and the one that holds its
/// name. The way to that one is gone once, by directories that root may trust; the home, its vault
/// and what is mounted are then names in it.
fn locate(path: &Path) -> Result<Located, HomeError> {
    let io_error =
        |e: Errno| HomeError::Io { what: "look into", path: path.to_path_buf(), source: e.into() };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        let dir = rustix::fs::open(path, DIRECTORY, Mode::empty()).map_err(io_error)?;
        return Ok(Located { dir, parent: None, inside: false });
    };
    let above = match Dir::open(parent) {
        Ok(above) => above,
        Err(source) => {
            let path = path.to_path_buf();
            return Err(match source.kind() {
                io::ErrorKind::NotFound => HomeError::Missing { path },
                io::ErrorKind::NotADirectory => HomeError::NotADirectory { path },
                io::ErrorKind::PermissionDenied => HomeError::NoPermission { path, source },
                _ => HomeError::Io { what: "find", path, source },
            });
        }
    };
    // Names in it are made durable through a descriptor that can be read; who may only pass through
    // has none.
    let parent = rustix::fs::openat(&above, ".", DIRECTORY, Mode::empty()).ok();
    let at_aside = open_aside(&above, name);
    if let Ok(aside) = &at_aside
        && !is_note(aside).map_err(io_error)?
        && is_mounted(&above, name, aside).map_err(io_error)?
    {
        // In use: the process behind the mount is not asked, it may be gone or be waiting for us.
        // A vault inside has a second way to it meanwhile, which is a mount.
        let inside = is_mounted(&above, &aside_name(name), aside).map_err(io_error)?;
        return at_aside.map(|dir| Located { dir, parent, inside }).map_err(io_error);
    }
    let at_path = rustix::fs::openat(&above, name, DIRECTORY, Mode::empty());
    if let Ok(top) = &at_path {
        match inside::look(top, path)? {
            inside::Found::Open => {}
            inside::Found::Closed(dir) => return Ok(Located { dir, parent, inside: true }),
            inside::Found::Between => return Err(HomeError::Between { path: path.to_path_buf() }),
        }
    }
    let dir = choose(path, at_path, at_aside)?;
    Ok(Located { dir, parent, inside: false })
}

/// Which of two is the directory of the files: the one at the path, or the one moved aside.
fn choose(
    path: &Path,
    at_path: Result<OwnedFd, Errno>,
    at_aside: Result<OwnedFd, Errno>,
) -> Result<OwnedFd, HomeError> {
    let io_error =
        |e: Errno| HomeError::Io { what: "look into", path: path.to_path_buf(), source: e.into() };
    let aside_path = vault_of(path).join(FILES_NAME);
    match (at_path, at_aside) {
        (Ok(dir), Err(Errno::NOENT)) => match has_marker(&dir).map_err(io_error)? {
            true => Err(HomeError::DataMissing { path: path.to_path_buf(), aside: aside_path }),
            false => Ok(dir),
        },
        (Ok(dir), Ok(aside)) => {
            if has_marker(&dir).map_err(io_error)? {
                Ok(aside)
            } else if is_note(&aside).map_err(io_error)? {
                Ok(dir)
            } else if is_note(&dir).map_err(io_error)? {
                Ok(aside)
            } else {
                Err(HomeError::TwoHomes { path: path.to_path_buf(), aside: aside_path })
            }
        }
        // An interrupted move without exchange.
        (Err(Errno::NOENT), Ok(aside)) => Ok(aside),
        (Ok(_), Err(e @ (Errno::ACCESS | Errno::PERM))) => {
            Err(HomeError::NoPermission { path: aside_path, source: e.into() })
        }
        (Ok(dir), Err(Errno::NOTDIR | Errno::LOOP)) => Ok(dir),
        (Ok(_), Err(e)) => Err(HomeError::Io { what: "open", path: aside_path, source: e.into() }),
        (Err(Errno::NOENT), Err(e @ (Errno::ACCESS | Errno::PERM))) => {
            Err(HomeError::NoPermission { path: aside_path, source: e.into() })
        }
        (Err(Errno::NOENT), Err(_)) => Err(HomeError::Missing { path: path.to_path_buf() }),
        (Err(Errno::NOTDIR | Errno::LOOP), _) => {
            Err(HomeError::NotADirectory { path: path.to_path_buf() })
        }
        (Err(e @ (Errno::ACCESS | Errno::PERM)), _) => {
            Err(HomeError::NoPermission { path: path.to_path_buf(), source: e.into() })
        }
        (Err(e), _) => {
            Err(HomeError::Io { what: "open", path: path.to_path_buf(), source: e.into() })
        }
    }
}

/// Opens the directory of the files of the home known as `home`, or a note, in its vault.
///
/// # Errors
/// `NotFound` where there is none, else what the file system says.
pub(crate) fn open_files_aside(home: &Path) -> io::Result<OwnedFd> {
    let (Some(parent), Some(name)) = (home.parent(), home.file_name()) else {
        return Err(Errno::NOENT.into());
    };
    let above = Dir::open(parent)?;
    match open_aside(&above, name) {
        Err(Errno::NOENT) => {}
        other => return Ok(other?),
    }
    let top = rustix::fs::openat(&above, name, DIRECTORY, Mode::empty())?;
    match inside::look(&top, home)? {
        inside::Found::Closed(files) => Ok(files),
        _ => Err(Errno::NOENT.into()),
    }
}

/// Finishes the move of a home's files that was interrupted, if one was: they go back to the top of
/// their file system. Only a home that is a mount point can be caught in between. No block is in a
/// tier only then.
///
/// # Errors
/// [`HomeError::Owned`] while another process moves them, and what the file system says.
///
/// # Durability
/// Durable on return.
pub fn finish_move(path: &Path) -> Result<bool, HomeError> {
    let path = without_links(path)?;
    let failed =
        |source: io::Error| HomeError::Io { what: "finish moving", path: path.clone(), source };
    match locate_settled(&path) {
        Err(HomeError::Between { .. }) => {}
        Ok(Located { dir, inside: false, .. })
            if inside::is_left(&dir, &path).map_err(|e| failed(e.into()))? => {}
        Err(e @ HomeError::NoVault { .. }) => return Err(e),
        _ => return Ok(false),
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(false) };
    let above = Dir::open(parent).map_err(failed)?;
    let top =
        rustix::fs::openat(&above, name, DIRECTORY, Mode::empty()).map_err(|e| failed(e.into()))?;
    let inside = Inside { top: &top, path: &path, step: &|_| Ok(()) };
    // Who moves them has one of the two, and for the most part both.
    let files = inside.files().map_err(failed)?;
    let mut locked = Vec::new();
    for dir in files.into_iter().chain([top.try_clone().map_err(failed)?]) {
        let dir = Directory::new(dir);
        match dir.lock() {
            Err(Errno::WOULDBLOCK) => return Err(HomeError::Owned { path }),
            other => other.map_err(|e| failed(e.into()))?,
        }
        locked.push(dir);
    }
    // Its owner may have finished meanwhile.
    if !matches!(inside::look(&top, &path)?, inside::Found::Closed(_)) {
        inside.open().map_err(failed)?;
    }
    Ok(true)
}

/// Opens what is in the vault of the home called `name` in the directory `above`.
fn open_aside(above: &Dir, name: &OsStr) -> Result<OwnedFd, Errno> {
    match Vault::find(above, &aside_name(name), PathBuf::new())? {
        Some(vault) => vault.open_files(),
        None => Err(Errno::NOENT),
    }
}

pub(super) fn aside_name(name: &OsStr) -> OsString {
    let mut aside = name.to_os_string();
    aside.push(ASIDE_SUFFIX);
    aside
}

fn strayed(place: &Place<'_>) -> io::Error {
    HomeError::Strayed { path: place.path.to_path_buf(), aside: place.vault_path() }.into()
}

/// The device that `dir` is on. Nothing is asked of a process behind a mount.
fn device_of(dir: impl AsFd) -> Result<u64, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    Ok(device(&rustix::fs::statx(dir, "", flags, StatxFlags::empty())?))
}

/// Whether a file system is mounted on `dir`. `DONT_SYNC` and the empty mask: nothing is asked of
/// the process behind a mount.
pub(super) fn is_mount_root(dir: impl AsFd, beside: impl AsFd) -> Result<bool, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(&dir, "", flags, StatxFlags::empty())?;
    if found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    }
    let beside = rustix::fs::statx(beside, "", flags, StatxFlags::empty())?;
    Ok(device(&found) != device(&beside))
}

/// Whether a file system is mounted on `name` in the directory `above`.
fn is_mounted(above: &Dir, name: &OsStr, beside: &OwnedFd) -> Result<bool, Errno> {
    let handle = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(above, name, handle, Mode::empty()) {
        Ok(dir) => is_mount_root(&dir, beside),
        Err(Errno::NOTCONN) => Ok(true),
        Err(_) => Ok(false),
    }
}

/// The note's directory in a vault, made when it is missing.
fn make_note(vault: &OwnedFd) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(vault, FILES_NAME, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {
            rustix::fs::openat(vault, FILES_NAME, DIRECTORY, Mode::empty())
        }
        Err(e) => Err(e),
    }
}

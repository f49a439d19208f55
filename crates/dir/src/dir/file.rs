//! Files in a directory that is held open.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use rustix::fs::{FlockOperation, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::{Dir, single};
use crate::found::{Found, Kind};

/// Nothing that blocks, follows or takes a terminal.
const CAREFUL: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Whom a file is given to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub user: u32,
    /// Group id.
    pub group: u32,
}

impl Owner {
    pub(crate) fn give(self, file: impl AsFd) -> io::Result<()> {
        let (user, group) = (Uid::from_raw(self.user), Gid::from_raw(self.group));
        Ok(rustix::fs::fchown(file, Some(user), Some(group))?)
    }
}

impl Dir {
    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// The kernel's; [`io::ErrorKind::InvalidInput`] when it is no regular file (a link, too).
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.open_with(name.as_ref(), OFlags::RDONLY)
    }

    /// Opens a regular file for reading and writing.
    ///
    /// # Errors
    /// As [`Dir::open_file`].
    pub fn open_file_rw(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.open_with(name.as_ref(), OFlags::RDWR)
    }

    fn open_with(&self, name: &OsStr, access: OFlags) -> io::Result<File> {
        let name = single(name)?;
        // To open a device can act on it, so the name is looked at first; and what is open then,
        // too.
        let Some(found) = self.look(name)? else { return Err(Errno::NOENT.into()) };
        self.refuse_others(name, &found)?;
        let file = match rustix::fs::openat(self, name, access | CAREFUL, Mode::empty()) {
            Ok(file) => File::from(file),
            // A link was put there since, or a pipe that nobody reads.
            Err(Errno::LOOP | Errno::NXIO) => return Err(self.not_a_file(name)),
            Err(e) => return Err(e.into()),
        };
        self.refuse_others(name, &Found::from_stat(&rustix::fs::fstat(&file)?))?;
        Ok(file)
    }

    fn refuse_others(&self, name: &OsStr, found: &Found) -> io::Result<()> {
        if found.kind == Kind::File { Ok(()) } else { Err(self.not_a_file(name)) }
    }

    fn not_a_file(&self, name: &OsStr) -> io::Error {
        let text = format!("{} is not a regular file", self.path_of(name).display());
        io::Error::new(io::ErrorKind::InvalidInput, text)
    }

    /// Makes a file, which must not exist, for reading and writing. The umask has no say.
    ///
    /// # Errors
    /// The kernel's: EEXIST.
    pub fn make_file(
        &self,
        name: impl AsRef<OsStr>,
        mode: u32,
        owner: Option<Owner>,
    ) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | CAREFUL;
        let first = Mode::RUSR | Mode::WUSR;
        let file = File::from(rustix::fs::openat(self, single(name.as_ref())?, flags, first)?);
        if let Some(owner) = owner {
            owner.give(&file)?;
        }
        // Behind the owner: a change of owner clears the bits for set-user-id.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        Ok(file)
    }

    /// The contents of a regular file of at most `most` bytes.
    ///
    /// # Errors
    /// As [`Dir::open_file`]; [`io::ErrorKind::FileTooLarge`] when it is longer.
    pub fn read(&self, name: impl AsRef<OsStr>, most: u64) -> io::Result<Vec<u8>> {
        let name = name.as_ref();
        let mut bytes = Vec::new();
        self.open_file(name)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most {
            let text = format!("{} is longer than {most} bytes", self.path_of(name).display());
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        Ok(bytes)
    }

    /// Puts `contents` at `name`, all or nothing, in place of what is there: a new file, synced, is
    /// renamed over the name, and the directory is synced. Of a process that ended in between, the
    /// new file is left (`name.new-0`); the next that replaces `name` takes it away.
    ///
    /// # Errors
    /// The kernel's; then `name` is as it was, or (when only the last sync failed) new.
    pub fn replace(
        &self,
        name: impl AsRef<OsStr>,
        contents: &[u8],
        mode: u32,
        owner: Option<Owner>,
    ) -> io::Result<()> {
        let name = single(name.as_ref())?;
        let (beside, mut file) = self.make_beside(name, mode, owner)?;
        let done = file
            .write_all(contents)
            .and_then(|()| file.sync_all())
            .and_then(|()| self.rename(&beside, self, name));
        if let Err(e) = done {
            // Best effort: the name is ours, and the error that matters is the first one.
            let _ = self.remove(&beside);
            return Err(e);
        }
        self.sync()
    }

    /// Makes a file of a name that nobody has, for what is to be renamed to `name`. It is locked
    /// for as long as it is open, which tells it from what a process that has ended left.
    fn make_beside(
        &self,
        name: &OsStr,
        mode: u32,
        owner: Option<Owner>,
    ) -> io::Result<(OsString, File)> {
        for number in 0..1000 {
            let mut beside = name.to_os_string();
            beside.push(format!(".new-{number}"));
            let made = match self.make_file(&beside, mode, owner) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    if !self.remove_leftover(&beside, owner).unwrap_or(false) {
                        continue;
                    }
                    self.make_file(&beside, mode, owner)
                }
                made => made,
            };
            let file = match made {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                made => made?,
            };
            // Before the lock somebody could take it for a leftover.
            let taken = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
            let ours = Found::of(&file)?;
            if taken != Err(Errno::WOULDBLOCK)
                && self.look(&beside)?.is_some_and(|at| at.same_file(&ours))
            {
                return Ok((beside, file));
            }
        }
        Err(Errno::EXIST.into())
    }

    /// Removes what a process left that ended between making a new file and renaming it; whether it
    /// did. That is this account's, or the one's that new files are given to, has one name, and
    /// nobody has it locked: the kernel takes a lock from a process that ends, in whichever
    /// container.
    fn remove_leftover(&self, beside: &OsStr, owner: Option<Owner>) -> io::Result<bool> {
        let file = self.open_file(beside)?;
        let found = Found::of(&file)?;
        let made_here = [Some(rustix::process::geteuid().as_raw()), owner.map(|owner| owner.user)];
        if !made_here.contains(&Some(found.user)) || found.links != 1 {
            return Ok(false);
        }
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        self.remove_file_that_is(beside, &found)
    }
}

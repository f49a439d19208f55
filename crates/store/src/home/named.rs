//! A name in the home, as a caller gives it: by a path, or in a directory that it holds open.
//!
//! A door that lets several users in asks the kernel whether a user may change a directory, and
//! then changes it with rights of its own. Between the two, whoever held a directory of the home
//! open before the attach can exchange the directories on the path. So a door gives the directory
//! that was judged, and the name in it; the path is then for the store's books only.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use super::look::{home_stat, name_of, status};
use super::{Home, HomeStat};

/// A name in the home.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    path: &'a Path,
    dir: Option<BorrowedFd<'a>>,
}

impl<'a> Named<'a> {
    /// Wherever `path`, below the home, leads at the moment it is used.
    #[must_use]
    pub fn by_path(path: &'a Path) -> Self {
        Self { path, dir: None }
    }

    /// The last component of `path` in the open directory `dir`, wherever the rest of it leads.
    #[must_use]
    pub fn in_directory(dir: BorrowedFd<'a>, path: &'a Path) -> Self {
        Self { path, dir: Some(dir) }
    }

    /// The path below the home.
    #[must_use]
    pub fn path(&self) -> &'a Path {
        self.path
    }

    pub(crate) fn stat(&self, home: &dyn Home) -> io::Result<HomeStat> {
        match self.dir {
            None => home.stat(self.path),
            Some(dir) => Ok(home_stat(&status(dir, name_of(self.path)?)?)),
        }
    }

    pub(crate) fn unlink(&self, home: &dyn Home) -> io::Result<()> {
        match self.dir {
            None => home.unlink(self.path),
            Some(dir) => Ok(rustix::fs::unlinkat(dir, name_of(self.path)?, AtFlags::empty())?),
        }
    }

    /// Makes the names in its directory durable.
    pub(crate) fn sync_dir(&self, home: &dyn Home) -> io::Result<()> {
        let Some(dir) = self.dir else { return home.sync_dir(self.path) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::fsync(rustix::fs::openat(dir, ".", flags, Mode::empty())?)?)
    }

    /// Gives it to the open file `file`, of which there may be a path descriptor only.
    pub(crate) fn link(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let dir = self.dir.ok_or(io::ErrorKind::Unsupported)?;
        // The kernel's own name of the descriptor: it leads to this very file, and no further.
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(rustix::fs::linkat(CWD, link, dir, name_of(self.path)?, AtFlags::SYMLINK_FOLLOW)?)
    }
}

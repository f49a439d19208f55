//! A directory held open: its names, and what is done with them. Files in it are in `file.rs`.

mod file;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::found::Found;
use crate::walk::{self, HANDLE};

pub use file::Owner;

/// A directory held open. Its names are single components: `"a/b"`, `""`, `"."` and `".."` are
/// refused with [`io::ErrorKind::InvalidInput`].
#[derive(Debug)]
pub struct Dir {
    handle: OwnedFd,
    /// How it was found: for messages only.
    path: PathBuf,
}

impl Dir {
    /// Opens the directory at `path`, whose last component may not be a link.
    ///
    /// # Errors
    /// The kernel's; when root's way there leads through a directory in which an unprivileged
    /// account could exchange what follows (the message says who and where).
    pub fn open(path: &Path) -> io::Result<Self> {
        let handle = walk::to(path, walk::Last::IsDirectory)?;
        Ok(Self { handle, path: path.to_path_buf() })
    }

    /// Opens the directory that holds `path`, and gives the last component. Links on the way to
    /// that directory are followed where they are trusted; `path` itself need not exist.
    ///
    /// # Errors
    /// As [`Dir::open`]; a path that ends in `..` or is a root.
    pub fn holding(path: &Path) -> io::Result<(Self, OsString)> {
        let Some(name) = path.file_name() else {
            let text = format!("{}: is not the path of a file in a directory", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let handle = walk::to(parent, walk::Last::MayBeLink)?;
        Ok((Self { handle, path: parent.to_path_buf() }, name.to_os_string()))
    }

    /// Opens the directory that holds what `path` leads to, and gives its name there: as
    /// [`Dir::holding`], but a link at `path` itself is followed too, where it is trusted. What has
    /// the name is not asked, so that it may be the mount of a server that hangs.
    ///
    /// # Errors
    /// As [`Dir::holding`].
    pub fn holding_target(path: &Path) -> io::Result<(Self, OsString)> {
        let (handle, name) = walk::to_target(path)?;
        let parent = path.parent().unwrap_or(Path::new("/")).to_path_buf();
        Ok((Self { handle, path: parent }, name))
    }

    /// An open directory. `path` is for messages only.
    #[must_use]
    pub fn from_handle(handle: OwnedFd, path: &Path) -> Self {
        Self { handle, path: path.to_path_buf() }
    }

    /// Opens the directory `name` in this one.
    ///
    /// # Errors
    /// The kernel's: ENOTDIR when it is anything else, a link too.
    pub fn sub(&self, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let name = single(name.as_ref())?;
        let handle = rustix::fs::openat(&self.handle, name, HANDLE, Mode::empty())?;
        Ok(Self { handle, path: self.path.join(name) })
    }

    /// A second descriptor of the same directory.
    ///
    /// # Errors
    /// EMFILE.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { handle: self.handle.try_clone()?, path: self.path.clone() })
    }

    /// How it was found. For messages: to act on this path is to ask again.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `name` in it, for messages.
    #[must_use]
    pub fn path_of(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }

    /// A path to `name` that leads through this descriptor, for libraries that take only paths. It
    /// is good for as long as this directory is held, in this process, where `/proc` is mounted.
    /// Its last component is resolved anew: look at what was opened.
    #[must_use]
    pub fn through(&self, name: impl AsRef<OsStr>) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.handle.as_raw_fd())).join(name.as_ref())
    }

    /// Where the kernel says it is now: its path without links. Needs `/proc`.
    ///
    /// # Errors
    /// The kernel's; nothing for a directory that was removed.
    pub fn where_it_is(&self) -> io::Result<PathBuf> {
        let at = format!("/proc/self/fd/{}", self.handle.as_raw_fd());
        let path = rustix::fs::readlink(at, Vec::new())?.into_bytes();
        let path = PathBuf::from(OsString::from_vec(path));
        // Of a removed one the kernel shows a name that may be another's by now.
        match self.found()?.links {
            0 => Err(Errno::NOENT.into()),
            _ => Ok(path),
        }
    }

    /// [`Dir::where_it_is`]; without `/proc` the path that the way here ends at now, if it leads to
    /// this directory still.
    ///
    /// # Errors
    /// The kernel's; `NotFound` when it leads elsewhere.
    pub fn canonical_path(&self) -> io::Result<PathBuf> {
        if let Ok(path) = self.where_it_is() {
            return Ok(path);
        }
        let path = std::fs::canonicalize(&self.path)?;
        let same = Self::open(&path)?.found()?.same_file(&self.found()?);
        if same { Ok(path) } else { Err(Errno::NOENT.into()) }
    }

    /// What the directory itself is.
    ///
    /// # Errors
    /// The kernel's.
    pub fn found(&self) -> io::Result<Found> {
        Ok(Found::from_stat(&rustix::fs::fstat(&self.handle)?))
    }

    /// What is at `name`, itself and not where it leads; `None` when there is nothing.
    ///
    /// # Errors
    /// The kernel's.
    pub fn look(&self, name: impl AsRef<OsStr>) -> io::Result<Option<Found>> {
        match rustix::fs::statat(&self.handle, single(name.as_ref())?, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Found::from_stat(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether the path it was opened by leads to it still.
    ///
    /// # Errors
    /// The kernel's; nothing at the path is `false`.
    pub fn is_at_its_path(&self) -> io::Result<bool> {
        match Self::open(&self.path) {
            Ok(now) => Ok(now.found()?.same_file(&self.found()?)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The names in it, without `.` and `..`, in no order; at most `most`.
    ///
    /// # Errors
    /// The kernel's; [`io::ErrorKind::FileTooLarge`] when there are more.
    pub fn names(&self, most: usize) -> io::Result<Vec<OsString>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut names = Vec::new();
        for entry in
            rustix::fs::Dir::new(rustix::fs::openat(&self.handle, ".", flags, Mode::empty())?)?
        {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if names.len() == most {
                let text = format!("{} has more than {most} entries", self.path.display());
                return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
            }
            names.push(name.to_os_string());
        }
        Ok(names)
    }

    /// Makes the directory `name`, which must not exist, and opens it.
    ///
    /// # Errors
    /// The kernel's; when somebody put another directory there meanwhile.
    pub fn make_dir(
        &self,
        name: impl AsRef<OsStr>,
        mode: u32,
        owner: Option<Owner>,
    ) -> io::Result<Self> {
        let name = single(name.as_ref())?;
        rustix::fs::mkdirat(&self.handle, name, Mode::RWXU)?;
        let made = self.sub(name)?;
        // It was made a moment ago, for this account alone. Another one may have been put in its
        // place, even one of this account's own, which must not be given away with what is in it.
        let found = made.found()?;
        let ours = found.user == rustix::process::geteuid().as_raw() && found.mode & 0o077 == 0;
        if !ours || made.names(0).is_err() {
            return Err(made.exchanged());
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = rustix::fs::openat(&made.handle, ".", flags, Mode::empty())?;
        rustix::fs::fchmod(&open, Mode::from_raw_mode(mode))?;
        if let Some(owner) = owner {
            owner.give(&open)?;
        }
        Ok(made)
    }

    fn exchanged(&self) -> io::Error {
        let text =
            format!("{}: somebody exchanged it while it was being made", self.path.display());
        io::Error::new(io::ErrorKind::PermissionDenied, text)
    }

    /// Removes a name that is not a directory's.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.handle, single(name.as_ref())?, AtFlags::empty())?)
    }

    /// Removes `name` if it is this file; whether it was. Between the look and the removal, who may
    /// change names here can still exchange it, for what that account could remove itself.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_file_that_is(&self, name: impl AsRef<OsStr>, file: &Found) -> io::Result<bool> {
        let name = name.as_ref();
        let same = self.look(name)?.is_some_and(|now| now.is_file() && now.same_file(file));
        if same {
            self.remove(name)?;
        }
        Ok(same)
    }

    /// Removes `name` if it is this file, still empty, and nobody has it locked (`flock`); whether
    /// it was removed. For what was made to be used by whoever locks it first: where they look
    /// after the lock whether it has a name, nobody is left with a file that has none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_unused(&self, name: impl AsRef<OsStr>, made: &Found) -> io::Result<bool> {
        let name = name.as_ref();
        let file = self.open_file_rw(name)?;
        if !Found::of(&file)?.same_file(made) {
            return Ok(false);
        }
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Ok(false),
            locked => locked?,
        }
        Ok(Found::of(&file)?.size == 0 && self.remove_file_that_is(name, made)?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_dir(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.handle, single(name.as_ref())?, AtFlags::REMOVEDIR)?)
    }

    /// Renames `name` to `new_name` in `new_dir`, replacing what is there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn rename(
        &self,
        name: impl AsRef<OsStr>,
        new_dir: &Self,
        new_name: impl AsRef<OsStr>,
    ) -> io::Result<()> {
        let (name, new_name) = (single(name.as_ref())?, single(new_name.as_ref())?);
        Ok(rustix::fs::renameat(&self.handle, name, &new_dir.handle, new_name)?)
    }

    /// Gives a file a second name, which must be free; a link is not followed.
    ///
    /// # Errors
    /// The kernel's: EEXIST; EPERM where the file system has no second names, or the kernel
    /// protects the file (`fs.protected_hardlinks`).
    pub fn link(
        &self,
        name: impl AsRef<OsStr>,
        new_dir: &Self,
        new_name: impl AsRef<OsStr>,
    ) -> io::Result<()> {
        let (name, new_name) = (single(name.as_ref())?, single(new_name.as_ref())?);
        Ok(rustix::fs::linkat(&self.handle, name, &new_dir.handle, new_name, AtFlags::empty())?)
    }

    /// As [`Dir::rename`], and `new_name` must be free.
    ///
    /// # Errors
    /// The kernel's: EEXIST; EINVAL where the file system cannot do it in one step.
    pub fn rename_new(
        &self,
        name: impl AsRef<OsStr>,
        new_dir: &Self,
        new_name: impl AsRef<OsStr>,
    ) -> io::Result<()> {
        let (name, new_name) = (single(name.as_ref())?, single(new_name.as_ref())?);
        let flags = RenameFlags::NOREPLACE;
        Ok(rustix::fs::renameat_with(&self.handle, name, &new_dir.handle, new_name, flags)?)
    }

    /// Makes the names in it durable.
    ///
    /// # Errors
    /// The kernel's.
    pub fn sync(&self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::fsync(rustix::fs::openat(&self.handle, ".", flags, Mode::empty())?)?)
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl From<Dir> for OwnedFd {
    fn from(dir: Dir) -> Self {
        dir.handle
    }
}

/// A name that is one component, and not the directory itself or its parent.
fn single(name: &OsStr) -> io::Result<&OsStr> {
    let bytes = name.as_bytes();
    if bytes.is_empty()
        || bytes == b"."
        || bytes == b".."
        || bytes.contains(&b'/')
        || bytes.contains(&0)
    {
        let text = format!("{}: is not a name in a directory", name.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(name)
}

//! The home on a real file system.
//!
//! Every path is resolved by the kernel below an open directory (`openat2` with
//! `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS`; on kernels without it, one component at a time with
//! `O_NOFOLLOW`), so no rename or link made meanwhile leads outside, and the object goes on working
//! when the directory is moved aside (`guard.rs`).
//!
//! Deliberately not here: direct I/O and permissions of files (a file is made with mode 0600, a
//! door changes that). The generation of an inode number is not reported (0): the birth time tells
//! a reused number apart.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::process::CloseOnFork;
use rustix::fs::{Advice, AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::dirs::Directory;
use super::guard::{Located, is_mount_root};
use super::look::{device, home_stat, kind, name_of, names, status, without_links};
use super::{
    ATTACHMENT, ATTACHMENT_NEW, Clear, FileKind, FileTime, Home, HomeError, HomeFile, HomeStat,
    NOTE_MAX, OpenMode, PROBE, RenameFlags, inside,
};

/// A home on a real file system.
#[derive(Debug)]
pub struct RealHome {
    /// Of `parent`; goes before it.
    _close_on_fork: Option<CloseOnFork>,
    /// The path that programs know the home by, without symbolic links.
    pub(super) path: PathBuf,
    /// The directory itself, wherever it is; also carries the owner's lock.
    pub(super) dir: Directory,
    /// Its files are in the vault inside it, because it is a mount point.
    inside: AtomicBool,
    /// The directory that holds it; `None` for the root, or when it cannot be opened.
    pub(super) parent: Option<OwnedFd>,
    dev: u64,
    no_openat2: AtomicBool,
    #[cfg(any(test, feature = "testing"))]
    pub(super) faults: super::guard::Faults,
}

impl RealHome {
    /// Opens the home known as `path`, at that path or where it was moved aside to.
    ///
    /// # Errors
    /// [`HomeError`], one variant for each of: missing, not a directory, not writable, no
    /// permission, moved aside and gone.
    ///
    /// # Durability
    /// Makes and removes an empty file to learn whether the directory can be written; nothing is
    /// synced.
    pub fn open(path: &Path) -> Result<Self, HomeError> {
        let path = without_links(path)?;
        let Located { dir, parent, inside } = super::guard::locate_settled(&path)?;
        probe(&dir).map_err(|e| HomeError::NotWritable { path: path.clone(), source: e.into() })?;
        let dev = match status(&dir, OsStr::new("")) {
            Ok(x) => device(&x),
            Err(e) => {
                return Err(HomeError::Io {
                    what: "read the attributes of",
                    path,
                    source: e.into(),
                });
            }
        };
        Ok(Self {
            _close_on_fork: parent.as_ref().map(|parent| CloseOnFork::new(parent.as_fd())),
            path,
            dir: Directory::new(dir),
            inside: AtomicBool::new(inside),
            parent,
            dev,
            no_openat2: AtomicBool::new(false),
            #[cfg(any(test, feature = "testing"))]
            faults: super::guard::Faults::default(),
        })
    }

    /// The path that programs know the home by, without symbolic links. While the door is closed
    /// the files are not there.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the directory that is open is still the one a new opener would find: it may have
    /// been moved aside, or back, but not replaced.
    pub(crate) fn is_current(&self) -> Result<bool, HomeError> {
        let found = super::guard::locate_settled(&self.path)?.dir;
        let failed = |e: Errno| HomeError::Io {
            what: "look into",
            path: self.path.clone(),
            source: e.into(),
        };
        let (own, found) = (
            status(&self.dir, OsStr::new("")).map_err(failed)?,
            status(&found, OsStr::new("")).map_err(failed)?,
        );
        Ok(own.stx_ino == found.stx_ino && device(&own) == device(&found))
    }

    /// The open directory, for what a door needs beyond [`Home`].
    #[must_use]
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Whether its files are in the vault inside, because it is a mount point.
    pub(super) fn is_inside(&self) -> bool {
        self.inside.load(Ordering::Acquire)
    }

    pub(super) fn set_inside(&self, inside: bool) {
        self.inside.store(inside, Ordering::Release);
    }

    /// An open file that is of no home, behind the same calls.
    pub(crate) fn file(file: File) -> Arc<dyn HomeFile> {
        Arc::new(RealFile::new(file))
    }

    /// Behaves as on a kernel without `openat2`.
    #[cfg(any(test, feature = "testing"))]
    pub fn without_openat2(&self) {
        self.no_openat2.store(true, Ordering::Relaxed);
    }

    /// Opens `path` below the home without following a link.
    fn beneath(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let path = inside(path)?;
        let flags = flags | OFlags::CLOEXEC;
        if !self.no_openat2.load(Ordering::Relaxed) {
            let resolve =
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            // EAGAIN: a rename elsewhere raced with the look-up.
            for _ in 0..32 {
                match rustix::fs::openat2(&self.dir, path, flags, mode, resolve) {
                    Err(Errno::AGAIN) => {}
                    Err(Errno::NOSYS) => break,
                    // A container's filter may answer EPERM for a call that it does not know.
                    Err(Errno::PERM) => return self.component_walk(path, flags, mode),
                    other => return Ok(other?),
                }
            }
            self.no_openat2.store(true, Ordering::Relaxed);
        }
        self.component_walk(path, flags, mode)
    }

    fn component_walk(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let holder = match path.parent().filter(|p| !p.as_os_str().is_empty()) {
            None => None,
            Some(dirs) => {
                let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mut at: Option<OwnedFd> = None;
                for name in dirs {
                    let from = at.as_ref().map_or(self.dir.as_fd(), |d| d.as_fd());
                    at = Some(rustix::fs::openat(from, name, step, Mode::empty())?);
                }
                at
            }
        };
        let from = holder.as_ref().map_or(self.dir.as_fd(), |d| d.as_fd());
        Ok(rustix::fs::openat(from, name_of(path)?, flags | OFlags::NOFOLLOW, mode)?)
    }

    /// Opens the directory that holds `path`, and gives the last component.
    fn holder<'p>(&self, path: &'p Path, flags: OFlags) -> io::Result<(OwnedFd, &'p OsStr)> {
        let name = name_of(inside(path)?)?;
        let dirs = path.parent().unwrap_or(Path::new(""));
        Ok((self.directory_at(dirs, flags)?, name))
    }

    /// Opens a directory of the home; the empty path is the home.
    fn directory_at(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if path.as_os_str().is_empty() {
            return Ok(rustix::fs::openat(&self.dir, ".", flags, Mode::empty())?);
        }
        self.beneath(path, flags, Mode::empty())
    }

    /// As deep as the kernel's longest path allows.
    fn walk_below(
        &self,
        at: &Path,
        each: &mut dyn FnMut(&Path, &HomeStat) -> io::Result<()>,
    ) -> io::Result<()> {
        let dir = match self.directory_at(at, OFlags::RDONLY) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        for name in names(&dir)? {
            let path = at.join(&name);
            if super::is_reserved(&path) {
                continue;
            }
            let found = match status(&dir, &name) {
                Err(Errno::NOENT) => continue,
                other => home_stat(&other?),
            };
            match found.kind {
                _ if found.dev != self.dev => {}
                FileKind::Regular => each(&path, &found)?,
                FileKind::Directory => self.walk_below(&path, each)?,
                FileKind::Other => {}
            }
        }
        Ok(())
    }
}

impl Home for RealHome {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn HomeFile>> {
        let mut flags = if mode.read_only { OFlags::RDONLY } else { OFlags::RDWR };
        if mode.create {
            flags |= OFlags::CREATE;
        }
        if mode.create && mode.exclusive {
            flags |= OFlags::EXCL;
        }
        // NONBLOCK: opening a pipe must not wait for its other end before we can see that it is
        // one.
        let permissions = if mode.create { Mode::RUSR | Mode::WUSR } else { Mode::empty() };
        let fd = self.beneath(path, flags | OFlags::NONBLOCK | OFlags::NOCTTY, permissions)?;
        if kind(&status(&fd, OsStr::new(""))?) != FileKind::Regular {
            let why = format!(
                "{} is not an ordinary file; Tiersmith can hold blocks of ordinary files only",
                path.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        // What the store reads is not the program's reading. Only the file's owner may ask for
        // that.
        if let Ok(flags) = rustix::fs::fcntl_getfl(&fd) {
            let _ = rustix::fs::fcntl_setfl(&fd, flags | OFlags::NOATIME);
        }
        Ok(Arc::new(RealFile::new(File::from(fd))))
    }

    fn open_own(&self, path: &Path, meant: &HomeStat) -> io::Result<Arc<dyn HomeFile>> {
        let fd = self.beneath(path, OFlags::PATH, Mode::empty())?;
        let found = home_stat(&status(&fd, OsStr::new(""))?);
        let same = found.dev == meant.dev
            && found.kind == FileKind::Regular
            && found.same_file(meant.ino, meant.generation, meant.btime_ns);
        if !same {
            return Err(Errno::NOENT.into());
        }
        Ok(Arc::new(RealFile::new(File::from(open_own(&fd)?))))
    }

    fn stat(&self, path: &Path) -> io::Result<HomeStat> {
        let (dir, name) = self.holder(path, OFlags::PATH)?;
        Ok(home_stat(&status(&dir, name)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from_dir, from), (to_dir, to)) =
            (self.holder(from, OFlags::PATH)?, self.holder(to, OFlags::PATH)?);
        Ok(rustix::fs::renameat(&from_dir, from, &to_dir, to)?)
    }

    fn rename_with(&self, from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
        let flags = match flags {
            RenameFlags::None => return self.rename(from, to),
            RenameFlags::NoReplace => rustix::fs::RenameFlags::NOREPLACE,
            RenameFlags::Exchange => rustix::fs::RenameFlags::EXCHANGE,
        };
        let ((from_dir, from), (to_dir, to)) =
            (self.holder(from, OFlags::PATH)?, self.holder(to, OFlags::PATH)?);
        Ok(rustix::fs::renameat_with(&from_dir, from, &to_dir, to, flags)?)
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.holder(path, OFlags::PATH)?;
        Ok(rustix::fs::unlinkat(&dir, name, AtFlags::empty())?)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let ((from_dir, from), (to_dir, to)) =
            (self.holder(from, OFlags::PATH)?, self.holder(to, OFlags::PATH)?);
        Ok(rustix::fs::linkat(&from_dir, from, &to_dir, to, AtFlags::empty())?)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.holder(path, OFlags::PATH)?;
        Ok(rustix::fs::mkdirat(&dir, name, Mode::RWXU)?)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.holder(path, OFlags::PATH)?;
        Ok(rustix::fs::unlinkat(&dir, name, AtFlags::REMOVEDIR)?)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if path.as_os_str().is_empty() {
            return Ok(rustix::fs::fsync(&self.dir)?);
        }
        let (dir, _) = self.holder(path, OFlags::RDONLY)?;
        Ok(rustix::fs::fsync(&dir)?)
    }

    fn walk(&self, each: &mut dyn FnMut(&Path, &HomeStat) -> io::Result<()>) -> io::Result<()> {
        self.walk_below(Path::new(""), each)
    }

    fn identity(&self) -> io::Result<HomeStat> {
        Ok(home_stat(&status(&self.dir, OsStr::new(""))?))
    }

    fn identity_of_top(&self) -> io::Result<Option<HomeStat>> {
        let Ok(place) = self.place() else { return Ok(None) };
        if self.is_inside() {
            let top = self.top(&place)?;
            return top.map(|top| Ok(home_stat(&status(&top, OsStr::new(""))?))).transpose();
        }
        if is_mount_root(&self.dir, place.parent)? { self.identity().map(Some) } else { Ok(None) }
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.dir)?)
    }

    fn now_ns(&self) -> u64 {
        let since =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> io::Result<()> {
        match self.dir.lock() {
            Err(Errno::WOULDBLOCK) => Err(HomeError::Owned { path: self.path.clone() }.into()),
            other => Ok(other?),
        }
    }

    fn directory(&self) -> Option<BorrowedFd<'_>> {
        Some(self.dir.as_fd())
    }

    fn read_attachment(&self) -> io::Result<Option<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = match self.beneath(Path::new(ATTACHMENT), flags, Mode::empty()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        // The home's owner may have put anything there: a pipe would be waited for, and a huge file
        // is no note.
        if !FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode).is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{ATTACHMENT} is not an ordinary file"),
            ));
        }
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut io::Read::take(File::from(fd), NOTE_MAX + 1), &mut bytes)?;
        Ok(Some(bytes))
    }

    /// Steps: 1. Write and sync the new note under another name. Power cut here leaves the old
    /// note, and a file the next call replaces. 2. Rename it. Power cut here leaves the old or the
    /// new note, each whole. 3. Sync the directory. Power cut here leaves the new note.
    fn write_attachment(&self, bytes: &[u8]) -> io::Result<()> {
        // What somebody else put there is not written to: it might be a pipe, or be his afterwards.
        match rustix::fs::unlinkat(&self.dir, ATTACHMENT_NEW, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file =
            File::from(self.beneath(Path::new(ATTACHMENT_NEW), flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all_at(bytes, 0)?;
        file.sync_all()?;
        rustix::fs::renameat(&self.dir, ATTACHMENT_NEW, &self.dir, ATTACHMENT)?;
        Ok(rustix::fs::fsync(&self.dir)?)
    }

    fn remove_attachment(&self) -> io::Result<()> {
        for name in [ATTACHMENT, ATTACHMENT_NEW] {
            match rustix::fs::unlinkat(&self.dir, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.step(50)?;
        Ok(rustix::fs::fsync(&self.dir)?)
    }

    fn close_door(&self, note: &str) -> io::Result<()> {
        self.move_aside(note)
    }

    fn open_door(&self) -> io::Result<()> {
        self.move_back()
    }

    fn door_closed(&self) -> io::Result<bool> {
        self.is_aside()
    }
}

/// An open file of a [`RealHome`].
#[derive(Debug)]
struct RealFile {
    /// Goes before `file`.
    _close_on_fork: CloseOnFork,
    file: File,
}

impl RealFile {
    fn new(file: File) -> Self {
        Self { _close_on_fork: CloseOnFork::new(file.as_fd()), file }
    }
}

impl HomeFile for RealFile {
    fn stat(&self) -> io::Result<HomeStat> {
        Ok(home_stat(&status(&self.file, OsStr::new(""))?))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    fn read_at(&self, off: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.file.read_at(&mut into[done..], off + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn read_ahead(&self, off: u64, len: u64) {
        if let Some(len) = NonZeroU64::new(len) {
            // A file system that takes no advice reads on as it would have.
            let _ = rustix::fs::fadvise(&self.file, off, Some(len), Advice::WillNeed);
        }
    }

    fn write_at(&self, off: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, off)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn set_times(&self, atime: Option<FileTime>, mtime: Option<FileTime>) -> io::Result<()> {
        super::range::set_times(&self.file, atime, mtime)
    }

    fn open_own(&self) -> io::Result<Arc<dyn HomeFile>> {
        Ok(Arc::new(Self::new(File::from(open_own(&self.file)?))))
    }

    fn clear(&self, off: u64, len: u64, how: Clear) -> io::Result<()> {
        super::range::clear(&self.file, off, len, how)
    }

    fn allocate(&self, off: u64, len: u64) -> io::Result<()> {
        super::range::allocate(&self.file, off, len)
    }

    fn next_data(&self, off: u64) -> io::Result<Option<u64>> {
        super::range::seek(&self.file, rustix::fs::SeekFrom::Data(off))
    }

    fn next_hole(&self, off: u64) -> io::Result<Option<u64>> {
        super::range::seek(&self.file, rustix::fs::SeekFrom::Hole(off))
    }
}

/// Opens what `fd` stands for, for reading and writing, if it is ours. Through the descriptor, not
/// by a path: it is the same file, whatever has its name by now.
fn open_own(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    let found = status(&fd, OsStr::new(""))?;
    if found.stx_uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::ACCESS);
    }
    let mode = Mode::from_raw_mode(u32::from(found.stx_mode) & 0o7777);
    // By the kernel's own name of it: the descriptor may be one of a path only.
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    rustix::fs::chmod(&link, mode | Mode::RUSR | Mode::WUSR)?;
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NOATIME;
    let opened = rustix::fs::open(&link, flags, Mode::empty());
    rustix::fs::chmod(&link, mode)?;
    opened
}

/// Learns whether files can be made in `dir`. A full file system passes: a full home must still be
/// opened to be recovered.
fn probe(dir: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, PROBE, flags, Mode::RUSR | Mode::WUSR) {
        // Left by an opener that was killed, being removed by another one, or something else of the
        // owner's, a pipe say, which is not opened. To remove it takes the same right. Of a
        // directory the kernel says what it is only to whoever has that right.
        Ok(_) | Err(Errno::EXIST) => match rustix::fs::unlinkat(dir, PROBE, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => Ok(()),
            Err(e) => Err(e),
        },
        Err(Errno::NOSPC | Errno::DQUOT) => Ok(()),
        Err(e) => Err(e),
    }
}

//! The home as the checker sees it: files found by identity, read and never written.
//!
//! Deliberately not [`crate::home`]: that one opens a home to own it and tries whether it can be
//! written.
//!
//! **Invariant**: nothing here follows a symbolic link at the end of a path, leaves the home's file
//! system, or gives out a file whose inode number and birth time are not the ones asked for.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx, StatxFlags};

/// A home whose files can be looked up by identity.
pub trait HomeView {
    /// The file with this inode number, generation and birth time (the last two 0 when unknown).
    /// `hint` is the path it had when last opened, relative to the home, possibly only the end of
    /// it, possibly empty.
    ///
    /// # Errors
    /// When the home cannot be read; that the file is not there is `Ok(None)`.
    fn find(
        &self,
        ino: u64,
        generation: u32,
        btime_ns: u64,
        hint: &[u8],
    ) -> io::Result<Option<Box<dyn HomeFileView + '_>>>;
}

/// One file of a [`HomeView`].
pub trait HomeFileView {
    /// Length in bytes.
    fn size(&self) -> u64;

    /// Time of the last change of the contents, in nanoseconds since 1970.
    fn mtime_ns(&self) -> u64;

    /// Reads at `at` until `into` is full or the file ends; returns the number of bytes read.
    ///
    /// # Errors
    /// What the file system says.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize>;
}

/// A real directory.
#[derive(Debug)]
pub struct DirectoryHome {
    path: PathBuf,
    dir: OwnedFd,
    device: (u32, u32),
    identity: (u64, u64),
    /// Paths by inode number, filled when a hint does not lead to the file.
    index: OnceCell<HashMap<u64, Vec<PathBuf>>>,
}

impl DirectoryHome {
    /// Opens the directory `path`.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self::of(path, rustix::fs::open(path, flags, Mode::empty())?)
    }

    /// The open directory `dir`, which messages call `path`.
    pub(super) fn of(path: &Path, dir: OwnedFd) -> io::Result<Self> {
        let stat = stat(&dir)?;
        let (device, identity) =
            ((stat.stx_dev_major, stat.stx_dev_minor), (stat.stx_ino, birth_ns(&stat)));
        Ok(Self { path: path.into(), dir, device, identity, index: OnceCell::new() })
    }

    /// Inode number and birth time (0 when unknown) of the directory.
    #[must_use]
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Opens a path below the home if it is the file asked for.
    fn try_path(&self, path: &Path, ino: u64, btime_ns: u64) -> Option<DirectoryFile> {
        if !path.components().all(|c| matches!(c, Component::Normal(_))) {
            return None;
        }
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.dir, path, flags, Mode::empty()).ok()?;
        let stat = stat(&fd).ok()?;
        let kind = FileType::from_raw_mode(stat.stx_mode.into());
        let same = stat.stx_ino == ino
            && (stat.stx_dev_major, stat.stx_dev_minor) == self.device
            && same_when_known(birth_ns(&stat), btime_ns);
        (same && kind == FileType::RegularFile).then(|| DirectoryFile {
            size: stat.stx_size,
            mtime_ns: time_ns(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            file: File::from(fd),
        })
    }

    /// Walks the home once. A directory that cannot be read, or goes away meanwhile, is left out.
    fn index(&self) -> &HashMap<u64, Vec<PathBuf>> {
        self.index.get_or_init(|| {
            let mut index: HashMap<u64, Vec<PathBuf>> = HashMap::new();
            let Ok(root) = std::fs::symlink_metadata(&self.path).map(|m| m.dev()) else {
                return index;
            };
            let mut open = vec![PathBuf::new()];
            while let Some(dir) = open.pop() {
                let Ok(entries) = std::fs::read_dir(self.path.join(&dir)) else { continue };
                for entry in entries.flatten() {
                    let Ok(meta) = entry.metadata() else { continue };
                    let path = dir.join(entry.file_name());
                    if meta.is_dir() && meta.dev() == root {
                        open.push(path);
                    } else if meta.is_file() {
                        index.entry(meta.ino()).or_default().push(path);
                    }
                }
            }
            index
        })
    }
}

impl HomeView for DirectoryHome {
    fn find(
        &self,
        ino: u64,
        _generation: u32,
        btime_ns: u64,
        hint: &[u8],
    ) -> io::Result<Option<Box<dyn HomeFileView + '_>>> {
        let hinted = Path::new(OsStr::from_bytes(hint));
        let file = if hint.is_empty() { None } else { self.try_path(hinted, ino, btime_ns) };
        let file = file.or_else(|| {
            let paths = self.index().get(&ino)?;
            paths.iter().find_map(|path| self.try_path(path, ino, btime_ns))
        });
        Ok(file.map(|f| Box::new(f) as Box<dyn HomeFileView>))
    }
}

/// Whether two birth times (or generations) agree, where both are known.
pub(super) fn same_when_known(a: u64, b: u64) -> bool {
    a == b || a == 0 || b == 0
}

struct DirectoryFile {
    file: File,
    size: u64,
    mtime_ns: u64,
}

impl HomeFileView for DirectoryFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn mtime_ns(&self) -> u64 {
        self.mtime_ns
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.file.read_at(&mut into[done..], at + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }
}

fn stat(fd: impl AsFd) -> io::Result<Statx> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, mask)?)
}

fn birth_ns(stat: &Statx) -> u64 {
    if stat.stx_mask & StatxFlags::BTIME.bits() == 0 {
        return 0;
    }
    time_ns(stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)
}

fn time_ns(s: i64, ns: u32) -> u64 {
    u64::try_from(s).unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(ns.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_file_is_found_by_its_identity_and_another_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("base")).unwrap();
        std::fs::write(dir.path().join("base/1"), b"hello").unwrap();
        let home = DirectoryHome::open(dir.path()).unwrap();
        let stat = stat(File::open(dir.path().join("base/1")).unwrap()).unwrap();
        let (ino, btime) = (stat.stx_ino, birth_ns(&stat));
        std::fs::rename(dir.path().join("base/1"), dir.path().join("2")).unwrap();
        for hint in [&b"base/1"[..], b"2", b"", b"../x", b"/etc/passwd", b"base"] {
            let file = home.find(ino, 0, btime, hint).unwrap().unwrap();
            let mut bytes = [0; 8];
            assert_eq!((file.size(), file.read_at(1, &mut bytes).unwrap()), (5, 4));
            assert_eq!(&bytes[..4], b"ello");
        }
        assert!(home.find(ino + 1, 0, btime, b"2").unwrap().is_none());
        assert!(btime == 0 || home.find(ino, 0, btime + 1, b"2").unwrap().is_none());
    }
}

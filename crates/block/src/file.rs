//! An ordinary file as a device: how it is opened, locked and written in full, and the calls on it.
//! A block device is opened by `raw`, and has the same calls.
//!
//! Invariants: nothing is changed before the lock is held; a file made by a call that fails is gone
//! again, and one lengthened by it has its old length.
//! Deliberately absent: whose mistake an error is; `device.rs` says what was read or written.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom};
use rustix::io::Errno;
use tiersmith_dir::{Dir, Found};

use crate::memory;
use crate::raw::{Raw, RawDevice};
use crate::{Error, SectorSize, Sectors};

/// How many zeros are written at once.
const ZEROS: usize = 1 << 20;

/// What the memory of a direct read is aligned to: the largest sector.
const ALIGNED: usize = 4096;

/// What to open. Start from [`OpenOptions::new`] and change fields.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// How many bytes are written as one.
    pub sector_size: SectorSize,
    /// How many sectors there are to be. None: as many whole ones as the file has.
    pub len: Sectors,
    /// Make the file when it is missing, and lengthen it when it is shorter.
    pub create: bool,
    /// Whose the file must be, if not root's, and nobody else may write to it. `None`: whose it is
    /// does not matter.
    pub owner: Option<u32>,
}

impl OpenOptions {
    /// An existing file of `len` sectors.
    #[must_use]
    pub fn new(sector_size: SectorSize, len: Sectors) -> Self {
        Self { sector_size, len, create: false, owner: None }
    }
}

/// A file that is locked and written in full.
#[derive(Debug)]
pub(crate) struct DeviceFile {
    file: File,
    /// The same for reads past the kernel's copy, where the file system has such.
    direct: Option<File>,
    in_memory: bool,
    /// It is a block device.
    raw: Option<RawDevice>,
}

/// Opens a file once more, by its descriptor, to read past what the kernel keeps of it in memory.
fn past_the_copy(file: &File) -> Option<File> {
    use rustix::fs::{Mode, OFlags};
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok().map(File::from)
}

/// Puts a file back as it was unless the open succeeds.
struct Undo<'a> {
    file: &'a File,
    old_len: u64,
    /// Of a file that was made: where.
    made: Option<(&'a Dir, &'a OsStr)>,
    armed: bool,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        // Best effort: the caller gets the first error, which explains more than one from here
        // would.
        if let Some((dir, name)) = self.made {
            let _ = Found::of(self.file).and_then(|found| dir.remove_file_that_is(name, &found));
        } else {
            let _ = self.file.set_len(self.old_len);
        }
    }
}

impl DeviceFile {
    pub(crate) fn open(
        dir: &Dir,
        name: &OsStr,
        options: &OpenOptions,
    ) -> Result<(Self, Sectors), Error> {
        let path = dir.path_of(name);
        let (file, made) = open_or_make(dir, name, &path, options.create)?;
        let found = file.metadata().map_err(|source| io_error("looking at", &path, source))?;
        if let Some(wanted) = options.owner {
            only_of(wanted, &path, &found)?;
        }
        lock(&file, &path)?;
        // Another process may have lengthened it until it let go of the lock.
        let found = file.metadata().map_err(|source| io_error("looking at", &path, source))?.len();
        let len = match options.len {
            Sectors(0) => Sectors::in_bytes(found, options.sector_size),
            len => len,
        };
        let made = made.then_some((dir, name));
        let mut undo = Undo { file: &file, old_len: found, made, armed: made.is_some() };
        let bytes = len.bytes(options.sector_size).filter(|bytes| *bytes > 0).ok_or_else(|| {
            Error::BadLength { path: path.clone(), sectors: len.0, size: options.sector_size }
        })?;
        if found < bytes && !options.create {
            return Err(Error::TooShort { path, found, wanted: bytes });
        }
        undo.armed |= found < bytes;
        write_in_full(&file, &path, found, bytes)?;
        file.sync_all().map_err(|source| io_error("syncing", &path, source))?;
        if made.is_some() {
            dir.sync().map_err(|source| io_error("syncing the directory of", &path, source))?;
        }
        undo.armed = false;
        drop(undo);
        let in_memory = memory::has(&file);
        let direct = past_the_copy(&file);
        Ok((Self { file, direct, in_memory, raw: None }, len))
    }

    /// Opens a block device for this process alone. Nothing is written.
    pub(crate) fn open_raw(dir: &Dir, name: &OsStr, owner: Option<u32>) -> Result<Self, Error> {
        let (raw, file) = RawDevice::open(dir, name, owner)?;
        let Some(direct) = past_the_copy(&file) else {
            let why = "it cannot be read past what the kernel keeps of it in memory (O_DIRECT; \
                       /proc is needed)";
            return Err(Error::Unproved { path: dir.path_of(name), why: why.into() });
        };
        Ok(Self { file, direct: Some(direct), in_memory: false, raw: Some(raw) })
    }

    pub(crate) fn raw(&self) -> Option<Raw<'_>> {
        let device = self.raw.as_ref()?;
        Some(Raw { device, file: &self.file, direct: self.direct.as_ref()? })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn in_memory(&self) -> bool {
        self.in_memory
    }

    pub(crate) fn read(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let read = self.file.read_exact_at(buffer, at);
        read.map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(e.kind(), "the file was truncated"),
            _ => e,
        })
    }

    /// Reads past the kernel's copy, which stays as it is; like [`DeviceFile::read`] where that
    /// cannot be done.
    pub(crate) fn read_afresh(&self, at: u64, buffer: &mut [u8]) -> io::Result<()> {
        let Some(direct) = &self.direct else { return self.read(at, buffer) };
        let mut space = vec![0; buffer.len() + ALIGNED];
        let skip = space.as_ptr().align_offset(ALIGNED);
        let into = &mut space[skip..skip + buffer.len()];
        match direct.read_exact_at(into, at) {
            Ok(()) => {
                buffer.copy_from_slice(into);
                Ok(())
            }
            // Its sectors are larger than ours.
            Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                self.read(at, buffer)
            }
            // A file that was truncated, too: that is for one place to say.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => self.read(at, buffer),
            Err(e) => Err(e),
        }
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Lengthens the file with zeros, without a sync: that is shared with writers.
    pub(crate) fn grow(&self, path: &Path, old_len: u64, len: u64) -> Result<(), Error> {
        if self.raw.is_some() {
            return Err(Error::TooShort { path: path.into(), found: old_len, wanted: len });
        }
        let found =
            self.file.metadata().map_err(|source| io_error("looking at", path, source))?.len();
        let mut undo = Undo { file: &self.file, old_len: found, made: None, armed: true };
        write_in_full(&self.file, path, old_len, len)?;
        undo.armed = false;
        Ok(())
    }
}

/// The file, and whether this call made it.
fn open_or_make(dir: &Dir, name: &OsStr, path: &Path, create: bool) -> Result<(File, bool), Error> {
    // Existing first, so that a file made here is known to be ours to remove; again when both lose
    // a race.
    for _ in 0..16 {
        match dir.open_file_rw(name) {
            Ok(file) => return Ok((file, false)),
            Err(e) if e.kind() == io::ErrorKind::NotFound && create => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(Error::Missing { path: path.into() });
            }
            Err(source) => return Err(io_error("opening", path, source)),
        }
        match dir.make_file(name, 0o600, None) {
            Ok(file) => return Ok((file, true)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(io_error("making", path, source)),
        }
    }
    Err(Error::Owned { path: path.into() })
}

/// Refuses what somebody besides root and the user `wanted` can change.
fn only_of(wanted: u32, path: &Path, found: &std::fs::Metadata) -> Result<(), Error> {
    let found = if found.uid() != wanted && found.uid() != 0 {
        format!("belongs to user {}", found.uid())
    } else if found.mode() & 0o022 != 0 {
        format!("may be written by others (mode {:04o})", found.mode() & 0o7777)
    } else if found.nlink() != 1 {
        "has another name".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::OfAnother { path: path.into(), found, wanted })
}

fn lock(file: &File, path: &Path) -> Result<(), Error> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        // Who made it, and failed, may have removed it between our opening and our lock.
        Ok(()) if rustix::fs::fstat(file).is_ok_and(|found| found.st_nlink == 0) => {
            Err(Error::Missing { path: path.into() })
        }
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(Error::Owned { path: path.into() }),
        Err(errno) => Err(io_error("locking", path, errno.into())),
    }
}

/// Gives the file `len` bytes and writes zeros from `keep` on, and before it wherever the file has
/// nothing of its own: a hole, and what was only reserved, would be allocated by the first write,
/// and its sync would wait for the file system's journal.
fn write_in_full(file: &File, path: &Path, keep: u64, len: u64) -> Result<(), Error> {
    let no_space = |source| Error::NoSpace { path: PathBuf::from(path), wanted: len, source };
    if beyond_free(file, len) {
        return Err(no_space(Errno::NOSPC.into()));
    }
    // In one piece where the file system can; the zeros below are what counts.
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, len) {
            Err(Errno::INTR) => {}
            Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
                return Err(no_space(errno.into()));
            }
            _ => break,
        }
    }
    let keep = keep.min(len);
    let zeros = vec![0; ZEROS];
    let mut at = 0;
    while at < len {
        let (from, to) = if at < keep { next_hole(file, at, keep) } else { (at, len) };
        at = from;
        while at < to {
            let part = usize::try_from(to - at).unwrap_or(ZEROS).min(ZEROS);
            file.write_all_at(&zeros[..part], at).map_err(|source| {
                match Errno::from_io_error(&source) {
                    Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => no_space(source),
                    _ => io_error("writing zeros to", path, source),
                }
            })?;
            at += part as u64;
        }
    }
    Ok(())
}

/// The next bytes from `at` on that the file has nothing of; empty at `end` when it has all of
/// them, or the file system does not say.
fn next_hole(file: &File, at: u64, end: u64) -> (u64, u64) {
    let Ok(from) = rustix::fs::seek(file, SeekFrom::Hole(at)) else { return (end, end) };
    // An error says that only the hole follows.
    let to = rustix::fs::seek(file, SeekFrom::Data(from)).unwrap_or(end);
    (from.min(end), to.min(end))
}

/// Whether more blocks are missing than the file system has free. ext4 takes all there are before
/// it refuses, and meanwhile everybody else's writes there fail.
fn beyond_free(file: &File, len: u64) -> bool {
    let (Ok(metadata), Ok(space)) = (file.metadata(), rustix::fs::fstatvfs(file)) else {
        return false;
    };
    let missing = len.saturating_sub(metadata.blocks() * 512);
    let free = if rustix::process::geteuid().is_root() { space.f_bfree } else { space.f_bavail };
    // A tmpfs without a limit counts no blocks.
    space.f_blocks > 0 && missing > free.saturating_mul(space.f_frsize)
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Io { action, path: path.into(), source }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn a_file_that_lost_its_name_before_it_was_locked_is_not_used() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("device");
        let file = File::create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let refused = lock(&file, &path).unwrap_err();
        assert!(matches!(refused, Error::Missing { .. }), "{refused}");
    }
}

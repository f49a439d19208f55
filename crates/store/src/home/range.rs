//! Ranges and time stamps of one real file: holes, reserved space, `utimensat`.
//!
//! Deliberately not here: what to do where the file system cannot do one of these; the caller gets
//! `Unsupported`.

use super::{Clear, FileTime};
use rustix::fs::{FallocateFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use std::fs::File;
use std::io;

pub(super) fn set_times(
    file: &File,
    atime: Option<FileTime>,
    mtime: Option<FileTime>,
) -> io::Result<()> {
    let spec = |time: Option<FileTime>| match time {
        Some(t) => Timespec { tv_sec: t.sec, tv_nsec: t.nsec.into() },
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    };
    Ok(rustix::fs::futimens(
        file,
        &Timestamps { last_access: spec(atime), last_modification: spec(mtime) },
    )?)
}

pub(super) fn clear(file: &File, off: u64, len: u64, how: Clear) -> io::Result<()> {
    let flags = match how {
        Clear::Punch => FallocateFlags::PUNCH_HOLE,
        Clear::Zero => FallocateFlags::ZERO_RANGE,
    };
    fallocate(file, flags | FallocateFlags::KEEP_SIZE, off, len)
}

pub(super) fn allocate(file: &File, off: u64, len: u64) -> io::Result<()> {
    fallocate(file, FallocateFlags::KEEP_SIZE, off, len)
}

fn fallocate(file: &File, flags: FallocateFlags, off: u64, len: u64) -> io::Result<()> {
    loop {
        match rustix::fs::fallocate(file, flags, off, len) {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Err(io::ErrorKind::Unsupported.into()),
            other => return Ok(other?),
        }
    }
}

/// SEEK_DATA or SEEK_HOLE. The position of the descriptor moves, which nobody here uses.
pub(super) fn seek(file: &File, to: SeekFrom) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, to) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        // A file system without holes, or an offset that is no offset for it: everything is data.
        Err(Errno::INVAL) => {
            let size = file.metadata()?.len();
            Ok(match to {
                SeekFrom::Data(at) => (at < size).then_some(at),
                SeekFrom::Hole(at) => (at < size).then_some(size),
                _ => None,
            })
        }
        Err(e) => Err(e.into()),
    }
}

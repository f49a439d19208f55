//! The file locks SQLite takes, taken from outside SQLite; and the question whether anybody else
//! has a file open.
//!
//! A border module with `unsafe`, for one function of the C library, since rustix has no locks of
//! byte ranges that belong to an open file. SQLite's own locks belong to the process; the two kinds
//! conflict with each other as two processes do, also within one process.
//!
//! It is not a lock for Tiersmith's own owners: the store has that (`flock` of the home). It keeps
//! a stock SQLite that has the inode open, or opens the path in the wrong moment, from going on.
//!
//! Invariant: none of these calls waits.
//!
//! Read next: `attach.rs`, which holds the lock from before the first change to the last file
//! closed.

use std::ffi::{OsStr, c_int};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use tiersmith_dir::Dir;
use tiersmith_store::process::CloseOnFork;

/// First byte of the range: SQLite's PENDING byte. RESERVED is the next, 510 bytes of SHARED
/// follow.
const PENDING: i64 = 0x4000_0000;
/// PENDING, RESERVED and all of SHARED.
const RANGE: i64 = 512;

const F_OFD_SETLK: c_int = 37;
const F_WRLCK: i16 = 1;
const F_UNLCK: i16 = 2;

/// `struct flock` of 64-bit Linux.
#[repr(C)]
struct Flock {
    l_type: i16,
    l_whence: i16,
    l_start: i64,
    l_len: i64,
    l_pid: i32,
}

const _: () =
    assert!(size_of::<usize>() == 8, "struct flock and F_OFD_SETLK are those of 64-bit Linux");
const _: () = assert!(size_of::<Flock>() == 32 && std::mem::offset_of!(Flock, l_start) == 8);

unsafe extern "C" {
    fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
}

fn answer(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn set(file: &File, kind: i16) -> io::Result<()> {
    let lock = Flock { l_type: kind, l_whence: 0, l_start: PENDING, l_len: RANGE, l_pid: 0 };
    // SAFETY: `F_OFD_SETLK` reads one `struct flock`, which `lock` is (the assertions above;
    // `l_pid` is 0 as it demands) and which outlives the call; the descriptor is open because
    // `file` is borrowed.
    answer(unsafe { fcntl(file.as_raw_fd(), F_OFD_SETLK, &raw const lock) })
}

/// A file to be locked. A forked child has no part in the lock: were it idle, it would keep the
/// lock of a parent that was killed.
#[derive(Debug)]
pub(super) struct LockFile {
    /// Goes before `file`.
    _close_on_fork: CloseOnFork,
    file: File,
}

impl LockFile {
    /// Opens the regular file `name` for reading and writing.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn open(dir: &Dir, name: impl AsRef<OsStr>) -> io::Result<Self> {
        let file = dir.open_file_rw(name)?;
        Ok(Self { _close_on_fork: CloseOnFork::new(file.as_fd()), file })
    }
}

impl std::ops::Deref for LockFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

/// Locks the bytes SQLite locks, for writing, until `file` and its duplicates are closed. The file
/// must be open for writing.
///
/// # Errors
/// `WouldBlock` when somebody holds a lock there; else what the system says.
pub(super) fn lock(file: &File) -> io::Result<()> {
    set(file, F_WRLCK).map_err(|e| match e.raw_os_error() {
        // POSIX allows both numbers for a lock that is held.
        Some(libc_eacces) if libc_eacces == rustix::io::Errno::ACCESS.raw_os_error() => {
            io::ErrorKind::WouldBlock.into()
        }
        _ => e,
    })
}

/// Lets the bytes go now. Closing the file does so only with its last copy, and a process that is
/// being started has one until it runs its program.
pub(super) fn unlock(file: &File) {
    // What is not locked is let go, too; closing does the rest.
    let _ = set(file, F_UNLCK);
}

/// Whether anybody, in this process or another, has the file open besides `file`. `None`: the file
/// system, or the permissions, do not tell.
pub(super) fn open_elsewhere(file: &File) -> Option<bool> {
    tiersmith_store::is_only_opening(file.as_fd()).ok().map(|only| !only)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_open_file_cannot_lock_before_the_first_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "x").unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let (first, second) = (open(), open());
        lock(&first).unwrap();
        assert_eq!(lock(&second).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(first);
        lock(&second).unwrap();
        // As a process that is being started has one.
        let copy = second.try_clone().unwrap();
        unlock(&second);
        let third = open();
        lock(&third).unwrap();
        drop((second, copy));
        assert_eq!(lock(&open()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_file_open_twice_is_open_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, "x").unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        assert_ne!(open_elsewhere(&file), Some(true));
        let reader = File::open(&path).unwrap();
        assert_ne!(open_elsewhere(&file), Some(false));
        drop(reader);
        assert_ne!(open_elsewhere(&file), Some(true));
    }
}

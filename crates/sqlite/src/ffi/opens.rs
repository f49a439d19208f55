//! What the SQLite linked into this program opens: regular files and directories, and it waits for
//! nothing.
//!
//! SQLite opens a database, its journal, its WAL and the WAL's index by their paths, with
//! `open(2)`. Who may change names there can put a pipe at one of them, even between a look and the
//! open, and `open(2)` waits until somebody opens the pipe's other end; it also waits for a file on
//! which somebody has a lease. SQLite lets a program replace its `open`: this one asks the kernel
//! not to wait, looks at what is open then, and refuses the rest. Links need nothing here: SQLite
//! resolves those in a database's path first, and opens files with `O_NOFOLLOW`.
//!
//! Only for a program that works for other accounts, as root does in `tiersmith`: it changes every
//! connection of the process. A program that links this crate in for its own databases keeps its
//! SQLite as it is.
//!
//! Invariants: `errno` is set when there is no descriptor, as SQLite expects; what is refused is
//! closed.

use super::{NOTFOUND, OK};
use libsqlite3_sys as sys;
use rustix::fs::{FileType, OFlags};
use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

/// `open`, as SQLite's table of system calls has it.
type Open = unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int;

/// The one that was there before.
static BEFORE: OnceLock<Open> = OnceLock::new();

/// Devices that SQLite opens itself: for its random numbers, and to keep the first three
/// descriptors taken.
const DEVICES: [&CStr; 2] = [c"/dev/urandom", c"/dev/null"];

/// Replaces `open` in the VFS `unix` and those built on it. A second call changes nothing.
///
/// # Errors
/// SQLite's result code: it has no VFS `unix`, or one whose system calls cannot be replaced.
pub(crate) fn only_files() -> Result<(), c_int> {
    // SAFETY: the name ends with a zero; SQLite initialises itself when that was not done.
    let vfs = unsafe { sys::sqlite3_vfs_find(c"unix".as_ptr()) };
    // SAFETY: a registered VFS stays as it is while the process lives; the functions were added in
    // version 3.
    let Some(found) = (unsafe { vfs.as_ref() }).filter(|found| found.iVersion >= 3) else {
        return Err(NOTFOUND);
    };
    let (Some(get), Some(set)) = (found.xGetSystemCall, found.xSetSystemCall) else {
        return Err(NOTFOUND);
    };
    // SAFETY: the function belongs to this VFS; the name ends with a zero.
    let before = unsafe { get(vfs, c"open".as_ptr()) }.ok_or(NOTFOUND)?;
    // SAFETY: the system call of this name has this type in every SQLite (`osOpen` in its
    // os_unix.c).
    let before = unsafe { std::mem::transmute::<unsafe extern "C" fn(), Open>(before) };
    if BEFORE.set(before).is_err() {
        return Ok(());
    }
    // SAFETY: as above, the other way round.
    let ours = unsafe { std::mem::transmute::<Open, unsafe extern "C" fn()>(open) };
    // SAFETY: the function belongs to this VFS; `open` is there as long as the process. SQLite
    // stores the pointer whole, so a thread that opens a file now calls one or the other.
    match unsafe { set(vfs, c"open".as_ptr(), Some(ours)) } {
        OK => Ok(()),
        code => Err(code),
    }
}

/// What SQLite calls for `open(2)`.
///
/// # Safety
/// SQLite's: `path` ends with a zero.
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    let Some(before) = BEFORE.get() else { return refused() };
    // SAFETY: SQLite's arguments, with one flag more, which changes nothing for files and
    // directories.
    let descriptor = unsafe { before(path, flags | OFlags::NONBLOCK.bits() as c_int, mode) };
    if descriptor < 0 {
        return descriptor;
    }
    // SAFETY: it was opened a moment ago, and nobody else knows it.
    let opened = unsafe { OwnedFd::from_raw_fd(descriptor) };
    // SAFETY: SQLite's path ends with a zero.
    let named = || DEVICES.contains(&unsafe { CStr::from_ptr(path) });
    let kind = rustix::fs::fstat(&opened).map(|found| FileType::from_raw_mode(found.st_mode));
    match kind {
        Ok(FileType::RegularFile | FileType::Directory) => opened.into_raw_fd(),
        Ok(FileType::CharacterDevice) if named() => opened.into_raw_fd(),
        _ => {
            drop(opened);
            refused()
        }
    }
}

/// No descriptor: what is there is not what was asked for.
fn refused() -> RawFd {
    // SAFETY: the C library's `errno` of this thread, which is there as long as the thread.
    unsafe { *libc::__errno_location() = libc::EINVAL };
    -1
}

//! Whether an open file of a medium is open, or mapped, anywhere else: by another process, or by
//! the kernel on behalf of one.
//!
//! The kernel knows, and says it when a lease for writing is asked for: it is given only to the one
//! opening there is. Deliberately not here: what to do then. Who opens the file for reading only is
//! not always seen.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `F_SETSIG`, which libc does not name: 10 on x86 and Arm.
const SET_SIGNAL: libc::c_int = 10;

/// Whether `file`, opened for writing, is the only opening of its file for writing; a memory map of
/// another opening counts as one.
///
/// # Errors
/// When the file system has no leases, or the file is another user's.
pub fn is_only_opening(file: BorrowedFd<'_>) -> io::Result<bool> {
    // Should somebody open the file while the lease is there, the signal for it is one that is
    // ignored by default; SIGIO would end the process.
    control(file, SET_SIGNAL, libc::SIGURG)?;
    match control(file, libc::F_SETLEASE, libc::F_WRLCK) {
        Ok(()) => {
            match control(file, libc::F_SETLEASE, libc::F_UNLCK) {
                // Another thread that asked at the same time has given it up already.
                Err(e) if e.raw_os_error() != Some(libc::EAGAIN) => Err(e),
                _ => Ok(true),
            }
        }
        Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => Ok(false),
        Err(e) => Err(e),
    }
}

fn control(file: BorrowedFd<'_>, command: libc::c_int, argument: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as it is borrowed; these commands take a number and
    // touch no memory of ours.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn another_opening_for_writing_is_seen_and_a_duplicate_of_this_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let open = || std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let one = open();
        let same = one.try_clone().unwrap();
        assert!(is_only_opening(one.as_fd()).unwrap());
        let other = open();
        assert!(!is_only_opening(one.as_fd()).unwrap());
        drop(other);
        assert!(is_only_opening(same.as_fd()).unwrap());
    }

    #[test]
    fn threads_that_ask_at_once_are_answered_alike() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "x").unwrap();
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    (0..20_000).for_each(|_| assert!(is_only_opening(file.as_fd()).unwrap()))
                });
            }
        });
    }
}

//! For tests: work in a forked child, and the planted bug, a program that does not notice that it
//! was forked.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

static UNSEEN: AtomicBool = AtomicBool::new(false);

/// Plants the bug, for the rest of the process: what a child inherited is taken for its own. Before
/// anything is opened.
pub fn leave_forks_unseen() {
    UNSEEN.store(true, Ordering::Relaxed);
}

/// Asked by each call of the store: inlined, so that a benchmark with this feature measures the
/// program without it.
#[inline]
pub(crate) fn forks_are_unseen() -> bool {
    UNSEEN.load(Ordering::Relaxed)
}

/// Does `work` in a forked child, which then ends without any clean-up, and returns the number that
/// `work` returned (0 to 99). A panic is 101.
///
/// # Errors
/// When there is no process to be had, or a signal ended the child.
pub fn in_child(work: impl FnOnce() -> i32) -> io::Result<i32> {
    // SAFETY: the child runs one thread. What it calls may wait for a lock that another thread of a
    // test had: the C library's own are free in a child, and what is tested is that ours are not
    // needed.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let answer = catch_unwind(AssertUnwindSafe(work)).unwrap_or(101);
            // SAFETY: ends the process, without handlers that belong to the parent.
            unsafe { libc::_exit(answer) }
        }
        child => {
            let mut status = 0;
            // SAFETY: `status` has room for the answer; the child is ours.
            while unsafe { libc::waitpid(child, &mut status, 0) } < 0 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            if libc::WIFEXITED(status) {
                Ok(libc::WEXITSTATUS(status))
            } else {
                Err(io::Error::other(format!("signal {} ended the child", libc::WTERMSIG(status))))
            }
        }
    }
}

/// Leaves a forked child behind that does nothing for `lifetime`, and then ends without any
/// clean-up. Returns its number.
///
/// # Errors
/// When there is no process to be had.
pub fn leave_idle_child(lifetime: Duration) -> io::Result<i32> {
    // SAFETY: the child opens, duplicates, sleeps and ends, which a signal handler may do too.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: as above; the path ends with a zero. Who reads the parent's output must not
            // wait for the child.
            unsafe {
                let nowhere = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
                for stream in 0..3 {
                    libc::dup2(nowhere, stream);
                }
                std::thread::sleep(lifetime);
                libc::_exit(0)
            }
        }
        child => Ok(child),
    }
}

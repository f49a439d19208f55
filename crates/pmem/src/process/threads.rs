//! Threads of ours in somebody else's program: they take none of its signals.
//!
//! A signal to a process is handled by any thread that does not block it. A program that blocks one
//! to wait for it (`sigwait`), or whose handler expects its own thread, must not find it taken by
//! ours.
//!
//! Signals that say what the thread itself did (a fault, an abort) are left as they are: blocked,
//! they end the process without the program's handler.

use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle};

/// What the thread itself causes.
const OWN: [libc::c_int; 7] = [
    libc::SIGBUS,
    libc::SIGSEGV,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];

/// Starts a thread that takes no signals which are sent to the process.
///
/// # Errors
/// When the system has no thread to give.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    // Before the thread is there, so that it never has another mask; this thread's own comes back
    // below.
    let before = block_all();
    let thread = Builder::new().name(name.to_owned()).spawn(work);
    if let Some(before) = before {
        set(&before);
    }
    thread
}

#[cfg(not(miri))]
fn block_all() -> Option<libc::sigset_t> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: each set has room for what the calls write; the first is filled before it is read.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for signal in OWN {
            libc::sigdelset(all.as_mut_ptr(), signal);
        }
        let done = libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        (done == 0).then(|| before.assume_init())
    }
}

#[cfg(not(miri))]
fn set(mask: &libc::sigset_t) {
    // SAFETY: the mask is one that the call above gave.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}

#[cfg(miri)]
fn block_all() -> Option<libc::sigset_t> {
    None
}

#[cfg(miri)]
fn set(_mask: &libc::sigset_t) {}

#[cfg(all(test, not(miri)))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

    use super::*;

    /// Signals that a thread blocks, as the kernel shows them: one bit each.
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    }

    #[test]
    fn a_thread_takes_no_signal_of_the_process_and_the_faults_it_makes() {
        let before = blocked();
        let inside = spawn("test", blocked).unwrap().join().unwrap();
        assert_eq!(blocked(), before);
        let has = |signal: libc::c_int| inside & (1 << (signal - 1)) != 0;
        for signal in [
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGALRM,
            libc::SIGCHLD,
            libc::SIGUSR1,
            libc::SIGPROF,
        ] {
            assert!(has(signal), "signal {signal}");
        }
        for signal in OWN {
            assert!(!has(signal), "signal {signal}");
        }
    }
}

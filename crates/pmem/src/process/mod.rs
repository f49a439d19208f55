//! What a forked child has of its parent, and must not use: mappings, locks, descriptors,
//! connections.
//!
//! `fork` copies them all, and the copies act on what the parent goes on using. So whatever is made
//! for one process remembers which one ([`Process`]), and is refused in a child: the question costs
//! a load, not a system call.
//!
//! A page of memory that the kernel empties in a forked child (`MADV_WIPEONFORK`) holds the number
//! of the process. The first thing made in a child finds it empty and gives the child a number of
//! its own, one that no inherited thing has. A child that shares its parent's memory until it runs
//! a program (`vfork`, `posix_spawn`) is the same process here, rightly: it does nothing else.
//!
//! Descriptors cannot wait for that question: a lock (`flock`, open file description locks) is held
//! until its last copy is closed, so an idle child would keep the lock of a parent that was killed.
//! [`CloseOnFork`] closes the child's copies as it begins.
//!
//! Invariants: nothing in the child's handler allocates, locks or waits; a number is given once
//! among a process and its ancestors. Deliberately absent: what to do in the child; whoever made
//! the thing refuses, with a sentence.
//!
//! Read next: [`close`](self) in `close.rs`, the descriptors; `threads.rs`, threads that take no
//! signals.

mod close;
mod globals;
#[cfg(feature = "testing")]
mod testing;
mod threads;

pub use close::CloseOnFork;
pub use globals::PerProcess;
#[cfg(feature = "testing")]
pub(crate) use testing::forks_are_unseen;
#[cfg(feature = "testing")]
pub use testing::{in_child, leave_forks_unseen, leave_idle_child};
pub use threads::spawn;

/// Whether the bug is planted that a fork is not noticed.
#[cfg(not(feature = "testing"))]
pub(crate) const fn forks_are_unseen() -> bool {
    false
}

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The process that made something.
#[derive(Clone, Copy)]
pub struct Process {
    page: &'static AtomicU64,
    number: u64,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Process").field(&self.number).finish()
    }
}

impl Process {
    /// The process this runs in.
    pub fn current() -> Self {
        let page = page();
        Self { page, number: number(page) }
    }

    /// Whether this runs in that process, and not in a child that inherited a copy of what it made.
    #[inline]
    #[must_use]
    pub fn is_current(self) -> bool {
        // Relaxed: a process has its number before it makes anything, and keeps it.
        forks_are_unseen() || self.page.load(Ordering::Relaxed) == self.number
    }
}

/// On the page while the number of a child is being given.
const GIVING: u64 = u64::MAX;
/// The last number given, here or in an ancestor: ordinary memory, which a child has a copy of.
static LAST: AtomicU64 = AtomicU64::new(0);

fn page() -> &'static AtomicU64 {
    static PAGE: OnceLock<&AtomicU64> = OnceLock::new();
    PAGE.get_or_init(make_page)
}

fn number(page: &AtomicU64) -> u64 {
    loop {
        match page.load(Ordering::Acquire) {
            0 => {
                if page.compare_exchange(0, GIVING, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    // A child made without the C library's `fork` ran no handler. Before it opens
                    // anything itself.
                    close::close_inherited();
                    let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
                    page.store(number, Ordering::Release);
                    return number;
                }
            }
            GIVING => std::thread::yield_now(),
            number => return number,
        }
    }
}

#[cfg(not(miri))]
fn make_page() -> &'static AtomicU64 {
    use rustix::mm::{Advice, MapFlags, ProtFlags};
    // SAFETY: it takes a number and touches no memory.
    let len = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that
    // exists.
    let at = unsafe {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, access, MapFlags::PRIVATE)
    };
    let page = match at {
        Ok(at) => {
            // SAFETY: the page was mapped just above. Kernels before 4.14 refuse the advice; the
            // handler empties the page then.
            let _ = unsafe { rustix::mm::madvise(at, len, Advice::LinuxWipeOnFork) };
            // SAFETY: the page is aligned, zero, never unmapped, and used as this word only.
            unsafe { &*at.cast::<AtomicU64>() }
        }
        // No memory: the handler alone tells.
        Err(_) => Box::leak(Box::new(AtomicU64::new(0))),
    };
    FOR_CHILDREN.store(std::ptr::from_ref(page).cast_mut(), Ordering::Release);
    // SAFETY: the handler is a function of this library, and the C library forgets it when the
    // library is unloaded. It fails for want of memory only; the page tells without it.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) };
    page
}

/// Miri neither maps nor forks.
#[cfg(miri)]
fn make_page() -> &'static AtomicU64 {
    static WORD: AtomicU64 = AtomicU64::new(0);
    &WORD
}

/// The page, where a signal handler's rules hold.
#[cfg(not(miri))]
static FOR_CHILDREN: std::sync::atomic::AtomicPtr<AtomicU64> =
    std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());

/// Runs in a child before its `fork` returns. Other threads may have held any lock, so only what a
/// signal handler may do.
#[cfg(not(miri))]
unsafe extern "C" fn in_forked_child() {
    if forks_are_unseen() {
        return;
    }
    let page = FOR_CHILDREN.load(Ordering::Acquire);
    // SAFETY: null, or the page, which is never unmapped.
    if let Some(page) = unsafe { page.as_ref() } {
        page.store(0, Ordering::Release);
        close::close_inherited();
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_here_is_ours_from_every_thread() {
        let made = Process::current();
        assert!(made.is_current());
        assert!(std::thread::spawn(move || made.is_current()).join().unwrap());
        assert_eq!(Process::current().number, made.number);
    }

    #[cfg(feature = "testing")]
    #[test]
    fn a_child_tells_its_own_things_from_those_of_its_ancestors() {
        let parents = Process::current();
        let ended = in_child(|| {
            let before = parents.is_current();
            let mine = Process::current();
            let grandchild = in_child(move || {
                let own = Process::current();
                i32::from(parents.is_current() || mine.is_current() || !own.is_current())
            });
            let after = parents.is_current() || !mine.is_current();
            i32::from(before || after) + 2 * grandchild.unwrap()
        });
        assert_eq!(ended.unwrap(), 0);
        assert!(parents.is_current());
    }
}

//! Descriptors that a forked child is not to have.
//!
//! In a child each of them leads to `/dev/null`: the file behind it is closed, and with it the
//! child's part in its locks, while the number stays taken. So what still has the number (a value
//! that is never dropped there, or one that is) touches no file that the child opened itself.
//!
//! Invariant: the list only grows, and each place is a word: a child reads it whatever other
//! threads were at.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use super::Process;

/// In a place that is free.
const FREE: RawFd = -1;

/// Places for descriptors; the next list when these are taken.
struct Places {
    descriptors: [AtomicI32; 62],
    next: AtomicPtr<Places>,
}

impl Places {
    const fn new() -> Self {
        Self {
            descriptors: [const { AtomicI32::new(FREE) }; 62],
            next: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    fn next(&self) -> Option<&'static Places> {
        // SAFETY: null, or a list that was leaked to be here.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }
}

static FIRST: Places = Places::new();

/// Keeps a descriptor from children that are forked from now on. Declare it before the file it is
/// of: it is to go first.
///
/// A child forked between opening the file and making this has its copy; take locks afterwards.
#[derive(Debug)]
pub struct CloseOnFork {
    place: &'static AtomicI32,
    process: Process,
}

impl CloseOnFork {
    /// Keeps `descriptor` from children until this is dropped.
    pub fn new(descriptor: BorrowedFd<'_>) -> Self {
        let process = Process::current();
        let place = take_place(descriptor.as_raw_fd());
        Self { place, process }
    }

    /// Whether this runs in the process that opened the file, and not in a child, where the
    /// descriptor leads nowhere.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.process.is_current()
    }
}

impl Drop for CloseOnFork {
    fn drop(&mut self) {
        // In a child the place was emptied, and may be another descriptor's by now.
        if self.is_ours() {
            self.place.store(FREE, Ordering::Release);
        }
    }
}

fn take_place(descriptor: RawFd) -> &'static AtomicI32 {
    let mut places = &FIRST;
    loop {
        for place in &places.descriptors {
            if place.load(Ordering::Relaxed) == FREE
                && place
                    .compare_exchange(FREE, descriptor, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
            {
                return place;
            }
        }
        places = places.next().unwrap_or_else(|| append(places));
    }
}

fn append(to: &Places) -> &'static Places {
    let new: &'static mut Places = Box::leak(Box::new(Places::new()));
    let new: *mut Places = new;
    match to.next.compare_exchange(std::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: leaked just above, and only shared from here on.
        Ok(_) => unsafe { &*new },
        Err(other) => {
            // SAFETY: nobody has seen `new`; the other one was leaked by the thread that was first.
            unsafe {
                drop(Box::from_raw(new));
                &*other
            }
        }
    }
}

/// In a child: gives up every descriptor of the list. Does only what a signal handler may; a second
/// call does nothing.
pub(super) fn close_inherited() {
    // Opened here: a descriptor kept for this may be another file's by now, in a program that
    // closes all it does not know (to become a daemon).
    let mut nowhere = FREE;
    let mut list = Some(&FIRST);
    while let Some(places) = list {
        for place in &places.descriptors {
            let descriptor = place.swap(FREE, Ordering::AcqRel);
            if descriptor == FREE {
                continue;
            }
            // SAFETY: the path ends with a zero; no other thread runs in a child that is just
            // forked. The descriptor is open, because its owner takes it from the list before it
            // closes it. Whoever has it finds `/dev/null`, or, where there is none, a number that
            // is not open.
            unsafe {
                if nowhere == FREE {
                    nowhere = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
                }
                if nowhere == descriptor {
                    // The program had closed it. It stays.
                    nowhere = FREE;
                } else if nowhere == FREE || libc::dup3(nowhere, descriptor, libc::O_CLOEXEC) < 0 {
                    libc::close(descriptor);
                }
            }
        }
        list = places.next();
    }
    if nowhere != FREE {
        // SAFETY: opened above, and nobody else knows it.
        unsafe { libc::close(nowhere) };
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn a_place_is_used_again_and_more_than_one_list_holds_all() {
        let file = tempfile::tempfile().unwrap();
        let kept: Vec<_> = (0..200).map(|_| CloseOnFork::new(file.as_fd())).collect();
        let mut places: Vec<_> = kept.iter().map(|k| std::ptr::from_ref(k.place)).collect();
        places.sort();
        places.dedup();
        assert_eq!(places.len(), 200);
        drop(kept);
        let again = CloseOnFork::new(file.as_fd());
        assert!(places.contains(&std::ptr::from_ref(again.place)));
    }

    #[cfg(feature = "testing")]
    #[test]
    fn a_child_has_no_part_in_the_lock_and_its_copy_leads_nowhere() {
        use crate::process::in_child;
        use rustix::fs::FlockOperation::{NonBlockingLockExclusive, Unlock};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = File::create(&path).unwrap();
        let kept = CloseOnFork::new(file.as_fd());
        rustix::fs::flock(&file, NonBlockingLockExclusive).unwrap();
        let ended = in_child(|| {
            let nothing = file.metadata().map_or(1, |found| i32::from(found.is_file()));
            // The parent's lock is not given up by it.
            let _ = rustix::fs::flock(&file, Unlock);
            let other = File::open(&path).unwrap();
            let locked = rustix::fs::flock(&other, NonBlockingLockExclusive).is_err();
            nothing + 2 * i32::from(!locked) + 4 * i32::from(kept.is_ours())
        });
        assert_eq!(ended.unwrap(), 0);
        assert!(kept.is_ours() && file.metadata().unwrap().is_file());
    }

    /// As a program does that becomes a daemon: a child that closes every descriptor, and opens its
    /// own.
    #[cfg(feature = "testing")]
    #[test]
    fn a_copy_leads_nowhere_although_the_program_closed_what_it_did_not_know() {
        use crate::process::in_child;
        use std::mem::ManuallyDrop;
        use std::os::unix::fs::FileTypeExt;
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("other");
        std::fs::write(&other, "other").unwrap();
        let parents = tempfile::tempfile().unwrap();
        let _kept = CloseOnFork::new(parents.as_fd());
        let ended = in_child(|| {
            for descriptor in 3..1024 {
                // SAFETY: nothing of this child uses them: it ends without dropping what it
                // inherited.
                unsafe { libc::close(descriptor) };
            }
            let mut files: Vec<_> =
                (0..64).map(|_| ManuallyDrop::new(File::open(&other).unwrap())).collect();
            let ours = files.pop().unwrap();
            let _kept = ManuallyDrop::new(CloseOnFork::new(ours.as_fd()));
            in_child(|| i32::from(!ours.metadata().unwrap().file_type().is_char_device()))
                .unwrap_or(2)
        });
        assert_eq!(ended.unwrap(), 0);
    }
}

//! The open directory of a home's files, and its lock.
//!
//! A home that is a mount point has its files moved into another directory and back (`inside.rs`)
//! while it is open. Then the directory that is open here becomes the other one. Whoever borrowed
//! the earlier descriptor keeps it: none is closed before the home is.
//!
//! **Invariant**: what was locked stays locked; the later directory is locked before it counts.
//! **Deliberately absent**: moving anything.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FlockOperation;

use crate::process::CloseOnFork;

/// An open directory, and those that it became.
#[derive(Debug)]
pub(super) struct Directory {
    /// Goes before `dir`.
    close_on_fork: CloseOnFork,
    dir: OwnedFd,
    locked: AtomicBool,
    next: OnceLock<Box<Directory>>,
}

impl Directory {
    pub(super) fn new(dir: OwnedFd) -> Self {
        let close_on_fork = CloseOnFork::new(dir.as_fd());
        Self { close_on_fork, dir, locked: AtomicBool::new(false), next: OnceLock::new() }
    }

    fn now(&self) -> &Self {
        let mut now = self;
        while let Some(next) = now.next.get() {
            now = next;
        }
        now
    }

    /// Locks it against other objects and processes.
    pub(super) fn lock(&self) -> rustix::io::Result<()> {
        let now = self.now();
        rustix::fs::flock(&now.dir, FlockOperation::NonBlockingLockExclusive)?;
        now.locked.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Another directory, ready to become this one: locked if this one is.
    pub(super) fn prepare(&self, dir: OwnedFd) -> io::Result<Self> {
        // One that it was before is locked already, by the descriptor of then.
        let dir = match self.earlier(&dir)? {
            Some(earlier) => earlier.try_clone()?,
            None => dir,
        };
        let next = Self::new(dir);
        if self.now().locked.load(Ordering::Relaxed) {
            next.lock()?;
        }
        Ok(next)
    }

    /// The same directory, if it was this one before.
    fn earlier(&self, dir: &OwnedFd) -> io::Result<Option<&OwnedFd>> {
        let wanted = rustix::fs::fstat(dir)?;
        let mut at = Some(self);
        while let Some(earlier) = at {
            let found = rustix::fs::fstat(&earlier.dir)?;
            if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino) {
                return Ok(Some(&earlier.dir));
            }
            at = earlier.next.get().map(|next| &**next);
        }
        Ok(None)
    }

    /// From here on it is `next`.
    pub(super) fn becomes(&self, next: Self) -> io::Result<()> {
        let taken = self.now().next.set(Box::new(next));
        taken.map_err(|_| io::Error::other("BUG: two threads move the home's files at once"))
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.now().dir.as_fd()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Closing would do, but for a child that some thread has just forked: until it executes its
        // program it has a copy of the descriptor, and would keep the home locked. Nothing is to be
        // done where it fails. In a child that goes on, it is the parent's lock.
        if self.close_on_fork.is_ours() {
            let _ = rustix::fs::flock(&self.dir, FlockOperation::Unlock);
        }
    }
}

//! Shuttle's locks and threads under the names and with the calls of those that a normal build has.
//!
//! They work only within a run of shuttle. A lock that is waited for with a time limit is waited
//! for without one, and a wait for a condition ends at any time: both are allowed to callers that
//! look again.

use shuttle::sync as theirs;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

pub(crate) use crate::of_frames::{atomic, turn};
pub(crate) use shuttle::hint::spin_loop;
pub(crate) use shuttle::thread::{self, sleep, yield_now};

/// As parking_lot's, and as spin's.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(theirs::Mutex<T>);

/// The lock of a lane.
pub(crate) type SpinMutex<T> = Mutex<T>;
pub(crate) type SpinMutexGuard<'a, T> = MutexGuard<'a, T>;

/// `None` only while a condition is waited for.
pub(crate) struct MutexGuard<'a, T> {
    of: &'a Mutex<T>,
    held: Option<theirs::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(theirs::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { of: self, held: Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)) }
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        Some(MutexGuard { of: self, held: Some(self.0.try_lock().ok()?) })
    }

    pub(crate) fn try_lock_for(&self, _: Duration) -> Option<MutexGuard<'_, T>> {
        Some(self.lock())
    }

    pub(crate) fn is_locked(&self) -> bool {
        self.try_lock().is_none()
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.held = None;
        // Shuttle lets others go first only before it unlocks. Here they may take the lock before
        // its last holder does anything else.
        turn();
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("BUG: a guard without its lock")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("BUG: a guard without its lock")
    }
}

/// A lock of many readers or one writer.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(theirs::RwLock<T>);

pub(crate) type RwLockReadGuard<'a, T> = theirs::RwLockReadGuard<'a, T>;
pub(crate) type RwLockWriteGuard<'a, T> = theirs::RwLockWriteGuard<'a, T>;

impl<T> RwLock<T> {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever waits looks again and again.
#[derive(Debug, Default)]
pub(crate) struct Condvar;

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self
    }

    pub(crate) fn notify_one(&self) {}

    pub(crate) fn notify_all(&self) {}

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) {
        self.wait(guard);
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.held = None;
        yield_now();
        guard.held = guard.of.lock().held.take();
    }
}

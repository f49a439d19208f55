//! The locks, atomics and waits of the store: those of `parking_lot`, `spin` and the standard
//! library, by one name each, so that they can be exchanged as a whole.
//!
//! With the feature `interleavings` they are shuttle's (`sync/shuttled.rs`), which runs the threads
//! of a test one at a time and chooses who goes next at each of their steps
//! (`tests/shuttle/main.rs`).
//!
//! **Invariant**: what threads of the store share goes through here or through
//! [`tiersmith_pmem::Mapping`]; else shuttle never lets another thread in between. Of things that
//! are set once (`OnceLock`), of events and of counts (`cache/usage.rs`), which nobody decides by,
//! that does not matter.

#[cfg(feature = "interleavings")]
mod shuttled;

#[cfg(feature = "interleavings")]
pub(crate) use shuttled::*;

#[cfg(not(feature = "interleavings"))]
pub(crate) use direct::*;

#[cfg(not(feature = "interleavings"))]
mod direct {
    pub(crate) use parking_lot::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    };
    pub(crate) use spin::mutex::{SpinMutex, SpinMutexGuard};
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic;
    pub(crate) use std::thread::{self, sleep, yield_now};
}

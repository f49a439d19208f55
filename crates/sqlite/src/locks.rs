//! SQLite's file locks among the connections of this process: SHARED, RESERVED, PENDING, EXCLUSIVE.
//!
//! No other process can have an attached database open (the store's lock on the home sees to that),
//! so the state is one word of memory and a lock costs a compare-and-swap. What is granted when is
//! what the `unix` VFS grants, in `sqlite3.c` under `unixLock`:
//!
//! - SHARED: when nobody holds PENDING or EXCLUSIVE.
//! - RESERVED: from SHARED, when nobody else holds more than SHARED.
//! - EXCLUSIVE: from RESERVED by way of PENDING, which stays when readers are still there (so that
//!   no new ones come). Straight from SHARED, as the rollback of a hot journal asks for it, without
//!   PENDING: a connection that asks whether the journal is hot must not take the attempt of
//!   another one for a writer.
//!
//! Invariant: the number of holders of SHARED counts every connection with any lock; at most one
//! holds more than SHARED.

use crate::ffi;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

const RESERVED: u64 = 1 << 32;
const PENDING: u64 = 1 << 33;
const EXCLUSIVE: u64 = 1 << 34;
const ABOVE_SHARED: u64 = RESERVED | PENDING | EXCLUSIVE;
/// Connections with a lock.
const SHARED: u64 = RESERVED - 1;

/// The locks of one database.
#[derive(Debug, Default)]
pub(crate) struct Locks(AtomicU64);

/// What one connection holds.
#[derive(Debug, Default)]
pub(crate) struct Held {
    level: c_int,
    /// RESERVED was taken on the way (not when EXCLUSIVE came straight from SHARED).
    bits: u64,
}

impl Held {
    /// `SQLITE_LOCK_NONE` to `SQLITE_LOCK_EXCLUSIVE`.
    pub(crate) fn level(&self) -> c_int {
        self.level
    }
}

impl Locks {
    /// Takes a lock of at least `level`; SQLite's result code.
    pub(crate) fn lock(&self, held: &mut Held, level: c_int) -> c_int {
        if held.level >= level {
            return ffi::OK;
        }
        match level {
            ffi::LOCK_SHARED => self.take(held, level, |word, _| {
                (word & (PENDING | EXCLUSIVE) == 0).then_some((word + 1, 0))
            }),
            ffi::LOCK_RESERVED => self.take(held, level, |word, _| {
                (word & ABOVE_SHARED == 0).then_some((word | RESERVED, RESERVED))
            }),
            _ => self.exclusive(held),
        }
    }

    fn exclusive(&self, held: &mut Held) -> c_int {
        if held.level == ffi::LOCK_RESERVED {
            let bits = held.bits | PENDING;
            self.0.fetch_or(PENDING, Ordering::AcqRel);
            (held.level, held.bits) = (ffi::LOCK_PENDING, bits);
        }
        self.take(held, ffi::LOCK_EXCLUSIVE, |word, mine| {
            let alone = word & SHARED == 1 && word & ABOVE_SHARED == mine;
            alone.then_some((word | EXCLUSIVE, mine | EXCLUSIVE))
        })
    }

    /// Changes the word as `change` says, from the word and this connection's bits to the new ones;
    /// `None` from it is `SQLITE_BUSY`.
    fn take(
        &self,
        held: &mut Held,
        level: c_int,
        change: impl Fn(u64, u64) -> Option<(u64, u64)>,
    ) -> c_int {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let Some((next, bits)) = change(word, held.bits) else { return ffi::BUSY };
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    (held.level, held.bits) = (level, bits);
                    return ffi::OK;
                }
                Err(now) => word = now,
            }
        }
    }

    /// Goes down to SHARED or to no lock.
    pub(crate) fn unlock(&self, held: &mut Held, level: c_int) {
        if held.level <= level {
            return;
        }
        let shared = u64::from(level == ffi::LOCK_NONE);
        self.0.fetch_sub(held.bits + shared, Ordering::AcqRel);
        (held.level, held.bits) = (level, 0);
    }

    /// Whether any connection holds more than SHARED.
    pub(crate) fn reserved(&self) -> bool {
        self.0.load(Ordering::Acquire) & ABOVE_SHARED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::{
        BUSY, LOCK_EXCLUSIVE, LOCK_NONE, LOCK_PENDING, LOCK_RESERVED, LOCK_SHARED, OK,
    };

    #[test]
    fn a_writer_waits_for_readers_and_keeps_new_ones_out() {
        let locks = Locks::default();
        let (mut writer, mut reader, mut late) =
            (Held::default(), Held::default(), Held::default());
        assert_eq!(locks.lock(&mut reader, LOCK_SHARED), OK);
        assert_eq!(locks.lock(&mut writer, LOCK_SHARED), OK);
        assert_eq!(locks.lock(&mut writer, LOCK_RESERVED), OK);
        assert_eq!(locks.lock(&mut reader, LOCK_RESERVED), BUSY);
        assert_eq!(locks.lock(&mut late, LOCK_SHARED), OK);
        locks.unlock(&mut late, LOCK_NONE);
        assert_eq!(locks.lock(&mut writer, LOCK_EXCLUSIVE), BUSY);
        assert_eq!(writer.level(), LOCK_PENDING);
        assert_eq!(locks.lock(&mut late, LOCK_SHARED), BUSY);
        locks.unlock(&mut reader, LOCK_NONE);
        assert_eq!(locks.lock(&mut writer, LOCK_EXCLUSIVE), OK);
        assert_eq!(locks.lock(&mut reader, LOCK_SHARED), BUSY);
        locks.unlock(&mut writer, LOCK_SHARED);
        assert_eq!(locks.lock(&mut reader, LOCK_SHARED), OK);
        assert!(!locks.reserved());
        locks.unlock(&mut writer, LOCK_NONE);
        locks.unlock(&mut reader, LOCK_NONE);
        assert_eq!(locks.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn exclusive_straight_from_shared_leaves_no_trace_when_it_is_refused() {
        let locks = Locks::default();
        let (mut one, mut two) = (Held::default(), Held::default());
        assert_eq!(locks.lock(&mut one, LOCK_SHARED), OK);
        assert_eq!(locks.lock(&mut two, LOCK_SHARED), OK);
        assert_eq!(locks.lock(&mut one, LOCK_EXCLUSIVE), BUSY);
        assert_eq!((one.level(), locks.reserved()), (LOCK_SHARED, false));
        locks.unlock(&mut two, LOCK_NONE);
        assert_eq!(locks.lock(&mut one, LOCK_EXCLUSIVE), OK);
        assert!(locks.reserved());
        assert_eq!(locks.lock(&mut two, LOCK_SHARED), BUSY);
        locks.unlock(&mut one, LOCK_NONE);
        assert_eq!(locks.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn exclusive_is_held_by_one_of_many_threads_at_a_time() {
        let locks = Locks::default();
        let inside = AtomicU64::new(0);
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut held = Held::default();
                    while done.load(Ordering::Relaxed) < 2000 {
                        let got = locks.lock(&mut held, LOCK_SHARED) == OK
                            && locks.lock(&mut held, LOCK_RESERVED) == OK
                            && locks.lock(&mut held, LOCK_EXCLUSIVE) == OK;
                        if got {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            inside.fetch_sub(1, Ordering::SeqCst);
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        locks.unlock(&mut held, LOCK_NONE);
                    }
                });
            }
        });
        assert_eq!(locks.0.load(Ordering::Relaxed), 0);
    }
}

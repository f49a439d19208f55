//! The WAL index of an attached database, in memory of this process: regions of 32 KiB, eight
//! locks, a barrier.
//!
//! SQLite keeps it in a file mapped by every process (`-shm`). Only one process has an attached
//! database, so it is plain memory here, and it is gone when its last user is: the next one finds
//! zeros and reads the WAL, as after a crash.
//!
//! Invariants:
//! - A region never moves and stays until the last connection has unmapped: SQLite keeps pointers
//!   to them.
//! - The index is empty when its first connection joins.
//! - A lock slot holds 0, a number of shared holders, or [`EXCLUSIVE`].
//!
//! Read next: "The WAL-Index File Format" on sqlite.org has the meaning of the regions and of each
//! lock.

use crate::ffi::{self, SHM_REGION};
use parking_lot::Mutex;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

const SLOTS: usize = ffi::SHM_NLOCK as usize;
const EXCLUSIVE: u32 = u32::MAX;

type Region = [AtomicU64; SHM_REGION / 8];

/// A lock slot on a cache line of its own: each reader takes one, the writer another.
#[derive(Default)]
#[repr(align(64))]
struct Slot(AtomicU32);

/// The WAL index of one database.
#[derive(Default)]
pub(crate) struct Index {
    slots: [Slot; SLOTS],
    users: Mutex<Users>,
}

#[derive(Default)]
struct Users {
    connections: usize,
    regions: Vec<Box<Region>>,
}

/// One connection's part in an [`Index`].
#[derive(Debug, Default)]
pub(crate) struct Member {
    joined: bool,
    shared: u8,
    exclusive: u8,
}

impl Member {
    /// Whether it has this slot for itself.
    pub(crate) fn has_exclusive(&self, slot: u32) -> bool {
        self.exclusive & (1 << slot) != 0
    }
}

fn region() -> Box<Region> {
    let words: Vec<AtomicU64> = (0..SHM_REGION / 8).map(|_| AtomicU64::new(0)).collect();
    words.into_boxed_slice().try_into().expect("BUG: a region has as many words as were made")
}

impl Index {
    /// The address of region `number`; null when it is not there and is not to be made.
    pub(crate) fn map(&self, member: &mut Member, number: usize, make: bool) -> *mut u8 {
        let mut users = self.users.lock();
        if !member.joined {
            member.joined = true;
            users.connections += 1;
        }
        if make {
            while users.regions.len() <= number {
                users.regions.push(region());
            }
        }
        // SQLite writes through the pointer: the words are atomic, so that nothing here assumes
        // that they stay the same.
        users.regions.get(number).map_or(std::ptr::null_mut(), |r| r.as_ptr().cast_mut().cast())
    }

    /// `xShmLock`: takes or gives up `n` locks from `first` on; all or none.
    pub(crate) fn lock(&self, member: &mut Member, first: usize, n: usize, flags: c_int) -> c_int {
        if first + n > SLOTS || n == 0 {
            return ffi::IOERR_SHMLOCK;
        }
        let mask = (((1u16 << n) - 1) << first) as u8;
        if flags & ffi::SHM_UNLOCK != 0 {
            self.unlock(member, mask);
            return ffi::OK;
        }
        let slots = &self.slots[first..first + n];
        if flags & ffi::SHM_SHARED != 0 {
            if member.shared & mask != 0 {
                return ffi::OK;
            }
            let slot = &slots[0].0;
            let mut count = slot.load(Ordering::Acquire);
            loop {
                if count >= EXCLUSIVE - 1 {
                    return ffi::BUSY;
                }
                match slot.compare_exchange_weak(
                    count,
                    count + 1,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                ) {
                    Ok(_) => break,
                    Err(now) => count = now,
                }
            }
            member.shared |= mask;
            return ffi::OK;
        }
        if flags != ffi::SHM_LOCK | ffi::SHM_EXCLUSIVE {
            return ffi::IOERR_SHMLOCK;
        }
        for (taken, slot) in slots.iter().enumerate() {
            if slot.0.compare_exchange(0, EXCLUSIVE, Ordering::AcqRel, Ordering::Acquire).is_err() {
                for slot in &slots[..taken] {
                    slot.0.store(0, Ordering::Release);
                }
                return ffi::BUSY;
            }
        }
        member.exclusive |= mask;
        ffi::OK
    }

    fn unlock(&self, member: &mut Member, mask: u8) {
        for (number, slot) in self.slots.iter().enumerate() {
            let bit = 1 << number;
            if mask & bit & member.exclusive != 0 {
                slot.0.store(0, Ordering::Release);
            } else if mask & bit & member.shared != 0 {
                slot.0.fetch_sub(1, Ordering::AcqRel);
            }
        }
        member.exclusive &= !mask;
        member.shared &= !mask;
    }

    /// `xShmBarrier`.
    pub(crate) fn barrier() {
        fence(Ordering::SeqCst);
    }

    /// `xShmUnmap`: gives up locks and membership; with the last member the regions go.
    pub(crate) fn leave(&self, member: &mut Member) {
        self.unlock(member, u8::MAX);
        if std::mem::take(&mut member.joined) {
            let mut users = self.users.lock();
            users.connections -= 1;
            if users.connections == 0 {
                users.regions.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::{BUSY, OK, SHM_EXCLUSIVE, SHM_LOCK, SHM_SHARED, SHM_UNLOCK};

    #[test]
    fn an_exclusive_lock_over_several_slots_is_all_or_nothing() {
        let index = Index::default();
        let (mut one, mut two) = (Member::default(), Member::default());
        assert_eq!(index.lock(&mut one, 5, 1, SHM_LOCK | SHM_SHARED), OK);
        assert_eq!(index.lock(&mut two, 3, 5, SHM_LOCK | SHM_EXCLUSIVE), BUSY);
        assert_eq!(index.lock(&mut one, 3, 1, SHM_LOCK | SHM_EXCLUSIVE), OK);
        index.lock(&mut one, 3, 1, SHM_UNLOCK | SHM_EXCLUSIVE);
        index.lock(&mut one, 5, 1, SHM_UNLOCK | SHM_SHARED);
        assert_eq!(index.lock(&mut two, 3, 5, SHM_LOCK | SHM_EXCLUSIVE), OK);
        assert_eq!(index.lock(&mut one, 7, 1, SHM_LOCK | SHM_SHARED), BUSY);
        index.leave(&mut two);
        assert_eq!(index.lock(&mut one, 7, 1, SHM_LOCK | SHM_SHARED), OK);
    }

    #[test]
    fn a_slot_beyond_the_eighth_is_refused() {
        let index = Index::default();
        let mut one = Member::default();
        assert_ne!(index.lock(&mut one, 7, 2, SHM_LOCK | SHM_EXCLUSIVE), OK);
        assert_eq!(index.lock(&mut one, 0, 8, SHM_LOCK | SHM_EXCLUSIVE), OK);
    }

    #[test]
    fn a_region_stays_where_it_is_and_is_zero_again_for_the_next_first_user() {
        let index = Index::default();
        let (mut one, mut two) = (Member::default(), Member::default());
        assert!(index.map(&mut one, 0, false).is_null());
        let first = index.map(&mut one, 0, true);
        index.users.lock().regions[0][0].store(7, Ordering::Relaxed);
        assert!(!index.map(&mut two, 100, true).is_null());
        assert_eq!(index.map(&mut two, 0, false), first);
        index.leave(&mut one);
        assert_eq!(index.map(&mut two, 0, false), first);
        index.leave(&mut two);
        assert!(index.map(&mut one, 0, false).is_null());
        index.map(&mut one, 0, true);
        assert_eq!(index.users.lock().regions[0][0].load(Ordering::Relaxed), 0);
    }
}

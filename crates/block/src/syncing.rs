//! Who syncs, for whom, and what may be lost when that fails.
//!
//! One sync runs at a time. Whoever calls meanwhile waits for the next one, and all who wait share
//! it. That is needed for more than speed: the kernel reports a failed write-back to one caller of
//! `fdatasync` only, so a second one that ran beside it would be told that all is well.
//!
//! Invariants: a sync answers for a call only if it began after the call; after a failure no call
//! succeeds.

use std::io;
use std::ops::Range;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

/// The syncs of one device.
#[derive(Debug, Default)]
pub(crate) struct Syncing {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// How many syncs have begun.
    begun: u64,
    /// The number of the last good one.
    good: u64,
    running: bool,
    /// Everything written since the last good sync began lies in here.
    unsynced: Option<Range<u64>>,
    failed: Option<Failed>,
}

/// A sync that failed.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    /// What may be lost.
    pub(crate) range: Range<u64>,
    errno: Option<i32>,
}

impl Failed {
    pub(crate) fn source(&self) -> io::Error {
        self.errno.map_or_else(|| Errno::IO.into(), io::Error::from_raw_os_error)
    }
}

impl Syncing {
    /// What a sync that failed left in doubt.
    pub(crate) fn check(&self) -> Result<(), Failed> {
        self.state.lock().failed.clone().map_or(Ok(()), Err)
    }

    /// A write of these bytes has returned. When a sync has failed meanwhile they may be lost too.
    pub(crate) fn written(&self, range: Range<u64>) -> Result<(), Failed> {
        let mut state = self.state.lock();
        if let Some(failed) = &mut state.failed {
            failed.range = around(Some(failed.range.clone()), Some(range)).unwrap_or_default();
            return Err(failed.clone());
        }
        state.unsynced = around(state.unsynced.take(), Some(range));
        Ok(())
    }

    /// Returns when a call of `sync` that began after this one has succeeded.
    pub(crate) fn sync(&self, sync: impl Fn() -> io::Result<()>) -> Result<(), Failed> {
        let mut state = self.state.lock();
        // The one that is running may have begun before a write that this caller made.
        let wanted = state.begun + 1;
        loop {
            if let Some(failed) = &state.failed {
                return Err(failed.clone());
            }
            if state.good >= wanted {
                return Ok(());
            }
            if state.running {
                self.ended.wait(&mut state);
                continue;
            }
            state.begun += 1;
            state.running = true;
            let (number, covered) = (state.begun, state.unsynced.take());
            drop(state);
            let ended = sync();
            state = self.state.lock();
            state.running = false;
            match ended {
                Ok(()) => state.good = number,
                Err(e) => {
                    // What was written meanwhile may have been sent out, and lost, with the rest.
                    let range = around(covered, state.unsynced.take()).unwrap_or_default();
                    state.failed = Some(Failed { range, errno: e.raw_os_error() });
                }
            }
            self.ended.notify_all();
        }
    }
}

/// The smallest range around both.
fn around(one: Option<Range<u64>>, other: Option<Range<u64>>) -> Option<Range<u64>> {
    match (one, other) {
        (Some(one), Some(other)) if one.is_empty() => Some(other),
        (Some(one), Some(other)) => Some(one.start.min(other.start)..one.end.max(other.end)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    #[test]
    fn a_call_is_not_answered_by_a_sync_that_began_before_it_and_callers_share_the_next() {
        let syncing = Syncing::default();
        let (syncs, entered, returned) =
            (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let (let_go, held) = mpsc::channel::<()>();
        let held = Mutex::new(held);
        let first = || {
            syncs.fetch_add(1, Ordering::Relaxed);
            held.lock().recv().map_err(io::Error::other)
        };
        let counted = || {
            syncs.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        let before = std::thread::scope(|scope| {
            scope.spawn(|| syncing.sync(first).unwrap());
            while syncs.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            for _ in 0..4 {
                scope.spawn(|| {
                    entered.fetch_add(1, Ordering::Relaxed);
                    syncing.sync(counted).unwrap();
                    returned.fetch_add(1, Ordering::Relaxed);
                });
            }
            // All four are on their way into the call; give them the time to be in it.
            while entered.load(Ordering::Relaxed) < 4 {
                std::thread::yield_now();
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
            let before = (returned.load(Ordering::Relaxed), syncs.load(Ordering::Relaxed));
            let_go.send(()).unwrap();
            before
        });
        assert_eq!(before, (0, 1), "answered by a sync that began before; or two at a time");
        assert_eq!(syncs.into_inner(), 2, "the four have not shared one");
    }

    #[test]
    fn a_failure_is_told_to_all_who_wait_and_to_all_who_come_later() {
        let syncing = Syncing::default();
        syncing.written(512..1024).unwrap();
        syncing.sync(|| Ok(())).unwrap();
        syncing.written(4096..4608).unwrap();
        let meanwhile = || {
            syncing.written(2048..2560).unwrap();
            Err(Errno::IO.into())
        };
        let failed = syncing.sync(meanwhile).unwrap_err();
        assert_eq!(
            failed.range,
            2048..4608,
            "written since the last good sync, also during this one"
        );
        assert_eq!(failed.source().raw_os_error(), Some(5));
        assert!(syncing.check().is_err());
        let again = syncing.sync(|| panic!("a failed device is not synced again")).unwrap_err();
        assert_eq!(again.range, 2048..4608);
        // A write that was on its way.
        assert_eq!(syncing.written(0..512).unwrap_err().range, 0..4608);
    }
}

//! Bytes that one thread may have on their way to another.

use std::sync::{Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    taken: u64,
    closed: bool,
}

/// A limit of bytes, for which the one who sends waits.
#[derive(Debug)]
pub(super) struct Quota {
    most: u64,
    state: Mutex<State>,
    changed: Condvar,
}

impl Quota {
    pub(super) fn new(most: u64) -> Quota {
        Quota { most, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Takes so many bytes as soon as they fit. What is more than the limit is taken when nothing
    /// else is. False: nobody will give anything back any more.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let Ok(state) = self.state.lock() else { return false };
        let full = |state: &mut State| {
            !state.closed && state.taken > 0 && state.taken.saturating_add(bytes) > self.most
        };
        let Ok(mut state) = self.changed.wait_while(state, full) else { return false };
        state.taken += bytes;
        !state.closed
    }

    /// Gives them back.
    pub(super) fn give(&self, bytes: u64) {
        if let Ok(mut state) = self.state.lock() {
            state.taken -= bytes;
        }
        self.changed.notify_one();
    }

    /// Ends all waiting.
    pub(super) fn close(&self) {
        if let Ok(mut state) = self.state.lock() {
            state.closed = true;
        }
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_waits_and_what_never_fits_goes_alone() {
        let quota = Quota::new(10);
        assert!(quota.take(25));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| quota.take(1));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!waits.is_finished());
            quota.give(25);
            assert!(waits.join().expect("it does not panic"));
            let waits = scope.spawn(|| quota.take(10));
            std::thread::sleep(std::time::Duration::from_millis(20));
            quota.close();
            assert!(!waits.join().expect("it does not panic"));
        });
    }
}

//! A lock that is let go with a plain store.
//!
//! The locks of a file and of a lane are let go right after a fence. A locked instruction there
//! would wait until everything that was sent to the medium has arrived; a plain store does not, so
//! the caller's next work runs meanwhile. Mostly there is one writer; somebody who has to wait
//! looks again and again, then lets others run, then sleeps: the holder may be waiting for room, or
//! have a lower priority, and never run while a real-time thread only yields.
//!
//! Deliberately absent: fairness. Who waits gets the lock as soon as it looks at the right moment.

use crate::medium::prepare_all;
use crate::sync::{self, SpinMutex, SpinMutexGuard};
use std::time::Duration;

/// Looks without a pause, and then looks that let others run in between.
const SPINS: u32 = 200;
const YIELDS: u32 = 100;
const SLEEP: Duration = Duration::from_micros(50);

/// See the module.
#[derive(Default)]
pub(crate) struct Latch<T>(SpinMutex<T>);

impl<T> Latch<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(SpinMutex::new(value))
    }

    /// A hint that it will be locked soon, and what it protects read and written.
    #[inline]
    pub(crate) fn prepare(&self) {
        prepare_all(self);
    }

    #[inline]
    pub(crate) fn lock(&self) -> SpinMutexGuard<'_, T> {
        self.0.try_lock().unwrap_or_else(|| self.wait())
    }

    /// [`Latch::lock`] if nobody has it.
    pub(crate) fn try_lock(&self) -> Option<SpinMutexGuard<'_, T>> {
        self.0.try_lock()
    }

    #[cold]
    fn wait(&self) -> SpinMutexGuard<'_, T> {
        if cfg!(feature = "interleavings") {
            return self.0.lock();
        }
        let mut looks = 0;
        loop {
            // A look that does not write: the line stays with the holder until it is free.
            if !self.0.is_locked()
                && let Some(guard) = self.0.try_lock()
            {
                return guard;
            }
            looks += 1;
            if looks < SPINS {
                sync::spin_loop();
            } else if looks < SPINS + YIELDS {
                sync::yield_now();
            } else {
                sync::sleep(SLEEP);
                // After a sleep some looks without one: a holder that takes turns with itself is
                // free for moments only.
                looks = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Latch;

    #[test]
    fn two_holders_never_meet_and_who_waits_long_gets_it_too() {
        let latch = Latch::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..20_000 {
                        let mut value = latch.lock();
                        let seen = *value;
                        if n % 5000 == 0 {
                            std::thread::sleep(std::time::Duration::from_millis(1));
                        }
                        assert_eq!(*value, seen);
                        *value = seen + 1;
                    }
                });
            }
        });
        assert_eq!(*latch.lock(), 80_000);
    }
}

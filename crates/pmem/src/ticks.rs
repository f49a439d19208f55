//! A clock for code that reads it once every microsecond: the processor's counter, where the kernel
//! itself takes its time from it, and the ordinary clock elsewhere.
//!
//! `Instant::now` waits until every load before it has its bytes (`lfence; rdtsc`), and so takes
//! away what a processor gains by beginning the next request's cache misses early. For statistics
//! the counter may be read a few instructions early or late.
//!
//! What it is not: a time of day, or a clock that may be compared with another's.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::sysfs::{self, SYSFS};

/// A clock.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    began: Instant,
    at: u64,
    counter: bool,
}

impl Ticks {
    /// The counter runs at one speed on all processors if the kernel uses it (the kernel checks
    /// that: `Documentation/virt/kvm/x86/timekeeping.rst`).
    pub fn start() -> Ticks {
        let counter = HAS_COUNTER && sysfs::time_is_counted(Path::new(SYSFS));
        Ticks { began: Instant::now(), at: if counter { counter_now() } else { 0 }, counter }
    }

    /// How many ticks there were until now. A later call may say slightly less than an earlier one
    /// on another processor.
    #[inline]
    pub fn now(&self) -> u64 {
        if self.counter { counter_now() } else { self.began.elapsed().as_nanos() as u64 }
    }

    /// How long a number of ticks is, from their speed since the start. Accurate to a few hundred
    /// nanoseconds for what was measured since then.
    pub fn duration(&self, ticks: u64) -> Duration {
        if !self.counter {
            return Duration::from_nanos(ticks);
        }
        let passed = self.began.elapsed().as_nanos();
        let ticked = u128::from(counter_now().saturating_sub(self.at)).max(1);
        let nanos = passed.saturating_mul(u128::from(ticks)) / ticked;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Whether a number of ticks is certainly shorter than this; no counter is slower than 500 MHz.
    #[inline]
    pub fn certainly_shorter(&self, ticks: u64, than_us: u64) -> bool {
        ticks < than_us.saturating_mul(500)
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
const HAS_COUNTER: bool = true;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
const HAS_COUNTER: bool = false;

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn counter_now() -> u64 {
    // SAFETY: every x86-64 processor has the instruction ("RDTSC", Intel SDM volume 2B); a kernel
    // that forbids it to programs (prctl PR_SET_TSC) is not one that was asked to.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn counter_now() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_tell_how_long_something_took() {
        for counter in [Ticks::start().counter, false] {
            let ticks = Ticks { counter, ..Ticks::start() };
            let (began, first) = (Instant::now(), ticks.now());
            std::thread::sleep(Duration::from_millis(50));
            let (took, second) = (began.elapsed(), ticks.now());
            let told = ticks.duration(second - first);
            // The scheduler may come between the two readings.
            assert!(told >= Duration::from_millis(49), "{counter}: {told:?} of {took:?}");
            assert!(told < took + Duration::from_millis(200), "{counter}: {told:?} of {took:?}");
            assert!(!ticks.certainly_shorter(second - first, 49_000));
            assert!(ticks.certainly_shorter(second - first, 1_000_000_000));
        }
    }

    #[test]
    fn many_ticks_do_not_overflow() {
        let ticks = Ticks::start();
        assert!(ticks.duration(u64::MAX) > Duration::from_secs(1 << 30));
        assert!(ticks.certainly_shorter(0, 1));
    }
}

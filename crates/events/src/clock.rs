//! The clock of wait events: the processor's time stamp counter where it is steady, the monotonic
//! clock elsewhere.
//!
//! The counter's rate is measured once per process, when the first wait is timed, which takes about
//! a millisecond (at most 0.2 s on a machine that is very busy). Making a registry does not touch
//! the clock.
//!
//! Invariant: a difference of two time stamps is never negative; counters that disagree between
//! processors give zero.

use std::sync::OnceLock;

/// The clock and the length of its unit.
#[derive(Debug)]
pub(crate) struct Clock {
    source: quanta::Clock,
    /// Nanoseconds in `2^SCALE_BITS` units: one multiplication and a constant shift per wait.
    scale: u64,
}

/// Makes the rounding error 2^-38 for a counter of 1 to 4 GHz, far below that of the measured rate.
const SCALE_BITS: u32 = 40;

static CLOCK: OnceLock<Clock> = OnceLock::new();

/// The clock of this process, calibrated at the first call.
#[inline]
pub(crate) fn clock() -> &'static Clock {
    CLOCK.get_or_init(Clock::calibrated)
}

/// Measures the rate of the time stamp counter now instead of at the first wait.
///
/// For a program that would rather spend the millisecond at its start. Calling it again does
/// nothing.
pub fn calibrate_clock() {
    let _ = clock();
}

impl Clock {
    #[cold]
    fn calibrated() -> Clock {
        let source = quanta::Clock::new();
        let scale = source.delta_as_nanos(0, 1 << SCALE_BITS);
        Clock { source, scale }
    }

    /// A time stamp in units of the clock, never zero (zero stands for "not started").
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.source.raw().max(1)
    }

    /// Nanoseconds between two time stamps, zero if `end` is before `start`.
    #[inline]
    pub(crate) fn ns_between(&self, start: u64, end: u64) -> u64 {
        let units = end.saturating_sub(start);
        ((u128::from(units) * u128::from(self.scale)) >> SCALE_BITS) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::clock;

    #[test]
    fn ten_milliseconds_are_measured_as_the_monotonic_clock_does() {
        super::calibrate_clock();
        let (from, start) = (Instant::now(), clock().now());
        std::thread::sleep(Duration::from_millis(10));
        let (end, elapsed_ns) = (clock().now(), from.elapsed().as_nanos() as f64);
        let measured_ns = clock().ns_between(start, end) as f64;
        assert!(
            (measured_ns / elapsed_ns - 1.0).abs() < 0.01,
            "{measured_ns} ns against {elapsed_ns} ns"
        );
    }

    #[test]
    fn a_clock_that_runs_backwards_gives_zero() {
        assert_eq!(clock().ns_between(1_000, 999), 0);
    }

    #[test]
    fn a_difference_of_years_does_not_overflow() {
        let ten_years_of_units = 10 * 365 * 86_400 * 1_000_000_000u64;
        assert!(clock().ns_between(0, ten_years_of_units) >= ten_years_of_units / 10);
    }
}

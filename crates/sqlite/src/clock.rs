//! Two clocks of the kernel, by the C library: a transaction looks at one of them, and the standard
//! library's costs it four times as much.
//!
//! Not by rustix, which finds the kernel's functions in the process's own auxiliary vector:
//! valgrind gives the program another one, and the program would end there. A border module, with
//! `unsafe` for one function of the C library. Invariant: none of these calls waits.

use std::ffi::c_int;

const CLOCK_MONOTONIC_COARSE: c_int = 6;
const CLOCK_BOOTTIME: c_int = 7;

/// `struct timespec` of 64-bit Linux.
#[repr(C)]
#[derive(Default)]
struct Timespec {
    tv_sec: i64,
    tv_nsec: i64,
}

unsafe extern "C" {
    fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int;
}

fn read(clock: c_int) -> (u64, u64) {
    let mut time = Timespec::default();
    // SAFETY: `time` is a `struct timespec` of 64-bit Linux and outlives the call, which writes
    // nothing else. It fails for clocks that the kernel does not have only; then the time stays 0.
    let _ = unsafe { clock_gettime(clock, &raw mut time) };
    (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned())
}

/// Milliseconds since some instant, some of them late.
#[inline]
pub(crate) fn coarse_ms() -> u64 {
    let (seconds, ns) = read(CLOCK_MONOTONIC_COARSE);
    seconds * 1000 + ns / 1_000_000
}

/// Nanoseconds since the machine was started, its sleep counted too.
pub(crate) fn boot_ns() -> u64 {
    let (seconds, ns) = read(CLOCK_BOOTTIME);
    seconds.saturating_mul(1_000_000_000).saturating_add(ns)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_clocks_go_on() {
        let (coarse, boot) = (super::coarse_ms(), super::boot_ns());
        assert!(coarse > 0 && boot > 0);
        while super::coarse_ms() == coarse {
            std::thread::yield_now();
        }
        assert!(super::coarse_ms() > coarse && super::boot_ns() > boot);
    }
}

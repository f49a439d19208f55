//! Timing: batches for medians, single operations by the time stamp counter for percentiles, one
//! thread or two.
//!
//! A clock read around every operation would be part of what it measures, so medians come from
//! batches of [`BATCH`] operations (more where some operations pay for many) without a clock
//! inside. Percentiles need single operations: there the clock is read once between two of them,
//! for every peer alike.
//!
//! Deliberately absent: statistics (`report.rs`), and any knowledge of what is timed.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::report::{Report, time_batches};

/// Operations timed together for a median.
pub(crate) const BATCH: usize = 32;

/// Untimed operations before each round of each row: at most so long, at most so many.
pub(crate) const WARM_UP: Duration = Duration::from_millis(15);
const WARM_UP_OPERATIONS: usize = 100_000;

/// How often, and by which clock.
#[derive(Clone, Copy)]
pub(crate) struct Timing {
    /// Operations of one round of one row.
    pub(crate) operations: usize,
    /// Operations timed together.
    batch: usize,
    ns_per_tick: f64,
}

/// What one round of one row gave, in nanoseconds per operation.
#[derive(Default)]
struct Samples {
    batches: Vec<f64>,
    singles: Vec<f64>,
}

impl Timing {
    /// Measures the rate of the time stamp counter.
    pub(crate) fn calibrated(operations: usize) -> Timing {
        let (start, from) = (Instant::now(), ticks());
        std::thread::sleep(Duration::from_millis(50));
        let (elapsed, to) = (start.elapsed(), ticks());
        let operations = operations.next_multiple_of(BATCH);
        Timing {
            operations,
            batch: BATCH,
            ns_per_tick: elapsed.as_nanos() as f64 / to.wrapping_sub(from).max(1) as f64,
        }
    }

    /// The same with more operations.
    pub(crate) fn times(self, factor: usize) -> Timing {
        Timing { operations: self.operations * factor, ..self }
    }

    /// The same with more operations timed together: with what one of them does for all.
    pub(crate) fn in_batches_of(self, batch: usize) -> Timing {
        Timing { batch, operations: self.operations.next_multiple_of(batch), ..self }
    }

    /// One round of one row on this thread. Gives its median.
    pub(crate) fn one(
        &self,
        report: &mut Report,
        group: &str,
        name: &str,
        step: impl FnMut(usize),
    ) -> f64 {
        let samples = self.samples(self.operations, step);
        let median = median(samples.batches.clone());
        samples.into_report(report, group, name);
        median
    }

    /// One round of one row on a thread for each of `steps`, all at once; the figures are per
    /// operation and thread.
    pub(crate) fn together<F: FnMut(usize) + Send>(
        &self,
        report: &mut Report,
        group: &str,
        name: &str,
        steps: &mut [F],
    ) {
        let (barrier, running) = (Barrier::new(steps.len()), AtomicUsize::new(steps.len()));
        let all: Vec<Samples> = std::thread::scope(|scope| {
            let threads: Vec<_> = steps
                .iter_mut()
                .map(|step| {
                    let (barrier, running) = (&barrier, &running);
                    scope.spawn(move || {
                        barrier.wait();
                        let samples = self.samples(self.operations, &mut *step);
                        running.fetch_sub(1, Ordering::AcqRel);
                        // Goes on untimed, so that no thread is ever timed alone.
                        let mut index = self.operations;
                        while running.load(Ordering::Acquire) > 0 {
                            step(index);
                            index += 1;
                        }
                        samples
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a measuring thread panicked"))
                .collect()
        });
        let mut sum = Samples::default();
        for samples in all {
            sum.batches.extend(samples.batches);
            sum.singles.extend(samples.singles);
        }
        sum.into_report(report, group, name);
    }

    fn samples(&self, operations: usize, mut step: impl FnMut(usize)) -> Samples {
        // The rows before have taken the CPU's caches: every row, peers too, first has its own maps
        // and page translations there again.
        let from = Instant::now();
        let mut index = 0;
        while index < operations / 16 || (from.elapsed() < WARM_UP && index < WARM_UP_OPERATIONS) {
            step(index);
            index += 1;
        }
        let batches = time_batches(operations, self.batch, &mut step);
        let mut singles = Vec::with_capacity(operations / 2);
        let mut before = ticks();
        for index in 0..operations / 2 {
            step(index);
            let now = ticks();
            singles.push(now.wrapping_sub(before) as f64 * self.ns_per_tick);
            before = now;
        }
        Samples { batches, singles }
    }
}

impl Samples {
    fn into_report(self, report: &mut Report, group: &str, name: &str) {
        report.run(group, name, self.batches);
        report.run(&singles_of(group), name, self.singles);
    }
}

/// The middle one; of nothing, zero.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The table with the percentiles of a group.
fn singles_of(group: &str) -> String {
    format!("{group}: single")
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux lets programs use it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    use std::sync::LazyLock;
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGAN.elapsed().as_nanos() as u64
}

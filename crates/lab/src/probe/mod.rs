//! Probe: what storage is here, how it is reached, and how fast it is.
//!
//! What there is comes from the kernel ([`found`]); how fast it is, from doing it: reads, durable
//! writes and a mixture of both, at 512 B, 4 KiB and 512 KiB, one at a time or as many as [`Queue`]
//! says. Files are measured here (`file.rs`); mappings are measured by the command line, which may
//! know how persistent memory is mapped, with the same clock and the same sizes ([`timed`]).
//!
//! **Invariants**: each figure says how it was made (direct, through the page cache, mapped); what
//! is made for measuring is removed.
//! **Deliberately absent**: asynchronous I/O. An operation that is outstanding is a thread that
//! waits for it; a device cannot tell.

pub mod beside;
pub mod file;
pub mod found;

use std::sync::Barrier;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tiersmith_awr::events::Histogram;

use crate::error::Error;

/// The sizes measured.
pub const SIZES: [usize; 3] = [512, 4096, 512 << 10];
/// Reads of a hundred operations of the mixture, if nobody says otherwise.
pub const MIXED_READS_PCT: u64 = 70;
/// Bytes of the file or mapping that is measured.
pub const AREA_BYTES: u64 = 64 << 20;
/// Operations between two looks at the clock that ends a measurement.
const BATCH_MAX: u64 = 64;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// A read.
    Read,
    /// A write that is durable when it ends.
    Write,
    /// Seven reads to three durable writes.
    Mixed,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 3] = [Operation::Read, Operation::Write, Operation::Mixed];

    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write, durable",
            Operation::Mixed => "mixed",
        }
    }

    /// Whether the `n`-th operation is a read; of the mixture, reads and writes alternate as evenly
    /// as they can, the same every time.
    pub fn reads(self, n: u64, reads_pct: u64) -> bool {
        match self {
            Operation::Read => true,
            Operation::Write => false,
            Operation::Mixed => n.wrapping_mul(reads_pct) % 100 < reads_pct,
        }
    }
}

/// How many operations are under way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Threads.
    pub threads: u32,
    /// Operations on a file that each thread has outstanding; on a mapping it is one.
    pub depth: u32,
    /// Reads of a hundred operations of the mixture.
    pub reads_pct: u64,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { threads: 1, depth: 1, reads_pct: MIXED_READS_PCT }
    }
}

impl Queue {
    /// Whether it can be measured.
    ///
    /// # Errors
    /// [`Error::Setting`]: what cannot.
    pub fn check(&self) -> crate::Result<()> {
        for (setting, value, least, most) in [
            ("threads", u64::from(self.threads), 1, 32),
            ("depth", u64::from(self.depth), 1, 64),
            ("mix", self.reads_pct, 1, 99),
        ] {
            if !(least..=most).contains(&value) {
                let reason = format!("give {least} to {most}");
                return Err(Error::Setting { setting, value: value.to_string(), reason });
            }
        }
        Ok(())
    }

    /// Threads that wait for operations on files.
    fn waiting(&self) -> u32 {
        self.threads * self.depth
    }
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// What was done.
    pub operation: Operation,
    /// Bytes of each.
    pub size_bytes: u64,
    /// How: `direct I/O`, `page cache and fdatasync`, `mapped, non-temporal stores and a fence`,
    /// ...
    pub how: String,
    /// How many were done.
    pub count: u64,
    /// Mean time of one.
    pub mean_ns: f64,
    /// Median, within 1/128.
    pub median_ns: u64,
    /// 95 of 100 took no longer, within 1/128.
    pub p95_ns: u64,
    /// 99 of 100 took no longer, within 1/128.
    pub p99_ns: u64,
    /// 999 of 1000 took no longer, within 1/128.
    pub p999_ns: u64,
    /// Operations under way at once.
    pub at_once: u32,
    /// Operations in a second.
    pub per_s: f64,
    /// Bytes moved in a second.
    pub bytes_per_s: f64,
}

/// A place that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// The directory or device.
    pub path: String,
    /// What it is on.
    pub is_on: String,
    /// `disk`, `fsdax`, `devdax`, `memory`, ... as in the glossary's access modes where one fits.
    pub access_mode: String,
    /// Contents survive a power cut, as far as the kernel tells.
    pub persistent: bool,
    /// What was found when it was opened, and what a reader must know.
    pub notes: Vec<String>,
    /// The figures.
    pub measurements: Vec<Measurement>,
    /// What fio found beside them, if it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross_check: Option<beside::Beside>,
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct What<'a> {
    /// What is done.
    pub operation: Operation,
    /// Bytes of each.
    pub size_bytes: usize,
    /// How, for people.
    pub how: &'a str,
    /// Threads that do it.
    pub at_once: u32,
    /// How long, in seconds.
    pub seconds: f64,
}

/// Does the operations that `make` gives to each thread, timing every one; a tenth of the time
/// before is not counted. Each is given its number.
///
/// # Errors
/// What an operation fails with.
pub fn timed<E: Send, F: FnMut(u64) -> Result<(), E>>(
    what: &What<'_>,
    make: impl Fn(u32) -> F + Sync,
) -> Result<Measurement, E> {
    let start = Barrier::new(what.at_once as usize);
    let (make, start) = (&make, &start);
    let done: Vec<Result<Histogram, E>> = std::thread::scope(|scope| {
        let worker = |number| {
            scope.spawn(move || {
                let each = make(number);
                start.wait();
                one(what.seconds, each)
            })
        };
        let threads: Vec<_> = (0..what.at_once).map(worker).collect();
        let joined = threads.into_iter().filter_map(|thread| thread.join().ok());
        joined.collect()
    });
    let (mut all, mut per_s) = (Histogram::new(), 0.0);
    for histogram in done {
        let histogram = histogram?;
        per_s += histogram.mean_ns().filter(|mean| *mean > 0.0).map_or(0.0, |mean| 1e9 / mean);
        all.merge(&histogram);
    }
    let quantile = |q| all.quantile_ns(q).unwrap_or(0);
    Ok(Measurement {
        operation: what.operation,
        size_bytes: what.size_bytes as u64,
        how: what.how.to_owned(),
        count: all.count(),
        mean_ns: all.mean_ns().unwrap_or(0.0),
        median_ns: quantile(0.5),
        p95_ns: quantile(0.95),
        p99_ns: quantile(0.99),
        p999_ns: quantile(0.999),
        at_once: what.at_once,
        per_s,
        bytes_per_s: per_s * what.size_bytes as f64,
    })
}

/// What one thread does.
fn one<E>(seconds: f64, mut each: impl FnMut(u64) -> Result<(), E>) -> Result<Histogram, E> {
    let mut histogram = Histogram::new();
    let mut n = 0;
    for (share, counted) in [(0.1, false), (1.0, true)] {
        let until = Instant::now() + Duration::from_secs_f64(seconds * share);
        let mut now = Instant::now();
        while now < until {
            for _ in 0..BATCH_MAX {
                let start = Instant::now();
                each(n)?;
                now = Instant::now();
                n += 1;
                if counted {
                    histogram.record((now - start).as_nanos().min(u128::from(u64::MAX)) as u64);
                }
                if now >= until {
                    break;
                }
            }
        }
    }
    Ok(histogram)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mixture_has_as_many_reads_as_it_says_and_spreads_them() {
        for pct in [1, 30, 50, 70, 99] {
            let reads = |n| Operation::Mixed.reads(n, pct);
            assert_eq!((0..1000).filter(|n| reads(*n)).count() as u64, pct * 10);
        }
        let seven = |n| Operation::Mixed.reads(n, 70);
        assert!((0..1000).all(|n| seven(n) || seven(n + 1) || seven(n + 2)));
        assert!(
            (0..100).all(|n| Operation::Mixed.reads(n, 50) != Operation::Mixed.reads(n + 1, 50))
        );
        assert!(Operation::Read.reads(7, 1) && !Operation::Write.reads(0, 99));
    }

    fn what(operation: Operation, at_once: u32) -> What<'static> {
        What { operation, size_bytes: 4096, how: "test", at_once, seconds: 0.05 }
    }

    #[test]
    fn a_measurement_counts_every_operation_and_its_bytes() {
        let measured = timed(&what(Operation::Read, 1), |_| {
            |_| {
                std::thread::sleep(Duration::from_millis(1));
                Ok::<(), ()>(())
            }
        })
        .unwrap();
        assert!((1..=50).contains(&measured.count), "{measured:?}");
        assert!(measured.median_ns >= 1_000_000 && measured.p99_ns >= measured.median_ns);
        assert!(measured.p95_ns <= measured.p99_ns && measured.p99_ns <= measured.p999_ns);
        // Of the whole time, in which a busy machine does other things between two operations.
        let rate = 4096.0 / (measured.mean_ns / 1e9);
        assert!(measured.bytes_per_s > 0.0 && measured.bytes_per_s < 1.01 * rate, "{measured:?}");
    }

    #[test]
    fn several_threads_do_more_of_what_waits_and_each_operation_takes_as_long() {
        let pause = |_| {
            |_| {
                std::thread::sleep(Duration::from_millis(2));
                Ok::<(), ()>(())
            }
        };
        let (alone, eight) = (
            timed(&what(Operation::Read, 1), pause).unwrap(),
            timed(&what(Operation::Read, 8), pause).unwrap(),
        );
        assert_eq!((alone.at_once, eight.at_once), (1, 8));
        assert!(eight.per_s > 3.0 * alone.per_s, "{alone:?} {eight:?}");
        assert!(eight.median_ns >= 2_000_000 && eight.count > alone.count, "{eight:?}");
    }

    #[test]
    fn an_operation_that_fails_ends_the_measurement() {
        assert_eq!(timed(&what(Operation::Write, 2), |_| |_| Err("no")), Err("no"));
    }

    #[test]
    fn queues_out_of_range_are_refused_by_name() {
        Queue::default().check().unwrap();
        for (queue, name) in [
            (Queue { threads: 0, ..Queue::default() }, "threads"),
            (Queue { depth: 65, ..Queue::default() }, "depth"),
            (Queue { reads_pct: 100, ..Queue::default() }, "mix"),
        ] {
            let refused = queue.check().unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
        }
    }
}

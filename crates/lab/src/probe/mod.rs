//! Probe: what storage is here, how it is reached, and how fast it is.
//!
//! What there is comes from the kernel ([`found`]); how fast it is, from doing it: reads, durable
//! writes and a mixture of both, at 512 B, 4 KiB and 512 KiB, one at a time. Files are measured
//! here (`file.rs`); mappings are measured by the command line, which may know how persistent
//! memory is mapped, with the same clock and the same sizes ([`timed`]).
//!
//! **Invariants**: each figure says how it was made (direct, through the page cache, mapped); what
//! is made for measuring is removed.
//! **Deliberately absent**: queues. One operation at a time is what a commit waits for; a device
//! that likes many at once does better.

pub mod file;
pub mod found;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tiersmith_awr::events::Histogram;

/// The sizes measured.
pub const SIZES: [usize; 3] = [512, 4096, 512 << 10];
/// Reads of a hundred operations of the mixture.
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
            Operation::Mixed => "mixed 70/30",
        }
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
    /// 99 of 100 took no longer, within 1/128.
    pub p99_ns: u64,
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
}

/// Does `each` for `seconds`, timing every one; a tenth of the time before is not counted. `each`
/// is given the number of the operation.
///
/// # Errors
/// What `each` fails with.
pub fn timed<E>(
    operation: Operation,
    size_bytes: usize,
    how: &str,
    seconds: f64,
    mut each: impl FnMut(u64) -> Result<(), E>,
) -> Result<Measurement, E> {
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
    let total_s = histogram.total_ns() as f64 / 1e9;
    Ok(Measurement {
        operation,
        size_bytes: size_bytes as u64,
        how: how.to_owned(),
        count: histogram.count(),
        mean_ns: histogram.mean_ns().unwrap_or(0.0),
        median_ns: histogram.quantile_ns(0.5).unwrap_or(0),
        p99_ns: histogram.quantile_ns(0.99).unwrap_or(0),
        bytes_per_s: if total_s > 0.0 {
            (histogram.count() * size_bytes as u64) as f64 / total_s
        } else {
            0.0
        },
    })
}

/// Whether the `n`-th operation of the mixture is a read: spread evenly, the same every time.
pub fn is_read(n: u64) -> bool {
    // 7 and 10 have no common divisor, so that reads and writes alternate as evenly as they can.
    n * MIXED_READS_PCT % 100 < MIXED_READS_PCT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seven_of_ten_operations_of_the_mixture_are_reads() {
        assert_eq!((0..1000).filter(|n| is_read(*n)).count(), 700);
        assert!((0..1000).all(|n| is_read(n) || is_read(n + 1) || is_read(n + 2)));
    }

    #[test]
    fn a_measurement_counts_every_operation_and_its_bytes() {
        let measured = timed(Operation::Read, 4096, "test", 0.05, |_| {
            std::thread::sleep(Duration::from_millis(1));
            Ok::<(), ()>(())
        })
        .unwrap();
        assert!((1..=50).contains(&measured.count), "{measured:?}");
        assert!(measured.median_ns >= 1_000_000 && measured.p99_ns >= measured.median_ns);
        // Of the whole time, in which a busy machine does other things between two operations.
        let rate = 4096.0 / (measured.mean_ns / 1e9);
        assert!(measured.bytes_per_s > 0.0 && measured.bytes_per_s < 1.01 * rate, "{measured:?}");
    }

    #[test]
    fn an_operation_that_fails_ends_the_measurement() {
        assert_eq!(timed(Operation::Write, 1, "test", 1.0, |_| Err("no")), Err("no"));
    }
}

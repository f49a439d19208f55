//! A tier on flash against its own disk: `cargo bench -p tiersmith-store --bench flash -- [--quick]
//! [DIR]`.
//!
//! - `durable_write_over_fio`: a write of 8 KiB and its sync, over `pwrite` and `fdatasync` of 8
//!   KiB in a file of the same size that was written in full, as fio's `--fdatasync=1` does it.
//!   With one thread and with eight.
//! - `hit_over_device_read`: a read of 8 KiB from the tier, over `pread` of as much from such a
//!   file; both from the page cache.
//!
//! Both sides take turns, in rounds, and the medians of the rounds are compared. The disk is the
//! one of DIR, or of the build's directory.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

use std::fs::File as Plain;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tiersmith_store::{AttachedHome, File, Medium, OpenMode, Options, Profile, TierSpec, attach};

const BLOCK: usize = 8192;
const BLOCKS: u64 = 2048;
const THREADS: [u64; 2] = [1, 8];

/// A home with one file of so many blocks in a tier on flash, and a plain file as large.
struct Subject {
    _home: AttachedHome,
    tiered: File,
    plain: Plain,
}

impl Subject {
    fn make(dir: &Path) -> Self {
        let home = dir.join("home");
        std::fs::create_dir(&home).unwrap();
        let text =
            "description = \"a benchmark\"\n[default]\nclass = \"data\"\nblock_size = 8192\n";
        let options =
            Options { profile: Some(Profile::parse("bench", text).unwrap()), ..Options::default() };
        let spec = TierSpec::new("fast", dir.join("tier"), Medium::Flash, 128 << 20);
        let home = attach(&home, &[spec], options).unwrap();
        let tiered = home.open("data", OpenMode::CREATE).unwrap();
        let plain = Plain::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(dir.join("plain"))
            .unwrap();
        let bytes = [7; BLOCK];
        for n in 0..BLOCKS {
            tiered.write(n * BLOCK as u64, &bytes).unwrap();
            plain.write_all_at(&bytes, n * BLOCK as u64).unwrap();
        }
        tiered.sync().unwrap();
        plain.sync_all().unwrap();
        Self { _home: home, tiered, plain }
    }

    fn durable_write(&self, tiered: bool, at: u64, bytes: &[u8]) {
        if tiered {
            self.tiered.write(at, bytes).unwrap();
            self.tiered.sync().unwrap();
        } else {
            self.plain.write_all_at(bytes, at).unwrap();
            self.plain.sync_data().unwrap();
        }
    }

    fn read(&self, tiered: bool, at: u64, bytes: &mut [u8]) {
        if tiered {
            assert_eq!(self.tiered.read(at, bytes).unwrap(), bytes.len());
        } else {
            self.plain.read_exact_at(bytes, at).unwrap();
        }
    }
}

/// The offsets of random blocks, the same in every run.
fn offset(thread: u64, n: u64) -> u64 {
    let x = (thread << 32 | n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x >> 20) % BLOCKS * BLOCK as u64
}

/// What one of `count` operations takes in each of `threads`.
fn each(threads: u64, count: u64, work: impl Fn(u64, u64) + Sync) -> Duration {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || (0..count).for_each(|n| work(thread, n)));
        }
    });
    start.elapsed() / u32::try_from(count).unwrap()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Compares the tier with the plain file.
fn compare(name: &str, rounds: usize, work: impl Fn(bool) -> Duration) {
    let (mut tiered, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        tiered.push(work(true));
        plain.push(work(false));
    }
    let (tiered, plain) = (median(tiered), median(plain));
    let ratio = tiered.as_secs_f64() / plain.as_secs_f64();
    println!("{name}: {ratio:.2} ({tiered:.1?} in the tier, {plain:.1?} in a plain file)");
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let quick = given.iter().any(|word| word == "--quick");
    let below = given.iter().find(|word| !word.starts_with('-')).map(PathBuf::from);
    let below = below.unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")));
    let dir = tempfile::tempdir_in(below).unwrap();
    let subject = Subject::make(dir.path());
    let (rounds, count) = if quick { (7, 40) } else { (15, 200) };
    let bytes = [9; BLOCK];
    for threads in THREADS {
        compare(&format!("durable_write_over_fio, {threads} threads"), rounds, |tiered| {
            each(threads, count, |thread, n| {
                subject.durable_write(tiered, offset(thread, n), &bytes)
            })
        });
    }
    compare("hit_over_device_read", rounds, |tiered| {
        each(1, count * 100, |thread, n| subject.read(tiered, offset(thread, n), &mut [0; BLOCK]))
    });
}

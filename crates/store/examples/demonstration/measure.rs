//! The load, the same on both sides: random overwrites, redo appends, random reads, one thread,
//! each operation timed alone.
//!
//! Each write is followed by what makes it durable: `fdatasync` on the plain files,
//! [`tiersmith_store::File::sync`] on the attached home (where the write is durable already, and a
//! program would call it all the same).
//!
//! Invariants: both sides see the same offsets in the same order (same seed); the time of filling
//! the buffer is not counted; the first tenth of the time is not counted. Every word of a block is
//! the number of its write, so that a mixture of two would show.
//!
//! Deliberately absent: threads, and reads from a disk (the plain files fit the page cache; the
//! output says so).

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::IsTerminal;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use tiersmith_store::{AttachedHome, OpenMode};

use crate::Result;
use crate::place::{BLOCK, DATA, Place, RECORD, REDO};

/// More samples than this are not kept; the figure then ends early.
const SAMPLES_MAX: usize = 8_000_000;

/// What was measured for one operation.
pub(crate) struct Figure {
    pub(crate) operation: &'static str,
    /// Nanoseconds, in the order of time.
    samples: Vec<u32>,
    sorted: Vec<u32>,
}

impl Figure {
    fn new(operation: &'static str, samples: Vec<u32>) -> Figure {
        let mut sorted = samples.clone();
        sorted.sort_unstable();
        Figure { operation, samples, sorted }
    }

    pub(crate) fn count(&self) -> usize {
        self.samples.len()
    }

    pub(crate) fn mean_ns(&self) -> f64 {
        let sum: u64 = self.samples.iter().map(|ns| u64::from(*ns)).sum();
        sum as f64 / self.count().max(1) as f64
    }

    /// The smallest sample that at least this share of all samples does not exceed.
    pub(crate) fn quantile_ns(&self, share: f64) -> f64 {
        let place = (share * self.sorted.len() as f64).ceil() as usize;
        self.sorted.get(place.saturating_sub(1)).map_or(0.0, |ns| f64::from(*ns))
    }

    pub(crate) fn max_ns(&self) -> f64 {
        self.sorted.last().map_or(0.0, |ns| f64::from(*ns))
    }

    /// Why the figure should not be trusted, if there is a reason.
    pub(crate) fn doubt(&self) -> Option<String> {
        if self.count() < 100 {
            return Some(format!("only {} samples", self.count()));
        }
        let third = self.count() / 3;
        let medians: Vec<u32> = (0..3)
            .map(|n| {
                let mut part = self.samples[n * third..(n + 1) * third].to_vec();
                part.sort_unstable();
                part[third / 2]
            })
            .collect();
        let (least, most) = (medians.iter().min()?, medians.iter().max()?);
        (f64::from(*most) > 1.25 * f64::from(*least)).then(|| {
            "its first, second and last third disagree by more than a quarter: another \
                      load on the machine?"
                .into()
        })
    }
}

/// The files of the load, whichever way they are reached.
pub(crate) trait Files {
    /// Writes a data block and makes it durable.
    fn overwrite(&self, block: u64, bytes: &[u8]) -> Result<()>;
    /// Writes a redo record and makes it durable.
    fn append(&self, record: u64, bytes: &[u8]) -> Result<()>;
    /// Reads a data block.
    fn read(&self, block: u64, into: &mut [u8]) -> Result<()>;
}

/// Plain files.
pub(crate) struct Plain {
    data: File,
    redo: File,
}

impl Plain {
    pub(crate) fn open(place: &Place) -> Result<Plain> {
        let open = |name| OpenOptions::new().read(true).write(true).open(place.plain.join(name));
        Ok(Plain { data: open(DATA)?, redo: open(REDO)? })
    }
}

impl Files for Plain {
    fn overwrite(&self, block: u64, bytes: &[u8]) -> Result<()> {
        self.data.write_all_at(bytes, block * BLOCK as u64)?;
        Ok(self.data.sync_data()?)
    }

    fn append(&self, record: u64, bytes: &[u8]) -> Result<()> {
        self.redo.write_all_at(bytes, record * RECORD as u64)?;
        Ok(self.redo.sync_data()?)
    }

    fn read(&self, block: u64, into: &mut [u8]) -> Result<()> {
        Ok(self.data.read_exact_at(into, block * BLOCK as u64)?)
    }
}

/// Files of an attached home.
pub(crate) struct Attached {
    pub(crate) data: tiersmith_store::File,
    pub(crate) redo: tiersmith_store::File,
}

impl Attached {
    pub(crate) fn open(home: &AttachedHome) -> Result<Attached> {
        Ok(Attached {
            data: home.open(DATA, OpenMode::WRITE)?,
            redo: home.open(REDO, OpenMode::WRITE)?,
        })
    }
}

impl Files for Attached {
    fn overwrite(&self, block: u64, bytes: &[u8]) -> Result<()> {
        self.data.write(block * BLOCK as u64, bytes)?;
        Ok(self.data.sync()?)
    }

    fn append(&self, record: u64, bytes: &[u8]) -> Result<()> {
        self.redo.write(record * RECORD as u64, bytes)?;
        Ok(self.redo.sync()?)
    }

    fn read(&self, block: u64, into: &mut [u8]) -> Result<()> {
        let got = self.data.read(block * BLOCK as u64, into)?;
        if got == into.len() {
            Ok(())
        } else {
            Err(format!("read {got} of {} bytes of block {block}", into.len()).into())
        }
    }
}

/// Fills `bytes` with the word `n`.
pub(crate) fn fill(bytes: &mut [u8], n: u64) {
    for word in bytes.chunks_exact_mut(8) {
        word.copy_from_slice(&n.to_le_bytes());
    }
}

/// Says on a terminal what is going on.
pub(crate) fn progress(what: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{what}");
    }
}

/// The three figures of one side.
pub(crate) fn figures(
    files: &impl Files,
    place: &Place,
    seconds: f64,
    side: &str,
) -> Result<Vec<Figure>> {
    let (blocks, records) = (place.sizes.data / BLOCK as u64, place.sizes.redo / RECORD as u64);
    let mut random = fastrand::Rng::with_seed(8);
    let mut block = vec![0; BLOCK];
    let mut record = vec![0; RECORD];
    progress(&format!("{side}: overwrites"));
    let overwrites = timed("8 KiB random overwrite, durable", seconds, |n| {
        fill(&mut block, n + 1);
        let to = random.u64(0..blocks);
        let start = Instant::now();
        files.overwrite(to, &block)?;
        Ok(start.elapsed())
    })?;
    progress(&format!("{side}: redo appends"));
    let appends = timed("512 B redo append, durable", seconds, |n| {
        fill(&mut record, n + 1);
        let start = Instant::now();
        files.append(n % records, &record)?;
        Ok(start.elapsed())
    })?;
    progress(&format!("{side}: reads"));
    let reads = timed("8 KiB random read", seconds, |_| {
        let from = random.u64(0..blocks);
        let start = Instant::now();
        files.read(from, &mut block)?;
        let took = start.elapsed();
        black_box(&block);
        Ok(took)
    })?;
    progress("");
    Ok(vec![overwrites, appends, reads])
}

/// Reads that borrow the block where it lies in the tier; plain files have nothing like it.
pub(crate) fn zero_copy(files: &Attached, place: &Place, seconds: f64) -> Result<Figure> {
    let blocks = place.sizes.data / BLOCK as u64;
    let mut random = fastrand::Rng::with_seed(9);
    progress("attached home: zero-copy reads");
    let figure = timed("8 KiB random read, zero-copy", seconds, |_| {
        let from = random.u64(0..blocks);
        let start = Instant::now();
        let block = files.data.read_ref(from * BLOCK as u64);
        // One word, so that something of the block is read; a program would go on in place.
        black_box(block.as_ref().map(|b| b[0]));
        let took = start.elapsed();
        drop(block);
        Ok(took)
    });
    progress("");
    figure
}

/// Does `operation` for `seconds`, after a tenth of that that is not counted.
fn timed(
    operation: &'static str,
    seconds: f64,
    mut each: impl FnMut(u64) -> Result<Duration>,
) -> Result<Figure> {
    let mut samples: Vec<u32> = Vec::with_capacity(1 << 20);
    let mut n = 0;
    for (share, counted) in [(0.1, false), (1.0, true)] {
        let until = Instant::now() + Duration::from_secs_f64(seconds * share);
        while Instant::now() < until && samples.len() < SAMPLES_MAX {
            let took = each(n)?;
            if counted {
                samples.push(u32::try_from(took.as_nanos()).unwrap_or(u32::MAX));
            }
            n += 1;
        }
    }
    Ok(Figure::new(operation, samples))
}

/// What reading the clock twice costs by itself: it is in every sample.
pub(crate) fn clock_ns() -> f64 {
    let samples: Vec<u32> = (0..10_000)
        .map(|_| Instant::now().elapsed().as_nanos().min(u128::from(u32::MAX)) as u32)
        .collect();
    Figure::new("clock", samples).quantile_ns(0.5)
}

//! Overwrites of one block and batches of two, by one thread and two; and what recording their wait
//! events costs.

use std::path::Path;

use tiersmith_store::{File, OpenMode};

use crate::report::Report;
use crate::subject::{Subject, touch};
use crate::timing::{Timing, median};
use crate::work::{Payload, Walk};
use crate::{BLK, Bench, DATA, Failed, RAW, SECOND, STORE};

/// More than a quarter of the tier stays free, else the background destages.
const TIER: u64 = 896 << 20;
const TWO_FILES: &str = "store, a file each";
const BATCH: &str = "batch of 2 x 4 KiB";
const EVENTS: &str = "8 KiB overwrite, wait events";
const RECORDED: &str = "store, recorded";
const NOT_RECORDED: &str = "store, not recorded";

/// Blocks in random order through `write`.
fn stepper(
    write: impl Fn(u64, &[u8]),
    block: usize,
    range: std::ops::Range<u32>,
) -> impl FnMut(usize) {
    let (mut walk, mut payload) = (Walk::new(range), Payload::new(block));
    move |_| write(walk.next() * block as u64, payload.next())
}

/// A writer per thread, each with its half of the blocks.
fn halves<W: Fn(u64, &[u8])>(
    write: impl Fn() -> W,
    block: usize,
    blocks: u32,
) -> [impl FnMut(usize); 2] {
    [stepper(write(), block, 0..blocks / 2), stepper(write(), block, blocks / 2..blocks)]
}

fn into_store(file: &File) -> impl Fn(u64, &[u8]) {
    |at, data| file.write(at, data).expect("a write to the store failed")
}

/// The tables of one block size.
pub(crate) fn overwrites(report: &mut Report, bench: &Bench, kib: usize) -> Result<(), Failed> {
    let subject = Subject::new(&bench.scratch, &format!("data{kib}"), (kib << 10) as u32, TIER)?;
    let pool = bench.scratch.fast("pool");
    rounds(report, bench, kib, &subject, &pool)?;
    if bench.library.is_some() {
        std::fs::remove_file(&pool)?;
    }
    if kib == 8 {
        events(report, bench.timing, &subject)?;
    }
    std::fs::remove_file(subject.member())?;
    Ok(())
}

fn rounds(
    report: &mut Report,
    bench: &Bench,
    kib: usize,
    subject: &Subject,
    pool_path: &Path,
) -> Result<(), Failed> {
    let block = kib << 10;
    let blocks = (DATA / block as u64) as u32;
    let one = format!("{kib} KiB overwrite");
    let two = format!("{kib} KiB overwrite, two threads");
    let attached = subject.attach(true)?;
    let file = subject.fill(&attached, "first", DATA)?;
    let second = subject.fill(&attached, "second", SECOND)?;
    let pool =
        bench.library.as_ref().map(|l| l.pool(pool_path, block, blocks as usize)).transpose()?;
    let (raw, plain, timing) = (&bench.raw, &bench.plain, bench.timing);
    let into_raw = || |at: u64, data: &[u8]| raw.write(at, data);
    let into_pool =
        || |at: u64, data: &[u8]| pool.iter().for_each(|p| p.write(at as usize / block, data));
    let with_sync = || |at: u64, data: &[u8]| plain.write_and_sync(at, data);

    let mut one_raw = stepper(into_raw(), block, 0..blocks);
    let mut one_store = stepper(into_store(&file), block, 0..blocks);
    let mut one_pool = stepper(into_pool(), block, 0..blocks);
    let mut one_sync = stepper(with_sync(), block, 0..blocks);
    let mut one_plain = stepper(|at, data| plain.write(at, data), block, 0..blocks);
    let mut two_raw = halves(into_raw, block, blocks);
    let mut two_store = halves(|| into_store(&file), block, blocks);
    let mut two_files = [
        stepper(into_store(&file), block, 0..blocks),
        stepper(into_store(&second), block, 0..(SECOND / block as u64) as u32),
    ];
    let mut two_pool = halves(into_pool, block, blocks);
    let mut two_sync = halves(with_sync, block, blocks);
    for _ in 0..report.rounds() {
        timing.one(report, &one, RAW, &mut one_raw);
        timing.one(report, &one, STORE, &mut one_store);
        if pool.is_some() {
            timing.one(report, &one, BLK, &mut one_pool);
        }
        timing.one(report, &one, &bench.on_medium("pwrite + fdatasync"), &mut one_sync);
        timing.one(report, &one, &bench.on_medium("pwrite, not durable"), &mut one_plain);
        timing.together(report, &two, RAW, &mut two_raw);
        timing.together(report, &two, STORE, &mut two_store);
        timing.together(report, &two, TWO_FILES, &mut two_files);
        if pool.is_some() {
            timing.together(report, &two, BLK, &mut two_pool);
        }
        timing.together(report, &two, &bench.on_medium("pwrite + fdatasync"), &mut two_sync);
    }
    report.ratio_of_medians(&format!("overwrite_{kib}k_over_raw"), (&one, STORE), (&one, RAW));
    let over_library = format!("overwrite_{kib}k_over_libpmemblk");
    match &pool {
        Some(_) => report.ratio_of_medians(&over_library, (&one, STORE), (&one, BLK)),
        // Null in the file.
        None => report.ratio(&over_library, f64::NAN),
    }
    if kib == 4 {
        batches(report, bench, &file, blocks);
    }
    if kib == 8 {
        for (key, row, alone) in [
            ("two_threads_over_one", STORE, STORE),
            ("two_threads_two_files_over_one", TWO_FILES, STORE),
            ("raw_two_threads_over_one", RAW, RAW),
        ] {
            report.ratio_of_medians(key, (&one, alone), (&two, row));
            report.scale_ratio(key, 2.0);
        }
        let gain = |row| Some(report.median(&one, row)? / report.median(&two, row)?);
        if let (Some(ours), Some(limit)) = (gain(STORE), gain(RAW)) {
            report.ratio("two_threads_over_raw_two_threads", ours / limit);
        }
    }
    Ok(())
}

fn batches(report: &mut Report, bench: &Bench, file: &File, blocks: u32) {
    let (mut raw_walk, mut walk) = (Walk::new(0..blocks), Walk::new(0..blocks));
    let (mut raw_payload, mut payload) = (Payload::new(4096), Payload::new(4096));
    for _ in 0..report.rounds() {
        bench.timing.one(report, BATCH, "raw: two, one fence", |_| {
            bench
                .raw
                .write_two([raw_walk.next() * 4096, raw_walk.next() * 4096], raw_payload.next());
        });
        bench.timing.one(report, BATCH, STORE, |_| {
            let (one, other, data) = (walk.next() * 4096, walk.next() * 4096, payload.next());
            file.write_batch(&[(one, data), (other, data)]).expect("a batch to the store failed");
        });
    }
    report.ratio_of_medians("batch_2x4k_over_raw", (BATCH, STORE), (BATCH, "raw: two, one fence"));
}

/// The same tier, file and memory with and without the recording of waits, attached anew each time.
fn events(report: &mut Report, timing: Timing, subject: &Subject) -> Result<(), Failed> {
    const BLOCK: usize = 8192;
    let timing = timing.times(2);
    let mut shares = Vec::new();
    for round in 0..report.rounds() {
        let mut medians = [0.0; 2];
        for turn in 0..2 {
            // Whoever comes second in a round comes first in the next.
            let recorded = (round + turn) % 2 == 0;
            let attached = subject.attach(recorded)?;
            let file = attached.open("first", OpenMode::WRITE)?;
            touch(&file)?;
            let mut step = stepper(into_store(&file), BLOCK, 0..(DATA / BLOCK as u64) as u32);
            (0..4096).for_each(&mut step);
            let name = if recorded { RECORDED } else { NOT_RECORDED };
            medians[usize::from(recorded)] = timing.one(report, EVENTS, name, step);
        }
        let [without, with] = medians;
        shares.push((with - without) / with);
    }
    report.ratio("events_share", median(shares));
    Ok(())
}

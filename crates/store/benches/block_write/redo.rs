//! Redo: 512 bytes behind the 512 before, durable; and while the background drains what is older to
//! home.

use std::path::Path;

use tiersmith_store::{File, OpenMode};

use crate::report::Report;
use crate::subject::{REDO_KEEP, Subject, wait_for_drain};
use crate::work::{Payload, Walk};
use crate::{Bench, DATA, Failed, RAW};

const APPEND: usize = 512;
/// Appends timed together: 32 blocks.
const BATCH: usize = 512;
const TIER: u64 = 512 << 20;
/// Bytes of a redo file that is written again from its start: all of it stays in the tier.
const PREALLOCATED: u64 = REDO_KEEP / 2;
/// Bytes of the pool of libpmemblk: many times the last-level cache.
const POOL: u64 = 128 << 20;

const ONE: &str = "512 B redo";
const TWO: &str = "512 B redo, two threads, a file each";
const SEQUENTIAL: &str = "raw, one behind the other";
const GROWING: &str = "store, append to a new file";
const DRAINING: &str = "store, the same, draining meanwhile";
const IN_PLACE: &str = "store, preallocated file";

/// Appends through `write`, from the start again at `end`.
fn appender(write: impl Fn(u64, &[u8]), from: u64, end: u64) -> impl FnMut(usize) {
    let (mut at, mut payload) = (from, Payload::new(APPEND));
    move |_| {
        write(at, payload.next());
        at += APPEND as u64;
        if at == end {
            at = from;
        }
    }
}

fn into_store(file: &File) -> impl Fn(u64, &[u8]) {
    |at, data| file.write(at, data).expect("an append to the store failed")
}

/// The tables of redo.
pub(crate) fn appends(report: &mut Report, bench: &Bench) -> Result<(), Failed> {
    let subject = Subject::new(&bench.scratch, "redo", 8192, TIER)?;
    // As the limit is measured, with nothing else at work: the drain shares memory and processors.
    let undrained = Subject::new(&bench.scratch, "redo-kept", 8192, TIER)?.undrained();
    let pool = bench.scratch.fast("pool512");
    rounds(report, bench, [&subject, &undrained], &pool)?;
    if bench.library.is_some() {
        std::fs::remove_file(&pool)?;
    }
    std::fs::remove_file(subject.member())?;
    std::fs::remove_file(undrained.member())?;
    Ok(())
}

fn rounds(
    report: &mut Report,
    bench: &Bench,
    [subject, undrained]: [&Subject; 2],
    pool_path: &Path,
) -> Result<(), Failed> {
    // Enough appends to keep the drain at work, and batches of many blocks: the first append to a
    // block pays for its frame.
    let timing = bench.timing.times(4).in_batches_of(BATCH);
    let (attached, kept_whole) = (subject.attach(true)?, undrained.attach(true)?);
    let kept = [
        subject.fill(&attached, "redo-0", PREALLOCATED)?,
        subject.fill(&attached, "redo-1", PREALLOCATED)?,
    ];
    let pool_blocks = (POOL / APPEND as u64) as usize;
    let pool =
        bench.library.as_ref().map(|l| l.pool(pool_path, APPEND, pool_blocks)).transpose()?;
    let (raw, plain) = (&bench.raw, &bench.plain);
    let into_raw = || |at: u64, data: &[u8]| raw.write(at, data);

    let mut random = {
        let (mut walk, mut payload) =
            (Walk::new(0..(DATA / APPEND as u64) as u32), Payload::new(APPEND));
        move |_| raw.write(walk.next() * APPEND as u64, payload.next())
    };
    let mut pool_random = {
        let (mut walk, mut payload) = (Walk::new(0..pool_blocks as u32), Payload::new(APPEND));
        let pool = pool.as_ref();
        move |_| pool.iter().for_each(|p| p.write(walk.next() as usize, payload.next()))
    };
    let mut sequential = appender(into_raw(), 0, DATA);
    let mut in_place = appender(into_store(&kept[0]), 0, PREALLOCATED);
    let mut with_sync = appender(|at, data| plain.write_and_sync(at, data), 0, DATA);
    let mut two_raw = [appender(into_raw(), 0, DATA / 2), appender(into_raw(), DATA / 2, DATA)];
    let mut two_in_place = [
        appender(into_store(&kept[0]), 0, PREALLOCATED),
        appender(into_store(&kept[1]), 0, PREALLOCATED),
    ];
    for round in 0..report.rounds() {
        timing.one(report, ONE, RAW, &mut random);
        timing.one(report, ONE, SEQUENTIAL, &mut sequential);
        {
            let name = format!("redo{round}");
            let file = kept_whole.open(&name, OpenMode::CREATE)?;
            timing.one(report, ONE, GROWING, appender(into_store(&file), 0, u64::MAX));
            drop(file);
            kept_whole.unlink(&name)?;
        }
        let names = [format!("redo-a{round}"), format!("redo-b{round}"), format!("redo-c{round}")];
        let mut new = Vec::new();
        for name in &names {
            new.push(attached.open(name, OpenMode::CREATE)?);
        }
        timing.one(report, ONE, DRAINING, appender(into_store(&new[0]), 0, u64::MAX));
        wait_for_drain(&new[0]);
        timing.one(report, ONE, IN_PLACE, &mut in_place);
        if pool.is_some() {
            timing.one(report, ONE, "libpmemblk, blocks of 512 B", &mut pool_random);
        }
        timing.one(report, ONE, &bench.on_medium("pwrite + fdatasync"), &mut with_sync);
        timing.together(report, TWO, RAW, &mut two_raw);
        {
            let mut two_growing = [
                appender(into_store(&new[1]), 0, u64::MAX),
                appender(into_store(&new[2]), 0, u64::MAX),
            ];
            timing.together(report, TWO, DRAINING, &mut two_growing);
        }
        new.iter().for_each(wait_for_drain);
        timing.together(report, TWO, IN_PLACE, &mut two_in_place);
        drop(new);
        for name in &names {
            attached.unlink(name)?;
        }
    }
    ratios(report);
    Ok(())
}

fn ratios(report: &mut Report) {
    report.ratio_of_medians("redo_512_over_raw", (ONE, GROWING), (ONE, RAW));
    report.ratio_of_medians("redo_512_over_raw_sequential", (ONE, GROWING), (ONE, SEQUENTIAL));
    report.ratio_of_medians("redo_512_draining_over_raw", (ONE, DRAINING), (ONE, RAW));
    report.ratio_of_medians("redo_512_in_place_over_raw", (ONE, IN_PLACE), (ONE, RAW));
}

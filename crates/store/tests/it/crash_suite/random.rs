//! Random scripts, cut at every persist point: combinations nobody thought of. `TIERSMITH_SEED`
//! chooses the first seed, `TIERSMITH_SOAK_SECONDS` how long to go on with new ones.

#[allow(unreachable_pub, reason = "shared by several test binaries")]
use crate::crash_support::{
    Op, Run, Shape, Tiers, explore_after_kill, explore_recovery, print_count, script,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tiersmith_store::Planted;
use tiersmith_store::crash::Report;

/// Scripts in an ordinary run: with the written scripts more than 2,050,000 images, none twice.
const SCRIPTS: u64 = 280;
const OPERATIONS: usize = 24;

fn shape_for(seed: u64) -> Shape {
    let units = 4 + seed % 3;
    Shape {
        tiers: match seed % 9 {
            4 => Tiers::RedoBesideData,
            7 => Tiers::Volatile,
            _ => Tiers::One,
        },
        members: 1 + (seed % 4 == 3) as usize,
        units,
        max_units: units + seed.is_multiple_of(5) as u64 * 2,
        lanes: [2, 1, 4][(seed % 3) as usize],
        batches: if seed % 7 == 6 { 1 } else { 2 },
        redo_keep: [8192, 0, 16384][(seed / 2 % 3) as usize],
        // A few changes of such a home, and recovery would take them for somebody else's, were they
        // announced but once.
        change_takes_ms: if seed % 16 == 5 { 45_000 } else { 1 },
        sync_takes_ms: 0,
        apart: seed % 6 == 2,
        rules: seed % 5 == 3,
    }
}

/// On a tier of clean copies there are no batches: their blocks are written one by one.
pub(super) fn without_batches(ops: Vec<Op>) -> Vec<Op> {
    let single = |op| match op {
        Op::Batch { name, blocks } => {
            let len = if name.ends_with(".big") { 8192 } else { 4096 };
            blocks
                .into_iter()
                .map(|block| Op::Write { name, at: block * len as u64, len })
                .collect()
        }
        other => vec![other],
    };
    ops.into_iter().flat_map(single).collect()
}

/// The cuts of the run itself, and of one in `few` runs those of the recovery after a cut, and of
/// the attach after a kill.
fn explored(run: &Run, seed: u64, few: u64) -> Report {
    let mut sum = run.explore(120, seed, Planted::None);
    let more = match seed % few {
        3 if sum.violations.is_empty() => explore_after_kill(run, 12, seed, Planted::None),
        8 if sum.violations.is_empty() => explore_recovery(run, (2, 8), seed, Planted::None),
        _ => return sum,
    };
    sum.add(more);
    sum
}

/// Runs the script of a seed and cuts the power in it; a violation ends the test.
fn try_script(seed: u64, soak: bool) -> Report {
    let shape = shape_for(seed);
    let (files, ops) = script(seed, OPERATIONS);
    let ops = if shape.tiers == Tiers::Volatile { without_batches(ops) } else { ops };
    let run = Run::new(shape, &files, &ops, Planted::None);
    // Each of these takes as long as twenty others: a soak has the time, and otherwise one of each
    // is enough, for the written scripts have their own.
    let report = explored(&run, seed, if soak { 20 } else { SCRIPTS });
    if let Some(violation) = report.violations.first() {
        println!("TIERSMITH_SEED={seed}: {shape:?}, files {files:?}");
        for (n, op) in ops.iter().enumerate() {
            println!("  {n}: {op:?}");
        }
        println!("crash images: {} tried, {} violations", report.images, report.violations.len());
        panic!("seed {seed}: {violation}");
    }
    report
}

#[test]
fn power_cut_anywhere_in_random_work_keeps_every_promise() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let first = number("TIERSMITH_SEED").unwrap_or(1);
    let soak = number("TIERSMITH_SOAK_SECONDS").map(Duration::from_secs);
    let started = Instant::now();
    let next = AtomicU64::new(first);
    let work = || {
        let mut total = Report::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            let done = match soak {
                Some(time) => started.elapsed() >= time,
                None => seed - first >= SCRIPTS,
            };
            if done {
                return total;
            }
            total.add(try_script(seed, soak.is_some()));
        }
    };
    // One thread a processor: a script does not know of the others.
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let total = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|_| {
                // Under the test's name, which a panic names.
                let thread = std::thread::Builder::new()
                    .name(std::thread::current().name().unwrap_or_default().to_owned());
                thread.spawn_scoped(scope, work).expect("a thread starts")
            })
            .collect();
        let mut total = Report::default();
        for thread in all {
            total.add(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        total
    });
    print_count("random scripts", &total);
}

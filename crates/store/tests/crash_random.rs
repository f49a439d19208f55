//! Random scripts, cut at every persist point: combinations nobody thought of. `TIERSMITH_SEED` chooses the first seed,
//! `TIERSMITH_SOAK_SECONDS` how long to go on with new ones.

#[allow(unreachable_pub, reason = "shared by several test binaries")]
mod crash_support;

use crash_support::{Run, Shape, print_count, script};
use std::time::{Duration, Instant};
use tiersmith_store::Planted;

/// Scripts in an ordinary run: with those of `crash_operations.rs` more than a million images.
const SCRIPTS: u64 = 260;
const OPERATIONS: usize = 24;

fn shape_for(seed: u64) -> Shape {
    let units = 4 + seed % 3;
    Shape {
        members: 1 + (seed % 4 == 3) as usize,
        units,
        max_units: units + seed.is_multiple_of(5) as u64 * 2,
        lanes: [2, 1, 4][(seed % 3) as usize],
        redo_keep: [8192, 0, 16384][(seed / 2 % 3) as usize],
    }
}

#[test]
fn power_cut_anywhere_in_random_work_keeps_every_promise() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let first = number("TIERSMITH_SEED").unwrap_or(1);
    let soak = number("TIERSMITH_SOAK_SECONDS").map(Duration::from_secs);
    let started = Instant::now();
    let mut total = None::<tiersmith_store::crash::Report>;
    for seed in first.. {
        let done = match soak {
            Some(time) => started.elapsed() >= time,
            None => seed - first >= SCRIPTS,
        };
        if done {
            break;
        }
        let shape = shape_for(seed);
        let (files, ops) = script(seed, OPERATIONS);
        let run = Run::new(shape, &files, &ops, Planted::None);
        let report = run.explore(120, seed, Planted::None);
        if let Some(violation) = report.violations.first() {
            println!("TIERSMITH_SEED={seed}: {shape:?}, files {files:?}");
            for (n, op) in ops.iter().enumerate() {
                println!("  {n}: {op:?}");
            }
            println!("crash images: {} tried, {} violations", report.images, report.violations.len());
            panic!("seed {seed}: {violation}");
        }
        match &mut total {
            None => total = Some(report),
            Some(sum) => {
                sum.images += report.images;
                sum.distinct += report.distinct;
                sum.cuts += report.cuts;
                sum.exhaustive_cuts += report.exhaustive_cuts;
                sum.elapsed += report.elapsed;
            }
        }
    }
    print_count("random scripts", &total.expect("at least one script ran"));
}

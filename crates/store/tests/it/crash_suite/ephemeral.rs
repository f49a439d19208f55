//! Power cuts under an ephemeral tier: it has clean copies only, and they are believed after the
//! cut. Whatever home is then, they must be the same: what is read does not change when they go.

use super::random::without_batches;
#[allow(unreachable_pub, reason = "shared by several test binaries")]
use crate::crash_support::{
    Op, Run, Shape, Tiers, explore_after_kill, explore_new, explore_recovery, pattern, print_count,
    script,
};
use std::sync::Arc;
use tiersmith_store::crash::{Budget, CutState, Recorder, Report};
use tiersmith_store::{AttachedHome, File, OpenMode, Planted};

/// Random scripts.
const SCRIPTS: u64 = 24;

fn ephemeral() -> Shape {
    Shape { tiers: Tiers::Ephemeral, ..Shape::default() }
}

fn sound(what: &str, report: &Report) {
    print_count(what, report);
    report.assert_sound();
}

fn write(name: &'static str, at: u64, len: usize) -> Op {
    Op::Write { name, at, len }
}

fn everything() -> Vec<Op> {
    vec![
        Op::Attach,
        Op::Read { name: "a.db" },
        write("a.db", 4096, 4096),
        Op::Read { name: "b.big" },
        write("a.db", 100, 9000),
        Op::Read { name: "a.db" },
        write("b.big", 8192, 8192),
        Op::Truncate { name: "a.db", size: 5000 },
        Op::Read { name: "a.db" },
        write("a.db", 15000, 3000),
        Op::Read { name: "a.db" },
        Op::Punch { name: "a.db", at: 0, len: 4096 },
        Op::Read { name: "a.db" },
        Op::Background,
        Op::Reopen,
        write("a.db", 4096, 100),
        Op::Evict,
        write("r.redo", 0, 5000),
        Op::Rename { from: "a.db", to: "c.db" },
        Op::Read { name: "c.db" },
        Op::Reopen,
        write("c.db", 0, 4096),
        Op::Pin { name: "c.db" },
        write("c.db", 4096, 4096),
        write("c.db", 20000, 9000),
        Op::Unlink { name: "b.big" },
        Op::Reopen,
        Op::Read { name: "c.db" },
        Op::Detach,
    ]
}

const FILES: [(&str, usize); 3] = [("a.db", 14000), ("b.big", 16384), ("r.redo", 300)];

#[test]
fn power_cut_on_an_ephemeral_tier_leaves_what_was_synced_at_home_and_no_other_copies() {
    let run = Run::new(ephemeral(), &FILES, &everything(), Planted::None);
    sound("ephemeral tier", &run.explore(300, 1, Planted::None));
    sound("recovery of an ephemeral tier", &explore_recovery(&run, (2, 8), 1, Planted::None));
    sound("an ephemeral tier after a kill", &explore_after_kill(&run, 16, 1, Planted::None));
}

#[test]
fn power_cut_anywhere_in_random_work_on_an_ephemeral_tier_keeps_every_promise() {
    let first =
        std::env::var("TIERSMITH_SEED").ok().and_then(|v| v.parse::<u64>().ok()).unwrap_or(1);
    for seed in first..first + SCRIPTS {
        let (files, ops) = script(seed, 24);
        let ops = without_batches(ops);
        let units = 4 + seed % 3;
        let max_units = units + u64::from(seed % 5 == 0) * 2;
        let lanes = [2, 1, 4][(seed % 3) as usize];
        let shape = Shape { units, max_units, lanes, rules: seed % 5 == 3, ..ephemeral() };
        let run = Run::new(shape, &files, &ops, Planted::None);
        let report = run.explore(120, seed, Planted::None);
        if let Some(violation) = report.violations.first() {
            panic!("TIERSMITH_SEED={seed}: {shape:?}, files {files:?}, {ops:#?}\n{violation}");
        }
        print_count("random scripts on an ephemeral tier", &report);
    }
}

#[test]
fn power_cut_on_an_ephemeral_tier_between_syncs_leaves_copies_that_home_has() {
    for lanes in [1, 4] {
        sound("an ephemeral tier between syncs", &between_syncs(lanes, Planted::None));
    }
}

#[test]
fn what_is_planted_in_an_ephemeral_tier_is_caught() {
    for bug in Planted::EPHEMERAL {
        let between = between_syncs(1, bug).violations;
        let violations = match between.is_empty() {
            true => {
                let run = Run::new(ephemeral(), &FILES, &everything(), bug);
                run.explore(300, 1, bug).violations
            }
            false => between,
        };
        println!("{bug:?}: {:?}", violations.first().map(ToString::to_string));
        assert!(!violations.is_empty(), "the suite does not notice {bug:?}");
    }
}

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read(0, &mut bytes).unwrap();
    bytes
}

/// Writes, appends and cuts without a sync, reads between them, and now and then a sync. A write of
/// another file makes durable what the tier has.
fn between_syncs(lanes: u32, planted: Planted) -> Report {
    let shape = Shape { lanes, units: 6, max_units: 6, ..ephemeral() };
    let recorder = Recorder::new();
    let members = shape.blank(recorder.simulator());
    let home = shape.attach(recorder.home(), members, planted).unwrap();
    let make = |name: &str| {
        let file = home.open(name, OpenMode::CREATE).unwrap();
        file.write(0, &pattern(100, 0, 16384)).unwrap();
        file.sync().unwrap();
        contents(&file);
        file
    };
    let (file, other) = (make("a.db"), make("b.db"));
    recorder.rebase();
    for n in 0..40_usize {
        let at = [0, 4096, 700, 8192, 12_288, 16_384 + n as u64 * 100][n % 6];
        match n % 9 {
            5 => home.background_step().unwrap(),
            7 => file.truncate(9000 + n as u64 * 200).unwrap(),
            _ => file.write(at, &pattern(n, at, 4096 - at as usize % 4096)).unwrap(),
        }
        contents(&file);
        if n % 2 == 1 {
            other.write(0, &pattern(n, 0, 4096)).unwrap();
            other.sync().unwrap();
            contents(&other);
        }
        if n % 11 == 10 {
            file.sync().unwrap();
            contents(&file);
            recorder.acked();
        }
    }
    drop((file, other, home));
    let check = |found: CutState<'_>| {
        let members = shape.found(found.tiers);
        let home =
            shape.attach(Arc::new(found.home), members, planted).map_err(|e| e.to_string())?;
        let read = |home: &AttachedHome| {
            ["a.db", "b.db"].map(|name| contents(&home.open(name, OpenMode::READ).unwrap()))
        };
        let with_copies = read(&home);
        home.evict(None, u64::MAX).map_err(|e| e.to_string())?;
        match with_copies == read(&home) {
            true => Ok(()),
            false => Err("a copy is not what home has".to_owned()),
        }
    };
    let budget = Budget { images_per_cut: 100, ..Budget::default() };
    explore_new(&recorder.recording(), &budget, check)
}

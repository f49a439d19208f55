//! Power cuts under a tier on flash: metadata and blocks on one device of sectors, of which what
//! was not synced is lost, reordered and torn at sectors.

#[allow(unreachable_pub, reason = "shared by several test binaries")]
use crate::crash_support::{
    Op, Run, Shape, Tiers, explore_after_kill, explore_new, explore_recovery, pattern, print_count,
    script,
};
use std::sync::Arc;
use tiersmith_store::crash::{Budget, CutState, Recorder, Report};
use tiersmith_store::{File, OpenMode, Planted};

/// Random scripts: those of `crash_suite/random.rs`, but fewer.
const SCRIPTS: u64 = 16;

const ON_FLASH: Shape = Shape {
    tiers: Tiers::OnFlash,
    members: 1,
    units: 4,
    max_units: 4,
    lanes: 2,
    batches: 2,
    redo_keep: 8192,
    change_takes_ms: 1,
    sync_takes_ms: 0,
    apart: false,
    rules: false,
};

fn sound(what: &str, report: &Report) {
    print_count(what, report);
    report.assert_sound();
}

fn write(name: &'static str, at: u64, len: usize) -> Op {
    Op::Write { name, at, len }
}

#[test]
fn power_cut_on_flash_keeps_every_promise() {
    let ops = [
        write("a.db", 0, 4096),
        write("a.db", 4096, 8192),
        write("a.db", 700, 100),
        write("a.db", 16384, 3000),
        write("b.big", 8192, 8192),
        Op::Batch { name: "a.db", blocks: vec![0, 2, 3] },
        write("r.redo", 0, 5000),
        write("r.redo", 5000, 700),
        write("r.redo", 5300, 20),
        Op::Destage { name: "a.db" },
        write("a.db", 0, 4096),
        Op::Read { name: "b.big" },
        Op::Background,
        Op::Truncate { name: "a.db", size: 9000 },
        write("a.db", 12000, 500),
        Op::Evict,
        Op::Reopen,
        write("a.db", 4096, 4096),
        write("r.redo", 9000, 300),
        Op::Punch { name: "a.db", at: 4096, len: 4096 },
        Op::Unlink { name: "b.big" },
        Op::Flush,
    ];
    for lanes in [1, 2] {
        let shape = Shape { lanes, ..ON_FLASH };
        let run = Run::new(
            shape,
            &[("a.db", 16384), ("b.big", 16384), ("r.redo", 300)],
            &ops,
            Planted::None,
        );
        sound("flash", &run.explore(300, 1, Planted::None));
    }
}

#[test]
fn power_cut_while_a_tier_on_flash_is_full_or_grows_loses_nothing() {
    let big: Vec<Op> = (0..14).map(|n| write("a.db", n * 12_288, 12_288)).collect();
    for max_units in [4, 8] {
        let run = Run::new(Shape { max_units, ..ON_FLASH }, &[("a.db", 4096)], &big, Planted::None);
        sound("a full or growing tier on flash", &run.explore(100, 1, Planted::None));
    }
}

#[test]
fn power_cut_in_attaching_and_detaching_a_tier_on_flash_is_harmless() {
    let ops = [
        Op::Attach,
        write("a.db", 0, 8192),
        write("r.redo", 0, 5000),
        Op::Detach,
        Op::Attach,
        write("r.redo", 0, 4096),
        Op::Reopen,
        write("a.db", 4096, 100),
        Op::Detach,
    ];
    let run = Run::new(ON_FLASH, &[("a.db", 8192), ("r.redo", 0)], &ops, Planted::None);
    sound("attach, detach on flash", &run.explore(150, 1, Planted::None));
}

#[test]
fn power_cut_in_recovery_or_after_a_kill_on_flash_loses_nothing() {
    let ops = [
        write("a.db", 0, 4096),
        write("a.db", 4096, 4096),
        Op::Batch { name: "a.db", blocks: vec![0, 2] },
        write("r.redo", 0, 5000),
        Op::Truncate { name: "a.db", size: 9000 },
    ];
    let run = Run::new(ON_FLASH, &[("a.db", 16384), ("r.redo", 0)], &ops, Planted::None);
    sound("recovery on flash", &explore_recovery(&run, (6, 12), 1, Planted::None));
    sound("after a kill on flash", &explore_after_kill(&run, 24, 1, Planted::None));
}

#[test]
fn power_cut_anywhere_in_random_work_on_flash_keeps_every_promise() {
    let first =
        std::env::var("TIERSMITH_SEED").ok().and_then(|v| v.parse::<u64>().ok()).unwrap_or(1);
    for seed in first..first + SCRIPTS {
        let (files, ops) = script(seed, 24);
        let units = 4 + seed % 3;
        let max_units = units + u64::from(seed % 5 == 0) * 2;
        let lanes = [2, 1, 4][(seed % 3) as usize];
        let redo_keep = [8192, 0, 16384][(seed / 2 % 3) as usize];
        let shape = Shape { units, max_units, lanes, redo_keep, ..ON_FLASH };
        let run = Run::new(shape, &files, &ops, Planted::None);
        let report = run.explore(120, seed, Planted::None);
        if let Some(violation) = report.violations.first() {
            panic!("TIERSMITH_SEED={seed}: {shape:?}, files {files:?}, {ops:#?}\n{violation}");
        }
        print_count("random scripts on flash", &report);
    }
}

#[test]
fn power_cut_on_flash_in_lending_writing_and_giving_back_keeps_every_acknowledged_byte() {
    let lent = |name, at, len| Op::KernelWrite { name, at, len };
    let ops = [
        write("w.redo", 0, 5000),
        Op::Lend { name: "w.redo" },
        lent("w.redo", 6000, 6000),
        write("a.db", 0, 4096),
        write("w.redo", 4000, 700),
        Op::GiveBack { name: "w.redo" },
        write("w.redo", 0, 4096),
        lent("w.redo", 100, 5000),
        Op::Destage { name: "w.redo" },
        lent("w.redo", 8192, 4096),
        Op::Truncate { name: "w.redo", size: 9000 },
        Op::Rename { from: "w.redo", to: "w2.redo" },
        Op::Background,
        Op::Reopen,
        lent("w2.redo", 0, 100),
        Op::Unlink { name: "w2.redo" },
        write("a.db", 4096, 4096),
        Op::Detach,
    ];
    let run = Run::new(ON_FLASH, &[("w.redo", 12288), ("a.db", 8192)], &ops, Planted::None);
    sound("lent files on flash", &run.explore(80, 1, Planted::None));
    let few = [lent("w.redo", 0, 3000), Op::GiveBack { name: "w.redo" }, lent("w.redo", 0, 2000)];
    let run = Run::new(ON_FLASH, &[("w.redo", 8192)], &few, Planted::None);
    sound("recovery of lent files on flash", &explore_recovery(&run, (4, 8), 1, Planted::None));
    sound("lent files on flash after a kill", &explore_after_kill(&run, 8, 1, Planted::None));
}

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn power_cut_on_flash_between_syncs_leaves_a_data_file_as_it_was_at_one_moment() {
    for lanes in [1, 4] {
        sound("between syncs on flash", &between_syncs(lanes, Planted::None));
    }
}

#[test]
fn a_frame_used_again_before_the_log_says_so_is_found() {
    assert!(!between_syncs(1, Planted::ReuseUnsynced).violations.is_empty());
}

/// Overwrites, appends and batches of a data file, with a sync now and then. What a cut leaves must
/// be the file as it was after one of them, not before the last that was synced.
fn between_syncs(lanes: u32, planted: Planted) -> Report {
    let shape = Shape { lanes, units: 6, max_units: 6, ..ON_FLASH };
    let recorder = Recorder::new();
    let members = shape.blank(recorder.simulator());
    let home = shape.attach(recorder.home(), members, planted).unwrap();
    let file = home.open("a.db", OpenMode::CREATE).unwrap();
    file.write(0, &pattern(100, 0, 16384)).unwrap();
    file.sync().unwrap();
    recorder.rebase();
    let mut states = vec![contents(&file)];
    let mut synced = vec![0];
    for n in 0..40_usize {
        let at = [0, 4096, 0, 8192, 300, 16384 + n as u64 * 100][n % 6];
        match n % 7 {
            3 => {
                let (one, other) = (pattern(n, 0, 4096), pattern(n, 8192, 4096));
                file.write_batch(&[(0, &one[..]), (8192, &other[..])]).unwrap();
            }
            5 => home.background_step().unwrap(),
            _ => file.write(at, &pattern(n, at, 4096 - at as usize % 4096)).unwrap(),
        }
        states.push(contents(&file));
        if n % 11 == 10 {
            file.sync().unwrap();
            recorder.acked();
            synced.push(states.len() - 1);
        }
    }
    drop((file, home));
    let check = |found: CutState<'_>| {
        let members = shape.found(found.tiers);
        let acked = found.acked;
        let home = shape
            .attach(Arc::new(found.home), members, Planted::None)
            .map_err(|e| e.to_string())?;
        let now = contents(&home.open("a.db", OpenMode::READ).map_err(|e| e.to_string())?);
        match states[synced[acked]..].contains(&now) {
            true => Ok(()),
            false => Err(format!("the file is as it never was since sync {acked}")),
        }
    };
    let budget = Budget { images_per_cut: 100, ..Budget::default() };
    explore_new(&recorder.recording(), &budget, check)
}

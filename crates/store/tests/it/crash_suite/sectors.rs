//! Power cuts under a tier whose metadata is mapped and whose blocks are on a device of sectors:
//! what the device had not synced is lost, reordered and torn at sectors, together with what the
//! memory had not fenced.

#[allow(unreachable_pub, reason = "shared by several test binaries")]
use crate::crash_support::{
    Op, Run, Shape, Tiers, explore_after_kill, explore_recovery, print_count, script, write,
};
use tiersmith_store::Planted;
use tiersmith_store::crash::Report;

/// Random scripts: those of `crash_suite/random.rs`, but fewer.
const SCRIPTS: u64 = 16;

/// A tier of one member.
fn on_sectors() -> Shape {
    Shape { tiers: Tiers::OnSectors, ..Shape::default() }
}

fn sound(what: &str, report: &Report) {
    print_count(what, report);
    report.assert_sound();
}

#[test]
fn power_cut_with_the_blocks_on_a_device_of_sectors_keeps_every_promise() {
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
    for members in [1, 2] {
        let shape = Shape { members, ..on_sectors() };
        let run = Run::new(
            shape,
            &[("a.db", 16384), ("b.big", 16384), ("r.redo", 300)],
            &ops,
            Planted::None,
        );
        sound("blocks on sectors", &run.explore(300, 1, Planted::None));
    }
}

#[test]
fn power_cut_while_a_tier_with_its_blocks_on_a_device_is_full_or_grows_loses_nothing() {
    let big: Vec<Op> = (0..14).map(|n| write("a.db", n * 12_288, 12_288)).collect();
    for max_units in [4, 8] {
        let run =
            Run::new(Shape { max_units, ..on_sectors() }, &[("a.db", 4096)], &big, Planted::None);
        sound("a full or growing tier on sectors", &run.explore(100, 1, Planted::None));
    }
}

#[test]
fn power_cut_in_attaching_and_detaching_a_tier_with_its_blocks_on_a_device_is_harmless() {
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
    let run = Run::new(on_sectors(), &[("a.db", 8192), ("r.redo", 0)], &ops, Planted::None);
    sound("attach, detach on sectors", &run.explore(150, 1, Planted::None));
}

#[test]
fn power_cut_in_recovery_or_after_a_kill_with_the_blocks_on_a_device_loses_nothing() {
    let ops = [
        write("a.db", 0, 4096),
        write("a.db", 4096, 4096),
        Op::Batch { name: "a.db", blocks: vec![0, 2] },
        write("r.redo", 0, 5000),
        Op::Truncate { name: "a.db", size: 9000 },
    ];
    let run = Run::new(on_sectors(), &[("a.db", 16384), ("r.redo", 0)], &ops, Planted::None);
    sound("recovery on sectors", &explore_recovery(&run, (6, 12), 1, Planted::None));
    sound("after a kill on sectors", &explore_after_kill(&run, 24, 1, Planted::None));
}

#[test]
fn power_cut_anywhere_in_random_work_with_the_blocks_on_a_device_keeps_every_promise() {
    let first =
        std::env::var("TIERSMITH_SEED").ok().and_then(|v| v.parse::<u64>().ok()).unwrap_or(1);
    for seed in first..first + SCRIPTS {
        let (files, ops) = script(seed, 24);
        let units = 4 + seed % 3;
        let max_units = units + u64::from(seed % 5 == 0) * 2;
        let lanes = [2, 1, 4][(seed % 3) as usize];
        let redo_keep = [8192, 0, 16384][(seed / 2 % 3) as usize];
        let members = 1 + usize::from(seed % 4 == 3);
        let shape = Shape { units, max_units, lanes, redo_keep, members, ..on_sectors() };
        let run = Run::new(shape, &files, &ops, Planted::None);
        let report = run.explore(120, seed, Planted::None);
        if let Some(violation) = report.violations.first() {
            panic!("TIERSMITH_SEED={seed}: {shape:?}, files {files:?}, {ops:#?}\n{violation}");
        }
        print_count("random scripts on sectors", &report);
    }
}

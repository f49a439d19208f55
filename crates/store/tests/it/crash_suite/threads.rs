//! Power cuts while two threads are at work: whatever the first has changed and not fenced yet
//! comes into the hands of the second, at every access of the first to the medium.
//!
//! One thread is in `crash_suite/operations.rs`; threads under chance are in `threads.rs` and
//! `torture.rs`.

#[allow(unreachable_pub, reason = "shared by several test binaries")]
use crate::crash_support::{Op, Pair, Shape, Tiers, print_count, write};
use tiersmith_store::Planted;
use tiersmith_store::crash::Report;

const IMAGES_PER_CUT: usize = 12;

fn block(name: &'static str, block: u64) -> Op {
    write(name, block * 4096, 4096)
}

/// What the two threads do, and with how many lanes.
struct Scene {
    what: &'static str,
    lanes: u32,
    files: &'static [(&'static str, usize)],
    first: Vec<Op>,
    second: Vec<Op>,
}

fn scenes() -> Vec<Scene> {
    // Enough switches for both record slots of a lane, and for the pieces of the first thread's
    // blocks.
    let others: Vec<Op> = [8, 9, 8, 9, 8].map(|n| block("a.db", n)).to_vec();
    vec![
        Scene {
            what: "one lane from hand to hand",
            lanes: 1,
            files: &[("a.db", 65536)],
            first: vec![
                block("a.db", 0),
                block("a.db", 0),
                Op::Destage { name: "a.db" },
                block("a.db", 1),
                Op::Evict,
                Op::Background,
                block("a.db", 0),
            ],
            second: others.clone(),
        },
        Scene {
            what: "a map page for both",
            lanes: 4,
            files: &[("a.db", 65536)],
            first: vec![block("a.db", 0)],
            second: (4..12).map(|n| block("a.db", n)).collect(),
        },
        Scene {
            what: "a file that grows",
            lanes: 4,
            files: &[("a.db", 4096)],
            first: vec![block("a.db", 0), write("a.db", 15 * 4096, 4096)],
            second: (4..12).map(|n| block("a.db", n)).collect(),
        },
        Scene {
            what: "a reader beside a writer",
            lanes: 1,
            files: &[("a.db", 65536)],
            // After some overwrites the lane has a piece laid out, which goes another way.
            first: vec![
                block("a.db", 0),
                block("a.db", 0),
                block("a.db", 0),
                block("a.db", 0),
                block("a.db", 0),
                write("a.db", 4196, 100),
                Op::Destage { name: "a.db" },
                Op::Evict,
                block("a.db", 0),
                Op::Background,
            ],
            second: vec![Op::Read { name: "a.db" }],
        },
        Scene {
            what: "redo beside data",
            lanes: 1,
            files: &[("a.db", 65536), ("r.redo", 0)],
            first: vec![
                write("r.redo", 0, 5000),
                write("r.redo", 5000, 700),
                Op::Destage { name: "r.redo" },
                write("r.redo", 5700, 3000),
            ],
            second: others,
        },
    ]
}

/// Every hand-over of a scene, until a violation.
fn explored(scene: &Scene, tiers: Tiers, planted: Planted) -> Report {
    let lanes = scene.lanes;
    let shape = Shape { tiers, units: 5, max_units: 5, lanes, redo_keep: 4096, ..Shape::default() };
    let programs = [&scene.first[..], &scene.second[..]];
    let mut sum = Report::default();
    for at in 0.. {
        let Some(pair) = Pair::record(shape, scene.files, programs, at, planted) else { break };
        let report = pair.explore(IMAGES_PER_CUT, at as u64, planted);
        let caught = !report.violations.is_empty();
        sum.add(report);
        if caught {
            println!("{}: handed over before access {at}", scene.what);
            break;
        }
    }
    assert!(sum.images > 0, "the first thread writes something");
    sum
}

#[test]
fn power_cut_wherever_one_thread_takes_over_from_another_keeps_what_both_were_told() {
    keeps_what_both_were_told(Tiers::One);
}

/// There a thread may be stopped in the middle of a sync, and the other one share the next.
#[test]
fn power_cut_wherever_one_thread_takes_over_with_the_blocks_on_a_device_keeps_what_both_were_told()
{
    keeps_what_both_were_told(Tiers::OnSectors);
}

/// There one thread may be stopped in the middle of a commit that has the other one's changes.
#[test]
fn power_cut_wherever_one_thread_takes_over_on_flash_keeps_what_both_were_told() {
    keeps_what_both_were_told(Tiers::OnFlash);
}

fn keeps_what_both_were_told(tiers: Tiers) {
    for scene in scenes() {
        let report = explored(&scene, tiers, Planted::None);
        print_count(scene.what, &report);
        report.assert_sound();
    }
}

#[test]
fn each_planted_bug_that_one_thread_cannot_show_is_caught() {
    for bug in Planted::BETWEEN_THREADS {
        let caught =
            scenes().iter().any(|scene| !explored(scene, Tiers::One, bug).violations.is_empty());
        assert!(caught, "the suite does not notice {bug:?}");
    }
}

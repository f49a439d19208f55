//! Power cuts with several tiers, on volatile ones, with files that are open without a name, and in
//! recoveries of all kinds.
//!
//! One operation after the other on one tier is in `crash_suite/operations.rs`.

#[allow(unreachable_pub, reason = "shared by several test binaries")]
use crate::crash_support::{
    Op, Run, Shape, Tiers, explore_after_kill, explore_recovery, print_count, write,
};
use tiersmith_store::Planted;

fn sound(
    what: &str,
    shape: Shape,
    files: &[(&'static str, usize)],
    ops: &[Op],
    images_per_cut: usize,
) {
    let run = Run::new(shape, files, ops, Planted::None);
    let report = run.explore(images_per_cut, 1, Planted::None);
    print_count(what, &report);
    report.assert_sound();
}

#[test]
fn power_cut_with_a_tier_for_redo_beside_one_for_data_keeps_every_promise() {
    let shape = Shape { tiers: Tiers::RedoBesideData, ..Shape::default() };
    let ops = [
        write("a.db", 0, 8192),
        write("r.redo", 0, 5000),
        Op::Batch { name: "a.db", blocks: vec![0, 2] },
        write("r.redo", 5000, 700),
        Op::Destage { name: "a.db" },
        Op::Background,
        // From one tier into the other, with a name.
        Op::Exchange { from: "a.db", to: "r.redo" },
        write("a.db", 0, 100),
        Op::Reopen,
        write("a.db", 4096, 4096),
        write("r.redo", 300, 700),
        Op::Evict,
        Op::Truncate { name: "r.redo", size: 3000 },
        Op::Unlink { name: "a.db" },
        Op::Flush,
    ];
    sound("two tiers", shape, &[("a.db", 16384), ("r.redo", 300)], &ops, 150);
}

#[test]
fn power_cut_in_attaching_or_detaching_two_tiers_leaves_a_home_that_attaches_or_is_plain() {
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
    for members in [1, 2] {
        let shape = Shape { tiers: Tiers::RedoBesideData, members, ..Shape::default() };
        sound("attach, detach two tiers", shape, &[("a.db", 8192), ("r.redo", 0)], &ops, 150);
    }
}

#[test]
fn power_cut_on_a_volatile_tier_leaves_what_was_synced_at_home() {
    let shape = Shape { tiers: Tiers::Volatile, ..Shape::default() };
    let ops = [
        Op::Attach,
        Op::Read { name: "a.db" },
        write("a.db", 4096, 4096),
        write("a.db", 100, 9000),
        Op::Read { name: "a.db" },
        Op::Truncate { name: "a.db", size: 5000 },
        write("a.db", 15000, 3000),
        Op::Read { name: "a.db" },
        Op::Punch { name: "a.db", at: 0, len: 4096 },
        Op::Evict,
        write("r.redo", 0, 5000),
        Op::Rename { from: "a.db", to: "c.db" },
        Op::Read { name: "c.db" },
        Op::Background,
        Op::Reopen,
        write("c.db", 0, 4096),
        Op::Pin { name: "c.db" },
        write("c.db", 4096, 4096),
        Op::Unlink { name: "c.db" },
        Op::Detach,
    ];
    for members in [1, 2] {
        let shape = Shape { members, ..shape };
        sound("volatile tier", shape, &[("a.db", 14000), ("r.redo", 300)], &ops, 150);
    }
}

#[test]
fn power_cut_while_a_removed_file_is_still_open_leaks_nothing() {
    let ops = [
        write("a.db", 0, 8192),
        write("r.redo", 0, 5000),
        Op::Hold { name: "a.db" },
        Op::Hold { name: "r.redo" },
        Op::Unlink { name: "a.db" },
        Op::WriteRemoved { held: "a.db", at: 4096, len: 4096 },
        Op::WriteRemoved { held: "a.db", at: 20000, len: 100 },
        // The name is there again, for another file.
        Op::Create { name: "a.db" },
        write("a.db", 0, 4096),
        Op::Unlink { name: "r.redo" },
        Op::WriteRemoved { held: "r.redo", at: 5000, len: 6000 },
        Op::Background,
        Op::Flush,
        Op::WriteRemoved { held: "a.db", at: 0, len: 4096 },
        Op::LetGo { held: "a.db" },
        write("a.db", 0, 4096),
        Op::Hold { name: "c.db" },
        // Another file takes the name of one that is open.
        Op::Rename { from: "a.db", to: "c.db" },
        Op::WriteRemoved { held: "c.db", at: 0, len: 4096 },
        write("c.db", 4096, 4096),
        Op::LetGo { held: "c.db" },
        Op::LetGo { held: "r.redo" },
        write("c.db", 0, 4096),
    ];
    sound(
        "removed but open",
        Shape::default(),
        &[("a.db", 12288), ("c.db", 9000), ("r.redo", 0)],
        &ops,
        150,
    );
}

#[test]
fn power_cut_during_recovery_of_names_ranges_and_growth_leaves_what_the_first_cut_left() {
    let ops = [
        write("a.db", 0, 8192),
        write("b.db", 4096, 4096),
        Op::Exchange { from: "a.db", to: "b.db" },
        Op::Rename { from: "a.db", to: "b.db" },
        write("b.db", 0, 4096),
        Op::Allocate { name: "b.db", len: 40960 },
        Op::SetTime { name: "b.db" },
        Op::Punch { name: "b.db", at: 0, len: 8192 },
        Op::Grow,
        write("r.redo", 0, 6000),
        Op::Zero { name: "b.db", at: 4096, len: 9000 },
        Op::Batch { name: "b.db", blocks: vec![0, 3] },
    ];
    for (tiers, members) in [(Tiers::One, 2), (Tiers::RedoBesideData, 1)] {
        let shape = Shape { tiers, members, units: 4, max_units: 5, ..Shape::default() };
        let run =
            Run::new(shape, &[("a.db", 12288), ("b.db", 8192), ("r.redo", 0)], &ops, Planted::None);
        let report = explore_recovery(&run, (4, 8), 1, Planted::None);
        print_count("recovery of names, ranges, growth", &report);
        report.assert_sound();
    }
}

#[test]
fn power_cut_in_making_a_tier_again_that_was_detached_leaves_a_home_that_attaches() {
    // Many images: the first words of a new superblock over one that was made unreadable are few
    // among all.
    let shape = Shape { members: 2, ..Shape::default() };
    sound("made again", shape, &[], &[Op::Attach, Op::Detach, Op::Attach], 2000);
}

#[test]
fn power_cut_in_making_a_tier_again_whose_detach_was_killed_between_two_members_leaves_a_home_that_attaches()
 {
    let shape = Shape { members: 2, ..Shape::default() };
    let ops = [write("a.db", 0, 4096), Op::Detach];
    let run = Run::new(shape, &[("a.db", 4096)], &ops, Planted::None);
    let report = explore_after_kill(&run, 40, 1, Planted::None);
    print_count("detach killed, tier made again", &report);
    report.assert_sound();
}

//! Every operation of the store, cut at every persist point: what was acknowledged is there, what
//! was in flight is old or new.

use crate::crash_support;
#[allow(unreachable_pub, reason = "shared by several test binaries")]
use crate::crash_support::{
    Op, Run, Shape, Tiers, explore_after_kill, explore_plain, names_of_programs, print_count, write,
};
use tiersmith_store::Planted;

const IMAGES_PER_CUT: usize = 400;

fn sound(what: &str, shape: Shape, files: &[(&'static str, usize)], ops: &[Op]) {
    let run = Run::new(shape, files, ops, Planted::None);
    let report = run.explore(IMAGES_PER_CUT, 1, Planted::None);
    print_count(what, &report);
    report.assert_sound();
}

#[test]
fn power_cut_in_an_overwrite_leaves_the_old_or_the_new_block() {
    let ops = [
        write("a.db", 0, 4096),
        write("a.db", 4096, 4096),
        write("a.db", 0, 4096),
        write("a.db", 0, 4096),
        write("a.db", 8192, 4096),
        write("a.db", 100, 200),
        write("a.db", 4000, 5000),
        write("b.big", 0, 8192),
        write("b.big", 8192, 8192),
        write("b.big", 8192, 8192),
    ];
    sound("overwrite", Shape::default(), &[("a.db", 16384), ("b.big", 16384)], &ops);
}

#[test]
fn power_cut_in_a_write_past_the_end_leaves_the_old_or_the_new_file() {
    let ops = [
        write("a.db", 4096, 4096),
        write("a.db", 8192, 100),
        write("a.db", 8292, 5000),
        write("a.db", 30000, 10),
        write("a.db", 29000, 4096),
        Op::Create { name: "n.db" },
        write("n.db", 5000, 3000),
    ];
    sound("write past the end", Shape::default(), &[("a.db", 4096)], &ops);
}

#[test]
fn power_cut_in_a_batch_leaves_all_its_blocks_or_none() {
    let batch = |name, blocks: &[u64]| Op::Batch { name, blocks: blocks.to_vec() };
    let ops = [
        batch("a.db", &[0, 2]),
        batch("a.db", &[0, 1, 2, 3]),
        write("a.db", 0, 4096),
        batch("a.db", &[0, 3]),
        write("a.db", 4096, 4096),
        write("a.db", 4096, 4096),
        batch("a.db", &[1]),
        batch("a.db", &[1, 5]),
        Op::Destage { name: "a.db" },
        batch("a.db", &[5, 0]),
        batch("b.big", &[0, 1]),
        batch("b.big", &[1, 2]),
    ];
    sound(
        "batch",
        Shape { units: 5, max_units: 5, ..Shape::default() },
        &[("a.db", 16384), ("b.big", 16384)],
        &ops,
    );
}

#[test]
fn power_cut_in_small_batches_that_follow_each_other_leaves_each_whole() {
    // Two files that share the only pair of records, and whatever else changes a block of a batch.
    for seed in 0..4 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut ops = vec![Op::Batch { name: "b.db", blocks: (0..16).collect() }];
        while ops.len() < 36 {
            let (name, blocks) = [("a.db", 5), ("b.db", 16)][rng.usize(0..2)];
            ops.push(match rng.u32(0..20) {
                0..=9 => {
                    let mut chosen: Vec<u64> = (0..blocks).collect();
                    rng.shuffle(&mut chosen);
                    chosen.truncate(rng.usize(1..4));
                    Op::Batch { name, blocks: chosen }
                }
                10..=15 => write(name, rng.u64(0..blocks) * 4096, 4096),
                16 => Op::Destage { name },
                17 => Op::Evict,
                18 => Op::Background,
                _ => Op::Truncate { name: "a.db", size: 4096 * rng.u64(3..6) },
            });
        }
        ops.extend([Op::Unlink { name: "a.db" }, Op::Batch { name: "b.db", blocks: vec![3, 2] }]);
        let shape = Shape { units: 8, max_units: 8, ..Shape::default() };
        sound("small batches", shape, &[("a.db", 20480), ("b.db", 65536)], &ops);
    }
}

#[test]
fn power_cut_in_a_batch_larger_than_its_record_leaves_all_its_blocks_or_none() {
    let many: Vec<u64> = (0..140).collect();
    let ops = [
        Op::Batch { name: "a.db", blocks: many.clone() },
        Op::Batch { name: "a.db", blocks: many },
    ];
    let shape = Shape { units: 40, max_units: 40, ..Shape::default() };
    let run = Run::new(shape, &[("a.db", 4096)], &ops, Planted::None);
    let report = run.explore(60, 1, Planted::None);
    print_count("large batch", &report);
    report.assert_sound();
}

#[test]
fn power_cut_while_files_leave_the_tier_for_others_loses_nothing() {
    // Six slots: each file that is made from the seventh on sends away all that nobody has open.
    let mut ops = vec![
        write("a.db", 0, 4096),
        write("a.db", 6000, 3000),
        write("b.big", 8192, 8192),
        write("r.redo", 0, 5000),
        Op::SetTime { name: "b.big" },
        Op::Truncate { name: "a.db", size: 5000 },
        Op::Allocate { name: "a.db", len: 30000 },
        Op::Pin { name: "r.redo" },
        Op::Hold { name: "b.big" },
    ];
    for name in ["c.db", "d.db", "e.db", "f.db", "g.db", "s.redo"] {
        ops.extend([Op::Create { name }, write(name, 0, 4096), write(name, 4096, 100)]);
    }
    ops.extend([
        write("a.db", 0, 4096),
        Op::Truncate { name: "c.db", size: 9000 },
        Op::Unlink { name: "d.db" },
        Op::Rename { from: "e.db", to: "d.db" },
        write("f.db", 0, 4096),
        write("d.db", 4096, 4096),
        Op::Reopen,
        write("g.db", 0, 4096),
        write("a.db", 4096, 900),
        Op::Create { name: "e.db" },
        write("c.db", 0, 10),
        write("b.big", 0, 100),
    ]);
    let shape = Shape { units: 8, max_units: 8, ..Shape::default() };
    sound("leaving the tier", shape, &[("a.db", 16384), ("b.big", 16384), ("r.redo", 0)], &ops);
}

#[test]
fn power_cut_while_map_pages_are_given_back_for_others_loses_nothing() {
    // More files open than the tier has frames: 24, for the file table has one of the four units.
    let names = [
        "a.db", "b.db", "c.db", "d.db", "e.db", "f.db", "g.db", "h.db", "i.db", "j.db", "k.db",
        "l.db", "m.db", "n.db", "o.db", "p.db", "q.db", "r.db", "s.db", "t.db", "u.db", "v.db",
        "x.db", "y.db", "1.redo", "2.redo", "3.redo",
    ];
    let mut ops = Vec::new();
    for name in names {
        ops.extend([Op::Create { name }, Op::Hold { name }, write(name, 0, 600)]);
    }
    ops.extend(["a.db", "1.redo", "b.db"].map(|name| write(name, 100, 5000)));
    // One with a middle page, which is given back too.
    ops.push(write("c.db", 2 << 20, 4096));
    ops.extend(["d.db", "e.db", "f.db", "2.redo"].map(|name| write(name, 0, 4096)));
    ops.push(Op::Batch { name: "g.db", blocks: vec![0, 1] });
    ops.extend([write("c.db", (2 << 20) + 50, 90), Op::Evict, Op::Background, Op::Reopen]);
    ops.extend(["c.db", "h.db", "3.redo"].map(|name| write(name, 4096, 300)));
    // Pages alone run short, for the blocks have gone home.
    for name in names {
        ops.extend([write(name, 0, 100), Op::Destage { name }, Op::Evict]);
    }
    let run = Run::new(Shape::default(), &[("p.txt", 100)], &ops, Planted::None);
    let report = run.explore(25, 1, Planted::None);
    print_count("giving back map pages", &report);
    report.assert_sound();
}

#[test]
fn power_cut_while_the_file_table_grows_leaves_the_old_or_the_new_table() {
    let names = ["a.db", "b.db", "c.db", "d.db", "e.db", "f.db", "g.db", "h.db", "r.redo"];
    for (members, units) in [(1, 8), (2, 4)] {
        let mut ops = Vec::new();
        for name in names {
            ops.extend([Op::Create { name }, Op::Hold { name }, write(name, 0, 4096)]);
        }
        ops.extend([write("h.db", 100, 5000), write("r.redo", 4096, 300), Op::Reopen]);
        ops.extend(names.map(|name| write(name, 0, 600)));
        ops.push(Op::Unlink { name: "h.db" });
        let shape = Shape { members, units, max_units: units, ..Shape::default() };
        sound("growing the file table", shape, &[("p.txt", 100)], &ops);
    }
}

#[test]
fn power_cut_in_a_truncation_never_brings_back_what_was_cut_off() {
    let cut = |name, size| Op::Truncate { name, size };
    let ops = [
        write("a.db", 0, 16384),
        cut("a.db", 9000),
        cut("a.db", 16384),
        write("a.db", 12288, 4096),
        cut("a.db", 4096),
        write("a.db", 8192, 10),
        Op::Destage { name: "a.db" },
        cut("a.db", 5000),
        cut("a.db", 20000),
        cut("a.db", 0),
        write("a.db", 4096, 4096),
        write("r.redo", 0, 9000),
        cut("r.redo", 5000),
        cut("r.redo", 12000),
        write("r.redo", 5000, 600),
        cut("r.redo", 0),
        write("r.redo", 100, 100),
    ];
    sound("truncate and regrow", Shape::default(), &[("a.db", 20000), ("r.redo", 0)], &ops);
}

#[test]
fn power_cut_in_a_rename_keeps_the_blocks_under_one_of_the_names() {
    let rename = |from, to| Op::Rename { from, to };
    let ops = [
        write("a.db", 0, 4096),
        rename("a.db", "b.db"),
        write("b.db", 4096, 4096),
        Op::Create { name: "a.db" },
        write("a.db", 0, 5000),
        rename("a.db", "b.db"),
        write("b.db", 0, 4096),
        Op::Link { from: "b.db", to: "c.db" },
        write("c.db", 4096, 4096),
        Op::Unlink { name: "b.db" },
        rename("r.redo", "s.redo"),
        write("s.redo", 300, 700),
    ];
    sound("rename and link", Shape::default(), &[("a.db", 8192), ("r.redo", 300)], &ops);
}

#[test]
fn power_cut_in_names_that_programs_change_leaves_each_old_or_new_and_each_file_whole() {
    let shape = Shape { units: 5, max_units: 5, redo_keep: 4096, ..Shape::default() };
    sound("names", shape, &[("a.db", 16384), ("b.db", 8192)], &names_of_programs());
}

#[test]
fn power_cut_after_a_kill_leaves_names_that_programs_changed_old_or_new() {
    let shape = Shape { units: 5, max_units: 5, redo_keep: 4096, ..Shape::default() };
    let run =
        Run::new(shape, &[("a.db", 16384), ("b.db", 8192)], &names_of_programs(), Planted::None);
    let report = explore_after_kill(&run, 60, 1, Planted::None);
    print_count("names, after a kill", &report);
    report.assert_sound();
}

#[test]
fn power_cut_in_an_unlink_leaves_the_whole_file_or_none() {
    let ops = [
        write("a.db", 0, 8192),
        write("b.db", 0, 4096),
        Op::Unlink { name: "a.db" },
        write("b.db", 4096, 4096),
        Op::Create { name: "a.db" },
        write("a.db", 0, 4096),
        write("b.db", 0, 4096),
        Op::Unlink { name: "b.db" },
        Op::Unlink { name: "a.db" },
        write("r.redo", 0, 5000),
        Op::Unlink { name: "r.redo" },
    ];
    sound("unlink", Shape::default(), &[("a.db", 8192), ("b.db", 8192), ("r.redo", 0)], &ops);
}

#[test]
fn power_cut_in_destaging_or_evicting_loses_nothing_and_clean_blocks_equal_home() {
    let ops = [
        write("a.db", 0, 12288),
        write("b.big", 8192, 8192),
        Op::Destage { name: "a.db" },
        write("a.db", 4096, 4096),
        Op::Evict,
        write("a.db", 4096, 4096),
        Op::Destage { name: "a.db" },
        Op::Destage { name: "b.big" },
        Op::Evict,
        write("a.db", 0, 4096),
        Op::Read { name: "a.db" },
        Op::Read { name: "b.big" },
        Op::Evict,
        write("a.db", 8192, 4096),
        Op::Background,
        write("a.db", 8192, 4096),
    ];
    sound("destage, evict, admit", Shape::default(), &[("a.db", 14000), ("b.big", 20000)], &ops);
}

#[test]
fn power_cut_with_a_full_tier_loses_nothing() {
    // Four units of 8 frames, one of them map pages; the files have twice as many blocks.
    let shape = Shape { units: 4, max_units: 4, ..Shape::default() };
    let mut ops = Vec::new();
    for n in 0..24u64 {
        ops.push(write("a.db", n * 4096, 4096));
        ops.push(write("b.big", n % 12 * 8192, 8192));
    }
    let run = Run::new(shape, &[("a.db", 24 * 4096), ("b.big", 12 * 8192)], &ops, Planted::None);
    let report = run.explore(150, 1, Planted::None);
    print_count("full tier", &report);
    report.assert_sound();
}

#[test]
fn power_cut_in_redo_appends_and_draining_keeps_every_acknowledged_byte() {
    let mut ops = Vec::new();
    for n in 0..20u64 {
        ops.push(write("r.redo", n * 1000, 1000));
        if n % 6 == 5 {
            ops.push(Op::Background);
        }
    }
    ops.extend([
        write("r.redo", 0, 512),
        write("r.redo", 4093, 9),
        Op::Destage { name: "r.redo" },
        write("r.redo", 2, 5),
        write("r.redo", 30000, 100),
        write("r.redo", 30100, 512),
        Op::Background,
    ]);
    sound("redo", Shape::default(), &[("r.redo", 0)], &ops);
}

#[test]
fn power_cut_in_writing_redo_again_that_went_home_keeps_every_acknowledged_byte() {
    let ops = [
        write("r.redo", 0, 20480),
        Op::Destage { name: "r.redo" },
        write("r.redo", 4096, 4096),
        write("r.redo", 8192, 12288),
        Op::Destage { name: "r.redo" },
        // Whole blocks between parts of others, beyond the end, and over the end.
        write("r.redo", 3000, 10000),
        Op::Destage { name: "r.redo" },
        write("r.redo", 16384, 9000),
        Op::Destage { name: "r.redo" },
        write("r.redo", 24576, 4096),
        write("r.redo", 30000, 100),
        Op::Background,
    ];
    for members in [1, 2] {
        let shape = Shape { members, ..Shape::default() };
        sound("redo again", shape, &[("r.redo", 0)], &ops);
    }
}

#[test]
fn power_cut_in_lending_writing_and_giving_back_keeps_every_acknowledged_byte() {
    let lent = |at, len| Op::KernelWrite { name: "w.redo", at, len };
    let ops = [
        write("w.redo", 0, 5000),
        Op::Lend { name: "w.redo" },
        lent(0, 3000),
        lent(6000, 6000),
        write("w.redo", 4000, 700),
        Op::Read { name: "w.redo" },
        Op::GiveBack { name: "w.redo" },
        write("w.redo", 0, 4096),
        lent(100, 5000),
        Op::Destage { name: "w.redo" },
        lent(8192, 4096),
        Op::Background,
        Op::Reopen,
        lent(0, 100),
        Op::GiveBack { name: "w.redo" },
        write("w.redo", 300, 100),
    ];
    sound("lend, write, give back", Shape::default(), &[("w.redo", 12288)], &ops);
}

#[test]
fn power_cut_in_changing_a_lent_file_leaves_it_before_or_after() {
    let lent = |name, at, len| Op::KernelWrite { name, at, len };
    let ops = [
        lent("w.redo", 0, 3000),
        Op::Truncate { name: "w.redo", size: 5000 },
        Op::Truncate { name: "w.redo", size: 9000 },
        write("w.redo", 9000, 700),
        Op::Punch { name: "w.redo", at: 100, len: 4000 },
        Op::Zero { name: "w.redo", at: 9000, len: 2000 },
        Op::Allocate { name: "w.redo", len: 12000 },
        Op::SetTime { name: "w.redo" },
        Op::Rename { from: "w.redo", to: "w2.redo" },
        lent("w2.redo", 0, 3000),
        Op::Link { from: "w2.redo", to: "w3.redo" },
        Op::Unlink { name: "w2.redo" },
        lent("w3.redo", 500, 500),
        Op::Pin { name: "w3.redo" },
        Op::Unpin { name: "w3.redo" },
        lent("w1.redo", 0, 300),
        Op::Rename { from: "w3.redo", to: "w1.redo" },
        lent("w1.redo", 0, 300),
        // A name of another class: it goes home whole, and begins anew.
        Op::Rename { from: "w1.redo", to: "a.db" },
        write("a.db", 0, 4096),
        Op::Create { name: "w.redo" },
        write("w.redo", 0, 4096),
        lent("w.redo", 10, 4000),
        Op::Unlink { name: "w.redo" },
        Op::Detach,
    ];
    let run =
        Run::new(Shape::default(), &[("w.redo", 8192), ("w1.redo", 4096)], &ops, Planted::None);
    let report = run.explore(200, 1, Planted::None);
    print_count("change a lent file", &report);
    report.assert_sound();
}

/// Homes at which a few changes, or one sync, take longer than recovery takes a change for ours
/// after it was announced.
fn slow_homes() -> [Shape; 2] {
    [(45_000, 0), (11_000, 130_000)].map(|(change_takes_ms, sync_takes_ms)| Shape {
        change_takes_ms,
        sync_takes_ms,
        ..Shape::default()
    })
}

#[test]
fn power_cut_while_scattered_blocks_go_to_a_home_that_takes_minutes_finds_home_as_ours() {
    let ops = [
        Op::Batch { name: "a.db", blocks: vec![0, 2, 4, 6, 8, 10] },
        Op::Destage { name: "a.db" },
        write("r.redo", 0, 20000),
        Op::Destage { name: "r.redo" },
        write("r.redo", 0, 100),
        write("r.redo", 9000, 100),
        write("r.redo", 17000, 100),
        Op::Flush,
    ];
    for shape in slow_homes() {
        let run = Run::new(shape, &[("a.db", 49152), ("r.redo", 0)], &ops, Planted::None);
        let report = run.explore(60, 1, Planted::None);
        print_count("scattered, slowly home", &report);
        report.assert_sound();
    }
}

#[test]
fn power_cut_while_ranges_of_a_home_that_takes_minutes_are_punched_finds_home_as_ours() {
    // Every other block is a hole already, so that home is cleared in many pieces.
    let hole = |block: u64| Op::Punch { name: "a.db", at: block * 4096, len: 4096 };
    let ops = [
        hole(1),
        hole(3),
        hole(5),
        Op::Punch { name: "a.db", at: 0, len: 28672 },
        write("a.db", 32768, 4096),
    ];
    for shape in slow_homes() {
        let run = Run::new(shape, &[("a.db", 49152)], &ops, Planted::None);
        let report = run.explore(60, 1, Planted::None);
        print_count("punched, slowly home", &report);
        report.assert_sound();
    }
}

#[test]
fn power_cut_while_a_lent_file_goes_to_a_home_that_takes_minutes_finds_home_as_ours() {
    const LEN: usize = 1 << 20;
    let ops = [
        Op::KernelWrite { name: "w.redo", at: 0, len: LEN },
        Op::GiveBack { name: "w.redo" },
        Op::KernelWrite { name: "w.redo", at: 100, len: LEN - 200 },
        Op::Destage { name: "w.redo" },
    ];
    for shape in slow_homes() {
        let run = Run::new(shape, &[("w.redo", LEN)], &ops, Planted::None);
        let report = run.explore(6, 1, Planted::None);
        print_count("slowly home", &report);
        report.assert_sound();
    }
}

#[test]
fn power_cut_in_recovering_lent_files_leaves_what_the_first_cut_left() {
    let lent = |at, len| Op::KernelWrite { name: "w.redo", at, len };
    let ops = [
        write("w.redo", 0, 5000),
        lent(0, 3000),
        Op::Truncate { name: "w.redo", size: 6000 },
        Op::GiveBack { name: "w.redo" },
        lent(0, 2000),
        Op::Destage { name: "w.redo" },
        lent(4096, 1000),
        Op::Unlink { name: "w.redo" },
    ];
    let run = Run::new(Shape::default(), &[("w.redo", 8192)], &ops, Planted::None);
    let again = crash_support::explore_recovery(&run, (8, 24), 1, Planted::None);
    print_count("recovery of lent files", &again);
    again.assert_sound();
    let killed = crash_support::explore_after_kill(&run, 12, 1, Planted::None);
    print_count("lent files after a kill", &killed);
    killed.assert_sound();
}

#[test]
fn power_cut_in_growing_leaves_a_tier_of_the_old_or_the_new_size() {
    for members in [1, 2] {
        let shape = Shape { members, units: 4, max_units: 7, ..Shape::default() };
        let ops = [
            write("a.db", 0, 16384),
            Op::Grow,
            write("a.db", 0, 60000),
            write("b.big", 0, 65536),
            Op::Grow,
            write("b.big", 32768, 65536),
            write("a.db", 4096, 4096),
        ];
        sound("grow", shape, &[("a.db", 16384), ("b.big", 8192)], &ops);
    }
}

#[test]
fn power_cut_in_attaching_or_detaching_leaves_a_home_that_attaches_or_is_plain() {
    let ops = [
        Op::Attach,
        write("a.db", 0, 8192),
        write("r.redo", 0, 5000),
        Op::Detach,
        Op::Attach,
        write("a.db", 0, 4096),
        Op::Reopen,
        write("a.db", 4096, 100),
        write("p.txt", 0, 100),
        Op::Reopen,
        Op::Detach,
    ];
    for members in [1, 2] {
        let shape = Shape { members, units: 4, max_units: 4, ..Shape::default() };
        sound("attach, detach", shape, &[("a.db", 8192), ("r.redo", 0), ("p.txt", 100)], &ops);
    }
}

#[test]
fn power_cut_in_attaching_or_detaching_leaves_no_home_aside_and_no_tier_in_use_without_the_note_that_says_so()
 {
    let ops = [
        Op::Attach,
        write("a.db", 0, 8192),
        write("r.redo", 0, 5000),
        Op::Detach,
        Op::Attach,
        write("a.db", 0, 4096),
        Op::Detach,
    ];
    for (tiers, members) in [(Tiers::One, 1), (Tiers::One, 2), (Tiers::RedoBesideData, 1)] {
        let shape = Shape { tiers, members, ..Shape::default() };
        let run = Run::new(shape, &[("a.db", 8192), ("r.redo", 0)], &ops, Planted::None);
        let report = explore_plain(&run, 100, 1);
        print_count("attach, detach: what says what", &report);
        report.assert_sound();
    }
}

#[test]
fn power_cut_in_pinning_keeps_the_file() {
    let ops = [
        write("a.db", 0, 4096),
        Op::Pin { name: "a.db" },
        write("a.db", 4096, 4096),
        write("b.big", 0, 16384),
        Op::Background,
        Op::Unpin { name: "a.db" },
        Op::Destage { name: "a.db" },
    ];
    sound("pin", Shape::default(), &[("a.db", 12288), ("b.big", 16384)], &ops);
}

#[test]
fn power_cut_during_recovery_leaves_what_the_first_cut_left() {
    let ops = [
        write("a.db", 0, 4096),
        write("a.db", 0, 4096),
        write("a.db", 4096, 4096),
        Op::Batch { name: "a.db", blocks: vec![0, 1, 3] },
        write("a.db", 14000, 4000),
        Op::Truncate { name: "a.db", size: 9000 },
        write("r.redo", 0, 6000),
        Op::Destage { name: "a.db" },
        write("a.db", 0, 4096),
        Op::Unlink { name: "a.db" },
    ];
    let run = Run::new(
        Shape { units: 4, max_units: 4, ..Shape::default() },
        &[("a.db", 12288), ("r.redo", 0)],
        &ops,
        Planted::None,
    );
    let report = crash_support::explore_recovery(&run, (24, 40), 1, Planted::None);
    print_count("recovery", &report);
    report.assert_sound();
}

#[test]
fn two_members_are_as_safe_as_one() {
    let ops = [
        write("a.db", 0, 20000),
        Op::Batch { name: "a.db", blocks: vec![0, 4, 1] },
        write("b.big", 0, 16384),
        write("r.redo", 0, 9000),
        Op::Destage { name: "b.big" },
        Op::Evict,
        write("b.big", 8192, 8192),
        Op::Truncate { name: "a.db", size: 5000 },
        write("a.db", 0, 4096),
        Op::Unlink { name: "b.big" },
        Op::Background,
    ];
    let shape = Shape { members: 2, units: 4, max_units: 4, lanes: 4, ..Shape::default() };
    sound("two members", shape, &[("a.db", 20000), ("b.big", 16384), ("r.redo", 0)], &ops);
}

#[test]
fn power_cut_after_a_kill_and_its_recovery_takes_nothing_back() {
    let ops = [
        write("a.db", 0, 8192),
        Op::Destage { name: "a.db" },
        write("a.db", 4096, 4096),
        Op::Truncate { name: "a.db", size: 3000 },
        Op::Truncate { name: "a.db", size: 9000 },
        write("b.big", 0, 16384),
        Op::Destage { name: "b.big" },
        Op::Truncate { name: "b.big", size: 8192 },
        write("r.redo", 0, 6000),
        Op::Background,
        Op::Rename { from: "a.db", to: "c.db" },
        Op::Unlink { name: "b.big" },
    ];
    let files = [("a.db", 12288), ("b.big", 16384), ("c.db", 5000), ("r.redo", 0)];
    let run = Run::new(Shape { redo_keep: 0, ..Shape::default() }, &files, &ops, Planted::None);
    let report = crash_support::explore_after_kill(&run, 40, 1, Planted::None);
    print_count("kill, recovery, power cut", &report);
    report.assert_sound();
}

#[test]
fn power_cut_in_clearing_a_range_leaves_each_block_old_or_zero() {
    let punch = |name, at, len| Op::Punch { name, at, len };
    let zero = |name, at, len| Op::Zero { name, at, len };
    let ops = [
        write("a.db", 0, 4096),
        punch("a.db", 0, 8192),
        write("a.db", 0, 4096),
        Op::Destage { name: "a.db" },
        punch("a.db", 100, 9000),
        zero("a.db", 12288, 8000),
        write("a.db", 16384, 100),
        Op::Read { name: "a.db" },
        zero("a.db", 4096, 4096),
        Op::Destage { name: "a.db" },
        punch("b.big", 8192, 8192),
        write("b.big", 8192, 8192),
        Op::Destage { name: "b.big" },
        punch("b.big", 0, 100_000),
        write("r.redo", 0, 6000),
        punch("r.redo", 1000, 4000),
        zero("r.redo", 5000, 3000),
        Op::Background,
        Op::Evict,
        punch("a.db", 0, 30000),
    ];
    sound(
        "clear ranges",
        Shape::default(),
        &[("a.db", 16384), ("b.big", 20000), ("r.redo", 0)],
        &ops,
    );
}

#[test]
fn power_cut_after_reserving_space_or_setting_times_finds_home_as_ours() {
    let ops = [
        write("a.db", 0, 4096),
        Op::Allocate { name: "a.db", len: 40960 },
        write("a.db", 4096, 4096),
        Op::SetTime { name: "a.db" },
        Op::Destage { name: "a.db" },
        write("a.db", 0, 4096),
        Op::Allocate { name: "a.db", len: 40960 },
        Op::Truncate { name: "a.db", size: 6000 },
        Op::Allocate { name: "a.db", len: 40960 },
        Op::SetTime { name: "a.db" },
        Op::Reopen,
        write("a.db", 0, 4096),
        Op::SetTime { name: "a.db" },
        Op::Destage { name: "a.db" },
        Op::Allocate { name: "r.redo", len: 40960 },
        write("r.redo", 0, 6000),
        Op::SetTime { name: "r.redo" },
        Op::Destage { name: "r.redo" },
        write("r.redo", 6000, 600),
    ];
    sound("reserve and times", Shape::default(), &[("a.db", 16384), ("r.redo", 0)], &ops);
}

#[test]
fn power_cut_after_the_clock_was_set_back_finds_home_as_ours() {
    let ops = [
        write("a.db", 0, 4096),
        // The line goes on saying that home is being changed.
        Op::DestageFails { name: "a.db" },
        Op::ClockBack,
        Op::Destage { name: "a.db" },
        write("a.db", 8192, 4096),
        Op::Allocate { name: "a.db", len: 40960 },
        Op::ClockBack,
        Op::Truncate { name: "a.db", size: 10000 },
        write("r.redo", 0, 6000),
        Op::DestageFails { name: "r.redo" },
        Op::ClockBack,
        Op::Destage { name: "r.redo" },
        Op::KernelWrite { name: "w.redo", at: 0, len: 3000 },
        Op::DestageFails { name: "w.redo" },
        Op::ClockBack,
        Op::Destage { name: "w.redo" },
        Op::SetTime { name: "a.db" },
        Op::DestageFails { name: "a.db" },
        Op::ClockBack,
        Op::Punch { name: "a.db", at: 0, len: 4096 },
    ];
    let files = [("a.db", 16384), ("r.redo", 0), ("w.redo", 4096)];
    let run = Run::new(Shape::default(), &files, &ops, Planted::None);
    let report = run.explore(120, 1, Planted::None);
    print_count("clock set back", &report);
    report.assert_sound();
}

#[test]
fn power_cut_in_an_exchange_of_names_keeps_the_blocks_with_their_files() {
    let exchange = |from, to| Op::Exchange { from, to };
    let ops = [
        write("a.db", 0, 4096),
        write("b.db", 4096, 4096),
        exchange("a.db", "b.db"),
        write("a.db", 0, 4096),
        exchange("a.db", "r.redo"),
        write("a.db", 0, 700),
        Op::Destage { name: "a.db" },
        exchange("r.redo", "b.db"),
        write("r.redo", 4096, 4096),
        Op::Reopen,
        write("b.db", 0, 4096),
        exchange("a.db", "p.txt"),
        write("a.db", 0, 100),
        write("p.txt", 0, 100),
    ];
    let files = [("a.db", 8192), ("b.db", 8192), ("r.redo", 300), ("p.txt", 5000)];
    sound("exchange", Shape::default(), &files, &ops);
}

#[test]
fn power_cut_after_a_kill_in_clearing_and_exchanging_takes_nothing_back() {
    let ops = [
        write("a.db", 0, 8192),
        Op::Allocate { name: "a.db", len: 40960 },
        Op::Destage { name: "a.db" },
        Op::Punch { name: "a.db", at: 0, len: 8192 },
        write("a.db", 0, 4096),
        Op::Exchange { from: "a.db", to: "b.db" },
        Op::SetTime { name: "b.db" },
        Op::Zero { name: "b.db", at: 0, len: 14000 },
        Op::Allocate { name: "b.db", len: 40960 },
        write("a.db", 0, 100),
    ];
    let run = Run::new(Shape::default(), &[("a.db", 12288), ("b.db", 8192)], &ops, Planted::None);
    let report = crash_support::explore_after_kill(&run, 40, 1, Planted::None);
    print_count("kill, recovery, power cut among ranges", &report);
    report.assert_sound();
}

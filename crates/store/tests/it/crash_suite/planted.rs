//! The tests of the tests: every planted bug must be caught by the crash suite. A bug that is not
//! caught is a hole in it.
//!
//! Those that need two threads are in `crash_suite/threads.rs`. `TIERSMITH_PLANTED=NAME` tries one
//! alone.

#[allow(unreachable_pub, reason = "shared by several test binaries")]
use crate::crash_support::{
    Op, Run, Shape, Tiers, explore_after_kill, explore_recovery, names_of_programs, script, write,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use tiersmith_store::Planted;

/// Images of each cut that are tried first.
const FEW: usize = 16;

/// One script that uses every operation, so that most bugs show at once.
fn everything() -> Vec<Op> {
    vec![
        write("a.db", 0, 4096),
        write("a.db", 0, 4096),
        write("a.db", 4096, 4096),
        write("a.db", 0, 4096),
        Op::Batch { name: "a.db", blocks: vec![0, 1, 3] },
        Op::Batch { name: "a.db", blocks: vec![1, 2] },
        Op::Batch { name: "a.db", blocks: vec![0, 3] },
        Op::Batch { name: "a.db", blocks: vec![2, 3] },
        write("a.db", 8192, 4096),
        write("r.redo", 0, 5000),
        write("r.redo", 5000, 700),
        Op::Destage { name: "a.db" },
        write("a.db", 8192, 4096),
        Op::Evict,
        Op::Read { name: "a.db" },
        Op::Evict,
        write("b.big", 0, 8192),
        Op::Read { name: "b.big" },
        Op::Truncate { name: "a.db", size: 4096 },
        Op::Truncate { name: "a.db", size: 16384 },
        write("b.big", 0, 8192),
        Op::Create { name: "c.db" },
        write("c.db", 0, 9000),
        Op::Unlink { name: "b.big" },
        write("c.db", 0, 4096),
        Op::Background,
        write("r.redo", 5700, 4000),
        Op::Truncate { name: "r.redo", size: 9000 },
        Op::Truncate { name: "r.redo", size: 9700 },
        Op::Destage { name: "c.db" },
        Op::Punch { name: "c.db", at: 0, len: 8192 },
        write("c.db", 0, 4096),
        write("w.redo", 0, 3000),
        Op::Lend { name: "w.redo" },
        Op::KernelWrite { name: "w.redo", at: 100, len: 3000 },
        Op::Truncate { name: "w.redo", size: 2000 },
        Op::GiveBack { name: "w.redo" },
        write("a.db", 0, 4096),
        Op::Detach,
        Op::Attach,
    ]
}

/// More files than the six slots of the table: closed files leave, and while all are open the table
/// grows.
fn full_table() -> Vec<Op> {
    let mut ops = vec![write("a.db", 0, 4096), write("b.big", 100, 300), write("r.redo", 0, 700)];
    for name in ["c.db", "d.db", "e.db", "f.db"] {
        ops.extend([Op::Create { name }, write(name, 0, 4096)]);
    }
    let open = ["a.db", "b.big", "c.db", "d.db", "e.db", "f.db"];
    ops.extend(open.into_iter().map(|name| Op::Hold { name }));
    ops.extend([Op::Create { name: "g.db" }, write("g.db", 0, 4096), write("a.db", 0, 4096)]);
    ops
}

/// More files open than there are frames for their map pages, and hardly a block in the tier: what
/// runs short is pages.
fn full_of_maps() -> Vec<Op> {
    let names = [
        "c.db", "d.db", "e.db", "f.db", "g.db", "h.db", "i.db", "j.db", "k.db", "l.db", "m.db",
        "n.db", "o.db", "p.db", "q.db", "r.db", "s.db", "t.db", "u.db", "v.db",
    ];
    let each = |name| {
        [
            Op::Create { name },
            Op::Hold { name },
            write(name, 0, 600),
            Op::Destage { name },
            Op::Evict,
        ]
    };
    names.into_iter().flat_map(each).collect()
}

/// Few enough words in flight that every image of the last write is tried: a record that arrives in
/// parts over an old one.
fn few_words() -> Vec<Op> {
    let mut ops = vec![Op::Create { name: "c.db" }];
    // Records 1 and 2; after reopening record 1 of "c.db" goes where record 1 was.
    ops.extend([write("a.db", 0, 4096), write("a.db", 0, 4096)]);
    ops.push(Op::Reopen);
    ops.extend((0..6).map(|_| write("c.db", 0, 8)));
    ops
}

/// Whether the suite notices the bug: a violation after some cut, or a run that fails by itself.
fn caught(bug: Planted, tiers: Tiers) -> Option<String> {
    let files: &[(&'static str, usize)] =
        &[("a.db", 16384), ("b.big", 16384), ("r.redo", 0), ("w.redo", 4096)];
    let names = (vec![("a.db", 16384), ("b.db", 8192)], names_of_programs());
    let written =
        [everything(), few_words(), full_table(), full_of_maps()].map(|ops| (files.to_vec(), ops));
    let written = written.into_iter().chain([names]);
    let tries = written.chain((1..40).map(|seed| script(seed, 24)));
    // Only a tier full of map pages shows the first, only a door's names the next, and only a
    // random script the last: what comes before takes long to show nothing.
    let first = match (bug, tiers) {
        (Planted::MapPageFreedEarly, _) => 3,
        (Planted::MadeUndoubted | Planted::NameNotSynced | Planted::RemovedFreedEarly, _) => 4,
        (Planted::ReuseTooEarly, Tiers::OnSectors) => 4,
        (Planted::BatchOneByOne | Planted::BatchRetiredEarly, Tiers::One) => 5,
        (Planted::ReuseTooEarly, Tiers::One) => 6,
        _ => 0,
    };
    for (n, (files, ops)) in tries.enumerate().skip(first) {
        let lanes = if n == 1 { 1 } else { 2 };
        let units = if n == 3 { 4 } else { 5 };
        let shape =
            Shape { tiers, units, max_units: units, redo_keep: 4096, lanes, ..Shape::default() };
        let found = catch_unwind(AssertUnwindSafe(|| {
            let run = Run::new(shape, &files, &ops, bug);
            let seed = n as u64 + 1;
            let images_per_cut = [200, 3000, 200, 12, 400].get(n).copied().unwrap_or(200);
            // What a few images of each cut show need not wait for all images of the cuts before.
            let mut violations = run.explore(images_per_cut.min(FEW), seed, bug).violations;
            if violations.is_empty() {
                violations = run.explore(images_per_cut, seed, bug).violations;
            }
            if violations.is_empty() && n == 0 {
                violations = explore_after_kill(&run, 40, seed, bug).violations;
            }
            violations.first().map(ToString::to_string)
        }));
        match found {
            Ok(None) => {}
            Ok(Some(violation)) => return Some(format!("script {n}: {violation}")),
            Err(panic) => {
                let said =
                    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "a panic".into());
                return Some(format!("script {n}: the run itself failed: {said}"));
            }
        }
    }
    None
}

#[test]
fn the_crash_suite_catches_every_planted_bug() {
    all_are_caught(&of_one_thread(), Tiers::One);
}

#[test]
fn the_crash_suite_catches_every_planted_bug_with_the_blocks_on_a_device() {
    let mut bugs = [&Planted::ON_SECTORS[..], &of_one_thread()].concat();
    // There a block is durable before the record that speaks of it, so its checksum decides
    // nothing.
    bugs.retain(|bug| ![Planted::SkipBlockChecksum, Planted::SkipBatchChecksum].contains(bug));
    // And a batch takes three fences.
    bugs.retain(|bug| !Planted::AT_ONCE.contains(bug));
    all_are_caught(&bugs, Tiers::OnSectors);
}

/// Those of the others that show on flash. What is left leaves out a fence, a flush or a checksum
/// that a log does without: it keeps the order of all stores, and its records have the checksums of
/// their blocks.
const ALSO_ON_FLASH: [Planted; 17] = [
    Planted::ReuseTooEarly,
    Planted::PointerBeforeBlock,
    Planted::EvictWithoutRetire,
    Planted::DestageWithoutSync,
    Planted::SizeNotDurable,
    Planted::AdmitPointerFirst,
    Planted::TruncateHomeFirst,
    Planted::TruncateKeepsEntries,
    Planted::UnlinkFreesFirst,
    Planted::MapPageLinkedFirst,
    Planted::MapPageFreedEarly,
    Planted::SlotInUseFirst,
    Planted::PunchHomeFirst,
    Planted::LentBeforeSync,
    Planted::GivenBackBeforeSync,
    Planted::DoorOpenedEarly,
    Planted::DoorClosedFirst,
];

#[test]
fn the_crash_suite_catches_every_planted_bug_on_flash() {
    let bugs = [&Planted::ON_FLASH[..], &ALSO_ON_FLASH].concat();
    all_are_caught(&bugs, Tiers::OnFlash);
}

/// Cuts in a truncation that leaves a part of a block, and cuts in the recovery from them.
#[test]
fn what_is_planted_in_the_recovery_of_a_last_block_is_caught() {
    let ops = [write("a.db", 8192, 4096), Op::Truncate { name: "a.db", size: 9000 }];
    let run = Run::new(Shape::default(), &[("a.db", 12288)], &ops, Planted::None);
    let violations = |bug| {
        let once = run.explore(40, 1, bug).violations;
        if once.is_empty() { explore_recovery(&run, (6, 40), 1, bug).violations } else { once }
    };
    assert!(violations(Planted::None).is_empty());
    for bug in Planted::TAILS {
        let found = violations(bug);
        println!("{bug:?}: {:?}", found.first().map(ToString::to_string));
        assert!(!found.is_empty(), "the suite does not notice {bug:?}");
    }
}

fn of_one_thread() -> Vec<Planted> {
    Planted::ALL.into_iter().filter(|bug| !Planted::BETWEEN_THREADS.contains(bug)).collect()
}

fn all_are_caught(bugs: &[Planted], tiers: Tiers) {
    let only = std::env::var("TIERSMITH_PLANTED").ok();
    let wanted = |bug: &Planted| only.as_ref().is_none_or(|name| *name == format!("{bug:?}"));
    let bugs: Vec<Planted> = bugs.iter().copied().filter(wanted).collect();
    let mut missed = Vec::new();
    for &bug in &bugs {
        match caught(bug, tiers) {
            Some(how) => println!(
                "{bug:?}: caught: {}",
                how.lines().next().unwrap_or_default().chars().take(160).collect::<String>()
            ),
            None => {
                println!("{bug:?}: NOT caught");
                missed.push(bug);
            }
        }
    }
    println!("planted bugs: {} caught, {} missed", bugs.len() - missed.len(), missed.len());
    assert!(missed.is_empty(), "the suite does not notice {missed:?}");
}

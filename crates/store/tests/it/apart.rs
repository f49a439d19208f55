//! Media that take their time: a block is written without its lane, and its entry is switched if
//! nothing moved meanwhile.
//!
//! Here a mapping stands for one. What threads do to each other's blocks meanwhile is tried by
//! chance, as often as it takes for the planted bugs to show; `crash_suite/random.rs` cuts the
//! power of such tiers.

#[allow(unreachable_pub, reason = "shared by several test binaries")]
use crate::crash_support::{Op, Run, Shape, print_count};
use crate::place;
use crate::place::Place;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tiersmith_store::{AttachedHome, File, OpenMode, Options, Planted, attach, testing};

const BLOCK: usize = 8192;
/// How long a write of a block takes: others run meanwhile.
const MOMENT: Duration = Duration::from_micros(10);

fn home(place: &Place, planted: Planted) -> AttachedHome {
    let options = Options { planted, ..place::options() };
    testing::apart(MOMENT, || attach(&place.home(), &[place.tier(1 << 20)], options)).unwrap()
}

/// Destages and evicts until `done`.
fn moves_blocks(home: &AttachedHome, done: &AtomicBool) {
    while !done.load(SeqCst) {
        home.destage(Some(Path::new("a.d8"))).unwrap();
        home.evict(None, 1).unwrap();
        std::thread::yield_now();
    }
}

fn word(file: &File, at: usize) -> u64 {
    let mut bytes = [0; 8];
    file.read(at as u64, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

/// Four threads count, each in a word of its own of one block. Whether a count was ever lost,
/// within so long.
fn parts_of_a_block_are_lost(planted: Planted, patience: Duration) -> bool {
    let place = Place::in_memory();
    let home = home(&place, planted);
    let file = home.open("a.d8", OpenMode::CREATE).unwrap();
    file.write(0, &[0; BLOCK]).unwrap();
    let (done, lost, begun) = (AtomicBool::new(false), AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let counts: Vec<_> = (0..4)
            .map(|n| {
                let (file, done, lost) = (&file, &done, &lost);
                scope.spawn(move || {
                    let at = n * 2000;
                    let mut count = 0_u64;
                    while !lost.load(SeqCst) && begun.elapsed() < patience {
                        count += 1;
                        file.write(at as u64, &count.to_le_bytes()).unwrap();
                        if word(file, at) != count {
                            lost.store(true, SeqCst);
                        }
                    }
                    done.store(true, SeqCst);
                })
            })
            .collect();
        scope.spawn(|| moves_blocks(&home, &done));
        let _done = place::Done(&done);
        counts.into_iter().for_each(|thread| thread.join().unwrap());
    });
    lost.load(SeqCst)
}

/// One thread writes a block, others read it, which admits it. Whether an old version ever came
/// back, within so long.
fn an_old_version_comes_back(planted: Planted, patience: Duration) -> bool {
    let place = Place::in_memory();
    let home = home(&place, planted);
    let file = home.open("a.d8", OpenMode::CREATE).unwrap();
    let written = AtomicU64::new(0);
    let (done, old, begun) = (AtomicBool::new(false), AtomicBool::new(false), Instant::now());
    file.write(0, &[0; BLOCK]).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(SeqCst) {
                    let before = written.load(SeqCst);
                    if word(&file, 64) < before {
                        old.store(true, SeqCst);
                    }
                }
            });
        }
        scope.spawn(|| moves_blocks(&home, &done));
        let _done = place::Done(&done);
        for version in 1_u64.. {
            if old.load(SeqCst) || begun.elapsed() >= patience {
                break;
            }
            file.write(0, version.to_le_bytes().repeat(BLOCK / 8).as_slice()).unwrap();
            written.store(version, SeqCst);
        }
    });
    old.load(SeqCst)
}

#[test]
fn parts_of_one_block_that_many_write_are_all_there() {
    assert!(!parts_of_a_block_are_lost(Planted::None, Duration::from_secs(2)));
}

#[test]
fn a_block_that_is_admitted_while_it_is_written_keeps_its_newest_version() {
    assert!(!an_old_version_comes_back(Planted::None, Duration::from_secs(2)));
}

#[test]
fn what_is_planted_between_threads_shows() {
    for bug in Planted::APART {
        let shows = match bug {
            Planted::PartOverMoved => parts_of_a_block_are_lost(bug, Duration::from_secs(60)),
            _ => an_old_version_comes_back(bug, Duration::from_secs(60)),
        };
        assert!(shows, "{bug:?} does not show");
    }
}

#[test]
fn power_cut_where_blocks_are_written_apart_keeps_every_promise() {
    let write = |name, at, len| Op::Write { name, at, len };
    let ops = [
        write("a.db", 0, 4096),
        write("a.db", 0, 4096),
        write("a.db", 100, 200),
        write("a.db", 4000, 5000),
        Op::Batch { name: "a.db", blocks: vec![0, 1, 3] },
        Op::Destage { name: "a.db" },
        Op::Evict,
        Op::Read { name: "a.db" },
        write("a.db", 200, 100),
        Op::Truncate { name: "a.db", size: 5000 },
        write("a.db", 16384, 100),
        write("r.redo", 0, 5000),
        write("r.redo", 5000, 700),
        Op::Background,
        Op::Reopen,
        write("a.db", 4096, 4096),
        Op::Detach,
    ];
    let shape = Shape { units: 5, max_units: 5, apart: true, ..Shape::default() };
    let run = Run::new(shape, &[("a.db", 16384), ("r.redo", 300)], &ops, Planted::None);
    let report = run.explore(300, 1, Planted::None);
    print_count("apart", &report);
    report.assert_sound();
}

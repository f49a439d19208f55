//! What is counted of reads and writes, by file and by class: each block that missed is a clean
//! copy in the end, or was skipped for one reason that is named; and the sums agree.
//!
//! Deliberately absent: whether the decisions are good (`benches/hit_ratio`).

use crate::place::{self, Place};
use std::path::Path;
use tiersmith_store::{
    AttachedHome, CacheRules, FileClass, FileUse, OpenMode, Options, Skip, attach, waits,
};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 8192;

fn usage_of(attached: &AttachedHome, path: &str) -> FileUse {
    attached.files().into_iter().find(|file| file.path == Path::new(path)).unwrap().usage
}

fn skipped(usage: &FileUse, skip: Skip) -> u64 {
    usage.skips[skip as usize]
}

/// Of each file the misses are accounted for, and the files' sums are what their class has.
fn assert_agrees(attached: &AttachedHome) {
    let (files, stats) = (attached.files(), attached.stats());
    for class in [FileClass::Data, FileClass::Redo] {
        let mut sum = FileUse::default();
        for file in files.iter().filter(|file| file.class == class) {
            let usage = &file.usage;
            let seen_to = usage.inserts + usage.skips.iter().sum::<u64>();
            assert_eq!(usage.misses, seen_to, "{}: {usage:?}", file.path.display());
            sum.hits += usage.hits;
            sum.misses += usage.misses;
            sum.inserts += usage.inserts;
            sum.skips.iter_mut().zip(usage.skips).for_each(|(sum, n)| *sum += n);
            sum.aged_out += usage.aged_out;
            sum.invalidated += usage.invalidated;
            sum.bytes_written += usage.bytes_written;
        }
        assert_eq!(stats.usage(class), sum, "{class}");
    }
    assert_eq!(stats.usage(FileClass::Pass), FileUse::default());
}

#[test]
fn hits_misses_inserts_and_bytes_are_counted_of_each_file_and_of_its_class() {
    let place = Place::new();
    for name in ["a.d8", "b.d8", "c.redo"] {
        std::fs::write(place.home().join(name), place::pattern(1, 0, 8 * BLOCK)).unwrap();
    }
    let attached = attach(&place.home(), &[place.tier(2 * MIB)], place::options()).unwrap();
    let open = |name| attached.open(name, OpenMode::WRITE).unwrap();
    let (a, b, redo) = (open("a.d8"), open("b.d8"), open("c.redo"));
    let mut block = [0; BLOCK];
    for n in 0..4 {
        a.read(n * BLOCK as u64, &mut block).unwrap();
    }
    a.read(0, &mut block).unwrap();
    drop(a.read_ref(0).unwrap());
    b.write(100, &[1; 10]).unwrap();
    b.write_batch(&[(BLOCK as u64, &block), (2 * BLOCK as u64, &block)]).unwrap();
    b.read(0, &mut block).unwrap();
    redo.read(0, &mut block[..4096]).unwrap();
    redo.write(0, &[1; 512]).unwrap();
    redo.read(0, &mut block[..512]).unwrap();

    let of_a = usage_of(&attached, "a.d8");
    assert_eq!((of_a.hits, of_a.misses, of_a.inserts), (2, 4, 4));
    assert_eq!(of_a.bytes_written, 4 * BLOCK as u64, "the clean copies");
    let of_b = usage_of(&attached, "b.d8");
    assert_eq!((of_b.hits, of_b.misses, of_b.inserts), (1, 0, 0));
    assert_eq!(of_b.bytes_written, 3 * BLOCK as u64, "whole blocks, also for ten bytes");
    let of_redo = usage_of(&attached, "c.redo");
    assert_eq!((of_redo.hits, of_redo.misses, of_redo.bytes_written), (1, 1, 512));
    assert_eq!(skipped(&of_redo, Skip::Outside), 1);
    assert_agrees(&attached);

    assert_eq!(attached.evict(Some(Path::new("a.d8")), u64::MAX).unwrap(), 4);
    assert_eq!(usage_of(&attached, "a.d8").aged_out, 4);
    assert_agrees(&attached);
    drop((a, b, redo));
    attached.detach().unwrap();
}

#[test]
fn a_skip_says_scan_rule_no_room_first_request_or_requested_too_long_ago() {
    const BLOCKS: u64 = 512;
    let place = Place::new();
    for name in ["a.d8", "rule.d8"] {
        let plain = place::pattern(1, 0, BLOCKS as usize * BLOCK);
        std::fs::write(place.home().join(name), plain).unwrap();
    }
    let cache = CacheRules::parse(["none=rule.d8"]).unwrap();
    let options = Options { cache, ..place::options() };
    let attached = attach(&place.home(), &[place.tier(2 * MIB)], options).unwrap();
    let file = attached.open("a.d8", OpenMode::READ).unwrap();
    let by_rule = attached.open("rule.d8", OpenMode::READ).unwrap();
    let mut block = [0; BLOCK];
    by_rule.read(0, &mut block).unwrap();
    assert_eq!(skipped(&usage_of(&attached, "rule.d8"), Skip::Rule), 1);
    for n in 0..64 {
        file.read(n * BLOCK as u64, &mut block).unwrap();
    }
    let usage = usage_of(&attached, "a.d8");
    assert_eq!(skipped(&usage, Skip::Scan), 64 - 16, "{usage:?}");
    // Round by round in an order that is no scan: the tier becomes full, and what comes again after
    // a whole round comes too late.
    for n in 0..4 * BLOCKS {
        file.read(n * 203 % BLOCKS * BLOCK as u64, &mut block).unwrap();
        if n > BLOCKS / 2 {
            attached.background_step().unwrap();
        }
    }
    let usage = usage_of(&attached, "a.d8");
    for skip in [Skip::NoRoom, Skip::First, Skip::Rare] {
        assert!(skipped(&usage, skip) > 0, "{}: {usage:?}", skip.name());
    }
    assert!(usage.aged_out > 0 && usage.hits > 0, "{usage:?}");
    assert_agrees(&attached);
    drop((file, by_rule));
    attached.detach().unwrap();
}

#[test]
fn what_the_background_admits_or_leaves_is_accounted_for_when_it_is_done() {
    let place = Place::new();
    std::fs::write(place.home().join("a.d8"), place::pattern(1, 0, 40 * BLOCK)).unwrap();
    let options = Options { background: true, ..place::options() };
    let attached = attach(&place.home(), &[place.tier(2 * MIB)], options).unwrap();
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    for n in 0..400_u64 {
        // In parts, so that a block waits already when it is read again.
        let at = n * 7 % 40 * BLOCK as u64;
        assert_eq!(file.read(at, &mut [0; 100]).unwrap(), 100);
        assert_eq!(file.read(at + 100, &mut [0; 100]).unwrap(), 100);
    }
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let is_done = || {
        let usage = usage_of(&attached, "a.d8");
        usage.misses == usage.inserts + usage.skips.iter().sum::<u64>()
    };
    while !is_done() && std::time::Instant::now() < end {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let usage = usage_of(&attached, "a.d8");
    assert!(usage.inserts > 0 && usage.hits + usage.misses == 800, "{usage:?}");
    assert_agrees(&attached);
    drop(file);
    attached.detach().unwrap();
}

#[test]
fn copies_that_home_was_written_past_are_invalidated() {
    let place = Place::new();
    std::fs::write(place.home().join("a.d8"), place::pattern(1, 0, 8 * BLOCK)).unwrap();
    let spec = tiersmith_store::TierSpec {
        medium: tiersmith_store::Medium::Volatile,
        ..place.tier(2 * MIB)
    };
    let attached = attach(&place.home(), &[spec], place::options()).unwrap();
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    let mut block = [0; BLOCK];
    for n in 0..4 {
        file.read(n * BLOCK as u64, &mut block).unwrap();
    }
    file.write(0, &[2; 2 * BLOCK]).unwrap();
    let usage = usage_of(&attached, "a.d8");
    assert_eq!((usage.inserts, usage.invalidated, usage.aged_out), (4, 2, 0));
    assert_eq!(usage.bytes_written, 4 * BLOCK as u64, "what goes past the tier is not in it");
    assert_eq!(attached.events().read().counter(waits::INVALIDATED), 2);
    assert_agrees(&attached);
    drop(file);
    attached.detach().unwrap();
}

#[test]
fn misses_are_counted_while_the_file_is_written() {
    const BLOCKS: usize = 12_288;
    for medium in [tiersmith_store::Medium::Volatile, tiersmith_store::Medium::Emulated] {
        let place = Place::in_memory();
        let file = std::fs::File::create(place.home().join("a.d8")).unwrap();
        file.set_len((BLOCKS * BLOCK) as u64).unwrap();
        let spec = tiersmith_store::TierSpec { medium, ..place.tier(16 * MIB) };
        let options = Options {
            home_model: tiersmith_store::HomeModel::named("cloud-network-volume"),
            ..place::options()
        };
        let attached = attach(&place.home(), &[spec], options).unwrap();
        let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let _done = place::Done(&stop);
            let _ = scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    file.write(0, &[1; 100]).unwrap();
                    attached.background_step().unwrap();
                }
            });
            let mut block = [0; BLOCK];
            for n in 0..200 {
                file.read(((1 + n * 203 % (BLOCKS - 1)) * BLOCK) as u64, &mut block).unwrap();
            }
        });
        let usage = attached.stats().usage(FileClass::Data);
        assert_eq!(usage.hits + usage.misses, 200, "{medium:?}");
    }
}

#[test]
fn copies_that_are_cut_off_are_invalidated() {
    let place = Place::in_memory();
    std::fs::write(place.home().join("a.d8"), vec![1; 8 * BLOCK]).unwrap();
    let spec = tiersmith_store::TierSpec {
        medium: tiersmith_store::Medium::Volatile,
        ..place.tier(16 * MIB)
    };
    let attached = attach(&place.home(), &[spec], place::options()).unwrap();
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    for n in 0..8 {
        file.read(n * BLOCK as u64, &mut [0; BLOCK]).unwrap();
    }
    file.truncate(0).unwrap();
    let usage = attached.stats().usage(FileClass::Data);
    assert_eq!((usage.inserts, usage.invalidated + usage.aged_out), (8, 8));
}

#[test]
fn a_read_of_several_blocks_is_one_request_that_was_optimized() {
    let place = Place::new();
    std::fs::write(place.home().join("a.d8"), place::pattern(1, 0, 8 * BLOCK)).unwrap();
    let attached = attach(&place.home(), &[place.tier(2 * MIB)], place::options()).unwrap();
    let file = attached.open("a.d8", OpenMode::READ).unwrap();
    let mut blocks = vec![0; 5 * BLOCK];
    file.read(0, &mut blocks[..4 * BLOCK]).unwrap();
    let more = || attached.events().read().counter(waits::MORE_HITS);
    assert_eq!(more(), 0, "all of them missed");
    file.read(0, &mut blocks[..BLOCK]).unwrap();
    assert_eq!(more(), 0, "one block");
    file.read(0, &mut blocks).unwrap();
    let hits = attached.stats().usage(FileClass::Data).hits;
    assert_eq!((hits, more()), (5, 3), "two requests: of one block, and of four and one of home");
}

#[test]
fn copies_of_what_is_cleared_are_invalidated_and_what_the_tier_had_no_copy_of_is_not() {
    let place = Place::new();
    std::fs::write(place.home().join("a.d8"), place::pattern(1, 0, 8 * BLOCK)).unwrap();
    let attached = attach(&place.home(), &[place.tier(2 * MIB)], place::options()).unwrap();
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    file.read(0, &mut [0; 3 * BLOCK]).unwrap();
    file.punch(0, 6 * BLOCK as u64).unwrap();
    let usage = attached.stats().usage(FileClass::Data);
    assert_eq!((usage.inserts, usage.invalidated, usage.aged_out), (3, 3, 0));
    assert_agrees(&attached);
}

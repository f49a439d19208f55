//! Admission by the background thread: what was read from home becomes a clean copy, and whatever
//! else happens to the block meanwhile, the newest version is what is read.
//!
//! Admission by the reader itself (without a background thread) is in `promises.rs` and
//! `between_steps.rs`; the power cuts of both are in `crash_suite/operations.rs`: the steps on the
//! medium are the same.

use crate::place;

use crate::place::Place;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tiersmith_store::{AttachedHome, CacheRules, OpenMode, Options, attach};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 8192;

/// A hang shows as a failure, after this long.
const LIMIT: Duration = Duration::from_secs(180);

fn attached(place: &Place, tier_bytes: u64) -> AttachedHome {
    let options = Options { background: true, ..place::options() };
    attach(&place.home(), &[place.tier(tier_bytes)], options).unwrap()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < end, "not after {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_was_read_from_home_is_admitted_in_the_background_also_when_only_parts_were_read() {
    let place = Place::new();
    // The last block is a short one.
    let plain = place::pattern(1, 0, 20 * BLOCK + 100);
    std::fs::write(place.home().join("a.d8"), &plain).unwrap();
    std::fs::write(place.home().join("a.redo"), &plain).unwrap();
    let attached = attached(&place, 2 * MIB);
    let file = attached.open("a.d8", OpenMode::READ).unwrap();
    let redo = attached.open("a.redo", OpenMode::READ).unwrap();
    let mut part = [0; 100];
    for at in (0..plain.len() - 100).step_by(1000) {
        assert_eq!(file.read(at as u64, &mut part).unwrap(), 100);
        assert_eq!(part, plain[at..at + 100]);
        assert_eq!(redo.read(at as u64, &mut part).unwrap(), 100);
        assert_eq!(part, plain[at..at + 100]);
    }
    file.read(20 * BLOCK as u64, &mut part).unwrap();
    wait_until("all 21 blocks are clean copies", || {
        // One that was forgotten comes with its next read.
        assert!((0..21).all(|n| file.read(n * BLOCK as u64, &mut [0; 100]).unwrap() == 100));
        file.blocks_in_tier() == (0, 21)
    });
    assert_eq!(redo.blocks_in_tier(), (0, 0), "a redo file has no clean copies");
    for (block, bytes) in (0..).zip(plain.chunks(BLOCK)) {
        assert_eq!(file.read_ref(block * BLOCK as u64).unwrap()[..], *bytes);
    }
    // Nothing but clean copies: home is as it was.
    drop((file, redo));
    attached.detach().unwrap();
    assert!(std::fs::read(place.home().join("a.d8")).unwrap() == plain);
}

#[test]
fn what_waits_for_admission_when_the_home_is_closed_or_the_file_removed_is_forgotten() {
    for remove in [false, true] {
        let place = Place::new();
        let plain = place::pattern(1, 0, 60 * BLOCK);
        std::fs::write(place.home().join("a.d8"), &plain).unwrap();
        let attached = attached(&place, 2 * MIB);
        let file = attached.open("a.d8", OpenMode::READ).unwrap();
        assert!(place::contents(&file) == plain);
        let mut block = [0; BLOCK];
        for n in 0..60 {
            file.read(n * BLOCK as u64, &mut block).unwrap();
        }
        drop(file);
        if remove {
            attached.unlink("a.d8").unwrap();
            let file = attached.create("a.d8").unwrap();
            file.write(0, &[5; 3 * BLOCK]).unwrap();
            assert!(place::contents(&file) == [5; 3 * BLOCK]);
        }
        attached.detach().unwrap();
        let left = std::fs::read(place.home().join("a.d8")).unwrap();
        assert!(if remove { left == [5; 3 * BLOCK] } else { left == plain });
    }
}

#[test]
fn blocks_that_are_written_cut_destaged_and_evicted_while_they_are_admitted_stay_the_newest() {
    const BLOCKS: u64 = 64;
    let place = Place::new();
    let version = |block: u64, n: u64| place::pattern(n << 8 | block, 0, BLOCK);
    let plain: Vec<u8> = (0..BLOCKS).flat_map(|block| version(block, 0)).collect();
    std::fs::write(place.home().join("a.d8"), &plain).unwrap();
    let attached = &attached(&place, 2 * MIB);
    // What is acknowledged of each block; a reader may see the one after it.
    let acked: Vec<AtomicU64> = (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
            let mut random = 1;
            for round in 0..200 {
                for _ in 0..16 {
                    random = place::mix(random);
                    let block = random % (BLOCKS / 2);
                    let next = acked[block as usize].load(Ordering::Relaxed) + 1;
                    file.write(block * BLOCK as u64, &version(block, next)).unwrap();
                    acked[block as usize].store(next, Ordering::Release);
                }
                // The upper half is cut off and comes back as zeros, then as what it was.
                if round % 20 == 0 {
                    file.truncate(BLOCKS / 2 * BLOCK as u64 + 100).unwrap();
                    file.extend(BLOCKS * BLOCK as u64).unwrap();
                    let mut block = vec![1; BLOCK];
                    file.read((BLOCKS - 1) * BLOCK as u64, &mut block).unwrap();
                    assert!(block.iter().all(|b| *b == 0), "what was cut off shows again");
                    for block in BLOCKS / 2..BLOCKS {
                        file.write(block * BLOCK as u64, &version(block, 0)).unwrap();
                    }
                }
            }
        });
        for reader in 0..2 {
            let (acked, done) = (&acked, &done);
            scope.spawn(move || {
                let file = attached.open("a.d8", OpenMode::READ).unwrap();
                let (mut random, mut bytes) = (reader + 7, vec![0; BLOCK]);
                while !done.load(Ordering::Relaxed) {
                    random = place::mix(random);
                    let block = random % (BLOCKS / 2);
                    let before = acked[block as usize].load(Ordering::Acquire);
                    assert_eq!(file.read(block * BLOCK as u64, &mut bytes).unwrap(), BLOCK);
                    let after = acked[block as usize].load(Ordering::Acquire) + 1;
                    let found = (before..=after).any(|n| bytes == version(block, n));
                    assert!(found, "block {block} is none of versions {before} to {after}");
                }
            });
        }
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                attached.flush_all().unwrap();
                attached.evict(None, u64::MAX).unwrap();
                std::thread::yield_now();
            }
        });
        let result = writer.join();
        done.store(true, Ordering::Relaxed);
        result.unwrap();
    });
    let all = place::read(attached, "a.d8");
    for block in 0..BLOCKS {
        let newest = acked[block as usize].load(Ordering::Relaxed);
        assert!(all[block as usize * BLOCK..][..BLOCK] == version(block, newest), "block {block}");
    }
    place::assert_nearly_accounted(&attached.stats());
    attached.clone().detach().unwrap();
    assert!(std::fs::read(place.home().join("a.d8")).unwrap() == all);
}

#[test]
fn a_full_tier_keeps_what_comes_again_and_does_not_copy_what_does_not_come_soon() {
    // More than twice what the tier can keep, read round by round in an order that is no scan.
    const BLOCKS: u64 = 512;
    let place = Place::new();
    let plain = place::pattern(1, 0, BLOCKS as usize * BLOCK);
    std::fs::write(place.home().join("a.d8"), &plain).unwrap();
    let attached = attach(&place.home(), &[place.tier(2 * MIB)], place::options()).unwrap();
    let file = attached.open("a.d8", OpenMode::READ).unwrap();
    let count = |name: &str| {
        let waits = attached.stats().waits;
        waits.counters().find(|(counter, _)| counter.name == name).unwrap().1
    };
    let mut block = [0; BLOCK];
    let mut round = || {
        let before = (count("flash cache read hits"), count("blocks evicted"));
        for n in 0..BLOCKS {
            let at = n * 203 % BLOCKS * BLOCK as u64;
            assert_eq!(file.read(at, &mut block).unwrap(), BLOCK);
            assert!(block[..] == plain[at as usize..][..BLOCK]);
            attached.background_step().unwrap();
        }
        (count("flash cache read hits") - before.0, count("blocks evicted") - before.1)
    };
    round();
    for n in 1..4 {
        let (hits, evicted) = round();
        assert!(hits >= 100, "round {n}: {hits} hits; a tier that takes everything has none");
        assert!(
            evicted <= 40,
            "round {n}: {evicted} copies made room for blocks that come too late"
        );
    }
    drop(file);
    attached.detach().unwrap();
}

#[test]
fn a_scan_is_not_admitted_and_leaves_what_is_read_again() {
    const HOT: u64 = 40;
    let place = Place::new();
    // Four times the tier, and a small file beside it.
    let large = place::pattern(1, 0, 8 << 20);
    let hot = place::pattern(2, 0, HOT as usize * BLOCK);
    std::fs::write(place.home().join("large.d8"), &large).unwrap();
    std::fs::write(place.home().join("hot.d8"), &hot).unwrap();
    let attached = attached(&place, 2 * MIB);
    let (file, again) = (
        attached.open("large.d8", OpenMode::READ).unwrap(),
        attached.open("hot.d8", OpenMode::READ).unwrap(),
    );
    let mut block = [0; BLOCK];
    wait_until("what is read here and there is admitted", || {
        for n in 0..HOT {
            again.read(n * 23 % HOT * BLOCK as u64, &mut [0; BLOCK]).unwrap();
        }
        again.blocks_in_tier() == (0, HOT)
    });
    for (n, expected) in (0..).zip(large.chunks(BLOCK)) {
        assert_eq!(file.read(n * BLOCK as u64, &mut block).unwrap(), BLOCK);
        assert!(block == *expected, "block {n}");
    }
    // Long reads, as a mount gets them.
    let mut long = vec![0; 16 * BLOCK];
    for (n, expected) in (0..).zip(large.chunks(long.len())) {
        file.read((n * long.len()) as u64, &mut long).unwrap();
        assert!(long == *expected, "read {n}");
    }
    attached.background_step().unwrap();
    let (dirty, cached) = file.blocks_in_tier();
    assert!(dirty == 0 && cached <= 48, "{cached} blocks of two scans were admitted");
    assert_eq!(again.blocks_in_tier(), (0, HOT), "a scan displaced what is read again");
    drop((file, again));
    attached.detach().unwrap();
}

fn with_rules(place: &Place, rules: &[&str]) -> AttachedHome {
    let cache = CacheRules::parse(rules.iter().copied()).unwrap();
    attach(&place.home(), &[place.tier(2 * MIB)], Options { cache, ..place::options() }).unwrap()
}

#[test]
fn what_is_to_be_kept_leaves_last_and_what_is_not_wanted_is_not_taken_and_goes_first() {
    const KEPT: u64 = 60;
    let place = Place::new();
    let blocks = |tag, count| place::pattern(tag, 0, count * BLOCK);
    for (name, tag, count) in [("a.d8", 1, 512), ("kept.d8", 2, KEPT as usize), ("none.d8", 3, 60)]
    {
        std::fs::write(place.home().join(name), blocks(tag, count)).unwrap();
    }
    let attached =
        with_rules(&place, &["keep=kept.*", "none=/none.d8", "none=nothing.d8", "none=*.redo"]);
    let unused: Vec<String> =
        attached.cache_rules_of_no_file().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(unused, ["none=nothing.d8", "none=*.redo"]);
    let open = |name| attached.open(name, OpenMode::WRITE).unwrap();
    let (other, kept, none) = (open("a.d8"), open("kept.d8"), open("none.d8"));
    let mut block = [0; BLOCK];
    // One scan of each, the way a new reader comes.
    for n in 0..KEPT {
        for file in [&kept, &none] {
            file.read(n * BLOCK as u64, &mut block).unwrap();
        }
    }
    assert_eq!(kept.blocks_in_tier(), (0, KEPT), "all of it is taken, a scan too");
    assert_eq!(none.blocks_in_tier(), (0, 0), "nothing of it is");
    // More than the tier can have, some of it twice, and written too.
    for n in 0..2 * 512 {
        let at = n * 203 % 512 * BLOCK as u64;
        other.read(at, &mut block).unwrap();
        if n % 16 == 0 {
            other.write(at, &block).unwrap();
        }
        attached.background_step().unwrap();
    }
    assert!(other.blocks_in_tier().1 > 20, "it has the room that is left");
    assert_eq!(kept.blocks_in_tier(), (0, KEPT), "a block that is to be kept went before others");
    // What is written stays no longer than others' blocks.
    for n in 0..60 {
        none.write(n * BLOCK as u64, &[7; BLOCK]).unwrap();
    }
    assert_eq!(none.blocks_in_tier(), (60, 0), "a write is durable in the tier");
    let mut written = 0;
    while none.blocks_in_tier() != (0, 0) {
        assert!(written < 256, "{:?} are there still", none.blocks_in_tier());
        other.write(written * BLOCK as u64, &[9; BLOCK]).unwrap();
        written += 1;
        attached.background_step().unwrap();
    }
    assert!(
        other.blocks_in_tier().0 > 20,
        "{:?}: others' blocks went home first",
        other.blocks_in_tier()
    );
    let rules = attached.cache_rules();
    assert_eq!((rules[0].files, rules[0].cached_bytes), (1, KEPT * BLOCK as u64));
    assert_eq!((rules[1].files, rules[1].cached_bytes, rules[2].files), (1, 0, 0));
    // A new name has its own rule.
    drop(none);
    attached.rename("none.d8", "some.d8").unwrap();
    let renamed = open("some.d8");
    for n in [3, 50, 17] {
        renamed.read(n * BLOCK as u64, &mut block).unwrap();
        renamed.read(n * BLOCK as u64, &mut block).unwrap();
        other.read((n + 100) * BLOCK as u64, &mut block).unwrap();
        renamed.read(n * BLOCK as u64, &mut block).unwrap();
        attached.background_step().unwrap();
    }
    assert!(renamed.blocks_in_tier().1 > 0, "it is not the unwanted file any more");
    assert!(place::contents(&renamed)[..BLOCK] == [7; BLOCK]);
    assert!(place::contents(&kept) == blocks(2, KEPT as usize));
    drop((other, kept, renamed));
    attached.detach().unwrap();
    assert!(std::fs::read(place.home().join("some.d8")).unwrap() == [7; 60 * BLOCK]);
}

#[test]
fn more_than_the_tier_can_keep_holds_up_no_writer() {
    let place = Place::new();
    let plain = place::pattern(1, 0, 512 * BLOCK);
    std::fs::write(place.home().join("kept.d8"), &plain).unwrap();
    let attached = with_rules(&place, &["keep=**"]);
    let kept = attached.open("kept.d8", OpenMode::WRITE).unwrap();
    let other = attached.open("other.d4", OpenMode::CREATE).unwrap();
    for round in 0..2 {
        assert!(place::contents(&kept) == plain);
        for n in 0..512_u64 {
            // Pieces of another size: a unit of them has to be made free as a whole.
            other.write(n * 4096, &[round; 4096]).unwrap();
            kept.write(n * BLOCK as u64, &plain[n as usize * BLOCK..][..BLOCK]).unwrap();
        }
        attached.background_step().unwrap();
    }
    assert!(place::contents(&other) == [1; 512 * 4096]);
    assert!(place::contents(&kept) == plain);
    place::assert_nearly_accounted(&attached.stats());
    drop((kept, other));
    attached.detach().unwrap();
}

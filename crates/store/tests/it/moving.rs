//! Files that are pinned or moved home at somebody's pace: what is ended on its way is taken up
//! where it was, also after a restart; nothing is held between two steps.
//!
//! Deliberately absent: the commands, and what a database sees of them (`cli`).

use crate::place::{self, Place};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use tiersmith_store::{
    AttachedHome, FileClass, FileInTier, HomeModel, Medium, Moved, OpenMode, Options, TierSpec,
    attach, waits,
};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 8192;
const BLOCKS: u64 = 40;

fn place_with_a_file() -> Place {
    let place = Place::new();
    let plain = place::pattern(1, 0, (BLOCKS * BLOCK) as usize);
    std::fs::write(place.home().join("a.d8"), plain).unwrap();
    place
}

fn attached(place: &Place) -> AttachedHome {
    attach(&place.home(), &[place.tier(2 * MIB)], place::options()).unwrap()
}

fn the_file(attached: &AttachedHome) -> FileInTier {
    attached.files().into_iter().find(|file| file.path == Path::new("a.d8")).unwrap()
}

#[test]
fn a_pin_that_was_ended_goes_on_where_it_was_also_after_a_restart() {
    let place = place_with_a_file();
    let first = attached(&place);
    let mut steps = 0;
    let moved = first.pin_at("a.d8", None, |_| {
        steps += 1;
        steps < 15
    });
    let ended = Moved { blocks: 15, bytes: 15 * BLOCK, at: 15 * BLOCK, stopped: true };
    assert_eq!(moved.unwrap(), ended);
    let file = the_file(&first);
    assert_eq!((file.pinned, file.cached), (false, 15));
    drop(first);

    let again = attached(&place);
    assert_eq!((the_file(&again).pinned, the_file(&again).cached), (false, 15));
    let moved = again.pin_at("a.d8", None, |_| true).unwrap();
    assert_eq!((moved.blocks, moved.at, moved.stopped), (BLOCKS - 15, BLOCKS * BLOCK, false));
    assert_eq!(again.events().read().counter(waits::MOVED_IN), BLOCKS - 15);
    assert!(the_file(&again).pinned);
    // Once more: it is all there.
    assert_eq!(again.pin_at("a.d8", None, |_| true).unwrap().blocks, 0);
    again.unpin("a.d8").unwrap();
    assert_eq!(again.evict(Some(Path::new("a.d8")), 0).unwrap(), BLOCKS);
    assert_eq!(again.move_in_at("a.d8", None, |_| true).unwrap().blocks, BLOCKS);
    assert_eq!((the_file(&again).pinned, the_file(&again).cached), (false, BLOCKS));
    again.detach().unwrap();
}

#[test]
fn a_pin_and_a_move_home_are_no_faster_than_they_are_told() {
    let place = place_with_a_file();
    let attached = attached(&place);
    let rate = BLOCKS * BLOCK * 4;
    let began = Instant::now();
    assert!(!attached.pin_at("a.d8", Some(rate), |_| true).unwrap().stopped);
    assert!(began.elapsed() >= Duration::from_millis(245), "{:?}", began.elapsed());
    attached.unpin("a.d8").unwrap();
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    file.write(0, &place::pattern(2, 0, (BLOCKS * BLOCK) as usize)).unwrap();
    let began = Instant::now();
    let moved = attached.move_home_at("a.d8", Some(rate), |_| true).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(245), "{:?}", began.elapsed());
    assert_eq!((moved.blocks, moved.stopped), (BLOCKS, false));
    assert_eq!((the_file(&attached).dirty, the_file(&attached).cached), (0, 0));
    drop(file);
    attached.detach().unwrap();
    let home = std::fs::read(place.home().join("a.d8")).unwrap();
    assert!(home == place::pattern(2, 0, (BLOCKS * BLOCK) as usize));
}

#[test]
fn a_move_home_goes_over_the_file_once_and_holds_nothing_between_two_steps() {
    let place = place_with_a_file();
    let attached = attached(&place);
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    file.write(0, &place::pattern(2, 0, (BLOCKS * BLOCK) as usize)).unwrap();
    // Five blocks a step; the first is written anew behind each, and the file is cut on the way.
    let mut steps = 0;
    let moved = attached.move_home_at("a.d8", Some(25 * BLOCK), |moved| {
        file.write(0, &[steps as u8; BLOCK as usize]).unwrap();
        if moved.at == 20 * BLOCK {
            file.truncate(30 * BLOCK).unwrap();
        }
        steps += 1;
        steps < 200
    });
    let moved = moved.unwrap();
    assert!(!moved.stopped && (25..=30).contains(&moved.blocks), "{moved:?}");
    assert_eq!(the_file(&attached).dirty, 1, "what was written behind it stays");
    assert_eq!(attached.events().read().counter(waits::MOVED_HOME), moved.blocks);
    drop(file);
    attached.detach().unwrap();
    let home = std::fs::read(place.home().join("a.d8")).unwrap();
    assert_eq!(home.len() as u64, 30 * BLOCK);
    assert!(home[BLOCK as usize..] == place::pattern(2, BLOCK, 29 * BLOCK as usize));
}

#[test]
fn redo_goes_home_as_slowly_as_it_is_told_and_its_move_can_be_ended() {
    const PAGE: u64 = 4096;
    const PAGES: u64 = 40;
    let place = Place::new();
    let attached = attached(&place);
    let file = attached.open("log.redo", OpenMode::CREATE).unwrap();
    file.write(0, &place::pattern(5, 0, (PAGES * PAGE) as usize)).unwrap();
    let dirty = || attached.files()[0].dirty;
    assert_eq!(dirty(), PAGES);
    let moved = attached.move_home_at("log.redo", Some(50 * PAGE), |moved| moved.blocks < 10);
    assert_eq!((moved.unwrap().blocks, dirty()), (10, PAGES - 10));
    // Two steps; between them it rests a fifth of a second.
    let began = Instant::now();
    let moved = attached.move_home_at("log.redo", Some(50 * PAGE), |moved| moved.blocks < 20);
    assert!(began.elapsed() >= Duration::from_millis(195), "{:?}", began.elapsed());
    assert_eq!((moved.unwrap().blocks, dirty()), (20, PAGES - 30));
    let moved = attached.move_home_at("log.redo", None, |_| true).unwrap();
    assert_eq!((moved.blocks, moved.at, dirty()), (PAGES - 30, PAGES * PAGE, 0));
    drop(file);
    attached.detach().unwrap();
    let home = std::fs::read(place.home().join("log.redo")).unwrap();
    assert!(home == place::pattern(5, 0, (PAGES * PAGE) as usize));
}

#[test]
fn a_move_home_that_was_ended_leaves_the_rest_in_the_tier() {
    let place = place_with_a_file();
    let attached = attached(&place);
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    file.write(0, &place::pattern(2, 0, (BLOCKS * BLOCK) as usize)).unwrap();
    let moved = attached.move_home_at("a.d8", Some(50 * BLOCK), |moved| moved.blocks < 10);
    assert_eq!(moved.unwrap().blocks, 10);
    let found = the_file(&attached);
    assert_eq!((found.dirty, found.cached), (BLOCKS - 10, 10));
    drop(file);
    attached.detach().unwrap();
}

#[test]
fn a_slow_pin_into_a_full_tier_keeps_no_writer_waiting() {
    let place = place_with_a_file();
    std::fs::write(place.home().join("full.d8"), vec![7; 3 * MIB as usize / 2]).unwrap();
    let attached = attached(&place);
    // Clean copies fill the tier.
    assert_eq!(attached.move_in_at("full.d8", None, |_| true).unwrap().blocks, 192);
    let file = Arc::new(attached.open("new.d8", OpenMode::CREATE).unwrap());
    let (mut steps, mut written) = (0, 0_u64);
    let pinned = attached.pin_at("a.d8", None, |_| {
        // As if the next block came in an hour: whoever writes now is through before that.
        let (done, is_done) = channel();
        let (file, from) = (file.clone(), written);
        let writer = std::thread::spawn(move || {
            for block in from..from + 50 {
                file.write(block * BLOCK, &[3; BLOCK as usize]).unwrap();
            }
            done.send(()).unwrap();
        });
        let waited = is_done.recv_timeout(Duration::from_secs(60));
        assert!(waited.is_ok(), "the writer waits for the pin, after {steps} steps");
        writer.join().unwrap();
        (steps, written) = (steps + 1, written + 50);
        true
    });
    assert_eq!((pinned.unwrap().stopped, steps), (false, BLOCKS));
    // What came in stayed, however much others wrote.
    assert_eq!((the_file(&attached).pinned, the_file(&attached).cached), (true, BLOCKS));
    assert!(attached.stats().waits.event(waits::FREE_WAIT).count() > 0, "it was never full");
    drop(file);
    attached.detach().unwrap();
}

#[test]
fn a_file_is_not_pinned_before_all_of_it_is_there_and_is_not_unpinned_meanwhile() {
    let place = place_with_a_file();
    let first = attached(&place);
    let mut steps = 0;
    let ended = first.pin_at("a.d8", None, |_| {
        steps += 1;
        assert!(!the_file(&first).pinned, "after {steps} steps");
        let said = first.unpin("a.d8").unwrap_err().to_string();
        assert!(said.contains("being brought in"), "{said}");
        steps < 5
    });
    assert!(ended.unwrap().stopped && !the_file(&first).pinned);
    first.pin("a.d8").unwrap();
    // Pinned again, and ended: it is pinned still, here and after a restart.
    assert!(first.pin_at("a.d8", None, |_| the_file(&first).cached == 0).unwrap().stopped);
    assert!(the_file(&first).pinned);
    drop(first);
    let again = attached(&place);
    assert!(the_file(&again).pinned);
    again.unpin("a.d8").unwrap();
    assert!(!the_file(&again).pinned);
    again.detach().unwrap();
}

#[test]
fn of_two_pins_at_once_that_do_not_fit_together_one_is_pinned_at_most_and_none_stays_by_failing() {
    let place = Place::in_memory();
    for name in ["a.d8", "b.d8"] {
        std::fs::write(place.home().join(name), vec![1; MIB as usize]).unwrap();
    }
    let attached = attached(&place);
    let both = Barrier::new(2);
    for round in 0..50 {
        let pin = |name: &str| {
            both.wait();
            attached.pin(name).map_err(|e| e.to_string())
        };
        let (a, b) = std::thread::scope(|scope| {
            let other = scope.spawn(|| pin("b.d8"));
            (pin("a.d8"), other.join().unwrap())
        });
        assert!(a.is_err() || b.is_err(), "round {round}: both are pinned");
        assert!([a, b].iter().flat_map(|pin| pin.as_ref().err()).all(|e| e.contains("an eighth")));
        for name in ["a.d8", "b.d8"] {
            attached.unpin(name).unwrap();
            attached.evict(Some(Path::new(name)), 0).unwrap();
        }
        attached.pin("b.d8").unwrap();
        attached.unpin("b.d8").unwrap();
    }
}

#[test]
fn a_file_that_is_removed_while_it_is_moved_gives_its_space_back_at_once() {
    for home in [false, true] {
        let place = place_with_a_file();
        let attached = attached(&place);
        let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
        file.write(0, &place::pattern(2, 0, (BLOCKS * BLOCK) as usize)).unwrap();
        if !home {
            assert_eq!(attached.destage(Some(Path::new("a.d8"))).unwrap(), BLOCKS);
            assert_eq!(attached.evict(Some(Path::new("a.d8")), 0).unwrap(), BLOCKS);
        }
        drop(file);
        // After the fifth block the file goes; the others would take seven seconds.
        let (mut removed, mut after) = (false, 0);
        let mut goes_on = |moved: &Moved| {
            if moved.blocks >= 5 && !removed {
                attached.unlink("a.d8").unwrap();
                removed = true;
            }
            after += u64::from(moved.blocks > 5);
            true
        };
        let moved = match home {
            true => attached.move_home_at("a.d8", Some(5 * BLOCK), &mut goes_on),
            false => attached.pin_at("a.d8", Some(5 * BLOCK), &mut goes_on),
        };
        match moved {
            Ok(moved) => assert!(home && !moved.stopped && moved.blocks < BLOCKS, "{moved:?}"),
            Err(e) => assert!(!home && e.to_string().contains("removed"), "{e}"),
        }
        assert_eq!(after, 0, "{after} looks after it was removed, home: {home}");
        assert!(attached.files().is_empty(), "{:?}", attached.files());
        attached.detach().unwrap();
    }
}

#[test]
fn a_pin_beside_a_writer_past_the_tier_who_never_pauses_ends_when_told_to_and_comes_to_its_end() {
    let place = place_with_a_file();
    let spec = TierSpec { medium: Medium::Volatile, ..place.tier(2 * MIB) };
    let home_model = HomeModel::named("cloud-network-volume");
    let options = Options { home_model, ..place::options() };
    let attached = attach(&place.home(), &[spec], options).unwrap();
    let file = attached.open("a.d8", OpenMode::WRITE).unwrap();
    let done = AtomicBool::new(false);
    let until = Instant::now() + Duration::from_secs(120);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) && Instant::now() < until {
                file.write(0, &[3; 100]).unwrap();
            }
        });
        let mut asked = 0;
        let stopped = attached.pin_at("a.d8", None, |_| {
            asked += 1;
            asked < 5
        });
        let pinned = attached.pin_at("a.d8", None, |_| true);
        done.store(true, Ordering::Release);
        assert!(Instant::now() < until, "the pin waited until nobody wrote");
        assert_eq!((stopped.unwrap().stopped, asked), (true, 5));
        assert!(!pinned.unwrap().stopped);
    });
    assert!(the_file(&attached).pinned && the_file(&attached).cached >= BLOCKS - 1);
    drop(file);
    attached.detach().unwrap();
}

#[test]
fn a_tier_that_is_pinned_nearly_whole_keeps_copies_of_others_in_three_quarters_of_the_rest() {
    const OTHER: u64 = MIB / BLOCK;
    for pinned in [16 * MIB, 22 * MIB, 25 * MIB] {
        let place = Place::in_memory();
        for (name, bytes) in [("a.d8", pinned), ("b.d8", MIB), ("large.d8", 24 * MIB)] {
            std::fs::write(place.home().join(name), vec![1; bytes as usize]).unwrap();
        }
        let attached = attach(&place.home(), &[place.tier(31 * MIB)], place::options()).unwrap();
        let other = attached.open("b.d8", OpenMode::READ).unwrap();
        let hits_of = |rounds: u64| {
            let hits = || attached.stats().usage(FileClass::Data).hits;
            let before = hits();
            for _ in 0..rounds {
                for block in 0..OTHER {
                    other.read(block * BLOCK, &mut [0; BLOCK as usize]).unwrap();
                }
                attached.background_step().unwrap();
            }
            hits() - before
        };
        // All of it is there, and it is not pinned yet; then it is.
        let mut coming = 0;
        let pin = attached.pin_at("a.d8", None, |moved| {
            if moved.at == pinned {
                coming = hits_of(10);
            }
            true
        });
        assert_eq!(pin.unwrap().blocks, pinned / BLOCK);
        assert!(coming >= 9 * OTHER, "{coming} hits beside {pinned} bytes that come");
        let hits = hits_of(50);
        assert_eq!(hits, 50 * OTHER, "beside {pinned} bytes that are pinned");
        // More than fits is read of another file.
        let large = attached.open("large.d8", OpenMode::READ).unwrap();
        let blocks = 24 * MIB / BLOCK;
        for n in 0..blocks {
            large.read(n * 203 % blocks * BLOCK, &mut [0; BLOCK as usize]).unwrap();
            if n % 16 == 0 {
                attached.background_step().unwrap();
            }
        }
        let rest = attached.stats().tiers[0].usable_bytes - pinned;
        let copies = (large.blocks_in_tier().1 + other.blocks_in_tier().1) * BLOCK;
        let share = copies as f64 / rest as f64;
        assert!((0.6..0.95).contains(&share), "{share} of {rest} bytes beside {pinned}");
    }
}

#[test]
fn what_was_used_is_told_of_the_files_that_were_and_of_no_others() {
    let place = place_with_a_file();
    std::fs::write(place.home().join("b.d8"), [0; 100]).unwrap();
    let attached = attached(&place);
    let (a, b) = (attached.open("a.d8", OpenMode::WRITE), attached.open("b.d8", OpenMode::READ));
    let (a, b) = (a.unwrap(), b.unwrap());
    let used = || attached.used().unwrap();
    assert!(used().is_empty());
    a.read(0, &mut [0; 100]).unwrap();
    let of_a = the_file(&attached);
    let told = || used().into_iter().map(|used| (used.id, used.usage)).collect::<Vec<_>>();
    assert_eq!((told(), of_a.usage.misses), (vec![(of_a.id, of_a.usage)], 1));
    // The same under another name; and what is removed and open still is nobody's.
    attached.rename("a.d8", "c.d8").unwrap();
    assert_eq!(told(), vec![(of_a.id, of_a.usage)]);
    attached.unlink("c.d8").unwrap();
    assert!(used().is_empty());
    drop((a, b));
    attached.detach().unwrap();
}

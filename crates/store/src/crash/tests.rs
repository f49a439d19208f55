//! What the explorer promises of itself: that it finds the known mistakes, counts right, and finds
//! an image again.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Mutex;

use tiersmith_pmem::{FRAME, Mapping};

use super::*;
use crate::home::{Home, OpenMode};

/// Steps of a small destage: the home gets the block, then the tier says that it has.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    WriteHome,
    SyncHome,
    StoreClean,
    FlushAndFence,
    Acknowledge,
}

use Step::{Acknowledge, FlushAndFence, StoreClean, SyncHome, WriteHome};

const RIGHT: [Step; 5] = [WriteHome, SyncHome, StoreClean, FlushAndFence, Acknowledge];

fn record(steps: &[Step]) -> Recording {
    let recorder = Recorder::new();
    let tier = recorder.simulator().mapping(vec![0; FRAME], 0);
    tier.set_open_range(FRAME as u64);
    let home = recorder.home();
    home.put(Path::new("a"), &[1; 1024]).unwrap();
    let file = home.open(Path::new("a"), OpenMode::WRITE).unwrap();
    recorder.rebase();
    for step in steps {
        match step {
            WriteHome => file.write_at(0, &[2; 1024]).unwrap(),
            SyncHome => file.sync().unwrap(),
            StoreClean => tier.store_u64(64, 7),
            FlushAndFence => tier.persist(64, 8),
            Acknowledge => recorder.acked(),
        }
    }
    recorder.recording()
}

fn check(found: CutState<'_>) -> Result<(), String> {
    let tier = Mapping::in_memory(&found.tiers[0], 0);
    let home = found.home.contents(Path::new("a")).unwrap();
    assert!(home.iter().all(|b| *b == 1 || *b == 2), "a byte nobody wrote");
    match tier.load_u64(64) {
        7 if home.iter().any(|b| *b != 2) => Err("clean, but home has the old block".into()),
        0 if found.acked > 0 => Err("acknowledged, but not clean".into()),
        _ => Ok(()),
    }
}

#[test]
fn the_right_order_has_no_violation_and_every_image_was_tried() {
    let report = explore(&record(&RIGHT), &Budget::default(), check);
    report.assert_sound();
    // Cuts: before write, sync, fence, acknowledgement; at the end. Home after the write: 2 sectors
    // and a time stamp. Tier before the fence: 1 word.
    assert_eq!((report.cuts, report.exhaustive_cuts, report.images), (5, 5, 1 + 8 + 2 + 1 + 1));
    // The same image comes up on both sides of a sync or a fence.
    assert_eq!(report.distinct, 8 + 1);
}

#[test]
fn each_wrong_order_is_found() {
    for wrong in [
        vec![WriteHome, StoreClean, FlushAndFence, Acknowledge],
        vec![WriteHome, StoreClean, SyncHome, FlushAndFence, Acknowledge],
        vec![StoreClean, FlushAndFence, WriteHome, SyncHome, Acknowledge],
        vec![WriteHome, SyncHome, StoreClean, Acknowledge, FlushAndFence],
    ] {
        assert!(!explore(&record(&wrong), &Budget::default(), check).violations.is_empty());
        assert!(
            !explore_one_by_one(&record(&wrong), &Budget::default(), check).violations.is_empty()
        );
    }
}

#[test]
fn a_violation_can_be_replayed_alone() {
    let recording = record(&[WriteHome, StoreClean, SyncHome, FlushAndFence]);
    let budget = Budget { images_per_cut: 6, seed: 42, ..Budget::default() };
    let report = explore(&recording, &budget, check);
    let first = &report.violations[0];
    assert!(first.to_string().contains("clean, but home has the old block"), "{first}");
    assert!(first.to_string().contains("replay seed 42, images_per_cut 6"), "{first}");
    for violation in &report.violations {
        assert_eq!(
            replay(&recording, &budget, violation.id, check).unwrap_err(),
            violation.message
        );
    }
}

#[test]
fn a_panic_of_the_check_is_a_violation_and_the_exploration_stops_when_told() {
    let budget = Budget { stop_after: 2, threads: 1, ..Budget::default() };
    let report = explore(&record(&RIGHT), &budget, |found| {
        assert!(found.position > 100, "too early");
        Ok(())
    });
    assert_eq!(report.violations.len(), 2);
    assert!(report.violations[0].message.contains("too early"));
}

#[test]
fn a_sample_keeps_to_the_budget_and_has_the_corners() {
    let recorder = Recorder::new();
    let tier = recorder.simulator().mapping(vec![0; FRAME], 0);
    tier.set_open_range(FRAME as u64);
    let home = recorder.home();
    home.put(Path::new("a"), &[1; 8192]).unwrap();
    recorder.rebase();
    tier.nt_write(0, &[9; 512]);
    home.open(Path::new("a"), OpenMode::WRITE).unwrap().write_at(0, &[2; 8192]).unwrap();
    let recording = recorder.recording();
    let seen = Mutex::new(HashSet::new());
    let budget = Budget { images_per_cut: 100, ..Budget::default() };
    let report = explore(&recording, &budget, |found| {
        let contents = found.home.contents(Path::new("a")).unwrap();
        let home_sum: u64 = contents.iter().map(|b| u64::from(*b)).sum();
        let tier_sum: u64 = found.tiers[0].iter().map(|b| u64::from(*b)).sum();
        seen.lock().unwrap().insert((found.id.cut, tier_sum, home_sum));
        Ok(())
    });
    assert_eq!(report.images, 200);
    assert_eq!(report.exhaustive_cuts, 0);
    assert!(report.distinct > 150, "{report}");
    let seen = seen.lock().unwrap();
    for tier in [0, 512 * 9] {
        for home in [8192, 2 * 8192] {
            assert!(seen.contains(&(1, tier, home)), "the corner ({tier}, {home}) is missing");
        }
    }
}

#[test]
fn a_device_of_sectors_is_stopped_together_with_media_and_home() {
    // The block goes to a device, and the tier says that it is there.
    let record = |synced: bool| {
        let recorder = Recorder::new();
        let tier = recorder.simulator().mapping(vec![0; FRAME], 0);
        tier.set_open_range(FRAME as u64);
        let device = recorder.simulator().device(vec![0; 4 * 512], 512);
        device.write(0, &[3; 512]).unwrap();
        recorder.rebase();
        device.write(512, &[2; 2 * 512]).unwrap();
        if synced {
            device.sync().unwrap();
        }
        tier.store_u64(64, 7);
        tier.persist(64, 8);
        recorder.acked();
        recorder.recording()
    };
    let check = |found: CutState<'_>| {
        let (tier, block) = (Mapping::in_memory(&found.tiers[0], 0), &found.tiers[1][512..3 * 512]);
        assert!(found.tiers[1][..512] == [3; 512], "what was durable before the run");
        match tier.load_u64(64) {
            7 if block.iter().any(|b| *b != 2) => {
                Err("the tier says a block is there that is not".into())
            }
            0 if found.acked > 0 => Err("acknowledged, but not there".into()),
            _ => Ok(()),
        }
    };
    let report = explore(&record(true), &Budget::default(), check);
    report.assert_sound();
    // Before the end of the sync two sectors, before the fence a word; before the acknowledgement
    // and at the end one.
    assert_eq!((report.cuts, report.exhaustive_cuts, report.images), (4, 4, 4 + 2 + 1 + 1));
    assert_eq!(
        report.distinct,
        4 + 1,
        "the same image on both sides of a sync or a fence counts once"
    );
    let recording = record(false);
    let report = explore(&recording, &Budget::default(), check);
    let first = report.violations.first().expect("a missing sync is found");
    assert_eq!(replay(&recording, &Budget::default(), first.id, check).unwrap_err(), first.message);
}

#[test]
fn a_crash_during_recovery_can_be_explored() {
    // Recovery repeats the destage when the tier does not say clean.
    fn recover(tier: &Mapping, home: &SimHome) {
        if tier.load_u64(64) == 0 {
            let file = home.open(Path::new("a"), OpenMode::WRITE).unwrap();
            file.write_at(0, &[2; 1024]).unwrap();
            file.sync().unwrap();
            tier.store_u64(64, 7);
            tier.persist(64, 8);
        }
    }
    let inner_images = AtomicU64::new(0);
    let report = explore(&record(&RIGHT), &Budget::default(), |found| {
        let recorder = Recorder::resume(found.home);
        let tier = recorder.simulator().mapping(found.tiers[0].clone(), 0);
        tier.set_open_range(FRAME as u64);
        recover(&tier, &recorder.home());
        let inner = explore_one_by_one(&recorder.recording(), &Budget::default(), check);
        inner_images.fetch_add(inner.images, Ordering::Relaxed);
        inner.violations.first().map_or(Ok(()), |v| Err(v.to_string()))
    });
    report.assert_sound();
    assert!(inner_images.into_inner() > report.images);
}

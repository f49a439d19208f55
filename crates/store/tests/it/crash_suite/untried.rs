//! What the explorer leaves out: images that were tried already, and nothing else.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use tiersmith_pmem::FRAME;
use tiersmith_store::crash::{Budget, Recorder, Tried, explore_untried};
use tiersmith_store::home::Home;
use tiersmith_store::{OpenMode, home::SimHome};

#[test]
fn an_image_is_tried_once_for_what_was_promised_and_what_is_asked_of_it() {
    let recorder = Recorder::new();
    let tier = recorder.simulator().mapping(vec![0; FRAME], 0);
    tier.set_open_range(FRAME as u64);
    recorder.rebase();
    tier.store_u64(64, 7);
    tier.persist(64, 8);
    tier.persist(64, 8);
    recorder.acked();
    let recording = recorder.recording();
    let (tried, again) = (Tried::default(), Tried::default());
    let look = |tried: &Tried, question| {
        let seen = Mutex::new(Vec::new());
        let report = explore_untried(&recording, &Budget::default(), (tried, question), |found| {
            let shown = (found.tiers[0][64], found.acked, found.thorough);
            seen.lock().unwrap().push(shown);
            Ok(())
        });
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        (seen, report.images, report.known)
    };
    // Before the first fence the old word and the new one; before the second the new one; then it
    // is known, until it is acknowledged.
    let all = vec![(0, 0, true), (7, 0, false), (7, 0, true), (7, 1, true)];
    assert_eq!(look(&tried, 0), (all.clone(), 4, 1));
    assert_eq!(look(&tried, 0), (Vec::new(), 0, 5));
    assert_eq!(look(&tried, 1), (all.clone(), 4, 1), "another question");
    assert_eq!(look(&again, 0), (all, 4, 1), "of others nothing is known");
}

#[test]
fn homes_with_the_same_files_and_other_clocks_are_not_taken_for_one() {
    let recorder = Recorder::new();
    let tier = recorder.simulator().mapping(vec![0; FRAME], 0);
    tier.set_open_range(FRAME as u64);
    recorder.rebase();
    let home = recorder.home();
    home.open(Path::new("a"), OpenMode::CREATE).unwrap();
    home.unlink(Path::new("a")).unwrap();
    home.sync_dir(Path::new("")).unwrap();
    let clocks = Mutex::new(BTreeSet::new());
    let question = (&Tried::default(), 0);
    explore_untried(&recorder.recording(), &Budget::default(), question, |found| {
        let home: &SimHome = &found.home;
        if home.paths().is_empty() {
            assert!(clocks.lock().unwrap().insert(home.now_ns()), "the same home twice");
        }
        Ok(())
    })
    .assert_sound();
    // At first, when the file was made, and when it was removed.
    assert_eq!(clocks.into_inner().unwrap().len(), 3);
}

//! The crash model: right orders leave no bad image, wrong ones and planted faults leave one that
//! is found.

use std::collections::HashSet;

use tiersmith_pmem::sim::{Choice, Event, Player, Sabotage, Simulator};
use tiersmith_pmem::{FRAME, Mapping};

const DATA: usize = 1024;
const POINTER: usize = 0;

fn one_frame(sim: &Simulator) -> Mapping {
    let mapping = sim.mapping(vec![0; FRAME], 0);
    mapping.set_open_range(FRAME as u64);
    mapping
}

/// Images at any cut in which `bad`, looking at most `max` times at each cut.
fn bad_images(sim: &Simulator, max: usize, bad: impl Fn(&[Vec<u8>]) -> bool) -> usize {
    let trace = sim.trace();
    let mut player = trace.player();
    let mut buffer = player.buffer();
    let mut found = 0;
    for cut in trace.cut_points() {
        player.advance_to(cut);
        found += player
            .images(max, cut as u64)
            .filter(|choice| bad(player.image(choice, &mut buffer)))
            .count();
    }
    found
}

/// The pointer is switched but the data is not whole.
fn torn(images: &[Vec<u8>]) -> bool {
    images[0][POINTER] == 1 && images[0][DATA..DATA + 512].iter().any(|&byte| byte != 7)
}

/// The example of the documentation: data, fence, pointer, persist.
fn switch(mapping: &Mapping) {
    mapping.nt_write(DATA as u64, &[7; 512]);
    mapping.fence();
    mapping.store_u64(POINTER as u64, 1);
    mapping.persist(POINTER as u64, 8);
}

#[test]
fn data_then_fence_then_pointer_leaves_no_torn_block() {
    let sim = Simulator::new();
    switch(&one_frame(&sim));
    assert_eq!(bad_images(&sim, 1000, torn), 0);
}

#[test]
fn pointer_before_data_is_found() {
    let sim = Simulator::new();
    let mapping = one_frame(&sim);
    mapping.store_u64(POINTER as u64, 1);
    mapping.persist(POINTER as u64, 8);
    mapping.nt_write(DATA as u64, &[7; 512]);
    mapping.fence();
    assert!(bad_images(&sim, 100, torn) > 0);
}

#[test]
fn data_and_pointer_under_one_fence_is_found() {
    let sim = Simulator::new();
    let mapping = one_frame(&sim);
    mapping.nt_write(DATA as u64, &[7; 512]);
    mapping.store_u64(POINTER as u64, 1);
    mapping.persist(POINTER as u64, 8);
    assert!(bad_images(&sim, 100, torn) > 0);
}

#[test]
fn a_missing_flush_of_the_data_is_found() {
    let sim = Simulator::new();
    let mapping = one_frame(&sim);
    mapping.write(DATA as u64, &[7; 512]);
    mapping.fence();
    mapping.store_u64(POINTER as u64, 1);
    mapping.persist(POINTER as u64, 8);
    assert!(bad_images(&sim, 100, torn) > 0);
}

#[test]
fn a_store_never_flushed_may_or_may_not_be_there_at_the_end() {
    let sim = Simulator::new();
    let mapping = one_frame(&sim);
    mapping.store_u64(0, 1);
    mapping.fence();
    mapping.persist(64, 64);
    assert_eq!(bad_images_at_end(&sim), HashSet::from([0, 1]));
    mapping.flush(56, 1);
    assert_eq!(bad_images_at_end(&sim), HashSet::from([0, 1]), "flushed but not fenced");
    mapping.fence();
    assert_eq!(bad_images_at_end(&sim), HashSet::from([1]));
}

#[test]
fn a_word_stored_past_the_caches_needs_a_fence_and_no_flush() {
    let sim = Simulator::new();
    let mapping = one_frame(&sim);
    mapping.nt_store_u64(0, 1);
    assert_eq!(bad_images_at_end(&sim), HashSet::from([0, 1]));
    mapping.flush(0, 8);
    assert_eq!(bad_images_at_end(&sim), HashSet::from([0, 1]), "flushed but not fenced");
    mapping.fence();
    assert_eq!(bad_images_at_end(&sim), HashSet::from([1]));
}

/// Every value that the first byte has at the end.
fn bad_images_at_end(sim: &Simulator) -> HashSet<u8> {
    let player = at_end(sim);
    let mut buffer = player.buffer();
    player.images(1000, 0).map(|choice| player.image(&choice, &mut buffer)[0][0]).collect()
}

fn at_end(sim: &Simulator) -> Player {
    let trace = sim.trace();
    let mut player = trace.player();
    player.advance_to(trace.len());
    player
}

#[test]
fn every_planted_fault_is_found() {
    for fault in [
        Sabotage::DropNthFence(0),
        Sabotage::DropEveryFence,
        Sabotage::CacheEveryNonTemporal,
        Sabotage::CacheNthNonTemporal(0),
    ] {
        let sim = Simulator::new();
        let mapping = one_frame(&sim);
        sim.set_dropped(fault);
        switch(&mapping);
        assert!(bad_images(&sim, 100, torn) > 0, "{fault:?}");
    }
    // These lose the acknowledged switch instead: after the last call the pointer must be there.
    for fault in [
        Sabotage::DropEveryFlush,
        Sabotage::DropNthFlush(0),
        Sabotage::DropEveryFence,
        Sabotage::DropNthFence(1),
    ] {
        let sim = Simulator::new();
        let mapping = one_frame(&sim);
        sim.set_dropped(fault);
        switch(&mapping);
        let player = at_end(&sim);
        let mut buffer = player.buffer();
        let lost = player
            .images(100, 0)
            .filter(|choice| player.image(choice, &mut buffer)[0][POINTER] != 1);
        assert!(lost.count() > 0, "{fault:?}");
    }
}

#[test]
fn faults_count_from_where_they_were_planted_and_stop_when_taken_back() {
    let sim = Simulator::new();
    let mapping = one_frame(&sim);
    switch(&mapping);
    sim.rebase();
    sim.set_dropped(Sabotage::DropNthFence(1));
    mapping.fence();
    mapping.fence();
    mapping.fence();
    assert_eq!(sim.position(), 2);
    sim.set_dropped(Sabotage::Nothing);
    mapping.fence();
    assert_eq!(sim.position(), 3);
}

#[test]
fn few_words_give_exactly_the_product_of_their_versions() {
    let sim = Simulator::new();
    let mapping = one_frame(&sim);
    mapping.store_u64(0, 1);
    mapping.store_u64(0, 2);
    mapping.store_u64(8, 3);
    mapping.nt_write(4000, &[4; 8]);
    mapping.nt_write(4000, &[5; 8]);
    mapping.nt_write(4000, &[6; 8]);
    let player = at_end(&sim);
    assert_eq!(player.image_count(), Some(3 * 2 * 4));
    let images = player.images(24, 0);
    assert!(images.is_exhaustive());
    let choices: HashSet<Choice> = images.collect();
    assert_eq!(choices.len(), 24);
    let mut buffer = player.buffer();
    let seen: HashSet<Vec<u8>> =
        choices.iter().map(|choice| player.image(choice, &mut buffer)[0].clone()).collect();
    assert_eq!(seen.len(), 24, "every choice is another image");
    assert!(!player.images(23, 0).is_exhaustive());
    assert_eq!(player.images(23, 0).count(), 23);
}

#[test]
fn a_fence_makes_a_version_durable_and_keeps_the_newer_ones_pending() {
    let sim = Simulator::new();
    let mapping = one_frame(&sim);
    mapping.store_u64(0, 1);
    mapping.flush(0, 8);
    mapping.store_u64(0, 2);
    mapping.fence();
    let player = at_end(&sim);
    assert_eq!(player.durable()[0][..8], 1_u64.to_le_bytes());
    assert_eq!(player.pending().len(), 1);
    assert_eq!(
        (player.pending()[0].at, &player.pending()[0].values[..]),
        (0, &[2_u64.to_le_bytes()][..])
    );
    mapping.nt_write(3, &[9]);
    mapping.fence();
    assert!(at_end(&sim).pending().is_empty());
    assert_eq!(
        at_end(&sim).durable()[0][..8],
        [2, 0, 0, 9, 0, 0, 0, 0],
        "merged with the newest version"
    );
}

#[test]
fn a_fence_makes_the_newest_of_several_versions_durable_at_once() {
    let sim = Simulator::new();
    let mapping = one_frame(&sim);
    for value in 1..4 {
        mapping.nt_store_u64(0, value);
    }
    mapping.fence();
    assert!(at_end(&sim).pending().is_empty());
    assert_eq!(at_end(&sim).durable()[0][..8], 3_u64.to_le_bytes());
}

#[test]
fn a_flush_does_not_carry_what_another_thread_stored_past_the_caches() {
    let sim = Simulator::new();
    let mapping = one_frame(&sim);
    mapping.nt_store_u64(0, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| mapping.persist(0, 8));
    });
    assert_eq!(at_end(&sim).pending().len(), 1);
    mapping.fence();
    assert!(at_end(&sim).pending().is_empty());
}

#[test]
fn storing_what_is_there_already_makes_no_version() {
    let sim = Simulator::new();
    let mapping = one_frame(&sim);
    mapping.write(0, &[0; 256]);
    assert!(at_end(&sim).pending().is_empty());
    mapping.store_u64(0, 5);
    mapping.nt_write(0, &5_u64.to_le_bytes());
    assert_eq!(at_end(&sim).pending()[0].values.len(), 1);
    mapping.fence();
    assert!(at_end(&sim).pending().is_empty(), "the second store went past the caches");
}

#[test]
fn a_fence_of_another_thread_does_not_count() {
    let sim = Simulator::new();
    let mapping = one_frame(&sim);
    mapping.nt_write(0, &[1; 8]);
    mapping.store_u64(64, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            mapping.flush(64, 8);
            mapping.fence();
        });
    });
    let player = at_end(&sim);
    assert_eq!(
        player.pending().iter().map(|word| word.at).collect::<Vec<_>>(),
        [0],
        "the cached one was flushed there"
    );
    mapping.fence();
    assert!(at_end(&sim).pending().is_empty());
}

#[test]
fn one_trace_orders_several_mappings_and_marks() {
    let sim = Simulator::new();
    let first = one_frame(&sim);
    let second = one_frame(&sim);
    sim.mark(40);
    first.nt_write(0, &[1; 8]);
    second.nt_write(8, &[2; 8]);
    first.fence();
    sim.mark(41);
    let trace = sim.trace();
    let events: Vec<Event> = trace.events().cloned().collect();
    assert_eq!(
        events,
        [
            Event::Mark(40),
            Event::Store { mapping: 0, at: 0, len: 8, nt: true },
            Event::Store { mapping: 1, at: 8, len: 8, nt: true },
            Event::Fence,
            Event::Mark(41),
        ]
    );
    assert_eq!(trace.cut_points(), [0, 3, 4, 5]);
    let mut player = trace.player();
    player.advance_to(3);
    assert_eq!(player.next_event(), Some(&Event::Fence));
    assert_eq!(player.images(100, 0).count(), 4);
    player.advance_to(5);
    assert_eq!(player.next_event(), None);
    assert!(!player.step());
    assert_eq!((player.durable()[0][0], player.durable()[1][8]), (1, 2));
}

#[test]
fn growth_is_durable_and_zero_at_once() {
    let sim = Simulator::new();
    let mapping = sim.mapping(vec![1; FRAME], 4 * FRAME as u64);
    // Heap memory is reused between mappings: what an earlier one left must not show.
    let dirty = Mapping::in_memory(&[0xEE; 4 * FRAME], 0);
    drop(dirty);
    mapping.grow(2 * FRAME as u64).unwrap();
    assert!(mapping.claim(FRAME as u64, FRAME));
    assert_eq!(mapping.load_u64(FRAME as u64), 0);
    mapping.nt_write(FRAME as u64, &[3; 8]);
    let trace = sim.trace();
    let mut player = trace.player();
    assert_eq!(trace.cut_points(), [0, 2]);
    player.advance_to(1);
    assert_eq!(player.durable()[0], [vec![1; FRAME], vec![0; FRAME]].concat());
    player.advance_to(2);
    assert_eq!(player.images(10, 0).count(), 2);
    sim.rebase();
    assert!(sim.trace().is_empty());
    let now = sim.trace().player().durable()[0].clone();
    assert_eq!((now.len(), now[FRAME]), (2 * FRAME, 3));
}

#[test]
fn an_image_is_the_durable_bytes_with_the_chosen_words_whatever_came_before() {
    let sim = Simulator::new();
    let mapping = one_frame(&sim);
    let mut rng = fastrand::Rng::with_seed(11);
    for _ in 0..60 {
        let at = rng.u64(..4000);
        let data: Vec<u8> = (0..rng.usize(1..90)).map(|_| rng.u8(..)).collect();
        match rng.u8(..5) {
            0 => mapping.write(at, &data),
            1 | 2 => mapping.nt_write(at, &data),
            3 => mapping.flush(at, 64),
            _ => mapping.fence(),
        }
    }
    let trace = sim.trace();
    let mut player = trace.player();
    let mut buffer = player.buffer();
    let mut whole = Vec::new();
    for cut in (0..=trace.len()).step_by(if cfg!(miri) { 20 } else { 1 }) {
        player.advance_to(cut);
        for choice in player.images(if cfg!(miri) { 3 } else { 40 }, cut as u64) {
            let mut expected = player.durable().to_vec();
            for (word, &version) in player.pending().iter().zip(choice.versions()) {
                if version > 0 {
                    let at = word.at as usize;
                    expected[word.mapping][at..at + 8]
                        .copy_from_slice(&word.values[usize::from(version) - 1]);
                }
            }
            assert!(player.image(&choice, &mut buffer) == expected, "cut {cut}");
            player.image_into(&choice, &mut whole);
            assert!(whole == expected, "cut {cut}");
        }
    }
    player.advance_to(trace.len());
    // The last of everything is what the mapping holds.
    let mut now = vec![0; FRAME];
    mapping.read(0, &mut now);
    let versions = player.pending().iter().map(|word| word.values.len()).collect::<Vec<_>>();
    let newest = player.images(1000, 0).find(|choice| {
        choice
            .versions()
            .iter()
            .zip(&versions)
            .all(|(&chosen, &count)| usize::from(chosen) == count)
    });
    assert!(player.image(&newest.unwrap(), &mut buffer)[0] == now);
}

#[test]
fn a_sample_has_nothing_everything_each_line_alone_and_each_line_missing() {
    let sim = Simulator::new();
    let mapping = one_frame(&sim);
    mapping.nt_write(0, &[1; 640]);
    let player = at_end(&sim);
    let choices: Vec<Choice> = player.images(200, 5).collect();
    assert_eq!(choices.len(), 200);
    let lines = |choice: &Choice| -> Vec<usize> {
        choice
            .versions()
            .chunks(8)
            .map(|line| line.iter().filter(|&&version| version > 0).count())
            .collect()
    };
    let seen: HashSet<Vec<usize>> = choices.iter().map(lines).collect();
    assert!(seen.contains(&vec![0; 10]) && seen.contains(&vec![8; 10]));
    for line in 0..10 {
        let alone: Vec<usize> = (0..10).map(|other| if other == line { 8 } else { 0 }).collect();
        let missing: Vec<usize> = alone.iter().map(|count| 8 - count).collect();
        let first: Vec<usize> = (0..10).map(|other| if other <= line { 8 } else { 0 }).collect();
        assert!(
            seen.contains(&alone) && seen.contains(&missing) && seen.contains(&first),
            "line {line}"
        );
    }
    assert!(
        seen.iter().any(|lines| lines.iter().any(|&words| words > 0 && words < 8)),
        "torn lines"
    );
    let again: Vec<Choice> = player.images(200, 5).collect();
    assert!(again == choices, "the seed decides");
    let other: Vec<Choice> = player.images(200, 6).collect();
    assert!(other != choices);
    let distinct: HashSet<&Choice> = choices.iter().collect();
    assert!(distinct.len() > 150, "{} of 200 differ", distinct.len());
}

#[test]
fn an_image_opened_for_checking_holds_the_image() {
    let sim = Simulator::new();
    let mapping = one_frame(&sim);
    mapping.store_u64(8, 77);
    let player = at_end(&sim);
    let mut buffer = player.buffer();
    let everything = player.images(2, 0).last().unwrap();
    let image = &player.image(&everything, &mut buffer)[0];
    let check = Mapping::in_memory(image, 0);
    assert_eq!(check.load_u64(8), 77);
    assert!(check.report().emulated && !check.report().persistent);
}

#[test]
fn a_stopped_machine_makes_no_further_call_and_keeps_what_was_on_its_way() {
    let sim = Simulator::new();
    let mapping = std::sync::Arc::new(one_frame(&sim));
    let writer = mapping.clone();
    // Never returns: it ends with the process.
    std::thread::spawn(move || {
        loop {
            switch(&writer);
        }
    });
    let trace = sim.stop_after(1000);
    let stopped_at = trace.len();
    assert!(stopped_at >= 1000, "{stopped_at} events");
    let mut player = trace.player();
    player.advance_to(stopped_at);
    let mut buffer = player.buffer();
    for choice in player.images(64, 1) {
        assert!(!torn(player.image(&choice, &mut buffer)), "the pointer arrived without the data");
    }
    assert_eq!(sim.position(), stopped_at, "something moved in a machine that had stopped");
}

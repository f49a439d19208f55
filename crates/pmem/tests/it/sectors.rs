//! What a cut leaves of a simulated device of sectors: the rule by examples, and the player against
//! a brute-force model that is the rule written down once more, over whole traces.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tiersmith_pmem::FRAME;
use tiersmith_pmem::sim::{Choice, Device, Event, Player, Sabotage, Simulator};

const SECTOR: usize = 512;

fn three_sectors(sim: &Simulator) -> Device {
    sim.device(vec![0; 3 * SECTOR], SECTOR)
}

/// Whole sectors of one byte.
fn of(byte: u8, sectors: usize) -> Vec<u8> {
    vec![byte; sectors * SECTOR]
}

/// The first byte of each sector in every image at this position, of the medium of this number. A
/// sector that is not of one byte is torn.
fn found(player: &Player, medium: usize) -> BTreeSet<Vec<u8>> {
    let images = player.images(1 << 20, 0);
    assert!(images.is_exhaustive());
    let mut buffer = player.buffer();
    let mut whole = Vec::new();
    let mut found = BTreeSet::new();
    for choice in images {
        let image = player.image(&choice, &mut buffer)[medium].clone();
        player.image_into(&choice, &mut whole);
        assert!(whole[medium] == image, "an image depends on the one before");
        let sectors = image.chunks(SECTOR).map(|sector| {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a torn sector");
            sector[0]
        });
        found.insert(sectors.collect());
    }
    found
}

fn at_end(sim: &Simulator) -> Player {
    let trace = sim.trace();
    let mut player = trace.player();
    player.advance_to(trace.len());
    player
}

fn found_at_end(sim: &Simulator) -> BTreeSet<Vec<u8>> {
    found(&at_end(sim), 0)
}

#[test]
fn a_write_is_lost_or_found_by_sectors_until_it_is_synced() {
    let sim = Simulator::new();
    let device = three_sectors(&sim);
    device.write(SECTOR as u64, &of(1, 2)).unwrap();
    assert_eq!(
        found_at_end(&sim),
        [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]].map(Vec::from).into()
    );
    device.sync().unwrap();
    assert_eq!(found_at_end(&sim), [vec![0, 1, 1]].into());
}

#[test]
fn writes_before_a_sync_are_found_in_any_order() {
    let sim = Simulator::new();
    let device = three_sectors(&sim);
    device.write(0, &of(1, 1)).unwrap();
    device.write(SECTOR as u64, &of(2, 1)).unwrap();
    device.write(0, &of(3, 1)).unwrap();
    let images = found_at_end(&sim);
    assert_eq!(
        images.len(),
        6,
        "the second without the first, the third without the second: {images:?}"
    );
    device.sync().unwrap();
    assert_eq!(found_at_end(&sim), [vec![3, 2, 0]].into(), "of two writes to one sector the last");
}

#[test]
fn a_sync_covers_only_writes_that_had_returned_when_it_began() {
    let sim = Simulator::new();
    let device = three_sectors(&sim);
    let (other, calls) = (device.clone(), AtomicUsize::new(0));
    sim.set_hook(Some(Arc::new(move || {
        // Between the beginning and the return of the write: its second call of the hook.
        if calls.fetch_add(1, Ordering::Relaxed) == 1 {
            other.sync().unwrap();
        }
    })));
    device.write(0, &of(1, 1)).unwrap();
    sim.set_hook(None);
    assert_eq!(found_at_end(&sim), [vec![0, 0, 0], vec![1, 0, 0]].into());
    device.sync().unwrap();
    assert_eq!(found_at_end(&sim), [vec![1, 0, 0]].into());
}

#[test]
fn a_write_that_returns_while_a_sync_is_under_way_is_not_covered() {
    let sim = Simulator::new();
    let device = three_sectors(&sim);
    let (other, calls) = (device.clone(), AtomicUsize::new(0));
    sim.set_hook(Some(Arc::new(move || {
        if calls.fetch_add(1, Ordering::Relaxed) == 1 {
            other.write(0, &of(1, 1)).unwrap();
        }
    })));
    device.sync().unwrap();
    sim.set_hook(None);
    assert_eq!(found_at_end(&sim), [vec![0, 0, 0], vec![1, 0, 0]].into());
}

#[test]
fn after_a_sync_that_failed_a_later_one_says_nothing_about_what_was_written_before() {
    let sim = Simulator::new();
    let device = three_sectors(&sim);
    device.write(0, &of(1, 1)).unwrap();
    device.fail_nth_sync(1);
    assert_eq!(device.sync().unwrap_err().raw_os_error(), Some(5));
    device.write(SECTOR as u64, &of(2, 1)).unwrap();
    device.sync().unwrap();
    assert_eq!(found_at_end(&sim), [vec![0, 2, 0], vec![1, 2, 0]].into());
    device.write(0, &of(3, 1)).unwrap();
    device.sync().unwrap();
    assert_eq!(found_at_end(&sim), [vec![3, 2, 0]].into(), "written again, and synced");
}

#[test]
fn a_write_that_failed_may_be_there_in_part_and_no_sync_decides() {
    let sim = Simulator::new();
    let device = three_sectors(&sim);
    device.fail_nth_write(1);
    assert_eq!(device.write(0, &of(1, 2)).unwrap_err().raw_os_error(), Some(5));
    device.sync().unwrap();
    assert_eq!(found_at_end(&sim).len(), 4);
    device.write(0, &of(2, 2)).unwrap();
    device.sync().unwrap();
    assert_eq!(found_at_end(&sim), [vec![2, 2, 0]].into());
}

#[test]
fn a_read_fails_where_it_was_planned_and_nowhere_else() {
    let sim = Simulator::new();
    let device = three_sectors(&sim);
    device.write(0, &of(1, 3)).unwrap();
    device.fail_reads(SECTOR as u64..SECTOR as u64 + 1);
    let mut buffer = of(0, 1);
    device.read(0, &mut buffer).unwrap();
    assert_eq!(buffer, of(1, 1));
    device.read(2 * SECTOR as u64, &mut buffer).unwrap();
    assert_eq!(device.read(0, &mut of(0, 3)).unwrap_err().raw_os_error(), Some(5));
    assert_eq!(device.read(SECTOR as u64, &mut buffer).unwrap_err().raw_os_error(), Some(5));
    device.fail_reads(0..0);
    device.read(SECTOR as u64, &mut buffer).unwrap();
}

#[test]
fn what_is_no_whole_sectors_or_lies_outside_is_refused_and_not_recorded() {
    let sim = Simulator::new();
    let device = three_sectors(&sim);
    for (at, len) in
        [(0, 1), (1, SECTOR), (0, 4 * SECTOR), (3 * SECTOR as u64, SECTOR), (u64::MAX, SECTOR)]
    {
        assert_eq!(
            device.write(at, &vec![1; len]).unwrap_err().raw_os_error(),
            Some(22),
            "{len} at {at}"
        );
    }
    device.write(0, &[]).unwrap();
    assert!(sim.trace().is_empty());
    device.grow(4 * SECTOR as u64);
    device.write(3 * SECTOR as u64, &of(1, 1)).unwrap();
    assert_eq!(found_at_end(&sim), [vec![0, 0, 0, 0], vec![0, 0, 0, 1]].into());
    sim.rebase();
    assert_eq!(found_at_end(&sim), [vec![0, 0, 0, 1]].into());
    assert_eq!(device.len(), 4 * SECTOR as u64);
}

#[test]
fn a_device_that_lies_about_its_syncs_is_found_out() {
    // How many images there are after the first sync, and after the second.
    for (fault, first, second) in [
        (Sabotage::DropEverySync, 2, 4),
        (Sabotage::DropNthSync(0), 2, 1),
        (Sabotage::DropNthSync(1), 1, 2),
    ] {
        let sim = Simulator::new();
        let device = three_sectors(&sim);
        sim.set_dropped(fault);
        for (sector, images) in [(0, first), (1, second)] {
            device.write(sector * SECTOR as u64, &of(1, 1)).unwrap();
            device.sync().unwrap();
            assert_eq!(found_at_end(&sim).len(), images, "{fault:?}");
        }
    }
}

#[test]
fn one_trace_orders_stores_to_a_mapping_and_writes_to_a_device() {
    let sim = Simulator::new();
    let mapping = sim.mapping(vec![0; FRAME], 0);
    mapping.set_open_range(FRAME as u64);
    let device = three_sectors(&sim);
    device.write(0, &of(7, 2)).unwrap();
    device.sync().unwrap();
    mapping.store_u64(0, 1);
    mapping.persist(0, 8);
    device.write(0, &of(8, 1)).unwrap();
    let trace = sim.trace();
    let mut player = trace.player();
    let mut buffer = player.buffer();
    for cut in trace.cut_points() {
        player.advance_to(cut);
        for choice in player.images(100, 0) {
            let images = player.image(&choice, &mut buffer);
            let whole = images[1][..2 * SECTOR].iter().all(|byte| *byte >= 7);
            assert!(images[0][0] == 0 || whole, "the word says that the sectors are there");
        }
    }
    assert_eq!(player.pending_sectors().len(), 1);
    // What a fence does not: make sectors durable.
    mapping.fence();
    assert_eq!(found(&at_end(&sim), 1).len(), 2);
    let newest = player.everything();
    assert_eq!(player.image(&newest, &mut buffer)[1][0], 8);
}

#[test]
fn a_sync_of_one_device_says_nothing_about_another() {
    let sim = Simulator::new();
    let (first, second) = (three_sectors(&sim), three_sectors(&sim));
    first.write(0, &of(1, 1)).unwrap();
    second.write(0, &of(2, 1)).unwrap();
    first.fail_nth_sync(1);
    first.sync().unwrap_err();
    assert_eq!((found(&at_end(&sim), 0).len(), found(&at_end(&sim), 1).len()), (2, 2));
    second.sync().unwrap();
    assert_eq!((found(&at_end(&sim), 0).len(), found(&at_end(&sim), 1).len()), (2, 1));
    first.write(0, &of(3, 1)).unwrap();
    second.write(0, &of(4, 1)).unwrap();
    first.sync().unwrap();
    assert_eq!((found(&at_end(&sim), 0).len(), found(&at_end(&sim), 1).len()), (1, 2));
}

#[test]
fn a_sample_has_each_sector_alone_and_each_missing() {
    let sim = Simulator::new();
    let device = sim.device(vec![0; 40 * SECTOR], SECTOR);
    device.write(0, &of(1, 40)).unwrap();
    let player = at_end(&sim);
    let images = player.images(400, 3);
    assert!(!images.is_exhaustive());
    let choices: Vec<Choice> = images.collect();
    let arrived =
        |choice: &Choice| choice.versions().iter().filter(|version| **version > 0).count();
    let seen: HashSet<&[u16]> = choices.iter().map(Choice::versions).collect();
    for sector in 0..40 {
        let alone: Vec<u16> = (0..40).map(|other| u16::from(other == sector)).collect();
        let missing: Vec<u16> = alone.iter().map(|version| 1 - version).collect();
        assert!(seen.contains(&alone[..]) && seen.contains(&missing[..]), "sector {sector}");
    }
    for count in [0, 40] {
        assert!(choices.iter().any(|choice| arrived(choice) == count), "{count} arrived");
    }
    assert!(choices == player.images(400, 3).collect::<Vec<_>>(), "the seed decides");
}

// The brute-force model.

/// A write, as the trace tells it.
struct Write {
    sectors: std::ops::Range<usize>,
    byte: u8,
    issued: usize,
    /// `usize::MAX` while it is under way.
    returned: usize,
    good: bool,
}

/// What each sector may show after the first `cut` events, by the rule as it stands in the
/// documentation of `sim`: every write is asked about every sync and every other write.
fn allowed(events: &[Event], cut: usize, bytes: &[u8]) -> Vec<BTreeSet<u8>> {
    let mut writes = BTreeMap::new();
    let (mut begun, mut synced, mut failed) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (now, event) in events[..cut].iter().enumerate() {
        match *event {
            Event::Write { at, len, call, .. } => {
                let sectors = at as usize / SECTOR..(at as usize + len) / SECTOR;
                let byte = bytes[writes.len()];
                writes.insert(
                    call,
                    Write { sectors, byte, issued: now, returned: usize::MAX, good: false },
                );
            }
            Event::Returned { call, good, .. } => {
                let write: &mut Write = writes.get_mut(&call).unwrap();
                (write.returned, write.good) = (now, good);
            }
            Event::SyncBegun { call, .. } => _ = begun.insert(call, now),
            Event::Synced { call, .. } => synced.push((begun[&call], now)),
            Event::SyncFailed { .. } => failed.push(now),
            _ => panic!("only one device is used"),
        }
    }
    let durable = |write: &Write| {
        write.good
            && synced.iter().any(|&(begun, ended)| {
                write.returned < begun && !failed.iter().any(|&at| write.issued < at && at < ended)
            })
    };
    (0..3)
        .map(|sector| {
            let here: Vec<&Write> =
                writes.values().filter(|w| w.sectors.contains(&sector)).collect();
            let replaced =
                |since: usize| here.iter().any(|newer| durable(newer) && newer.issued > since);
            let mut may: BTreeSet<u8> = here
                .iter()
                .filter(|write| !replaced(write.returned))
                .map(|write| write.byte)
                .collect();
            if !here.iter().any(|write| durable(write)) {
                may.insert(0);
            }
            may
        })
        .collect()
}

/// Makes random calls, some of them in the middle of others, as another thread would.
struct Random {
    sim: Simulator,
    device: Device,
    rng: Mutex<fastrand::Rng>,
    /// The byte of each write, in the order of the trace.
    bytes: Mutex<Vec<u8>>,
    /// How many calls are in the middle of one another.
    depth: AtomicUsize,
    /// The position of the trace before the innermost call: what its first call of the hook sees.
    before: AtomicUsize,
}

impl Random {
    fn step(&self) {
        let (die, at, fails) = {
            let mut rng = self.rng.lock().unwrap();
            (rng.u8(..8), rng.usize(..3), rng.u8(..8) == 0)
        };
        self.before.store(self.sim.position(), Ordering::Relaxed);
        if die < 5 {
            let sectors = 1 + self.rng.lock().unwrap().usize(..3 - at);
            let byte = {
                let mut bytes = self.bytes.lock().unwrap();
                let byte = bytes.len() as u8 + 1;
                bytes.push(byte);
                byte
            };
            self.device.fail_nth_write(u64::from(fails));
            _ = self.device.write((at * SECTOR) as u64, &of(byte, sectors));
        } else {
            self.device.fail_nth_sync(0);
            // Counted when the sync ends: the first to end fails.
            self.device.fail_nth_sync(u64::from(fails));
            _ = self.device.sync();
        }
    }

    /// Called at each half of a call; acts in the second.
    fn between(&self) {
        let first_half = self.sim.position() == self.before.load(Ordering::Relaxed);
        let depth = self.depth.load(Ordering::Relaxed);
        if first_half || depth == 2 || self.rng.lock().unwrap().u8(..3) > 0 {
            return;
        }
        self.depth.store(depth + 1, Ordering::Relaxed);
        self.step();
        self.depth.store(depth, Ordering::Relaxed);
    }
}

#[test]
fn the_images_of_random_traces_are_exactly_those_of_the_rule() {
    let rounds = if cfg!(miri) { 3 } else { 1_500 };
    let (mut images, mut most, mut overlapping, mut failures) = (0, 0, 0, 0);
    for seed in 0..rounds {
        let sim = Simulator::new();
        let random = Arc::new(Random {
            device: three_sectors(&sim),
            sim: sim.clone(),
            rng: Mutex::new(fastrand::Rng::with_seed(seed)),
            bytes: Mutex::default(),
            depth: AtomicUsize::new(0),
            before: AtomicUsize::new(0),
        });
        let hook = random.clone();
        sim.set_hook(Some(Arc::new(move || hook.between())));
        for _ in 0..7 {
            random.step();
        }
        sim.set_hook(None);
        let trace = sim.trace();
        let events: Vec<Event> = trace.events().cloned().collect();
        overlapping += events
            .windows(2)
            .filter(|two| {
                matches!(two[0], Event::Write { .. }) && !matches!(two[1], Event::Returned { .. })
            })
            .count();
        failures += events.iter().filter(|event| matches!(event, Event::SyncFailed { .. })).count();
        let bytes = random.bytes.lock().unwrap().clone();
        let mut player = trace.player();
        for cut in 0..=trace.len() {
            player.advance_to(cut);
            let mut expected: BTreeSet<Vec<u8>> = [Vec::new()].into();
            for may in allowed(&events, cut, &bytes) {
                let longer = |image: &Vec<u8>| {
                    may.iter().map(move |b| [&image[..], &[*b]].concat()).collect()
                };
                expected =
                    expected.iter().flat_map(|image| -> Vec<Vec<u8>> { longer(image) }).collect();
            }
            let found = found(&player, 0);
            assert_eq!(found, expected, "seed {seed}, cut {cut} of {events:?}");
            assert_eq!(
                player.image_count(),
                Some(expected.len() as u128),
                "seed {seed}, cut {cut}"
            );
            images += found.len();
            most = most.max(found.len());
        }
    }
    println!(
        "{images} images, at most {most} at a cut; {overlapping} writes overlap, {failures} syncs \
         fail"
    );
    assert!(cfg!(miri) || (overlapping > 100 && failures > 100 && most > 20));
}

#[test]
fn every_cut_between_two_cut_points_shows_less_than_the_later_one() {
    for seed in 0..if cfg!(miri) { 2 } else { 200 } {
        let sim = Simulator::new();
        let device = three_sectors(&sim);
        let mut rng = fastrand::Rng::with_seed(seed);
        for byte in 1..8 {
            let at = rng.usize(..3);
            device.write((at * SECTOR) as u64, &of(byte, rng.usize(1..=3 - at))).unwrap();
            if rng.u8(..3) == 0 {
                device.fail_nth_sync(u64::from(rng.u8(..4) == 0));
                _ = device.sync();
            }
        }
        let trace = sim.trace();
        let points = trace.cut_points();
        let mut player = trace.player();
        let all: Vec<BTreeSet<Vec<u8>>> = (0..=trace.len())
            .map(|cut| {
                player.advance_to(cut);
                found(&player, 0)
            })
            .collect();
        for cut in 0..=trace.len() {
            let next = *points.iter().find(|point| **point >= cut).unwrap();
            assert!(all[cut].is_subset(&all[next]), "seed {seed}, cut {cut}, cut point {next}");
        }
    }
}

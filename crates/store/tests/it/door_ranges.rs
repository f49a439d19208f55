//! Ranges of a file through a door: zeroing, punching, reserving, holes, appending; on real files,
//! in every class.

use crate::place;

use crate::place::Place;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tiersmith_store::{AttachedHome, File, Medium, OpenMode, TierSpec, attach};

const NAMES: [&str; 4] = ["a.redo", "a.d4", "a.d16", "a.txt"];

fn small(place: &Place) -> TierSpec {
    TierSpec::new("fast", place.member("m0"), Medium::Emulated, 12 << 20)
}

fn attached(place: &Place) -> AttachedHome {
    attach(&place.home(), &[small(place)], place::options()).unwrap()
}

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// One operation of many, on a file and on its model.
fn any_operation(
    home: &AttachedHome,
    name: &str,
    file: &File,
    model: &mut Vec<u8>,
    rng: &mut fastrand::Rng,
) {
    let at = if rng.bool() { rng.u64(0..40) * 4096 } else { rng.u64(0..150_000) };
    let len = if rng.bool() { rng.u64(1..12) * 4096 } else { rng.u64(1..30_000) };
    let end = (at + len) as usize;
    match rng.u32(0..12) {
        0..3 => {
            let data: Vec<u8> = (0..len).map(|_| rng.u8(1..)).collect();
            file.write(at, &data).unwrap();
            model.resize(model.len().max(end), 0);
            model[at as usize..end].copy_from_slice(&data);
        }
        3 => {
            let data = vec![rng.u8(1..); len as usize];
            assert_eq!(file.append(&data).unwrap(), model.len() as u64);
            model.extend_from_slice(&data);
        }
        4..6 => {
            file.punch(at, len).unwrap();
            let end = end.min(model.len());
            model[(at as usize).min(end)..end].fill(0);
        }
        6 => {
            let keep = rng.bool();
            file.zero(at, len, keep).unwrap();
            if !keep {
                model.resize(model.len().max(end), 0);
            }
            let end = end.min(model.len());
            model[(at as usize).min(end)..end].fill(0);
        }
        7 => {
            let keep = rng.bool();
            file.allocate(at, len, keep).unwrap();
            if !keep {
                model.resize(model.len().max(end), 0);
            }
        }
        8 => {
            file.truncate(at).unwrap();
            model.resize(at as usize, 0);
        }
        9 => drop(home.destage(Some(Path::new(name))).unwrap()),
        10 => drop(home.evict(None, u64::MAX).unwrap()),
        _ => home.background_step().unwrap(),
    }
}

/// Random ranges on every class, against a plain vector, with blocks in every state; then the same
/// bytes after reopening and detaching.
#[test]
fn random_ranges_on_every_class_equal_a_plain_model() {
    for seed in 0..6u64 {
        let place = Place::in_memory();
        let mut home = attached(&place);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut models: Vec<Vec<u8>> = vec![Vec::new(); NAMES.len()];
        for step in 0..220 {
            let n = rng.usize(0..NAMES.len());
            let file = home.open(NAMES[n], OpenMode::CREATE).unwrap();
            let model = &mut models[n];
            any_operation(&home, NAMES[n], &file, model, &mut rng);
            assert!(contents(&file) == *model, "seed {seed}, step {step}, {}", NAMES[n]);
            holes_are_zeros(&file, model, &format!("seed {seed}, step {step}, {}", NAMES[n]));
            drop(file);
            if rng.u32(0..60) == 0 {
                drop(home);
                home = attached(&place);
            }
        }
        for (name, model) in NAMES.iter().zip(&models) {
            let file = home.open(name, OpenMode::CREATE).unwrap();
            assert!(contents(&file) == *model, "seed {seed}, {name}");
        }
        home.detach().unwrap();
        for (name, model) in NAMES.iter().zip(&models) {
            assert!(
                std::fs::read(place.home().join(name)).unwrap() == *model,
                "seed {seed}, {name} after detaching"
            );
        }
    }
}

/// What SEEK_DATA and SEEK_HOLE say is consistent, and nothing that is not zero lies in a hole.
fn holes_are_zeros(file: &File, model: &[u8], when: &str) {
    let mut at = 0;
    while let Some(data) = file.next_data(at).unwrap() {
        assert!(data >= at && data < model.len() as u64, "{when}: data at {data}");
        assert!(
            model[at as usize..data as usize].iter().all(|b| *b == 0),
            "{when}: a hole from {at} to {data}"
        );
        let hole = file.next_hole(data).unwrap().expect("within the file");
        assert!(hole > data && hole <= model.len() as u64, "{when}: data from {data} to {hole}");
        at = hole;
    }
    assert!(
        model[(at as usize).min(model.len())..].iter().all(|b| *b == 0),
        "{when}: a hole from {at} on"
    );
    assert_eq!(file.next_hole(model.len() as u64).unwrap(), None, "{when}");
}

#[test]
fn punching_gives_the_space_of_home_and_of_the_tier_back() {
    let place = Place::new();
    let home = attached(&place);
    let file = home.open("a.d4", OpenMode::CREATE).unwrap();
    let len = 8 << 20;
    file.write(0, &vec![7; len]).unwrap();
    home.destage(None).unwrap();
    let space = || std::fs::metadata(place.aside().join("a.d4")).unwrap().blocks() * 512;
    assert!(space() >= len as u64);
    file.punch(0, len as u64).unwrap();
    assert_eq!(file.blocks_in_tier(), (0, 0));
    if space() > 0 {
        eprintln!(
            "skipped: that space is given back at home, because this file system keeps {} bytes of \
             it",
            space()
        );
    } else {
        assert_eq!(file.next_data(0).unwrap(), None);
    }
    assert!(contents(&file).iter().all(|b| *b == 0));
    assert_eq!(file.len().unwrap(), len as u64);
}

#[test]
fn a_hole_larger_than_the_tier_is_punched_without_filling_it() {
    let place = Place::new();
    let home = attached(&place);
    let file = home.open("a.d4", OpenMode::CREATE).unwrap();
    file.truncate(64 << 30).unwrap();
    file.write(40 << 30, &[1; 4096]).unwrap();
    // Within home's end too, which is made as long by destaging.
    home.destage(None).unwrap();
    let start = (40 << 30) - (1 << 20);
    file.punch(start, 4 << 20).unwrap();
    assert_eq!(file.next_data(start).unwrap(), None);
    file.zero(100, 3 << 20, true).unwrap();
    let mut bytes = [9; 8192];
    file.read(40 << 30, &mut bytes).unwrap();
    assert!(bytes.iter().all(|b| *b == 0));
}

#[test]
fn ranges_that_are_none_are_refused() {
    let place = Place::in_memory();
    let home = attached(&place);
    for name in NAMES {
        let file = home.open(name, OpenMode::CREATE).unwrap();
        assert!(
            file.punch(0, 0).is_err()
                && file.zero(1, 0, true).is_err()
                && file.allocate(1, 0, true).is_err()
        );
        assert!(file.punch(u64::MAX, 2).is_err() && file.zero(u64::MAX - 1, 9, false).is_err());
        assert!(file.allocate(u64::MAX, 2, false).is_err());
        assert_eq!(
            (file.len().unwrap(), file.next_data(0).unwrap(), file.next_hole(0).unwrap()),
            (0, None, None)
        );
        drop(file);
        let reader = home.open(name, OpenMode::READ).unwrap();
        assert!(
            reader.punch(0, 1).is_err()
                && reader.append(b"x").is_err()
                && reader.allocate(0, 1, true).is_err()
        );
    }
}

#[test]
fn appends_of_several_threads_do_not_overlap() {
    let place = Place::in_memory();
    let home = attached(&place);
    for name in NAMES {
        let file = home.open(name, OpenMode::CREATE).unwrap();
        std::thread::scope(|scope| {
            for thread in 1..=4u8 {
                let file = file.clone();
                scope.spawn(move || {
                    for n in 1..60usize {
                        let at = file.append(&vec![thread; n * 37]).unwrap();
                        let mut back = vec![0; n * 37];
                        file.read(at, &mut back).unwrap();
                        assert!(back.iter().all(|b| *b == thread));
                    }
                });
            }
        });
        assert_eq!(file.len().unwrap(), 4 * 37 * (1..60u64).sum::<u64>(), "{name}");
    }
}

#[test]
fn reserving_space_on_a_full_home_fails_now_and_changes_nothing() {
    use tiersmith_store::home::sim::{SimHome, SimOptions};
    let sim = std::sync::Arc::new(SimHome::new(None));
    sim.put(Path::new("a.d4"), &[1; 8192]).unwrap();
    sim.rebase();
    let spec = place::small("/m0".into(), 1 << 20);
    let mapping =
        std::sync::Arc::new(tiersmith_pmem::Mapping::in_memory(&vec![0; 1 << 20], 1 << 20));
    let tiers = vec![(spec, vec![mapping])];
    let home = tiersmith_store::testing::attach_simulated(
        sim.clone(),
        tiers,
        &place::profile(),
        place::options(),
    )
    .unwrap();
    let file = home.open("a.d4", OpenMode::WRITE).unwrap();
    file.write(0, &[2; 4096]).unwrap();
    sim.set_options(SimOptions { capacity: Some(sim.used()), ..SimOptions::default() });
    let error = file.allocate(0, 1 << 20, false).unwrap_err();
    assert_eq!(error.errno(), rustix::io::Errno::NOSPC.raw_os_error(), "{error}");
    assert!(
        error.to_string().contains("a.d4") && error.to_string().contains("file system is full"),
        "{error}"
    );
    assert_eq!((file.len().unwrap(), contents(&file)[..4096] == [2; 4096]), (8192, true));
    sim.set_options(SimOptions::default());
    file.allocate(0, 1 << 20, false).unwrap();
    assert_eq!(file.len().unwrap(), 1 << 20);
}

/// Writers, a puncher, a reserver, lookers and the background work on one file: nobody ever sees
/// part of a block.
#[test]
fn blocks_that_are_written_punched_and_destaged_at_the_same_time_are_never_mixed() {
    const BLOCKS: u64 = 48;
    let place = Place::in_memory();
    let spec = place::small(place.member("m0"), 1 << 20);
    let options = tiersmith_store::Options { background: true, ..place::options() };
    for name in ["a.d4", "a.d16"] {
        let home = attach(&place.home(), std::slice::from_ref(&spec), options.clone()).unwrap();
        let file = home.open(name, OpenMode::CREATE).unwrap();
        let block = file.block_size().unwrap().bytes();
        file.truncate(BLOCKS * block as u64).unwrap();
        std::thread::scope(|scope| {
            let (file, home) = (&file, &home);
            let workers: Vec<_> = (0..4u64)
                .map(|worker| {
                    scope.spawn(move || {
                        let mut rng = fastrand::Rng::with_seed(worker);
                        let mut bytes = vec![0; block];
                        for n in 0..600 {
                            let at = rng.u64(0..BLOCKS) * block as u64;
                            match (worker, rng.u32(0..4)) {
                                (0 | 1, _) => file.write(at, &vec![n as u8 | 1; block]).unwrap(),
                                (2, 0) => file.allocate(at, 3 * block as u64, true).unwrap(),
                                (2, _) => file.punch(at, rng.u64(1..4) * block as u64).unwrap(),
                                (_, 0) => {
                                    home.destage(None).unwrap();
                                    home.evict(None, u64::MAX).unwrap();
                                }
                                _ => {
                                    let got = file.read(at, &mut bytes).unwrap();
                                    assert!(
                                        got == block && bytes.iter().all(|b| *b == bytes[0]),
                                        "mixed at {at}"
                                    );
                                    file.stat().unwrap();
                                }
                            }
                        }
                    })
                })
                .collect();
            for worker in workers {
                worker.join().unwrap();
            }
        });
        let before = contents(&file);
        assert!(before.chunks(block).all(|b| b.iter().all(|byte| *byte == b[0])));
        drop(file);
        home.detach().unwrap();
        assert!(
            std::fs::read(place.home().join(name)).unwrap() == before,
            "{name} after detaching"
        );
    }
}

//! Map pages: a tier serves more open files, and larger ones, than it has frames for block maps.

use crate::place;

use crate::place::{Place, pattern};
use std::sync::atomic::{AtomicBool, Ordering};
use tiersmith_store::{File, OpenMode, TierSpec, attach};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;

fn name(n: u64) -> String {
    format!("{}/{n}.{}", n % 10, if n % 5 == 4 { "redo" } else { "d4" })
}

fn with_directories() -> Place {
    let place = Place::in_memory();
    (0..10).for_each(|n| std::fs::create_dir(place.home().join(n.to_string())).unwrap());
    place
}

fn assert_contents(file: &File, n: u64, version: u64) {
    let mut bytes = vec![0; BLOCK];
    assert_eq!(file.read(0, &mut bytes).unwrap(), BLOCK, "file {n}");
    assert!(bytes == pattern(n * 10 + version, 0, BLOCK), "file {n}, version {version}");
}

#[test]
fn more_files_are_open_and_written_than_the_tier_has_room_for_map_pages() {
    const FILES: u64 = 3500;
    let place = with_directories();
    let spec = TierSpec { slots: FILES + 100, ..place::small(place.member("fast"), 16 * MIB) };
    let home = attach(&place.home(), std::slice::from_ref(&spec), place::options()).unwrap();
    let files: Vec<File> = (0..FILES).map(|n| home.create(name(n)).unwrap()).collect();
    for version in 0..2 {
        for (n, file) in (0..).zip(&files) {
            let bytes = pattern(n * 10 + version, 0, BLOCK);
            let written = match n % 5 {
                0 => file.write_batch(&[(0, &bytes)]),
                1 => file.write(0, &bytes[..1000]).and_then(|()| file.write(1000, &bytes[1000..])),
                _ => file.write(0, &bytes),
            };
            written.unwrap_or_else(|e| panic!("file {n}, version {version}: {e}"));
        }
        (0..).zip(&files).for_each(|(n, file)| assert_contents(file, n, version));
    }
    assert_eq!(home.stats().tiers[0].files, FILES, "all have their slots");
    drop(files);
    drop(home);
    let home = attach(&place.home(), &[spec], place::options()).unwrap();
    (0..FILES).for_each(|n| assert_contents(&home.open(name(n), OpenMode::READ).unwrap(), n, 1));
    home.detach().unwrap();
    for n in 0..FILES {
        let bytes = std::fs::read(place.home().join(name(n))).unwrap();
        assert!(bytes == pattern(n * 10 + 1, 0, BLOCK), "file {n} at home");
    }
}

#[test]
fn one_file_is_larger_than_a_map_that_fits_into_the_tier() {
    // Of these blocks each has a map page of its own, and every thousandth a middle page.
    const STEP: u64 = 512 * BLOCK as u64;
    for ending in ["d4", "redo"] {
        let place = Place::in_memory();
        let home = attach(&place.home(), &[place.tier(2 * MIB)], place::options()).unwrap();
        let file = home.create(format!("large.{ending}")).unwrap();
        for n in 0..2000 {
            let written = file.write(n * STEP, &pattern(n, 0, BLOCK));
            written.unwrap_or_else(|e| panic!("block {n} of a {ending} file: {e}"));
        }
        for n in 0..2000 {
            let mut bytes = vec![0; BLOCK];
            file.read(n * STEP, &mut bytes).unwrap();
            assert!(bytes == pattern(n, 0, BLOCK), "block {n} of a {ending} file");
        }
        drop(file);
        drop(home);
        let home = attach(&place.home(), &[place.tier(2 * MIB)], place::options()).unwrap();
        let file = home.open(format!("large.{ending}"), OpenMode::WRITE).unwrap();
        for n in (0..2000).rev() {
            let mut bytes = vec![0; BLOCK];
            file.read(n * STEP, &mut bytes).unwrap();
            assert!(
                bytes == pattern(n, 0, BLOCK),
                "block {n} of a {ending} file after attaching again"
            );
        }
        drop(file);
        home.detach().unwrap();
    }
}

#[test]
fn threads_that_take_map_pages_from_each_other_lose_no_write() {
    const THREADS: u64 = 4;
    const FILES: u64 = 120;
    let place = with_directories();
    let spec =
        TierSpec { slots: THREADS * FILES + 100, ..place::small(place.member("fast"), 2 * MIB) };
    let home = attach(&place.home(), std::slice::from_ref(&spec), place::options()).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let home = &home;
                scope.spawn(move || {
                    let mine = || (0..FILES).map(|n| thread * FILES + n);
                    let files: Vec<File> = mine().map(|n| home.create(name(n)).unwrap()).collect();
                    for version in 0..8 {
                        for (n, file) in mine().zip(&files) {
                            let bytes = pattern(n * 10 + version, 0, BLOCK);
                            if n % 3 == 0 && n % 5 != 4 {
                                file.write_batch(&[(0, &bytes)]).unwrap();
                            } else {
                                file.write(0, &bytes).unwrap();
                            }
                            assert_contents(file, n, version);
                        }
                        mine().zip(&files).for_each(|(n, file)| assert_contents(file, n, version));
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                home.background_step().unwrap();
                std::thread::yield_now();
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        over.store(true, Ordering::Relaxed);
        assert!(ended.into_iter().all(|writer| writer.is_ok()), "a writer failed");
    });
    drop(home);
    let home = attach(&place.home(), &[spec], place::options()).unwrap();
    (0..THREADS * FILES)
        .for_each(|n| assert_contents(&home.open(name(n), OpenMode::READ).unwrap(), n, 7));
    home.detach().unwrap();
}

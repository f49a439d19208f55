//! Many threads on one file and on different files, with contents that tell whether they are whole
//! and how new they are, while blocks are destaged, evicted, drained and cut under them; and the
//! accounts at the end.
//!
//! `gated.rs` brings about, one by one, the orders of events that chance seldom does.

mod gated;

use crate::place;

use crate::gate::Gate;
use crate::place::{Done, Memory, Place, attach};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tiersmith_store::home::SimHome;
use tiersmith_store::{AttachedHome, Error, File, Medium, OpenMode, Options, TierSpec, testing};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const BLOCK: usize = 8192;

/// A block that says which one it is and how new, and whether it is whole.
fn stamped(block: u64, version: u64) -> Vec<u8> {
    let mut bytes = place::pattern(place::mix(block) ^ version, 0, BLOCK);
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes
}

/// The version of a block that is whole; 0 for zeros.
fn version(block: u64, bytes: &[u8]) -> u64 {
    if bytes.iter().all(|b| *b == 0) {
        return 0;
    }
    let found = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    assert!(bytes == stamped(block, found), "block {block} is torn or another's (version {found})");
    found
}

fn block(file: &File, n: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    let got = file.read(n * BLOCK as u64, &mut bytes).unwrap();
    bytes.truncate(got);
    bytes
}

/// A tier a quarter as large as what the tests keep in it, and a home in memory.
fn small_place() -> (Place, TierSpec) {
    let place = Place::in_memory();
    let spec =
        TierSpec { max_size: MIB + 256 * KIB, grow_by: 128 * KIB, lanes: 16, ..place.tier(MIB) };
    (place, spec)
}

fn open(place: &Place, spec: &TierSpec, background: bool) -> AttachedHome {
    let options = Options { background, redo_keep_bytes: 64 << 10, ..place::options() };
    attach(&place.home(), spec, options).unwrap()
}

/// Nothing has leaked and nothing was freed twice: one pinned file can have every block of the
/// tier, and a second opening counts the same as the first.
fn assert_accounts(place: &Place, spec: &TierSpec, attached: AttachedHome) {
    attached.flush_all().unwrap();
    // What was read last may still wait for the background, which then admits it after an eviction.
    let end = Instant::now() + Duration::from_secs(120);
    let stats = loop {
        attached.evict(None, u64::MAX).unwrap();
        let stats = attached.stats();
        if stats.tiers[0].cached_bytes == 0 || Instant::now() > end {
            break stats;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!((stats.tiers[0].dirty_bytes, stats.tiers[0].cached_bytes), (0, 0));
    place::assert_nearly_accounted(&stats);
    let file = attached.open("all.d4", OpenMode::CREATE).unwrap();
    file.write(0, &[1; 4096]).unwrap();
    attached.pin("all.d4").unwrap();
    let refused = (1..).find_map(|n| file.write(n * 4096, &[1; 4096]).err()).unwrap();
    assert!(matches!(refused, Error::TierFull { .. }), "{refused}");
    // Who was refused has taken back what the lanes held ready; the background thread may still
    // have some blocks in hand.
    let mut stats = attached.stats();
    let end = Instant::now() + Duration::from_secs(120);
    while !place::is_accounted(&stats) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
        stats = attached.stats();
    }
    place::assert_accounted(&stats);
    let in_units_of_pages = (stats.tiers[0].map_bytes / 4096 * spec.unit).max(spec.unit);
    assert!(
        stats.tiers[0].free_bytes <= in_units_of_pages,
        "refused although there is room: {stats:?}"
    );
    drop(file);
    drop(attached);
    let attached = open(place, spec, false);
    place::assert_accounted(&attached.stats());
    attached.unlink("all.d4").unwrap();
    attached.detach().unwrap();
}

/// Blocks of the file that all share, and who writes every so manieth.
const SHARED_BLOCKS: u64 = 256;
const WRITERS: u64 = 3;

/// Reads blocks until it is stopped, by copy and by reference, and counts both.
fn read_whole(
    file: &File,
    acked: &[AtomicU64],
    stop: &AtomicBool,
    [reads, refs]: [&AtomicU64; 2],
    mut rng: fastrand::Rng,
) {
    let mut seen = [0; SHARED_BLOCKS as usize];
    let mut bytes = vec![0; BLOCK];
    while !stop.load(SeqCst) {
        let block = rng.u64(..SHARED_BLOCKS);
        let least = acked[block as usize].load(SeqCst).max(seen[block as usize]);
        let at = block * BLOCK as u64;
        let found = if rng.bool() {
            assert_eq!(file.read(at, &mut bytes).unwrap(), BLOCK);
            reads.fetch_add(1, SeqCst);
            version(block, &bytes)
        } else if let Some(view) = file.read_ref(at) {
            refs.fetch_add(1, SeqCst);
            let found = version(block, &view);
            std::thread::yield_now();
            assert_eq!(version(block, &view), found, "a reference changed under its reader");
            found
        } else {
            continue;
        };
        assert!(found >= least, "block {block}: version {found} after {least} was acknowledged");
        seen[block as usize] = found;
    }
}

/// Writes the blocks of one writer, one by one and in batches.
fn write_own(file: &File, acked: &[AtomicU64], writer: u64, mut rng: fastrand::Rng) {
    for version in 1..place::times(1500) {
        let mut own: Vec<u64> = (0..1 + rng.u64(..3))
            .map(|_| rng.u64(..SHARED_BLOCKS / WRITERS) * WRITERS + writer)
            .collect();
        own.sort_unstable();
        own.dedup();
        let data: Vec<Vec<u8>> = own.iter().map(|b| stamped(*b, version)).collect();
        if own.len() > 1 {
            let at = |b: &u64| b * BLOCK as u64;
            let batch: Vec<_> = own.iter().zip(&data).map(|(b, d)| (at(b), &d[..])).collect();
            file.write_batch(&batch).unwrap();
        } else {
            file.write(own[0] * BLOCK as u64, &data[0]).unwrap();
        }
        own.iter().for_each(|b| acked[*b as usize].store(version, SeqCst));
    }
}

#[test]
fn readers_of_one_file_see_whole_blocks_at_least_as_new_as_acknowledged() {
    let (place, spec) = small_place();
    let attached = open(&place, &spec, true);
    let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
    file.extend(SHARED_BLOCKS * BLOCK as u64).unwrap();
    let acked: Vec<AtomicU64> = (0..SHARED_BLOCKS).map(|_| AtomicU64::new(0)).collect();
    let (stop, reads, refs) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let seed = place::seed();
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (file, acked, stop, reads, refs) = (&file, &acked, &stop, &reads, &refs);
            scope.spawn(move || {
                read_whole(
                    file,
                    acked,
                    stop,
                    [reads, refs],
                    fastrand::Rng::with_seed(seed ^ reader),
                );
            });
        }
        scope.spawn(|| {
            let mut rng = fastrand::Rng::with_seed(seed ^ 77);
            while !stop.load(SeqCst) {
                match rng.u32(..5) {
                    0 => drop(attached.destage(Some(Path::new("a.d8"))).unwrap()),
                    1 => drop(attached.evict(Some(Path::new("a.d8")), 0).unwrap()),
                    2 => drop(attached.evict(None, 20).unwrap()),
                    3 => attached.background_step().unwrap(),
                    _ => std::thread::sleep(Duration::from_micros(300)),
                }
            }
        });
        let _done = Done(&stop);
        std::thread::scope(|writers| {
            for writer in 0..WRITERS {
                let (file, acked) = (&file, &acked);
                writers.spawn(move || {
                    write_own(file, acked, writer, fastrand::Rng::with_seed(seed ^ writer << 32));
                });
            }
        });
        // On a busy machine the writers may be done before the readers have had their turn.
        let until = Instant::now() + Duration::from_secs(120);
        while place::LENDS && refs.load(SeqCst) <= 100 && Instant::now() < until {
            file.write(0, &stamped(0, acked[0].load(SeqCst))).unwrap();
            std::thread::yield_now();
        }
    });
    let all = place::contents(&file);
    for block in 0..SHARED_BLOCKS {
        let found = version(block, &all[block as usize * BLOCK..][..BLOCK]);
        assert_eq!(found, acked[block as usize].load(SeqCst), "block {block} at the end");
    }
    println!("{} copies and {} references read", reads.load(SeqCst), refs.load(SeqCst));
    assert!(refs.load(SeqCst) > 100 || !place::LENDS);
    drop(file);
    assert_accounts(&place, &spec, attached);
}

#[test]
fn readers_of_a_file_that_is_cut_and_regrown_see_whole_blocks_or_zeros() {
    const BLOCKS: u64 = 128;
    let (place, spec) = small_place();
    let attached = open(&place, &spec, true);
    let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
    let stop = AtomicBool::new(false);
    let seed = place::seed();
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (file, stop) = (&file, &stop);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed ^ reader);
                let mut bytes = vec![0; BLOCK];
                while !stop.load(SeqCst) {
                    let block = rng.u64(..BLOCKS);
                    let got = file.read(block * BLOCK as u64, &mut bytes).unwrap();
                    assert!(got == 0 || got == BLOCK);
                    if got > 0 {
                        version(block, &bytes);
                    }
                    if let Some(view) = file.read_ref(block * BLOCK as u64) {
                        version(block, &view);
                    }
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                attached.destage(None).unwrap();
                attached.evict(None, 30).unwrap();
            }
        });
        let _done = Done(&stop);
        std::thread::scope(|changers| {
            for writer in 0..2u64 {
                let file = &file;
                changers.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed ^ writer << 32);
                    for version in 1..place::times(1200) {
                        let block = rng.u64(..BLOCKS);
                        file.write(block * BLOCK as u64, &stamped(block, version)).unwrap();
                    }
                });
            }
            changers.spawn(|| {
                let mut rng = fastrand::Rng::with_seed(seed ^ 99);
                for _ in 0..200 {
                    file.truncate(rng.u64(..BLOCKS) * BLOCK as u64).unwrap();
                    if rng.bool() {
                        file.extend(rng.u64(..BLOCKS) * BLOCK as u64).unwrap();
                    }
                }
            });
        });
    });
    // What was cut off and not written again is zeros, at home too.
    file.truncate(0).unwrap();
    file.extend(BLOCKS * BLOCK as u64).unwrap();
    assert!(place::contents(&file).iter().all(|b| *b == 0));
    drop(file);
    assert_accounts(&place, &spec, attached);
    assert!(std::fs::read(place.home().join("a.d8")).unwrap().iter().all(|b| *b == 0));
}

#[test]
fn readers_of_a_redo_file_see_every_acknowledged_record_while_it_is_drained() {
    const RECORD: usize = 512;
    const RECORDS: u64 = 3000;
    let (place, spec) = small_place();
    let attached = open(&place, &spec, true);
    let files: Vec<File> =
        (0..2).map(|n| attached.open(format!("{n}.redo"), OpenMode::CREATE).unwrap()).collect();
    let acked: Vec<AtomicU64> = (0..2).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let seed = place::seed();
    let record = |n: u64| place::pattern(n, 0, RECORD);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (files, acked, stop) = (&files, &acked, &stop);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed ^ reader);
                let mut bytes = vec![0; RECORD];
                while !stop.load(SeqCst) {
                    let file = rng.usize(..2);
                    let there = acked[file].load(SeqCst);
                    if there > 0 {
                        let n = if rng.bool() { rng.u64(..there) } else { there - 1 };
                        assert_eq!(
                            files[file].read(n * RECORD as u64, &mut bytes).unwrap(),
                            RECORD
                        );
                        assert!(bytes == record(n), "record {n} of {there}");
                    }
                }
            });
        }
        let _done = Done(&stop);
        std::thread::scope(|writers| {
            for (file, acked) in files.iter().zip(&acked) {
                writers.spawn(move || {
                    for n in 0..RECORDS {
                        file.write(n * RECORD as u64, &record(n)).unwrap();
                        acked.store(n + 1, SeqCst);
                        if n % 700 == 0 {
                            file.sync().unwrap();
                        }
                    }
                });
            }
            writers.spawn(|| {
                for _ in 0..50 {
                    attached.destage(Some(Path::new("1.redo"))).unwrap();
                    attached.background_step().unwrap();
                }
            });
        });
    });
    for file in &files {
        let all = place::contents(file);
        assert!((0..RECORDS).all(|n| all[n as usize * RECORD..][..RECORD] == record(n)));
    }
    drop(files);
    assert_accounts(&place, &spec, attached);
}

#[test]
fn threads_on_different_files_that_come_and_go_do_not_disturb_each_other() {
    let (place, spec) = small_place();
    let attached = open(&place, &spec, true);
    let keeper = attached.open("keep.d16", OpenMode::CREATE).unwrap();
    keeper.write(0, &place::pattern(1, 0, 200_000)).unwrap();
    let seed = place::seed();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Evicts and destages what the others are just removing.
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                attached.evict(None, u64::MAX).unwrap();
                attached.background_step().unwrap();
                attached.destage(None).unwrap();
            }
        });
        let _done = Done(&stop);
        std::thread::scope(|workers| {
            for worker in 0..3u64 {
                let attached = &attached;
                workers.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed ^ worker);
                    for round in 0..place::times(120) {
                        let ending = ["d4", "d8", "d16", "d32", "redo", "txt"][rng.usize(..6)];
                        let name = format!("{worker}-{round}.{ending}");
                        let data = place::pattern(
                            place::mix(worker << 32 | round),
                            0,
                            rng.usize(1..60_000),
                        );
                        let file = attached.create(&name).unwrap();
                        file.write(0, &data).unwrap();
                        assert!(place::contents(&file) == data, "{name}");
                        let other = format!("{worker}-other.{ending}");
                        match rng.u32(..4) {
                            // Unlinked while open: readable to the end.
                            0 => {
                                attached.unlink(&name).unwrap();
                                assert!(place::contents(&file) == data, "{name} unlinked");
                                file.write(10, b"still").unwrap();
                            }
                            1 => {
                                drop(file);
                                attached.rename(&name, &other).unwrap();
                                assert!(place::read(attached, &other) == data, "{other} renamed");
                            }
                            2 => {
                                attached.rename(&name, &other).unwrap();
                                assert!(
                                    place::contents(&file) == data,
                                    "{other} renamed while open"
                                );
                            }
                            _ => {
                                drop(file);
                                attached.unlink(&name).unwrap();
                            }
                        }
                    }
                });
            }
        });
    });
    assert!(place::contents(&keeper) == place::pattern(1, 0, 200_000));
    drop(keeper);
    assert_accounts(&place, &spec, attached);
}

#[test]
fn a_write_acknowledged_while_another_thread_detaches_is_in_the_plain_directory() {
    for round in 0..30u64 {
        let (place, spec) = small_place();
        let attached = open(&place, &spec, round % 2 == 0);
        for n in 0..3 {
            attached.open(format!("{n}.d8"), OpenMode::CREATE).unwrap();
        }
        let acked: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for (n, acked) in acked.iter().enumerate() {
                let attached = attached.clone();
                scope.spawn(move || {
                    for version in 1.. {
                        let file = match attached.open(format!("{n}.d8"), OpenMode::WRITE) {
                            Ok(file) => file,
                            Err(Error::Detached) => return,
                            Err(e) => panic!("{e}"),
                        };
                        file.write(0, &stamped(n as u64, version)).unwrap();
                        drop(file);
                        acked.store(version, SeqCst);
                        std::thread::sleep(Duration::from_micros(50 * (n as u64 + 1)));
                    }
                });
            }
            std::thread::sleep(Duration::from_micros(300 * (round % 10)));
            while let Err(e) = attached.clone().detach() {
                assert!(matches!(e, Error::Busy(_)), "{e}");
            }
        });
        for (n, acked) in acked.iter().enumerate() {
            let plain = std::fs::read(place.home().join(format!("{n}.d8"))).unwrap();
            let found = if plain.is_empty() { 0 } else { version(n as u64, &plain) };
            assert_eq!(found, acked.load(SeqCst), "file {n}, round {round}");
        }
    }
}

#[test]
fn a_write_and_a_cut_at_the_same_time_leave_one_of_the_two_orders() {
    let (place, spec) = small_place();
    let attached = open(&place, &spec, false);
    let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
    let full = 8 * BLOCK as u64;
    let (mut cut_last, mut written_last) = (0, 0);
    // Both spin until the other is there. The one that came first the last time then waits a little
    // longer, so that the two meet at the same instant again and again.
    let (writer, cutter, wait) = (AtomicU64::new(0), AtomicU64::new(0), AtomicI64::new(0));
    let meet = |own: &AtomicU64, other: &AtomicU64, at: u64, pause: i64| {
        own.store(at, SeqCst);
        for tries in 0.. {
            if other.load(SeqCst) >= at {
                break;
            }
            if tries > 1000 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        (0..pause).for_each(|_| std::hint::spin_loop());
    };
    let (seed, rounds) = (place::seed(), 3000);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = fastrand::Rng::with_seed(seed);
            for round in 1..=rounds {
                meet(&writer, &cutter, 2 * round, wait.load(SeqCst) + rng.i64(..20));
                file.write(5 * BLOCK as u64, &stamped(5, round)).unwrap();
                meet(&writer, &cutter, 2 * round + 1, 0);
            }
        });
        for round in 1..=rounds {
            file.extend(full).unwrap();
            meet(&cutter, &writer, 2 * round, -wait.load(SeqCst));
            file.truncate(0).unwrap();
            meet(&cutter, &writer, 2 * round + 1, 0);
            if file.len().unwrap() == 0 {
                cut_last += 1;
                wait.fetch_add(5, SeqCst);
                file.extend(full).unwrap();
                let found = version(5, &block(&file, 5));
                if found != 0 {
                    cutter.store(u64::MAX, SeqCst);
                    panic!("what was cut off shows again in round {round}: version {found}");
                }
            } else {
                written_last += 1;
                wait.fetch_sub(5, SeqCst);
                assert_eq!(
                    (file.len().unwrap(), version(5, &block(&file, 5))),
                    (6 * BLOCK as u64, round)
                );
            }
        }
    });
    println!("{cut_last} times the cut came last, {written_last} times the write");
}

#[test]
fn a_block_rewritten_again_and_again_while_it_is_destaged_and_evicted_never_goes_back() {
    // One lane and few frames, so that the frame being destaged is soon used again, for the same
    // block.
    let home = Arc::new(SimHome::new(None));
    let spec = TierSpec { lanes: 1, ..place::small("fast".into(), 192 * KIB) };
    let memory = Memory::new(spec.size);
    let attached = testing::attach_simulated(
        home.clone(),
        vec![(spec, vec![memory])],
        &place::profile(),
        place::options(),
    )
    .unwrap();
    let file = attached.open("a.d8", OpenMode::CREATE).unwrap();
    file.extend(BLOCK as u64).unwrap();
    let (acked, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                attached.destage(None).unwrap();
                attached.evict(None, u64::MAX).unwrap();
            }
        });
        scope.spawn(|| {
            while !stop.load(SeqCst) {
                let least = acked.load(SeqCst);
                let found = version(0, &block(&file, 0));
                assert!(found >= least, "version {found} after {least} was acknowledged");
            }
        });
        let _done = Done(&stop);
        for version in 1..place::times(12_000) {
            file.write(0, &stamped(0, version)).unwrap();
            acked.store(version, SeqCst);
            if version % 16 == 0 {
                home.rebase();
            }
        }
    });
    assert_eq!(version(0, &block(&file, 0)), place::times(12_000) - 1);
}

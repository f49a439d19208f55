//! A tier whose metadata is mapped and whose blocks are on a device of sectors: in a file, with
//! threads; and on a device that fails.
//!
//! What a power cut leaves of such a tier is in `crash_suite/sectors.rs`.

use crate::place;

use crate::place::{Place, pattern};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tiersmith_block::{Device, OpenOptions, SectorSize, Sectors};
use tiersmith_dir::Dir;
use tiersmith_pmem::Mapping;
use tiersmith_pmem::sim::{self, Simulator};
use tiersmith_store::testing::{OpenDevice, TestMember, attach_simulated_at};
use tiersmith_store::{AttachedHome, Durability, Error, File, OpenMode};

const B: usize = 8192;
const BYTES: u64 = 1 << 20;

/// Memory that outlives an attach, and what has the blocks.
struct Tier {
    mapping: Arc<Mapping>,
    open: OpenDevice,
}

impl Tier {
    /// With its blocks in a file, which is opened and locked at each attach.
    fn in_a_file(place: &Place, sector_size: SectorSize) -> Self {
        let dir = Dir::open(place.path()).unwrap();
        let len = Sectors::in_bytes(BYTES, sector_size);
        let options = OpenOptions { create: true, ..OpenOptions::new(sector_size, len) };
        Self::with(Arc::new(move || Device::open(&dir, "blocks", &options).unwrap()))
    }

    fn simulated(disk: &sim::Device) -> Self {
        let disk = disk.clone();
        Self::with(Arc::new(move || Device::simulated(disk.clone())))
    }

    fn with(open: OpenDevice) -> Self {
        Self { mapping: Arc::new(Mapping::in_memory(&vec![0; BYTES as usize], 0)), open }
    }

    /// As after a restart: nobody has a pin or a latch.
    fn attach(&mut self, place: &Place) -> Result<AttachedHome, Error> {
        self.mapping = Arc::new(Mapping::in_memory(&place::image(&self.mapping), 0));
        let member = TestMember {
            mapping: self.mapping.clone(),
            blocks: Some(self.open.clone()),
            on_flash: None,
        };
        let tiers = vec![(place.tier(BYTES), vec![member])];
        attach_simulated_at(&place.home(), tiers, &place::profile(), place::options())
    }
}

fn disk() -> sim::Device {
    Simulator::new().device(vec![0; BYTES as usize], 512)
}

fn block(file: &File, number: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; B];
    file.read(number * B as u64, &mut bytes).map(|_| bytes)
}

#[test]
fn threads_that_write_read_destage_and_evict_see_their_newest_blocks_in_a_file() {
    for size in [SectorSize::B512, SectorSize::B4096] {
        let place = Place::in_memory();
        let mut tier = Tier::in_a_file(&place, size);
        let home = tier.attach(&place).unwrap();
        let file = home.open("a.d8", OpenMode::CREATE).unwrap();
        assert_eq!(file.durability(), Durability::AtSync);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4_u64)
                .map(|thread| {
                    let file = &file;
                    scope.spawn(move || {
                        for round in 0..60_u64 {
                            let number = thread + 4 * (round % 5);
                            let whole = pattern(round, number, B);
                            file.write(number * B as u64, &whole).unwrap();
                            assert!(
                                block(file, number).unwrap() == whole,
                                "block {number}, round {round}"
                            );
                            // A few bytes of it, so that the rest comes from the device.
                            file.write(number * B as u64 + 700, &[round as u8; 77]).unwrap();
                            let mut expected = whole;
                            expected[700..777].fill(round as u8);
                            assert!(
                                block(file, number).unwrap() == expected,
                                "block {number}, round {round}"
                            );
                        }
                    })
                })
                .collect();
            let (home, done) = (&home, &done);
            let _done = place::Done(done);
            scope.spawn(move || {
                while !done.load(SeqCst) {
                    home.destage(Some(Path::new("a.d8"))).unwrap();
                    home.evict(None, u64::MAX).unwrap();
                    std::thread::yield_now();
                }
            });
            let redo = home.open("b.redo", OpenMode::CREATE).unwrap();
            for n in 0..200_u64 {
                redo.write(n * 300, &pattern(n, n * 300, 300)).unwrap();
            }
            for writer in writers {
                writer.join().unwrap();
            }
        });
        let newest = place::contents(&file);
        drop((file, home));
        let home = tier.attach(&place).unwrap();
        assert!(place::read(&home, "a.d8") == newest);
        let redo: Vec<u8> = (0..200_u64).flat_map(|n| pattern(n, n * 300, 300)).collect();
        assert!(place::read(&home, "b.redo") == redo);
        home.detach().unwrap();
        assert!(std::fs::read(place.home().join("a.d8")).unwrap() == newest);
        assert!(std::fs::read(place.home().join("b.redo")).unwrap() == redo);
    }
}

#[test]
fn a_sync_that_fails_refuses_its_write_and_all_later_ones_and_what_was_acknowledged_stays() {
    for redo in [false, true] {
        let (place, disk) = (Place::in_memory(), disk());
        let mut tier = Tier::simulated(&disk);
        let home = tier.attach(&place).unwrap();
        let name = if redo { "b.redo" } else { "a.d8" };
        let file = home.open(name, OpenMode::CREATE).unwrap();
        file.write(0, &[1; B]).unwrap();
        file.write(B as u64, &[2; B]).unwrap();
        disk.fail_nth_sync(1);
        let written = file.write(0, &[3; B]);
        assert_eq!(
            written.is_ok(),
            redo,
            "a block waits for its sync, bytes in place for the file's"
        );
        let said = written.and_then(|()| file.sync()).unwrap_err().to_string();
        assert!(said.contains("since the last good sync may be lost"), "{said}");
        for (at, len) in [(B, B), (0, 100), (5 * B, B)] {
            let said = file.write(at as u64, &vec![4; len]).unwrap_err().to_string();
            assert!(said.contains("nothing more is written until it is opened again"), "{said}");
        }
        if !redo {
            let batch = [(0, &[5; B][..]), (B as u64, &[5; B])];
            assert!(file.write_batch(&batch).is_err());
            assert!(block(&file, 0).unwrap() == [1; B], "an old version is read on");
        }
        assert!(block(&file, 1).unwrap() == [2; B]);
        drop((file, home));
        // Opened again it works, with what was acknowledged.
        let home = tier.attach(&place).unwrap();
        let file = home.open(name, OpenMode::WRITE).unwrap();
        let first = block(&file, 0).unwrap();
        assert!(first == [1; B] || redo && first.iter().all(|byte| [1, 3].contains(byte)));
        assert!(block(&file, 1).unwrap() == [2; B]);
        file.write(0, &[6; B]).unwrap();
        drop(file);
        home.detach().unwrap();
        let plain = std::fs::read(place.home().join(name)).unwrap();
        assert!(plain[..B] == [6; B] && plain[B..2 * B] == [2; B], "{name}");
    }
}

#[test]
fn a_write_that_the_device_refuses_is_an_error_and_the_old_block_stays() {
    let (place, disk) = (Place::in_memory(), disk());
    let mut tier = Tier::simulated(&disk);
    let home = tier.attach(&place).unwrap();
    let file = home.open("a.d8", OpenMode::CREATE).unwrap();
    file.write(0, &[1; B]).unwrap();
    disk.fail_nth_write(1);
    let said = file.write(0, &[2; B]).unwrap_err().to_string();
    assert!(said.contains("cannot write bytes") && said.contains("of simulated"), "{said}");
    assert!(block(&file, 0).unwrap() == [1; B]);
    file.write(0, &[3; B]).unwrap();
    drop((file, home));
    let home = tier.attach(&place).unwrap();
    assert!(place::read(&home, "a.d8") == [3; B]);
    place::assert_accounted(&home.stats());
}

#[test]
fn a_cut_whose_rest_the_device_cannot_clear_is_an_error_and_nothing_cut_off_shows_again() {
    for reading in [false, true] {
        let (place, disk) = (Place::in_memory(), disk());
        let home = Tier::simulated(&disk).attach(&place).unwrap();
        let file = home.open("b.redo", OpenMode::CREATE).unwrap();
        file.write(0, &[7; B]).unwrap();
        file.sync().unwrap();
        if reading {
            disk.fail_reads(0..BYTES)
        } else {
            disk.fail_nth_write(1)
        }
        let said = file.truncate(100).unwrap_err().to_string();
        let what = if reading { "cannot read" } else { "cannot write" };
        assert!(said.contains(what) && said.contains("of simulated"), "{said}");
        disk.fail_reads(0..0);
        file.extend(B as u64).unwrap();
        let now = block(&file, 0).unwrap();
        assert!(now[..100] == [7; 100] && now[100..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_block_that_the_device_lost_is_named_and_keeps_no_other_from_going_home() {
    let (place, disk) = (Place::in_memory(), disk());
    let home = Tier::simulated(&disk).attach(&place).unwrap();
    let file = home.open("a.d8", OpenMode::CREATE).unwrap();
    for n in 0..8_u64 {
        file.write(n * B as u64, &[n as u8 + 1; B]).unwrap();
    }
    let mut bytes = vec![0; BYTES as usize];
    disk.read(0, &mut bytes).unwrap();
    let at = bytes.chunks(4096).position(|frame| frame == [4; 4096]).unwrap() as u64 * 4096;
    disk.fail_reads(at + 512..at + 1024);
    let said = block(&file, 3).unwrap_err().to_string();
    assert!(
        said.contains("cannot read block 3 of a.d8") && said.contains("Input/output error"),
        "{said}"
    );
    assert!(block(&file, 4).unwrap() == [5; B]);
    let error = home.destage(None).unwrap_err();
    assert!(
        matches!(&error, Error::Unreadable { path, block: 3, .. } if path == Path::new("a.d8")),
        "{error}"
    );
    let plain = std::fs::read(place.aside().join("a.d8")).unwrap();
    for n in (0..8).filter(|n| *n != 3) {
        assert!(plain[n * B..][..B] == [n as u8 + 1; B], "block {n}");
    }
    disk.fail_reads(0..0);
    drop(file);
    home.detach().unwrap();
    assert!(std::fs::read(place.home().join("a.d8")).unwrap()[3 * B..][..B] == [4; B]);
}

#[test]
fn the_sync_of_a_file_is_one_of_the_device_that_has_its_blocks() {
    for name in ["a.d8", "b.redo"] {
        let (place, disk) = (Place::in_memory(), disk());
        let home = Tier::simulated(&disk).attach(&place).unwrap();
        let file = home.open(name, OpenMode::CREATE).unwrap();
        file.write(0, &[1; B]).unwrap();
        file.sync().unwrap();
        disk.fail_nth_sync(1);
        let said = file.sync().unwrap_err().to_string();
        assert!(said.contains("since the last good sync may be lost"), "{name}: {said}");
    }
}

#[test]
fn a_redo_write_that_the_device_refuses_leaves_nothing_behind_the_drain_and_nothing_in_a_later_gap()
{
    for nth in 1..=3 {
        let (place, disk) = (Place::in_memory(), disk());
        let home = Tier::simulated(&disk).attach(&place).unwrap();
        let file = home.open("b.redo", OpenMode::CREATE).unwrap();
        file.write(0, &[1; 5000]).unwrap();
        // Pieces of zeros are at hand by now: what is written are the three blocks.
        disk.fail_nth_write(nth);
        file.write(4990, &[2; 10_000]).unwrap_err();
        assert_eq!(file.len().unwrap(), 5000, "write {nth}");
        file.write(20_000, &[3; 100]).unwrap();
        let mut expected = vec![0; 20_100];
        expected[..4990].fill(1);
        expected[20_000..].fill(3);
        let mut found = place::contents(&file);
        assert!(found[4990..5000].iter().all(|byte| [1, 2].contains(byte)), "write {nth}");
        expected[4990..5000].copy_from_slice(&found[4990..5000]);
        let at = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        assert_eq!(at, None, "a byte of write {nth}, which failed, or of none");
        assert_eq!(found.len(), expected.len());
        drop(file);
        home.detach().unwrap();
        found = std::fs::read(place.home().join("b.redo")).unwrap();
        assert!(found == expected, "write {nth}");
    }
}

#[test]
fn pinning_a_file_ends_with_the_error_of_a_medium_that_fails() {
    let (place, disk) = (Place::in_memory(), disk());
    std::fs::write(place.home().join("a.d8"), [1; 4 * B]).unwrap();
    let home = Tier::simulated(&disk).attach(&place).unwrap();
    let file = home.open("b.d8", OpenMode::CREATE).unwrap();
    disk.fail_nth_sync(1);
    file.write(0, &[2; B]).unwrap_err();
    let (ended, wait) = std::sync::mpsc::channel();
    // Left behind if it never ends.
    let pinning = std::thread::spawn(move || {
        ended.send(home.pin("a.d8").map_err(|e| e.to_string())).unwrap()
    });
    let said = wait
        .recv_timeout(std::time::Duration::from_secs(20))
        .expect("it goes on for ever")
        .unwrap_err();
    assert!(said.contains("nothing more is written until it is opened again"), "{said}");
    pinning.join().unwrap();
}

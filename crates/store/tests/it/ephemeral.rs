//! A tier on a disk that is emptied when the machine is stopped: it has clean copies only, which
//! are there at the next attach, and nobody misses them when they are not.
//!
//! What a power cut leaves of such a tier is in `crash_suite/ephemeral.rs`.

use crate::place::{self, Place};
use std::sync::Arc;
use tiersmith_block::Device;
use tiersmith_pmem::Mapping;
use tiersmith_pmem::sim::{self, Simulator};
use tiersmith_store::check::{CheckOptions, check};
use tiersmith_store::testing::{TestMember, attach_simulated_at};
use tiersmith_store::{AttachedHome, Durability, Error, File, Medium, OpenMode, Options, TierSpec};

const B: usize = 8192;
const LOG: u64 = 64 << 10;
const BYTES: u64 = 1 << 20;
const BLOCKS: u64 = 8;

fn spec(place: &Place, medium: Medium) -> TierSpec {
    TierSpec { medium, log: LOG, ..place.tier(BYTES + LOG) }
}

fn disk_of(bytes: Vec<u8>) -> sim::Device {
    Simulator::new().device(bytes, 512)
}

fn disk() -> sim::Device {
    disk_of(vec![0; (BYTES + LOG) as usize])
}

/// The disk as a kill at this moment leaves it.
fn killed(disk: &sim::Device) -> sim::Device {
    let mut bytes = vec![0; disk.len() as usize];
    disk.read(0, &mut bytes).unwrap();
    disk_of(bytes)
}

fn attach_as(medium: Medium, place: &Place, disk: &sim::Device) -> Result<AttachedHome, Error> {
    let device = disk.clone();
    let member = TestMember {
        mapping: Arc::new(Mapping::in_memory(&[0; 4096], 0)),
        blocks: Some(Arc::new(move || Device::simulated(device.clone()))),
        on_flash: Some(BYTES + LOG),
    };
    // Nothing is copied but by `pin`, and what a test reads.
    let options = Options { home_files_open: None, ..place::options() };
    attach_simulated_at(
        &place.home(),
        vec![(spec(place, medium), vec![member])],
        &place::profile(),
        options,
    )
}

fn attach(place: &Place, disk: &sim::Device) -> AttachedHome {
    attach_as(Medium::Ephemeral, place, disk).unwrap()
}

fn block(file: &File, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; B];
    file.read(number * B as u64, &mut bytes).unwrap();
    bytes
}

fn counted(home: &AttachedHome, name: &str) -> u64 {
    home.stats().waits.counters().find(|(counter, _)| counter.name == name).unwrap().1
}

fn cached(home: &AttachedHome) -> u64 {
    home.stats().tiers[0].cached_bytes / B as u64
}

/// Reads all of `a.d8`, whose blocks are these bytes; returns how many of them came from the tier.
fn read_all(home: &AttachedHome, bytes: [u8; BLOCKS as usize]) -> u64 {
    let file = home.open("a.d8", OpenMode::READ).unwrap();
    let before = counted(home, "flash cache read hits");
    for (number, byte) in bytes.into_iter().enumerate() {
        assert!(block(&file, number as u64) == [byte; B], "block {number}");
    }
    counted(home, "flash cache read hits") - before
}

const OLD: [u8; BLOCKS as usize] = [1, 2, 3, 4, 5, 6, 7, 8];

/// A home with a file, all of which the tier has copies of.
fn warm() -> (Place, sim::Device, AttachedHome) {
    let (place, disk) = (Place::in_memory(), disk());
    let bytes: Vec<u8> = OLD.into_iter().flat_map(|byte| [byte; B]).collect();
    std::fs::write(place.home().join("a.d8"), bytes).unwrap();
    let home = attach(&place, &disk);
    assert_eq!(home.stats().tiers[0].durability, Durability::Never);
    home.pin("a.d8").unwrap();
    home.unpin("a.d8").unwrap();
    assert_eq!(cached(&home), BLOCKS);
    (place, disk, home)
}

#[test]
fn copies_are_there_after_a_close_and_after_a_kill_and_what_was_written_is_home_s() {
    let (place, disk, home) = warm();
    drop(home);
    let home = attach(&place, &disk);
    assert_eq!(read_all(&home, OLD), BLOCKS, "a close is no reason to begin cold");

    let file = home.open("a.d8", OpenMode::WRITE).unwrap();
    assert_eq!(file.durability(), Durability::AtSync);
    file.write(2 * B as u64, &[70; B]).unwrap();
    file.write(5 * B as u64 + 9, &[71; 20]).unwrap();
    let left = killed(&disk);
    let at_home = std::fs::read(place.aside().join("a.d8")).unwrap();
    assert!(at_home[2 * B..3 * B] == [70; B], "home is written, not the tier");
    assert_eq!(home.stats().tiers[0].dirty_bytes, 0);
    drop((file, home));

    let home = attach(&place, &left);
    assert_eq!(cached(&home), BLOCKS - 2, "a kill costs the copies that were written over");
    let file = home.open("a.d8", OpenMode::WRITE).unwrap();
    file.write(5 * B as u64, &[6; B]).unwrap();
    drop(file);
    let hits = read_all(&home, [1, 2, 70, 4, 5, 6, 7, 8]);
    assert_eq!(hits, BLOCKS - 2);
    home.detach().unwrap();
    assert!(std::fs::read(place.home().join("a.d8")).unwrap()[2 * B..3 * B] == [70; B]);
}

#[test]
fn what_was_written_is_copied_again_when_home_was_synced() {
    let (_place, _disk, home) = warm();
    let file = home.open("a.d8", OpenMode::WRITE).unwrap();
    file.write(0, &[70; B]).unwrap();
    for _ in 0..3 {
        assert!(block(&file, 0) == [70; B]);
        home.background_step().unwrap();
        assert_eq!(cached(&home), BLOCKS - 1, "home may lose this version");
    }
    file.sync().unwrap();
    for _ in 0..3 {
        assert!(block(&file, 0) == [70; B]);
        home.background_step().unwrap();
    }
    assert_eq!(cached(&home), BLOCKS);
    // Pinning does not wait for somebody else's sync.
    file.write(0, &[71; B]).unwrap();
    home.pin("a.d8").unwrap();
    assert_eq!(cached(&home), BLOCKS);
    assert!(block(&file, 0) == [71; B]);
}

#[test]
fn a_file_that_grew_and_was_cut_has_home_s_size_after_a_kill() {
    let (place, disk, home) = warm();
    let file = home.open("a.d8", OpenMode::WRITE).unwrap();
    file.write(BLOCKS * B as u64 + 3 * B as u64, &[9; 100]).unwrap();
    file.sync().unwrap();
    let size = file.len().unwrap();
    assert_eq!(size, (BLOCKS + 3) * B as u64 + 100);
    assert!(block(&file, BLOCKS + 1) == [0; B], "a gap");
    let grown = killed(&disk);
    drop((file, home));
    let home = attach(&place, &grown);
    let file = home.open("a.d8", OpenMode::WRITE).unwrap();
    assert_eq!(file.len().unwrap(), size);
    assert_eq!(read_all(&home, OLD), BLOCKS);
    file.truncate(3 * B as u64 + 100).unwrap();
    let cut = killed(&grown);
    drop((file, home));
    let home = attach(&place, &cut);
    let file = home.open("a.d8", OpenMode::WRITE).unwrap();
    assert_eq!(file.len().unwrap(), 3 * B as u64 + 100);
    file.extend(BLOCKS * B as u64).unwrap();
    let mut last = [0; B];
    last[..100].fill(4);
    assert!(block(&file, 3) == last, "what was cut off shows again");
    assert!(block(&file, 5) == [0; B]);
}

#[test]
fn a_disk_that_was_emptied_costs_the_copies_and_nothing_else() {
    let (place, _, home) = warm();
    let file = home.open("a.d8", OpenMode::WRITE).unwrap();
    file.write(0, &[70; B]).unwrap();
    drop((file, home));
    let home = attach(&place, &disk());
    assert_eq!(cached(&home), 0);
    assert_eq!(read_all(&home, [70, 2, 3, 4, 5, 6, 7, 8]), 0);
    home.detach().unwrap();
}

#[test]
fn a_disk_that_fails_stops_nobody_and_is_not_believed_when_it_comes_back() {
    for by_write in [false, true] {
        let (place, disk, home) = warm();
        let before = killed(&disk);
        let file = home.open("a.d8", OpenMode::WRITE).unwrap();
        match by_write {
            true => disk.fail_nth_write(1),
            false => disk.vanish(),
        }
        for (number, byte) in [(0, 70), (3, 71), (0, 72), (9, 73)] {
            file.write(number * B as u64, &[byte; B]).unwrap();
            assert!(block(&file, number) == [byte; B]);
        }
        file.sync().unwrap();
        file.truncate(BLOCKS * B as u64).unwrap();
        assert!(block(&file, 1) == [2; B]);
        let stats = home.stats();
        assert!(stats.tiers[0].failed.is_some(), "status has to say so");
        let _ = home.background_step();
        drop((file, home));
        // What the disk has is from before all this, and its note in home says so.
        let home = attach(&place, &before);
        assert_eq!(cached(&home), 0, "old copies are believed");
        let newest = [72, 2, 3, 71, 5, 6, 7, 8];
        assert_eq!(read_all(&home, newest), 0);
        home.pin("a.d8").unwrap();
        drop(home);
        let home = attach(&place, &before);
        assert_eq!(read_all(&home, newest), BLOCKS, "given up once, not for ever");
        home.detach().unwrap();
    }
}

#[test]
fn another_disk_and_an_older_image_of_the_same_one_are_not_believed() {
    for same_format in [false, true] {
        let (place, disk, home) = warm();
        let file = home.open("a.d8", OpenMode::WRITE).unwrap();
        file.write(B as u64, &[2; B]).unwrap();
        let older = killed(&disk);
        drop((file, home));
        let newer = if same_format { disk } else { self::disk() };
        let home = attach(&place, &newer);
        let file = home.open("a.d8", OpenMode::WRITE).unwrap();
        file.write(0, &[70; B]).unwrap();
        file.sync().unwrap();
        drop((file, home));
        // By size and time the file could be the one that the older disk knows.
        let home = attach(&place, &older);
        assert_eq!(cached(&home), 0, "the disk is older than home, same format: {same_format}");
        assert_eq!(read_all(&home, [70, 2, 3, 4, 5, 6, 7, 8]), 0);
    }
}

#[test]
fn a_home_whose_disk_has_failed_is_detached() {
    let (place, disk, home) = warm();
    disk.vanish();
    let file = home.open("a.d8", OpenMode::WRITE).unwrap();
    file.write(0, &[70; B]).unwrap();
    drop(file);
    home.flush_all().unwrap();
    home.detach().unwrap();
    assert!(std::fs::read(place.home().join("a.d8")).unwrap()[..B] == [70; B]);
    assert!(!place.home().join(".tiersmith").exists());
}

#[test]
fn a_time_that_is_set_is_home_s_and_costs_no_copy() {
    let (place, disk, home) = warm();
    let file = home.open("a.d8", OpenMode::WRITE).unwrap();
    let time = tiersmith_store::FileTime { sec: 1_000_000, nsec: 5 };
    file.set_times(tiersmith_store::SetTime::Keep, tiersmith_store::SetTime::At(time)).unwrap();
    let left = killed(&disk);
    drop((file, home));
    let home = attach(&place, &left);
    assert_eq!(cached(&home), BLOCKS);
}

#[test]
fn a_file_changed_past_the_attached_home_loses_its_copies() {
    let (place, disk, home) = warm();
    drop(home);
    let path = place.aside().join("a.d8");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[..B].fill(90);
    // Later than any time that the tier gave out.
    std::fs::write(&path, bytes).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(600);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
    let home = attach(&place, &disk);
    assert_eq!(read_all(&home, [90, 2, 3, 4, 5, 6, 7, 8]), 0);
}

#[test]
fn a_closed_home_is_known_by_the_stamps_of_its_files_and_by_nothing_else() {
    for (seconds, left) in [(0, BLOCKS - 1), (1, 0)] {
        let (place, disk, home) = warm();
        let file = home.open("a.d8", OpenMode::WRITE).unwrap();
        file.write(0, &[70; B]).unwrap();
        file.sync().unwrap();
        drop((file, home));
        let path = place.aside().join("a.d8");
        let time = path.metadata().unwrap().modified().unwrap();
        let other = time + std::time::Duration::from_secs(seconds);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(other).unwrap();
        assert_eq!(cached(&attach(&place, &disk)), left, "{seconds} s later");
    }
}

#[test]
fn a_tier_is_attached_as_what_it_was() {
    let (place, disk, home) = warm();
    drop(home);
    let said = attach_as(Medium::Flash, &place, &disk).unwrap_err().to_string();
    assert!(said.contains("was attached as ephemeral") && said.contains("is given not"), "{said}");
    // Also when the note is gone: blocks that only a tier has must not be taken for copies.
    let (place, disk) = (Place::in_memory(), self::disk());
    let home = attach_as(Medium::Flash, &place, &disk).unwrap();
    let file = home.open("a.d8", OpenMode::CREATE).unwrap();
    file.write(0, &[1; B]).unwrap();
    file.sync().unwrap();
    drop((file, home));
    let refused = |place: &Place| {
        let said = attach_as(Medium::Ephemeral, place, &disk).unwrap_err().to_string();
        assert!(said.contains("and is given as ephemeral; give it as it was"), "{said}");
    };
    refused(&place);
    let note = place.aside().join(".tiersmith");
    let kept = std::fs::read(&note).unwrap();
    std::fs::remove_file(&note).unwrap();
    refused(&place);
    std::fs::write(&note, kept).unwrap();
    let home = attach_as(Medium::Flash, &place, &disk).unwrap();
    assert!(block(&home.open("a.d8", OpenMode::READ).unwrap(), 0) == [1; B]);
}

#[test]
fn without_its_note_an_ephemeral_tier_is_not_believed() {
    let (place, disk, home) = warm();
    let before = killed(&disk);
    disk.vanish();
    // The disk does not take down that it is detached.
    home.detach().unwrap();
    let path = place.home().join("a.d8");
    let time = path.metadata().unwrap().modified().unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[..B].fill(90);
    std::fs::write(&path, bytes).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    let home = attach(&place, &before);
    assert_eq!(read_all(&home, [90, 2, 3, 4, 5, 6, 7, 8]), 0);
}

#[test]
fn the_offline_check_knows_an_ephemeral_tier() {
    let place = Place::new();
    let spec = spec(&place, Medium::Ephemeral);
    let attached =
        tiersmith_store::attach(&place.home(), std::slice::from_ref(&spec), place::options());
    let home = match attached {
        Err(Error::Device(why @ tiersmith_block::Error::InMemory { .. })) => {
            eprintln!("skipped: {why}");
            return;
        }
        attached => attached.unwrap(),
    };
    let file = home.open("a.d8", OpenMode::CREATE).unwrap();
    file.write(0, &[1; 3 * B]).unwrap();
    file.sync().unwrap();
    let redo = home.open("b.redo", OpenMode::CREATE).unwrap();
    redo.write(0, &[2; 100]).unwrap();
    redo.sync().unwrap();
    home.pin("a.d8").unwrap();
    drop((file, redo, home));
    let report = check(None, &spec.members, &CheckOptions::default()).unwrap();
    assert!(report.is_sound(), "{report}");
    assert!(report.summary.state.contains("ephemeral"), "{}", report.summary.state);
    assert_eq!((report.summary.blocks_dirty, report.summary.blocks_cached), (0, 3));
}

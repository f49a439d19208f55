//! A tier on flash: in a file on a disk, with threads; on a device that fails; and what an attach
//! refuses.
//!
//! What a power cut leaves of such a tier is in `crash_suite/flash.rs`.

use crate::place;

use crate::place::{Place, pattern};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tiersmith_block::Device;
use tiersmith_pmem::Mapping;
use tiersmith_pmem::sim::{self, Simulator};
use tiersmith_store::check::{CheckOptions, check};
use tiersmith_store::home::SimHome;
use tiersmith_store::testing::{TestMember, attach_simulated, attach_simulated_at};
use tiersmith_store::{AttachedHome, Durability, Error, File, Medium, OpenMode, TierSpec};

const B: usize = 8192;
const LOG: u64 = 64 << 10;
const BYTES: u64 = 1 << 20;

/// A place on a disk; `None`, and a line, where temporary files are in memory.
fn on_disk() -> Option<Place> {
    let place = Place::new();
    let spec = flash(&place);
    match tiersmith_store::attach(&place.home(), &[spec], place::options()) {
        Err(Error::Device(why @ tiersmith_block::Error::InMemory { .. })) => {
            eprintln!("skipped: {why}");
            None
        }
        attached => {
            attached.unwrap().detach().unwrap();
            Some(place)
        }
    }
}

fn flash(place: &Place) -> TierSpec {
    let mut spec = place.tier(BYTES + LOG);
    spec.medium = Medium::Flash;
    spec.log = LOG;
    spec
}

fn attach(place: &Place) -> Result<AttachedHome, Error> {
    tiersmith_store::attach(&place.home(), &[flash(place)], place::options())
}

fn disk() -> sim::Device {
    Simulator::new().device(vec![0; (BYTES + LOG) as usize], 512)
}

fn member(disk: &sim::Device) -> TestMember {
    let device = disk.clone();
    TestMember {
        mapping: Arc::new(Mapping::in_memory(&[0; 4096], 0)),
        blocks: Some(Arc::new(move || Device::simulated(device.clone()))),
        on_flash: Some(BYTES + LOG),
    }
}

fn attach_to(place: &Place, disk: &sim::Device) -> Result<AttachedHome, Error> {
    attach_simulated_at(
        &place.home(),
        vec![(flash(place), vec![member(disk)])],
        &place::profile(),
        place::options(),
    )
}

fn block(file: &File, number: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; B];
    file.read(number * B as u64, &mut bytes).map(|_| bytes)
}

#[test]
fn threads_that_write_read_destage_and_evict_see_their_newest_blocks_in_a_file_on_a_disk() {
    let Some(place) = on_disk() else { return };
    let home = attach(&place).unwrap();
    assert!(!home.stats().tiers[0].emulated);
    let file = home.open("a.d8", OpenMode::CREATE).unwrap();
    assert_eq!(file.durability(), Durability::AtSync);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u64)
            .map(|thread| {
                let file = &file;
                scope.spawn(move || {
                    for round in 0..100_u64 {
                        let number = thread + 4 * (round % 5);
                        let whole = pattern(round, number, B);
                        file.write(number * B as u64, &whole).unwrap();
                        assert!(
                            block(file, number).unwrap() == whole,
                            "block {number}, round {round}"
                        );
                        file.write(number * B as u64 + 700, &[round as u8; 77]).unwrap();
                        let mut expected = whole;
                        expected[700..777].fill(round as u8);
                        assert!(
                            block(file, number).unwrap() == expected,
                            "block {number}, round {round}"
                        );
                        if round % 7 == thread {
                            file.sync().unwrap();
                        }
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
                home.background_step().unwrap();
                std::thread::yield_now();
            }
        });
        let redo = home.open("b.redo", OpenMode::CREATE).unwrap();
        for n in 0..200_u64 {
            redo.write(n * 300, &pattern(n, n * 300, 300)).unwrap();
        }
        redo.sync().unwrap();
        for writer in writers {
            writer.join().unwrap();
        }
    });
    let newest = place::contents(&file);
    drop((file, home));
    let report = check(None, &flash(&place).members, &CheckOptions::default()).unwrap();
    assert!(report.is_sound(), "{report}");
    let home = attach(&place).unwrap();
    assert!(place::read(&home, "a.d8") == newest);
    let redo: Vec<u8> = (0..200_u64).flat_map(|n| pattern(n, n * 300, 300)).collect();
    assert!(place::read(&home, "b.redo") == redo);
    home.detach().unwrap();
    assert!(std::fs::read(place.home().join("a.d8")).unwrap() == newest);
    assert!(std::fs::read(place.home().join("b.redo")).unwrap() == redo);
}

#[test]
fn a_file_in_memory_is_no_flash_and_a_tier_is_attached_as_what_it_was_made_as() {
    let place = Place::in_memory();
    if place.path().starts_with("/dev/shm") {
        let said = attach(&place).unwrap_err().to_string();
        assert!(
            said.contains("on a file system in memory") && said.contains("a file on a disk"),
            "{said}"
        );
        assert!(!place.member("fast").exists(), "what the attach made is still there");
    }
    let Some(place) = on_disk() else { return };
    drop(attach(&place).unwrap());
    let emulated = TierSpec { medium: Medium::Emulated, ..flash(&place) };
    let said = tiersmith_store::attach(&place.home(), &[emulated], place::options())
        .unwrap_err()
        .to_string();
    assert!(said.contains("was attached as flash"), "{said}");
    attach(&place).unwrap().detach().unwrap();
    let place = Place::new();
    let emulated = TierSpec { medium: Medium::Emulated, ..flash(&place) };
    drop(tiersmith_store::attach(&place.home(), &[emulated], place::options()).unwrap());
    let said = attach(&place).unwrap_err().to_string();
    assert!(said.contains("attached as memory, not as flash"), "{said}");
}

#[test]
fn a_sync_that_fails_is_told_and_nothing_more_is_written_to_tier_or_home() {
    for redo in [false, true] {
        let (place, disk) = (Place::in_memory(), disk());
        let home = attach_to(&place, &disk).unwrap();
        let name = if redo { "b.redo" } else { "a.d8" };
        let file = home.open(name, OpenMode::CREATE).unwrap();
        file.write(0, &[1; B]).unwrap();
        file.write(B as u64, &[2; B]).unwrap();
        file.sync().unwrap();
        file.write(0, &[3; B]).unwrap();
        disk.fail_nth_sync(1);
        let said = file.sync().unwrap_err().to_string();
        assert!(said.contains("since the last good sync may be lost"), "{said}");
        assert!(file.sync().is_err(), "it stays so");
        for (at, len) in [(B, B), (0, 100), (5 * B, B)] {
            let said = file.write(at as u64, &vec![4; len]).unwrap_err().to_string();
            assert!(said.contains("nothing more is written until it is opened again"), "{said}");
        }
        assert!(home.destage(None).is_err(), "home is not touched on the word of this medium");
        assert!(home.detach().is_err());
        let aside = std::fs::read(place.aside().join(name)).unwrap_or_default();
        assert!(aside.is_empty(), "home has got bytes");
        drop(file);
        // Opened again it works, with what was synced.
        let home = attach_to(&place, &disk).unwrap();
        let file = home.open(name, OpenMode::WRITE).unwrap();
        assert!([1, 3].contains(&block(&file, 0).unwrap()[0]));
        assert!(block(&file, 1).unwrap() == [2; B]);
        file.write(0, &[6; B]).unwrap();
        drop(file);
        home.detach().unwrap();
        let plain = std::fs::read(place.home().join(name)).unwrap();
        assert!(plain[..B] == [6; B] && plain[B..2 * B] == [2; B], "{name}");
    }
}

#[test]
fn a_member_that_grew_is_used_in_its_old_length_and_one_that_shrank_is_refused_until_it_is_whole() {
    for medium in [Medium::Flash, Medium::Emulated] {
        let Some(place) = on_disk() else { return };
        let spec = TierSpec { medium, ..flash(&place) };
        let spec = if medium == Medium::Flash { spec } else { TierSpec { log: 0, ..spec } };
        // It was made as flash.
        std::fs::remove_file(&spec.members[0]).unwrap();
        let attach = || {
            tiersmith_store::attach(&place.home(), std::slice::from_ref(&spec), place::options())
        };
        let home = attach().unwrap();
        home.open("a.d8", OpenMode::CREATE).unwrap().write(0, &[7; 4 * B]).unwrap();
        home.open("a.d8", OpenMode::READ).unwrap().sync().unwrap();
        let usable = home.stats().tiers[0].usable_bytes;
        drop(home);
        let member = std::fs::File::options().read(true).write(true).open(&spec.members[0]);
        let member = member.unwrap();
        let whole = member.metadata().unwrap().len();
        member.set_len(whole + (1 << 20)).unwrap();
        let report = check(None, &spec.members, &CheckOptions::default()).unwrap();
        assert!(report.is_sound(), "{report}");
        let home = attach().unwrap();
        assert_eq!(home.stats().tiers[0].usable_bytes, usable, "{medium:?}");
        assert!(place::read(&home, "a.d8") == [7; 4 * B]);
        drop(home);
        member.set_len(whole).unwrap();

        let mut tail = vec![0; 64 << 10];
        member.read_exact_at(&mut tail, whole - (64 << 10)).unwrap();
        member.set_len(whole - (64 << 10)).unwrap();
        let before = std::fs::read(&spec.members[0]).unwrap();
        let said = attach().unwrap_err().to_string();
        assert!(said.contains("cut short"), "{medium:?}: {said}");
        assert!(std::fs::read(&spec.members[0]).unwrap() == before, "a refusal has written");
        member.write_all_at(&tail, whole - (64 << 10)).unwrap();
        let home = attach().unwrap();
        assert!(place::read(&home, "a.d8") == [7; 4 * B]);
        home.detach().unwrap();
    }
}

#[test]
fn a_file_stays_when_the_log_cannot_keep_that_it_is_removed_or_replaced() {
    for name in ["a.d8", "b.redo"] {
        for replaces in [false, true] {
            let (place, disk) = (Place::in_memory(), disk());
            let home = attach_to(&place, &disk).unwrap();
            for (name, fill) in [(name, 1), ("other.d8", 2)] {
                let file = home.open(name, OpenMode::CREATE).unwrap();
                file.write(0, &[fill; B]).unwrap();
                file.sync().unwrap();
            }
            disk.fail_nth_sync(1);
            let done = if replaces { home.rename("other.d8", name) } else { home.unlink(name) };
            let said = done.unwrap_err().to_string();
            assert!(said.contains("nothing more is written until it is opened again"), "{said}");
            // The next attach would miss it, or take it for changed.
            for name in [name, "other.d8"] {
                assert!(place.aside().join(name).exists(), "{name} is gone, {replaces}");
            }
            drop(home);
            let home = attach_to(&place, &disk).unwrap();
            assert!(place::read(&home, name) == [1; B] && place::read(&home, "other.d8") == [2; B]);
            home.unlink(name).unwrap();
            home.detach().unwrap();
        }
    }
}

#[test]
fn a_destage_whose_last_words_the_log_cannot_keep_has_failed() {
    for name in ["a.d8", "b.redo"] {
        for nth in 1.. {
            let (place, disk) = (Place::in_memory(), disk());
            let home = attach_to(&place, &disk).unwrap();
            let file = home.open(name, OpenMode::CREATE).unwrap();
            file.write(0, &[1; B]).unwrap();
            // A write to it syncs nothing, so it tells whether the log has failed before.
            let probe = home.open("probe.d8", OpenMode::CREATE).unwrap();
            probe.write(0, &[1; B]).unwrap();
            file.sync().unwrap();
            disk.fail_nth_sync(nth);
            let destaged = home.destage(None);
            let log_failed = probe.write(0, &[2; B]).is_err();
            assert_eq!(destaged.is_err(), log_failed, "{name}, sync {nth}: {destaged:?}");
            if !log_failed {
                assert!(nth > 1, "no sync was asked for");
                break;
            }
        }
    }
}

#[test]
fn home_gets_nothing_that_no_log_has_also_when_an_earlier_write_to_it_failed() {
    let (place, disk, under) = (Place::in_memory(), disk(), Arc::new(SimHome::new(None)));
    let tier = vec![(flash(&place), vec![member(&disk)])];
    let home = attach_simulated(under.clone(), tier, &place::profile(), place::options()).unwrap();
    let file = home.open("a.d8", OpenMode::CREATE).unwrap();
    file.write(0, &[1; B]).unwrap();
    file.sync().unwrap();
    under.fail_nth_write(1);
    assert!(home.destage(None).is_err());
    // That home is being changed is known from then on. What goes there next is in the log first
    // all the same.
    file.write(0, &[2; B]).unwrap();
    disk.fail_nth_sync(1);
    assert!(home.destage(None).is_err(), "home got what a power cut may take from the tier");
    let found = under.contents(Path::new("a.d8"));
    assert!(found.is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0)), "home has got bytes");
}

#[test]
fn a_log_without_a_whole_header_stops_the_attach_and_the_check_and_nothing_is_changed() {
    let (place, disk) = (Place::in_memory(), disk());
    let home = attach_to(&place, &disk).unwrap();
    home.open("a.d8", OpenMode::CREATE).unwrap().write(0, &[1; B]).unwrap();
    drop(home);
    let mut image = vec![0; (BYTES + LOG) as usize];
    disk.read(0, &mut image).unwrap();
    let magics: Vec<usize> =
        (0..image.len()).step_by(4096).filter(|at| image[*at..].starts_with(b"TSLOGHDR")).collect();
    assert!(!magics.is_empty());
    for at in magics {
        image[at + 16] ^= 1;
    }
    let copy = Simulator::new().device(image.clone(), 512);
    let said = attach_to(&place, &copy).unwrap_err().to_string();
    assert!(said.contains("log") && said.contains("neither copy of its header is whole"), "{said}");
    let mut now = vec![0; image.len()];
    copy.read(0, &mut now).unwrap();
    assert!(now == image, "nothing is changed");
    let member = place.member("copy");
    std::fs::File::create(&member).unwrap().write_all_at(&image, 0).unwrap();
    let report = check(None, &[member], &CheckOptions::default()).unwrap();
    assert!(report.findings.iter().any(|finding| finding.invariant == 23), "{report}");
    // As it was it attaches.
    attach_to(&place, &disk).unwrap().detach().unwrap();
    assert!(std::fs::read(place.home().join("a.d8")).unwrap() == [1; B]);
}

/// Where on the disk a block of bytes that are all `byte` begins.
fn position(disk: &sim::Device, byte: u8) -> u64 {
    let mut bytes = vec![0; disk.len() as usize];
    disk.read(0, &mut bytes).unwrap();
    bytes.chunks(4096).position(|frame| frame == [byte; 4096]).unwrap() as u64 * 4096
}

/// A file of eight blocks, the bytes of each one more than its number; home has them too.
fn clean_copies(home: &AttachedHome) -> File {
    let file = home.open("a.d8", OpenMode::CREATE).unwrap();
    for n in 0..8 {
        file.write(n * B as u64, &[n as u8 + 1; B]).unwrap();
    }
    file.sync().unwrap();
    home.destage(None).unwrap();
    file
}

fn counted(home: &AttachedHome, name: &str) -> u64 {
    home.stats().waits.counters().find(|(counter, _)| counter.name == name).unwrap().1
}

#[test]
fn a_clean_copy_that_cannot_be_read_is_read_from_home_and_its_place_is_left_alone() {
    let (place, disk) = (Place::in_memory(), disk());
    let home = attach_to(&place, &disk).unwrap();
    let file = clean_copies(&home);
    let at = [position(&disk, 3), position(&disk, 6)];
    at.into_iter().for_each(|at| disk.fail_reads(at..at + B as u64));
    assert!(block(&file, 2).unwrap() == [3; B]);
    // A write of a part needs the rest.
    file.write(5 * B as u64 + 100, &[77; 10]).unwrap();
    let mut expected = [6; B];
    expected[100..110].fill(77);
    assert!(block(&file, 5).unwrap() == expected);
    assert_eq!(counted(&home, "blocks repaired from home"), 2);
    assert!(home.stats().unreadable.is_empty(), "nothing is lost");
    disk.fail_reads(0..0);
    // The tier is filled more than once, and nothing gets these places.
    for round in 0..4 {
        for n in 8..100 {
            file.write(n * B as u64, &[100 + round; B]).unwrap();
        }
        file.sync().unwrap();
    }
    for (at, byte) in at.into_iter().zip([3, 6]) {
        let mut bytes = [0; B];
        disk.read(at, &mut bytes).unwrap();
        assert!(bytes == [byte; B], "a place that cannot be read has another block");
    }
    drop(file);
    home.detach().unwrap();
    let plain = std::fs::read(place.home().join("a.d8")).unwrap();
    assert!(plain[2 * B..3 * B] == [3; B] && plain[5 * B..6 * B] == expected);
}

#[test]
fn a_newest_version_that_cannot_be_read_is_named_until_there_is_a_newer_one() {
    for name in ["a.d8", "b.redo"] {
        let (place, disk) = (Place::in_memory(), disk());
        let home = attach_to(&place, &disk).unwrap();
        let file = home.open(name, OpenMode::CREATE).unwrap();
        for n in 0..4 {
            file.write(n * B as u64, &[n as u8 + 1; B]).unwrap();
        }
        file.sync().unwrap();
        let at = position(&disk, 3);
        disk.fail_reads(at..at + 4096);
        let error = block(&file, 2).unwrap_err();
        let Error::Unreadable { ref path, block: number, .. } = error else { panic!("{error}") };
        // A block of redo has half the bytes.
        let numbers = if name == "b.redo" { 4..=5 } else { 2..=2 };
        assert!(path.as_path() == Path::new(name) && numbers.contains(&number), "{error}");
        assert!(error.to_string().contains("exists only there"), "{error}");
        let lost = home.stats().unreadable;
        assert_eq!(
            lost.iter().map(|lost| (lost.path.as_path(), lost.block)).collect::<Vec<_>>(),
            [(Path::new(name), number)]
        );
        // The others are read and go home; it stays.
        assert!(block(&file, 1).unwrap() == [2; B] && block(&file, 3).unwrap() == [4; B]);
        assert!(matches!(home.destage(None), Err(Error::Unreadable { .. })));
        assert_eq!(home.stats().unreadable.len(), 1);
        if name == "a.d8" {
            file.write(2 * B as u64, &[9; B]).unwrap();
            assert!(home.stats().unreadable.is_empty(), "it has a newer version");
            assert!(block(&file, 2).unwrap() == [9; B]);
            drop(file);
            home.detach().unwrap();
        }
    }
}

/// Recovery looks at the last block of a file that ends within one.
#[test]
fn a_last_block_that_cannot_be_read_keeps_no_tier_from_being_attached() {
    for clean in [true, false] {
        let (place, disk) = (Place::in_memory(), disk());
        let home = attach_to(&place, &disk).unwrap();
        let file = home.open("a.d8", OpenMode::CREATE).unwrap();
        file.write(0, &[1; B]).unwrap();
        file.write(B as u64, &[2; 5000]).unwrap();
        file.sync().unwrap();
        if clean {
            home.destage(None).unwrap();
        }
        drop((file, home));
        let at = position(&disk, 2);
        disk.fail_reads(at..at + 4096);
        let home = attach_to(&place, &disk).unwrap();
        let file = home.open("a.d8", OpenMode::WRITE).unwrap();
        assert!(block(&file, 0).unwrap() == [1; B]);
        let mut last = [0; 5000];
        match (clean, file.read(B as u64, &mut last)) {
            (true, Ok(got)) => assert!(got == 5000 && last == [2; 5000]),
            (false, Err(Error::Unreadable { path, block, .. })) => {
                assert_eq!((path.as_path(), block), (Path::new("a.d8"), 1));
            }
            (_, other) => panic!("clean {clean}: {other:?}"),
        }
        disk.fail_reads(0..0);
        drop(file);
        home.detach().unwrap();
        let plain = std::fs::read(place.home().join("a.d8")).unwrap();
        assert!(plain[..B] == [1; B] && plain[B..] == [2; 5000]);
    }
}

#[test]
fn when_the_disk_is_gone_clean_copies_are_read_from_home_and_writing_stops_with_a_reason() {
    let (place, disk) = (Place::in_memory(), disk());
    std::fs::write(place.home().join("old.d8"), [5; 3 * B]).unwrap();
    let home = attach_to(&place, &disk).unwrap();
    let file = clean_copies(&home);
    let newer = home.open("newer.d8", OpenMode::CREATE).unwrap();
    newer.write(0, &[50; B]).unwrap();
    newer.sync().unwrap();
    assert!(home.stats().tiers[0].failed.is_none());
    disk.vanish();
    for n in 0..8 {
        assert!(block(&file, n).unwrap() == [n as u8 + 1; B], "block {n}");
    }
    for name in ["a.d8", "old.d8"] {
        let again = home.open(name, OpenMode::READ).unwrap();
        let (number, byte) = if name == "a.d8" { (7, 8) } else { (1, 5) };
        assert!(block(&again, number).unwrap() == [byte; B], "{name}");
    }
    assert!(matches!(block(&newer, 0), Err(Error::Unreadable { .. })));
    assert!(file.write(0, &[60; B]).is_err());
    assert!(file.sync().is_err() && newer.sync().is_err());
    let said = file.write(0, &[60; B]).unwrap_err().to_string();
    assert!(said.contains("nothing more is written until it is opened again"), "{said}");
    assert!(home.destage(None).is_err());
    let stats = home.stats();
    let tier = &stats.tiers[0];
    assert!(tier.failed.as_ref().is_some_and(|why| why.contains("simulated")), "{:?}", tier.failed);
    assert!(tier.dirty_bytes >= B as u64);
    assert_eq!(stats.unreadable[0].to_string(), format!("block 0 of newer.d8 (bytes 0 to {B})"));
    assert!(block(&file, 0).unwrap() == [1; B], "reading goes on");
    assert!(std::fs::read(place.aside().join("a.d8")).unwrap()[..B] == [1; B], "home is as it was");
    assert!(home.detach().is_err());
}

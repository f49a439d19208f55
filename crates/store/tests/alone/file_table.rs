//! The file table: more files than slots, and what happens when there is really none to be had.

use crate::place;

use crate::place::Place;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tiersmith_store::{AttachedHome, Error, File, FileClass, OpenMode, TierSpec, attach, waits};

const KIB: usize = 1 << 10;
const MIB: u64 = 1 << 20;
/// Slots of [`place::small`].
const SLOTS: usize = 32;
/// A tier whose file table may grow twice.
const TIER_OF_TWO_EXTENTS: u64 = 384 << 10;

fn attached(place: &Place, spec: TierSpec) -> AttachedHome {
    attach(&place.home(), &[spec], place::options()).unwrap()
}

fn name(n: usize) -> String {
    format!("base/{}/{n}.d8", n % 7)
}

fn directories(place: &Place) {
    for n in 0..7 {
        std::fs::create_dir_all(place.home().join(format!("base/{n}"))).unwrap();
    }
}

/// One page, as long as a block, that tells which file and which version it is.
fn page(n: usize, version: u64) -> Vec<u8> {
    place::pattern(n as u64 * 1000 + version, 0, 8 * KIB)
}

fn write_page(home: &AttachedHome, n: usize, version: u64) {
    let file = home.open(name(n), OpenMode::CREATE).unwrap();
    assert_eq!(file.class(), FileClass::Data, "file {n} goes straight to home");
    file.write(0, &page(n, version)).unwrap();
}

fn assert_pages(home: &AttachedHome, files: usize, version: u64) {
    for n in 0..files {
        assert!(place::read(home, &name(n)) == page(n, version), "file {n}");
    }
}

#[test]
fn files_that_nobody_has_open_give_their_slots_to_others() {
    let place = Place::in_memory();
    directories(&place);
    let home = attached(&place, place.tier(4 * MIB));
    for version in 0..2 {
        (0..10 * SLOTS).for_each(|n| write_page(&home, n, version));
        assert_pages(&home, 10 * SLOTS, version);
    }
    drop(home);
    let home = attached(&place, place.tier(4 * MIB));
    assert_pages(&home, 10 * SLOTS, 1);
    home.detach().unwrap();
    for n in 0..10 * SLOTS {
        assert!(std::fs::read(place.home().join(name(n))).unwrap() == page(n, 1), "file {n}");
    }
}

#[test]
fn a_home_of_many_files_takes_no_more_of_a_striped_tier_than_of_one_member() {
    let place = Place::in_memory();
    directories(&place);
    let none = [];
    (0..3000).for_each(|n| std::fs::write(place.home().join(name(n)), none).unwrap());
    let spec = TierSpec { slots: 0, ..place.striped(16, 32 * MIB) };
    let home = attached(&place, spec);
    let tier = home.stats().tiers[0].clone();
    assert!(
        tier.usable_bytes >= 28 * MIB,
        "{} bytes of 32 MiB are left for blocks",
        tier.usable_bytes
    );
    write_page(&home, 1, 1);
    home.detach().unwrap();
}

#[test]
fn a_redo_file_has_a_slot_when_data_files_fill_the_table() {
    let place = Place::in_memory();
    directories(&place);
    let home = attached(&place, place.tier(4 * MIB));
    let mut held: Vec<File> = Vec::new();
    for n in 0..20 * SLOTS {
        match home.open(name(n), OpenMode::CREATE) {
            Ok(file) => held.push(file),
            Err(_) => break,
        }
    }
    assert_eq!(held.len(), 20 * SLOTS, "the table has not grown");
    let segment = home.create("000000010000000000000001.redo").unwrap();
    assert_eq!(segment.class(), FileClass::Redo, "the segment goes straight to home");
    segment.write(0, &[7; 5000]).unwrap();
    drop((segment, held));
}

#[test]
fn a_data_file_is_refused_and_not_written_without_atomicity_when_every_slot_is_in_use() {
    let place = Place::in_memory();
    directories(&place);
    // So small that the table cannot grow.
    let home = attached(&place, place.tier(256 * KIB as u64));
    let mut held: Vec<File> = Vec::new();
    let refused = loop {
        match home.open(name(held.len()), OpenMode::CREATE) {
            Ok(file) => {
                assert_eq!(
                    file.class(),
                    FileClass::Data,
                    "file {} goes straight to home",
                    held.len()
                );
                held.push(file);
                assert!(held.len() < 50 * SLOTS, "nothing is refused");
            }
            Err(e) => break e,
        }
    };
    assert_eq!(refused.errno(), rustix::io::Errno::NFILE.raw_os_error(), "{refused}");
    assert!(
        !place.aside().join(name(held.len())).exists(),
        "what was refused was made all the same"
    );
    drop(held.pop());
    drop(home.open(name(5000), OpenMode::CREATE).unwrap());
}

/// Users who own the home, and files in it.
const OWNER: u32 = 54320;
const GUEST: u32 = 54321;

/// A home of `owner`'s with files of a guest's, all empty: `base/N/N.d8` as [`name`] has them.
fn home_with_files_of_a_guest(place: &Place, owner: u32) {
    use std::os::unix::fs::chown;
    directories(place);
    chown(place.home(), Some(owner), Some(owner)).unwrap();
    let made = |name: &str, uid: u32| {
        std::fs::write(place.home().join(name), "").unwrap();
        chown(place.home().join(name), Some(uid), Some(uid)).unwrap();
    };
    (0..4 * SLOTS).for_each(|n| made(&name(n), GUEST));
    made("guest.redo", GUEST);
    (0..SLOTS).for_each(|n| made(&format!("owner{n}.d8"), OWNER));
    made("owner.redo", OWNER);
}

/// Opens the guest's files for writing until one is refused.
fn fill_as_guest(home: &AttachedHome) -> (Vec<File>, Error) {
    let mut held = Vec::new();
    let refused = loop {
        match home.open(name(held.len()), OpenMode::WRITE) {
            Ok(file) => {
                assert_eq!(file.class(), FileClass::Data, "it goes straight to home");
                held.push(file);
            }
            Err(e) => break e,
        }
    };
    (held, refused)
}

#[test]
fn guests_who_fill_the_table_leave_slots_to_the_owner_of_the_home() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: files of guests, because only root makes files of others");
        return;
    }
    let place = Place::in_memory();
    home_with_files_of_a_guest(&place, OWNER);
    // The table may grow once, which guests leave to the owner too.
    let home = attached(&place, place.tier(256 * KIB as u64));
    let kept = home.stats().tiers[0].file_slots_kept;
    let for_owner = SLOTS / 8;
    assert_eq!(kept, 2 * for_owner as u64, "an eighth for redo, and one for the owner");
    let (guests, refused) = fill_as_guest(&home);
    assert_eq!(guests.len(), SLOTS - kept as usize);
    assert_eq!(refused.errno(), rustix::io::Errno::NFILE.raw_os_error(), "{refused}");
    assert!(
        refused.to_string().contains("are kept for redo and for files of the home's owner"),
        "{refused}"
    );
    // Reading needs none.
    let reader = home.open(name(guests.len()), OpenMode::READ).unwrap();
    assert_eq!(home.stats().tiers[0].slot_refused.as_deref(), Some(refused.to_string().as_str()));
    let redo = home.open("guest.redo", OpenMode::WRITE).unwrap();
    assert_eq!(redo.class(), FileClass::Pass, "the guest's redo has a slot that was kept");
    // One file is root's, which no guest can make either.
    let mut owners: Vec<File> = vec![home.open("made.d8", OpenMode::CREATE).unwrap()];
    for n in 1..for_owner {
        owners.push(home.open(format!("owner{n}.d8"), OpenMode::WRITE).unwrap());
    }
    for (n, file) in owners.iter().enumerate() {
        assert_eq!(file.class(), FileClass::Data, "file {n} of the owner goes straight to home");
        file.write(0, &page(n, 1)).unwrap();
    }
    let segment = home.open("owner.redo", OpenMode::WRITE).unwrap();
    assert_eq!(segment.class(), FileClass::Redo, "the owner's redo goes straight to home");
    let tier = home.stats().tiers[0].clone();
    let dirty = owners.len() as u64 * 8 * KIB as u64;
    assert_eq!((tier.dirty_bytes, tier.files), (dirty, (SLOTS - for_owner + 1) as u64));
    drop((guests, owners, segment, redo, reader));
    drop(home.open(name(2 * SLOTS - 1), OpenMode::WRITE).unwrap());
    assert_eq!(home.open("guest.redo", OpenMode::WRITE).unwrap().class(), FileClass::Redo);
    assert_eq!(home.stats().tiers[0].slot_refused, None);
    home.detach().unwrap();
    assert!(std::fs::read(place.home().join("owner1.d8")).unwrap() == page(1, 1));
}

#[test]
fn guests_leave_room_to_grow_in_to_the_owner_of_the_home() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: files of guests, because only root makes files of others");
        return;
    }
    // Where they are no guests it grows as far as it may. Each waits ten seconds in vain.
    std::thread::scope(|scope| {
        for (owner, left) in [(OWNER, SLOTS), (GUEST, 0), (0, 0)] {
            scope.spawn(move || grows_for_guests_but_for(owner, left));
        }
    });
}

fn grows_for_guests_but_for(owner: u32, left: usize) {
    let place = Place::in_memory();
    home_with_files_of_a_guest(&place, owner);
    let home = attached(&place, place.tier(TIER_OF_TWO_EXTENTS));
    let most = home.stats().tiers[0].file_slots_most;
    assert_eq!(most, 3 * SLOTS as u64);
    let (guests, _) = fill_as_guest(&home);
    let tier = home.stats().tiers[0].clone();
    assert_eq!(most - tier.file_slots, left as u64, "{owner}: {tier:?}");
    assert_eq!(tier.file_slots_kept == 0, owner == 0, "{owner}: {tier:?}");
    if owner == OWNER {
        let open = |n| home.open(format!("owner{n}.d8"), OpenMode::WRITE).unwrap();
        let owners: Vec<File> = (0..SLOTS).map(open).collect();
        assert_eq!(home.stats().tiers[0].file_slots, most, "it has not grown for the owner");
        drop(owners);
    }
    drop(guests);
    home.detach().unwrap();
}

#[test]
fn a_file_read_without_a_slot_gets_one_before_it_is_written_and_its_reader_sees_the_write() {
    let place = Place::in_memory();
    directories(&place);
    std::fs::write(place.home().join("base/0/plain.d8"), page(1, 1)).unwrap();
    let home = attached(&place, place.tier(256 * KIB as u64));
    let mut held: Vec<File> = Vec::new();
    while let Ok(file) = home.open(name(held.len()), OpenMode::CREATE) {
        held.push(file);
    }
    let reader = home.open("base/0/plain.d8", OpenMode::READ).unwrap();
    assert_eq!(reader.class(), FileClass::Data);
    assert!(place::contents(&reader) == page(1, 1));
    assert_eq!(home.stats().tiers[0].files_outside, 1);
    let refused = home.open("base/0/plain.d8", OpenMode::WRITE).unwrap_err();
    assert!(matches!(refused, Error::FileTableFull { .. }), "{refused}");
    assert_eq!(home.stats().tiers[0].slot_refused.as_deref(), Some(refused.to_string().as_str()));
    // A failed writer keeps nothing: the reader goes on, and one closed file is enough.
    drop(held.pop());
    let writer = home.open("base/0/plain.d8", OpenMode::WRITE).unwrap();
    writer.write(0, &page(1, 2)).unwrap();
    assert!(place::contents(&reader) == page(1, 2), "the reader looks past the tier");
    let now = &home.stats().tiers[0];
    assert_eq!((now.files_outside, &now.slot_refused), (0, &None));
    drop((reader, writer, held));
    drop(home);
    let home = attached(&place, place.tier(256 * KIB as u64));
    assert!(place::read(&home, "base/0/plain.d8") == page(1, 2));
    home.detach().unwrap();
}

#[test]
fn the_slots_of_a_new_tier_follow_from_the_files_of_the_home() {
    let place = Place::in_memory();
    directories(&place);
    (0..3000).for_each(|n| std::fs::write(place.home().join(name(n)), "").unwrap());
    (0..50).for_each(|n| std::fs::write(place.home().join(format!("{n}.txt")), "").unwrap());
    let spec = TierSpec { slots: 0, ..place.tier(64 * MIB) };
    let home = attached(&place, spec);
    let stats = home.stats();
    assert_eq!(stats.recovery.home_files, Some(3000));
    let tier = &stats.tiers[0];
    assert!((3000..5000).contains(&tier.file_slots), "{tier:?}");
    assert!(tier.file_slots_most > 2 * tier.file_slots, "{tier:?}");
    home.detach().unwrap();
}

#[test]
fn files_that_were_dropped_and_stay_as_empty_files_do_not_fill_the_table() {
    // As PostgreSQL does until the next checkpoint.
    let place = Place::in_memory();
    directories(&place);
    let options = tiersmith_store::Options { background: true, ..place::options() };
    let home = attach(&place.home(), &[place.tier(4 * MIB)], options).unwrap();
    for n in 0..40 * SLOTS {
        let file = home.open(name(n), OpenMode::CREATE).unwrap();
        assert_eq!(file.class(), FileClass::Data, "file {n} goes straight to home");
        file.write(0, &page(n, 0)).unwrap();
        file.truncate(0).unwrap();
    }
    assert!(home.stats().waits.counter(waits::RECYCLED) > 30 * SLOTS as u64);
    home.detach().unwrap();
    let empty = |n| std::fs::metadata(place.home().join(name(n))).unwrap().len() == 0;
    assert!((0..40 * SLOTS).all(empty), "what was cut off is there again");
}

#[test]
fn a_time_that_was_set_stays_when_the_file_leaves_the_tier() {
    use tiersmith_store::{FileTime, SetTime};
    let place = Place::in_memory();
    directories(&place);
    let home = attached(&place, place.tier(4 * MIB));
    let time = FileTime { sec: 1_234_567_890, nsec: 1000 };
    let file = home.open(name(0), OpenMode::CREATE).unwrap();
    file.write(0, &page(0, 0)).unwrap();
    file.set_times(SetTime::Keep, SetTime::At(time)).unwrap();
    drop(file);
    (1..20 * SLOTS).for_each(|n| write_page(&home, n, 0));
    assert!(!home.in_tier(name(0)).unwrap(), "it has not left");
    assert_eq!(home.stat(name(0)).unwrap().mtime_ns, 1_234_567_890_000_001_000);
}

#[test]
fn a_look_at_home_from_before_the_file_left_is_not_shown_as_it_was_then() {
    use tiersmith_store::{FileTime, Overlay};
    let place = Place::in_memory();
    directories(&place);
    let home = attached(&place, place.tier(4 * MIB));
    let file = home.open(name(0), OpenMode::CREATE).unwrap();
    let (dev, ino) = file.key();
    let look = || {
        let stat = home.home().stat(Path::new(&name(0))).unwrap();
        let times = (FileTime::from_ns(stat.mtime_ns), FileTime::from_ns(stat.ctime_ns));
        Overlay { size: stat.size, mtime: times.0, ctime: times.1 }
    };
    file.write(0, &page(0, 0)).unwrap();
    let before = look();
    assert_eq!(before.size, 0, "home has it already");
    drop(file);
    (1..20 * SLOTS).for_each(|n| write_page(&home, n, 0));
    assert!(!home.in_tier(name(0)).unwrap(), "it has not left");
    assert_eq!(home.overlay(dev, ino, before).map(|seen| seen.size), Some(8192));
    assert_eq!(home.overlay(dev, ino, look()), None, "home alone is right");
    home.open(name(0), OpenMode::WRITE).unwrap().truncate(100).unwrap();
    assert_eq!(home.stat(name(0)).unwrap().size, 100);
}

#[test]
fn threads_that_open_and_close_more_files_than_slots_see_their_own_writes() {
    let place = Place::in_memory();
    directories(&place);
    let options = tiersmith_store::Options { background: true, ..place::options() };
    let home = attach(&place.home(), &[place.tier(2 * MIB)], options).unwrap();
    let seed = place::seed();
    let written: Vec<Vec<Option<u64>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                scope.spawn({
                    let home = home.clone();
                    move || changes_its_files(&home, thread, seed)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(home.stats().waits.counter(waits::RECYCLED) > 0);
    home.detach().unwrap();
    for (thread, versions) in written.iter().enumerate() {
        for (n, version) in versions.iter().enumerate() {
            let n = thread * 1000 + n;
            let found = std::fs::read(place.home().join(name(n))).ok();
            assert!(
                found == version.map(|version| page(n, version)),
                "file {n} is not {version:?}"
            );
        }
    }
}

/// Writes, reads, removes and looks at files of its own; returns their last versions.
fn changes_its_files(home: &AttachedHome, thread: usize, seed: u64) -> Vec<Option<u64>> {
    let mut rng = fastrand::Rng::with_seed(seed + thread as u64);
    let mut versions: Vec<Option<u64>> = vec![None; 60];
    let mut held = None;
    for step in 0..1500 {
        let which = rng.usize(0..versions.len());
        let n = thread * 1000 + which;
        match (rng.u32(0..10), versions[which]) {
            (0, Some(_)) => {
                home.unlink(name(n)).unwrap();
                versions[which] = None;
            }
            (1..4, Some(version)) => {
                assert!(place::read(home, &name(n)) == page(n, version), "file {n}, step {step}");
            }
            (4, Some(_)) => assert_eq!(home.stat(name(n)).unwrap().size, 8192),
            (5, Some(_)) => held = Some(home.open(name(n), OpenMode::WRITE).unwrap()),
            _ => {
                write_page(home, n, step);
                versions[which] = Some(step);
            }
        }
    }
    drop(held);
    versions
}

// --- killed with a full table ---

const FILES: usize = 2_000;
const DIRECTORY: &str = "TIERSMITH_FILE_TABLE_DIRECTORY";

fn spec_of(directory: &Path) -> TierSpec {
    place::small(directory.join("fast"), 8 * MIB)
}

/// The child: 2,000 files, a page of each written, some held open as a database does, until it is
/// killed.
#[test]
fn writes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let options = tiersmith_store::Options { background: true, ..place::options() };
    let home = attach(&directory.join("db"), &[spec_of(directory)], options).unwrap();
    let mut held = std::collections::VecDeque::new();
    for version in 0.. {
        for n in 0..FILES {
            let file = home.open(name(n), OpenMode::CREATE).unwrap();
            assert_eq!(file.class(), FileClass::Data, "file {n} goes straight to home");
            file.write(0, &page(n, version)).unwrap();
            held.push_back(file);
            if held.len() > SLOTS / 2 {
                held.pop_front();
            }
            println!("acknowledged {n} {version}");
        }
    }
}

fn start(directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            &full_name!("writes_until_it_is_killed"),
            "--nocapture",
            "--test-threads=1",
        ])
        .env(DIRECTORY, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn two_thousand_files_killed_with_a_full_table_lost_no_acknowledged_page() {
    use std::io::{BufRead, BufReader};
    let place = Place::in_memory();
    directories(&place);
    for acknowledgements in [FILES + 300, 2 * FILES + 100] {
        let mut child = start(place.path());
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut last = None;
        let mut seen = 0;
        for line in lines.map_while(Result::ok) {
            let Some((n, version)) =
                line.strip_prefix("acknowledged ").and_then(|l| l.split_once(' '))
            else {
                continue;
            };
            last = Some((n.parse::<usize>().unwrap(), version.parse::<u64>().unwrap()));
            seen += 1;
            if seen == acknowledgements {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        let (last, version) = last.expect("the child acknowledged nothing");
        assert!(seen >= acknowledgements, "the child ended by itself after {seen}");
        let home = attached(&place, spec_of(place.path()));
        for n in 0..FILES {
            let at_least = if n <= last { version } else { version - 1 };
            let found = place::read(&home, &name(n));
            let is = |version: u64| found == page(n, version);
            assert!(
                is(at_least) || is(at_least + 1),
                "file {n} is not version {at_least} or the next"
            );
        }
        drop(home);
    }
    let home = attached(&place, spec_of(place.path()));
    home.detach().unwrap();
}

#[test]
fn an_error_of_the_table_names_file_tier_and_remedy() {
    let place = Place::in_memory();
    directories(&place);
    let home = attached(&place, place.tier(256 * KIB as u64));
    let mut held: Vec<File> = Vec::new();
    let refused: Error = loop {
        match home.open(name(held.len()), OpenMode::CREATE) {
            Ok(file) => held.push(file),
            Err(e) => break e,
        }
        assert!(held.len() < 50 * SLOTS, "nothing is refused");
    };
    let said = refused.to_string();
    for part in [name(held.len()).as_str(), "`fast`", "--size"] {
        assert!(said.contains(part), "{said}");
    }
}

//! The times of a file as programs see them: after writes, destaging, `utimensat`, reopening,
//! detaching, a kill.

use crate::place;

use crate::place::Place;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tiersmith_store::{
    AttachedHome, File, FileTime, Medium, OpenMode, Options, Overlay, SetTime, TierSpec, attach,
};

fn attached(place: &Place, background: bool) -> AttachedHome {
    let spec = TierSpec::new("fast", place.member("m0"), Medium::Emulated, 12 << 20);
    attach(&place.home(), &[spec], Options { background, ..place::options() }).unwrap()
}

fn now() -> FileTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    FileTime { sec: since.as_secs() as i64, nsec: since.subsec_nanos() }
}

fn seen(file: &File) -> Overlay {
    file.overlay().unwrap().expect("it is in the tier")
}

/// Until the clock that stamps files has moved on.
fn later() {
    let start = SystemTime::now();
    while start.elapsed().unwrap_or_default() < Duration::from_millis(30) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn at_home(place: &Place, name: &str) -> FileTime {
    let found = std::fs::metadata(place.aside().join(name))
        .or_else(|_| std::fs::metadata(place.home().join(name)));
    let found = found.unwrap();
    FileTime { sec: found.mtime(), nsec: found.mtime_nsec() as u32 }
}

const OLD: FileTime = FileTime { sec: 1_000_000_000, nsec: 123_456_789 };

#[test]
fn a_write_moves_the_times_and_destaging_does_not() {
    let place = Place::new();
    let home = attached(&place, false);
    for name in ["a.d4", "a.redo"] {
        let file = home.open(name, OpenMode::CREATE).unwrap();
        let before = now();
        file.write(0, &[1; 9000]).unwrap();
        let first = seen(&file);
        assert!(
            first.mtime >= before && first.mtime <= now() && first.ctime == first.mtime,
            "{name}: {first:?}"
        );
        later();
        assert_eq!(seen(&file), first, "{name}: looking moves nothing");
        home.destage(Some(Path::new(name))).unwrap();
        assert_eq!(seen(&file), first, "{name}: destaging moved the times");
        assert_eq!(at_home(&place, name), first.mtime, "{name}");
        later();
        file.write(4096, &[2; 100]).unwrap();
        let second = seen(&file);
        assert!(second.mtime > first.mtime && second.ctime > first.ctime, "{name}");
        let stat = file.stat().unwrap();
        assert_eq!(FileTime::from_ns(stat.mtime_ns), second.mtime);
        let (dev, ino) = file.key();
        assert_eq!(home.overlay(dev, ino, second), Some(second));
    }
    home.detach().unwrap();
}

#[test]
fn a_time_that_was_set_stays_through_destaging_reopening_and_detaching() {
    let place = Place::new();
    let mut home = attached(&place, false);
    for name in ["a.d4", "a.redo"] {
        let file = home.open(name, OpenMode::CREATE).unwrap();
        file.write(0, &[1; 9000]).unwrap();
        file.set_times(SetTime::At(FileTime { sec: 77, nsec: 5 }), SetTime::At(OLD)).unwrap();
        assert_eq!(seen(&file).mtime, OLD);
        assert!(seen(&file).ctime > OLD);
        home.destage(Some(Path::new(name))).unwrap();
        assert_eq!(seen(&file).mtime, OLD, "{name}");
        file.write(0, &[2; 9000]).unwrap();
        assert!(seen(&file).mtime > OLD, "{name}: a write after it moves it");
        file.set_times(SetTime::Keep, SetTime::At(OLD)).unwrap();
        let atime = std::fs::metadata(place.aside().join(name)).unwrap();
        assert_eq!((atime.atime(), atime.atime_nsec()), (77, 5), "{name}");
    }
    drop(home);
    home = attached(&place, false);
    for name in ["a.d4", "a.redo"] {
        assert_eq!(
            seen(&home.open(name, OpenMode::WRITE).unwrap()).mtime,
            OLD,
            "{name} after reopening"
        );
    }
    home.detach().unwrap();
    for name in ["a.d4", "a.redo"] {
        assert_eq!(at_home(&place, name), OLD, "{name} after detaching");
    }
}

#[test]
fn what_was_seen_before_is_what_home_has_after_detaching() {
    let place = Place::new();
    std::fs::write(place.home().join("old.d4"), [1; 9000]).unwrap();
    let untouched = at_home(&place, "old.d4");
    let home = attached(&place, true);
    let old = home.open("old.d4", OpenMode::WRITE).unwrap();
    let mut bytes = [0; 9000];
    old.read(0, &mut bytes).unwrap();
    assert_eq!(seen(&old).mtime, untouched, "reading changes nothing");
    let cut = home.open("cut.d4", OpenMode::CREATE).unwrap();
    cut.write(0, &[1; 20000]).unwrap();
    cut.truncate(5000).unwrap();
    let hole = home.open("hole.d4", OpenMode::CREATE).unwrap();
    hole.allocate(0, 40960, false).unwrap();
    hole.write(0, &[1; 20000]).unwrap();
    hole.punch(0, 8192).unwrap();
    let redo = home.open("a.redo", OpenMode::CREATE).unwrap();
    redo.append(&[1; 5000]).unwrap();
    let before = [seen(&cut), seen(&hole), seen(&redo)];
    later();
    home.background_step().unwrap();
    home.flush_all().unwrap();
    assert_eq!([seen(&cut), seen(&hole), seen(&redo)], before);
    drop((old, cut, hole, redo));
    home.detach().unwrap();
    let after = ["cut.d4", "hole.d4", "a.redo"].map(|name| at_home(&place, name));
    assert_eq!(after, before.map(|seen| seen.mtime));
    assert_eq!(at_home(&place, "old.d4"), untouched);
}

#[test]
fn a_change_of_attributes_at_home_moves_the_ctime_alone() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let home = attached(&place, false);
    let file = home.open("a.d4", OpenMode::CREATE).unwrap();
    file.write(0, &[1; 9000]).unwrap();
    home.destage(None).unwrap();
    let before = seen(&file);
    later();
    let path = place.aside().join("a.d4");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let after = seen(&file);
    assert!(after.ctime > before.ctime && after.mtime == before.mtime, "{before:?} {after:?}");
    later();
    home.link("a.d4", "b.d4").unwrap();
    assert!(seen(&file).ctime > after.ctime);
    home.destage(None).unwrap();
    assert_eq!(seen(&file).mtime, before.mtime);
}

#[test]
fn times_before_1970_and_far_from_now_are_kept() {
    let place = Place::new();
    let home = attached(&place, false);
    let file = home.open("a.d4", OpenMode::CREATE).unwrap();
    for sec in [-2_000_000_000, -1, 0, 4_000_000_000] {
        let time = FileTime { sec, nsec: 999_999_999 };
        file.write(0, &[1; 100]).unwrap();
        file.set_times(SetTime::Keep, SetTime::At(time)).unwrap();
        home.destage(None).unwrap();
        assert_eq!(seen(&file).mtime, time);
    }
    for sec in [i64::MIN, i64::MAX] {
        file.set_times(SetTime::Keep, SetTime::At(FileTime { sec, nsec: 0 })).unwrap();
        home.destage(None).unwrap();
        let _ = file.stat().unwrap();
    }
    file.set_times(SetTime::Now, SetTime::Now).unwrap();
    assert!(seen(&file).mtime > OLD);
}

#[test]
fn after_a_kill_a_file_with_newer_blocks_is_never_older_than_its_last_write() {
    let place = Place::new();
    let home = attached(&place, false);
    let (data, set) = (home.create("a.d4").unwrap(), home.create("b.d4").unwrap());
    data.write(0, &[1; 9000]).unwrap();
    set.write(0, &[1; 9000]).unwrap();
    set.set_times(SetTime::Keep, SetTime::At(OLD)).unwrap();
    let written = now();
    // Nothing is tidied up: the locks go with the process, here with the copies.
    let tier = place.member("copy");
    std::fs::copy(place.member("m0"), &tier).unwrap();
    drop((data, set));
    drop(home);
    std::fs::copy(&tier, place.member("m0")).unwrap();
    later();
    let home = attached(&place, false);
    let data = home.open("a.d4", OpenMode::WRITE).unwrap();
    assert!(seen(&data).mtime >= written, "{:?} {written:?}", seen(&data));
    assert_eq!(
        seen(&home.open("b.d4", OpenMode::WRITE).unwrap()).mtime,
        OLD,
        "what was set is durable"
    );
}

#[test]
fn a_tier_of_clean_copies_shows_the_times_of_home() {
    let place = Place::new();
    let spec = TierSpec::new("fast", place.member("m0"), Medium::Volatile, 12 << 20);
    let home = attach(&place.home(), &[spec], place::options()).unwrap();
    let file = home.open("a.d4", OpenMode::CREATE).unwrap();
    file.write(0, &[1; 20000]).unwrap();
    file.truncate(9000).unwrap();
    file.set_times(SetTime::Keep, SetTime::At(OLD)).unwrap();
    assert_eq!((seen(&file).mtime, at_home(&place, "a.d4")), (OLD, OLD));
    later();
    file.punch(0, 4096).unwrap();
    file.write(0, &[2; 100]).unwrap();
    assert!(seen(&file).mtime > OLD && seen(&file).mtime == at_home(&place, "a.d4"));
    file.zero(5000, 10_000, false).unwrap();
    let mut bytes = vec![9; 20000];
    assert_eq!(file.read(0, &mut bytes).unwrap(), 15000);
    assert!(
        bytes[..100] == [2; 100]
            && bytes[100..4096].iter().all(|b| *b == 0)
            && bytes[4096..5000] == [1; 904]
    );
    assert!(bytes[5000..15000].iter().all(|b| *b == 0));
    drop(file);
    home.detach().unwrap();
    assert_eq!(std::fs::metadata(place.home().join("a.d4")).unwrap().len(), 15000);
}

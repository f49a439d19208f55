//! Names through a door: renaming with flags, directories, changes of class, links, removal while
//! open, lists.

use crate::place;

use crate::place::{Place, contents, read};
use std::path::Path;
use tiersmith_store::{
    AttachedHome, FileClass, FileTime, Medium, OpenMode, RenameFlags, SetTime, TierSpec, attach,
};

fn attached(place: &Place) -> AttachedHome {
    let spec = TierSpec::new("fast", place.member("m0"), Medium::Emulated, 12 << 20);
    attach(&place.home(), &[spec], place::options()).unwrap()
}

fn put(home: &AttachedHome, path: &str, byte: u8, len: usize) {
    home.open(path, OpenMode::CREATE).unwrap().write(0, &vec![byte; len]).unwrap();
}

#[test]
fn a_rename_that_may_not_replace_does_not_and_an_exchange_exchanges() {
    let place = Place::new();
    let mut home = attached(&place);
    put(&home, "a.d4", 1, 9000);
    put(&home, "b.d4", 2, 5000);
    put(&home, "c.redo", 3, 700);
    let refused = home.rename_with("a.d4", "b.d4", RenameFlags::NoReplace).unwrap_err();
    assert_eq!(refused.errno(), rustix::io::Errno::EXIST.raw_os_error());
    assert_eq!((read(&home, "a.d4")[0], read(&home, "b.d4")[0]), (1, 2));
    home.rename_with("a.d4", "n.d4", RenameFlags::NoReplace).unwrap();
    home.rename_with("n.d4", "b.d4", RenameFlags::Exchange).unwrap();
    assert_eq!((read(&home, "n.d4"), read(&home, "b.d4")), (vec![2; 5000], vec![1; 9000]));
    // Two classes: each keeps its own while it is in the tier.
    home.rename_with("n.d4", "c.redo", RenameFlags::Exchange).unwrap();
    assert_eq!((read(&home, "n.d4"), read(&home, "c.redo")), (vec![3; 700], vec![2; 5000]));
    let missing = home.rename_with("n.d4", "x.d4", RenameFlags::Exchange).unwrap_err();
    assert_eq!(missing.errno(), rustix::io::Errno::NOENT.raw_os_error());
    drop(home);
    home = attached(&place);
    assert_eq!(
        (read(&home, "n.d4"), read(&home, "c.redo"), read(&home, "b.d4")[8999]),
        (vec![3; 700], vec![2; 5000], 1)
    );
    home.detach().unwrap();
    assert_eq!(std::fs::read(place.home().join("c.redo")).unwrap(), vec![2; 5000]);
}

#[test]
fn files_below_a_directory_that_is_renamed_or_exchanged_keep_their_blocks() {
    let place = Place::new();
    std::fs::create_dir_all(place.home().join("one/deep")).unwrap();
    std::fs::create_dir_all(place.home().join("two")).unwrap();
    let mut home = attached(&place);
    put(&home, "one/deep/a.d4", 1, 9000);
    put(&home, "one/r.redo", 2, 900);
    put(&home, "two/a.d8", 3, 9000);
    let open = home.open("one/deep/a.d4", OpenMode::WRITE).unwrap();
    home.rename_with("one", "three", RenameFlags::None).unwrap();
    open.write(0, &[4; 4096]).unwrap();
    let paths = |home: &AttachedHome| -> Vec<String> {
        home.files().iter().map(|f| f.path.display().to_string()).collect()
    };
    assert_eq!(paths(&home), ["three/deep/a.d4", "three/r.redo", "two/a.d8"]);
    home.rename_with("three", "two", RenameFlags::Exchange).unwrap();
    assert_eq!(paths(&home), ["three/a.d8", "two/deep/a.d4", "two/r.redo"]);
    // A directory and a file.
    put(&home, "f.d4", 5, 100);
    home.rename_with("f.d4", "three", RenameFlags::Exchange).unwrap();
    assert_eq!(paths(&home), ["f.d4/a.d8", "three", "two/deep/a.d4", "two/r.redo"]);
    drop(open);
    drop(home);
    home = attached(&place);
    assert_eq!(read(&home, "two/deep/a.d4")[..4096], [4; 4096]);
    assert_eq!(
        (read(&home, "two/r.redo"), read(&home, "f.d4/a.d8")[8999], read(&home, "three")),
        (vec![2; 900], 3, vec![5; 100])
    );
    home.detach().unwrap();
    assert_eq!(std::fs::read(place.home().join("two/deep/a.d4")).unwrap()[4096..], [1; 4904]);
}

#[test]
fn a_file_gets_the_class_of_its_new_name_when_nobody_has_it_open() {
    let place = Place::new();
    let home = attached(&place);
    // Pass to redo.
    put(&home, "temp.txt", 1, 5000);
    home.rename("temp.txt", "final.redo").unwrap();
    let file = home.open("final.redo", OpenMode::WRITE).unwrap();
    assert_eq!((file.class(), contents(&file)), (FileClass::Redo, vec![1; 5000]));
    drop(file);
    // Data to pass: home is whole before anybody reads it there, and has the times that were seen.
    put(&home, "a.d4", 2, 9000);
    let held = home.open("a.d4", OpenMode::WRITE).unwrap();
    let time = FileTime { sec: 1_111_111_111, nsec: 7 };
    held.set_times(SetTime::Keep, SetTime::At(time)).unwrap();
    home.rename("a.d4", "b.txt").unwrap();
    assert!(home.in_tier("b.txt").unwrap());
    let second = home.open_found("b.txt", OpenMode::READ).unwrap();
    assert_eq!(
        (held.class(), second.class()),
        (FileClass::Data, FileClass::Data),
        "as long as it is open"
    );
    drop((held, second));
    assert!(!home.in_tier("b.txt").unwrap());
    assert_eq!(std::fs::read(place.aside().join("b.txt")).unwrap(), vec![2; 9000]);
    assert_eq!(FileTime::from_ns(home.stat("b.txt").unwrap().mtime_ns), time);
    assert_eq!(home.open("b.txt", OpenMode::WRITE).unwrap().class(), FileClass::Pass);
    // Renamed while closed: the next opening decides.
    put(&home, "c.d4", 3, 9000);
    home.rename("c.d4", "c.txt").unwrap();
    let file = home.open("c.txt", OpenMode::WRITE).unwrap();
    assert_eq!((file.class(), contents(&file)), (FileClass::Pass, vec![3; 9000]));
    // There and back again keeps the blocks where they are.
    put(&home, "d.d4", 4, 9000);
    home.rename("d.d4", "d.txt").unwrap();
    home.rename("d.txt", "d.d4").unwrap();
    let file = home.open("d.d4", OpenMode::WRITE).unwrap();
    assert_eq!((file.class(), file.blocks_in_tier().0), (FileClass::Data, 3));
}

#[test]
fn two_names_of_a_file_are_one_file() {
    let place = Place::new();
    let home = attached(&place);
    put(&home, "a.d4", 1, 9000);
    home.link("a.d4", "b.d4").unwrap();
    let (a, b) = (
        home.open_found("a.d4", OpenMode::WRITE).unwrap(),
        home.open_found("b.d4", OpenMode::READ).unwrap(),
    );
    assert_eq!(a.key(), b.key());
    a.write(0, &[7; 4096]).unwrap();
    a.truncate(5000).unwrap();
    assert_eq!((b.len().unwrap(), contents(&b)[0]), (5000, 7));
    // Renaming one name to the other of the same file does nothing.
    home.rename("a.d4", "b.d4").unwrap();
    assert_eq!(read(&home, "a.d4"), contents(&b));
    home.unlink("a.d4").unwrap();
    assert_eq!(home.files()[0].names, 1);
    assert_eq!(read(&home, "b.d4").len(), 5000);
    let missing = home.open_found("a.d4", OpenMode::CREATE).unwrap_err();
    assert_eq!(
        missing.errno(),
        rustix::io::Errno::NOENT.raw_os_error(),
        "open_found makes nothing"
    );
}

#[test]
fn a_removed_file_goes_on_for_those_who_have_it_open() {
    let place = Place::new();
    let home = attached(&place);
    for name in ["a.d4", "a.redo", "a.txt"] {
        put(&home, name, 1, 9000);
        let file = home.open(name, OpenMode::WRITE).unwrap();
        home.unlink(name).unwrap();
        file.write(4096, &[2; 8192]).unwrap();
        file.punch(0, 4096).unwrap();
        file.append(&[3; 10]).unwrap();
        home.background_step().unwrap();
        home.flush_all().unwrap();
        file.set_times(SetTime::Now, SetTime::Now).unwrap();
        let bytes = contents(&file);
        assert_eq!((bytes.len(), bytes[0], bytes[4096], bytes[12297]), (12298, 0, 2, 3), "{name}");
        put(&home, name, 9, 100);
        assert_eq!(
            (read(&home, name), contents(&file).len()),
            (vec![9; 100], 12298),
            "{name}: a new file of that name"
        );
        home.rename(name, "other.d4").unwrap();
        home.unlink("other.d4").unwrap();
        drop(file);
    }
    assert!(home.files().is_empty(), "{:?}", home.files());
    home.detach().unwrap();
    assert_eq!(std::fs::read_dir(place.home()).unwrap().count(), 0);
}

#[test]
fn names_of_other_kinds_are_renamed_and_removed_at_home() {
    let place = Place::new();
    std::os::unix::fs::symlink("/etc/passwd", place.home().join("link.d4")).unwrap();
    std::fs::create_dir(place.home().join("dir")).unwrap();
    let home = attached(&place);
    put(&home, "a.d4", 1, 5000);
    home.rename_with("link.d4", "a.d4", RenameFlags::Exchange).unwrap();
    assert_eq!(read(&home, "link.d4"), vec![1; 5000]);
    assert!(home.open_found("a.d4", OpenMode::WRITE).is_err(), "a link is not followed");
    home.rename("a.d4", "b.d4").unwrap();
    home.unlink("b.d4").unwrap();
    assert!(home.rename("link.d4", "dir").is_err());
    assert_eq!(read(&home, "link.d4"), vec![1; 5000], "refused, and nothing lost");
    home.background_step().unwrap();
    assert!(home.rename("link.d4", ".tiersmith").is_err(), "the note is not to be replaced");
    assert_eq!(read(&home, "link.d4"), vec![1; 5000]);
}

#[test]
fn lists_say_what_the_tier_knows_and_what_a_pattern_matches() {
    let place = Place::new();
    std::fs::create_dir(place.home().join("base")).unwrap();
    std::fs::write(place.home().join("base/1.d4"), [1; 9000]).unwrap();
    std::fs::write(place.home().join("base/2.d8"), [1; 9000]).unwrap();
    std::fs::write(place.home().join("p.txt"), [1; 10]).unwrap();
    let home = attached(&place);
    assert!(home.files().is_empty());
    home.pin("base/2.d8").unwrap();
    put(&home, "base/1.d4", 2, 4096);
    let files = home.files();
    assert_eq!(files.len(), 2);
    assert_eq!(
        (files[0].path.as_path(), files[0].dirty, files[0].pinned),
        (Path::new("base/1.d4"), 1, false)
    );
    assert_eq!(
        (files[1].cached, files[1].pinned, files[1].size, files[1].block_size.bytes()),
        (2, true, 9000, 8192)
    );
    let names = |pattern: &str| -> Vec<String> {
        home.candidates(pattern).unwrap().iter().map(|c| c.path.display().to_string()).collect()
    };
    assert_eq!(names("base/*"), ["base/1.d4", "base/2.d8"]);
    assert_eq!(
        (names("*.d4"), names("/p.*"), names("**")),
        (vec!["base/1.d4".into()], vec!["p.txt".into()], names("**"))
    );
    assert_eq!(names("**").len(), 3, "the note is no file of the database");
    let pass = &home.candidates("p.txt").unwrap()[0];
    assert_eq!((pass.class, pass.in_tier, pass.size), (FileClass::Pass, false, 10));
    assert!(home.candidates("[").unwrap_err().to_string().contains("`[`"));
    assert_eq!((home.profile_name(), home.placement("x.redo").class), ("test", FileClass::Redo));
    assert_eq!(home.home_path(), place.home().canonicalize().unwrap_or(place.home()));
    assert!(home.directory().is_some());
}

#[test]
fn a_file_opened_for_reading_only_first_can_be_written_and_destaged_later() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    std::fs::write(place.home().join("a.d4"), [1; 9000]).unwrap();
    let home = attached(&place);
    let path = place.aside().join("a.d4");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
    let reader = home.open_found("a.d4", OpenMode::READ).unwrap();
    assert_eq!(contents(&reader), vec![1; 9000]);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    home.open_found("a.d4", OpenMode::WRITE).unwrap().write(0, &[2; 4096]).unwrap();
    assert_eq!(contents(&reader)[..4096], [2; 4096]);
    home.destage(None).unwrap();
    drop(reader);
    home.detach().unwrap();
    assert_eq!(
        std::fs::read(place.home().join("a.d4")).unwrap()[..4097]
            .iter()
            .filter(|b| **b == 2)
            .count(),
        4096
    );
}

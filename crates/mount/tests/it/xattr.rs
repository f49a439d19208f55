//! Extended attributes, as programs copy them: first the length, then the bytes. And what there is
//! instead of them: no file attributes, no map of extents.

use crate::place::{Place, skipped};
use rustix::fs::{XattrFlags, getxattr, getxattr_query, listxattr, listxattr_query, setxattr};
use rustix::io::Errno;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::Command;
use tiersmith_mount::Options;

const NAME: &str = "user.tiersmith.test";

fn value(at: &Path) -> Vec<u8> {
    let mut bytes = vec![0; getxattr_query(at, NAME).unwrap()];
    let got = getxattr(at, NAME, &mut bytes).unwrap();
    assert_eq!(got, bytes.len(), "{}", at.display());
    bytes
}

#[test]
fn the_length_of_an_attribute_is_told_before_it_is_read() {
    if skipped("extended attributes") {
        return;
    }
    let place = Place::with(16, Options::default());
    fs::create_dir(place.at("dir")).unwrap();
    fs::write(place.at("a.d8"), [1; 9000]).unwrap();
    fs::write(place.at("b.pass"), [1; 9000]).unwrap();
    if setxattr(place.at("dir"), NAME, b"x", XattrFlags::empty()) == Err(Errno::OPNOTSUPP) {
        eprintln!("skipped: the home's file system has no attributes of users");
        return;
    }
    // An open file is asked by its descriptor, others by their names.
    let _open = OpenOptions::new().write(true).open(place.at("b.pass")).unwrap();
    for name in ["dir", "a.d8", "b.pass"] {
        let at = place.at(name);
        setxattr(&at, NAME, b"seventeen letters", XattrFlags::empty()).unwrap();
        assert_eq!(value(&at), b"seventeen letters", "{name}");
        let mut names = vec![0; listxattr_query(&at).unwrap()];
        let got = listxattr(&at, &mut names).unwrap();
        assert_eq!(got, names.len());
        assert!(names.split(|b| *b == 0).any(|found| found == NAME.as_bytes()), "{name}");
        assert_eq!(getxattr(&at, NAME, &mut [0; 5][..]), Err(Errno::RANGE));
        assert_eq!(getxattr_query(&at, "user.none"), Err(Errno::NODATA));
    }
    setxattr(place.at("a.d8"), NAME, b"", XattrFlags::empty()).unwrap();
    assert_eq!(getxattr_query(place.at("a.d8"), NAME), Ok(0));
    // `cp -a` leaves out what has no length, and says nothing.
    let copied = Command::new("cp")
        .arg("-a")
        .arg(place.at("b.pass"))
        .arg(place.at("copy.pass"))
        .status()
        .unwrap();
    assert!(copied.success());
    assert_eq!(value(&place.at("copy.pass")), b"seventeen letters");
}

#[test]
fn file_attributes_and_the_map_of_extents_are_missing_as_the_guide_says() {
    let guide = include_str!("../../../../docs/guide/mount.md");
    for word in ["`chattr`", "`lsattr`", "`ENOTTY`", "`FIEMAP`", "`EOPNOTSUPP`", "synced at home"] {
        assert!(guide.contains(word), "the guide says nothing of {word}");
    }
    if skipped("what a mount does not offer") {
        return;
    }
    let place = Place::with(16, Options::default());
    for name in ["a.d8", "b.pass"] {
        fs::write(place.at(name), [1; 9000]).unwrap();
        let file = fs::File::open(place.at(name)).unwrap();
        assert_eq!(rustix::fs::ioctl_getflags(&file), Err(Errno::NOTTY), "{name}");
        let flags = rustix::fs::IFlags::NOATIME;
        assert_eq!(rustix::fs::ioctl_setflags(&file, flags), Err(Errno::NOTTY), "{name}");
    }
}

#[test]
fn a_home_without_attributes_is_mounted_without_and_one_that_has_some_keeps_them() {
    if skipped("a mount without extended attributes") {
        return;
    }
    let options = || Options { xattrs_if_any: true, ..Options::default() };
    let mut place = Place::plain(16, options());
    fs::create_dir_all(place.home().join("dir/deep")).unwrap();
    fs::write(place.home().join("dir/deep/a.d8"), [1; 9000]).unwrap();
    place.mount();
    let (file, copy) = (place.at("dir/deep/a.d8"), place.at("copy.d8"));
    assert!(!place.mounted().report().xattrs);
    // As on a file system that has none: nothing can be set that would not be read.
    let refused = setxattr(&file, NAME, b"x", XattrFlags::empty());
    assert_eq!(refused, Err(Errno::OPNOTSUPP));
    assert_eq!(getxattr_query(&file, NAME), Err(Errno::OPNOTSUPP));
    assert!(matches!(listxattr_query(&file), Ok(0) | Err(Errno::OPNOTSUPP)));
    let copied = Command::new("cp").arg("-a").args([&file, &copy]).status().unwrap();
    assert!(copied.success());
    for n in 0..100u8 {
        let open = OpenOptions::new().write(true).open(&copy).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&open, &[n; 8192], 0).unwrap();
        assert_eq!(fs::metadata(&copy).unwrap().len(), 9000);
    }
    let asked = |kind: &str| {
        let report = place.mounted().report();
        report.requests.iter().find(|(name, _)| name == kind).map_or(0, |(_, count)| *count)
    };
    assert!(
        asked("write") >= 100 && asked("getxattr") <= 1,
        "{:?}",
        place.mounted().report().requests
    );
    drop(place.unmount());

    // One attribute anywhere, also on a directory, and all are there.
    let deep = place.aside().join("dir/deep");
    if setxattr(&deep, NAME, b"x", XattrFlags::empty()) == Err(Errno::OPNOTSUPP) {
        eprintln!("skipped: the home's file system has no attributes of users");
        return;
    }
    place.mount();
    assert!(place.mounted().report().xattrs);
    setxattr(place.at("copy.d8"), NAME, b"yz", XattrFlags::empty()).unwrap();
    assert_eq!(value(&place.at("copy.d8")), b"yz");
    assert_eq!(value(&place.at("dir/deep")), b"x");
}

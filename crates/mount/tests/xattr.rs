//! Extended attributes, as programs copy them: first the length, then the bytes. And what there is
//! instead of them: no file attributes, no map of extents.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod place;

use place::{Place, skipped};
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
    let copied =
        Command::new("cp").arg("-a").arg(place.at("b.pass")).arg(place.at("copy.pass")).status().unwrap();
    assert!(copied.success());
    assert_eq!(value(&place.at("copy.pass")), b"seventeen letters");
}

#[test]
fn file_attributes_and_the_map_of_extents_are_missing_as_the_guide_says() {
    let guide = include_str!("../../../docs/guide/mount.md");
    for word in ["`chattr`", "`lsattr`", "`ENOTTY`", "`FIEMAP`", "`EOPNOTSUPP`", "syncs home"] {
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

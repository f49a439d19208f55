//! Where a home is mounted when somebody who may write beside it changes the names: on the
//! directory that was meant, or not at all.

use crate::place;
use crate::place::{Place, profile, skipped};
use rustix::mount::{MountFlags, UnmountFlags};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use tiersmith_mount::{Options, mount};
use tiersmith_store::{AttachedHome, Medium, TierSpec, attach};

fn is_mounted(at: &Path) -> bool {
    let at = fs::canonicalize(at).unwrap();
    fs::read_to_string("/proc/self/mountinfo")
        .unwrap()
        .lines()
        .any(|line| line.split(' ').nth(4) == at.to_str())
}

/// Mounting is refused with a sentence that holds `expected`, and nothing is mounted on `other`.
fn refused(home: &AttachedHome, at: &Path, other: &Path, expected: &str) {
    let error = mount(home.clone(), at, &Options::default()).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
    assert!(!is_mounted(other), "{} is mounted on: {error}", other.display());
}

#[test]
fn what_was_put_in_the_place_of_the_note_is_not_mounted_on() {
    if skipped("what_was_put_in_the_place_of_the_note_is_not_mounted_on") {
        return;
    }
    let place = Place::plain(8, Options::default());
    fs::write(place.at("a.d8"), "a").unwrap();
    let home = place.attach();
    let (kept, other) = (place.path().join("kept"), place.path().join("other"));
    fs::create_dir(&other).unwrap();
    fs::rename(place.home(), &kept).unwrap();

    symlink(&other, place.home()).unwrap();
    refused(&home, &place.home(), &other, "cannot mount at");
    fs::remove_file(place.home()).unwrap();

    fs::create_dir(place.home()).unwrap();
    refused(&home, &place.home(), &place.home(), "the directory with the note");
    fs::write(place.at("README-TIERSMITH.txt"), "so it seems").unwrap();
    fs::write(place.at("more"), "to be hidden").unwrap();
    refused(&home, &place.home(), &place.home(), "the directory with the note");
    fs::remove_dir_all(place.home()).unwrap();

    fs::rename(&kept, place.home()).unwrap();
    let mounted = mount(home.clone(), &place.home(), &place.options).unwrap();
    assert_eq!(fs::read_to_string(place.at("a.d8")).unwrap(), "a");
    refused(&home, &place.home(), &other, "mounted there already");
    let mut left = Some(mounted);
    place::until("the mount to be free", || match left.take().unwrap().unmount() {
        Ok(_) => true,
        Err((mounted, _)) => {
            left = Some(mounted);
            false
        }
    });
    assert!(!is_mounted(&place.home()));
    home.detach().unwrap();
    assert_eq!(fs::read_to_string(place.at("a.d8")).unwrap(), "a");
}

#[test]
fn a_link_in_the_place_of_the_directory_above_is_noticed() {
    if skipped("a_link_in_the_place_of_the_directory_above_is_noticed") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(dir.path()).unwrap();
    let (above, moved, other) = (root.join("above"), root.join("moved"), root.join("other"));
    fs::create_dir_all(above.join("db")).unwrap();
    fs::create_dir_all(other.join("db")).unwrap();
    let spec = TierSpec::new("fast", root.join("fast"), Medium::Emulated, 8 << 20);
    let options = tiersmith_store::Options { profile: Some(profile()), ..Default::default() };
    let home = attach(&above.join("db"), &[spec], options).unwrap();
    fs::rename(&above, &moved).unwrap();
    symlink(&other, &above).unwrap();
    refused(&home, &above.join("db"), &other.join("db"), "not beside it any more");
    fs::remove_file(&above).unwrap();
    fs::rename(&moved, &above).unwrap();
    home.detach().unwrap();
}

#[test]
fn another_mount_is_not_mounted_over_by_way_of_a_link() {
    if place::skipped_unless_root("another_mount_is_not_mounted_over_by_way_of_a_link") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(dir.path()).unwrap();
    let (above, moved, other) = (root.join("above"), root.join("moved"), root.join("other"));
    fs::create_dir_all(above.join("db")).unwrap();
    fs::create_dir_all(other.join("db")).unwrap();
    let victim = other.join("db");
    let flags = MountFlags::empty();
    if let Err(e) = rustix::mount::mount("victim", &victim, "tmpfs", flags, c"size=64k") {
        eprintln!("skipped: mounting over another mount, because none can be made here ({e})");
        return;
    }
    let unmounts = Unmounts(victim.clone());
    fs::write(victim.join("file"), "to be hidden").unwrap();
    let spec = TierSpec::new("fast", root.join("fast"), Medium::Emulated, 8 << 20);
    let options = tiersmith_store::Options { profile: Some(profile()), ..Default::default() };
    let home = attach(&above.join("db"), &[spec], options).unwrap();
    // Who owns the directory above can do this at any moment.
    fs::rename(&above, &moved).unwrap();
    symlink(&other, &above).unwrap();
    let error = mount(home.clone(), &above.join("db"), &Options::default()).map(drop).unwrap_err();
    assert!(error.to_string().contains("not beside it any more"), "{error}");
    // Nor is it when it is named.
    let error = mount(home.clone(), &victim, &Options::default()).map(drop).unwrap_err();
    assert!(error.to_string().contains("mounted there already"), "{error}");
    assert_eq!(fs::read_to_string(victim.join("file")).unwrap(), "to be hidden");
    drop(unmounts);
    fs::remove_file(&above).unwrap();
    fs::rename(&moved, &above).unwrap();
    home.detach().unwrap();
}

/// Takes a mount away when the test ends, however it ends.
struct Unmounts(std::path::PathBuf);

impl Drop for Unmounts {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

#[test]
fn another_directory_is_mounted_on_when_nothing_is_in_it() {
    if skipped("another_directory_is_mounted_on_when_nothing_is_in_it") {
        return;
    }
    let place = Place::plain(8, Options::default());
    let home = place.attach();
    let other = place.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), "to be hidden").unwrap();
    refused(&home, &other, &other, "not empty");
    fs::remove_file(other.join("file")).unwrap();
    let mounted = mount(home.clone(), &other, &place.options).unwrap();
    assert!(is_mounted(&other));
    drop(mounted);
    assert!(!is_mounted(&other), "dropping unmounts");
    home.detach().unwrap();
}

//! Who held a directory of the home open before the attach can exchange names behind the mount. The
//! mount acts on what the kernel judged, or not at all: root's files in the home stay where they
//! are and whose they are.
//!
//! The attacker is user 2001, who owns the home, and works in threads of this process that changed
//! their user for good.

use crate::place::{Place, skipped_unless_root};
use crate::user::as_user;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use std::fs::{self, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tiersmith_mount::Options;

const OWNER: u32 = 2001;

/// A mounted home of [`OWNER`] with `mine`, and `roots`, which only root may enter; each holds `f`
/// and `f.d8`. With it the owner's descriptor of the home, from before the attach.
fn scene() -> (Place, OwnedFd) {
    let mut place = Place::plain(8, Options::default());
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
    chown(place.home(), Some(OWNER), Some(OWNER)).unwrap();
    let held = as_user(OWNER, OWNER, &[], || {
        let home = place.home();
        fs::create_dir(home.join("mine")).unwrap();
        for name in ["mine/f", "mine/f.d8"] {
            fs::write(home.join(name), "mine").unwrap();
        }
        rustix::fs::open(&home, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap()
    });
    fs::create_dir(place.at("roots")).unwrap();
    for name in ["roots/f", "roots/f.d8"] {
        fs::write(place.at(name), "root's").unwrap();
        fs::set_permissions(place.at(name), Permissions::from_mode(0o600)).unwrap();
    }
    fs::set_permissions(place.at("roots"), Permissions::from_mode(0o700)).unwrap();
    place.mount();
    (place, held)
}

fn swap(held: &OwnedFd, one: &str, other: &str) {
    rustix::fs::renameat_with(held, one, held, other, RenameFlags::EXCHANGE).unwrap();
}

/// Where root's directory is now, and that nothing in it was changed, taken or added.
fn roots_is_whole(place: &Place) {
    let roots: Vec<PathBuf> = ["mine", "roots"]
        .iter()
        .map(|name| place.aside().join(name))
        .filter(|dir| fs::metadata(dir).is_ok_and(|found| found.uid() == 0))
        .collect();
    let [roots] = &roots[..] else { panic!("root's directory is at {roots:?}") };
    assert_eq!(fs::metadata(roots).unwrap().mode() & 0o7777, 0o700);
    let mut names: Vec<_> = fs::read_dir(roots).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["f", "f.d8"], "in root's directory");
    for name in names {
        let found = fs::metadata(roots.join(&name)).unwrap();
        assert_eq!((found.uid(), found.mode() & 0o7777, found.nlink()), (0, 0o600, 1), "{name:?}");
        assert_eq!(fs::read_to_string(roots.join(&name)).unwrap(), "root's", "{name:?}");
    }
}

/// Lets the kernel find what it is asked for, exchanges the directories, and calls `act` as their
/// owner.
fn judged_then_swapped(act: impl Fn(&Place, &str) + Sync) {
    for name in ["f", "f.d8"] {
        let (place, held) = scene();
        as_user(OWNER, OWNER, &[], || {
            fs::metadata(place.at("mine").join(name)).unwrap();
            swap(&held, "mine", "roots");
            act(&place, name);
        });
        roots_is_whole(&place);
    }
}

#[test]
fn a_removal_takes_nothing_of_root_when_directories_are_exchanged() {
    if skipped_unless_root("a_removal_takes_nothing_of_root_when_directories_are_exchanged") {
        return;
    }
    judged_then_swapped(|place, name| {
        // Whether it removes its own file or fails, it does nothing else.
        let _ = fs::remove_file(place.at("mine").join(name));
    });
}

#[test]
fn a_rename_moves_nothing_of_root_when_directories_are_exchanged() {
    if skipped_unless_root("a_rename_moves_nothing_of_root_when_directories_are_exchanged") {
        return;
    }
    judged_then_swapped(|place, name| {
        let _ = fs::rename(place.at("mine").join(name), place.at("taken"));
    });
    // Nor does it replace anything.
    judged_then_swapped(|place, name| {
        fs::write(place.at("new"), "new").unwrap();
        let _ = fs::rename(place.at("new"), place.at("mine").join(name));
    });
    judged_then_swapped(|place, name| {
        fs::write(place.at("new"), "new").unwrap();
        let (new, target) = (place.at("new"), place.at("mine").join(name));
        let _ = rustix::fs::renameat_with(CWD, new, CWD, target, RenameFlags::EXCHANGE);
    });
}

#[test]
fn a_link_leads_to_nothing_of_root_when_directories_are_exchanged() {
    if skipped_unless_root("a_link_leads_to_nothing_of_root_when_directories_are_exchanged") {
        return;
    }
    judged_then_swapped(|place, name| {
        let _ = fs::hard_link(place.at("mine").join(name), place.at("linked"));
    });
    judged_then_swapped(|place, _| {
        fs::write(place.at("new"), "new").unwrap();
        let _ = fs::hard_link(place.at("new"), place.at("mine/new"));
    });
}

#[test]
fn a_directory_that_moves_is_the_one_that_was_judged() {
    if skipped_unless_root("a_directory_that_moves_is_the_one_that_was_judged") {
        return;
    }
    let (place, held) = scene();
    as_user(OWNER, OWNER, &[], || {
        fs::create_dir(place.at("into")).unwrap();
        fs::metadata(place.at("mine")).unwrap();
        swap(&held, "mine", "roots");
        // To give a directory another parent one must be allowed to write to it.
        let _ = fs::rename(place.at("mine"), place.at("into/mine"));
        let _ = fs::remove_dir(place.at("mine"));
    });
    roots_is_whole(&place);
}

#[test]
fn nothing_of_root_changes_while_names_are_exchanged_all_the_time() {
    if skipped_unless_root("nothing_of_root_changes_while_names_are_exchanged_all_the_time") {
        return;
    }
    let (place, held) = scene();
    as_user(OWNER, OWNER, &[], || fs::create_dir(place.at("into")).unwrap());
    let done = AtomicBool::new(false);
    let swaps = std::thread::scope(|scope| {
        let swapping = scope.spawn(|| {
            as_user(OWNER, OWNER, &[], || {
                let mut swaps = 0u32;
                while !done.load(Ordering::Relaxed) {
                    // What the other thread moved away is not there for a moment.
                    let flags = RenameFlags::EXCHANGE;
                    swaps += u32::from(
                        rustix::fs::renameat_with(&held, "mine", &held, "roots", flags).is_ok(),
                    );
                }
                swaps
            })
        });
        as_user(OWNER, OWNER, &[], || {
            let until = Instant::now() + Duration::from_secs(2);
            while Instant::now() < until {
                for dir in ["mine", "roots"] {
                    let (file, out) = (place.at(dir).join("f.d8"), place.at("out"));
                    let _ = fs::rename(&file, &out);
                    let _ = fs::rename(&out, &file);
                    let _ = fs::hard_link(&file, place.at("linked"));
                    let _ = fs::remove_file(place.at("linked"));
                    let _ = fs::remove_file(&file);
                    let _ = fs::write(&file, "mine");
                    let _ = fs::rename(place.at(dir), place.at("into").join(dir));
                    let _ = fs::rename(place.at("into").join(dir), place.at(dir));
                }
            }
        });
        done.store(true, Ordering::Relaxed);
        swapping.join().unwrap()
    });
    assert!(swaps > 1000, "only {swaps} exchanges");
    roots_is_whole(&place);
}

#[test]
fn what_is_made_gives_nothing_of_root_away() {
    if skipped_unless_root("what_is_made_gives_nothing_of_root_away") {
        return;
    }
    let (place, held) = scene();
    let secret = place.aside().join("secret");
    fs::write(&secret, "root's").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let (making, until) = (AtomicU32::new(0), Instant::now() + Duration::from_secs(2));
    let swaps = std::thread::scope(|scope| {
        let swapping = scope.spawn(|| {
            as_user(OWNER, OWNER, &[], || {
                let (mut swapped, mut swaps) = (0, 0u32);
                while Instant::now() < until {
                    let n = making.load(Ordering::Acquire);
                    let (new, flags) = (format!("new-{n}"), RenameFlags::EXCHANGE);
                    let swap = || rustix::fs::renameat_with(&held, &*new, &held, "secret", flags);
                    if n != swapped && swap().is_ok() {
                        std::thread::sleep(Duration::from_micros(u64::from(n % 50)));
                        let _ = swap();
                        (swapped, swaps) = (n, swaps + 1);
                    }
                }
                swaps
            })
        });
        as_user(OWNER, OWNER, &[], || {
            while Instant::now() < until {
                let n = making.fetch_add(1, Ordering::Release) + 1;
                let new = place.at(&format!("new-{n}"));
                let fifo = rustix::fs::FileType::Fifo;
                let _ = match n % 3 {
                    0 => std::os::unix::fs::symlink("nowhere", new),
                    1 => rustix::fs::mknodat(CWD, new, fifo, Mode::RWXU, 0).map_err(Into::into),
                    _ => fs::write(new, "mine"),
                };
            }
        });
        swapping.join().unwrap()
    });
    assert!(swaps > 100, "only {swaps} exchanges");
    let found = fs::metadata(&secret).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (0, 0, 0o600));
    assert_eq!(fs::read_to_string(&secret).unwrap(), "root's");
}

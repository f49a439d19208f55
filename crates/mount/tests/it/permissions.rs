//! Rights on the mount are those that the home gives, for every user, and what a user makes belongs
//! to that user.
//!
//! The other users are threads of this process that change their user and group for good, for
//! themselves only.

use crate::place::{Place, skipped_unless_root};
use crate::user::as_user;
use rustix::fs::{Mode, StatVfsMountFlags, XattrFlags};
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{
    DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown,
};
use std::path::Path;
use tiersmith_mount::Options;

const NAMES: [&str; 3] = ["a.redo", "a.d8", "a.pass"];

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

/// Lets everybody through the directories above the home.
fn open_up(place: &Place) {
    fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn programs_on_the_mount_give_no_rights_and_devices_on_it_open_none() {
    if skipped_unless_root("programs_on_the_mount_give_no_rights_and_devices_on_it_open_none") {
        return;
    }
    let place = Place::new(8);
    let flags = rustix::fs::statvfs(place.at(".")).unwrap().f_flag;
    let wanted = StatVfsMountFlags::NOSUID | StatVfsMountFlags::NODEV;
    assert!(flags.contains(wanted), "{flags:?}");
}

#[test]
fn another_user_gets_what_the_modes_give_and_nothing_more() {
    if skipped_unless_root("another_user_gets_what_the_modes_give_and_nothing_more") {
        return;
    }
    let place = Place::new(8);
    open_up(&place);
    fs::set_permissions(place.home(), Permissions::from_mode(0o755)).unwrap();
    for name in NAMES {
        let path = place.at(name);
        fs::write(&path, "secret").unwrap();
        chown(&path, Some(2001), Some(3001)).unwrap();
        for (mode, owner, group, other) in [
            (0o600, (true, true), (false, false), (false, false)),
            (0o640, (true, true), (true, false), (false, false)),
            (0o604, (true, true), (false, false), (true, false)),
            (0o066, (false, false), (true, true), (true, true)),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let may = |path: &Path| {
                (fs::File::open(path).is_ok(), OpenOptions::new().write(true).open(path).is_ok())
            };
            assert_eq!(as_user(2001, 2001, &[], || may(&path)), owner, "{name} {mode:o}: owner");
            assert_eq!(as_user(2002, 3001, &[], || may(&path)), group, "{name} {mode:o}: group");
            assert_eq!(
                as_user(2002, 2002, &[3001], || may(&path)),
                group,
                "{name} {mode:o}: further group"
            );
            assert_eq!(as_user(2003, 2003, &[], || may(&path)), other, "{name} {mode:o}: other");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        as_user(2002, 2002, &[], || {
            assert_eq!(
                errno(fs::set_permissions(&path, Permissions::from_mode(0o666))),
                Some(libc::EPERM)
            );
            assert_eq!(errno(chown(&path, Some(2002), None)), Some(libc::EPERM));
            assert_eq!(errno(fs::remove_file(&path)), Some(libc::EACCES));
            assert_eq!(errno(fs::rename(&path, place.at("taken"))), Some(libc::EACCES));
            assert_eq!(errno(fs::write(place.at("new"), "x")), Some(libc::EACCES));
            let file = fs::File::open(&path).unwrap();
            assert!(file.write_at(b"x", 0).is_err());
            assert_eq!(errno(file.set_len(0)), Some(libc::EINVAL));
            let set = rustix::fs::setxattr(&path, "user.x", b"x", XattrFlags::empty());
            assert_eq!(set, Err(rustix::io::Errno::ACCESS));
            let trusted = rustix::fs::setxattr(&path, "trusted.x", b"x", XattrFlags::empty());
            assert_eq!(trusted, Err(rustix::io::Errno::PERM));
        });
        assert_eq!(fs::read_to_string(&path).unwrap(), "secret");
    }
}

#[test]
fn another_user_who_fills_the_file_table_leaves_slots_to_the_owner_of_the_home() {
    if skipped_unless_root(
        "another_user_who_fills_the_file_table_leaves_slots_to_the_owner_of_the_home",
    ) {
        return;
    }
    // So small that the table may grow once, which is kept for the owner too.
    let mut place = Place::plain(2, Options::default());
    place.slots = 64;
    open_up(&place);
    fs::set_permissions(place.home(), Permissions::from_mode(0o777)).unwrap();
    chown(place.home(), Some(54320), Some(54320)).unwrap();
    place.mount();
    let made = |name: &str| OpenOptions::new().create_new(true).write(true).open(place.at(name));
    let (theirs, refused) = as_user(54321, 54321, &[], || {
        let mut held = Vec::new();
        loop {
            match made(&format!("guest{}.d8", held.len())) {
                Ok(file) => held.push(file),
                Err(e) => break (held, e),
            }
        }
    });
    assert_eq!(refused.raw_os_error(), Some(libc::ENFILE), "{} are open", theirs.len());
    let name = format!("guest{}.d8", theirs.len());
    assert!(!place.aside().join(name).exists(), "what was refused was made all the same");
    let tier = || place.mounted().attached().stats().tiers[0].clone();
    assert_eq!(theirs.len() as u64, tier().file_slots - tier().file_slots_kept);
    let ours: Vec<fs::File> = as_user(54320, 54320, &[], || {
        let ours: Vec<fs::File> = (0..8).map(|n| made(&format!("owner{n}.d8")).unwrap()).collect();
        ours.iter().for_each(|file| file.write_all_at(&[7; 8192], 0).unwrap());
        ours
    });
    // In the tier, whose blocks are written whole.
    assert_eq!((tier().files, tier().files_outside), ((theirs.len() + ours.len()) as u64, 0));
    drop((theirs, ours));
    place.detach();
    assert_eq!(fs::read(place.at("owner7.d8")).unwrap(), [7; 8192]);
}

#[test]
fn what_a_user_makes_belongs_to_the_user() {
    if skipped_unless_root("what_a_user_makes_belongs_to_the_user") {
        return;
    }
    let place = Place::new(8);
    open_up(&place);
    fs::set_permissions(place.home(), Permissions::from_mode(0o777)).unwrap();
    fs::create_dir(place.at("shared")).unwrap();
    chown(place.at("shared"), None, Some(3001)).unwrap();
    fs::set_permissions(place.at("shared"), Permissions::from_mode(0o2777)).unwrap();
    for dir in ["", "shared"] {
        let at = |name: &str| place.home().join(dir).join(name);
        as_user(2001, 2002, &[], || {
            for name in NAMES {
                fs::write(at(name), "mine").unwrap();
                OpenOptions::new()
                    .create_new(true)
                    .write(true)
                    .mode(0o400)
                    .open(at(&format!("r-{name}")))
                    .unwrap();
            }
            fs::DirBuilder::new().mode(0o750).create(at("dir")).unwrap();
            std::os::unix::fs::symlink("nowhere", at("link")).unwrap();
            let fifo = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), fifo, Mode::from_raw_mode(0o640), 0)
                .unwrap();
            drop(std::os::unix::net::UnixListener::bind(at("s")).unwrap());
        });
        let group = if dir.is_empty() { 2002 } else { 3001 };
        for name in NAMES.iter().copied().chain(["r-a.redo", "r-a.d8", "dir", "link", "fifo", "s"])
        {
            // By the mount, and by what is really there.
            for path in [at(name), place.aside().join(dir).join(name)] {
                let found = fs::symlink_metadata(&path).unwrap();
                assert_eq!((found.uid(), found.gid()), (2001, group), "{dir}/{name}");
            }
        }
        let mode = |name: &str| fs::symlink_metadata(at(name)).unwrap().mode() & 0o7777;
        assert_eq!(mode("r-a.d8"), 0o400);
        assert_eq!(mode("dir"), if dir.is_empty() { 0o750 } else { 0o2750 });
        // A sticky directory keeps what is there to its owner.
        as_user(2001, 2001, &[], || fs::remove_file(at("a.d8")).unwrap());
    }
    fs::set_permissions(place.home(), Permissions::from_mode(0o1777)).unwrap();
    as_user(2005, 2005, &[], || {
        assert_eq!(errno(fs::remove_file(place.at("a.redo"))), Some(libc::EPERM));
    });
}

#[test]
fn a_directory_gets_another_parent_by_the_right_of_a_further_group() {
    if skipped_unless_root("a_directory_gets_another_parent_by_the_right_of_a_further_group") {
        return;
    }
    let place = Place::new(8);
    open_up(&place);
    fs::set_permissions(place.home(), Permissions::from_mode(0o777)).unwrap();
    for name in ["from", "to", "from/dir"] {
        fs::create_dir(place.at(name)).unwrap();
        chown(place.at(name), None, Some(3001)).unwrap();
        fs::set_permissions(place.at(name), Permissions::from_mode(0o770)).unwrap();
    }
    fs::write(place.at("from/dir/a.d8"), "moves along").unwrap();
    let (from, to) = (place.at("from/dir"), place.at("to/dir"));
    as_user(2002, 2002, &[3001], || fs::rename(&from, &to).unwrap());
    assert_eq!(fs::read_to_string(to.join("a.d8")).unwrap(), "moves along");
    // It must itself be writable, and not only both parents.
    fs::set_permissions(&to, Permissions::from_mode(0o750)).unwrap();
    as_user(2002, 2002, &[3001], || {
        assert_eq!(errno(fs::rename(&to, &from)), Some(libc::EACCES));
    });
    fs::rename(&to, &from).unwrap();
}

#[test]
fn the_callers_umask_counts_and_no_other() {
    if skipped_unless_root("the_callers_umask_counts_and_no_other") {
        return;
    }
    let place = Place::new(8);
    open_up(&place);
    fs::set_permissions(place.home(), Permissions::from_mode(0o777)).unwrap();
    std::thread::scope(|scope| {
        for mask in [0o000, 0o022, 0o077, 0o027] {
            let home = place.home();
            scope.spawn(move || {
                // SAFETY: this thread stops sharing its umask with the others; nothing here relies
                // on sharing it.
                assert_eq!(unsafe { libc::unshare(libc::CLONE_FS) }, 0);
                rustix::process::umask(Mode::from_raw_mode(mask));
                for n in 0..100 {
                    let path = home.join(format!("{mask:o}-{n}.d8"));
                    OpenOptions::new()
                        .create_new(true)
                        .write(true)
                        .mode(0o666)
                        .open(&path)
                        .unwrap();
                    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o666 & !mask);
                    fs::remove_file(&path).unwrap();
                }
            });
        }
    });
}

#[test]
fn writing_takes_suid_away_from_who_may_not_keep_it() {
    if skipped_unless_root("writing_takes_suid_away_from_who_may_not_keep_it") {
        return;
    }
    let place = Place::new(8);
    open_up(&place);
    for name in NAMES {
        let path = place.at(name);
        fs::write(&path, "program").unwrap();
        let suid = || fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
        let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
        suid();
        assert_eq!(mode(), 0o6777);
        as_user(2002, 2002, &[], || {
            OpenOptions::new().write(true).open(&path).unwrap().write_all_at(b"x", 0).unwrap();
        });
        assert_eq!(mode(), 0o777, "{name}: write");
        suid();
        as_user(2002, 2002, &[], || {
            OpenOptions::new().write(true).open(&path).unwrap().set_len(3).unwrap()
        });
        assert_eq!(mode(), 0o777, "{name}: truncate");
        suid();
        as_user(2002, 2002, &[], || {
            let file = OpenOptions::new().write(true).open(&path).unwrap();
            let done = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 9000);
            assert!(matches!(done, Ok(()) | Err(rustix::io::Errno::OPNOTSUPP)), "{done:?}");
        });
        // The kernel may remember the mode for a while; home has it right.
        let at_home = fs::metadata(place.aside().join(name)).unwrap().mode() & 0o7777;
        assert_eq!(at_home, 0o777, "{name}: allocate");
        suid();
        chown(&path, Some(2001), Some(2001)).unwrap();
        assert_eq!(mode() & 0o6000, 0, "{name}: chown");
        // Capabilities go with any write.
        let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let set =
            rustix::fs::setxattr(&path, "security.capability", &capability, XattrFlags::empty());
        if set.is_ok() {
            fs::OpenOptions::new().write(true).open(&path).unwrap().write_all_at(b"y", 0).unwrap();
            let left = rustix::fs::getxattr(&path, "security.capability", &mut [0u8; 64][..]);
            assert_eq!(left, Err(rustix::io::Errno::NODATA), "{name}: capability");
        }
    }
}

#[test]
fn only_who_mounted_gets_in_without_allow_other() {
    if skipped_unless_root("only_who_mounted_gets_in_without_allow_other") {
        return;
    }
    let options = tiersmith_mount::Options { allow_other: false, ..Default::default() };
    let place = Place::with(8, options);
    open_up(&place);
    fs::set_permissions(place.home(), Permissions::from_mode(0o777)).unwrap();
    fs::write(place.at("a.d8"), "x").unwrap();
    fs::set_permissions(place.at("a.d8"), Permissions::from_mode(0o666)).unwrap();
    as_user(2001, 2001, &[], || {
        assert_eq!(errno(fs::read(place.at("a.d8"))), Some(libc::EACCES));
        assert_eq!(errno(fs::read_dir(place.home())), Some(libc::EACCES));
    });
    assert_eq!(fs::read_to_string(place.at("a.d8")).unwrap(), "x");
}

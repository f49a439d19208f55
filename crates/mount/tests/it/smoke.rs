//! The mount in its first minute: files of each class are written and read, renamed, removed, and
//! are there after a remount and a detach.

use crate::place;
use crate::place::{Place, skipped};
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use tiersmith_mount::{Options, Transport, clear_dead, is_dead};

const NAMES: [&str; 4] = ["a.redo", "a.d8", "a.d4", "a.pass"];

fn bytes(n: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..n).map(|_| random.u8(..)).collect()
}

#[test]
fn what_is_written_is_read_after_a_remount_and_after_a_detach() {
    if skipped("what_is_written_is_read_after_a_remount_and_after_a_detach") {
        return;
    }
    let mut place = Place::new(16);
    for (n, name) in NAMES.iter().enumerate() {
        let data = bytes(300_000 + n * 1000, n as u64);
        fs::write(place.at(name), &data).unwrap();
        assert_eq!(fs::read(place.at(name)).unwrap(), data, "{name}");
        assert_eq!(fs::metadata(place.at(name)).unwrap().len(), data.len() as u64, "{name}");
        let file = fs::OpenOptions::new().read(true).write(true).open(place.at(name)).unwrap();
        file.write_all_at(b"in the middle", 123_456).unwrap();
        file.sync_all().unwrap();
    }
    let check = |place: &Place| {
        for (n, name) in NAMES.iter().enumerate() {
            let mut data = bytes(300_000 + n * 1000, n as u64);
            data[123_456..123_469].copy_from_slice(b"in the middle");
            assert_eq!(fs::read(place.at(name)).unwrap(), data, "{name}");
        }
    };
    check(&place);
    place.remount();
    check(&place);
    place.detach();
    check(&place);
    assert!(!place.aside().exists(), "the directory is back at its own path");
}

#[test]
fn names_are_made_moved_and_removed() {
    if skipped("names_are_made_moved_and_removed") {
        return;
    }
    let mut place = Place::new(8);
    fs::create_dir(place.at("dir")).unwrap();
    fs::create_dir(place.at("dir/deep")).unwrap();
    for name in NAMES {
        fs::write(place.at(name), name).unwrap();
        fs::rename(place.at(name), place.at("dir").join(name)).unwrap();
        fs::hard_link(place.at("dir").join(name), place.at(&format!("link-{name}"))).unwrap();
        assert_eq!(fs::metadata(place.at(&format!("link-{name}"))).unwrap().nlink(), 2);
    }
    fs::rename(place.at("dir"), place.at("moved")).unwrap();
    for name in NAMES {
        assert_eq!(fs::read_to_string(place.at("moved").join(name)).unwrap(), name);
        assert!(!place.at(name).exists());
    }
    std::os::unix::fs::symlink("moved/a.d8", place.at("symlink")).unwrap();
    assert_eq!(fs::read_to_string(place.at("symlink")).unwrap(), "a.d8");
    assert_eq!(fs::read_link(place.at("symlink")).unwrap().to_str(), Some("moved/a.d8"));
    assert!(fs::remove_dir(place.at("moved")).is_err());
    let mut names: Vec<_> = fs::read_dir(place.home())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["link-a.d4", "link-a.d8", "link-a.pass", "link-a.redo", "moved", "symlink"]);
    fs::remove_dir_all(place.at("moved")).unwrap();
    for name in NAMES {
        assert_eq!(fs::read_to_string(place.at(&format!("link-{name}"))).unwrap(), name);
    }
    place.remount();
    for name in NAMES {
        assert_eq!(fs::read_to_string(place.at(&format!("link-{name}"))).unwrap(), name);
    }
}

#[test]
fn tiersmiths_own_names_are_not_to_be_seen_or_made() {
    if skipped("tiersmiths_own_names_are_not_to_be_seen_or_made") {
        return;
    }
    let place = Place::new(8);
    for name in tiersmith_store::home::RESERVED {
        assert!(!place.at(name).exists());
        assert!(fs::write(place.at(name), "x").is_err());
        assert!(fs::create_dir(place.at(name)).is_err());
        fs::write(place.at("other"), "x").unwrap();
        assert!(fs::rename(place.at("other"), place.at(name)).is_err());
    }
    fs::create_dir(place.at("dir")).unwrap();
    fs::write(place.at("dir/.tiersmith"), "below it is a name like any other").unwrap();
    assert_eq!(fs::read_dir(place.home()).unwrap().count(), 2);
}

#[test]
fn an_open_file_outlives_its_name() {
    if skipped("an_open_file_outlives_its_name") {
        return;
    }
    let place = Place::new(8);
    for name in NAMES {
        let mut file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(place.at(name))
            .unwrap();
        file.write_all(&bytes(50_000, 7)).unwrap();
        fs::remove_file(place.at(name)).unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0, "{name}");
        file.write_all(b"more").unwrap();
        file.set_len(50_002).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640, "{name}");
        assert_eq!(file.metadata().unwrap().len(), 50_002, "{name}");
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        let mut expected = bytes(50_000, 7);
        expected.extend(b"mo");
        assert_eq!(read, expected, "{name}");
        // The name is free, and the inode number of the old file must not lead to it.
        fs::write(place.at(name), "new").unwrap();
        assert_eq!(fs::read_to_string(place.at(name)).unwrap(), "new", "{name}");
        assert_eq!(file.metadata().unwrap().len(), 50_002, "{name}");
    }
}

#[test]
fn a_mount_in_use_is_not_unmounted_and_says_who_uses_it() {
    if skipped("a_mount_in_use_is_not_unmounted_and_says_who_uses_it") {
        return;
    }
    let place = Place::plain(8, Options::default());
    let mounted = tiersmith_mount::mount(place.attach(), &place.home(), &place.options).unwrap();
    let file = fs::File::create(place.at("a.d8")).unwrap();
    let (mounted, error) = mounted.unmount().unwrap_err();
    assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
    assert!(error.to_string().contains("nothing is lost"), "{error}");
    assert!(!mounted.has_ended());
    file.write_all_at(b"still there", 0).unwrap();
    drop(file);
    let mut left = Some(mounted);
    place::until("the file to be closed", || match left.take().unwrap().unmount() {
        Ok(home) => {
            home.detach().unwrap();
            true
        }
        Err((mounted, _)) => {
            left = Some(mounted);
            false
        }
    });
    assert_eq!(fs::read_to_string(place.at("a.d8")).unwrap(), "still there");
}

#[test]
fn a_mount_that_somebody_else_took_away_has_ended() {
    if place::skipped_unless_root("a_mount_that_somebody_else_took_away_has_ended") {
        return;
    }
    let mut place = Place::new(8);
    fs::write(place.at("a.d8"), "x").unwrap();
    assert!(!is_dead(&place.home()));
    assert!(clear_dead(&place.home()).is_err(), "a mount that lives is left alone");
    place::until("the mount to be free", || {
        rustix::mount::unmount(place.home(), rustix::mount::UnmountFlags::empty()).is_ok()
    });
    place.mounted().wait();
    assert!(place.mounted().has_ended());
    place.detach();
    assert_eq!(fs::read_to_string(place.at("a.d8")).unwrap(), "x");
}

#[test]
fn the_report_says_what_is_in_use_and_why_not_more() {
    if skipped("the_report_says_what_is_in_use_and_why_not_more") {
        return;
    }
    let options = Options { sync_on_write: true, threads: 3, ..Options::default() };
    let place = Place::with(8, options);
    let report = place.mounted().report();
    assert_ne!(report.transport, Transport::Auto);
    assert!(!report.fsync_reaches_server);
    assert!(!report.passthrough && report.passthrough_because.is_some());
    assert!(report.threads >= 3);
}

#[test]
fn times_from_before_and_beyond_any_calendar_end_no_thread() {
    if skipped("times_from_before_and_beyond_any_calendar_end_no_thread") {
        return;
    }
    let place = Place::new(8);
    for name in NAMES {
        let file = fs::File::create(place.at(name)).unwrap();
        for sec in [i64::MIN, i64::MIN + 1, -1, -2, 0, i64::MAX] {
            for nsec in [0, 999_999_999] {
                let at = rustix::fs::Timespec { tv_sec: sec, tv_nsec: nsec };
                let times = rustix::fs::Timestamps { last_access: at, last_modification: at };
                // Home may refuse what it cannot hold; nothing may end.
                let _ = rustix::fs::futimens(&file, &times);
                file.metadata().unwrap();
            }
        }
        let at = rustix::fs::Timespec { tv_sec: -2, tv_nsec: 500_000_000 };
        let times = rustix::fs::Timestamps { last_access: at, last_modification: at };
        rustix::fs::futimens(&file, &times).unwrap();
        let found = file.metadata().unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec()), (-2, 500_000_000), "{name}");
        assert_eq!((found.atime(), found.atime_nsec()), (-2, 500_000_000), "{name}");
    }
}

#[test]
fn a_temporary_file_that_gets_a_lasting_name_is_whole_there() {
    if skipped("a_temporary_file_that_gets_a_lasting_name_is_whole_there") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("db");
    fs::create_dir(&at).unwrap();
    let text = "description = \"of this test\"\n[default]\nclass = \"pass\"\nblock_size = 4096\n\
                [[rule]]\nfiles = [\"**/*.tmp\"]\nclass = \"pass\"\nblock_size = 4096\ntemporary = \
                true\nwhy = \"test\"\n";
    let profile = tiersmith_store::Profile::parse("test", text).unwrap();
    assert!(profile.is_temporary("a.tmp".as_ref()) && !profile.is_temporary("a".as_ref()));
    let medium = tiersmith_store::Medium::Emulated;
    let spec = tiersmith_store::TierSpec::new("fast", dir.path().join("fast"), medium, 8 << 20);
    let options = tiersmith_store::Options { profile: Some(profile), ..Default::default() };
    let home = tiersmith_store::attach(&at, &[spec], options).unwrap();
    let synced = Options { sync_on_write: true, ..Options::default() };
    let mut left = Some(tiersmith_mount::mount(home, &at, &synced).unwrap());
    for name in ["open", "closed", "linked", "exchanged"] {
        let (from, to) = (at.join(format!("{name}.tmp")), at.join(name));
        let file = fs::File::create(&from).unwrap();
        file.write_all_at(b"before", 0).unwrap();
        let file = if name == "closed" { None } else { Some(file) };
        match name {
            "linked" => fs::hard_link(&from, &to).unwrap(),
            "exchanged" => {
                fs::write(&to, "other").unwrap();
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &to, rustix::fs::CWD, &from, flags)
                    .unwrap();
            }
            _ => fs::rename(&from, &to).unwrap(),
        }
        if let Some(file) = file {
            file.write_all_at(b"after.", 0).unwrap();
        }
        assert_eq!(
            fs::read_to_string(&to).unwrap(),
            if name == "closed" { "before" } else { "after." },
            "{name}"
        );
    }
    place::until("the mount to be free", || match left.take().unwrap().unmount() {
        Ok(home) => {
            home.detach().unwrap();
            true
        }
        Err((mounted, _)) => {
            left = Some(mounted);
            false
        }
    });
    assert_eq!(fs::read_to_string(at.join("open")).unwrap(), "after.");
}

//! A mount without atomic pages: the kernel keeps what is written until it is synced, and the
//! directory of lent redo has a connection of its own.

use crate::daemon::{Daemon, WRITE_BACK};
use crate::place::{Place, skipped, skipped_unless_root, until};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tiersmith_mount::Options;

const BLOCK: usize = 8192;

fn options() -> Options {
    Options { atomic_pages: false, sync_on_write: true, ..Options::default() }
}

/// Mounted, with the directory `wal`.
fn place() -> Place {
    let mut place = Place::plain(8, options());
    fs::create_dir(place.at("wal")).unwrap();
    place.mount();
    place
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

fn made(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Requests of a kind so far.
fn asked(place: &Place, kind: &str) -> u64 {
    let requests = place.mounted().report().requests;
    requests.iter().find(|(name, _)| name == kind).map_or(0, |(_, count)| *count)
}

#[test]
fn what_is_written_stays_in_the_page_cache_until_it_is_synced() {
    if skipped("a mount that writes back") {
        return;
    }
    let mut place = place();
    assert!(!place.mounted().report().atomic_pages);
    let file = made(&place.at("table.d8"));
    let before = asked(&place, "write");
    for n in 0..100 {
        file.write_all_at(&[n; BLOCK], u64::from(n % 10) * BLOCK as u64).unwrap();
        assert!(file.metadata().unwrap().len() >= BLOCK as u64);
    }
    let written = asked(&place, "write") - before;
    assert!(written < 50, "{written} of 100 writes were sent at once");
    file.sync_all().unwrap();
    assert!(asked(&place, "fsync") > 0);
    // What is synced is in the store, whoever looks there.
    let stored =
        place.mounted().attached().open_found("table.d8", tiersmith_store::OpenMode::READ).unwrap();
    let mut bytes = vec![0; BLOCK];
    assert_eq!(stored.read(9 * BLOCK as u64, &mut bytes).unwrap(), BLOCK);
    assert!(bytes.iter().all(|b| *b == 99));
    drop((file, stored));
    place.remount();
    let again = fs::read(place.at("table.d8")).unwrap();
    assert!(again.chunks(BLOCK).zip(90..).all(|(block, n)| block.iter().all(|b| *b == n)));
    place.detach();
    assert_eq!(fs::read(place.at("table.d8")).unwrap(), again);
}

#[test]
fn pages_that_were_not_sent_yet_are_no_holes() {
    if skipped("holes of a mount that writes back") {
        return;
    }
    let mut place = place();
    let file = made(&place.at("sparse.d4"));
    file.set_len(1 << 20).unwrap();
    file.write_all_at(&[7; 4096], 512 << 10).unwrap();
    // Who copies by data and holes must find the page.
    let data = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap();
    let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(data)).unwrap();
    assert!(data <= 512 << 10 && hole >= (512 << 10) + 4096, "data at {data}, hole at {hole}");
    drop(file);
    place.detach();
}

#[test]
fn the_limits_on_pages_are_lifted_for_this_mount_alone() {
    if skipped_unless_root("the limits on dirty pages") {
        return;
    }
    let place = place();
    let limit = |path: PathBuf, name: &str| {
        let found =
            rustix::fs::statx(rustix::fs::CWD, &path, AtFlags::empty(), StatxFlags::empty())
                .unwrap();
        let device = format!("/sys/class/bdi/{}:{}", found.stx_dev_major, found.stx_dev_minor);
        fs::read_to_string(format!("{device}/{name}")).ok().map(|text| text.trim().to_owned())
    };
    if let Some(why) = place.mounted().report().limits_because {
        assert!(why.contains("cannot be written"), "{why}");
        return eprintln!("skipped: the limits on dirty pages, because {why}");
    }
    assert_eq!(limit(place.home(), "strict_limit").unwrap(), "0");
    assert_eq!(limit(place.home(), "max_ratio").unwrap(), "100");
    assert_eq!(limit(place.at("wal"), "strict_limit").unwrap(), "1");
    let other = Place::new(8);
    assert_eq!(limit(other.home(), "strict_limit").unwrap(), "1");
    assert_ne!(limit(other.home(), "max_ratio").unwrap(), "100");
}

#[test]
fn redo_has_a_directory_of_its_own_and_all_is_one_tree_again_after_detach() {
    if skipped_unless_root("two connections") {
        return;
    }
    let mut place = place();
    let report = place.mounted().report();
    assert_eq!(report.redo_at.as_deref(), Some(Path::new("wal")), "{report:?}");
    fs::write(place.at("wal/new.redo"), vec![1; 64 << 10]).unwrap();
    fs::rename(place.at("wal/new.redo"), place.at("wal/0.seg")).unwrap();
    let lends = || {
        drop(OpenOptions::new().write(true).open(place.at("wal/0.seg")).unwrap());
        place
            .mounted()
            .attached()
            .files()
            .iter()
            .any(|f| f.lent && f.path == Path::new("wal/0.seg"))
    };
    if report.lends && place.mounted().attached().stats().lending.refused.is_none() {
        until("the segment to be lent", lends);
    } else {
        eprintln!("skipped: that redo is lent, because {report:?}");
    }
    fs::write(place.at("a.d8"), vec![2; BLOCK]).unwrap();
    // Two file systems: as for a WAL directory on another disk.
    let across = Some(Errno::XDEV.raw_os_error());
    assert_eq!(errno(fs::rename(place.at("a.d8"), place.at("wal/a.d8"))), across);
    assert_eq!(errno(fs::rename(place.at("wal/0.seg"), place.at("0.seg"))), across);
    assert_eq!(errno(fs::hard_link(place.at("wal/0.seg"), place.at("0.seg"))), across);
    // A mount point keeps its name.
    let busy = Some(Errno::BUSY.raw_os_error());
    assert_eq!(errno(fs::rename(place.at("wal"), place.at("wal2"))), busy);
    assert_eq!(errno(fs::remove_dir(place.at("wal"))), busy);
    fs::create_dir_all(place.at("wal/sub/deep")).unwrap();
    fs::write(place.at("wal/sub/deep/x.d4"), b"deep").unwrap();
    fs::rename(place.at("wal/sub"), place.at("wal/sub2")).unwrap();
    let listed = |dir: PathBuf| {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(listed(place.at("wal")), ["0.seg", "sub2"]);
    assert_eq!(listed(place.home()), ["a.d8", "wal"]);
    place.remount();
    assert_eq!(fs::read(place.at("wal/0.seg")).unwrap(), vec![1; 64 << 10]);
    assert_eq!(fs::read(place.at("wal/sub2/deep/x.d4")).unwrap(), b"deep");
    place.detach();
    assert_eq!(fs::read(place.at("wal/0.seg")).unwrap(), vec![1; 64 << 10]);
    assert_eq!(fs::read(place.at("wal/sub2/deep/x.d4")).unwrap(), b"deep");
    assert_eq!(fs::read(place.at("a.d8")).unwrap(), vec![2; BLOCK]);
    fs::rename(place.at("a.d8"), place.at("wal/a.d8")).unwrap();
}

#[test]
fn the_redo_is_not_reached_past_its_own_connection() {
    if skipped_unless_root("two connections") {
        return;
    }
    let place = place();
    fs::write(place.at("wal/0.seg"), vec![1; 4096]).unwrap();
    // A copy of the outer mount alone, as a container may have.
    let tree = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let copy = match rustix::mount::open_tree(rustix::fs::CWD, place.home(), tree) {
        Ok(copy) => copy,
        Err(e) => {
            return eprintln!("skipped: a copy of a mount, because the system refuses one: {e}");
        }
    };
    let open = |path: &str, flags| {
        rustix::fs::openat(&copy, path, flags | OFlags::CLOEXEC, Mode::RWXU).err()
    };
    assert_eq!(open("wal/0.seg", OFlags::RDONLY), Some(Errno::BUSY));
    assert_eq!(open("wal/1.seg", OFlags::RDWR | OFlags::CREATE), Some(Errno::BUSY));
    assert_eq!(open("wal", OFlags::RDONLY | OFlags::DIRECTORY), Some(Errno::BUSY));
    assert_eq!(rustix::fs::unlinkat(&copy, "wal", AtFlags::REMOVEDIR), Err(Errno::BUSY));
    assert_eq!(rustix::fs::renameat(&copy, "wal", &copy, "wal2"), Err(Errno::BUSY));
    assert_eq!(open("other.d8", OFlags::RDWR | OFlags::CREATE), None);
    assert_eq!(fs::read(place.at("wal/0.seg")).unwrap(), vec![1; 4096]);
}

#[test]
fn what_is_in_use_stays_mounted_as_a_whole() {
    if skipped_unless_root("two connections") {
        return;
    }
    for held in ["a.d8", "wal/0.seg"] {
        let mut place = place();
        let file = made(&place.at(held));
        file.write_all_at(&[3; BLOCK], 0).unwrap();
        let options = place.options.clone();
        let (mounted, e) = place.take().unmount().unwrap_err();
        assert!(e.to_string().contains("cannot unmount"), "{e}");
        // Both go on, also what was shut for a moment.
        file.write_all_at(&[4; BLOCK], 0).unwrap();
        fs::write(place.at("wal/1.seg"), b"one").unwrap();
        fs::write(place.at("b.d8"), b"b").unwrap();
        assert!(!mounted.report().redo_gone, "{:?}", mounted.report());
        drop(file);
        place.put(mounted);
        place.options = options;
        place.detach();
        assert_eq!(fs::read(place.at(held)).unwrap(), [4; BLOCK]);
        assert_eq!(fs::read(place.at("wal/1.seg")).unwrap(), b"one");
    }
}

#[test]
fn what_was_synced_survives_a_killed_daemon_and_redo_every_write() {
    if skipped_unless_root("a killed daemon") {
        return;
    }
    let place = Place::plain(16, options());
    fs::create_dir(place.at("wal")).unwrap();
    let start = || {
        let environment = [(WRITE_BACK, "1")];
        Daemon::start_with(place.path(), place.tier_bytes, true, &environment)
    };
    for round in 1..=3_u8 {
        let mut daemon = start();
        let table = made(&place.at("table.d8"));
        let redo = made(&place.at("wal/0.redo"));
        for n in 0..20 {
            table.write_all_at(&[round; BLOCK], n * BLOCK as u64).unwrap();
            redo.write_all_at(&[round; 100], n * 100).unwrap();
        }
        table.sync_data().unwrap();
        // Not synced: old or new, and perhaps torn, after the daemon's end.
        table.write_all_at(&[round + 100; BLOCK], 0).unwrap();
        redo.write_all_at(&[round + 100; 100], 0).unwrap();
        daemon.kill();
        assert!(table.sync_data().is_err(), "pages that reach nobody are told of");
        drop((table, redo));
        daemon.clear();
        drop(daemon);
        let again = start();
        let bytes = fs::read(place.at("table.d8")).unwrap();
        assert_eq!(bytes.len(), 20 * BLOCK);
        assert!(bytes[..BLOCK].iter().all(|b| [round, round + 100].contains(b)));
        assert!(bytes[BLOCK..].iter().all(|b| *b == round), "a block that was synced is lost");
        let bytes = fs::read(place.at("wal/0.redo")).unwrap();
        assert!(bytes[..100].iter().all(|b| *b == round + 100), "a redo write was lost");
        drop(again);
    }
}

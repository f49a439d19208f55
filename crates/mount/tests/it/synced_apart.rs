//! A mount with atomic pages whose redo alone is durable on return: its directory has a connection
//! of its own, and all other names wait for a sync.

use crate::daemon::{Daemon, SYNC_IN_REDO};
use crate::place::{Place, skipped_unless_root, until};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use tiersmith_mount::Options;
use tiersmith_store::OpenMode;

const BLOCK: usize = 8192;

fn options() -> Options {
    Options { sync_on_write: true, sync_in_redo_only: true, ..Options::default() }
}

fn made(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Requests of a kind so far.
fn asked(place: &Place, kind: &str) -> u64 {
    let requests = place.mounted().report().requests;
    requests.iter().find(|(name, _)| name == kind).map_or(0, |(_, count)| *count)
}

/// Whether the name of a file is durable, by what the store knows.
fn is_settled(place: &Place, name: &str) -> bool {
    let file = place.mounted().attached().open_found(name, OpenMode::READ).unwrap();
    file.is_settled()
}

/// Makes files until one of them waits for a sync: the background may be faster than this test.
fn one_waits(place: &Place, name: impl Fn(u32) -> String) {
    let mut n = 0;
    until("a name that waits for a sync", || {
        n += 1;
        drop(made(&place.at(&name(n))));
        !is_settled(place, &name(n))
    });
}

#[test]
fn names_wait_for_a_sync_and_redo_is_durable_on_return() {
    if skipped_unless_root("two connections") {
        return;
    }
    let mut place = Place::plain(8, options());
    fs::create_dir(place.at("wal")).unwrap();
    place.mount();
    let report = place.mounted().report();
    assert_eq!(report.redo_at.as_deref(), Some(Path::new("wal")), "{report:?}");
    assert!(report.atomic_pages && report.fsync_reaches_server, "{report:?}");
    // Pages are atomic, so each write reaches the store at once.
    let table = made(&place.at("table.d8"));
    let before = asked(&place, "write");
    for n in 0..10 {
        table.write_all_at(&[n; BLOCK], 0).unwrap();
    }
    assert_eq!(asked(&place, "write") - before, 10);
    one_waits(&place, |n| format!("{n}.d8"));
    let before = asked(&place, "fsync");
    table.sync_all().unwrap();
    assert_eq!(asked(&place, "fsync") - before, 1);
    assert!(is_settled(&place, "table.d8"));
    let redo = made(&place.at("wal/0.redo"));
    assert!(is_settled(&place, "wal/0.redo"), "no sync of it will come");
    redo.write_all_at(&[1; 100], 0).unwrap();
    redo.sync_all().unwrap();
    // The kernel asks once, to learn that it need not.
    let before = asked(&place, "fsync");
    redo.sync_all().unwrap();
    assert_eq!(asked(&place, "fsync") - before, 0);
    drop((table, redo));
    place.detach();
    assert_eq!(fs::read(place.at("table.d8")).unwrap(), [9; BLOCK]);
    assert_eq!(fs::read(place.at("wal/0.redo")).unwrap(), [1; 100]);
}

#[test]
fn where_no_redo_is_yet_all_names_wait_until_the_next_mount() {
    if skipped_unless_root("two connections") {
        return;
    }
    let mut place = Place::with(8, options());
    let report = place.mounted().report();
    assert!(report.redo_at.is_none() && report.fsync_reaches_server, "{report:?}");
    fs::create_dir(place.at("wal")).unwrap();
    one_waits(&place, |n| format!("wal/{n}.redo"));
    // Redo is lent there as well, if the kernel takes files.
    fs::write(place.at("wal/0.seg"), vec![1; 64 << 10]).unwrap();
    let lends = || {
        drop(OpenOptions::new().write(true).open(place.at("wal/0.seg")).unwrap());
        let files = place.mounted().attached().files();
        files.iter().any(|f| f.lent && f.path == Path::new("wal/0.seg"))
    };
    if report.lends && place.mounted().attached().stats().lending.refused.is_none() {
        until("the segment to be lent", lends);
    }
    place.remount();
    assert_eq!(place.mounted().report().redo_at.as_deref(), Some(Path::new("wal")));
    assert_eq!(fs::read(place.at("wal/0.seg")).unwrap(), vec![1; 64 << 10]);
    place.detach();
    assert_eq!(fs::read(place.at("wal/0.seg")).unwrap(), vec![1; 64 << 10]);
}

#[test]
fn every_write_survives_a_killed_daemon_inside_and_outside_of_the_redo() {
    if skipped_unless_root("a killed daemon") {
        return;
    }
    let place = Place::plain(16, options());
    fs::create_dir(place.at("wal")).unwrap();
    let start = || {
        let environment = [(SYNC_IN_REDO, "1")];
        Daemon::start_with(place.path(), place.tier_bytes, true, &environment)
    };
    for round in 1..=3_u8 {
        let mut daemon = start();
        // Made anew in each round, and never synced: a killed process loses no name.
        let names = [format!("{round}.d8"), format!("wal/{round}.redo"), format!("{round}.pass")];
        let files = names.clone().map(|name| made(&place.at(&name)));
        for file in &files {
            for n in 0..20 {
                file.write_all_at(&[round; BLOCK], n * BLOCK as u64).unwrap();
            }
        }
        fs::rename(place.at(&names[0]), place.at("table.d8")).unwrap();
        daemon.kill();
        drop(files);
        daemon.clear();
        drop(daemon);
        let again = start();
        for name in ["table.d8", &names[1], &names[2]] {
            assert_eq!(fs::read(place.at(name)).unwrap(), [round; 20 * BLOCK], "{name}");
        }
        assert!(fs::metadata(place.at(&names[0])).is_err());
        drop(again);
    }
}

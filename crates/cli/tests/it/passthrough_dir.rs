//! `--passthrough-dir`: WAL segments that the kernel writes, besides a tier on a block device.
//! Needs root, a loop device and a kernel that passes files through.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use crate::daemon::loops::{Loop, has};
use crate::daemon::{Site, can_mount, good, json, refused, text, tiersmith, wait_until};
use crate::raw_devices::SMALL;
use crate::volume::run;

/// Bytes of a segment here: it has its size from the beginning, which is what counts.
const SEGMENT: usize = 1 << 20;
const NAME: &str = "pg_wal/000000010000000000000001";

/// A home as PostgreSQL's with one segment, a loop device, and a directory on a disk.
fn place(what: &str) -> Option<(Site, Loop, PathBuf)> {
    if !can_mount(what) {
        return None;
    }
    let site = Site::postgres_like();
    fs::write(site.home.join(NAME), vec![1; SEGMENT]).unwrap();
    let device = Loop::new(&site, "disk", SMALL)?;
    let wal = site.path().join("wal");
    fs::create_dir(&wal).unwrap();
    Some((site, device, wal))
}

fn attach<'a>(site: &'a Site, device: &'a Loop, wal: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["attach", site.home_str(), "--fast", device.str()];
    arguments.extend(["--passthrough-dir", wal.to_str().unwrap()]);
    if !more.contains(&"--passthrough-max") {
        arguments.extend(["--passthrough-max", "16M"]);
    }
    arguments.extend(more);
    arguments
}

/// Whether the kernel passes files through here; if not, says so.
fn lends(live: &serde_json::Value) -> bool {
    if live["door"]["lends"] == true {
        return true;
    }
    let why = live["door"]["lends_why"].to_string();
    let known = ["only root may", "the kernel"];
    assert!(known.iter().any(|known| why.contains(known)), "{why}");
    println!("skipped: segments that the kernel writes, because {why}");
    false
}

#[test]
fn segments_that_the_kernel_writes_beside_a_device_are_found_again_or_missed_by_name() {
    let Some((site, device, wal)) = place("redo in a named directory") else { return };
    let attached = json(&good(&attach(&site, &device, &wal, &["--json"])));
    assert_eq!(attached["passthrough_dir"], wal.to_str().unwrap());
    assert_eq!(attached["passthrough_max_bytes"], 16 << 20);
    let live = site.live();
    if !lends(&live) {
        good(&["detach", site.home_str()]);
        assert_eq!(fs::read_dir(&wal).unwrap().count(), 0);
        return;
    }
    let own = fs::read_dir(&wal).unwrap().next().unwrap().unwrap().path();
    assert_eq!(live["lent"]["directories"][0], own.to_str().unwrap());
    let status = text(&good(&["status", site.home_str()]));
    assert!(status.contains("are lent to the kernel") && !status.contains("EMULATED"), "{status}");
    assert!(status.contains(&format!("in {}: it belongs", own.display())), "{status}");

    let segment = File::options().read(true).write(true).open(site.home.join(NAME)).unwrap();
    assert_eq!(site.live()["lent"]["files"], 1);
    segment.write_all_at(&[7; 8192], 16384).unwrap();
    segment.sync_data().unwrap();
    drop(segment);
    let mut newest = vec![1; SEGMENT];
    newest[16384..][..8192].fill(7);
    assert!(fs::read(site.home.join(NAME)).unwrap() == newest);
    site.kill_daemon(&attached);

    let check = text(&good(&["check", site.home_str(), "--cold"]));
    assert!(check.contains(own.to_str().unwrap()), "{check}");
    let status = tiersmith(&["status", site.home_str()]);
    assert!(text(&status).contains(own.to_str().unwrap()), "{}", text(&status));
    let before = device.hash();
    // Its file system is not mounted: a directory is there, and nothing of this tier in it.
    let moved = site.path().join("moved");
    fs::rename(&wal, &moved).unwrap();
    for command in ["attach", "detach"] {
        let said = refused(&[command, site.home_str()]);
        assert!(said.contains(wal.to_str().unwrap()) && said.contains("not mounted"), "{said}");
    }
    fs::create_dir(&wal).unwrap();
    let said = refused(&["attach", site.home_str()]);
    assert!(said.contains("is not there") && said.contains("--passthrough-dir"), "{said}");
    let said = text(&tiersmith(&["check", site.home_str(), "--cold"]));
    assert!(said.contains("its newest contents are nowhere else"), "{said}");
    assert_eq!(device.hash(), before, "a refusal has written");
    assert_eq!(fs::read_dir(&wal).unwrap().count(), 0);

    fs::remove_dir(&wal).unwrap();
    good(&["attach", site.home_str(), "--passthrough-dir", moved.to_str().unwrap()]);
    assert!(fs::read(site.home.join(NAME)).unwrap() == newest, "synced redo is lost");
    good(&["unmount", site.home_str()]);
    // The note has the new place; and redo that is lent no more is given back.
    good(&["attach", site.home_str(), "--lend", "no"]);
    wait_until("nothing is lent", || {
        drop(File::options().write(true).open(site.home.join(NAME)).unwrap());
        site.live()["lent"]["files"] == 0
    });
    good(&["unmount", site.home_str()]);
    good(&["attach", site.home_str(), "--lend", "auto"]);
    good(&["detach", site.home_str()]);
    assert!(fs::read(site.home.join(NAME)).unwrap() == newest, "synced redo is lost");
    assert_eq!(fs::read_dir(&moved).unwrap().count(), 0, "a detach has left something");
}

#[test]
fn a_full_file_system_lets_the_home_attach_and_one_that_is_read_only_or_not_mounted_is_named() {
    let Some((site, device, wal)) = place("redo on a full file system") else { return };
    let Some(disk) = Loop::new(&site, "wal-disk", 32) else { return };
    if !has("mkfs.ext4") || !run("mkfs.ext4", &["-q", "-F", "-m", "0", disk.str()]) {
        return println!("skipped: redo on a full file system, because ext4 cannot be made");
    }
    let at = wal.to_str().unwrap();
    if !run("mount", &[disk.str(), at]) {
        return println!("skipped: redo on a full file system, because it cannot be mounted");
    }
    let attached = json(&good(&attach(&site, &device, &wal, &["--json"])));
    let lent = lends(&site.live());
    let segment = File::options().write(true).open(site.home.join(NAME)).unwrap();
    segment.write_all_at(&[7; 8192], 16384).unwrap();
    segment.sync_data().unwrap();
    drop(segment);
    let mut newest = vec![1; SEGMENT];
    newest[16384..][..8192].fill(7);
    site.kill_daemon(&attached);
    let mut fill = File::create(wal.join("fill")).unwrap();
    while fill.write(&[1; 64 << 10]).and_then(|_| fill.sync_data()).is_ok() {}
    while fill.write(&[1; 512]).and_then(|_| fill.sync_data()).is_ok() {}
    drop(fill);

    let said = text(&good(&["attach", site.home_str()]));
    assert!(said.contains("make room") && said.contains(at), "{said}");
    assert!(fs::read(site.home.join(NAME)).unwrap() == newest, "synced redo is lost");
    assert!(!lent || site.live()["lent"]["files"] == 1);
    good(&["unmount", site.home_str()]);
    let before = device.hash();
    assert!(run("mount", &["-o", "remount,ro", at]));
    let said = refused(&["attach", site.home_str()]);
    assert!(said.contains(at) && said.contains("Read-only"), "{said}");
    assert!(run("umount", &[at]), "a refusal has kept it open");
    let said = refused(&["attach", site.home_str()]);
    assert!(said.contains(at) && said.contains("not mounted"), "{said}");
    assert_eq!(device.hash(), before, "a refusal has written");
    assert_eq!(fs::read_dir(&wal).unwrap().count(), 0, "a refusal has left something");
    assert!(run("mount", &[disk.str(), at]));
    good(&["detach", site.home_str()]);
    assert!(fs::read(site.home.join(NAME)).unwrap() == newest, "synced redo is lost");
    let left = fs::read_dir(&wal).unwrap().map(|entry| entry.unwrap().file_name());
    let mut left: Vec<_> = left.collect();
    left.sort();
    assert_eq!(left, ["fill", "lost+found"], "a detach has left something");
    assert!(run("umount", &[at]));
}

/// The plain file of the one segment that is lent, and whether each write to it is synced
/// (`chattr +S`).
fn plain(wal: &Path) -> (PathBuf, bool) {
    let only = |dir: &Path| fs::read_dir(dir).unwrap().next().unwrap().unwrap().path();
    let plain = only(&only(wal));
    let flags = rustix::fs::ioctl_getflags(File::open(&plain).unwrap()).unwrap();
    (plain, flags.contains(rustix::fs::IFlags::SYNC))
}

/// The kernel asks for no sync of a file then: without the attribute nothing would be durable.
#[test]
fn with_sync_on_write_each_segment_that_the_kernel_writes_is_synced_by_its_attribute() {
    let Some((site, device, wal)) = place("redo that each write syncs") else { return };
    let attached = json(&good(&attach(&site, &device, &wal, &["--json"])));
    assert_eq!(attached["door"]["sync_on_write"], false, "syncs reach the daemon");
    if !lends(&site.live()) {
        good(&["detach", site.home_str()]);
        return;
    }
    let write = |fill: u8| {
        let segment = File::options().write(true).open(site.home.join(NAME)).unwrap();
        segment.write_all_at(&[fill; 8192], 0).unwrap();
    };
    write(7);
    let (before, synced) = plain(&wal);
    assert!(!synced);
    good(&["unmount", site.home_str()]);
    good(&["attach", site.home_str(), "--sync-on-write", "always"]);
    assert_eq!(site.live()["door"]["sync_on_write"], true);
    // One that was lent before; then one that becomes lent.
    write(8);
    assert_eq!(plain(&wal), (before, true));
    good(&["unmount", site.home_str()]);
    good(&["attach", site.home_str(), "--lend", "no"]);
    wait_until("nothing is lent", || {
        drop(File::options().write(true).open(site.home.join(NAME)).unwrap());
        site.live()["lent"]["files"] == 0
    });
    good(&["unmount", site.home_str()]);
    good(&["attach", site.home_str(), "--lend", "auto"]);
    write(9);
    assert!(plain(&wal).1);
    good(&["detach", site.home_str()]);
    assert!(fs::read(site.home.join(NAME)).unwrap()[..8192] == [9; 8192]);
}

#[test]
fn a_device_without_a_named_directory_says_that_redo_goes_through_the_daemon() {
    let Some((site, device, wal)) = place("redo besides a device") else { return };
    let attached = good(&["attach", site.home_str(), "--fast", device.str()]);
    let status = text(&good(&["status", site.home_str()]));
    for said in [text(&attached), status] {
        let line = said.lines().find(|line| line.contains("redo files:")).unwrap();
        assert!(line.contains("through the daemon"), "{line}");
        let why = ["--passthrough-dir", "only root may"];
        assert!(why.iter().any(|why| line.contains(why)), "{line}");
    }
    let live = site.live();
    assert_eq!(live["door"]["lends"], false);
    assert!(live["door"]["lends_why"].as_str().is_some_and(|why| !why.is_empty()), "{live}");
    // One may be named later.
    good(&["unmount", site.home_str()]);
    let named = ["--passthrough-dir", wal.to_str().unwrap(), "--passthrough-max", "16M"];
    good(&[&["attach", site.home_str()][..], &named].concat());
    lends(&site.live());
    assert_eq!(fs::read_dir(&wal).unwrap().count(), 1);
    good(&["detach", site.home_str()]);
    assert_eq!(fs::read_dir(&wal).unwrap().count(), 0);
}

#[test]
fn a_directory_that_cannot_have_the_redo_is_refused_and_the_device_is_as_it_was() {
    let Some((site, device, wal)) = place("the refusal of a directory") else { return };
    let before = device.hash();
    let refuses = |directory: &Path, more: &[&str], why: &str| {
        let said = refused(&attach(&site, &device, directory, more));
        assert!(said.contains(why) && said.contains("Nothing was changed"), "{why}: {said}");
        assert_eq!(device.hash(), before, "{why}: a refusal has written");
        assert!(!site.home.join(".tiersmith").exists(), "{why}");
    };
    refuses(&site.path().join("nowhere"), &[], "there is no such directory");
    refuses(&site.home.join("PG_VERSION"), &[], "no directory");
    refuses(&site.home.join("pg_wal"), &[], "inside an attached home or its mount");
    // Somebody else's link: whoever owns it would say where root makes a directory.
    let theirs = site.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    symlink(&wal, theirs.join("way")).unwrap();
    lchown(theirs.join("way"), Some(4711), Some(4711)).unwrap();
    chown(&theirs, Some(4711), Some(4711)).unwrap();
    refuses(&theirs.join("way"), &[], "user 4711");
    refuses(&wal, &["--passthrough-max", "1000T"], "make room");
    refuses(&wal, &["--lend", "no"], "leave one out");
    if let Ok(memory) = tempfile::tempdir_in("/dev/shm") {
        refuses(memory.path(), &[], "in memory");
        assert_eq!(fs::read_dir(memory.path()).unwrap().count(), 0);
    }
    refuses(&wal, &["--ephemeral"], "keeps clean copies only");
    assert_eq!(fs::read_dir(&wal).unwrap().count(), 0, "a refusal has left something");
}

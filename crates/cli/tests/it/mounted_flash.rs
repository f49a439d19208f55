//! A tier in an ordinary file on a disk: attached as flash without a word, durable at fsync, there
//! after the daemon was killed.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;

use crate::daemon::{Site, blocks, can_mount, good, json, refused, text};
use serde_json::Value;

/// `statfs(2)`, as on x86-64 and aarch64.
const TMPFS: i64 = 0x0102_1994;

#[test]
fn an_ordinary_file_is_flash_and_what_was_synced_is_there_after_a_kill() {
    if !can_mount("a tier on flash") {
        return;
    }
    let site = Site::postgres_like();
    if rustix::fs::statfs(site.path()).unwrap().f_type == TMPFS {
        println!(
            "skipped: a tier on flash, because directories for temporary files are in memory here"
        );
        return;
    }
    let on_disk = ["attach", site.home_str(), "--fast", site.fast_str(), "--size", "32M", "--json"];
    let attached = json(&good(&on_disk));
    assert_eq!((&attached["flash"], &attached["emulated"]), (&true.into(), &false.into()));
    let table = File::options().read(true).write(true).open(site.home.join("base/1/1259")).unwrap();
    let newest = blocks(9, 8);
    table.write_all_at(&newest, 8192).unwrap();
    table.sync_data().unwrap();
    let mut segment = File::create(site.home.join("pg_wal/000000010000000000000001")).unwrap();
    segment.write_all(&[5; 70_000]).unwrap();
    segment.sync_all().unwrap();
    drop((table, segment));
    let status = text(&good(&["status", site.home_str()]));
    assert!(status.contains(": flash, ") && !status.contains("EMULATED"), "{status}");
    // Each disk below the tier, if the file system is one of a disk, has its line.
    let disks = json(&good(&["status", site.home_str(), "--json"]))["disks"].clone();
    for disk in disks.as_array().unwrap() {
        let line = format!("\n  disk {}: ", disk["disk"].as_str().unwrap());
        assert!(status.contains(&line), "{line} {status}");
    }
    let on_a_disk = tiersmith_block::Disk::below(&site.fast).len();
    assert_eq!(disks.as_array().unwrap().len(), on_a_disk, "{disks}");
    site.kill_daemon(&attached);
    // Its note says what it is.
    let again = json(&good(&["attach", site.home_str(), "--json"]));
    assert_eq!(again["flash"], true);
    let found = fs::read(site.home.join("base/1/1259")).unwrap();
    assert!(found[8192..][..newest.len()] == newest[..], "a synced block is lost");
    assert!(fs::read(site.home.join("pg_wal/000000010000000000000001")).unwrap() == [5; 70_000]);
    let _ = good(&["detach", site.home_str()]);
    site.assert_plain();
    assert!(fs::read(site.home.join("base/1/1259")).unwrap()[8192..][..newest.len()] == newest[..]);
}

#[test]
fn a_file_in_memory_is_refused_without_emulate_and_nothing_is_left_of_it() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return };
    if !can_mount("the refusal of a file in memory") {
        return;
    }
    let site = Site::postgres_like();
    let fast = memory.path().to_str().unwrap();
    let said = refused(&["attach", site.home_str(), "--fast", fast, "--size", "32M"]);
    assert!(said.contains("--emulate") && said.contains("Nothing was changed"), "{said}");
    assert_eq!(fs::read_dir(memory.path()).unwrap().count(), 0, "a file is left");
    site.assert_plain();
}

fn attach(site: &Site, more: &[&str]) -> Value {
    let mut arguments = vec!["attach", site.home_str(), "--json"];
    arguments.extend(more);
    json(&good(&arguments))
}

/// Writes blocks of a table, which `pin` makes copies of; what was written.
fn write_and_pin(site: &Site) -> Vec<u8> {
    let newest = blocks(9, 8);
    let file = File::options().read(true).write(true).open(site.home.join("base/1/1259")).unwrap();
    file.write_all_at(&newest, 8192).unwrap();
    file.sync_data().unwrap();
    drop(file);
    good(&["pin", site.home_str(), "base/1/1259"]);
    good(&["unpin", site.home_str(), "base/1/1259"]);
    newest
}

/// The tier has at least so many bytes of copies, and nothing else; how many.
fn assert_clean_copies(site: &Site, bytes: u64) -> u64 {
    let cached = site.live()["tiers"][0]["cached_bytes"].as_u64().unwrap();
    assert!(cached >= bytes, "{cached}");
    assert_eq!(site.live()["tiers"][0]["dirty_bytes"], 0);
    let status = text(&good(&["status", site.home_str()]));
    assert!(status.contains("tier fast (clean copies only): "), "{status}");
    cached
}

/// What it is stays, whatever is said.
fn refuses_another_kind(site: &Site) -> Value {
    good(&["unmount", site.home_str()]);
    for other in ["--ephemeral=no", "--emulate", "--volatile"] {
        let said = refused(&["attach", site.home_str(), other]);
        assert!(said.contains("as ephemeral") && said.contains("cannot change that"), "{said}");
    }
    attach(site, &["--ephemeral"])
}

#[test]
fn a_disk_that_is_emptied_at_a_stop_has_copies_that_a_kill_keeps_and_a_stop_costs_nothing_else() {
    if !can_mount("an ephemeral tier") {
        return;
    }
    let site = Site::postgres_like();
    if rustix::fs::statfs(site.path()).unwrap().f_type == TMPFS {
        println!(
            "skipped: an ephemeral tier, because directories for temporary files are in memory here"
        );
        return;
    }
    let said = refused(&[
        "attach",
        site.home_str(),
        "--fast",
        site.fast_str(),
        "--ephemeral",
        "--atomic-pages",
        "on",
    ]);
    assert!(said.contains("clean copies only"), "{said}");
    let attached = attach(&site, &["--fast", site.fast_str(), "--size", "32M", "--ephemeral"]);
    assert_eq!((&attached["ephemeral"], &attached["flash"]), (&true.into(), &false.into()));
    assert_eq!(attached["door"]["atomic_pages"], false);
    let member = attached["members"][0].as_str().unwrap().to_owned();
    let newest = write_and_pin(&site);
    let cached = assert_clean_copies(&site, newest.len() as u64);
    // Home has it already.
    let aside = attached["files"].as_str().unwrap();
    let at_home = fs::read(std::path::Path::new(aside).join("base/1/1259")).unwrap();
    assert!(at_home[8192..][..newest.len()] == newest[..]);

    site.kill_daemon(&attached);
    let again = attach(&site, &[]);
    assert_eq!(again["ephemeral"], true);
    assert_eq!(site.live()["tiers"][0]["cached_bytes"], cached, "it began cold");
    assert!(fs::read(site.home.join("base/1/1259")).unwrap()[8192..][..newest.len()] == newest[..]);

    site.kill_daemon(&refuses_another_kind(&site));
    // The disk is there, and of no use.
    let whole = fs::read(&member).unwrap();
    fs::write(&member, vec![1; whole.len()]).unwrap();
    let said = refused(&["attach", site.home_str()]);
    assert!(said.contains("nothing is lost: name another place"), "{said}");
    fs::write(&member, &whole).unwrap();
    let again = attach(&site, &[]);

    // The machine was stopped, and its disk is not mounted.
    site.kill_daemon(&again);
    fs::remove_file(&member).unwrap();
    let root = rustix::fs::stat("/").unwrap().st_dev;
    if rustix::fs::stat(site.path()).unwrap().st_dev == root {
        let said = refused(&["attach", site.home_str()]);
        assert!(
            said.contains("mount it, and try again") && said.contains("nothing is lost"),
            "{said}"
        );
        assert!(!std::path::Path::new(&member).exists());
    }
    let anew = attach(&site, &["--fast", site.fast_str()]);
    assert_eq!(anew["ephemeral"], true);
    assert_eq!(site.live()["tiers"][0]["cached_bytes"], 0);
    assert!(fs::read(site.home.join("base/1/1259")).unwrap()[8192..][..newest.len()] == newest[..]);

    // And for good: the plain directory needs no disk.
    site.kill_daemon(&anew);
    fs::remove_file(&member).unwrap();
    let detached = text(&good(&["detach", site.home_str()]));
    assert!(detached.contains("nothing is lost") && !detached.contains("LOST"), "{detached}");
    site.assert_plain();
    assert!(fs::read(site.home.join("base/1/1259")).unwrap()[8192..][..newest.len()] == newest[..]);
}

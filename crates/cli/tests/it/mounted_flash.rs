//! A tier in an ordinary file on a disk: attached as flash without a word, durable at fsync, there
//! after the daemon was killed.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;

use crate::daemon::{Site, blocks, can_mount, good, json, refused, text};

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

//! What the commands say of a tier whose medium lost something: how much is at stake, and nothing
//! that would make it worse.

use crate::daemon;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::daemon::{Site, can_mount, refused};
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;
use tiersmith_store::{Medium, OpenMode, Options, TierSpec, attach};

fn tiersmith(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiersmith"));
    command.args(arguments).current_dir(dir).stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8([&output.stdout[..], &output.stderr[..]].concat()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(output)))
}

/// A directory `data` with 200 blocks of 4 KiB that only `data.tier` has.
fn ahead_of_home(dir: &Path) {
    let home = dir.join("data");
    std::fs::create_dir(&home).unwrap();
    let spec = TierSpec::new("fast", dir.join("data.tier"), Medium::Emulated, 16 << 20);
    let options = Options { background: false, ..Options::default() };
    let attached = attach(&home, &[spec], options).unwrap();
    let file = attached.open("table", OpenMode::CREATE).unwrap();
    for block in 0..200 {
        file.write(block * 4096, &[7; 4096]).unwrap();
    }
    drop((file, attached));
}

/// What is done to the file of the tier.
enum Harm {
    CutTo(u64),
    Overwrite(&'static [(u64, usize)]),
}

fn harm(tier: &Path, harm: &Harm) {
    let file = OpenOptions::new().write(true).open(tier).unwrap();
    match harm {
        Harm::CutTo(len) => file.set_len(*len).unwrap(),
        Harm::Overwrite(ranges) => {
            for (at, len) in *ranges {
                file.write_all_at(&vec![0xee; *len], *at).unwrap();
            }
        }
    }
}

/// Nothing in it tells somebody to attach or detach a tier that is damaged.
fn assert_recommends_nothing(said: &str) {
    for advice in ["to use it", "to have it plain", "goes on", "nothing is lost"] {
        assert!(!said.contains(advice), "{advice:?} in {said}");
    }
    assert!(said.contains("Do not attach or detach before"), "{said}");
}

#[test]
fn status_of_a_damaged_tier_says_what_check_finds_and_how_many_blocks_are_at_stake() {
    const SLOTS: u64 = 12288 + 128 * 128 + 8 * 4096;
    for (name, what, counted, unknown) in [
        // The units end in the middle of the blocks; the map page before them is whole.
        ("blocks", Harm::CutTo((2 << 20) + (100 << 12)), Some((200, 100)), false),
        ("units", Harm::CutTo(64 << 10), None, true),
        ("all", Harm::CutTo(0), None, true),
        ("superblocks", Harm::Overwrite(&[(128, 64), (4096 + 128, 64)]), None, true),
        ("slot", Harm::Overwrite(&[(SLOTS, 8)]), Some((0, 0)), true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        ahead_of_home(dir);
        harm(&dir.join("data.tier"), &what);

        let status = tiersmith(dir, &["status", "data"]);
        let said = text(&status);
        assert_eq!(status.status.code(), Some(1), "{name}: {said}");
        assert_recommends_nothing(&said);
        assert!(said.contains("DAMAGED") && said.contains("`tiersmith check "), "{name}: {said}");
        assert!(!said.contains("0 of 0 frames"), "{name}: {said}");
        if let Some((dirty, lost @ 1..)) = counted {
            let stake =
                format!("{lost} of {dirty} blocks that exist only in the tier cannot be read");
            assert!(said.contains(&stake), "{name}: {said}");
        }
        assert_eq!(said.contains("cannot be counted"), unknown, "{name}: {said}");

        let status = tiersmith(dir, &["status", "data", "--json"]);
        assert_eq!(status.status.code(), Some(1), "{name}: {}", text(&status));
        let (told, check) = (json(&status), tiersmith(dir, &["check", "data", "--json"]));
        assert_eq!(check.status.code(), Some(1), "{name}: {}", text(&check));
        let check = json(&check);
        assert_eq!(told["sound"], false, "{name}: {told}");
        assert_eq!(told["counts"], check["counts"], "{name}: {told}");
        assert_eq!(told["findings"], check["findings"], "{name}");
        assert_eq!(told["stake_is_unknown"], unknown, "{name}: {told}");
        if let Some((dirty, lost)) = counted {
            assert_eq!(told["blocks_dirty"], dirty, "{name}: {told}");
            assert_eq!(told["dirty_lost"], lost, "{name}: {told}");
            assert_eq!(told["dirty_lost_bytes"], lost * 4096, "{name}: {told}");
        }
    }
}

/// Writes zeros over both superblock copies.
fn zero_superblocks(tier: &Path) {
    let file = OpenOptions::new().write(true).open(tier).unwrap();
    file.write_all_at(&[0; 12288], 0).unwrap();
}

#[test]
fn a_zeroed_tier_that_the_note_names_is_damaged_and_one_that_none_names_holds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ahead_of_home(dir);
    zero_superblocks(&dir.join("data.tier"));
    let moved = dir.join("moved.tier");
    std::fs::copy(dir.join("data.tier"), &moved).unwrap();
    for arguments in [
        &["check", "data"][..],
        &["check", "data", "--cold"],
        &["check", "data", "--fast", "moved.tier"],
    ] {
        let checked = tiersmith(dir, arguments);
        let said = text(&checked);
        assert_eq!(checked.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("the tier cannot be read"), "{arguments:?}: {said}");
        assert!(!said.contains("holds nothing yet"), "{arguments:?}: {said}");
    }
    let status = tiersmith(dir, &["status", "data"]);
    assert!(text(&status).contains("DAMAGED"), "{}", text(&status));
    assert_recommends_nothing(&text(&status));
    // What an attach leaves that ends before the tier is formatted: no note yet.
    std::fs::create_dir(dir.join("plain")).unwrap();
    let checked = tiersmith(dir, &["check", "plain", "--fast", "moved.tier"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    assert!(text(&checked).contains("holds nothing yet"), "{}", text(&checked));
}

#[test]
fn a_zeroed_tier_of_an_attached_database_is_damaged_and_before_it_is_formatted_it_holds_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let aside = dir.join("app.db-tiersmith");
    Connection::open(dir.join("app.db")).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    let attach = ["attach", "app.db", "--fast", "app.tier", "--size", "16M", "--emulate"];
    assert!(tiersmith(dir, &attach).status.success());
    let attachment = std::fs::read(aside.join("attachment")).unwrap();
    let (tier, whole) = (dir.join("app.tier"), std::fs::read(dir.join("app.tier")).unwrap());
    zero_superblocks(&tier);
    for arguments in [&["check", "app.db", "--cold"][..], &["check", "app.db"]] {
        let checked = tiersmith(dir, arguments);
        let said = text(&checked);
        assert_eq!(checked.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("the tier cannot be read"), "{arguments:?}: {said}");
    }
    let status = tiersmith(dir, &["status", "app.db"]);
    assert!(text(&status).contains("DAMAGED"), "{}", text(&status));
    std::fs::write(&tier, whole).unwrap();
    assert!(tiersmith(dir, &["detach", "app.db"]).status.success());
    // What an attach leaves that ends before the tier is formatted.
    std::fs::create_dir(&aside).unwrap();
    std::fs::write(aside.join("attachment"), attachment).unwrap();
    std::fs::hard_link(dir.join("app.db"), aside.join("db")).unwrap();
    let empty = std::fs::File::create(&tier).unwrap();
    empty.set_len(16 << 20).unwrap();
    let checked = tiersmith(dir, &["check", "app.db", "--cold"]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked));
    assert!(text(&checked).contains("holds nothing yet"), "{}", text(&checked));
}

#[test]
fn status_of_a_sound_tier_says_so_and_which_commands_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ahead_of_home(dir);
    let said = text(&tiersmith(dir, &["status", "data"]));
    assert!(said.contains("tiersmith attach") && said.contains("200 blocks dirty"), "{said}");
    let told = json(&tiersmith(dir, &["status", "data", "--json"]));
    assert_eq!(
        (&told["sound"], &told["dirty_lost"]),
        (&Value::from(true), &Value::from(0)),
        "{told}"
    );
}

/// The remedy for clean copies of a changed file is to attach: nothing in the tier is damaged.
#[test]
fn status_tells_a_home_that_was_changed_from_a_tier_that_is_damaged() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ahead_of_home(dir);
    let table = dir.join("data.tiersmith-home/home/table");
    std::fs::write(table, "changed").unwrap();
    let status = tiersmith(dir, &["status", "data"]);
    let said = text(&status);
    assert_eq!(status.status.code(), Some(1), "{said}");
    assert!(said.contains("NOT SOUND: 0 of 200 blocks that exist only in the tier"), "{said}");
    assert!(said.contains("the home file was changed behind the tier"), "{said}");
    assert!(
        said.contains("Do what the findings say before") && !said.contains("DAMAGED"),
        "{said}"
    );
}

#[test]
fn status_of_a_database_whose_tier_is_damaged_says_what_check_finds() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    tiersmith_sqlite::register().unwrap();
    let uri = format!(
        "file:{}?vfs=tiersmith&fast={}&size=16M&emulate=1",
        dir.join("app.db").display(),
        dir.join("app.tier").display()
    );
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(uri, flags).unwrap();
    connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x); BEGIN").unwrap();
    for n in 0..1000 {
        connection.execute("INSERT INTO t VALUES (zeroblob(?1))", [n]).unwrap();
    }
    connection.execute_batch("COMMIT").unwrap();
    drop(connection);
    harm(&dir.join("app.tier"), &Harm::CutTo(64 << 10));

    let status = tiersmith(dir, &["status", "app.db"]);
    let said = text(&status);
    assert_eq!(status.status.code(), Some(1), "{said}");
    assert!(said.contains("trouble: ") && said.contains("DAMAGED"), "{said}");
    assert!(said.contains("cannot be counted"), "{said}");
    assert_recommends_nothing(&said);
    let told = json(&tiersmith(dir, &["status", "app.db", "--json"]));
    assert_eq!(told["check"]["sound"], false, "{told}");
    assert!(told["check"]["findings"].as_array().unwrap().len() > 1, "{told}");
}

#[test]
fn a_daemon_whose_tier_is_truncated_names_member_file_and_block_in_its_log_before_it_ends() {
    if !can_mount("a truncated tier beneath a daemon") {
        return;
    }
    let site = Site::postgres_like();
    let attached = site.attach(&[]);
    let file = OpenOptions::new().write(true).open(site.home.join("base/1/1259")).unwrap();
    file.write_all_at(&[0xd7; 8192], 5 * 8192).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let tier = Path::new(attached["members"][0].as_str().unwrap());
    let log = Path::new(attached["log"].as_str().unwrap());
    let bytes = std::fs::read(tier).unwrap();
    let at = bytes.chunks(4096).position(|frame| frame == [0xd7; 4096]).unwrap() * 4096;
    harm(tier, &Harm::CutTo(at as u64));

    // Detaching without a look at it by a program: an error, and the daemon goes on.
    let said = refused(&["detach", site.home_str()]);
    for part in ["block 5 of base/1/1259", "exists only there", "--skip-unreadable"] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
    let status = tiersmith(site.path(), &["status", site.home_str(), "--json"]);
    assert_eq!(status.status.code(), Some(1), "{}", text(&status));
    let live = &json(&status)["live"];
    assert_eq!(live["at"], attached["at"]);
    assert!(
        live["background_error"].as_str().unwrap().contains("block 5 of base/1/1259"),
        "{live}"
    );

    // The kernel gives what it has in its page cache without asking; a file opened past it does
    // not.
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "1");
    let mut dd = Command::new("dd");
    dd.arg(format!("if={}", site.home.join("base/1/1259").display()));
    let read =
        dd.args(["of=/dev/null", "bs=8192", "skip=5", "count=1", "iflag=direct"]).output().unwrap();
    assert!(!read.status.success(), "a block that is lost was read: {}", text(&read));
    let pid = attached["pid"].as_u64().unwrap();
    daemon::wait_until("the daemon has ended", || !daemon::is_alive(pid));
    let said = std::fs::read_to_string(log).unwrap();
    assert!(
        said.contains(&format!("tiersmith: SIGBUS at byte {at} of {}: ", tier.display())),
        "{said}"
    );
    assert!(said.contains("it is in block 5 of base/1/1259 (Dirty: "), "{said}");

    let status = tiersmith(site.path(), &["status", site.home_str()]);
    assert_eq!(status.status.code(), Some(1), "{}", text(&status));
    assert_recommends_nothing(&text(&status));
    let said = refused(&["attach", site.home_str()]);
    assert!(said.contains("it was cut short"), "{said}");
}

/// A disk gives an error where mapped memory ends the process.
#[test]
fn a_daemon_whose_disk_lost_blocks_reads_from_home_what_home_has_and_names_the_others() {
    /// `statfs(2)`, as on x86-64 and aarch64.
    const TMPFS: i64 = 0x0102_1994;
    if !can_mount("a disk that lost blocks beneath a daemon") {
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
    let attached = json(&tiersmith(site.path(), &on_disk));
    let table = site.home.join("base/1/1259");
    let file = OpenOptions::new().read(true).write(true).open(&table).unwrap();
    let flushed = || assert!(tiersmith(site.path(), &["flush", site.home_str()]).status.success());
    file.write_all_at(&[0xd1; 8192], 4 * 8192).unwrap();
    file.sync_all().unwrap();
    flushed();
    let tier = Path::new(attached["members"][0].as_str().unwrap());
    let position = |byte: u8| {
        let bytes = std::fs::read(tier).unwrap();
        bytes.chunks(4096).position(|frame| frame == [byte; 4096]).unwrap() * 4096
    };
    let clean = position(0xd1);
    file.write_all_at(&[0xd7; 8192], 5 * 8192).unwrap();
    file.sync_all().unwrap();
    let dirty = position(0xd7);
    let (whole, cut) = (std::fs::read(tier).unwrap(), clean.min(dirty));
    harm(tier, &Harm::CutTo(cut as u64));

    let read = |block: u64| {
        let _ = std::fs::write("/proc/sys/vm/drop_caches", "1");
        let mut dd = Command::new("dd");
        dd.arg(format!("if={}", table.display())).arg(format!("skip={block}"));
        dd.args(["bs=8192", "count=1", "iflag=direct", "status=none"]).output().unwrap()
    };
    assert!(read(4).stdout == [0xd1; 8192], "{}", text(&read(4)));
    assert!(!read(5).status.success(), "a block that is lost was read");
    let status = tiersmith(site.path(), &["status", site.home_str()]);
    let said = text(&status);
    assert_eq!(status.status.code(), Some(1), "{said}");
    assert!(
        said.contains("is nowhere else: block 5 of base/1/1259 (bytes 40960 to 49152)"),
        "{said}"
    );
    assert!(!said.contains("nothing is lost"), "{said}");
    let log = std::fs::read_to_string(attached["log"].as_str().unwrap()).unwrap();
    assert!(log.contains("the tier's copy of block 4 of base/1/1259"), "{log}");
    assert!(log.contains("cannot read block 5 of base/1/1259"), "{log}");
    // Restored from a copy, it goes home and is no trouble any more.
    OpenOptions::new()
        .write(true)
        .open(tier)
        .unwrap()
        .write_all_at(&whole[cut..], cut as u64)
        .unwrap();
    flushed();
    let status = tiersmith(site.path(), &["status", site.home_str()]);
    assert!(status.status.success(), "{}", text(&status));
    drop(file);
    let detached = tiersmith(site.path(), &["detach", site.home_str()]);
    assert!(detached.status.success(), "{}", text(&detached));
    site.assert_plain();
    let plain = std::fs::read(&table).unwrap();
    assert!(plain[4 * 8192..][..8192] == [0xd1; 8192] && plain[5 * 8192..][..8192] == [0xd7; 8192]);
}

#[test]
fn a_scrub_of_a_mounted_home_repairs_what_home_has_and_names_what_is_lost() {
    if !can_mount("a scrub of a mounted home") {
        return;
    }
    let site = Site::postgres_like();
    let attached = site.attach(&[]);
    let home = site.home_str();
    let file = OpenOptions::new().write(true).open(site.home.join("base/1/1259")).unwrap();
    let flushed = || assert!(tiersmith(site.path(), &["flush", home]).status.success());
    file.write_all_at(&[0xd1; 8192], 4 * 8192).unwrap();
    file.sync_all().unwrap();
    flushed();
    file.write_all_at(&[0xd7; 8192], 5 * 8192).unwrap();
    file.sync_all().unwrap();
    let sound = tiersmith(site.path(), &["scrub", home, "--rate", "0"]);
    assert!(
        sound.status.success() && text(&sound).contains("all are what was written"),
        "{}",
        text(&sound)
    );

    let member = Path::new(attached["members"][0].as_str().unwrap());
    let tier = OpenOptions::new().read(true).write(true).open(member).unwrap();
    let bytes = std::fs::read(member).unwrap();
    let position = |byte: u8| {
        bytes.chunks(4096).position(|frame| frame == [byte; 4096]).unwrap() as u64 * 4096
    };
    let (clean, dirty) = (position(0xd1), position(0xd7));
    tier.write_all_at(&[0xd0], clean + 100).unwrap();
    tier.write_all_at(&[0xd0], dirty + 5000).unwrap();
    let scrubbed = tiersmith(site.path(), &["scrub", home, "--rate", "0"]);
    let said = text(&scrubbed);
    assert_eq!(scrubbed.status.code(), Some(1), "{said}");
    assert!(
        said.contains("1 clean copies were not what was written")
            && said.contains("1 blocks are lost"),
        "{said}"
    );

    assert_status_and_log_name_the_blocks(&site, &attached);
    drop(file);
    let said = refused(&["detach", home]);
    assert!(said.contains("block 5 of base/1/1259") && said.contains("checksum"), "{said}");

    // Restored from a copy.
    tier.write_all_at(&[0xd7], dirty + 5000).unwrap();
    flushed();
    let again = json(&tiersmith(site.path(), &["scrub", home, "--rate", "0", "--json"]));
    assert_eq!(
        (&again["scrub"]["whole"], &again["scrub"]["lost"]),
        (&true.into(), &0.into()),
        "{again}"
    );
    let stopped = tiersmith(site.path(), &["scrub", home, "--stop"]);
    assert!(text(&stopped).contains("no scrub ran"), "{}", text(&stopped));
    let detached = tiersmith(site.path(), &["detach", home]);
    assert!(detached.status.success(), "{}", text(&detached));
    site.assert_plain();
    let plain = std::fs::read(site.home.join("base/1/1259")).unwrap();
    assert!(plain[4 * 8192..][..8192] == [0xd1; 8192] && plain[5 * 8192..][..8192] == [0xd7; 8192]);
}

fn assert_status_and_log_name_the_blocks(site: &Site, attached: &Value) {
    let home = site.home_str();
    let status = tiersmith(site.path(), &["status", home]);
    let said = text(&status);
    assert_eq!(status.status.code(), Some(1), "{said}");
    for part in [
        "checksums: blocks of data files have them; redo has none",
        "scrub:     ended",
        "repaired:  1 clean copies",
        "is nowhere else: block 5 of base/1/1259",
    ] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
    let live = &json(&tiersmith(site.path(), &["status", home, "--json"]))["live"];
    assert_eq!(
        (&live["repaired_blocks"], &live["scrub"]["lost"]),
        (&1.into(), &1.into()),
        "{live}"
    );
    let log = std::fs::read_to_string(attached["log"].as_str().unwrap()).unwrap();
    assert!(log.contains("the tier's copy of block 4 of base/1/1259"), "{log}");
    assert!(log.contains("cannot read block 5 of base/1/1259"), "{log}");
}

#[test]
fn skipping_unreadable_blocks_where_there_are_none_is_a_plain_detach_and_is_for_directories() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    ahead_of_home(dir);
    let detached = tiersmith(dir, &["detach", "data", "--skip-unreadable", "--json"]);
    assert!(detached.status.success(), "{}", text(&detached));
    assert_eq!(json(&detached)["lost"], Value::Array(Vec::new()));
    assert_eq!(std::fs::read(dir.join("data/table")).unwrap(), [7; 200 * 4096]);
    std::fs::write(dir.join("app.db"), "").unwrap();
    let detached = tiersmith(dir, &["detach", "app.db", "--skip-unreadable"]);
    assert_eq!(detached.status.code(), Some(2), "{}", text(&detached));
    assert!(text(&detached).contains("is for a directory"), "{}", text(&detached));
}

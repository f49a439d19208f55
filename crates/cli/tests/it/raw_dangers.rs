//! A block device that must not be taken, or not be given up: what a review found.
//!
//! **Invariant**: each refusal is held against all bytes of the device, before and after.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::daemon::loops::{Loop, can_kill_at_calls, has, ran};
use crate::daemon::{Site, can_mount, good, json, refused, text};
use crate::raw_devices::{SMALL, assert_there, follow, refuses, run, write_blocks};

/// An attached home whose daemon was killed, and what it had synced.
fn killed(site: &Site, device: &Loop, more: &[&str]) -> Vec<u8> {
    let mut arguments = vec!["attach", site.home_str(), "--fast", device.str(), "--json"];
    arguments.extend(more);
    let attached = json(&good(&arguments));
    let newest = write_blocks(site, 9);
    site.kill_daemon(&attached);
    newest
}

fn put(path: &Path, at: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
    file.sync_all().unwrap();
}

fn partition_of(device: &Loop) -> String {
    format!("{}p1", device.path.file_name().unwrap().to_str().unwrap())
}

#[test]
fn the_medium_decides_and_not_what_the_kernel_has_kept_of_it() {
    if !can_mount("a device that was changed past the kernel") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    // Kept in memory while somebody has it open.
    let mut open = File::open(&device.path).unwrap();
    open.read_exact(&mut vec![0; 4 << 20]).unwrap();
    put(device.image(), 0x438, b"\x53\xef");
    let said = refused(&["attach", site.home_str(), "--fast", device.str()]);
    assert!(said.contains("ext4"), "{said}");
    drop(open);
}

#[test]
fn partitions_that_the_kernel_knows_without_a_table_are_somebodys() {
    if !can_mount("a device with partitions") || !has("addpart") || !has("delpart") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    run("addpart", &[device.str(), "1", "8192", "8192"]);
    let said = refuses(&site, &device, "the kernel knows partitions", &[]);
    assert!(said.contains(&format!("{}p1", device.str())), "{said}");
    let identity = device.identity();
    let take = ["attach", site.home_str(), "--fast", device.str(), "--overwrite", &identity];
    // udev looks at it, say, and does not end.
    let before = device.hash();
    match File::open(format!("{}p1", device.str())) {
        Ok(open) => {
            let said = refused(&take);
            assert!(said.contains("open in process"), "{said}");
            // The same by who does not see this process.
            let alone = ["--pid", "--fork", "--mount-proc", env!("CARGO_BIN_EXE_tiersmith")];
            let said = text(&ran("unshare", &[&alone[..], &take[..]].concat()).unwrap());
            assert!(said.contains("open in another program"), "{said}");
            assert_eq!(device.hash(), before, "it was cleared before it was known to be free");
            drop(open);
        }
        Err(e) => println!("skipped: a partition that is open, because it has no node here: {e}"),
    }
    good(&take);
    assert!(!Path::new("/sys/class/block").join(partition_of(&device)).exists());
    good(&["detach", site.home_str()]);
}

#[test]
fn a_loop_device_over_another_node_and_a_program_that_has_it_open_are_found() {
    if !can_mount("a device in use") || !has("mknod") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    let identity = device.identity();
    let overwrite = ["--overwrite", &identity[..]];
    let node = site.path().join("node");
    let number = device.str().trim_start_matches("/dev/loop");
    run("mknod", &[node.to_str().unwrap(), "b", "7", number]);
    let Some(above) = Loop::over(&node) else { return };
    refuses(&site, &device, "is held by loop", &overwrite);
    drop(above);
    let open = File::options().read(true).write(true).open(&device.path).unwrap();
    let mut other = Command::new("sleep").arg("60").stdin(Stdio::from(open)).spawn().unwrap();
    let said = refuses(&site, &device, "open in process", &overwrite);
    assert!(said.contains(&format!("{} (sleep)", other.id())), "{said}");
    other.kill().unwrap();
    let _ = other.wait().unwrap();
    good(&["attach", site.home_str(), "--fast", device.str()]);
    good(&["detach", site.home_str()]);
}

#[test]
fn a_mark_behind_a_tier_in_use_is_named_and_the_command_of_the_refusal_takes_it_away() {
    if !can_mount("a tier over which somebody has written") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    let newest = killed(&site, &device, &[]);
    // mdadm -e 1.0, which leaves both copies of the superblock whole.
    put(&device.path, (SMALL << 20) - 8192, b"\xfc\x4e\x2b\xa9");
    let before = device.hash();
    let said = refused(&["attach", site.home_str()]);
    assert!(said.contains("mdraid 1.0") && said.contains("written"), "{said}");
    assert_eq!(device.hash(), before);
    follow(&said);
    good(&["attach", site.home_str()]);
    assert_there(&site, 9, &newest);
    good(&["detach", site.home_str()]);
    assert_there(&site, 9, &newest);
    // Free, and something of nobody knows whom there.
    put(&device.path, (SMALL << 20) - 100, b"7");
    refuses(&site, &device, "data of a kind that is not known", &[]);
}

#[test]
fn the_disk_of_a_partition_with_a_tier_in_use_is_not_overwritten() {
    if !can_mount("a tier on a partition") || !has("addpart") || !has("delpart") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", 2 * SMALL) else { return };
    run("addpart", &[device.str(), "1", "8192", "98304"]);
    let partition = format!("{}p1", device.str());
    if !Path::new(&partition).exists() {
        println!("skipped: a tier on a partition, because it has no node here");
        run("delpart", &[device.str(), "1"]);
        return;
    }
    let attached = json(&good(&["attach", site.home_str(), "--fast", &partition, "--json"]));
    let newest = write_blocks(&site, 9);
    site.kill_daemon(&attached);
    let other = site.path().join("other");
    fs::create_dir(&other).unwrap();
    let before = device.hash();
    let identity = device.identity();
    let other = other.to_str().unwrap();
    let said = refused(&["attach", other, "--fast", device.str(), "--overwrite", &identity]);
    assert!(said.contains(&partition) && said.contains("in use"), "{said}");
    assert_eq!(device.hash(), before);
    good(&["attach", site.home_str()]);
    assert_there(&site, 9, &newest);
    good(&["detach", site.home_str()]);
    run("delpart", &[device.str(), "1"]);
}

#[test]
fn a_tier_that_is_there_twice_or_damaged_is_not_given_up_and_one_that_is_gone_is() {
    if !can_mount("a tier that is not gone") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    let newest = killed(&site, &device, &[]);
    let give_up = ["detach", site.home_str(), "--force-without-tier"];
    // Two that have it, and neither by the name of before.
    let name = device.path.clone();
    let image = device.detach();
    let copy = site.path().join("images/copy");
    fs::copy(&image, &copy).unwrap();
    let Some(placeholder) = Loop::with_name(&name, &site, "another", SMALL) else { return };
    let (Some(one), Some(two)) = (Loop::over(&image), Loop::over(&copy)) else { return };
    let said = refused(&give_up);
    assert!(said.contains("the tier is there"), "{said}");
    drop((one, two, placeholder));
    // Both copies of the superblock damaged, by the name of before.
    let Some(device) = Loop::named(&name, &image) else { return };
    let mut copies = vec![0; 8192];
    File::open(&device.path).unwrap().read_exact_at(&mut copies, 0).unwrap();
    for at in [40, 4096 + 40] {
        put(&device.path, at, &[0x5a; 64]);
    }
    let said = refused(&give_up);
    assert!(said.contains("nobody can say") && said.contains("damaged"), "{said}");
    assert!(!said.contains("dd if="), "that may be another home's: {said}");
    let said = refused(&["attach", site.home_str()]);
    assert!(said.contains("damaged") && !said.contains("another device"), "{said}");
    put(&device.path, 0, &copies);
    good(&["attach", site.home_str()]);
    assert_there(&site, 9, &newest);
    good(&["unmount", site.home_str()]);
    // Gone for good, and another device has its name. There are disks that nobody may open, too,
    // and a damaged tier of somebody's.
    drop(device);
    let Some(placeholder) = Loop::with_name(&name, &site, "third", SMALL) else { return };
    let Some(damaged) = Loop::over(&copy) else { return };
    for at in [40, 4096 + 40] {
        put(&damaged.path, at, &[0x5a; 64]);
    }
    let before = (placeholder.hash(), damaged.hash());
    let said = text(&good(&give_up));
    assert!(said.contains("LOST"), "{said}");
    assert_eq!((placeholder.hash(), damaged.hash()), before);
}

#[test]
fn a_tier_is_not_given_up_by_who_may_not_read_the_devices() {
    if !can_mount("a tier that cannot be looked for") || !has("setpriv") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    good(&["attach", site.home_str(), "--fast", device.str()]);
    let _ = write_blocks(&site, 9);
    good(&["unmount", site.home_str()]);
    // The home's owner, for whom the device is called otherwise now.
    let name = device.path.clone();
    let image = device.detach();
    let Some(placeholder) = Loop::with_name(&name, &site, "another", SMALL) else { return };
    let Some(_device) = Loop::over(&image) else { return };
    run("chown", &["-R", "65534:65534", site.path().to_str().unwrap()]);
    let program = site.path().join("tiersmith");
    fs::copy(env!("CARGO_BIN_EXE_tiersmith"), &program).unwrap();
    let as_another = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let detach = [program.to_str().unwrap(), "detach", site.home_str(), "--force-without-tier"];
    let detached = || ran("setpriv", &[&as_another[..], &detach[..]].concat()).unwrap();
    // What has the name now may not be read, and then it may be, and is another device.
    let unread = detached();
    run("chmod", &["o+r", placeholder.str()]);
    let another = detached();
    run("chmod", &["o-r", placeholder.str()]);
    for (ran, expected) in [
        (&unread, format!("{} cannot be read", placeholder.str())),
        (&another, "it may be on a device that cannot be read".to_owned()),
    ] {
        let said = text(ran);
        assert_eq!(ran.status.code(), Some(2), "{said}");
        assert!(said.contains("nobody can say") && said.contains(&expected), "{said}");
    }
}

#[test]
fn an_ephemeral_device_that_is_blank_is_formatted_only_when_it_is_named() {
    if !can_mount("an ephemeral device that was emptied") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    let newest = killed(&site, &device, &["--ephemeral"]);
    let blank = |device: &Loop| put(&device.path, 0, &vec![0; (SMALL as usize) << 20]);
    blank(&device);
    let before = device.hash();
    let said = refused(&["attach", site.home_str()]);
    assert!(said.contains(&format!("--fast {}", device.str())), "{said}");
    assert_eq!(device.hash(), before, "it was formatted unasked");
    let attached = json(&good(&["attach", site.home_str(), "--fast", device.str(), "--json"]));
    assert_there(&site, 9, &newest);
    site.kill_daemon(&attached);
    for more in [&[][..], &["--fast", device.str()]] {
        blank(&device);
        let mut arguments = vec!["detach", site.home_str()];
        arguments.extend(more);
        let said = text(&good(&arguments));
        assert!(said.contains("nothing is lost"), "{said}");
        assert_eq!(device.hash(), before, "detach has formatted it");
        assert_there(&site, 9, &newest);
        if more.is_empty() {
            let _ = killed(&site, &device, &["--ephemeral"]);
        }
    }
}

#[test]
fn an_ephemeral_device_of_a_home_that_gave_it_up_is_freed_by_the_command_that_is_said() {
    if !can_mount("an ephemeral device that was given up") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    let newest = killed(&site, &device, &["--ephemeral"]);
    let gave_up = text(&good(&["detach", site.home_str(), "--force-without-tier"]));
    assert!(!gave_up.contains("is free"), "{gave_up}");
    assert_there(&site, 9, &newest);
    let other = site.path().join("other");
    fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    let said = refused(&["attach", other, "--fast", device.str()]);
    assert!(said.contains("clean copies"), "{said}");
    follow(&gave_up);
    // What is behind the tier's beginning is data that nobody knows.
    let identity = device.identity();
    good(&["attach", other, "--fast", device.str(), "--overwrite", &identity]);
    good(&["detach", other]);
}

#[test]
fn a_device_whose_first_attach_was_cut_is_not_locked_while_it_is_attached() {
    if !can_mount("an attach that was cut") || !can_kill_at_calls() {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    let mut cut = false;
    for n in 1..20 {
        let inject = format!("inject=renameat2:signal=KILL:when={n}");
        let program = env!("CARGO_BIN_EXE_tiersmith");
        let attach = [program, "attach", site.home_str(), "--fast", device.str(), "--foreground"];
        let strace = ["-f", "-qq", "-o", "/dev/null", "-e", "trace=renameat2", "-e", &inject];
        let _ = ran("strace", &[&strace[..], &attach[..]].concat()).unwrap();
        // The note is there, and the directory not moved: the tier says `attaching`.
        cut = site.home.join(".tiersmith").exists();
        if cut || site.path().join("db.tiersmith-home").exists() {
            break;
        }
    }
    assert!(cut, "no kill came between the note and the move");
    good(&["attach", site.home_str()]);
    let open = File::open(&device.path).unwrap();
    open.try_lock().expect("udev would wait for the daemon's end");
    drop(open);
    good(&["detach", site.home_str()]);
}

#[test]
fn a_loop_device_over_a_file_in_memory_is_refused_also_when_the_file_has_no_name() {
    if !can_mount("a device in memory") {
        return;
    }
    let site = Site::postgres_like();
    let Ok(image) = tempfile::NamedTempFile::new_in("/dev/shm") else { return };
    image.as_file().set_len(SMALL << 20).unwrap();
    let Some(device) = Loop::over(image.path()) else { return };
    drop(image);
    let said = refused(&["attach", site.home_str(), "--fast", device.str()]);
    assert!(said.contains("in memory"), "{said}");
    let probed = json(&good(&["probe", device.str(), "--seconds", "0.02", "--json"]));
    assert_eq!(probed["measured"][0]["persistent"], false, "{probed}");
}

#[test]
fn without_sysfs_no_device_is_taken() {
    if !can_mount("a machine without /sys") || !has("unshare") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    let before = device.hash();
    let without = ["--mount", "sh", "-c", "mount -t tmpfs none /sys && exec \"$@\"", "sh"];
    let program = env!("CARGO_BIN_EXE_tiersmith");
    let attach = [program, "attach", site.home_str(), "--fast", device.str()];
    let ran = ran("unshare", &[&without[..], &attach[..]].concat()).unwrap();
    let said = text(&ran);
    assert!(ran.status.code() == Some(2) && said.contains("/sys"), "{said}");
    assert_eq!(device.hash(), before);
}

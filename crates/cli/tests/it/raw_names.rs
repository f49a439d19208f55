//! A block device that has another name, or of which there is a copy, or that hangs: the home goes
//! on with the one that has its newest blocks, or refuses and says what to type.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::daemon::loops::Loop;
use crate::daemon::{Site, can_mount, good, is_alive, json, kill, output_within, refused, text};
use crate::raw_devices::{SMALL, assert_there, write_blocks};

/// Attaches, writes, and ends the daemon as the kernel would. What was synced.
fn session(site: &Site, more: &[&str], seed: u8) -> Vec<u8> {
    let arguments = [&["attach", site.home_str(), "--json"], more].concat();
    let attached = json(&good(&arguments));
    let newest = write_blocks(site, seed);
    site.kill_daemon(&attached);
    newest
}

#[test]
fn an_old_copy_is_refused_under_the_noted_name_and_when_it_is_given() {
    if !can_mount("a copy of a tier") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    let _ = session(&site, &["--fast", device.str()], 3);
    let old = site.path().join("images/old");
    fs::copy(device.image(), &old).unwrap();
    let newest = session(&site, &[], 9);
    // Beside the first, and then in its place.
    let Some(copy) = Loop::over(&old) else { return };
    let before = copy.hash();
    let said = refused(&["attach", site.home_str(), "--fast", copy.str()]);
    assert!(said.contains("old copy") && said.contains("at attach 1"), "{said}");
    assert_eq!(copy.hash(), before);
    drop(copy);
    let name = device.path.clone();
    let image = device.detach();
    let Some(copy) = Loop::named(&name, &old) else { return };
    for command in ["attach", "detach", "status"] {
        let said = refused(&[command, site.home_str()]);
        assert!(said.contains("old copy") && said.contains("attached 2 times"), "{said}");
    }
    let Some(device) = Loop::over(&image) else { return };
    let said = refused(&["detach", site.home_str(), "--force-without-tier"]);
    assert!(said.contains(&format!("the tier is there ({})", device.str())), "{said}");
    assert_eq!(copy.hash(), before, "a refusal has written");
    good(&["attach", site.home_str(), "--fast", device.str()]);
    assert_there(&site, 9, &newest);
    good(&["unmount", site.home_str()]);
    // From here on it is the noted one.
    good(&["attach", site.home_str()]);
    assert_there(&site, 9, &newest);
    good(&["detach", site.home_str()]);
    assert_eq!(copy.hash(), before);
}

#[test]
fn a_home_that_was_set_back_does_not_take_the_tier_of_a_later_time() {
    if !can_mount("a home that was set back") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    let _ = session(&site, &["--fast", device.str()], 3);
    let note = files_of(&site).join(".tiersmith");
    let old = fs::read(&note).unwrap();
    for seed in [5, 7] {
        let _ = session(&site, &[], seed);
    }
    let new = fs::read(&note).unwrap();
    fs::write(&note, &old).unwrap();
    let before = device.hash();
    let said = refused(&["attach", site.home_str()]);
    assert!(said.contains("set back to an older state"), "{said}");
    assert_eq!(device.hash(), before);
    fs::write(&note, &new).unwrap();
    good(&["attach", site.home_str()]);
    good(&["detach", site.home_str()]);
}

/// A kernel or a virtual machine may give a disk another WWN.
#[test]
fn a_tier_whose_device_has_another_wwn_now_is_not_given_up() {
    if !can_mount("a device with another WWN") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    let newest = session(&site, &["--fast", device.str()], 3);
    let note = files_of(&site).join(".tiersmith");
    let plain = fs::read_to_string(&note).unwrap();
    let (body, _) = plain.rsplit_once("# checksum ").unwrap();
    let other = format!("{body}\n[door]\n\"mount.device_id\" = \"wwn-0x5000c500deadbeef\"\n");
    let sum = xxhash_rust::xxh3::xxh3_64(other.as_bytes());
    fs::write(&note, format!("{other}# checksum {sum:016x}\n")).unwrap();
    let said = refused(&["attach", site.home_str()]);
    assert!(said.contains("is another device now") && said.contains("--fast DEVICE"), "{said}");
    let said = refused(&["detach", site.home_str(), "--force-without-tier"]);
    assert!(said.contains(&format!("the tier is there ({})", device.str())), "{said}");
    good(&["attach", site.home_str(), "--fast", device.str()]);
    assert_there(&site, 3, &newest);
    good(&["detach", site.home_str()]);
}

/// Where the files of an attached home are.
fn files_of(site: &Site) -> PathBuf {
    let found = fs::read_dir(site.path().join("db.tiersmith-home")).unwrap();
    let mut paths = found.map(|entry| entry.unwrap().path());
    paths.find(|path| path.join(".tiersmith").exists()).unwrap()
}

#[test]
fn a_tier_on_a_stack_is_not_looked_for_below_it_and_is_attached_under_its_new_name() {
    if !can_mount("a tier on a stack of devices") {
        return;
    }
    let site = Site::postgres_like();
    let Some(lower) = Loop::new(&site, "disk", SMALL) else { return };
    let Some(upper) = Loop::over(&lower.path) else { return };
    let old = upper.path.clone();
    let newest = session(&site, &["--fast", upper.str()], 9);
    // Not assembled yet: the device below has the same bytes, and is not taken.
    drop(upper);
    let before = lower.hash();
    let said = refused(&["attach", site.home_str()]);
    assert!(said.contains("has no tier") && said.contains("--fast DEVICE"), "{said}");
    assert_eq!(lower.hash(), before, "the device below was taken");
    // Under another name, with the device below it in sight.
    let Some(placeholder) = Loop::with_name(&old, &site, "another", SMALL) else { return };
    let Some(upper) = Loop::over(&lower.path) else { return };
    assert_ne!(upper.path, old);
    let said = refused(&["attach", site.home_str()]);
    assert!(said.contains(upper.str()) && !said.contains("dd if="), "{said}");
    good(&["attach", site.home_str(), "--fast", upper.str()]);
    assert_there(&site, 9, &newest);
    good(&["detach", site.home_str()]);
    drop((upper, placeholder));
}

/// A daemon that is stopped, and goes on when the test ends however it does.
struct Stopped(u64);

impl Stopped {
    fn stop(pid: u64) -> Stopped {
        kill("STOP", pid);
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        kill("CONT", self.0);
    }
}

/// Runs the program, which must end within so long.
fn within(seconds: u64, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tiersmith"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let began = Instant::now();
    let limit = Duration::from_secs(seconds);
    let ran = output_within(command.spawn().unwrap(), limit).unwrap();
    assert!(began.elapsed() < limit, "{arguments:?} waits: {}", text(&ran));
    ran
}

#[test]
fn a_disk_that_hangs_holds_up_nobody_and_no_daemon_waits_for_it() {
    if !can_mount("a disk that hangs") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    let name = device.path.clone();
    let newest = session(&site, &["--fast", device.str()], 9);
    // A disk on a server that does not answer: a mount of ours, whose daemon is stopped, and which
    // the kernel does not get past.
    let server = Site::postgres_like();
    let served = server.attach(&["--sync-on-write", "always"]);
    let image = server.home.join("image");
    File::create(&image).unwrap().set_len(SMALL << 20).unwrap();
    let Some(hangs) = Loop::over(&image) else { return };
    let stopped = Stopped::stop(served["pid"].as_u64().unwrap());
    // Somebody else's: not even looked at.
    let attached = json(&within(60, &["attach", site.home_str(), "--json"]));
    assert_there(&site, 9, &newest);
    site.kill_daemon(&attached);
    // It has the name of ours: looked at, and not for long.
    let its_name = hangs.path.clone();
    let old = device.detach();
    drop(stopped);
    drop(hangs);
    let Some(hangs) = Loop::named(&name, &image) else { return };
    let Some(device) = Loop::named(&its_name, &old) else { return };
    let stopped = Stopped::stop(served["pid"].as_u64().unwrap());
    for command in ["attach", "status", "detach"] {
        let ran = within(60, &[command, site.home_str()]);
        let said = text(&ran);
        assert!(ran.status.code() == Some(2) && said.contains("does not answer"), "{said}");
    }
    let arguments = ["attach", site.home_str(), "--fast", device.str(), "--json"];
    let attached = json(&within(60, &arguments));
    assert_there(&site, 9, &newest);
    let pid = attached["pid"].as_u64().unwrap();
    kill("KILL", pid);
    let began = Instant::now();
    while is_alive(pid) {
        assert!(began.elapsed() < Duration::from_secs(60), "the daemon waits for the other disk");
        std::thread::sleep(Duration::from_millis(20));
    }
    // A thread of it that waits for the other disk would keep the home and the device.
    let ran = within(60, &["detach", site.home_str()]);
    assert!(ran.status.success(), "{}", text(&ran));
    assert_there(&site, 9, &newest);
    drop(stopped);
    drop(hangs);
    good(&["detach", server.home_str()]);
}

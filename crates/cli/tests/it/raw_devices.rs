//! A tier on a whole block device: loop devices, which need root.
//!
//! **Invariant**: each refusal is held against all bytes of the device, before and after.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::daemon::loops::{Loop, can_kill_at_calls, has, ran};
use crate::daemon::{
    LIMIT, Site, blocks, can_mount, good, json, output_within, refused, text, tiersmith,
};

/// Bytes of the smallest devices here, in MiB.
pub(crate) const SMALL: u64 = 48;

pub(crate) fn run(program: &str, arguments: &[&str]) {
    let ran = ran(program, arguments).unwrap();
    assert!(ran.status.success(), "{program} {arguments:?}: {}", text(&ran));
}

/// Writes what a database would, through the mount, and gives what was synced.
pub(crate) fn write_blocks(site: &Site, seed: u8) -> Vec<u8> {
    let table = File::options().read(true).write(true).open(site.home.join("base/1/1259")).unwrap();
    let newest = blocks(seed, 8);
    table.write_all_at(&newest, 8192).unwrap();
    table.sync_data().unwrap();
    let mut segment = File::create(site.home.join("pg_wal/000000010000000000000001")).unwrap();
    segment.write_all(&vec![seed; 70_000]).unwrap();
    segment.sync_all().unwrap();
    newest
}

pub(crate) fn assert_there(site: &Site, seed: u8, newest: &[u8]) {
    let found = fs::read(site.home.join("base/1/1259")).unwrap();
    assert!(found[8192..][..newest.len()] == *newest, "a synced block is lost");
    let segment = fs::read(site.home.join("pg_wal/000000010000000000000001")).unwrap();
    assert!(segment == vec![seed; 70_000], "synced redo is lost");
}

/// Runs the command that a refusal names, as it stands there.
pub(crate) fn follow(said: &str) {
    let command = said.split('`').find(|part| part.starts_with("dd ")).expect(said);
    let words: Vec<&str> = command.split_whitespace().collect();
    run(words[0], &words[1..]);
}

/// What libblkid finds, if its programs are here.
fn signatures(device: &str) -> String {
    ran("wipefs", &["--no-act", "--noheadings", device]).map_or(String::new(), |found| text(&found))
}

#[test]
fn a_device_is_attached_by_its_link_and_what_was_synced_is_there_after_a_kill_and_a_reboot() {
    if !can_mount("a tier on a block device") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    // As /dev/disk/by-id has it: a link of root's.
    let link = site.path().join("by-id");
    symlink(&device.path, &link).unwrap();
    let arguments = ["attach", site.home_str(), "--fast", link.to_str().unwrap(), "--json"];
    let attached = json(&good(&arguments));
    assert_eq!((&attached["flash"], &attached["emulated"]), (&true.into(), &false.into()));
    assert_eq!(attached["members"][0], device.str());
    let status = text(&good(&["status", site.home_str()]));
    assert!(status.contains("on a block device") && !status.contains("EMULATED"), "{status}");
    assert!(status.contains("through the daemon"), "{status}");
    assert_eq!(signatures(device.str()), "", "others take it for something");
    let newest = write_blocks(&site, 9);

    // Nobody else gets it meanwhile.
    let other = site.path().join("other");
    fs::create_dir(&other).unwrap();
    let said = refused(&["attach", other.to_str().unwrap(), "--fast", device.str()]);
    assert!(said.contains("in use by process"), "{said}");
    let taken = ran("mkfs.ext4", &["-q", "-F", device.str()]);
    assert!(!taken.is_ok_and(|made| made.status.success()), "mkfs took a device in use");

    site.kill_daemon(&attached);
    let before = device.hash();
    let check = text(&good(&["check", site.home_str(), "--cold"]));
    assert!(check.contains("sound") || check.contains("holds"), "{check}");
    assert_eq!(device.hash(), before, "the check has written");
    // After a reboot it is called otherwise, and its old name is another device's.
    let old = device.path.clone();
    let image = device.detach();
    let Some(placeholder) = Loop::with_name(&old, &site, "another", SMALL) else { return };
    let blank = placeholder.hash();
    let Some(device) = Loop::over(&image) else { return };
    assert_ne!(device.path, old);
    // The link leads to its old name still, where udev does not run.
    for command in ["attach", "status", "detach"] {
        let said = refused(&[command, site.home_str()]);
        assert!(said.contains("(uuid ") && said.contains("has no tier"), "{said}");
        assert!(said.contains(device.str()) && said.contains("--fast DEVICE"), "{said}");
        assert!(said.contains(link.to_str().unwrap()), "{said}");
    }
    assert_eq!((placeholder.hash(), device.hash()), (blank, before), "a refusal has written");
    fs::remove_file(&link).unwrap();
    symlink(&device.path, &link).unwrap();
    let status = tiersmith(&["status", site.home_str(), "--json"]);
    assert_eq!(json(&status)["members"][0], device.str(), "{}", text(&status));
    let again = json(&good(&["attach", site.home_str(), "--json"]));
    assert_eq!(again["members"][0], device.str());
    assert!(again["remarks"].to_string().contains("and is /dev/loop"), "{again}");
    assert_there(&site, 9, &newest);
    assert_eq!(placeholder.hash(), blank, "the device with the old name was written");
    let newest = write_blocks(&site, 77);
    good(&["scrub", site.home_str()]);
    good(&["detach", site.home_str()]);
    fs::remove_dir(&other).unwrap();
    fs::remove_dir_all(site.path().join("images")).unwrap();
    fs::remove_file(&link).unwrap();
    site.assert_plain();
    assert_there(&site, 77, &newest);
    assert_eq!(signatures(device.str()), "");
}

#[test]
fn a_detached_device_is_used_again_without_a_word_and_check_and_status_read_it() {
    if !can_mount("a tier on a block device") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    for seed in [3, 5] {
        good(&["attach", site.home_str(), "--fast", device.str()]);
        let newest = write_blocks(&site, seed);
        good(&["unmount", site.home_str()]);
        let before = device.hash();
        let status = tiersmith(&["status", site.home_str()]);
        assert_eq!(status.status.code(), Some(1), "{}", text(&status));
        good(&["check", site.home_str()]);
        assert_eq!(device.hash(), before, "a look has written");
        good(&["detach", site.home_str()]);
        assert_there(&site, seed, &newest);
    }
}

/// A swap that is on, also when the test fails: its file goes.
struct SwapOff<'a>(&'a str);

impl Drop for SwapOff<'_> {
    fn drop(&mut self) {
        let _ = ran("swapoff", &[self.0]);
    }
}

/// Refused, with what was found, and no byte changed.
pub(crate) fn refuses(site: &Site, device: &Loop, found: &str, more: &[&str]) -> String {
    let before = device.hash();
    let mut arguments = vec!["attach", site.home_str(), "--fast", device.str()];
    arguments.extend(more);
    let said = refused(&arguments);
    assert!(said.contains(found), "{found}: {said}");
    assert_eq!(device.hash(), before, "{found}: a refusal has written");
    assert!(!site.home.join(".tiersmith").exists(), "{found}");
    said
}

#[test]
fn a_device_with_somebodys_data_is_refused_by_name_and_overwritten_only_by_its_own_name() {
    if !can_mount("the refusal of a device with data") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    let makers: [(&str, &[&str], &str); 7] = [
        ("mkfs.ext4", &["-q", "-F"], "ext4"),
        ("mkswap", &["--quiet"], "swap space"),
        ("mkfs.xfs", &["-q", "-f"], "XFS"),
        ("mkfs.vfat", &[], "FAT"),
        ("mkfs.f2fs", &["-q", "-f"], "f2fs"),
        ("sfdisk", &["--quiet", "--label", "gpt"], "GPT"),
        ("sfdisk", &["--quiet", "--label", "dos"], "MBR"),
    ];
    let mut made = 0;
    for (program, options, what) in makers {
        if !has(program) {
            continue;
        }
        File::options()
            .write(true)
            .open(&device.path)
            .unwrap()
            .write_all(&vec![0; 4 << 20])
            .unwrap();
        let child = Command::new(program)
            .args(options)
            .arg(device.str())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        // One that ends at once does not read it.
        let _ = child.stdin.take().unwrap().write_all(b",,\n");
        let ended = output_within(child, LIMIT).unwrap();
        if !ended.status.success() {
            // These need more room than others.
            let is_choosy = ["mkfs.xfs", "mkfs.vfat", "mkfs.f2fs"].contains(&program);
            assert!(is_choosy, "{program} {options:?} fails: {}", text(&ended));
            println!("skipped: {program} {options:?}, because it fails here: {}", text(&ended));
            continue;
        }
        made += 1;
        assert_ne!(signatures(device.str()), "", "{program} made nothing");
        let said = refuses(&site, &device, what, &[]);
        assert!(!said.contains("wipefs"), "that would leave enough to be refused again: {said}");
        let identity = device.identity();
        assert!(said.contains(&format!("--overwrite '{identity}'")), "{said}");
        let said = refuses(&site, &device, "another device", &["--overwrite", "loop77:1"]);
        assert!(said.contains("loop77:1") && said.contains(&identity), "{said}");
        good(&["attach", site.home_str(), "--fast", device.str(), "--overwrite", &identity]);
        assert_eq!(signatures(device.str()), "", "{program}: its signature is there still");
        let newest = write_blocks(&site, 41);
        good(&["unmount", site.home_str()]);
        good(&["attach", site.home_str()]);
        assert_there(&site, 41, &newest);
        good(&["detach", site.home_str()]);
        assert_eq!(signatures(device.str()), "", "{program}: after detach");
    }
    assert!(made > 0, "nothing that makes a file system is here");
}

#[test]
fn data_of_an_unknown_kind_at_either_end_is_refused() {
    if !can_mount("the refusal of a device with data") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    let file = File::options().write(true).open(&device.path).unwrap();
    for at in [0, 300_000, (SMALL << 20) - 1, (SMALL - 1) << 20] {
        file.write_all_at(b"7", at).unwrap();
        let said = refuses(&site, &device, "data of a kind that is not known", &[]);
        assert!(said.contains(&format!("byte {at} ")) && said.contains("--overwrite"), "{said}");
        file.write_all_at(b"\0", at).unwrap();
    }
    drop(file);
    let said = refuses(&site, &device, "another device", &["--overwrite", "x"]);
    assert!(said.contains("lsblk"), "{said}");
}

#[test]
fn a_device_that_is_mounted_a_swap_or_below_another_is_refused_also_to_overwrite() {
    if !can_mount("the refusal of a device in use") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    let identity = device.identity();
    let overwrite = ["--overwrite", &identity[..]];
    if has("mkfs.ext4") {
        run("mkfs.ext4", &["-q", "-F", device.str()]);
        let at = site.path().join("mounted here");
        fs::create_dir(&at).unwrap();
        run("mount", &["-o", "ro", device.str(), at.to_str().unwrap()]);
        for more in [&[][..], &overwrite] {
            let said = refuses(&site, &device, "is mounted at", more);
            assert!(said.contains("mounted here") && said.contains("never overwritten"), "{said}");
        }
        run("umount", &[at.to_str().unwrap()]);
    }
    if has("mkswap") {
        run("mkswap", &["--quiet", device.str()]);
        let on = ran("swapon", &[device.str()]).unwrap();
        if on.status.success() {
            let _off = SwapOff(device.str());
            for more in [&[][..], &overwrite] {
                refuses(&site, &device, "is used as swap", more);
            }
        } else {
            println!("skipped: a swap that is on, because {}", text(&on));
        }
    }
    // A loop device over it: nothing that the kernel claims.
    let Some(above) = Loop::over(&device.path) else { return };
    let said = refuses(&site, &device, "is held by", &overwrite);
    assert!(said.contains(above.path.file_name().unwrap().to_str().unwrap()), "{said}");
    drop(above);
    // Read-only.
    run("blockdev", &["--setro", device.str()]);
    refuses(&site, &device, "is read-only", &overwrite);
    run("blockdev", &["--setrw", device.str()]);
    // And what is no block device, or not there.
    let said = refused(&["attach", site.home_str(), "--fast", "/dev/nothing77", "--emulate"]);
    assert!(said.contains("there is no device"), "{said}");
    assert!(!Path::new("/dev/nothing77").exists(), "a file was made in /dev");
    for word in ["--emulate", "--volatile"] {
        refuses(&site, &device, "is a block device", &[word]);
    }
}

/// `false`, said on standard output: there is no second device.
fn refuses_another_home_and_another_device(site: &Site, device: &Loop) -> bool {
    let other = site.path().join("other");
    fs::create_dir(&other).unwrap();
    let identity = device.identity();
    let before = device.hash();
    for more in [&[][..], &["--overwrite", &identity[..]]] {
        let mut arguments = vec!["attach", other.to_str().unwrap(), "--fast", device.str()];
        arguments.extend(more);
        let said = refused(&arguments);
        assert!(said.contains("belongs to the home") && said.contains("detach"), "{said}");
        assert_eq!(device.hash(), before, "another home's tier was written");
    }
    let Some(blank) = Loop::new(site, "blank", SMALL) else { return false };
    let untouched = blank.hash();
    let said = refused(&["attach", site.home_str(), "--fast", blank.str()]);
    assert!(said.contains(&format!("say --fast {}", device.str())), "{said}");
    let said = refused(&[
        "attach",
        site.home_str(),
        "--fast",
        device.str(),
        "--overwrite",
        &device.identity(),
    ]);
    assert!(said.contains("the only copy"), "{said}");
    assert_eq!((blank.hash(), device.hash()), (untouched, before));
    true
}

/// The device is as long as it was afterwards; its image.
fn refuses_a_shorter_one(site: &Site, device: Loop) -> PathBuf {
    let image = device.detach();
    let whole = fs::metadata(&image).unwrap().len();
    let shorter = |bytes: u64| File::options().write(true).open(&image).unwrap().set_len(bytes);
    let tail = {
        let mut tail = vec![0; 2 << 20];
        let mut file = File::open(&image).unwrap();
        file.seek(SeekFrom::Start(whole - (2 << 20))).unwrap();
        file.read_exact(&mut tail).unwrap();
        tail
    };
    shorter(whole - (2 << 20)).unwrap();
    let shrunk = Loop::over(&image).unwrap();
    let before = shrunk.hash();
    let said = refused(&["attach", site.home_str(), "--fast", shrunk.str()]);
    assert!(said.contains("cut short"), "{said}");
    assert_eq!(shrunk.hash(), before);
    let image = shrunk.detach();
    shorter(whole).unwrap();
    let file = File::options().write(true).open(&image).unwrap();
    file.write_all_at(&tail, whole - (2 << 20)).unwrap();
    image
}

/// Somebody made a swap of it, which leaves one copy of the superblock; both are put back. `false`:
/// there is no device of that name now.
fn refuses_a_swap(site: &Site, name: &Path, image: &Path) -> bool {
    let mut first = [0; 4096];
    File::open(image).unwrap().read_exact(&mut first).unwrap();
    if has("mkswap") {
        let Some(device) = Loop::named(name, image) else { return false };
        run("mkswap", &["--quiet", device.str()]);
        let before = device.hash();
        let said = refused(&["attach", site.home_str(), "--fast", device.str()]);
        assert!(said.contains("swap space") && said.contains("written"), "{said}");
        assert_eq!(device.hash(), before);
        follow(&said);
        // With one copy it is used; here both are put back.
        good(&["check", site.home_str(), "--cold"]);
        drop(device);
        let file = File::options().write(true).open(image).unwrap();
        file.write_all_at(&first, 0).unwrap();
    }
    true
}

#[test]
fn a_device_that_is_shrunk_damaged_or_anothers_is_refused_and_nothing_is_written() {
    if !can_mount("the refusal of a wrong device") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    let name = device.path.clone();
    let attached = json(&good(&["attach", site.home_str(), "--fast", device.str(), "--json"]));
    let newest = write_blocks(&site, 9);
    site.kill_daemon(&attached);

    if !refuses_another_home_and_another_device(&site, &device) {
        return;
    }
    let image = refuses_a_shorter_one(&site, device);
    if !refuses_a_swap(&site, &name, &image) {
        return;
    }

    // Unplugged.
    let said = refused(&["attach", site.home_str()]);
    assert!(said.contains("Plug it in") && said.contains("nothing is lost"), "{said}");
    let said = refused(&["status", site.home_str()]);
    assert!(said.contains("Plug it in") && said.contains("has no tier"), "{said}");
    let Some(device) = Loop::named(&name, &image) else { return };
    let said = refused(&["detach", site.home_str(), "--force-without-tier"]);
    assert!(said.contains("the tier is there"), "{said}");
    good(&["attach", site.home_str()]);
    assert_there(&site, 9, &newest);
    good(&["detach", site.home_str()]);
    drop(device);
    assert_there(&site, 9, &newest);
}

#[test]
fn a_device_that_grew_is_used_in_its_old_length_until_it_is_attached_anew() {
    if !can_mount("a device that grew") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    let usable = |site: &Site| site.live()["tiers"][0]["usable_bytes"].as_u64().unwrap();
    let attached = json(&good(&["attach", site.home_str(), "--fast", device.str(), "--json"]));
    let newest = write_blocks(&site, 9);
    let before = usable(&site);
    site.kill_daemon(&attached);
    let image = device.detach();
    File::options().write(true).open(&image).unwrap().set_len((2 * SMALL) << 20).unwrap();
    let Some(device) = Loop::over(&image) else { return };
    good(&["attach", site.home_str(), "--fast", device.str()]);
    assert_eq!(usable(&site), before);
    assert_there(&site, 9, &newest);
    good(&["detach", site.home_str()]);
    good(&["attach", site.home_str(), "--fast", device.str()]);
    assert!(usable(&site) > before + before / 2, "{before}");
    good(&["detach", site.home_str()]);
    assert_there(&site, 9, &newest);
}

#[test]
fn a_device_that_was_detached_and_used_for_something_else_is_not_taken_for_free() {
    if !can_mount("the refusal of a device that was reused") || !has("mkswap") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    good(&["attach", site.home_str(), "--fast", device.str()]);
    good(&["detach", site.home_str()]);
    // It leaves the second copy of the superblock as it is, which says that the tier is free.
    run("mkswap", &["--quiet", device.str()]);
    let mut second = [0; 8];
    File::open(&device.path).unwrap().read_exact_at(&mut second, 4096).unwrap();
    assert_eq!(&second, b"TSMITHST");
    refuses(&site, &device, "swap space", &[]);
    let identity = device.identity();
    good(&["attach", site.home_str(), "--fast", device.str(), "--overwrite", &identity]);
    assert_eq!(signatures(device.str()), "");
    good(&["detach", site.home_str()]);
}

#[test]
fn a_user_who_may_not_open_the_device_is_told_what_to_do() {
    if !can_mount("the refusal of a user") {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    for path in [site.path().to_path_buf(), site.home.clone()] {
        std::os::unix::fs::chown(path, Some(65_534), Some(65_534)).unwrap();
    }
    let before = device.hash();
    let program = env!("CARGO_BIN_EXE_tiersmith");
    let copy = site.path().join("tiersmith");
    fs::copy(program, &copy).unwrap();
    let as_another = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let attach = [copy.to_str().unwrap(), "attach", site.home_str(), "--fast", device.str()];
    let Ok(ran) = ran("setpriv", &[&as_another[..], &attach[..]].concat()) else {
        println!("skipped: another user, because `setpriv` is not here");
        return;
    };
    let said = text(&ran);
    assert_eq!(ran.status.code(), Some(2), "{said}");
    match fs::metadata("/dev/fuse").unwrap().mode() & 0o006 {
        0o006 => assert!(said.contains("root or its group"), "{said}"),
        _ => println!("skipped: what is said of the device, because others may not use /dev/fuse"),
    }
    assert_eq!(device.hash(), before);
}

#[test]
fn probe_measures_reads_of_a_device_and_writes_nothing_to_it() {
    let site = Site::new();
    let Some(device) = Loop::new(&site, "disk", SMALL) else { return };
    if has("mkfs.ext4") {
        run("mkfs.ext4", &["-q", "-F", device.str()]);
    }
    let before = device.hash();
    let probed = json(&good(&["probe", device.str(), "--seconds", "0.02", "--json"]));
    let place = &probed["measured"][0];
    assert_eq!(place["path"], device.str());
    let measured = place["measurements"].as_array().unwrap();
    assert!(measured.len() == 3 && measured.iter().all(|m| m["operation"] == "read"), "{place}");
    assert_eq!(device.hash(), before, "probe has written");
}

/// What a kill at one call of a first attach has left.
#[derive(Debug, PartialEq)]
enum Left {
    /// It was not reached.
    Attached,
    /// The device as it was.
    Untouched,
    /// Refused again, and the message says what to do.
    Refused,
    /// The same command without `--overwrite` goes on.
    GoesOn,
}

/// Attaches with the device's name, and ends the process at its `n`-th call of a kind.
fn killed_at(site: &Site, base: &Path, call: &str, n: usize) -> Option<Left> {
    let image = site.path().join("images/killed");
    fs::copy(base, &image).unwrap();
    let device = Loop::over(&image)?;
    let before = device.hash();
    let traced = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e"])
        .arg(format!("inject={call}:signal=KILL:when={n}"))
        .arg(env!("CARGO_BIN_EXE_tiersmith"))
        .args(["attach", site.home_str(), "--fast", device.str(), "--foreground", "--json"])
        .args(["--overwrite", &device.identity()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut traced = traced.unwrap();
    // A line when it is mounted, or the end.
    let mut out = traced.stdout.take().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let _ = std::thread::spawn(move || tell.send(out.read(&mut [0; 1]).map(|n| n > 0)));
    let mounted = told.recv_timeout(LIMIT).expect("neither mounted nor ended").unwrap();
    if mounted || site.path().join("db.tiersmith-home").exists() {
        for pid in crate::daemon::daemons_of(site.path()) {
            crate::daemon::kill("KILL", pid);
        }
        let _ = output_within(traced, LIMIT).unwrap();
        good(&["attach", site.home_str()]);
        good(&["detach", site.home_str()]);
        return Some(Left::Attached);
    }
    let _ = output_within(traced, LIMIT).unwrap();
    let now = device.hash();
    let again = tiersmith(&["attach", site.home_str(), "--fast", device.str()]);
    let left = match (now == before, again.status.success()) {
        (true, true) => panic!("{call} {n}: what was there is taken for nothing"),
        (true, false) => Left::Untouched,
        (false, true) => Left::GoesOn,
        (false, false) => Left::Refused,
    };
    if left == Left::GoesOn {
        assert_eq!(signatures(device.str()), "", "{call} {n}");
        good(&["detach", site.home_str()]);
    } else {
        assert!(text(&again).contains("--overwrite '"), "{call} {n}: {}", text(&again));
        assert_eq!(device.hash(), now, "{call} {n}: a refusal has written");
    }
    Some(left)
}

#[test]
fn a_kill_at_any_call_while_a_device_is_taken_over_leaves_it_refused_or_ours() {
    if !can_mount("kills while a device is taken over") || !can_kill_at_calls() || !has("mkfs.ext4")
    {
        return;
    }
    let site = Site::postgres_like();
    let Some(device) = Loop::new(&site, "base", SMALL) else { return };
    run("mkfs.ext4", &["-q", "-F", device.str()]);
    // A boot sector, and something at the end.
    let file = File::options().write(true).open(&device.path).unwrap();
    file.write_all_at(b"boot", 0).unwrap();
    file.write_all_at(b"end", (SMALL << 20) - 3).unwrap();
    drop(file);
    let base = device.detach();
    let mut seen = Vec::new();
    for call in ["pwrite64", "fdatasync"] {
        // All calls that take the device over, and some of those that make the tier.
        for n in (1..=12).chain((13..).step_by(9)) {
            assert!(n < 2000, "{call}: the attach never gets to its end");
            let Some(left) = killed_at(&site, &base, call, n) else { return };
            println!("{call} {n}: {left:?}");
            let attached = left == Left::Attached;
            seen.push(left);
            if attached {
                break;
            }
        }
    }
    for left in [Left::Untouched, Left::Refused, Left::GoesOn] {
        assert!(seen.contains(&left), "no kill came where it leaves the device {left:?}");
    }
    let found = fs::read(site.home.join("base/1/1259")).unwrap();
    assert!(found == blocks(0, 64), "the home is not as it was");
}

//! A home that is a mount point: its life, a reboot, a kill before each call that changes a name.
//!
//! The steps themselves are in the store's `home/inside_tests.rs`, a real database in
//! `databases.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::daemon::{
    Site, blocks, can_mount, good, is_alive, is_root, json, refused, text, tiersmith, wait_until,
};
use crate::volume::{Volume, kinds_at, run};

/// The user who has the database.
const OWNER: u32 = 65534;
/// Of the calls of one kind every so manieth is one to be killed at, unless
/// `TIERSMITH_ATTACH_KILLS` is `all`.
const EVERY: usize = 4;
/// More calls of one kind than the program makes.
const MOST: usize = 200;

/// A home that looks like PostgreSQL's, of its own user, on a volume of its own.
fn site(what: &str) -> Option<(Site, Volume)> {
    if !is_root() {
        eprintln!("skipped: {what}, because it needs root");
        return None;
    }
    if !can_mount(what) {
        return None;
    }
    let site = Site::postgres_like();
    fs::set_permissions(&site.home, fs::Permissions::from_mode(0o700)).unwrap();
    chown(&site.home, Some(OWNER), Some(OWNER)).unwrap();
    let volume = Volume::of(&site, 64)?;
    Some((site, volume))
}

fn names(at: &Path) -> Vec<String> {
    let entries = fs::read_dir(at).unwrap();
    let mut names: Vec<_> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Plain, as it was before it was attached.
fn is_plain(site: &Site) {
    assert_eq!(kinds_at(&site.home), ["ext4"]);
    assert_eq!(
        names(&site.home),
        ["PG_VERSION", "base", "global", "lost+found", "pg_wal", "pg_xact"]
    );
    let found = fs::metadata(&site.home).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (OWNER, OWNER, 0o700));
    assert_eq!(site.beside(), Vec::<String>::new(), "something was left beside the home");
    assert_eq!(fs::read_dir(&site.fast).unwrap().count(), 0, "a tier was left");
    assert_eq!(fs::read(site.home.join("PG_VERSION")).unwrap(), b"15\n");
}

/// What stands at the path while nothing is mounted over it is no database.
fn is_note(site: &Site) {
    assert_eq!(kinds_at(&site.home), ["ext4"]);
    assert_eq!(names(&site.home), [".tiersmith-home", "README-TIERSMITH.txt", "lost+found"]);
    let vault = fs::metadata(site.home.join(".tiersmith-home")).unwrap();
    assert_eq!((vault.uid(), vault.mode() & 0o777), (0, 0o700));
    let found = fs::metadata(&site.home).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o7777), (0, 0o555));
}

#[test]
fn a_mount_point_lives_through_attach_kill_reboot_power_cut_and_detach() {
    let Some((site, mut volume)) = site("the life of a home that is a mount point") else { return };
    let home = site.home_str();
    let attached = site.attach(&[]);
    assert_eq!(kinds_at(&site.home), ["ext4", "fuse"]);
    assert_eq!(site.beside(), ["db.tiersmith-control", "db.tiersmith-home", "db.tiersmith-log"]);
    assert_eq!(attached["files"], site.path().join("db.tiersmith-home/home").to_str().unwrap());
    assert_eq!(names(&site.home), ["PG_VERSION", "base", "global", "pg_wal", "pg_xact"]);
    let found = fs::metadata(&site.home).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o7777), (OWNER, 0o700));
    let table = site.home.join("base/1/1259");
    fs::write(&table, blocks(3, 64)).unwrap();
    assert!(refused(&["attach", home]).contains("attached already"));

    site.kill_daemon(&attached);
    let status = tiersmith(&["status", home, "--json"]);
    assert_eq!(
        (status.status.code(), &json(&status)["standing"]),
        (Some(1), &"attached, not mounted".into())
    );
    let again = site.attach_again();
    assert_eq!(
        (&again["again"], kinds_at(&site.home)),
        (&true.into(), vec!["ext4".into(), "fuse".into()])
    );
    assert_eq!(fs::read(&table).unwrap(), blocks(3, 64));

    good(&["unmount", home]);
    is_note(&site);
    assert_eq!(site.beside(), ["db.tiersmith-log"]);
    volume.reboot();
    is_note(&site);
    let status = tiersmith(&["status", home, "--json"]);
    assert_eq!(
        (status.status.code(), &json(&status)["standing"]),
        (Some(1), &"attached, not mounted".into())
    );
    good(&["check", home]);

    // Killed and cut together; the passage is an empty directory then.
    let attached = site.attach_again();
    fs::write(&table, blocks(5, 64)).unwrap();
    site.kill_daemon(&attached);
    volume.cut_power();
    is_note(&site);
    let attached = site.attach_again();
    assert_eq!(fs::read(&table).unwrap(), blocks(5, 64));
    good(&["detach", home]);
    wait_until("the daemon has ended", || !is_alive(attached["pid"].as_u64().unwrap()));
    is_plain(&site);
    assert_eq!(fs::read(&table).unwrap(), blocks(5, 64));

    // Without a daemon: beneath its dead mount, and after another cut.
    let attached = site.attach(&[]);
    fs::write(&table, blocks(7, 64)).unwrap();
    site.kill_daemon(&attached);
    good(&["detach", home]);
    is_plain(&site);
    assert_eq!(fs::read(&table).unwrap(), blocks(7, 64));
    let attached = site.attach(&[]);
    fs::write(&table, blocks(9, 64)).unwrap();
    site.kill_daemon(&attached);
    volume.cut_power();
    good(&["detach", home]);
    is_plain(&site);
    assert_eq!(fs::read(&table).unwrap(), blocks(9, 64));
}

#[test]
fn a_mount_point_is_mounted_elsewhere_with_the_note_at_its_path() {
    let Some((site, _volume)) = site("a mount point that is mounted elsewhere") else { return };
    let at = site.fast.parent().unwrap().join("at");
    fs::create_dir(&at).unwrap();
    let attached = site.attach(&["--at", at.to_str().unwrap()]);
    is_note(&site);
    assert_eq!(fs::read(at.join("PG_VERSION")).unwrap(), b"15\n");
    assert_eq!(kinds_at(&at), ["fuse"]);
    good(&["detach", site.home_str()]);
    wait_until("the daemon has ended", || !is_alive(attached["pid"].as_u64().unwrap()));
    fs::remove_dir(&at).unwrap();
    is_plain(&site);
}

#[test]
fn a_first_attach_that_fails_leaves_the_mount_point_plain() {
    let Some((site, _volume)) = site("a failing attach of a mount point") else { return };
    let first =
        ["attach", site.home_str(), "--fast", site.fast_str(), "--emulate", "--size", "24M"];
    // Before anything moves: what stands where the passage goes is somebody else's.
    let passage = site.path().join("db.tiersmith-home");
    fs::create_dir(&passage).unwrap();
    chown(&passage, Some(4711), None).unwrap();
    let said = refused(&first);
    assert!(said.contains("belongs to user 4711"), "{said}");
    fs::remove_dir(&passage).unwrap();
    is_plain(&site);
    // After the files have moved: the daemon cannot make its socket.
    let control = site.path().join("db.tiersmith-control");
    fs::create_dir_all(control.join("theirs")).unwrap();
    let said = refused(&first);
    assert!(said.contains("db.tiersmith-control"), "{said}");
    fs::remove_dir_all(&control).unwrap();
    is_plain(&site);
}

#[test]
fn who_is_not_root_cannot_attach_a_mount_point() {
    let Some((site, _volume)) = site("a mount point without root") else { return };
    fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = site.path().join("program");
    fs::copy(env!("CARGO_BIN_EXE_tiersmith"), &program).unwrap();
    let done = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&program)
        .args(["attach", site.home_str(), "--fast", site.fast_str(), "--emulate", "--size", "24M"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    fs::remove_file(&program).unwrap();
    assert_eq!(done.status.code(), Some(2), "{}", text(&done));
    assert!(text(&done).contains("only root can move aside"), "{}", text(&done));
    assert!(!text(&done).contains("  "), "{}", text(&done));
    is_plain(&site);
}

/// The calls that change a name or an owner, a mode or a mount, and those that make it durable.
const CALLS: [&str; 10] = [
    "renameat2",
    "renameat",
    "mkdirat",
    "unlinkat",
    "fchown",
    "fchownat",
    "fchmod",
    "move_mount",
    "umount2",
    "fsync",
];

/// Runs the program and kills whichever of its processes comes to number `n` of this call; whether
/// that came to be.
fn killed_at(call: &str, n: usize, arguments: &[&str]) -> bool {
    fails_with(call, &format!("signal=SIGKILL:when={n}"), arguments)
}

/// Runs the program, with this done to its calls of one kind; whether it failed.
fn fails_with(call: &str, what: &str, arguments: &[&str]) -> bool {
    let inject = format!("inject={call}:{what}");
    let done = Command::new("strace")
        .args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject])
        .arg(env!("CARGO_BIN_EXE_tiersmith"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    !done.success()
}

/// Neither all of the database nor nothing of it at the path, and not locked: a server could start.
fn no_back_door(site: &Site, when: &str) {
    if kinds_at(&site.home) != ["ext4"] {
        return;
    }
    let here = names(&site.home);
    let count = ["PG_VERSION", "base", "global", "pg_wal", "pg_xact"];
    let count = count.iter().filter(|name| here.contains(&(**name).to_owned())).count();
    let top = fs::metadata(&site.home).unwrap();
    let locked = top.uid() == 0 && top.mode() & 0o077 == 0;
    assert!(count == 0 || count == 5 || locked, "{when}: {count} of 5 names: {here:?}");
}

/// Kills `attach`, or `detach` of an attached home, at one call after the other; then the named
/// command goes on or back.
fn kills(what: &str, detaching: bool) {
    if Command::new("strace").arg("-V").output().is_err() {
        return eprintln!("skipped: {what}, because strace is not installed");
    }
    let Some((site, mut volume)) = site(what) else { return };
    let home = site.home_str();
    let first = ["attach", home, "--fast", site.fast_str(), "--emulate", "--size", "24M"];
    let all = std::env::var("TIERSMITH_ATTACH_KILLS").is_ok_and(|value| value == "all");
    let table = site.home.join("base/1/1259");
    let (mut kills, mut between) = (0, 0);
    let step = if all { 1 } else { EVERY };
    let mut ended = BTreeSet::new();
    for (call, n) in
        CALLS.into_iter().flat_map(|call| (1..MOST).step_by(step).map(move |n| (call, n)))
    {
        if ended.contains(call) {
            continue;
        }
        let written = blocks(kills as u8 + 1, 64);
        if detaching {
            let attached = site.attach(&[]);
            fs::write(&table, &written).unwrap();
            // The command itself detaches: its daemon has been killed.
            site.kill_daemon(&attached);
        } else {
            fs::write(&table, &written).unwrap();
            // This is not what the power cut is about.
            assert!(run("sync", &["-f", home]));
        }
        let command: &[&str] = if detaching { &["detach", home] } else { &first };
        if !killed_at(call, n, command) {
            // It ran to its end.
            ended.insert(call);
            if !detaching {
                good(&["detach", home]);
            }
            continue;
        }
        kills += 1;
        let when = format!("{what}, {call} {n}");
        for pid in crate::daemon::daemons_of(site.path()) {
            wait_until("the killed process is gone", || !is_alive(pid));
        }
        if kills % 2 == 0 {
            volume.cut_power();
        }
        no_back_door(&site, &when);
        let status = tiersmith(&["status", home]);
        if text(&status).contains("moving the files of") {
            between += 1;
            assert!(
                text(&status).contains("`tiersmith attach` or `tiersmith detach`"),
                "{}",
                text(&status)
            );
        }
        if kills % 3 == 0 {
            // On, where the tier is known; a first attach names it again.
            let attached = json(&good(&[&first[..], &["--json"]].concat()));
            assert_eq!(fs::read(&table).unwrap(), written, "{when}");
            good(&["detach", home]);
            wait_until("the daemon has ended", || !is_alive(attached["pid"].as_u64().unwrap()));
        } else {
            good(&["detach", home]);
        }
        assert_eq!(fs::read(&table).unwrap(), written, "{when}");
        // A tier that was made and never attached is no part of the home.
        for left in fs::read_dir(&site.fast).unwrap() {
            fs::remove_file(left.unwrap().path()).unwrap();
        }
        let _ = fs::remove_file(site.path().join("db.tiersmith-log"));
        is_plain(&site);
    }
    eprintln!("{what}: {kills} kills, {between} of them between");
    assert!(kills >= 10 && between > 0, "only {kills} kills, {between} of them between");
    assert_eq!(ended.len(), CALLS.len(), "it never ends");
}

#[test]
fn attaching_a_mount_point_may_be_killed_at_any_call() {
    kills("killing the attach of a mount point", false);
}

#[test]
fn detaching_a_mount_point_may_be_killed_at_any_call() {
    kills("killing the detach of a mount point", true);
}

/// The file system fails once, or from some call on for good, so that what undoes it fails too.
#[test]
fn a_detach_whose_file_system_fails_leaves_a_mount_point_that_the_next_one_gives_back() {
    let what = "a mount point whose file system fails";
    if Command::new("strace").arg("-V").output().is_err() {
        return eprintln!("skipped: {what}, because strace is not installed");
    }
    let Some((site, mut volume)) = site(what) else { return };
    let home = site.home_str();
    let all = std::env::var("TIERSMITH_ATTACH_KILLS").is_ok_and(|value| value == "all");
    let table = site.home.join("base/1/1259");
    let mut failed = 0;
    for (call, most) in [("renameat2", 12), ("unlinkat", 12), ("fsync", 24), ("fchmod", 6)] {
        for n in (1..=most).step_by(if all { 1 } else { EVERY }) {
            for upwards in ["", "+"] {
                let written = blocks(failed + 1, 64);
                let attached = site.attach(&[]);
                fs::write(&table, &written).unwrap();
                site.kill_daemon(&attached);
                let how = format!("error=EIO:when={n}{upwards}");
                let when = format!("{call} {how}");
                if fails_with(call, &how, &["detach", home]) {
                    failed += 1;
                    if n % 2 == 0 {
                        volume.cut_power();
                    }
                }
                no_back_door(&site, &when);
                // Also where it did not fail: what was left beside the home goes.
                good(&["detach", home]);
                let found = fs::read(&table).unwrap_or_else(|e| panic!("{when}: {e}"));
                assert_eq!(found, written, "{when}");
                // What could not be removed; the next opener would do it.
                let _ = fs::remove_file(site.home.join(".tiersmith.probe"));
                let _ = fs::remove_file(site.path().join("db.tiersmith-log"));
                for left in fs::read_dir(&site.fast).unwrap() {
                    fs::remove_file(left.unwrap().path()).unwrap();
                }
                is_plain(&site);
            }
        }
    }
    eprintln!("{what}: {failed} detaches failed");
    assert!(failed >= 8, "only {failed} failed");
}

//! What a home's owner can put in the way of root's commands: pipes, sockets, links and lists at
//! the names they look at, and a false daemon. Each command ends within seconds, with a sentence.
//!
//! Deliberately absent: names that change while a command runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::daemon::{
    Site, blocks, can_mount, command, good, is_mounted, is_root, json, kill, text, tiersmith,
};

/// No command waits so long for what is planted; the machine may be slow.
const SECONDS: Duration = Duration::from_secs(20);
/// An account that nobody needs to have.
const MALLORY: u32 = 54_321;

/// What is planted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Plant {
    Pipe,
    Socket,
    EndlessDevice,
    Directory,
    Dangling,
    Loop,
}

const PLANTS: [Plant; 6] = [
    Plant::Pipe,
    Plant::Socket,
    Plant::EndlessDevice,
    Plant::Directory,
    Plant::Dangling,
    Plant::Loop,
];

impl Plant {
    fn put(self, at: &Path) {
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        match self {
            Plant::Pipe => assert!(Command::new("mkfifo").arg(at).status().unwrap().success()),
            // Its path may be longer than an address.
            Plant::Socket => {
                let near = at.parent().unwrap().join("s");
                drop(UnixListener::bind(&near).unwrap());
                fs::rename(&near, at).unwrap();
            }
            Plant::EndlessDevice => symlink("/dev/zero", at).unwrap(),
            Plant::Directory => {
                fs::create_dir(at).unwrap();
                fs::write(at.join("inside"), "x").unwrap();
            }
            Plant::Dangling => symlink("nowhere", at).unwrap(),
            Plant::Loop => symlink(at.file_name().unwrap(), at).unwrap(),
        }
    }

    fn take_away(at: &Path) {
        match at.symlink_metadata() {
            Ok(found) if found.is_dir() => fs::remove_dir_all(at).unwrap(),
            Ok(_) => fs::remove_file(at).unwrap(),
            Err(_) => {}
        }
    }
}

/// Runs a command that must end in time, and if it refuses, with one clean sentence.
fn run(arguments: &[&str], about: &str) -> Output {
    let mut child = command(arguments).spawn().unwrap();
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > SECONDS {
            kill("KILL", child.id().into());
            let _ = child.wait();
            panic!("{arguments:?} did not end beside {about}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("panicked"), "{arguments:?} beside {about}: {said}");
    match output.status.code() {
        Some(0 | 1) => {}
        Some(2) => {
            assert_eq!(said.trim_end().lines().count(), 1, "{arguments:?} beside {about}: {said}")
        }
        _ => panic!("{arguments:?} beside {about}: {:?} {said}", output.status),
    }
    output
}

fn tier_name(site: &Site) -> String {
    site.home_str().trim_start_matches('/').replace('/', "-") + ".tier"
}

/// Every name that the commands look at and the home's owner can change.
fn names(site: &Site) -> Vec<PathBuf> {
    let beside = [
        ".tiersmith-home",
        ".tiersmith-log",
        ".tiersmith-log.old",
        ".tiersmith-control",
        ".tiersmith-detach",
    ];
    let inside = [
        ".tiersmith",
        ".tiersmith.new",
        ".tiersmith.probe",
        "postmaster.pid",
        "PG_VERSION",
        "global/pg_control",
        "postgresql.conf",
        "postgresql.auto.conf",
        "pg_tblspc",
        "pg_wal",
        "ibdata1",
        "shop.isl",
        "appendonlydir",
        "README-TIERSMITH.txt",
    ];
    let tier = tier_name(site);
    let fast = [tier.clone(), tier + ".lent"];
    let beside = beside.iter().map(|suffix| site.path().join(format!("db{suffix}")));
    let inside = inside.iter().map(|name| site.home.join(name));
    beside.chain(inside).chain(fast.iter().map(|name| site.fast.join(name))).collect()
}

#[test]
fn every_command_ends_beside_whatever_is_planted() {
    if !can_mount("planted pipes, devices and links") {
        return;
    }
    let site = Site::postgres_like();
    symlink(site.path(), site.home.join("link")).unwrap();
    let home = site.home_str();
    let attach = ["attach", home, "--fast", site.fast_str(), "--emulate", "--size", "24M"];
    for name in names(&site) {
        for plant in PLANTS {
            let about = format!("a {plant:?} at {}", name.display());
            let before = site.path().join("before");
            let was = fs::rename(&name, &before).is_ok();
            plant.put(&name);
            run(&["status", home], &about);
            run(&["check", home], &about);
            run(&attach, &about);
            run(&["status", home, "--json"], &about);
            run(&["detach", home], &about);
            // What was in the way of an end is taken out of it: the same command goes on.
            let aside = site.path().join("db.tiersmith-home/home");
            let inside = name.strip_prefix(&site.home);
            let is_aside = aside.join(".tiersmith").exists();
            let now =
                inside.ok().filter(|_| is_aside).map_or(name.clone(), |inside| aside.join(inside));
            Plant::take_away(&now);
            good(&["detach", home]);
            if was {
                fs::rename(&before, &name).unwrap();
            }
            assert!(!is_mounted(&site.home), "{about}");
            assert_eq!(fs::read(site.home.join("base/1/1259")).unwrap(), blocks(0, 64), "{about}");
        }
    }
    site.assert_plain();
}

#[test]
fn every_command_ends_beside_what_is_planted_while_it_is_attached() {
    if !can_mount("what is planted while a home is attached") {
        return;
    }
    let site = Site::postgres_like();
    let home = site.home_str();
    let _ = site.attach(&[]);
    good(&["unmount", home]);
    let aside = site.path().join("db.tiersmith-home/home");
    for name in names(&site) {
        let now = name.strip_prefix(&site.home).map_or(name.clone(), |inside| aside.join(inside));
        for plant in PLANTS {
            let about = format!("a {plant:?} at {}", now.display());
            let before = site.path().join("before");
            let was = fs::rename(&now, &before).is_ok();
            plant.put(&now);
            for command in ["status", "check", "attach", "unmount"] {
                run(&[command, home], &about);
            }
            Plant::take_away(&now);
            if was {
                fs::rename(&before, &now).unwrap();
            }
        }
    }
    good(&["attach", home]);
    assert_eq!(fs::read(site.home.join("base/1/1259")).unwrap(), blocks(0, 64));
    good(&["detach", home]);
    site.assert_plain();
}

#[test]
fn every_command_ends_beside_a_home_that_is_no_directory() {
    let site = Site::new();
    for plant in PLANTS.into_iter().filter(|plant| *plant != Plant::Directory) {
        let home = site.path().join("odd");
        plant.put(&home);
        let home_str = home.to_str().unwrap();
        for arguments in [
            &["status", home_str][..],
            &["check", home_str],
            &["attach", home_str, "--fast", site.fast_str(), "--emulate", "--size", "24M"],
            &["detach", home_str],
        ] {
            let output = run(arguments, &format!("a {plant:?} as the home"));
            assert_eq!(output.status.code(), Some(2), "{arguments:?} {plant:?}: {}", text(&output));
        }
        Plant::take_away(&home);
    }
}

/// SQLite opens a journal by its path, so the program has to keep it from waiting.
#[test]
fn no_command_waits_for_a_pipe_at_a_journals_name() {
    let dir = tempfile::tempdir().unwrap();
    let repository = dir.path().join("load.db");
    let repository = repository.to_str().unwrap();
    let recorded =
        run(&["awr", "record", "--source", "host", "--to", repository, "--", "true"], "nothing");
    assert!(recorded.status.success(), "{recorded:?}");
    Plant::Pipe.put(Path::new(&format!("{repository}-journal")));
    let listed = run(&["awr", "list", repository], "a pipe at a journal's name");
    assert_eq!(listed.status.code(), Some(2), "{listed:?}");
}

#[test]
fn a_list_of_an_interrupted_detach_that_was_kept_removes_no_other_tier() {
    if !can_mount("a list that was kept") {
        return;
    }
    let site = Site::postgres_like();
    let home = site.home_str();
    let tier = site.fast.join("shared.tier");
    let tier_str = tier.to_str().unwrap();
    let attach = |home: &str| {
        json(&good(&["attach", home, "--fast", tier_str, "--emulate", "--size", "24M", "--json"]));
    };
    attach(home);
    // What keeps the detach from its end, so that the list stays.
    let log = site.path().join("db.tiersmith-log");
    fs::remove_file(&log).unwrap();
    fs::create_dir(&log).unwrap();
    assert_eq!(tiersmith(&["detach", home]).status.code(), Some(2));
    let (list, kept) = (site.path().join("db.tiersmith-detach"), site.path().join("kept"));
    fs::rename(&list, &kept).unwrap();
    fs::remove_dir(&log).unwrap();
    good(&["detach", home]);
    let _ = fs::remove_file(&tier);
    // Another home's, at the same path.
    let other = site.path().join("other");
    let other_str = other.to_str().unwrap();
    fs::create_dir(&other).unwrap();
    attach(other_str);
    fs::write(other.join("file"), "precious").unwrap();
    for kept_by in ["detach", "attach"] {
        fs::copy(&kept, &list).unwrap();
        let output = tiersmith(
            &[kept_by, home, "--fast", site.fast_str(), "--emulate"]
                [..if kept_by == "attach" { 5 } else { 2 }],
        );
        assert!(
            tier.exists(),
            "{kept_by} with a list that was kept removed another home's tier: {}",
            text(&output)
        );
    }
    good(&["detach", home]);
    good(&["detach", other_str]);
    assert_eq!(fs::read(other.join("file")).unwrap(), b"precious");
}

/// Takes every request at a socket as MALLORY, and does this with whoever sent it.
fn false_daemon(socket: &Path, act: impl Fn(UnixStream) + Send + 'static) {
    use rustix::process::{Gid, Uid};
    use std::io::Read;
    let socket = socket.to_path_buf();
    let (ready, listens) = std::sync::mpsc::channel();
    drop(std::thread::spawn(move || {
        let (user, group) = (Uid::from_raw(MALLORY), Gid::from_raw(MALLORY));
        rustix::thread::set_thread_res_gid(group, group, group).unwrap();
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        let listener = UnixListener::bind(socket).unwrap();
        ready.send(()).unwrap();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut length = [0; 4];
            if stream.read_exact(&mut length).is_err() {
                continue;
            }
            let mut asked = vec![0; u32::from_le_bytes(length) as usize];
            stream.read_exact(&mut asked).unwrap();
            act(stream);
        }
    }));
    listens.recv_timeout(SECONDS).unwrap();
}

/// Answers with these words.
fn says(reply: &'static str) -> impl Fn(UnixStream) + Send + 'static {
    use std::io::Write;
    move |mut stream| {
        let mut whole = (reply.len() as u32).to_le_bytes().to_vec();
        whole.extend_from_slice(reply.as_bytes());
        let _ = stream.write_all(&whole);
    }
}

fn give(path: &Path) {
    std::os::unix::fs::lchown(path, Some(MALLORY), Some(MALLORY)).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path());
        }
    }
}

/// A home of MALLORY's that looks as if she had attached it: of a home that root has attached no
/// daemon of hers is asked. `None`, said on standard error, where that cannot be had.
fn attached_by_its_owner(what: &str) -> Option<(Site, PathBuf)> {
    use std::os::unix::fs::PermissionsExt;
    if !is_root() {
        eprintln!("skipped: {what}, because only root can be another account");
        return None;
    }
    if !can_mount(what) {
        return None;
    }
    let mut site = Site::new();
    fs::set_permissions(site.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let hers = site.path().join("mallory");
    site.home = hers.join("db");
    fs::create_dir_all(&site.home).unwrap();
    fs::write(site.home.join("file"), "x").unwrap();
    give(&hers);
    good(&["attach", site.home_str(), "--fast", site.fast_str(), "--emulate", "--size", "24M"]);
    good(&["unmount", site.home_str()]);
    let vault = hers.join("db.tiersmith-home");
    std::os::unix::fs::lchown(vault, Some(MALLORY), Some(MALLORY)).unwrap();
    Some((site, hers.join("db.tiersmith-control")))
}

#[test]
fn a_false_daemon_is_not_believed_and_commands_no_terminal() {
    let Some((site, socket)) = attached_by_its_owner("a false daemon") else { return };
    let home = site.home_str();
    false_daemon(
        &socket,
        says(r#"{"reply":"done","done":{"files":0,"blocks":0,"left_out":["\u001b]0;x\u0007"]}}"#),
    );
    let said = run(&["detach", home], "a false daemon");
    assert_eq!(said.status.code(), Some(2), "a false daemon's word was believed: {}", text(&said));
    assert!(text(&said).contains("is not detached"), "{}", text(&said));
    let said = run(&["flush", home], "a false daemon");
    assert!(!text(&said).contains(['\x1b', '\x07']), "{:?}", text(&said));
    fs::remove_file(&socket).unwrap();
    false_daemon(
        &socket,
        says(r#"{"reply":"failed","error":"no\u001b[2J\nroot: all is well\u009b1m"}"#),
    );
    for command in ["status", "detach", "flush", "unmount"] {
        let said = run(&[command, home], "a false daemon");
        assert_eq!(said.status.code(), Some(2), "{}", text(&said));
        assert!(!text(&said).trim_end().contains(|c: char| c.is_control()), "{:?}", text(&said));
    }
    fs::remove_file(&socket).unwrap();
    good(&["detach", home]);
    assert_eq!(fs::read(site.home.join("file")).unwrap(), b"x");
}

#[test]
fn a_false_daemon_keeps_no_command_from_its_end() {
    let Some((site, socket)) = attached_by_its_owner("a false daemon that waits") else { return };
    let home = site.home_str();
    // The length of an answer, and a byte of it now and then.
    let drip = |mut stream: UnixStream| {
        use std::io::Write;
        let _ = stream.write_all(&1_000_000_u32.to_le_bytes());
        while stream.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    // Kept, so that it does not look like one that has ended.
    let silent = |stream: UnixStream| std::mem::forget(stream);
    for (commands, drips) in [(&["detach", "flush"][..], false), (&["detach"], true)] {
        if drips {
            false_daemon(&socket, drip);
        } else {
            false_daemon(&socket, silent);
        }
        for command in commands {
            let said = run(&[command, home], "a daemon that never answers");
            assert_eq!(said.status.code(), Some(2), "{command}: {}", text(&said));
            assert!(text(&said).contains("no sign of life"), "{command}: {}", text(&said));
            // This test's process began to listen, as MALLORY, and is root's.
            let process = std::process::id().to_string();
            assert!(!text(&said).contains(&process), "{command}: {}", text(&said));
        }
        fs::remove_file(&socket).unwrap();
    }
    // It says to everything that it was done, and is asked to unmount once.
    false_daemon(&socket, says(r#"{"reply":"done","done":{"files":0,"blocks":0,"left_out":[]}}"#));
    let said = run(&["detach", "--skip-unreadable", home], "a daemon that says it has unmounted");
    assert_eq!(said.status.code(), Some(0), "{}", text(&said));
    assert_eq!(fs::read(site.home.join("file")).unwrap(), b"x");
}

#[test]
fn the_name_of_a_held_file_commands_no_terminal() {
    let site = Site::postgres_like();
    let odd = site.home.join("\x1b]0;x\x07\nroot: all is well");
    let _held = fs::File::create(&odd).unwrap();
    let said =
        run(&["attach", site.home_str(), "--fast", site.fast_str(), "--emulate"], "a held file");
    assert_eq!(said.status.code(), Some(2));
    assert!(!text(&said).trim_end().contains(|c: char| c.is_control()), "{:?}", text(&said));
    assert!(text(&said).contains("in use"), "{}", text(&said));
}

#[test]
fn no_name_in_a_mount_forges_a_line_of_the_log_or_fills_it() {
    const FILES: u64 = 80;
    if !can_mount("names that forge lines of a log") {
        return;
    }
    let site = Site::postgres_like();
    // The daemon says of each that no map can hold it.
    let odd = |n: u64| format!("base/1/{n}\n2026-01-01 00:00:00 UTC tiersmith: all is well\x1b[2J");
    for n in 0..FILES {
        let file = fs::File::create(site.home.join(odd(n))).unwrap();
        if let Err(e) = file.set_len(2 << 40) {
            return eprintln!(
                "skipped: names that forge lines of a log, because files cannot be so long ({e})"
            );
        }
    }
    let _ = site.attach(&[]);
    for n in 0..FILES {
        drop(fs::File::open(site.home.join(odd(n))).unwrap());
    }
    let log = fs::read_to_string(site.path().join("db.tiersmith-log")).unwrap();
    assert!(log.contains("larger than a map can hold"), "nothing was said: {log:?}");
    assert!(!log.lines().any(|line| line.starts_with("2026-01-01")), "a line was forged: {log:?}");
    assert!(!log.contains('\x1b'), "{log:?}");
    let said = log.lines().filter(|line| line.contains("larger than")).count() as u64;
    assert!(said < FILES / 2, "{said} lines of one cause");
    good(&["detach", site.home_str()]);
    site.assert_plain();
}

//! A new program takes the place of the one that a daemon was started from: the daemon goes on, the
//! new program talks to it, takes over from it, and refuses what it cannot read.

use crate::daemon;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::daemon::{
    Site, blocks, can_mount, good, is_alive, json, kill, refused, text, wait_until,
};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A daemon whose program is replaced; it ends with the value, because the place looks for those
/// of the program under test only.
struct Daemon(u64);

impl Drop for Daemon {
    fn drop(&mut self) {
        kill("KILL", self.0);
        wait_until("the daemon is gone", || !is_alive(self.0));
    }
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    let done = Command::new(program).args(arguments).output().unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", text(&done));
    done
}

/// A new file of the same name, as packages are installed.
fn install(program: &Path) {
    let new = program.with_extension("new");
    fs::copy(env!("CARGO_BIN_EXE_tiersmith"), &new).unwrap();
    fs::rename(&new, program).unwrap();
}

/// A home attached by a program of its own, which is replaced; and the answer of `attach`.
fn attached_and_replaced(site: &Site) -> (PathBuf, Daemon) {
    let bin = site.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let program = bin.join("tiersmith");
    install(&program);
    let home = site.home_str();
    let arguments =
        ["attach", home, "--fast", site.fast_str(), "--emulate", "--size", "24M", "--json"];
    let attached: Value = json(&run(&program, &arguments));
    let pid = attached["pid"].as_u64().unwrap();
    let daemon = Daemon(pid);
    let started_from = || fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    assert_eq!(started_from(), program);
    install(&program);
    assert!(started_from().to_string_lossy().ends_with(" (deleted)"), "{:?}", started_from());
    (program, daemon)
}

#[test]
fn a_daemon_goes_on_when_its_program_is_replaced_and_the_new_one_takes_over() {
    if !can_mount("a daemon whose program is replaced") {
        return;
    }
    let site = Site::postgres_like();
    let (program, daemon) = attached_and_replaced(&site);
    let home = site.home_str();
    let file = site.home.join("base/1/1259");
    let open = fs::File::options().read(true).write(true).open(&file).unwrap();
    open.write_all_at(&blocks(7, 8), 0).unwrap();
    // The new program is understood by the old daemon.
    let status = json(&run(&program, &["status", home, "--json"]));
    assert_eq!(status["live"]["pid"], daemon.0, "{status}");
    run(&program, &["flush", home]);
    open.write_all_at(&blocks(9, 8), 8 * 8192).unwrap();
    assert!(is_alive(daemon.0));
    drop(open);
    // The database is stopped: the new program takes the home over, and gives it back.
    run(&program, &["unmount", home]);
    wait_until("the old daemon is gone", || !is_alive(daemon.0));
    let again: Value = json(&run(&program, &["attach", home, "--json"]));
    let second = Daemon(again["pid"].as_u64().unwrap());
    assert_eq!(fs::read_link(format!("/proc/{}/exe", second.0)).unwrap(), program);
    let expected = [blocks(7, 8), blocks(9, 8), blocks(0, 64)[16 * 8192..].to_vec()].concat();
    assert!(fs::read(&file).unwrap() == expected);
    run(&program, &["detach", home]);
    assert!(fs::read(&file).unwrap() == expected);
}

#[test]
fn the_new_program_detaches_a_home_that_the_old_daemon_serves() {
    if !can_mount("a daemon whose program is replaced") {
        return;
    }
    let site = Site::postgres_like();
    let (program, daemon) = attached_and_replaced(&site);
    let file = site.home.join("base/1/1259");
    fs::write(&file, blocks(3, 64)).unwrap();
    run(&program, &["detach", site.home_str()]);
    wait_until("the old daemon is gone", || !is_alive(daemon.0));
    assert!(fs::read(&file).unwrap() == blocks(3, 64));
    assert_eq!(fs::read_dir(&site.fast).unwrap().count(), 0, "a tier was left");
}

/// Writes a format version into both copies of a tier's superblock, as a program of that version
/// would leave them.
fn write_version(tier: &Path, version: u32) {
    const CHECK_KEY: u64 = 0x5449_4552_534d_5448;
    let file = fs::File::options().read(true).write(true).open(tier).unwrap();
    for at in [0, 4096] {
        let mut copy = [0; 4096];
        file.read_exact_at(&mut copy, at).unwrap();
        let sealed = |copy: &[u8]| xxh3_64_with_seed(&copy[..4088], CHECK_KEY).to_le_bytes();
        assert_eq!(copy[4088..], sealed(&copy), "the superblock is not where it was");
        copy[8..12].copy_from_slice(&version.to_le_bytes());
        let seal = sealed(&copy);
        copy[4088..].copy_from_slice(&seal);
        file.write_all_at(&copy, at).unwrap();
    }
}

#[test]
fn a_tier_of_another_format_is_refused_by_every_command_and_waits_for_its_program() {
    if !can_mount("a tier of another format version") {
        return;
    }
    let site = Site::postgres_like();
    let _ = site.attach(&[]);
    let home = site.home_str();
    let file = site.home.join("base/1/1259");
    fs::write(&file, blocks(5, 64)).unwrap();
    good(&["unmount", home]);
    let tier = fs::read_dir(&site.fast).unwrap().next().unwrap().unwrap().path();
    write_version(&tier, 3);
    let before = (fs::read(&tier).unwrap(), site.beside());
    for arguments in [&["attach", home][..], &["detach", home], &["check", home, "--cold"]] {
        let said = daemon::tiersmith(arguments);
        assert!(!said.status.success(), "{arguments:?}: {}", text(&said));
        let said = text(&said);
        assert!(
            said.contains("has format version 3, this program reads version 2"),
            "{arguments:?}: {said}"
        );
        let way_out = "the Tiersmith that attached it";
        assert!(said.contains(way_out), "{arguments:?}: {said}");
    }
    assert!(before == (fs::read(&tier).unwrap(), site.beside()), "a refusal changed something");
    // With the program that it belongs to, all is there.
    write_version(&tier, 2);
    let _ = site.attach_again();
    assert!(fs::read(&file).unwrap() == blocks(5, 64));
    good(&["detach", home]);
    site.assert_plain();
}

#[test]
fn a_daemon_whose_answers_are_another_versions_is_named_with_what_to_do() {
    if !can_mount("a daemon of another version") {
        return;
    }
    let site = Site::postgres_like();
    let _ = site.attach(&[]);
    let home = site.home_str();
    good(&["unmount", home]);
    // What listens here now stands for the daemon of another version.
    let control = format!("{home}.tiersmith-control");
    let _ = fs::remove_file(&control);
    let listener = UnixListener::bind(&control).unwrap();
    let answering = std::thread::spawn(move || {
        for _ in 0..3 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut length = [0; 4];
            stream.read_exact(&mut length).unwrap();
            let mut request = vec![0; u32::from_le_bytes(length) as usize];
            stream.read_exact(&mut request).unwrap();
            let answer = br#"{"reply":"status","live":{"figures":{"of":"version 2"}}}"#;
            stream.write_all(&(answer.len() as u32).to_le_bytes()).unwrap();
            stream.write_all(answer).unwrap();
        }
    });
    for command in ["status", "flush", "attach"] {
        let said = refused(&[command, home]);
        assert!(said.contains("another version of Tiersmith"), "{command}: {said}");
        let way_out = format!("tiersmith unmount {home}, or kill {}", std::process::id());
        assert!(said.contains(&way_out), "{command}: {said}");
    }
    answering.join().unwrap();
    fs::remove_file(&control).unwrap();
    let _ = site.attach_again();
    good(&["detach", home]);
    site.assert_plain();
}

//! What could not be made is not there: whichever call of the daemon fails while it makes
//! something, the program hears of it, finds no name, and can try again.
//!
//! `strace` lets the calls of a running daemon fail.

use crate::daemon::Daemon;
use crate::place::{Place, skipped, until};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tiersmith_mount::Options;

fn strace_is_missing() -> bool {
    let there =
        Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok_and(|s| s.success());
    if !there {
        println!("skipped: strace is not installed, so no call can be made to fail");
    }
    !there
}

/// Lets the `nth` call that each thread of a process makes of these fail, until it is dropped.
struct Failing(Child);

impl Failing {
    fn of(pid: u32, calls: &str, nth: u32) -> Self {
        let inject = format!("inject={calls}:error=EIO:when={nth}");
        let strace = Command::new("strace")
            .args(["-f", "-q", "-o", "/dev/null", "-e", &format!("trace={calls}"), "-e", &inject])
            .args(["-p", &pid.to_string()])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let traced = |task: io::Result<fs::DirEntry>| {
            let status =
                fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
            status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
        };
        until("strace to be there", || {
            fs::read_dir(format!("/proc/{pid}/task")).unwrap().all(traced)
        });
        Self(strace)
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

fn create(path: &Path) -> io::Result<()> {
    fs::File::create_new(path).map(drop)
}

fn mkdir(path: &Path) -> io::Result<()> {
    fs::create_dir(path)
}

fn mkfifo(path: &Path) -> io::Result<()> {
    Ok(mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0)?)
}

fn mknod_of_a_file(path: &Path) -> io::Result<()> {
    Ok(mknodat(CWD, path, FileType::RegularFile, Mode::RWXU, 0)?)
}

fn symlink(path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink("somewhere", path)
}

/// Makes something at a path.
type Make = fn(&Path) -> io::Result<()>;

/// Makes things while the first, second, ... of these calls fails. Returns how many were refused.
fn refusals(calls: &str, made: &[(&str, Make)]) -> u32 {
    let place = Place::plain(16, Options::default());
    let daemon = Daemon::start(place.path(), 16 << 20, true);
    let mut refused = 0;
    for (name, make) in made {
        for nth in 1..=6 {
            let path = place.at(&format!("{nth}.{name}"));
            let failing = Failing::of(daemon.pid(), calls, nth);
            let outcome = make(&path);
            drop(failing);
            let there = fs::symlink_metadata(&path).is_ok();
            assert_eq!(there, outcome.is_ok(), "call {nth} of {calls}, {name}: {outcome:?}");
            if let Err(e) = outcome {
                assert_eq!(
                    e.raw_os_error(),
                    Some(rustix::io::Errno::IO.raw_os_error()),
                    "{name}: {e}"
                );
                refused += 1;
                make(&path).unwrap_or_else(|e| panic!("call {nth} of {calls}, {name}, again: {e}"));
            }
        }
    }
    refused
}

#[test]
fn what_cannot_be_made_durable_is_not_there_and_can_be_made_again() {
    if skipped("a mount whose daemon cannot sync") || strace_is_missing() {
        return;
    }
    let made: [(&str, Make); 6] = [
        ("d8", create),
        ("txt", create),
        ("directory", mkdir),
        ("pipe", mkfifo),
        ("node", mknod_of_a_file),
        ("link", symlink),
    ];
    let refused = refusals("fsync,fdatasync", &made);
    assert!(refused >= made.len() as u32, "{refused} were refused");
}

#[test]
fn a_file_that_is_made_and_cannot_be_looked_at_is_taken_back() {
    if skipped("a mount whose daemon cannot look at files") || strace_is_missing() {
        return;
    }
    let refused = refusals("statx", &[("d8", create), ("txt", create)]);
    assert!(refused >= 4, "{refused} were refused");
}

//! Locks on files of the mount are the kernel's own: two handles, two processes and the three kinds
//! of lock exclude each other as on any local file system.

use crate::place;
use crate::place::{Place, skipped};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

const NAMES: [&str; 3] = ["a.redo", "a.d8", "a.pass"];
const CHILD: &str = "TIERSMITH_TEST_LOCK";

/// Takes a lock on the whole file without waiting: POSIX's (of the process) or the open file
/// description's.
fn lock(file: &File, exclusive: bool, description: bool) -> bool {
    let kind = if exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
    // SAFETY: a flock of zeros is a valid one.
    let mut what: libc::flock = unsafe { std::mem::zeroed() };
    what.l_type = kind as libc::c_short;
    let call = if description { libc::F_OFD_SETLK } else { libc::F_SETLK };
    // SAFETY: the descriptor is open, and `what` lives across the call.
    unsafe { libc::fcntl(file.as_raw_fd(), call, &raw const what) == 0 }
}

fn open(path: &std::path::Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Not a test: another process, which takes a lock, says whether it got it, and holds it until its
/// input ends.
#[test]
fn the_other_process() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let file = open(path.as_ref());
    println!("lock {}", if lock(&file, true, false) { "taken" } else { "refused" });
    std::io::stdout().flush().unwrap();
    let _ = std::io::stdin().lines().next();
}

/// Starts the other process; returns whether it got the lock, and what ends it.
fn other_process(path: &std::path::Path) -> (bool, Other) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([full_name!("the_other_process").as_str(), "--exact", "--nocapture"])
        .env(CHILD, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines.by_ref().map(|l| l.unwrap()).find(|l| l.contains("lock ")).unwrap();
    (said.ends_with("taken"), Other { child, _lines: lines })
}

/// The other process, which ends with the value.
struct Other {
    child: std::process::Child,
    _lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[test]
fn a_lock_of_one_process_keeps_another_out() {
    if skipped("a_lock_of_one_process_keeps_another_out") {
        return;
    }
    let place = Place::new(8);
    for name in NAMES {
        let path = place.at(name);
        let mine = open(&path);
        assert!(lock(&mine, true, false), "{name}");
        let (taken, child) = other_process(&path);
        assert!(!taken, "{name}");
        drop(child);
        drop(mine);
        let (taken, child) = other_process(&path);
        assert!(taken, "{name}: free after the file was closed");
        let mine = open(&path);
        assert!(!lock(&mine, true, false), "{name}");
        drop(child);
        place::until("the lock of the process that ended", || lock(&mine, true, false));
    }
}

#[test]
fn two_handles_of_one_process_exclude_each_other() {
    if skipped("two_handles_of_one_process_exclude_each_other") {
        return;
    }
    let place = Place::new(8);
    for name in NAMES {
        let (one, other) = (open(&place.at(name)), open(&place.at(name)));
        assert!(lock(&one, true, true) && !lock(&other, true, true), "{name}: of the open file");
        // `flock`: separate from the others on Linux.
        one.try_lock().unwrap();
        assert!(other.try_lock().is_err(), "{name}: flock");
        one.unlock().unwrap();
        other.try_lock_shared().unwrap();
        one.try_lock_shared().unwrap();
        drop(one);
        assert!(lock(&other, true, true), "{name}: after the other was closed");
    }
}

#[test]
fn appends_of_several_handles_do_not_overwrite_each_other() {
    if skipped("appends_of_several_handles_do_not_overwrite_each_other") {
        return;
    }
    let place = Place::new(16);
    const EACH: usize = 300;
    for name in NAMES {
        std::thread::scope(|scope| {
            for n in 0..4u8 {
                let path = place.at(name);
                scope.spawn(move || {
                    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
                    for _ in 0..EACH {
                        file.write_all(&[n + 1; 700]).unwrap();
                    }
                });
            }
        });
        let file = File::open(place.at(name)).unwrap();
        assert_eq!(file.metadata().unwrap().len() as usize, 4 * EACH * 700, "{name}");
        let mut counts = [0; 5];
        let mut record = [0; 700];
        for n in 0..4 * EACH {
            file.read_exact_at(&mut record, (n * 700) as u64).unwrap();
            assert!(record.iter().all(|b| *b == record[0]), "{name}: record {n} is torn");
            counts[usize::from(record[0])] += 1;
        }
        assert_eq!(counts, [0, EACH, EACH, EACH, EACH], "{name}");
    }
}

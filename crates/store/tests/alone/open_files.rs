//! More files than a process may have open: a home of thousands of files under `ulimit -n 256`.
//!
//! The test runs itself again as a process with that limit, soft and hard, so that the limit of the
//! other tests stays what it is.

use crate::place;

use crate::place::{Place, contents, pattern};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use tiersmith_store::{AttachedHome, OpenMode, Options, TierSpec, attach};

const ROLE: &str = "TIERSMITH_FEW_FILES";
const LIMIT: u64 = 256;
const FILES: u64 = 2500;
const BLOCK: usize = 4096;

fn name(n: u64) -> String {
    format!("{}/{n}.d4", n % 10)
}

fn attach_at(dir: &Path) -> AttachedHome {
    let spec = TierSpec { slots: FILES + 100, ..place::small(dir.join("fast"), 48 << 20) };
    let options = Options { home_files_open: None, ..place::options() };
    attach(&dir.join("db"), &[spec], options).unwrap()
}

#[test]
fn a_home_of_thousands_of_files_works_where_a_process_may_open_256() {
    let place = Place::in_memory();
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            full_name!("process_that_may_open_few_files").as_str(),
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ROLE, place.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{said}");
    for n in (0..FILES).filter(|n| *n != 7) {
        let bytes = std::fs::read(place.home().join(name(n))).unwrap();
        assert!(bytes == pattern(n + 1, 0, BLOCK), "file {n} at home");
    }
}

/// Not a test: what the one above starts. By itself it does nothing.
#[test]
fn process_that_may_open_few_files() {
    let Some(dir) = std::env::var_os(ROLE).map(PathBuf::from) else { return };
    let few = Rlimit { current: Some(LIMIT), maximum: Some(LIMIT) };
    setrlimit(Resource::Nofile, few).unwrap();
    for n in 0..10 {
        std::fs::create_dir(dir.join(format!("db/{n}"))).unwrap();
    }
    let attached = attach_at(&dir);
    for n in 0..FILES {
        attached.create(name(n)).unwrap().write(0, &pattern(n, 0, BLOCK)).unwrap();
    }
    // As after a crash: every file is found again, and compared.
    drop(attached);
    let attached = attach_at(&dir);
    // Three times as many open at once as the process may open.
    let open: Vec<_> =
        (0..3 * LIMIT).map(|n| attached.open(name(n), OpenMode::WRITE).unwrap()).collect();
    for (n, file) in (0..).zip(&open) {
        assert!(contents(file) == pattern(n, 0, BLOCK), "file {n}");
    }
    // Removed while it is open, and then the least recently used of all.
    attached.unlink(name(7)).unwrap();
    attached.destage(None).unwrap();
    for n in 0..FILES {
        if n == 7 {
            continue;
        }
        let file = attached.open(name(n), OpenMode::WRITE).unwrap();
        file.write(0, &pattern(n + 1, 0, BLOCK)).unwrap();
    }
    assert!(contents(&open[7]) == pattern(7, 0, BLOCK));
    attached.evict(None, u64::MAX).unwrap();
    assert!(contents(&open[7]) == pattern(7, 0, BLOCK));
    drop(open);
    attached.detach().unwrap();
}

#[test]
fn files_are_opened_by_their_paths_while_they_are_renamed() {
    let place = Place::in_memory();
    std::fs::create_dir_all(place.home().join("a/b")).unwrap();
    let options = Options { home_files_open: Some(1), admit: false, ..place::options() };
    let attached = attach(&place.home(), &[place.tier(2 << 20)], options).unwrap();
    for n in 0..4 {
        attached.create(format!("a/b/{n}.d4")).unwrap().write(0, &pattern(n, 0, BLOCK)).unwrap();
    }
    // Every read has to open the file at home.
    attached.destage(None).unwrap();
    attached.evict(None, u64::MAX).unwrap();
    let mut open = Vec::new();
    for n in 0..4 {
        open.push(attached.open(format!("a/b/{n}.d4"), OpenMode::READ).unwrap());
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _done = place::Done(&stop);
            for _ in 0..500 {
                attached.rename("a/b/0.d4", "a/0.d4").unwrap();
                attached.rename("a/b", "c").unwrap();
                attached.rename("c", "a/b").unwrap();
                attached.rename("a/0.d4", "a/b/0.d4").unwrap();
            }
        });
        while !stop.load(Ordering::Acquire) {
            for (n, file) in (0..).zip(&open) {
                assert!(contents(file) == pattern(n, 0, BLOCK), "file {n}");
            }
        }
    });
    drop(open);
    attached.detach().unwrap();
}

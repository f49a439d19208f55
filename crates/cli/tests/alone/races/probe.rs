//! A probe of root in a directory of an unprivileged account, which sees the names that the probe
//! makes, with its process's number, and exchanges them while fio runs beside it.
//!
//! Deliberately absent: the names of other commands (`names.rs`).

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags};

use crate::races::attacker::{ATTACKER, become_user};
use crate::races::stage::{SECRET, Stage};
use crate::races::watch::Watch;
use crate::races::{can_race, number_of};

/// How long a probe may take: it writes and syncs 64 MiB, and starts fio nine times.
const LIMIT: Duration = Duration::from_secs(180);
/// The short run's probes in each directory.
const SHORT: u64 = 2;

/// What the attacker puts at a name, beside root's file that it can rename.
const TARGETS: [&str; 3] = ["roots/secret", "roots/new", "roots/work/db.tiersmith-log"];

/// Exchanges what the probe made with links and with a file of root, and plants links at every
/// other name that a probe may use; how often.
fn exchange(stage: &Path, seed: u64, stop: &AtomicBool) -> u64 {
    become_user(ATTACKER);
    let (db, decoys) = (stage.join("user/work/db"), stage.join("user/decoys"));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut others: Vec<PathBuf> = vec![decoys.join("note")];
    for (number, target) in TARGETS.iter().enumerate() {
        let link = decoys.join(number.to_string());
        symlink(stage.join(target), &link).unwrap();
        others.push(link);
    }
    let mut swaps = 0;
    while !stop.load(Ordering::Relaxed) {
        let entries = fs::read_dir(&db).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let made = names.filter(|name| name.starts_with(".tiersmith-probe."));
        let Some(name) = made.min_by_key(String::len) else { continue };
        for end in [".fio", ".fio-log", ".mapped"] {
            let target = stage.join(TARGETS[random.usize(..TARGETS.len())]);
            swaps += u64::from(symlink(target, db.join(format!("{name}{end}"))).is_ok());
        }
        let other = &others[random.usize(..others.len())];
        for _ in 0..random.u32(1..4) {
            let flags = RenameFlags::EXCHANGE;
            let done = rustix::fs::renameat_with(CWD, db.join(&name), CWD, other, flags);
            swaps += u64::from(done.is_ok());
            let began = Instant::now();
            let wait = Duration::from_micros(random.u64(..20_000));
            while began.elapsed() < wait && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }
    swaps
}

#[test]
fn nothing_of_roots_is_written_by_a_probe_while_names_are_exchanged() {
    let what = "probes of root in another account's directory";
    if !can_race(what) {
        return;
    }
    let _alone = crate::alone();
    let time = number_of("TIERSMITH_RACES_SECONDS").map(Duration::from_secs);
    let first = number_of("TIERSMITH_SEED").unwrap_or(1);
    let (mut runs, mut swapped, mut violations) = (0, 0, Vec::new());
    // Mapped, and through files: fio runs beside the second.
    for stage in [Stage::new(), Stage::for_temporary_files()] {
        let began = Instant::now();
        for seed in first.. {
            if time.map_or(seed >= first + SHORT, |time| began.elapsed() > time / 2) {
                break;
            }
            stage.set_up();
            let watch = Watch::begin(&stage);
            let (stop, swaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
            let attacker = {
                let (path, stop, swaps) = (stage.path.clone(), stop.clone(), swaps.clone());
                std::thread::spawn(move || {
                    swaps.store(exchange(&path, seed, &stop), Ordering::Relaxed);
                })
            };
            let arguments = ["probe", "user/work/db", "--seconds", "0.01", "--cross-check"];
            let ended = stage.run_within(LIMIT, &arguments.map(str::to_owned), || {});
            stop.store(true, Ordering::Relaxed);
            attacker.join().unwrap();
            (runs, swapped) = (runs + 1, swapped + swaps.load(Ordering::Relaxed));
            let mut found = watch.violations(&stage, &ended);
            // Wherever it was renamed to.
            found.extend(watch.change_of_roots_file_there(SECRET));
            for text in found {
                println!("VIOLATION: seed {seed}, {arguments:?}: {text}");
                violations.push(text);
            }
        }
    }
    println!("races: {runs} commands, {swapped} swaps, {} violations", violations.len());
    assert!(swapped > 0, "no name was exchanged");
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

//! The process behind the mount is killed while files are written: what was acknowledged is there
//! afterwards, and no block is torn.
//!
//! `TIERSMITH_KILL_ROUNDS` sets the number of rounds; each prints its seed.

use crate::daemon::Daemon;
use crate::place;
use crate::place::{Place, skipped};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tiersmith_mount::Options;

const BLOCK: usize = 8192;
const BLOCKS: u64 = 300;
const TIER: u64 = 9 << 20;

/// A block that says which one it is, and is all one version.
fn block(number: u64, version: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    for (n, chunk) in bytes.chunks_exact_mut(16).enumerate() {
        chunk[..8].copy_from_slice(&(number << 32 | n as u64).to_le_bytes());
        chunk[8..].copy_from_slice(&version.to_le_bytes());
    }
    bytes
}

/// The version of a block: 0 when it was never written, an error when it is torn.
fn version(number: u64, bytes: &[u8]) -> Result<u64, String> {
    if bytes.iter().all(|b| *b == 0) {
        return Ok(0);
    }
    let version = u64::from_le_bytes(bytes[8..16].try_into().unwrap());
    if bytes == block(number, version) {
        Ok(version)
    } else {
        Err(format!("block {number} is torn"))
    }
}

/// One file under test, and what its writer was told.
struct Subject {
    name: &'static str,
    flags: i32,
    /// Sync before a write counts as acknowledged.
    sync: bool,
    /// The version last acknowledged, and last tried, of each block.
    acknowledged: Vec<AtomicU64>,
    tried: Vec<AtomicU64>,
}

impl Subject {
    fn new(name: &'static str, flags: i32, sync: bool) -> Self {
        let zeros = || (0..BLOCKS).map(|_| AtomicU64::new(0)).collect();
        Self { name, flags, sync, acknowledged: zeros(), tried: zeros() }
    }

    /// Writes until the mount is gone.
    fn write(&self, home: &Path, seed: u64, versions: &AtomicU64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(self.flags)
            .open(home.join(self.name));
        let Ok(file) = open else { return };
        loop {
            // Mostly one block; sometimes several in one write.
            let count = if random.u8(..8) == 0 { random.u64(1..=8) } else { 1 };
            let first = random.u64(..=BLOCKS - count);
            let version = versions.fetch_add(1, Ordering::Relaxed) + 1;
            let mut bytes = Vec::with_capacity(BLOCK * count as usize);
            for number in first..first + count {
                self.tried[number as usize].store(version, Ordering::Release);
                bytes.extend(block(number, version));
            }
            let written = file.write_all_at(&bytes, first * BLOCK as u64);
            if written.and_then(|()| if self.sync { file.sync_data() } else { Ok(()) }).is_err() {
                return;
            }
            for number in first..first + count {
                self.acknowledged[number as usize].store(version, Ordering::Release);
            }
        }
    }

    /// Compares with what is there; what is there counts as acknowledged from then on.
    fn check(&self, home: &Path, what: &str) {
        let Ok(file) = File::open(home.join(self.name)) else {
            let none = self.acknowledged.iter().all(|v| v.load(Ordering::Acquire) == 0);
            assert!(none, "VIOLATION: {what}: {} is gone", self.name);
            return;
        };
        let mut bytes = vec![0; BLOCK];
        for number in 0..BLOCKS {
            bytes.fill(0);
            let mut got = 0;
            while got < BLOCK {
                match file.read_at(&mut bytes[got..], number * BLOCK as u64 + got as u64).unwrap() {
                    0 => break,
                    n => got += n,
                }
            }
            let acknowledged = self.acknowledged[number as usize].load(Ordering::Acquire);
            let tried = self.tried[number as usize].load(Ordering::Acquire);
            match version(number, &bytes) {
                Ok(found) if found == acknowledged || found == tried => {
                    self.acknowledged[number as usize].store(found, Ordering::Release);
                    self.tried[number as usize].store(found, Ordering::Release);
                }
                // In place, the write that was under way when the process was killed may be in
                // part.
                Err(_) if self.may_tear() && tried != acknowledged => {
                    self.acknowledged[number as usize].store(tried, Ordering::Release);
                    file_repair(home, self.name, number, tried);
                }
                found => panic!(
                    "VIOLATION: {what}: {} block {number}: found {found:?}, acknowledged \
                     {acknowledged}, tried {tried}",
                    self.name
                ),
            }
        }
    }

    fn may_tear(&self) -> bool {
        !self.name.ends_with(".d8")
    }
}

fn file_repair(home: &Path, name: &str, number: u64, version: u64) {
    let file = OpenOptions::new().write(true).open(home.join(name)).unwrap();
    file.write_all_at(&block(number, version), number * BLOCK as u64).unwrap();
}

#[test]
fn what_was_acknowledged_survives_the_death_of_the_daemon() {
    let test = "what_was_acknowledged_survives_the_death_of_the_daemon";
    if skipped(test) {
        return;
    }
    let rounds = std::env::var("TIERSMITH_KILL_ROUNDS").map_or(8, |n| n.parse().unwrap());
    let mut place = Place::plain(TIER >> 20, Options::default());
    let subjects = [
        Subject::new("data.d8", 0, false),
        Subject::new("direct.d8", libc::O_DIRECT, false),
        Subject::new("log.redo", 0, false),
        Subject::new("plain.pass", 0, true),
    ];
    let versions = AtomicU64::new(0);
    let first = std::env::var("TIERSMITH_KILL_SEED")
        .map_or_else(|_| fastrand::u64(..), |n| n.parse().unwrap());
    for round in 0..rounds {
        let seed = first.wrapping_add(round);
        let what = format!("round {round}, seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut daemon = Daemon::start(place.path(), TIER, round % 3 == 2);
        for subject in &subjects {
            subject.check(&place.home(), &what);
        }
        // The kill comes after so many more acknowledged versions: in the middle of the work,
        // however slow the machine is.
        let limit = versions.load(Ordering::Relaxed) + random.u64(1..3000);
        std::thread::scope(|scope| {
            for (n, subject) in subjects.iter().enumerate() {
                let (home, versions) = (place.home(), &versions);
                scope.spawn(move || subject.write(&home, seed ^ n as u64, versions));
            }
            place::until("the writers", || versions.load(Ordering::Relaxed) >= limit);
            daemon.kill();
        });
        daemon.clear();
    }
    // And at last as a plain directory.
    place.mount();
    place.detach();
    for subject in &subjects {
        subject.check(&place.home(), "detached");
    }
    eprintln!("{rounds} kills from seed {first}, {} writes", versions.load(Ordering::Relaxed));
}

#[test]
fn callers_of_a_dead_mount_get_an_error_and_the_next_attach_works() {
    if skipped("callers_of_a_dead_mount_get_an_error_and_the_next_attach_works") {
        return;
    }
    let mut place = Place::plain(TIER >> 20, Options::default());
    let mut daemon = Daemon::start(place.path(), TIER, false);
    let file = File::create(place.at("a.d8")).unwrap();
    file.write_all_at(b"acknowledged", 0).unwrap();
    daemon.kill();
    assert!(file.write_all_at(b"lost", 0).is_err());
    assert!(std::fs::read_dir(place.home()).is_err());
    daemon.clear();
    drop(file);
    place.mount();
    assert_eq!(std::fs::read(place.at("a.d8")).unwrap(), b"acknowledged");
}

//! Threads that meet over lent files: writers that switch from segment to segment, others that give
//! back, bring home, rename and look, all at once.
//!
//! Deliberately not here: the kernel as a writer through a mount (`crates/mount/tests/it/lend.rs`),
//! cuts (`crash_suite/operations.rs`).

use fastrand::Rng;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tiersmith_store::check::{CheckOptions, check};
use tiersmith_store::{
    AttachedHome, Error, LentFile, Medium, OpenMode, Options, Profile, TierSpec, attach, testing,
};

const LEN: usize = 64 << 10;
const SEGMENTS: usize = 6;
const WRITERS: usize = 3;
/// Segments that each writer fills.
const ROUNDS: usize = 100;

fn profile() -> Profile {
    let text = "description = 'test'\n[default]\nclass = 'pass'\nblock_size = \
                4096\n[[rule]]\nfiles = ['*.seg']\nclass = 'redo'\n\
        lend = true\nwhy = 'test'\n";
    Profile::parse("lend", text).unwrap()
}

fn attached(home: &Path, member: &Path, background: bool) -> AttachedHome {
    let mut spec = TierSpec::new("fast", member, Medium::Emulated, 4 << 20);
    (spec.unit, spec.lanes, spec.slots) = (64 << 10, 4, 32);
    // Room for all writers, and not for all segments: idle ones have to make room.
    let lent_max_bytes = (WRITERS as u64 + 1) * LEN as u64;
    let options =
        Options { profile: Some(profile()), background, lent_max_bytes, ..Options::default() };
    attach(home, &[spec], options).unwrap()
}

/// A segment that nobody has: its name and what is in it.
struct Segment {
    name: String,
    bytes: Vec<u8>,
}

/// What the threads share.
struct Shared {
    home: AttachedHome,
    /// Used from the front, put back at the end, as a database uses its segments.
    idle: Mutex<Vec<Segment>>,
    names: AtomicU64,
    lent: AtomicU64,
    given: AtomicU64,
    done: AtomicBool,
}

/// Sets the flag when its thread ends, also by a panic: the others must not go on for ever.
struct Done<'a>(&'a AtomicBool, &'a AtomicU64);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        if self.1.fetch_sub(1, Ordering::AcqRel) == 1 || std::thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

impl Shared {
    /// Fills one segment after the other, each write by the kernel or through the store, and reads
    /// it back another way.
    fn write(&self, seed: u64) {
        let mut rng = Rng::with_seed(seed);
        for _ in 0..ROUNDS {
            let mut segment = self.idle.lock().unwrap().remove(0);
            let file = self.home.open(&segment.name, OpenMode::WRITE).unwrap();
            let other = self.home.open(&segment.name, OpenMode::READ).unwrap();
            let mut lent: Option<LentFile> = file.lend().unwrap();
            self.lent.fetch_add(u64::from(lent.is_some()), Ordering::Relaxed);
            for _ in 0..8 {
                let (at, byte) = (rng.usize(0..LEN - 9000), rng.u8(1..));
                let data = vec![byte; rng.usize(1..9000)];
                match &lent {
                    Some(lent) if rng.u8(..4) > 0 => {
                        testing::kernel_write(lent, at as u64, &data).unwrap()
                    }
                    _ => file.write(at as u64, &data).unwrap(),
                }
                segment.bytes[at..at + data.len()].copy_from_slice(&data);
                let (from, to) = (at.saturating_sub(100), (at + data.len() + 100).min(LEN));
                let mut found = vec![0; to - from];
                assert_eq!(other.read(from as u64, &mut found).unwrap(), found.len());
                assert!(
                    found == segment.bytes[from..to],
                    "{} at {from}: not what was written",
                    segment.name
                );
                if rng.u8(..16) == 0 {
                    // The kernel closes it; it may be given back now, in the middle, or lent again.
                    lent = None;
                }
            }
            drop((lent, file, other));
            if rng.bool() {
                let name = format!("{}.seg", self.names.fetch_add(1, Ordering::Relaxed));
                self.home.rename(&segment.name, &name).unwrap();
                segment.name = name;
            }
            self.idle.lock().unwrap().push(segment);
        }
    }

    fn until_done(&self, mut what: impl FnMut()) {
        while !self.done.load(Ordering::Acquire) {
            what();
        }
    }

    /// Every file there is, by the names that the store says.
    fn give_back_all(&self) {
        for file in self.home.files() {
            match self.home.give_back(&file.path) {
                Ok(done) => {
                    let given = u64::from(done && file.lent);
                    self.given.fetch_add(given, Ordering::Relaxed);
                }
                // Renamed meanwhile.
                Err(Error::Io { .. }) => {}
                Err(e) => panic!("{e}"),
            }
        }
    }

    fn look(&self) {
        let lending = self.home.stats().lending;
        assert_eq!(lending.bytes, lending.files * LEN as u64);
        assert!(lending.not_home_bytes <= lending.bytes, "{lending:?}");
        for file in self.home.files() {
            assert_eq!(file.size, LEN as u64, "{}", file.path.display());
        }
    }
}

#[test]
fn writers_of_lent_segments_lose_nothing_to_switches_giving_back_renaming_and_looking() {
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let (path, member): (PathBuf, PathBuf) = (dir.path().join("db"), dir.path().join("fast"));
    fs::create_dir(&path).unwrap();
    let home = attached(&path, &member, true);
    let mut idle = Vec::new();
    for n in 0..SEGMENTS {
        let segment = Segment { name: format!("{n}.seg"), bytes: vec![n as u8; LEN] };
        home.create(&segment.name).unwrap().write(0, &segment.bytes).unwrap();
        idle.push(segment);
    }
    if home.open("0.seg", OpenMode::WRITE).unwrap().lend().unwrap().is_none() {
        let why = home.stats().lending.refused.unwrap_or_default();
        assert!(why.contains("its file system"), "nothing is lent: {why}");
        eprintln!("skipped: lending, because {why}");
        return;
    }
    let (lent, given) = Default::default();
    let names = AtomicU64::new(SEGMENTS as u64);
    let shared =
        Shared { home, idle: Mutex::new(idle), names, lent, given, done: AtomicBool::new(false) };
    let left = AtomicU64::new(WRITERS as u64);
    std::thread::scope(|scope| {
        let (shared, left) = (&shared, &left);
        for seed in 0..WRITERS as u64 {
            scope.spawn(move || {
                let _done = Done(&shared.done, left);
                shared.write(seed);
            });
        }
        scope.spawn(|| shared.until_done(|| shared.give_back_all()));
        scope.spawn(|| shared.until_done(|| shared.home.flush_all().map(drop).unwrap()));
        scope.spawn(|| shared.until_done(|| shared.home.background_step().unwrap()));
        scope.spawn(|| shared.until_done(|| shared.look()));
    });
    let Shared { home, idle, lent, given, .. } = shared;
    let idle = idle.into_inner().unwrap();
    println!("{} loans, {} of them given back", lent.into_inner(), given.into_inner());
    assert_eq!(idle.len(), SEGMENTS);
    let same = |home: &AttachedHome| {
        for segment in &idle {
            let mut found = vec![0; LEN];
            home.open(&segment.name, OpenMode::READ).unwrap().read(0, &mut found).unwrap();
            assert!(found == segment.bytes, "{}", segment.name);
        }
    };
    same(&home);
    drop(home);
    let report =
        check(Some(&path), std::slice::from_ref(&member), &CheckOptions::default()).unwrap();
    assert!(report.findings.is_empty(), "{report}");
    let home = attached(&path, &member, false);
    same(&home);
    home.detach().unwrap();
    for segment in &idle {
        assert!(
            fs::read(path.join(&segment.name)).unwrap() == segment.bytes,
            "{} at home",
            segment.name
        );
    }
    assert!(!dir.path().join("fast.lent").exists());
}

//! What the scenes are played on: a home in memory with one file on a tier of one lane, threads
//! that shuttle schedules, and what a reader may find.
//!
//! A block is one word again and again: who wrote it and his how manieth write of it that was. So a
//! torn block shows, and another block's, and one that was overwritten before the reader began.

use crate::place;
use crate::scenes::{self, Scene};
use shuttle::scheduler::{PctScheduler, Schedule, Scheduler, Task, TaskId, UrwRandomScheduler};
use shuttle::{Config, FailurePersistence, Runner};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Instant;
use tiersmith_pmem::Mapping;
use tiersmith_pmem::sync::{Flaw, plant, racing, turn};
use tiersmith_store::home::SimHome;
use tiersmith_store::{
    AttachedHome, File, FileClass, Medium, OpenMode, Options, Planted, TierSpec, testing,
};

pub(crate) const B: usize = 4096;
const TIER: u64 = 512 << 10;
const WRITERS: usize = 4;
const BLOCKS: usize = 2;
/// Of the frames that are free those that map pages only may have: the rest of a unit, of which the
/// pages of two files are taken.
const PAGES_FREE: u64 = 7;
/// Schedules of a scheduler in one round.
const AT_ONCE: usize = 500;
/// Rounds that must find nothing in the code as it is.
const ROUNDS: u64 = 2;
/// Rounds within which a flaw must be found.
const ROUNDS_FLAWED: u64 = 30;

/// What was acknowledged: the last write of each writer to each block.
#[derive(Default)]
pub(crate) struct Acked([[AtomicU64; BLOCKS]; WRITERS]);

impl Acked {
    fn now(&self) -> [[u64; BLOCKS]; WRITERS] {
        std::array::from_fn(|w| std::array::from_fn(|b| self.0[w][b].load(SeqCst)))
    }
}

fn word(block: usize, writer: usize, version: u64) -> u64 {
    0x5a00_0000 + ((block as u64) << 20) + ((writer as u64) << 16) + version
}

/// A home with a tier, and one open file.
pub(crate) struct Stage {
    pub(crate) home: Arc<SimHome>,
    pub(crate) mapping: Arc<Mapping>,
    /// Not dropped by a panic: what it would do then might be another one.
    pub(crate) attached: ManuallyDrop<AttachedHome>,
    pub(crate) file: ManuallyDrop<File>,
    /// A redo file, empty.
    pub(crate) other: ManuallyDrop<File>,
    pub(crate) path: &'static str,
    pub(crate) acked: Acked,
}

fn spec() -> TierSpec {
    TierSpec {
        medium: Medium::Emulated,
        lanes: 1,
        batches: 1,
        slots: 8,
        ..place::small("fast".into(), TIER)
    }
}

fn options(planted: Planted) -> Options {
    Options { planted, record_waits: false, seed: Some(7), ..place::options() }
}

impl Stage {
    /// The file at `path` has `BLOCKS` blocks, at home, by writer 0.
    pub(crate) fn new(path: &'static str, planted: Planted) -> Arc<Self> {
        racing(false);
        plant(match planted {
            Planted::TakeViewed => Some(Flaw::TakeViewed),
            Planted::ViewOfClaimed => Some(Flaw::ViewOfClaimed),
            _ => None,
        });
        let home = Arc::new(SimHome::new(None));
        let old: Vec<u8> = (0..BLOCKS).flat_map(|block| Self::bytes(block, 0, 0)).collect();
        home.put(Path::new(path), &old).unwrap();
        home.rebase();
        let mapping = Arc::new(Mapping::in_memory(&vec![0; TIER as usize], 0));
        let attached = testing::attach_simulated(
            home.clone(),
            vec![(spec(), vec![mapping.clone()])],
            &place::profile(),
            options(planted),
        )
        .unwrap();
        let file = attached.open(path, OpenMode::WRITE).unwrap();
        let other = attached.create("b.redo").unwrap();
        Arc::new(Self {
            home,
            mapping,
            attached: ManuallyDrop::new(attached),
            file: ManuallyDrop::new(file),
            other: ManuallyDrop::new(other),
            path,
            acked: Acked::default(),
        })
    }

    /// The same with block 0 in the tier, written a few times.
    pub(crate) fn written(path: &'static str, planted: Planted) -> Arc<Self> {
        let stage = Self::new(path, planted);
        (1..=3).for_each(|version| stage.write(0, 0, version));
        stage
    }

    /// Written often enough for the lane to lay out pieces that are claimed since they were this
    /// block.
    pub(crate) fn overwritten(path: &'static str, planted: Planted) -> Arc<Self> {
        let stage = Self::new(path, planted);
        (1..=6).for_each(|version| stage.write(0, 0, version));
        stage
    }

    /// Written, with few free pieces: those that nobody has are taken again soon.
    pub(crate) fn written_with_few_pieces(planted: Planted) -> Arc<Self> {
        let stage = Self::new("a.d4", planted);
        stage.write(0, 0, 1);
        stage.fill(3);
        (2..=3).for_each(|version| stage.write(0, 0, version));
        stage
    }

    /// Leaves this many pieces to blocks.
    fn fill(&self, pieces: u64) {
        let full = self.attached.create("full.d4").unwrap();
        let (free, _, _) = testing::accounting(&self.attached);
        testing::fabricate_entries(&full, free - PAGES_FREE - pieces).unwrap();
    }

    /// One block, appended, in a tier that is full but for that, so that frames that become free
    /// are taken next.
    pub(crate) fn cramped(path: &'static str, planted: Planted) -> Arc<Self> {
        let stage = Self::new(path, planted);
        stage.file.truncate(0).unwrap();
        stage.write(0, 0, 1);
        // With more than a quarter free, pieces would be zeroed ahead, several at a time.
        stage.fill(6);
        stage.file.truncate(0).unwrap();
        stage.write(0, 0, 2);
        stage
    }

    pub(crate) fn bytes(block: usize, writer: usize, version: u64) -> Vec<u8> {
        word(block, writer, version).to_le_bytes().repeat(B / 8)
    }

    pub(crate) fn write(&self, block: usize, writer: usize, version: u64) {
        self.file.write((block * B) as u64, &Self::bytes(block, writer, version)).unwrap();
        self.acked.0[writer][block].store(version, SeqCst);
    }

    pub(crate) fn write_batch(&self, block: usize, writer: usize, version: u64) {
        let bytes = Self::bytes(block, writer, version);
        self.file.write_batch(&[((block * B) as u64, &bytes)]).unwrap();
        self.acked.0[writer][block].store(version, SeqCst);
    }

    /// What is in a block, which must be one whole version of it that was not overwritten when the
    /// reader began.
    fn check(&self, how: &str, block: usize, bytes: &[u8], least: &[[u64; BLOCKS]; WRITERS]) {
        let words: Vec<u64> =
            bytes.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect();
        let first = words[0];
        if let Some(other) = words.iter().find(|word| **word != first) {
            panic!("{how}: a torn block: {first:x} and {other:x}");
        }
        let (writer, version) = ((first >> 16) as usize & 0xf, first & 0xffff);
        assert!(
            writer < WRITERS && first == word(block, writer, version),
            "{how}: {first:x} is not block {block}'s"
        );
        let others = (1..WRITERS).any(|w| least[w][block] > 0);
        let old = if writer == 0 {
            others || version < least[0][block]
        } else {
            version < least[writer][block]
        };
        assert!(!old, "{how}: {first:x} had been overwritten before: {least:?}");
    }

    /// Reads a block of a file that is cut meanwhile: it may be shorter, or zeros.
    pub(crate) fn read_cut(&self, block: usize) {
        let least = self.acked.now();
        let mut bytes = vec![0; B];
        let got = self.file.read((block * B) as u64, &mut bytes).unwrap();
        if got == B && bytes.iter().any(|byte| *byte != 0) {
            self.check("a read of a file that is cut", block, &bytes, &least);
        }
    }

    /// Reads a block of a file that is written in place: each word is one of this block's.
    pub(crate) fn read_in_place(&self, block: usize) {
        let least = self.acked.now();
        let mut bytes = vec![0; B];
        let got = self.file.read((block * B) as u64, &mut bytes).unwrap();
        for word in bytes[..got].chunks_exact(8).filter(|word| word.iter().any(|byte| *byte != 0)) {
            self.check("a read of a redo block", block, &word.repeat(B / 8), &least);
        }
    }

    /// Writes all that is dirty home.
    pub(crate) fn destage(&self) {
        self.attached.destage(Some(Path::new(self.path))).unwrap();
    }

    pub(crate) fn evict(&self) {
        self.attached.evict(Some(Path::new(self.path)), u64::MAX).unwrap();
    }

    /// Reads a block as a program does.
    pub(crate) fn read(&self, block: usize) {
        let least = self.acked.now();
        let mut bytes = vec![0; B];
        let got = self.file.read((block * B) as u64, &mut bytes).unwrap();
        assert_eq!(got, B, "a short read of block {block}");
        self.check("a read", block, &bytes, &least);
    }

    /// Takes a reference, if it is to be had, and looks at it twice.
    pub(crate) fn read_ref(&self, block: usize) {
        let least = self.acked.now();
        let Some(lent) = self.file.read_ref((block * B) as u64) else { return };
        self.check("lent", block, &lent, &least);
        let before = lent.to_vec();
        for _ in 0..2 {
            turn();
            assert!(*lent == before[..], "what is lent was written");
        }
    }

    /// A power cut now that takes nothing of what was stored: what an attach finds afterwards.
    pub(crate) fn check_after_cut(&self, how: &str) {
        turn();
        racing(false);
        let least = self.acked.now();
        let home = Arc::new(SimHome::from_image(&self.home.snapshot(), None));
        let mapping = Arc::new(Mapping::in_memory(&place::image(&self.mapping), 0));
        let attached = testing::attach_simulated(
            home,
            vec![(spec(), vec![mapping])],
            &place::profile(),
            options(Planted::None),
        )
        .unwrap_or_else(|e| panic!("{how}: {e}"));
        let file = attached.open(self.path, OpenMode::WRITE).unwrap();
        for block in 0..BLOCKS {
            let mut bytes = vec![0; B];
            let got = file.read((block * B) as u64, &mut bytes).unwrap();
            assert_eq!(got, B, "{how}: a short read of block {block}");
            // What is written in place may be cut anywhere.
            let step = if self.file.class() == FileClass::Redo { 8 } else { B };
            for part in bytes.chunks_exact(step).step_by((B / step / 8).max(1)) {
                self.check(how, block, &part.repeat(B / step), &least);
            }
        }
        racing(true);
    }

    /// Runs the threads beside each other until all have ended.
    pub(crate) fn race<const N: usize>(self: &Arc<Self>, threads: [fn(&Stage); N]) {
        racing(true);
        let handles = threads.map(|thread| {
            let stage = self.clone();
            shuttle::thread::spawn(move || thread(&stage))
        });
        for handle in handles {
            handle.join().unwrap();
        }
        racing(false);
    }

    /// The end of a scene in which nothing was found.
    pub(crate) fn end(self: Arc<Self>) {
        let stage = Arc::into_inner(self).expect("BUG: a thread of the scene is left");
        drop(ManuallyDrop::into_inner(stage.file));
        drop(ManuallyDrop::into_inner(stage.other));
        drop(ManuallyDrop::into_inner(stage.attached));
    }
}

/// Lets a thread go on for one step or for some hundreds, then another one. A choice at every step
/// hardly ever lets a thread run through two writes while another one is in the middle of a copy.
struct Bursts {
    random: fastrand::Rng,
    schedules: usize,
    /// Steps of the longest burst of a schedule: 2 to this power.
    most: u32,
    /// Steps until another thread goes on.
    steps: usize,
}

impl Scheduler for Bursts {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.schedules = self.schedules.checked_sub(1)?;
        self.most = self.random.u32(3..10);
        Some(Schedule::new(0))
    }

    fn next_task(
        &mut self,
        ready: &[&Task],
        current: Option<TaskId>,
        yields: bool,
    ) -> Option<TaskId> {
        self.steps = self.steps.saturating_sub(1);
        if self.steps > 0
            && !yields
            && let Some(same) = ready.iter().find(|task| Some(task.id()) == current)
        {
            return Some(same.id());
        }
        let most = 1 << self.random.u32(..=self.most);
        self.steps = self.random.usize(1..=most);
        self.random.choice(ready).map(|task| task.id())
    }

    fn next_u64(&mut self) -> u64 {
        self.random.u64(..)
    }
}

/// Until a schedule fails. How many there were, and how the last one failed. Each round has other
/// seeds.
fn explore(rounds: u64, planted: Planted, scene: fn(Planted)) -> (u64, Option<String>) {
    let mut config = Config::new();
    config.stack_size = 512 << 10;
    config.failure_persistence =
        if planted == Planted::None { FailurePersistence::Print } else { FailurePersistence::None };
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    config.silence_warnings = true;
    let runs = Arc::new(AtomicU64::new(0));
    for seed in 1..=rounds {
        let bursts = Bursts {
            random: fastrand::Rng::with_seed(seed),
            schedules: 2 * AT_ONCE,
            most: 0,
            steps: 0,
        };
        let schedulers: [Box<dyn Scheduler + Send>; 3] = [
            Box::new(PctScheduler::new_from_seed(seed, 3, AT_ONCE)),
            Box::new(bursts),
            Box::new(UrwRandomScheduler::new_from_seed(seed, AT_ONCE)),
        ];
        for scheduler in schedulers {
            let (runner, counted) = (Runner::new(scheduler, config.clone()), runs.clone());
            let ended = catch_unwind(AssertUnwindSafe(|| {
                runner.run(move || {
                    counted.fetch_add(1, SeqCst);
                    scene(planted);
                })
            }));
            if let Err(panic) = ended {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
                return (runs.load(SeqCst), Some(text.unwrap_or_default()));
            }
        }
    }
    (runs.load(SeqCst), None)
}

/// As [`explore`], on a thread of the system of its own: of a schedule that failed shuttle leaves
/// things behind.
fn explore_apart(rounds: u64, planted: Planted, scene: fn(Planted)) -> (u64, Option<String>) {
    let run = move || explore(rounds, planted, scene);
    std::thread::spawn(run).join().unwrap_or_else(|_| panic!("exploring ended by a panic"))
}

/// Plays a scene without a flaw, then with each flaw that the scene is there for: it must be found.
pub(crate) fn prove(name: &str, scene: fn(Planted)) {
    let Scene { flaws, .. } = scenes::scene(name);
    let start = Instant::now();
    let (runs, failed) = explore_apart(ROUNDS, Planted::None, scene);
    println!("{name}: {runs} schedules in {:?}", start.elapsed());
    assert_eq!(failed, None, "{name}, after {runs} schedules");
    let mut missed = Vec::new();
    for flaw in *flaws {
        let planted = Planted::RACES.into_iter().find(|planted| format!("{planted:?}") == *flaw);
        let planted = planted.unwrap_or_else(|| panic!("no bug {flaw} can be planted"));
        let start = Instant::now();
        let (runs, failed) = explore_apart(ROUNDS_FLAWED, planted, scene);
        println!("{name}, {flaw}: {runs} schedules in {:?}: {failed:?}", start.elapsed());
        if failed.is_none() {
            missed.push(flaw);
        }
    }
    assert!(missed.is_empty(), "{name}: {missed:?} are not found");
}

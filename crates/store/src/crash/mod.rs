//! The crash explorer: stops the machine at every point of a recorded run, and hands every tier and
//! home that may be found afterwards to a check.
//!
//! A [`Recorder`] couples the simulated media with a simulated home: each home event, and each
//! operation the test calls acknowledged, is a mark in the media's trace, so the order of all of
//! them is known. [`explore`] goes through the cut points of the trace (before each fence, growth
//! and mark, and the end: see [`Trace::cut_points`]) and tries, at each, the pairs of tier image
//! and home image: all of them when they are at most [`Budget::images_per_cut`], else a sample in
//! which both sides' corners (nothing or everything of what was not durable) meet each other. The
//! pair of both everythings is what a killed process leaves.
//!
//! The plain files of lent files are a second simulated directory; what home and it may be found as
//! are paired with each other first, and such a pair counts as one home image.
//!
//! To cut the power during recovery too, a check records its own recovery ([`Recorder::resume`])
//! and explores that.
//!
//! Deliberately absent: the order of threads; a recording is one order that happened.
//!
//! Read next: `explore.rs`, `tiersmith_pmem::sim`, `home/sim/state.rs` for the two models.
//!
//! ```
//! use std::path::Path;
//! use tiersmith_pmem::{FRAME, Mapping};
//! use tiersmith_store::crash::{Budget, Recorder, explore};
//! use tiersmith_store::home::{Home, OpenMode};
//!
//! let recorder = Recorder::new();
//! let tier = recorder.simulator().mapping(vec![0; FRAME], 0);
//! tier.set_open_range(FRAME as u64);
//! let file = recorder.home().open(Path::new("a"), OpenMode::CREATE).unwrap();
//! recorder.rebase(); // the run begins here
//!
//! file.write_at(0, b"block").unwrap();
//! file.sync().unwrap(); // without this, the check below fails
//! tier.store_u64(0, 1); // "the home has it"
//! tier.persist(0, 8);
//! recorder.acked();
//!
//! let report = explore(&recorder.recording(), &Budget::default(), |found| {
//!     let tier = Mapping::in_memory(&found.tiers[0], 0);
//!     let home = found.home.contents(Path::new("a")).unwrap_or_default();
//!     let said = tier.load_u64(0) == 1;
//!     if said && *home != *b"block" {
//!         return Err("the tier says clean, the home lacks the block".into());
//!     }
//!     if found.acked == 1 && !said { return Err("acknowledged and lost".into()) }
//!     Ok(())
//! });
//! report.assert_sound();
//! ```

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tiersmith_pmem::sim::{Event, Simulator, Trace};

use crate::home::SimHome;
use crate::home::sim::HomeTrace;

mod explore;
#[cfg(test)]
mod tests;

pub use explore::{Tried, explore, explore_one_by_one, explore_untried, replay};

/// Tags of marks: the top three bits say what the rest counts. A test's own marks have none of
/// them.
const HOME_EVENT: u64 = 1 << 63;
const ACKNOWLEDGED: u64 = 1 << 62;
const LENT_EVENT: u64 = 1 << 61;

/// Simulated media and a simulated home with one trace.
#[derive(Debug)]
pub struct Recorder {
    simulator: Simulator,
    home: Arc<SimHome>,
    lent: Arc<SimHome>,
    acked: AtomicU64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// No media yet, and an empty home.
    #[must_use]
    pub fn new() -> Self {
        Self::resume(SimHome::new(None))
    }

    /// No media yet, and `home` as it is: to record the recovery of what a power cut left.
    #[must_use]
    pub fn resume(home: SimHome) -> Self {
        Self::resume_with(home, SimHome::new(None))
    }

    /// The same, with the plain files of lent files as they are.
    #[must_use]
    pub fn resume_with(home: SimHome, lent: SimHome) -> Self {
        let simulator = Simulator::new();
        for (files, tag) in [(&home, HOME_EVENT), (&lent, LENT_EVENT)] {
            let marks = simulator.clone();
            files.restore(&files.snapshot());
            files.set_hook(Some(Arc::new(move |event| marks.mark(tag | event))));
        }
        Self { simulator, home: Arc::new(home), lent: Arc::new(lent), acked: AtomicU64::new(0) }
    }

    /// The directory of the plain files of lent files, on a file system of its own.
    #[must_use]
    pub fn lent(&self) -> Arc<SimHome> {
        self.lent.clone()
    }

    /// Makes the media's mappings; their order is that of the images in [`CutState::tiers`].
    #[must_use]
    pub fn simulator(&self) -> &Simulator {
        &self.simulator
    }

    /// The home.
    #[must_use]
    pub fn home(&self) -> Arc<SimHome> {
        self.home.clone()
    }

    /// Begins here: everything so far is durable, no operation is acknowledged, the trace is empty.
    pub fn rebase(&self) {
        self.home.rebase();
        self.lent.rebase();
        self.simulator.rebase();
        self.acked.store(0, Ordering::Relaxed);
    }

    /// The next operation is acknowledged: what it promised must hold at every later cut.
    pub fn acked(&self) {
        let before = self.acked.fetch_add(1, Ordering::Relaxed);
        self.simulator.mark(ACKNOWLEDGED | before);
    }

    /// What has happened so far.
    #[must_use]
    pub fn recording(&self) -> Recording {
        Recording {
            media: self.simulator.trace(),
            home: self.home.trace(),
            lent: self.lent.trace(),
        }
    }
}

/// One run, to be stopped anywhere.
#[derive(Debug, Clone)]
pub struct Recording {
    /// What happened to the media, with a mark for each home event.
    pub media: Trace,
    /// What happened to the home.
    pub home: HomeTrace,
    /// What happened to the plain files of lent files.
    pub lent: HomeTrace,
}

impl Recording {
    /// The places to stop at, in their order.
    fn cuts(&self) -> Vec<Cut> {
        let points = self.media.cut_points();
        let mut next = points.iter().peekable();
        let (mut cuts, mut home_events, mut acked) = (Vec::with_capacity(points.len()), 0, 0);
        let (mut lent_events, mut told) = (0, 0);
        for (position, event) in self.media.events().map(Some).chain([None]).enumerate() {
            if next.next_if_eq(&&position).is_some() {
                cuts.push(Cut { position, home_events, lent_events, acked, told });
            }
            match event {
                Some(Event::Mark(tag)) if tag & HOME_EVENT != 0 => home_events += 1,
                Some(Event::Mark(tag)) if tag & ACKNOWLEDGED != 0 => {
                    (acked, told) = (acked + 1, told + 1)
                }
                Some(Event::Mark(tag)) if tag & LENT_EVENT != 0 => lent_events += 1,
                Some(Event::Mark(_)) => told += 1,
                _ => {}
            }
        }
        cuts
    }
}

/// One place to stop at.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// The number of trace events before it.
    position: usize,
    home_events: usize,
    lent_events: usize,
    acked: usize,
    /// Marks of the test before it, acknowledgements among them.
    told: usize,
}

/// How much to try.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// The most pairs of tier and home image at one cut.
    pub images_per_cut: usize,
    /// What the samples depend on.
    pub seed: u64,
    /// Threads that share the cuts; [`explore_one_by_one`] has one.
    pub threads: usize,
    /// Stop after this many violations.
    pub stop_after: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { images_per_cut: 256, seed: 1, threads: 2, stop_after: 8 }
    }
}

/// Which image: with the same recording, [`Budget::images_per_cut`] and [`Budget::seed`], always
/// the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageId {
    /// Which cut point.
    pub cut: usize,
    /// Which choice of the media's images there.
    pub tier: usize,
    /// Which choice of the home's images there.
    pub home: usize,
}

/// What is found after a power cut.
#[derive(Debug)]
pub struct CutState<'a> {
    /// The media's contents, for [`tiersmith_pmem::Mapping::in_memory`].
    pub tiers: &'a [Vec<u8>],
    /// The home, durable as it is; to be used up.
    pub home: SimHome,
    /// The plain files of lent files, likewise.
    pub lent: SimHome,
    /// How many operations were acknowledged before the cut.
    pub acked: usize,
    /// The number of trace events before the cut.
    pub position: usize,
    /// Which image this is.
    pub id: ImageId,
    /// One tier image of eight, the first among them: for a check that goes on further with some.
    pub thorough: bool,
}

/// A check that failed.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Which image.
    pub id: ImageId,
    /// The number of trace events before the cut.
    pub position: usize,
    /// How many operations were acknowledged before the cut.
    pub acked: usize,
    /// With which budget it is found again.
    pub budget: Budget,
    /// What the check said.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ImageId { cut, tier, home } = self.id;
        let Budget { images_per_cut, seed, .. } = self.budget;
        write!(
            f,
            "{} (power cut before trace event {}, {} operations acknowledged; replay seed {seed}, \
             images_per_cut \
             {images_per_cut}, cut {cut}, tier image {tier}, home image {home})",
            self.message, self.position, self.acked
        )
    }
}

/// What [`explore`] did.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Cut points tried.
    pub cuts: usize,
    /// Those of them at which every image there is was tried.
    pub exhaustive_cuts: usize,
    /// Images tried.
    pub images: u64,
    /// Different images among them.
    pub distinct: u64,
    /// Images not tried because they were the same as before ([`explore_untried`]).
    pub known: u64,
    /// What failed, in the order of the cuts; at most [`Budget::stop_after`] and one per thread.
    pub violations: Vec<Violation>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Report {
    /// Adds what another exploration did.
    pub fn add(&mut self, more: Report) {
        self.cuts += more.cuts;
        self.exhaustive_cuts += more.exhaustive_cuts;
        self.images += more.images;
        self.distinct += more.distinct;
        self.known += more.known;
        self.violations.extend(more.violations);
        self.elapsed += more.elapsed;
    }

    /// Panics with the first violations, if there are any.
    pub fn assert_sound(&self) {
        let said: Vec<String> = self.violations.iter().take(3).map(ToString::to_string).collect();
        assert!(
            said.is_empty(),
            "{} violations in {} images: {}",
            self.violations.len(),
            self.images,
            said.join("\n")
        );
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} images ({} distinct, {} more left out as known) at {} cuts ({} of them in full), \
             {} violations, {:.1} s",
            self.images,
            self.distinct,
            self.known,
            self.cuts,
            self.exhaustive_cuts,
            self.violations.len(),
            self.elapsed.as_secs_f64()
        )
    }
}

//! Replays the trace of a simulated home and makes the homes that a power cut may leave at each
//! point.
//!
//! A choice is how much of the journal is durable and, for each sector with unsynced versions,
//! which one is found. When there are no more choices than asked for, all are made; else a sample
//! that begins with the corners (nothing or everything of the journal, with no or all newest
//! sectors), then prefixes of the journal and sectors alone or missing alone, then random ones. The
//! same point, number and seed give the same list.

use std::collections::HashSet;
use std::sync::Arc;

use super::state::{HomeEvent, PendingSector, State};
use super::{SimHome, SimOptions};

/// A home at one instant; cheap to make a [`SimHome`] from, as often as wanted.
#[derive(Debug, Clone)]
pub struct HomeImage {
    pub(super) state: State,
    pub(super) options: SimOptions,
}

impl HomeImage {
    /// A simulated home that begins as this image, without a hook.
    #[must_use]
    pub fn home(&self) -> SimHome {
        SimHome::from_image(self, None)
    }

    /// A number that differs between images that a program can tell apart.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.state.fingerprint()
    }

    /// A number for what [`HomeImage::fingerprint`] leaves out: clock, holes, directories and what
    /// is given out next. Both are equal only when nothing at all differs.
    pub(crate) fn rest(&self) -> u64 {
        self.state.rest()
    }
}

/// What happened to a simulated home.
#[derive(Debug, Clone)]
pub struct HomeTrace {
    pub(super) base: HomeImage,
    pub(super) events: Arc<[HomeEvent]>,
}

impl HomeTrace {
    /// The events in their order; the hook was called with the index of each.
    #[must_use]
    pub fn events(&self) -> &[HomeEvent] {
        &self.events
    }

    /// A player at the beginning.
    #[must_use]
    pub fn player(&self) -> HomePlayer {
        let state = self.base.state.clone();
        let pending = state.pending();
        HomePlayer { trace: self.clone(), at: 0, state, pending }
    }
}

/// What is durable of the unsynced past: one of the ways a power cut may turn out.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HomeChoice {
    /// How many of the unsynced changes of names, lengths and times are durable.
    pub prefix: usize,
    /// Which version of each pending sector is found, in their order; 0 is the durable one.
    pub versions: Vec<u16>,
}

/// Replays a [`HomeTrace`].
#[derive(Debug)]
pub struct HomePlayer {
    trace: HomeTrace,
    at: usize,
    state: State,
    pending: Vec<PendingSector>,
}

impl HomePlayer {
    /// Goes to the point just before event `at`. Going back begins again.
    pub fn advance_to(&mut self, at: usize) {
        if at == self.at {
            return;
        }
        if at < self.at {
            (self.at, self.state) = (0, self.trace.base.state.clone());
        }
        for event in &self.trace.events[self.at..at] {
            self.state.apply(event);
            tick_to(&mut self.state, event);
        }
        self.at = at;
        self.pending = self.state.pending();
    }

    /// The number of events replayed.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// The sectors that a power cut may leave in more than one version.
    #[must_use]
    pub fn pending(&self) -> &[PendingSector] {
        &self.pending
    }

    /// The number of unsynced changes of names, lengths and times.
    #[must_use]
    pub fn unsynced_changes(&self) -> usize {
        self.state.journal_len()
    }

    /// In how many ways a power cut may turn out here, as far as a number holds.
    #[must_use]
    pub fn count(&self) -> u128 {
        let versions = self.pending.iter().map(|p| u128::from(p.newest - p.oldest) + 1);
        versions.fold(self.state.journal_len() as u128 + 1, u128::saturating_mul)
    }

    /// The home as a power cut may leave it here.
    #[must_use]
    pub fn image(&self, choice: &HomeChoice) -> HomeImage {
        let state = self.state.after_power_cut(choice.prefix, &self.pending, &choice.versions);
        HomeImage { state, options: self.trace.base.options }
    }

    /// The home as a killed process leaves it here: nothing lost, unsynced changes still unsynced.
    #[must_use]
    pub fn killed(&self) -> HomeImage {
        HomeImage { state: self.state.clone(), options: self.trace.base.options }
    }

    /// All choices when there are at most `max`, else a sample of `max` of them.
    #[must_use]
    pub fn choices(&self, max: usize, seed: u64) -> Vec<HomeChoice> {
        if self.count() <= max as u128 { self.all() } else { self.sample(max, seed) }
    }

    fn all(&self) -> Vec<HomeChoice> {
        let mut found = Vec::new();
        let mut versions: Vec<u16> = self.oldest();
        loop {
            let with_prefix = |prefix| HomeChoice { prefix, versions: versions.clone() };
            found.extend((0..=self.state.journal_len()).map(with_prefix));
            let Some(i) = (0..versions.len()).find(|i| versions[*i] < self.pending[*i].newest)
            else {
                return found;
            };
            versions[i] += 1;
            for (v, p) in versions[..i].iter_mut().zip(&self.pending) {
                *v = p.oldest;
            }
        }
    }

    fn oldest(&self) -> Vec<u16> {
        self.pending.iter().map(|p| p.oldest).collect()
    }

    fn newest(&self) -> Vec<u16> {
        self.pending.iter().map(|p| p.newest).collect()
    }

    fn sample(&self, max: usize, seed: u64) -> Vec<HomeChoice> {
        let mut rng =
            fastrand::Rng::with_seed(seed ^ (self.at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let (whole, none, all) = (self.state.journal_len(), self.oldest(), self.newest());
        let mut found = Vec::with_capacity(max);
        let mut seen = HashSet::new();
        let mut add = |found: &mut Vec<HomeChoice>, prefix: usize, versions: Vec<u16>| {
            let choice = HomeChoice { prefix, versions };
            if found.len() < max && seen.insert(choice.clone()) {
                found.push(choice);
            }
        };
        for (prefix, versions) in [(0, &none), (whole, &all), (whole, &none), (0, &all)] {
            add(&mut found, prefix, versions.clone());
        }
        let mut ordered: Vec<(usize, Vec<u16>)> = Vec::new();
        for prefix in 1..whole {
            ordered.push((prefix, none.clone()));
            ordered.push((prefix, all.clone()));
        }
        // Which sectors are tried alone: as many as may be of use.
        let mut sectors: Vec<usize> = (0..self.pending.len()).collect();
        rng.shuffle(&mut sectors);
        for i in sectors.into_iter().take(max) {
            let (mut alone, mut missing) = (none.clone(), all.clone());
            (alone[i], missing[i]) = (all[i], none[i]);
            ordered.push((whole, alone));
            ordered.push((whole, missing));
        }
        rng.shuffle(&mut ordered);
        let random = max / 3;
        for (prefix, versions) in ordered.into_iter().take(max.saturating_sub(4 + random)) {
            add(&mut found, prefix, versions);
        }
        // A sample of fewer than all choices: enough tries find new ones.
        for _ in 0..max * 8 {
            if found.len() == max {
                break;
            }
            let (newest, oldest) = (rng.f64(), rng.f64());
            let pick = |p: &PendingSector, rng: &mut fastrand::Rng| match () {
                () if rng.f64() < newest => p.newest,
                () if rng.f64() < oldest => p.oldest,
                () => rng.u16(p.oldest..=p.newest),
            };
            let versions = self.pending.iter().map(|p| pick(p, &mut rng)).collect();
            add(&mut found, rng.usize(0..=whole), versions);
        }
        found
    }
}

/// The clock and the counters go on after a power cut.
fn tick_to(state: &mut State, event: &HomeEvent) {
    match event {
        HomeEvent::Create { id, ino, time_ns, .. } => {
            state.next_id = state.next_id.max(id + 1);
            state.next_ino = state.next_ino.max(ino + 1);
            state.clock_ns = *time_ns;
        }
        HomeEvent::CreateDir { ino, time_ns, .. } => {
            state.next_ino = state.next_ino.max(ino + 1);
            state.clock_ns = *time_ns;
        }
        HomeEvent::Rename { time_ns, .. }
        | HomeEvent::Unlink { time_ns, .. }
        | HomeEvent::Link { time_ns, .. }
        | HomeEvent::Exchange { time_ns, .. }
        | HomeEvent::SetTimes { time_ns, .. }
        | HomeEvent::Write { time_ns, .. }
        | HomeEvent::Punch { time_ns, .. }
        | HomeEvent::SetLen { time_ns, .. } => state.clock_ns = *time_ns,
        _ => {}
    }
}

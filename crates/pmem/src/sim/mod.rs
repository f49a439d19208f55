//! The crash simulator: a machine whose mappings and devices are heap memory that records what is
//! done to it, so that a test can stop it between any two calls and look at every image a power cut
//! could leave.
//!
//! # The model
//! Sources: the SNIA NVM programming model (what a load/store medium promises) and the Intel SDM
//! (`clwb`, `sfence`, non-temporal stores). The model is meant to allow at least what the hardware
//! may do:
//!
//! - The unit is the aligned 8-byte word. It is never torn; nothing larger holds together.
//! - A store makes a new *version* of each word it touches, pending until durable.
//! - At a cut, every pending word shows its durable value or any one of its pending versions,
//!   independently of every other word: any subset of the unfenced lines, each torn by word. A
//!   cached store that nobody flushed may be there too (the cache evicted it).
//! - A fence makes durable: non-temporal stores before it by the same thread; cached stores before
//!   a flush of their line by that thread before the fence. A word's older versions go with the
//!   newest that became durable; newer ones stay pending.
//! - Growth is durable at once; new bytes are zero and durable.
//! - One fence counts for all mappings of a simulator (it is the processor's).
//!
//! Of a [`Device`], which is written by sectors:
//!
//! - The sector is never torn; nothing larger holds together. Until it is durable, a write may be
//!   lost or found, in any order and any part of its sectors.
//! - A sync makes durable the writes that had returned when it began; of several to one sector the
//!   last. Of two that were on their way together either may be the last, and a sync does not
//!   decide which.
//! - After a sync that failed, everything that was not durable is in doubt for good: there or not,
//!   whatever is synced later. So is a write that failed, until the sector is written again.
//! - Growth is durable at once. A fence means nothing to a device, and a sync nothing to a mapping.
//!
//! Stricter than some hardware: with eADR nothing flushed is lost; here it is. Laxer in one place:
//! of more than 64 threads some share a number, and then a fence of one counts for the other.
//!
//! # Use
//! A [`Simulator`] makes mappings; the code under test uses them as it would any other.
//! [`Simulator::trace`] gives the events; a [`Player`] replays them and writes out images;
//! [`crate::Mapping::in_memory`] opens an image for checking.
//!
//! ```
//! use tiersmith_pmem::{FRAME, sim::Simulator};
//! let sim = Simulator::new();
//! let pmem = sim.mapping(vec![0; FRAME], 0);
//! pmem.set_open_range(FRAME as u64);
//! pmem.nt_write(0, &[7; 8]); // the data
//! pmem.store_u64(64, 1); // the pointer, without a fence between
//! pmem.persist(64, 8);
//! let mut player = sim.trace().player();
//! player.advance_to(3); // the power goes just before the fence
//! let mut buffer = player.buffer();
//! let torn = player.images(100, 0).filter(|choice| {
//!     let image = &player.image(choice, &mut buffer)[0];
//!     image[64] == 1 && image[0] != 7
//! });
//! assert_eq!(torn.count(), 1); // of four images, one has the pointer without the data
//! ```
//!
//! Deliberately absent: time, and the order in which a real machine would most likely write lines
//! back.
//! Where to read next: `player.rs` and `sectors.rs` for the model in code, `images.rs` for which
//! images are tried.

mod device;
mod images;
mod player;
mod sectors;
mod watcher;

pub use device::Device;
pub use images::{Choice, Images};
pub use player::{ImageBuffer, PendingSector, PendingWord, Player};
pub(crate) use watcher::Watcher;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use crate::{FRAME, Mapping};

/// Something that happened to a simulated mapping or device, or a point marked by the test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes were stored.
    Store {
        /// Which mapping, counted from zero in the order in which mappings and devices were made.
        mapping: usize,
        /// Where.
        at: u64,
        /// How many bytes.
        len: usize,
        /// Past the caches.
        nt: bool,
    },
    /// The lines of a range were flushed.
    Flush {
        /// Which mapping.
        mapping: usize,
        /// Where.
        at: u64,
        /// How many bytes.
        len: usize,
    },
    /// Everything before was ordered.
    Fence,
    /// The test marked this point.
    Mark(u64),
    /// A mapping or a device grew.
    Grow {
        /// Which one.
        mapping: usize,
        /// Its new length.
        len: u64,
    },
    /// A write to a device began.
    Write {
        /// Which device.
        device: usize,
        /// Where.
        at: u64,
        /// How many bytes.
        len: usize,
        /// The number of the call.
        call: u64,
    },
    /// A write to a device returned.
    Returned {
        /// Which device.
        device: usize,
        /// The number of the call.
        call: u64,
        /// Whether it succeeded.
        good: bool,
    },
    /// A sync of a device began.
    SyncBegun {
        /// Which device.
        device: usize,
        /// The number of the call.
        call: u64,
    },
    /// A sync of a device succeeded.
    Synced {
        /// Which device.
        device: usize,
        /// The number of the call.
        call: u64,
    },
    /// A sync of a device failed.
    SyncFailed {
        /// Which device.
        device: usize,
    },
}

/// A fault planted in the machine, so that a test can show that it would be seen. Counts start at
/// zero and run from the call of [`Simulator::set_dropped`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// None.
    #[default]
    Nothing,
    /// No flush does anything.
    DropEveryFlush,
    /// The flush of this number does nothing.
    DropNthFlush(u64),
    /// No fence does anything.
    DropEveryFence,
    /// The fence of this number does nothing.
    DropNthFence(u64),
    /// Non-temporal stores stay in the caches: they need a flush that nobody sends.
    CacheEveryNonTemporal,
    /// The non-temporal store of this number stays in the caches.
    CacheNthNonTemporal(u64),
    /// No sync of a device does anything, and each says that it did.
    DropEverySync,
    /// The sync of this number does nothing and says that it did.
    DropNthSync(u64),
}

/// A write that goes astray: the medium says that it was done, and the bytes are not where they
/// should be. Of all stores to mappings and writes to devices that have `len` bytes and begin at
/// `from` or behind, it is the one of this number, counted from [`Simulator::set_astray`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Astray {
    /// Bytes of such a write: those of a block.
    pub len: usize,
    /// Where blocks begin.
    pub from: u64,
    /// Which one.
    pub nth: u64,
    /// So many bytes further it arrives, from the end of the medium on behind `from` again. `None`:
    /// it is lost, and what was there before stays.
    pub by: Option<u64>,
}

impl Astray {
    /// Where the bytes of a write arrive on a medium of `end` bytes; `None`: nowhere.
    fn place(self, at: u64, end: u64) -> Option<u64> {
        let span = (end - self.from) / self.len as u64 * self.len as u64;
        self.by.map(|by| self.from + (at - self.from + by) % span)
    }
}

/// An event with what the player needs to know of it.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) event: Event,
    /// Where the bytes of a store start in the data.
    pub(crate) data: usize,
    /// One bit: the thread.
    pub(crate) thread: u64,
}

/// Called before each call that would change a mapping; it may use the mappings itself, in another
/// thread too.
pub type Hook = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct State {
    bases: Vec<Vec<u8>>,
    /// Per medium: the bytes of a sector; 0 is a mapping.
    sectors: Vec<usize>,
    events: Vec<Recorded>,
    data: Vec<u8>,
    threads: Vec<ThreadId>,
    sabotage: Sabotage,
    flushes: u64,
    fences: u64,
    non_temporal: u64,
    syncs: u64,
    /// The number of the last call on a device that has two events.
    calls: u64,
    /// How many more calls there will be before the machine stops at a fence; nothing: it runs on.
    left: Option<u64>,
    stopped: bool,
    hook: Option<Hook>,
    astray: Option<Astray>,
}

impl State {
    /// Where a write of `len` bytes at `at` arrives; `None`: nowhere.
    fn arrives(&mut self, at: u64, len: usize, end: u64) -> Option<u64> {
        match &mut self.astray {
            Some(astray) if astray.len == len && at >= astray.from => {
                if astray.nth > 0 {
                    astray.nth -= 1;
                    return Some(at);
                }
                let astray = self.astray.take().expect("BUG: it was there a moment ago");
                astray.place(at, end)
            }
            _ => Some(at),
        }
    }

    /// Adds a mapping, or a device with sectors of this many bytes.
    fn add(&mut self, base: Vec<u8>, sector: usize) -> usize {
        self.bases.push(base);
        self.sectors.push(sector);
        self.bases.len() - 1
    }

    fn next_call(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    fn push(&mut self, event: Event) {
        let id = std::thread::current().id();
        let index = self.threads.iter().position(|known| *known == id).unwrap_or_else(|| {
            self.threads.push(id);
            self.threads.len() - 1
        });
        let data = self.data.len();
        self.events.push(Recorded { event, data, thread: 1 << (index % 64) });
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // A test that panicked in the middle of a call has its own message; the trace is whole between
    // pushes.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], for what would change a mapping: does not return when the machine has stopped, or
/// stops at this fence.
fn lock_running(state: &Mutex<State>, at_fence: bool) -> MutexGuard<'_, State> {
    let mut running = lock(state);
    if let Some(hook) = running.hook.clone() {
        drop(running);
        hook();
        running = lock(state);
    }
    match &mut running.left {
        None => {}
        Some(0) => running.stopped |= at_fence,
        Some(left) => *left -= 1,
    }
    if running.stopped {
        drop(running);
        loop {
            std::thread::park();
        }
    }
    running
}

/// Makes simulated mappings and holds their common trace. Clones share it.
#[derive(Clone, Default)]
pub struct Simulator {
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for Simulator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulator").field("position", &self.position()).finish_non_exhaustive()
    }
}

impl Simulator {
    /// An empty one.
    pub fn new() -> Simulator {
        Simulator::default()
    }

    /// A mapping whose durable contents are `image` (a multiple of [`FRAME`], not empty), which can
    /// grow to `max_len`. Its number in the trace is how many were made before it.
    pub fn mapping(&self, image: Vec<u8>, max_len: u64) -> Mapping {
        let mut state = lock(&self.state);
        let index = state.bases.len();
        let recorder = Recorder { state: Arc::clone(&self.state), index };
        let mapping = Mapping::on_heap(
            &image,
            max_len,
            Some(Watcher::Simulated(recorder)),
            &format!("simulated {index}"),
        );
        state.add(image, 0);
        mapping
    }

    /// Marks this point of the trace: the start or end of an operation, or an event outside the
    /// mappings.
    pub fn mark(&self, tag: u64) {
        lock(&self.state).push(Event::Mark(tag));
    }

    /// How many events there are since the start or the last [`Simulator::rebase`].
    pub fn position(&self) -> usize {
        lock(&self.state).events.len()
    }

    /// The events so far, with the contents they start from.
    pub fn trace(&self) -> Trace {
        let state = lock(&self.state);
        let (bases, sectors) = (state.bases.clone(), state.sectors.clone());
        let (events, data) = (state.events.clone(), state.data.clone());
        Trace { inner: Arc::new(TraceData { bases, sectors, events, data }) }
    }

    /// Forgets the events: what mappings and devices hold now is durable. Not while another thread
    /// is in a call.
    pub fn rebase(&self) {
        let mut state = lock(&self.state);
        let State { bases, events, data, .. } = &mut *state;
        for recorded in events.drain(..) {
            match recorded.event {
                Event::Store { mapping: medium, at, len, .. }
                | Event::Write { device: medium, at, len, .. } => {
                    let from = &data[recorded.data..recorded.data + len];
                    bases[medium][at as usize..at as usize + len].copy_from_slice(from);
                }
                Event::Grow { mapping, len } => bases[mapping].resize(len as usize, 0),
                Event::Flush { .. } | Event::Fence | Event::Mark(_) => {}
                Event::Returned { .. } | Event::SyncBegun { .. } => {}
                Event::Synced { .. } | Event::SyncFailed { .. } => {}
            }
        }
        data.clear();
    }

    /// Stops the machine at a fence, the first one after `calls` more calls that store, flush,
    /// fence or grow, and returns what has happened by then: a power cut under a program that knows
    /// nothing of it, threads and all, where most is on its way. That fence, and whatever is called
    /// later, never returns, so the process has no end from here on but to be killed. Waits for the
    /// fence.
    pub fn stop_after(&self, calls: u64) -> Trace {
        lock(&self.state).left = Some(calls);
        while !lock(&self.state).stopped {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        self.trace()
    }

    /// Calls `hook` from now on: where a test lets another thread go on in the middle of a call.
    pub fn set_hook(&self, hook: Option<Hook>) {
        lock(&self.state).hook = hook;
    }

    /// Lets a write go astray, or takes that back.
    pub fn set_astray(&self, astray: Option<Astray>) {
        lock(&self.state).astray = astray;
    }

    /// Whether a write is to go astray and has not yet.
    pub fn is_to_go_astray(&self) -> bool {
        lock(&self.state).astray.is_some()
    }

    /// Plants a fault from here on, replacing the one before.
    pub fn set_dropped(&self, fault: Sabotage) {
        let mut state = lock(&self.state);
        state.sabotage = fault;
        (state.flushes, state.fences, state.non_temporal, state.syncs) = (0, 0, 0, 0);
    }
}

/// What a simulated mapping holds instead of a medium.
pub(crate) struct Recorder {
    state: Arc<Mutex<State>>,
    index: usize,
}

impl Recorder {
    #[cold]
    pub(crate) fn store(&self, mapping: &Mapping, at: u64, bytes: &[u8], nt: bool) {
        if bytes.is_empty() {
            return;
        }
        let mut state = lock_running(&self.state, false);
        let Some(at) = state.arrives(at, bytes.len(), mapping.len()) else { return };
        let mut recorded_nt = nt;
        if nt {
            let number = state.non_temporal;
            state.non_temporal += 1;
            recorded_nt = match state.sabotage {
                Sabotage::CacheEveryNonTemporal => false,
                Sabotage::CacheNthNonTemporal(n) => n != number,
                _ => true,
            };
        }
        state.push(Event::Store { mapping: self.index, at, len: bytes.len(), nt: recorded_nt });
        state.data.extend_from_slice(bytes);
        // Under the lock, so that racing stores reach memory in the order of the trace.
        mapping.copy_in(at, bytes);
    }

    #[cold]
    pub(crate) fn flush(&self, at: u64, len: usize) {
        let mut state = lock_running(&self.state, false);
        let number = state.flushes;
        state.flushes += 1;
        let dropped = match state.sabotage {
            Sabotage::DropEveryFlush => true,
            Sabotage::DropNthFlush(n) => n == number,
            _ => false,
        };
        if !dropped && len > 0 {
            state.push(Event::Flush { mapping: self.index, at, len });
        }
    }

    #[cold]
    pub(crate) fn fence(&self) {
        let mut state = lock_running(&self.state, true);
        let number = state.fences;
        state.fences += 1;
        let dropped = match state.sabotage {
            Sabotage::DropEveryFence => true,
            Sabotage::DropNthFence(n) => n == number,
            _ => false,
        };
        if !dropped {
            state.push(Event::Fence);
        }
    }

    #[cold]
    pub(crate) fn grow(&self, len: u64) {
        lock_running(&self.state, false).push(Event::Grow { mapping: self.index, len });
    }
}

pub(crate) struct TraceData {
    pub(crate) bases: Vec<Vec<u8>>,
    pub(crate) sectors: Vec<usize>,
    pub(crate) events: Vec<Recorded>,
    pub(crate) data: Vec<u8>,
}

/// A trace as it was when taken. Clones share it.
#[derive(Clone)]
pub struct Trace {
    pub(crate) inner: Arc<TraceData>,
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace").field("events", &self.len()).finish_non_exhaustive()
    }
}

impl Trace {
    /// How many events it has.
    pub fn len(&self) -> usize {
        self.inner.events.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.inner.events.is_empty()
    }

    /// The events in order.
    pub fn events(&self) -> impl ExactSizeIterator<Item = &Event> {
        self.inner.events.iter().map(|recorded| &recorded.event)
    }

    /// The positions at which a cut shows everything a cut anywhere shows: before each fence, each
    /// end of a sync, growth and mark, and at the end. Between two of these the pending words and
    /// sectors only get more, and the images of an earlier cut are among those of a later one.
    pub fn cut_points(&self) -> Vec<usize> {
        let ends = |event: &Event| match event {
            Event::Fence | Event::Mark(_) | Event::Grow { .. } | Event::Synced { .. } => true,
            Event::Store { .. }
            | Event::Flush { .. }
            | Event::Write { .. }
            | Event::Returned { .. } => false,
            Event::SyncBegun { .. } | Event::SyncFailed { .. } => false,
        };
        let mut points: Vec<usize> =
            self.events().enumerate().filter(|(_, event)| ends(event)).map(|(at, _)| at).collect();
        points.push(self.len());
        points
    }

    /// Replays it from the start.
    pub fn player(&self) -> Player {
        Player::new(self)
    }
}

const _: () = assert!(FRAME.is_multiple_of(8), "frames are whole words");

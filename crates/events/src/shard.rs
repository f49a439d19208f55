//! What one thread has recorded in one registry: plain loads and stores, because a shard has one
//! writer.
//!
//! A load and a store, not a locked add: the writer is alone, so nothing can come between the two.
//! Readers load the same words at any time and see each of them at some recent value. Memory of a
//! histogram is taken an octave at a time, when its first value comes: 0.6 KiB for an event, 0.5
//! KiB for each octave that occurred.
//!
//! Invariant: one writer at a time. Who writes is decided in `registry.rs`; a shard changes hands
//! under its mutex, which orders the last store of one writer before the first load of the next.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::cells::Cells;
use crate::histogram::{Histogram, OCTAVES, SUBS, place};

type Octave = [AtomicU64; SUBS];
type Octaves = [OnceLock<Box<Octave>>; OCTAVES];

/// What one thread has recorded; see the file comment.
#[derive(Debug)]
pub(crate) struct Shard {
    events: Box<[EventCells]>,
    counters: Box<[CounterLine]>,
    pub(crate) tallies: Cells,
}

/// One event; a cache line of its own, so that a shard shares none with its neighbours in memory.
#[derive(Debug, Default)]
#[repr(align(64))]
struct EventCells {
    total_ns: AtomicU64,
    max_ns: AtomicU64,
    bytes: AtomicU64,
    octaves: OnceLock<Box<Octaves>>,
}

const COUNTERS_PER_LINE: usize = 8;

/// Counters of one thread share cache lines with each other, not with those of other threads.
#[derive(Debug, Default)]
#[repr(align(64))]
struct CounterLine([AtomicU64; COUNTERS_PER_LINE]);

/// Adds without a locked instruction; right only for the one writer of the shard.
#[inline]
fn add_alone(cell: &AtomicU64, n: u64) {
    cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
}

impl Shard {
    pub(crate) fn new(events: usize, counters: usize) -> Shard {
        Shard {
            events: (0..events).map(|_| EventCells::default()).collect(),
            counters: (0..counters.div_ceil(COUNTERS_PER_LINE))
                .map(|_| CounterLine::default())
                .collect(),
            tallies: Cells::default(),
        }
    }

    /// Records one wait. The caller is the only writer.
    #[inline]
    pub(crate) fn record(&self, event: usize, value_ns: u64, bytes: u64) {
        let cells = &self.events[event];
        let (octave, sub) = place(value_ns);
        let octaves = match cells.octaves.get() {
            Some(octaves) => octaves,
            None => cells.first_record(),
        };
        let counts = match octaves[octave].get() {
            Some(counts) => counts,
            None => first_in_octave(&octaves[octave]),
        };
        add_alone(&counts[sub], 1);
        add_alone(&cells.total_ns, value_ns);
        if value_ns > cells.max_ns.load(Relaxed) {
            cells.max_ns.store(value_ns, Relaxed);
        }
        if bytes != 0 {
            add_alone(&cells.bytes, bytes);
        }
    }

    /// Adds to a counter. The caller is the only writer.
    #[inline]
    pub(crate) fn count(&self, counter: usize, n: u64) {
        add_alone(&self.counters[counter / COUNTERS_PER_LINE].0[counter % COUNTERS_PER_LINE], n);
    }

    /// Adds what was recorded for an event; returns its bytes. Any thread, at any time.
    pub(crate) fn add_event_to(&self, event: usize, histogram: &mut Histogram) -> u64 {
        let cells = &self.events[event];
        let Some(octaves) = cells.octaves.get() else { return 0 };
        for (octave, counts) in octaves.iter().enumerate() {
            if let Some(counts) = counts.get() {
                histogram.add_octave(octave, |sub| counts[sub].load(Relaxed));
            }
        }
        histogram.add_summary(cells.total_ns.load(Relaxed), cells.max_ns.load(Relaxed));
        cells.bytes.load(Relaxed)
    }

    /// The value of a counter. Any thread, at any time.
    pub(crate) fn counter(&self, counter: usize) -> u64 {
        self.counters[counter / COUNTERS_PER_LINE].0[counter % COUNTERS_PER_LINE].load(Relaxed)
    }
}

impl EventCells {
    #[cold]
    fn first_record(&self) -> &Octaves {
        self.octaves.get_or_init(|| Box::new([const { OnceLock::new() }; OCTAVES]))
    }
}

#[cold]
fn first_in_octave(octave: &OnceLock<Box<Octave>>) -> &Octave {
    octave.get_or_init(|| Box::new([const { AtomicU64::new(0) }; SUBS]))
}

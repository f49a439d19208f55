//! A reading of a registry, and the difference of two readings.
//!
//! A reading is taken while threads go on recording: each number in it is exact for some instant
//! during the reading, and a wait that was recorded during it may be in the count and not yet in
//! the time. Of threads that have ended, or that the reader has waited for, everything is in it.

use crate::{CounterDef, CounterId, EventDef, EventId, Histogram, WaitClass};

/// What a registry had recorded at one instant, or between two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Totals {
    pub(crate) event_defs: &'static [EventDef],
    pub(crate) counter_defs: &'static [CounterDef],
    pub(crate) events: Vec<EventTotals>,
    pub(crate) counters: Vec<u64>,
}

/// What was recorded for one wait event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventTotals {
    pub(crate) histogram: Histogram,
    pub(crate) bytes: u64,
}

/// The sum over the wait events of one class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassTotals {
    /// Waits.
    pub count: u64,
    /// Time waited.
    pub total_ns: u64,
}

/// What an index outside the tables (a disabled registry has none) is answered with.
static NOTHING: EventTotals = EventTotals { histogram: Histogram::new(), bytes: 0 };

impl EventTotals {
    /// Waits: the sum of the histogram.
    pub fn count(&self) -> u64 {
        self.histogram.count()
    }

    /// Time waited.
    pub fn total_ns(&self) -> u64 {
        self.histogram.total_ns()
    }

    /// The longest wait, zero if there was none; see [`Histogram::since`] for a difference.
    pub fn max_ns(&self) -> u64 {
        self.histogram.max_ns().unwrap_or(0)
    }

    /// The mean wait, or nothing if there was none.
    pub fn mean_ns(&self) -> Option<f64> {
        self.histogram.mean_ns()
    }

    /// Bytes moved in these waits, as given to `record_n`.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waits by duration.
    pub fn histogram(&self) -> &Histogram {
        &self.histogram
    }
}

impl Totals {
    /// What was recorded for an event; all zero if the registry was disabled.
    pub fn event(&self, event: EventId) -> &EventTotals {
        self.events.get(event.index()).unwrap_or(&NOTHING)
    }

    /// The value of a counter; zero if the registry was disabled.
    pub fn counter(&self, counter: CounterId) -> u64 {
        self.counters.get(counter.index()).copied().unwrap_or(0)
    }

    /// Every event of the table, in its order, those that never happened too.
    pub fn events(&self) -> impl Iterator<Item = (&'static EventDef, &EventTotals)> {
        self.event_defs.iter().zip(&self.events)
    }

    /// Every counter of the table, in its order.
    pub fn counters(&self) -> impl Iterator<Item = (&'static CounterDef, u64)> {
        self.counter_defs.iter().zip(self.counters.iter().copied())
    }

    /// The sum over the events of a class, of requests (`background` false) or of background work.
    pub fn class(&self, class: WaitClass, background: bool) -> ClassTotals {
        let mut sum = ClassTotals::default();
        for (def, totals) in self.events() {
            if def.class == class && def.background == background {
                sum.count += totals.count();
                sum.total_ns += totals.total_ns();
            }
        }
        sum
    }

    /// What was recorded between `earlier` and this reading of the same registry.
    ///
    /// Readings of different registries do not belong together; numbers that would be negative are
    /// given as zero.
    pub fn since(&self, earlier: &Totals) -> Totals {
        let events = self.events.iter().enumerate().map(|(index, now)| {
            let before = earlier.events.get(index).unwrap_or(&NOTHING);
            EventTotals {
                histogram: now.histogram.since(&before.histogram),
                bytes: now.bytes.saturating_sub(before.bytes),
            }
        });
        let counters = self.counters.iter().enumerate().map(|(index, now)| {
            let before = earlier.counters.get(index).copied().unwrap_or(0);
            now.saturating_sub(before)
        });
        Totals { events: events.collect(), counters: counters.collect(), ..*self }
    }
}

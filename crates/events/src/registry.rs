//! The registry: a handle that records, and the rule that gives every shard one writer.
//!
//! A thread finds its shard through a thread-local list, one entry per registry it has used. The
//! first record takes a shard from the registry: one that an ended thread has given back, or a new
//! one. When the thread ends, the list is dropped and the shards go back, totals and all. Entries
//! of registries that are gone are swept out when the thread next meets a new registry, so a
//! million short-lived registries leave nothing behind.
//!
//! Invariants: a shard is in the free list or has one owner (a thread's list, a [`Recorder`], or
//! the holder of the `spare` lock), never two; a shard stays in `all` as long as the registry
//! lives.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::cells::{NONE, Rows};
use crate::clock::clock;
use crate::shard::Shard;
use crate::tally::Tally;
use crate::totals::{EventTotals, Totals};
use crate::{CounterDef, CounterId, EventDef, EventId, Histogram};

/// Where waits and counts are recorded and read. A clone is the same registry.
#[derive(Clone)]
pub struct Registry {
    /// Unlike an address, never used twice in a process; zero when disabled.
    id: u64,
    inner: Option<Arc<Inner>>,
}

struct Inner {
    events: &'static [EventDef],
    counters: &'static [CounterDef],
    pool: Mutex<Pool>,
    /// For a thread that records while its thread-local list is already gone (from another
    /// thread-local's drop).
    spare: Mutex<Option<Arc<Shard>>>,
}

#[derive(Default)]
struct Pool {
    all: Vec<Arc<Shard>>,
    free: Vec<Arc<Shard>>,
    rows: Rows,
}

/// The instant a wait began, in units of the clock.
#[derive(Debug, Clone, Copy)]
#[must_use = "a wait is timed when its start is given to `record`"]
pub struct Start(u64);

/// A shard with its one owner; dropping it gives the shard back.
struct Lease {
    id: u64,
    shard: Arc<Shard>,
    registry: Weak<Inner>,
}

/// Records without looking the thread's shard up, for a loop that records often. May move to
/// another thread; two threads cannot share one.
pub struct Recorder {
    lease: Option<Lease>,
    /// One writer per shard: a `Recorder` must not be `Sync`.
    one_thread: PhantomData<Cell<()>>,
}

thread_local! {
    static LEASES: RefCell<Vec<Lease>> = const { RefCell::new(Vec::new()) };
}

/// The id of the next registry.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Registry {
    /// A registry of these events and counters. Allocates little and does not touch the clock.
    ///
    /// # Panics
    /// If a table has more than 65536 rows.
    pub fn new(events: &'static [EventDef], counters: &'static [CounterDef]) -> Registry {
        let most = usize::from(u16::MAX) + 1;
        assert!(
            events.len() <= most && counters.len() <= most,
            "BUG: a table has more rows than an index reaches"
        );
        let inner = Inner { events, counters, pool: Mutex::default(), spare: Mutex::default() };
        Registry { id: NEXT_ID.fetch_add(1, Relaxed), inner: Some(Arc::new(inner)) }
    }

    /// A registry that records nothing and reads no clock, to measure what recording costs.
    pub const fn disabled() -> Registry {
        Registry { id: 0, inner: None }
    }

    /// Whether this registry records.
    #[inline]
    pub const fn is_enabled(&self) -> bool {
        self.id != 0
    }

    /// The events this registry was made with; none if disabled.
    pub fn event_defs(&self) -> &'static [EventDef] {
        self.inner.as_ref().map_or(&[], |inner| inner.events)
    }

    /// The counters this registry was made with; none if disabled.
    pub fn counter_defs(&self) -> &'static [CounterDef] {
        self.inner.as_ref().map_or(&[], |inner| inner.counters)
    }

    /// The instant a wait begins.
    #[inline]
    pub fn start(&self) -> Start {
        if self.is_enabled() { Start(clock().now()) } else { Start(0) }
    }

    /// Records a wait that began at `start` and ends now. Returns now, which may be the start of
    /// the next wait.
    ///
    /// # Panics
    /// If `event` is not an index into this registry's table.
    #[inline]
    pub fn record(&self, event: EventId, start: Start) -> Start {
        self.record_n(event, start, 0)
    }

    /// Records a wait as [`Registry::record`] does, and the bytes it moved.
    ///
    /// # Panics
    /// If `event` is not an index into this registry's table.
    #[inline]
    pub fn record_n(&self, event: EventId, start: Start, bytes: u64) -> Start {
        if !self.is_enabled() {
            return Start(0);
        }
        let clock = clock();
        let end = clock.now();
        if start.0 != 0 {
            self.record_ns(event, clock.ns_between(start.0, end), bytes);
        }
        Start(end)
    }

    /// Records a wait as [`Registry::record_n`] does and adds `n` to a counter: the thread's shard
    /// is looked up once.
    ///
    /// # Panics
    /// If `event` or `counter` is not an index into this registry's tables.
    #[inline]
    pub fn record_and_count(
        &self,
        event: EventId,
        start: Start,
        bytes: u64,
        counter: CounterId,
        n: u64,
    ) -> Start {
        if !self.is_enabled() {
            return Start(0);
        }
        let clock = clock();
        let end = clock.now();
        self.with_shard(|shard| {
            if start.0 != 0 {
                shard.record(event.index(), clock.ns_between(start.0, end), bytes);
            }
            shard.count(counter.index(), n);
        });
        Start(end)
    }

    /// Records a wait as [`Registry::record_n`] does, and adds `n` to a counter and to a cell of a
    /// tally of this registry.
    ///
    /// # Panics
    /// If `event` or `counter` is not an index into this registry's tables.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "one look-up of the shard for all of it")]
    pub fn record_and_tally(
        &self,
        event: EventId,
        start: Start,
        bytes: u64,
        counter: CounterId,
        tally: &Tally,
        cell: usize,
        n: u64,
    ) -> Start {
        if !self.is_enabled() {
            return Start(0);
        }
        let clock = clock();
        let end = clock.now();
        self.with_shard(|shard| {
            if start.0 != 0 {
                shard.record(event.index(), clock.ns_between(start.0, end), bytes);
            }
            shard.count(counter.index(), n);
            shard.tallies.add(tally.row(), cell, n);
        });
        Start(end)
    }

    /// A tally that nothing was added to yet.
    pub fn tally(&self) -> Tally {
        Tally::new(self, self.inner.as_ref().map(|inner| inner.pool.lock().rows.take()))
    }

    /// Adds `n` to a counter and to a cell of a tally of this registry.
    ///
    /// # Panics
    /// If `counter` is not an index into this registry's table.
    #[inline]
    pub fn count_and_tally(&self, counter: CounterId, tally: &Tally, cell: usize, n: u64) {
        self.with_shard(|shard| {
            shard.count(counter.index(), n);
            shard.tallies.add(tally.row(), cell, n);
        });
    }

    /// Adds `n` to a cell of a tally of this registry.
    #[inline]
    pub fn tally_up(&self, tally: &Tally, cell: usize, n: u64) {
        self.with_shard(|shard| shard.tallies.add(tally.row(), cell, n));
    }

    pub(crate) fn sum_of_row(&self, row: u32, cell: usize) -> u64 {
        let Some(inner) = self.inner.as_ref().filter(|_| row != NONE) else { return 0 };
        let pool = inner.pool.lock();
        pool.all.iter().fold(0, |sum, shard| sum.wrapping_add(shard.tallies.read(row, cell)))
    }

    pub(crate) fn give_row(&self, row: u32) {
        if let Some(inner) = &self.inner {
            inner.pool.lock().rows.give(row);
        }
    }

    /// Records a wait whose duration is known.
    ///
    /// # Panics
    /// If `event` is not an index into this registry's table.
    #[inline]
    pub fn record_ns(&self, event: EventId, wait_ns: u64, bytes: u64) {
        self.with_shard(|shard| shard.record(event.index(), wait_ns, bytes));
    }

    /// Adds `n` to a counter.
    ///
    /// # Panics
    /// If `counter` is not an index into this registry's table.
    #[inline]
    pub fn count(&self, counter: CounterId, n: u64) {
        self.with_shard(|shard| shard.count(counter.index(), n));
    }

    /// A recorder with a shard of its own.
    pub fn recorder(&self) -> Recorder {
        let lease = self.inner.as_ref().map(|inner| Lease::take(self.id, inner));
        Recorder { lease, one_thread: PhantomData }
    }

    /// Everything recorded so far; stops nobody.
    pub fn read(&self) -> Totals {
        let Some(inner) = &self.inner else {
            return Totals {
                event_defs: &[],
                counter_defs: &[],
                events: Vec::new(),
                counters: Vec::new(),
            };
        };
        // The list is copied so that a thread that needs a shard meanwhile does not wait for the
        // summing.
        let shards = inner.pool.lock().all.clone();
        let events = (0..inner.events.len()).map(|event| {
            let mut histogram = Histogram::new();
            let bytes = shards.iter().map(|shard| shard.add_event_to(event, &mut histogram)).sum();
            EventTotals { histogram, bytes }
        });
        let counters = (0..inner.counters.len())
            .map(|counter| shards.iter().map(|shard| shard.counter(counter)).sum());
        Totals {
            event_defs: inner.events,
            counter_defs: inner.counters,
            events: events.collect(),
            counters: counters.collect(),
        }
    }

    /// Runs `write` on the shard of this thread, if the registry is enabled.
    #[inline]
    fn with_shard(&self, write: impl Fn(&Shard)) {
        if !self.is_enabled() {
            return;
        }
        let found = LEASES.try_with(|leases| {
            match leases.borrow().iter().find(|lease| lease.id == self.id) {
                Some(lease) => {
                    write(&lease.shard);
                    true
                }
                None => false,
            }
        });
        if found != Ok(true) {
            self.with_new_shard(&write);
        }
    }

    #[cold]
    fn with_new_shard(&self, write: &dyn Fn(&Shard)) {
        let inner = self.inner.as_ref().expect("BUG: an enabled registry has no inside");
        let leased = LEASES.try_with(|leases| {
            let lease = Lease::take(self.id, inner);
            write(&lease.shard);
            let mut leases = leases.borrow_mut();
            leases.retain(|lease| lease.registry.strong_count() > 0);
            leases.push(lease);
        });
        if leased.is_err() {
            let mut spare = inner.spare.lock();
            write(spare.get_or_insert_with(|| inner.take_shard()));
        }
    }

    #[cfg(test)]
    fn shard_count(&self) -> usize {
        self.inner.as_ref().map_or(0, |inner| inner.pool.lock().all.len())
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = self.counter_defs().len();
        f.debug_struct("Registry")
            .field("events", &self.event_defs().len())
            .field("counters", &counters)
            .finish()
    }
}

impl Inner {
    fn take_shard(&self) -> Arc<Shard> {
        let mut pool = self.pool.lock();
        if let Some(shard) = pool.free.pop() {
            return shard;
        }
        let shard = Arc::new(Shard::new(self.events.len(), self.counters.len()));
        pool.all.push(Arc::clone(&shard));
        shard
    }
}

impl Lease {
    fn take(id: u64, inner: &Arc<Inner>) -> Lease {
        Lease { id, shard: inner.take_shard(), registry: Arc::downgrade(inner) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(inner) = self.registry.upgrade() {
            inner.pool.lock().free.push(Arc::clone(&self.shard));
        }
    }
}

impl Recorder {
    /// The instant a wait begins.
    #[inline]
    pub fn start(&self) -> Start {
        if self.lease.is_some() { Start(clock().now()) } else { Start(0) }
    }

    /// Records a wait, as [`Registry::record`].
    ///
    /// # Panics
    /// If `event` is not an index into the registry's table.
    #[inline]
    pub fn record(&self, event: EventId, start: Start) -> Start {
        self.record_n(event, start, 0)
    }

    /// Records a wait and the bytes it moved, as [`Registry::record_n`].
    ///
    /// # Panics
    /// If `event` is not an index into the registry's table.
    #[inline]
    pub fn record_n(&self, event: EventId, start: Start, bytes: u64) -> Start {
        let Some(lease) = &self.lease else { return Start(0) };
        let clock = clock();
        let end = clock.now();
        if start.0 != 0 {
            lease.shard.record(event.index(), clock.ns_between(start.0, end), bytes);
        }
        Start(end)
    }

    /// Records a wait whose duration is known.
    ///
    /// # Panics
    /// If `event` is not an index into the registry's table.
    #[inline]
    pub fn record_ns(&self, event: EventId, wait_ns: u64, bytes: u64) {
        if let Some(lease) = &self.lease {
            lease.shard.record(event.index(), wait_ns, bytes);
        }
    }

    /// Adds `n` to a counter.
    ///
    /// # Panics
    /// If `counter` is not an index into the registry's table.
    #[inline]
    pub fn count(&self, counter: CounterId, n: u64) {
        if let Some(lease) = &self.lease {
            lease.shard.count(counter.index(), n);
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("enabled", &self.lease.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::wait_events! {
        /// Events for the tests.
        const EVENTS;
        /// A wait.
        WAIT = "wait", UserIo;
        /// Another wait.
        OTHER = "other wait", SystemIo, background;
    }
    crate::counters! {
        /// Counters for the tests.
        const COUNTERS;
        /// Things.
        THINGS = "things", "things";
    }

    #[test]
    fn threads_that_follow_each_other_share_one_shard_and_keep_its_totals() {
        let registry = Registry::new(EVENTS, COUNTERS);
        for _ in 0..20 {
            let registry = registry.clone();
            std::thread::spawn(move || {
                registry.record_ns(WAIT, 1_000, 1);
                registry.count(THINGS, 3);
            })
            .join()
            .unwrap();
        }
        let totals = registry.read();
        assert_eq!(registry.shard_count(), 1);
        assert_eq!((totals.event(WAIT).count(), totals.event(WAIT).bytes()), (20, 20));
        assert_eq!(totals.counter(THINGS), 60);
    }

    #[test]
    fn a_recorder_does_not_share_the_shard_of_its_thread() {
        let registry = Registry::new(EVENTS, COUNTERS);
        registry.count(THINGS, 1);
        let recorder = registry.recorder();
        recorder.count(THINGS, 1);
        assert_eq!(registry.shard_count(), 2);
        drop(recorder);
        registry.recorder().count(THINGS, 1);
        assert_eq!(registry.shard_count(), 2);
        assert_eq!(registry.read().counter(THINGS), 3);
    }

    #[test]
    fn a_thousand_registries_leave_one_entry_in_the_thread() {
        std::thread::spawn(|| {
            for _ in 0..1_000 {
                Registry::new(EVENTS, COUNTERS).record_ns(WAIT, 1, 0);
            }
            assert_eq!(LEASES.with_borrow(Vec::len), 1);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_registry_may_be_dropped_before_the_threads_that_recorded_in_it() {
        let registry = Registry::new(EVENTS, COUNTERS);
        let (told, wait) = std::sync::mpsc::channel::<()>();
        let (tell, recorded) = std::sync::mpsc::channel::<()>();
        let clone = registry.clone();
        let thread = std::thread::spawn(move || {
            clone.count(THINGS, 1);
            drop(clone);
            tell.send(()).unwrap();
            wait.recv().unwrap();
        });
        recorded.recv().unwrap();
        drop(registry);
        told.send(()).unwrap();
        thread.join().unwrap();
    }

    struct RecordsInDrop(Registry);

    impl Drop for RecordsInDrop {
        fn drop(&mut self) {
            self.0.record_ns(WAIT, 1, 0);
            self.0.count(THINGS, 1);
        }
    }

    thread_local! {
        static FIRST: RefCell<Option<RecordsInDrop>> = const { RefCell::new(None) };
        static LAST: RefCell<Option<RecordsInDrop>> = const { RefCell::new(None) };
    }

    #[test]
    fn what_a_thread_records_while_it_ends_is_counted() {
        let registry = Registry::new(EVENTS, COUNTERS);
        let clone = registry.clone();
        std::thread::spawn(move || {
            // Whatever the order thread-locals are dropped in, one of the two is dropped after the
            // shards are gone.
            FIRST.set(Some(RecordsInDrop(clone.clone())));
            clone.count(THINGS, 1);
            LAST.set(Some(RecordsInDrop(clone)));
        })
        .join()
        .unwrap();
        assert_eq!(registry.read().event(WAIT).count(), 2);
        assert_eq!(registry.read().counter(THINGS), 3);
        assert!(registry.inner.as_ref().unwrap().spare.lock().is_some());
    }

    #[test]
    fn a_disabled_registry_records_nothing_and_gives_zero() {
        let registry = Registry::disabled();
        let start = registry.record(WAIT, registry.start());
        let recorder = registry.recorder();
        let _ = recorder.record_n(OTHER, start, 10);
        recorder.count(THINGS, 1);
        registry.count(THINGS, 1);
        let totals = registry.read();
        assert_eq!((totals.event(WAIT).count(), totals.counter(THINGS)), (0, 0));
        assert_eq!(totals.events().count(), 0);
    }

    #[test]
    fn a_wait_and_a_count_recorded_together_are_both_there() {
        let registry = Registry::new(EVENTS, COUNTERS);
        let next = registry.record_and_count(WAIT, registry.start(), 100, THINGS, 7);
        let _ = registry.record_and_count(OTHER, next, 1, THINGS, 1);
        // What began when nothing was recorded has no duration; what is counted is counted.
        let _ = registry.record_and_count(WAIT, Registry::disabled().start(), 5, THINGS, 2);
        let totals = registry.read();
        assert_eq!((totals.event(WAIT).count(), totals.event(WAIT).bytes()), (1, 100));
        assert_eq!((totals.event(OTHER).count(), totals.counter(THINGS)), (1, 10));
        let disabled = Registry::disabled();
        let _ = disabled.record_and_count(WAIT, disabled.start(), 1, THINGS, 1);
        assert_eq!(disabled.read().counter(THINGS), 0);
    }

    #[test]
    fn a_start_of_a_disabled_registry_records_nothing_elsewhere() {
        let registry = Registry::new(EVENTS, COUNTERS);
        let _ = registry.record(WAIT, Registry::disabled().start());
        assert_eq!(registry.read().event(WAIT).count(), 0);
    }

    #[test]
    fn waits_in_a_chain_add_up_to_the_whole() {
        let registry = Registry::new(EVENTS, COUNTERS);
        let begin = std::time::Instant::now();
        let mut start = registry.start();
        for _ in 0..10 {
            std::thread::sleep(std::time::Duration::from_millis(1));
            start = registry.record(WAIT, start);
        }
        let elapsed_ns = begin.elapsed().as_nanos() as u64;
        let totals = registry.read();
        let waited_ns = totals.event(WAIT).total_ns();
        assert_eq!(totals.event(WAIT).count(), 10);
        assert!(
            (10_000_000..=elapsed_ns + elapsed_ns / 100).contains(&waited_ns),
            "{waited_ns} of {elapsed_ns}"
        );
    }
}

//! What became of the reads of each file: hits, misses, why a block that was read from home is no
//! clean copy, what was copied and given up, and what was written to the tier.
//!
//! A hit and a write add to a [`Tally`], in the memory of their own thread. All else is far from
//! the quick ways, and adds to the file's own numbers. Sums by class are counters of the registry
//! ([`crate::waits`]): they stay when a file goes.
//!
//! **Invariant**: each block that missed is in the end either a clean copy or skipped for one
//! reason; until then it waits for the background.
//!
//! **Deliberately absent**: any decision. Nobody asks these numbers what to do.

use crate::waits;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tiersmith_events::{CounterId, EventId, Registry, Start, Tally, Totals};

/// Why a block that was read from home did not become a clean copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// It is part of a scan of a large file.
    Scan,
    /// The tier is full, and nobody asked for it before, as far as is known.
    First,
    /// The tier is full, and it was asked for before, but too long ago.
    Rare,
    /// It would have become one, and the write budget has room for better ones only, or for none.
    Budget,
    /// What is free is the writers'.
    NoRoom,
    /// A rule says `none` ([`crate::Keeping::None`]).
    Rule,
    /// Its file has no clean copies: it is redo, has no slot, or the tier takes none.
    Outside,
    /// It was in the tier by then, or is on its way there.
    Exists,
    /// It was changed, cut or destaged meanwhile, or could not be read again or written.
    Lost,
}

impl Skip {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Skip; 9] = [
        Skip::Scan,
        Skip::First,
        Skip::Rare,
        Skip::Budget,
        Skip::NoRoom,
        Skip::Rule,
        Skip::Outside,
        Skip::Exists,
        Skip::Lost,
    ];

    /// The words for it in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Skip::Scan => "scan",
            Skip::First => "first request",
            Skip::Rare => "requested too long ago",
            Skip::Budget => "write budget",
            Skip::NoRoom => "no room",
            Skip::Rule => "rule none",
            Skip::Outside => "file without copies",
            Skip::Exists => "exists",
            Skip::Lost => "changed meanwhile",
        }
    }

    /// Its counter, of all files.
    pub const fn counter(self) -> CounterId {
        match self {
            Skip::Scan => waits::SKIP_SCAN,
            Skip::First => waits::SKIP_FIRST,
            Skip::Rare => waits::SKIP_RARE,
            Skip::Budget => waits::SKIP_BUDGET,
            Skip::NoRoom => waits::SKIP_NO_ROOM,
            Skip::Rule => waits::SKIP_RULE,
            Skip::Outside => waits::SKIP_OUTSIDE,
            Skip::Exists => waits::SKIP_EXISTS,
            Skip::Lost => waits::SKIP_LOST,
        }
    }
}

/// Cells of a file's tally.
const HITS: usize = 0;
const WRITTEN: usize = 1;

/// What is counted of a file that has a place in a tier.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// Made with the first hit or write.
    tally: OnceLock<Tally>,
    misses: AtomicU64,
    inserts: AtomicU64,
    skips: [AtomicU64; Skip::ALL.len()],
    aged_out: AtomicU64,
    invalidated: AtomicU64,
}

/// What was counted of a file since it was last attached, or since it got its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileUse {
    /// What is 0 because nobody counts it: hits, and bytes written. There were more files than
    /// there are tallies, or nothing is recorded.
    pub uncounted: bool,
    /// Blocks read from the tier.
    pub hits: u64,
    /// Blocks read from home.
    pub misses: u64,
    /// Blocks of home that became clean copies: after a miss, or because somebody asked for it.
    pub inserts: u64,
    /// Blocks that missed and did not, by the reason, as in [`Skip::ALL`].
    pub skips: [u64; Skip::ALL.len()],
    /// Clean copies that went to make room, or because somebody asked for it.
    pub aged_out: u64,
    /// Clean copies that went because home was written past them, cut or cleared, or because the
    /// medium no longer gave them as they were.
    pub invalidated: u64,
    /// Bytes written to the tier, of programs and clean copies: whole blocks of data files, of redo
    /// the bytes that were asked for. The zeros at the end of a file that was cut, and what is
    /// brought in of a redo file that is pinned, are not among them.
    pub bytes_written: u64,
}

/// Blocks of data files that were read since the attach. All data lives in one tier.
pub(crate) fn blocks_read(waits: &Totals) -> u64 {
    let sum = |ids: &[CounterId]| ids.iter().map(|id| waits.counter(*id)).sum::<u64>();
    let all = sum(&[waits::TIER_HITS, waits::ZERO_COPY, waits::TIER_MISSES]);
    all.saturating_sub(sum(&[waits::REDO_HITS, waits::REDO_MISSES]))
}

impl Usage {
    #[inline]
    fn tally(&self, events: &Registry) -> &Tally {
        match self.tally.get() {
            Some(tally) => tally,
            None => self.first(events),
        }
    }

    #[cold]
    fn first(&self, events: &Registry) -> &Tally {
        self.tally.get_or_init(|| events.tally())
    }

    /// A block was read from the tier.
    #[inline]
    pub(crate) fn hit(&self, events: &Registry, event: EventId, start: Start, bytes: u64) {
        let tally = self.tally(events);
        let _ = events.record_and_tally(event, start, bytes, waits::TIER_HITS, tally, HITS, 1);
    }

    /// A block was lent where it is in the tier.
    #[inline]
    pub(crate) fn hit_in_place(&self, events: &Registry) {
        events.count_and_tally(waits::ZERO_COPY, self.tally(events), HITS, 1);
    }

    /// Somebody wrote `bytes`; blocks of `whole` bytes went to the tier for it.
    #[inline]
    pub(crate) fn wrote(
        &self,
        events: &Registry,
        (event, counter): (EventId, CounterId),
        start: Start,
        bytes: u64,
        whole: u64,
    ) {
        let tally = self.tally(events);
        let _ = events.record_and_tally(event, start, bytes, counter, tally, WRITTEN, whole);
    }

    /// So many blocks were read from home.
    pub(crate) fn missed(&self, blocks: u64) {
        let _ = self.misses.fetch_add(blocks, Relaxed);
    }

    /// A block of so many bytes became a clean copy.
    pub(crate) fn inserted(
        &self,
        events: &Registry,
        event: Option<EventId>,
        start: Start,
        bytes: u64,
    ) {
        let _ = self.inserts.fetch_add(1, Relaxed);
        events.count(waits::INSERTS, 1);
        let counter = waits::DATA_WRITTEN;
        match event {
            Some(event) => self.wrote(events, (event, counter), start, bytes, bytes),
            None => events.count_and_tally(counter, self.tally(events), WRITTEN, bytes),
        }
    }

    /// So many blocks that missed become no clean copies.
    pub(crate) fn skipped(&self, events: &Registry, skip: Skip, blocks: u64) {
        if blocks > 0 {
            let _ = self.skips[skip as usize].fetch_add(blocks, Relaxed);
            events.count(skip.counter(), blocks);
        }
    }

    /// So many clean copies made room.
    pub(crate) fn aged_out(&self, events: &Registry, blocks: u64) {
        let _ = self.aged_out.fetch_add(blocks, Relaxed);
        events.count(waits::EVICTED, blocks);
    }

    /// So many clean copies were no longer what home has.
    pub(crate) fn invalidated(&self, events: &Registry, blocks: u64) {
        let _ = self.invalidated.fetch_add(blocks, Relaxed);
        events.count(waits::INVALIDATED, blocks);
    }

    pub(crate) fn read(&self) -> FileUse {
        let of = |cell| self.tally.get().map_or(0, |tally| tally.read(cell));
        FileUse {
            uncounted: self.tally.get().is_some_and(|tally| !tally.counts()),
            hits: of(HITS),
            misses: self.misses.load(Relaxed),
            inserts: self.inserts.load(Relaxed),
            skips: std::array::from_fn(|n| self.skips[n].load(Relaxed)),
            aged_out: self.aged_out.load(Relaxed),
            invalidated: self.invalidated.load(Relaxed),
            bytes_written: of(WRITTEN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_a_place_of_its_own_and_a_counter_that_is_called_after_it() {
        for (n, skip) in Skip::ALL.into_iter().enumerate() {
            assert_eq!(skip as usize, n);
            let counter = &waits::COUNTERS[skip.counter().index()];
            assert_eq!(counter.name, format!("flash cache insert skip: {}", skip.name()));
        }
    }

    #[test]
    fn what_nobody_counts_says_so() {
        let (usage, disabled) = (Usage::default(), Registry::disabled());
        assert!(!usage.read().uncounted, "nothing was read or written yet");
        usage.hit(&disabled, waits::CACHED_READ, disabled.start(), 1);
        usage.missed(3);
        let found = usage.read();
        assert_eq!((found.uncounted, found.hits, found.misses), (true, 0, 3));
    }
}

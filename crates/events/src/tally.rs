//! A tally: a row of cells for a thing that comes and goes while a registry lives, a file for
//! instance. Each thread adds to cells of its own ([`crate::cells`]), as with a counter.
//!
//! When a tally is dropped its row is another's; what the shards have in it by then is where that
//! one begins.
//!
//! **Deliberately absent**: a tally for everything. There are a quarter of a million; whoever comes
//! when all are taken has a tally that counts nothing, and says so ([`Tally::counts`]).

use std::fmt;

use crate::Registry;
use crate::cells::{CELLS, NONE};

/// What is counted of one thing; see the file comment.
pub struct Tally {
    registry: Registry,
    row: u32,
    before: [u64; CELLS],
}

impl Tally {
    pub(crate) fn new(registry: &Registry, row: Option<u32>) -> Tally {
        let row = row.unwrap_or(NONE);
        let before = std::array::from_fn(|cell| registry.sum_of_row(row, cell));
        Tally { registry: registry.clone(), row, before }
    }

    /// Its row.
    #[inline]
    pub(crate) fn row(&self) -> u32 {
        self.row
    }

    /// What was added to a cell. Any thread, at any time.
    pub fn read(&self, cell: usize) -> u64 {
        self.registry.sum_of_row(self.row, cell).wrapping_sub(self.before[cell])
    }

    /// Whether it counts: there was a row for it, in a registry that records.
    pub fn counts(&self) -> bool {
        self.row != NONE
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.registry.give_row(self.row);
    }
}

impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tally").field("row", &self.row).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    crate::wait_events! {
        /// Events for the tests.
        const EVENTS;
        /// A wait.
        WAIT = "wait", UserIo;
    }
    crate::counters! {
        /// Counters for the tests.
        const COUNTERS;
        /// Things.
        THINGS = "things", "things";
    }

    #[test]
    fn what_many_threads_add_is_all_there_also_when_they_have_ended() {
        let registry = Registry::new(EVENTS, COUNTERS);
        let tallies: Arc<Vec<Tally>> = Arc::new((0..700).map(|_| registry.tally()).collect());
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (registry, tallies) = (registry.clone(), tallies.clone());
                std::thread::spawn(move || {
                    for n in 0..7000 {
                        let start = registry.start();
                        let _ = registry.record_and_tally(
                            WAIT,
                            start,
                            9,
                            THINGS,
                            &tallies[n % 700],
                            0,
                            2,
                        );
                    }
                    registry.tally_up(&tallies[699], 1, 5);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(tallies.iter().all(|tally| tally.counts() && tally.read(0) == 80));
        assert_eq!((tallies[699].read(1), tallies[698].read(1)), (20, 0));
        let totals = registry.read();
        assert_eq!((totals.counter(THINGS), totals.event(WAIT).bytes()), (56_000, 252_000));
    }

    #[test]
    fn a_row_that_was_anothers_begins_at_nothing() {
        let registry = Registry::new(EVENTS, COUNTERS);
        let first = registry.tally();
        registry.tally_up(&first, 0, 7);
        drop(first);
        let second = registry.tally();
        assert_eq!((second.row, second.read(0)), (0, 0));
        registry.tally_up(&second, 0, 1);
        assert_eq!(second.read(0), 1);
    }

    #[test]
    fn a_disabled_registry_has_none_that_counts() {
        let disabled = Registry::disabled();
        let tally = disabled.tally();
        disabled.tally_up(&tally, 1, 3);
        assert_eq!((tally.counts(), tally.read(1)), (false, 0));
    }
}

//! How fast blocks are read or moved on somebody's behalf while programs go on, and how whoever
//! asked for it follows it and ends it.
//!
//! Deliberately absent: what is moved ([`super::scrub`], [`super::destage`], `file/pin.rs`).

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::sleep;
use std::time::{Duration, Instant};

/// The longest sleep, so that work ends soon when it is to.
const NAP: Duration = Duration::from_millis(200);
/// Steps of blocks that go together.
const STEPS_A_SECOND: u64 = 5;
/// The most that is made up for after a stall.
const CREDIT: Duration = Duration::from_secs(1);

/// So many bytes a second. After a stall no more than a second is made up for.
pub(crate) struct Pace {
    bytes_per_s: Option<u64>,
    /// When the next bytes may be moved.
    due: Instant,
}

impl Pace {
    pub(crate) fn of(bytes_per_s: Option<u64>) -> Self {
        Self { bytes_per_s, due: Instant::now() }
    }

    pub(crate) fn moved(&mut self, bytes: u64, now: Instant) {
        let Some(rate) = self.bytes_per_s else { return };
        let takes = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        self.due = self.due.max(now.checked_sub(CREDIT).unwrap_or(now)) + takes;
    }

    /// How long to wait before more is moved.
    fn rest(&self, now: Instant) -> Duration {
        self.due.saturating_duration_since(now)
    }

    /// Waits until more may be moved. `goes_on` is asked once, and now and then while this waits;
    /// `false` when it said so.
    pub(crate) fn wait(&self, mut goes_on: impl FnMut() -> bool) -> bool {
        loop {
            if !goes_on() {
                return false;
            }
            let rest = self.rest(Instant::now());
            if rest.is_zero() {
                return true;
            }
            sleep(rest.min(NAP));
        }
    }
}

/// How far moving a file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Blocks that were moved.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Where in the file it is: everything before was moved, or needed no moving. Redo goes home by
    /// its age: 0 until all of it is there.
    pub at: u64,
    /// It was ended before its end.
    pub stopped: bool,
}

/// A file being moved: its pace, and who follows it.
pub(crate) struct Moving<'a> {
    pace: Pace,
    rate: Option<u64>,
    goes_on: &'a mut dyn FnMut(&Moved) -> bool,
    pub(crate) moved: Moved,
}

impl<'a> Moving<'a> {
    /// No faster than so many bytes a second; `goes_on` is asked after each step, and now and then
    /// while nothing is moved.
    pub(crate) fn at(bytes_per_s: Option<u64>, goes_on: &'a mut dyn FnMut(&Moved) -> bool) -> Self {
        Self { pace: Pace::of(bytes_per_s), rate: bytes_per_s, goes_on, moved: Moved::default() }
    }

    /// Blocks of so many bytes that may go in one step: those of a fifth of a second at most.
    pub(crate) fn blocks_a_step(&self, block_bytes: u64) -> u64 {
        self.rate.map_or(u64::MAX, |rate| (rate / STEPS_A_SECOND / block_bytes).max(1))
    }

    /// Blocks of so many bytes were moved, and the file is through up to `at`. Waits until it is
    /// time for more; `false`: it ends here, because somebody says so or the file was removed.
    pub(crate) fn step(
        &mut self,
        removed: &AtomicBool,
        blocks: u64,
        block_bytes: u64,
        at: u64,
    ) -> bool {
        self.pace.moved(blocks * block_bytes, Instant::now());
        self.at_once(removed, blocks, block_bytes, at)
    }

    /// The same, of blocks that went whatever the pace.
    pub(crate) fn at_once(
        &mut self,
        removed: &AtomicBool,
        blocks: u64,
        block_bytes: u64,
        at: u64,
    ) -> bool {
        self.moved.blocks += blocks;
        self.moved.bytes += blocks * block_bytes;
        self.moved.at = at;
        let moved = self.moved;
        let mut stopped = false;
        let went_on = self.pace.wait(|| {
            stopped = !(self.goes_on)(&moved);
            !stopped && !removed.load(Ordering::Acquire)
        });
        self.moved.stopped |= stopped;
        went_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_stall_no_more_than_a_second_is_made_up_for() {
        let began = Instant::now();
        let mut pace = Pace { bytes_per_s: Some(1000), due: began };
        pace.moved(500, began);
        assert_eq!(pace.rest(began), Duration::from_millis(500));
        let later = began + Duration::from_secs(3600);
        pace.moved(1000, later);
        assert_eq!(pace.rest(later), Duration::ZERO);
        pace.moved(1000, later);
        assert_eq!(pace.rest(later), Duration::from_secs(1));
        let mut unbound = Pace { bytes_per_s: None, due: began };
        unbound.moved(u64::MAX, began);
        assert_eq!(unbound.rest(began), Duration::ZERO);
    }

    #[test]
    fn moving_ends_while_it_waits_and_says_how_far_it_came() {
        let mut asked = 0;
        let mut goes_on = |_: &Moved| {
            asked += 1;
            asked < 3
        };
        // The next block would come in a quarter of an hour.
        let mut moving = Moving::at(Some(10), &mut goes_on);
        assert!(!moving.step(&AtomicBool::new(false), 1, 8192, 16_384));
        assert_eq!(moving.moved, Moved { blocks: 1, bytes: 8192, at: 16_384, stopped: true });
    }

    #[test]
    fn what_went_whatever_the_pace_is_counted_and_nobody_rests_for_it() {
        let mut asked = 0;
        let mut goes_on = |_: &Moved| {
            asked += 1;
            true
        };
        let mut moving = Moving::at(Some(10), &mut goes_on);
        let began = Instant::now();
        assert!(moving.at_once(&AtomicBool::new(false), 3, 8192, 24_576));
        assert!(began.elapsed() < Duration::from_secs(600), "its bytes take 40 minutes");
        assert_eq!(moving.moved, Moved { blocks: 3, bytes: 24_576, at: 24_576, stopped: false });
        assert_eq!(asked, 1);
    }

    #[test]
    fn what_waits_for_a_file_that_is_removed_ends_and_was_not_stopped() {
        let removed = AtomicBool::new(false);
        let mut goes_on = |_: &Moved| {
            removed.store(true, Ordering::Release);
            true
        };
        let mut moving = Moving::at(Some(10), &mut goes_on);
        assert!(!moving.step(&removed, 1, 8192, 8192));
        assert!(!moving.moved.stopped);
    }
}

//! Who uses each 4 KiB frame: a count of views, or one claim, never both.
//!
//! Four frames share one 64-bit word, 16 bits each, so that a block of up to four aligned frames is
//! viewed or claimed with one atomic instruction. The words of the whole reserved range are zero
//! pages until touched: a mapping of 1 TiB costs 512 MiB of address space and no memory.
//!
//! Invariants: the top bit of a lane is the claim, the rest counts views; a view that meets a claim
//! takes its count back before it fails, so a lane may for a moment hold both bits, but no view is
//! ever handed out then.
//! Deliberately absent: waiting. The caller decides what to do instead.

use crate::FRAME;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Flaw, planted};

const LANES: u64 = 4;
const LANE_BITS: u64 = 16;
const CLAIMED: u64 = 1 << (LANE_BITS - 1);
/// More views of one frame than this at one time are refused, long before the count runs into the
/// claim bit.
const MAX_VIEWS: u64 = 1 << (LANE_BITS - 2);
/// One view in each lane.
const EVERY_LANE: u64 = 0x0001_0001_0001_0001;

/// Who uses some frames, as of a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Each is claimed.
    Claimed,
    /// None is viewed or claimed.
    Free,
    /// Some are viewed or claimed.
    Other,
}

/// The state of every frame of a mapping.
pub(crate) struct Frames {
    words: Box<[AtomicU64]>,
}

/// The frames of one range within one word.
struct Part {
    word: usize,
    /// One in each lane that belongs to the range.
    ones: u64,
}

/// The frames as a part of one word, if they are: a block of up to four aligned frames is.
#[inline(always)]
fn one_part(first: u64, count: u64) -> Option<Part> {
    let lane = first % LANES;
    (count > 0 && lane + count <= LANES).then(|| {
        let ones = EVERY_LANE >> ((LANES - count) * LANE_BITS) << (lane * LANE_BITS);
        Part { word: (first / LANES) as usize, ones }
    })
}

/// Splits frames `first..first + count` by word.
fn parts(first: u64, count: u64) -> impl DoubleEndedIterator<Item = Part> + Clone {
    let end = first + count;
    (first / LANES..end.div_ceil(LANES)).map(move |word| {
        let from = first.max(word * LANES) - word * LANES;
        let to = end.min((word + 1) * LANES) - word * LANES;
        let below = if to == LANES { u64::MAX } else { (1 << (to * LANE_BITS)) - 1 };
        Part { word: word as usize, ones: EVERY_LANE & below & !((1 << (from * LANE_BITS)) - 1) }
    })
}

impl Frames {
    /// All free, for `len` bytes. `None` when the memory is not to be had.
    pub(crate) fn new(len: u64) -> Option<Frames> {
        let count = len.div_ceil(FRAME as u64).div_ceil(LANES) as usize;
        let layout = std::alloc::Layout::array::<AtomicU64>(count.max(1)).ok()?;
        // SAFETY: the layout is not of size zero.
        let zeroed = unsafe { std::alloc::alloc_zeroed(layout) };
        if zeroed.is_null() {
            return None;
        }
        let slice = std::ptr::slice_from_raw_parts_mut(zeroed.cast::<AtomicU64>(), count.max(1));
        // SAFETY: allocated just above by the global allocator with this layout; all zero is a
        // valid AtomicU64.
        Some(Frames { words: unsafe { Box::from_raw(slice) } })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.words[index]
    }

    /// Counts a view on each frame; false, with nothing changed, when any is claimed.
    #[inline]
    pub(crate) fn view(&self, first: u64, count: u64) -> bool {
        let Some(part) = one_part(first, count) else { return self.view_many(first, count) };
        let before = self.word(part.word).fetch_add(part.ones, Ordering::Acquire);
        if before & (part.ones * (CLAIMED | MAX_VIEWS)) == 0 || planted(Flaw::ViewOfClaimed) {
            return true;
        }
        self.word(part.word).fetch_sub(part.ones, Ordering::Relaxed);
        false
    }

    #[inline(never)]
    fn view_many(&self, first: u64, count: u64) -> bool {
        let all = parts(first, count);
        for (done, part) in all.clone().enumerate() {
            // Acquire: what the last claimant wrote is seen through the view.
            let before = self.word(part.word).fetch_add(part.ones, Ordering::Acquire);
            // A lane at or above MAX_VIEWS has its claim bit or the bit below it set.
            if before & (part.ones * (CLAIMED | MAX_VIEWS)) != 0 {
                for undo in all.clone().take(done + 1) {
                    self.word(undo.word).fetch_sub(undo.ones, Ordering::Relaxed);
                }
                return false;
            }
        }
        true
    }

    /// Takes back a view.
    #[inline]
    pub(crate) fn unview(&self, first: u64, count: u64) {
        match one_part(first, count) {
            // Release: reads through the view are over before anybody claims the frame.
            Some(part) => _ = self.word(part.word).fetch_sub(part.ones, Ordering::Release),
            None => self.unview_many(first, count),
        }
    }

    #[inline(never)]
    fn unview_many(&self, first: u64, count: u64) {
        for part in parts(first, count) {
            self.word(part.word).fetch_sub(part.ones, Ordering::Release);
        }
    }

    /// Claims each frame; false, with nothing changed, when any is viewed or claimed.
    #[inline]
    pub(crate) fn claim(&self, first: u64, count: u64) -> bool {
        if let Some(part) = one_part(first, count) {
            return self.claim_part(&part);
        }
        let all = parts(first, count);
        for (done, part) in all.clone().enumerate() {
            if !self.claim_part(&part) {
                for undo in all.clone().take(done) {
                    self.word(undo.word).fetch_sub(undo.ones * CLAIMED, Ordering::Release);
                }
                return false;
            }
        }
        true
    }

    #[inline]
    fn claim_part(&self, part: &Part) -> bool {
        let lanes = part.ones * 0xffff;
        self.word(part.word)
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, |now| {
                let free = now & lanes == 0 || planted(Flaw::TakeViewed);
                free.then_some(now | (part.ones * CLAIMED))
            })
            .is_ok()
    }

    /// Takes back a claim. Panics when a frame is not claimed.
    #[inline]
    pub(crate) fn release(&self, first: u64, count: u64) {
        if let Some(part) = one_part(first, count) {
            return self.release_part(&part, first, count);
        }
        for part in parts(first, count) {
            self.release_part(&part, first, count);
        }
    }

    #[inline]
    fn release_part(&self, part: &Part, first: u64, count: u64) {
        // Release: what was written under the claim is seen by the next view. Subtracting, because
        // a view that is about to fail may have its count in the lane.
        let before = self.word(part.word).fetch_sub(part.ones * CLAIMED, Ordering::Release);
        assert!(
            before & (part.ones * CLAIMED) == part.ones * CLAIMED,
            "BUG: released frames {first}..{} of which some are not claimed",
            first + count
        );
    }

    /// The word, and the bits in it, that say that all of these frames are claimed; `None` where
    /// more than one word says it.
    #[inline]
    pub(crate) fn claim_bits(&self, first: u64, count: u64) -> Option<(&AtomicU64, u64)> {
        one_part(first, count).map(|part| (self.word(part.word), part.ones * CLAIMED))
    }

    #[inline]
    pub(crate) fn one_claimed(&self, frame: u64) -> bool {
        self.word((frame / LANES) as usize).load(Ordering::Relaxed) >> (frame % LANES * LANE_BITS)
            & CLAIMED
            != 0
    }

    /// Who uses the frames.
    #[inline]
    pub(crate) fn used(&self, first: u64, count: u64) -> Use {
        let Some(part) = one_part(first, count) else {
            let claimed = self.claimed(first, count);
            return if claimed {
                Use::Claimed
            } else if self.free(first, count) {
                Use::Free
            } else {
                Use::Other
            };
        };
        let now = self.word(part.word).load(Ordering::Relaxed);
        if now & (part.ones * CLAIMED) == part.ones * CLAIMED {
            Use::Claimed
        } else if now & (part.ones * 0xffff) == 0 {
            Use::Free
        } else {
            Use::Other
        }
    }

    /// Whether each frame is claimed.
    #[inline(always)]
    pub(crate) fn claimed(&self, first: u64, count: u64) -> bool {
        if let Some(part) = one_part(first, count) {
            let claim = part.ones * CLAIMED;
            return self.word(part.word).load(Ordering::Relaxed) & claim == claim;
        }
        self.many_claimed(first, count)
    }

    #[inline(never)]
    fn many_claimed(&self, first: u64, count: u64) -> bool {
        parts(first, count).all(|part| {
            let claim = part.ones * CLAIMED;
            self.word(part.word).load(Ordering::Relaxed) & claim == claim
        })
    }

    /// Whether each frame is neither viewed nor claimed.
    #[inline]
    pub(crate) fn free(&self, first: u64, count: u64) -> bool {
        if let Some(part) = one_part(first, count) {
            return self.word(part.word).load(Ordering::Acquire) & (part.ones * 0xffff) == 0;
        }
        parts(first, count)
            .all(|part| self.word(part.word).load(Ordering::Acquire) & (part.ones * 0xffff) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Frames {
        Frames::new(64 * FRAME as u64).unwrap()
    }

    #[test]
    fn a_range_splits_into_the_lanes_of_its_words() {
        for first in 0..9 {
            for count in 0..12 {
                let mut covered = Vec::new();
                for part in parts(first, count) {
                    for lane in 0..LANES {
                        let one = part.ones >> (lane * LANE_BITS) & 0xffff;
                        assert!(one <= 1);
                        if one == 1 {
                            covered.push(part.word as u64 * LANES + lane);
                        }
                    }
                }
                assert_eq!(covered, (first..first + count).collect::<Vec<u64>>());
            }
        }
    }

    #[test]
    fn a_failed_view_or_claim_changes_nothing() {
        let frames = frames();
        assert!(frames.claim(9, 1));
        assert!(!frames.view(2, 10));
        assert!(!frames.claim(2, 10));
        assert!(frames.free(0, 9) && frames.free(10, 50) && frames.claimed(9, 1));
        frames.release(9, 1);
        assert!(frames.free(0, 64));
    }

    #[test]
    fn views_share_and_keep_claims_out_until_the_last_is_gone() {
        let frames = frames();
        assert!(frames.view(4, 3) && frames.view(6, 4));
        assert!(!frames.claim(6, 1) && !frames.free(6, 1) && !frames.free(2, 8));
        frames.unview(4, 3);
        assert!(!frames.claim(6, 1) && frames.claim(4, 2));
        frames.unview(6, 4);
        assert!(frames.claim(6, 1));
    }

    #[test]
    fn more_views_than_the_count_holds_are_refused() {
        let frames = frames();
        for _ in 0..MAX_VIEWS {
            assert!(frames.view(1, 1));
        }
        assert!(!frames.view(1, 1));
        assert!(frames.claim(0, 1) && frames.claim(2, 2), "the neighbours are not touched");
        for _ in 0..MAX_VIEWS {
            frames.unview(1, 1);
        }
        assert!(frames.free(1, 1));
    }

    #[test]
    #[should_panic(expected = "BUG: released frames 3..5")]
    fn releasing_what_is_not_claimed_panics() {
        let frames = frames();
        assert!(frames.claim(3, 1));
        frames.release(3, 2);
    }
}

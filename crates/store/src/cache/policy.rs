//! What an eviction policy is told and asked.
//!
//! A policy keeps what it wants to know of blocks beside their map entries, a value for each map
//! page, and one value for the tier. Calls go to a type that is known when the store is compiled: a
//! read pays for a policy what that policy does, and no more.
//!
//! # Adding a policy
//! 1. A model of it in `benches/hit_ratio/policies.rs` first: whether it is better than what is
//!    there (`cargo bench -p tiersmith-store --bench hit_ratio`).
//! 2. Its file beside `epochs.rs`, named in `mod.rs`, with tests of its own rules.
//! 3. It is [`Chosen`]. There is one policy, so the file of the one before goes, and
//!    ARCHITECTURE.md names the new one ("the life of one read").
//!
//! The tests below are what the store relies on of any policy. They ask [`Chosen`].
//!
//! A policy does not learn when a block is admitted, evicted or overwritten, nor how old a copy is:
//! it knows what [`Policy::touched`] has marked, and the search asks in the order of blocks, not of
//! age. So it can be a clock, and no queue. An index that was one block's mark is another block's
//! later, without notice; a mark that is left is a read that did not happen.

use super::usage::Skip;
use crate::address::BlockIndex;
use std::time::Duration;

/// What a policy keeps of the blocks of one map page, by their index in it.
pub(crate) trait Policy: Default + Send + Sync {
    /// What it keeps of a tier: of what is not in it, for instance.
    type OfTier: Send + Sync;

    /// How often a search for victims goes round all blocks, at most; passes are counted from 0.
    /// The last one takes whatever it meets, and what it met is as if it had never been read.
    const PASSES: u32;

    /// For a tier of so many frames, which may grow to `most`.
    fn of_tier(frames: u64, most: u64) -> Self::OfTier;

    /// The tier has so many frames now.
    fn resized(tier: &Self::OfTier, frames: u64);

    /// A block of the tier was read. On the way of every read, and called by many threads at once.
    fn touched(&self, index: usize);

    /// What was read from home becomes a clean copy, or why not. Asked once for each block of a
    /// read. [`Skip::NoRoom`] where [`Policy::has_room`] says no.
    fn admitted(tier: &Self::OfTier, read: &Read) -> Result<(), Skip>;

    /// From now on so many frames a second may be admitted, of those that it chooses: it takes the
    /// best of them. `passed`: since this was last said. Never said: as many as it likes.
    fn limited(tier: &Self::OfTier, frames_per_s: f64, passed: Duration);

    /// What it admits now, and what it admits without a limit, as shares of the time that copies
    /// stay. `None` while that time is not known.
    fn thresholds(tier: &Self::OfTier) -> (Option<f64>, f64);

    /// What is asked of next is no part of the block that was asked of before, whatever it is.
    fn another(tier: &Self::OfTier);

    /// Whether there is room for a clean copy, of so many frames that are free and all of them but
    /// those of files that stay.
    fn has_room(free_frames: u64, total_frames: u64) -> bool;

    /// Whether this clean copy goes. The search asks of one copy after another, until enough have
    /// gone.
    fn victim(&self, index: usize, pass: u32) -> bool;

    /// A search has asked of `looked` copies. The tier had `copies` when it began.
    fn searched(tier: &Self::OfTier, looked: u64, copies: u64);
}

/// A block that was read from home.
pub(crate) struct Read {
    /// The number of its file, and its own.
    pub(crate) file: u64,
    pub(crate) block: BlockIndex,
    /// Its length.
    pub(crate) frames: u64,
    /// It is part of a scan ([`super::scan`]).
    pub(crate) is_scan: bool,
    /// The file is small beside the tier: to admit it whole displaces little.
    pub(crate) of_small_file: bool,
    /// A rule takes it whatever the policy says.
    pub(crate) is_kept: bool,
    /// Frames of the tier that are free, and all of them but those of files that stay.
    pub(crate) free_frames: u64,
    pub(crate) total_frames: u64,
}

/// The policy of all tiers.
pub(crate) type Chosen = super::epochs::Epochs;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::entry::LEAF_BLOCKS;

    const LAST: u32 = Chosen::PASSES - 1;

    /// Whether a search of all passes gets this block, however often it was read.
    fn goes_at_last(of_page: &Chosen, index: usize) -> bool {
        (0..=LAST).any(|pass| of_page.victim(index, pass))
    }

    #[test]
    fn the_last_pass_takes_every_block_however_often_it_was_read() {
        let of_page = Chosen::default();
        for index in 0..LEAF_BLOCKS as usize {
            (0..100).for_each(|_| of_page.touched(index));
            assert!(of_page.victim(index, LAST), "block {index} would stay for ever");
        }
    }

    #[test]
    fn a_search_that_spares_a_block_gets_it_in_a_later_pass() {
        let of_page = Chosen::default();
        for index in [0, 63, 64, LEAF_BLOCKS as usize - 1] {
            (0..100).for_each(|_| of_page.touched(index));
            assert!(goes_at_last(&of_page, index), "block {index}");
        }
    }

    #[test]
    fn a_block_that_is_read_is_spared_before_one_that_is_not() {
        let of_page = Chosen::default();
        of_page.touched(1);
        assert!(of_page.victim(0, 0), "nobody has read it, and a search has to end");
        assert!(!of_page.victim(1, 0), "it was read since");
    }

    #[test]
    fn what_the_last_pass_took_is_as_if_it_had_never_been_read() {
        let of_page = Chosen::default();
        (0..100).for_each(|_| of_page.touched(7));
        assert!(of_page.victim(7, LAST));
        assert!(of_page.victim(7, 0), "the next block of this index was not read");
    }

    #[test]
    fn nothing_is_admitted_without_room_and_an_empty_tier_has_room() {
        let of_tier = Chosen::of_tier(1600, 1600);
        assert!(Chosen::has_room(1600, 1600));
        assert!(!Chosen::has_room(0, 1600), "the last frames are the writers'");
        for free_frames in 0..=1600 {
            let read = Read {
                file: 1,
                block: BlockIndex(free_frames),
                frames: 2,
                is_scan: false,
                of_small_file: true,
                is_kept: false,
                free_frames,
                total_frames: 1600,
            };
            Chosen::another(&of_tier);
            let admitted = Chosen::admitted(&of_tier, &read);
            if !Chosen::has_room(free_frames, 1600) {
                assert_eq!(admitted, Err(Skip::NoRoom), "{free_frames} of 1600 frames are free");
            }
            assert!(admitted.is_ok() || free_frames < 1600, "an empty tier takes what is read");
        }
    }

    /// What is told in any order, of any size, is no panic.
    #[test]
    fn a_tier_of_no_frames_that_grows_is_served_too() {
        let of_tier = Chosen::of_tier(0, 1 << 20);
        for frames in [0, 1, 1 << 20] {
            Chosen::resized(&of_tier, frames);
            for (looked, copies) in [(1, 0), (1, 1), (1 << 20, 1 << 20)] {
                let read = Read {
                    file: u64::MAX,
                    block: BlockIndex(u64::MAX >> 1),
                    frames: u64::MAX,
                    is_scan: true,
                    of_small_file: false,
                    is_kept: false,
                    free_frames: frames,
                    total_frames: frames,
                };
                let _ = Chosen::admitted(&of_tier, &read);
                Chosen::searched(&of_tier, looked, copies);
            }
        }
    }
}

//! What an eviction policy is told and asked. To add one: its file beside `epochs.rs`, and
//! [`Chosen`].
//!
//! A policy keeps what it wants to know of blocks beside their map entries, a value for each map
//! page, and one value for the tier. Calls go to a type that is known when the store is compiled: a
//! read pays for a policy what that policy does, and no more.

use super::usage::Skip;
use crate::address::BlockIndex;

/// What a policy keeps of the blocks of one map page, by their index in it.
pub(crate) trait Policy: Default + Send + Sync {
    /// What it keeps of a tier: of what is not in it, for instance.
    type OfTier: Send + Sync;

    /// How often a search for victims goes round all blocks, at most: the last pass takes whatever
    /// it meets.
    const PASSES: u32;

    /// For a tier of so many frames, which may grow to `most`.
    fn of_tier(frames: u64, most: u64) -> Self::OfTier;

    /// The tier has so many frames now.
    fn resized(tier: &Self::OfTier, frames: u64);

    /// A block of the tier was read. On the way of every read, and called by many threads at once.
    fn touched(&self, index: usize);

    /// What was read from home becomes a clean copy, or why not. Asked once for each block of a
    /// read.
    fn admitted(tier: &Self::OfTier, read: &Read) -> Result<(), Skip>;

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
    /// It is part of a scan ([`super::scan`]).
    pub(crate) is_scan: bool,
    /// The file is small beside the tier: to admit it whole displaces little.
    pub(crate) of_small_file: bool,
    /// Frames of the tier that are free, and all of them but those of files that stay.
    pub(crate) free_frames: u64,
    pub(crate) total_frames: u64,
}

/// The policy of all tiers.
pub(crate) type Chosen = super::epochs::Epochs;

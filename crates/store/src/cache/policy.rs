//! What an eviction policy is told and asked. To add one: its file beside `second_chance.rs`, and [`Chosen`].
//!
//! A policy keeps what it wants to know of blocks beside their map entries, a value for each map page. Calls go to a type that is known when
//! the store is compiled: a read pays for a policy what that policy does, and no more.

/// What a policy keeps of the blocks of one map page, by their index in it.
pub(crate) trait Policy: Default + Send + Sync {
    /// How often a search for victims goes round all blocks, at most: the last pass takes whatever it meets.
    const PASSES: u32;

    /// A block of the tier was read. On the way of every read, and called by many threads at once.
    fn touched(&self, index: usize);

    /// Whether what was read from home becomes a clean copy.
    fn admitted(read: &Read) -> bool;

    /// Whether this clean copy goes. The search asks of one copy after another, until enough have gone.
    fn victim(&self, index: usize, pass: u32) -> bool;
}

/// A read from home.
pub(crate) struct Read {
    /// It is part of a scan ([`super::scan`]).
    pub(crate) is_scan: bool,
    /// The file is small beside the tier: to admit it whole displaces little.
    pub(crate) of_small_file: bool,
    /// Frames of the tier that are free, and all of them.
    pub(crate) free_frames: u64,
    pub(crate) total_frames: u64,
}

/// The policy of all tiers.
pub(crate) type Chosen = super::second_chance::SecondChance;

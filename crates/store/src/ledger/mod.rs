//! The ledger of a tier: the only room that makes a fact about a file durable.
//!
//! A fact is a map entry, a map page, a file's header in the file table, a record of a switch under
//! way. Start reading at [`switch`], where a block gets another version: one call for each way.
//! [`at_rest`] is how a block is compared with its checksum, [`lanes`] how one switch is durable
//! with one fence, [`batch`] how several blocks switch together, [`at_once`] how a few do with one
//! fence, [`map`] the block map of a file, [`header`] a file's slot and its state line, [`replay`]
//! what recovery does with records, [`zeroed`] what redo files grow by, [`latch`] the lock of a
//! lane and of a file.
//!
//! It is a ledger for mapped metadata: words are stored whole and in order. One for metadata on a
//! block medium would keep a log instead, and have the same calls.
//!
//! **Invariant**: map pages, and blocks of redo files, stay latched for as long as an entry points
//! to them. A block of a data file is latched while it is written, and may stay so afterwards: who
//! wants to pin it and finds it latched takes the latch back under its lane's lock
//! ([`Ledger::let_go`]). A free piece may be latched too; the latch is that of whoever takes the
//! piece ([`Tier::own`]).
//!
//! **Deliberately absent**: which frames are free ([`crate::tier`]), and what a file's size or
//! times mean.

mod at_once;
pub(crate) mod at_rest;
pub(crate) mod batch;
pub(crate) mod header;
pub(crate) mod lanes;
pub(crate) mod latch;
pub(crate) mod map;
pub(crate) mod replay;
pub(crate) mod switch;
mod torn;
pub(crate) mod zeroed;

use crate::address::WordAt;
use crate::error::Result;
use crate::medium::Durability;
use crate::planted::Planted;
use crate::sync::atomic::AtomicU64;
use crate::tier::Tier;
use at_once::Pair;
use batch::BatchSlot;
use crossbeam_utils::CachePadded;
use lanes::{Lane, Shown};
use latch::Latch;
use std::ops::{Deref, DerefMut};

/// A tier and the ledger of what it holds.
pub(crate) struct Ledger {
    /// Its space. A field and no reference: it is on the way of every write.
    tier: Tier,
    /// Locks that sleep when they wait long, for a thread of lower priority may hold one: held for
    /// a microsecond, and released without waiting for what the holder sent on its way.
    lanes: Box<[CachePadded<Latch<Lane>>]>,
    /// What of each lane is looked at without its lock.
    shown: Box<[CachePadded<Shown>]>,
    /// A lock for each pair of batch records, taken before lanes: whose turn it is to write a
    /// batch.
    batches: Box<[CachePadded<Latch<BatchSlot>>]>,
    /// What the records of each pair speak of; taken after lanes.
    pairs: Box<[CachePadded<Latch<Pair>>]>,
    /// Pieces at hand for redo files that grow.
    zeroed: Latch<zeroed::Zeroed>,
    /// How often idle lanes were swept.
    sweeps: AtomicU64,
    /// Pieces a lane takes from the allocator at a time.
    refill: usize,
}

impl Deref for Ledger {
    type Target = Tier;

    #[inline]
    fn deref(&self) -> &Tier {
        &self.tier
    }
}

impl DerefMut for Ledger {
    fn deref_mut(&mut self) -> &mut Tier {
        &mut self.tier
    }
}

impl Ledger {
    pub(crate) fn of(tier: Tier) -> Self {
        let geometry = &tier.geometry;
        let pieces = geometry.units(tier.superblocks.lock()[0].len) * geometry.unit_frames();
        let pairs = (geometry.batches / 2).max(1);
        Self {
            lanes: (0..geometry.lanes).map(|_| Default::default()).collect(),
            shown: (0..geometry.lanes).map(|_| Default::default()).collect(),
            batches: (0..pairs).map(|_| Default::default()).collect(),
            pairs: (0..pairs).map(|_| Default::default()).collect(),
            zeroed: Latch::default(),
            sweeps: AtomicU64::new(0),
            refill: ((pieces / u64::from(geometry.lanes) / 16) as usize).clamp(1, 8),
            tier,
        }
    }

    /// Stores an 8-byte word and sends its line on its way; durable with the next fence.
    fn store_word(&self, at: WordAt, word: u64) {
        let medium = self.words(at.member());
        medium.store_word(at.offset(), word);
        if !self.planted.is(Planted::DropEntryFlush) {
            medium.flush_word(at.offset());
        }
    }

    /// [`Ledger::store_word`] past the caches, for a caller that fences before it unlocks what
    /// keeps others from this word: without that fence what another thread stores there next might
    /// arrive first. A line that is in no cache, as most entries' are, costs nothing here, where
    /// `store_word` waits for it and the fence then waits for its way back.
    #[inline]
    fn stream_word(&self, at: WordAt, word: u64) {
        let medium = self.words(at.member());
        if self.planted.is(Planted::DropEntryFlush) {
            return medium.store_word(at.offset(), word);
        }
        medium.stream_word(at.offset(), word);
    }

    /// Waits for what this thread has written to metadata, and to blocks of mapped media.
    ///
    /// # Durability
    /// It is durable on return.
    #[inline]
    pub(crate) fn wait(&self) {
        self.fence();
    }

    /// [`Ledger::wait`], unless the file's sync makes it durable ([`Tier::order`]).
    ///
    /// # Durability
    /// On return, or with [`Ledger::sync`].
    #[inline]
    pub(crate) fn wait_or_sync(&self) {
        self.order();
    }

    /// What a file's sync adds to its writes. Facts are durable as they are made, in this ledger.
    ///
    /// # Durability
    /// Every write that had returned when this was called is durable on return.
    pub(crate) fn sync(&self) -> Result<()> {
        if self.durability == Durability::OnReturn {
            return Ok(());
        }
        self.sync_blocks()?;
        self.free_retired();
        self.sound()
    }
}

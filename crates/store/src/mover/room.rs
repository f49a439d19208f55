//! Waiting for free fast blocks: promise 6, full is not fatal.
//!
//! Whoever finds the tier full comes here, with no lock but `sizing` of its file. One at a time has
//! the turn to make room, in this order: pieces that lanes hold back, growth by a step, empty map
//! pages, clean blocks, dirty blocks after destaging, and the map pages that those leave empty;
//! then the same of files whose blocks are to be kept longest. The others wait for their turn and
//! look again. The time is the event `free buffer waits`, but for a pin or a move in, which no
//! session waits for: there it is part of `tier move in`.
//!
//! # Who made room gets it
//! What becomes free is reserved for the one whose turn it is, and the turn ends only when it has
//! taken its piece or given up ([`Turn`]). Otherwise a tier of few units could be called full while
//! most of it is free: the others would take each piece as it comes, and the unit that a block size
//! (or a map page) waits for is never free as a whole.
//!
//! # When it is full
//! When everything was destaged and evicted, nothing moved any more, and no other thread holds
//! pieces that are not in a map yet. Then the writer gets an error: home's, if home refused blocks.

use super::Mover;
use crate::address::BlockIndex;
use crate::cache::usage::blocks_read;
use crate::cache::what_if::Asked;
use crate::error::{Error, Result};
use crate::format::entry::{Entry, LEAF_BLOCKS};
use crate::known::Placed;
use crate::ledger::Ledger;
use crate::profile::{FileClass, Keeping};
use crate::sync::MutexGuard;
use crate::tier::alloc::Purpose;
use crate::waits;
use std::sync::Arc;
use std::time::Duration;
use tiersmith_events::EventId;

/// Rounds in which nothing could be moved, before the tier is called full.
const IDLE_ROUNDS: u32 = 3;
/// The same while somebody else has pieces in hand that are in no map yet: a write or a removal
/// that is under way, or a thread that the processor has left.
const IDLE_ROUNDS_BUSY: u32 = 3000;
/// Pause after a round in which nothing could be moved.
const IDLE_PAUSE: Duration = Duration::from_millis(1);

/// The turn to make room, and to take what was made: pieces that become free meanwhile are reserved
/// for this thread. Keep it until the piece is taken, and let it go before waiting for anything
/// else.
pub(crate) struct Turn<'a> {
    tier: &'a Ledger,
    _lock: MutexGuard<'a, ()>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.tier.allocator.end_reservation();
    }
}

impl Mover {
    /// Returns when at least one piece for `purpose` is free; it is this thread's for as long as it
    /// keeps `turn`, which ends the one before.
    ///
    /// # Errors
    /// [`Error::TierFull`] when everything is pinned; home's error when nothing can be destaged
    /// (home full).
    pub(crate) fn make_room<'a>(
        &self,
        tier: &'a Arc<Ledger>,
        purpose: Purpose,
        turn: &mut Option<Turn<'a>>,
    ) -> Result<()> {
        self.make_room_as(Some(waits::FREE_WAIT), tier, purpose, turn)
    }

    /// The same; the time is this event's. `None`: it is part of what the caller records.
    ///
    /// # Errors
    /// As [`Mover::make_room`].
    pub(crate) fn make_room_as<'a>(
        &self,
        event: Option<EventId>,
        tier: &'a Arc<Ledger>,
        purpose: Purpose,
        turn: &mut Option<Turn<'a>>,
    ) -> Result<()> {
        let has_room = || has_room(tier, purpose);
        self.wait_for_room(event, tier, purpose.frames(), Some(purpose), &has_room, turn)
    }

    /// Returns when `has_room` says so, for about that many frames of whatever purpose.
    ///
    /// # Errors
    /// As [`Mover::make_room`].
    pub(crate) fn make_room_until<'a>(
        &self,
        tier: &'a Arc<Ledger>,
        frames: u64,
        has_room: &dyn Fn() -> bool,
        turn: &mut Option<Turn<'a>>,
    ) -> Result<()> {
        self.wait_for_room(Some(waits::FREE_WAIT), tier, frames, None, has_room, turn)
    }

    fn wait_for_room<'a>(
        &self,
        event: Option<EventId>,
        tier: &'a Arc<Ledger>,
        frames: u64,
        purpose: Option<Purpose>,
        has_room: &dyn Fn() -> bool,
        turn: &mut Option<Turn<'a>>,
    ) -> Result<()> {
        let start = self.events.start();
        // The lock is not to be had twice.
        *turn = None;
        *turn = Some(Turn { tier, _lock: tier.room.lock() });
        tier.allocator.reserve_for(purpose);
        let result = self.make_room_in_turn(tier, frames, has_room);
        if result.is_err() {
            *turn = None;
        }
        if let Some(event) = event {
            let _ = self.events.record(event, start);
        }
        result
    }

    fn make_room_in_turn(
        &self,
        tier: &Arc<Ledger>,
        frames: u64,
        has_room: &dyn Fn() -> bool,
    ) -> Result<()> {
        if has_room() {
            return Ok(());
        }
        tier.reclaim_lanes();
        if has_room() {
            return Ok(());
        }
        match self.grow(tier) {
            Ok(true) if has_room() => return Ok(()),
            Ok(_) => {}
            Err(e) => log::warn!("tier `{}` could not grow: {e}", tier.name),
        }
        // Some clean blocks, then all of them: a unit changes its purpose only when the whole of it
        // is free.
        for want in [(frames * 4).max(64), u64::MAX] {
            self.give_back_pages(tier, want);
            if has_room() {
                return Ok(());
            }
            self.evict_others(tier, want);
            self.give_back_pages(tier, want);
            tier.reclaim_lanes();
            if has_room() {
                return Ok(());
            }
        }
        let mut idle = 0;
        let mut most = (frames * 4).max(256);
        let mut kept_too = !self.env.options.cache.keeps_some();
        loop {
            let (moved, failed) = self.move_home(tier, most, kept_too);
            tier.reclaim_lanes();
            if has_room() {
                return Ok(());
            }
            if most == u64::MAX && moved == 0 && !kept_too {
                kept_too = true;
                self.evict(tier, (frames * 4).max(64));
                tier.reclaim_lanes();
                if has_room() {
                    return Ok(());
                }
            } else if most == u64::MAX && moved == 0 {
                idle += 1;
                if idle >= IDLE_ROUNDS
                    && (idle >= IDLE_ROUNDS_BUSY || self.frames_in_hand(tier) == 0)
                {
                    return Err(failed.unwrap_or_else(|| self.full(tier, &self.why_full(tier))));
                }
                crate::sync::sleep(IDLE_PAUSE);
            } else {
                idle = 0;
            }
            // From now on nobody else gets anything: what is destaged must not fill again with
            // other blocks, and writers come to rest here.
            most = u64::MAX;
            tier.allocator.reserve_for(None);
        }
    }

    /// Grows a tier by a step; see [`crate::tier::Tier::grow_step`].
    pub(crate) fn grow(&self, tier: &Arc<Ledger>) -> Result<bool> {
        let start = self.events.start();
        let grown = tier.grow_step(|| blocks_read(&self.events.read()))?;
        if grown {
            let _ = self.events.record(waits::GROW, start);
        }
        Ok(grown)
    }

    /// What the tier has is what it would have at other sizes: said once, when the curves begin.
    pub(crate) fn seed_what_if(&self, tier: &Arc<Ledger>) {
        if !tier.what_if.wants_seed() {
            return;
        }
        let mut found = Vec::new();
        for file in self.files.on(tier) {
            let is_kept = |placed: &&Placed| {
                placed.class == FileClass::Data && placed.keeping() != Keeping::None
            };
            let Some(placed) = file.placed.as_ref().filter(is_kept) else { continue };
            let (file, frames) = (placed.id, placed.block_size.frames());
            placed.map.for_each_leaf(|number, leaf| {
                if leaf.dirty() + leaf.cached() == 0 {
                    return;
                }
                for index in 0..LEAF_BLOCKS {
                    let block = number * LEAF_BLOCKS + index;
                    if tier.what_if.follows(file, block) && leaf.get(index as usize) != Entry::HOME
                    {
                        let block = BlockIndex(block);
                        found.push(Asked { file, block, frames, is_kept: true });
                    }
                }
            });
        }
        tier.what_if.seed(found);
    }

    /// Destages up to `most` blocks of each file that is not pinned, with [`u64::MAX`] all of them
    /// and redo to the last block, and evicts what is clean then; only with `kept_too` also of
    /// those to be kept longest. Returns how many blocks moved, and what home said when it refused
    /// some.
    fn move_home(&self, tier: &Arc<Ledger>, most: u64, kept_too: bool) -> (u64, Option<Error>) {
        let (mut moved, mut failed) = (0, None);
        let moves = |p: &&crate::known::Placed| {
            let stays = p.class == FileClass::Data && p.keeping() == Keeping::Keep;
            !p.stay.stays() && (kept_too || !stays)
        };
        let mut files = self.files.on(tier);
        files.sort_by_key(|file| file.placed.as_ref().map(|placed| placed.keeping()));
        for file in files {
            let Some(placed) = file.placed.as_ref().filter(moves) else {
                continue;
            };
            let result = if placed.class == FileClass::Redo {
                let keep = if most == u64::MAX { 0 } else { self.redo_keep_blocks(placed) / 2 };
                self.drain_redo(&file, placed, keep)
            } else {
                self.destage_file(&file, most)
            };
            match result {
                Ok(count) => moved += count,
                Err(e) => failed = Some(e),
            }
        }
        let evict = if kept_too { Self::evict } else { Self::evict_others };
        (moved + evict(self, tier, u64::MAX) + self.give_back_pages(tier, u64::MAX), failed)
    }

    /// Gives back about `want` map pages of which every block is at home, of files that are not
    /// pinned: an open file gets its page again with its next block. Returns how many there were.
    pub(crate) fn give_back_pages(&self, tier: &Arc<Ledger>, want: u64) -> u64 {
        let mut given = 0;
        for file in self.files.on(tier) {
            let Some(placed) = &file.placed else { continue };
            if given < want && !placed.stay.stays() {
                given += placed.give_back_pages(want - given);
            }
        }
        given
    }

    /// Frames that are neither free nor in a map: those of writes and removals under way. As good
    /// as a look at many counters can be while they change.
    fn frames_in_hand(&self, tier: &Arc<Ledger>) -> u64 {
        let files = self.files.on(tier);
        let on_tier = files.iter().filter_map(|f| f.placed.as_ref()).map(|p| p.frames());
        let extents = tier.table_counts().extent_bytes / crate::address::FRAME as u64;
        let known = tier.allocator.free_frames() + extents + on_tier.sum::<u64>();
        tier.allocator.total_frames().saturating_sub(known)
    }

    /// What fills a tier of which nothing can be moved.
    fn why_full(&self, tier: &Arc<Ledger>) -> String {
        let files = self.files.on(tier);
        let pages: u64 =
            files.iter().filter_map(|f| f.placed.as_ref()).map(|p| p.map.page_count() as u64).sum();
        let total = tier.allocator.total_frames();
        if pages > total / 2 {
            return format!(
                "block maps of open files fill it: they take {pages} of its {total} frames of 4 KiB"
            );
        }
        "all that is left is pinned, or in use by readers".into()
    }

    pub(crate) fn full(&self, tier: &Ledger, reason: &str) -> Error {
        Error::TierFull {
            tier: tier.name.clone(),
            free_bytes: tier.allocator.free_frames() * crate::address::FRAME as u64,
            reason: reason.into(),
        }
    }
}

/// Whether a piece can be had; one that a reader still borrows cannot.
fn has_room(tier: &Ledger, purpose: Purpose) -> bool {
    let mut got = crate::tier::Few::new();
    let enough = tier.take_latched(purpose, 1, &mut got);
    tier.give_latched(purpose, got);
    enough
}

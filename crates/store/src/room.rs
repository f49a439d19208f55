//! Waiting for free fast blocks: promise 6, full is not fatal.
//!
//! Whoever finds the tier full comes here, with no lock but `sizing` of its file. One at a time makes room, in this order: pieces that lanes hold back, growth by a step,
//! clean blocks, dirty blocks after destaging. The others wait for it and look again. The time is the event `free buffer waits`.

use crate::attached::Inner;
use crate::error::{Error, Result};
use crate::profile::FileClass;
use crate::tier::Tier;
use crate::tier::alloc::Purpose;
use crate::waits;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Inner {
    /// Returns when at least one piece for `purpose` is free.
    ///
    /// # Errors
    /// [`Error::TierFull`] when everything is pinned; home's error when nothing can be destaged (home full).
    pub(crate) fn make_room(&self, tier: &Arc<Tier>, purpose: Purpose) -> Result<()> {
        self.make_room_until(tier, purpose.frames(), &|| has_room(tier, purpose))
    }

    /// Returns when `has_room` says so, for about that many frames.
    ///
    /// # Errors
    /// As [`Inner::make_room`].
    pub(crate) fn make_room_until(
        &self,
        tier: &Arc<Tier>,
        frames: u64,
        has_room: &dyn Fn() -> bool,
    ) -> Result<()> {
        let start = self.events.start();
        let turn = tier.room.lock();
        let result = self.make_room_in_turn(tier, frames, has_room);
        drop(turn);
        let _ = self.events.record(waits::FREE_WAIT, start);
        result
    }

    fn make_room_in_turn(&self, tier: &Arc<Tier>, frames: u64, has_room: &dyn Fn() -> bool) -> Result<()> {
        if has_room() {
            return Ok(());
        }
        tier.reclaim_lanes();
        if has_room() {
            return Ok(());
        }
        let start = self.events.start();
        match tier.grow_step() {
            Ok(true) => {
                let _ = self.events.record(waits::GROW, start);
                if has_room() {
                    return Ok(());
                }
            }
            Ok(false) => {}
            Err(e) => log::warn!("tier `{}` could not grow: {e}", tier.name),
        }
        // Some clean blocks, then all of them: a unit changes its purpose only when the whole of it is free.
        for want in [(frames * 4).max(64), u64::MAX] {
            self.evict(tier, want);
            tier.reclaim_lanes();
            if has_room() {
                return Ok(());
            }
        }
        let mut failed = None;
        for round in [(frames * 4).max(256), u64::MAX] {
            for file in self.all_files() {
                let Some(placed) = &file.placed else { continue };
                if !Arc::ptr_eq(&placed.tier, tier) || placed.pinned.load(Ordering::Relaxed) {
                    continue;
                }
                let moved = if placed.class == FileClass::Redo {
                    let keep = if round == u64::MAX { 0 } else { self.redo_keep_blocks(placed) / 2 };
                    self.drain_redo(&file, placed, keep)
                } else {
                    self.destage_file(&file, round)
                };
                if let Err(e) = moved {
                    failed = Some(e);
                }
            }
            self.evict(tier, u64::MAX);
            tier.reclaim_lanes();
            if has_room() {
                return Ok(());
            }
        }
        Err(failed.unwrap_or_else(|| self.full(tier, "all that is left is pinned, or in use by readers")))
    }

    pub(crate) fn full(&self, tier: &Tier, reason: &str) -> Error {
        Error::TierFull {
            tier: tier.name.clone(),
            free_bytes: tier.allocator.free_frames() * crate::address::FRAME as u64,
            reason: reason.into(),
        }
    }

    /// Frames that admission leaves free for writers.
    pub(crate) fn admit_reserve(&self, tier: &Tier) -> u64 {
        tier.allocator.total_frames() / 16
    }
}

/// Whether a piece can be had; one that a reader still borrows cannot.
fn has_room(tier: &Tier, purpose: Purpose) -> bool {
    let mut got = crate::tier::batch::Few::new();
    let enough = tier.take_claimed(purpose, 1, &mut got);
    tier.give_claimed(purpose, got);
    enough
}

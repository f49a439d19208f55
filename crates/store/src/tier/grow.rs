//! Growing a tier in steps, up to its maximum (what Oracle calls
//! `AUTOEXTEND ON NEXT .. MAXSIZE ..`).
//!
//! | step | what is done | a power cut after it leaves |
//! |---|---|---|
//! | 1 | every member's backing is lengthened and mapped | the old tier; the extra bytes are ignored and used by the next growth |
//! | 2 | the superblocks say the new length, both copies | the new tier, member by member: the shortest counts |
//! | 3 | the new units are free in DRAM | the new tier |

use super::Tier;
use crate::cache::policy::{Chosen, Policy};
use crate::error::Result;
use crate::medium::BlockMedium;

impl Tier {
    /// Grows every member by one step. `Ok(false)` when the tier is at its maximum. `read` says how
    /// many blocks of data files were read until now.
    ///
    /// # Errors
    /// When a backing cannot be lengthened (its file system is full); the tier stays as it was.
    ///
    /// # Durability
    /// The new length is durable on return.
    pub(crate) fn grow_step(&self, read: impl FnOnce() -> u64) -> Result<bool> {
        let mut superblocks = self.superblocks.lock();
        let first = &superblocks[0];
        let len = first.len.saturating_add(first.grow_by).min(first.max_len);
        if first.grow_by == 0 || self.geometry.units(len) <= self.geometry.units(first.len) {
            return Ok(false);
        }
        for member in &self.members {
            if member.medium.len() < len {
                member.medium.grow(len)?;
            }
        }
        for sb in superblocks.iter_mut() {
            sb.len = len;
            sb.seq += 1;
        }
        super::open::write_superblocks(&self.members, &superblocks, self.planted);
        self.allocator.grow(self.geometry.units(len));
        let frames = self.allocator.total_frames();
        Chosen::resized(&self.policy, frames);
        if self.holds_data {
            self.what_if.resized(frames, read());
        }
        log::info!("tier `{}` grew to {len} bytes a member", self.name);
        Ok(true)
    }
}

//! Pieces full of zeros at hand, for the blocks that redo files grow by.
//!
//! A redo block shows what its piece held before where an append has not arrived when power is cut,
//! so it begins as zeros, durable before anything points to it. Zeros take as long to write as the
//! appends that follow. The drain, which works in the background, writes them into the pieces that
//! it frees; when there are none, several pieces are zeroed at once and share a fence.
//!
//! **Invariant**: a piece here is claimed, no durable entry points to it, and its zeros are
//! durable.
//!
//! Deliberately absent: any record on the medium. After a cut these pieces are free like others.

use super::Ledger;
use crate::address::{BlockIndex, BlockSize, Frame};
use crate::error::Result;
use crate::planted::Planted;
use crate::tier::Few;
use crate::tier::alloc::Purpose;

/// Pieces that are zeroed at once when none is at hand.
const AT_ONCE: usize = 8;
/// Most bytes of one block size that are kept.
const KEPT_BYTES: usize = 8 << 20;

/// The pieces, by block size.
pub(crate) type Zeroed = [Vec<Frame>; 4];

impl Ledger {
    /// A piece of zeros, claimed; `None` when the tier has no free piece.
    ///
    /// # Durability
    /// The zeros are durable.
    ///
    /// # Errors
    /// When the medium cannot be written.
    pub(crate) fn take_zeroed(&self, size: BlockSize) -> Result<Option<Frame>> {
        let (frame, next) = {
            let pieces = &mut self.zeroed.lock()[size.class()];
            (pieces.pop(), pieces.last().copied())
        };
        if let Some(next) = next {
            // A file that grows comes for it soon.
            self.prepare_translations(next, size);
        }
        if frame.is_some() {
            return Ok(frame);
        }
        let mut got = Few::new();
        // Fewer will do.
        self.take_latched(
            Purpose::Blocks(size),
            if self.has_plenty() { AT_ONCE } else { 1 },
            &mut got,
        );
        if let Err(e) = self.zero(size, &got) {
            self.give_latched(Purpose::Blocks(size), got);
            return Err(e);
        }
        let frame = got.pop();
        self.zeroed.lock()[size.class()].extend(got);
        Ok(frame)
    }

    /// Takes pieces that are free but still claimed: keeps some as zeros, the rest becomes
    /// everybody's.
    pub(crate) fn keep_zeroed(&self, size: BlockSize, mut free: Vec<Frame>) {
        let most = (self.allocator.total_frames() / size.frames() / 32) as usize;
        let most = if self.has_plenty() { most.min(KEPT_BYTES / size.bytes()) } else { 0 };
        let kept = self.zeroed.lock()[size.class()].len();
        let rest = free.split_off(most.saturating_sub(kept).min(free.len()));
        self.give_latched(Purpose::Blocks(size), rest);
        match self.zero(size, &free) {
            Ok(()) => self.zeroed.lock()[size.class()].extend(free),
            // Free all the same; who writes to it next is told what the medium said.
            Err(_) => self.give_latched(Purpose::Blocks(size), free),
        }
    }

    /// A hint that a redo file grows soon, by this block.
    #[inline]
    pub(crate) fn prepare_growth(&self, file: u64, block: BlockIndex) {
        self.zeroed.prepare();
        self.prepare_lane(self.lane_of(file, block));
    }

    /// Puts back pieces of zeros that were not used.
    pub(crate) fn give_zeroed(&self, size: BlockSize, pieces: impl IntoIterator<Item = Frame>) {
        self.zeroed.lock()[size.class()].extend(pieces);
    }

    /// Hands all of them back to the allocator.
    pub(super) fn reclaim_zeroed(&self) {
        let all = std::mem::take(&mut *self.zeroed.lock());
        for (size, pieces) in BlockSize::ALL.into_iter().zip(all) {
            self.give_latched(Purpose::Blocks(size), pieces);
        }
    }

    fn zero(&self, size: BlockSize, pieces: &[Frame]) -> Result<()> {
        if pieces.is_empty() || self.planted.is(Planted::RedoPieceNotZeroed) {
            return Ok(());
        }
        for piece in pieces {
            let ticket = self.zero_part(*piece, 0, size.bytes())?;
            self.wait_apart(*piece, ticket)?;
        }
        self.fence();
        Ok(())
    }

    /// Whether nobody is short of pieces: less free, and the background makes room.
    fn has_plenty(&self) -> bool {
        self.allocator.free_frames() > self.frames_that_change() / 4
    }
}

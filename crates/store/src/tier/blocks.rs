//! What can be done with the bytes of a block, wherever they lie: a frame's member and medium are
//! looked up here, and nobody above says a member's number.
//!
//! Deliberately absent: which block a frame holds, and when a write becomes the block's newest
//! version ([`crate::ledger`]).

use super::alloc::Purpose;
use super::{Few, Tier};
use crate::address::{BlockSize, FRAME, Frame, WordAt};
use crate::error::Result;
use crate::medium::{Backing, BlockMedium, Mapped, Pin, PreparedWrite, Ticket, Use, Written};
use crate::planted::Planted;

impl Tier {
    #[inline]
    fn medium_of(&self, frame: Frame) -> (&Backing, u64) {
        let (member, at) = self.geometry.locate(frame);
        (&self.members[member].medium, at)
    }

    /// Copies part of a block, from byte `inner` on ([`BlockMedium::read`]).
    #[inline]
    pub(crate) fn read_block(&self, frame: Frame, inner: usize, into: &mut [u8]) -> Result<()> {
        let (medium, at) = self.medium_of(frame);
        medium.read(at + inner as u64, into)
    }

    /// The same, and bytes that the medium has lost are an error on every medium.
    pub(crate) fn read_block_checked(
        &self,
        frame: Frame,
        inner: usize,
        into: &mut [u8],
    ) -> Result<()> {
        let (medium, at) = self.medium_of(frame);
        medium.read_checked(at + inner as u64, into)
    }

    /// Reads bytes of a block from the medium itself, not from the kernel's copy of it.
    pub(crate) fn read_block_afresh(&self, frame: Frame, into: &mut [u8]) -> Result<()> {
        let (medium, at) = self.medium_of(frame);
        medium.read_afresh(at, into)
    }

    /// Reads metadata that may be unreadable: an error, where other reads would end the process.
    pub(crate) fn read_checked(&self, at: WordAt, into: &mut [u8]) -> Result<()> {
        self.words(at.member()).read_checked(at.offset(), into)
    }

    /// The same for one word.
    pub(crate) fn load_checked(&self, at: WordAt) -> Result<u64> {
        let mut bytes = [0; 8];
        self.read_checked(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Writes a whole block into latched frames and takes its checksum.
    ///
    /// # Durability
    /// As [`BlockMedium::write`].
    pub(crate) fn write_block(&self, frame: Frame, block: &[u8]) -> Result<Written> {
        let (medium, at) = self.medium_of(frame);
        medium.write(at, block, self.seed)
    }

    /// Writes part of a block in place.
    ///
    /// # Durability
    /// As [`BlockMedium::write_part`].
    #[inline]
    pub(crate) fn write_part(&self, frame: Frame, inner: usize, bytes: &[u8]) -> Result<Ticket> {
        let (medium, at) = self.medium_of(frame);
        medium.write_part(at + inner as u64, bytes)
    }

    /// Writes zeros over part of a block.
    ///
    /// # Durability
    /// As [`BlockMedium::zero`].
    pub(crate) fn zero_part(&self, frame: Frame, inner: usize, len: usize) -> Result<Ticket> {
        let (medium, at) = self.medium_of(frame);
        medium.zero(at + inner as u64, len)
    }

    /// Waits for what was written to a frame, unless the thread's next [`Tier::fence`] does.
    ///
    /// # Durability
    /// What the ticket stands for is durable on return, or with that fence.
    #[inline]
    pub(crate) fn wait_apart(&self, frame: Frame, ticket: Ticket) -> Result<()> {
        if ticket == Ticket::NEXT_FENCE || self.planted.is(Planted::DeviceNotSynced) {
            return Ok(());
        }
        self.medium_of(frame).0.wait(ticket)
    }

    /// Waits for what was written to a frame, and whatever else this thread wrote to metadata.
    ///
    /// # Durability
    /// Both are durable on return.
    pub(crate) fn wait_for(&self, frame: Frame, ticket: Ticket) -> Result<()> {
        self.wait_apart(frame, ticket)?;
        self.fence();
        Ok(())
    }

    /// Waits for what everybody has written to blocks.
    ///
    /// # Durability
    /// As [`BlockMedium::sync`].
    pub(crate) fn sync_blocks(&self) -> Result<()> {
        if self.planted.is(Planted::SyncWithoutDevice) {
            return Ok(());
        }
        self.members.iter().try_for_each(|member| member.medium.sync())
    }

    /// Keeps `len` bytes of a block from byte `inner` on as they are, both multiples of [`FRAME`].
    pub(crate) fn pin(&self, frame: Frame, inner: usize, len: usize) -> Option<Pin<'_>> {
        let (medium, at) = self.medium_of(frame);
        medium.pin(at + inner as u64, len)
    }

    /// The memory that a block is in, and where; `None` on other media.
    #[inline]
    pub(crate) fn memory_of(&self, frame: Frame) -> Option<(&Mapped, u64)> {
        let (medium, at) = self.medium_of(frame);
        Some((medium.memory()?, at))
    }

    pub(crate) fn latch(&self, frame: Frame, frames: u64) -> bool {
        let (medium, at) = self.medium_of(frame);
        let latched = medium.latch(at, frames as usize * FRAME);
        self.latches_are_visible();
        latched
    }

    /// Latches a free piece, unless it is latched already: a free piece may be, from the block it
    /// held last, and then the latch belongs to whoever has taken the piece. `false` when somebody
    /// still looks at it.
    pub(crate) fn own(&self, frame: Frame, frames: u64) -> bool {
        let (medium, at) = self.medium_of(frame);
        let owned = medium.is_latched(at, frames as usize * FRAME)
            || (0..frames).all(|n| {
                let at = at + n * FRAME as u64;
                medium.is_latched(at, FRAME) || medium.latch(at, FRAME)
            });
        self.latches_are_visible();
        owned
    }

    pub(crate) fn unlatch(&self, frame: Frame, frames: u64) {
        let (medium, at) = self.medium_of(frame);
        medium.unlatch(at, frames as usize * FRAME);
    }

    pub(crate) fn is_latched(&self, frame: Frame, frames: u64) -> bool {
        let (medium, at) = self.medium_of(frame);
        medium.is_latched(at, frames as usize * FRAME)
    }

    /// What can be found out of a block's write before its lane is locked, where the medium can
    /// tell.
    #[inline(always)]
    pub(crate) fn prepare_block(
        &self,
        frame: Frame,
        inner: usize,
        len: usize,
    ) -> Option<PreparedWrite<'_>> {
        let (memory, at) = self.memory_of(frame)?;
        memory.prepare_write(at + inner as u64, len)
    }

    /// Looks at a piece that is about to be filled ([`BlockMedium::prepare`]).
    pub(crate) fn prepare_piece(&self, piece: Frame, size: BlockSize) -> Use {
        let (medium, at) = self.medium_of(piece);
        medium.prepare(at, size.bytes())
    }

    /// A hint that some pieces are filled soon, fresh from the free lists: those that follow each
    /// other, as they do in a fresh unit, cost one call instead of a page fault each.
    pub(crate) fn prepare_fresh(&self, pieces: &[Frame], size: BlockSize) {
        let (Some(first), Some(last)) = (pieces.iter().min(), pieces.iter().max()) else { return };
        let frames = last.0 + size.frames() - first.0;
        if frames == pieces.len() as u64 * size.frames()
            && self.geometry.unit_of(*first) == self.geometry.unit_of(*last)
        {
            let (medium, at) = self.medium_of(*first);
            medium.prepare_fresh(at, frames as usize * FRAME);
        }
    }

    /// Takes and latches free pieces until `into` has `count`; `false` when there are too few.
    pub(crate) fn take_latched(
        &self,
        purpose: Purpose,
        count: usize,
        into: &mut Few<Frame>,
    ) -> bool {
        if into.len() == count {
            return true;
        }
        let mut viewed = Few::new();
        while into.len() < count {
            let mut got = Vec::new();
            self.allocator.take(purpose, count - into.len(), &mut got);
            if got.is_empty() {
                break;
            }
            for frame in got {
                if self.own(frame, purpose.frames()) {
                    into.push(frame)
                } else {
                    viewed.push(frame)
                }
            }
        }
        self.allocator.give(purpose, viewed);
        into.len() == count
    }

    /// Puts back pieces that are free and latched.
    pub(crate) fn give_latched(&self, purpose: Purpose, frames: impl AsRef<[Frame]>) {
        let frames = frames.as_ref();
        for frame in frames {
            self.unlatch(*frame, purpose.frames());
        }
        if !frames.is_empty() {
            self.allocator.give(purpose, frames.iter().copied());
        }
    }

    /// A claimed frame for a map page.
    pub(crate) fn take_page(&self) -> Option<Frame> {
        let mut got = Few::new();
        self.take_latched(Purpose::Pages, 1, &mut got);
        got.pop()
    }
}

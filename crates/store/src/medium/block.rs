//! A device of sectors as a medium, beside a mapped one: a ticket is a write that no sync has covered, waiting is a
//! sync.
//!
//! Metadata (words, lines, map pages) is on the mapped medium, the bytes of blocks are on the device, each at the same
//! offset: a member has one space of frames, and which of the two a frame's bytes are on follows from who uses it. So
//! half of both is never used. That is for tests: it shows that the rooms above know no memory.
//!
//! Who waits shares a sync with all who wait at the time, and after a sync that failed no call succeeds
//! ([`tiersmith_block`]).
//!
//! Deliberately absent: a member without mapped memory, a layout of its own, direct I/O.

use super::{BlockMedium, Durability, Mapped, Pin, PreparedWrite, Ticket, Use, Written, hash_bytes};
use crate::address::FRAME;
use crate::error::{MediumError, Result};
use crate::sync::Mutex;
use tiersmith_block::{Device, Error, Sector, Sectors};

/// A write that only a sync makes durable.
const UNSYNCED: Ticket = Ticket(1);

/// Mapped memory with a device for the blocks.
pub(crate) struct OnSectors {
    pub(crate) meta: Mapped,
    device: Device,
    /// Held by who changes a part of a sector: the rest of it is read before.
    changing: Mutex<()>,
}

impl OnSectors {
    pub(crate) fn new(meta: Mapped, device: Device) -> Self {
        Self { meta, device, changing: Mutex::new(()) }
    }

    fn sector(&self) -> usize {
        self.device.sector_size().bytes()
    }

    /// The sectors around some bytes: the first, where the bytes begin in it, and the length of all.
    fn around(&self, at: u64, len: usize) -> (Sector, usize, usize) {
        let size = self.sector() as u64;
        let inner = (at % size) as usize;
        (Sector(at / size), inner, (inner + len).next_multiple_of(self.sector()))
    }

    /// Writes any bytes; those beside them in their sectors stay as they are.
    fn change(&self, at: u64, bytes: &[u8]) -> Result<Ticket> {
        self.assert_latched(at, bytes.len());
        let (first, inner, all) = self.around(at, bytes.len());
        if all == bytes.len() {
            self.device.write(first, bytes)?;
            return Ok(UNSYNCED);
        }
        let _changing = self.changing.lock();
        let mut sectors = vec![0; all];
        self.device.read(first, &mut sectors).map_err(lost)?;
        sectors[inner..inner + bytes.len()].copy_from_slice(bytes);
        self.device.write(first, &sectors)?;
        Ok(UNSYNCED)
    }

    fn assert_latched(&self, at: u64, len: usize) {
        let from = at / FRAME as u64 * FRAME as u64;
        let frames = (at + len as u64 - from).next_multiple_of(FRAME as u64) as usize;
        assert!(
            len == 0 || self.meta.is_latched(from, frames),
            "BUG: {len} bytes at {at} are not latched for writing"
        );
    }
}

/// What the store does about bytes that a medium has lost is the same on all media.
fn lost(error: Error) -> crate::Error {
    match error {
        Error::Unreadable { path, range, source } => {
            let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            MediumError::Unreadable { path, at: range.start, len, source }.into()
        }
        other => other.into(),
    }
}

impl BlockMedium for OnSectors {
    fn durability(&self) -> Durability {
        self.meta.durability().and(Durability::AtSync)
    }

    fn is_quick(&self) -> bool {
        false
    }

    fn len(&self) -> u64 {
        let device = self.device.sectors().bytes(self.device.sector_size());
        self.meta.len().min(device.expect("BUG: the length of a device fits"))
    }

    fn max_len(&self) -> u64 {
        self.meta.max_len()
    }

    fn grow(&self, len: u64) -> Result<()> {
        self.device.grow(Sectors::in_bytes(len, self.device.sector_size()))?;
        self.meta.grow(len)
    }

    fn report(&self) -> String {
        format!("{}\nblocks on {}", self.meta.report(), self.device.report())
    }

    fn write(&self, at: u64, block: &[u8], seed: u64) -> Result<Written> {
        let ticket = self.change(at, block)?;
        Ok(Written { ticket, checksum: hash_bytes(block, seed) })
    }

    fn write_part(&self, at: u64, bytes: &[u8]) -> Result<Ticket> {
        self.change(at, bytes)
    }

    fn zero(&self, at: u64, len: usize) -> Result<Ticket> {
        self.change(at, &vec![0; len])
    }

    fn wait(&self, ticket: Ticket) -> Result<()> {
        if ticket == Ticket::NEXT_FENCE { Ok(()) } else { self.sync() }
    }

    fn sync(&self) -> Result<()> {
        Ok(self.device.sync()?)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        let (first, inner, all) = self.around(at, into.len());
        if all == into.len() {
            return self.device.read(first, into).map_err(lost);
        }
        let mut sectors = vec![0; all];
        self.device.read(first, &mut sectors).map_err(lost)?;
        into.copy_from_slice(&sectors[inner..inner + into.len()]);
        Ok(())
    }

    fn read_checked(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.read(at, into)
    }

    fn pin(&self, at: u64, len: usize) -> Option<Pin<'_>> {
        match self.meta.pin(at, len)? {
            Pin::Mapped(frames) | Pin::Elsewhere(frames) => Some(Pin::Elsewhere(frames)),
        }
    }

    fn latch(&self, at: u64, len: usize) -> bool {
        self.meta.latch(at, len)
    }

    fn unlatch(&self, at: u64, len: usize) {
        self.meta.unlatch(at, len);
    }

    fn is_latched(&self, at: u64, len: usize) -> bool {
        self.meta.is_latched(at, len)
    }

    fn prepare(&self, at: u64, len: usize) -> Use {
        self.meta.prepare(at, len)
    }

    fn prepare_fresh(&self, _at: u64, _len: usize) {}

    fn prepare_write(&self, _at: u64, _len: usize) -> Option<PreparedWrite<'_>> {
        None
    }
}

//! A device of sectors as a medium, beside memory for its metadata.
//!
//! Metadata (words, lines, map pages) is in memory, the bytes of blocks are on the device, each at
//! the same offset: a member has one space of frames, and which of the two a frame's bytes are on
//! follows from who uses it.
//!
//! On flash the memory is DRAM, of which only what is used costs anything, and a [`Log`] makes it
//! durable on the same device. A write is then durable with the next fence, like one to mapped
//! memory, because one sync covers both. For tests the memory can be a mapped medium: a ticket is
//! then a write that no sync has covered, and waiting is a sync.
//!
//! Who waits shares a sync with all who wait at the time, and after a sync that failed no call
//! succeeds ([`tiersmith_block`]).
//!
//! Deliberately absent: several devices, direct I/O.

use super::held::Held;
use super::log::Log;
use super::raw;
use super::{BlockMedium, Durability, Mapped, Medium, Pin, Ticket, Use, Written, hash_bytes};
use crate::address::FRAME;
use crate::error::{MediumError, Result};
use crate::sync::Mutex;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use tiersmith_block::{Device, Error, OpenOptions, Sector, SectorSize, Sectors};
use tiersmith_dir::Found;
use tiersmith_pmem::Mapping;

/// A write that only a sync makes durable.
const UNSYNCED: Ticket = Ticket(1);

/// Memory with a device for the blocks.
pub(crate) struct OnSectors {
    pub(crate) meta: Mapped,
    device: Arc<Device>,
    /// Where the memory is not mapped.
    pub(super) log: Option<Arc<Log>>,
    /// It is a block device with something of somebody else's, which goes before it is formatted.
    must_clear: bool,
    /// Held by who changes a part of a sector: the rest of it is read before.
    changing: Mutex<()>,
}

impl OnSectors {
    #[cfg(feature = "testing")]
    pub(crate) fn new(meta: Mapped, device: Device) -> Self {
        let device = Arc::new(device);
        Self { meta, device, log: None, must_clear: false, changing: Mutex::new(()) }
    }

    /// Opens a file that has everything, and may grow to `max_len` bytes; `len`: make it, with so
    /// many, or 0. `owner` as in [`crate::Options::members_of`].
    ///
    /// # Errors
    /// As [`Device::open`]; and when the file would not survive what it is for.
    pub(crate) fn open(place: &Held, len: u64, max_len: u64, owner: Option<u32>) -> Result<Self> {
        let sector_size = SectorSize::B4096;
        let len = Sectors::in_bytes(len, sector_size);
        let options = OpenOptions { sector_size, len, create: len.0 > 0, owner };
        let device = Device::open(&place.dir, &place.name, &options).map_err(|e| match e {
            Error::Owned { path } => MediumError::Owned { path }.into(),
            other => crate::Error::from(other),
        })?;
        if !device.report().survives_power_cut {
            if let Some(made) = device.file().and_then(|file| Found::of(file).ok()) {
                drop(device);
                place.undo_new(&made);
            }
            return Err(Error::InMemory { path: place.path.clone() }.into());
        }
        Self::with_log(device, max_len)
    }

    /// The file, if it is one.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.device.file()
    }

    /// A device that has everything, and may grow to `max_len` bytes.
    pub(crate) fn with_log(device: Device, max_len: u64) -> Result<Self> {
        let device = Arc::new(device);
        let len =
            device.sectors().bytes(device.sector_size()).expect("BUG: the length of a device fits");
        let len = len / FRAME as u64 * FRAME as u64;
        let log = Arc::new(Log::on(device.clone()));
        let mapping = Arc::new(Mapping::journaled(device.path(), len, max_len, log.clone())?);
        let meta = Mapped::new(mapping, Medium::Flash).with_log(log.clone());
        Ok(Self { meta, device, log: Some(log), must_clear: false, changing: Mutex::new(()) })
    }

    /// Opens a block device, which is used whole. `meant` is how the user called it, who wants it
    /// overwritten.
    ///
    /// # Errors
    /// As [`Device::open_raw`] and [`raw::admit`]; nothing was written.
    pub(crate) fn open_raw(place: &Held, owner: Option<u32>, meant: Option<&str>) -> Result<Self> {
        let device = Device::open_raw(&place.dir, &place.name, owner).map_err(raw::open_error)?;
        let mut must_clear = false;
        if let Some(found) = device.raw() {
            match raw::admit(&device, found, meant)? {
                raw::Admitted::InUse => found.unlock(),
                raw::Admitted::Free => {}
                raw::Admitted::ToClear => must_clear = true,
            }
        }
        // It does not grow.
        let len = device.sectors().bytes(device.sector_size());
        let len = len.expect("BUG: the length of a device fits");
        Ok(Self { must_clear, ..Self::with_log(device, len)? })
    }

    /// Whether what is there is nobody's business: the user wants it overwritten.
    pub(crate) fn must_clear(&self) -> bool {
        self.must_clear
    }

    /// Whether it is a block device.
    pub(crate) fn is_raw(&self) -> bool {
        self.device.raw().is_some()
    }

    /// It is formatted: others may look at the device again.
    pub(crate) fn formatted(&self) {
        if let Some(device) = self.device.raw() {
            device.unlock();
        }
    }

    /// Before it is formatted: takes away what somebody else had on a block device.
    ///
    /// # Durability
    /// Durable on return; a cut leaves something of what was there, or the mark that it is being
    /// formatted.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn take_over(&self) -> Result<()> {
        let Some(found) = self.device.raw().filter(|_| self.must_clear) else { return Ok(()) };
        raw::clear(found)?;
        // What was read before to look for superblocks would be written back with the first word.
        if let Some(log) = &self.log {
            log.read_anew();
        }
        Ok(())
    }

    pub(super) fn sector(&self) -> usize {
        self.device.sector_size().bytes()
    }

    /// The sectors around some bytes: the first, where the bytes begin in it, and the length of
    /// all.
    fn around(&self, at: u64, len: usize) -> (Sector, usize, usize) {
        let size = self.sector() as u64;
        let inner = (at % size) as usize;
        (Sector(at / size), inner, (inner + len).next_multiple_of(self.sector()))
    }

    /// Writes any bytes; those beside them in their sectors stay as they are. `hash`: they are a
    /// whole block.
    fn change(&self, at: u64, bytes: &[u8], hash: Option<u64>) -> Result<Ticket> {
        self.assert_latched(at, bytes.len());
        let Some(log) = &self.log else {
            self.write_around(at, bytes)?;
            return Ok(UNSYNCED);
        };
        log.before_write(self.meta.mapping(), at, bytes.len())?;
        let written = self.write_around(at, bytes);
        // Also when it failed: a part may have arrived.
        log.written(at, bytes.len(), hash.filter(|_| written.is_ok()));
        written.map(|()| Ticket::NEXT_FENCE)
    }

    fn write_around(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let (first, inner, all) = self.around(at, bytes.len());
        if all == bytes.len() {
            return Ok(self.device.write(first, bytes)?);
        }
        let _changing = self.changing.lock();
        let mut sectors = vec![0; all];
        self.device.read(first, &mut sectors).map_err(lost)?;
        sectors[inner..inner + bytes.len()].copy_from_slice(bytes);
        Ok(self.device.write(first, &sectors)?)
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
pub(super) fn lost(error: Error) -> crate::Error {
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
        if self.log.is_some() {
            let (path, bytes) = (self.device.path().display(), self.len());
            let what = if self.is_raw() { "on a block device" } else { "in a file" };
            return format!(
                "{path}: flash, {bytes} bytes {what}, by pread, pwrite and fdatasync; metadata in \
                 DRAM, durable by a log there"
            );
        }
        format!("{}\nblocks on {}", self.meta.report(), self.device.report())
    }

    fn write(&self, at: u64, block: &[u8], seed: u64) -> Result<Written> {
        let checksum = hash_bytes(block, seed);
        Ok(Written { ticket: self.change(at, block, Some(checksum))?, checksum })
    }

    fn write_part(&self, at: u64, bytes: &[u8]) -> Result<Ticket> {
        self.change(at, bytes, None)
    }

    fn zero(&self, at: u64, len: usize) -> Result<Ticket> {
        self.change(at, &vec![0; len], None)
    }

    fn wait(&self, ticket: Ticket) -> Result<()> {
        if ticket == Ticket::NEXT_FENCE { Ok(()) } else { self.sync() }
    }

    fn sync(&self) -> Result<()> {
        match &self.log {
            Some(log) => log.commit(self.meta.mapping()),
            None => Ok(self.device.sync()?),
        }
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

    fn read_afresh(&self, at: u64, into: &mut [u8]) -> Result<()> {
        let (first, inner, all) = self.around(at, into.len());
        let mut sectors = vec![0; all];
        self.device.read_afresh(first, &mut sectors).map_err(lost)?;
        into.copy_from_slice(&sectors[inner..inner + into.len()]);
        Ok(())
    }

    fn pin(&self, at: u64, len: usize) -> Option<Pin<'_>> {
        self.meta.pin(at, len)
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
}

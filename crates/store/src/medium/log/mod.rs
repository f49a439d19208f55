//! The log of a member on flash: metadata in DRAM, made durable on a device of sectors.
//!
//! The rooms above store words and fence, as on mapped memory. Here every store is noted, and a
//! fence is a commit. Bytes are in [`crate::format::log`].
//!
//! # A commit, and what a power cut leaves
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 1 | blocks are written to their frames as they come, and their checksums noted | the commit before |
//! | 2 | the lines that have changed since the commit before are copied, at one instant, into a record that names these blocks; it is written | the commit before, or this one if record and blocks arrived whole |
//! | 3 | one sync, after all these writes have returned; then the commit is acknowledged | this commit |
//!
//! Threads that meet share a commit: who waits for the one that is under way finds its own changes
//! durable and returns, or one of them commits those of all that wait. One record is on its way at
//! a time.
//!
//! # A checkpoint
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 1 | with a commit, the pages that differ from the device are copied | that commit |
//! | 2 | after its sync they are written to their places; sync | the same: the records say again what is in them |
//! | 3 | the header says that records up to that commit are not needed; sync | the same |
//!
//! Pages may be torn at sectors in step 2, since every line that differs is in a record that is
//! still needed.
//!
//! # A frame has two uses, one after the other
//!
//! A frame that held a map page may become a block's. What the log says of the page must never come
//! back over the block, so the log is checkpointed first ([`Log::before_write`]). A frame of which
//! the newest record has a checksum is written only after another record, or the newest one would
//! no longer count.
//!
//! **Invariants**: `lines` has every line whose bytes differ from what records and device say. A
//! page is written to its place only when all that it shows is durable in records. After a failure
//! nothing more reaches the device, so what is found later is what a power cut at that moment could
//! have left.
//!
//! **Deliberately absent**: what metadata means.

mod replay;
#[cfg(test)]
mod tests;
mod write;

use super::hash_bytes;
use crate::address::FRAME;
use crate::error::{Error, Result};
use crate::format::log::{BLOCK, HEADER, LINE, RING_AT};
use crate::format::superblock::LANES_AT;
use crate::planted::Planted;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, OnceLock};
use tiersmith_block::{Device, Error as DeviceError, Sector};
use tiersmith_pmem::{Bytes, Journal};

/// Where the log of a member is, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) at: u64,
    pub(crate) len: u64,
    pub(crate) tier_uuid: [u8; 16],
    pub(crate) seed: u64,
    pub(crate) planted: Planted,
}

impl Place {
    fn ring(&self) -> u64 {
        self.len - RING_AT
    }

    /// Bytes of lines and of blocks' checksums that one commit has at most, and a page more: with
    /// all that goes beside them less than the quarter of the ring that is left to a commit which
    /// makes room.
    fn longest(&self) -> u64 {
        self.ring() / 8
    }
}

/// See the module.
pub(crate) struct Log {
    device: Arc<Device>,
    state: Mutex<State>,
    /// `None` while somebody writes records (a turn: `write.rs`).
    writer: Mutex<Option<Writer>>,
    turn_ended: Condvar,
    /// Held by who writes pages to their places. Taken before a turn, or tried.
    checkpointing: Mutex<()>,
    /// Changes up to this number are durable.
    durable: AtomicU64,
    /// The position of the first record that is still needed.
    head: AtomicU64,
    /// Before it is known, all that changes is written to its place.
    place: OnceLock<Place>,
    failed: OnceLock<Failure>,
}

#[derive(Default)]
struct State {
    /// Stores, and writes of blocks, so far.
    changes: u64,
    /// Lines that have changed since the newest record, by number.
    lines: BTreeSet<u64>,
    /// Pages in front of the lanes that have changed.
    front: BTreeSet<u64>,
    /// Pages that are in memory, by number.
    loaded: HashSet<u64>,
    /// Pages that differ from the device, as records say.
    stale: BTreeSet<u64>,
    /// Those that a checkpoint writes just now.
    under_way: BTreeSet<u64>,
    /// Blocks written since the newest record: where, how long, their checksum.
    blocks: BTreeMap<u64, (usize, u64)>,
    /// The frames of which the newest record has a checksum.
    newest: HashSet<u64>,
    /// Those of the record before it, which counts until the newest one is durable.
    before: HashSet<u64>,
    /// A record that does not count may lie behind the newest one: another must take its place
    /// before a block is written, since its blocks could come to look right.
    seal: bool,
    /// A block was written that no sync has covered.
    unsynced: bool,
}

/// What writes records.
#[derive(Default)]
struct Writer {
    /// The position of the next one.
    tail: u64,
    generation: u64,
}

/// Why nothing more is written.
#[derive(Debug)]
struct Failure {
    said: String,
    errno: Option<i32>,
}

impl Log {
    pub(crate) fn on(device: Arc<Device>) -> Self {
        Self {
            device,
            state: Mutex::default(),
            writer: Mutex::new(Some(Writer::default())),
            turn_ended: Condvar::new(),
            checkpointing: Mutex::default(),
            durable: AtomicU64::new(0),
            head: AtomicU64::new(0),
            place: OnceLock::new(),
            failed: OnceLock::new(),
        }
    }

    /// How many changes there have been.
    pub(crate) fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// How many of them are durable.
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Whether everything that was fenced is durable.
    ///
    /// # Errors
    /// What the device said when it was not; from then on nothing is.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(Failure { said, errno }) = self.failed.get() else { return Ok(()) };
        let source = errno
            .map_or_else(|| std::io::Error::other(said.clone()), std::io::Error::from_raw_os_error);
        let range = 0..self.len();
        Err(Error::Device(DeviceError::Lost { path: self.device.path().into(), range, source }))
    }

    fn fail(&self, error: &Error) {
        let errno = match error {
            Error::Device(
                DeviceError::Unreadable { source, .. }
                | DeviceError::Unwritten { source, .. }
                | DeviceError::Lost { source, .. },
            ) => source.raw_os_error(),
            _ => None,
        };
        let failure = Failure { said: error.to_string(), errno };
        if self.failed.set(failure).is_ok() {
            log::error!("nothing more is written to {}: {error}", self.device.path().display());
        }
    }

    /// Sees to it that the pages of a range are in memory, before they are read.
    pub(crate) fn load_all(&self, memory: &dyn Bytes, at: u64, len: usize) -> Result<()> {
        let mut state = self.state.lock();
        pages(at, len).try_for_each(|page| self.load(&mut state, memory, page))
    }

    /// Forgets what was read: the device was changed past the log, before anything was stored.
    pub(crate) fn read_anew(&self) {
        let mut state = self.state.lock();
        debug_assert!(state.changes == 0, "BUG: what was stored would be lost");
        state.loaded.clear();
    }

    fn load(&self, state: &mut State, memory: &dyn Bytes, page: u64) -> Result<()> {
        if state.loaded.contains(&page) {
            return Ok(());
        }
        let mut bytes = [0; FRAME];
        self.device
            .read(self.sector(page * FRAME as u64), &mut bytes)
            .map_err(super::block::lost)?;
        memory.fill(page * FRAME as u64, &bytes);
        state.loaded.insert(page);
        Ok(())
    }

    /// Called before bytes of blocks are written: see the module.
    pub(crate) fn before_write(&self, memory: &dyn Bytes, at: u64, len: usize) -> Result<()> {
        loop {
            self.check()?;
            let is_metadata = {
                let mut state = self.state.lock();
                state.forget_blocks(at, len);
                let must_seal = state.seal || pages(at, len).any(|page| state.has_checksum(page));
                let is_metadata = pages(at, len).any(|page| state.has_metadata(page));
                let planted = self.place.get().map_or(Planted::None, |place| place.planted);
                let must_seal = must_seal && !planted.is(Planted::LogBlockRewritten);
                let is_metadata = is_metadata && !planted.is(Planted::LogPageOverBlock);
                if self.place.get().is_some_and(|place| state.len() > place.longest()) {
                    drop(state);
                    self.commit(memory)?;
                    continue;
                }
                if !must_seal && !is_metadata {
                    for page in pages(at, len) {
                        state.loaded.remove(&page);
                    }
                    return Ok(());
                }
                is_metadata
            };
            if is_metadata {
                self.checkpoint(memory)?;
            } else {
                self.commit_anew(memory)?;
            }
        }
    }

    /// Called when bytes of a block have been written. `hash`: of the whole block, if that was
    /// written.
    pub(crate) fn written(&self, at: u64, len: usize, hash: Option<u64>) {
        let mut state = self.state.lock();
        state.changes += 1;
        state.unsynced = true;
        if let Some(hash) = hash {
            state.blocks.insert(at, (len, hash));
        }
    }

    fn len(&self) -> u64 {
        let device = &self.device;
        device.sectors().bytes(device.sector_size()).expect("BUG: the length of a device fits")
    }

    fn sector(&self, at: u64) -> Sector {
        Sector(at / self.device.sector_size().bytes() as u64)
    }
}

impl State {
    /// Whether the log, or memory alone, says anything of a page.
    fn has_metadata(&self, page: u64) -> bool {
        let lines = page * LINES_OF_PAGE..(page + 1) * LINES_OF_PAGE;
        self.stale.contains(&page)
            || self.under_way.contains(&page)
            || self.lines.range(lines).next().is_some()
    }

    /// Bytes of what the next record says, without what goes beside it.
    fn len(&self) -> u64 {
        self.lines.len() as u64 * LINE + (self.blocks.len() * BLOCK) as u64
    }

    /// Whether a record that a power cut would leave as the newest one has a checksum of a frame.
    fn has_checksum(&self, page: u64) -> bool {
        self.newest.contains(&page) || self.before.contains(&page)
    }

    /// What is in these bytes by now is no block, or another.
    fn forget_blocks(&mut self, at: u64, len: usize) {
        let end = at + len as u64;
        let over: Vec<u64> = self
            .blocks
            .range(at.saturating_sub(BLOCK_MOST)..end)
            .filter(|(from, (len, _))| **from + *len as u64 > at)
            .map(|(from, _)| *from)
            .collect();
        for from in over {
            self.blocks.remove(&from);
        }
    }
}

/// Bytes of the largest block.
const BLOCK_MOST: u64 = 8 * FRAME as u64;
const LINES_OF_PAGE: u64 = FRAME as u64 / LINE;

/// The numbers of the pages that a range touches.
fn pages(at: u64, len: usize) -> std::ops::Range<u64> {
    at / FRAME as u64..(at + len as u64).div_ceil(FRAME as u64)
}

impl Journal for Log {
    fn store(&self, memory: &dyn Bytes, at: u64, len: usize, store: &mut dyn FnMut()) {
        let mut state = self.state.lock();
        while let Some(place) = self.place.get()
            && state.len() > place.longest()
        {
            drop(state);
            let committed = self.commit(memory);
            state = self.state.lock();
            if committed.is_err() {
                // Nothing more reaches the device, however much it is.
                break;
            }
        }
        for page in pages(at, len) {
            let from = page * FRAME as u64;
            if !state.loaded.contains(&page) {
                state.forget_blocks(from, FRAME);
            }
            if at <= from && from + FRAME as u64 <= at + len as u64 {
                state.loaded.insert(page);
            } else if let Err(e) = self.load(&mut state, memory, page) {
                self.fail(&e);
            }
        }
        store();
        state.changes += 1;
        for line in at / LINE..(at + len as u64).div_ceil(LINE) {
            if line * LINE < LANES_AT {
                state.front.insert(line / LINES_OF_PAGE);
            } else {
                state.lines.insert(line);
            }
        }
    }

    fn fence(&self, memory: &dyn Bytes) {
        // Whoever acknowledges anything asks `check` for what came of it.
        let _ = self.commit(memory);
    }
}

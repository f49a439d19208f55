//! What is known of each file, as all its open handles share it: its header line, its block map,
//! the locks that guard them.
//!
//! [`entries`] makes some of a file's blocks `Home`; [`redo_order`], [`times`], [`stay`],
//! [`unsynced`] and [`loan`] are what else is remembered of a file. What a caller can do with one
//! is in [`crate::file`].
//!
//! # Locks, in the order in which they are taken
//! 1. `past`, then `sizing`: redo writes, batches, writes past the end, truncation. Overwrites
//!    within the file take neither.
//! 2. `moving`: destaging and truncation exclude each other. Then `plain` of a lent file
//!    ([`loan`]).
//! 3. `meta`: the state line on the tier and the redo order; held for the time of a small write.
//! 4. a lane (of the tier). A data file's `meta` may also be taken under a lane, a redo file's
//!    never.
//!
//! [`crate::mover::room`] (waiting for free blocks) may be entered with `sizing` held, never with a
//! later one.

pub(crate) mod entries;
pub(crate) mod files;
pub(crate) mod loan;
pub(crate) mod naming;
pub(crate) mod redo_order;
pub(crate) mod stay;
pub(crate) mod times;
pub(crate) mod unsynced;

use crate::address::{BlockIndex, BlockSize, FRAME};
use crate::cache::scan::Scans;
use crate::cache::usage::Usage;
use crate::cache::what_if::{Asked, How};
use crate::error::{Error, Result};
use crate::format::entry::{BLOCKS_MAX, Entry};
use crate::format::slot::{Identity, ROOTS_AT, StateLine};
use crate::home::{HomeHandle, HomeStat};
use crate::ledger::Ledger;
use crate::ledger::latch::Latch;
use crate::ledger::map::{FileMap, Kept};
use crate::ledger::switch::Spot;
use crate::medium::Pin;
use crate::profile::{CacheRules, FileClass, Keeping};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::tier::alloc::Purpose;
use crate::tier::table::Slot;
use loan::Loan;
use naming::Naming;
use redo_order::RedoOrder;
use stay::Stay;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use times::Times;
use unsynced::Unsynced;

/// Where a file's blocks may live besides home.
pub(crate) struct Placed {
    pub(crate) tier: Arc<Ledger>,
    /// The file's id on the tier.
    pub(crate) id: u64,
    /// Its slot in the file table. A file that was opened for reading only may have none, and is
    /// home's alone then ([`crate::names::slots`]).
    pub(crate) slot: OnceLock<Slot>,
    pub(crate) class: FileClass,
    pub(crate) block_size: BlockSize,
    pub(crate) map: FileMap,
    /// Size of the file in bytes; the home file may be behind.
    pub(crate) size: AtomicU64,
    pub(crate) sizing: Latch<()>,
    /// While blocks are brought in, who writes past the tier takes it before `sizing`, which is not
    /// fair: who brings them in has his turn by it.
    pub(crate) past: Mutex<()>,
    /// Where the end will be after the write past the end that is under way, else 0: its blocks
    /// must not be destaged by the old size.
    pub(crate) growing: AtomicU64,
    pub(crate) moving: Mutex<()>,
    pub(crate) meta: Latch<Meta>,
    pub(crate) stay: Stay,
    /// [`Keeping`], by its path: its place in [`Keeping::LEAVING`].
    keeping: AtomicUsize,
    /// Who reads it from one end to the other.
    pub(crate) scans: Scans,
    /// What became of its reads.
    pub(crate) usage: Usage,
    /// What was written past an ephemeral tier, and is not durable at home.
    pub(crate) unsynced: Unsynced,
    /// The last cut has not reached home.
    pub(crate) cutting: AtomicBool,
    /// It has left the tier, and its slot may be another file's: whoever works in the background
    /// looks here after taking `moving`.
    pub(crate) gone: AtomicBool,
    /// The times that programs see.
    pub(crate) times: Times,
    /// Whether its contents are in a plain file: then the map, and `size`, say nothing.
    pub(crate) loan: Loan,
}

/// What a file's `meta` lock protects.
#[derive(Default)]
pub(crate) struct Meta {
    pub(crate) line: StateLine,
    pub(crate) redo: RedoOrder,
}

/// A file known to an attached home.
pub(crate) struct FileState {
    /// Path relative to home when last seen; the home file is opened by it.
    pub(crate) path: Arc<Mutex<PathBuf>>,
    pub(crate) identity: HomeStat,
    pub(crate) home: HomeHandle,
    /// `None`: everything goes straight to home.
    pub(crate) placed: Option<Placed>,
    /// Changes of size of a pass file, one at a time.
    pub(crate) resizing: Mutex<()>,
    pub(crate) handles: AtomicUsize,
    /// When its last handle was closed, counted in last handles closed; 0: not since attach.
    pub(crate) closed_at: AtomicU64,
    /// It goes straight home although its class belongs into a tier.
    pub(crate) outside: bool,
    /// The last name is gone; the blocks go with the last handle.
    pub(crate) unlinked: AtomicBool,
    /// The directory has been synced since: the name cannot come back.
    pub(crate) removal_durable: AtomicBool,
    /// What is known of the durability of its names.
    pub(crate) name: Naming,
    /// Its class changed with a rename; it takes effect when the last handle is closed, or when it
    /// is opened next.
    pub(crate) replace: AtomicBool,
    /// What changes the size or clears a range looks at the size first: one at a time. Taken before
    /// all other locks of the file.
    pub(crate) ranging: Mutex<()>,
}

impl std::fmt::Debug for FileState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileState").field("path", &*self.path.lock()).finish_non_exhaustive()
    }
}

impl FileState {
    /// A file that nobody has open yet.
    pub(crate) fn new(home: HomeHandle, identity: HomeStat, placed: Option<Placed>) -> Self {
        Self {
            path: home.path(),
            identity,
            home,
            placed,
            resizing: Mutex::new(()),
            handles: AtomicUsize::new(0),
            closed_at: AtomicU64::new(0),
            outside: false,
            unlinked: AtomicBool::new(false),
            removal_durable: AtomicBool::new(false),
            name: Naming::default(),
            replace: AtomicBool::new(false),
            ranging: Mutex::new(()),
        }
    }

    pub(crate) fn io(&self, what: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        Error::io(what, self.path.lock().clone())
    }

    pub(crate) fn invalid(&self, what: &'static str, reason: impl Into<String>) -> Error {
        Error::Invalid { what, path: self.path.lock().clone(), reason: reason.into() }
    }

    /// The size of a file with a place in a tier.
    pub(crate) fn size_of(&self, placed: &Placed) -> Result<u64> {
        match placed.loan.plain() {
            Some(plain) => Ok(plain.file.stat().map_err(self.io("cannot stat the lent"))?.size),
            None => Ok(placed.size()),
        }
    }

    /// The file has this path: the rules say how its blocks are treated.
    pub(crate) fn treat_by(&self, rules: &CacheRules, path: &Path) {
        if let Some(placed) = &self.placed {
            placed.keeping.store(rules.keeping(path) as usize, Ordering::Relaxed);
        }
    }

    /// What home has of a block, zeros past the end of the self.
    pub(crate) fn read_home_block(&self, placed: &Placed, at: u64, into: &mut [u8]) -> Result<()> {
        let len = into.len().min(placed.size().saturating_sub(at).try_into().unwrap_or(usize::MAX));
        let got = self.home.read_at(at, &mut into[..len]).map_err(self.io("cannot read"))?;
        into[got..].fill(0);
        Ok(())
    }
}

impl Placed {
    /// A file's part in the tier, in DRAM.
    pub(crate) fn new(
        tier: &Arc<Ledger>,
        id: u64,
        slot: Option<Slot>,
        identity: &Identity,
        meta: Meta,
        map: FileMap,
    ) -> Self {
        let ahead = map.counts().0 > 0;
        Self {
            tier: tier.clone(),
            id,
            slot: slot.map(OnceLock::from).unwrap_or_default(),
            class: identity.class,
            block_size: identity.block_size,
            map,
            size: AtomicU64::new(meta.line.size),
            sizing: Latch::new(()),
            past: Mutex::new(()),
            growing: AtomicU64::new(0),
            moving: Mutex::new(()),
            scans: Scans::default(),
            usage: Usage::default(),
            unsynced: Unsynced::default(),
            stay: Stay::of(&meta.line),
            keeping: AtomicUsize::new(Keeping::Default as usize),
            cutting: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            times: Times::of(&meta.line, tier.holds_dirty() && ahead),
            loan: Loan::default(),
            meta: Latch::new(meta),
        }
    }

    /// Rewrites the path hint ([`Ledger::write_path`]).
    pub(crate) fn write_path(&self, path: &Path) {
        if let Some(slot) = self.slot.get() {
            self.tier.write_path(*slot, self.id, path);
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// A block of a data file was asked for: what if the tier had another size?
    #[inline]
    pub(crate) fn saw(&self, block: BlockIndex, how: How) {
        let asked = || Asked {
            file: self.id,
            block,
            frames: self.block_size.frames(),
            is_kept: self.keeping() != Keeping::None,
        };
        self.tier.what_if.saw(self.id, block, how, asked);
    }

    /// Blocks of the file would be in no tier any more, whatever its size.
    pub(crate) fn would_be_gone(&self, blocks: RangeInclusive<u64>) {
        if self.class == FileClass::Data {
            self.tier.what_if.gone(self.id, blocks);
        }
    }

    /// The same, of blocks in ascending order.
    pub(crate) fn these_would_be_gone(&self, blocks: &[BlockIndex]) {
        for run in blocks.chunk_by(|block, next| block.0 + 1 == next.0) {
            self.would_be_gone(run[0].0..=run[0].0 + run.len() as u64 - 1);
        }
    }

    /// A block and its entry; `None` while the file has no leaf for it (the block is `Home`).
    #[inline]
    pub(crate) fn spot(&self, block: BlockIndex) -> Option<Spot<'_>> {
        let (leaf, index) = self.map.leaf(block)?;
        Some(Spot { file: self.id, block, size: self.block_size, map: &self.map, leaf, index })
    }

    /// Keeps the bytes of a block of a data file that was `entry` a moment ago
    /// ([`Ledger::pin_block`]). Those of a redo file change in place.
    pub(crate) fn pin(&self, block: BlockIndex, entry: Entry) -> Option<Pin<'_>> {
        let spot = self.spot(block).filter(|_| self.class == FileClass::Data)?;
        self.tier.pin_block(spot, entry)
    }

    /// Whether the tier takes clean copies of its blocks.
    pub(crate) fn admits(&self) -> bool {
        self.class == FileClass::Data
            && self.tier.holds_data
            && self.has_slot()
            && self.keeping() != Keeping::None
    }

    /// How the tier treats its blocks.
    pub(crate) fn keeping(&self) -> Keeping {
        Keeping::LEAVING[self.keeping.load(Ordering::Relaxed)]
    }

    /// Whether the tier could hold sixteen such files beside those that stay: to admit it whole
    /// displaces little.
    pub(crate) fn is_small(&self) -> bool {
        self.size() / FRAME as u64 <= self.tier.frames_that_change() / 16
    }

    /// Frames of its blocks and map pages in the tier.
    pub(crate) fn frames(&self) -> u64 {
        let (dirty, cached) = self.map.counts();
        (dirty + cached) * self.block_size.frames() + self.map.page_count() as u64
    }

    /// Whether the file has left the tier. Stays as it is while `moving` is held.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub(crate) fn has_slot(&self) -> bool {
        self.slot.get().is_some()
    }

    /// Makes the leaf of a block and its page; see [`FileMap::make_leaf`].
    pub(crate) fn make_leaf<'a>(&'a self, block: BlockIndex, kept: &mut Kept<'a>) -> Result<bool> {
        let slot = self.slot.get().expect("BUG: a file that is written or admitted has a slot");
        self.map.make_leaf(&self.tier, self.id, slot.at.plus(ROOTS_AT), block, kept)
    }

    /// Gives back up to `most` map pages that say nothing. Returns how many there were; none when
    /// somebody moves the file's blocks.
    pub(crate) fn give_back_pages(&self, most: u64) -> u64 {
        if !self.map.has_spare() {
            return 0;
        }
        let Some(_moving) = self.moving.try_lock() else { return 0 };
        // Its slot may be another file's.
        let Some(slot) = self.slot.get().filter(|_| !self.is_gone()) else { return 0 };
        let pages = self.map.take_spare(&self.tier, self.id, slot.at.plus(ROOTS_AT), most);
        let count = pages.len() as u64;
        self.tier.give_latched(Purpose::Pages, pages);
        count
    }

    /// Writes the state line; durable with the caller's next fence. Not that of a file that has
    /// left the tier: its slot may be another file's, and whoever frees it holds `meta` while it
    /// says so.
    #[inline]
    pub(crate) fn write_line(&self, meta: &mut Meta) {
        meta.line.seq += 1;
        let Some(slot) = self.slot.get().filter(|_| !self.is_gone()) else { return };
        self.tier.write_state_line(*slot, self.id, &meta.line);
    }

    /// [`Placed::write_line`], and waits for it.
    ///
    /// # Durability
    /// The state line, and what this thread wrote before, is durable on return.
    pub(crate) fn persist_line(&self, meta: &mut Meta) {
        self.write_line(meta);
        self.tier.wait();
    }

    /// The size that destaging may trim this block to; `None` when the block belongs to a write
    /// past the end that is not complete. Ask after the block's entry was read.
    pub(crate) fn destage_size(&self, block: BlockIndex) -> Option<u64> {
        let growing = self.growing.load(Ordering::Acquire);
        let size = self.size();
        let end = self.block_size.start_of(block) + self.block_size.bytes() as u64;
        (growing <= size || end <= size).then_some(size)
    }

    /// The end of a write, checked against what a map can hold.
    pub(crate) fn end_of(&self, offset: u64, len: usize) -> Option<u64> {
        let end = offset.checked_add(len as u64)?;
        (end <= BLOCKS_MAX * self.block_size.bytes() as u64).then_some(end)
    }

    /// The parts of `offset .. offset + len`, block by block: block, offset within it, range of the
    /// caller's bytes.
    pub(crate) fn chunks(
        &self,
        offset: u64,
        len: usize,
    ) -> impl Iterator<Item = (BlockIndex, usize, std::ops::Range<usize>)> + use<> {
        let size = self.block_size;
        let mut done = 0;
        std::iter::from_fn(move || {
            if done == len {
                return None;
            }
            let at = offset + done as u64;
            let block = size.block_of(at);
            let inner = (at - size.start_of(block)) as usize;
            let take = (size.bytes() - inner).min(len - done);
            done += take;
            Some((block, inner, done - take..done))
        })
    }
}

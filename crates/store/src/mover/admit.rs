//! Admission: a block that was read from home becomes a clean copy in the tier.
//!
//! With a background thread the reader only says which blocks it has read; the thread reads them
//! again (they are in the page cache of the home's file system) and admits them. So the first read
//! of a block costs what reading home costs. Without a background thread, and when more waits than
//! the queue holds, the reader admits what it has read itself.
//!
//! Deliberately absent: any promise that what was read is admitted. What waits when the home is
//! closed, when a file is being cut or destaged, or when home cannot be read, is forgotten.

use super::Mover;
use crate::address::BlockIndex;
use crate::cache::policy::{Chosen, Policy, Read};
use crate::error::Result;
use crate::format::entry::{Entry, State};
use crate::known::{FileState, Placed};
use crate::ledger::map::Kept;
use crate::ledger::switch::Outcome;
use crate::planted::Planted;
use crate::profile::Keeping;
use crate::sync::Mutex;
use crate::waits;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// Runs of blocks that may wait. A run is 24 bytes.
const WAITING_MOST: usize = 16_384;
/// So many waiting wake the background before its time.
const WAITING_WAKE: usize = 64;
/// Runs that a background step admits before it looks at its other work.
const STEP_RUNS: usize = 1024;

/// Blocks that somebody has read from home.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// Which file: its key. It may be another one by the time of admission, which does no harm.
    key: (u64, u64),
    first: BlockIndex,
    blocks: u32,
}

impl Run {
    pub(crate) fn of(file: &FileState, first: BlockIndex, blocks: u32) -> Self {
        Self { key: file.identity.key(), first, blocks }
    }
}

/// What waits for admission.
#[derive(Default)]
pub(crate) struct Admissions {
    waiting: Mutex<VecDeque<Run>>,
}

/// What the policy says of a block that was read from home.
pub(crate) fn is_admitted(placed: &Placed, block: BlockIndex, is_scan: bool) -> bool {
    let allocator = &placed.tier.allocator;
    let read = Read {
        file: placed.id,
        block,
        is_scan,
        of_small_file: placed.is_small(),
        free_frames: allocator.free_frames(),
        total_frames: allocator.total_frames(),
    };
    // What is kept is taken at once, scans too, while that does not drive out its like.
    let is_kept =
        placed.keeping() == Keeping::Keep && !placed.tier.kept_went.load(Ordering::Relaxed);
    Chosen::admitted(&placed.tier.policy, &read) || is_kept && has_room(placed)
}

/// Whether there still is room for what the policy wants.
fn has_room(placed: &Placed) -> bool {
    let allocator = &placed.tier.allocator;
    Chosen::has_room(allocator.free_frames(), allocator.total_frames())
}

impl Mover {
    /// Sees to the admission of a run of blocks of which `parts` were just read from home, and
    /// which the policy wants. `evictions` was counted before home was read.
    pub(crate) fn admit_run(
        &self,
        file: &FileState,
        placed: &Placed,
        parts: &[(BlockIndex, usize, &[u8])],
        evictions: u64,
    ) -> Result<()> {
        let Some((first, _, _)) = parts.first() else { return Ok(()) };
        if self.admit_later(file, *first, parts.len() as u32) {
            return Ok(());
        }
        for (block, inner, part) in parts {
            self.admit(file, placed, *block, *inner, part, evictions)?;
        }
        Ok(())
    }

    /// Leaves a run to the background. `false` when there is none, or when it has more than enough
    /// to do.
    fn admit_later(&self, file: &FileState, first: BlockIndex, blocks: u32) -> bool {
        if !self.env.options.background {
            return false;
        }
        let run = Run::of(file, first, blocks);
        let len = {
            let mut waiting = self.admissions.waiting.lock();
            // A block that is read in small parts comes many times before it is admitted.
            if waiting.back() == Some(&run) {
                return true;
            }
            if waiting.len() >= WAITING_MOST {
                return false;
            }
            waiting.push_back(run);
            waiting.len()
        };
        if len == WAITING_WAKE {
            self.env.wake_background();
        }
        true
    }

    /// The background's part: admits what waits, or the first of it; then the next step comes
    /// without a pause.
    pub(crate) fn admit_waiting(&self) {
        let runs: Vec<Run> = {
            let mut waiting = self.admissions.waiting.lock();
            let count = waiting.len().min(STEP_RUNS);
            waiting.drain(..count).collect()
        };
        if runs.len() == STEP_RUNS {
            self.env.wake_background();
        }
        for run in runs {
            let file = self.files.get(run.key);
            if let Some(file) = file
                && let Some(placed) = &file.placed
            {
                self.admit_again(&file, placed, run);
            }
        }
    }

    pub(crate) fn admit_again(&self, file: &FileState, placed: &Placed, run: Run) {
        // While it is held the file's slot stays its own. Somebody who cuts or destages it has more
        // urgent things to do with it.
        let Some(_moving) = placed.moving.try_lock() else { return };
        if placed.is_gone() || !placed.admits() {
            return;
        }
        let mut bytes = vec![0; placed.block_size.bytes()];
        for block in (run.first.0..).take(run.blocks as usize).map(BlockIndex) {
            if placed.map.get(block) != Entry::HOME {
                continue;
            }
            let evictions = placed.map.evictions.load(Ordering::Acquire);
            let at = placed.block_size.start_of(block);
            if !has_room(placed)
                || at >= placed.size()
                || file.read_home_block(placed, at, &mut bytes).is_err()
                || self.admit(file, placed, block, 0, &bytes, evictions).is_err()
            {
                return;
            }
        }
    }

    /// Puts a block just read from home into the tier as a clean copy, if there is room without
    /// waiting.
    ///
    /// The copy is durable before its entry is stored, so that after a cut a `Cached` entry never
    /// points to other bytes.
    fn admit(
        &self,
        file: &FileState,
        placed: &Placed,
        block: BlockIndex,
        inner: usize,
        part: &[u8],
        evictions: u64,
    ) -> Result<()> {
        let mut kept = Kept::default();
        if !has_room(placed) || !placed.make_leaf(block, &mut kept)? {
            return Ok(());
        }
        let bytes = placed.block_size.bytes();
        let mut whole = Vec::new();
        let data = if inner == 0 && part.len() == bytes {
            part
        } else {
            whole.resize(bytes, 0);
            file.read_home_block(placed, placed.block_size.start_of(block), &mut whole)?;
            &whole
        };
        // Where the tier cannot have a copy home is read as before.
        let _ = self.admit_block(placed, block, data, evictions);
        Ok(())
    }

    /// Makes `data`, a whole block read from home since `evictions` was counted, a clean copy.
    /// `false` when there is no free piece, or no map page.
    ///
    /// # Errors
    /// When the medium cannot be written.
    pub(crate) fn admit_block(
        &self,
        placed: &Placed,
        block: BlockIndex,
        data: &[u8],
        evictions: u64,
    ) -> Result<bool> {
        let tier = &placed.tier;
        let start = self.events.start();
        let Some(spot) = placed.spot(block) else { return Ok(false) };
        let counted = || {
            placed.map.evictions.load(Ordering::Acquire) != evictions
                && !tier.planted.races(Planted::NoEvictions)
        };
        let unsynced = || {
            tier.is_ephemeral()
                && placed.unsynced.has(block)
                && !tier.planted.is(Planted::AdmitUnsynced)
        };
        let moved = || spot.entry() != Entry::HOME || counted() || unsynced();
        // Home may have been read before a cut: past the end a block is zeros, whatever home still
        // holds there. The size is asked under the lane: a cut may store a smaller one at any
        // moment, and then waits for this lane before it looks for entries.
        let within = || placed.size().saturating_sub(placed.block_size.start_of(block)) as usize;
        let counts = || Some(within().min(data.len())).filter(|within| *within > 0 && !moved());
        Ok(match tier.adopt(spot, Some(data), State::Cached, counts)? {
            Outcome::Done => {
                let _ = self.events.record_n(waits::ADMIT, start, data.len() as u64);
                true
            }
            Outcome::Moved => moved() || within() == 0,
            Outcome::NoPiece => false,
        })
    }
}

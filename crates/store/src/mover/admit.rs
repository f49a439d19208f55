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
use crate::cache::usage::Skip;
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
use tiersmith_events::EventId;

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

/// How many blocks of a run were seen to, and why not the others.
struct SeenTo {
    blocks: u64,
    then: Skip,
}

/// What waits for admission.
#[derive(Default)]
pub(crate) struct Admissions {
    waiting: Mutex<VecDeque<Run>>,
}

/// What became of a block that was to be a clean copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// It is one.
    Done,
    /// Somebody changed it, or home, meanwhile.
    Moved,
    /// There is no free piece for it, or no map page.
    NoRoom,
}

/// What the policy says of a block that was read from home.
pub(crate) fn admission(
    placed: &Placed,
    block: BlockIndex,
    is_scan: bool,
) -> std::result::Result<(), Skip> {
    // What is kept is taken at once, scans too, while that does not drive out its like.
    let is_kept =
        placed.keeping() == Keeping::Keep && !placed.tier.kept_went.load(Ordering::Relaxed);
    let read = Read {
        file: placed.id,
        block,
        frames: placed.block_size.frames(),
        is_scan,
        of_small_file: placed.is_small(),
        is_kept,
        free_frames: placed.tier.allocator.free_frames(),
        total_frames: placed.tier.frames_that_change(),
    };
    Chosen::admitted(&placed.tier.policy, &read).or_else(|skip| match is_kept && has_room(placed) {
        true => Ok(()),
        false => Err(skip),
    })
}

/// Whether there still is room for what the policy wants.
fn has_room(placed: &Placed) -> bool {
    Chosen::has_room(placed.tier.allocator.free_frames(), placed.tier.frames_that_change())
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
        if self.admit_later(file, placed, *first, parts.len() as u32) {
            return Ok(());
        }
        for (n, (block, inner, part)) in parts.iter().enumerate() {
            if let Err(e) = self.admit(file, placed, *block, *inner, part, evictions) {
                placed.usage.skipped(&self.events, Skip::Lost, (parts.len() - n) as u64);
                return Err(e);
            }
        }
        Ok(())
    }

    /// Leaves a run to the background. `false` when there is none, or when it has more than enough
    /// to do.
    fn admit_later(
        &self,
        file: &FileState,
        placed: &Placed,
        first: BlockIndex,
        blocks: u32,
    ) -> bool {
        if !self.env.options.background {
            return false;
        }
        let run = Run::of(file, first, blocks);
        let len = {
            let mut waiting = self.admissions.waiting.lock();
            // A block that is read in small parts comes many times before it is admitted.
            if waiting.back() == Some(&run) {
                placed.usage.skipped(&self.events, Skip::Exists, u64::from(blocks));
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
            match file.as_ref().and_then(|file| file.placed.as_ref().map(|placed| (file, placed))) {
                Some((file, placed)) => self.admit_again(file, placed, run),
                // The file has gone, and what was counted of it with it.
                None => self.events.count(Skip::Lost.counter(), u64::from(run.blocks)),
            }
        }
    }

    pub(crate) fn admit_again(&self, file: &FileState, placed: &Placed, run: Run) {
        let seen_to = self.admit_some(file, placed, run);
        let rest = u64::from(run.blocks) - seen_to.blocks;
        placed.usage.skipped(&self.events, seen_to.then, rest);
    }

    /// Admits the blocks of a run, one after another, as far as that goes.
    fn admit_some(&self, file: &FileState, placed: &Placed, run: Run) -> SeenTo {
        let mut seen_to = SeenTo { blocks: 0, then: Skip::Lost };
        // While it is held the file's slot stays its own. Somebody who cuts or destages it has more
        // urgent things to do with it.
        let Some(_moving) = placed.moving.try_lock() else { return seen_to };
        if placed.is_gone() || !placed.admits() {
            return seen_to;
        }
        let mut bytes = vec![0; placed.block_size.bytes()];
        for block in (run.first.0..).take(run.blocks as usize).map(BlockIndex) {
            if placed.map.get(block) != Entry::HOME {
                placed.usage.skipped(&self.events, Skip::Exists, 1);
                seen_to.blocks += 1;
                continue;
            }
            if !has_room(placed) {
                return SeenTo { then: Skip::NoRoom, ..seen_to };
            }
            if !self.is_in_budget(placed) {
                return SeenTo { then: Skip::Budget, ..seen_to };
            }
            let evictions = placed.map.evictions.load(Ordering::Acquire);
            let at = placed.block_size.start_of(block);
            if at >= placed.size()
                || file.read_home_block(placed, at, &mut bytes).is_err()
                || self.admit(file, placed, block, 0, &bytes, evictions).is_err()
            {
                return seen_to;
            }
            seen_to.blocks += 1;
        }
        seen_to
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
        if !self.is_in_budget(placed) {
            placed.usage.skipped(&self.events, Skip::Budget, 1);
            return Ok(());
        }
        if !has_room(placed) || !placed.make_leaf(block, &mut kept)? {
            placed.usage.skipped(&self.events, Skip::NoRoom, 1);
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
        let Some(taken) = self.take_from_budget(placed) else {
            placed.usage.skipped(&self.events, Skip::Budget, 1);
            return Ok(());
        };
        // Where the tier cannot have a copy home is read as before.
        let skip = match self.admit_block(placed, block, data, evictions, Some(waits::ADMIT)) {
            Ok(Admitted::Done) => {
                taken.spend();
                return Ok(());
            }
            Ok(Admitted::NoRoom) => Skip::NoRoom,
            Ok(Admitted::Moved) | Err(_) if placed.map.get(block) != Entry::HOME => Skip::Exists,
            Ok(Admitted::Moved) | Err(_) => Skip::Lost,
        };
        placed.usage.skipped(&self.events, skip, 1);
        Ok(())
    }

    /// Makes `data`, a whole block read from home since `evictions` was counted, a clean copy. The
    /// time is this event's. `None`: it is part of what the caller records.
    ///
    /// # Errors
    /// When the medium cannot be written.
    pub(crate) fn admit_block(
        &self,
        placed: &Placed,
        block: BlockIndex,
        data: &[u8],
        evictions: u64,
        event: Option<EventId>,
    ) -> Result<Admitted> {
        let tier = &placed.tier;
        let start = self.events.start();
        let Some(spot) = placed.spot(block) else { return Ok(Admitted::NoRoom) };
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
                placed.usage.inserted(&self.events, event, start, data.len() as u64);
                Admitted::Done
            }
            Outcome::Moved if moved() || within() == 0 => Admitted::Moved,
            Outcome::Moved | Outcome::NoPiece => Admitted::NoRoom,
        })
    }
}

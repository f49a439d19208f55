//! Scrubbing: every block of a data file that a tier has is read and compared with its checksum, so
//! that what a medium has lost is known before somebody needs it.
//!
//! What is done about a block that is not what it should be is what is done when a program reads
//! it: a clean copy is given up, for home has it; a newest version is reported, by file and block
//! ([`super::unreadable`]).
//!
//! Deliberately absent: when to scrub. Redo has no checksums, and what the kernel writes into lent
//! files has none either.

use super::Mover;
use crate::address::BlockIndex;
use crate::error::{Error, Result};
use crate::format::entry::{Entry, LEAF_BLOCKS, NO_SUM, State};
use crate::known::{FileState, Placed};
use crate::profile::FileClass;
use crate::sync::sleep;
use crate::waits;
use std::time::{Duration, Instant};

/// How often a block is looked at that changes meanwhile: what is being written is not what a
/// medium has lost.
const TRIES: u32 = 3;
/// The longest sleep, so that a scrub ends soon when it is to.
const NAP: Duration = Duration::from_millis(200);

/// What a scrub has seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Blocks that were read.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that the tiers had when it began; others come and go.
    pub of_bytes: u64,
    /// Clean copies that were not what they should be, and are read from home now.
    pub repaired: u64,
    /// Blocks of which only the tier has the newest version, and that is not what it should be.
    pub lost: u64,
    /// Blocks that have no checksum.
    pub without_checksum: u64,
}

/// So many bytes a second.
struct Pace {
    bytes_per_s: Option<u64>,
    began: Instant,
}

impl Pace {
    /// How long to wait before more is read.
    fn rest(&self, bytes: u64) -> Duration {
        let due = self.bytes_per_s.map_or(0.0, |rate| bytes as f64 / rate.max(1) as f64);
        Duration::from_secs_f64(due).saturating_sub(self.began.elapsed())
    }
}

impl Mover {
    /// Scrubs all files. `goes_on` is asked after each block, and while nothing is read.
    pub(crate) fn scrub(
        &self,
        bytes_per_s: Option<u64>,
        mut goes_on: impl FnMut(&Scrubbed) -> bool,
    ) -> Scrubbed {
        let pace = Pace { bytes_per_s, began: Instant::now() };
        let files: Vec<_> =
            self.files.all().into_iter().filter(|file| blocks_of(file).is_some()).collect();
        let mut seen = Scrubbed::default();
        for placed in files.iter().filter_map(|file| blocks_of(file)) {
            let (dirty, cached) = placed.map.counts();
            seen.of_bytes += (dirty + cached) * placed.block_size.bytes() as u64;
        }
        for file in &files {
            let Some(placed) = blocks_of(file) else { continue };
            for block in held(placed) {
                self.scrub_block(file, placed, block, &mut seen);
                loop {
                    if !goes_on(&seen) {
                        return seen;
                    }
                    let rest = pace.rest(seen.bytes);
                    if rest.is_zero() {
                        break;
                    }
                    sleep(rest.min(NAP));
                }
            }
        }
        seen
    }

    fn scrub_block(
        &self,
        file: &FileState,
        placed: &Placed,
        block: BlockIndex,
        seen: &mut Scrubbed,
    ) {
        // While it is held the file's map stays its own.
        let _moving = placed.moving.lock();
        for _ in 0..TRIES {
            let entry = placed.map.get(block);
            if entry == Entry::HOME || placed.is_gone() {
                return;
            }
            let sum = match self.compare_at_rest(placed, block, entry) {
                Ok(None) => continue,
                Ok(Some(sum)) => sum,
                Err(e) => {
                    match self.read_elsewhere(file, placed, block, entry, e) {
                        Ok(()) => seen.repaired += u64::from(entry.state() == State::Cached),
                        Err(Error::Unreadable { .. }) => seen.lost += 1,
                        Err(e) => {
                            let path = file.path.lock();
                            return log::error!(
                                "cannot scrub block {} of {}: {e}",
                                block.0,
                                path.display()
                            );
                        }
                    }
                    NO_SUM + 1
                }
            };
            seen.blocks += 1;
            seen.bytes += placed.block_size.bytes() as u64;
            seen.without_checksum += u64::from(sum == NO_SUM);
            self.events.count(waits::SCRUBBED, 1);
            return;
        }
    }

    /// Reads a block and compares it. Its checksum; `None` when it changes meanwhile.
    fn compare_at_rest(
        &self,
        placed: &Placed,
        block: BlockIndex,
        entry: Entry,
    ) -> Result<Option<u64>> {
        let tier = &placed.tier;
        let (Some(pin), Some(spot)) = (placed.pin(block, entry), placed.spot(block)) else {
            return Ok(None);
        };
        if spot.entry() != entry {
            return Ok(None);
        }
        let mut bytes = vec![0; placed.block_size.bytes()];
        tier.read_block_checked(entry.frame(), 0, &mut bytes)?;
        let Some(sum) = tier.sum_of(spot, entry) else { return Ok(None) };
        tier.compare(spot, entry, &bytes, sum)?;
        drop(pin);
        tier.note_seen(spot, entry);
        Ok(Some(sum))
    }
}

/// A file's part in the tier, if its blocks have checksums.
fn blocks_of(file: &FileState) -> Option<&Placed> {
    file.placed.as_ref().filter(|placed| placed.class == FileClass::Data && !placed.is_gone())
}

/// The blocks of a file that the tier has.
fn held(placed: &Placed) -> Vec<BlockIndex> {
    let mut blocks = Vec::new();
    placed.map.for_each_leaf(|number, leaf| {
        if leaf.dirty() + leaf.cached() > 0 {
            let held = (0..LEAF_BLOCKS).filter(|index| leaf.get(*index as usize) != Entry::HOME);
            blocks.extend(held.map(|index| BlockIndex(number * LEAF_BLOCKS + index)));
        }
    });
    blocks
}

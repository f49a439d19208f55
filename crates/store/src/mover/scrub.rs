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
use super::pace::Pace;
use crate::address::BlockIndex;
use crate::error::{Error, Result};
use crate::format::entry::{Entry, LEAF_BLOCKS, NO_SUM, State};
use crate::known::{FileState, Placed};
use crate::profile::FileClass;
use crate::waits;
use std::time::Instant;

/// How often a block is looked at that changes meanwhile: what is being written is not what a
/// medium has lost.
const TRIES: u32 = 3;

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

impl Mover {
    /// Scrubs all files. `goes_on` is asked after each block, and while nothing is read.
    pub(crate) fn scrub(
        &self,
        bytes_per_s: Option<u64>,
        mut goes_on: impl FnMut(&Scrubbed) -> bool,
    ) -> Scrubbed {
        let mut pace = Pace::of(bytes_per_s);
        let mut seen = Scrubbed::default();
        // Not the files: one that is removed meanwhile must go at once.
        let mut keys = Vec::new();
        for file in self.files.all() {
            let Some(placed) = blocks_of(&file) else { continue };
            let (dirty, cached) = placed.map.counts();
            seen.of_bytes += (dirty + cached) * placed.block_size.bytes() as u64;
            keys.push(file.identity.key());
        }
        for key in keys {
            for number in self.files.get(key).as_deref().map(leaves).unwrap_or_default() {
                let Some(file) = self.files.get(key) else { break };
                if !self.scrub_leaf(&file, number, &mut pace, &mut seen, &mut goes_on) {
                    return seen;
                }
            }
        }
        seen
    }

    /// Scrubs the blocks of one leaf. `false`: it is not to go on.
    fn scrub_leaf(
        &self,
        file: &FileState,
        number: u64,
        pace: &mut Pace,
        seen: &mut Scrubbed,
        goes_on: &mut impl FnMut(&Scrubbed) -> bool,
    ) -> bool {
        for block in (0..LEAF_BLOCKS).map(|index| BlockIndex(number * LEAF_BLOCKS + index)) {
            let Some(placed) = blocks_of(file) else { return true };
            if placed.map.get(block) == Entry::HOME {
                continue;
            }
            let before = seen.bytes;
            self.scrub_block(file, placed, block, seen);
            pace.moved(seen.bytes - before, Instant::now());
            if !pace.wait(|| goes_on(seen)) {
                return false;
            }
        }
        true
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
            let has_sum = match self.compare_at_rest(placed, block, entry) {
                Ok(None) => continue,
                Ok(Some(has_sum)) => has_sum,
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
                    true
                }
            };
            seen.blocks += 1;
            seen.bytes += placed.block_size.bytes() as u64;
            seen.without_checksum += u64::from(!has_sum);
            self.events.count(waits::SCRUBBED, 1);
            return;
        }
    }

    /// Reads a block and compares it. Whether it has a checksum; `None` when it changes meanwhile.
    fn compare_at_rest(
        &self,
        placed: &Placed,
        block: BlockIndex,
        entry: Entry,
    ) -> Result<Option<bool>> {
        let tier = &placed.tier;
        let (Some(pin), Some(spot)) = (placed.pin(block, entry), placed.spot(block)) else {
            return Ok(None);
        };
        if spot.entry() != entry {
            return Ok(None);
        }
        let mut bytes = vec![0; placed.block_size.bytes()];
        tier.read_block_afresh(entry.frame(), &mut bytes)?;
        let Some(sum) = tier.sum_of(spot, entry) else { return Ok(None) };
        tier.compare(spot, entry, &bytes, sum)?;
        drop(pin);
        tier.note_seen(spot, entry);
        Ok(Some(sum != NO_SUM))
    }
}

/// A file's part in the tier, if its blocks have checksums.
fn blocks_of(file: &FileState) -> Option<&Placed> {
    file.placed.as_ref().filter(|placed| placed.class == FileClass::Data && !placed.is_gone())
}

/// The leaves of a file's map of which the tier has blocks.
fn leaves(file: &FileState) -> Vec<u64> {
    let mut leaves = Vec::new();
    if let Some(placed) = blocks_of(file) {
        placed.map.for_each_leaf(|number, leaf| {
            if leaf.dirty() + leaf.cached() > 0 {
                leaves.push(number);
            }
        });
    }
    leaves
}

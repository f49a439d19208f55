//! Making blocks `Home`, and the small durable changes of what the tier says of one file.

use super::Placed;
use crate::address::BlockIndex;
use crate::error::Result;
use crate::format::entry::{Entry, LEAF_BLOCKS, NO_SUM, State};
use crate::planted::Planted;
use crate::profile::FileClass;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::tier::alloc::Purpose;

/// Entries become `Home`, and are not so durably yet.
struct Leaving<'a>(&'a AtomicU64);

impl<'a> Leaving<'a> {
    fn begin(leaving: &'a AtomicU64) -> Self {
        leaving.fetch_add(1, Ordering::AcqRel);
        Self(leaving)
    }
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Placed {
    /// Drops the clean copies among `blocks`, and waits for who is dropping one of them already.
    /// Returns how many it dropped.
    ///
    /// # Durability
    /// That none of them has a copy is durable on return, if the tier is sound then.
    pub(crate) fn drop_copies_of_all(&self, blocks: &[BlockIndex]) -> u64 {
        let dropped = self.drop_copies(blocks);
        // Whoever made one `Home` before we had its lane counts himself before that.
        let is_another = self.map.leaving.load(Ordering::Acquire) > 0;
        if dropped == 0 && is_another && !self.tier.planted.is(Planted::OthersUnwaited) {
            self.tier.wait();
        }
        dropped
    }

    /// Makes what lies past the end in the last block zero. Only where nobody holds a reference
    /// into the block: redo blocks, and everything during recovery.
    ///
    /// # Errors
    /// When the medium cannot be written, or redo on a device cannot be read: what was cut off
    /// would show when the file grows.
    pub(crate) fn zero_tail_in_place(&self, block: BlockIndex, within: usize) -> Result<()> {
        let tier = &self.tier;
        let Some(spot) = self.spot(block).filter(|spot| spot.entry() != Entry::HOME) else {
            return Ok(());
        };
        let entry = spot.entry();
        if tier.planted.is(Planted::TailNotZeroed) {
            return Ok(());
        }
        let mut all = vec![0; self.block_size.bytes()];
        let is_data = self.class == FileClass::Data;
        if let Err(e) = tier.read_block_checked(entry.frame(), 0, &mut all) {
            if entry.state() == State::Cached && self.forget(block, entry) {
                return Ok(());
            }
            if !is_data && tier.memory_of(entry.frame()).is_none() {
                return Err(e);
            }
            // The other blocks are there all the same. Who reads this one is told: what a medium
            // has lost past the end cannot be read by anybody later either.
            log::error!("cannot read block {} of file {}, its last: {e}", block.0, self.id);
            return Ok(());
        }
        let sum = if is_data { tier.sum_of(spot, entry).unwrap_or(NO_SUM) } else { NO_SUM };
        if is_data && tier.compare(spot, entry, &all, sum).is_err() {
            // Who reads it is told. Its bytes past the end must not get a right checksum.
            return Ok(());
        }
        let unstated = is_data && sum == NO_SUM;
        if all[within..].iter().all(|b| *b == 0) {
            if unstated {
                tier.restate(spot, Some(&all));
            }
            return Ok(());
        }
        // A cut from here on leaves a block without a checksum, and the next recovery comes here
        // again.
        if is_data && !unstated && !tier.planted.is(Planted::TailSumKept) {
            tier.restate(spot, None);
        }
        let ours = is_data && tier.latch(entry.frame(), self.block_size.frames());
        let zeroed = tier.zero_part(entry.frame(), within, all.len() - within);
        let zeroed = zeroed.and_then(|ticket| tier.wait_for(entry.frame(), ticket));
        if ours {
            tier.unlatch(entry.frame(), self.block_size.frames());
        }
        zeroed?;
        if is_data {
            all[within..].fill(0);
            tier.restate(spot, Some(&all));
        }
        Ok(())
    }

    /// Step 3: entries past the end become `Home` and their frames free. Returns how many of them
    /// were clean copies.
    pub(crate) fn drop_past_end(&self, size: u64) -> u64 {
        let first = size.div_ceil(self.block_size.bytes() as u64);
        let mut blocks = Vec::new();
        self.map.for_each_leaf(|number, leaf| {
            if leaf.dirty() + leaf.cached() == 0 {
                return;
            }
            for index in 0..LEAF_BLOCKS {
                let block = number * LEAF_BLOCKS + index;
                if block >= first && leaf.get(index as usize) != Entry::HOME {
                    blocks.push(BlockIndex(block));
                }
            }
        });
        self.would_be_gone(first..=u64::MAX);
        let dropped = self.drop_those(&blocks, |_| true);
        dropped.iter().filter(|entry| entry.state() == State::Cached).count() as u64
    }

    /// Drops the clean copies among `blocks`.
    pub(crate) fn drop_copies(&self, blocks: &[BlockIndex]) -> u64 {
        self.drop_entries(blocks, |entry| entry.state() == State::Cached)
    }

    /// Makes the entries of those `blocks` that `which` picks `Home` and frees their frames;
    /// durable on return.
    pub(crate) fn drop_entries(&self, blocks: &[BlockIndex], which: impl Fn(Entry) -> bool) -> u64 {
        self.drop_those(blocks, which).len() as u64
    }

    /// The same; returns what the entries were.
    fn drop_those(&self, blocks: &[BlockIndex], which: impl Fn(Entry) -> bool) -> Vec<Entry> {
        let tier = &self.tier;
        let _leaving = Leaving::begin(&self.map.leaving);
        let mut dropped = Vec::new();
        for block in blocks {
            let Some(spot) = self.spot(*block) else { continue };
            let old =
                tier.change(spot, |old| (old != Entry::HOME && which(old)).then_some(Entry::HOME));
            dropped.extend(old);
        }
        if dropped.is_empty() {
            return dropped;
        }
        if !tier.planted.is(Planted::ReuseTooEarly) {
            tier.wait();
        }
        let freed: Vec<_> = dropped.iter().copied().map(Entry::frame).collect();
        if self.class == FileClass::Redo {
            tier.give_latched(Purpose::Blocks(self.block_size), freed);
        } else {
            tier.allocator.give(Purpose::Blocks(self.block_size), freed);
        }
        dropped
    }

    /// Makes every entry `Home`: the contents are elsewhere.
    pub(crate) fn drop_map(&self) {
        let mut blocks = Vec::new();
        self.map.for_each_leaf(|number, leaf| {
            let held = (0..LEAF_BLOCKS).filter(|index| leaf.get(*index as usize) != Entry::HOME);
            blocks.extend(held.map(|index| BlockIndex(number * LEAF_BLOCKS + index)));
        });
        self.meta.lock().redo.forget(|_| true);
        self.drop_entries(&blocks, |_| true);
    }

    /// Turns the entry of an unreadable block to `Home`, durable on return. Its frame stays out of
    /// use until the next attach. Whether it was `entry` still.
    pub(crate) fn forget(&self, block: BlockIndex, entry: Entry) -> bool {
        let Some(spot) = self.spot(block) else { return false };
        let _leaving = Leaving::begin(&self.map.leaving);
        let changed = self.tier.change(spot, |now| (now == entry).then_some(Entry::HOME)).is_some();
        if changed {
            self.tier.wait();
        }
        changed
    }

    /// Sets or clears a flag of the state line, durable on return.
    pub(crate) fn set_flag(&self, flag: u64, on: bool) {
        let mut meta = self.meta.lock();
        if on {
            meta.line.flags |= flag;
        } else {
            meta.line.flags &= !flag;
        }
        self.persist_line(&mut meta);
    }

    /// Frees a file's slot, its blocks and its map pages.
    ///
    /// # Durability
    /// The slot is free, durable, before a frame is.
    pub(crate) fn free_slot(&self) {
        let tier = &self.tier;
        let _sizing = self.sizing.lock();
        let _moving = self.moving.lock();
        {
            // Whoever writes the state line holds it: from here on nobody does.
            let _meta = self.meta.lock();
            if self.gone.swap(true, Ordering::AcqRel) {
                return;
            }
        }
        tier.forget_file(self.id);
        if let Some(slot) = self.slot.get() {
            tier.free_slot(*slot);
        }
        let mut frames = Vec::new();
        self.map.for_each_leaf(|number, leaf| {
            for index in 0..LEAF_BLOCKS as usize {
                if leaf.get(index) == Entry::HOME {
                    continue;
                }
                let spot = self.spot(BlockIndex(number * LEAF_BLOCKS + index as u64));
                frames.extend(spot.and_then(|spot| tier.forget_block(spot)));
            }
        });
        self.map.evictions.fetch_add(1, Ordering::AcqRel);
        let purpose = Purpose::Blocks(self.block_size);
        if self.class == FileClass::Redo {
            tier.give_latched(purpose, frames);
        } else {
            tier.allocator.give(purpose, frames);
        }
        tier.give_latched(Purpose::Pages, self.map.take_pages());
        self.would_be_gone(0..=u64::MAX);
        self.forget_loan();
        tier.table.lock().give(self.slot.get().map(|slot| slot.number), self.id);
    }
}

//! Evicting: clean copies make room for other blocks.

use super::Mover;
use crate::address::BlockIndex;
use crate::cache::policy::{Chosen, Policy};
use crate::error::Result;
use crate::format::entry::{Entry, LEAF_BLOCKS, State};
use crate::known::FileState;
use crate::ledger::Ledger;
use crate::planted::Planted;
use crate::profile::Keeping;
use std::sync::Arc;

impl Mover {
    /// Evicts up to `want` clean blocks from a tier, those last that are to be kept. Pinned files
    /// keep theirs.
    pub(crate) fn evict(&self, tier: &Arc<Ledger>, want: u64) -> u64 {
        let others = self.evict_others(tier, want);
        others + self.evict_of(tier, Keeping::Keep, want - others)
    }

    /// The same, but leaves what is to be kept.
    pub(crate) fn evict_others(&self, tier: &Arc<Ledger>, want: u64) -> u64 {
        let unwanted = self.evict_of(tier, Keeping::None, want);
        unwanted + self.evict_of(tier, Keeping::Default, want - unwanted)
    }

    /// Evicts up to `want` clean blocks of the files that are treated like this: the victims of the
    /// tier's policy, from where the last search ended, file by file.
    pub(crate) fn evict_of(&self, tier: &Arc<Ledger>, keeping: Keeping, want: u64) -> u64 {
        let mut files = self.files.on(tier);
        files.retain(|file| file.placed.as_ref().is_some_and(|placed| placed.keeping() == keeping));
        if files.is_empty() || want == 0 {
            return 0;
        }
        // Whoever reads what is not to be here spares nothing of it.
        let spares = keeping != Keeping::None;
        let takes_dirty = tier.planted.is(Planted::EvictDirty);
        let goes =
            |entry: Entry| entry.state() == State::Cached || takes_dirty && entry != Entry::HOME;
        let hand = tier.hands.lock()[keeping as usize];
        let first = files.partition_point(|file| file.identity.ino < hand.0);
        let copies =
            files.iter().filter_map(|file| file.placed.as_ref()).map(|p| p.map.counts().1).sum();
        let (mut evicted, mut looked, mut next) = (0, 0, hand);
        let first_pass = if spares { 0 } else { Chosen::PASSES - 1 };
        'search: for pass in first_pass..Chosen::PASSES {
            // A round ends in the file where it began, with what is before the hand there.
            for n in 0..=files.len() {
                let file = &files[(first + n) % files.len()];
                let ino = file.identity.ino;
                let at_hand = if ino == hand.0 { hand.1 } else { 0 };
                let from = if n == 0 { at_hand } else { 0 };
                let to = if n == files.len() { at_hand } else { u64::MAX };
                let placed = file.placed.as_ref().expect("BUG: only placed files were kept");
                if placed.stay.stays() {
                    continue;
                }
                let mut blocks = Vec::new();
                placed.map.for_each_leaf(|number, leaf| {
                    if leaf.cached() == 0 || evicted + blocks.len() as u64 >= want {
                        return;
                    }
                    for index in 0..LEAF_BLOCKS as usize {
                        let block = number * LEAF_BLOCKS + index as u64;
                        if evicted + (blocks.len() as u64) < want
                            && (from..to).contains(&block)
                            && goes(leaf.get(index))
                        {
                            (looked, next) = (looked + 1, (ino, block + 1));
                            if leaf.policy.victim(index, pass) {
                                blocks.push(BlockIndex(block));
                            }
                        }
                    }
                });
                let gone = placed.drop_entries(&blocks, goes);
                placed.usage.aged_out(&self.events, gone);
                evicted += gone;
                if evicted >= want {
                    break 'search;
                }
            }
        }
        tier.hands.lock()[keeping as usize] = next;
        if looked > 0 && spares {
            Chosen::searched(&tier.policy, looked, copies);
        }
        evicted
    }

    /// Gives up all clean copies of a file, because somebody or a rule says so: they would go from
    /// a tier of any size.
    pub(crate) fn evict_file(&self, file: &FileState) -> Result<u64> {
        let Some(placed) = &file.placed else { return Ok(0) };
        let mut blocks = Vec::new();
        placed.map.for_each_leaf(|number, leaf| {
            if leaf.cached() > 0 {
                let in_leaf =
                    (0..LEAF_BLOCKS as usize).filter(|i| leaf.get(*i).state() == State::Cached);
                blocks.extend(in_leaf.map(|i| BlockIndex(number * LEAF_BLOCKS + i as u64)));
            }
        });
        let evicted = placed.drop_copies(&blocks);
        placed.usage.aged_out(&self.events, evicted);
        placed.these_would_be_gone(&blocks);
        Ok(evicted)
    }
}

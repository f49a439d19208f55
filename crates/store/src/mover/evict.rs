//! Evicting: clean copies make room for other blocks.

use super::Mover;
use crate::address::BlockIndex;
use crate::cache::policy::{Chosen, Policy};
use crate::error::Result;
use crate::format::entry::{Entry, PAGE_WORDS, State};
use crate::known::FileState;
use crate::ledger::Ledger;
use crate::planted::Planted;
use crate::sync::atomic::Ordering;
use crate::waits;
use std::sync::Arc;

impl Mover {
    /// Evicts up to `want` clean blocks from a tier: the victims of its policy, file by file, from another file on each time.
    /// Pinned files keep theirs.
    pub(crate) fn evict(&self, tier: &Arc<Ledger>, want: u64) -> u64 {
        let files = self.files.on(tier);
        if files.is_empty() {
            return 0;
        }
        let takes_dirty = tier.planted.is(Planted::EvictDirty);
        let goes = |entry: Entry| entry.state() == State::Cached || takes_dirty && entry != Entry::HOME;
        let first = self.eviction_hand.fetch_add(1, Ordering::Relaxed) as usize;
        let mut evicted = 0;
        for pass in 0..Chosen::PASSES {
            for n in 0..files.len() {
                let file = &files[(first + n) % files.len()];
                let placed = file.placed.as_ref().expect("BUG: only placed files were kept");
                if placed.pinned.load(Ordering::Relaxed) {
                    continue;
                }
                let mut blocks = Vec::new();
                placed.map.for_each_leaf(|number, leaf| {
                    if leaf.cached() == 0 || evicted + blocks.len() as u64 >= want {
                        return;
                    }
                    for index in 0..PAGE_WORDS as usize {
                        if evicted + (blocks.len() as u64) < want
                            && goes(leaf.get(index))
                            && leaf.policy.victim(index, pass)
                        {
                            blocks.push(BlockIndex(number * PAGE_WORDS + index as u64));
                        }
                    }
                });
                evicted += placed.drop_entries(&blocks, goes);
                if evicted >= want {
                    self.events.count(waits::EVICTED, evicted);
                    return evicted;
                }
            }
        }
        self.events.count(waits::EVICTED, evicted);
        evicted
    }

    /// Gives up all clean copies of a file.
    pub(crate) fn evict_file(&self, file: &FileState) -> Result<u64> {
        let Some(placed) = &file.placed else { return Ok(0) };
        let mut blocks = Vec::new();
        placed.map.for_each_leaf(|number, leaf| {
            if leaf.cached() > 0 {
                let in_leaf = (0..PAGE_WORDS as usize).filter(|i| leaf.get(*i).state() == State::Cached);
                blocks.extend(in_leaf.map(|i| BlockIndex(number * PAGE_WORDS + i as u64)));
            }
        });
        let evicted = placed.drop_copies(&blocks);
        self.events.count(waits::EVICTED, evicted);
        Ok(evicted)
    }
}

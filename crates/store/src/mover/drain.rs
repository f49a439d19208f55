//! Draining redo: the oldest blocks of a redo file go home and their frames are free, while the
//! file is appended to.

use super::Mover;
use super::destage::ROUND_BYTES;
use super::unreadable::Going;
use crate::address::{BlockIndex, Frame, WordAt};
use crate::error::{Error, Result};
use crate::format::entry::{Entry, State};
use crate::known::{FileState, Placed};
use crate::ledger::switch::Changed;
use crate::planted::Planted;
use crate::tier::Few;
use crate::waits;

/// Blocks that the drain frees without letting an append in between.
const FREED_AT_ONCE: usize = 32;

impl Mover {
    /// Takes the oldest blocks of a redo file home and frees their frames, until `keep` blocks are
    /// left of those that it has now. Returns how many went.
    ///
    /// A block that is written while it is on its way stays. To keep none, what was written again
    /// before its turn has a second one: only what is written during both may stay.
    ///
    /// # Durability
    /// Home is synced before an entry changes.
    pub(crate) fn drain_redo(&self, file: &FileState, placed: &Placed, keep: usize) -> Result<u64> {
        let result = self.drain_oldest(file, placed, keep);
        // What home refuses stays the oldest, and would have gone first.
        let all = result.as_ref().is_ok_and(|drained| *drained > 0);
        self.note_destaged(file, all, &result);
        result
    }

    /// The same, for a caller that notes how it ended.
    pub(crate) fn drain_oldest(
        &self,
        file: &FileState,
        placed: &Placed,
        keep: usize,
    ) -> Result<u64> {
        let _moving = placed.moving.lock();
        if placed.is_gone() || placed.loan.is_lent() {
            return Ok(0);
        }
        let tier = &placed.tier;
        let mut drained = 0;
        let mut remaining = Remaining::of(placed, keep);
        while let Some((mut going, size)) = remaining.take(placed) {
            going.sort_by_key(|(block, _, _)| *block);
            let start = self.events.start();
            // Without `meta`, for which an append would wait as long as all this takes. `moving`
            // keeps the frames theirs; what is written from now on has a place again and stays,
            // whatever of it gets into the copy.
            let bytes = placed.block_size.bytes();
            let mut copies = vec![0; going.len() * bytes];
            let mut runs: Vec<(BlockIndex, &[u8])> = Vec::with_capacity(going.len());
            // Blocks that cannot be read stay, or are given up.
            let mut unreadable: Vec<(BlockIndex, Error)> = Vec::new();
            let mut given_up: Vec<BlockIndex> = Vec::new();
            for ((block, _, entry), copy) in going.iter().zip(copies.chunks_exact_mut(bytes)) {
                match self.copy_to_go_home(file, placed, *block, *entry, copy) {
                    Ok(Going::Copied | Going::Moved) => runs.push((*block, copy)),
                    Ok(Going::GivenUp) => given_up.push(*block),
                    Err(e) => unreadable.push((*block, e)),
                }
            }
            let written = self.write_home_runs(file, placed, &runs, size);
            let stays = |block: BlockIndex| {
                written.is_err() || unreadable.iter().any(|(other, _)| *other == block)
            };
            let freed = make_home(placed, &going, &given_up, &stays);
            written?;
            drained += freed.len() as u64;
            let _ = self.events.record_n(
                waits::DESTAGE,
                start,
                (going.len() * placed.block_size.bytes()) as u64,
            );
            self.events.count(waits::DESTAGED, going.len() as u64);
            let stamped = self.homeward.fingerprint(file, placed, &mut placed.meta.lock());
            tier.keep_zeroed(placed.block_size, freed);
            stamped?;
            tier.sound()?;
            if let Some((_, e)) = unreadable.pop() {
                return Err(e);
            }
        }
        Ok(drained)
    }

    /// Wakes the background when a redo file holds more than its share.
    pub(crate) fn nudge_drain(&self, placed: &Placed, held: usize) {
        if self.env.options.background {
            let keep = self.redo_keep_blocks(placed);
            if held > keep + keep / 4 {
                self.env.wake_background();
            }
        }
    }

    /// How many blocks of a redo file stay in the tier.
    pub(crate) fn redo_keep_blocks(&self, placed: &Placed) -> usize {
        (self.env.options.redo_keep_bytes / placed.block_size.bytes() as u64) as usize
    }
}

/// A block, its place in the order of writes, and its entry.
type Oldest = (BlockIndex, u64, Entry);

/// What of a redo file is still to go home.
struct Remaining {
    keep: usize,
    left: usize,
    /// The newest place in the order of writes that goes.
    until: u64,
    once_more: bool,
}

impl Remaining {
    /// Those that there are now: of a file that is written without a pause some are always left.
    fn of(placed: &Placed, keep: usize) -> Remaining {
        let redo = &placed.meta.lock().redo;
        let left = redo.len().saturating_sub(keep);
        Remaining { keep, left, until: redo.newest_place(), once_more: keep == 0 }
    }

    /// The oldest that are dirty, as many as go at once, and the size of the file; `None` when all
    /// have gone.
    fn take(&mut self, placed: &Placed) -> Option<(Vec<Oldest>, u64)> {
        let round = (ROUND_BYTES / placed.block_size.bytes()).max(1);
        loop {
            let most = if self.keep == 0 { round } else { round.min(self.left) };
            let mut meta = placed.meta.lock();
            let oldest = meta.redo.oldest(self.keep, most, self.until);
            if oldest.is_empty() {
                if !self.once_more {
                    return None;
                }
                (self.once_more, self.until) = (false, meta.redo.newest_place());
                continue;
            }
            self.left = self.left.saturating_sub(oldest.len());
            let mut going: Vec<Oldest> = Vec::new();
            for (block, place) in oldest {
                let entry = placed.map.get(block);
                if entry.state() == State::Dirty {
                    going.push((block, place, entry));
                }
            }
            if !going.is_empty() {
                return Some((going, placed.size()));
            }
        }
    }
}

/// Makes `Home` what has gone home and was not written meanwhile; the frames that are free then.
/// What `stays` in the tier does so as the oldest.
fn make_home(
    placed: &Placed,
    going: &[Oldest],
    given_up: &[BlockIndex],
    stays: &dyn Fn(BlockIndex) -> bool,
) -> Vec<Frame> {
    let tier = &placed.tier;
    let mut freed = Vec::new();
    for some in going.chunks(FREED_AT_ONCE) {
        // An append waits as long as `meta` is held: what is in no cache of this processor
        // is asked for before.
        for (block, _, _) in some {
            let (leaf, index) = placed.map.leaf(*block).expect("BUG: a dirty block has a leaf");
            leaf.prepare(index);
            tier.prepare_lane(tier.lane_of(placed.id, *block));
        }
        let mut words: Few<(WordAt, u64)> = Few::new();
        let mut meta = placed.meta.lock();
        for (block, place, _) in some {
            let rewritten = meta.redo.has(*block) && !tier.planted.races(Planted::DrainRewritten);
            let (leaf, index) = placed.map.leaf(*block).expect("BUG: a dirty block has a leaf");
            let entry = leaf.get(index);
            if rewritten || entry.state() != State::Dirty {
                continue;
            }
            if stays(*block) {
                // It stays where it is, as the oldest.
                meta.redo.put_back(*block, *place);
                continue;
            }
            let spot = placed.spot(*block).expect("BUG: a dirty block has a leaf");
            let changed = tier.change_later(spot, &mut words, |_| Some(Entry::HOME));
            // Else its frame would be everybody's while a durable entry points to it.
            assert_eq!(changed, Changed::From(entry), "BUG: a dirty block's leaf has no page");
            if !given_up.contains(block) {
                freed.push(entry.frame());
            }
        }
        if tier.planted.races(Planted::MetaGoneEarly) {
            drop(meta);
        }
        if tier.planted.races(Planted::FreedEarly) {
            tier.keep_zeroed(placed.block_size, std::mem::take(&mut freed));
        }
        // As where blocks are added: before `meta` is let go, so that nobody makes one of
        // these `Dirty` meanwhile. `moving` keeps a cut away.
        if !tier.planted.is(Planted::DrainKeepsEntries) {
            tier.store_later(&words);
        }
        tier.wait();
    }
    freed
}

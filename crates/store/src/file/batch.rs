//! Writing several whole blocks of a data file, all or none ([`crate::ledger::batch`]).

use super::FileIo;
use crate::cache::what_if::How;
use crate::error::{Error, Result};
use crate::known::{FileState, Placed};
use crate::ledger::map::Kept;
use crate::profile::FileClass;
use crate::tier::Few;
use crate::tier::alloc::Purpose;
use crate::waits;
use std::sync::atomic::Ordering;

impl FileIo {
    /// Writes whole, aligned, distinct blocks of a data file. The file grows to the end of the last
    /// one.
    ///
    /// # Durability
    /// On return all blocks survive a power cut; after a cut before that, all do or none.
    ///
    /// # Errors
    /// Nothing is written when there is an error. [`Error::BatchTooLarge`] when the tier can never
    /// hold the batch.
    pub(crate) fn write_batch(&self, file: &FileState, blocks: &[(u64, &[u8])]) -> Result<()> {
        let placed = match &file.placed {
            Some(p) if p.tier.holds_dirty() && p.class == FileClass::Data => p,
            _ => {
                return Err(file.invalid(
                    "write a batch to",
                    "only data files on a persistent tier have batches; write the blocks one by \
                     one",
                ));
            }
        };
        let size = placed.block_size;
        let mut sorted: Few<(u64, &[u8])> = blocks.iter().copied().collect();
        sorted.sort_by_key(|(offset, _)| *offset);
        for (n, (offset, data)) in sorted.iter().enumerate() {
            if data.len() != size.bytes() || offset % size.bytes() as u64 != 0 {
                return Err(file.invalid(
                    "write a batch to",
                    format!(
                        "{} bytes at {offset} are not one block of {} bytes",
                        data.len(),
                        size.bytes()
                    ),
                ));
            }
            if n > 0 && sorted[n - 1].0 == *offset {
                return Err(file
                    .invalid("write a batch to", format!("the block at {offset} is in it twice")));
            }
            if placed.end_of(*offset, data.len()).is_none() {
                return Err(file.invalid(
                    "write a batch to",
                    format!("offset {offset} is past the largest file"),
                ));
            }
        }
        if sorted.is_empty() {
            return Ok(());
        }
        let start = self.events.start();
        let _sizing = placed.sizing.lock();
        if sorted.last().is_some_and(|(offset, data)| offset + data.len() as u64 > placed.size()) {
            self.finish_earlier_cut(file, placed)?;
        }
        let mut kept = Kept::default();
        while !self.try_batch(placed, &sorted, &mut kept)? {
            // Somebody made room meanwhile, and took an empty map page of ours.
            kept.keep_all();
        }
        let (bytes, what) =
            ((sorted.len() * size.bytes()) as u64, (waits::BATCH_WRITE, waits::DATA_WRITTEN));
        placed.usage.wrote(&self.events, what, start, bytes, bytes);
        sorted.iter().for_each(|(offset, _)| placed.saw(size.block_of(*offset), How::Write));
        Ok(())
    }

    /// `false`, and nothing is written, when a map page has gone that was there. The caller holds
    /// `sizing`.
    fn try_batch<'a>(
        &self,
        placed: &'a Placed,
        sorted: &[(u64, &[u8])],
        kept: &mut Kept<'a>,
    ) -> Result<bool> {
        let (tier, size) = (&placed.tier, placed.block_size);
        let mut turn = None;
        for (offset, _) in sorted {
            while !placed.make_leaf(size.block_of(*offset), kept)? {
                self.mover.make_room(tier, Purpose::Pages, &mut turn)?;
            }
        }
        let most = tier.allocator.total_frames() / size.frames() / 2;
        let space = loop {
            if let Some(space) = tier.take_batch(placed.id, size, sorted.len()) {
                break space;
            }
            if sorted.len() as u64 > most {
                return Err(Error::BatchTooLarge { blocks: sorted.len(), most });
            }
            let frames = sorted.len() as u64 * size.frames();
            let has_room = || match tier.take_batch(placed.id, size, sorted.len()) {
                Some(space) => {
                    tier.give_batch(size, space);
                    true
                }
                None => false,
            };
            self.mover.make_room_until(tier, frames, &has_room, &mut turn)?;
        };
        drop(turn);
        let spots: Few<_> = sorted
            .iter()
            .map(|(offset, _)| {
                placed.spot(size.block_of(*offset)).expect("BUG: make_leaf has made its leaf")
            })
            .collect();
        let end = sorted.last().map_or(0, |(offset, data)| offset + data.len() as u64);
        let slot = placed.slot.get().map_or(u64::MAX, |slot| slot.number);
        if end <= placed.size() && tier.switches_at_once(spots.len()) {
            return Ok(tier.replace_at_once(&spots, sorted, slot, space));
        }
        let size_after = || {
            let size_after = placed.size().max(end);
            placed.growing.store(size_after, Ordering::Release);
            size_after
        };
        let grown = |size_after| {
            if size_after > placed.size() {
                let mut meta = placed.meta.lock();
                meta.line.size = size_after;
                // Before `meta` is let go: the next line of this file must not arrive before this
                // one.
                placed.write_line(&mut meta);
                placed.tier.wait_or_sync();
                placed.size.store(size_after, Ordering::Release);
            }
            placed.growing.store(0, Ordering::Release);
        };
        tier.replace_together(&spots, sorted, slot, space, size_after, grown)
    }
}

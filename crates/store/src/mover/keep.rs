//! The background's part: some of a tier is kept free, and its redo within bounds.
//!
//! The marks are parts of the frames that do not belong to files that stay, as pinned ones do:
//! those neither go nor change.

use super::Mover;
use crate::error::Result;
use crate::home::FileTime;
use crate::known::FileState;
use crate::ledger::Ledger;
use crate::profile::{FileClass, Keeping};
use crate::sync::atomic::Ordering;
use std::sync::Arc;

impl Mover {
    /// One step for one tier: redo beyond its share goes home, and when less than a quarter is
    /// free, clean and dirty blocks make room.
    pub(crate) fn keep_free(&self, tier: &Arc<Ledger>) -> Result<()> {
        let mut failed = None;
        self.count_staying(tier);
        let total = tier.frames_that_change();
        let files = self.files.on(tier);
        for file in &files {
            let placed = file.placed.as_ref().expect("BUG: only placed files were kept");
            if placed.class == FileClass::Redo && !placed.stay.stays() {
                failed =
                    self.drain_redo(file, placed, self.redo_keep_blocks(placed)).err().or(failed);
            }
        }
        failed = self.drain_idle_redo(&files, total / 2).err().or(failed);
        // A quarter free is the mark: below it dirty blocks go home until an eighth more could be
        // free.
        let free = tier.allocator.free_frames();
        if free < total / 4 {
            self.give_back_pages(tier, total / 4 - free);
            let free = tier.allocator.free_frames().min(total / 4);
            let short = total / 4 + total / 8 - free;
            let mut got = self.evict_others(tier, total / 4 - free);
            let mut leaving = files.clone();
            leaving.sort_by_key(|file| file.placed.as_ref().map(|placed| placed.keeping()));
            for file in &leaving {
                let placed = file.placed.as_ref().expect("BUG: only placed files were kept");
                if got * placed.block_size.frames() >= short
                    || placed.class == FileClass::Redo
                    || placed.stay.stays()
                {
                    continue;
                }
                let most = short / placed.block_size.frames() + 1;
                match self.destage_file(file, most) {
                    Ok(count) => got += count,
                    Err(e) => failed = Some(e),
                }
            }
            let free = tier.allocator.free_frames();
            if free < total / 4 {
                let want = total / 4 - free;
                let others = self.evict_others(tier, want);
                let kept = self.evict_of(tier, Keeping::Keep, want - others);
                tier.kept_went.store(kept > 0, Ordering::Relaxed);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Counts the frames of the files that stay.
    pub(crate) fn count_staying(&self, tier: &Arc<Ledger>) {
        let frames = |file: &Arc<FileState>| {
            let placed = file.placed.as_ref().filter(|placed| placed.stay.stays())?;
            Some(placed.frames())
        };
        let staying = self.files.on(tier).iter().filter_map(frames).sum();
        tier.staying.store(staying, Ordering::Relaxed);
    }

    /// Keeps all redo files of a tier together within `budget` frames: those go home first that
    /// were written longest ago, as a segment that is full and waits to be used again. A database
    /// with many segments would else fill the tier with them.
    fn drain_idle_redo(&self, files: &[Arc<FileState>], budget: u64) -> Result<()> {
        let mut redo: Vec<(FileTime, u64, &Arc<FileState>)> = Vec::new();
        for file in files {
            let placed = file.placed.as_ref().expect("BUG: only placed files were kept");
            let held = placed.map.counts().0 * placed.block_size.frames();
            if placed.class == FileClass::Redo && !placed.stay.stays() && held > 0 {
                redo.push((FileTime::default(), held, file));
            }
        }
        let mut held: u64 = redo.iter().map(|(_, held, _)| held).sum();
        if held <= budget {
            return Ok(());
        }
        for (written, _, file) in &mut redo {
            *written =
                self.homeward.overlay(file)?.1.map_or(FileTime::default(), |seen| seen.mtime);
        }
        redo.sort_by_key(|(written, _, file)| (*written, file.identity.ino));
        for (_, frames, file) in redo {
            if held <= budget {
                break;
            }
            let placed = file.placed.as_ref().expect("BUG: only placed files were kept");
            self.drain_redo(file, placed, 0)?;
            held = held.saturating_sub(frames);
        }
        Ok(())
    }
}

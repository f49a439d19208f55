//! Redo files: written in place in the tier, durable on return, drained to home in the background
//! (tail-of-log caching).
//!
//! Deliberately not atomic by block: a redo format finds its own torn tail, and an append of 512
//! bytes should cost 512 bytes.
//!
//! # The life of an append, and what a power cut leaves
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 1 | a block of the file that is `Home` gets a free frame with home's bytes, a fence, its entry becomes `Dirty`, a fence | the old file |
//! | 1, whole | where all of the block is written it gets the new bytes instead: home is not read | the old block, or the new one whole |
//! | 2 | a block past the end gets a frame of zeros that are durable already, its entry is stored | the old file: recovery drops an entry past the end |
//! | 3 | the bytes and, if the file grows, its state line are written in place, non-temporal | any 8-byte words of the new bytes; the old or new size |
//! | 4 | fence; the write is acknowledged | the new bytes and size |
//!
//! On a medium that is durable at sync the bytes of step 3 are left to the file's sync: before
//! that, step 4 leaves what step 3 does, with the new size.
//!
//! Steps 1 and 2 happen once per block. Of step 2 and 3 any part may be durable without the others:
//! the size without the entry shows zeros, where home ends; the entry without the bytes shows the
//! zeros of the frame. A redo block is `Home` or `Dirty`, never `Cached`: the drain takes it home
//! and frees it, so there is no clean copy that a write in place could spoil.
//!
//! Frames of redo blocks stay claimed, so they are never lent as references; readers copy.

use super::FileIo;
use crate::address::{BlockIndex, Frame, WordAt};
use crate::error::Result;
use crate::format::entry::{Entry, State};
use crate::known::{FileState, Meta, Placed};
use crate::ledger::map::{Kept, Leaf};
use crate::ledger::switch::{Changed, Outcome};
use crate::medium::{PreparedWrite, Ticket};
use crate::planted::Planted;
use crate::tier::Few;
use crate::tier::alloc::Purpose;
use crate::waits;
use std::sync::atomic::Ordering;
use tiersmith_events::EventId;

/// Most pieces of zeros that a write holds while it waits for more; the blocks after them get
/// theirs one by one, where the drain finds them.
const FRESH_MOST: usize = 32;

/// Blocks past the end of a redo file, and the pieces of zeros they are going to have.
type Fresh = Few<(BlockIndex, Frame)>;

/// A write within one block that is `Dirty` already, as most appends are. What is found out about
/// it before the locks are had holds if the entry is the same afterwards. Why before:
/// [`FileIo::switch_whole`].
struct InBlock<'a> {
    block: BlockIndex,
    leaf: &'a Leaf,
    index: usize,
    entry: Entry,
    write: PreparedWrite<'a>,
}

impl<'a> InBlock<'a> {
    #[inline]
    fn guess(placed: &'a Placed, offset: u64, len: usize) -> Option<Self> {
        let block = placed.block_size.block_of(offset);
        let inner = offset - placed.block_size.start_of(block);
        if inner + len as u64 > placed.block_size.bytes() as u64 {
            return None;
        }
        let (leaf, index) = placed.map.leaf(block)?;
        let entry = leaf.get(index);
        if entry.state() != State::Dirty {
            return None;
        }
        let write = placed.tier.prepare_block(entry.frame(), inner as usize, len)?;
        Some(Self { block, leaf, index, entry, write })
    }

    /// Step 3; `None`, and nothing is done, where it needs more than that. The caller holds
    /// `sizing`. Returns how many blocks the file has in the tier.
    #[inline]
    fn write(&self, placed: &Placed, offset: u64, data: &[u8], end: u64) -> Option<usize> {
        let size = placed.size();
        // A gap, or an earlier cut that is to be finished.
        if offset > size || (end > size && placed.cutting.load(Ordering::Acquire)) {
            return None;
        }
        let mut meta = placed.meta.lock();
        // Asked under the lock: the drain may have taken the block home.
        if self.leaf.get(self.index) != self.entry && !placed.tier.planted.races(Planted::OldGuess)
        {
            return None;
        }
        self.write.nt_write(data);
        finish_redo_write(placed, &mut meta, end);
        meta.redo.note(self.block);
        Some(meta.redo.len())
    }
}

/// The size, if the file grows to `end`, and step 4. The caller holds `sizing`.
#[inline]
fn finish_redo_write(placed: &Placed, meta: &mut Meta, end: u64) {
    let tier = &placed.tier;
    let grows = end > placed.size();
    if grows {
        meta.line.size = end;
        if !tier.planted.is(Planted::SizeNotDurable) {
            placed.write_line(meta);
        }
    }
    if !tier.planted.is(Planted::RedoWithoutFence) {
        tier.wait_or_sync();
    }
    if grows {
        // Nobody else changes it: the caller holds `sizing`.
        placed.size.store(end, Ordering::Release);
    }
}

/// After a write that failed: what it left past the end would show when the file grows. The caller
/// holds `sizing`.
fn drop_unwritten(placed: &Placed) {
    let _moving = placed.moving.lock();
    let size = placed.size();
    let _ = placed.drop_past_end(size);
    placed.meta.lock().redo.forget(|block| placed.block_size.start_of(block) >= size);
}

impl FileIo {
    /// Writes to a redo file, in place.
    ///
    /// # Durability
    /// On return, or after [`FileIo::sync`] ([`crate::medium::Durability`]). A cut before that
    /// leaves any mixture, by 8-byte words, of the old and the new bytes.
    pub(crate) fn write_redo(
        &self,
        file: &FileState,
        placed: &Placed,
        offset: u64,
        data: &[u8],
        end: u64,
    ) -> Result<()> {
        let start = self.events.start();
        // The drain has changed it, on another processor. Asked for while the write before is still
        // on its way: behind the first lock, which waits for that, everything takes its full time.
        placed.meta.prepare();
        let in_block = InBlock::guess(placed, offset, data.len());
        if in_block.is_none() {
            // A new block, most likely: what it needs is with that processor too.
            placed.tier.prepare_growth(placed.id, placed.block_size.block_of(end - 1));
        }
        let _sizing = placed.sizing.lock();
        if placed.loan.is_lent() {
            return self.write_lent(file, placed, offset, data);
        }
        let held = match in_block.and_then(|guess| guess.write(placed, offset, data, end)) {
            Some(held) => held,
            None => {
                if end > placed.size() {
                    self.finish_earlier_cut(file, placed)?;
                }
                self.zero_gap(file, placed, offset)?;
                self.write_redo_parts(file, placed, offset, data)?
            }
        };
        let bytes = data.len() as u64;
        let what = (waits::REDO_WRITE, waits::REDO_SIZE);
        placed.usage.wrote(&self.events, what, start, bytes, bytes);
        self.mover.nudge_drain(placed, held);
        Ok(())
    }

    fn write_redo_parts(
        &self,
        file: &FileState,
        placed: &Placed,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        // More at once than a part of the tier would wait for itself to be drained.
        let most =
            (placed.tier.allocator.total_frames() / placed.block_size.frames() / 4).max(1) as usize;
        let most = most * placed.block_size.bytes();
        let mut held = 0;
        for (n, part) in data.chunks(most).enumerate() {
            held = self.write_redo_part(file, placed, offset + (n * most) as u64, part)?;
        }
        Ok(held)
    }

    /// Returns how many blocks the file then has in the tier.
    fn write_redo_part(
        &self,
        file: &FileState,
        placed: &Placed,
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let (tier, end) = (&placed.tier, offset + data.len() as u64);
        let mut fresh: Fresh = Few::new();
        let mut kept = Kept::default();
        let mut lost_page = false;
        let ready = |fresh: &Fresh| {
            placed.chunks(offset, data.len()).all(|(block, _, _)| {
                placed.map.get(block).state() == State::Dirty
                    || fresh.iter().any(|(b, _)| *b == block)
            })
        };
        loop {
            if (lost_page || !ready(&fresh))
                && let Err(e) = self.prepare_redo(file, placed, offset, data, &mut fresh, &mut kept)
            {
                tier.give_zeroed(placed.block_size, fresh.into_iter().map(|(_, frame)| frame));
                return Err(e);
            }
            let mut meta = placed.meta.lock();
            // Asked again under the lock: the drain may have taken a block home.
            if !ready(&fresh) {
                continue;
            }
            let mut words: Few<(WordAt, u64)> = Few::new();
            let mut pageless = Fresh::new();
            for (block, frame) in std::mem::take(&mut fresh) {
                let spot = placed.spot(block).expect("BUG: prepare_redo has made its leaf");
                if tier.change_later(spot, &mut words, |_| Some(Entry::dirty(frame)))
                    == Changed::NoPage
                {
                    pageless.push((block, frame));
                }
            }
            // Behind the last locked instruction, which would wait for them. `meta` is held until
            // the fence, and the entry of a redo block changes under it, or, when the file is cut,
            // under `sizing`.
            tier.store_later(&words);
            if !pageless.is_empty() {
                // Somebody made room meanwhile, and took an empty map page of ours.
                tier.wait();
                for (block, _, _) in placed.chunks(offset, data.len()) {
                    // The drain knows it from here on, also when this write fails.
                    if placed.map.get(block).state() == State::Dirty {
                        meta.redo.note(block);
                    }
                }
                fresh = pageless;
                lost_page = true;
                kept.keep_all();
                continue;
            }
            let written =
                placed.chunks(offset, data.len()).try_for_each(|(block, inner, range)| {
                    tier.write_part(placed.map.get(block).frame(), inner, &data[range])
                        .map(Ticket::left_to_sync)
                });
            if let Err(e) = written {
                tier.wait();
                placed.chunks(offset, data.len()).for_each(|(block, _, _)| meta.redo.note(block));
                drop(meta);
                drop_unwritten(placed);
                return Err(e);
            }
            finish_redo_write(placed, &mut meta, end);
            // Behind the fence, while what it sent is on its way.
            placed.chunks(offset, data.len()).for_each(|(block, _, _)| meta.redo.note(block));
            return Ok(meta.redo.len());
        }
    }

    /// Step 1 for the blocks of a write that are the file's, and pieces of zeros into `fresh` for
    /// those past the end. The caller holds `sizing`.
    fn prepare_redo<'a>(
        &self,
        file: &FileState,
        placed: &'a Placed,
        offset: u64,
        data: &[u8],
        fresh: &mut Fresh,
        kept: &mut Kept<'a>,
    ) -> Result<()> {
        let tier = &placed.tier;
        let most = (tier.allocator.total_frames() / placed.block_size.frames() / 16) as usize;
        for (block, _, range) in placed.chunks(offset, data.len()) {
            let mut turn = None;
            if fresh.iter().any(|(b, _)| *b == block) {
                while !placed.make_leaf(block, kept)? {
                    self.mover.make_room(tier, Purpose::Pages, &mut turn)?;
                }
                continue;
            }
            if placed.block_size.start_of(block) < placed.size()
                || fresh.len() >= most.clamp(1, FRESH_MOST)
            {
                // Past the end a block is zeros until the write is done: a failed write must leave
                // nothing there that a later gap would show.
                let whole = Some(&data[range]).filter(|bytes| {
                    bytes.len() == placed.block_size.bytes()
                        && placed.block_size.start_of(block) < placed.size()
                });
                self.own_redo_block(file, placed, block, whole, Some(waits::FREE_WAIT))?;
                continue;
            }
            if placed.map.get(block) != Entry::HOME {
                continue;
            }
            while !placed.make_leaf(block, kept)? {
                self.mover.make_room(tier, Purpose::Pages, &mut turn)?;
            }
            let frame = loop {
                match tier.take_zeroed(placed.block_size)? {
                    Some(frame) => break frame,
                    None => {
                        self.mover.make_room(tier, Purpose::Blocks(placed.block_size), &mut turn)?
                    }
                }
            };
            fresh.push((block, frame));
        }
        Ok(())
    }

    /// Step 1 for one block, unless it is `Dirty` already. A block that is written `whole` needs
    /// nothing of what home holds, and reading that would make a commit wait for home: it gets the
    /// new bytes at once, durable before its entry is. Waiting for room is the event `room`.
    pub(crate) fn own_redo_block(
        &self,
        file: &FileState,
        placed: &Placed,
        block: BlockIndex,
        whole: Option<&[u8]>,
        room: Option<EventId>,
    ) -> Result<()> {
        let tier = &placed.tier;
        let start_of_block = placed.block_size.start_of(block);
        let mut turn = None;
        let mut kept = Kept::default();
        loop {
            let Some(spot) = placed.spot(block).filter(|spot| spot.leaf.has_page()) else {
                if !placed.make_leaf(block, &mut kept)? {
                    self.mover.make_room_as(room, tier, Purpose::Pages, &mut turn)?;
                }
                continue;
            };
            let seen = spot.entry();
            if seen.state() == State::Dirty {
                return Ok(());
            }
            let evictions = placed.map.evictions.load(Ordering::Acquire);
            let mut home = None;
            if whole.is_none() && start_of_block < placed.size() {
                let mut bytes = vec![0; placed.block_size.bytes()];
                file.read_home_block(placed, start_of_block, &mut bytes)?;
                home = Some(bytes);
            }
            let unmoved = || {
                spot.entry() == seen && placed.map.evictions.load(Ordering::Acquire) == evictions
            };
            let counts = || unmoved().then_some(placed.block_size.bytes());
            // The drain stores the words of the blocks it frees after it has let their lanes go,
            // before it lets this go.
            let mut meta =
                (!tier.planted.races(Planted::OwnWithoutMeta)).then(|| placed.meta.lock());
            match tier.adopt(spot, whole.or(home.as_deref()), State::Dirty, counts)? {
                Outcome::Done => {
                    // From here on the drain knows it, also when the write that wanted it fails.
                    meta.get_or_insert_with(|| placed.meta.lock()).redo.note(block);
                    return Ok(());
                }
                Outcome::Moved => {}
                Outcome::NoPiece => {
                    drop(meta);
                    let purpose = Purpose::Blocks(placed.block_size);
                    self.mover.make_room_as(room, tier, purpose, &mut turn)?;
                }
            }
        }
    }

    /// Before a write that leaves a gap behind the old end: what lies past the end in the last
    /// block becomes zero.
    pub(crate) fn zero_gap(&self, file: &FileState, placed: &Placed, offset: u64) -> Result<()> {
        let size = placed.size();
        let within = size % placed.block_size.bytes() as u64;
        if offset <= size || within == 0 {
            return Ok(());
        }
        let block = placed.block_size.block_of(size);
        if placed.map.get(block) == Entry::HOME {
            return Ok(());
        }
        self.own_redo_block(file, placed, block, None, Some(waits::FREE_WAIT))?;
        let meta = placed.meta.lock();
        let entry = placed.map.get(block);
        if entry.state() == State::Dirty {
            let (tier, within) = (&placed.tier, within as usize);
            let ticket =
                tier.zero_part(entry.frame(), within, placed.block_size.bytes() - within)?;
            tier.wait_for(entry.frame(), ticket)?;
        }
        drop(meta);
        Ok(())
    }
}

//! Reading: from the tier where it has the block, from home where it does not.
//!
//! No lock is taken. A block is copied, and the entry and the turns of its lane are compared
//! afterwards ([`crate::ledger::lanes::Look`]); if either has changed, a block of a data file is
//! read through a view, which keeps its frame from being reused; the entry is read again after the
//! view is there. A block of a redo file, which is written in place, is copied again. A read from
//! home is good when the entry still says `Home` and nothing became `Home` meanwhile (otherwise the
//! block may have been written, destaged and evicted during the read); else it is read again, in
//! the end with its lane locked.
//!
//! A block of a data file is compared with its checksum when it is read from a device, and in
//! memory the first time since the attach ([`crate::ledger::at_rest`]). A clean copy that is not
//! what it should be, or that a device does not give, is read from home
//! ([`crate::mover::unreadable`]).

use super::FileIo;
use crate::address::{BlockIndex, FRAME};
use crate::cache::policy::Policy;
use crate::cache::scan::ADMIT_BLOCKS_MAX;
use crate::cache::usage::Skip;
use crate::cache::what_if::How;
use crate::error::Result;
use crate::format::entry::{Entry, State};
use crate::known::{FileState, Placed};
use crate::ledger::switch::Spot;
use crate::medium::InPlace;
use crate::mover::admit::admission;
use crate::planted::Planted;
use crate::profile::{FileClass, Keeping};
use crate::sync::atomic::Ordering;
use crate::waits;
use smallvec::SmallVec;
use std::ops::Range;
use tiersmith_events::{EventId, Start};

/// How often a read from the tier is tried without a lock.
const LOCK_FREE_ATTEMPTS: u32 = 1000;
/// The same of a read of a block from home, which takes longer: meanwhile nothing else of the file
/// may become `Home`.
const LOCK_FREE_READS_OF_HOME: u32 = 8;

/// A block in the tier, borrowed: no copy is made. As long as it lives its frame is not reused; a
/// later write of the block goes to another frame, so the bytes stay as they were when it was
/// taken.
#[derive(Debug)]
pub struct BlockRef<'a> {
    view: InPlace<'a>,
    len: usize,
}

impl std::ops::Deref for BlockRef<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.view[..self.len]
    }
}

/// A read of home: whether it is part of a scan, and the evictions that were counted before it.
struct MissOf {
    is_scan: bool,
    evictions: u64,
}

impl FileIo {
    /// Reads up to `into.len()` bytes at `offset`; fewer at the end of the file.
    pub(crate) fn read(&self, file: &FileState, offset: u64, into: &mut [u8]) -> Result<usize> {
        let Some(placed) = &file.placed else {
            let start = self.events.start();
            let got = file.home.read_at(offset, into).map_err(file.io("cannot read"))?;
            let _ = self.events.record_n(waits::PASS_IO, start, got as u64);
            return Ok(got);
        };
        // Held to the end: what is read must not be moved away under it.
        let loan = (placed.class == FileClass::Redo).then(|| placed.loan.look());
        if let Some(plain) = loan.as_deref().and_then(Option::as_ref) {
            return self.read_lent(file, plain, offset, into);
        }
        let size = placed.size();
        let len = into.len().min(size.saturating_sub(offset).try_into().unwrap_or(usize::MAX));
        let into = &mut into[..len];
        // Most reads of a database: within one block that the tier has.
        let block = placed.block_size.block_of(offset);
        let inner = (offset - placed.block_size.start_of(block)) as usize;
        if len > 0
            && inner + len <= placed.block_size.bytes()
            && let Some(spot) = placed.spot(block)
            && self.copy_unlocked(file, placed, spot, inner, into)?
        {
            return Ok(len);
        }
        let mut chunks = placed.chunks(offset, len).peekable();
        let mut from_home = false;
        let mut hits = 0;
        while let Some((block, inner, range)) = chunks.next() {
            if self.read_from_tier(file, placed, block, inner, &mut into[range.clone()])? {
                hits += 1;
                continue;
            }
            from_home = true;
            let mut end = range.end;
            while let Some((_, _, next)) =
                chunks.next_if(|(next, _, _)| placed.map.get(*next) == Entry::HOME)
            {
                end = next.end;
            }
            hits += self.read_from_home(
                file,
                placed,
                offset + range.start as u64,
                &mut into[range.start..end],
            )?;
        }
        if hits > 1 {
            self.events.count(waits::MORE_HITS, hits - 1);
        }
        // What was cut off meanwhile came as zeros.
        let now = if from_home { placed.size() } else { size };
        Ok(len.min(now.saturating_sub(offset).try_into().unwrap_or(usize::MAX)))
    }

    /// Reads part of a block from the tier; `false` when the newest version is at home.
    fn read_from_tier(
        &self,
        file: &FileState,
        placed: &Placed,
        block: BlockIndex,
        inner: usize,
        into: &mut [u8],
    ) -> Result<bool> {
        let Some(spot) = placed.spot(block) else { return Ok(false) };
        if self.copy_unlocked(file, placed, spot, inner, into)? {
            return Ok(true);
        }
        for attempt in 0.. {
            // Hardly ever: a writer that is always faster, or more references to the block than its
            // count can hold. The lane's lock keeps the entry, and so the frame, as they are.
            let lane =
                (attempt >= LOCK_FREE_ATTEMPTS).then(|| placed.tier.lock_lane(placed.id, block));
            let entry = spot.entry();
            let event = match entry.state() {
                State::Home => return Ok(false),
                State::Cached => waits::CACHED_READ,
                State::Dirty => waits::DIRTY_READ,
            };
            if placed.class == FileClass::Redo {
                // Its frames stay claimed: there is no view of them.
                if self.copy_unlocked(file, placed, spot, inner, into)? {
                    return Ok(true);
                }
                drop(lane);
                crate::sync::spin_loop();
                continue;
            }
            let start = self.events.start();
            // Only the frames that are read need to be kept from reuse.
            let first = inner / FRAME * FRAME;
            let last = (inner + into.len()).next_multiple_of(FRAME);
            let pin = match placed.tier.is_to_be_seen(entry) {
                true => placed.tier.pin(entry.frame(), 0, placed.block_size.bytes()),
                false => placed.tier.pin(entry.frame(), first, last - first),
            };
            if let Some(pin) = pin {
                if spot.entry() == entry {
                    let sum = || match &lane {
                        Some(lane) => Some(placed.tier.sum_to_see(lane, spot, entry)),
                        None => placed.tier.sum_of(spot, entry),
                    };
                    let read = self.read_and_see(placed, spot, entry, inner, into, sum);
                    drop(pin);
                    if !matches!(read, Ok(true)) {
                        drop(lane);
                        read.map(drop).or_else(|e| {
                            self.mover.read_elsewhere(file, placed, block, entry, e)
                        })?;
                        continue;
                    }
                    drop(lane);
                    placed.tier.note_seen(spot, entry);
                    spot.leaf.policy.touched(spot.index);
                    let bytes = into.len() as u64;
                    self.hit(placed, block, event, start, bytes);
                    return Ok(true);
                }
            } else if let Some(held) = &lane {
                let sum = || Some(placed.tier.sum_to_see(held, spot, entry));
                if let Err(e) = self.read_and_see(placed, spot, entry, inner, into, sum) {
                    drop(lane);
                    self.mover.read_elsewhere(file, placed, block, entry, e)?;
                    continue;
                }
                let bytes = into.len() as u64;
                self.hit(placed, block, event, start, bytes);
                return Ok(true);
            } else {
                placed.tier.let_go(spot);
            }
            drop(lane);
            crate::sync::spin_loop();
        }
        Ok(false)
    }

    /// Copies part of a block that stays as it is. Where it must be compared with its checksum,
    /// `sum` gives that, and all of the block is read. `false`: it is another by now.
    fn read_and_see(
        &self,
        placed: &Placed,
        spot: Spot<'_>,
        entry: Entry,
        inner: usize,
        into: &mut [u8],
        sum: impl FnOnce() -> Option<u64>,
    ) -> Result<bool> {
        let tier = &placed.tier;
        if !tier.is_to_be_seen(entry) {
            tier.read_block(entry.frame(), inner, into)?;
            return Ok(true);
        }
        let Some(sum) = sum() else { return Ok(false) };
        let whole = placed.block_size.bytes();
        if into.len() == whole {
            tier.read_block(entry.frame(), 0, into)?;
            tier.compare_read(spot, entry, into, sum)?;
            return Ok(true);
        }
        let mut all = vec![0; whole];
        tier.read_block(entry.frame(), 0, &mut all)?;
        tier.compare_read(spot, entry, &all, sum)?;
        into.copy_from_slice(&all[inner..inner + into.len()]);
        Ok(true)
    }

    /// Compares a block in memory that nobody has seen since the attach, so that it can be read
    /// where it is. `false`: it is not what it should be, or another.
    #[cold]
    fn see_in_place(&self, placed: &Placed, spot: Spot<'_>, entry: Entry) -> bool {
        let tier = &placed.tier;
        let Some(_pin) = tier.pin_block(spot, entry) else { return false };
        let mut all = vec![0; placed.block_size.bytes()];
        let seen = self.read_and_see(placed, spot, entry, 0, &mut all, || tier.sum_of(spot, entry));
        if !matches!(seen, Ok(true)) {
            return false;
        }
        tier.note_seen(spot, entry);
        true
    }

    /// Copies part of a block without a view, which takes two locked instructions that keep the
    /// processor from beginning with the next read. `false` when something moved, or may have: then
    /// a data block is read with a view, a redo block again.
    #[inline]
    fn copy_unlocked(
        &self,
        file: &FileState,
        placed: &Placed,
        spot: Spot<'_>,
        inner: usize,
        into: &mut [u8],
    ) -> Result<bool> {
        let look = placed.tier.look(spot);
        let event = match look.entry.state() {
            State::Home => return Ok(false),
            State::Cached => waits::CACHED_READ,
            State::Dirty => waits::DIRTY_READ,
        };
        // Compared below, of a file whose blocks have checksums.
        if look.entry.is_unseen() || placed.tier.is_on_device && placed.class == FileClass::Data {
            return Ok(false);
        }
        let start = self.events.start();
        if let Err(e) = placed.tier.read_block(look.entry.frame(), inner, into) {
            self.mover.read_elsewhere(file, placed, spot.block, look.entry, e)?;
            return Ok(false);
        }
        if !look.held() {
            return Ok(false);
        }
        spot.leaf.policy.touched(spot.index);
        let bytes = into.len() as u64;
        self.hit(placed, spot.block, event, start, bytes);
        Ok(true)
    }

    /// A block was read from the tier.
    #[inline]
    fn hit(&self, placed: &Placed, block: BlockIndex, event: EventId, start: Start, bytes: u64) {
        placed.usage.hit(&self.events, event, start, bytes);
        if placed.class == FileClass::Redo {
            self.events.count(waits::REDO_HITS, 1);
        } else {
            placed.saw(block, How::Hit);
        }
    }

    /// Blocks were read from home: those that the policy wants become clean copies.
    fn missed(
        &self,
        file: &FileState,
        placed: &Placed,
        blocks: Vec<(BlockIndex, usize, Range<usize>)>,
        read: &[u8],
        seen: &MissOf,
    ) -> Result<()> {
        let usage = &placed.usage;
        usage.missed(blocks.len() as u64);
        if placed.class == FileClass::Redo {
            self.events.count(waits::REDO_MISSES, blocks.len() as u64);
        }
        let admits = self.env.options.admit && placed.admits();
        if placed.class == FileClass::Data {
            let file_frames = placed.size() / FRAME as u64;
            let how = How::Miss { is_scan: seen.is_scan, file_frames, admits };
            blocks.iter().for_each(|(block, ..)| placed.saw(*block, how));
        }
        if !admits {
            let by_rule = placed.class == FileClass::Data && placed.keeping() == Keeping::None;
            let skip = if by_rule { Skip::Rule } else { Skip::Outside };
            usage.skipped(&self.events, skip, blocks.len() as u64);
            return Ok(());
        }
        let wanted = blocks.into_iter().filter(|(block, ..)| {
            let admission = admission(placed, *block, seen.is_scan);
            admission.inspect_err(|skip| usage.skipped(&self.events, *skip, 1)).is_ok()
        });
        let parts: SmallVec<[_; ADMIT_BLOCKS_MAX as usize]> =
            wanted.map(|(block, inner, range)| (block, inner, &read[range])).collect();
        let mut done = Ok(());
        for run in parts.chunk_by(|(block, ..), (next, ..)| block.0 + 1 == next.0) {
            match done {
                Ok(()) => done = self.mover.admit_run(file, placed, run, seen.evictions),
                Err(_) => usage.skipped(&self.events, Skip::Lost, run.len() as u64),
            }
        }
        done
    }

    /// Home was read, for so many blocks.
    fn read_home(&self, start: Start, bytes: u64, blocks: u64) {
        let (event, counter) = (waits::HOME_READ, waits::TIER_MISSES);
        let _ = self.events.record_and_count(event, start, bytes, counter, blocks);
    }

    /// Reads a run of blocks that were `Home` when looked at. Returns how many of them were in the
    /// tier by then.
    fn read_from_home(
        &self,
        file: &FileState,
        placed: &Placed,
        offset: u64,
        into: &mut [u8],
    ) -> Result<u64> {
        let start = self.events.start();
        let blocks: Vec<_> = placed.chunks(offset, into.len()).collect();
        let evictions = placed.map.evictions.load(Ordering::Acquire);
        let still_home = |b: &BlockIndex| placed.map.get(*b) == Entry::HOME;
        let run_is_home = blocks.iter().all(|(b, _, _)| still_home(b));
        // Up to the size of now: while a file is cut home still has what it had past the new end,
        // older than what the tier had.
        let planted = placed.tier.planted;
        if planted.races(Planted::OldSize) {
            file.home.read_at(offset, into).map_err(file.io("cannot read"))?;
        } else {
            file.read_home_block(placed, offset, into)?;
        }
        let block_bytes = placed.block_size.bytes() as u64;
        let seen = placed.scans.read(offset, into.len() as u64, block_bytes);
        if let Some(ahead) = seen.ahead {
            let end = ahead.end.min(placed.size());
            file.home.read_ahead(ahead.start, end.saturating_sub(ahead.start));
        }
        let all_home = || run_is_home && blocks.iter().all(|(b, _, _)| still_home(b));
        let held = match planted {
            _ if planted.races(Planted::NoEvictions) => all_home(),
            _ if planted.races(Planted::EntryAfterEvictions) => {
                placed.map.home_held(evictions, || true) && all_home()
            }
            // Home is never older than the tier: what it gave is an answer, whatever moved. Whether
            // it may be copied is asked when it is.
            _ if !placed.tier.holds_dirty() => true,
            _ => placed.map.home_held(evictions, all_home),
        };
        if held {
            self.read_home(start, into.len() as u64, blocks.len() as u64);
            let seen = MissOf { is_scan: seen.scan, evictions };
            return self.missed(file, placed, blocks, into, &seen).map(|()| 0);
        }
        let mut hits = 0;
        // Something moved meanwhile: block by block, each as it is now.
        for (block, inner, range) in blocks {
            for attempt in 0.. {
                if self.read_from_tier(file, placed, block, inner, &mut into[range.clone()])? {
                    hits += 1;
                    break;
                }
                let start = self.events.start();
                // A file of which blocks are evicted all the time: under the block's lane its entry
                // stays, and home was synced before it said so.
                let lane = (attempt >= LOCK_FREE_READS_OF_HOME)
                    .then(|| placed.tier.lock_lane(placed.id, block));
                if lane.is_some() && !still_home(&block) {
                    continue;
                }
                let evictions = placed.map.evictions.load(Ordering::Acquire);
                let part = &mut into[range.clone()];
                let (at, bytes) = (placed.block_size.start_of(block) + inner as u64, part.len());
                file.read_home_block(placed, at, part)?;
                let is_locked = lane.is_some();
                drop(lane);
                if is_locked || placed.map.home_held(evictions, || still_home(&block)) {
                    self.read_home(start, bytes as u64, 1);
                    let seen = MissOf { is_scan: seen.scan, evictions };
                    self.missed(file, placed, vec![(block, inner, range)], into, &seen)?;
                    break;
                }
            }
        }
        Ok(hits)
    }

    /// A reference to the block at `offset` if the tier holds it and it can be lent.
    pub(crate) fn read_ref<'a>(&self, file: &'a FileState, offset: u64) -> Option<BlockRef<'a>> {
        let placed = file.placed.as_ref()?;
        let block = placed.block_size.block_of(offset);
        let start = placed.block_size.start_of(block);
        let size = placed.size();
        if start != offset || start >= size {
            return None;
        }
        let spot = placed.spot(block)?;
        let entry = spot.entry();
        if entry == Entry::HOME || placed.class == FileClass::Redo {
            return None;
        }
        if entry.is_unseen() && !self.see_in_place(placed, spot, entry) {
            return None;
        }
        let view = placed.tier.show_block(spot, entry)?;
        if spot.entry() != entry && !placed.tier.planted.races(Planted::NoSecondLook) {
            return None;
        }
        spot.leaf.policy.touched(spot.index);
        placed.usage.hit_in_place(&self.events);
        placed.saw(block, How::Hit);
        Some(BlockRef { view, len: placed.block_size.bytes().min((size - start) as usize) })
    }
}

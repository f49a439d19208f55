//! What recovery does with records before it reads a map: switches and batches that were under way
//! are finished.
//!
//! Lane records, then batch records, the older first, are applied to the map entries they speak of,
//! a fence, then emptied: of each lane the older first, then the newer, then the batches one by
//! one, with fences between, so that a cut never leaves an older record without the newer one.
//! Applying twice does no harm: no entry has moved on, because nobody else is at work.
//!
//! Deliberately absent: reading the maps ([`crate::recover`]).

use super::Ledger;
use super::torn;
use crate::address::{FRAME, Frame, WordAt};
use crate::error::Result;
use crate::format::entry::{LEAF_SLOT, Place, block_sum, unseal};
use crate::format::record::{
    self, BATCH_RECORD, BatchHeader, BatchItem, ITEMS_OVERFLOW, LANE_RECORD, LaneRecord, NO_FRAME,
};
use crate::format::slot::StateLine;
use crate::medium::{BlockMedium, hash_bytes};
use crate::planted::Planted;
use crate::tier::table::Slot;

/// What was under way.
#[derive(Default)]
pub(crate) struct Replayed {
    pub(crate) switches: u64,
    pub(crate) batches: u64,
}

impl Ledger {
    /// Finishes what was under way on a tier whose members have `len` bytes.
    ///
    /// # Durability
    /// On return the maps alone say what there is, durably; a cut before that does no harm.
    pub(crate) fn replay(&self, len: u64) -> Result<Replayed> {
        torn::spoil_lines(self)?;
        apply_records(self, len)
    }
}

fn apply_records(tier: &Ledger, len: u64) -> Result<Replayed> {
    let mut replayed = Replayed::default();
    let frames = tier.geometry.units(len) * tier.geometry.unit_frames();
    // To be emptied one group after the other: an older record alone would take its block back to
    // the version before.
    let mut live: [Vec<u64>; 2] = Default::default();
    for lane in 0..tier.geometry.lanes {
        let records = read_lane(tier, lane, &mut live[0])?;
        for (n, record) in records.iter().enumerate() {
            let group = usize::from(n + 1 == records.len());
            live[group].push(tier.geometry.lane_record_at(lane, record.seq));
        }
        for r in records {
            let item = BatchItem { at: r.at, word: r.word, sum: r.sum, block: r.block };
            let whole = block_is_whole(tier, frames, r.file, &item, r.frames);
            if whole || tier.planted.is(Planted::SkipBlockChecksum) {
                if tier.load_checked(r.at)? != r.word {
                    replayed.switches += 1;
                }
                store_entry(tier, r.at, r.word, r.sum);
            }
        }
    }
    let mut batches = Vec::new();
    for batch in 0..tier.geometry.batches {
        let at = tier.geometry.batch_at(batch);
        let mut bytes = [0; BATCH_RECORD];
        tier.read_checked(WordAt::new(0, at), &mut bytes)?;
        if BatchHeader::is_empty(&bytes) {
            continue;
        }
        batches.push((read_batch(tier, frames, &bytes)?, at));
    }
    // What is no record has nothing to say and comes first.
    batches.sort_by_key(|(batch, _)| batch.as_ref().map_or(0, |(header, _)| header.seq));
    if tier.planted.is(Planted::BatchNewestReplayedFirst) {
        batches.reverse();
    }
    for (header, items) in batches.iter().filter_map(|(batch, _)| batch.as_ref()) {
        let whole = |i: &BatchItem| block_is_whole(tier, frames, header.file, i, header.frames);
        if items.iter().all(whole) || tier.planted.is(Planted::SkipBatchChecksum) {
            let mut news = false;
            for item in items {
                news |= tier.load_checked(item.at)? != item.word;
                store_entry(tier, item.at, item.word, item.sum);
            }
            lengthen(tier, header)?;
            replayed.batches += u64::from(news);
        }
    }
    let fence = || {
        if !tier.planted.is(Planted::ReplayUnfenced) {
            tier.fence();
        }
    };
    fence();
    for group in &live {
        for at in group {
            tier.store_word(WordAt::new(0, *at), 0);
        }
        fence();
    }
    for (_, at) in &batches {
        tier.store_word(WordAt::new(0, *at), 0);
        tier.fence();
    }
    Ok(replayed)
}

/// The records of a lane, the older first; `torn` gets the places of what is none.
fn read_lane(tier: &Ledger, lane: u32, torn: &mut Vec<u64>) -> Result<Vec<LaneRecord>> {
    let mut records: Vec<LaneRecord> = Vec::new();
    for parity in 0..2 {
        let at = tier.geometry.lane_record_at(lane, parity);
        let mut bytes = [0; LANE_RECORD];
        tier.read_checked(WordAt::new(0, at), &mut bytes)?;
        if LaneRecord::is_empty(&bytes) {
            continue;
        }
        match LaneRecord::decode(&bytes, tier.seed, lane) {
            Some(record) => records.push(record),
            None => torn.push(at),
        }
    }
    records.sort_by_key(|r| r.seq);
    Ok(records)
}

/// Stores an entry of a map page, which nobody has claimed yet, and the checksum beside it.
fn store_entry(tier: &Ledger, at: WordAt, word: u64, sum: u64) {
    let page = at.offset() / FRAME as u64 * FRAME as u64;
    let medium = tier.words(at.member());
    let ours = medium.latch(page, FRAME);
    tier.store_word(at, word);
    tier.store_sum(at, sum);
    if ours {
        medium.unlatch(page, FRAME);
    }
}

/// Whether the block a record speaks of arrived whole. A record of ours never points outside the
/// tier; one that does counts as torn. An unreadable block counts as whole: it may have been
/// acknowledged, and going back to the version before it would lose it silently.
fn block_is_whole(
    tier: &Ledger,
    frames: u64,
    file: u64,
    item: &BatchItem,
    block_frames: u32,
) -> bool {
    let Some(entry) = unseal(tier.seed, file, Place::Block(item.block.0), item.word) else {
        return false;
    };
    let member = item.at.member();
    let word_inside = member < tier.members.len()
        && item.at.offset().is_multiple_of(LEAF_SLOT)
        && item.at.offset() >= tier.geometry.data_start[member]
        && item.at.offset() + LEAF_SLOT <= tier.words(member).len();
    if !word_inside || !block_frames.is_power_of_two() || block_frames > 8 {
        return false;
    }
    let count = u64::from(block_frames);
    if entry.frame().0 + count > frames || entry.frame().0 % count != 0 {
        return false;
    }
    let mut bytes = vec![0; count as usize * FRAME];
    match tier.read_block_checked(entry.frame(), 0, &mut bytes) {
        Ok(()) => block_sum(tier.seed, file, item.block, hash_bytes(&bytes, tier.seed)) == item.sum,
        Err(e) => {
            log::error!(
                "block {} of file {file} was being written and cannot be read: {e}",
                item.block.0
            );
            true
        }
    }
}

fn read_batch(
    tier: &Ledger,
    frames: u64,
    bytes: &[u8; BATCH_RECORD],
) -> Result<Option<(BatchHeader, Vec<BatchItem>)>> {
    let Some((header, mut items)) = BatchHeader::decode(bytes, tier.seed) else { return Ok(None) };
    let mut next = header.overflow;
    let count = header.count as usize;
    // The header's checksum is right, but the overflow pages may not have arrived: each step is
    // checked.
    while items.len() < count {
        if next == NO_FRAME || next >= frames {
            return Ok(None);
        }
        let mut page = [0; BATCH_RECORD];
        tier.read_checked(tier.page_at(Frame(next)), &mut page)?;
        let (more, after) =
            record::decode_overflow(&page, (count - items.len()).min(ITEMS_OVERFLOW));
        items.extend(more);
        next = after;
    }
    Ok((record::items_hash(&items, tier.seed) == header.items_hash).then_some((header, items)))
}

/// A batch that made its file longer: the state line gets the size, if it has not.
fn lengthen(tier: &Ledger, header: &BatchHeader) -> Result<()> {
    let Some(Slot { at, .. }) = tier.slot(header.slot) else { return Ok(()) };
    if let Some(mut line) = StateLine::newest(&tier.read_slot(at)?, tier.seed, header.file)
        && line.size < header.size_after
    {
        line.seq += 1;
        line.size = header.size_after;
        let at = at.plus(line.at());
        tier.write_meta(at, &line.encode_pair(tier.seed, header.file));
    }
    Ok(())
}

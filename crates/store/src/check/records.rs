//! The checker's own reader of lane and batch records (invariants 16 to 19).
//!
//! It decides for each record what recovery would do with it, and never does it.
//!
//! **Invariant**: the work is bounded by the records and frames the tier has, whatever a record
//! claims.

use std::collections::HashSet;

use crate::medium::hash_bytes;
use xxhash_rust::xxh3::Xxh3;

use super::at;
use super::frames::Use;
use super::report::{Place, Severity};
use super::seal::{Seal, checksum, u32_at, u64_at};
use super::source::Spot;
use super::superblock::{FRAME, LANES_AT};
use super::table::{FileFacts, TRUNCATING};
use super::{Checker, Claim, Text};

const LANE_BYTES: u64 = 128;
/// Lanes read at a time: one frame of records.
const LANES_AT_ONCE: u32 = 32;
const ITEM: usize = 32;
const ITEMS_INLINE: u32 = 126;
const ITEMS_OVERFLOW: u32 = 127;
const NEXT_AT: usize = 4064;
/// What the key of the checksum over a batch's items is made with: "batch" as a number.
const ITEMS_KEY: u64 = 0x6261_7463_6800;

/// One switch that a record speaks of.
#[derive(Clone, Copy, Debug)]
struct Switch {
    at: u64,
    word: u64,
    hash: u64,
    block: u64,
    frames: u32,
}

struct LaneRecord {
    sequence: u64,
    file: u64,
    switch: Switch,
}

/// What recovery would do with a switch.
enum Verdict {
    /// Its file, or the page its entry is in, is gone.
    Stale,
    /// The block is not whole: it was being written when power went.
    Torn,
    /// The entry says so already. `whole`: the block has the record's checksum.
    Applied { whole: bool },
    /// The block is whole and the entry says something else: recovery switches it.
    Pending { frame: u64 },
    /// The record is whole and makes no sense.
    Wrong(String),
}

/// Where a record is, for messages.
struct RecordAt {
    offset: u64,
    name: String,
}

impl Checker<'_> {
    /// Judges all lane records.
    pub(super) fn read_lanes(&mut self) {
        let mut space = Vec::new();
        let (lanes, mut first) = (self.tier.layout.lanes, 0);
        while first < lanes {
            let count = LANES_AT_ONCE.min(lanes - first);
            let at = LANES_AT + u64::from(first) * LANE_BYTES;
            let source = self.tier.source(0);
            match source.and_then(|s| s.view(at, count as usize * LANE_BYTES as usize, &mut space))
            {
                Ok(bytes) => {
                    for (lane, bytes) in (first..).zip(bytes.chunks_exact(LANE_BYTES as usize)) {
                        self.judge_lane(lane, bytes);
                    }
                }
                Err(e) => self.records_unreadable(at, "lane records", &e),
            }
            first += count;
        }
    }

    fn records_unreadable(&mut self, offset: u64, what: &str, e: &std::io::Error) {
        let text = Text {
            expected: format!("readable {what}"),
            found: format!("the medium gave an error: {e}"),
            meaning: "writes acknowledged just before a crash may be out of reach".into(),
            remedy: "restore the member from a copy of the medium",
        };
        let place = Place {
            member: Some(0),
            offset: Some(offset),
            structure: what.into(),
            ..Place::default()
        };
        self.add(Severity::Damage, 16, place, text);
    }

    fn judge_lane(&mut self, lane: u32, b: &[u8]) {
        let seed = self.tier.layout.seed;
        let records: [Option<LaneRecord>; 2] = std::array::from_fn(|n| {
            let b = b.get(n * at::lane::SIZE..)?.get(..at::lane::SIZE)?;
            let sequence = u64_at(b, at::lane::SEQUENCE);
            let whole = sequence != 0
                && sequence % 2 == n as u64
                && u32_at(b, at::lane::LANE) == lane
                && u64_at(b, at::lane::CHECK) == checksum(&b[..at::lane::CHECK], seed);
            whole.then(|| LaneRecord {
                sequence,
                file: u64_at(b, at::lane::FILE),
                switch: Switch {
                    at: u64_at(b, at::lane::AT),
                    word: u64_at(b, at::lane::WORD),
                    hash: u64_at(b, at::lane::HASH),
                    block: u64_at(b, at::lane::BLOCK),
                    frames: u32_at(b, at::lane::FRAMES),
                },
            })
        });
        let mut verdicts: [Option<Verdict>; 2] = records.each_ref().map(|r| {
            let r = r.as_ref()?;
            Some(self.file_by_id(r.file).map_or(Verdict::Stale, |n| self.judge(n, r.switch)))
        });
        // The newer record of the same block decides, unless its block never arrived.
        if let [Some(a), Some(b)] = &records
            && (a.file, a.switch.block) == (b.file, b.switch.block)
        {
            let (older, newer) = if a.sequence < b.sequence { (0, 1) } else { (1, 0) };
            if matches!(verdicts[newer], Some(Verdict::Applied { .. } | Verdict::Pending { .. })) {
                verdicts[older] = None;
            }
        }
        for (n, (record, verdict)) in records.iter().zip(verdicts).enumerate() {
            if let (Some(record), Some(verdict)) = (record, verdict) {
                let offset = LANES_AT + u64::from(lane) * LANE_BYTES + n as u64 * 64;
                let at = RecordAt { offset, name: format_lane(lane, record.sequence) };
                self.conclude_lane(&at, record, verdict);
            }
        }
    }

    fn conclude_lane(&mut self, at: &RecordAt, record: &LaneRecord, verdict: Verdict) {
        let Some(n) = self.file_by_id(record.file) else { return };
        match verdict {
            Verdict::Stale | Verdict::Torn => {}
            Verdict::Applied { whole } => self.applied(at, n, record.switch.block, whole),
            Verdict::Wrong(why) => self.wrong_record(16, at, n, record.switch.block, why),
            Verdict::Pending { frame } => {
                self.report.summary.lane_records_pending += 1;
                self.pending(16, at, n, &[(record.switch.block, frame)]);
            }
        }
    }

    /// Invariant 19: an entry is switched only when its block is whole, so the block still has the
    /// record's checksum.
    fn applied(&mut self, at: &RecordAt, n: usize, block: u64, whole: bool) {
        let Some(file) = self.files.get(n) else { return };
        let inside = (block + 1).saturating_mul(file.block_bytes()) <= file.size();
        if whole || file.redo || !inside || file.line.is_none() || file.has(TRUNCATING) {
            return;
        }
        // Nothing more is said of it.
        self.recorded.borrow_mut().insert((n, block));
        let mut place = self.record_place(at, n);
        place.block = Some(block);
        let text = Text {
            expected: "the block that the record and the map entry point to has the record's \
                       checksum"
                .into(),
            found: "another checksum".into(),
            meaning: "the newest version of the block is not what was written: it is torn or was \
                      overwritten"
                .into(),
            remedy: "restore the file from a backup, or the member from a copy of the medium",
        };
        self.add(Severity::Damage, 19, place, text);
    }

    fn wrong_record(&mut self, invariant: u8, at: &RecordAt, n: usize, block: u64, why: String) {
        let mut place = self.record_place(at, n);
        place.block = Some(block);
        let text = Text {
            expected: "a record that fits its file's map".into(),
            found: why,
            meaning: "recovery would write a wrong map entry, or refuse; the record comes from a \
                 defective program"
                .into(),
            remedy: "do not attach; report this and keep the tier as it is",
        };
        self.add(Severity::Inconsistent, invariant, place, text);
    }

    /// Invariants 16 to 18: `switches` are blocks and frames that recovery would switch to.
    fn pending(&mut self, invariant: u8, at: &RecordAt, n: usize, switches: &[(u64, u64)]) {
        let Some(class) = self.files.get(n).map(|f| f.class) else { return };
        if self.options.after_recovery {
            let mut place = self.record_place(at, n);
            place.block = switches.first().map(|s| s.0);
            let text = Text {
                expected: "no record that is not in the map".into(),
                found: format!("{} whole block(s) that the map does not point to", switches.len()),
                meaning: "an acknowledged write is not in the map, or a record was left whose \
                          entry has moved on: the next \
                          attach would switch the map to these blocks"
                    .into(),
                remedy: "report this and keep the tier as it is; recovery should have left no such \
                         record",
            };
            self.add(Severity::Lost, invariant, place, text);
        }
        for (block, frame) in switches {
            self.note_claim(Claim {
                file: n,
                block: Some(*block),
                frame: *frame,
                purpose: Use::Block(class),
                spot: Spot { member: 0, offset: at.offset },
                record: true,
            });
        }
    }

    fn record_place(&self, at: &RecordAt, n: usize) -> Place {
        Place {
            member: Some(0),
            offset: Some(at.offset),
            structure: at.name.clone(),
            file: self.files.get(n).map(FileFacts::name),
            block: None,
        }
    }

    /// Judges what a record says of one block, and remembers a block that it vouches for.
    fn judge(&self, n: usize, switch: Switch) -> Verdict {
        let block = switch.block;
        let verdict = self.judge_switch(n, switch);
        if matches!(verdict, Verdict::Applied { whole: true } | Verdict::Pending { .. }) {
            self.recorded.borrow_mut().insert((n, block));
        }
        verdict
    }

    fn judge_switch(&self, n: usize, switch: Switch) -> Verdict {
        let Some(file) = self.files.get(n) else { return Verdict::Stale };
        let Some((spot, current)) = self.tier.entry(file, switch.block) else {
            return Verdict::Stale;
        };
        let (member, offset) = ((switch.at >> 48) as u32, switch.at & 0xffff_ffff_ffff);
        if (spot.member, spot.offset) != (member, offset) {
            let (m, o) = (spot.member, spot.offset);
            return Verdict::Wrong(format!(
                "its entry is at member {member} byte {offset}, the map has it at member {m} byte \
                 {o}"
            ));
        }
        let seal = Seal::new(self.tier.layout.seed, file.id);
        let frame = match seal.block(switch.block, switch.word) {
            Some(Some((_, frame))) => frame,
            _ => {
                return Verdict::Wrong(format!(
                    "its word {:#018x} is no entry of this block",
                    switch.word
                ));
            }
        };
        let purpose = Use::Block(file.class);
        if u64::from(switch.frames) != purpose.frames() || self.frames.fits(frame, purpose).is_err()
        {
            return Verdict::Wrong(format!(
                "{} frame(s) at {frame} cannot be a block of this file",
                switch.frames
            ));
        }
        let hash = self.block_hash(frame, file.block_bytes() as usize);
        let whole = hash.map(|hash| seal.sum(switch.block, hash)) == Some(switch.hash);
        match seal.block(switch.block, current) {
            // The map's own finding.
            None => Verdict::Stale,
            Some(Some((_, current))) if current == frame => Verdict::Applied { whole },
            Some(_) if whole => Verdict::Pending { frame },
            Some(_) => Verdict::Torn,
        }
    }

    fn block_hash(&self, frame: u64, len: usize) -> Option<u64> {
        let mut space = Vec::new();
        let spot = self.tier.spot(frame);
        let bytes = self.tier.source(spot.member).ok()?.block(spot.offset, len, &mut space).ok()?;
        Some(hash_bytes(bytes, self.tier.layout.seed))
    }

    /// Judges all batch records, the newest first: of a block that several speak of, the newest one
    /// that is whole decides.
    pub(super) fn read_batches(&mut self) {
        let mut space = Vec::new();
        let mut found = Vec::new();
        for batch in 0..self.tier.layout.batches {
            let offset = self.tier.layout.batch_at(batch);
            let source = self.tier.source(0);
            match source.and_then(|s| s.view(offset, FRAME as usize, &mut space)) {
                Ok(bytes) => match u64_at(bytes, at::batch::SEQUENCE) {
                    0 => {}
                    sequence => found.push((sequence, batch, offset, bytes.to_vec())),
                },
                Err(e) => self.records_unreadable(offset, "batch record", &e),
            }
        }
        found.sort_by_key(|(sequence, ..)| std::cmp::Reverse(*sequence));
        let mut decided = HashSet::new();
        for (_, batch, offset, bytes) in &found {
            self.judge_batch(*batch, *offset, bytes, &mut decided);
        }
    }

    fn judge_batch(
        &mut self,
        batch: u32,
        offset: u64,
        b: &[u8],
        decided: &mut HashSet<(usize, u64)>,
    ) {
        if u64_at(b, at::batch::CHECK) != checksum(&b[..at::batch::CHECK], self.tier.layout.seed) {
            return;
        }
        let Some(n) = self.file_by_id(u64_at(b, at::batch::FILE)) else { return };
        let sequence = u64_at(b, at::batch::SEQUENCE);
        let (slot, frames) = (u64_at(b, at::batch::SLOT), u32_at(b, at::batch::FRAMES));
        let at = RecordAt { offset, name: format!("batch record {batch}, sequence {sequence}") };
        let Some(file) = self.files.get(n) else { return };
        if slot != file.slot || u64::from(frames) != Use::Block(file.class).frames() {
            let why = format!(
                "it names slot {slot} and blocks of {frames} frame(s); the file has slot {}",
                file.slot
            );
            return self.wrong_record(17, &at, n, 0, why);
        }
        if !self.items_are_whole(b) {
            return;
        }
        let mut waiting = Vec::new();
        let mut blocks = Vec::new();
        let mut wrong = None;
        let complete = self.each_page(b, |checker, page, count| {
            for item in page.chunks_exact(ITEM).take(count as usize) {
                let switch = Switch {
                    at: u64_at(item, at::batch::ITEM_AT),
                    word: u64_at(item, at::batch::ITEM_WORD),
                    hash: u64_at(item, at::batch::ITEM_HASH),
                    block: u64_at(item, at::batch::ITEM_BLOCK),
                    frames,
                };
                if decided.contains(&(n, switch.block)) {
                    continue;
                }
                blocks.push((n, switch.block));
                match checker.judge(n, switch) {
                    Verdict::Applied { whole: true } => {}
                    Verdict::Pending { frame } => waiting.push((switch.block, frame)),
                    // One block is not whole or has moved on: recovery leaves the whole batch
                    // alone.
                    Verdict::Applied { whole: false } | Verdict::Torn | Verdict::Stale => {
                        return false;
                    }
                    Verdict::Wrong(why) => {
                        wrong = Some((switch.block, why));
                        return false;
                    }
                }
            }
            true
        });
        if let Some((block, why)) = wrong {
            self.wrong_record(17, &at, n, block, why);
        } else if complete {
            decided.extend(blocks);
            if !waiting.is_empty() {
                self.report.summary.batch_records_pending += 1;
                self.pending(17, &at, n, &waiting);
            }
        }
    }

    fn items_are_whole(&self, b: &[u8]) -> bool {
        let mut hash = Xxh3::with_seed(self.tier.layout.seed ^ ITEMS_KEY);
        let complete = self.each_page(b, |_, page, count| {
            hash.update(page.get(..count as usize * ITEM).unwrap_or_default());
            true
        });
        complete && hash.digest() == u64_at(b, at::batch::ITEMS_HASH)
    }

    /// Calls `each` with the items of a batch record, page by page, until it says no. `false` when
    /// it did, or when a page is missing, or a page comes twice.
    fn each_page(&self, b: &[u8], mut each: impl FnMut(&Self, &[u8], u32) -> bool) -> bool {
        let mut left = u32_at(b, at::batch::COUNT);
        if u64::from(left) > self.tier.layout.frames() {
            return false;
        }
        let count = left.min(ITEMS_INLINE);
        left -= count;
        if !each(self, b.get(at::batch::ITEMS..).unwrap_or_default(), count) {
            return false;
        }
        let mut next = u64_at(b, at::batch::OVERFLOW);
        let mut seen = HashSet::new();
        let mut space = Vec::new();
        while left > 0 {
            if self.frames.fits(next, Use::Page).is_err() || !seen.insert(next) {
                return false;
            }
            let spot = self.tier.spot(next);
            let source = self.tier.source(spot.member);
            let Ok(page) = source.and_then(|s| s.view(spot.offset, FRAME as usize, &mut space))
            else {
                return false;
            };
            let count = left.min(ITEMS_OVERFLOW);
            left -= count;
            if !each(self, page, count) {
                return false;
            }
            next = u64_at(page, NEXT_AT);
        }
        true
    }
}

fn format_lane(lane: u32, sequence: u64) -> String {
    format!("record {sequence} of lane {lane}")
}

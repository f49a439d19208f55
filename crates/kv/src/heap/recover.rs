//! Makes a heap, and opens one as a crash left it.
//!
//! # Recovery
//! | step | what happens | power cut here |
//! |---|---|---|
//! | 1 | the superblock: either copy | nothing was changed |
//! | 2 | the two records: header, body, checksum | the same |
//! | 3 | the newer one's ranges hold what it says, or it is refused | the same |
//! | 4 | the words of the older, then of the newer one that counts are stored, flushed, **fence** | all of it again |
//! | 5 | a refused record is overwritten with zeros, **fence** | all of it again |
//! | 6 | the unit table is read; units with the body of a record stay taken until two more commits | |
//!
//! Step 5: else the record could come to count later, when a client sends the same bytes again and
//! they happen to go to the same places. Step 6: a cut in the next commit makes recovery read the
//! same two records again. With the body of the newer one overwritten only the older one would
//! count, and would undo what the newer one changed.

use std::cell::RefCell;

use tiersmith_pmem::Mapping;

use super::Heap;
use super::overlay::Overlay;
use super::ranges::Ranges;
use super::units::Units;
use crate::error::Error;
use crate::format::record::{self, HEADER};
use crate::format::{LOG, ROOTS, SUPERBLOCK, SUPERBLOCKS, Superblock, UNIT, Unfit, Unit};
use crate::planted::Planted;

/// A record of the log that is whole.
struct Record {
    number: u64,
    lines: Vec<record::Line>,
    ranges: Vec<(u64, u64)>,
    ranges_hash: u64,
    /// Where its body is, if it is in units.
    body: Option<(u64, u64)>,
}

impl Heap {
    /// Makes a heap on a medium that holds nothing. What the medium held before is lost.
    ///
    /// # Errors
    /// The medium is too small.
    ///
    /// # Durability
    /// An empty heap is durable on return; until then the medium is one that holds nothing.
    pub fn create(map: Mapping, log_bytes: u64, planted: Planted) -> Result<Heap, Error> {
        let mut random = fastrand::Rng::new();
        let mut name = [0; 16];
        random.fill(&mut name);
        let (len, path) = (map.len(), map.report().path.clone());
        let plan = Superblock::plan(len, log_bytes, name, random.u64(..))
            .ok_or(Error::TooSmall { path, len })?;
        map.set_open_range(len);
        map.nt_zero(0, 2 * SUPERBLOCK);
        map.fence();
        if planted.is(Planted::SuperblockFirst) {
            map.nt_write(SUPERBLOCKS[0], &plan.encode());
            map.fence();
        }
        map.nt_zero(ROOTS, (LOG - ROOTS) as usize);
        for number in 0..2 {
            map.nt_zero(plan.slot(number), HEADER);
        }
        map.nt_zero(plan.table_at, (plan.units * 8) as usize);
        map.fence();
        // One after the other, so that a cut leaves the second one empty or the first one whole.
        for at in SUPERBLOCKS {
            map.nt_write(at, &plan.encode());
            map.fence();
        }
        Ok(Heap::of(map, plan, planted, 0))
    }

    /// Whether the medium holds nothing: no superblock was ever finished. A first one that a power
    /// cut has torn, with the second one still empty, was not.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn is_blank(map: &Mapping) -> Result<bool, Error> {
        let mut first = [0; SUPERBLOCK];
        if map.len() >= SUPERBLOCK as u64 {
            map.read_checked(SUPERBLOCKS[0], &mut first)?;
        }
        Ok(match superblocks(map)? {
            [Ok(_), _] => false,
            [Err(_), second] => second == Err(Unfit::Empty) && Superblock::may_be_torn(&first),
        })
    }

    /// Opens a heap and recovers it.
    ///
    /// # Errors
    /// It holds no heap, or one of another version, or a damaged one.
    pub fn open(map: Mapping, planted: Planted) -> Result<Heap, Error> {
        let plan = superblock(&map)?;
        map.set_open_range(map.len());
        // Where making it was cut, or a copy was lost, there are two again.
        for (at, copy) in SUPERBLOCKS.into_iter().zip(superblocks(&map)?) {
            if copy.is_err() {
                map.nt_write(at, &plan.encode());
                map.fence();
            }
        }
        let records = [0, 1].map(|slot| read_record(&map, &plan, slot, planted));
        let newest = records.iter().flatten().map(|record| record.number).max().unwrap_or(0);
        let mut number = newest;
        let mut refused = None;
        if let Some(last) = records.iter().flatten().find(|record| record.number == newest) {
            let hash =
                last.ranges.iter().fold(0, |hash, (at, len)| map.hash(*at, *len as usize, hash));
            if hash != last.ranges_hash && !planted.is(Planted::RangesUnchecked) {
                refused = Some(plan.slot(newest));
                number -= 1;
            }
        }
        // 4.
        let mut to_apply: Vec<&Record> =
            records.iter().flatten().filter(|record| record.number <= number).collect();
        to_apply.sort_by_key(|record| record.number);
        if planted.is(Planted::LastRecordOnly) && to_apply.len() == 2 {
            to_apply.remove(0);
        }
        for line in to_apply.iter().flat_map(|record| &record.lines) {
            for (index, word) in line.words.iter().enumerate() {
                if line.mask >> index & 1 == 1 {
                    map.store_u64(line.at + index as u64 * 8, *word);
                }
            }
            map.flush(line.at, 64);
        }
        map.fence();
        // 5.
        if let Some(slot) = refused.filter(|_| !planted.is(Planted::RefusedRecordStays)) {
            map.nt_zero(slot, HEADER);
            map.fence();
        }
        // 6.
        let bodies: Vec<(u64, u64, u64)> = to_apply
            .iter()
            .filter_map(|record| record.body.map(|(at, len)| (record.number, at, len)))
            .collect();
        let mut heap = Heap::of(map, plan, planted, number);
        heap.read_unit_table()?;
        for (number, at, len) in bodies {
            let (first, units) = (heap.plan.unit_of(at), len.div_ceil(UNIT));
            let keeps = !heap.planted.is(Planted::BodyNotKeptAfterRecovery);
            if keeps && heap.units.set_aside(first, units) {
                heap.kept.push((number, first, units));
            }
        }
        Ok(heap)
    }

    fn of(map: Mapping, plan: Superblock, planted: Planted, number: u64) -> Heap {
        let mut units = Units::new(plan.units);
        if number == 0 {
            units.give(0, plan.units);
        }
        Heap {
            map,
            plan,
            overlay: Overlay::new(),
            ranges: Ranges::default(),
            ranges_hash: 0,
            fence_ahead: false,
            frees: Vec::new(),
            taken: Vec::new(),
            left: Vec::new(),
            units,
            number,
            body: Vec::new(),
            body_units: None,
            kept: Vec::new(),
            held: None,
            planted,
            noted: RefCell::new(None),
            broken: None,
        }
    }

    fn read_unit_table(&mut self) -> Result<(), Error> {
        self.units = Units::new(self.plan.units);
        let mut unit = 0;
        while unit < self.plan.units {
            let word = self.map.load_u64(self.plan.unit_word_at(unit));
            let damaged = || Error::Damaged {
                path: self.map.report().path.clone(),
                what: format!("unit {unit} has the word {word:#x}, which no unit can have"),
            };
            let units = match Unit::decode(word).ok_or_else(damaged)? {
                Unit::Free => {
                    self.units.give(unit, 1);
                    1
                }
                Unit::Slab(class) => {
                    self.units.list(class, unit);
                    Units::shape(class)
                }
                Unit::Run(units) => units,
            };
            if units > self.plan.units - unit
                || matches!(Unit::decode(word), Some(Unit::Slab(_))) && !unit.is_multiple_of(units)
            {
                return Err(damaged());
            }
            unit += units;
        }
        Ok(())
    }
}

fn superblocks(map: &Mapping) -> Result<[Result<Superblock, Unfit>; 2], Error> {
    let mut copies = [Err(Unfit::Empty); 2];
    for (copy, at) in copies.iter_mut().zip(SUPERBLOCKS) {
        let mut bytes = [0; SUPERBLOCK];
        if at + SUPERBLOCK as u64 <= map.len() {
            map.read_checked(at, &mut bytes)?;
            *copy = Superblock::decode(&bytes);
        }
    }
    Ok(copies)
}

fn superblock(map: &Mapping) -> Result<Superblock, Error> {
    let path = map.report().path.clone();
    let copies = superblocks(map)?;
    let plan = match copies {
        [Ok(plan), _] | [_, Ok(plan)] => plan,
        [Err(Unfit::Version(found)), _] | [_, Err(Unfit::Version(found))] => {
            return Err(Error::Version { path, found });
        }
        [Err(Unfit::Checksum | Unfit::Numbers), _] | [_, Err(Unfit::Checksum | Unfit::Numbers)] => {
            let what = "neither copy of the superblock is whole".to_owned();
            return Err(Error::Damaged { path, what });
        }
        [Err(Unfit::Foreign | Unfit::Empty), Err(Unfit::Foreign | Unfit::Empty)] => {
            return Err(Error::Foreign { path });
        }
    };
    if plan.len > map.len() {
        return Err(Error::Shorter { path, len: map.len(), wanted: plan.len });
    }
    Ok(plan)
}

/// The record in a slot, if there is a whole one.
fn read_record(map: &Mapping, plan: &Superblock, slot: u64, planted: Planted) -> Option<Record> {
    let at = plan.slot(slot);
    let mut bytes = [0; HEADER];
    map.read(at, &mut bytes);
    let header = record::Header::decode(&bytes)?;
    let (body_at, room) = match header.body_at {
        0 => (at + HEADER as u64, plan.log_bytes - HEADER as u64),
        body_at if body_at >= plan.heap_at => (body_at, plan.len.checked_sub(body_at)?),
        _ => return None,
    };
    if header.body_len > room || header.number == 0 {
        return None;
    }
    let mut body = vec![0; header.body_len as usize];
    map.read(body_at, &mut body);
    if !header.seals(&body, plan.hash_seed, &bytes) && !planted.is(Planted::RecordUnchecked) {
        return None;
    }
    let (lines, ranges) = record::parse(&header, &body, plan.len)?;
    // The planted bug stores what it finds, but not outside the heap.
    let lines = lines.into_iter().filter(|line| line.at >= ROOTS && line.at + 64 <= plan.len);
    let ranges_hash = header.ranges_hash;
    let body = (header.body_at != 0).then_some((header.body_at, header.body_len));
    Some(Record { number: header.number, lines: lines.collect(), ranges, ranges_hash, body })
}

//! The file table of a tier in DRAM: which slots are free, who may have them, where they lie, and
//! how there come to be more.
//!
//! Slots begin in front of the first allocation unit of member 0. When those do not suffice the
//! table grows by an **extent**: a whole allocation unit, on whichever member it lies, full of
//! slots. Extents stay the table's until the tier is formatted again.
//!
//! # Growing, and what a power cut leaves
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 1 | a whole free unit is taken from the allocator, its frames are claimed | the old table |
//! | 2 | all its slots are written, each free, then a fence | the old table |
//! | 3 | the superblocks name the unit, both copies of all members | the new table, if all name it |
//! | 4 | the new slots are free in DRAM | the new table |
//!
//! # Invariants
//! 1. Some slots are kept for redo files: data files that fill the table never send redo home.
//! 2. No slot of an extent is used before the superblocks of all members name it.
//! 3. Files of guests ([`Wanted`]) leave some slots besides to the others, and some extents: a
//!    guest who fills the table does not send the home's owner away.
//!
//! Deliberately not here: giving slots back and waiting for one ([`crate::names::slots`]).

use super::Tier;
use super::alloc::{Census, Purpose};
use crate::address::{FRAME, Frame, WordAt};
use crate::error::{Error, Result};
use crate::format::entry::{Place, seal_value};
use crate::format::slot::SLOT;
use crate::format::superblock::{EXTENTS_MAX, Superblock};
use crate::planted::Planted;
use crate::profile::FileClass;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Slots kept for redo files: an eighth, but not more than these. PostgreSQL keeps 64 segments with
/// its usual `max_wal_size`.
const REDO_SLOTS_MOST: u64 = 64;
/// Of the slots, and of the extents, what guests leave to the others: one at least.
const SHARE_NOT_GUESTS: u64 = 8;
/// Of the tier, what extents may take while there is room for them, and at most.
const SHARE_AT_EASE: u64 = 16;
const SHARE_MOST: u64 = 4;

/// A slot: its number, and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) number: u64,
    pub(crate) at: WordAt,
}

/// What a slot is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) class: FileClass,
    /// The file belongs neither to the home's owner nor to root, and the home is not root's.
    pub(crate) guest: bool,
}

/// Free file slots, and the ids of files.
///
/// An id has 40 bits and is never 0, which is a free slot. New ids begin anew at each attach, far
/// behind those of the attach before: what a power cut left of a file that never was is then
/// nobody's. After a million attaches the numbers come again, so ids that files have are passed
/// over.
#[derive(Default)]
pub(crate) struct FileTable {
    /// The one that was given back last comes first.
    free: Vec<u64>,
    last_file: u64,
    files: HashSet<u64>,
    /// Slots in front of the units.
    fixed: u64,
    /// Slots of an extent.
    per_extent: u64,
    /// The unit of each.
    extents: Vec<u64>,
    /// That a file got no slot; `None` since another one of its class got one.
    pub(crate) refused: Option<Refused>,
    /// The same of a guest's file: it says nothing of the others.
    pub(crate) refused_guest: Option<Refused>,
    /// When giving slots back was last tried in vain.
    pub(crate) in_vain: Option<Instant>,
    /// When the tier was last emptied in vain, so that the table could grow.
    pub(crate) emptied: Option<Instant>,
}

/// That a file could get no slot.
pub(crate) struct Refused {
    pub(crate) at: Instant,
    pub(crate) class: FileClass,
    pub(crate) message: String,
}

/// What of a table can be counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableCounts {
    pub(crate) slots: u64,
    pub(crate) free: u64,
    /// Slots that guests do not get.
    pub(crate) not_guests: u64,
    /// Slots there can be when it has grown as far as it may.
    pub(crate) most: u64,
    /// Map pages that would have room then: a file with blocks in the tier needs one at least.
    pub(crate) maps_most: u64,
    /// Bytes of the extents, which blocks cannot use.
    pub(crate) extent_bytes: u64,
}

impl FileTable {
    const FILE_MASK: u64 = (1 << 40) - 1;

    /// Of the extents only those count that every member's superblock names: another is that of a
    /// growth that was cut.
    pub(crate) fn of(superblocks: &mut [Superblock]) -> Self {
        let first = &superblocks[0];
        let same =
            |n: &usize| superblocks.iter().all(|sb| sb.extents.get(*n) == first.extents.get(*n));
        let count = (0..first.extents.len()).take_while(same).count();
        for sb in superblocks.iter_mut() {
            sb.extents.truncate(count);
        }
        let first = &superblocks[0];
        let (fixed, per_extent) = (first.slots, first.unit / SLOT as u64);
        Self { fixed, per_extent, extents: first.extents.clone(), ..Self::default() }
    }

    /// What recovery found: free slots, and the ids of the files that have one.
    pub(crate) fn found(&mut self, free: Vec<u64>, files: HashSet<u64>) {
        self.last_file = files.iter().copied().max().unwrap_or(0);
        (self.free, self.files) = (free, files);
    }

    /// Begins the ids of an attach.
    pub(crate) fn begin(&mut self, attach_count: u64) {
        self.last_file = self.last_file.max(attach_count << 20) & Self::FILE_MASK;
    }

    /// Slots, used or free.
    pub(crate) fn len(&self) -> u64 {
        self.fixed + self.extents.len() as u64 * self.per_extent
    }

    /// Slots that only redo files get.
    fn kept_for_redo(&self) -> u64 {
        (self.len() / 8).min(REDO_SLOTS_MOST)
    }

    /// Slots that guests do not get, whatever the class of their files: those for redo, and a share
    /// for data besides.
    fn kept_from_guests(&self) -> u64 {
        self.kept_for_redo() + (self.len() / SHARE_NOT_GUESTS).max(1)
    }

    /// Free slots that such a file can have.
    pub(crate) fn free_for(&self, wanted: Wanted) -> u64 {
        let kept = match wanted {
            Wanted { guest: true, .. } => self.kept_from_guests(),
            Wanted { class: FileClass::Redo, .. } => 0,
            _ => self.kept_for_redo(),
        };
        (self.free.len() as u64).saturating_sub(kept)
    }

    /// A free slot for such a file.
    pub(crate) fn take(&mut self, wanted: Wanted) -> Option<u64> {
        if self.free_for(wanted) == 0 {
            return None;
        }
        // A redo file has slots of its own: that it got one says nothing of data files.
        let same = |refused: &mut Refused| refused.class == wanted.class;
        self.refused.take_if(same);
        if wanted.guest {
            self.refused_guest.take_if(same);
        }
        self.free.pop()
    }

    /// That the last such file got no slot.
    pub(crate) fn refused_as(&mut self, guest: bool) -> &mut Option<Refused> {
        if guest { &mut self.refused_guest } else { &mut self.refused }
    }

    /// What is to be told of those that got none: a guest's comes last.
    pub(crate) fn refusal(&self) -> Option<&Refused> {
        self.refused.as_ref().or(self.refused_guest.as_ref())
    }

    /// An id for a new file.
    pub(crate) fn new_id(&mut self) -> u64 {
        loop {
            self.last_file = (self.last_file + 1) & Self::FILE_MASK;
            if self.last_file != 0 && self.files.insert(self.last_file) {
                return self.last_file;
            }
        }
    }

    /// The file is gone, durably, and has left its slot if it had one.
    pub(crate) fn give(&mut self, slot: Option<u64>, file: u64) {
        self.free.extend(slot);
        self.files.remove(&file);
    }
}

impl Tier {
    /// Where a slot begins; `None` for one that the table does not have.
    pub(crate) fn slot(&self, number: u64) -> Option<Slot> {
        let table = self.table.lock();
        if number < table.fixed {
            return Some(Slot { number, at: WordAt::new(0, self.geometry.slot_at(number)) });
        }
        let beyond = number - table.fixed;
        let unit = *table.extents.get((beyond / table.per_extent) as usize)?;
        Some(Slot { number, at: self.slot_in(unit, beyond % table.per_extent) })
    }

    /// Every slot that the table has.
    pub(crate) fn each_slot(&self) -> impl Iterator<Item = Slot> + use<'_> {
        let len = self.table.lock().len();
        (0..len).map_while(|number| self.slot(number))
    }

    fn slot_in(&self, unit: u64, within: u64) -> WordAt {
        let (member, at) = self.geometry.locate(Frame(unit * self.geometry.unit_frames()));
        WordAt::new(member, at + within * SLOT as u64)
    }

    pub(crate) fn frames_of_unit(&self, unit: u64) -> impl Iterator<Item = Frame> + use<> {
        let frames = self.geometry.unit_frames();
        (unit * frames..(unit + 1) * frames).map(Frame)
    }

    pub(crate) fn table_counts(&self) -> TableCounts {
        let table = self.table.lock();
        let most = self.extents_most().max(table.extents.len() as u64);
        let units = self.geometry.units(self.superblocks.lock()[0].max_len);
        TableCounts {
            slots: table.len(),
            free: table.free.len() as u64,
            not_guests: table.kept_from_guests(),
            most: table.fixed + most * table.per_extent,
            maps_most: units.saturating_sub(most) * self.geometry.unit_frames(),
            extent_bytes: table.extents.len() as u64 * self.geometry.unit,
        }
    }

    /// Extents that the tier may have when it is as large as it may be.
    fn extents_most(&self) -> u64 {
        let max_len = self.superblocks.lock()[0].max_len;
        (self.geometry.units(max_len) / SHARE_MOST).min(EXTENTS_MAX as u64)
    }

    /// Whether the table may grow for such a file: of room that nobody misses (`at_ease`), or at
    /// all. What guests make it grow by, blocks of the home's owner cannot use.
    pub(crate) fn may_grow_table_for(&self, wanted: Wanted, at_ease: bool) -> bool {
        let most = self.extents_most();
        let kept = if wanted.guest { most.div_ceil(SHARE_NOT_GUESTS) } else { 0 };
        (self.table.lock().extents.len() as u64) < most - kept && self.may_grow_table(at_ease)
    }

    /// Whether the table may grow: of room that nobody misses (`at_ease`), or at all.
    pub(crate) fn may_grow_table(&self, at_ease: bool) -> bool {
        let extents = self.table.lock().extents.len() as u64;
        if extents >= self.extents_most() {
            return false;
        }
        let (free, total) = (self.allocator.free_frames(), self.allocator.total_frames());
        let units = total / self.geometry.unit_frames();
        !at_ease || (extents < units / SHARE_AT_EASE && free > total / 4)
    }

    /// Makes the table larger by an extent; `false` when no unit is free as a whole, or when it is
    /// as large as it may be.
    ///
    /// # Durability
    /// The larger table is durable on return.
    pub(crate) fn grow_table(&self) -> bool {
        if !self.may_grow_table(false) {
            return false;
        }
        let Some(unit) = self.allocator.take_unit() else { return false };
        let frames: Vec<Frame> = self.frames_of_unit(unit).collect();
        let claimed = frames.iter().take_while(|frame| self.own(**frame, 1)).count();
        if claimed < frames.len() {
            // Somebody still looks at a block that was there.
            frames[..claimed].iter().for_each(|frame| self.unlatch(*frame, 1));
            self.allocator.give_unit_back(unit);
            return false;
        }
        let named_first = self.planted.is(Planted::ExtentNamedFirst);
        if named_first {
            self.name_extent(unit);
        }
        let first = self.table.lock().len();
        let per_extent = self.geometry.unit / SLOT as u64;
        let at = self.page_at(frames[0]);
        let mut bytes = vec![0; FRAME];
        for frame in 0..frames.len() as u64 {
            let slots = (FRAME / SLOT) as u64;
            for n in 0..slots {
                let number = first + frame * slots + n;
                let word = seal_value(self.seed, 0, Place::Slot(number), 0);
                bytes[n as usize * SLOT..n as usize * SLOT + 8]
                    .copy_from_slice(&word.to_le_bytes());
            }
            self.write_meta(at.plus(frame * FRAME as u64), &bytes);
        }
        self.fence();
        if !named_first {
            self.name_extent(unit);
        }
        let mut table = self.table.lock();
        table.extents.push(unit);
        // The lowest number is taken first.
        let more: Vec<u64> = (first..first + per_extent).rev().collect();
        table.free.splice(0..0, more);
        log::info!("the file table of tier `{}` grew to {} files", self.name, table.len());
        true
    }

    /// Whether a byte of a member lies in an extent. False when the table is locked for so long.
    pub(crate) fn is_in_extent(&self, member: usize, at: u64, patience: Duration) -> bool {
        let Some(table) = self.table.try_lock_for(patience) else { return false };
        table.extents.iter().any(|unit| {
            let (on, start) = self.geometry.locate(Frame(unit * self.geometry.unit_frames()));
            on == member && (start..start + self.geometry.unit).contains(&at)
        })
    }

    /// At recovery: the units that the table has grown by are not free, and ours to write to.
    pub(crate) fn claim_extents(&self, census: &mut Census) -> Result<()> {
        let extents = self.table.lock().extents.clone();
        for unit in extents {
            for frame in self.frames_of_unit(unit) {
                let claimed = census.claim(frame, Purpose::Table).and_then(|()| {
                    let ours = self.latch(frame, 1);
                    if ours { Ok(()) } else { Err("its frames are taken".into()) }
                });
                claimed.map_err(|why| Error::Damaged {
                    path: self.members[0].path.clone(),
                    member: 0,
                    offset: 0,
                    structure: format!("superblock, extent of the file table in unit {unit}"),
                    detail: why,
                })?;
            }
        }
        Ok(())
    }

    /// Step 3.
    fn name_extent(&self, unit: u64) {
        self.update_superblocks(|sb| sb.extents.push(unit));
    }
}

#[cfg(test)]
mod tests {
    use super::{FileTable, REDO_SLOTS_MOST, Refused, Wanted};
    use crate::profile::FileClass;
    use std::time::Instant;

    const DATA: Wanted = Wanted { class: FileClass::Data, guest: false };
    const REDO: Wanted = Wanted { class: FileClass::Redo, guest: false };

    fn table(slots: u64, files: impl IntoIterator<Item = u64>) -> FileTable {
        let mut table = FileTable { fixed: slots, per_extent: 32, ..FileTable::default() };
        table.found((0..slots).collect(), files.into_iter().collect());
        table
    }

    #[test]
    fn an_id_is_never_zero_nor_that_of_a_file_that_is_there_when_the_numbers_come_again() {
        let first = (1 << 20) + 1;
        let mut numbers = table(9, [first, first + 1]);
        numbers.begin((1 << 20) + 1);
        assert_eq!((numbers.take(REDO), numbers.new_id()), (Some(8), first + 2));
        numbers.give(Some(8), first + 2);
        numbers.begin(1 << 20);
        numbers.last_file = FileTable::FILE_MASK;
        assert_eq!((numbers.take(REDO), numbers.new_id()), (Some(8), 1));
    }

    #[test]
    fn a_slot_for_redo_does_not_end_that_a_data_file_was_refused() {
        let mut table = table(32, []);
        while table.take(DATA).is_some() {}
        let (at, message) = (Instant::now(), String::new());
        table.refused = Some(Refused { at, class: FileClass::Data, message });
        assert!(table.take(REDO).is_some() && table.refused.is_some());
        (0..5).for_each(|slot| table.give(Some(slot), 0));
        assert!(table.take(DATA).is_some() && table.refused.is_none());
    }

    #[test]
    fn an_eighth_of_the_slots_or_64_are_for_redo_files_only() {
        for (slots, kept) in [(6, 0), (32, 4), (4096, REDO_SLOTS_MOST)] {
            let mut table = table(slots, []);
            let data = std::iter::from_fn(|| table.take(DATA)).count() as u64;
            assert_eq!(data, slots - kept);
            let redo = std::iter::from_fn(|| table.take(REDO)).count() as u64;
            assert_eq!(redo, kept);
        }
    }

    #[test]
    fn guests_leave_an_eighth_of_the_slots_or_one_besides_those_for_redo() {
        for (slots, redo, owner) in [(6, 0, 1), (32, 4, 4), (4096, REDO_SLOTS_MOST, 512)] {
            for class in [FileClass::Data, FileClass::Redo] {
                let mut table = table(slots, []);
                let guest = Wanted { class, guest: true };
                let guests = std::iter::from_fn(|| table.take(guest)).count() as u64;
                assert_eq!(guests, slots - redo - owner, "{class:?}");
                let data = std::iter::from_fn(|| table.take(DATA)).count() as u64;
                let rest = std::iter::from_fn(|| table.take(REDO)).count() as u64;
                assert_eq!((data, rest), (owner, redo), "{class:?}");
            }
        }
    }

    #[test]
    fn a_slot_for_the_owner_does_not_end_that_a_guest_was_refused() {
        let mut table = table(32, []);
        let guest = Wanted { guest: true, ..DATA };
        while table.take(guest).is_some() {}
        let refused =
            || Some(Refused { at: Instant::now(), class: FileClass::Data, message: String::new() });
        (table.refused, table.refused_guest) = (refused(), refused());
        assert!(
            table.take(DATA).is_some() && table.refused.is_none() && table.refused_guest.is_some()
        );
        (0..9).for_each(|slot| table.give(Some(slot), 0));
        assert!(table.take(guest).is_some() && table.refused_guest.is_none());
    }
}

//! Space: slots of slabs, and runs of units.
//!
//! What is taken is marked in the overlay and so belongs to the transaction. What is given back
//! stays marked until the commit ([`Heap::settle_frees`]): within a transaction no byte is used
//! twice, because the committed state may still point to it, and because a range's checksum names
//! it.
//!
//! A part of the units is kept in reserve ([`Heap::open_reserve`]) for what gives space back, and
//! needs some first: an HDEL writes a small hash anew. It takes less than it gives back, so
//! whatever slot is free by then is large enough for the next.

use super::units::{NONE, Units};
use super::{Damage, Freed, Full, Heap};
use crate::format::{UNIT, USED, Unit, class};
use crate::planted::Planted;

impl Heap {
    /// Takes space for `len` bytes; returns where, and the class as an entry names it.
    ///
    /// # Errors
    /// [`Full`]; the caller takes back what its command did.
    pub fn alloc(&mut self, len: u64) -> Result<(u64, u16), Full> {
        match class::of(len) {
            Some(class) => match self.alloc_slot(class) {
                Err(Full) if self.units.is_reserve_open() => self.alloc_anywhere(len, class),
                found => Ok((found?, u16::from(class))),
            },
            None => {
                let at = self.alloc_run(len.div_ceil(UNIT))?;
                Ok((at, class::RUN))
            }
        }
    }

    /// Takes space wherever there is some: a larger slot, or a run. Only for what gives back more
    /// than it takes, in a full heap.
    fn alloc_anywhere(&mut self, len: u64, class: u8) -> Result<(u64, u16), Full> {
        for larger in class + 1..class::COUNT {
            if let Ok(at) = self.slot_of(larger, false) {
                return Ok((at, u16::from(larger)));
            }
        }
        Ok((self.alloc_run(len.div_ceil(UNIT))?, class::RUN))
    }

    /// Takes a run of units.
    ///
    /// # Errors
    /// [`Full`].
    pub fn alloc_run(&mut self, units: u64) -> Result<u64, Full> {
        let first = self.units.take(units, 1).ok_or(Full)?;
        self.taken.push((first, units));
        self.set(self.plan.unit_word_at(first), Unit::Run(units).encode());
        self.add(USED, (units * UNIT) as i64);
        Ok(self.plan.unit_at(first))
    }

    /// Takes a slot.
    ///
    /// # Errors
    /// [`Full`].
    pub fn alloc_slot(&mut self, class: u8) -> Result<u64, Full> {
        self.slot_of(class, true)
    }

    /// Takes a slot of a slab that is there, or of a new one.
    fn slot_of(&mut self, class: u8, new_slab: bool) -> Result<u64, Full> {
        loop {
            let state = &self.units.classes[usize::from(class)];
            let (unit, mut word) = (state.current, state.word);
            if unit != NONE {
                let slab = self.plan.unit_at(unit);
                let slots = class::slots(class);
                while word * 64 < slots {
                    let bits = self.word(slab + word * 8);
                    let bit = u64::from((bits | self.held_bits(slab + word * 8)).trailing_ones());
                    if bit < 64 && word * 64 + bit < slots {
                        self.set(slab + word * 8, bits | 1 << bit);
                        self.units.classes[usize::from(class)].word = word;
                        self.add(USED, class::size(class) as i64);
                        let slot = word * 64 + bit;
                        return Ok(slab + class::header(class) + slot * class::size(class));
                    }
                    word += 1;
                }
            }
            let next = self.next_slab(class, new_slab)?;
            if unit != NONE {
                self.left.push((class, unit));
            }
            let state = &mut self.units.classes[usize::from(class)];
            (state.current, state.word) = (next, 0);
        }
    }

    /// A slab that may have a free slot: one that is there, or a new one.
    fn next_slab(&mut self, class: u8, new_slab: bool) -> Result<u64, Full> {
        while let Some(unit) = self.units.candidate(class) {
            // It may have become something else since it was listed.
            let word = self.word(self.plan.unit_word_at(unit));
            if word == Unit::Slab(class).encode() {
                return Ok(unit);
            }
        }
        if !new_slab {
            return Err(Full);
        }
        let shape = Units::shape(class);
        let first = self.units.take(shape, shape).ok_or(Full)?;
        self.taken.push((first, shape));
        if !self.planted.is(Planted::SlabNotCleared) {
            self.fresh_zeros(self.plan.unit_at(first), class::header(class));
        }
        self.set(self.plan.unit_word_at(first), Unit::Slab(class).encode());
        Ok(first)
    }

    /// Gives back what [`Heap::alloc`] returned.
    pub fn free(&mut self, at: u64, class: u16) {
        match u8::try_from(class) {
            Ok(class) => self.free_slot(at, class),
            Err(_) => self.free_run(at),
        }
    }

    /// Gives back a slot.
    pub fn free_slot(&mut self, at: u64, class: u8) {
        let Some((_, word_at, bit)) = self.place_of(at, class) else {
            let what = format!("the slot at {at} of class {class} is none that is in use");
            return self.note(Damage::Structure(what));
        };
        self.add(USED, -(class::size(class) as i64));
        if self.planted.is(Planted::ReuseInTransaction) {
            let bits = self.word(word_at);
            self.set(word_at, bits & !bit);
            self.units.classes[usize::from(class)].word = 0;
            return;
        }
        self.note_short_life(self.map.load_u64(word_at) & bit == 0);
        self.frees.push(Freed::Slot { at, class });
    }

    /// Gives back a run.
    pub fn free_run(&mut self, at: u64) {
        let Some(units) = self.run_units(at) else { return };
        self.add(USED, -((units * UNIT) as i64));
        let unit_word_at = self.plan.unit_word_at(self.plan.unit_of(at));
        self.note_short_life(self.map.load_u64(unit_word_at) == 0);
        self.frees.push(Freed::Run { at });
    }

    /// What this transaction took and gives back may be used by the next one, while this one's
    /// record may still be the last that is whole: its bytes must not be among the record's ranges.
    fn note_short_life(&mut self, short: bool) {
        if short && !self.planted.is(Planted::ShortLifeInRecord) {
            self.fence_ahead = true;
        }
    }

    /// How many units the run at `at` has; nothing and a note if there is none.
    pub fn run_units(&self, at: u64) -> Option<u64> {
        let units = self.run_of(at);
        if units.is_none() {
            self.note(Damage::Structure(format!("no run is at {at}, where one was expected")));
        }
        units
    }

    fn run_of(&self, at: u64) -> Option<u64> {
        let from = at.checked_sub(self.plan.heap_at)?;
        let unit = from / UNIT;
        if !from.is_multiple_of(UNIT) || unit >= self.plan.units {
            return None;
        }
        match Unit::decode(self.word(self.plan.unit_word_at(unit)))? {
            Unit::Run(units) if units <= self.plan.units - unit => Some(units),
            _ => None,
        }
    }

    /// The first unit of a slot's slab, where its word of the bitmap is, and its bit in it; nothing
    /// if no slot of this class that is in use is there.
    fn place_of(&self, at: u64, class: u8) -> Option<(u64, u64, u64)> {
        let unit = at.checked_sub(self.plan.heap_at)? / UNIT;
        if class >= class::COUNT || unit >= self.plan.units {
            return None;
        }
        let shape = Units::shape(class);
        let first = unit / shape * shape;
        let slab = self.plan.unit_at(first);
        let from = at.checked_sub(slab + class::header(class))?;
        let slot = from / class::size(class);
        let (word_at, bit) = (slab + slot / 64 * 8, 1 << (slot % 64));
        let is_slot = from.is_multiple_of(class::size(class))
            && slot < class::slots(class)
            && self.word(self.plan.unit_word_at(first)) == Unit::Slab(class).encode()
            && self.word(word_at) & bit != 0;
        is_slot.then_some((first, word_at, bit))
    }

    /// Makes free what was given back; returns the units that are free after the commit.
    ///
    /// Words that were changed within what is given back are not part of the commit: the next one
    /// may write its bytes there, and recovery stores this one's words after that.
    pub(super) fn settle_frees(&mut self) -> Vec<(u64, u64)> {
        let (mut released, mut dead) = (Vec::new(), Vec::new());
        for freed in std::mem::take(&mut self.frees) {
            match freed {
                Freed::Run { at } => {
                    // A damaged index may have named it twice.
                    let Some(units) = self.run_of(at) else { continue };
                    let first = self.plan.unit_of(at);
                    released.push((first, units));
                    dead.push((at, units * UNIT));
                    self.set(self.plan.unit_word_at(first), Unit::Free.encode());
                }
                Freed::Slot { at, class } => {
                    let Some((first, word_at, bit)) = self.place_of(at, class) else { continue };
                    let bits = self.word(word_at);
                    self.set(word_at, bits & !bit);
                    dead.push((at, class::size(class)));
                    if bits & !bit == 0 && self.is_empty_slab(first, class) {
                        released.push((first, Units::shape(class)));
                        // Its bitmap too.
                        dead.push((self.plan.unit_at(first), class::header(class)));
                        self.set(self.plan.unit_word_at(first), Unit::Free.encode());
                        self.units.forget(first);
                    } else {
                        self.note_held_slab(class, first);
                        self.units.list(class, first);
                        let state = &mut self.units.classes[usize::from(class)];
                        if state.current == first {
                            let word = (word_at - self.plan.unit_at(first)) / 8;
                            state.word = state.word.min(word);
                        }
                    }
                }
            }
        }
        if !self.planted.is(Planted::DeadWordsInRecord) {
            dead.sort_unstable();
            self.overlay.forget(&dead);
        }
        released
    }

    /// Whether a slab can go: it has no slot in use, and is not the one its class goes on with,
    /// unless it is one of many units: each class of large slots would keep a MiB for ever.
    fn is_empty_slab(&self, first: u64, class: u8) -> bool {
        let slab = self.plan.unit_at(first);
        (self.units.classes[usize::from(class)].current != first || Units::shape(class) > 1)
            && (0..class::slots(class).div_ceil(64)).all(|word| self.word(slab + word * 8) == 0)
    }

    /// Lets the next commands use the reserve, or not: those that give space back.
    pub fn open_reserve(&mut self, open: bool) {
        self.units.open_reserve(open);
    }
}

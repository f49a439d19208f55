//! Which units are free, and which slabs may have a free slot: in ordinary memory, made from the
//! unit table at open.
//!
//! Hints only as far as slabs go: whoever takes a candidate looks at its unit word and bitmap.

use crate::format::class::{self, COUNT};

/// No slab.
pub(super) const NONE: u64 = u64::MAX;

/// Where a class takes its next slot from.
#[derive(Clone, Debug)]
pub(super) struct Class {
    /// The first unit of a slab, or [`NONE`].
    pub(super) current: u64,
    /// The word of its bitmap to look at first.
    pub(super) word: u64,
    /// Slabs that may have a free slot.
    pub(super) candidates: Vec<u64>,
}

/// The free units, and the classes.
#[derive(Debug)]
pub(super) struct Units {
    /// One bit a unit: 1 = free.
    free: Vec<u64>,
    count: u64,
    free_count: u64,
    /// No unit before this word of `free` is free.
    hint: usize,
    pub(super) classes: Vec<Class>,
    /// One bit a unit: it is among the candidates of its class.
    listed: Vec<u64>,
    /// Whether the reserve may be used.
    reserve_open: bool,
}

/// One of so many units is kept in reserve.
const RESERVE_SHARE: u64 = 32;
/// Units that are enough of a reserve.
const RESERVE_MOST: u64 = 256;

impl Units {
    /// None free.
    pub(super) fn new(count: u64) -> Units {
        let words = count.div_ceil(64) as usize;
        let class = Class { current: NONE, word: 0, candidates: Vec::new() };
        Units {
            free: vec![0; words],
            count,
            free_count: 0,
            hint: 0,
            classes: vec![class; usize::from(COUNT)],
            listed: vec![0; words],
            reserve_open: false,
        }
    }

    pub(super) fn free_count(&self) -> u64 {
        self.free_count
    }

    fn is_free(&self, unit: u64) -> bool {
        self.free[(unit / 64) as usize] >> (unit % 64) & 1 == 1
    }

    /// Makes units free.
    pub(super) fn give(&mut self, first: u64, units: u64) {
        for unit in first..first + units {
            debug_assert!(!self.is_free(unit), "BUG: unit {unit} is freed twice");
            self.free[(unit / 64) as usize] |= 1 << (unit % 64);
            self.listed[(unit / 64) as usize] &= !(1 << (unit % 64));
        }
        self.free_count += units;
        self.hint = self.hint.min((first / 64) as usize);
    }

    pub(super) fn open_reserve(&mut self, open: bool) {
        self.reserve_open = open;
    }

    pub(super) fn is_reserve_open(&self) -> bool {
        self.reserve_open
    }

    /// Takes `units` free ones that follow each other, the first at a multiple of `align`; the
    /// reserve only while it is open.
    pub(super) fn take(&mut self, units: u64, align: u64) -> Option<u64> {
        let reserve = (self.count / RESERVE_SHARE).min(RESERVE_MOST);
        let reserve = if self.reserve_open { 0 } else { reserve };
        if units.saturating_add(reserve) > self.free_count {
            None
        } else {
            self.take_any(units, align)
        }
    }

    /// The same, also from the reserve.
    pub(super) fn take_any(&mut self, units: u64, align: u64) -> Option<u64> {
        if units > self.free_count {
            return None;
        }
        while self.free.get(self.hint).is_some_and(|word| *word == 0) {
            self.hint += 1;
        }
        let mut first = (self.hint as u64 * 64).next_multiple_of(align);
        while first + units <= self.count {
            if self.free[(first / 64) as usize] == 0 {
                first = ((first / 64 + 1) * 64).next_multiple_of(align);
                continue;
            }
            match (first..first + units).rev().find(|unit| !self.is_free(*unit)) {
                Some(used) => first = (used + 1).next_multiple_of(align),
                None => {
                    self.take_at(first, units);
                    return Some(first);
                }
            }
        }
        None
    }

    /// A slab of this class may have a free slot now.
    pub(super) fn list(&mut self, class: u8, unit: u64) {
        let state = &mut self.classes[usize::from(class)];
        let listed = &mut self.listed[(unit / 64) as usize];
        if state.current != unit && *listed >> (unit % 64) & 1 == 0 {
            *listed |= 1 << (unit % 64);
            state.candidates.push(unit);
        }
    }

    /// Takes a candidate of this class from the list.
    pub(super) fn candidate(&mut self, class: u8) -> Option<u64> {
        let unit = self.classes[usize::from(class)].candidates.pop()?;
        self.listed[(unit / 64) as usize] &= !(1 << (unit % 64));
        Some(unit)
    }

    /// Looks at every slot again of the slabs that the classes go on with.
    pub(super) fn look_again(&mut self) {
        self.classes.iter_mut().for_each(|state| state.word = 0);
    }

    /// Takes these units if all of them are free; whether they were.
    pub(super) fn set_aside(&mut self, first: u64, units: u64) -> bool {
        let all =
            first + units <= self.count && (first..first + units).all(|unit| self.is_free(unit));
        if all {
            self.take_at(first, units);
        }
        all
    }

    fn take_at(&mut self, first: u64, units: u64) {
        for unit in first..first + units {
            self.free[(unit / 64) as usize] &= !(1 << (unit % 64));
        }
        self.free_count -= units;
    }

    /// Forgets slabs that were taken and are given back: no class goes on with them.
    pub(super) fn forget(&mut self, unit: u64) {
        for state in &mut self.classes {
            if state.current == unit {
                (state.current, state.word) = (NONE, 0);
            }
        }
    }

    /// The units of a slab of a class, and what its first is a multiple of.
    pub(super) fn shape(class: u8) -> u64 {
        class::slab_units(class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_free_aligned_and_never_given_twice() {
        let mut units = Units::new(300);
        units.give(0, 300);
        let mut random = fastrand::Rng::with_seed(7);
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for _ in 0..3000 {
            if random.bool() {
                let (count, align) =
                    *random.choice(&[(1, 1), (3, 1), (16, 16), (40, 1)]).expect("one");
                if let Some(first) = units.take(count, align) {
                    assert!(first.is_multiple_of(align) && first + count <= 300);
                    assert!(taken.iter().all(|(at, n)| at + n <= first || first + count <= *at));
                    taken.push((first, count));
                }
            } else if !taken.is_empty() {
                let (first, count) = taken.swap_remove(random.usize(..taken.len()));
                units.give(first, count);
            }
            let used: u64 = taken.iter().map(|(_, count)| count).sum();
            assert_eq!(units.free_count(), 300 - used);
        }
    }
}

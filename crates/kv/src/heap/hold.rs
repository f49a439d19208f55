//! The heap as it was at one commit, while it goes on changing: what a replica's copy is made of.
//!
//! [`Heap::hold`] takes no time. From then on every commit keeps, in ordinary memory, the words
//! that it changes as they were before; and what is given back is not taken again. So whatever the
//! words of that moment pointed to is still there. [`Heap::look_back`] lets reads see those words.
//!
//! **Invariant**: while a moment is held, no byte is written that it can reach: new bytes go into
//! space that was free then and is free now.
//!
//! Nothing of it is on the medium: a killed server has forgotten it, and has lost no space.

use std::collections::HashSet;

use super::Heap;
use super::overlay::Overlay;
use crate::planted::Planted;

/// What is kept of the moment.
#[derive(Debug)]
pub(super) struct Held {
    /// Words as they were, those that have changed since.
    words: Overlay,
    /// Units that became free since.
    units: Vec<(u64, u64)>,
    /// Slabs in which slots became free since, with their classes.
    slabs: HashSet<(u8, u64)>,
}

impl Heap {
    /// Holds what the last commit made. Nothing may be changed and not committed.
    pub(crate) fn hold(&mut self) {
        debug_assert!(
            self.overlay.lines().is_empty(),
            "BUG: a moment within a transaction is held"
        );
        self.held = Some(Box::new(Held {
            words: Overlay::new(),
            units: Vec::new(),
            slabs: HashSet::new(),
        }));
    }

    /// Forgets the moment; the space that it kept is free.
    pub(crate) fn let_go(&mut self) {
        let Some(held) = self.held.take() else { return };
        for (first, units) in held.units {
            self.units.give(first, units);
        }
        for (class, unit) in held.slabs {
            self.units.list(class, unit);
        }
        self.units.look_again();
    }

    /// Whether a moment is held.
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Lines of words that are kept of it.
    pub(crate) fn held_lines(&self) -> usize {
        self.held.as_ref().map_or(0, |held| held.words.lines().len())
    }

    /// Whether the moment keeps units while few are left.
    pub(crate) fn is_short_of_units(&self) -> bool {
        let keeps = self.held.as_ref().is_some_and(|held| !held.units.is_empty());
        keeps && self.unused_units() < self.size() / 16
    }

    /// Lets reads see the moment until this is said again. Nothing may be changed in between, nor
    /// be changed and not committed before.
    pub(crate) fn look_back(&mut self) {
        if let Some(held) = &mut self.held {
            std::mem::swap(&mut self.overlay, &mut held.words);
        }
    }

    /// The bits of a bitmap's word that were set at that moment: their slots are not free.
    #[inline]
    pub(super) fn held_bits(&self, at: u64) -> u64 {
        match &self.held {
            None => 0,
            Some(_) if self.planted.is(Planted::HeldSpaceReused) => 0,
            Some(held) => held.words.get(at).unwrap_or(0),
        }
    }

    /// Keeps the words that this commit is about to change.
    pub(super) fn keep_words(&mut self) {
        let Some(held) = &mut self.held else { return };
        if self.planted.is(Planted::HeldWordsNotKept) {
            return;
        }
        for line in self.overlay.lines().iter().filter(|line| line.mask != 0) {
            for word in (0..8).filter(|word| line.mask >> word & 1 == 1) {
                let at = line.at + word * 8;
                if held.words.get(at).is_none() {
                    held.words.keep(at, self.map.load_u64(at));
                }
            }
        }
    }

    /// Units that a commit has made free: for later, while a moment is held.
    pub(super) fn give_units(&mut self, released: Vec<(u64, u64)>) {
        match &mut self.held {
            Some(held) => held.units.extend(released),
            None => released.into_iter().for_each(|(first, units)| self.units.give(first, units)),
        }
    }

    /// A slot of this slab becomes free.
    pub(super) fn note_held_slab(&mut self, class: u8, first: u64) {
        if let Some(held) = &mut self.held {
            held.slabs.insert((class, first));
        }
    }
}

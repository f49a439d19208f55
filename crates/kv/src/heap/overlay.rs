//! Words that are changed but not committed, by cache line, in ordinary memory.
//!
//! A read of a word looks here first. Savepoints: what was changed since one can be taken back.
//! Emptied by raising a generation, so that a commit of a few lines costs a few lines.

use crate::format::record::Line;

/// The changed lines.
#[derive(Debug)]
pub(super) struct Overlay {
    lines: Vec<Line>,
    /// Open addressing; a slot of this generation holds the number of a line.
    table: Vec<(u32, u32)>,
    generation: u32,
    changes: Vec<Change>,
}

/// How to take back one change of a word.
#[derive(Debug)]
struct Change {
    line: u32,
    word: u8,
    was_changed: bool,
    value: u64,
}

impl Overlay {
    pub(super) fn new() -> Overlay {
        Overlay { lines: Vec::new(), table: vec![(0, 0); 1024], generation: 1, changes: Vec::new() }
    }

    pub(super) fn lines(&self) -> &[Line] {
        &self.lines
    }

    fn slot(&self, at: u64) -> usize {
        let mixed = (at / 64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> (64 - self.table.len().ilog2())) as usize
    }

    /// The line at `at`, or the slot of the table where it belongs.
    #[inline]
    fn find(&self, at: u64) -> Result<usize, usize> {
        let mut slot = self.slot(at);
        loop {
            let (generation, line) = self.table[slot];
            if generation != self.generation {
                return Err(slot);
            }
            if self.lines[line as usize].at == at {
                return Ok(line as usize);
            }
            slot = (slot + 1) & (self.table.len() - 1);
        }
    }

    /// The line at `at`, if a word of it may be changed.
    #[inline]
    pub(super) fn line(&self, at: u64) -> Option<&Line> {
        if self.lines.is_empty() {
            return None;
        }
        self.find(at).ok().map(|line| &self.lines[line])
    }

    /// The changed word at `at`, if it is changed.
    #[inline]
    pub(super) fn get(&self, at: u64) -> Option<u64> {
        let line = self.line(at & !63)?;
        let word = (at / 8 % 8) as usize;
        (line.mask >> word & 1 == 1).then(|| line.words[word])
    }

    /// Changes the word at `at`.
    #[inline]
    pub(super) fn set(&mut self, at: u64, value: u64) {
        let line = match self.find(at & !63) {
            Ok(line) => line,
            Err(slot) => self.add(at & !63, slot),
        };
        let word = (at / 8 % 8) as u8;
        let found = &mut self.lines[line];
        let was_changed = found.mask >> word & 1 == 1;
        let before = found.words[usize::from(word)];
        found.mask |= 1 << word;
        found.words[usize::from(word)] = value;
        self.changes.push(Change { line: line as u32, word, was_changed, value: before });
    }

    /// Keeps a word that is not there yet, which is never taken back.
    pub(super) fn keep(&mut self, at: u64, value: u64) {
        let line = match self.find(at & !63) {
            Ok(line) => line,
            Err(slot) => self.add(at & !63, slot),
        };
        let word = (at / 8 % 8) as usize;
        self.lines[line].mask |= 1 << word;
        self.lines[line].words[word] = value;
    }

    fn add(&mut self, at: u64, slot: usize) -> usize {
        let line = self.lines.len();
        self.lines.push(Line { at, mask: 0, words: [0; 8] });
        self.table[slot] = (self.generation, line as u32);
        if self.lines.len() * 2 > self.table.len() {
            self.table = vec![(0, 0); self.table.len() * 2];
            self.generation = 1;
            for number in 0..self.lines.len() {
                if let Err(slot) = self.find(self.lines[number].at) {
                    self.table[slot] = (1, number as u32);
                }
            }
        }
        line
    }

    /// Where [`Overlay::take_back`] goes back to.
    pub(super) fn savepoint(&self) -> usize {
        self.changes.len()
    }

    /// Takes back what was changed since the savepoint.
    pub(super) fn take_back(&mut self, savepoint: usize) {
        for change in self.changes.drain(savepoint..).rev() {
            let line = &mut self.lines[change.line as usize];
            line.words[usize::from(change.word)] = change.value;
            if !change.was_changed {
                line.mask &= !(1 << change.word);
            }
        }
    }

    /// Forgets what was changed within these places, offsets and lengths in ascending order, none
    /// in another.
    pub(super) fn forget(&mut self, places: &[(u64, u64)]) {
        if places.is_empty() {
            return;
        }
        for line in self.lines.iter_mut().filter(|line| line.mask != 0) {
            let mut next = places.partition_point(|(from, len)| from + len <= line.at);
            while let Some((from, len)) = places.get(next).filter(|(from, _)| *from < line.at + 64)
            {
                for word in
                    (0..8).filter(|word| (*from..from + len).contains(&(line.at + word * 8)))
                {
                    line.mask &= !(1 << word);
                }
                next += 1;
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.lines.clear();
        self.changes.clear();
        // After a transaction of millions of lines the memory goes back.
        if self.table.len() > 1 << 18 {
            *self = Overlay::new();
        }
        match self.generation.checked_add(1) {
            Some(next) => self.generation = next,
            None => *self = Overlay::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_until_they_are_taken_back() {
        let mut overlay = Overlay::new();
        let mut random = fastrand::Rng::with_seed(1);
        let mut model = std::collections::HashMap::new();
        for round in 0..5 {
            for _ in 0..3000 {
                let (at, value) = (random.u64(..8192) * 8, random.u64(..));
                overlay.set(at, value);
                model.insert(at, value);
            }
            let savepoint = overlay.savepoint();
            for _ in 0..300 {
                overlay.set(random.u64(..8192) * 8, 1);
            }
            overlay.take_back(savepoint);
            for at in (0..65536).step_by(8) {
                assert_eq!(overlay.get(at), model.get(&at).copied(), "{at} in round {round}");
            }
            overlay.clear();
            model.clear();
            assert_eq!(overlay.get(8), None);
        }
    }
}

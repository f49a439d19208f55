//! Where a transaction's new bytes are, whose checksum is in its record.
//!
//! A debug build also knows quickly whether a place is among them, however many there are: every
//! change of a word asks.

#[cfg(debug_assertions)]
use std::collections::BTreeMap;

/// The ranges, in the order in which they were written.
#[derive(Default)]
pub(super) struct Ranges {
    all: Vec<(u64, u64)>,
    /// The same places, from where to where, without overlaps.
    #[cfg(debug_assertions)]
    covered: BTreeMap<u64, u64>,
    /// Some were taken back, and `covered` is to be made anew.
    #[cfg(debug_assertions)]
    stale: bool,
}

impl Ranges {
    #[inline]
    pub(super) fn push(&mut self, at: u64, len: u64) {
        self.all.push((at, len));
        #[cfg(debug_assertions)]
        if !self.stale {
            cover(&mut self.covered, at, len);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, (u64, u64)> {
        self.all.iter()
    }

    /// Forgets all but the first `len`.
    pub(super) fn truncate(&mut self, len: usize) {
        #[cfg(debug_assertions)]
        {
            self.stale |= len < self.all.len();
        }
        self.all.truncate(len);
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
        #[cfg(debug_assertions)]
        {
            self.covered.clear();
            self.stale = false;
        }
    }

    /// Whether a byte is in one of them.
    #[cfg(debug_assertions)]
    pub(super) fn has(&mut self, at: u64) -> bool {
        if std::mem::take(&mut self.stale) {
            self.covered.clear();
            for (at, len) in &self.all {
                cover(&mut self.covered, *at, *len);
            }
        }
        self.covered.range(..=at).next_back().is_some_and(|(_, end)| at < *end)
    }
}

#[cfg(debug_assertions)]
fn cover(covered: &mut BTreeMap<u64, u64>, at: u64, len: u64) {
    if len == 0 {
        return;
    }
    let (mut from, mut to) = (at, at + len);
    while let Some((first, end)) = covered.range(..=to).next_back().map(|(f, e)| (*f, *e))
        && end >= from
    {
        covered.remove(&first);
        (from, to) = (from.min(first), to.max(end));
    }
    covered.insert(from, to);
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_in_the_ranges_if_one_of_them_has_it() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let mut ranges = Ranges::default();
            for _ in 0..random.usize(..60) {
                match random.u8(..10) {
                    0 => ranges.truncate(random.usize(..=ranges.len())),
                    1 => ranges.clear(),
                    _ => ranges.push(random.u64(..200), random.u64(..12)),
                }
                let at = random.u64(..220);
                let expected = ranges.iter().any(|(from, len)| *from <= at && at < from + len);
                assert_eq!(ranges.has(at), expected, "{at}");
            }
        }
    }
}

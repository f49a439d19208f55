//! The last bytes of the stream that replicas follow, in ordinary memory.

use std::collections::VecDeque;

/// Bytes of the stream up to its end.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    bytes: VecDeque<u8>,
    /// The position before the first of them.
    first: u64,
}

impl Backlog {
    /// Nothing, at this position.
    pub(super) fn at(position: u64) -> Backlog {
        Backlog { bytes: VecDeque::new(), first: position }
    }

    pub(super) fn first(&self) -> u64 {
        self.first
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// The position behind the last byte.
    pub(super) fn end(&self) -> u64 {
        self.first + self.len()
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Appends up to `most` bytes behind this position to `into`; how many, or nothing if they are
    /// not there any more.
    pub(super) fn copy(&self, position: u64, most: usize, into: &mut Vec<u8>) -> Option<usize> {
        let from = usize::try_from(position.checked_sub(self.first)?).ok()?;
        let count = self.bytes.len().checked_sub(from)?.min(most);
        let (one, other) = self.bytes.as_slices();
        let cut = |from: usize| from.min(one.len());
        into.extend_from_slice(&one[cut(from)..cut(from + count)]);
        let behind = |at: usize| at.saturating_sub(one.len());
        into.extend_from_slice(&other[behind(from)..behind(from + count)]);
        Some(count)
    }

    /// Forgets the bytes up to this position.
    pub(super) fn forget(&mut self, position: u64) {
        let count = position.saturating_sub(self.first).min(self.len());
        self.bytes.drain(..count as usize);
        self.first += count;
        if self.bytes.is_empty() || self.bytes.capacity() / 4 > self.bytes.len().max(1 << 20) {
            self.bytes.shrink_to(2 << 20);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_that_is_kept_is_the_one_of_its_position() {
        let mut backlog = Backlog::at(1000);
        let byte = |position: u64| (position % 251) as u8;
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..2000 {
            let end = backlog.end();
            let bytes: Vec<u8> = (end..end + random.u64(..50)).map(byte).collect();
            backlog.push(&bytes);
            backlog.forget(backlog.end().saturating_sub(random.u64(100..200)));
            let from = random.u64(backlog.first()..=backlog.end());
            let mut found = Vec::new();
            let count = backlog.copy(from, 60, &mut found).expect("it is kept") as u64;
            assert_eq!(count, (backlog.end() - from).min(60));
            assert!(found.iter().zip(from..).all(|(found, position)| *found == byte(position)));
        }
        assert_eq!(backlog.copy(backlog.first() - 1, 1, &mut Vec::new()), None);
        assert_eq!(backlog.copy(backlog.end() + 1, 1, &mut Vec::new()), None);
    }
}

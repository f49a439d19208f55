//! Names that a client has asked for: channels, patterns, prefixes of keys. What they take of its
//! memory is kept as a sum, since `maxmemory-clients` asks for that after every batch.

use std::collections::BTreeSet;
use std::collections::btree_set::{IntoIter, Iter};

/// Different names.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    all: BTreeSet<Vec<u8>>,
    /// Their own, together.
    bytes: usize,
}

impl Names {
    /// Adds one; whether it was not there.
    pub(crate) fn insert(&mut self, name: &[u8]) -> bool {
        let is_new = self.all.insert(name.to_vec());
        if is_new {
            self.bytes += name.len();
        }
        is_new
    }

    /// Removes one; whether it was there.
    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        let was_there = self.all.remove(name);
        if was_there {
            self.bytes -= name.len();
        }
        was_there
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Bytes of memory that they take, each with so many beside its own.
    pub(crate) fn bytes(&self, beside: usize) -> usize {
        self.bytes + self.len() * beside
    }

    pub(crate) fn iter(&self) -> Iter<'_, Vec<u8>> {
        self.all.iter()
    }
}

impl IntoIterator for Names {
    type Item = Vec<u8>;
    type IntoIter = IntoIter<Vec<u8>>;

    fn into_iter(self) -> IntoIter<Vec<u8>> {
        self.all.into_iter()
    }
}

impl<'a> IntoIterator for &'a Names {
    type Item = &'a Vec<u8>;
    type IntoIter = Iter<'a, Vec<u8>>;

    fn into_iter(self) -> Iter<'a, Vec<u8>> {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_the_names_that_are_there() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut names = Names::default();
        for _ in 0..2000 {
            let name = vec![b'x'; random.usize(..40)];
            if random.bool() {
                names.insert(&name)
            } else {
                names.remove(&name)
            };
            let sum: usize = names.iter().map(|name| name.len() + 64).sum();
            assert_eq!(names.bytes(64), sum);
        }
    }
}

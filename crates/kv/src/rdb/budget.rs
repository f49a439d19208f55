//! How much memory the values of a dump may take while they are read.
//!
//! A value is in memory as a whole before it is put into the tier. A few megabytes of a dump can
//! unpack to gigabytes of elements, so they are counted as they are made, and reading ends before
//! there are too many. What an element costs beside its bytes is counted as well.

use super::Error;

/// Bytes that an element takes beside its own: its place in a list, and what the allocator adds.
const ELEMENT: u64 = 64;
/// The most for one value, however large the tier is.
const VALUE_MAX: u64 = 4 << 30;
/// A dump that unpacks to so many times what the tier holds is no dump of live keys.
const TIERS: u64 = 4;

/// What the values of a dump may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory for one value.
    pub value: u64,
    /// Bytes for all values together, also for those that are not kept.
    pub file: u64,
}

impl Limits {
    /// For a tier with a heap of so many bytes: more than it holds is never of use.
    pub fn of_tier(bytes: u64) -> Limits {
        Limits { value: bytes.min(VALUE_MAX), file: bytes.saturating_mul(TIERS) }
    }
}

/// What is left of the limits.
#[derive(Debug)]
pub(super) struct Budget {
    limits: Limits,
    value: u64,
    file: u64,
}

impl Budget {
    pub(super) fn new(limits: Limits) -> Budget {
        Budget { limits, value: 0, file: 0 }
    }

    /// Another value begins.
    pub(super) fn next_value(&mut self) {
        self.value = 0;
    }

    fn add(&mut self, bytes: u64) -> Option<()> {
        self.value = self.value.saturating_add(bytes);
        self.file = self.file.saturating_add(bytes);
        (self.value <= self.limits.value && self.file <= self.limits.file).then_some(())
    }

    /// Takes an element of so many bytes; nothing if it is too much.
    pub(super) fn element(&mut self, len: usize) -> Option<()> {
        self.add(ELEMENT + len as u64)
    }

    /// Takes so many bytes of a compressed string. They are gone when its elements are there, but a
    /// value of one string has no elements.
    pub(super) fn unpack(&mut self, len: u64) -> Option<()> {
        self.add(len)
    }

    /// Whether what was taken is within the limits.
    pub(super) fn within(&self, key: &[u8]) -> Result<(), Error> {
        if self.value > self.limits.value {
            let key = String::from_utf8_lossy(&key[..key.len().min(64)]).escape_debug().to_string();
            return Err(Error::LargeValue { key, limit: self.limits.value });
        }
        if self.file > self.limits.file {
            return Err(Error::LargeDump { limit: self.limits.file });
        }
        Ok(())
    }
}

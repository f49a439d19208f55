//! A write in two steps: the target is looked up and checked first, and written later.

use super::{Mapping, not_lines};
use crate::LINE;
use crate::kernel::Keys;
use crate::sync::atomic as shared;
use std::sync::atomic::Ordering;

/// A write that [`Mapping::prepare`] has looked at.
pub struct PreparedWrite<'a> {
    pub(super) mapping: &'a Mapping,
    pub(super) to: *mut u8,
    pub(super) at: u64,
    pub(super) len: usize,
    /// The bits of a word that say that the frames are claimed; `None` in the simulator, in the
    /// open range, and for frames of several words.
    pub(super) claim: Option<(&'a shared::AtomicU64, u64)>,
}

impl PreparedWrite<'_> {
    /// [`Mapping::nt_write`] of `data`, which is as long as was said.
    ///
    /// # Durability
    /// As [`Mapping::nt_write`].
    #[inline]
    pub fn nt_write(&self, data: &[u8]) {
        if self.is_claimed() && data.len() == self.len {
            self.mapping.write_first_part(self.to, data);
            // SAFETY: `prepare` checked the target, and a mapping never gets shorter; it is
            // claimed, so no slice of it exists. `data` is a slice elsewhere.
            return unsafe { self.mapping.kernel.stream(self.to, data.as_ptr(), data.len()) };
        }
        self.check_length(data);
        self.mapping.nt_write(self.at, data);
    }

    /// [`Mapping::nt_write_hashed`] of `data`, which is as long as was said.
    ///
    /// # Durability
    /// As [`Mapping::nt_write`].
    #[inline]
    pub fn nt_write_hashed(&self, data: &[u8], seed: u64) -> u64 {
        if !(self.at | self.len as u64).is_multiple_of(LINE as u64) {
            not_lines(self.at, self.len);
        }
        match self.mapping.keys.get() {
            Some(keys) if keys.seed == seed && self.is_claimed() && data.len() == self.len => {
                self.mapping.write_first_part(self.to, data);
                // SAFETY: as in `nt_write`; the base is aligned to a frame, so the target is
                // aligned to 64.
                unsafe {
                    self.mapping.kernel.stream_hashed(self.to, data.as_ptr(), data.len(), keys)
                }
            }
            _ => self.nt_write_hashed_otherwise(data, seed),
        }
    }

    #[inline(never)]
    fn nt_write_hashed_otherwise(&self, data: &[u8], seed: u64) -> u64 {
        self.check_length(data);
        let mapping = self.mapping;
        mapping.check_writable(self.at, self.len);
        if let Some(recorder) = &mapping.recorder {
            recorder.store(mapping, self.at, data, true);
            return crate::hash_bytes(data, seed);
        }
        let first = mapping.keys.get_or_init(|| Box::new(Keys::of_seed(seed)));
        let other;
        let keys = if first.seed == seed {
            &**first
        } else {
            other = Keys::of_seed(seed);
            &other
        };
        mapping.write_first_part(self.to, data);
        // SAFETY: as in `nt_write_hashed`; `check_writable` said that no slice exists.
        unsafe { mapping.kernel.stream_hashed(self.to, data.as_ptr(), data.len(), keys) }
    }

    #[inline]
    fn is_claimed(&self) -> bool {
        self.claim.is_some_and(|(word, bits)| word.load(Ordering::Relaxed) & bits == bits)
    }

    fn check_length(&self, data: &[u8]) {
        let (at, len) = (self.at, self.len);
        assert!(
            data.len() == len,
            "BUG: a write of {} bytes at {at}, prepared for {len}",
            data.len()
        );
    }
}

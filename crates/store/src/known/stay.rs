//! Why a file's blocks stay in the tier: it is pinned, or they are being brought in.
//!
//! They stay as far as the tier decides. On a tier of clean copies only, a write of the file takes
//! the copies of its blocks away all the same: home is written past them.
//!
//! **Invariant**: it is pinned here when the state line on the tier says so; what is being brought
//! in changes nothing of that before all of it is there.

use crate::format::slot::{PINNED, StateLine};
use crate::sync::atomic::{AtomicUsize, Ordering};

/// The bit that says that it is pinned. Above it is how many bring its blocks in.
const IS_PINNED: usize = 1;
const ONE_COMES: usize = 2;

/// See the file comment.
pub(crate) struct Stay(AtomicUsize);

/// Its blocks stay as long as this does.
pub(crate) struct Coming<'a>(&'a Stay);

impl Stay {
    pub(crate) fn of(line: &StateLine) -> Self {
        Self(AtomicUsize::new(if line.flags & PINNED != 0 { IS_PINNED } else { 0 }))
    }

    /// Whether nothing of it is to leave.
    #[inline]
    pub(crate) fn stays(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.0.load(Ordering::Acquire) & IS_PINNED != 0
    }

    /// Whether somebody brings its blocks in.
    pub(crate) fn is_coming(&self) -> bool {
        self.0.load(Ordering::Acquire) >= ONE_COMES
    }

    /// Its blocks are brought in from here on.
    pub(crate) fn come(&self) -> Coming<'_> {
        let _ = self.0.fetch_add(ONE_COMES, Ordering::AcqRel);
        Coming(self)
    }

    /// The state line says so.
    pub(crate) fn set_pinned(&self, on: bool) {
        let _ = match on {
            true => self.0.fetch_or(IS_PINNED, Ordering::AcqRel),
            false => self.0.fetch_and(!IS_PINNED, Ordering::AcqRel),
        };
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        let _ = self.0.0.fetch_sub(ONE_COMES, Ordering::AcqRel);
    }
}

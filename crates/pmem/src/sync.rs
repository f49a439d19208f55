//! The atomics by which threads agree on frames, and the moments between two of a thread's
//! accesses.
//!
//! In a normal build they are the standard library's, and the moments are nothing. With the feature
//! `interleavings` shuttle decides at each of them which thread of a test goes on; the store, whose
//! tests use it, takes its atomics from here too then.
//!
//! Deliberately absent: weak orders of memory. One thread runs at a time and sees all that was done
//! before; of the orders that a processor may see besides, the store has a model
//! (`crates/store/tests/it/interleavings.rs`).

#[cfg(not(feature = "interleavings"))]
pub(crate) use std::sync::atomic;

/// Between two accesses of a thread to what others see.
#[cfg(not(feature = "interleavings"))]
#[inline(always)]
pub(crate) fn turn() {}

/// In the middle of a copy.
#[cfg(not(feature = "interleavings"))]
#[inline(always)]
pub(crate) fn turns_in_copy() {}

/// How much of a copy of `len` bytes is done before others may see it: a block can be torn between
/// any two words, and half is as good as any.
#[inline(always)]
pub(crate) fn first_part(len: usize) -> usize {
    if cfg!(feature = "interleavings") && len > crate::LINE {
        (len / 2).next_multiple_of(8)
    } else {
        0
    }
}

/// A step left out of the protocol of views and claims, for a test that must find it.
#[allow(unreachable_pub, reason = "the store reaches it with the feature `interleavings`")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Frames are claimed that somebody looks at.
    TakeViewed,
    /// A view counts although a frame is claimed.
    ViewOfClaimed,
}

#[cfg(not(feature = "interleavings"))]
#[inline(always)]
pub(crate) fn planted(_: Flaw) -> bool {
    false
}

#[cfg(feature = "interleavings")]
mod shuttled;

#[cfg(feature = "interleavings")]
pub use shuttled::{atomic, plant, racing, turn};

#[cfg(feature = "interleavings")]
pub(crate) use shuttled::{planted, turns_in_copy};

//! A slice of the mapping that nobody writes while it is held.
//!
//! [`ViewRef`] borrows the mapping and costs two atomic instructions; [`View`] owns a share of it,
//! for callers that hand the bytes to another thread or keep them past the borrow.

use std::ops::Deref;
use std::sync::Arc;

use super::Mapping;

/// Bytes of whole frames, unchanging while this lives.
pub struct ViewRef<'a> {
    pub(crate) mapping: &'a Mapping,
    pub(crate) at: u64,
    pub(crate) bytes: &'a [u8],
}

impl Deref for ViewRef<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

impl AsRef<[u8]> for ViewRef<'_> {
    fn as_ref(&self) -> &[u8] {
        self.bytes
    }
}

impl Drop for ViewRef<'_> {
    #[inline]
    fn drop(&mut self) {
        self.mapping.unview(self.at, self.bytes.len());
    }
}

impl std::fmt::Debug for ViewRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ViewRef").field("at", &self.at).field("len", &self.bytes.len()).finish()
    }
}

/// Bytes of whole frames, unchanging while this lives; keeps the mapping alive.
pub struct View {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) at: u64,
    pub(crate) len: usize,
}

impl Deref for View {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.mapping.viewed(self)
    }
}

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.mapping.unview(self.at, self.len);
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("at", &self.at).field("len", &self.len).finish()
    }
}

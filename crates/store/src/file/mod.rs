//! What a caller can do with an open file: [`read`], [`mod@write`], [`batch`], [`redo`], [`resize`].
//!
//! The locks of a file, and the order in which they are taken, are in [`crate::map`].

pub(crate) mod batch;
pub(crate) mod read;
pub(crate) mod redo;
pub(crate) mod resize;
#[cfg(test)]
mod tests;
pub(crate) mod times;
pub(crate) mod write;

//! What a caller can do with an open file: [`read`], [`mod@write`], [`batch`], [`redo`],
//! [`resize`], [`range`], [`times`], [`pin`]; [`through`] is writing where the tier has clean
//! copies only, and [`lent`] all of that for a file whose contents are in a plain file.
//!
//! A call says what it wants of ledger and mover and knows nothing of media. The locks of a file,
//! and the order in which they are taken, are in [`crate::known`].

pub(crate) mod batch;
pub(crate) mod lent;
pub(crate) mod pin;
pub(crate) mod range;
pub(crate) mod read;
pub(crate) mod redo;
pub(crate) mod resize;
#[cfg(test)]
mod tests;
mod through;
#[cfg(test)]
mod through_tests;
pub(crate) mod times;
pub(crate) mod write;

use crate::environment::Environment;
use crate::homeward::Homeward;
use crate::mover::Mover;
use std::sync::Arc;
use tiersmith_events::Registry;

/// Reads and changes the contents of files.
pub(crate) struct FileIo {
    /// That of `env`: recording a wait must not look it up there.
    pub(crate) events: Registry,
    pub(crate) env: Arc<Environment>,
    pub(crate) homeward: Arc<Homeward>,
    pub(crate) mover: Arc<Mover>,
}

//! Dirty blocks that cannot be read on their way home: reported, or given up if the user said so.
//!
//! **Invariant**: an unreadable block is never replaced by an older version of itself unless the
//! user said so.

use super::Mover;
use crate::address::BlockIndex;
use crate::error::{Error, MediumError, Result};
use crate::format::entry::Entry;
use crate::known::{FileState, Placed};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::path::PathBuf;

/// A block that was given up: its newest version could not be read, and the home keeps an older
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostBlock {
    /// The file, relative to home.
    pub path: PathBuf,
    /// Which block of it.
    pub block: u64,
    /// Where the block begins in the file.
    pub offset: u64,
    /// Bytes of the block.
    pub len: u64,
}

impl std::fmt::Display for LostBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = self.offset + self.len;
        write!(f, "block {} of {} (bytes {} to {end})", self.block, self.path.display(), self.offset)
    }
}

/// The unreadable blocks that were given up.
#[derive(Default)]
pub(crate) struct GivenUp {
    /// The user allowed it.
    allowed: AtomicBool,
    lost: Mutex<Vec<LostBlock>>,
}

impl GivenUp {
    /// From here on an unreadable block may be given up, or may not.
    pub(crate) fn allow(&self, allowed: bool) {
        self.allowed.store(allowed, Ordering::Release);
    }

    /// Those that were given up since the last call.
    pub(crate) fn take(&self) -> Vec<LostBlock> {
        std::mem::take(&mut *self.lost.lock())
    }
}

impl Mover {
    /// Copies a dirty block that nobody can change meanwhile into `copy`, to destage it. `false`:
    /// it is unreadable and given up.
    ///
    /// # Errors
    /// [`Error::Unreadable`] when it is unreadable and must not be given up.
    pub(crate) fn copy_to_go_home(
        &self,
        file: &FileState,
        placed: &Placed,
        block: BlockIndex,
        entry: Entry,
        copy: &mut [u8],
    ) -> Result<bool> {
        let source = match placed.tier.read_block_checked(entry.frame(), 0, copy) {
            Ok(()) => return Ok(true),
            Err(Error::Medium(MediumError::Unreadable { source, .. })) => source,
            Err(e) => return Err(e),
        };
        let (member, at) = placed.tier.geometry.locate(entry.frame());
        let path = file.path.lock().clone();
        if self.given_up.allowed.load(Ordering::Acquire) {
            let (offset, len) = (placed.block_size.start_of(block), copy.len() as u64);
            let lost = LostBlock { path, block: block.0, offset, len };
            log::error!("giving up {lost}, which cannot be read ({source}): the home keeps an older version");
            self.given_up.lost.lock().push(lost);
            return Ok(false);
        }
        let member = placed.tier.members[member].path.clone();
        Err(Error::Unreadable { path, block: block.0, member, at, source })
    }
}

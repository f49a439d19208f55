//! Blocks that the medium does not give back: it says so, or their checksum does
//! ([`crate::ledger::at_rest`]).
//!
//! A clean copy that cannot be read is home's block: its entry becomes `Home`, its frame stays out
//! of use until the next attach, and the reader gets home's bytes. A dirty block that cannot be
//! read is reported, by name, for as long as it is the newest version; on its way home it is given
//! up if the user said so.
//!
//! Memory that is mapped is read by programs without a call that could fail: there it is a SIGBUS
//! ([`crate::api::media_errors`]).
//!
//! **Invariant**: an unreadable block is never replaced by an older version of itself unless the
//! user said so.

use super::Mover;
use crate::address::BlockIndex;
use crate::error::{Error, MediumError, Result};
use crate::format::entry::{Entry, State};
use crate::known::{FileState, Placed};
use crate::planted::Planted;
use crate::profile::FileClass;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::waits;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// Lost blocks that are remembered by name; the log names the others.
const LOST_MOST: usize = 10_000;

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
        write!(
            f,
            "block {} of {} (bytes {} to {end})",
            self.block,
            self.path.display(),
            self.offset
        )
    }
}

/// What came of a block that is to go home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Going {
    Copied,
    /// It cannot be had, and the user said that it may be lost.
    GivenUp,
    /// It was written again.
    Moved,
}

/// Of a file by its key, a block of it.
type Which = ((u64, u64), BlockIndex);

/// The dirty blocks that could not be read, and those that were given up.
#[derive(Default)]
pub(crate) struct GivenUp {
    /// The user allowed it.
    allowed: AtomicBool,
    lost: Mutex<Vec<LostBlock>>,
    /// What the entries of unreadable ones were; an entry that is another by now has a newer
    /// version.
    unreadable: Mutex<BTreeMap<Which, Entry>>,
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
    /// Copies a dirty block that nobody can change meanwhile into `copy`, to destage it, and
    /// compares that with the block's checksum.
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
    ) -> Result<Going> {
        let source = match self.read_to_go_home(placed, block, entry, copy) {
            Ok(true) => return Ok(Going::Copied),
            Ok(false) => return Ok(Going::Moved),
            Err(Error::Medium(MediumError::Unreadable { source, .. })) => source,
            Err(e) => return Err(e),
        };
        if self.given_up.allowed.load(Ordering::Acquire) {
            let lost = lost_block(file, placed, block);
            log::error!(
                "giving up {lost}, which cannot be read ({source}): the home keeps an older version"
            );
            self.given_up.lost.lock().push(lost);
            return Ok(Going::GivenUp);
        }
        Err(self.note_unreadable(file, placed, block, entry, source))
    }

    /// `false`: the block is another by now.
    fn read_to_go_home(
        &self,
        placed: &Placed,
        block: BlockIndex,
        entry: Entry,
        copy: &mut [u8],
    ) -> Result<bool> {
        let tier = &placed.tier;
        tier.read_block_checked(entry.frame(), 0, copy)?;
        if placed.class == FileClass::Redo || tier.planted.is(Planted::DestageUnseen) {
            return Ok(true);
        }
        let Some(spot) = placed.spot(block) else { return Ok(false) };
        let Some(sum) = tier.sum_of(spot, entry) else { return Ok(false) };
        tier.compare(spot, entry, copy, sum)?;
        Ok(true)
    }

    /// A program needs a block of which the tier's version, `entry`, could not be read because of
    /// `e`. On return the entry is another, and the caller looks again.
    ///
    /// # Errors
    /// [`Error::Unreadable`] when no other place has that version; `e`, when it has another cause.
    #[cold]
    pub(crate) fn read_elsewhere(
        &self,
        file: &FileState,
        placed: &Placed,
        block: BlockIndex,
        entry: Entry,
        e: Error,
    ) -> Result<()> {
        let source = match e {
            Error::Medium(MediumError::Unreadable { source, .. }) => source,
            other => return Err(other),
        };
        if placed.map.get(block) != entry {
            return Ok(());
        }
        if entry.state() == State::Dirty {
            return Err(self.note_unreadable(file, placed, block, entry, source));
        }
        if placed.forget(block, entry) {
            self.events.count(waits::REPAIRED, 1);
            placed.usage.invalidated(&self.events, 1);
            let what = lost_block(file, placed, block);
            log::warn!("the tier's copy of {what} cannot be read ({source}): it is read from home");
        }
        Ok(())
    }

    /// Remembers a dirty block that could not be read, and says so.
    fn note_unreadable(
        &self,
        file: &FileState,
        placed: &Placed,
        block: BlockIndex,
        entry: Entry,
        source: io::Error,
    ) -> Error {
        let (member, at) = placed.tier.geometry.locate(entry.frame());
        let member = placed.tier.members[member].path.clone();
        let path = file.path.lock().clone();
        let error = Error::Unreadable { path, block: block.0, member, at, source };
        let mut unreadable = self.given_up.unreadable.lock();
        let is_new = if unreadable.len() < LOST_MOST {
            unreadable.insert((file.identity.key(), block), entry) != Some(entry)
        } else {
            !unreadable.contains_key(&(file.identity.key(), block))
        };
        drop(unreadable);
        if is_new {
            log::error!("{error}");
        }
        error
    }

    /// The dirty blocks that could not be read when somebody last tried, and have no newer version
    /// since.
    pub(crate) fn unreadable_blocks(&self) -> Vec<LostBlock> {
        let mut lost = Vec::new();
        self.given_up.unreadable.lock().retain(|(key, block), entry| {
            let Some(file) = self.files.get(*key) else { return false };
            let Some(placed) = &file.placed else { return false };
            let is_newest = placed.map.get(*block) == *entry;
            if is_newest {
                lost.push(lost_block(&file, placed, *block));
            }
            is_newest
        });
        lost.sort_by(|a, b| (&a.path, a.block).cmp(&(&b.path, b.block)));
        lost
    }
}

/// A block of a file, for people.
fn lost_block(file: &FileState, placed: &Placed, block: BlockIndex) -> LostBlock {
    let path = file.path.lock().clone();
    let (offset, len) = (placed.block_size.start_of(block), placed.block_size.bytes() as u64);
    LostBlock { path, block: block.0, offset, len }
}

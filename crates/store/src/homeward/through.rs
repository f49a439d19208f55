//! What an ephemeral tier knows of a home that is written past it.
//!
//! Its copies count at the next attach only if home is what it was. Who writes home says so first;
//! that holds for a while, as with destaging, so that a file that is written all the time costs one
//! line in the log now and then. A file that is at rest is synced and its stamp taken down.

use super::{Homeward, RENEW_AFTER_NS, still_holds};
use crate::error::{Error, Result};
use crate::format::slot::{DESTAGING, encode_time};
use crate::home::FileTime;
use crate::known::{FileState, Placed};
use crate::ledger::Ledger;
use crate::note;
use crate::sync::atomic::Ordering;
use std::sync::Arc;

/// A file that was not written for so long is at rest.
const AT_REST_AFTER_NS: u64 = 3 * RENEW_AFTER_NS;

impl Homeward {
    /// Before home is written past an ephemeral tier: the state line says so, durable on return if
    /// the tier is sound then.
    pub(crate) fn announce(&self, file: &FileState, placed: &Placed) -> Result<()> {
        let mut meta = placed.meta.lock();
        let now = self.env.home.now_ns();
        let is_said = meta.line.flags & DESTAGING != 0 && still_holds(meta.line.since_ns, now);
        if is_said || !placed.has_slot() {
            return Ok(());
        }
        file.home.widen_own();
        // What was written under the last word for it may have this time.
        let stat = file.home.stat().map_err(file.io("cannot stat"))?;
        meta.line.home_size = stat.size;
        meta.line.home_mtime_ns = stat.mtime_ns;
        meta.line.mtime = encode_time(FileTime::from_ns(stat.mtime_ns));
        meta.line.flags |= DESTAGING;
        meta.line.since_ns = now;
        placed.persist_line(&mut meta);
        Ok(())
    }

    /// Makes what was written past the tier durable at home.
    ///
    /// # Durability
    /// Every write that had returned when this was called is durable on return.
    pub(crate) fn sync_through(&self, file: &FileState, placed: &Placed) -> Result<()> {
        let turn = placed.unsynced.begin_sync();
        let synced = file.home.sync();
        placed.unsynced.end_sync(turn, synced.is_ok());
        synced.map_err(file.io("cannot sync"))
    }

    /// The same for ourselves: a program that syncs the file later is told of a failure too.
    pub(crate) fn sync_through_unasked(&self, file: &FileState, placed: &Placed) -> Result<()> {
        let turn = placed.unsynced.begin_sync();
        let synced = file.home.sync_unasked();
        placed.unsynced.end_sync(turn, synced.is_ok());
        synced.map_err(file.io("cannot sync"))
    }

    /// The background's part: of these files of an ephemeral tier, those that are at rest are
    /// synced.
    pub(crate) fn rest_all(&self, files: &[Arc<FileState>]) -> Result<()> {
        let placed = files.iter().filter_map(|file| Some((file, file.placed.as_ref()?)));
        placed.map(|(file, placed)| self.rest(file, placed)).fold(Ok(()), Result::and)
    }

    fn rest(&self, file: &FileState, placed: &Placed) -> Result<()> {
        let since = {
            let line = &placed.meta.lock().line;
            if line.flags & DESTAGING == 0 {
                return Ok(());
            }
            line.since_ns
        };
        let now = self.env.home.now_ns();
        if (since..since.saturating_add(AT_REST_AFTER_NS)).contains(&now) {
            return Ok(());
        }
        self.take_stamp(file, placed)
    }

    /// Before a close that leaves the home attached: nobody writes any more.
    pub(crate) fn take_last_stamp(&self, file: &FileState) -> Result<()> {
        match file.placed.as_ref().filter(|placed| placed.tier.is_ephemeral()) {
            Some(placed) => self.take_stamp(file, placed),
            None => Ok(()),
        }
    }

    /// Before a detach: until the note is gone, home's files must be known by their stamps.
    pub(crate) fn take_last_stamps(&self, files: &[Arc<FileState>]) -> Result<()> {
        files.iter().try_for_each(|file| self.take_last_stamp(file))
    }

    /// Syncs home and takes its stamp down, so that the next attach finds the file as it was.
    pub(crate) fn take_stamp(&self, file: &FileState, placed: &Placed) -> Result<()> {
        if placed.meta.lock().line.flags & DESTAGING == 0 {
            return Ok(());
        }
        self.sync_through_unasked(file, placed)?;
        let _sizing = placed.sizing.lock();
        let _moving = placed.moving.lock();
        // Written again meanwhile: another time.
        if placed.is_gone() || file.unlinked.load(Ordering::Acquire) || !file.home.is_synced() {
            return Ok(());
        }
        self.fingerprint(file, placed, &mut placed.meta.lock())
    }

    /// An older note was written back.
    pub(crate) fn say_again_if_given_up(&self, tier: &Ledger) -> Result<()> {
        if !std::mem::take(&mut *tier.given_up.lock()) {
            return Ok(());
        }
        self.word_is_kept(tier)
    }

    /// The ephemeral tier does not take down any more what is gone from it, because of `why`. The
    /// note in home says that it is not to be believed, durable on return; the home goes on without
    /// it.
    ///
    /// # Errors
    /// When home's note cannot be written: then home must not be changed.
    pub(super) fn give_up(&self, tier: &Ledger, why: &Error) -> Result<()> {
        let mut given_up = tier.given_up.lock();
        if *given_up {
            return Ok(());
        }
        note::give_up(&*self.env.home, self.env.home_path(), &tier.name)?;
        *given_up = true;
        log::warn!(
            "the tier `{}` is given up: {why}. It had clean copies only, so nothing is lost; {} \
             goes on without it, and the next attach begins with an empty one",
            tier.name,
            self.env.home_path().display()
        );
        Ok(())
    }
}

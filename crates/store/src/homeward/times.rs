//! The times of a file as programs see them, although home is written later.
//!
//! POSIX lets a file system mark a time for update and set it when somebody looks. A write sets one
//! flag; whoever looks next (a `stat`, a destaging round) takes the time. Destaging gives home the
//! time that was seen, so it does not move, and detaching leaves it there. `ctime` cannot be given
//! to a file system: what was seen holds until the file leaves the tier or the home is detached,
//! then it is home's own.
//!
//! | after | the modification time is |
//! |---|---|
//! | a write | the time of the first look after it |
//! | destaging, detaching | what it was |
//! | [`crate::File::set_times`] | as set, also after a power cut, until the next write |
//! | closing without detaching, and attaching again | what it was |
//! | a killed process or a power cut with blocks that are only in the tier | the time of the first look after the next attach: no backup misses the file |
//!
//! Access times are home's own; a read from the tier does not set them (as with `noatime`).
//!
//! # Locks
//! `shown` is taken last; home is asked for its attributes under it, so that nobody takes
//! destaging's own change of home for somebody else's.

use super::Homeward;
use crate::error::Result;
use crate::format::slot::{DESTAGING, StateLine, TIME_EXACT};
use crate::home::{FileTime, HomeStat};
use crate::known::times::Overlay;
use crate::known::{FileState, Placed};
use crate::sync::atomic::Ordering;

impl Homeward {
    /// A write to the file is done, and about to be acknowledged. For files in a durable tier; the
    /// others' times are home's.
    pub(crate) fn mark_written(&self, file: &FileState) {
        let Some(placed) = file.placed.as_ref().filter(|p| p.tier.holds_dirty()) else { return };
        if placed.times.exact.load(Ordering::Relaxed) {
            let mut meta = placed.meta.lock();
            if placed.times.exact.swap(false, Ordering::AcqRel) && meta.line.flags & TIME_EXACT != 0
            {
                meta.line.flags &= !TIME_EXACT;
                placed.persist_line(&mut meta);
            }
        }
        // Read first: a file that is written all the time costs no shared store.
        if !placed.times.written.load(Ordering::Relaxed) {
            placed.times.written.store(true, Ordering::Release);
        }
    }

    /// Attributes of the file were changed at home.
    pub(crate) fn mark_changed(&self, file: &FileState) {
        if let Some(placed) = &file.placed {
            let mut shown = placed.times.shown.lock();
            if shown.ctime.is_some() {
                let now = self.env.now();
                shown.changed(now);
            }
        }
    }

    /// What to show, and home's own attributes. `None`: home's are right as they are.
    pub(crate) fn overlay(&self, file: &FileState) -> Result<(HomeStat, Option<Overlay>)> {
        let Some(placed) = file.placed.as_ref() else {
            return Ok((file.home.stat().map_err(file.io("cannot stat"))?, None));
        };
        let mut shown = placed.times.shown.lock();
        let stat = file.home.stat().map_err(file.io("cannot stat"))?;
        shown.look(&placed.times.written, || self.env.now(), &stat);
        // A tier that holds clean copies only is never ahead of home.
        let ahead = placed.tier.holds_dirty();
        let or_home = |time: Option<FileTime>, ns| {
            time.filter(|_| ahead).unwrap_or_else(|| FileTime::from_ns(ns))
        };
        if let Some(plain) = placed.loan.plain() {
            // Who writes to it, the kernel or we, sets its times.
            let own = plain.file.stat().map_err(file.io("cannot stat the lent"))?;
            let (mtime, changed) =
                (FileTime::from_ns(own.mtime_ns), FileTime::from_ns(own.ctime_ns));
            let ctime = or_home(shown.ctime, stat.ctime_ns).max(changed);
            return Ok((stat, Some(Overlay { size: own.size, mtime, ctime })));
        }
        let overlay = Overlay {
            size: placed.size(),
            mtime: or_home(shown.mtime, stat.mtime_ns),
            ctime: or_home(shown.ctime, stat.ctime_ns),
        };
        Ok((stat, Some(overlay)))
    }

    /// Home is about to be changed by us: what it says now is remembered, and the time to give it
    /// is returned.
    pub(crate) fn times_before_change(
        &self,
        file: &FileState,
        placed: &Placed,
    ) -> Result<FileTime> {
        let mut shown = placed.times.shown.lock();
        let stat = file.home.stat().map_err(file.io("cannot stat"))?;
        shown.look(&placed.times.written, || self.env.now(), &stat);
        let mtime = *shown.mtime.get_or_insert(FileTime::from_ns(stat.mtime_ns));
        shown.ctime.get_or_insert(FileTime::from_ns(stat.ctime_ns));
        shown.changing = true;
        Ok(mtime)
    }

    /// Home was changed by us, and the state line goes on saying so.
    pub(crate) fn times_seen(&self, file: &FileState, placed: &Placed) -> Result<()> {
        let mut shown = placed.times.shown.lock();
        shown.home_ctime_ns = file.home.stat().map_err(file.io("cannot stat"))?.ctime_ns;
        shown.changing = false;
        Ok(())
    }

    /// Home was changed by us; what it says from now on is other people's doing. Returns what it
    /// says, and puts into the line the time it does not say.
    pub(crate) fn times_after_change(
        &self,
        file: &FileState,
        placed: &Placed,
        line: &mut StateLine,
    ) -> Result<HomeStat> {
        let mut shown = placed.times.shown.lock();
        let stat = file.home.stat().map_err(file.io("cannot stat"))?;
        shown.home_ctime_ns = stat.ctime_ns;
        shown.changing = false;
        placed.times.put_exact(&shown, line);
        Ok(stat)
    }

    /// Gives home the modification time that programs see, if it has another one; durable on
    /// return.
    pub(crate) fn settle_times(&self, file: &FileState) -> Result<()> {
        let Some(placed) = file.placed.as_ref().filter(|p| p.tier.holds_dirty() && p.has_slot())
        else {
            return Ok(());
        };
        let _moving = placed.moving.lock();
        if placed.is_gone() || file.unlinked.load(Ordering::Acquire) || placed.loan.is_lent() {
            return Ok(());
        }
        let (stat, overlay) = self.overlay(file)?;
        if overlay.is_none_or(|seen| seen.mtime.wrapped_ns() == stat.mtime_ns) {
            return Ok(());
        }
        let mtime = self.begin_change(file, placed, DESTAGING)?;
        give_mtime(file, mtime);
        file.home.sync().map_err(file.io("cannot sync"))?;
        self.fingerprint(file, placed, &mut placed.meta.lock())
    }

    /// The times of a file go into the tier, before a close that leaves the home attached.
    pub(crate) fn keep_times(&self, file: &FileState) -> Result<()> {
        let Some(placed) = file.placed.as_ref().filter(|p| p.tier.holds_dirty() && p.has_slot())
        else {
            return Ok(());
        };
        let _moving = placed.moving.lock();
        if placed.is_gone() || file.unlinked.load(Ordering::Acquire) || placed.loan.is_lent() {
            return Ok(());
        }
        let (stat, Some(seen)) = self.overlay(file)? else { return Ok(()) };
        if seen.mtime.wrapped_ns() == stat.mtime_ns && placed.map.counts().0 == 0 {
            return Ok(());
        }
        let mut meta = placed.meta.lock();
        if meta.line.flags & DESTAGING != 0 {
            file.home.sync().map_err(file.io("cannot sync"))?;
            self.fingerprint(file, placed, &mut meta)?;
        }
        let mut shown = placed.times.shown.lock();
        shown.mtime = Some(seen.mtime);
        placed.times.exact.store(true, Ordering::Release);
        placed.times.put_exact(&shown, &mut meta.line);
        placed.persist_line(&mut meta);
        Ok(())
    }
}

/// Home gets the time that programs have seen. Only its owner may do that; for others home's own
/// time stays, and nothing depends on it.
pub(crate) fn give_mtime(file: &FileState, mtime: FileTime) {
    if let Err(e) = file.home.set_times(None, Some(mtime)) {
        log::debug!(
            "the time of {} at home is that of its destaging: {e}",
            file.path.lock().display()
        );
    }
}

//! Setting the times of a file ([`crate::homeward`] shows and keeps them).

use super::FileIo;
use crate::error::Result;
use crate::format::slot::DESTAGING;
use crate::known::FileState;
use crate::known::times::SetTime;
use crate::sync::atomic::Ordering;

impl FileIo {
    /// Sets the time of the last access and of the last change of the contents.
    pub(crate) fn set_times(&self, file: &FileState, atime: SetTime, mtime: SetTime) -> Result<()> {
        if let Some(placed) = file.placed.as_ref().filter(|p| p.loan.is_lent())
            && let Some(done) = self.set_times_lent(file, placed, atime, mtime)
        {
            return done;
        }
        let time = |set: SetTime| match set {
            SetTime::Keep => None,
            SetTime::Now => Some(self.env.now()),
            SetTime::At(time) => Some(time),
        };
        let (atime, mtime) = (time(atime), time(mtime));
        let at_home =
            || file.home.set_times(atime, mtime).map_err(file.io("cannot set the times of"));
        if let Some(placed) = file.placed.as_ref().filter(|p| p.tier.is_ephemeral()) {
            return self.set_times_through(file, placed, atime, mtime);
        }
        let Some(placed) = file.placed.as_ref().filter(|p| p.tier.holds_dirty()) else {
            return at_home();
        };
        if !placed.has_slot() {
            // Whoever gives it one writes home's time into it, under the same lock.
            let _meta = placed.meta.lock();
            if !placed.has_slot() {
                return at_home();
            }
        }
        if atime.is_some() {
            file.home.set_times(atime, None).map_err(file.io("cannot set the times of"))?;
        }
        let Some(mtime) = mtime else {
            self.homeward.mark_changed(file);
            return Ok(());
        };
        // While home is being changed its own time may be any of ours, and the line must say which:
        // then it is written with the stamp.
        let moving = placed.moving.try_lock();
        let mut meta = placed.meta.lock();
        if meta.line.flags & DESTAGING != 0
            && moving.is_some()
            && !placed.is_gone()
            && file.home.sync().is_ok()
        {
            self.homeward.fingerprint(file, placed, &mut meta)?;
        }
        let now = self.env.now();
        let mut shown = placed.times.shown.lock();
        let stat = file.home.stat().map_err(file.io("cannot stat"))?;
        if shown.ctime.is_none() {
            shown.home_ctime_ns = stat.ctime_ns;
        }
        shown.mtime = Some(mtime);
        shown.changed(now);
        placed.times.written.store(false, Ordering::Release);
        placed.times.exact.store(true, Ordering::Release);
        if meta.line.flags & DESTAGING == 0 {
            placed.times.put_exact(&shown, &mut meta.line);
            placed.persist_line(&mut meta);
        }
        Ok(())
    }
}

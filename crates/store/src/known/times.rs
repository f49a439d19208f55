//! The times of a file as programs see them; what is done about them is in [`crate::homeward`].

use crate::format::slot::{StateLine, TIME_EXACT, decode_time, encode_time};
use crate::home::{FileTime, HomeStat};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// What a door answers instead of what home says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlay {
    /// Length in bytes.
    pub size: u64,
    /// Time of the last change of the contents.
    pub mtime: FileTime,
    /// Time of the last change of contents or attributes.
    pub ctime: FileTime,
}

impl Overlay {
    /// Home's answer with these instead of its own.
    pub(crate) fn over(self, mut stat: HomeStat) -> HomeStat {
        stat.size = self.size;
        (stat.mtime_ns, stat.ctime_ns) = (self.mtime.wrapped_ns(), self.ctime.wrapped_ns());
        stat
    }
}

/// A time to set, as `utimensat` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// It stays.
    Keep,
    /// The present.
    Now,
    /// This time.
    At(FileTime),
}

/// The times of one file of a tier.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// Written since somebody looked.
    pub(crate) written: AtomicBool,
    /// The state line on the tier has the time of the last write.
    pub(crate) exact: AtomicBool,
    pub(crate) shown: Mutex<Shown>,
}

/// `None`: home's own is right.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) mtime: Option<FileTime>,
    pub(crate) ctime: Option<FileTime>,
    /// Home's ctime after our last change of it: another one is somebody's change of attributes.
    pub(crate) home_ctime_ns: u64,
    /// Home is being changed by us.
    pub(crate) changing: bool,
}

impl Shown {
    pub(crate) fn changed(&mut self, now: FileTime) {
        self.ctime = Some(self.ctime.map_or(now, |c| c.max(now)));
    }

    pub(crate) fn look(
        &mut self,
        written: &AtomicBool,
        now: impl Fn() -> FileTime,
        stat: &HomeStat,
    ) {
        if written.swap(false, Ordering::AcqRel) {
            let now = now();
            if self.ctime.is_none() && !self.changing {
                self.home_ctime_ns = stat.ctime_ns;
            }
            self.mtime = Some(now);
            self.changed(now);
        }
        if self.ctime.is_some() && !self.changing && stat.ctime_ns != self.home_ctime_ns {
            self.home_ctime_ns = stat.ctime_ns;
            self.changed(FileTime::from_ns(stat.ctime_ns));
        }
    }
}

impl Times {
    /// What the state line says. `ahead`: the tier has blocks that home does not, so home's time
    /// may be too old.
    pub(crate) fn of(line: &StateLine, ahead: bool) -> Self {
        let mtime = decode_time(line.mtime).filter(|_| line.flags & TIME_EXACT != 0);
        let times = Self::default();
        times.written.store(mtime.is_none() && ahead, Ordering::Relaxed);
        times.exact.store(mtime.is_some(), Ordering::Relaxed);
        times.shown.lock().mtime = mtime;
        times
    }

    /// The modification time is this, until the next write.
    pub(crate) fn show(&self, mtime: FileTime) {
        let mut shown = self.shown.lock();
        self.written.store(false, Ordering::Release);
        shown.mtime = Some(mtime);
    }

    /// The state line no longer has the time of the last write.
    pub(crate) fn forget_exact(&self) {
        self.exact.store(false, Ordering::Release);
    }

    /// Puts into the line the time that home does not say.
    pub(crate) fn put_exact(&self, shown: &Shown, line: &mut StateLine) {
        let exact = self.exact.load(Ordering::Acquire);
        match shown.mtime.filter(|_| exact) {
            Some(mtime) => {
                line.mtime = encode_time(mtime);
                line.flags |= TIME_EXACT;
            }
            None => {
                line.mtime = 0;
                line.flags &= !TIME_EXACT;
            }
        }
    }
}

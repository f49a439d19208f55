//! Files that left the tier a moment ago, for whoever looked at home before they did.
//!
//! A look at a file asks home first and the tier then. A file that goes home and leaves the tier
//! between the two would be shown as home had it before: with an old size, and old times. So what a
//! file was like when it left is kept for some seconds, and a look that is older than that is shown
//! it. Whoever opens the file again, or sets its times, ends that.
//!
//! **Invariant**: what is kept of a file is what home has, for as long as nobody changes the file.

use super::Namespace;
use crate::home::{FileTime, HomeStat};
use crate::known::times::Overlay;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Longer than a thread is left by its processor between two calls.
const KEPT: Duration = Duration::from_secs(10);
const KEPT_MOST: usize = 1 << 16;

type Key = (u64, u64);

/// By device and inode number.
#[derive(Default)]
pub(crate) struct Departed {
    files: HashMap<Key, Overlay>,
    order: VecDeque<(Instant, Key)>,
}

impl Departed {
    /// A file leaves the tier; home says this of it, and has all of it.
    fn add(&mut self, stat: &HomeStat) {
        while let Some((at, key)) = self.order.front().copied()
            && (at.elapsed() > KEPT || self.order.len() >= KEPT_MOST)
        {
            self.order.pop_front();
            // One that left again since has a later place too, and loses its memory early then.
            self.files.remove(&key);
        }
        self.files.insert(stat.key(), as_home_says(stat));
        self.order.push_back((Instant::now(), stat.key()));
    }
}

pub(crate) fn as_home_says(stat: &HomeStat) -> Overlay {
    Overlay {
        size: stat.size,
        mtime: FileTime::from_ns(stat.mtime_ns),
        ctime: FileTime::from_ns(stat.ctime_ns),
    }
}

impl Namespace {
    /// To be called before the file is known no more.
    pub(crate) fn remember_departed(&self, stat: &HomeStat) {
        self.departed.lock().add(stat);
    }

    /// The file may change from here on.
    pub(crate) fn forget_departed(&self, key: Key) {
        self.departed.lock().files.remove(&key);
    }

    /// What to show of a file that is not known, and of which home said `seen`, instead of that.
    pub(crate) fn departed_since(&self, key: Key, seen: &Overlay) -> Option<Overlay> {
        let left = *self.departed.lock().files.get(&key)?;
        // Home's clock is coarse: two looks with the same ctime may be from before and after.
        let older = seen.ctime <= left.ctime && (seen.size, seen.mtime) != (left.size, left.mtime);
        older.then_some(left)
    }
}

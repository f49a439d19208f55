//! What every room may need and none owns: events, the home and its clock, the options; and whether
//! this process may act on the home.

use crate::error::{Error, Result};
use crate::home::{FileTime, Home};
use crate::options::Options;
use crate::process::Process;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex};
use crossbeam_utils::CachePadded;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tiersmith_events::Registry;

/// One for each attached home.
pub(crate) struct Environment {
    pub(crate) events: Registry,
    pub(crate) home: Arc<dyn Home>,
    pub(crate) options: Options,
    /// By which path the home was attached.
    path: PathBuf,
    /// Who attached; in another process nothing is touched.
    process: Process,
    pid: u32,
    closed: AtomicBool,
    /// In cache lines of its own: each append beyond a redo file's share stores there, and each
    /// call of any thread reads what is beside it.
    work: CachePadded<Work>,
}

/// There is work for the background.
#[derive(Default)]
struct Work {
    woken: Mutex<bool>,
    wakes: Condvar,
}

impl Environment {
    /// That of this process.
    pub(crate) fn new(
        home: Arc<dyn Home>,
        path: &Path,
        events: Registry,
        options: Options,
    ) -> Self {
        Self {
            events,
            home,
            options,
            path: path.to_path_buf(),
            process: Process::current(),
            pid: std::process::id(),
            closed: AtomicBool::new(false),
            work: CachePadded::default(),
        }
    }

    pub(crate) fn home_path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn now(&self) -> FileTime {
        FileTime::from_ns(self.home.now_ns())
    }

    /// Whether the home is attached, and by this process. Before any lock: a thread that held it
    /// may not be there after a fork.
    #[inline]
    pub(crate) fn usable(&self) -> Result<()> {
        self.ours()?;
        if self.is_closed() { Err(Error::Detached) } else { Ok(()) }
    }

    /// Whether [`Environment::usable`] says so, for who needs no error.
    #[inline]
    pub(crate) fn is_usable(&self) -> bool {
        self.is_ours() && !self.is_closed()
    }

    /// Whether this is the process that attached the home.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.process.is_current()
    }

    /// As [`Environment::is_ours`], with the error to answer with.
    #[inline]
    pub(crate) fn ours(&self) -> Result<()> {
        if self.is_ours() { Ok(()) } else { Err(self.forked()) }
    }

    #[cold]
    fn forked(&self) -> Error {
        let what = format!("the home {}", self.path.display());
        Error::Forked { what, opener: self.pid, process: std::process::id() }
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Closes the home, or opens it again. Returns whether it was closed.
    pub(crate) fn set_closed(&self, closed: bool) -> bool {
        self.closed.swap(closed, Ordering::AcqRel)
    }

    pub(crate) fn wake_background(&self) {
        *self.work.woken.lock() = true;
        self.work.wakes.notify_one();
    }

    /// Returns when somebody has work for the background, or at the end of `interval`.
    pub(crate) fn wait_for_work(&self, interval: Duration) {
        let mut woken = self.work.woken.lock();
        if !*woken {
            self.work.wakes.wait_for(&mut woken, interval);
        }
        *woken = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn who_wakes_the_background_takes_no_cache_line_away_that_every_call_reads() {
        let work = offset_of!(Environment, work);
        for read in [offset_of!(Environment, process), offset_of!(Environment, closed)] {
            assert!(work / 64 != read / 64 && (work + size_of::<Work>() - 1) / 64 != read / 64);
        }
    }
}

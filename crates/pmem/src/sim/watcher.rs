//! What a mapping that is no medium passes its changes to: the machine's trace, or whoever keeps
//! them elsewhere.

use std::sync::Arc;

use super::Recorder;
use crate::Mapping;
use crate::journal::Journal;

/// What a mapping without a medium of its own passes its changes to.
pub(crate) enum Watcher {
    Simulated(Recorder),
    Kept(Arc<dyn Journal>),
}

impl Watcher {
    #[cold]
    pub(crate) fn store(&self, mapping: &Mapping, at: u64, bytes: &[u8], nt: bool) {
        match self {
            Watcher::Simulated(recorder) => recorder.store(mapping, at, bytes, nt),
            Watcher::Kept(_) if bytes.is_empty() => {}
            Watcher::Kept(journal) => {
                journal.store(mapping, at, bytes.len(), &mut || mapping.copy_in(at, bytes));
            }
        }
    }

    #[cold]
    pub(crate) fn flush(&self, at: u64, len: usize) {
        match self {
            Watcher::Simulated(recorder) => recorder.flush(at, len),
            Watcher::Kept(_) => {}
        }
    }

    #[cold]
    pub(crate) fn fence(&self, mapping: &Mapping) {
        match self {
            Watcher::Simulated(recorder) => recorder.fence(),
            Watcher::Kept(journal) => journal.fence(mapping),
        }
    }

    #[cold]
    pub(crate) fn order(&self, mapping: &Mapping) {
        match self {
            Watcher::Simulated(_) => self.fence(mapping),
            Watcher::Kept(_) => {}
        }
    }

    #[cold]
    pub(crate) fn grow(&self, len: u64) {
        match self {
            Watcher::Simulated(recorder) => recorder.grow(len),
            Watcher::Kept(_) => {}
        }
    }
}

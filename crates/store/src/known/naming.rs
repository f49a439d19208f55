//! How many changes of a file's names are durable; who makes them so is in `names`.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Changes of a file's names, and how many of them are durable.
#[derive(Debug, Default)]
pub(crate) struct Naming {
    changes: AtomicU64,
    durable: AtomicU64,
    doubted: AtomicBool,
}

impl Naming {
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// The changes so far, if one of them may not be durable.
    pub(crate) fn unsettled(&self) -> Option<u64> {
        let changes = self.changes.load(Ordering::Acquire);
        (self.durable.load(Ordering::Acquire) < changes).then_some(changes)
    }

    pub(crate) fn settled(&self, changes: u64) {
        self.durable.fetch_max(changes, Ordering::AcqRel);
    }

    /// Whether a power cut may leave no such file, because none of its names was durable yet.
    pub(crate) fn is_doubted(&self) -> bool {
        self.doubted.load(Ordering::Acquire)
    }

    /// To be called under the lock of changes of names.
    pub(crate) fn set_doubted(&self, doubted: bool) {
        self.doubted.store(doubted, Ordering::Release);
    }
}

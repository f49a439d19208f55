//! How long home has been behind, file by file.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Instant;

use tiersmith_store::AttachedHome;

/// Since when each file has had blocks that home has not, as seen by looking now and then.
#[derive(Debug, Default)]
pub(super) struct DirtySince {
    since: HashMap<PathBuf, Instant>,
}

impl DirtySince {
    /// Looks at all files. A file's time is that of the look before it was found dirty, so an age
    /// is never too small.
    pub(super) fn look(&mut self, home: &AttachedHome, last_look: Instant) {
        let before = std::mem::take(&mut self.since);
        for path in home.dirty_files() {
            let since = before.get(&path).copied().unwrap_or(last_look);
            let _ = self.since.insert(path, since);
        }
    }

    pub(super) fn oldest_s(&self) -> Option<u64> {
        self.since.values().map(|since| since.elapsed().as_secs()).max()
    }
}

//! The files that are known: those with a slot, open or not, and open pass files.

use super::FileState;
use crate::ledger::Ledger;
use crate::sync::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Device and inode number of a home file.
pub(crate) type Key = (u64, u64);

#[derive(Default)]
pub(crate) struct Files {
    by_key: Mutex<HashMap<Key, Arc<FileState>>>,
}

impl Files {
    /// All of them, in a fixed order, so that a run of the simulator can be repeated.
    pub(crate) fn all(&self) -> Vec<Arc<FileState>> {
        sorted(&self.by_key.lock())
    }

    /// Those with a place in this tier.
    pub(crate) fn on(&self, tier: &Arc<Ledger>) -> Vec<Arc<FileState>> {
        let here = |file: &Arc<FileState>| {
            file.placed.as_ref().is_some_and(|p| Arc::ptr_eq(&p.tier, tier))
        };
        self.all().into_iter().filter(here).collect()
    }

    /// [`Files::all`], if that does not take longer than this.
    pub(crate) fn all_within(&self, patience: Duration) -> Option<Vec<Arc<FileState>>> {
        self.by_key.try_lock_for(patience).map(|files| sorted(&files))
    }

    /// Nobody finds a file meanwhile.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Sized {
        self.by_key.lock()
    }

    pub(crate) fn get(&self, key: Key) -> Option<Arc<FileState>> {
        self.by_key.lock().get(&key).cloned()
    }

    pub(crate) fn insert(&self, file: Arc<FileState>) {
        self.by_key.lock().insert(file.identity.key(), file);
    }

    /// Returns whether it was known. Another file that has its inode number by now stays known.
    pub(crate) fn remove(&self, file: &FileState) -> bool {
        let mut files = self.by_key.lock();
        let key = file.identity.key();
        let is_this_one =
            files.get(&key).is_some_and(|known| std::ptr::eq(Arc::as_ptr(known), file));
        is_this_one && files.remove(&key).is_some()
    }
}

fn sorted(files: &MutexGuard<'_, HashMap<Key, Arc<FileState>>>) -> Vec<Arc<FileState>> {
    let mut files: Vec<_> = files.values().cloned().collect();
    files.sort_by_key(|file| file.identity.ino);
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::{Found, HomeFiles, HomeHandle, OpenMode, SimHome};
    use std::path::Path;

    #[test]
    fn a_removed_file_takes_none_along_that_has_its_inode_number_by_now() {
        let home = Arc::new(HomeFiles::new(Arc::new(SimHome::new(None)), None));
        let file = || home.open(Path::new("a"), OpenMode::CREATE).unwrap();
        let stat = file().stat().unwrap();
        let handle = || {
            HomeHandle::new(&home, Path::new("a"), Found { file: file(), read_only: false, stat })
        };
        let new = || Arc::new(FileState::new(handle(), stat, None));
        let (removed, other, files) = (new(), new(), Files::default());
        files.insert(removed.clone());
        assert!(files.remove(&removed) && !files.remove(&removed));
        files.insert(other.clone());
        assert!(!files.remove(&removed));
        assert!(files.get(stat.key()).is_some_and(|known| Arc::ptr_eq(&known, &other)));
    }
}

//! A file held open for the length of one call, by calls that take a path.

use super::Namespace;
use crate::known::FileState;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Closes the file when it goes.
pub(crate) struct Known<'a> {
    pub(crate) names: &'a Namespace,
    pub(crate) state: Arc<FileState>,
}

impl Namespace {
    /// The file with this device and inode number, if it is known; it does not leave the tier for
    /// as long as it is held.
    pub(crate) fn known_as(&self, key: (u64, u64)) -> Option<Known<'_>> {
        let _names = self.changing.lock();
        let state = self.files.get(key)?;
        state.handles.fetch_add(1, Ordering::AcqRel);
        Some(Known { names: self, state })
    }
}

impl std::ops::Deref for Known<'_> {
    type Target = FileState;

    fn deref(&self) -> &FileState {
        &self.state
    }
}

impl Drop for Known<'_> {
    fn drop(&mut self) {
        self.names.close(&self.state);
    }
}

//! A file held open for the length of one call, by calls that take a path.

use crate::attached::Inner;
use crate::file::FileState;
use std::sync::Arc;

/// Closes the file when it goes.
pub(crate) struct Known<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) state: Arc<FileState>,
}

impl std::ops::Deref for Known<'_> {
    type Target = FileState;

    fn deref(&self) -> &FileState {
        &self.state
    }
}

impl Drop for Known<'_> {
    fn drop(&mut self) {
        self.inner.close(&self.state);
    }
}

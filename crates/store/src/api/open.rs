//! Open files of home, as a door needs them: a second opening without a question to home, the
//! descriptor behind a file, and room for the door's own descriptors.
//!
//! Deliberately absent: which files are held open (`home/held.rs`).

use super::{AttachedHome, File};
use crate::error::Result;
use crate::home::OpenMode;
use crate::home::{FileTime, HomeFile};
use crate::known::Placed;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The open home file of a [`File`], which stays open as long as this lives.
#[derive(Debug)]
pub struct HomeDescriptor(Arc<dyn HomeFile>);

impl AsFd for HomeDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.descriptor().expect("BUG: it is only made of what has a descriptor")
    }
}

impl File {
    /// Home's own file, for attributes that the store knows nothing of. Its contents are the
    /// store's to read and write.
    ///
    /// # Errors
    /// Those of the home's file system: it may have to be opened for this.
    /// [`crate::Error::Forked`].
    pub fn home_descriptor(&self) -> Result<HomeDescriptor> {
        self.store.env.ours()?;
        let file = self.state.home.file().map_err(self.state.io("cannot open"))?;
        if file.descriptor().is_none() {
            return Err(self.state.invalid("use the descriptor of", "its home is a simulated one"));
        }
        Ok(HomeDescriptor(file))
    }
}

impl AttachedHome {
    /// Opens a file that the tier knows, without asking home anything. `None`: the tier does not
    /// know it, or home has to be asked ([`AttachedHome::open_found`] does). For a door that has
    /// seen to the caller's rights. `born`: the birth time of the file that is meant.
    ///
    /// # Errors
    /// [`crate::Error::Detached`].
    pub fn open_known(
        &self,
        dev: u64,
        ino: u64,
        born: FileTime,
        mode: OpenMode,
    ) -> Result<Option<File>> {
        self.store.env.usable()?;
        // Files are opened and closed under this lock.
        let _names = self.store.names.changing.lock();
        self.store.env.usable()?;
        let known = self.store.files.get((dev, ino));
        let Some(state) = known.filter(|file| {
            let id = &file.identity;
            // Who opens it for writing gets it a slot first.
            let ready =
                |placed: &Placed| !placed.is_gone() && (mode.read_only || placed.has_slot());
            file.placed.as_ref().is_some_and(ready)
                && id.btime_ns != 0
                && id.btime_ns == born.wrapped_ns()
                && !file.unlinked.load(Ordering::Acquire)
                && !file.replace.load(Ordering::Acquire)
                && (mode.read_only || !file.home.is_read_only())
        }) else {
            return Ok(None);
        };
        state.handles.fetch_add(1, Ordering::AcqRel);
        Ok(Some(File::new(self.store.clone(), state, mode.read_only)))
    }

    /// Closes half of the home files that are open and not in use, for a door that has no
    /// descriptor left. They are opened again when they are needed. `false`: there was none.
    pub fn spare_descriptors(&self) -> bool {
        self.store.env.is_ours() && self.store.names.home_files.spare()
    }

    /// How many home files are held open at most.
    pub fn home_files_open(&self) -> usize {
        self.store.names.home_files.most()
    }
}

//! The times of files, as a door shows and sets them ([`crate::homeward`]).

use super::{AttachedHome, File};
use crate::error::Result;
use crate::known::times::{Overlay, SetTime};

impl File {
    /// Device and inode number of the home file.
    pub fn key(&self) -> (u64, u64) {
        self.state.identity.key()
    }

    /// Size and times to show instead of home's; `None` for a file that passes.
    ///
    /// # Errors
    /// Those of the home's file system.
    pub fn overlay(&self) -> Result<Option<Overlay>> {
        self.store.env.ours()?;
        Ok(self.store.homeward.overlay(&self.state)?.1)
    }

    /// Sets the times of the last access and of the last change of the contents.
    ///
    /// # Errors
    /// Those of the home's file system: only the file's owner may.
    ///
    /// # Durability
    /// The modification time of a file in a persistent tier is durable on return, unless the file
    /// is being destaged just then; else after [`File::sync`].
    pub fn set_times(&self, atime: SetTime, mtime: SetTime) -> Result<()> {
        self.store.env.usable()?;
        self.store.io.set_times(&self.state, atime, mtime)
    }
}

impl AttachedHome {
    /// Size and times of the file with this device and inode number, of which home said `seen`,
    /// where the tier knows better; `None`: it does not.
    pub fn overlay(&self, dev: u64, ino: u64, seen: Overlay) -> Option<Overlay> {
        self.store.env.ours().ok()?;
        let known = self.store.files.get((dev, ino));
        match known {
            Some(file) => self.store.homeward.overlay(&file).ok()?.1,
            None => self.store.names.departed_since((dev, ino), &seen),
        }
    }

    /// Says that mode, owner or extended attributes of this file were changed at home: its ctime is
    /// now.
    pub fn attributes_changed(&self, dev: u64, ino: u64) {
        if self.store.env.ours().is_err() {
            return;
        }
        let file = self.store.files.get((dev, ino));
        match file {
            Some(file) => self.store.homeward.mark_changed(&file),
            None => self.store.names.forget_departed((dev, ino)),
        }
    }

    /// [`File::set_times`] for a file of the tier that need not be open; `None`: the tier does not
    /// know it, so its times are home's.
    ///
    /// # Errors
    /// As [`File::set_times`].
    ///
    /// # Durability
    /// As [`File::set_times`].
    pub fn set_times(
        &self,
        dev: u64,
        ino: u64,
        atime: SetTime,
        mtime: SetTime,
    ) -> Option<Result<()>> {
        if let Err(e) = self.store.env.ours() {
            return Some(Err(e));
        }
        let Some(file) = self.store.names.known_as((dev, ino)) else {
            self.store.names.forget_departed((dev, ino));
            return None;
        };
        file.placed.as_ref()?;
        Some(self.store.env.usable().and_then(|()| self.store.io.set_times(&file, atime, mtime)))
    }
}

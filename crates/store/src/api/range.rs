//! Appending, and ranges of a file, as a door asks for them ([`crate::file::range`]).

use super::File;
use crate::error::Result;
use crate::home::Clear;

impl File {
    /// Writes `data` at the end, and returns where that was. Appends to one file do not overlap.
    ///
    /// # Errors
    /// As [`File::write`].
    ///
    /// # Durability
    /// As [`File::write`].
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        self.writable("append to")?;
        let _ranging = self.state.ranging.lock();
        let offset = self.len()?;
        let written = self.store.io.write(&self.state, offset, data);
        self.store.homeward.mark_written(&self.state);
        written.map(|()| offset)
    }

    /// Makes a range zero. Its space stays reserved at home where it was. With `keep_size` what
    /// lies past the end is left out, else the file becomes as long as the range.
    ///
    /// # Errors
    /// As [`File::write`]; [`crate::Error::Invalid`] for an empty range.
    ///
    /// # Durability
    /// On a persistent tier durable on return, each aligned block of a data file old or zero; else
    /// after [`File::sync`].
    pub fn zero(&self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        self.writable("zero a range of")?;
        let cleared = self.store.io.clear(&self.state, offset, len, Clear::Zero, !keep_size);
        self.store.homeward.mark_written(&self.state);
        cleared
    }

    /// Makes a range zero and gives its space back; the size stays.
    ///
    /// # Errors
    /// As [`File::zero`].
    ///
    /// # Durability
    /// As [`File::zero`].
    pub fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.writable("punch a hole into")?;
        let cleared = self.store.io.clear(&self.state, offset, len, Clear::Punch, false);
        self.store.homeward.mark_written(&self.state);
        cleared
    }

    /// Reserves space for a range at home, so that what is written there later finds room. Without
    /// `keep_size` the file becomes as long as the range.
    ///
    /// # Errors
    /// Home's error (`ENOSPC`, `EOPNOTSUPP`) now and not when blocks are destaged; nothing is
    /// changed then.
    ///
    /// # Durability
    /// The size as with [`File::extend`]; the reservation after home's file was synced.
    pub fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> Result<()> {
        self.writable("reserve space for")?;
        self.store.io.allocate(&self.state, offset, len, keep_size)?;
        self.store.homeward.mark_written(&self.state);
        Ok(())
    }

    /// The first byte from `offset` on that is not in a hole (SEEK_DATA); `None` when there is
    /// none. Blocks in the tier are no holes.
    ///
    /// # Errors
    /// Those of the home's file system.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        self.store.env.usable()?;
        self.store.io.next_data(&self.state, offset)
    }

    /// The first byte from `offset` on that is in a hole, or the end of the file (SEEK_HOLE);
    /// `None` when `offset` is at the end or past it.
    ///
    /// # Errors
    /// Those of the home's file system.
    pub fn next_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.store.env.usable()?;
        self.store.io.next_hole(&self.state, offset)
    }
}

//! Lending a file to the kernel, as a door asks for it ([`crate::lend`]).

use super::{AttachedHome, File};
use crate::error::Result;
use crate::plain::Plain;
use crate::profile::FileClass;
use crate::sync::atomic::Ordering;
use std::os::fd::{AsFd, BorrowedFd};

/// A lent file, for as long as the kernel has it.
#[derive(Debug)]
pub struct LentFile {
    file: File,
    pub(crate) plain: Plain,
}

impl LentFile {
    /// The plain file, for the kernel; `None` in a simulation.
    #[must_use]
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.plain.descriptor.as_ref().map(|fd| fd.as_fd())
    }
}

impl Drop for LentFile {
    fn drop(&mut self) {
        let Some(placed) =
            self.file.state.placed.as_ref().filter(|_| self.file.store.env.is_ours())
        else {
            return;
        };
        placed.loan.idle_since_ns.store(self.file.store.env.home.now_ns(), Ordering::Release);
        placed.loan.changed();
        placed.loan.borrowers.fetch_sub(1, Ordering::AcqRel);
        if self.file.store.env.options.background {
            self.file.store.env.wake_background();
        }
    }
}

impl File {
    /// Lends the file: from here on its contents are in a plain file, which the kernel may be given
    /// for as long as the answer lives. `None` when it is not one to be lent, or cannot be;
    /// [`crate::Stats`] says why.
    ///
    /// # Errors
    /// [`crate::Error::Detached`]; those of home, if the file's name cannot be made durable.
    ///
    /// # Durability
    /// What was durable stays so, and that there is such a file is durable. What the kernel writes
    /// to the plain file is durable when the write returns, except through a memory map: then after
    /// `msync`.
    pub fn lend(&self) -> Result<Option<LentFile>> {
        self.writable("lend")?;
        let lent = self
            .store
            .lender
            .lend(&self.state)?
            .map(|plain| LentFile { file: self.clone(), plain });
        if lent.is_some() {
            // No write of the kernel comes here, so none could wait for the file's name.
            self.store.names.settle(&self.state)?;
        }
        Ok(lent)
    }

    /// Ends the loan of the file, if nobody has its plain file: see [`AttachedHome::give_back`].
    /// `false`: somebody does.
    ///
    /// # Errors
    /// As [`AttachedHome::give_back`].
    ///
    /// # Durability
    /// The home file is synced on return.
    pub fn give_back(&self) -> Result<bool> {
        self.writable("give back")?;
        let _lending = self.store.lender.lending.lock();
        self.store.lender.give_back(&self.state)
    }

    /// Whether the file is lent now.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.state.placed.as_ref().is_some_and(|p| p.loan.is_lent())
    }

    /// Whether the profile lets the file be lent under the name it has.
    #[must_use]
    pub fn may_be_lent(&self) -> bool {
        self.state
            .placed
            .as_ref()
            .is_some_and(|p| p.class == FileClass::Redo && p.tier.holds_dirty())
            && self.store.profile.is_lent(&self.state.path.lock())
    }
}

impl AttachedHome {
    /// Ends the loan of a file that nobody uses. `false`: somebody does.
    ///
    /// # Errors
    /// Home's error when it cannot be written; the file is lent still, and nothing is lost.
    ///
    /// # Durability
    /// The home file is synced on return.
    pub fn give_back(&self, path: impl AsRef<std::path::Path>) -> Result<bool> {
        self.store.env.usable()?;
        let known = self.store.names.known(path.as_ref())?;
        let _lending = self.store.lender.lending.lock();
        self.store.lender.give_back(&known)
    }
}

impl File {
    /// Ends the loan of the file, if that waits for nobody: home has all of it, no other loan is
    /// just begun or ended, and nobody has the plain file. Whether it is lent no more.
    ///
    /// # Errors
    /// As [`File::give_back`].
    ///
    /// # Durability
    /// As [`File::give_back`].
    pub fn give_back_at_once(&self) -> Result<bool> {
        self.writable("give back")?;
        let Some(placed) = self.state.placed.as_ref().filter(|p| p.loan.is_lent()) else {
            return Ok(true);
        };
        let Some(_lending) = self.store.lender.lending.try_lock() else { return Ok(false) };
        if !placed.loan.is_at_home() {
            return Ok(false);
        }
        self.store.lender.give_back(&self.state)
    }
}

//! Names, as a door asks for them: opening what it has found, renaming, which class a name has
//! ([`crate::names`]).

use super::{AttachedHome, File};
use crate::error::{Error, Result};
use crate::home::OpenMode;
use crate::home::{Named, RenameFlags};
use crate::names::settle::Settled;
use crate::profile::{Placement, Profile};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

impl AttachedHome {
    /// The profile the home is attached with.
    pub fn profile(&self) -> &Profile {
        &self.store.profile
    }

    /// Its name.
    pub fn profile_name(&self) -> &str {
        self.store.profile.name()
    }

    /// Class and block size of a file of this name, by the profile. A file that the tier knows may
    /// have another one: [`File::class`].
    pub fn placement(&self, path: impl AsRef<Path>) -> Placement {
        self.store.profile.placement(path.as_ref())
    }

    /// Whether the tier knows the file at `path`. Then home alone may be old, whatever class its
    /// name has.
    ///
    /// # Errors
    /// Those of the home's file system.
    pub fn in_tier(&self, path: impl AsRef<Path>) -> Result<bool> {
        self.store.env.ours()?;
        let path = path.as_ref();
        let stat = self.store.env.home.stat(path).map_err(Error::io("cannot stat", path))?;
        Ok(self.store.names.find(&stat).is_some_and(|file| file.placed.is_some()))
    }

    /// The home directory itself, wherever it was moved; `None` for a simulated one.
    pub fn directory(&self) -> Option<BorrowedFd<'_>> {
        self.store.env.home.directory()
    }

    /// The path that programs know the home by.
    pub fn home_path(&self) -> PathBuf {
        self.store.env.home_path().to_path_buf()
    }

    /// Opens a file that is there. Two names of one file are one file.
    ///
    /// # Errors
    /// Those of the home's file system.
    pub fn open_found(&self, path: impl AsRef<Path>, mode: OpenMode) -> Result<File> {
        self.open(path, OpenMode { create: false, exclusive: false, ..mode })
    }

    /// Renames anything: plainly, refusing to replace, or exchanging two names. Files keep their
    /// blocks.
    ///
    /// # Errors
    /// Those of the home's file system; nothing is lost.
    ///
    /// # Durability
    /// As [`AttachedHome::rename`].
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let rename = || self.store.env.home.rename_with(from, to, flags);
        self.store.env.usable()?;
        let (at, new) = (Named::by_path(from), Named::by_path(to));
        self.store.names.rename_by(at, new, flags, Settled::OnReturn, rename)
    }

    /// As [`AttachedHome::rename_with`], and `rename` does it at home.
    ///
    /// # Errors
    /// Those of `rename` and of the home's file system; nothing is lost.
    ///
    /// # Durability
    /// After [`File::sync`], or [`AttachedHome::sync_dir`] of both names.
    pub fn rename_by(
        &self,
        from: Named<'_>,
        to: Named<'_>,
        flags: RenameFlags,
        rename: impl FnOnce() -> io::Result<()>,
    ) -> Result<()> {
        self.store.env.usable()?;
        self.store.names.rename_by(from, to, flags, Settled::AtSync, rename)
    }

    /// As [`AttachedHome::unlink`].
    ///
    /// # Errors
    /// Those of the home's file system; nothing is lost.
    ///
    /// # Durability
    /// After [`AttachedHome::sync_dir`]: until then a power cut leaves the whole file or none.
    pub fn unlink_named(&self, at: Named<'_>) -> Result<()> {
        self.store.env.usable()?;
        self.store.names.unlink(at, Settled::AtSync)
    }

    /// As [`AttachedHome::open_found`], of a file that the caller has just made.
    ///
    /// # Errors
    /// Those of the home's file system.
    ///
    /// # Durability
    /// That there is such a file is durable after [`File::sync`], or [`AttachedHome::sync_dir`].
    /// Until then a power cut leaves no file, or the file with every write that was durable on
    /// return.
    pub fn open_made(&self, path: impl AsRef<Path>, mode: OpenMode) -> Result<File> {
        let mode = OpenMode { create: false, exclusive: false, ..mode };
        self.store.env.usable()?;
        let state = self.store.names.open_or_made(path.as_ref(), mode, Settled::AtSync)?;
        Ok(File::new(self.store.clone(), state, mode.read_only))
    }

    /// Makes durable which files were made and removed through this object, and frees the blocks of
    /// those removed. The background does it about a second after the first of them.
    ///
    /// # Errors
    /// Those of the home's file system; it is tried again in the background.
    ///
    /// # Durability
    /// Every creation and removal that returned before the call survives a power cut.
    pub fn settle_names(&self) -> Result<()> {
        self.store.env.usable()?;
        self.store.names.settle_all()
    }

    /// Gives the open file `file`, which is one of the home, the further name `to` in a directory.
    /// A path descriptor will do.
    ///
    /// # Errors
    /// Those of the home's file system; unsupported for a name that is given by its path.
    ///
    /// # Durability
    /// As [`AttachedHome::link`].
    pub fn link_named(&self, file: BorrowedFd<'_>, to: Named<'_>) -> Result<()> {
        self.store.env.usable()?;
        self.store.names.link_open(file, to)
    }
}

//! Names: opening what a door has found, renaming with flags and whole directories, which class a name has.
//!
//! # Renaming, and what a power cut leaves
//! The tier knows a file by its inode number; the path in its slot is a hint. So a rename is home's alone, and a cut leaves the old or the
//! new name, with all blocks. A file that loses its last name by the rename goes as with an unlink (`crate::names`).
//!
//! # When a new name has another class
//! A file keeps its class, and its blocks, as long as it is open. When nobody has it open it goes home whole, leaves the tier, and gets the
//! class of its name when it is opened next. So `temp-1.aof`, written and synced as `pass` and renamed to a name of class `redo`, becomes redo
//! with the next opening; a `data` file that becomes `pass` is first made whole at home; and a WAL segment renamed to be written again keeps
//! its blocks, since both names are `redo`.

use crate::attached::{AttachedHome, File, Inner, OpenMode};
use crate::error::{Error, Result};
use crate::home::{FileKind, HomeStat, Named, RenameFlags};
use crate::known::FileState;
use crate::profile::{FileClass, Placement, Profile};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Inner {
    pub(crate) fn rename_by(
        &self,
        at: Named<'_>,
        new: Named<'_>,
        flags: RenameFlags,
        rename: impl FnOnce() -> io::Result<()>,
    ) -> Result<()> {
        let (from, to) = (at.path(), new.path());
        let _names = self.names.lock();
        self.may_name(&[from, to])?;
        let moved = at.stat(&*self.env.home).map_err(Error::io("cannot rename", from))?;
        let target = new.stat(&*self.env.home).ok();
        let victim = target.filter(|stat| {
            flags == RenameFlags::None
                && moved.kind != FileKind::Directory
                && stat.kind != FileKind::Directory
                && stat.key() != moved.key()
                && stat.nlink <= 1
        });
        let victim = victim.and_then(|stat| self.find(&stat));
        self.hold_open(victim.as_ref())?;
        self.before_last_name_goes(victim.as_ref());
        let mut new_paths = self.moved(&moved, from, to);
        let exchanged = target.filter(|_| flags == RenameFlags::Exchange);
        if let Some(other) = &exchanged {
            new_paths.extend(self.moved(other, to, from));
        }
        let gone = {
            // Files are opened by their paths: not while home has one name and the file the other.
            let _renaming = self.home_files.renaming();
            let gone = rename();
            if gone.is_ok() {
                for (file, path) in &new_paths {
                    path.clone_into(&mut file.path.lock());
                }
            }
            gone.map_err(Error::io("cannot rename", from))
        };
        if gone.is_ok() {
            for (file, path) in &new_paths {
                self.now_called(file, path);
            }
            let replaced = target.filter(|_| exchanged.is_none()).and_then(|stat| self.find(&stat));
            if let Some(file) = replaced {
                self.homeward.mark_changed(&file);
            }
        }
        self.after_last_name_went(victim, new, gone)
    }

    /// The files whose path changes when what has the path `from` gets the path `to`, and to what.
    fn moved(&self, what: &HomeStat, from: &Path, to: &Path) -> Vec<(Arc<FileState>, PathBuf)> {
        if what.kind == FileKind::Directory {
            self.below(from).into_iter().map(|(file, below)| (file, to.join(below))).collect()
        } else {
            self.find(what).map(|file| (file, to.to_path_buf())).into_iter().collect()
        }
    }

    /// The files last seen below a directory, with the rest of their path.
    fn below(&self, dir: &Path) -> Vec<(Arc<FileState>, PathBuf)> {
        let rest = |file: &Arc<FileState>| file.path.lock().strip_prefix(dir).ok().map(Path::to_path_buf);
        let files = self.files.all().into_iter();
        files.filter_map(|file| rest(&file).map(|rest| (file, rest))).collect()
    }

    fn now_called(&self, file: &Arc<FileState>, path: &Path) {
        let class = file.placed.as_ref().map_or(FileClass::Pass, |p| p.class);
        file.replace.store(self.profile.placement(path).class != class, Ordering::Release);
        if let Some(placed) = file.placed.as_ref().filter(|p| !p.is_gone()) {
            placed.write_path(path);
        }
        self.homeward.mark_changed(file);
    }

    /// A name was given to the file at `at`.
    pub(crate) fn names_changed(&self, at: Named<'_>) {
        let file = at.stat(&*self.env.home).ok().and_then(|stat| self.find(&stat));
        if let Some(file) = file {
            self.homeward.mark_changed(&file);
        }
    }
}

impl AttachedHome {
    /// The profile the home is attached with.
    pub fn profile(&self) -> &Profile {
        &self.inner.profile
    }

    /// Its name.
    pub fn profile_name(&self) -> &str {
        self.inner.profile.name()
    }

    /// Class and block size of a file of this name, by the profile. A file that the tier knows may have another one: [`File::class`].
    pub fn placement(&self, path: impl AsRef<Path>) -> Placement {
        self.inner.profile.placement(path.as_ref())
    }

    /// Whether the tier knows the file at `path`. Then home alone may be old, whatever class its name has.
    ///
    /// # Errors
    /// Those of the home's file system.
    pub fn in_tier(&self, path: impl AsRef<Path>) -> Result<bool> {
        self.inner.env.ours()?;
        let path = path.as_ref();
        let stat = self.inner.env.home.stat(path).map_err(Error::io("cannot stat", path))?;
        Ok(self.inner.find(&stat).is_some_and(|file| file.placed.is_some()))
    }

    /// The home directory itself, wherever it was moved; `None` for a simulated one.
    pub fn directory(&self) -> Option<BorrowedFd<'_>> {
        self.inner.env.home.directory()
    }

    /// The path that programs know the home by.
    pub fn home_path(&self) -> PathBuf {
        self.inner.env.home_path().to_path_buf()
    }

    /// Opens a file that is there. Two names of one file are one file.
    ///
    /// # Errors
    /// Those of the home's file system.
    pub fn open_found(&self, path: impl AsRef<Path>, mode: OpenMode) -> Result<File> {
        self.open(path, OpenMode { create: false, exclusive: false, ..mode })
    }

    /// Renames anything: plainly, refusing to replace, or exchanging two names. Files keep their blocks.
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
        let rename = || self.inner.env.home.rename_with(from, to, flags);
        self.rename_by(Named::by_path(from), Named::by_path(to), flags, rename)
    }

    /// As [`AttachedHome::rename_with`], and `rename` does it at home.
    ///
    /// # Errors
    /// Those of `rename` and of the home's file system; nothing is lost.
    ///
    /// # Durability
    /// As [`AttachedHome::rename`].
    pub fn rename_by(
        &self,
        from: Named<'_>,
        to: Named<'_>,
        flags: RenameFlags,
        rename: impl FnOnce() -> io::Result<()>,
    ) -> Result<()> {
        self.inner.env.usable()?;
        self.inner.rename_by(from, to, flags, rename)
    }

    /// As [`AttachedHome::unlink`].
    ///
    /// # Errors
    /// Those of the home's file system; nothing is lost.
    ///
    /// # Durability
    /// As [`AttachedHome::unlink`].
    pub fn unlink_named(&self, at: Named<'_>) -> Result<()> {
        self.inner.env.usable()?;
        self.inner.unlink(at)
    }

    /// Gives the open file `file`, which is one of the home, the further name `to` in a directory. A path descriptor will do.
    ///
    /// # Errors
    /// Those of the home's file system; unsupported for a name that is given by its path.
    ///
    /// # Durability
    /// As [`AttachedHome::link`].
    pub fn link_named(&self, file: BorrowedFd<'_>, to: Named<'_>) -> Result<()> {
        self.inner.env.usable()?;
        self.inner.link_open(file, to)
    }
}

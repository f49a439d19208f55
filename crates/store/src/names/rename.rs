//! Renaming with flags, and of whole directories.
//!
//! # Renaming, and what a power cut leaves
//! The tier knows a file by its inode number; the path in its slot is a hint. So a rename is home's
//! alone, and a cut leaves the old or the new name, with all blocks. A file that loses its last
//! name by the rename goes as with an unlink ([`super`]).
//!
//! # When a new name has another class
//! A file keeps its class, and its blocks, as long as it is open. When nobody has it open it goes
//! home whole, leaves the tier, and gets the class of its name when it is opened next. So
//! `temp-1.aof`, written and synced as `pass` and renamed to a name of class `data`, becomes data
//! with the next opening; a `data` file that becomes `pass` is first made whole at home; and a WAL
//! segment renamed to be written again keeps its blocks, since both names are `redo`.

use crate::error::{Error, Result};
use crate::home::{FileKind, HomeStat, Named, RenameFlags};
use crate::known::FileState;
use crate::profile::FileClass;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Namespace;
use super::settle::Settled;

impl Namespace {
    pub(crate) fn rename_by(
        &self,
        at: Named<'_>,
        new: Named<'_>,
        flags: RenameFlags,
        settled: Settled,
        rename: impl FnOnce() -> io::Result<()>,
    ) -> Result<()> {
        let renamed = self.rename_one(at, new, flags, settled, rename);
        self.settle_if_many();
        renamed
    }

    fn rename_one(
        &self,
        at: Named<'_>,
        new: Named<'_>,
        flags: RenameFlags,
        settled: Settled,
        rename: impl FnOnce() -> io::Result<()>,
    ) -> Result<()> {
        let (from, to) = (at.path(), new.path());
        let _names = self.changing.lock();
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
        let settled = self.hold_open(victim.as_ref(), settled)?;
        let announced = self.before_last_name_goes(victim.as_ref());
        let mut new_paths = self.moved(&moved, from, to);
        let exchanged = target.filter(|_| flags == RenameFlags::Exchange);
        if let Some(other) = &exchanged {
            new_paths.extend(self.moved(other, to, from));
        }
        let gone = announced.and_then(|()| {
            // Files are opened by their paths: not while home has one name and the file the other.
            let _renaming = self.home_files.renaming();
            let gone = rename();
            if gone.is_ok() {
                for (file, path) in &new_paths {
                    path.clone_into(&mut file.path.lock());
                    self.name_changed(file);
                }
            }
            gone.map_err(Error::io("cannot rename", from))
        });
        if gone.is_ok() {
            for (file, path) in &new_paths {
                self.now_called(file, path);
            }
            let replaced = target.filter(|_| exchanged.is_none()).and_then(|stat| self.find(&stat));
            if let Some(file) = replaced {
                self.homeward.mark_changed(&file);
            }
        }
        self.after_last_name_went(victim, new, gone, settled)
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
        let rest =
            |file: &Arc<FileState>| file.path.lock().strip_prefix(dir).ok().map(Path::to_path_buf);
        let files = self.files.all().into_iter();
        files.filter_map(|file| rest(&file).map(|rest| (file, rest))).collect()
    }

    fn now_called(&self, file: &Arc<FileState>, path: &Path) {
        file.treat_by(&self.env.options.cache, path);
        let class = file.placed.as_ref().map_or(FileClass::Pass, |p| p.class);
        file.replace.store(self.profile.placement(path).class != class, Ordering::Release);
        if let Some(placed) = file.placed.as_ref().filter(|p| !p.is_gone()) {
            placed.write_path(path);
        }
        self.homeward.mark_changed(file);
    }

    /// A file got a further name, `to`. Its sync settles the directory of one of its names, so a
    /// name in another is settled here; else the file could be lost with the first name, though it
    /// was synced since.
    pub(crate) fn linked(&self, to: Named<'_>) -> Result<()> {
        let file = to.stat(&*self.env.home).ok().and_then(|stat| self.find(&stat));
        let Some(file) = file else { return Ok(()) };
        let elsewhere = file.path.lock().parent() != to.path().parent();
        if elsewhere && let Err(e) = self.settle_name(to.path(), || to.sync_dir(&*self.env.home)) {
            // The program is told that there is no such name.
            let _ = to.unlink(&*self.env.home);
            return Err(e);
        }
        self.name_changed(&file);
        self.homeward.mark_changed(&file);
        Ok(())
    }
}

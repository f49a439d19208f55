//! Where a member is: its name in a directory that is held open for as long as it is made, opened
//! and taken back.
//!
//! Deliberately not here: whose the member may be. The mapping asks what it has opened.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, FlockOperation, Stat};
use tiersmith_dir::{Dir, Found};

use crate::error::{MediumError, Result};
use crate::format::superblock::{COPY_AT, SUPERBLOCK, Superblock, TierState};

/// A member's place, and what was there when it was found.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) dir: Dir,
    pub(crate) name: OsString,
    /// For messages.
    pub(crate) path: PathBuf,
    was: Option<Stat>,
}

impl Held {
    /// The place of `path`, with every link on the way to it judged when root goes there.
    ///
    /// # Errors
    /// As [`Dir::holding`].
    pub(crate) fn find(path: &Path) -> io::Result<Self> {
        let (dir, name) = Dir::holding(path)?;
        let was = match rustix::fs::statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Some(found),
            Err(rustix::io::Errno::NOENT) => None,
            Err(e) => return Err(e.into()),
        };
        Ok(Self { dir, name, path: path.to_path_buf(), was })
    }

    /// The places of a tier's members.
    ///
    /// # Errors
    /// As [`Held::find`].
    pub(crate) fn all(members: &[PathBuf]) -> Result<Vec<Self>> {
        let find = |path: &PathBuf| {
            Self::find(path).map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => MediumError::Missing { path: path.clone() },
                _ => MediumError::Io { action: "finding", path: path.clone(), source },
            })
        };
        members.iter().map(|path| Ok(find(path)?)).collect()
    }

    /// What is there, if it is of this kind.
    pub(crate) fn was(&self, kind: FileType) -> Option<&Stat> {
        self.was.as_ref().filter(|was| FileType::from_raw_mode(was.st_mode) == kind)
    }

    /// Nothing, or an empty file.
    fn was_empty(&self) -> bool {
        match &self.was {
            None => true,
            Some(_) => self.was(FileType::RegularFile).is_some_and(|was| was.st_size == 0),
        }
    }

    /// The directory, for who opens the member.
    ///
    /// # Errors
    /// EMFILE.
    pub(crate) fn directory(&self) -> io::Result<Arc<OwnedFd>> {
        Ok(Arc::new(self.dir.as_fd().try_clone_to_owned()?))
    }

    /// Takes back what [`crate::tier::open`] made where nothing was, if nothing is attached to it:
    /// an empty file is empty again, else there is none. `made` is what they opened, and nothing
    /// else is touched.
    pub(crate) fn undo_new(&self, made: &Found) {
        use std::os::unix::fs::FileExt;
        if !self.was_empty() {
            return;
        }
        let Ok(file) = self.dir.open_file_rw(&self.name) else { return };
        let ours = Found::of(&file).is_ok_and(|now| now.same_file(made))
            && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let mut bytes = [1; SUPERBLOCK];
        let mut unused = |at: &u64| {
            let read = file.read_exact_at(&mut bytes, *at).is_ok();
            let attached = Superblock::decode(&bytes)
                .is_ok_and(|sb| !matches!(sb.state, TierState::Attaching | TierState::Detached));
            read && !attached
        };
        if ours && COPY_AT.iter().all(&mut unused) {
            // Best effort: the caller has an error to give that explains more than one from here
            // would.
            let _ = match self.was {
                Some(_) => file.set_len(0),
                None => self.dir.remove_file_that_is(&self.name, made).map(drop),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn only_the_file_that_was_made_is_taken_back() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("tier");
        let held = Held::find(&path).unwrap();
        let make = || {
            fs::write(&path, vec![0; 1 << 20]).unwrap();
            Found::of(fs::File::open(&path).unwrap()).unwrap()
        };
        let made = make();
        let aside = scratch.path().join("aside");
        fs::rename(&path, &aside).unwrap();
        let others = make();
        held.undo_new(&made);
        assert!(path.exists() && aside.exists(), "another's file was removed");
        held.undo_new(&others);
        assert!(!path.exists());
        // An empty file that was there is made empty again, and stays.
        fs::write(&path, "").unwrap();
        let held = Held::find(&path).unwrap();
        held.undo_new(&make());
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    }
}

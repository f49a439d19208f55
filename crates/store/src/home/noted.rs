//! Reading the attachment note of a home without opening the home: it may be in use by another
//! process, mounted, or another user's.
//!
//! Nothing is written, nothing is locked. The note is read from the directory wherever it was
//! moved, never through a mount.

use super::guard::Located;
use super::inside::files_inside;
use super::look::{home_stat, status, without_links};
use super::vault::{Vault, files_aside};
use super::{ATTACHMENT, HomeError, HomeStat};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// No sound note is longer.
pub(crate) const NOTE_MAX: u64 = 1 << 20;

/// A home and the bytes of its note.
pub(crate) struct NoteOf {
    /// The path that programs know it by.
    pub(crate) home: PathBuf,
    /// Where its files are.
    pub(crate) files: PathBuf,
    /// Their directory, which may lie where this user cannot go by its path.
    pub(crate) directory: OwnedFd,
    pub(crate) aside: bool,
    pub(crate) note: Option<Vec<u8>>,
    /// Of the very file that was read: whose it is, its permissions, and how many names it has.
    pub(crate) owner: u32,
    pub(crate) mode: u32,
    pub(crate) links: u32,
}

impl NoteOf {
    /// What the file system says about the directory of the files.
    pub(crate) fn stat(&self) -> Result<HomeStat, Errno> {
        Ok(home_stat(&status(&self.directory, OsStr::new(""))?))
    }

    pub(crate) fn read(path: &Path) -> Result<Self, HomeError> {
        let home = without_links(path)?;
        let Located { dir, parent, inside } = super::guard::locate_settled(&home)?;
        let failed = |e: Errno| HomeError::Io {
            what: "read the note of",
            path: home.clone(),
            source: e.into(),
        };
        let is_beside = match (&parent, home.file_name()) {
            (Some(parent), Some(name)) => {
                let vault = super::guard::aside_name(name);
                Vault::around(&dir, parent, &vault, PathBuf::new())
                    .is_ok_and(|vault| vault.is_some())
            }
            _ => false,
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let (mut owner, mut mode, mut links) = (0, 0, 0);
        let note = match rustix::fs::openat(&dir, ATTACHMENT, flags, Mode::empty()) {
            Err(Errno::NOENT) => None,
            Err(e) => return Err(failed(e)),
            Ok(file) => {
                let found = status(&file, OsStr::new("")).map_err(failed)?;
                if FileType::from_raw_mode(found.stx_mode.into()) != FileType::RegularFile {
                    return Err(failed(Errno::INVAL));
                }
                (owner, mode, links) =
                    (found.stx_uid, u32::from(found.stx_mode) & 0o7777, found.stx_nlink);
                let mut bytes = Vec::new();
                let read = File::from(file).take(NOTE_MAX + 1).read_to_end(&mut bytes);
                read.map_err(|source| HomeError::Io {
                    what: "read the note of",
                    path: home.clone(),
                    source,
                })?;
                Some(bytes)
            }
        };
        let files = match (is_beside, inside) {
            (true, _) => files_aside(&home),
            (false, true) => files_inside(&home),
            (false, false) => home.clone(),
        };
        let aside = is_beside || inside;
        Ok(Self { home, files, directory: dir, aside, note, owner, mode, links })
    }
}

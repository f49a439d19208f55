//! Reading directories, with or without the attributes of what is in them.
//!
//! The position in a directory is home's own, so a program that goes on later, or goes back, is
//! told what home would tell it.

use super::table::ROOT;
use super::{Answer, Fs, VALID, mask, sync_directory};
use crate::attr::Attr;
use crate::wire::encode::{Out, dirent_len};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use tiersmith_store::home::RESERVED;

/// An open directory.
#[derive(Debug)]
pub(crate) struct Listing {
    fd: Arc<OwnedFd>,
    /// Its position is one for all.
    position: Mutex<()>,
}

impl Fs {
    pub(crate) fn opendir(&self, id: u64) -> Answer<u64> {
        let _renames = self.renames.read();
        let node = self.node(id)?;
        if !node.is_dir() {
            return Err(Errno::NOTDIR);
        }
        let dir = self.directory(&node)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(&dir, ".", flags, Mode::empty());
        let fd =
            self.with_descriptor(open).map_err(|e| self.trouble("read the directory", &node, e))?;
        let fd = Arc::new(fd);
        node.list(&fd);
        Ok(self.listings.put(Arc::new(Listing { fd, position: Mutex::default() })))
    }

    pub(crate) fn releasedir(&self, fh: u64) {
        self.listings.take(fh);
    }

    pub(crate) fn fsyncdir(&self, id: u64, fh: u64) -> Answer<()> {
        if let Some(listing) = self.listings.get(fh) {
            return rustix::fs::fsync(&listing.fd);
        }
        let _renames = self.renames.read();
        sync_directory(self.directory(&*self.node(id)?)?.as_ref())
    }

    /// Fills the answer with what comes after `offset`, as much as fits.
    pub(crate) fn readdir(
        &self,
        id: u64,
        fh: u64,
        offset: u64,
        plus: bool,
        out: &mut Out<'_>,
    ) -> Answer<()> {
        let listing = self.listings.get(fh).ok_or(Errno::BADF)?;
        let _position = listing.position.lock();
        let fd = &listing.fd;
        // Positions are home's, some of them with the highest bit set.
        match i64::try_from(offset) {
            Ok(_) => rustix::fs::seek(fd, SeekFrom::Start(offset))?,
            Err(_) => return Err(Errno::INVAL),
        };
        let mut space = [MaybeUninit::uninit(); 16 << 10];
        let mut entries = RawDir::new(fd, &mut space);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let dots = name == b"." || name == b"..";
            if self.shows_reserved(id) && RESERVED.iter().any(|r| r.as_bytes() == name) {
                continue;
            }
            if out.room() < dirent_len(name, plus) {
                return Ok(());
            }
            let mut ino = entry.ino();
            if id == ROOT && name == b".." {
                // What is above the mount point is not home's to say.
                ino = self.node(ROOT)?.identity.ino;
            }
            if plus {
                if dots {
                    out.entry(0, &Attr { ino, ..Attr::default() }, std::time::Duration::ZERO)?;
                } else {
                    let name = OsStr::from_bytes(name);
                    match rustix::fs::statx(fd, name, AtFlags::SYMLINK_NOFOLLOW, mask()) {
                        Ok(found) => {
                            let entry = self.enter(id, name, &found);
                            out.entry(entry.node, &entry.attr, VALID)?;
                        }
                        Err(Errno::NOENT) => continue,
                        Err(_) => out.entry(0, &Attr::default(), std::time::Duration::ZERO)?,
                    }
                }
            }
            let kind = entry.file_type().as_raw_mode() >> 12 & 15;
            out.dirent(ino, entry.next_entry_cookie(), kind, name)?;
        }
        Ok(())
    }
}

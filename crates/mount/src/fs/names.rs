//! Names: looking up, making, renaming, linking and removing them.
//!
//! What is made belongs to the caller as on any file system: the caller's user, and the caller's
//! group unless the directory hands its own down. Home sees to that itself: for the call the thread
//! has the caller's user, group and umask ([`crate::caller`]), and no file is given away after it
//! was made.
//!
//! A regular file is made here and then opened through the store.
//!
//! # Durability
//! A name is durable when the program syncs the file or its directory, as on any file system. Where
//! the mount syncs on every write, no sync of a file comes here, so what that would make durable (a
//! file that was made, renamed or linked) is durable on return.

use super::io::{Handle, Opening};
use super::{At, Attr, Fs, mask};
use crate::attr::attr_of;
use crate::caller::{Caller, with_umask};
use crate::fs::table::Node;
use crate::fs::{Answer, sync_directory};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use tiersmith_store::RenameFlags;

const HANDLE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A node that the kernel now knows once more, and its attributes.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) node: u64,
    pub(crate) attr: Attr,
}

impl Fs {
    /// Looks a name up. `None`: there is no such name.
    pub(crate) fn lookup(&self, parent: u64, name: &OsStr) -> Answer<Option<Entry>> {
        let _renames = self.renames.read();
        let at = match self.at(parent, name) {
            Ok(at) => at,
            // Tiersmith's own names are not there for anybody else.
            Err(Errno::PERM) if self.shows_reserved(parent) => return Ok(None),
            Err(e) => return Err(e),
        };
        match rustix::fs::statx(&at.dir, &at.name, AtFlags::SYMLINK_NOFOLLOW, mask()) {
            Ok(found) => Ok(Some(self.enter(parent, name, &found))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(self.refused("look up", &at.path, e)),
        }
    }

    /// Tells the table what is behind a name.
    pub(super) fn enter(&self, parent: u64, name: &OsStr, found: &Statx) -> Entry {
        let node = self.table.lock().enter(parent, name, found);
        Entry { node: node.id, attr: attr_of(&self.home, found) }
    }

    pub(crate) fn forget(&self, node: u64, lookups: u64) {
        self.table.lock().forget(node, lookups);
    }

    fn enter_made(&self, parent: u64, at: &At) -> Answer<Entry> {
        let found = rustix::fs::statx(&at.dir, &at.name, AtFlags::SYMLINK_NOFOLLOW, mask())?;
        Ok(self.enter(parent, &at.name, &found))
    }

    /// Makes a directory.
    pub(crate) fn mkdir(
        &self,
        who: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        umask: u32,
    ) -> Answer<Entry> {
        let _renames = self.renames.read();
        let at = self.at(parent, name)?;
        let bits = Mode::from_raw_mode(mode & 0o7777);
        who.owning(|| with_umask(umask, || rustix::fs::mkdirat(&at.dir, &at.name, bits)))
            .map_err(|e| self.refused("make the directory", &at.path, e))?;
        self.enter_made(parent, &at)
    }

    /// Makes a file, pipe, socket or device.
    pub(crate) fn mknod(
        &self,
        who: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        rdev: u32,
        umask: u32,
    ) -> Answer<Entry> {
        let _renames = self.renames.read();
        let at = self.at(parent, name)?;
        let kind = FileType::from_raw_mode(mode);
        if kind == FileType::RegularFile {
            drop(self.make_file(who, &at, mode, umask)?);
        } else {
            let dev =
                rustix::fs::makedev((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & !0xff));
            let bits = Mode::from_raw_mode(mode & 0o7777);
            who.owning(|| {
                with_umask(umask, || rustix::fs::mknodat(&at.dir, &at.name, kind, bits, dev))
            })
            .map_err(|e| self.refused("make", &at.path, e))?;
        }
        // Where that fails the program is told that nothing was made, so it goes again.
        self.settle_directory(&at.dir).inspect_err(|_| {
            let _ = rustix::fs::unlinkat(&at.dir, &at.name, AtFlags::empty());
        })?;
        self.enter_made(parent, &at)
    }

    /// Makes a symbolic link.
    pub(crate) fn symlink(
        &self,
        who: Caller,
        parent: u64,
        name: &OsStr,
        target: &OsStr,
    ) -> Answer<Entry> {
        let _renames = self.renames.read();
        let at = self.at(parent, name)?;
        who.owning(|| rustix::fs::symlinkat(target, &at.dir, &at.name))
            .map_err(|e| self.refused("make the link", &at.path, e))?;
        self.enter_made(parent, &at)
    }

    /// Makes a file and opens it; opens the one that is there, unless `exclusive`.
    pub(crate) fn create(
        &self,
        who: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: u32,
    ) -> Answer<(Entry, Handle)> {
        let renames = self.renames.read();
        let at = self.at(parent, name)?;
        // Who owns the file may read and write it while it is opened; its own mode comes after.
        let wide = if self.root_user { mode } else { mode | 0o600 };
        match self.make_file(who, &at, wide, umask) {
            Ok(fd) => {
                let found =
                    rustix::fs::statx(&fd, "", AtFlags::EMPTY_PATH, mask()).inspect_err(|_| {
                        let _ = rustix::fs::unlinkat(&at.dir, &at.name, AtFlags::empty());
                    })?;
                let node = self.table.lock().enter(parent, name, &found);
                let opened = self
                    .open_at(&node, &at, fd, Opening { writable: true, writes: true, made: true })
                    .and_then(|opened| {
                        if wide != mode {
                            rustix::fs::fchmod(
                                opened.home_fd()?,
                                Mode::from_raw_mode(mode & !umask & 0o7777),
                            )?;
                        }
                        self.settle_directory(&at.dir)?;
                        let found =
                            rustix::fs::statx(opened.home_fd()?, "", AtFlags::EMPTY_PATH, mask())?;
                        Ok((opened, found))
                    });
                let (opened, found) = match opened {
                    Ok(opened) => opened,
                    Err(e) => {
                        self.forget(node.id, 1);
                        self.table.lock().unname(parent, name, true);
                        self.unmake(&at, &node);
                        return Err(e);
                    }
                };
                let attr = attr_of(&self.home, &found);
                let handle = self.hand_out(&node, opened, flags);
                Ok((Entry { node: node.id, attr }, handle))
            }
            Err(Errno::EXIST) if flags & libc::O_EXCL as u32 == 0 => {
                let found =
                    rustix::fs::statx(&at.dir, &at.name, AtFlags::SYMLINK_NOFOLLOW, mask())?;
                let entry = self.enter(parent, name, &found);
                drop(renames);
                match self.open(entry.node, flags) {
                    Ok(handle) => Ok((entry, handle)),
                    Err(e) => {
                        self.forget(entry.node, 1);
                        Err(e)
                    }
                }
            }
            Err(e) => Err(e),
        }
    }

    fn make_file(&self, who: Caller, at: &At, mode: u32, umask: u32) -> Answer<OwnedFd> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let bits = Mode::from_raw_mode(mode & 0o7777);
        let make = || {
            who.owning(|| with_umask(umask, || rustix::fs::openat(&at.dir, &at.name, flags, bits)))
        };
        self.with_descriptor(make).map_err(|e| {
            if e == Errno::EXIST { e } else { self.refused("make the file", &at.path, e) }
        })
    }

    /// The program is told that there is no file, so what was made goes again, if it is that. The
    /// store may know it.
    fn unmake(&self, at: &At, made: &Node) {
        let found = rustix::fs::statx(&at.dir, &at.name, AtFlags::SYMLINK_NOFOLLOW, mask());
        if found.is_ok_and(|found| made.is(&found)) && self.home.unlink_named(at.named()).is_err() {
            let _ = rustix::fs::unlinkat(&at.dir, &at.name, AtFlags::empty());
        }
    }

    /// Removes a name of anything but a directory.
    pub(crate) fn unlink(&self, parent: u64, name: &OsStr) -> Answer<()> {
        let _renames = self.renames.read();
        let at = self.at(parent, name)?;
        let found = self.judged(parent, &at)?;
        self.home.unlink_named(at.named()).map_err(|e| self.failed(&e))?;
        self.table.lock().unname(parent, name, found.stx_nlink <= 1);
        Ok(())
    }

    /// Removes an empty directory.
    pub(crate) fn rmdir(&self, parent: u64, name: &OsStr) -> Answer<()> {
        let _renames = self.renames.read();
        let at = self.at(parent, name)?;
        self.judged(parent, &at)?;
        rustix::fs::unlinkat(&at.dir, &at.name, AtFlags::REMOVEDIR)
            .map_err(|e| self.refused("remove the directory", &at.path, e))?;
        self.table.lock().unname(parent, name, true);
        Ok(())
    }

    /// Gives a file or directory another name.
    pub(crate) fn rename(
        &self,
        who: Caller,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        flags: u32,
    ) -> Answer<()> {
        let how = match flags {
            0 => RenameFlags::None,
            1 => RenameFlags::NoReplace,
            2 => RenameFlags::Exchange,
            _ => return Err(Errno::INVAL),
        };
        let _renames = self.renames.write();
        let source = self.at(from.0, from.1)?;
        let target = self.at(to.0, to.1)?;
        let moved = self.judged(from.0, &source)?;
        let replaced = match self.judged(to.0, &target) {
            Err(Errno::NOENT) => None,
            other => Some(other?),
        };
        self.settle_temporary(&source, &target.path, &moved)?;
        if let (RenameFlags::Exchange, Some(replaced)) = (how, &replaced) {
            self.settle_temporary(&target, &source.path, replaced)?;
        }
        let rename = || {
            let flags = rustix::fs::RenameFlags::from_bits_retain(flags);
            let (dir, to_dir) = (&source.dir, &target.dir);
            match how {
                RenameFlags::None => rustix::fs::renameat(dir, &source.name, to_dir, &target.name),
                _ => rustix::fs::renameat_with(dir, &source.name, to_dir, &target.name, flags),
            }
        };
        let renamed = self.home.rename_by(source.named(), target.named(), how, || {
            // Who gives a directory another parent must be allowed to write to it, and not only to
            // the parents. What has the name may have become a directory of somebody else by now,
            // so home asks for that.
            Ok(if from.0 == to.0 { rename() } else { who.judged(rename) }?)
        });
        renamed.map_err(|e| self.failed(&e))?;
        let same = replaced.as_ref().is_some_and(|r| {
            (r.stx_ino, crate::attr::device(r)) == (moved.stx_ino, crate::attr::device(&moved))
        });
        // Two names of one file: a rename between them does nothing.
        if !same {
            let is_dir =
                |s: &Statx| FileType::from_raw_mode(s.stx_mode.into()) == FileType::Directory;
            let last = replaced.as_ref().is_some_and(|r| r.stx_nlink <= 1 || is_dir(r));
            let exchange = how == RenameFlags::Exchange;
            self.table.lock().renamed(from, to, exchange, last);
        }
        if self.sync_on_write {
            sync_directory(&source.dir)?;
            if !Arc::ptr_eq(&source.dir, &target.dir) {
                sync_directory(&target.dir)?;
            }
        }
        Ok(())
    }

    /// Gives a file a further name.
    pub(crate) fn link(&self, node: u64, parent: u64, name: &OsStr) -> Answer<Entry> {
        let _renames = self.renames.read();
        let node = self.node(node)?;
        let to = self.at(parent, name)?;
        let (from, found) = self.find(&node)?;
        self.settle_temporary(&from, &to.path, &found)?;
        let open = || rustix::fs::openat(&from.dir, &from.name, HANDLE, Mode::empty());
        let file = self.with_descriptor(open)?;
        if !node.is(&rustix::fs::statx(&file, "", AtFlags::EMPTY_PATH, mask())?) {
            return Err(Errno::STALE);
        }
        self.home.link_named(file.as_fd(), to.named()).map_err(|e| self.failed(&e))?;
        self.settle_directory(&to.dir)?;
        self.enter_made(parent, &to)
    }

    /// Where a symbolic link leads.
    pub(crate) fn readlink(&self, node: u64) -> Answer<Vec<u8>> {
        let _renames = self.renames.read();
        let node = self.node(node)?;
        if !node.is_symlink() {
            return Err(Errno::INVAL);
        }
        let (at, _) = self.find(&node)?;
        Ok(rustix::fs::readlinkat(&at.dir, &at.name, Vec::new())?.into_bytes())
    }

    /// The place of a node by the name that it has, for opening it.
    pub(super) fn place(&self, node: &Node) -> Answer<At> {
        Ok(self.find(node)?.0)
    }
}

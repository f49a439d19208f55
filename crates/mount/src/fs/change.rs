//! Changing attributes: mode, owner, size, times; and the rights that a write takes away.
//!
//! Who writes to a file, cuts it or gives it away takes its capabilities away, and suid and sgid
//! when the writer has no right to keep them. The kernel leaves that to us
//! (`FUSE_HANDLE_KILLPRIV_V2`) and so need not ask for `security.capability` before every write. A
//! node remembers that there is nothing to take away, so a write asks home once.

use super::io::{HomeFd, Opened};
use super::table::Node;
use super::{Answer, Attr, Fs, Pinned, mask, sync_directory};
use crate::attr::{Time, attr_of};
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tiersmith_store::{FileTime, SetTime};

const UNKNOWN: u8 = 0;
const NONE: u8 = 1;
const SOME: u8 = 2;

const CAPABILITY: &str = "security.capability";

/// What to change; `None` leaves it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Change {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) atime: Option<When>,
    pub(crate) mtime: Option<When>,
    /// The open file that it goes through.
    pub(crate) fh: Option<u64>,
    /// The caller may not keep suid and sgid.
    pub(crate) take_rights: bool,
}

/// A time to set.
#[derive(Debug, Clone, Copy)]
pub(crate) enum When {
    Now,
    At(Time),
}

impl Fs {
    /// Changes attributes and returns what they are now.
    pub(crate) fn setattr(&self, id: u64, change: &Change) -> Answer<Attr> {
        let node = self.node(id)?;
        let pinned = match change.fh.map(|fh| self.file(fh)) {
            Some(Ok(opened)) => Pinned::open(opened)?,
            _ => self.pinned(&node)?,
        };
        if let Some(mode) = change.mode {
            let mode = Mode::from_raw_mode(mode & 0o7777);
            match &pinned {
                Pinned::Open(..) => rustix::fs::fchmod(pinned.fd(), mode),
                Pinned::Path(_) => rustix::fs::chmod(pinned.link(), mode),
            }
            .map_err(|e| self.trouble("change the mode of", &node, e))?;
        }
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            rustix::fs::chownat(pinned.fd(), "", uid, gid, AtFlags::EMPTY_PATH)
                .map_err(|e| self.trouble("change the owner of", &node, e))?;
        }
        if change.mode.is_some() || change.uid.is_some() || change.gid.is_some() {
            node.privileges.store(UNKNOWN, Ordering::Release);
            self.home.attributes_changed(node.identity.dev, node.identity.ino);
        }
        if let Some(size) = change.size {
            if !node.is_file() {
                return Err(if node.is_dir() { Errno::ISDIR } else { Errno::INVAL });
            }
            let opened = match &pinned {
                Pinned::Open(opened, _) => opened.clone(),
                Pinned::Path(_) => self.borrow(&node)?,
            };
            self.after_change(&opened, change.take_rights)?;
            self.truncate(&opened, size)?;
        }
        self.set_times(&node, &pinned, change)?;
        if self.sync_on_write {
            self.settle(&node, &pinned)?;
        }
        let found = rustix::fs::statx(pinned.fd(), "", AtFlags::EMPTY_PATH, mask())?;
        Ok(attr_of(&self.home, &found))
    }

    fn truncate(&self, opened: &Arc<Opened>, size: u64) -> Answer<()> {
        if let Some(fd) = opened.pass() {
            return rustix::fs::ftruncate(fd, size)
                .map_err(|e| self.refused_open("truncate", opened, e));
        }
        opened.file.truncate(size).map_err(|e| self.failed(&e))
    }

    fn set_times(&self, node: &Node, pinned: &Pinned, change: &Change) -> Answer<()> {
        if change.atime.is_none() && change.mtime.is_none() {
            return Ok(());
        }
        if node.is_file() {
            let (dev, ino) = (node.identity.dev, node.identity.ino);
            let (atime, mtime) = (for_store(change.atime), for_store(change.mtime));
            if let Some(done) = self.home.set_times(dev, ino, atime, mtime) {
                return done.map_err(|e| self.failed(&e));
            }
        }
        let times = Timestamps {
            last_access: for_home(change.atime),
            last_modification: for_home(change.mtime),
        };
        match pinned {
            Pinned::Open(..) => rustix::fs::futimens(pinned.fd(), &times),
            Pinned::Path(_) => {
                rustix::fs::utimensat(rustix::fs::CWD, pinned.link(), &times, AtFlags::empty())
            }
        }
        .map_err(|e| self.trouble("change the times of", node, e))
    }

    /// Makes attributes durable, when every change must be as its call returns.
    fn settle(&self, node: &Node, pinned: &Pinned) -> Answer<()> {
        match pinned {
            Pinned::Open(opened, HomeFd::Own(_)) => self.sync_opened(opened, false),
            Pinned::Open(opened, HomeFd::OfStore(fd)) => {
                opened.file.sync().map_err(|e| self.failed(&e))?;
                rustix::fs::fsync(fd).map_err(|e| self.refused_open("sync", opened, e))
            }
            Pinned::Path(fd) if node.is_dir() => sync_directory(fd),
            Pinned::Path(_) if node.is_file() => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let fd = rustix::fs::open(pinned.link(), flags, Mode::empty())?;
                rustix::fs::fsync(fd).map_err(|e| self.trouble("sync", node, e))
            }
            // Nothing but its directory holds what a link, pipe or socket is.
            Pinned::Path(_) => Ok(()),
        }
    }

    /// Takes rights away from a file that is about to be written. Costs nothing when it is known to
    /// have none.
    pub(super) fn after_change(&self, opened: &Opened, take_rights: bool) -> Answer<()> {
        let Some(node) = opened.node.upgrade() else { return Ok(()) };
        if node.privileges.load(Ordering::Acquire) == NONE {
            return Ok(());
        }
        self.take_rights(&node, opened, take_rights)
    }

    /// Whether a write would have rights to take away: the kernel alone would leave them.
    pub(super) fn has_rights(&self, fd: impl AsFd) -> bool {
        let mode =
            rustix::fs::statx(&fd, "", AtFlags::EMPTY_PATH, mask()).map_or(0o6000, |s| s.stx_mode);
        mode & 0o6000 != 0 || rustix::fs::fgetxattr(fd, CAPABILITY, &mut [0u8; 0][..]).is_ok()
    }

    fn take_rights(&self, node: &Node, opened: &Opened, take_rights: bool) -> Answer<()> {
        let fd = opened.home_fd()?;
        let found = rustix::fs::statx(&fd, "", AtFlags::EMPTY_PATH, mask())?;
        let mode = u32::from(found.stx_mode);
        let capable = rustix::fs::fgetxattr(&fd, CAPABILITY, &mut [0u8; 0][..]).is_ok();
        if capable {
            rustix::fs::fremovexattr(&fd, CAPABILITY)
                .or_else(|e| if e == Errno::NODATA { Ok(()) } else { Err(e) })
                .map_err(|e| self.refused_open("take the capabilities from", opened, e))?;
        }
        let mut kept = mode & 0o6000;
        if take_rights && kept != 0 {
            let mut left = mode & 0o7777 & !0o4000;
            if mode & 0o010 != 0 {
                left &= !0o2000;
            }
            rustix::fs::fchmod(&fd, Mode::from_raw_mode(left))
                .map_err(|e| self.refused_open("take suid and sgid from", opened, e))?;
            kept = left & 0o6000;
        }
        node.privileges.store(if kept == 0 { NONE } else { SOME }, Ordering::Release);
        Ok(())
    }

    /// To be called when a mode or an extended attribute was set.
    pub(super) fn attributes_set(&self, node: &Node) {
        node.privileges.store(UNKNOWN, Ordering::Release);
        self.home.attributes_changed(node.identity.dev, node.identity.ino);
    }

    pub(super) fn settle_node(&self, node: &Node, pinned: &Pinned) -> Answer<()> {
        if self.sync_on_write { self.settle(node, pinned) } else { Ok(()) }
    }

    pub(super) fn trouble(&self, what: &str, node: &Node, errno: Errno) -> Errno {
        self.refused(what, &self.path_of(node).unwrap_or_default(), errno)
    }
}

fn for_store(when: Option<When>) -> SetTime {
    match when {
        None => SetTime::Keep,
        Some(When::Now) => SetTime::Now,
        Some(When::At(t)) => SetTime::At(FileTime { sec: t.sec, nsec: t.nsec }),
    }
}

fn for_home(when: Option<When>) -> Timespec {
    match when {
        None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
        Some(When::Now) => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        Some(When::At(t)) => Timespec { tv_sec: t.sec, tv_nsec: t.nsec.into() },
    }
}

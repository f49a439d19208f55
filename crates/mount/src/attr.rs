//! Attributes: home's own, with size and times from the tier where the tier is ahead.

use rustix::fs::{Statx, StatxTimestamp};
use tiersmith_store::{AttachedHome, FileTime, Overlay};

/// A point in time as the kernel has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Time {
    pub(crate) sec: i64,
    pub(crate) nsec: u32,
}

impl From<StatxTimestamp> for Time {
    fn from(t: StatxTimestamp) -> Self {
        Self { sec: t.tv_sec, nsec: t.tv_nsec }
    }
}

/// What `stat` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Attr {
    pub(crate) ino: u64,
    pub(crate) size: u64,
    /// In units of 512 bytes.
    pub(crate) blocks: u64,
    pub(crate) atime: Time,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    pub(crate) mode: u32,
    pub(crate) nlink: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    pub(crate) blksize: u32,
}

/// The device number that home's answer carries.
pub(crate) fn device(found: &Statx) -> u64 {
    rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor)
}

/// The attributes of what home found.
pub(crate) fn attr_of(home: &AttachedHome, found: &Statx) -> Attr {
    let mut attr = Attr {
        ino: found.stx_ino,
        size: found.stx_size,
        blocks: found.stx_blocks,
        atime: found.stx_atime.into(),
        mtime: found.stx_mtime.into(),
        ctime: found.stx_ctime.into(),
        mode: found.stx_mode.into(),
        nlink: found.stx_nlink,
        uid: found.stx_uid,
        gid: found.stx_gid,
        // The layout that FUSE uses is the kernel's 32-bit one.
        rdev: device_word(found.stx_rdev_major, found.stx_rdev_minor),
        blksize: found.stx_blksize,
    };
    if found.stx_mode & 0o170_000 == 0o100_000
        && let Some(over) = home.overlay(device(found), found.stx_ino, seen(&attr))
    {
        attr.size = over.size;
        attr.mtime = Time { sec: over.mtime.sec, nsec: over.mtime.nsec };
        attr.ctime = Time { sec: over.ctime.sec, nsec: over.ctime.nsec };
        // Blocks that are in the tier only count as well: no program must take the file for one big
        // hole.
        attr.blocks = attr.blocks.max(over.size.div_ceil(512));
    }
    attr
}

/// What home said of contents and times.
fn seen(attr: &Attr) -> Overlay {
    let time = |t: Time| FileTime { sec: t.sec, nsec: t.nsec };
    Overlay { size: attr.size, mtime: time(attr.mtime), ctime: time(attr.ctime) }
}

fn device_word(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

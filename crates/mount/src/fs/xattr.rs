//! Extended attributes and ACLs: home's own. The kernel has checked who may.
//!
//! After each answer about a file's attributes the kernel asks for `security.capability` before the
//! next write, and for a directory's ACL before the next name in it: two requests more for each
//! page that a database writes. A home that has no extended attribute at all may be mounted without
//! them ([`crate::Options::xattrs_if_any`]): the first question is answered with ENOSYS, and the
//! kernel asks no more, reads none and sets none until the next mount. So none can be set that
//! would not be read.

use super::{Answer, Fs, Pinned};
use rustix::fs::{FileType, Mode, OFlags, RawDir, ResolveFlags, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

impl Fs {
    /// Reads an attribute into `into`, or with an empty `into` says how long it is.
    pub(crate) fn getxattr(&self, id: u64, name: &OsStr, into: &mut [u8]) -> Answer<usize> {
        let node = self.node(id)?;
        let pinned = self.pinned(&node)?;
        // Into a buffer of no length these calls read nothing, and say so.
        match &pinned {
            Pinned::Open(..) if into.is_empty() => rustix::fs::fgetxattr_query(pinned.fd(), name),
            Pinned::Open(..) => rustix::fs::fgetxattr(pinned.fd(), name, into),
            Pinned::Path(_) if into.is_empty() => rustix::fs::getxattr_query(pinned.link(), name),
            Pinned::Path(_) => rustix::fs::getxattr(pinned.link(), name, into),
        }
    }

    /// Reads the names of all attributes, likewise.
    pub(crate) fn listxattr(&self, id: u64, into: &mut [u8]) -> Answer<usize> {
        let node = self.node(id)?;
        let pinned = self.pinned(&node)?;
        match &pinned {
            Pinned::Open(..) if into.is_empty() => rustix::fs::flistxattr_query(pinned.fd()),
            Pinned::Open(..) => rustix::fs::flistxattr(pinned.fd(), into),
            Pinned::Path(_) if into.is_empty() => rustix::fs::listxattr_query(pinned.link()),
            Pinned::Path(_) => rustix::fs::listxattr(pinned.link(), into),
        }
    }

    /// Sets an attribute.
    pub(crate) fn setxattr(&self, id: u64, name: &OsStr, value: &[u8], flags: u32) -> Answer<()> {
        let node = self.node(id)?;
        let pinned = self.pinned(&node)?;
        let flags = XattrFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        match &pinned {
            Pinned::Open(..) => rustix::fs::fsetxattr(pinned.fd(), name, value, flags),
            Pinned::Path(_) => rustix::fs::setxattr(pinned.link(), name, value, flags),
        }
        .map_err(|e| self.trouble("set an attribute of", &node, e))?;
        self.attributes_set(&node);
        self.settle_node(&node, &pinned)
    }

    /// Removes an attribute.
    pub(crate) fn removexattr(&self, id: u64, name: &OsStr) -> Answer<()> {
        let node = self.node(id)?;
        let pinned = self.pinned(&node)?;
        match &pinned {
            Pinned::Open(..) => rustix::fs::fremovexattr(pinned.fd(), name),
            Pinned::Path(_) => rustix::fs::removexattr(pinned.link(), name),
        }
        .map_err(|e| self.trouble("remove an attribute of", &node, e))?;
        self.attributes_set(&node);
        self.settle_node(&node, &pinned)
    }
}

/// Whether anything in the home has an extended attribute or an ACL. What cannot be asked may have.
pub(super) fn are_there(root: &OwnedFd) -> bool {
    if has_any(root) {
        return true;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mut directories = vec![PathBuf::from(".")];
    while let Some(directory) = directories.pop() {
        let opened = rustix::fs::openat2(root, &directory, flags, Mode::empty(), resolve);
        let Ok(fd) = opened else { return true };
        let mut space = [MaybeUninit::uninit(); 16 << 10];
        let mut entries = RawDir::new(&fd, &mut space);
        while let Some(entry) = entries.next() {
            let Ok(entry) = entry else { return true };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let path = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::openat(&fd, name, path, Mode::empty()) {
                Ok(found) if has_any(&found) => return true,
                Err(Errno::NOENT) => continue,
                Err(_) => return true,
                Ok(found) => {
                    let Ok(stat) = rustix::fs::fstat(&found) else { return true };
                    if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                        directories.push(directory.join(name));
                    }
                }
            }
        }
    }
    false
}

/// Whether what a descriptor, which may be one without access, stands for has an attribute.
fn has_any(fd: &OwnedFd) -> bool {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    !matches!(rustix::fs::listxattr_query(link), Ok(0) | Err(Errno::OPNOTSUPP))
}

//! Extended attributes and ACLs: home's own. The kernel has checked who may.

use super::{Answer, Fs, Pinned};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::ffi::OsStr;

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

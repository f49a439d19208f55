//! FUSE's messages as bytes: numbers, layouts, and how to read and write them.
//!
//! One decoder serves both transports. `/dev/fuse` delivers a request in one piece, io_uring in
//! three (header, fixed part, rest), so a [`Request`] has the three apart. An answer is written
//! into the caller's buffer, which is where the transport wants it.
//!
//! Why not the decoder of the library that mounts (fuser 0.18): it converts times to `SystemTime`
//! and panics on the earliest ones before any code of ours runs, gets fractions of seconds before
//! 1970 wrong, and belongs to its own loop, which io_uring cannot use. Here times stay the numbers
//! they are.
//!
//! Invariants: nothing here trusts a length; a message that is too short or has no end to a name is
//! answered with `EINVAL`.
//!
//! Read next: `layout.rs` for the structures, `../answer.rs` for what is done.

pub(crate) mod encode;
pub(crate) mod layout;

use crate::header::InHeader;
use layout::*;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// The most bytes that one read or write carries.
pub(crate) const MAX_IO: usize = 1 << 20;

/// Numbers of the requests.
pub(crate) mod op {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
}

/// The size of the fixed part of a request, which comes before names and data.
pub(crate) fn fixed_len(opcode: u32) -> usize {
    match opcode {
        op::FORGET => size_of::<ForgetIn>(),
        op::GETATTR => size_of::<GetattrIn>(),
        op::SETATTR => size_of::<SetattrIn>(),
        op::MKNOD => size_of::<MknodIn>(),
        op::MKDIR => size_of::<MkdirIn>(),
        op::RENAME => size_of::<RenameIn>(),
        op::LINK => size_of::<LinkIn>(),
        op::OPEN | op::OPENDIR => size_of::<OpenIn>(),
        op::READ | op::READDIR | op::READDIRPLUS => size_of::<ReadIn>(),
        op::WRITE => size_of::<WriteIn>(),
        op::RELEASE | op::RELEASEDIR => size_of::<ReleaseIn>(),
        op::FSYNC | op::FSYNCDIR => size_of::<FsyncIn>(),
        op::SETXATTR => size_of::<SetxattrIn>(),
        op::GETXATTR | op::LISTXATTR => size_of::<GetxattrIn>(),
        op::CREATE => size_of::<CreateIn>(),
        op::INTERRUPT => size_of::<InterruptIn>(),
        op::BATCH_FORGET => size_of::<BatchForgetIn>(),
        op::FALLOCATE => size_of::<FallocateIn>(),
        op::RENAME2 => size_of::<Rename2In>(),
        op::LSEEK => size_of::<LseekIn>(),
        _ => 0,
    }
}

/// A request in its three parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    pub(crate) node: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
    /// The structure of the operation.
    pub(crate) fixed: &'a [u8],
    /// Names and data.
    pub(crate) rest: &'a [u8],
}

impl<'a> Request<'a> {
    /// A request from its header and parts; `None` when the header is too short.
    pub(crate) fn new(header: &[u8], fixed: &'a [u8], rest: &'a [u8]) -> Option<Self> {
        let (header, _) = InHeader::ref_from_prefix(header).ok()?;
        Some(Self {
            opcode: header.opcode.get(),
            unique: header.unique.get(),
            node: header.node.get(),
            uid: header.uid.get(),
            gid: header.gid.get(),
            pid: header.pid.get(),
            fixed,
            rest,
        })
    }

    /// A request that came in one piece. `None` when it has not even a header.
    pub(crate) fn whole(message: &'a [u8]) -> Option<Self> {
        let (header, body) = InHeader::ref_from_prefix(message).ok()?;
        let (fixed, rest) =
            body.split_at_checked(fixed_len(header.opcode.get())).unwrap_or((body, &[]));
        Self::new(message, fixed, rest)
    }

    /// The fixed part, where it lies.
    pub(crate) fn fixed<T: FromBytes + Immutable + KnownLayout + Unaligned>(
        &self,
    ) -> Result<&'a T, Errno> {
        T::ref_from_prefix(self.fixed).map(|(fixed, _)| fixed).map_err(|_| Errno::INVAL)
    }

    /// Refuses a request whose fixed part is short.
    pub(crate) fn check(&self) -> Result<(), Errno> {
        if self.fixed.len() < fixed_len(self.opcode) { Err(Errno::INVAL) } else { Ok(()) }
    }

    /// The name that the rest is.
    pub(crate) fn name(&self) -> Result<&'a OsStr, Errno> {
        Ok(self.names()?.0)
    }

    /// The first name of the rest, and what comes after it.
    pub(crate) fn names(&self) -> Result<(&'a OsStr, &'a [u8]), Errno> {
        take_name(self.rest)
    }
}

/// Splits a name that ends with a zero byte from what follows.
pub(crate) fn take_name(bytes: &[u8]) -> Result<(&OsStr, &[u8]), Errno> {
    let end = bytes.iter().position(|b| *b == 0).ok_or(Errno::INVAL)?;
    if end == 0 {
        return Err(Errno::INVAL);
    }
    Ok((OsStr::from_bytes(&bytes[..end]), &bytes[end + 1..]))
}

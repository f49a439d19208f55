//! Writing answers: the structures that the kernel reads.

use super::layout::{AttrOut, DIRENT_ALIGN, Dirent, EntryOut, GetattrOut};
use crate::attr::Attr;
use rustix::io::Errno;
use std::time::Duration;
use zerocopy::{Immutable, IntoBytes};

/// Writes an answer into the transport's buffer, and refuses what does not fit.
#[derive(Debug)]
pub(crate) struct Out<'a> {
    into: &'a mut [u8],
    len: usize,
}

impl<'a> Out<'a> {
    pub(crate) fn new(into: &'a mut [u8]) -> Self {
        Self { into, len: 0 }
    }

    /// Bytes written so far.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Room left.
    pub(crate) fn room(&self) -> usize {
        self.into.len() - self.len
    }

    /// The next `len` bytes of the buffer, to be filled by the caller, who then says how many with
    /// [`Out::filled`].
    pub(crate) fn space(&mut self, len: usize) -> Result<&mut [u8], Errno> {
        let end = self.len.checked_add(len).ok_or(Errno::RANGE)?;
        self.into.get_mut(self.len..end).ok_or(Errno::RANGE)
    }

    pub(crate) fn filled(&mut self, len: usize) {
        self.len += len;
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        self.space(bytes.len())?.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// A structure of `layout.rs`.
    pub(crate) fn put(&mut self, structure: &(impl IntoBytes + Immutable)) -> Result<(), Errno> {
        self.bytes(structure.as_bytes())
    }

    /// `fuse_attr_out`.
    pub(crate) fn attr_out(&mut self, a: &Attr, valid: Duration) -> Result<(), Errno> {
        let (attr_valid, attr_valid_nsec) = (valid.as_secs(), valid.subsec_nanos());
        self.put(&GetattrOut { attr_valid, attr_valid_nsec, dummy: 0, attr: a.into() })
    }

    /// `fuse_entry_out`; node 0 says that there is no such name.
    pub(crate) fn entry(&mut self, node: u64, a: &Attr, valid: Duration) -> Result<(), Errno> {
        self.put(&EntryOut {
            node,
            generation: 0,
            entry_valid: valid.as_secs(),
            attr_valid: valid.as_secs(),
            entry_valid_nsec: valid.subsec_nanos(),
            attr_valid_nsec: valid.subsec_nanos(),
            attr: a.into(),
        })
    }

    /// `fuse_dirent` with its name, padded. Errors when it does not fit.
    pub(crate) fn dirent(
        &mut self,
        ino: u64,
        next: u64,
        kind: u32,
        name: &[u8],
    ) -> Result<(), Errno> {
        let name_len = u32::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?;
        self.put(&Dirent { ino, next, name_len, kind })?;
        self.bytes(name)?;
        let padding = name.len().next_multiple_of(DIRENT_ALIGN) - name.len();
        self.bytes(&[0; DIRENT_ALIGN][..padding])
    }
}

/// Bytes that a directory entry takes, with its attributes when they come along.
pub(crate) fn dirent_len(name: &[u8], plus: bool) -> usize {
    let entry = if plus { size_of::<EntryOut>() } else { 0 };
    entry + size_of::<Dirent>() + name.len().next_multiple_of(DIRENT_ALIGN)
}

impl From<&Attr> for AttrOut {
    fn from(a: &Attr) -> Self {
        Self {
            ino: a.ino,
            size: a.size,
            blocks: a.blocks,
            atime: a.atime.sec,
            mtime: a.mtime.sec,
            ctime: a.ctime.sec,
            atime_nsec: a.atime.nsec,
            mtime_nsec: a.mtime.nsec,
            ctime_nsec: a.ctime.nsec,
            mode: a.mode,
            nlink: a.nlink,
            uid: a.uid,
            gid: a.gid,
            rdev: a.rdev,
            blksize: a.blksize,
            flags: 0,
        }
    }
}

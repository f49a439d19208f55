//! Writing answers: the structures that the kernel reads, field by field.

use crate::fs::attr::Attr;
use rustix::io::Errno;
use std::time::Duration;

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

    /// The next `len` bytes of the buffer, to be filled by the caller, who then says how many with [`Out::filled`].
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

    pub(crate) fn u32(&mut self, v: u32) -> Result<(), Errno> {
        self.bytes(&v.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, v: u64) -> Result<(), Errno> {
        self.bytes(&v.to_le_bytes())
    }

    /// `fuse_attr`.
    pub(crate) fn attr(&mut self, a: &Attr) -> Result<(), Errno> {
        for v in [a.ino, a.size, a.blocks] {
            self.u64(v)?;
        }
        for t in [a.atime, a.mtime, a.ctime] {
            self.bytes(&t.sec.to_le_bytes())?;
        }
        for t in [a.atime, a.mtime, a.ctime] {
            self.u32(t.nsec)?;
        }
        for v in [a.mode, a.nlink, a.uid, a.gid, a.rdev, a.blksize, 0] {
            self.u32(v)?;
        }
        Ok(())
    }

    /// `fuse_attr_out`.
    pub(crate) fn attr_out(&mut self, a: &Attr, valid: Duration) -> Result<(), Errno> {
        self.u64(valid.as_secs())?;
        self.u32(valid.subsec_nanos())?;
        self.u32(0)?;
        self.attr(a)
    }

    /// `fuse_entry_out`; node 0 says that there is no such name.
    pub(crate) fn entry(&mut self, node: u64, a: &Attr, valid: Duration) -> Result<(), Errno> {
        for v in [node, 0, valid.as_secs(), valid.as_secs()] {
            self.u64(v)?;
        }
        self.u32(valid.subsec_nanos())?;
        self.u32(valid.subsec_nanos())?;
        self.attr(a)
    }

    /// `fuse_dirent` with its name, padded to eight bytes. Errors when it does not fit.
    pub(crate) fn dirent(&mut self, ino: u64, next: u64, kind: u32, name: &[u8]) -> Result<(), Errno> {
        self.u64(ino)?;
        self.u64(next)?;
        self.u32(u32::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?)?;
        self.u32(kind)?;
        self.bytes(name)?;
        let padding = name.len().next_multiple_of(8) - name.len();
        self.bytes(&[0; 8][..padding])
    }
}

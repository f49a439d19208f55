//! Space within a file: allocation, holes, and where data is.

use super::{Answer, Fs};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

impl Fs {
    /// `fallocate`: reserve, punch, zero; what moves bytes about within a file is not offered.
    /// `take_rights`: the caller may not keep suid and sgid.
    pub(crate) fn fallocate(
        &self,
        fh: u64,
        offset: u64,
        len: u64,
        mode: u32,
        take_rights: bool,
    ) -> Answer<()> {
        let opened = self.file(fh)?;
        let mode = FallocateFlags::from_bits(mode).ok_or(Errno::OPNOTSUPP)?;
        let keep = FallocateFlags::KEEP_SIZE;
        let known = [
            FallocateFlags::empty(),
            keep,
            FallocateFlags::PUNCH_HOLE | keep,
            FallocateFlags::ZERO_RANGE,
            FallocateFlags::ZERO_RANGE | keep,
        ];
        if !known.contains(&mode) {
            return Err(Errno::OPNOTSUPP);
        }
        self.after_change(&opened, take_rights)?;
        if let Some(fd) = opened.pass() {
            rustix::fs::fallocate(fd, mode, offset, len)
                .map_err(|e| self.refused_open("allocate", &opened, e))?;
        } else if mode.contains(FallocateFlags::PUNCH_HOLE) {
            opened.file.punch(offset, len).map_err(|e| self.failed(&e))?;
        } else if mode.contains(FallocateFlags::ZERO_RANGE) {
            opened.file.zero(offset, len, mode.contains(keep)).map_err(|e| self.failed(&e))?;
        } else {
            opened.file.allocate(offset, len, mode.contains(keep)).map_err(|e| self.failed(&e))?;
        }
        if self.sync_on_write { self.sync_opened(&opened, false) } else { Ok(()) }
    }

    /// `lseek` for data and holes; everything else the kernel does itself.
    pub(crate) fn lseek(&self, fh: u64, offset: u64, whence: u32) -> Answer<u64> {
        let opened = self.file(fh)?;
        let data = match i32::try_from(whence) {
            Ok(libc::SEEK_DATA) => true,
            Ok(libc::SEEK_HOLE) => false,
            _ => return Err(Errno::INVAL),
        };
        if let Some(fd) = opened.pass() {
            // Contents are read and written by position, so nothing depends on where the descriptor
            // is.
            let to = if data { SeekFrom::Data(offset) } else { SeekFrom::Hole(offset) };
            return rustix::fs::seek(fd, to);
        }
        let found =
            if data { opened.file.next_data(offset) } else { opened.file.next_hole(offset) };
        found.map_err(|e| self.failed(&e))?.ok_or(Errno::NXIO)
    }
}

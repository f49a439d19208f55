//! `/dev/fuse`: the calls on it that no library offers.

use crate::fs::Passthrough;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, u32)`.
const CLONE: libc::Ioctl = 0x8004_e500_u32 as libc::Ioctl;
/// `FUSE_DEV_IOC_BACKING_CLOSE`: `_IOW(229, 2, u32)`.
const BACKING_CLOSE: libc::Ioctl = 0x4004_e502_u32 as libc::Ioctl;

/// A further descriptor for the same mount, with a queue of its own.
pub(crate) fn clone_device(device: BorrowedFd<'_>) -> io::Result<File> {
    let clone = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    let source = device.as_raw_fd().cast_unsigned();
    // SAFETY: CLONE reads one u32, which lives across the call; both descriptors are open.
    let result = unsafe { libc::ioctl(clone.as_raw_fd(), CLONE, &raw const source) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(clone) }
}

/// The kernel's part in passing files through.
#[derive(Debug)]
pub(crate) struct Backings {
    pub(crate) device: Arc<OwnedFd>,
}

impl Passthrough for Backings {
    fn open(&self, file: BorrowedFd<'_>) -> io::Result<i32> {
        let id = fuser::BackingId::create_raw(&*self.device, file)?;
        i32::try_from(id).map_err(io::Error::other)
    }

    fn close(&self, id: i32) {
        let id = id.cast_unsigned();
        // SAFETY: BACKING_CLOSE reads one u32, which lives across the call; the descriptor is open.
        let result = unsafe { libc::ioctl(self.device.as_raw_fd(), BACKING_CLOSE, &raw const id) };
        if result < 0 {
            log::warn!("the kernel did not give file {id} back: {}", io::Error::last_os_error());
        }
    }
}

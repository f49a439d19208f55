//! The kernel's list of a disk's partitions, which it has read from a table that is gone.

use std::os::fd::AsFd;

use rustix::ioctl::{NoArg, Opcode, ioctl};

/// `BLKRRPART` of linux/fs.h.
const READ_AGAIN: Opcode = 0x125f;

/// Asks the kernel to read the table again. Nothing where the device can have no partitions, or
/// somebody has one open.
pub(super) fn forget(disk: impl AsFd) {
    // SAFETY: BLKRRPART takes no argument and writes to no memory of ours.
    let asked = unsafe { ioctl(disk, NoArg::<READ_AGAIN>::new()) };
    // Whether it did: nobody can do anything about it.
    let _ = asked;
}

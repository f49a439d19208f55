//! Calls of the kernel's on block devices: the list of a disk's partitions, what is kept of a
//! device in memory, and what a loop device is over.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::ioctl::{Getter, NoArg, Opcode, ioctl};

/// `BLKRRPART` of linux/fs.h.
const READ_AGAIN: Opcode = 0x125f;
/// `BLKFLSBUF` of linux/fs.h.
const DROP_COPY: Opcode = 0x1261;
/// `LOOP_GET_STATUS64` of linux/loop.h.
const LOOP_STATUS: Opcode = 0x4c05;

/// Asks the kernel to read the table again. Nothing where the device can have no partitions, or
/// somebody has one open: who calls this looks whether there are any left.
pub(super) fn forget(disk: impl AsFd) {
    // SAFETY: BLKRRPART takes no argument and writes to no memory of ours.
    let asked = unsafe { ioctl(disk, NoArg::<READ_AGAIN>::new()) };
    let _ = asked;
}

/// Drops what the kernel keeps of a device in memory, as far as this user may and nobody else uses
/// it: what decides is read past it.
pub(super) fn drop_copy(device: impl AsFd) {
    // SAFETY: BLKFLSBUF takes no argument and writes to no memory of ours.
    let asked = unsafe { ioctl(device, NoArg::<DROP_COPY>::new()) };
    let _ = asked;
}

/// What a loop device is over. Numbers of devices are as `stat` has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoopFile {
    /// Of the file system that the file is on.
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// Of a device: its own; of a file 0.
    pub(crate) rdevice: u64,
}

impl LoopFile {
    pub(crate) fn is_device(&self) -> bool {
        self.rdevice != 0
    }
}

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Status {
    device: u64,
    inode: u64,
    rdevice: u64,
    rest: [u64; 26],
}

const _: () = assert!(size_of::<Status>() == 232);

/// Asks the loop device with this node; `None` when that cannot be.
pub(super) fn loop_file(node: &Path) -> Option<LoopFile> {
    let device = super::open_to_read(node).ok()?;
    // SAFETY: LOOP_GET_STATUS64 fills a `struct loop_info64`, which has the 232 bytes of `Status`
    // on every architecture; any bytes are a `Status`.
    let said = unsafe { ioctl(&device, Getter::<LOOP_STATUS, Status>::new()) }.ok()?;
    Some(LoopFile { device: said.device, inode: said.inode, rdevice: said.rdevice })
}

//! Calls of the kernel's on block devices: the list of a disk's partitions, what is kept of a
//! device in memory, and what a loop device is over.
//! Sources: linux/fs.h, linux/blkpg.h, linux/loop.h.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::ioctl::{Getter, NoArg, Opcode, Setter, ioctl};

/// `BLKRRPART` of linux/fs.h.
const READ_AGAIN: Opcode = 0x125f;
/// `BLKPG` of linux/blkpg.h.
const PARTITIONS: Opcode = 0x1269;
/// `BLKPG_DEL_PARTITION` of linux/blkpg.h.
const DELETE: c_int = 2;
/// `BLKFLSBUF` of linux/fs.h.
const DROP_COPY: Opcode = 0x1261;
/// `LOOP_GET_STATUS64` of linux/loop.h.
const LOOP_STATUS: Opcode = 0x4c05;

/// `struct blkpg_ioctl_arg` of linux/blkpg.h.
#[repr(C)]
struct OfPartition {
    operation: c_int,
    flags: c_int,
    len: c_int,
    partition: *mut c_void,
}

/// `struct blkpg_partition` of linux/blkpg.h.
#[repr(C)]
struct Partition {
    start: i64,
    len: i64,
    number: c_int,
    names: [u8; 128],
}

const _: () = assert!(size_of::<Partition>() == 152 && size_of::<OfPartition>() == 24);

/// Lets the kernel forget a partition; what is on the disk stays.
///
/// # Errors
/// The kernel's: `EBUSY` while somebody has the partition open.
pub(super) fn forget_partition(disk: impl AsFd, number: i32) -> io::Result<()> {
    let mut partition = Partition { start: 0, len: 0, number, names: [0; 128] };
    let asked = OfPartition {
        operation: DELETE,
        flags: 0,
        len: size_of::<Partition>() as c_int,
        partition: (&raw mut partition).cast(),
    };
    // SAFETY: BLKPG reads a `struct blkpg_ioctl_arg` and the `struct blkpg_partition` that it
    // points to, which lives until the call has returned; both have that layout here.
    Ok(unsafe { ioctl(disk, Setter::<PARTITIONS, OfPartition>::new(asked)) }?)
}

/// Asks the kernel to read the table again. Nothing where the device can have no partitions, or
/// somebody has one open: who calls this looks whether there are any left.
pub(super) fn read_table(disk: impl AsFd) {
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
    /// Where the loop device begins in it.
    pub(crate) offset: u64,
}

impl LoopFile {
    pub(crate) fn is_device(&self) -> bool {
        self.rdevice != 0
    }

    /// Whether both are over the same file or device.
    pub(crate) fn is_same_file(&self, other: &LoopFile) -> bool {
        match self.is_device() {
            true => self.rdevice == other.rdevice,
            false => (self.device, self.inode, 0) == (other.device, other.inode, other.rdevice),
        }
    }
}

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Status {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    rest: [u64; 25],
}

const _: () = assert!(size_of::<Status>() == 232);

/// Asks the loop device with this node; `None` when that cannot be.
pub(super) fn loop_file(node: &Path) -> Option<LoopFile> {
    let device = super::open_to_read(node).ok()?;
    // SAFETY: LOOP_GET_STATUS64 fills a `struct loop_info64`, which has the 232 bytes of `Status`
    // on every architecture; any bytes are a `Status`.
    let said = unsafe { ioctl(&device, Getter::<LOOP_STATUS, Status>::new()) }.ok()?;
    let Status { device, inode, rdevice, offset, .. } = said;
    Some(LoopFile { device, inode, rdevice, offset })
}

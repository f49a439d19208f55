//! A device of sectors: reads, writes and a sync that makes them durable; and its crash simulator.
//! And how well the disks below are ([`Disk::health`]).
//!
//! A device is an ordinary file or a block device, written in whole sectors through the page cache.
//! The store keeps blocks there that need not be mapped into memory.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tiersmith_block::{Device, OpenOptions, Sector, SectorSize, Sectors};
//! use tiersmith_dir::Dir;
//!
//! # let scratch = tempfile::tempdir()?;
//! # let path = scratch.path();
//! let options = OpenOptions { create: true, ..OpenOptions::new(SectorSize::B512, Sectors(8)) };
//! let device = Device::open(&Dir::open(path)?, "blocks", &options)?;
//! device.write(Sector(2), &[7; 1024])?;
//! device.sync()?; // now the two sectors survive a power cut
//! let mut found = [0; 512];
//! device.read(Sector(3), &mut found)?;
//! assert_eq!(found, [7; 512]);
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised
//! - A sector is old or new after a power cut, never a mixture. Nothing larger holds together.
//! - [`Device::sync`] makes durable every write that had returned when it was called. Nothing else
//!   does, and nothing says in which order writes become durable before that.
//! - After a sync that failed, the device refuses writes and syncs until it is opened again: Linux
//!   calls pages clean whose write failed, so a later sync that succeeds would prove nothing.
//! - A file is written in full before it is used: no write allocates, so none fails for want of
//!   space on a file system that overwrites in place, and no sync waits for a file system's
//!   journal.
//! - A block device is written by nobody else meanwhile, and by us only after [`Raw::clear`], or
//!   where nothing of somebody else's is on it: that is for the caller to ask ([`Raw::foreign`]).
//! - An error names the file and the bytes.
//!
//! # Deliberately absent
//! Formats, checksums, retries, caching; `io_uring`; direct I/O but for [`Device::read_afresh`].
//!
//! Where to read next: [`Device`] in `device.rs`, how a file is opened in `file.rs`, how a block
//! device is in `raw`, who shares a sync in `syncing.rs`, what disks say of themselves in `health`,
//! the crash model in `tiersmith_pmem::sim`.

#![deny(unsafe_code)]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

mod address;
mod device;
mod error;
mod file;
#[allow(unsafe_code, reason = "a border: the kernel's NVMe driver, in one file")]
mod health;
mod memory;
mod raw;
mod report;
mod syncing;

pub use address::{Sector, SectorSize, Sectors};
pub use device::Device;
pub use error::Error;
pub use file::OpenOptions;
pub use health::{Disk, Health};
pub use raw::{
    Foreign, Raw, Relative, devices_called, devices_of_size, id_of, is_called, is_kept,
    is_persistent_memory, open_to_read, read_begin, remedy_of_denied, why_not_kept,
};
pub use report::Report;

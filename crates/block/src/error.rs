//! Why a device could not be opened, read or written: one variant per cause, each with the file,
//! the bytes where there are any, and what to do.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use crate::{Sector, SectorSize};

/// Why a device could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such file.
    #[error("{path} does not exist; check the path, or ask for it to be created",
    path = .path.display())]
    Missing {
        /// What was opened.
        path: PathBuf,
    },
    /// Somebody who is not to be trusted could change the file.
    #[error(
        "{path} {found}, so others could change what is read from it; use a file that belongs to \
         user \
         {wanted} alone (mode 600) and has one name", path = .path.display()
    )]
    OfAnother {
        /// What was opened.
        path: PathBuf,
        /// Whose it is, or who else can change it.
        found: String,
        /// Whose it must be.
        wanted: u32,
    },
    /// Another process has the file open, or this one a second time.
    #[error(
        "{path} is in use by another process; stop that process (find it with `fuser -v {path}`) \
         or use \
         another file", path = .path.display()
    )]
    Owned {
        /// What was opened.
        path: PathBuf,
    },
    /// Somebody uses the block device.
    #[error(
        "{path} is {by}, so it cannot be used; give a device that nobody uses. What is in use is \
         never overwritten, whatever is said", path = .path.display()
    )]
    InUse {
        /// What was opened.
        path: PathBuf,
        /// How, and by whom.
        by: String,
    },
    /// This account may not open the block device.
    #[error("{path} may not be opened: {remedy}", path = .path.display())]
    NotPermitted {
        /// What was opened.
        path: PathBuf,
        /// Why, and what to do.
        remedy: &'static str,
    },
    /// It cannot be known that the block device is safe to use.
    #[error("{path} is not taken: {why}", path = .path.display())]
    Unproved {
        /// What was opened.
        path: PathBuf,
        /// What is not known, and what to do.
        why: String,
    },
    /// The block device has sectors larger than what is written as one.
    #[error(
        "{path} has sectors of {sector} bytes, and 512 or 4096 are known here; give a file on a \
         file system on it", path = .path.display()
    )]
    LargeSectors {
        /// What was opened.
        path: PathBuf,
        /// Bytes of a sector.
        sector: u32,
    },
    /// What is durable was asked for, and the file is on a file system in memory.
    #[error(
        "{path} is on a file system in memory, which loses it with the power; give a file on a \
         disk",
        path = .path.display()
    )]
    InMemory {
        /// What was opened.
        path: PathBuf,
    },
    /// The file is shorter than asked for.
    #[error(
        "{path} holds {found} bytes but {wanted} were asked for; ask for less, or use the whole \
         file",
        path = .path.display()
    )]
    TooShort {
        /// What was opened.
        path: PathBuf,
        /// Bytes it has.
        found: u64,
        /// Bytes asked for.
        wanted: u64,
    },
    /// A length that no device can have.
    #[error(
        "{path} cannot be a device of {sectors} sectors of {size} bytes; use at least one sector \
         and less \
         than 8 EiB", path = .path.display()
    )]
    BadLength {
        /// What was opened.
        path: PathBuf,
        /// Sectors asked for.
        sectors: u64,
        /// Of this size.
        size: SectorSize,
    },
    /// The file system has no room. A file made by this call is gone again.
    #[error(
        "no room for {wanted} bytes at {path} ({source}); free space there or ask for fewer bytes",
        path = .path.display()
    )]
    NoSpace {
        /// What was opened.
        path: PathBuf,
        /// Bytes asked for.
        wanted: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The range is no whole sectors, or lies outside the device. Nothing was read or written.
    #[error(
        "{path} has {sectors} sectors of {size} bytes: {len} bytes at sector {at} are not whole \
         sectors of \
         it", at = .at.0, path = .path.display()
    )]
    NotSectors {
        /// The device.
        path: PathBuf,
        /// Where.
        at: Sector,
        /// How many bytes.
        len: usize,
        /// How many sectors it has.
        sectors: u64,
        /// Of this size.
        size: SectorSize,
    },
    /// Bytes could not be read.
    #[error(
        "cannot read bytes {from} to {to} of {path}: {source}; see the kernel log (`dmesg`) and \
         restore them \
         from a copy", from = .range.start, to = .range.end, path = .path.display()
    )]
    Unreadable {
        /// The device.
        path: PathBuf,
        /// Which bytes.
        range: Range<u64>,
        /// What the system said.
        source: io::Error,
    },
    /// Bytes could not be written: each of their sectors is old or new.
    #[error(
        "cannot write bytes {from} to {to} of {path}: {source}; see the kernel log (`dmesg`), and \
         write them \
         again when the cause is gone", from = .range.start, to = .range.end, path = .path.display()
    )]
    Unwritten {
        /// The device.
        path: PathBuf,
        /// Which bytes.
        range: Range<u64>,
        /// What the system said.
        source: io::Error,
    },
    /// A sync failed, now or earlier: what had not been made durable by then may be lost.
    #[error(
        "syncing {path} failed: {source}. What was written to its bytes {from} to {to} since the \
         last good \
         sync may be lost, and nothing more is written until it is opened again; see the kernel \
         log (`dmesg`)",
        from = .range.start, to = .range.end, path = .path.display()
    )]
    Lost {
        /// The device.
        path: PathBuf,
        /// The bytes in which everything lies that was written since the last good sync.
        range: Range<u64>,
        /// What the system said.
        source: io::Error,
    },
    /// Another call on the file failed.
    #[error("{action} {path} failed: {source}", path = .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

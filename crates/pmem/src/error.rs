//! Why a backing could not be mapped or grown: one variant per cause, each with the path and what
//! to do.
//!
//! Not here: misuse by the program (a write to a frame that is not claimed). That is a defect and
//! panics with `BUG:`.

use std::io;
use std::path::PathBuf;

/// Why a backing could not be mapped or grown.
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
    /// The path is something that cannot be mapped as a medium.
    #[error("{path} is {found}, which cannot be mapped; {remedy}", path = .path.display())]
    NotMappable {
        /// What was opened.
        path: PathBuf,
        /// What it is.
        found: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// Somebody who is not to be trusted could change the backing.
    #[error(
        "{path} {found}, so others could decide what is written from it with the rights of this \
         process; work as that user, or, if \
         nobody else has written to it, put a copy in its place that belongs to user {wanted} \
         alone (mode 600)", path = .path.display()
    )]
    OfAnother {
        /// What was opened.
        path: PathBuf,
        /// Whose it is, or who else can change it.
        found: String,
        /// Whose it must be.
        wanted: u32,
    },
    /// Another process has the backing open.
    #[error("{path} is in use by another process; stop that process (find it with `fuser -v \
             {path}`) or give another path", path = .path.display())]
    Owned {
        /// What was opened.
        path: PathBuf,
    },
    /// The backing holds fewer bytes than asked for.
    #[error("{path} holds {found} bytes but {wanted} were asked for; give a smaller length or a \
             longer backing", path = .path.display())]
    TooShort {
        /// What was opened.
        path: PathBuf,
        /// Bytes it has.
        found: u64,
        /// Bytes asked for.
        wanted: u64,
    },
    /// The file system or the file's permissions allow reading only.
    #[error("{path} cannot be opened for writing ({source}); change its owner or mode, or remount \
             its file system read-write", path = .path.display())]
    ReadOnly {
        /// What was opened.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file system has no room. A file made by this call is gone again.
    #[error("no room for {wanted} bytes at {path} ({source}); free space there or ask for fewer \
             bytes", path = .path.display())]
    NoSpace {
        /// What was opened.
        path: PathBuf,
        /// Bytes asked for.
        wanted: u64,
        /// What the system said.
        source: io::Error,
    },
    /// Persistent memory was asked for, and the file is not on a DAX file system.
    #[error(
        "{path} is on {file_system}, not on a DAX file system, so what is stored there does not \
         survive a power cut; \
         mount ext4 or XFS on a PMEM device of mode fsdax with `-o dax` and use a file there, give \
         a devdax device, \
         or pass emulate to let this file stand for persistent memory", path = .path.display()
    )]
    NotDax {
        /// What was opened.
        path: PathBuf,
        /// The file system found.
        file_system: String,
    },
    /// A devdax device was asked for, and the path is not one.
    #[error("{path} is {found}, not a DAX character device; list them with `ndctl list -DN` or use \
             fsdax access for a file", path = .path.display())]
    NotDevDax {
        /// What was opened.
        path: PathBuf,
        /// What it is.
        found: &'static str,
    },
    /// Persistent memory was asked for, and the DAX device is ordinary memory set apart, or
    /// volatile CXL memory.
    #[error(
        "{path} is a DAX device of ordinary memory, not of an NVDIMM, so what is stored there does \
         not survive a power cut; \
         give a device that `ndctl list -DN` lists, use it as volatile memory, or pass emulate to \
         let it stand for persistent memory",
        path = .path.display()
    )]
    NotPersistent {
        /// What was opened.
        path: PathBuf,
    },
    /// This processor has no instruction known to reach the persistence domain.
    #[error("{path} cannot be used as persistent memory: no cache flush instruction is known for \
             this processor ({processor}); pass emulate to go on without", path = .path.display())]
    NoFlush {
        /// What was opened.
        path: PathBuf,
        /// The processor's architecture.
        processor: &'static str,
    },
    /// A length is not usable.
    #[error("{len} bytes cannot be mapped from {path}: {reason}", path = .path.display())]
    BadLength {
        /// What was opened.
        path: PathBuf,
        /// The length asked for.
        len: u64,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Growth beyond what was reserved at open.
    #[error("{path} cannot grow to {wanted} bytes, only to {max_len} as reserved when it was \
             opened; reopen it with a larger maximum", path = .path.display())]
    BeyondMaximum {
        /// What was opened.
        path: PathBuf,
        /// Bytes asked for.
        wanted: u64,
        /// Bytes reserved.
        max_len: u64,
    },
    /// The address space or the memory for bookkeeping is not to be had.
    #[error("{wanted} bytes of address space for {path} are not to be had ({source}); raise the \
             limit (`ulimit -v`) or lower the maximum length", path = .path.display())]
    AddressSpace {
        /// What was opened.
        path: PathBuf,
        /// Bytes asked for.
        wanted: u64,
        /// What the system said.
        source: io::Error,
    },
    /// Bytes that should be there cannot be read.
    #[error(
        "cannot read {len} bytes at byte {at} of {path}: {source}; the medium lost them or the \
         file was \
         truncated. Look at `ndctl list -M` and the kernel log (`dmesg`), and restore the bytes \
         from a copy",
        path = .path.display()
    )]
    Unreadable {
        /// The medium.
        path: PathBuf,
        /// Where they begin.
        at: u64,
        /// How many they are.
        len: usize,
        /// What the system said.
        source: io::Error,
    },
    /// Another call on the backing failed.
    #[error("{action} {path} failed: {source}; see the kernel log (`dmesg`) when the device is at \
             fault", path = .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

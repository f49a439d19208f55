//! How a backing is to be reached, and what is asked for when it is opened.
//!
//! Not here: whether the request can be met (`open.rs`), and what was found (`report.rs`).

use std::os::fd::OwnedFd;
use std::sync::Arc;

/// How the bytes of a backing are reached, and what that means for power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// A file on a DAX file system, mapped with `MAP_SYNC`; refused elsewhere. A DAX character
    /// device opened with this becomes [`Access::DevDax`].
    Dax,
    /// A DAX character device (`/dev/daxX.Y`): persistent memory without a file system.
    DevDax,
    /// Any file, tmpfs or ordinary, standing for persistent memory because the caller said so. It
    /// does not survive power loss, and every report says so.
    Emulated,
    /// Any file whose contents nobody expects after a power loss: clean copies only.
    Volatile,
}

impl Access {
    /// The word used in reports and messages.
    pub fn name(self) -> &'static str {
        match self {
            Access::Dax => "fsdax",
            Access::DevDax => "devdax",
            Access::Emulated => "emulated",
            Access::Volatile => "volatile",
        }
    }
}

/// What to map. Start from [`OpenOptions::new`] and change fields.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// How the backing is reached.
    pub access: Access,
    /// Bytes to map now, a multiple of [`crate::FRAME`]. Zero: as many as the backing has.
    pub len: u64,
    /// Address space to reserve, so that [`crate::Mapping::grow`] never moves the base. Less than
    /// `len` means `len`.
    pub max_len: u64,
    /// Make the file when it is missing, and lengthen it when it is shorter than `len`.
    pub create: bool,
    /// With `create`: the file must not exist.
    pub only_new: bool,
    /// Allocate every block of the file now, so that no later write finds the file system full.
    /// False leaves holes: a write into a hole of a full file system kills the process (SIGBUS), so
    /// this is for emulation and tests only.
    pub preallocate: bool,
    /// Fill the page tables now instead of at the first touch of each page.
    pub prefault: bool,
    /// Ask for huge pages.
    pub huge_pages: bool,
    /// Whose the backing must be, if not root's, and nobody else may write to it: who can change it
    /// decides what this process reads. What was opened is asked, not its path. `None`: whose it is
    /// does not matter.
    pub owner: Option<u32>,
    /// The directory of the backing, held open: only the last component of the path is looked up,
    /// in it, and the rest is for messages. `None`: the path says where it is.
    pub directory: Option<Arc<OwnedFd>>,
}

impl OpenOptions {
    /// An existing backing, `len` bytes of it, preallocated, huge pages if there are any.
    pub fn new(access: Access, len: u64) -> OpenOptions {
        OpenOptions {
            access,
            len,
            max_len: len,
            create: false,
            only_new: false,
            preallocate: true,
            prefault: false,
            huge_pages: true,
            owner: None,
            directory: None,
        }
    }
}

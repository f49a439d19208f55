//! What a look at a name tells.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{FileType, Stat};

/// What kind of thing has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A socket.
    Socket,
    /// A pipe, a device.
    Other,
}

/// What was found at a name, or behind a descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Of the file system.
    pub device: u64,
    /// Of the file in it.
    pub inode: u64,
    /// What it is.
    pub kind: Kind,
    /// The permission bits, with those for set-user-id, set-group-id and the sticky bit.
    pub mode: u32,
    /// The owner's user id.
    pub user: u32,
    /// The owner's group id.
    pub group: u32,
    /// How many names it has.
    pub links: u64,
    /// Bytes.
    pub size: u64,
}

impl Found {
    /// What an open file is.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        Ok(Self::from_stat(&rustix::fs::fstat(file)?))
    }

    pub(crate) fn from_stat(stat: &Stat) -> Self {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Link,
            FileType::Socket => Kind::Socket,
            _ => Kind::Other,
        };
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            kind,
            mode: stat.st_mode & 0o7777,
            user: stat.st_uid,
            group: stat.st_gid,
            // Its width differs between processors.
            #[allow(
                clippy::useless_conversion,
                clippy::unnecessary_cast,
                reason = "u32 on aarch64"
            )]
            links: stat.st_nlink as u64,
            size: u64::try_from(stat.st_size).unwrap_or(0),
        }
    }

    /// Whether both are the same file of the same file system.
    #[must_use]
    pub fn same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Whether it belongs to root. In a user namespace also what belongs to an account outside it,
    /// where nobody inside has the number that stands for those.
    #[must_use]
    pub fn is_roots(&self) -> bool {
        crate::walk::is_root(self.user)
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.kind == Kind::File
    }
}

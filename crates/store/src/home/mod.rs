//! The home directory behind a trait.
//!
//! Everything the store does to a home goes through [`Home`] and [`HomeFile`], so that the same
//! code runs on a real directory ([`RealHome`]) and on a simulated one (`SimHome`) that can be
//! stopped between any two calls.
//!
//! It is not a file system: there is no listing for programs, no permissions and no links to
//! follow. A door (FUSE, the SQLite VFS) answers those from the directory itself.
//!
//! Invariants:
//! - A path is relative to the home and names only what is inside it; a path that leaves it, or
//!   passes through a symbolic link, is refused.
//! - The names in [`RESERVED`] belong to Tiersmith and are left out of [`Home::walk`].
//! - A method that says *durable on return* has synced what it needs; every other change is durable
//!   only after [`HomeFile::sync`] or [`Home::sync_dir`].
//!
//! Read next: `real.rs` for the calls, `guard.rs` for the way the directory is moved aside and
//! `vault.rs` for where to, `sim.rs` for what a power cut
//! may leave behind.

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

mod dirs;
mod guard;
mod held;
mod inside;
#[cfg(test)]
pub(crate) mod inside_tests;
mod look;
pub mod model;
mod named;
mod noted;
mod people;
mod range;
mod real;
#[cfg(any(test, feature = "testing"))]
pub mod sim;
#[cfg(test)]
mod suite;
mod vault;

pub use guard::finish_move;
pub(crate) use guard::open_files_aside;
pub(crate) use held::{Found, HomeFiles, HomeHandle, is_elsewhere};
pub use inside::files_inside;
pub use named::Named;
pub(crate) use noted::{NOTE_MAX, NoteOf};
pub use people::{NOTE_FILE, NOTE_MARKER};
pub use real::RealHome;
#[cfg(any(test, feature = "testing"))]
pub use sim::SimHome;
pub use vault::{ASIDE_SUFFIX, FILES_NAME, files_aside, home_of_aside, vault_of};

/// Name of the attachment note in the home.
pub const ATTACHMENT: &str = ".tiersmith";
/// Name under which a new attachment note is written before it replaces the old one.
pub(crate) const ATTACHMENT_NEW: &str = ".tiersmith.new";
/// Name of the file made and removed to learn whether the home can be written.
pub(crate) const PROBE: &str = ".tiersmith.probe";
/// Names at the top of a home that belong to Tiersmith and are no file of the database.
pub const RESERVED: [&str; 4] = [ATTACHMENT, ATTACHMENT_NEW, PROBE, ASIDE_SUFFIX];

/// What a directory entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// An ordinary file: the only kind that has blocks.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link, socket, pipe or device; Tiersmith leaves those alone.
    Other,
}

/// What the file system says about one file.
///
/// The clock of `mtime_ns` ticks in steps of up to 10 ms on kernels without fine-grained time
/// stamps, so two writes in one step may carry the same stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HomeStat {
    /// Inode number.
    pub ino: u64,
    /// Generation of the inode number; 0 when unknown.
    pub generation: u32,
    /// Birth time in nanoseconds since 1970; 0 when unknown.
    pub btime_ns: u64,
    /// Length in bytes.
    pub size: u64,
    /// Time of the last change of the contents, in nanoseconds since 1970.
    pub mtime_ns: u64,
    /// Time of the last change of contents or attributes, in nanoseconds since 1970.
    pub ctime_ns: u64,
    /// Number of names.
    pub nlink: u64,
    /// What it is.
    pub kind: FileKind,
    /// Device number; good for comparing within one boot only.
    pub dev: u64,
    /// User id of the owner.
    pub uid: u32,
}

impl HomeStat {
    /// Tells files apart within one boot.
    pub(crate) fn key(&self) -> (u64, u64) {
        (self.dev, self.ino)
    }

    /// Whether this is the file that had this identity before: the same inode number, and the same
    /// birth time and generation where both sides know them. The device number is left out, because
    /// it may change at a reboot.
    #[must_use]
    pub fn same_file(&self, ino: u64, generation: u32, btime_ns: u64) -> bool {
        self.ino == ino
            && (self.generation == generation || self.generation == 0 || generation == 0)
            && (self.btime_ns == btime_ns || self.btime_ns == 0 || btime_ns == 0)
    }
}

/// A time stamp of a file, as `stat` gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileTime {
    /// Seconds since 1970; negative before.
    pub sec: i64,
    /// Nanoseconds of the second, 0 to 999,999,999.
    pub nsec: u32,
}

impl FileTime {
    /// From the nanoseconds of [`HomeStat`], which hold the years 1678 to 2262.
    #[must_use]
    pub fn from_ns(ns: u64) -> Self {
        let ns = ns as i64;
        Self { sec: ns.div_euclid(1_000_000_000), nsec: ns.rem_euclid(1_000_000_000) as u32 }
    }

    /// As [`HomeStat`] has it.
    pub(crate) fn wrapped_ns(self) -> u64 {
        (self.sec as u64).wrapping_mul(1_000_000_000).wrapping_add(self.nsec.into())
    }
}

/// What [`HomeFile::clear`] does to the space behind the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clear {
    /// It is given back to the file system (FALLOC_FL_PUNCH_HOLE).
    Punch,
    /// It stays the file's (FALLOC_FL_ZERO_RANGE).
    Zero,
}

/// What [`Home::rename_with`] does with a name that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RenameFlags {
    /// It is replaced.
    #[default]
    None,
    /// The call fails with `AlreadyExists`.
    NoReplace,
    /// The two exchange their names.
    Exchange,
}

/// How [`Home::open`] opens a file. The default opens an existing file for reading and writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenMode {
    /// Make the file when it is missing (mode 0600 on a real home).
    pub create: bool,
    /// With `create`: refuse when the file exists.
    pub exclusive: bool,
    /// Open for reading only.
    pub read_only: bool,
}

impl OpenMode {
    /// An existing file, for reading.
    pub const READ: Self = Self { create: false, exclusive: false, read_only: true };
    /// An existing file, for reading and writing.
    pub const WRITE: Self = Self { create: false, exclusive: false, read_only: false };
    /// For reading and writing, made when missing.
    pub const CREATE: Self = Self { create: true, exclusive: false, read_only: false };
    /// For reading and writing, refused when it exists.
    pub const CREATE_NEW: Self = Self { create: true, exclusive: true, read_only: false };
}

/// A directory that a database lives in.
///
/// # Durability
/// Names (create, rename, unlink, link, directories) are durable after [`Home::sync_dir`];
/// contents, length and time stamps of a file after [`HomeFile::sync`]. The attachment note and the
/// door are durable on return.
pub trait Home: Send + Sync + Debug {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// `InvalidInput` for a path that leaves the home or for something that is no ordinary file,
    /// else what the file system says.
    ///
    /// # Durability
    /// A file made by this call is durable after [`Home::sync_dir`].
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn HomeFile>>;

    /// Opens the file at `path` for reading and writing though its mode forbids that to its owner,
    /// who we are, if it is the file `meant`. A mode is for programs.
    ///
    /// # Errors
    /// `PermissionDenied` when the file is somebody else's, `NotFound` when it is another one, else
    /// what the file system says; `Unsupported` where there is no such way.
    ///
    /// # Durability
    /// As [`HomeFile::open_own`].
    fn open_own(&self, _path: &Path, _meant: &HomeStat) -> io::Result<Arc<dyn HomeFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// What the file system says about `path`; a symbolic link is not followed.
    ///
    /// # Errors
    /// `NotFound` when nothing has that name, else what the file system says.
    fn stat(&self, path: &Path) -> io::Result<HomeStat>;

    /// Gives `from` the name `to`; a file that had that name loses it in the same instant.
    ///
    /// # Errors
    /// What the file system says.
    ///
    /// # Durability
    /// After [`Home::sync_dir`] of both paths.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// [`Home::rename`], or one that refuses to replace, or an exchange of two names.
    ///
    /// # Errors
    /// What the file system says; `InvalidInput` where it cannot do what `flags` ask for.
    ///
    /// # Durability
    /// After [`Home::sync_dir`] of both paths.
    fn rename_with(&self, from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()>;

    /// Removes the name `path` of a file.
    ///
    /// # Errors
    /// What the file system says.
    ///
    /// # Durability
    /// After [`Home::sync_dir`].
    fn unlink(&self, path: &Path) -> io::Result<()>;

    /// Gives the file `from` the further name `to`.
    ///
    /// # Errors
    /// `AlreadyExists` when `to` is taken, else what the file system says.
    ///
    /// # Durability
    /// After [`Home::sync_dir`] of `to`.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes a directory (mode 0700 on a real home).
    ///
    /// # Errors
    /// What the file system says.
    ///
    /// # Durability
    /// After [`Home::sync_dir`].
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `DirectoryNotEmpty` when it holds something, else what the file system says.
    ///
    /// # Durability
    /// After [`Home::sync_dir`].
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Syncs the directory that holds `path` (the empty path: the home itself).
    ///
    /// # Errors
    /// What the file system says. After an error the directory may be in any state between the last
    /// sync and now.
    ///
    /// # Durability
    /// The names in that directory are durable on return.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Calls `each` for every ordinary file below the home, in the order of the names, with its
    /// path. Directories on other devices and the names in [`RESERVED`] are left out; symbolic
    /// links are not followed.
    ///
    /// # Errors
    /// What `each` returns, or what the file system says. A file that goes away meanwhile is no
    /// error.
    fn walk(&self, each: &mut dyn FnMut(&Path, &HomeStat) -> io::Result<()>) -> io::Result<()>;

    /// What the file system says about the directory itself.
    ///
    /// # Errors
    /// What the file system says.
    fn identity(&self) -> io::Result<HomeStat>;

    /// What it says about the directory at the home's path, if that is a mount point: the files are
    /// in it, or in a vault inside. `None`, too, while something is mounted over it.
    ///
    /// # Errors
    /// What the file system says.
    fn identity_of_top(&self) -> io::Result<Option<HomeStat>> {
        Ok(None)
    }

    /// Makes everything on the home's file system durable: names, contents, lengths, time stamps.
    ///
    /// # Errors
    /// What the file system says.
    fn sync_all(&self) -> io::Result<()>;

    /// The clock that time stamps of files come from, in nanoseconds since 1970; stamps may be some
    /// milliseconds behind it.
    fn now_ns(&self) -> u64;

    /// Makes this object the owner of the home for as long as it lives. A second call on the same
    /// object is no error.
    ///
    /// # Errors
    /// [`HomeError::Owned`] (kind `WouldBlock`) when another object or process has it.
    fn lock(&self) -> io::Result<()>;

    /// The open directory, for what a door does beyond this trait; `None` for one that is no
    /// directory of the system.
    fn directory(&self) -> Option<BorrowedFd<'_>>;

    /// The attachment note; `None` when the home is not attached.
    ///
    /// # Errors
    /// What the file system says.
    fn read_attachment(&self) -> io::Result<Option<Vec<u8>>>;

    /// Writes the attachment note, replacing an older one as a whole.
    ///
    /// # Errors
    /// What the file system says; the older note may or may not have been replaced then.
    ///
    /// # Durability
    /// Durable on return. After a power cut in between, either the older or the new note is there.
    fn write_attachment(&self, bytes: &[u8]) -> io::Result<()>;

    /// Removes the attachment note; no error when there is none.
    ///
    /// # Errors
    /// What the file system says.
    ///
    /// # Durability
    /// Durable on return.
    fn remove_attachment(&self) -> io::Result<()>;

    /// Moves the directory aside, so that nothing opens it by mistake while it is not a whole
    /// database. A directory with `note` in it takes its path. To be called before anything is
    /// mounted over the path. No error when it is closed; then it finishes what a power cut
    /// interrupted.
    ///
    /// # Errors
    /// [`HomeError`] with the reason and a remedy; the directory is then where it was, or moved
    /// aside, and whole.
    ///
    /// # Durability
    /// Durable on return. A power cut in between leaves it open or closed; either call finishes the
    /// work.
    fn close_door(&self, note: &str) -> io::Result<()>;

    /// Moves the directory back to its path. No error when it is open; then it removes what a power
    /// cut left behind.
    ///
    /// # Errors
    /// [`HomeError`] with the reason and a remedy, as for [`Home::close_door`].
    ///
    /// # Durability
    /// Durable on return. A power cut in between leaves it open or closed; either call finishes the
    /// work.
    fn open_door(&self) -> io::Result<()>;

    /// Whether the directory is moved aside.
    ///
    /// # Errors
    /// What the file system says.
    fn door_closed(&self) -> io::Result<bool>;
}

/// An open file of a home. It stays usable when its name changes or goes away.
pub trait HomeFile: Send + Sync + Debug {
    /// What the file system says about the file.
    ///
    /// # Errors
    /// What the file system says.
    fn stat(&self) -> io::Result<HomeStat>;

    /// The descriptor, for what a door does beyond this trait (attributes); `None` for a file that
    /// is none of the system.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Reads at `off` until `into` is full or the file ends; returns the number of bytes read.
    ///
    /// # Errors
    /// What the file system says; `into` may then hold part of the bytes.
    fn read_at(&self, off: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Says that these bytes will be read soon, so that the file system gets them while the caller
    /// does something else. A hint: nothing depends on it.
    fn read_ahead(&self, _off: u64, _len: u64) {}

    /// Writes all of `data` at `off`, extending the file when it is shorter.
    ///
    /// # Errors
    /// What the file system says (`StorageFull` when there is no room); part of `data` may then be
    /// written.
    ///
    /// # Durability
    /// After [`HomeFile::sync`]. Until then a power cut may leave any part of it, sector by sector.
    fn write_at(&self, off: u64, data: &[u8]) -> io::Result<()>;

    /// Cuts the file, or extends it with zeros, to `len` bytes.
    ///
    /// # Errors
    /// What the file system says.
    ///
    /// # Durability
    /// After [`HomeFile::sync`].
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes the file durable: contents, length, and the time stamps that later tell whether
    /// someone changed it.
    ///
    /// # Errors
    /// What the file system says. The kernel may have dropped the unsynced writes then: a second
    /// call that succeeds says nothing about them.
    ///
    /// # Durability
    /// Everything written to this file before the call is durable on return.
    fn sync(&self) -> io::Result<()>;

    /// Sets the time of the last access, or of the last change of the contents; `None` leaves it.
    ///
    /// # Errors
    /// What the file system says (only the owner may).
    ///
    /// # Durability
    /// After [`HomeFile::sync`].
    fn set_times(&self, atime: Option<FileTime>, mtime: Option<FileTime>) -> io::Result<()>;

    /// The same file for writing, when it could be opened for reading only because its mode forbids
    /// more to its owner, who we are. A mode is for programs; what they had written before it
    /// changed must still come home.
    ///
    /// # Errors
    /// `PermissionDenied` when the file is somebody else's, else what the file system says;
    /// `Unsupported` where there is no such way. Writing to what is open fails then, and loses
    /// nothing.
    ///
    /// # Durability
    /// Nothing of the file changes but the time of its last change of attributes. A process that is
    /// killed in it may leave it its owner's to write.
    fn open_own(&self) -> io::Result<Arc<dyn HomeFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes `len` bytes at `off` zero; the size stays. Parts of blocks of the file system are
    /// zeroed, whole ones treated as `how` says.
    ///
    /// # Errors
    /// What the file system says; `Unsupported` where it cannot.
    ///
    /// # Durability
    /// After [`HomeFile::sync`].
    fn clear(&self, off: u64, len: u64, how: Clear) -> io::Result<()>;

    /// Reserves space for `len` bytes at `off`; size and contents stay. The time of the last change
    /// may move.
    ///
    /// # Errors
    /// `StorageFull` when there is no room; `Unsupported` where the file system cannot.
    ///
    /// # Durability
    /// After [`HomeFile::sync`].
    fn allocate(&self, off: u64, len: u64) -> io::Result<()>;

    /// The first byte from `off` on that is not in a hole; `None` when there is none.
    ///
    /// # Errors
    /// What the file system says.
    fn next_data(&self, off: u64) -> io::Result<Option<u64>>;

    /// The first byte from `off` on that is in a hole, or the end of the file; `None` when `off` is
    /// past it.
    ///
    /// # Errors
    /// What the file system says.
    fn next_hole(&self, off: u64) -> io::Result<Option<u64>>;
}

/// Why a home cannot be opened, locked, moved aside or moved back.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum HomeError {
    /// Nothing has that path.
    #[error("the home {} does not exist; give the directory that the database lives in",
    path.display())]
    Missing {
        /// The path asked for.
        path: PathBuf,
    },
    /// The path is no directory.
    #[error("the home {} is not a directory; give the directory that holds the database's files",
    path.display())]
    NotADirectory {
        /// The path asked for.
        path: PathBuf,
    },
    /// The file system, or the directory's permissions, allow reading only.
    #[error("the home {} cannot be written ({source}); mount its file system read-write, or run as \
             the directory's owner", path.display())]
    NotWritable {
        /// The path asked for.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// The directory, or one on the way to it, may not be entered.
    #[error("no permission to open the home {} ({source}); run as the directory's owner, or as \
             root if root attached it", path.display())]
    NoPermission {
        /// The path asked for.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// Another process owns the home.
    #[error("the home {} is in use by another Tiersmith process; stop that one first",
    path.display())]
    Owned {
        /// The home's path.
        path: PathBuf,
    },
    /// The note is there, the directory it speaks of is not.
    #[error("{} holds a note that its data was moved to {}, but nothing is there; bring that \
             directory back, or remove the note if the data is given up", path.display(),
             aside.display())]
    DataMissing {
        /// The path asked for.
        path: PathBuf,
        /// Where the data should be.
        aside: PathBuf,
    },
    /// Both places hold something that is no note.
    #[error("both {} and {} hold data; the second is where Tiersmith moves the first aside: move \
             the one that is not wanted elsewhere", path.display(), aside.display())]
    TwoHomes {
        /// The path asked for.
        path: PathBuf,
        /// Where the data is moved aside to.
        aside: PathBuf,
    },
    /// The directory cannot be moved because a file system is mounted on it.
    #[error("{} is a mount point, whose files only root can move aside, and only while nothing is \
             mounted over it; run as root, or unmount it first if it is a Tiersmith mount",
             path.display())]
    MountPoint {
        /// The home's path.
        path: PathBuf,
    },
    /// The files of a home that is a mount point are partly in its vault.
    #[error(
        "moving the files of {} into {} or back was interrupted; `tiersmith attach` or `tiersmith \
         detach`, as root, finishes it, and nothing is lost",
        path.display(),
        inside::vault_inside(path).display()
    )]
    Between {
        /// The home's path.
        path: PathBuf,
    },
    /// Something else has the name of the vault in a home that is a mount point.
    #[error(
        "{}{why}, so it is no vault of Tiersmith. If the files of {} are in it, make it root's \
         again: `chown root:root` and `chmod 0700` it, and copy {} into it from {}. If not, move \
         it elsewhere",
        vault.display(), home.display(), people::NOTE_FILE, home.display()
    )]
    NoVault {
        /// What has the name.
        vault: PathBuf,
        /// What tells that it is none; continues its path.
        why: String,
        /// The home's path.
        home: PathBuf,
    },
    /// The root directory has no place beside it.
    #[error(
        "{} has no parent directory to be moved aside in; use a directory below it as the home",
        path.display()
    )]
    NoParent {
        /// The home's path.
        path: PathBuf,
    },
    /// The directory that holds the home refused a change.
    #[error("cannot change {} to move {} aside or back ({source}); see that it may be written and \
             has room", parent.display(), path.display())]
    ParentRefused {
        /// The directory that holds the home.
        parent: PathBuf,
        /// The home's path.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// Someone put files beside the note.
    #[error("{} should hold only the note {}, but also holds {names}; move them elsewhere and run \
             this again (they are not part of the database)", dir.display(), people::NOTE_FILE)]
    NotOnlyTheNote {
        /// The directory with the note.
        dir: PathBuf,
        /// The names found there, the first few of them.
        names: String,
    },
    /// The directory that the files are moved aside into was made by somebody else.
    #[error(
        "{} belongs to user {owner}, and the files of the home are moved aside into a directory of \
         that name; \
         run this as that user if he attached the home, or move that directory elsewhere",
        vault.display()
    )]
    VaultOfAnother {
        /// The directory.
        vault: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// The directory is neither at its path nor where it is moved aside to.
    #[error("the home opened as {} is no longer there nor at {}; someone renamed it while it was \
             in use: name it back", path.display(), aside.display())]
    Strayed {
        /// The home's path.
        path: PathBuf,
        /// Where the data is moved aside to.
        aside: PathBuf,
    },
    /// What the file system said otherwise.
    #[error("cannot {what} {} ({source})", path.display())]
    Io {
        /// What was tried, as a verb.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
}

impl HomeError {
    /// The nearest kind of `io::Error`.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Missing { .. } | Self::DataMissing { .. } | Self::Strayed { .. } => {
                io::ErrorKind::NotFound
            }
            Self::NotADirectory { .. } => io::ErrorKind::NotADirectory,
            Self::Owned { .. } => io::ErrorKind::WouldBlock,
            Self::TwoHomes { .. } => io::ErrorKind::AlreadyExists,
            Self::MountPoint { .. } | Self::Between { .. } => io::ErrorKind::ResourceBusy,
            Self::NoParent { .. } | Self::NoVault { .. } => io::ErrorKind::InvalidInput,
            Self::NotOnlyTheNote { .. } => io::ErrorKind::DirectoryNotEmpty,
            Self::VaultOfAnother { .. } => io::ErrorKind::PermissionDenied,
            Self::NotWritable { source, .. }
            | Self::NoPermission { source, .. }
            | Self::ParentRefused { source, .. }
            | Self::Io { source, .. } => source.kind(),
        }
    }
}

impl From<HomeError> for io::Error {
    fn from(e: HomeError) -> Self {
        Self::new(e.kind(), e)
    }
}

/// Refuses a path that is absolute, empty, or has `.` or `..` in it.
pub(crate) fn inside(path: &Path) -> io::Result<&Path> {
    let plain = path.components().all(|c| matches!(c, Component::Normal(_)));
    if plain && !path.as_os_str().is_empty() {
        return Ok(path);
    }
    let why = format!(
        "{:?} does not name something inside the home; give a path relative to it, without \"..\"",
        path
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// Whether `path` is one of the names Tiersmith keeps at the top of a home.
#[must_use]
pub fn is_reserved(path: &Path) -> bool {
    RESERVED.iter().any(|r| Path::new(r) == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leaves_the_home_is_refused() {
        for bad in ["", "/etc/passwd", "../x", "a/../b", "./a", "a/.."] {
            assert_eq!(
                inside(Path::new(bad)).unwrap_err().kind(),
                io::ErrorKind::InvalidInput,
                "{bad}"
            );
        }
        assert!(inside(Path::new("base/1/1259")).is_ok());
    }

    #[test]
    fn a_file_is_the_same_when_what_both_sides_know_agrees() {
        let s = HomeStat {
            ino: 7,
            generation: 2,
            btime_ns: 9,
            size: 0,
            mtime_ns: 0,
            ctime_ns: 0,
            nlink: 1,
            kind: FileKind::Regular,
            dev: 1,
            uid: 0,
        };
        assert!(s.same_file(7, 2, 9) && s.same_file(7, 0, 9) && s.same_file(7, 2, 0));
        assert!(!s.same_file(8, 2, 9) && !s.same_file(7, 3, 9) && !s.same_file(7, 2, 8));
    }
}

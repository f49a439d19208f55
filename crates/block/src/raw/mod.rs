//! A block device: a whole disk, a partition, a volume. How it is opened so that nobody else uses
//! it, how it is known that nobody misses what is on it, and how that is taken away.
//!
//! # Opening, and what a refusal leaves
//! Nothing is written by an open. `O_EXCL` is the kernel's own claim: what is mounted, a swap, or
//! held by LVM, RAID or another exclusive opener is refused by it, and so is a disk of which a
//! partition is, and the other way round. The rest of [`sysfs`] says by whom, and knows what the
//! kernel does not claim (a loop device above, a read-only device, memory).
//!
//! # Taking over, and what a cut leaves
//! [`clear`] takes away what [`signatures`] knows and whatever else is within 2 MiB of the
//! beginning and 1 MiB of the end.
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 1 | zeros at the end and in the middle; sync | what is at the beginning: known, or data |
//! | 2 | zeros behind the first sector, up to 2 MiB; sync | the first sector: known, or data |
//! | 3 | the mark of the new owner, and zeros behind it in the first sector; sync | the mark alone |
//!
//! A cut within a step leaves some of it. Before step 3 the device is refused again, unless all
//! that told of the old owner is gone; then it is empty.
//!
//! The last MiB is never part of a [`Device`](crate::Device): a block there could look like a
//! signature to others.

#[allow(unsafe_code, reason = "a border: one call of the kernel's, in one file")]
mod partitions;
mod signatures;
mod sysfs;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use tiersmith_dir::Dir;

use crate::{Error, memory};
use sysfs::{Node, this};

/// Bytes at the end that belong to nobody.
const TAIL: u64 = signatures::EDGE;
/// Bytes at the beginning that are taken over whole.
const FRONT: u64 = 2 << 20;
/// What is written at a place in the middle; the largest sector there may be.
const BLOCK: u64 = 4096;
/// Bytes that every device keeps together.
const SECTOR: u64 = 512;
/// Where a signature is beyond [`FRONT`]: a VMFS file system, LUKS2's last header, btrfs's second
/// superblock.
const MIDDLE: [u64; 3] = [0x20_0000, 0x40_0000, 0x400_0000];

/// An open device.
#[derive(Debug)]
pub(crate) struct RawDevice {
    node: Option<Node>,
    number: u64,
    path: PathBuf,
    /// All its bytes.
    bytes: u64,
}

impl RawDevice {
    /// Opens the device `name` in `dir` for this process alone.
    pub(crate) fn open(dir: &Dir, name: &OsStr, owner: Option<u32>) -> Result<(Self, File), Error> {
        let path = dir.path_of(name);
        let fail = |action, errno: Errno| io_error(action, &path, errno.into());
        let stat =
            rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| match e {
                Errno::NOENT => Error::Missing { path: path.clone() },
                e => fail("looking at", e),
            })?;
        let node = Node::of(this(), stat.st_rdev);
        let used = || node.as_ref().and_then(|node| node.used(this()));
        // Also where the open would say so itself: this says by whom.
        if let Some(by) = used() {
            return Err(Error::InUse { path, by });
        }
        let flags = OFlags::RDWR
            | OFlags::EXCL
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            // By what no list has: another exclusive opener, a mount in another container.
            Err(Errno::BUSY) => {
                return Err(match used() {
                    Some(by) => Error::InUse { path, by },
                    None => Error::Owned { path },
                });
            }
            Err(Errno::ACCESS | Errno::PERM) => return Err(Error::NotPermitted { path }),
            Err(Errno::ROFS) => return Err(Error::InUse { path, by: "read-only".into() }),
            Err(Errno::NXIO | Errno::NODEV | Errno::NOMEDIUM) => {
                return Err(Error::Missing { path });
            }
            Err(e) => return Err(fail("opening", e)),
        };
        let found = rustix::fs::fstat(&file).map_err(|e| fail("looking at", e))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::BlockDevice
            || found.st_rdev != stat.st_rdev
        {
            return Err(Error::Missing { path });
        }
        if let Some(wanted) = owner {
            let said = if found.st_uid != wanted && found.st_uid != 0 {
                Some(format!("belongs to user {}", found.st_uid))
            } else if found.st_mode & 0o002 != 0 {
                Some(format!("may be written by everybody (mode {:04o})", found.st_mode & 0o7777))
            } else {
                None
            };
            if let Some(found) = said {
                return Err(Error::OfAnother { path, found, wanted });
            }
        }
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(Error::Owned { path }),
            Err(e) => return Err(fail("locking", e)),
        }
        if node.as_ref().is_some_and(Node::is_read_only) {
            return Err(Error::InUse { path, by: "read-only".into() });
        }
        if let Some(by) = used() {
            return Err(Error::InUse { path, by });
        }
        let sector = rustix::fs::ioctl_blksszget(&file).map_err(|e| fail("measuring", e))?;
        if u64::from(sector) > BLOCK {
            return Err(Error::LargeSectors { path, sector });
        }
        let bytes = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(|e| fail("measuring", e))?;
        if bytes < 2 * (FRONT + TAIL) {
            return Err(Error::TooShort { path, found: bytes, wanted: 2 * (FRONT + TAIL) });
        }
        Ok((Self { node, number: found.st_rdev, path, bytes }, file))
    }

    /// Bytes that may be used.
    pub(crate) fn usable(&self) -> u64 {
        (self.bytes - TAIL) / BLOCK * BLOCK
    }

    /// Whether what is written there is gone with the power.
    pub(crate) fn in_memory(&self) -> bool {
        let Some(node) = &self.node else { return false };
        node.is_in_memory() || node.backing_file().is_some_and(|file| memory::has_path(&file))
    }

    /// What the user has to repeat: the first of what tells this device from others, else its name
    /// with its size.
    pub(crate) fn identity(&self) -> String {
        let ids = self.node.as_ref().map(|node| node.ids(this())).unwrap_or_default();
        ids.into_iter().next().unwrap_or_else(|| self.name_and_size())
    }

    /// Whether the user means this device. Its name with its size does not tell a device that has
    /// an identity from the one that was there yesterday.
    pub(crate) fn is_called(&self, said: &str) -> bool {
        let ids = self.node.as_ref().map(|node| node.ids(this())).unwrap_or_default();
        match ids.is_empty() {
            true => said == self.name_and_size(),
            false => ids.iter().any(|id| id == said),
        }
    }

    fn name_and_size(&self) -> String {
        let name = self.node.as_ref().map_or_else(|| self.path.display().to_string(), Node::name);
        format!("{name}:{}", self.bytes)
    }

    /// What is on it that is not ours; `blank`: nothing is, so all of it must be zeros.
    pub(crate) fn foreign(
        &self,
        file: &File,
        ours: &[Range<u64>],
        blank: bool,
    ) -> Result<Option<Foreign>, Error> {
        foreign(&|at, into| file.read_exact_at(into, at), self.bytes, ours, blank)
            .map_err(|source| io_error("reading", &self.path, source))
    }

    /// Takes away what is on it. `mark` is what it begins with then.
    pub(crate) fn clear(&self, file: &File, mark: &[u8]) -> Result<(), Error> {
        let write = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at);
        clear(&write, &|| file.sync_data(), self.bytes, mark)
            .map_err(|source| io_error("clearing", &self.path, source))?;
        // Best effort: partitions that the kernel goes on to show have no table any more.
        partitions::forget(file);
        Ok(())
    }

    /// Other devices on which the same bytes would be found twice: none that this one is made of.
    pub(crate) fn others(&self) -> Vec<PathBuf> {
        let below = self.node.as_ref().map(Node::below).unwrap_or_default();
        let all = Node::all(this()).into_iter();
        all.filter(|node| node.number() != self.number && !below.contains(node))
            .filter(may_be_read)
            .map(|node| node.path())
            .collect()
    }
}

/// A block device that this process has for itself, as [`crate::Device::raw`] gives it.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    pub(crate) device: &'a RawDevice,
    pub(crate) file: &'a File,
}

impl Raw<'_> {
    /// What a user repeats who means this device and no other: its serial number, world wide name
    /// or uuid, else its name with its size.
    #[must_use]
    pub fn identity(&self) -> String {
        self.device.identity()
    }

    /// Whether a user who says this means this device.
    #[must_use]
    pub fn is_called(&self, said: &str) -> bool {
        self.device.is_called(said)
    }

    /// What somebody else has on it. Of `ours` it is known what they are; `blank`: of nothing, so
    /// what is not zero near either end is somebody's.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn foreign(&self, ours: &[Range<u64>], blank: bool) -> Result<Option<Foreign>, Error> {
        self.device.foreign(self.file, ours, blank)
    }

    /// Takes away all that tells whose it was. `mark`, at most 512 bytes, is what it begins with
    /// then.
    ///
    /// # Durability
    /// Durable on return. A cut leaves something of the old owner's, or the mark, or zeros.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn clear(&self, mark: &[u8]) -> Result<(), Error> {
        self.device.clear(self.file, mark)
    }

    /// The other devices of this machine that could be a copy of it: none that it is made of.
    #[must_use]
    pub fn others(&self) -> Vec<PathBuf> {
        self.device.others()
    }
}

/// What somebody else has on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// For people.
    pub what: String,
    /// Whether it is known what it is.
    pub is_known: bool,
}

fn foreign(
    read: signatures::Read<'_>,
    len: u64,
    ours: &[Range<u64>],
    blank: bool,
) -> io::Result<Option<Foreign>> {
    if let Some(what) = signatures::find(read, len, ours)? {
        return Ok(Some(Foreign { what, is_known: true }));
    }
    let data = if blank { signatures::first_data(read, len)? } else { None };
    Ok(data.map(|at| Foreign {
        what: format!("data of a kind that is not known here (byte {at} is not zero)"),
        is_known: false,
    }))
}

type Write<'a> = &'a dyn Fn(u64, &[u8]) -> io::Result<()>;

/// See the module.
fn clear(
    write: Write<'_>,
    sync: &dyn Fn() -> io::Result<()>,
    len: u64,
    mark: &[u8],
) -> io::Result<()> {
    let zeros = vec![0; FRONT as usize];
    let tail = (len - TAIL) / BLOCK * BLOCK;
    write(tail, &zeros[..(len - tail) as usize])?;
    for at in MIDDLE.into_iter().filter(|at| at + BLOCK <= tail) {
        write(at, &zeros[..BLOCK as usize])?;
    }
    sync()?;
    write(SECTOR, &zeros[..(FRONT - SECTOR) as usize])?;
    sync()?;
    let mut first = [0; SECTOR as usize];
    first[..mark.len()].copy_from_slice(mark);
    write(0, &first)?;
    sync()
}

/// The block devices of this machine that have a medium and can be read without acting on it, by
/// the usual paths of their nodes.
#[must_use]
pub fn block_devices() -> Vec<PathBuf> {
    Node::all(this()).into_iter().filter(may_be_read).map(|node| node.path()).collect()
}

/// To open a drive for removable media acts on it.
fn may_be_read(node: &Node) -> bool {
    let name = node.name();
    let acts = ["sr", "fd", "st"].iter().any(|kind| {
        name.strip_prefix(kind).is_some_and(|n| n.bytes().all(|byte| byte.is_ascii_digit()))
    });
    !acts && node.bytes() > 0
}

/// Opens a block device for reading only. Nobody is kept from using it.
///
/// # Errors
/// The kernel's; `InvalidInput` when it is no block device.
pub fn open_to_read(path: &Path) -> io::Result<File> {
    let careful = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let flags = i32::try_from(careful.bits()).unwrap_or(0);
    let is_one = |found: std::fs::Metadata| match found.file_type().is_block_device() {
        true => Ok(found.rdev()),
        false => Err(io::Error::from(io::ErrorKind::InvalidInput)),
    };
    let wanted = is_one(std::fs::metadata(path)?)?;
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    match is_one(file.metadata()?)? == wanted {
        true => Ok(file),
        false => Err(Errno::NODEV.into()),
    }
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Io { action, path: path.into(), source }
}

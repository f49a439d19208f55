//! A block device: a whole disk, a partition, a volume. How it is opened so that nobody else uses
//! it, how it is known that nobody misses what is on it, and how that is taken away.
//!
//! # Opening, and what a refusal leaves
//! Nothing is written by an open. `O_EXCL` is the kernel's own claim: what is mounted, a swap, or
//! held by LVM, RAID or another exclusive opener is refused by it, and so is a disk of which a
//! partition is, and the other way round. The rest of [`sysfs`] says by whom, and knows what the
//! kernel does not claim (a loop device above, a read-only device, memory, the same disk by another
//! name, a program that has it open). Without sysfs nothing is opened. What a loop device is over
//! is claimed besides, because the kernel does not.
//!
//! What may be a use and may be none ([`Raw::doubt`]: the same WWN, a loop device that gives no
//! answer) keeps a device from being taken over, and not a tier from its home: that it is ours is
//! proved by what is on it.
//!
//! Devices that this one has nothing to do with are never opened, but for loop devices: one may
//! hang, and a thread that waits for a disk cannot be killed.
//!
//! What decides is read past the kernel's copy: that may be older than the device, while another
//! process has it open.
//!
//! The lock (`flock`) keeps udev from probing a device between the look at it and the end of its
//! formatting, and goes then: udev has work to do on it.
//!
//! # Taking over, and what a cut leaves
//! [`clear`] takes away what [`signatures`] knows and whatever else is within 2 MiB of the
//! beginning and 1 MiB of the end.
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 0 | the kernel forgets its partitions | as it was |
//! | 1 | zeros at the end and in the middle; sync | what is at the beginning: known, or data |
//! | 2 | zeros behind the first sector, up to 2 MiB; sync | the first sector: known, or data |
//! | 3 | the mark of the new owner, and zeros behind it in the first sector; sync | the mark alone |
//!
//! A cut within a step leaves some of it. Before step 3 the device is refused again, unless all
//! that told of the old owner is gone; then it is empty.
//!
//! The last MiB is never part of a [`Device`](crate::Device): a block there could look like a
//! signature to others.

#[allow(unsafe_code, reason = "a border: calls of the kernel's, in one file")]
mod ioctls;
mod loops;
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
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use tiersmith_dir::Dir;

use crate::Error;
use loops::Loops;
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

/// How long somebody who looks at a device (udev) may take to be done.
const PROBED: Duration = Duration::from_secs(10);

/// How long udev may have a partition open.
const PARTITION: Duration = Duration::from_secs(3);

/// An open device.
#[derive(Debug)]
pub(crate) struct RawDevice {
    node: Node,
    path: PathBuf,
    /// All its bytes.
    bytes: u64,
    /// What may be a use of it.
    doubt: Option<String>,
    /// Exclusive opens of what its loop devices are over.
    _claims: Vec<File>,
}

impl RawDevice {
    /// Opens the device `name` in `dir` for this process alone.
    pub(crate) fn open(dir: &Dir, name: &OsStr, owner: Option<u32>) -> Result<(Self, File), Error> {
        let path = dir.path_of(name);
        let fail = |action, errno: Errno| io_error(action, &path, errno.into());
        let (node, number) = find(dir, name, &path)?;
        let used = || node.used(this(), &Loops::ask(this()));
        // Also where the open would say so itself: this says by whom.
        if let Some(by) = used() {
            return Err(Error::InUse { path, by });
        }
        let file = open_alone(dir, name, &path, &used)?;
        let found = rustix::fs::fstat(&file).map_err(|e| fail("looking at", e))?;
        if FileType::from_raw_mode(found.st_mode) != FileType::BlockDevice
            || found.st_rdev != number
        {
            return Err(Error::Missing { path });
        }
        if let Some(wanted) = owner {
            refuse_another(&found, wanted, &path)?;
        }
        lock(&file, &path)?;
        if node.is_read_only() {
            return Err(Error::InUse { path, by: "read-only".into() });
        }
        let (claims, unclaimed) = claim_below(&node)?;
        let loops = Loops::ask(this());
        if let Some(by) = node.used(this(), &loops) {
            return Err(Error::InUse { path, by });
        }
        let doubt = unclaimed.or_else(|| node.doubt(this(), &loops));
        if let Some(why) = node.not_kept(this()) {
            return Err(unproved(
                &path,
                format!("{why}, so what is written there may be gone with the power"),
            ));
        }
        ioctls::drop_copy(&file);
        let sector = rustix::fs::ioctl_blksszget(&file).map_err(|e| fail("measuring", e))?;
        if u64::from(sector) > BLOCK {
            return Err(Error::LargeSectors { path, sector });
        }
        let bytes = rustix::fs::seek(&file, SeekFrom::End(0)).map_err(|e| fail("measuring", e))?;
        if bytes < 2 * (FRONT + TAIL) {
            return Err(Error::TooShort { path, found: bytes, wanted: 2 * (FRONT + TAIL) });
        }
        Ok((Self { node, path, bytes, doubt, _claims: claims }, file))
    }

    /// Bytes that may be used.
    pub(crate) fn usable(&self) -> u64 {
        usable_of(self.bytes)
    }

    /// What the user has to repeat: the first of what tells this device from all others of this
    /// machine, else its name with its size.
    pub(crate) fn identity(&self) -> String {
        let (own, _) = self.node.ids_of_its_own(this());
        own.into_iter().next().unwrap_or_else(|| self.node.name_and_size())
    }

    /// Whether the user means this device. Its name with its size does not tell a device that has
    /// an identity from the one that was there yesterday.
    pub(crate) fn is_called(&self, said: &str) -> bool {
        let (own, _) = self.node.ids_of_its_own(this());
        match own.is_empty() {
            true => said == self.node.name_and_size(),
            false => own.iter().any(|id| id == said),
        }
    }

    /// Other devices with a serial number or uuid that this one has.
    pub(crate) fn namesakes(&self) -> Vec<PathBuf> {
        let (_, shared) = self.node.ids_of_its_own(this());
        shared.iter().map(Node::path).collect()
    }

    /// What is on it that is not ours, but for what is not zero without a mark.
    pub(crate) fn marks(
        &self,
        direct: &File,
        ours: &[Range<u64>],
    ) -> Result<Option<Foreign>, Error> {
        let read = |at, into: &mut [u8]| read_past_the_copy(direct, self.bytes, at, into);
        let fail = |source| io_error("reading", &self.path, source);
        let found = signatures::find(&read, self.bytes, ours).map_err(fail)?;
        let partitions = self.node.partitions();
        if found.is_none() && !partitions.is_empty() {
            let names: Vec<String> =
                partitions.iter().map(|node| node.path().display().to_string()).collect();
            let what =
                format!("a disk of which the kernel knows partitions ({})", names.join(", "));
            return Ok(Some(Foreign { what, mark: None }));
        }
        Ok(found.map(Foreign::from))
    }

    /// What is on it that is not ours; `blank`: nothing is, so all of it must be zeros.
    pub(crate) fn foreign(
        &self,
        direct: &File,
        ours: &[Range<u64>],
        blank: bool,
    ) -> Result<Option<Foreign>, Error> {
        if let Some(found) = self.marks(direct, ours)? {
            return Ok(Some(found));
        }
        let read = |at, into: &mut [u8]| read_past_the_copy(direct, self.bytes, at, into);
        data(&read, self.bytes, blank).map_err(|source| io_error("reading", &self.path, source))
    }

    /// Takes away what is on it. `mark` is what it begins with then.
    pub(crate) fn clear(&self, file: &File, mark: &[u8]) -> Result<(), Error> {
        // First: once the table is gone there is no way back.
        for partition in self.node.partitions() {
            self.forget(file, &partition)?;
        }
        let write = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at);
        clear(&write, &|| file.sync_data(), self.bytes, mark)
            .map_err(|source| io_error("clearing", &self.path, source))?;
        ioctls::read_table(file);
        if self.node.partitions().is_empty() {
            return Ok(());
        }
        let why = format!(
            "the kernel goes on to know partitions of it, which others could write to; `partx \
             --delete {}` takes them away, and then the same command goes on",
            self.path.display()
        );
        Err(Error::Unproved { path: self.path.clone(), why })
    }

    /// Lets the kernel forget a partition. udev, which has it open to look at it, is waited for.
    fn forget(&self, file: &File, partition: &Node) -> Result<(), Error> {
        let Some(number) = partition.partition_number() else { return Ok(()) };
        let began = Instant::now();
        loop {
            let why = match ioctls::forget_partition(file, number) {
                Ok(()) => return Ok(()),
                Err(e) if e.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => return Ok(()),
                Err(e) if e.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                    if began.elapsed() < PARTITION {
                        std::thread::sleep(Duration::from_millis(50));
                        continue;
                    }
                    format!(
                        "its partition {0} is open in another program; end that (`fuser -v {0}`), \
                         and try again. Nothing on it was changed",
                        partition.path().display()
                    )
                }
                Err(source) => {
                    return Err(io_error("taking the partitions of", &self.path, source));
                }
            };
            return Err(Error::Unproved { path: self.path.clone(), why });
        }
    }

    /// Lets udev look at it again.
    pub(crate) fn unlock(&self, file: &File) {
        // A lock that we have: there is nothing that could fail.
        let _ = rustix::fs::flock(file, FlockOperation::Unlock);
    }

    /// Who else has it open. Who only looks at it is waited for.
    pub(crate) fn opener(&self) -> Option<String> {
        let began = Instant::now();
        loop {
            let by = self.node.opener(this())?;
            if began.elapsed() > PROBED {
                return Some(by);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What shares bytes with it: its partitions, the disk that it is part of, and the same of what
    /// its loop devices are over.
    pub(crate) fn family(&self, direct: &File, bytes: usize) -> Vec<Relative> {
        let partitions = self.node.partitions().into_iter().filter_map(|node| {
            // Through the disk: the partition may have no node here. Past its end there is nothing.
            let at = node.start()?;
            let len = (bytes as u64).min(self.bytes.checked_sub(at)?);
            let mut begin = vec![0; usize::try_from(len).ok()?];
            let read = read_past_the_copy(direct, self.bytes, at, &mut begin).map(|()| begin);
            Some(Relative { path: node.path(), is_below: false, begin: read })
        });
        let other = |node: Node, is_below| {
            let path = node.path();
            Relative { begin: read_begin(&path, bytes), is_below, path }
        };
        let disk = self.node.disk().map(|node| other(node, false));
        let below = self.node.below_loops(this()).into_iter().flat_map(|node| node.family());
        partitions.chain(disk).chain(below.map(|node| other(node, true))).collect()
    }
}

/// Claims what the device's loop devices are over: a mount of it, or another tier on it, would
/// write to the same bytes. Besides, what could not be claimed.
fn claim_below(node: &Node) -> Result<(Vec<File>, Option<String>), Error> {
    let (mut claims, mut unclaimed) = (Vec::new(), None);
    for lower in node.below_loops(this()) {
        let at = lower.path();
        let found = open_with(&at, OFlags::EXCL).and_then(|file| {
            match file.metadata()?.rdev() == lower.number() {
                true => Ok(file),
                false => Err(Errno::NODEV.into()),
            }
        });
        match found {
            Ok(file) => claims.push(file),
            Err(e) if e.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                return Err(Error::Owned { path: at });
            }
            Err(e) => {
                unclaimed =
                    Some(format!("over {}, which cannot be opened here ({e})", at.display()));
            }
        }
    }
    Ok((claims, unclaimed))
}

/// Bytes that may be used of a device with so many.
fn usable_of(bytes: u64) -> u64 {
    bytes.saturating_sub(TAIL) / BLOCK * BLOCK
}

fn unproved(path: &Path, why: String) -> Error {
    Error::Unproved { path: path.into(), why }
}

/// The device that the kernel knows by a name, and its number.
fn find(dir: &Dir, name: &OsStr, path: &Path) -> Result<(Node, u64), Error> {
    let fail = |action, errno: Errno| io_error(action, path, errno.into());
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| match e {
        Errno::NOENT => Error::Missing { path: path.to_path_buf() },
        e => fail("looking at", e),
    })?;
    let known = Node::of(this(), stat.st_rdev).filter(|_| Node::is_told_of(this()));
    let Some(node) = known else {
        return Err(unproved(
            path,
            "its entry in /sys, or the list of mounts in /proc, is not there, so nobody can \
             say who uses it; mount both, or work outside of the container"
                .into(),
        ));
    };
    if node.is_stopped() {
        return Err(unproved(
            path,
            "it is suspended, or gone, by what the kernel says, so nobody would be answered; \
             bring it back (`dmsetup resume`, or see `dmesg`), and try again"
                .into(),
        ));
    }
    Ok((node, stat.st_rdev))
}

/// Opens a device unless somebody else uses it; `used` says by whom.
fn open_alone(
    dir: &Dir,
    name: &OsStr,
    path: &Path,
    used: &dyn Fn() -> Option<String>,
) -> Result<File, Error> {
    let flags = OFlags::RDWR
        | OFlags::EXCL
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::NOCTTY
        | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(file) => Ok(File::from(file)),
        // By what no list has: another exclusive opener, a mount in another container.
        Err(Errno::BUSY) => Err(match used() {
            Some(by) => Error::InUse { path: path.into(), by },
            None => Error::Owned { path: path.into() },
        }),
        Err(Errno::ACCESS | Errno::PERM) => Err(not_permitted(path.into())),
        Err(Errno::ROFS) => Err(Error::InUse { path: path.into(), by: "read-only".into() }),
        Err(Errno::NXIO | Errno::NODEV | Errno::NOMEDIUM) => {
            Err(Error::Missing { path: path.into() })
        }
        Err(e) => Err(io_error("opening", path, e.into())),
    }
}

/// Refuses a device that others than its owner and root can write.
fn refuse_another(found: &Stat, wanted: u32, path: &Path) -> Result<(), Error> {
    let said = if found.st_uid != wanted && found.st_uid != 0 {
        Some(format!("belongs to user {}", found.st_uid))
    } else if found.st_mode & 0o002 != 0 {
        Some(format!("may be written by everybody (mode {:04o})", found.st_mode & 0o7777))
    } else {
        None
    };
    said.map_or(Ok(()), |found| Err(Error::OfAnother { path: path.into(), found, wanted }))
}

/// Waits for who holds a lock only to look.
fn lock(file: &File, path: &Path) -> Result<(), Error> {
    let began = Instant::now();
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if began.elapsed() < PROBED => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(Errno::WOULDBLOCK) => return Err(Error::Owned { path: path.into() }),
            Err(e) => return Err(io_error("locking", path, e.into())),
        }
    }
}

/// What this user can do about a device that may not be opened.
fn not_permitted(path: PathBuf) -> Error {
    Error::NotPermitted { path, remedy: remedy_of_denied() }
}

/// What to do where a block device may not be opened.
#[must_use]
pub fn remedy_of_denied() -> &'static str {
    match rustix::process::geteuid().is_root() {
        true => {
            "root is denied it by the unit or the container: in the unit, DeviceAllow=block-* rw \
             (systemctl edit)"
        }
        false => {
            "it may be opened by root or its group only: work as root (sudo), or give a file on a \
             disk"
        }
    }
}

/// A block device that this process has for itself, as [`crate::Device::raw`] gives it.
#[derive(Clone, Copy, Debug)]
pub struct Raw<'a> {
    pub(crate) device: &'a RawDevice,
    pub(crate) file: &'a File,
    /// The same, past the kernel's copy.
    pub(crate) direct: &'a File,
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

    /// Other devices with a serial number or uuid that this one has too, which names none of them
    /// then.
    #[must_use]
    pub fn namesakes(&self) -> Vec<PathBuf> {
        self.device.namesakes()
    }

    /// What somebody else has on it. Of `ours` it is known what they are; `blank`: of nothing, so
    /// what is not zero near either end, or at one of some hundred places between, is somebody's.
    /// Otherwise only the last MiB must be zeros.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn foreign(&self, ours: &[Range<u64>], blank: bool) -> Result<Option<Foreign>, Error> {
        self.device.foreign(self.direct, ours, blank)
    }

    /// [`Raw::foreign`], but for what is not zero and has no mark.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn marks(&self, ours: &[Range<u64>]) -> Result<Option<Foreign>, Error> {
        self.device.marks(self.direct, ours)
    }

    /// Takes away all that tells whose it was. `mark`, at most 512 bytes, is what it begins with
    /// then.
    ///
    /// # Durability
    /// Durable on return. A cut leaves something of the old owner's, or the mark, or zeros.
    ///
    /// # Errors
    /// When it cannot be written; when the kernel goes on to know partitions.
    pub fn clear(&self, mark: &[u8]) -> Result<(), Error> {
        self.device.clear(self.file, mark)
    }

    /// Lets udev look at it again: it is known and formatted now.
    pub fn unlock(&self) {
        self.device.unlock(self.file);
    }

    /// Who else has it open though not exclusively, if this user is told; waits some seconds for
    /// who only looks at it.
    #[must_use]
    pub fn opener(&self) -> Option<String> {
        self.device.opener()
    }

    /// What may be a use of it by somebody else, and may be none, for who takes it over.
    #[must_use]
    pub fn doubt(&self) -> Option<&str> {
        self.device.doubt.as_deref()
    }

    /// What shares bytes with it: its partitions, the disk that it is part of, and the same of what
    /// a loop device is over; with the first `bytes`, fewer of a shorter one.
    #[must_use]
    pub fn family(&self, bytes: usize) -> Vec<Relative> {
        self.device.family(self.direct, bytes)
    }
}

/// A device that shares bytes with another.
#[derive(Debug)]
pub struct Relative {
    /// The usual path of its node.
    pub path: PathBuf,
    /// A loop device is over it, rather than that one is a part of the other.
    pub is_below: bool,
    /// Its first bytes, or why they cannot be read.
    pub begin: io::Result<Vec<u8>>,
}

/// What somebody else has on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// For people.
    pub what: String,
    /// The bytes that say so, if it is known what it is.
    pub mark: Option<Range<u64>>,
}

impl From<signatures::Mark> for Foreign {
    fn from(mark: signatures::Mark) -> Self {
        let what = format!("{} (at byte {})", mark.what, mark.range.start);
        Foreign { what, mark: Some(mark.range) }
    }
}

/// What is somebody's though no mark says whose.
fn data(read: signatures::Read<'_>, len: u64, blank: bool) -> io::Result<Option<Foreign>> {
    let from = len - signatures::EDGE.min(len);
    if blank {
        // A table of partitions was lost: the first of them began here.
        let behind = |at: u64, into: &mut [u8]| read(at + signatures::EDGE, into);
        if let Some(mark) = signatures::find(&behind, from, &[])? {
            let range = mark.range.start + signatures::EDGE..mark.range.end + signatures::EDGE;
            return Ok(Some(signatures::Mark { range, ..mark }.into()));
        }
    }
    let at = match blank {
        true => signatures::first_data(read, len)?,
        false => signatures::first_in(read, from..len)?,
    };
    Ok(at.map(|at| Foreign {
        what: format!("data of a kind that is not known here (byte {at} is not zero)"),
        mark: None,
    }))
}

/// Reads whole blocks past the kernel's copy. `direct` was opened for that.
fn read_past_the_copy(direct: &File, len: u64, at: u64, into: &mut [u8]) -> io::Result<()> {
    let (from, wanted) = (at / BLOCK * BLOCK, into.len());
    let skip = (at - from) as usize;
    let to = (at + wanted as u64).next_multiple_of(BLOCK).min(len).max(from);
    let mut space = vec![0; (to - from) as usize + BLOCK as usize];
    let aligned = space.as_ptr().align_offset(BLOCK as usize);
    let blocks = &mut space[aligned..aligned + (to - from) as usize];
    direct.read_exact_at(blocks, from)?;
    let found = blocks.get(skip..skip + wanted).ok_or(io::ErrorKind::UnexpectedEof)?;
    into.copy_from_slice(found);
    Ok(())
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

/// What tells a block device from all others of this machine: its WWN, serial number or uuid, if
/// it has one that no other has. By what the kernel says; the device is not opened.
#[must_use]
pub fn id_of(device: &Path) -> Option<String> {
    let (own, _) = node_at(device)?.ids_of_its_own(this());
    own.into_iter().next()
}

/// Whether a block device has this WWN, serial number or uuid; it is not opened.
#[must_use]
pub fn is_called(device: &Path, id: &str) -> bool {
    node_at(device).is_some_and(|node| node.ids().iter().any(|own| own == id))
}

/// The block devices of this machine with this WWN, serial number or uuid; none is opened.
#[must_use]
pub fn devices_called(id: &str) -> Vec<PathBuf> {
    let all = Node::all(this()).into_iter().filter(may_be_read);
    all.filter(|node| node.ids().iter().any(|own| own == id)).map(|node| node.path()).collect()
}

/// The block devices of this machine of which so many bytes may be used; none is opened.
#[must_use]
pub fn devices_of_size(usable: u64) -> Vec<PathBuf> {
    let all = Node::all(this()).into_iter().filter(may_be_read);
    all.filter(|node| usable_of(node.bytes()) == usable).map(|node| node.path()).collect()
}

/// Whether a block device is persistent memory, or a part of it.
#[must_use]
pub fn is_persistent_memory(device: &Path) -> bool {
    node_at(device).is_some_and(|node| node.is_persistent_memory())
}

/// Whether what is written to a block device is there after a power cut, as far as can be known.
#[must_use]
pub fn is_kept(device: &Path) -> bool {
    node_at(device).is_some_and(|node| node.not_kept(this()).is_none())
}

/// Why what is written to files in a directory may be gone with the power, as far as can be known:
/// nothing is known of a file system without a block device of its own, but for those in memory.
#[must_use]
pub fn why_not_kept(directory: &Path) -> Option<String> {
    if crate::memory::has_path(directory) {
        return Some("its file system is in memory".into());
    }
    let found = std::fs::metadata(directory).ok()?;
    Node::of(this(), found.dev())?.not_kept(this())
}

fn node_at(device: &Path) -> Option<Node> {
    let found = std::fs::metadata(device).ok()?;
    found.file_type().is_block_device().then(|| Node::of(this(), found.rdev()))?
}

/// The first `bytes` of a block device, past the kernel's copy; fewer of a shorter one. A device
/// that hangs holds up who calls this, whom not even a kill ends then.
///
/// # Errors
/// The kernel's; also when the device is suspended or gone, by what the kernel says.
pub fn read_begin(device: &Path, bytes: usize) -> io::Result<Vec<u8>> {
    if node_at(device).is_some_and(|node| node.is_stopped()) {
        return Err(io::Error::other("it is suspended, or gone"));
    }
    let file = match open_with(device, OFlags::DIRECT) {
        Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => open_to_read(device)?,
        other => other?,
    };
    let whole = bytes.next_multiple_of(BLOCK as usize);
    let mut space = vec![0; whole + BLOCK as usize];
    let skip = space.as_ptr().align_offset(BLOCK as usize);
    let into = &mut space[skip..skip + whole];
    let mut had = 0;
    while had < whole {
        match file.read_at(&mut into[had..], had as u64) {
            Ok(0) => break,
            Ok(n) => had += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(into[..had.min(bytes)].to_vec())
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
    open_with(path, OFlags::empty())
}

fn open_with(path: &Path, more: OFlags) -> io::Result<File> {
    let careful = more | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let flags = careful.bits().cast_signed();
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

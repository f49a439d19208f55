//! Opens a backing: checks what it is, locks it, sizes it, reserves address space and maps it; and
//! grows it.
//!
//! Invariants: a file made by a call that fails is gone again, one lengthened by it has its old
//! length again; nothing is changed before the lock is held; `MAP_SYNC` is demanded of the kernel
//! for fsdax, never assumed.
//! Deliberately absent: zeroing. A new file reads as zeroes, an existing one as it was left.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::faults::Registered;
use crate::memory::{Mapped, Memory};
use crate::process::CloseOnFork;
use crate::report::{HugePages, Report};
use crate::sysfs::{self, DaxDevice, SYSFS};
use crate::{Access, Error, FRAME, OpenOptions, kernel::Kernel};

const HUGE: u64 = 2 << 20;

/// What `open` found and made.
pub(crate) struct Opened {
    pub(crate) memory: Memory,
    pub(crate) kernel: Kernel,
    pub(crate) report: Report,
    pub(crate) max_len: u64,
}

/// Where the backing is: the name in a directory that is held open, so that no part of a path is
/// asked twice.
struct Place<'a> {
    path: &'a Path,
    directory: Arc<OwnedFd>,
    name: &'a OsStr,
}

impl<'a> Place<'a> {
    fn find(path: &'a Path, options: &OpenOptions) -> Result<Self, Error> {
        let Some(name) = path.file_name() else {
            return Err(open_error(path, Errno::ISDIR.into()));
        };
        let directory = match &options.directory {
            Some(directory) => directory.clone(),
            None => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let opened =
                    rustix::fs::open(parent.unwrap_or(Path::new(".")), flags, Mode::empty());
                Arc::new(opened.map_err(|errno| open_error(path, errno.into()))?)
            }
        };
        Ok(Self { path, directory, name })
    }

    /// Removes the name if it is `file`'s, and not of what somebody has put there since.
    fn remove(&self, file: &File) -> rustix::io::Result<()> {
        let now = rustix::fs::statat(&*self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW)?;
        let made = rustix::fs::fstat(file)?;
        if (now.st_dev, now.st_ino) == (made.st_dev, made.st_ino) {
            rustix::fs::unlinkat(&*self.directory, self.name, AtFlags::empty())?;
        }
        Ok(())
    }

    /// Makes the name durable.
    fn sync(&self) -> rustix::io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::fsync(rustix::fs::openat(&*self.directory, ".", flags, Mode::empty())?)
    }
}

/// Puts a file back as it was unless the open succeeds.
struct Undo<'a> {
    /// Of a file that was made.
    created: Option<&'a Place<'a>>,
    file: &'a File,
    old_len: u64,
    armed: bool,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        // Best effort: the caller gets the first error, which explains more than one from here
        // would.
        if let Some(place) = self.created {
            let _ = place.remove(self.file);
        } else if self.file.metadata().is_ok_and(|now| now.len() > self.old_len) {
            let _ = self.file.set_len(self.old_len);
        }
    }
}

/// What sysfs says of a DAX device; nothing of a file, which is none.
fn device(
    sysfs: &Path,
    path: &Path,
    metadata: &std::fs::Metadata,
) -> Result<Option<DaxDevice>, Error> {
    if metadata.file_type().is_char_device() {
        DaxDevice::find(sysfs, path, metadata.rdev()).map(Some)
    } else if metadata.is_file() {
        Ok(None)
    } else {
        Err(not_mappable(path, metadata))
    }
}

/// How to access what was found: as was asked for, and a DAX device as one.
fn access_to(path: &Path, asked: Access, device: Option<&DaxDevice>) -> Result<Access, Error> {
    let access = match (asked, device) {
        (Access::Dax, Some(_)) => Access::DevDax,
        (Access::DevDax, None) => {
            return Err(Error::NotDevDax { path: path.to_owned(), found: "an ordinary file" });
        }
        (access, _) => access,
    };
    if access == Access::DevDax && device.is_some_and(|device| !device.persistent) {
        return Err(Error::NotPersistent { path: path.to_owned() });
    }
    Ok(access)
}

/// The length to map, and the maximum, of what has `found` bytes.
fn lengths(
    path: &Path,
    options: &OpenOptions,
    found: u64,
    device: Option<&DaxDevice>,
) -> Result<(u64, u64), Error> {
    let len = match options.len {
        0 if !options.create => found / FRAME as u64 * FRAME as u64,
        len => len,
    };
    let max_len = options.max_len.max(len);
    check_len(path, len, max_len)?;
    if found < len && (device.is_some() || !options.create) {
        return Err(Error::TooShort { path: path.to_owned(), found, wanted: len });
    }
    Ok((len, device.map_or(max_len, |device| max_len.min(device.len))))
}

/// Opens and maps `path`.
pub(crate) fn open(path: &Path, options: &OpenOptions) -> Result<Opened, Error> {
    let sysfs = Path::new(SYSFS);
    let place = Place::find(path, options)?;
    let (file, created) = open_file(&place, options)?;
    // Before the lock, of which a child must have no part.
    let _kept = CloseOnFork::new(file.as_fd());
    let metadata =
        file.metadata().map_err(|source| io_error("reading the metadata of", path, source))?;
    if let Some(wanted) = options.owner {
        only_of(wanted, path, &metadata)?;
    }
    let device = device(sysfs, path, &metadata)?;
    let access = access_to(path, options.access, device.as_ref())?;
    lock(path, &file)?;
    let created = created.then_some(&place);
    let mut undo = Undo { created, file: &file, old_len: metadata.len(), armed: device.is_none() };

    let found = device.as_ref().map_or(metadata.len(), |device| device.len);
    let (len, max_len) = lengths(path, options, found, device.as_ref())?;
    let kernel = Kernel::detect(access, sysfs::domain(sysfs, access));
    if kernel.flush_is_unknown() && matches!(access, Access::Dax | Access::DevDax) {
        return Err(Error::NoFlush { path: path.to_owned(), processor: std::env::consts::ARCH });
    }
    if device.is_none() {
        lengthen(path, &file, found, len, options.preallocate)?;
    }

    let unit = device.as_ref().map_or(FRAME as u64, |device| device.align);
    let (reserved_at, reserved_len, base) = reserve(path, max_len, unit)?;
    let device_len = device.as_ref().map(|device| device.len);
    let copy = file
        .try_clone()
        .map_err(|source| io_error("duplicating the descriptor of", path, source))?;
    let mapped = Mapped {
        close_on_fork: CloseOnFork::new(copy.as_fd()),
        file: copy,
        reserved_at,
        reserved_len,
        sync: access == Access::Dax,
        unit,
        preallocate: options.preallocate,
        device_len,
        huge_pages: options.huge_pages,
        prefault: options.prefault,
        in_memory: matches!(access, Access::Dax | Access::DevDax)
            || magic(&file) == Some(TMPFS_MAGIC),
        registered: Registered::enter(base.as_ptr(), max_len as usize, path),
    };
    // From here on dropping `memory` undoes the reservation.
    let memory = Memory::mapped(base, mapped);
    let mapped = memory.as_mapped().expect("BUG: just made as mapped");
    map_range(path, base, mapped, 0, len)?;
    if access == Access::Dax {
        // `MAP_SYNC` covers the blocks, not the length and the name.
        sync_length(path, &file)?;
        place.sync().map_err(|errno| io_error("syncing the directory of", path, errno.into()))?;
    }
    undo.armed = false;
    drop(undo);

    let report = Report {
        access,
        persistent: matches!(access, Access::Dax | Access::DevDax),
        emulated: access == Access::Emulated,
        instruction: kernel.instruction(),
        domain: sysfs::domain(sysfs, access),
        nontemporal: kernel.nontemporal(),
        huge_pages: huge_pages(sysfs, access, &file, options.huge_pages, len, device.as_ref()),
        path: path.to_owned(),
        len,
    };
    Ok(Opened { memory, kernel, report, max_len })
}

/// Makes the backing hold and map `new_len` bytes. The caller holds the growth lock and has checked
/// the maximum.
pub(crate) fn grow(path: &Path, memory: &Memory, old_len: u64, new_len: u64) -> Result<(), Error> {
    let Some(mapped) = memory.as_mapped() else { return Ok(()) };
    match mapped.device_len {
        Some(found) if new_len > found => {
            return Err(Error::TooShort { path: path.to_owned(), found, wanted: new_len });
        }
        Some(_) => {}
        None => {
            let found = mapped
                .file
                .metadata()
                .map_err(|source| io_error("reading the metadata of", path, source))?
                .len();
            let mut undo = Undo { created: None, file: &mapped.file, old_len: found, armed: true };
            lengthen(path, &mapped.file, found, new_len, mapped.preallocate)?;
            if mapped.sync {
                sync_length(path, &mapped.file)?;
            }
            undo.armed = false;
        }
    }
    let base = NonNull::new(memory.base()).expect("BUG: the base of a mapping is not null");
    let from = old_len.next_multiple_of(mapped.unit);
    let to = new_len.next_multiple_of(mapped.unit);
    if from < to { map_range(path, base, mapped, from, to - from) } else { Ok(()) }
}

fn open_file(place: &Place<'_>, options: &OpenOptions) -> Result<(File, bool), Error> {
    let attempt = |new: OFlags| {
        // Not through a link: who may write in the directory could swap one in after somebody has
        // looked at the file.
        let flags =
            OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&*place.directory, place.name, flags | new, Mode::RUSR | Mode::WUSR)
            .map(File::from)
    };
    if options.create && options.only_new {
        let made = attempt(OFlags::CREATE | OFlags::EXCL);
        return made.map(|file| (file, true)).map_err(|errno| open_error(place.path, errno.into()));
    }
    // Existing first, so that a file made here is known to be ours to remove; again when both tries
    // lose a race.
    for _ in 0..16 {
        match attempt(OFlags::empty()) {
            Ok(file) => return Ok((file, false)),
            Err(Errno::NOENT) if options.create => {}
            Err(errno) => return Err(open_error(place.path, errno.into())),
        }
        match attempt(OFlags::CREATE | OFlags::EXCL) {
            Ok(file) => return Ok((file, true)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(open_error(place.path, errno.into())),
        }
    }
    Err(Error::Owned { path: place.path.to_owned() })
}

/// Refuses what somebody besides root and the user `wanted` can change.
fn only_of(wanted: u32, path: &Path, metadata: &std::fs::Metadata) -> Result<(), Error> {
    // The group of a device is the system's own.
    let others = if metadata.is_file() { 0o022 } else { 0o002 };
    let found = if metadata.uid() != wanted && metadata.uid() != 0 {
        format!("belongs to user {}", metadata.uid())
    } else if metadata.mode() & others != 0 {
        format!("may be written by others (mode {:04o})", metadata.mode() & 0o7777)
    } else if metadata.is_file() && metadata.nlink() != 1 {
        "has another name".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::OfAnother { path: path.to_owned(), found, wanted })
}

fn open_error(path: &Path, source: io::Error) -> Error {
    let path = path.to_owned();
    match Errno::from_io_error(&source) {
        Some(Errno::NOENT) => Error::Missing { path },
        Some(Errno::ISDIR) => {
            Error::NotMappable { path, found: "a directory", remedy: "give a file in it" }
        }
        Some(Errno::ACCESS | Errno::PERM | Errno::ROFS) => Error::ReadOnly { path, source },
        Some(Errno::NOSPC | Errno::DQUOT) => Error::NoSpace { path, wanted: 0, source },
        Some(Errno::LOOP) => Error::NotMappable {
            path,
            found: "a symbolic link",
            remedy: "give the file that it leads to",
        },
        Some(Errno::NXIO | Errno::NODEV) => Error::NotMappable {
            path,
            found: "a socket or a device without a driver",
            remedy: "give a file or a DAX character device",
        },
        _ => Error::Io { action: "opening", path, source },
    }
}

fn not_mappable(path: &Path, metadata: &std::fs::Metadata) -> Error {
    let kind = metadata.file_type();
    let (found, remedy) = if kind.is_block_device() {
        (
            "a block device",
            "give a file on a DAX file system on it, or a devdax device. A namespace that is raw \
             or sector carries neither: change its mode, which \
             erases it, with `ndctl create-namespace -f -e NAMESPACE --mode=fsdax` (or devdax; \
             `ndctl list -N` names it)",
        )
    } else if kind.is_fifo() {
        ("a FIFO", "give a file or a DAX character device")
    } else {
        ("neither a file nor a device", "give a file or a DAX character device")
    };
    Error::NotMappable { path: path.to_owned(), found, remedy }
}

fn lock(path: &Path, file: &File) -> Result<(), Error> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        // Who made it, and failed, may have removed it between our opening and our lock.
        Ok(()) if rustix::fs::fstat(file).is_ok_and(|found| found.st_nlink == 0) => {
            Err(Error::Missing { path: path.to_owned() })
        }
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(Error::Owned { path: path.to_owned() }),
        Err(errno) => Err(io_error("locking", path, errno.into())),
    }
}

fn check_len(path: &Path, len: u64, max_len: u64) -> Result<(), Error> {
    let bad = |reason| Err(Error::BadLength { path: path.to_owned(), len, reason });
    if len == 0 {
        return bad("nothing to map; give a length of at least 4096");
    }
    if !len.is_multiple_of(FRAME as u64) {
        return bad("not a multiple of 4096");
    }
    if usize::try_from(max_len).map_or(true, |max_len| max_len > isize::MAX as usize / 2) {
        return bad("the maximum length is beyond the address space");
    }
    Ok(())
}

/// Gives the file `len` bytes, with blocks behind all of them when `preallocate`.
fn lengthen(
    path: &Path,
    file: &File,
    found: u64,
    len: u64,
    preallocate: bool,
) -> Result<(), Error> {
    let done = if preallocate && beyond_free(file, len) {
        Err(Errno::NOSPC)
    } else if preallocate {
        loop {
            match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len) {
                Err(Errno::INTR) => {}
                other => break other,
            }
        }
    } else if found < len {
        rustix::fs::ftruncate(file, len)
    } else {
        Ok(())
    };
    match done {
        Ok(()) => Ok(()),
        Err(errno @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
            Err(Error::NoSpace { path: path.to_owned(), wanted: len, source: errno.into() })
        }
        Err(errno) => Err(io_error("allocating blocks for", path, errno.into())),
    }
}

/// Whether more blocks are missing than the file system has free. ext4 takes all there are before
/// it refuses, and meanwhile everybody else's writes there fail.
fn beyond_free(file: &File, len: u64) -> bool {
    let (Ok(metadata), Ok(space)) = (file.metadata(), rustix::fs::fstatvfs(file)) else {
        return false;
    };
    let missing = len.saturating_sub(metadata.blocks() * 512);
    let free = if rustix::process::geteuid().is_root() { space.f_bfree } else { space.f_bavail };
    // A tmpfs without a limit counts no blocks.
    space.f_blocks > 0 && missing > free.saturating_mul(space.f_frsize)
}

fn sync_length(path: &Path, file: &File) -> Result<(), Error> {
    file.sync_all().map_err(|source| io_error("syncing", path, source))
}

/// Reserves address space for `max_len` bytes at a boundary that allows huge pages.
fn reserve(
    path: &Path,
    max_len: u64,
    unit: u64,
) -> Result<(NonNull<u8>, usize, NonNull<u8>), Error> {
    let align = unit.max(HUGE) as usize;
    let whole = (max_len as usize).next_multiple_of(unit as usize) + align;
    // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that
    // exists.
    let at = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            whole,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    };
    let at = at.map_err(|errno| Error::AddressSpace {
        path: path.to_owned(),
        wanted: whole as u64,
        source: errno.into(),
    })?;
    let at = NonNull::new(at.cast::<u8>()).expect("BUG: mmap returned null");
    let skip = at.as_ptr().align_offset(align);
    // SAFETY: `skip` is less than `align`, which was added to the length.
    let base = unsafe { at.add(skip) };
    Ok((at, whole, base))
}

/// Maps `len` bytes of the file at offset `at` over the reservation.
fn map_range(
    path: &Path,
    base: NonNull<u8>,
    mapped: &Mapped,
    at: u64,
    len: u64,
) -> Result<(), Error> {
    let len = len.next_multiple_of(mapped.unit) as usize;
    let kind =
        if mapped.sync { MapFlags::SHARED_VALIDATE | MapFlags::SYNC } else { MapFlags::SHARED };
    // SAFETY: inside the reservation (the callers keep `at + len` at or below the maximum, rounded
    // to the unit), which nobody but this mapping uses; the part replaced has no pages yet, so no
    // reference to it exists.
    let done = unsafe {
        rustix::mm::mmap(
            base.add(at as usize).as_ptr().cast(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            kind | MapFlags::FIXED,
            &mapped.file,
            at,
        )
    };
    match done {
        Ok(_) => {}
        Err(Errno::OPNOTSUPP | Errno::INVAL) if mapped.sync => {
            return Err(Error::NotDax {
                path: path.to_owned(),
                file_system: file_system(&mapped.file),
            });
        }
        Err(errno @ Errno::NOMEM) => {
            return Err(Error::AddressSpace {
                path: path.to_owned(),
                wanted: len as u64,
                source: errno.into(),
            });
        }
        Err(errno) => return Err(io_error("mapping", path, errno.into())),
    }
    // All are advice: a kernel that does not take it leaves a mapping that works.
    let start = base.as_ptr().wrapping_add(at as usize).cast();
    if !crate::process::forks_are_unseen() {
        // A child that gets here past every check ends with a fault, and does not write to its
        // parent's medium.
        // SAFETY: the range was mapped just above; the advice changes only what a child gets.
        let _ = unsafe { rustix::mm::madvise(start, len, Advice::LinuxDontFork) };
    }
    if mapped.huge_pages {
        // SAFETY: the range was mapped just above; the advice does not change contents.
        let _ = unsafe { rustix::mm::madvise(start, len, Advice::LinuxHugepage) };
    }
    if mapped.prefault {
        // SAFETY: as above; populating for write leaves contents as they are.
        let _ = unsafe { rustix::mm::madvise(start, len, Advice::LinuxPopulateWrite) };
    }
    Ok(())
}

pub(crate) fn io_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    Error::Io { action, path: path.to_owned(), source }
}

const TMPFS_MAGIC: u64 = 0x0102_1994;

fn magic(file: &File) -> Option<u64> {
    // The type of the field differs between architectures.
    #[allow(clippy::unnecessary_cast, reason = "the field's type differs between architectures")]
    rustix::fs::fstatfs(file).ok().map(|found| found.f_type as u64)
}

/// The file system's usual name, or its number.
fn file_system(file: &File) -> String {
    match magic(file) {
        Some(TMPFS_MAGIC) => "tmpfs".to_owned(),
        Some(0xEF53) => "ext4 (mounted without DAX)".to_owned(),
        Some(0x5846_5342) => "XFS (mounted without DAX)".to_owned(),
        Some(0x9123_683E) => "btrfs".to_owned(),
        Some(0x794c_7630) => "overlayfs".to_owned(),
        Some(0x6969) => "NFS".to_owned(),
        Some(0x2FC1_2FC1) => "ZFS".to_owned(),
        Some(0x6573_5546) => "FUSE".to_owned(),
        Some(other) => format!("a file system of type {other:#x}"),
        None => "an unknown file system".to_owned(),
    }
}

fn huge_pages(
    sysfs: &Path,
    access: Access,
    file: &File,
    asked: bool,
    len: u64,
    device: Option<&DaxDevice>,
) -> HugePages {
    if let Some(device) = device {
        return if device.align >= HUGE { HugePages::Device(device.align) } else { HugePages::No };
    }
    if access == Access::Dax {
        return if len >= HUGE { HugePages::Aligned } else { HugePages::No };
    }
    if asked
        && sysfs::transparent_huge_pages(sysfs)
        && magic(file) == Some(TMPFS_MAGIC)
        && len >= HUGE
    {
        HugePages::Transparent
    } else {
        HugePages::No
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that fails here says where")]

    use super::*;

    #[test]
    fn what_somebody_put_in_the_place_of_a_file_made_here_is_not_taken_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tier");
        let options =
            OpenOptions { create: true, ..OpenOptions::new(Access::Emulated, FRAME as u64) };
        for exchanged in [true, false] {
            let place = Place::find(&path, &options).unwrap();
            let (file, created) = open_file(&place, &options).unwrap();
            assert!(created);
            if exchanged {
                std::fs::rename(&path, directory.path().join("ours")).unwrap();
                std::fs::write(&path, "another's").unwrap();
            }
            drop(Undo { created: Some(&place), file: &file, old_len: 0, armed: true });
            assert_eq!(path.exists(), exchanged);
            let _ = std::fs::remove_file(&path);
        }
    }

    #[test]
    fn a_file_that_lost_its_name_before_it_was_locked_is_not_used() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("tier");
        let file = File::create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let refused = lock(&path, &file).unwrap_err();
        assert!(matches!(refused, Error::Missing { .. }), "{refused}");
    }

    #[test]
    fn only_a_new_file_is_made_where_that_is_asked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tier");
        let options = OpenOptions {
            create: true,
            only_new: true,
            ..OpenOptions::new(Access::Emulated, FRAME as u64)
        };
        std::fs::write(&path, "another's").unwrap();
        assert!(open(&path, &options).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"another's");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(directory.path().join("elsewhere"), &path).unwrap();
        assert!(open(&path, &options).is_err());
        assert!(!directory.path().join("elsewhere").exists());
        std::fs::remove_file(&path).unwrap();
        open(&path, &options).unwrap();
    }

    #[test]
    fn a_directory_that_is_held_is_not_looked_for_again() {
        let scratch = tempfile::tempdir().unwrap();
        let (fast, aside) = (scratch.path().join("fast"), scratch.path().join("aside"));
        std::fs::create_dir(&fast).unwrap();
        let held = Arc::new(OwnedFd::from(File::open(&fast).unwrap()));
        std::fs::rename(&fast, &aside).unwrap();
        std::fs::create_dir(&fast).unwrap();
        let options = OpenOptions {
            create: true,
            directory: Some(held),
            ..OpenOptions::new(Access::Emulated, FRAME as u64)
        };
        open(&fast.join("tier"), &options).unwrap();
        assert!(aside.join("tier").exists() && !fast.join("tier").exists());
    }

    #[test]
    fn what_a_file_system_has_not_free_is_not_tried() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tier");
        let file = File::create(&path).unwrap();
        assert!(!beyond_free(&file, FRAME as u64));
        if rustix::fs::fstatvfs(&file).unwrap().f_blocks == 0 {
            eprintln!(
                "skipped: more than is free, because this file system does not say how much that is"
            );
            return;
        }
        assert!(beyond_free(&file, 1 << 60));
        assert!(matches!(lengthen(&path, &file, 0, 1 << 60, true), Err(Error::NoSpace { .. })));
        // What the file has already is not missing.
        file.set_len(1 << 20).unwrap();
        lengthen(&path, &file, 1 << 20, 1 << 20, true).unwrap();
        assert!(!beyond_free(&file, 1 << 20));
    }
}

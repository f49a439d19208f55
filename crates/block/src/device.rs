//! A device of sectors: the checks and the state that files and the simulated device share.

use std::ffi::OsStr;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tiersmith_dir::Dir;

use crate::file::DeviceFile;
use crate::raw::Raw;
use crate::syncing::{Failed, Syncing};
use crate::{Error, OpenOptions, Report, Sector, SectorSize, Sectors};

/// A device of sectors. All calls may come from any number of threads.
///
/// Two writes to one sector at the same time leave either; a read beside a write of the same sector
/// may find a mixture, since only a power cut and not a reader finds sectors whole.
#[derive(Debug)]
pub struct Device {
    path: PathBuf,
    medium: Medium,
    sector_size: SectorSize,
    len: AtomicU64,
    growing: Mutex<()>,
    syncing: Syncing,
}

/// What a device is made of.
#[derive(Debug)]
enum Medium {
    File(DeviceFile),
    #[cfg(feature = "testing")]
    Simulated(tiersmith_pmem::sim::Device),
}

impl Device {
    /// Opens the file `name` in `dir` as a device, and locks it: nobody else opens it as one
    /// meanwhile. Sectors that the file has not written yet are written with zeros first.
    ///
    /// # Durability
    /// The file's name, its length and its zeros are durable on return, and what others had written
    /// to it.
    ///
    /// # Errors
    /// When the file is missing, of another account, in use or too short, or has no room. A file
    /// that this call made is gone again then, and one that it lengthened has its old length.
    pub fn open(dir: &Dir, name: impl AsRef<OsStr>, options: &OpenOptions) -> Result<Self, Error> {
        let name = name.as_ref();
        let (file, len) = DeviceFile::open(dir, name, options)?;
        Ok(Self::over(dir.path_of(name), Medium::File(file), options.sector_size, len))
    }

    /// Opens the block device `name` in `dir` for this process alone, whole but for its last MiB.
    /// `owner` as in [`OpenOptions::owner`], but that a group may write to it. Nothing is written,
    /// whatever is on it: [`Device::raw`] tells.
    ///
    /// # Errors
    /// When it is not there, not permitted, another account's, mounted or held by somebody,
    /// read-only, too small, or has sectors of more than 4096 bytes.
    pub fn open_raw(dir: &Dir, name: impl AsRef<OsStr>, owner: Option<u32>) -> Result<Self, Error> {
        let name = name.as_ref();
        let file = DeviceFile::open_raw(dir, name, owner)?;
        let usable = file.raw().map_or(0, |raw| raw.device.usable());
        // Whole sectors of either size.
        let size = SectorSize::B4096;
        let len = Sectors::in_bytes(usable, size);
        Ok(Self::over(dir.path_of(name), Medium::File(file), size, len))
    }

    /// What there is to know of a block device; `None` of anything else.
    #[must_use]
    pub fn raw(&self) -> Option<Raw<'_>> {
        match &self.medium {
            Medium::File(file) => file.raw(),
            #[cfg(feature = "testing")]
            Medium::Simulated(_) => None,
        }
    }

    /// A device of the simulated machine.
    ///
    /// # Durability
    /// As the model in `tiersmith_pmem::sim` has it.
    ///
    /// # Panics
    /// When the device has sectors of another size than [`SectorSize`] knows.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn simulated(device: tiersmith_pmem::sim::Device) -> Self {
        let sizes = [SectorSize::B512, SectorSize::B4096];
        let size = sizes.into_iter().find(|size| size.bytes() == device.sector_size());
        let size = size.expect("BUG: a simulated device has sectors of 512 or 4096 bytes");
        let len = Sectors::in_bytes(device.len(), size);
        Self::over(PathBuf::from("simulated"), Medium::Simulated(device), size, len)
    }

    fn over(path: PathBuf, medium: Medium, sector_size: SectorSize, len: Sectors) -> Self {
        let len = AtomicU64::new(len.0);
        Self {
            path,
            medium,
            sector_size,
            len,
            growing: Mutex::new(()),
            syncing: Syncing::default(),
        }
    }

    /// Where it is, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, whatever has its name by now; `None` of a simulated device.
    #[must_use]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        match &self.medium {
            Medium::File(file) => Some(file.as_fd()),
            #[cfg(feature = "testing")]
            Medium::Simulated(_) => None,
        }
    }

    /// How many bytes are written as one.
    #[must_use]
    pub fn sector_size(&self) -> SectorSize {
        self.sector_size
    }

    /// How long it is now.
    #[must_use]
    pub fn sectors(&self) -> Sectors {
        Sectors(self.len.load(Ordering::Acquire))
    }

    /// What it is.
    #[must_use]
    pub fn report(&self) -> Report {
        let (kind, survives_power_cut) = match &self.medium {
            Medium::File(file) if file.in_memory() => ("a file on a file system in memory", false),
            Medium::File(file) if file.raw().is_some() => ("a block device", true),
            Medium::File(_) => ("a file", true),
            #[cfg(feature = "testing")]
            Medium::Simulated(_) => ("a simulated device", true),
        };
        let (path, len) = (self.path.clone(), self.sectors());
        Report { path, kind, sector_size: self.sector_size, len, survives_power_cut }
    }

    /// Reads whole sectors: what the newest writes left, synced or not. After a sync that failed,
    /// what was written since the last good one reads as it was before or as written.
    ///
    /// # Errors
    /// [`Error::NotSectors`], and [`Error::Unreadable`] when the medium lost them.
    pub fn read(&self, at: Sector, buffer: &mut [u8]) -> Result<(), Error> {
        let range = self.range(at, buffer.len())?;
        let read = match &self.medium {
            Medium::File(file) => file.read(range.start, buffer),
            #[cfg(feature = "testing")]
            Medium::Simulated(device) => device.read(range.start, buffer),
        };
        read.map_err(|source| Error::Unreadable { path: self.path.clone(), range, source })
    }

    /// [`Device::read`] past the kernel's copy of what is synced, so that the medium itself is
    /// read; where the file system or its sectors do not allow that, like any other read.
    ///
    /// # Errors
    /// As [`Device::read`].
    pub fn read_afresh(&self, at: Sector, buffer: &mut [u8]) -> Result<(), Error> {
        let range = self.range(at, buffer.len())?;
        let read = match &self.medium {
            Medium::File(file) => file.read_afresh(range.start, buffer),
            #[cfg(feature = "testing")]
            Medium::Simulated(device) => device.read(range.start, buffer),
        };
        read.map_err(|source| Error::Unreadable { path: self.path.clone(), range, source })
    }

    /// Writes whole sectors.
    ///
    /// # Durability
    /// None before a [`Device::sync`] that is called after this returned. Until then each sector is
    /// old or new after a power cut, whatever became of the others. So it is when this fails.
    ///
    /// # Errors
    /// [`Error::NotSectors`]; [`Error::Unwritten`] when the medium refuses; [`Error::Lost`] when a
    /// sync has failed.
    pub fn write(&self, at: Sector, bytes: &[u8]) -> Result<(), Error> {
        let range = self.range(at, bytes.len())?;
        self.syncing.check().map_err(|failed| self.lost(&failed))?;
        let write = match &self.medium {
            Medium::File(file) => file.write(range.start, bytes),
            #[cfg(feature = "testing")]
            Medium::Simulated(device) => device.write(range.start, bytes),
        };
        // Also when it failed: a part may have arrived, and a sync that fails may lose that.
        let told = self.syncing.written(range.clone());
        write.map_err(|source| Error::Unwritten { path: self.path.clone(), range, source })?;
        told.map_err(|failed| self.lost(&failed))
    }

    /// Makes durable every write that had returned when this was called. Callers at the same time
    /// share one sync of the medium.
    ///
    /// # Durability
    /// On success. After a failure what was written since the last good sync may be there or not.
    ///
    /// # Errors
    /// [`Error::Lost`], now and in every later call.
    pub fn sync(&self) -> Result<(), Error> {
        self.syncing.sync(|| self.sync_medium()).map_err(|failed| self.lost(&failed))
    }

    /// Lengthens it to `len` sectors; the new ones are zeros. A length that it has changes nothing.
    ///
    /// # Durability
    /// The new length and its zeros are durable on return, and so is every write that had returned
    /// before.
    ///
    /// # Errors
    /// [`Error::BadLength`], [`Error::NoSpace`] and [`Error::Io`], which leave it as it was;
    /// [`Error::Lost`] when the sync failed.
    pub fn grow(&self, len: Sectors) -> Result<(), Error> {
        let bytes = self.bytes(len)?;
        let _growing = self.growing.lock();
        if len <= self.sectors() {
            return Ok(());
        }
        self.syncing.check().map_err(|failed| self.lost(&failed))?;
        match &self.medium {
            Medium::File(file) => file.grow(&self.path, self.bytes(self.sectors())?, bytes)?,
            #[cfg(feature = "testing")]
            Medium::Simulated(device) => device.grow(bytes),
        }
        self.sync()?;
        self.len.store(len.0, Ordering::Release);
        Ok(())
    }

    fn sync_medium(&self) -> io::Result<()> {
        match &self.medium {
            Medium::File(file) => file.sync(),
            #[cfg(feature = "testing")]
            Medium::Simulated(device) => device.sync(),
        }
    }

    fn bytes(&self, len: Sectors) -> Result<u64, Error> {
        let (path, size) = (self.path.clone(), self.sector_size);
        len.bytes(size).ok_or(Error::BadLength { path, sectors: len.0, size })
    }

    /// The bytes of whole sectors.
    fn range(&self, at: Sector, len: usize) -> Result<Range<u64>, Error> {
        let (size, sectors) = (self.sector_size, self.sectors());
        let end = self.bytes(sectors)?;
        let range = at
            .range(len, size)
            .filter(|range| range.end <= end && len.is_multiple_of(size.bytes()));
        let path = self.path.clone();
        range.ok_or(Error::NotSectors { path, at, len, sectors: sectors.0, size })
    }

    fn lost(&self, failed: &Failed) -> Error {
        Error::Lost {
            path: self.path.clone(),
            range: failed.range.clone(),
            source: failed.source(),
        }
    }
}

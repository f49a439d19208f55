//! Measures a directory through a file in it: with direct I/O where the file system takes it, else
//! through the page cache, and says which.
//!
//! A write is durable when `fdatasync` after it has returned; with direct I/O too, since a device
//! may have a cache of its own.
//!
//! **Invariants**: the file is made in a directory that is held, and opened by its name only then;
//! it is removed at the end, if the name is still its own; a device is opened to be read only.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use tiersmith_dir::{Dir, Found};

use super::beside::{Beside, Checking, Fio};
use super::{AREA_BYTES, Measurement, Operation, Place, Queue, SIZES, What, timed};
use crate::error::{During, Error, Result};
use crate::place::{FileSystem, Leftovers, bytes_free};

/// What direct I/O wants buffers and offsets to be multiples of, at most.
const ALIGNMENT: usize = 4096;

/// Measures a directory for `seconds` per figure, with as many operations at once as `queue` says.
///
/// # Errors
/// A directory that cannot be written or has too little room; [`Error::Interrupted`].
pub fn measure(
    dir: &Path,
    seconds: f64,
    queue: Queue,
    leftovers: &Leftovers,
    progress: &dyn Fn(&str),
) -> Result<Place> {
    measure_beside(dir, seconds, queue, leftovers, progress, None)
}

/// [`measure`], with fio beside each measurement, or the reason why there is none.
///
/// # Errors
/// As [`measure`]; none if fio alone fails.
pub fn measure_beside(
    dir: &Path,
    seconds: f64,
    queue: Queue,
    leftovers: &Leftovers,
    progress: &dyn Fn(&str),
    fio: Option<&std::result::Result<Fio, String>>,
) -> Result<Place> {
    queue.check()?;
    let place = |reason: String| Error::Place { what: "probe", path: dir.into(), reason };
    if !dir.is_dir() {
        return Err(place("it is not a directory; give one on the storage to measure".into()));
    }
    if bytes_free(dir) < 2 * AREA_BYTES {
        return Err(place(format!(
            "{} MiB must be free; free space there",
            (2 * AREA_BYTES) >> 20
        )));
    }
    let area = Area::make(dir, leftovers);
    let mut checking = match fio {
        Some(Ok(fio)) => Some(Checking::new(fio, queue, leftovers)),
        _ => None,
    };
    let measured =
        area.and_then(|area| area.all(seconds, queue, leftovers, progress, checking.as_mut()));
    leftovers.clean();
    let (direct, measurements) = measured?;
    let is_on = FileSystem::of(&dir.canonicalize().during("find", dir)?);
    let mut notes = Vec::new();
    if !direct {
        notes.push(
            "The file system takes no direct I/O: reads are answered by the page cache, that is, \
             by memory."
                .to_owned(),
        );
    } else if measurements.iter().any(|m| !m.how.starts_with("direct")) {
        notes.push(
            "512-byte operations go through the page cache: direct I/O wants larger ones here."
                .to_owned(),
        );
    }
    Ok(Place {
        path: dir.display().to_string(),
        access_mode: if is_on.in_memory() { "memory" } else { "disk" }.into(),
        persistent: !is_on.in_memory(),
        is_on: is_on.to_string(),
        notes,
        measurements,
        cross_check: match fio {
            Some(Err(why)) => Some(Beside::skipped(why)),
            _ => checking.map(Checking::end),
        },
    })
}

/// Measures reads of a block device, all over it. It is opened to be read only: what is on it is
/// somebody's. The caller knows its access mode, and whether it is persistent.
///
/// # Errors
/// No block device, or one that this user may not read; [`Error::Interrupted`].
pub fn measure_device(
    device: &Path,
    (access_mode, persistent): (&str, bool),
    seconds: f64,
    queue: Queue,
    leftovers: &Leftovers,
    progress: &dyn Fn(&str),
) -> Result<Place> {
    queue.check()?;
    let open = |more: OFlags| {
        let mut options = OpenOptions::new();
        let flags = more | OFlags::NONBLOCK | OFlags::NOCTTY;
        options.read(true).custom_flags(flags.bits().cast_signed()).open(device)
    };
    let buffered = open(OFlags::empty()).during("open", device)?;
    let is_one = |file: &File| file.metadata().map(|found| found.file_type().is_block_device());
    let bytes = rustix::fs::seek(&buffered, rustix::fs::SeekFrom::End(0)).unwrap_or(0);
    if !is_one(&buffered).during("look at", device)? || bytes < AREA_BYTES / 8 {
        let reason = "it is no block device of 8 MiB or more; give one, or a directory".into();
        return Err(Error::Place { what: "probe", path: device.into(), reason });
    }
    let mut measurements = Vec::new();
    for size in SIZES {
        if leftovers.stopped() {
            return Err(Error::Interrupted);
        }
        progress(&format!("read of {size} bytes"));
        let direct = open(OFlags::DIRECT).ok();
        let direct = direct.filter(|file| file.read_at(Buffer::new(size).get(), 0).is_ok());
        let (operation, at_once) = (Operation::Read, queue.waiting());
        let how = how(direct.is_some(), operation);
        let what = What { operation, size_bytes: size, how, at_once, seconds };
        let file = direct.as_ref().unwrap_or(&buffered);
        measurements.push(one(file, &what, queue, bytes).during("measure", device)?);
    }
    Ok(Place {
        path: device.display().to_string(),
        is_on: "a block device".into(),
        access_mode: access_mode.into(),
        persistent,
        notes: vec![
            "Reads only: nothing is written to a device, because what is on it is somebody's."
                .into(),
        ],
        measurements,
        cross_check: None,
    })
}

/// The file that is measured.
struct Area {
    direct: Option<File>,
    buffered: File,
    /// For messages.
    path: PathBuf,
}

/// Bytes at a multiple of [`ALIGNMENT`], from `start`.
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    size: usize,
}

impl Buffer {
    fn new(size: usize) -> Buffer {
        let bytes = vec![0xa5u8; size + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Buffer { bytes, start, size }
    }

    fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.size]
    }
}

impl Area {
    fn make(at: &Path, leftovers: &Leftovers) -> Result<Area> {
        let dir = Dir::open(&at.canonicalize().during("find", at)?).during("open", at)?;
        let name = OsString::from(format!(".tiersmith-probe.{}", std::process::id()));
        let path = &at.join(&name);
        let make = |dir: &Dir| {
            let file = dir.make_file(&name, 0o600, None)?;
            let found = Found::of(&file)?;
            Ok::<_, io::Error>((file, found))
        };
        let buffered = leftovers.make(dir, &name, make).during("make", path)?;
        let chunk = vec![0x5a; 1 << 20];
        for at in (0..AREA_BYTES).step_by(chunk.len()) {
            buffered.write_all_at(&chunk, at).during("write", path)?;
        }
        buffered.sync_all().during("sync", path)?;
        Ok(Area { direct: direct(&buffered), buffered, path: path.into() })
    }

    /// Every figure, and whether direct I/O was possible at all.
    fn all(
        mut self,
        seconds: f64,
        queue: Queue,
        leftovers: &Leftovers,
        progress: &dyn Fn(&str),
        mut checking: Option<&mut Checking<'_>>,
    ) -> Result<(bool, Vec<Measurement>)> {
        let mut found = Vec::new();
        for size in SIZES {
            // A device of 4 KiB sectors refuses 512 bytes.
            let first =
                self.direct.take().filter(|file| file.read_at(Buffer::new(size).get(), 0).is_ok());
            for operation in Operation::ALL {
                if leftovers.stopped() {
                    return Err(Error::Interrupted);
                }
                progress(&format!("{} of {size} bytes", operation.name()));
                let file = first.as_ref().unwrap_or(&self.buffered);
                let how = how(first.is_some(), operation);
                let at_once = queue.waiting();
                let what = What { operation, size_bytes: size, how, at_once, seconds };
                let ours = one(file, &what, queue, AREA_BYTES).during("measure", &self.path)?;
                if let Some(checking) = &mut checking {
                    progress(&format!("{} of {size} bytes, by fio", operation.name()));
                    checking.after(&what, first.is_some(), &self.buffered, &ours)?;
                }
                found.push(ours);
            }
            self.direct = first.or_else(|| direct(&self.buffered));
        }
        Ok((self.direct.is_some(), found))
    }
}

/// A file that is open, once more and past the page cache: by its descriptor, since its name may be
/// another file's by now.
fn direct(file: &File) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
    options.open(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

fn how(direct: bool, operation: Operation) -> &'static str {
    match (direct, operation) {
        (true, Operation::Read) => "direct I/O",
        (true, _) => "direct I/O and fdatasync",
        (false, Operation::Read) => "page cache",
        (false, _) => "page cache and fdatasync",
    }
}

fn one(file: &File, what: &What<'_>, queue: Queue, bytes: u64) -> io::Result<Measurement> {
    let size = what.size_bytes as u64;
    let places = bytes / size;
    timed(what, |number| {
        let mut random = fastrand::Rng::with_seed(size ^ u64::from(number) << 32);
        let mut buffer = Buffer::new(what.size_bytes);
        move |n| {
            let at = random.u64(0..places) * size;
            if what.operation.reads(n, queue.reads_pct) {
                file.read_exact_at(buffer.get(), at)
            } else {
                file.write_all_at(buffer.get(), at)?;
                file.sync_data()
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_measured_at_every_size_and_the_file_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let place =
            measure(dir.path(), 0.01, Queue::default(), &Leftovers::default(), &|_| {}).unwrap();
        assert_eq!(place.measurements.len(), 9);
        assert!(
            place.measurements.iter().all(|m| m.count > 0 && m.median_ns > 0 && !m.how.is_empty())
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn as_many_operations_are_under_way_as_threads_and_depth_say() {
        let dir = tempfile::tempdir().unwrap();
        let queue = Queue { threads: 2, depth: 3, reads_pct: 50 };
        let place = measure(dir.path(), 0.02, queue, &Leftovers::default(), &|_| {}).unwrap();
        assert!(place.measurements.iter().all(|m| m.at_once == 6 && m.count >= 6), "{place:#?}");
        let none = Queue { depth: 0, ..queue };
        let refused = measure(dir.path(), 0.02, none, &Leftovers::default(), &|_| {}).unwrap_err();
        assert!(refused.to_string().contains("the setting depth"), "{refused}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_place_that_cannot_be_measured_is_refused_and_left_alone() {
        let error =
            measure(Path::new("/nowhere"), 0.01, Queue::default(), &Leftovers::default(), &|_| {})
                .unwrap_err();
        assert!(error.to_string().contains("not a directory"), "{error}");
        let leftovers = Leftovers::default();
        leftovers.stop();
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(
            measure(dir.path(), 0.01, Queue::default(), &leftovers, &|_| {}),
            Err(Error::Interrupted)
        ));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

//! Measures a directory through a file in it: with direct I/O where the file system takes it, else
//! through the page cache, and says which.
//!
//! A write is durable when `fdatasync` after it has returned; with direct I/O too, since a device
//! may have a cache of its own.
//!
//! **Invariant**: the file is noted before it is made and removed at the end.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use super::{AREA_BYTES, Measurement, Operation, Place, SIZES, is_read, timed};
use crate::error::{During, Error, Result};
use crate::place::{FileSystem, Leftovers, bytes_free};

/// What direct I/O wants buffers and offsets to be multiples of, at most.
const ALIGNMENT: usize = 4096;

/// Measures a directory for `seconds` per figure.
///
/// # Errors
/// A directory that cannot be written or has too little room; [`Error::Interrupted`].
pub fn measure(
    dir: &Path,
    seconds: f64,
    leftovers: &Leftovers,
    progress: &dyn Fn(&str),
) -> Result<Place> {
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
    let path = dir.join(format!(".tiersmith-probe.{}", std::process::id()));
    let area = Area::make(&path, leftovers);
    let measured = area.and_then(|area| area.all(seconds, leftovers, progress));
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
    })
}

/// The file that is measured.
struct Area {
    direct: Option<File>,
    buffered: File,
    /// Bytes at a multiple of [`ALIGNMENT`], from `start`.
    buffer: Vec<u8>,
    start: usize,
    path: std::path::PathBuf,
}

impl Area {
    fn make(path: &Path, leftovers: &Leftovers) -> Result<Area> {
        leftovers.note(path);
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let buffered = options.clone().create_new(true).open(path).during("make", path)?;
        let chunk = vec![0x5a; 1 << 20];
        for at in (0..AREA_BYTES).step_by(chunk.len()) {
            buffered.write_all_at(&chunk, at).during("write", path)?;
        }
        buffered.sync_all().during("sync", path)?;
        let direct = options.custom_flags(OFlags::DIRECT.bits() as i32).open(path).ok();
        let buffer = vec![0xa5u8; SIZES[2] + ALIGNMENT];
        let start = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Ok(Area { direct, buffered, buffer, start, path: path.into() })
    }

    /// Every figure, and whether direct I/O was possible at all.
    fn all(
        mut self,
        seconds: f64,
        leftovers: &Leftovers,
        progress: &dyn Fn(&str),
    ) -> Result<(bool, Vec<Measurement>)> {
        let mut found = Vec::new();
        for size in SIZES {
            // A device of 4 KiB sectors refuses 512 bytes.
            let direct = self
                .direct
                .take()
                .filter(|file| file.read_at(&mut self.buffer[self.start..][..size], 0).is_ok());
            for operation in Operation::ALL {
                if leftovers.stopped() {
                    return Err(Error::Interrupted);
                }
                progress(&format!("{} of {size} bytes", operation.name()));
                let file = direct.as_ref().unwrap_or(&self.buffered);
                let bytes = &mut self.buffer[self.start..][..size];
                let measured = one(file, direct.is_some(), operation, bytes, seconds)
                    .during("measure", &self.path)?;
                found.push(measured);
            }
            self.direct = direct.or_else(|| {
                let mut options = OpenOptions::new();
                options
                    .read(true)
                    .write(true)
                    .custom_flags(OFlags::DIRECT.bits() as i32)
                    .open(&self.path)
                    .ok()
            });
        }
        Ok((self.direct.is_some(), found))
    }
}

fn one(
    file: &File,
    direct: bool,
    operation: Operation,
    bytes: &mut [u8],
    seconds: f64,
) -> io::Result<Measurement> {
    let places = AREA_BYTES / bytes.len() as u64;
    let mut random = fastrand::Rng::with_seed(bytes.len() as u64);
    let how = match (direct, operation) {
        (true, Operation::Read) => "direct I/O",
        (true, _) => "direct I/O and fdatasync",
        (false, Operation::Read) => "page cache",
        (false, _) => "page cache and fdatasync",
    };
    timed(operation, bytes.len(), how, seconds, |n| {
        let at = random.u64(0..places) * bytes.len() as u64;
        if operation == Operation::Read || (operation == Operation::Mixed && is_read(n)) {
            file.read_exact_at(bytes, at)
        } else {
            file.write_all_at(bytes, at)?;
            file.sync_data()
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_measured_at_every_size_and_the_file_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let place = measure(dir.path(), 0.01, &Leftovers::default(), &|_| {}).unwrap();
        assert_eq!(place.measurements.len(), 9);
        assert!(
            place.measurements.iter().all(|m| m.count > 0 && m.median_ns > 0 && !m.how.is_empty())
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_place_that_cannot_be_measured_is_refused_and_left_alone() {
        let error =
            measure(Path::new("/nowhere"), 0.01, &Leftovers::default(), &|_| {}).unwrap_err();
        assert!(error.to_string().contains("not a directory"), "{error}");
        let leftovers = Leftovers::default();
        leftovers.stop();
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(measure(dir.path(), 0.01, &leftovers, &|_| {}), Err(Error::Interrupted)));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

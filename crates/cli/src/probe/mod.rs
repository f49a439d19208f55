//! The mapped part of `tiersmith probe`: memory that is read and written with loads and stores.
//!
//! It is here and not in the lab because only the command line may know how persistent memory is
//! mapped.
//!
//! **Invariants**: the same sizes, mixture and clock as for files; what is made for measuring is
//! new, in a directory that is held, and removed after, if the name is still its own.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use tiersmith_dir::{Dir, Found};
use tiersmith_lab::place::{FileSystem, Leftovers, bytes_free};
use tiersmith_lab::probe::{AREA_BYTES, Measurement, Operation, Place, Queue, SIZES, What, timed};
use tiersmith_pmem::{Access, Mapping, OpenOptions};

use crate::error::{Error, Result};

/// Measures a directory through a mapped file in it: persistent memory if it is on a DAX file
/// system, else memory that stands for it.
pub(crate) fn measure(
    dir: &Path,
    seconds: f64,
    queue: Queue,
    leftovers: &Leftovers,
    progress: &dyn Fn(&str),
) -> Result<Place> {
    queue.check()?;
    let is_on = FileSystem::of(dir);
    if bytes_free(dir) < 2 * AREA_BYTES {
        let needed = (2 * AREA_BYTES) >> 20;
        return Err(Error::Usage(format!(
            "cannot measure {}: {needed} MiB must be free; free space there",
            dir.display()
        )));
    }
    let access = if is_on.dax { Access::Dax } else { Access::Emulated };
    let held = std::fs::canonicalize(dir).and_then(|real| Dir::open(&real));
    let held = held.map_err(|e| cannot_open(dir, &e))?;
    let name = OsString::from(format!(".tiersmith-probe.{}.mapped", std::process::id()));
    let make = |held: &Dir| {
        let directory = held.as_fd().try_clone_to_owned().map_err(|e| cannot_open(dir, &e))?;
        let options = OpenOptions {
            create: true,
            only_new: true,
            prefault: true,
            directory: Some(Arc::new(directory)),
            ..OpenOptions::new(access, AREA_BYTES)
        };
        let mapping = Mapping::open(&dir.join(&name), &options)?;
        let file = mapping.file().ok_or_else(|| Error::Usage("BUG: no file is mapped".into()))?;
        let found = Found::of(file).map_err(|e| cannot_open(dir, &e))?;
        Ok::<_, Error>((mapping, found))
    };
    let measured = leftovers.make(held, &name, make).and_then(|mapping| {
        let report = mapping.report().clone();
        Ok((report, all(&mapping, seconds, queue, leftovers, progress)?))
    });
    leftovers.clean();
    let (report, measurements) = measured?;
    let mut notes: Vec<String> =
        report.to_string().lines().skip(1).map(|line| line.trim().to_owned()).collect();
    if report.emulated {
        notes.insert(
            0,
            "EMULATED: memory that stands for persistent memory; a write is durable nowhere".into(),
        );
    }
    if queue.depth > 1 {
        notes.push(
            "A store to memory has no queue: --depth is for files, and each thread does one at a \
             time."
                .into(),
        );
    }
    Ok(Place {
        path: dir.display().to_string(),
        is_on: is_on.to_string(),
        access_mode: report.access.name().into(),
        persistent: report.persistent,
        notes,
        measurements,
        cross_check: None,
    })
}

fn cannot_open(dir: &Path, why: &std::io::Error) -> Error {
    Error::Usage(format!("cannot measure {}: {why}", dir.display()))
}

fn all(
    mapping: &Mapping,
    seconds: f64,
    queue: Queue,
    leftovers: &Leftovers,
    progress: &dyn Fn(&str),
) -> Result<Vec<Measurement>> {
    if !mapping.claim(0, AREA_BYTES as usize) {
        return Err(Error::Usage("BUG: a new mapping is in use".into()));
    }
    let mut found = Vec::new();
    for size in SIZES {
        for operation in Operation::ALL {
            if leftovers.stopped() {
                return Err(tiersmith_lab::Error::Interrupted.into());
            }
            progress(&format!("{} of {size} bytes, mapped", operation.name()));
            found.push(one(mapping, operation, size, seconds, queue));
        }
    }
    Ok(found)
}

fn one(
    mapping: &Mapping,
    operation: Operation,
    size: usize,
    seconds: f64,
    queue: Queue,
) -> Measurement {
    // Each thread has a part of its own: two that store to the same bytes would wait for each
    // other's cache lines.
    let places = (AREA_BYTES / size as u64 / u64::from(queue.threads)).max(1);
    let how = match operation {
        Operation::Read => "mapped, a copy",
        _ => "mapped, non-temporal stores and a fence",
    };
    let what = What { operation, size_bytes: size, how, at_once: queue.threads, seconds };
    let measured = timed(&what, |number| {
        let first = u64::from(number) * places;
        let mut random = fastrand::Rng::with_seed(size as u64 ^ u64::from(number) << 32);
        let mut bytes = vec![0xa5u8; size];
        move |n| {
            let at = (first + random.u64(0..places)) * size as u64;
            if operation.reads(n, queue.reads_pct) {
                mapping.read(at, &mut bytes);
            } else {
                mapping.nt_write(at, &bytes);
                mapping.fence();
            }
            Ok::<(), std::convert::Infallible>(())
        }
    });
    match measured {
        Ok(measured) => measured,
        Err(never) => match never {},
    }
}

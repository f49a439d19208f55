//! The repository: a directory with one file per snapshot.
//!
//! ```text
//! DIR/snap-000001.json  DIR/snap-000002.json ...      each as `snapshot/encoding.rs` describes
//! DIR/.snap-PID-TIME-N.tmp                            being written; ignored by readers
//! ```
//!
//! # Invariants
//!
//! - A file `snap-*.json` is whole: it is written under another name, synced, and renamed; a power
//!   cut leaves
//!   a temporary file or nothing.
//! - A number is given once: the rename refuses a name that is there, so two programs that take
//!   snapshots at
//!   the same time get two numbers.
//! - A damaged file does not hide the others: `list` reports it beside them.
//!
//! Deliberately absent: deletion (remove the files), retention, an index.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::listing::{Entry, Listing, MOST_BYTES};
use super::private;
use crate::{Error, Result, Series, Snapshot, SnapshotId};

/// A directory of snapshots.
#[derive(Debug, Clone)]
pub struct Repository {
    dir: PathBuf,
}

/// Tells temporary files of one process apart.
static NEXT_TEMPORARY: AtomicU64 = AtomicU64::new(0);

impl Repository {
    /// The repository in `dir`, which is made if it is missing: for taking snapshots.
    ///
    /// # Errors
    /// If it is not a directory and cannot become one.
    ///
    /// # Durability
    /// A directory that was made is durable on return, in its parent too.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Repository> {
        let dir = dir.into();
        let made = || -> io::Result<()> {
            if dir.is_dir() {
                return Ok(());
            }
            // Parts of `a/b/c` that are new have their names in the part before, down to one that
            // was there.
            let there = dir.ancestors().find(|part| part.is_dir()).unwrap_or(Path::new("."));
            let there = there.canonicalize()?;
            fs::create_dir_all(&dir)?;
            for part in
                dir.canonicalize()?.ancestors().skip(1).take_while(|part| part.starts_with(&there))
            {
                File::open(part)?.sync_all()?;
            }
            Ok(())
        };
        made().map_err(|source| Error::Io {
            action: "make the repository's directory",
            path: dir.clone(),
            source,
            remedy: "Give a directory that can be written",
        })?;
        let repository = Repository { dir };
        // The newest stands for all: an earlier version made them readable.
        if let Some((_, newest)) = repository.files().unwrap_or_default().last() {
            private::warn_if_loose(newest);
        }
        Ok(repository)
    }

    /// The repository in `dir`, which must be there: for reading. A misspelt name makes no
    /// directory.
    ///
    /// # Errors
    /// If it is not there or not a directory.
    pub fn existing(dir: impl Into<PathBuf>) -> Result<Repository> {
        let dir = dir.into();
        match fs::read_dir(&dir) {
            Ok(_) => Ok(Repository { dir }),
            Err(source) => Err(Error::Io {
                action: "read the repository",
                path: dir,
                source,
                remedy: "Give the directory that the snapshots were taken into",
            }),
        }
    }

    /// Whether there is a file that is named as a snapshot.
    pub fn has_snapshots(&self) -> bool {
        self.files().is_ok_and(|files| !files.is_empty())
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Keeps a snapshot and returns its number, one above the highest that is there.
    ///
    /// # Errors
    /// If the file cannot be written; nothing is left of it then.
    ///
    /// # Durability
    /// Durable on return. A power cut before that leaves the whole snapshot or none.
    pub fn take(&self, snapshot: &Snapshot) -> Result<SnapshotId> {
        let number = NEXT_TEMPORARY.fetch_add(1, Ordering::Relaxed);
        // The time as well: a file that a crash left may carry the process id that is ours now.
        let (process, taken) = (std::process::id(), snapshot.taken_unix_ns);
        let temporary = self.dir.join(format!(".snap-{process}-{taken}-{number}.tmp"));
        let taken = self
            .write(&temporary, snapshot.to_json().as_bytes())
            .and_then(|()| self.name(&temporary));
        if taken.is_err() {
            // The error that matters is the one above; a temporary file that stays is ignored by
            // readers.
            let _ = fs::remove_file(&temporary);
        }
        taken.map_err(|(path, source)| Error::Io {
            action: "write the snapshot",
            path,
            source,
            remedy: "Check that the directory can be written and has space",
        })
    }

    /// Step 1: the whole text under a temporary name, synced. Power cut here leaves a file that
    /// readers ignore.
    fn write(
        &self,
        temporary: &Path,
        text: &[u8],
    ) -> std::result::Result<(), (PathBuf, io::Error)> {
        let write = || {
            let mut file = private::make(temporary)?;
            file.write_all(text)?;
            file.sync_all()
        };
        write().map_err(|error| (temporary.to_owned(), error))
    }

    /// Step 2: its name, and the directory synced. Power cut here leaves the file under one name or
    /// the other.
    fn name(&self, temporary: &Path) -> std::result::Result<SnapshotId, (PathBuf, io::Error)> {
        let highest = self
            .files()
            .map_err(|error| (self.dir.clone(), error))?
            .last()
            .map_or(0, |(id, _)| id.number());
        let mut number = highest.saturating_add(1);
        loop {
            let id = SnapshotId::new(number);
            let path = self.file_of(id);
            match rename_new(temporary, &path) {
                Ok(()) => {
                    let sync = File::open(&self.dir).and_then(|dir| dir.sync_all());
                    return sync.map(|()| id).map_err(|error| (self.dir.clone(), error));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < u64::MAX => {
                    number += 1;
                }
                Err(error) => return Err((path, error)),
            }
        }
    }

    /// Every snapshot, and the files that should be one and are not.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn list(&self) -> Result<Listing> {
        let files = self.files_by_number()?;
        let mut listing = Listing { entries: Vec::new(), damaged: Vec::new() };
        for (id, path) in files {
            match read_snapshot(&path) {
                Ok(snapshot) => listing.entries.push(Entry {
                    id,
                    path,
                    source: snapshot.source.path,
                    taken_unix_ns: snapshot.taken_unix_ns,
                    database: snapshot.source.database,
                    instance: snapshot.source.instance,
                }),
                Err(error) => listing.damaged.push((path, error)),
            }
        }
        Ok(listing)
    }

    /// The snapshot of a number.
    ///
    /// # Errors
    /// If there is none, or its file is damaged.
    pub fn find(&self, id: SnapshotId) -> Result<Snapshot> {
        let files = self.files().unwrap_or_default();
        match files.iter().find(|(found, _)| *found == id) {
            Some((_, path)) => read_snapshot(path),
            None => Err(Error::NoSuchSnapshot { id, path: self.dir.clone() }),
        }
    }

    /// The snapshots from `first` to `last` that are of the same source as `first`, brief.
    ///
    /// # Errors
    /// If the directory or the snapshot `first` cannot be read. Another one that is damaged is no
    /// error: the series says which.
    pub fn series(&self, first: SnapshotId, last: SnapshotId) -> Result<Series> {
        let mut series = Series::default();
        self.walk(first, last, &mut |id, read| match read {
            Ok(snapshot) => {
                series.snapshots.push(snapshot);
                series.ids.push(id);
            }
            Err(error) => series.damaged.push((id, error)),
        })?;
        Ok(series)
    }

    /// Hands out the snapshots of [`Repository::series`] one after the other, or why one cannot be
    /// read. None of them is held.
    ///
    /// # Errors
    /// If the directory or the snapshot `first` cannot be read.
    pub(crate) fn walk(
        &self,
        first: SnapshotId,
        last: SnapshotId,
        each: &mut dyn FnMut(SnapshotId, Result<Snapshot>),
    ) -> Result<()> {
        let of = self.find(first)?.source.path;
        let files = self.files_by_number()?;
        for (id, path) in files.into_iter().filter(|(id, _)| (first..=last).contains(id)) {
            match read_snapshot(&path) {
                Ok(snapshot) if snapshot.source.path == of => each(id, Ok(snapshot.brief())),
                Ok(_) => {}
                Err(error) => each(id, Err(error)),
            }
        }
        Ok(())
    }

    fn file_of(&self, id: SnapshotId) -> PathBuf {
        self.dir.join(format!("snap-{:06}.json", id.number()))
    }

    /// The files that are named as snapshots, in the order of their numbers.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub(crate) fn files_by_number(&self) -> Result<Vec<(SnapshotId, PathBuf)>> {
        self.files().map_err(|source| Error::Io {
            action: "list the snapshots in",
            path: self.dir.clone(),
            source,
            remedy: "Check that the directory is there and can be read",
        })
    }

    /// The number in the name of a snapshot's file, if it is named as one.
    pub(crate) fn number_of(path: &Path) -> Option<SnapshotId> {
        let digits = path.file_name()?.to_str()?.strip_prefix("snap-")?.strip_suffix(".json")?;
        let number =
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u64>());
        number?.ok().map(SnapshotId::new)
    }

    fn files(&self) -> io::Result<Vec<(SnapshotId, PathBuf)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            let path = entry.path();
            if let Some(id) = Repository::number_of(&path) {
                files.push((id, path));
            }
        }
        files.sort();
        Ok(files)
    }
}

/// Reads the snapshot in a file of any name.
///
/// # Errors
/// If the file cannot be read or is not a snapshot.
pub fn read_snapshot(path: &Path) -> Result<Snapshot> {
    let io = |source| Error::Io {
        action: "read the snapshot",
        path: path.to_owned(),
        source,
        remedy: "Check that the file is there and can be read",
    };
    let foreign = |reason: &str| Error::Foreign {
        place: path.display().to_string(),
        reason: reason.to_owned(),
    };
    // Before it is opened: opening a named pipe would wait for somebody to write.
    let metadata = fs::metadata(path).map_err(io)?;
    if !metadata.is_file() {
        return Err(foreign("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(io)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(foreign("it is larger than any snapshot"));
    }
    let damaged = |at: usize| Error::Damaged {
        place: path.display().to_string(),
        reason: format!("byte {at} is not UTF-8 text"),
    };
    let text = std::str::from_utf8(&bytes).map_err(|error| damaged(error.valid_up_to()))?;
    Snapshot::from_json(text, &path.display().to_string())
}

/// Renames, and fails if the new name is there. A file system that cannot promise that (some
/// network file systems) gets a look before the rename instead: two programs at the very same
/// instant could then meet.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            if to.exists() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            fs::rename(from, to)
        }
        Err(error) => Err(error.into()),
    }
}

//! A repository of any form: a directory with a file per snapshot, one file, or tables on a
//! PostgreSQL.
//!
//! `postgresql://USER@HOST/DB` is on a server. A path that is there says by itself which it is. A
//! new one becomes one file if its name ends in `.db`, `.sqlite` or `.awr`, else a directory. What
//! a directory cannot do (new baselines, retention, recorders) asks for [`AnyRepository::archive`].

pub mod archive;
mod directory;
pub mod export;
mod intervals;
mod latest;
pub(crate) mod listing;
mod private;

use std::path::Path;

pub use directory::{Repository, read_snapshot};
pub use latest::Recording;
pub use listing::{Entry, Listing};

use self::archive::{Archive, Baseline, Gap};
use crate::{Error, Result, Series, Snapshot, SnapshotId};

/// A repository of any form.
#[derive(Debug)]
pub enum AnyRepository {
    /// A directory.
    Directory(Repository),
    /// What keeps baselines, gaps and recorders too.
    Archive(Archive),
}

/// Endings of names that become one file.
const ENDINGS: [&str; 3] = ["db", "sqlite", "awr"];

fn is_archive(path: &Path) -> bool {
    if Archive::is_address(path) {
        return true;
    }
    if path.is_dir() {
        return false;
    }
    path.is_file()
        || path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known))
}

impl AnyRepository {
    /// The repository at `path`, a path or an address, made if it is not there.
    ///
    /// # Errors
    /// If it is something else, or cannot be written.
    pub fn open(path: &Path) -> Result<AnyRepository> {
        Ok(match is_archive(path) {
            true => AnyRepository::Archive(Archive::open(path)?),
            false => AnyRepository::Directory(Repository::open(path)?),
        })
    }

    /// The repository at `path`, which must be there.
    ///
    /// # Errors
    /// If it is not there, or something else.
    pub fn existing(path: &Path) -> Result<AnyRepository> {
        Ok(match is_archive(path) {
            true => AnyRepository::Archive(Archive::existing(path)?),
            false => AnyRepository::Directory(Repository::existing(path)?),
        })
    }

    /// Keeps a snapshot and returns its number.
    ///
    /// # Errors
    /// If it cannot be written.
    ///
    /// # Durability
    /// Durable on return, or not there.
    pub fn take(&self, snapshot: &Snapshot) -> Result<SnapshotId> {
        match self {
            AnyRepository::Directory(repository) => repository.take(snapshot),
            AnyRepository::Archive(archive) => archive.take(snapshot),
        }
    }

    /// Keeps snapshots and returns their numbers: all or none, but in a directory, where an error
    /// leaves those before it.
    ///
    /// # Errors
    /// If they cannot be written.
    ///
    /// # Durability
    /// Durable on return.
    pub fn take_all(&self, snapshots: &[Snapshot]) -> Result<Vec<SnapshotId>> {
        match self {
            AnyRepository::Directory(repository) => {
                snapshots.iter().map(|snapshot| repository.take(snapshot)).collect()
            }
            AnyRepository::Archive(archive) => archive.take_all(snapshots),
        }
    }

    /// Every snapshot.
    ///
    /// # Errors
    /// If the repository cannot be read.
    pub fn list(&self) -> Result<Listing> {
        match self {
            AnyRepository::Directory(repository) => repository.list(),
            AnyRepository::Archive(archive) => archive.list(),
        }
    }

    /// The snapshot of a number.
    ///
    /// # Errors
    /// If there is none, or it is damaged.
    pub fn find(&self, id: SnapshotId) -> Result<Snapshot> {
        match self {
            AnyRepository::Directory(repository) => repository.find(id),
            AnyRepository::Archive(archive) => archive.find(id),
        }
    }

    /// The numbers from `first` to `last` that are of the same source as `first`.
    ///
    /// # Errors
    /// If the repository cannot be read.
    pub fn between(&self, first: SnapshotId, last: SnapshotId) -> Result<Vec<SnapshotId>> {
        match self {
            AnyRepository::Archive(archive) => archive.between(first, last),
            AnyRepository::Directory(repository) => {
                let of = repository.find(first)?.source;
                let mut ids = Vec::new();
                for entry in repository.list()?.entries {
                    let inside = (first..=last).contains(&entry.id);
                    if inside && entry.source == of.path {
                        ids.push(entry.id);
                    }
                }
                Ok(ids)
            }
        }
    }

    /// The baselines, and the gaps in the order of time; of a directory those that were exported
    /// into it.
    ///
    /// # Errors
    /// If the repository cannot be read, or what lies beside the snapshots of a directory is
    /// damaged.
    pub fn baselines_and_gaps(&self) -> Result<(Vec<Baseline>, Vec<Gap>)> {
        match self {
            AnyRepository::Archive(archive) => Ok((archive.baselines()?, archive.gaps()?)),
            AnyRepository::Directory(repository) => {
                let (baselines, mut gaps) = export::beside(repository.path())?;
                gaps.sort_by_key(|gap| gap.at_unix_ns);
                Ok((baselines, gaps))
            }
        }
    }

    /// The gaps of one source, in the order of time.
    ///
    /// # Errors
    /// As [`AnyRepository::baselines_and_gaps`].
    pub(crate) fn gaps_of(&self, source: &str) -> Result<Vec<Gap>> {
        match self {
            AnyRepository::Archive(archive) => archive.gaps_of(source),
            AnyRepository::Directory(_) => {
                let (_, mut gaps) = self.baselines_and_gaps()?;
                gaps.retain(|gap| gap.source == source);
                Ok(gaps)
            }
        }
    }

    /// The snapshots from `first` to `last` that are of the same source as `first`, brief, with the
    /// gaps between them.
    ///
    /// # Errors
    /// If the repository cannot be read, or there is no snapshot `first`. A damaged snapshot is no
    /// error: the series says which.
    pub fn series(&self, first: SnapshotId, last: SnapshotId) -> Result<Series> {
        match self {
            AnyRepository::Archive(archive) => archive.series(first, last),
            AnyRepository::Directory(repository) => {
                let mut series = repository.series(first, last)?;
                if let Some(of) = series.snapshots.first() {
                    series.gaps = self.gaps_of(&of.source.path)?;
                }
                series.only_gaps_inside();
                Ok(series)
            }
        }
    }

    /// What a directory cannot do.
    ///
    /// # Errors
    /// If it is a directory: what to do instead.
    pub fn archive(self, path: &Path) -> Result<Archive> {
        match self {
            AnyRepository::Archive(archive) => Ok(archive),
            AnyRepository::Directory(_) => Err(Error::Archive {
                action: "use",
                path: path.to_owned(),
                reason: "it is a directory of snapshots, and new baselines, retention and \
                         recording need a repository in one file or on a PostgreSQL"
                    .to_owned(),
                remedy: "Give a name that ends in .db; `tiersmith awr load DIR --to FILE.db` \
                         brings the snapshots there"
                    .to_owned(),
            }),
        }
    }
}

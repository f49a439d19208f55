//! The errors of the program: those of the crates as they are, and its own.

use std::path::PathBuf;

/// What ends a command. `Display` is the sentence the user sees.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Of the lab.
    #[error(transparent)]
    Lab(#[from] tiersmith_lab::Error),
    /// Of the workload repository.
    #[error(transparent)]
    Awr(#[from] tiersmith_awr::Error),
    /// Of the store.
    #[error(transparent)]
    Store(#[from] tiersmith_store::Error),
    /// Of the offline check.
    #[error(transparent)]
    Check(#[from] tiersmith_store::check::CheckError),
    /// Of a medium.
    #[error(transparent)]
    Medium(#[from] tiersmith_pmem::Error),
    /// Of the key-value server.
    #[error(transparent)]
    Kv(#[from] tiersmith_kv::Error),
    /// Of the mount.
    #[error(transparent)]
    Mount(#[from] tiersmith_mount::Error),
    /// Of the SQLite door.
    #[error(transparent)]
    Sqlite(#[from] tiersmith_sqlite::Error),
    /// Of where a SQLite database lives.
    #[error(transparent)]
    Place(#[from] tiersmith_sqlite::place::PlaceError),
    /// A file that cannot be written, and the like.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A daemon that another version of this program started.
    #[error("{0}")]
    AnotherVersion(String),
    /// Anything else: what, on what, why, what to do.
    #[error("{0}")]
    Usage(String),
}

/// The program's result.
pub(crate) type Result<T> = std::result::Result<T, Error>;

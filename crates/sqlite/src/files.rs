//! The files of one attached database: the home they are in, their names there, and with whose
//! rights they are opened.
//!
//! Not here: how the home came to be attached (`place/`), and what is in a file (`journal.rs`,
//! `wal.rs`).
//!
//! Invariant: a file is opened with the rights of the database's owner, also when it is opened
//! late.

use crate::rights::Rights;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tiersmith_dir::Dir;
use tiersmith_store::{AttachedHome, Error, File, OpenMode, Result};

/// The database in its directory.
pub(crate) const DB: &str = "db";
/// Its WAL, under a name that no SQLite looks for.
pub(crate) const WAL: &str = "wal";
/// Its rollback journal, likewise.
pub(crate) const JOURNAL: &str = "journal";
/// What `db` looked like when it was last written, if it passes (`place/stamp.rs`).
pub(crate) const STAMP: &str = "stamp";

/// Which of a database's three files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The database.
    Main,
    /// Its write-ahead log.
    Wal,
    /// Its rollback journal.
    Journal,
}

impl Role {
    /// The file's name, relative to the home.
    pub(crate) fn name(self) -> &'static Path {
        Path::new(match self {
            Role::Main => DB,
            Role::Wal => WAL,
            Role::Journal => JOURNAL,
        })
    }
}

/// The files of one attached database that is open in this process.
pub(crate) struct Files {
    pub(crate) home: AttachedHome,
    /// The canonical path of the database.
    pub(crate) database: PathBuf,
    /// With which files are made and opened.
    pub(crate) rights: Rights,
    /// The directory of its own, for files nobody depends on; `None` for a home that is not one.
    pub(crate) inside: Option<Arc<Dir>>,
}

impl Files {
    /// Opens one of them, with the rights of the database's owner.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn open(&self, role: Role, mode: OpenMode) -> Result<File> {
        let _rights = self.rights.take().map_err(|e| Error::Io {
            what: "cannot open",
            path: role.name().to_path_buf(),
            source: std::io::Error::new(std::io::ErrorKind::PermissionDenied, e),
        })?;
        self.home.open(role.name(), mode)
    }

    /// Whether the home has the file.
    pub(crate) fn has(&self, role: Role) -> Result<bool> {
        match self.home.stat(role.name()) {
            Ok(_) => Ok(true),
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    /// Removes a file of the home. `false`: it is not there.
    ///
    /// # Durability
    /// Durable on return.
    pub(crate) fn remove(&self, role: Role) -> Result<bool> {
        match self.home.unlink(role.name()) {
            Ok(()) => {
                self.home.sync_dir(role.name())?;
                Ok(true)
            }
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }
}

//! The errors of the lab: each says what was tried, on what, why it failed and what to do.

use std::io;
use std::path::PathBuf;

/// What can go wrong in the lab. `Display` is a sentence with the remedy; sources are kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A case file, built in or the user's.
    #[error("cannot use the case {case}: {reason}")]
    Case {
        /// Its id or path.
        case: String,
        /// Why, and what to do.
        reason: String,
    },
    /// There is no case of this name.
    #[error(
        "there is no case `{name}`; those there are: {known}. A case of your own is given as the \
         path of its file (NAME.toml)"
    )]
    NoSuchCase {
        /// What was asked for.
        name: String,
        /// The ids there are.
        known: String,
    },
    /// A setting of a workload or target that is out of range or contradicts another.
    #[error("the setting {setting} = {value} is refused: {reason}")]
    Setting {
        /// Its name, as in the case file.
        setting: &'static str,
        /// What was given.
        value: String,
        /// Why, and what to do.
        reason: String,
    },
    /// A place for the home or the tier.
    #[error("cannot use {} for the {what}: {reason}", path.display())]
    Place {
        /// `home` or `tier`.
        what: &'static str,
        /// The path.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The target failed while it was loaded or used.
    #[error("{what} on {} failed: {reason}", database.display())]
    Target {
        /// The operation.
        what: String,
        /// The database.
        database: PathBuf,
        /// What the target said.
        reason: String,
    },
    /// What was loaded or left behind is not what it must be.
    #[error("{}: {reason}; the figures of this run would mean nothing, so there are none",
    database.display())]
    Unsound {
        /// The database.
        database: PathBuf,
        /// Expected and found.
        reason: String,
    },
    /// The workload repository refused.
    #[error(transparent)]
    Awr(#[from] tiersmith_awr::Error),
    /// The system refused.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody asked the study to stop.
    #[error("the study was interrupted")]
    Interrupted,
}

/// The lab's result.
pub type Result<T> = std::result::Result<T, Error>;

/// Names what was tried, for the errors of the system.
pub(crate) trait During<T> {
    /// The value, or the error with what was tried on which path.
    fn during(self, what: &'static str, path: impl Into<PathBuf>) -> Result<T>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, what: &'static str, path: impl Into<PathBuf>) -> Result<T> {
        self.map_err(|source| Error::Io { what, path: path.into(), source })
    }
}

impl<T> During<T> for rustix::io::Result<T> {
    fn during(self, what: &'static str, path: impl Into<PathBuf>) -> Result<T> {
        self.map_err(|errno| Error::Io { what, path: path.into(), source: errno.into() })
    }
}

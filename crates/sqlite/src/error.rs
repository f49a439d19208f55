//! Why a database cannot be opened at its place, attached or detached: each a sentence with the
//! remedy.
//!
//! Not the mapping to SQLite's result codes: that is the VFS's, with [`PlaceError::is_busy`] and
//! its neighbours.

use std::io;
use std::path::{Path, PathBuf};
use tiersmith_dir::Unfit;

/// What to do when nothing but the missing bars was found.
const BARS_AGAIN: &str = "; if nothing was written there, make the directories db-wal and \
                          db-journal in it again (mkdir)";

/// Why a place cannot be opened or detached. Nothing was changed unless the sentence says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// A URI parameter that cannot be obeyed.
    #[error("the URI parameter {parameter}={value} cannot be used: {why}")]
    Parameter {
        /// The parameter.
        parameter: &'static str,
        /// What it was given.
        value: String,
        /// Why, and what to give.
        why: String,
    },
    /// Somebody has the database open.
    #[error("cannot attach or detach {}: {who}; close it there and try again", database.display())]
    Busy {
        /// The database.
        database: PathBuf,
        /// Who, or what shows it.
        who: String,
    },
    /// Another process has the attached database open.
    #[error(
        "{} is in use by {owner}; one process at a time can have an attached database open, and a \
         forked child is another one. Close \
         it there first; to share it between processes, attach its directory as a mount \
         (`tiersmith attach DIR`)",
        database.display()
    )]
    InUse {
        /// The database.
        database: PathBuf,
        /// The process, as it named itself when it opened the database.
        owner: String,
    },
    /// SQLite could not bring the WAL or a journal into the database file.
    #[error(
        "SQLite could not bring the WAL and journal of {} into the database file before it is \
         attached or detached: {reason}",
        database.display()
    )]
    Fold {
        /// The database file.
        database: PathBuf,
        /// What SQLite said.
        reason: String,
    },
    /// A WAL or journal that still holds something.
    #[error(
        "{} still holds changes; close every connection of the database, or open it once with the \
         stock sqlite3, and try again",
        path.display()
    )]
    NotFolded {
        /// The WAL or journal.
        path: PathBuf,
    },
    /// A journal that names a super-journal, which only SQLite through Tiersmith can judge.
    #[error(
        "{} is of a transaction over several databases that was cut short; open the database once \
         with vfs=tiersmith and read \
         from it, then detach",
        path.display()
    )]
    SuperJournal {
        /// The journal.
        path: PathBuf,
    },
    /// The database has other names, which would lead past Tiersmith.
    #[error(
        "{} has {links} names (hard links); while it is attached each other name would open a file \
         that is not whole. Remove the \
         others, or attach a copy",
        database.display()
    )]
    Linked {
        /// The database.
        database: PathBuf,
        /// Number of names.
        links: u64,
    },
    /// The file system has no hard links.
    #[error(
        "cannot attach {}: its file system refuses hard links ({source}), and without one the file \
         cannot be moved aside safely; \
         move the database to another file system (ext4, xfs, btrfs); if you are neither root nor \
         the file's owner, attach as one of them",
        database.display()
    )]
    NoLinks {
        /// The database.
        database: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
    /// Root would act for one account on what belongs to another, or may not act as the owner.
    #[error("{} is not opened: {why}", database.display())]
    Rights {
        /// The database.
        database: PathBuf,
        /// Who owns what, and what to do.
        why: String,
    },
    /// A file of the tier that somebody else owns, or could exchange.
    #[error(
        "{} is not used as a tier: {why}. Name a file in a directory of root or of the database's \
         owner",
        member.display()
    )]
    TierNotTrusted {
        /// The tier's file.
        member: PathBuf,
        /// Who owns what.
        why: String,
    },
    /// Where SQLite keeps a WAL, a journal or the index of a WAL is something else.
    #[error(
        "{} {what}, and SQLite would open it as the database's WAL or journal; nothing was \
         changed. Move it away and try again",
        path.display()
    )]
    Strange {
        /// The name.
        path: PathBuf,
        /// What is there.
        what: &'static str,
    },
    /// The path is no ordinary file.
    #[error("{} is no ordinary file (but a directory, a device or the like); give the path of a \
             database file", database.display())]
    NotAFile {
        /// The path.
        database: PathBuf,
    },
    /// The file holds something else than a database.
    #[error(
        "{} is not an SQLite database (it does not begin with \"SQLite format 3\"); give the path \
         of a database, of a file that does \
         not exist yet or, to the commands of tiersmith, of a database's directory",
        database.display()
    )]
    NotADatabase {
        /// The path.
        database: PathBuf,
    },
    /// The files cannot be written by this process.
    #[error(
        "{} cannot be written ({source}); opening an attached database needs that, for reading \
         too{}",
        path.display(),
        how_to_write(source)
    )]
    ReadOnly {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A read-only open that asks for a tier.
    #[error(
        "{} is not attached, and opening it for reading only does not attach it; open it once for \
         writing with fast=, or leave \
         fast= out",
        database.display()
    )]
    ReadOnlyAttach {
        /// The database.
        database: PathBuf,
    },
    /// The stub is there, its directory is not.
    #[error(
        "{} says that its data is in {}, but {why}; bring that directory back beside it. If the \
         data is given up, remove the file",
        database.display(), home.display()
    )]
    HomeMissing {
        /// The stub.
        database: PathBuf,
        /// The directory.
        home: PathBuf,
        /// What is missing.
        why: &'static str,
    },
    /// The directory is there, the stub is not.
    #[error(
        "{} is gone or empty, and its data is in {}; to have the database back run `tiersmith \
         detach {}`. If the data is given up, remove \
         that directory",
        database.display(), home.display(), database.display()
    )]
    StubMissing {
        /// Where the stub was.
        database: PathBuf,
        /// The directory.
        home: PathBuf,
    },
    /// Past the bars, or keeping both versions was begun and not finished.
    #[error(
        "{} is there, which {what}. Nothing was changed by this call. `tiersmith detach \
         --keep-both {}` keeps what was written past \
         Tiersmith and what Tiersmith has, as two files",
        path.display(), database.display()
    )]
    Meddled {
        /// The database.
        database: PathBuf,
        /// The file in the place of a bar, or the one that says that keeping both was begun.
        path: PathBuf,
        /// What that means.
        what: &'static str,
    },
    /// The file in the directory was changed, or may have been, while Tiersmith had changes that
    /// belong to it as it was.
    #[error(
        "{source}. It is in {}{}. Or `tiersmith detach --keep-both {}` keeps what was found there \
         and what Tiersmith has, as two \
         databases",
        home.display(), if *unbarred { BARS_AGAIN } else { "" }, database.display()
    )]
    Changed {
        /// The database.
        database: PathBuf,
        /// Its directory.
        home: PathBuf,
        /// The bars were gone, and nothing else was found.
        unbarred: bool,
        /// How it was noticed.
        source: Box<tiersmith_store::Error>,
    },
    /// The file that was to be kept has no place.
    #[error(
        "{} is in the way: the version of {} that was changed past Tiersmith is to be kept there. \
         Move it elsewhere and try again; nothing \
         was lost",
        path.display(), database.display()
    )]
    InTheWay {
        /// The database.
        database: PathBuf,
        /// What is there.
        path: PathBuf,
    },
    /// Something else took the stub's place.
    #[error(
        "both {} and {} hold a database; the second is the attached one. Move the one that is not \
         wanted elsewhere: either the \
         first, and then run `tiersmith detach` for its path, or the whole directory {}",
        database.display(), home.join("db").display(), home.display()
    )]
    TwoDatabases {
        /// The file at the path.
        database: PathBuf,
        /// The directory.
        home: PathBuf,
    },
    /// The directory holds what nobody expects there.
    #[error(
        "{} holds {names}, which Tiersmith did not make; move that elsewhere and try again",
        home.display()
    )]
    NotOurs {
        /// The directory.
        home: PathBuf,
        /// What was found.
        names: String,
    },
    /// The attachment file cannot be used.
    #[error(
        "the attachment file {} cannot be used: {why}; restore it from a backup, or give fast= as \
         the database was attached",
        path.display()
    )]
    Attachment {
        /// The attachment file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A file of Tiersmith's that another version of it wrote.
    #[error("the file {} {why}. Nothing was changed", path.display())]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// Which version, and which program reads it.
        why: String,
    },
    /// Attached to other members than given.
    #[error(
        "{} is attached to {attached} and was opened with fast={given}; leave fast= out, give it \
         as it was attached, or detach first",
        database.display()
    )]
    OtherTier {
        /// The database.
        database: PathBuf,
        /// The members it is attached to.
        attached: String,
        /// Those given.
        given: String,
    },
    /// Attached otherwise than asked for.
    #[error(
        "{} was attached with {attached} and is opened with {given}; leave fast= out, give it as \
         it was attached, or detach first",
        database.display()
    )]
    OtherSetting {
        /// The database.
        database: PathBuf,
        /// The parameter as it was.
        attached: String,
        /// As it is given.
        given: String,
    },
    /// Attaching failed past the point from which it goes back by itself.
    #[error(
        "{source}. Taking that back failed too ({undo}): {} is attached, or half way back, and \
         nothing of it is lost; open it with \
         vfs=tiersmith again, or run `tiersmith detach {}`",
        database.display(), database.display()
    )]
    HalfWay {
        /// The database.
        database: PathBuf,
        /// Why attaching failed.
        source: Box<PlaceError>,
        /// Why it could not be taken back.
        undo: Box<PlaceError>,
    },
    /// Nothing to detach.
    #[error("{} is not attached: there is no {}; nothing has to be done", database.display(),
    home.display())]
    NotAttached {
        /// The database.
        database: PathBuf,
        /// The directory an attached one has.
        home: PathBuf,
    },
    /// The file system failed.
    #[error("{what} {}: {source}", path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The store refused.
    #[error(transparent)]
    Store(#[from] tiersmith_store::Error),
}

/// The end of a sentence that says why a file cannot be written.
fn how_to_write(source: &io::Error) -> &'static str {
    match (source.kind(), source.raw_os_error()) {
        // It has said what to do.
        (_, None) => "",
        (io::ErrorKind::ReadOnlyFilesystem, _) => ". Mount its file system read-write",
        // Root has the owner's rights here, so to be root does not help, nor to be the owner.
        _ => {
            ". Its owner needs the right to write to it and to its directory (chmod u+rwx), also \
             when \
             root runs this; other accounts run this as the owner"
        }
    }
}

impl PlaceError {
    /// For `map_err`: a read-only file system or missing permission becomes
    /// [`PlaceError::ReadOnly`].
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| match source.kind() {
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                Self::ReadOnly { path, source }
            }
            _ => Self::Io { what, path, source },
        }
    }

    /// A sidecar that is not read.
    pub(crate) fn unfit(path: &Path, unfit: Unfit) -> Self {
        let (path, why) = (path.to_path_buf(), unfit.to_string());
        match unfit {
            Unfit::OtherVersion(_) => Self::OtherVersion { path, why },
            _ => Self::Attachment { path, why: format!("it {why}") },
        }
    }

    /// Somebody else has the database, its directory or its tier; later it may work.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        use tiersmith_store::Error;
        matches!(
            self,
            Self::Busy { .. }
                | Self::InUse { .. }
                | Self::Store(Error::Owned { .. } | Error::Busy(_))
        )
    }

    /// The tier or the home's file system has no space.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Store(tiersmith_store::Error::TierFull { .. }))
            || self.io_kind().is_some_and(|kind| {
                matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            })
    }

    /// This process cannot write where it would have to.
    #[must_use]
    pub fn is_readonly(&self) -> bool {
        matches!(self, Self::ReadOnlyAttach { .. })
            || self.io_kind().is_some_and(|kind| {
                matches!(kind, io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
            })
    }

    /// What the system said at the bottom of it, if it was asked.
    fn io_kind(&self) -> Option<io::ErrorKind> {
        let mut error: &dyn std::error::Error = self;
        loop {
            if let Some(io) = error.downcast_ref::<io::Error>() {
                return Some(io.kind());
            }
            error = error.source()?;
        }
    }
}

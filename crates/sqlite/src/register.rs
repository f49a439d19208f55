//! Registering the VFS with the SQLite that is linked into the program, and what a program may want
//! to know of it then.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let (database, tier) = (dir.path().join("app.db"), dir.path().join("app.tier"));
//! tiersmith_sqlite::register()?;
//! // On persistent memory: a file on a DAX file system, and no emulate.
//! let uri = format!(
//!     "file:{}?vfs=tiersmith&fast={}&size=16M&emulate=1",
//!     database.display(),
//!     tier.display()
//! );
//! let connection = rusqlite::Connection::open(uri)?;
//! connection.execute_batch("CREATE TABLE t(x); INSERT INTO t VALUES (1)")?;
//! drop(connection);
//! // Plain again: any SQLite opens it.
//! tiersmith_sqlite::detach(&database)?;
//! # Ok(())
//! # }
//! ```

use crate::border;
use crate::ffi::{api, opens};
use crate::place::{FastSpec, KeptBoth, Place, PlaceError, Want};
use crate::vfs;
use std::ffi::c_int;
use std::path::Path;

/// Why the VFS could not be registered, or a database not detached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// SQLite refused the VFS.
    #[error(
        "SQLite does not take the VFS `tiersmith`: result code {0}; it needs a default VFS (unix) \
         to build on"
    )]
    Register(c_int),
    /// SQLite keeps its own way to open files.
    #[error(
        "cannot keep SQLite from waiting for what is put at a file's name: result code {0}; it \
         needs the VFS `unix`, \
         whose system calls a program may replace"
    )]
    Opens(c_int),
    /// The place of the database.
    #[error(transparent)]
    Place(#[from] PlaceError),
}

/// Registers the VFS `tiersmith` with the SQLite linked into this program. It does not become the
/// default, unless the environment says `TIERSMITH_SQLITE_DEFAULT=1`. A second call changes
/// nothing.
///
/// # Errors
/// SQLite's result code.
pub fn register() -> Result<(), Error> {
    let api = api::use_linked();
    border::register(api, crate::wants_default()).map_err(Error::Register)?;
    crate::extension::announce(api);
    Ok(())
}

/// From now on the SQLite linked into this program opens regular files and directories only, and
/// waits for nothing while it does: not for a pipe that somebody put at a journal's name. For a
/// program that works on the databases of other accounts, before its first connection; it changes
/// every connection of the process.
///
/// # Errors
/// SQLite's result code.
pub fn open_only_files() -> Result<(), Error> {
    opens::only_files().map_err(Error::Opens)
}

/// Attaches the database at the path to `fast`, as the first open with `fast=` does; one that is
/// attached so already stays as it is. No connection is made: it is for a program that opens it
/// later, and cannot name the tier.
///
/// # Errors
/// Each is a sentence with the remedy, also where there is no database; nothing was changed then.
///
/// # Durability
/// The attachment is durable on return.
pub fn attach(database: &Path, fast: FastSpec) -> Result<(), Error> {
    let below =
        border::register(api::use_linked(), crate::wants_default()).map_err(Error::Register)?;
    let want = Want { fast: Some(fast), create: false, read_only: false };
    match Place::open(database, &want, &|path| vfs::fold(&below, path))? {
        Some(_attached) => Ok(()),
        None => Err(PlaceError::NotAFile { database: database.to_path_buf() }.into()),
    }
}

/// Detaches the database at the path: everything goes home, and the plain file is at its path
/// again. No connection of this process may have it open. What a crash left is recovered first.
///
/// # Errors
/// Each is a sentence with the remedy; another call goes on where one failed.
///
/// # Durability
/// Durable on return.
pub fn detach(database: &Path) -> Result<(), Error> {
    let below =
        border::register(api::use_linked(), crate::wants_default()).map_err(Error::Register)?;
    Ok(Place::detach(database, &|path| vfs::fold(&below, path))?)
}

/// [`detach`] for a database whose file in the directory was changed past Tiersmith: keeps that
/// version and Tiersmith's, as two databases, and says where. When nothing was changed it is an
/// ordinary detach.
///
/// # Errors
/// Each is a sentence with the remedy; another call goes on where one failed.
///
/// # Durability
/// Durable on return.
pub fn detach_keeping_both(database: &Path) -> Result<KeptBoth, Error> {
    let below =
        border::register(api::use_linked(), crate::wants_default()).map_err(Error::Register)?;
    Ok(Place::detach_keeping_both(database, &|path| vfs::fold(&below, path))?)
}

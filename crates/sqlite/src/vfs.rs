//! Opening, deleting and finding files: which of them are an attached database's, and which go to
//! the VFS below.
//!
//! | what SQLite opens | goes to |
//! |---|---|
//! | a main database that is attached, or that a URI attaches (`fast=`) | its place |
//! | another main database | the VFS below, timed |
//! | WAL and journal | where their database is, found by name |
//! | super-journals, temporary files, everything else | the VFS below |
//!
//! A journal may be asked for while its database is not open: SQLite does so to learn whether a
//! super-journal is still needed. If that database is attached its place is opened for the
//! question; answering "no such file" would lose a transaction over two databases.
//!
//! Deliberately absent: pointers. `border` calls this with what it has checked.

use crate::database::{Name, Owner, User, owner};
use crate::ffi;
use crate::ffi::api::Filename;
use crate::ffi::foreign::ForeignVfs;
use crate::file::{Main, Side};
use crate::inspect::FAST_DIRECTORY;
use crate::place::{FastSpec, HOME_SUFFIX, Place, PlaceError, Role, Want, asks_for_sigbus};
use crate::result;
use std::ffi::{CStr, OsStr, OsString, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use tiersmith_store::OpenMode;

/// What became of an open.
pub(crate) enum Opened {
    Main(Box<Main>),
    Side(Box<Side>),
    /// The VFS below is to open it; its calls are timed as those of this role. The name is kept as
    /// long as the file is open.
    Plain(Role, Option<Name>),
    /// The VFS below is to open it, alone.
    Below,
}

/// Opens the file if it is an attached database's; the error is a result code, reported.
pub(crate) fn open(
    below: &ForeignVfs,
    name: Option<Filename<'_>>,
    flags: c_int,
) -> Result<Opened, c_int> {
    let Some(name) = name else { return Ok(Opened::Below) };
    if flags & ffi::OPEN_MAIN_DB != 0 {
        return open_main(below, name, flags);
    }
    match owner(name.bytes()) {
        Owner::Attached(place, role) => side(place, role, flags),
        Owner::Closed(database, role) => match closed(below, &database)? {
            Some(place) => side(place, role, flags),
            None => Ok(plain_side(flags)),
        },
        Owner::Plain | Owner::Nobody => Ok(plain_side(flags)),
    }
}

fn plain_side(flags: c_int) -> Opened {
    if flags & ffi::OPEN_WAL != 0 {
        Opened::Plain(Role::Wal, None)
    } else if flags & ffi::OPEN_MAIN_JOURNAL != 0 {
        Opened::Plain(Role::Journal, None)
    } else {
        Opened::Below
    }
}

fn side(place: Arc<Place>, role: Role, flags: c_int) -> Result<Opened, c_int> {
    match Side::open(place, role, flags) {
        Ok(Some(side)) => Ok(Opened::Side(Box::new(side))),
        // SQLite asks like this for journals that may be gone by now: no event for the log.
        Ok(None) => Err(ffi::CANTOPEN),
        Err(e) => Err(result::of_store(&e, ffi::CANTOPEN)),
    }
}

fn open_main(below: &ForeignVfs, name: Filename<'_>, flags: c_int) -> Result<Opened, c_int> {
    let path = Path::new(OsStr::from_bytes(name.bytes()));
    let spec = FastSpec::from_uri(|key| name.parameter(key)).map_err(|e| result::of_place(&e))?;
    let sigbus = asks_for_sigbus(|key| name.parameter(key)).map_err(|e| result::of_place(&e))?;
    let create = flags & ffi::OPEN_CREATE != 0;
    let read_only = flags & ffi::OPEN_READONLY != 0;
    let spec = spec.or_else(|| {
        // Only where the VFS was made the default one too: nobody gets an emulated tier by one
        // stray variable. Reading only does not attach.
        std::env::var_os("TIERSMITH_SQLITE_DEFAULT").filter(|_| !read_only)?;
        fast_of(std::env::var_os(FAST_DIRECTORY)?.as_ref(), path)
    });
    let want = Want { fast: spec, create, read_only };
    let place = open_place(below, path, &want).map_err(|e| result::of_place(&e))?;
    let Some(place) = place else {
        return Ok(Opened::Plain(Role::Main, Some(Name::keep(name.bytes(), None))));
    };
    if sigbus {
        place.watch_sigbus().map_err(|e| result::of_place(&e))?;
    }
    let mode = OpenMode { create: false, exclusive: false, read_only };
    match Main::open(place, name.bytes(), mode) {
        Ok(main) => Ok(Opened::Main(Box::new(main))),
        Err(e) => Err(result::of_store(&e, ffi::CANTOPEN)),
    }
}

/// Bytes of the tier that each main database opened without `fast=` gets in the directory of
/// [`FAST_DIRECTORY`]. For SQLite's own tests, which know no `fast=`; works together with
/// TIERSMITH_SQLITE_DEFAULT only.
const FAST_BYTES: u64 = 8 << 20;

/// The tier in `directory` of the database at `path`: the path with `+` for each `/`. None where
/// that is no file name.
fn fast_of(directory: &Path, path: &Path) -> Option<FastSpec> {
    let name = format!("{}.tier", path.to_str()?.replace('/', "+"));
    let member = directory.join(name);
    let plain = !member.as_os_str().as_bytes().contains(&b',') && member.file_name()?.len() < 250;
    plain.then(|| FastSpec {
        members: vec![member],
        size: Some(FAST_BYTES),
        max_size: Some(64 * FAST_BYTES),
        emulate: true,
        ..FastSpec::default()
    })
}

fn open_place(
    below: &ForeignVfs,
    path: &Path,
    want: &Want,
) -> Result<Option<Arc<Place>>, PlaceError> {
    Place::open(path, want, &|database| fold(below, database))
}

/// Lets the VFS below bring journal and WAL into the file.
pub(crate) fn fold(below: &ForeignVfs, database: &Path) -> Result<(), String> {
    below.api().fold(database, below.name())
}

/// The place of a database nobody here has open, if it is attached.
fn closed(below: &ForeignVfs, database: &[u8]) -> Result<Option<Arc<Place>>, c_int> {
    let path = Path::new(OsStr::from_bytes(database));
    let mut home = OsString::from(path);
    home.push(HOME_SUFFIX);
    if !Path::new(&home).is_dir() {
        return Ok(None);
    }
    open_place(below, path, &Want::default()).map_err(|e| result::of_place(&e))
}

/// The user of the WAL or journal `name`, if it is an attached database's.
fn user_of(below: &ForeignVfs, name: &[u8]) -> Result<Option<(User, Role)>, c_int> {
    let (place, role) = match owner(name) {
        Owner::Attached(place, role) => (place, role),
        Owner::Closed(database, role) => match closed(below, &database)? {
            Some(place) => (place, role),
            None => return Ok(None),
        },
        Owner::Plain | Owner::Nobody => return Ok(None),
    };
    match User::join(place) {
        Ok(user) => Ok(Some((user, role))),
        Err(e) => Err(result::of_store(&e, ffi::IOERR_ACCESS)),
    }
}

/// `xDelete`.
pub(crate) fn delete(below: &ForeignVfs, name: &CStr, sync_directory: c_int) -> c_int {
    match user_of(below, name.to_bytes()) {
        Ok(Some((user, role))) => match user.delete(role) {
            Ok(true) => ffi::OK,
            Ok(false) => ffi::IOERR_DELETE_NOENT,
            Err(e) => result::of_store(&e, ffi::IOERR_DELETE),
        },
        Ok(None) => below.delete(name, sync_directory),
        Err(code) => code,
    }
}

/// `xAccess`; the error is a result code.
pub(crate) fn access(below: &ForeignVfs, name: &CStr, flags: c_int) -> Result<bool, c_int> {
    if flags != ffi::ACCESS_EXISTS {
        return below.access(name, flags);
    }
    if let Owner::Attached(place, role) = owner(name.to_bytes()) {
        // The common case, several times in a transaction: the place is open, so what is in memory
        // is right.
        return Ok(match role {
            Role::Journal => place.shared.journal.is_present(),
            _ => place.shared.wal.is_present(),
        });
    }
    match user_of(below, name.to_bytes())? {
        Some((user, role)) => Ok(user.is_present(role)),
        None => below.access(name, flags),
    }
}

#[cfg(test)]
mod tests {
    use super::fast_of;
    use std::path::Path;

    #[test]
    fn two_databases_of_one_name_get_two_tiers() {
        let member = |path: &str| fast_of(Path::new("/fast"), Path::new(path)).unwrap().members;
        assert_eq!(member("/a/test.db"), [Path::new("/fast/+a+test.db.tier")]);
        assert_ne!(member("/a/test.db"), member("/b/test.db"));
    }

    #[test]
    fn a_path_that_makes_no_name_stays_plain() {
        for path in ["/a/x,y.db".to_owned(), format!("/{}", "d/".repeat(200))] {
            assert!(fast_of(Path::new("/fast"), Path::new(&path)).is_none(), "{path}");
        }
    }
}

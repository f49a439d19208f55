//! The names of one database and its directory, and what of it is there: which step of attaching or
//! detaching was the last.
//!
//! A path is resolved once, in [`Layout::of`]: everything after it is done by names relative to the
//! directories that are held open then. Only the store and SQLite are given paths; root lets them
//! work with the rights of the files' owner (`rights.rs`).
//!
//! Looking changes nothing, and opens no file that may be a plain database: closing it would drop
//! the locks that this process's other connections have on it.
//!
//! Invariant: the answer is only good while [`Transition`] is held; without it another process may
//! be at work.
//!
//! Read next: `attach.rs` and `detach.rs`, whose steps lead from one state to the next.

use super::{ofd, record};
use crate::error::PlaceError;
use crate::files::{DB, JOURNAL, STAMP, WAL};
use crate::rights::Rights;
use crate::statistics::{STATISTICS, STATISTICS_NEW};
use parking_lot::Mutex;
use rustix::fs::{Gid, Uid};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tiersmith_dir::{Dir, Found, Kind};

/// What the directory's name adds to the database's.
pub const HOME_SUFFIX: &str = "-tiersmith";
/// Where a stock SQLite looks for the WAL of `db`: a bar, or the WAL itself while SQLite folds it.
pub(super) const STOCK_WAL: &str = "db-wal";
/// Where it looks for the journal.
pub(super) const STOCK_JOURNAL: &str = "db-journal";
/// Index of the WAL that the stock VFS makes when it folds.
pub(super) const SHM: &str = "db-shm";
/// The attachment file.
pub(super) const ATTACHMENT: &str = "attachment";
/// The attachment file while it is written.
pub(super) const ATTACHMENT_NEW: &str = "attachment.new";
/// The stub while it is written.
pub(super) const STUB_NEW: &str = "stub.new";
/// That `detach_keeping_both` is at work, or was cut (`keep_both.rs`).
pub(super) const KEEPING: &str = "keep-both";
/// The same while it is written.
pub(super) const KEEPING_NEW: &str = "keep-both.new";
/// First bytes of a rollback journal's header.
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// More names than anybody who works with it leaves in the directory.
const NAMES_MAX: usize = 10_000;
/// How long another process's transition, or a stock connection that just looks at the stub, is
/// waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// The names of one database, in directories that are held open.
#[derive(Debug)]
pub(super) struct Layout {
    /// Canonical path of the database.
    pub(super) database: PathBuf,
    /// That of the directory of an attached database.
    pub(super) home: PathBuf,
    /// The directory the database is in.
    pub(super) dir: Arc<Dir>,
    /// The database's name in it.
    pub(super) name: OsString,
    /// That of the directory of an attached database.
    home_name: OsString,
    /// Whose rights root works with.
    pub(super) rights: Rights,
    /// The directory of an attached database, as it was when the state was last looked at.
    inside: Mutex<Option<Arc<Dir>>>,
}

/// What is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// A plain database, or nothing.
    Plain,
    /// A plain database, and a directory without one: attaching or detaching was cut.
    Leftover,
    /// A plain database that has a second name in the directory: attaching was cut before the stub.
    HalfAttached,
    /// The stub, the database in the directory, and the store's note.
    Attached,
    /// As attached, without the store's note: everything is in the directory, detaching was cut.
    HalfDetached,
    /// The stub only.
    HomeMissing,
    /// A directory with the database, and nothing at the path, or an empty file.
    StubMissing,
    /// Two databases.
    Two,
}

impl Layout {
    /// Of the database at `path`, links followed where they are trusted. `None` when the path
    /// cannot be one of a database file.
    ///
    /// # Errors
    /// What the file system says, and [`PlaceError::Rights`] where root is led astray.
    pub(super) fn of(path: &Path) -> Result<Option<Self>, PlaceError> {
        let (dir, name) = match Dir::holding_target(path) {
            Ok(found) => found,
            // SQLite says what is wrong with the path.
            Err(e)
                if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                return Ok(None);
            }
            // It ends in `..`, or is a root.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => return Ok(None),
            // Not the kernel's answer, but that of who looked at the way.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && e.raw_os_error().is_none() => {
                let database = path.to_path_buf();
                return Err(PlaceError::Rights { database, why: e.to_string() });
            }
            Err(e) => return Err(PlaceError::io("cannot resolve", path)(e)),
        };
        let parent = dir.canonical_path().map_err(PlaceError::io("cannot resolve", path))?;
        let home_name = with(&name, HOME_SUFFIX);
        let (database, home) = (parent.join(&name), parent.join(&home_name));
        let rights = Rights::of(&dir, Path::new(&name), Path::new(&home_name), &database)?;
        // Named in messages by its canonical path.
        let handle =
            dir.as_fd().try_clone_to_owned().map_err(PlaceError::io("cannot open", &parent))?;
        let dir = Arc::new(Dir::from_handle(handle, &parent));
        Ok(Some(Self { database, home, dir, name, home_name, rights, inside: Mutex::new(None) }))
    }

    /// The directory of an attached database.
    ///
    /// # Errors
    /// There was none when the state was looked at.
    pub(super) fn inside(&self) -> Result<Arc<Dir>, PlaceError> {
        let inside = self.inside.lock().clone();
        inside.ok_or_else(|| {
            PlaceError::io("cannot open", &self.home)(io::ErrorKind::NotFound.into())
        })
    }

    /// Makes it, for whoever owns `db`.
    ///
    /// # Errors
    /// What the file system says: it is there.
    pub(super) fn make_home(&self, db: &File) -> Result<(), PlaceError> {
        let failed = PlaceError::io("cannot make the directory", &self.home);
        let made = self.dir.make_dir(&self.home_name, 0o700, None).map_err(failed)?;
        give_owner(&made, db, &self.home);
        *self.inside.lock() = Some(Arc::new(made));
        Ok(())
    }

    /// Looks anew which directory that is.
    fn enter(&self) -> Result<Option<Arc<Dir>>, PlaceError> {
        let failed = |e| PlaceError::io("cannot open", &self.home)(e);
        let mut inside = self.inside.lock();
        let found = self.dir.look(&self.home_name).map_err(failed)?;
        let Some(found) = found.filter(|found| found.kind == Kind::Directory) else {
            *inside = None;
            return Ok(None);
        };
        if let Some(held) = &*inside
            && held.found().map_err(failed)?.same_file(&found)
        {
            return Ok(Some(held.clone()));
        }
        let dir = self.dir.sub(&self.home_name).map_err(failed)?;
        let found = dir.found().map_err(failed)?;
        if self.rights.are_roots() && !found.is_roots() {
            let why = format!(
                "{} belongs to user {}, and the database to root",
                self.home.display(),
                found.user
            );
            return Err(PlaceError::Rights { database: self.database.clone(), why });
        }
        let dir = Arc::new(dir);
        *inside = Some(dir.clone());
        Ok(Some(dir))
    }

    /// The path of `name` in the directory, for messages.
    pub(super) fn in_home(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    /// The name SQLite gives the file of this ending beside the database.
    pub(super) fn beside_name(&self, ending: &str) -> OsString {
        with(&self.name, ending)
    }

    /// Its path.
    pub(super) fn beside(&self, ending: &str) -> PathBuf {
        self.database.with_file_name(self.beside_name(ending))
    }

    /// What is at the database's path.
    pub(super) fn at_path(&self) -> Result<Option<Found>, PlaceError> {
        look(&self.dir, &self.name)
    }

    /// What is there.
    ///
    /// # Errors
    /// What the file system says, and [`PlaceError::NotAFile`].
    pub(super) fn state(&self) -> Result<State, PlaceError> {
        let at_path = self.at_path()?;
        let Some(inside) = self.enter()? else {
            return Ok(match at_path {
                Some(found) if found.is_file() && self.holds_stub(&found)? => State::HomeMissing,
                _ => State::Plain,
            });
        };
        let db = look(&inside, DB)?.filter(Found::is_file);
        let noted = look(&inside, tiersmith_store::home::ATTACHMENT)?.is_some();
        Ok(match (at_path, db) {
            (Some(found), _) if !found.is_file() => {
                return Err(PlaceError::NotAFile { database: self.database.clone() });
            }
            (Some(found), Some(db)) if found.same_file(&db) => State::HalfAttached,
            (Some(found), db) if self.holds_stub(&found)? => match (db, noted) {
                (None, _) => State::HomeMissing,
                (Some(_), true) => State::Attached,
                (Some(_), false) => State::HalfDetached,
            },
            // A stock SQLite that finds nothing makes an empty file.
            (Some(found), Some(_)) if found.size == 0 => State::StubMissing,
            (Some(_), Some(_)) => State::Two,
            (None, Some(_)) => State::StubMissing,
            (_, None) => State::Leftover,
        })
    }

    fn holds_stub(&self, found: &Found) -> Result<bool, PlaceError> {
        if !record::may_be_stub(found.size) {
            return Ok(false);
        }
        let mut head = [0; 64];
        let read = self.dir.open_file(&self.name).and_then(|f| f.read_at(&mut head, 0));
        let read = read.map_err(PlaceError::io("cannot read", &self.database))?;
        Ok(record::is_stub(&head[..read]))
    }

    /// Removes the directory and what Tiersmith and SQLite made in it. The database in it only if
    /// it is the one at the path too.
    ///
    /// # Errors
    /// [`PlaceError::NotOurs`] when something else is in it, [`PlaceError::NotFolded`] for a WAL or
    /// journal with changes; nothing is removed then. Else what the file system says.
    ///
    /// # Durability
    /// Durable on return.
    pub(super) fn remove_home(&self) -> Result<(), PlaceError> {
        use tiersmith_store::home::RESERVED;
        let at_path = self.at_path()?;
        let inside = self.inside()?;
        let names = inside.names(NAMES_MAX).map_err(PlaceError::io("cannot list", &self.home))?;
        let (mut ours, mut others) = (Vec::new(), Vec::new());
        for name in names {
            let is_the_one =
                |found: Found| at_path.is_some_and(|at_path| at_path.same_file(&found));
            let known = match name.to_str() {
                Some(DB) => look(&inside, DB)?.is_some_and(is_the_one),
                Some(WAL) => is_empty(&inside, WAL, false)?,
                Some(JOURNAL) => is_empty(&inside, JOURNAL, true)?,
                Some(STOCK_WAL) => {
                    is_bar(&inside, STOCK_WAL)? || is_empty(&inside, STOCK_WAL, false)?
                }
                Some(STOCK_JOURNAL) => {
                    is_bar(&inside, STOCK_JOURNAL)? || is_empty(&inside, STOCK_JOURNAL, true)?
                }
                Some(
                    SHM | ATTACHMENT | ATTACHMENT_NEW | STUB_NEW | STAMP | KEEPING | KEEPING_NEW,
                ) => true,
                Some(STATISTICS | STATISTICS_NEW) => !is_bar(&inside, &name)?,
                Some(name) => RESERVED.contains(&name),
                None => false,
            };
            if known { ours.push(name) } else { others.push(name.display().to_string()) }
        }
        if !others.is_empty() {
            others.sort();
            return Err(PlaceError::NotOurs { home: self.home.clone(), names: others.join(", ") });
        }
        // The second name of the database first: while it is there the directory is known as half
        // attached. Last what `detach_keeping_both` has to report, should it be cut here.
        ours.sort_by_key(|name| (name == KEEPING, name != DB));
        for name in ours {
            if name == KEEPING {
                sync_dir(&inside)?;
            }
            let removed = if is_bar(&inside, &name)? {
                inside.remove_dir(&name)
            } else {
                inside.remove(&name)
            };
            removed.map_err(PlaceError::io("cannot remove", &inside.path_of(&name)))?;
        }
        let removed = self.dir.remove_dir(&self.home_name);
        removed.map_err(PlaceError::io("cannot remove", &self.home))?;
        *self.inside.lock() = None;
        sync_dir(&self.dir)
    }

    /// Fails where SQLite would find something else than files at the names of WAL, journal and
    /// index: it would wait for a pipe, and for ever.
    ///
    /// # Errors
    /// [`PlaceError::Strange`], and what the file system says.
    pub(super) fn refuse_strange<N: AsRef<OsStr>>(
        &self,
        dir: &Dir,
        names: &[N],
    ) -> Result<(), PlaceError> {
        for name in names {
            let Some(found) = look(dir, name)? else { continue };
            let foreign = self.rights.are_roots() && !found.is_roots();
            if !found.is_file() || foreign {
                let what =
                    if foreign { "belongs to another account" } else { "is no ordinary file" };
                return Err(PlaceError::Strange { path: dir.path_of(name), what });
            }
        }
        Ok(())
    }

    /// Fails unless the WAL and journal of these names are absent, empty or dead.
    ///
    /// # Errors
    /// [`PlaceError::NotFolded`].
    pub(super) fn check_folded(dir: &Dir, wal: &OsStr, journal: &OsStr) -> Result<(), PlaceError> {
        for (name, is_journal) in [(wal, false), (journal, true)] {
            if !is_empty(dir, name, is_journal)? {
                return Err(PlaceError::NotFolded { path: dir.path_of(name) });
            }
        }
        Ok(())
    }
}

/// The owner and group of `db` for what was made, where the process may give them.
pub(super) fn give_owner(made: impl AsFd, db: &File, path: &Path) {
    let Ok(found) = db.metadata() else { return };
    let (user, group) = (Uid::from_raw(found.uid()), Gid::from_raw(found.gid()));
    let flags = rustix::fs::AtFlags::EMPTY_PATH;
    if let Err(e) = rustix::fs::chownat(made, "", Some(user), Some(group), flags) {
        log::debug!("{}: keeps its owner: {e}", path.display());
    }
}

/// Makes the file `name`, synced, in place of what has the name.
///
/// # Durability
/// Its bytes are durable on return, its name is not.
pub(super) fn make_anew(
    dir: &Dir,
    name: impl AsRef<OsStr>,
    contents: &[u8],
    mode: u32,
) -> Result<File, PlaceError> {
    let name = name.as_ref();
    remove(dir, name)?;
    let write = || {
        let mut file = dir.make_file(name, mode, None)?;
        file.write_all(contents)?;
        file.sync_all().map(|()| file)
    };
    write().map_err(PlaceError::io("cannot write", &dir.path_of(name)))
}

/// Puts a file at `name`, all or nothing, by way of `new`.
///
/// # Durability
/// Durable on return.
pub(super) fn replace(dir: &Dir, new: &str, name: &str, contents: &[u8]) -> Result<(), PlaceError> {
    drop(make_anew(dir, new, contents, 0o600)?);
    dir.rename(new, dir, name).map_err(PlaceError::io("cannot write", &dir.path_of(new)))?;
    sync_dir(dir)
}

/// Removes a name that is no directory's, if it is there.
pub(super) fn remove(dir: &Dir, name: impl AsRef<OsStr>) -> Result<(), PlaceError> {
    let name = name.as_ref();
    match dir.remove(name) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(PlaceError::io("cannot remove", &dir.path_of(name))(e))
        }
        _ => Ok(()),
    }
}

/// Whether a WAL or journal holds nothing. A journal whose first byte is zero is dead to SQLite
/// (journal_mode PERSIST ends so).
pub(super) fn is_empty(
    dir: &Dir,
    name: impl AsRef<OsStr>,
    journal: bool,
) -> Result<bool, PlaceError> {
    let name = name.as_ref();
    let Some(found) = look(dir, name)? else { return Ok(true) };
    if found.is_file() && found.size == 0 {
        return Ok(true);
    }
    if !journal || !found.is_file() {
        return Ok(false);
    }
    let mut first = [1];
    let read = dir.open_file(name).and_then(|f| f.read_at(&mut first, 0));
    read.map_err(PlaceError::io("cannot read", &dir.path_of(name)))?;
    Ok(first == [0])
}

/// Whether `name` is a directory's.
pub(super) fn is_bar(dir: &Dir, name: impl AsRef<OsStr>) -> Result<bool, PlaceError> {
    Ok(look(dir, name)?.is_some_and(|found| found.kind == Kind::Directory))
}

/// Whether the journal is hot and names a super-journal: its last eight bytes are the magic number
/// of the header then.
///
/// # Errors
/// What the file system says.
pub(super) fn names_super_journal(dir: &Dir, name: &str) -> Result<bool, PlaceError> {
    if is_empty(dir, name, true)? {
        return Ok(false);
    }
    let path = dir.path_of(name);
    let file = dir.open_file(name).map_err(PlaceError::io("cannot open", &path))?;
    let len = file.metadata().map_err(PlaceError::io("cannot stat", &path))?.len();
    let mut last = [0; 8];
    if len > 16 {
        file.read_exact_at(&mut last, len - 8).map_err(PlaceError::io("cannot read", &path))?;
    }
    Ok(last == JOURNAL_MAGIC)
}

fn with(name: &OsStr, ending: &str) -> OsString {
    let mut name = name.to_os_string();
    name.push(ending);
    name
}

/// What the file system says of `name`, itself; `None` when nothing has it.
pub(super) fn look(dir: &Dir, name: impl AsRef<OsStr>) -> Result<Option<Found>, PlaceError> {
    let name = name.as_ref();
    dir.look(name).map_err(PlaceError::io("cannot stat", &dir.path_of(name)))
}

/// Tells files apart within one boot.
fn key(found: &Found) -> (u64, u64) {
    (found.device, found.inode)
}

/// That of an open file.
fn key_of(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

/// Whether `name` is the open file's.
pub(super) fn is_at(dir: &Dir, name: impl AsRef<OsStr>, file: &File) -> io::Result<bool> {
    let found = dir.look(name)?;
    let file = key_of(&file.metadata()?);
    Ok(found.is_some_and(|found| key(&found) == file))
}

/// Makes the names in a directory durable.
pub(super) fn sync_dir(dir: &Dir) -> Result<(), PlaceError> {
    dir.sync().map_err(PlaceError::io("cannot sync the directory", dir.path()))
}

/// The right to attach or detach one database: SQLite's locks on whatever file is at its path. So
/// neither another process of ours nor a stock SQLite is between two steps, and a stock SQLite that
/// has the file open gets SQLITE_BUSY.
#[derive(Debug)]
pub(super) struct Transition {
    pub(super) file: ofd::LockFile,
}

impl Transition {
    /// Takes it for the file at the layout's path.
    ///
    /// # Errors
    /// [`PlaceError::Busy`] when somebody has a lock on it, or this process has it open;
    /// [`PlaceError::ReadOnly`].
    pub(super) fn begin(layout: &Layout) -> Result<Self, PlaceError> {
        let path = &layout.database;
        let end = Instant::now() + PATIENCE;
        loop {
            let found = layout.at_path()?.ok_or_else(|| {
                PlaceError::io("cannot stat", path)(io::ErrorKind::NotFound.into())
            })?;
            if !found.is_file() {
                return Err(PlaceError::NotAFile { database: path.clone() });
            }
            if !layout.holds_stub(&found)? && open_in_this_process(key(&found)) {
                // Not even opened here: closing it would drop the locks of that connection.
                let who = "this process has it open without Tiersmith's fast tier".to_owned();
                return Err(PlaceError::Busy { database: path.clone(), who });
            }
            let file = ofd::LockFile::open(&layout.dir, &layout.name);
            let file = file.map_err(PlaceError::io("cannot open", path))?;
            match ofd::lock(&file) {
                Ok(()) => {
                    let current = is_at(&layout.dir, &layout.name, &file);
                    if current.map_err(PlaceError::io("cannot stat", path))? {
                        return Ok(Self { file });
                    }
                    // Somebody finished a transition between opening and locking.
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if Instant::now() >= end {
                        let who = "another connection has a lock on it".to_owned();
                        return Err(PlaceError::Busy { database: path.clone(), who });
                    }
                }
                Err(e) => return Err(PlaceError::io("cannot lock", path)(e)),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Whether this process has the file open: then closing another opening of it would drop the locks
/// that SQLite has on it.
pub(super) fn in_use_here(found: &Found) -> bool {
    open_in_this_process(key(found))
}

/// Whether a descriptor of this process is open on the file.
fn open_in_this_process(file: (u64, u64)) -> bool {
    let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") else { return false };
    descriptors.flatten().any(|fd| std::fs::metadata(fd.path()).is_ok_and(|m| key_of(&m) == file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(dir: &Path) -> Layout {
        Layout::of(&dir.join("app.db")).unwrap().unwrap()
    }

    #[test]
    fn what_is_there_is_told_from_the_names_alone() {
        let dir = tempfile::tempdir().unwrap();
        let at = layout(dir.path());
        assert_eq!(at.state().unwrap(), State::Plain);
        std::fs::write(&at.database, vec![1; 4096]).unwrap();
        assert_eq!(at.state().unwrap(), State::Plain);
        std::fs::create_dir(&at.home).unwrap();
        assert_eq!(at.state().unwrap(), State::Leftover);
        std::fs::hard_link(&at.database, at.in_home(DB)).unwrap();
        assert_eq!(at.state().unwrap(), State::HalfAttached);
        std::fs::remove_file(&at.database).unwrap();
        assert_eq!(at.state().unwrap(), State::StubMissing);
        std::fs::write(&at.database, "").unwrap();
        assert_eq!(at.state().unwrap(), State::StubMissing);
        std::fs::write(&at.database, record::stub(&at.database, &at.home, &Default::default()))
            .unwrap();
        assert_eq!(at.state().unwrap(), State::HalfDetached);
        std::fs::write(at.home.join(".tiersmith"), "note").unwrap();
        assert_eq!(at.state().unwrap(), State::Attached);
        std::fs::write(&at.database, vec![1; 4096]).unwrap();
        assert_eq!(at.state().unwrap(), State::Two);
        std::fs::remove_dir_all(&at.home).unwrap();
        std::fs::write(&at.database, record::stub(&at.database, &at.home, &Default::default()))
            .unwrap();
        assert_eq!(at.state().unwrap(), State::HomeMissing);
    }

    #[test]
    fn a_directory_with_something_else_in_it_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let at = layout(dir.path());
        std::fs::write(&at.database, "x").unwrap();
        std::fs::create_dir(&at.home).unwrap();
        for name in [ATTACHMENT, "photo.jpg", "db-shm"] {
            std::fs::write(at.in_home(name), "x").unwrap();
        }
        let _ = at.state().unwrap();
        let message = at.remove_home().unwrap_err().to_string();
        assert!(message.contains("photo.jpg") && !message.contains("db-shm"), "{message}");
        assert_eq!(std::fs::read_dir(&at.home).unwrap().count(), 3);
        std::fs::remove_file(at.in_home("photo.jpg")).unwrap();
        std::fs::write(at.in_home(DB), "another database").unwrap();
        assert!(at.remove_home().is_err());
        std::fs::remove_file(at.in_home(DB)).unwrap();
        std::fs::write(at.in_home(WAL), "changes").unwrap();
        assert!(at.remove_home().is_err());
        std::fs::write(at.in_home(WAL), "").unwrap();
        at.remove_home().unwrap();
        assert!(!at.home.exists() && at.database.exists());
    }

    #[test]
    fn a_dead_journal_counts_as_empty_and_a_hot_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, inside) = (dir.path().join("j"), Dir::open(dir.path()).unwrap());
        let mut bytes = vec![0; 100];
        std::fs::write(&journal, &bytes).unwrap();
        assert!(is_empty(&inside, "j", true).unwrap() && !is_empty(&inside, "j", false).unwrap());
        bytes[..8].copy_from_slice(&JOURNAL_MAGIC);
        std::fs::write(&journal, &bytes).unwrap();
        assert!(
            !is_empty(&inside, "j", true).unwrap() && !names_super_journal(&inside, "j").unwrap()
        );
        bytes[92..].copy_from_slice(&JOURNAL_MAGIC);
        std::fs::write(&journal, &bytes).unwrap();
        assert!(names_super_journal(&inside, "j").unwrap());
    }

    #[test]
    fn the_path_is_the_same_through_links_and_dots() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&real, real.join("link")).unwrap();
        let expected = real.join("app.db");
        for path in ["link/app.db", "./app.db", "link/./../app.db"] {
            let found = Layout::of(&real.join(path)).unwrap().map(|l| l.database);
            // `link/..` is the parent of what the link leads to.
            let parent = path.contains("..").then(|| real.parent().unwrap().join("app.db"));
            assert_eq!(found, Some(parent.unwrap_or(expected.clone())), "{path}");
        }
        std::fs::write(&expected, "x").unwrap();
        std::os::unix::fs::symlink(&expected, real.join("other.db")).unwrap();
        assert_eq!(Layout::of(&real.join("other.db")).unwrap().unwrap().database, expected);
    }
}

//! The names of one database and its directory, and what of it is there: which step of attaching or detaching
//! was the last.
//!
//! Looking changes nothing, and opens no file that may be a plain database: closing it would drop the locks
//! that this process's other connections have on it.
//!
//! Invariant: the answer is only good while [`Transition`] is held; without it another process may be at
//! work.
//!
//! Read next: `attach.rs` and `detach.rs`, whose steps lead from one state to the next.

use super::error::PlaceError;
use super::{ofd, record};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What the directory's name adds to the database's.
pub const HOME_SUFFIX: &str = "-tiersmith";
/// The database in its directory.
pub(super) const DB: &str = "db";
/// Its WAL, under a name that no SQLite looks for.
pub(super) const WAL: &str = "wal";
/// Its rollback journal, likewise.
pub(super) const JOURNAL: &str = "journal";
/// Where a stock SQLite looks for the WAL of `db`: a bar, or the WAL itself while SQLite folds it.
pub(super) const STOCK_WAL: &str = "db-wal";
/// Where it looks for the journal.
pub(super) const STOCK_JOURNAL: &str = "db-journal";
/// Index of the WAL that the stock VFS makes when it folds.
const SHM: &str = "db-shm";
/// The attachment file.
pub(super) const ATTACHMENT: &str = "attachment";
/// The attachment file while it is written.
const ATTACHMENT_NEW: &str = "attachment.new";
/// The stub while it is written.
pub(super) const STUB_NEW: &str = "stub.new";
/// What `db` looked like when it was last written, if it passes (`stamp.rs`).
pub(super) const STAMP: &str = "stamp";
/// That `detach_keeping_both` is at work, or was cut (`keep_both.rs`).
pub(super) const KEEPING: &str = "keep-both";
/// The same while it is written.
pub(super) const KEEPING_NEW: &str = "keep-both.new";
/// What the process that has the database open counted (`statistics.rs`).
pub(super) const STATISTICS: &str = "statistics";
/// The same while it is written.
pub(super) const STATISTICS_NEW: &str = "statistics.new";
/// First bytes of a rollback journal's header.
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// How long another process's transition, or a stock connection that just looks at the stub, is waited for.
const PATIENCE: Duration = Duration::from_millis(500);

/// The paths of one database.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    /// Canonical path of the database.
    pub(super) database: PathBuf,
    /// The directory it is in.
    pub(super) parent: PathBuf,
    /// The directory of an attached database.
    pub(super) home: PathBuf,
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
    /// Of the database at `path`, links followed. `None` when the path cannot be one of a database file.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn of(path: &Path) -> Result<Option<Self>, PlaceError> {
        let canonical = match std::fs::canonicalize(path) {
            Ok(canonical) => canonical,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let Some(name) = path.file_name() else { return Ok(None) };
                if path.symlink_metadata().is_ok() {
                    // A link to nothing: SQLite makes the file it points to. That one has no directory,
                    // unless its name is given.
                    return Ok(None);
                }
                let parent = match path.parent() {
                    Some(parent) if !parent.as_os_str().is_empty() => parent,
                    _ => Path::new("."),
                };
                match std::fs::canonicalize(parent) {
                    Ok(parent) => parent.join(name),
                    // SQLite says what is wrong with the path.
                    Err(_) => return Ok(None),
                }
            }
            Err(e) => return Err(PlaceError::io("cannot resolve", path)(e)),
        };
        let (Some(parent), Some(name)) = (canonical.parent(), canonical.file_name()) else { return Ok(None) };
        let home = parent.join(with(name, HOME_SUFFIX));
        Ok(Some(Self { parent: parent.to_path_buf(), home, database: canonical }))
    }

    pub(super) fn in_home(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    /// The file SQLite puts beside the database under this ending.
    pub(super) fn beside(&self, ending: &str) -> PathBuf {
        self.parent.join(with(self.database.file_name().unwrap_or_default(), ending))
    }

    /// What is there.
    ///
    /// # Errors
    /// What the file system says, and [`PlaceError::NotAFile`].
    pub(super) fn state(&self) -> Result<State, PlaceError> {
        let at_path = stat(&self.database)?;
        let home = stat(&self.home)?.filter(Metadata::is_dir);
        if home.is_none() {
            return Ok(match at_path {
                Some(found) if found.is_file() && self.holds_stub(&found)? => State::HomeMissing,
                _ => State::Plain,
            });
        }
        let db = stat(&self.in_home(DB))?.filter(Metadata::is_file);
        let noted = stat(&self.home.join(tiersmith_store::home::ATTACHMENT))?.is_some();
        Ok(match (at_path, db) {
            (Some(found), _) if !found.is_file() => {
                return Err(PlaceError::NotAFile { database: self.database.clone() });
            }
            (Some(found), Some(db)) if key(&found) == key(&db) => State::HalfAttached,
            (Some(found), db) if self.holds_stub(&found)? => match (db, noted) {
                (None, _) => State::HomeMissing,
                (Some(_), true) => State::Attached,
                (Some(_), false) => State::HalfDetached,
            },
            // A stock SQLite that finds nothing makes an empty file.
            (Some(found), Some(_)) if found.len() == 0 => State::StubMissing,
            (Some(_), Some(_)) => State::Two,
            (None, Some(_)) => State::StubMissing,
            (_, None) => State::Leftover,
        })
    }

    fn holds_stub(&self, found: &Metadata) -> Result<bool, PlaceError> {
        if !record::may_be_stub(found.len()) {
            return Ok(false);
        }
        let mut head = [0; 64];
        let read = File::open(&self.database).and_then(|f| f.read_at(&mut head, 0));
        let read = read.map_err(PlaceError::io("cannot read", &self.database))?;
        Ok(record::is_stub(&head[..read]))
    }

    /// Removes the directory and what Tiersmith and SQLite made in it. The database in it only if it is the
    /// one at the path too.
    ///
    /// # Errors
    /// [`PlaceError::NotOurs`] when something else is in it, [`PlaceError::NotFolded`] for a WAL or journal
    /// with changes; nothing is removed then. Else what the file system says.
    ///
    /// # Durability
    /// Durable on return.
    pub(super) fn remove_home(&self) -> Result<(), PlaceError> {
        use tiersmith_store::home::RESERVED;
        let at_path = stat(&self.database)?.map(|m| key(&m));
        let entries = std::fs::read_dir(&self.home).map_err(PlaceError::io("cannot list", &self.home))?;
        let (mut ours, mut others) = (Vec::new(), Vec::new());
        for entry in entries {
            let entry = entry.map_err(PlaceError::io("cannot list", &self.home))?;
            let name = entry.file_name();
            let known = match name.to_str() {
                Some(DB) => stat(&entry.path())?.map(|m| key(&m)) == at_path,
                Some(WAL) => is_empty(&entry.path(), false)?,
                Some(JOURNAL) => is_empty(&entry.path(), true)?,
                Some(STOCK_WAL) => is_bar(&entry.path())? || is_empty(&entry.path(), false)?,
                Some(STOCK_JOURNAL) => is_bar(&entry.path())? || is_empty(&entry.path(), true)?,
                Some(SHM | ATTACHMENT | ATTACHMENT_NEW | STUB_NEW | STAMP | KEEPING | KEEPING_NEW) => true,
                Some(STATISTICS | STATISTICS_NEW) => !entry.path().is_dir(),
                Some(name) => RESERVED.contains(&name),
                None => false,
            };
            if known { ours.push(entry.path()) } else { others.push(name.display().to_string()) }
        }
        if !others.is_empty() {
            others.sort();
            return Err(PlaceError::NotOurs { home: self.home.clone(), names: others.join(", ") });
        }
        // The second name of the database first: while it is there the directory is known as half attached.
        // Last what `detach_keeping_both` has to report, should it be cut here.
        let is = |path: &Path, name| path.file_name() == Some(OsStr::new(name));
        ours.sort_by_key(|path| (is(path, KEEPING), !is(path, DB)));
        for path in ours {
            if is(&path, KEEPING) {
                sync_dir(&self.home)?;
            }
            let removed =
                if is_bar(&path)? { std::fs::remove_dir(&path) } else { std::fs::remove_file(&path) };
            removed.map_err(PlaceError::io("cannot remove", &path))?;
        }
        std::fs::remove_dir(&self.home).map_err(PlaceError::io("cannot remove", &self.home))?;
        sync_dir(&self.parent)
    }

    /// Fails unless the WAL and journal at these paths are absent, empty or dead.
    ///
    /// # Errors
    /// [`PlaceError::NotFolded`].
    pub(super) fn check_folded(wal: &Path, journal: &Path) -> Result<(), PlaceError> {
        for (path, is_journal) in [(wal, false), (journal, true)] {
            if !is_empty(path, is_journal)? {
                return Err(PlaceError::NotFolded { path: path.to_path_buf() });
            }
        }
        Ok(())
    }

    pub(super) fn attachment_new(&self) -> PathBuf {
        self.in_home(ATTACHMENT_NEW)
    }
}

/// Whether a WAL or journal holds nothing. A journal whose first byte is zero is dead to SQLite (journal_mode
/// PERSIST ends so).
pub(super) fn is_empty(path: &Path, journal: bool) -> Result<bool, PlaceError> {
    let Some(found) = stat(path)? else { return Ok(true) };
    if found.is_file() && found.len() == 0 {
        return Ok(true);
    }
    if !journal || !found.is_file() {
        return Ok(false);
    }
    let mut first = [1];
    let read = File::open(path).and_then(|f| f.read_at(&mut first, 0));
    read.map_err(PlaceError::io("cannot read", path))?;
    Ok(first == [0])
}

/// Whether a directory is at `path`.
pub(super) fn is_bar(path: &Path) -> Result<bool, PlaceError> {
    Ok(stat(path)?.is_some_and(|found| found.is_dir()))
}

/// Whether the journal at `path` is hot and names a super-journal: its last eight bytes are the magic number
/// of the header then.
///
/// # Errors
/// What the file system says.
pub(super) fn names_super_journal(path: &Path) -> Result<bool, PlaceError> {
    if is_empty(path, true)? {
        return Ok(false);
    }
    let file = File::open(path).map_err(PlaceError::io("cannot open", path))?;
    let len = file.metadata().map_err(PlaceError::io("cannot stat", path))?.len();
    let mut last = [0; 8];
    if len > 16 {
        file.read_exact_at(&mut last, len - 8).map_err(PlaceError::io("cannot read", path))?;
    }
    Ok(last == JOURNAL_MAGIC)
}

fn with(name: &OsStr, ending: &str) -> OsString {
    let mut name = name.to_os_string();
    name.push(ending);
    name
}

/// What the file system says of `path`, links not followed; `None` when nothing has the name.
pub(super) fn stat(path: &Path) -> Result<Option<Metadata>, PlaceError> {
    match std::fs::symlink_metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(PlaceError::io("cannot stat", path)(e)),
    }
}

/// Tells files apart within one boot.
pub(super) fn key(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Makes the names in a directory durable.
pub(super) fn sync_dir(path: &Path) -> Result<(), PlaceError> {
    File::open(path).and_then(|d| d.sync_all()).map_err(PlaceError::io("cannot sync the directory", path))
}

/// The right to attach or detach one database: SQLite's locks on whatever file is at its path. So neither
/// another process of ours nor a stock SQLite is between two steps, and a stock SQLite that has the file open
/// gets SQLITE_BUSY.
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
            let found = std::fs::metadata(path).map_err(PlaceError::io("cannot stat", path))?;
            if !found.is_file() {
                return Err(PlaceError::NotAFile { database: path.clone() });
            }
            if !layout.holds_stub(&found)? && open_in_this_process(key(&found)) {
                // Not even opened here: closing it would drop the locks of that connection.
                let who = "this process has it open without Tiersmith's fast tier".to_owned();
                return Err(PlaceError::Busy { database: path.clone(), who });
            }
            let file = ofd::LockFile::open(path).map_err(PlaceError::io("cannot open", path))?;
            match ofd::lock(&file) {
                Ok(()) => {
                    let locked = file.metadata().map_err(PlaceError::io("cannot stat", path))?;
                    if std::fs::metadata(path).is_ok_and(|now| key(&now) == key(&locked)) {
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
pub(super) fn in_use_here(found: &Metadata) -> bool {
    open_in_this_process(key(found))
}

/// Whether a descriptor of this process is open on the file.
fn open_in_this_process(file: (u64, u64)) -> bool {
    let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") else { return false };
    descriptors.flatten().any(|fd| std::fs::metadata(fd.path()).is_ok_and(|m| key(&m) == file))
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
        std::fs::write(&at.database, record::stub(&at.database, &at.home, &Default::default())).unwrap();
        assert_eq!(at.state().unwrap(), State::HalfDetached);
        std::fs::write(at.home.join(".tiersmith"), "note").unwrap();
        assert_eq!(at.state().unwrap(), State::Attached);
        std::fs::write(&at.database, vec![1; 4096]).unwrap();
        assert_eq!(at.state().unwrap(), State::Two);
        std::fs::remove_dir_all(&at.home).unwrap();
        std::fs::write(&at.database, record::stub(&at.database, &at.home, &Default::default())).unwrap();
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
        let journal = dir.path().join("j");
        let mut bytes = vec![0; 100];
        std::fs::write(&journal, &bytes).unwrap();
        assert!(is_empty(&journal, true).unwrap() && !is_empty(&journal, false).unwrap());
        bytes[..8].copy_from_slice(&JOURNAL_MAGIC);
        std::fs::write(&journal, &bytes).unwrap();
        assert!(!is_empty(&journal, true).unwrap() && !names_super_journal(&journal).unwrap());
        bytes[92..].copy_from_slice(&JOURNAL_MAGIC);
        std::fs::write(&journal, &bytes).unwrap();
        assert!(names_super_journal(&journal).unwrap());
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

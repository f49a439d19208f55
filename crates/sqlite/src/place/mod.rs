//! Where one SQLite database lives: attached to a fast tier, or plain.
//!
//! The home of an attached database is the directory `NAME-tiersmith` beside it. In it are the
//! database under the name `db`, its WAL and journal, the attachment file, and what the store keeps
//! there. At the database's own path lies the stub, which a stock SQLite refuses ("file is not a
//! database"), and where a stock SQLite looks for the WAL and the journal of `db` lie empty
//! directories, with which it refuses `db` too: promise 7 for a single file.
//!
//! ```text
//! /data/app.db              the stub, a text for people
//! /data/app.db-tiersmith/   db  wal  journal  attachment  statistics  .tiersmith
//!                           (stamp, with place=redo)
//!                           db-wal/  db-journal/     the bars
//! ```
//!
//! It is not the VFS: nothing here knows a page or a transaction. SQLite itself is called only
//! through [`Fold`].
//!
//! Invariants:
//! - One [`Place`] for a database in a process, however many connections it has.
//! - At every instant a stock SQLite sees the whole database or is refused, at the path and at
//!   `db`.
//! - A name that was not made here is never removed.
//! - Root has no more rights than the database's owner while names are made, opened or removed
//!   (`rights.rs`), and acts by names in directories that are held open.
//!
//! Read next: `layout.rs` for the states, `attach.rs` and `detach.rs` for the steps between them.

mod attach;
mod bars;
mod detach;
mod keep_both;
mod layout;
mod marker;
mod ofd;
mod record;
mod spec;
mod stamp;
mod status;
#[cfg(test)]
mod steps_test;
mod table;
mod tier_file;

pub use crate::error::PlaceError;
pub use crate::files::Role;
pub use crate::statistics::{CounterFigures, Statistics, TierFigures, WaitFigures};
pub use keep_both::KeptBoth;
pub use layout::HOME_SUFFIX;
pub use spec::{FastSpec, Placement, asks_for_sigbus, bound, profile};
pub use status::{Blocks, Standing, Status, attachment, statistics, status};

use crate::files::Files;
use crate::rights::Rights;
use crate::shared::Shared;
use layout::Layout;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tiersmith_store::{AttachedHome, SigbusWatch};

/// Opens the database file at the path with the stock VFS, rolls a hot journal back, checkpoints
/// and truncates its WAL, closes it. It is called with the database's path before attaching, and
/// with the path of `db` in the directory when detaching. It must not use this VFS: the database
/// would wait for itself.
pub type Fold<'a> = &'a dyn Fn(&Path) -> Result<(), String>;

/// What is wanted of a database that is being opened.
#[derive(Clone, Debug, Default)]
pub struct Want {
    /// Attach it to this tier if it is not attached; it must be this tier if it is.
    pub fast: Option<FastSpec>,
    /// Make the database when it is missing (and `fast` is given: a plain one SQLite makes itself).
    pub create: bool,
    /// It will only be read. An attached one is still opened for writing by the store.
    pub read_only: bool,
}

/// An attached database that is open in this process. With the last `Arc` the store is closed and
/// the database stays attached; files of the home must be dropped before it.
///
/// The fields are dropped in this order; `entry` last, so that another open waits until the store
/// has let go.
pub struct Place {
    /// For a `db` that passes.
    pub(crate) stamp: Option<stamp::Stamp>,
    /// A connection asked for SIGBUS to be explained.
    sigbus: OnceLock<SigbusWatch>,
    pub(crate) files: Files,
    /// What the VFS keeps for all connections of this database.
    pub(crate) shared: Shared,
    spec: FastSpec,
    /// The process that opened it.
    pub(crate) opener: u32,
    /// Holds SQLite's lock bytes of `db`.
    _lock: Option<ofd::LockFile>,
    _entry: table::Entry,
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place")
            .field("database", &self.files.database)
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

impl Place {
    /// The place of the database at `database`: attached already, or attached now because `want`
    /// has a tier. The same `Arc` for the same database in one process. `None`: it is plain, open
    /// it with the stock VFS.
    ///
    /// What a cut left of an earlier attach or detach is finished or taken back first.
    ///
    /// # Errors
    /// Each reason has its own; nothing was changed then.
    ///
    /// # Durability
    /// The attachment is durable on return.
    pub fn open(
        database: &Path,
        want: &Want,
        fold: Fold<'_>,
    ) -> Result<Option<Arc<Place>>, PlaceError> {
        let layout = match Layout::of(database) {
            Ok(Some(layout)) => layout,
            Ok(None) => return Ok(None),
            // A plain one is none of this module's, wherever it is.
            Err(PlaceError::Rights { .. }) if want.fast.is_none() && !has_home(database) => {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        table::open(&layout.database, want, |entry| {
            let plain = layout.state()? == layout::State::Plain;
            let wanted = want.fast.as_ref().filter(|_| plain && !want.read_only);
            if !plain || want.fast.is_some() {
                // Before anything is made for it: these may be refused.
                drop(layout.rights.take()?);
            }
            let _made = match wanted {
                Some(fast) if want.create || layout.at_path()?.is_some() => {
                    tier_file::prepare(&layout, fast)?
                }
                None if plain && want.fast.is_none() => return Ok(None),
                _ => tier_file::Made::default(),
            };
            let rights = layout.rights.take()?;
            let opened = attach::open(&layout, want, fold)?;
            let inside = layout.inside();
            drop(rights);
            let Some(opened) = opened else { return Ok(None) };
            Ok(Some(Place {
                stamp: opened.stamp,
                sigbus: OnceLock::new(),
                files: Files {
                    home: opened.home,
                    database: layout.database.clone(),
                    rights: layout.rights.clone(),
                    inside: Some(inside?),
                },
                shared: Default::default(),
                spec: opened.record.spec,
                opener: std::process::id(),
                _lock: Some(opened.lock),
                _entry: entry,
            }))
        })
    }

    /// The place of a home that the caller attached: its files are `db`, `wal` and `journal`, of
    /// the classes of [`profile`]. For homes that are not directories (the tests' simulated ones).
    /// The path needs not exist, the directory it is in does; nothing guards it.
    ///
    /// # Errors
    /// [`PlaceError::Busy`] when this process has a database open at that path;
    /// [`PlaceError::Store`] when `db` passes and is not what its logs were written for.
    pub fn adopt(
        database: &Path,
        home: AttachedHome,
        spec: FastSpec,
    ) -> Result<Arc<Place>, PlaceError> {
        let not_a_file = || PlaceError::NotAFile { database: database.into() };
        let database = Layout::of(database)?.ok_or_else(not_a_file)?.database;
        let stamp = stamp::Stamp::open(&home, spec.place == Placement::Redo)?;
        table::adopt(&database, |entry| Place {
            stamp,
            sigbus: OnceLock::new(),
            files: Files { home, database: database.clone(), rights: Rights::Own, inside: None },
            shared: Default::default(),
            spec,
            opener: std::process::id(),
            _lock: None,
            _entry: entry,
        })
    }

    /// Explains a SIGBUS in the tier's mappings on standard error until the database is closed
    /// ([`AttachedHome::watch_sigbus`]). A second call does nothing.
    ///
    /// # Errors
    /// When no descriptor or thread is available.
    pub fn watch_sigbus(&self) -> Result<(), PlaceError> {
        if self.sigbus.get().is_none() {
            // Of two threads one is first; the other's watch goes again.
            let _ = self.sigbus.set(self.files.home.watch_sigbus()?);
        }
        Ok(())
    }

    /// The attached home the files live on.
    pub fn home(&self) -> &AttachedHome {
        &self.files.home
    }

    /// The file's name, relative to [`Place::home`].
    pub fn name(&self, role: Role) -> &Path {
        role.name()
    }

    /// The canonical path of the database.
    pub fn database(&self) -> &Path {
        &self.files.database
    }

    /// Whether the tier only stands for persistent memory: every report must say so.
    pub fn is_emulated(&self) -> bool {
        self.spec.emulate
    }

    /// How it is attached.
    pub fn spec(&self) -> &FastSpec {
        &self.spec
    }

    /// The place, if this process has it open. `database` as [`Place::database`] has it is found
    /// without asking the file system.
    pub fn find(database: &Path) -> Option<Arc<Place>> {
        if let Some(place) = table::find(database) {
            return Some(place);
        }
        if table::is_empty() {
            return None;
        }
        let layout = Layout::of(database).ok()??;
        table::find(&layout.database)
    }

    /// Brings everything home and makes the database a plain file at its path again. It must not be
    /// open in this process. What a cut left is finished.
    ///
    /// Checkpointing through Tiersmith before is not needed: `fold` does it on what came home.
    ///
    /// # Errors
    /// Each reason has its own. After one the database is attached still, or on its way: another
    /// detach goes on.
    ///
    /// # Durability
    /// Durable on return.
    pub fn detach(database: &Path, fold: Fold<'_>) -> Result<(), PlaceError> {
        let layout = Layout::of(database)?
            .ok_or_else(|| PlaceError::NotAFile { database: database.into() })?;
        let _rights = layout.rights.take()?;
        table::alone(&layout.database, || detach::detach(&layout, fold))
    }
}

impl Place {
    /// [`Place::detach`] for a database whose file in the directory was changed past Tiersmith:
    /// that version becomes a database of its own beside the path, and what Tiersmith had is at the
    /// path. When nothing was changed it is an ordinary detach.
    ///
    /// # Errors
    /// Each reason has its own. After one the database is attached still, or on its way; another
    /// call goes on.
    ///
    /// # Durability
    /// Durable on return.
    pub fn detach_keeping_both(database: &Path, fold: Fold<'_>) -> Result<KeptBoth, PlaceError> {
        let layout = Layout::of(database)?
            .ok_or_else(|| PlaceError::NotAFile { database: database.into() })?;
        let _rights = layout.rights.take()?;
        table::alone(&layout.database, || keep_both::detach_keeping_both(&layout, fold))
    }
}

/// Does `work` with the rights of the database's owner, if this is root and somebody else owns it.
/// For what reads the database's files and its tier's by path.
///
/// # Errors
/// [`PlaceError::Rights`], and what the file system says; `work` is not done then.
pub fn as_owner<T>(database: &Path, work: impl FnOnce() -> T) -> Result<T, PlaceError> {
    let not_a_file = || PlaceError::NotAFile { database: database.to_path_buf() };
    let layout = Layout::of(database)?.ok_or_else(not_a_file)?;
    let _rights = layout.rights.take()?;
    Ok(work())
}

/// Whether a directory is where an attached database has its own, by the path alone.
fn has_home(database: &Path) -> bool {
    let mut home = database.to_path_buf().into_os_string();
    home.push(HOME_SUFFIX);
    Path::new(&home).symlink_metadata().is_ok()
}

#[cfg(test)]
thread_local! {
    /// The step after which this thread's work stops, as a power cut would stop it.
    static STOP_AFTER: std::cell::Cell<Option<u32>> = const { std::cell::Cell::new(None) };
    static STOPPED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    /// The steps of this thread's work that fail, each once, first to last; what follows goes on.
    static FAIL_AT: std::cell::RefCell<Vec<u32>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Step `number` of attaching (1 to 8), detaching (11 to 14: its steps 1 to 4), bringing an older
/// layout up to date (21 and 22) or keeping both versions (31 to 39: `keep_both.rs`) is done.
#[cfg(test)]
fn step(number: u32) -> Result<(), PlaceError> {
    if STOP_AFTER.get() == Some(number) || STOPPED.get() {
        STOPPED.set(true);
        return Err(PlaceError::Io {
            what: "stopped, as the test asked, after step",
            path: number.to_string().into(),
            source: std::io::ErrorKind::Interrupted.into(),
        });
    }
    let fails = FAIL_AT.with_borrow_mut(|at| at.first() == Some(&number) && at.remove(0) == number);
    if fails {
        let source = std::io::ErrorKind::StorageFull.into();
        return Err(PlaceError::Io {
            what: "failed, as the test asked, at step",
            path: number.to_string().into(),
            source,
        });
    }
    Ok(())
}

#[cfg(not(test))]
#[inline]
#[allow(clippy::unnecessary_wraps, reason = "the tests' version fails")]
fn step(_number: u32) -> Result<(), PlaceError> {
    Ok(())
}

/// Whether a test stopped the work: a machine that has stopped does not go on to clean up.
#[cfg(test)]
fn stopped() -> bool {
    STOPPED.get()
}

#[cfg(not(test))]
#[inline]
fn stopped() -> bool {
    false
}

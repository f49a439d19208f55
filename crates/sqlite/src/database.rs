//! Who has an attached database open, and how a file name leads to it.
//!
//! SQLite names the WAL and the journal of a database by its path with `-wal` and `-journal` behind
//! it, and asks for them by name, several times in every transaction of a rollback mode. So the
//! names of the open databases are kept here as SQLite spells them, and each thread remembers the
//! one it asked for last: no lock and no system call then.
//!
//! Invariants:
//! - A name is known from before its database is open until it is closed; a plain database's too.
//! - What is remembered by a thread is only used while no name was added or taken away since
//!   ([`CHANGES`]).
//!
//! Read next: `shared.rs`, what its connections have in common.

use crate::place::{Place, Role};
use crate::result;
use crate::shared::Shared;
use parking_lot::RwLock;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tiersmith_store::process::{PerProcess, Process};
use tiersmith_store::{Error, Result};

/// A file of an attached database is open: keeps its place, and with the first and last of them
/// looks at the home and cleans up.
pub(crate) struct User {
    place: Arc<Place>,
    /// Which process's it is: a forked child has a copy, and must touch nothing.
    process: Process,
}

impl User {
    /// # Errors
    /// Those of the home's file system.
    pub(crate) fn join(place: Arc<Place>) -> Result<Self> {
        let shared = &place.shared;
        let mut users = shared.users.lock();
        if *users == 0 {
            shared.journal.find(&place.files)?;
            let wal = place.files.has(Role::Wal)?;
            let present = wal && place.home().stat(place.name(Role::Wal))?.size > 0;
            shared.wal.set_present(present);
        }
        *users += 1;
        drop(users);
        Ok(Self { place, process: Process::current() })
    }

    /// Whether this is the process that opened the file.
    #[inline]
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process.is_current()
    }

    /// Why a forked child may not use it. Takes no lock: a thread that held one may not be there.
    #[cold]
    pub(crate) fn forked(&self) -> Error {
        let what = self.place.database().display().to_string();
        Error::Forked { what, opener: self.place.opener, process: std::process::id() }
    }

    pub(crate) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        &self.place.shared
    }

    /// Whether `xAccess` finds this file.
    pub(crate) fn is_present(&self, role: Role) -> bool {
        match role {
            Role::Main => true,
            Role::Wal => self.shared().wal.is_present(),
            Role::Journal => self.shared().journal.is_present(),
        }
    }

    /// Deletes the WAL or the journal. `false`: it is not there.
    ///
    /// # Durability
    /// Durable on return.
    pub(crate) fn delete(&self, role: Role) -> Result<bool> {
        match role {
            Role::Journal => self.shared().journal.delete(&self.place.files),
            _ => {
                let removed = self.place.files.remove(role)?;
                self.shared().wal.clear();
                Ok(removed)
            }
        }
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            return;
        }
        let mut users = self.place.shared.users.lock();
        *users -= 1;
        if *users > 0 {
            return;
        }
        self.place.shared.wal.clear();
        if let Err(e) = self.place.shared.journal.last_connection_goes(&self.place.files) {
            let database = self.place.database().display();
            let sentence = format!(
                "closing {database}: {e}; a journal without contents may stay in its directory"
            );
            result::report(crate::ffi::WARNING, e.errno(), &sentence);
        }
    }
}

/// A main file is open; with the first and the last of them its figures are written.
pub(crate) struct Opened(Arc<Place>);

impl Opened {
    pub(crate) fn new(place: Arc<Place>) -> Self {
        place.shared.statistics.opened(&place.files);
        Self(place)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.shared.statistics.closed(&self.0.files);
    }
}

/// What is known of a name.
struct Known {
    /// `None`: a plain database.
    place: Option<Weak<Place>>,
    opened: usize,
}

static NAMES: PerProcess<RwLock<HashMap<Vec<u8>, Known>>> = PerProcess::new(RwLock::default);
/// How often a name was added or taken away.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// What a thread asked for last.
struct Last {
    process: Process,
    changes: u64,
    name: Vec<u8>,
    place: Option<Weak<Place>>,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Keeps the name of an open main database.
pub(crate) struct Name(Vec<u8>);

impl Name {
    /// `name` as SQLite spells it; `place` is `None` for a plain database.
    pub(crate) fn keep(name: &[u8], place: Option<&Arc<Place>>) -> Self {
        let mut names = NAMES.get().write();
        let known = names.entry(name.to_vec()).or_insert(Known { place: None, opened: 0 });
        known.opened += 1;
        known.place = place.map(Arc::downgrade);
        CHANGES.fetch_add(1, Ordering::Release);
        Self(name.to_vec())
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let mut names = NAMES.get().write();
        if let Some(known) = names.get_mut(&self.0) {
            known.opened -= 1;
            if known.opened == 0 {
                names.remove(&self.0);
            }
        }
        CHANGES.fetch_add(1, Ordering::Release);
    }
}

/// Whose file a name is.
pub(crate) enum Owner {
    /// An attached database's.
    Attached(Arc<Place>, Role),
    /// A plain database's that is open.
    Plain,
    /// WAL or journal of a database nobody here has open: its path.
    Closed(Vec<u8>, Role),
    /// Something else.
    Nobody,
}

/// The database whose WAL or journal `name` is.
pub(crate) fn owner(name: &[u8]) -> Owner {
    let (database, role) = if let Some(database) = name.strip_suffix(b"-journal") {
        (database, Role::Journal)
    } else if let Some(database) = name.strip_suffix(b"-wal") {
        (database, Role::Wal)
    } else {
        return Owner::Nobody;
    };
    let changes = CHANGES.load(Ordering::Acquire);
    let remembered = LAST.try_with(|last| {
        let last = last.borrow();
        let last = last.as_ref()?;
        if last.changes != changes || last.name != database || !last.process.is_current() {
            return None;
        }
        Some(last.place.as_ref().map(Weak::upgrade))
    });
    if let Ok(Some(found)) = remembered {
        match found {
            None => return Owner::Plain,
            Some(Some(place)) => return Owner::Attached(place, role),
            Some(None) => {}
        }
    }
    look_up(database, role, changes)
}

#[cold]
fn look_up(database: &[u8], role: Role, changes: u64) -> Owner {
    let names = NAMES.get().read();
    let Some(known) = names.get(database) else { return Owner::Closed(database.to_vec(), role) };
    let place = known.place.clone();
    drop(names);
    // The thread-local is gone when the thread's end closes a connection.
    let _ = LAST.try_with(|last| {
        let process = Process::current();
        *last.borrow_mut() =
            Some(Last { process, changes, name: database.to_vec(), place: place.clone() });
    });
    match place {
        None => Owner::Plain,
        Some(place) => match place.upgrade() {
            Some(place) => Owner::Attached(place, role),
            None => Owner::Closed(database.to_vec(), role),
        },
    }
}

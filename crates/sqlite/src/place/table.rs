//! The places this process has open, by canonical path of the database.
//!
//! Only opening, closing and the look-up by name take its lock; reading and writing never do.
//!
//! Invariants:
//! - An entry is there from before the store is attached until after it has let go ([`Entry`] is
//!   the last field of a place to be dropped).
//! - The table's lock is held for moments only; who attaches holds the entry, and others that want
//!   the same database wait for that.
//!
//! Deliberately absent: databases that are plain.

use super::{FastSpec, Place, Want};
use crate::error::PlaceError;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tiersmith_store::process::{PerProcess, Process};

/// `None` while it is being attached or detached.
type Places = HashMap<PathBuf, Option<Weak<Place>>>;

#[derive(Default)]
struct Table {
    places: Mutex<Places>,
    /// An entry changed or went away.
    changed: Condvar,
}

/// A forked child has none of its parent's places: it gets a table of its own, and the locks of the
/// homes decide.
static TABLE: PerProcess<Table> = PerProcess::new(Table::default);
/// How long a detach waits for the last place to be closed by another thread that is at it.
const CLOSING: Duration = Duration::from_secs(10);

/// Keeps the name in the table until it is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    database: PathBuf,
    process: Process,
}

impl Entry {
    /// The entry is in the table by now.
    fn of(database: &Path) -> Self {
        Self { database: database.to_path_buf(), process: Process::current() }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // A forked child's copy is no entry of its own table.
        if self.process.is_current() {
            TABLE.get().places.lock().remove(&self.database);
            TABLE.get().changed.notify_all();
        }
    }
}

/// The open place of the database, or the one that `make` makes. While it is being made or let go,
/// others wait.
pub(super) fn open(
    database: &Path,
    want: &Want,
    make: impl FnOnce(Entry) -> Result<Option<Place>, PlaceError>,
) -> Result<Option<Arc<Place>>, PlaceError> {
    let entry = {
        let table = TABLE.get();
        let mut places = table.places.lock();
        loop {
            match places.get(database) {
                None => break,
                Some(Some(place)) => {
                    if let Some(place) = place.upgrade() {
                        drop(places);
                        check_same(&place, want.fast.as_ref())?;
                        return Ok(Some(place));
                    }
                }
                Some(None) => {}
            }
            table.changed.wait(&mut places);
        }
        places.insert(database.to_path_buf(), None);
        Entry::of(database)
    };
    let Some(place) = make(entry)? else { return Ok(None) };
    Ok(Some(publish(place)))
}

fn publish(place: Place) -> Arc<Place> {
    let place = Arc::new(place);
    TABLE.get().places.lock().insert(place.database().to_path_buf(), Some(Arc::downgrade(&place)));
    TABLE.get().changed.notify_all();
    place
}

/// Puts a place in that was attached elsewhere.
pub(super) fn adopt(
    database: &Path,
    make: impl FnOnce(Entry) -> Place,
) -> Result<Arc<Place>, PlaceError> {
    let mut places = TABLE.get().places.lock();
    if places.contains_key(database) {
        let who = "this process has it open".to_owned();
        return Err(PlaceError::Busy { database: database.to_path_buf(), who });
    }
    places.insert(database.to_path_buf(), None);
    drop(places);
    Ok(publish(make(Entry::of(database))))
}

/// A second open in this process with `fast=` must mean the same tier.
fn check_same(place: &Place, given: Option<&FastSpec>) -> Result<(), PlaceError> {
    match given {
        Some(given) => super::attach::check_given(place.database(), place.spec(), given).map(drop),
        None => Ok(()),
    }
}

/// Does `work` while nobody in this process has the database open or opens it.
pub(super) fn alone<T>(
    database: &Path,
    work: impl FnOnce() -> Result<T, PlaceError>,
) -> Result<T, PlaceError> {
    let end = Instant::now() + CLOSING;
    let table = TABLE.get();
    let mut places = table.places.lock();
    while let Some(found) = places.get(database) {
        let open = found.as_ref().is_some_and(|place| place.strong_count() > 0);
        if open || Instant::now() > end {
            let who = "this process has it open".to_owned();
            return Err(PlaceError::Busy { database: database.to_path_buf(), who });
        }
        table.changed.wait_until(&mut places, end);
    }
    places.insert(database.to_path_buf(), None);
    let entry = Entry::of(database);
    drop(places);
    let done = work();
    drop(entry);
    done
}

/// The open place with this canonical path.
pub(super) fn find(database: &Path) -> Option<Arc<Place>> {
    TABLE.get().places.lock().get(database)?.as_ref()?.upgrade()
}

/// Whether no database is attached in this process.
pub(super) fn is_empty() -> bool {
    TABLE.get().places.lock().is_empty()
}

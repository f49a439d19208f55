//! Detaching: the database becomes a plain file at its path again.
//!
//! # Steps, and what a cut leaves
//!
//! | step | what is done | a cut after it leaves | the next open or detach |
//! |---|---|---|---|
//! | 1 | the store brings everything home and gives the tier back | the stub; a directory with a whole SQLite database, no note of the store in it | goes on from here |
//! | 2 | the bars make room for WAL and journal (`bars.rs`) | the same; `db` opens with any SQLite, for it is whole | goes on from here |
//! | 3 | SQLite rolls a hot journal back and empties the WAL (`fold`), in the directory | the same | goes on from here |
//! | 4 | `db` is renamed over the stub | **the plain database**, a directory without one | removes the directory |
//! | 5 | the directory is removed | the plain database | nothing to do |
//!
//! Each step is durable before the next begins. When one fails, the database is where the step
//! before left it, and another detach goes on.
//!
//! What SQLite writes in step 3 is what it writes at the last close of a database: the file is byte
//! for byte its own.
//!
//! A transaction over several databases that was cut short is not judged here: the names in its
//! super-journal are those of the paths, not of the directories. Opening the database once through
//! Tiersmith lets SQLite do it.

use super::attach;
use super::layout::{Layout, STOCK_JOURNAL, STOCK_WAL, State, Transition};
use super::layout::{
    SHM, STUB_NEW, is_bar, look, make_anew, names_super_journal, remove, sync_dir,
};
use super::record;
use super::{Fold, Want, bars, marker, ofd, step};
use crate::error::PlaceError;
use crate::files::{DB, JOURNAL};
use std::ffi::OsStr;
use tiersmith_store::home::ATTACHMENT as NOTE;

/// All of it, for a database no connection of this process has open.
pub(super) fn detach(layout: &Layout, fold: Fold<'_>) -> Result<(), PlaceError> {
    loop {
        let state = layout.state()?;
        match state {
            State::Plain => {
                let (database, home) = (layout.database.clone(), layout.home.clone());
                return Err(PlaceError::NotAttached { database, home });
            }
            State::HomeMissing => return Err(attach::home_missing(layout)),
            State::Two => {
                let (database, home) = (layout.database.clone(), layout.home.clone());
                return Err(PlaceError::TwoDatabases { database, home });
            }
            // The way back begins with a stub, so that there is something to lock.
            State::StubMissing => restore_stub(layout)?,
            State::Leftover if layout.at_path()?.is_none() => {
                let (database, home) = (layout.database.clone(), layout.home.clone());
                return Err(PlaceError::NotAttached { database, home });
            }
            State::Leftover | State::HalfAttached | State::HalfDetached => {
                let transition = Transition::begin(layout)?;
                if layout.state()? == state {
                    marker::refuse_if_begun(layout, state)?;
                    return attach::clean_up(layout, state, transition, fold);
                }
            }
            State::Attached => {
                let opened = attach::open(layout, &Want::default(), fold)?;
                let Some(opened) = opened else { continue };
                let transition = Transition::begin(layout)?;
                // The store may have the end of a journal: it is home after this.
                opened.home.flush_all()?;
                if names_super_journal(&*layout.inside()?, JOURNAL)? {
                    return Err(PlaceError::SuperJournal { path: layout.in_home(JOURNAL) });
                }
                drop(opened.stamp);
                opened.home.detach()?;
                ofd::unlock(&opened.lock);
                drop(opened.lock);
                step(11)?;
                return finish(layout, transition, fold);
            }
        }
    }
}

/// Steps 2 to 5: the store has nothing any more.
pub(super) fn finish(
    layout: &Layout,
    transition: Transition,
    fold: Fold<'_>,
) -> Result<(), PlaceError> {
    let (db_path, inside) = (layout.in_home(DB), layout.inside()?);
    for journal in [JOURNAL, STOCK_JOURNAL] {
        if !is_bar(&inside, journal)? && names_super_journal(&inside, journal)? {
            return Err(PlaceError::SuperJournal { path: layout.in_home(journal) });
        }
    }
    let db = lock(layout)?;
    bars::lower(layout)?;
    // SQLite takes these locks itself.
    ofd::unlock(&db);
    drop(db);
    step(12)?;
    layout.refuse_strange(&inside, &[STOCK_WAL, STOCK_JOURNAL, SHM])?;
    if let Err(reason) = fold(&db_path) {
        return Err(PlaceError::Fold { database: db_path, reason });
    }
    Layout::check_folded(&inside, OsStr::new(STOCK_WAL), OsStr::new(STOCK_JOURNAL))?;
    // A WAL that SQLite removed must not come back with a power cut, when `db` is not beside it any
    // more.
    sync_dir(&inside)?;
    step(13)?;
    let db = lock(layout)?;
    db.sync_all().map_err(PlaceError::io("cannot sync", &db_path))?;
    let replace = PlaceError::io("cannot replace", &layout.database);
    inside.rename(DB, &layout.dir, &layout.name).map_err(replace)?;
    sync_dir(&layout.dir)?;
    sync_dir(&inside)?;
    step(14)?;
    layout.remove_home()?;
    // The stub's lock and the database's end here.
    drop((transition, db));
    Ok(())
}

/// Holds SQLite's locks on `db` as long as the file is open.
fn lock(layout: &Layout) -> Result<ofd::LockFile, PlaceError> {
    let db_path = layout.in_home(DB);
    let opened = ofd::LockFile::open(&*layout.inside()?, DB);
    let db = opened.map_err(PlaceError::io("cannot open", &db_path))?;
    ofd::lock(&db).map_err(|_| PlaceError::Busy {
        database: layout.database.clone(),
        who: format!("a program has a lock on {}", db_path.display()),
    })?;
    Ok(db)
}

/// Puts a stub where one was removed, or replaced by an empty file.
pub(super) fn restore_stub(layout: &Layout) -> Result<(), PlaceError> {
    let inside = layout.inside()?;
    let spec = match attach::read_record(layout) {
        Ok(record) => record.spec,
        Err(e) if look(&inside, NOTE)?.is_some() => return Err(e),
        Err(_) => super::FastSpec::default(),
    };
    let text = record::stub(&layout.database, &layout.home, &spec);
    drop(make_anew(&inside, STUB_NEW, text.as_bytes(), 0o644)?);
    let replace = PlaceError::io("cannot replace", &layout.database);
    if layout.at_path()?.is_some() {
        let empty = Transition::begin(layout)?;
        if empty.file.metadata().is_ok_and(|m| m.len() == 0) {
            inside.rename(STUB_NEW, &layout.dir, &layout.name).map_err(replace)?;
        }
    } else {
        // Not over something that was put there meanwhile.
        inside.link(STUB_NEW, &layout.dir, &layout.name).map_err(replace)?;
        remove(&inside, STUB_NEW)?;
    }
    sync_dir(&layout.dir)
}

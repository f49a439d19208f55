//! The bars: what keeps a stock SQLite from opening `db` in the directory of an attached database.
//!
//! Where SQLite looks for the WAL and the journal of `db` stand two empty directories, `db-wal` and
//! `db-journal`. SQLite finds a name there, takes it for a WAL or a hot journal, cannot open it,
//! and refuses the database ("unable to open database file", "disk I/O error"), for reading too and
//! for root too. One of the two is enough, in every journal mode. The WAL and journal themselves
//! are called `wal` and `journal`.
//!
//! What they do not stop: a program that is not SQLite, and a connection with `immutable=1`, which
//! looks for neither and cannot write.
//!
//! # Steps, and what a cut leaves
//!
//! Lowering them when the database is detached (the store has given everything back: `db`, `wal`
//! and `journal` are whole):
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 1 | of WAL and journal the one that holds something: its bar is removed, it gets its place | the other bar, which is enough |
//! | 2 | the other likewise | `db` with its WAL or journal: any SQLite may open it |
//!
//! A hot journal and a WAL with frames are not there at the same time: SQLite empties one before it
//! begins the other. Each step looks at what is there, so a cut one is done again.
//!
//! When both are found missing while WAL or journal hold something, the open is refused and they
//! are not raised: that they were removed is all there is to see of a write that kept length and
//! time, or fell into a time for which no stamp is known.
//!
//! Invariant: a bar is never made where a file is.

use super::layout::{Layout, STOCK_JOURNAL, STOCK_WAL, is_bar, is_empty, look, remove, sync_dir};
use crate::error::PlaceError;
use crate::files::{JOURNAL, WAL};
use std::io;

/// Our name of each file, and that at which a stock SQLite looks for it.
const NAMES: [(&str, &str); 2] = [(WAL, STOCK_WAL), (JOURNAL, STOCK_JOURNAL)];

/// Raises the bars that are missing.
///
/// # Errors
/// [`PlaceError::Meddled`] where a file is in their place: somebody removed a bar, and SQLite
/// wrote. Else what the file system says.
///
/// # Durability
/// Durable on return.
pub(super) fn raise(layout: &Layout) -> Result<(), PlaceError> {
    let inside = layout.inside()?;
    let mut raised = false;
    for (_, stock) in NAMES {
        let path = layout.in_home(stock);
        if is_bar(&inside, stock)? {
            continue;
        }
        // Nothing is put into it by anybody but root.
        match inside.make_dir(stock, 0o500, None) {
            Ok(_) => raised = true,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let what = "is not Tiersmith's: the directory that keeps SQLite from opening the \
                            database past Tiersmith was removed, and \
                            something was written";
                return Err(PlaceError::Meddled { database: layout.database.clone(), path, what });
            }
            Err(e) => return Err(PlaceError::io("cannot make the directory", &path)(e)),
        }
    }
    if raised { sync_dir(&inside) } else { Ok(()) }
}

/// Whether both bars are gone, and nothing is in their place: whoever removed them may have had any
/// SQLite write `db`.
pub(super) fn are_gone(layout: &Layout) -> Result<bool, PlaceError> {
    for (_, stock) in NAMES {
        if look(&*layout.inside()?, stock)?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Lowers the bars, and gives WAL and journal the names SQLite looks for.
///
/// # Errors
/// [`PlaceError::NotOurs`] where two files claim one name. Else what the file system says.
///
/// # Durability
/// Durable on return.
pub(super) fn lower(layout: &Layout) -> Result<(), PlaceError> {
    let inside = layout.inside()?;
    let mut order = NAMES;
    if !is_empty(&inside, JOURNAL, true)? {
        order.reverse();
    }
    for (name, stock) in order {
        if is_bar(&inside, stock)? {
            let removed = inside.remove_dir(stock);
            removed.map_err(PlaceError::io("cannot remove", &layout.in_home(stock)))?;
        }
        give_name(layout, name, stock)?;
        // Before the other bar goes.
        sync_dir(&inside)?;
    }
    Ok(())
}

/// Renames `from` to `to`, if there is a `from`; nothing is replaced.
fn give_name(layout: &Layout, from: &str, to: &str) -> Result<(), PlaceError> {
    let inside = layout.inside()?;
    let Some(old) = look(&inside, from)? else { return Ok(()) };
    if let Some(there) = look(&inside, to)? {
        if old.same_file(&there) {
            // One file: a cut left the rename with both names.
            return remove(&inside, from);
        }
        let names = format!("both {from} and {to}");
        return Err(PlaceError::NotOurs { home: layout.home.clone(), names });
    }
    inside.rename(from, &inside, to).map_err(PlaceError::io("cannot rename", &layout.in_home(from)))
}

//! The marker in an attached database's directory: keeping both versions was begun (`keep_both.rs`,
//! whose steps write it), so nothing else may open or detach the database.
//!
//! Not here: what is done while it is there.

use super::layout::{KEEPING, KEEPING_NEW, Layout, State, look, replace};
use crate::error::PlaceError;
use serde::{Deserialize, Serialize};
use std::io;
use tiersmith_dir::{Sidecar, Unfit};

/// The marker.
const MARKER: Sidecar = Sidecar {
    kind: "sqlite-keep-both",
    version: 1,
    comment: "The database beside this file was written past Tiersmith, and `tiersmith detach \
              --keep-both` was \
              begun. Run it again.",
    most: 4096,
};

/// A line of it that development builds wrote.
const DEVELOPMENT: &[u8] = b"tiersmith-sqlite-keep-both ";

/// The marker's body.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    figures: Option<Figures>,
}

/// What there is to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figures {
    pub(super) from_home: u64,
    pub(super) blocks: u64,
}

/// Fails when keeping both versions was begun and the database is not at its path yet. `state` is
/// what the caller found under the lock.
///
/// # Errors
/// [`PlaceError::Meddled`], and what the file system says.
pub(super) fn refuse_if_begun(layout: &Layout, state: State) -> Result<(), PlaceError> {
    if !matches!(state, State::Attached | State::HalfDetached) || !is_begun(layout)? {
        return Ok(());
    }
    let path = layout.in_home(KEEPING);
    let what = "says that the database was written past Tiersmith, and that keeping both versions \
                was begun and not finished";
    Err(PlaceError::Meddled { database: layout.database.clone(), path, what })
}

/// Whether the marker is there.
pub(super) fn is_begun(layout: &Layout) -> Result<bool, PlaceError> {
    Ok(look(&*layout.inside()?, KEEPING)?.is_some())
}

/// The marker; `Some(None)` before there are figures.
pub(super) fn read_marker(layout: &Layout) -> Result<Option<Option<Figures>>, PlaceError> {
    let path = layout.in_home(KEEPING);
    let bytes = match layout.inside()?.read(KEEPING, MARKER.most) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(PlaceError::io("cannot read", &path)(e)),
    };
    let body: Body = MARKER.decode(&bytes).map_err(|unfit| {
        let development = bytes.split(|b| *b == b'\n').any(|line| line.starts_with(DEVELOPMENT));
        PlaceError::unfit(&path, if development { Unfit::of_development_build() } else { unfit })
    })?;
    Ok(Some(body.figures))
}

/// Steps 2 and 6 of `keep_both.rs`.
///
/// # Durability
/// Durable on return.
pub(super) fn write_marker(layout: &Layout, figures: Option<Figures>) -> Result<(), PlaceError> {
    let text = MARKER.encode(&Body { figures });
    let text = text.map_err(PlaceError::io("cannot write", &layout.in_home(KEEPING)))?;
    replace(&*layout.inside()?, KEEPING_NEW, KEEPING, text.as_bytes())
}

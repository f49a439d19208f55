//! What can be said of a database without a connection to it: is it attached, where, to what.
//!
//! Not the figures of a running one: those are [`tiersmith_store::Stats`], through
//! [`super::Place::home`].

use super::attach::{self, read_record};
use super::layout::{ATTACHMENT, Layout, State, look};
use super::{FastSpec, Want, table};
use crate::error::PlaceError;
use crate::statistics::Statistics;
use std::path::{Path, PathBuf};
use tiersmith_store::{AttachedHome, TierStats};

/// Where attaching and detaching stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A plain database, or none.
    Plain,
    /// Attached.
    Attached,
    /// Attaching was cut; the database is whole at its path. The next open takes the rest away.
    AttachingCut,
    /// Detaching was cut; the next open or detach finishes it.
    DetachingCut,
    /// The stub is there and its directory is not.
    HomeMissing,
    /// The directory is there and the stub is not.
    StubMissing,
    /// A database at the path and another in the directory.
    TwoDatabases,
}

impl Standing {
    /// One word, for reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Attached => "attached",
            Self::AttachingCut => "attaching-cut",
            Self::DetachingCut => "detaching-cut",
            Self::HomeMissing => "home-missing",
            Self::StubMissing => "stub-missing",
            Self::TwoDatabases => "two-databases",
        }
    }
}

/// Blocks of the database in its tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Bytes of all members.
    pub tier_bytes: u64,
    /// Bytes whose newest version is in the tier only.
    pub dirty_bytes: u64,
    /// Bytes that are in the tier and equal at home.
    pub cached_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// What each member's medium is, with the label EMULATED where it only stands for one.
    pub media: Vec<String>,
}

/// What [`status`] found.
#[derive(Clone, Debug)]
pub struct Status {
    /// Canonical path of the database.
    pub database: PathBuf,
    /// Where attaching and detaching stand.
    pub standing: Standing,
    /// The directory of an attached database, there or not.
    pub home: PathBuf,
    /// How it is attached, from the attachment file.
    pub spec: Option<FastSpec>,
    /// What is in the tier, if it could be opened.
    pub blocks: Option<Blocks>,
    /// Why something could not be read or opened; a sentence.
    pub trouble: Option<String>,
}

/// Looks at the database at `database`. An attached one is opened (with recovery, if it needs that)
/// and closed again, unless this process has it open. What a cut left stays as it is.
///
/// # Errors
/// What the file system says. A tier that cannot be opened is no error: [`Status::trouble`] says
/// why.
pub fn status(database: &Path) -> Result<Status, PlaceError> {
    let layout =
        Layout::of(database)?.ok_or_else(|| PlaceError::NotAFile { database: database.into() })?;
    if let Some(place) = table::find(&layout.database) {
        return Ok(attached(&layout, place.spec().clone(), place.home()));
    }
    let state = layout.state()?;
    let _rights = if state == State::Plain { None } else { Some(layout.rights.take()?) };
    let standing = match state {
        State::Plain => Standing::Plain,
        State::Leftover | State::HalfAttached => Standing::AttachingCut,
        State::Attached => Standing::Attached,
        State::HalfDetached => Standing::DetachingCut,
        State::HomeMissing => Standing::HomeMissing,
        State::StubMissing => Standing::StubMissing,
        State::Two => Standing::TwoDatabases,
    };
    let mut status = Status {
        database: layout.database.clone(),
        standing,
        home: layout.home.clone(),
        spec: read_record(&layout).ok().map(|record| record.spec),
        blocks: None,
        trouble: None,
    };
    if standing == Standing::Attached {
        // Nothing is folded when an attached database is opened.
        let opened =
            table::alone(&layout.database, || attach::open(&layout, &Want::default(), &|_| Ok(())));
        match opened {
            Ok(Some(opened)) => return Ok(attached(&layout, opened.record.spec, &opened.home)),
            // Detached by another process meanwhile.
            Ok(None) => status.standing = Standing::Plain,
            Err(e) => status.trouble = Some(e.to_string()),
        }
    }
    Ok(status)
}

/// How the database at `database` is attached and where its directory is, from the attachment file
/// alone: nothing is opened, recovered or changed. `None`: it has no directory with one.
///
/// # Errors
/// What the file system says, and [`PlaceError::Attachment`] for a file that cannot be read.
pub fn attachment(database: &Path) -> Result<Option<(PathBuf, FastSpec)>, PlaceError> {
    let layout =
        Layout::of(database)?.ok_or_else(|| PlaceError::NotAFile { database: database.into() })?;
    let _ = layout.state()?;
    let Ok(inside) = layout.inside() else { return Ok(None) };
    let _rights = layout.rights.take()?;
    if look(&inside, ATTACHMENT)?.is_none() {
        return Ok(None);
    }
    Ok(Some((layout.home.clone(), read_record(&layout)?.spec)))
}

fn attached(layout: &Layout, spec: FastSpec, home: &AttachedHome) -> Status {
    let stats = home.stats();
    let sum = |of: fn(&TierStats) -> u64| stats.tiers.iter().map(of).sum();
    let blocks = Blocks {
        tier_bytes: sum(|t| t.bytes),
        dirty_bytes: sum(|t| t.dirty_bytes),
        cached_bytes: sum(|t| t.cached_bytes),
        free_bytes: sum(|t| t.free_bytes),
        media: stats.tiers.iter().flat_map(|t| t.media.clone()).collect(),
    };
    Status {
        database: layout.database.clone(),
        standing: Standing::Attached,
        home: layout.home.clone(),
        spec: Some(spec),
        blocks: Some(blocks),
        trouble: stats.background_error,
    }
}

/// What every report of an attached database begins with.
impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}: {}", self.database.display(), self.standing.word())?;
        if let Some(spec) = &self.spec {
            let emulated = if spec.emulate { " (EMULATED)" } else { "" };
            writeln!(f, "  tier: {}{emulated}, place={}", spec.member_list(), spec.place.word())?;
        }
        if let Some(blocks) = &self.blocks {
            writeln!(
                f,
                "  in the tier: {} bytes dirty, {} bytes cached, {} bytes free of {}",
                blocks.dirty_bytes, blocks.cached_bytes, blocks.free_bytes, blocks.tier_bytes
            )?;
            for medium in &blocks.media {
                writeln!(f, "  medium: {medium}")?;
            }
        }
        match &self.trouble {
            Some(trouble) => writeln!(f, "  trouble: {trouble}"),
            None => Ok(()),
        }
    }
}

/// What was counted of the attached database at `database`. `None`: no process that leaves its
/// figures has had it open yet. Nothing is opened, recovered or changed.
///
/// # Errors
/// What the file system says, and a file that is not as this program writes it.
pub fn statistics(database: &Path) -> Result<Option<Statistics>, PlaceError> {
    let layout =
        Layout::of(database)?.ok_or_else(|| PlaceError::NotAFile { database: database.into() })?;
    let _rights = layout.rights.take()?;
    // It enters the directory.
    let _ = layout.state()?;
    let Ok(inside) = layout.inside() else { return Ok(None) };
    crate::statistics::read_in(&inside)
}

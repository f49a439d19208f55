//! A home that is mounted: the daemon that serves it, and what the commands do with it.
//!
//! `attach` starts a daemon (`launch.rs`), which is this same program (`serve.rs`): it decides what
//! is attached and how (`plan.rs`, with the refusals of `refuse.rs`), attaches, mounts, answers the
//! commands at its socket (`control.rs`, `answer.rs`), and ends orderly at a signal. `detach` asks
//! the daemon, or does the work itself when there is none (`give_back.rs`).
//!
//! **Invariants**: the home's own lock, which the store takes, decides who serves it; socket,
//! mounts of dead daemons and the log are touched only by whoever has that lock. A daemon that dies
//! at any instant leaves an attached home that the next `attach` or `detach` takes up.
//! **Deliberately absent**: the file system itself (crate `mount`), blocks and recovery (crate
//! `store`).

mod answer;
mod belief;
mod budget;
mod cloud_disk;
mod confine;
pub(crate) mod control;
pub(crate) mod device;
mod dirty_since;
mod give_back;
mod heat;
mod launch;
mod leavings;
mod limit;
mod links;
mod live;
mod log;
mod moves;
mod pages;
mod passthrough;
pub(crate) mod place;
mod plan;
mod profile;
pub(crate) mod refuse;
mod report;
mod requests;
mod scrub;
mod serve;
mod tier;
mod trouble;
mod usage;

use std::path::Path;

use tiersmith_awr::Snapshot;
use tiersmith_store::attachment;

use crate::error::{Error, Result};
use control::{Reply, Request};
use place::{Place, Standing};

pub(crate) use answer::fill;
pub(crate) use belief::is_believed;
pub(crate) use cloud_disk::emptied_at_stop;
pub(crate) use give_back::{Detached, GiveUp, detach, detach_store};
pub(crate) use heat::{HotFile, HotTier, LiveHot, Rates};
pub(crate) use launch::launch;
pub(crate) use live::{Live, size};
pub(crate) use plan::{as_noted, noted_tiers};
pub(crate) use scrub::LiveScrub;
pub(crate) use serve::serve;
pub(crate) use tier::{place as tier_place, trusted};

/// A snapshot for the workload repository, taken by the daemon of the home at `path`. `None`: no
/// daemon serves it.
///
/// # Errors
/// The daemon's own, or why it could not be asked.
pub(crate) fn snapshot(path: &Path) -> Result<Option<Snapshot>> {
    match control::ask(&Place::find(path)?, &Request::Snapshot)? {
        Some(Reply::Snapshot { snapshot }) => Ok(Some(*snapshot)),
        Some(_) => Err(unexpected(path)),
        None => Ok(None),
    }
}

/// A daemon of another version.
pub(crate) fn unexpected(path: &Path) -> Error {
    Error::Usage(format!(
        "the daemon of {} answers as another version does; end it (tiersmith unmount) and attach \
         again with this one",
        path.display()
    ))
}

/// What is wrong when a file system of ours is mounted at the home's path and no daemon answers at
/// the socket. `None`: nothing is mounted there, or what is there is the mount of a daemon that has
/// died, which `attach` and `detach` clear.
pub(crate) fn unreachable(place: &Place) -> Option<String> {
    let Standing::Mounted(at) = place.standing(None) else { return None };
    let (path, at) = (place.path().display(), at.display());
    let daemon = refuse::daemon_of(place);
    let pid = daemon.as_ref().map_or("PID".to_owned(), |daemon| daemon.pid.to_string());
    let by =
        daemon.as_ref().map_or("a process that cannot be seen from here".to_owned(), |daemon| {
            format!("process {} (its daemon)", daemon.pid)
        });
    if attachment(place.path()).is_ok_and(|note| note.is_none()) {
        return Some(format!(
            "{path} is mounted at {at} by {by}, but the home's files are gone: {} was removed \
             while \
             it was attached, or, if {path} is a file system of its own, unmounted. If it was \
             unmounted, nothing is lost: stop the database, end the daemon (kill {pid}), and \
             `tiersmith attach {path}` finds them. If it was removed, what is shown at {at} cannot \
             be kept: end the daemon (kill {pid}; or umount -l {at}), and restore the database \
             from a backup",
            place.aside().display()
        ));
    }
    daemon.is_some().then(|| {
        format!(
            "{path} is mounted at {at} by {by}, which cannot be asked: its socket {} was removed. \
             Nothing is lost. Stop the database, end the daemon (kill {pid}), and `tiersmith \
             attach \
             {path}` mounts it again",
            place.control().display()
        )
    })
}

/// That no daemon serves an attached home, and what to do.
pub(crate) fn not_served(place: &Place) -> Error {
    if let Some(why) = unreachable(place) {
        return Error::Usage(why);
    }
    let path = place.path().display();
    Error::Usage(format!(
        "{path} is not mounted; if it is attached, `tiersmith attach {path}` mounts it again"
    ))
}

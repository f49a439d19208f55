//! Where redo files are that the kernel writes itself, and how much there may be of them: what
//! `--passthrough-dir` and `--passthrough-max` say.
//!
//! Of a tier on flash, above all a whole device, the user names a directory; elsewhere it is beside
//! the tier. What the directory's file system can do is asked by the store, before the tier is
//! touched. **Invariant**: nothing is changed here.

use std::path::{Path, PathBuf};

use tiersmith_dir::Dir;
use tiersmith_store::{LentIn, TierSpec};

use super::cloud_disk;
use super::place::{Mounts, Place};
use super::size;
use crate::attach::Attach;
use crate::error::{Error, Result};

/// Bytes of redo files that the kernel may write itself. `noted`: what the note says of it.
pub(super) fn most(wish: &Attach, noted: Option<&String>) -> u64 {
    let noted = || noted?.parse().ok();
    wish.passthrough_max
        .map(|most| most.bytes())
        .or_else(noted)
        .unwrap_or(tiersmith_store::Options::default().lent_max_bytes)
}

/// Takes the directory that the user names, or leaves the one of the note. `most`: bytes that there
/// may be; 0: nothing is lent.
///
/// # Errors
/// Says why it cannot be that directory.
pub(super) fn direct(
    wish: &Attach,
    tiers: &mut [TierSpec],
    (place, at): (&Place, &Path),
    most: u64,
    remarks: &mut Vec<String>,
) -> Result<()> {
    let Some(named) = &wish.passthrough_dir else {
        // It is the only place of what may be lent: too little room is no reason not to attach.
        let given = tiers.iter().filter_map(|spec| spec.lent_in.as_ref()).filter(|_| most > 0);
        remarks.extend(given.filter_map(|given| lacks_room(&given.directory, most)));
        return Ok(());
    };
    if wish.lend == Some(crate::attach::Lend::No) {
        return Err(refused(named, "--lend no says that the kernel writes no redo; leave one out"));
    }
    if most == 0 {
        return Err(refused(named, "nothing may be lent; leave it out, or say --lend auto"));
    }
    let directory = fitting(named, place, at)?;
    let noted = tiers
        .iter()
        .any(|spec| spec.lent_in.as_ref().is_some_and(|noted| noted.directory == directory));
    if !noted && let Some(why) = lacks_room(&directory, most) {
        return Err(refused(named, &why));
    }
    for spec in tiers {
        spec.lent_in = Some(LentIn { directory: directory.clone(), is_new: !noted });
    }
    Ok(())
}

fn refused(named: &Path, why: &str) -> Error {
    Error::Usage(format!("--passthrough-dir {}: {why}. Nothing was changed", named.display()))
}

/// Where the directory is, without links: those on the way are followed where they are trusted, as
/// on the way to a tier.
fn fitting(named: &Path, place: &Place, at: &Path) -> Result<PathBuf> {
    let refuse = |why: &str| Err(refused(named, why));
    // Whatever name in it: what is opened is the directory.
    let found = Dir::holding(&named.join("any")).and_then(|(dir, _)| dir.where_it_is());
    let directory = match found {
        Ok(found) => found,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return refuse("there is no such directory; make it on flash, for this user alone");
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotADirectory => {
            return refuse("that is no directory");
        }
        Err(e) => return refuse(&e.to_string()),
    };
    if directory.to_str().is_none() {
        return refuse("its path has bytes that are not UTF-8; give another one");
    }
    let mounts = Mounts::read();
    let within = [place.path(), &place.vault(), at];
    if within.iter().any(|within| directory.starts_with(within))
        || mounts.ours_at(&directory)
        || mounts.ours_around(&directory).is_some()
    {
        return refuse(
            "that is inside an attached home or its mount; give one elsewhere, on flash",
        );
    }
    if let Some(model) = cloud_disk::emptied_at_stop(&directory) {
        return refuse(&format!(
            "it is on a disk that is emptied when the machine is stopped ({model}), and redo that \
             was acknowledged would be lost then; give one on a disk that keeps its contents"
        ));
    }
    Ok(directory)
}

/// What is said when there is less room than the files may take.
fn lacks_room(directory: &Path, most: u64) -> Option<String> {
    let found = rustix::fs::statvfs(directory).ok()?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    // A file system that counts no blocks has no limit.
    (found.f_blocks > 0 && free < most).then(|| {
        format!(
            "{} has {} free, and redo that the kernel writes may take {} there: make room, or say \
             less with --passthrough-max",
            directory.display(),
            size(free),
            size(most)
        )
    })
}

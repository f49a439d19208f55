//! Detaching: everything home, the directory at its path, the tier's file and what else was made
//! removed.
//!
//! # Steps
//!
//! | step | what is done | ended here, by whatever: |
//! |---|---|---|
//! | 1 | unmount; a dead daemon's mount is cleared | attached, not mounted |
//! | 2 | what is to be removed is written to `HOME.tiersmith-detach` | the same |
//! | 3 | the store detaches (its own steps, `attach.rs` there) | attached or plain; the next attach or detach knows |
//! | 4 | the tier's file goes (`leavings.rs`), if `attach` had made it | plain; a file without use is left, and the list that names it |
//! | 5 | log and socket go, the list goes | plain |
//!
//! **Invariant**: a tier's file is removed only after the store said that the home is plain.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use tiersmith_store::home::{Home, RealHome};
use tiersmith_store::{AttachedHome, Attachment, Medium, Options, TierSpec, attachment};

use super::belief::is_believed;
use super::control::{self, Reply, Request};
use super::device::{self, Presence};
use super::leavings::{self, Removed, ToRemove};
use super::place::{Mounts, Place};
use super::plan;
use super::refuse;
use crate::error::{Error, Result};
use crate::messages;

/// How long a daemon that was killed may take to let go of what it had.
const DYING: Duration = Duration::from_secs(30);
/// How long somebody who has the home and no socket may take. The home's owner can bring this about
/// by removing the socket, so it is short.
const ENDING: Duration = Duration::from_secs(10);

/// What `detach` did.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Detached {
    /// The home.
    pub(crate) path: PathBuf,
    /// Whether there was anything to do.
    pub(crate) was_attached: bool,
    /// What recovery said, when no daemon served the home.
    pub(crate) recovery: Option<String>,
    /// Unreadable blocks that were given up.
    pub(crate) lost: Vec<String>,
    /// What else was found and done.
    pub(crate) remarks: Vec<String>,
}

/// What the user allows to be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GiveUp {
    Nothing,
    /// Blocks that cannot be read.
    Unreadable,
    /// All that only the tier has.
    Tier,
}

/// Detaches the home known as `path`, through its daemon or without one.
///
/// # Errors
/// Why it is attached still. Nothing is lost then, and the same call goes on.
pub(crate) fn detach(path: &Path, fast: &[PathBuf], give_up: GiveUp) -> Result<Detached> {
    let place = Place::find(path)?;
    let began = Instant::now();
    // This command lists what it gives up, so the daemon only unmounts.
    let by_itself = give_up == GiveUp::Unreadable;
    loop {
        let noted = attachment(place.path()).ok().flatten();
        match control::ask(&place, if by_itself { &Request::Unmount } else { &Request::Detach })? {
            // Its locks go before it says so; what says so and has them is asked again below.
            Some(Reply::Done { .. }) if by_itself => {}
            Some(Reply::Done { .. }) => return detached(&place, noted),
            Some(_) => return Err(super::unexpected(path)),
            None => {}
        }
        let before = files_by_note(&place);
        match detach_unserved(&place, fast, give_up) {
            // A daemon that was only beginning when it was asked.
            Err(Error::Store(tiersmith_store::Error::Owned { .. }))
                if began.elapsed() < DYING && control::is_served(&place) => {}
            // Somebody else is detaching it and has got on meanwhile.
            Err(_)
                if began.elapsed() < DYING
                    && before.is_some()
                    && files_by_note(&place) != before => {}
            other => return other,
        }
    }
}

/// What a daemon said it did, as it is found. It may be any program of the home's owner.
fn detached(place: &Place, noted: Option<Attachment>) -> Result<Detached> {
    // An empty one has no files in it: a passage that could not be taken away, for instance.
    let vault = place.dir().remove_dir(place.vault().file_name().unwrap_or_default());
    if vault.is_err_and(|e| e.kind() != std::io::ErrorKind::NotFound)
        || Mounts::read().ours_at(place.path())
        || !matches!(attachment(place.path()), Ok(None))
    {
        return Err(Error::Usage(format!(
            "{} is not detached, though what answers at {} says so: see which program that is (ss \
             -xlp), \
             end it, remove that socket, and detach again",
            place.path().display(),
            place.control().display()
        )));
    }
    let mut done = Detached::of(place);
    let made = noted.filter(|note| is_believed(note) && note.door.contains_key(plan::key::MADE));
    if let Some(note) = made {
        let there = note.tiers.iter().flat_map(|tier| &tier.members);
        let there = there.filter(|member| leavings::is_tier_of(member, &note.id));
        done.remarks.extend(there.map(|member| {
            format!(
                "the tier {} is there still; remove it by hand if nobody needs it",
                messages::path(member)
            )
        }));
    }
    Ok(done)
}

/// Where the files of an attached home are by its note.
fn files_by_note(place: &Place) -> Option<PathBuf> {
    attachment(place.path()).ok().flatten().map(|note| note.files)
}

/// Detaches a home that no daemon serves.
fn detach_unserved(place: &Place, fast: &[PathBuf], give_up: GiveUp) -> Result<Detached> {
    let mut done = Detached::of(place);
    done.remarks.extend(finish_move(place)?);
    let Some(note) = attachment(place.path())? else {
        if let Some(why) = super::unreachable(place) {
            return Err(Error::Usage(why));
        }
        let removed = finish_interrupted(place)?;
        done.was_attached = removed.was_listed;
        done.remarks.extend(interrupted(removed));
        return Ok(done);
    };
    refuse::not_permitted(place.path(), &plan::owner_of(&note)?)?;
    refuse::in_use(place.path(), &note.files, false)?;
    if give_up == GiveUp::Tier || nobody_misses_it(&note, fast) {
        return lose_tier(place, &note, done);
    }
    let made = is_believed(&note) && note.door.contains_key(plan::key::MADE);
    let specs = plan::noted_tiers(place, &note, fast)?;
    let options = Options { admit: false, home_model: None, ..plan::as_noted(&note) };
    let home = match attach_patiently(place, &specs, &options) {
        // The disk is there, and of no use: home has everything.
        Err(Error::Store(e))
            if is_ephemeral(&note) && !matches!(e, tiersmith_store::Error::Owned { .. }) =>
        {
            done.remarks.push(e.to_string());
            return lose_tier(place, &note, done);
        }
        attached => attached?,
    };
    // Best effort: it only explains.
    let _sigbus = home.watch_sigbus();
    clear_dead_mounts(place, plan::noted_at(&note).as_deref(), &mut done.remarks)?;
    done.recovery = Some(home.stats().recovery.to_string());
    let skip = give_up == GiveUp::Unreadable;
    let left;
    (done.lost, left) = give_back(place, home, if made { &specs } else { &[] }, skip)?;
    done.remarks.extend(left);
    Ok(done)
}

impl Detached {
    fn of(place: &Place) -> Detached {
        let (lost, remarks) = Default::default();
        Detached { path: place.path().into(), was_attached: true, recovery: None, lost, remarks }
    }
}

/// Attaches, and waits for a daemon that is dying or ending: its locks go when its last thread has
/// gone.
///
/// # Errors
/// The store's; another owner, when it lives on.
pub(super) fn attach_patiently(
    place: &Place,
    specs: &[TierSpec],
    options: &Options,
) -> Result<AttachedHome> {
    let began = Instant::now();
    loop {
        match tiersmith_store::attach(place.path(), specs, options.clone()) {
            Err(tiersmith_store::Error::Owned { .. }) if began.elapsed() < patience(place) => {
                std::thread::sleep(Duration::from_millis(20));
            }
            other => return Ok(other?),
        }
    }
}

/// How long to wait for whoever has the home: a daemon that answers stays, one whose socket is dead
/// is dying, and what has no socket may be a daemon at its beginning or end, or another program.
fn patience(place: &Place) -> Duration {
    match (control::is_served(place), control::has_socket(place)) {
        (true, _) => Duration::ZERO,
        (false, true) => DYING,
        (false, false) => ENDING,
    }
}

/// Finishes moving the files of a home that is a mount point, if that was interrupted. Nothing
/// while the process that moves them lives, which is waited for a while.
///
/// # Errors
/// When they cannot be moved.
pub(super) fn finish_move(place: &Place) -> Result<Option<String>> {
    let began = Instant::now();
    loop {
        match tiersmith_store::home::finish_move(place.path()) {
            Ok(false) => return Ok(None),
            Ok(true) => {
                return Ok(Some(
                    "moving the home's files had been interrupted; they were moved back".into(),
                ));
            }
            Err(tiersmith_store::home::HomeError::Owned { .. }) if began.elapsed() < DYING => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(e) => return Err(Error::Usage(e.to_string())),
        }
    }
}

/// Unmounts what dead daemons have left at the home's path and at `at`. The caller has the home
/// locked, so no daemon of this home lives.
///
/// # Errors
/// When it cannot be unmounted.
pub(super) fn clear_dead_mounts(
    place: &Place,
    at: Option<&Path>,
    remarks: &mut Vec<String>,
) -> Result<()> {
    for at in [Some(place.path()), at.filter(|at| *at != place.path())].into_iter().flatten() {
        let began = Instant::now();
        while Mounts::read().ours_at(at) {
            if tiersmith_mount::is_dead(at) {
                tiersmith_mount::clear_dead(at)?;
                remarks.push(format!(
                    "the mount of a daemon that had ended was cleared from {}",
                    at.display()
                ));
            } else if began.elapsed() > DYING {
                return Err(Error::Usage(format!(
                    "{} is mounted by a process that lives and does not serve this home; unmount \
                     it (umount {0}) and try again",
                    at.display()
                )));
            } else {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
    Ok(tiersmith_mount::clear_passage(place.path())?)
}

/// The store's part of detaching. With `skip`, gives up unreadable blocks and returns them.
///
/// # Errors
/// Why it is attached still.
pub(crate) fn detach_store(home: AttachedHome, skip: bool) -> Result<Vec<String>> {
    if !skip {
        return Ok(home.detach().map(|()| Vec::new())?);
    }
    Ok(home.detach_giving_up_unreadable()?.iter().map(ToString::to_string).collect())
}

/// Steps 2 to 5, for a home that is not mounted. `made`: the tiers whose files go. With `skip`,
/// gives up unreadable blocks and returns them; besides, in sentences, what was not removed.
///
/// # Errors
/// Why it is attached still.
pub(super) fn give_back(
    place: &Place,
    home: AttachedHome,
    made: &[TierSpec],
    skip: bool,
) -> Result<(Vec<String>, Vec<String>)> {
    let look_at = |source| Error::Io { what: "look at", path: place.path().into(), source };
    let identity = home.home().identity().map_err(look_at)?;
    // The files of a mount point go back into another directory.
    let plain = home.home().identity_of_top().map_err(look_at)?;
    let plain = plain.as_ref().unwrap_or(&identity);
    // The home's lock goes with the last of these: until the end nobody else attaches it.
    let _locked = home.clone();
    let (list, mut left) =
        ToRemove::of(&identity, plain, made.iter().flat_map(|spec| &spec.members));
    list.write(place)?;
    let lost = detach_store(home, skip).inspect_err(|_| leavings::forget(place))?;
    left.extend(leavings::remove(place, plain)?.left);
    Ok((lost, left))
}

/// What is said of an interrupted detach that was finished.
pub(super) fn interrupted(removed: Removed) -> Vec<String> {
    let mut said = removed.left;
    if removed.was_listed {
        said.insert(
            0,
            "an earlier detach had been interrupted; what it had left is removed".into(),
        );
    }
    said
}

/// Removes what an interrupted detach has left of a plain home; nothing when somebody has the home.
///
/// # Errors
/// A file that cannot be removed.
pub(super) fn finish_interrupted(place: &Place) -> Result<Removed> {
    let Ok(home) = RealHome::open(place.path()) else { return Ok(Removed::default()) };
    let began = Instant::now();
    while home.lock().is_err() {
        // A daemon that was killed holds it until its last thread is gone.
        if !place.has_to_remove() || began.elapsed() > patience(place) {
            return Ok(Removed::default());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let looking = |source| Error::Io { what: "look at", path: place.path().into(), source };
    // Of the directory that is open too: the path may lead elsewhere by now.
    if attachment(place.path())?.is_some() || home.read_attachment().map_err(looking)?.is_some() {
        return Ok(Removed::default());
    }
    // A note that a killed attach had begun. What else has its name, a directory for instance,
    // stays.
    let _ = home.remove_attachment();
    leavings::remove(place, &home.identity().map_err(looking)?)
}

/// Whether the home's tiers are on emptied disks that only ever had clean copies: to attach them
/// would format those.
fn nobody_misses_it(note: &Attachment, fast: &[PathBuf]) -> bool {
    let is_gone = |member: &PathBuf| match device::noted(note, member) {
        Ok(Some(_)) => false,
        Ok(None) => {
            member.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
        }
        // Another device, or none, or several: home has everything.
        Err(_) => true,
    };
    let is_blank = |device: &PathBuf| device::is_one(device) && !device::has(note, device);
    is_ephemeral(note)
        && match fast.is_empty() {
            true => note.tiers.iter().flat_map(|tier| &tier.members).all(is_gone),
            false => fast.iter().any(is_blank),
        }
}

/// Whether all tiers have clean copies only, on disks.
fn is_ephemeral(note: &Attachment) -> bool {
    !note.tiers.is_empty() && note.tiers.iter().all(|tier| tier.medium == Medium::Ephemeral)
}

/// Where a member is, if it is anywhere. Another device may have the name of one that is gone.
fn is_there(note: &Attachment, member: &Path) -> Presence {
    let as_a_file = || {
        let found = member.symlink_metadata().is_ok_and(|m| !m.is_file() || m.size() > 0);
        if found { Presence::At(member.to_path_buf()) } else { Presence::Gone }
    };
    device::presence(note, member).unwrap_or_else(as_a_file)
}

/// The tier is gone for good: the directory as home has it.
fn lose_tier(place: &Place, note: &Attachment, mut done: Detached) -> Result<Detached> {
    let members = note.tiers.iter().flat_map(|tier| &tier.members);
    let mut there = None;
    for member in members {
        match is_there(note, member) {
            Presence::At(found) => there = Some(found),
            Presence::Unknown(why) if !is_ephemeral(note) => {
                return Err(Error::Usage(format!(
                    "nobody can say that the tier of {} is gone: {why}; and try again. Nothing was \
                     changed, and nothing is lost",
                    place.path().display()
                )));
            }
            Presence::Unknown(_) | Presence::Gone => {}
        }
    }
    if let Some(member) = there.as_ref().filter(|_| !is_ephemeral(note)) {
        return Err(Error::Usage(format!(
            "the tier is there ({}): detach without --force-without-tier, and nothing is lost. If \
             it is damaged beyond use, move it away first",
            member.display()
        )));
    }
    let cannot =
        |why: String| Error::Usage(format!("cannot give {} back: {why}", place.path().display()));
    let home = RealHome::open(place.path()).map_err(|e| cannot(e.to_string()))?;
    let began = Instant::now();
    while let Err(e) = home.lock() {
        if e.kind() != std::io::ErrorKind::WouldBlock || began.elapsed() > patience(place) {
            return Err(cannot(e.to_string()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    clear_dead_mounts(place, plan::noted_at(note).as_deref(), &mut done.remarks)?;
    home.open_door().and_then(|()| home.remove_attachment()).map_err(|e| cannot(e.to_string()))?;
    done.remarks.extend(
        leavings::remove(place, &home.identity().map_err(|e| cannot(e.to_string()))?)?.left,
    );
    for directory in note.tiers.iter().filter_map(tiersmith_store::AttachedTier::lent_directory) {
        done.remarks.push(format!(
            "{} has files that were lent, of this tier or another: their newest contents are only \
             there, and nothing removes them. With the tier \
             they belong to they can still be brought home",
            directory.display()
        ));
    }
    if is_ephemeral(note) {
        let left = there.map_or("is not there".to_owned(), |member| {
            let at = member.display();
            match device::is_one(&member) {
                // Its superblock still names this home.
                true => format!(
                    "was not used, and {at} still says that it is this home's. To use it for \
                     another home, clear its beginning (`dd if=/dev/zero of={at} bs=1M count=1 \
                     conv=fsync`), and attach it with --overwrite"
                ),
                false => format!("was not used; {at} may be removed"),
            }
        });
        done.remarks.push(format!("the tier {left}. It had clean copies only: nothing is lost"));
        return Ok(done);
    }
    done.remarks.push(
        "the directory is as home had it: blocks that were only in the tier are LOST. Do not start \
         the database on it before it was \
         checked; a backup may be the better beginning"
            .into(),
    );
    Ok(done)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails here says where")]
mod tests {
    use super::*;

    #[test]
    fn an_empty_directory_with_the_vaults_name_is_no_sign_of_an_attached_home() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap().join("db");
        std::fs::create_dir(&home).unwrap();
        let place = Place::find(&home).unwrap();
        detached(&place, None).unwrap();
        std::fs::create_dir(place.vault()).unwrap();
        detached(&place, None).unwrap();
        assert!(!place.vault().exists(), "it is left beside the home");
        std::fs::create_dir_all(place.aside()).unwrap();
        let refused = detached(&place, None).unwrap_err().to_string();
        assert!(refused.contains("is not detached"), "{refused}");
    }
}

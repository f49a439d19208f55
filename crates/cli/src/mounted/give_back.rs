//! Detaching: everything home, the directory at its path, the tier's file and what else was made removed.
//!
//! # Steps
//!
//! | step | what is done | ended here, by whatever: |
//! |---|---|---|
//! | 1 | unmount; a dead daemon's mount is cleared | attached, not mounted |
//! | 2 | what is to be removed is written to `HOME.tiersmith-detach` | the same |
//! | 3 | the store detaches (its own steps, `attach.rs` there) | attached or plain; the next attach or detach knows |
//! | 4 | the tier's file goes, if `attach` had made it | plain; a file without use is left, and the list that names it |
//! | 5 | log and socket go, the list goes | plain |
//!
//! **Invariant**: a tier's file is removed only after the store said that the home is plain.

use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tiersmith_store::home::{Home, RealHome};
use tiersmith_store::{AttachedHome, Attachment, Medium, Options, TierSpec, attachment};

use super::control::{self, Reply, Request};
use super::place::{Mounts, Place};
use super::plan;
use super::refuse;
use crate::error::{Error, Result};

/// How long a daemon that was killed may take to let go of what it had.
const DYING: Duration = Duration::from_secs(30);
/// How long somebody who has the home and no socket may take.
const ENDING: Duration = Duration::from_secs(20);
/// Most bytes of the list of what is to be removed.
const LIST_MAX: u64 = 1 << 20;

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

/// What is still to be removed.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToRemove {
    files: Vec<PathBuf>,
}

/// Detaches the home known as `path`, through its daemon or without one.
///
/// # Errors
/// Why it is attached still. Nothing is lost then, and the same call goes on.
pub(crate) fn detach(path: &Path, fast: &[PathBuf], emulate: bool, give_up: GiveUp) -> Result<Detached> {
    let place = Place::find(path)?;
    let began = Instant::now();
    // This command lists what it gives up, so the daemon only unmounts.
    let by_itself = give_up == GiveUp::Unreadable;
    loop {
        match control::ask(&place, if by_itself { &Request::Unmount } else { &Request::Detach })? {
            Some(Reply::Done { .. }) if by_itself => continue,
            Some(Reply::Done { .. }) => return Ok(Detached::of(&place)),
            Some(_) => return Err(super::unexpected(path)),
            None => {}
        }
        let before = files_by_note(&place);
        match detach_unserved(&place, fast, emulate, give_up) {
            // A daemon that was only beginning when it was asked.
            Err(Error::Store(tiersmith_store::Error::Owned { .. }))
                if began.elapsed() < DYING && control::is_served(&place) => {}
            // Somebody else is detaching it and has got on meanwhile.
            Err(_) if began.elapsed() < DYING && before.is_some() && files_by_note(&place) != before => {}
            other => return other,
        }
    }
}

/// Where the files of an attached home are by its note.
fn files_by_note(place: &Place) -> Option<PathBuf> {
    attachment(place.path()).ok().flatten().map(|note| note.files)
}

/// Detaches a home that no daemon serves.
fn detach_unserved(place: &Place, fast: &[PathBuf], emulate: bool, give_up: GiveUp) -> Result<Detached> {
    let mut done = Detached::of(place);
    let Some(note) = attachment(place.path())? else {
        if let Some(why) = super::unreachable(place) {
            return Err(Error::Usage(why));
        }
        done.was_attached = finish_interrupted(place)?;
        if done.was_attached {
            done.remarks.push("an earlier detach had been interrupted; what it had left is removed".into());
        }
        return Ok(done);
    };
    refuse::not_permitted(place.path(), &plan::owner_of(&note)?)?;
    refuse::in_use(place.path(), &note.files, false)?;
    if give_up == GiveUp::Tier {
        return lose_tier(place, &note, done);
    }
    let made = plan::is_believed(&note) && note.door.contains_key(plan::key::MADE);
    let medium = if emulate { Medium::Emulated } else { Medium::Persistent };
    let specs = plan::noted_tiers(place, &note, fast, medium)?;
    let options = Options { admit: false, home_model: None, ..plan::as_noted(&note) };
    let home = attach_patiently(place, &specs, &options)?;
    // Best effort: it only explains.
    let _sigbus = home.watch_sigbus();
    clear_dead_mounts(place, plan::noted_at(&note).as_deref(), &mut done.remarks)?;
    done.recovery = Some(home.stats().recovery.to_string());
    let skip = give_up == GiveUp::Unreadable;
    done.lost = give_back(place, home, if made { &specs } else { &[] }, skip)?;
    Ok(done)
}

impl Detached {
    fn of(place: &Place) -> Detached {
        let (lost, remarks) = Default::default();
        Detached { path: place.path().into(), was_attached: true, recovery: None, lost, remarks }
    }
}

/// Attaches, and waits for a daemon that is dying or ending: its locks go when its last thread has gone.
///
/// # Errors
/// The store's; another owner, when it lives on.
pub(super) fn attach_patiently(place: &Place, specs: &[TierSpec], options: &Options) -> Result<AttachedHome> {
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

/// How long to wait for whoever has the home: a daemon that answers stays, one whose socket is dead is dying, and what has no socket may be
/// a daemon at its beginning or end, or another program.
fn patience(place: &Place) -> Duration {
    match (control::is_served(place), place.control().symlink_metadata().is_ok()) {
        (true, _) => Duration::ZERO,
        (false, true) => DYING,
        (false, false) => ENDING,
    }
}

/// Unmounts what dead daemons have left at the home's path and at `at`. The caller has the home locked, so no daemon of this home lives.
///
/// # Errors
/// When it cannot be unmounted.
pub(super) fn clear_dead_mounts(place: &Place, at: Option<&Path>, remarks: &mut Vec<String>) -> Result<()> {
    for at in [Some(place.path()), at.filter(|at| *at != place.path())].into_iter().flatten() {
        let began = Instant::now();
        while Mounts::read().ours_at(at) {
            if tiersmith_mount::is_dead(at) {
                tiersmith_mount::clear_dead(at)?;
                remarks
                    .push(format!("the mount of a daemon that had ended was cleared from {}", at.display()));
            } else if began.elapsed() > DYING {
                return Err(Error::Usage(format!(
                    "{} is mounted by a process that lives and does not serve this home; unmount it (umount {0}) and try again",
                    at.display()
                )));
            } else {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
    Ok(())
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
/// gives up unreadable blocks and returns them.
///
/// # Errors
/// Why it is attached still.
pub(super) fn give_back(
    place: &Place,
    home: AttachedHome,
    made: &[TierSpec],
    skip: bool,
) -> Result<Vec<String>> {
    let files = made.iter().flat_map(|spec| &spec.members);
    let files: Vec<PathBuf> =
        files.filter(|f| f.symlink_metadata().is_ok_and(|m| m.is_file())).cloned().collect();
    // The home's lock goes with the last of these: until the end nobody else attaches it.
    let _locked = home.clone();
    write_list(place, &ToRemove { files })?;
    let lost = detach_store(home, skip).inspect_err(|_| {
        let _ = std::fs::remove_file(place.to_remove());
    })?;
    finish_removal(place).map(|_| lost)
}

fn write_list(place: &Place, list: &ToRemove) -> Result<()> {
    let path = place.to_remove();
    let cannot = |source| Error::Io { what: "write", path: place.to_remove(), source };
    // One that is there is of an earlier detach, and says the same.
    let _ = std::fs::remove_file(&path);
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(cannot)?;
    let text = serde_json::to_vec(list).map_err(|e| cannot(e.into()))?;
    file.write_all(&text).and_then(|()| file.sync_all()).map_err(cannot)
}

/// What an interrupted detach has left of a plain home. `false`: nothing, or somebody has the home.
///
/// # Errors
/// A file that cannot be removed.
pub(super) fn finish_interrupted(place: &Place) -> Result<bool> {
    let Ok(home) = RealHome::open(place.path()) else { return Ok(false) };
    let began = Instant::now();
    while home.lock().is_err() {
        // A daemon that was killed holds it until its last thread is gone.
        if place.to_remove().symlink_metadata().is_err() || began.elapsed() > patience(place) {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if attachment(place.path())?.is_some() {
        return Ok(false);
    }
    finish_removal(place)
}

/// Steps 4 and 5, for a home that is plain, and locked by the caller. `false`: there was nothing to do.
///
/// # Errors
/// A file that cannot be removed.
fn finish_removal(place: &Place) -> Result<bool> {
    let path = place.to_remove();
    if path.symlink_metadata().is_err() {
        remove_what_daemons_leave(place)?;
        return Ok(false);
    }
    let text = read_list(&path)?;
    // Cut before it was whole: then the store had not begun to detach, or the home would not be plain.
    if let Ok(list) = serde_json::from_str::<ToRemove>(&text) {
        for file in &list.files {
            remove(file)?;
        }
    }
    remove_what_daemons_leave(place)?;
    remove(&path)?;
    Ok(true)
}

/// Root removes what this list names, so it must be root's own or this user's: looked at when it is open, for by its path it may be another by then.
fn read_list(path: &Path) -> Result<String> {
    let cannot = |source| Error::Io { what: "read", path: path.into(), source };
    let not_ours = || {
        Error::Usage(format!(
            "{} was not written by root or you; look at it, and remove it and the files it names",
            path.display()
        ))
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::LOOP | Errno::NXIO) => return Err(not_ours()),
        other => std::fs::File::from(other.map_err(|e| cannot(e.into()))?),
    };
    let found = file.metadata().map_err(cannot)?;
    if !found.is_file() || !plan::is_trusted(&found) || found.len() > LIST_MAX {
        return Err(not_ours());
    }
    let mut text = String::new();
    let _ = file.take(LIST_MAX).read_to_string(&mut text).map_err(cannot)?;
    Ok(text)
}

fn remove_what_daemons_leave(place: &Place) -> Result<()> {
    let control = place.control();
    if control.symlink_metadata().is_ok_and(|found| found.file_type().is_socket())
        && !control::is_served(place)
    {
        remove(&control)?;
    }
    remove(&place.log())?;
    remove(&place.log_old())
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::Io { what: "remove", path: path.into(), source: e })
        }
        _ => Ok(()),
    }
}

/// The tier is gone for good: the directory as home has it.
fn lose_tier(place: &Place, note: &Attachment, mut done: Detached) -> Result<Detached> {
    let there = note
        .tiers
        .iter()
        .flat_map(|tier| &tier.members)
        .find(|member| member.symlink_metadata().is_ok_and(|m| !m.is_file() || m.size() > 0));
    if let Some(member) = there {
        return Err(Error::Usage(format!(
            "the tier is there ({}): detach without --force-without-tier, and nothing is lost. If it is damaged beyond use, move it away first",
            member.display()
        )));
    }
    let cannot = |why: String| Error::Usage(format!("cannot give {} back: {why}", place.path().display()));
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
    let _ = finish_removal(place)?;
    for directory in note.tiers.iter().filter_map(|tier| tiersmith_store::lent_beside(tier.members.first()?))
    {
        done.remarks.push(format!(
            "{} has files that were lent, of this tier or another: their newest contents are only there, and nothing removes them. With the tier \
             they belong to they can still be brought home",
            directory.display()
        ));
    }
    done.remarks.push(
        "the directory is as home had it: blocks that were only in the tier are LOST. Do not start the database on it before it was \
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
    fn an_interrupted_removal_is_finished_and_a_list_of_somebody_else_is_not_followed() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let place = Place::find(&dir.path().join("db")).unwrap();
        let tier = dir.path().join("db.tier");
        std::fs::write(&tier, "x").unwrap();
        write_list(&place, &ToRemove { files: vec![tier.clone()] }).unwrap();
        std::fs::set_permissions(place.to_remove(), std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(finish_removal(&place).is_err());
        assert!(tier.exists());
        std::fs::set_permissions(place.to_remove(), std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(finish_removal(&place).unwrap());
        assert!(!tier.exists() && !place.to_remove().exists());
        assert!(!finish_removal(&place).unwrap());
        let other = dir.path().join("list");
        std::fs::write(&other, "{}").unwrap();
        std::os::unix::fs::symlink(&other, place.to_remove()).unwrap();
        assert!(finish_removal(&place).unwrap_err().to_string().contains("not written by"));
        std::fs::remove_file(place.to_remove()).unwrap();
        std::fs::write(place.to_remove(), "{").unwrap();
        std::fs::set_permissions(place.to_remove(), std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(finish_removal(&place).unwrap());
    }
}

//! The directory for plain files that the user names, for a tier that has no place beside it: one
//! on flash, above all a whole block device.
//!
//! In it the tier has a directory of its own, `UUID.lent`, for as long as it is attached, whether
//! something is lent or not. So several tiers may share the one that was named, and a file system
//! that is not mounted shows. **Invariant**: [`refuse_unfit`] is asked before a tier is touched,
//! and leaves nothing. Deliberately not here: how much room there is, and where home and mount are;
//! that is for who takes the user's word.

use super::{PlainDir, filled};
use crate::error::{Error, Result};
use crate::format::hex;
use crate::medium::{is_only_opening, why_not_kept};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use tiersmith_dir::Dir;

/// A directory for the plain files of lent files, on a file system that survives a power cut. They
/// are in a directory of the tier's own there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LentIn {
    /// It has to be there.
    pub directory: PathBuf,
    /// The tier's own directory may be made in it. Else it has to be there already: another file
    /// system, or none, may be mounted now.
    pub is_new: bool,
}

/// What the names of such directories end with.
const SUFFIX: &str = ".lent";

/// How the directory of a tier is called in the one that was named.
fn name_of(tier: [u8; 16]) -> OsString {
    OsString::from(hex(&tier) + SUFFIX)
}

fn unfit(directory: &Path, reason: impl Into<String>) -> Error {
    Error::LentIn { directory: directory.to_path_buf(), reason: reason.into() }
}

/// What to do about a directory that is not what it was.
const REMEDY: &str = "If its file system is not mounted, mount it and try again. If it was moved, \
                      say where it is: --passthrough-dir DIR";

/// Refuses a directory in which plain files cannot be, or would not survive a power cut.
///
/// # Errors
/// [`Error::LentIn`], with what is wrong.
pub(crate) fn refuse_unfit(given: &LentIn, syncs: bool) -> Result<()> {
    let path = &given.directory;
    let dir = Dir::open(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => unfit(path, format!("it is not there. {REMEDY}")),
        io::ErrorKind::NotADirectory => {
            unfit(path, format!("it is a link, or no directory. {REMEDY}"))
        }
        _ => unfit(path, e.to_string()),
    })?;
    if let Some(why) = why_not_kept(path) {
        return Err(unfit(
            path,
            format!("{why}, and a power cut would take what only the redo has; name one on flash"),
        ));
    }
    match try_out(&dir, syncs) {
        // What may be lent there is the only copy: no room for more is no reason to keep it back.
        Err(e) if !given.is_new && is_full(&e) => Ok(()),
        tried => tried.map_err(|e| unfit(path, format!("a file was tried there: {e}"))),
    }
}

fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Makes a file as a plain file is made, and removes it.
fn try_out(dir: &Dir, syncs: bool) -> io::Result<()> {
    let fd = OwnedFd::from(make_to_try(dir)?);
    filled(&fd, None, syncs, 4096)?;
    match is_only_opening(fd.as_fd()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(io::Error::other("another process has it open")),
        Err(e) => {
            Err(io::Error::other(format!("its file system does not say who has a file open ({e})")))
        }
    }
}

/// A file whose name is gone already. A kill leaves nothing, or in between an empty file.
fn make_to_try(dir: &Dir) -> io::Result<std::fs::File> {
    // In another container a process may have the same number, and have one there now.
    let mut names = (0..100).map(|n| format!(".tiersmith-try-{}-{n}", std::process::id()));
    loop {
        let Some(name) = names.next() else { return Err(io::ErrorKind::AlreadyExists.into()) };
        match dir.make_file(&name, 0o600, None) {
            Ok(file) => return dir.remove(&name).map(|()| file),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
}

/// Whether two paths may lead to one directory, as those of a file system that is mounted twice.
pub(crate) fn may_be_one(one: &Path, other: &Path) -> bool {
    let found = |path| Dir::open(path).and_then(|dir| dir.found());
    match (found(one), found(other)) {
        (Ok(one), Ok(other)) => one.same_file(&other),
        _ => true,
    }
}

impl PlainDir {
    /// The directory of a tier in the one that was named.
    ///
    /// # Errors
    /// As [`Dir::open`].
    pub(crate) fn within(directory: &Path, tier: [u8; 16], syncs: bool) -> io::Result<Self> {
        let name = name_of(tier);
        let path = std::path::absolute(directory)?.join(&name);
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Ok(Self { beside: Dir::open(directory)?, name, path, owner, syncs })
    }

    /// The same, made where it may be, and whether it was made.
    ///
    /// # Errors
    /// [`Error::LentIn`]: it is not there, or not ours.
    ///
    /// # Durability
    /// It is there after a power cut.
    pub(crate) fn found_within(
        given: &LentIn,
        tier: [u8; 16],
        syncs: bool,
    ) -> Result<(Self, bool)> {
        let refused = |e: io::Error| unfit(&given.directory, e.to_string());
        let place = Self::within(&given.directory, tier, syncs).map_err(refused)?;
        let refused = |e| unfit(&given.directory, format!("{}: {e}", place.path.display()));
        match place.directory() {
            Ok(_) => Ok((place, false)),
            Err(e) if e.kind() == io::ErrorKind::NotFound && given.is_new => {
                place.make_directory().map_err(refused)?;
                Ok((place, true))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let others = match of_others(&given.directory, &place.name) {
                    Some(other) => format!(" (there is {}, of another tier)", other.display()),
                    None => String::new(),
                };
                let name = place.name.to_string_lossy();
                Err(unfit(
                    &given.directory,
                    format!(
                        "the tier's directory {name} is not there{others}. {REMEDY}. If nothing \
                         is lent, make it again: `mkdir -m 700 {}`",
                        place.path.display()
                    ),
                ))
            }
            Err(e) => Err(refused(e)),
        }
    }
}

/// A directory of plain files of another tier.
fn of_others(directory: &Path, ours: &OsString) -> Option<PathBuf> {
    let is_one = |name: &OsString| {
        let digits = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
        name != ours
            && digits.is_some_and(|d| d.len() == 32 && d.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    entries.map(|entry| entry.file_name()).find(is_one).map(PathBuf::from)
}

/// The directory of the plain files of the tier with this uuid, in the one that was named, if it is
/// there and not empty. Of a tier whose uuid is not known, that of any.
pub(crate) fn in_use_within(directory: &Path, uuid: Option<&str>) -> Option<PathBuf> {
    let name = match uuid {
        Some(uuid) => PathBuf::from(format!("{uuid}{SUFFIX}")),
        None => of_others(directory, &OsString::new())?,
    };
    super::if_in_use(directory.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain::{LentDir, PlainName};

    fn given(path: &Path, is_new: bool) -> LentIn {
        LentIn { directory: path.to_path_buf(), is_new }
    }

    #[test]
    fn a_named_directory_has_one_for_each_tier_and_is_known_again_by_it() {
        let dir = tempfile::tempdir().unwrap();
        if let Err(e) = refuse_unfit(&given(dir.path(), true), false) {
            eprintln!("skipped: plain files in a named directory, because {e}");
            return;
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "a trial is left");
        // One of a process of this number that was killed, or is in another container.
        let left = dir.path().join(format!(".tiersmith-try-{}-0", std::process::id()));
        std::fs::write(&left, "").unwrap();
        refuse_unfit(&given(dir.path(), true), false).unwrap();
        std::fs::remove_file(&left).unwrap();
        let (ours, other) = ([7; 16], [8; 16]);
        let missing = PlainDir::found_within(&given(dir.path(), false), ours, false).unwrap_err();
        assert!(missing.to_string().contains("is not there. If its file"), "{missing}");
        let (place, made) = PlainDir::found_within(&given(dir.path(), true), ours, false).unwrap();
        assert!(made);
        let name = PlainName { tier: ours, id: 1, loan: 5 };
        place.make(name, 4096).unwrap().file.write_at(0, b"newest").unwrap();
        let (again, made) = PlainDir::found_within(&given(dir.path(), false), ours, false).unwrap();
        assert!(!made);
        assert_eq!(again.names().unwrap(), [name]);
        assert_eq!(again.directory_path(), dir.path().join(hex(&ours) + ".lent"));
        // Another tier has its own, and is told whose there is.
        let error = PlainDir::found_within(&given(dir.path(), false), other, false).unwrap_err();
        assert!(error.to_string().contains(&format!("{}.lent, of another", hex(&ours))), "{error}");
        let (others, _) = PlainDir::found_within(&given(dir.path(), true), other, false).unwrap();
        assert!(others.names().unwrap().is_empty());
        again.remove(name).unwrap();
        again.tidy();
        others.tidy();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let gone = dir.path().join("nowhere");
        let error = refuse_unfit(&given(&gone, true), false).unwrap_err().to_string();
        assert!(error.contains("nowhere") && error.contains("mount it"), "{error}");
    }

    #[test]
    fn a_named_directory_in_memory_is_refused() {
        let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return };
        let error = refuse_unfit(&given(memory.path(), true), false).unwrap_err().to_string();
        assert!(error.contains("in memory") && error.contains("power cut"), "{error}");
        assert_eq!(std::fs::read_dir(memory.path()).unwrap().count(), 0, "something was made");
    }
}

//! The tier's files before the store has them: made for the database's owner, and judged before
//! root uses them.
//!
//! Whoever can exchange a tier's file decides what the database says. So root takes a file only
//! where root or the database's owner has a say: file and directory belong to one of the two, and
//! the way there is checked (`tiersmith_dir`). Devices are left to the store, for their names are
//! the system's.
//!
//! Not here: the formats, and what a file of the right owner holds; the store judges that.

use super::layout::Layout;
use super::spec::FastSpec;
use crate::error::PlaceError;
use rustix::process::geteuid;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use tiersmith_dir::{Dir, Found, Kind};

/// Members that were made, empty. They are removed again with the value, unless they are in use by
/// then: whoever attaches to one locks it before it writes to it.
#[derive(Debug, Default)]
pub(super) struct Made {
    files: Vec<(Dir, OsString, Found)>,
}

impl Drop for Made {
    fn drop(&mut self) {
        for (dir, name, made) in &self.files {
            // Best effort: an empty file is in nobody's way, and the error that matters is another.
            let _ = dir.remove_unused(name, made);
        }
    }
}

/// Makes the members that are missing, for the database's owner, where `fast` says how long they
/// are to be; judges the others. With the rights of the process: the directory was named by who
/// runs it.
///
/// # Errors
/// [`PlaceError::TierNotTrusted`], and what the file system says.
pub(super) fn prepare(layout: &Layout, fast: &FastSpec) -> Result<Made, PlaceError> {
    let mut made = Made::default();
    for member in &fast.members {
        let Some((dir, name)) = holding(member)? else { continue };
        judge_directory(layout, member, &dir)?;
        // Where it cannot be made, the store says why, and what to do.
        let new = fast.size.is_some() && dir.make_file(&name, 0o600, layout.rights.owner()).is_ok();
        let found = dir.look(&name).map_err(PlaceError::io("cannot stat", member))?;
        match found {
            Some(found) if new => made.files.push((dir, name, found)),
            Some(found) => judge_file(layout, member, &found)?,
            None => {}
        }
    }
    Ok(made)
}

/// Judges the members that an attachment file of root's names.
///
/// # Errors
/// As [`prepare`].
pub(super) fn judge(layout: &Layout, fast: &FastSpec) -> Result<(), PlaceError> {
    // Where root has the rights of the owner the kernel judges.
    if !layout.rights.are_roots() {
        return Ok(());
    }
    for member in &fast.members {
        let Some((dir, name)) = holding(member)? else { continue };
        judge_directory(layout, member, &dir)?;
        if let Some(found) = dir.look(&name).map_err(PlaceError::io("cannot stat", member))? {
            judge_file(layout, member, &found)?;
        }
    }
    Ok(())
}

/// `None`: nothing is there; the store says so, and what to do.
fn holding(member: &Path) -> Result<Option<(Dir, OsString)>, PlaceError> {
    match Dir::holding_target(member) {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied && e.raw_os_error().is_none() => {
            Err(PlaceError::TierNotTrusted { member: member.to_path_buf(), why: e.to_string() })
        }
        Err(_) => Ok(None),
    }
}

fn judge_directory(layout: &Layout, member: &Path, dir: &Dir) -> Result<(), PlaceError> {
    let found = dir.found().map_err(PlaceError::io("cannot stat", dir.path()))?;
    refuse_unless(is_trusted(layout, &found), member, || {
        format!("its directory belongs to user {}, who could exchange it", found.user)
    })
}

fn judge_file(layout: &Layout, member: &Path, found: &Found) -> Result<(), PlaceError> {
    refuse_unless(found.kind != Kind::File || is_trusted(layout, found), member, || {
        format!("it belongs to user {}", found.user)
    })
}

fn is_trusted(layout: &Layout, found: &Found) -> bool {
    let owner = layout.rights.owner().map(|owner| owner.user);
    !geteuid().is_root() || found.is_roots() || Some(found.user) == owner
}

fn refuse_unless(good: bool, member: &Path, why: impl Fn() -> String) -> Result<(), PlaceError> {
    if good {
        return Ok(());
    }
    Err(PlaceError::TierNotTrusted {
        member: member.to_path_buf(),
        why: format!("{}, and neither root nor the database's owner is that user", why()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_member_that_another_attach_has_locked_is_not_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("app.tier");
        let made = || {
            let dir = Dir::open(scratch.path()).unwrap();
            let found = Found::of(dir.make_file("app.tier", 0o600, None).unwrap()).unwrap();
            Made { files: vec![(dir, "app.tier".into(), found)] }
        };
        let ours = made();
        // As who is about to format it.
        let theirs = std::fs::File::open(&path).unwrap();
        rustix::fs::flock(&theirs, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        drop(ours);
        assert!(path.exists(), "the tier of another attach was removed");
        drop(theirs);
        std::fs::remove_file(&path).unwrap();
        drop(made());
        assert!(!path.exists(), "an empty file was left");
    }
}

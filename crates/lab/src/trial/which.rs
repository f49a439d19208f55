//! Which directory a home is, so that another one at its path is told from it.
//!
//! Who owns a home can rename it, and put another directory of theirs in its place, while a trial
//! is under way. The one that was looked at is the one that is attached.
//!
//! Deliberately absent: what is in it.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tiersmith_dir::{Dir, NumberText};

use crate::error::{During, Error, Result};

/// A directory, as the kernel tells it from others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Which {
    inode: NumberText,
    /// The owner's user id.
    pub user: u32,
    /// The number of a device holds until the machine restarts.
    device: NumberText,
    boot: String,
}

impl Which {
    /// The directory at this path, which is no link.
    ///
    /// # Errors
    /// It cannot be opened; an account that does not own it has a say in where its path leads.
    pub(super) fn at(path: &Path) -> Result<Which> {
        let found = Dir::open(path).and_then(|dir| dir.found()).during("open", path)?;
        Ok(Which {
            inode: NumberText(found.inode),
            user: found.user,
            device: NumberText(found.device),
            boot: fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default(),
        })
    }

    fn is(&self, other: &Which) -> bool {
        let same_device = self.boot != other.boot || self.device == other.device;
        self.inode == other.inode && self.user == other.user && same_device
    }

    /// Sees to it that this directory is at the path still.
    ///
    /// # Errors
    /// Another one is.
    pub(super) fn check(&self, path: &Path) -> Result<()> {
        let now = Which::at(path)?;
        if self.is(&now) {
            return Ok(());
        }
        Err(Error::Place {
            what: "trial",
            path: path.to_path_buf(),
            reason: format!(
                "it is not the directory that the trial began with (inode {} of user {}, and now \
                 inode {} of user {}): it was exchanged meanwhile. Put the first one back, or \
                 begin another trial",
                self.inode.0, self.user, now.inode.0, now.user
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_directory_at_a_path_is_told_from_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let (home, aside) = (dir.path().join("home"), dir.path().join("aside"));
        fs::create_dir(&home).unwrap();
        let which = Which::at(&home).unwrap();
        which.check(&home).unwrap();
        fs::rename(&home, &aside).unwrap();
        fs::create_dir(&home).unwrap();
        let said = which.check(&home).unwrap_err().to_string();
        assert!(said.contains("not the directory that the trial began with"), "{said}");
        fs::remove_dir(&home).unwrap();
        std::os::unix::fs::symlink(&aside, &home).unwrap();
        assert!(which.check(&home).is_err(), "a link was followed");
        fs::remove_file(&home).unwrap();
        fs::rename(&aside, &home).unwrap();
        which.check(&home).unwrap();
        // After a restart the file system may be on a device with another number.
        let mut before = which.clone();
        before.device = NumberText(1);
        assert!(before.check(&home).is_err());
        before.boot = "another".into();
        before.check(&home).unwrap();
        before.user += 1;
        assert!(before.check(&home).is_err());
    }
}

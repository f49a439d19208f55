//! Unprivileged accounts of the system, and what they own and reach.
//!
//! **Invariant**: root is never one.
//! **Deliberately absent**: making accounts; which one a server runs as (`server/account.rs`).

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::error::{During, Error, Result};

/// An account of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// Its number.
    pub uid: u32,
    /// Its group's number.
    pub gid: u32,
}

/// The account of this name in the text of /etc/passwd, unless it is root.
pub(crate) fn account_in(passwd: &str, name: &str) -> Option<Account> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        (uid != 0).then(|| Account { name: name.to_owned(), uid, gid })
    })
}

/// Makes the account own a tree; links are not followed.
///
/// # Errors
/// What the system says.
pub fn give(path: &Path, account: &Account) -> Result<()> {
    std::os::unix::fs::lchown(path, Some(account.uid), Some(account.gid))
        .during("change the owner of", path)?;
    if fs::symlink_metadata(path).during("look at", path)?.is_dir() {
        for entry in fs::read_dir(path).during("list", path)? {
            give(&entry.during("list", path)?.path(), account)?;
        }
    }
    Ok(())
}

/// Whether an account can pass `dir` and every directory above it.
///
/// # Errors
/// The first that it cannot pass.
pub(crate) fn can_reach(dir: &Path, account: &Account) -> Result<()> {
    let dir = fs::canonicalize(dir).during("find", dir)?;
    for above in dir.ancestors() {
        let about = fs::metadata(above).during("look at", above)?;
        let mode = about.permissions().mode();
        let passes = match (about.uid() == account.uid, about.gid() == account.gid) {
            (true, _) => mode & 0o100 != 0,
            (_, true) => mode & 0o010 != 0,
            _ => mode & 0o001 != 0,
        };
        if !passes {
            return Err(Error::Place {
                what: "home",
                path: dir.clone(),
                reason: format!(
                    "the account {} may not pass {}; give a directory it can reach, for instance \
                     below /var/tmp",
                    account.name,
                    above.display()
                ),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_read_and_root_is_never_one() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\n\
                      postgres:x:101:104:,,,:/var/lib:/bin/bash\nfool:x:0:0::/:\nbad:x:y\n";
        let account = account_in(passwd, "postgres").unwrap();
        assert_eq!((account.uid, account.gid), (101, 104));
        for name in ["root", "fool", "bad", "absent"] {
            assert_eq!(account_in(passwd, name), None, "{name}");
        }
    }

    #[test]
    fn a_directory_that_the_account_may_not_pass_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("inside");
        fs::create_dir(&inside).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let stranger = Account { name: "stranger".into(), uid: 3_999_999, gid: 3_999_999 };
        let error = can_reach(&inside, &stranger).unwrap_err().to_string();
        assert!(error.contains("stranger may not pass"), "{error}");
        let owner = Account {
            name: "owner".into(),
            uid: rustix::process::geteuid().as_raw(),
            gid: 3_999_999,
        };
        can_reach(&inside, &owner).unwrap();
    }
}

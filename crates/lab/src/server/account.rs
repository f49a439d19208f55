//! As whom a server runs: an unprivileged account when the caller is root, else the caller.
//!
//! **Invariant**: a server never runs as root.
//! **Deliberately absent**: making accounts.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use super::Product;
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

/// The account a server of this product runs as; nothing if it runs as the caller, who is not root.
///
/// # Errors
/// The caller is root, and /etc/passwd has neither the product's account nor `nobody`.
pub fn account(product: &dyn Product) -> Result<Option<Account>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").during("read", "/etc/passwd")?;
    let found = [product.account_name(), "nobody"].into_iter().find_map(|name| account_in(&passwd, name));
    found.map(Some).ok_or_else(|| Error::Target {
        what: format!("looking for an account for {}", product.title()),
        database: "/etc/passwd".into(),
        reason: format!(
            "it must not run as root, and there is neither {} nor nobody",
            product.account_name()
        ),
    })
}

fn account_in(passwd: &str, name: &str) -> Option<Account> {
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

/// Makes the account own one directory, and looks whether it can get there through those above.
///
/// # Errors
/// A directory above that the account may not pass; what to do.
pub fn make_reachable(dir: &Path, product: &dyn Product) -> Result<()> {
    let Some(account) = account(product)? else { return Ok(()) };
    std::os::unix::fs::chown(dir, Some(account.uid), Some(account.gid)).during("change the owner of", dir)?;
    can_reach(dir, &account)
}

/// Whether an account can pass `dir` and every directory above it.
///
/// # Errors
/// The first that it cannot pass.
pub fn can_reach(dir: &Path, account: &Account) -> Result<()> {
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
                    "the account {} may not pass {}; give a directory it can reach, for instance below /var/tmp",
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
        let passwd = "root:x:0:0:root:/root:/bin/bash\npostgres:x:101:104:,,,:/var/lib:/bin/bash\nfool:x:0:0::/:\nbad:x:y\n";
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
        let owner =
            Account { name: "owner".into(), uid: rustix::process::geteuid().as_raw(), gid: 3_999_999 };
        can_reach(&inside, &owner).unwrap();
    }
}

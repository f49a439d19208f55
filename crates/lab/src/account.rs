//! Unprivileged accounts of the system, and what they own and reach.
//!
//! **Invariant**: root is never one.
//! **Deliberately absent**: making accounts; which one a server runs as (`server/account.rs`).

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid, chownat};
use rustix::io::Errno;

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

/// Makes the account own a tree; links are not followed. By descriptors, and what is inside first,
/// the top last: where the account cannot enter the tree yet, it can exchange nothing in it while
/// its owner changes.
///
/// # Errors
/// What the system says.
pub fn give(path: &Path, account: &Account) -> Result<()> {
    let owner = (Some(Uid::from_raw(account.uid)), Some(Gid::from_raw(account.gid)));
    give_within(CWD, path.as_os_str(), owner).during("change the owner of", path)
}

type Owner = (Option<Uid>, Option<Gid>);

fn give_within(dir: BorrowedFd<'_>, name: &OsStr, owner: Owner) -> rustix::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(open) => open,
        // Anything but a directory, a link too.
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return chownat(dir, name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW);
        }
        Err(e) => return Err(e),
    };
    for entry in rustix::fs::Dir::read_from(&open)? {
        let entry = entry?;
        let inside = entry.file_name().to_bytes();
        if inside != b"." && inside != b".." {
            give_within(open.as_fd(), OsStr::from_bytes(inside), owner)?;
        }
    }
    rustix::fs::fchown(&open, owner.0, owner.1)
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

    #[test]
    fn a_tree_is_given_from_its_inside_so_that_its_account_cannot_enter_it_meanwhile() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: giving a tree away, because this is not root");
            return;
        }
        let stranger = Account { name: "stranger".into(), uid: 3_999_999, gid: 3_999_999 };
        let dir = tempfile::tempdir().unwrap();
        let (tree, other) = (dir.path().join("tree"), dir.path().join("other"));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/b/file"), "").unwrap();
        fs::write(&other, "").unwrap();
        std::os::unix::fs::symlink(&other, tree.join("a/link")).unwrap();
        let uid = |path: &Path| fs::symlink_metadata(path).unwrap().uid();
        // One inside that cannot be given: a mount that nobody can write to.
        let fixed = tree.join("a/fixed");
        fs::create_dir(&fixed).unwrap();
        let mount = |what: &[&str]| {
            let done = std::process::Command::new(what[0]).args(&what[1..]).arg(&fixed).status();
            done.is_ok_and(|status| status.success())
        };
        if mount(&["mount", "-t", "tmpfs", "-o", "ro", "tmpfs"]) {
            let refused = give(&tree, &stranger);
            assert!(mount(&["umount"]));
            assert!(refused.is_err());
            assert_eq!((uid(&tree), uid(&tree.join("a"))), (0, 0), "the top was given first");
        } else {
            eprintln!("skipped: a part that cannot be given, because nothing can be mounted here");
        }
        give(&tree, &stranger).unwrap();
        for given in ["", "a", "a/b", "a/b/file", "a/link", "a/fixed"] {
            assert_eq!(uid(&tree.join(given)), stranger.uid, "{given}");
        }
        assert_eq!(uid(&other), 0, "a link was followed");
    }
}

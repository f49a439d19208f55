//! With whose rights a database's files are used, when the process is root.
//!
//! The owner of a database's directory decides what each name in it leads to, at any moment. So
//! root does there what the owner could do, and no more: the thread takes the owner's user, group
//! and groups while it makes, opens, renames or removes a name, and the kernel judges each call.
//! Threads started meanwhile (the store's) keep them. Files that are open stay open, so reading and
//! writing cost nothing.
//!
//! | the directory belongs to | what is in it belongs to | root works as |
//! |---|---|---|
//! | root | root, or nobody yet | root |
//! | root | one account | that account |
//! | an account | that account, or nobody yet | that account |
//! | any | two of them | refused |
//!
//! Not here: what a process that is not root may do. That the kernel decides.
//!
//! Invariants: what is real and saved stays root's, so the account cannot send this process
//! signals, and there is a way back. A thread that was started meanwhile may change its users and
//! groups as the others may: a program that gives its rights up (setuid, setgroups) does so in all
//! threads at once, and the C library ends it where that works in one thread and not in another.

use crate::error::PlaceError;
use rustix::process::{DumpableBehavior, Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, capabilities, set_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tiersmith_dir::{Dir, Found, Kind};

/// A group without members: the one that the kernel shows for what it has no number for.
const NOBODYS: u32 = 65_534;

/// Whose rights the files of one database are used with.
#[derive(Clone, Debug)]
pub(crate) enum Rights {
    /// The process's own: it is not root, or the files are root's.
    Own,
    /// Those of the account that owns the files.
    Of(Arc<Account>),
    /// Nobody's: root would serve one account with the files of another.
    Refused {
        /// The database.
        database: PathBuf,
        /// Who owns what.
        why: String,
    },
}

/// An account that is not root.
#[derive(Debug)]
pub(crate) struct Account {
    user: Uid,
    group: Gid,
    groups: Vec<Gid>,
    database: PathBuf,
}

impl Rights {
    /// For the database `name` in `dir`, whose files are in `home` there.
    ///
    /// # Errors
    /// What the file system says.
    pub(crate) fn of(
        dir: &Dir,
        name: &Path,
        home: &Path,
        database: &Path,
    ) -> Result<Self, PlaceError> {
        if !geteuid().is_root() {
            return Ok(Self::Own);
        }
        let failed = |e| PlaceError::io("cannot look at", database)(e);
        let parent = dir.found().map_err(failed)?;
        let file = dir.look(name).map_err(failed)?;
        let home = dir.look(home).map_err(failed)?.filter(|found| found.kind == Kind::Directory);
        let inside = [file, home];
        let mut things = inside.iter().flatten();
        let first = match parent.is_roots() {
            true => things.clone().next().copied().unwrap_or(parent),
            false => parent,
        };
        let same =
            |found: &Found| found.user == first.user || (found.is_roots() && first.is_roots());
        if let Some(other) = things.find(|found| !same(found)) {
            let of =
                if parent.is_roots() { "its data directory" } else { "the directory it is in" };
            let why = format!(
                "one of it and {of} belongs to user {}, the other to user {}, who could exchange \
                 it. Give both one \
                 owner (chown), or work as the account that uses the database",
                other.user, first.user
            );
            return Ok(Self::Refused { database: database.to_path_buf(), why });
        }
        if first.is_roots() {
            return Ok(Self::Own);
        }
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        // Of an account that is not in there no group is known: that of its files may be one that
        // they took from a directory above (set-group-ID), whose rights the account does not have.
        let (group, groups) = groups(&text("/etc/passwd"), &text("/etc/group"), first.user)
            .unwrap_or_else(|| (NOBODYS, Vec::new()));
        Ok(Self::Of(Arc::new(Account {
            user: Uid::from_raw(first.user),
            group: Gid::from_raw(group),
            groups: groups.into_iter().map(Gid::from_raw).collect(),
            database: database.to_path_buf(),
        })))
    }

    /// This thread has them until the answer is dropped. Where it has them already, nothing
    /// happens.
    ///
    /// # Errors
    /// [`PlaceError::Rights`].
    pub(crate) fn take(&self) -> Result<Taken, PlaceError> {
        let none = Taken { before: None, _of_this_thread: PhantomData };
        let account = match self {
            Self::Own => return Ok(none),
            Self::Refused { database, why } => {
                return Err(PlaceError::Rights { database: database.clone(), why: why.clone() });
            }
            Self::Of(_) if !geteuid().is_root() => return Ok(none),
            Self::Of(account) => account,
        };
        let begin = || {
            let before = Before {
                user: rustix::process::getuid(),
                real_group: rustix::process::getgid(),
                group: rustix::process::getegid(),
                groups: rustix::process::getgroups()?,
                dumpable: rustix::process::dumpable_behavior()?,
            };
            let taken = Taken { before: Some(before), _of_this_thread: PhantomData };
            account.begin(taken.before.as_ref())?;
            Ok::<_, rustix::io::Errno>(taken)
        };
        begin().map_err(|e| PlaceError::Rights {
            database: account.database.clone(),
            why: format!(
                "it belongs to user {user}, and this process may not act as that user ({}). Run \
                 the program as user {user}",
                std::io::Error::from(e),
                user = account.user.as_raw()
            ),
        })
    }

    /// User and group that a file made by root is to have.
    pub(crate) fn owner(&self) -> Option<tiersmith_dir::Owner> {
        match self {
            Self::Of(account) => Some(tiersmith_dir::Owner {
                user: account.user.as_raw(),
                group: account.group.as_raw(),
            }),
            _ => None,
        }
    }

    /// Whether root works here as root.
    pub(crate) fn are_roots(&self) -> bool {
        matches!(self, Self::Own) && geteuid().is_root()
    }
}

impl Account {
    /// Groups first, the user last: only root may change the groups.
    fn begin(&self, before: Option<&Before>) -> rustix::io::Result<()> {
        let Some(before) = before else { return Ok(()) };
        set_thread_groups(&self.groups)?;
        set_thread_res_gid(before.real_group, self.group, before.group)?;
        set_thread_res_uid(before.user, self.user, Uid::ROOT)?;
        // The kernel has taken all. These two give no right to a file.
        let mut rights = capabilities(None)?;
        rights.effective |= rights.permitted & (CapabilitySet::SETUID | CapabilitySet::SETGID);
        set_capabilities(None, rights)
    }
}

/// What the thread had.
#[derive(Debug)]
struct Before {
    /// The real one; the effective one is root, as the saved one is taken to be.
    user: Uid,
    real_group: Gid,
    group: Gid,
    groups: Vec<Gid>,
    /// The kernel takes it from a process that changes its user.
    dumpable: DumpableBehavior,
}

/// The thread has an account's rights.
#[derive(Debug)]
pub(crate) struct Taken {
    before: Option<Before>,
    /// Rights are a thread's.
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let Some(before) = &self.before else { return };
        let end = || {
            set_thread_res_uid(before.user, Uid::ROOT, Uid::ROOT)?;
            set_thread_res_gid(before.real_group, before.group, before.group)?;
            set_thread_groups(&before.groups)?;
            rustix::process::set_dumpable_behavior(before.dumpable)
        };
        if let Err(e) = end() {
            log::warn!("this thread keeps the rights of a database's owner: {e}");
        }
    }
}

/// The group, and all groups, of the user with this number.
fn groups(passwd: &str, group: &str, user: u32) -> Option<(u32, Vec<u32>)> {
    let (name, first) = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number, group) = (fields.next()?, fields.nth(1)?, fields.next()?);
        (number.parse() == Ok(user)).then(|| Some((name, group.parse().ok()?)))?
    })?;
    let others = group.lines().filter_map(|line| {
        let mut fields = line.split(':').skip(2);
        let (number, members) = (fields.next()?, fields.next()?);
        members.split(',').any(|member| member == name).then(|| number.parse().ok())?
    });
    Some((first, std::iter::once(first).chain(others.filter(|other| *other != first)).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_a_user_are_the_own_one_and_those_that_name_the_user() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nada:x:7:70:,,,:/srv/ada:/bin/sh\nbad:x:8\n";
        let group = "root:x:0:\nada:x:70:ada\npmem:x:71:bob,ada\nadam:x:72:adam\nbad:x\n";
        assert_eq!(groups(passwd, group, 7), Some((70, vec![70, 71])));
        assert_eq!(groups(passwd, group, 0), Some((0, vec![0])));
        assert_eq!(groups(passwd, group, 8), None);
        assert_eq!(groups(passwd, group, 9), None);
    }
}

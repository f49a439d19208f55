//! Working as the owner of a database, for root.
//!
//! The directory of an attached SQLite database is the owner's, who can change every name in it. So
//! root does there what the owner could do, and no more. It is the thread that changes, and the
//! threads that it starts then.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::error::{Error, Result};

/// This thread works as the owner of a file until this is dropped; without root, or when root owns
/// the file, as whoever it is.
pub(super) struct AsOwner(Option<Owner>);

struct Owner {
    user: Uid,
    group: Gid,
    groups: Vec<Gid>,
    /// Root's own.
    before: (Gid, Vec<Gid>),
}

impl AsOwner {
    /// Becomes the owner of what is at `path`.
    ///
    /// # Errors
    /// When nothing is there; when the system does not allow it.
    pub(super) fn of(path: &Path) -> Result<Self> {
        let io = |what| move |source| Error::Io { what, path: path.to_path_buf(), source };
        let found = std::fs::metadata(path).map_err(io("look at"))?;
        let user = Uid::from_raw(found.uid());
        if !geteuid().is_root() || user.is_root() {
            return Ok(Self(None));
        }
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        let (group, groups) = groups(&text("/etc/passwd"), &text("/etc/group"), found.uid())
            .unwrap_or_else(|| (found.gid(), vec![found.gid()]));
        let before = rustix::process::getgroups().map_err(|e| io("become the owner of")(e.into()))?;
        let before = (rustix::process::getegid(), before);
        let groups = groups.into_iter().map(Gid::from_raw).collect();
        let owner = Owner { user, group: Gid::from_raw(group), groups, before };
        owner.begin().map_err(|e| io("become the owner of")(e.into()))?;
        Ok(Self(Some(owner)))
    }

    /// User and group that new files are to have, when they are not those of this process.
    pub(super) fn ids(&self) -> Option<(u32, u32)> {
        self.0.as_ref().map(|owner| (owner.user.as_raw(), owner.group.as_raw()))
    }

    /// Does `work` as it was before.
    ///
    /// # Errors
    /// When the system does not allow it.
    pub(super) fn as_before<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        let Some(owner) = &self.0 else { return Ok(work()) };
        let io = |e: rustix::io::Errno| Error::Io {
            what: "change the user for",
            path: "/proc/thread-self".into(),
            source: e.into(),
        };
        owner.end().map_err(io)?;
        let done = work();
        owner.begin().map_err(io)?;
        Ok(done)
    }
}

impl Drop for AsOwner {
    fn drop(&mut self) {
        if let Some(owner) = &self.0
            && let Err(e) = owner.end()
        {
            log::warn!("this thread stays user {}: {e}", owner.user.as_raw());
        }
    }
}

impl Owner {
    /// Groups first, the user last: only root may change the groups. What is real and saved stays
    /// root's, so that the owner cannot send signals, and that there is a way back.
    fn begin(&self) -> rustix::io::Result<()> {
        set_thread_groups(&self.groups)?;
        set_thread_res_gid(self.before.0, self.group, self.before.0)?;
        set_thread_res_uid(Uid::ROOT, self.user, Uid::ROOT)
    }

    fn end(&self) -> rustix::io::Result<()> {
        set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT)?;
        set_thread_res_gid(self.before.0, self.before.0, self.before.0)?;
        set_thread_groups(&self.before.1)
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

//! Who asks, and what a thread of the mount takes over from the caller for one call: the umask, the
//! user and the group for files, or all rights.
//!
//! Linux keeps these for each thread, and a guard gives the thread its own back, also when the call
//! panics. Only root's mount takes a user over: without root there is no caller but the one who
//! mounted.
//!
//! Read next: `fs/names.rs`, where names are made and changed.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Gid;
use std::cell::Cell;
use std::io::{self, Read};

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The thread that waits for the answer; 0 when it has no number here, as in another container.
    pub(crate) pid: u32,
}

/// Longest `/proc/PID/status` that is read. A process may have 65536 groups.
const STATUS_MAX: u64 = 1 << 20;
/// No user and no group: to ask for it changes nothing.
const NOBODY: u32 = u32::MAX;

thread_local! {
    /// Whether this thread has a umask of its own.
    static OWN_UMASK: Cell<bool> = const { Cell::new(false) };
}

impl Caller {
    /// Calls `make` so that what it makes is the caller's from its first moment: there is nothing
    /// to be given away afterwards, and so nothing that could be put in its place. The thread keeps
    /// its rights: the kernel has asked whether the caller may, with groups that are not known
    /// here.
    pub(crate) fn owning<T>(self, make: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        let own = Own::now();
        if !own.is_root() || (self.uid, self.gid) == (own.uid, own.gid) {
            return make();
        }
        let rights = rustix::thread::capabilities(None)?;
        let _back = Taken::take(own, self, None)?;
        // The kernel takes the rights to files away with root's user number.
        rustix::thread::set_capabilities(None, rights)?;
        make()
    }

    /// Calls `work` with the caller's rights to files and no others, so that the kernel judges what
    /// is there at the moment it acts.
    pub(crate) fn judged<T>(self, work: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        let own = Own::now();
        if !own.is_root() || self.uid == own.uid {
            return work();
        }
        let _back = Taken::take(own, self, Some(self.groups()))?;
        work()
    }

    /// The further groups of the thread that waits; none when they cannot be known.
    fn groups(self) -> Vec<Gid> {
        let mut status = String::new();
        let path = format!("/proc/{}/status", self.pid);
        let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let Ok(file) = opened.map(std::fs::File::from) else { return Vec::new() };
        match file.take(STATUS_MAX).read_to_string(&mut status) {
            Ok(_) => groups_of(&status, self.uid),
            Err(_) => Vec::new(),
        }
    }
}

/// The groups in the text of a `/proc/PID/status` whose user for files is `uid`.
fn groups_of(status: &str, uid: u32) -> Vec<Gid> {
    let numbers = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
        line.split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<u32>>()
    };
    // Real, effective, saved, for files.
    if numbers("Uid:").get(3) != Some(&uid) {
        return Vec::new();
    }
    numbers("Groups:").into_iter().map(Gid::from_raw).collect()
}

/// What the thread is when it serves nobody.
#[derive(Clone, Copy)]
struct Own {
    uid: u32,
    gid: u32,
}

impl Own {
    fn now() -> Self {
        Self { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }

    fn is_root(self) -> bool {
        self.uid == 0
    }
}

/// A user and a group that the thread has taken over for files. Dropping it gives back its own.
struct Taken {
    own: Own,
    groups: Option<Vec<Gid>>,
}

impl Taken {
    fn take(own: Own, who: Caller, groups: Option<Vec<Gid>>) -> Result<Self, Errno> {
        let mut taken = Self { own, groups: None };
        if let Some(groups) = groups {
            taken.groups = Some(rustix::process::getgroups()?);
            rustix::thread::set_thread_groups(&groups)?;
        }
        // The group first: root's user number gives the right to change it.
        if set_group(who.gid) && set_user(who.uid) { Ok(taken) } else { Err(Errno::PERM) }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let user = set_user(self.own.uid);
        let group = set_group(self.own.gid);
        let groups = self
            .groups
            .as_ref()
            .is_none_or(|groups| rustix::thread::set_thread_groups(groups).is_ok());
        if !(user && group && groups) {
            // What the next caller makes would be somebody else's. The tier is crash-safe; the next
            // start recovers.
            log::error!("BUG: a thread of the mount cannot become itself again; the process ends");
            std::process::abort();
        }
    }
}

/// Whether the thread's user for files is `uid` now.
fn set_user(uid: u32) -> bool {
    // SAFETY: no memory is involved; it changes this thread only.
    unsafe { libc::setfsuid(uid) };
    // SAFETY: as above. The call says what was, not whether it worked; this one changes nothing.
    unsafe { libc::setfsuid(NOBODY) }.cast_unsigned() == uid
}

/// Whether the thread's group for files is `gid` now.
fn set_group(gid: u32) -> bool {
    // SAFETY: no memory is involved; it changes this thread only.
    unsafe { libc::setfsgid(gid) };
    // SAFETY: as above. The call says what was, not whether it worked; this one changes nothing.
    unsafe { libc::setfsgid(NOBODY) }.cast_unsigned() == gid
}

/// Calls with the caller's umask. The thread gets one of its own first, else other threads would
/// make files with it at the same instant.
pub(crate) fn with_umask<T>(umask: u32, call: impl FnOnce() -> T) -> T {
    if !OWN_UMASK.get() {
        match own_umask() {
            Ok(()) => OWN_UMASK.set(true),
            Err(e) => log::warn!("a thread of the mount has no umask of its own: {e}"),
        }
    }
    let before = rustix::process::umask(Mode::from_raw_mode(umask & 0o777));
    let result = call();
    rustix::process::umask(before);
    result
}

/// Gives the calling thread a umask of its own, so that it can use that of whoever asks.
fn own_umask() -> io::Result<()> {
    // SAFETY: no memory is involved: the thread stops sharing its umask and working directory with
    // the others, and nothing here relies on either being shared.
    if unsafe { libc::unshare(libc::CLONE_FS) } < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn groups_are_those_of_a_process_of_the_same_user() {
        let status =
            "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t1\t1\t1\t1\nGroups:\t7 65534 \nNStgid:\t1\n";
        let raw = |uid| groups_of(status, uid).into_iter().map(Gid::as_raw).collect::<Vec<_>>();
        assert_eq!(raw(4), [7, 65534]);
        assert!(raw(1).is_empty());
        assert!(groups_of("", 0).is_empty());
    }

    #[test]
    fn a_thread_is_itself_again_whatever_becomes_of_the_call() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: taking a user over, because it needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let who = Caller { uid: 2001, gid: 2002, pid: 0 };
        let make =
            |name: &str| std::fs::write(dir.path().join(name), "").map_err(|_| Errno::ACCESS);
        let owner = |name: &str| {
            let found = std::fs::metadata(dir.path().join(name)).unwrap();
            (found.uid(), found.gid())
        };
        who.owning(|| make("theirs")).unwrap();
        assert_eq!(owner("theirs"), (2001, 2002));
        assert_eq!(who.judged(|| make("refused")), Err(Errno::ACCESS));
        let panicked =
            std::panic::catch_unwind(|| who.owning(|| -> Result<(), Errno> { panic!("so") }));
        assert!(panicked.is_err());
        make("own").unwrap();
        assert_eq!(owner("own"), (0, 0));
    }
}

//! The way to a directory, component by component, and whom it has to trust.
//!
//! Root follows a path that somebody gave it. In each directory on the way, whoever may change its
//! names decides where the rest of the path leads. So root remembers who had a say: the owner of
//! each directory that was passed through, and of each link that was followed, unless it is root.
//! Then
//!
//! - nobody had a say: the directory is taken, whosesoever it is;
//! - one account had: the directory has to belong to it. Whatever that account puts on the way,
//!   root ends in a directory of that account, in which it could do everything itself;
//! - two had, or anybody (a directory that everybody may write to, without the sticky bit):
//!   refused.
//!
//! A link of the kernel's in `/proc` (`root`, `cwd`, `fd/N`) is followed to what it leads to, not
//! by its text. As the last component of a path whose target is asked for it is refused.
//!
//! Without root the kernel's permissions are the rule, and nothing is checked here.
//!
//! Groups are trusted: who may write to a directory through its group, without owning it, is taken
//! to be as good as its owner.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::found::{Found, Kind};

/// Of a directory that is only a place for names: it needs no right to read it.
pub(crate) const HANDLE: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// As many links as the kernel follows.
const LINKS_MAX: usize = 40;

/// What the last component of a path may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    IsDirectory,
    MayBeLink,
}

/// Opens the directory at `path`.
pub(crate) fn to(path: &Path, last: Last) -> io::Result<OwnedFd> {
    let mut say = Say { checked: geteuid().is_root(), ..Say::default() };
    let (at, seen) = walk(start(Path::new("."))?, path, last, &mut say)?;
    say.check(&look(&at)?, &seen)?;
    Ok(at)
}

/// Opens the directory that holds what `path` leads to in the end, and gives the name there: a link
/// at the last component is followed like one before it. What has the name is not asked, so that it
/// may be a mount whose server died or hangs.
pub(crate) fn to_target(path: &Path) -> io::Result<(OwnedFd, OsString)> {
    let mut say = Say { checked: geteuid().is_root(), ..Say::default() };
    let mut path = path.to_path_buf();
    let mut from = start(Path::new("."))?;
    for _ in 0..LINKS_MAX {
        let Some(name) = path.file_name().map(OsString::from) else {
            let text = format!("{}: is not the path of a file in a directory", shown(&path));
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let (at, seen) = walk(from, parent.unwrap_or(Path::new(".")), Last::MayBeLink, &mut say)?;
        // Only of a link this says anything else than that it is none.
        let Ok(target) = rustix::fs::readlinkat(&at, &name, Vec::new()) else {
            say.check(&look(&at)?, &seen)?;
            return Ok((at, name));
        };
        if is_magic(&at, &name) {
            return Err(refused(format!(
                "{} is a link of the kernel's, whose text is not where it leads; give the path \
                 that it stands for",
                shown(&seen.join(&name))
            )));
        }
        say.directory(&look(&at)?, &seen)?;
        let link = rustix::fs::statat(&at, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        say.link(&Found::from_stat(&link), &seen.join(&name))?;
        path = PathBuf::from(OsString::from_vec(target.into_bytes()));
        from = at;
    }
    Err(Errno::LOOP.into())
}

fn walk(from: OwnedFd, path: &Path, last: Last, say: &mut Say) -> io::Result<(OwnedFd, PathBuf)> {
    if path.as_os_str().is_empty() {
        return Err(Errno::NOENT.into());
    }
    let mut seen = PathBuf::new();
    let mut at = if path.is_absolute() {
        seen.push("/");
        start(Path::new("/"))?
    } else {
        from
    };
    let mut rest = components(path);
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        let entry = seen.join(&name);
        say.directory(&look(&at)?, &seen)?;
        let found = match rustix::fs::statat(&at, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Found::from_stat(&stat),
            Err(e) => return Err(e.into()),
        };
        if found.kind == Kind::Link && !(rest.is_empty() && last == Last::IsDirectory) {
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            say.link(&found, &entry)?;
            if is_magic(&at, &name) {
                at = rustix::fs::openat(
                    &at,
                    &name,
                    HANDLE.difference(OFlags::NOFOLLOW),
                    Mode::empty(),
                )?;
                seen = entry;
                continue;
            }
            let target = rustix::fs::readlinkat(&at, &name, Vec::new())?.into_bytes();
            let target = PathBuf::from(OsString::from_vec(target));
            if target.is_absolute() {
                seen = PathBuf::from("/");
                at = start(Path::new("/"))?;
            }
            let mut on = components(&target);
            on.append(&mut rest);
            rest = on;
            continue;
        }
        at = rustix::fs::openat(&at, &name, HANDLE, Mode::empty())?;
        seen = entry;
    }
    Ok((at, seen))
}

/// Whether a link is one of those in `/proc` (`root`, `cwd`, `fd/N`) that lead to what a process
/// has open: perhaps in a file system that only that process sees, so its text may lead elsewhere
/// here.
fn is_magic(dir: &OwnedFd, link: &OsString) -> bool {
    // First, so that no other link is followed here: what it leads to may hang.
    if !rustix::fs::fstatfs(dir).is_ok_and(|found| found.f_type == PROC_SUPER_MAGIC) {
        return false;
    }
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(dir, link, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
    matches!(opened, Err(Errno::LOOP))
}

/// Who had a say in where a path leads.
#[derive(Default)]
struct Say {
    checked: bool,
    /// User id, and the first directory or link through which.
    account: Option<(u32, PathBuf)>,
}

impl Say {
    /// A directory that is passed through.
    fn directory(&mut self, found: &Found, path: &Path) -> io::Result<()> {
        const EVERYBODY_WRITES: u32 = 0o002;
        const STICKY: u32 = 0o1000;
        if !self.checked {
            return Ok(());
        }
        if found.mode & EVERYBODY_WRITES != 0 && found.mode & STICKY == 0 {
            return Err(refused(format!(
                "everybody may exchange what is in {}, so root follows no path through it. Take \
                 that \
                 right away (chmod o-w), or work as the account that the files belong to",
                shown(path)
            )));
        }
        self.account(found.user, path)
    }

    /// A link that is followed.
    fn link(&mut self, found: &Found, path: &Path) -> io::Result<()> {
        if self.checked { self.account(found.user, path) } else { Ok(()) }
    }

    fn account(&mut self, user: u32, path: &Path) -> io::Result<()> {
        if is_root(user) {
            return Ok(());
        }
        match &self.account {
            None => self.account = Some((user, path.to_path_buf())),
            Some((one, _)) if *one == user => {}
            Some((one, through)) => {
                return Err(refused(format!(
                    "user {one} owns {}, and user {user} owns {}: each could exchange what \
                     follows, so \
                     root goes no further. Work as the account that the files belong to",
                    shown(through),
                    shown(path)
                )));
            }
        }
        Ok(())
    }

    /// The directory that was reached.
    fn check(&self, found: &Found, path: &Path) -> io::Result<()> {
        match &self.account {
            Some((user, through)) if found.user != *user => Err(refused(format!(
                "{} belongs to user {}, but user {user}, who owns {}, could have put it there; so \
                 root \
                 does not act on it. Where a link led here, give the path that it leads to, if it \
                 is the \
                 right one; else work as the account that the files belong to, or move them out of \
                 the \
                 other's directory",
                shown(path),
                found.user,
                shown(through)
            ))),
            _ => Ok(()),
        }
    }
}

fn refused(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// Of a name that somebody else chose, nothing may reach a terminal as a command.
fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    if text.is_empty() { ".".to_owned() } else { text.escape_debug().to_string() }
}

/// Whether a user id is root's. In a user namespace (a rootless container) what belongs to accounts
/// outside it, the root directory among it, appears as the overflow id. Where nobody inside can
/// become that user, it counts as root; where somebody can (a container with a `nobody` of its
/// own), the two cannot be told apart, and it is an account like others.
pub(crate) fn is_root(user: u32) -> bool {
    static OUTSIDE: OnceLock<Option<u32>> = OnceLock::new();
    user == 0 || *OUTSIDE.get_or_init(outsiders_id) == Some(user)
}

fn outsiders_id() -> Option<u32> {
    let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
    let overflow =
        std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok()?;
    (!is_mapped(&map, overflow)).then_some(overflow)
}

/// Whether an account of the namespace with this map has the user id.
fn is_mapped(map: &str, user: u32) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().unwrap_or(0));
        let (first, _, count) = (fields.next(), fields.next(), fields.next());
        let first = first.unwrap_or(0);
        (first..first.saturating_add(count.unwrap_or(0))).contains(&user.into())
    })
}

fn start(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(
        CWD,
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

fn look(dir: &OwnedFd) -> io::Result<Found> {
    Ok(Found::from_stat(&rustix::fs::fstat(dir)?))
}

fn components(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_os_string()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_of_the_namespace_is_not_taken_for_one_outside() {
        for (map, mapped) in [
            ("         0          0 4294967295\n", true),
            ("0 1000 1\n", false),
            ("0 1000 1\n1 100000 65535\n", true),
            ("0 1000 1\n1 100000 65533\n", false),
            ("", false),
        ] {
            assert_eq!(is_mapped(map, 65_534), mapped, "{map}");
        }
    }
}

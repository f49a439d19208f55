//! Where a mounted home is: its path, its names beside it, and what stands there now.
//!
//! Beside a home `PATH` there are, while it is attached: `PATH.tiersmith-home` (the vault, with the
//! files in it, which may be locked for this user), `PATH.tiersmith-log` and, when that was long,
//! `PATH.tiersmith-log.old`; while its daemon runs `PATH.tiersmith-control` (a socket); while it is
//! being detached `PATH.tiersmith-detach` (what is still to be removed). A home that is a mount
//! point has its vault inside, `PATH/.tiersmith-home`, and beside it only while it is mounted over.
//!
//! The directory that holds them is opened once, when the place is found: whatever is made, opened
//! or removed beside a home is reached by its name in there ([`Place::dir`]).
//!
//! **Invariant**: nothing here asks a file system that a daemon serves: a daemon that died or hangs
//! cannot make these calls fail or wait. Mounts are looked up in the kernel's list, not by looking
//! at the directory.
//! **Deliberately absent**: changing anything.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use tiersmith_dir::{Dir, Kind};
use tiersmith_store::AttachedHome;
use tiersmith_store::home::{
    ASIDE_SUFFIX, ATTACHMENT, FILES_NAME, NOTE_FILE, files_aside, files_inside, home_of_aside,
    vault_of,
};

use crate::error::{Error, Result};

/// What the kernel calls a mount of ours.
pub(crate) const FS_NAME: &str = "tiersmith";
/// Longest name with which the socket's name is made; a longer one is replaced by its hash, because
/// a socket's path is short.
const NAME_MAX: usize = 64;

/// A home's path, without links.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    path: PathBuf,
    parent: PathBuf,
    name: OsString,
    dir: Arc<Dir>,
}

/// What is to be found at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing.
    Missing,
    /// A directory that is not attached.
    Plain,
    /// Attached, and no daemon's mount is there.
    Attached,
    /// Attached, and a file system of ours is mounted at this path; its daemon may be alive or
    /// dead.
    Mounted(PathBuf),
}

impl Place {
    /// The place of a home that is known as `path`.
    ///
    /// # Errors
    /// When there is no such parent directory, or the path has no last name, or it is a directory
    /// that was moved aside; when root's way there leads through a directory or a link of somebody
    /// else.
    pub(crate) fn find(path: &Path) -> Result<Place> {
        let (whole, parent, name) = Place::resolve(path)?;
        let cannot = |source| Error::Io { what: "find", path: path.into(), source };
        // Who had a say in where the path leads counts for the path as it was given; what is acted
        // on is what it led to just now.
        let asked = std::path::absolute(path).ok().filter(|path| path.file_name().is_some());
        let (dir, held) =
            Dir::holding_target(&asked.unwrap_or_else(|| whole.clone())).map_err(cannot)?;
        let dir = Dir::from_handle(dir.into(), &parent);
        if held != name || !dir.is_at_its_path().map_err(cannot)? {
            return Err(Error::Usage(format!(
                "cannot use {}: where it leads changed while it was looked at; see who moves it, \
                 and try again",
                path.display()
            )));
        }
        let place = Place { path: whole, parent, name, dir: Arc::new(dir) };
        place.refuse_aside()?;
        Ok(place)
    }

    /// The path without links, its parent, and its name there.
    fn resolve(path: &Path) -> Result<(PathBuf, PathBuf, OsString)> {
        let cannot = |source| Error::Io { what: "find", path: path.into(), source };
        let mut at = std::path::absolute(path).map_err(cannot)?;
        // Each round follows one link; the limit is the kernel's.
        for _ in 0..40 {
            let (Some(parent), Some(name)) = (at.parent(), at.file_name()) else {
                at = std::fs::canonicalize(&at).map_err(cannot)?;
                if at.parent().is_none() {
                    return Err(Error::Usage(format!(
                        "cannot use {} as a home: it has no parent directory to be moved aside in; \
                         name a directory inside it",
                        path.display()
                    )));
                }
                continue;
            };
            let parent = std::fs::canonicalize(parent).map_err(cannot)?;
            let whole = parent.join(name);
            // Of a mount point whose daemon died this says that it is no link, which is right.
            match rustix::fs::readlink(&whole, Vec::new()) {
                Ok(target) => at = parent.join(OsStr::from_bytes(target.as_bytes())),
                Err(_) => {
                    let name = name.to_os_string();
                    return Ok((whole, parent, name));
                }
            }
        }
        Err(cannot(std::io::Error::from_raw_os_error(rustix::io::Errno::LOOP.raw_os_error())))
    }

    fn refuse_aside(&self) -> Result<()> {
        match home_of_aside(&self.path) {
            Some(home) => Err(Error::Usage(format!(
                "{} is where an attached home was moved aside to; name the home itself: {}",
                self.path.display(),
                home.display()
            ))),
            None => Ok(()),
        }
    }

    /// The home's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory that holds the home, open.
    pub(crate) fn dir(&self) -> &Dir {
        &self.dir
    }

    fn beside(&self, suffix: &str) -> OsString {
        let mut name = self.name.clone();
        name.push(suffix);
        name
    }

    /// That the attached home is in the directory that is open here. Its path may have led
    /// elsewhere when the store followed it, where somebody else owns a directory above it: then
    /// the home's vault is not in this one, and nothing of the daemon's is made here.
    ///
    /// # Errors
    /// Says so.
    pub(super) fn check_holds(&self, home: &AttachedHome) -> Result<()> {
        let cannot = |source| Error::Io { what: "look at", path: self.vault(), source };
        let Some(files) = home.directory() else { return Ok(()) };
        let handle = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let around =
            rustix::fs::openat(files, "..", handle, Mode::empty()).map_err(|e| cannot(e.into()))?;
        let around = Dir::from_handle(around, &self.vault()).found().map_err(cannot)?;
        let beside = self.dir.look(self.vault().file_name().unwrap_or_default()).map_err(cannot)?;
        let inside = self.vault_inside().and_then(|vault| vault.found().ok());
        if [beside, inside].into_iter().flatten().any(|vault| vault.same_file(&around)) {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "cannot serve {}: {} does not hold the home any more: somebody moved a directory or \
             put a link in \
             the way; see who, and put it back",
            self.path.display(),
            self.dir.path().display()
        )))
    }

    /// The vault inside the home, which is a mount point. Not to be looked for through a mount of
    /// ours. What is not root's alone, or has no note of ours in it, is none.
    fn vault_inside(&self) -> Option<Dir> {
        let vault = self.dir.sub(&self.name).and_then(|top| top.sub(ASIDE_SUFFIX)).ok()?;
        let is_locked =
            vault.found().is_ok_and(|found| found.user == 0 && found.mode & 0o777 == 0o700);
        (is_locked && has(&vault, NOTE_FILE)).then_some(vault)
    }

    /// Whether the files are, or may be, in the vault inside: who is not root cannot look.
    fn has_files_inside(&self) -> bool {
        self.vault_inside().is_some_and(|vault| has(&vault, FILES_NAME))
    }

    /// Who owns the home's files; `None` where this user may not look, or there are none.
    pub(crate) fn owner(&self) -> Option<u32> {
        let vault = self.dir.sub(self.vault().file_name().unwrap_or_default()).ok();
        let aside = vault.and_then(|vault| vault.look(FILES_NAME).ok().flatten());
        let found = match aside {
            Some(aside) => aside,
            // What is mounted at the path is not asked: its daemon may hang.
            None if self.mounted_on_path() => return None,
            None => {
                match self.vault_inside().and_then(|vault| vault.look(FILES_NAME).ok().flatten()) {
                    Some(inside) => inside,
                    None => self.dir.look(&self.name).ok().flatten()?,
                }
            }
        };
        (found.kind == Kind::Directory).then_some(found.user)
    }

    /// Whose the vault is: of a daemon that serves the home, the user who runs it. `None`: there is
    /// no vault, and so no daemon.
    pub(crate) fn keeper(&self) -> Option<u32> {
        let found = self.dir.look(self.vault().file_name().unwrap_or_default()).ok().flatten()?;
        (found.kind == Kind::Directory).then_some(found.user)
    }

    /// The directory that keeps the files while the home is attached.
    pub(crate) fn vault(&self) -> PathBuf {
        vault_of(&self.path)
    }

    /// Where in it they are.
    pub(crate) fn aside(&self) -> PathBuf {
        files_aside(&self.path)
    }

    /// The name of the list of what a detach has still to remove.
    pub(crate) fn to_remove_name(&self) -> OsString {
        self.beside(".tiersmith-detach")
    }

    /// That list, for messages.
    pub(crate) fn to_remove(&self) -> PathBuf {
        self.parent.join(self.to_remove_name())
    }

    /// Whether there is one.
    pub(crate) fn has_to_remove(&self) -> bool {
        self.dir.look(self.to_remove_name()).is_ok_and(|found| found.is_some())
    }

    /// The name of the daemon's messages.
    pub(crate) fn log_name(&self) -> OsString {
        self.beside(".tiersmith-log")
    }

    /// The daemon's messages, for messages about them.
    pub(crate) fn log(&self) -> PathBuf {
        self.parent.join(self.log_name())
    }

    /// The name of its messages before those.
    pub(crate) fn log_old_name(&self) -> OsString {
        self.beside(".tiersmith-log.old")
    }

    /// The name of the daemon's socket in the parent directory.
    pub(crate) fn control_name(&self) -> OsString {
        let bytes = self.name.as_bytes();
        let mut name = if bytes.len() <= NAME_MAX {
            bytes.to_vec()
        } else {
            let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            });
            format!("{hash:016x}").into_bytes()
        };
        name.extend_from_slice(b".tiersmith-control");
        OsString::from_vec(name)
    }

    /// The daemon's socket, for messages.
    pub(crate) fn control(&self) -> PathBuf {
        self.parent.join(self.control_name())
    }

    /// The directory that holds the home's files now, whether moved aside or not; `None` when there
    /// is none.
    pub(crate) fn files(&self) -> Option<PathBuf> {
        let aside = self.aside();
        // An empty one is what an interrupted detach left of the note.
        let is_empty = std::fs::read_dir(&aside).is_ok_and(|mut entries| entries.next().is_none());
        // A vault that is locked for this user has the files in it, else it would not be locked.
        let is_locked = || {
            let looked = aside.symlink_metadata();
            looked.is_err_and(|e| e.kind() == std::io::ErrorKind::PermissionDenied)
        };
        if is_locked() || (is_home(&aside) && !is_empty) {
            return Some(aside);
        }
        if self.mounted_on_path() {
            return None;
        }
        if self.has_files_inside() {
            return Some(files_inside(&self.path));
        }
        is_home(&self.path).then(|| self.path.clone())
    }

    /// Whether a file system of ours is mounted on the home's own path.
    fn mounted_on_path(&self) -> bool {
        Mounts::read().ours_at(&self.path)
    }

    /// What is there. `at` is the mount point when it is not the home's own path.
    pub(crate) fn standing(&self, at: Option<&Path>) -> Standing {
        let mounts = Mounts::read();
        let at = at.unwrap_or(&self.path);
        if mounts.ours_at(at) {
            return Standing::Mounted(at.to_path_buf());
        }
        if mounts.ours_at(&self.path) {
            return Standing::Mounted(self.path.clone());
        }
        match self.files() {
            None => Standing::Missing,
            // A directory moved aside is attached, even when its note is gone.
            Some(files)
                if files != self.path || files.join(ATTACHMENT).symlink_metadata().is_ok() =>
            {
                Standing::Attached
            }
            Some(_) => Standing::Plain,
        }
    }
}

/// Whether a vault has this name, or may have: who is not root cannot look.
fn has(vault: &Dir, name: &str) -> bool {
    vault
        .look(name)
        .map_or_else(|e| e.kind() == std::io::ErrorKind::PermissionDenied, |found| found.is_some())
}

/// A directory that is not a note for people.
fn is_home(path: &Path) -> bool {
    if !path.symlink_metadata().is_ok_and(|m| m.is_dir()) {
        return false;
    }
    let Ok(entries) = std::fs::read_dir(path) else { return true };
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).take(2).collect();
    names != [OsStr::new(NOTE_FILE)]
}

/// The kernel's list of mounts, as this process sees it.
#[derive(Debug, Default)]
pub(crate) struct Mounts(Vec<Mount>);

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Where.
    pub(crate) at: PathBuf,
    /// `ext4`, `fuse.tiersmith`, ...
    pub(crate) kind: String,
    /// The device, or what a file system calls itself.
    pub(crate) source: String,
}

impl Mount {
    /// Whether it is one of ours.
    pub(crate) fn is_ours(&self) -> bool {
        self.kind.starts_with("fuse") && (self.source == FS_NAME || self.kind == "fuse.tiersmith")
    }
}

impl Mounts {
    /// Reads it. Empty where there is no /proc.
    pub(crate) fn read() -> Mounts {
        Mounts::parse(&std::fs::read("/proc/self/mountinfo").unwrap_or_default())
    }

    fn parse(text: &[u8]) -> Mounts {
        let one = |line: &[u8]| {
            let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
            let dash = fields.iter().position(|field| *field == b"-")?;
            Some(Mount {
                at: PathBuf::from(OsString::from_vec(unescape(fields.get(4)?))),
                kind: String::from_utf8_lossy(fields.get(dash + 1)?).into_owned(),
                source: String::from_utf8_lossy(&unescape(fields.get(dash + 2)?)).into_owned(),
            })
        };
        Mounts(text.split(|b| *b == b'\n').filter_map(one).collect())
    }

    /// The file system on top at exactly this path.
    pub(crate) fn at(&self, path: &Path) -> Option<&Mount> {
        self.0.iter().rev().find(|mount| mount.at == path)
    }

    /// Whether the file system on top at exactly this path is ours.
    pub(crate) fn ours_at(&self, path: &Path) -> bool {
        self.at(path).is_some_and(Mount::is_ours)
    }

    /// One of our mounts that `path` is in, but not its mount point.
    pub(crate) fn ours_around(&self, path: &Path) -> Option<&Mount> {
        self.0
            .iter()
            .find(|mount| mount.is_ours() && mount.at != path && path.starts_with(&mount.at))
    }

    /// The mounts below `path`.
    pub(crate) fn below<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a Mount> {
        self.0.iter().filter(move |mount| mount.at != path && mount.at.starts_with(path))
    }
}

/// The list writes a blank, a tab, a line end and a backslash as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = (byte == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(value) => {
                out.push(value);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails here says where")]
mod tests {
    use super::*;
    use tiersmith_store::{Medium, Options, TierSpec};

    #[test]
    fn the_kernels_list_is_read_with_its_escapes_and_the_mount_on_top_counts() {
        let text = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                     30 22 0:40 / /data/a\\040b rw,nosuid shared:3 - fuse tiersmith rw\n\
                     31 22 0:41 / /data/a\\040b rw - tmpfs none rw\n\
                     32 22 0:42 / /data/c rw - fuse.tiersmith /x rw\n\
                     damaged line\n\
                     33 22 0:43 / /data/c/d rw - tmpfs none rw\n";
        let mounts = Mounts::parse(text);
        assert_eq!(mounts.0.len(), 5);
        assert!(!mounts.ours_at(Path::new("/data/a b")), "a tmpfs is on top");
        assert!(mounts.ours_at(Path::new("/data/c")));
        assert!(mounts.ours_around(Path::new("/data/c/e")).is_some());
        assert!(mounts.ours_around(Path::new("/data/c")).is_none());
        assert_eq!(mounts.below(Path::new("/data/c")).count(), 1);
    }

    #[test]
    fn a_home_is_found_through_links_and_its_aside_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("db")).unwrap();
        std::os::unix::fs::symlink("db", real.join("link")).unwrap();
        std::os::unix::fs::symlink("loop", real.join("loop")).unwrap();
        let place = Place::find(&real.join("link")).unwrap();
        assert_eq!(place.path(), real.join("db"));
        assert_eq!(place.standing(None), Standing::Plain);
        assert!(Place::find(&real.join("loop")).is_err());
        assert!(Place::find(Path::new("/")).is_err());
        let aside = real.join("db.tiersmith-home/home");
        std::fs::create_dir_all(&aside).unwrap();
        std::fs::write(aside.join(ATTACHMENT), "x").unwrap();
        assert_eq!(place.standing(None), Standing::Attached);
        for path in [&aside, aside.parent().unwrap()] {
            let refused = Place::find(path).unwrap_err().to_string();
            assert!(refused.contains("name the home itself"), "{refused}");
        }
        assert_eq!(Place::find(&real.join("nothing")).unwrap().standing(None), Standing::Missing);
    }

    #[test]
    fn the_sockets_name_is_short_whatever_the_homes_name_is() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::find(&dir.path().join("n".repeat(255))).unwrap();
        assert!(place.control_name().len() < 80);
    }

    #[test]
    fn nothing_is_made_where_the_homes_parent_was_swapped_for_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        let (above, elsewhere) = (real.join("above"), real.join("elsewhere"));
        std::fs::create_dir_all(above.join("db")).unwrap();
        std::fs::create_dir(&elsewhere).unwrap();
        let place = Place::find(&above.join("db")).unwrap();
        let tier = TierSpec::new("fast", real.join("db.tier"), Medium::Emulated, 24 << 20);
        let home = tiersmith_store::attach(place.path(), &[tier], Options::default()).unwrap();
        place.check_holds(&home).unwrap();
        std::fs::rename(&above, real.join("moved")).unwrap();
        for put_there in [false, true] {
            if put_there {
                // Not by a link either: by a directory that has what root could be led to.
                std::fs::remove_file(&above).unwrap();
                std::fs::create_dir_all(above.join("db.tiersmith-home")).unwrap();
            } else {
                std::os::unix::fs::symlink(&elsewhere, &above).unwrap();
            }
            // What was found before stays the directory it was, whatever its path leads to.
            place.check_holds(&home).unwrap();
            place.dir().make_file("db.tiersmith-log", 0o600, None).unwrap();
            assert!(
                real.join("moved/db.tiersmith-log").exists()
                    && !elsewhere.join("db.tiersmith-log").exists()
            );
            place.dir().remove("db.tiersmith-log").unwrap();
            // And one that is found now is not taken for it.
            let now = Place::find(&above.join("db")).unwrap();
            assert!(now.check_holds(&home).is_err(), "by a directory: {put_there}");
        }
        std::fs::remove_dir_all(&above).unwrap();
        std::fs::rename(real.join("moved"), &above).unwrap();
        home.detach().unwrap();
    }
}

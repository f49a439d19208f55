//! The directory that is mounted on, held open from the moment it is judged until the mount is
//! gone.
//!
//! The directory that holds the home's path often belongs to the database's user, who may put
//! anything there at any moment, a link to `/etc` too. So nothing here goes by a path twice: root
//! goes to it by directories that it may trust ([`tiersmith_dir`]); what is found is opened without
//! following a link, judged through the descriptor, and mounted on through the descriptor.
//! Afterwards the name must lead to the very mount that was made, else it is taken away again.
//! Nothing is mounted over another mount.
//!
//! Not here: what fusermount3 does for who is not root. It has checks of its own, and no right that
//! its caller lacks.

use crate::error::Error;
use crate::options::Options;
use crate::passage::is_top_of;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, StatxAttributes, StatxFlags, Timespec};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, UnmountFlags,
};
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use tiersmith_dir::Dir;
use tiersmith_store::AttachedHome;
use tiersmith_store::home::{NOTE_FILE, vault_of};

pub(crate) const HANDLE: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory fit to be mounted on.
#[derive(Debug)]
pub(crate) struct Point {
    at: PathBuf,
    parent: Dir,
    name: OsString,
    dir: OwnedFd,
}

/// A mount that this process made on a [`Point`]. Dropping it takes the mount away if it is still
/// there.
#[derive(Debug)]
pub(crate) struct Made {
    dir: OwnedFd,
    device: OwnedFd,
    /// What holds `dir`, its name there, and the number of the mount where the kernel tells.
    parent: OwnedFd,
    name: OsString,
    mount: Option<u64>,
    /// The directory is the top of another file system, which must never be unmounted.
    covers: bool,
}

impl Point {
    /// Opens and judges the directory at `at`.
    pub(crate) fn find(home: &AttachedHome, at: &Path) -> Result<Self, Error> {
        let bad = |source: io::Error| Error::MountPoint { at: at.into(), source };
        let (parent, name) = Dir::holding(at).map_err(bad)?;
        let dir =
            rustix::fs::openat(&parent, &name, HANDLE, Mode::empty()).map_err(|e| bad(e.into()))?;
        let point = Self { at: at.into(), parent, name, dir };
        point.judge(home)?;
        Ok(point)
    }

    /// The directory `below` in a mount of ours, whose top is open here: that of `part` at home,
    /// where the other connection is mounted.
    pub(crate) fn within(
        top: OwnedFd,
        at: &Path,
        below: &Path,
        part: &OwnedFd,
    ) -> Result<Self, Error> {
        let failed =
            |source: Errno| Error::MountPoint { at: at.join(below), source: source.into() };
        let parent = match below.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            None => top,
            Some(parent) => crate::fs::part_of(&top, parent).map_err(failed)?,
        };
        let name = below.file_name().ok_or(Errno::INVAL).map_err(failed)?.to_os_string();
        let dir = rustix::fs::openat(&parent, &name, HANDLE, Mode::empty()).map_err(failed)?;
        let (found, own) =
            (rustix::fs::fstat(&dir).map_err(failed)?, rustix::fs::fstat(part).map_err(failed)?);
        let at = at.join(below);
        // The mount gives home's numbers. What is mounted on is what is shown there.
        if found.st_ino != own.st_ino || is_mount_root(&dir, &parent).map_err(failed)? {
            let reason =
                "it is another directory than the home's, or something is mounted there already"
                    .into();
            return Err(Error::Mount { at, reason });
        }
        let parent = Dir::from_handle(parent, &at);
        Ok(Self { at, parent, name, dir })
    }

    /// Whether this is the directory that stands for the home, or else one in which nothing would
    /// be hidden.
    fn judge(&self, home: &AttachedHome) -> Result<(), Error> {
        let refused = |reason: &str| Error::Mount { at: self.at.clone(), reason: reason.into() };
        let failed =
            |source: Errno| Error::MountPoint { at: self.at.clone(), source: source.into() };
        let Some(own) = home.directory() else {
            return Err(Error::NoDirectory { at: self.at.clone() });
        };
        let around = rustix::fs::openat(own, "..", HANDLE, Mode::empty())
            .and_then(rustix::fs::fstat)
            .map_err(failed)?;
        let is_homes = self.at == home.home_path();
        if is_homes && is_top_of(&self.dir, own, &around).map_err(failed)? {
            // The home is a mount point, whose vault is inside.
            return Ok(());
        }
        let own = rustix::fs::fstat(own).map_err(failed)?;
        // The files are in the vault beside the mount point, which not everybody may enter.
        let vault = vault_of(Path::new(&self.name));
        let beside = rustix::fs::statat(&self.parent, &vault, AtFlags::SYMLINK_NOFOLLOW);
        let is_beside = beside.is_ok_and(|beside| same(&around, &beside));
        let strayed = "the home is not beside it any more: somebody moved a directory or put a \
                       link in the way; see who, and put it back";
        if is_mount_root(&self.dir, &self.parent).map_err(failed)? {
            // Who is behind it is not asked.
            let reason =
                if is_homes && !is_beside { strayed } else { "something is mounted there already" };
            return Err(refused(reason));
        }
        let found = rustix::fs::fstat(&self.dir).map_err(failed)?;
        if same(&own, &found) {
            return Ok(());
        }
        let names = names(&self.dir).map_err(failed)?;
        if is_beside {
            let euid = rustix::process::geteuid().as_raw();
            let ours = found.st_uid == euid || found.st_uid == own.st_uid;
            let closed = found.st_mode & 0o022 == 0;
            return if ours && closed && names == [NOTE_FILE] {
                Ok(())
            } else {
                Err(refused(
                    "what is at the home's path is not the directory with the note that was put \
                     there when it was attached; \
                     see who changed it, and put back what was there",
                ))
            };
        }
        if is_homes {
            return Err(refused(strayed));
        }
        if names.is_empty() {
            return Ok(());
        }
        Err(refused("it is not empty, and what is in it would be hidden; give an empty directory"))
    }

    /// Mounts a new file system of FUSE here, and gives its device too. `None`: this process may
    /// not mount.
    pub(crate) fn mount(&self, options: &Options) -> Result<Option<(Made, OwnedFd)>, Error> {
        let refused = |reason: String| Error::Mount { at: self.at.clone(), reason };
        let failed = |source: io::Error| Error::Io {
            what: "prepare to mount at",
            at: self.at.clone(),
            source,
        };
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let device = rustix::fs::open("/dev/fuse", flags, Mode::empty())
            .map_err(|e| Error::NoFuse { at: self.at.clone(), source: e.into() })?;
        let dir = self.dir.try_clone().map_err(failed)?;
        let covers = is_mount_root(&dir, &self.parent).map_err(|e| failed(e.into()))?;
        let spare = device.try_clone().map_err(failed)?;
        let mount = match What::new(&device, options).mount_at(&self.dir) {
            Ok(mount) => mount,
            Err(Errno::PERM) => return Ok(None),
            Err(Errno::NOENT) => {
                return Err(refused("/proc is not mounted, and is needed to mount safely".into()));
            }
            Err(e) => return Err(refused(e.to_string())),
        };
        let parent = self.parent.as_fd().try_clone_to_owned().map_err(failed)?;
        let made = Made { dir, device: spare, parent, name: self.name.clone(), mount, covers };
        if covers && made.mount.is_none() {
            // Which mount is whose could not be told when it is to be unmounted.
            let why = "a home that is a mount point needs Linux 5.8, and a container that lets \
                       fsopen(2) through; attach a directory inside it instead";
            let undone = rustix::mount::unmount(by_descriptor(&made.dir), UnmountFlags::DETACH);
            return undone.map_err(|e| refused(e.to_string())).and(Err(refused(why.into())));
        }
        // From here on dropping `made` unmounts.
        if made.top().is_some() {
            return Ok(Some((made, device)));
        }
        Err(refused(
            "the directory was moved away while it was mounted on; see who does that, and try again"
                .into(),
        ))
    }
}

/// The file system that is mounted, in the words of both ways of mounting.
struct What {
    source: String,
    /// Names and values; no value: a flag.
    settings: Vec<(&'static str, Option<String>)>,
}

impl What {
    fn new(device: &OwnedFd, options: &Options) -> Self {
        let mode = FileType::Directory.as_raw_mode() | 0o555;
        let mut settings = vec![
            ("fd", Some(device.as_raw_fd().to_string())),
            ("rootmode", Some(format!("{mode:o}"))),
            ("user_id", Some(rustix::process::getuid().as_raw().to_string())),
            ("group_id", Some(rustix::process::getgid().as_raw().to_string())),
            ("default_permissions", None),
        ];
        if options.allow_other {
            settings.push(("allow_other", None));
        }
        Self { source: options.fsname.replace([',', '\\'], "_"), settings }
    }

    /// Mounts it, and says which mount it is where the kernel tells.
    fn mount_at(&self, dir: &OwnedFd) -> Result<Option<u64>, Errno> {
        match rustix::mount::fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC) {
            // An older kernel, or a container whose filter knows only the older call.
            Err(Errno::NOSYS | Errno::PERM) => self.mount_by_path(dir).map(|()| None),
            Err(e) => Err(e),
            Ok(fs) => self.mount_by_descriptor(&fs, dir),
        }
    }

    fn mount_by_descriptor(&self, fs: &OwnedFd, dir: &OwnedFd) -> Result<Option<u64>, Errno> {
        rustix::mount::fsconfig_set_string(fs, "source", &*self.source)?;
        for (name, value) in &self.settings {
            match value {
                Some(value) => rustix::mount::fsconfig_set_string(fs, *name, &**value)?,
                None => rustix::mount::fsconfig_set_flag(fs, *name)?,
            }
        }
        rustix::mount::fsconfig_create(fs)?;
        let flags = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID;
        let mount = rustix::mount::fsmount(fs, FsMountFlags::FSMOUNT_CLOEXEC, flags)?;
        let onto =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        rustix::mount::move_mount(&mount, "", dir, "", onto)?;
        Ok(mount_id(&mount))
    }

    fn mount_by_path(&self, dir: &OwnedFd) -> Result<(), Errno> {
        let words = self.settings.iter().map(|(name, value)| match value {
            Some(value) => format!("{name}={value}"),
            None => (*name).to_owned(),
        });
        let data = CString::new(words.collect::<Vec<_>>().join(",")).map_err(|_| Errno::INVAL)?;
        let flags = MountFlags::NODEV | MountFlags::NOSUID;
        rustix::mount::mount(&*self.source, by_descriptor(dir), "fuse", flags, data.as_c_str())
    }
}

impl Made {
    /// The top of the mount. `None`: the directory's name leads to something else now. It keeps the
    /// mount in use.
    pub(crate) fn top(&self) -> Option<OwnedFd> {
        let top = rustix::fs::openat(&self.parent, &self.name, HANDLE, Mode::empty()).ok()?;
        let is_it = self.mount.is_none_or(|mount| mount_id(&top) == Some(mount));
        (is_it && is_mount_root(&top, &self.dir).unwrap_or(false)).then_some(top)
    }

    /// Unmounts what is on the directory, wherever that is now.
    pub(crate) fn unmount(&self, flags: UnmountFlags) -> Result<(), Errno> {
        if self.covers && (self.mount.is_none() || self.top().is_none()) {
            // Somebody else was faster: what is on top now is not ours, or cannot be told from it.
            return Err(Errno::INVAL);
        }
        rustix::mount::unmount(by_descriptor(&self.dir), flags)
    }

    /// Whether the kernel still has the mount, be it for those only who have files of it open.
    fn is_there(&self) -> bool {
        let mut polled = [PollFd::new(&self.device, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut polled, Some(&now)).is_ok()
            && !polled[0].revents().contains(PollFlags::ERR)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.is_there()
            && let Err(e) = self.unmount(UnmountFlags::DETACH)
        {
            log::warn!("a mount that is not served any more stays: {e}");
        }
    }
}

/// A path that leads to this very directory, whatever its name is now; `mount` and `umount` go on
/// to what is mounted on it.
pub(crate) fn by_descriptor(dir: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", dir.as_raw_fd())
}

pub(crate) fn same(a: &Stat, b: &Stat) -> bool {
    (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
}

/// Whether `dir` is the top of a mount; `beside` is on the file system that it would be on if not.
/// Nothing is asked of the process behind it.
pub(crate) fn is_mount_root(dir: impl AsFd, beside: impl AsFd) -> Result<bool, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(dir, "", flags, StatxFlags::empty())?;
    if found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    }
    // Linux before 5.8 does not say it.
    let beside = rustix::fs::statx(beside, "", flags, StatxFlags::empty())?;
    Ok((found.stx_dev_major, found.stx_dev_minor) != (beside.stx_dev_major, beside.stx_dev_minor))
}

/// The device that `dir` is on. Nothing is asked of the process behind it.
pub(crate) fn device(dir: impl AsFd) -> Result<(u32, u32), Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(dir, "", flags, StatxFlags::empty())?;
    Ok((found.stx_dev_major, found.stx_dev_minor))
}

/// Which mount this is on, where the kernel tells (Linux 5.8). Nothing is asked of the process
/// behind it.
fn mount_id(at: impl AsFd) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(at, "", flags, StatxFlags::MNT_ID).ok()?;
    StatxFlags::from_bits_retain(found.stx_mask)
        .contains(StatxFlags::MNT_ID)
        .then_some(found.stx_mnt_id)
}

fn names(dir: &OwnedFd) -> Result<Vec<String>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::new(rustix::fs::openat(dir, ".", flags, Mode::empty())?)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

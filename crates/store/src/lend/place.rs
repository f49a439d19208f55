//! The directory of the plain files: beside the first member of a tier, on the tier's own medium.
//!
//! A plain file is called by the id of its file in the tier, in 16 hexadecimal digits. The directory is `MEMBER.lent`, mode 0700; a plain file has
//! mode 0600 and the owner of the member, who is the owner of the home.
//!
//! # What makes a write of the kernel durable
//! The kernel opens the plain file for itself, with the flags the program used: flags of our own descriptor do not reach it. What reaches it is
//! the attribute of the inode that `chattr +S` sets: every write to it is synced before it returns. On media that survive a power cut a plain file
//! has it, or nothing is lent; where a file only stands for such a medium (emulated), it promises what the tier beside it does, and needs none.
//!
//! Deliberately not here: which file is lent, and when. Invariants: nothing is opened through a link; a file that is not ours is not opened.

use crate::home::{HomeFile, RealHome};
use rustix::fs::{AtFlags, FallocateFlags, FileType, Gid, IFlags, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open plain file.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    /// For reading and writing by this process.
    pub(crate) file: Arc<dyn HomeFile>,
    /// For the kernel; `None` in a simulation.
    pub(crate) descriptor: Option<Arc<OwnedFd>>,
}

/// A directory of plain files.
///
/// # Durability
/// Names after [`LentDir::sync`], contents after the file's own sync.
pub(crate) trait LentDir: Send + Sync + Debug {
    /// Makes the plain file `id` of `len` bytes, its space reserved. One that is there is nobody's, and is replaced.
    ///
    /// # Errors
    /// What the file system says; `Unsupported` where it cannot reserve space, or sync each write. Nothing is left then.
    fn make(&self, id: u64, len: u64) -> io::Result<Plain>;

    /// Opens the plain file `id`.
    ///
    /// # Errors
    /// `NotFound`, else what the file system says, or why the file cannot be ours.
    fn open(&self, id: u64) -> io::Result<Plain>;

    /// Removes the plain file `id`; none is no error.
    ///
    /// # Errors
    /// What the file system says.
    fn remove(&self, id: u64) -> io::Result<()>;

    /// The ids of the plain files that are there.
    ///
    /// # Errors
    /// What the file system says; that there is no directory is none.
    fn ids(&self) -> io::Result<Vec<u64>>;

    /// Makes the names durable.
    ///
    /// # Errors
    /// What the file system says.
    fn sync(&self) -> io::Result<()>;

    /// Whether nobody but this process has the plain file open for writing, or mapped.
    ///
    /// # Errors
    /// When that cannot be known.
    fn is_ours_alone(&self, plain: &Plain) -> io::Result<bool>;

    /// Removes the directory, if it is empty.
    fn tidy(&self);

    /// Where the plain file `id` is, for messages.
    fn path(&self, id: u64) -> PathBuf;
}

/// The name of a plain file.
pub(crate) fn name_of(id: u64) -> String {
    format!("{id:016x}")
}

/// The id that a name stands for.
pub(crate) fn id_of(name: &[u8]) -> Option<u64> {
    let digits = name.len() == 16 && name.iter().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b));
    if !digits {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(name).ok()?, 16).ok()
}

/// The directory of the plain files of a tier whose first member is `member`.
pub(crate) fn directory_of(member: &Path) -> PathBuf {
    let mut name = OsString::from(member);
    name.push(".lent");
    PathBuf::from(name)
}

/// [`LentDir`] beside a member that is a file.
#[derive(Debug)]
pub(crate) struct BesideMember {
    path: PathBuf,
    /// Who the member belongs to.
    owner: (u32, u32),
    /// Every write is synced.
    syncs: bool,
}

impl BesideMember {
    /// `None` when the member is no file: a device has no directory on its medium.
    pub(crate) fn new(member: &Path, syncs: bool) -> Option<Self> {
        let member = std::path::absolute(member).ok()?;
        let found = std::fs::metadata(&member).ok().filter(std::fs::Metadata::is_file)?;
        Some(Self { path: directory_of(&member), owner: (found.uid(), found.gid()), syncs })
    }

    fn directory(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::open(&self.path, flags, Mode::empty())?;
        self.check(&dir)?;
        Ok(dir)
    }

    /// Whoever could write there could put a file of his own into the place of ours.
    fn check(&self, found: impl AsFd) -> io::Result<()> {
        let stat = rustix::fs::fstat(found)?;
        if stat.st_uid != self.owner.0 && stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other(format!(
                "it belongs to user {}, not to user {} as the tier does",
                stat.st_uid, self.owner.0
            )));
        }
        if stat.st_mode & 0o077 != 0 {
            let why = format!("its mode {:o} lets others in, which ours never does", stat.st_mode & 0o7777);
            return Err(io::Error::other(why));
        }
        Ok(())
    }

    fn own(&self, file: impl AsFd) -> io::Result<()> {
        let me = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        if me != self.owner {
            let (uid, gid) = (Uid::from_raw(self.owner.0), Gid::from_raw(self.owner.1));
            rustix::fs::fchown(file, Some(uid), Some(gid))?;
        }
        Ok(())
    }

    fn make_directory(&self) -> io::Result<OwnedFd> {
        match rustix::fs::mkdir(&self.path, Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::EXIST) => return self.directory(),
            Err(e) => return Err(e.into()),
        }
        let dir = self.directory()?;
        self.own(&dir)?;
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        File::open(parent)?.sync_all()?;
        Ok(dir)
    }

    fn fill(&self, fd: &OwnedFd, len: u64) -> io::Result<()> {
        self.own(fd)?;
        if self.syncs {
            let flags = rustix::fs::ioctl_getflags(fd).map_err(unsupported)? | IFlags::SYNC;
            rustix::fs::ioctl_setflags(fd, flags).map_err(unsupported)?;
            if !rustix::fs::ioctl_getflags(fd).map_err(unsupported)?.contains(IFlags::SYNC) {
                return Err(io::ErrorKind::Unsupported.into());
            }
        }
        loop {
            match rustix::fs::fallocate(fd, FallocateFlags::empty(), 0, len.max(1)) {
                Err(Errno::INTR) => {}
                done => return done.map_err(unsupported),
            }
        }
    }
}

fn unsupported(e: Errno) -> io::Error {
    match e {
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY | Errno::INVAL => {
            io::Error::new(io::ErrorKind::Unsupported, format!("its file system cannot do it ({e})"))
        }
        other => other.into(),
    }
}

fn plain(fd: OwnedFd) -> io::Result<Plain> {
    let same = fd.try_clone()?;
    Ok(Plain { file: RealHome::file(File::from(fd)), descriptor: Some(Arc::new(same)) })
}

const OPEN: OFlags = OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

impl LentDir for BesideMember {
    fn make(&self, id: u64, len: u64) -> io::Result<Plain> {
        let dir = self.make_directory()?;
        let name = name_of(id);
        self.remove(id)?;
        let flags = OPEN | OFlags::CREATE | OFlags::EXCL;
        let fd = rustix::fs::openat(&dir, &*name, flags, Mode::RUSR | Mode::WUSR)?;
        let made = self.fill(&fd, len).and_then(|()| plain(fd)).and_then(|plain| {
            // Where that cannot be known the file could never be given back.
            match self.is_ours_alone(&plain) {
                Ok(true) => Ok(plain),
                Ok(false) => Err(io::Error::other("another process has it open")),
                Err(e) => Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    format!("its file system does not say who has a file open ({e})"),
                )),
            }
        });
        if made.is_err() {
            let _ = rustix::fs::unlinkat(&dir, &*name, AtFlags::empty());
        }
        made
    }

    fn open(&self, id: u64) -> io::Result<Plain> {
        let dir = self.directory()?;
        let fd = rustix::fs::openat(&dir, name_of(id), OPEN | OFlags::NONBLOCK, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink > 1 {
            return Err(io::Error::other("it is not an ordinary file with one name"));
        }
        self.check(&fd)?;
        if self.syncs && !rustix::fs::ioctl_getflags(&fd).is_ok_and(|flags| flags.contains(IFlags::SYNC)) {
            // A restored copy has lost it; nothing was promised by it since.
            let flags = rustix::fs::ioctl_getflags(&fd).map_err(unsupported)? | IFlags::SYNC;
            rustix::fs::ioctl_setflags(&fd, flags).map_err(unsupported)?;
        }
        plain(fd)
    }

    fn remove(&self, id: u64) -> io::Result<()> {
        let dir = match self.directory() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        match rustix::fs::unlinkat(dir, name_of(id), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn ids(&self) -> io::Result<Vec<u64>> {
        let dir = match self.directory() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut ids = Vec::new();
        for entry in rustix::fs::Dir::read_from(dir)? {
            ids.extend(id_of(entry?.file_name().to_bytes()));
        }
        ids.sort_unstable();
        Ok(ids)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(self.directory()?)?)
    }

    fn is_ours_alone(&self, plain: &Plain) -> io::Result<bool> {
        match &plain.descriptor {
            Some(fd) => tiersmith_pmem::is_only_opening(fd.as_fd()),
            None => Ok(true),
        }
    }

    fn tidy(&self) {
        // Not empty, or not there: both are right.
        let _ = std::fs::remove_dir(&self.path);
    }

    fn path(&self, id: u64) -> PathBuf {
        self.path.join(name_of(id))
    }
}

/// The name that a plain file has in a directory, as it is in messages and in the offline check.
pub(crate) fn path_beside(member: &Path, id: u64) -> PathBuf {
    directory_of(member).join(std::ffi::OsStr::from_bytes(name_of(id).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn place() -> (tempfile::TempDir, BesideMember) {
        let dir = tempfile::tempdir().unwrap();
        let member = dir.path().join("tier");
        std::fs::write(&member, "member").unwrap();
        let place = BesideMember::new(&member, false).unwrap();
        (dir, place)
    }

    #[test]
    fn a_plain_file_is_made_whole_found_again_and_removed() {
        let (dir, place) = place();
        let made = match place.make(7, 100_000) {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                eprintln!("skipped: plain files, because {e}");
                return;
            }
            other => other.unwrap(),
        };
        made.file.write_at(99_990, b"0123456789").unwrap();
        place.sync().unwrap();
        assert!(place.is_ours_alone(&made).unwrap());
        let again = place.open(7).unwrap();
        assert!(!place.is_ours_alone(&made).unwrap(), "a second opening is seen");
        let mut bytes = [0; 10];
        again.file.read_at(99_990, &mut bytes).unwrap();
        assert_eq!(&bytes, b"0123456789");
        assert_eq!(again.file.stat().unwrap().size, 100_000);
        drop(again);
        std::fs::write(dir.path().join("tier.lent/README"), "not ours").unwrap();
        assert_eq!(place.ids().unwrap(), [7]);
        place.remove(7).unwrap();
        place.remove(7).unwrap();
        assert_eq!(place.ids().unwrap(), [0u64; 0]);
        place.tidy();
        assert!(dir.path().join("tier.lent/README").exists());
    }

    #[test]
    fn what_is_not_ours_is_not_opened() {
        let (dir, place) = place();
        if place.make(1, 4096).is_err() {
            eprintln!("skipped: plain files, because the file system cannot reserve space");
            return;
        }
        let lent = dir.path().join("tier.lent");
        std::os::unix::fs::symlink(lent.join(name_of(1)), lent.join(name_of(2))).unwrap();
        assert!(place.open(2).is_err(), "a link is not followed");
        std::fs::create_dir(lent.join(name_of(3))).unwrap();
        assert!(place.open(3).is_err());
        std::fs::hard_link(lent.join(name_of(1)), dir.path().join("other")).unwrap();
        assert!(place.open(1).unwrap_err().to_string().contains("one name"));
        std::fs::remove_file(dir.path().join("other")).unwrap();
        place.open(1).unwrap();
        std::fs::set_permissions(&lent, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(place.open(1).unwrap_err().to_string().contains("lets others in"));
        assert!(place.make(4, 4096).is_err());
    }

    #[test]
    fn only_a_name_of_ours_has_an_id() {
        assert_eq!(id_of(name_of(0x1234_5678_9abc).as_bytes()), Some(0x1234_5678_9abc));
        for other in
            [&b"1"[..], b"00000000000000001", b"000000000000000G", b"00000000000000AB", b"+000000000000001"]
        {
            assert_eq!(id_of(other), None, "{other:?}");
        }
    }
}

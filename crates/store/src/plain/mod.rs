//! The directory of the plain files: beside the first member of a tier, on the tier's own medium;
//! for a tier on flash in a directory that the user names ([`crate::LentIn`]).
//!
//! A plain file is called by the uuid of its tier, the id of its file there and the number of its
//! loan ([`PlainName`]), so that one of another tier, of an older loan, or of a copy of the tier
//! that went another way is never taken for it. The directory is `MEMBER.lent`, or `UUID.lent` with
//! the tier's uuid in the one that was named; its mode is 0700. A plain file has mode 0600 and the
//! owner of the member: a daemon's own user ([`crate::Options::members_of`]).
//!
//! # What makes a write of the kernel durable
//! The kernel opens the plain file for itself, with the flags the program used: flags of our own
//! descriptor do not reach it. What reaches it is the attribute of the inode that `chattr +S` sets:
//! every write to it is synced before it returns. On media that survive a power cut a plain file
//! has it, or nothing is lent; where a file only stands for such a medium (emulated), it promises
//! what the tier beside it does, and needs none. On flash, a write is durable at its file's sync,
//! which comes to this process, unless the door asks for none ([`crate::Options::lent_synced`]).
//!
//! Deliberately not here: which file is lent, and when. Invariants: nothing is opened through a
//! link; a file that is not ours is not opened.

#[cfg(any(test, feature = "testing"))]
pub(crate) mod in_home;
pub(crate) mod named;

use crate::home::{HomeFile, RealHome};
use crate::medium::held::Held;
use rustix::fs::{AtFlags, FallocateFlags, FileType, Gid, IFlags, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tiersmith_dir::{Dir, Found, Owner};

/// An open plain file.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    pub(crate) name: PlainName,
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
    /// Makes a plain file of `len` bytes, its space reserved.
    ///
    /// # Errors
    /// What the file system says, above all when there is one; `Unsupported` where it cannot
    /// reserve space, or sync each write. Nothing is left then.
    fn make(&self, name: PlainName, len: u64) -> io::Result<Plain>;

    /// Opens a plain file.
    ///
    /// # Errors
    /// `NotFound`, else what the file system says, or why the file cannot be ours.
    fn open(&self, name: PlainName) -> io::Result<Plain>;

    /// Removes a plain file; none is no error.
    ///
    /// # Errors
    /// What the file system says.
    fn remove(&self, name: PlainName) -> io::Result<()>;

    /// The plain files that are there, of whatever tier.
    ///
    /// # Errors
    /// What the file system says; that there is no directory is none.
    fn names(&self) -> io::Result<Vec<PlainName>>;

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

    /// Where a plain file is, for messages.
    fn path(&self, name: PlainName) -> PathBuf;

    /// The directory, for messages.
    fn directory_path(&self) -> PathBuf;
}

/// Which plain file: `UUID.ID.LOAN`, in 32, 10 and 12 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PlainName {
    /// Of the tier, which gets another one when it is formatted.
    pub(crate) tier: [u8; 16],
    /// Of the file in the tier.
    pub(crate) id: u64,
    /// As the state line has it. See [`PlainName::new_loan`].
    pub(crate) loan: u64,
}

/// Bits of a loan's number that tell loans of one attach apart; above them is the number of the
/// attach.
const LOAN_BITS: u32 = 28;
/// Bits of the number of the attach.
const ATTACH_BITS: u32 = 20;

impl PlainName {
    /// The number of a loan that begins now; never 0. `now_ns` and `seq`, the line's sequence, tell
    /// it from those of the same attach, and of a copy of the tier that had one of the same number.
    pub(crate) fn new_loan(attach_count: u64, now_ns: u64, seq: u64) -> u64 {
        let mixed = crate::format::mix(now_ns ^ seq.rotate_left(32)) & ((1 << LOAN_BITS) - 1);
        (attach_count & ((1 << ATTACH_BITS) - 1)) << LOAN_BITS | mixed.max(1)
    }

    /// Whether it was lent before the attach of this number. One that was not, when nothing was
    /// lent yet, is of a newer state of the tier.
    pub(crate) fn is_before(self, attach_count: u64) -> bool {
        self.loan >> LOAN_BITS < attach_count & ((1 << ATTACH_BITS) - 1)
    }

    pub(crate) fn parse(name: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(name).ok()?;
        let mut parts = text.split('.');
        let (tier, id, loan) = (parts.next()?, parts.next()?, parts.next()?);
        let number = |text| u64::from_str_radix(text, 16).ok();
        let mut uuid = [0; 16];
        for (n, byte) in uuid.iter_mut().enumerate() {
            *byte = u8::from_str_radix(tier.get(2 * n..2 * n + 2)?, 16).ok()?;
        }
        let found = Self { tier: uuid, id: number(id)?, loan: number(loan)? };
        // What is not written as we do is not ours.
        (found.to_string() == text).then_some(found)
    }
}

impl std::fmt::Display for PlainName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.tier.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, ".{:010x}.{:012x}", self.id, self.loan)
    }
}

/// The directory of the plain files of a tier whose first member is `member`.
pub(crate) fn directory_of(member: &Path) -> PathBuf {
    let mut name = OsString::from(member);
    name.push(".lent");
    PathBuf::from(name)
}

/// The directory of plain files beside a tier's first member, if it is there and not empty.
pub(crate) fn lent_beside(member: &Path) -> Option<PathBuf> {
    if_in_use(directory_of(member))
}

fn if_in_use(directory: PathBuf) -> Option<PathBuf> {
    // One that cannot be read may have some.
    let empty = std::fs::read_dir(&directory).is_ok_and(|mut entries| entries.next().is_none());
    (directory.symlink_metadata().is_ok() && !empty).then_some(directory)
}

/// Why an attach would not take a plain file.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// There is none.
    Missing,
    /// Something else has its name.
    NoFile,
    /// It, or the directory, is not only its owner's, as the text says.
    NotOurs(String),
    /// What the file system says.
    Unreadable(io::Error),
}

/// [`LentDir`] beside a member that is a file, in the directory that was held when the member was
/// opened; or in one that was named.
#[derive(Debug)]
pub(crate) struct PlainDir {
    beside: Dir,
    name: OsString,
    /// For messages.
    path: PathBuf,
    /// Who the member belongs to.
    owner: (u32, u32),
    /// Every write is synced.
    syncs: bool,
}

impl PlainDir {
    /// `None` when the member is no file: a device has no directory on its medium.
    pub(crate) fn new(member: &Held, syncs: bool) -> Option<Self> {
        let found = member.dir.look(&member.name).ok()?.filter(Found::is_file)?;
        let mut name = member.name.clone();
        name.push(".lent");
        let path = directory_of(&std::path::absolute(&member.path).ok()?);
        let beside = member.dir.try_clone().ok()?;
        Some(Self { beside, name, path, owner: (found.user, found.group), syncs })
    }

    /// Plain files are this user's, whosoever has put a file in the member's place by now.
    pub(crate) fn of(self, user: u32) -> Self {
        Self { owner: (user, rustix::process::getegid().as_raw()), ..self }
    }

    fn directory(&self) -> io::Result<Dir> {
        let dir = self.beside.sub(&self.name)?;
        self.check(&rustix::fs::fstat(&dir)?, &self.path)?;
        Ok(dir)
    }

    /// Looks at a plain file as [`LentDir::open`] does, without opening it, and changes nothing.
    /// Returns its size.
    ///
    /// # Errors
    /// What an attach would not take it for.
    pub(crate) fn look(&self, name: PlainName) -> Result<u64, Unfit> {
        let unreadable = |e: Errno| match e {
            Errno::NOENT => Unfit::Missing,
            e => Unfit::Unreadable(e.into()),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(&self.beside, &self.name, flags, Mode::empty())
            .map_err(unreadable)?;
        let of_dir = rustix::fs::fstat(&dir).map_err(unreadable)?;
        let stat = rustix::fs::statat(&dir, name.to_string(), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(unreadable)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Unfit::NoFile);
        }
        let ours = self.check(&of_dir, &self.path).and_then(|()| self.check_file(&stat, name));
        ours.map_err(|e| Unfit::NotOurs(e.to_string()))?;
        Ok(stat.st_size.cast_unsigned())
    }

    fn check_file(&self, stat: &Stat, name: PlainName) -> io::Result<()> {
        let path = LentDir::path(self, name);
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || stat.st_nlink > 1 {
            return Err(io::Error::other(format!(
                "{} is not an ordinary file with one name",
                path.display()
            )));
        }
        self.check(stat, &path)
    }

    /// Whoever could write there could put a file of his own into the place of ours.
    fn check(&self, stat: &Stat, what: &Path) -> io::Result<()> {
        if stat.st_uid != self.owner.0 && stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other(format!(
                "{} belongs to user {}, not to user {} as the tier does",
                what.display(),
                stat.st_uid,
                self.owner.0
            )));
        }
        if stat.st_mode & 0o077 != 0 {
            let which = if what == self.path { "the directory " } else { "" };
            let safe = if what == self.path { "700" } else { "600" };
            let (path, mode) = (what.display(), stat.st_mode & 0o7777);
            return Err(io::Error::other(format!(
                "{which}{path} has mode {mode:o}, which lets others in: `chmod {safe} {path}`, if \
                 it is as you left it"
            )));
        }
        Ok(())
    }

    /// Whom what is made has to be given to.
    fn given(&self) -> Option<Owner> {
        let me = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        (me != self.owner).then_some(Owner { user: self.owner.0, group: self.owner.1 })
    }

    fn make_directory(&self) -> io::Result<Dir> {
        match self.beside.make_dir(&self.name, 0o700, self.given()) {
            Ok(dir) => {
                self.beside.sync()?;
                Ok(dir)
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => self.directory(),
            Err(e) => Err(e),
        }
    }
}

/// Gives a new file its owner, what its writes are to be, and its space.
fn filled(fd: &OwnedFd, owner: Option<Owner>, syncs: bool, len: u64) -> io::Result<()> {
    if let Some(owner) = owner {
        let (uid, gid) = (Uid::from_raw(owner.user), Gid::from_raw(owner.group));
        rustix::fs::fchown(fd, Some(uid), Some(gid))?;
    }
    if syncs {
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

fn unsupported(e: Errno) -> io::Error {
    match e {
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY | Errno::INVAL => io::Error::new(
            io::ErrorKind::Unsupported,
            format!("its file system cannot do it ({e})"),
        ),
        other => other.into(),
    }
}

fn plain(name: PlainName, fd: OwnedFd) -> io::Result<Plain> {
    let same = fd.try_clone()?;
    Ok(Plain { name, file: RealHome::file(File::from(fd)), descriptor: Some(Arc::new(same)) })
}

const OPEN: OFlags =
    OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

impl LentDir for PlainDir {
    fn make(&self, name: PlainName, len: u64) -> io::Result<Plain> {
        let dir = self.make_directory()?;
        let text = name.to_string();
        let flags = OPEN | OFlags::CREATE | OFlags::EXCL;
        let fd = rustix::fs::openat(&dir, &*text, flags, Mode::RUSR | Mode::WUSR)?;
        let filled = filled(&fd, self.given(), self.syncs, len);
        let made = filled.and_then(|()| plain(name, fd)).and_then(|plain| {
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
            let _ = rustix::fs::unlinkat(&dir, &*text, AtFlags::empty());
        }
        made
    }

    fn open(&self, name: PlainName) -> io::Result<Plain> {
        let dir = self.directory()?;
        let fd =
            rustix::fs::openat(&dir, name.to_string(), OPEN | OFlags::NONBLOCK, Mode::empty())?;
        self.check_file(&rustix::fs::fstat(&fd)?, name)?;
        if self.syncs
            && !rustix::fs::ioctl_getflags(&fd).is_ok_and(|flags| flags.contains(IFlags::SYNC))
        {
            // A restored copy has lost it; nothing was promised by it since.
            let flags = rustix::fs::ioctl_getflags(&fd).map_err(unsupported)? | IFlags::SYNC;
            rustix::fs::ioctl_setflags(&fd, flags).map_err(unsupported)?;
        }
        plain(name, fd)
    }

    fn remove(&self, name: PlainName) -> io::Result<()> {
        let dir = match self.directory() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        match rustix::fs::unlinkat(dir, name.to_string(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn names(&self) -> io::Result<Vec<PlainName>> {
        let dir = match self.directory() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut names = Vec::new();
        for name in dir.names(usize::MAX)? {
            names.extend(PlainName::parse(name.as_bytes()));
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync(&self) -> io::Result<()> {
        self.directory()?.sync()?;
        // The directory may be one that a killed process made and did not sync.
        self.beside.sync()
    }

    fn is_ours_alone(&self, plain: &Plain) -> io::Result<bool> {
        match &plain.descriptor {
            Some(fd) => crate::medium::is_only_opening(fd.as_fd()),
            None => Ok(true),
        }
    }

    fn tidy(&self) {
        // Not empty, or not there: both are right.
        if self.directory().is_ok() {
            let _ = self.beside.remove_dir(&self.name);
        }
    }

    fn path(&self, name: PlainName) -> PathBuf {
        self.path.join(name.to_string())
    }

    fn directory_path(&self) -> PathBuf {
        self.path.clone()
    }
}

/// The name that a plain file has in a directory, as it is in messages and in the offline check.
pub(crate) fn path_beside(member: &Path, name: PlainName) -> PathBuf {
    directory_of(member).join(name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn name(id: u64) -> PlainName {
        PlainName { tier: [7; 16], id, loan: 5 }
    }

    fn beside(member: &Path, syncs: bool) -> PlainDir {
        PlainDir::new(&Held::find(member).unwrap(), syncs).unwrap()
    }

    fn place() -> (tempfile::TempDir, PlainDir) {
        let dir = tempfile::tempdir().unwrap();
        let member = dir.path().join("tier");
        std::fs::write(&member, "member").unwrap();
        let place = beside(&member, false);
        (dir, place)
    }

    #[test]
    fn a_plain_file_is_made_whole_found_again_and_removed() {
        let (dir, place) = place();
        let made = match place.make(name(7), 100_000) {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                eprintln!("skipped: plain files, because {e}");
                return;
            }
            other => other.unwrap(),
        };
        made.file.write_at(99_990, b"0123456789").unwrap();
        place.sync().unwrap();
        assert!(place.is_ours_alone(&made).unwrap());
        let again = place.open(name(7)).unwrap();
        assert!(!place.is_ours_alone(&made).unwrap(), "a second opening is seen");
        let mut bytes = [0; 10];
        again.file.read_at(99_990, &mut bytes).unwrap();
        assert_eq!(&bytes, b"0123456789");
        assert_eq!(again.file.stat().unwrap().size, 100_000);
        drop(again);
        std::fs::write(dir.path().join("tier.lent/README"), "not ours").unwrap();
        assert_eq!(place.names().unwrap(), [name(7)]);
        place.remove(name(7)).unwrap();
        place.remove(name(7)).unwrap();
        assert!(place.names().unwrap().is_empty());
        place.tidy();
        assert!(dir.path().join("tier.lent/README").exists());
    }

    #[test]
    fn plain_files_stay_beside_the_member_that_was_opened() {
        let (dir, place) = place();
        let (fast, aside) = (dir.path().join("fast"), dir.path().join("aside"));
        std::fs::create_dir(&fast).unwrap();
        std::fs::write(fast.join("tier"), "member").unwrap();
        let moved = beside(&fast.join("tier"), false);
        std::fs::rename(&fast, &aside).unwrap();
        std::os::unix::fs::symlink(dir.path(), &fast).unwrap();
        if place.make(name(1), 4096).is_err() {
            eprintln!("skipped: plain files, because the file system cannot reserve space");
            return;
        }
        place.remove(name(1)).unwrap();
        moved.make(name(1), 4096).unwrap();
        assert!(aside.join("tier.lent").join(name(1).to_string()).exists());
        moved.remove(name(1)).unwrap();
        moved.tidy();
        assert!(!aside.join("tier.lent").exists());
        assert!(dir.path().join("tier.lent").exists(), "another's directory was removed");
    }

    #[test]
    fn what_is_not_ours_is_not_opened() {
        let (dir, place) = place();
        if place.make(name(1), 4096).is_err() {
            eprintln!("skipped: plain files, because the file system cannot reserve space");
            return;
        }
        let lent = dir.path().join("tier.lent");
        std::os::unix::fs::symlink(lent.join(name(1).to_string()), lent.join(name(2).to_string()))
            .unwrap();
        assert!(place.open(name(2)).is_err(), "a link is not followed");
        std::fs::create_dir(lent.join(name(3).to_string())).unwrap();
        assert!(place.open(name(3)).is_err());
        std::fs::hard_link(lent.join(name(1).to_string()), dir.path().join("other")).unwrap();
        assert!(place.open(name(1)).unwrap_err().to_string().contains("one name"));
        std::fs::remove_file(dir.path().join("other")).unwrap();
        place.open(name(1)).unwrap();
        std::fs::set_permissions(&lent, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(place.open(name(1)).unwrap_err().to_string().contains("lets others in"));
        assert!(place.make(name(4), 4096).is_err());
    }

    #[test]
    fn plain_files_of_who_put_a_member_in_the_place_of_ours_are_not_opened() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: plain files of another user, because it needs root");
            return;
        }
        let (dir, place) = place();
        if place.make(name(1), 4096).is_err() {
            eprintln!("skipped: plain files, because the file system cannot reserve space");
            return;
        }
        for of_another in ["tier", "tier.lent", &format!("tier.lent/{}", name(1))] {
            std::os::unix::fs::chown(dir.path().join(of_another), Some(2001), None).unwrap();
        }
        let member = dir.path().join("tier");
        // A tier of whoever it is may have theirs; a daemon's may not.
        beside(&member, false).open(name(1)).unwrap();
        let ours = beside(&member, false).of(0);
        assert!(ours.open(name(1)).unwrap_err().to_string().contains("belongs to user 2001"));
        assert!(ours.make(name(2), 4096).is_err());
    }

    #[test]
    fn on_a_persistent_medium_each_write_is_synced_also_after_the_attribute_was_lost() {
        let (dir, _) = place();
        let place = beside(&dir.path().join("tier"), true);
        let made = match place.make(name(1), 4096) {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                eprintln!("skipped: the attribute of plain files, because {e}");
                assert!(place.names().unwrap().is_empty(), "nothing is left");
                return;
            }
            other => other.unwrap(),
        };
        let flags =
            |plain: &Plain| rustix::fs::ioctl_getflags(plain.descriptor.as_ref().unwrap()).unwrap();
        let found = flags(&made);
        assert!(found.contains(IFlags::SYNC));
        rustix::fs::ioctl_setflags(made.descriptor.as_ref().unwrap(), found - IFlags::SYNC)
            .unwrap();
        assert!(!flags(&made).contains(IFlags::SYNC));
        drop(made);
        let again = place.open(name(1)).unwrap();
        assert!(
            flags(&again).contains(IFlags::SYNC),
            "it is set again before the kernel gets the file"
        );
    }

    #[test]
    fn only_a_name_of_ours_is_one() {
        let ours =
            PlainName { tier: [0xab; 16], id: 0x12_3456_789a, loan: PlainName::new_loan(3, 1, 2) };
        assert_eq!(PlainName::parse(ours.to_string().as_bytes()), Some(ours));
        assert!(ours.is_before(4) && !ours.is_before(3) && !ours.is_before(2));
        let text = ours.to_string();
        for other in [
            text.to_uppercase(),
            text[1..].into(),
            format!("{text}.x"),
            format!("+{}", &text[1..]),
            "1".into(),
        ] {
            assert_eq!(PlainName::parse(other.as_bytes()), None, "{other:?}");
        }
    }
}

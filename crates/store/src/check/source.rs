//! Where the checker's bytes come from: a member file, or an image in memory.
//!
//! Reading only. An image gives slices of itself, so that checking one copies and allocates nothing
//! for it.
//!
//! **Invariant**: [`Source::view`] gives exactly the bytes asked for, or an error; a file that
//! became shorter is an error.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat};
use tiersmith_dir::Dir;

use super::CheckError;

/// Offset of the note in which the owner of a tier names itself.
const OWNER_AT: u64 = 8192;
const OWNER_LEN: usize = 4096;

/// Where a word or a structure lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) member: u32,
    pub(super) offset: u64,
}

/// Bytes that can be read anywhere.
pub(super) trait Source {
    /// How many there are.
    fn len(&self) -> u64;

    /// `len` bytes from `at`. A source that has no memory to point into reads them into `space`.
    fn view<'a>(&'a self, at: u64, len: usize, space: &'a mut Vec<u8>) -> io::Result<&'a [u8]>;

    /// The same of the bytes of a block, which may lie elsewhere.
    fn block<'a>(&'a self, at: u64, len: usize, space: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        self.view(at, len, space)
    }
}

/// An image of a member whose blocks may be on a device of their own.
#[cfg(feature = "testing")]
pub(super) struct Apart<'i> {
    pub(super) mapped: &'i [u8],
    pub(super) blocks: Option<&'i [u8]>,
}

#[cfg(feature = "testing")]
impl Source for Apart<'_> {
    fn len(&self) -> u64 {
        self.mapped.len() as u64
    }

    fn view<'a>(&'a self, at: u64, len: usize, space: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        self.mapped.view(at, len, space)
    }

    fn block<'a>(&'a self, at: u64, len: usize, space: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        self.blocks.as_ref().unwrap_or(&self.mapped).view(at, len, space)
    }
}

impl Source for &[u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn view<'a>(&'a self, at: u64, len: usize, _: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        let bytes = usize::try_from(at).ok().and_then(|at| self.get(at..at.checked_add(len)?));
        bytes.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// A member opened for reading, with a shared lock that keeps a store from opening it meanwhile.
#[derive(Debug)]
pub(super) struct MemberFile {
    file: File,
    len: u64,
}

impl MemberFile {
    /// Opens and locks a member.
    pub(super) fn open(path: &Path) -> Result<Self, CheckError> {
        let fail = |what| {
            move |e: rustix::io::Errno| CheckError::Io { what, path: path.into(), source: e.into() }
        };
        // A link of whoever has no say over what it leads to is not followed, and what is no file
        // and no block device is not opened: to open a device can act on it, and a named pipe would
        // hold us up.
        let (dir, name) = Dir::holding_target(path).map_err(|source| CheckError::Io {
            what: "open",
            path: path.into(),
            source,
        })?;
        let look = |stat: &Stat| match FileType::from_raw_mode(stat.st_mode) {
            kind @ (FileType::RegularFile | FileType::BlockDevice) => Ok(kind),
            kind => Err(CheckError::NotAFile { path: path.into(), kind: kind_name(kind) }),
        };
        look(&rustix::fs::statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(fail("open"))?)?;
        let flags =
            OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
        let fd: OwnedFd =
            rustix::fs::openat(&dir, &name, flags, Mode::empty()).map_err(fail("open"))?;
        let stat = rustix::fs::fstat(&fd).map_err(fail("look at"))?;
        let len = match look(&stat)? {
            FileType::BlockDevice => {
                rustix::fs::seek(&fd, rustix::fs::SeekFrom::End(0)).map_err(fail("measure"))?
            }
            _ => u64::try_from(stat.st_size).unwrap_or(0),
        };
        let member = Self { file: File::from(fd), len };
        match rustix::fs::flock(&member.file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(member),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                Err(CheckError::Owned { path: path.into(), owner: member.owner() })
            }
            Err(e) => Err(fail("lock")(e)),
        }
    }

    /// The process that has the tier, as it named itself.
    fn owner(&self) -> String {
        let mut space = Vec::new();
        let text = self.view(OWNER_AT, OWNER_LEN, &mut space).unwrap_or_default();
        let text = text.split(|b| *b == 0).next().unwrap_or_default();
        let text: String =
            String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).take(400).collect();
        if text.trim().is_empty() {
            "a process that left no name".into()
        } else {
            text.trim().into()
        }
    }
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "a directory",
        FileType::CharacterDevice => "a character device, which cannot be read like a file",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        _ => "no file",
    }
}

impl Source for MemberFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn view<'a>(&'a self, at: u64, len: usize, space: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        if at.checked_add(len as u64).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if space.len() < len {
            space.resize(len, 0);
        }
        let into = space.get_mut(..len).expect("BUG: it has just been made long enough");
        self.file.read_exact_at(into, at)?;
        Ok(into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, lchown, symlink};

    #[test]
    fn a_link_of_somebody_to_what_is_not_his_is_not_opened() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: a link of another account, because it needs root");
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        let (roots, user) = (scratch.path().join("tier"), scratch.path().join("user"));
        std::fs::write(&roots, "a tier of root").unwrap();
        std::fs::create_dir(&user).unwrap();
        chown(&user, Some(54_321), None).unwrap();
        let link = user.join("tier");
        symlink(&roots, &link).unwrap();
        MemberFile::open(&link).unwrap_err();
        lchown(&link, Some(54_321), None).unwrap();
        let error = MemberFile::open(&link).unwrap_err().to_string();
        assert!(error.contains("user 54321"), "{error}");
        let roots_link = scratch.path().join("link");
        symlink(&roots, &roots_link).unwrap();
        MemberFile::open(&roots_link).unwrap();
        assert!(matches!(
            MemberFile::open(Path::new("/dev/zero")),
            Err(CheckError::NotAFile { .. })
        ));
    }
}

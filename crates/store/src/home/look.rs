//! Looking at files and directories: attributes, names, and where a path leads.
//!
//! Deliberately absent: opening a home, and changing one.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, StatxTimestamp};
use rustix::io::Errno;
use tiersmith_dir::Dir;

use super::{FileKind, HomeError, HomeStat};

/// The path without symbolic links and relative parts. The last component may be missing, or be a
/// dead mount.
///
/// The way is gone once, and the answer is where the directory is that was opened on it: of a
/// second way, the path that it ends at does not say who could have exchanged what lay on it. So
/// root goes by no link that somebody else has put there to lead it to a directory that is not
/// theirs.
pub(super) fn without_links(path: &Path) -> Result<PathBuf, HomeError> {
    let failed = |source: io::Error| {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::NotFound => HomeError::Missing { path },
            io::ErrorKind::NotADirectory => HomeError::NotADirectory { path },
            io::ErrorKind::PermissionDenied => HomeError::NoPermission { path, source },
            _ => HomeError::Io { what: "resolve", path, source },
        }
    };
    if path.file_name().is_none() {
        return Dir::open(path).and_then(|dir| dir.canonical_path()).map_err(failed);
    }
    let (dir, name) = Dir::holding_target(path).map_err(failed)?;
    Ok(dir.canonical_path().map_err(failed)?.join(name))
}

pub(super) fn name_of(path: &Path) -> io::Result<&OsStr> {
    path.file_name().ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "the path has no last component")
    })
}

/// The names in a directory, sorted, without `.` and `..`.
pub(super) fn names(dir: impl AsFd) -> Result<Vec<OsString>, Errno> {
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            found.push(OsStr::from_bytes(name).to_os_string());
        }
    }
    found.sort();
    Ok(found)
}

/// The attributes of `name` in `dir` (the empty name: of `dir` itself), not following a link.
pub(super) fn status(dir: impl AsFd, name: &OsStr) -> Result<Statx, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    rustix::fs::statx(dir, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)
}

pub(super) fn device(x: &Statx) -> u64 {
    rustix::fs::makedev(x.stx_dev_major, x.stx_dev_minor)
}

pub(super) fn kind(x: &Statx) -> FileKind {
    match FileType::from_raw_mode(x.stx_mode.into()) {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        _ => FileKind::Other,
    }
}

pub(super) fn home_stat(x: &Statx) -> HomeStat {
    let known = StatxFlags::from_bits_retain(x.stx_mask).contains(StatxFlags::BTIME);
    HomeStat {
        ino: x.stx_ino,
        generation: 0,
        btime_ns: if known { nanoseconds(&x.stx_btime) } else { 0 },
        size: x.stx_size,
        mtime_ns: nanoseconds(&x.stx_mtime),
        ctime_ns: nanoseconds(&x.stx_ctime),
        nlink: x.stx_nlink.into(),
        kind: kind(x),
        dev: device(x),
        uid: x.stx_uid,
    }
}

/// Times before 1970 wrap around: they only need to be told apart.
fn nanoseconds(t: &StatxTimestamp) -> u64 {
    (t.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(t.tv_nsec.into())
}

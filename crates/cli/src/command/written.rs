//! Files that a command writes where the user asked for them.
//!
//! Invariants: such a file is there whole or not at all, and what was there before stays until
//! then. Root writes through no link and to no pipe that another account could have put there, and
//! keeps no mode that another account chose.
//!
//! Deliberately absent: pages and results themselves.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use tiersmith_dir::{Dir, Found, Kind};

use crate::error::{Error, Result};

/// As many links as the kernel follows.
const LINKS_MAX: usize = 40;

/// Who may read a file that is new.
#[derive(Clone, Copy)]
pub(super) enum Readers {
    /// Its owner: it may hold texts of statements.
    Owner,
    /// Whoever the process's mask lets.
    AsUsual,
}

impl Readers {
    fn mode(self) -> u32 {
        match self {
            Readers::Owner => 0o600,
            Readers::AsUsual => {
                // The mask can only be read by setting it.
                let mask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
                rustix::process::umask(mask);
                0o666 & !mask.as_raw_mode()
            }
        }
    }
}

/// Writes a file: all of it or, where that fails, nothing. A pipe or a terminal, and a file in a
/// directory that cannot be written, is written in place.
pub(super) fn write_file(path: &Path, text: &str, readers: Readers) -> Result<()> {
    let failed = |source| Error::Io { what: "write", path: path.into(), source };
    if path.starts_with("/dev") {
        return fs::write(path, text).map_err(failed);
    }
    written(path, text, readers).map_err(failed)
}

fn written(path: &Path, text: &str, readers: Readers) -> io::Result<()> {
    let (dir, name) = behind_links(path)?;
    let there = dir.look(&name)?;
    let mode = match &there {
        Some(found) if found.kind != Kind::File => {
            refuse_others(found, "is not a regular file and belongs")?;
            return fs::write(dir.through(&name), text);
        }
        Some(found) if found.user == rustix::process::geteuid().as_raw() => found.mode & 0o777,
        _ => readers.mode(),
    };
    match dir.replace(&name, text.as_bytes(), mode, None) {
        Err(e) if there.is_some() && e.kind() == io::ErrorKind::PermissionDenied => {
            let mut file = dir.open_file_rw(&name)?;
            file.set_len(0)?;
            file.write_all(text.as_bytes())
        }
        done => done,
    }
}

/// The directory and the name that a path leads to, through links, which stay.
fn behind_links(path: &Path) -> io::Result<(Dir, OsString)> {
    let mut path = PathBuf::from(path);
    for _ in 0..LINKS_MAX {
        let (dir, name) = Dir::holding(&path)?;
        match dir.look(&name)? {
            Some(found) if found.kind == Kind::Link => {
                // In another account's directory even a link of root's may be moved in.
                refuse_others(&found, "is a link that belongs")?;
                refuse_others(&dir.found()?, "is a link in a directory that belongs")?;
                path = dir.path().join(fs::read_link(dir.through(&name))?);
            }
            _ => return Ok((dir, name)),
        }
    }
    Err(io::Error::other("there are too many links on the way"))
}

/// Root takes only what is root's.
fn refuse_others(found: &Found, is: &str) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() || found.user == 0 {
        return Ok(());
    }
    let text =
        format!("it {is} to user {}, and root does not write there; give another path", found.user);
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

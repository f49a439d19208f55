//! The note for people: the text in the directory that stands for a home whose files lie aside.
//!
//! A note is a directory with nothing in it but [`NOTE_FILE`]. It is whole when that begins with
//! [`NOTE_MARKER`].
//!
//! **Invariant**: a file that somebody put at the note's name is replaced, never written to.
//! **Deliberately absent**: where a note is, and when it comes and goes (`guard.rs`, `inside.rs`).

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::HomeError;
use super::look::names;

/// The file in the directory that takes the home's path.
pub const NOTE_FILE: &str = "README-TIERSMITH.txt";
/// The first line of that file.
pub const NOTE_MARKER: &str = "This is not the database: Tiersmith moved the directory aside.";

pub(super) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Of a note at the home's path: readable for whoever looks, writable for none, so that a database
/// started there by mistake fails.
pub(super) const LOOK: Mode = Mode::RUSR
    .union(Mode::XUSR)
    .union(Mode::RGRP)
    .union(Mode::XGRP)
    .union(Mode::ROTH)
    .union(Mode::XOTH);

/// Whether `dir` holds a note that was finished.
pub(super) fn has_marker(dir: &OwnedFd) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(dir, NOTE_FILE, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(false),
        other => other?,
    };
    let mut head = [0u8; NOTE_MARKER.len()];
    let mut done = 0;
    while done < head.len() {
        match rustix::io::pread(&file, &mut head[done..], done as u64)? {
            0 => return Ok(false),
            n => done += n,
        }
    }
    Ok(head == *NOTE_MARKER.as_bytes())
}

/// Whether `dir` holds nothing but a note, finished or not.
pub(super) fn is_note(dir: &OwnedFd) -> Result<bool, Errno> {
    Ok(names(dir)?.iter().all(|n| n == NOTE_FILE))
}

pub(super) fn only_the_note(dir: &OwnedFd, path: &Path) -> io::Result<()> {
    refuse_others(names(dir)?.into_iter().filter(|n| n != NOTE_FILE).collect(), path)
}

/// Names what is where only ours should be.
pub(super) fn refuse_others(others: Vec<OsString>, path: &Path) -> io::Result<()> {
    if others.is_empty() {
        return Ok(());
    }
    let mut said: Vec<String> = others.iter().take(5).map(|n| n.display().to_string()).collect();
    if others.len() > said.len() {
        said.push(format!("and {} more", others.len() - said.len()));
    }
    Err(HomeError::NotOnlyTheNote { dir: path.to_path_buf(), names: said.join(", ") }.into())
}

/// What root need not do is not done: the home's owner may have put a directory of his there.
pub(super) fn set_mode_unless_root(dir: &OwnedFd, mode: Mode) -> Result<(), Errno> {
    if geteuid().is_root() { Ok(()) } else { rustix::fs::fchmod(dir, mode) }
}

/// Writes and syncs the note's file; its name is not durable yet.
pub(super) fn write_note_file(dir: &OwnedFd, text: &str) -> io::Result<()> {
    // Not over what is there: the home's owner may have linked a file of somebody else.
    remove_note_file(dir)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let readable = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    let file = File::from(rustix::fs::openat(dir, NOTE_FILE, flags, readable)?);
    file.write_all_at(text.as_bytes(), 0)?;
    file.sync_all()
}

pub(super) fn remove_note_file(dir: &OwnedFd) -> io::Result<()> {
    set_mode_unless_root(dir, Mode::RWXU)?;
    match rustix::fs::unlinkat(dir, NOTE_FILE, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// What the note of the home known as `home` says; its files are in `files`.
pub(super) fn note_text(home: &Path, files: &Path, note: &str) -> String {
    format!(
        "{NOTE_MARKER}\n\n\
         The files that belong in {path} are in {aside}.\n\
         The newest version of some of their blocks is on the fast storage, so those files alone \
         are not a usable\n\
         database: do not start a database on them, and do not copy them as a backup.\n\n\
         To use the database: start Tiersmith again; it mounts the whole database here.\n\
         To have the plain directory back: tiersmith detach {path}\n\n\
         {note}\n",
        path = home.display(),
        aside = files.display(),
    )
}

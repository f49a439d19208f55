//! The daemon's log: its standard error, in a file beside the home, of which so much is kept and no
//! more.
//!
//! A file that has more than [`LOG_MAX`] bytes takes the name of the older one
//! ([`Place::log_old`]), which goes, and the log begins anew. The daemon looks at each of its
//! ticks, so a file may be longer by what is written in a quarter of a second.
//!
//! **Invariant**: what is written to is a file of root or this user alone, never a link: it lies
//! where the home's user may write.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use tiersmith_store::AttachedHome;

use super::place::Place;
use super::plan::is_trusted;
use crate::error::{Error, Result};

/// Bytes of the log, and of the older one.
const LOG_MAX: u64 = 4 << 20;

/// Standard error as the log: messages of all crates, and a panic's.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    place: Place,
    /// The directory that holds the log, by which its names are found again.
    parent: OwnedFd,
}

impl Log {
    /// Standard error becomes the log. The caller has the home locked.
    ///
    /// # Errors
    /// When the file cannot be made, or is not this user's alone; when the home is not in the
    /// directory any more that its path leads to.
    pub(super) fn begin(place: &Place, home: &AttachedHome) -> Result<Log> {
        let parent = parent_of(place, home)?;
        let mut log = Log { file: open(place, &parent)?, place: place.clone(), parent };
        log.keep_short();
        let cannot = |source| Error::Io { what: "write the log", path: place.log(), source };
        rustix::stdio::dup2_stderr(&log.file).map_err(|e| cannot(e.into()))?;
        Ok(log)
    }

    /// Begins a new file when this one is long; called now and then.
    pub(super) fn keep_short(&mut self) {
        if !self.file.metadata().is_ok_and(|found| found.len() > LOG_MAX) {
            return;
        }
        let (log, older) = (self.place.log(), self.place.log_old());
        let renamed = rustix::fs::renameat(&self.parent, name(&log), &self.parent, name(&older));
        let begun = renamed.map_err(|e| std::io::Error::from(e).to_string()).and_then(|()| {
            let file = open(&self.place, &self.parent).map_err(|e| e.to_string())?;
            rustix::stdio::dup2_stderr(&file).map_err(|e| e.to_string())?;
            Ok(file)
        });
        match begun {
            Ok(file) => self.file = file,
            Err(e) => {
                // No place for an older one: then there is none, but the disk does not fill.
                let _ = self.file.set_len(0);
                say(&format!(
                    "cannot begin a new log ({e}); what {} had is gone",
                    self.place.log().display()
                ));
            }
        }
    }
}

/// The directory that holds the names of the attached home. Its path may lead elsewhere by now, where
/// somebody else owns a directory above it: then the home's vault is not in it.
fn parent_of(place: &Place, home: &AttachedHome) -> Result<OwnedFd> {
    let cannot = |e: Errno| Error::Io { what: "write the log", path: place.log(), source: e.into() };
    let handle = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let parent = rustix::fs::open(place.parent(), handle, Mode::empty()).map_err(cannot)?;
    let Some(files) = home.directory() else { return Ok(parent) };
    let around =
        rustix::fs::openat(files, "..", handle, Mode::empty()).and_then(rustix::fs::fstat).map_err(cannot)?;
    let beside = rustix::fs::statat(&parent, name(&place.vault()), AtFlags::SYMLINK_NOFOLLOW);
    match beside {
        Ok(beside) if (beside.st_dev, beside.st_ino) == (around.st_dev, around.st_ino) => Ok(parent),
        _ => Err(Error::Usage(format!(
            "cannot write the log: {} does not hold the home any more: somebody moved a directory or put a link \
             in the way; see who, and put it back",
            place.parent().display()
        ))),
    }
}

/// The last name of a path.
fn name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

fn open(place: &Place, parent: &OwnedFd) -> Result<File> {
    let path = place.log();
    let cannot = |source| Error::Io { what: "write the log", path: place.log(), source };
    let flags = OFlags::WRONLY
        | OFlags::APPEND
        | OFlags::CREATE
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, name(&path), flags, Mode::RUSR | Mode::WUSR);
    let file = File::from(file.map_err(|e| cannot(e.into()))?);
    let metadata = file.metadata().map_err(cannot)?;
    if !metadata.is_file() || !is_trusted(&metadata) {
        return Err(Error::Usage(format!(
            "cannot write the log: {} is not a file of yours alone; remove it",
            path.display()
        )));
    }
    Ok(file)
}

/// A message of the daemon's own, with the time.
pub(super) fn say(message: &str) {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = tiersmith_awr::figure::instant(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
    let mut error = std::io::stderr();
    let prefix = if error.is_terminal() { String::new() } else { format!("{now} UTC ") };
    let _ = writeln!(error, "{prefix}tiersmith: {message}");
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails here says where")]
mod tests {
    use super::*;
    use tiersmith_store::{Medium, Options, TierSpec};

    #[test]
    fn without_a_place_for_the_older_log_a_long_one_is_emptied_and_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::find(&dir.path().join("db")).unwrap();
        let parent = rustix::fs::open(dir.path(), OFlags::PATH, Mode::empty()).unwrap();
        let mut log = Log { file: open(&place, &parent).unwrap(), place: place.clone(), parent };
        std::fs::write(place.log(), vec![b'a'; LOG_MAX as usize]).unwrap();
        log.keep_short();
        assert_eq!(log.file.metadata().unwrap().len(), LOG_MAX);
        std::fs::create_dir(place.log_old()).unwrap();
        log.file.write_all(b"a").unwrap();
        log.keep_short();
        assert_eq!(log.file.metadata().unwrap().len(), 0);
        std::fs::remove_file(place.log()).unwrap();
        std::os::unix::fs::symlink("/dev/null", place.log()).unwrap();
        assert!(open(&place, &log.parent).is_err(), "a link was followed");
    }

    #[test]
    fn a_log_is_not_made_where_the_homes_parent_was_swapped_for_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        let (above, elsewhere) = (real.join("above"), real.join("elsewhere"));
        std::fs::create_dir_all(above.join("db")).unwrap();
        std::fs::create_dir(&elsewhere).unwrap();
        let place = Place::find(&above.join("db")).unwrap();
        let tier = TierSpec::new("fast", real.join("db.tier"), Medium::Emulated, 24 << 20);
        let home = tiersmith_store::attach(place.path(), &[tier], Options::default()).unwrap();
        let _ = parent_of(&place, &home).unwrap();
        std::fs::rename(&above, real.join("moved")).unwrap();
        for put_there in [false, true] {
            if put_there {
                // Not by a link either: by a directory that has what root could be led to.
                std::fs::remove_file(&above).unwrap();
                std::fs::create_dir_all(above.join("db.tiersmith-home")).unwrap();
            } else {
                std::os::unix::fs::symlink(&elsewhere, &above).unwrap();
            }
            assert!(parent_of(&place, &home).is_err(), "by a directory: {put_there}");
        }
        std::fs::remove_dir_all(&above).unwrap();
        std::fs::rename(real.join("moved"), &above).unwrap();
        home.detach().unwrap();
    }
}

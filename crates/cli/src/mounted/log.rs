//! The daemon's log: its standard error, in a file beside the home, of which so much is kept and no
//! more.
//!
//! A file that has more than [`LOG_MAX`] bytes takes the name of the older one
//! ([`Place::log_old_name`]), which goes, and the log begins anew. The daemon looks at each of its
//! ticks, so a file may be longer by what is written in a quarter of a second.
//!
//! **Invariant**: what is written to is a file of root or this user alone, never a link or a pipe:
//! it lies where the home's user may write. What a line may hold, and how many there may be, is
//! `messages.rs`.

use std::fs::File;
use std::io::ErrorKind;

use rustix::fs::OFlags;

use super::belief::is_trusted;
use super::place::Place;
use crate::error::{Error, Result};
use crate::messages;

/// Bytes of the log, and of the older one.
const LOG_MAX: u64 = 4 << 20;

/// Standard error as the log: messages of all crates, and a panic's.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    place: Place,
}

impl Log {
    /// Standard error becomes the log. The caller has the home locked, and knows that it is in the
    /// directory the place has open.
    ///
    /// # Errors
    /// When the file cannot be made, or is not this user's alone.
    pub(super) fn begin(place: &Place) -> Result<Log> {
        let mut log = Log { file: open(place)?, place: place.clone() };
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
        let (dir, log, older) =
            (self.place.dir(), self.place.log_name(), self.place.log_old_name());
        let begun = dir.rename(log, dir, older).map_err(|e| e.to_string()).and_then(|()| {
            let file = open(&self.place).map_err(|e| e.to_string())?;
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

fn open(place: &Place) -> Result<File> {
    let cannot = |source| Error::Io { what: "write the log", path: place.log(), source };
    let not_ours = || {
        Error::Usage(format!(
            "cannot write the log: {} is not a file of yours alone; remove it",
            place.log().display()
        ))
    };
    let file = match place.dir().make_file(place.log_name(), 0o600, None) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            match place.dir().open_file_rw(place.log_name()) {
                // A link, a pipe, a device.
                Err(e) if e.kind() == ErrorKind::InvalidInput => return Err(not_ours()),
                other => other.map_err(cannot)?,
            }
        }
        other => other.map_err(cannot)?,
    };
    if !is_trusted(&file.metadata().map_err(cannot)?) {
        return Err(not_ours());
    }
    rustix::fs::fcntl_setfl(&file, OFlags::APPEND).map_err(|e| cannot(e.into()))?;
    Ok(file)
}

/// A message of the daemon's own, with the time.
pub(super) fn say(message: &str) {
    messages::say_with_time(message);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails here says where")]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn without_a_place_for_the_older_log_a_long_one_is_emptied_and_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::find(&dir.path().join("db")).unwrap();
        let mut log = Log { file: open(&place).unwrap(), place: place.clone() };
        std::fs::write(place.log(), vec![b'a'; LOG_MAX as usize]).unwrap();
        log.keep_short();
        assert_eq!(log.file.metadata().unwrap().len(), LOG_MAX);
        std::fs::create_dir(place.dir().path_of(place.log_old_name())).unwrap();
        log.file.write_all(b"a").unwrap();
        log.keep_short();
        assert_eq!(log.file.metadata().unwrap().len(), 0);
        std::fs::remove_file(place.log()).unwrap();
        std::os::unix::fs::symlink("/dev/null", place.log()).unwrap();
        assert!(
            open(&place).unwrap_err().to_string().contains("of yours alone"),
            "a link was followed"
        );
        std::fs::remove_file(place.log()).unwrap();
        let made = std::process::Command::new("mkfifo").arg(place.log()).status().unwrap();
        assert!(made.success());
        assert!(
            open(&place).unwrap_err().to_string().contains("of yours alone"),
            "a pipe was opened"
        );
    }
}

//! The daemon's log: its standard error, in a file beside the home, of which so much is kept and no
//! more.
//!
//! A file that has more than [`LOG_MAX`] bytes takes the name of the older one
//! ([`Place::log_old`]), which goes, and the log begins anew. The daemon looks at each of its
//! ticks, so a file may be longer by what is written in a quarter of a second.
//!
//! **Invariant**: what is written to is a file of root or this user alone, never a link: it lies
//! where the home's user may write.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;

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
}

impl Log {
    /// Standard error becomes the log. The caller has the home locked.
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
        let renamed = std::fs::rename(self.place.log(), self.place.log_old());
        let begun = renamed.map_err(|e| e.to_string()).and_then(|()| {
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
    let path = place.log();
    let cannot = |source| Error::Io { what: "write the log", path: place.log(), source };
    let no_follow = rustix::fs::OFlags::NOFOLLOW.union(rustix::fs::OFlags::NONBLOCK).bits().cast_signed();
    let file = File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(no_follow)
        .open(&path)
        .map_err(cannot)?;
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

    #[test]
    fn without_a_place_for_the_older_log_a_long_one_is_emptied_and_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::find(&dir.path().join("db")).unwrap();
        let mut log = Log { file: open(&place).unwrap(), place: place.clone() };
        std::fs::write(place.log(), vec![b'a'; LOG_MAX as usize]).unwrap();
        log.keep_short();
        assert_eq!(log.file.metadata().unwrap().len(), LOG_MAX);
        std::fs::create_dir(place.log_old()).unwrap();
        log.file.write_all(b"a").unwrap();
        log.keep_short();
        assert_eq!(log.file.metadata().unwrap().len(), 0);
        std::fs::remove_file(place.log()).unwrap();
        std::os::unix::fs::symlink("/dev/null", place.log()).unwrap();
        assert!(open(&place).is_err(), "a link was followed");
    }
}

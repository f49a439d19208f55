//! The journal of a trial: a directory of its own with the plan, the steps taken, and what was
//! recorded.
//!
//! ```text
//! STATE/20261123-221500/
//!     trial.toml      the plan and every step, begun or done: written whole, renamed, synced
//!     lock            locked by the process that takes the steps
//!     undo            somebody asked to bring the plain database back
//!     log             what the process and its commands printed
//!     before-1.db     what was recorded; the number counts attempts
//!     trial.html      the page
//! ```
//!
//! Invariants: a step is durable in the journal before it is taken; one process at a time takes
//! steps; only the account that began the trial can read or change any of it.
//! Deliberately absent: what the steps do (`run.rs`).

use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};
use tiersmith_dir::{Dir, Sidecar};

use super::plan::{Plan, Step};
use crate::error::{During, Error, Result};
use crate::process::Identity;

/// The journal's file.
const FILE: &str = "trial.toml";
/// Who takes the steps has it locked.
const LOCK: &str = "lock";
/// Its presence asks for the way back.
const UNDO: &str = "undo";
/// Bytes of a result that is read again.
const RESULT_MAX: u64 = 16 << 20;
/// Trials of which a listing takes notice.
const TRIALS_MAX: usize = 10_000;

const SIDECAR: Sidecar = Sidecar {
    kind: "trial",
    version: 1,
    comment: "The journal of a `tiersmith trial`. While the trial is not over, `tiersmith trial \
              --resume` goes on\n\
              and `tiersmith trial --undo` brings the plain database back; both need this file.",
    most: 1 << 20,
};

/// Where a trial is going.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Through all steps.
    Measure,
    /// Back to the plain database.
    Undo,
}

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Measured; the database is plain.
    Plain,
    /// Measured; the tier stays attached, as asked.
    Kept,
    /// Not measured; the database is plain.
    Undone,
}

/// A step as far as it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Which.
    pub step: Step,
    /// When it was begun.
    pub at_unix_ms: u64,
    /// Whether it was done.
    pub done: bool,
    /// Why it failed, if it did; or what is to be said of it.
    pub said: Option<String>,
    /// The process that was started for it last.
    pub helper: Option<Identity>,
}

/// What the journal says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// Where it is going.
    pub goal: Goal,
    /// How it ended, if it did.
    pub end: Option<End>,
    /// Why it went back, or cannot.
    pub why: Option<String>,
    /// What it does.
    pub plan: Plan,
    /// The steps taken, in order.
    #[serde(default)]
    pub taken: Vec<Taken>,
}

impl Journal {
    /// A trial that has done nothing yet.
    pub fn new(plan: Plan) -> Journal {
        Journal { goal: Goal::Measure, end: None, why: None, plan, taken: Vec::new() }
    }

    /// Whether a step was done.
    pub fn is_done(&self, step: Step) -> bool {
        self.taken.iter().any(|taken| taken.step == step && taken.done)
    }

    /// How often a step was begun.
    pub fn attempts(&self, step: Step) -> usize {
        self.taken.iter().filter(|taken| taken.step == step).count()
    }
}

/// The directory of one trial.
#[derive(Debug)]
pub struct Room {
    dir: Dir,
}

/// The lock of a trial; goes with the value and with the process.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code, reason = "held, not used")] File);

impl Room {
    /// Makes the directory of a new trial below `state`, which is made if it is not there.
    ///
    /// # Errors
    /// Another account could change what is in `state`; another trial there is not over; the system
    /// refuses.
    ///
    /// # Durability
    /// The journal is durable when this returns.
    pub fn make(state: &Path, journal: &Journal, now_unix_ms: u64) -> Result<Room> {
        let path = state;
        let state = open_state(path, true)?;
        // Two trials that begin at once would stop and detach under each other.
        let begun =
            rustix::fs::openat(&state, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let begun = begun.during("open", path)?;
        rustix::fs::flock(&begun, FlockOperation::LockExclusive).during("lock", path)?;
        let (left, unread) = Room::unfinished(path)?;
        if let Some(other) = left.first() {
            return Err(Error::Place {
                what: "trial",
                path: other.path().into(),
                reason: "it began meanwhile and is not over; `tiersmith trial --resume` goes on \
                         with it, \
                         `tiersmith trial --undo` brings that database back"
                    .into(),
            });
        }
        if let Some(unread) = unread.into_iter().next() {
            return Err(unread);
        }
        let name = name_of(now_unix_ms);
        let mut number = 1;
        let dir = loop {
            let name = if number == 1 { name.clone() } else { format!("{name}-{number}") };
            match state.make_dir(&name, 0o700, None) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && number < 1000 => number += 1,
                made => {
                    break made.during("make the directory of the trial", state.path_of(&name))?;
                }
            }
        };
        state.sync().during("sync", state.path())?;
        drop(dir.make_file(LOCK, 0o600, None).during("make", dir.path_of(LOCK))?);
        let room = Room { dir };
        room.write(journal)?;
        Ok(room)
    }

    /// The directory of a trial.
    ///
    /// # Errors
    /// It is not there, or another account could change what is in it.
    pub fn open(path: &Path) -> Result<Room> {
        let dir = Dir::open(path).during("open the trial's directory", path)?;
        judge(&dir)?;
        Ok(Room { dir })
    }

    /// The trials below `state`, oldest first; none if it is not there.
    ///
    /// # Errors
    /// Another account could change what is in it.
    pub fn all(state: &Path) -> Result<Vec<Room>> {
        let dir = match Dir::open(state) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            _ => open_state(state, false)?,
        };
        let mut names: Vec<OsString> = dir.names(TRIALS_MAX).during("list", state)?;
        names.sort();
        let opened = names.into_iter().filter_map(|name| dir.sub(name).ok());
        Ok(opened
            .filter(|dir| matches!(dir.look(FILE), Ok(Some(_))))
            .map(|dir| Room { dir })
            .collect())
    }

    /// The trials below `state` that are not over, oldest first, and those of which nobody can tell
    /// because their journals cannot be read.
    ///
    /// # Errors
    /// Another account could change what is in it.
    pub fn unfinished(state: &Path) -> Result<(Vec<Room>, Vec<Error>)> {
        let (mut left, mut unread) = (Vec::new(), Vec::new());
        for room in Room::all(state)? {
            match room.read() {
                Ok(journal) if journal.end.is_some() => {}
                Ok(_) => left.push(room),
                Err(e) => unread.push(room.unreadable(&e)),
            }
        }
        Ok((left, unread))
    }

    /// What to do about a journal that cannot be read.
    fn unreadable(&self, why: &Error) -> Error {
        let reason = format!(
            "whether it is over cannot be told, because its journal cannot be read ({why}). The \
             Tiersmith that began \
             it can go on with it. If its database runs as it should, move this directory out of \
             the way"
        );
        Error::Place { what: "trial", path: self.path().into(), reason }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A file in it.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.dir.path_of(name)
    }

    /// What the journal says.
    ///
    /// # Errors
    /// It cannot be read, or is another version's.
    pub fn read(&self) -> Result<Journal> {
        SIDECAR.read(&self.dir, FILE).during("read the trial's journal", self.path_of(FILE))
    }

    /// Writes the journal.
    ///
    /// # Errors
    /// The system refuses; what was there before is there still.
    ///
    /// # Durability
    /// Durable when this returns.
    pub fn write(&self, journal: &Journal) -> Result<()> {
        let written = SIDECAR.replace(&self.dir, FILE, journal, 0o600, None);
        written.during("write the trial's journal", self.path_of(FILE))
    }

    /// Puts a file of a result beside the journal.
    ///
    /// # Errors
    /// The system refuses.
    pub fn put(&self, name: &str, text: &str) -> Result<()> {
        self.dir.replace(name, text.as_bytes(), 0o600, None).during("write", self.path_of(name))
    }

    /// The text of a result.
    ///
    /// # Errors
    /// It is not there, or is no text.
    pub fn read_text(&self, name: &str) -> Result<String> {
        let bytes = self.dir.read(name, RESULT_MAX).during("read", self.path_of(name))?;
        String::from_utf8(bytes).map_err(io::Error::other).during("read", self.path_of(name))
    }

    /// The lock; nothing if another process takes the steps.
    ///
    /// # Errors
    /// The system refuses.
    pub fn lock(&self) -> Result<Option<Lock>> {
        let file = self.dir.open_file_rw(LOCK).during("open", self.path_of(LOCK))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(e).during("lock", self.path_of(LOCK)),
        }
    }

    /// Whether the way back was asked for.
    pub fn undo_is_asked(&self) -> bool {
        matches!(self.dir.look(UNDO), Ok(Some(_)))
    }

    /// Asks for the way back.
    ///
    /// # Errors
    /// The system refuses.
    pub fn ask_for_undo(&self) -> Result<()> {
        self.put(UNDO, "")
    }
}

/// The directory of trials, which nobody else may have a say in.
fn open_state(path: &Path, make: bool) -> Result<Dir> {
    if make {
        DirBuilder::new().recursive(true).mode(0o700).create(path).during("make", path)?;
    }
    let dir = Dir::open(path).during("open", path)?;
    judge(&dir)?;
    Ok(dir)
}

fn judge(dir: &Dir) -> Result<()> {
    let found = dir.found().during("look at", dir.path())?;
    if found.user == rustix::process::geteuid().as_raw() && found.mode & 0o077 == 0 {
        return Ok(());
    }
    Err(Error::Place {
        what: "state of trials",
        path: dir.path().into(),
        reason: format!(
            "it belongs to user {} and has mode {:04o}, and whoever can write there could say what \
             a trial \
             runs; give a directory of your own with mode 0700",
            found.user, found.mode
        ),
    })
}

/// The name of a trial that begins now: 20261123-221500.
fn name_of(unix_ms: u64) -> String {
    let instant = tiersmith_awr::figure::instant(unix_ms.saturating_mul(1_000_000));
    let digits: String = instant.chars().filter(char::is_ascii_digit).take(14).collect();
    let (day, time) = digits.split_at(digits.len().min(8));
    format!("{day}-{time}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::copy::OnCopy;
    use crate::trial::plan::{Loses, Service};
    use crate::trial::which::Which;
    use std::os::unix::fs::PermissionsExt;

    fn journal() -> Journal {
        Journal::new(Plan {
            url: "postgresql:///postgres".into(),
            home: Path::new("/data/\n%").into(),
            home_is: Which::at(Path::new("/")).ok(),
            fast: Path::new("/mnt/fast").into(),
            size: None,
            length_ms: Some(60_000),
            load: vec!["pgbench".into()],
            directory: Path::new("/root").into(),
            keep: false,
            patience_ms: Some(7),
            service: Service::Commands { stop: "stop it".into(), start: "start it".into() },
            loses: Some(Loses::Emulated),
            copy: Some(OnCopy {
                of: "postgresql:///postgres".into(),
                dir: Path::new("/data/copy").into(),
                is_made: true,
                mark: "0123".into(),
                program: Path::new("/usr/bin/pg_basebackup").into(),
                user: "app".into(),
                database: "shop".into(),
                reserve: 4 << 30,
            }),
        })
    }

    #[test]
    fn a_journal_comes_back_as_it_was_and_one_process_has_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state/trials");
        let mut journal = journal();
        let room = Room::make(&state, &journal, 1_795_472_100_000).unwrap();
        let helper = Identity::of(std::process::id());
        journal.taken.push(Taken {
            step: Step::StopAgain,
            at_unix_ms: 5,
            done: true,
            said: None,
            helper,
        });
        journal.end = Some(End::Undone);
        room.write(&journal).unwrap();
        let again = Room::all(&state).unwrap().pop().unwrap();
        assert_eq!(again.read().unwrap(), journal);
        let lock = room.lock().unwrap().unwrap();
        assert!(again.lock().unwrap().is_none());
        drop(lock);
        assert!(again.lock().unwrap().is_some());
        assert!(!again.undo_is_asked());
        room.ask_for_undo().unwrap();
        assert!(again.undo_is_asked());
        let second = Room::make(&state, &journal, 1_795_472_100_000).unwrap();
        assert_ne!(second.path(), room.path());
    }

    #[test]
    fn a_trial_does_not_begin_beside_one_that_is_not_over() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("trials");
        let began: usize = std::thread::scope(|scope| {
            let begin = || Room::make(&state, &journal(), 1_795_472_100_000).is_ok();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(begin)).collect();
            threads.into_iter().map(|thread| usize::from(thread.join().unwrap())).sum()
        });
        assert_eq!(began, 1);
    }

    #[test]
    fn a_journal_that_cannot_be_read_keeps_no_other_trial_from_going_on_and_none_begins_beside_it()
    {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("trials");
        let over = Journal { end: Some(End::Undone), ..journal() };
        let old = Room::make(&state, &over, 1_695_472_100_000).unwrap();
        let mine = Room::make(&state, &journal(), 1_795_472_100_000).unwrap();
        std::fs::write(old.path_of(FILE), "version = 99\n").unwrap();
        let (left, unread) = Room::unfinished(&state).unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].path(), mine.path());
        let said = unread[0].to_string();
        assert!(unread.len() == 1 && said.contains(&old.path().display().to_string()), "{said}");
        assert!(
            said.contains("its journal cannot be read") && said.contains("move this directory"),
            "{said}"
        );
        mine.write(&over).unwrap();
        let refused = Room::make(&state, &journal(), 1_895_472_100_000).unwrap_err().to_string();
        assert!(refused.contains("its journal cannot be read"), "{refused}");
        // Out of the way, it is in nobody's.
        std::fs::rename(old.path(), dir.path().join("old")).unwrap();
        Room::make(&state, &journal(), 1_895_472_100_000).unwrap();
    }

    #[test]
    fn a_state_directory_that_others_can_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = Room::make(dir.path(), &journal(), 0).unwrap_err().to_string();
        assert!(error.contains("mode 0700"), "{error}");
    }
}

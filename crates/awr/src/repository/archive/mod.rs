//! The archive: a repository that keeps snapshots of many sources, baselines with names, what went
//! wrong while recording, and who records.
//!
//! | file | what |
//! |---|---|
//! | this one | what an archive is, whatever keeps it |
//! | `file.rs` | kept in one file, a SQLite database |
//! | `server.rs` | kept on a PostgreSQL |
//! | `packed.rs` | how a snapshot lies in it |
//! | `lease.rs` | who records a source |
//!
//! # Invariants
//!
//! - A snapshot is durable when [`Archive::take`] returns, or it is not there at all.
//! - Numbers are never given twice, also after rows were removed; of one source a later snapshot
//!   has a higher number.
//! - A row that is damaged does not hide the others.
//!
//! Deliberately absent: joins over counters (export the snapshots). Read next: `file.rs`,
//! `lease.rs`, `record.rs`.

mod file;
mod lease;
mod packed;
mod server;
mod session;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

pub use lease::Lease;

use self::lease::{Holder, Who};
pub use crate::interval::Gap;
use crate::{Entry, Error, Listing, Result, Series, Snapshot, SnapshotId};

/// The longest name of a source, a database, an instance or a baseline, in bytes.
pub const LONGEST_NAME: usize = 2_000;

/// A repository with baselines, gaps and recorders.
#[derive(Clone)]
pub struct Archive {
    place: PathBuf,
    keeper: Arc<Mutex<Box<dyn Keeper>>>,
}

/// A name for an interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// Its name.
    pub name: String,
    /// The snapshot at its beginning.
    pub first: SnapshotId,
    /// The snapshot at its end.
    pub last: SnapshotId,
}

/// A gap as an archive takes it: what went wrong must not be lost for the words it was said in.
pub(crate) fn fitting(mut gap: Gap) -> Gap {
    for text in [&mut gap.source, &mut gap.reason] {
        *text = text.replace('\0', "\u{fffd}");
        let end = (0..=LONGEST_NAME.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
    gap
}

/// A snapshot on its way into an archive.
struct New<'a> {
    /// Tells it from every other, and a second try to keep it from the first.
    key: &'a str,
    taken_unix_ns: u64,
    source: &'a str,
    database: &'a str,
    instance: &'a str,
    body: Vec<u8>,
    brief: Vec<u8>,
}

/// A gap on its way into an archive together with the snapshot that it lies behind.
pub(crate) struct Behind {
    pub(crate) gap: Gap,
    /// Which of those snapshots.
    pub(crate) behind: usize,
}

/// Whether the holder of a lease may be alive.
type Verdict<'a> = dyn Fn(&Holder) -> bool + 'a;

/// What keeps an archive. Every call is whole or not at all, and durable when it returns.
trait Keeper: Send {
    /// Keeps snapshots with gaps that lie behind some of them: `all[behind]`.
    fn take(&mut self, all: &[New<'_>], gaps: &[Behind]) -> Result<Vec<SnapshotId>>;
    fn entries(&mut self) -> Result<Vec<Entry>>;
    fn body(&mut self, id: SnapshotId) -> Result<Option<Vec<u8>>>;
    /// The brief bodies from `first` to `last` of the source of `first`, in order.
    fn briefs(
        &mut self,
        first: SnapshotId,
        last: SnapshotId,
        each: &mut dyn FnMut(SnapshotId, &[u8]),
    ) -> Result<()>;
    fn between(&mut self, first: SnapshotId, last: SnapshotId) -> Result<Vec<SnapshotId>>;
    /// False if the name is given; an error if a snapshot is not there any more.
    fn add_baseline(&mut self, baseline: &Baseline) -> Result<bool>;
    fn drop_baseline(&mut self, name: &str) -> Result<bool>;
    fn baselines(&mut self) -> Result<Vec<Baseline>>;
    fn remove_before(&mut self, source: Option<&str>, unix_ns: u64) -> Result<usize>;
    fn note_gap(&mut self, gap: &Gap) -> Result<()>;
    fn gaps(&mut self, source: Option<&str>) -> Result<Vec<Gap>>;
    /// Takes the lease of a source; who has it if `verdict` says of the holder that it may be
    /// alive.
    fn lease(
        &mut self,
        source: &str,
        token: &str,
        me: &Who,
        verdict: &Verdict<'_>,
    ) -> Result<Option<Holder>>;
    /// False if the lease is somebody else's now.
    fn beat(&mut self, source: &str, token: &str) -> Result<bool>;
    fn release(&mut self, source: &str, token: &str) -> Result<()>;
    /// Whether the last error was of a kind that passes by itself or by somebody's help: trying
    /// again later makes sense.
    fn may_pass(&self) -> bool;
}

impl std::fmt::Debug for Archive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Archive").field(&self.place).finish()
    }
}

impl Archive {
    /// The repository at `path`, a file or `postgresql://USER@HOST/DB`, made if it is not there.
    ///
    /// # Errors
    /// If it is something else, of another format, damaged, or cannot be written.
    ///
    /// # Durability
    /// A new file is durable with its first snapshot.
    pub fn open(path: impl Into<PathBuf>) -> Result<Archive> {
        Archive::of(path.into(), true)
    }

    /// The repository at `path`, which must be there. A misspelt name makes no file.
    ///
    /// # Errors
    /// As [`Archive::open`]; and if there is none.
    pub fn existing(path: impl Into<PathBuf>) -> Result<Archive> {
        Archive::of(path.into(), false)
    }

    /// A server's address is given where a path is, so that it may stand wherever a repository is
    /// named.
    fn of(place: PathBuf, make: bool) -> Result<Archive> {
        if let Some(url) = place.to_str().filter(|text| server::is_address(text)) {
            let (server, place) = server::OnServer::open(url, make)?;
            return Ok(Archive { place, keeper: Arc::new(Mutex::new(Box::new(server))) });
        }
        let file = if make {
            file::InFile::open(place.clone())
        } else {
            file::InFile::existing(place.clone())
        };
        Ok(Archive { place, keeper: Arc::new(Mutex::new(Box::new(file?))) })
    }

    /// A call that panicked changed nothing that is not whole.
    fn keeper(&self) -> MutexGuard<'_, Box<dyn Keeper>> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is `path` the address of a repository on a server, and no path of a file or directory?
    pub fn is_address(path: &Path) -> bool {
        path.to_str().is_some_and(server::is_address)
    }

    /// The file; or the address of the server, for messages.
    pub fn path(&self) -> &Path {
        &self.place
    }

    /// Keeps a snapshot and returns its number.
    ///
    /// # Errors
    /// If it cannot be written; nothing of it is there then.
    ///
    /// # Durability
    /// Durable on return. A power cut before that leaves the whole snapshot or none.
    pub fn take(&self, snapshot: &Snapshot) -> Result<SnapshotId> {
        self.take_once(snapshot, &fresh_key())
    }

    /// Keeps a snapshot unless one with this key is there, on a server: so a call that failed may
    /// be made again though it may have been done. A file knows no keys: what failed there is not
    /// there. Returns the number.
    ///
    /// # Errors
    /// If it cannot be written, or nobody can tell whether it was.
    ///
    /// # Durability
    /// Durable on return.
    pub(crate) fn take_once(&self, snapshot: &Snapshot, key: &str) -> Result<SnapshotId> {
        let ids = self.keep_all(std::slice::from_ref(snapshot), &[key.to_owned()], &[])?;
        Ok(*ids.first().expect("BUG: one was kept, so there is one number"))
    }

    /// Keeps snapshots and returns their numbers, all of them or none.
    ///
    /// # Errors
    /// If they cannot be written; nothing of them is there then.
    ///
    /// # Durability
    /// Durable on return. A power cut before that leaves all of them or none.
    pub fn take_all(&self, snapshots: &[Snapshot]) -> Result<Vec<SnapshotId>> {
        self.take_with_gaps(snapshots, &[])
    }

    /// Keeps snapshots and the gaps behind them, all of it or nothing. Returns the numbers.
    ///
    /// # Errors
    /// If they cannot be written; nothing of them is there then.
    ///
    /// # Durability
    /// Durable on return.
    pub(crate) fn take_with_gaps(
        &self,
        snapshots: &[Snapshot],
        gaps: &[Behind],
    ) -> Result<Vec<SnapshotId>> {
        let keys: Vec<String> = snapshots.iter().map(|_| fresh_key()).collect();
        self.keep_all(snapshots, &keys, gaps)
    }

    fn keep_all(
        &self,
        snapshots: &[Snapshot],
        keys: &[String],
        gaps: &[Behind],
    ) -> Result<Vec<SnapshotId>> {
        let mut all = Vec::new();
        for (snapshot, key) in snapshots.iter().zip(keys) {
            let source = &snapshot.source;
            for (what, name) in [
                ("source", &source.path),
                ("database", &source.database),
                ("instance", &source.instance),
            ] {
                self.check_name(what, name)?;
            }
            all.push(New {
                key,
                taken_unix_ns: snapshot.taken_unix_ns,
                source: &source.path,
                database: &source.database,
                instance: &source.instance,
                body: packed::pack(snapshot),
                brief: packed::pack(&snapshot.brief()),
            });
        }
        self.keeper().take(&all, gaps)
    }

    /// What no database takes for a name, or only some do.
    fn check_name(&self, what: &str, name: &str) -> Result<()> {
        let reason = if name.contains('\0') {
            format!("the name of the {what} has a NUL character in it")
        } else if name.len() > LONGEST_NAME {
            format!("the name of the {what} is {} bytes long, more than {LONGEST_NAME}", name.len())
        } else {
            return Ok(());
        };
        Err(Error::Archive {
            action: "write to",
            path: self.place.clone(),
            reason,
            remedy: "Give it another name".to_owned(),
        })
    }

    /// Every snapshot in the order of their numbers. Bodies are read when a snapshot is asked for.
    ///
    /// # Errors
    /// If the repository cannot be read.
    pub fn list(&self) -> Result<Listing> {
        Ok(Listing { entries: self.keeper().entries()?, damaged: Vec::new() })
    }

    /// The snapshot of a number.
    ///
    /// # Errors
    /// If there is none, or it is damaged.
    pub fn find(&self, id: SnapshotId) -> Result<Snapshot> {
        let body = self.keeper().body(id)?;
        let body = body.ok_or_else(|| Error::NoSuchSnapshot { id, path: self.place.clone() })?;
        packed::unpack(&body, &self.place_of(id))
    }

    fn place_of(&self, id: SnapshotId) -> String {
        format!("snapshot {id} in {}", self.place.display())
    }

    /// The numbers from `first` to `last` that are of the same source as `first`, both included.
    ///
    /// # Errors
    /// If the repository cannot be read.
    pub fn between(&self, first: SnapshotId, last: SnapshotId) -> Result<Vec<SnapshotId>> {
        self.keeper().between(first, last)
    }

    /// The snapshots from `first` to `last` that are of the same source as `first`, brief, with the
    /// gaps between them.
    ///
    /// # Errors
    /// If the repository cannot be read, or there is no snapshot `first`. A damaged snapshot is no
    /// error: the series says which.
    pub fn series(&self, first: SnapshotId, last: SnapshotId) -> Result<Series> {
        let mut series = Series::default();
        self.walk(first, last, &mut |id, read| match read {
            Ok(snapshot) => {
                series.snapshots.push(snapshot);
                series.ids.push(id);
            }
            Err(error) => series.damaged.push((id, error)),
        })?;
        if series.ids.is_empty() && series.damaged.is_empty() {
            return Err(Error::NoSuchSnapshot { id: first, path: self.place.clone() });
        }
        if let Some(of) = series.snapshots.first() {
            series.gaps = self.gaps_of(&of.source.path)?;
        }
        series.only_gaps_inside();
        Ok(series)
    }

    /// Hands out the snapshots of [`Archive::series`] one after the other, or why one cannot be
    /// read. None of them is held.
    ///
    /// # Errors
    /// If the repository cannot be read.
    pub(crate) fn walk(
        &self,
        first: SnapshotId,
        last: SnapshotId,
        each: &mut dyn FnMut(SnapshotId, Result<Snapshot>),
    ) -> Result<()> {
        self.keeper().briefs(first, last, &mut |id, bytes| {
            let read = packed::unpack(bytes, &self.place_of(id));
            each(
                id,
                read.map(|snapshot| {
                    // A whole body stands where there is no brief one.
                    let whole =
                        !snapshot.statements.is_empty() || !snapshot.source.settings.is_empty();
                    if whole { snapshot.brief() } else { snapshot }
                }),
            );
        })
    }

    /// The gaps of one source, in the order of time.
    ///
    /// # Errors
    /// If the repository cannot be read.
    pub(crate) fn gaps_of(&self, source: &str) -> Result<Vec<Gap>> {
        self.keeper().gaps(Some(source))
    }

    /// Names the interval from `first` to `last`.
    ///
    /// # Errors
    /// If a snapshot is not there, the two are of two sources or no interval, or the name is none
    /// or given already.
    pub fn add_baseline(&self, name: &str, first: SnapshotId, last: SnapshotId) -> Result<()> {
        self.check_name("baseline", name)?;
        let ends = (self.find(first)?.source.path, self.find(last)?.source.path);
        if let Some(reason) = unfit_baseline(name, (first, &ends.0), (last, &ends.1)) {
            return Err(Error::Archive {
                action: "add a baseline to",
                path: self.place.clone(),
                reason,
                remedy: "Give a name and two snapshots of one source, the earlier one first; \
                         `tiersmith awr list` shows them"
                    .to_owned(),
            });
        }
        match self.keeper().add_baseline(&Baseline { name: name.to_owned(), first, last })? {
            true => Ok(()),
            false => Err(Error::Archive {
                action: "add a baseline to",
                path: self.place.clone(),
                reason: format!("there is a baseline `{}`", crate::figure::visible(name)),
                remedy: "Take another name, or drop that one first".to_owned(),
            }),
        }
    }

    /// Takes a name away; its snapshots stay. False if there is none of this name.
    ///
    /// # Errors
    /// If the repository cannot be written.
    pub fn drop_baseline(&self, name: &str) -> Result<bool> {
        self.check_name("baseline", name)?;
        self.keeper().drop_baseline(name)
    }

    /// Every baseline, by name.
    ///
    /// # Errors
    /// If the repository cannot be read.
    pub fn baselines(&self) -> Result<Vec<Baseline>> {
        self.keeper().baselines()
    }

    /// Removes snapshots and gaps taken before an instant: of one source, its newest excepted, or
    /// of every source. Those of baselines stay. Returns how many snapshots went.
    ///
    /// # Errors
    /// If the repository cannot be written; nothing was removed then.
    pub fn remove_before(&self, source: Option<&str>, unix_ns: u64) -> Result<usize> {
        self.keeper().remove_before(source, unix_ns)
    }

    /// Notes that a source could not be asked.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn note_gap(&self, gap: &Gap) -> Result<()> {
        self.keeper().note_gap(&fitting(gap.clone()))
    }

    /// The gaps, in the order of time.
    ///
    /// # Errors
    /// If the repository cannot be read.
    pub fn gaps(&self) -> Result<Vec<Gap>> {
        self.keeper().gaps(None)
    }

    /// Whether the last call that failed did so for a reason that may pass: a server that is away,
    /// a full disk, another writer.
    pub(crate) fn may_pass(&self) -> bool {
        self.keeper().may_pass()
    }
}

/// Why a baseline cannot be called so, if it cannot.
pub fn unfit_name(name: &str) -> Option<&'static str> {
    if name.trim().is_empty() {
        Some("its name is empty")
    } else if name.len() > LONGEST_NAME || name.contains('\0') {
        Some("its name is too long, or has a NUL character in it")
    } else {
        None
    }
}

/// Why an interval from one snapshot to another, each with its source, cannot be called so, if it
/// cannot.
pub(crate) fn unfit_baseline(
    name: &str,
    (first, of): (SnapshotId, &str),
    (last, also): (SnapshotId, &str),
) -> Option<String> {
    if let Some(reason) = unfit_name(name) {
        Some(reason.to_owned())
    } else if first >= last {
        Some(format!("from snapshot {first} to {last} there is no interval"))
    } else if of != also {
        let [of, also] = [of, also].map(crate::figure::visible);
        Some(format!("snapshots {first} and {last} are of two sources, `{of}` and `{also}`"))
    } else {
        None
    }
}

/// A word that no other snapshot has.
pub(crate) fn fresh_key() -> String {
    let uuid = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    format!("{}-{}-{}", uuid.trim(), std::process::id(), now_unix_ns())
}

fn now_unix_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

//! The files of a home that are held open, fewer than the store knows.
//!
//! A process may have only so many files open (`RLIMIT_NOFILE`), and a home may have many more. So
//! a file is opened when it is needed and stays open until others are needed more: the one that
//! was used longest ago is closed. What is opened again is compared with the file that was meant,
//! by inode number, generation and birth time (decision 0003).
//!
//! Invariants:
//! - A file with changes that were not synced stays open. The kernel tells of a failed write-back
//!   those who had the file open then, and perhaps nobody who opens it later.
//! - A file without a name stays open, because nothing leads back to it; so does every file where
//!   the file system has no birth times, because another file could have its inode number.
//! - While a rename is under way nothing is opened by its path.
//!
//! Deliberately not here: when a file is needed, and whether a program has it open.

use super::{FileTime, Home, HomeFile, HomeStat, OpenMode};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, RwLock, RwLockWriteGuard};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use super::Clear;

/// How many open files one opening looks at to find one to close.
const LOOKS: usize = 128;
/// How many files are synced at a time, so that they can be closed, when nothing else is left.
const SYNCS: usize = 32;

/// The files of one home, of which so many are open.
#[derive(Debug)]
pub(crate) struct HomeFiles {
    home: Arc<dyn Home>,
    /// Files that may be open before others are closed.
    most: usize,
    /// Those that may be closed, in the order in which they were opened or last passed over.
    open: Mutex<VecDeque<Weak<Held>>>,
    /// Files that went away since those were last left out of `open`, or more.
    gone: AtomicUsize,
    /// Held for writing from a rename at home until the paths here are the new ones.
    renames: RwLock<()>,
}

/// A home file as it was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) file: Arc<dyn HomeFile>,
    pub(crate) read_only: bool,
    pub(crate) stat: HomeStat,
}

/// One file of the home, open or not. Its methods are those of [`HomeFile`].
#[derive(Debug)]
pub(crate) struct HomeHandle {
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    files: Arc<HomeFiles>,
    path: Arc<Mutex<PathBuf>>,
    identity: HomeStat,
    /// Used since the hand last passed.
    touched: AtomicBool,
    /// It was looked for under every name of the home, in vain.
    lost: AtomicBool,
    open: Mutex<Open>,
}

/// What is known of the open file.
#[derive(Debug, Default)]
struct Open {
    file: Option<Arc<dyn HomeFile>>,
    /// Opened for reading only, because more was refused.
    read_only: bool,
    /// It must not be closed.
    keep: bool,
    /// Changes that are under way.
    changing: usize,
    /// Changes that are done, and how many of them a sync has seen.
    changes: u64,
    synced: u64,
    /// What a sync said that nobody had asked for: the next one who asks must hear it.
    failed: Option<Errno>,
}

/// What came of asking a file to close.
enum Asked {
    Closed(Arc<dyn HomeFile>),
    Stays,
    /// It is not open, or must never be closed: no use to ask again.
    Leaves,
}

impl HomeFiles {
    /// `most`: how many may be open; `None`: half of what the process may open, which leaves the
    /// other half to everything else.
    pub(crate) fn new(home: Arc<dyn Home>, most: Option<usize>) -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let half = limit.map_or(usize::MAX, |n| usize::try_from(n / 2).unwrap_or(usize::MAX));
        let most = most.unwrap_or(half).max(1);
        Self {
            home,
            most,
            open: Mutex::default(),
            gone: AtomicUsize::new(0),
            renames: RwLock::default(),
        }
    }

    /// How many files may be open.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Opens a file of the home. When the process has as many open as it may, others are closed.
    pub(crate) fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn HomeFile>> {
        match self.home.open(path, mode) {
            Err(e) if is_too_many(&e) && self.spare() => self.home.open(path, mode),
            other => other,
        }
    }

    /// The file at `path`, for writing if it can be, when it is the one meant. `None`: it is
    /// another one, or there is none.
    pub(crate) fn find(
        &self,
        path: &Path,
        is_it: impl Fn(&HomeStat) -> bool,
    ) -> io::Result<Option<Found>> {
        let wide = self.open(path, OpenMode::WRITE);
        let read_only = wide.is_err();
        let file = match wide.or_else(|_| self.open(path, OpenMode::READ)) {
            Err(e) if is_elsewhere(&e) => return Ok(None),
            other => other?,
        };
        let stat = file.stat()?;
        Ok(is_it(&stat).then_some(Found { file, read_only, stat }))
    }

    /// Closes half of the files that may be closed; when there is none, some of those that were
    /// not synced, after a sync. `false`: it closed none.
    pub(crate) fn spare(&self) -> bool {
        let open: Vec<_> = self.open.lock().iter().cloned().collect();
        if self.shrink(open.len() / 2, open.len() * 2) > 0 {
            return true;
        }
        let changed = open.iter().filter_map(Weak::upgrade).filter(|held| held.is_changed());
        changed.take(SYNCS).for_each(|held| held.sync_unasked());
        self.shrink(open.len() / 2, open.len() * 2) > 0
    }

    /// Nothing is opened by its path until the guard goes.
    pub(crate) fn renaming(&self) -> RwLockWriteGuard<'_, ()> {
        self.renames.write()
    }

    /// Notes that a file was opened, and closes another one if there are too many.
    fn opened(&self, held: &Arc<Held>) {
        {
            let mut open = self.open.lock();
            open.push_back(Arc::downgrade(held));
            if self.gone.load(Ordering::Relaxed) > LOOKS.max(open.len() / 2) {
                open.retain(|held| held.strong_count() > 0);
                self.gone.store(0, Ordering::Relaxed);
            }
        }
        self.shrink(self.most, LOOKS);
    }

    /// Closes files until `most` are open, looking at `looks` of them. Returns how many it closed.
    fn shrink(&self, most: usize, mut looks: usize) -> usize {
        let mut closed = Vec::new();
        let mut open = self.open.lock();
        while open.len() > most && looks > 0 {
            looks -= 1;
            let Some(first) = open.pop_front() else { break };
            match first.upgrade().map_or(Asked::Leaves, |held| held.close()) {
                Asked::Closed(file) => closed.push(file),
                Asked::Stays => open.push_back(first),
                Asked::Leaves => {}
            }
        }
        drop(open);
        closed.len()
    }

    /// Opens again what was closed.
    fn again(&self, held: &Held) -> io::Result<Found> {
        let is_it = |stat: &HomeStat| held.is(stat);
        // To the end: a name that the walk has found, or passed by, must stay what it is.
        let _no_rename = self.renames.read();
        let path = held.path.lock().clone();
        match self.find(&path, is_it) {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            // Its mode may forbid its owner, who we are, everything by now.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                let file = self.home.open_own(&path, &held.identity).map_err(|_| e)?;
                let stat = file.stat()?;
                return Ok(Found { file, read_only: false, stat });
            }
            Err(e) => return Err(e),
        }
        // The name it was last seen by is gone: it may have another one.
        if !held.lost.load(Ordering::Acquire) {
            let mut names = Vec::new();
            self.home.walk(&mut |path, stat| {
                if held.is(stat) {
                    names.push(path.to_path_buf());
                }
                Ok(())
            })?;
            for name in names {
                if let Some(found) = self.find(&name, is_it)? {
                    *held.path.lock() = name;
                    return Ok(found);
                }
            }
            held.lost.store(true, Ordering::Release);
        }
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            "the file was removed or replaced at home, past Tiersmith, while it was attached; put \
             the \
             same file back (not a copy)",
        ))
    }
}

impl Held {
    /// Whether home speaks of this file.
    fn is(&self, stat: &HomeStat) -> bool {
        let id = &self.identity;
        stat.dev == id.dev && stat.same_file(id.ino, id.generation, id.btime_ns)
    }

    /// The open file, opened if it is not.
    fn file(self: &Arc<Self>, open: &mut Open) -> io::Result<Arc<dyn HomeFile>> {
        // Read first: what is used all the time costs no shared store.
        if !self.touched.load(Ordering::Relaxed) {
            self.touched.store(true, Ordering::Relaxed);
        }
        if let Some(file) = &open.file {
            return Ok(file.clone());
        }
        let Found { file, read_only, .. } = self.files.again(self)?;
        self.lost.store(false, Ordering::Release);
        (open.file, open.read_only) = (Some(file.clone()), read_only);
        self.files.opened(self);
        Ok(file)
    }

    fn widen_own(open: &mut Open) {
        if open.read_only
            && let Some(Ok(own)) = open.file.as_ref().map(|file| file.open_own())
        {
            (open.file, open.read_only) = (Some(own), false);
        }
    }

    /// Whether it has changes that were not synced, and none is under way.
    fn is_changed(&self) -> bool {
        self.open.try_lock().is_some_and(|open| open.changing == 0 && open.changes != open.synced)
    }

    /// Syncs the file so that it can be closed. What goes wrong is told the next one who syncs it.
    fn sync_unasked(&self) {
        let (file, changes) = {
            let Some(open) = self.open.try_lock() else { return };
            let Some(file) = &open.file else { return };
            (file.clone(), open.changes)
        };
        let synced = file.sync();
        // `file` is kept until here, so it is not closed meanwhile. Who has a closed one locked, to
        // open it again, may wait for a rename, and that may wait for our caller.
        let mut open = self.open.lock();
        match synced {
            Ok(()) if open.failed.is_none() => open.synced = open.synced.max(changes),
            Ok(()) => {}
            Err(e) => open.failed = Some(Errno::from_io_error(&e).unwrap_or(Errno::IO)),
        }
    }

    fn close(&self) -> Asked {
        // Who has it locked is using it.
        let Some(mut open) = self.open.try_lock() else { return Asked::Stays };
        let Some(file) = &open.file else { return Asked::Leaves };
        if open.keep {
            return Asked::Leaves;
        }
        let changed = open.changing > 0 || open.changes != open.synced;
        if changed || self.touched.swap(false, Ordering::Relaxed) || Arc::strong_count(file) > 1 {
            return Asked::Stays;
        }
        // It may have lost its last name past Tiersmith: then this is all that is left of it.
        if !file.stat().is_ok_and(|stat| stat.nlink > 0) {
            return Asked::Stays;
        }
        open.file.take().map_or(Asked::Leaves, Asked::Closed)
    }
}

impl Drop for HomeHandle {
    fn drop(&mut self) {
        self.held.files.gone.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ends a change, however it went.
struct Changing<'a>(&'a Held);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut open = self.0.open.lock();
        open.changing -= 1;
        open.changes += 1;
    }
}

impl HomeHandle {
    /// A file that was just opened. `path` is where it is found again, as it is then.
    pub(crate) fn new(files: &Arc<HomeFiles>, path: &Path, found: Found) -> Self {
        let Found { file, read_only, stat } = found;
        let keep = stat.btime_ns == 0;
        let held = Arc::new(Held {
            files: files.clone(),
            path: Arc::new(Mutex::new(path.to_path_buf())),
            identity: stat,
            touched: AtomicBool::new(true),
            lost: AtomicBool::new(false),
            open: Mutex::new(Open { file: Some(file), read_only, keep, ..Open::default() }),
        });
        files.opened(&held);
        Self { held }
    }

    /// The path that the file is opened by, shared with whoever changes it.
    pub(crate) fn path(&self) -> Arc<Mutex<PathBuf>> {
        self.held.path.clone()
    }

    /// The file, open for as long as the answer lives.
    pub(crate) fn file(&self) -> io::Result<Arc<dyn HomeFile>> {
        self.held.file(&mut self.held.open.lock())
    }

    /// Uses `file`, which may be written, from now on, if what there was may not, or is closed.
    pub(crate) fn widen(&self, file: Arc<dyn HomeFile>) {
        let mut open = self.held.open.lock();
        if !open.read_only && open.file.is_some() {
            return;
        }
        let was_open = open.file.replace(file).is_some();
        open.read_only = false;
        drop(open);
        if !was_open {
            self.held.files.opened(&self.held);
        }
    }

    /// Whether it could be opened for reading only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.held.open.lock().read_only
    }

    /// Keeps the file open, because its last name is about to go; or lets it be closed again.
    pub(crate) fn keep(&self, on: bool) -> io::Result<()> {
        let mut open = self.held.open.lock();
        if on {
            self.held.file(&mut open)?;
        }
        let forever = self.held.identity.btime_ns == 0;
        if std::mem::replace(&mut open.keep, on || forever) && !open.keep {
            drop(open);
            self.held.files.opened(&self.held);
        }
        Ok(())
    }

    /// Whether every change of what it holds, by this process, was synced.
    pub(crate) fn is_synced(&self) -> bool {
        let open = self.held.open.lock();
        open.changing == 0 && open.changes == open.synced && open.failed.is_none()
    }

    fn using<T>(&self, call: impl FnOnce(&dyn HomeFile) -> io::Result<T>) -> io::Result<T> {
        call(&*self.file()?)
    }

    /// Before home is changed: what may only be read becomes writable, if the file is ours. If it
    /// does not, the change says why.
    pub(crate) fn widen_own(&self) {
        let mut open = self.held.open.lock();
        if open.read_only && self.held.file(&mut open).is_ok() {
            Held::widen_own(&mut open);
        }
    }

    /// A change of what the file holds: it stays open from here to the next sync.
    fn changing<T>(&self, call: impl FnOnce(&dyn HomeFile) -> io::Result<T>) -> io::Result<T> {
        let (file, _changing) = {
            let mut open = self.held.open.lock();
            self.held.file(&mut open)?;
            Held::widen_own(&mut open);
            let file = self.held.file(&mut open)?;
            open.changing += 1;
            (file, Changing(&self.held))
        };
        call(&*file)
    }

    /// As [`HomeFile::stat`]. A file that is closed is not opened for it.
    pub(crate) fn stat(&self) -> io::Result<HomeStat> {
        let open = self.held.open.lock().file.clone();
        if let Some(file) = open {
            return file.stat();
        }
        let path = self.held.path.lock().clone();
        match self.held.files.home.stat(&path) {
            Ok(stat) if self.held.is(&stat) => Ok(stat),
            _ => self.using(|file| file.stat()),
        }
    }

    pub(crate) fn read_at(&self, off: u64, into: &mut [u8]) -> io::Result<usize> {
        self.using(|file| file.read_at(off, into))
    }

    /// As [`HomeFile::read_ahead`], of a file that is open.
    pub(crate) fn read_ahead(&self, off: u64, len: u64) {
        let open = self.held.open.lock().file.clone();
        if let Some(file) = open {
            file.read_ahead(off, len);
        }
    }

    pub(crate) fn write_at(&self, off: u64, data: &[u8]) -> io::Result<()> {
        self.changing(|file| file.write_at(off, data))
    }

    pub(crate) fn set_len(&self, len: u64) -> io::Result<()> {
        self.changing(|file| file.set_len(len))
    }

    pub(crate) fn clear(&self, off: u64, len: u64, how: Clear) -> io::Result<()> {
        self.changing(|file| file.clear(off, len, how))
    }

    pub(crate) fn allocate(&self, off: u64, len: u64) -> io::Result<()> {
        self.changing(|file| file.allocate(off, len))
    }

    /// As [`HomeFile::set_times`]. No contents are written, so there is none whose loss could be
    /// told of.
    pub(crate) fn set_times(
        &self,
        atime: Option<FileTime>,
        mtime: Option<FileTime>,
    ) -> io::Result<()> {
        self.using(|file| file.set_times(atime, mtime))
    }

    /// As [`HomeFile::sync`].
    pub(crate) fn sync(&self) -> io::Result<()> {
        let (file, changes) = {
            let mut open = self.held.open.lock();
            if let Some(failed) = open.failed.take() {
                return Err(failed.into());
            }
            (self.held.file(&mut open)?, open.changes)
        };
        file.sync()?;
        let mut open = self.held.open.lock();
        // One that nobody asked for may have been told meanwhile what this one was for.
        if let Some(failed) = open.failed.take() {
            return Err(failed.into());
        }
        open.synced = open.synced.max(changes);
        Ok(())
    }

    /// [`HomeHandle::sync`] that no program has asked for. What goes wrong is told also to the next
    /// one who does.
    pub(crate) fn sync_unasked(&self) -> io::Result<()> {
        let (file, changes) = {
            let mut open = self.held.open.lock();
            if let Some(failed) = open.failed {
                return Err(failed.into());
            }
            (self.held.file(&mut open)?, open.changes)
        };
        let synced = file.sync();
        let mut open = self.held.open.lock();
        if let Err(e) = &synced {
            open.failed = Some(Errno::from_io_error(e).unwrap_or(Errno::IO));
        }
        if let Some(failed) = open.failed {
            return Err(failed.into());
        }
        open.synced = open.synced.max(changes);
        Ok(())
    }

    pub(crate) fn next_data(&self, off: u64) -> io::Result<Option<u64>> {
        self.using(|file| file.next_data(off))
    }

    pub(crate) fn next_hole(&self, off: u64) -> io::Result<Option<u64>> {
        self.using(|file| file.next_hole(off))
    }
}

/// Whether the process, or the system, has as many files open as it may.
fn is_too_many(e: &io::Error) -> bool {
    matches!(Errno::from_io_error(e), Some(Errno::MFILE | Errno::NFILE))
}

/// Whether the error says that no ordinary file has that path. Any other (too many open files, no
/// permission, a failing disk) must not make a file look removed.
pub(crate) fn is_elsewhere(e: &io::Error) -> bool {
    let no_such_file =
        [Errno::NOENT, Errno::NOTDIR, Errno::ISDIR, Errno::LOOP, Errno::NXIO, Errno::NAMETOOLONG];
    e.kind() == io::ErrorKind::InvalidInput
        || Errno::from_io_error(e).is_some_and(|e| no_such_file.contains(&e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::SimHome;

    fn files_of(home: &Arc<SimHome>, most: usize) -> Arc<HomeFiles> {
        Arc::new(HomeFiles::new(home.clone(), Some(most)))
    }

    fn handle(files: &Arc<HomeFiles>, name: &str) -> HomeHandle {
        let path = Path::new(name);
        let file = files.open(path, OpenMode::CREATE).unwrap();
        let stat = file.stat().unwrap();
        HomeHandle::new(files, path, Found { file, read_only: false, stat })
    }

    fn is_open(handle: &HomeHandle) -> bool {
        handle.held.open.lock().file.is_some()
    }

    /// Opens so many other files that every file is closed that may be.
    fn open_others(files: &Arc<HomeFiles>) -> Vec<HomeHandle> {
        (0..8).map(|n| handle(files, &format!("other{n}"))).collect()
    }

    fn bytes(handle: &HomeHandle) -> Vec<u8> {
        let mut into = [0; 16];
        let got = handle.read_at(0, &mut into).unwrap();
        into[..got].to_vec()
    }

    #[test]
    fn what_was_used_longest_ago_is_closed_and_opened_again() {
        let files = files_of(&Arc::new(SimHome::new(None)), 2);
        let first = handle(&files, "a");
        first.write_at(0, b"one").unwrap();
        first.sync().unwrap();
        let others = open_others(&files);
        assert!(!is_open(&first));
        assert!(others.iter().filter(|other| is_open(other)).count() <= 2);
        assert_eq!(first.stat().unwrap().size, 3);
        assert!(!is_open(&first), "it was opened to be looked at");
        assert_eq!(bytes(&first), b"one");
        assert!(is_open(&first));
    }

    #[test]
    fn files_that_went_away_are_forgotten() {
        let files = files_of(&Arc::new(SimHome::new(None)), 1_000_000);
        let stays = handle(&files, "a");
        for _ in 0..10_000 {
            drop(handle(&files, "b"));
        }
        assert!(files.open.lock().len() < 4 * LOOKS);
        assert!(is_open(&stays));
    }

    #[test]
    fn a_file_with_changes_that_were_not_synced_stays_open() {
        let home = Arc::new(SimHome::new(None));
        let files = files_of(&home, 1);
        let first = handle(&files, "a");
        first.write_at(0, b"one").unwrap();
        drop(open_others(&files));
        assert!(is_open(&first), "the error of its write-back would be told nobody");
        // One that failed has told of the loss, and nothing is durable yet.
        home.fail_nth_sync(1);
        assert!(first.sync().is_err());
        drop(open_others(&files));
        assert!(is_open(&first));
        first.sync().unwrap();
        drop(open_others(&files));
        assert!(!is_open(&first));
    }

    #[test]
    fn without_descriptors_files_are_synced_and_a_failure_is_told_the_next_who_syncs() {
        let home = Arc::new(SimHome::new(None));
        let files = files_of(&home, 100);
        let (first, second) = (handle(&files, "a"), handle(&files, "b"));
        for file in [&first, &second] {
            file.write_at(0, b"one").unwrap();
        }
        home.fail_nth_sync(1);
        assert!(files.spare());
        assert!(is_open(&first) && !is_open(&second));
        assert!(!files.spare(), "what was not made durable was closed");
        assert!(first.sync().is_err(), "nobody was told");
        first.sync().unwrap();
        assert!(files.spare() && !is_open(&first));
    }

    #[test]
    fn a_file_whose_name_went_is_found_by_another_name() {
        let home = Arc::new(SimHome::new(None));
        let files = files_of(&home, 1);
        let first = handle(&files, "a");
        first.write_at(0, b"one").unwrap();
        first.sync().unwrap();
        home.link(Path::new("a"), Path::new("b")).unwrap();
        home.unlink(Path::new("a")).unwrap();
        home.put(Path::new("a"), b"another").unwrap();
        drop(open_others(&files));
        assert!(!is_open(&first));
        assert_eq!(first.stat().unwrap().size, 3);
        assert_eq!(bytes(&first), b"one");
        assert_eq!(*first.path().lock(), Path::new("b"));
    }

    #[test]
    fn a_file_that_is_renamed_while_it_is_looked_for_is_found() {
        let home = Arc::new(SimHome::new(None));
        let files = files_of(&home, 1);
        let first = handle(&files, "a");
        first.write_at(0, b"one").unwrap();
        first.sync().unwrap();
        home.rename(Path::new("a"), Path::new("b")).unwrap();
        let path = first.path();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (from, to) in [("b", "c"), ("c", "b")].into_iter().cycle() {
                    if stop.load(Ordering::Acquire) {
                        break;
                    }
                    {
                        let _renaming = files.renaming();
                        home.rename(Path::new(from), Path::new(to)).unwrap();
                        *path.lock() = to.into();
                    }
                    std::thread::sleep(std::time::Duration::from_micros(20));
                }
            });
            let lost = (0..5000).filter(|_| {
                drop(open_others(&files));
                // As when it was last seen by a name that is gone.
                *path.lock() = "a".into();
                let mut into = [0; 16];
                first.read_at(0, &mut into).is_err()
            });
            let lost = lost.count();
            stop.store(true, Ordering::Release);
            assert_eq!(lost, 0);
        });
    }

    #[test]
    fn another_file_under_its_name_is_not_taken_for_it() {
        let home = Arc::new(SimHome::new(None));
        let files = files_of(&home, 1);
        let first = handle(&files, "a");
        first.write_at(0, b"one").unwrap();
        first.sync().unwrap();
        drop(open_others(&files));
        assert!(!is_open(&first));
        home.unlink(Path::new("a")).unwrap();
        home.put(Path::new("a"), b"another").unwrap();
        let refused = first.write_at(0, b"two").unwrap_err();
        assert!(refused.to_string().contains("removed or replaced at home"), "{refused}");
        assert_eq!(**home.contents(Path::new("a")).unwrap(), *b"another");
    }

    #[test]
    fn a_file_without_a_name_stays_open() {
        let home = Arc::new(SimHome::new(None));
        let files = files_of(&home, 1);
        let first = handle(&files, "a");
        first.write_at(0, b"one").unwrap();
        first.sync().unwrap();
        drop(open_others(&files));
        first.keep(true).unwrap();
        home.unlink(Path::new("a")).unwrap();
        drop(open_others(&files));
        assert_eq!(bytes(&first), b"one");
    }
}

//! The simulated home: a directory in memory that can lose power.
//!
//! Every change goes through one list of events ([`HomeEvent`]); `state.rs` says what each does to
//! the home and to its medium, `player.rs` replays them and makes every home a power cut may leave.
//! A killed process loses nothing: [`SimHome::snapshot`].
//!
//! Deliberately not here: symbolic links and permissions, other devices, reads that fail.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;

use super::{
    ATTACHMENT, ATTACHMENT_NEW, Clear, FileKind, FileTime, Home, HomeError, HomeFile, HomeStat,
    OpenMode, RenameFlags, inside,
};

mod player;
mod state;
#[cfg(test)]
mod tests;

pub use player::{HomeChoice, HomeImage, HomePlayer, HomeTrace};
pub use state::{Bytes, Door, FileId, HomeEvent, PendingSector, SECTOR};

use state::{Entry, State};

/// Called with the number of each event before it happens.
pub type Hook = Arc<dyn Fn(u64) + Send + Sync>;

/// Called in the middle of a read, once.
type ReadHook = Box<dyn FnOnce() + Send>;

/// How the simulated file system behaves.
#[derive(Debug, Clone, Copy)]
pub struct SimOptions {
    /// What the clock advances by with each change; 0: all changes carry one time stamp.
    pub clock_step_ns: u64,
    /// What the clock advances by with each sync of a file or directory, whether it works or fails.
    pub sync_takes_ns: u64,
    /// Give a new file the lowest inode number that a removed one had.
    pub reuse_inos: bool,
    /// Report generations of inode numbers (a real home reports 0).
    pub generations: bool,
    /// Bytes of space for files, given out in units of 4 KiB; `None`: no limit.
    pub capacity: Option<u64>,
    /// The inode number of the directory itself: what tells one home from another.
    pub directory_ino: u64,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            clock_step_ns: 1_000_000,
            sync_takes_ns: 0,
            reuse_inos: false,
            generations: false,
            capacity: None,
            directory_ino: 2,
        }
    }
}

/// A simulated home.
///
/// # Durability
/// As [`Home`] says, against [`HomeTrace`]'s power cuts.
pub struct SimHome {
    disk: Arc<Disk>,
    /// Which of the objects on this disk this is, for the lock.
    object: u64,
}

struct Disk {
    inner: Mutex<Inner>,
    objects: AtomicU64,
}

struct Inner {
    state: State,
    options: SimOptions,
    owner: Option<u64>,
    /// What the trace begins with.
    base: State,
    trace: Vec<HomeEvent>,
    hook: Option<Hook>,
    in_next_read: Option<ReadHook>,
    /// Calls until one fails; 0: none does.
    fail_write_in: u64,
    fail_sync_in: u64,
}

/// A read or write of a file is not one step to others.
fn between_halves() {
    #[cfg(feature = "interleavings")]
    crate::sync::turn();
}

impl fmt::Debug for SimHome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimHome({} files, {} events)", self.paths().len(), self.event_count())
    }
}

impl Drop for SimHome {
    fn drop(&mut self) {
        let mut inner = self.disk.inner.lock();
        if inner.owner == Some(self.object) {
            inner.owner = None;
        }
    }
}

impl SimHome {
    /// An empty home. `hook` is called with the number of each event (from 0) just before it
    /// happens, so that the order with other traces is known; it must not call the home.
    #[must_use]
    pub fn new(hook: Option<Hook>) -> Self {
        Self::with(State::new(), SimOptions::default(), hook)
    }

    /// The home of `image`, with an empty trace.
    #[must_use]
    pub fn from_image(image: &HomeImage, hook: Option<Hook>) -> Self {
        Self::with(image.state.clone(), image.options, hook)
    }

    fn with(state: State, options: SimOptions, hook: Option<Hook>) -> Self {
        let base = state.clone();
        let (trace, fail_write_in, fail_sync_in) = (Vec::new(), 0, 0);
        let in_next_read = None;
        let inner = Inner {
            state,
            options,
            owner: None,
            base,
            trace,
            hook,
            in_next_read,
            fail_write_in,
            fail_sync_in,
        };
        Self {
            disk: Arc::new(Disk { inner: Mutex::new(inner), objects: AtomicU64::new(1) }),
            object: 0,
        }
    }

    /// Another object on the same home, as another process would have.
    #[must_use]
    pub fn another(&self) -> Self {
        Self { disk: self.disk.clone(), object: self.disk.objects.fetch_add(1, Ordering::Relaxed) }
    }

    /// Everything as it is, synced or not: what a killed process leaves.
    #[must_use]
    pub fn snapshot(&self) -> HomeImage {
        let inner = self.disk.inner.lock();
        HomeImage { state: inner.state.clone(), options: inner.options }
    }

    /// Makes the home what `image` is; forgets the trace and the lock.
    pub fn restore(&self, image: &HomeImage) {
        let mut inner = self.disk.inner.lock();
        inner.state = image.state.clone();
        inner.options = image.options;
        inner.base = image.state.clone();
        inner.trace.clear();
        inner.owner = None;
    }

    /// Makes everything so far durable and forgets the trace; the next event has number 0.
    pub fn rebase(&self) {
        let mut inner = self.disk.inner.lock();
        inner.state.make_durable();
        inner.base = inner.state.clone();
        inner.trace.clear();
    }

    /// The events since the home was made, restored or rebased.
    #[must_use]
    pub fn trace(&self) -> HomeTrace {
        let inner = self.disk.inner.lock();
        let base = HomeImage { state: inner.base.clone(), options: inner.options };
        HomeTrace { base, events: inner.trace.as_slice().into() }
    }

    /// The number of events in the trace.
    #[must_use]
    pub fn event_count(&self) -> usize {
        self.disk.inner.lock().trace.len()
    }

    /// Calls `hook` from now on.
    pub fn set_hook(&self, hook: Option<Hook>) {
        self.disk.inner.lock().hook = hook;
    }

    /// Does `what` once, when the next read that is longer than a sector has half of its bytes; it
    /// may call the home.
    pub fn in_next_read(&self, what: impl FnOnce() + Send + 'static) {
        self.disk.inner.lock().in_next_read = Some(Box::new(what));
    }

    /// Sets the clock back, as an administrator does or a time server: later changes get earlier
    /// stamps.
    pub fn set_clock_back(&self, by_ns: u64) {
        self.disk.inner.lock().state.clock_ns -= by_ns;
    }

    /// Lets time pass in which nothing happens.
    pub fn pass_time(&self, by_ns: u64) {
        self.disk.inner.lock().state.clock_ns += by_ns;
    }

    /// Changes how the file system behaves.
    pub fn set_options(&self, options: SimOptions) {
        self.disk.inner.lock().options = options;
    }

    /// Makes the `n`-th write or change of length from now on fail with EIO, once; nothing is
    /// written by it. 0: none.
    pub fn fail_nth_write(&self, n: u64) {
        self.disk.inner.lock().fail_write_in = n;
    }

    /// Makes the `n`-th sync from now on fail with EIO, once; what it should have made durable
    /// stays in doubt. 0: none.
    pub fn fail_nth_sync(&self, n: u64) {
        self.disk.inner.lock().fail_sync_in = n;
    }

    /// Bytes of space in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.disk.inner.lock().state.used()
    }

    /// Where the guard has put the directory.
    #[must_use]
    pub fn door(&self) -> Door {
        self.disk.inner.lock().state.now.door
    }

    /// The text of the note, while there is one.
    #[must_use]
    pub fn note(&self) -> Option<Arc<str>> {
        self.disk.inner.lock().state.now.note.clone()
    }

    /// The paths of all files, Tiersmith's own too.
    #[must_use]
    pub fn paths(&self) -> Vec<Arc<Path>> {
        let inner = self.disk.inner.lock();
        let files = inner.state.now.entries.iter().filter(|(_, e)| matches!(e, Entry::File(_)));
        files.map(|(p, _)| p.clone()).collect()
    }

    /// The contents of the file at `path`.
    #[must_use]
    pub fn contents(&self, path: &Path) -> Option<Arc<Vec<u8>>> {
        let inner = self.disk.inner.lock();
        inner.state.now.file_at(path).map(|id| inner.state.node(id).current.clone())
    }

    /// Makes a file with these contents as someone else would: not an event of the trace when
    /// followed by [`SimHome::rebase`].
    ///
    /// # Errors
    /// As [`Home::open`] and [`HomeFile::write_at`].
    ///
    /// # Durability
    /// After [`SimHome::rebase`], or the file's sync.
    pub fn put(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let file = self.open(path, OpenMode::CREATE)?;
        file.set_len(0)?;
        file.write_at(0, bytes)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.disk.inner.lock()
    }

    fn set_door(&self, door: Door, note: Option<&str>) -> io::Result<()> {
        let mut inner = self.inner();
        inner.happen(HomeEvent::MoveDoor { door, note: note.map(Arc::from) });
        inner.sync_dir(Path::new(".."))
    }
}

impl Inner {
    fn happen(&mut self, event: HomeEvent) {
        if let Some(hook) = &self.hook {
            hook(self.trace.len() as u64);
        }
        self.state.apply(&event);
        self.trace.push(event);
    }

    fn tick(&mut self) -> u64 {
        self.state.clock_ns += self.options.clock_step_ns;
        self.state.clock_ns
    }

    fn entry(&self, path: &Path) -> io::Result<Entry> {
        self.check_holder(path)?;
        Ok(*self.state.now.entries.get(path).ok_or(Errno::NOENT)?)
    }

    fn file(&self, path: &Path) -> io::Result<FileId> {
        match self.entry(path)? {
            Entry::File(id) => Ok(id),
            Entry::Directory { .. } => Err(Errno::ISDIR.into()),
        }
    }

    /// The directory that is to hold `path` must be there.
    fn check_holder(&self, path: &Path) -> io::Result<()> {
        match inside(path)?.parent() {
            Some(p) if !p.as_os_str().is_empty() => match self.entry(p)? {
                Entry::Directory { .. } => Ok(()),
                Entry::File(_) => Err(Errno::NOTDIR.into()),
            },
            _ => Ok(()),
        }
    }

    fn create(&mut self, path: &Path) -> io::Result<FileId> {
        if self.options.capacity.is_some_and(|c| self.state.used() >= c) {
            return Err(Errno::NOSPC.into());
        }
        let free = if self.options.reuse_inos { self.state.free_inos() } else { BTreeSet::new() };
        let ino = free.first().copied().unwrap_or(self.state.next_ino);
        if ino == self.state.next_ino {
            self.state.next_ino += 1;
        }
        let id = self.state.next_id;
        self.state.next_id += 1;
        let time_ns = self.tick();
        self.happen(HomeEvent::Create {
            path: path.into(),
            id,
            ino,
            generation: id as u32,
            time_ns,
        });
        Ok(id)
    }

    fn stat_file(&self, id: FileId) -> HomeStat {
        let a = self
            .state
            .now
            .files
            .get(&id)
            .expect("BUG: a file keeps its attributes while it is open");
        HomeStat {
            ino: a.ino,
            generation: if self.options.generations { a.generation } else { 0 },
            btime_ns: a.btime_ns,
            size: a.size,
            mtime_ns: a.mtime_ns,
            ctime_ns: a.ctime_ns,
            nlink: a.nlink,
            kind: FileKind::Regular,
            dev: 1,
            uid: 0,
        }
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let source = self.entry(from)?;
        self.check_holder(to)?;
        match (source, self.state.now.entries.get(to)) {
            (a, Some(b)) if a == *b => return Ok(()),
            (Entry::Directory { .. }, _) if to.starts_with(from) => return Err(Errno::INVAL.into()),
            (Entry::File(_), Some(Entry::Directory { .. })) => return Err(Errno::ISDIR.into()),
            (Entry::Directory { .. }, Some(Entry::File(_))) => return Err(Errno::NOTDIR.into()),
            (Entry::Directory { .. }, Some(_)) if !self.state.now.below(to).is_empty() => {
                return Err(Errno::NOTEMPTY.into());
            }
            _ => {}
        }
        let time_ns = self.tick();
        self.happen(HomeEvent::Rename { from: from.into(), to: to.into(), time_ns });
        Ok(())
    }

    fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        self.state.clock_ns += self.options.sync_takes_ns;
        if countdown(&mut self.fail_sync_in) {
            return Err(Errno::IO.into());
        }
        self.happen(HomeEvent::SyncDir { path: path.into() });
        Ok(())
    }

    fn write(&mut self, id: FileId, at: u64, data: &[u8]) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        if countdown(&mut self.fail_write_in) {
            return Err(Errno::IO.into());
        }
        let fits = match self.options.capacity {
            None => data.len(),
            Some(c) => self.state.fitting(id, at, data.len(), c.saturating_sub(self.state.used())),
        };
        if fits > 0 {
            let time_ns = self.tick();
            self.happen(HomeEvent::Write { id, at, data: Bytes(data[..fits].into()), time_ns });
        }
        if fits < data.len() { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }
}

/// Counts a call; true when it is the one that fails.
fn countdown(left: &mut u64) -> bool {
    let last = *left == 1;
    *left = left.saturating_sub(1);
    last
}

impl Home for SimHome {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn HomeFile>> {
        let mut inner = self.inner();
        let id = match inner.file(path) {
            Ok(_) if mode.create && mode.exclusive => return Err(Errno::EXIST.into()),
            Ok(id) => id,
            Err(e) if e.kind() == io::ErrorKind::NotFound && mode.create => {
                inner.check_holder(path)?;
                inner.create(path)?
            }
            Err(e) => return Err(e),
        };
        Ok(Arc::new(SimFile { disk: self.disk.clone(), id, read_only: mode.read_only }))
    }

    fn stat(&self, path: &Path) -> io::Result<HomeStat> {
        let inner = self.inner();
        match inner.entry(path)? {
            Entry::File(id) => Ok(inner.stat_file(id)),
            Entry::Directory { ino, time_ns } => Ok(directory_stat(ino, time_ns)),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner().rename(from, to)
    }

    fn rename_with(&self, from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
        let mut inner = self.inner();
        let source = inner.entry(from)?;
        inner.check_holder(to)?;
        let target = inner.state.now.entries.get(to).copied();
        match (flags, target) {
            (RenameFlags::None, _) => inner.rename(from, to),
            (RenameFlags::NoReplace, Some(_)) => Err(Errno::EXIST.into()),
            (RenameFlags::NoReplace, None) => inner.rename(from, to),
            (RenameFlags::Exchange, None) => Err(Errno::NOENT.into()),
            (RenameFlags::Exchange, Some(target)) => {
                if from.starts_with(to) || to.starts_with(from) {
                    return if source == target { Ok(()) } else { Err(Errno::INVAL.into()) };
                }
                let time_ns = inner.tick();
                inner.happen(HomeEvent::Exchange { one: from.into(), other: to.into(), time_ns });
                Ok(())
            }
        }
    }

    fn unlink(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.inner();
        inner.file(path)?;
        let time_ns = inner.tick();
        inner.happen(HomeEvent::Unlink { path: path.into(), time_ns });
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut inner = self.inner();
        if let Entry::Directory { .. } = inner.entry(from)? {
            return Err(Errno::PERM.into());
        }
        inner.check_holder(to)?;
        if inner.state.now.entries.contains_key(to) {
            return Err(Errno::EXIST.into());
        }
        let time_ns = inner.tick();
        inner.happen(HomeEvent::Link { from: from.into(), to: to.into(), time_ns });
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.inner();
        inner.check_holder(path)?;
        if inner.state.now.entries.contains_key(path) {
            return Err(Errno::EXIST.into());
        }
        let (ino, time_ns) = (inner.state.next_ino, inner.tick());
        inner.state.next_ino += 1;
        inner.happen(HomeEvent::CreateDir { path: path.into(), ino, time_ns });
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.inner();
        match inner.entry(path)? {
            Entry::File(_) => return Err(Errno::NOTDIR.into()),
            Entry::Directory { .. } if !inner.state.now.below(path).is_empty() => {
                return Err(Errno::NOTEMPTY.into());
            }
            Entry::Directory { .. } => {}
        }
        inner.happen(HomeEvent::RemoveDir { path: path.into() });
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut inner = self.inner();
        if !path.as_os_str().is_empty() {
            inner.check_holder(path)?;
        }
        inner.sync_dir(path)
    }

    fn walk(&self, each: &mut dyn FnMut(&Path, &HomeStat) -> io::Result<()>) -> io::Result<()> {
        for path in self.paths() {
            if super::is_reserved(&path) {
                continue;
            }
            // The lock is not held while `each` runs: it may call the home.
            let found = self.stat(&path);
            match found {
                Ok(s) if s.kind == FileKind::Regular => each(&path, &s)?,
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn identity(&self) -> io::Result<HomeStat> {
        Ok(directory_stat(self.inner().options.directory_ino, 1_600_000_000_000_000_000))
    }

    fn sync_all(&self) -> io::Result<()> {
        for path in self.paths() {
            self.open(&path, OpenMode::WRITE)?.sync()?;
        }
        self.sync_dir(Path::new(""))
    }

    fn now_ns(&self) -> u64 {
        self.disk.inner.lock().state.clock_ns
    }

    fn lock(&self) -> io::Result<()> {
        let mut inner = self.inner();
        if inner.owner.is_some_and(|o| o != self.object) {
            return Err(HomeError::Owned { path: "simulated home".into() }.into());
        }
        inner.owner = Some(self.object);
        Ok(())
    }

    fn directory(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    fn read_attachment(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.contents(Path::new(ATTACHMENT)).map(|b| Vec::clone(&b)))
    }

    fn write_attachment(&self, bytes: &[u8]) -> io::Result<()> {
        let new = Path::new(ATTACHMENT_NEW);
        let file = self.open(new, OpenMode::CREATE)?;
        file.set_len(0)?;
        file.write_at(0, bytes)?;
        file.sync()?;
        self.rename(new, Path::new(ATTACHMENT))?;
        self.sync_dir(Path::new(""))
    }

    fn remove_attachment(&self) -> io::Result<()> {
        for name in [ATTACHMENT, ATTACHMENT_NEW] {
            match self.unlink(Path::new(name)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        self.sync_dir(Path::new(""))
    }

    fn close_door(&self, note: &str) -> io::Result<()> {
        if self.door() == Door::Closed {
            return Ok(());
        }
        self.set_door(Door::NoteBeside, Some(note))?;
        self.set_door(Door::Closed, Some(note))
    }

    fn open_door(&self) -> io::Result<()> {
        let door = self.door();
        if door == Door::Closed {
            let note = self.note();
            self.set_door(Door::NoteBeside, note.as_deref())?;
        }
        if door == Door::Open { Ok(()) } else { self.set_door(Door::Open, None) }
    }

    fn door_closed(&self) -> io::Result<bool> {
        Ok(self.door() == Door::Closed)
    }
}

fn directory_stat(ino: u64, time_ns: u64) -> HomeStat {
    let (btime_ns, mtime_ns, ctime_ns) = (time_ns, time_ns, time_ns);
    let (generation, size, nlink, dev, uid) = (0, 4096, 2, 1, 0);
    HomeStat {
        ino,
        generation,
        btime_ns,
        size,
        mtime_ns,
        ctime_ns,
        nlink,
        kind: FileKind::Directory,
        dev,
        uid,
    }
}

/// The longest a file may be: it is kept in memory, holes too.
const FILE_MAX: u64 = 1 << 30;

/// An open file of a [`SimHome`].
struct SimFile {
    disk: Arc<Disk>,
    id: FileId,
    read_only: bool,
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFile({})", self.id)
    }
}

impl HomeFile for SimFile {
    fn stat(&self) -> io::Result<HomeStat> {
        Ok(self.disk.inner.lock().stat_file(self.id))
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// Sector by sector: a write meanwhile may be found in part, as in the page cache of a real
    /// home.
    fn read_at(&self, off: u64, into: &mut [u8]) -> io::Result<usize> {
        let middle = into.len() / SECTOR / 2;
        let mut done = 0;
        for (n, part) in into.chunks_mut(SECTOR).enumerate() {
            if n > 0 && n == middle {
                between_halves();
            }
            let mut inner = self.disk.inner.lock();
            if n > 0
                && n == middle
                && let Some(hook) = inner.in_next_read.take()
            {
                drop(inner);
                hook();
                inner = self.disk.inner.lock();
            }
            let bytes = &inner.state.node(self.id).current;
            let from = usize::try_from(off + done as u64).unwrap_or(usize::MAX).min(bytes.len());
            let got = part.len().min(bytes.len() - from);
            part[..got].copy_from_slice(&bytes[from..from + got]);
            done += got;
            if got < part.len() {
                break;
            }
        }
        Ok(done)
    }

    fn write_at(&self, off: u64, data: &[u8]) -> io::Result<()> {
        if self.read_only {
            return Err(Errno::BADF.into());
        }
        if off.saturating_add(data.len() as u64) > FILE_MAX {
            return Err(Errno::FBIG.into());
        }
        if cfg!(feature = "interleavings") {
            let (first, second) = data.split_at(data.len() / 2);
            self.disk.inner.lock().write(self.id, off, first)?;
            between_halves();
            return self.disk.inner.lock().write(self.id, off + first.len() as u64, second);
        }
        self.disk.inner.lock().write(self.id, off, data)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.read_only {
            return Err(Errno::INVAL.into());
        }
        if len > FILE_MAX {
            return Err(Errno::FBIG.into());
        }
        let mut inner = self.disk.inner.lock();
        if countdown(&mut inner.fail_write_in) {
            return Err(Errno::IO.into());
        }
        let time_ns = inner.tick();
        inner.happen(HomeEvent::SetLen { id: self.id, len, time_ns });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.disk.inner.lock();
        let takes_ns = inner.options.sync_takes_ns;
        inner.state.clock_ns += takes_ns;
        if countdown(&mut inner.fail_sync_in) {
            inner.happen(HomeEvent::SyncFileFailed { id: self.id });
            return Err(Errno::IO.into());
        }
        inner.happen(HomeEvent::SyncFile { id: self.id });
        Ok(())
    }

    fn set_times(&self, _: Option<FileTime>, mtime: Option<FileTime>) -> io::Result<()> {
        let mut inner = self.disk.inner.lock();
        // The clock stands still for it: golden images know the times of files by the changes
        // before.
        let time_ns = inner.state.clock_ns;
        let mtime_ns =
            mtime.map_or_else(|| inner.stat_file(self.id).mtime_ns, FileTime::wrapped_ns);
        inner.happen(HomeEvent::SetTimes { id: self.id, mtime_ns, time_ns });
        Ok(())
    }

    /// Zeros where the file is: what is found after a power cut may be torn, as after any write.
    fn clear(&self, off: u64, len: u64, how: Clear) -> io::Result<()> {
        let mut inner = self.disk.inner.lock();
        let size = inner.stat_file(self.id).size;
        let len = len.min(size.saturating_sub(off));
        if how == Clear::Zero || len == 0 {
            return inner.write(self.id, off, &vec![0; len as usize]);
        }
        if countdown(&mut inner.fail_write_in) {
            return Err(Errno::IO.into());
        }
        let time_ns = inner.tick();
        inner.happen(HomeEvent::Punch { id: self.id, at: off, len, time_ns });
        Ok(())
    }

    /// Says whether there is room, and moves the time stamps; what is reserved is not kept from
    /// others.
    fn allocate(&self, off: u64, len: u64) -> io::Result<()> {
        let mut inner = self.disk.inner.lock();
        if countdown(&mut inner.fail_write_in) {
            return Err(Errno::IO.into());
        }
        if let Some(c) = inner.options.capacity {
            let free = c.saturating_sub(inner.state.used());
            if inner.state.fitting(self.id, off, len as usize, free) < len as usize {
                return Err(Errno::NOSPC.into());
            }
        }
        let time_ns = inner.tick();
        inner.happen(HomeEvent::SetTimes { id: self.id, mtime_ns: time_ns, time_ns });
        Ok(())
    }

    fn next_data(&self, off: u64) -> io::Result<Option<u64>> {
        let inner = self.disk.inner.lock();
        let size = inner.stat_file(self.id).size;
        Ok(inner.state.node(self.id).next(off, true).filter(|at| *at < size))
    }

    fn next_hole(&self, off: u64) -> io::Result<Option<u64>> {
        let inner = self.disk.inner.lock();
        let size = inner.stat_file(self.id).size;
        let hole = inner.state.node(self.id).next(off, false).unwrap_or(size);
        Ok((off < size).then_some(hole.min(size)))
    }
}

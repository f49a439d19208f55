//! A simulated home with a gate in front: a test can make its writes wait, and can do something at
//! the moment between a read of the home and its return, which on a real home is a moment that a
//! test cannot hit.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use tiersmith_store::home::{
    Clear, FileTime, Home, HomeFile, HomeStat, OpenMode, RenameFlags, SimHome,
};

type Once = Box<dyn FnOnce() + Send>;
type Repeated = Box<dyn FnMut() + Send>;

/// What the gate does.
#[derive(Default)]
struct Rules {
    closed: Mutex<bool>,
    waiting: Mutex<usize>,
    changed: Condvar,
    before_set_len: Mutex<Option<Once>>,
    after_read: Mutex<Option<Once>>,
    before_write: Mutex<Option<Once>>,
    before_now: Mutex<Option<Once>>,
    before_clear: Mutex<Option<Once>>,
    before_next_data: Mutex<Option<Once>>,
    after_settling: Mutex<Option<(PathBuf, bool, Repeated)>>,
    refuse_open: Mutex<Option<i32>>,
    stats: AtomicU64,
    refuse_unlink: Mutex<Option<i32>>,
    /// Every sync of a directory fails with this.
    refuse_sync_dir: Mutex<Option<i32>>,
}

/// The home with its gate.
pub(crate) struct Gate {
    home: Arc<SimHome>,
    rules: Arc<Rules>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.home.fmt(f)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Gate {
    pub(crate) fn new(home: Arc<SimHome>) -> Arc<Self> {
        Arc::new(Self { home, rules: Arc::default() })
    }

    /// Writes to files wait from now on.
    pub(crate) fn close(&self) {
        *locked(&self.rules.closed) = true;
    }

    /// Lets all writes go on.
    pub(crate) fn open_wide(&self) {
        *locked(&self.rules.closed) = false;
        self.rules.changed.notify_all();
    }

    /// How many writes wait.
    pub(crate) fn waiting(&self) -> usize {
        *locked(&self.rules.waiting)
    }

    /// Does `what` once, when the next read has its bytes and has not returned.
    pub(crate) fn after_next_read(&self, what: impl FnOnce() + Send + 'static) {
        *locked(&self.rules.after_read) = Some(Box::new(what));
    }

    /// Does `what` from the next sync of the file at `path` on, whenever it was asked for its size
    /// and times: before the answer is there.
    pub(crate) fn after_settling(&self, path: &str, what: impl FnMut() + Send + 'static) {
        *locked(&self.rules.after_settling) = Some((path.into(), false, Box::new(what)));
    }

    /// Does `what` once, just before the next write to a file.
    pub(crate) fn before_next_write(&self, what: impl FnOnce() + Send + 'static) {
        *locked(&self.rules.before_write) = Some(Box::new(what));
    }

    /// Does `what` once, when the time is asked for next: a change of home begins with that.
    pub(crate) fn before_next_now(&self, what: impl FnOnce() + Send + 'static) {
        *locked(&self.rules.before_now) = Some(Box::new(what));
    }

    pub(crate) fn before_next_set_len(&self, what: impl FnOnce() + Send + 'static) {
        *locked(&self.rules.before_set_len) = Some(Box::new(what));
    }

    /// Does `what` once, just before the next range is cleared.
    pub(crate) fn before_next_clear(&self, what: impl FnOnce() + Send + 'static) {
        *locked(&self.rules.before_clear) = Some(Box::new(what));
    }

    /// Does `what` once, when somebody looks for a hole next.
    pub(crate) fn before_next_look_for_data(&self, what: impl FnOnce() + Send + 'static) {
        *locked(&self.rules.before_next_data) = Some(Box::new(what));
    }

    /// What the file at `path` holds at home.
    pub(crate) fn contents(&self, path: &Path) -> Vec<u8> {
        self.home.contents(path).map(|bytes| bytes.to_vec()).unwrap_or_default()
    }

    /// How often an open file was asked for its size and times.
    pub(crate) fn stats(&self) -> u64 {
        self.rules.stats.load(Ordering::Relaxed)
    }

    /// Opening a file fails with this error number; `None`: no longer.
    pub(crate) fn refuse_open(&self, errno: Option<i32>) {
        *locked(&self.rules.refuse_open) = errno;
    }

    /// Removing a name fails with this error number; `None`: no longer.
    pub(crate) fn refuse_unlink(&self, errno: Option<i32>) {
        *locked(&self.rules.refuse_unlink) = errno;
    }

    /// No directory can be synced.
    pub(crate) fn refuse_sync_dir(&self, errno: Option<i32>) {
        *locked(&self.rules.refuse_sync_dir) = errno;
    }
}

#[derive(Debug)]
struct GateFile {
    file: Arc<dyn HomeFile>,
    path: PathBuf,
    rules: Arc<Rules>,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rules")
    }
}

impl HomeFile for GateFile {
    fn stat(&self) -> io::Result<HomeStat> {
        self.rules.stats.fetch_add(1, Ordering::Relaxed);
        let found = self.file.stat();
        let settled =
            |(path, synced, _): &mut (PathBuf, bool, Repeated)| *synced && *path == self.path;
        let taken = locked(&self.rules.after_settling).take_if(settled);
        if let Some((path, synced, mut what)) = taken {
            what();
            *locked(&self.rules.after_settling) = Some((path, synced, what));
        }
        found
    }
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.file.descriptor()
    }
    fn read_at(&self, off: u64, into: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read_at(off, into)?;
        let once = locked(&self.rules.after_read).take();
        if let Some(once) = once {
            once();
        }
        Ok(got)
    }
    fn write_at(&self, off: u64, data: &[u8]) -> io::Result<()> {
        let once = locked(&self.rules.before_write).take();
        if let Some(once) = once {
            once();
        }
        *locked(&self.rules.waiting) += 1;
        let mut closed = locked(&self.rules.closed);
        while *closed {
            closed =
                self.rules.changed.wait(closed).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        drop(closed);
        *locked(&self.rules.waiting) -= 1;
        self.file.write_at(off, data)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        let once = locked(&self.rules.before_set_len).take();
        if let Some(once) = once {
            once();
        }
        self.file.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        if let Some((path, synced, _)) = &mut *locked(&self.rules.after_settling) {
            *synced |= *path == self.path;
        }
        self.file.sync()
    }
    fn set_times(&self, atime: Option<FileTime>, mtime: Option<FileTime>) -> io::Result<()> {
        self.file.set_times(atime, mtime)
    }
    fn clear(&self, off: u64, len: u64, how: Clear) -> io::Result<()> {
        let once = locked(&self.rules.before_clear).take();
        if let Some(once) = once {
            once();
        }
        self.file.clear(off, len, how)
    }
    fn allocate(&self, off: u64, len: u64) -> io::Result<()> {
        self.file.allocate(off, len)
    }
    fn next_data(&self, off: u64) -> io::Result<Option<u64>> {
        let once = locked(&self.rules.before_next_data).take();
        if let Some(once) = once {
            once();
        }
        self.file.next_data(off)
    }
    fn next_hole(&self, off: u64) -> io::Result<Option<u64>> {
        self.file.next_hole(off)
    }
}

impl Home for Gate {
    fn sync_all(&self) -> io::Result<()> {
        self.home.sync_all()
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn HomeFile>> {
        if let Some(errno) = *locked(&self.rules.refuse_open) {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let file = self.home.open(path, mode)?;
        Ok(Arc::new(GateFile { file, path: path.to_path_buf(), rules: self.rules.clone() }))
    }
    fn stat(&self, path: &Path) -> io::Result<HomeStat> {
        self.home.stat(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.home.rename(from, to)
    }
    fn rename_with(&self, from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
        self.home.rename_with(from, to, flags)
    }
    fn directory(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.home.directory()
    }
    fn unlink(&self, path: &Path) -> io::Result<()> {
        if let Some(errno) = *locked(&self.rules.refuse_unlink) {
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.home.unlink(path)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.home.link(from, to)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.home.create_dir(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.home.remove_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if let Some(errno) = *locked(&self.rules.refuse_sync_dir) {
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.home.sync_dir(path)
    }
    fn walk(&self, each: &mut dyn FnMut(&Path, &HomeStat) -> io::Result<()>) -> io::Result<()> {
        self.home.walk(each)
    }
    fn identity(&self) -> io::Result<HomeStat> {
        self.home.identity()
    }
    fn now_ns(&self) -> u64 {
        let once = locked(&self.rules.before_now).take();
        if let Some(once) = once {
            once();
        }
        self.home.now_ns()
    }
    fn lock(&self) -> io::Result<()> {
        self.home.lock()
    }
    fn read_attachment(&self) -> io::Result<Option<Vec<u8>>> {
        self.home.read_attachment()
    }
    fn write_attachment(&self, bytes: &[u8]) -> io::Result<()> {
        self.home.write_attachment(bytes)
    }
    fn remove_attachment(&self) -> io::Result<()> {
        self.home.remove_attachment()
    }
    fn close_door(&self, note: &str) -> io::Result<()> {
        self.home.close_door(note)
    }
    fn open_door(&self) -> io::Result<()> {
        self.home.open_door()
    }
    fn door_closed(&self) -> io::Result<bool> {
        self.home.door_closed()
    }
}

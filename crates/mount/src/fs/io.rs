//! Open files: opening, reading, writing, syncing, closing.
//!
//! All handles of a file share one [`Opened`]: the store's file, and home's own descriptor of a
//! file of class pass. Files of class data and redo are read and written through the store, which
//! opens and closes home's files as it needs them; files of class pass through the descriptor, by
//! this process or, where it may, by the kernel itself. A redo file that the store lends is written
//! by the kernel too, in its plain file.
//!
//! # Durability
//! A write is answered when the store has it, so in a tier that is durable it survives whatever
//! comes. A write to a pass file, or to a tier that is not durable, is synced before the answer
//! when the program opened the file with `O_SYNC` or `O_DSYNC`, or the mount syncs on every write;
//! then only a file that the profile calls temporary is not.

use super::table::Node;
use super::{Answer, At, Fs, mask};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tiersmith_store::{
    Durability, Error, File, FileClass, HomeDescriptor, HomeModel, LentFile, OpenMode,
};

/// What the kernel may keep what it remembers of a file's contents over an open.
const KEEP_CACHE: u32 = 1 << 1;
/// How long an opening waits for handles that are closed already: the kernel tells us of it a
/// moment later.
const CLOSING: Duration = Duration::from_millis(20);
/// The kernel reads and writes the file itself.
const PASSTHROUGH: u32 = 1 << 7;

/// An open file, as all its handles share it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    /// Home's file, of class pass; of others the store has it.
    pass: Option<Arc<OwnedFd>>,
    pub(crate) class: FileClass,
    pub(crate) node: Weak<Node>,
    writable: bool,
    /// Nobody needs it after a crash: it is not synced on each write.
    temporary: AtomicBool,
    /// Handles that the kernel holds. Changed with the node's `open` locked.
    handles: AtomicU64,
    /// The number under which the kernel has the descriptor.
    backing: Option<i32>,
    /// The descriptor is that of its plain file.
    lent: Option<LentFile>,
    /// Somebody keeps it open, so that the kernel cannot take it over: known, and not waited for
    /// again.
    kept_open: AtomicBool,
}

/// What an open is answered with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handle {
    pub(crate) fh: u64,
    pub(crate) flags: u32,
    pub(crate) backing: i32,
}

/// How a file is opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Opening {
    /// Home has opened it for writing.
    pub(super) writable: bool,
    /// The program writes to it.
    pub(super) writes: bool,
    /// It was made for this opening.
    pub(super) made: bool,
}

/// Home's descriptor of an open file.
#[derive(Debug)]
pub(crate) enum HomeFd {
    Own(Arc<OwnedFd>),
    /// The store keeps it open for as long as this lives.
    OfStore(HomeDescriptor),
}

impl AsFd for HomeFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            HomeFd::Own(fd) => fd.as_fd(),
            HomeFd::OfStore(fd) => fd.as_fd(),
        }
    }
}

impl Opened {
    fn new(
        node: &Arc<Node>,
        file: File,
        pass: Option<OwnedFd>,
        writable: bool,
        temporary: bool,
    ) -> Self {
        Self {
            class: file.class(),
            temporary: AtomicBool::new(temporary),
            file,
            pass: pass.map(Arc::new),
            node: Arc::downgrade(node),
            writable,
            handles: AtomicU64::new(0),
            backing: None,
            lent: None,
            kept_open: AtomicBool::new(false),
        }
    }

    /// Home's file of class pass, whose contents are read and written here.
    pub(crate) fn pass(&self) -> Option<&OwnedFd> {
        self.pass.as_deref()
    }

    /// Home's file, for attributes.
    pub(crate) fn home_fd(&self) -> Answer<HomeFd> {
        match &self.pass {
            Some(fd) => Ok(HomeFd::Own(fd.clone())),
            None => match self.file.home_descriptor() {
                Ok(fd) => Ok(HomeFd::OfStore(fd)),
                Err(e) => Err(Errno::from_raw_os_error(e.errno())),
            },
        }
    }
}

impl Fs {
    /// Opens a file; the kernel has checked that the caller may.
    pub(crate) fn open(&self, id: u64, flags: u32) -> Answer<Handle> {
        let node = self.node(id)?;
        if !node.is_file() {
            return Err(if node.is_dir() { Errno::ISDIR } else { Errno::NXIO });
        }
        let writes = flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32;
        let _renames = self.renames.read();
        if writes && self.lends && self.lending_refused.lock().is_none() {
            self.wait_for_closing(&node);
        }
        {
            let open = node.open.lock();
            if let Some((opened, fh)) = &*open
                && (opened.writable || !writes)
            {
                opened.handles.fetch_add(1, Ordering::AcqRel);
                return Ok(self.answer_to(&node, opened, *fh));
            }
        }
        let opened = self.open_node(&node, writes)?;
        Ok(self.hand_out(&node, opened, flags))
    }

    /// Opens the file of a node, at home and in the store. With `renames` held.
    fn open_node(&self, node: &Arc<Node>, writes: bool) -> Answer<Opened> {
        if let Some(opened) = self.open_known(node, writes)? {
            return Ok(opened);
        }
        let at = self.place(node)?;
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let open = |access| {
            self.with_descriptor(|| {
                rustix::fs::openat(&at.dir, &at.name, access | flags, Mode::empty())
            })
        };
        let (fd, writable) = match open(OFlags::RDWR) {
            Ok(fd) => (fd, true),
            Err(_) if !writes => {
                (open(OFlags::RDONLY).map_err(|e| self.refused("open", &at.path, e))?, false)
            }
            Err(Errno::ACCESS) => {
                (open(OFlags::WRONLY).map_err(|e| self.refused("open", &at.path, e))?, true)
            }
            Err(e) => return Err(self.refused("open", &at.path, e)),
        };
        self.open_at(node, &at, fd, Opening { writable, writes, made: false })
    }

    /// Opens a file that the store knows by its node: no question to home. A database opens all its
    /// files one after the other when it recovers from a crash.
    fn open_known(&self, node: &Arc<Node>, writes: bool) -> Answer<Option<Opened>> {
        let Some(born) = node.identity.born() else { return Ok(None) };
        for writable in [true, false] {
            if writes && !writable {
                continue;
            }
            let mode = if writable { OpenMode::WRITE } else { OpenMode::READ };
            let (dev, ino) = (node.identity.dev, node.identity.ino);
            let known = self.home.open_known(dev, ino, born, mode).map_err(|e| self.failed(&e))?;
            if let Some(file) = known {
                let temporary = self.home.profile().is_temporary(&self.path_of(node)?);
                return Ok(Some(Opened::new(node, file, None, writable, temporary)));
            }
        }
        Ok(None)
    }

    /// Calls again when the process has no descriptor left, with those that the store can spare.
    pub(super) fn with_descriptor<T>(&self, call: impl Fn() -> Answer<T>) -> Answer<T> {
        match call() {
            Err(Errno::MFILE | Errno::NFILE) if self.home.spare_descriptors() => call(),
            other => other,
        }
    }

    /// Opens in the store what is open at home.
    pub(super) fn open_at(
        &self,
        node: &Arc<Node>,
        at: &At,
        fd: OwnedFd,
        how: Opening,
    ) -> Answer<Opened> {
        let Opening { writable, writes, made } = how;
        let found = rustix::fs::statx(&fd, "", AtFlags::EMPTY_PATH, mask())?;
        if !node.is(&found) {
            return Err(Errno::STALE);
        }
        let mode = if writable { OpenMode::WRITE } else { OpenMode::READ };
        // Where no sync of the file comes here, its name must be durable now.
        let found_in_store = if made && !self.sync_on_write {
            self.home.open_made(&at.path, mode)
        } else {
            self.home.open_found(&at.path, mode)
        };
        let (file, writable) = match found_in_store {
            // Who only reads needs no slot of the file table.
            Err(Error::FileTableFull { .. }) if !writes => (
                self.home.open_found(&at.path, OpenMode::READ).map_err(|e| self.failed(&e))?,
                false,
            ),
            other => (other.map_err(|e| self.failed(&e))?, writable),
        };
        if file.key() != (node.identity.dev, node.identity.ino) {
            return Err(Errno::STALE);
        }
        let fd = Some(fd).filter(|_| file.class() == FileClass::Pass);
        let temporary = self.home.profile().is_temporary(&at.path);
        Ok(Opened::new(node, file, fd, writable, temporary))
    }

    /// Gives out a handle for a file that was just opened.
    pub(super) fn hand_out(&self, node: &Arc<Node>, mut opened: Opened, flags: u32) -> Handle {
        let mut open = node.open.lock();
        if let Some((other, fh)) = &*open
            && (other.writable || !opened.writable)
        {
            // Another thread was faster.
            other.handles.fetch_add(1, Ordering::AcqRel);
            return self.answer_to(node, other, *fh);
        }
        // The kernel takes a file over for all handles or for none.
        if open.is_none() && opened.writable {
            let writes = flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32;
            if let Some(fd) = &opened.pass {
                if self.passes && !self.has_rights(fd) {
                    opened.backing = self.hand_over(fd.as_fd(), &self.passthrough_refused);
                }
            } else if opened.class == FileClass::Redo && (writes || opened.file.is_lent()) {
                self.lend(&mut opened);
            }
        }
        opened.handles = AtomicU64::new(1);
        let opened = Arc::new(opened);
        let fh = self.files.put(opened.clone());
        *open = Some((opened.clone(), fh));
        self.answer_to(node, &opened, fh)
    }

    fn answer_to(&self, node: &Node, opened: &Opened, fh: u64) -> Handle {
        match opened.backing {
            Some(backing) => {
                node.bypassed.store(true, Ordering::Release);
                Handle { fh, flags: PASSTHROUGH, backing }
            }
            None => {
                let stale = node.bypassed.swap(false, Ordering::AcqRel);
                Handle { fh, flags: if stale { 0 } else { KEEP_CACHE }, backing: 0 }
            }
        }
    }

    /// Lets the kernel have a redo file, if the store lends it.
    fn lend(&self, opened: &mut Opened) {
        // Where the kernel does not take one (it has refused one, it is an older kernel than that
        // of the last mount, or it is not asked), a lent file would be written by this process,
        // with a sync of its own for each write: slower than not lent.
        let takes = self.lends
            && self.passthrough.read().is_some()
            && self.lending_refused.lock().is_none();
        let has_rights = || opened.home_fd().map_or(true, |fd| self.has_rights(fd));
        if !takes || has_rights() {
            self.take_back(opened);
            return;
        }
        let Ok(Some(lent)) = opened.file.lend() else { return };
        opened.backing = lent.descriptor().and_then(|fd| self.hand_over(fd, &self.lending_refused));
        opened.lent = Some(lent).filter(|_| opened.backing.is_some());
        if opened.lent.is_none() {
            self.take_back(opened);
        }
    }

    /// Ends the loan of a file that the kernel did not take, if home has all of it. Else the file
    /// stays lent, right and slow: `renames` and the node's `open` are held here, and home may take
    /// its time, or be full. The background brings it home, and a later opening comes here again.
    fn take_back(&self, opened: &Opened) {
        if !opened.file.is_lent() {
            return;
        }
        match opened.file.give_back_at_once() {
            Ok(true) => {}
            Ok(false) => {
                log::debug!(
                    "a file that the kernel did not take stays lent until home has all of it"
                )
            }
            // In the log, at most once a second.
            Err(e) => drop(self.failed(&e)),
        }
    }

    /// A file that can be lent is opened for writing while handles of it are open that go through
    /// this process. Mostly they are closed, as those of a segment that was just made and renamed:
    /// then it is worth a moment, for the kernel takes a file over for all handles or for none.
    fn wait_for_closing(&self, node: &Node) {
        let until = Instant::now() + CLOSING;
        loop {
            let Some(opened) = node.opened() else { return };
            let decided = opened.backing.is_some() || opened.class != FileClass::Redo;
            if decided
                || opened.kept_open.load(Ordering::Acquire)
                || self.passthrough.read().is_none()
            {
                return;
            }
            if !self.path_of(node).is_ok_and(|path| self.home.profile().is_lent(&path)) {
                return;
            }
            if Instant::now() >= until {
                opened.kept_open.store(true, Ordering::Release);
                return;
            }
            drop(opened);
            std::thread::sleep(CLOSING / 200);
        }
    }

    /// Lets the kernel have a file.
    fn hand_over(&self, fd: BorrowedFd<'_>, refusal: &Mutex<Option<String>>) -> Option<i32> {
        let passthrough = self.passthrough.read();
        match passthrough.as_ref()?.open(fd) {
            Ok(backing) => Some(backing),
            Err(e) => {
                let mut refused = refusal.lock();
                if refused.is_none() {
                    log::info!("the kernel does not take files over: {e}");
                    *refused = Some(e.to_string());
                }
                None
            }
        }
    }

    /// Ends a handle; with the last one the file is closed.
    pub(crate) fn release(&self, fh: u64) {
        let Some(opened) = self.files.get(fh) else { return };
        let node = opened.node.upgrade();
        let mut open = node.as_ref().map(|n| n.open.lock());
        if opened.handles.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        self.files.take(fh);
        let last = open.as_mut().and_then(|open| {
            if open.as_ref().is_some_and(|(_, n)| *n == fh) { open.take() } else { None }
        });
        drop(open);
        if let (Some(backing), Some(passthrough)) = (opened.backing, &*self.passthrough.read()) {
            passthrough.close(backing);
        }
        drop(last);
    }

    pub(super) fn file(&self, fh: u64) -> Answer<Arc<Opened>> {
        self.files.get(fh).ok_or(Errno::BADF)
    }

    /// Reads at `offset` into the answer; fewer bytes than asked for at the end of the file only.
    pub(crate) fn read(&self, fh: u64, offset: u64, into: &mut [u8]) -> Answer<usize> {
        let opened = self.file(fh)?;
        let Some(fd) = opened.pass() else {
            return opened.file.read(offset, into).map_err(|e| self.failed(&e));
        };
        self.wait_as_modelled(HomeModel::read);
        let mut done = 0;
        while done < into.len() {
            match rustix::io::pread(fd, &mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) if done == 0 => return Err(self.refused_open("read", &opened, e)),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Writes at `offset`; returns how many bytes went, which is all or, on a full home, some of a
    /// pass file.
    pub(crate) fn write(
        &self,
        fh: u64,
        offset: u64,
        data: &[u8],
        flags: u32,
        take_rights: bool,
    ) -> Answer<usize> {
        let opened = self.file(fh)?;
        self.after_change(&opened, take_rights)?;
        let asked = flags & (libc::O_SYNC | libc::O_DSYNC) as u32 != 0;
        // To be asked after the write: a file that gets a lasting name is marked first and synced
        // then.
        let syncs = || asked || (self.sync_on_write && !opened.temporary.load(Ordering::SeqCst));
        let Some(fd) = opened.pass() else {
            opened.file.write(offset, data).map_err(|e| self.failed(&e))?;
            // In most tiers it is durable by now, if the file is.
            let durable = self.durability == Durability::OnReturn && opened.file.is_settled();
            if !durable && syncs() {
                opened.file.sync().map_err(|e| self.failed(&e))?;
            }
            return Ok(data.len());
        };
        self.wait_as_modelled(HomeModel::write);
        let mut done = 0;
        while done < data.len() {
            match rustix::io::pwrite(fd, &data[done..], offset + done as u64) {
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(e) if done == 0 => return Err(self.refused_open("write", &opened, e)),
                Err(_) => break,
            }
        }
        if syncs() {
            self.wait_as_modelled(HomeModel::sync);
            rustix::fs::fdatasync(fd).map_err(|e| self.refused_open("sync", &opened, e))?;
        }
        Ok(done)
    }

    /// For studies: what passes to a modelled home takes the time that the model says. (What goes
    /// through the store is slow there.)
    fn wait_as_modelled(&self, how_long: fn(&HomeModel) -> Duration) {
        if let Some(model) = &self.model {
            std::thread::sleep(how_long(model));
        }
    }

    /// Whether a read is answered from the tier.
    pub(crate) fn reads_quickly(&self, fh: u64, offset: u64) -> bool {
        self.files.look(fh, |opened| {
            let size = opened.file.block_size().map_or(1, |s| s.bytes() as u64);
            opened.class == FileClass::Data && opened.file.read_ref(offset / size * size).is_some()
        })
    }

    /// Whether a write or a sync is a matter of the tier only. A write may still wait there for
    /// room.
    pub(crate) fn writes_quickly(&self, fh: u64) -> bool {
        self.discards_writes()
            || (self.durability == Durability::OnReturn
                && self
                    .files
                    .look(fh, |opened| opened.pass().is_none() && opened.file.is_settled()))
    }

    /// Makes a file durable. Costs no I/O when every write was durable on return.
    pub(crate) fn fsync(&self, fh: u64, data_only: bool) -> Answer<()> {
        let opened = self.file(fh)?;
        self.sync_opened(&opened, data_only)
    }

    pub(super) fn sync_opened(&self, opened: &Opened, data_only: bool) -> Answer<()> {
        let Some(fd) = opened.pass() else {
            return opened.file.sync().map_err(|e| self.failed(&e));
        };
        self.wait_as_modelled(HomeModel::sync);
        let synced = if data_only { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) };
        synced.map_err(|e| self.refused_open("sync", opened, e))
    }

    /// A temporary file is about to get a lasting name: what was not synced write by write is now,
    /// and from here on is. With `renames` held.
    pub(super) fn settle_temporary(&self, at: &At, to: &Path, found: &Statx) -> Answer<()> {
        let profile = self.home.profile();
        let is_file = FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile;
        if !self.sync_on_write
            || !is_file
            || !profile.is_temporary(&at.path)
            || profile.is_temporary(to)
        {
            return Ok(());
        }
        let node = self.table.lock().known(found);
        if let Some(opened) = node.and_then(|n| n.opened()) {
            opened.temporary.store(false, Ordering::SeqCst);
            return self.sync_opened(&opened, false);
        }
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let open = |access| rustix::fs::openat(&at.dir, &at.name, access | flags, Mode::empty());
        let fd = open(OFlags::RDONLY).or_else(|_| open(OFlags::WRONLY));
        fd.and_then(rustix::fs::fsync).map_err(|e| self.refused("sync", &at.path, e))?;
        if self.durability == Durability::OnReturn {
            return Ok(());
        }
        let file = self.home.open_found(&at.path, OpenMode::READ).map_err(|e| self.failed(&e))?;
        file.sync().map_err(|e| self.failed(&e))
    }

    /// Opens a file for one change, unless it is open already.
    pub(super) fn borrow(&self, node: &Arc<Node>) -> Answer<Arc<Opened>> {
        if let Some(opened) = node.opened().filter(|o| o.writable) {
            return Ok(opened);
        }
        let _renames = self.renames.read();
        Ok(Arc::new(self.open_node(node, true)?))
    }

    pub(super) fn refused_open(&self, what: &str, opened: &Opened, errno: Errno) -> Errno {
        let path = opened.node.upgrade().and_then(|n| self.path_of(&n).ok()).unwrap_or_default();
        self.refused(what, &path, errno)
    }
}

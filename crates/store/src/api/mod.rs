//! An attached home and its open files: the API a door is built on.
//!
//! What a door needs beyond reading and writing is beside this file: a file of the tier is newer
//! than its home file, so whatever a file system says of a file has to be said here, its size and
//! [`times`], its holes ([`range`]), its [`names`], which files there are ([`list`]).
//!
//! All paths are relative to home. Handles are cheap to clone and may be used from many threads.

pub(crate) mod lend;
pub(crate) mod list;
pub(crate) mod media_errors;
pub(crate) mod names;
pub(crate) mod open;
pub(crate) mod range;
pub(crate) mod times;

use crate::address::BlockSize;
use crate::error::{Error, Result};
use crate::file::resize::Resize;
use crate::home::{Home, HomeStat, Named, RenameFlags};
use crate::known::FileState;
use crate::medium::Durability;
use crate::mover::pace::{Moved, Moving};
use crate::mover::scrub::Scrubbed;
use crate::names::settle::Settled;
use crate::planted::Planted;
use crate::process;
use crate::profile::FileClass;
use crate::stats::Stats;
use crate::store::{STEP_INTERVAL, Store};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use tiersmith_events::Registry;

pub use crate::file::read::BlockRef;
pub use crate::home::OpenMode;

/// A directory with a fast tier: what [`crate::attach()`] returns. Dropping it makes the tier
/// quiescent and leaves the home attached; [`AttachedHome::detach`] takes the tier away.
#[derive(Clone)]
pub struct AttachedHome {
    pub(crate) store: Arc<Store>,
    pub(crate) _running: Arc<Running>,
}

impl std::fmt::Debug for AttachedHome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AttachedHome").field("home", &self.store.env.home).finish_non_exhaustive()
    }
}

/// Ends the background thread when the last handle of the home goes.
pub(crate) struct Running {
    pub(crate) store: Arc<Store>,
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Running {
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.store.env.wake_background();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            let home = self.store.env.home_path();
            log::error!("the background thread of {} had panicked", home.display());
        }
    }
}

impl Running {
    /// Goes on after a detach that could not write home.
    fn resume(&self) {
        self.stop.store(false, Ordering::Release);
        self.store.env.set_closed(false);
        if self.store.env.options.background {
            match spawn_background(&self.store, &self.stop) {
                Ok(thread) => *self.thread.lock() = Some(thread),
                Err(e) => {
                    let home = self.store.env.home_path();
                    log::error!(
                        "cannot start a thread for the background work of {}: {e}",
                        home.display()
                    );
                }
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.store.env.is_ours() {
            // The thread, the lanes and the times are the parent's.
            std::mem::forget(self.thread.get_mut().take());
            return;
        }
        self.stop();
        if !self.store.env.set_closed(true) {
            for file in self.store.files.all() {
                if let Err(e) = self.store.homeward.take_last_stamp(&file) {
                    log::warn!("{e}; the next attach begins without copies of it");
                }
                if let Err(e) = self.store.homeward.keep_times(&file) {
                    log::warn!(
                        "{e}; its modification time after the next attach will be a later one"
                    );
                }
            }
            for tier in &self.store.tiers {
                tier.quiesce_lanes();
            }
        }
    }
}

impl AttachedHome {
    /// Opens a file. Its class and block size come from the profile, or from the tier if it is
    /// known there.
    ///
    /// # Errors
    /// Those of the home's file system, and [`Error::Invalid`] for a path that leaves the home.
    ///
    /// # Durability
    /// A file of class redo or data that is made here exists durably on return.
    pub fn open(&self, path: impl AsRef<Path>, mode: OpenMode) -> Result<File> {
        self.store.env.usable()?;
        let state = self.store.names.open(path.as_ref(), mode)?;
        Ok(File::new(self.store.clone(), state, mode.read_only))
    }

    /// Makes a file that does not exist yet, and opens it.
    ///
    /// # Errors
    /// As [`AttachedHome::open`]; also when the file exists.
    ///
    /// # Durability
    /// As [`AttachedHome::open`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open(path, OpenMode::CREATE_NEW)
    }

    /// Size, times and kind of a file; the size is the one in the tier where the tier is ahead.
    ///
    /// # Errors
    /// Those of the home's file system.
    pub fn stat(&self, path: impl AsRef<Path>) -> Result<HomeStat> {
        self.store.env.usable()?;
        self.store.names.stat(path.as_ref())
    }

    /// Renames a file or directory; it keeps its blocks. A file that had the new name goes away
    /// with its blocks.
    ///
    /// # Errors
    /// Those of the home's file system; nothing is lost.
    ///
    /// # Durability
    /// After [`AttachedHome::sync_dir`], as on any file system; durable on return when a file with
    /// dirty blocks was replaced.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameFlags::None)
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// Those of the home's file system.
    ///
    /// # Durability
    /// After [`AttachedHome::sync_dir`].
    pub fn link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.store.env.usable()?;
        self.store.names.link(from.as_ref(), to.as_ref())
    }

    /// Removes a name. With the last one the file's blocks go, as soon as no handle is open.
    ///
    /// # Errors
    /// Those of the home's file system; nothing is lost.
    ///
    /// # Durability
    /// After [`AttachedHome::sync_dir`]; durable on return when the file was known to the tier.
    pub fn unlink(&self, path: impl AsRef<Path>) -> Result<()> {
        self.store.env.usable()?;
        self.store.names.unlink(Named::by_path(path.as_ref()), Settled::OnReturn)
    }

    /// Makes the names in the directory of `path` durable.
    ///
    /// # Errors
    /// Those of the home's file system.
    ///
    /// # Durability
    /// Every rename, link, unlink and creation in that directory that returned before the call
    /// survives a power cut.
    pub fn sync_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.store.env.usable()?;
        if self.store.env.options.planted.is(Planted::DirectoryNotSynced) {
            return Ok(());
        }
        self.store
            .env
            .home
            .sync_dir(path.as_ref())
            .map_err(Error::io("cannot sync the directory of", path.as_ref()))
    }

    /// Makes everything durable that was written to the tiers, for who does not know which files
    /// were; costs nothing where that was done.
    ///
    /// # Errors
    /// Those of a medium that is durable at sync.
    ///
    /// # Durability
    /// Every write to a tier's file that returned before the call survives a power cut, if the
    /// file's name does.
    pub fn sync_tiers(&self) -> Result<()> {
        self.store.env.usable()?;
        self.store.tiers.iter().try_for_each(|tier| tier.sync())
    }

    /// Writes dirty blocks home and keeps them as clean copies: of one file, or of all. Returns how
    /// many blocks went.
    ///
    /// # Errors
    /// When home cannot be written; the blocks stay dirty, nothing is lost.
    ///
    /// # Durability
    /// The home files are synced on return.
    pub fn destage(&self, path: Option<&Path>) -> Result<u64> {
        self.store.env.usable()?;
        match path {
            Some(path) => self.store.mover.destage_file(&*self.store.names.known(path)?, u64::MAX),
            None => self.store.mover.flush_all(),
        }
    }

    /// Writes every dirty block home, of pinned files too: afterwards home alone is whole, but for
    /// what is written meanwhile.
    ///
    /// # Errors
    /// When home cannot be written; nothing is lost.
    ///
    /// # Durability
    /// The home files are synced on return.
    pub fn flush_all(&self) -> Result<u64> {
        self.destage(None)
    }

    /// Reads every block of data files that the tiers have, and compares it with its checksum: what
    /// a medium has lost is known before somebody needs it. A clean copy that is not what it should
    /// be is given up, and read from home from then on; a newest version is reported by
    /// [`Stats::unreadable`], and reading it is an error. `bytes_per_s`: no faster than that.
    /// `goes_on` is asked after each block, and now and then while nothing is read; `false` ends
    /// it. Programs go on meanwhile.
    ///
    /// Redo files have no checksums, and are not read.
    ///
    /// # Errors
    /// When the home is detached. What is wrong with blocks is in the answer.
    pub fn scrub(
        &self,
        bytes_per_s: Option<u64>,
        goes_on: impl FnMut(&Scrubbed) -> bool,
    ) -> Result<Scrubbed> {
        self.store.env.usable()?;
        Ok(self.store.mover.scrub(bytes_per_s, goes_on))
    }

    /// Gives up clean copies: of one file (all of them), or `blocks` of any file that were not read
    /// lately. Returns how many went.
    ///
    /// # Errors
    /// [`Error::Io`] when the file does not exist.
    pub fn evict(&self, path: Option<&Path>, blocks: u64) -> Result<u64> {
        self.store.env.usable()?;
        match path {
            Some(path) => self.store.mover.evict_file(&*self.store.names.known(path)?),
            None => Ok(self.store.tiers.iter().map(|t| self.store.mover.evict(t, blocks)).sum()),
        }
    }

    /// Brings a whole file into the tier and keeps it there, across reopening, until
    /// [`AttachedHome::unpin`].
    ///
    /// # Errors
    /// [`Error::TierFull`] when the tier would be left with too little to work with; the file is
    /// then not pinned.
    ///
    /// # Durability
    /// The pin is durable on return.
    pub fn pin(&self, path: impl AsRef<Path>) -> Result<()> {
        self.pin_at(path, None, |_| true).map(|_| ())
    }

    /// [`AttachedHome::pin`] at no more than so many bytes a second. `goes_on` is asked after each
    /// block, when one has to be read again, and now and then while nothing is read; `false` ends
    /// it. The file is not pinned then; what was brought in stays as other clean copies do, and
    /// pinning again begins where this ended. So it is after a crash.
    ///
    /// # Errors
    /// As [`AttachedHome::pin`].
    ///
    /// # Durability
    /// The pin is durable on return, unless it was ended.
    pub fn pin_at(
        &self,
        path: impl AsRef<Path>,
        bytes_per_s: Option<u64>,
        goes_on: impl FnMut(&Moved) -> bool,
    ) -> Result<Moved> {
        self.bring_in(path.as_ref(), true, bytes_per_s, goes_on)
    }

    /// Brings a file into the tier as [`AttachedHome::pin_at`] does; afterwards its blocks come and
    /// go as others do.
    ///
    /// # Errors
    /// As [`AttachedHome::pin`].
    pub fn move_in_at(
        &self,
        path: impl AsRef<Path>,
        bytes_per_s: Option<u64>,
        goes_on: impl FnMut(&Moved) -> bool,
    ) -> Result<Moved> {
        self.bring_in(path.as_ref(), false, bytes_per_s, goes_on)
    }

    fn bring_in(
        &self,
        path: &Path,
        pins: bool,
        bytes_per_s: Option<u64>,
        mut goes_on: impl FnMut(&Moved) -> bool,
    ) -> Result<Moved> {
        self.store.env.usable()?;
        let mut moving = Moving::at(bytes_per_s, &mut goes_on);
        self.store.io.pin(&*self.store.names.known(path)?, pins, &mut moving)?;
        Ok(moving.moved)
    }

    /// Moves a file home: writes its dirty blocks home and gives up its clean copies, at no more
    /// than so many bytes a second of those written. `goes_on` is as for
    /// [`AttachedHome::pin_at`]. Blocks that are written behind it meanwhile stay. A lent file goes
    /// at once, whatever the pace.
    ///
    /// # Errors
    /// As [`AttachedHome::destage`].
    ///
    /// # Durability
    /// As [`AttachedHome::destage`].
    pub fn move_home_at(
        &self,
        path: impl AsRef<Path>,
        bytes_per_s: Option<u64>,
        mut goes_on: impl FnMut(&Moved) -> bool,
    ) -> Result<Moved> {
        self.store.env.usable()?;
        let file = self.store.names.known(path.as_ref())?;
        let mut moving = Moving::at(bytes_per_s, &mut goes_on);
        let went = self.store.mover.destage_at(&file, &mut moving);
        self.store.env.events.count(crate::waits::MOVED_HOME, moving.moved.blocks);
        went?;
        if !moving.moved.stopped {
            self.store.mover.evict_file(&file)?;
        }
        Ok(moving.moved)
    }

    /// Ends a pin; the blocks leave as others do.
    ///
    /// # Errors
    /// [`Error::Io`] when the file does not exist.
    ///
    /// # Durability
    /// Durable on return.
    pub fn unpin(&self, path: impl AsRef<Path>) -> Result<()> {
        self.store.env.usable()?;
        self.store.io.unpin(&*self.store.names.known(path.as_ref())?)
    }

    /// Grows a tier by one step. `false` when it is as large as it may be.
    ///
    /// # Errors
    /// When the medium has no space; the tier stays as it was.
    ///
    /// # Durability
    /// The new size is durable on return.
    pub fn grow(&self, tier: &str) -> Result<bool> {
        self.store.env.usable()?;
        let tier = self.store.tiers.iter().find(|t| t.name == tier).ok_or_else(|| {
            let known = self.tier_names().join("`, `");
            Error::Options(format!("there is no tier `{tier}`; the tiers here are `{known}`"))
        })?;
        self.store.mover.grow(tier)
    }

    fn tier_names(&self) -> Vec<&str> {
        self.store.tiers.iter().map(|t| t.name.as_str()).collect()
    }

    /// Writes everything home and takes the tier away: a plain directory is left, at its own path.
    ///
    /// # Errors
    /// [`Error::Busy`] while files are open; home's error when it cannot be written. The home then
    /// stays attached.
    ///
    /// # Durability
    /// Durable on return. After a cut before that the home is attached still, or detached; the next
    /// attach knows.
    pub fn detach(self) -> Result<()> {
        self.store.env.ours()?;
        self.settle_names()?;
        {
            // Files are opened and closed under this lock, so nothing is written between the last
            // destage and the end.
            let _names = self.store.names.changing.lock();
            self.store.env.usable()?;
            let open: usize =
                self.store.files.all().iter().map(|f| f.handles.load(Ordering::Acquire)).sum();
            if open > 0 {
                return Err(Error::Busy(open));
            }
            self.store.env.set_closed(true);
        }
        self._running.stop();
        if self.store.env.options.planted.is(Planted::DoorOpenedEarly) {
            let _ = self.store.env.home.open_door();
        }
        if let Err(e) = self
            .store
            .mover
            .flush_all()
            .and_then(|_| self.store.lender.give_all_back())
            .and_then(|()| self.store.mover.all_is_home())
            .and_then(|()| self.store.homeward.take_last_stamps(&self.store.files.all()))
        {
            self._running.resume();
            return Err(e);
        }
        let note = self.home().read_attachment().ok().flatten();
        let Err(e) = crate::detach::detach(&self.store) else { return Ok(()) };
        if let Err(why) = crate::detach::undo_detach(&self.store, note.as_deref()) {
            self.store.env.set_closed(true);
            return Err(Error::Home {
                path: self.home_path().to_path_buf(),
                reason: format!(
                    "{e}; and it could not be attached again: {why}. It is not served any more. \
                     Nothing is lost, all is in the plain files: attach or detach it once more \
                     before you use them"
                ),
            });
        }
        // The note is still there: the home is attached, and usable through this object's clones.
        self._running.resume();
        Err(e)
    }

    /// Whether it is served. It is not after a detach, nor after one that failed so that the home
    /// could not be attached again.
    pub fn is_served(&self) -> bool {
        self.store.env.is_usable()
    }

    /// What happens in the background, once, now: idle entries made durable, redo drained, dirty
    /// and free blocks kept within their marks. For doors without a background thread, and for
    /// tests.
    ///
    /// # Errors
    /// Home's error when it cannot be written; nothing is lost.
    pub fn background_step(&self) -> Result<()> {
        self.store.env.usable()?;
        self.store.background_step()
    }

    /// Whether this is the process that attached the home, and not a child that was forked later,
    /// where every call that could change or read a file is refused ([`Error::Forked`]).
    #[inline]
    #[must_use]
    pub fn is_of_this_process(&self) -> bool {
        self.store.env.is_ours()
    }

    /// Sizes, block states and waits; in a forked child those of the moment of the fork.
    pub fn stats(&self) -> Stats {
        match self.store.env.ours() {
            Ok(()) => self.store.stats(),
            Err(e) => self.store.stats_of_another_process(&e),
        }
    }

    /// The wait events; reading them stops nobody.
    pub fn events(&self) -> &Registry {
        &self.store.env.events
    }

    /// The home behind this one, for what passes through (directories, walking).
    pub fn home(&self) -> &Arc<dyn Home> {
        &self.store.env.home
    }
}

/// An open file of an attached home.
pub struct File {
    pub(crate) store: Arc<Store>,
    pub(crate) state: Arc<FileState>,
    read_only: bool,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.state.fmt(f)
    }
}

impl Clone for File {
    fn clone(&self) -> Self {
        self.state.handles.fetch_add(1, Ordering::AcqRel);
        Self { store: self.store.clone(), state: self.state.clone(), read_only: self.read_only }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.store.env.is_ours() {
            self.store.names.close(&self.state);
        }
    }
}

impl File {
    /// A handle that is counted already.
    pub(crate) fn new(store: Arc<Store>, state: Arc<FileState>, read_only: bool) -> Self {
        Self { store, state, read_only }
    }

    pub(crate) fn writable(&self, what: &'static str) -> Result<()> {
        self.store.env.usable()?;
        if self.read_only {
            return Err(self.state.invalid(what, "it was opened for reading only"));
        }
        Ok(())
    }

    /// Reads up to `into.len()` bytes at `offset`; returns fewer at the end of the file.
    ///
    /// # Errors
    /// Those of the home's file system.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.store.env.usable()?;
        self.store.io.read(&self.state, offset, into)
    }

    /// Borrows the block at `offset` (a multiple of the block size) from the tier, without a copy.
    /// `None` when it is not there, or the file is of class redo: read it then. The last block of a
    /// file ends with the file.
    pub fn read_ref(&self, offset: u64) -> Option<BlockRef<'_>> {
        if self.store.env.is_usable() { self.store.io.read_ref(&self.state, offset) } else { None }
    }

    /// Writes `data` at `offset`; a gap behind the old end reads as zeros.
    ///
    /// # Errors
    /// Home's error when the tier is full and home cannot take blocks; nothing acknowledged is
    /// lost.
    ///
    /// # Durability
    /// On return or after [`File::sync`], as [`File::durability`] says. In a tier each aligned
    /// block of a data file is all or nothing, unless the tier is volatile.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.writable("write")?;
        let written = self.store.io.write(&self.state, offset, data);
        self.store.homeward.mark_written(&self.state);
        // Not as one value: to move all of an answer of which a word was just stored waits until
        // that store is through, so for the medium.
        written?;
        Ok(())
    }

    /// Writes several whole blocks, all or none.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a block is not whole, not aligned or there twice, or the file has no
    /// batches ([`File::has_batches`]); [`Error::BatchTooLarge`]; nothing is written then.
    ///
    /// # Durability
    /// All blocks survive a power cut as after [`File::write`]; after a cut before that, all or
    /// none.
    pub fn write_batch(&self, blocks: &[(u64, &[u8])]) -> Result<()> {
        self.writable("write a batch to")?;
        let written = self.store.io.write_batch(&self.state, blocks);
        self.store.homeward.mark_written(&self.state);
        // As in `write`.
        written?;
        Ok(())
    }

    /// Whether [`File::write_batch`] works here: data files on a persistent tier.
    pub fn has_batches(&self) -> bool {
        self.state
            .placed
            .as_ref()
            .is_some_and(|p| p.tier.holds_dirty() && p.class == FileClass::Data)
    }

    /// When a write to the file that has returned survives a power cut. [`Durability::AtSync`] is
    /// [`File::sync`], also where the tier holds clean copies only: the home is written then.
    pub fn durability(&self) -> Durability {
        match self.state.placed.as_ref().map(|p| p.tier.durability) {
            Some(Durability::OnReturn) => Durability::OnReturn,
            _ => Durability::AtSync,
        }
    }

    /// Makes the file `size` bytes long; what is cut off never shows again, what is added reads as
    /// zeros.
    ///
    /// # Errors
    /// Those of the home's file system.
    ///
    /// # Durability
    /// As [`File::write`].
    pub fn truncate(&self, size: u64) -> Result<()> {
        self.writable("truncate")?;
        let _ranging = self.state.ranging.lock();
        let resized = self.store.io.resize(&self.state, size, Resize::Exactly);
        self.store.homeward.mark_written(&self.state);
        resized
    }

    /// Makes the file at least `size` bytes long.
    ///
    /// # Errors
    /// Those of the home's file system.
    ///
    /// # Durability
    /// As [`File::truncate`].
    pub fn extend(&self, size: u64) -> Result<()> {
        self.writable("extend")?;
        let resized = self.store.io.resize(&self.state, size, Resize::AtLeast);
        self.store.homeward.mark_written(&self.state);
        resized
    }

    /// Makes all writes that have returned durable.
    ///
    /// # Errors
    /// Those of the home's file system (pass files and volatile tiers), and of a medium that is
    /// durable at sync.
    ///
    /// # Durability
    /// Every write that returned before the call survives a power cut.
    pub fn sync(&self) -> Result<()> {
        self.store.env.usable()?;
        self.store.names.settle(&self.state)?;
        self.store.io.sync(&self.state)
    }

    /// Whether the file's names are as durable as they will be: if not, [`File::sync`] goes to
    /// home.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.state.name.unsettled().is_none()
    }

    /// Size in bytes.
    ///
    /// # Errors
    /// Those of the home's file system (pass files).
    pub fn len(&self) -> Result<u64> {
        self.store.env.ours()?;
        match &self.state.placed {
            Some(placed) => self.state.size_of(placed),
            None => Ok(self.state.home.stat().map_err(self.state.io("cannot stat"))?.size),
        }
    }

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// As [`File::len`].
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Size, times and kind.
    ///
    /// # Errors
    /// Those of the home's file system.
    pub fn stat(&self) -> Result<HomeStat> {
        self.store.env.ours()?;
        self.store.names.stat_of(&self.state)
    }

    /// The class of the file.
    pub fn class(&self) -> FileClass {
        self.state.placed.as_ref().map_or(FileClass::Pass, |p| p.class)
    }

    /// The block size of the file; `None` for a pass file.
    pub fn block_size(&self) -> Option<BlockSize> {
        self.state.placed.as_ref().map(|p| p.block_size)
    }

    /// Blocks whose newest version is only in the tier, and clean copies.
    pub fn blocks_in_tier(&self) -> (u64, u64) {
        self.state.placed.as_ref().map_or((0, 0), |p| p.map.counts())
    }
}

/// The background thread: a step every `interval`, or when woken.
pub(crate) fn spawn_background(
    store: &Arc<Store>,
    stop: &Arc<AtomicBool>,
) -> std::io::Result<JoinHandle<()>> {
    let (store, stop) = (store.clone(), stop.clone());
    process::spawn("tiersmith-tier", move || {
        while !stop.load(Ordering::Acquire) {
            store.env.wait_for_work(STEP_INTERVAL);
            if stop.load(Ordering::Acquire) {
                return;
            }
            store.mover.note_step(store.background_step());
        }
    })
}

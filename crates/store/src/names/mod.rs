//! Opening, closing, renaming and removing files, and the slots of the file table.
//!
//! When the change of a name is durable, for programs behind a door: [`settle`].
//!
//! A file is known by its inode number, generation and birth time, so renaming and hard links keep
//! its blocks, and an inode number that is used again does not inherit them. The path in the slot
//! is a hint.
//!
//! # Removing the last name of a file with a slot, and what a power cut leaves
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 1 | the state line gets the flag `unlinking`, then a fence | the file; recovery clears the flag |
//! | 2 | the name is removed (or replaced by a rename) at home | the file, or no file |
//! | 3 | home's directory is synced; for a door at the next sync ([`settle`]) | no file: recovery finds the flag and no home file, and frees the slot |
//! | 4 | when no handle is open: records about the file are emptied, the slot becomes free, each with a fence | no file |
//! | 5 | its frames are free in DRAM, and the plain file of a lent one is removed | no file |

pub(crate) mod departed;
pub(crate) mod held;
pub(crate) mod rename;
pub(crate) mod settle;
pub(crate) mod slots;

use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::file::FileIo;
use crate::format::entry::BLOCKS_MAX;
use crate::format::slot::{Identity, UNLINKING};
use crate::home::HomeFiles;
use crate::home::OpenMode;
use crate::home::{FileKind, Found, HomeHandle, HomeStat, Named};
use crate::homeward::Homeward;
use crate::known::files::Files;
use crate::known::{FileState, Placed};
use crate::ledger::Ledger;
use crate::lend::Lender;
use crate::mover::Mover;
use crate::names::departed::as_home_says;
use crate::names::slots::NoSlot;
use crate::planted::Planted;
use crate::profile::FileClass;
use crate::profile::Profile;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::tier::table::Wanted;
use departed::Departed;
use settle::{Settled, Unsettled};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use tiersmith_events::Registry;

/// The names of a home, and which of its files are in the tier.
pub(crate) struct Namespace {
    pub(crate) events: Registry,
    pub(crate) env: Arc<Environment>,
    pub(crate) homeward: Arc<Homeward>,
    pub(crate) files: Arc<Files>,
    pub(crate) mover: Arc<Mover>,
    pub(crate) io: Arc<FileIo>,
    pub(crate) lender: Arc<Lender>,
    pub(crate) tiers: Vec<Arc<Ledger>>,
    pub(crate) profile: Arc<Profile>,
    /// The files of home that are open.
    pub(crate) home_files: Arc<HomeFiles>,
    /// Device number of home: files of another file system mounted below it pass.
    pub(crate) dev: u64,
    /// User id of the owner of home's directory when it was attached.
    pub(crate) owner: u32,
    /// Renames, links and unlinks, openings and closings, one at a time: each looks before it acts.
    pub(crate) changing: Mutex<()>,
    /// Counts last handles that were closed, so that it can be told which file was closed longest
    /// ago.
    pub(crate) closes: AtomicU64,
    /// Files that left the tier a moment ago.
    pub(crate) departed: Mutex<Departed>,
    /// Files whose names wait for a sync.
    pub(crate) unsettled: Mutex<Unsettled>,
    /// Settling all names, one at a time: who finds none left must not return before they are
    /// durable.
    pub(crate) settling: Mutex<()>,
}

/// How far an opening came.
enum Opening {
    Opened(Arc<FileState>),
    /// Nothing is opened, and nothing made.
    Lacks(NoSlot),
}

impl Namespace {
    /// Changes of names: not of Tiersmith's own, and not on a home that was detached while the lock
    /// was waited for.
    pub(crate) fn may_name(&self, paths: &[&Path]) -> Result<()> {
        if self.env.is_closed() {
            return Err(Error::Detached);
        }
        match paths.iter().find(|p| crate::home::is_reserved(p)) {
            None => Ok(()),
            Some(path) => Err(Error::Invalid {
                what: "use the name",
                path: path.to_path_buf(),
                reason: "it is one of Tiersmith's own, which say that this home is attached".into(),
            }),
        }
    }

    pub(crate) fn link(&self, from: &Path, to: &Path) -> Result<()> {
        let _names = self.changing.lock();
        self.may_name(&[from, to])?;
        self.env.home.link(from, to).map_err(Error::io("cannot link", from))?;
        self.linked(Named::by_path(to))
    }

    pub(crate) fn link_open(&self, file: BorrowedFd<'_>, to: Named<'_>) -> Result<()> {
        let _names = self.changing.lock();
        self.may_name(&[to.path()])?;
        to.link(file).map_err(Error::io("cannot link to", to.path()))?;
        self.linked(to)
    }

    pub(crate) fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<FileState>> {
        self.open_or_made(path, mode, Settled::OnReturn)
    }

    /// [`Namespace::open`]; of a file that the caller has just made, its name may be durable later.
    pub(crate) fn open_or_made(
        &self,
        path: &Path,
        mode: OpenMode,
        name: Settled,
    ) -> Result<Arc<FileState>> {
        let mut wants_slot = true;
        loop {
            let lacks = match self.open_once(path, mode, wants_slot, name)? {
                Opening::Opened(file) => return Ok(file),
                Opening::Lacks(lacks) => lacks,
            };
            if let Err(e) = self.wait_for_slot(&lacks, path) {
                // A data file of a durable tier is refused: it is to be written whole, block by
                // block.
                if lacks.wanted.class == FileClass::Data && lacks.tier.holds_dirty() {
                    return Err(e);
                }
                wants_slot = false;
            }
        }
    }

    fn open_once(
        &self,
        path: &Path,
        mode: OpenMode,
        wants_slot: bool,
        name: Settled,
    ) -> Result<Opening> {
        let _names = self.changing.lock();
        self.may_name(&[path])?;
        self.env.usable()?;
        let made = mode.create && (mode.exclusive || self.is_missing(path));
        if made && wants_slot {
            // What is made here is ours; a door makes the files of its callers itself.
            let me = rustix::process::geteuid().as_raw();
            let lacks = self.lacks_slot(self.wanted(self.profile.placement(path).class, me));
            if let Some(lacks) = lacks
                && self.is_missing(path)
            {
                return Ok(Opening::Lacks(lacks));
            }
        }
        // A placed file is written by destaging, so home is opened for writing when it can be.
        let wide = OpenMode { read_only: false, ..mode };
        let (file, read_only) = match self.home_files.open(path, wide) {
            Err(_) if mode.read_only => (self.home_files.open(path, mode), true),
            other => (other, false),
        };
        let file = file.map_err(Error::io("cannot open", path))?;
        let stat = file.stat().map_err(Error::io("cannot stat", path))?;
        let known = self.files.get(stat.key());
        self.forget_departed(stat.key());
        if let Some(known) = known {
            let id = &known.identity;
            if stat.same_file(id.ino, id.generation, id.btime_ns) && !self.starts_anew(&known) {
                let without = known.placed.as_ref().filter(|p| !p.has_slot() && !mode.read_only);
                if !read_only {
                    known.home.widen(file);
                }
                if let Some(placed) = without {
                    let (tier, wanted) = (placed.tier.clone(), self.wanted(placed.class, stat.uid));
                    if !self.give_slot(&known, placed, path, wanted)? {
                        return Ok(Opening::Lacks(NoSlot { tier, wanted }));
                    }
                }
                known.handles.fetch_add(1, Ordering::AcqRel);
                *known.path.lock() = path.to_path_buf();
                known.treat_by(&self.env.options.cache, path);
                return Ok(Opening::Opened(known));
            }
            // Removed behind our back and its inode number used again; or it starts anew, and is
            // forgotten already.
            self.forget_replaced(&known)?;
        }
        // One that has bytes was not just made.
        let name = if stat.size == 0 { name } else { Settled::OnReturn };
        let found = Found { file, read_only, stat };
        let state = match self.new_state(path, found, mode.read_only, wants_slot, name) {
            Ok(Ok(state)) => Arc::new(state),
            Ok(Err(lacks)) => return Ok(Opening::Lacks(lacks)),
            Err(e) => return Err(if made { self.unmake(path, e) } else { e }),
        };
        state.treat_by(&self.env.options.cache, path);
        self.files.insert(state.clone());
        // Without a slot it is home's alone, and so is what makes its name durable.
        if name == Settled::AtSync && state.placed.as_ref().is_some_and(Placed::has_slot) {
            self.made_unsettled(&state);
        }
        Ok(Opening::Opened(state))
    }

    /// A file that was just made could not be opened, mostly because its directory could not be
    /// synced: whoever asked is told that there is none, so there is none.
    fn unmake(&self, path: &Path, e: Error) -> Error {
        if let Err(worse) = self.env.home.unlink(path) {
            log::warn!(
                "{} was made, and is said not to have been ({e}): it could not be removed again: \
                 {worse}",
                path.display()
            );
        }
        e
    }

    fn is_missing(&self, path: &Path) -> bool {
        self.env.home.stat(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
    }

    /// That there is no slot for such a file, if it needs one.
    fn lacks_slot(&self, wanted: Wanted) -> Option<NoSlot> {
        let tier = self.tier_of(wanted.class)?;
        let none = tier.table.lock().free_for(wanted) == 0;
        none.then(|| NoSlot { tier: tier.clone(), wanted })
    }

    /// Gives each file a slot by which the next attach sees that a server ran on the home without
    /// the tier. Before it has one, nothing of the home is newer in the tier.
    pub(crate) fn know_sentinels(&self) {
        for path in self.profile.sentinels() {
            match self.known(path) {
                Ok(known) => drop(known),
                Err(e) if e.errno() == rustix::io::Errno::NOENT.raw_os_error() => {}
                Err(e) => {
                    log::warn!("{e}; a server that runs without Tiersmith may not be noticed")
                }
            }
        }
    }

    /// Whether a file that changed its class with a rename, and is not open, went home and is known
    /// no more: it gets its new class then.
    fn starts_anew(&self, known: &Arc<FileState>) -> bool {
        let waits =
            known.replace.load(Ordering::Acquire) && known.handles.load(Ordering::Acquire) == 0;
        let Some(placed) = known.placed.as_ref().filter(|_| waits) else { return false };
        match self.leave_tier(known, placed) {
            Ok(()) => true,
            Err(e) => {
                log::warn!("{e}; the file keeps its class until it can be destaged");
                false
            }
        }
    }

    /// Everything of a file goes home, its times too, and its slot is freed. Nobody has it open.
    pub(crate) fn leave_tier(&self, file: &Arc<FileState>, placed: &Placed) -> Result<()> {
        self.bring_home(file, placed)?;
        self.lender.give_back_whole(file)?;
        let dirty = placed.map.counts().0;
        if dirty > 0 {
            return Err(
                file.invalid("take out of the tier", format!("{dirty} of its blocks are in use"))
            );
        }
        self.homeward.settle_times(file)?;
        let stat = file.home.stat().map_err(file.io("cannot stat"))?;
        placed.free_slot();
        self.remember_departed(&stat);
        self.files.remove(file);
        if placed.tier.is_ephemeral() {
            // Home may be written from now on without a look at the tier.
            self.homeward.word_is_kept(&placed.tier)?;
        }
        Ok(())
    }

    fn forget_replaced(&self, known: &Arc<FileState>) -> Result<()> {
        if let Some(placed) = known.placed.as_ref().filter(|p| !p.is_gone()) {
            let (dirty, _) = placed.map.counts();
            // Who has it open could still write to it. Its home file may be closed meanwhile, so
            // its inode number is free for another file.
            let is_open = known.handles.load(Ordering::Acquire) > 0;
            if dirty > 0 || placed.loan.is_lent() || is_open {
                let open =
                    if is_open { ", and a program still has the removed one open" } else { "" };
                return Err(Error::HomeChanged {
                    path: known.path.lock().clone(),
                    dirty_blocks: dirty,
                    how: format!("it was removed and another file has its inode number{open}"),
                    expected: None,
                });
            }
            placed.free_slot();
        }
        self.files.remove(known);
        Ok(())
    }

    /// What is known of a file from here on; or that it lacks a slot, unless it can do without
    /// (`wants_slot`, `read_only`: whether the caller only reads it).
    fn new_state(
        &self,
        path: &Path,
        found: Found,
        read_only: bool,
        wants_slot: bool,
        name: Settled,
    ) -> Result<std::result::Result<FileState, NoSlot>> {
        let stat = found.stat;
        let home = HomeHandle::new(&self.home_files, path, found);
        let placement = self.profile.placement(path);
        let tier = self.tier_of(placement.class);
        let block_size = crate::address::BlockSize::from_bytes(placement.block_size);
        let mut outside = false;
        let placed = match (tier, block_size, stat.kind) {
            (Some(_), Some(size), FileKind::Regular)
                if stat.size > BLOCKS_MAX * size.bytes() as u64 =>
            {
                log::warn!(
                    "{} is larger than a map can hold: it goes straight to home",
                    path.display()
                );
                outside = true;
                None
            }
            (Some(tier), Some(block_size), FileKind::Regular) if stat.dev == self.dev => {
                let identity = Identity {
                    ino: stat.ino,
                    generation: stat.generation,
                    btime_ns: stat.btime_ns,
                    class: placement.class,
                    block_size,
                };
                let wanted = self.wanted(placement.class, stat.uid);
                let lacks = self.lacks_slot(wanted);
                let settled = name == Settled::OnReturn;
                if lacks.is_none() && settled {
                    self.settle_name(path, || home.sync())?;
                }
                let stat = home.stat().map_err(Error::io("cannot stat", path))?;
                match lacks {
                    None => {
                        crate::names::slots::new_slot(tier, path, &identity, &stat, wanted, settled)
                    }
                    Some(_)
                        if wanted.class == FileClass::Data && tier.holds_dirty() && read_only =>
                    {
                        Some(crate::names::slots::without_slot(tier, &identity, &stat))
                    }
                    Some(lacks) if wants_slot => return Ok(Err(lacks)),
                    Some(_) => {
                        // Its name is as durable as that of a file with a slot.
                        if settled {
                            self.settle_name(path, || home.sync())?;
                        }
                        outside = true;
                        None
                    }
                }
            }
            _ => None,
        };
        let handles = AtomicUsize::new(1);
        Ok(Ok(FileState { handles, outside, ..FileState::new(home, stat, placed) }))
    }

    /// A handle was closed; with the last one an unlinked file goes away, and one that changed its
    /// class starts anew.
    pub(crate) fn close(&self, state: &Arc<FileState>) {
        let _names = self.changing.lock();
        if state.handles.fetch_sub(1, Ordering::AcqRel) > 1 || self.env.is_closed() {
            return;
        }
        state.closed_at.store(self.closes.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        match &state.placed {
            None => {
                self.files.remove(state);
            }
            // Before its removal is durable, the next sync frees it.
            Some(_) if state.unlinked.load(Ordering::Acquire) => {
                if state.removal_durable.load(Ordering::Acquire) {
                    self.free_removed(state);
                }
            }
            Some(placed) if !placed.has_slot() => {
                placed.free_slot();
                self.files.remove(state);
            }
            Some(placed) if state.replace.load(Ordering::Acquire) => {
                if let Err(e) = self.leave_tier(state, placed) {
                    log::warn!("{e}; the file keeps its class until it can be destaged");
                }
            }
            Some(_) => {}
        }
    }

    pub(crate) fn stat(&self, path: &Path) -> Result<HomeStat> {
        let stat = self.env.home.stat(path).map_err(Error::io("cannot stat", path))?;
        if let Some(file) = self.find(&stat) {
            return self.stat_of(&file);
        }
        Ok(match self.departed_since(stat.key(), &as_home_says(&stat)) {
            Some(left) => left.over(stat),
            None => stat,
        })
    }

    /// Home's attributes with the size and times that the tier knows.
    pub(crate) fn stat_of(&self, file: &FileState) -> Result<HomeStat> {
        let (stat, overlay) = self.homeward.overlay(file)?;
        Ok(overlay.map_or(stat, |seen| seen.over(stat)))
    }

    pub(crate) fn find(&self, stat: &HomeStat) -> Option<Arc<FileState>> {
        let known = self.files.get(stat.key())?;
        let id = &known.identity;
        stat.same_file(id.ino, id.generation, id.btime_ns).then_some(known)
    }

    /// The file at `path`, opened once if it is not known yet, so that pinning a file that nobody
    /// opened works.
    pub(crate) fn known(&self, path: &Path) -> Result<crate::names::held::Known<'_>> {
        Ok(crate::names::held::Known { names: self, state: self.open(path, OpenMode::WRITE)? })
    }

    pub(crate) fn unlink(&self, at: Named<'_>, settled: Settled) -> Result<()> {
        let gone = self.unlink_one(at, settled);
        self.settle_if_many();
        gone
    }

    fn unlink_one(&self, at: Named<'_>, settled: Settled) -> Result<()> {
        let path = at.path();
        let _names = self.changing.lock();
        self.may_name(&[path])?;
        let stat = at.stat(&*self.env.home).map_err(Error::io("cannot stat", path))?;
        let victim = self.find(&stat).filter(|_| stat.nlink <= 1);
        let settled = self.hold_open(victim.as_ref(), settled)?;
        let gone = self
            .before_last_name_goes(victim.as_ref())
            .and_then(|()| at.unlink(&*self.env.home).map_err(Error::io("cannot unlink", path)));
        if let Some(file) = self.find(&stat) {
            self.homeward.mark_changed(&file);
        }
        self.after_last_name_went(victim, at, gone, settled)
    }

    /// Before step 1: what loses its last name cannot be opened any more, so it stays open for
    /// those who use it. One that nobody uses and that cannot be opened must not wait for a sync
    /// with its blocks: another file could have its inode number by then.
    pub(crate) fn hold_open(
        &self,
        victim: Option<&Arc<FileState>>,
        settled: Settled,
    ) -> Result<Settled> {
        let Some(file) = victim else { return Ok(settled) };
        // The removal could not be announced.
        if let Some(placed) = &file.placed {
            self.homeward.word_is_kept(&placed.tier)?;
        }
        match file.home.keep(true) {
            Err(e) if file.handles.load(Ordering::Acquire) > 0 => Err(file.io("cannot open")(e)),
            Err(_) => Ok(Settled::OnReturn),
            Ok(()) => Ok(settled),
        }
    }

    /// Step 1. The name stays when the medium did not take that down: the next attach would miss
    /// a file that the tier has newer blocks of.
    pub(crate) fn before_last_name_goes(&self, victim: Option<&Arc<FileState>>) -> Result<()> {
        let Some(placed) = victim.and_then(|f| f.placed.as_ref()) else { return Ok(()) };
        if placed.tier.planted.is(Planted::UnlinkFreesFirst) {
            placed.free_slot();
            return Ok(());
        }
        if !placed.tier.planted.is(Planted::UnlinkUnsaid) {
            placed.set_flag(UNLINKING, true);
        }
        self.homeward.word_is_kept(&placed.tier)
    }

    /// Steps 3 to 5, or back to before step 1 when home refused.
    pub(crate) fn after_last_name_went(
        &self,
        victim: Option<Arc<FileState>>,
        at: Named<'_>,
        gone: Result<()>,
        settled: Settled,
    ) -> Result<()> {
        let Some(file) = victim else { return gone };
        if gone.is_err() {
            // To let it be closed cannot fail.
            let _ = file.home.keep(false);
        }
        let Some(placed) = &file.placed else { return gone };
        if let Err(e) = gone {
            // One that was just made may still be gone after a cut.
            placed.set_flag(UNLINKING, file.name.is_doubted());
            return Err(e);
        }
        *file.path.lock() = at.path().to_path_buf();
        file.unlinked.store(true, Ordering::Release);
        if settled == Settled::AtSync && !placed.tier.planted.is(Planted::RemovedFreedEarly) {
            self.removed_unsettled(&file, false);
            return Ok(());
        }
        // Until its directory is synced the name may come back with a power cut, and must find its
        // blocks: nothing is freed then, and the background tries again.
        if settled == Settled::OnReturn
            && let Err(e) = at.sync_dir(&*self.env.home)
        {
            self.removed_unsettled(&file, true);
            return Err(Error::io("cannot sync the directory of", at.path())(e));
        }
        file.removal_durable.store(true, Ordering::Release);
        self.free_removed(&file);
        Ok(())
    }

    /// Steps 4 and 5, if nobody has the file open: its removal is durable.
    pub(crate) fn free_removed(&self, file: &Arc<FileState>) {
        let Some(placed) = &file.placed else { return };
        if file.handles.load(Ordering::Acquire) == 0
            && self.files.remove(file)
            && !placed.tier.planted.is(Planted::UnlinkFreesFirst)
        {
            placed.free_slot();
        }
    }
}

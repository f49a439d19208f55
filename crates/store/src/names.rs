//! Opening, closing, renaming and removing files, and the slots of the file table.
//!
//! A file is known by its inode number, generation and birth time, so renaming and hard links keep its blocks, and an inode number
//! that is used again does not inherit them. The path in the slot is a hint.
//!
//! # Removing the last name of a file with a slot, and what a power cut leaves
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 1 | the state line gets the flag `unlinking`, then a fence | the file; recovery clears the flag |
//! | 2 | the name is removed (or replaced by a rename) at home | the file, or no file |
//! | 3 | home's directory is synced | no file: recovery finds the flag and no home file, and frees the slot |
//! | 4 | when no handle is open: records about the file are emptied, the slot becomes free, each with a fence | no file |
//! | 5 | its frames are free in DRAM, and the plain file of a lent one is removed | no file |

use crate::address::BlockIndex;
use crate::attached::{Inner, OpenMode};
use crate::door::times::Times;
use crate::error::{Error, Result};
use crate::file::latch::Latch;
use crate::file::map::FileMap;
use crate::file::{FileState, Meta, Placed};
use crate::format::entry::{BLOCKS_MAX, Entry, PAGE_WORDS, Place, seal, seal_value};
use crate::format::slot::{Identity, PINNED, ROOTS_AT, SLOT, StateLine, UNLINKING, encode_path};
use crate::home::{FileKind, Found, HomeHandle, HomeStat};
use crate::lend::Loan;
use crate::planted::Planted;
use crate::profile::FileClass;
use crate::tier::Tier;
use crate::tier::alloc::Purpose;
use parking_lot::Mutex;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

impl Inner {
    /// Changes of names: not of Tiersmith's own, and not on a home that was detached while the lock was waited for.
    pub(crate) fn may_name(&self, paths: &[&Path]) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
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
        let _names = self.names.lock();
        self.may_name(&[from, to])?;
        self.home.link(from, to).map_err(Error::io("cannot link", from))?;
        self.names_changed(to);
        Ok(())
    }

    pub(crate) fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<FileState>> {
        let _names = self.names.lock();
        self.may_name(&[path])?;
        self.usable()?;
        // A placed file is written by destaging, so home is opened for writing when it can be.
        let wide = OpenMode { read_only: false, ..mode };
        let (file, read_only) = match self.home_files.open(path, wide) {
            Err(_) if mode.read_only => (self.home_files.open(path, mode), true),
            other => (other, false),
        };
        let file = file.map_err(Error::io("cannot open", path))?;
        let stat = file.stat().map_err(Error::io("cannot stat", path))?;
        let known = self.files.lock().get(&stat.key()).cloned();
        if let Some(known) = known {
            let id = &known.identity;
            if stat.same_file(id.ino, id.generation, id.btime_ns) && !self.starts_anew(&known) {
                if !read_only {
                    known.home.widen(file);
                }
                known.handles.fetch_add(1, Ordering::AcqRel);
                *known.path.lock() = path.to_path_buf();
                return Ok(known);
            }
            // Removed behind our back and its inode number used again; or it starts anew, and is forgotten already.
            self.forget_replaced(&known)?;
        }
        let state = Arc::new(self.new_state(path, Found { file, read_only, stat })?);
        self.files.lock().insert(stat.key(), state.clone());
        Ok(state)
    }

    /// Whether a file that changed its class with a rename, and is not open, went home and is known no more: it gets its new class then.
    fn starts_anew(&self, known: &Arc<FileState>) -> bool {
        let waits = known.replace.load(Ordering::Acquire) && known.handles.load(Ordering::Acquire) == 0;
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
    fn leave_tier(&self, file: &Arc<FileState>, placed: &Placed) -> Result<()> {
        self.destage_file(file, u64::MAX)?;
        self.give_back_whole(file)?;
        let dirty = placed.map.counts().0;
        if dirty > 0 {
            return Err(file.invalid("take out of the tier", format!("{dirty} of its blocks are in use")));
        }
        self.settle_times(file)?;
        self.free_slot(placed);
        self.files.lock().remove(&file.identity.key());
        Ok(())
    }

    fn forget_replaced(&self, known: &Arc<FileState>) -> Result<()> {
        if let Some(placed) = known.placed.as_ref().filter(|p| !p.is_gone()) {
            let (dirty, _) = placed.map.counts();
            if dirty > 0 || placed.loan.is_lent() {
                return Err(Error::HomeChanged {
                    path: known.path.lock().clone(),
                    dirty_blocks: dirty,
                    how: "it was removed and another file has its inode number".into(),
                    expected: None,
                });
            }
            self.free_slot(placed);
        }
        self.files.lock().remove(&known.identity.key());
        Ok(())
    }

    fn new_state(&self, path: &Path, found: Found) -> Result<FileState> {
        let stat = found.stat;
        let home = HomeHandle::new(&self.home_files, path, found);
        let placement = self.profile.placement(path);
        let tier = self.tiers.iter().find(|t| match placement.class {
            FileClass::Redo => t.holds_redo,
            FileClass::Data => t.holds_data,
            FileClass::Pass => false,
        });
        let block_size = crate::address::BlockSize::from_bytes(placement.block_size);
        let placed = match (tier, block_size, stat.kind) {
            (Some(_), Some(size), FileKind::Regular) if stat.size > BLOCKS_MAX * size.bytes() as u64 => {
                log::warn!("{} is larger than a map can hold: it goes straight to home", path.display());
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
                // What the tier will hold newer blocks of must itself be there after a power cut.
                home.sync().map_err(Error::io("cannot sync", path))?;
                for name in path.ancestors().filter(|p| !p.as_os_str().is_empty()) {
                    self.home.sync_dir(name).map_err(Error::io("cannot sync the directory of", name))?;
                }
                let stat = home.stat().map_err(Error::io("cannot stat", path))?;
                new_slot(tier, path, &identity, &stat)
            }
            _ => None,
        };
        Ok(FileState {
            path: home.path(),
            identity: stat,
            home,
            placed,
            resizing: Mutex::new(()),
            handles: AtomicUsize::new(1),
            unlinked: AtomicBool::new(false),
            removal_durable: AtomicBool::new(false),
            replace: AtomicBool::new(false),
            ranging: Mutex::new(()),
        })
    }

    /// A handle was closed; with the last one an unlinked file goes away, and one that changed its class starts anew.
    pub(crate) fn close(&self, state: &Arc<FileState>) {
        let _names = self.names.lock();
        if state.handles.fetch_sub(1, Ordering::AcqRel) > 1 || self.closed.load(Ordering::Acquire) {
            return;
        }
        let key = state.identity.key();
        match &state.placed {
            None => {
                self.files.lock().remove(&key);
            }
            Some(_) if state.unlinked.load(Ordering::Acquire) => {
                if let Err(e) = self.finish_unlink(state) {
                    log::warn!("{e}; the blocks of the removed file stay until it can be synced");
                }
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
        let stat = self.home.stat(path).map_err(Error::io("cannot stat", path))?;
        match self.find(&stat) {
            Some(file) => self.stat_of(&file),
            None => Ok(stat),
        }
    }

    /// Home's attributes with the size and times that the tier knows.
    pub(crate) fn stat_of(&self, file: &FileState) -> Result<HomeStat> {
        let (mut stat, overlay) = self.overlay(file)?;
        if let Some(seen) = overlay {
            stat.size = seen.size;
            (stat.mtime_ns, stat.ctime_ns) = (seen.mtime.wrapped_ns(), seen.ctime.wrapped_ns());
        }
        Ok(stat)
    }

    pub(crate) fn find(&self, stat: &HomeStat) -> Option<Arc<FileState>> {
        let known = self.files.lock().get(&stat.key()).cloned()?;
        let id = &known.identity;
        stat.same_file(id.ino, id.generation, id.btime_ns).then_some(known)
    }

    /// The file at `path`, opened once if it is not known yet, so that pinning a file that nobody opened works.
    pub(crate) fn known(&self, path: &Path) -> Result<crate::handle::Known<'_>> {
        Ok(crate::handle::Known { inner: self, state: self.open(path, OpenMode::WRITE)? })
    }

    pub(crate) fn unlink(&self, path: &Path) -> Result<()> {
        let _names = self.names.lock();
        self.may_name(&[path])?;
        let stat = self.home.stat(path).map_err(Error::io("cannot stat", path))?;
        let victim = self.find(&stat).filter(|_| stat.nlink <= 1);
        self.hold_open(victim.as_ref())?;
        self.before_last_name_goes(victim.as_ref());
        let gone = self.home.unlink(path).map_err(Error::io("cannot unlink", path));
        if let Some(file) = self.find(&stat) {
            self.mark_changed(&file);
        }
        self.after_last_name_went(victim, path, gone)
    }

    /// Before step 1: what loses its last name cannot be opened any more, so it stays open for
    /// those who use it.
    pub(crate) fn hold_open(&self, victim: Option<&Arc<FileState>>) -> Result<()> {
        let Some(file) = victim else { return Ok(()) };
        match file.home.keep(true) {
            Err(e) if file.handles.load(Ordering::Acquire) > 0 => Err(file.io("cannot open")(e)),
            _ => Ok(()),
        }
    }

    /// Step 1.
    pub(crate) fn before_last_name_goes(&self, victim: Option<&Arc<FileState>>) {
        if let Some(placed) = victim.and_then(|f| f.placed.as_ref()) {
            if placed.tier.planted.is(Planted::UnlinkFreesFirst) {
                self.free_slot(placed);
                return;
            }
            self.set_flag(placed, UNLINKING, true);
        }
    }

    /// Steps 3 to 5, or back to before step 1 when home refused.
    pub(crate) fn after_last_name_went(
        &self,
        victim: Option<Arc<FileState>>,
        path: &Path,
        gone: Result<()>,
    ) -> Result<()> {
        let Some(file) = victim else { return gone };
        if gone.is_err() {
            // To let it be closed cannot fail.
            let _ = file.home.keep(false);
        }
        let Some(placed) = &file.placed else { return gone };
        if let Err(e) = gone {
            self.set_flag(placed, UNLINKING, false);
            return Err(e);
        }
        *file.path.lock() = path.to_path_buf();
        file.unlinked.store(true, Ordering::Release);
        self.finish_unlink(&file)
    }

    /// Steps 3 to 5 for a file whose last name is gone. Until its directory is synced the name may come back with a power cut, and must
    /// find its blocks: nothing is freed then, and the next close or background step tries again.
    fn finish_unlink(&self, file: &Arc<FileState>) -> Result<()> {
        let Some(placed) = &file.placed else { return Ok(()) };
        if !file.removal_durable.load(Ordering::Acquire) {
            let path = file.path.lock().clone();
            self.home.sync_dir(&path).map_err(Error::io("cannot sync the directory of", &path))?;
            file.removal_durable.store(true, Ordering::Release);
        }
        if file.handles.load(Ordering::Acquire) == 0
            && self.files.lock().remove(&file.identity.key()).is_some()
            && !placed.tier.planted.is(Planted::UnlinkFreesFirst)
        {
            self.free_slot(placed);
        }
        Ok(())
    }

    /// Removed files whose directory could not be synced.
    pub(crate) fn retry_unlinks(&self) -> Result<()> {
        let waiting =
            |f: &Arc<FileState>| f.unlinked.load(Ordering::Acquire) && f.handles.load(Ordering::Acquire) == 0;
        let files: Vec<_> = self.files.lock().values().filter(|f| waiting(f)).cloned().collect();
        if files.is_empty() {
            return Ok(());
        }
        let _names = self.names.lock();
        files.iter().filter(|f| waiting(f)).try_for_each(|f| self.finish_unlink(f))
    }

    fn set_flag(&self, placed: &Placed, flag: u64, on: bool) {
        let mut meta = placed.meta.lock();
        if on {
            meta.line.flags |= flag;
        } else {
            meta.line.flags &= !flag;
        }
        placed.write_line(&mut meta);
        placed.tier.fence();
    }

    /// Frees a file's slot, its blocks and its map pages.
    ///
    /// # Durability
    /// The slot is free, durable, before a frame is.
    pub(crate) fn free_slot(&self, placed: &Placed) {
        let tier = &placed.tier;
        let _sizing = placed.sizing.lock();
        let _moving = placed.moving.lock();
        if placed.gone.swap(true, Ordering::AcqRel) {
            return;
        }
        tier.forget_file(placed.id);
        let word = seal_value(tier.seed, 0, Place::Slot(placed.slot), 0);
        tier.store_word(crate::address::WordAt::new(0, tier.geometry.slot_at(placed.slot)), word);
        tier.fence();
        let mut frames = Vec::new();
        placed.map.for_each_leaf(|number, leaf| {
            for index in 0..PAGE_WORDS as usize {
                if leaf.get(index) == Entry::HOME {
                    continue;
                }
                // Somebody else may be evicting the same block: one of the two frees its frame.
                let _lane = tier.lock_lane(placed.id, BlockIndex(number * PAGE_WORDS + index as u64));
                frames.extend(leaf.get(index).held_frame());
                leaf.set(index, Entry::HOME);
            }
        });
        placed.evictions.fetch_add(1, Ordering::AcqRel);
        let purpose = Purpose::Blocks(placed.block_size);
        if placed.class == FileClass::Redo {
            tier.give_claimed(purpose, frames);
        } else {
            tier.allocator.give(purpose, frames);
        }
        tier.give_claimed(Purpose::Pages, placed.map.take_pages());
        self.forget_loan(placed);
        tier.slots.lock().give(placed.slot, placed.id);
    }

    /// Pins or unpins a file; see [`crate::AttachedHome::pin`].
    pub(crate) fn pin(&self, file: &FileState, on: bool) -> Result<()> {
        let Some(placed) = &file.placed else {
            return Err(file.invalid("pin", "its class is pass: it has no blocks in a tier"));
        };
        // One that is lent is on the tier's medium as a whole, and stays there.
        if on && !placed.loan.is_lent() {
            self.check_pin_fits(placed)?;
            let before = placed.pinned.swap(true, Ordering::AcqRel);
            if let Err(e) = self.bring_in(file, placed) {
                placed.pinned.store(before, Ordering::Release);
                return Err(e);
            }
        }
        self.set_flag(placed, PINNED, on);
        placed.pinned.store(on, Ordering::Release);
        Ok(())
    }

    /// An eighth of the tier must stay free of pins, or writers would have nothing to work with.
    fn check_pin_fits(&self, placed: &Placed) -> Result<()> {
        let frames = |p: &Placed| p.size().div_ceil(p.block_size.bytes() as u64) * p.block_size.frames();
        let pinned: u64 = self
            .all_files()
            .iter()
            .filter_map(|f| f.placed.as_ref())
            .filter(|p| {
                Arc::ptr_eq(&p.tier, &placed.tier) && p.pinned.load(Ordering::Acquire) && p.id != placed.id
            })
            .map(frames)
            .sum();
        let total = placed.tier.allocator.total_frames();
        let wanted = pinned + frames(placed);
        if wanted > total - total / 8 {
            return Err(self.full(
                &placed.tier,
                &format!("pinning would hold {wanted} of {total} frames, an eighth must stay free of pins"),
            ));
        }
        Ok(())
    }

    /// Reads every block that is only at home, which admits it.
    fn bring_in(&self, file: &FileState, placed: &Placed) -> Result<()> {
        let bytes = placed.block_size.bytes();
        let mut buffer = vec![0; bytes];
        for block in 0..placed.size().div_ceil(bytes as u64) {
            let block = BlockIndex(block);
            let mut turn = None;
            while placed.map.get(block) == Entry::HOME {
                let start = placed.block_size.start_of(block);
                if start >= placed.size() {
                    break;
                }
                if placed.class == FileClass::Redo {
                    let _sizing = placed.sizing.lock();
                    if placed.loan.is_lent() {
                        return Ok(());
                    }
                    self.own_redo_block(file, placed, block, None)?;
                    continue;
                }
                while !placed.map.make_leaf(&placed.tier, placed.id, placed.slot, block)? {
                    self.make_room(&placed.tier, Purpose::Pages, &mut turn)?;
                }
                let evictions = placed.evictions.load(Ordering::Acquire);
                self.read_home_block(file, placed, start, &mut buffer)?;
                if !self.admit_block(placed, block, &buffer, evictions) {
                    self.make_room(&placed.tier, Purpose::Blocks(placed.block_size), &mut turn)?;
                }
            }
        }
        Ok(())
    }
}

/// Takes a free slot for a file and makes it durable. `None` (the file then goes straight to home) when the file table is full.
fn new_slot(tier: &Arc<Tier>, path: &Path, identity: &Identity, stat: &HomeStat) -> Option<Placed> {
    let (slot, id) = {
        let Some(numbers) = tier.slots.lock().take() else {
            log::warn!(
                "the file table of tier `{}` is full: {} goes straight to home; attach with more slots",
                tier.name,
                path.display()
            );
            return None;
        };
        numbers
    };
    let line = StateLine {
        seq: 1,
        size: stat.size,
        flags: 0,
        home_size: stat.size,
        home_mtime_ns: stat.mtime_ns,
        since_ns: 0,
        mtime: 0,
    };
    let mut bytes = vec![0; SLOT];
    bytes[16..64].copy_from_slice(&identity.encode(tier.seed, id));
    for (n, place) in [Place::Leaf(0), Place::Middle(0), Place::Top].into_iter().enumerate() {
        let at = ROOTS_AT as usize + n * 8;
        bytes[at..at + 8].copy_from_slice(&seal(tier.seed, id, place, Entry::HOME).to_le_bytes());
    }
    let at = line.at() as usize;
    bytes[at..at + 128].copy_from_slice(&line.encode_pair(tier.seed, id));
    let hint = encode_path(path.as_os_str().as_bytes(), tier.seed, id);
    bytes[SLOT - hint.len()..].copy_from_slice(&hint);
    let base = tier.geometry.slot_at(slot);
    let in_use = crate::address::WordAt::new(0, base);
    let word = seal_value(tier.seed, 0, Place::Slot(slot), id);
    if tier.planted.is(Planted::SlotInUseFirst) {
        tier.store_word(in_use, word);
        tier.fence();
    }
    tier.mapping(0).nt_write(base + 16, &bytes[16..]);
    tier.fence();
    tier.store_word(in_use, word);
    tier.fence();
    let meta = Meta { line, ..Meta::default() };
    Some(placed(tier, id, slot, identity, meta, FileMap::default()))
}

/// A file's part in the tier, in DRAM.
pub(crate) fn placed(
    tier: &Arc<Tier>,
    id: u64,
    slot: u64,
    identity: &Identity,
    meta: Meta,
    map: FileMap,
) -> Placed {
    let ahead = map.counts().0 > 0;
    Placed {
        tier: tier.clone(),
        id,
        slot,
        class: identity.class,
        block_size: identity.block_size,
        map,
        size: AtomicU64::new(meta.line.size),
        sizing: Latch::new(()),
        growing: AtomicU64::new(0),
        moving: Mutex::new(()),
        evictions: AtomicU64::new(0),
        pinned: AtomicBool::new(meta.line.flags & PINNED != 0),
        cutting: AtomicBool::new(false),
        gone: AtomicBool::new(false),
        times: Times::of(&meta.line, tier.durable && ahead),
        loan: Loan::default(),
        meta: Latch::new(meta),
    }
}

/// Rewrites the path hint. A cut leaves no hint, and the file is then found by its inode number.
pub(crate) fn write_path(placed: &Placed, path: &Path) {
    let hint = encode_path(path.as_os_str().as_bytes(), placed.tier.seed, placed.id);
    let at = placed.tier.geometry.slot_at(placed.slot) + SLOT as u64 - hint.len() as u64;
    placed.tier.mapping(0).nt_write(at, &hint);
    placed.tier.fence();
}

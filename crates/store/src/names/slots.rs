//! Slots of the file table: taking one, giving back those of files that nobody uses, and waiting
//! for one.
//!
//! A file has its slot for as long as the tier may hold a block of it, so an open file always has
//! one. When the table is short, files that nobody has open leave the tier, those first that home
//! has already and that were closed longest ago; before that the table grows while the tier has
//! room. In the background that begins when an eighth of the slots is left; who finds none left
//! does it, and waits, with the event `file slot waits`.
//!
//! # A file that leaves the tier, and what a power cut leaves
//!
//! | step | what is done | a cut after it leaves |
//! |---|---|---|
//! | 1 | a cut that home refused is finished, dirty blocks go home, home is synced | the file, clean |
//! | 2 | home gets the times that programs saw, and is synced | the same |
//! | 3 | with `changing` held: nobody has opened or changed it meanwhile, else it stays | the same |
//! | 4 | records about the file are emptied, the slot becomes free, each with a fence | a file at home |
//! | 5 | the frames of its clean copies and map pages are free in DRAM | the same |
//!
//! # When there is no slot
//! | file | what happens |
//! |---|---|
//! | redo | it goes straight home: its own format finds a torn tail. [`crate::Stats`] says so |
//! | data, opened for reading only | it is read from home; who opens it for writing needs a slot |
//! | data, on a tier that holds clean copies only | it goes straight home, as all writes do there |
//! | data, else | [`Error::FileTableFull`]: nothing of it is written without being atomic |
//!
//! A file of a guest finds none earlier: who may make files in a mount must not be able to fill the
//! table for the home's owner. A guest's file belongs neither to the owner of the home's directory
//! nor to root; in a home that is root's, nobody is a guest.
//!
//! Stays in the tier whatever happens: a file that is open, pinned, lent, or removed and not
//! durably so; and a sentinel, by which the next attach sees that a server ran without the tier.
//!
//! # Locks
//! A tier's `making_slots`, then `changing`, then those of a file ([`crate::file`]). A tier's
//! `table` is taken last, for a look or a change in DRAM.

use super::Namespace;
use crate::error::{Error, Result};
use crate::format::slot::{DESTAGING, Identity, StateLine, UNLINKING};
use crate::home::{Home, HomeStat};
use crate::known::{FileState, Meta, Placed};
use crate::ledger::Ledger;
use crate::options::TierSpec;
use crate::planted::Planted;
use crate::profile::{FileClass, Profile};
use crate::tier::table::{Refused, Wanted};
use crate::waits;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long an opening waits for a slot. A redo file can do without, and a commit waits for it.
const WAIT: Duration = Duration::from_secs(10);
const WAIT_REDO: Duration = Duration::from_secs(1);
/// The same when another has just waited in vain: of many that open files not each waits in full.
const WAIT_AGAIN: Duration = Duration::from_millis(200);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(2);
/// Files that leave at a time when somebody waits, and in a step of the background.
const AT_ONCE: u64 = 64;
const IN_A_STEP: u64 = 256;
/// The background does not look again for so long when no file could leave.
const AFTER_VAIN: Duration = Duration::from_secs(1);

/// Files of a home by the class of their names, without those that pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileCounts {
    pub(crate) redo: u64,
    pub(crate) data: u64,
}

impl FileCounts {
    /// Counts them: a walk over the home.
    pub(crate) fn of(home: &dyn Home, profile: &Profile) -> Result<Self> {
        let mut counts = Self::default();
        let walked = home.walk(&mut |path, _| {
            match profile.placement(path).class {
                FileClass::Redo => counts.redo += 1,
                FileClass::Data => counts.data += 1,
                FileClass::Pass => {}
            }
            Ok(())
        });
        walked.map_err(Error::io("cannot walk", ""))?;
        Ok(counts)
    }

    /// Those for a tier.
    pub(crate) fn for_tier(self, spec: &TierSpec) -> u64 {
        u64::from(spec.holds_redo) * self.redo + u64::from(spec.holds_data) * self.data
    }
}

/// What an opening lacks.
pub(crate) struct NoSlot {
    pub(crate) tier: Arc<Ledger>,
    pub(crate) wanted: Wanted,
}

impl Namespace {
    /// The tier that a file of this class belongs to.
    pub(crate) fn tier_of(&self, class: FileClass) -> Option<&Arc<Ledger>> {
        self.tiers.iter().find(|t| match class {
            FileClass::Redo => t.holds_redo,
            FileClass::Data => t.holds_data,
            FileClass::Pass => false,
        })
    }

    /// What a slot is wanted for, for a file of this class and owner.
    pub(crate) fn wanted(&self, class: FileClass, uid: u32) -> Wanted {
        Wanted { class, guest: self.owner != 0 && uid != 0 && uid != self.owner }
    }

    /// Returns when a slot for such a file is free. Others may take it first. The caller
    /// holds no lock.
    ///
    /// # Errors
    /// [`Error::FileTableFull`], with what home said if that is why.
    pub(crate) fn wait_for_slot(&self, lacks: &NoSlot, path: &Path) -> Result<()> {
        let NoSlot { tier, wanted } = lacks;
        let wanted = *wanted;
        let start = self.events.start();
        let began = Instant::now();
        let again = || {
            let mut table = tier.table.lock();
            table.refused_as(wanted.guest).as_ref().is_some_and(|r| r.at.elapsed() < WAIT)
        };
        let patience = match wanted.class {
            _ if again() => WAIT_AGAIN,
            FileClass::Redo => WAIT_REDO,
            _ => WAIT,
        };
        let has_slot = || tier.table.lock().free_for(wanted) > 0;
        // Once, and not where that was just tried: it sends everything home that can go. That
        // somebody was just refused says nothing: of many openings each may come soon after
        // another.
        let mut may_empty_tier = true;
        let just_tried = || tier.table.lock().emptied.is_some_and(|at| at.elapsed() < WAIT);
        let result = loop {
            let why = {
                let left = patience.saturating_sub(began.elapsed());
                let Some(_turn) = tier.making_slots.try_lock_for(left) else {
                    let why =
                        "another opening has waited longer for home to take blocks of closed files";
                    break Err(self.table_full(lacks, path, Some(why.into())));
                };
                if has_slot() || (tier.may_grow_table_for(wanted, true) && tier.grow_table()) {
                    break Ok(());
                }
                // Removed files keep theirs until they are durably so.
                let unsettled = self.settle_all().err();
                if unsettled.is_none() && has_slot() {
                    break Ok(());
                }
                let (left, failed) = self.recycle(tier, AT_ONCE);
                let full = left == 0 && may_empty_tier && !just_tried();
                may_empty_tier &= !full;
                if has_slot() || (full && self.grow_table_in_turn(tier, wanted)) {
                    break Ok(());
                }
                failed.or(unsettled).map(|e| e.to_string())
            };
            if began.elapsed() >= patience {
                break Err(self.table_full(lacks, path, why));
            }
            crate::sync::sleep(PAUSE);
        };
        let _ = self.events.record(waits::SLOT_WAIT, start);
        if let Err(e) = &result {
            self.note_refused(tier, wanted, e);
        }
        result
    }

    fn table_full(&self, lacks: &NoSlot, path: &Path, why: Option<String>) -> Error {
        let tier = &lacks.tier;
        let open =
            self.files.on(tier).iter().filter(|f| f.handles.load(Ordering::Acquire) > 0).count();
        let counts = tier.table_counts();
        let kept = lacks.wanted.guest.then(|| {
            let kept = counts.not_guests;
            format!(
                "{kept} are kept for redo and for files of the home's owner, and this file is \
                 another user's"
            )
        });
        let why: Vec<String> = kept.into_iter().chain(why).collect();
        Error::FileTableFull {
            path: path.to_path_buf(),
            tier: tier.name.clone(),
            slots: counts.slots,
            open: open as u64,
            why: if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) },
        }
    }

    /// In the log once, until a file has got a slot again: a database without slots opens files by
    /// the thousand.
    fn note_refused(&self, tier: &Ledger, wanted: Wanted, error: &Error) {
        let message = error.to_string();
        let mut table = tier.table.lock();
        let refused = table.refused_as(wanted.guest);
        if refused.is_none() {
            log::error!("{message}");
        }
        *refused = Some(Refused { at: Instant::now(), class: wanted.class, message });
    }

    /// Makes the table larger although the tier has no room to spare: what is in a whole unit goes
    /// home.
    fn grow_table_in_turn(&self, tier: &Arc<Ledger>, wanted: Wanted) -> bool {
        if !tier.may_grow_table_for(wanted, false) {
            return false;
        }
        tier.table.lock().emptied = Some(Instant::now());
        let mut turn = None;
        let room = self.mover.make_room_until(
            tier,
            tier.geometry.unit_frames(),
            &|| tier.allocator.has_unit(),
            &mut turn,
        );
        let grown = room.is_ok() && tier.grow_table();
        if grown {
            tier.table.lock().emptied = None;
        }
        grown
    }

    /// The background's part: keeps an eighth of the slots free.
    pub(crate) fn keep_slots(&self, tier: &Arc<Ledger>) -> Result<()> {
        let wanted = {
            let table = tier.table.lock();
            let waits = table.in_vain.is_some_and(|at| at.elapsed() < AFTER_VAIN);
            let free = table.free_for(Wanted { class: FileClass::Data, guest: false });
            if waits || free >= table.len() / 8 {
                return Ok(());
            }
            table.len() / 4 - free
        };
        let Some(_turn) = tier.making_slots.try_lock() else { return Ok(()) };
        if tier.may_grow_table(true) && tier.grow_table() {
            return Ok(());
        }
        let (left, failed) = self.recycle(tier, wanted.min(IN_A_STEP));
        tier.table.lock().in_vain = (left == 0).then(Instant::now);
        failed.map_or(Ok(()), Err)
    }

    /// Lets up to `most` files leave the tier that nobody has open. Returns how many left, and what
    /// home said if it refused some.
    fn recycle(&self, tier: &Arc<Ledger>, most: u64) -> (u64, Option<Error>) {
        let mut idle: Vec<(bool, u64, Arc<FileState>)> = Vec::new();
        for file in self.files.on(tier) {
            if let Some(placed) = file.placed.as_ref().filter(|p| p.has_slot())
                && self.may_leave(&file, placed)
            {
                let dirty = placed.map.counts().0 > 0;
                idle.push((dirty, file.closed_at.load(Ordering::Relaxed), file));
            }
        }
        idle.sort_by_key(|(dirty, closed, file)| {
            let keeping = file.placed.as_ref().map(|placed| placed.keeping());
            (keeping, *dirty, *closed, file.identity.ino)
        });
        let (mut left, mut failed) = (0, None);
        for (_, _, file) in idle {
            if left >= most {
                break;
            }
            match self.let_leave(&file) {
                Ok(true) => left += 1,
                Ok(false) => {}
                Err(e) => failed = Some(e),
            }
        }
        self.events.count(waits::RECYCLED, left);
        (left, failed)
    }

    /// Whether a file can do without the tier.
    fn may_leave(&self, file: &FileState, placed: &Placed) -> bool {
        file.handles.load(Ordering::Acquire) == 0
            && !file.unlinked.load(Ordering::Acquire)
            && !placed.stay.stays()
            && !placed.loan.is_lent()
            && !self.profile.sentinels().contains(&file.path.lock())
    }

    /// `false` when somebody uses the file again.
    fn let_leave(&self, file: &Arc<FileState>) -> Result<bool> {
        let Some(placed) = &file.placed else { return Ok(false) };
        if placed.tier.planted.is(Planted::SlotFreedBeforeHome) {
            return self.leave_before_home(file, placed).map(|()| true);
        }
        // Steps 1 and 2 without `changing`: home may be slow, and nobody else could open a file
        // meanwhile.
        self.bring_home(file, placed)?;
        let _names = self.changing.lock();
        if self.env.is_closed() || placed.is_gone() || !self.may_leave(file, placed) {
            return Ok(false);
        }
        self.leave_tier(file, placed)?;
        Ok(true)
    }

    /// Steps 1 and 2.
    pub(crate) fn bring_home(&self, file: &FileState, placed: &Placed) -> Result<()> {
        {
            let _sizing = placed.sizing.lock();
            self.io.finish_earlier_cut(file, placed)?;
        }
        self.mover.destage_file(file, u64::MAX)?;
        if placed.tier.is_ephemeral() {
            self.homeward.take_stamp(file, placed)?;
        } else {
            // Space was reserved at home, and no sync was waited for: nobody would settle it later.
            let _moving = placed.moving.lock();
            let mut meta = placed.meta.lock();
            if meta.line.flags & DESTAGING != 0 && placed.has_slot() && !placed.is_gone() {
                file.home.sync().map_err(file.io("cannot sync"))?;
                self.homeward.fingerprint(file, placed, &mut meta)?;
            }
        }
        self.homeward.settle_times(file)
    }

    /// [`Planted::SlotFreedBeforeHome`].
    fn leave_before_home(&self, file: &Arc<FileState>, placed: &Placed) -> Result<()> {
        let _names = self.changing.lock();
        let mut bytes = vec![0; placed.size() as usize];
        self.io.read(file, 0, &mut bytes)?;
        placed.free_slot();
        file.home.write_at(0, &bytes).map_err(file.io("cannot write"))?;
        file.home.sync().map_err(file.io("cannot sync"))?;
        self.files.remove(file);
        Ok(())
    }

    /// Gives a file that was opened for reading without a slot one, before it is written. `false`:
    /// there is none.
    ///
    /// # Durability
    /// The slot is durable on return.
    pub(crate) fn give_slot(
        &self,
        file: &FileState,
        placed: &Placed,
        path: &Path,
        wanted: Wanted,
    ) -> Result<bool> {
        self.settle_name(path, || file.home.sync())?;
        let mut meta = placed.meta.lock();
        let stat = file.home.stat().map_err(file.io("cannot stat"))?;
        let Some(number) = placed.tier.table.lock().take(wanted) else { return Ok(false) };
        meta.line = first_line(&stat);
        placed.size.store(stat.size, Ordering::Release);
        let identity = identity_of(&stat, placed);
        let slot = placed.tier.fill_slot(number, placed.id, path, &identity, &meta.line);
        let _ = placed.slot.set(slot);
        Ok(true)
    }

    /// What the tier will hold newer blocks of must itself be there after a power cut.
    pub(crate) fn settle_name(
        &self,
        path: &Path,
        sync: impl FnOnce() -> std::io::Result<()>,
    ) -> Result<()> {
        sync().map_err(Error::io("cannot sync", path))?;
        for name in path.ancestors().filter(|p| !p.as_os_str().is_empty()) {
            self.env
                .home
                .sync_dir(name)
                .map_err(Error::io("cannot sync the directory of", name))?;
        }
        Ok(())
    }
}

fn identity_of(stat: &HomeStat, placed: &Placed) -> Identity {
    Identity {
        ino: stat.ino,
        generation: stat.generation,
        btime_ns: stat.btime_ns,
        class: placed.class,
        block_size: placed.block_size,
    }
}

fn first_line(stat: &HomeStat) -> StateLine {
    StateLine {
        seq: 1,
        size: stat.size,
        flags: 0,
        home_size: stat.size,
        home_mtime_ns: stat.mtime_ns,
        since_ns: 0,
        mtime: 0,
    }
}

/// Takes a free slot for a file and makes it durable. `None` when there is none for it. `settled`:
/// whether the file's name is durable; if not, the slot says that there may be no file.
pub(crate) fn new_slot(
    tier: &Arc<Ledger>,
    path: &Path,
    identity: &Identity,
    stat: &HomeStat,
    wanted: Wanted,
    settled: bool,
) -> Option<Placed> {
    let (number, id) = {
        let mut table = tier.table.lock();
        (table.take(wanted)?, table.new_id())
    };
    let mut line = first_line(stat);
    if !settled && !tier.planted.is(Planted::MadeUndoubted) {
        line.flags |= UNLINKING;
    }
    let slot = tier.fill_slot(number, id, path, identity, &line);
    let meta = Meta { line, ..Meta::default() };
    Some(Placed::new(tier, id, Some(slot), identity, meta, Default::default()))
}

/// A file that is only read, from home, until it gets a slot ([`Namespace::give_slot`]).
pub(crate) fn without_slot(tier: &Arc<Ledger>, identity: &Identity, stat: &HomeStat) -> Placed {
    let id = tier.table.lock().new_id();
    let meta = Meta { line: first_line(stat), ..Meta::default() };
    Placed::new(tier, id, None, identity, meta, Default::default())
}

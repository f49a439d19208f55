//! Which frames are free: a set in DRAM, rebuilt from the maps at every open, never written to the
//! medium.
//!
//! A unit serves one purpose at a time: map pages, blocks of one size, or the file table, which
//! keeps it. A unit whose blocks are all free again can be given another purpose when the free
//! lists of that one are empty. The allocator's mutex is off the overwrite path: a lane keeps a few
//! free blocks of its own ([`crate::ledger::lanes`]) and comes here for several at a time.
//!
//! Whoever waits for room reserves what becomes free ([`Allocator::reserve_for`]); without that,
//! others would take it before the one who waits has a look, and a tier of few units could be
//! called full while megabytes of it are free.
//!
//! A unit lies on one member, and is given to what that member holds only ([`Role`]): metadata and
//! blocks never share a unit.
//!
//! **Invariant**: frames given out, plus frames in the lists, plus frames of free units, are all
//! frames of the tier.

use super::Role;
use super::geometry::Geometry;
use crate::address::{BlockSize, Frame};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::thread::{self, ThreadId};

/// What a unit is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Map pages and batch overflow pages, a frame each.
    Pages,
    /// Blocks of one size.
    Blocks(BlockSize),
    /// Slots of the file table: the whole unit, for good.
    Table,
}

impl std::fmt::Display for Purpose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Purpose::Pages => f.write_str("map pages"),
            Purpose::Table => f.write_str("slots of the file table"),
            Purpose::Blocks(size) => write!(f, "blocks of {} bytes", size.bytes()),
        }
    }
}

impl Purpose {
    const COUNT: usize = 6;

    fn list(self) -> usize {
        match self {
            Purpose::Pages => 4,
            Purpose::Table => 5,
            Purpose::Blocks(size) => size.class(),
        }
    }

    pub(crate) fn frames(self) -> u64 {
        match self {
            Purpose::Pages | Purpose::Table => 1,
            Purpose::Blocks(size) => size.frames(),
        }
    }
}

#[derive(Clone, Copy)]
struct Unit {
    purpose: Option<Purpose>,
    /// Pieces of this unit that lie in a free list.
    free: u32,
}

/// For whom free pieces are kept.
struct Reservation {
    thread: ThreadId,
    /// `None`: everything is.
    purpose: Option<Purpose>,
}

struct Lists {
    units: Vec<Unit>,
    free_units: Vec<u64>,
    free: [Vec<Frame>; Purpose::COUNT],
    reserved: Option<Reservation>,
}

/// The free frames of one tier.
pub(crate) struct Allocator {
    lists: Mutex<Lists>,
    unit_frames: u64,
    /// Of the members, in their order.
    roles: Box<[Role]>,
    free_frames: AtomicU64,
    total_frames: AtomicU64,
}

/// Collects, while the maps are read at open, which frames are in use; then becomes the allocator.
pub(crate) struct Census {
    unit_frames: u64,
    roles: Box<[Role]>,
    used: Vec<u64>,
    purposes: Vec<Option<Purpose>>,
}

impl Census {
    pub(crate) fn new(geometry: &Geometry, len: u64) -> Self {
        let units = geometry.units(len);
        let frames = units * geometry.unit_frames();
        Self {
            unit_frames: geometry.unit_frames(),
            roles: geometry.roles.clone(),
            used: vec![0; frames.div_ceil(64) as usize],
            purposes: vec![None; units as usize],
        }
    }

    /// Counts the frames of a piece as used; the error says why it cannot be.
    pub(crate) fn claim(&mut self, frame: Frame, purpose: Purpose) -> Result<(), String> {
        let count = purpose.frames();
        let total = self.purposes.len() as u64 * self.unit_frames;
        if frame.0 + count > total {
            return Err(format!("it points to frame {}, the tier has {total}", frame.0));
        }
        if !frame.0.is_multiple_of(count) {
            return Err(format!(
                "it points to frame {}, which is not a multiple of {count}",
                frame.0
            ));
        }
        let unit = (frame.0 / self.unit_frames) as usize;
        let role = self.roles[unit % self.roles.len()];
        if !role.holds(purpose) {
            return Err(format!("it points into unit {unit}, whose member holds no {purpose}"));
        }
        match self.purposes[unit] {
            None => self.purposes[unit] = Some(purpose),
            Some(p) if p == purpose => {}
            Some(p) => {
                return Err(format!("it points into unit {unit}, which holds {p}, not {purpose}"));
            }
        }
        for f in frame.0..frame.0 + count {
            let (word, bit) = ((f / 64) as usize, 1u64 << (f % 64));
            if self.used[word] & bit != 0 {
                return Err(format!("it points to frame {f}, to which another entry points too"));
            }
            self.used[word] |= bit;
        }
        Ok(())
    }

    pub(crate) fn into_allocator(self) -> Allocator {
        let alloc = Allocator {
            lists: Mutex::new(Lists {
                units: Vec::new(),
                free_units: Vec::new(),
                free: Default::default(),
                reserved: None,
            }),
            unit_frames: self.unit_frames,
            roles: self.roles,
            free_frames: AtomicU64::new(0),
            total_frames: AtomicU64::new(0),
        };
        {
            let mut lists = alloc.lists.lock();
            let mut free_frames = 0;
            for (n, purpose) in self.purposes.iter().enumerate() {
                let mut unit = Unit { purpose: *purpose, free: 0 };
                let first = n as u64 * self.unit_frames;
                if let Some(purpose) = *purpose {
                    for piece in (0..self.unit_frames).step_by(purpose.frames() as usize) {
                        let f = first + piece;
                        if self.used[(f / 64) as usize] & 1 << (f % 64) == 0 {
                            lists.free[purpose.list()].push(Frame(f));
                            unit.free += 1;
                            free_frames += purpose.frames();
                        }
                    }
                } else {
                    lists.free_units.push(n as u64);
                    free_frames += self.unit_frames;
                }
                lists.units.push(unit);
            }
            // Lowest units first, so that a small database stays together.
            lists.free_units.reverse();
            for list in &mut lists.free {
                list.reverse();
            }
            alloc.free_frames.store(free_frames, Ordering::Relaxed);
            alloc
                .total_frames
                .store(self.purposes.len() as u64 * self.unit_frames, Ordering::Relaxed);
        }
        alloc
    }
}

impl Allocator {
    /// Keeps free pieces for this thread until [`Allocator::end_reservation`]: those for `purpose`,
    /// and free units; with `None` everything. Others are told that there are none. One reservation
    /// at a time; a new one replaces it.
    pub(crate) fn reserve_for(&self, purpose: Option<Purpose>) {
        self.lists.lock().reserved = Some(Reservation { thread: thread::current().id(), purpose });
    }

    /// Free pieces are everybody's again.
    pub(crate) fn end_reservation(&self) {
        self.lists.lock().reserved = None;
    }

    /// Takes up to `count` free pieces; fewer (or none) when there are no more, or when they are
    /// kept for another thread.
    pub(crate) fn take(&self, purpose: Purpose, count: usize, into: &mut Vec<Frame>) {
        let mut lists = self.lists.lock();
        let others = lists.reserved.as_ref().filter(|r| r.thread != thread::current().id());
        let (pieces_kept, units_kept) =
            others.map_or((false, false), |r| (r.purpose.is_none_or(|kept| kept == purpose), true));
        if pieces_kept {
            return;
        }
        let list = purpose.list();
        let mut taken = 0;
        while taken < count {
            if let Some(frame) = lists.free[list].pop() {
                let unit = (frame.0 / self.unit_frames) as usize;
                lists.units[unit].free -= 1;
                into.push(frame);
                taken += 1;
            } else if units_kept || !self.give_unit(&mut lists, purpose) {
                break;
            }
        }
        self.free_frames.fetch_sub(taken as u64 * purpose.frames(), Ordering::Relaxed);
    }

    /// Whether a whole unit is free for this thread.
    pub(crate) fn has_unit(&self) -> bool {
        let lists = self.lists.lock();
        let others = lists.reserved.as_ref().is_some_and(|r| r.thread != thread::current().id());
        let free = lists.free_units.iter().any(|unit| self.role_of(*unit).holds(Purpose::Table));
        !others && (free || self.freed_unit(&lists, Purpose::Table).is_some())
    }

    /// Takes a whole unit for the file table; `None` when there is none, or when it is kept for
    /// another thread.
    pub(crate) fn take_unit(&self) -> Option<u64> {
        let mut lists = self.lists.lock();
        let others = lists.reserved.as_ref().is_some_and(|r| r.thread != thread::current().id());
        if others || !self.give_unit(&mut lists, Purpose::Table) {
            return None;
        }
        let frames = std::mem::take(&mut lists.free[Purpose::Table.list()]);
        let unit = frames.first()?.0 / self.unit_frames;
        lists.units[unit as usize].free = 0;
        self.free_frames.fetch_sub(self.unit_frames, Ordering::Relaxed);
        Some(unit)
    }

    /// Puts back a unit that was not used after all. It is the last to be taken again.
    pub(crate) fn give_unit_back(&self, unit: u64) {
        let mut lists = self.lists.lock();
        lists.units[unit as usize] = Unit { purpose: None, free: 0 };
        lists.free_units.insert(0, unit);
        self.free_frames.fetch_add(self.unit_frames, Ordering::Relaxed);
    }

    /// What the member of a unit holds.
    fn role_of(&self, unit: u64) -> Role {
        self.roles[(unit % self.roles.len() as u64) as usize]
    }

    /// A unit of another purpose that is free as a whole.
    fn freed_unit(&self, lists: &Lists, purpose: Purpose) -> Option<usize> {
        (0..lists.units.len()).find(|n| {
            let unit = lists.units[*n];
            let fits = self.role_of(*n as u64).holds(purpose);
            fits && unit.purpose.is_some_and(|p| {
                p != purpose && u64::from(unit.free) * p.frames() == self.unit_frames
            })
        })
    }

    /// Gives a free unit, or one that has become free, to `purpose`.
    fn give_unit(&self, lists: &mut Lists, purpose: Purpose) -> bool {
        let free = lists.free_units.iter().rposition(|unit| self.role_of(*unit).holds(purpose));
        let unit = match free {
            Some(at) => lists.free_units.remove(at),
            None => {
                let Some(unit) = self.freed_unit(lists, purpose) else { return false };
                let old =
                    lists.units[unit].purpose.expect("BUG: a unit found by its purpose has one");
                let (unit_frames, unit) = (self.unit_frames, unit as u64);
                lists.free[old.list()].retain(|f| f.0 / unit_frames != unit);
                unit
            }
        };
        let first = unit * self.unit_frames;
        let count = self.unit_frames / purpose.frames();
        let pieces = (0..count).rev().map(|n| Frame(first + n * purpose.frames()));
        let before = lists.free[purpose.list()].len();
        lists.free[purpose.list()].extend(pieces);
        let free = (lists.free[purpose.list()].len() - before) as u32;
        lists.units[unit as usize] = Unit { purpose: Some(purpose), free };
        true
    }

    /// Puts pieces back.
    pub(crate) fn give(&self, purpose: Purpose, frames: impl IntoIterator<Item = Frame>) {
        let mut lists = self.lists.lock();
        let mut given = 0;
        for frame in frames {
            let unit = (frame.0 / self.unit_frames) as usize;
            debug_assert_eq!(lists.units[unit].purpose, Some(purpose));
            lists.units[unit].free += 1;
            lists.free[purpose.list()].push(frame);
            given += 1;
        }
        self.free_frames.fetch_add(given * purpose.frames(), Ordering::Relaxed);
    }

    /// Adds units after the tier has grown to `units`.
    pub(crate) fn grow(&self, units: u64) {
        let mut lists = self.lists.lock();
        let old = lists.units.len() as u64;
        for n in (old..units).rev() {
            lists.free_units.push(n);
        }
        lists.units.resize(units as usize, Unit { purpose: None, free: 0 });
        let added = (units - old) * self.unit_frames;
        self.free_frames.fetch_add(added, Ordering::Relaxed);
        self.total_frames.fetch_add(added, Ordering::Relaxed);
    }

    /// Frames in free lists and free units (not those that lanes hold ready).
    pub(crate) fn free_frames(&self) -> u64 {
        self.free_frames.load(Ordering::Relaxed)
    }

    pub(crate) fn total_frames(&self) -> u64 {
        self.total_frames.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::{Census, Purpose};
    use crate::address::{BlockSize, Frame};
    use crate::tier::Role;

    const UNIT: u64 = 8;
    const BLOCKS: Purpose = Purpose::Blocks(BlockSize::ALL[1]);

    fn census(roles: &[Role], units: usize) -> Census {
        Census {
            unit_frames: UNIT,
            roles: roles.into(),
            used: vec![0; (units * UNIT as usize).div_ceil(64)],
            purposes: vec![None; units],
        }
    }

    #[test]
    fn metadata_and_blocks_get_units_of_members_that_hold_them_only() {
        let allocator = census(&[Role::Metadata, Role::Blocks, Role::Both], 9).into_allocator();
        let taken = |purpose: Purpose| {
            let mut frames = Vec::new();
            allocator.take(purpose, usize::MAX, &mut frames);
            let mut members: Vec<u64> = frames.iter().map(|f| f.0 / UNIT % 3).collect();
            members.dedup();
            members.sort_unstable();
            members.dedup();
            allocator.give(purpose, frames);
            members
        };
        assert_eq!(taken(BLOCKS), [1, 2]);
        assert_eq!(taken(Purpose::Pages), [0, 2], "what is free again goes where it may only");
        assert_eq!(taken(BLOCKS), [1, 2]);
        assert_eq!(allocator.free_frames(), 9 * UNIT);
    }

    #[test]
    fn an_entry_into_a_member_that_does_not_hold_such_frames_is_damage() {
        let mut census = census(&[Role::Metadata, Role::Blocks], 4);
        assert!(census.claim(Frame(0), Purpose::Pages).is_ok());
        let why = census.claim(Frame(16), BLOCKS).unwrap_err();
        assert!(why.contains("whose member holds no blocks of 8192 bytes"), "{why}");
        assert!(census.claim(Frame(8), BLOCKS).is_ok());
    }
}

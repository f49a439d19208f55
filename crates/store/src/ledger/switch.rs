//! Changing which version of a block counts: one call for each way to do it.
//!
//! | call | what the block has afterwards | who calls it |
//! |---|---|---|
//! | [`Ledger::replace`] | a new version, `Dirty` | a program's write; a file that is cut within a block |
//! | [`Ledger::replace_laid_out`] | the same, whole, where everything is at hand | most writes |
//! | [`Ledger::replace_together`] | the same, several blocks, all or none | a batch |
//! | [`Ledger::adopt`] | what home holds; or the first version of a block that is written in place | admission; redo |
//! | [`Ledger::change`] | the same bytes in another state, or nothing in the tier | destage, evict, drop |
//! | [`Ledger::change_later`] | the same, several with one fence | redo that grows or is drained |
//!
//! Each looks the entry up under its lane, takes a piece, writes the block, makes the change
//! durable as [`super::lanes`] says, and switches the entry that readers see. In `holds` the caller
//! says what must be true at that moment besides; it is asked under the lane's lock.
//!
//! A lane's lock spins, so a medium that takes its time ([`BlockMedium::is_quick`]) is not written
//! under it: the piece, of which nobody else knows, is filled before, and the entry is switched if
//! all that held does so still.
//!
//! [`BlockMedium::is_quick`]: crate::medium::BlockMedium::is_quick

use super::Ledger;
use super::map::{FileMap, Leaf};
use crate::address::{BlockIndex, BlockSize, Frame, WordAt};
use crate::error::Result;
use crate::format::entry::{Entry, Key, NO_SUM, Place, State, key};
use crate::medium::{InPlace, Pin};
use crate::planted::Planted;
use crate::sync::atomic::Ordering;
use crate::tier::Few;

/// A block of a file, and its entry in the file's map.
#[derive(Clone, Copy)]
pub(crate) struct Spot<'a> {
    pub(crate) file: u64,
    pub(crate) block: BlockIndex,
    pub(crate) size: BlockSize,
    pub(crate) map: &'a FileMap,
    pub(crate) leaf: &'a Leaf,
    pub(crate) index: usize,
}

impl Spot<'_> {
    #[inline]
    pub(crate) fn entry(&self) -> Entry {
        self.leaf.get(self.index)
    }

    /// What its word and its checksum are made with.
    #[inline]
    pub(super) fn key(&self, seed: u64) -> Key {
        key(seed, self.file, Place::Block(self.block.0))
    }

    /// What the word on the tier says when the entry is `entry`.
    #[inline]
    pub(super) fn word(&self, seed: u64, entry: Entry) -> u64 {
        self.key(seed).seal(entry)
    }

    /// The checksum at rest of bytes with the checksum `hash` as this block.
    #[inline]
    pub(super) fn sum(&self, ledger: &Ledger, hash: u64) -> u64 {
        ledger.sum_with(self.key(ledger.seed), hash)
    }

    /// Where that word is; `None` while the leaf has no page. Asked under the lane
    /// ([`super::map`]).
    #[inline]
    pub(crate) fn at(&self) -> Option<WordAt> {
        self.leaf.word_at(self.index)
    }
}

/// What a block is to have.
pub(crate) enum Version<'a> {
    Whole(&'a [u8]),
    /// What the tier has of it, with `part` from byte `inner` on. `whole` is as long as a block and
    /// gets all of it.
    Part {
        inner: usize,
        part: &'a [u8],
        whole: &'a mut [u8],
    },
}

/// What a part of a block is added to.
struct Old {
    entry: Entry,
    /// What its bytes are compared with, if they are.
    sum: u64,
}

/// How a change of a block came out. Except for `Done` nothing is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Outcome {
    Done,
    /// Something moved: the caller's condition, the entry, or the leaf has no page.
    Moved,
    /// The tier has no free piece at the moment.
    NoPiece,
}

/// How an entry came out of [`Ledger::change_later`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed {
    /// It was this one before.
    From(Entry),
    No,
    NoPage,
}

impl Ledger {
    /// Replaces a block by a whole one for which its lane has a piece laid out, as most writes of a
    /// database do. `None`, and nothing is done, where it needs more than that.
    ///
    /// The order is the speed. A locked instruction waits until what was sent before it has
    /// arrived; the instructions behind it are begun meanwhile, but no more than the processor can
    /// hold (about 200, half of an EPYC's 448). Where the first store of the block is among those,
    /// it leaves at once; where it is not, the whole block leaves later: 100 to 180 ns. So what can
    /// be found out before the lock is, and what can be done behind the copy is.
    ///
    /// # Durability
    /// On return the new version survives a power cut.
    #[inline]
    pub(crate) fn replace_laid_out(
        &self,
        spot: Spot<'_>,
        data: &[u8],
        holds: impl FnOnce() -> bool,
    ) -> Option<()> {
        spot.leaf.prepare(spot.index);
        let lane = self.lane_of(spot.file, spot.block);
        self.prepare_lane(lane);
        let frame = self.guess_next_piece(lane, spot.size)?;
        let write = self.prepare_block(frame, 0, spot.size.bytes())?;
        let mut guard = self.lock_lane_number(lane);
        let at = spot.at()?;
        if !holds() || !self.take_next_piece(&mut guard.lane, frame, spot.size) {
            return None;
        }
        self.commit_prepared(&mut guard, spot, at, frame, &write, data);
        spot.leaf.set(spot.index, Entry::dirty(frame));
        Some(())
    }

    /// Replaces a block. `spare` is a piece that the caller has taken beforehand
    /// ([`Ledger::take_spare`]); it is gone when it was used.
    ///
    /// # Durability
    /// On return the new version survives a power cut.
    pub(crate) fn replace(
        &self,
        spot: Spot<'_>,
        version: Version<'_>,
        spare: &mut Option<Frame>,
        holds: impl Fn() -> bool,
    ) -> Result<Outcome> {
        if !self.is_quick {
            return self.replace_apart(spot, version, spare, holds);
        }
        let lane = self.lane_of(spot.file, spot.block);
        spot.leaf.prepare(spot.index);
        self.prepare_lane(lane);
        let mut guard = self.lock_lane_number(lane);
        if !holds() {
            return Ok(Outcome::Moved);
        }
        let Some(at) = spot.at() else { return Ok(Outcome::Moved) };
        let Some(frame) = spare.take().or_else(|| self.take_piece(&mut guard.lane, spot.size))
        else {
            return Ok(Outcome::NoPiece);
        };
        self.point_too_early(spot, at, frame);
        let old = spot.entry();
        // With the lane locked: what a part is added to stays as it is.
        let adds_to = || Old { entry: old, sum: self.sum_to_see(&guard, spot, old) };
        match self.write_version(spot, adds_to, version, frame) {
            Ok(hash) => self.commit_filled(&mut guard, spot, at, frame, hash),
            Err(e) => {
                self.give_piece(&mut guard.lane, frame, spot.size);
                return Err(e);
            }
        }
        spot.leaf.set(spot.index, Entry::dirty(frame));
        Ok(Outcome::Done)
    }

    /// [`Ledger::replace`] where writing a block takes long.
    fn replace_apart(
        &self,
        spot: Spot<'_>,
        version: Version<'_>,
        spare: &mut Option<Frame>,
        holds: impl Fn() -> bool,
    ) -> Result<Outcome> {
        let Some(frame) = spare.take().or_else(|| self.take_spare(spot)) else {
            return Ok(Outcome::NoPiece);
        };
        let outcome = self.replace_by(spot, version, frame, holds);
        if !matches!(outcome, Ok(Outcome::Done)) {
            self.give_spare(spot, frame);
        }
        outcome
    }

    /// Replaces a block, by way of a piece that nobody else knows yet.
    fn replace_by(
        &self,
        spot: Spot<'_>,
        version: Version<'_>,
        frame: Frame,
        holds: impl Fn() -> bool,
    ) -> Result<Outcome> {
        let old = spot.entry();
        let adds_to_old = matches!(version, Version::Part { .. });
        // While it is pinned its frame is not used again, so an equal entry later means the same
        // bytes.
        let pin = if adds_to_old && old != Entry::HOME { self.pin_block(spot, old) } else { None };
        if adds_to_old && (pin.is_none() || spot.entry() != old) {
            return Ok(Outcome::Moved);
        }
        if let Some(at) = spot.at() {
            self.point_too_early(spot, at, frame);
        }
        let old_sum = match adds_to_old {
            true => match self.sum_of(spot, old) {
                Some(sum) => sum,
                None => return Ok(Outcome::Moved),
            },
            false => NO_SUM,
        };
        let hash = self.write_version(spot, || Old { entry: old, sum: old_sum }, version, frame)?;
        let mut guard = self.lock_lane(spot.file, spot.block);
        let moved =
            || adds_to_old && spot.entry() != old && !self.planted.is(Planted::PartOverMoved);
        let Some(at) = spot.at().filter(|_| holds() && !moved()) else { return Ok(Outcome::Moved) };
        self.commit_filled(&mut guard, spot, at, frame, hash);
        spot.leaf.set(spot.index, Entry::dirty(frame));
        Ok(Outcome::Done)
    }

    /// Fills a piece with a new version of a block, durable with the next fence. The checksum of
    /// its bytes. `adds_to` is what the tier has of it, for a version that is a part.
    fn write_version(
        &self,
        spot: Spot<'_>,
        adds_to: impl FnOnce() -> Old,
        version: Version<'_>,
        frame: Frame,
    ) -> Result<u64> {
        let data = match version {
            Version::Whole(data) => data,
            Version::Part { inner, part, whole } => {
                debug_assert_eq!(whole.len(), spot.size.bytes());
                let Old { entry, sum } = adds_to();
                self.read_block(entry.frame(), 0, whole)?;
                if !self.planted.is(Planted::PartUnseen) {
                    self.compare(spot, entry, whole, sum)?;
                }
                whole[inner..inner + part.len()].copy_from_slice(part);
                whole
            }
        };
        let written = self.write_block(frame, data)?;
        self.wait_apart(frame, written.ticket)?;
        Ok(written.checksum)
    }

    /// Gives a block that is `Home` a piece with `data`, or zeros: as a clean copy, or as the first
    /// version of a block that is written in place. `counts` says how many bytes of it are the
    /// file's, the rest become zeros; `None` when something moved.
    ///
    /// # Durability
    /// The piece is durable before its entry is; the entry of a `Dirty` one is durable on return.
    pub(crate) fn adopt(
        &self,
        spot: Spot<'_>,
        data: Option<&[u8]>,
        state: State,
        counts: impl Fn() -> Option<usize>,
    ) -> Result<Outcome> {
        let mut guard = self.lock_lane(spot.file, spot.block);
        let Some(count) = counts() else { return Ok(Outcome::Moved) };
        let Some(at) = spot.at() else { return Ok(Outcome::Moved) };
        let Some(frame) = self.take_piece(&mut guard.lane, spot.size) else {
            return Ok(Outcome::NoPiece);
        };
        let new = if state == State::Cached { Entry::cached(frame) } else { Entry::dirty(frame) };
        if self.planted.is(Planted::AdmitPointerFirst) && state == State::Cached {
            self.replace_entry(&mut guard, spot, at, new);
            self.fence();
        }
        let held = self.is_quick.then_some((guard, at));
        let copy = state == State::Cached;
        let beside = held.as_ref().map(|(_, at)| *at);
        let written = self.write_first(spot, frame, data, count, copy, beside);
        let (mut guard, at) = match held {
            Some((guard, at)) => (guard, Some(at)),
            None => {
                let guard = self.lock_lane(spot.file, spot.block);
                let unmoved = || counts() == Some(count) || self.planted.is(Planted::AdmitUnasked);
                (guard, spot.at().filter(|_| unmoved()))
            }
        };
        let (Ok(sum), Some(at)) = (&written, at) else {
            self.give_piece(&mut guard.lane, frame, spot.size);
            return written.map(|_| Outcome::Moved);
        };
        if beside.is_none() && copy {
            self.store_sum(at, *sum);
            self.order();
        }
        self.replace_entry(&mut guard, spot, at, new);
        if state == State::Dirty {
            self.order();
        } else {
            self.unlatch(frame, spot.size.frames());
        }
        spot.leaf.set(spot.index, new);
        Ok(Outcome::Done)
    }

    /// Fills a piece, durable on return. A `copy` is not changed in place, so its checksum will do
    /// where a log knows it: the entry's record counts only with the block. Its checksum at rest is
    /// durable too, with the entry that is at `beside`; without that it is the caller's to store.
    fn write_first(
        &self,
        spot: Spot<'_>,
        frame: Frame,
        data: Option<&[u8]>,
        count: usize,
        copy: bool,
        beside: Option<WordAt>,
    ) -> Result<u64> {
        let cut;
        let data = match data {
            Some(data) if data.get(count..).is_some_and(|rest| rest.iter().any(|b| *b != 0)) => {
                cut = [&data[..count], &vec![0; data.len() - count]].concat();
                Some(&cut[..])
            }
            data => data,
        };
        let ticket = match data {
            Some(data) if copy => {
                let written = self.write_block(frame, data)?;
                let sum = spot.sum(self, written.checksum);
                // Nobody looks at it while the entry is `Home`.
                if let Some(at) = beside {
                    self.store_sum(at, sum);
                }
                if self.has_log {
                    self.wait_apart(frame, written.ticket)?;
                } else {
                    self.wait_for(frame, written.ticket)?;
                }
                return Ok(sum);
            }
            Some(data) => self.write_part(frame, 0, data)?,
            None => self.zero_part(frame, 0, spot.size.bytes())?,
        };
        self.wait_for(frame, ticket)?;
        Ok(NO_SUM)
    }

    /// Changes an entry to what `to` makes of it; `None`: it stays. Waits where somebody gives the
    /// leaf's page back ([`super::map`]). Returns what the entry was before, if it was changed:
    /// what that pointed to is free after the caller's next fence.
    pub(crate) fn change(
        &self,
        spot: Spot<'_>,
        to: impl Fn(Entry) -> Option<Entry>,
    ) -> Option<Entry> {
        loop {
            let mut guard = self.lock_lane(spot.file, spot.block);
            let old = spot.entry();
            let new = to(old)?;
            let Some(at) = spot.at() else {
                // Who evicts has not the file's `moving`, and may come between two steps of that.
                drop(guard);
                spot.map.wait_for_pages();
                continue;
            };
            self.replace_entry(&mut guard, spot, at, new);
            self.show(spot, new);
            return Some(old);
        }
    }

    /// [`Ledger::change`] of a block of which nobody else changes the entry before the caller has
    /// stored `words` ([`Ledger::store_later`]) and fenced: several share that fence.
    pub(crate) fn change_later(
        &self,
        spot: Spot<'_>,
        words: &mut Few<(WordAt, u64)>,
        to: impl Fn(Entry) -> Option<Entry>,
    ) -> Changed {
        let mut guard = self.lock_lane(spot.file, spot.block);
        let old = spot.entry();
        let Some(new) = to(old) else { return Changed::No };
        let Some(at) = spot.at() else { return Changed::NoPage };
        let word = self.word_to_replace(&mut guard, spot, new);
        self.show(spot, new);
        words.push((at, word));
        Changed::From(old)
    }

    /// Forgets what the tier has of a block of a file that is gone, durably; the piece is the
    /// caller's.
    pub(crate) fn forget_block(&self, spot: Spot<'_>) -> Option<Frame> {
        // Somebody else may be evicting the same block: one of the two frees its frame.
        let _lane = self.lock_lane(spot.file, spot.block);
        let frame = spot.entry().held_frame();
        spot.leaf.set(spot.index, Entry::HOME);
        frame
    }

    /// Switches the entry that readers see, where the block may become `Home`: that is counted
    /// before it is seen.
    fn show(&self, spot: Spot<'_>, new: Entry) {
        if new == Entry::HOME {
            spot.map.evictions.fetch_add(1, Ordering::AcqRel);
        }
        spot.leaf.set(spot.index, new);
    }

    /// A piece for a block that is replaced later; `None` when the tier has none at the moment.
    pub(crate) fn take_spare(&self, spot: Spot<'_>) -> Option<Frame> {
        self.take_piece(&mut self.lock_lane(spot.file, spot.block).lane, spot.size)
    }

    /// Puts back a piece that was not used.
    pub(crate) fn give_spare(&self, spot: Spot<'_>, frame: Frame) {
        self.give_piece(&mut self.lock_lane(spot.file, spot.block).lane, frame, spot.size);
    }

    /// Keeps the bytes of a block that was `entry` a moment ago as they are; the caller then looks
    /// whether it is `entry` still. `None` when somebody writes to its frames.
    pub(crate) fn pin_block(&self, spot: Spot<'_>, entry: Entry) -> Option<Pin<'_>> {
        let pin = || self.pin(entry.frame(), 0, spot.size.bytes());
        pin().or_else(|| {
            self.let_go(spot);
            pin()
        })
    }

    /// [`Ledger::pin_block`], and the bytes where they are; `None` also where they are not in
    /// memory.
    #[inline]
    pub(crate) fn show_block(&self, spot: Spot<'_>, entry: Entry) -> Option<InPlace<'_>> {
        let (memory, at) = self.memory_of(entry.frame())?;
        match memory.show(at, spot.size.bytes()) {
            Some(bytes) => Some(bytes),
            None => {
                self.let_go(spot);
                memory.show(at, spot.size.bytes())
            }
        }
    }

    /// Returns when everybody who had a lane when this was called has let it go: what they saw
    /// before they locked it no longer matters.
    pub(crate) fn wait_for_writers(&self) {
        for lane in 0..self.geometry.lanes {
            drop(self.lock_lane_number(lane));
        }
    }
}

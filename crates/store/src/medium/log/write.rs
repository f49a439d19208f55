//! Writing records, pages and headers: the commit and the checkpoint of the module above.

use super::*;
use crate::format::log::{BlockSum, Header, Record};
use crate::sync::MutexGuard;
use std::ops::{Deref, DerefMut};

/// Pages that differ from the device, at most, before they are written to their places.
const STALE_MOST: usize = 2048;

/// What one commit writes.
#[derive(Default)]
pub(super) struct Composed {
    /// The changes that it covers.
    number: u64,
    /// Pages that are written to their places at once.
    in_place: Vec<(u64, Vec<u8>)>,
    record: Option<Vec<u8>>,
    /// It takes the place of one that does not count.
    seals: bool,
    /// Pages that are written to theirs after the sync.
    checkpoint: Option<Vec<(u64, Vec<u8>)>>,
    /// There is something to sync.
    sync: bool,
}

/// The turn of who writes records. The others are asleep, and all wake when it ends: a lock would
/// hand itself on to one after the other, and who is done already would wait for the next one's
/// sync.
pub(super) struct Turn<'a> {
    log: &'a Log,
    writer: Writer,
}

impl Deref for Turn<'_> {
    type Target = Writer;

    fn deref(&self) -> &Writer {
        &self.writer
    }
}

impl DerefMut for Turn<'_> {
    fn deref_mut(&mut self) -> &mut Writer {
        &mut self.writer
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.log.writer.lock() = Some(std::mem::take(&mut self.writer));
        self.log.turn_ended.notify_all();
    }
}

impl Log {
    /// Waits for the turn to write records; `None`: nothing is left to do.
    pub(super) fn turn(&self, done: impl Fn() -> bool) -> Option<Turn<'_>> {
        let mut writer = self.writer.lock();
        loop {
            if done() {
                return None;
            }
            if let Some(writer) = writer.take() {
                return Some(Turn { log: self, writer });
            }
            self.turn_ended.wait(&mut writer);
        }
    }

    /// Makes everything durable that was stored or written before the call.
    ///
    /// # Durability
    /// Durable on return.
    pub(crate) fn commit(&self, memory: &dyn Bytes) -> Result<()> {
        let wanted = self.state.lock().changes;
        self.commit_until(memory, || self.durable.load(Ordering::Acquire) >= wanted)
    }

    /// The same with a record of its own, also when nothing has changed.
    pub(super) fn commit_anew(&self, memory: &dyn Bytes) -> Result<()> {
        self.state.lock().seal = true;
        self.commit_until(memory, || !self.state.lock().seal)
    }

    fn commit_until(&self, memory: &dyn Bytes, done: impl Fn() -> bool) -> Result<()> {
        loop {
            let turn = self.turn(|| self.failed.get().is_some() || done());
            self.check()?;
            let Some(turn) = turn else { return Ok(()) };
            let checkpoint = self.checkpointing.try_lock();
            if let Some(composed) = self.compose(memory, &turn, checkpoint.is_some(), false) {
                return self.write_commit(&composed, turn, checkpoint);
            }
            drop(turn);
            if checkpoint.is_some() {
                return Err(self.refuse_long());
            }
            // Somebody is making room.
            drop(self.checkpointing.lock());
        }
    }

    /// No commit is so long ([`Place::longest`]); should one be, nothing of it is written.
    fn refuse_long(&self) -> Error {
        let e = Error::Invalid {
            what: "commit to",
            path: self.device.path().into(),
            reason: "more has changed at once than its log has room for".into(),
        };
        self.fail(&e);
        e
    }

    /// Writes all pages that differ from the device to their places, and forgets the records.
    pub(super) fn checkpoint(&self, memory: &dyn Bytes) -> Result<()> {
        let checkpoint = self.checkpointing.lock();
        let turn = self.turn(|| self.failed.get().is_some());
        self.check()?;
        match turn.and_then(|turn| Some((self.compose(memory, &turn, true, true)?, turn))) {
            Some((composed, turn)) => self.write_commit(&composed, turn, Some(checkpoint)),
            None => Err(self.refuse_long()),
        }
    }

    pub(super) fn write_commit(
        &self,
        composed: &Composed,
        mut turn: Turn<'_>,
        checkpoint: Option<MutexGuard<'_, ()>>,
    ) -> Result<()> {
        let written = self.write_composed(composed, &mut turn);
        let (tail, generation) = (turn.tail, turn.generation);
        if written.is_ok() {
            self.durable.fetch_max(composed.number, Ordering::AcqRel);
            turn.generation += u64::from(composed.checkpoint.is_some());
            self.forget_record_before(composed);
        }
        if let Err(e) = &written {
            // Before the others wake, who go by it.
            self.fail(e);
        }
        drop(turn);
        let ended = written.and_then(|()| match (&composed.checkpoint, self.place.get()) {
            (Some(pages), Some(place)) => self.write_checkpoint(place, pages, tail, generation + 1),
            _ => Ok(()),
        });
        drop(checkpoint);
        ended.inspect_err(|e| self.fail(e))
    }

    /// The record of a commit is durable: nothing depends on the blocks of those before it any
    /// more.
    fn forget_record_before(&self, composed: &Composed) {
        let mut state = self.state.lock();
        state.before.clear();
        state.seal &= !composed.seals;
    }

    /// What a commit writes, as of one instant; `None`: the ring has no room for it. A quarter of
    /// the ring is left to who may checkpoint, and does so then.
    pub(super) fn compose(
        &self,
        memory: &dyn Bytes,
        writer: &Writer,
        may_checkpoint: bool,
        must: bool,
    ) -> Option<Composed> {
        let mut state = self.state.lock();
        if let Some(place) = self.place.get() {
            let most = if may_checkpoint { place.ring() } else { place.ring() / 4 * 3 };
            let lines = state.lines.len();
            let need = Record::len_of(lines, lines * LINE as usize, state.blocks.len()) as u64;
            let need = need.next_multiple_of(self.device.sector_size().bytes() as u64);
            if writer.tail + need > self.head.load(Ordering::Acquire) + most {
                return None;
            }
        }
        let copy = |page: u64| {
            let mut bytes = vec![0; FRAME];
            memory.read(page * FRAME as u64, &mut bytes);
            (page, bytes)
        };
        let mut composed = Composed { number: state.changes, ..Composed::default() };
        composed.in_place = std::mem::take(&mut state.front).into_iter().map(copy).collect();
        composed.sync = std::mem::take(&mut state.unsynced);
        let lines = std::mem::take(&mut state.lines);
        let Some(place) = self.place.get() else {
            let mut changed: Vec<u64> =
                lines.into_iter().map(|line| line / LINES_OF_PAGE).collect();
            changed.dedup();
            composed.in_place.extend(changed.into_iter().map(copy));
            return Some(composed);
        };
        let blocks = std::mem::take(&mut state.blocks);
        if !lines.is_empty() || must || state.seal {
            let named = blocks.iter().flat_map(|(at, (len, _))| pages(*at, *len)).collect();
            state.before = std::mem::replace(&mut state.newest, named);
            composed.seals = state.seal;
            let blocks =
                blocks.into_iter().map(|(at, (len, hash))| BlockSum { at, len, hash }).collect();
            let record = Record { runs: runs(memory, &lines), blocks };
            composed.record =
                Some(record.encode(writer.tail, self.device.sector_size().bytes(), place.seed));
        }
        state.stale.extend(lines.into_iter().map(|line| line / LINES_OF_PAGE));
        let added = composed.record.as_ref().map_or(0, Vec::len) as u64;
        let used = writer.tail + added - self.head.load(Ordering::Acquire);
        if must || may_checkpoint && (used > place.ring() / 2 || state.stale.len() > STALE_MOST) {
            state.under_way = std::mem::take(&mut state.stale);
            composed.checkpoint = Some(state.under_way.iter().map(|page| copy(*page)).collect());
        }
        Some(composed)
    }

    fn write_composed(&self, composed: &Composed, writer: &mut Writer) -> Result<()> {
        for (page, bytes) in &composed.in_place {
            self.device.write(self.sector(page * FRAME as u64), bytes)?;
        }
        let place = self.place.get();
        if let (Some(record), Some(place)) = (&composed.record, place) {
            let ring = place.ring();
            let from = writer.tail % ring;
            let (first, second) = record.split_at(record.len().min((ring - from) as usize));
            self.device.write(self.sector(place.at + RING_AT + from), first)?;
            self.device.write(self.sector(place.at + RING_AT), second)?;
            writer.tail += record.len() as u64;
        }
        let changed = composed.sync || composed.record.is_some() || !composed.in_place.is_empty();
        if changed && !place.is_some_and(|place| place.planted.is(Planted::LogNotSynced)) {
            self.device.sync()?;
        }
        Ok(())
    }

    fn write_checkpoint(
        &self,
        place: &Place,
        pages: &[(u64, Vec<u8>)],
        head: u64,
        generation: u64,
    ) -> Result<()> {
        for (page, bytes) in pages {
            self.device.write(self.sector(page * FRAME as u64), bytes)?;
        }
        if !place.planted.is(Planted::LogHeadEarly) {
            self.device.sync()?;
        }
        self.write_header(place, Header { generation, head })?;
        self.device.sync()?;
        self.head.store(head, Ordering::Release);
        self.state.lock().under_way.clear();
        Ok(())
    }

    pub(super) fn write_header(&self, place: &Place, header: Header) -> Result<()> {
        let at = place.at + (header.generation & 1) * HEADER;
        self.device.write(self.sector(at), &header.encode(place.tier_uuid, place.seed))?;
        Ok(())
    }
}

/// The bytes of lines, those that follow each other as one run.
fn runs(memory: &dyn Bytes, lines: &BTreeSet<u64>) -> Vec<(u64, Vec<u8>)> {
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    for line in lines {
        let mut bytes = [0; LINE as usize];
        memory.read(line * LINE, &mut bytes);
        match runs.last_mut() {
            Some((at, run)) if *at + run.len() as u64 == line * LINE => {
                run.extend_from_slice(&bytes)
            }
            _ => runs.push((line * LINE, bytes.to_vec())),
        }
    }
    runs
}

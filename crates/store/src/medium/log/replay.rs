//! The beginning of a log: an empty one on a new member, and what a power cut or a killed process
//! left of an older one.

use super::*;
use crate::format::log::{Header, Record};

impl Log {
    /// Makes an empty log, which [`Log::begin`] then finds. What was stored before has been fenced,
    /// and is in its place.
    ///
    /// # Durability
    /// Durable on return.
    pub(crate) fn begin_anew(&self, place: Place) -> Result<()> {
        self.device.write(self.sector(place.at), &vec![0; RING_AT as usize])?;
        self.write_header(&place, Header { generation: 1, head: 0 })?;
        Ok(self.device.sync()?)
    }

    /// Puts what the log says into memory.
    ///
    /// # Errors
    /// When the log is damaged, or the device cannot be read. Nothing is changed, in any case.
    pub(crate) fn begin(&self, place: Place, memory: &dyn Bytes) -> Result<()> {
        let mut turn = self.turn(|| false).expect("BUG: a turn comes");
        let header = self.newest_header(&place)?;
        let mut at = header.head;
        let mut records: Vec<(u64, Record)> = Vec::new();
        while let Some((record, len)) = self.record_at(&place, at, header.head)? {
            records.push((at, record));
            at += len;
        }
        let mut state = self.state.lock();
        if let Some((from, newest)) = records.last() {
            if place.planted.is(Planted::LogBlocksUnchecked)
                || self.blocks_are_whole(newest, &place)?
            {
                state.newest =
                    newest.blocks.iter().flat_map(|block| pages(block.at, block.len)).collect();
            } else {
                at = *from;
                records.pop();
                state.seal = true;
            }
        }
        for (position, record) in &records {
            for (at, bytes) in &record.runs {
                self.check_run(&place, *position, *at, bytes.len())?;
                for page in pages(*at, bytes.len()) {
                    self.load(&mut state, memory, page)?;
                    state.stale.insert(page);
                }
                memory.fill(*at, bytes);
            }
        }
        *turn = Writer { tail: at, generation: header.generation };
        self.head.store(header.head, Ordering::Release);
        let _ = self.place.set(place);
        Ok(())
    }

    fn newest_header(&self, place: &Place) -> Result<Header> {
        let mut bytes = vec![0; RING_AT as usize];
        self.device.read(self.sector(place.at), &mut bytes).map_err(crate::medium::block::lost)?;
        let copies = bytes.chunks(HEADER as usize);
        let whole = copies.filter_map(|copy| Header::decode(copy, place.tier_uuid, place.seed));
        let sector = self.device.sector_size().bytes() as u64;
        let newest = whole
            .filter(|header| header.head.is_multiple_of(sector))
            .max_by_key(|header| header.generation);
        newest.ok_or_else(|| self.damaged(place.at, "neither copy of its header is whole".into()))
    }

    /// The record at a position and its length in whole sectors; `None`: there is none that is
    /// whole.
    fn record_at(&self, place: &Place, at: u64, head: u64) -> Result<Option<(Record, u64)>> {
        let sector = self.device.sector_size().bytes() as u64;
        let first = self.read_ring(place, at, sector)?;
        let lap = if place.planted.is(Planted::LogOldLap) { u64_at(&first, 16) } else { at };
        let Some(len) = Record::peek(&first, lap) else { return Ok(None) };
        let fits = |len: &u64| *len <= place.ring() && at + len <= head + place.ring();
        let Some(padded) = len.checked_next_multiple_of(sector).filter(fits) else {
            return Ok(None);
        };
        let bytes = self.read_ring(place, at, padded)?;
        let bytes = &bytes[..len as usize];
        let record = match place.planted.is(Planted::LogTornRecord) {
            true => Record::of(bytes),
            false => Record::decode(bytes, place.seed),
        };
        Ok(record.map(|record| (record, padded)))
    }

    /// Bytes of the ring, by their position.
    fn read_ring(&self, place: &Place, at: u64, len: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len as usize];
        let from = at % place.ring();
        let (first, second) = bytes.split_at_mut(len.min(place.ring() - from) as usize);
        let read = |at: u64, into: &mut [u8]| {
            self.device
                .read(self.sector(place.at + RING_AT + at), into)
                .map_err(crate::medium::block::lost)
        };
        read(from, first)?;
        read(0, second)?;
        Ok(bytes)
    }

    fn blocks_are_whole(&self, record: &Record, place: &Place) -> Result<bool> {
        for block in &record.blocks {
            let inside =
                block.at.checked_add(block.len as u64).is_some_and(|end| end <= self.len());
            let frames = block.at.is_multiple_of(FRAME as u64) && block.len.is_multiple_of(FRAME);
            let inside = inside && block.len as u64 <= BLOCK_MOST;
            if !inside || !frames {
                return Ok(false);
            }
            let mut bytes = vec![0; block.len];
            match self.device.read(self.sector(block.at), &mut bytes) {
                Ok(()) if hash_bytes(&bytes, place.seed) == block.hash => {}
                Ok(()) => return Ok(false),
                // It may have been acknowledged, and going back to the version before it would lose
                // it silently.
                Err(e) => log::error!("a block that was being written cannot be read: {e}"),
            }
        }
        Ok(true)
    }

    /// Only metadata behind the superblocks is logged.
    fn check_run(&self, place: &Place, position: u64, at: u64, len: usize) -> Result<()> {
        let end = at.checked_add(len as u64).filter(|end| *end <= self.len());
        let lines = at.is_multiple_of(LINE) && (len as u64).is_multiple_of(LINE);
        let in_log = end.is_some_and(|end| at < place.at + place.len && end > place.at);
        if end.is_some() && lines && at >= LANES_AT && !in_log {
            return Ok(());
        }
        let where_it_is = place.at + RING_AT + position % place.ring();
        Err(self.damaged(
            where_it_is,
            format!("its record changes {len} bytes at {at}, where no metadata is"),
        ))
    }

    fn damaged(&self, offset: u64, detail: String) -> Error {
        let path = self.device.path().into();
        Error::Damaged { path, member: 0, offset, structure: "log".into(), detail }
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

//! Streams in dumps: blocks of entries, which are listpacks, and groups with their consumers.
//!
//! A block has a head (entries, removed entries, names of fields) and rows, whose IDs are
//! differences from the block's. What a stream cannot be is refused: IDs that do not ascend, a
//! wrong length, pending records of nobody or of an unknown consumer.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Read};

use super::packed::{Pack, listpack};
use super::write::{length, string};
use super::{Bytes, Error, Source, number};
use crate::format::stream::Id;

/// A stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    /// Its blocks, each with its entries.
    pub blocks: Vec<Vec<StreamEntry>>,
    /// The last ID that was given.
    pub last: Id,
    /// The greatest ID that was removed.
    pub removed: Id,
    /// Entries that were ever added.
    pub added: u64,
    /// Its groups.
    pub groups: Vec<StreamGroup>,
}

/// An entry.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamEntry {
    /// Its ID.
    pub id: Id,
    /// It was removed, and is still in its block.
    pub removed: bool,
    /// Names and values.
    pub pairs: Vec<(Bytes, Bytes)>,
}

/// A group.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamGroup {
    /// Its name.
    pub name: Bytes,
    /// The last ID that it was given.
    pub last: Id,
    /// How many entries it has read, if that is known.
    pub read: Option<u64>,
    /// Its consumers, and when they were seen.
    pub consumers: Vec<(Bytes, u64)>,
    /// What was delivered and not acknowledged, by ID.
    pub pending: Vec<StreamPending>,
}

/// A pending record.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamPending {
    /// Of this entry.
    pub id: Id,
    /// When it was delivered last.
    pub time: u64,
    /// How often.
    pub count: u64,
    /// Which consumer has it, as its place.
    pub consumer: usize,
}

impl Stream {
    /// How many entries were added up to an ID, if that can be told, of an old stream that does not
    /// say it.
    fn read_up_to(&self, id: Id) -> Option<u64> {
        let left = || self.blocks.iter().flatten().filter(|entry| !entry.removed);
        let count = left().count() as u64;
        match left().next() {
            _ if self.added == 0 => Some(0),
            _ if id == self.last => Some(self.added),
            None if id <= self.last => Some(self.added),
            Some(first) if id < first.id => Some(self.added.saturating_sub(count)),
            Some(first) if id == first.id => Some(self.added.saturating_sub(count) + 1),
            _ => None,
        }
    }
}

/// The numbers and strings of a listpack, one after the other.
struct Parts(std::vec::IntoIter<Bytes>);

impl Parts {
    fn string(&mut self) -> Option<Bytes> {
        self.0.next()
    }

    fn number(&mut self) -> Option<i64> {
        crate::number::integer(&self.string()?)
    }

    fn count(&mut self) -> Option<u64> {
        u64::try_from(self.number()?).ok()
    }
}

impl<R: Read> Source<'_, R> {
    fn id(&mut self) -> Result<Id, Error> {
        Ok(Id { ms: self.length()?, seq: self.length()? })
    }

    /// An ID of 16 bytes, the most significant byte first.
    fn raw_id(&mut self) -> Result<Id, Error> {
        Ok(Id { ms: number(&self.bytes::<8>()?), seq: number(&self.bytes::<8>()?) })
    }

    /// A value of the types 15, 19 and 21.
    pub(super) fn stream(&mut self, kind: u8) -> Result<Stream, Error> {
        let mut stream = Stream::default();
        let mut before = None;
        for _ in 0..self.length()? {
            let head = self.string()?;
            let (Some(ms), Some(seq), 16) =
                (head.first_chunk::<8>(), head.last_chunk::<8>(), head.len())
            else {
                return self.damaged("a block of a stream whose ID does not have 16 bytes");
            };
            let first = Id { ms: number(ms), seq: number(seq) };
            let bytes = self.string()?;
            let Some(entries) = self.block(&bytes, first, &mut before) else {
                return self.damaged("a block of a stream contradicts itself");
            };
            stream.blocks.push(entries);
        }
        let count = self.length()?;
        stream.last = self.id()?;
        stream.added = count;
        if kind > 15 {
            self.id()?;
            stream.removed = self.id()?;
            stream.added = self.length()?;
        }
        let left = stream.blocks.iter().flatten().filter(|entry| !entry.removed).count() as u64;
        if count != left || before.is_some_and(|last| last > stream.last) {
            return self.damaged("a stream's length or last ID is not that of its entries");
        }
        let mut names = HashSet::new();
        for _ in 0..self.length()? {
            let group = self.group(kind, &stream)?;
            if !names.insert(group.name.clone()) {
                return self.damaged("a stream's group is there twice");
            }
            stream.groups.push(group);
        }
        Ok(stream)
    }

    /// The entries of a block; `before` is the ID of the last one that was left.
    fn block(
        &mut self,
        bytes: &[u8],
        first: Id,
        before: &mut Option<Id>,
    ) -> Option<Vec<StreamEntry>> {
        let mut parts = Parts(listpack(bytes, &mut self.budget)?.into_iter());
        let (left, removed) = (parts.count()?, parts.count()?);
        let names: Vec<Bytes> =
            (0..parts.count()?).map(|_| parts.string()).collect::<Option<_>>()?;
        parts.number().filter(|end| *end == 0)?;
        let mut entries = Vec::new();
        for _ in 0..left.checked_add(removed)? {
            let (flags, ms, seq) = (parts.number()?, parts.number()?, parts.number()?);
            let id = Id {
                ms: first.ms.wrapping_add_signed(ms),
                seq: first.seq.wrapping_add_signed(seq),
            };
            let same = flags & 2 != 0;
            let count = if same { names.len() as u64 } else { parts.count()? };
            let mut pairs = Vec::new();
            for number in 0..count {
                let name =
                    if same { names.get(number as usize)?.clone() } else { parts.string()? };
                // Its names are there again with each entry.
                self.budget.element(name.len())?;
                pairs.push((name, parts.string()?));
            }
            let own = if same { count + 3 } else { 2 * count + 4 };
            parts.count().filter(|said| *said == own)?;
            let removed = flags & 1 != 0;
            if !removed {
                before.is_none_or(|before| before < id).then_some(())?;
                *before = Some(id);
            }
            entries.push(StreamEntry { id, removed, pairs });
        }
        let marked = entries.iter().filter(|entry| entry.removed).count() as u64;
        (parts.string().is_none() && marked == removed).then_some(())?;
        // After an XSETID to before what was removed, Redis goes on in the block of that.
        let from = entries.first().map_or(Id::MIN, |entry| entry.id);
        if entries.iter().any(|entry| entry.id.ms < from.ms) {
            entries.retain(|entry| !entry.removed);
        }
        Some(entries)
    }

    fn group(&mut self, kind: u8, stream: &Stream) -> Result<StreamGroup, Error> {
        let (name, last) = (self.element()?, self.id()?);
        let read = match kind {
            15 => stream.read_up_to(last),
            _ => Some(self.length()?).filter(|read| *read != u64::MAX),
        };
        let mut all = BTreeMap::new();
        for _ in 0..self.length()? {
            let id = self.raw_id()?;
            let (time, count) = (u64::from_le_bytes(self.bytes()?), self.length()?);
            let small = self.budget.element(0).is_some();
            if !small
                || all.insert(id, StreamPending { id, time, count, consumer: usize::MAX }).is_some()
            {
                return self.damaged("a stream's group has too much pending, or something twice");
            }
        }
        let (mut consumers, mut names) = (Vec::new(), HashSet::new());
        for consumer in 0..self.length()? {
            let name = self.element()?;
            let seen = u64::from_le_bytes(self.bytes()?);
            if kind > 19 {
                // When it was given something last.
                self.bytes::<8>()?;
            }
            for _ in 0..self.length()? {
                let id = self.raw_id()?;
                match all.get_mut(&id) {
                    Some(pending) if pending.consumer == usize::MAX => {
                        pending.consumer = consumer as usize
                    }
                    _ => return self.damaged("a consumer has what is not pending for its group"),
                }
            }
            if !names.insert(name.clone()) {
                return self.damaged("a stream's consumer is there twice");
            }
            consumers.push((name, seen));
        }
        if all.values().any(|pending| pending.consumer == usize::MAX) {
            return self.damaged("something is pending that no consumer has");
        }
        Ok(StreamGroup { name, last, read, consumers, pending: all.into_values().collect() })
    }
}

fn raw_id(id: Id) -> Vec<u8> {
    let half = |number: u64| number.to_le_bytes().into_iter().rev();
    half(id.ms).chain(half(id.seq)).collect()
}

fn id(id: Id, into: &mut Bytes) {
    length(id.ms, into);
    length(id.seq, into);
}

fn pack(entries: &[StreamEntry], first: &StreamEntry) -> Bytes {
    let mut pack = Pack::new();
    let removed = entries.iter().filter(|entry| entry.removed).count();
    pack.number((entries.len() - removed) as i64);
    pack.number(removed as i64);
    pack.number(first.pairs.len() as i64);
    first.pairs.iter().for_each(|(name, _)| pack.string(name));
    pack.number(0);
    for entry in entries {
        let names = entry.pairs.iter().map(|(name, _)| name);
        let same = names.eq(first.pairs.iter().map(|(name, _)| name));
        pack.number(i64::from(entry.removed) | if same { 2 } else { 0 });
        pack.number(entry.id.ms.wrapping_sub(first.id.ms).cast_signed());
        pack.number(entry.id.seq.wrapping_sub(first.id.seq).cast_signed());
        let count = entry.pairs.len() as i64;
        if !same {
            pack.number(count);
        }
        for (name, value) in &entry.pairs {
            if !same {
                pack.string(name);
            }
            pack.string(value);
        }
        pack.number(if same { count + 3 } else { 2 * count + 4 });
    }
    pack.end()
}

/// Writes a stream in parts, as type 19.
pub(super) fn write(
    stream: &Stream,
    put: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let with_entries = || stream.blocks.iter().filter(|rows| rows.iter().any(|row| !row.removed));
    let mut bytes = Vec::new();
    length(with_entries().count() as u64, &mut bytes);
    put(&bytes)?;
    for entries in with_entries() {
        let Some(first) = entries.first() else { continue };
        bytes.clear();
        string(&raw_id(first.id), &mut bytes);
        string(&pack(entries, first), &mut bytes);
        put(&bytes)?;
    }
    bytes.clear();
    let left = || stream.blocks.iter().flatten().filter(|entry| !entry.removed);
    length(left().count() as u64, &mut bytes);
    id(stream.last, &mut bytes);
    id(left().next().map_or(Id::MIN, |entry| entry.id), &mut bytes);
    id(stream.removed, &mut bytes);
    length(stream.added, &mut bytes);
    length(stream.groups.len() as u64, &mut bytes);
    put(&bytes)?;
    stream.groups.iter().try_for_each(|group| put(&group_bytes(group)))
}

fn group_bytes(group: &StreamGroup) -> Bytes {
    let mut bytes = Vec::new();
    string(&group.name, &mut bytes);
    id(group.last, &mut bytes);
    length(group.read.unwrap_or(u64::MAX), &mut bytes);
    length(group.pending.len() as u64, &mut bytes);
    for pending in &group.pending {
        bytes.extend(raw_id(pending.id));
        bytes.extend(pending.time.to_le_bytes());
        length(pending.count, &mut bytes);
    }
    length(group.consumers.len() as u64, &mut bytes);
    let mut own = vec![Vec::new(); group.consumers.len()];
    for pending in &group.pending {
        own[pending.consumer].extend(raw_id(pending.id));
    }
    for ((name, seen), own) in group.consumers.iter().zip(own) {
        string(name, &mut bytes);
        bytes.extend(seen.to_le_bytes());
        length(own.len() as u64 / 16, &mut bytes);
        bytes.extend(own);
    }
    bytes
}

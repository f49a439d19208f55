//! A stream's entries: adding, reading, removing, trimming.

use super::{Found, Keyspace, NodeLimits};
use crate::format::class;
use crate::format::stream::{
    ADDED, FIRST, Id, LAST, Pairs, Row, TAIL, block_head, names, push_row, remove_row, rows,
};
use crate::heap::Full;
use crate::planted::Planted;
use crate::rdb::{packed_number, packed_string};

/// What is trimmed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trim {
    pub(crate) to: TrimTo,
    /// Whole blocks only.
    pub(crate) whole: bool,
    /// Entries at most; 0: any number.
    pub(crate) limit: u64,
}

/// How much is left.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TrimTo {
    /// So many entries.
    Length(u64),
    /// Those from this ID on.
    Id(Id),
}

/// Whether a row is an entry that is left in a stream whose first one is `first`.
fn is_left(row: &Row<'_>, first: Id) -> bool {
    !row.removed && row.id >= first
}

/// Bytes that a row takes in Redis's listpack, whose first row is `first`.
fn packed_row(first: Id, id: Id, same: bool, pairs: &[(&[u8], &[u8])]) -> u64 {
    let delta = [id.ms.wrapping_sub(first.ms), id.seq.wrapping_sub(first.seq)];
    let ids: u64 = delta.iter().map(|number| packed_number(number.cast_signed())).sum();
    let count = pairs.len() as u64;
    let values: u64 = pairs.iter().map(|(_, value)| packed_string(value)).sum();
    let (own, parts) = match same {
        true => (0, count + 3),
        false => (packed_number(count as i64) + packed_names(pairs), 2 * count + 4),
    };
    // Flags take two bytes.
    2 + ids + own + values + packed_number(parts as i64)
}

fn packed_names(pairs: &[(&[u8], &[u8])]) -> u64 {
    pairs.iter().map(|(name, _)| packed_string(name)).sum()
}

/// Bytes of a listpack with the names of `pairs` and no row: head, end, two counts, the names.
fn packed_head(pairs: &[(&[u8], &[u8])]) -> u64 {
    7 + 4 + packed_number(pairs.len() as i64) + packed_names(pairs) + 2
}

/// Marks the row that begins at `at` as removed.
pub(super) fn mark_removed(block: &mut [u8], at: usize) {
    // Its flags are behind its length.
    let len = block[at..].iter().take_while(|byte| **byte > 127).count() + 1;
    remove_row(block, at + len);
}

impl Keyspace {
    /// How many blocks a stream has.
    pub(crate) fn stream_blocks(&self, node: u64) -> u64 {
        self.sequence_len(node)
    }

    fn tail(&self, node: u64) -> (u64, u64) {
        let word = self.heap.word(node + TAIL);
        (word & 0xffff_ffff, word >> 32)
    }

    fn set_tail(&mut self, node: u64, rows: u64, bytes: u64) {
        self.heap.set(node + TAIL, rows & 0xffff_ffff | bytes.min(u64::from(u32::MAX)) << 32);
    }

    /// Looks what the last block is now.
    pub(super) fn find_tail(&mut self, node: u64) {
        let (mut count, mut bytes) = (0, 0);
        if let Some(found) = self.last_element(node).map(|word| self.found_at(self.heap.word(word)))
        {
            let block = self.value(&found);
            let names = names(&block);
            let first = block.first_chunk().map_or(Id::MIN, crate::format::stream::block_id);
            for row in rows(&block) {
                let pairs = row.pairs(&names);
                if count == 0 {
                    bytes = packed_head(&pairs);
                }
                // Of the first one the names are those of the head.
                bytes += packed_row(first, row.id, row.same || count == 0, &pairs);
                count += 1;
            }
        }
        self.set_tail(node, count, bytes);
    }

    /// Adds an entry behind the last one; its ID is greater than that one's.
    ///
    /// # Errors
    /// There is no space.
    pub(crate) fn add_to_stream(
        &mut self,
        node: u64,
        id: Id,
        pairs: &[(&[u8], &[u8])],
        limits: NodeLimits,
    ) -> Result<(), Full> {
        let facts = self.stream_facts(node);
        self.append_row(node, id, pairs, limits)?;
        if self.heap.planted().is(Planted::RowCountedLater) {
            self.heap.commit();
        }
        self.heap.set(node + 8, facts.length + 1);
        self.heap.set(node + ADDED, facts.added.wrapping_add(1));
        self.set_id(node + LAST, id);
        if facts.length == 0 {
            self.set_id(node + FIRST, id);
        }
        Ok(())
    }

    fn append_row(
        &mut self,
        node: u64,
        id: Id,
        pairs: &[(&[u8], &[u8])],
        limits: NodeLimits,
    ) -> Result<(), Full> {
        let (count, bytes) = self.tail(node);
        let len: u64 = pairs.iter().map(|(name, value)| (name.len() + value.len()) as u64).sum();
        let full = bytes + len >= limits.bytes || limits.entries > 0 && count >= limits.entries;
        let last = if count == 0 { None } else { self.last_element(node) };
        let Some(word) = last.filter(|_| !full) else {
            if let Some(word) = last {
                self.shrink_block(word)?;
            }
            return self.begin_block(node, id, pairs);
        };
        let found = self.found_at(self.heap.word(word));
        let mut block = self.value(&found);
        let first = block.first_chunk().map_or(Id::MIN, crate::format::stream::block_id);
        let known = names(&block);
        let same = known.len() == pairs.len() && known.iter().zip(pairs).all(|(a, (b, _))| a == b);
        let more = packed_row(first, id, same, pairs);
        let mut row = Vec::new();
        push_row(first, id, same, pairs, &mut row);
        if !self.grow(&found, &row, 0) {
            block.append(&mut row);
            self.replace_block(word, &found, &block, block.len() as u64)?;
        }
        self.set_tail(node, count + 1, bytes + more);
        Ok(())
    }

    /// A new block with one row behind the others.
    fn begin_block(&mut self, node: u64, id: Id, pairs: &[(&[u8], &[u8])]) -> Result<(), Full> {
        let mut block = block_head(id);
        push_row(id, id, false, pairs, &mut block);
        // Room for a few more of this kind.
        let slack = if block.len() > 1024 { 0 } else { block.len() as u64 };
        let (at, _) = self.write_part(b"", &block, slack)?;
        let blocks = self.sequence_len(node);
        self.insert_element(node, blocks, at)?;
        self.set_tail(node, 1, packed_head(pairs) + packed_row(id, id, true, pairs));
        Ok(())
    }

    /// Writes a block anew, with room behind it.
    fn replace_block(
        &mut self,
        word: u64,
        old: &Found,
        block: &[u8],
        slack: u64,
    ) -> Result<(), Full> {
        let (at, _) = self.write_part(b"", block, slack)?;
        self.heap.set(word, at);
        if self.heap.planted().is(Planted::BlockReplacedInTwo) {
            self.heap.commit();
        }
        self.heap.free(old.at, old.header.class);
        Ok(())
    }

    /// Takes back the room behind a block that gets no more rows.
    fn shrink_block(&mut self, word: u64) -> Result<(), Full> {
        let found = self.found_at(self.heap.word(word));
        let fits = class::of(found.header.total()).map(class::size);
        if fits.is_some_and(|fits| fits < self.room(&found)) {
            let block = self.value(&found);
            self.replace_block(word, &found, &block, 0)?;
        }
        Ok(())
    }

    /// The block that an ID would be in, as its place, which is 0 also if it comes before all.
    fn block_of(&self, node: u64, id: Id) -> u64 {
        self.partition(node, |at| self.block_id(at) <= id).saturating_sub(1)
    }

    /// Calls `each` with the entries from one ID to another until it says that it has enough.
    pub(crate) fn for_stream(
        &self,
        node: u64,
        (from, to): (Id, Id),
        reverse: bool,
        mut each: impl FnMut(Id, Pairs<'_>) -> bool,
    ) {
        let first = self.id_at(node + FIRST);
        let mut block = |at: u64| {
            let bytes = self.value(&self.found_at(at));
            if self.heap.is_noted() {
                return false;
            }
            let names = names(&bytes);
            let mut fitting: Vec<Row<'_>> = rows(&bytes)
                .filter(|row| is_left(row, first) && (from..=to).contains(&row.id))
                .collect();
            if reverse {
                fitting.reverse();
            }
            fitting.iter().all(|row| each(row.id, row.pairs(&names)))
        };
        if from > to {
            return;
        }
        if !reverse {
            self.for_elements(node, self.block_of(node, from), |at| {
                self.block_id(at) <= to && block(at)
            });
            return;
        }
        let mut place = if self.sequence_len(node) == 0 { 0 } else { self.block_of(node, to) + 1 };
        while place > 0 {
            place -= 1;
            let Some(at) = self.element_at(node, place).map(|word| self.heap.word(word)) else {
                return;
            };
            if !block(at) || self.block_id(at) < from {
                return;
            }
        }
    }

    /// Whether an entry is there.
    pub(crate) fn is_in_stream(&self, node: u64, id: Id) -> bool {
        let mut there = false;
        self.for_stream(node, (id, id), false, |_, _| {
            there = true;
            false
        });
        there
    }

    /// The ID of the first entry, or of the last one.
    pub(crate) fn stream_end(&self, node: u64, last: bool) -> Option<Id> {
        let mut found = None;
        self.for_stream(node, (Id::MIN, Id::MAX), last, |id, _| {
            found = Some(id);
            false
        });
        found
    }

    /// Removes an entry; whether it was there.
    ///
    /// # Errors
    /// There is no space: a block is written anew.
    pub(crate) fn remove_from_stream(&mut self, node: u64, id: Id) -> Result<bool, Full> {
        let facts = self.stream_facts(node);
        if facts.length == 0 || id < facts.first {
            return Ok(false);
        }
        let place = self.block_of(node, id);
        let Some(word) = self.element_at(node, place) else { return Ok(false) };
        let found = self.found_at(self.heap.word(word));
        let mut block = self.value(&found);
        let left: Vec<(Id, usize)> = rows(&block)
            .filter(|row| is_left(row, facts.first))
            .map(|row| (row.id, row.at))
            .collect();
        let Some((_, at)) = left.iter().find(|(other, _)| *other == id).copied() else {
            return Ok(false);
        };
        if left.len() == 1 {
            self.remove_block(node, place);
        } else if id != facts.first {
            remove_row(&mut block, at);
            let room = self.room(&found).saturating_sub(found.header.total());
            self.replace_block(word, &found, &block, room)?;
        }
        self.heap.set(node + 8, facts.length - 1);
        if id == facts.first {
            self.find_first(node, id.next().unwrap_or(Id::MAX));
        }
        Ok(true)
    }

    fn remove_block(&mut self, node: u64, place: u64) {
        let is_last = place + 1 == self.sequence_len(node);
        let at = self.remove_element(node, place);
        let header = self.header(at);
        self.heap.free(at, header.class);
        if is_last {
            self.find_tail(node);
        }
    }

    /// Sets the first ID after entries before `from` went.
    fn find_first(&mut self, node: u64, from: Id) {
        let mut first = Id::MIN;
        if self.heap.word(node + 8) > 0 {
            self.for_stream(node, (from, Id::MAX), false, |id, _| {
                first = id;
                false
            });
        }
        self.set_id(node + FIRST, first);
    }

    /// Removes entries from the front; how many.
    pub(crate) fn trim_stream(&mut self, node: u64, trim: &Trim) -> u64 {
        let facts = self.stream_facts(node);
        let (mut length, mut first) = (facts.length, facts.first);
        while length > 0 && !self.heap.is_noted() {
            if matches!(trim.to, TrimTo::Length(most) if length <= most) {
                break;
            }
            let Some(word) = self.element_at(node, 0) else { break };
            let block = self.value(&self.found_at(self.heap.word(word)));
            let left: Vec<Id> =
                rows(&block).filter(|row| is_left(row, first)).map(|row| row.id).collect();
            let count = left.len() as u64;
            if trim.limit > 0 && facts.length - length + count > trim.limit {
                break;
            }
            let all_go = match trim.to {
                TrimTo::Length(most) => length.saturating_sub(count) >= most,
                TrimTo::Id(from) => rows(&block).last().is_none_or(|row| row.id < from),
            };
            let goes = |(number, id): (u64, &Id)| match trim.to {
                TrimTo::Length(most) => length - number > most,
                TrimTo::Id(from) => *id < from,
            };
            let go = match all_go {
                true => count,
                false if trim.whole => break,
                false => (0..).zip(&left).take_while(|row| goes(*row)).count() as u64,
            };
            length -= go;
            match left.get(go as usize) {
                // What comes before the first ID is removed.
                Some(id) => first = *id,
                None => self.remove_block(node, 0),
            }
            if !all_go {
                break;
            }
        }
        if length != facts.length {
            self.heap.set(node + 8, length);
            self.find_first(node, first);
        }
        facts.length - length
    }
}

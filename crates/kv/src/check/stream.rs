//! Streams, as the page of the format has them: blocks, rows, groups, consumers, pending records.

use std::collections::{BTreeMap, HashSet};

use tiersmith_pmem::hash_bytes;

use super::{Heap, Reader, Report, u64_at};

type Id = (u64, u64);

/// A number of seven bits a byte; the bytes behind it.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let len = bytes.iter().position(|byte| *byte < 128)? + 1;
    let (own, rest) = bytes.split_at(len);
    (len <= 10)
        .then(|| (own.iter().rev().fold(0, |all, byte| all << 7 | u64::from(byte & 127)), rest))
}

/// Bytes behind their length; what follows them.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = number(bytes)?;
    rest.split_at_checked(usize::try_from(len).ok()?)
}

/// The rows of a block: ID, and whether it is marked as removed.
fn rows(block: &[u8]) -> Option<Vec<(Id, bool)>> {
    let (first_ms, mut rest) = (u64_at(block, 0), block.get(16..)?);
    let (mut all, mut names) = (Vec::new(), None);
    while !rest.is_empty() {
        let (row, next) = counted(rest)?;
        rest = next;
        let (flags, body) = row.split_first()?;
        let (ms, body) = number(body)?;
        let (seq, mut body) = number(body)?;
        let mut count = names;
        if flags & 2 == 0 {
            let (own, after) = number(body)?;
            (count, body) = (Some(own), after);
        }
        for _ in 0..count? {
            if flags & 2 == 0 {
                (_, body) = counted(body)?;
            }
            (_, body) = counted(body)?;
        }
        if !body.is_empty() || flags > &3 {
            return None;
        }
        names = names.or(count);
        all.push(((first_ms.checked_add(ms)?, seq), flags & 1 == 1));
    }
    Some(all)
}

impl Reader<'_> {
    fn id(&self, at: u64) -> Id {
        (self.word(at), self.word(at + 8))
    }

    /// The value of an entry.
    fn value(&self, at: u64) -> Vec<u8> {
        let key_len = self.word(at) & 0xffff_ffff;
        self.bytes(at + 16 + key_len, self.word(at + 8) & 0xffff_ffff)
    }

    /// Looks at what the sequence of a node in the trash has, and at its groups or consumers.
    pub(super) fn trashed_elements(
        &self,
        node: u64,
        elements: Vec<u64>,
        heap: &mut Heap,
        report: &mut Report,
    ) {
        let of = self.word(node + 48);
        for at in elements {
            match of {
                0 => self.element(at, heap, report),
                1 => {
                    heap.refer(at, 48, report);
                }
                _ => {}
            }
        }
        for (_, child, _) in self.children(node, heap, report) {
            match self.word(child + 48) {
                1 => self.group(child, heap, report),
                _ => {
                    let mut records = Vec::new();
                    self.sequence(self.word(child + 32), None, &mut records, heap, report);
                }
            }
        }
    }

    /// Groups or consumers, by name: name, node, entry.
    fn children(
        &self,
        node: u64,
        heap: &mut Heap,
        report: &mut Report,
    ) -> Vec<(Vec<u8>, u64, u64)> {
        let (mut entries, mut all) = (Vec::new(), Vec::<(Vec<u8>, u64, u64)>::new());
        self.sequence(self.word(node + 40), None, &mut entries, heap, report);
        for at in entries {
            let Some(name) = self.entry(at / 16, None, heap, report) else { continue };
            let child = u64_at(&self.value(at), 0);
            if !heap.refer(child, 256, report) {
                continue;
            }
            if all.last().is_some_and(|(before, _, _)| *before >= name) {
                report.find(13, format!("the names of the node at {node} are not in order"));
            }
            all.push((name, child, at));
        }
        all
    }

    /// Looks at a stream.
    pub(super) fn stream(&self, node: u64, heap: &mut Heap, report: &mut Report) {
        let mut blocks = Vec::new();
        self.sequence(self.word(node + 32), None, &mut blocks, heap, report);
        let first = self.id(node + 80);
        let (mut left, mut last_rows) = (Vec::new(), 0);
        for at in blocks {
            self.element(at, heap, report);
            let block = self.value(at);
            let Some(rows) = rows(&block) else {
                report.find(12, format!("the block at {at} has bytes that are no row"));
                continue;
            };
            let begins = (u64_at(&block, 0), u64_at(&block, 8));
            let here =
                rows.iter().filter(|(id, removed)| !removed && *id >= first).map(|(id, _)| *id);
            let before = left.len();
            left.extend(here);
            if before == left.len() || rows.first().is_none_or(|(id, _)| *id != begins) {
                report.find(
                    12,
                    format!("the block at {at} has no entry, or begins with another one"),
                );
            }
            last_rows = rows.len() as u64;
        }
        let (entries, rows) = (self.word(node + 8), self.word(node + 120) & 0xffff_ffff);
        let wanted = left.first().copied().unwrap_or((0, 0));
        if (entries, rows) != (left.len() as u64, last_rows) || first != wanted {
            report.find(
                12,
                format!(
                    "the stream at {node} says {entries} entries, {rows} rows in its last block \
                     and {}-{} for the first ID; it has {}, {last_rows} and {}-{}",
                    first.0,
                    first.1,
                    left.len(),
                    wanted.0,
                    wanted.1
                ),
            );
        }
        if !left.is_sorted_by(|a, b| a < b)
            || left.last().is_some_and(|id| *id > self.id(node + 64))
        {
            report.find(
                12,
                format!("the IDs of the stream at {node} do not ascend up to its last one"),
            );
        }
        for (_, group, _) in self.children(node, heap, report) {
            self.group(group, heap, report);
        }
    }

    /// Looks at a group.
    fn group(&self, node: u64, heap: &mut Heap, report: &mut Report) {
        let mut records = Vec::new();
        self.sequence(self.word(node + 32), None, &mut records, heap, report);
        let mut consumer_of = BTreeMap::new();
        for at in &records {
            if !heap.refer(*at, 48, report) {
                continue;
            }
            let bytes: Vec<u8> =
                (0..5).flat_map(|word| self.word(at + word * 8).to_le_bytes()).collect();
            if self.word(at + 40) != hash_bytes(&bytes, 0) {
                report.find(8, format!("the pending record at {at} does not have its checksum"));
            }
            consumer_of.insert(*at, self.word(at + 32));
        }
        self.in_order(node, &records, report);
        for (name, consumer, entry) in self.children(node, heap, report) {
            let mut own = Vec::new();
            self.sequence(self.word(consumer + 32), None, &mut own, heap, report);
            self.in_order(consumer, &own, report);
            let fits = own.iter().all(|at| consumer_of.remove(at) == Some(consumer));
            if !fits || self.word(consumer + 48) != 2 || self.word(consumer + 72) != entry {
                let name = String::from_utf8_lossy(&name).into_owned();
                let name = name.escape_debug();
                report.find(
                    13,
                    format!("the consumer \"{name}\" at {consumer} has what is another's"),
                );
            }
        }
        if !consumer_of.is_empty() || self.word(node + 48) != 1 {
            report.find(
                13,
                format!("{} records of the group at {node} are nobody's", consumer_of.len()),
            );
        }
    }

    /// Whether the records of a group or consumer are as many as it says, and in order.
    fn in_order(&self, node: u64, records: &[u64], report: &mut Report) {
        let ids: Vec<Id> = records.iter().map(|at| self.id(*at)).collect();
        let distinct: HashSet<&u64> = records.iter().collect();
        if self.word(node + 8) != records.len() as u64 || distinct.len() != records.len() {
            report.find(7, format!("the node at {node} does not say how many records are pending"));
        }
        if !ids.is_sorted_by(|a, b| a < b) {
            report.find(13, format!("the records of the node at {node} are not in order"));
        }
    }
}

//! Streams that come from elsewhere or go there: dump files, DUMP and RESTORE, COPY.

use std::collections::HashMap;

use super::{Found, Keyspace};
use crate::format::stream::{ADDED, FIRST, Id, LAST, REMOVED, block_head, names, push_row, rows};
use crate::heap::Full;
use crate::rdb::{Stream, StreamEntry, StreamGroup, StreamPending};

impl Keyspace {
    /// A stream, as it goes elsewhere; damage is noted.
    pub(crate) fn stream_content(&self, found: &Found) -> Stream {
        let Some(node) = self.stream_node(found) else { return Stream::default() };
        let facts = self.stream_facts(node);
        let mut blocks = Vec::new();
        self.for_elements(node, 0, |at| {
            let bytes = self.value(&self.found_at(at));
            let names = names(&bytes);
            let entries = rows(&bytes).map(|row| StreamEntry {
                id: row.id,
                removed: row.removed || row.id < facts.first,
                pairs: row
                    .pairs(&names)
                    .into_iter()
                    .map(|(a, b)| (a.to_vec(), b.to_vec()))
                    .collect(),
            });
            blocks.push(entries.collect());
            !self.heap.is_noted()
        });
        let groups = self
            .children(node)
            .into_iter()
            .map(|group| self.group_content(&group.name, group.node));
        let groups = groups.collect();
        Stream { blocks, last: facts.last, removed: facts.removed, added: facts.added, groups }
    }

    fn group_content(&self, name: &[u8], node: u64) -> StreamGroup {
        let (last, read) = self.group_facts(node);
        let children = self.children(node);
        let places: HashMap<u64, usize> =
            children.iter().enumerate().map(|(place, child)| (child.node, place)).collect();
        let mut pending = Vec::new();
        self.for_pending(node, Id::MIN, |one| {
            if let Some(consumer) = places.get(&one.consumer).copied() {
                pending.push(StreamPending {
                    id: one.id,
                    time: one.time,
                    count: one.count,
                    consumer,
                });
            }
            true
        });
        let consumers = children.iter().map(|child| (child.name.clone(), self.seen(child.node)));
        StreamGroup { name: name.to_vec(), last, read, consumers: consumers.collect(), pending }
    }

    /// Puts a stream, in place of whatever is there.
    ///
    /// # Errors
    /// There is no space.
    pub(in crate::keyspace) fn put_stream(
        &mut self,
        db: u8,
        key: &[u8],
        stream: &Stream,
        expires: Option<u64>,
    ) -> Result<(), Full> {
        let node = self.make_stream(db, key, expires)?;
        let (mut length, mut first) = (0, None);
        let with_entries = stream.blocks.iter().filter(|rows| rows.iter().any(|row| !row.removed));
        for (place, entries) in (0..).zip(with_entries) {
            let Some(begin) = entries.first().map(|entry| entry.id) else { continue };
            let mut block = block_head(begin);
            for (number, entry) in entries.iter().enumerate() {
                let pairs: Vec<(&[u8], &[u8])> =
                    entry.pairs.iter().map(|(a, b)| (a.as_slice(), b.as_slice())).collect();
                let of_first = &entries[0].pairs;
                let same = number > 0
                    && of_first.len() == pairs.len()
                    && of_first.iter().zip(&pairs).all(|((a, _), (b, _))| a == b);
                let at = block.len();
                push_row(begin, entry.id, same, &pairs, &mut block);
                if entry.removed {
                    super::blocks::mark_removed(&mut block, at);
                } else {
                    length += 1;
                    first = first.or(Some(entry.id));
                }
            }
            let (at, _) = self.write_part(b"", &block, 0)?;
            self.insert_element(node, place, at)?;
        }
        self.find_tail(node);
        self.heap.set(node + 8, length);
        self.set_id(node + FIRST, first.unwrap_or(Id::MIN));
        self.set_id(node + LAST, stream.last);
        self.set_id(node + REMOVED, stream.removed);
        self.heap.set(node + ADDED, stream.added);
        stream.groups.iter().try_for_each(|group| self.put_group(node, group))
    }

    fn put_group(&mut self, stream: u64, group: &StreamGroup) -> Result<(), Full> {
        let node = self.make_group(stream, &group.name, group.last, group.read)?;
        let mut consumers = Vec::new();
        for (name, seen) in &group.consumers {
            consumers.push(self.make_consumer(node, name, *seen)?);
        }
        for pending in &group.pending {
            if let Some(consumer) = consumers.get(pending.consumer) {
                self.deliver(node, *consumer, pending.id, (pending.time, pending.count))?;
            }
        }
        Ok(())
    }
}

//! A stream's groups, their consumers, and what is pending: was delivered and not acknowledged.

use super::Keyspace;
use crate::format::entry::HEAD;
use crate::format::stream::{
    CHILDREN, ELEMENTS, Id, LAST, NAMED, OTHERS_RECORDS, OWN_RECORDS, READ, RECORD, RECORD_WORDS,
    SEEN, record_sum,
};
use crate::format::{SEQUENCE, TRASH};
use crate::heap::{Damage, Full};
use crate::planted::Planted;

const UNKNOWN: u64 = u64::MAX;

/// A group of a stream, or a consumer of a group.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub(crate) name: Vec<u8>,
    pub(crate) node: u64,
    /// Its place among the others.
    place: u64,
}

/// A pending record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    /// Where it is.
    pub(crate) at: u64,
    pub(crate) id: Id,
    /// When the entry was delivered last.
    pub(crate) time: u64,
    /// How often.
    pub(crate) count: u64,
    /// The node of the consumer that has it.
    pub(crate) consumer: u64,
}

/// Where the tree functions find the sequence of groups or consumers of a node.
fn children_of(node: u64) -> u64 {
    node + CHILDREN - SEQUENCE
}

impl Keyspace {
    fn name_of(&self, at: u64) -> Vec<u8> {
        let mut name = Vec::new();
        self.heap.read_to(at + HEAD, self.header(at).key_len, &mut name);
        name
    }

    /// The groups of a stream, or the consumers of a group, by name.
    pub(crate) fn children(&self, node: u64) -> Vec<Child> {
        let mut all = Vec::new();
        self.for_elements(children_of(node), 0, |at| {
            all.push(Child {
                name: self.name_of(at),
                node: self.node_of(&self.found_at(at)),
                place: all.len() as u64,
            });
            !self.heap.is_noted()
        });
        all
    }

    /// How many groups a stream has, or how many consumers a group.
    pub(crate) fn child_count(&self, node: u64) -> u64 {
        self.sequence_len(children_of(node))
    }

    /// The group or consumer of this name; otherwise where it would be.
    fn find_child(&self, node: u64, name: &[u8]) -> Result<Child, u64> {
        let place = self.partition(children_of(node), |at| self.name_of(at).as_slice() < name);
        let found = self.element_before_end(children_of(node), place).map(|at| self.found_at(at));
        match found.filter(|found| self.name_of(found.at) == name) {
            Some(found) => Ok(Child { name: name.to_vec(), node: self.node_of(&found), place }),
            None => Err(place),
        }
    }

    /// The group or consumer of this name.
    pub(crate) fn named_child(&self, node: u64, name: &[u8]) -> Option<Child> {
        self.find_child(node, name).ok().filter(|child| child.node != 0)
    }

    /// Makes a group or consumer, which is not there yet; its node.
    fn make_child(&mut self, node: u64, name: &[u8], elements: u64) -> Result<u64, Full> {
        let place = self.find_child(node, name).map_or_else(|place| place, |child| child.place);
        let child = self.new_node()?;
        self.heap.set(child + ELEMENTS, elements);
        let (at, _) = self.write_part(name, &child.to_le_bytes(), 0)?;
        self.insert_element(children_of(node), place, at)?;
        if elements == OTHERS_RECORDS {
            self.heap.set(child + NAMED, at);
        }
        Ok(child)
    }

    /// Removes a group or consumer; what it has is freed later.
    fn remove_child(&mut self, node: u64, child: &Child) {
        let at = self.remove_element(children_of(node), child.place);
        let header = self.header(at);
        self.heap.free(at, header.class);
        if self.heap.planted().is(Planted::GroupForgotten) {
            self.heap.commit();
        }
        self.discard_node(child.node);
    }

    /// Gives a node to the trash, behind the first one there, which may be just being emptied.
    pub(in crate::keyspace) fn discard_node(&mut self, node: u64) {
        let first = self.heap.word(TRASH);
        let after = if first == 0 { TRASH } else { first + 24 };
        let next = self.heap.word(after);
        self.heap.set(node + 24, next);
        self.heap.set(after, node);
    }

    /// Makes a group, which is not there yet; its node.
    ///
    /// # Errors
    /// There is no space.
    pub(crate) fn make_group(
        &mut self,
        stream: u64,
        name: &[u8],
        last: Id,
        read: Option<u64>,
    ) -> Result<u64, Full> {
        let group = self.make_child(stream, name, OWN_RECORDS)?;
        self.set_group(group, last, read);
        Ok(group)
    }

    /// What a group was given last, and how many entries it has read, if that is known.
    pub(crate) fn group_facts(&self, group: u64) -> (Id, Option<u64>) {
        let read = self.heap.word(group + READ);
        (self.id_at(group + LAST), (read != UNKNOWN).then_some(read))
    }

    pub(crate) fn set_group(&mut self, group: u64, last: Id, read: Option<u64>) {
        self.set_id(group + LAST, last);
        self.heap.set(group + READ, read.unwrap_or(UNKNOWN));
    }

    pub(crate) fn remove_group(&mut self, stream: u64, group: &Child) {
        self.remove_child(stream, group);
    }

    /// Makes a consumer, which is not there yet; its node.
    ///
    /// # Errors
    /// There is no space.
    pub(crate) fn make_consumer(
        &mut self,
        group: u64,
        name: &[u8],
        seen: u64,
    ) -> Result<u64, Full> {
        let consumer = self.make_child(group, name, OTHERS_RECORDS)?;
        self.heap.set(consumer + SEEN, seen);
        Ok(consumer)
    }

    /// When a consumer was seen last.
    pub(crate) fn seen(&self, consumer: u64) -> u64 {
        self.heap.word(consumer + SEEN)
    }

    pub(crate) fn set_seen(&mut self, consumer: u64, seen: u64) {
        if self.seen(consumer) != seen {
            self.heap.set(consumer + SEEN, seen);
        }
    }

    /// The name of a consumer, which a pending record names.
    pub(crate) fn consumer_name(&self, consumer: u64) -> Vec<u8> {
        let at = self.heap.word(consumer + NAMED);
        self.name_of(at)
    }

    /// Removes a consumer and what is pending for it; how many those were.
    pub(crate) fn remove_consumer(&mut self, group: u64, consumer: &Child) -> u64 {
        let mut records = Vec::new();
        self.for_elements(consumer.node, 0, |at| {
            records.push(at);
            !self.heap.is_noted()
        });
        for at in &records {
            let id = self.id_at(*at);
            self.leave(group, id);
            self.heap.free_slot(*at, RECORD);
        }
        self.remove_child(group, consumer);
        records.len() as u64
    }

    /// How many records are pending for a group or a consumer.
    pub(crate) fn pending_count(&self, node: u64) -> u64 {
        self.heap.word(node + 8)
    }

    /// The pending record at `at`.
    fn pending_at(&self, at: u64) -> Pending {
        let mut words = [0; RECORD_WORDS];
        for (place, word) in (0..).zip(&mut words) {
            *word = self.heap.word(at + place * 8);
        }
        if words[RECORD_WORDS - 1] != record_sum(&words) {
            let what = format!("the pending record at {at} does not have its checksum");
            self.heap.note(Damage::Structure(what));
        }
        let [ms, seq, time, count, consumer, _] = words;
        Pending { at, id: Id { ms, seq }, time, count, consumer }
    }

    fn put_pending(&mut self, pending: &Pending) {
        let Pending { id, time, count, consumer, .. } = *pending;
        let mut words = [id.ms, id.seq, time, count, consumer, 0];
        words[RECORD_WORDS - 1] = record_sum(&words);
        for (place, word) in (0..).zip(words) {
            if self.heap.word(pending.at + place * 8) != word {
                self.heap.set(pending.at + place * 8, word);
            }
        }
    }

    /// How many records of a group or consumer come before an ID.
    fn pending_before(&self, node: u64, id: Id) -> u64 {
        self.partition(node, |at| self.id_at(at) < id)
    }

    /// The pending record of an ID.
    pub(crate) fn pending(&self, node: u64, id: Id) -> Option<Pending> {
        let at = self.element_before_end(node, self.pending_before(node, id))?;
        (self.id_at(at) == id).then(|| self.pending_at(at))
    }

    /// The element at a place, which may be the end.
    fn element_before_end(&self, base: u64, place: u64) -> Option<u64> {
        let there = place < self.sequence_len(base);
        there.then(|| self.element_at(base, place)).flatten().map(|word| self.heap.word(word))
    }

    /// Calls `each` with what is pending from an ID on until it says that it has enough.
    pub(crate) fn for_pending(&self, node: u64, from: Id, mut each: impl FnMut(Pending) -> bool) {
        let place = self.pending_before(node, from);
        self.for_elements(node, place, |at| {
            let pending = self.pending_at(at);
            !self.heap.is_noted() && each(pending)
        });
    }

    /// What is pending for a group first, and last.
    pub(crate) fn pending_ends(&self, node: u64) -> Option<(Id, Id)> {
        let last = self.heap.word(self.last_element(node)?);
        let first = self.heap.word(self.element_at(node, 0)?);
        Some((self.id_at(first), self.id_at(last)))
    }

    /// Puts a record into the sequence of a group or a consumer.
    fn enter(&mut self, node: u64, id: Id, at: u64) -> Result<(), Full> {
        let place = self.pending_before(node, id);
        self.insert_element(node, place, at)?;
        self.heap.add(node + 8, 1);
        Ok(())
    }

    /// Takes a record out of the sequence of a group or a consumer.
    fn leave(&mut self, node: u64, id: Id) {
        let place = self.pending_before(node, id);
        self.remove_element(node, place);
        self.heap.add(node + 8, -1);
    }

    /// Makes a pending record of a group and a consumer, in place of what is pending with this ID.
    ///
    /// # Errors
    /// There is no space.
    pub(crate) fn deliver(
        &mut self,
        group: u64,
        consumer: u64,
        id: Id,
        (time, count): (u64, u64),
    ) -> Result<(), Full> {
        if let Some(old) = self.pending(group, id) {
            return self.hand_over(&old, consumer, (time, count));
        }
        let at = self.heap.alloc_slot(RECORD)?;
        for word in 0..RECORD_WORDS as u64 {
            self.heap.set(at + word * 8, 0);
        }
        self.put_pending(&Pending { at, id, time, count, consumer });
        self.enter(group, id, at)?;
        self.enter(consumer, id, at)
    }

    /// Gives what is pending to a consumer, who may have it already.
    ///
    /// # Errors
    /// There is no space.
    pub(crate) fn hand_over(
        &mut self,
        pending: &Pending,
        consumer: u64,
        (time, count): (u64, u64),
    ) -> Result<(), Full> {
        if pending.consumer != consumer {
            self.leave(pending.consumer, pending.id);
            if self.heap.planted().is(Planted::PendingInTwo) {
                self.heap.commit();
            }
            self.enter(consumer, pending.id, pending.at)?;
        }
        self.put_pending(&Pending { time, count, consumer, ..*pending });
        Ok(())
    }

    /// Removes what is pending.
    pub(crate) fn acknowledge(&mut self, group: u64, pending: &Pending) {
        self.leave(pending.consumer, pending.id);
        if self.heap.planted().is(Planted::PendingInTwo) {
            self.heap.commit();
        }
        self.leave(group, pending.id);
        self.heap.free_slot(pending.at, RECORD);
    }
}

//! Lists: the elements are in the value while they are small, else in a sequence.

use super::hash::{pack, unpack};
use super::{Found, Keyspace};
use crate::format::entry::kind;
use crate::heap::Full;
use crate::planted::Planted;

/// Bytes of a value with all elements, beyond which a list gets a sequence. A push writes a small
/// list anew, so this is less than what a small hash may have: lists are pushed to at a high rate.
const PACKED_MAX: usize = 1 << 10;

/// Elements, the first one first.
pub(crate) type Elements = Vec<Vec<u8>>;

impl Keyspace {
    /// How many elements a list has.
    pub fn list_len(&self, found: &Found) -> u64 {
        self.field_count(found)
    }

    fn packed_elements(&self, found: Option<&Found>) -> Elements {
        let Some(found) = found else { return Vec::new() };
        unpack(&self.value(found)).map(|(_, value)| value.to_vec()).collect()
    }

    /// The elements from `from` to before `to`.
    pub(crate) fn elements(&self, found: &Found, from: u64, to: u64) -> Elements {
        let mut all = Vec::new();
        self.for_list(found, from, |element| {
            if all.len() as u64 + from < to {
                all.push(element);
            }
            (all.len() as u64).saturating_add(from) < to
        });
        all
    }

    /// Calls `each` with the elements from a place on until it returns that it has enough.
    pub(crate) fn for_list(&self, found: &Found, from: u64, mut each: impl FnMut(Vec<u8>) -> bool) {
        if found.header.kind != kind::LIST_NODE {
            let all = self.packed_elements(Some(found)).into_iter();
            all.skip(usize::try_from(from).unwrap_or(usize::MAX)).all(each);
            return;
        }
        self.for_elements(self.node_of(found), from, |at| {
            let value = self.value(&self.found_at(at));
            !self.heap.is_noted() && each(value)
        });
    }

    /// Puts a list, in place of whatever is there.
    ///
    /// # Errors
    /// There is no space.
    pub(crate) fn put_list(
        &mut self,
        db: u8,
        key: &[u8],
        elements: &Elements,
        expires: Option<u64>,
    ) -> Result<(), Full> {
        let bytes: usize = elements.iter().map(|element| element.len() + 8).sum();
        if bytes <= PACKED_MAX {
            let fields = elements.iter().map(|element| (Vec::new(), element.clone())).collect();
            return self.put(db, key, kind::LIST, &pack(&fields), expires);
        }
        let node = self.new_node()?;
        for (place, element) in (0..).zip(elements) {
            self.insert_into_list(node, place, element)?;
        }
        self.put(db, key, kind::LIST_NODE, &node.to_le_bytes(), expires)
    }

    fn insert_into_list(&mut self, node: u64, place: u64, value: &[u8]) -> Result<(), Full> {
        let (at, _) = self.write_part(b"", value, 0)?;
        self.insert_element(node, place, at)?;
        if self.heap.planted().is(Planted::ElementCountedLater) {
            self.heap.commit();
        }
        self.heap.add(node + 8, 1);
        Ok(())
    }

    /// Puts elements at a place of a list: each behind the one before, or all at its front, so that
    /// the last one is the first. A list that is not there is made.
    ///
    /// # Errors
    /// There is no space.
    pub(crate) fn insert_in_list(
        &mut self,
        db: u8,
        key: &[u8],
        found: Option<&Found>,
        place: u64,
        front: bool,
        values: &[&[u8]],
    ) -> Result<(), Full> {
        if let Some(found) = found.filter(|found| found.header.kind == kind::LIST_NODE) {
            let node = self.node_of(found);
            for (number, value) in (0..).zip(values) {
                self.insert_into_list(node, if front { 0 } else { place + number }, value)?;
            }
            self.touch(db, key);
            return Ok(());
        }
        let mut elements = self.packed_elements(found);
        for (number, value) in (0..).zip(values) {
            let at = if front { 0 } else { place as usize + number };
            elements.insert(at.min(elements.len()), value.to_vec());
        }
        self.put_list(db, key, &elements, found.and_then(|found| found.header.expires))
    }

    /// Changes an element.
    ///
    /// # Errors
    /// There is no space.
    pub(crate) fn set_in_list(
        &mut self,
        db: u8,
        key: &[u8],
        found: &Found,
        place: u64,
        value: &[u8],
    ) -> Result<(), Full> {
        if found.header.kind != kind::LIST_NODE {
            let mut elements = self.packed_elements(Some(found));
            if let Some(element) = elements.get_mut(place as usize) {
                *element = value.to_vec();
            }
            return self.put_list(db, key, &elements, found.header.expires);
        }
        let (at, _) = self.write_part(b"", value, 0)?;
        if let Some(word_at) = self.element_at(self.node_of(found), place) {
            let old = self.heap.word(word_at);
            self.heap.set(word_at, at);
            self.free_element(old);
        }
        self.touch(db, key);
        Ok(())
    }

    fn free_element(&mut self, at: u64) {
        let header = self.header(at);
        self.heap.free(at, header.class);
    }

    /// Takes elements out of a list, at places in ascending order; the list goes with its last one.
    ///
    /// # Errors
    /// There is no space: a small list is written anew.
    pub(crate) fn remove_from_list(
        &mut self,
        db: u8,
        key: &[u8],
        found: &Found,
        places: &[u64],
    ) -> Result<(), Full> {
        if places.is_empty() {
            return Ok(());
        }
        if places.len() as u64 >= self.list_len(found) {
            // What a sequence had is freed later, a part at a time.
            self.unlink(db, key, found);
            return Ok(());
        }
        let kept = self.list_len(found) - places.len() as u64;
        if found.header.kind == kind::LIST_NODE && kept < places.len() as u64 / 4 {
            // What is left of a long list is written anew, and the rest freed later, a part at a
            // time.
            let (mut elements, mut place) = (Vec::new(), 0);
            self.for_list(found, 0, |element| {
                if places.binary_search(&place).is_err() {
                    elements.push(element);
                }
                place += 1;
                true
            });
            return self.put_list(db, key, &elements, found.header.expires);
        }
        if found.header.kind == kind::LIST_NODE {
            let node = self.node_of(found);
            for place in places.iter().rev() {
                if self.heap.is_noted() {
                    return Ok(());
                }
                let at = self.remove_element(node, *place);
                self.free_element(at);
                self.heap.add(node + 8, -1);
            }
            self.touch(db, key);
            return Ok(());
        }
        let mut elements = self.packed_elements(Some(found));
        let mut number = 0;
        elements.retain(|_| {
            number += 1;
            places.binary_search(&(number - 1)).is_err()
        });
        self.put_list(db, key, &elements, found.header.expires)
    }
}

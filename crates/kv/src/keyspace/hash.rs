//! Hashes and sets: the fields are in the value while they are small, else in an index of their
//! own. A set is a hash whose values are empty.
//!
//! A small hash is written anew with each change, at most [`PACKED_MAX`] bytes. A larger one has a
//! node with the form of a database: its fields are found, put, split and walked over by the same
//! code as keys, and freed by the same as a flushed database.

use super::index::NODE;
use super::{Found, Keyspace, Put};
use crate::format::DATABASE;
use crate::format::entry::{Header, kind};
use crate::heap::{Damage, Full};

/// Bytes of a value with all fields, beyond which a hash gets an index.
const PACKED_MAX: usize = 32 << 10;

/// Fields with their values, in the order in which they came.
pub(crate) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

pub(super) fn pack(fields: &Fields) -> Vec<u8> {
    let mut bytes = (fields.len() as u32).to_le_bytes().to_vec();
    for (field, value) in fields {
        bytes.extend_from_slice(&(field.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(field);
        bytes.extend_from_slice(value);
    }
    bytes
}

fn number(bytes: &[u8], at: usize) -> usize {
    bytes
        .get(at..at + 4)
        .map_or(0, |bytes| bytes.iter().rev().fold(0, |all, byte| all << 8 | usize::from(*byte)))
}

/// The fields of a packed value; those that lie in it, if it is damaged.
pub(super) fn unpack(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut at = 4;
    (0..number(bytes, 0)).map_while(move |_| {
        let (name, value) = (at + 8, at + 8 + number(bytes, at));
        let end = value + number(bytes, at + 4);
        at = end;
        Some((bytes.get(name..value)?, bytes.get(value..end)?))
    })
}

impl Keyspace {
    /// Where the node of a value is.
    pub(super) fn node_of(&self, found: &Found) -> u64 {
        let bytes = self.value(found);
        // A value that is not what was written leads nowhere.
        if self.heap.is_noted() || bytes.len() != 8 {
            return 0;
        }
        bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
    }

    /// The entry of a field of a hash with an index.
    fn field_entry(&self, found: &Found, field: &[u8]) -> Option<Found> {
        self.find(self.node_of(found), field, self.heap.hash(field))
    }

    /// The value of a field.
    pub fn field(&self, found: &Found, field: &[u8]) -> Option<Vec<u8>> {
        if kind::has_node(found.header.kind) {
            return Some(self.value(&self.field_entry(found, field)?));
        }
        let bytes = self.value(found);
        unpack(&bytes).find(|(name, _)| *name == field).map(|(_, value)| value.to_vec())
    }

    /// How many fields, elements or members a value has.
    pub fn field_count(&self, found: &Found) -> u64 {
        if kind::has_node(found.header.kind) {
            let (node, most) = (self.node_of(found), self.heap.size() / 32);
            let count = if node == 0 { 0 } else { self.heap.word(node + 8) };
            if count > most {
                let what = format!("the node at {node} says that it has {count} elements");
                self.heap.note(Damage::Structure(what));
                return 0;
            }
            return count;
        }
        self.compare(found);
        let mut bytes = Vec::new();
        self.read_value(found, 0, 4.min(found.header.value_len), &mut bytes);
        number(&bytes, 0) as u64
    }

    /// All fields of a hash.
    pub(crate) fn fields(&self, found: &Found) -> Fields {
        if kind::has_node(found.header.kind) {
            let mut all = Vec::new();
            self.for_each_in(self.node_of(found), |field, entry| {
                all.push((field.to_vec(), self.value(entry)));
            });
            return all;
        }
        let bytes = self.value(found);
        unpack(&bytes).map(|(field, value)| (field.to_vec(), value.to_vec())).collect()
    }

    /// One step of a walk over the fields; a small hash is walked over in one.
    pub(crate) fn scan_fields(&self, found: &Found, cursor: u64) -> (u64, Fields) {
        if !kind::has_node(found.header.kind) {
            return (0, self.fields(found));
        }
        let mut entries = Vec::new();
        let next = self.scan_index(self.node_of(found), cursor, &mut entries);
        let fields = entries.into_iter().map(|(field, entry)| (field, self.value(&entry)));
        (next, fields.collect())
    }

    /// Sets fields of a value that is, or is made, of the type `of`; how many of them are new.
    ///
    /// # Errors
    /// There is no space.
    pub fn set_fields(
        &mut self,
        db: u8,
        key: &[u8],
        (found, of): (Option<&Found>, u8),
        pairs: &[(&[u8], &[u8])],
    ) -> Result<u64, Full> {
        if let Some(found) = found.filter(|found| kind::has_node(found.header.kind)) {
            let node = self.node_of(found);
            let before = self.heap.word(node + 8);
            for (field, value) in pairs {
                self.put_field(node, field, value)?;
            }
            self.touch(db, key);
            return Ok(self.heap.word(node + 8) - before);
        }
        let mut fields = found.map(|found| self.fields(found)).unwrap_or_default();
        let expires = found.and_then(|found| found.header.expires);
        let before = fields.len();
        let old_len = found.map_or(0, |found| found.header.value_len) as usize;
        let more: usize = pairs.iter().map(|(field, value)| field.len() + value.len() + 8).sum();
        if old_len + more > PACKED_MAX {
            // Not one by one into a list that is searched from its begin.
            let node = self.put_indexed(db, key, of + 1, &fields, expires)?;
            for (field, value) in pairs {
                self.put_field(node, field, value)?;
            }
            return Ok(self.heap.word(node + 8) - before as u64);
        }
        for (field, value) in pairs {
            match fields.iter_mut().find(|(name, _)| name == field) {
                Some((_, old)) => *old = value.to_vec(),
                None => fields.push((field.to_vec(), value.to_vec())),
            }
        }
        let added = (fields.len() - before) as u64;
        self.put(db, key, of, &pack(&fields), expires)?;
        Ok(added)
    }

    /// Removes fields of a hash, and the hash with the last of them; how many there were.
    ///
    /// # Errors
    /// There is no space: a small hash is written anew.
    pub fn remove_fields(
        &mut self,
        db: u8,
        key: &[u8],
        found: &Found,
        names: &[&[u8]],
    ) -> Result<u64, Full> {
        let removed;
        if kind::has_node(found.header.kind) {
            let node = self.node_of(found);
            let before = self.heap.word(node + 8);
            for name in names {
                if let Some(entry) = self.field_entry(found, name) {
                    self.unlink_entry(node, &entry);
                }
            }
            removed = before - self.heap.word(node + 8);
            if removed > 0 {
                self.touch(db, key);
            }
            if removed == before {
                self.unlink(db, key, found);
            }
        } else {
            let mut fields = self.fields(found);
            let before = fields.len();
            fields.retain(|(field, _)| !names.contains(&field.as_slice()));
            removed = (before - fields.len()) as u64;
            if fields.is_empty() {
                self.unlink(db, key, found);
            } else if removed > 0 {
                self.put(db, key, found.header.kind, &pack(&fields), found.header.expires)?;
            }
        }
        Ok(removed)
    }

    /// Puts a set, in place of whatever is there.
    ///
    /// # Errors
    /// There is no space.
    pub fn put_set(&mut self, db: u8, key: &[u8], members: &[Vec<u8>]) -> Result<(), Full> {
        let fields: Fields = members.iter().map(|member| (member.clone(), Vec::new())).collect();
        let bytes: usize = members.iter().map(|member| member.len() + 8).sum();
        if bytes > PACKED_MAX {
            return self.put_indexed(db, key, kind::SET_NODE, &fields, None).map(|_| ());
        }
        self.put(db, key, kind::SET, &pack(&fields), None)
    }

    /// Some field of a value.
    pub fn random_field(&self, found: &Found) -> Option<Vec<u8>> {
        if kind::has_node(found.header.kind) {
            return self.random_in(self.node_of(found));
        }
        let mut fields = self.fields(found);
        if fields.is_empty() {
            None
        } else {
            Some(fields.swap_remove(fastrand::usize(..fields.len())).0)
        }
    }

    /// Copies a key, in place of whatever is there.
    ///
    /// # Errors
    /// There is no space.
    pub fn copy(&mut self, found: &Found, db: u8, key: &[u8]) -> Result<(), Full> {
        if found.header.kind == kind::LIST_NODE {
            let elements = self.elements(found, 0, u64::MAX);
            return self.put_list(db, key, &elements, found.header.expires);
        }
        if found.header.kind == kind::ZSET_NODE {
            let all = self.scored(found, 0, u64::MAX);
            return self.put_zset(db, key, &all, found.header.expires);
        }
        if found.header.kind == kind::STREAM {
            let stream = self.stream_content(found);
            return self.put_stream(db, key, &stream, found.header.expires);
        }
        if kind::has_node(found.header.kind) {
            let fields = self.fields(found);
            self.put_indexed(db, key, found.header.kind, &fields, found.header.expires)?;
            return Ok(());
        }
        let value = self.value(found);
        let Header { kind, expires, raw, .. } = found.header;
        let put = Put { kind, value: &value, expires, slack: 0, goes_on: false, raw };
        self.put_value(db, key, &put)
    }

    pub(super) fn put_field(&mut self, node: u64, field: &[u8], value: &[u8]) -> Result<(), Full> {
        let put =
            Put { kind: kind::STRING, value, expires: None, slack: 0, goes_on: false, raw: false };
        self.put_into(node, field, &put).map(|_| ())
    }

    /// A node without keys and elements.
    pub(super) fn new_node(&mut self) -> Result<u64, Full> {
        let node = self.heap.alloc_slot(NODE)?;
        for word in 0..DATABASE / 8 {
            self.heap.set(node + word * 8, 0);
        }
        Ok(node)
    }

    /// Puts a value of the type `of`, which has an index, with these fields; returns the index's
    /// place.
    fn put_indexed(
        &mut self,
        db: u8,
        key: &[u8],
        of: u8,
        fields: &Fields,
        expires: Option<u64>,
    ) -> Result<u64, Full> {
        let node = self.new_node()?;
        for (field, value) in fields {
            self.put_field(node, field, value)?;
        }
        self.put(db, key, of, &node.to_le_bytes(), expires)?;
        Ok(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_as_they_were_packed_and_damage_ends_them() {
        let fields: Fields =
            (0..20_u8).map(|n| (vec![n; n.into()], vec![0; 3 * usize::from(n)])).collect();
        let bytes = pack(&fields);
        let back: Fields = unpack(&bytes).map(|(f, v)| (f.to_vec(), v.to_vec())).collect();
        assert_eq!(back, fields);
        for end in 0..bytes.len() {
            assert!(unpack(&bytes[..end]).count() < 20);
        }
    }
}

//! Sorted sets: members with their scores, in the value while they are small, else in an index,
//! which finds a score, and a sequence of the same entries, which has them in order.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::hash::{pack, unpack};
use super::{Found, Keyspace};
use crate::format::entry::{HEAD, kind};
use crate::heap::Full;
use crate::planted::Planted;

/// Bytes of a value with all members, beyond which a sorted set gets a node.
const PACKED_MAX: usize = 32 << 10;
/// Changes that are made one by one to members that lie together.
const ONE_BY_ONE: usize = 32;

/// A member with its score.
pub(crate) type Scored = (Vec<u8>, f64);

/// The order of a sorted set: by score, then by member.
pub(crate) fn order(one: (&[u8], f64), other: (&[u8], f64)) -> Ordering {
    one.1.partial_cmp(&other.1).unwrap_or(Ordering::Equal).then_with(|| one.0.cmp(other.0))
}

/// The members with the changes, in order.
fn changed(mut all: Vec<Scored>, changes: &[(&[u8], Option<f64>)]) -> Vec<Scored> {
    // Looking through all members for each of many would take time by the square.
    if changes.len() > ONE_BY_ONE {
        let mut scores: HashMap<Vec<u8>, f64> = all.into_iter().collect();
        for (member, score) in changes {
            match score {
                Some(score) => scores.insert(member.to_vec(), *score),
                None => scores.remove(*member),
            };
        }
        let mut all: Vec<Scored> = scores.into_iter().collect();
        all.sort_unstable_by(|one, other| order((&one.0, one.1), (&other.0, other.1)));
        return all;
    }
    for (member, score) in changes {
        if let Some(at) = all.iter().position(|(other, _)| other == member) {
            all.remove(at);
        }
        if let Some(score) = score {
            let at = all.partition_point(|(m, s)| order((m, *s), (member, *score)).is_lt());
            all.insert(at, (member.to_vec(), *score));
        }
    }
    all
}

fn score_of(bytes: &[u8]) -> f64 {
    bytes.first_chunk().map_or(0.0, |bytes| f64::from_le_bytes(*bytes))
}

impl Keyspace {
    fn packed_scored(&self, found: Option<&Found>) -> Vec<Scored> {
        let Some(found) = found else { return Vec::new() };
        unpack(&self.value(found))
            .map(|(member, score)| (member.to_vec(), score_of(score)))
            .collect()
    }

    /// The score of a member.
    pub(crate) fn score(&self, found: &Found, member: &[u8]) -> Option<f64> {
        self.field(found, member).map(|score| score_of(&score))
    }

    /// The members with the ranks from `from` to before `to`.
    pub(crate) fn scored(&self, found: &Found, from: u64, to: u64) -> Vec<Scored> {
        let count = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
        if found.header.kind != kind::ZSET_NODE {
            let skip = usize::try_from(from).unwrap_or(usize::MAX);
            return self.packed_scored(Some(found)).into_iter().skip(skip).take(count).collect();
        }
        let mut all = Vec::new();
        self.for_elements(self.node_of(found), from, |at| {
            if all.len() < count {
                let entry = self.found_at(at);
                let score = score_of(&self.value(&entry));
                all.push((self.key_at(at, entry.header.key_len), score));
            }
            all.len() < count && !self.heap.is_noted()
        });
        all
    }

    fn key_at(&self, at: u64, len: u64) -> Vec<u8> {
        let mut key = Vec::new();
        self.heap.read_to(at + HEAD, len, &mut key);
        key
    }

    /// How many members come before the first for which `before` does not hold; it holds for all up
    /// to some member, and for none from there on.
    pub(crate) fn rank(&self, found: &Found, before: impl Fn(&[u8], f64) -> bool) -> u64 {
        if found.header.kind != kind::ZSET_NODE {
            return self.packed_scored(Some(found)).partition_point(|(m, score)| before(m, *score))
                as u64;
        }
        self.rank_in(self.node_of(found), before)
    }

    fn rank_in(&self, node: u64, before: impl Fn(&[u8], f64) -> bool) -> u64 {
        self.partition(node, |at| {
            let header = self.header(at);
            let mut score = [0; 8];
            self.heap.read(at + header.value_at(), &mut score);
            before(&self.key_at(at, header.key_len), f64::from_le_bytes(score))
        })
    }

    /// Puts a sorted set, in place of whatever is there. The members are in order.
    ///
    /// # Errors
    /// There is no space.
    pub(crate) fn put_zset(
        &mut self,
        db: u8,
        key: &[u8],
        all: &[Scored],
        expires: Option<u64>,
    ) -> Result<(), Full> {
        let bytes: usize = all.iter().map(|(member, _)| member.len() + 16).sum();
        if bytes <= PACKED_MAX {
            let fields =
                all.iter().map(|(member, score)| (member.clone(), score.to_le_bytes().to_vec()));
            return self.put(db, key, kind::ZSET, &pack(&fields.collect()), expires);
        }
        let node = self.new_node()?;
        for (rank, (member, score)) in (0..).zip(all) {
            let at = self.put_member(node, member, *score)?;
            self.insert_element(node, rank, at)?;
        }
        self.put(db, key, kind::ZSET_NODE, &node.to_le_bytes(), expires)
    }

    /// Puts a member into the index of a node; where its entry is.
    fn put_member(&mut self, node: u64, member: &[u8], score: f64) -> Result<u64, Full> {
        self.put_field(node, member, &score.to_le_bytes())?;
        Ok(self.find(node, member, self.heap.hash(member)).map_or(0, |entry| entry.at))
    }

    /// Takes a member out of the sequence of a node, where it has this score.
    fn leave_sequence(&mut self, node: u64, member: &[u8], score: f64) {
        let rank = self.rank_in(node, |other, of| order((other, of), (member, score)).is_lt());
        self.remove_element(node, rank);
    }

    /// Gives members new scores, or removes them: those without one. A sorted set that is not there
    /// is made, and one that is empty is removed.
    ///
    /// # Errors
    /// There is no space: a small one is written anew.
    pub(crate) fn change_scores(
        &mut self,
        db: u8,
        key: &[u8],
        found: Option<&Found>,
        changes: &[(&[u8], Option<f64>)],
    ) -> Result<(), Full> {
        if changes.is_empty() {
            return Ok(());
        }
        if let Some(found) = found.filter(|found| found.header.kind == kind::ZSET_NODE) {
            let node = self.node_of(found);
            for (member, score) in changes {
                self.change_score(node, member, *score)?;
                if self.heap.is_noted() {
                    return Ok(());
                }
            }
            if self.heap.word(node + 8) == 0 {
                self.unlink(db, key, found);
            }
            self.touch(db, key);
            return Ok(());
        }
        let all = changed(self.packed_scored(found), changes);
        match found {
            Some(found) if all.is_empty() => {
                self.unlink(db, key, found);
                Ok(())
            }
            _ => self.put_zset(db, key, &all, found.and_then(|found| found.header.expires)),
        }
    }

    fn change_score(&mut self, node: u64, member: &[u8], score: Option<f64>) -> Result<(), Full> {
        let old = self.find(node, member, self.heap.hash(member));
        if let Some(old) = &old {
            let before = score_of(&self.value(old));
            if self.heap.is_noted() {
                return Ok(());
            }
            self.leave_sequence(node, member, before);
        }
        if self.heap.planted().is(Planted::OrderComesLater) {
            self.heap.commit();
        }
        match (score, old) {
            (Some(score), _) => {
                let at = self.put_member(node, member, score)?;
                let rank =
                    self.rank_in(node, |other, of| order((other, of), (member, score)).is_lt());
                self.insert_element(node, rank, at)?;
            }
            (None, Some(old)) => self.unlink_entry(node, &old),
            (None, None) => {}
        }
        Ok(())
    }
}

//! What a source counts apart for each of many things of a kind: databases, users, indexes,
//! standbys, replication slots.
//!
//! A kind has few figures of its own, so they are kept by name: counts, which only grow, and
//! levels, which are as they were at one instant. `sources/` says which there are,
//! `report/objects.rs` what they are called.
//!
//! Deliberately absent: tables (`tables.rs`), files (`file.rs`), statements (`statement.rs`), which
//! findings calculate with.
//!
//! Invariant: a count of an interval is of that interval; what was counted anew is left out of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What kind of thing it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectKind {
    /// A database of the server.
    Database,
    /// A user, by whose number statements are counted apart.
    User,
    /// An index of a table.
    Index,
    /// A server that is sent the redo of this one.
    Standby,
    /// A place that redo is kept for, whoever fetches it.
    Slot,
}

/// One thing since the source began to count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectStat {
    /// What kind of thing it is.
    pub kind: ObjectKind,
    /// What tells it from others of its kind: another one if it was made anew.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// What else is known of it in words: the table of an index, the state of a standby.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// What only grows, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// What goes up and down, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub levels: BTreeMap<String, u64>,
}

impl ObjectStat {
    /// One without figures.
    pub fn new(kind: ObjectKind, id: impl Into<String>, name: impl Into<String>) -> ObjectStat {
        let (detail, counts, levels) = (String::new(), BTreeMap::new(), BTreeMap::new());
        ObjectStat { kind, id: id.into(), name: name.into(), detail, counts, levels }
    }

    /// Its count of this name.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.counts.get(name).copied()
    }

    /// Its level of this name.
    pub fn level(&self, name: &str) -> Option<u64> {
        self.levels.get(name).copied()
    }

    pub(crate) fn key(&self) -> (ObjectKind, &str) {
        (self.kind, &self.id)
    }
}

/// What happened to each between two lists; whether the first one may lack things that were counted
/// by then.
pub(crate) fn between(begin: &[ObjectStat], partial: bool, end: &[ObjectStat]) -> Vec<ObjectStat> {
    let before: BTreeMap<_, &ObjectStat> =
        begin.iter().map(|object| (object.key(), object)).collect();
    let since = |now: &ObjectStat| {
        let Some(before) = before.get(&now.key()) else {
            return Some(now.clone()).filter(|now| now.counts.is_empty() || !partial);
        };
        let mut now = now.clone();
        // What was not told before is not new.
        now.counts.retain(|name, _| before.counts.contains_key(name));
        for (name, count) in &mut now.counts {
            *count = count.checked_sub(before.counts[name])?;
        }
        Some(now)
    };
    end.iter().filter_map(since).collect()
}

/// Those of two parts of an interval: counts added, levels as they were at the end of the second.
pub(crate) fn added(a: Vec<ObjectStat>, b: Vec<ObjectStat>) -> Vec<ObjectStat> {
    let mut sum = a;
    for mut object in b {
        match sum.iter_mut().find(|known| known.key() == object.key()) {
            Some(known) => {
                for (name, count) in &mut object.counts {
                    *count = count.saturating_add(known.count(name).unwrap_or(0));
                }
                *known = object;
            }
            None => sum.push(object),
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(id: &str, scans: u64, bytes: u64) -> ObjectStat {
        let mut of = ObjectStat::new(ObjectKind::Index, id, id);
        of.counts.insert("scans".to_owned(), scans);
        of.levels.insert("bytes".to_owned(), bytes);
        of
    }

    #[test]
    fn counts_are_subtracted_levels_kept_and_what_was_counted_anew_is_left_out() {
        let begin = [index("a", 5, 1), index("b", 9, 1)];
        let user = ObjectStat::new(ObjectKind::User, "a", "joe");
        let end = [index("a", 8, 30), index("b", 2, 1), index("c", 4, 1), user.clone()];
        let of = |partial| between(&begin, partial, &end);
        assert_eq!(of(true), [index("a", 3, 30), user.clone()]);
        assert_eq!(of(false), [index("a", 3, 30), index("c", 4, 1), user]);
        assert_eq!(added(of(false), of(true))[0], index("a", 6, 30));
        let mut untold = index("a", 5, 1);
        untold.counts.clear();
        assert_eq!(
            between(&[untold], true, &end)[0].count("scans"),
            None,
            "it is not 8 in this interval"
        );
    }
}

//! Who was seen in a wait: statements, sessions, and sessions that blocked others.
//!
//! A list is bounded: whoever is seen for the first time when it is full is counted as [`OTHERS`],
//! by event. So counts still grow and add up.
//!
//! Invariant: rows of one list differ in who or in the event.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tiersmith_events::WaitClass;

use super::{CPU, Who};

/// How often one of them was seen in one wait, or on a processor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SampledWho {
    /// Its number; empty if the source gives none.
    pub id: String,
    /// User and database, or the text of the statement.
    pub text: String,
    /// What was waited for.
    pub event: String,
    /// The wait class by its name in reports; `CPU` for work.
    pub class: String,
    /// Sessions seen, summed over all looks.
    pub seen: u64,
}

/// Whom the rest of a list is counted as.
pub(crate) const OTHERS: &str = "(others)";

/// Rows of a list before the rest is one row an event.
const MOST: usize = 400;

/// Rows of a list in a snapshot; every other one is refused.
const MOST_READ: usize = 10_000;

/// Characters that are kept of a text.
const LONGEST: usize = 300;

type Key<'a> = (&'a str, &'a str, &'a str, &'a str);

impl SampledWho {
    fn key(&self) -> Key<'_> {
        (&self.id, &self.text, &self.event, &self.class)
    }
}

pub(super) fn count(rows: &mut Vec<SampledWho>, who: Who<'_>, event: &str, class: &str) {
    let text: String = who.text.chars().take(LONGEST).collect();
    let (mut id, mut text) = (who.id, text.as_str());
    let mut at = rows.iter().position(|row| row.key() == (id, text, event, class));
    if at.is_none() && rows.len() >= MOST {
        (id, text) = ("", OTHERS);
        at = rows.iter().position(|row| row.key() == (id, text, event, class));
    }
    match at {
        Some(at) => rows[at].seen = rows[at].seen.saturating_add(1),
        None => {
            let [id, text, event, class] = [id, text, event, class].map(str::to_owned);
            rows.push(SampledWho { id, text, event, class, seen: 1 });
        }
    }
}

pub(super) fn check(rows: &[SampledWho]) -> Result<(), String> {
    if rows.len() > MOST_READ {
        return Err(format!(
            "a list of who was seen has {} rows, more than {MOST_READ}",
            rows.len()
        ));
    }
    let mut seen = std::collections::BTreeSet::new();
    for row in rows {
        if !seen.insert(row.key()) {
            return Err(format!("`{}` was seen twice in `{}`", row.id, row.event));
        }
        if row.class != CPU && WaitClass::from_name(&row.class).is_none() {
            return Err(format!("`{}` is not a wait class", row.class));
        }
    }
    Ok(())
}

/// What was seen after `earlier`, most often first; nothing if a count went backwards.
pub(super) fn since(rows: &[SampledWho], earlier: &[SampledWho]) -> Option<Vec<SampledWho>> {
    let before: BTreeMap<Key<'_>, u64> = earlier.iter().map(|row| (row.key(), row.seen)).collect();
    let mut all = Vec::new();
    for row in rows {
        let seen = row.seen.checked_sub(before.get(&row.key()).copied().unwrap_or(0))?;
        if seen > 0 {
            all.push(SampledWho { seen, ..row.clone() });
        }
    }
    most_seen_first(&mut all);
    Some(all)
}

/// The rows of two lists, added.
pub(crate) fn added(mut a: Vec<SampledWho>, b: Vec<SampledWho>) -> Vec<SampledWho> {
    for row in b {
        match a.iter_mut().find(|known| known.key() == row.key()) {
            Some(known) => known.seen = known.seen.saturating_add(row.seen),
            None => a.push(row),
        }
    }
    most_seen_first(&mut a);
    a
}

fn most_seen_first(rows: &mut [SampledWho]) {
    rows.sort_by(|a, b| b.seen.cmp(&a.seen).then_with(|| a.key().cmp(&b.key())));
}

/// Rows of one of them, whatever it was seen in: sightings, and the events with theirs.
#[derive(Clone, Debug)]
pub struct OfOne<'a> {
    /// Its number.
    pub id: &'a str,
    /// User and database, or the text of the statement.
    pub text: &'a str,
    /// Sightings of all events.
    pub seen: u64,
    /// The events, those that were seen most first.
    pub events: Vec<&'a SampledWho>,
}

/// A list by who, those that were seen most first.
pub fn by_who(rows: &[SampledWho]) -> Vec<OfOne<'_>> {
    let mut all: BTreeMap<(&str, &str), OfOne<'_>> = BTreeMap::new();
    for row in rows {
        let (id, text) = (row.id.as_str(), row.text.as_str());
        let one = all.entry((id, text)).or_insert(OfOne { id, text, seen: 0, events: Vec::new() });
        one.seen = one.seen.saturating_add(row.seen);
        one.events.push(row);
    }
    let mut all: Vec<OfOne<'_>> = all.into_values().collect();
    all.iter_mut().for_each(|one| one.events.sort_by_key(|row| std::cmp::Reverse(row.seen)));
    all.sort_by_key(|one| std::cmp::Reverse(one.seen));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_list_goes_on_counting_as_others_and_differences_add_up() {
        let mut rows = Vec::new();
        for session in 0..MOST + 50 {
            let id = session.to_string();
            count(&mut rows, Who { id: &id, text: "u@d" }, "on CPU", CPU);
        }
        let early = rows.clone();
        assert_eq!(rows.len(), MOST + 1);
        assert_eq!((rows[MOST].text.as_str(), rows[MOST].seen), (OTHERS, 50));
        check(&rows).expect("sound");
        count(&mut rows, Who { id: "7", text: "u@d" }, "on CPU", CPU);
        count(&mut rows, Who { id: "x", text: "u@d" }, "on CPU", CPU);
        let new = since(&rows, &early).expect("counts grew");
        assert_eq!(
            new.iter().map(|row| (row.id.as_str(), row.seen)).collect::<Vec<_>>(),
            [("", 1), ("7", 1)]
        );
        assert_eq!(since(&early, &rows), None, "a count went backwards");
        assert_eq!(by_who(&added(new.clone(), new))[0].seen, 2);
        rows.push(rows[0].clone());
        assert!(check(&rows).is_err_and(|why| why.contains("twice")));
    }
}

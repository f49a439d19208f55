//! Statements: how often each was run, how long it took, what it read; as the source counts them.
//!
//! A source evicts statements it has not seen for long and may be told to forget them all, and a
//! snapshot may hold only the longest. So a statement that is in the first snapshot only, or whose
//! counts went backwards, or that the first snapshot may have cut off, is left out of the interval
//! and said to be: never a difference from zero that would be invented.
//!
//! Deliberately absent: plans, parameters. The text has its literals removed before it comes here
//! (`redact.rs`).
//!
//! Invariant: a row of an interval ran at least once in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A statement, counted since the source began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatementStat {
    /// What tells it from others: the source's own number, with user and database where these count
    /// apart.
    pub id: String,
    /// The text, literals removed; empty if the source hides it.
    pub text: String,
    /// How often it was run.
    pub calls: u64,
    /// Time spent in it, waiting included.
    pub total_ns: u64,
    /// Rows it returned or changed.
    pub rows: u64,
    /// Pages it found in the database's own page cache; absent if the source does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages_hit: Option<u64>,
    /// Pages it had to read; absent if the source does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages_read: Option<u64>,
    /// Redo it made, in bytes; absent if the source does not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redo_bytes: Option<u64>,
    /// Bytes of temporary files it wrote; absent if the source does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temp_bytes: Option<u64>,
}

/// Statements of an interval, and how many could not be followed through it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatementDeltas {
    /// What ran, longest time first.
    pub rows: Vec<StatementStat>,
    /// Statements that cannot be followed from the first snapshot to the second, and that are left
    /// out for it.
    pub lost: usize,
}

/// The difference of two lists; whether the first one may lack statements that were counted by
/// then.
pub(crate) fn between(
    begin: &[StatementStat],
    partial: bool,
    end: &[StatementStat],
) -> StatementDeltas {
    let before: BTreeMap<&str, &StatementStat> =
        begin.iter().map(|row| (row.id.as_str(), row)).collect();
    let now: BTreeMap<&str, ()> = end.iter().map(|row| (row.id.as_str(), ())).collect();
    let mut lost = before.keys().filter(|id| !now.contains_key(*id)).count();
    let mut rows = Vec::new();
    for row in end {
        let grown = match before.get(row.id.as_str()) {
            None => Some(row.clone()).filter(|_| !partial),
            Some(before) => since(before, row),
        };
        match grown {
            Some(row) if row.calls > 0 || row.total_ns > 0 => rows.push(row),
            Some(_) => {}
            None => lost += 1,
        }
    }
    rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.id.cmp(&b.id)));
    StatementDeltas { rows, lost }
}

fn since(before: &StatementStat, now: &StatementStat) -> Option<StatementStat> {
    let part = |before: Option<u64>, now: Option<u64>| match (before, now) {
        (Some(before), Some(now)) => now.checked_sub(before).map(Some),
        _ => Some(None),
    };
    Some(StatementStat {
        id: now.id.clone(),
        text: now.text.clone(),
        calls: now.calls.checked_sub(before.calls)?,
        total_ns: now.total_ns.checked_sub(before.total_ns)?,
        rows: now.rows.checked_sub(before.rows)?,
        pages_hit: part(before.pages_hit, now.pages_hit)?,
        pages_read: part(before.pages_read, now.pages_read)?,
        redo_bytes: part(before.redo_bytes, now.redo_bytes)?,
        temp_bytes: part(before.temp_bytes, now.temp_bytes)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, calls: u64, total_ns: u64) -> StatementStat {
        StatementStat { id: id.to_owned(), calls, total_ns, ..StatementStat::default() }
    }

    #[test]
    fn what_was_forgotten_or_counted_anew_is_left_out_and_counted() {
        let begin = [row("a", 5, 50), row("b", 5, 50), row("c", 5, 50), row("same", 1, 1)];
        let end = [row("a", 7, 90), row("b", 1, 10), row("new", 2, 70), row("same", 1, 1)];
        let deltas = between(&begin, false, &end);
        assert_eq!(deltas.rows, [row("new", 2, 70), row("a", 2, 40)]);
        assert_eq!(deltas.lost, 2, "b went backwards, c is gone");
        let deltas = between(&begin, true, &end);
        assert_eq!(
            deltas.rows,
            [row("a", 2, 40)],
            "new may have been below the end of the first list"
        );
        assert_eq!(deltas.lost, 3);
    }
}

//! Tables that were scanned most or hold most dead rows: what a source says of each of them.
//!
//! A list holds the first hundred only. A table that is not in both snapshots, or was counted anew,
//! is left out of an interval unless the first list was whole.
//!
//! Deliberately absent: bytes read from storage (`file.rs`), and indexes one by one.
//!
//! Invariant: counts of an interval are of that interval; rows, dead rows and size are as they were
//! at its end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How many tables a snapshot holds at most.
pub(crate) const MOST_TABLES: usize = 100;

/// One table since the source began to count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableStat {
    /// What tells it from others: another one if it was made anew.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// About how large it is; absent if the source does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// About how many rows it has.
    pub rows: u64,
    /// About how many rows are dead and still take room.
    pub dead_rows: u64,
    /// How often it was read from end to end.
    pub scans: u64,
    /// Rows read that way.
    pub scanned_rows: u64,
    /// How often one of its indexes was used.
    pub index_scans: u64,
    /// Rows inserted, updated and deleted.
    pub changed_rows: u64,
    /// How often dead rows were cleaned up, by hand or by the server itself.
    pub vacuums: u64,
    /// How often the server cleaned up by itself; absent if it is not told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autovacuums: Option<u64>,
    /// How often its rows were looked at for the planner; absent if the source does not count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analyzes: Option<u64>,
    /// Rows updated; absent if the source does not tell them apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_rows: Option<u64>,
    /// Rows updated within their page, without a change of an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot_rows: Option<u64>,
    /// When dead rows were cleaned up last, in seconds since 1970 in UTC; absent if never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vacuumed_unix_s: Option<u64>,
}

impl TableStat {
    fn counts(&mut self) -> [&mut u64; 5] {
        let TableStat { scans, scanned_rows, index_scans, changed_rows, vacuums, .. } = self;
        [scans, scanned_rows, index_scans, changed_rows, vacuums]
    }

    /// Counts that not every source has.
    fn more_counts(&mut self) -> [&mut Option<u64>; 4] {
        let TableStat { autovacuums, analyzes, updated_rows, hot_rows, .. } = self;
        [autovacuums, analyzes, updated_rows, hot_rows]
    }

    /// The part of updated rows that changed no index, in per cent.
    pub(crate) fn hot_percent(&self) -> Option<f64> {
        let (updated, hot) =
            self.updated_rows.zip(self.hot_rows).filter(|(updated, _)| *updated > 0)?;
        Some(hot as f64 / updated as f64 * 100.0)
    }

    /// Rows that one scan read on average; nothing if there was none.
    pub(crate) fn rows_by_scan(&self) -> Option<u64> {
        self.scanned_rows.checked_div(self.scans)
    }

    /// The part of its rows that are dead, in per cent; nothing of an empty table.
    pub(crate) fn dead_percent(&self) -> Option<f64> {
        let all = self.rows.saturating_add(self.dead_rows);
        (all > 0).then(|| self.dead_rows as f64 / all as f64 * 100.0)
    }
}

/// What happened to each table between two lists, most rows scanned first; whether the first list
/// may lack tables that were counted by then.
pub(crate) fn between(begin: &[TableStat], partial: bool, end: &[TableStat]) -> Vec<TableStat> {
    let before: BTreeMap<&str, &TableStat> =
        begin.iter().map(|table| (table.id.as_str(), table)).collect();
    let since = |now: &TableStat| {
        let Some(before) = before.get(now.id.as_str()) else {
            return Some(now.clone()).filter(|_| !partial);
        };
        let (mut before, mut now) = ((*before).clone(), now.clone());
        for (now, before) in now.counts().into_iter().zip(before.counts()) {
            *now = now.checked_sub(*before)?;
        }
        for (now, before) in now.more_counts().into_iter().zip(before.more_counts()) {
            *now = match (*now, *before) {
                (Some(now), Some(before)) => Some(now.checked_sub(before)?),
                _ => None,
            };
        }
        Some(now)
    };
    let mut tables: Vec<TableStat> = end.iter().filter_map(since).collect();
    most_scanned_first(&mut tables);
    tables
}

/// The tables of two parts of an interval: counts added, levels as they were at the end of the
/// second.
pub(crate) fn added(a: Vec<TableStat>, b: Vec<TableStat>) -> Vec<TableStat> {
    let mut sum: BTreeMap<String, TableStat> =
        a.into_iter().map(|table| (table.id.clone(), table)).collect();
    for mut table in b {
        if let Some(known) = sum.get_mut(&table.id) {
            for (count, more) in table.counts().into_iter().zip(known.counts()) {
                *count = count.saturating_add(*more);
            }
            for (count, more) in table.more_counts().into_iter().zip(known.more_counts()) {
                *count = count.zip(*more).map(|(count, more)| count.saturating_add(more));
            }
        }
        sum.insert(table.id.clone(), table);
    }
    let mut tables: Vec<TableStat> = sum.into_values().collect();
    most_scanned_first(&mut tables);
    tables
}

fn most_scanned_first(tables: &mut [TableStat]) {
    tables.sort_by(|a, b| b.scanned_rows.cmp(&a.scanned_rows).then_with(|| a.id.cmp(&b.id)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(id: &str, scans: u64, dead_rows: u64) -> TableStat {
        let (id, name) = (id.to_owned(), id.to_owned());
        TableStat {
            id,
            name,
            scans,
            scanned_rows: 10 * scans,
            rows: 10,
            dead_rows,
            ..TableStat::default()
        }
    }

    #[test]
    fn counts_are_subtracted_and_levels_are_those_of_the_end() {
        let begin = [table("a", 5, 1), table("b", 9, 0)];
        let end = [table("a", 8, 30), table("b", 2, 0), table("c", 1, 0)];
        let of = |partial| between(&begin, partial, &end);
        assert_eq!(of(true), [table("a", 3, 30)], "b was counted anew, c may have been cut off");
        assert_eq!(of(false), [table("a", 3, 30), table("c", 1, 0)]);
        assert_eq!(of(true)[0].rows_by_scan(), Some(10));
        assert_eq!(of(true)[0].dead_percent(), Some(75.0));
        assert_eq!(added(of(false), of(true))[0], table("a", 6, 30));
        assert_eq!(TableStat::default().rows_by_scan(), None);
        let updated = |id: &str, updated: u64, hot: u64| {
            let (updated_rows, hot_rows) = (Some(updated), Some(hot));
            TableStat { updated_rows, hot_rows, ..table(id, 1, 0) }
        };
        let of = between(&[updated("a", 10, 9)], true, &[updated("a", 14, 10)]);
        assert_eq!((of[0].updated_rows, of[0].hot_percent()), (Some(4), Some(25.0)));
        let of = between(&[table("a", 1, 0)], true, &[updated("a", 14, 10)]);
        assert_eq!(
            (of[0].updated_rows, of[0].hot_percent()),
            (None, None),
            "it was not told before"
        );
    }
}

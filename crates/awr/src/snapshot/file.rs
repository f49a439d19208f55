//! Files and tables that were read most: what a source says of each of them.
//!
//! A list holds the first hundred only, so what is absent from it was read less, and how much less
//! is not known. A file that is not in both snapshots, or was counted anew, is left out of an
//! interval unless the first list was whole.
//!
//! Deliberately absent: writes, and blocks that were found in the database's own page cache.
//!
//! Invariant: a row of an interval was read in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// So many files are in a snapshot at most.
pub(crate) const MOST_FILES: usize = 100;

/// Reads of one file or table since the source began to count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileStat {
    /// What tells it from others: another one if it was made anew.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// About how large it is; absent if the source does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes read from it that the database's own page cache did not hold.
    pub read_bytes: u64,
    /// The time that took; absent if it is not measured for each file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_ns: Option<u64>,
}

/// What was read between two lists, most bytes first; whether the first one may lack files that
/// were read by then.
pub(crate) fn between(begin: &[FileStat], partial: bool, end: &[FileStat]) -> Vec<FileStat> {
    let before: BTreeMap<&str, &FileStat> =
        begin.iter().map(|file| (file.id.as_str(), file)).collect();
    let since = |now: &FileStat| {
        let Some(before) = before.get(now.id.as_str()) else {
            return Some(now.clone()).filter(|_| !partial);
        };
        let read_ns = match (before.read_ns, now.read_ns) {
            (Some(before), Some(now)) => Some(now.checked_sub(before)?),
            _ => None,
        };
        Some(FileStat {
            read_bytes: now.read_bytes.checked_sub(before.read_bytes)?,
            read_ns,
            ..now.clone()
        })
    };
    let mut files: Vec<FileStat> =
        end.iter().filter_map(since).filter(|file| file.read_bytes > 0).collect();
    files.sort_by(|a, b| b.read_bytes.cmp(&a.read_bytes).then_with(|| a.id.cmp(&b.id)));
    files
}

/// The reads of two parts of an interval, most bytes first. A file that one part does not name was
/// read less there than those it names: its row has what the other part says, which may be too
/// little and is never too much.
pub(crate) fn added(a: Vec<FileStat>, b: Vec<FileStat>) -> Vec<FileStat> {
    let mut sum: BTreeMap<String, FileStat> =
        a.into_iter().map(|file| (file.id.clone(), file)).collect();
    for file in b {
        match sum.get_mut(&file.id) {
            Some(known) => {
                let read_ns = known.read_ns.zip(file.read_ns).map(|(a, b)| a.saturating_add(b));
                *known = FileStat {
                    read_bytes: known.read_bytes.saturating_add(file.read_bytes),
                    read_ns,
                    ..file
                };
            }
            None => {
                sum.insert(file.id.clone(), file);
            }
        }
    }
    let mut files: Vec<FileStat> = sum.into_values().collect();
    files.sort_by(|a, b| b.read_bytes.cmp(&a.read_bytes).then_with(|| a.id.cmp(&b.id)));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_anew_or_may_have_been_counted_before_is_left_out() {
        let file = |id: &str, read_bytes| FileStat {
            id: id.to_owned(),
            read_bytes,
            ..FileStat::default()
        };
        let begin = [file("a", 5), file("b", 5), file("same", 1)];
        let end = [file("a", 7), file("b", 1), file("new", 4), file("same", 1)];
        assert_eq!(between(&begin, false, &end), [file("new", 4), file("a", 2)]);
        assert_eq!(between(&begin, true, &end), [file("a", 2)]);
    }

    #[test]
    fn two_parts_are_added_by_file_and_a_time_needs_both() {
        let file = |id: &str, read_bytes, read_ns| FileStat {
            id: id.to_owned(),
            read_bytes,
            read_ns,
            ..FileStat::default()
        };
        let a = vec![file("a", 5, Some(1)), file("b", 5, Some(2))];
        let b = vec![file("b", 7, None), file("c", 6, Some(3)), file("a", 1, Some(4))];
        let sum = [file("b", 12, None), file("a", 6, Some(5)), file("c", 6, Some(3))];
        assert_eq!(added(a, b), sum);
    }
}

//! Sums that go on where a part of them went away.
//!
//! A counter of a PostgreSQL is a sum over its databases. When one is dropped the sum falls, and
//! who reads metrics takes a fall for a counter that began at zero: the whole remaining sum would
//! be growth that never was. So what was published last is gone on from. What the dropped database
//! had counted since the scrape before is lost, and so is what the others did in that time: nothing
//! is invented.
//!
//! A restart and a reset are falls that readers must see; they are told by the instance and by the
//! times of resets.
//!
//! Deliberately absent: lists of statements and files, whose rows stand for themselves.

use std::collections::BTreeMap;

use crate::Snapshot;

/// What is added to the sums of a source.
#[derive(Debug, Default)]
pub(super) struct Held {
    instance: String,
    resets: BTreeMap<String, String>,
    sums: BTreeMap<String, Sum>,
}

/// A sum as it was published last, and how much of that the source does not count any more.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    published: u64,
    gone: u64,
}

impl Held {
    /// Makes the sums of a snapshot go on where they were.
    pub(super) fn go_on(&mut self, snapshot: &mut Snapshot) {
        let same = self.instance == snapshot.source.instance
            && self
                .resets
                .iter()
                .all(|(group, at)| snapshot.resets.get(group).is_none_or(|now| now == at));
        if !same {
            self.sums.clear();
        }
        let part_went =
            same && self.resets.keys().any(|group| !snapshot.resets.contains_key(group));
        self.instance.clone_from(&snapshot.source.instance);
        self.resets.clone_from(&snapshot.resets);
        let mut go_on = |key: String, value: &mut u64| {
            let sum = self.sums.entry(key).or_default();
            if part_went {
                sum.gone = sum.gone.max(sum.published.saturating_sub(*value));
            }
            *value = value.saturating_add(sum.gone);
            sum.published = *value;
        };
        for counter in &mut snapshot.counters {
            go_on(format!("counter {}", counter.name), &mut counter.value);
        }
        if let Some(ns) = &mut snapshot.db_time_ns {
            go_on("DB time".to_owned(), ns);
        }
        // A wait with a histogram is counted by the store itself, which has no parts that go.
        for wait in snapshot.waits.iter_mut().filter(|wait| wait.buckets.is_empty()) {
            let key = format!("{} {} {}", wait.name, wait.class.name(), wait.background);
            go_on(format!("waits {key}"), &mut wait.count);
            go_on(format!("time {key}"), &mut wait.total_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    fn snapshot(instance: &str, resets: &[(&str, &str)], commits: u64) -> Snapshot {
        let source = Source { instance: instance.to_owned(), ..Source::default() };
        let mut snapshot = Snapshot::at(source, 1, 1);
        snapshot.resets =
            resets.iter().map(|(group, at)| ((*group).to_owned(), (*at).to_owned())).collect();
        snapshot.add_counter("user commits", "transactions", commits);
        snapshot.db_time_ns = Some(commits * 10);
        snapshot
    }

    #[test]
    fn a_sum_goes_on_where_a_part_went_and_falls_where_counting_began_anew() {
        let mut held = Held::default();
        let mut published = |instance: &str, resets: &[(&str, &str)], commits: u64| {
            let mut snapshot = snapshot(instance, resets, commits);
            held.go_on(&mut snapshot);
            assert_eq!(snapshot.db_time_ns, Some(snapshot.counters[0].value * 10));
            snapshot.counters[0].value
        };
        let both = [("database a (1)", ""), ("database b (2)", "")];
        assert_eq!(published("i", &both, 53_685), 53_685);
        assert_eq!(published("i", &both, 53_700), 53_700);
        assert_eq!(published("i", &both[1..], 33_683), 53_700, "a database was dropped");
        assert_eq!(published("i", &both[1..], 33_700), 53_717);
        let anew = [("database b (2)", ""), ("database a (3)", "")];
        assert_eq!(published("i", &anew, 33_710), 53_727);
        assert_eq!(
            published("i", &anew[..1], 33_720),
            53_737,
            "what was dropped had counted nothing"
        );
        assert_eq!(published("i", &[("database b (2)", "t")], 5), 5, "a reset");
        assert_eq!(published("j", &[("database b (2)", "t")], 3), 3, "a restart");
    }
}

//! Plans of statements, as far as the source keeps them: how often each was run and how long it
//! took.
//!
//! Deliberately absent: where plans are found and how literals are taken out of them
//! (`sources/postgres/plans.rs`), what is wrong with a plan.
//!
//! Invariant: a row of an interval ran at least once in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How many plans a snapshot holds at most.
pub(crate) const MOST_PLANS: usize = 50;

/// A plan since the source began to count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanStat {
    /// What tells it from others: another one if it was counted anew.
    pub id: String,
    /// The source's own number of its statement; empty if that is not told.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub statement: String,
    /// The statement, literals removed; empty if the source does not tell it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sql: String,
    /// The plan on several lines, literals removed: that of its longest run, where runs are told.
    pub text: String,
    /// How often it was run, as far as that was noticed.
    pub calls: u64,
    /// Time of these runs.
    pub total_ns: u64,
    /// The longest run since the source began to count.
    pub max_ns: u64,
}

/// The plans that ran between two lists, longest time first; whether the first one may lack plans
/// that were counted by then.
pub(crate) fn between(begin: &[PlanStat], partial: bool, end: &[PlanStat]) -> Vec<PlanStat> {
    let before: BTreeMap<&str, &PlanStat> =
        begin.iter().map(|plan| (plan.id.as_str(), plan)).collect();
    let since = |now: &PlanStat| {
        let Some(before) = before.get(now.id.as_str()) else {
            return Some(now.clone()).filter(|_| !partial);
        };
        let calls = now.calls.checked_sub(before.calls)?;
        let total_ns = now.total_ns.checked_sub(before.total_ns)?;
        Some(PlanStat { calls, total_ns, ..now.clone() }).filter(|plan| plan.calls > 0)
    };
    let mut plans: Vec<PlanStat> = end.iter().filter_map(since).collect();
    longest_first(&mut plans);
    plans
}

/// The plans of two parts of an interval.
pub(crate) fn added(a: Vec<PlanStat>, b: Vec<PlanStat>) -> Vec<PlanStat> {
    let mut sum: BTreeMap<String, PlanStat> =
        a.into_iter().map(|plan| (plan.id.clone(), plan)).collect();
    for mut plan in b {
        if let Some(known) = sum.get(&plan.id) {
            plan.calls = plan.calls.saturating_add(known.calls);
            plan.total_ns = plan.total_ns.saturating_add(known.total_ns);
        }
        sum.insert(plan.id.clone(), plan);
    }
    let mut plans: Vec<PlanStat> = sum.into_values().collect();
    longest_first(&mut plans);
    plans
}

fn longest_first(plans: &mut [PlanStat]) {
    plans.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.id.cmp(&b.id)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_of_an_interval_ran_in_it() {
        let plan = |id: &str, calls: u64| PlanStat {
            id: id.to_owned(),
            calls,
            total_ns: calls * 10,
            ..PlanStat::default()
        };
        let begin = [plan("a", 5), plan("b", 9), plan("same", 3)];
        let end = [plan("a", 8), plan("b", 2), plan("c", 4), plan("same", 3)];
        assert_eq!(between(&begin, false, &end), [plan("c", 4), plan("a", 3)]);
        assert_eq!(between(&begin, true, &end), [plan("a", 3)], "c may have been cut off");
        assert_eq!(
            added(vec![plan("a", 3)], vec![plan("a", 4), plan("d", 1)]),
            [plan("a", 7), plan("d", 1)]
        );
    }
}

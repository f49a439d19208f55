//! Requests wait for room in the redo: for the next file, or in the buffer.

use super::{Finding, of_db_time};
use crate::{Interval, WaitDelta, figure};

/// Share of DB time from which on it is worth saying.
const LEAST_PERCENT: f64 = 2.0;

pub(super) const NAME: &str = "Requests wait for room in the redo";

/// Beginnings of names, and what to do about each.
const EVENTS: [(&str, &str); 4] = [
    (
        "log file switch (checkpoint incomplete)",
        "Make the redo files larger, or more of them: the next one is needed for recovery still. \
         Faster data files let checkpoints end sooner.",
    ),
    (
        "log file switch (archiving needed)",
        "Make the archiver faster (its destination, log_archive_max_processes), or give it more \
         redo files to be behind by.",
    ),
    (
        "log file switch",
        "Make the redo files larger, so that a switch comes every 15 to 30 minutes.",
    ),
    (
        "log buffer space",
        "Raise log_buffer, and put the redo onto faster storage: the log writer does not keep up.",
    ),
];

pub(super) fn is_about(name: &str) -> bool {
    EVENTS.iter().any(|(begin, _)| name.starts_with(begin))
}

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let mut waits: Vec<&WaitDelta> = of.foreground();
    waits.retain(|wait| wait.count > 0 && is_about(&wait.name));
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.total_ns));
    let percent =
        of_db_time(of, waits.iter().fold(0, |sum: u64, wait| sum.saturating_add(wait.total_ns)))?;
    if percent < LEAST_PERCENT {
        return None;
    }
    let mut evidence = vec![format!("Such waits are {} % of DB time.", figure::percent(percent))];
    let mut advice: Vec<&str> = Vec::new();
    for wait in waits {
        evidence.push(super::told(wait));
        let (_, what) = EVENTS.iter().find(|(begin, _)| wait.name.starts_with(begin))?;
        if !advice.contains(what) {
            advice.push(what);
        }
    }
    let switches = of.counter("log switches (derived)").or_else(|| of.counter("log switches"));
    if let Some(count) = switches.filter(|count| *count > 0) {
        evidence.push(format!(
            "{} log switches: one in {} s.",
            figure::count(count),
            figure::number(of.elapsed_s() / count as f64)
        ));
    }
    Some(Finding {
        name: NAME.to_owned(),
        impact_percent: Some(percent),
        evidence,
        advice: advice.join(" "),
        tiersmith: None,
    })
}

#[cfg(test)]
mod tests {
    use tiersmith_events::WaitClass;

    use super::super::made::minute;
    use super::*;

    #[test]
    fn each_kind_of_wait_has_its_own_advice() {
        let of = |name, seconds| {
            find(&minute().wait(name, WaitClass::Configuration, false, 10, seconds).interval())
        };
        for (name, word) in [
            ("log file switch (checkpoint incomplete)", "larger, or more of them"),
            ("log file switch (archiving needed)", "archiver"),
            ("log file switch completion", "15 to 30 minutes"),
            ("log buffer space", "log_buffer"),
        ] {
            let found = of(name, 10).expect(name);
            assert!(found.advice.contains(word) && found.evidence[1].contains(name), "{found:?}");
            assert_eq!(found.impact_percent, Some(10.0));
            assert_eq!(of(name, 1), None, "{name}");
        }
        assert_eq!(of("log file sync", 50), None);
    }
}

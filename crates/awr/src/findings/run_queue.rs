//! Threads wait for a processor while commits wait for redo: the one who writes the redo may be among them.

use tiersmith_events::WaitClass;

use super::{Finding, class_ns, of_db_time, sampled_share};
use crate::{Interval, figure};

/// Share of the interval in which some thread waited for a processor, from which on it matters.
const LEAST_PERCENT: f64 = 25.0;

/// Share of commits in DB time below which nobody is held up.
const LEAST_COMMIT_PERCENT: f64 = 5.0;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    if super::is_elsewhere(of) {
        return None;
    }
    let pressure = of.pressure?;
    let waited = (pressure.cpu_some_us as f64 * 1e3 / of.elapsed_ns as f64 * 100.0).min(100.0);
    let measured = of_db_time(of, class_ns(of, WaitClass::Commit)).filter(|percent| *percent > 0.0);
    let commits = measured.or_else(|| sampled_share(of, WaitClass::Commit).map(|(percent, _)| percent))?;
    (waited >= LEAST_PERCENT && commits >= LEAST_COMMIT_PERCENT).then(|| Finding {
        name: "Threads wait for processors while commits wait".to_owned(),
        impact_percent: Some(commits),
        evidence: vec![
            format!("Some thread waited for a processor during {} % of the interval.", figure::percent(waited)),
            match measured {
                Some(_) => format!("Waits of class Commit are {} % of DB time.", figure::percent(commits)),
                None => {
                    let share = figure::percent(commits);
                    format!("In {share} % of the sightings of active sessions (sampled, not measured) a commit waited.")
                }
            },
        ],
        advice: "Part of a commit's wait may be the time until its log writer gets a processor. Take load off the processors, or give the \
                 log writer a higher priority, before faster storage."
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;
    use crate::host::Pressure;

    #[test]
    fn it_needs_waits_for_processors_and_for_commits() {
        let of = |waited_us, seconds| {
            let mut made = minute().wait("log file sync", WaitClass::Commit, false, 10, seconds);
            made.begin.host.pressure = Some(Pressure::default());
            made.end.host.pressure = Some(Pressure { cpu_some_us: waited_us, ..Pressure::default() });
            find(&made.interval())
        };
        assert!(of(30_000_000, 20).is_some_and(|found| found.evidence[0].contains("50.0 %")));
        assert_eq!(of(3_000_000, 20), None);
        assert_eq!(of(30_000_000, 2), None);
    }
}

//! Threads wait for a processor while commits wait for redo: the one who writes the redo may be
//! among them.

use tiersmith_events::WaitClass;

use super::{Finding, measured_commits, redo_syncs, sampled_share, synced_most};
use crate::{Interval, figure};

/// Share of the interval in which some thread waited for a processor, from which on it matters.
const LEAST_PERCENT: f64 = 25.0;

/// Share of commits in DB time below which nobody is held up.
const LEAST_COMMIT_PERCENT: f64 = 5.0;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    if super::is_elsewhere(of) || super::is_idle(of) {
        return None;
    }
    let pressure = of.pressure?;
    let waited = (pressure.cpu_some_us as f64 * 1e3 / of.elapsed_ns as f64 * 100.0).min(100.0);
    let measured = measured_commits(of);
    let commits =
        measured.or_else(|| sampled_share(of, WaitClass::Commit).map(|(percent, _)| percent))?;
    if waited < LEAST_PERCENT || commits < LEAST_COMMIT_PERCENT {
        return None;
    }
    let mut evidence = vec![
        format!(
            "Some thread waited for a processor during {} % of the interval.",
            figure::percent(waited)
        ),
        match measured {
            Some(_) => {
                format!("Waits of class Commit are {} % of DB time.", figure::percent(commits))
            }
            None => {
                let share = figure::percent(commits);
                format!(
                    "In {share} % of the sightings of active sessions (sampled, not measured) a \
                     commit waited."
                )
            }
        },
    ];
    // How much of a sync the disk explains: the rest is where a processor may be missing.
    if let Some((disk, (count, ns))) = synced_most(of).zip(redo_syncs(of)) {
        evidence.push(format!(
            "A sync of redo took {} on average; {}, the disk that was flushed most, {} for a write \
             and a flush.",
            figure::nanoseconds(ns as f64 / count as f64),
            figure::visible(disk.name),
            figure::nanoseconds(disk.ns)
        ));
    }
    if let Some((queue, cpus)) = of.end.host.queue.zip(of.end.host.cpus) {
        evidence.push(format!(
            "At its end {} threads ran or waited for one of {} processors.",
            figure::count(queue.running),
            cpus.threads
        ));
    }
    Some(Finding {
        name: "Threads wait for processors while commits wait".to_owned(),
        impact_percent: Some(commits),
        evidence,
        tiersmith: None,
        advice: "Part of a commit's wait may be the time until its log writer gets a processor. \
                 Take load off the processors, or give the \
                 log writer a higher priority (renice, CPUWeight= of its service), before faster \
                 storage."
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;
    use crate::snapshot::host::Pressure;

    #[test]
    fn it_needs_waits_for_processors_and_for_commits() {
        let of = |waited_us, seconds| {
            let mut made = minute().wait("log file sync", WaitClass::Commit, false, 10, seconds);
            made.begin.host.pressure = Some(Pressure::default());
            made.end.host.pressure =
                Some(Pressure { cpu_some_us: waited_us, ..Pressure::default() });
            find(&made.interval())
        };
        assert!(of(30_000_000, 20).is_some_and(|found| found.evidence[0].contains("50.0 %")));
        assert_eq!(of(3_000_000, 20), None);
        assert_eq!(of(30_000_000, 2), None);
    }
}

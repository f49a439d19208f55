//! Commits wait for their redo to be durable, and that is much of DB time.

use tiersmith_events::WaitClass;

use super::{Finding, attach_redo, class_ns, is_idle, is_kv, of_db_time, sampled_share, setting};
use crate::{Interval, figure};

/// Share of DB time from which on it is worth saying.
const LEAST_PERCENT: f64 = 10.0;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let measured = of_db_time(of, class_ns(of, WaitClass::Commit)).filter(|percent| *percent > 0.0);
    let (percent, how) = match measured {
        Some(percent) => (
            percent,
            format!("Waits of class Commit are {} % of DB time.", figure::percent(percent)),
        ),
        None => {
            let (percent, seen) = sampled_share(of, WaitClass::Commit)?;
            let how = format!(
                "In {} % of {} sightings of active sessions (sampled, not measured) a commit \
                 waited.",
                figure::percent(percent),
                figure::count(seen)
            );
            (percent, how)
        }
    };
    if percent < LEAST_PERCENT || is_idle(of) {
        return None;
    }
    let mut evidence = vec![how];
    if let Some((syncs, commits)) =
        of.counter("redo syncs").zip(of.transactions()).filter(|(syncs, _)| *syncs > 0)
    {
        evidence.push(format!(
            "{} commits made {} syncs of redo: {} commits a sync.",
            figure::count(commits),
            figure::count(syncs),
            figure::number(commits as f64 / syncs as f64)
        ));
    }
    let together = match setting(of, "commit_delay") {
        Some(_) => " (commit_delay, commit_siblings)",
        None => "",
    };
    if is_kv(of) {
        return Some(Finding {
            name: "Changes wait for the tier".to_owned(),
            impact_percent: Some(percent),
            evidence,
            advice: "Changes that arrive together share one fence: pipelining, or more clients at \
                     once, makes fewer of them. How long one takes is a property of the medium."
                .to_owned(),
            tiersmith: None,
        });
    }
    Some(Finding {
        name: "Commits wait for redo".to_owned(),
        impact_percent: Some(percent),
        evidence,
        advice: format!(
            "Put the redo onto storage that syncs faster (persistent memory, or flash with \
             power-loss protection); commit less often, or let \
             several sessions commit together{together}. Giving up durability is not needed for \
             that."
        ),
        tiersmith: attach_redo(of),
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;
    use crate::Sampling;

    #[test]
    fn the_key_value_server_is_not_told_to_move_redo_that_it_does_not_have() {
        let mut made = minute().wait("tier commit", WaitClass::Commit, false, 100, 40);
        for snapshot in [&mut made.begin, &mut made.end] {
            crate::sources::KV.clone_into(&mut snapshot.source.product);
        }
        let found = find(&made.interval()).expect("it speaks");
        assert!(found.advice.contains("pipelining") && !found.advice.contains("redo"), "{found:?}");
        assert_eq!(found.tiersmith, None);
    }

    #[test]
    fn measured_time_comes_before_samples_and_both_have_a_threshold() {
        let of = |seconds| {
            minute().wait("log file sync", WaitClass::Commit, false, 100, seconds).interval()
        };
        assert_eq!(find(&of(40)).and_then(|found| found.impact_percent), Some(40.0));
        assert_eq!(find(&of(9)), None);
        let mut idle = minute().wait("log file sync", WaitClass::Commit, false, 100, 1);
        idle.end.db_time_ns = Some(1_100_000_000);
        assert_eq!(find(&idle.interval()), None, "nine tenths of next to nothing");
        let sampled = |commits: u64| {
            let mut made = minute();
            made.begin.sampling = Some(Sampling::new("s".to_owned(), 1000));
            let mut sampling = Sampling::new("s".to_owned(), 1000);
            sampling.looks = 100;
            for seen in 0..100 {
                let class = if seen < commits { Some(WaitClass::Commit) } else { None };
                sampling.saw(if seen < commits { "IO: WALSync" } else { "on CPU" }, class);
            }
            made.end.sampling = Some(sampling);
            find(&made.interval())
        };
        let found = sampled(30).expect("it speaks");
        assert!(found.evidence[0].contains("sampled, not measured"), "{:?}", found.evidence);
        assert_eq!(sampled(5), None);
    }
}

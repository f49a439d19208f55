//! Requests waited until a page or a block was free.

use super::{Finding, Share, attach, of_db_time};
use crate::snapshot::known;
use crate::{Interval, figure};

/// Share of DB time from which on it is worth saying.
const LEAST_PERCENT: f64 = 1.0;

/// Of waits alone, where DB time is not known.
const LEAST_PERCENT_OF_WAITS: f64 = 5.0;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let advice = "Writing out is slower than changing: give the page cache or the tier more room, \
                  or put the files that are written \
                  out onto faster storage.";
    let tiersmith =
        attach(of, "pages are written out to the fast tier, and from there home in the background");
    if let Some(wait) = of.wait("free buffer waits").filter(|wait| wait.count > 0) {
        let share = Share::new(of, wait.total_ns)?;
        let least = if share.of_db_time { LEAST_PERCENT } else { LEAST_PERCENT_OF_WAITS };
        return (share.percent >= least).then(|| Finding {
            name: "Waits for free blocks".to_owned(),
            impact_percent: share.impact(),
            evidence: vec![format!(
                "{} waits of {} on average, {}.",
                figure::count(wait.count),
                figure::nanoseconds(wait.mean_ns().unwrap_or(0.0)),
                share.text()
            )],
            advice: advice.to_owned(),
            tiersmith,
        });
    }
    // PostgreSQL: who finds no clean page writes one out, on the time of the request. What was
    // recorded before growth of files was told apart has that in it too: of a load that inserts it
    // is most.
    let write = of.wait("data file write").filter(|wait| wait.help != known::WITH_EXTENDS);
    if let Some(wait) = write.filter(|wait| wait.count > 0) {
        let percent = of_db_time(of, wait.total_ns)?;
        return (percent >= LEAST_PERCENT).then(|| Finding {
            name: "Requests write pages out themselves".to_owned(),
            impact_percent: Some(percent),
            evidence: vec![format!(
                "{} writes of data by requests, {} on average, {} % of DB time: no clean page was \
                 free for them.",
                figure::count(wait.count),
                figure::nanoseconds(wait.mean_ns().unwrap_or(0.0)),
                figure::percent(percent)
            )],
            advice: format!(
                "{advice} A busier background writer (bgwriter_lru_maxpages, \
                             bgwriter_delay) takes it off the requests."
            ),
            tiersmith,
        });
    }
    let waits =
        of.counter("waits for a free page in the buffer pool").filter(|count| *count > 0)?;
    Some(Finding {
        name: "Waits for free pages in the buffer pool".to_owned(),
        impact_percent: None,
        evidence: vec![format!("{} waits; the server does not time them.", figure::count(waits))],
        advice: format!(
            "{advice} innodb_io_capacity and innodb_io_capacity_max say how fast InnoDB may write \
             out."
        ),
        tiersmith,
    })
}

#[cfg(test)]
mod tests {
    use tiersmith_events::WaitClass;

    use super::super::made::minute;
    use super::*;

    #[test]
    fn it_speaks_from_one_per_cent_on() {
        let of = |seconds| {
            minute()
                .wait("free buffer waits", WaitClass::Configuration, false, 10, seconds)
                .interval()
        };
        assert_eq!(find(&of(5)).and_then(|found| found.impact_percent), Some(5.0));
        assert_eq!(find(&of(0)), None);
        let own = |seconds| {
            minute().wait("data file write", WaitClass::UserIo, false, 10, seconds).interval()
        };
        assert!(find(&own(5)).is_some_and(|found| found.advice.contains("bgwriter_lru_maxpages")));
        assert_eq!(find(&own(0)), None);
        let mut before = minute().wait("data file write", WaitClass::UserIo, false, 10, 5);
        for snapshot in [&mut before.begin, &mut before.end] {
            known::WITH_EXTENDS.clone_into(&mut snapshot.waits[0].help);
        }
        assert_eq!(find(&before.interval()), None, "growth of files is among them");
        let mut home = minute().wait("tier block write", WaitClass::UserIo, false, 10, 9).wait(
            "free buffer waits",
            WaitClass::Configuration,
            false,
            10,
            1,
        );
        (home.begin.db_time_ns, home.end.db_time_ns) = (None, None);
        let found = find(&home.interval()).expect("a home tells no DB time");
        assert!(
            found.evidence[0].contains("of the time that requests waited here"),
            "{:?}",
            found.evidence
        );
        assert_eq!(found.impact_percent, None);
        assert!(
            find(&minute().counter("waits for a free page in the buffer pool", 3).interval())
                .is_some()
        );
        assert_eq!(
            find(&minute().counter("waits for a free page in the buffer pool", 0).interval()),
            None
        );
    }
}

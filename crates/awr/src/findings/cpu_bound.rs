//! The processors are busy: faster storage will not help.

use super::Finding;
use crate::{CPU, Interval, figure};

/// Share of processor time from which on a machine is full.
const FULL_PERCENT: f64 = 90.0;

/// Of what keeps the processors busy, the share below which it is not this database.
const LEAST_SHARE: f64 = 0.2;

pub(super) const NAME: &str = "The processors are the limit";

/// The most processor time that the database can have used, as far as the source tells: of its time
/// what it did not wait for, as measured or else as sampled.
fn of_this_database(of: &Interval) -> Option<u64> {
    let not_waited = || {
        let ns = of.db_time_ns?.saturating_sub(of.waited_ns());
        let at_work =
            of.sampling.as_ref().filter(|sampling| sampling.seen() >= 50).map(|sampling| {
                let work = sampling.events.iter().filter(|event| event.class == CPU);
                work.map(|event| event.seen).sum::<u64>() as f64 / sampling.seen() as f64
            });
        Some((ns as f64).min(of.db_time_ns? as f64 * at_work.unwrap_or(1.0)) as u64)
    };
    of.db_cpu_ns.or(of.process_cpu_ns).or_else(not_waited)
}

pub(super) fn find(of: &Interval) -> Option<Finding> {
    if super::is_elsewhere(of) {
        return None;
    }
    let times = of.host_cpu?;
    let busy = (times.user_ns as f64) + times.system_ns as f64 + times.steal_ns as f64;
    let all = busy + times.idle_ns as f64 + times.iowait_ns as f64;
    let percent = busy / all * 100.0;
    // Not a number if nothing was counted.
    if percent.is_nan() || percent < FULL_PERCENT {
        return None;
    }
    if of_this_database(of).is_some_and(|ns| (ns as f64) < busy * LEAST_SHARE) {
        return None;
    }
    let mut evidence = vec![format!(
        "The host's processors were busy for {} % of the interval.",
        figure::percent(percent)
    )];
    if times.steal_ns as f64 > busy / 20.0 {
        evidence.push(format!(
            "{} % of the interval was taken away by the machine below this virtual machine.",
            figure::percent(times.steal_ns as f64 / all * 100.0)
        ));
    }
    let cpu = of.db_cpu_ns.zip(of.db_time_ns).filter(|(_, time)| *time > 0);
    if let Some(percent) = of.db_cpu_ns.and_then(|ns| super::of_db_time(of, ns)) {
        evidence.push(format!("DB CPU is {} % of DB time.", figure::percent(percent)));
    }
    Some(Finding {
        name: NAME.to_owned(),
        impact_percent: cpu.map(|(cpu, time)| (cpu as f64 / time as f64 * 100.0).min(100.0)),
        evidence,
        advice: "Storage will not help as long as this holds. Look for what uses the processors: \
                 statements, or other programs on the host."
            .to_owned(),
        tiersmith: None,
    })
}

#[cfg(test)]
mod tests {
    use tiersmith_events::WaitClass;

    use super::super::made::minute;
    use super::*;
    use crate::{ON_CPU, Sampling};

    #[test]
    fn it_speaks_when_the_machine_is_full() {
        assert!(
            find(&minute().busy(95).interval())
                .is_some_and(|found| found.evidence[0].contains("95.0 %"))
        );
        assert_eq!(find(&minute().busy(60).interval()), None);
        assert_eq!(find(&minute().busy(0).interval()), None);
        // Another program has the processors: this database was hardly active.
        let idle = |db_time_s: u64| {
            let mut made = minute().busy(95);
            made.end.db_time_ns = Some(db_time_s * 1_000_000_000);
            find(&made.interval())
        };
        assert_eq!(idle(5), None);
        assert!(idle(50).is_some());
        // Its sessions waited for locks while another program had the processors.
        let waiting = |seconds| {
            let made =
                minute().busy(95).wait("row lock", WaitClass::Application, false, 10, seconds);
            find(&made.interval())
        };
        assert!(waiting(20).is_some() && waiting(90).is_none());
        let sampled = |on_cpu: u64| {
            let mut made = minute().busy(95);
            let mut sampling = Sampling::new("s".to_owned(), 1000);
            made.begin.sampling = Some(sampling.clone());
            sampling.looks = 100;
            (0..on_cpu).for_each(|_| sampling.saw(ON_CPU, None));
            (on_cpu..100).for_each(|_| sampling.saw("Lock: tuple", Some(WaitClass::Application)));
            made.end.sampling = Some(sampling);
            find(&made.interval())
        };
        assert!(sampled(80).is_some() && sampled(10).is_none());
    }
}

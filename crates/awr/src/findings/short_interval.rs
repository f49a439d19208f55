//! The interval is too short, or too little happened in it, or it was uneven: it does not say much.

use super::Finding;
use crate::{Interval, figure};

/// Shorter intervals hold one checkpoint or none, and much of what they show is chance.
pub(crate) const SHORT_S: f64 = 30.0;

/// What it is called: of a quiet interval, and of a noisy one.
pub(super) const NAMES: [&str; 2] =
    ["Too short, or too little load, to rely on", "Too noisy to rely on"];

/// Fewer transactions than this are counted, not measured.
const FEW: u64 = 100;

/// Parts of a recording, from which on they say whether it was even.
const LEAST_PARTS: usize = 6;

/// The load of a part differs from the mean by this share of it, on average, from which on the mean
/// stands for none of them.
const UNEVEN: f64 = 0.5;

/// Less than this on average is no load, whose differences would mean something.
const LEAST_SESSIONS: f64 = 0.1;

/// Processor time taken away by the machine below, in per cent of all, from which on every time in
/// the report is longer by chance.
const STOLEN_PERCENT: f64 = 5.0;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let few = of.transactions().is_some_and(|count| count < FEW);
    let mut evidence = Vec::new();
    if of.elapsed_s() < SHORT_S {
        evidence.push(format!("The interval is {} s long.", figure::number(of.elapsed_s())));
    }
    if few {
        evidence.push(format!(
            "{} transactions ended in it.",
            figure::count(of.transactions().unwrap_or(0))
        ));
    }
    if let Some(sessions) = of.active_sessions().filter(|_| super::is_idle(of)) {
        evidence.push(format!(
            "The database was nearly idle: {} active sessions on average. Shares of its DB time, \
             which was {} s, matter little.",
            figure::number(sessions),
            figure::number(of.db_time_ns.unwrap_or(0) as f64 / 1e9)
        ));
    }
    let noisy = noise(of);
    let calm = noisy.is_empty();
    evidence.extend(noisy);
    (!evidence.is_empty()).then(|| Finding {
        name: NAMES[usize::from(!calm)].to_owned(),
        impact_percent: None,
        evidence,
        advice: if calm {
            "Record for some minutes under the load that matters, and more than once.".to_owned()
        } else {
            "No average stands for an uneven load: report parts in which it was even (tiersmith \
             awr report BEGIN END; \
             tiersmith awr list has the numbers). Where a neighbour takes processors away, every \
             time in the report is \
             longer by that: record again, and more than once."
                .to_owned()
        },
        tiersmith: None,
    })
}

/// What makes the figures doubtful although there are enough of them.
fn noise(of: &Interval) -> Vec<String> {
    let mut noise = Vec::new();
    let loads = of.timeline.as_ref().map(|line| line.loads()).unwrap_or_default();
    if let Some((spread, least, most)) = uneven(&loads).filter(|(spread, ..)| *spread >= UNEVEN) {
        noise.push(format!(
            "Its load was uneven: between {} and {} active sessions in {} parts of it, which \
             differ from their mean by {} % of it on average.",
            figure::number(least),
            figure::number(most),
            loads.len(),
            figure::percent(spread * 100.0)
        ));
    }
    if let Some(times) = of.host_cpu.filter(|_| !super::is_elsewhere(of)) {
        let parts =
            [times.user_ns, times.system_ns, times.idle_ns, times.iowait_ns, times.steal_ns];
        let all: f64 = parts.iter().map(|ns| *ns as f64).sum();
        let stolen = times.steal_ns as f64 / all * 100.0;
        if stolen >= STOLEN_PERCENT {
            noise.push(format!(
                "{} % of the processors' time was taken away by the machine below this virtual \
                 machine.",
                figure::percent(stolen)
            ));
        }
    }
    noise
}

/// The mean distance from the mean as a share of it, the least and the most; nothing of few parts,
/// or of no load.
fn uneven(loads: &[f64]) -> Option<(f64, f64, f64)> {
    let mean = loads.iter().sum::<f64>() / loads.len().max(1) as f64;
    if loads.len() < LEAST_PARTS || mean < LEAST_SESSIONS {
        return None;
    }
    let distance = loads.iter().map(|load| (load - mean).abs()).sum::<f64>() / loads.len() as f64;
    let least = loads.iter().copied().fold(f64::INFINITY, f64::min);
    let most = loads.iter().copied().fold(0.0, f64::max);
    Some((distance / mean, least, most))
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;
    use crate::snapshot::known::statistic;

    #[test]
    fn it_speaks_of_short_intervals_and_of_idle_ones() {
        assert_eq!(find(&minute().interval()), None);
        assert_eq!(find(&minute().counter(statistic::USER_COMMITS, 5000).interval()), None);
        assert!(find(&minute().counter(statistic::USER_COMMITS, 5).interval()).is_some());
        let mut short = minute();
        short.end.monotonic_ns = short.begin.monotonic_ns + 5_000_000_000;
        assert!(find(&short.interval()).is_some_and(|found| found.evidence[0].contains("5.00 s")));
        let with = |db_time_ms: u64| {
            let mut made = minute();
            made.end.db_time_ns = Some(db_time_ms * 1_000_000);
            find(&made.interval())
        };
        let idle = with(1_100).expect("it speaks");
        assert!(
            idle.evidence[0].starts_with("The database was nearly idle: 0.0183 active sessions"),
            "{idle:?}"
        );
        assert!(idle.evidence[0].contains("which was 1.10 s"), "{idle:?}");
        assert_eq!(with(1_300), None, "more than a fiftieth of a session");
    }

    #[test]
    fn a_load_that_came_and_went_is_no_mean() {
        assert_eq!(uneven(&[1.0; 5]), None, "few parts");
        assert_eq!(uneven(&[0.0; 20]), None, "no load");
        assert!(uneven(&[4.0, 4.2, 3.9, 4.1, 4.0, 4.1]).is_some_and(|(spread, ..)| spread < 0.1));
        let half = uneven(&[8.0, 8.0, 8.0, 0.0, 0.0, 0.0]).expect("parts");
        assert_eq!(half, (1.0, 0.0, 8.0));
    }

    #[test]
    fn a_machine_below_that_takes_processors_away_is_said() {
        let of = |steal_ns| {
            let mut made = minute();
            let cpu = made.end.host.cpu.as_mut().expect("times");
            cpu.steal_ns = steal_ns;
            find(&made.interval())
        };
        assert_eq!(of(1_000_000_000), None);
        assert!(of(20_000_000_000).is_some_and(|found| found.name == "Too noisy to rely on"));
    }
}

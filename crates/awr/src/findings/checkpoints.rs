//! Checkpoints come because redo is full, not because it is time: the redo is too small.

use super::{Finding, setting};
use crate::{Interval, figure};

pub(super) const NAME: &str = "Checkpoints too frequent";
pub(super) const NAME_OF_INNODB: &str = "Redo too small";

/// Fewer checkpoints on demand may have been asked for by somebody.
const LEAST: u64 = 3;

/// The part of the redo from which on InnoDB is about to write pages out in haste.
const FULL: f64 = 0.75;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let level = |name: &str| {
        of.end.levels.iter().find(|level| level.name == name).map(|level| level.value as f64)
    };
    let age = level("redo since the last checkpoint")
        .zip(level("redo that forces a checkpoint"))
        .filter(|(_, most)| *most > 0.0);
    if let Some((age, most)) = age.filter(|(age, most)| age / most >= FULL) {
        return Some(Finding {
            name: NAME_OF_INNODB.to_owned(),
            impact_percent: None,
            evidence: vec![format!(
                "{} of redo since the last checkpoint, {} % of what forces one.",
                figure::bytes(age),
                figure::percent(age / most * 100.0)
            )],
            advice: "Raise innodb_redo_log_capacity (MySQL 8.0.30 and later) or \
                     innodb_log_file_size, so that pages are written out when there \
                     is time for it."
                .to_owned(),
            tiersmith: None,
        });
    }
    let demanded = of.counter("checkpoints on demand").filter(|count| *count >= LEAST)?;
    let timed = of.counter("checkpoints by time").unwrap_or(0);
    if demanded <= timed {
        return None;
    }
    let mut evidence = vec![format!(
        "{} checkpoints because redo was full or on demand, {} by time: one in {} s.",
        figure::count(demanded),
        figure::count(timed),
        figure::number(of.elapsed_s() / (demanded + timed) as f64)
    )];
    if let Some(size) = setting(of, "max_wal_size") {
        evidence.push(format!("max_wal_size is {}.", figure::visible(size)));
    }
    Some(Finding {
        name: NAME.to_owned(),
        impact_percent: None,
        evidence,
        advice:
            "Raise max_wal_size until checkpoints come by time; each one makes the next change \
                 of every page a full page in redo."
                .to_owned(),
        tiersmith: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;

    #[test]
    fn it_speaks_when_most_checkpoints_were_on_demand() {
        let of = |demanded, timed| {
            minute()
                .counter("checkpoints on demand", demanded)
                .counter("checkpoints by time", timed)
                .interval()
        };
        assert!(find(&of(6, 1)).is_some_and(|found| found.evidence[0].contains("6 checkpoints")));
        assert_eq!(find(&of(3, 5)), None);
        assert_eq!(find(&of(1, 0)), None);
        let age = |age| {
            let mut made = minute();
            made.end.add_level("redo since the last checkpoint", "bytes", age);
            made.end.add_level("redo that forces a checkpoint", "bytes", 100);
            find(&made.interval())
        };
        assert!(age(80).is_some() && age(70).is_none());
    }
}

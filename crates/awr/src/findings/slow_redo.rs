//! Syncs of redo take long, for any device that is made for them.

use tiersmith_events::WaitClass;

use super::{Finding, class_ns, of_db_time, redo_syncs};
use crate::{Interval, figure};

/// A mean from which on a sync is slow: flash without power-loss protection and disks are above, what is made for redo is far below.
const SLOW_NS: f64 = 2_000_000.0;

/// Fewer syncs say little about a device.
const LEAST_SYNCS: u64 = 50;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let (count, ns) = redo_syncs(of).filter(|(count, _)| *count >= LEAST_SYNCS)?;
    let mean = ns as f64 / count as f64;
    if mean < SLOW_NS {
        return None;
    }
    let mut evidence = vec![format!(
        "{} syncs of redo took {} on average.",
        figure::count(count),
        figure::nanoseconds(mean)
    )];
    let writing = of.disks.iter().filter(|disk| disk.writes > 0).max_by_key(|disk| disk.writes);
    if let Some(disk) = writing.filter(|_| !super::is_elsewhere(of)) {
        evidence.push(format!(
            "A write of {}, the disk of this host that was written most, took {} on average.",
            figure::visible(&disk.name),
            figure::nanoseconds(disk.write_ms as f64 * 1e6 / disk.writes as f64)
        ));
    }
    let commit = of_db_time(of, class_ns(of, WaitClass::Commit)).filter(|percent| *percent > 0.0);
    Some(Finding {
        name: "Redo is slow to become durable".to_owned(),
        impact_percent: commit,
        evidence,
        advice: "Measure the device with `tiersmith probe`. If it can do better, look for others that write to it; if not, put the redo \
                 onto storage with power-loss protection or persistent memory."
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;

    #[test]
    fn it_needs_enough_syncs_and_slow_ones() {
        let of =
            |count, seconds| minute().wait("redo sync", WaitClass::SystemIo, true, count, seconds).interval();
        assert!(find(&of(1000, 5)).is_some_and(|found| found.evidence[0].contains("5.00ms")));
        assert_eq!(find(&of(10_000, 5)), None, "half a millisecond");
        assert_eq!(find(&of(10, 5)), None, "too few");
    }
}

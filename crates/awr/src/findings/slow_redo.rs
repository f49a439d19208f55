//! Syncs of redo take long: for any device that is made for them, or against what this machine's
//! device itself can do.
//!
//! The database says how long a sync of redo took, the kernel how long the disk took to write and
//! to flush. What is between the two is not the disk's: a file system's journal, other files that
//! are made durable by the same flush, a thread that waits for a processor.
//!
//! Deliberately absent: which disk the redo lies on, which no source tells. The disk that was
//! flushed most is taken, and named, if it was flushed about as often as the redo was synced; else
//! no disk is.

use tiersmith_events::WaitClass;

use super::{
    Finding, attach_redo, is_idle, measured_commits, redo_syncs, sampled_share, synced_most,
};
use crate::{Interval, figure};

/// A mean from which on a sync is slow: flash without power-loss protection and disks are above,
/// what is made for redo is far below.
const SLOW_NS: f64 = 2_000_000.0;

/// A sync this many times as long as the disk's own write and flush was not waiting for the disk
/// alone, and from this mean on it matters.
const TIMES_THE_DISK: f64 = 4.0;
const MATTERS_NS: f64 = 500_000.0;

/// Fewer syncs say little about a device.
const LEAST_SYNCS: u64 = 50;

/// Where it is known that commits are less of DB time than this, nobody waits for the redo.
const LEAST_PERCENT: f64 = 1.0;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let (count, ns) = redo_syncs(of).filter(|(count, _)| *count >= LEAST_SYNCS)?;
    let mean = ns as f64 / count as f64;
    let disk = synced_most(of);
    let above =
        disk.as_ref().is_some_and(|disk| mean >= MATTERS_NS && mean >= disk.ns * TIMES_THE_DISK);
    if (mean < SLOW_NS && !above) || is_idle(of) {
        return None;
    }
    let measured = measured_commits(of);
    let commits =
        measured.or_else(|| sampled_share(of, WaitClass::Commit).map(|(percent, _)| percent));
    if commits.is_some_and(|percent| percent < LEAST_PERCENT) {
        return None;
    }
    let mut evidence = vec![format!(
        "{} syncs of redo took {} on average.",
        figure::count(count),
        figure::nanoseconds(mean)
    )];
    if let Some(disk) = &disk {
        evidence.push(format!(
            "{}, the disk of this host that was flushed most, took {} for a write and a flush: {} \
             % of a sync.",
            figure::visible(disk.name),
            figure::nanoseconds(disk.ns),
            figure::percent(disk.ns / mean * 100.0)
        ));
    } else if let Some(disk) = of
        .disks
        .iter()
        // Where flushes are counted and do not fit, the disk's writes are not the redo's either.
        .filter(|disk| disk.writes > 0 && disk.flushes.is_none() && !super::is_elsewhere(of))
        .max_by_key(|disk| disk.writes)
    {
        evidence.push(format!(
            "A write of {}, the disk of this host that was written most, took {} on average.",
            figure::visible(&disk.name),
            figure::nanoseconds(disk.write_ms as f64 * 1e6 / disk.writes as f64)
        ));
    }
    let advice = if above {
        "The disk does better than the redo's file: give the redo a file system of its own, look \
         for others that write and sync there (iostat, \
         fsync of other programs), and for threads that wait for processors. tiersmith probe \
         measures what a sync costs with nobody else."
    } else {
        "Measure the device with tiersmith probe. If it can do better, look for others that write \
         to it; if not, put the redo onto storage \
         with power-loss protection or persistent memory."
    };
    Some(Finding {
        name: if above { "Redo is slower than its disk" } else { "Redo is slow to become durable" }
            .to_owned(),
        impact_percent: commits,
        evidence,
        advice: advice.to_owned(),
        tiersmith: attach_redo(of),
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::{Made, minute};
    use super::*;
    use crate::snapshot::host::DiskStat;

    fn syncs(count: u64, seconds: u64) -> Made {
        minute().wait("redo sync", WaitClass::SystemIo, true, count, seconds)
    }

    /// A disk with so many writes and flushes, each of them of so many milliseconds.
    fn with_disk(mut made: Made, count: u64, ms: u64) -> Made {
        let disk = |count| DiskStat {
            name: "vda".to_owned(),
            writes: 1 + count,
            write_ms: count * ms,
            flushes: Some(count),
            flush_ms: Some(count * ms),
            ..DiskStat::default()
        };
        (made.begin.host.disks, made.end.host.disks) =
            (Some(vec![disk(0)]), Some(vec![disk(count)]));
        made
    }

    #[test]
    fn it_needs_enough_syncs_and_slow_ones() {
        let of = |count, seconds| find(&syncs(count, seconds).interval());
        assert!(of(1000, 5).is_some_and(|found| found.evidence[0].contains("5.00ms")));
        assert_eq!(of(10_000, 5), None, "half a millisecond, and the disk is not known");
        assert_eq!(of(10, 5), None, "too few");
    }

    #[test]
    fn of_a_database_that_is_idle_it_is_silent() {
        let of = |db_time_ms: u64| {
            let mut made = syncs(1000, 5);
            made.end.db_time_ns = Some(db_time_ms * 1_000_000);
            find(&made.interval())
        };
        assert_eq!(of(1_100), None, "less than a fiftieth of a session");
        assert!(of(1_300).is_some());
    }

    #[test]
    fn a_disk_that_is_as_slow_is_the_reason_and_one_that_is_fast_is_not() {
        let found = find(&with_disk(syncs(1000, 10), 1000, 4).interval()).expect("it speaks");
        assert_eq!(found.name, "Redo is slow to become durable");
        assert!(
            found.evidence[1].contains("8.00ms for a write and a flush: 80.0 % of"),
            "{:?}",
            found.evidence
        );
        let found = find(&with_disk(syncs(1000, 20), 1000, 1).interval()).expect("it speaks");
        assert_eq!(found.name, "Redo is slower than its disk");
        assert!(found.evidence[1].contains("10.0 % of a sync"), "{:?}", found.evidence);
        assert!(found.advice.contains("file system of its own"), "{}", found.advice);
        assert_eq!(
            find(&with_disk(syncs(100_000, 20), 100_000, 0).interval()),
            None,
            "200 us matter to nobody"
        );
    }

    #[test]
    fn a_disk_that_is_flushed_for_something_else_is_no_evidence() {
        let of =
            |flushes| find(&with_disk(syncs(1000, 20), flushes, 1).interval()).expect("it speaks");
        for flushes in [499, 4001] {
            let found = of(flushes);
            assert_eq!(
                (found.name.as_str(), found.evidence.len()),
                ("Redo is slow to become durable", 1),
                "{flushes}"
            );
        }
        for flushes in [500, 4000] {
            assert_eq!(of(flushes).name, "Redo is slower than its disk", "{flushes}");
        }
        assert_eq!(
            find(&with_disk(syncs(1000, 1), 300, 0).interval()),
            None,
            "1 ms, and the disk is not known"
        );
    }

    #[test]
    fn it_is_silent_where_commits_are_known_to_be_nothing() {
        let of = |ns| {
            let mut made = syncs(1000, 10).wait("log file sync", WaitClass::Commit, false, 10, 0);
            made.end.waits.last_mut().expect("a wait").total_ns = ns;
            find(&made.interval())
        };
        assert_eq!(of(900_000_000), None, "0.9 %");
        assert_eq!(of(0), None, "measured, and nothing");
        assert!(of(1_100_000_000).is_some());
    }

    #[test]
    fn a_database_on_another_machine_is_not_held_against_this_disk() {
        let mut made = with_disk(syncs(1000, 20), 1000, 1);
        (made.begin.source.remote, made.end.source.remote) = (Some(true), Some(true));
        let found = find(&made.interval()).expect("it speaks");
        assert_eq!(
            (found.name.as_str(), found.evidence.len()),
            ("Redo is slow to become durable", 1)
        );
    }
}

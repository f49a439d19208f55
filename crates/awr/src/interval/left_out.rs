//! Times inside an interval of which nothing is counted in it, and steps that are no interval.
//!
//! Deliberately absent: adding up what lies around them (`sum.rs`).

use std::collections::BTreeSet;

use crate::snapshot::MediumStat;
use crate::{Error, Snapshot, SnapshotId};

/// A time inside an interval of which nothing is counted in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The snapshot at its beginning.
    pub first: SnapshotId,
    /// The snapshot at its end.
    pub last: SnapshotId,
    /// When it began, in nanoseconds since 1970 in UTC.
    pub from_unix_ns: u64,
    /// When it ended.
    pub to_unix_ns: u64,
    /// How long it was, as far as the snapshots tell.
    pub elapsed_ns: u64,
    /// A word or two: `restarted`, `counters reset`, `no figures`.
    pub what: &'static str,
    /// Why nothing is known of it, in a sentence.
    pub reason: String,
}

/// What is to be known of the snapshots inside an interval besides its figures.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inside {
    /// Lists of them that may lack rows.
    pub(crate) partial: BTreeSet<String>,
    /// Emulated media of them.
    pub(crate) emulated: Vec<MediumStat>,
}

/// A step that is no interval.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    /// Which of the steps, from 0.
    pub(crate) step: usize,
    pub(crate) time: LeftOut,
}

impl Broken {
    pub(crate) fn new(
        step: usize,
        (first, begin): (SnapshotId, &Snapshot),
        (last, end): (SnapshotId, &Snapshot),
        what: &'static str,
        error: &Error,
    ) -> Broken {
        let reason = match error {
            Error::Restarted { reason } | Error::Reset { reason } => reason.clone(),
            other => other.to_string(),
        };
        let time = LeftOut {
            first,
            last,
            from_unix_ns: begin.taken_unix_ns,
            to_unix_ns: end.taken_unix_ns,
            elapsed_ns: passed(begin, end),
            what,
            reason,
        };
        Broken { step, time }
    }
}

/// How much time passed, as far as the two can tell.
pub(crate) fn passed(begin: &Snapshot, end: &Snapshot) -> u64 {
    let rebooted =
        matches!((&begin.host.boot, &end.host.boot), (Some(before), Some(now)) if before != now);
    match end.monotonic_ns.checked_sub(begin.monotonic_ns) {
        Some(ns) if !rebooted => ns,
        _ => end.taken_unix_ns.saturating_sub(begin.taken_unix_ns),
    }
}

/// Whether the counters of a source began anew: on both sides of it they can be counted.
pub(crate) fn is_break(error: &Error) -> bool {
    matches!(error, Error::Restarted { .. } | Error::Reset { .. })
}

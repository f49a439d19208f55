//! Replication keeps redo that nobody fetches, or a standby is far behind: the disk fills, or what
//! is read there is old.

use super::Finding;
use crate::snapshot::known::level;
use crate::snapshot::object::ObjectKind;
use crate::{Interval, figure};

/// Redo kept for nobody, from which on a disk may fill.
const KEPT_BYTES: u64 = 1 << 30;

/// Redo that a standby has not replayed, at both ends, from which on it does not keep up.
const BEHIND_BYTES: u64 = 256 << 20;

/// How far a standby is behind by the clock, from which on it matters.
const BEHIND_S: u64 = 60;

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let mut evidence = Vec::new();
    let shown = |bytes: u64| figure::bytes(bytes as f64);
    for slot in of.objects.iter().filter(|object| object.kind == ObjectKind::Slot) {
        let kept = slot.level("kept_bytes").unwrap_or(0);
        if slot.level("active") == Some(0) && kept >= KEPT_BYTES {
            evidence.push(format!(
                "Slot {}: {} of redo are kept for it, and nobody fetches them.",
                figure::visible(&slot.name),
                shown(kept)
            ));
        }
    }
    for standby in of.objects.iter().filter(|object| object.kind == ObjectKind::Standby) {
        let before = of.begin.objects.iter().find(|before| before.key() == standby.key());
        let behind = |of: &crate::ObjectStat| of.level("behind_bytes").unwrap_or(0);
        let (began, ended) = (before.map_or(0, behind), behind(standby));
        if began >= BEHIND_BYTES && ended >= BEHIND_BYTES {
            evidence.push(format!(
                "Standby {} has not replayed {} of redo; {} at the beginning.",
                figure::visible(&standby.name),
                shown(ended),
                shown(began)
            ));
        }
    }
    let behind = of.end.levels.iter().find(|of| of.name == level::BEHIND_PRIMARY);
    if let Some(seconds) = behind.map(|level| level.value).filter(|seconds| *seconds >= BEHIND_S) {
        evidence.push(format!(
            "This standby is {} s behind: so old is the newest transaction that can be read here.",
            figure::count(seconds)
        ));
    }
    (!evidence.is_empty()).then(|| Finding {
        name: "Replication does not keep up".to_owned(),
        impact_percent: None,
        evidence,
        advice: "Drop a slot that nobody needs (pg_drop_replication_slot), or limit what is kept \
                 (max_slot_wal_keep_size). \
                 On a standby that does not keep up, look at its disks, at queries that hold \
                 replay up \
                 (max_standby_streaming_delay), and at the network where redo is not sent."
            .to_owned(),
        tiersmith: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;
    use crate::ObjectStat;

    #[test]
    fn a_slot_that_nobody_reads_and_a_standby_far_behind_are_named_and_others_are_not() {
        let slot = |active: u64, kept: u64| {
            let mut made = minute();
            let mut of = ObjectStat::new(ObjectKind::Slot, "old", "old");
            of.levels.insert("active".to_owned(), active);
            of.levels.insert("kept_bytes".to_owned(), kept);
            made.end.objects = vec![of];
            find(&made.interval())
        };
        let found = slot(0, 3 << 30).expect("kept");
        assert!(found.evidence[0].contains("Slot old: 3.0 GiB of redo"), "{found:?}");
        assert_eq!((slot(1, 3 << 30), slot(0, 1 << 20)), (None, None));
        let standby = |began: u64, ended: u64| {
            let mut made = minute();
            let of = |behind| {
                let mut of = ObjectStat::new(ObjectKind::Standby, "7", "replica");
                of.levels.insert("behind_bytes".to_owned(), behind);
                vec![of]
            };
            (made.begin.objects, made.end.objects) = (of(began), of(ended));
            find(&made.interval())
        };
        assert!(
            standby(1 << 30, 2 << 30)
                .is_some_and(|found| found.evidence[0].contains("2.0 GiB of redo"))
        );
        assert_eq!((standby(0, 2 << 30), standby(2 << 30, 0)), (None, None), "for a moment");
        let clock = |seconds| {
            let mut made = minute();
            made.end.add_level(level::BEHIND_PRIMARY, "s", seconds);
            find(&made.interval())
        };
        assert!(clock(600).is_some() && clock(2).is_none());
    }
}

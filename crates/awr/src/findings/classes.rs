//! A class of waits is much of Oracle's DB time although no event of it is: Oracle's ADDM speaks of
//! an unusual wait class.
//!
//! After the other rules: what they are about is not claimed again.

use tiersmith_events::WaitClass;

use super::{Finding, contention, dominant_event, is_idle, is_oracle, of_db_time};
use crate::{Interval, WaitDelta, figure};

/// Share of DB time from which on it is worth saying.
const LEAST_PERCENT: f64 = 10.0;

/// So many events are named.
const NAMED: usize = 3;

pub(super) const NAME: &str = "Waits of one class are much of DB time";

/// A finding for each class of which much is left.
pub(super) fn find(of: &Interval, found: &[Finding]) -> Vec<Finding> {
    if !is_oracle(of) || is_idle(of) {
        return Vec::new();
    }
    let waits: Vec<&WaitDelta> = of
        .foreground()
        .into_iter()
        .filter(|wait| wait.count > 0 && !wait.is_inside_another())
        .filter(|wait| !dominant_event::is_spoken_of(of, wait, found))
        .collect();
    WaitClass::ALL.into_iter().filter_map(|class| one(of, class, &waits)).collect()
}

fn one(of: &Interval, class: WaitClass, waits: &[&WaitDelta]) -> Option<Finding> {
    let waits: Vec<&WaitDelta> = waits.iter().copied().filter(|wait| wait.class == class).collect();
    let ns = waits.iter().fold(0, |sum: u64, wait| sum.saturating_add(wait.total_ns));
    let percent = of_db_time(of, ns).filter(|percent| *percent >= LEAST_PERCENT)?;
    let mut evidence = vec![format!(
        "Waits of class {class} that no other finding is about are {} % of DB time.",
        figure::percent(percent)
    )];
    evidence.extend(super::longest(&waits, ns, NAMED));
    if class == WaitClass::UserIo {
        evidence.extend(contention::segments(of, "Segments by Physical Reads"));
    }
    let first = waits.first().map_or("", |wait| wait.name.as_str());
    Some(Finding {
        name: format!("{NAME}: {class}"),
        impact_percent: Some(percent),
        evidence,
        advice: dominant_event::advice(first, class).to_owned(),
        tiersmith: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::super::{Finding, findings};
    use super::*;

    #[test]
    fn small_waits_of_one_class_add_up_and_what_has_a_finding_is_not_counted_again() {
        let of = |seconds: u64, product: &str| -> Vec<Finding> {
            let mut made = minute()
                .wait("direct path read", WaitClass::UserIo, false, 1000, seconds)
                .wait("Disk file Mirror Read", WaitClass::UserIo, false, 1000, seconds)
                .wait("direct path write temp", WaitClass::UserIo, false, 1000, 8)
                .wait("latch free", WaitClass::Other, false, 10, 3);
            for snapshot in [&mut made.begin, &mut made.end] {
                snapshot.source.product = product.to_owned();
            }
            let found = findings(&made.interval());
            found.into_iter().filter(|finding| finding.name.starts_with(NAME)).collect()
        };
        let found = of(7, "Oracle");
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].name, "Waits of one class are much of DB time: User I/O");
        let percent = found[0].impact_percent.expect("a share");
        assert!((percent - 14.0).abs() < 0.01, "spills have a finding of their own: {found:?}");
        assert!(found[0].evidence[2].contains("direct path read: 1,000 waits"), "{found:?}");
        assert_eq!(of(4, "Oracle"), []);
        assert_eq!(of(7, "PostgreSQL 18"), []);
    }
}

//! Sessions wait for locks that other sessions hold.
//!
//! Who holds them is known where sessions were sampled.

use tiersmith_events::WaitClass;

use super::{Finding, contention, is_oracle, of_db_time, sampled_share, target};
use crate::snapshot::sampling::who;
use crate::{Interval, WaitDelta, figure};

/// Share of DB time from which on it is worth saying.
const LEAST_PERCENT: f64 = 5.0;

/// So many events are named.
const NAMED: usize = 3;

pub(super) const NAME: &str = "Sessions wait for locks";

/// Whether a wait of class Application is for a lock: Oracle counts there as well what is for a
/// checkpoint of one table, or for a client that is told of an error.
pub(super) fn is_lock(name: &str) -> bool {
    let others = ["SQL*Net", "enq: KO - ", "enq: RO - "];
    !others.iter().any(|begin| name.starts_with(begin))
}

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let mut waits: Vec<&WaitDelta> = of.foreground();
    waits.retain(|wait| {
        wait.class == WaitClass::Application
            && wait.count > 0
            && !wait.is_inside_another()
            && is_lock(&wait.name)
    });
    let ns = waits.iter().fold(0, |sum: u64, wait| sum.saturating_add(wait.total_ns));
    let (percent, mut evidence) = match of_db_time(of, ns).filter(|_| ns > 0) {
        Some(percent) => (percent, super::longest(&waits, ns, NAMED)),
        None => {
            let (percent, _) = sampled_share(of, WaitClass::Application)?;
            let sampling = of.sampling.as_ref()?;
            let mut seen: Vec<_> = sampling
                .events
                .iter()
                .filter(|event| event.class == WaitClass::Application.name())
                .collect();
            seen.sort_by_key(|event| std::cmp::Reverse(event.seen));
            let lines = seen.into_iter().take(NAMED).map(|event| {
                format!(
                    "{}: seen {} times (sampled, not measured).",
                    figure::visible(&event.name),
                    figure::count(event.seen)
                )
            });
            (percent, lines.collect())
        }
    };
    if percent < LEAST_PERCENT {
        return None;
    }
    evidence.insert(0, format!("Waits for locks are {} % of the time.", figure::percent(percent)));
    evidence.extend(blocker(of));
    evidence.extend(contention::segments(of, "Segments by Row Lock Waits"));
    let who = match target(of) {
        Some("postgres") => {
            "pg_blocking_pids() in pg_stat_activity says who blocks whom while it lasts."
        }
        Some("mariadb") => {
            "information_schema.innodb_trx, and sys.innodb_lock_waits in MySQL, say who blocks \
             whom while it lasts."
        }
        _ if is_oracle(of) => {
            "FINAL_BLOCKING_SESSION in V$SESSION and in the active session history says who blocks."
        }
        _ => "The database's own view of locks says who blocks whom while it lasts.",
    };
    Some(Finding {
        name: NAME.to_owned(),
        impact_percent: Some(percent),
        evidence,
        advice: format!(
            "{who} Shorten the transactions that hold the locks, change rows in one order \
             everywhere, and do not wait for a user or another \
             system between a change and its commit. Faster storage helps only as far as it makes \
             those transactions shorter."
        ),
        tiersmith: None,
    })
}

/// The session that held up most of those that were seen waiting.
fn blocker(of: &Interval) -> Option<String> {
    let sampling = of.sampling.as_ref()?;
    let blockers = who::by_who(&sampling.blockers);
    let all = blockers.iter().fold(0, |sum: u64, one| sum.saturating_add(one.seen));
    let first = blockers.first()?;
    let doing = match first.text {
        "" => String::new(),
        text => format!(" ({})", figure::visible(&text.chars().take(120).collect::<String>())),
    };
    Some(format!(
        "Session {}{doing} held up {} % of those that were seen waiting (sampled).",
        figure::visible(first.id),
        figure::percent(first.seen as f64 / all.max(1) as f64 * 100.0)
    ))
}

#[cfg(test)]
mod tests {
    use super::super::made::minute;
    use super::*;
    use crate::Sampling;

    #[test]
    fn measured_and_sampled_locks_are_found_and_a_few_are_not() {
        let of = |seconds| {
            minute()
                .wait("enq: TX - row lock contention", WaitClass::Application, false, 10, seconds)
                .interval()
        };
        let found = find(&of(40)).expect("locks");
        assert_eq!(found.impact_percent, Some(40.0));
        assert_eq!(found.evidence[0], "Waits for locks are 40.0 % of the time.");
        assert!(found.evidence[1].contains("row lock contention: 10 waits of 4.00s"), "{found:?}");
        assert_eq!(find(&of(4)), None);
        for other in ["SQL*Net break/reset to client", "enq: KO - fast object checkpoint"] {
            let made = minute().wait(other, WaitClass::Application, false, 10, 40);
            assert_eq!(find(&made.interval()), None, "{other} is for no lock");
        }
        let sampled = |locks: u64| {
            let mut made = minute();
            made.begin.sampling = Some(Sampling::new("s".to_owned(), 1000));
            let mut sampling = Sampling::new("s".to_owned(), 1000);
            sampling.looks = 100;
            for seen in 0..100 {
                let class = (seen < locks).then_some(WaitClass::Application);
                sampling.saw(if seen < locks { "Lock: transactionid" } else { "on CPU" }, class);
            }
            made.end.sampling = Some(sampling);
            for snapshot in [&mut made.begin, &mut made.end] {
                snapshot.source.product = "PostgreSQL".to_owned();
            }
            find(&made.interval())
        };
        let blocked = {
            let mut made = minute();
            let mut sampling = Sampling::new("s".to_owned(), 1000);
            made.begin.sampling = Some(sampling.clone());
            sampling.looks = 100;
            for at in 0..100 {
                let blocker = crate::Who {
                    id: if at < 75 { "17" } else { "18" },
                    text: "idle in transaction",
                };
                sampling.saw_session(&crate::Seen {
                    event: "Lock: tuple",
                    class: Some(WaitClass::Application),
                    session: crate::Who { id: "3", text: "u@d" },
                    statement: crate::Who::default(),
                    blocker: Some(blocker),
                });
            }
            made.end.sampling = Some(sampling);
            find(&made.interval()).expect("locks")
        };
        let last = blocked.evidence.last().expect("evidence");
        assert!(last.contains("Session 17 (idle in transaction) held up 75.0 %"), "{blocked:?}");
        let found = sampled(30).expect("locks");
        assert!(
            found.evidence[1].contains("transactionid: seen 30 times")
                && found.advice.contains("pg_blocking_pids"),
            "{found:?}"
        );
        assert_eq!(sampled(2), None);
    }
}

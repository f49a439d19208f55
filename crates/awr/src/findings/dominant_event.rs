//! Wait events that are much of DB time each and that no other rule is about: nothing dominant is
//! passed over, and each is called by its name.

use tiersmith_events::WaitClass;

use super::{Finding, contention, is_idle, is_oracle, lock_waits, of_db_time, redo_space};
use crate::snapshot::known;
use crate::{Interval, WaitDelta, figure};

pub(super) const NAME: &str = "One wait event is much of DB time";

/// Share of DB time from which on an event must be spoken of.
const LEAST_PERCENT: f64 = 20.0;

/// Of a database that waits less than this in all, nothing dominates.
const LEAST_NS: u64 = 100_000_000;

/// So many sightings make a share of them that can be relied on.
const LEAST_SEEN: u64 = 50;

/// The findings that are about an event, by the beginnings of their names.
fn about(name: &str, class: WaitClass) -> &'static [&'static str] {
    match (name, class) {
        (_, WaitClass::Commit) => &["Commits wait for redo"],
        (name, WaitClass::Application) if lock_waits::is_lock(name) => &[lock_waits::NAME],
        // A write to the tier lasts as long as it waits for room there.
        ("free buffer waits" | "tier block write" | "tier batch write", _) => {
            &["Waits for free blocks"]
        }
        ("data file write", _) => &["Requests write pages out themselves"],
        (name, _) if redo_space::is_about(name) => &[redo_space::NAME],
        (name, _) if name.starts_with("direct path") && name.ends_with(" temp") => {
            &["Sorts and hashes spill"]
        }
        // No size of the page cache would hold these.
        ("direct path read", _) => &["A few files are most"],
        (_, WaitClass::UserIo) => {
            &["Page cache too small", "Flash cache hit ratio low", "A few files are most"]
        }
        _ => &[],
    }
}

/// After the other rules: `found` is what they say.
pub(super) fn find(of: &Interval, found: &[Finding]) -> Vec<Finding> {
    let passed_over = |name: &str, class: WaitClass| speaks_of(of, name, class, found).is_none();
    let mut dominant = measured(of, &passed_over);
    if dominant.is_empty() {
        dominant.extend(sampled(of, &passed_over));
    }
    let finding = |(percent, evidence, name, class): Found| {
        let mut evidence = vec![evidence];
        let help = known::help_of_event(&name);
        if !help.is_empty() {
            evidence.push(help.to_owned());
        }
        Finding {
            name: NAME.to_owned(),
            impact_percent: Some(percent),
            evidence,
            advice: advice(&name, class).to_owned(),
            tiersmith: None,
        }
    };
    dominant.into_iter().map(finding).collect()
}

/// The first of the findings that are about an event.
fn speaks_of(of: &Interval, name: &str, class: WaitClass, found: &[Finding]) -> Option<usize> {
    let group = contention::group(name, class).filter(|_| is_oracle(of));
    let about = about(name, class);
    found.iter().position(|finding| match group {
        Some(group) => finding.name == group.name,
        None => about.iter().any(|begin| finding.name.starts_with(begin)),
    })
}

/// Whether one of the findings is about an event, or is the one that calls it dominant.
pub(super) fn is_spoken_of(of: &Interval, wait: &WaitDelta, found: &[Finding]) -> bool {
    let begin = format!("{} (class", figure::visible(&wait.name));
    let is_dominant = |finding: &Finding| {
        finding.name == NAME && finding.evidence.iter().any(|line| line.starts_with(&begin))
    };
    speaks_of(of, &wait.name, wait.class, found).is_some() || found.iter().any(is_dominant)
}

/// Has each event that is much of Oracle's DB time named by the finding that is about it.
pub(super) fn name_events(of: &Interval, found: &mut [Finding]) {
    if !is_oracle(of) {
        return;
    }
    for wait in much(of) {
        let name = figure::visible(&wait.name);
        if found.iter().any(|one| one.evidence.iter().any(|line| line.contains(&name))) {
            continue;
        }
        if let Some(at) = speaks_of(of, &wait.name, wait.class, found) {
            found[at].evidence.push(super::told(wait));
        }
    }
}

type Found = (f64, String, String, WaitClass);

/// The events that are much of DB time, longest first.
fn much(of: &Interval) -> Vec<&WaitDelta> {
    if is_idle(of) {
        return Vec::new();
    }
    let much = |wait: &&WaitDelta| {
        let percent = of_db_time(of, wait.total_ns);
        // The time of a client's connection has the wait for its next command in it, which nobody
        // waits for.
        wait.count > 0
            && !wait.is_inside_another()
            && !wait.name.ends_with("/client_connection")
            && wait.total_ns >= LEAST_NS
            && percent.is_some_and(|percent| percent >= LEAST_PERCENT)
    };
    of.foreground().into_iter().filter(much).collect()
}

fn measured(of: &Interval, passed_over: &dyn Fn(&str, WaitClass) -> bool) -> Vec<Found> {
    let events = much(of).into_iter().filter(|wait| passed_over(&wait.name, wait.class));
    events.filter_map(|wait| one(of, wait)).collect()
}

fn one(of: &Interval, wait: &WaitDelta) -> Option<Found> {
    let percent = of_db_time(of, wait.total_ns)?;
    let evidence = format!(
        "{} (class {}): {} of {} on average are {} % of DB time.",
        figure::visible(&wait.name),
        wait.class,
        figure::several(wait.count, "wait"),
        figure::nanoseconds(wait.mean_ns().unwrap_or(0.0)),
        figure::percent(percent)
    );
    Some((percent, evidence, wait.name.clone(), wait.class))
}

fn sampled(of: &Interval, passed_over: &dyn Fn(&str, WaitClass) -> bool) -> Option<Found> {
    let sampling = of.sampling.as_ref()?;
    let all = sampling.seen();
    let (event, class) = sampling
        .events
        .iter()
        .filter_map(|event| Some((event, WaitClass::from_name(&event.class)?)))
        .filter(|(event, class)| *class != WaitClass::Idle && passed_over(&event.name, *class))
        .max_by_key(|(event, _)| event.seen)?;
    let percent = event.seen as f64 / all as f64 * 100.0;
    if all < LEAST_SEEN || percent < LEAST_PERCENT {
        return None;
    }
    let evidence = format!(
        "{} (class {class}): in {} % of {} sightings of active sessions (sampled, not measured).",
        figure::visible(&event.name),
        figure::percent(percent),
        figure::count(all)
    );
    Some((percent, evidence, event.name.clone(), class))
}

pub(super) fn advice(name: &str, class: WaitClass) -> &'static str {
    match class {
        WaitClass::UserIo if name.contains("write") => {
            "Requests write, and wait for it: see which statements change most. If the mean is far \
             above what the \
             storage can do (tiersmith probe), it is overloaded."
        }
        WaitClass::UserIo => {
            "See which statements and files read most, and whether they must: an index may read \
             less, more memory \
             holds more. If the mean is far above what the storage can do (tiersmith probe), it is \
             overloaded."
        }
        WaitClass::SystemIo => {
            "Background work writes or reads; see which, and move it off the storage of requests."
        }
        WaitClass::Cluster => {
            "Instances ask each other for the same blocks. Let work on the same rows run on one \
             instance (services), \
             spread hot blocks (hash partitions, reverse keys), and check the interconnect."
        }
        WaitClass::Concurrency => {
            "Sessions meet at the same place in memory: hot blocks, the shared pool, a latch. Find \
             the statements that do \
             (many parses, one hot index), and spread or run them less. Storage does not help."
        }
        WaitClass::Network => {
            "Fetch more rows a round trip, or ask for less; check the network between. Storage \
             does not help."
        }
        WaitClass::Scheduler => {
            "A resource plan holds sessions back: raise its limits, or find what uses the \
             processors."
        }
        WaitClass::Configuration => {
            "A size is too small for the load: see the event's explanation for which, and raise it."
        }
        WaitClass::Administrative => {
            "A command of an administrator makes sessions wait: run it at another time."
        }
        _ => {
            "Find the statements and sessions that wait for it, and what the database's manual \
             says of the event."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::super::made::minute;
    use super::*;

    #[test]
    fn what_no_other_rule_is_about_is_spoken_of_from_a_fifth_on() {
        let of = |name, class, seconds| {
            let found = findings(&minute().wait(name, class, false, 1000, seconds).interval());
            found.into_iter().find(|finding| finding.name == NAME)
        };
        let found = of("gc buffer busy acquire", WaitClass::Cluster, 30).expect("dominant");
        assert_eq!(found.impact_percent, Some(30.0));
        assert!(
            found.evidence[0].contains("class Cluster") && found.advice.contains("interconnect"),
            "{found:?}"
        );
        assert!(of("cell single block physical read", WaitClass::UserIo, 25).is_some());
        assert_eq!(of("gc buffer busy acquire", WaitClass::Cluster, 19), None);
        assert_eq!(of("wait/io/socket/sql/client_connection", WaitClass::Network, 90), None);
        let mut idle = minute().wait("gc buffer busy acquire", WaitClass::Cluster, false, 2, 1);
        idle.end.db_time_ns = Some(1_100_000_000);
        let found = findings(&idle.interval());
        let names: Vec<&str> = found.iter().map(|finding| finding.name.as_str()).collect();
        assert_eq!(names, [super::super::short_interval::NAMES[0]], "a hundredth of a session");
        // These have findings of their own.
        assert_eq!(of("log file sync", WaitClass::Commit, 50), None);
        assert_eq!(of("free buffer waits", WaitClass::Configuration, 50), None);
        assert_eq!(of("enq: TX - row lock contention", WaitClass::Application, 50), None);
        assert_eq!(of("log buffer space", WaitClass::Configuration, 50), None);
    }

    #[test]
    fn a_second_event_is_spoken_of_when_the_first_has_a_finding() {
        let found = findings(
            &minute()
                .wait("log file sync", WaitClass::Commit, false, 10, 50)
                .wait("latch: shared pool", WaitClass::Concurrency, false, 10, 25)
                .interval(),
        );
        let names: Vec<&str> = found.iter().map(|finding| finding.name.as_str()).collect();
        assert!(names.contains(&"Commits wait for redo") && names.contains(&NAME), "{names:?}");
    }
}

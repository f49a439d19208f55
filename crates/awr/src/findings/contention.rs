//! Waits of Oracle that have one reason each, whatever their class: the shared pool, hot blocks,
//! other instances, sequences, space, memory, the network.
//!
//! A group of events has a name, an advice, and the table of segments that shows where. What no
//! group has is left to `dominant_event.rs` and `classes.rs`.
//!
//! Deliberately absent: groups for other databases, whose events have other names.

use tiersmith_events::WaitClass;

use super::{Finding, is_idle, is_oracle, of_db_time};
use crate::{Interval, WaitDelta, figure};

/// Share of DB time from which on a group is worth saying.
const LEAST_PERCENT: f64 = 5.0;

/// So many events of a group, and so many segments, are named.
const NAMED: usize = 3;

/// Events that have one reason.
pub(super) struct Group {
    pub(super) name: &'static str,
    /// Beginnings of the names of its events.
    events: &'static [&'static str],
    /// A class all of whose events belong to it.
    class: Option<WaitClass>,
    advice: &'static str,
    /// Beginnings of titles of tables of segments that show where it happens.
    segments: &'static [&'static str],
}

pub(super) const SHARED_POOL: &str = "Sessions meet in the shared pool";
pub(super) const HOT_BLOCKS: &str = "Sessions meet at the same blocks";
pub(super) const CLUSTER: &str = "Instances wait for each other's blocks";
pub(super) const SEQUENCES: &str = "Sequences hold sessions up";
pub(super) const SPACE: &str = "Sessions wait for space to be allocated";
pub(super) const NETWORK: &str = "Sessions wait for the network";
pub(super) const PGA: &str = "The limit of PGA memory holds sessions up";
pub(super) const RESOURCE_PLAN: &str = "A resource plan holds sessions up";
pub(super) const OBJECT_CHECKPOINTS: &str = "Checkpoints of single tables hold sessions up";

/// The first group that an event fits has it.
pub(super) const GROUPS: [Group; 9] = [
    Group {
        name: SHARED_POOL,
        events: &[
            "cursor:",
            "latch: library cache",
            "latch: row cache",
            "latch: shared pool",
            "libcache",
            "library cache",
            "row cache",
        ],
        class: None,
        advice: "Parse less: bind variables instead of literals, cursors that are kept open, no \
                 DDL or grants while there is load, and a shared pool that is not too small. \
                 Faster storage does not help.",
        segments: &[],
    },
    Group {
        name: CLUSTER,
        events: &["gc "],
        class: Some(WaitClass::Cluster),
        advice: "Let work on the same rows run on one instance (services), spread hot blocks \
                 (hash partitions, reverse keys), and check the interconnect: its latency is in \
                 the report's RAC statistics.",
        segments: &["Segments by Global Cache Buffer Busy", "Segments by CR Blocks Received"],
    },
    Group {
        name: HOT_BLOCKS,
        events: &[
            "buffer busy waits",
            "enq: TX - allocate ITL",
            "enq: TX - index contention",
            "latch: cache buffers chains",
        ],
        class: None,
        advice: "Spread the rows that everybody changes or reads: hash partitions or a reverse \
                 key for an index that grows at one end, a larger INITRANS or fewer rows a block \
                 for a table, and fewer reads of the same blocks. Faster storage does not help.",
        segments: &["Segments by Buffer Busy Waits", "Segments by ITL Waits"],
    },
    Group {
        name: SEQUENCES,
        events: &["DFS lock handle", "enq: SQ - ", "enq: SV - "],
        class: None,
        advice: "Give the sequences a larger CACHE, and do without ORDER in a cluster.",
        segments: &[],
    },
    Group {
        name: SPACE,
        events: &[
            "Data file init write",
            "enq: FB - ",
            "enq: HW - ",
            "enq: ST - ",
            "enq: US - ",
            "undo segment extension",
        ],
        class: None,
        advice: "Allocate before it is needed: larger extents, ALTER TABLE ... ALLOCATE EXTENT \
                 before a load, partitions for parallel inserts, data files of their full size, \
                 and enough undo.",
        segments: &[],
    },
    Group {
        name: PGA,
        events: &["acknowledge over PGA limit"],
        class: None,
        advice: "Raise pga_aggregate_limit (and pga_aggregate_target: see the report's PGA Memory \
                 Advisory), or let fewer sessions sort and hash at once.",
        segments: &[],
    },
    Group {
        name: RESOURCE_PLAN,
        events: &["resmgr:"],
        class: Some(WaitClass::Scheduler),
        advice: "Raise the limits of the resource plan, or find what uses the processors. Faster \
                 storage does not help.",
        segments: &[],
    },
    Group {
        name: OBJECT_CHECKPOINTS,
        events: &["enq: KO - fast object", "enq: RO - fast object"],
        class: None,
        advice: "A table's changed blocks are written before it is read past the cache in \
                 parallel, truncated or dropped: do that less often while there is load, use \
                 temporary tables for what is truncated again and again, and keep the list of \
                 changed blocks short (a smaller fast_start_mttr_target).",
        segments: &[],
    },
    Group {
        name: NETWORK,
        events: &["SQL*Net "],
        class: Some(WaitClass::Network),
        advice: "Fetch and send more rows a round trip (array size, SDU), or ask for less; check \
                 the network between. Faster storage does not help.",
        segments: &[],
    },
];

impl Group {
    fn has(&self, name: &str, class: WaitClass) -> bool {
        self.class == Some(class) || self.events.iter().any(|begin| name.starts_with(begin))
    }
}

/// The group that an event of Oracle belongs to.
pub(super) fn group(name: &str, class: WaitClass) -> Option<&'static Group> {
    GROUPS.iter().find(|group| group.has(name, class))
}

/// A finding for each group that is much of DB time.
pub(super) fn find(of: &Interval) -> Vec<Finding> {
    if !is_oracle(of) || is_idle(of) {
        return Vec::new();
    }
    GROUPS.iter().filter_map(|group| one(of, group)).collect()
}

fn one(of: &Interval, wanted: &Group) -> Option<Finding> {
    let mut waits: Vec<&WaitDelta> = of.foreground();
    let is_of = |wait: &&WaitDelta| {
        wait.count > 0 && group(&wait.name, wait.class).is_some_and(|of| of.name == wanted.name)
    };
    waits.retain(is_of);
    let ns = waits.iter().fold(0, |sum: u64, wait| sum.saturating_add(wait.total_ns));
    let percent = of_db_time(of, ns).filter(|percent| *percent >= LEAST_PERCENT)?;
    let mut evidence = vec![format!("Such waits are {} % of DB time.", figure::percent(percent))];
    evidence.extend(super::longest(&waits, ns, NAMED));
    evidence.extend(wanted.segments.iter().filter_map(|title| segments(of, title)));
    Some(Finding {
        name: wanted.name.to_owned(),
        impact_percent: Some(percent),
        evidence,
        advice: wanted.advice.to_owned(),
        tiersmith: None,
    })
}

/// The first segments of a table of the report, each with its share of what the report captured.
pub(super) fn segments(of: &Interval, title: &str) -> Option<String> {
    let table = of.printed().iter().find(|table| table.title.starts_with(title))?;
    let column =
        |wanted: &[&str]| table.columns.iter().position(|column| wanted.contains(&column.as_str()));
    let owner = column(&["Owner"]);
    let object = column(&["Object Name"])?;
    let share = column(&["% of Capture", "%Total", "%of Capture"]);
    let named: Vec<String> = table
        .rows
        .iter()
        .filter_map(|row| {
            let cell =
                |at: Option<usize>| row.get(at?).map(String::as_str).filter(|s| !s.is_empty());
            let owner = cell(owner).map_or(String::new(), |owner| format!("{owner}."));
            let share = cell(share).map_or(String::new(), |share| format!(" ({share} %)"));
            Some(figure::visible(&format!("{owner}{}{share}", cell(Some(object))?)))
        })
        .take(NAMED)
        .collect();
    (!named.is_empty()).then(|| format!("{}: {}.", table.title, named.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::super::made::{Made, minute};
    use super::*;
    use crate::Printed;

    fn oracle(mut made: Made) -> Made {
        for snapshot in [&mut made.begin, &mut made.end] {
            snapshot.source.product = "Oracle".to_owned();
        }
        made
    }

    /// An event of each group.
    const EVENTS: [(&str, WaitClass, &str); 11] = [
        ("library cache: mutex X", WaitClass::Concurrency, SHARED_POOL),
        ("cursor: pin S wait on X", WaitClass::Concurrency, SHARED_POOL),
        ("gc buffer busy acquire", WaitClass::Cluster, CLUSTER),
        ("buffer busy waits", WaitClass::Concurrency, HOT_BLOCKS),
        ("latch: cache buffers chains", WaitClass::Concurrency, HOT_BLOCKS),
        ("enq: SQ - contention", WaitClass::Configuration, SEQUENCES),
        ("enq: HW - contention", WaitClass::Configuration, SPACE),
        ("acknowledge over PGA limit", WaitClass::Scheduler, PGA),
        ("resmgr:cpu quantum", WaitClass::Scheduler, RESOURCE_PLAN),
        ("enq: KO - fast object checkpoint", WaitClass::Application, OBJECT_CHECKPOINTS),
        ("SQL*Net more data from client", WaitClass::Network, NETWORK),
    ];

    #[test]
    fn each_group_is_found_by_its_events_and_a_little_of_it_is_not() {
        for (name, class, expected) in EVENTS {
            let of = |seconds| {
                find(&oracle(minute().wait(name, class, false, 1000, seconds)).interval())
            };
            let found = of(8);
            assert_eq!(found.len(), 1, "{name}: {found:?}");
            assert_eq!((found[0].name.as_str(), found[0].impact_percent), (expected, Some(8.0)));
            assert!(found[0].evidence[1].contains(name), "{found:?}");
            assert_eq!(of(4), [], "{name}");
            let elsewhere = minute().wait(name, class, false, 1000, 8).interval();
            assert_eq!(find(&elsewhere), [], "{name}: not of Oracle");
        }
        for group in GROUPS {
            assert!(EVENTS.iter().any(|(.., name)| *name == group.name), "{}", group.name);
        }
        let background = oracle(minute().wait("gc cr request", WaitClass::Cluster, true, 9, 50));
        assert_eq!(find(&background.interval()), [], "nobody's DB time");
    }

    #[test]
    fn the_segments_that_the_report_lists_are_named() {
        let mut made =
            oracle(minute().wait("buffer busy waits", WaitClass::Concurrency, false, 1000, 30));
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        made.end.printed.push(Printed {
            title: "Segments by Buffer Busy Waits".to_owned(),
            columns: words(&["Owner", "Object Name", "Buffer Busy Waits", "% of Capture"]),
            rows: vec![words(&["APP", "ORDERS", "900", "81.20"]), words(&["APP", "", "1", ""])],
        });
        let found = find(&made.interval());
        let last = found[0].evidence.last().expect("evidence");
        assert_eq!(last, "Segments by Buffer Busy Waits: APP.ORDERS (81.20 %).");
    }
}

//! What Oracle's own ADDM found and no rule here is about: passed on, with ADDM's figures.
//!
//! ADDM sees samples of sessions, which a report does not print, so it knows reasons that no figure
//! of a report shows. A report that prints its findings is never left with less than those.
//!
//! After the other rules. Deliberately absent: ADDM's recommendations, which no AWR report prints.

use std::collections::BTreeMap;

use super::{Finding, contention, is_oracle};
use crate::{Interval, figure};

/// The title of the table.
const TITLE: &str = "Top ADDM Findings";

pub(super) const NAME: &str = "Oracle's ADDM found";

/// So many are passed on; of more than that the number is.
const MOST: usize = 20;

const USER_IO: &str = "class User I/O";

/// Beginnings of ADDM's names in lower case, those of our findings that are about the same (or a
/// class that their evidence is about), and what to do.
pub(super) const KNOWN: &[(&str, &[&str], &str)] = &[
    (
        "top sql statements",
        &["One statement is", "A few statements are"],
        "Look at the statements of SQL ordered by Elapsed Time, and at their plans \
         (DBMS_XPLAN.DISPLAY_AWR with the SQL id).",
    ),
    (
        "top sql by",
        &["One statement is", "A few statements are"],
        "Look at the statements that the report lists first by that order, and at their plans \
         (DBMS_XPLAN.DISPLAY_AWR with the SQL id).",
    ),
    (
        "top segments by",
        &["A few files are", USER_IO],
        "Look at the segments of Segments by Physical Reads and by Direct Physical Reads: which \
         statements read them, and whether they would fit where storage is fast.",
    ),
    (
        "commits and rollbacks",
        &["Commits wait for redo"],
        "Commit less often, and put the redo onto storage that syncs faster.",
    ),
    (
        "undersized buffer cache",
        &["Page cache too small", "A few files are"],
        "Give the buffer cache more memory: the report's Buffer Pool Advisory says what that \
         saves.",
    ),
    (
        "undersized sga",
        &["Page cache too small", "A few files are"],
        "Give the SGA more memory: the report's SGA Target Advisory says what that saves.",
    ),
    (
        "undersized pga",
        &["Sorts and hashes spill", contention::PGA],
        "Raise pga_aggregate_target: the report's PGA Memory Advisory says what that saves.",
    ),
    ("pga_aggregate_limit", &[contention::PGA], "Raise pga_aggregate_limit."),
    (
        "hard parse",
        &[super::parses::NAME],
        "Use bind variables instead of literals, and mend statements that fail.",
    ),
    (
        "soft parse",
        &[super::parses::NAME],
        "Let the program keep its cursors open, or raise session_cached_cursors.",
    ),
    (
        "shared pool latches",
        &[contention::SHARED_POOL],
        "Parse less: bind variables, cursors that are kept open, no DDL while there is load.",
    ),
    (
        "undersized shared pool",
        &[contention::SHARED_POOL, super::parses::NAME],
        "Make the shared pool larger: see the report's Shared Pool Advisory.",
    ),
    (
        "session connect",
        &[super::connects::NAME],
        "Let programs keep their connections: a pool of connections.",
    ),
    (
        "row lock waits",
        &[super::lock_waits::NAME],
        "Shorten the transactions that hold the locks; Segments by Row Lock Waits says where.",
    ),
    (
        "table locks",
        &[super::lock_waits::NAME],
        "Index foreign keys whose parents change, and do not lock whole tables.",
    ),
    (
        "user locks",
        &[super::lock_waits::NAME],
        "See what the application locks by DBMS_LOCK, and for how long.",
    ),
    (
        "log file switches",
        &[super::redo_space::NAME],
        "Make the redo files larger, or more of them.",
    ),
    (
        "undersized redo log buffer",
        &[super::redo_space::NAME],
        "Raise log_buffer, and put the redo onto faster storage.",
    ),
    (
        "checkpoints due to log file",
        &[super::redo_space::NAME, "Waits for free blocks"],
        "Make the redo files larger.",
    ),
    (
        "checkpoints due to mttr",
        &["Waits for free blocks"],
        "Raise fast_start_mttr_target: see the report's MTTR Advisory.",
    ),
    (
        "checkpoints due to",
        &[contention::OBJECT_CHECKPOINTS],
        "See what asks for checkpoints: tables that are truncated, dropped or read in parallel, \
         and commands of administrators.",
    ),
    (
        "i/o throughput",
        &["A few files are", "Page cache too small", USER_IO],
        "Compare the means of reads with what the storage can do (tiersmith probe): more of it, or \
         faster.",
    ),
    (
        "undo i/o",
        &[],
        "Put the undo tablespace onto faster storage, and shorten the queries that read old \
         versions of rows that change.",
    ),
    (
        "buffer busy",
        &[contention::HOT_BLOCKS, contention::CLUSTER],
        "Spread the rows that everybody changes or reads: hash partitions, reverse keys, fewer \
         rows a block.",
    ),
    (
        "global cache",
        &[contention::CLUSTER],
        "Let work on the same rows run on one instance, and check the interconnect.",
    ),
    (
        "cpu usage",
        &[
            super::cpu_bound::NAME,
            super::db_cpu::NAME,
            super::db_cpu::UNNAMED,
            contention::RESOURCE_PLAN,
        ],
        "Look for the statements and programs that use the processors, or for the limit that a \
         resource plan sets.",
    ),
    ("cpu quantum", &[contention::RESOURCE_PLAN], "Raise the limits of the resource plan."),
    (
        "sequence usage",
        &[contention::SEQUENCES],
        "Give the sequences a larger CACHE, and do without ORDER in a cluster.",
    ),
    (
        "space transaction",
        &[contention::SPACE],
        "Allocate space before it is needed: larger extents, partitions for parallel inserts.",
    ),
    (
        "unusual \"network\"",
        &[contention::NETWORK],
        "Fetch and send more rows a round trip; check the network between.",
    ),
    ("latch free", &[], "The report's Latch Sleep Breakdown says which latch it is."),
    (
        "streams flow control",
        &[],
        "The apply or propagation of Streams is slower than capture: see its own statistics.",
    ),
    (
        "virtual memory paging",
        &[],
        "The host has too little memory: make the SGA or PGA smaller, or give it more.",
    ),
];

/// For ADDM's `Unusual "X" wait event` and `"X" wait class`: ours about a class.
fn is_about_class(addm: &str, finding: &Finding) -> bool {
    let class = addm.split('"').nth(1).unwrap_or_default();
    // Waits for locks are what matters of one class.
    let locks = class == "application" && finding.name == super::lock_waits::NAME;
    !class.is_empty()
        && (locks
            || finding.name.to_lowercase().ends_with(&format!(": {class}"))
            || finding
                .evidence
                .iter()
                .any(|line| line.to_lowercase().contains(&format!("class {class}"))))
}

/// What ADDM found, by name: its largest share, and the task that says so.
fn told(of: &Interval) -> Option<BTreeMap<String, (f64, String)>> {
    let table = of.printed().iter().find(|table| table.title.starts_with(TITLE))?;
    let column = |begin: &str| {
        table.columns.iter().position(|column| column.to_lowercase().starts_with(begin))
    };
    let (name, share) = (column("finding name")?, column("percent active sessions")?);
    let task = column("task name");
    let mut told: BTreeMap<String, (f64, String)> = BTreeMap::new();
    for row in &table.rows {
        let (Some(name), Some(percent)) = (
            row.get(name),
            row.get(share)
                .and_then(|cell| cell.replace(',', "").parse::<f64>().ok())
                .filter(|percent| percent.is_finite()),
        ) else {
            continue;
        };
        let percent = percent.clamp(0.0, 100.0);
        let task = task.and_then(|at| row.get(at)).cloned().unwrap_or_default();
        let most = told.entry(name.clone()).or_insert((f64::NEG_INFINITY, String::new()));
        if percent > most.0 {
            *most = (percent, task);
        }
    }
    Some(told)
}

/// A finding for each of ADDM's that `found` is not about.
pub(super) fn find(of: &Interval, found: &[Finding]) -> Vec<Finding> {
    if !is_oracle(of) {
        return Vec::new();
    }
    let mut passed_on: Vec<Finding> = Vec::new();
    for (name, (percent, task)) in told(of).unwrap_or_default() {
        let lower = name.trim().to_lowercase();
        let known = KNOWN.iter().find(|(begin, ..)| lower.starts_with(begin));
        let ours = known.map_or(&[][..], |(_, ours, _)| ours);
        let is_about = |ours: &&str, finding: &Finding| match ours.starts_with("class ") {
            true => finding.evidence.iter().any(|line| line.contains(ours)),
            false => finding.name.starts_with(ours),
        };
        let is_there = |finding: &Finding| {
            ours.iter().any(|ours| is_about(ours, finding)) || is_about_class(&lower, finding)
        };
        if lower.is_empty() || found.iter().any(is_there) {
            continue;
        }
        let task = match task.as_str() {
            "" => String::new(),
            task => format!(" ({})", figure::visible(task)),
        };
        passed_on.push(Finding {
            name: format!("{NAME}: {}", figure::visible(&name)),
            impact_percent: Some(percent),
            evidence: vec![format!(
                "ADDM's task{task} gives it {} % of active sessions; no rule here is about it, it \
                 is below the rule's threshold, or the database was nearly idle.",
                figure::percent(percent)
            )],
            advice: known.map_or_else(
                || {
                    "ADDM's own report of the task has its recommendations: \
                     DBMS_ADDM.GET_REPORT with the task's name, or addmrpt.sql."
                        .to_owned()
                },
                |(.., advice)| {
                    format!(
                        "{advice} ADDM's own report of the task has its recommendations \
                         (DBMS_ADDM.GET_REPORT with the task's name)."
                    )
                },
            ),
            tiersmith: None,
        });
    }
    passed_on.sort_by(|a, b| {
        let percent = |of: &Finding| of.impact_percent.unwrap_or(0.0);
        percent(b).total_cmp(&percent(a))
    });
    let rest = passed_on.split_off(passed_on.len().min(MOST));
    if let Some(first) = rest.first() {
        passed_on.push(Finding {
            name: format!("{NAME} more than these"),
            impact_percent: None,
            evidence: vec![format!(
                "{} more of its findings are not listed here, of at most {} % of active sessions \
                 each.",
                figure::count(rest.len() as u64),
                figure::percent(first.impact_percent.unwrap_or(0.0))
            )],
            advice: format!("The table {TITLE} of the imported report has all of them."),
            tiersmith: None,
        });
    }
    passed_on
}

#[cfg(test)]
mod tests {
    use tiersmith_events::WaitClass;

    use super::super::made::{Made, minute};
    use super::super::{CAUSES, findings};
    use super::*;
    use crate::Printed;

    fn with_addm(mut made: Made, rows: &[(&str, &str)]) -> Interval {
        for snapshot in [&mut made.begin, &mut made.end] {
            snapshot.source.product = "Oracle".to_owned();
        }
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        made.end.printed.push(Printed {
            title: "Top ADDM Findings by Average Active Sessions".to_owned(),
            columns: words(&[
                "Finding Name",
                "Avg active sessions of the task",
                "Percent active sessions of finding",
                "Task Name",
            ]),
            rows: rows.iter().map(|(n, p)| words(&[n, "9.30", p, "ADDM:1_1_2"])).collect(),
        });
        made.interval()
    }

    fn passed_on(of: &Interval) -> Vec<Finding> {
        findings(of).into_iter().filter(|finding| finding.name.starts_with(NAME)).collect()
    }

    #[test]
    fn what_no_rule_is_about_is_passed_on_with_addms_figures_and_once() {
        let rows = [("Soft Parse", "7.96"), ("Soft Parse", "9.10"), ("Nothing Known", "3.00")];
        let found = passed_on(&with_addm(minute(), &rows));
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].name, "Oracle's ADDM found: Soft Parse");
        assert_eq!(found[0].impact_percent, Some(9.1));
        assert!(found[0].evidence[0].contains("ADDM:1_1_2"), "{found:?}");
        assert!(found[0].advice.contains("session_cached_cursors"), "{found:?}");
        assert!(found[1].advice.contains("addmrpt.sql"), "{found:?}");
        assert_eq!(passed_on(&with_addm(minute(), &[])), []);
    }

    #[test]
    fn a_share_that_is_no_number_is_none_and_of_many_findings_the_largest_are_listed() {
        let rows = [("Soft Parse", "NaN"), ("Row Lock Waits", "inf"), ("Undo I/O", "3.00")];
        let found = passed_on(&with_addm(minute(), &rows));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].name, "Oracle's ADDM found: Undo I/O");
        let names: Vec<String> = (0..3_000).map(|at| format!("Name {at}")).collect();
        let shares: Vec<String> = (0..3_000).map(|at| format!("{}.5", at % 90)).collect();
        let rows: Vec<(&str, &str)> =
            names.iter().zip(&shares).map(|(n, s)| (n.as_str(), s.as_str())).collect();
        let found = passed_on(&with_addm(minute(), &rows[..100]));
        assert_eq!(found.len(), MOST + 1, "{found:?}");
        assert_eq!(found[0].impact_percent, Some(89.5));
        assert!(found[MOST].evidence[0].starts_with("80 more of its findings"), "{found:?}");
        assert!(found[MOST].evidence[0].contains("at most 69.5 %"), "{found:?}");
        assert_eq!(passed_on(&with_addm(minute(), &rows)).len(), MOST + 1);
        assert_eq!(passed_on(&with_addm(minute(), &rows[..MOST])).len(), MOST);
    }

    #[test]
    fn what_a_rule_is_about_is_not_said_again() {
        let made = || {
            minute()
                .wait("enq: TX - row lock contention", WaitClass::Application, false, 10, 30)
                .wait("library cache lock", WaitClass::Concurrency, false, 10, 30)
                .wait("SQL*Net more data from client", WaitClass::Network, false, 10, 8)
                .wait("log file sync", WaitClass::Commit, false, 10, 12)
                .wait("direct path read", WaitClass::UserIo, false, 10, 14)
                .counter("time model: parse time elapsed", 30_000_000_000)
        };
        let rows = [
            ("Row Lock Waits", "30"),
            ("Unusual \"Application\" Wait Event", "30"),
            ("Shared Pool Latches", "30"),
            ("Hard Parse Due to Literal Usage", "20"),
            ("Commits and Rollbacks", "12"),
            ("Unusual \"Network\" Wait Event", "8"),
            ("\"User I/O\" wait Class", "14"),
            ("I/O Throughput", "14"),
        ];
        assert_eq!(passed_on(&with_addm(made(), &rows)), []);
        let more = with_addm(made(), &[("Table Locks", "3"), ("Sequence Usage", "4")]);
        assert_eq!(passed_on(&more).len(), 1, "{:?}", passed_on(&more));
        assert_eq!(passed_on(&with_addm(minute(), &rows)).len(), rows.len());
    }

    #[test]
    fn the_findings_that_the_list_names_exist() {
        let causes: Vec<&str> = CAUSES
            .iter()
            .flat_map(|(cause, follow)| follow.iter().chain([cause]))
            .copied()
            .collect();
        let groups = contention::GROUPS.map(|group| group.name);
        let others = [
            super::super::classes::NAME,
            super::super::connects::NAME,
            super::super::db_cpu::UNNAMED,
            "A few statements are",
            "Waits for free blocks",
            super::super::redo_space::NAME,
        ];
        let ours = KNOWN.iter().flat_map(|(_, ours, _)| ours.iter());
        for ours in ours.filter(|ours| **ours != USER_IO) {
            let known = causes.iter().chain(&groups).chain(&others);
            assert!(
                known.clone().any(|name| name.starts_with(ours) || ours.starts_with(name)),
                "{ours}"
            );
        }
    }
}

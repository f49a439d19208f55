//! Sorts, hashes and temporary tables do not fit into the memory that they may use.

use super::{Finding, is_oracle, of_db_time, setting, target};
use crate::{Interval, WaitDelta, figure};

/// Bytes a second of temporary files from which on it is worth saying.
const LEAST_BYTES_PER_S: f64 = 1_048_576.0;

/// Temporary tables a second that go to disk.
const LEAST_TABLES_PER_S: f64 = 10.0;

/// Share of DB time of waits for temporary files.
const LEAST_PERCENT: f64 = 5.0;

pub(super) const NAME: &str = "Sorts and hashes spill to files";

pub(super) fn find(of: &Interval) -> Option<Finding> {
    let per_second = |count: u64| count as f64 / of.elapsed_s();
    let mut evidence = Vec::new();
    if let Some(bytes) =
        of.counter("temporary files, size").filter(|bytes| per_second(*bytes) >= LEAST_BYTES_PER_S)
    {
        let files = of.counter("temporary files").unwrap_or(0);
        evidence.push(format!(
            "{} temporary files with {} in the interval, {} a second.",
            figure::count(files),
            figure::bytes(bytes as f64),
            figure::bytes(per_second(bytes))
        ));
    }
    if let Some(tables) = of
        .counter("temporary tables on disk")
        .filter(|tables| per_second(*tables) >= LEAST_TABLES_PER_S)
    {
        evidence.push(format!(
            "{} temporary tables went to disk, {} a second.",
            figure::count(tables),
            figure::number(per_second(tables))
        ));
    }
    let is_temporary =
        |wait: &&WaitDelta| wait.name.starts_with("direct path") && wait.name.ends_with(" temp");
    let ns = of
        .foreground()
        .into_iter()
        .filter(is_temporary)
        .fold(0u64, |sum, wait| sum.saturating_add(wait.total_ns));
    let percent = of_db_time(of, ns).filter(|percent| *percent > 0.0);
    if let Some(percent) = percent.filter(|percent| *percent >= LEAST_PERCENT) {
        evidence.push(format!(
            "Reads and writes of temporary files are {} % of DB time.",
            figure::percent(percent)
        ));
    }
    if evidence.is_empty() {
        return None;
    }
    if let Some(size) = setting(of, "work_mem") {
        evidence.push(format!("work_mem is {}.", figure::visible(size)));
    }
    let memory = match target(of) {
        Some("postgres") => {
            "Raise work_mem for the sessions that do it (SET work_mem; each sort and hash of each \
             session may use as much)"
        }
        Some("mariadb") => {
            "Raise tmp_table_size and max_heap_table_size together, and sort_buffer_size for the \
             sessions that sort"
        }
        _ if is_oracle(of) => "Raise pga_aggregate_target (see the report's PGA Memory Advisory)",
        _ => "Give sorts and hashes more memory",
    };
    Some(Finding {
        name: NAME.to_owned(),
        impact_percent: percent,
        evidence,
        advice: format!(
            "{memory}. Look at the statements that sort much first: an index in the order that is \
             asked for sorts nothing."
        ),
        tiersmith: None,
    })
}

#[cfg(test)]
mod tests {
    use tiersmith_events::WaitClass;

    use super::super::made::minute;
    use super::*;

    #[test]
    fn many_bytes_tables_or_waits_are_a_spill_and_few_are_not() {
        let files = |mib: u64| {
            find(
                &minute()
                    .counter("temporary files", 30)
                    .counter("temporary files, size", mib << 20)
                    .interval(),
            )
        };
        assert!(
            files(6_000)
                .is_some_and(|found| found.evidence[0].contains("30 temporary files with 5.9 GiB"))
        );
        assert_eq!(files(6), None);
        let tables = |count| find(&minute().counter("temporary tables on disk", count).interval());
        assert!(tables(6_000).is_some() && tables(60).is_none());
        let waits = |seconds| {
            find(
                &minute()
                    .wait("direct path write temp", WaitClass::UserIo, false, 10, seconds)
                    .interval(),
            )
        };
        assert_eq!(waits(30).and_then(|found| found.impact_percent), Some(30.0));
        assert_eq!(waits(4), None);
    }
}

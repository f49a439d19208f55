//! SLOB's statements as SQL, the same for every server that speaks it, and which of them a
//! connection has prepared.
//!
//! **Invariant**: a transaction of one server is that of another, but for the marks of its
//! parameters.
//! **Deliberately absent**: loading, which differs by product.

use tiersmith_awr::WaitStat;
use tiersmith_awr::events::WaitClass;

/// A statement, prepared once per schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Counts a range by index, each row fetched.
    Select,
    /// Counts the scan table.
    Scan,
    /// Changes two columns of a range.
    Lite,
    /// Changes nineteen columns of a range.
    Heavy,
}

/// How a product marks the parameters of a statement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks {
    pub(super) after: &'static str,
    pub(super) before: &'static str,
    pub(super) value: &'static str,
}

impl Kind {
    pub(super) fn of_update(is_heavy: bool) -> Kind {
        if is_heavy { Kind::Heavy } else { Kind::Lite }
    }

    /// Columns that are set.
    pub(super) fn columns(self) -> Vec<u32> {
        match self {
            Kind::Select | Kind::Scan => Vec::new(),
            Kind::Lite => vec![2, 20],
            Kind::Heavy => (2..=20).collect(),
        }
    }

    /// Its text for a schema.
    pub(super) fn text(self, schema: u32, marks: Marks) -> String {
        let user = format!("user{}", schema + 1);
        let range = format!("custid > {} AND custid < {}", marks.after, marks.before);
        match self {
            Kind::Select => format!("SELECT COUNT(c2) FROM {user}.cf1 WHERE {range}"),
            Kind::Scan => format!("SELECT COUNT(c2) FROM {user}.cf2"),
            Kind::Lite | Kind::Heavy => {
                let set: Vec<String> =
                    self.columns().iter().map(|n| format!("c{n} = {}", marks.value)).collect();
                format!("UPDATE {user}.cf1 SET {} WHERE {range}", set.join(", "))
            }
        }
    }
}

/// What a connection has prepared.
#[derive(Debug)]
pub(super) struct Prepared<S>(Vec<((Kind, u32), S)>);

impl<S: Clone> Prepared<S> {
    pub(super) fn new() -> Prepared<S> {
        Prepared(Vec::new())
    }

    /// The statement, prepared now if it was not.
    pub(super) fn get<E>(
        &mut self,
        kind: Kind,
        schema: u32,
        prepare: impl FnOnce() -> Result<S, E>,
    ) -> Result<S, E> {
        if let Some((_, statement)) = self.0.iter().find(|(key, _)| *key == (kind, schema)) {
            return Ok(statement.clone());
        }
        let statement = prepare()?;
        self.0.push(((kind, schema), statement.clone()));
        Ok(statement)
    }
}

/// A sync of redo, as the workload repository's own sources call it: its findings look for that
/// name.
pub(crate) const REDO_SYNC: &str = "redo sync";

/// A wait event that a server counted itself.
pub(super) fn wait(name: &str, count: u64, total_ns: u64, bytes: u64, help: &str) -> WaitStat {
    WaitStat {
        name: name.into(),
        class: WaitClass::Commit,
        background: true,
        help: help.into(),
        count,
        total_ns,
        max_ns: 0,
        bytes,
        buckets: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Result;

    #[test]
    fn a_heavy_update_sets_nineteen_columns_and_a_statement_is_prepared_once() {
        let marks = Marks { after: "?", before: "?", value: "?" };
        let heavy = Kind::of_update(true).text(0, marks);
        assert_eq!(heavy.matches('?').count(), 21);
        assert!(
            heavy.starts_with("UPDATE user1.cf1 SET c2 = ?, c3 = ?")
                && heavy.contains("c20 = ? WHERE")
        );
        assert_eq!(Kind::of_update(false).text(1, marks).matches('?').count(), 4);
        let mut prepared = Prepared::new();
        let mut get = |kind, schema, n: u32| {
            prepared.get(kind, schema, || Ok::<u32, ()>(n)).unwrap_or_default()
        };
        assert_eq!(
            [get(Kind::Scan, 0, 1), get(Kind::Scan, 1, 2), get(Kind::Scan, 0, 3)],
            [1, 2, 1]
        );
    }

    /// A server that has synced its redo so often, 10 ms each time.
    struct Told {
        syncs: u64,
    }

    impl super::super::Client for Told {
        fn table(&mut self, statement: &str) -> Result<Vec<Vec<String>>> {
            let (syncs, ns) = (self.syncs, self.syncs * 10_000_000);
            let row: &[u64] = match statement {
                of if of.contains("pg_stat_wal") => &[syncs, syncs, ns, ns, 0, 0, 0, 0],
                of if of.contains("file_summary_by_event_name") => &[syncs, ns, syncs, ns, 0],
                of if of.contains("pg_stat_database") => &[0, 0],
                _ => return Ok(Vec::new()),
            };
            Ok(vec![row.iter().map(u64::to_string).collect()])
        }
        fn ping(&mut self) -> Result<()> {
            unreachable!()
        }
        fn batch(&mut self, _: &str) -> Result<()> {
            unreachable!()
        }
        fn load(&mut self, _: &super::super::client::Rows) -> Result<()> {
            unreachable!()
        }
        fn count(&mut self, _: u32, _: u64) -> Result<u64> {
            unreachable!()
        }
        fn select(&mut self, _: super::super::Range) -> Result<u64> {
            unreachable!()
        }
        fn scan(&mut self, _: u32) -> Result<u64> {
            unreachable!()
        }
        fn update(
            &mut self,
            _: super::super::Range,
            _: &str,
            _: bool,
        ) -> Result<std::result::Result<u64, super::super::Deadlock>> {
            unreachable!()
        }
        fn commit(&mut self) -> Result<()> {
            unreachable!()
        }
    }

    #[test]
    fn slow_redo_is_found_in_the_snapshots_of_a_study_of_each_server_that_times_it() {
        use tiersmith_awr::{Interval, Snapshot, Source, findings::findings};
        for name in ["postgres", "mariadb"] {
            let product = super::super::products().iter().find(|product| product.name() == name);
            let product = product.expect("it is a product");
            let snapshot = |second: u64, syncs| {
                let ns = second * 1_000_000_000;
                let mut snapshot = Snapshot::at(Source::default(), ns, ns);
                product.figures(&mut Told { syncs }, &mut snapshot).expect("it is told");
                snapshot
            };
            let interval =
                Interval::between(&snapshot(1, 1), &snapshot(61, 1001)).expect("one interval");
            let found = findings(&interval);
            let slow = found.iter().find(|found| found.name == "Redo is slow to become durable");
            let slow = slow.unwrap_or_else(|| panic!("{name}: {found:?}"));
            assert!(slow.evidence[0].contains("1,000 syncs of redo took 10.0"), "{name}: {slow:?}");
        }
    }
}

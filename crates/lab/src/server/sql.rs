//! SLOB's statements as SQL, the same for every server that speaks it, and which of them a connection has prepared.
//!
//! **Invariant**: a transaction of one server is that of another, but for the marks of its parameters.
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

    #[test]
    fn a_heavy_update_sets_nineteen_columns_and_a_statement_is_prepared_once() {
        let marks = Marks { after: "?", before: "?", value: "?" };
        let heavy = Kind::of_update(true).text(0, marks);
        assert_eq!(heavy.matches('?').count(), 21);
        assert!(heavy.starts_with("UPDATE user1.cf1 SET c2 = ?, c3 = ?") && heavy.contains("c20 = ? WHERE"));
        assert_eq!(Kind::of_update(false).text(1, marks).matches('?').count(), 4);
        let mut prepared = Prepared::new();
        let mut get =
            |kind, schema, n: u32| prepared.get(kind, schema, || Ok::<u32, ()>(n)).unwrap_or_default();
        assert_eq!([get(Kind::Scan, 0, 1), get(Kind::Scan, 1, 2), get(Kind::Scan, 0, 3)], [1, 2, 1]);
    }
}

//! A connection whose statements are timed and counted as those of every other load.
//!
//! **Invariant**: a query is a SELECT, a change an UPDATE, whatever their texts say; so DB time
//! means the same under every load.

use tiersmith_awr::events::Recorder;

use crate::session::{CALLS, COMMIT, COMMITS, EXECUTES, ROWS, SELECT, UPDATE};
use crate::sql::{Outcome, Row, Sql, Value};

/// The connection and what is written down.
pub(in crate::target) struct Timed<'a> {
    sql: &'a mut dyn Sql,
    recorder: &'a Recorder,
    writes: bool,
}

impl<'a> Timed<'a> {
    /// Begins a transaction.
    ///
    /// # Errors
    /// [`crate::sql::Broken`].
    pub(in crate::target) fn begin(
        sql: &'a mut dyn Sql,
        recorder: &'a Recorder,
        writes: bool,
    ) -> Outcome<Timed<'a>> {
        let start = recorder.start();
        sql.begin(writes)?;
        let _ = recorder.record(if writes { UPDATE } else { SELECT }, start);
        recorder.count(CALLS, 1);
        Ok(Timed { sql, recorder, writes })
    }

    /// For statements that are each a transaction of its own.
    pub(in crate::target) fn alone(sql: &'a mut dyn Sql, recorder: &'a Recorder) -> Timed<'a> {
        Timed { sql, recorder, writes: false }
    }

    /// Every row that a statement finds.
    ///
    /// # Errors
    /// [`crate::sql::Broken`].
    pub(in crate::target) fn rows(
        &mut self,
        statement: &str,
        values: &[Value],
    ) -> Outcome<Vec<Row>> {
        let start = self.recorder.start();
        let rows = self.sql.rows(statement, values)?;
        let _ = self.recorder.record(SELECT, start);
        self.counted(rows.len() as u64);
        Ok(rows)
    }

    /// Changes rows; how many.
    ///
    /// # Errors
    /// [`crate::sql::Broken`].
    pub(in crate::target) fn change(&mut self, statement: &str, values: &[Value]) -> Outcome<u64> {
        let start = self.recorder.start();
        let rows = self.sql.change(statement, values)?;
        let _ = self.recorder.record(UPDATE, start);
        self.counted(rows);
        Ok(rows)
    }

    fn counted(&self, rows: u64) {
        self.recorder.count(ROWS, rows);
        self.recorder.count(CALLS, 1);
        self.recorder.count(EXECUTES, 1);
    }

    /// Commits.
    ///
    /// # Errors
    /// [`crate::sql::Broken`].
    ///
    /// # Durability
    /// What was written is durable when this returns, as the database is set.
    pub(in crate::target) fn commit(self) -> Outcome<()> {
        let start = self.recorder.start();
        self.sql.commit()?;
        // The end of a transaction that only read waits for nothing.
        let _ = self.recorder.record(if self.writes { COMMIT } else { SELECT }, start);
        self.recorder.count(CALLS, 1);
        self.recorder.count(COMMITS, u64::from(self.writes));
        Ok(())
    }

    /// Takes back what the transaction wrote.
    ///
    /// # Errors
    /// What the database says.
    pub(in crate::target) fn rollback(self) -> Outcome<()> {
        let start = self.recorder.start();
        self.sql.rollback()?;
        let _ = self.recorder.record(UPDATE, start);
        self.recorder.count(CALLS, 1);
        Ok(())
    }
}

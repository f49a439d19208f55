//! SAP's client copy and client delete in SQL.
//!
//! What comes next is said by [`crate::workload::clients`].
//!
//! **Invariant**: after a run client 0 has every row that it was loaded with, and every row of
//! another client equals one of client 0.

use std::path::Path;
use std::time::{Duration, Instant};

use tiersmith_awr::events::{EventDef, EventId, Recorder, wait_events};

use super::transactions::{Timed, Transactional, Transactions};
use crate::error::{Error, Result};
use crate::sql::{self, Outcome, Row, Sql, Table, Value};
use crate::workload::clients::{Job, Part, Plan, Settings};

wait_events! {
    /// Parts and whole jobs, from their first beginning to their end.
    pub(super) const JOBS;
    /// Rows of one table are read and inserted for another client.
    COPY_PART = "Copy of rows", Other;
    /// Rows of one table are deleted.
    DELETE_PART = "Delete of rows", Other;
    /// Every row of every table was copied, the application's time included.
    COPIED = "Client copied", Other;
    /// Every row of every table was deleted, the application's time included.
    DELETED = "Client deleted", Other;
}

/// Rows between two looks at the progress.
const STEP: u64 = 4096;
/// The client that is copied.
const SOURCE: i64 = 0;
/// The first client of the copies.
const FIRST_COPY: i64 = 100;

/// The load.
#[derive(Debug)]
pub(super) struct ClientCopy {
    /// The tables and the job.
    pub settings: Settings,
    /// Rows of client 0 in each table.
    pub rows: u64,
    /// Bytes of everything when all clients are copied, about.
    pub bytes: u64,
}

fn name(table: u32) -> String {
    format!("sap{:03}", table + 1)
}

/// The statements for one table.
#[derive(Debug)]
struct Texts {
    select: String,
    insert: String,
    delete: String,
}

impl Texts {
    fn of(table: u32) -> Texts {
        let name = name(table);
        Texts {
            select: format!("SELECT id, text FROM {name} WHERE mandt = ? AND id >= ? AND id < ?"),
            insert: format!("INSERT INTO {name} (mandt, id, text) VALUES (?, ?, ?)"),
            delete: format!("DELETE FROM {name} WHERE mandt = ? AND id >= ? AND id < ?"),
        }
    }
}

impl Transactional for ClientCopy {
    fn kinds(&self) -> &'static [EventDef] {
        JOBS
    }

    fn tables(&self) -> Vec<Table> {
        let columns = |n| {
            let width = self.settings.width(n);
            format!(
                "mandt BIGINT, id BIGINT, text VARCHAR({width}) NOT NULL, PRIMARY KEY (mandt, id)"
            )
        };
        (0..self.settings.tables).map(|n| Table::new(name(n), columns(n), 3, &[])).collect()
    }

    fn fill(&self, sql: &mut dyn Sql, seed: u64, progress: &dyn Fn(f64) -> bool) -> Result<()> {
        let tables = self.tables();
        sql::make(sql, &tables)?;
        let mut random = fastrand::Rng::with_seed(seed ^ 0x7361_7000);
        for (n, table) in (0..).zip(&tables) {
            let width = self.settings.width(n) as usize;
            let mut row = |id: u64| {
                let text: String = (0..width).map(|_| random.lowercase()).collect();
                let id = i64::try_from(id).unwrap_or(i64::MAX);
                Row(vec![Value::Int(SOURCE), Value::Int(id), Value::Text(text)])
            };
            for first in (0..self.rows).step_by(STEP as usize) {
                sql.fill(table, &mut (first..(first + STEP).min(self.rows)).map(&mut row))?;
            }
            if !progress(0.9 * f64::from(n + 1) / f64::from(self.settings.tables)) {
                return Err(Error::Interrupted);
            }
        }
        sql::finish(sql, &tables)
    }

    fn client<'a>(&'a self, _: u64, number: u32) -> Box<dyn Transactions + 'a> {
        let plan = Plan::new(&self.settings, self.rows);
        let next = plan.clone().draw();
        Box::new(Copier {
            settings: &self.settings,
            texts: (0..self.settings.tables).map(Texts::of).collect(),
            client: FIRST_COPY + i64::from(number),
            plan,
            next,
            job_began: None,
        })
    }

    fn check(&self, sql: &mut dyn Sql, database: &Path) -> Result<()> {
        let unsound = |reason: String| Err(Error::Unsound { database: database.into(), reason });
        for n in 0..self.settings.tables {
            let name = name(n);
            let mut count = |rest: &str| -> Result<u64> {
                let rows = sql.table(&format!("SELECT COUNT(*) FROM {name} a WHERE {rest}"))?;
                Ok(rows.first().and_then(|row| row.first()?.parse().ok()).unwrap_or(0))
            };
            let source = count(&format!("mandt = {SOURCE}"))?;
            if source != self.rows {
                return unsound(format!(
                    "client {SOURCE} had {} rows in {name}, and has {source}",
                    self.rows
                ));
            }
            let other = count(&format!(
                "mandt <> {SOURCE} AND NOT EXISTS (SELECT 1 FROM {name} b WHERE b.mandt = {SOURCE} \
                 AND b.id = a.id AND b.text = a.text)"
            ))?;
            if other > 0 {
                return unsound(format!("{other} rows of copies in {name} are no copies"));
            }
        }
        Ok(())
    }

    fn describe(&self, clients: u32) -> String {
        let share = self.settings.application_pct;
        let share =
            if share > 0 { format!(", application {share} % of the time") } else { String::new() };
        format!(
            "{} tables with {} rows of a client, {} rows at once{share}, {clients} at a time",
            self.settings.tables, self.rows, self.settings.rows_at_once
        )
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Copies client 0 into a client of its own and deletes that one.
struct Copier<'a> {
    settings: &'a Settings,
    texts: Vec<Texts>,
    client: i64,
    plan: Plan,
    next: Part,
    /// When the job that runs began.
    job_began: Option<Instant>,
}

impl Transactions for Copier<'_> {
    fn draw(&mut self) {
        self.next = self.plan.draw();
        self.job_began.get_or_insert_with(Instant::now);
    }

    fn attempt(&mut self, sql: &mut dyn Sql, statements: &Recorder) -> Outcome<EventId> {
        let Part { job, table, from, to, .. } = self.next;
        let failed = |reason: String| Error::Target {
            what: "copying a client".into(),
            database: name(table).into(),
            reason,
        };
        let Some(texts) = self.texts.get(table as usize) else {
            return Err(failed("there is no such table".into()).into());
        };
        let (client, from_id, to_id) = (Value::Int(self.client), Value::Int(from), Value::Int(to));
        let mut sql = Timed::begin(sql, statements, true)?;
        let expected = u64::try_from(to - from).unwrap_or(0);
        let (done, kind) = match job {
            Job::Copy => {
                let found = sql.rows(&texts.select, &[Value::Int(SOURCE), from_id, to_id])?;
                let count = found.len() as u64;
                for Row(row) in found {
                    let values: Vec<Value> = std::iter::once(client.clone()).chain(row).collect();
                    sql.change(&texts.insert, &values)?;
                }
                (count, COPY_PART)
            }
            Job::Delete => (sql.change(&texts.delete, &[client, from_id, to_id])?, DELETE_PART),
        };
        if done != expected {
            let reason = format!("rows {from} to {to} were {done}, where {expected} must be");
            return Err(failed(reason).into());
        }
        sql.commit()?;
        Ok(kind)
    }

    fn done(&mut self, took: Duration, kinds: &Recorder) -> Option<Duration> {
        let application = self.settings.application(took);
        if self.next.is_last
            && let Some(began) = self.job_began.take()
        {
            let job = began.elapsed() + application.unwrap_or_default();
            let event = if self.next.job == Job::Copy { COPIED } else { DELETED };
            kinds.record_ns(event, u64::try_from(job.as_nanos()).unwrap_or(u64::MAX), 0);
        }
        application
    }
}

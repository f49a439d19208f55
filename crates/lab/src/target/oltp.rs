//! Transactions like those of sysbench's OLTP scripts in SQL.
//!
//! What comes next is said by [`crate::workload::oltp`].
//!
//! **Invariant**: after a run each table has every row that it was loaded with, and no other.

use std::path::Path;
use std::time::Duration;

use tiersmith_awr::events::{EventDef, EventId, Recorder, wait_events};

use super::transactions::{Timed, Transactional, Transactions};
use crate::error::{Error, Result};
use crate::sql::{self, Broken, Outcome, Row, Sql, Table, Value, row};
use crate::workload::oltp::{Kind, Plan, RANGE, Settings, Transaction, letters};

wait_events! {
    /// Whole transactions, from their first beginning to their end.
    pub(super) const TRANSACTIONS;
    /// It only reads.
    READ_ONLY = "Read only", Other;
    /// It reads and writes.
    READ_WRITE = "Read and write", Other;
    /// It only writes.
    WRITE_ONLY = "Write only", Other;
}

/// Rows between two looks at the progress.
const STEP: u64 = 8192;
/// Groups of digits in the two columns of letters.
const GROUPS: (usize, usize) = (10, 5);

/// A load of one kind.
#[derive(Debug)]
pub(super) struct OltpLoad {
    /// What a transaction does.
    pub kind: Kind,
    /// The tables.
    pub settings: Settings,
    /// Rows of each.
    pub table_rows: u64,
}

fn name(table: u32) -> String {
    format!("sbtest{}", table + 1)
}

/// The statements for one table.
#[derive(Debug)]
struct Texts {
    point: String,
    ranges: [String; 4],
    number: String,
    letters: String,
    delete: String,
    insert: String,
}

impl Texts {
    fn of(table: u32) -> Texts {
        let name = name(table);
        let range = |what: &str, rest: &str| {
            format!("SELECT {what} FROM {name} WHERE id BETWEEN ? AND ?{rest}")
        };
        Texts {
            point: format!("SELECT c FROM {name} WHERE id = ?"),
            ranges: [
                range("c", ""),
                range("SUM(k)", ""),
                range("c", " ORDER BY c"),
                range("DISTINCT c", " ORDER BY c"),
            ],
            number: format!("UPDATE {name} SET k = k + 1 WHERE id = ?"),
            letters: format!("UPDATE {name} SET c = ? WHERE id = ?"),
            delete: format!("DELETE FROM {name} WHERE id = ?"),
            insert: format!("INSERT INTO {name} (id, k, c, pad) VALUES (?, ?, ?, ?)"),
        }
    }
}

impl Transactional for OltpLoad {
    fn kinds(&self) -> &'static [EventDef] {
        TRANSACTIONS
    }

    fn tables(&self) -> Vec<Table> {
        let columns = "id BIGINT PRIMARY KEY, k BIGINT NOT NULL, c VARCHAR(120) NOT NULL, \
                       pad VARCHAR(60) NOT NULL";
        (0..self.settings.tables).map(|n| Table::new(name(n), columns, 4, &[("k", "k")])).collect()
    }

    fn fill(&self, sql: &mut dyn Sql, seed: u64, progress: &dyn Fn(f64) -> bool) -> Result<()> {
        let tables = self.tables();
        sql::make(sql, &tables)?;
        let mut random = fastrand::Rng::with_seed(seed ^ 0x6f6c_7470);
        let mut row = |id: u64| -> Row {
            let number = random.u64(1..=self.table_rows);
            let text = random.u64(..);
            row![
                i64::try_from(id).unwrap_or(i64::MAX),
                i64::try_from(number).unwrap_or(i64::MAX),
                letters(text, GROUPS.0),
                letters(text ^ 1, GROUPS.1)
            ]
        };
        let all = (self.table_rows * u64::from(self.settings.tables)) as f64;
        let mut done = 0;
        for table in &tables {
            for first in (1..=self.table_rows).step_by(STEP as usize) {
                let ids = first..(first + STEP).min(self.table_rows + 1);
                done += ids.end - ids.start;
                sql.fill(table, &mut ids.map(&mut row))?;
                if !progress(0.9 * done as f64 / all) {
                    return Err(Error::Interrupted);
                }
            }
        }
        sql::finish(sql, &tables)
    }

    fn client<'a>(&'a self, seed: u64, number: u32) -> Box<dyn Transactions + 'a> {
        let mut plan = Plan::new(&self.settings, self.table_rows, seed, number);
        let next = plan.draw();
        let texts = (0..self.settings.tables).map(Texts::of).collect();
        Box::new(OltpClient { kind: self.kind, plan, texts, next })
    }

    fn check(&self, sql: &mut dyn Sql, database: &Path) -> Result<()> {
        for n in 0..self.settings.tables {
            let name = name(n);
            let found = sql.table(&format!("SELECT COUNT(*), MIN(id), MAX(id) FROM {name}"))?;
            let found = found.into_iter().next().unwrap_or_default();
            let rows = self.table_rows.to_string();
            if found != [rows.as_str(), "1", rows.as_str()] {
                let reason = format!(
                    "{name} was loaded with the rows 1 to {rows}; number, first and last \
                                      are {} after the run",
                    found.join(", ")
                );
                return Err(Error::Unsound { database: database.into(), reason });
            }
        }
        Ok(())
    }

    fn describe(&self, clients: u32) -> String {
        let buffer = self.settings.buffer_pct;
        let buffer = buffer.map(|pct| format!(", page cache {pct} % of them")).unwrap_or_default();
        format!(
            "{} tables of {} rows{buffer}, {clients} client{}",
            self.settings.tables,
            self.table_rows,
            if clients == 1 { "" } else { "s" }
        )
    }

    fn bytes(&self) -> u64 {
        self.settings.bytes(self.table_rows)
    }
}

struct OltpClient {
    kind: Kind,
    plan: Plan,
    texts: Vec<Texts>,
    next: Transaction,
}

impl OltpClient {
    fn read(&self, sql: &mut Timed<'_>, texts: &Texts) -> Outcome<()> {
        for id in self.next.points {
            sql.rows(&texts.point, &[Value::Int(id)])?;
        }
        let last = i64::try_from(RANGE).unwrap_or(0) - 1;
        for (statement, first) in texts.ranges.iter().zip(self.next.ranges) {
            sql.rows(statement, &[Value::Int(first), Value::Int(first + last)])?;
        }
        Ok(())
    }

    fn write(&self, sql: &mut Timed<'_>, texts: &Texts) -> Outcome<()> {
        let [number, changed, again] = self.next.changed.map(Value::Int);
        sql.change(&texts.number, &[number])?;
        let text = letters(self.next.letters, GROUPS.0);
        sql.change(&texts.letters, &[Value::Text(text.clone()), changed])?;
        if sql.change(&texts.delete, std::slice::from_ref(&again))? != 1 {
            // Another client has removed it and not put it in again as far as this one can see.
            return Err(Broken::Again);
        }
        let pad = letters(self.next.letters ^ 1, GROUPS.1);
        let values = [again, Value::Int(self.next.number), Value::Text(text), Value::Text(pad)];
        sql.change(&texts.insert, &values).map(drop)
    }
}

impl Transactions for OltpClient {
    fn draw(&mut self) {
        self.next = self.plan.draw();
    }

    fn attempt(&mut self, sql: &mut dyn Sql, statements: &Recorder) -> Outcome<EventId> {
        let Some(texts) = self.texts.get(self.next.table as usize) else {
            return Err(Broken::Again);
        };
        let mut sql = Timed::begin(sql, statements, self.kind.writes())?;
        if self.kind.reads() {
            self.read(&mut sql, texts)?;
        }
        if self.kind.writes() {
            self.write(&mut sql, texts)?;
        }
        sql.commit()?;
        Ok(match self.kind {
            Kind::ReadOnly => READ_ONLY,
            Kind::ReadWrite => READ_WRITE,
            Kind::WriteOnly => WRITE_ONLY,
        })
    }

    fn done(&mut self, _: Duration, _: &Recorder) -> Option<Duration> {
        None
    }
}

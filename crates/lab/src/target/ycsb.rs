//! YCSB's operations in SQL: one table, a record a row, its key the primary key.
//!
//! What comes next is said by [`crate::workload::ycsb`]. Each operation is one transaction, as
//! YCSB's binding for SQL has it with autocommit.
//!
//! **Invariants**: a read that finds no record is an error, not a figure; after a run every record
//! that was loaded or acknowledged is there, and every field belongs to its record.

use std::path::Path;
use std::time::Duration;

use tiersmith_awr::events::{EventDef, EventId, Recorder, wait_events};

use super::transactions::{Timed, Transactional, Transactions};
use crate::error::{Error, Result};
use crate::sql::{self, Outcome, Row, Sql, Table, Value};
use crate::workload::ycsb::{KEY_MAX, Operation, Plan, Ycsb, key, value};

wait_events! {
    /// YCSB's operations, from their first beginning to their end.
    pub(super) const OPERATIONS;
    /// Every field of a record.
    READ = "Read", Other;
    /// One field of a record.
    UPDATE = "Update", Other;
    /// A record that was not there.
    INSERT = "Insert", Other;
    /// A short range of records.
    SCAN = "Scan", Other;
    /// A record is read and written back.
    READ_MODIFY_WRITE = "Read-Modify-Write", Other;
}

/// Records between two looks at the progress.
const STEP: u64 = 4096;
/// The table.
const NAME: &str = "usertable";

/// A load of one mix.
#[derive(Debug)]
pub(super) struct YcsbLoad(pub(super) Ycsb);

/// The statements of a load, which depend on the number of fields.
#[derive(Debug)]
struct Texts {
    read: String,
    insert: String,
    scan: String,
    updates: Vec<String>,
}

impl Texts {
    fn of(fields: u32) -> Texts {
        let names: Vec<String> = (0..fields).map(|n| format!("field{n}")).collect();
        let names = names.join(", ");
        let marks = vec!["?"; fields as usize + 1].join(", ");
        Texts {
            read: format!("SELECT {names} FROM {NAME} WHERE ycsb_key = ?"),
            insert: format!("INSERT INTO {NAME} (ycsb_key, {names}) VALUES ({marks})"),
            scan: format!(
                "SELECT ycsb_key, {names} FROM {NAME} WHERE ycsb_key >= ? ORDER BY ycsb_key LIMIT ?"
            ),
            updates: (0..fields)
                .map(|n| format!("UPDATE {NAME} SET field{n} = ? WHERE ycsb_key = ?"))
                .collect(),
        }
    }
}

impl Transactional for YcsbLoad {
    fn kinds(&self) -> &'static [EventDef] {
        OPERATIONS
    }

    fn tables(&self) -> Vec<Table> {
        let settings = &self.0.settings;
        let field = |n| format!("field{n} VARCHAR({}) NOT NULL", settings.field_bytes);
        let fields: Vec<String> = (0..settings.fields).map(field).collect();
        let columns =
            format!("ycsb_key VARCHAR({KEY_MAX}) NOT NULL PRIMARY KEY, {}", fields.join(", "));
        vec![Table::new(NAME, columns, settings.fields as usize + 1, &[])]
    }

    fn fill(&self, sql: &mut dyn Sql, seed: u64, progress: &dyn Fn(f64) -> bool) -> Result<()> {
        let (tables, settings) = (self.tables(), &self.0.settings);
        sql::make(sql, &tables)?;
        let mut random = fastrand::Rng::with_seed(seed ^ 0x7963_7362);
        let mut row = |record: u64| {
            let key = key(record);
            let fields = (0..settings.fields).map(|_| value(settings, &key, &mut random));
            Row(std::iter::once(key.clone()).chain(fields).map(Value::Text).collect())
        };
        for first in (0..self.0.records).step_by(STEP as usize) {
            let records = first..(first + STEP).min(self.0.records);
            sql.fill(&tables[0], &mut records.map(&mut row))?;
            if !progress(0.9 * first as f64 / self.0.records as f64) {
                return Err(Error::Interrupted);
            }
        }
        sql::finish(sql, &tables)
    }

    fn client<'a>(&'a self, seed: u64, number: u32) -> Box<dyn Transactions + 'a> {
        let plan = self.0.plan(seed, number);
        let texts = Texts::of(self.0.settings.fields);
        Box::new(YcsbClient {
            load: &self.0,
            plan,
            texts,
            next: Operation::Read(0),
            values: Vec::new(),
        })
    }

    fn check(&self, sql: &mut dyn Sql, database: &Path) -> Result<()> {
        let unsound = |reason: String| Err(Error::Unsound { database: database.into(), reason });
        let mut count = |query: String| -> Result<u64> {
            let rows = sql.table(&query)?;
            Ok(rows.first().and_then(|row| row.first()?.parse().ok()).unwrap_or(0))
        };
        let (there, expected) = (count(format!("SELECT COUNT(*) FROM {NAME}"))?, self.0.there());
        if there != expected {
            return unsound(format!("{expected} records must be there, and {there} are"));
        }
        for n in 0..self.0.settings.fields {
            let mixed = format!(
                "SELECT COUNT(*) FROM {NAME} WHERE substr(field{n}, 1, length(ycsb_key)) <> \
                 ycsb_key"
            );
            let mixed = count(mixed)?;
            if mixed > 0 {
                return unsound(format!("field{n} of {mixed} records belongs to another record"));
            }
        }
        Ok(())
    }

    fn describe(&self, clients: u32) -> String {
        let Ycsb { mix, settings, records, .. } = &self.0;
        format!(
            "mix {} of {records} records of {} fields of {} letters, {clients} client{}",
            mix.name(),
            settings.fields,
            settings.field_bytes,
            if clients == 1 { "" } else { "s" }
        )
    }

    fn bytes(&self) -> u64 {
        self.0.settings.bytes(self.0.records)
    }
}

struct YcsbClient<'a> {
    load: &'a Ycsb,
    plan: Plan<'a>,
    texts: Texts,
    next: Operation,
    /// What is written, so that a second try writes the same.
    values: Vec<Value>,
}

impl YcsbClient<'_> {
    fn read(&self, sql: &mut Timed<'_>, record: u64) -> Outcome<()> {
        let key = key(record);
        let found = sql.rows(&self.texts.read, &[Value::from(key.as_str())])?;
        if found.len() == 1 {
            return Ok(());
        }
        let reason = format!("{} records have the key {key}, where one must be", found.len());
        Err(Error::Target { what: "reading a record".into(), database: NAME.into(), reason }.into())
    }

    fn write(&self, sql: &mut Timed<'_>, field: u32) -> Outcome<()> {
        let changed = match self.texts.updates.get(field as usize) {
            Some(statement) => sql.change(statement, &self.values)?,
            None => 0,
        };
        if changed == 1 {
            return Ok(());
        }
        let reason = format!("{changed} records were changed, where one must be");
        Err(Error::Target { what: "changing a record".into(), database: NAME.into(), reason }
            .into())
    }
}

impl Transactions for YcsbClient<'_> {
    fn draw(&mut self) {
        self.next = self.plan.draw();
        self.values.clear();
        match self.next {
            Operation::Update { record, .. } | Operation::ReadModifyWrite { record, .. } => {
                let key = key(record);
                self.values.push(Value::Text(self.plan.value(&key)));
                self.values.push(Value::Text(key));
            }
            Operation::Insert(record) => {
                let key = key(record);
                self.values.push(Value::from(key.as_str()));
                for _ in 0..self.load.settings.fields {
                    self.values.push(Value::Text(self.plan.value(&key)));
                }
            }
            Operation::Read(_) | Operation::Scan { .. } => {}
        }
    }

    fn attempt(&mut self, sql: &mut dyn Sql, statements: &Recorder) -> Outcome<EventId> {
        let writes = !matches!(self.next, Operation::Read(_) | Operation::Scan { .. });
        let mut sql = Timed::begin(sql, statements, writes)?;
        let kind = match self.next {
            Operation::Read(record) => self.read(&mut sql, record).map(|()| READ)?,
            Operation::Update { field, .. } => self.write(&mut sql, field).map(|()| UPDATE)?,
            Operation::Insert(_) => sql.change(&self.texts.insert, &self.values).map(|_| INSERT)?,
            Operation::Scan { record, count } => {
                let values = [Value::Text(key(record)), Value::from(count)];
                sql.rows(&self.texts.scan, &values).map(|_| SCAN)?
            }
            Operation::ReadModifyWrite { record, field } => {
                self.read(&mut sql, record)?;
                self.write(&mut sql, field).map(|()| READ_MODIFY_WRITE)?
            }
        };
        sql.commit()?;
        Ok(kind)
    }

    fn done(&mut self, _: Duration, _: &Recorder) -> Option<Duration> {
        if let Operation::Insert(record) = self.next {
            self.load.acknowledged(record);
        }
        None
    }
}

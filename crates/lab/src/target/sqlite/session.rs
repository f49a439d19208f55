//! A session: one thread's connections, statements prepared once, each call timed.
//!
//! **Invariants**: an update is one transaction, committed before the next operation; what waits
//! for a lock is a wait event, and its time is part of the statement's.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use tiersmith_awr::events::{Recorder, Registry};

use super::{SqliteTarget, failed};
use crate::error::{Error, Result};
use crate::target::{
    CALLS, COMMIT, COMMITS, DATABASE_LOCK, EXECUTES, ROWS, SCAN, SELECT, Session, UPDATE, Work,
    thread_cpu_ns,
};
use crate::workload::Operation;
use crate::workload::slob::RedoStress;

const SELECT_SQL: &str = "SELECT COUNT(c2) FROM cf1 WHERE custid > ?1 AND custid < ?2";
const SCAN_SQL: &str = "SELECT COUNT(c2) FROM cf2";
const LITE_SQL: &str = "UPDATE cf1 SET c2 = ?3, c20 = ?3 WHERE custid > ?1 AND custid < ?2";

/// How long a session waits for another's lock before the run is given up.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);
/// The first sleep of a wait for a lock, and the longest.
const LOCK_SLEEP: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(2));
/// How often the thread's processor time is told.
const CPU_EVERY: Duration = Duration::from_millis(1);

pub(super) struct SqliteSession<'a> {
    target: &'a SqliteTarget,
    work: &'a Work,
    number: usize,
    recorder: Recorder,
    /// By schema; others than its own are opened when the hot schema is visited.
    connections: HashMap<u32, Connection>,
    heavy_sql: String,
    /// What an update writes: a key that changes, then letters.
    value: String,
    updates: u64,
    cpu_at_start_ns: u64,
    cpu_told: Instant,
}

/// Makes a connection wait for another's lock, and tell how long it did.
pub(super) fn wait_for_locks(
    connection: &mut Connection,
    waits: Registry,
    path: &Path,
) -> Result<()> {
    let mut began = Instant::now();
    let wait = move |tries: i32| {
        if tries == 0 {
            began = Instant::now();
        }
        let start = waits.start();
        let sleep = LOCK_SLEEP.0 * 2u32.saturating_pow(tries.clamp(0, 16) as u32);
        std::thread::sleep(sleep.min(LOCK_SLEEP.1));
        let _ = waits.record(DATABASE_LOCK, start);
        began.elapsed() < LOCK_PATIENCE
    };
    connection.busy_handler(Some(wait)).map_err(failed("setting the busy handler", path))
}

impl<'a> SqliteSession<'a> {
    pub(super) fn open(
        target: &'a SqliteTarget,
        work: &'a Work,
        number: usize,
        schema: u32,
    ) -> Result<Self> {
        let columns: Vec<String> = (2..=20).map(|n| format!("c{n} = ?3")).collect();
        let width = super::load::column_bytes(target.case.sqlite.page_size);
        let mut session = SqliteSession {
            target,
            work,
            number,
            recorder: work.statements.recorder(),
            connections: HashMap::new(),
            heavy_sql: format!(
                "UPDATE cf1 SET {} WHERE custid > ?1 AND custid < ?2",
                columns.join(", ")
            ),
            value: "u".repeat(width),
            updates: 0,
            cpu_at_start_ns: thread_cpu_ns(),
            cpu_told: Instant::now(),
        };
        session.connect(schema)?;
        Ok(session)
    }

    fn path(&self, schema: u32) -> PathBuf {
        self.target.databases.get(schema as usize).map_or_else(PathBuf::new, |d| d.path.clone())
    }

    fn connect(&mut self, schema: u32) -> Result<()> {
        let database = self.target.databases.get(schema as usize).ok_or_else(|| Error::Target {
            what: format!("opening schema {}", schema + 1),
            database: PathBuf::new(),
            reason: "the run has fewer databases".into(),
        })?;
        let mut connection = database.connect(&self.target.case)?;
        wait_for_locks(&mut connection, self.work.client_waits.clone(), &database.path)?;
        self.connections.insert(schema, connection);
        Ok(())
    }

    fn next_value(&mut self) {
        self.updates += 1;
        let key = format!("{:08x}{:012x}", self.number, self.updates);
        let length = key.len().min(self.value.len());
        self.value.replace_range(..length, &key[..length]);
    }
}

impl Session for SqliteSession<'_> {
    fn run(&mut self, schema: u32, operation: Operation, redo: RedoStress) -> Result<()> {
        if !self.connections.contains_key(&schema) {
            self.connect(schema)?;
        }
        if let Operation::Update { .. } = operation {
            self.next_value();
        }
        let connection =
            self.connections.get(&schema).expect("BUG: a schema's connection was made above");
        let (recorder, value, heavy) = (&self.recorder, &self.value, &self.heavy_sql);
        let done = (|| -> rusqlite::Result<()> {
            match operation {
                Operation::Select { after, before } => {
                    let mut select = connection.prepare_cached(SELECT_SQL)?;
                    let start = recorder.start();
                    let rows: i64 = select.query_row(params![after, before], |row| row.get(0))?;
                    let _ = recorder.record(SELECT, start);
                    recorder.count(ROWS, rows as u64);
                    recorder.count(CALLS, 1);
                }
                Operation::Scan => {
                    let mut scan = connection.prepare_cached(SCAN_SQL)?;
                    let start = recorder.start();
                    let rows: i64 = scan.query_row([], |row| row.get(0))?;
                    let _ = recorder.record(SCAN, start);
                    recorder.count(ROWS, rows as u64);
                    recorder.count(CALLS, 1);
                }
                Operation::Update { after, before } => {
                    let sql = if redo == RedoStress::Heavy { heavy } else { LITE_SQL };
                    // IMMEDIATE: the lock is asked for once, at the beginning, where waiting for it
                    // is allowed.
                    let mut begin = connection.prepare_cached("BEGIN IMMEDIATE")?;
                    let mut update = connection.prepare_cached(sql)?;
                    let mut commit = connection.prepare_cached("COMMIT")?;
                    let start = recorder.start();
                    begin.execute([])?;
                    let rows = update.execute(params![after, before, value])?;
                    let start = recorder.record(UPDATE, start);
                    commit.execute([])?;
                    let _ = recorder.record(COMMIT, start);
                    recorder.count(ROWS, rows as u64);
                    recorder.count(CALLS, 3);
                    recorder.count(COMMITS, 1);
                }
            }
            recorder.count(EXECUTES, 1);
            Ok(())
        })();
        done.map_err(|e| failed("the load", &self.path(schema))(e))?;
        let now = Instant::now();
        if now - self.cpu_told >= CPU_EVERY {
            self.cpu_told = now;
            self.work.tell_cpu(self.number, self.cpu_at_start_ns);
        }
        Ok(())
    }
}

impl Drop for SqliteSession<'_> {
    fn drop(&mut self) {
        self.work.tell_cpu(self.number, self.cpu_at_start_ns);
    }
}

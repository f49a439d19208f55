//! A session of any server: a client's statements, each timed, tried again after a deadlock.
//!
//! **Invariants**: an update is one transaction, committed before the next operation; what a
//! deadlock cost is a wait event, and part of the statement's time.

use std::time::{Duration, Instant};

use tiersmith_awr::events::Recorder;

use super::{ServerTarget, width};
use crate::error::{Error, Result};
use crate::server::{Client, Range};
use crate::target::{
    CALLS, COMMIT, COMMITS, DATABASE_LOCK, EXECUTES, ROWS, SCAN, SELECT, Session, UPDATE, Work,
    thread_cpu_ns,
};
use crate::workload::Operation;
use crate::workload::slob::RedoStress;

/// How often a transaction is tried that deadlocks.
const TRIES: u32 = 1000;
/// How often the thread's processor time is told.
const CPU_EVERY: Duration = Duration::from_millis(1);
/// How often the server is told to add up what this session's process counted.
const FIGURES_EVERY: Duration = Duration::from_millis(100);

pub(super) struct ServerSession<'a> {
    client: Box<dyn Client>,
    work: &'a Work,
    recorder: Recorder,
    number: usize,
    commits_with_each_statement: bool,
    /// What an update writes: a key that changes, then letters.
    value: String,
    updates: u64,
    cpu_at_start_ns: u64,
    cpu_told: Instant,
    figures_told: Instant,
}

impl<'a> ServerSession<'a> {
    pub(super) fn open(target: &'a ServerTarget, work: &'a Work, number: usize) -> Result<Self> {
        Ok(ServerSession {
            client: target.server.client()?,
            work,
            recorder: work.statements.recorder(),
            number,
            commits_with_each_statement: target.product.commits_with_each_statement(),
            value: "u".repeat(width(target.product)),
            updates: 0,
            cpu_at_start_ns: thread_cpu_ns(),
            cpu_told: Instant::now(),
            figures_told: Instant::now(),
        })
    }

    fn next_value(&mut self) {
        self.updates += 1;
        let key = format!("{:08x}{:012x}", self.number, self.updates);
        let length = key.len().min(self.value.len());
        self.value.replace_range(..length, &key[..length]);
    }

    fn update(&mut self, range: Range, is_heavy: bool) -> Result<u64> {
        for _ in 0..TRIES {
            let start = self.work.client_waits.start();
            match self.client.update(range, &self.value, is_heavy)? {
                Ok(rows) => return Ok(rows),
                Err(_) => {
                    let _ = self.work.client_waits.record(DATABASE_LOCK, start);
                }
            }
        }
        Err(Error::Target {
            what: "the load".into(),
            database: std::path::PathBuf::new(),
            reason: format!(
                "a transaction was ended {TRIES} times because of deadlocks; give fewer threads"
            ),
        })
    }
}

impl Session for ServerSession<'_> {
    fn run(&mut self, schema: u32, operation: Operation, redo: RedoStress) -> Result<()> {
        match operation {
            Operation::Select { after, before } => {
                let start = self.recorder.start();
                let rows = self.client.select(Range { schema, after, before })?;
                let _ = self.recorder.record(SELECT, start);
                self.recorder.count(ROWS, rows);
                self.recorder.count(CALLS, 1);
            }
            Operation::Scan => {
                let start = self.recorder.start();
                let rows = self.client.scan(schema)?;
                let _ = self.recorder.record(SCAN, start);
                self.recorder.count(ROWS, rows);
                self.recorder.count(CALLS, 1);
            }
            Operation::Update { after, before } => {
                self.next_value();
                let start = self.recorder.start();
                let rows =
                    self.update(Range { schema, after, before }, redo == RedoStress::Heavy)?;
                if self.commits_with_each_statement {
                    let _ = self.recorder.record(COMMIT, start);
                    self.recorder.count(CALLS, 1);
                } else {
                    let start = self.recorder.record(UPDATE, start);
                    self.client.commit()?;
                    let _ = self.recorder.record(COMMIT, start);
                    self.recorder.count(CALLS, 3);
                }
                self.recorder.count(ROWS, rows);
                self.recorder.count(COMMITS, 1);
            }
        }
        self.recorder.count(EXECUTES, 1);
        let now = Instant::now();
        if now - self.cpu_told >= CPU_EVERY {
            self.cpu_told = now;
            self.work.tell_cpu(self.number, self.cpu_at_start_ns);
        }
        if now - self.figures_told >= FIGURES_EVERY {
            self.figures_told = now;
            self.client.tell_figures();
        }
        Ok(())
    }
}

impl Drop for ServerSession<'_> {
    fn drop(&mut self) {
        self.work.tell_cpu(self.number, self.cpu_at_start_ns);
    }
}

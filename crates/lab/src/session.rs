//! Sessions of a database under test, and what they count and time.
//!
//! **Invariant**: a session counts and times in [`Work`] what it did, nothing else does; so the
//! figures of two targets mean the same.
//! **Deliberately absent**: which databases there are: `target/`.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};
use tiersmith_awr::Snapshot;
use tiersmith_awr::events::{CounterDef, EventDef, Registry, Totals, counters, wait_events};

use crate::error::Result;
use crate::workload::{Operation, slob::RedoStress};

wait_events! {
    /// What sessions do, timed as a client sees it. Not waits: their sum is DB time.
    pub const STATEMENTS;
    /// A SELECT of a range, all rows fetched.
    SELECT = "select", Other;
    /// A SELECT of the whole scan table.
    SCAN = "scan", Other;
    /// BEGIN and UPDATE.
    UPDATE = "update", Other;
    /// COMMIT.
    COMMIT = "commit", Other;
}

counters! {
    /// What sessions count.
    pub const COUNTERS;
    /// SQL statements run: SELECT and UPDATE, not BEGIN and COMMIT.
    EXECUTES = "executes", "executions";
    /// Calls into the database: one for each statement, BEGIN and COMMIT.
    CALLS = "calls", "calls";
    /// Transactions that changed something and ended well.
    COMMITS = "commits", "transactions";
    /// Rows read or changed; each is in a block of its own.
    ROWS = "rows", "rows";
}

wait_events! {
    /// Response times of a load with fixed arrivals.
    pub const RESPONSES;
    /// From the time an operation was due to its end.
    RESPONSE = "response", Other;
}

wait_events! {
    /// Waits that the target's client sits through, beside those of its files.
    pub const CLIENT_WAITS;
    /// Another connection holds the lock of the database that this one asked for.
    DATABASE_LOCK = "database lock", Application;
}

/// What the sessions of one run did, written by them and read at any time.
#[derive(Debug)]
pub struct Work {
    /// Statements and counters.
    pub statements: Registry,
    /// Response times, when arrivals are fixed.
    pub responses: Registry,
    /// Waits for locks.
    pub client_waits: Registry,
    /// What a load tells apart itself: transactions of several kinds.
    pub load: Registry,
    /// Processor time of each session's thread since it began, as last told.
    cpu_ns: Vec<AtomicU64>,
}

impl Work {
    /// For so many sessions.
    pub fn new(sessions: u32) -> Work {
        Work::of(sessions, &[], &[])
    }

    /// For so many sessions of a load that tells these apart.
    pub fn of(sessions: u32, events: &'static [EventDef], counters: &'static [CounterDef]) -> Work {
        Work {
            statements: Registry::new(STATEMENTS, COUNTERS),
            responses: Registry::new(RESPONSES, &[]),
            client_waits: Registry::new(CLIENT_WAITS, &[]),
            load: Registry::new(events, counters),
            cpu_ns: (0..sessions).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Sessions.
    pub fn sessions(&self) -> u64 {
        self.cpu_ns.len() as u64
    }

    /// Tells the processor time of the calling thread, which is session number `session`.
    pub fn tell_cpu(&self, session: usize, since_ns: u64) {
        if let Some(cell) = self.cpu_ns.get(session) {
            cell.store(thread_cpu_ns().saturating_sub(since_ns), Ordering::Relaxed);
        }
    }

    /// Processor time of all sessions.
    pub fn cpu_ns(&self) -> u64 {
        self.cpu_ns.iter().map(|cell| cell.load(Ordering::Relaxed)).sum()
    }
}

/// DB time: what the statements took, as clients see it.
pub fn db_time_ns(statements: &Totals) -> u64 {
    statements.events().map(|(_, totals)| totals.total_ns()).sum()
}

/// Processor time of the calling thread.
pub fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// A database under test, loaded and open.
pub trait Target: Sync {
    /// Opens a session of a schema. `number` tells sessions apart.
    ///
    /// # Errors
    /// What the database says.
    fn session<'a>(
        &'a self,
        work: &'a Work,
        number: usize,
        schema: u32,
    ) -> Result<Box<dyn Session + 'a>>;

    /// Every counter at this instant.
    fn snapshot(&self, work: &Work) -> Snapshot;

    /// Whether what was loaded is still there and sound, when no session is open.
    ///
    /// # Errors
    /// [`crate::Error::Unsound`] says what is not.
    fn check(&self) -> Result<()>;
}

/// One client of the target. It is made, used and dropped by one thread.
pub trait Session {
    /// Carries out an operation in a schema, counts and times it.
    ///
    /// # Errors
    /// What the database says; the run ends then.
    fn run(&mut self, schema: u32, operation: Operation, redo: RedoStress) -> Result<()>;
}

//! Loads whose transactions are statements of their own, on any database that speaks SQL: TPC-C,
//! YCSB, OLTP like sysbench's, SAP's client copy. One client drives all of them.
//!
//! To add one: what comes next in `workload/` (it knows no database), a [`Transactional`] here in
//! `target/` that says it in SQL, and a line in [`of`](super::loads::of).
//!
//! **Invariants**: a transaction that the database ended because of another one is tried again with
//! the same input, and its time is from its first beginning; what is counted as done was
//! acknowledged; with fixed arrivals a response begins when it was due.
//! **Deliberately absent**: connections ([`crate::sql`]), which database: `sqlite/`, `server/`.

mod timed;

use std::fmt::Debug;
use std::path::Path;
use std::time::{Duration, Instant};

use tiersmith_awr::events::{EventDef, EventId, Recorder, counters};

use crate::error::{Error, Result};
use crate::run::{self, Arrivals, Client, Going, Measured, Plans};
use crate::session::{DATABASE_LOCK, RESPONSE, Target, Work, thread_cpu_ns};
use crate::sql::{Broken, Outcome, Sql, Table};

pub(in crate::target) use timed::Timed;

counters! {
    /// What is counted beside the kinds of transactions.
    pub const COUNTS;
    /// Transactions tried again, because the database ended them for another one.
    AGAIN = "tried again", "transactions";
}

/// How often a transaction is tried.
const TRIES: u32 = 1000;
/// How often a thread's processor time is told.
const CPU_EVERY: Duration = Duration::from_millis(1);
/// How often the server is told to add up what a session's process counted.
const FIGURES_EVERY: Duration = Duration::from_millis(100);

/// A load of such transactions, shared by its clients.
pub trait Transactional: Send + Sync + Debug {
    /// What its transactions are told apart by.
    fn kinds(&self) -> &'static [EventDef];

    /// The tables it is loaded with.
    fn tables(&self) -> Vec<Table>;

    /// Makes the tables and fills them.
    ///
    /// `progress` is told the share done and says whether to go on.
    ///
    /// # Errors
    /// What the database says; [`Error::Interrupted`] if `progress` said no.
    fn fill(&self, sql: &mut dyn Sql, seed: u64, progress: &dyn Fn(f64) -> bool) -> Result<()>;

    /// What the client with this number does.
    fn client<'a>(&'a self, seed: u64, number: u32) -> Box<dyn Transactions + 'a>;

    /// Whether what is in the tables after a run is what must be there.
    ///
    /// # Errors
    /// [`Error::Unsound`]; what the database says.
    fn check(&self, sql: &mut dyn Sql, database: &Path) -> Result<()>;

    /// For people: how large it is, and how many do it.
    fn describe(&self, clients: u32) -> String;

    /// Bytes of the loaded tables, about, with room for what a run adds.
    fn bytes(&self) -> u64;
}

/// The transactions of one client.
pub trait Transactions {
    /// Decides what comes next.
    fn draw(&mut self);

    /// Tries it; as which kind it counts.
    ///
    /// # Errors
    /// [`Broken`]; it is tried again then, or the run ends.
    fn attempt(&mut self, sql: &mut dyn Sql, statements: &Recorder) -> Outcome<EventId>;

    /// How long the client does nothing before it.
    fn before(&self) -> Option<Duration> {
        None
    }

    /// It was acknowledged after so long; how long the client does nothing now.
    fn done(&mut self, took: Duration, kinds: &Recorder) -> Option<Duration>;
}

/// Opens a connection of its own for each client, which may tell what it waits for.
pub type Open<'a> = dyn Fn(&Work) -> Result<Box<dyn Sql>> + Sync + 'a;

/// Runs the transactions of so many clients.
///
/// # Errors
/// What a client failed with; [`Error::Interrupted`].
pub fn run(
    target: &dyn Target,
    plans: &Plans<'_>,
    load: &dyn Transactional,
    clients: u32,
    open: &Open<'_>,
) -> Result<Measured> {
    let seed = plans.slob.seed;
    run_connected(target, plans, load.kinds(), clients, &|work, number| {
        Ok(on_sql(open(work)?, load.client(seed, number)))
    })
}

/// A client's transactions with the connection that they run on.
pub(super) trait Connected {
    /// Decides what comes next.
    fn draw(&mut self);

    /// How long the client does nothing before it.
    fn before(&self) -> Option<Duration>;

    /// Carries it out; how long it took.
    ///
    /// # Errors
    /// What the database says.
    fn carry_out(&mut self, of: &Recorders) -> Result<Duration>;

    /// It was acknowledged after so long; how long the client does nothing now.
    fn done(&mut self, took: Duration, kinds: &Recorder) -> Option<Duration>;

    /// Makes what the connection counted visible to the server's figures.
    fn tell_figures(&mut self);
}

/// Opens the client with a number, from 0.
pub(super) type Connect<'a> = dyn Fn(&Work, u32) -> Result<Box<dyn Connected + 'a>> + Sync + 'a;

/// Runs so many clients of any connection.
///
/// # Errors
/// What a client failed with; [`Error::Interrupted`].
pub(super) fn run_connected(
    target: &dyn Target,
    plans: &Plans<'_>,
    kinds: &'static [EventDef],
    clients: u32,
    connect: &Connect<'_>,
) -> Result<Measured> {
    let work = Work::of(clients, kinds, COUNTS);
    let client = |number: u32| -> Result<Box<dyn Client + '_>> {
        Ok(Box::new(OneClient {
            what: connect(&work, number)?,
            work: &work,
            of: Recorders::of(&work),
            arrivals: Arrivals::new(plans.slob.arrivals_per_s, number, clients),
            number,
            cpu_at_start_ns: thread_cpu_ns(),
            cpu_told: Instant::now(),
            figures_told: Instant::now(),
        }))
    };
    run::run_clients(target, plans, &work, clients, &client)
}

/// Transactions in SQL.
struct OnSql<'a> {
    sql: Box<dyn Sql>,
    what: Box<dyn Transactions + 'a>,
}

/// Transactions on a connection that is open.
pub(super) fn on_sql<'a>(
    sql: Box<dyn Sql>,
    what: Box<dyn Transactions + 'a>,
) -> Box<dyn Connected + 'a> {
    Box::new(OnSql { sql, what })
}

impl Connected for OnSql<'_> {
    fn draw(&mut self) {
        self.what.draw();
    }

    fn before(&self) -> Option<Duration> {
        self.what.before()
    }

    fn carry_out(&mut self, of: &Recorders) -> Result<Duration> {
        carry_out(self.sql.as_mut(), of, self.what.as_mut())
    }

    fn done(&mut self, took: Duration, kinds: &Recorder) -> Option<Duration> {
        self.what.done(took, kinds)
    }

    fn tell_figures(&mut self) {
        self.sql.tell_figures();
    }
}

/// What a client times with.
pub(super) struct Recorders {
    pub(super) statements: Recorder,
    pub(super) transactions: Recorder,
    pub(super) waits: Recorder,
}

impl Recorders {
    pub(super) fn of(work: &Work) -> Recorders {
        Recorders {
            statements: work.statements.recorder(),
            transactions: work.load.recorder(),
            waits: work.client_waits.recorder(),
        }
    }
}

/// Carries out what was drawn, again and again while others are in its way; how long it took.
pub(super) fn carry_out(
    sql: &mut dyn Sql,
    of: &Recorders,
    what: &mut dyn Transactions,
) -> Result<Duration> {
    let began = Instant::now();
    let start = of.transactions.start();
    for _ in 0..TRIES {
        let wait = of.waits.start();
        match what.attempt(sql, &of.statements) {
            Ok(kind) => {
                let _ = of.transactions.record(kind, start);
                return Ok(began.elapsed());
            }
            Err(Broken::Again) => {
                sql.rollback()?;
                let _ = of.waits.record(DATABASE_LOCK, wait);
                of.transactions.count(AGAIN, 1);
            }
            Err(Broken::Failed(error)) => return Err(error),
        }
    }
    Err(Error::Target {
        what: "the load".into(),
        database: "its tables".into(),
        reason: format!(
            "a transaction was ended {TRIES} times because of others; give fewer clients"
        ),
    })
}

/// A client of a run.
struct OneClient<'a> {
    what: Box<dyn Connected + 'a>,
    work: &'a Work,
    of: Recorders,
    arrivals: Option<Arrivals>,
    number: u32,
    cpu_at_start_ns: u64,
    cpu_told: Instant,
    figures_told: Instant,
}

impl Client for OneClient<'_> {
    fn step(&mut self, going: &Going<'_>) -> Result<bool> {
        self.what.draw();
        if let Some(pause) = self.what.before() {
            going.pause(pause);
        }
        let due = self.arrivals.as_mut().map(Arrivals::next);
        if let Some(due) = due {
            going.pause_until(due);
        }
        // What was paused for and not begun is left to nobody.
        if going.stopped() {
            return Ok(false);
        }
        let took = self.what.carry_out(&self.of)?;
        if let Some(due) = due {
            let response_ns = u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.work.responses.record_ns(RESPONSE, response_ns, 0);
        }
        let pause = self.what.done(took, &self.of.transactions);
        let now = Instant::now();
        if now - self.cpu_told >= CPU_EVERY {
            self.cpu_told = now;
            self.work.tell_cpu(self.number as usize, self.cpu_at_start_ns);
        }
        if now - self.figures_told >= FIGURES_EVERY {
            self.figures_told = now;
            self.what.tell_figures();
        }
        if let Some(pause) = pause {
            going.pause(pause);
        }
        Ok(true)
    }
}

impl Drop for OneClient<'_> {
    fn drop(&mut self) {
        self.work.tell_cpu(self.number as usize, self.cpu_at_start_ns);
    }
}

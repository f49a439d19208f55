//! TPC-C's transactions on a database that speaks SQL: clients, checks, and a kill under load.
//!
//! What is asked is said by [`crate::workload::tpcc`]; how the database is reached, by
//! [`crate::sql`].
//!
//! **Invariants**: a transaction that the database ended because of another one is tried again with
//! the same input, and its time is from its first beginning; what is counted as done was
//! acknowledged.
//! **Deliberately absent**: queued Delivery, terminals and their screens.

mod checks;
mod timed;
mod transactions;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tiersmith_awr::events::{Recorder, Registry, counters, wait_events};

use crate::error::{Error, Result};
use crate::run::{self, Client, Going, Measured, Plans};
use crate::session::{
    CLIENT_WAITS, COUNTERS, DATABASE_LOCK, STATEMENTS, Target, Work, thread_cpu_ns,
};
use crate::sql::{Broken, Outcome, Sql};
use crate::workload::tpcc::{Input, Plan, Settings};
use checks::Taken;
use timed::Timed;
use transactions::Ended;

pub use checks::consistent;

wait_events! {
    /// Whole transactions, from their first beginning to their end.
    pub const TRANSACTIONS;
    /// Clause 2.4, committed.
    NEW_ORDER = "New-Order", Other;
    /// Clause 2.5.
    PAYMENT = "Payment", Other;
    /// Clause 2.6.
    ORDER_STATUS = "Order-Status", Other;
    /// Clause 2.7.
    DELIVERY = "Delivery", Other;
    /// Clause 2.8.
    STOCK_LEVEL = "Stock-Level", Other;
    /// A New-Order with an item that nobody sells, which is taken back.
    TAKEN_BACK = "Taken back", Other;
}

counters! {
    /// What else is counted.
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

/// Opens a connection of its own for each client, which may tell what it waits for.
pub type Open<'a> = dyn Fn(&Work) -> Result<Box<dyn Sql>> + Sync + 'a;

/// Runs the transactions of so many clients.
///
/// # Errors
/// What a client failed with; [`Error::Interrupted`].
pub fn run(
    target: &dyn Target,
    plans: &Plans<'_>,
    settings: &Settings,
    clients: u32,
    open: &Open<'_>,
) -> Result<Measured> {
    let work = Work::of(clients, TRANSACTIONS, COUNTS);
    let client = |number: u32| -> Result<Box<dyn Client + '_>> {
        Ok(Box::new(TpccClient::new(open(&work)?, &work, settings, plans.slob.seed, number)))
    };
    run::run_clients(target, plans, &work, clients, &client)
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// What a client times with.
struct Recorders {
    statements: Recorder,
    transactions: Recorder,
    waits: Recorder,
}

/// One attempt at a transaction; as what it is counted.
fn attempt(
    sql: &mut dyn Sql,
    statements: &Recorder,
    input: &Input,
) -> Outcome<tiersmith_awr::events::EventId> {
    let writes = !matches!(input, Input::OrderStatus { .. } | Input::StockLevel { .. });
    let begun = Timed::begin(sql, statements, writes)?;
    match input {
        Input::NewOrder(order) => Ok(match transactions::new_order(begun, order, now_ms())? {
            Ended::Committed => NEW_ORDER,
            Ended::TakenBack => TAKEN_BACK,
        }),
        Input::Payment(payment) => {
            transactions::payment(begun, payment, now_ms()).map(|()| PAYMENT)
        }
        Input::OrderStatus { warehouse, district, customer } => {
            transactions::order_status(begun, *warehouse, *district, customer)
                .map(|()| ORDER_STATUS)
        }
        Input::Delivery { warehouse, carrier } => {
            transactions::delivery(begun, *warehouse, *carrier, now_ms()).map(|()| DELIVERY)
        }
        Input::StockLevel { warehouse, district, threshold } => {
            transactions::stock_level(begun, *warehouse, *district, *threshold)
                .map(|()| STOCK_LEVEL)
        }
    }
}

/// Carries out a transaction, again and again while others are in its way.
fn carry_out(sql: &mut dyn Sql, of: &Recorders, input: &Input) -> Result<()> {
    let start = of.transactions.start();
    for _ in 0..TRIES {
        let wait = of.waits.start();
        match attempt(sql, &of.statements, input) {
            Ok(done) => {
                let _ = of.transactions.record(done, start);
                return Ok(());
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
        database: "TPC-C".into(),
        reason: format!(
            "a transaction was ended {TRIES} times because of others; give fewer clients"
        ),
    })
}

/// A client of a run.
struct TpccClient<'a> {
    sql: Box<dyn Sql>,
    work: &'a Work,
    of: Recorders,
    plan: Plan,
    number: u32,
    cpu_at_start_ns: u64,
    cpu_told: Instant,
    figures_told: Instant,
}

impl<'a> TpccClient<'a> {
    /// The client with this number on a connection of its own.
    fn new(
        sql: Box<dyn Sql>,
        work: &'a Work,
        settings: &Settings,
        seed: u64,
        number: u32,
    ) -> TpccClient<'a> {
        TpccClient {
            sql,
            work,
            of: Recorders {
                statements: work.statements.recorder(),
                transactions: work.load.recorder(),
                waits: work.client_waits.recorder(),
            },
            plan: Plan::new(settings, seed, number),
            number,
            cpu_at_start_ns: thread_cpu_ns(),
            cpu_told: Instant::now(),
            figures_told: Instant::now(),
        }
    }
}

impl Client for TpccClient<'_> {
    fn step(&mut self, going: &Going<'_>) -> Result<bool> {
        let input = self.plan.draw();
        let pace = self.plan.pace(&input);
        if let Some((keying, _)) = pace {
            going.pause(keying);
            if going.stopped() {
                return Ok(false);
            }
        }
        carry_out(self.sql.as_mut(), &self.of, &input)?;
        let now = Instant::now();
        if now - self.cpu_told >= CPU_EVERY {
            self.cpu_told = now;
            self.work.tell_cpu(self.number as usize, self.cpu_at_start_ns);
        }
        if now - self.figures_told >= FIGURES_EVERY {
            self.figures_told = now;
            self.sql.tell_figures();
        }
        if let Some((_, think)) = pace {
            going.pause(think);
        }
        Ok(true)
    }
}

impl Drop for TpccClient<'_> {
    fn drop(&mut self) {
        self.work.tell_cpu(self.number as usize, self.cpu_at_start_ns);
    }
}

/// What was there before a kill, and what clients were told until then.
pub(crate) struct Killed {
    before: Taken,
    told: Taken,
}

/// Runs clients until the database is killed under them.
///
/// `open` gives connections; `kill` kills the database, after `after`.
///
/// # Errors
/// What the database says before it is killed.
pub(crate) fn until_killed(
    open: &dyn Fn() -> Result<Box<dyn Sql>>,
    settings: &Settings,
    seed: u64,
    clients: u32,
    after: Duration,
    kill: &mut dyn FnMut() -> Result<()>,
) -> Result<Killed> {
    let before = checks::taken(open()?.as_mut())?;
    let settings = Settings { think: false, ..*settings };
    let (statements, waits) =
        (Registry::new(STATEMENTS, COUNTERS), Registry::new(CLIENT_WAITS, &[]));
    let transactions = Registry::new(TRANSACTIONS, COUNTS);
    let (stop, killing) = (AtomicBool::new(false), AtomicBool::new(false));
    let failed = Mutex::new(None);
    let mut connections = Vec::new();
    for _ in 0..clients {
        connections.push(open()?);
    }
    let killed = std::thread::scope(|scope| {
        for (number, mut sql) in (0..).zip(connections) {
            let (stop, killing, failed, settings) = (&stop, &killing, &failed, &settings);
            let of = Recorders {
                statements: statements.recorder(),
                transactions: transactions.recorder(),
                waits: waits.recorder(),
            };
            scope.spawn(move || {
                // Other transactions than those of the run that was measured.
                let mut plan = Plan::new(settings, seed ^ 0x6b69_6c6c, number);
                while !stop.load(Ordering::Relaxed) {
                    if let Err(error) = carry_out(sql.as_mut(), &of, &plan.draw()) {
                        // What fails from now on fails because of the kill.
                        if !killing.load(Ordering::SeqCst) {
                            failed
                                .lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .get_or_insert(error);
                        }
                        break;
                    }
                }
            });
        }
        std::thread::sleep(after);
        killing.store(true, Ordering::SeqCst);
        let killed = kill();
        stop.store(true, Ordering::SeqCst);
        killed
    });
    killed?;
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let totals = transactions.read();
    let told =
        Taken { orders: totals.event(NEW_ORDER).count(), payments: totals.event(PAYMENT).count() };
    Ok(Killed { before, told })
}

impl Killed {
    /// Whether what was acknowledged is there and the conditions hold; a sentence that says so.
    ///
    /// # Errors
    /// [`Error::Unsound`]; what the database says.
    pub(crate) fn check(
        &self,
        sql: &mut dyn Sql,
        started_in: Duration,
        database: &Path,
    ) -> Result<String> {
        checks::is_there(self.before, self.told, checks::taken(sql)?, database)?;
        consistent(sql, database)?;
        Ok(format!(
            "It was killed (SIGKILL) under load after the run and answered {:.1} s later: the {} \
             orders and \
             {} payments acknowledged until then are there, and consistency conditions 1 to 4 \
             hold.",
            started_in.as_secs_f64(),
            self.told.orders,
            self.told.payments
        ))
    }
}

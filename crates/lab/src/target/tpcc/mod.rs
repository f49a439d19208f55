//! TPC-C's transactions on a database that speaks SQL: what each does, checks, and a kill under
//! load.
//!
//! What is asked is said by [`crate::workload::tpcc`]; how the database is reached, by
//! [`crate::sql`].
//!
//! **Invariant**: what a client was told before a kill is there after it.
//! **Deliberately absent**: clients (`transactions/`), queued Delivery, terminals and their
//! screens.

mod checks;
mod transactions;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tiersmith_awr::events::{EventDef, EventId, Recorder, Registry, wait_events};

use super::transactions::{COUNTS, Recorders, Timed, Transactional, Transactions, carry_out};
use crate::error::Result;
use crate::session::{CLIENT_WAITS, COUNTERS, STATEMENTS};
use crate::sql::{Outcome, Sql, Table};
use crate::workload::tpcc::{self, Input, Plan, Settings};
use checks::Taken;
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

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// One attempt at a transaction; as what it is counted.
fn attempt(sql: &mut dyn Sql, statements: &Recorder, input: &Input) -> Outcome<EventId> {
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

impl Transactional for Settings {
    fn kinds(&self) -> &'static [EventDef] {
        TRANSACTIONS
    }

    fn tables(&self) -> Vec<Table> {
        tpcc::TABLES.into()
    }

    fn fill(&self, sql: &mut dyn Sql, seed: u64, progress: &dyn Fn(f64) -> bool) -> Result<()> {
        tpcc::fill(sql, self, seed, progress)
    }

    fn client<'a>(&'a self, seed: u64, number: u32) -> Box<dyn Transactions + 'a> {
        Box::new(Terminal::new(Plan::new(self, seed, number)))
    }

    fn check(&self, sql: &mut dyn Sql, database: &Path) -> Result<()> {
        consistent(sql, database)
    }

    fn describe(&self, clients: u32) -> String {
        Settings::describe(self, clients)
    }

    fn bytes(&self) -> u64 {
        Settings::bytes(self)
    }
}

/// A client.
struct Terminal {
    plan: Plan,
    input: Input,
    /// Keying and think time of the input.
    pace: Option<(Duration, Duration)>,
}

impl Terminal {
    fn new(mut plan: Plan) -> Terminal {
        let input = plan.draw();
        Terminal { plan, input, pace: None }
    }
}

impl Transactions for Terminal {
    fn draw(&mut self) {
        self.input = self.plan.draw();
        self.pace = self.plan.pace(&self.input);
    }

    fn attempt(&mut self, sql: &mut dyn Sql, statements: &Recorder) -> Outcome<EventId> {
        attempt(sql, statements, &self.input)
    }

    fn before(&self) -> Option<Duration> {
        self.pace.map(|(keying, _)| keying)
    }

    fn done(&mut self, _: Duration, _: &Recorder) -> Option<Duration> {
        self.pace.map(|(_, think)| think)
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
                let mut client = Terminal::new(Plan::new(settings, seed ^ 0x6b69_6c6c, number));
                while !stop.load(Ordering::Relaxed) {
                    client.draw();
                    if let Err(error) = carry_out(sql.as_mut(), &of, &mut client) {
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
    /// [`crate::Error::Unsound`]; what the database says.
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

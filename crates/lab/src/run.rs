//! Runs a load on a target: sessions, warm-up, the measured interval between two snapshots.
//!
//! After SLOB's `runit.sh`: all sessions start together, the first snapshot is taken when the
//! warm-up is over, the second at the end of RUN_TIME, and a session that fails fails the run.
//!
//! **Invariants**: nothing that happened before the first snapshot or after the second is in a
//! figure. With fixed arrivals, an operation's response time begins when it was due, however late
//! it was begun (no coordinated omission).
//! **Deliberately absent**: which case, which place: `study/`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tiersmith_awr::Snapshot;
use tiersmith_awr::events::{EventDef, EventTotals, Histogram, Totals};

use crate::error::{Error, Result};
use crate::session::{
    COMMIT, COMMITS, EXECUTES, RESPONSE, ROWS, SELECT, Session, Target, UPDATE, Work,
};
use crate::workload::{Load, Plan, slob};

/// Slices of the measured interval whose throughputs are compared.
pub const SLICES: usize = 20;
/// How often the main thread looks whether to stop.
const LOOK: Duration = Duration::from_millis(20);
/// How long after its time a run goes on in which no operation has ended yet.
const FIRST_OPERATION: Duration = Duration::from_secs(120);
/// A wait for the due time is slept until so much before it, and then spun: a sleep ends late by
/// about as much.
const SPIN: Duration = Duration::from_micros(100);

/// What to run, and how long.
pub struct Plans<'a> {
    /// The load.
    pub slob: &'a slob::Settings,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Not measured.
    pub warm_up: Duration,
    /// Measured.
    pub run_time: Duration,
    /// Of a load that is a program of its own: another than the case's, by number instead of by
    /// time. There is no warm-up then.
    pub program: Option<Program>,
    /// Told the share done.
    pub progress: &'a (dyn Fn(f64) + Sync),
    /// Whether to give up.
    pub stopped: &'a (dyn Fn() -> bool + Sync),
}

/// A load by its program, so many transactions of it: what two servers have done since a checkpoint
/// is then the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// The load; not SLOB.
    pub load: Load,
    /// Its clients.
    pub clients: u32,
    /// Transactions of all clients together.
    pub transactions: u64,
}

/// One client of a load. It is made, used and dropped by one thread.
pub(crate) trait Client {
    /// Does what is next; whether there is more.
    ///
    /// # Errors
    /// What the database says; the run ends then.
    fn step(&mut self, going: &Going<'_>) -> Result<bool>;
}

/// Opens the client with a number, from 0.
pub(crate) type Open<'a> = dyn Fn(u32) -> Result<Box<dyn Client + 'a>> + Sync + 'a;

/// The run that a client is part of.
pub(crate) struct Going<'a>(&'a Control<'a>);

impl Going<'_> {
    /// Whether the run is over.
    pub(crate) fn stopped(&self) -> bool {
        self.0.stopped()
    }

    /// Does nothing for so long, or until the run is over.
    pub(crate) fn pause(&self, time: Duration) {
        sleep_until(Instant::now() + time, self.0);
    }

    /// Does nothing until then, or until the run is over.
    pub(crate) fn pause_until(&self, due: Instant) {
        sleep_until(due, self.0);
    }
}

/// What was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measured {
    /// Counters at the beginning.
    pub begin: Snapshot,
    /// Counters at the end.
    pub end: Snapshot,
    /// Length of the interval, from snapshot to snapshot.
    pub elapsed_s: f64,
    /// Executions in each slice of the interval, per second.
    pub slices: Vec<f64>,
    /// In each slice, what 99 of 100 statements and commits took no longer than: a stall, as of a
    /// checkpoint, is seen here.
    #[serde(default)]
    pub p99_slices_ns: Vec<u64>,
    /// Executions.
    pub executes: u64,
    /// Transactions committed.
    pub transactions: u64,
    /// Rows touched, each in a block of its own.
    pub rows: u64,
    /// SELECT statements.
    pub select: Latency,
    /// BEGIN and UPDATE.
    pub update: Latency,
    /// COMMIT.
    pub commit: Latency,
    /// From due time to end, when arrivals are fixed.
    pub response: Option<Latency>,
    /// Whole transactions, when the load is a program that measures them.
    #[serde(default)]
    pub transaction: Option<Latency>,
    /// What the load tells apart itself, in its order; nothing if it does not.
    #[serde(default)]
    pub kinds: Vec<Kind>,
    /// What the load counts beside that: names and numbers.
    #[serde(default)]
    pub counted: Vec<(String, u64)>,
}

/// One kind of a load's transactions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kind {
    /// Its name.
    pub name: String,
    /// How long they took.
    pub latency: Latency,
}

/// A distribution of times, in short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Median, within 1/128.
    pub median_ns: u64,
    /// 95 of 100 were no longer, within 1/128. Missing in results of an earlier version, as the one
    /// after the next.
    #[serde(default)]
    pub p95_ns: u64,
    /// 99 of 100 were no longer, within 1/128.
    pub p99_ns: u64,
    /// 999 of 1000 were no longer, within 1/128.
    #[serde(default)]
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Latency {
    /// Of a histogram.
    pub fn of(histogram: &Histogram) -> Latency {
        Latency {
            count: histogram.count(),
            mean_ns: histogram.mean_ns().unwrap_or(0.0),
            median_ns: histogram.quantile_ns(0.5).unwrap_or(0),
            p95_ns: histogram.quantile_ns(0.95).unwrap_or(0),
            p99_ns: histogram.quantile_ns(0.99).unwrap_or(0),
            p999_ns: histogram.quantile_ns(0.999).unwrap_or(0),
            max_ns: histogram.max_ns().unwrap_or(0),
        }
    }
}

impl Measured {
    /// Executions per second.
    pub fn executes_per_s(&self) -> f64 {
        self.executes as f64 / self.elapsed_s
    }

    /// Transactions per second.
    pub fn transactions_per_s(&self) -> f64 {
        self.transactions as f64 / self.elapsed_s
    }

    /// Standard deviation of the slices' throughput over its mean.
    pub fn variation(&self) -> f64 {
        let mean = self.slices.iter().sum::<f64>() / self.slices.len().max(1) as f64;
        if mean == 0.0 || self.slices.len() < 2 {
            return 0.0;
        }
        let squares: f64 = self.slices.iter().map(|slice| (slice - mean).powi(2)).sum();
        (squares / (self.slices.len() - 1) as f64).sqrt() / mean
    }
}

/// What all threads of a run see.
struct Control<'a> {
    plans: &'a Plans<'a>,
    work: &'a Work,
    stop: AtomicBool,
    ended: AtomicUsize,
    failed: Mutex<Option<Error>>,
}

impl Control<'_> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn fail(&self, error: Error) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.stop.store(true, Ordering::SeqCst);
    }
}

/// Runs SLOB's load.
///
/// # Errors
/// What a session failed with; [`Error::Interrupted`].
pub fn run(target: &dyn Target, plans: &Plans<'_>) -> Result<Measured> {
    let slob = plans.slob;
    let sessions = slob.sessions();
    let work = Work::new(sessions);
    let open = |number: u32| -> Result<Box<dyn Client + '_>> {
        let schema = number / slob.threads_per_schema;
        Ok(Box::new(SlobClient {
            session: target.session(&work, number as usize, schema)?,
            plan: slob.plan(schema, number % slob.threads_per_schema, plans.block_bytes),
            arrivals: Arrivals::new(slob.arrivals_per_s, number, slob.sessions()),
            slob,
            work: &work,
            loops: 0,
        }))
    };
    run_clients(target, plans, &work, sessions, &open)
}

/// Runs so many clients of any load.
///
/// # Errors
/// What a client failed with; [`Error::Interrupted`].
pub(crate) fn run_clients(
    target: &dyn Target,
    plans: &Plans<'_>,
    work: &Work,
    clients: u32,
    open: &Open<'_>,
) -> Result<Measured> {
    let control = Control {
        plans,
        work,
        stop: AtomicBool::new(false),
        ended: AtomicUsize::new(0),
        failed: Mutex::new(None),
    };
    let start = Barrier::new(clients as usize + 1);
    let measured = std::thread::scope(|scope| {
        for number in 0..clients {
            let (control, start) = (&control, &start);
            let thread = std::thread::Builder::new().name(format!("session {number}"));
            let body = move || client(open, control, start, number);
            if let Err(e) = thread.spawn_scoped(scope, body) {
                control.fail(Error::Io {
                    what: "start a thread for",
                    path: "a session".into(),
                    source: e,
                });
                // Those that started wait for as many as were planned.
                (number..clients).for_each(|_| {
                    scope.spawn(|| start.wait());
                });
                break;
            }
        }
        start.wait();
        let measured = measure(target, &control, clients as usize);
        control.stop.store(true, Ordering::SeqCst);
        measured
    });
    if let Some(error) = control.failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    measured
}

/// What a client's thread does.
fn client(open: &Open<'_>, control: &Control<'_>, start: &Barrier, number: u32) {
    let opened = open(number);
    start.wait();
    let done = opened.and_then(|mut client| {
        let going = Going(control);
        while !control.stopped() && client.step(&going)? {}
        Ok(())
    });
    if let Err(error) = done {
        control.fail(error);
    }
    control.ended.fetch_add(1, Ordering::SeqCst);
}

/// A session of SLOB's load.
struct SlobClient<'a> {
    session: Box<dyn Session + 'a>,
    plan: slob::SlobPlan,
    arrivals: Option<Arrivals>,
    slob: &'a slob::Settings,
    work: &'a Work,
    loops: u64,
}

impl Client for SlobClient<'_> {
    fn step(&mut self, going: &Going<'_>) -> Result<bool> {
        if self.slob.work_loop > 0 && self.loops >= self.slob.work_loop {
            return Ok(false);
        }
        self.loops += 1;
        let step = self.plan.next();
        if let Some(think) = step.think {
            going.pause(think);
        }
        let due = self.arrivals.as_mut().map(Arrivals::next);
        if let Some(due) = due {
            going.pause_until(due);
            if going.stopped() {
                return Ok(false);
            }
        }
        self.session.run(step.schema, step.operation, self.slob.redo_stress)?;
        if let Some(due) = due {
            let response_ns = due.elapsed().as_nanos().min(u128::from(u64::MAX)) as u64;
            self.work.responses.record_ns(RESPONSE, response_ns, 0);
        }
        Ok(true)
    }
}

/// When the operations of a session are due.
pub(crate) struct Arrivals {
    next: Instant,
    every: Duration,
}

impl Arrivals {
    /// Of one session of several that do so much a second together; nothing if that is 0.
    pub(crate) fn new(per_s: f64, number: u32, sessions: u32) -> Option<Arrivals> {
        if per_s <= 0.0 {
            return None;
        }
        let sessions = f64::from(sessions);
        let every = Duration::from_secs_f64((sessions / per_s).min(1e6));
        // Sessions take turns within the first interval.
        Some(Arrivals { next: Instant::now() + every.mul_f64(f64::from(number) / sessions), every })
    }

    /// When the next one is due.
    pub(crate) fn next(&mut self) -> Instant {
        let due = self.next;
        self.next += self.every;
        due
    }
}

fn sleep_until(due: Instant, control: &Control<'_>) {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() || control.stopped() {
            return;
        }
        match left.checked_sub(SPIN) {
            Some(sleep) if !sleep.is_zero() => std::thread::sleep(sleep.min(LOOK)),
            _ => std::hint::spin_loop(),
        }
    }
}

/// What the main thread does: it waits, and takes the snapshots.
fn measure(target: &dyn Target, control: &Control<'_>, sessions: usize) -> Result<Measured> {
    let plans = control.plans;
    let whole = (plans.warm_up + plans.run_time).as_secs_f64().max(1e-9);
    let began = Instant::now();
    let wait_until = |due: Instant| -> Result<bool> {
        loop {
            if (plans.stopped)() {
                return Err(Error::Interrupted);
            }
            let over = control.stopped() || control.ended.load(Ordering::SeqCst) == sessions;
            let left = due.saturating_duration_since(Instant::now());
            if over || left.is_zero() {
                return Ok(over);
            }
            (plans.progress)(began.elapsed().as_secs_f64() / whole);
            std::thread::sleep(left.min(LOOK));
        }
    };
    wait_until(began + plans.warm_up)?;
    let work = control.work;
    let statements_before = work.statements.read();
    let responses_before = work.responses.read();
    let load_before = work.load.read();
    let begin = target.snapshot(work);
    let first = Instant::now();
    let mut slices = Vec::with_capacity(SLICES);
    let mut slice_began = (first, statements_before.counter(EXECUTES));
    let (mut p99_slices_ns, mut before) = (Vec::with_capacity(SLICES), statements_before.clone());
    for n in 1..=SLICES {
        let over = wait_until(first + plans.run_time.mul_f64(n as f64 / SLICES as f64))?;
        let (now, read) = (Instant::now(), work.statements.read());
        let executes = read.counter(EXECUTES);
        let seconds = (now - slice_began.0).as_secs_f64();
        if !over && seconds > 0.0 {
            slices.push((executes - slice_began.1) as f64 / seconds);
            p99_slices_ns.push(p99_ns(&read.since(&before)));
        }
        before = read;
        slice_began = (now, executes);
        if over {
            break;
        }
    }
    // Nothing ended, on a machine or a disk that is that slow: a run of no operation would be no
    // figure at all.
    let nothing_ended =
        || work.statements.read().counter(EXECUTES) == statements_before.counter(EXECUTES);
    while nothing_ended() && first.elapsed() < plans.run_time + FIRST_OPERATION {
        if wait_until(Instant::now() + LOOK)? {
            break;
        }
    }
    let statements = work.statements.read().since(&statements_before);
    let responses = work.responses.read().since(&responses_before);
    let load = work.load.read().since(&load_before);
    let end = target.snapshot(work);
    let kind = |(event, totals): (&'static EventDef, &EventTotals)| Kind {
        name: event.name.to_owned(),
        latency: Latency::of(totals.histogram()),
    };
    Ok(Measured {
        kinds: load.events().map(kind).collect(),
        counted: load.counters().map(|(counter, count)| (counter.name.to_owned(), count)).collect(),
        p99_slices_ns,
        ..measured(control, begin, end, slices, &statements, &responses)
    })
}

fn measured(
    control: &Control<'_>,
    begin: Snapshot,
    end: Snapshot,
    slices: Vec<f64>,
    statements: &Totals,
    responses: &Totals,
) -> Measured {
    let latency = |totals: &Totals, event| Latency::of(totals.event(event).histogram());
    let elapsed_ns = end.monotonic_ns.saturating_sub(begin.monotonic_ns).max(1);
    Measured {
        begin,
        end,
        elapsed_s: elapsed_ns as f64 / 1e9,
        slices,
        executes: statements.counter(EXECUTES),
        transactions: statements.counter(COMMITS),
        rows: statements.counter(ROWS),
        select: latency(statements, SELECT),
        update: latency(statements, UPDATE),
        commit: latency(statements, COMMIT),
        response: (control.plans.slob.arrivals_per_s > 0.0).then(|| latency(responses, RESPONSE)),
        transaction: None,
        kinds: Vec::new(),
        counted: Vec::new(),
        p99_slices_ns: Vec::new(),
    }
}

/// What 99 of 100 of all events took no longer than; 0 if there was none.
fn p99_ns(totals: &Totals) -> u64 {
    let mut all = Histogram::new();
    totals.events().for_each(|(_, event)| all.merge(event.histogram()));
    all.quantile_ns(0.99).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::ByteSize;
    use crate::workload::Operation;
    use crate::workload::slob::{RedoStress, Settings};

    /// A target whose operations sleep, some of them for long, and may fail.
    struct Slow {
        usual: Duration,
        stall_every: u64,
        stall: Duration,
        fail_at: u64,
    }

    struct SlowSession<'a>(&'a Slow, &'a Work, u64);

    impl Target for Slow {
        fn session<'a>(
            &'a self,
            work: &'a Work,
            _: usize,
            _: u32,
        ) -> Result<Box<dyn Session + 'a>> {
            Ok(Box::new(SlowSession(self, work, 0)))
        }

        fn snapshot(&self, _: &Work) -> Snapshot {
            Snapshot::now(tiersmith_awr::Source::default())
        }

        fn check(&self) -> Result<()> {
            Ok(())
        }
    }

    impl Session for SlowSession<'_> {
        fn run(&mut self, _: u32, _: Operation, _: RedoStress) -> Result<()> {
            self.2 += 1;
            if self.2 == self.0.fail_at {
                return Err(Error::Target {
                    what: "the test".into(),
                    database: "x".into(),
                    reason: "it failed".into(),
                });
            }
            let start = self.1.statements.start();
            std::thread::sleep(if self.2.is_multiple_of(self.0.stall_every) {
                self.0.stall
            } else {
                self.0.usual
            });
            let _ = self.1.statements.record(SELECT, start);
            self.1.statements.count(EXECUTES, 1);
            Ok(())
        }
    }

    const MS: Duration = Duration::from_millis(1);

    fn slow() -> Slow {
        Slow { usual: MS, stall_every: u64::MAX, stall: Duration::ZERO, fail_at: u64::MAX }
    }

    fn go(target: &Slow, slob: &Settings, run_time: Duration) -> Result<Measured> {
        let plans = Plans {
            slob,
            block_bytes: 4096,
            warm_up: 20 * MS,
            run_time,
            program: None,
            progress: &|_| {},
            stopped: &|| false,
        };
        run(target, &plans)
    }

    fn settings() -> Settings {
        Settings { scale: ByteSize(4 << 20), ..Settings::default() }
    }

    #[test]
    fn a_stall_is_in_the_response_of_every_operation_that_was_due_meanwhile() {
        let slob = Settings { arrivals_per_s: 200.0, ..settings() };
        let target = Slow { stall_every: 40, stall: 150 * MS, ..slow() };
        let measured = go(&target, &slob, 1000 * MS).unwrap();
        let response = measured.response.unwrap();
        // One statement of forty took long, and some thirty were due while it did. On a slow
        // machine the backlog only grows.
        assert!(
            response.mean_ns > 2.0 * measured.select.mean_ns,
            "{response:?}, {:?}",
            measured.select
        );
    }

    #[test]
    fn fixed_arrivals_come_at_their_rate_by_turns_and_a_closed_loop_has_none() {
        let slob = Settings { arrivals_per_s: 100.0, threads_per_schema: 2, ..settings() };
        let (mut first, mut second) = (
            Arrivals::new(slob.arrivals_per_s, 0, slob.sessions()).unwrap(),
            Arrivals::new(slob.arrivals_per_s, 1, slob.sessions()).unwrap(),
        );
        let (one, other) = (first.next(), second.next());
        for n in 1..50 {
            assert_eq!(first.next() - one, 20 * n * MS);
            assert_eq!(second.next() - other, 20 * n * MS);
        }
        assert!(other >= one + 10 * MS);
        assert!(go(&slow(), &slob, 100 * MS).unwrap().response.is_some());
        assert!(Arrivals::new(settings().arrivals_per_s, 0, 1).is_none());
        assert!(go(&slow(), &settings(), 100 * MS).unwrap().response.is_none());
    }

    #[test]
    fn a_session_that_fails_fails_the_run() {
        let error = go(&Slow { fail_at: 5, ..slow() }, &settings(), 600_000 * MS).unwrap_err();
        assert!(error.to_string().contains("it failed"), "{error}");
    }

    #[test]
    fn a_run_ends_when_every_session_did_its_loops() {
        let began = Instant::now();
        let slob = Settings { work_loop: 50, threads_per_schema: 2, ..settings() };
        go(&slow(), &slob, 600_000 * MS).unwrap();
        assert!(began.elapsed() < Duration::from_secs(600));
    }

    #[test]
    fn a_run_that_is_told_to_stop_stops() {
        let plans = Plans {
            slob: &settings(),
            block_bytes: 4096,
            warm_up: MS,
            run_time: Duration::from_secs(60),
            program: None,
            progress: &|_| {},
            stopped: &|| true,
        };
        assert!(matches!(run(&slow(), &plans), Err(Error::Interrupted)));
    }

    #[test]
    fn throughput_that_jumps_has_a_variation() {
        let mut measured = go(&slow(), &settings(), 40 * MS).unwrap();
        measured.slices = vec![10.0; 20];
        assert_eq!(measured.variation(), 0.0);
        measured.slices = vec![5.0, 15.0];
        assert!(measured.variation() > 0.5);
    }
}

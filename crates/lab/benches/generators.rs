//! How fast each load is when the database takes no time: a generator must never be the bottleneck.
//!
//! `cargo bench -p tiersmith-lab --bench generators -- [--quick]`; writes
//! `target/bench/generators.json`. Redis is used if it is installed.
//!
//! One client runs each load against a target that answers at once, and then on a real database
//! that waits for no disk: SQLite without a sync, in the temporary directory, because no server
//! answers faster than a library; `mixed` on Redis without a sync. A client's counting and timing
//! are part of it.
//!
//! | key of `ratios` | is |
//! |---|---|
//! | `slob_statements_per_s` | SLOB's statements of one client, UPDATE_PCT 50: at least 200,000 |
//! | `tpcc_statements_per_s` | TPC-C's statements of one client: at least 200,000 |
//! | `ycsb_a_statements_per_s`, `ycsb_d_...`, `ycsb_f_...` | YCSB's operations of one client |
//! | `oltp_read_write_statements_per_s` | those of the transactions like sysbench's |
//! | `client_copy_statements_per_s` | those of SAP's client copy, a row at a time |
//! | `keys_per_s` | requests that the load `mixed` draws: at least 1,000,000 |
//! | `slob_over_sqlite`, `tpcc_over_sqlite`, `ycsb_a_over_sqlite`, ... | statements of each load over the same on SQLite: at least 5 |
//! | `keys_over_redis` | requests that `mixed` draws over those that Redis answers one client: at least 5 |
//!
//! Deliberately absent: the protocols of servers, which are the drivers' business, and sockets.

#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

#[path = "../../../benches/report.rs"]
mod report;

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use report::Report;
use tiersmith_awr::{Snapshot, Source};
use tiersmith_lab::case::{self, Load, SQLITE};
use tiersmith_lab::place::{self, Leftovers, Wishes};
use tiersmith_lab::run::{self, Plans};
use tiersmith_lab::sql::{self, Outcome, Row, Sql, Table, Value};
use tiersmith_lab::target::{
    self, CALLS, COMMIT, COMMITS, EXECUTES, Ground, ROWS, SELECT, Session, Target, UPDATE, Work,
    loads, transactions,
};
use tiersmith_lab::workload::slob::{self, RedoStress};
use tiersmith_lab::workload::{Operation, keys, tpcc as company};
use tiersmith_lab::{ByteSize, server};

type Failed = Box<dyn Error>;

/// Columns of a row that answers every query.
const COLUMNS: usize = 14;
/// Loads beside TPC-C whose transactions are statements of their own.
const OTHERS: [Load; 5] =
    [Load::YcsbA, Load::YcsbD, Load::YcsbF, Load::OltpReadWrite, Load::ClientCopy];
/// What a real database is loaded with.
const SMALL: ByteSize = ByteSize(8 << 20);
/// Requests between two looks at the clock.
const REQUESTS: u64 = 10_000;

fn main() -> ExitCode {
    let mut report = Report::from_args("generators", "Loads against a target that takes no time");
    match measure(&mut report) {
        Ok(()) => report.finish(),
        Err(e) => {
            eprintln!("generators: {e}");
            ExitCode::from(2)
        }
    }
}

/// Answers at once; what a session of a database counts and times, it counts and times.
struct NoOp;

impl Target for NoOp {
    fn session<'a>(
        &'a self,
        work: &'a Work,
        _: usize,
        _: u32,
    ) -> tiersmith_lab::Result<Box<dyn Session + 'a>> {
        Ok(Box::new(NoOpSession(work.statements.recorder())))
    }

    fn snapshot(&self, _: &Work) -> Snapshot {
        Snapshot::now(Source::default())
    }

    fn check(&self) -> tiersmith_lab::Result<()> {
        Ok(())
    }
}

struct NoOpSession(tiersmith_awr::events::Recorder);

impl Session for NoOpSession {
    fn run(
        &mut self,
        schema: u32,
        operation: Operation,
        _: RedoStress,
    ) -> tiersmith_lab::Result<()> {
        let start = self.0.start();
        black_box((schema, operation));
        if matches!(operation, Operation::Update { .. }) {
            let start = self.0.record(UPDATE, start);
            let _ = self.0.record(COMMIT, start);
            self.0.count(CALLS, 3);
            self.0.count(COMMITS, 1);
        } else {
            let _ = self.0.record(SELECT, start);
            self.0.count(CALLS, 1);
        }
        self.0.count(ROWS, 63);
        self.0.count(EXECUTES, 1);
        Ok(())
    }
}

/// Finds one row of ones for every query, and changes one row with every change.
struct NoOpSql;

impl Sql for NoOpSql {
    fn begin(&mut self, _: bool) -> Outcome<()> {
        Ok(())
    }

    fn rows(&mut self, statement: &str, values: &[Value]) -> Outcome<Vec<Row>> {
        black_box((statement, values));
        Ok(vec![Row(vec![Value::Int(1); COLUMNS])])
    }

    fn change(&mut self, statement: &str, values: &[Value]) -> Outcome<u64> {
        black_box((statement, values));
        Ok(1)
    }

    fn commit(&mut self) -> Outcome<()> {
        Ok(())
    }

    fn rollback(&mut self) -> tiersmith_lab::Result<()> {
        Ok(())
    }

    fn batch(&mut self, _: &str) -> tiersmith_lab::Result<()> {
        Ok(())
    }

    fn table(&mut self, _: &str) -> tiersmith_lab::Result<Vec<Vec<String>>> {
        Ok(Vec::new())
    }

    fn fill(
        &mut self,
        _: &Table,
        rows: &mut dyn Iterator<Item = Row>,
    ) -> tiersmith_lab::Result<()> {
        rows.for_each(|row| drop(black_box(row)));
        Ok(())
    }

    fn analyse(&mut self, _: &[Table]) -> tiersmith_lab::Result<()> {
        Ok(())
    }
}

/// Statements, or requests, a second of one client: a sample a round.
#[derive(Default)]
struct Rates {
    /// SLOB, TPC-C's transactions, the same on SQLite, requests that are drawn only.
    all: [Vec<f64>; 4],
    /// Of [`OTHERS`].
    others: [Vec<f64>; OTHERS.len()],
    slob_on_sqlite: Vec<f64>,
    others_on_sqlite: [Vec<f64>; OTHERS.len()],
    /// Nothing where there is no Redis.
    keys_on_redis: Vec<f64>,
}

impl Rates {
    fn tell(self, report: &mut Report) {
        let [of_slob, of_tpcc, sqlite, of_keys] = self.all.map(median);
        report.ratio("slob_statements_per_s", of_slob);
        report.ratio("tpcc_statements_per_s", of_tpcc);
        let others = self.others.map(median);
        for (load, rate) in OTHERS.into_iter().zip(others) {
            report.ratio(&format!("{}_statements_per_s", load.name().replace('-', "_")), rate);
        }
        report.ratio("keys_per_s", of_keys);
        report.ratio("tpcc_over_sqlite", of_tpcc / sqlite.max(1e-9));
        report.ratio("slob_over_sqlite", of_slob / median(self.slob_on_sqlite).max(1e-9));
        for ((load, rate), samples) in OTHERS.into_iter().zip(others).zip(self.others_on_sqlite) {
            let name = format!("{}_over_sqlite", load.name().replace('-', "_"));
            report.ratio(&name, rate / median(samples).max(1e-9));
        }
        if !self.keys_on_redis.is_empty() {
            report.ratio("keys_over_redis", of_keys / median(self.keys_on_redis).max(1e-9));
        }
    }
}

fn measure(report: &mut Report) -> Result<(), Failed> {
    let run_time = Duration::from_millis(if report.quick() { 300 } else { 2000 });
    let slob = slob::Settings { update_pct: 50, ..slob::Settings::default() };
    let plans = Plans {
        slob: &slob,
        block_bytes: 8192,
        warm_up: run_time / 5,
        run_time,
        program: None,
        progress: &|_| {},
        stopped: &|| false,
    };
    let small = company::Settings { items: 10_000, customers: 300, ..company::Settings::default() };
    let dir = tempfile::tempdir()?;
    // A server's account has to pass it.
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755))?;
    let has_redis = match server::product("redis").and_then(server::find) {
        Ok(_) => true,
        Err(e) => {
            report.warn(format!("keys_over_redis was not measured: {e}"));
            false
        }
    };
    let mut rates = Rates::default();
    let database = dir.path().join("company.db");
    company::fill(unsynced(&database)?.as_mut(), &small, slob.seed, &|_| true)?;
    report.config("company", small.describe(1));
    let requests = keys::Settings::default();
    for _ in 0..report.rounds() {
        let of_slob = run::run(&NoOp, &plans)?.executes_per_s();
        let at_once: &transactions::Open<'_> = &|_| Ok(Box::new(NoOpSql));
        let of_tpcc = transactions::run(&NoOp, &plans, &small, 1, at_once)?.executes_per_s();
        let on_sqlite: &transactions::Open<'_> = &|_| unsynced(&database);
        let sqlite = transactions::run(&NoOp, &plans, &small, 1, on_sqlite)?.executes_per_s();
        for (load, samples) in OTHERS.into_iter().zip(&mut rates.others) {
            let of = of_one_row(load, &slob)?;
            let rate = transactions::run(&NoOp, &plans, of.as_ref(), 1, at_once)?.executes_per_s();
            report.run("one client", load.title(), vec![1e9 / rate.max(1e-9)]);
            samples.push(rate);
        }
        rates.slob_on_sqlite.push(on_database(SQLITE, Load::Slob, run_time, dir.path())?);
        for (load, samples) in OTHERS.into_iter().zip(&mut rates.others_on_sqlite) {
            samples.push(on_database(SQLITE, load, run_time, dir.path())?);
        }
        if has_redis {
            rates.keys_on_redis.push(on_database("redis", Load::Mixed, run_time, dir.path())?);
        }
        let of_keys = drawn(&requests, requests.keys(&slob), run_time);
        for (samples, (name, rate)) in rates.all.iter_mut().zip([
            ("SLOB", of_slob),
            ("TPC-C's transactions", of_tpcc),
            ("TPC-C's transactions, SQLite", sqlite),
            ("mixed, drawn only", of_keys),
        ]) {
            report.run("one client", name, vec![1e9 / rate.max(1e-9)]);
            samples.push(rate);
        }
    }
    rates.tell(report);
    Ok(())
}

/// Statements, or requests, a second of one client of a load on a real database that waits for no
/// disk.
fn on_database(
    name: &str,
    load: Load,
    run_time: Duration,
    dir: &Path,
) -> std::result::Result<f64, Failed> {
    let id = if name == SQLITE { "redo-on-home" } else { "server-on-home" };
    let mut case = case::choose_for(name, &[id.to_owned()], false)?.remove(0);
    case.server.load = load;
    case.server.clients = 1;
    case.client_copy.rows_at_once = 1;
    case.sqlite.synchronous = "off".into();
    case.sqlite.page_cache = ByteSize(256 << 20);
    let unsynced = [("appendfsync".to_owned(), "no".to_owned())];
    case.server.settings.insert("redis".into(), unsynced.into());
    case.slob = slob::Settings {
        update_pct: 50,
        scale: SMALL,
        schemas: 1,
        threads_per_schema: 1,
        ..case.slob
    };
    let account = server::product(name).ok().and_then(|one| server::account(one).ok().flatten());
    let wishes = Wishes {
        home: Some(dir.into()),
        fast: Some(dir.into()),
        emulate: true,
        members: 1,
        reachable_by: account,
        ..Wishes::default()
    };
    let places = place::choose(&wishes, Leftovers::default())?;
    let slob = case.slob.clone();
    let ground =
        Ground { case: &case, slob: &slob, places: &places, home_model: None, progress: &|_| true };
    let template = places.home.join("loaded");
    fs::create_dir(&template)?;
    let kind = target::kind(name)?;
    kind.load(&ground, &template)?;
    let opened = kind.open(&ground, &template, &places.home.join("run"))?;
    opened.warm()?;
    let plans = Plans {
        slob: &slob,
        block_bytes: case.block_bytes(),
        warm_up: run_time / 5,
        run_time,
        program: None,
        progress: &|_| {},
        stopped: &|| false,
    };
    let measured = opened.measure(&plans)?;
    opened.close()?;
    Ok(measured.executes_per_s())
}

/// A load whose every query finds one row, as [`NoOpSql`] answers.
fn of_one_row(
    load: Load,
    scale: &slob::Settings,
) -> tiersmith_lab::Result<Box<dyn transactions::Transactional>> {
    let mut cases = case::choose_for(case::SQLITE, &["tpcc-on-home".to_owned()], false)?;
    let mut case = cases.remove(0);
    case.server.load = load;
    case.client_copy.rows_at_once = 1;
    let refused = tiersmith_lab::Error::Setting {
        setting: "load",
        value: load.name().into(),
        reason: "its transactions are no statements of its own".into(),
    };
    loads::of(&case, scale).ok_or(refused)
}

fn unsynced(database: &std::path::Path) -> tiersmith_lab::Result<Box<dyn Sql>> {
    let mut sql = sql::open_sqlite(database)?;
    sql.batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -262144")?;
    sql.table("PRAGMA journal_mode = WAL")?;
    Ok(sql)
}

/// Requests of one client, drawn and thrown away, per second.
fn drawn(settings: &keys::Settings, keys: u64, run_time: Duration) -> f64 {
    let mut plan = settings.plan(keys, 0, 1, 1);
    let (began, mut count) = (Instant::now(), 0);
    while began.elapsed() < run_time {
        (0..REQUESTS).for_each(|_| {
            black_box(plan.draw());
        });
        count += REQUESTS;
    }
    count as f64 / began.elapsed().as_secs_f64()
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(0.0)
}

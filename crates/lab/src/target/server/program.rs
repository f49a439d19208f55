//! Loads that are programs of their own: pgbench, sysbench, redis-benchmark. What `keys.rs` asks of
//! Redis is measured in the same way.
//!
//! The warm-up is a run of its own, not measured. The snapshots are taken before and after the
//! measured run, when its clients have gone and the server has added up what their processes
//! counted ([`Product::settle`]).
//!
//! **Invariant**: a figure is what the program printed, or follows from its log of single
//! transactions.
//! **Deliberately absent**: fixed arrivals, slices of a run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tiersmith_awr::events::Histogram;
use tiersmith_awr::statistic;

use super::{ServerTarget, keys};
use crate::case::{Case, Load};
use crate::error::{During, Error, Result};
use crate::process::Process;
use crate::run::{Latency, Measured, Plans, Program};
use crate::server::{Product, Programs, Server};
use crate::size::ByteSize;
use crate::target::{Target, Work};
use crate::workload::slob;

/// Tables of a sysbench load.
const SYSBENCH_TABLES: u32 = 4;
/// About what a row of sysbench takes, with its index.
const SYSBENCH_ROW: u64 = 240;
/// About what a branch of pgbench takes.
const PGBENCH_SCALE: u64 = 15 << 20;
/// How long a load may be prepared, and how much longer than asked it may run.
const PATIENCE: Duration = Duration::from_secs(600);
/// A run in which no transaction ended is not tried again when it was longer.
const LONGEST: Duration = Duration::from_secs(60);
/// How long is waited between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Which product a load is for, and the program.
fn belongs(load: Load) -> (&'static str, &'static str) {
    match load {
        Load::Tpcb | Load::SimpleUpdate | Load::SelectOnly => ("postgres", "pgbench"),
        Load::ReadWrite | Load::ReadOnly | Load::WriteOnly => ("mariadb", "sysbench"),
        Load::Set => ("redis", "redis-benchmark"),
        Load::Mixed => ("redis", ""),
        _ => ("", ""),
    }
}

/// Why a load cannot be run on a product here; nothing: it can.
pub(super) fn cannot(product: &dyn Product, programs: &Programs, load: Load) -> Option<String> {
    let (of, program) = belongs(load);
    let speaks_it = product.speaks_sql() || load.is_ycsb();
    if load.is_transactional() && !speaks_it {
        return Some(format!(
            "the load {} is SQL, and {} does not speak it",
            load.name(),
            product.title()
        ));
    }
    if load == Load::Slob || load.is_transactional() {
        return None;
    }
    if of != product.name() {
        return Some(format!("the load {} is for {of}", load.name()));
    }
    (!program.is_empty() && programs.get(program).is_none())
        .then(|| format!("{program} is not installed"))
}

/// The script of sysbench.
fn script(load: Load) -> &'static str {
    match load {
        Load::ReadOnly => "oltp_read_only",
        Load::WriteOnly => "oltp_write_only",
        _ => "oltp_read_write",
    }
}

/// pgbench's scale for so many bytes.
fn pgbench_scale(slob: &slob::Settings) -> u64 {
    (slob.scale.bytes() / PGBENCH_SCALE).max(1)
}

fn sysbench(command: &mut Command, server: &Server, load: Load, slob: &slob::Settings) {
    let rows = (slob.scale.bytes() / SYSBENCH_ROW / u64::from(SYSBENCH_TABLES)).max(100);
    command
        .arg(script(load))
        .arg("--db-driver=mysql")
        .arg(format!("--mysql-socket={}", server.socket().display()));
    command.args([
        "--mysql-user=root",
        "--mysql-db=sbtest",
        &format!("--tables={SYSBENCH_TABLES}"),
    ]);
    command.args([format!("--table-size={rows}"), format!("--rand-seed={}", slob.seed.max(1))]);
}

/// Fills the database for a load.
///
/// # Errors
/// What the program says.
pub(super) fn prepare(
    server: &Server,
    programs: &Programs,
    case: &Case,
    slob: &slob::Settings,
) -> Result<()> {
    let load = case.server.load;
    match load {
        Load::Mixed => return keys::fill(server, &case.server.keys, case.server.keys.keys(slob)),
        load if belongs(load).1.is_empty() || load == Load::Set => return Ok(()),
        _ => {}
    }
    let (_, program) = belongs(load);
    let mut command = server.command(programs.path(program))?;
    match load {
        Load::Tpcb | Load::SimpleUpdate | Load::SelectOnly => {
            command.args(["-i", "-q", "-s", &pgbench_scale(slob).to_string()]);
        }
        Load::ReadWrite | Load::ReadOnly | Load::WriteOnly => {
            server.client()?.batch("CREATE DATABASE sbtest")?;
            sysbench(&mut command, server, load, slob);
            command.arg("prepare");
        }
        _ => return Ok(()),
    }
    finish(command, &server.socket_dir().join("load"), &|| false, &|_| {}, Duration::ZERO)
        .map(|_| ())
}

/// Runs a program to its end; what it printed.
fn finish(
    mut command: Command,
    log: &Path,
    stopped: &dyn Fn() -> bool,
    progress: &dyn Fn(f64),
    expected: Duration,
) -> Result<String> {
    let _ = fs::remove_file(log);
    let program: Vec<String> =
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let name = program.iter().skip_while(|word| *word != "--").nth(1).cloned().unwrap_or_default();
    let failed = |reason: String| Error::Target {
        what: "the load".into(),
        database: name.clone().into(),
        reason,
    };
    command.current_dir(log.parent().unwrap_or(Path::new("/")));
    let mut process = Process::start(command, log)?;
    let began = Instant::now();
    let status = loop {
        if let Some(status) = process.ended() {
            break status;
        }
        if stopped() {
            return Err(Error::Interrupted);
        }
        if began.elapsed() > expected + PATIENCE {
            return Err(failed(format!("it did not end in {:?}", began.elapsed())));
        }
        progress((began.elapsed().as_secs_f64() / expected.as_secs_f64().max(1e-3)).min(1.0));
        std::thread::sleep(LOOK);
    };
    if !status.success() {
        return Err(failed(format!("it ended with {status}; it printed: {}", process.log_end())));
    }
    fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).during("read", log)
}

/// What a program found.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Found {
    pub(super) transactions: u64,
    pub(super) statements: u64,
    pub(super) elapsed_s: f64,
    /// Of a transaction; of `mixed`, of a request.
    pub(super) latency: Latency,
    /// Of what is a transaction of its own, where the program tells: SET.
    pub(super) commit: Latency,
    /// Of what only reads, where the program tells: GET.
    pub(super) select: Latency,
}

/// How long a program runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Amount {
    Time(Duration),
    /// Transactions, of all clients; of `mixed`, requests.
    Count(u64),
}

/// One run of a program.
#[derive(Clone, Copy, Debug)]
struct Job {
    load: Load,
    clients: u32,
    amount: Amount,
}

/// Runs the load of a case, or that of the plan.
///
/// # Errors
/// What the program says; [`Error::Interrupted`].
pub(super) fn measure(target: &ServerTarget, plans: &Plans<'_>) -> Result<Measured> {
    let server = &target.case.server;
    let of_case =
        Job { load: server.load, clients: server.clients, amount: Amount::Time(plans.warm_up) };
    let whole = (plans.warm_up + plans.run_time).as_secs_f64().max(1e-9);
    let (mut job, warm_up) = match plans.program {
        None => {
            let share = plans.warm_up.as_secs_f64() / whole;
            once(target, &of_case, plans, &|part| (plans.progress)(part * share))?;
            (Job { amount: Amount::Time(plans.run_time), ..of_case }, share)
        }
        Some(Program { load, clients, transactions }) => {
            (Job { load, clients, amount: Amount::Count(transactions.max(1)) }, 0.0)
        }
    };
    let because = match job.load {
        load if load == Load::Slob || load.is_transactional() => {
            Some("it is no program of its own".to_owned())
        }
        load => cannot(target.product, &target.programs, load),
    };
    if let Some(reason) = because {
        return Err(Error::Setting { setting: "load", value: job.load.name().into(), reason });
    }
    let rest = |part: f64| (plans.progress)(warm_up + part * (1.0 - warm_up));
    let work = Work::new(job.clients);
    let (mut begin, found) = loop {
        target.settle()?;
        let begin = target.snapshot(&work);
        let found = once(target, &job, plans, &rest)?;
        match job.amount {
            // Nothing ended, on a machine or a disk that is that slow: a run of no transaction
            // would be no figure at all.
            Amount::Time(time) if found.statements == 0 && time <= LONGEST => {
                job.amount = Amount::Time((time * 2).max(Duration::from_secs(2)));
            }
            _ => break (begin, found),
        }
    };
    target.settle()?;
    let mut end = target.snapshot(&work);
    for (snapshot, count) in
        [(&mut begin, (0, 0)), (&mut end, (found.transactions, found.statements))]
    {
        snapshot.add_counter(statistic::USER_COMMITS, "transactions", count.0);
        snapshot.add_counter(statistic::EXECUTE_COUNT, "executions", count.1);
    }
    Ok(Measured {
        begin,
        end,
        elapsed_s: found.elapsed_s.max(1e-9),
        slices: Vec::new(),
        p99_slices_ns: Vec::new(),
        executes: found.statements,
        transactions: found.transactions,
        rows: 0,
        select: found.select,
        update: Latency::default(),
        commit: found.commit,
        response: None,
        transaction: Some(found.latency),
        kinds: Vec::new(),
        counted: Vec::new(),
    })
}

/// One run of the program.
fn once(
    target: &ServerTarget,
    job: &Job,
    plans: &Plans<'_>,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Found> {
    let Job { load, clients, amount } = *job;
    let (_, program) = belongs(load);
    let server = &target.server;
    // Programs take whole seconds.
    let seconds = match amount {
        Amount::Time(time) => time.as_secs_f64().ceil().max(1.0),
        Amount::Count(_) => 1.0,
    };
    let log = server.socket_dir().join("load");
    let wishes = &target.case.server.keys;
    if load == Load::Mixed {
        let (keys, seed) = (wishes.keys(plans.slob), plans.slob.seed);
        let stopped = plans.stopped;
        return keys::run(
            server,
            &keys::Run { settings: wishes, keys, seed, clients, amount, stopped, progress },
        );
    }
    let mut command = server.command(target.programs.path(program))?;
    let finish = |command: Command| {
        finish(command, &log, plans.stopped, progress, Duration::from_secs_f64(seconds))
    };
    match load {
        Load::Tpcb | Load::SimpleUpdate | Load::SelectOnly => {
            let length = match amount {
                Amount::Time(_) => ["-T".to_owned(), seconds.to_string()],
                // It wants those of one client.
                Amount::Count(count) => {
                    ["-t".to_owned(), count.div_ceil(u64::from(clients.max(1))).to_string()]
                }
            };
            command.args(["-n", "-l", "--log-prefix=transactions", "-M", "prepared"]);
            command
                .args(["-c", &clients.to_string(), "-j", &clients.min(2).to_string()])
                .args(length);
            match load {
                Load::SelectOnly => drop(command.arg("-S")),
                Load::SimpleUpdate => drop(command.arg("-N")),
                _ => {}
            }
            let printed = finish(command)?;
            let logs = take_logs(server.socket_dir())?;
            // Beside BEGIN and END.
            let statements = match load {
                Load::SelectOnly => 1,
                Load::SimpleUpdate => 3,
                _ => 5,
            };
            of_pgbench(&printed, &logs, statements)
        }
        Load::ReadWrite | Load::ReadOnly | Load::WriteOnly => {
            sysbench(&mut command, server, load, plans.slob);
            let length = match amount {
                Amount::Time(_) => [format!("--time={seconds}"), "--events=0".to_owned()],
                Amount::Count(count) => ["--time=0".to_owned(), format!("--events={count}")],
            };
            command.arg(format!("--threads={clients}")).args(length);
            command.args(["--histogram=on", "--percentile=99", "run"]);
            of_sysbench(&finish(command)?)
        }
        // redis-benchmark; what has no program was refused.
        _ => {
            let value =
                wishes.value.map_or(super::width(target.product) as u64 * 19, ByteSize::bytes);
            let (mut count, time) = match amount {
                Amount::Time(time) => (100 * u64::from(clients), time),
                Amount::Count(count) => (count, Duration::ZERO),
            };
            let began = Instant::now();
            let mut sum = Found::default();
            // It takes a number of requests, not a time.
            while began.elapsed() < time || sum.transactions == 0 {
                let mut command = server.command(target.programs.path(program))?;
                command.arg("-s").arg(server.socket()).args(["-t", "set", "--csv"]);
                command.args(["-c", &clients.to_string()]);
                command.args(["-d", &value.to_string(), "-P", &wishes.pipeline.to_string()]);
                command.args(["-r", "10000", "-n", &count.to_string()]);
                sum = of_redis(&finish(command)?, count, &sum)?;
                count = (count * 2).min(100_000);
            }
            Ok(sum)
        }
    }
}

fn no_figure(program: &str, printed: &str) -> Error {
    Error::Target {
        what: "reading what the load printed".into(),
        database: program.into(),
        reason: format!(
            "a figure is missing in: {}",
            printed.chars().take(600).collect::<String>()
        ),
    }
}

/// The logs of single transactions, which are removed.
fn take_logs(dir: &Path) -> Result<String> {
    let mut text = String::new();
    for entry in fs::read_dir(dir).during("list", dir)? {
        let path: PathBuf = entry.during("list", dir)?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("transactions."))
        {
            text.push_str(&fs::read_to_string(&path).during("read", &path)?);
            fs::remove_file(&path).during("remove", &path)?;
        }
    }
    Ok(text)
}

/// The first number behind a text.
fn number_after(printed: &str, text: &str) -> Option<f64> {
    let rest = printed.split_once(text)?.1.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

fn latency(histogram: &Histogram, mean_ns: Option<f64>) -> Latency {
    let latency = Latency::of(histogram);
    Latency { mean_ns: mean_ns.unwrap_or(latency.mean_ns), ..latency }
}

/// pgbench prints the rate; its logs have a line for each transaction: client, number,
/// microseconds, ...
fn of_pgbench(printed: &str, logs: &str, statements: u64) -> Result<Found> {
    let missing = || no_figure("pgbench", printed);
    let transactions =
        number_after(printed, "number of transactions actually processed:").ok_or_else(missing)?;
    if transactions == 0.0 {
        return Ok(Found::default());
    }
    let rate = number_after(printed, "tps = ").filter(|rate| *rate > 0.0).ok_or_else(missing)?;
    let mut histogram = Histogram::new();
    for line in logs.lines() {
        if let Some(us) = line.split(' ').nth(2).and_then(|word| word.parse::<u64>().ok()) {
            histogram.record(us.saturating_mul(1000));
        }
    }
    Ok(Found {
        transactions: transactions as u64,
        statements: transactions as u64 * statements,
        elapsed_s: transactions / rate,
        latency: latency(&histogram, None),
        ..Found::default()
    })
}

/// sysbench prints a histogram: `   1.234 |****   56`, the milliseconds of each bucket and how
/// many.
fn of_sysbench(printed: &str) -> Result<Found> {
    let missing = || no_figure("sysbench", printed);
    let number = |text: &str| number_after(printed, text).ok_or_else(missing);
    let mut histogram = Histogram::new();
    for line in printed.lines().filter(|line| line.contains('|')) {
        let Some((ms, rest)) = line.split_once('|') else { continue };
        let count = rest.split_whitespace().last().and_then(|word| word.parse::<u64>().ok());
        if let (Ok(ms), Some(count)) = (ms.trim().parse::<f64>(), count) {
            (0..count).for_each(|_| histogram.record((ms * 1e6) as u64));
        }
    }
    let latency = Latency {
        max_ns: (number("max:")? * 1e6) as u64,
        ..latency(&histogram, Some(number("avg:")? * 1e6))
    };
    Ok(Found {
        transactions: number("transactions:")? as u64,
        statements: number("queries:")? as u64,
        elapsed_s: number("total time:")?,
        latency,
        ..Found::default()
    })
}

/// redis-benchmark prints `"SET","45871.56","0.189","0.048","0.183","0.303","0.479","1.215"`: the
/// rate, then mean, least, median, 95th and 99th percentile and longest in milliseconds. Several
/// runs are added up; of percentiles the worse is kept.
fn of_redis(printed: &str, count: u64, before: &Found) -> Result<Found> {
    let line = printed
        .lines()
        .find(|line| line.starts_with("\"SET\""))
        .ok_or_else(|| no_figure("redis-benchmark", printed))?;
    let figures: Vec<f64> =
        line.split(',').filter_map(|word| word.trim_matches('"').parse().ok()).collect();
    let [rate, mean, _, median, p95, p99, longest] = figures.as_slice() else {
        return Err(no_figure("redis-benchmark", line));
    };
    let transactions = before.transactions + count;
    let ns = |ms: &f64| (ms * 1e6) as u64;
    let weighted = before.latency.mean_ns * before.transactions as f64 + mean * 1e6 * count as f64;
    Ok(Found {
        transactions,
        statements: transactions,
        elapsed_s: before.elapsed_s + count as f64 / rate.max(1e-9),
        latency: Latency {
            count: transactions,
            mean_ns: weighted / transactions as f64,
            median_ns: ns(median).max(before.latency.median_ns),
            p95_ns: ns(p95).max(before.latency.p95_ns),
            p99_ns: ns(p99).max(before.latency.p99_ns),
            // It prints none.
            p999_ns: 0,
            max_ns: ns(longest).max(before.latency.max_ns),
        },
        ..Found::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_prints_is_read() {
        let printed = "number of transactions actually processed: 200\nnumber of failed \
                       transactions: 0 (0.000%)\n\
                       latency average = 1.0 ms\ninitial connection time = 3 ms\ntps = 100.0 \
                       (without initial connection time)\n";
        let logs = "0 1 1500 0 1700000000 1\n0 2 2500 0 1700000000 2\n";
        let found = of_pgbench(printed, logs, 5).unwrap();
        assert_eq!((found.transactions, found.statements, found.elapsed_s), (200, 1000, 2.0));
        assert_eq!(found.latency.count, 2);
        assert!((found.latency.mean_ns - 2_000_000.0).abs() < 1.0);
        assert!(of_pgbench("pgbench: error", "", 1).is_err());
        let nothing = "number of transactions actually processed: 0\nnumber of failed \
                       transactions: 0 (NaN%)\n";
        assert_eq!(of_pgbench(nothing, "", 5).unwrap(), Found::default());
    }

    #[test]
    fn what_sysbench_prints_is_read() {
        let printed = "Latency histogram (values are in milliseconds)\n       value  ------------- \
                       distribution ------------- count\n\
                       \x20      1.000 |**                                       3\n       2.000 \
                       |*   1\n\
                       SQL statistics:\n    transactions:                        4      (2.00 per \
                       sec.)\n    queries:   80 (40.0 per sec.)\n\
                       General statistics:\n    total time:                          \
                       2.0050s\nLatency (ms):\n  min:  0.9\n avg:  1.25\n max:  2.1\n";
        let found = of_sysbench(printed).unwrap();
        assert_eq!((found.transactions, found.statements, found.elapsed_s), (4, 80, 2.005));
        assert_eq!(
            (found.latency.count, found.latency.max_ns, found.latency.mean_ns),
            (4, 2_100_000, 1_250_000.0)
        );
        assert!(of_sysbench("FATAL: no").is_err());
    }

    #[test]
    fn what_redis_benchmark_prints_is_read_and_added_up() {
        let printed = "\"test\",\"rps\",\"avg\"\n\"SET\",\"1000.00\",\"0.100\",\"0.048\",\
                       \"0.090\",\"0.303\",\"0.400\",\"1.200\"\n";
        let one = of_redis(printed, 1000, &Found::default()).unwrap();
        let two = of_redis(printed, 1000, &one).unwrap();
        assert_eq!((two.transactions, two.elapsed_s), (2000, 2.0));
        assert_eq!((two.latency.p99_ns, two.latency.max_ns), (400_000, 1_200_000));
        assert!((two.latency.mean_ns - 100_000.0).abs() < 1.0);
        assert!(of_redis("nothing", 1, &one).is_err());
    }
}

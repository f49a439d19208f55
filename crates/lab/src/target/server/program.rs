//! Loads that are programs of their own: pgbench, sysbench, redis-benchmark, memtier_benchmark.
//! What `keys.rs` asks of Redis is measured in the same way.
//!
//! The warm-up is a run of its own, not measured. The snapshots are taken before and after the
//! measured run, when its clients have gone and the server has added up what their processes
//! counted ([`Product::settle`]).
//!
//! **Invariant**: a figure is what the program printed, or follows from its log of single
//! transactions; no program is given a password, in its arguments or otherwise.
//! **Deliberately absent**: fixed arrivals, slices of a run; reading what a program printed
//! (`programs/`).

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::time::{Duration, Instant};

use tiersmith_awr::statistic;
use tiersmith_dir::Dir;

use super::{ServerTarget, keys};
use crate::case::{Case, Load};
use crate::error::{During, Error, Result};
use crate::process::{Printed, Process};
use crate::programs::{Found, memtier, pgbench, redis_benchmark, sysbench};
use crate::run::{Latency, Measured, Plans, Program};
use crate::server::{Product, Programs, Server};
use crate::size::ByteSize;
use crate::target::{Target, Work, tpcb};
use crate::workload::keys::{Pattern, Ratio, Settings as Keys};
use crate::workload::{oltp, slob};

/// Keys of the load `set`.
pub(crate) const SET_KEYS: u64 = 10_000;
/// How long a load may be prepared, and how much longer than asked it may run.
const PATIENCE: Duration = Duration::from_secs(600);
/// A run in which no transaction ended is not tried again when it was longer.
const LONGEST: Duration = Duration::from_secs(60);
/// Names beside the logs of pgbench's threads, at most.
const LOGS_MAX: usize = 10_000;
/// How long is waited between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Servers that speak Redis's protocol.
const OF_REDIS: &[&str] = &["redis", "valkey", "kv"];

/// Which products a load is for, and the program.
fn belongs(load: Load) -> (&'static [&'static str], &'static str) {
    match load {
        Load::Tpcb | Load::SimpleUpdate | Load::SelectOnly => (&["postgres"], "pgbench"),
        Load::ReadWrite | Load::ReadOnly | Load::WriteOnly => {
            (&["mariadb", "postgres"], "sysbench")
        }
        Load::Set | Load::SetGet => (OF_REDIS, "redis-benchmark"),
        Load::Memtier => (OF_REDIS, "memtier_benchmark"),
        Load::Mixed => (OF_REDIS, ""),
        _ => (&[], ""),
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
    if !of.contains(&product.name()) {
        return Some(format!("the load {} is for {}", load.name(), of.join(" and ")));
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

/// What sysbench is told of the server and the tables.
fn tell_sysbench(command: &mut Command, server: &Server, case: &Case, slob: &slob::Settings) {
    command.arg(script(case.server.load));
    if server.product().name() == "postgres" {
        let dir = server.socket_dir().display();
        command.arg("--db-driver=pgsql").arg(format!("--pgsql-host={dir}"));
        command.args(["--pgsql-port=5432", "--pgsql-user=postgres", "--pgsql-db=postgres"]);
    } else {
        let socket = server.socket();
        command.arg("--db-driver=mysql").arg(format!("--mysql-socket={}", socket.display()));
        command.args(["--mysql-user=root", "--mysql-db=sbtest"]);
    }
    let tables = case.server.sysbench.unwrap_or_else(|| oltp::Tables::fitting(slob));
    command.args([
        format!("--tables={}", tables.count),
        format!("--table-size={}", tables.rows),
        format!("--rand-seed={}", slob.seed.max(1)),
        format!("--rand-type={}", tables.drawn.name()),
    ]);
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
    let wishes = &case.server.keys;
    match load {
        Load::Mixed | Load::Memtier => {
            return keys::fill(server, wishes, wishes.keys(slob), keys::OURS);
        }
        Load::SetGet => {
            return keys::fill(server, wishes, wishes.keys(slob), keys::OF_REDIS_BENCHMARK);
        }
        load if belongs(load).1.is_empty() || load == Load::Set => return Ok(()),
        _ => {}
    }
    let (_, program) = belongs(load);
    let mut command = server.command(programs.path(program))?;
    match load {
        Load::Tpcb | Load::SimpleUpdate | Load::SelectOnly => {
            command.args(["-i", "-q", "-s", &tpcb::branches(slob).to_string()]);
        }
        Load::ReadWrite | Load::ReadOnly | Load::WriteOnly => {
            if server.product().name() == "mariadb" {
                server.client()?.batch("CREATE DATABASE sbtest")?;
            }
            tell_sysbench(&mut command, server, case, slob);
            command.arg("prepare");
        }
        _ => return Ok(()),
    }
    finish(command, server.held_socket_dir(), &|| false, &|_| {}, Duration::ZERO)?;
    if program == "sysbench" && server.product().name() == "postgres" {
        // As every load of ours begins; pgbench does it itself.
        let mut client = server.client()?;
        client.batch("VACUUM ANALYZE")?;
        client.batch("CHECKPOINT")?;
    }
    Ok(())
}

/// Runs a program to its end, in this directory; what it printed.
fn finish(
    mut command: Command,
    dir: &Dir,
    stopped: &dyn Fn() -> bool,
    progress: &dyn Fn(f64),
    expected: Duration,
) -> Result<String> {
    let program: Vec<String> =
        command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let name = program.iter().skip_while(|word| *word != "--").nth(1).cloned().unwrap_or_default();
    let failed = |reason: String| Error::Target {
        what: "the load".into(),
        database: name.clone().into(),
        reason,
    };
    command.current_dir(format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd()));
    let printed = Printed::new()?;
    let mut process = Process::start_printing(command, &printed, &printed)?;
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
    Ok(printed.text())
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

/// One run of the load.
fn once(
    target: &ServerTarget,
    job: &Job,
    plans: &Plans<'_>,
    progress: &(dyn Fn(f64) + Sync),
) -> Result<Found> {
    let once = Once { target, job: *job, plans, progress };
    match job.load {
        Load::Mixed => once.mixed(),
        Load::Tpcb | Load::SimpleUpdate | Load::SelectOnly => once.pgbench(),
        Load::ReadWrite | Load::ReadOnly | Load::WriteOnly => once.sysbench(),
        Load::Memtier => once.memtier(),
        // What has no program was refused.
        _ => once.redis_benchmark(),
    }
}

/// One run of a job.
struct Once<'a> {
    target: &'a ServerTarget,
    job: Job,
    plans: &'a Plans<'a>,
    progress: &'a (dyn Fn(f64) + Sync),
}

impl Once<'_> {
    /// How long a program is told to run: it takes whole seconds.
    fn seconds(&self) -> f64 {
        match self.job.amount {
            Amount::Time(time) => time.as_secs_f64().ceil().max(1.0),
            Amount::Count(_) => 1.0,
        }
    }

    /// How many of a count one client does.
    fn of_one_client(&self, count: u64) -> u64 {
        count.div_ceil(u64::from(self.job.clients.max(1)))
    }

    fn command(&self) -> Result<Command> {
        let (_, program) = belongs(self.job.load);
        self.target.server.command(self.target.programs.path(program))
    }

    fn finish(&self, command: Command) -> Result<String> {
        let expected = Duration::from_secs_f64(self.seconds());
        let dir = self.target.server.held_socket_dir();
        finish(command, dir, self.plans.stopped, self.progress, expected)
    }

    fn mixed(&self) -> Result<Found> {
        let settings = &self.target.case.server.keys;
        let run = keys::Run {
            settings,
            keys: settings.keys(self.plans.slob),
            seed: self.plans.slob.seed,
            clients: self.job.clients,
            amount: self.job.amount,
            stopped: self.plans.stopped,
            progress: self.progress,
        };
        keys::run(&self.target.server, &run)
    }

    fn pgbench(&self) -> Result<Found> {
        let clients = self.job.clients;
        let mut command = self.command()?;
        command.args(["-n", "-l", "--log-prefix=transactions", "-M", "prepared"]);
        command.args(["-c", &clients.to_string(), "-j", &clients.min(2).to_string()]);
        command.args(match self.job.amount {
            Amount::Time(_) => ["-T".to_owned(), self.seconds().to_string()],
            // It wants those of one client.
            Amount::Count(count) => ["-t".to_owned(), self.of_one_client(count).to_string()],
        });
        // Statements beside BEGIN and END.
        let (script, statements) = match self.job.load {
            Load::SelectOnly => (Some("-S"), 1),
            Load::SimpleUpdate => (Some("-N"), 3),
            _ => (None, 5),
        };
        command.args(script);
        let printed = self.finish(command)?;
        pgbench::read(&printed, &take_logs(&self.target.server)?, statements)
    }

    fn sysbench(&self) -> Result<Found> {
        let mut case = self.target.case.clone();
        case.server.load = self.job.load;
        let mut command = self.command()?;
        tell_sysbench(&mut command, &self.target.server, &case, self.plans.slob);
        let length = match self.job.amount {
            Amount::Time(_) => [format!("--time={}", self.seconds()), "--events=0".to_owned()],
            Amount::Count(count) => ["--time=0".to_owned(), format!("--events={count}")],
        };
        command.arg(format!("--threads={}", self.job.clients)).args(length);
        command.args(["--histogram=on", "--percentile=99", "run"]);
        sysbench::read(&self.finish(command)?)
    }

    fn memtier(&self) -> Result<Found> {
        let json = OsStr::new("memtier.json");
        let (server, wishes) = (&self.target.server, &self.target.case.server.keys);
        let clients = self.job.clients;
        let mut command = self.command()?;
        tell_memtier(&mut command, server, wishes, wishes.keys(self.plans.slob));
        // It divides its clients among threads.
        let threads = [4, 2].into_iter().find(|n| clients.is_multiple_of(*n)).unwrap_or(1);
        command.arg(format!("--threads={threads}"));
        command.arg(format!("--clients={}", clients / threads));
        command.arg(match self.job.amount {
            Amount::Time(_) => format!("--test-time={}", self.seconds()),
            Amount::Count(count) => format!("--requests={}", self.of_one_client(count)),
        });
        // In the directory it runs in.
        command.arg("--json-out-file=memtier.json");
        let _ = server.held_socket_dir().remove(json);
        self.finish(command)?;
        memtier::read(&server.read_written(json)?)
    }

    /// Runs redis-benchmark until the time is over: it takes a number of requests.
    fn redis_benchmark(&self) -> Result<Found> {
        let Job { load, clients, amount } = self.job;
        let (server, wishes) = (&self.target.server, &self.target.case.server.keys);
        let (value, keys) = match load {
            Load::SetGet => (wishes.value_bytes(), wishes.keys(self.plans.slob)),
            _ => (set_value(self.target.product, wishes), SET_KEYS),
        };
        let (mut count, time) = match amount {
            Amount::Time(time) => (100 * u64::from(clients), time),
            Amount::Count(count) => (count, Duration::ZERO),
        };
        let kinds = match (load, wishes.ratio) {
            (Load::SetGet, Ratio { gets: 0, .. }) | (Load::Set, _) => "set",
            (_, Ratio { sets: 0, .. }) => "get",
            _ => "set,get",
        };
        let began = Instant::now();
        let mut sum = Found::default();
        while began.elapsed() < time || sum.statements == 0 {
            let mut command = self.command()?;
            command.arg("-s").arg(server.socket()).args(["-t", kinds, "--csv"]);
            command.args(["-c", &clients.to_string()]);
            command.args(["-d", &value.to_string(), "-P", &wishes.pipeline.to_string()]);
            command.args(["-r", &keys.to_string(), "-n", &count.to_string()]);
            let printed = self.finish(command)?;
            sum = if load == Load::SetGet {
                redis_benchmark::read_mixed(&printed, count, wishes.ratio, &sum)?
            } else {
                redis_benchmark::read_sets(&printed, count, &sum)?
            };
            count = (count * 2).min(100_000);
        }
        Ok(sum)
    }
}

/// What memtier_benchmark is told of the server and the requests: those of the load `mixed`.
fn tell_memtier(command: &mut Command, server: &Server, wishes: &Keys, keys: u64) {
    let pattern = match wishes.pattern {
        Pattern::Gaussian => "G:G",
        Pattern::Uniform => "R:R",
        Pattern::Sequential => "P:P",
    };
    command.arg("-S").arg(server.socket()).args([
        format!("--ratio={}", wishes.ratio),
        format!("--pipeline={}", wishes.pipeline),
        format!("--data-size={}", wishes.value_bytes()),
        // The keys that have values; it takes none with the number 0.
        "--key-prefix=tiersmith-".to_owned(),
        "--key-minimum=1".to_owned(),
        format!("--key-maximum={}", keys.saturating_sub(1).max(1)),
        format!("--key-pattern={pattern}"),
    ]);
    command.args(["--distinct-client-seed", "--hide-histogram"]);
    command.arg("--print-percentiles=50,95,99,99.9");
}

/// Bytes of a value of `set`: as many as a row of SLOB has, if nobody says otherwise.
pub(crate) fn set_value(product: &dyn Product, wishes: &Keys) -> u64 {
    wishes.value.map_or(super::width(product) as u64 * 19, ByteSize::bytes)
}

/// The logs of single transactions, which are removed.
fn take_logs(server: &Server) -> Result<String> {
    let (dir, path) = (server.held_socket_dir(), server.socket_dir());
    let names = dir.names(LOGS_MAX).during("list", path)?;
    let of_pgbench = |name: &&OsString| name.as_bytes().starts_with(b"transactions.");
    let mut text = String::new();
    for name in names.iter().filter(of_pgbench) {
        text.push_str(&server.read_written(name)?);
        dir.remove(name).during("remove", path.join(name))?;
    }
    Ok(text)
}

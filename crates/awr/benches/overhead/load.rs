//! Throughput with a recorder and without: pgbench's TPC-B on PostgreSQL, sysbench's read-write mix on MariaDB.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tiersmith_awr::record::{Plan, Recorder};
use tiersmith_awr::sources::{LiveSource, Surroundings};

use crate::cost;
use crate::report::Report;
use crate::servers::{self, Server, program};

/// Clients of both loads: one for each processor of a small machine.
const CLIENTS: &str = "2";

/// The output of a program that must succeed.
fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?} ended with {}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The number before a word in a line that has the mark.
fn number(text: &str, mark: &str, skip: usize) -> f64 {
    let line = text.lines().find(|line| line.contains(mark)).unwrap_or_else(|| panic!("no {mark} in {text}"));
    let numbers = line.split(|c: char| !(c.is_ascii_digit() || c == '.'));
    numbers.filter_map(|word| word.parse().ok()).nth(skip).unwrap()
}

/// Runs a load with and without a recorder in turns.
fn turns(
    report: &mut Report,
    what: &str,
    key: &str,
    source: &dyn Fn() -> Box<dyn LiveSource>,
    rate: &dyn Fn() -> f64,
) -> f64 {
    // A sync of the repository would write out what the server, whose syncs are off, has left to the page cache of one file system.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    report.config(
        &format!("{key}_repository"),
        if dir.path().starts_with("/dev/shm") { "tmpfs" } else { "beside the server" },
    );
    let every = Duration::from_secs(60);
    // The first snapshot is taken before the load: the second comes in the middle of it.
    let ahead = if report.quick() { Duration::ZERO } else { every / 2 };
    let plan = Plan { every, length: None, sample: Some(Duration::from_secs(1)), keep: None };
    let rounds = if report.quick() { 3 } else { 10 };
    let (mut lost, mut recorder_cpu) = (Vec::new(), Vec::new());
    let with_recorder = |cpu: &mut Vec<f64>| {
        let recorder = Recorder::begin(vec![source()], &dir.path().join("awr.db"), plan).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let recording = scope.spawn(|| recorder.run(&|| over.load(Ordering::Relaxed)).unwrap());
            std::thread::sleep(ahead);
            let (began, used) = (Instant::now(), processor_s());
            let rate = rate();
            cpu.push((processor_s() - used) / began.elapsed().as_secs_f64() * 100.0);
            over.store(true, Ordering::Relaxed);
            let recorded = recording.join().unwrap();
            let inside = recorded.iter().all(|of| of.taken.len() == 3 && of.gaps == 0);
            assert!(inside || ahead.is_zero(), "one snapshot before the load, one in it, one after it");
            rate
        })
    };
    rate();
    for round in 0..rounds {
        let (without, with) = if round % 2 == 0 {
            let without = rate();
            (without, with_recorder(&mut recorder_cpu))
        } else {
            let with = with_recorder(&mut recorder_cpu);
            (rate(), with)
        };
        report.run_in("1/s", what, "no recorder", vec![without]);
        report.run_in("1/s", what, "recorder, samples each second", vec![with]);
        lost.push((1.0 - with / without) * 100.0);
    }
    lost.sort_by(f64::total_cmp);
    let at = |share: f64| lost[((lost.len() - 1) as f64 * share).round() as usize];
    let median = (lost[(lost.len() - 1) / 2] + lost[lost.len() / 2]) / 2.0;
    report.ratio(&format!("{key}_overhead_pct"), median);
    report.ratio(&format!("{key}_overhead_spread_pct"), at(0.75) - at(0.25));
    report.config(&format!("{key}_pairs_of_rounds"), rounds);
    report.config(&format!("{key}_snapshot_every_s"), every.as_secs());
    if at(0.75) - at(0.25) > 1.0 {
        report.warn(format!(
            "pairs of {what} differ by more than one point: the overhead is below what this run can tell"
        ));
    }
    recorder_cpu.sort_by(f64::total_cmp);
    recorder_cpu[recorder_cpu.len() / 2]
}

/// Processor time of this process.
pub(crate) fn processor_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

pub(crate) fn pgbench(report: &mut Report, server: &Server) {
    let Some(pgbench) = program("pgbench") else {
        return report.warn("pgbench is not installed: the overhead on PostgreSQL was not measured");
    };
    let command = |arguments: &[&str]| {
        let mut command = Command::new(&pgbench);
        command.arg("-h").arg(server.path("")).args(["-U", "postgres"]).args(arguments).arg("postgres");
        output(&mut command)
    };
    command(&["-i", "-q", "-s", "4"]);
    let seconds = if report.quick() { "2" } else { "60" };
    report.config("pgbench", format!("-n -T {seconds} -c {CLIENTS} -s 4, TPC-B"));
    let rate = || number(&command(&["-n", "-T", seconds, "-c", CLIENTS]), "tps = ", 0);
    let url = format!("postgresql://postgres@/postgres?host={}", server.path("").display());
    let source = || server.source(&url, &Surroundings::default()).unwrap();
    let cpu = turns(report, "PostgreSQL, TPC-B", "pg", &source, &rate);
    report.ratio("pg_recorder_cpu_pct", cpu);
    cost::counted(report, server, source().as_mut());
}

pub(crate) fn sysbench(report: &mut Report) {
    let (Some(sysbench), Some(server)) = (program("sysbench"), servers::mariadb("MariaDB")) else {
        return report.warn("sysbench or MariaDB is not installed: the overhead on MariaDB was not measured");
    };
    let socket = server.path("my.sock");
    let mut client =
        mysql::Conn::new(mysql::OptsBuilder::new().socket(socket.to_str()).user(Some("root"))).unwrap();
    mysql::prelude::Queryable::query_drop(&mut client, "CREATE DATABASE d").unwrap();
    mysql::prelude::Queryable::query_drop(&mut client, "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        .unwrap();
    let command = |what: &str| {
        let mut command = Command::new(&sysbench);
        command.args([
            "oltp_read_write",
            "--db-driver=mysql",
            "--mysql-user=root",
            "--mysql-db=d",
            "--tables=2",
        ]);
        command.args(["--table-size=20000", "--time=60", "--threads=2"]);
        command.arg(format!("--mysql-socket={}", socket.display())).arg(what);
        output(&mut command)
    };
    command("prepare");
    report.config("sysbench", "oltp_read_write --tables=2 --table-size=20000 --time=60 --threads=2, performance_schema with all waits");
    let rate = || number(&command("run"), "transactions:", 1);
    let url = format!("mariadb://root@/?socket={}", socket.display());
    let source = || server.source(&url, &Surroundings::default()).unwrap();
    turns(report, "MariaDB, sysbench read-write", "mariadb", &source, &rate);
}

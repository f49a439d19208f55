//! Throughput with a recorder and without: pgbench's TPC-B on PostgreSQL, sysbench's read-write mix
//! on MariaDB.
//!
//! One load runs all the time; slots of it take turns: nobody records, a recorder does at its
//! defaults, a recorder asks [`OFTENER`] times as often. What was committed in a slot the server
//! itself counts. Slots that follow each other are compared, and their order is turned round from
//! one trio to the next, so that a machine which becomes slower or faster favours none.
//!
//! A recorder at its defaults takes less than slots of the same load differ by. What one that asks
//! [`OFTENER`] times as often takes can be seen, and that divided by [`OFTENER`] is what one at its
//! defaults takes, or more than that: who asks more often is in the way more.
//!
//! Deliberately absent: the processor time of a look and a snapshot, counted (`cost.rs`).

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tiersmith_awr::record::{Plan, Recorder};
use tiersmith_awr::sources::{LiveSource, Surroundings};

use crate::cost;
use crate::gate::{Gate, Gated};
use crate::report::Report;
use crate::servers::{self, Server, program};
use crate::whole;

/// Clients of both loads: one for each processor of a small machine.
const CLIENTS: &str = "2";
/// A slot.
const SLOT: Duration = Duration::from_millis(500);
/// How often the second recorder asks, in times of the defaults.
const OFTENER: u32 = 60;
/// The defaults: a look a second, a snapshot a minute.
const LOOK: Duration = Duration::from_secs(1);
const SNAPSHOT: Duration = Duration::from_secs(60);
/// Before the first slot.
const WARM_UP: Duration = Duration::from_secs(2);
/// Who records in a slot.
const ARMS: [&str; 3] =
    ["no recorder", "recorder at its defaults", "recorder that asks 60 times as often"];

/// A load that ends with this value.
pub(crate) struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Running {
        Running(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    pub(crate) fn must_run(&mut self) {
        let ended = self.0.try_wait().unwrap();
        assert!(ended.is_none(), "the load ended by itself: {ended:?}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ends recordings, also when the benchmark fails: their threads would be waited for otherwise.
struct Ending<'a> {
    over: &'a AtomicBool,
    gates: [Arc<Gate>; 2],
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.gates.iter().for_each(|gate| gate.open());
    }
}

/// What a product's load is called in the report, and how it is asked.
struct Loaded<'a> {
    what: &'a str,
    key: &'a str,
    source: &'a dyn Fn() -> Box<dyn LiveSource>,
    /// Transactions committed until now.
    committed: &'a mut dyn FnMut() -> f64,
}

/// Slots in turns, while `running` runs.
fn turns(report: &mut Report, trios: usize, mut running: Running, of: &mut Loaded<'_>) {
    let (what, key) = (of.what, of.key);
    // A sync of the repository would write out what the server, whose syncs are off, has left to
    // the page cache of one file system.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let place = if dir.path().starts_with("/dev/shm") { "tmpfs" } else { "beside the server" };
    report.config(&format!("{key}_repository"), place);
    report.config(&format!("{key}_slots_ms"), SLOT.as_millis() as u64);
    report.config(&format!("{key}_trios_of_slots"), trios);
    let over = AtomicBool::new(false);
    let gates = [Arc::<Gate>::default(), Arc::default()];
    gates.iter().for_each(|gate| gate.open());
    let recorder = |n: usize| {
        let times = if n == 0 { 1 } else { OFTENER };
        let plan =
            Plan { every: SNAPSHOT / times, length: None, sample: Some(LOOK / times), keep: None };
        let source: Box<dyn LiveSource> =
            Box::new(Gated { source: (of.source)(), gate: gates[n].clone() });
        Recorder::begin(vec![source], &dir.path().join(format!("awr-{n}.db")), plan).unwrap()
    };
    let recorders = [0, 1].map(recorder);
    gates.iter().for_each(|gate| gate.close());
    let asked_before = gates.each_ref().map(|gate| gate.asked());
    let (mut trials, mut cpu, mut spent) = (Vec::new(), Vec::new(), [0.0; 3]);
    std::thread::scope(|scope| {
        let ending = Ending { over: &over, gates: gates.clone() };
        for recorder in recorders {
            let over = &over;
            scope.spawn(move || recorder.run(&|| over.load(Ordering::Relaxed)).unwrap());
        }
        std::thread::sleep(WARM_UP);
        for trio in 0..trios {
            let mut rates = [0.0_f64; 3];
            let order = if trio % 2 == 0 { [0_usize, 1, 2] } else { [2, 1, 0] };
            for arm in order {
                running.must_run();
                let gate = arm.checked_sub(1).map(|n| &gates[n]);
                let (began, used, committed) = (Instant::now(), processor_s(), (of.committed)());
                gate.iter().for_each(|gate| gate.open());
                std::thread::sleep(SLOT);
                gate.iter().for_each(|gate| gate.close());
                let committed = (of.committed)() - committed;
                let seconds = began.elapsed().as_secs_f64();
                rates[arm] = committed / seconds;
                spent[arm] += seconds;
                report.run_in("1/s", what, ARMS[arm], vec![rates[arm]]);
                if arm == 1 {
                    cpu.push((processor_s() - used) / seconds * 100.0);
                }
            }
            trials.push(rates);
        }
        let asked: Vec<[f64; 2]> = (0..2)
            .map(|n| {
                [0, 1].map(|of| (gates[n].asked()[of] - asked_before[n][of]) as f64 / spent[n + 1])
            })
            .collect();
        drop(ending);
        tell(report, of, &asked, &trials);
    });
    cpu.sort_by(f64::total_cmp);
    report.ratio(&format!("{key}_recorder_cpu_pct"), cpu[cpu.len() / 2]);
}

/// Tells what recorders cost, by how often each asked (looks and snapshots a second) and the rates
/// without one and with each.
fn tell(report: &mut Report, of: &Loaded<'_>, asked: &[[f64; 2]], trials: &[[f64; 3]]) {
    let (what, key) = (of.what, of.key);
    // Where the server times its waits itself nobody looks at its sessions: only snapshots
    // count then.
    let looks = Some(asked[1][0] * LOOK.as_secs_f64()).filter(|looks| *looks > 1.0);
    let times = looks.unwrap_or(f64::INFINITY).min(asked[1][1] * SNAPSHOT.as_secs_f64());
    assert!(times > 1.0, "the second recorder asked more often than the defaults: {asked:?}");
    for (n, row) in [(0, "at its defaults"), (1, "oftener")] {
        report.config(&format!("{key}_looks_per_s_{row}"), asked[n][0]);
        report.config(&format!("{key}_snapshots_per_min_{row}"), asked[n][1] * 60.0);
    }
    let lost =
        |arm: usize| trials.iter().map(|rates| (1.0 - rates[arm] / rates[0]) * 100.0).collect();
    let direct = Interval::of(lost(1));
    direct.tell(report, &format!("{key}_overhead_direct"), 1.0);
    let oftener = Interval::of(lost(2));
    oftener.tell(report, &format!("{key}_overhead_60x"), 1.0);
    oftener.tell(report, &format!("{key}_overhead"), times);
    report.note(format!(
        "{what}: with 95 % certainty a recorder at its defaults takes between {:.2} and {:.2} \
         % of the throughput, and one that asks \
         {times:.0} times as often between {:.1} and {:.1} %, which is {:.3} to {:.3} % by \
         {times:.0}; below zero is noise",
        direct.low,
        direct.high,
        oftener.low,
        oftener.high,
        oftener.low / times,
        oftener.high / times
    ));
}

/// A median, and between what it lies with 95 % certainty: figures of ranks, whatever the figures
/// are spread like.
#[derive(Clone, Copy, Debug)]
struct Interval {
    low: f64,
    median: f64,
    high: f64,
}

impl Interval {
    fn of(mut figures: Vec<f64>) -> Interval {
        figures.sort_by(f64::total_cmp);
        let n = figures.len();
        // How many of n tosses of a coin are heads: the ranks beyond which the median lies with at
        // most 2.5 % on either side.
        let (mut below, mut exactly, mut rank) = (0.0_f64, 0.5_f64.powi(n as i32), 0);
        while below + exactly <= 0.025 {
            below += exactly;
            exactly *= (n - rank) as f64 / (rank + 1) as f64;
            rank += 1;
        }
        let rank = rank.saturating_sub(1);
        let median = (figures[(n - 1) / 2] + figures[n / 2]) / 2.0;
        Interval { low: figures[rank], median, high: figures[n - 1 - rank] }
    }

    fn tell(&self, report: &mut Report, key: &str, by: f64) {
        report.ratio(&format!("{key}_pct"), self.median / by);
        report.ratio(&format!("{key}_low_pct"), self.low / by);
        report.ratio(&format!("{key}_high_pct"), self.high / by);
    }
}

/// Processor time of this process.
pub(crate) fn processor_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Trios of slots.
fn trios(report: &Report) -> usize {
    if report.quick() { 9 } else { 80 }
}

fn succeed(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn pgbench(report: &mut Report, server: &Server) {
    let Some(pgbench) = program("pgbench") else {
        return report
            .warn("pgbench is not installed: the overhead on PostgreSQL was not measured");
    };
    let command = |arguments: &[&str]| {
        let mut command = Command::new(&pgbench);
        command
            .arg("-h")
            .arg(server.path(""))
            .args(["-U", "postgres"])
            .args(arguments)
            .arg("postgres");
        command
    };
    succeed(&mut command(&["-i", "-q", "-s", "4"]));
    report.config("pgbench", format!("-n -c {CLIENTS} -s 4, TPC-B"));
    let config = format!("host={} user=postgres dbname=postgres", server.path("").display());
    let mut client = postgres::Client::connect(&config, postgres::NoTls).unwrap();
    // The number of the next transaction: each of this load has one, and it is counted at once.
    let mut committed = || {
        let row =
            client.query_one("SELECT pg_snapshot_xmax(pg_current_snapshot())::text", &[]).unwrap();
        row.get::<_, String>(0).parse().unwrap()
    };
    let url = format!("postgresql://postgres@/postgres?host={}", server.path("").display());
    let source = || server.source(&url, &Surroundings::default()).unwrap();
    let mut load = command(&["-n", "-T", "3600", "-c", CLIENTS]);
    let running = Running::start(&mut load);
    let mut of =
        Loaded { what: "PostgreSQL, TPC-B", key: "pg", source: &source, committed: &mut committed };
    turns(report, trios(report), running, &mut of);
    whole::recording(report, server, &url, Running::start(&mut load));
    cost::counted(report, server, source().as_mut());
}

pub(crate) fn sysbench(report: &mut Report) {
    let (Some(sysbench), Some(server)) = (program("sysbench"), servers::mariadb("MariaDB")) else {
        return report.warn(
            "sysbench or MariaDB is not installed: the overhead on MariaDB was not measured",
        );
    };
    let socket = server.path("my.sock");
    let options = mysql::OptsBuilder::new().socket(socket.to_str()).user(Some("root"));
    let mut client = mysql::Conn::new(options).unwrap();
    for statement in ["CREATE DATABASE d", "SET GLOBAL innodb_flush_log_at_trx_commit = 2"] {
        mysql::prelude::Queryable::query_drop(&mut client, statement).unwrap();
    }
    let command = |socket: &Path, what: &str| {
        let mut command = Command::new(&sysbench);
        command.args(["oltp_read_write", "--db-driver=mysql", "--mysql-user=root", "--mysql-db=d"]);
        command.args(["--tables=2", "--table-size=20000", "--time=3600", "--threads=2"]);
        command.arg(format!("--mysql-socket={}", socket.display())).arg(what);
        command
    };
    succeed(&mut command(&socket, "prepare"));
    report.config(
        "sysbench",
        "oltp_read_write --tables=2 --table-size=20000 --threads=2, performance_schema with all \
         waits",
    );
    let mut committed = || {
        let asked = "SHOW GLOBAL STATUS LIKE 'Com_commit'";
        let row: Option<(String, String)> =
            mysql::prelude::Queryable::query_first(&mut client, asked).unwrap();
        row.unwrap().1.parse().unwrap()
    };
    let url = format!("mariadb://root@/?socket={}", socket.display());
    let source = || server.source(&url, &Surroundings::default()).unwrap();
    let running = Running::start(&mut command(&socket, "run"));
    let mut of = Loaded {
        what: "MariaDB, sysbench read-write",
        key: "mariadb",
        source: &source,
        committed: &mut committed,
    };
    turns(report, trios(report), running, &mut of);
}

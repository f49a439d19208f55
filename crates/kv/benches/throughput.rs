//! Durable SETs and GETs, the CPU they cost, the time to serve again, and the space of a pair: this
//! server beside a real Redis, and a real Valkey where there is one.
//!
//! `cargo bench -p tiersmith-kv --bench throughput -- [--quick] [--recovery] [--io-threads]`; it
//! writes `target/bench/throughput.json`; `--recovery`: space and recovery only; `--io-threads`:
//! only this server and Redis with 1, 2 and 4 I/O threads.
//! Needs `redis-server` and `redis-benchmark`. The peer `valkey-server` is the one that the
//! environment variable `TIERSMITH_VALKEY` names, else that of the PATH, else left out.
//!
//! The tier is a file in `/dev/shm` and stands for persistent memory (EMULATED); so do the peers'
//! logs with `appendfsync always`. Load: `redis-benchmark`, 50 clients over a unix socket, random
//! keys of 100,000. Peers take turns, round by round, and begin in turn. Load generator and server
//! share the cores, so the server's CPU time is printed beside each throughput.
//!
//! | key of `ratios` | is |
//! |---|---|
//! | `set64_p16_over_redis_none`, `set64_p1_over_redis_none` | SETs of 64 bytes a second over those of Redis without persistence, 16 or 1 at once |
//! | `set4k_p16_over_redis_none`, `set4k_p16_over_redis_always` | the same of 4 KiB, also over Redis with a sync for each write |
//! | `get64_p16_over_redis`, `get64_p1_over_redis` | GETs a second over those of Redis |
//! | `..._over_valkey...` | each of these over Valkey |
//! | `set64_p16_cpu_over_redis_none`, ... | the server's CPU time of a request over that of Redis |
//! | `set64_p16_p99_over_redis_none`, ... | the 99th percentile of latency over that of Redis |
//! | `cpu_us_per_set`, `cpu_us_per_set_redis` | CPU microseconds of the server for a SET of 64 bytes, 16 at once |
//! | `recovery_N_keys_ms` | milliseconds from the start of the process after SIGKILL to the first reply, with so many keys: 1m, 5m and 20m |
//! | `set64_p1_io2_executing_over_alone`, ... | with two (or four) I/O threads, the CPU time of a request on the thread that executes, over that without them: what it was relieved of |
//! | `bytes_per_pair_over_redis` | bytes in use for a key and value of 100 bytes together over those of Redis |

#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

#[path = "../../../benches/report.rs"]
mod report;

use std::error::Error;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::AtomicI32;
use std::time::{Duration, Instant};

use report::Report;
use tiersmith_kv::{Configuration, Server};
use tiersmith_pmem::{Access, Mapping, OpenOptions};

type Failed = Box<dyn Error>;

/// In the environment of the process that serves: the tier's directory.
const SERVES: &str = "TIERSMITH_BENCH_KV";
const SIZE: &str = "TIERSMITH_BENCH_KV_SIZE";
const THREADS: &str = "TIERSMITH_BENCH_KV_IO_THREADS";
const OURS: &str = "tiersmith kv";
const NONE: &str = "redis, no persistence";
const ALWAYS: &str = "redis, appendfsync always";
const VALKEY_NONE: &str = "valkey, no persistence";
const VALKEY_ALWAYS: &str = "valkey, appendfsync always";

/// Settings of a peer that syncs each write.
const APPENDS: &[&str] = &["--appendonly", "yes", "--appendfsync", "always"];

/// What is asked of each server.
struct Case {
    /// The beginning of its keys in `ratios`.
    key: &'static str,
    /// The name of its table.
    group: &'static str,
    test: &'static str,
    /// Of a value.
    bytes: u32,
    /// Requests that a client sends at once.
    pipeline: u32,
}

const CASES: [Case; 5] = [
    Case { key: "set64_p16", group: "SET 64 B, pipeline 16", test: "set", bytes: 64, pipeline: 16 },
    Case { key: "set64_p1", group: "SET 64 B, pipeline 1", test: "set", bytes: 64, pipeline: 1 },
    Case {
        key: "set4k_p16",
        group: "SET 4 KiB, pipeline 16",
        test: "set",
        bytes: 4096,
        pipeline: 16,
    },
    Case { key: "get64_p16", group: "GET 64 B, pipeline 16", test: "get", bytes: 64, pipeline: 16 },
    Case { key: "get64_p1", group: "GET 64 B, pipeline 1", test: "get", bytes: 64, pipeline: 1 },
];

/// What a server did of a load.
struct Done {
    /// Requests a second.
    rate: f64,
    /// 99th percentile of the latency, in milliseconds.
    p99_ms: f64,
    /// CPU microseconds of the server for a request.
    cpu_us: f64,
    /// Those of its main thread, which executes.
    executing_us: f64,
}

fn main() -> ExitCode {
    if let Some(directory) = std::env::var_os(SERVES) {
        return match serve(Path::new(&directory)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(2),
        };
    }
    let mut report = Report::from_args("throughput", "Keys and values in persistent memory");
    match run(&mut report) {
        Ok(()) => report.finish(),
        Err(e) => {
            report.warn(format!("it ended early: {e}"));
            report.finish();
            ExitCode::from(2)
        }
    }
}

fn serve(directory: &Path) -> Result<(), Failed> {
    let tier = directory.join("tier");
    let there = tier.exists();
    let len = if there { 0 } else { std::env::var(SIZE)?.parse()? };
    let mut options = OpenOptions::new(Access::Emulated, len);
    options.create = !there;
    options.preallocate = !there;
    let mut configuration = Configuration::default();
    configuration.set("port", "0")?;
    configuration.set("unixsocket", &directory.join("socket").to_string_lossy())?;
    configuration.set("io-threads", &std::env::var(THREADS).unwrap_or_else(|_| "1".to_owned()))?;
    Server::open(Mapping::open(&tier, &options)?, configuration)?.serve(&AtomicI32::new(0))?;
    Ok(())
}

/// A server that is killed when it is dropped.
struct Running {
    child: Child,
    socket: PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(mut command: Command, socket: PathBuf) -> Result<Running, Failed> {
        let _ = std::fs::remove_file(&socket);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let running = Running { child, socket };
        let began = Instant::now();
        while running.say("PING").is_err() {
            if began.elapsed() > Duration::from_secs(120) {
                return Err("a server does not answer".into());
            }
            std::thread::sleep(Duration::from_micros(300));
        }
        Ok(running)
    }

    fn ours(directory: &Path, size: u64, threads: u32) -> Result<Running, Failed> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(SERVES, directory).env(SIZE, size.to_string());
        command.env(THREADS, threads.to_string());
        Running::start(command, directory.join("socket"))
    }

    /// A Redis or Valkey, whose program is `server`.
    fn peer(
        directory: &Path,
        name: &str,
        server: &OsStr,
        settings: &[&str],
    ) -> Result<Running, Failed> {
        let directory = &directory.join(name);
        std::fs::create_dir(directory)?;
        let socket = directory.join("socket");
        let mut command = Command::new(server);
        command.args(["--port", "0", "--save", "", "--dir"]).arg(directory);
        command.arg("--unixsocket").arg(&socket).args(settings);
        Running::start(command, socket)
    }

    fn say(&self, line: &str) -> Result<String, Failed> {
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.write_all(format!("{line}\r\n").as_bytes())?;
        let mut input = BufReader::new(stream);
        let mut reply = String::new();
        input.read_line(&mut reply)?;
        if let Some(len) = reply.strip_prefix('$').and_then(|len| len.trim().parse().ok()) {
            let mut bytes: Vec<u8> = vec![0; len];
            input.read_exact(&mut bytes)?;
            reply = String::from_utf8_lossy(&bytes).into_owned();
        }
        if reply.starts_with("-LOADING") || reply.is_empty() {
            return Err("not yet".into());
        }
        Ok(reply)
    }

    fn number(&self, section: &str, name: &str) -> Result<f64, Failed> {
        let info = self.say(&format!("INFO {section}"))?;
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        Ok(line.ok_or("INFO lacks a line")?.trim().parse()?)
    }

    /// CPU time of all its threads and of its main thread, in microseconds.
    fn cpu_us(&self) -> Result<(f64, f64), Failed> {
        let (mut all, mut main) = (0.0, 0.0);
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let thread = thread?;
            let text = std::fs::read_to_string(thread.path().join("schedstat"))?;
            let ns = text.split_whitespace().next().ok_or("no schedstat")?.parse::<f64>()?;
            all += ns / 1e3;
            if thread.file_name().to_str() == Some(self.child.id().to_string().as_str()) {
                main = ns / 1e3;
            }
        }
        Ok((all, main))
    }

    fn load(&self, case: &Case, requests: u32) -> Result<Done, Failed> {
        let before = self.cpu_us()?;
        let output = Command::new("redis-benchmark")
            .arg("-s")
            .arg(&self.socket)
            .args(["-t", case.test, "--csv", "-c", "50", "-r", "100000"])
            .args(["-d", &case.bytes.to_string(), "-P", &case.pipeline.to_string()])
            .args(["-n", &requests.to_string()])
            .output()?;
        let after = self.cpu_us()?;
        let [cpu_us, executing_us] =
            [after.0 - before.0, after.1 - before.1].map(|us| us / f64::from(requests));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut rows = text.lines().map(|line| line.split(',').map(|cell| cell.trim_matches('"')));
        let names: Vec<&str> = rows.next().ok_or("redis-benchmark says nothing")?.collect();
        let cells: Vec<&str> = rows.next().ok_or("redis-benchmark gives no figures")?.collect();
        let figure = |name: &str| -> Result<f64, Failed> {
            let column = names.iter().position(|one| *one == name);
            let cell = column.and_then(|column| cells.get(column));
            Ok(cell.ok_or_else(|| format!("redis-benchmark gives no {name}"))?.parse()?)
        };
        let (rate, p99_ms) = (figure("rps")?, figure("p99_latency_ms")?);
        Ok(Done { rate, p99_ms, cpu_us, executing_us })
    }

    /// Puts pairs of a key of 12 bytes and a value of 88.
    fn fill(&self, pairs: u64) -> Result<(), Failed> {
        let stream = UnixStream::connect(&self.socket)?;
        let (mut out, mut input) = (stream.try_clone()?, stream);
        let value = "v".repeat(88);
        for first in (0..pairs).step_by(1000) {
            let mut bytes = Vec::new();
            let count = 1000.min(pairs - first);
            for n in first..first + count {
                write!(bytes, "*3\r\n$3\r\nSET\r\n$12\r\nk{n:011}\r\n$88\r\n{value}\r\n")?;
            }
            out.write_all(&bytes)?;
            let mut replies = vec![0; 5 * count as usize];
            input.read_exact(&mut replies)?;
            if replies.chunks_exact(5).any(|reply| reply != b"+OK\r\n") {
                return Err("a SET failed".into());
            }
        }
        Ok(())
    }
}

fn run(report: &mut Report) -> Result<(), Failed> {
    report.warn("the tier is EMULATED: a file in /dev/shm");
    if report.has_option("--io-threads") {
        return io_threads(report);
    }
    if !report.has_option("--recovery") {
        throughput(report)?;
    }
    space(report)?;
    // The largest takes 4.5 GB of memory.
    for (name, keys) in [("1m", 1_000_000), ("5m", 5_000_000), ("20m", 20_000_000)] {
        recovery(report, name, keys)?;
    }
    Ok(())
}

/// The first line of what a program says of its version.
fn version(program: &OsStr) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned())
}

fn throughput(report: &mut Report) -> Result<(), Failed> {
    let scratch = tempfile::tempdir_in("/dev/shm")?;
    let redis = OsStr::new("redis-server");
    let valkey = std::env::var_os("TIERSMITH_VALKEY").unwrap_or_else(|| "valkey-server".into());
    let mut servers = vec![(OURS, Running::ours(scratch.path(), 2 << 30, 1)?)];
    report.version("redis", &version(redis).ok_or("there is no redis-server")?);
    servers.push((NONE, Running::peer(scratch.path(), "redis-none", redis, &[])?));
    servers.push((ALWAYS, Running::peer(scratch.path(), "redis-always", redis, APPENDS)?));
    if let Some(version) = version(&valkey) {
        report.version("valkey", &version);
        servers.push((VALKEY_NONE, Running::peer(scratch.path(), "none", &valkey, &[])?));
        servers.push((VALKEY_ALWAYS, Running::peer(scratch.path(), "always", &valkey, APPENDS)?));
    } else {
        report.warn("left out: Valkey, because TIERSMITH_VALKEY names no valkey-server");
    }
    let (batched, single) = if report.quick() { (200_000, 50_000) } else { (800_000, 200_000) };
    report.config("clients", 50);
    report.config("requests, pipeline 16", batched);
    report.config("requests, pipeline 1, and of 4 KiB", single);
    let rounds = report.rounds();
    for round in 0..rounds {
        for case in &CASES {
            let large = case.pipeline == 1 || case.bytes > 1024;
            let requests = if large { single } else { batched };
            for turn in 0..servers.len() {
                let (name, server) = &servers[(round + turn) % servers.len()];
                let done = server.load(case, requests)?;
                report.run_in("/s", case.group, name, vec![done.rate]);
                report.run_in("us", &cpu(case), name, vec![done.cpu_us]);
                report.run_in("ms", &p99(case), name, vec![done.p99_ms]);
            }
        }
    }
    for case in &CASES {
        let peers: &[(&str, &str)] = if case.test == "get" {
            &[("redis", NONE), ("valkey", VALKEY_NONE)]
        } else {
            &[
                ("redis_none", NONE),
                ("redis_always", ALWAYS),
                ("valkey_none", VALKEY_NONE),
                ("valkey_always", VALKEY_ALWAYS),
            ]
        };
        for (peer, name) in peers {
            for (figure, group) in
                [("", case.group.to_owned()), ("_cpu", cpu(case)), ("_p99", p99(case))]
            {
                let key = format!("{}{figure}_over_{peer}", case.key);
                report.ratio_of_medians(&key, (&group, OURS), (&group, name));
            }
        }
    }
    let group = cpu(&CASES[0]);
    for (key, name) in [("cpu_us_per_set", OURS), ("cpu_us_per_set_redis", NONE)] {
        if let Some(cpu) = report.median(&group, name) {
            report.ratio(key, cpu);
        }
    }
    Ok(())
}

/// Several threads that read and send: what the thread that executes is relieved of. Throughput is
/// shown too, but a machine needs a core for each thread and one for the load to gain by them.
fn io_threads(report: &mut Report) -> Result<(), Failed> {
    const ALONE: &str = "tiersmith kv, io-threads 1";
    let scratch = tempfile::tempdir_in("/dev/shm")?;
    let redis = OsStr::new("redis-server");
    report.version("redis", &version(redis).ok_or("there is no redis-server")?);
    let mut servers = Vec::new();
    for (threads, ours, theirs) in [
        (1, ALONE, "redis, io-threads 1"),
        (2, "tiersmith kv, io-threads 2", "redis, io-threads 2"),
        (4, "tiersmith kv, io-threads 4", "redis, io-threads 4"),
    ] {
        let directory = scratch.path().join(ours);
        std::fs::create_dir(&directory)?;
        servers.push((ours, Running::ours(&directory, 512 << 20, threads)?));
        let settings = ["--io-threads-do-reads", "yes", "--io-threads", &threads.to_string()];
        servers.push((theirs, Running::peer(scratch.path(), theirs, redis, &settings)?));
    }
    let rounds = report.rounds();
    for round in 0..rounds {
        for case in &CASES {
            let large = case.pipeline == 1 || case.bytes > 1024;
            let requests = if large { 50_000 } else { 200_000 };
            for turn in 0..servers.len() {
                let (name, server) = &servers[(round + turn) % servers.len()];
                let done = server.load(case, requests)?;
                report.run_in("/s", case.group, name, vec![done.rate]);
                report.run_in("us", &executing(case), name, vec![done.executing_us]);
                report.run_in("us", &cpu(case), name, vec![done.cpu_us]);
            }
        }
    }
    for case in &CASES {
        for threads in [2, 4] {
            let name = format!("tiersmith kv, io-threads {threads}");
            let key = format!("{}_io{threads}_executing_over_alone", case.key);
            let group = executing(case);
            report.ratio_of_medians(&key, (&group, &name), (&group, ALONE));
        }
    }
    Ok(())
}

/// The name of the table of CPU times of the thread that executes.
fn executing(case: &Case) -> String {
    format!("CPU of the thread that executes: {}", case.group)
}

/// The name of the table of CPU times.
fn cpu(case: &Case) -> String {
    format!("CPU of the server: {}", case.group)
}

/// The name of the table of latencies.
fn p99(case: &Case) -> String {
    format!("99th percentile of latency: {}", case.group)
}

fn space(report: &mut Report) -> Result<(), Failed> {
    const PAIRS: u64 = 500_000;
    let scratch = tempfile::tempdir_in("/dev/shm")?;
    let ours = Running::ours(scratch.path(), 512 << 20, 1)?;
    let redis = Running::peer(scratch.path(), "none", OsStr::new("redis-server"), &[])?;
    let mut each = Vec::new();
    for server in [&ours, &redis] {
        let before = server.number("memory", "used_memory")?;
        server.fill(PAIRS)?;
        each.push((server.number("memory", "used_memory")? - before) / PAIRS as f64);
    }
    report.run_in("B", "Bytes in use for a pair of 100 bytes", OURS, vec![each[0]]);
    report.run_in("B", "Bytes in use for a pair of 100 bytes", NONE, vec![each[1]]);
    report.ratio("bytes_per_pair_over_redis", each[0] / each[1]);
    Ok(())
}

fn recovery(report: &mut Report, name: &str, keys: u64) -> Result<(), Failed> {
    let scratch = tempfile::tempdir_in("/dev/shm")?;
    let size = (keys * 220).next_multiple_of(1 << 20) + (64 << 20);
    let running = Running::ours(scratch.path(), size, 1)?;
    running.fill(keys)?;
    drop(running);
    let mut times = Vec::new();
    for _ in 0..3 {
        let began = Instant::now();
        let running = Running::ours(scratch.path(), size, 1)?;
        let found = running.say("DBSIZE")?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        if found.trim() != format!(":{keys}") {
            return Err(format!("{keys} keys were written, and the server says {found}").into());
        }
    }
    report.run_in("ms", "From start to first reply after SIGKILL", &format!("{name} keys"), times);
    if let Some(ms) =
        report.median("From start to first reply after SIGKILL", &format!("{name} keys"))
    {
        report.ratio(&format!("recovery_{name}_keys_ms"), ms);
    }
    Ok(())
}

//! Durable SETs and GETs, the CPU they cost, the time to serve again, and the space of a pair: this
//! server beside a real Redis.
//!
//! `cargo bench -p tiersmith-kv --bench throughput -- [--quick] [--recovery]`; writes
//! `target/bench/throughput.json`; `--recovery`: space and recovery only.
//! Needs `redis-server` and `redis-benchmark`.
//!
//! The tier is a file in `/dev/shm` and stands for persistent memory (EMULATED); so does Redis's
//! log with `appendfsync always`. Load: `redis-benchmark`, 50 clients over a unix socket, random
//! keys of 100,000. Peers take turns, round by round. Load generator and server share the cores, so
//! the server's CPU time is printed beside each throughput.
//!
//! | key of `ratios` | is |
//! |---|---|
//! | `set64_p16_over_redis_none`, `set64_p1_over_redis_none` | SETs of 64 bytes a second over those of Redis without persistence, 16 or 1 at once |
//! | `set4k_p16_over_redis_none`, `set4k_p16_over_redis_always` | the same of 4 KiB, also over Redis with a sync for each write |
//! | `get64_p16_over_redis` | GETs a second over those of Redis |
//! | `cpu_us_per_set`, `cpu_us_per_set_redis` | CPU microseconds of the server for a SET of 64 bytes, 16 at once |
//! | `recovery_N_keys_ms` | milliseconds from the start of the process after SIGKILL to the first reply, with so many keys: 1m, 5m and 20m |
//! | `bytes_per_pair_over_redis` | bytes in use for a key and value of 100 bytes together over those of Redis |

#[path = "../../../benches/report.rs"]
mod report;

use std::error::Error;
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
const OURS: &str = "tiersmith kv";
const NONE: &str = "redis, no persistence";
const ALWAYS: &str = "redis, appendfsync always";

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

    fn ours(directory: &Path, size: u64) -> Result<Running, Failed> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(SERVES, directory).env(SIZE, size.to_string());
        Running::start(command, directory.join("socket"))
    }

    fn redis(directory: &Path, name: &str, always: bool) -> Result<Running, Failed> {
        let socket = directory.join(name);
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--dir"]).arg(directory);
        command.arg("--unixsocket").arg(&socket);
        if always {
            command.args(["--appendonly", "yes", "--appendfsync", "always"]);
        }
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

    /// User and system time, in microseconds.
    fn cpu_us(&self) -> Result<f64, Failed> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let after = stat.rsplit_once(')').ok_or("no stat")?.1;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        Ok(ticks * 1e6 / 100.0)
    }

    /// Requests a second, and CPU microseconds for each.
    fn load(
        &self,
        test: &str,
        bytes: u32,
        pipeline: u32,
        requests: u32,
    ) -> Result<(f64, f64), Failed> {
        let before = self.cpu_us()?;
        let output = Command::new("redis-benchmark")
            .arg("-s")
            .arg(&self.socket)
            .args(["-t", test, "--csv", "-c", "50", "-r", "100000"])
            .args(["-d", &bytes.to_string(), "-P", &pipeline.to_string()])
            .args(["-n", &requests.to_string()])
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let row =
            text.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("\"{test}")));
        let rate =
            row.and_then(|row| row.split('"').nth(3)).ok_or("redis-benchmark says nothing")?;
        let cpu = (self.cpu_us()? - before) / f64::from(requests);
        Ok((rate.parse()?, cpu))
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
    let scratch = tempfile::tempdir_in("/dev/shm")?;
    report.warn("the tier is EMULATED: a file in /dev/shm");
    report.config("clients", 50);
    let rounds = if report.quick() { 3 } else { report.rounds() };
    let requests = if report.quick() { 200_000 } else { 1_000_000 };
    if !report.has_option("--recovery") {
        let ours = Running::ours(scratch.path(), 2 << 30)?;
        let none = Running::redis(scratch.path(), "none", false)?;
        let always = Running::redis(scratch.path(), "always", true)?;
        report.version(
            "redis",
            &none.number("server", "redis_version").map_or_else(
                |_| {
                    none.say("INFO server")
                        .unwrap_or_default()
                        .lines()
                        .nth(1)
                        .unwrap_or("?")
                        .to_owned()
                },
                |version| version.to_string(),
            ),
        );
        let cases = [
            ("SET 64 B, pipeline 16", "set", 64, 16, requests),
            ("SET 64 B, pipeline 1", "set", 64, 1, requests / 4),
            ("SET 4 KiB, pipeline 16", "set", 4096, 16, requests / 4),
            ("GET 64 B, pipeline 16", "get", 64, 16, requests),
        ];
        for _ in 0..rounds {
            for (group, test, bytes, pipeline, requests) in cases {
                for (name, server) in [(OURS, &ours), (NONE, &none), (ALWAYS, &always)] {
                    let (rate, cpu) = server.load(test, bytes, pipeline, requests)?;
                    report.run_in("/s", group, name, vec![rate]);
                    report.run_in("us", &format!("CPU of the server: {group}"), name, vec![cpu]);
                }
            }
        }
        for (key, group, than) in [
            ("set64_p16_over_redis_none", cases[0].0, NONE),
            ("set64_p1_over_redis_none", cases[1].0, NONE),
            ("set4k_p16_over_redis_none", cases[2].0, NONE),
            ("set4k_p16_over_redis_always", cases[2].0, ALWAYS),
            ("get64_p16_over_redis", cases[3].0, NONE),
        ] {
            report.ratio_of_medians(key, (group, OURS), (group, than));
        }
        let group = format!("CPU of the server: {}", cases[0].0);
        for (key, name) in [("cpu_us_per_set", OURS), ("cpu_us_per_set_redis", NONE)] {
            if let Some(cpu) = report.median(&group, name) {
                report.ratio(key, cpu);
            }
        }
    }
    space(report)?;
    // The largest takes 4.5 GB of memory.
    for (name, keys) in [("1m", 1_000_000), ("5m", 5_000_000), ("20m", 20_000_000)] {
        recovery(report, name, keys)?;
    }
    Ok(())
}

fn space(report: &mut Report) -> Result<(), Failed> {
    const PAIRS: u64 = 500_000;
    let scratch = tempfile::tempdir_in("/dev/shm")?;
    let ours = Running::ours(scratch.path(), 512 << 20)?;
    let redis = Running::redis(scratch.path(), "none", false)?;
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
    let running = Running::ours(scratch.path(), size)?;
    running.fill(keys)?;
    drop(running);
    let mut times = Vec::new();
    for _ in 0..3 {
        let began = Instant::now();
        let running = Running::ours(scratch.path(), size)?;
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

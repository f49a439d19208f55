//! What the machine says of itself in /proc: processor time, load, memory, disks.
//!
//! A part that cannot be read (another system, a container that hides it) is absent from the
//! snapshot, with a line in `missing` that the reports print; it is never taken for zero.
//!
//! Invariant: nothing in /proc makes this panic. Deliberately absent: virtual memory statistics,
//! network, other processes. Differences are made in `interval/mod.rs`, with more patience than for
//! a database's counters: the kernel's own documentation says that its idle times may go backwards,
//! and a disk may come and go.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The machine at one instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostStat {
    /// Its name.
    pub name: Option<String>,
    /// Operating system and release.
    pub platform: Option<String>,
    /// Processors as the system counts them.
    pub cpus: Option<Cpus>,
    /// Processor time since the system started, of all processors together.
    pub cpu: Option<CpuTimes>,
    /// Threads that ran or wanted to, on average.
    pub load: Option<Load>,
    /// Memory.
    pub memory: Option<Memory>,
    /// Disks, partitions left out; absent if the system does not say.
    pub disks: Option<Vec<DiskStat>>,
    /// What could not be read, and why.
    pub missing: Vec<String>,
    /// Which start of the system: the monotonic clock begins anew with each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
    /// Threads that run or wait for a processor at this instant, and threads that wait for a disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<RunQueue>,
    /// Time in which threads were held up for want of something; absent on kernels that do not
    /// count it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressure>,
}

/// Threads at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunQueue {
    /// Running, or waiting for a processor.
    pub running: u64,
    /// Waiting for a disk.
    pub blocked: u64,
}

/// Pressure stall information: time since the system started, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pressure {
    /// Some thread waited for a processor.
    pub cpu_some_us: u64,
    /// Some thread waited for a disk.
    pub io_some_us: u64,
    /// All threads that had something to do waited for a disk.
    pub io_full_us: u64,
    /// Some thread waited for memory.
    pub memory_some_us: u64,
    /// All threads that had something to do waited for memory.
    pub memory_full_us: u64,
}

/// How many processors there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpus {
    /// Hardware threads.
    pub threads: u32,
    /// Cores; zero if the system does not say.
    pub cores: u32,
    /// Sockets; zero if the system does not say.
    pub sockets: u32,
}

/// Processor time of all processors together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuTimes {
    /// In programs, those of low priority included.
    pub user_ns: u64,
    /// In the kernel, interrupts included.
    pub system_ns: u64,
    /// Doing nothing.
    pub idle_ns: u64,
    /// Doing nothing while a disk request was under way.
    pub iowait_ns: u64,
    /// Taken away by the machine below this virtual machine.
    pub steal_ns: u64,
}

/// Threads that ran or wanted to, on average.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Over one minute.
    pub one: f64,
    /// Over five minutes.
    pub five: f64,
    /// Over fifteen minutes.
    pub fifteen: f64,
}

/// Memory of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// All of it.
    pub total_bytes: u64,
    /// What programs could still get; zero if it was not told, as in imported reports.
    pub available_bytes: u64,
}

impl Memory {
    /// What programs could still get, in bytes; nothing if it was not told. A machine that runs
    /// always has some.
    pub fn available(&self) -> Option<u64> {
        Some(self.available_bytes).filter(|bytes| *bytes > 0)
    }

    /// The share that programs could not get, in per cent; nothing if it was not told.
    pub fn used_percent(&self) -> Option<f64> {
        let available = self.available().filter(|_| self.total_bytes > 0)?;
        Some((1.0 - available as f64 / self.total_bytes as f64) * 100.0)
    }
}

/// A disk since the system started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskStat {
    /// Its name, for instance `sda`.
    pub name: String,
    /// Requests that read.
    pub reads: u64,
    /// Bytes they read.
    pub read_bytes: u64,
    /// Time they took.
    pub read_ms: u64,
    /// Requests that wrote.
    pub writes: u64,
    /// Bytes they wrote.
    pub write_bytes: u64,
    /// Time they took.
    pub write_ms: u64,
    /// Time in which a request was under way.
    pub busy_ms: u64,
    /// Requests that made what was written before durable; absent on kernels before 5.5, which do
    /// not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flushes: Option<u64>,
    /// Time they took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flush_ms: Option<u64>,
}

/// What the machine says now. Reads some files of /proc, which takes less than a millisecond or
/// two.
pub fn read() -> HostStat {
    read_below(Path::new("/"))
}

/// As [`read`], of the tree that has its `proc` and `sys` below `root`.
pub(crate) fn read_below(root: &Path) -> HostStat {
    let mut host = HostStat::default();
    let mut missing = Vec::new();
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    host.name =
        part(root, "proc/sys/kernel/hostname", &mut missing, |text| Some(text.trim().to_owned()));
    let release =
        part(root, "proc/sys/kernel/osrelease", &mut missing, |text| Some(text.trim().to_owned()));
    host.platform = release.map(|release| format!("Linux {release}"));
    host.cpus = part(root, "proc/cpuinfo", &mut missing, parse_cpus);
    host.cpu = part(root, "proc/stat", &mut missing, |text| parse_cpu_times(text, ticks));
    host.load = part(root, "proc/loadavg", &mut missing, parse_load);
    host.memory = part(root, "proc/meminfo", &mut missing, parse_memory);
    let is_disk = |name: &str| {
        let name = name.replace('/', "!");
        !root.join("sys").is_dir() || root.join("sys/block").join(name).is_dir()
    };
    host.disks =
        part(root, "proc/diskstats", &mut missing, |text| Some(parse_disks(text, &is_disk)));
    host.missing = missing;
    // Kernels and containers without these are common: what is absent is left out without a line
    // about it.
    let quiet = |file: &str| std::fs::read_to_string(root.join(file)).ok();
    host.boot = quiet("proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned());
    host.queue = quiet("proc/stat").and_then(|text| parse_queue(&text));
    host.pressure = (|| {
        let line =
            |file: &str, kind: &str| quiet(file).and_then(|text| parse_pressure(&text, kind));
        Some(Pressure {
            cpu_some_us: line("proc/pressure/cpu", "some")?,
            io_some_us: line("proc/pressure/io", "some")?,
            io_full_us: line("proc/pressure/io", "full")?,
            memory_some_us: line("proc/pressure/memory", "some")?,
            memory_full_us: line("proc/pressure/memory", "full")?,
        })
    })();
    host
}

fn parse_queue(text: &str) -> Option<RunQueue> {
    let of =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some(RunQueue { running: of("procs_running ")?, blocked: of("procs_blocked ")? })
}

/// The total of one line of a file of /proc/pressure.
fn parse_pressure(text: &str, kind: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split(' ').next() == Some(kind))?;
    line.split(' ').find_map(|field| field.strip_prefix("total=")?.parse().ok())
}

impl HostStat {
    /// Whether the contents fit together.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(load) = &self.load
            && [load.one, load.five, load.fifteen]
                .iter()
                .any(|value| !value.is_finite() || *value < 0.0)
        {
            return Err("the load average of the host is not a number that can be".to_owned());
        }
        let mut names = BTreeSet::new();
        match self.disks.iter().flatten().find(|disk| !names.insert(&disk.name)) {
            Some(disk) => Err(format!("the disk `{}` is there twice", disk.name)),
            None => Ok(()),
        }
    }
}

/// One file, parsed; or nothing, and a line that says why.
fn part<T>(
    root: &Path,
    file: &str,
    missing: &mut Vec<String>,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Option<T> {
    let path = root.join(file);
    match std::fs::read(&path) {
        Ok(bytes) => {
            let parsed = parse(&String::from_utf8_lossy(&bytes));
            if parsed.is_none() {
                missing.push(format!("{} is not written as expected", path.display()));
            }
            parsed
        }
        Err(error) => {
            missing.push(format!("cannot read {}: {error}", path.display()));
            None
        }
    }
}

/// Hardware threads are the blocks of the file; cores are told apart by their own number and their
/// socket's. Some processor architectures print neither of the latter.
fn parse_cpus(text: &str) -> Option<Cpus> {
    let (mut threads, mut socket, mut cores, mut sockets) =
        (0u32, "", BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        match key.trim() {
            "processor" => {
                threads = threads.saturating_add(1);
                socket = "";
            }
            "physical id" => {
                socket = value.trim();
                sockets.insert(socket);
            }
            "core id" => {
                cores.insert((socket, value.trim()));
            }
            _ => {}
        }
    }
    let counted = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    (threads > 0).then(|| Cpus {
        threads,
        cores: counted(cores.len()),
        sockets: counted(sockets.len()),
    })
}

/// The line `cpu  user nice system idle iowait irq softirq steal ...`, in ticks.
fn parse_cpu_times(text: &str, ticks_per_second: u64) -> Option<CpuTimes> {
    let line = text.lines().find(|line| line.starts_with("cpu "))?;
    let ticks: Vec<u64> =
        line.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
    // The first four have been there for ever; the others came with later kernels.
    if ticks.len() < 4 {
        return None;
    }
    let ns = |indices: &[usize]| {
        let sum = indices
            .iter()
            .map(|index| ticks.get(*index).copied().unwrap_or(0))
            .fold(0, u64::saturating_add);
        let ns = u128::from(sum) * 1_000_000_000 / u128::from(ticks_per_second);
        u64::try_from(ns).unwrap_or(u64::MAX)
    };
    // Guests' time is in user time already.
    Some(CpuTimes {
        user_ns: ns(&[0, 1]),
        system_ns: ns(&[2, 5, 6]),
        idle_ns: ns(&[3]),
        iowait_ns: ns(&[4]),
        steal_ns: ns(&[7]),
    })
}

fn parse_load(text: &str) -> Option<Load> {
    let mut words = text
        .split_whitespace()
        .map(|word| word.parse::<f64>().ok().filter(|load| load.is_finite()));
    Some(Load { one: words.next()??, five: words.next()??, fifteen: words.next()?? })
}

fn parse_memory(text: &str) -> Option<Memory> {
    let kib = |name: &str| -> Option<u64> {
        let line = text
            .lines()
            .find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(':')))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let bytes = |kib: u64| kib.saturating_mul(1024);
    Some(Memory {
        total_bytes: bytes(kib("MemTotal")?),
        available_bytes: bytes(kib("MemAvailable")?),
    })
}

/// Lines `major minor name reads merged sectors ms writes merged sectors ms inflight busy_ms
/// weighted_ms`, then `discards merged sectors ms` and `flushes ms` of later kernels. A sector is
/// 512 bytes here whatever the disk says. Disks that never did anything are left out.
fn parse_disks(text: &str, is_disk: &dyn Fn(&str) -> bool) -> Vec<DiskStat> {
    let mut disks: Vec<DiskStat> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace().skip(2);
        let Some(name) = words.next() else { continue };
        let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let [reads, _, read_sectors, read_ms, writes, _, write_sectors, write_ms, _, busy_ms, ..] =
            numbers[..]
        else {
            continue;
        };
        let unused = reads == 0 && writes == 0;
        if unused || !is_disk(name) || disks.iter().any(|disk| disk.name == name) {
            continue;
        }
        disks.push(DiskStat {
            name: name.to_owned(),
            reads,
            read_bytes: read_sectors.saturating_mul(512),
            read_ms,
            writes,
            write_bytes: write_sectors.saturating_mul(512),
            write_ms,
            busy_ms,
            flushes: numbers.get(15).copied(),
            flush_ms: numbers.get(16).copied(),
        });
    }
    disks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_time_and_interrupts_count_as_system_time() {
        let times =
            parse_cpu_times("cpu  100 20 30 400 50 6 7 8 9 9\ncpu0 1 1 1 1\n", 100).unwrap();
        let expected = CpuTimes {
            user_ns: 1_200_000_000,
            system_ns: 430_000_000,
            idle_ns: 4_000_000_000,
            iowait_ns: 500_000_000,
            steal_ns: 80_000_000,
        };
        assert_eq!(times, expected);
        assert_eq!(parse_cpu_times("cpu  1 2 3\n", 100), None);
        assert_eq!(parse_cpu_times("intr 5\n", 100), None);
    }

    #[test]
    fn two_threads_of_a_core_are_one_core() {
        let text = "processor\t: 0\nphysical id\t: 0\ncore id\t\t: 0\n\n\
             processor\t: 1\nphysical id\t: 0\ncore id\t\t: 0\n";
        assert_eq!(parse_cpus(text), Some(Cpus { threads: 2, cores: 1, sockets: 1 }));
        assert_eq!(
            parse_cpus("processor : 0\nBogoMIPS : 50\n"),
            Some(Cpus { threads: 1, cores: 0, sockets: 0 })
        );
        assert_eq!(parse_cpus(""), None);
    }

    #[test]
    fn disks_are_read_and_partitions_are_not() {
        let text = "  8 0 sda 10 1 80 5 20 2 160 7 0 9 12 0 0 0 0\n  8 1 sda1 1 1 1 1 1 1 1 1 1 1 \
                    1\n\
             7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\nshort\n";
        let disks = parse_disks(text, &|name| name != "sda1");
        assert_eq!(disks.len(), 1);
        let expected = DiskStat {
            name: "sda".to_owned(),
            reads: 10,
            read_bytes: 40_960,
            read_ms: 5,
            writes: 20,
            write_bytes: 81_920,
            write_ms: 7,
            busy_ms: 9,
            ..DiskStat::default()
        };
        assert_eq!(disks[0], expected, "a kernel that counts no flushes");
        let text = "254 0 vda 10 1 80 5 20 2 160 7 0 9 12 4 0 32 3 40 6\n";
        let disk = &parse_disks(text, &|_| true)[0];
        assert_eq!((disk.flushes, disk.flush_ms), (Some(40), Some(6)));
    }

    #[test]
    fn a_part_that_is_not_there_is_absent_and_said() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join("proc/loadavg"), "0.50 0.25 0.10 1/100 4711\n").unwrap();
        std::fs::write(root.path().join("proc/meminfo"), "MemTotal: many kB\n").unwrap();
        let host = read_below(root.path());
        assert_eq!(host.load, Some(Load { one: 0.5, five: 0.25, fifteen: 0.1 }));
        assert_eq!((host.cpu, host.memory, host.disks.clone()), (None, None, None));
        assert!(host.missing.iter().any(|line| line.contains("proc/stat")), "{:?}", host.missing);
        assert!(
            host.missing.iter().any(|line| line.contains("meminfo is not written")),
            "{:?}",
            host.missing
        );
        host.check().unwrap();
    }

    #[test]
    fn this_machine_can_be_read() {
        let host = read();
        assert!(host.cpu.is_some() && host.cpus.is_some(), "{:?}", host.missing);
        host.check().unwrap();
    }

    #[test]
    fn hostile_text_is_refused_without_a_panic() {
        let huge = "18446744073709551615";
        let line = format!("cpu  {huge} {huge} {huge} {huge} {huge} {huge} {huge} {huge}\n");
        assert_eq!(parse_cpu_times(&line, 100).unwrap().user_ns, u64::MAX);
        assert_eq!(parse_load("nan inf 1"), None);
        assert_eq!(
            parse_memory(&format!("MemTotal: {huge} kB\nMemAvailable: 1 kB\n"))
                .unwrap()
                .total_bytes,
            u64::MAX
        );
        assert!(
            parse_disks(&format!("8 0 sda {}", format!("{huge} ").repeat(11)), &|_| true)[0]
                .read_bytes
                == u64::MAX
        );
    }
}

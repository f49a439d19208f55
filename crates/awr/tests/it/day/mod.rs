//! A day of a PostgreSQL, generated: a snapshot a minute, each with what a server with many
//! statements tells.
//!
//! The shape (how many counters, waits, rows of reads and writes, settings, statements, and how
//! long their texts are) is that of real snapshots; the numbers grow by chance from a fixed seed.
//! Nothing here is a measurement.

use tiersmith_awr::events::{Histogram, WaitClass};
use tiersmith_awr::host::{CpuTimes, Cpus, DiskStat, HostStat, Load, Memory};
use tiersmith_awr::{IoStat, Sampling, Snapshot, Source, StatementStat, WaitStat, statistic};

/// 2026-01-01 00:00:00.
const BEGAN_UNIX_NS: u64 = 1_767_225_600_000_000_000;
const MINUTE_NS: u64 = 60_000_000_000;

/// The snapshots of a source, one after the other, each a minute after the one before.
pub(crate) struct Day {
    next: Snapshot,
    waits: Vec<Histogram>,
    rng: fastrand::Rng,
}

/// A source with so many statements.
pub(crate) fn day(name: &str, statements: usize) -> Day {
    let mut source = Source {
        instance: "7300000000000000000 since 2026-01-01 00:00:00.000000+00".to_owned(),
        database: "shop".to_owned(),
        product: "PostgreSQL".to_owned(),
        version: "17.2".to_owned(),
        path: format!("postgresql://monitor@{name}:5432/shop"),
        ..Source::default()
    };
    for n in 0..30 {
        source.settings.insert(format!("setting_number_{n}"), format!("{}MB", n * 64));
    }
    let mut next = Snapshot::at(source, BEGAN_UNIX_NS, MINUTE_NS);
    (next.db_time_ns, next.sessions) = (Some(0), Some(40));
    for name in [statistic::USER_COMMITS, statistic::USER_ROLLBACKS, statistic::EXECUTE_COUNT] {
        next.add_counter(name, "calls", 0);
    }
    for n in 0..70 {
        next.add_counter(&format!("a counter of the server, number {n}"), "blocks", 1_000 * n);
    }
    for counter in &mut next.counters {
        counter.help =
            "What this counter counts, said in a sentence as long as such sentences are."
                .to_owned();
    }
    for n in 0..12 {
        next.waits.push(WaitStat {
            name: format!("a wait event, number {n}"),
            class: if n % 2 == 0 { WaitClass::UserIo } else { WaitClass::Commit },
            background: n % 3 == 0,
            help: "What is waited for, said in a sentence.".to_owned(),
            count: 0,
            total_ns: 0,
            max_ns: 0,
            bytes: 0,
            buckets: Vec::new(),
        });
    }
    for n in 0..30 {
        let file_class = format!("client backend, relation, kind {n}");
        next.add_io(IoStat { file_class, tier: "home".to_owned(), ..IoStat::default() });
    }
    for n in 0..statements {
        next.statements.push(StatementStat {
            id: format!("{:020} 16384 10", (n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            text: format!(
                "SELECT o.id, o.placed_at, c.name_{n} FROM orders_{n} o JOIN customers c ON c.id = \
                 o.customer_id WHERE \
                 o.state = ? AND o.placed_at > ? AND c.region_{} IN (?, ?, ?) ORDER BY o.placed_at \
                 DESC LIMIT ?",
                n % 97
            ),
            pages_hit: Some(0),
            pages_read: Some(0),
            redo_bytes: Some(0),
            temp_bytes: Some(0),
            ..StatementStat::default()
        });
    }
    next.partial = ["counters", "io", "statements", "waits"].map(str::to_owned).into();
    next.resets.insert("shop".to_owned(), "2025-12-01 00:00:00+00".to_owned());
    next.sampling = Some(Sampling::new("a process".to_owned(), 1_000));
    next.host = host();
    Day {
        next,
        waits: vec![Histogram::new(); 12],
        rng: fastrand::Rng::with_seed(statements as u64),
    }
}

fn host() -> HostStat {
    let disk = |n| DiskStat { name: format!("nvme{n}n1"), ..DiskStat::default() };
    HostStat {
        name: Some("dbhost".to_owned()),
        platform: Some("Linux 6.1".to_owned()),
        cpus: Some(Cpus { threads: 16, cores: 8, sockets: 1 }),
        load: Some(Load { one: 2.0, five: 2.0, fifteen: 2.0 }),
        memory: Some(Memory { total_bytes: 64 << 30, available_bytes: 8 << 30 }),
        cpu: Some(CpuTimes { user_ns: 0, system_ns: 0, idle_ns: 0, iowait_ns: 0, steal_ns: 0 }),
        disks: Some((0..4).map(disk).collect()),
        ..HostStat::default()
    }
}

impl Iterator for Day {
    type Item = Snapshot;

    fn next(&mut self) -> Option<Snapshot> {
        let now = self.next.clone();
        let (snapshot, rng) = (&mut self.next, &mut self.rng);
        snapshot.taken_unix_ns += MINUTE_NS;
        snapshot.monotonic_ns += MINUTE_NS;
        snapshot.db_time_ns = snapshot.db_time_ns.map(|ns| ns + rng.u64(MINUTE_NS..5 * MINUTE_NS));
        for counter in &mut snapshot.counters {
            counter.value += rng.u64(0..2_000_000);
        }
        for (wait, histogram) in snapshot.waits.iter_mut().zip(&mut self.waits) {
            for _ in 0..200 {
                histogram.record(rng.u64(1_000..50_000_000));
            }
            wait.count = histogram.count();
            wait.total_ns = histogram.total_ns();
            wait.max_ns = histogram.max_ns().unwrap_or(0);
            wait.bytes = wait.count * 8_192;
            wait.buckets =
                histogram.buckets().map(|bucket| (bucket.low_ns, bucket.count)).collect();
        }
        for io in &mut snapshot.io {
            (io.reads, io.read_bytes) =
                (io.reads + rng.u64(0..9_999), io.read_bytes + rng.u64(0..99_999_999));
            (io.writes, io.write_ns) =
                (io.writes + rng.u64(0..9_999), io.write_ns + rng.u64(0..99_999_999));
        }
        for statement in &mut snapshot.statements {
            let calls = rng.u64(0..500);
            statement.calls += calls;
            statement.total_ns += calls * rng.u64(10_000..10_000_000);
            statement.rows += calls * rng.u64(0..10);
            statement.pages_hit = statement.pages_hit.map(|pages| pages + calls * rng.u64(1..50));
            statement.pages_read = statement.pages_read.map(|pages| pages + rng.u64(0..50));
        }
        if let Some(sampling) = &mut snapshot.sampling {
            sampling.looks += 60;
            for _ in 0..120 {
                let class =
                    [None, Some(WaitClass::UserIo), Some(WaitClass::Commit)][rng.usize(0..3)];
                sampling.saw(&format!("IO: Event{}", rng.u8(0..12)), class);
            }
        }
        if let Some(cpu) = &mut snapshot.host.cpu {
            cpu.user_ns += rng.u64(0..16 * MINUTE_NS);
            cpu.idle_ns += rng.u64(0..16 * MINUTE_NS);
        }
        for disk in snapshot.host.disks.iter_mut().flatten() {
            disk.reads += rng.u64(0..10_000);
            disk.write_bytes += rng.u64(0..100_000_000);
        }
        Some(now)
    }
}

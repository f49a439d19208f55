//! The figures of one interval, as every form of `tiersmith top` shows them; what `--json` prints.
//!
//! Invariant: what the source does not tell is absent here, never zero. What was sampled says so.

use serde::Serialize;
use tiersmith_awr::{CPU, Interval, OfOne, SampledWho, WaitDelta, by_who, statistic};

use super::activity::{Activity, activity};

/// One interval.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct View {
    pub(super) kind: &'static str,
    pub(super) format: u32,
    /// What was asked.
    pub(super) source: String,
    pub(super) database: String,
    pub(super) product: String,
    pub(super) version: String,
    pub(super) taken_unix_ns: u64,
    pub(super) elapsed_s: f64,
    /// Whether a medium only stands for another one.
    pub(super) emulated: bool,
    /// Whether the source is on another machine: `host` is the one that asks then.
    pub(super) remote: bool,
    pub(super) activity: Activity,
    pub(super) rates: Vec<Rate>,
    pub(super) events: Vec<Event>,
    pub(super) statements: Vec<Statement>,
    /// Statements that could not be followed through the interval.
    pub(super) statements_left_out: usize,
    pub(super) io: Vec<Io>,
    /// Who was seen active, where the source is sampled.
    pub(super) seen: Option<Seen>,
    /// Tables or files that were read, most bytes first, as far as the source tells.
    pub(super) files: Vec<File>,
    pub(super) tiers: Tiers,
    pub(super) host: Host,
    /// What is doubtful or missing, in sentences.
    pub(super) notes: Vec<String>,
}

/// How many sessions, statements and blockers are kept of an interval.
const SEEN: usize = 100;

/// How many tables or files are kept of an interval.
const FILES: usize = 50;

/// A counter by time.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Rate {
    pub(super) name: &'static str,
    /// What it is called where there is little room.
    #[serde(skip)]
    pub(super) short: &'static str,
    pub(super) unit: &'static str,
    pub(super) per_s: f64,
}

/// Who was seen active.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Seen {
    pub(super) sessions: Vec<SeenRow>,
    pub(super) blockers: Vec<SeenRow>,
    pub(super) statements: Vec<SeenRow>,
}

/// One of them; of a blocker, those that it held up.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SeenRow {
    pub(super) id: String,
    pub(super) text: String,
    /// Sessions on average.
    pub(super) sessions: f64,
    /// What was waited for most.
    pub(super) wait: String,
}

/// A wait event, or work on a processor.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Event {
    pub(super) name: String,
    pub(super) class: String,
    /// `measured` or `sampled`.
    pub(super) how: &'static str,
    /// Not in DB time.
    pub(super) background: bool,
    /// Its time is also the time of another wait.
    pub(super) inside: bool,
    pub(super) waits_per_s: Option<f64>,
    pub(super) mean_ns: Option<f64>,
    /// Time by time: sessions that were in it on average.
    pub(super) sessions: f64,
    /// Of DB time if measured, of the sessions seen if sampled.
    pub(super) pct: Option<f64>,
}

/// A statement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Statement {
    pub(super) id: String,
    pub(super) text: String,
    pub(super) calls_per_s: f64,
    pub(super) mean_ns: Option<f64>,
    pub(super) sessions: f64,
    pub(super) pct: Option<f64>,
    pub(super) rows_per_call: Option<f64>,
    /// Pages found in the page cache, of all it asked for.
    pub(super) hit_pct: Option<f64>,
}

/// Reads and writes of the files of one class in one place.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Io {
    pub(super) file_class: String,
    pub(super) tier: String,
    pub(super) reads_per_s: f64,
    pub(super) read_bytes_per_s: f64,
    pub(super) read_mean_ns: Option<f64>,
    pub(super) writes_per_s: f64,
    pub(super) write_bytes_per_s: f64,
    pub(super) write_mean_ns: Option<f64>,
}

/// Reads of a table or file that the database's own page cache did not hold.
#[derive(Clone, Debug, Serialize)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) read_bytes_per_s: f64,
    /// The time of reading a MiB; absent if it is not measured for each.
    pub(super) mib_ns: Option<f64>,
    /// About how large it is.
    pub(super) bytes: Option<u64>,
}

/// Tiers, and what else goes up and down.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Tiers {
    pub(super) media: Vec<Medium>,
    /// Blocks found in the fast tier, of all blocks read.
    pub(super) hit_pct: Option<f64>,
    pub(super) destaged_bytes_per_s: Option<f64>,
    pub(super) dirty_bytes: Option<u64>,
    /// How long destaging what is dirty takes at the rate of this interval; absent if nothing was
    /// destaged in it.
    pub(super) drain_s: Option<f64>,
    /// Times that a writer waited for a free block.
    pub(super) full_per_s: Option<f64>,
    pub(super) levels: Vec<Level>,
}

/// What bytes lie on.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Medium {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) emulated: bool,
    /// Absent if it is not known.
    pub(super) bytes: Option<u64>,
    pub(super) used_bytes: Option<u64>,
}

/// A value that goes up and down.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Level {
    pub(super) name: String,
    pub(super) unit: String,
    pub(super) value: u64,
    /// By how much it changed in a second; absent if it was not there before.
    pub(super) change_per_s: Option<f64>,
}

/// The machine.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Host {
    pub(super) cpus: Option<u32>,
    pub(super) cpu_pct: Option<CpuShares>,
    pub(super) running: Option<u64>,
    pub(super) blocked: Option<u64>,
    pub(super) load: Option<[f64; 3]>,
    pub(super) memory_bytes: Option<u64>,
    pub(super) memory_available_bytes: Option<u64>,
    pub(super) pressure_pct: Option<Shares>,
    pub(super) disks: Vec<Disk>,
}

/// Shares of the time of all processors.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct CpuShares {
    pub(super) user: f64,
    pub(super) system: f64,
    pub(super) iowait: f64,
    pub(super) steal: f64,
    pub(super) idle: f64,
}

/// Shares of the interval in which some thread was held up for want of something.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Shares {
    pub(super) cpu: f64,
    pub(super) io: f64,
    pub(super) memory: f64,
}

/// A disk.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Disk {
    pub(super) name: String,
    pub(super) reads_per_s: f64,
    pub(super) read_bytes_per_s: f64,
    pub(super) read_mean_ns: Option<f64>,
    pub(super) writes_per_s: f64,
    pub(super) write_bytes_per_s: f64,
    pub(super) write_mean_ns: Option<f64>,
    pub(super) busy_pct: f64,
}

impl View {
    /// The figures of `of`.
    pub(crate) fn of(of: &Interval) -> View {
        let source = &of.end.source;
        View {
            kind: "tiersmith top",
            format: 1,
            source: source.path.clone(),
            database: source.database.clone(),
            product: source.product.clone(),
            version: source.version.clone(),
            taken_unix_ns: of.end.taken_unix_ns,
            elapsed_s: of.elapsed_s(),
            emulated: of.is_emulated(),
            remote: of.is_remote(),
            activity: activity(of),
            rates: rates(of),
            events: events(of),
            statements: statements(of),
            statements_left_out: of.statements.lost,
            seen: seen(of),
            io: io(of),
            files: files(of),
            tiers: tiers(of),
            host: host(of),
            notes: of.warnings.clone(),
        }
    }
}

fn mean(total_ns: u64, count: u64) -> Option<f64> {
    (count > 0).then(|| total_ns as f64 / count as f64)
}

fn share(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole * 100.0)
}

fn rates(of: &Interval) -> Vec<Rate> {
    let seconds = of.elapsed_s();
    let known = [
        ("transactions", "tx", "transactions", of.transactions()),
        ("executions", "exec", "executions", of.counter(statistic::EXECUTE_COUNT)),
        ("redo", "redo", "bytes", of.counter(statistic::REDO_SIZE)),
        ("calls", "calls", "calls", of.counter(statistic::USER_CALLS)),
        ("logical reads", "gets", "pages", of.counter(statistic::LOGICAL_READS)),
        ("physical reads", "reads", "pages", of.counter(statistic::PHYSICAL_READS)),
    ];
    known
        .into_iter()
        .filter_map(|(name, short, unit, value)| {
            Some(Rate { name, short, unit, per_s: value? as f64 / seconds })
        })
        .collect()
}

fn events(of: &Interval) -> Vec<Event> {
    let elapsed = of.elapsed_ns as f64;
    let of_db_time = |ns: u64| of.db_time_ns.and_then(|all| share(ns as f64, all as f64));
    let mut rows = Vec::new();
    if let Some(ns) = of.db_cpu_ns.filter(|ns| *ns > 0) {
        rows.push(Event {
            name: "DB CPU".to_owned(),
            class: CPU.to_owned(),
            how: "measured",
            background: false,
            inside: false,
            waits_per_s: None,
            mean_ns: None,
            sessions: ns as f64 / elapsed,
            pct: of_db_time(ns),
        });
    }
    let row = |wait: &WaitDelta| Event {
        name: wait.name.clone(),
        class: wait.class.name().to_owned(),
        how: "measured",
        background: wait.background,
        inside: wait.is_inside_another(),
        waits_per_s: Some(wait.count as f64 / of.elapsed_s()),
        mean_ns: wait.mean_ns(),
        sessions: wait.total_ns as f64 / elapsed,
        pct: of_db_time(wait.total_ns).filter(|_| !wait.background),
    };
    let waits = of.foreground().into_iter().chain(of.background());
    rows.extend(waits.filter(|wait| wait.count > 0).map(row));
    if let Some(sampling) = of.sampling.as_ref().filter(|sampling| sampling.looks > 0) {
        let seen = sampling.seen() as f64;
        rows.extend(sampling.events.iter().map(|event| Event {
            name: event.name.clone(),
            class: event.class.clone(),
            how: "sampled",
            background: false,
            inside: false,
            waits_per_s: None,
            mean_ns: None,
            sessions: event.seen as f64 / sampling.looks as f64,
            pct: share(event.seen as f64, seen),
        }));
    }
    rows
}

fn statements(of: &Interval) -> Vec<Statement> {
    let (elapsed, seconds) = (of.elapsed_ns as f64, of.elapsed_s());
    let row = |row: &tiersmith_awr::StatementStat| Statement {
        id: row.id.clone(),
        text: row.text.clone(),
        calls_per_s: row.calls as f64 / seconds,
        mean_ns: mean(row.total_ns, row.calls),
        sessions: row.total_ns as f64 / elapsed,
        pct: of.db_time_ns.and_then(|all| share(row.total_ns as f64, all as f64)),
        rows_per_call: (row.calls > 0).then(|| row.rows as f64 / row.calls as f64),
        hit_pct: row
            .pages_hit
            .zip(row.pages_read)
            .and_then(|(hit, read)| share(hit as f64, hit as f64 + read as f64)),
    };
    of.statements.rows.iter().map(row).collect()
}

fn seen(of: &Interval) -> Option<Seen> {
    let sampling = of.sampling.as_ref().filter(|sampling| sampling.looks > 0)?;
    let rows = |rows: &[SampledWho]| {
        let row = |one: &OfOne<'_>| SeenRow {
            id: one.id.to_owned(),
            text: one.text.to_owned(),
            sessions: one.seen as f64 / sampling.looks as f64,
            wait: one.events.first().map_or(String::new(), |first| first.event.clone()),
        };
        by_who(rows).iter().take(SEEN).map(row).collect()
    };
    Some(Seen {
        sessions: rows(&sampling.sessions),
        blockers: rows(&sampling.blockers),
        statements: rows(&sampling.statements),
    })
}

fn io(of: &Interval) -> Vec<Io> {
    let seconds = of.elapsed_s();
    let rows = of.io.iter().filter(|io| io.reads > 0 || io.writes > 0);
    rows.map(|io| Io {
        file_class: io.file_class.clone(),
        tier: io.tier.clone(),
        reads_per_s: io.reads as f64 / seconds,
        read_bytes_per_s: io.read_bytes as f64 / seconds,
        read_mean_ns: mean(io.read_ns, io.reads).filter(|_| !io.untimed),
        writes_per_s: io.writes as f64 / seconds,
        write_bytes_per_s: io.write_bytes as f64 / seconds,
        write_mean_ns: mean(io.write_ns, io.writes).filter(|_| !io.untimed),
    })
    .collect()
}

fn files(of: &Interval) -> Vec<File> {
    let seconds = of.elapsed_s();
    let read = of.files.iter().filter(|file| file.read_bytes > 0).take(FILES);
    read.map(|file| File {
        name: file.name.clone(),
        read_bytes_per_s: file.read_bytes as f64 / seconds,
        mib_ns: file.read_ns.map(|ns| ns as f64 / (file.read_bytes as f64 / 1_048_576.0)),
        bytes: file.bytes,
    })
    .collect()
}

fn tiers(of: &Interval) -> Tiers {
    let seconds = of.elapsed_s();
    let counter = |name: &str| of.counter(name).map(|value| value as f64);
    let hits = counter(statistic::FLASH_HITS)
        .map(|hits| hits + counter(statistic::ZERO_COPY_READS).unwrap_or(0.0));
    let destaged =
        of.waits.iter().find(|wait| wait.background && wait.name == "db file parallel write");
    let has_tier = hits.is_some();
    let destaged = destaged.filter(|_| has_tier).map(|wait| wait.bytes as f64 / seconds);
    let levels = of.end.levels.iter().map(|level| {
        let before = of.begin.levels.iter().find(|before| before.name == level.name);
        Level {
            name: level.name.clone(),
            unit: level.unit.clone(),
            value: level.value,
            change_per_s: before.map(|before| (level.value as f64 - before.value as f64) / seconds),
        }
    });
    let dirty_bytes =
        of.end.levels.iter().find(|level| level.name == "tier dirty").map(|level| level.value);
    Tiers {
        media: of
            .end
            .media
            .iter()
            .map(|medium| Medium {
                name: medium.name.clone(),
                kind: medium.kind.clone(),
                emulated: medium.emulated,
                bytes: Some(medium.bytes).filter(|bytes| *bytes > 0),
                used_bytes: Some(medium.used_bytes).filter(|used| *used > 0 || medium.bytes > 0),
            })
            .collect(),
        hit_pct: hits
            .zip(counter(statistic::FLASH_MISSES))
            .and_then(|(hits, misses)| share(hits, hits + misses)),
        destaged_bytes_per_s: destaged,
        dirty_bytes,
        drain_s: dirty_bytes
            .zip(destaged.filter(|rate| *rate > 0.0))
            .map(|(dirty, rate)| dirty as f64 / rate),
        full_per_s: of
            .wait("free buffer waits")
            .filter(|_| has_tier)
            .map(|wait| wait.count as f64 / seconds),
        levels: levels.collect(),
    }
}

fn host(of: &Interval) -> Host {
    let seconds = of.elapsed_s();
    let now = &of.end.host;
    let cpu_pct = of.host_cpu.as_ref().and_then(|cpu| {
        let all = [cpu.user_ns, cpu.system_ns, cpu.iowait_ns, cpu.steal_ns, cpu.idle_ns]
            .map(|ns| ns as f64);
        let sum: f64 = all.iter().sum();
        let [user, system, iowait, steal, idle] = all.map(|ns| ns / sum * 100.0);
        (sum > 0.0).then_some(CpuShares { user, system, iowait, steal, idle })
    });
    let held_up = |us: u64| (us as f64 / 1e4 / seconds).min(100.0);
    Host {
        cpus: now.cpus.as_ref().map(|cpus| cpus.threads),
        cpu_pct,
        running: now.queue.map(|queue| queue.running),
        blocked: now.queue.map(|queue| queue.blocked),
        load: now.load.as_ref().map(|load| [load.one, load.five, load.fifteen]),
        memory_bytes: now.memory.as_ref().map(|memory| memory.total_bytes),
        memory_available_bytes: now.memory.as_ref().map(|memory| memory.available_bytes),
        pressure_pct: of.pressure.map(|of| Shares {
            cpu: held_up(of.cpu_some_us),
            io: held_up(of.io_some_us),
            memory: held_up(of.memory_some_us),
        }),
        disks: of
            .disks
            .iter()
            .map(|disk| Disk {
                name: disk.name.clone(),
                reads_per_s: disk.reads as f64 / seconds,
                read_bytes_per_s: disk.read_bytes as f64 / seconds,
                read_mean_ns: mean(disk.read_ms.saturating_mul(1_000_000), disk.reads),
                writes_per_s: disk.writes as f64 / seconds,
                write_bytes_per_s: disk.write_bytes as f64 / seconds,
                write_mean_ns: mean(disk.write_ms.saturating_mul(1_000_000), disk.writes),
                busy_pct: (disk.busy_ms as f64 / 10.0 / seconds).min(100.0),
            })
            .collect(),
    }
}

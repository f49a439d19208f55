//! PostgreSQL and MariaDB on a mounted home, against the same servers on the home's disk, under
//! their own load programs.
//!
//! `cargo bench -p tiersmith-lab --bench databases -- [--quick] [--rounds N] [--only LOAD,...]
//! [--home-model NAME]`; writes `target/bench/databases.json`.
//!
//! Each arrangement is one server that stays up: on the disk; with data and redo on the tier,
//! mounted as `tiersmith attach` mounts; for `pg_over_symlink` on the disk with `pg_wal` linked to
//! a directory of the medium, and mounted with atomic pages and without, too. They are copies of
//! one loaded directory and take turns, load by load and round by round. A run is a number of
//! transactions, the same for all arrangements, so that each has done the same since its last
//! checkpoint; none makes one by itself, but for `pg_over_symlink`, where what a checkpoint costs
//! is part of it. Homes are in the build folder. The tier is a DAX file system if one is mounted,
//! else in `/dev/shm` if that is large enough, else a file; what is not persistent memory is
//! labelled EMULATED. Commits are durable: `fsync = on`, `synchronous_commit = on`,
//! `innodb_flush_log_at_trx_commit = 1`. Torn pages are protected against by the database itself,
//! but in rows that say `written once`.
//!
//! What the disk's own sync takes is measured in every round, because it decides how much there is
//! to win: a virtual disk that its hypervisor answers for from memory leaves little.
//! `--home-model NAME` lays a latency profile of slow storage over both homes instead, labels
//! everything MODELLED, names the ratios `modelled_...`, and writes `databases-modelled.json`.
//!
//! | key of `ratios` | is |
//! |---|---|
//! | `pg_tpcb_1_over_disk`, `pg_tpcb_8_over_disk` | pgbench TPC-B transactions per second with 1 and 8 clients: more is better |
//! | `pg_tpcb_1_p99_over_disk`, `pg_tpcb_8_p99_over_disk` | 99th percentile of a transaction's time: less is better |
//! | `pg_wal_wait_over_disk` | WALWrite and WALSync of a transaction, 1 client: less is better |
//! | `pg_tpcb_1_without_redo_waits_over_disk` | what `pg_tpcb_1_over_disk` would be if redo took no time: reckoned from the disk's rate and redo waits |
//! | `pg_wal_bytes_over_disk` | WAL bytes of a transaction, 8 clients, the same number since the checkpoint: 1 |
//! | `pg_wal_bytes_fpw_off_over_on` | WAL bytes of a transaction after a checkpoint, `full_page_writes = off` (safe there) over `on` |
//! | `pg_tpcb_8_fpw_off_over_on` | transactions per second of the same runs |
//! | `pg_read_only_over_disk` | pgbench SELECT only, data in the page cache: 1 is as good as the disk |
//! | `pg_over_symlink_1`, `_4`, `_8` | pgbench -N, transactions per second: attached with pages in the page cache, over the linked WAL |
//! | `pg_atomic_over_symlink_1`, ... | the same with atomic pages |
//! | `pg_disk_over_symlink_1`, ... | the same with all on the disk |
//! | `mariadb_rw_over_disk`, `mariadb_rw_p99_over_disk` | sysbench oltp_read_write, 4 threads; also `ro` (read_only), `wo` (write_only) |
//!
//! Each is the median of its rounds; one whose rounds lie further apart than [`SPREAD`] is marked,
//! and so is a 99th percentile of runs of fewer than [`ENOUGH`] transactions. The full form makes
//! seven rounds, its runs take about five seconds. `pg_read_only` is to tell 3 % on a machine whose
//! own speed changes by more than that: it takes eight clients, so that no processor waits, and
//! eight pairs a round of runs of little more than a second, one right after the other; between
//! which ratios the median lies is printed with it. `--quick` makes three rounds, of runs of about
//! one second, and leaves out what reads only, `mariadb_wo` and `pg_tpcb_8_fpw_off_over_on`.
//!
//! An interrupted benchmark removes what it made.
//!
//! Deliberately absent: what the mount costs per operation (`crates/mount/benches`), SLOB's load
//! (`tiersmith study`).

#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

#[path = "../../../benches/report.rs"]
mod report;

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use report::Report;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tiersmith_awr::WaitStat;
use tiersmith_lab::case::{self, Case, Load};
use tiersmith_lab::place::{self, Leftovers, Places, Wishes};
use tiersmith_lab::run::{Measured, Plans, Program};
use tiersmith_lab::study::result::RunResult;
use tiersmith_lab::target::{self, Ground, Opened, room};
use tiersmith_lab::{ByteSize, mounted, server};

/// What a benchmark that cannot go on says.
type Failed = Box<dyn Error>;

const DISK: &str = "on the disk";
const MOUNT: &str = "on the tier";
const PAGES_TWICE: &str = "on the tier, after a checkpoint";
const ONCE: &str = "on the tier, after a checkpoint, written once";
const SYNC: &str = "the disk itself: 8 KiB write and fdatasync";
const LINKED: &str = "on the disk, WAL linked to the medium";
const ATOMIC: &str = "attached, atomic pages";
const CACHED: &str = "attached, pages in the page cache";
/// How the servers of a product are arranged: case and row.
type Arrangements = &'static [(&'static str, &'static str)];
const ARRANGEMENTS: Arrangements = &[("server-on-home", DISK), ("server-all-on-mount", MOUNT)];
const OVER_SYMLINK: Arrangements = &[
    ("server-on-home", DISK),
    ("server-redo-in-directory", LINKED),
    ("server-all-on-mount", ATOMIC),
    ("server-all-on-mount", CACHED),
];
/// A ratio whose rounds lie further apart, least from most, than this share of their median is
/// marked.
const SPREAD: f64 = 0.15;
/// Runs that find out how many transactions fit the time.
const FIRST: u64 = 300;
/// A run of this part of a run's time, or a longer one, tells the rate of the load.
const LONG_ENOUGH: f64 = 4.0;
/// Least and most transactions of a run.
const TRANSACTIONS: (u64, u64) = (400, 200_000);
/// Of fewer transactions a 99th percentile is the chance of a handful.
const ENOUGH: u64 = 1000;
/// How long an interrupted benchmark may take to stop by itself.
const PATIENCE: Duration = Duration::from_millis(400);
/// How many of a run's waits are told while it goes on.
const WAITS: usize = 5;
/// How often the disk's own sync is timed in a round.
const SYNCS: usize = 60;

/// One load.
struct Group {
    name: &'static str,
    load: Load,
    clients: u32,
    /// A run's share of a round's time.
    share: f64,
    /// How often the arrangements take turns in a round: small differences are judged from many
    /// pairs of runs.
    pairs: usize,
    /// Whether `--quick` has it.
    quick: bool,
}

const POSTGRES: [Group; 3] = [
    Group { name: "pg_tpcb_1", load: Load::Tpcb, clients: 1, share: 1.0, pairs: 1, quick: true },
    Group { name: "pg_tpcb_8", load: Load::Tpcb, clients: 8, share: 1.0, pairs: 1, quick: true },
    Group {
        name: "pg_read_only",
        load: Load::SelectOnly,
        clients: 8,
        share: 0.25,
        pairs: 8,
        quick: false,
    },
];
const SYMLINK: [Group; 3] = [
    Group { name: "pg_over_symlink_1", clients: 1, ..SIMPLE_UPDATE },
    Group { name: "pg_over_symlink_4", clients: 4, ..SIMPLE_UPDATE },
    Group { name: "pg_over_symlink_8", clients: 8, ..SIMPLE_UPDATE },
];
const SIMPLE_UPDATE: Group =
    Group { name: "", load: Load::SimpleUpdate, clients: 1, share: 0.5, pairs: 1, quick: true };
const MARIADB: [Group; 3] = [
    Group {
        name: "mariadb_rw",
        load: Load::ReadWrite,
        clients: 4,
        share: 1.0,
        pairs: 1,
        quick: true,
    },
    Group {
        name: "mariadb_ro",
        load: Load::ReadOnly,
        clients: 4,
        share: 0.7,
        pairs: 1,
        quick: false,
    },
    Group {
        name: "mariadb_wo",
        load: Load::WriteOnly,
        clients: 4,
        share: 0.7,
        pairs: 1,
        quick: false,
    },
];

/// How a benchmark was called.
struct Called {
    home_model: Option<String>,
    quick: bool,
    /// The loads that are measured, by name; nothing: all of the form.
    only: Option<String>,
    /// A run's length, about.
    seconds: f64,
    rounds: usize,
    leftovers: Leftovers,
}

impl Called {
    fn wants(&self, group: &Group) -> bool {
        match &self.only {
            Some(names) => names.split(',').any(|name| name == group.name),
            None => group.quick || !self.quick,
        }
    }
}

/// Servers that take turns.
struct Bench<'a> {
    report: &'a mut Report,
    called: &'a Called,
    cases: &'a [Case],
    opened: Vec<Box<dyn Opened + 'a>>,
    arrangements: Arrangements,
}

fn main() -> ExitCode {
    let home_model = option("--home-model");
    let name = if home_model.is_some() { "databases-modelled" } else { "databases" };
    let mut report = Report::from_args(
        name,
        "PostgreSQL and MariaDB on a mounted home, against the home's disk",
    );
    let quick = report.quick();
    let rounds = match option("--rounds").map(|text| text.parse::<usize>()) {
        None => {
            if quick {
                3
            } else {
                7
            }
        }
        Some(Ok(rounds)) if rounds > 0 => rounds,
        Some(_) => {
            eprintln!("databases: --rounds wants a number, 1 or more");
            return ExitCode::from(2);
        }
    };
    let known: Vec<&str> =
        POSTGRES.iter().chain(&SYMLINK).chain(&MARIADB).map(|group| group.name).collect();
    if let Some(name) = option("--only")
        .iter()
        .flat_map(|names| names.split(','))
        .find(|name| !known.contains(name))
    {
        eprintln!(
            "databases: --only {name}: give some of {}, with commas between",
            known.join(",")
        );
        return ExitCode::from(2);
    }
    let called = Called {
        home_model,
        quick,
        only: option("--only"),
        seconds: if quick { 1.0 } else { 5.0 },
        rounds,
        leftovers: Leftovers::default(),
    };
    let done = clean_up_on_interruption(&called.leftovers).and_then(|()| all(&mut report, &called));
    if called.leftovers.stopped() {
        // The thread that was told of the signal removes everything and ends the program.
        loop {
            std::thread::park();
        }
    }
    called.leftovers.clean();
    if let Err(error) = done {
        eprintln!("databases: {error}");
        return ExitCode::from(2);
    }
    report.finish()
}

/// Removes what was made when the program is interrupted, and ends it.
fn clean_up_on_interruption(leftovers: &Leftovers) -> Result<(), Failed> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let leftovers = leftovers.clone();
    let watch = move || {
        let Some(signal) = signals.forever().next() else { return };
        leftovers.stop();
        // What runs ends within a step of its load, so that nothing is made while everything is
        // removed.
        std::thread::sleep(PATIENCE);
        leftovers.clean();
        eprintln!("databases: interrupted; what was made is removed");
        std::process::exit(128 + signal);
    };
    std::thread::Builder::new().name("signals".into()).spawn(watch)?;
    Ok(())
}

/// The word behind an option.
fn option(name: &str) -> Option<String> {
    std::env::args().skip_while(|word| word != name).nth(1)
}

fn say(what: &str) {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let seconds = BEGAN.get_or_init(Instant::now).elapsed().as_secs_f64();
    let _ = writeln!(std::io::stderr(), "{seconds:5.1} s, {what}");
}

fn all(report: &mut Report, called: &Called) -> Result<(), Failed> {
    if let Some(name) = &called.home_model {
        let model = mounted::home_model(name)?;
        report.config("home_model", name.as_str());
        report.warn(format!(
            "MODELLED: both homes were slowed down to the latencies of {name} ({}; figures from \
             {}); \"on the disk\" is such a home \
             behind a mount whose tier holds nothing. Every figure here is of that model.",
            model.description(),
            model.source()
        ));
    }
    report.config("seconds_per_run_about", called.seconds);
    report
        .note("a run's figure is one sample; the 99th percentile is of the transactions of a run");
    if called.quick && called.only.is_none() {
        report.note(
            "left out by --quick: pg_read_only, pg_tpcb_8_fpw_off_over_on, mariadb_ro, mariadb_wo",
        );
    }
    for (name, arrangements, groups) in [
        ("postgres", ARRANGEMENTS, POSTGRES),
        ("postgres", OVER_SYMLINK, SYMLINK),
        ("mariadb", ARRANGEMENTS, MARIADB),
    ] {
        let groups: Vec<Group> = groups.into_iter().filter(|group| called.wants(group)).collect();
        if !groups.is_empty() {
            product(report, called, name, arrangements, &groups)?;
        }
    }
    Ok(())
}

/// The cases of a product, each arranged in another way.
fn cases_of(
    called: &Called,
    name: &str,
    arrangements: Arrangements,
    groups: &[Group],
) -> Result<Vec<Case>, Failed> {
    let over_symlink = arrangements.len() == OVER_SYMLINK.len();
    let mut cases = Vec::new();
    for (id, row) in arrangements {
        let chosen = case::choose_for(name, &[(*id).to_owned()], false)?;
        let mut case = chosen.into_iter().find(|case| case.id == *id).ok_or("no such case")?;
        case.server.load = groups.first().map_or(Load::Slob, |group| group.load);
        case.server.atomic_pages = *row != CACHED;
        case.server.cache = ByteSize(if over_symlink { 64 << 20 } else { 128 << 20 });
        // pgbench's clients wait for each other's branches where there are fewer branches than
        // clients; sysbench's data are slow to load.
        case.slob.scale =
            ByteSize(if called.quick && name == "mariadb" { 40 << 20 } else { 120 << 20 });
        let settings = case.server.settings.entry(name.into()).or_default();
        if over_symlink {
            // Segments of the WAL are used again and again, as by a server that has been up for a
            // while.
            settings.insert("max_wal_size".into(), "256MB".into());
        } else if name == "postgres" {
            // No checkpoint but those that are asked for.
            settings.insert("max_wal_size".into(), "8GB".into());
            settings.insert("checkpoint_timeout".into(), "1h".into());
        }
        cases.push(case);
    }
    Ok(cases)
}

/// Measures one product, if it is here.
fn product(
    report: &mut Report,
    called: &Called,
    name: &str,
    arrangements: Arrangements,
    groups: &[Group],
) -> Result<(), Failed> {
    let product = server::product(name)?;
    let found = server::find(product)
        .and_then(|programs| server::account(product).map(|account| (programs, account)));
    let (programs, account) = match found {
        Ok(found) => found,
        Err(e) => {
            report.warn(format!("{name} was not measured: {e}"));
            return Ok(());
        }
    };
    report.version(product.title(), programs.version());
    let kind = target::kind(name)?;
    let cases = cases_of(called, name, arrangements, groups)?;
    // Each has a tier of its own.
    let mut places: Vec<Places> = Vec::new();
    for case in &cases {
        let wishes = Wishes {
            home_bytes: 4 * room::database_bytes(case),
            tier_bytes: room::tier_bytes(case).max(64 << 20),
            members: 1,
            reachable_by: account.clone(),
            ..Wishes::default()
        };
        places.push(place::choose(&wishes, called.leftovers.clone())?);
    }
    let go_on = |_: f64| !called.leftovers.stopped();
    let ground = |n: usize| -> Option<Ground<'_>> {
        let (case, places) = (cases.get(n)?, places.get(n)?);
        let home_model = called.home_model.as_deref();
        Some(Ground { case, slob: &case.slob, places, home_model, progress: &go_on })
    };
    let Some(first) = ground(0) else { return Ok(()) };
    if let Some(because) =
        (0..cases.len()).filter_map(ground).find_map(|ground| kind.cannot(&ground))
    {
        report.warn(format!("{name} was not measured: {because}"));
        return Ok(());
    }
    let template = first.places.home.join("loaded");
    fs::create_dir(&template)?;
    say(&format!("{name}: loading"));
    kind.load(&first, &template)?;
    say(&format!("{name}: copying, mounting, starting, reading everything once"));
    let mut opened = Vec::new();
    for ground in (0..cases.len()).filter_map(ground) {
        let server = kind.open(&ground, &template, &ground.places.home.join("run"))?;
        server.warm()?;
        opened.push(server);
    }
    report.config("home", first.places.home_is_on.to_string());
    report.config("tier", first.places.tier_is_on.to_string());
    if first.places.emulated() {
        report.warn(format!(
            "EMULATED: {} stands for persistent memory ({name})",
            first.places.tier_is_on
        ));
    }
    for (_, sentence) in opened.iter().flat_map(|opened| opened.remarks()) {
        report.note(format!("{name}: {sentence}"));
    }
    let mut bench = Bench { report, called, cases: &cases, opened, arrangements };
    bench.rounds(groups, &first.places.home)?;
    for opened in bench.opened {
        opened.close()?;
    }
    say(&format!("{name}: done"));
    Ok(())
}

impl Bench<'_> {
    /// A table's name; a modelled home is named in it.
    fn table(&self, of: &str, what: &str) -> String {
        match &self.called.home_model {
            Some(model) => format!("{of}, MODELLED as {model}: {what}"),
            None => format!("{of}: {what}"),
        }
    }

    fn rounds(&mut self, groups: &[Group], disk: &Path) -> Result<(), Failed> {
        let mut counts = Vec::new();
        for group in groups {
            counts.push(self.fitting(group)?);
        }
        let product = self.cases.first().map_or("", |case| case.target.as_str());
        let postgres = product == "postgres" && groups.iter().any(|group| group.load == Load::Tpcb);
        self.checkpoint(0..self.opened.len())?;
        for round in 1..=self.called.rounds {
            self.report.run(&format!("{product}: {SYNC}"), DISK, syncs(disk)?);
            for (group, count) in groups.iter().zip(&counts) {
                for pair in 0..group.pairs {
                    for n in turns(self.opened.len(), round * group.pairs + pair) {
                        let measured = self.run(n, group, *count)?;
                        self.keep(group.name, self.arrangements[n].1, round, measured);
                    }
                }
            }
            if let Some((group, count)) =
                groups.iter().zip(&counts).find(|(group, _)| group.name == "pg_tpcb_8")
            {
                // Bytes of a transaction need no long run.
                let count = if self.called.quick { *count / 3 } else { *count };
                self.once(group, count.next_multiple_of(u64::from(group.clients)), round)?;
            }
        }
        for (group, count) in groups.iter().zip(&counts) {
            self.ratios(group, *count);
        }
        if postgres {
            let name = "pg_tpcb_8";
            self.ratio(
                "pg_wal_wait_over_disk",
                "pg_tpcb_1",
                "redo waits per transaction",
                MOUNT,
                DISK,
            );
            self.most_there_is_to_win("pg_tpcb_1");
            self.ratio("pg_wal_bytes_over_disk", name, "redo", MOUNT, DISK);
            self.ratio("pg_wal_bytes_fpw_off_over_on", name, "redo", ONCE, PAGES_TWICE);
            if !self.called.quick {
                self.ratio("pg_tpcb_8_fpw_off_over_on", name, "transactions", ONCE, PAGES_TWICE);
            }
        }
        Ok(())
    }

    /// How many transactions the slowest arrangement does in a run's time; every one of them has
    /// then done the same. Where the fast ones are compared with each other, the fastest.
    fn fitting(&self, group: &Group) -> Result<u64, Failed> {
        let wanted_s = self.called.seconds * group.share;
        let of_fast_ones = group.load == Load::SimpleUpdate;
        let mut rate = if of_fast_ones { 0.0 } else { f64::INFINITY };
        for n in 0..self.opened.len() {
            let first = if self.called.home_model.is_some() || self.called.quick {
                FIRST / 3
            } else {
                FIRST
            };
            let mut tried = self.run(n, group, first)?;
            // What takes no time to speak of tells how long a session takes to begin, not how fast
            // it is then: eight clients did four times as much, so a run was a third of a second
            // long, and its 99th percentile that of the beginning. A slow home needs no more tries.
            while (self.called.home_model.is_none()
                || matches!(group.load, Load::SelectOnly | Load::ReadOnly))
                && tried.elapsed_s < wanted_s / LONG_ENOUGH
                && tried.transactions < TRANSACTIONS.1
            {
                let more =
                    tried.transactions.saturating_mul(LONG_ENOUGH as u64).min(TRANSACTIONS.1);
                tried = self.run(n, group, more.next_multiple_of(u64::from(group.clients)))?;
            }
            let tried = tried.transactions_per_s();
            rate = if of_fast_ones { rate.max(tried) } else { rate.min(tried) };
        }
        let count = (rate * wanted_s) as u64;
        Ok(count.clamp(TRANSACTIONS.0, TRANSACTIONS.1).next_multiple_of(u64::from(group.clients)))
    }

    fn run(&self, n: usize, group: &Group, transactions: u64) -> Result<Measured, Failed> {
        let (Some(case), Some(opened)) = (self.cases.get(n), self.opened.get(n)) else {
            return Err("no such arrangement".into());
        };
        let plans = Plans {
            slob: &case.slob,
            block_bytes: case.block_bytes(),
            warm_up: Duration::ZERO,
            run_time: Duration::ZERO,
            program: Some(Program { load: group.load, clients: group.clients, transactions }),
            progress: &|_| {},
            stopped: &|| self.called.leftovers.stopped(),
        };
        Ok(opened.measure(&plans)?)
    }

    /// The runs right after a checkpoint: a page that is changed goes into the WAL whole, or, with
    /// full_page_writes = off, does not.
    fn once(&mut self, group: &Group, count: u64, round: usize) -> Result<(), Failed> {
        let n = self.arrangements.len() - 1;
        for (row, setting) in [(PAGES_TWICE, "on"), (ONCE, "off")] {
            self.tell(n, &format!("ALTER SYSTEM SET full_page_writes = {setting}"))?;
            self.tell(n, "SELECT pg_reload_conf()")?;
            self.checkpoint(n..n + 1)?;
            let measured = self.run(n, group, count)?;
            self.keep(group.name, row, round, measured);
        }
        self.tell(n, "ALTER SYSTEM RESET full_page_writes")?;
        self.tell(n, "SELECT pg_reload_conf()")?;
        // The others begin the next round as this one does.
        self.checkpoint(0..self.opened.len())
    }

    fn checkpoint(&self, which: std::ops::Range<usize>) -> Result<(), Failed> {
        let postgres = self.cases.first().is_some_and(|case| case.target == "postgres");
        which.filter(|_| postgres).try_for_each(|n| self.tell(n, "CHECKPOINT"))
    }

    fn tell(&self, n: usize, statement: &str) -> Result<(), Failed> {
        let server = self.opened.get(n).and_then(|opened| opened.server()).ok_or("no server")?;
        Ok(server.client()?.batch(statement)?)
    }

    fn keep(&mut self, name: &str, row: &str, round: usize, measured: Measured) {
        let run = RunResult {
            case: name.into(),
            update_pct: 100,
            round: u32::try_from(round).unwrap_or(u32::MAX),
            measured,
            snapshots: None,
            warnings: Vec::new(),
        };
        let rate = run.measured.transactions_per_s();
        say(&format!(
            "round {round}: {name} {row}: {rate:.0} transactions/s, {} of them{}",
            run.measured.transactions,
            longest(&run.measured)
        ));
        let table = self.table(name, "transactions");
        self.report.run_in("1/s", &table, row, vec![rate]);
        if let Some(latency) = run.measured.transaction {
            let table = self.table(name, "99th percentile");
            self.report.run_in("ns", &table, row, vec![latency.p99_ns as f64]);
        }
        let each = |figure: Option<f64>| {
            figure.into_iter().filter(|figure| *figure > 0.0).collect::<Vec<f64>>()
        };
        let writes = !name.ends_with("_read_only") && !name.ends_with("_ro");
        for (unit, what, figure) in [
            ("ns", "redo waits per transaction", run.redo_ns_per_transaction()),
            ("B/trans", "redo", run.redo_bytes_per_transaction()),
            ("1/trans", "whole pages in the redo", run.whole_pages_per_transaction()),
        ] {
            if writes {
                let table = self.table(name, what);
                self.report.run_in(unit, &table, row, each(figure));
            }
        }
    }

    fn ratios(&mut self, group: &Group, count: u64) {
        let name = group.name;
        if let Some(clients) = name.strip_prefix("pg_over_symlink_") {
            for (what, row) in [("pg", CACHED), ("pg_atomic", ATOMIC), ("pg_disk", DISK)] {
                let key = format!("{what}_over_symlink_{clients}");
                self.ratio(&key, name, "transactions", row, LINKED);
            }
            return;
        }
        if count < ENOUGH {
            self.report.warn(format!(
                "{name}_p99_over_disk: of runs of {count} transactions, few for a 99th percentile"
            ));
        }
        self.ratio(&format!("{name}_over_disk"), name, "transactions", MOUNT, DISK);
        self.ratio(&format!("{name}_p99_over_disk"), name, "99th percentile", MOUNT, DISK);
    }

    /// What one client would gain if its redo took no time at all: a share of its time that no tier
    /// can exceed by making commits faster.
    fn most_there_is_to_win(&mut self, of: &str) {
        let (rates, waits) =
            (self.table(of, "transactions"), self.table(of, "redo waits per transaction"));
        let (Some(rate), Some(wait_ns)) =
            (self.report.median(&rates, DISK), self.report.median(&waits, DISK))
        else {
            return;
        };
        let waiting = (rate * wait_ns / 1e9).min(0.999);
        let key = if self.called.home_model.is_some() { "modelled_" } else { "" };
        self.report
            .ratio(&format!("{key}{of}_without_redo_waits_over_disk"), 1.0 / (1.0 - waiting));
    }

    fn ratio(&mut self, key: &str, of: &str, what: &str, this: &str, that: &str) {
        let group = self.table(of, what);
        let key = if self.called.home_model.is_some() {
            format!("modelled_{key}")
        } else {
            key.to_owned()
        };
        self.report.ratio_of_medians(&key, (&group, this), (&group, that));
        let spread = self.report.spread_of_ratio((&group, this), (&group, that));
        if let Some(spread) = spread.filter(|spread| *spread > SPREAD) {
            self.report.warn(format!("{key}: spread {:.0} % between rounds", spread * 100.0));
        }
        // Of a few pairs it would be all of them.
        if let Some((low, high, pairs)) = self.report.range_of_ratio((&group, this), (&group, that))
        {
            let sure = format!(
                "{key}: of {pairs} pairs of runs, 95 in 100 sure between {low:.3} and {high:.3}"
            );
            self.report.note(sure);
        }
    }
}

/// What was waited for most in a run, by a request or, in brackets, in the background: microseconds
/// of each transaction.
fn longest(measured: &Measured) -> String {
    let before = |name: &str| {
        measured.begin.waits.iter().find(|wait| wait.name == name).map_or(0, |wait| wait.total_ns)
    };
    let mut waits: Vec<(u64, &WaitStat)> = measured
        .end
        .waits
        .iter()
        .map(|wait| (wait.total_ns.saturating_sub(before(&wait.name)), wait))
        .collect();
    waits.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
    let mut text = String::new();
    for (ns, wait) in waits.into_iter().take(WAITS).filter(|(ns, _)| *ns > 0) {
        let us = ns as f64 / 1e3 / measured.transactions.max(1) as f64;
        let (open, close) = if wait.background { ("(", ")") } else { ("", "") };
        text.push_str(&format!("; {open}{} {us:.0} us{close}", wait.name));
    }
    text
}

/// Who is first changes from round to round.
fn turns(count: usize, round: usize) -> Vec<usize> {
    if round.is_multiple_of(2) { (0..count).rev().collect() } else { (0..count).collect() }
}

/// What a durable write takes on the home's storage, each time in nanoseconds.
fn syncs(dir: &Path) -> std::io::Result<Vec<f64>> {
    let path = dir.join("sync");
    let file = fs::OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
    let page = [7; 8192];
    file.write_all_at(&[0; 8192].repeat(SYNCS), 0)?;
    file.sync_all()?;
    let mut samples = Vec::with_capacity(SYNCS);
    for n in 0..SYNCS {
        let start = Instant::now();
        file.write_all_at(&page, n as u64 * 8192)?;
        file.sync_data()?;
        samples.push(start.elapsed().as_nanos() as f64);
    }
    fs::remove_file(&path)?;
    Ok(samples)
}

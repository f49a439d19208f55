//! PostgreSQL and MariaDB on a mounted home, against the same servers on the home's disk, under their own load programs.
//!
//! `cargo bench -p tiersmith-lab --bench databases -- [--quick]`; writes `target/bench/databases.json`.
//!
//! Each group is a study of `tiersmith study --target`: the server is started on a fresh copy of a loaded directory for every run; cases
//! take turns, round by round. Homes are in the build folder. The tier is a DAX file system if one is mounted, else in `/dev/shm` if that
//! is large enough, else a file; what is not persistent memory is labelled EMULATED. Commits are durable: `fsync = on`,
//! `synchronous_commit = on`, `innodb_flush_log_at_trx_commit = 1`. Torn pages are protected against by the database itself in every row
//! but those that say `written once`.
//!
//! | key of `ratios` | is |
//! |---|---|
//! | `pg_tpcb_1_over_disk`, `pg_tpcb_8_over_disk` | pgbench TPC-B transactions per second with 1 and 8 clients: more is better |
//! | `pg_tpcb_1_p99_over_disk`, `pg_tpcb_8_p99_over_disk` | 99th percentile of a transaction's time: less is better |
//! | `pg_wal_wait_over_disk` | WALWrite and WALSync of a transaction, 1 client: less is better |
//! | `pg_wal_bytes_fpw_off_over_on` | WAL bytes of a transaction with `full_page_writes = off`, which is safe there, over `on` |
//! | `pg_tpcb_8_fpw_off_over_on` | transactions per second with `full_page_writes = off` over `on`, both on the tier |
//! | `pg_read_only_over_disk` | pgbench SELECT only, data in the page cache: 1 is as good as the disk |
//! | `mariadb_rw_over_disk`, `mariadb_rw_p99_over_disk` | sysbench oltp_read_write, 4 threads |
//!
//! Deliberately absent: what the mount costs per operation (`crates/mount/benches`).

#![forbid(unsafe_code)]

#[path = "../../../benches/report.rs"]
mod report;

use std::io::Write as _;
use std::process::ExitCode;

use report::Report;
use tiersmith_lab::case::{self, Case, Load};
use tiersmith_lab::place::Leftovers;
use tiersmith_lab::study::result::{RunResult, StudyResult};
use tiersmith_lab::study::{self, Options, Progress};
use tiersmith_lab::{ByteSize, server};

/// What a benchmark that cannot go on says.
type Failed = Box<dyn std::error::Error>;

const DISK: &str = "on the disk";
const MOUNT: &str = "on the tier";
const ONCE: &str = "on the tier, written once";
/// The cases of `cases/`, as rows.
const ROWS: [(&str, &str); 3] =
    [("server-on-home", DISK), ("server-all-on-mount", MOUNT), ("server-all-written-once", ONCE)];

/// One load on one server.
struct Group {
    name: &'static str,
    target: &'static str,
    load: Load,
    clients: u32,
    /// Rows of [`ROWS`], from the first.
    rows: usize,
}

const GROUPS: [Group; 4] = [
    Group { name: "pg_tpcb_1", target: "postgres", load: Load::Tpcb, clients: 1, rows: 2 },
    Group { name: "pg_tpcb_8", target: "postgres", load: Load::Tpcb, clients: 8, rows: 3 },
    Group { name: "pg_read_only", target: "postgres", load: Load::SelectOnly, clients: 2, rows: 2 },
    Group { name: "mariadb_rw", target: "mariadb", load: Load::ReadWrite, clients: 4, rows: 2 },
];

/// One line on standard error for each run, so that a person sees that it goes on.
struct Lines;

impl Progress for Lines {
    fn step(&self, _: &str, _: f64) {}
    fn done(&self, run: &RunResult) {
        let rate = run.measured.transactions_per_s();
        let _ = writeln!(std::io::stderr(), "round {}: {} {rate:.0} transactions/s", run.round, run.case);
    }
}

fn main() -> ExitCode {
    let title = "PostgreSQL and MariaDB on a mounted home, against the home's disk";
    let mut report = Report::from_args("databases", title);
    for group in &GROUPS {
        if let Err(error) = measure(&mut report, group) {
            eprintln!("databases: {error}");
            return ExitCode::from(2);
        }
    }
    report.finish()
}

fn measure(report: &mut Report, group: &Group) -> Result<(), Failed> {
    let product = server::product(group.target)?;
    match server::find(product) {
        Ok(programs) => report.version(product.title(), programs.version()),
        Err(e) => {
            report.warn(format!("{} was not measured: {e}", group.name));
            return Ok(());
        }
    }
    let result = run(report, group)?;
    note(report, group, &result);
    let of = |run: &RunResult| ROWS.iter().find(|(id, _)| *id == run.case).map(|(_, row)| *row);
    let (rate, p99) = (format!("{}: transactions", group.name), format!("{}: 99th percentile", group.name));
    let (wait, bytes) =
        (format!("{}: redo waits per transaction", group.name), format!("{}: redo", group.name));
    for run in &result.runs {
        let Some(row) = of(run) else { continue };
        report.run_in("1/s", &rate, row, vec![run.measured.transactions_per_s()]);
        if let Some(latency) = run.measured.transaction {
            report.run_in("ns", &p99, row, vec![latency.p99_ns as f64]);
        }
        if let Some(ns) = run.redo_ns_per_transaction() {
            report.run_in("ns", &wait, row, vec![ns]);
        }
        if let Some(redo) = run.redo_bytes_per_transaction() {
            report.run_in("B/trans", &bytes, row, vec![redo]);
        }
    }
    let name = group.name;
    report.ratio_of_medians(&format!("{name}_over_disk"), (&rate, MOUNT), (&rate, DISK));
    if group.load != Load::SelectOnly {
        report.ratio_of_medians(&format!("{name}_p99_over_disk"), (&p99, MOUNT), (&p99, DISK));
    }
    match name {
        "pg_tpcb_1" => report.ratio_of_medians("pg_wal_wait_over_disk", (&wait, MOUNT), (&wait, DISK)),
        "pg_tpcb_8" => {
            report.ratio_of_medians("pg_wal_bytes_fpw_off_over_on", (&bytes, ONCE), (&bytes, MOUNT));
            report.ratio_of_medians("pg_tpcb_8_fpw_off_over_on", (&rate, ONCE), (&rate, MOUNT));
        }
        _ => {}
    }
    Ok(())
}

fn run(report: &Report, group: &Group) -> Result<StudyResult, Failed> {
    let ids: Vec<String> = ROWS.iter().take(group.rows).map(|(id, _)| (*id).to_owned()).collect();
    let mut cases: Vec<Case> = case::choose_for(group.target, &ids, false)?;
    for case in &mut cases {
        case.server.cache = ByteSize(128 << 20);
        case.published.clear();
    }
    let mut options = Options::new(cases);
    options.load = Some(group.load);
    options.clients = Some(group.clients);
    options.scale = Some(ByteSize(120 << 20));
    options.seconds = if report.quick() { 2.0 } else { 10.0 };
    options.rounds = match (report.quick(), group.target) {
        (true, "postgres") if group.load == Load::Tpcb => 3,
        (true, _) => 2,
        (false, _) => 7,
    };
    Ok(study::run(&options, Leftovers::default(), &Lines)?)
}

/// What the figures of a group need beside them.
fn note(report: &mut Report, group: &Group, result: &StudyResult) {
    let first = group.name == GROUPS[0].name;
    if first {
        report.config("home", result.places.home_is_on.as_str());
        report.config("tier", result.places.tier_is_on.as_str());
        report.config("seconds_per_run", result.seconds);
        report.note("a run's figure is one sample; the 99th percentile is of the transactions of a run");
        if result.places.emulated {
            report.warn(format!("EMULATED: {} stands for persistent memory", result.places.tier_is_on));
        }
    }
    let own =
        result.warnings.iter().filter(|warning| ["skipped", "debug-build"].contains(&warning.code.as_str()));
    own.for_each(|warning| report.warn(format!("{}: {}", group.name, warning.sentence)));
    if let (true, Some(mount)) =
        (first, result.runs.iter().flat_map(|run| &run.warnings).find(|w| w.code == "mount"))
    {
        report.note(mount.sentence.clone());
    }
}

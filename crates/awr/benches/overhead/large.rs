//! Snapshots of a PostgreSQL with 10,000 tables and 5,000 statements.

use std::fs;
use std::time::{Duration, Instant};

use tiersmith_awr::Snapshot;
use tiersmith_awr::sources::{self, Address, Asking, Surroundings};

use crate::report::Report;
use crate::servers::Server;

const TABLES: usize = 10_000;
const STATEMENTS: usize = 5_000;

/// Measures snapshots; gives the last of those with the default number of statements.
pub(crate) fn snapshots(report: &mut Report, server: &mut Server) -> Snapshot {
    server.stop();
    server.start_with("--max_locks_per_transaction=1024");
    server.start_with("--pg_stat_statements.max=10000");
    server.start();
    let config = format!("host={} user=postgres dbname=postgres", server.path("").display());
    let mut client = postgres::Client::connect(&config, postgres::NoTls).unwrap();
    let _ = client.batch_execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements");
    for first in (0..TABLES).step_by(1000) {
        let end = first + 999;
        client
            .batch_execute(&format!(
                "DO $$ BEGIN FOR i IN {first}..{end} LOOP EXECUTE 'CREATE \
                                     TABLE t' || i || '()'; END LOOP; END $$"
            ))
            .unwrap();
    }
    for first in (0..STATEMENTS).step_by(500) {
        // Statements differ by their table: by their constants they would be one.
        let many: String =
            (first..first + 500).map(|i| format!("SELECT count(*) FROM t{i};")).collect();
        client.batch_execute(&many).unwrap();
    }
    drop(client);
    report.config("relations", TABLES);
    let url = format!("postgresql://postgres@/postgres?host={}", server.path("").display());
    let address = Address::parse(&url).unwrap();
    let mut last = None;
    for (name, key, statements) in [
        ("all statements", "snapshot_all_s", 2 * STATEMENTS),
        ("the 200 longest statements", "snapshot_s", 200),
    ] {
        let asking = Asking { statements, patience: Duration::from_secs(120), ..Asking::default() };
        let mut source = sources::open(&address, &asking, &Surroundings::default()).unwrap();
        let before = forget_peak();
        let mut samples = Vec::new();
        for _ in 0..5 {
            let began = Instant::now();
            let snapshot = source.snapshot().unwrap();
            samples.push(began.elapsed().as_secs_f64());
            let told = snapshot.statements.len();
            if told < statements.min(STATEMENTS) {
                report.config("statements_told", told);
            }
            last = Some(snapshot);
        }
        if let (2.., Some(before), Some(peak)) = (statements / STATEMENTS, before, memory("VmHWM:"))
        {
            report.ratio("snapshot_mib", (peak.saturating_sub(before)) as f64 / 1024.0);
        }
        samples.sort_by(f64::total_cmp);
        report.ratio(key, samples[samples.len() / 2]);
        let ns = samples.iter().map(|s| s * 1e9).collect();
        report.run("snapshot of 10,000 tables, 5,000 statements", name, ns);
    }
    last.unwrap()
}

/// Lets the peak of memory begin anew. The memory now, in KiB; nothing where the system does not
/// tell.
fn forget_peak() -> Option<u64> {
    fs::write("/proc/self/clear_refs", "5").ok()?;
    memory("VmRSS:")
}

fn memory(field: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix(field))?
        .trim()
        .trim_end_matches("kB")
        .trim()
        .parse()
        .ok()
}

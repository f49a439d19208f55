//! What recording costs a database, what a snapshot of a large one costs, and what a comparison of two days costs.
//!
//! `cargo bench -p tiersmith-awr --bench overhead -- [--quick]`; writes `target/bench/overhead.json`.
//!
//! Servers are started for it on unix sockets in a temporary directory, with syncs off, so that nothing but the processors limits them:
//! that is where a recorder that runs beside them takes the most. Rounds with and without a recorder take turns, and every other
//! round the other one begins. The recorder is at its defaults: a look a second, a snapshot a minute, which falls into the middle of a
//! round of a minute. The quick form has no MariaDB, and rounds too short for a snapshot: what one costs is counted apart.
//!
//! | key of `ratios` | is |
//! |---|---|
//! | `pg_overhead_pct`, `mariadb_overhead_pct` | throughput lost with a recorder, in per cent: median over pairs of rounds; below zero is noise |
//! | `pg_overhead_spread_pct`, `mariadb_overhead_spread_pct` | the middle half of these pairs, in points: what the figure before is worth |
//! | `pg_recorder_cpu_pct` | processor time of the recorder itself, in per cent of one processor |
//! | `pg_look_cpu_ms`, `pg_snapshot_cpu_ms` | processor time of one, the server's process and the recorder together, counted |
//! | `pg_recording_cpu_pct` | of that, a look a second and a snapshot a minute, in per cent of all processors |
//! | `snapshot_s` | a snapshot of a PostgreSQL with 10,000 tables and 5,000 statements, of which it holds the 200 longest (the default) |
//! | `snapshot_all_s` | the same with all 5,000 statements |
//! | `snapshot_mib` | how much the peak of this process's memory grew in the snapshots with all statements |
//! | `compare_s` | reading two days of one-minute snapshots as series, their steps, and the comparison of the days as text and page |

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on says where")]

#[path = "../../../benches/report.rs"]
mod report;
#[path = "../tests/servers/mod.rs"]
mod servers;

#[path = "overhead/cost.rs"]
mod cost;
#[path = "overhead/days.rs"]
mod days;
#[path = "overhead/large.rs"]
mod large;
#[path = "overhead/load.rs"]
mod load;

use std::process::ExitCode;

use report::Report;

fn main() -> ExitCode {
    let title = "what recording costs the database and the recorder";
    let mut report = Report::from_args("overhead", title);
    report.config("servers", "syncs off, unix sockets, buffer pool of 16 MiB, in a temporary directory");
    match servers::postgres("PostgreSQL") {
        None => report.warn("no PostgreSQL server is installed: nothing was measured on one"),
        Some(mut server) => {
            load::pgbench(&mut report, &server);
            let snapshot = large::snapshots(&mut report, &mut server);
            days::compare(&mut report, &snapshot);
        }
    }
    if report.quick() {
        report.note("the quick form leaves MariaDB out");
    } else {
        load::sysbench(&mut report);
    }
    report.finish()
}

//! What recording costs a database, what a snapshot of a large one costs, and what a comparison of
//! two days costs.
//!
//! `cargo bench -p tiersmith-awr --bench overhead -- [--quick [--mariadb]]`; writes
//! `target/bench/overhead.json`.
//!
//! Servers are started for it on unix sockets in a temporary directory, with syncs off, so that
//! nothing but the processors limits them: that is where a recorder that runs beside them takes the
//! most. One load runs, and slots of half a second take turns in it: no recorder, one at its
//! defaults (a look a second, a snapshot a minute), one that asks 60 times as often
//! (`overhead/load.rs` says why). The quick form has 9 slots of each and no MariaDB, unless
//! `--mariadb` is given; the full one 80. It fails (exit code 1) when `pg_whole_cpu_pct` is above
//! 1.
//!
//! | key of `ratios` | is |
//! |---|---|
//! | `pg_overhead_pct`, `mariadb_overhead_pct` | throughput that a recorder at its defaults takes, in per cent: what one that asks about 60 times as often takes, divided by how much oftener it asked, counted; below zero is noise |
//! | `..._overhead_low_pct`, `..._overhead_high_pct` | between these it lies with 95 % certainty |
//! | `..._overhead_60x_pct`, `..._low_pct`, `..._high_pct` | the same before it is divided |
//! | `..._overhead_direct_pct`, `..._low_pct`, `..._high_pct` | the recorder at its defaults beside none, which is mostly noise |
//! | `..._recorder_cpu_pct` | processor time of the recorder at its defaults itself, in per cent of one processor |
//! | `pg_whole_cpu_pct` | processor time that a recorder at its defaults takes beside a load for whole minutes, in per cent of one processor: its own (`pg_whole_recorder_cpu_pct`) and the server's to answer it (`pg_whole_server_cpu_pct`), counted |
//! | `pg_look_cpu_ms`, `pg_snapshot_cpu_ms` | processor time of one, the server's process and the recorder together, counted |
//! | `pg_recording_cpu_pct` | of that, a look a second and a snapshot a minute, in per cent of all processors |
//! | `snapshot_s` | a snapshot of a PostgreSQL with 10,000 tables and 5,000 statements, of which it holds the 200 longest (the default) |
//! | `snapshot_all_s` | the same with all 5,000 statements |
//! | `snapshot_mib` | how much the peak of this process's memory grew in the snapshots with all statements |
//! | `compare_s` | reading two days of one-minute snapshots as series, their steps, and the comparison of the days as text and page |

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on says where")]
#![warn(clippy::too_many_lines, reason = "a function fits a screen")]

#[path = "../../../benches/report.rs"]
mod report;
#[path = "../tests/it/servers/mod.rs"]
#[allow(dead_code, reason = "the integration tests use the rest")]
mod servers;

#[path = "overhead/cost.rs"]
mod cost;
#[path = "overhead/days.rs"]
mod days;
#[path = "overhead/gate.rs"]
mod gate;
#[path = "overhead/large.rs"]
mod large;
#[path = "overhead/load.rs"]
mod load;
#[path = "overhead/whole.rs"]
mod whole;

use std::process::ExitCode;

use report::Report;

fn main() -> ExitCode {
    let title = "what recording costs the database and the recorder";
    let mut report = Report::from_args("overhead", title);
    report.config(
        "servers",
        "syncs off, unix sockets, buffer pool of 16 MiB, in a temporary directory",
    );
    match servers::postgres("PostgreSQL") {
        None => report.warn("no PostgreSQL server is installed: nothing was measured on one"),
        Some(mut server) => {
            load::pgbench(&mut report, &server);
            let snapshot = large::snapshots(&mut report, &mut server);
            days::compare(&mut report, &snapshot);
        }
    }
    if report.quick() && !report.has_option("--mariadb") {
        report.note("left out by --quick: MariaDB; --mariadb has it in again");
    } else {
        load::sysbench(&mut report);
    }
    report.finish()
}

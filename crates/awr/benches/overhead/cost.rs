//! What a recorder costs, counted and not compared: processor time of the server's process that
//! answers it, and of the recorder.
//!
//! Throughput of two rounds differs by more than a recorder takes; processor time the kernel counts
//! in nanoseconds, on a busy machine as well. A server that has all processors busy loses what the
//! recorder takes of them.

use std::fs;
use std::time::Instant;

use tiersmith_awr::Sampling;
use tiersmith_awr::sources::LiveSource;

use crate::load::processor_s;
use crate::report::Report;
use crate::servers::Server;

/// Processor time of a process, as the scheduler has it; nothing where it does not say.
pub(crate) fn processor_of(process: i32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{process}/schedstat")).ok()?;
    let ns: u64 = text.split_ascii_whitespace().next()?.parse().ok()?;
    Some(ns as f64 / 1e9)
}

/// Counts looks and snapshots of a PostgreSQL that has just done its work.
pub(crate) fn counted(report: &mut Report, server: &Server, source: &mut dyn LiveSource) {
    let config = format!("host={} user=postgres dbname=postgres", server.path("").display());
    let mut client = postgres::Client::connect(&config, postgres::NoTls).unwrap();
    let asked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'tiersmith' AND \
                 backend_type = 'client backend'";
    let mut sampling = Sampling::new("bench".to_owned(), 1000);
    source.snapshot().unwrap();
    source.look(&mut sampling).unwrap();
    let backends: Vec<i32> =
        client.query(asked, &[]).unwrap().iter().map(|row| row.get(0)).collect();
    let [backend] = backends[..] else {
        return report.warn(format!(
            "{} sessions of recorders: what one costs was not counted",
            backends.len()
        ));
    };
    let mut look = || {
        source.look(&mut sampling).unwrap();
    };
    let looks = measured(report, "look at the sessions", backend, 200, &mut look);
    let mut snapshot = || {
        source.snapshot().unwrap();
    };
    let snapshots = measured(report, "snapshot", backend, 40, &mut snapshot);
    let Some((looks, snapshots)) = looks.zip(snapshots) else {
        return report.warn(
            "the system does not tell the processor time of a process: what recording costs was \
             not counted",
        );
    };
    report.ratio("pg_look_cpu_ms", looks * 1e3);
    report.ratio("pg_snapshot_cpu_ms", snapshots * 1e3);
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    report.ratio("pg_recording_cpu_pct", (looks + snapshots / 60.0) / cores * 100.0);
}

/// Processor seconds of one, the server's and the recorder's together.
fn measured(
    report: &mut Report,
    what: &str,
    backend: i32,
    times: usize,
    step: &mut dyn FnMut(),
) -> Option<f64> {
    let before = (processor_of(backend)?, processor_s());
    let mut samples = Vec::new();
    for _ in 0..times {
        let began = Instant::now();
        step();
        samples.push(began.elapsed().as_secs_f64() * 1e9);
    }
    let (of_server, own) = (processor_of(backend)? - before.0, processor_s() - before.1);
    report.run("PostgreSQL asked by a recorder", what, samples);
    let ms = |s: f64| vec![s / times as f64 * 1e3];
    report.run_in("ms", "processor time of the server", what, ms(of_server));
    report.run_in("ms", "processor time of the recorder", what, ms(own));
    Some((of_server + own) / times as f64)
}

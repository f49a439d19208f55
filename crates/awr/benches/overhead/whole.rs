//! A recorder at its defaults beside a load for whole minutes: the processor time that the kernel
//! counted for the recorder and for the server's process that answers it, by the time that passed.
//!
//! Nothing is stretched or divided here, and another load on the machine changes little: what a
//! process used is counted, however long it waited for a processor.
//!
//! Deliberately absent: what the load lost (`load.rs`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tiersmith_awr::record::{Plan, Recorder};

use crate::cost::processor_of;
use crate::load::{Running, processor_s};
use crate::report::Report;
use crate::servers::Server;

/// What a recorder at its defaults may use of one processor, in per cent, the server's part in it.
const MOST_PCT: f64 = 1.0;

/// Before the first minute: what is done once, at the beginning of a recording, is not in it.
const BEFORE: Duration = Duration::from_secs(2);
const MINUTE: Duration = Duration::from_secs(60);

/// Ends the recording, also when the benchmark fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Records for whole minutes while the load runs.
pub(crate) fn recording(report: &mut Report, server: &Server, url: &str, mut load: Running) {
    let minutes: u32 = if report.quick() { 1 } else { 5 };
    report.config("pg_whole_minutes", minutes);
    let surroundings = tiersmith_awr::sources::Surroundings::default();
    let source = server.source(url, &surroundings).unwrap();
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let second = Duration::from_secs(1);
    let plan = Plan { every: MINUTE, length: None, sample: Some(second), keep: None };
    let recorder = Recorder::begin(vec![source], &dir.path().join("awr.db"), plan).unwrap();
    let config = format!("host={} user=postgres dbname=postgres", server.path("").display());
    let mut client = postgres::Client::connect(&config, postgres::NoTls).unwrap();
    let over = AtomicBool::new(false);
    let counted = std::thread::scope(|scope| {
        let ending = Ending(&over);
        scope.spawn(|| recorder.run(&|| over.load(Ordering::Relaxed)).unwrap());
        std::thread::sleep(BEFORE);
        let asked = "SELECT pid FROM pg_stat_activity WHERE application_name = 'tiersmith' AND \
                     backend_type = 'client backend'";
        let backends: Vec<i32> =
            client.query(asked, &[]).unwrap().iter().map(|row| row.get(0)).collect();
        assert!(!backends.is_empty(), "the recorder has no session");
        let of_server =
            || backends.iter().map(|backend| processor_of(*backend)).sum::<Option<f64>>();
        let (began, own, theirs) = (Instant::now(), processor_s(), of_server());
        for _ in 0..minutes {
            std::thread::sleep(MINUTE);
            load.must_run();
        }
        let seconds = began.elapsed().as_secs_f64();
        let (own, theirs) = (processor_s() - own, of_server().zip(theirs));
        drop(ending);
        theirs.map(|(end, begin)| (own / seconds * 100.0, (end - begin) / seconds * 100.0))
    });
    let Some((own, theirs)) = counted else {
        return report.warn(
            "the system does not tell the processor time of a process: what a recording costs was \
             not counted",
        );
    };
    report.ratio("pg_whole_recorder_cpu_pct", own);
    report.ratio("pg_whole_server_cpu_pct", theirs);
    report.ratio("pg_whole_cpu_pct", own + theirs);
    if own + theirs > MOST_PCT {
        report.broken(format!(
            "recording used {:.3} % of one processor, and {MOST_PCT} % is promised",
            own + theirs
        ));
    }
    report.note(format!(
        "PostgreSQL under pgbench for {minutes} min: a recorder at its defaults used {own:.3} % of \
         one processor, and the server {theirs:.3} % to answer it"
    ));
}

//! What recording a wait event costs, beside the clock reads that no timed event can do without.
//!
//! `cargo bench -p tiersmith-events --bench record -- [--quick]`; writes
//! `target/bench/events_record.json`. Samples are batches of 1000 events, so the p99 is of the mean
//! of 1000, not of single events.

#[path = "../../../benches/report.rs"]
mod report;

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::Instant;

use report::{Report, time_batches};
use tiersmith_events::{EventId, Registry, counters, wait_events};

wait_events! {
    /// As many events as a part of the product has.
    const EVENTS;
    /// One.
    E0 = "event 0", UserIo;
    /// One.
    E1 = "event 1", UserIo;
    /// One.
    E2 = "event 2", UserIo;
    /// One.
    E3 = "event 3", SystemIo;
    /// One.
    E4 = "event 4", SystemIo;
    /// One.
    E5 = "event 5", Commit;
    /// One.
    E6 = "event 6", Concurrency;
    /// One.
    E7 = "event 7", Other;
}
counters! {
    /// One counter.
    const COUNTERS;
    /// One.
    C0 = "counter 0", "events";
}

const MIXED: [EventId; 8] = [E0, E1, E2, E3, E4, E5, E6, E7];
const BATCH: usize = 1_000;
const ONE: &str = "one thread, per event";
const MANY: &str = "per event and thread";
const LIFE: &str = "registry";

fn main() -> ExitCode {
    let mut report = Report::from_args("events_record", "cost of recording a wait event");
    let operations = if report.quick() { 200 * BATCH } else { 1_000 * BATCH };
    report.config("events_per_round", operations);
    report.config("events_per_sample", BATCH);
    tiersmith_events::calibrate_clock();
    for _ in 0..report.rounds() {
        one_thread(&mut report, operations);
        threads(&mut report, operations);
        life(&mut report, operations / 20);
    }
    figures(&mut report);
    report.finish()
}

fn one_thread(report: &mut Report, operations: usize) {
    let clock = quanta::Clock::new();
    let registry = black_box(Registry::new(EVENTS, COUNTERS));
    let recorder = registry.recorder();
    let disabled = Registry::disabled();
    let samples = time_batches(operations, BATCH, |_| {
        black_box(clock.raw());
        black_box(clock.raw());
    });
    report.run(ONE, "two clock reads (the floor)", samples);
    let samples = time_batches(operations, BATCH, |_| {
        let start = black_box(Instant::now());
        black_box(start.elapsed());
    });
    report.run(ONE, "two std::time::Instant reads", samples);
    let samples = time_batches(operations, BATCH, |_| {
        let start = registry.start();
        let _ = registry.record(E0, start);
    });
    report.run(ONE, "start, record", samples);
    let samples = time_batches(operations, BATCH, |at| {
        let start = registry.start();
        let _ = registry.record_n(MIXED[at % 8], start, 8192);
    });
    report.run(ONE, "start, record_n, 8 events", samples);
    let samples = time_batches(operations, BATCH, |_| {
        let start = recorder.start();
        let _ = recorder.record(E0, start);
    });
    report.run(ONE, "start, record by a Recorder", samples);
    let mut start = registry.start();
    let samples = time_batches(operations, BATCH, |_| start = registry.record(E0, start));
    report.run(ONE, "record in a chain (one read)", samples);
    let samples = time_batches(operations, BATCH, |at| {
        // From 100 ns to 100 us, so that octaves change.
        registry.record_ns(MIXED[at % 8], 100 << (at % 11), 8192);
    });
    report.run(ONE, "record_ns, mixed (no clock)", samples);
    let samples = time_batches(operations, BATCH, |_| registry.count(C0, 1));
    report.run(ONE, "count", samples);
    let samples = time_batches(operations, BATCH, |_| {
        // Hidden from the optimizer, which would otherwise take the test for "disabled" out of the
        // loop.
        let disabled = black_box(&disabled);
        let start = disabled.start();
        let _ = disabled.record(E0, start);
    });
    report.run(ONE, "start, record, disabled", samples);
}

fn threads(report: &mut Report, operations: usize) {
    for (threads, name) in [(1, "1 thread"), (2, "2 threads")] {
        let registry = Registry::new(EVENTS, COUNTERS);
        let begin = Barrier::new(threads);
        let samples = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..threads)
                .map(|_| {
                    scope.spawn(|| {
                        begin.wait();
                        time_batches(operations, BATCH, |_| {
                            let start = registry.start();
                            let _ = registry.record_n(E0, start, 8192);
                        })
                    })
                })
                .collect();
            let joined = handles
                .into_iter()
                .map(|handle| handle.join().expect("BUG: a recording thread panicked"));
            joined.flatten().collect::<Vec<f64>>()
        });
        assert_eq!(
            registry.read().event(E0).count(),
            (operations * threads) as u64,
            "BUG: events were lost"
        );
        report.run(MANY, name, samples);
    }
}

fn life(report: &mut Report, operations: usize) {
    let samples =
        time_batches(operations, BATCH, |_| drop(black_box(Registry::new(EVENTS, COUNTERS))));
    report.run(LIFE, "new, drop", samples);
    let samples = time_batches(operations, BATCH, |_| {
        let registry = Registry::new(EVENTS, COUNTERS);
        registry.record_ns(E0, 100, 0);
    });
    report.run(LIFE, "new, one event, drop", samples);
    let registry = Registry::new(EVENTS, COUNTERS);
    for event in MIXED {
        for shift in 0..11 {
            registry.record_ns(event, 100 << shift, 0);
        }
    }
    let samples =
        time_batches(operations.div_ceil(20), BATCH / 20, |_| drop(black_box(registry.read())));
    report.run(LIFE, "read 8 events x 11 octaves", samples);
}

fn figures(report: &mut Report) {
    let floor = (ONE, "two clock reads (the floor)");
    report.ratio_of_medians("record_over_two_clock_reads", (ONE, "start, record"), floor);
    report.ratio_of_medians("two_threads_over_one", (MANY, "1 thread"), (MANY, "2 threads"));
    // Per event and thread, so equal times are twice the throughput.
    report.scale_ratio("two_threads_over_one", 2.0);
    for (key, group, name) in [
        ("record_ns", ONE, "start, record"),
        ("record_chained_ns", ONE, "record in a chain (one read)"),
        ("count_ns", ONE, "count"),
        ("disabled_ns", ONE, "start, record, disabled"),
        ("two_clock_reads_ns", ONE, floor.1),
        ("registry_new_ns", LIFE, "new, drop"),
    ] {
        if let Some(median) = report.median(group, name) {
            report.ratio(key, median);
        }
    }
}

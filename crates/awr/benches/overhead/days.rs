//! The comparison of two days of one-minute snapshots.

use std::time::Instant;

use tiersmith_awr::archive::Archive;
use tiersmith_awr::page::Page;
use tiersmith_awr::{Interval, Snapshot, SnapshotId, render};

use crate::report::Report;

const MINUTES: u64 = 1440;

/// The snapshot as it would be `minute` minutes later, if everything went on as before.
fn later(of: &Snapshot, minute: u64) -> Snapshot {
    let mut snapshot = of.clone();
    let ns = minute * 60_000_000_000;
    snapshot.taken_unix_ns += ns;
    snapshot.monotonic_ns += ns;
    snapshot.db_time_ns = snapshot.db_time_ns.map(|before| before + ns * 2);
    for wait in &mut snapshot.waits {
        wait.count += minute * 60;
        wait.total_ns += minute * 1_000_000_000;
        // Latencies that change: there is a heat map to draw.
        let slow = minute / 60 * 900 + (minute % 60) * (minute % 60) / 4;
        let before = wait.count - minute * 60;
        wait.buckets = vec![(524_288, before), (1_048_576, minute * 60 - slow), (8_388_608, slow)];
        wait.buckets.retain(|(_, count)| *count > 0);
        wait.max_ns = wait.max_ns.max(16_777_215);
    }
    snapshot.counters.iter_mut().for_each(|counter| counter.value += minute * 6_000);
    for statement in &mut snapshot.statements {
        statement.calls += minute;
        statement.total_ns += minute * 1_000_000;
    }
    snapshot
}

pub(crate) fn compare_of(archive: &Archive, days: [(SnapshotId, SnapshotId); 2]) -> usize {
    let mut sizes = 0;
    let intervals = days.map(|(first, last)| {
        let series = archive.series(first, last).unwrap();
        sizes += series.steps().filter(|step| step.what.is_ok()).count();
        Interval::between(&archive.find(first).unwrap(), &archive.find(last).unwrap())
            .unwrap()
            .over(&series)
    });
    assert_eq!(sizes as u64, 2 * MINUTES, "every minute of both days is there");
    let report = tiersmith_awr::compare(&intervals[0], &intervals[1]);
    let mut page = Page::new("two days");
    render::add_to(&mut page, &report);
    let (text, page) = (render::text(&report), page.render());
    for what in ["Activity Over Time", "<svg"] {
        assert!(page.contains(what), "the page has its {what}, as the program's has");
    }
    text.len() + page.len()
}

/// Measures the comparison of two days that are made from one snapshot.
pub(crate) fn compare(report: &mut Report, of: &Snapshot) {
    let dir = tempfile::tempdir().unwrap();
    let archive = Archive::open(dir.path().join("awr.db")).unwrap();
    let mut middle = of.clone();
    // Reports read the statements of the ends only. Making thousands of whole snapshots would take
    // minutes.
    middle.statements.truncate(20);
    let mut days = Vec::new();
    for day in 0..2 {
        let begin = day * (MINUTES + 60);
        let mut ids = Vec::new();
        for minute in 0..=MINUTES {
            let end = minute == 0 || minute == MINUTES;
            ids.push(archive.take(&later(if end { of } else { &middle }, begin + minute)).unwrap());
        }
        days.push((ids[0], ids[ids.len() - 1]));
    }
    let size = std::fs::metadata(dir.path().join("awr.db")).map_or(0, |metadata| metadata.len());
    report.config("compare_snapshots", 2 * (MINUTES + 1));
    report.config("compare_repository_bytes", size);
    report.note(
        "the days that are compared are made from one snapshot; those between their ends \
                 hold 20 statements each",
    );
    let mut samples = Vec::new();
    for _ in 0..3 {
        let began = Instant::now();
        let bytes = compare_of(&archive, [days[0], days[1]]);
        samples.push(began.elapsed().as_secs_f64());
        report.config("compare_output_bytes", bytes);
    }
    samples.sort_by(f64::total_cmp);
    report.ratio("compare_s", samples[samples.len() / 2]);
    report.run(
        "comparison of two days of one-minute snapshots",
        "text and page",
        samples.iter().map(|s| s * 1e9).collect(),
    );
}

//! Series: the same from every form of repository, broken where counting was, and small.

#[allow(dead_code, reason = "other tests use the rest")]
use crate::day;
use std::fs;
use std::path::Path;

use crate::fixture::{at_home, on_tier};
use tiersmith_awr::archive::{Archive, Gap};
use tiersmith_awr::{
    AnyRepository, Break, Error, Interval, Series, Snapshot, SnapshotId, StatementStat,
};

/// The fixture's snapshot, `minutes` later, with everything a brief one leaves out.
fn at_minute(minutes: u64) -> Snapshot {
    let mut snapshot = at_home().1;
    snapshot.taken_unix_ns += minutes * 60_000_000_000;
    snapshot.monotonic_ns += minutes * 60_000_000_000;
    snapshot.db_time_ns = snapshot.db_time_ns.map(|ns| ns + minutes * 1_000_000_000);
    snapshot.add_counter("grown", "rows", minutes * 10);
    snapshot.statements.push(StatementStat {
        id: "1".to_owned(),
        text: "SELECT ?".to_owned(),
        calls: minutes,
        ..StatementStat::default()
    });
    snapshot
}

fn grown(series: &Series) -> Vec<Option<u64>> {
    series
        .steps()
        .map(|step| step.what.ok().and_then(|interval| interval.counter("grown")))
        .collect()
}

#[test]
fn a_brief_snapshot_gives_the_same_figures_but_those_it_leaves_out() {
    let (begin, end) = on_tier();
    let (whole, brief) = (
        Interval::between(&begin, &end).unwrap(),
        Interval::between(&begin.brief(), &end.brief()).unwrap(),
    );
    assert_eq!(whole.waits, brief.waits);
    assert_eq!(whole.counters, brief.counters);
    assert_eq!(
        (whole.db_time_ns, whole.host_cpu, whole.disks),
        (brief.db_time_ns, brief.host_cpu, brief.disks)
    );
    assert!(brief.begin.is_emulated(), "the word goes with the figures");
    assert!(brief.io.is_empty() && brief.begin.source.settings.is_empty());
    assert_eq!(Snapshot::from_json(&end.brief().to_json(), "here").unwrap(), end.brief());
    assert_eq!(end.brief().brief(), end.brief());
}

#[test]
fn a_series_is_the_same_from_a_directory_and_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut other = at_minute(2);
    other.source.path = "another".to_owned();
    let mut series = ["a.db", "a"].map(|name| {
        let repository = AnyRepository::open(&dir.path().join(name)).unwrap();
        for snapshot in [&at_minute(0), &at_minute(1), &other, &at_minute(2), &at_minute(3)] {
            repository.take(snapshot).unwrap();
        }
        assert!(matches!(
            repository.series(SnapshotId::new(77), SnapshotId::new(99)),
            Err(Error::NoSuchSnapshot { .. })
        ));
        repository.series(SnapshotId::new(2), SnapshotId::new(99)).unwrap()
    });
    for series in &mut series {
        assert_eq!(series.ids, [2, 4, 5].map(SnapshotId::new));
        assert_eq!(series.snapshots, [1, 2, 3].map(|minute| at_minute(minute).brief()));
        assert_eq!(grown(series), [Some(10), Some(10)]);
    }
}

#[test]
fn a_restart_breaks_the_line_and_a_gap_is_in_the_step_that_it_is_in() {
    let dir = tempfile::tempdir().unwrap();
    let archive = Archive::open(dir.path().join("awr.db")).unwrap();
    let path = at_minute(0).source.path;
    let gap = |reason: &str, at_unix_ns| Gap {
        source: path.clone(),
        at_unix_ns,
        reason: reason.to_owned(),
        after: None,
    };
    archive.take(&at_minute(0)).unwrap();
    // The time of day of a gap may be anything: the clock may have been set.
    archive.note_gap(&gap("no answer", 5)).unwrap();
    archive.note_gap(&Gap { source: "another".to_owned(), ..gap("no", 6) }).unwrap();
    archive.take(&at_minute(2)).unwrap();
    let mut restarted = at_minute(3);
    restarted.source.instance = "run-2".to_owned();
    let mut later = restarted.clone();
    later.monotonic_ns += 60_000_000_000;
    // Set back by a day.
    later.taken_unix_ns -= 86_400_000_000_000;
    later.resets.insert("statements".to_owned(), "yesterday".to_owned());
    let mut reset = later.clone();
    reset.monotonic_ns += 60_000_000_000;
    reset.resets.insert("statements".to_owned(), "now".to_owned());
    for snapshot in [&restarted, &later, &reset] {
        archive.take(snapshot).unwrap();
    }
    archive.note_gap(&gap("after the end", 7)).unwrap();
    let series = archive.series(SnapshotId::new(1), SnapshotId::new(5)).unwrap();
    assert_eq!(
        series.gaps.iter().map(|gap| gap.reason.as_str()).collect::<Vec<_>>(),
        ["no answer"]
    );
    let steps: Vec<_> = series.steps().collect();
    assert_eq!(steps.iter().map(|step| step.gaps.len()).collect::<Vec<_>>(), [1, 0, 0, 0]);
    assert_eq!(steps[0].what.as_ref().unwrap().counter("grown"), Some(20));
    assert!(matches!(steps[1].what, Err(Break::Restarted(_))), "{:?}", steps[1].what);
    let back = steps[2].what.as_ref().unwrap();
    assert_eq!(back.elapsed_s(), 60.0);
    assert!(back.warnings.iter().any(|line| line.contains("set back")), "{:?}", back.warnings);
    assert!(matches!(steps[3].what, Err(Break::Reset(_))), "{:?}", steps[3].what);
    let words = steps[1].what.as_ref().unwrap_err();
    assert!(words.name() == "restarted" && words.error().to_string().contains("run-2"));
}

#[test]
fn a_damaged_snapshot_is_named_and_the_others_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("awr.db");
    let archive = Archive::open(&path).unwrap();
    for minute in 0..4 {
        archive.take(&at_minute(minute)).unwrap();
    }
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute("UPDATE brief SET body = substr(body, 1, 100) WHERE id = 2", []).unwrap();
    let series = archive.series(SnapshotId::new(1), SnapshotId::new(4)).unwrap();
    assert_eq!(series.ids, [1, 3, 4].map(SnapshotId::new));
    assert_eq!(series.snapshots[1], at_minute(2).brief());
    assert!(matches!(&series.damaged[..], [(id, Error::Damaged { .. })] if id.number() == 2));
    assert_eq!(series.steps().map(|step| step.damaged).collect::<Vec<_>>(), [true, false]);
    assert_eq!(grown(&series), [Some(20), Some(10)]);
    assert_eq!(archive.find(SnapshotId::new(2)).unwrap(), at_minute(1), "its whole body is sound");
}

#[test]
fn a_file_of_another_format_is_refused_by_name_and_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("old.db");
    drop(Archive::open(&path).unwrap());
    let development = 0x5453_4157;
    for (pragma, value, words) in [
        ("user_version", 2, "it is of format 2, this program knows format 1"),
        ("application_id", development, "a development build made it"),
    ] {
        let raw = rusqlite::Connection::open(&path).unwrap();
        raw.pragma_update(None, pragma, value).unwrap();
        drop(raw);
        let before = fs::read(&path).unwrap();
        for opened in [Archive::existing(&path), Archive::open(&path)] {
            let said = opened.unwrap_err().to_string();
            assert!(said.contains(words), "{said}");
        }
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}

#[test]
fn a_file_of_format_1_stays_readable() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expected/archive-format-1.db");
    let (begin, end) = on_tier();
    if std::env::var_os("TIERSMITH_BLESS").is_some() && !golden.exists() {
        let archive = Archive::open(&golden).unwrap();
        let ids = [archive.take(&begin).unwrap(), archive.take(&end).unwrap()];
        let source = begin.source.path.clone();
        archive
            .note_gap(&Gap {
                source,
                at_unix_ns: 5,
                reason: "gone".to_owned(),
                after: Some(ids[0]),
            })
            .unwrap();
        archive.add_baseline("before", ids[0], ids[1]).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy.db");
    fs::copy(&golden, &path).unwrap();
    let archive = Archive::existing(&path).unwrap();
    let series = archive.series(SnapshotId::new(1), SnapshotId::new(2)).unwrap();
    assert_eq!(series.snapshots, [begin.brief(), end.brief()]);
    assert_eq!(series.gaps[0].after, Some(SnapshotId::new(1)));
    assert_eq!(archive.find(SnapshotId::new(2)).unwrap(), end);
    assert_eq!(fs::read(&path).unwrap(), fs::read(&golden).unwrap(), "reading changes nothing");
}

/// How many bytes a snapshot takes in the file, and how many its brief one. The sizes are the same
/// in every run.
///
/// `TIERSMITH_DAY=1441` makes it a whole day of 5,000 statements, and prints how long that takes to
/// read.
#[test]
fn a_day_of_snapshots_is_small_and_is_read_without_the_bodies() {
    let whole_day = std::env::var("TIERSMITH_DAY").ok().and_then(|text| text.parse::<usize>().ok());
    let (count, statements) = whole_day.map_or((12, 300), |count| (count, 5_000));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("day.db");
    let archive = Archive::open(&path).unwrap();
    let mut ids = Vec::new();
    let mut text_bytes = 0;
    let mut snapshots = day::day("db1", statements).take(count).peekable();
    while snapshots.peek().is_some() {
        let some: Vec<Snapshot> = snapshots.by_ref().take(50).collect();
        text_bytes += some.iter().map(|snapshot| snapshot.to_json().len()).sum::<usize>();
        ids.extend(archive.take_all(&some).unwrap());
    }
    let raw = rusqlite::Connection::open(&path).unwrap();
    let bytes = |table: &str| -> i64 {
        raw.query_row(&format!("SELECT sum(length(body)) FROM {table}"), [], |row| row.get(0))
            .unwrap()
    };
    let (bodies, briefs) = (bytes("snapshot") as usize, bytes("brief") as usize);
    let began = std::time::Instant::now();
    let series = archive.series(ids[0], ids[count - 1]).unwrap();
    let read = began.elapsed();
    let made = series.steps().filter(|step| step.what.is_ok()).count();
    eprintln!(
        "{count} snapshots with {statements} statements: text {text_bytes}, bodies {bodies}, \
         briefs {briefs} bytes, file {}; series read in \
         {read:?}, steps made in {:?}",
        fs::metadata(&path).unwrap().len(),
        began.elapsed() - read
    );
    assert_eq!((series.ids.len(), made), (count, count - 1));
    assert!(bodies * 3 < text_bytes, "{bodies} of {text_bytes} bytes");
    // Most of it are the histograms, which fill during the day.
    assert!(
        briefs / count < 40_000,
        "{} bytes a snapshot, whatever the number of statements",
        briefs / count
    );
}

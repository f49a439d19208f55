//! Snapshots: their text form, damage of every kind, and the differences that must not be made.

use crate::fixture;
use std::path::Path;

use crate::fixture::{at_home, home_interval, on_tier, tier_interval};
use tiersmith_awr::{
    Error, Interval, IoStat, Report, Snapshot, Source, WaitStat, compare, read_snapshot, render,
    report,
};
use tiersmith_events::{Histogram, Registry, WaitClass};

#[test]
fn a_snapshot_reads_back_as_it_was() {
    let (begin, end) = on_tier();
    for snapshot in [begin, end, Snapshot::now(Source::default())] {
        let text = snapshot.to_json();
        assert_eq!(text.lines().count(), 1);
        assert_eq!(Snapshot::from_json(&text, "here").unwrap(), snapshot);
    }
}

#[test]
fn a_snapshot_of_format_1_stays_readable() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expected/snapshot-format-1.json");
    let snapshot = on_tier().1;
    if std::env::var_os("TIERSMITH_BLESS").is_some() && !path.exists() {
        std::fs::write(&path, snapshot.to_json()).unwrap();
    }
    assert_eq!(read_snapshot(&path).unwrap(), snapshot);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), snapshot.to_json());
}

#[test]
fn a_snapshot_of_another_format_is_refused_by_name() {
    let text = on_tier().1.to_json();
    for other in [0, 2, 3, u64::MAX] {
        let text = text.replacen("\"format\":1,", &format!("\"format\":{other},"), 1);
        let error = Snapshot::from_json(&text, "here").unwrap_err();
        assert!(
            matches!(error, Error::Format { found, known: 1, .. } if found == other),
            "{error}"
        );
        assert!(error.to_string().contains("Use the tiersmith that recorded it"), "{error}");
    }
}

#[test]
fn numbers_of_any_size_make_no_panic() {
    let (begin, end) = on_tier();
    let end = serde_json::to_value(&end).unwrap();
    let mut rng = fastrand::Rng::with_seed(5);
    let (mut made, mut refused) = (0, 0);
    for round in 0..120 {
        let mut changed = end.clone();
        for _ in 0..=round % 4 {
            let mut left = rng.usize(0..count_of_numbers(&changed));
            let value = *rng.choice(&[0, 1, u64::MAX, u64::MAX / 2, 1 << 53]).unwrap();
            change_number(&mut changed, &mut left, value);
        }
        let Ok(later) = serde_json::from_value::<Snapshot>(changed) else { continue };
        match Interval::between(&begin, &later) {
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
            Ok(interval) => {
                for report in [report(&interval), compare(&interval, &tier_interval())] {
                    let (text, html) = (render::text(&report), render::html(&report));
                    assert!(!text.contains("NaN") && !html.contains("NaN"), "{text}");
                    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
                    // A number that is not finite would be read back as nothing.
                    assert_eq!(serde_json::from_str::<Report>(&report.json()).unwrap(), report);
                }
                made += 1;
            }
        }
    }
    assert!(made > 20 && refused > 20, "{made} reports, {refused} refused");
}

fn count_of_numbers(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Number(_) => 1,
        serde_json::Value::Array(values) => values.iter().map(count_of_numbers).sum(),
        serde_json::Value::Object(fields) => fields.values().map(count_of_numbers).sum(),
        _ => 0,
    }
}

/// Puts `number` in the place of the number that has `left` others before it.
fn change_number(value: &mut serde_json::Value, left: &mut usize, number: u64) {
    match value {
        serde_json::Value::Number(_) => {
            if *left == 0 {
                *value = number.into();
            }
            *left = left.wrapping_sub(1);
        }
        serde_json::Value::Array(values) => {
            values.iter_mut().for_each(|value| change_number(value, left, number))
        }
        serde_json::Value::Object(fields) => {
            fields.values_mut().for_each(|value| change_number(value, left, number));
        }
        _ => {}
    }
}

#[test]
fn a_text_that_ends_early_is_refused_at_every_byte() {
    let text = on_tier().1.to_json();
    for end in 0..text.trim_end().len() {
        let error = Snapshot::from_json(&text[..end], "a file").unwrap_err();
        assert!(error.to_string().contains("a file"), "{error}");
    }
}

#[test]
fn a_changed_byte_is_noticed_wherever_it_is() {
    let text = on_tier().1.to_json();
    let mut rng = fastrand::Rng::with_seed(11);
    for at in 0..text.trim_end().len() {
        let mut bytes = text.clone().into_bytes();
        let old = bytes[at];
        // Seven bits, so that the text stays UTF-8 and reaches the reader.
        bytes[at] = (old ^ (1 << rng.u8(0..7))) & 0x7f;
        let changed = String::from_utf8(bytes).unwrap();
        assert!(Snapshot::from_json(&changed, "a file").is_err(), "byte {at}, {:?}", old as char);
    }
}

#[test]
fn foreign_text_is_refused_with_what_to_give_instead() {
    for text in ["", "hello", "{}", "[1,2]", "{\"format\":1}", "null", &"[".repeat(100_000)] {
        let error = Snapshot::from_json(text, "notes.txt").unwrap_err();
        assert!(matches!(error, Error::Foreign { .. }), "{error}");
        assert!(
            error.to_string().contains("notes.txt")
                && error.to_string().contains("tiersmith awr snapshot")
        );
    }
}

#[test]
fn a_snapshot_that_contradicts_itself_is_refused_even_with_a_right_checksum() {
    let good = on_tier().1;
    let mut twice = good.clone();
    twice.waits.push(twice.waits[0].clone());
    let mut uncounted = good.clone();
    uncounted.waits[1].count += 1;
    let mut border = good.clone();
    border.waits[1].buckets[0].0 = 130_001;
    let mut many = good.clone();
    many.waits[1].buckets = vec![(0, u64::MAX), (1, u64::MAX)];
    let mut load = good.clone();
    load.host.load.as_mut().unwrap().one = -1.0;
    let mut disk = good.clone();
    let disks = disk.host.disks.as_mut().unwrap();
    disks.push(disks[0].clone());
    for bad in [twice, uncounted, border, many, load, disk] {
        let error = Snapshot::from_json(&bad.to_json(), "bad.json").unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        assert!(matches!(Interval::between(&good, &bad), Err(Error::Damaged { .. })));
        assert!(matches!(Interval::between(&bad, &good), Err(Error::Damaged { .. })));
    }
}

#[test]
fn a_restarted_source_is_an_error_and_not_a_wrong_number() {
    type Change = fn(&mut Snapshot);
    let changes: [Change; 9] = [
        |later| later.source.instance = "run-2".to_owned(),
        |later| later.waits.retain(|wait| wait.name != "log file sync"),
        |later| later.waits.iter_mut().for_each(|wait| wait.total_ns = 0),
        |later| {
            later.waits.iter_mut().for_each(|wait| (wait.count, wait.buckets) = (0, Vec::new()))
        },
        |later| later.counters.iter_mut().for_each(|counter| counter.value = 0),
        |later| later.counters.clear(),
        |later| later.db_time_ns = Some(1),
        |later| later.process_cpu_ns = Some(0),
        |later| later.io.iter_mut().for_each(|io| io.read_bytes = 0),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let (mut begin, mut end) = at_home();
        begin.process_cpu_ns = Some(1);
        begin.io.iter_mut().for_each(|io| io.read_bytes = 1);
        begin.add_io(IoStat {
            file_class: "data".into(),
            tier: "home".into(),
            read_bytes: 1,
            ..IoStat::default()
        });
        change(&mut end);
        let error = Interval::between(&begin, &end).unwrap_err();
        assert!(matches!(error, Error::Restarted { .. }), "change {index}: {error}");
        assert!(
            error.to_string().contains("the source was restarted between the snapshots"),
            "{error}"
        );
    }
}

#[test]
fn a_bucket_that_shrank_is_a_restart_even_if_the_sum_grew() {
    let (begin, mut end) = at_home();
    let sync = end.waits.iter_mut().find(|wait| wait.name == "log file sync").unwrap();
    let count: u64 = sync.buckets.iter().map(|(_, count)| count).sum();
    sync.buckets = vec![(1, count)];
    let error = Interval::between(&begin, &end).unwrap_err();
    assert!(matches!(error, Error::Restarted { .. }), "{error}");
}

#[test]
fn snapshots_of_two_databases_do_not_make_an_interval() {
    let (begin, mut end) = at_home();
    end.source.path = "/data/other.db".to_owned();
    assert!(matches!(Interval::between(&begin, &end), Err(Error::OtherSource { .. })));
}

#[test]
fn an_interval_without_time_or_backwards_is_an_error() {
    let (begin, end) = at_home();
    for (first, second, word) in
        [(&begin, &begin, "no time passed"), (&end, &begin, "before the first")]
    {
        let error = Interval::between(first, second).unwrap_err();
        assert!(matches!(error, Error::NoTime { .. }), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn a_host_that_went_backwards_is_left_out_and_said() {
    let (mut begin, end) = at_home();
    begin.host.cpu.as_mut().unwrap().user_ns = u64::MAX;
    begin.host.disks.as_mut().unwrap()[0].reads = u64::MAX;
    let interval = Interval::between(&begin, &end).unwrap();
    assert_eq!((interval.host_cpu, interval.disks.len()), (None, 0));
    assert_eq!(interval.warnings.iter().filter(|warning| warning.contains("backwards")).count(), 2);
}

/// A wait without a histogram.
fn untold(name: &str, help: &str, count: u64, total_ns: u64) -> WaitStat {
    WaitStat {
        name: name.to_owned(),
        class: WaitClass::SystemIo,
        background: true,
        help: help.to_owned(),
        count,
        total_ns,
        max_ns: 0,
        bytes: 0,
        buckets: Vec::new(),
    }
}

#[test]
fn a_wait_or_counter_that_came_to_be_counted_in_another_way_is_left_out_and_is_no_restart() {
    let (mut begin, mut end) = at_home();
    for snapshot in [&mut begin, &mut end] {
        snapshot.partial = ["waits", "counters"].map(str::to_owned).into();
    }
    // An older program counted what makes new files for redo, too.
    begin.waits.push(untold("redo, written", "all of it", 900, 9_000));
    end.waits.push(untold("redo, written", "without new files", 700, 7_000));
    begin.waits.push(untold("data file sync", "alike", 5, 50));
    end.waits.push(untold("data file sync", "alike", 8, 90));
    begin.add_counter("redo writes, all", "writes", 900);
    end.add_counter("redo writes, all", "writes", 700);
    end.counters.iter_mut().find(|of| of.name == "redo writes, all").unwrap().help =
        "without new files".to_owned();
    let interval = Interval::between(&begin, &end).unwrap();
    assert!(interval.waits.iter().all(|wait| wait.name != "redo, written"));
    assert_eq!(interval.counter("redo writes, all"), None);
    let sync = interval.waits.iter().find(|wait| wait.name == "data file sync").unwrap();
    assert_eq!((sync.count, sync.total_ns), (3, 40));
    let said = interval.warnings.join("\n");
    assert!(
        said.contains("the waits redo, written") && said.contains("the counters redo writes, all"),
        "{said}"
    );
    // Counted alike it is a restart.
    end.waits.iter_mut().find(|wait| wait.name == "redo, written").unwrap().help =
        "all of it".to_owned();
    assert!(matches!(Interval::between(&begin, &end), Err(Error::Restarted { .. })));
}

#[test]
fn times_that_became_too_large_for_their_counters_are_left_out_or_go_on_and_nothing_is_invented() {
    /// Where picoseconds in 64 bits begin again at zero.
    const WRAP_NS: u64 = u64::MAX / 1000;
    let (mut begin, mut end) = at_home();
    let row = |reads, read_ns| IoStat {
        file_class: "data".to_owned(),
        tier: "files".to_owned(),
        reads,
        read_ns,
        ..IoStat::default()
    };
    (begin.db_time_ns, end.db_time_ns) = (Some(WRAP_NS - 500), Some(1_000));
    begin.waits.push(untold("idle: a client", "", 10, WRAP_NS - 7));
    end.waits.push(untold("idle: a client", "", 12, 90));
    begin.add_io(row(5, WRAP_NS - 3));
    end.add_io(row(6, 40));
    for product in ["MariaDB", "MySQL"] {
        for snapshot in [&mut begin, &mut end] {
            snapshot.source.product = product.to_owned();
        }
        let interval = Interval::between(&begin, &end).unwrap();
        assert_eq!(interval.db_time_ns, None);
        assert!(interval.waits.iter().all(|wait| wait.name != "idle: a client"));
        let io = interval.io.iter().find(|io| io.tier == "files").unwrap();
        assert_eq!((io.reads, io.read_ns, io.untimed), (1, 0, true));
        let said = interval.warnings.join("\n");
        for what in [
            "all statements, which is DB time",
            "idle: a client",
            "reads and writes of data on files",
        ] {
            assert!(said.contains(what), "{said}");
        }
        // One that fell by less was set to zero, and so was one whose count fell with it.
        let mut less = end.clone();
        less.waits.iter_mut().find(|wait| wait.name == "idle: a client").unwrap().total_ns =
            WRAP_NS / 2;
        assert!(matches!(Interval::between(&begin, &less), Err(Error::Restarted { .. })));
        let mut fewer = end.clone();
        fewer.waits.iter_mut().find(|wait| wait.name == "idle: a client").unwrap().count = 9;
        assert!(matches!(Interval::between(&begin, &fewer), Err(Error::Restarted { .. })));
    }
    begin.source.product = "PostgreSQL".to_owned();
    end.source.product = "PostgreSQL".to_owned();
    assert!(matches!(Interval::between(&begin, &end), Err(Error::Restarted { .. })));
}

#[test]
fn the_times_of_a_disk_go_on_where_the_kernel_counts_them_in_32_bits() {
    let (mut begin, mut end) = at_home();
    let disk = |reads, read_ms, busy_ms| tiersmith_awr::host::DiskStat {
        name: "sdq".to_owned(),
        reads,
        read_ms,
        busy_ms,
        ..Default::default()
    };
    let of = |begin: &Snapshot, end: &Snapshot| {
        let interval = Interval::between(begin, end).unwrap();
        let said = interval.warnings.iter().any(|warning| warning.contains("sdq"));
        (interval.disks.into_iter().find(|disk| disk.name == "sdq"), said)
    };
    begin.host.disks = Some(vec![disk(10, (1 << 32) - 100, 50)]);
    end.host.disks = Some(vec![disk(20, 200, 80)]);
    let (found, _) = of(&begin, &end);
    assert_eq!(found.map(|disk| (disk.reads, disk.read_ms, disk.busy_ms)), Some((10, 300, 30)));
    // Set to zero, and a disk of another's name: nothing is told of it.
    end.host.disks = Some(vec![disk(20, 200, 49)]);
    assert_eq!(of(&begin, &end), (None, true));
    end.host.disks = Some(vec![disk(9, 200, 80)]);
    assert_eq!(of(&begin, &end), (None, true));
}

#[test]
fn what_two_registries_recorded_is_added_up() {
    let registries = [0, 1].map(|_| Registry::new(fixture::EVENTS, fixture::COUNTERS));
    let mut together = Histogram::new();
    let mut snapshot = Snapshot::at(Source::default(), 0, 0);
    for (index, registry) in registries.iter().enumerate() {
        for n in 0..100u64 {
            let wait_ns = n * n * (index as u64 + 1);
            registry.record_ns(fixture::REDO_SYNC, wait_ns, 10);
            together.record(wait_ns);
        }
        registry.count(fixture::REDO_SIZE, 5);
        snapshot.add_waits(&registry.read());
        snapshot.add_counters(&registry.read());
    }
    let sync = snapshot.waits.iter().find(|wait| wait.name == "log file sync").unwrap();
    assert_eq!((sync.count, sync.bytes), (200, 2_000));
    assert_eq!(sync.histogram().unwrap(), together);
    assert_eq!(
        snapshot.counters.iter().find(|counter| counter.name == "redo size").unwrap().value,
        10
    );
    snapshot.check().unwrap();
}

#[test]
fn differences_are_those_of_the_counters() {
    let interval = home_interval();
    assert_eq!(interval.elapsed_s(), 60.0);
    assert_eq!(interval.transactions(), Some(1_000));
    assert_eq!(interval.active_sessions(), Some(20.0 / 60.0));
    let sync = interval.wait("log file sync").unwrap();
    assert_eq!((sync.count, sync.total_ns, sync.mean_ns()), (1_000, 8_000_000_000, Some(8e6)));
    // Twelve longer waits were before the interval.
    assert_eq!(sync.histogram.count(), 1_000);
    assert!(sync.histogram.max_ns().unwrap() < 12_200_000);
}

#[test]
fn reads_and_writes_are_told_apart_by_file_class_and_tier() {
    let home = home_interval().io;
    let find = |rows: &[IoStat], class: &str, tier: &str| {
        rows.iter().find(|io| io.file_class == class && io.tier == tier).cloned().unwrap()
    };
    assert_eq!(find(&home, "data", "home").read_bytes, 4_000 * 4_096);
    assert_eq!(find(&home, "redo", "home").writes, 1_000);
    let tier = tier_interval().io;
    assert_eq!(find(&tier, "data", "fast").reads, 40_000);
    assert_eq!(find(&tier, "data", "fast").writes, 5_008);
    assert_eq!(find(&tier, "redo", "fast").write_bytes, 40_960_000);
    assert_eq!(find(&tier, "destage", "home").writes, 20);
}

#[test]
fn what_a_partial_list_does_not_have_was_not_told_and_is_never_counted_from_zero() {
    let (mut begin, mut end) = at_home();
    let row = IoStat {
        file_class: "relation".into(),
        tier: "home".into(),
        reads: 10,
        ..IoStat::default()
    };
    begin.add_io(IoStat { untimed: true, ..row.clone() });
    end.add_io(IoStat { reads: 30, read_ns: 5_000_000, ..row.clone() });
    begin.add_counter("kept", "rows", 5);
    end.add_counter("kept", "rows", 6);
    end.add_counter("new", "rows", 1_000_000);
    begin.add_counter("gone", "rows", 7);
    begin.waits.retain(|wait| wait.name != "log file sync");
    for at in [&mut begin, &mut end] {
        at.partial = ["waits", "counters", "io"].map(str::to_owned).into();
        assert_eq!(Snapshot::from_json(&at.to_json(), "here").unwrap(), *at);
    }
    let interval = Interval::between(&begin, &end).unwrap();
    assert_eq!(["kept", "new", "gone"].map(|name| interval.counter(name)), [Some(1), None, None]);
    assert!(interval.wait("log file sync").is_none());
    let relation = interval.io.iter().find(|io| io.file_class == "relation").unwrap();
    assert_eq!((relation.reads, relation.read_ns, relation.untimed), (20, 0, true));
    for name in ["gone; new", "log file sync", "the times of the reads and writes of relation"] {
        assert!(
            interval.warnings.iter().any(|line| line.contains(name)),
            "{name}: {:?}",
            interval.warnings
        );
    }
    end.counters.iter_mut().filter(|counter| counter.name == "kept").for_each(|counter| {
        counter.help = "counted in another way".to_owned();
    });
    assert_eq!(Interval::between(&begin, &end).unwrap().counter("kept"), None);
    // Of a whole list, what is not there yet is zero, and what is gone is a restart.
    begin.partial.clear();
    end.partial.clear();
    assert!(matches!(Interval::between(&begin, &end), Err(Error::Restarted { .. })));
}

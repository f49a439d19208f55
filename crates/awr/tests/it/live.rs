//! What live sources add to snapshots: kept as format 2, subtracted with suspicion, and apart from
//! what was measured in every report.

use crate::fixture::{at_home, home_interval, tier_interval};
use tiersmith_awr::events::WaitClass;
use tiersmith_awr::{
    Cell, Error, FileStat, Interval, Item, Report, Sampling, Snapshot, StatementStat, Table,
    Timeline, compare, render, report, statistic,
};

/// The fixture with statements, samples, and something missing.
fn live() -> (Snapshot, Snapshot) {
    let (mut begin, mut end) = at_home();
    begin.sampling = Some(Sampling::new("one".to_owned(), 1000));
    let mut sampling = Sampling::new("one".to_owned(), 1000);
    sampling.looks = 60;
    for seen in 0..100 {
        match seen % 4 {
            0 => sampling.saw("on CPU", None),
            _ => sampling.saw("IO: DataFileRead", Some(WaitClass::UserIo)),
        }
    }
    end.sampling = Some(sampling);
    end.statements = vec![StatementStat {
        id: "1".to_owned(),
        text: "select <script> from t where a = ?".to_owned(),
        calls: 10,
        total_ns: 5_000_000_000,
        rows: 10,
        pages_hit: Some(90),
        pages_read: Some(10),
        redo_bytes: None,
        temp_bytes: None,
    }];
    end.missing = vec!["the moon; GRANT SELECT ON sky gives it".to_owned()];
    for (snapshot, at) in [(&mut begin, "t0"), (&mut end, "t0")] {
        snapshot.resets.insert("database d".to_owned(), at.to_owned());
    }
    (begin, end)
}

#[test]
fn everything_a_snapshot_may_hold_is_of_format_1_and_reads_back() {
    let (_, end) = live();
    let text = end.to_json();
    assert!(text.contains("\"format\":1,"));
    assert_eq!(Snapshot::from_json(&text, "here").unwrap(), end);
}

#[test]
fn samples_have_a_section_of_their_own_and_are_in_no_sum() {
    let (begin, end) = live();
    let interval = Interval::between(&begin, &end).unwrap();
    assert_eq!(interval.waited_ns(), home_interval().waited_ns());
    for report in [report(&interval), compare(&interval, &tier_interval())] {
        let text = render::text(&report);
        assert!(
            text.contains("(sampled, not measured)") && text.contains("IO: DataFileRead"),
            "{text}"
        );
        assert!(text.contains("GRANT SELECT ON sky"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(
            !render::html(&report).contains("<script")
                && !render::markdown(&report).contains("<script")
        );
        assert!(render::csv(&report).lines().count() > 50);
    }
    // 75 of 100 sightings: the error is the square root of 0.75 * 0.25 / 100.
    assert!(
        render::text(&report(&interval)).contains("4.33"),
        "{}",
        render::text(&report(&interval))
    );
    let mut other = end.clone();
    other.sampling.as_mut().unwrap().sampler = "two".to_owned();
    let interval = Interval::between(&begin, &other).unwrap();
    assert!(
        interval.sampling.is_none()
            && interval.warnings.iter().any(|line| line.contains("two recordings"))
    );
}

#[test]
fn a_reset_is_an_error_also_where_no_difference_is_negative() {
    let (begin, mut end) = live();
    end.resets.insert("database d".to_owned(), "t1".to_owned());
    let error = Interval::between(&begin, &end).unwrap_err();
    assert!(
        matches!(error, Error::Reset { .. }) && error.to_string().contains("database d"),
        "{error}"
    );
    end.resets.remove("database d");
    assert!(
        matches!(Interval::between(&begin, &end), Err(Error::Reset { .. })),
        "a dropped database"
    );
    let (begin, mut end) = live();
    end.resets.insert("database new".to_owned(), "t1".to_owned());
    assert!(Interval::between(&begin, &end).is_ok(), "a new database began at zero");
}

#[test]
fn a_server_that_says_how_long_it_is_up_is_seen_to_have_been_started() {
    let (begin, end) = live();
    let elapsed_s = (end.monotonic_ns - begin.monotonic_ns) / 1_000_000_000;
    let at = |before: u64, now: u64| {
        let (mut begin, mut end) = (begin.clone(), end.clone());
        begin.add_counter("time since the server started", "s", before);
        end.add_counter("time since the server started", "s", now);
        Interval::between(&begin, &end)
    };
    assert!(elapsed_s > 20, "{elapsed_s}");
    for (before, now) in [(0, elapsed_s), (5, elapsed_s + 4), (1000, 1000 + elapsed_s)] {
        assert!(at(before, now).is_ok(), "{before} {now}");
    }
    for (before, now) in [(0, 10), (5, 10), (5, elapsed_s - 2)] {
        assert!(matches!(at(before, now), Err(Error::Reset { .. })), "{before} {now}");
    }
}

#[test]
fn a_clock_that_was_set_and_a_machine_that_was_restarted_are_said() {
    let (begin, end) = live();
    let hour = 3_600_000_000_000;
    for (taken, word) in [(end.taken_unix_ns + hour, "forward"), (end.taken_unix_ns - hour, "back")]
    {
        let moved = Snapshot { taken_unix_ns: taken, ..end.clone() };
        let interval = Interval::between(&begin, &moved).unwrap();
        assert_eq!(interval.elapsed_ns, end.monotonic_ns - begin.monotonic_ns);
        assert!(
            interval.warnings.iter().any(|line| line.contains(word) && line.contains("3600.0 s")),
            "{:?}",
            interval.warnings
        );
    }
    let (mut before, mut after) = (begin, end);
    let end_ns = after.monotonic_ns;
    before.host.boot = Some("first".to_owned());
    after.host.boot = Some("second".to_owned());
    after.monotonic_ns = 1;
    let interval = Interval::between(&before, &after).unwrap();
    assert_eq!(interval.elapsed_ns, after.taken_unix_ns - before.taken_unix_ns);
    assert!(interval.warnings.iter().any(|line| line.contains("by the time of day")));
    assert!(
        interval.host_cpu.is_none() && interval.disks.is_empty() && interval.pressure.is_none()
    );
    assert!(
        interval.warnings.iter().any(|line| line.contains("are left out")),
        "{:?}",
        interval.warnings
    );
    let (a, mut b) = (before.clone(), after.clone());
    b.host.boot = Some("first".to_owned());
    b.monotonic_ns = end_ns;
    assert!(Interval::between(&a, &b).unwrap().host_cpu.is_some(), "one machine");
    after.taken_unix_ns = before.taken_unix_ns;
    assert!(matches!(Interval::between(&before, &after), Err(Error::NoTime { .. })));
}

fn value(cell: &Cell) -> Option<f64> {
    match cell {
        Cell::Number(value)
        | Cell::Seconds(value)
        | Cell::Nanoseconds(value)
        | Cell::Bytes(value)
        | Cell::Percent(value) => Some(*value),
        _ => None,
    }
}

fn file(name: &str, mib: u64, read_ms: Option<u64>) -> FileStat {
    FileStat {
        id: name.to_owned(),
        name: name.to_owned(),
        bytes: Some(1 << 30),
        read_bytes: mib << 20,
        read_ns: read_ms.map(|ms| ms * 1_000_000),
    }
}

/// The fixture with reads by table: of all it read, and of each so much.
fn with_files(all_mib: u64, files: &[FileStat]) -> Interval {
    let (mut begin, mut end) = live();
    for (snapshot, mib) in [(&mut begin, 0), (&mut end, all_mib)] {
        snapshot.counters.retain(|counter| counter.name != statistic::PHYSICAL_READS);
        snapshot.add_counter(statistic::PHYSICAL_READS, "blocks", mib * 128);
    }
    end.files = files.to_vec();
    Interval::between(&begin, &end).unwrap()
}

fn table<'a>(report: &'a Report, caption: &str) -> &'a Table {
    let items = report.sections.iter().flat_map(|section| &section.items);
    let mut tables =
        items.filter_map(|item| if let Item::Table(table) = item { Some(table) } else { None });
    tables.find(|table| table.caption == caption).unwrap_or_else(|| panic!("no table `{caption}`"))
}

#[test]
fn segments_are_listed_by_physical_reads_in_every_form() {
    let evil = "public.<script>";
    let first = with_files(200, &[file("public.orders", 60, Some(120)), file(evil, 100, None)]);
    let one = report(&first);
    let segments = table(&one, "Segments by Physical Reads");
    let row = |row: usize| segments.rows[row].iter().map(Cell::shown).collect::<Vec<_>>();
    assert_eq!(
        (row(0)[0].as_str(), row(1)[0].as_str()),
        (evil, "public.orders"),
        "most bytes first"
    );
    let shares: Vec<Option<f64>> = segments.rows.iter().map(|row| value(&row[2])).collect();
    assert_eq!(shares, [Some(50.0), Some(30.0)], "of all that was read, not of what is listed");
    assert_eq!(value(&segments.rows[1][5]), Some(2e6), "2 ms for each MiB");
    assert_eq!(segments.rows[0][5], Cell::Empty, "not measured is empty, not zero");
    assert!(segments.notes.iter().any(|note| note.contains("80")), "{:?}", segments.notes);
    for (text, tagged) in [
        (render::text(&one), false),
        (render::markdown(&one), false),
        (render::csv(&one), false),
        (one.json(), false),
        (render::html(&one), true),
    ] {
        assert!(
            text.contains("Segments by Physical Reads") && text.contains("public.orders"),
            "{text}"
        );
        assert!(
            !tagged || (!text.contains(evil) && text.contains("public.&lt;script&gt;")),
            "{text}"
        );
    }
    // What only one of them has was not read in the other; where the list may lack rows, that is
    // not known.
    let second = with_files(100, &[file("public.orders", 90, Some(90))]);
    let two = compare(&first, &second);
    let segments = table(&two, "Segments by Physical Reads");
    let of = |name: &str| segments.rows.iter().find(|row| row[0] == Cell::text(name)).unwrap();
    assert_eq!((value(&of(evil)[2]), value(&of("public.orders")[5])), (Some(0.0), Some(90.0)));
    let mut partial = second.clone();
    partial.end.partial.insert("files".to_owned());
    let two = compare(&first, &partial);
    let segments = table(&two, "Segments by Physical Reads");
    let of = |name: &str| segments.rows.iter().find(|row| row[0] == Cell::text(name)).unwrap();
    assert_eq!(of(evil)[2], Cell::Empty);
    assert!(segments.notes.iter().any(|note| note.contains("not told")), "{:?}", segments.notes);
    // Rows never add up to more than was read, also where the source counts less than its tables.
    let less = report(&with_files(10, &[file("a", 60, None), file("b", 40, None)]));
    let sum: f64 = table(&less, "Segments by Physical Reads")
        .rows
        .iter()
        .filter_map(|row| value(&row[2]))
        .sum();
    assert_eq!(sum, 100.0);
    assert!(
        !render::text(&report(&with_files(10, &[]))).contains("Segment Statistics"),
        "nothing told, no section"
    );
}

#[test]
fn the_recorders_host_is_never_shown_as_that_of_a_database_elsewhere() {
    let all = |remote| -> Vec<Snapshot> {
        let (begin, end) = live();
        let mut middle = begin.clone();
        middle.monotonic_ns = (begin.monotonic_ns + end.monotonic_ns) / 2;
        middle.taken_unix_ns = (begin.taken_unix_ns + end.taken_unix_ns) / 2;
        let mut all = vec![begin, middle, end];
        all.iter_mut().for_each(|snapshot| snapshot.source.remote = remote);
        all
    };
    let of = |remote| {
        let all = all(remote);
        Interval::between(&all[0], &all[2]).unwrap().with_timeline(Timeline::of_snapshots(&all))
    };
    let (here, elsewhere) = (of(Some(false)), of(Some(true)));
    let whose = "of the recorder; the database is on another machine";
    assert!(!render::text(&report(&here)).contains(whose));
    assert!(render::html(&report(&here)).contains("host processors busy"));
    for report in [report(&elsewhere), compare(&elsewhere, &elsewhere)] {
        assert!(report.sections.iter().any(|section| section.title == format!("Host ({whose})")));
        let (text, html) = (render::text(&report), render::html(&report));
        assert!(!text.contains("host processors") && !html.contains("host processors"), "{text}");
        assert!(html.contains("its processors are not known"), "{html}");
        for line in text.lines().filter(|line| line.contains("Host Name")) {
            assert!(line.contains("of the recorder"), "{line}");
        }
    }
    let both = compare(&here, &elsewhere);
    assert!(both.sections.iter().any(|section| section.title == format!("Host (2nd: {whose})")));
}
